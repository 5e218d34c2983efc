"""Random generators: their draws are recorded, and run anew in every call.

A generator that is an argument, was captured or is made by the function draws between two
compiled segments, in the order of the code. What a call drew can be taken back if the call
has to be made once more.
"""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.draws import drawn_into, numbered
from adarray.base.errors import TraceError
from adarray.base.recording import Symbol
from adarray.core.inplace import assign
from adarray.core.protocol import traced
from adarray.core.trace import Handle
from adarray.jitting.shared.symbolic import UntraceableError, concrete, opened, symbolic

# NumPy's global stream.
STREAM = np.random.mtrand._rand
GENERATORS = (np.random.Generator, np.random.RandomState)
# Methods that may write into ``out=``, and their positional arguments.
_INTO = {
    "random": ("size", "dtype", "out"),
    "standard_normal": ("size", "dtype", "out"),
    "standard_exponential": ("size", "dtype", "method", "out"),
    "standard_gamma": ("shape", "size", "dtype", "out"),
}
_OTHER_USES = {
    "spawn": "spawn in front of the jitted function, and pass the new generators",
    "bit_generator": "use it outside of the jitted function",
    "get_state": "use it outside of the jitted function",
    "set_state": "use it outside of the jitted function",
}


def source_of(generator: Any) -> Any:
    """Return NumPy's generator of one whose draws are ADArrays."""
    return getattr(generator, "_raw", generator)


