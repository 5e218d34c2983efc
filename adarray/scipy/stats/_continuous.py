"""The laws of continuous distributions, in their standard form."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.stats

from adarray.dispatch import run
from adarray.scipy._elementwise import elementwise, sp
from adarray.scipy._special_rules_cdf import student_density

from adarray.scipy._special_rules_gamma import polygamma
from adarray.scipy.stats._law import Law, reflected

PI = math.pi
EULER = float(np.euler_gamma)
LOG_2 = math.log(2)
LOG_2PI = math.log(2 * PI)
_ROOT_2 = math.sqrt(2)


def _normal_log(x: Any) -> Any:
    return -0.5 * x * x - 0.5 * LOG_2PI


def _defined(condition: Any, value: Any, other: float = np.inf) -> Any:
    """Return a moment where it exists; the formula is not asked elsewhere."""
    return np.where(condition, value, other)


def _at(condition: Any, parameter: Any, safe: float) -> Any:
    return np.where(condition, parameter, safe)


# -- without shape parameters ------------------------------------------------------------------

NORM = Law(
    _normal_log,
    cdf=lambda x: sp.ndtr(x),
    logcdf=lambda x: sp.log_ndtr(x),
    ppf=lambda q: sp.ndtri(q),
    entropy=lambda: np.float64(0.5 * (LOG_2PI + 1)),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(1.0),
    even=True,
)
EXPON = Law(
    lambda x: -x,
    cdf=lambda x: -np.expm1(-x),
    logsf=lambda x: -x,
    ppf=lambda q: -np.log1p(-q),
    isf=lambda q: -np.log(q),
    entropy=lambda: np.float64(1.0),
    mean=lambda: np.float64(1.0),
    var=lambda: np.float64(1.0),
)
UNIFORM = Law(
    lambda x: 0.0 * x,
    cdf=lambda x: x,
    ppf=lambda q: q,
    entropy=lambda: np.float64(0.0),
    mean=lambda: np.float64(0.5),
    var=lambda: np.float64(1 / 12),
)
CAUCHY = Law(
    lambda x: -math.log(PI) - np.log1p(x * x),
    cdf=lambda x: np.arctan2(1.0, -x) / PI,
    ppf=lambda q: -1 / np.tan(PI * q),
    entropy=lambda: np.float64(math.log(4 * PI)),
    mean=lambda: np.float64(np.nan),
    var=lambda: np.float64(np.nan),
    even=True,
)


def _laplace_cdf(x: Any) -> Any:
    tail = 0.5 * np.exp(-np.abs(x))
    return np.where(x > 0, 1 - tail, tail)


def _laplace_ppf(q: Any) -> Any:
    return np.where(q > 0.5, -np.log(2 * (1 - q)), np.log(2 * q))


LAPLACE = Law(
    lambda x: -LOG_2 - np.abs(x),
    cdf=_laplace_cdf,
    ppf=_laplace_ppf,
    entropy=lambda: np.float64(1 + LOG_2),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(2.0),
    even=True,
)
LOGISTIC = Law(
    lambda x: sp.log_expit(x) + sp.log_expit(-x),
    cdf=lambda x: sp.expit(x),
    logcdf=lambda x: sp.log_expit(x),
    ppf=lambda q: sp.logit(q),
    entropy=lambda: np.float64(2.0),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(PI * PI / 3),
    even=True,
)
GUMBEL_R = Law(
    lambda x: -x - np.exp(-x),
    logcdf=lambda x: -np.exp(-x),
    sf=lambda x: -np.expm1(-np.exp(-x)),
    ppf=lambda q: -np.log(-np.log(q)),
    isf=lambda q: -np.log(-np.log1p(-q)),
    entropy=lambda: np.float64(EULER + 1),
    mean=lambda: np.float64(EULER),
    var=lambda: np.float64(PI * PI / 6),
)
RAYLEIGH = Law(
    lambda x: np.log(x) - 0.5 * x * x,
    cdf=lambda x: -np.expm1(-0.5 * x * x),
    logsf=lambda x: -0.5 * x * x,
    ppf=lambda q: np.sqrt(-2 * np.log1p(-q)),
    isf=lambda q: np.sqrt(-2 * np.log(q)),
    entropy=lambda: np.float64(EULER / 2 + 1 - 0.5 * LOG_2),
    mean=lambda: np.float64(math.sqrt(PI / 2)),
    var=lambda: np.float64((4 - PI) / 2),
)
HALFNORM = Law(
    lambda x: 0.5 * math.log(2 / PI) - 0.5 * x * x,
    cdf=lambda x: sp.erf(x / _ROOT_2),
    sf=lambda x: sp.erfc(x / _ROOT_2),
    logsf=lambda x: LOG_2 + sp.log_ndtr(-x),
    ppf=lambda q: _ROOT_2 * sp.erfinv(q),
    isf=lambda q: -sp.ndtri(q / 2),
    entropy=lambda: np.float64(0.5 * math.log(PI / 2) + 0.5),
    mean=lambda: np.float64(math.sqrt(2 / PI)),
    var=lambda: np.float64(1 - 2 / PI),
)
HALFCAUCHY = Law(
    lambda x: math.log(2 / PI) - np.log1p(x * x),
    cdf=lambda x: 2 / PI * np.arctan(x),
    sf=lambda x: 2 / PI * np.arctan2(1.0, x),
    ppf=lambda q: np.tan(PI / 2 * q),
    isf=lambda q: 1 / np.tan(PI / 2 * q),
    entropy=lambda: np.float64(LOG_2PI),
    mean=lambda: np.float64(np.inf),
    var=lambda: np.float64(np.inf),
)
LEVY = Law(
    lambda x: -0.5 * (LOG_2PI + 3 * np.log(x)) - 0.5 / x,
    cdf=lambda x: sp.erfc(np.sqrt(0.5 / x)),
    sf=lambda x: sp.erf(np.sqrt(0.5 / x)),
    ppf=lambda q: 1 / np.square(sp.ndtri(q / 2)),
    isf=lambda q: 1 / (2 * np.square(sp.erfinv(q))),
    entropy=lambda: np.float64((1 + 3 * EULER + math.log(16 * PI)) / 2),
    mean=lambda: np.float64(np.inf),
    var=lambda: np.float64(np.inf),
    vanishing=True,
)
MAXWELL = Law(
    lambda x: 0.5 * math.log(2 / PI) + 2 * np.log(x) - 0.5 * x * x,
    cdf=lambda x: sp.gammainc(1.5, 0.5 * x * x),
    sf=lambda x: sp.gammaincc(1.5, 0.5 * x * x),
    ppf=lambda q: np.sqrt(2 * sp.gammaincinv(1.5, q)),
    isf=lambda q: np.sqrt(2 * sp.gammainccinv(1.5, q)),
    entropy=lambda: np.float64(EULER + 0.5 * LOG_2PI - 0.5),
    mean=lambda: np.float64(2 * math.sqrt(2 / PI)),
    var=lambda: np.float64(3 - 8 / PI),
)
ARCSINE = Law(
    lambda x: -math.log(PI) - 0.5 * np.log(x) - 0.5 * np.log1p(-x),
    cdf=lambda x: 2 / PI * np.arcsin(np.sqrt(x)),
    ppf=lambda q: np.square(np.sin(PI / 2 * q)),
    entropy=lambda: np.float64(math.log(PI / 4)),
    mean=lambda: np.float64(0.5),
    var=lambda: np.float64(0.125),
)

# -- the gamma family --------------------------------------------------------------------------

GAMMA = Law(
    lambda x, a: sp.xlogy(a - 1, x) - x - sp.gammaln(a),
    cdf=lambda x, a: sp.gammainc(a, x),
    sf=lambda x, a: sp.gammaincc(a, x),
    ppf=lambda q, a: sp.gammaincinv(a, q),
    isf=lambda q, a: sp.gammainccinv(a, q),
    entropy=lambda a: a + sp.gammaln(a) + (1 - a) * sp.psi(a),
    mean=lambda a: a,
    var=lambda a: a,
)
CHI2 = Law(
    lambda x, df: sp.xlogy(df / 2 - 1, x) - x / 2 - sp.gammaln(df / 2) - LOG_2 * df / 2,
    cdf=lambda x, df: sp.gammainc(df / 2, x / 2),
    sf=lambda x, df: sp.gammaincc(df / 2, x / 2),
    ppf=lambda q, df: 2 * sp.gammaincinv(df / 2, q),
    isf=lambda q, df: 2 * sp.gammainccinv(df / 2, q),
    entropy=lambda df: df / 2 + LOG_2 + sp.gammaln(df / 2) + (1 - df / 2) * sp.psi(df / 2),
    mean=lambda df: df,
    var=lambda df: 2 * df,
)
INVGAMMA = Law(
    lambda x, a: -(a + 1) * np.log(x) - sp.gammaln(a) - 1 / x,
    cdf=lambda x, a: sp.gammaincc(a, 1 / x),
    sf=lambda x, a: sp.gammainc(a, 1 / x),
    ppf=lambda q, a: 1 / sp.gammainccinv(a, q),
    isf=lambda q, a: 1 / sp.gammaincinv(a, q),
    entropy=lambda a: a - (a + 1) * sp.psi(a) + sp.gammaln(a),
    mean=lambda a: _defined(a > 1, 1 / (_at(a > 1, a, 2.0) - 1)),
    var=lambda a: _defined(
        a > 2, 1 / (np.square(_at(a > 2, a, 3.0) - 1) * (_at(a > 2, a, 3.0) - 2))
    ),
    vanishing=True,
)
LOGGAMMA = Law(
    lambda x, c: c * x - np.exp(x) - sp.gammaln(c),
    cdf=lambda x, c: sp.gammainc(c, np.exp(x)),
    sf=lambda x, c: sp.gammaincc(c, np.exp(x)),
    ppf=lambda q, c: np.log(sp.gammaincinv(c, q)),
    isf=lambda q, c: np.log(sp.gammainccinv(c, q)),
    entropy=lambda c: sp.gammaln(c) - c * sp.psi(c) + c,
    mean=lambda c: sp.psi(c),
    var=lambda c: polygamma(1, c),
)


def _gennorm_cdf(x: Any, beta: Any) -> Any:
    size = np.abs(x)
    # The tail is taken at 1 for x = 0, where the power of 0 has an infinite slope.
    tail = 0.5 * sp.gammaincc(1 / beta, np.where(size > 0, size, 1.0) ** beta)
    return np.where(x > 0, 1 - tail, np.where(x < 0, tail, 0.5 + _at_zero(x, beta)))


def _at_zero(x: Any, beta: Any) -> Any:
    """Return 0 with the slope of the distribution function at 0."""
    return 0.5 * beta * np.exp(-sp.gammaln(1 / beta)) * np.where(x == 0, x, 0.0)


def _gennorm_ppf(q: Any, beta: Any) -> Any:
    side = np.sign(q - 0.5)
    x = sp.gammainccinv(1 / beta, 1 - np.abs(2 * q - 1))
    return side * np.where(x > 0, x, 1.0) ** (1 / beta)


def _power_of_size(x: Any, beta: Any) -> Any:
    """Return ``|x|**beta``, with slope 0 in beta at 0."""
    return np.abs(x) ** beta


GENNORM = Law(
    lambda x, beta: np.log(0.5 * beta) - sp.gammaln(1 / beta) - _power_of_size(x, beta),
    cdf=_gennorm_cdf,
    ppf=_gennorm_ppf,
    entropy=lambda beta: 1 / beta - np.log(0.5 * beta) + sp.gammaln(1 / beta),
    mean=lambda beta: 0.0 * beta,
    var=lambda beta: np.exp(sp.gammaln(3 / beta) - sp.gammaln(1 / beta)),
    even=True,
)

# -- the beta family ---------------------------------------------------------------------------

BETA = Law(
    lambda x, a, b: sp.xlog1py(b - 1, -x) + sp.xlogy(a - 1, x) - sp.betaln(a, b),
    cdf=lambda x, a, b: sp.betainc(a, b, x),
    sf=lambda x, a, b: sp.betaincc(a, b, x),
    ppf=lambda q, a, b: sp.betaincinv(a, b, q),
    isf=lambda q, a, b: sp.betainccinv(a, b, q),
    entropy=lambda a, b: (
        sp.betaln(a, b) - (a - 1) * sp.psi(a) - (b - 1) * sp.psi(b) + (a + b - 2) * sp.psi(a + b)
    ),
    mean=lambda a, b: a / (a + b),
    var=lambda a, b: a * b / (np.square(a + b) * (a + b + 1)),
)


def _t_entropy(df: Any) -> Any:
    half, more = df / 2, (df + 1) / 2
    return more * (sp.psi(more) - sp.psi(half)) + 0.5 * np.log(df) + sp.betaln(half, 0.5)


STUDENT = Law(
    lambda x, df: np.log(student_density(df, 0.0)) - 0.5 * (df + 1) * np.log1p(x * x / df),
    cdf=lambda x, df: sp.stdtr(df, x),
    ppf=lambda q, df: sp.stdtrit(df, q),
    entropy=_t_entropy,
    mean=lambda df: _defined(df > 1, 0.0 * df),
    var=lambda df: np.where(
        df > 2, df / (_at(df > 2, df, 3.0) - 2), np.where(df > 1, np.inf, np.nan)
    ),
    even=True,
)


def _f_logpdf(x: Any, n: Any, d: Any) -> Any:
    return (
        d / 2 * np.log(d)
        + n / 2 * np.log(n)
        + sp.xlogy(n / 2 - 1, x)
        - (n + d) / 2 * np.log(d + n * x)
        - sp.betaln(n / 2, d / 2)
    )


F = Law(
    _f_logpdf,
    cdf=lambda x, n, d: sp.fdtr(n, d, x),
    sf=lambda x, n, d: sp.fdtrc(n, d, x),
    ppf=lambda q, n, d: sp.fdtri(n, d, q),
    isf=lambda q, n, d: 1 / sp.fdtri(d, n, q),
    entropy=lambda n, d: (
        np.log(d)
        - np.log(n)
        + sp.betaln(n / 2, d / 2)
        + (1 - n / 2) * sp.psi(n / 2)
        - (1 + d / 2) * sp.psi(d / 2)
        + (n + d) / 2 * sp.psi((n + d) / 2)
    ),
    mean=lambda n, d: _defined(d > 2, d / (_at(d > 2, d, 3.0) - 2) + 0 * n),
    var=lambda n, d: _defined(d > 4, _f_var(n, _at(d > 4, d, 5.0))),
)


def _f_var(n: Any, d: Any) -> Any:
    return 2 * d * d * (n + d - 2) / (n * np.square(d - 2) * (d - 4))


POWERLAW = Law(
    lambda x, a: np.log(a) + sp.xlogy(a - 1, x),
    cdf=lambda x, a: x**a,
    sf=lambda x, a: -np.expm1(a * np.log(x)),
    logcdf=lambda x, a: a * np.log(x),
    ppf=lambda q, a: q ** (1 / a),
    entropy=lambda a: 1 - 1 / a - np.log(a),
    mean=lambda a: a / (a + 1),
    var=lambda a: a / (a + 2) / np.square(a + 1),
)
PARETO = Law(
    lambda x, b: np.log(b) - (b + 1) * np.log(x),
    cdf=lambda x, b: -np.expm1(-b * np.log(x)),
    logsf=lambda x, b: -b * np.log(x),
    ppf=lambda q, b: np.exp(-np.log1p(-q) / b),
    isf=lambda q, b: q ** (-1 / b),
    entropy=lambda b: 1 + 1 / b - np.log(b),
    mean=lambda b: _defined(b > 1, b / (_at(b > 1, b, 2.0) - 1)),
    var=lambda b: _defined(b > 2, b / (_at(b > 2, b, 3.0) - 2) / np.square(_at(b > 2, b, 3.0) - 1)),
)
LOMAX = Law(
    lambda x, c: np.log(c) - (c + 1) * np.log1p(x),
    cdf=lambda x, c: -np.expm1(-c * np.log1p(x)),
    logsf=lambda x, c: -c * np.log1p(x),
    ppf=lambda q, c: np.expm1(-np.log1p(-q) / c),
    isf=lambda q, c: np.expm1(-np.log(q) / c),
    entropy=lambda c: 1 + 1 / c - np.log(c),
    mean=lambda c: _defined(c > 1, 1 / (_at(c > 1, c, 2.0) - 1)),
    var=lambda c: _defined(c > 2, c / (_at(c > 2, c, 3.0) - 2) / np.square(_at(c > 2, c, 3.0) - 1)),
)

# -- extremes ----------------------------------------------------------------------------------


def _weibull_mean(c: Any) -> Any:
    return sp.gamma(1 + 1 / c)


WEIBULL_MIN = Law(
    lambda x, c: np.log(c) + sp.xlogy(c - 1, x) - x**c,
    cdf=lambda x, c: -np.expm1(-(x**c)),
    logsf=lambda x, c: -(x**c),
    ppf=lambda q, c: (-np.log1p(-q)) ** (1 / c),
    isf=lambda q, c: (-np.log(q)) ** (1 / c),
    entropy=lambda c: -EULER / c - np.log(c) + EULER + 1,
    mean=_weibull_mean,
    var=lambda c: sp.gamma(1 + 2 / c) - np.square(_weibull_mean(c)),
)


def _log1p_over(y: Any) -> Any:
    """Return ``log1p(y) / y``, smooth at 0: it is 2F1(1, 1; 2; -y)."""
    near = np.abs(y) < 0.3
    small = np.where(near, y, 0.0)
    far = np.where(near, 1.0, y)
    return np.where(near, sp.hyp2f1(1.0, 1.0, 2.0, -small), np.log1p(far) / far)


def _extreme_log(x: Any, c: Any) -> Any:
    """Return ``log1p(-c x) / c``, which is -x at c = 0."""
    return -x * _log1p_over(-c * x)


def _genextreme_logpdf(x: Any, c: Any) -> Any:
    power = _extreme_log(x, c)
    return -np.exp(power) + power - np.log1p(-c * x)


def _genextreme_quantile(log: Any, c: Any) -> Any:
    """Return ``(1 - exp(c log)) / c`` for log of -log q; -log at c = 0."""
    return -log * sp.exprel(c * log)


def _genextreme_support(c: Any) -> tuple[Any, Any]:
    bound = 1 / np.where(c == 0, 1.0, c)
    return np.where(c < 0, bound, -np.inf), np.where(c > 0, bound, np.inf)


def _genextreme_mean(c: Any) -> Any:
    inside = (c > -1) & (c != 0)
    safe = _at(inside, c, 0.5)
    slope = EULER - 0.5 * c * (EULER * EULER + PI * PI / 6)  # near c = 0
    return np.where(inside, (1 - sp.gamma(1 + safe)) / safe, np.where(c == 0, slope, np.inf))


def _genextreme_var(c: Any) -> Any:
    inside = (c > -0.5) & (c != 0)
    safe = _at(inside, c, 0.5)
    spread = (sp.gamma(1 + 2 * safe) - np.square(sp.gamma(1 + safe))) / np.square(safe)
    return np.where(inside, spread, np.where(c == 0, PI * PI / 6, np.inf))


GENEXTREME = Law(
    _genextreme_logpdf,
    logcdf=lambda x, c: -np.exp(_extreme_log(x, c)),
    sf=lambda x, c: -np.expm1(-np.exp(_extreme_log(x, c))),
    ppf=lambda q, c: _genextreme_quantile(np.log(-np.log(q)), c),
    isf=lambda q, c: _genextreme_quantile(np.log(-np.log1p(-q)), c),
    entropy=lambda c: EULER * (1 - c) + 1,
    support=_genextreme_support,
    vanishing=True,
    mean=_genextreme_mean,
    var=_genextreme_var,
)


def _genpareto_var(c: Any) -> Any:
    return 1 / (np.square(1 - c) * (1 - 2 * c))


GENPARETO = Law(
    lambda x, c: -(c + 1) * x * _log1p_over(c * x),
    cdf=lambda x, c: -np.expm1(-x * _log1p_over(c * x)),
    logsf=lambda x, c: -x * _log1p_over(c * x),
    ppf=lambda q, c: -np.log1p(-q) * sp.exprel(-c * np.log1p(-q)),
    isf=lambda q, c: -np.log(q) * sp.exprel(-c * np.log(q)),
    entropy=lambda c: 1.0 + c,
    mean=lambda c: _defined(c < 1, 1 / (1 - _at(c < 1, c, 0.0))),
    var=lambda c: _defined(c < 0.5, _genpareto_var(_at(c < 0.5, c, 0.0))),
)

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
    lambda x, a, b: np.log(b) - 0.5 * np.log1p(x * x) + _normal_log(a + b * np.arcsinh(x)),
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
    return 2 * np.exp(_normal_log(x) + sp.log_ndtr(a * x))


_skewnorm_op = elementwise(
    _plain_skewnorm_cdf,
    lambda out, x, a: _skewnorm_density(x, a),
    lambda out, x, a: -np.exp(-0.5 * x * x * (1 + a * a)) / (PI * (1 + a * a)),
    domain=[(-2.0, 2.0), (-2.0, 2.0)],
    name="skewnorm_cdf",
)


def _skewnorm_cdf(x: Any, a: Any) -> Any:
    return run(_skewnorm_op, x, a)


def _skew(a: Any) -> Any:
    return math.sqrt(2 / PI) * a / np.sqrt(1 + a * a)


SKEWNORM = Law(
    lambda x, a: LOG_2 + _normal_log(x) + sp.log_ndtr(a * x),
    cdf=_skewnorm_cdf,
    sf=lambda x, a: _skewnorm_cdf(-x, -a),
    mean=_skew,
    var=lambda a: 1 - np.square(_skew(a)),
)


def _exponnorm_tail(x: Any, k: Any) -> Any:
    """Return the logarithm of what the exponential part adds to the normal tail."""
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
        np.exp(_normal_log(np.where(np.isfinite(a), a, 40.0))),
        np.exp(_normal_log(np.where(np.isfinite(b), b, 40.0))),
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
    lambda x, a, b: _normal_log(x) - _log_mass(a, b),
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

# -- angles, triangle --------------------------------------------------------------------------

VONMISES = Law(
    lambda x, kappa: kappa * sp.cosm1(x) - LOG_2PI - np.log(sp.i0e(kappa)),
    entropy=lambda kappa: (
        -kappa * sp.i1e(kappa) / sp.i0e(kappa) + LOG_2PI + np.log(sp.i0e(kappa)) + kappa
    ),
)


def _wrapcauchy_cdf(x: Any, c: Any) -> Any:
    ratio, lower = (1 + c) / (1 - c), x < PI
    half = np.where(lower, x, 2 * PI - x) / 2
    part = np.arctan2(ratio * np.sin(half), np.cos(half)) / PI
    return np.where(lower, part, 1 - part)


def _wrapcauchy_ppf(q: Any, c: Any) -> Any:
    ratio, lower = (1 - c) / (1 + c), q < 0.5
    turn = PI * np.where(lower, q, 1 - q)
    part = 2 * np.arctan2(ratio * np.sin(turn), np.cos(turn))
    return np.where(lower, part, 2 * PI - part)


WRAPCAUCHY = Law(
    lambda x, c: np.log1p(-c * c) - LOG_2PI - np.log(1 + c * c - 2 * c * np.cos(x)),
    cdf=_wrapcauchy_cdf,
    ppf=_wrapcauchy_ppf,
    entropy=lambda c: LOG_2PI + np.log1p(-c * c),
)


def _triangle(x: Any, c: Any) -> tuple[Any, Any, Any]:
    """Whether x is on the rising side, and c and 1 - c where they divide."""
    rising = (x < c) | (c == 1)
    return rising, np.where(rising, c, 0.5), np.where(rising, 0.5, 1 - c)


def _triang_logpdf(x: Any, c: Any) -> Any:
    rising, left, right = _triangle(x, c)
    return np.log(np.where(rising, 2 * x / left, 2 * (1 - x) / right))


def _triang_cdf(x: Any, c: Any) -> Any:
    rising, left, right = _triangle(x, c)
    return np.where(rising, x * x / left, 1 - np.square(1 - x) / right)


def _triang_sf(x: Any, c: Any) -> Any:
    rising, left, right = _triangle(x, c)
    return np.where(rising, 1 - x * x / left, np.square(1 - x) / right)


def _triang_ppf(q: Any, c: Any) -> Any:
    rising = q < c
    root = np.sqrt(np.where(rising, c * q, (1 - c) * (1 - q)))
    return np.where(rising, root, 1 - root)


TRIANG = Law(
    _triang_logpdf,
    cdf=_triang_cdf,
    sf=_triang_sf,
    ppf=_triang_ppf,
    entropy=lambda c: 0.5 - LOG_2 + 0.0 * c,
    mean=lambda c: (1 + c) / 3,
    var=lambda c: (1 - c + c * c) / 18,
)

LAWS: dict[str, Law] = {
    "arcsine": ARCSINE, "beta": BETA, "cauchy": CAUCHY, "chi2": CHI2, "expon": EXPON,
    "exponnorm": EXPONNORM, "f": F, "gamma": GAMMA, "genextreme": GENEXTREME,
    "gennorm": GENNORM, "genpareto": GENPARETO, "gumbel_l": reflected(GUMBEL_R),
    "gumbel_r": GUMBEL_R, "halfcauchy": HALFCAUCHY, "halfnorm": HALFNORM,
    "invgamma": INVGAMMA, "invgauss": INVGAUSS, "johnsonsu": JOHNSONSU, "laplace": LAPLACE,
    "levy": LEVY, "loggamma": LOGGAMMA, "logistic": LOGISTIC, "lognorm": LOGNORM,
    "loguniform": LOGUNIFORM, "lomax": LOMAX, "maxwell": MAXWELL, "norm": NORM,
    "pareto": PARETO, "powerlaw": POWERLAW, "rayleigh": RAYLEIGH, "reciprocal": LOGUNIFORM,
    "skewnorm": SKEWNORM, "t": STUDENT, "triang": TRIANG, "truncexpon": TRUNCEXPON,
    "truncnorm": TRUNCNORM, "uniform": UNIFORM, "vonmises": VONMISES,
    "weibull_max": reflected(WEIBULL_MIN), "weibull_min": WEIBULL_MIN, "wrapcauchy": WRAPCAUCHY,
}  # fmt: skip
