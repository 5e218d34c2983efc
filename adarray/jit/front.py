"""`jit`: what a call does before and after the compiled program runs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import types
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from adarray.array import ADArray
from adarray.backend import _OUTER, load
from adarray.errors import BackendError
from adarray.jit import recorder
from adarray.jit.build import Builder, checking, say
from adarray.jit.captures import kind_of
from adarray.jit.check import compare
from adarray.jit.collector import collector_waits
from adarray.jit.options import Options, checked
from adarray.jit.run import MissError, Walk, finisher, prepare, single
from adarray.jit.signature import (
    INT_VALUES,
    Bound,
    Ints,
    describe,
    element_strides,
    fast_key,
    matcher,
    positional,
    shares_memory,
    unaligned,
    unfit,
)
from adarray.jit.state import State
from adarray.jit.symbolic import UntraceableError
from adarray.jit.tree import Node, Tree
from adarray.recording import Symbol
from adarray.runtime import MODE, Mode
from adarray.spans import span
from adarray.trace import LEVEL
from adarray.transforms.tree import flatten

MAX_SIGNATURES = 256
MAX_VARIANTS = 8


class CacheInfo(NamedTuple):
    """What a jitted function has recorded and compiled.

    Parameters
    ----------
    signatures : int
        Kinds of arguments that it met.
    traces : int
        Runs of the function that were recorded.
    paths : int
        Ways through the function.
    compiled : int
        Segments that are compiled.
    eager : int
        Signatures that are not compiled.
    seconds : float
        Time spent in passes and compiling.
    """

    signatures: int
    traces: int
    paths: int
    compiled: int
    eager: int
    seconds: float


class Variant:
    """The compiled paths for one state of what the function captured."""

    def __init__(self, state: State, strides: list[Any], max_paths: int) -> None:
        self.state = state
        self.check = state.check
        self.tree = Tree(strides, max_paths)
        # Set when there is one segment: inputs -> result.
        self.fast: Callable[[list[Any]], Any] | None = None
        self.written: list[int] = []  # inputs that some path writes into


class Entry:
    """What is known of one signature.

    Attributes
    ----------
    signature : str
    eager : str
        Why it is not compiled; "" if it is.
    variants : list of Variant
        The last one that fitted stands first.
    """

    def __init__(self, text: str, builder: Builder) -> None:
        self.signature = text
        self.builder = builder
        self.eager = ""
        # Whether it writes into arguments, and was given some that share memory.
        self.aliased = False
        self.variants: list[Variant] = []
        self.lock = threading.RLock()

    def give_up(self, reason: str) -> None:
        """Run this signature without jit from now on, and say why."""
        if not self.eager:
            self.eager = reason
            self.variants = []
            say(f"jit: {self.signature} stays eager: {reason}")

    def find(self, statics: Any) -> tuple[Variant | None, list[Any]]:
        """Return the variant that what was captured fits now, and the captured inputs."""
        for variant in tuple(self.variants):
            found = variant.check(statics)
            if found is not None:
                if variant is not self.variants[0]:
                    with self.lock:
                        self.variants.remove(variant)
                        self.variants.insert(0, variant)
                return variant, found
        return None, []


class Recent:
    """The signature of the call before, which the next one has most often."""

    __slots__ = ("entry", "fits", "place")

    def __init__(self, place: Any, fits: Callable[[tuple[Any, ...]], bool], entry: Entry) -> None:
        self.place = place
        self.fits = fits
        self.entry = entry


class JitFunction:
    """A function that records its runs and compiles what it recorded.

    Made by `adarray.jit`. Called as the function that it was made of.

    Attributes
    ----------
    options : Options
    """

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

    def __repr__(self) -> str:
        return f"<jit of {self._f!r}>"

    # -- calling ---------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, compiled where that is possible."""
        mode = MODE.get()
        if LEVEL.get() or (mode is not None and mode.symbolic):
            return self._f(*args, **kwargs)  # a transform or another jit looks into it
        if not kwargs:
            # While a profile is open, this is an engine that is in no table.
            place = (mode.engine if mode is not None else None) or not _OUTER.get()
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
                        try:
                            return fast([*args, *found])
                        except Exception:  # eager code raises its own
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
            return self._f(*args, **kwargs)
        entry = self._entry(args, kwargs, bound, mode)
        if entry.eager or (entry.aliased and shares_memory(bound.values)):
            return self._f(*args, **kwargs)
        variant, found = entry.find(bound.statics)
        if variant is None or variant.tree.root is None:
            return self._record(entry, variant, bound, (args, kwargs))
        if variant.tree.eager:
            entry.give_up(variant.tree.eager)
            return self._f(*args, **kwargs)
        given = [*bound.values, *found]
        if shares_memory(given, variant.written):
            return self._f(*args, **kwargs)
        walk = Walk(variant.tree, aligned(given), entry.builder.build)
        try:
            with span("jit", entry.signature):
                leaf = walk.run()
        except MissError:
            return self._record(entry, variant, bound, (args, kwargs))
        result = finisher(leaf, range(len(walk.values)), walk.given)(walk.values)
        if checking() and all(i < len(bound.values) for i, _, _ in leaf.writes):
            compare(self._f, bound.leaves, bound.rebuild, result, entry.signature)
        for i, n, value in leaf.writes:
            target = bound.targets[i] if i < len(bound.targets) else given[i]
            target[...] = walk.values[n] if n is not None else value
        return mirrored(result, bound)

    def _entry(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound: Bound, mode: Mode | None
    ) -> Entry:
        """Return what is known of the signature of a call."""
        fast = fast_key(args) if not kwargs else None
        place: Any = mode.engine if mode is not None else None
        place = getattr(place, "wrapped", place) or not _OUTER.get()
        key = (fast if fast is not None else bound.key, place)
        entry = self._table.get(key)
        if entry is not None:
            return entry
        with self._lock:
            entry = self._table.get(key)
            if entry is None:
                engine = default_engine() if place is True else place or None
                text = describe(bound.key[1:], self._f)
                entry = Entry(text, Builder(engine, self.options))
                reasons = [r for x in bound.values if (r := unfit(x))]
                if reasons or self._eager:
                    entry.give_up(self._eager or reasons[0])
                while len(self._table) >= MAX_SIGNATURES:
                    del self._table[next(iter(self._table))]
                self._table[key] = entry
        return entry

    # -- recording -------------------------------------------------------------------------

    def _record(
        self, entry: Entry, variant: Variant | None, bound: Bound, given: tuple[Any, Any]
    ) -> Any:
        """Run the function and record it; return its result."""
        args, kwargs = given
        state = self._state(entry, variant, bound)
        if state is None:
            return self._f(*args, **kwargs)
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
            return result
        if run.aliased:
            entry.aliased = True
            run.restore()
            return self._f(*args, **kwargs)
        result = run.commit()
        if run.reason:
            entry.give_up(run.reason)
            return result
        with collector_waits():
            self._insert(entry, variant, state, run, bound)
        return result

    def _state(self, entry: Entry, variant: Variant | None, bound: Bound) -> State | None:
        """Return what is captured now; None if nothing can be recorded over it."""
        state = State(self._target(), bound.statics, self._numbers)
        if not state.reason and variant is None and entry.variants:
            changed = state.changed_numbers(entry.variants[0].state)
            ints = {n for n in changed if isinstance(state.scalars[n], int)}
            if changed and (not ints or len(entry.variants) >= INT_VALUES):
                self._numbers |= changed
                state = State(self._target(), bound.statics, self._numbers)
            elif len(entry.variants) >= MAX_VARIANTS:
                state.reason = (
                    "what it captured keeps changing"
                    + (f" ({', '.join(sorted(changed))})" if changed else "")
                    + "; pass it as an argument"
                )
        if state.reason:
            entry.give_up(state.reason)
            return None
        return state

    def _target(self) -> Any:
        """Return the function, of an object with ``__call__`` that method."""
        f = self._f
        method = getattr(f, "__call__", None)  # noqa: B004  (its value is wanted)
        return method if kind_of(f) == "instance" and kind_of(method) == "method" else f

    def _insert(
        self, entry: Entry, variant: Variant | None, state: State, run: Run, bound: Bound
    ) -> None:
        """Add a recording to the tree, and compile what is known well enough."""
        with entry.lock:
            if variant is None or variant not in entry.variants:
                values = [*bound.values, *state.values]
                strides = [element_strides(x) for x in aligned(values)]
                variant = Variant(state, strides, self.options.max_paths)
                entry.variants.insert(0, variant)
            elif len(variant.tree.strides) != len(bound.values) + len(state.values):
                return  # another thread has promoted a captured number meanwhile
            assert run.recorded is not None
            variant.tree.insert(run.recorded)
            variant.tree.seconds += run.seconds
            if variant.tree.eager:
                entry.give_up(variant.tree.eager)
                return
            state.hide(run.plain_operands)
            variant.state, variant.check = state, state.check
            variant.written = sorted(
                {i for n in variant.tree.nodes() if n.leaf for i, _, _ in n.leaf.writes}
            )
            build = entry.builder.build
            for node in variant.tree.nodes():
                if node.ready:
                    prepare(node, build)
            usable = not checking() and not bound.to_adarray
            usable = usable and not any(map(unaligned, (*bound.values, *state.values)))
            variant.fast = single(variant.tree, build) if usable else None
        state.forget()

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
        walk = Walk(variant.tree, aligned([*bound.values, *found]), entry.builder.build)
        with contextlib.suppress(MissError):
            walk.run()
        walk.undo()
        return walk.nodes

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """Return what a call with these arguments compiles to, to print or display."""
        from adarray.jit.explain import explain

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


