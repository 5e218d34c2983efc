"""Types that many modules use in annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int, ...]
DType: TypeAlias = np.dtype[Any]

# The smallest and the largest level of the traces that a value depends on.
Span: TypeAlias = tuple[int, int]

# Operands of an operation: ADArrays, plain values, and None for one that is left out.
Operands: TypeAlias = tuple[object, ...]

# Arguments by name: the name says of which type one is.
Params: TypeAlias = dict[str, Any]

# A function of arrays, or one that takes its place: operands in, results out.
Function: TypeAlias = Callable[..., Any]

# The global names of a module.
Namespace: TypeAlias = dict[str, object]

# File and line of the user's code.
Where: TypeAlias = tuple[str, int]

Order: TypeAlias = Literal["K", "A", "C", "F"]
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


class ArrayValue(Protocol):
    """A value that computes as an array: an ndarray, a NumPy scalar, or a stand-in for one.

    Values on a device pass for one, those of a batch, and those that `adarray.jit` records. A
    Python number takes part as a value, too, but has neither shape nor dtype: where one may be,
    `adarray.base.aval.aval_of` asks for them. All members are as NumPy's.
    """

    @property
    def shape(self) -> Shape:
        """Lengths of the axes."""

    @property
    def dtype(self) -> DType:
        """Type of the elements."""

    @property
    def ndim(self) -> int:
        """Number of axes."""

    @property
    def size(self) -> int:
        """Number of elements."""

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""

    @property
    def strides(self) -> Shape:
        """Bytes from one element to the next, of each axis."""

    @property
    def base(self) -> object:
        """Object whose memory it has."""

    @property
    def flags(self) -> Any:
        """How it lies in memory."""

    def __array__(self) -> np.ndarray: ...

    def __float__(self) -> float: ...

    def __int__(self) -> int: ...

    def item(self) -> object:
        """Return the one element as a Python number."""

    def copy(self, order: Order = ...) -> ArrayValue:
        """Return a copy."""

    def astype(self, dtype: DType) -> ArrayValue:
        """Return it with elements of another type."""
