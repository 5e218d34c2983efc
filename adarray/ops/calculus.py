"""Differences, interpolation and convolution along one axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import Op, Opaque, register
from adarray.batching.layouts import interpolated
from adarray.batching.rules import members
from adarray.core.dispatch import apply
from adarray.core.protocol import plain, traced
from adarray.ops import creation
from adarray.ops.borrow import borrow, borrowed
from adarray.ops.common import composite_if_traced, normalized_axes, s, weighted

borrow(np.ediff1d, np.unwrap)

# -- gradient ------------------------------------------------------------------------------


@composite_if_traced(np.gradient)
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    """Differences of second order inside; traced coordinates have a formula of our own.

    Where all steps are equal NumPy reads the first one only, which would drop the
    derivative with respect to the others.
    """
    numpys = borrowed(np.gradient)
    if not any(traced(h) and np.ndim(plain(h)) for h in varargs):
        return numpys(f, *varargs, axis=axis, edge_order=edge_order)
    np.gradient(*plain((f, *varargs)), axis=axis, edge_order=edge_order)  # NumPy's errors
    axes = normalized_axes(axis, np.ndim(f))
    steps = varargs if len(varargs) == len(axes) else varargs * len(axes)
    gradients = []
    for at, h in zip(axes, steps, strict=True):
        if traced(h) and np.ndim(plain(h)):
            gradients.append(_uneven_gradient(f, h, at, edge_order))
        else:
            gradients.append(numpys(f, h, axis=at, edge_order=edge_order))
    return gradients[0] if len(axes) == 1 else tuple(gradients)


def _uneven_gradient(f: Any, x: Any, axis: int, edge_order: int) -> Any:
    """Return the gradient of `f` along `axis` at the coordinates `x`, a 1-d array."""
    f = np.moveaxis(f, axis, 0) if hasattr(f, "ndim") else np.moveaxis(np.asarray(f), axis, 0)
    x = x if hasattr(x, "ndim") else np.stack(x)
    h = np.reshape(x[1:] - x[:-1], (-1,) + (1,) * (f.ndim - 1))
    slope = (f[1:] - f[:-1]) / h
    # The parabola through three points has these slopes at them; d is its curvature.
    left, right = h[:-1], h[1:]
    d = (slope[1:] - slope[:-1]) / (left + right)
    inside = slope[:-1] + left * d
    if edge_order == 1:
        first, last = slope[:1], slope[-1:]
    else:
        first, last = slope[:1] - left[:1] * d[:1], slope[-1:] + right[-1:] * d[-1:]
    return np.moveaxis(np.concatenate((first, inside, last), axis=0), 0, axis)


# -- interpolation -------------------------------------------------------------------------


def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    return np.interp(x, xp, fp, left, right)


def _segments(x: Any, xp: Any) -> tuple[Any, Any, Any, Any]:
    """Return positions of the two neighbours of each `x`, their distance, and who is inside."""
    at, knots = plain(x), plain(xp)
    low = np.clip(np.searchsorted(knots, at, side="right") - 1, 0, max(len(knots) - 2, 0))
    high = np.minimum(low + 1, len(knots) - 1)
    inside = (at >= knots[0]) & (at <= knots[-1])
    width = np.take(xp, high) - np.take(xp, low)
    return low, high, width + (width == 0), inside


def _weights(x: Any, xp: Any, left: Any, right: Any) -> tuple[Any, Any, Any, Any]:
    """Return the positions in `fp` that each result reads, and with which weights."""
    low, high, width, inside = _segments(x, xp)
    at, knots = plain(x), plain(xp)
    below = (at < knots[0]) & (left is None)
    above = (at > knots[-1]) & (right is None)
    w = (x - np.take(xp, low)) / width
    first = np.where(inside, 1 - w, np.where(below, 1.0, 0.0))
    second = np.where(inside, w, np.where(above, 1.0, 0.0))
    return low, high, first, second


def _slope(x: Any, xp: Any, fp: Any) -> tuple[Any, Any, Any, Any]:
    low, high, width, inside = _segments(x, xp)
    slope = np.where(inside, (np.take(fp, high) - np.take(fp, low)) / width, 0.0)
    return low, high, slope, (x - np.take(xp, low)) / width


def _spread(shape: tuple[int, ...], low: Any, high: Any, first: Any, second: Any) -> Any:
    """Return an array with `first` added at positions `low` and `second` at `high`."""
    parts = np.concatenate((np.ravel(first), np.ravel(second)))
    back = np.zeros_like(parts, shape=shape)
    np.add.at(back, np.concatenate((np.ravel(low), np.ravel(high))), parts)
    return back


def _interp_vjp_x(
    g: Any, out: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None
) -> Any:
    return g * _slope(x, xp, fp)[2]


def _interp_vjp_xp(
    g: Any, out: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None
) -> Any:
    low, high, slope, w = _slope(x, xp, fp)
    g = -g * slope
    return _spread(xp.shape, low, high, g * (1 - w), g * w)


def _interp_vjp_fp(
    g: Any, out: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None
) -> Any:
    low, high, first, second = _weights(x, xp, left, right)
    return _spread(fp.shape, low, high, g * first, g * second)


def _interp_jvp_xp(
    t: Any, out: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None
) -> Any:
    low, high, slope, w = _slope(x, xp, fp)
    return -slope * (weighted(np.take(t, low), 1 - w) + weighted(np.take(t, high), w))


def _interp_jvp_fp(
    t: Any, out: Any, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None
) -> Any:
    low, high, first, second = _weights(x, xp, left, right)
    return weighted(np.take(t, low), first) + weighted(np.take(t, high), second)


def _interp_samples(rng: np.random.Generator) -> list[Any]:
    xp, fp = np.array([-1.0, 0.2, 0.7, 2.0]), rng.normal(size=4)
    x = np.array([[-0.7, 0.25, 1.9], [-2.0, 3.0, 0.5]])
    return [
        s(x, xp, fp),
        s(x, xp, fp, left=-1.0, right=2.0),
        s(np.float64(0.3), xp, fp),
        s(rng.normal(size=0), xp, fp),
        s(x, xp[:1], fp[:1]),
    ]


interp = register(
    Op(
        "interp",
        _interp,
        Opaque(),
        [_interp_vjp_x, _interp_vjp_xp, _interp_vjp_fp],
        jvp=[_interp_vjp_x, _interp_jvp_xp, _interp_jvp_fp],
        drops=True,
        samples=_interp_samples,
        operands=("x", "xp", "fp"),
        params=("left", "right"),
        batch=interpolated,
        note="on a knot the slope to its right, on the last one that to its left",
    )
)


@composite_if_traced(np.interp)
def _interp_any(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """``np.interp``: `left`, `right` and `period` may be traced too."""
    x, xp, fp = (a if hasattr(a, "ndim") else creation.asarray(a)[()] for a in (x, xp, fp))
    if period is not None:
        if plain(period) == 0:
            raise ValueError("period must be a non-zero value")
        if xp.ndim != 1 or fp.ndim != 1:
            raise ValueError("Data points must be 1-D sequences")
        if len(xp) != len(fp):
            raise ValueError("fp and xp are not of the same length")
        period, left, right = abs(period), None, None
        x, xp = np.remainder(x, period), np.remainder(xp, period)
        order = np.argsort(plain(xp))
        xp, fp = xp[order], fp[order]
        xp = np.concatenate((xp[-1:] - period, xp, xp[:1] + period))
        fp = np.concatenate((fp[-1:], fp, fp[:1]))
    beyond = {"left": plain(left), "right": plain(right)}
    r = apply(interp, (x, xp, fp), {k: v for k, v in beyond.items() if v is not None})
    if traced(left):
        r = np.where(plain(x) < plain(xp)[0], left, r)
    if traced(right):
        r = np.where(plain(x) > plain(xp)[-1], right, r)
    return r


# -- convolution ---------------------------------------------------------------------------


def _whole(g: Any, a: Any, v: Any, mode: Any) -> Any:
    """Return the cotangent of the full convolution, of which `mode` keeps a part."""
    n, m = max(a.size, v.size), min(a.size, v.size)
    start = {"f": 0, "2": 0, "s": (m - 1) // 2, "1": (m - 1) // 2}.get(str(mode)[0], m - 1)
    rest = n + m - 1 - start - g.shape[0]
    return np.pad(g, (start, rest)) if start or rest else g


def _convolve_vjp(g: Any, a: Any, v: Any, mode: Any) -> Any:
    """Return the cotangent of `a`: every product with an element of `v` runs backwards."""
    back = np.convolve(_whole(g, a, v, mode), np.ravel(v)[::-1], "valid")
    return np.reshape(back, a.shape)


def _convolve_samples(rng: np.random.Generator) -> list[Any]:
    n = rng.normal
    return [
        s(n(size=k), n(size=m), mode)
        for mode in ("full", "same", "valid")
        for k, m in ((5, 3), (3, 4), (4, 4), (1, 3))
    ] + [s(n(size=4), np.float64(2.0)), s(n(size=4), n(size=2))]


convolve = register(
    Op(
        "convolve",
        np.convolve,
        Opaque(),
        [
            lambda g, out, a, v, mode="full": _convolve_vjp(g, a, v, mode),
            lambda g, out, a, v, mode="full": _convolve_vjp(g, v, a, mode),
        ],
        jvp="linear",
        samples=_convolve_samples,
        operands=("a", "v"),
        params=("mode",),
        batch=members,
    )
)


@composite_if_traced(np.correlate)
def _correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    """``np.correlate``: a convolution with `v` reversed and conjugated."""
    a, v = (np.ravel(x) if np.ndim(x) == 0 else x for x in (a, v))
    v = np.conjugate(v if hasattr(v, "ndim") else np.asarray(v))
    a = a if hasattr(a, "ndim") else np.asarray(a)
    if a.ndim == v.ndim == 1 and len(a) < len(v):  # NumPy slides the shorter along the longer
        return np.convolve(v, a[::-1], mode)[::-1]
    return np.convolve(a, v[::-1], mode)
