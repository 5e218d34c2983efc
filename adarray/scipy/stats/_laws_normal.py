"""The laws made of normal variables, and truncated ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.stats

from adarray.core.dispatch import run
from adarray.scipy._elementwise import elementwise, sp
from adarray.scipy.stats._law import LOG_2, LOG_2PI, PI, Law, normal_log

# -- made of normal variables --------------------------------------------------------------------

LOGNORM = Law(
    lambda x, s: -0.5 * np.square(np.log(x) / s) - np.log(s * x) - 0.5 * LOG_2PI,
    cdf=lambda x, s: sp.ndtr(np.log(x) / s),
    sf=lambda x, s: sp.ndtr(-np.log(x) / s),
    logcdf=lambda x, s: sp.log_ndtr(np.log(x) / s),
    logsf=lambda x, s: sp.log_ndtr(-np.log(x) / s),
    ppf=lambda q, s: np.exp(s * sp.ndtri(q)),
    isf=lambda q, s: np.exp(-s * sp.ndtri(q)),
    entropy=lambda s: 0.5 * (1 + LOG_2PI + 2 * np.log(s)),
    mean=lambda s: np.exp(0.5 * s * s),
    var=lambda s: np.expm1(s * s) * np.exp(s * s),
    vanishing=True,
)


def _johnson_var(a: Any, b: Any) -> Any:
    grown = np.exp(1 / (b * b))
    return 0.5 * np.expm1(1 / (b * b)) * (grown * np.cosh(2 * a / b) + 1)


JOHNSONSU = Law(
    lambda x, a, b: np.log(b) - 0.5 * np.log1p(x * x) + normal_log(a + b * np.arcsinh(x)),
    cdf=lambda x, a, b: sp.ndtr(a + b * np.arcsinh(x)),
    sf=lambda x, a, b: sp.ndtr(-(a + b * np.arcsinh(x))),
    logcdf=lambda x, a, b: sp.log_ndtr(a + b * np.arcsinh(x)),
    logsf=lambda x, a, b: sp.log_ndtr(-(a + b * np.arcsinh(x))),
    ppf=lambda q, a, b: np.sinh((sp.ndtri(q) - a) / b),
    isf=lambda q, a, b: np.sinh((-sp.ndtri(q) - a) / b),
    mean=lambda a, b: -np.exp(0.5 / (b * b)) * np.sinh(a / b),
    var=_johnson_var,
)


def _plain_skewnorm_cdf(x: Any, a: Any) -> Any:
    return scipy.stats.skewnorm.cdf(x, a)


def _skewnorm_density(x: Any, a: Any) -> Any:
    return 2 * np.exp(normal_log(x) + sp.log_ndtr(a * x))


_skewnorm_op = elementwise(
    _plain_skewnorm_cdf,
    lambda out, x, a: _skewnorm_density(x, a),
    lambda out, x, a: -np.exp(-0.5 * x * x * (1 + a * a)) / (PI * (1 + a * a)),
    domain=[(-2.0, 2.0), (-2.0, 2.0)],
    name="stats.skewnorm_cdf",
)


def _skewnorm_cdf(x: Any, a: Any) -> Any:
    return run(_skewnorm_op, x, a)


def _skew(a: Any) -> Any:
    return math.sqrt(2 / PI) * a / np.sqrt(1 + a * a)


SKEWNORM = Law(
    lambda x, a: LOG_2 + normal_log(x) + sp.log_ndtr(a * x),
    cdf=_skewnorm_cdf,
    sf=lambda x, a: _skewnorm_cdf(-x, -a),
    mean=_skew,
    var=lambda a: 1 - np.square(_skew(a)),
)


def _exponnorm_tail(x: Any, k: Any) -> Any:
    """Return the logarithm of the exponential part's addition to the normal tail."""
    return (0.5 / k - x) / k + sp.log_ndtr(x - 1 / k)


EXPONNORM = Law(
    lambda x, k: _exponnorm_tail(x, k) - np.log(k),
    cdf=lambda x, k: sp.ndtr(x) - np.exp(_exponnorm_tail(x, k)),
    sf=lambda x, k: sp.ndtr(-x) + np.exp(_exponnorm_tail(x, k)),
    mean=lambda k: k,
    var=lambda k: 1 + k * k,
)


def _invgauss_parts(x: Any, mu: Any) -> tuple[Any, Any, Any]:
    """Logarithms of both normal parts, and the argument of the first one."""
    root = 1 / np.sqrt(x)
    first = root * (x / mu - 1)
    return sp.log_ndtr(first), 2 / mu + sp.log_ndtr(-root * (x + mu) / mu), first


def _invgauss_logcdf(x: Any, mu: Any) -> Any:
    a, b, _ = _invgauss_parts(x, mu)
    return a + np.log1p(np.exp(b - a))


def _invgauss_logsf(x: Any, mu: Any) -> Any:
    _, b, first = _invgauss_parts(x, mu)
    a = sp.log_ndtr(-first)
    return a + np.log1p(-np.exp(b - a))


INVGAUSS = Law(
    lambda x, mu: -0.5 * LOG_2PI - 1.5 * np.log(x) - np.square((x - mu) / mu) / (2 * x),
    logcdf=_invgauss_logcdf,
    logsf=_invgauss_logsf,
    mean=lambda mu: mu,
    var=lambda mu: mu**3,
    vanishing=True,
)

# -- truncated ---------------------------------------------------------------------------------


