"""Methods of ufuncs on traced arrays: reduce, accumulate, reduceat, at, and ``axes=``.

Sums, products and extrema have records of their own. Any other ufunc is folded over
the elements, one recorded call for each, which gives NumPy's values in NumPy's order.
NumPy itself runs first where a call has many arguments: it checks them, raises its own
errors and says what the result looks like.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import TraceError
from adarray.base.op import FUNCTIONS, Op, Opaque, composite, register
from adarray.batching.rules import along
from adarray.core.dispatch import apply
from adarray.core.inplace import assign, plain_index, sync_if_view
from adarray.core.protocol import (
    UFUNC_METHODS,
    call_function,
    call_ufunc,
    followed,
    plain,
    plain_array,
    traced,
)
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle
from adarray.ops.common import keep, normalized_axes, s, weighted

_REDUCE: dict[Any, Any] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
}
_ACCUMULATE: dict[Any, Any] = {np.add: np.cumsum, np.multiply: np.cumprod}
_EXTREMA = (np.maximum, np.minimum, np.fmax, np.fmin)


def _as_array(x: Any) -> Any:
    return x if hasattr(x, "ndim") else np.asarray(x)


def _by_numpy(method: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what NumPy makes of the plain values, without its floating point warnings."""
    with np.errstate(all="ignore"):
        return method(*map(plain, args), **{k: plain(v) for k, v in kwargs.items()})


def _constant(value: Any) -> Any:
    return Handle.array_class(value)


# -- reduce ------------------------------------------------------------------------------------


def _reduce(
    ufunc: Any,
    x: Any,
    axis: Any = 0,
    dtype: Any = None,
    keepdims: bool = False,
    initial: Any = np._NoValue,
    where: Any = True,
) -> Any:
    """``ufunc.reduce``: by its record where there is one, else by a fold."""
    x = _as_array(x)
    function = _REDUCE.get(ufunc)
    record = _WEIGHTED.get(ufunc)
    if (function is record is None) or traced(initial) or not isinstance(x, Handle):
        return _fold(ufunc, x, axis, dtype, keepdims, initial, where)
    if record is not None:
        x = x if dtype is None else call_function(np.astype, (x, np.dtype(dtype)), {})
        params: dict[str, Any] = {"axis": axis, "keepdims": bool(keepdims)}
        if initial is not np._NoValue:
            params["initial"] = initial
        if where is not True:
            params["where"] = np.array(plain(where))  # the rule reads it later
        return apply(record, (x,), params)
    options: dict[str, Any] = {"axis": axis, "keepdims": bool(keepdims)}
    if dtype is not None:
        if function in (np.sum, np.prod):
            options["dtype"] = dtype
        else:
            x = call_function(np.astype, (x, np.dtype(dtype)), {})
    if initial is None:  # no identity is used: NumPy raises if there is nothing to reduce
        _by_numpy(ufunc.reduce, x, axis=axis, initial=None, where=where)
    elif initial is not np._NoValue:
        options["initial"] = initial
    if where is not True:
        options["where"] = where
    assert function is not None
    return call_function(function, (x,), options)


def _fold(
    ufunc: Any, x: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any
) -> Any:
    """Fold `ufunc` over axes, one recorded call for each element along them."""
    options: dict[str, Any] = {"axis": axis, "dtype": dtype, "keepdims": keepdims}
    if initial is not np._NoValue:
        options["initial"] = initial
    if where is not True:
        options["where"] = where
    expected = _by_numpy(ufunc.reduce, x, **options)
    if expected.dtype.kind not in "fc":
        return _constant(expected)
    x = x if x.dtype == expected.dtype else np.astype(x, expected.dtype)
    axes = normalized_axes(axis, x.ndim)
    items, rest = _items(x, axes)
    masks: Any = None
    if where is not True:
        masks, _ = _items(np.broadcast_to(plain_array(where), x.shape), axes)
    start = 0
    if initial is not np._NoValue and initial is not None:
        total = np.broadcast_to(initial, rest)
        total = total.astype(expected.dtype) if hasattr(total, "astype") else total
    elif masks is None and len(items):
        total, start = items[0], 1
    else:
        total = np.full(rest, ufunc.identity, expected.dtype)[()]
    for i in range(start, len(items)):
        total = _step(ufunc, total, items[i], None if masks is None else masks[i])
    if not isinstance(total, Handle):
        total = _constant(total)
    return np.reshape(total, expected.shape)


