"""What is known of an array without its values: shape, dtype and weakness."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from adarray.base.errors import DTypeError
from adarray.base.types import ArrayValue, DType, Function, Operands, Order, Params, Shape

if TYPE_CHECKING:
    from adarray.base.op import Op

T = TypeVar("T")


class Aval:
    """Shape and dtype of an array value.

    Parameters
    ----------
    shape : tuple of int
    dtype : numpy.dtype
    weak : bool
        True for a Python number, whose dtype yields to the other operand's
        (NEP 50): ``float32 * weak`` is float32.

    Notes
    -----
    Derivative rules get an `Aval` in place of an operand whose values they do
    not need, so a rule may read ``x.shape``, ``x.ndim``, ``x.size`` and
    ``x.dtype`` of every operand.
    """

    __slots__ = ("dtype", "shape", "weak")

    def __init__(self, shape: Shape, dtype: DType, weak: bool = False) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak = weak

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def __repr__(self) -> str:
        weak = ", weak" if self.weak else ""
        return f"Aval({self.dtype}{list(self.shape)}{weak})"


def aval_of(value: object) -> Aval:
    """Return the `Aval` of a plain value: an ndarray, NumPy scalar or Python number."""
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return Aval((), np.result_type(value), weak=True)
    if not isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
    return Aval(value.shape, value.dtype)


if TYPE_CHECKING:
    _Base = ArrayValue
else:
    _Base = object


class Symbolic(_Base):
    """Base of symbolic values, which stand for the arrays of later runs; see `adarray.jit`.

    One passes for its concrete value in isinstance checks, and is never written into.

    Attributes
    ----------
    value : ndarray, NumPy scalar or Python number
        The concrete value, in the run that is recorded.
    """

    __slots__ = ()
    value: Any

    if TYPE_CHECKING:  # classes of it take NumPy's for these

        @property
        def base(self) -> object:
            """Object whose memory it has."""

        def copy(self, order: Order = ...) -> ArrayValue:
            """Return a copy."""

        def astype(self, dtype: DType) -> ArrayValue:
            """Return it with elements of another type."""

    def zeros(self, shape: Shape, dtype: DType) -> ArrayValue:
        """Return plain zeros on the device of the concrete value, or on the host with it."""
        raise NotImplementedError

    def shown(self) -> object:
        """Return the concrete value, for printing."""
        return self.value


class Tracked:
    """Base of ADArrays, by which lower layers recognise one."""

    __slots__ = ()


# Types of plain operands that need no second check. Classes of `Symbolic` are added.
PLAIN: set[type] = {np.ndarray, float, int, bool, complex, np.float64, np.float32}

# Types of arrays, which are written into and shared by views, by what `type` says of them.
# Those of devices are added.
ARRAYS: set[type] = {np.ndarray}


class Batching(Protocol):
    """Computes on values that stand for many arrays at once; see `adarray.batching`."""

    def compute(self, op: Op, values: Operands, params: Params) -> object:
        """Compute an operation for all members."""

    def function(self, function: Function, args: Operands, kwargs: Params) -> object:
        """Call a function that has no record for all members."""


# By the class of such values; empty before it is needed.
BATCHED: dict[type, Batching] = {}

# Classes of arrays that compute as NumPy's own does, and are taken for it: see
# adarray.arrays.plainarrays.
PLAIN_ARRAYS: set[type] = set()

# What takes the place of an ndarray subclass whose arithmetic differs from an array's.
_SUBCLASSES = {
    "MaskedArray": "a masked array: its mask would be lost; pass np.where(x.mask, fill, x.data), "
    "or x.filled(value)",
    "matrix": "a numpy.matrix, whose * is a matrix product; pass np.asarray(x), and use @",
}


def refuse_subclass(x: T, name: str) -> T | np.ndarray:
    """Return an operand of the function `name`; raise if it is a subclass with its own arithmetic.

    Raises
    ------
    DTypeError
        If it is a masked array or a matrix.
    """
    cls = type(x)
    if cls is np.ndarray or not isinstance(x, np.ndarray):
        return x
    if cls in PLAIN_ARRAYS:
        return np.ndarray.view(x, np.ndarray)
    for base in cls.__mro__:
        if base.__name__ in _SUBCLASSES and base.__module__.startswith("numpy"):
            raise DTypeError(f"{name}: an operand is {_SUBCLASSES[base.__name__]}")
    return x
