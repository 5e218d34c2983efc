"""`jit`: what a call does before and after the compiled program runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
import types
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any

from adarray.array import ADArray
from adarray.backend import chosen, load
from adarray.errors import BackendError
from adarray.jitting.attempt import Run, aligned, mirrored
from adarray.jitting.build import SPENT, Builder, JitWarning, checking
from adarray.jitting.captures import kind_of
from adarray.jitting.check import compare, copies
from adarray.jitting.collector import collector_waits
from adarray.jitting.entries import CacheInfo, Entry, Recent, Variant
from adarray.jitting.generators import DRAWING
from adarray.jitting.nodes import Site, attach, can_be_node
from adarray.jitting.options import Options, checked
from adarray.jitting.run import MissError, Walk, runner
from adarray.jitting.signature import (
    INT_VALUES,
    Bound,
    Ints,
    describe,
    element_strides,
    fast_key,
    matcher,
    shares_memory,
    unaligned,
    unfit,
)
from adarray.jitting.state import State
from adarray.jitting.tree import Node
from adarray.runtime import MODE, Mode
from adarray.spans import span
from adarray.trace import LEVEL
from adarray.transforms.tree import flatten

Given = tuple[tuple[Any, ...], dict[str, Any]]

MAX_SIGNATURES = 256
MAX_VARIANTS = 8
DISTURBED = 8


class JitFunction:
    """A function that records its runs and compiles what it recorded.

    Made by `adarray.jit`. Called as the function that it was made of.

    Attributes
    ----------
    options : Options
    """

    adarray_jitted = True  # see adarray.jitting.captures.kind_of

    def __init__(self, f: Callable[..., Any], options: Options) -> None:
        # First of all: a transform of a jitted function has the attributes of one.
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, f)
        self._f = f
        self.options = options
        self._table: dict[Hashable, Entry] = {}
        self._ints = Ints()
        self._lock = threading.RLock()
        self._recent: Recent | None = None
        self._numbers: set[str] = set()  # captured numbers that are inputs, for they change
        self._eager = not_recorded(f)

    @property
    def entries(self) -> list[Entry]:
        """What is known of each signature."""
        return list(self._table.values())

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)

    def __reduce__(self) -> Any:
        # A decorated function is pickled by its name, as plain functions are.
        name = getattr(self, "__qualname__", "")
        found: Any = sys.modules.get(getattr(self, "__module__", ""))
        for part in name.split("."):
            found = getattr(found, part, None)
        return name if found is self else (type(self), (self._f, self.options))

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
            return self._f(*args, **kwargs)  # another jit looks into it
        if LEVEL.get():
            bound = Bound(args, kwargs, self._ints)
            if bound.follows:
                return self._followed(bound, (args, kwargs), mode)
            return self._f(*args, **kwargs)  # it may have captured what is traced
        if not kwargs:
            # While a profile is open, this is an engine that is in no table.
            place = (mode.engine if mode is not None else None) or not chosen()
            recent = self._recent
            if recent is not None and recent.place is place and recent.fits(args):
                entry: Entry | None = recent.entry
            else:
                entry = self._find(args, place)
            if entry is not None and entry.variants:
                variant = entry.variants[0]
                fast = variant.fast
                if fast is not None:
                    found = variant.check(())
                    if found is not None:
                        if entry.donates:
                            self._permit(args, found)
                        try:
                            return fast([*args, *found])
                        except MissError:
                            pass  # another path
                        except Exception as error:  # eager code raises its own
                            if hasattr(error, SPENT):
                                raise
                            return self._f(*args)
        return self._call(args, kwargs, mode)

    def _find(self, args: tuple[Any, ...], place: Any) -> Entry | None:
        """Return the entry of positional arrays and numbers, if there is one."""
        key = fast_key(args)
        entry = self._table.get((key, place)) if key is not None else None
        if entry is not None:
            self._recent = Recent(place, matcher(args), entry)
        return entry

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Mode | None) -> Any:
        """Call it, other than with plain arrays along one compiled segment."""
        bound = Bound(args, kwargs, self._ints)
        if bound.follows:
            return self._followed(bound, (args, kwargs), mode)
        return self._outcome(bound, (args, kwargs), mode)[0]

    def apart(self, *args: Any) -> Any:
        """Call it with plain arrays although a transform is at work, which need not see it."""
        bound = Bound(args, {}, self._ints)
        if bound.follows:
            return self._followed(bound, (args, {}), MODE.get())
        return self._outcome(bound, (args, {}), MODE.get(), alone=False)[0]

    def _followed(self, bound: Bound, given: Given, mode: Mode | None) -> Any:
        """Call it where a derivative is taken: as one operation, if that is possible."""
        args, kwargs = given
        if not can_be_node(bound) or (mode is not None and not mode.record):
            return self._f(*args, **kwargs)
        entry = self._entry(args, kwargs, bound, mode, False)
        if entry.weak or entry.draws:
            return self._f(*args, **kwargs)
        captured: list[Any] = []
        result, variant = self._outcome(bound, given, mode, alone=False, captured=captured)
        if variant is None:
            return result
        if any(isinstance(x, (float, complex)) for x in flatten(result)[0]):
            entry.weak = True
            return self._f(*args, **kwargs)
        followed = tuple(isinstance(x, ADArray) and x._node is not None for x in bound.targets)
        site = variant.sites.get(followed)
        if site is None:
            site = variant.sites[followed] = Site(self, bound, variant.numbers, followed)
        return attach(site, bound, captured, result)

    def _outcome(
        self,
        bound: Bound,
        given: Given,
        mode: Mode | None,
        alone: bool = True,
        captured: list[Any] | None = None,
    ) -> tuple[Any, Variant | None]:
        """Return the result of a call, and the variant that gave it; None if f itself ran.

        With ``alone=False`` the plain values of the arguments stand for what a derivative is
        taken of: what the function changes besides its result must not get lost. `captured`
        gets the captured inputs.
        """
        args, kwargs = given
        entry = self._entry(args, kwargs, bound, mode, alone)
        if entry.eager or (entry.aliased and shares_memory(bound.values)):
            return self._f(*args, **kwargs), None
        variant, found = entry.find(bound.statics)
        if captured is not None:
            captured[:] = found
        if variant is None or variant.tree.root is None:
            return self._record(entry, variant, bound, given, alone, captured)
        if variant.tree.eager:
            entry.give_up(variant.tree.eager)
            return self._f(*args, **kwargs), None
        inputs = [*bound.values, *found]
        if entry.donates:
            self._permit(args, found)
        effects = variant.written or variant.draws
        if shares_memory(inputs, variant.written) or (effects and not alone):
            return self._f(*args, **kwargs), None
        walk = Walk(variant.tree, aligned(inputs), entry.builder.build)
        before = copies(bound.leaves) if checking() else []
        try:
            with span("jit", entry.signature):
                leaf = walk.run()
        except MissError as miss:
            if miss.__cause__ is not None:  # eager code raises its own, and may catch it
                if hasattr(miss.__cause__, SPENT):
                    raise miss.__cause__ from None
                return self._f(*args, **kwargs), None
            return self._record(entry, variant, bound, given, alone, captured)
        result = leaf.finish(walk.values, walk.given)
        if (
            checking()
            and walk.repeatable(bound.values)
            and all(i < len(bound.values) for i, _, _ in leaf.writes)
        ):
            compare(self._f, before, bound.rebuild, result, entry.signature)
        for i, n, value in leaf.writes:
            target = bound.targets[i] if i < len(bound.targets) else inputs[i]
            final = walk.values[n] if n is not None else value
            if final is not target:  # else it was computed there
                target[...] = final
        return mirrored(result, bound), variant

    def _permit(self, args: tuple[Any, ...], captured: list[Any]) -> None:
        """Raise if arguments must not be given up, given what is captured."""

    def _given_up(self, entry: Entry, bound: Bound) -> tuple[int, ...]:  # noqa: ARG002
        """Return the numbers of the inputs whose memory compiled code may take."""
        return ()

    def _entry(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: Bound,
        mode: Mode | None,
        alone: bool = True,
    ) -> Entry:
        """Return what is known of the signature of a call."""
        fast = fast_key(args) if not kwargs else None
        place: Any = mode.engine if mode is not None else None
        place = getattr(place, "wrapped", place) or not chosen()
        key: Hashable = (fast if fast is not None else bound.key, place)
        kept = bool(self.options.donate) and (not alone or bound.to_adarray)
        if kept:
            key = (key, "nothing is donated")
        entry = self._table.get(key)
        if entry is not None:
            return entry
        with self._lock:
            entry = self._table.get(key)
            if entry is None:
                engine = default_engine() if place is True else place or None
                text = describe(bound.key[1:], self._f)
                entry = Entry(text, Builder(engine, self.options))
                entry.donates = bool(self.options.donate) and not kept
                reasons = [r for x in bound.values if (r := unfit(x))]
                if reasons or self._eager:
                    entry.give_up(self._eager or reasons[0])
                while len(self._table) >= MAX_SIGNATURES:
                    del self._table[next(iter(self._table))]
                self._table[key] = entry
        return entry

    # -- recording -------------------------------------------------------------------------

    def _record(
        self,
        entry: Entry,
        variant: Variant | None,
        bound: Bound,
        given: Given,
        alone: bool,
        captured: list[Any] | None,
    ) -> tuple[Any, Variant | None]:
        """Run the function and record it; return as `_outcome` does."""
        try:
            return self._recorded(entry, variant, bound, given, alone, captured)
        finally:
            entry.builder.settle()

    def _recorded(
        self,
        entry: Entry,
        variant: Variant | None,
        bound: Bound,
        given: Given,
        alone: bool,
        captured: list[Any] | None,
    ) -> tuple[Any, Variant | None]:
        args, kwargs = given
        state = self._state(entry, variant, bound, alone)
        if state is None:
            return self._f(*args, **kwargs), None
        if entry.donates:
            self._permit(args, state.values)
        run = Run(state, bound)
        try:
            start = perf_counter()
            with span("trace", entry.signature), collector_waits():
                run.record()
            run.seconds = perf_counter() - start
        except Exception as error:
            run.restore()
            result = self._f(*args, **kwargs)  # where f itself is wrong, this raises
            entry.give_up(f"it cannot be recorded: {type(error).__name__}: {error}")
            return result, None
        entry.aliased = entry.aliased or run.aliased
        entry.draws = entry.draws or bool(run.draws)
        if run.aliased or (not alone and run.changes()):
            run.restore()
            return self._f(*args, **kwargs), None
        result = run.commit()
        entry.disturbed = entry.disturbed + 1 if run.disturbed else 0
        if entry.disturbed > DISTURBED:
            run.reason = "other code draws from NumPy's global stream meanwhile; pass a generator"
        if run.reason:
            entry.give_up(run.reason)
        if run.reason or run.disturbed:
            return result, None
        if captured is not None:
            captured[:] = state.values
        try:
            with collector_waits():
                variant = self._insert(entry, variant, state, run, bound)
        except JitWarning:  # where warnings are errors
            raise
        except Exception as error:
            if checking():
                raise
            entry.give_up(f"it cannot be compiled: {type(error).__name__}: {error}")
            return result, None
        return result, variant

    def _state(
        self, entry: Entry, variant: Variant | None, bound: Bound, alone: bool
    ) -> State | None:
        """Return what is captured now; None if nothing can be recorded over it."""
        try:
            state = State(self.target(), bound.statics, self._numbers)
        except Exception as error:  # objects that cannot be looked at
            if alone:
                entry.give_up(f"what it captured cannot be read: {type(error).__name__}: {error}")
            return None
        if not state.reason and variant is None and entry.variants:
            changed = state.changed_numbers(entry.variants[0].state)
            ints = {n for n in changed if isinstance(state.scalars[n], int)}
            if changed and (not ints or len(entry.variants) >= INT_VALUES):
                self._numbers |= changed
                state = State(self.target(), bound.statics, self._numbers)
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

    def target(self) -> Any:
        """Return the function, of an object with ``__call__`` that method."""
        f = self._f
        method = getattr(f, "__call__", None)  # noqa: B004  (its value is wanted)
        return method if kind_of(f) == "instance" and kind_of(method) == "method" else f

    def _insert(
        self, entry: Entry, variant: Variant | None, state: State, run: Run, bound: Bound
    ) -> Variant:
        """Add a recording to the tree, and compile what is known well enough."""
        with entry.lock:
            if variant is None:  # another thread may have recorded the same state meanwhile
                variant, found = entry.find(bound.statics)
                if variant is not None and len(found) != len(state.values):
                    variant = None
            if variant is None or variant not in entry.variants:
                values = [*bound.values, *state.values]
                strides = [element_strides(x) for x in aligned(values)]
                variant = Variant(state, strides, self.options.max_paths)
                variant.tree.donated = self._given_up(entry, bound)
                variant.numbers = set(self._numbers)
                entry.variants.insert(0, variant)
            elif len(variant.tree.strides) != len(bound.values) + len(state.values):
                return variant  # another thread has made a captured number an input meanwhile
            assert run.recorded is not None
            variant.tree.insert(run.recorded)
            variant.tree.seconds += run.seconds
            if variant.tree.eager:
                entry.give_up(variant.tree.eager)
                return variant
            variant.take(state, run.plain_operands)
            variant.written = sorted(
                {i for n in variant.tree.nodes() if n.leaf for i, _, _ in n.leaf.writes}
            )
            variant.draws = any(
                n.guard is not None
                and n.guard.call is not None
                and n.guard.call.function in DRAWING
                for n in variant.tree.nodes()
            )
            build = entry.builder.build
            waiting = [n for n in variant.tree.nodes() if n.ready and n.compiled is None]
            with variant.tree.lock:
                build(waiting)
            usable = not checking() and not bound.to_adarray
            usable = usable and not any(map(unaligned, (*bound.values, *state.values)))
            variant.fast = runner(variant.tree, build) if usable else None
        state.forget()
        return variant

    # -- to look at ------------------------------------------------------------------------

    def path(self, *args: Any, **kwargs: Any) -> list[Node]:
        """Return the segments that a call with these arguments would run, as far as known.

        The function is not called, and nothing is written.
        """
        bound = Bound(args, kwargs, self._ints)
        entry = self._entry(args, kwargs, bound, MODE.get())
        variant, found = entry.find(bound.statics)
        if variant is None:
            return []
        values = aligned([*bound.values, *found])
        for i in {*variant.tree.donated, *variant.written}:
            values[i] = values[i].copy()
        walk = Walk(variant.tree, values, entry.builder.build)
        with contextlib.suppress(MissError):
            walk.run()
        walk.undo()
        return walk.nodes

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return what a call with these arguments compiles to, to print or display."""
        from adarray.jitting.explain import explain

        return explain(self, args, kwargs)

    def cache_info(self) -> CacheInfo:
        """Return how much was recorded and compiled."""
        trees = [v.tree for e in self.entries for v in e.variants]
        nodes = [n for t in trees for n in t.nodes()]
        made = {id(n.executable or n.after): n.seconds for n in nodes if n.compiled is not None}
        return CacheInfo(
            len(self.entries),
            sum(t.recordings for t in trees),
            sum(t.paths for t in trees),
            sum(n.compiled is not None for n in nodes),
            sum(bool(e.eager) for e in self.entries),
            sum(sum(s.values()) for s in made.values()),
        )

    stats = cache_info

    def clear(self) -> None:
        """Forget everything that was recorded and compiled."""
        with self._lock:
            self._table.clear()
            self._recent = None
            self._numbers.clear()
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
def default_engine() -> Any:
    """Return the engine that compiles where no backend was chosen; None: NumPy runs it all."""
    for name in ("openmp", "serial"):
        try:
            return load(name).engine()
        except BackendError:
            continue
    return None


