"""`Batched`: the value of one member to all who look, and the values of all members in memory."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from adarray.base.aval import ARRAYS, PLAIN, Symbolic
from adarray.base.errors import TraceError, UnsupportedFunctionError
from adarray.base.hooks import Hook
from adarray.base.memory import duplicate
from adarray.batching.batch import Batch, concrete_of, split
from adarray.core.trace import Extras, Handle
from adarray.device import is_device

# What computes on values of batches.
_CALLS = "adarray.batching.calls"
ufunc_hook: Hook[Callable[[np.ufunc, str, tuple[Any, ...], dict[str, Any]], Any]] = Hook(_CALLS)
function_hook: Hook[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = Hook(_CALLS)
item_hook: Hook[Callable[[Batched, Any], Any]] = Hook(_CALLS)
write_hook: Hook[Callable[[Any, Any, Any], Any]] = Hook(_CALLS)


class MemberFlags:
    """Memory layout of one member, as `numpy.ndarray.flags`."""

    __slots__ = ("_of", "_value")

    def __init__(self, of: Batched) -> None:
        self._of = of
        self._value = np.asarray(of.member()).flags

    @property
    def writeable(self) -> bool:
        """Whether the array may be written into."""
        return self._of._writeable

    @writeable.setter
    def writeable(self, to: bool) -> None:
        self._of._writeable = to

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._value, name)

    def __getitem__(self, name: str) -> Any:
        flags: Any = self._value
        return self._of._writeable if name in ("W", "WRITEABLE") else flags[name]


class Batched(Symbolic, NDArrayOperatorsMixin):
    """An array, NumPy scalar or Python number of every member of a batch.

    Parameters
    ----------
    raw : array
        Those of all members, along the first axis: plain, of a device, of a recording of `jit`,
        or of the batch around.
    batch : Batch
    scalar : bool
        Whether a member has a NumPy scalar, which is never written into.
    weak : bool
        Whether a member has a Python number.
    """

    __slots__ = ("__weakref__", "_writeable", "batch", "raw", "scalar", "weak")

    def __init__(self, raw: Any, batch: Batch, scalar: bool = False, weak: bool = False) -> None:
        self.raw = raw
        self.batch = batch
        self.scalar = scalar or weak
        self.weak = weak
        self._writeable = not self.scalar

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        if self.weak:
            return {"b": bool, "c": complex, "f": float}.get(self.raw.dtype.kind, int)
        return self.raw.dtype.type if self.scalar else np.ndarray

    # -- what is the same for every member ------------------------------------------------

    def member(self) -> Any:
        """Return the concrete array of the first member; zeros, if there are none."""
        values = concrete_of(self.raw)
        return values[0] if self.batch.size else np.zeros(self.shape, self.dtype)

    @property
    def value(self) -> Any:
        """The concrete value of the first member."""
        first = self.member()
        return first.item() if self.weak else first[()] if self.scalar else first

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        shape: tuple[int, ...] = self.raw.shape
        return shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the elements."""
        dtype: np.dtype[Any] = self.raw.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.raw.shape) - 1

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for n in self.raw.shape[1:]:
            size *= n
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.raw.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def flags(self) -> MemberFlags:
        """Memory layout."""
        return MemberFlags(self)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes to step along each axis."""
        strides: tuple[int, ...] = self.raw.strides
        return strides[1:]

    @property
    def base(self) -> Any:
        """Something if the memory may be another array's; None if it is not."""
        return self.raw.base

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of unsized object")
        return int(self.raw.shape[1])

    # -- NumPy's protocols ---------------------------------------------------------------

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(x, Handle) for x in inputs):
            return NotImplemented  # ADArrays know what to do with values
        return ufunc_hook.call(ufunc, method, inputs, kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any(issubclass(t, Handle) for t in types):
            return NotImplemented
        return function_hook.call(func, args, kwargs)

    def __getitem__(self, index: Any) -> Any:
        return item_hook.call(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = write_hook.call(self, index, value)
        if target is not self:  # what `jit` records never changes
            self.raw = target.raw

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of arrays, computed as that of an ADArray."""
        if name.startswith("_"):
            raise AttributeError(name)
        attribute = getattr(handle_of(self), name)
        if not callable(attribute):
            return opened(attribute)

        def method(*args: Any, **kwargs: Any) -> Any:
            return opened(attribute(*args, **kwargs))

        return method

    # -- copies ----------------------------------------------------------------------------

    def copy(self, order: Any = "C") -> Any:
        """Return a copy; what `jit` records never changes, and is its own."""
        raw: Any
        if isinstance(self.raw, Symbolic) and not is_batched(self.raw):
            raw = self.raw
        elif order == "K" or is_device(self.raw) or is_batched(self.raw):
            raw = duplicate(self.raw)
        else:
            raw = in_layout(self.raw, order)
        return Batched(raw, self.batch, self.scalar, self.weak)

    def duplicate(self) -> Any:
        """Return a copy that lies in memory as this array does, see `adarray.base.memory`."""
        return self.copy("K")

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return zeros for every member."""
        full = (self.batch.size, *shape)
        raw = self.raw
        if isinstance(raw, Symbolic):
            zeros = raw.zeros(full, dtype)
        else:
            zeros = (
                np.zeros_like(raw, dtype, shape=full) if is_device(raw) else np.zeros(full, dtype)
            )
        return Batched(zeros, self.batch)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    # -- Python reads the value -----------------------------------------------------------

    def read(self) -> Any:
        """Return the concrete value that all members have; where they differ, split the batch.

        Raises
        ------
        SplitError
        TraceError
            Outside of the function that `vmap` runs, where nothing can be split.
        """
        batches: list[Batch] = []
        x: Any = self
        while is_batched(x):
            batches.append(x.batch)
            x = x.raw
        if not all(b.open or b.walks for b in batches):
            raise TraceError(
                "vmap: the values of the members of a batch are read outside of the "
                "function that computed them; return what is needed from the function"
            )
        values = concrete_of(x)
        # From the outermost batch, whose axis is that of the innermost array.
        if isinstance(x, Symbolic):
            _guard(x)
        split(values, batches[::-1])
        first = values[(0,) * len(batches)] if values.size else np.zeros(self.shape, self.dtype)
        return first.item() if self.weak else first[()] if self.scalar else first

    def __bool__(self) -> bool:
        return bool(self.read())

    def __index__(self) -> int:
        return operator.index(self.read()[()] if not self.weak else self.read())

    def __int__(self) -> int:
        return int(self.read())

    def __float__(self) -> float:
        return float(self.read())

    def __complex__(self) -> complex:
        return complex(self.read())

    def __trunc__(self) -> int:
        return int(self.read())

    def __hash__(self) -> int:
        if not self.scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self.read())

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.read(), dtype)

    def item(self) -> Any:
        """Return the one element as a Python number, of every member."""
        if self.dtype.kind not in "fc":
            return np.asarray(self.read()).item()
        raw = self.raw.reshape(self.batch.size)
        raw = raw.astype(np.complex128 if self.dtype.kind == "c" else np.float64)
        return handle_of(Batched(raw, self.batch, True, True))

    def tolist(self) -> Any:
        """Return nested lists of Python numbers."""
        return [x.tolist() for x in self] if self.ndim else self.item()

    # -- text ------------------------------------------------------------------------------

    def shown(self) -> Any:
        """Return the values of all members, of which text is made."""
        return concrete_of(self.raw)

    def __repr__(self) -> str:
        return f"Batched({self.shown()!r})"

    def __str__(self) -> str:
        return str(self.shown())

    def __format__(self, spec: str) -> str:
        return format(self.shown() if not spec else self.read(), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TraceError(
            "vmap: a value of the members of a batch is pickled; return it from the function, and "
            "pickle what vmap returns"
        )


_BITS = 62  # of an integer that Python looks at
_MANY = 4096  # numbers of members that `jit` is made to convert at, one by one


def _guard(x: Any) -> None:
    """Let later calls of what `jit` compiled ask whether members answer as they do now.

    What is asked next depends on answers alone: so other members' ways are recorded beside.

    Raises
    ------
    TraceError
        If there are too many numbers to convert at.
    """
    flat = np.reshape(x, (-1,))
    if x.dtype.kind == "b":
        if not x.size or bool(np.all(flat)) or not bool(np.any(flat)):
            return
        for k in range(0, x.size, _BITS):
            part = flat[k : k + _BITS]
            operator.index(np.sum(np.where(part, 1 << np.arange(part.size), 0)))
        return
    if x.size > _MANY:
        raise TraceError(
            f"vmap: Python looks at {x.size} numbers of members, which are too many for jit to "
            "tell calls apart by; ask a question with few answers, such as x > 0"
        )
    convert = {"f": float, "c": complex}.get(x.dtype.kind, operator.index)
    for k in range(x.size):
        convert(flat[k])


def in_layout(raw: Any, order: Any) -> Any:
    """Return a copy of the arrays of all members, each in the memory order `order`."""
    if order == "F" and raw.ndim > 2:
        axes = (0, *range(raw.ndim - 1, 0, -1))
        return np.copy(np.transpose(raw, axes), order="C").transpose(axes)
    return np.copy(raw, order="C")


def is_batched(x: object) -> TypeGuard[Batched]:
    """Whether a plain value is that of the members of a batch."""
    return type(x) is Batched


def handle_of(x: Batched) -> Any:
    """Return a value as an ADArray."""
    if x.weak:
        return Handle.number_class(x, None, Extras(weak=True), True)
    return Handle.array_class(x, None, None, True)


def opened(x: Any) -> Any:
    """Return `x` with the ADArrays in it replaced by their values."""
    if isinstance(x, Handle):
        return x._plain
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(map(opened, x))
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return kind(*map(opened, x))
    return x


def raw_of(x: Any, batch: Batch) -> Any:
    """Return the arrays of all members of a batch; one that is the same for all is broadcast."""
    if type(x) is Batched and x.batch is batch:
        return x.raw
    x = x if hasattr(x, "shape") else np.asarray(x)
    return np.broadcast_to(x, (batch.size, *x.shape))


def as_batched(raw: Any, batch: Batch, scalar: bool = False) -> Batched:
    """Return the arrays of all members as the value of one; its scalars share no memory."""
    scalar = scalar and len(raw.shape) == 1
    if scalar and not (isinstance(raw, Symbolic) and not is_batched(raw)) and raw.base is not None:
        raw = raw.copy()
    return Batched(raw, batch, scalar)


def innermost(*trees: Any) -> Batch | None:
    """Return the innermost batch of which there are values in these, None if there are none."""
    batch: Batch | None = None
    for x in trees:
        kind = type(x)
        other: Batch | None = None
        if kind is Batched:
            other = x.batch
        elif kind is tuple or kind is list:
            other = innermost(*x)
        elif kind is dict:
            other = innermost(*x.values())
        elif kind is slice:
            other = innermost(x.start, x.stop, x.step)
        if other is not None and (batch is None or other.level > batch.level):
            batch = other
    return batch


def refuse_strict(values: Any) -> None:
    """Raise if values are those of a batch that jitted functions refuse.

    Raises
    ------
    UnsupportedFunctionError
    """
    batch = innermost(values)
    if batch is not None and batch.strict:
        raise UnsupportedFunctionError(
            "jit: compiled functions do not take all directions of a derivative at once; call the "
            "function that was jitted"
        )


def member_axis(axis: Any, ndim: int) -> Any:
    """Return axes of a member, of `ndim` axes, as axes of the array of all members."""
    if isinstance(axis, (tuple, list)):
        return tuple(member_axis(a, ndim) for a in axis)
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise np.exceptions.AxisError(axis, ndim)
    return axis % ndim + 1


PLAIN.add(Batched)
ARRAYS.add(Batched)
