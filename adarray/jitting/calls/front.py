"""A jitted function: what a call does before and after the compiled program runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any

from adarray.arrays.adarray import ADArray
from adarray.backend import chosen, new_engine
from adarray.base import telling
from adarray.base.aliasing import shares_memory
from adarray.base.engines import BaseEngine
from adarray.base.errors import BackendError, DeviceMemoryError
from adarray.base.levels import LEVEL
from adarray.base.memory import duplicate
from adarray.base.runtime import INLINE, MODE, Mode
from adarray.base.spans import span
from adarray.base.transformed import global_name
from adarray.batching.values import refuse_strict
from adarray.compiler.ir.verify_loops import checking
from adarray.jitting.calls.attempt import aligned, note_links
from adarray.jitting.calls.tracing import Arguments, Tracing
from adarray.jitting.shared.copies import copies
from adarray.jitting.shared.devices import borrowed, careful, with_adarrays, write
from adarray.jitting.shared.options import Options
from adarray.jitting.shared.signature import Bound, Ints, describe, unfit
from adarray.jitting.tree.build import SegmentCompiler, say
from adarray.jitting.tree.check import compare
from adarray.jitting.tree.entries import CacheInfo, Entry, Recent, StateVariant
from adarray.jitting.tree.matching import Matcher, fast_key
from adarray.jitting.tree.nodes import are_of, attach, can_be_node, op_of
from adarray.jitting.tree.reruns import SPENT
from adarray.jitting.tree.run import MissError, TreeWalk
from adarray.jitting.tree.tree import TreeNode
from adarray.jitting.tree.trial import Trial
from adarray.transforms.tree import flatten

MAX_SIGNATURES = 256
# What nobody catches on purpose: errors of backends, and mistakes in compiled code.
UNCAUGHT = (BackendError, AttributeError, TypeError)


class JitFunction(Tracing):
    """A function that records its runs and compiles what it recorded.

    Made by `adarray.jit`. Called like the function that it wraps.

    Attributes
    ----------
    options : Options
    """

    adarray_jitted = True  # see adarray.jitting.captures.kinds.kind_of

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        # First of all: a transform of a jitted function has the attributes of one.
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, f)
        super().__init__(f, options)
        self._table: dict[Hashable, Entry] = {}
        self._ints = Ints()
        self._lock = threading.RLock()
        self._recent: Recent | None = None
        self._failures: set[str] = set()  # of compiled code, that were reported
        self._eager = not_recorded(f)

    @property
    def entries(self) -> list[Entry]:
        """What is known of each signature."""
        return list(self._table.values())

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def __reduce__(self) -> Any:
        return global_name(self) or (type(self), (self._f, self.options))

    def __repr__(self) -> str:
        return f"<jit of {self._f!r}>"

    def like(self, f: Callable[..., Any]) -> JitFunction:
        """Return another function compiled with these options; it donates nothing."""
        return JitFunction(f, self.options._replace(donate=()))

    # -- calling ---------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled where that is possible."""
        mode = MODE.get()
        if mode is not None and mode.symbolic:
            return self._f(*args, **kwargs)  # another jit records it
        if INLINE.get():
            return self.plainly(args, kwargs)
        if LEVEL.get():
            bound = Bound(args, kwargs, self._ints)
            if bound.batched:
                refuse_strict(bound.leaves)
            elif bound.follows:
                return self._followed(bound, (args, kwargs), mode)
            return self.plainly(args, kwargs)  # it may have captured what is traced
        if not kwargs:
            # While a profile is open, this is an engine that is in no table.
            place = (mode.engine if mode is not None else None) or not chosen()
            recent = self._recent
            if recent is None or recent.place is not place or not recent.fits(args):
                recent = self._find(args, place)
            if recent is not None and recent.entry.variants:
                entry = recent.entry
                variant = entry.variants[0]
                fast = variant.fast
                if fast is not None:
                    captures = variant.check(())
                    if captures is not None and (
                        variant.same is None
                        or variant.same([*(recent.leaves or tuple)(args), *captures])
                    ):
                        if entry.donates:
                            self._permit(args, captures)
                        try:
                            if recent.leaves is not None:
                                return fast([*recent.leaves(args), *captures])
                            return fast([*args, *captures])
                        except MissError:
                            pass  # another path
                        except Exception as error:
                            return self._instead(error, (args, {}))
        return self._call(args, kwargs, mode)

    def _find(self, args: tuple[Any, ...], place: Any) -> Recent | None:
        """Return the signature of positional arrays and numbers, if it is known."""
        key = fast_key(args)
        entry = self._table.get((key, place)) if key is not None else None
        if entry is None:
            return None
        self._recent = recent = Recent(place, Matcher(args), entry)
        return recent

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode | None) -> Any:
        """Call it in all cases but plain arrays and one compiled segment."""
        bound = Bound(args, kwargs, self._ints)
        if bound.follows:
            return self._followed(bound, (args, kwargs), mode)
        return self._outcome(bound, (args, kwargs), mode)[0]

    def apart(self, *args: Any) -> Any:
        """Call it with plain arrays although a transform is at work, which need not see it."""
        if INLINE.get():
            return self.plainly(args, {})
        bound = Bound(args, {}, self._ints)
        if bound.batched:
            refuse_strict(bound.leaves)
            return self.plainly(args, {})
        if bound.follows:
            return self._followed(bound, (args, {}), MODE.get())
        return self._outcome(bound, (args, {}), MODE.get(), alone=False)[0]

    def _followed(self, bound: Bound, arguments: Arguments, mode: Mode | None) -> Any:
        """Call it where a derivative is taken: as one operation, if that is possible."""
        args, kwargs = arguments
        if not can_be_node(bound) or (mode is not None and not mode.record):
            return self.plainly(args, kwargs)
        entry = self._entry(args, kwargs, bound, mode, False)
        if entry.weak or entry.draws:
            return self.plainly(args, kwargs)
        captured: list[Any] = []
        result, variant = self._outcome(bound, arguments, mode, alone=False, captured=captured)
        if variant is None:
            return result
        if any(isinstance(x, (float, complex)) for x in flatten(result)[0]):
            entry.weak = True
            return self.plainly(args, kwargs)
        if bound.loose:  # views of an array that a node would not know of
            return self.plainly(args, kwargs)
        followed = tuple(isinstance(x, ADArray) and x._node is not None for x in bound.targets)
        op = variant.ops.get((followed, bound.linked))
        if op is None:
            op = op_of(self, bound, variant.numbers, followed, variant.state.check)
            variant.ops[followed, bound.linked] = op
        state = variant.state
        if state.owners is not state.check:
            owners = state.owners(bound.statics)
            if owners is None or not are_of(owners, captured):
                return self.plainly(args, kwargs)  # another thread has written meanwhile
            captured = owners
        return attach(op, self, bound, captured, result)

    def _outcome(
        self,
        bound: Bound,
        arguments: Arguments,
        mode: Mode | None,
        alone: bool = True,
        captured: list[Any] | None = None,
    ) -> tuple[Any, StateVariant | None]:
        """Return the result of a call, and the variant that gave it; None if f itself ran.

        With ``alone=False`` the plain values of the arguments stand for what a derivative is
        taken of: what the function changes besides its result must not get lost. `captured`
        gets the captured inputs.
        """
        args, kwargs = arguments
        entry = self._entry(args, kwargs, bound, mode, alone)
        if entry.eager or (entry.aliased and shares_memory(bound.values)):
            return self.plainly(args, kwargs), None
        variant, captures = entry.find(bound)
        if captured is not None:
            captured[:] = captures
        if variant is None or variant.tree.root is None:
            return self._record(entry, variant, bound, arguments, alone, captured)
        if variant.tree.eager:
            entry.give_up(variant.tree.eager)
            return self.plainly(args, kwargs), None
        inputs = [*bound.values, *captures]
        if entry.donates:
            self._permit(args, captures)
        effects = variant.written or variant.draws or variant.effects
        written = None if variant.touched else variant.written
        if shares_memory(inputs, written) or (effects and not alone):
            return self.plainly(args, kwargs), None
        if variant.written and variant.writes_hidden(bound.statics, inputs):
            return self.plainly(args, kwargs), None
        trial = variant.trial if alone and not variant.waits else None
        if trial is not None and trial.turn:
            return self._own_turn(entry, trial, arguments), None
        begun = perf_counter()
        walk = TreeWalk(
            variant.tree, self._prepared_inputs(variant, bound, inputs), variant.builder.build
        )
        before = copies(bound.leaves) if checking() else []
        try:
            with span("jit", entry.signature):
                leaf = walk.run()
        except MissError as miss:
            if isinstance(miss.__cause__, Exception):
                return self._instead(miss.__cause__, arguments), None
            return self._record(entry, variant, bound, arguments, alone, captured)
        device = variant.device
        targets = [*bound.targets, *captures]
        note_links(bound, leaf.links)
        result = leaf.finish(walk.values, targets, device, bound.to_adarray and device is None)
        for i, n, value in leaf.writes:
            target = targets[i]
            final = walk.values[n] if n is not None else value
            if device is not None:
                write(target, device.seen(final, False))
            elif final is not target:  # else it was computed there
                target[...] = final
        if leaf.effects:
            result = leaf.changed(result, bound.statics, arguments)
        if (
            checking()
            and not leaf.effects
            and walk.repeatable(bound.values)
            and all(i < len(bound.values) for i, _, _ in leaf.writes)
        ):
            compare(self._f, before, bound.rebuild, result, entry.signature)
        if trial is not None and trial.done and variant.fast is trial:
            variant.fast = trial.run
        elif trial is not None:
            trial.ran(perf_counter() - begun)
        if variant.waits:
            self._quicken(entry, variant, captures, bound)
            entry.builder.settle()
        return result, variant

    def _own_turn(self, entry: Entry, trial: Trial, arguments: Arguments) -> Any:
        """Run the function itself where that may be faster than its compiled code."""
        args, kwargs = arguments
        start = perf_counter()
        result = self.plainly(args, kwargs)
        if trial.ran_plainly(perf_counter() - start):
            entry.give_up(trial.reason())
        return result

    @staticmethod
    def _prepared_inputs(variant: StateVariant, bound: Bound, inputs: list[Any]) -> list[Any]:
        """Return inputs as compiled code takes them."""
        for i in variant.written:  # what others rely on is not computed in place
            if i < len(bound.targets) and borrowed(bound.targets[i]):
                inputs[i] = duplicate(inputs[i], exactly=True)
        if variant.device is None:
            return aligned(inputs)
        return variant.device.enter(inputs, len(bound.targets), variant.written)

    def _instead(self, error: Exception, arguments: Arguments) -> Any:
        """Run the function where compiled code raised: it raises its own, and may catch it."""
        if isinstance(error, DeviceMemoryError) or hasattr(error, SPENT):
            raise error from None
        args, kwargs = arguments
        with careful():
            result = with_adarrays(self._f, args, kwargs)
        if isinstance(error, UNCAUGHT):
            why = f"{type(error).__name__}: {error}"
            if why not in self._failures:
                self._failures.add(why)
                say(
                    f"jit: {getattr(self._f, '__name__', 'a function')}: its compiled code failed "
                    f"({why}), and the function ran eagerly instead; report this"
                )
        return result

    def _entry(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: Bound,
        mode: Mode | None,
        alone: bool = True,
    ) -> Entry:
        """Return the entry of the signature of a call."""
        fast = fast_key(args) if not kwargs else None
        engine = mode.engine if mode is not None else None
        engine = engine.innermost if engine is not None else None
        place: BaseEngine | bool = engine or not chosen()
        key: Hashable = (fast if fast is not None else bound.key, place)
        if fast is None and bound.to_adarray and mode is not None and mode.place is not None:
            key = (key, "ADArrays")  # of the host: they have the keys of ndarrays
        keeps_memory = bool(self.options.donate) and (not alone or bound.to_adarray)
        if keeps_memory:
            key = (key, "nothing is donated")
        entry = self._table.get(key)
        if entry is not None:
            return entry
        with self._lock:
            entry = self._table.get(key)
            if entry is None:
                telling.check()
                if place is True:
                    engine = default_engine()
                text = describe(bound.key[1:], self._f)
                entry = Entry(text, SegmentCompiler(engine, self.options, text))
                entry.donates = bool(self.options.donate) and not keeps_memory
                reasons = [r for x in bound.values if (r := unfit(x))]
                if reasons or self._eager:
                    entry.give_up(self._eager or reasons[0])
                while len(self._table) >= MAX_SIGNATURES:
                    del self._table[next(iter(self._table))]
                self._table[key] = entry
        return entry

    # -- inspection ------------------------------------------------------------------------

    def path(self, *args: Any, **kwargs: Any) -> list[TreeNode]:
        """Return the segments that a call with these arguments would run, as far as known.

        The function is not called, and nothing is written.
        """
        bound = Bound(args, kwargs, self._ints)
        entry = self._entry(args, kwargs, bound, MODE.get())
        variant, captures = entry.find(bound)
        if variant is None:
            return []
        values = [*bound.values, *captures]
        for i in {*variant.tree.donated, *variant.written}:
            values[i] = duplicate(values[i], exactly=True)
        values = self._prepared_inputs(variant, bound, values)
        walk = TreeWalk(variant.tree, values, variant.builder.build)
        with contextlib.suppress(MissError):
            walk.run()
        walk.undo()
        return walk.nodes

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return a report of what a call with these arguments compiles to."""
        from adarray.jitting.explain.explanation import explain

        return explain(self, args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile what a call with these arguments runs, and wait until it is ready.

        The function is called until its path is known, on copies of the arrays among the
        arguments; what it does besides, such as a change of a captured object, happens as often.
        """
        from adarray.jitting.explain.explanation import compiled_path

        compiled_path(self, args, kwargs)

    def cache_info(self) -> CacheInfo:
        """Return how much was recorded and compiled."""
        trees = [v.tree for e in self.entries for v in e.variants]
        nodes = [n for t in trees for n in t.nodes()]
        seconds = {id(n.executable or n.after): n.seconds for n in nodes if n.compiled is not None}
        return CacheInfo(
            len(self.entries),
            sum(t.recordings for t in trees),
            sum(t.paths for t in trees),
            sum(n.compiled is not None for n in nodes),
            sum(bool(e.eager) for e in self.entries),
            sum(sum(s.values()) for s in seconds.values()),
        )

    stats = cache_info

    def clear(self) -> None:
        """Forget everything that was recorded and compiled."""
        with self._lock:
            self._table.clear()
            self._recent = None
            self._numbers.clear()
            self._growing.clear()
            self._ints = Ints()


def not_recorded(f: Any) -> str:
    """Return why a function is never recorded; "" if it is."""
    inner = inspect.unwrap(f) if callable(f) else f
    if inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner):
        return "it is a generator; jit the function that computes one item"
    if inspect.iscoroutinefunction(inner):
        return "it is a coroutine; jit the functions that it awaits nothing in"
    return ""


@functools.cache
def default_engine() -> BaseEngine | None:
    """Return the engine that compiles where no backend was chosen; None: NumPy runs it all."""
    reason = ""
    for name in ("openmp", "serial"):
        try:
            return new_engine(name, {})
        except BackendError as error:
            reason = str(error)
    say(f"jit: nothing compiles here: {reason}; operations run one by one with NumPy")
    return None