def jit(
    f: Callable[..., Any] | None = None,
    *,
    precise: bool = False,
    memory_limit: int | None = None,
    max_paths: int = 64,
    donate: int | tuple[int, ...] = (),
) -> Any:
    """Return a function that does what `f` does, compiled.

    Parameters
    ----------
    f : callable
        Plain NumPy code, or a transform such as ``adarray.value_and_grad(loss)``. Not given
        where `jit` is used as a decorator with options.
    precise : bool
        Compute exp, sin and the like with the C library's scalar functions. By default
        vector versions are used, which may differ in the last bits.
    memory_limit : int, optional
        Bytes that intermediate values may take; what does not fit is computed again where
        that is possible.
    max_paths : int
        How many ways through `f` are compiled for one signature. Numbers of rounds of a
        loop, after which `f` goes on in the same way, count once.
    donate : int or tuple of int
        Positional arguments whose arrays the caller gives up: of each, the first result of
        its shape and dtype is written into its memory, and is that array, as with ``out=``
        of NumPy's functions. Meant for loops such as ``w = step(w, x)``. The arrays must be
        contiguous, own their memory and share it with nothing; where a derivative is taken,
        and of ADArrays, nothing is donated.

    Returns
    -------
    callable
        Takes what `f` takes and returns what it returns: plain arrays for plain arrays,
        ADArrays for ADArrays.

    Raises
    ------
    TypeError, ValueError
        If `f` is not callable, or an option is wrong; in calls, if an array cannot be
        donated.

    Warns
    -----
    JitWarning
        Once for each signature that is not compiled, with the reason; and for donated
        arrays that no result fits into.

    Notes
    -----
    The first two calls with arguments of one signature (shapes, dtypes, memory layout,
    types of numbers) run `f` and record its operations; if both runs agree, what they did is
    compiled, and later calls run that. Where Python looks at a value, as in ``if x > 0``,
    the compiled function looks too, and follows the branch that it finds; a branch that is
    new is recorded. What `f` reads besides its arguments is looked at in every call:
    captured arrays are inputs, and other captured values that change are seen. Effects of
    `f` besides its results and writes into arrays happen only in calls that are recorded.

    Examples
    --------
    >>> import numpy as np, adarray
    >>> @adarray.jit
    ... def f(x):
    ...     return np.sum(x * x) if x[0] > 0 else np.max(x)
    >>> [float(f(np.array([a, 2.0]))) for a in (1.0, -1.0, 3.0, -3.0)]
    [5.0, 2.0, 13.0, 2.0]
    """
    options = checked(precise, memory_limit, max_paths, donate)
    if f is None:
        return functools.partial(jit, **options._asdict())
    if not callable(f):
        raise TypeError(f"jit: expected a function, got {type(f).__name__}")
    if options.donate:
        from adarray.jitting.donating import DonatingFunction  # which derives from ours

        return DonatingFunction(f, options)
    return JitFunction(f, options)
