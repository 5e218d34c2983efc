"""`DeviceArray`: a value in the memory of a device that passes for NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adarray.base.aval import ARRAYS, BATCHED, PLAIN, Symbolic, Tracked
from adarray.device.differences import as_whole, cast_differs
from adarray.device.functions import SPECIAL
from adarray.device.indices import device_index, last_values
from adarray.device.values import DeviceValue

if TYPE_CHECKING:
    from adarray.device.library import Library


class DeviceFlags:
    """Memory layout of a `DeviceArray`, as `numpy.ndarray.flags`."""

    __slots__ = ("_array",)

    def __init__(self, array: DeviceArray) -> None:
        self._array = array

    @property
    def writeable(self) -> bool:
        """Whether the array may be written into."""
        return self._array._writeable

    @writeable.setter
    def writeable(self, to: bool) -> None:
        self._array._writeable = to

    @property
    def fnc(self) -> bool:
        """Whether the elements are contiguous in Fortran order, and not in C order."""
        return bool(self.f_contiguous and not self.c_contiguous)

    @property
    def aligned(self) -> bool:
        """Whether elements lie at multiples of their size."""
        return self._array.form.aligned

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._array.raw.flags, name)

    def __getitem__(self, name: str) -> Any:
        short = {"C": "c_contiguous", "F": "f_contiguous", "W": "writeable", "O": "owndata"}
        return getattr(self, short.get(name, name.lower()))


class Form(NamedTuple):
    """The properties of a device array that compiled code depends on.

    Parameters
    ----------
    dtype : numpy.dtype
    shape : tuple of int
    strides : tuple of int or None
        In bytes; None for C order.
    aligned : bool
        Whether elements lie at multiples of their size.
    scalar : bool
    device : str
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    aligned: bool
    scalar: bool
    device: str


_forms: dict[Form, Form] = {}
_FORMS = 4096  # that are kept: others are equal, and not the same object


def form_of(raw: Any, library: Library, scalar: bool) -> Form:
    """Return the form of an array of a library."""
    strides = None if raw.flags.c_contiguous else raw.strides
    form = Form(raw.dtype, raw.shape, strides, library.aligned(raw), scalar, library.name)
    if len(_forms) >= _FORMS:
        _forms.clear()
    return _forms.setdefault(form, form)