def _items(x: Any, axes: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return the array with `axes` joined in front, and the shape of one of its items."""
    rest = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    moved = np.moveaxis(x, axes, tuple(range(len(axes))))
    count = int(np.prod([x.shape[i] for i in axes], dtype=int))
    return np.reshape(moved, (count, *rest)), rest


def _step(ufunc: Any, total: Any, item: Any, mask: Any) -> Any:
    """Return ``ufunc(total, item)`` where `mask` holds and `total` elsewhere."""
    if mask is None:
        return ufunc(total, item)
    if not np.ndim(mask):
        return ufunc(total, item) if mask else total
    out = total.copy() if hasattr(total, "_node") else _constant(np.array(total))
    return ufunc(total, item, out=out, where=mask)


# Reductions whose derivative is one weight for each element.


def _chosen_weights(a: Any, out: Any, axis: Any, initial: Any, where: Any) -> Any:
    """Weight 1/k on each of the k elements, or the initial value, that equal the extremum."""
    mask = ((a == out) & where) * np.ones((), a.dtype)
    count = np.sum(mask, axis=axis, keepdims=True)
    if initial is not np._NoValue and initial is not None:
        count = count + (out == initial)
    return mask / (count + (count == 0))


def _softmax(exp: Any) -> Any:
    """Return weights ``exp(a - out)``; where all is infinite they are nan or 0 in `exp`."""

    def weights(a: Any, out: Any, axis: Any, initial: Any, where: Any) -> Any:
        return np.where(where, exp(a - np.where(np.isneginf(out), 0.0, out)), 0.0)

    return weights


def _hypot_weights(a: Any, out: Any, axis: Any, initial: Any, where: Any) -> Any:
    return np.where(where, a / (out + (out == 0)), 0.0)


def _weighted(ufunc: Any, weights: Any, note: str) -> Op:
    """Register ``ufunc.reduce``, whose derivative with respect to an element is its weight."""

    def reduce(a: Any, axis: Any = 0, **options: Any) -> Any:
        return ufunc.reduce(a, axis, **options)

    def of(out: Any, a: Any, axis: Any, initial: Any, where: Any) -> Any:
        return weights(a, keep(out, a.shape, axis), axis, initial, where)

    def vjp(
        g: Any,
        out: Any,
        a: Any,
        axis: Any = 0,
        keepdims: bool = False,
        initial: Any = np._NoValue,
        where: Any = True,
    ) -> Any:
        return keep(g, a.shape, axis) * of(out, a, axis, initial, where)

    def jvp(
        t: Any,
        out: Any,
        a: Any,
        axis: Any = 0,
        keepdims: bool = False,
        initial: Any = np._NoValue,
        where: Any = True,
    ) -> Any:
        moved = weighted(t, of(out, a, axis, initial, where))
        return np.sum(moved, axis=axis, keepdims=keepdims)

    return register(
        Op(
            f"{ufunc.__name__}.reduce",
            reduce,
            Opaque(),
            [vjp],
            jvp=[jvp],
            drops=True,
            samples=_weighted_samples,
            operands=("a",),
            params=("axis", "keepdims", "initial", "where"),
            batch=along("all", default=0),
            signature="a, axis=0, keepdims=False, initial=_, where=True",
            note=note,
        )
    )


def _weighted_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    return [
        s(x),
        s(x, axis=1, keepdims=True),
        s(rng.normal(size=(2, 3, 4)), axis=(0, 2)),
        s(x, axis=None, initial=0.3),
        s(x, axis=1, initial=0.1, where=np.arange(12).reshape(3, 4) % 3 > 0),
        s(rng.normal(size=(1, 3)), axis=0),
    ]


_WEIGHTED: dict[Any, Op] = {
    np.logaddexp: _weighted(np.logaddexp, _softmax(np.exp), ""),
    np.logaddexp2: _weighted(np.logaddexp2, _softmax(np.exp2), ""),
    np.hypot: _weighted(np.hypot, _hypot_weights, "0 at the origin"),
    np.fmax: _weighted(np.fmax, _chosen_weights, "ties share the derivative equally"),
    np.fmin: _weighted(np.fmin, _chosen_weights, "ties share the derivative equally"),
}


# -- accumulate --------------------------------------------------------------------------------


def _accumulate(ufunc: Any, x: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``ufunc.accumulate``; of equal extrema, the one that came first has the derivative."""
    x = _as_array(x)
    if ufunc in _ACCUMULATE and x.ndim and isinstance(axis, (int, np.integer)):
        return call_function(_ACCUMULATE[ufunc], (x,), {"axis": axis, "dtype": dtype})
    expected = _by_numpy(ufunc.accumulate, x, axis=axis, dtype=dtype)
    if expected.dtype.kind not in "fc":
        return _constant(expected)
    x = x if x.dtype == expected.dtype else np.astype(x, expected.dtype)
    (at,) = normalized_axes(axis, x.ndim)
    if ufunc in _EXTREMA:
        return np.take_along_axis(x, _record_setters(expected, at), at)
    items, _ = _items(x, (at,))
    if not len(items):
        return x
    running = [items[0]]
    for i in range(1, len(items)):
        running.append(ufunc(running[-1], items[i]))
    return np.stack(running, axis=at)


def _record_setters(running: Any, axis: int) -> Any:
    """Return the position along `axis` of the element that each running extremum is."""
    n = running.shape[axis]
    lead = (slice(None),) * axis
    now, before = running[(*lead, slice(1, None))], running[(*lead, slice(None, -1))]
    changed = (now != before) & ~(np.isnan(now) & np.isnan(before))
    shape = tuple(max(n - 1, 0) if i == axis else 1 for i in range(running.ndim))
    first = np.zeros([min(n, 1) if i == axis else k for i, k in enumerate(running.shape)], np.intp)
    later = changed * np.arange(1, max(n, 1)).reshape(shape)
    return np.maximum.accumulate(np.concatenate([first, later], axis), axis)


# -- reduceat ----------------------------------------------------------------------------------


def _reduceat(ufunc: Any, x: Any, indices: Any, axis: Any = 0, dtype: Any = None) -> Any:
    """``ufunc.reduceat``: the elements are gathered, segment after segment, then reduced."""
    x = _as_array(x)
    indices = plain_array(indices)
    expected = _by_numpy(ufunc.reduceat, x, indices, axis=axis, dtype=dtype)
    if expected.dtype.kind not in "fc":
        return _constant(expected)
    x = x if x.dtype == expected.dtype else np.astype(x, expected.dtype)
    (at,) = normalized_axes(axis, x.ndim)
    lead = (slice(None),) * at
    n = x.shape[at]
    ends = np.append(indices[1:], n)
    lengths = np.where(indices < ends, ends - indices, 1)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.intp)
    positions = np.arange(lengths.sum()) + np.repeat(indices - starts, lengths)
    y = x[(*lead, positions)]
    op = _SEGMENTS.get(ufunc)
    if op is not None and len(indices):
        return apply(op, (y,), {"starts": starts, "axis": at})
    if not len(indices):
        return y
    stops = starts + lengths
    parts = [
        # A segment of one element is that element: no identity takes part.
        y[(*lead, a)] if b == a + 1 else _reduce(ufunc, y[(*lead, slice(a, b))], axis=at)
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    return np.stack(parts, axis=at)


def _lengths(n: int, starts: Any) -> Any:
    return np.diff(np.append(starts, n))


def _spread(g: Any, a: Any, starts: Any, axis: int) -> Any:
    """Give every element the value of its segment."""
    return np.repeat(g, _lengths(a.shape[axis], starts), axis=axis)


def _segment_weights(a: Any, out: Any, starts: Any, axis: int) -> Any:
    """Weight 1/k on each of the k elements of a segment that equal its extremum."""
    mask = (a == _spread(out, a, starts, axis)) * np.ones((), a.dtype)
    count = np.add.reduceat(mask, starts, axis=axis)
    return mask / _spread(count, a, starts, axis)


def _segment_samples(rng: np.random.Generator) -> list[Any]:
    return [
        s(rng.normal(size=7), np.array([0, 2, 3]), axis=0),
        s(rng.normal(size=(3, 5)), np.array([0, 1, 4]), axis=1),
        s(rng.normal(size=(6, 2)), np.array([0]), axis=0),
    ]


def _segment_op(ufunc: Any, vjp: Any, jvp: Any, note: str = "") -> Op:
    """Register the reduction of segments that follow each other without gaps."""

    def reduce_segments(a: Any, starts: Any, axis: int = 0) -> Any:
        return ufunc.reduceat(a, starts, axis=axis)

    return register(
        Op(
            f"{ufunc.__name__}.reduceat",
            reduce_segments,
            Opaque(),
            [vjp],
            jvp=jvp,
            drops=ufunc is not np.add,
            samples=_segment_samples,
            operands=("a",),
            params=("starts", "axis"),
            batch=along("all", default=0),
            note=note,
        )
    )


def _add_segments_vjp(g: Any, out: Any, a: Any, starts: Any, axis: int = 0) -> Any:
    return _spread(g, a, starts, axis)


def _extremum_segments_vjp(g: Any, out: Any, a: Any, starts: Any, axis: int = 0) -> Any:
    return _spread(g, a, starts, axis) * _segment_weights(a, out, starts, axis)


def _extremum_segments_jvp(t: Any, out: Any, a: Any, starts: Any, axis: int = 0) -> Any:
    moved = weighted(t, _segment_weights(a, out, starts, axis))
    return np.add.reduceat(moved, starts, axis=axis)


_TIES = "ties share the derivative equally"
_SEGMENTS: dict[Any, Op] = {
    np.add: _segment_op(np.add, _add_segments_vjp, "linear"),
    np.maximum: _segment_op(
        np.maximum, _extremum_segments_vjp, [_extremum_segments_jvp], note=_TIES
    ),
    np.minimum: _segment_op(
        np.minimum, _extremum_segments_vjp, [_extremum_segments_jvp], note=_TIES
    ),
}


# -- at ----------------------------------------------------------------------------------------


def _at(ufunc: Any, target: Any, index: Any, *values: Any) -> None:
    """``ufunc.at``: in place, an element that is named several times is changed each time."""
    if not hasattr(target, "_node"):
        if traced(values):
            raise leaves_graph(
                f"{ufunc.__name__}.at into a plain ndarray",
                "make the array with np.zeros_like(x) or another function of a traced array",
            )
        ufunc.at(target, *plain((index, *values)))
        return
    if not target.flags.writeable:
        raise TraceError(
            f"{ufunc.__name__}.at: the array is read-only, and NumPy writes into it nevertheless; "
            "write into a copy"
        )
    if not (followed(target) or followed(values) or followed(index)):
        fresh = np.array(sync_if_view(target)._plain)
        ufunc.at(fresh, *plain((index, *values)))
        assign(target, type(target)(fresh))
        return
    index = plain_index(index)
    if ufunc in (np.add, np.subtract) and target.dtype.kind in "fc" and len(values) == 1:
        (value,) = values
        value = np.negative(value) if ufunc is np.subtract else value
        assign(target, apply(FUNCTIONS[np.add.at], (target, value), {"index": index}))
        return
    _by_numpy(ufunc.at, np.array(plain(target)), index, *values)  # raises NumPy's errors
    _at_in_rounds(ufunc, target, index, values)


def _at_in_rounds(ufunc: Any, target: Any, index: Any, values: tuple[Any, ...]) -> None:
    """Change every named element once in each round, as often as it is named."""
    numbers = np.arange(target.size).reshape(target.shape)[index]
    flat = np.ravel(numbers)
    values = tuple(np.reshape(np.broadcast_to(v, np.shape(numbers)), (-1,)) for v in values)
    # The k-th occurrence of an element belongs to round k.
    order = np.argsort(flat, kind="stable")
    grouped = flat[order]
    first = np.searchsorted(grouped, grouped, side="left")
    rounds = np.empty(len(flat), np.intp)
    rounds[order] = np.arange(len(flat)) - first
    for k in range(int(rounds.max(initial=-1)) + 1):
        chosen = np.flatnonzero(rounds == k)
        where = np.unravel_index(flat[chosen], target.shape) if target.ndim else ()
        picked = tuple(v[chosen] if target.ndim else v[chosen][0] for v in values)
        target[where] = ufunc(target[where], *picked)


# -- generalized ufuncs ------------------------------------------------------------------------


def _core_axes(
    ufunc: Any,
    *inputs: Any,
    axes: Any = None,
    axis: Any = None,
    keepdims: bool = False,
    **kwargs: Any,
) -> Any:
    """``axes=``, ``axis=`` and ``keepdims=`` of matmul, vecdot, matvec, vecmat and others."""
    options: dict[str, Any] = {} if axes is None else {"axes": axes}
    if axis is not None:
        options["axis"] = axis
    if keepdims:
        options["keepdims"] = keepdims
    arrays = tuple(_as_array(x) for x in inputs)
    _by_numpy(ufunc, *arrays, **options, **kwargs)  # raises NumPy's errors
    listed = [(axis,)] * ufunc.nin if axis is not None else list(axes or ())
    listed = [a if isinstance(a, (tuple, list)) else (a,) for a in listed]
    core = listed[: ufunc.nin] or [()] * ufunc.nin
    if not listed and keepdims:
        core = [(-1,)] * ufunc.nin
    moved = tuple(
        np.moveaxis(x, tuple(a), tuple(range(-len(a), 0))) if a else x
        for x, a in zip(arrays, core, strict=True)
    )
    r = call_ufunc(ufunc, "__call__", moved, kwargs)
    if len(listed) > ufunc.nin and not keepdims:
        to = tuple(listed[ufunc.nin])
        return np.moveaxis(r, tuple(range(-len(to), 0)), to) if to else r
    if not keepdims:
        return r
    to = tuple(listed[ufunc.nin]) if len(listed) > ufunc.nin else tuple(core[0])
    return np.expand_dims(r, to)


UFUNC_METHODS.update(
    reduce=_reduce, accumulate=_accumulate, reduceat=_reduceat, at=_at, core_axes=_core_axes
)


# -- the ufunc behind ndarray.clip -------------------------------------------------------------


def _clip(x: Any, low: Any, high: Any, /) -> Any:
    """Bound `x`, of which `low` or `high` may be the traced one: ``plain.clip(0, traced)``."""
    return np.clip(x, low, high)


composite(np._core.umath.clip)(_clip)  # type: ignore[attr-defined]


# -- several results ---------------------------------------------------------------------------


@composite(np.frexp)
def _frexp(x: Any, /) -> Any:
    """``np.frexp``: the mantissa is x times a power of 2 that is constant in between."""
    exponent = np.frexp(plain(x))[1]
    return np.ldexp(x, -exponent), _constant(exponent)
