"""Picking and placing elements by index."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.base.aval import Symbolic
from adarray.base.op import Gather, Layout, Op, Scatter, composite, dynamic, register
from adarray.batching.layouts import added
from adarray.batching.rules import item
from adarray.core.dispatch import apply, run
from adarray.core.protocol import plain, plain_array
from adarray.device import is_device
from adarray.ops.common import Placed, in_order, s


def _parts(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_mask(i: Any) -> bool:
    return isinstance(i, (np.ndarray, Symbolic)) and i.dtype == bool


getitem = register(
    Op(
        "getitem",
        operator.getitem,
        Layout(),
        [lambda g, out, a, index: Placed(a, index, g)],
        jvp="linear",
        drops=True,
        samples=lambda rng: [
            s(rng.normal(size=(3, 4)), 1),
            s(rng.normal(size=(3, 4)), (2, -1)),
            s(rng.normal(size=(3, 4)), slice(None, None, -2)),
            s(rng.normal(size=(3, 4)), (slice(None), None, 2)),
            s(rng.normal(size=(3, 4)), (Ellipsis, slice(1, 3))),
            s(rng.normal(size=(3, 4)), np.array([0, 2, 2])),
            s(rng.normal(size=(3, 4)), (np.array([0, 2, 2]), np.array([1, 1, 1]))),
            s(rng.normal(size=(3, 4)), (slice(None), np.array([[0, 1], [1, 3]]))),
            s(rng.normal(size=(3, 4)), np.arange(12).reshape(3, 4) % 3 == 0),
            s(rng.normal(size=5), []),
        ],
        operands=("a",),
        params=("index",),
        signature="a, index",
        evaluate=lambda a, index: a[index],
        dynamic=lambda _operands, params: [i for i in _parts(params["index"]) if _is_mask(i)],
        zero_d=lambda _operand, params: any(i is Ellipsis for i in _parts(params["index"])),
        batch=item,
    )
)


def _add_at(a: Any, b: Any, index: Any) -> Any:
    if is_device(b) and not is_device(a):
        a = b.library.place(a)
    out = np.copy(a) if is_device(a) else np.array(a)
    np.add.at(out, index, b)
    return out


scatter_add = register(
    Op(
        "add.at",
        np.add.at,
        Scatter(),
        [lambda g, out, a, b, index: g, lambda g, out, a, b, index: g[index]],
        jvp=[
            lambda t, out, a, b, index: t,
            lambda t, out, a, b, index: apply_add_at(np.zeros_like(out), t, index),
        ],
        samples=lambda rng: [
            s(rng.normal(size=5), rng.normal(size=3), np.array([0, 2, 2])),
            s(rng.normal(size=(3, 4)), rng.normal(size=4), np.array([1, 1])),
        ],
        operands=("a", "b"),
        params=("index",),
        signature="a, b, index",
        evaluate=_add_at,
        batch=added,
    )
)


def apply_add_at(a: Any, b: Any, index: Any) -> Any:
    """Return `a` with `b` added at `index`, repeated indices counted."""
    if hasattr(a, "_node") or hasattr(b, "_node"):
        return apply(scatter_add, (a, b), {"index": index})
    return run(scatter_add, a, b, index=index)


def along(index: Any, axis: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the full index tuple of ``take_along_axis`` on an array of `shape`."""
    ndim = len(shape)
    axis %= ndim
    return tuple(
        index
        if i == axis
        else np.arange(shape[i]).reshape((1,) * i + (-1,) + (1,) * (ndim - i - 1))
        for i in range(ndim)
    )


@composite(np.take_along_axis)
def _take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    indices = plain_array(indices)
    if axis is None:
        arr, axis = np.ravel(arr), 0
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    arr = arr if hasattr(arr, "ndim") else np.asarray(arr)
    if arr.ndim != indices.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")
    return arr[along(indices, normalize_axis_index(axis, arr.ndim), arr.shape)]


@composite(np.take)
def _take(
    a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: Any = "raise"
) -> Any:
    a = a if hasattr(a, "ndim") else np.asarray(a)
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = normalize_axis_index(axis, a.ndim)
    indices = plain(indices)
    integers = plain_array(indices).dtype.kind in "iu"
    if mode != "raise" or not integers:
        # NumPy's modes bring indices into range, and truth values are numbers here;
        # indexing raises by itself.
        indices = np.take(np.arange(a.shape[axis]), indices, mode=mode)
    r = in_order(a[(*(slice(None),) * axis, plain_array(indices))])
    return r if out is None else np.positive(r, out=out)


dynamic(np.compress, np.extract)


@composite(np.compress)
def _compress(condition: Any, a: Any, axis: int | None = None, out: Any = None) -> Any:
    chosen = plain_array(condition)
    if chosen.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    return np.take(a, np.flatnonzero(chosen), axis=axis, out=out)


def compress_method(a: Any, condition: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the elements where `condition` holds, as the ndarray method does."""
    return np.compress(condition, a, axis=axis, out=out)


composite(compress_method)(compress_method)


@composite(np.extract)
def _extract(condition: Any, arr: Any) -> Any:
    return np.ravel(arr)[np.flatnonzero(condition)]


__all__ = ["Gather", "compress_method", "getitem", "scatter_add"]
