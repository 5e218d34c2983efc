"""Running folds along an axis, and their inverse: differences.

References
----------
- G. E. Blelloch, "Prefix sums and their applications", report CMU-CS-90-190, Carnegie Mellon
  University, 1990.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.op import Op, Scan, composite, register
from adarray.ops.common import composite_if_traced, newer, normalized_axes, s


def scan_samples(rng: np.random.Generator) -> list[Any]:
    """Return arrays with the axis to run along."""
    x = rng.normal(size=(3, 4))
    return [s(x), s(x, axis=0), s(x.T[:, ::-1], axis=-1), s(rng.normal(size=5)), s(np.zeros(0))]


def flat(x: Any, axis: int | None) -> tuple[Any, int]:
    """Return the array and axis that a running fold over `axis` works on."""
    return (np.reshape(x, (-1,)), 0) if axis is None or x.ndim == 0 else (x, axis)


def _reversed_cumsum(g: Any, axis: int) -> Any:
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


def _cumsum_vjp(g: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    return np.reshape(_reversed_cumsum(*flat(g, axis)), a.shape)


cumsum = register(
    Op(
        "cumsum",
        np.cumsum,
        Scan(),
        [_cumsum_vjp],
        jvp="linear",
        samples=lambda rng: [*scan_samples(rng), s(np.float64(0.4))],
        operands=("a",),
        params=("axis", "dtype"),
        methods=("cumsum",),
    )
)


def linear_recurrence(m: Any, b: Any) -> Any:
    """Return y with ``y[0] = b[0]`` and ``y[i] = m[i-1] * y[i-1] + b[i]``, along the last axis.

    Parameters
    ----------
    m : array, shape (..., n - 1)
    b : array, shape (..., n)

    Notes
    -----
    Steps are composed pairwise in log2(n) passes over the array [1]_: each pass
    doubles the number of elements that an element has heard of. Nothing is divided,
    so that zeros among the factors are exact.

    References
    ----------
    .. [1] G. E. Blelloch, "Prefix Sums and Their Applications", Carnegie Mellon
       University, CMU-CS-90-190, 1990, section 1.4.1.
    """
    n, reach, y = b.shape[-1], 1, b
    while reach < n:
        further = y[..., reach:] + m * y[..., :-reach]
        y = np.concatenate([y[..., :reach], further], axis=-1)
        m = m[..., reach:] * m[..., :-reach] if 2 * reach < n else m
        reach *= 2
    return y


def _cumprod_vjp(g: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    # a[j] gets the product before it times g[j] + a[j+1] (g[j+1] + a[j+2] (g[j+2] + ...)).
    if not a.size:
        return np.zeros_like(a)
    (x, at), (g, _) = flat(a, axis), flat(g, axis)
    x, g = np.moveaxis(x, at, -1), np.moveaxis(g, at, -1)
    behind = np.flip(linear_recurrence(np.flip(x[..., 1:], -1), np.flip(g, -1)), -1)
    back = _products_before(x) * behind
    return np.reshape(np.moveaxis(back, -1, at), a.shape)


def _cumprod_jvp(t: Any, out: Any, a: Any, axis: Any = None, dtype: Any = None) -> Any:
    # The tangent of out[i] is a[i] times that of out[i-1], plus the product before times t[i].
    if not a.size:
        return np.zeros_like(out)
    (x, at), (t, _) = flat(a, axis), flat(t, axis)
    x, t = np.moveaxis(x, at, -1), np.moveaxis(t, at, -1)
    moved = linear_recurrence(x[..., 1:], t * _products_before(x))
    return np.moveaxis(moved, -1, at)


def _products_before(x: Any) -> Any:
    """Return the product of the elements before each one along the last axis."""
    one = np.ones_like(x[..., :1])
    return np.cumprod(np.concatenate([one, x[..., :-1]], axis=-1), axis=-1)


cumprod = register(
    Op(
        "cumprod",
        np.cumprod,
        Scan(),
        [_cumprod_vjp],
        jvp=[_cumprod_jvp],
        samples=lambda rng: [
            *scan_samples(rng),
            s(np.array([2.0, 0.0, 3.0, 0.0])),
            s(rng.normal(size=(2, 9)), axis=1),
            s(rng.normal(size=(2, 0)), axis=1),
            s(np.float64(0.4)),
        ],
        operands=("a",),
        params=("axis", "dtype"),
        methods=("cumprod",),
        note="exact where elements are 0",
    )
)


def _cumulative(name: str, function: Callable[..., Any], start: int) -> None:
    """Register ``np.cumulative_sum`` or ``np.cumulative_prod``."""

    def body(
        x: Any,
        /,
        *,
        axis: int | None = None,
        dtype: Any = None,
        out: Any = None,
        include_initial: bool = False,
    ) -> Any:
        x = x if hasattr(x, "ndim") else np.asarray(x)
        if axis is None and x.ndim > 1:
            raise ValueError(
                "For arrays which have more than one dimension ``axis`` argument is required."
            )
        axis = 0 if axis is None else axis
        r = function(np.reshape(x, (1,)) if x.ndim == 0 else x, axis=axis, dtype=dtype)
        if include_initial:
            shape = tuple(1 if i == axis % r.ndim else n for i, n in enumerate(r.shape))
            r = np.concatenate([np.full(shape, start, r.dtype), r], axis=axis)
        return r if out is None else np.positive(r, out=out)

    composite(*newer(name))(body)


_cumulative("cumulative_sum", np.cumsum, 0)
_cumulative("cumulative_prod", np.cumprod, 1)


@composite_if_traced(np.diff)
def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue
) -> Any:
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    if n == 0:
        return a
    a = a if hasattr(a, "ndim") else np.asarray(a)
    if a.ndim == 0:
        raise ValueError("diff requires input that is at least one dimensional")
    (at,) = normalized_axes(operator.index(axis), a.ndim)
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
