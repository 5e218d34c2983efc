"""Plain arrays that a recorded run read, and that are the same in every run.

They may be as large as the inputs: the zeros that a gradient of ``x[k]`` is added into. Those
with one number everywhere, which most of the large ones are, become that number, on a device
without a transfer; the others are compared by contents, and not hashed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np

from adarray.device import host, is_device

_STEP = 1 << 16  # elements that are compared at a time: they fit into a cache
_STEP_ON_DEVICE = 1 << 24  # the comparison takes a byte of each
_SAMPLES = 64  # elements of an array that are hashed


def first_of(x: Any) -> Any:
    """Return the element of an array that has it everywhere, as an array of one; else None.

    Elements are compared by their bits. It stops at the first other one.

    Parameters
    ----------
    x : ndarray or DeviceArray, of numbers
    """
    if x.size == 0 or x.dtype.kind not in "biufc" or x.itemsize > 16:
        return None
    if is_device(x):
        return _first_on_device(x)
    once = x[tuple([slice(0, 1) if not s else slice(None) for s in x.strides])]  # what repeats
    first = once[(slice(0, 1),) * x.ndim].reshape(1)
    if not (_words(once[(slice(-1, None),) * x.ndim].reshape(1)) == _words(first)).all():
        return None
    order = "K" if once.flags.c_contiguous or once.flags.f_contiguous else "C"
    flat = once.ravel(order)  # a view, but of arrays with gaps
    word = _words(first)
    for i in range(0, flat.size, _STEP):
        if not (_words(flat[i : i + _STEP]) == word).all():
            return None
    return first.copy()


def _words(flat: np.ndarray) -> np.ndarray:
    """Return elements as integers of their bits, shape (elements, words of an element)."""
    size = flat.itemsize
    unit = next(n for n in (8, 4, 2, 1) if size % n == 0)
    if not flat.flags.c_contiguous:
        flat = flat.copy()
    return flat.view(f"u{unit}").reshape(-1, size // unit)


def _first_on_device(x: Any) -> Any:
    """Do as `first_of` on a device; some bytes are sent back, the array is not."""
    if x.itemsize > 8 or not x.flags.c_contiguous:
        return None  # there is no integer of 16 bytes; others would have to be copied
    flat = np.reshape(x, -1)
    bits = flat.view(f"u{x.itemsize}")
    for i in range(0, x.size, _STEP_ON_DEVICE):
        if not bool(np.all(np.equal(bits[i : i + _STEP_ON_DEVICE], bits[:1]))):
            return None
    return np.asarray(host(flat[:1]))


def constant(x: Any) -> tuple[np.ndarray, Hashable]:
    """Return a constant as passes take it, on the host, and its key.

    One number everywhere takes no memory. Anything else becomes read-only: passes keep the array
    itself.

    Parameters
    ----------
    x : ndarray or DeviceArray
        A copy that nobody else has.
    """
    first = first_of(x) if x.size > 1 else None
    if first is not None:
        return np.broadcast_to(first[0], x.shape), uniform_key(x, first)
    array = np.asarray(host(x))
    array.flags.writeable = False
    return array, Contents(array)


class Captured(NamedTuple):
    """A plain array that a run has read.

    Parameters
    ----------
    traced : Traced
    constant : ndarray or DeviceArray
        What it held.
    first : ndarray or None
        The element that it had everywhere.
    """

    traced: Any
    constant: Any
    first: np.ndarray | None

    def holds(self, array: Any) -> bool:
        """Whether the array holds the same now."""
        if self.first is None or is_device(array):
            return _same(self.traced.value if is_device(array) else self.constant, array)
        known = self.traced
        now = first_of(array) if array.shape == known.shape and array.dtype == known.dtype else None
        return now is not None and now.tobytes() == self.first.tobytes()


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and bool(np.array_equal(a, b) or np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
    )


class Contents:
    """The contents of an array that nobody writes into, as part of a key: equal if they are.

    Comparing takes the time of reading both arrays, once: equal ones are one array from then on.
    """

    __slots__ = ("_hash", "array")

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        sample = array.flat[:: max(1, array.size // _SAMPLES)]
        self._hash = hash((array.dtype.str, array.shape, sample.tobytes()))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Contents):
            return NotImplemented
        if self.array is other.array:
            return True
        if self._hash != other._hash or not _same_bits(self.array, other.array):
            return False
        other.array = self.array
        return True

    def __repr__(self) -> str:
        return f"<contents of {self.array.dtype}{list(self.array.shape)}>"


def _same_bits(x: np.ndarray, y: np.ndarray) -> bool:
    """Whether two arrays have the same dtype, shape and bits."""
    if x.dtype != y.dtype or x.shape != y.shape:
        return False
    x, y = x.ravel(), y.ravel()
    return all(
        (_words(x[i : i + _STEP]) == _words(y[i : i + _STEP])).all()
        for i in range(0, x.size, _STEP)
    )


def uniform_key(x: Any, first: np.ndarray) -> Hashable:
    """Return the key of an array that holds one number everywhere."""
    return ("uniform", x.dtype.str, x.shape, first.tobytes())
