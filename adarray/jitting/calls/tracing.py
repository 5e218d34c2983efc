"""The recorded call of a jitted function: run it, and compile the paths that are known."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from adarray.base.aliasing import shares_memory
from adarray.base.errors import KernelError, TraceError
from adarray.base.levels import LEVEL, remembered, restore
from adarray.base.spans import span
from adarray.base.telling import detail
from adarray.compiler.ir.verify_loops import checking
from adarray.core.comparing import asks_truths
from adarray.core.reaching import reach, reach_arguments
from adarray.jitting.calls.attempt import Attempt
from adarray.jitting.captures.cached import NotHeldError
from adarray.jitting.captures.kinds import kind_of
from adarray.jitting.captures.state import CapturedState
from adarray.jitting.shared.background import pending
from adarray.jitting.shared.collector import collector_waits
from adarray.jitting.shared.devices import ElsewhereError, OnDevice, device_of
from adarray.jitting.shared.generators import DRAWING
from adarray.jitting.shared.options import Options
from adarray.jitting.shared.signature import INT_VALUES, Bound, element_strides, unaligned
from adarray.jitting.tree.build import JitWarning, SegmentCompiler
from adarray.jitting.tree.entries import Entry, StateVariant
from adarray.jitting.tree.nodes import needed
from adarray.jitting.tree.run import runner
from adarray.jitting.tree.tree import Proof
from adarray.jitting.tree.trial import Trial
from adarray.transforms.running import prepared

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

MAX_VARIANTS = 8
DISTURBED = 8
MISSED = 8


class Tracing:
    """A function whose runs are recorded.

    Parameters
    ----------
    f : callable
    options : Options
    """

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        self._f = f
        self.options = options
        self._numbers: set[str] = set()  # captured numbers that are inputs, for they change
        self._growing: set[str] = set()  # captured lists that runs only append to

    def plainly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function itself: in a transform as that would run it."""
        f = prepared(self._f, intercept=True) if LEVEL.get() else self._f
        return f(*args, **kwargs)

    def _record(
        self,
        entry: Entry,
        variant: StateVariant | None,
        bound: Bound,
        arguments: Arguments,
        alone: bool,
        captured: list[Any] | None,
    ) -> tuple[Any, StateVariant | None]:
        """Run the function and record it; return as `_outcome` does."""
        try:
            return self._recorded(entry, variant, bound, arguments, alone, captured)
        finally:
            entry.builder.settle()

    def _recorded(
        self,
        entry: Entry,
        variant: StateVariant | None,
        bound: Bound,
        arguments: Arguments,
        alone: bool,
        captured: list[Any] | None,
    ) -> tuple[Any, StateVariant | None]:
        args, kwargs = arguments
        # Functions may get other code: before it is compared.
        try:
            reach_arguments(args, kwargs)
            # A reverse walk runs code of the function that it belongs to, and only refers to it.
            truths = any(asks_truths(reach(f._f).truths) for f in needed(self))
        except TraceError as error:
            entry.give_up(str(error))
            return self.plainly(args, kwargs), None
        state = self._state(entry, variant, bound, alone)
        if state is None:
            return self.plainly(args, kwargs), None
        if entry.donates:
            self._permit(args, state.values)
        try:
            device = device_of(bound.targets, [*bound.values, *state.values], state.inputs)
        except ElsewhereError as error:
            entry.give_up(f"its inputs are on two devices, {error}; move them with to_device")
            return self.plainly(args, kwargs), None
        checking()  # a value of its variable that says nothing is told of before anything runs
        run = Attempt(state, bound, device, truths, entry.unrolls, self.options.memory_limit)
        refused = remembered()
        try:
            start = perf_counter()
            with span("trace", entry.signature), collector_waits():
                run.record(entry.signature)
            run.seconds = perf_counter() - start
        except NotHeldError as error:
            run.restore()
            restore(refused)
            entry.missed += 1
            if entry.missed > MISSED:
                entry.give_up(f"{str(error).removeprefix('jit: ')} in each call")
            return self.plainly(args, kwargs), None  # which fills the cache
        except Exception as error:
            run.restore()
            restore(refused)
            if isinstance(error, KernelError) and not entry.unrolls:
                entry.unrolls = True  # loops that are unrolled have all derivatives
                return self._recorded(entry, variant, bound, arguments, alone, captured)
            result = self.plainly(args, kwargs)  # where f itself is wrong, this raises
            entry.give_up(f"it cannot be recorded: {type(error).__name__}: {error}")
            return result, None
        entry.missed = 0
        detail(run.summary)
        if run.hidden or (run.aliased and not shares_memory(bound.values)):
            run.restore()
            entry.give_up(
                "it writes into an array whose memory it also reads by another way (a class, a "
                "view that is captured); write into one of them only, or return a new array"
            )
            return self.plainly(args, kwargs), None
        if run.split:
            run.restore()
            entry.give_up(
                f"it changes {run.split}, which it reaches in two ways, one of them through a "
                "class or an object that jit cannot copy; return the new value"
            )
            return self.plainly(args, kwargs), None
        touched = run.recorded is not None and run.recorded.recording.touched
        entry.aliased = entry.aliased or run.aliased or touched
        entry.draws = entry.draws or bool(run.draws)
        if run.aliased or (not alone and run.changes()):
            run.restore()
            return self.plainly(args, kwargs), None
        result = run.commit(arguments)
        entry.disturbed = entry.disturbed + 1 if run.disturbed else 0
        if entry.disturbed > DISTURBED:
            run.reason = "other code draws from NumPy's global stream meanwhile; pass a generator"
        if run.reason:
            entry.give_up(run.reason)
        self._numbers |= run.state_changes.numbers
        self._growing |= run.state_changes.lists
        if run.reason or run.disturbed or run.state_changes.needs_another_run:
            return result, None
        if captured is not None:
            captured[:] = state.values
        try:
            with collector_waits():
                variant = self._insert(entry, variant, state, run, bound, device)
        except JitWarning:  # where warnings are errors
            raise
        except Exception as error:
            if checking():
                raise
            entry.give_up(f"it cannot be compiled: {type(error).__name__}: {error}")
            return result, None
        return result, variant

    def _state(
        self, entry: Entry, variant: StateVariant | None, bound: Bound, alone: bool
    ) -> CapturedState | None:
        """Return the captured state; None if nothing can be recorded with it."""
        try:
            state = self._captured(bound)
        except Exception as error:  # objects that cannot be inspected
            if alone:
                entry.give_up(f"what it captured cannot be read: {type(error).__name__}: {error}")
            return None
        if not state.reason and variant is None and entry.variants:
            changed = state.changed_numbers(entry.variants[0].state)
            ints = {n for n in changed if isinstance(state.scalars[n], int)}
            if changed and (not ints or len(entry.variants) >= INT_VALUES):
                self._numbers |= changed
                state = self._captured(bound)
            elif len(entry.variants) >= MAX_VARIANTS:
                state.reason = (
                    "what it captured keeps changing"
                    + (f" ({', '.join(sorted(changed))})" if changed else "")
                    + "; pass it as an argument"
                )
        if state.reason:
            if alone:
                entry.give_up(state.reason)
            return None
        return state

    def _captured(self, bound: Bound) -> CapturedState:
        constants = self.options.constants
        return CapturedState(self.target(), bound.statics, self._numbers, constants, self._growing)

    def target(self) -> Any:
        """Return the function, of an object with ``__call__`` that method."""
        f = self._f
        method = getattr(f, "__call__", None)  # noqa: B004  (its value is wanted)
        return method if kind_of(f) == "instance" and kind_of(method) == "method" else f

    def _insert(
        self,
        entry: Entry,
        variant: StateVariant | None,
        state: CapturedState,
        run: Attempt,
        bound: Bound,
        device: OnDevice | None,
    ) -> StateVariant:
        """Add a recording to the tree, and compile what is known well enough."""
        with entry.lock:
            assert run.recorded is not None
            if variant is None and not run.recorded.effects:
                # Another thread may have recorded the same state meanwhile. A run that changed
                # objects has left another state than it was recorded in.
                variant, captures = entry.find(bound)
                if variant is not None and len(captures) != len(state.values):
                    variant = None
            if variant is None or variant not in entry.variants:
                strides = list(map(element_strides, run.values))
                builder = entry.builder
                if device is not None and device.engine is not builder.engine:
                    builder = SegmentCompiler(device.engine, self.options, entry.signature)
                variant = StateVariant(state, strides, self.options.max_paths, builder, device)
                variant.tree.donated = self._donated_inputs(entry, bound)
                variant.numbers = set(self._numbers)
                variant.tell_apart(bound.values, state.values)
                entry.variants.insert(0, variant)
            elif len(variant.tree.strides) != len(bound.values) + len(state.values):
                return variant  # another thread has made a captured number an input meanwhile
            variant.unproven = run.unproven
            proof = None if run.unproven else Proof(state.not_compared(run.plain_operands))
            variant.tree.insert(run.recorded, proof)
            variant.tree.seconds += run.seconds
            variant.recorded = run.seconds
            variant.unrolled = sum(n.unrolled for n in run.recorded.recording.loops)
            if variant.tree.eager:
                entry.give_up(variant.tree.eager)
                return variant
            variant.take(state, run.plain_operands, run.calls)
            # Clones of captured arrays keep the run until the collector comes by. Its operands are
            # to be gone when it runs again, if nobody else has them: see `Proof`.
            run.plain_operands = []
            if variant.returns(run.recorded.plain):
                entry.give_up(
                    "a result is, or is a view of, an array that a class, slots or a cache hold; "
                    "pass that array as an argument"
                )
                return variant
            variant.written = sorted(
                {i for n in variant.tree.nodes() if n.leaf for i, _, _ in n.leaf.writes}
            )
            variant.touched = variant.touched or run.recorded.recording.touched
            variant.effects = any(n.leaf and n.leaf.effects for n in variant.tree.nodes())
            variant.draws = any(
                n.guard is not None
                and n.guard.call is not None
                and n.guard.call.function in DRAWING
                for n in variant.tree.nodes()
            )
            waiting = [n for n in variant.tree.nodes() if n.agreed and n.compiled is None]
            with variant.tree.lock:
                variant.builder.build(waiting)
            root = variant.tree.root
            # What one run has proved is compiled when it runs again: most often there is such a
            # call; where there is none, compiling would only take time.
            variant.waits = root is not None and root.compiled is None
            variant.fast = None
            if not variant.waits:
                self._quicken(entry, variant, state.values, bound)
        state.forget()
        return variant

    def _quicken(
        self, entry: Entry, variant: StateVariant, captured: list[Any], bound: Bound
    ) -> None:
        """Set what runs compiled paths quickly, and their trial.

        Calls on a device return before it has computed. Donated memory is given up only once.
        """
        refused = checking() or entry.donates or variant.device is not None
        if variant.trial is None and not refused:
            first = variant.tree.recordings == 1
            variant.trial = Trial(variant.recorded, first, variant.unrolled)
        variant.fast = self._fast(variant, captured, bound)

    @staticmethod
    def _fast(
        variant: StateVariant, captured: list[Any], bound: Bound
    ) -> Callable[[list[Any]], Any] | None:
        """Return a function that runs a variant of positional arguments quickly, or None."""
        device, state = variant.device, variant.state
        variant.waits = False
        usable = not (variant.touched or checking()) and (
            device is not None or not bound.to_adarray
        )
        if not usable or any(map(unaligned, (*bound.values, *captured))):
            return None
        if any(i >= len(bound.targets) for i in variant.written):
            return None  # captured arrays, whose copies on a device are kept
        if variant.written and (state.hidden is not None or variant.contents):
            return None  # an argument may share memory with what plain code reads
        enter = None if device is None else device.entrance(bound.targets, captured)
        variant.waits = pending(variant.tree.nodes())
        if variant.waits:
            return None
        run = runner(variant.tree, variant.builder.build, enter)
        return run if run is None or variant.trial is None else variant.trial.of(run)

    # -- what donation adds ---------------------------------------------------------------------

    def _permit(self, args: tuple[Any, ...], captured: list[Any]) -> None:
        """Raise if arguments must not be given up, given what is captured."""

    def _donated_inputs(self, entry: Entry, bound: Bound) -> tuple[int, ...]:  # noqa: ARG002
        """Return the numbers of the inputs whose memory compiled code may take."""
        return ()