class DeviceArray(DeviceValue, NDArrayOperatorsMixin):
    """An array, or a NumPy scalar, whose value is in the memory of a device.

    Parameters
    ----------
    raw : array of `library`
    library : Library
    scalar : bool
        Whether NumPy would have a scalar in its place. One is never written into.

    Notes
    -----
    ``isinstance`` takes it for an ndarray, or for a NumPy scalar of its dtype.
    """

    __slots__ = (
        "__weakref__", "_form", "_writeable", "aside", "dtype", "library", "raw", "scalar", "shape",
    )  # fmt: skip
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(self, raw: Any, library: Library, scalar: bool = False) -> None:
        self.raw = raw
        self.shape = raw.shape
        self.dtype = raw.dtype
        self.library = library
        self.scalar = scalar
        self._writeable = not scalar
        self.aside: Any = None  # what a kernel found on the way, for the derivative rule
        self._form: Form | None = None

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.dtype.type if self.scalar else np.ndarray

    # -- without a host read ----------------------------------------------------------

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return int(self.raw.ndim)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self.raw.size)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.raw.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self.raw.size * self.raw.dtype.itemsize)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes to step along each axis."""
        strides: tuple[int, ...] = self.raw.strides
        return strides

    @property
    def base(self) -> Any:
        """Something if the memory belongs to another array; None if it does not."""
        return self.raw.base

    @property
    def flags(self) -> DeviceFlags:
        """Memory layout."""
        return DeviceFlags(self)

    @property
    def form(self) -> Form:
        """The properties that compiled code depends on; arrays of one form share the object."""
        if self._form is None:
            self._form = form_of(self.raw, self.library, self.scalar)
        return self._form

    def __len__(self) -> int:
        if not self.raw.ndim:
            raise TypeError("len() of unsized object")
        return int(self.raw.shape[0])

    # -- NumPy's protocols ---------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        for x in inputs:
            if type(x) is not DeviceArray and (
                type(x) in BATCHED or isinstance(x, (Tracked, Symbolic))
            ):
                return NotImplemented  # they know what to do with values
        return self.library.ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(t in BATCHED or issubclass(t, Tracked) for t in types):
            return NotImplemented
        special = SPECIAL.get(func)
        if special is not None:
            r = special(self.library, *args, **kwargs)
            if r is not NotImplemented:
                return r
        return self.library.call(func, args, kwargs)

    # -- elements ------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        library = self.library
        try:
            raw = library.run(operator.getitem, self.raw, device_index(library, index, self.shape))
        except library.unable:
            return library.on_host(operator.getitem, (self, index), {})
        parts = index if type(index) is tuple else (index,)
        if raw.ndim > 1 and any(map(_chooses, parts)):
            raw = library.laid(operator.getitem, (self, index), {}, raw)
        scalar = raw.ndim == 0 and not any(i is Ellipsis for i in parts)
        if scalar and raw.base is not None:
            raw = library.run(raw.copy)  # NumPy's scalars do not follow writes into the array
        item = DeviceArray(raw, library, scalar)
        if not self._writeable and not scalar and raw.base is not None:
            item._writeable = False
        return item

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self._writeable:
            raise ValueError("assignment destination is read-only")
        library, raw = self.library, self.raw
        try:
            at = device_index(library, index, raw.shape)
            if raw.dtype.kind in "iu":
                value = as_whole(library, value, raw.dtype)
            new = library.raw(value)
            new = last_values(library, raw, index, at, new)
            library.run(operator.setitem, raw, at, new)
        except library.unable:
            values = host(self)
            values = np.array(values)
            values[host_of(index)] = host_of(value)
            library.run(operator.setitem, raw, Ellipsis, library.raw(values))

    def __iter__(self) -> Iterator[Any]:
        if not self.raw.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(np.equal(self, value)))

    # -- conversions, which wait for the device --------------------------------------------

    def host(self) -> Any:
        """Return a copy of the values as an ndarray or a NumPy scalar."""
        values = self.library.receive(self.raw)
        return values[()] if self.scalar else values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("np.asarray: an array on a device can only be converted with a copy")
        self.library.converted()
        return np.asarray(self.library.receive(self.raw), dtype)

    def item(self, *index: Any) -> Any:
        """Return one element as a Python number."""
        return (self[index] if index else self).host().item()

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        return self.host().tolist()

    def tobytes(self, order: Any = "C") -> bytes:
        """Return the bytes of the elements."""
        return bytes(self.host().tobytes(order))

    def __bool__(self) -> bool:
        return bool(self.host())

    def __int__(self) -> int:
        return int(self.host())

    def __float__(self) -> float:
        return float(self.host())

    def __complex__(self) -> complex:
        return complex(self.host())

    def __index__(self) -> int:
        return operator.index(self.host()[()])

    def __hash__(self) -> int:
        if not self.scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self.host())

    def __repr__(self) -> str:
        return f"DeviceArray({self.host()!r}, {self.library.name})"

    def __str__(self) -> str:
        return str(self.host())

    def __format__(self, spec: str) -> str:
        return format(self.host(), spec)

    def __reduce__(self) -> Any:
        return (np.array, (self.host(),))  # whoever loads it may have no such device

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    # -- methods whose call differs from the function's ------------------------------------

    def copy(self, order: Any = "C") -> Any:
        """Return a copy."""
        raw = self.library.copied(self.raw, order)
        return DeviceArray(raw, self.library, self.scalar)

    def duplicate(self) -> Any:
        """Return a copy that lies in memory as this array does, see `adarray.base.memory`."""
        return DeviceArray(self.library.duplicated(self.raw), self.library, self.scalar)

    def astype(
        self,
        dtype: Any,
        order: Any = "K",
        casting: Any = "unsafe",
        subok: bool = True,  # noqa: ARG002  (NumPy's signature)
        copy: bool = True,
    ) -> Any:
        """Return the array in another dtype."""
        to = np.dtype(dtype)
        if not np.can_cast(self.dtype, to, casting):
            raise TypeError(f"Cannot cast array data from {self.dtype!r} to {to!r}")
        library = self.library
        if not library.accepts(to):
            return self.host().astype(to)
        if to == self.dtype and not copy:
            return self
        if to.kind in "iu" and self.dtype.kind == "f" and cast_differs(library, self.raw, to):
            values = np.asarray(self.host().astype(to, order=order))
            return DeviceArray(library.send(values), library, self.scalar)
        raw = library.run(self.raw.astype, to.newbyteorder("="), order=order)
        return DeviceArray(raw, library, self.scalar)

    def reshape(self, *shape: Any, order: Any = "C", copy: bool | None = None) -> Any:
        """Return the elements in another shape."""
        to = shape[0] if len(shape) == 1 else shape
        return np.reshape(self, to, order=order, copy=copy)

    def transpose(self, *axes: Any) -> Any:
        """Return a view with the axes permuted."""
        to: Any = axes or None
        if len(axes) == 1:
            to = axes[0]
        return np.transpose(self, to)

    def flatten(self, order: Any = "C") -> Any:
        """Return a one-dimensional copy."""
        return np.ravel(self, order).copy()

    def view(self, dtype: Any = None) -> Any:
        """Return the same memory, with elements of another dtype if one is given."""
        raw = self.raw.view() if dtype is None else self.raw.view(dtype)
        view = DeviceArray(raw, self.library, self.scalar)
        view._writeable = self._writeable
        return view

    def fill(self, value: Any) -> None:
        """Write one value into every element."""
        self[...] = value

    def sort(self, axis: int = -1, kind: Any = None) -> None:
        """Sort in place."""
        self[...] = np.sort(self, axis, kind)

    @property
    def T(self) -> Any:  # noqa: N802  (NumPy's name)
        """The array with its axes reversed."""
        return np.transpose(self)

    @property
    def mT(self) -> Any:  # noqa: N802
        """The array with its last two axes swapped."""
        return np.swapaxes(self, -1, -2)

    @property
    def real(self) -> Any:
        """The real part."""
        return np.real(self)

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return np.imag(self)

    # -- other libraries -----------------------------------------------------------------

    def __dlpack__(self, **options: Any) -> Any:
        return self.library.run(self.raw.__dlpack__, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        device: tuple[int, int] = self.raw.__dlpack_device__()
        return device


def _chooses(i: Any) -> bool:
    """Whether a part of an index is an array or a list, which gives a copy."""
    kind = type(i)
    return kind is DeviceArray or kind is np.ndarray or kind is list


def _method(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = f"As `numpy.ndarray.{name}`."
    return method


for _name in (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "conj",
    "conjugate", "cumprod", "cumsum", "diagonal", "dot", "max", "mean", "min", "nonzero", "prod",
    "ravel", "repeat", "round", "searchsorted", "squeeze", "std", "sum", "swapaxes", "take",
    "trace", "var",
):  # fmt: skip
    setattr(DeviceArray, _name, _method(_name))


def is_device(x: object) -> TypeGuard[DeviceArray]:
    """Whether `x` is a `DeviceArray` (``isinstance`` says what it stands for)."""
    return type(x) is DeviceArray


def host(x: Any) -> Any:
    """Return a `DeviceArray` as a fresh ndarray or NumPy scalar, anything else as it is."""
    return x.host() if type(x) is DeviceArray else x


def host_of(x: Any) -> Any:
    """Return `x` with device arrays in it replaced by plain ones."""
    kind = type(x)
    if kind is DeviceArray:
        return x.host()
    if kind is tuple or kind is list:
        return kind(map(host_of, x))
    if kind is dict:
        return {k: host_of(v) for k, v in x.items()}
    if kind is slice:
        return slice(host_of(x.start), host_of(x.stop), host_of(x.step))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind(*map(host_of, x))
    return x


PLAIN.add(DeviceArray)
ARRAYS.add(DeviceArray)