class Run:
    """One recorded run of the function, and what it leaves to be done.

    Attributes
    ----------
    recorded : Recorded or None
    aliased : bool
        Whether it wrote into an argument that shares memory with another one, which the
        recording does not show.
    reason : str
        Why nothing can be compiled; "" if it can.
    plain_operands : list of ndarray
        Arrays that operations read and that are no inputs.
    """

    def __init__(self, state: State, bound: Bound) -> None:
        self._state = state
        self._bound = bound
        self.recorded: recorder.Recorded | None = None
        self.aliased = False
        self.reason = ""
        self.seconds = 0.0
        self.plain_operands: list[np.ndarray] = []
        self._generators = [
            (x, x.bit_generator.state) for x in bound.values if isinstance(x, np.random.Generator)
        ]
        self._clones: Any = None

    def record(self) -> None:
        """Run the function on traced inputs."""
        bound, state = self._bound, self._state
        count = len(bound.leaves)
        leaves = aligned([*bound.leaves, *state.values])
        traced = [*bound.traced, *range(count, len(leaves))]
        statics = [k for k in range(count) if k not in set(bound.traced)]
        passed: list[Any] = []

        def rebuild(given: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
            self._clones = state.clone(given[count:])
            f, *objects = self._clones.roots
            own = given[:count]
            for k, x in zip(statics, objects, strict=True):
                own[k] = x
            args, kwargs = bound.rebuild(own)
            passed[:] = [own, args, kwargs]
            return (f, args, kwargs), {}

        recorded = recorder.record(_called, leaves, rebuild, traced)
        own, args, kwargs = passed
        if bound.rebuild is not positional:
            now, _ = flatten((args, kwargs))
            if len(now) != len(own) or any(a is not b for a, b in zip(now, own, strict=True)):
                raise UntraceableError(
                    "jit: the function changes a list, dict or object that is an argument; "
                    "return a new one in its place"
                )
        self.recorded = recorded
        written = [i for i, _ in recorded.recording.writes]
        inputs = [*bound.values, *state.values]
        self.aliased = shares_memory(inputs, written)
        self.plain_operands = [array for _, array, _ in recorded.recording.captures]

    def restore(self) -> None:
        """Give random generators the state that they had before the run."""
        for generator, state in self._generators:
            generator.bit_generator.state = state

    def commit(self) -> Any:
        """Write what the run wrote; return its result."""
        recorded = self.recorded
        assert recorded is not None
        targets = [*self._bound.targets, *(i.found.value for i in self._state.inputs)]
        for (i, _), value in zip(recorded.recording.writes, recorded.written, strict=True):
            targets[i][...] = value
            if i >= len(self._bound.targets) and isinstance(targets[i], ADArray):
                self.reason = "it writes into a captured ADArray; pass it as an argument"
        before = self._state.check(self._bound.statics)
        if self._clones.hand_back() or before is None:
            self.reason = (
                "it changes what it captured (a global, a closure or an attribute), which a "
                "compiled call would not; return the new value, or pass an array to write into"
            )
        drawn = self._state.drawn()
        if drawn:
            self.reason = f"it draws from {drawn}; pass a np.random.Generator as an argument"
        leaves = [
            x.item() if type(s) is Symbol and s.weak and isinstance(x, np.generic) else x
            for s, x in zip(recorded.recording.outputs, recorded.leaves, strict=True)
        ]
        return mirrored(recorded.rebuild(leaves), self._bound)


def _called(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return f(*args, **kwargs)


def aligned(values: list[Any]) -> list[Any]:
    """Return inputs with copies of those arrays that cannot be addressed in elements."""
    return [np.array(x) if unaligned(x) else x for x in values]


def mirrored(result: Any, bound: Bound) -> Any:
    """Return a result with ADArrays in it if there were some among the arguments."""
    if not bound.to_adarray:
        return result
    leaves, rebuild = flatten(result)
    return rebuild([ADArray(x) if isinstance(x, (np.ndarray, np.generic)) else x for x in leaves])


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
        How many ways through `f` are compiled for one signature.
    donate : int or tuple of int
        Positions of arguments whose memory a call may use for its results. Their values
        are lost.

    Returns
    -------
    callable
        Takes what `f` takes and returns what it returns: plain arrays for plain arrays,
        ADArrays for ADArrays.

    Raises
    ------
    TypeError, ValueError
        If `f` is not callable, or an option is wrong.

    Warns
    -----
    JitWarning
        Once for each signature that is not compiled, with the reason.

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
        return functools.partial(
            jit, precise=precise, memory_limit=memory_limit, max_paths=max_paths, donate=donate
        )
    if not callable(f):
        raise TypeError(f"jit: expected a function, got {type(f).__name__}")
    return JitFunction(f, options)
