"""What is known of an array without its values: shape, dtype and weakness."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


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

    def __init__(self, shape: tuple[int, ...], dtype: Any, weak: bool = False) -> None:
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


def aval_of(value: Any) -> Aval:
    """Return the `Aval` of a plain value: an ndarray, NumPy scalar or Python number."""
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return Aval((), np.result_type(value), weak=True)
    if not isinstance(value, (np.ndarray, np.generic)):
        value = np.asarray(value)
    return Aval(value.shape, value.dtype)
