"""Distributions of vectors: normal, Student's t, Dirichlet, multinomial."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.stats

from adarray.base.errors import NotDifferentiableError, ShapeError
from adarray.core.protocol import finish, plain, traced
from adarray.scipy._drop_in import by_original, guarded, holds, no_rule
from adarray.scipy._elementwise import sp
from adarray.scipy.stats._distribution import wide

LOG_2PI = math.log(2 * math.pi)


class Vector:
    """A distribution of vectors: SciPy's, with methods of ours for traced arguments.

    Parameters
    ----------
    scipy : object
        SciPy's distribution.
    methods : dict
        Bodies by name; each takes the method's arguments under SciPy's names.
    """

    def __init__(self, scipy: Any, methods: dict[str, Callable[..., Any]]) -> None:
        self.scipy = scipy
        self.name = type(scipy).__name__.removesuffix("_gen")
        self.methods = methods
        self.__doc__ = scipy.__doc__

    def __repr__(self) -> str:
        return f"<adarray.scipy.stats.{self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> FrozenVector:
        """Freeze the parameters."""
        return FrozenVector(self, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return a method of ours, or one of SciPy's that refuses traced arguments."""
        if name.startswith("__"):
            raise AttributeError(name)
        member = getattr(self.scipy, name)
        body = self.methods.get(name)
        if body is None:
            return guarded(member, f"scipy.stats.{self.name}") if callable(member) else member

        def either(*args: Any, **kwargs: Any) -> Any:
            if not (holds(args) or holds(kwargs)):
                return member(*args, **kwargs)
            if not (traced(args) or traced(kwargs)):
                return finish(member(*plain(args), **plain(kwargs)), None, name)
            return finish(body(*args, **kwargs), None, name)

        return either


