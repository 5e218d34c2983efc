"""What an ADArray says of itself, and its methods as a type checker sees them."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from adarray.arrays.operators import counted, weakened
from adarray.arrays.questions import MissingError, is_array
from adarray.base.aval import Symbolic, aval_of
from adarray.base.engines import TracingEngine
from adarray.base.errors import TraceError
from adarray.base.levels import refused
from adarray.base.memory import ArgumentMemory
from adarray.base.op import Layout, Op
from adarray.base.runtime import MODE
from adarray.core.graph import LEAF
from adarray.core.guard import guarded
from adarray.core.inplace import setitem, sync_if_view
from adarray.core.origins import origin_of
from adarray.core.protocol import call_function, traced
from adarray.core.refusals import leaves_graph
from adarray.core.reshaping import may_be_reshaped, reshape_in_place
from adarray.core.trace import Handle, levels_of, root_of
from adarray.device import is_device

if TYPE_CHECKING:
    from adarray.arrays.adarray import ADArray

    _State = Handle
else:
    _State = object  # the first subclass of Handle is the class that users see


def _part(function: Any, x: Any) -> ADArray:
    """Return a part of an array; of a traced Python number, a Python number."""
    r: ADArray = call_function(function, (counted(x),), {})
    weak = x._x is not None and x._x.weak
    return weakened(r) if weak and not (r._x is not None and r._x.weak) else r


def _refused(message: str, x: Any) -> AttributeError:
    """Return an error that NumPy would not raise; who catches it is told."""
    error = AttributeError(message)
    refused(error, levels_of(x) or None)
    return error


class _Probe:
    """Tells how many references there are to an object with one name where a property is set."""

    count = 0

    @property
    def shape(self) -> int:
        """The number."""
        return self.count

    @shape.setter
    def shape(self, _: Any) -> None:
        self.count = sys.getrefcount(self)


def _fewest_references() -> int:
    x = _Probe()
    x.shape = 1
    return x.count


_FEWEST_REFERENCES = _fewest_references()


def _base_of(x: Any) -> Any:
    return x.base


_base_of.__name__ = "base"  # for errors


def _is_readonly(op: Op) -> bool:
    """Whether NumPy does not let a view that the operation gives be written through."""
    return isinstance(op.lower, Layout) and op.lower.readonly


class GuardedFlags:
    """Flags of an array that only a guard has made read-only: a write copies it first."""

    __slots__ = ("_flags",)

    _ALSO = frozenset({"writeable", "behaved", "carray", "farray"})

    def __init__(self, flags: Any) -> None:
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self._ALSO else getattr(self._flags, name)

    def __getitem__(self, name: str) -> Any:
        flags = self._flags
        if name in ("W", "WRITEABLE", "writeable"):
            return True
        if name in ("B", "BEHAVED", "behaved"):
            return flags.aligned
        if name in ("CA", "CARRAY", "carray"):
            return flags.aligned and flags.c_contiguous
        if name in ("FA", "FARRAY", "farray"):
            return flags.aligned and flags.f_contiguous and not flags.c_contiguous
        return flags[name]

    def __repr__(self) -> str:
        return repr(self._flags).replace("WRITEABLE : False", "WRITEABLE : True")


class ViewFlags:
    """Flags of an argument that is a view where the caller has it, and a copy on a device."""

    __slots__ = ("_flags",)

    def __init__(self, flags: Any) -> None:
        object.__setattr__(self, "_flags", flags)

    def __getattr__(self, name: str) -> Any:
        return name != "owndata" and getattr(self._flags, name)

    def __getitem__(self, name: str) -> Any:
        return name not in ("O", "OWNDATA") and self._flags[name]

    def __repr__(self) -> str:
        return repr(self._flags)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._flags, name, value)


class RecordedFlags:
    """Flags of an array while `jit` records: to set them is to ask for memory."""

    __slots__ = ("_flags", "_recorder")
    _recorder: TracingEngine

    def __init__(self, flags: Any, recorder: TracingEngine) -> None:
        object.__setattr__(self, "_flags", flags)
        object.__setattr__(self, "_recorder", recorder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._flags, name)

    def __getitem__(self, name: str) -> Any:
        return self._flags[name]

    def __repr__(self) -> str:
        return repr(self._flags)

    def __setattr__(self, name: str, value: Any) -> None:
        self._recorder.refuse_memory(_flags_of)

    def __setitem__(self, name: str, value: Any) -> None:
        self._recorder.refuse_memory(_flags_of)


def _flags_of(x: Any) -> Any:
    return x.flags


_flags_of.__name__ = "flags"  # for errors


class ArgumentBase:
    """The array whose memory an argument looks at: there is one, and more is not known.

    What is read there would have no gradient.
    """

    __slots__ = ("__weakref__", "_memory")
    _known: ClassVar[weakref.WeakValueDictionary[int, ArgumentBase]] = weakref.WeakValueDictionary()

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    @classmethod
    def of(cls, memory: Any) -> ArgumentBase:
        """Return the one that stands for the base of an array."""
        known = cls._known.get(id(memory))
        if known is None:
            known = cls._known[id(memory)] = cls(memory)
        return known

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and not name.startswith("__array"):
            raise AttributeError(name)
        raise TraceError(
            "base: an argument is a view of an array that no derivative is taken of, and what is "
            "read there would have no gradient; pass that array as an argument, and take the view "
            "inside of the function"
        )

    def __getitem__(self, index: Any) -> Any:
        return self.__getattr__("item")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__getattr__("item")

    __setitem__ = __array__


class Attributes(_State):
    """The attributes of `numpy.ndarray`, and those of derivatives."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes; assigning to it reshapes the array in place."""
        v: Any = sync_if_view(self)._plain
        try:
            shape: tuple[int, ...] = v.shape
        except AttributeError:  # a Python number
            return ()
        return shape

    @shape.setter
    def shape(self, to: Any) -> None:
        if not may_be_reshaped(self):
            raise _refused(
                "shape: an argument is not reshaped in place, since the caller's array would not "
                "be; write x = x.reshape(shape)",
                self,
            )
        alone = sys.getrefcount(self) <= _FEWEST_REFERENCES
        if not reshape_in_place(self, to, alone):
            raise AttributeError(
                "shape: the elements do not lie in memory as the new shape needs it; write "
                "x = x.reshape(shape)"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        dtype: np.dtype[Any] = aval_of(self._plain).dtype
        return dtype

    @dtype.setter
    def dtype(self, to: Any) -> None:  # noqa: ARG002
        raise _refused(
            "dtype: the elements of an ADArray are not read as others in place; write "
            "x = x.view(dtype)",
            self,
        )

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return np.ndim(self._plain)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.size(self._plain))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def flags(self) -> Any:
        """Memory layout of the values, as `numpy.ndarray.flags`."""
        v = sync_if_view(self)._plain
        if not isinstance(v, (np.ndarray, np.generic)):
            return np.asarray(v).flags
        flags = v.flags
        mode = MODE.get()
        if isinstance(v, Symbolic) and mode is not None and mode.recorder is not None:
            return RecordedFlags(flags, mode.recorder)
        if is_device(v) and origin_of(root_of(self)) is not None:
            return ViewFlags(flags)
        if flags.writeable or type(v) is not np.ndarray or not guarded(root_of(self)._plain):
            return flags
        steps = self._x.steps if self._x is not None else ()
        return flags if any(_is_readonly(step[0]) for step in steps) else GuardedFlags(flags)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes to step along each axis."""
        v = sync_if_view(self)._plain
        return v.strides if isinstance(v, (np.ndarray, np.generic)) else ()

    @property
    def base(self) -> Any:
        """The array that this one is a view of; of an argument, see `ArgumentBase`."""
        root: Any = root_of(self)
        mode = MODE.get()
        recorder = mode.recorder if mode is not None else None
        if (
            recorder is not None
            and isinstance(root._plain, Symbolic)
            and (root is self or recorder.is_input(root._plain))
        ):
            recorder.refuse_memory(_base_of)  # the next argument may be no view
        lies = origin_of(root)
        if lies is not None:
            return ArgumentBase.of(lies.base)
        if root is not self:
            return root
        v, node = self._plain, self._node
        if type(v) is not np.ndarray or v.base is None:
            return None
        of_caller = type(v.base) is ArgumentMemory or (node is not None and node.op is LEAF)
        return ArgumentBase.of(v.base) if of_caller else None

    @property
    def T(self) -> ADArray:  # noqa: N802  (NumPy's name)
        """The array with its axes reversed: a view."""
        return call_function(np.transpose, (self,), {})  # type: ignore[no-any-return]

    @property
    def mT(self) -> ADArray:  # noqa: N802
        """The array with its last two axes swapped: a view."""
        if not is_array(self):
            raise MissingError("a number has no attribute 'mT'")
        if self.ndim < 2:
            raise ValueError("matrix transpose with ndim < 2 is undefined")
        return call_function(np.swapaxes, (self, -1, -2), {})  # type: ignore[no-any-return]

    @property
    def real(self) -> ADArray:
        """The real part: a view; the array itself if it is real."""
        return _part(np.real, self)

    @real.setter
    def real(self, value: Any) -> None:
        target: Any = self
        if self.dtype.kind != "c":
            target[...] = _real_value(value)
        elif isinstance(self._plain, np.generic):
            target[...] = np.real(value) + target.imag * self.dtype.type(1j)
        else:
            target.real[...] = np.real(value)

    @property
    def imag(self) -> ADArray:
        """The imaginary part: a view; zeros, for reading only, if the array is real."""
        return _part(np.imag, self)

    @imag.setter
    def imag(self, value: Any) -> None:
        if self.dtype.kind != "c":
            raise TypeError("array does not have imaginary part to set")
        target: Any = self
        if isinstance(self._plain, np.generic):
            target[...] = target.real + _real_value(value) * self.dtype.type(1j)
        else:
            target.imag[...] = _real_value(value)

    @property
    def flat(self) -> FlatIterator:
        """The elements as one sequence in C order, which can be written to."""
        return FlatIterator(self)

    @flat.setter
    def flat(self, value: Any) -> None:
        FlatIterator(self)[...] = value

    @property
    def requires_grad(self) -> bool:
        """Whether a derivative may flow through this array."""
        return traced(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        raise AttributeError(
            "requires_grad: it is not set afterwards; make the array by "
            f"adarray.array(x, requires_grad={bool(value)}), or differentiate by adarray.grad"
        )

    @property
    def grad(self) -> np.ndarray | ADArray | None:
        """Gradient that `backward` accumulated here, shape and dtype of the array."""
        slot = self._x.slot if self._x is not None else None
        return slot.grad if slot is not None else None

    @grad.setter
    def grad(self, value: Any) -> None:
        slot = self._x.slot if self._x is not None else None
        if slot is None:
            raise TraceError("grad: only an array made with requires_grad=True has one")
        slot.grad = value


def _real_value(value: Any) -> Any:
    """Return `value`, of which NumPy's setters take the real part with a warning."""
    if getattr(value, "dtype", np.asarray(0.0).dtype).kind == "c":
        raise TypeError("real, imag: the value to set is complex; set its real part")
    return value


