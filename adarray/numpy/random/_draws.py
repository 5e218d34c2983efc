"""Draws as smooth functions of the distribution's parameters (reparametrisation).

Every function here takes `raw`, a generator of NumPy's, and draws from its stream
what NumPy would draw for the same values of the parameters. The draw is then written
as a function of traced parameters: scaled and shifted standard draws, quantiles of
the uniform number that belongs to the draw, or NumPy's own transformation.

References
----------
Figurnov, M., Mohamed, S. and Mnih, A., "Implicit Reparameterization Gradients",
NeurIPS 2018.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import plain, plain_array
from adarray.ops import creation

Draw = Callable[..., Any]


def drawn_shape(size: Any, *parameters: Any) -> Any:
    """Return the size to draw: as given, or the parameters' common shape; None for one number."""
    if size is not None:
        return plain(size)
    return np.broadcast_shapes(*(np.shape(p) for p in parameters)) or None


def _standard(name: str, *standard: float) -> Callable[..., Any]:
    """Return draws of the distribution `name` with the parameters `standard`."""

    def draw(raw: Any, size: Any) -> Any:
        return getattr(raw, name)(*standard, size=size)

    return draw


def _location_scale(name: str, *standard: float) -> Draw:
    noise = _standard(name, *standard)

    def draw(raw: Any, size: Any, loc: Any, scale: Any) -> Any:
        return loc + scale * noise(raw, drawn_shape(size, loc, scale))

    return draw


_normal = _location_scale("standard_normal")


def _lognormal(raw: Any, size: Any, mean: Any, sigma: Any) -> Any:
    return np.exp(_normal(raw, size, mean, sigma))


def _uniform(raw: Any, size: Any, low: Any, high: Any) -> Any:
    return low + (high - low) * raw.random(drawn_shape(size, low, high))


def _scaled(name: str, *standard: float) -> Draw:
    noise = _standard(name, *standard)

    def draw(raw: Any, size: Any, scale: Any) -> Any:
        return scale * noise(raw, drawn_shape(size, scale))

    return draw


def _of_exponential(function: Callable[[Any, Any], Any]) -> Draw:
    """Return a draw that is `function` of a standard exponential draw and one parameter."""

    def draw(raw: Any, size: Any, a: Any) -> Any:
        return function(raw.standard_exponential(drawn_shape(size, a)), a)

    return draw


def _triangular(raw: Any, size: Any, left: Any, mode: Any, right: Any) -> Any:
    shape = drawn_shape(size, left, mode, right)
    u = raw.random(shape)
    base = right - left
    rising = np.asarray(u <= plain((mode - left) / base))
    # The side that is not taken gets a harmless number, so that its slope is finite.
    low = np.where(rising, u, 0.5) * (mode - left) * base
    high = np.where(rising, 0.5, 1.0 - u) * (right - mode) * base
    return np.where(
        rising,
        left + np.sqrt(np.where(rising, low, 1.0)),
        right - np.sqrt(np.where(rising, 1.0, high)),
    )


def _shifted(value: Any, smooth: Any) -> Any:
    """Return NumPy's own `value` with the derivatives of `smooth`."""
    return value + (smooth - plain(smooth))


def _special() -> Any:
    try:
        return importlib.import_module("adarray.numpy.special")
    except ImportError:
        raise NotDifferentiableError(
            "random: the derivative of this draw needs scipy.special; install SciPy"
        ) from None


def _quantile(y: Any, cdf: Any, sf: Any, quantile: Any, upper: Any, *parameters: Any) -> Any:
    """Return the draw `y` as the quantile, at fixed probability, of the parameters.

    From the nearer tail, in which the probability is known with full relative precision.
    """
    values = plain(parameters)
    p, q = cdf(*values, y), sf(*values, y)
    low = np.asarray(p <= 0.5)
    at = np.where(
        low,
        quantile(*parameters, np.where(low, p, 0.5)),
        upper(*parameters, np.where(low, 0.5, q)),
    )
    return _shifted(y, at)


def _standard_gamma(raw: Any, size: Any, shape: Any) -> Any:
    y = raw.standard_gamma(plain(shape), drawn_shape(size, shape))
    if not creation.holds(shape):
        return y
    sp = _special()
    return _quantile(y, sp.gammainc, sp.gammaincc, sp.gammaincinv, sp.gammainccinv, shape)


def _gamma(raw: Any, size: Any, shape: Any, scale: Any) -> Any:
    return scale * _standard_gamma(raw, drawn_shape(size, shape, scale), shape)


def _chisquare(raw: Any, size: Any, df: Any) -> Any:
    return 2.0 * _standard_gamma(raw, drawn_shape(size, df), df / 2.0)


def _beta(raw: Any, size: Any, a: Any, b: Any) -> Any:
    y = raw.beta(*plain((a, b)), drawn_shape(size, a, b))
    sp = _special()
    return _quantile(y, sp.betainc, sp.betaincc, sp.betaincinv, sp.betainccinv, a, b)


def _f(raw: Any, size: Any, dfnum: Any, dfden: Any) -> Any:
    y = raw.f(*plain((dfnum, dfden)), drawn_shape(size, dfnum, dfden))
    # The fraction x = n y / (d + n y) is a draw from the beta distribution.
    n, d = plain((dfnum, dfden))
    sp = _special()
    x = _quantile(
        n * y / (d + n * y), sp.betainc, sp.betaincc, sp.betaincinv, sp.betainccinv,
        dfnum / 2.0, dfden / 2.0,
    )  # fmt: skip
    return _shifted(y, dfden * x / (dfnum * (1.0 - x)))


