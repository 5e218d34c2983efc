"""Where array libraries of devices give other values than NumPy, and nothing says so.

They compile C++, whose conversions differ from NumPy's: of a signed integer beside an unsigned one,
of a number that a dtype does not hold, of a floating-point number beyond the range of an integer.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.device.values import on_device

if TYPE_CHECKING:
    from adarray.device.library import Library

# Those that compare two arrays, which NumPy does in the dtype that holds both.
_PAIRS = frozenset({np.searchsorted, np.digitize})
# Those that take Python's integers as values.
_TAKE_NUMBERS = frozenset({np.clip, np.where, np.full_like, np.select, np.isin})
_COMPARE = frozenset({
    np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal,
})  # fmt: skip


def as_pair(function: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments such that arrays which are compared have one dtype."""
    if function not in _PAIRS or len(args) < 2:
        return args
    a, v, *rest = args
    if not (on_device(a) and on_device(v)) or a.dtype == v.dtype:
        return args
    dtype = np.result_type(a.dtype, v.dtype)
    return (a.astype(dtype, copy=False), v.astype(dtype, copy=False), *rest)


def values_differ(function: Any, args: tuple[Any, ...]) -> bool:
    """Whether a function of the library may mean something else by Python's integers than NumPy."""
    return function in _TAKE_NUMBERS and _overflows(args)


def ufunc_differs(ufunc: Any, inputs: tuple[Any, ...]) -> bool:
    """Whether a ufunc of the library may give other values than NumPy's for integer operands."""
    kinds = {x.dtype.char for x in inputs if hasattr(x, "dtype")}
    if not any(c in _RANGES for c in kinds):
        return False
    if ufunc in _COMPARE and kinds & _UNSIGNED and kinds & _SIGNED:
        return True  # NumPy compares them exactly
    return _overflows(inputs)


def _overflows(args: tuple[Any, ...]) -> bool:
    """Whether one of Python's integers is beyond the range of an integer array beside it."""
    numbers = [x for x in args if type(x) is int]
    if not numbers:
        return False
    low, high = min(numbers), max(numbers)
    for x in args:
        if on_device(x) and x.dtype.char in _RANGES:
            least, most = _RANGES[x.dtype.char]
            if low < least or high > most:
                return True
    return False


_RANGES = {np.dtype(c).char: (int(np.iinfo(c).min), int(np.iinfo(c).max)) for c in "bBhHiIlLqQ"}
_UNSIGNED, _SIGNED = frozenset("LQ"), frozenset("bhilq")


@functools.cache
def _bounds(source: str, to: str) -> tuple[Any, Any]:
    """Return between which numbers of a floating dtype, exclusively, all have an integer."""
    info = np.iinfo(to)
    # Where the dtype rounds the lower one, the smallest integer itself counts as beyond.
    return np.dtype(source).type(info.min - 1), np.dtype(source).type(info.max + 1)


def as_whole(library: Library, value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a value as NumPy does when it is written into an array of integers.

    Raises
    ------
    OverflowError, ValueError
        NumPy's own, of a number that the dtype does not hold.
    """
    if on_device(value):
        if not cast_differs(library, value.raw, dtype):
            return value
        value = value.host()
    whole = np.empty(np.shape(value), dtype)
    whole[...] = value
    return whole if whole.ndim else whole.item()


def cast_differs(library: Library, raw: Any, to: np.dtype[Any]) -> bool:
    """Whether elements of a floating array are beyond the range of an integer dtype, or nan.

    What they become is up to the processor, and NumPy's answer, with its warning, is that of the
    host. This waits for the device.
    """
    if raw.dtype.kind != "f" or to.kind not in "iu" or not raw.size:
        return False
    low, high = _bounds(raw.dtype.char if raw.dtype.itemsize > 2 else "f", to.char)
    wide = raw if raw.dtype.itemsize > 2 else library.run(raw.astype, np.float32)
    xp = library.xp
    inside = library.run(xp.logical_and, library.run(xp.greater, wide, low),
                         library.run(xp.less, wide, high))  # fmt: skip
    return not bool(library.call(np.all, (library.wrap(inside, False),), {}))
