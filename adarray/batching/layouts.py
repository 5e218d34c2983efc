"""Batching rules of operations that move elements, multiply matrices, and write at indices."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from adarray.batching.indices import as_written, batched_index, region_of
from adarray.batching.rules import BatchCall, Coupling, members
from adarray.batching.values import innermost, member_axis


def _broadcast_values(v: Any, region: tuple[int, ...], call: BatchCall) -> Any:
    raw = call.full(1) if v is None else v
    lead = len(region) + 1 - raw.ndim
    if lead > 0:
        raw = raw.reshape((call.batch.size,) + (1,) * lead + raw.shape[1:])
    return np.broadcast_to(raw, (call.batch.size, *region))


def added(call: BatchCall) -> Any:
    """Add values at an index of every member."""
    index, shape = call.params["index"], call.shape(0)
    at = batched_index(index, shape, call.batch)
    region = region_of(index, shape)
    values = as_written(_broadcast_values(None, region, call), at, region)
    return call.run(np.copy(call.full(0)), values, index=at.parts)


def _sizes(shape: Any, size: int) -> tuple[int, ...]:
    """Return a new shape with the length that -1 stands for."""
    to = (operator.index(shape),) if np.ndim(shape) == 0 else tuple(map(operator.index, shape))
    if -1 in to:
        rest = math.prod(n for n in to if n != -1)
        to = tuple(size // rest if n == -1 and rest else 0 if n == -1 else n for n in to)
    return to


def reshaped(call: BatchCall) -> Any:
    """Reshape the array of every member."""
    params = dict(call.params)
    order = params.pop("order", "C")
    size = math.prod(call.shape(0))
    to = _sizes(params.pop("shape"), size)
    if not call.only(0) or order not in ("C", "F") or math.prod(to) != size:
        return members(call)
    a = call.full(0)
    if order == "C":
        return call.run(a, shape=(call.batch.size, *to), **params)
    last = call.run(np.moveaxis(a, 0, -1), shape=(*to, call.batch.size), order="F", **params)
    return np.moveaxis(last, -1, 0)


def raveled(call: BatchCall) -> Any:
    """Return the elements of every member in a row."""
    a, n = call.full(0), call.batch.size
    if call.params.get("order", "C") == "F":
        a = np.transpose(a, (0, *range(a.ndim - 1, 0, -1)))
    return np.reshape(a, (n, math.prod(call.shape(0))))


def transposed(call: BatchCall) -> Any:
    """Permute the axes of every member."""
    axes, ndim = call.params.get("axes"), len(call.shape(0))
    to = range(ndim, 0, -1) if axes is None else member_axis(tuple(axes), ndim)
    if sorted(to) != list(range(1, ndim + 1)):
        return members(call)
    return call.run(call.full(0), axes=(0, *to))


def squeezed(call: BatchCall) -> Any:
    """Take axes of length 1 out of every member."""
    axis, shape = call.params.get("axis"), call.shape(0)
    if axis is None:
        axes: Any = tuple(k + 1 for k, n in enumerate(shape) if n == 1)
    else:
        axes = member_axis(axis, len(shape))
    return call.run(call.full(0), axis=axes)


def expanded(call: BatchCall) -> Any:
    """Give every member axes of length 1."""
    axis = call.params["axis"]
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    return call.run(call.full(0), axis=member_axis(tuple(axes), len(call.shape(0)) + len(axes)))


def spread(call: BatchCall) -> Any:
    """Broadcast the array of every member."""
    to = call.params["shape"]
    to = (to,) if np.ndim(to) == 0 else tuple(to)
    a, lead = call.full(0), len(to) - len(call.shape(0))
    if lead < 0:
        return members(call)
    a = a.reshape((call.batch.size,) + (1,) * lead + call.shape(0)) if lead else a
    return call.run(a, **{**call.params, "shape": (call.batch.size, *to)})


def flipped(call: BatchCall) -> Any:
    """Reverse axes of every member."""
    axis, ndim = call.params.get("axis"), len(call.shape(0))
    axes = tuple(range(1, ndim + 1)) if axis is None else member_axis(axis, ndim)
    return call.run(call.full(0), axis=axes)


def rolled(call: BatchCall) -> Any:
    """Shift the elements of every member in a circle."""
    axis, shape = call.params.get("axis"), call.shape(0)
    if not call.only(0):
        return members(call)
    a, shift = call.full(0), call.params["shift"]
    if axis is not None:
        return call.run(a, shift=shift, axis=member_axis(axis, len(shape)))
    flat = call.run(np.reshape(a, (call.batch.size, math.prod(shape))), shift=shift, axis=1)
    return np.reshape(flat, a.shape)


def rotated(call: BatchCall) -> Any:
    """Rotate every member in the plane of two axes."""
    axes = member_axis(tuple(call.params.get("axes", (0, 1))), len(call.shape(0)))
    return call.run(call.full(0), k=call.params.get("k", 1), axes=axes)


def triangle(call: BatchCall) -> Any:
    """Take a triangle of every member."""
    a, shape = call.full(0), call.shape(0)
    if len(shape) == 1:
        a = np.broadcast_to(a[:, None, :], (call.batch.size, *shape, *shape))
    return call.run(a, **call.params)


def diagonals(call: BatchCall) -> Any:
    """Take the diagonal of every member."""
    params, ndim = dict(call.params), len(call.shape(0))
    for name, default in (("axis1", 0), ("axis2", 1)):
        params[name] = member_axis(params.get(name, default), ndim)
    return call.run(call.full(0), **params)


def tiled(call: BatchCall) -> Any:
    """Repeat every member as a whole."""
    reps = call.params["reps"]
    reps = (reps,) if np.ndim(reps) == 0 else tuple(reps)
    shape = call.shape(0)
    most = max(len(reps), len(shape))
    a = call.full(0).reshape((call.batch.size,) + (1,) * (most - len(shape)) + shape)
    return call.run(a, reps=(1,) + (1,) * (most - len(reps)) + reps)


def windows(call: BatchCall) -> Any:
    """Return the windows of every member."""
    params, ndim = dict(call.params), len(call.shape(0))
    axis = params.get("axis")
    if axis is None:
        params["axis"] = tuple(range(1, ndim + 1))
        if np.ndim(params["window_shape"]) == 0:
            params["window_shape"] = (params["window_shape"],)
    else:
        params["axis"] = member_axis(axis, ndim)
    return call.run(call.full(0), **params)


def looked_at(call: BatchCall) -> Any:
    """Return the memory of every member as another dtype."""
    return call.run(call.full(0), **call.params) if call.shape(0) else members(call)


def joined(call: BatchCall) -> Any:
    """Join the arrays of every member."""
    params = dict(call.params)
    axis = params.pop("axis", 0)
    arrays = [call.full(i) for i in range(len(call.values))]
    if axis is None:
        arrays = [np.reshape(a, (call.batch.size, -1)) for a in arrays]
        axis = 1
    else:
        axis = member_axis(axis, len(call.shape(0)))
    return call.run(*arrays, axis=axis, **params)


def padded(call: BatchCall) -> Any:
    """Pad every member."""
    pairs = np.broadcast_to(call.params["pad_width"], (len(call.shape(0)), 2))
    width = ((0, 0), *((int(a), int(b)) for a, b in pairs))
    return call.run(call.full(0), **{**call.params, "pad_width": width})


def permuted(call: BatchCall) -> Any:
    """Bring elements of every member into another order along an axis."""
    order, axis = call.params["order"], call.params["axis"]
    ndim = len(call.shape(0))
    if call.has(order):
        order = order.raw
    else:
        order = np.broadcast_to(order, (call.batch.size, *np.shape(order)))
    return call.run(call.full(0), order=order, axis=member_axis(axis, ndim))


def multiplied(call: BatchCall) -> Any:
    """Multiply the matrices or vectors of every member."""
    x, y = call.values
    p, q = len(call.shape(0)), len(call.shape(1))
    if not p or not q:
        return members(call)  # which raises NumPy's error
    n = call.batch.size
    if not call.has(y) and p == 2 and q <= 2:
        return call.run(call.full(0), y)
    if not call.has(y) and p == q == 1:
        return call.run(call.full(0), y)
    if not call.has(y) and p == 1 and q == 2:
        return call.run(call.full(0), y)
    if not call.has(x) and p == 2 and q == 1:  # one matrix and a vector for each: one product
        return np.swapaxes(call.run(x, np.swapaxes(call.full(1), 0, 1)), 0, 1)
    a, b = call.full(0), call.full(1)
    a = a[:, None, :] if p == 1 else a
    b = b[..., None] if q == 1 else b
    rank = max(a.ndim, b.ndim)
    a = a.reshape((n,) + (1,) * (rank - a.ndim) + a.shape[1:])
    b = b.reshape((n,) + (1,) * (rank - b.ndim) + b.shape[1:])
    r = call.run(a, b)
    r = r[..., 0] if q == 1 else r
    if p == 1:
        r = r[..., 0, :] if q != 1 else r[..., 0]
    return r


def summed(call: BatchCall) -> Any:
    """Put the members' axis into the subscripts of einsum."""
    text = call.params["subscripts"]
    left, right = text.split("->")
    spare = next(c for c in map(chr, [*range(65, 91), *range(97, 123)]) if c not in text)
    terms, arrays = left.split(","), []
    for i, v in enumerate(call.values):
        if call.has(v):
            terms[i] = spare + terms[i]
            arrays.append(v.raw)
        else:
            arrays.append(v)
    return call.run(*arrays, subscripts=f"{','.join(terms)}->{spare}{right}")