def _standard_t(raw: Any, size: Any, df: Any) -> Any:
    y = raw.standard_t(plain(df), drawn_shape(size, df))
    sp = _special()
    # Both tails have the same probabilities: the lower one is known with full precision.
    smooth = np.sign(y) * -sp.stdtrit(df, sp.stdtr(plain(df), -np.abs(y)))
    return _shifted(y, smooth)


def _vonmises(raw: Any, size: Any, mu: Any, kappa: Any) -> Any:
    if creation.holds(kappa):
        raise NotDifferentiableError(
            "vonmises: the draw has no derivative here with respect to kappa; pass "
            "adarray.value_of(kappa) if no gradient should flow through it"
        )
    return _shifted(raw.vonmises(plain(mu), kappa, drawn_shape(size, mu, kappa)), mu)


def _dirichlet(raw: Any, size: Any, alpha: Any) -> Any:
    values = plain_array(alpha, float)
    if values.ndim != 1 or not np.all(values > 0) or values.max() < 0.1:
        raise NotDifferentiableError(
            "dirichlet: the draw has a derivative for a vector alpha of positive numbers, one "
            "of which is at least 0.1; pass adarray.value_of(alpha), or draw gamma variates"
        )
    shape = () if size is None else (size if np.ndim(size) else (size,))
    g = _standard_gamma(raw, (*(int(n) for n in shape), values.size), alpha)
    return g / np.sum(g, axis=-1, keepdims=True)


# name -> (names of the parameters, their defaults, draw)
DRAWS: dict[str, tuple[tuple[str, ...], tuple[Any, ...], Draw]] = {
    "normal": (("loc", "scale"), (0.0, 1.0), _normal),
    "uniform": (("low", "high"), (0.0, 1.0), _uniform),
    "lognormal": (("mean", "sigma"), (0.0, 1.0), _lognormal),
    "laplace": (("loc", "scale"), (0.0, 1.0), _location_scale("laplace", 0.0, 1.0)),
    "logistic": (("loc", "scale"), (0.0, 1.0), _location_scale("logistic", 0.0, 1.0)),
    "gumbel": (("loc", "scale"), (0.0, 1.0), _location_scale("gumbel", 0.0, 1.0)),
    "exponential": (("scale",), (1.0,), _scaled("standard_exponential")),
    "rayleigh": (("scale",), (1.0,), _scaled("rayleigh", 1.0)),
    "weibull": (("a",), (), _of_exponential(lambda e, a: e ** (1.0 / a))),
    "pareto": (("a",), (), _of_exponential(lambda e, a: np.expm1(e / a))),
    "power": (("a",), (), _of_exponential(lambda e, a: (-np.expm1(-e)) ** (1.0 / a))),
    "triangular": (("left", "mode", "right"), (), _triangular),
    "standard_gamma": (("shape",), (), _standard_gamma),
    "gamma": (("shape", "scale"), (1.0,), _gamma),
    "chisquare": (("df",), (), _chisquare),
    "beta": (("a", "b"), (), _beta),
    "f": (("dfnum", "dfden"), (), _f),
    "standard_t": (("df",), (), _standard_t),
    "vonmises": (("mu", "kappa"), (), _vonmises),
    "dirichlet": (("alpha",), (), _dirichlet),
}

# Whole numbers jump; the others are made by rejection or from several of these.
_JUMPS = "draws whole numbers, which jump as the argument {0} changes"
_NO_RULE = "the draw has no derivative rule with respect to the argument {0}"
REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "binomial": (("n", "p"), _JUMPS),
    "geometric": (("p",), _JUMPS),
    "hypergeometric": (("ngood", "nbad", "nsample"), _JUMPS),
    "logseries": (("p",), _JUMPS),
    "multinomial": (("n", "pvals"), _JUMPS),
    "multivariate_hypergeometric": (("colors", "nsample"), _JUMPS),
    "negative_binomial": (("n", "p"), _JUMPS),
    "poisson": (("lam",), _JUMPS),
    "zipf": (("a",), _JUMPS),
    "integers": (("low", "high"), _JUMPS),
    "randint": (("low", "high"), _JUMPS),
    "random_integers": (("low", "high"), _JUMPS),
    "noncentral_chisquare": (("df", "nonc"), _NO_RULE),
    "noncentral_f": (("dfnum", "dfden", "nonc"), _NO_RULE),
    "wald": (("mean", "scale"), _NO_RULE),
}


def multivariate_normal(raw: Any, size: Any, mean: Any, cov: Any, factor: Any) -> Any:
    """Return draws ``mean + factor @ z`` that are smooth in the covariance.

    Parameters
    ----------
    raw : generator
    size : int or tuple or None
    mean : array, shape (n,)
    cov : array, shape (n, n)
    factor : ndarray, shape (n, n)
        The factor of the covariance's value that NumPy's draw uses.

    Notes
    -----
    The factor is continued around the present covariance by ``F chol(F^-1 C F^-T)``,
    which is F itself there, and smooth also where singular values coincide.
    """
    shape = () if size is None else tuple(np.atleast_1d(plain(size)).tolist())
    z = raw.standard_normal((*shape, np.shape(mean)[0]))
    if creation.holds(cov):
        try:
            inverse = np.linalg.inv(factor)
        except np.linalg.LinAlgError:
            raise NotDifferentiableError(
                "multivariate_normal: the covariance is singular, and draws have no derivative "
                "with respect to it there; add a small multiple of the identity"
            ) from None
        factor = factor @ np.linalg.cholesky(inverse @ cov @ inverse.T)
    return mean + z @ np.swapaxes(factor, -1, -2)