def _log_difference(p: Any, q: Any) -> Any:
    """Return ``log(exp(p) - exp(q))``."""
    return p + np.log1p(-np.exp(q - p))


def _log_mass(a: Any, b: Any) -> Any:
    """Logarithm of the normal probability of (a, b), from the tail that is nearer."""
    left, right = b <= 0, a > 0
    low, high = np.where(left, a, -1.0), np.where(left, b, 0.0)
    below = _log_difference(sp.log_ndtr(high), sp.log_ndtr(low))
    low, high = np.where(right, a, 0.0), np.where(right, b, 1.0)
    above = _log_difference(sp.log_ndtr(-low), sp.log_ndtr(-high))
    around = ~(left | right)
    low, high = np.where(around, a, -1.0), np.where(around, b, 1.0)
    center = np.log1p(-sp.ndtr(low) - sp.ndtr(-high))
    return np.where(left, below, np.where(right, above, center))


def _truncnorm_tail(part: Any, rest: Any, a: Any, b: Any) -> Any:
    """Log of a tail; where it is nearly 1, from the other one."""
    whole = _log_mass(a, b)
    r = part - whole
    full = r > -0.1
    other = np.where(full, rest - whole, -1.0)
    return np.where(full, np.log1p(-np.exp(other)), r)


def _truncnorm_logcdf(x: Any, a: Any, b: Any) -> Any:
    return _truncnorm_tail(_log_mass(a, x), _log_mass(x, b), a, b)


def _truncnorm_logsf(x: Any, a: Any, b: Any) -> Any:
    return _truncnorm_tail(_log_mass(x, b), _log_mass(a, x), a, b)


def _truncnorm_quantile(log_q: Any, log_p: Any, a: Any, b: Any) -> Any:
    """Quantile of probability q = 1 - p, from the tail that is nearer."""
    whole, left = _log_mass(a, b), a < 0
    low = np.logaddexp(sp.log_ndtr(a), log_q + whole)
    high = np.logaddexp(sp.log_ndtr(-b), log_p + whole)
    return np.where(left, 1.0, -1.0) * sp.ndtri_exp(np.where(left, low, high))


def _edges(a: Any, b: Any) -> tuple[Any, Any, Any]:
    """Return the mass, and the standard normal densities at the ends (0 at infinity)."""
    return (
        np.exp(_log_mass(a, b)),
        np.exp(normal_log(np.where(np.isfinite(a), a, 40.0))),
        np.exp(normal_log(np.where(np.isfinite(b), b, 40.0))),
    )


def _truncnorm_entropy(a: Any, b: Any) -> Any:
    mass, at_a, at_b = _edges(a, b)
    a, b = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    return 0.5 * (LOG_2PI + 1) + np.log(mass) + (a * at_a - b * at_b) / (2 * mass)


def _truncnorm_mean(a: Any, b: Any) -> Any:
    mass, at_a, at_b = _edges(a, b)
    return (at_a - at_b) / mass


def _truncnorm_var(a: Any, b: Any) -> Any:
    mass, at_a, at_b = _edges(a, b)
    a, b = np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0)
    return 1 + (a * at_a - b * at_b) / mass - np.square((at_a - at_b) / mass)


TRUNCNORM = Law(
    lambda x, a, b: normal_log(x) - _log_mass(a, b),
    logcdf=_truncnorm_logcdf,
    logsf=_truncnorm_logsf,
    ppf=lambda q, a, b: _truncnorm_quantile(np.log(q), np.log1p(-q), a, b),
    isf=lambda q, a, b: _truncnorm_quantile(np.log1p(-q), np.log(q), a, b),
    entropy=_truncnorm_entropy,
    mean=_truncnorm_mean,
    support=lambda a, b: (a, b),
    var=_truncnorm_var,
)


def _truncexpon_entropy(b: Any) -> Any:
    grown = np.expm1(b)
    return np.log(grown) - (1 + np.exp(b) * (b - 1)) / grown


TRUNCEXPON = Law(
    lambda x, b: -x - np.log(-np.expm1(-b)),
    cdf=lambda x, b: np.expm1(-x) / np.expm1(-b),
    sf=lambda x, b: (np.exp(-b) - np.exp(-x)) / np.expm1(-b),
    ppf=lambda q, b: -np.log1p(q * np.expm1(-b)),
    isf=lambda q, b: -np.log(np.exp(-b) - q * np.expm1(-b)),
    entropy=_truncexpon_entropy,
    support=lambda b: (0.0 * b, b),
    mean=lambda b: 1 - b / np.expm1(b),
    var=lambda b: 1 - b * b * np.exp(b) / np.square(np.expm1(b)),
)


def _loguniform_var(a: Any, b: Any) -> Any:
    width = np.log(b) - np.log(a)
    return (b * b - a * a) / (2 * width) - np.square((b - a) / width)


LOGUNIFORM = Law(
    lambda x, a, b: -np.log(x) - np.log(np.log(b) - np.log(a)),
    cdf=lambda x, a, b: (np.log(x) - np.log(a)) / (np.log(b) - np.log(a)),
    ppf=lambda q, a, b: np.exp(np.log(a) + q * (np.log(b) - np.log(a))),
    entropy=lambda a, b: 0.5 * (np.log(a) + np.log(b)) + np.log(np.log(b) - np.log(a)),
    mean=lambda a, b: (b - a) / (np.log(b) - np.log(a)),
    support=lambda a, b: (a, b),
    var=_loguniform_var,
)
