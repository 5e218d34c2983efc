"""Indices of device arrays: moved there, in range, and with NumPy's meaning of repeats."""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.device.values import on_device

if TYPE_CHECKING:
    from adarray.device.library import Library


# Whether indices that are on a device are checked, too, by a host read.
CAREFUL: ContextVar[bool] = ContextVar("adarray_careful", default=False)


def _is_array(i: Any) -> bool:
    """Whether a part of an index is an array of the host or of a device."""
    return on_device(i) or isinstance(i, np.ndarray)


def _axes_of(i: Any) -> int:
    """Return how many axes one part of an index takes."""
    if i is None or i is Ellipsis or isinstance(i, (bool, np.bool)):
        return 0
    if _is_array(i) and i.dtype == bool:
        return int(i.ndim)
    return 1


def _parts(index: Any, ndim: int) -> Iterator[tuple[Any, int]]:
    """Yield the parts of an index, lists as arrays, each with its first axis."""
    items = index if type(index) is tuple else (index,)
    parts = [_as_array(i) if isinstance(i, list) else i for i in items]
    axis, indexed = 0, sum(map(_axes_of, parts))
    for i in parts:
        yield i, axis
        axis += ndim - indexed if i is Ellipsis else _axes_of(i)


def _as_array(i: list[Any]) -> Any:
    return np.asarray(i, None if i else np.intp)


def device_index(library: Library, index: Any, shape: tuple[int, ...]) -> Any:
    """Return an index as `library` takes it.

    Raises
    ------
    IndexError
        If an array of the host points out of range, which libraries do not report; and
        where `CAREFUL` says so, if one of the device does.
    """
    kind = type(index)
    if kind is int or index is Ellipsis:
        return index
    items = []
    for i, axis in _parts(index, len(shape)):
        if on_device(i):
            if CAREFUL.get():
                _check_range(np.asarray(i.host()), axis, shape)
            items.append(bool(i) if i.scalar and i.dtype == bool else library.raw(i))
        elif isinstance(i, np.ndarray):
            _check_range(i, axis, shape)
            items.append(library.raw(i))
        elif isinstance(i, slice):
            items.append(slice(*(_whole(x) for x in (i.start, i.stop, i.step))))
        elif isinstance(i, np.generic):
            items.append(i.item())
        else:
            items.append(i)
    return tuple(items) if kind is tuple else items[0]


def _whole(x: Any) -> Any:
    return x if x is None or type(x) is int else x.__index__()


def _check_range(i: np.ndarray, axis: int, shape: tuple[int, ...]) -> None:
    if i.dtype.kind not in "iu" or not i.size or axis >= len(shape):
        return
    n = shape[axis]
    low, high = int(i.min()), int(i.max())
    if high >= n or low < -n:
        wrong = high if high >= n else low
        raise IndexError(f"index {wrong} is out of bounds for axis {axis} with size {n}")


def last_values(library: Library, raw: Any, index: Any, at: Any, value: Any) -> Any:
    """Return `value` so that an element which is written several times gets NumPy's result.

    That is the last value; a device writes in any order. Here each write gets the value of
    the last one to the same element.
    """
    if not getattr(value, "ndim", 0) or not _may_repeat(index, len(raw.shape)):
        return value
    return library.run(_last_values, library.xp, raw, at, value)


def _last_values(xp: Any, raw: Any, at: Any, value: Any) -> Any:
    """Return `value` with that of the last write to each element."""
    places = xp.arange(raw.size).reshape(raw.shape)[at]
    shape, places = places.shape, places.reshape(-1)
    if not places.size:
        return value
    whole = xp.uint32 if max(places.size, raw.size) < 1 << 32 else xp.uint64
    numbers = xp.arange(places.size, dtype=whole)
    last = xp.zeros(raw.size, whole)
    xp.maximum.at(last, places, numbers)
    values = xp.broadcast_to(value, shape).reshape(-1)
    return values[last[places]].reshape(shape)


def _may_repeat(index: Any, ndim: int) -> bool:
    """Whether an index may name an element twice: arrays of integers, if not seen to be unique."""
    arrays = [i for i, _ in _parts(index, ndim) if _is_array(i) and i.dtype.kind in "iu" and i.ndim]
    if not arrays:
        return False
    one = arrays[0]
    if len(arrays) > 1 or not isinstance(one, np.ndarray) or on_device(one):
        return True
    return bool((one < 0).any()) or np.unique(one).size < one.size
