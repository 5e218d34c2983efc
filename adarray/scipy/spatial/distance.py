"""Drop-in for `scipy.spatial.distance`: of two vectors, and of all pairs of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.spatial.distance

from adarray.base.errors import NotDifferentiableError
from adarray.scipy._drop_in import array, constant, fill_in, instead_of
from adarray.scipy.spatial import _metrics
from adarray.scipy.spatial._metrics import METRICS, Metric, between, real


def _of_vectors(metric: Metric) -> Metric:
    """Return a metric for two vectors, as SciPy's function of its name takes them."""

    @functools.wraps(metric)
    def distance(u: Any, v: Any, *args: Any, **kwargs: Any) -> Any:
        if np.ndim(u) > 1 or np.ndim(v) > 1:
            raise ValueError("Input vector should be 1-D.")
        return metric(np.atleast_1d(real(u)), np.atleast_1d(real(v)), *args, **kwargs)

    return distance


for _name in (
    "sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski", "seuclidean", "mahalanobis",
    "correlation", "cosine", "canberra", "braycurtis",
):  # fmt: skip
    globals()[_name] = instead_of(getattr(scipy.spatial.distance, _name))(
        _of_vectors(getattr(_metrics, _name))
    )
# Of how many elements are equal: steps.
for _name in ("hamming", "jaccard", "is_valid_dm", "is_valid_y", "num_obs_dm", "num_obs_y"):
    globals()[_name] = constant(getattr(scipy.spatial.distance, _name))


@instead_of(scipy.spatial.distance.jensenshannon)
def jensenshannon(
    p: Any, q: Any, base: Any = None, *, axis: int = 0, keepdims: bool = False
) -> Any:
    return _metrics.jensenshannon(p, q, base, axis=axis, keepdims=keepdims)


def _chosen(
    name: str, metric: Any, options: dict[str, Any] | None, points: Callable[[], Any]
) -> Metric:
    """Return the metric that `cdist` or `pdist` was asked for, its options given.

    `points` returns all of them, for the variances that SciPy computes where none are given.
    """
    options = dict(options or {})
    if callable(metric):
        known = getattr(metric, "__name__", "")
        own = metric is globals().get(known)
        if known not in METRICS or not (own or metric == vars(scipy.spatial.distance).get(known)):
            return _one_by_one(metric, options)
        metric = known
    function = METRICS.get(str(metric).lower())
    if function is None:
        raise NotDifferentiableError(
            f"{name}: the metric {metric!r} has no derivative rule; use one of "
            f"{', '.join(sorted({f.__name__ for f in METRICS.values()}))}, or pass "
            "adarray.value_of(x) if no gradient should flow through it"
        )
    if function is _metrics.seuclidean and options.get("V") is None:
        options["V"] = np.var(points(), axis=0, ddof=1)
    if function is _metrics.mahalanobis and options.get("VI") is None:
        options["VI"] = np.linalg.inv(np.cov(points().T)).T
    return functools.partial(function, **{k: v for k, v in options.items() if v is not None})


def _one_by_one(metric: Metric, options: dict[str, Any]) -> Metric:
    """Return a function of the user's for arrays of vectors that broadcast."""

    def over(u: Any, v: Any) -> Any:
        u, v = np.broadcast_arrays(u, v)
        batch = u.shape[:-1]
        distances = [metric(u[k], v[k], **options) for k in np.ndindex(batch)]
        return np.reshape(array(distances), batch)

    return over


@instead_of(scipy.spatial.distance.cdist)
def cdist(XA: Any, XB: Any, metric: Any = "euclidean", kwargs: Any = None) -> Any:
    return between(
        XA, XB, _chosen("cdist", metric, kwargs, lambda: np.vstack([real(XA), real(XB)]))
    )


@instead_of(scipy.spatial.distance.pdist)
def pdist(X: Any, metric: Any = "euclidean", kwargs: Any = None) -> Any:
    X = real(X)
    if X.ndim != 2:
        raise ValueError("A 2-dimensional array must be passed.")
    i, j = np.triu_indices(X.shape[0], 1)
    return _chosen("pdist", metric, kwargs, lambda: X)(X[i], X[j])


@instead_of(scipy.spatial.distance.squareform)
def squareform(X: Any, force: str = "no", checks: bool = True) -> Any:
    X = array(X)
    if (force.lower(), X.ndim) in (("tomatrix", 2), ("tovector", 1)) or X.ndim not in (1, 2):
        raise ValueError("squareform: X is a vector of distances or a square matrix of them")
    if X.ndim == 1:
        places = scipy.spatial.distance.squareform(np.arange(1, X.size + 1))
        if not X.size:
            return np.zeros((1, 1), X.dtype)
        return np.concatenate([np.zeros(1, X.dtype), X])[places]
    if X.shape[0] != X.shape[1]:
        raise ValueError("The matrix argument must be square.")
    i, j = np.triu_indices(X.shape[0], 1)
    return X[i, j]


_getattr, _names, __all__ = fill_in(globals(), scipy.spatial.distance)


def __getattr__(name: str) -> Any:
    """Return another member of SciPy's module, which refuses traced arguments."""
    return _getattr(name)


def __dir__() -> list[str]:
    return _names()