class FlatIterator:
    """The elements of an ADArray as one sequence in C order, as `numpy.flatiter`.

    Parameters
    ----------
    base : ADArray
    """

    __slots__ = ("base", "index")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, base: Any) -> None:
        self.base = base
        self.index = 0

    @property
    def coords(self) -> tuple[int, ...]:
        """Index of the next element in the array."""
        return tuple(int(i) for i in np.unravel_index(self.index, self.base.shape))

    def __len__(self) -> int:
        return int(self.base.size)

    def __iter__(self) -> Iterator[Any]:
        self.index = 0
        return self

    def __next__(self) -> Any:
        if self.index >= len(self):
            raise StopIteration
        self.index += 1
        return self[self.index - 1]

    def __getitem__(self, index: Any) -> Any:
        r = self.base.reshape(-1)[index]
        return r.copy() if r.ndim else r

    def __setitem__(self, index: Any, value: Any) -> None:
        positions = np.arange(len(self))[index]
        if np.ndim(value):  # NumPy repeats or cuts the values
            value = np.ravel(value if hasattr(value, "ndim") else np.asarray(value))
            value = value[np.arange(np.size(positions)) % value.shape[0]]
            value = value if np.ndim(positions) else value[0]
        if self.base.ndim:
            setitem(self.base, np.unravel_index(positions, self.base.shape), value)
        else:
            setitem(self.base, (), value)

    def copy(self) -> Any:
        """Return the elements as a one-dimensional array."""
        return self.base.flatten()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if traced(self.base):
            raise leaves_graph("flat", "use x.ravel() in place of x.flat")
        if copy is False:
            raise ValueError("np.asarray: an ADArray can only be converted with a copy")
        return np.asarray(self.base.numpy().ravel(), dtype)


def _comparison(ufunc: Any) -> Callable[[Any, Any], Any]:
    def compare(self: Any, other: Any) -> Any:
        return ufunc(self.copy(), other.copy() if isinstance(other, FlatIterator) else other)

    return compare


for _name, _ufunc in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    setattr(FlatIterator, f"__{_name}__", _comparison(_ufunc))