class FrozenVector:
    """A distribution of vectors with given parameters."""

    def __init__(self, dist: Vector, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.dist = dist
        self.args = args
        self.kwds = kwargs
        # SciPy checks the parameters here, as it does for its own frozen distributions.
        self.scipy = dist.scipy(*plain(args), **plain(kwargs))

    def __getattr__(self, name: str) -> Any:
        """Return a method of the distribution, its parameters given."""
        if name.startswith("__") or name in ("dist", "scipy"):
            raise AttributeError(name)
        own = getattr(self.scipy, name)
        body = self.dist.methods.get(name)
        if not callable(own):
            return own
        refusing = guarded(own, f"scipy.stats.{self.dist.name}")

        def either(*args: Any, **kwargs: Any) -> Any:
            parts = (args, kwargs, self.args, self.kwds)
            if not any(map(traced, parts)):
                return refusing(*args, **kwargs)
            if body is None:
                call = (*args, *self.args), {**self.kwds, **kwargs}
                where = f"scipy.stats.{self.dist.name}.{name}"
                original = getattr(self.dist.scipy, name)
                return by_original(original, *call, lambda: no_rule(where))
            return finish(body(*args, *self.args, **self.kwds, **kwargs), None, name)

        return either


# -- normal and Student's t --------------------------------------------------------------------


def _matrix(cov: Any, dim: int) -> Any:
    """Return a covariance as a matrix: a number is a multiple of the unit, a vector a diagonal."""
    cov = wide(cov)
    if cov.ndim == 0:
        return cov * np.eye(dim)
    if cov.ndim == 1:
        return cov[:, None] * np.eye(cov.shape[0])
    if cov.shape != (dim, dim):
        raise ShapeError(
            f"multivariate_normal: the covariance has shape {cov.shape} for vectors of {dim} "
            f"components; pass shape ({dim}, {dim})"
        )
    return cov


def _dimension(mean: Any, cov: Any) -> int:
    if mean is not None and np.ndim(mean):
        return int(np.shape(mean)[0])
    return int(np.shape(cov)[0]) if np.ndim(cov) else 1


def _factor(name: str, mean: Any, cov: Any, allow_singular: bool) -> tuple[int, Any, Any]:
    """Return the dimension, the mean as a vector, and the Cholesky factor of the covariance."""
    if allow_singular:
        raise NotDifferentiableError(
            f"{name}: the argument allow_singular=True is not differentiated; leave it at its "
            "default False and pass a positive definite matrix"
        )
    if hasattr(cov, "colorize"):  # scipy.stats.Covariance
        raise NotDifferentiableError(
            f"{name}: a Covariance object is not differentiated; pass its matrix cov.covariance"
        )
    dim = _dimension(mean, cov)
    center = np.zeros(dim) if mean is None else wide(mean) + np.zeros(dim)
    return dim, center, np.linalg.cholesky(_matrix(cov, dim))


def _distance(x: Any, dim: int, center: Any, factor: Any) -> tuple[Any, Any]:
    """Return the squared Mahalanobis distances, and the logarithm of the determinant."""
    x = wide(x)
    if x.ndim == 0:
        x = x[None]
    elif x.ndim == 1:
        x = x[:, None] if dim == 1 else x
    shape = x.shape[:-1]
    rows = np.reshape(x - center, (-1, dim))
    white = np.linalg.solve(factor, np.transpose(rows))
    squares = np.reshape(np.sum(white * white, axis=0), shape)
    return squares, 2 * np.sum(np.log(np.diagonal(factor)))


def _squeezed(r: Any) -> Any:
    return r[()] if r.ndim == 0 else np.squeeze(r)


def normal_logpdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """As `scipy.stats.multivariate_normal.logpdf`."""
    dim, center, factor = _factor("multivariate_normal", mean, cov, allow_singular)
    squares, log_det = _distance(x, dim, center, factor)
    return _squeezed(-0.5 * (dim * LOG_2PI + log_det + squares))


def normal_pdf(x: Any, mean: Any = None, cov: Any = 1, allow_singular: bool = False) -> Any:
    """As `scipy.stats.multivariate_normal.pdf`."""
    return np.exp(normal_logpdf(x, mean, cov, allow_singular))


def normal_entropy(mean: Any = None, cov: Any = 1) -> Any:
    """As `scipy.stats.multivariate_normal.entropy`."""
    dim, _, factor = _factor("multivariate_normal", mean, cov, False)
    return 0.5 * dim * (LOG_2PI + 1) + np.sum(np.log(np.diagonal(factor)))


def student_logpdf(
    x: Any, loc: Any = None, shape: Any = 1, df: Any = 1, allow_singular: bool = False
) -> Any:
    """As `scipy.stats.multivariate_t.logpdf`."""
    dim, center, factor = _factor("multivariate_t", loc, shape, allow_singular)
    squares, log_det = _distance(x, dim, center, factor)
    df = wide(df)
    if np.any(np.isinf(df)):
        return _squeezed(-0.5 * (dim * LOG_2PI + log_det + squares))
    half = 0.5 * (df + dim)
    front = sp.gammaln(half) - sp.gammaln(0.5 * df) - 0.5 * dim * np.log(df * math.pi)
    return _squeezed(front - 0.5 * log_det - half * np.log1p(squares / df))


def student_pdf(
    x: Any, loc: Any = None, shape: Any = 1, df: Any = 1, allow_singular: bool = False
) -> Any:
    """As `scipy.stats.multivariate_t.pdf`."""
    return np.exp(student_logpdf(x, loc, shape, df, allow_singular))


# -- Dirichlet, multinomial --------------------------------------------------------------------


def dirichlet_logpdf(x: Any, alpha: Any) -> Any:
    """As `scipy.stats.dirichlet.logpdf`: components along the first axis."""
    x, alpha = wide(x), wide(alpha)
    if plain(alpha).min() <= 0:
        raise ValueError("All parameters must be greater than 0")
    count = alpha.shape[0]
    if x.shape[0] not in (count, count - 1):
        raise ShapeError(
            f"dirichlet: x has {x.shape[0]} components and alpha {count}; pass as many, or one less"
        )
    if x.shape[0] == count - 1:
        x = np.concatenate([x, 1 - np.sum(x, axis=0, keepdims=True)])
    scipy.stats.dirichlet.logpdf(plain(x), plain(alpha))  # raises where x is not on the simplex
    weight = np.reshape(alpha, (-1,) + (1,) * (x.ndim - 1)) - 1
    return _squeezed(np.sum(sp.xlogy(weight, x), axis=0) - _log_beta(alpha))


def _log_beta(alpha: Any) -> Any:
    return np.sum(sp.gammaln(alpha)) - sp.gammaln(np.sum(alpha))


def dirichlet_entropy(alpha: Any) -> Any:
    """As `scipy.stats.dirichlet.entropy`."""
    alpha = wide(alpha)
    total, count = np.sum(alpha), alpha.shape[0]
    spread = np.sum((alpha - 1) * sp.psi(alpha))
    return _log_beta(alpha) + (total - count) * sp.psi(total) - spread


def dirichlet_mean(alpha: Any) -> Any:
    """As `scipy.stats.dirichlet.mean`."""
    alpha = wide(alpha)
    return alpha / np.sum(alpha)


def dirichlet_var(alpha: Any) -> Any:
    """As `scipy.stats.dirichlet.var`."""
    alpha = wide(alpha)
    total = np.sum(alpha)
    return alpha * (total - alpha) / (total * total * (total + 1))


def multinomial_logpmf(x: Any, n: Any, p: Any) -> Any:
    """As `scipy.stats.multinomial.logpmf`: the last probability is what the others leave."""
    p, x, n = wide(p), plain(wide(x)), plain(wide(n))
    p = np.concatenate([p[..., :-1], 1 - np.sum(p[..., :-1], axis=-1, keepdims=True)], axis=-1)
    reference = scipy.stats.multinomial.logpmf(x, n.astype(int), plain(p))
    inside = np.isfinite(reference)
    counts = np.where(inside[..., None], x, 0.0)
    r = sp.gammaln(n + 1) + np.sum(sp.xlogy(counts, p) - sp.gammaln(counts + 1), axis=-1)
    return np.where(inside, r, reference)


def _exp(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: np.exp(f(*args, **kwargs))


def vectors() -> dict[str, Vector]:
    """Return the distributions of vectors by name."""
    bodies: dict[str, dict[str, Callable[..., Any]]] = {
        "multivariate_normal": {
            "pdf": normal_pdf, "logpdf": normal_logpdf, "entropy": normal_entropy,
        },
        "multivariate_t": {"pdf": student_pdf, "logpdf": student_logpdf},
        "dirichlet": {
            "pdf": _exp(dirichlet_logpdf), "logpdf": dirichlet_logpdf,
            "entropy": dirichlet_entropy, "mean": dirichlet_mean, "var": dirichlet_var,
        },
        "multinomial": {"pmf": _exp(multinomial_logpmf), "logpmf": multinomial_logpmf},
    }  # fmt: skip
    return {n: Vector(getattr(scipy.stats, n), methods) for n, methods in bodies.items()}