def _solved(call: BatchCall) -> Any:
    """Solve the equations of every member."""
    a, vector = call.values[0], len(call.shape(1)) == 1
    if not call.has(a) and len(call.shape(0)) == 2 and len(call.shape(1)) <= 2:
        return columns(call)  # one matrix: its factors serve all members
    a, b = call.full(0), call.full(1)
    b = b[..., None] if vector else b
    rank = max(a.ndim, b.ndim)
    a = a.reshape((call.batch.size,) + (1,) * (rank - a.ndim) + a.shape[1:])
    b = b.reshape((call.batch.size,) + (1,) * (rank - b.ndim) + b.shape[1:])
    r = call.run(a, b)
    return r[..., 0] if vector else r


solved = Coupling(_solved, core=(2, 2))


def columns(call: BatchCall) -> Any:
    """Multiply or solve with one matrix for the columns of all members."""
    if not call.only(1):
        return members(call)
    k, *rest = call.shape(1)
    flat = np.reshape(np.moveaxis(call.full(1), 0, 1), (k, call.batch.size * math.prod(rest)))
    r = call.run(call.values[0], flat, **call.params)
    return np.moveaxis(np.reshape(r, (r.shape[0], call.batch.size, *rest)), 1, 0)


def interpolated(call: BatchCall) -> Any:
    """Interpolate at points of every member, all in the same table."""
    if any(call.has(v) for v in call.values[1:]) or innermost(call.params) is call.batch:
        return members(call)
    return call.run(call.full(0), *call.values[1:], **call.params)


def norms(call: BatchCall) -> Any:
    """Take the Euclidean norms of every member."""
    axis, shape = call.params.get("axis"), call.shape(0)
    keepdims = call.params.get("keepdims", False)
    a = call.full(0)
    if axis is None:
        r = call.run(np.reshape(a, (call.batch.size, math.prod(shape))), axis=1)
        return np.reshape(r, (call.batch.size,) + (1,) * len(shape)) if keepdims else r
    return call.run(a, axis=member_axis(axis, len(shape)), keepdims=keepdims)
