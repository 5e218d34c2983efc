"""NumPy functions that write into their first argument.

Into an ADArray they work as the item assignments that they stand for; a traced
value written into a plain ndarray would be lost, and is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.refusals import leaves_graph
from adarray.op import composite
from adarray.protocol import plain, traced
from adarray.trace import Handle


def _target(name: str, function: Any, target: Any, values: Any, *args: Any) -> bool:
    """Return whether to write item by item; plain values go into plain arrays by NumPy.

    Raises
    ------
    TraceError
        If the target is plain and a value is traced.
    """
    if isinstance(target, Handle):
        return True
    if traced(values):
        raise leaves_graph(
            f"{name} into a plain ndarray of shape {np.shape(target)}",
            "make the array with np.zeros_like(x) or another function of a traced array",
        )
    function(target, *plain(args))
    return False


@composite(np.copyto)
def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not _target("copyto", np.copyto, dst, src, src, casting, where):
        return
    source: Any = src if isinstance(src, Handle) else np.asarray(src)
    if not np.can_cast(source.dtype, dst.dtype, casting):
        raise TypeError(
            f"Cannot cast array data from {source.dtype} to {dst.dtype} "
            f"according to the rule '{casting}'"
        )
    if where is True:
        dst[...] = source
    else:
        mask = np.broadcast_to(plain(where), np.shape(dst))
        dst[mask] = np.broadcast_to(source, np.shape(dst))[mask]


@composite(np.put)
def _put(a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    if not _target("put", np.put, a, v, ind, v, mode):
        return
    ind = np.ravel(np.asarray(plain(ind)))
    if mode == "wrap":
        ind = ind % a.size
    elif mode == "clip":
        ind = np.clip(ind, 0, a.size - 1)
    v = np.ravel(v)
    if v.shape[0] != ind.size:  # NumPy repeats or cuts the values
        v = v[np.arange(ind.size) % v.shape[0]]
    a[np.unravel_index(np.where(ind < 0, ind + a.size, ind), a.shape)] = v


@composite(np.place)
def _place(arr: Any, mask: Any, vals: Any) -> None:
    if _target("place", np.place, arr, vals, mask, vals):
        positions = np.flatnonzero(plain(mask))
        np.put(arr, positions, vals)


@composite(np.putmask)
def _putmask(a: Any, mask: Any, values: Any) -> None:
    if _target("putmask", np.putmask, a, values, mask, values):
        positions = np.flatnonzero(plain(mask))
        values = np.ravel(values)
        np.put(a, positions, values[positions % values.shape[0]])


@composite(np.put_along_axis)
def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int | None = -1) -> None:
    if not _target("put_along_axis", np.put_along_axis, arr, values, indices, values, axis):
        return
    from adarray.ops.indexing import along

    indices = np.asarray(plain(indices))
    if axis is None:
        arr[np.unravel_index(indices, arr.shape)] = values
    else:
        arr[along(indices, axis, arr.shape)] = values


@composite(np.fill_diagonal)
def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    if not _target("fill_diagonal", np.fill_diagonal, a, val, val, wrap):
        return
    numbers = np.zeros(a.shape, bool)
    np.fill_diagonal(numbers, True, wrap)
    positions = np.nonzero(numbers)
    val = np.ravel(val)
    a[positions] = val[np.arange(len(positions[0])) % val.shape[0]]


def fill(a: Any, value: Any) -> None:
    """Write `value` into every element of `a`, as the ndarray method does."""
    a[...] = value


composite(fill)(fill)
