"""Reductions over axes, and running folds."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.op import Op, Opaque, Reduction, Scan, composite, register
from adarray.ops.common import composite_if_traced, keep, normalized_axes, s


def _axes_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    y = rng.normal(size=(2, 3, 4))
    return [
        s(x),
        s(x, axis=0),
        s(x, axis=1, keepdims=True),
        s(y, axis=(0, 2)),
        s(y, axis=(-1, 1), keepdims=True),
        s(y.transpose(2, 0, 1)[::-1], axis=1),
        s(rng.normal(size=5)),
        s(np.float64(0.7)),
        s(rng.normal(size=(1, 1)), axis=0),
        s(rng.normal(size=(3, 1, 2)), axis=1),
    ]


def _count(shape: tuple[int, ...], axis: Any) -> int:
    n = 1
    for a in normalized_axes(axis, len(shape)):
        n *= shape[a]
    return n


# Elements up to which filling an array is cheaper than NumPy's making of a broadcast view.
_SMALL = 4096


def _spread(g: Any, out: Any, a: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> Any:
    g = keep(g, a.shape, axis)
    if a.size <= _SMALL and isinstance(g, (np.ndarray, np.generic)):
        back = np.empty(a.shape, g.dtype)
        back[...] = g
        return back
    return np.broadcast_to(g, a.shape)


sum_ = register(
    Op(
        "sum",
        np.sum,
        Reduction("add", 0.0),
        [_spread],
        jvp="linear",
        samples=lambda rng: [*_axes_samples(rng), s(np.zeros((0, 3)), axis=0), s(np.zeros(0))],
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("sum",),
    )
)


def _mean_vjp(g: Any, out: Any, a: Any, axis: Any = None, **kw: Any) -> Any:
    return _spread(g / _count(a.shape, axis), out, a, axis)


mean = register(
    Op(
        "mean",
        np.mean,
        Reduction("add", 0.0, post=lambda acc, n: acc / n),
        [_mean_vjp],
        jvp="linear",
        samples=_axes_samples,
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("mean",),
    )
)


def _ties(a: Any, out: Any, axis: Any) -> Any:
    """Weight 1/k on each of the k elements that equal the extremum."""
    mask = a == keep(out, a.shape, axis)
    return mask / np.sum(mask, axis=axis, keepdims=True, dtype=a.dtype)


def _extremum_vjp(g: Any, out: Any, a: Any, axis: Any = None, **_: Any) -> Any:
    return keep(g, a.shape, axis) * _ties(a, out, axis)


def _extremum_jvp(t: Any, out: Any, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(t * _ties(a, out, axis), axis=axis, keepdims=keepdims)


for _name, _function, _alias in (("max", np.max, np.amax), ("min", np.min, np.amin)):
    register(
        Op(
            _name,
            _function,
            Reduction(f"{_name}imum", None),
            [_extremum_vjp],
            jvp=[_extremum_jvp],
            samples=_axes_samples,
            operands=("a",),
            params=("axis", "keepdims"),
            aliases=(_alias,) if _alias is not _function else (),
            methods=(_name,),
            note="ties share the derivative equally",
        )
    )


def _others(a: Any, axis: Any) -> Any:
    """Product of the other elements along `axis`, exact where some are zero."""
    shape = a.shape
    axes = normalized_axes(axis, len(shape))
    rest = tuple(i for i in range(len(shape)) if i not in axes)
    moved = np.transpose(a, rest + axes)
    flat = np.reshape(moved, (*(shape[i] for i in rest), -1))
    one = np.ones_like(flat[..., :1])
    before = np.cumprod(np.concatenate([one, flat[..., :-1]], axis=-1), axis=-1)
    behind = np.concatenate([one, np.flip(flat, -1)[..., :-1]], axis=-1)
    after = np.flip(np.cumprod(behind, axis=-1), -1)
    back = np.reshape(before * after, moved.shape)
    return np.transpose(back, tuple(int(i) for i in np.argsort(rest + axes)))


def _prod_vjp(g: Any, out: Any, a: Any, axis: Any = None, **_: Any) -> Any:
    return keep(g, a.shape, axis) * _others(a, axis) if a.size else np.zeros_like(a)


def _prod_jvp(
    t: Any, out: Any, a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None
) -> Any:
    if not a.size:
        return np.zeros_like(out)
    return np.sum(t * _others(a, axis), axis=axis, keepdims=keepdims, dtype=dtype)


prod = register(
    Op(
        "prod",
        np.prod,
        Reduction("multiply", 1.0),
        [_prod_vjp],
        jvp=[_prod_jvp],
        samples=lambda rng: [*_axes_samples(rng), s(np.array([2.0, 0.0, 3.0]))],
        operands=("a",),
        params=("axis", "dtype", "keepdims"),
        methods=("prod",),
        note="exact where elements are 0",
    )
)


def _deviation(a: Any, axis: Any) -> Any:
    return a - np.mean(a, axis=axis, keepdims=True)


def _free(a: Any, axis: Any, ddof: float, correction: Any) -> float:
    return _count(a.shape, axis) - (ddof if correction is None else correction)


def _var_vjp(
    g: Any, out: Any, a: Any, axis: Any = None, ddof: float = 0, correction: Any = None, **_: Any
) -> Any:
    scale = 2.0 / _free(a, axis, ddof, correction)
    return keep(g, a.shape, axis) * _deviation(a, axis) * scale


def _var_jvp(
    t: Any,
    out: Any,
    a: Any,
    axis: Any = None,
    ddof: float = 0,
    correction: Any = None,
    keepdims: bool = False,
    **_: Any,
) -> Any:
    scale = 2.0 / _free(a, axis, ddof, correction)
    return np.sum(t * _deviation(a, axis), axis=axis, keepdims=keepdims) * scale


def _std_vjp(g: Any, out: Any, a: Any, axis: Any = None, **kw: Any) -> Any:
    # 0 where the deviation is 0: a subgradient of this norm.
    return _var_vjp(g * 0.5 / (out + (out == 0)), out, a, axis, **kw)


def _std_jvp(t: Any, out: Any, a: Any, axis: Any = None, **kw: Any) -> Any:
    return _var_jvp(t, out, a, axis, **kw) * 0.5 / (out + (out == 0))


def _spread_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    return [
        s(x),
        s(x, axis=0),
        s(x, axis=1, keepdims=True, ddof=1),
        s(rng.normal(size=(2, 3, 4)), axis=(0, 2)),
        s(x.T[::-1], axis=0, correction=1),
        s(rng.normal(size=5)),
    ]


var = register(
    Op(
        "var",
        np.var,
        Opaque(),
        [_var_vjp],
        jvp=[_var_jvp],
        samples=_spread_samples,
        operands=("a",),
        params=("axis", "dtype", "ddof", "keepdims", "correction"),
        methods=("var",),
    )
)
std = register(
    Op(
        "std",
        np.std,
        Opaque(),
        [_std_vjp],
        jvp=[_std_jvp],
        samples=_spread_samples,
        operands=("a",),
        params=("axis", "dtype", "ddof", "keepdims", "correction"),
        methods=("std",),
        note="0 where the deviation is 0",
    )
)


@composite(np.ptp)
def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    keepdims = False if keepdims is np._NoValue else keepdims
    r = np.max(a, axis=axis, keepdims=keepdims) - np.min(a, axis=axis, keepdims=keepdims)
    return r if out is None else np.positive(r, out=out)


@composite_if_traced(np.average)
def _average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = False
) -> Any:
    keepdims = False if keepdims is np._NoValue else keepdims
    if weights is None:
        r = np.mean(a, axis=axis, keepdims=keepdims)
        total: Any = np.float64(_count(a.shape, axis))
    else:
        a = a if hasattr(a, "ndim") else np.asarray(a)
        weights = _as_weights(a, axis, weights)
        total = np.sum(weights, axis=axis, keepdims=keepdims)
        if np.any(np.equal(total, 0)):
            raise ZeroDivisionError("Weights sum to zero, can't be normalized")
        r = np.sum(a * weights, axis=axis, keepdims=keepdims) / total
    return (r, np.broadcast_to(total, r.shape) + r * 0) if returned else r


def _as_weights(a: Any, axis: Any, weights: Any) -> Any:
    """Return the weights of an average in the shape of `a`."""
    weights = weights if hasattr(weights, "ndim") else np.asarray(weights)
    if weights.shape == a.shape:
        return weights
    axes = normalized_axes(axis, a.ndim)
    if axis is None or weights.shape != tuple(a.shape[i] for i in axes):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    moved = np.transpose(weights, tuple(int(i) for i in np.argsort(axes)))
    shape = tuple(n if i in axes else 1 for i, n in enumerate(a.shape))
    return np.broadcast_to(np.reshape(moved, shape), a.shape)


# -- running folds -----------------------------------------------------------------------------


def _scan_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    return [s(x), s(x, axis=0), s(x.T[:, ::-1], axis=-1), s(rng.normal(size=5)), s(np.zeros(0))]


def _reversed_cumsum(g: Any, axis: int) -> Any:
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


def _cumsum_vjp(g: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    if axis is None:
        return np.reshape(_reversed_cumsum(g, 0), a.shape)
    return _reversed_cumsum(g, axis)


cumsum = register(
    Op(
        "cumsum",
        np.cumsum,
        Scan(),
        [_cumsum_vjp],
        jvp="linear",
        samples=_scan_samples,
        operands=("a",),
        params=("axis", "dtype"),
        methods=("cumsum",),
    )
)


def _cumprod_parts(a: Any, axis: Any) -> Any:
    """Lower-triangular partial derivatives, shape (..., n, n): d out[i] / d a[j]."""
    flat = np.reshape(a, (-1,)) if axis is None else np.moveaxis(a, axis, -1)
    n = flat.shape[-1]
    ones = np.ones((*np.shape(flat)[:-1], n, n), a.dtype)
    diagonal = np.eye(n, dtype=bool)
    # Row j holds the factors of the product with the j-th one left out.
    rows = np.where(diagonal, ones, flat[..., None, :] * ones)
    running = np.cumprod(rows, axis=-1)
    return np.where(np.arange(n)[:, None] <= np.arange(n), running, np.zeros_like(running))


def _cumprod_vjp(g: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    g = np.reshape(g, (-1,)) if axis is None else np.moveaxis(g, axis, -1)
    back = np.sum(_cumprod_parts(a, axis) * g[..., None, :], axis=-1)
    return np.reshape(back, a.shape) if axis is None else np.moveaxis(back, -1, axis)


def _cumprod_jvp(t: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    t = np.reshape(t, (-1,)) if axis is None else np.moveaxis(t, axis, -1)
    forward = np.sum(_cumprod_parts(a, axis) * t[..., :, None], axis=-2)
    return forward if axis is None else np.moveaxis(forward, -1, axis)


cumprod = register(
    Op(
        "cumprod",
        np.cumprod,
        Scan(),
        [_cumprod_vjp],
        jvp=[_cumprod_jvp],
        samples=lambda rng: [*_scan_samples(rng)[:4], s(np.array([2.0, 0.0, 3.0, 0.0]))],
        operands=("a",),
        params=("axis", "dtype"),
        methods=("cumprod",),
        note="exact where elements are 0; takes O(n) memory per element",
    )
)


def _cumulative(function: Any, start: float) -> Any:
    def body(
        x: Any,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        if axis is None and x.ndim > 1:
            raise ValueError(
                "For arrays which have more than one dimension ``axis`` argument is required."
            )
        axis = 0 if axis is None else axis
        r = function(x, axis=axis, dtype=dtype)
        if include_initial:
            shape = tuple(1 if i == axis % r.ndim else n for i, n in enumerate(r.shape))
            r = np.concatenate([np.full(shape, start, r.dtype), r], axis=axis)
        return r if out is None else np.positive(r, out=out)

    return body


composite(np.cumulative_sum)(_cumulative(np.cumsum, 0))
composite(np.cumulative_prod)(_cumulative(np.cumprod, 1))


@composite_if_traced(np.diff)
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue
) -> Any:
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if n == 0:
        return a
    (at,) = normalized_axes(axis, a.ndim)
    parts = [p for p in (prepend, a, append) if p is not np._NoValue]
    if len(parts) > 1:
        edge = tuple(1 if i == at else k for i, k in enumerate(a.shape))
        parts = [np.broadcast_to(p, edge) if np.ndim(p) == 0 else p for p in parts]
        a = np.concatenate(parts, axis=at)
    lead = (slice(None),) * at
    for _ in range(n):
        a = a[(*lead, slice(1, None))] - a[(*lead, slice(None, -1))]
    return a


@composite_if_traced(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = y if hasattr(y, "ndim") else np.asarray(y)
    (at,) = normalized_axes(axis, y.ndim)
    if x is None:
        width = dx
    else:
        x = x if hasattr(x, "ndim") else np.asarray(x)
        width = np.diff(x) if x.ndim == 1 else np.diff(x, axis=axis)
        if x.ndim == 1:
            width = np.reshape(width, (-1,) + (1,) * (y.ndim - 1 - at))
    lead = (slice(None),) * at
    mean = (y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]) / 2.0
    return np.sum(width * mean, axis=at)
