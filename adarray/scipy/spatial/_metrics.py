"""Distances along the last axis of arrays that broadcast; where they are 0, so is their slope.

References
----------
- F. H. Clarke, "Optimization and Nonsmooth Analysis", Wiley 1983.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.scipy._drop_in import array
from adarray.scipy._elementwise import sp

Metric = Callable[..., Any]


def real(x: Any) -> Any:
    """Convert points as SciPy does: to float64 at least."""
    x = array(x)
    if x.dtype.kind == "c":
        raise TypeError("`u` and `v` must be real.")
    return x if x.dtype.kind == "f" else np.astype(x, float)


def between(a: Any, b: Any, metric: Metric) -> Any:
    """Return the distances of all rows of one matrix from all rows of another."""
    a, b = real(a), real(b)
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError("XA and XB must be 2-dimensional arrays: one row for each point.")
    if a.shape[1] != b.shape[1]:
        raise ValueError("XA and XB must have the same number of columns (i.e. feature dimension).")
    return metric(a[:, None, :], b[None, :, :])


def _weighted(x: Any, w: Any) -> Any:
    return x if w is None else x * w


def _root(s: Any, p: Any = 2) -> Any:
    """Return the p-th root, whose slope is taken as 0 where it is 0."""
    safe = np.where(s > 0, s, 1.0)
    return np.where(s > 0, np.sqrt(safe) if p == 2 else safe ** (1 / p), s)


def sqeuclidean(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of squares."""
    d = real(u) - real(v)
    return np.sum(_weighted(d * d, w), axis=-1)


def euclidean(u: Any, v: Any, w: Any = None) -> Any:
    """Return the root of the sum of squares."""
    return _root(sqeuclidean(u, v, w))


def cityblock(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of absolute differences."""
    return np.sum(_weighted(np.abs(real(u) - real(v)), w), axis=-1)


def chebyshev(u: Any, v: Any, w: Any = None) -> Any:
    """Return the largest absolute difference."""
    d = np.abs(real(u) - real(v))
    return np.max(d if w is None else np.where(array(w) > 0, d, 0.0), axis=-1)


def minkowski(u: Any, v: Any, p: Any = 2, w: Any = None) -> Any:
    """Return the norm of order `p`."""
    if p <= 0:
        raise ValueError("p must be greater than 0")
    if p == 1:
        return cityblock(u, v, w)
    if p == 2:
        return euclidean(u, v, w)
    if p == np.inf:
        return chebyshev(u, v, w)
    return _root(np.sum(_weighted(np.abs(real(u) - real(v)) ** p, w), axis=-1), p)


def seuclidean(u: Any, v: Any, V: Any) -> Any:
    """Return the distance in units of the standard deviations, whose squares are `V`."""
    d = real(u) - real(v)
    return _root(np.sum(d * d / array(V), axis=-1))


def mahalanobis(u: Any, v: Any, VI: Any) -> Any:
    """Return the distance by the inverse of a covariance."""
    d = real(u) - real(v)
    return _root(np.sum(np.matmul(d, array(VI)) * d, axis=-1))


def correlation(u: Any, v: Any, w: Any = None, centered: bool = True) -> Any:
    """Return one minus the correlation."""
    u, v = real(u), real(v)
    if w is not None:
        w = array(w) / np.sum(array(w))

    def mean(x: Any) -> Any:
        if w is None:
            return np.mean(x, axis=-1, keepdims=True)
        return np.sum(x * w, axis=-1, keepdims=True)

    if centered:
        u, v = u - mean(u), v - mean(v)

    def product(a: Any, b: Any) -> Any:
        return np.sum(_weighted(a * b, w), axis=-1)

    return np.clip(1.0 - product(u, v) / np.sqrt(product(u, u) * product(v, v)), 0.0, 2.0)


def cosine(u: Any, v: Any, w: Any = None) -> Any:
    """Return one minus the cosine of the angle."""
    return correlation(u, v, w, centered=False)


def canberra(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of relative differences; of two zeros it is 0."""
    u, v = real(u), real(v)
    size = np.abs(u) + np.abs(v)
    ratio = np.where(size > 0, np.abs(u - v) / np.where(size > 0, size, 1.0), 0.0)
    return np.sum(_weighted(ratio, w), axis=-1)


def braycurtis(u: Any, v: Any, w: Any = None) -> Any:
    """Return the sum of differences in units of that of sums."""
    u, v = real(u), real(v)
    return np.sum(_weighted(np.abs(u - v), w), axis=-1) / np.sum(
        _weighted(np.abs(u + v), w), axis=-1
    )


def jensenshannon(
    p: Any, q: Any, base: Any = None, *, axis: int = -1, keepdims: bool = False
) -> Any:
    """Return the root of the divergence of two distributions from their mean."""
    p, q = real(p), real(q)
    p = p / np.sum(p, axis=axis, keepdims=True)
    q = q / np.sum(q, axis=axis, keepdims=True)
    m = (p + q) / 2.0
    both = sp.rel_entr(p, m) + sp.rel_entr(q, m)
    divergence = np.sum(both, axis=axis, keepdims=keepdims)
    return _root((divergence if base is None else divergence / np.log(base)) / 2.0)


# By all the names that SciPy gives them.
METRICS: dict[str, Metric] = {
    **{
        f.__name__: f
        for f in (
            sqeuclidean, euclidean, cityblock, chebyshev, minkowski, seuclidean, mahalanobis,
            correlation, cosine, canberra, braycurtis, jensenshannon,
        )
    },
    **dict.fromkeys(("sqe", "sqeuclid"), sqeuclidean),
    **dict.fromkeys(("euclid", "eu", "e"), euclidean),
    **dict.fromkeys(("manhattan", "cityblock", "cblock", "cb", "c"), cityblock),
    **dict.fromkeys(("chebychev", "cheby", "cheb", "ch"), chebyshev),
    **dict.fromkeys(("mi", "m", "pnorm"), minkowski),
    **dict.fromkeys(("se", "s"), seuclidean),
    **dict.fromkeys(("mahal", "mah"), mahalanobis),
    **dict.fromkeys(("co",), correlation),
    **dict.fromkeys(("cos",), cosine),
    **dict.fromkeys(("js",), jensenshannon),
}  # fmt: skip
