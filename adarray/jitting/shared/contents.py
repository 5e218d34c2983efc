"""What memory held: copies of arrays that plain code may have read or written."""

from __future__ import annotations

import array
import contextlib
from typing import Any

import numpy as np

from adarray.device import host, is_device

_COPIED = 1 << 16  # bytes of an array from which its copy is an array, too
_CHUNK = 1 << 17  # of elements that are compared at a time, so that they stay in a cache


class Content:
    """What an array held."""

    __slots__ = ("_copy", "_form", "_large")

    def __init__(self, array: Any) -> None:
        known = isinstance(array, np.ndarray) or is_device(array)
        self._form = (array.shape, array.strides) if known else None
        self._large: Any = None
        self._copy: Any = None
        if self._form is not None and array.nbytes > _COPIED:
            self._large = _words(array).copy()
        else:
            self._copy = _bytes_of(array)

    def same(self, array: Any) -> bool:
        """Whether an array holds the same bytes."""
        if self._large is None:
            return bool(self._copy == _bytes_of(array))
        if self._form != (array.shape, array.strides):
            return False
        now, then = _words(array), self._large
        chunk = then.size if is_device(then) else _CHUNK
        return now.size == then.size and not any(
            host(np.any(np.not_equal(now[i : i + chunk], then[i : i + chunk])))
            for i in range(0, then.size, chunk)
        )

    def restore(self, array: Any) -> None:
        """Give an array what it held, if it holds something else and can be written into."""
        if self.same(array):
            return
        with contextlib.suppress(ValueError, TypeError, BufferError):
            if self._form is None:
                _put_bytes(array, self._copy)
            elif self._large is not None:
                _ordered(array).view(np.uint8).reshape(-1)[...] = self._large.view(np.uint8)
            else:
                array[...] = np.frombuffer(self._copy, array.dtype).reshape(array.shape)


def _bytes_of(array: Any) -> bytes:
    array = host(array)
    return array.tobytes() if isinstance(array, (np.ndarray, np.generic)) else bytes(array)


def _put_bytes(x: Any, copy: bytes) -> None:
    """Give what is no array of ours its bytes, and its length, again."""
    if isinstance(x, array.array):
        del x[:]
        x.frombytes(copy)
    elif isinstance(x, memoryview):
        x.cast("B")[:] = copy
    elif isinstance(x, np.void):
        (then,) = np.frombuffer(copy, x.dtype)
        for name in x.dtype.names or ():
            x[name] = then[name]
    else:
        x[:] = copy


def _ordered(array: Any) -> Any:
    """Return an array with its axes in the order in which they lie in memory."""
    if array.flags.c_contiguous:
        return array
    return np.transpose(array, sorted(range(array.ndim), key=lambda i: -abs(array.strides[i])))


def _words(array: Any) -> Any:
    """Return the bits of an array as integers; only arrays with gaps are copied."""
    array = _ordered(array)
    if not array.flags.c_contiguous:
        array = array.copy("C") if is_device(array) else np.ascontiguousarray(array)
    data = np.reshape(array, -1).view(np.uint8)
    return data.view(np.uint64) if data.size % 8 == 0 else data