def draw(generator: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a method of a random generator: what a recorded draw runs."""
    return getattr(source_of(generator), method)(*args, **kwargs)


def advance(
    generator: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[()]:
    """Call a method of a random generator that returns nothing, such as ``seed``."""
    getattr(source_of(generator), method)(*args, **kwargs)
    return ()


def make(kind: Callable[[Any], Any], seed: Any) -> tuple[Any]:
    """Make a random generator."""
    return (kind(seed),)


# What draws from a generator, which is its first argument.
DRAWING = (draw, advance)


def state_of(generator: Any) -> Any:
    """Return the state of a random generator."""
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)  # with the second number of a pair
    return generator.bit_generator.state


def set_state(generator: Any, state: Any) -> None:
    """Give a random generator a state."""
    if isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def _bits_of(generator: Any) -> Any:
    legacy = isinstance(generator, np.random.RandomState)
    return generator._bit_generator if legacy else generator.bit_generator


class Draws:
    """What one call drew from random generators."""

    def __init__(self) -> None:
        self._states: list[tuple[Any, Any]] = []  # with those before the call
        self._calls: list[tuple[Any, str, Any, Any]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def note(self, generator: Any, method: str, args: Any, kwargs: Any) -> None:
        """Note a draw that is about to happen."""
        generator = source_of(generator)
        if all(g is not generator for g, _ in self._states):
            self._states.append((generator, state_of(generator)))
        self._calls.append((generator, method, args, kwargs))

    def drew_from(self, generator: Any) -> bool:
        """Whether the call drew from a generator."""
        return any(g is generator for g, _ in self._states)

    def only_from(self, generators: list[Any]) -> bool:
        """Whether the call drew from none but these generators."""
        return all(any(g is source_of(x) for x in generators) for g, _ in self._states)

    def complete(self, generator: Any) -> bool:
        """Whether these draws, and no others, have led to the state of a generator."""
        return any(
            g is generator and pickle.dumps(self._led_to(g, old)) == pickle.dumps(state_of(g))
            for g, old in self._states
        )

    def undo(self) -> None:
        """Give generators the states that they had before the call.

        Those from which other threads have drawn since stay as they are: their numbers
        must not come twice.
        """
        for generator, old in self._states:
            state = pickle.dumps(self._led_to(generator, old))
            with _bits_of(generator).lock:
                if pickle.dumps(state_of(generator)) == state:
                    set_state(generator, old)
        self._states, self._calls = [], []

    def _led_to(self, generator: Any, old: Any) -> Any:
        """Return the state to which the draws lead from an old one."""
        twin = copy.deepcopy(generator)
        set_state(twin, old)
        for g, method, args, kwargs in self._calls:
            if g is generator:
                with contextlib.suppress(Exception):  # as the draw itself, which has raised it
                    getattr(twin, method)(*args, **kwargs)
        return state_of(twin)


class TracedGenerator:
    """A random generator whose draws are recorded.

    Parameters
    ----------
    generator : numpy.random.Generator or numpy.random.RandomState
    symbol : Symbol or generator
        What stands for it in the recording: itself if it is the same in every run.
    recorder : Recorder
    """

    def __init__(self, generator: Any, symbol: Any, recorder: Any) -> None:
        self._original = generator
        self._generator = source_of(generator)
        self._symbol = symbol
        self._recorder = recorder

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._generator)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._generator, name)
        if name.startswith("_") or not callable(attribute) or name in _OTHER_USES:
            instead = _OTHER_USES.get(name, "use it outside of the jitted function")
            raise UntraceableError(f"jit: {name} of a random generator is not recorded; {instead}")

        def method(*args: Any, **kwargs: Any) -> Any:
            return self._drawn(name, args, kwargs)

        return method

    def __repr__(self) -> str:
        return repr(self._generator)

    def __reduce__(self) -> Any:
        raise UntraceableError(
            "jit: a random generator is copied or pickled, which is not recorded; do it outside "
            "of the jitted function"
        )

    def _drawn(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Draw, record it, and return what was drawn."""
        if name in _INTO:
            named = {**dict(zip(_INTO[name], args, strict=False)), **kwargs}
            if named.get("out") is not None:
                return self._into(name, named)
        if traced(args) or traced(kwargs):
            raise TraceError(
                f"{name}: a draw has no derivative by its arguments; write loc + scale * "
                "rng.normal(size=...), or pass adarray.value_of(x)"
            )
        args, kwargs = opened(args), opened(kwargs)
        plain, options = concrete(args), concrete(kwargs)
        recorder = self._recorder
        recorder.draws.note(self._generator, name, plain, options)
        r = getattr(self._generator, name)(*plain, **options)
        arguments = (self._symbol, name, symbolic(args), symbolic(kwargs))
        if r is None:
            recorder.host(advance, arguments, ())
            return None
        return recorder.handles(recorder.host(draw, arguments, r))

    def _into(self, name: str, arguments: dict[str, Any]) -> Any:
        """Draw into ``out=``."""
        out = self._writable(name, arguments.pop("out"))
        if np.dtype(arguments.get("dtype", float)) != out.dtype:
            raise TypeError(f"{name}: out has dtype {out.dtype}")
        size = arguments.pop("size", None)
        if size is not None and np.broadcast_shapes(size) != out.shape:
            raise ValueError(f"{name}: size={size} and out.shape={out.shape} differ")
        return assign(
            out,
            drawn_into(
                out, name, lambda shape: self._drawn(name, (), {**arguments, "size": shape})
            ),
        )

    def _writable(self, name: str, out: Any) -> Any:
        """Return what a method writes into, which has to be recorded."""
        if isinstance(out, Handle):
            return out
        raise UntraceableError(
            f"jit: rng.{name} writes into a plain array, which is not recorded; make the "
            "array in the jitted function, or pass it as an argument"
        )

    # -- orders, which what has a derivative can be put in --------------------------------------

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Shuffle an array in place."""
        if not isinstance(x, Handle):
            raise UntraceableError(
                f"jit: rng.shuffle changes a {type(x).__name__}, which is not recorded; shuffle "
                "an array of positions, or take rng.permutation"
            )
        order = self._order(x.shape[axis])  # type: ignore[attr-defined]
        assign(x, np.take(x, order, axis=axis))  # type: ignore[call-overload]

    def permutation(self, x: Any, axis: int = 0) -> Any:
        """Return an array, or ``arange(x)``, in random order."""
        if isinstance(x, Handle) and x.ndim:  # type: ignore[attr-defined]
            return np.take(x, self._order(x.shape[axis]), axis=axis)  # type: ignore[call-overload,attr-defined]
        return self._drawn("permutation", (x,), {"axis": axis} if axis else {})

    def permuted(self, x: Any, *, axis: int | None = None, out: Any = None) -> Any:
        """Return an array with each slice along an axis in a random order of its own."""
        if out is not None:
            out = self._writable("permuted", out)
        if not isinstance(x, Handle):
            if out is None:
                return self._drawn("permuted", (x,), {"axis": axis})
            x = np.asarray(x)
        order = self._drawn("permuted", (numbered(x, out),), {"axis": axis})
        r = np.take(np.reshape(x, -1), order)  # type: ignore[call-overload]
        return r if out is None else assign(out, r)

    def _order(self, count: int) -> Any:
        return self._drawn("permutation", (count,), {})

    def choice(
        self,
        a: Any,
        size: Any = None,
        replace: Any = True,
        p: Any = None,
        *rest: Any,
        **kwargs: Any,
    ) -> Any:
        """Return picks from an array, or from ``arange(a)``."""
        if not isinstance(a, Handle) or not a.ndim:  # type: ignore[attr-defined]
            return self._drawn("choice", (a, size, replace, p, *rest), kwargs)
        kwargs.update(zip(("axis", "shuffle"), rest, strict=False))
        axis = kwargs.pop("axis", 0)
        count = a.shape[axis]  # type: ignore[attr-defined]
        picked = self._drawn("choice", (count, size, replace, p), kwargs)
        return np.take(a, picked, axis=axis)  # type: ignore[call-overload]


def recorded(generator: Any, symbol: Symbol, recorder: Any) -> Any:
    """Return the stand-in for a generator that is an input."""
    traced = TracedGenerator(generator, symbol, recorder)
    if source_of(generator) is generator:
        return traced
    smooth = type(generator)(source_of(generator))  # its draws are ADArrays
    smooth._raw = traced
    return smooth


def output(x: Any) -> tuple[Any, Any] | None:
    """Return the symbol and the value of a recorded generator; None for anything else."""
    if not isinstance(x, GENERATORS):
        return None
    kind: Any = type(x)
    source: Any = x if kind is TracedGenerator else source_of(x)
    return (source._symbol, source._original) if type(source) is TracedGenerator else None


def seeded(recorder: Any, kind: Callable[[Any], Any], seed: Any) -> TracedGenerator:
    """Return a generator that every run of the function makes anew."""
    seed = opened(seed)
    generator = kind(concrete(seed))
    symbol = Symbol((), object)
    recorder.host_object(make, (kind, symbolic(seed)), symbol)
    return TracedGenerator(generator, symbol, recorder)
