"""Joining arrays, splitting them, and giving several a common shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.base.op import Layout, Op, composite, register
from adarray.batching.layouts import joined
from adarray.core.dispatch import join_hook
from adarray.core.inplace import plain_value
from adarray.core.protocol import plain
from adarray.core.trace import Handle, extras
from adarray.ops import creation
from adarray.ops.borrow import borrow
from adarray.ops.common import newer, normalized_axes, s, zeros_beside


def _concatenate_vjp(
    g: Any, i: int, out: Any, *arrays: Any, axis: int | None = 0, **params: Any
) -> Any:
    if axis is None:
        start = sum(a.size for a in arrays[:i])
        return np.reshape(g[start : start + arrays[i].size], arrays[i].shape)
    at = axis % g.ndim
    start = sum(a.shape[at] for a in arrays[:i])
    return g[(slice(None),) * at + (slice(start, start + arrays[i].shape[at]),)]


def _concatenate_jvp(t: Any, i: int, out: Any, *arrays: Any, **params: Any) -> Any:
    beside = plain_value(t)
    parts = [t if j == i else zeros_beside(beside, a.shape, a.dtype) for j, a in enumerate(arrays)]
    return np.concatenate(parts, **params)


concatenate = register(
    Op(
        "concatenate",
        np.concatenate,
        Layout(),
        [_concatenate_vjp],
        jvp=[_concatenate_jvp],
        samples=lambda rng: [
            s([rng.normal(size=(2, 3)), rng.normal(size=(1, 3))]),
            s([rng.normal(size=(2, 3)), rng.normal(size=(2, 1)), np.zeros((2, 0))], axis=-1),
            s([rng.normal(size=(2, 3)), rng.normal(size=2)], axis=None),
        ],
        operands=("*arrays",),
        params=("axis", "dtype", "casting"),
        batch=joined,
        signature="arrays, /, axis=0, out=None, *, dtype=None, casting='same_kind'",
        aliases=(np.concat,) if np.concat is not np.concatenate else (),
    )
)


def _joined(x: Any, dtype: Any) -> Any:
    return creation.asarray(x, dtype) if type(x) is list or type(x) is tuple else x


join_hook.set(_joined)


def _as_arrays(arrays: Any) -> list[Any]:
    return [a if hasattr(a, "ndim") else creation.asanyarray(a) for a in arrays]


@composite(np.stack)
def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    arrays = _as_arrays(arrays)
    if not arrays:
        raise ValueError("need at least one array to stack")
    if len({a.shape for a in arrays}) != 1:
        raise ValueError("all input arrays must have the same shape")
    (at,) = normalized_axes(axis, arrays[0].ndim + 1)
    parts = [np.expand_dims(a, at) for a in arrays]
    return np.concatenate(parts, axis=at, out=out, dtype=dtype, casting=casting)


@composite(np.atleast_1d)
def _atleast_1d(*arrays: Any) -> Any:
    out = tuple(a if a.ndim >= 1 else np.reshape(a, (1,)) for a in _as_arrays(arrays))
    return out[0] if len(out) == 1 else out


@composite(np.atleast_2d)
def _atleast_2d(*arrays: Any) -> Any:
    out = tuple(
        a if a.ndim >= 2 else np.reshape(a, (1, 1) if a.ndim == 0 else (1, a.shape[0]))
        for a in _as_arrays(arrays)
    )
    return out[0] if len(out) == 1 else out


@composite(np.atleast_3d)
def _atleast_3d(*arrays: Any) -> Any:
    out = tuple(
        a
        if a.ndim >= 3
        else np.reshape(a, {0: (1, 1, 1), 1: (1, a.size, 1), 2: (*a.shape, 1)}[a.ndim])
        for a in _as_arrays(arrays)
    )
    return out[0] if len(out) == 1 else out


@composite(np.vstack)
def _vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = [np.atleast_2d(a) for a in _as_arrays(tup)]
    return np.concatenate(arrays, axis=0, dtype=dtype, casting=casting)


@composite(np.hstack)
def _hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    arrays = [np.atleast_1d(a) for a in _as_arrays(tup)]
    axis = 0 if arrays and arrays[0].ndim == 1 else 1
    return np.concatenate(arrays, axis=axis, dtype=dtype, casting=casting)


@composite(np.dstack)
def _dstack(tup: Any) -> Any:
    return np.concatenate([np.atleast_3d(a) for a in _as_arrays(tup)], axis=2)


@composite(np.column_stack)
def _column_stack(tup: Any) -> Any:
    arrays = [a if a.ndim > 1 else np.reshape(a, (-1, 1)) for a in _as_arrays(tup)]
    return np.concatenate(arrays, axis=1)


@composite(np.append)
def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    # NumPy makes arrays of Python's numbers: their dtype does not yield.
    return np.concatenate([creation.asanyarray(a) for a in (arr, values)], axis=axis)


@composite(np.broadcast_arrays)
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    arrays = _as_arrays(args)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    # Those that have the shape are returned themselves, for writing, too.
    return tuple(a if a.shape == shape != () else _shared(a, shape) for a in arrays)


def _shared(a: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast an array. NumPy's may be written into, with a warning; ours may not."""
    view = np.broadcast_to(a, shape)
    if isinstance(view, Handle):
        extras(
            view
        ).peers = "elements that np.broadcast_arrays spread share their memory; write into a copy"
    return view


def _pieces(function: Any, ary: Any, indices_or_sections: Any, axis: int) -> Any:
    """Slice `ary` where NumPy splits the positions along the axis."""
    ary = ary if hasattr(ary, "ndim") else np.asarray(ary)
    at = normalize_axis_index(axis, ary.ndim)
    lead = (slice(None),) * at
    parts = function(np.arange(ary.shape[at]), plain(indices_or_sections))
    return [
        ary[(*lead, slice(int(p[0]), int(p[-1]) + 1) if len(p) else slice(0, 0))] for p in parts
    ]


@composite(np.array_split)
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _pieces(np.array_split, ary, indices_or_sections, axis)


@composite(np.split)
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _pieces(np.split, ary, indices_or_sections, axis)


borrow(np.hsplit, np.vsplit, np.dsplit, views=True)


@composite(*newer("unstack"))
def _unstack(x: Any, /, *, axis: int = 0) -> Any:
    moved = np.moveaxis(x, axis, 0)
    return tuple(moved[i] for i in range(moved.shape[0]))


borrow(np.block, np.insert)
