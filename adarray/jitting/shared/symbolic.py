"""Values of a recorded run: the concrete array, and the symbol that stands for it.

While a function is recorded, every ADArray that depends on its inputs holds a `Traced`
in place of an ndarray. All of adarray works on ADArrays as ever, derivatives included;
what computes, `adarray.core.dispatch.compute`, meets the `Traced` values, and so does every
NumPy function that is called on plain values: both end in the recorder.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adarray.base.aval import PLAIN, Symbolic
from adarray.base.engines import TracingEngine
from adarray.base.errors import RefusalError
from adarray.base.levels import recordings_hook
from adarray.base.recording import Symbol
from adarray.base.scope import STORES, UNINTERCEPTED, package_of
from adarray.core.inplace import sync_if_view
from adarray.core.texts import is_shown_only
from adarray.core.trace import Handle, values_at_work
from adarray.device import is_device

# Attributes that lead to the memory of an array.
_MEMORY = frozenset({"ctypes", "data", "setflags"})


class UntraceableError(RefusalError):
    """A value left the recording in a way that cannot be followed."""


class Restorer(Protocol):
    """What restores an array that was overwritten."""

    def restored(self) -> np.ndarray:
        """Return the array."""
        ...


class Traced(Symbolic, NDArrayOperatorsMixin):
    """One value of a recorded run. Never changes: a write makes another one.

    Attributes
    ----------
    value : ndarray, NumPy scalar or Python number
    symbol : Symbol
    recorder : TracingEngine
    later : Restorer or None
        What restores `value`, whose array was overwritten by then.
    """

    __slots__ = ("__weakref__", "later", "recorder", "symbol", "value")

    def __init__(self, value: Any, symbol: Symbol, recorder: TracingEngine) -> None:
        self.value = value
        self.symbol = symbol
        self.recorder = recorder
        self.later: Restorer | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # For isinstance: arrays, NumPy scalars, Python numbers; those of devices say what they are.
        kind: type = np.ndarray if self.later is not None else self.value.__class__
        return kind

    def recall(self, later: Restorer) -> None:
        """Give the array away: `value` is restored when it is read."""
        del self.value
        self.later = later

    # -- what is the same in every run of the same signature ---------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.symbol.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        dtype: np.dtype[Any] = self.symbol.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.symbol.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.symbol.shape)

    def __len__(self) -> int:
        return len(self.value)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.symbol.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def flags(self) -> Any:
        """Memory layout of the concrete value."""
        return self.array.flags

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of the concrete value, in bytes."""
        strides: tuple[int, ...] = self.array.strides
        return strides

    @property
    def base(self) -> Any:
        """Owner of the concrete value's memory."""
        return getattr(self.value, "base", None)

    @property
    def array(self) -> Any:
        """The concrete value as an array."""
        v = self.value
        return v if isinstance(v, np.ndarray) or is_device(v) else np.asarray(v)

    # -- NumPy's protocols ---------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Handle) for x in inputs):
            return NotImplemented  # ADArrays know what to do with values
        if method != "__call__":
            return self.recorder.function(getattr(ufunc, method), inputs, kwargs)
        return self.recorder.function(ufunc, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(t, Handle) for t in types):
            return NotImplemented
        return self.recorder.function(func, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return self.recorder.function(operator.getitem, (self, index), {})

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def _refused(self, message: str) -> UntraceableError:
        """Return the error that ends the recording; also if it is caught, in any thread."""
        error = UntraceableError(message)
        self.recorder.error = error
        return error

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._refused(
            f"jit: a value was converted into a plain ndarray{_by()}, where it cannot be followed; "
            "use functions of NumPy or SciPy that adarray has, or make this call outside of the "
            "jitted function"
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise self._refused(
            "jit: a computed value is pickled, where it cannot be followed; pickle it outside of "
            "the jitted function"
        )

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of arrays, computed as that of an ADArray."""
        if name == "value" and self.later is not None:  # it was given away
            self.value = self.later.restored()
            self.later = None
            return self.value
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _MEMORY:
            raise self._refused(
                f"jit: {name} of a computed array is not recorded; use it outside of the jitted "
                "function"
            )
        attribute = getattr(self.recorder.handle(self), name)
        if not callable(attribute):
            return self.recorder.opened(attribute)

        def method(*args: Any, **kwargs: Any) -> Any:
            return self.recorder.opened(attribute(*args, **kwargs))

        return method

    # -- host reads: Python asks for the value -------------------------------------------

    def __bool__(self) -> bool:
        return bool(self.recorder.guard("bool", self, bool(self.value)))

    def __index__(self) -> int:
        return int(self.recorder.guard("index", self, operator.index(self.array[()])))

    def __int__(self) -> int:
        if self.dtype.kind == "b":
            return int(self.__bool__())
        if self.dtype.kind in "biu":
            return self.__index__()
        whole = self.recorder.function(np.trunc, (self,), {})
        return int(self.recorder.guard("float", whole, float(whole.value)))

    def __trunc__(self) -> int:
        return self.__int__()

    def __float__(self) -> float:
        frame = sys._getframe(2)  # below this and that of the ADArray
        if frame.f_code.co_code[frame.f_lasti] in STORES:
            raise self._refused(
                "jit: a value was written into a plain ndarray, where it cannot be followed; make "
                "the array with a NumPy function in the jitted function, or pass it as an argument"
            )
        return float(self.recorder.guard("float", self, float(self.value)))

    def __complex__(self) -> complex:
        return complex(self.recorder.guard("complex", self, complex(self.value)))

    def __hash__(self) -> int:
        if isinstance(self.value, np.ndarray):
            raise TypeError("unhashable type: 'numpy.ndarray'")
        kind = "index" if self.dtype.kind in "biu" else "float"
        return hash(self.recorder.guard(kind, self, self.value))

    def item(self) -> Any:
        """Return the one element as a Python number, which is traced as well."""
        return self.recorder.number(self)

    def tolist(self) -> Any:
        """Return nested lists of traced Python numbers."""
        return [x.tolist() for x in self] if self.ndim else self.item()

    def __repr__(self) -> str:
        return f"Traced({self.value!r})"

    # Text may be printed, which only recorded calls do, or be the name of something.

    def __str__(self) -> str:
        return str(self.shown())

    def __format__(self, spec: str) -> str:
        return format(self.shown(), spec)

    def shown(self) -> Any:
        """Return the value to make text of; Python ints, which often name things, are read."""
        if self.symbol.weak and self.dtype.kind == "i":
            return operator.index(self)
        self.recorder.shown = True
        if not is_shown_only():
            raise self._refused(
                "jit: text is made of a computed value and used; print or log it where it is "
                "made, or make text outside of the jitted function"
            )
        return self.value

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return plain zeros where the value is; the recorder knows what they hold."""
        return self.recorder.zeros(self.value, shape, dtype)

    def written(self, steps: tuple[Any, ...], index: Any, value: Any) -> Any:
        """Return the array with `value` written at an index of a view of it."""
        return self.recorder.write(self, steps, index, value)


PLAIN.add(Traced)


def _by() -> str:
    """Return which function of another library asks for a plain array, and for whom."""
    frame, by = sys._getframe(2), ""
    while frame is not None:
        package = package_of(frame.f_globals.get("__name__"))
        if package not in UNINTERCEPTED:
            return f"{by} (file {frame.f_code.co_filename}, line {frame.f_lineno})"
        if package != "adarray":
            by = f" by {frame.f_code.co_name} of {package}"
        frame = frame.f_back  # type: ignore[assignment]
    return by


def _mapped(x: Any, change: Callable[[Any], Any]) -> Any:
    """Return a container with `change` applied to what is in it; anything else as it is."""
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(map(change, x))
    if kind is dict:
        return {k: change(v) for k, v in x.items()}
    if kind is slice:
        return slice(change(x.start), change(x.stop), change(x.step))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind(*map(change, x))
    return x


def concrete(x: Any) -> Any:
    """Return `x` with the traced values in it replaced by their concrete ones."""
    return x.value if type(x) is Traced else _mapped(x, concrete)


def symbolic(x: Any) -> Any:
    """Return `x` with the traced values in it replaced by their symbols."""
    return x.symbol if type(x) is Traced else _mapped(x, symbolic)


def holds(x: Any) -> bool:
    """Whether a value is traced, or a container with a traced value in it."""
    kind = type(x)
    if kind is Traced:
        return True
    if kind is slice:
        return holds(x.start) or holds(x.stop) or holds(x.step)
    if isinstance(x, (tuple, list)):
        return any(map(holds, x))
    if kind is dict:
        return any(map(holds, x.values()))
    return False


def opened(x: Any) -> Any:
    """Return `x` with the ADArrays in it replaced by their values."""
    return sync_if_view(x)._plain if isinstance(x, Handle) else _mapped(x, opened)


def _end_recordings(error: BaseException) -> None:
    """End the recordings, in other threads, of the values that a refusal is about."""
    if isinstance(error, UntraceableError):
        return
    for x in values_at_work():
        for leaf in x if isinstance(x, (tuple, list)) else (x,):
            if isinstance(leaf, Handle) and type(leaf._plain) is Traced:
                leaf._plain._refused(
                    f"jit: another thread met an error that NumPy would not have raised: {error}"
                )


recordings_hook.set(_end_recordings)
