"""The laws of further distributions: powers, folds and mixtures of the common ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.scipy._elementwise import sp
from adarray.scipy._special_rules_gamma import polygamma
from adarray.scipy.stats._law import EULER, LOG_2, LOG_2PI, PI, Law, at, defined, normal_log
from adarray.scipy.stats._laws_normal import INVGAUSS, LOGNORM

_ROOT_2 = math.sqrt(2)


def _fixed(law: Law, shape: float) -> Law:
    """Return the law with its shape parameter fixed."""

    def at_shape(f: Any) -> Any:
        return None if f is None else lambda *x: f(*x, np.float64(shape))

    return Law._make(f if isinstance(f, bool) else at_shape(f) for f in law)


GIBRAT = _fixed(LOGNORM, 1.0)
WALD = _fixed(INVGAUSS, 1.0)

# -- without shape parameters ------------------------------------------------------------------

ANGLIT = Law(
    lambda x: np.log(np.cos(2 * x)),
    cdf=lambda x: np.square(np.sin(x + PI / 4)),
    ppf=lambda q: np.arcsin(np.sqrt(q)) - PI / 4,
    entropy=lambda: np.float64(1 - LOG_2),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(PI * PI / 16 - 0.5),
    even=True,
)
COSINE = Law(
    lambda x: np.log1p(np.cos(x)) - LOG_2PI,
    cdf=lambda x: (PI + x + np.sin(x)) / (2 * PI),
    entropy=lambda: np.float64(math.log(4 * PI) - 1),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(PI * PI / 3 - 2),
    even=True,
)
HALFLOGISTIC = Law(
    lambda x: LOG_2 + sp.log_expit(x) + sp.log_expit(-x),
    cdf=lambda x: np.tanh(x / 2),
    sf=lambda x: 2 * sp.expit(-x),
    ppf=lambda q: 2 * np.arctanh(q),
    isf=lambda q: -sp.logit(0.5 * q),
    entropy=lambda: np.float64(2 - LOG_2),
    mean=lambda: np.float64(2 * LOG_2),
    var=lambda: np.float64(PI * PI / 3 - 4 * LOG_2 * LOG_2),
)
HYPSECANT = Law(
    lambda x: LOG_2 - math.log(PI) - np.logaddexp(x, -x),
    cdf=lambda x: 2 / PI * np.arctan(np.exp(x)),
    ppf=lambda q: np.log(np.tan(PI / 2 * q)),
    entropy=lambda: np.float64(LOG_2PI),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(PI * PI / 4),
    even=True,
)
MOYAL = Law(
    lambda x: -0.5 * (x + np.exp(-x) + LOG_2PI),
    cdf=lambda x: sp.erfc(np.exp(-0.5 * x) / _ROOT_2),
    sf=lambda x: sp.erf(np.exp(-0.5 * x) / _ROOT_2),
    ppf=lambda q: -np.log(2 * np.square(sp.erfcinv(q))),
    isf=lambda q: -np.log(2 * np.square(sp.erfinv(q))),
    mean=lambda: np.float64(EULER + LOG_2),
    var=lambda: np.float64(PI * PI / 2),
)
SEMICIRCULAR = Law(
    lambda x: math.log(2 / PI) + 0.5 * np.log1p(-x * x),
    cdf=lambda x: 0.5 + (x * np.sqrt(1 - x * x) + np.arcsin(x)) / PI,
    entropy=lambda: np.float64(math.log(PI) - 0.5),
    mean=lambda: np.float64(0.0),
    var=lambda: np.float64(0.25),
    even=True,
)

# -- of gamma and beta variables -----------------------------------------------------------------


def _chi_mean(df: Any) -> Any:
    return _ROOT_2 * sp.poch(df / 2, 0.5)


CHI = Law(
    lambda x, df: LOG_2 - 0.5 * LOG_2 * df - sp.gammaln(df / 2) + sp.xlogy(df - 1, x) - 0.5 * x * x,
    cdf=lambda x, df: sp.gammainc(df / 2, 0.5 * x * x),
    sf=lambda x, df: sp.gammaincc(df / 2, 0.5 * x * x),
    ppf=lambda q, df: np.sqrt(2 * sp.gammaincinv(df / 2, q)),
    isf=lambda q, df: np.sqrt(2 * sp.gammainccinv(df / 2, q)),
    mean=_chi_mean,
    var=lambda df: df - np.square(_chi_mean(df)),
)
NAKAGAMI = Law(
    lambda x, nu: LOG_2 + sp.xlogy(nu, nu) - sp.gammaln(nu) + sp.xlogy(2 * nu - 1, x) - nu * x * x,
    cdf=lambda x, nu: sp.gammainc(nu, nu * x * x),
    sf=lambda x, nu: sp.gammaincc(nu, nu * x * x),
    ppf=lambda q, nu: np.sqrt(sp.gammaincinv(nu, q) / nu),
    isf=lambda q, nu: np.sqrt(sp.gammainccinv(nu, q) / nu),
    mean=lambda nu: sp.poch(nu, 0.5) / np.sqrt(nu),
    var=lambda nu: 1 - np.square(sp.poch(nu, 0.5)) / nu,
)
HALFGENNORM = Law(
    lambda x, beta: np.log(beta) - sp.gammaln(1 / beta) - x**beta,
    cdf=lambda x, beta: sp.gammainc(1 / beta, x**beta),
    sf=lambda x, beta: sp.gammaincc(1 / beta, x**beta),
    ppf=lambda q, beta: sp.gammaincinv(1 / beta, q) ** (1 / beta),
    isf=lambda q, beta: sp.gammainccinv(1 / beta, q) ** (1 / beta),
    entropy=lambda beta: 1 / beta - np.log(beta) + sp.gammaln(1 / beta),
)
BETAPRIME = Law(
    lambda x, a, b: sp.xlogy(a - 1, x) - sp.xlog1py(a + b, x) - sp.betaln(a, b),
    cdf=lambda x, a, b: sp.betainc(a, b, x / (1 + x)),
    sf=lambda x, a, b: sp.betainc(b, a, 1 / (1 + x)),
    ppf=lambda q, a, b: sp.betaincinv(a, b, q) / sp.betainccinv(b, a, q),
    isf=lambda q, a, b: sp.betainccinv(a, b, q) / sp.betaincinv(b, a, q),
    mean=lambda a, b: defined(b > 1, a / (at(b > 1, b, 2.0) - 1)),
)


def _dgamma_cdf(x: Any, a: Any) -> Any:
    up = np.where(x > 0, x, 1.0)
    down = np.where(x > 0, 1.0, -x)
    return np.where(x > 0, 0.5 + 0.5 * sp.gammainc(a, up), 0.5 * sp.gammaincc(a, down))


def _dgamma_ppf(q: Any, a: Any) -> Any:
    tail = sp.gammainccinv(a, 2 * np.where(q > 0.5, 1 - q, q))
    return np.where(q > 0.5, tail, -tail)


DGAMMA = Law(
    lambda x, a: sp.xlogy(a - 1, np.abs(x)) - np.abs(x) - LOG_2 - sp.gammaln(a),
    cdf=_dgamma_cdf,
    ppf=_dgamma_ppf,
    mean=lambda a: 0.0 * a,
    var=lambda a: a * (a + 1),
    even=True,
)

# -- logistic and Weibull relatives --------------------------------------------------------------

FISK = Law(
    lambda x, c: np.log(c) + sp.xlogy(c - 1, x) - 2 * np.log1p(x**c),
    cdf=lambda x, c: sp.expit(c * np.log(x)),
    sf=lambda x, c: sp.expit(-c * np.log(x)),
    ppf=lambda q, c: np.exp(sp.logit(q) / c),
    isf=lambda q, c: np.exp(-sp.logit(q) / c),
    entropy=lambda c: 2 - np.log(c),
)
BURR = Law(
    lambda x, c, d: np.log(c) + np.log(d) + sp.xlogy(c * d - 1, x) - sp.xlog1py(d + 1, x**c),
    logcdf=lambda x, c, d: d * sp.log_expit(c * np.log(x)),
    sf=lambda x, c, d: -np.expm1(d * sp.log_expit(c * np.log(x))),
    ppf=lambda q, c, d: np.expm1(-np.log(q) / d) ** (-1 / c),
    isf=lambda q, c, d: np.expm1(-np.log1p(-q) / d) ** (-1 / c),
)
BURR12 = Law(
    lambda x, c, d: np.log(c) + np.log(d) + sp.xlogy(c - 1, x) - sp.xlog1py(d + 1, x**c),
    cdf=lambda x, c, d: -np.expm1(-d * np.log1p(x**c)),
    logsf=lambda x, c, d: -d * np.log1p(x**c),
    ppf=lambda q, c, d: np.expm1(-np.log1p(-q) / d) ** (1 / c),
    isf=lambda q, c, d: np.expm1(-np.log(q) / d) ** (1 / c),
)
GENLOGISTIC = Law(
    lambda x, c: np.log(c) + sp.log_expit(-x) + c * sp.log_expit(x),
    logcdf=lambda x, c: c * sp.log_expit(x),
    sf=lambda x, c: -np.expm1(c * sp.log_expit(x)),
    ppf=lambda q, c: -np.log(np.expm1(-np.log(q) / c)),
    isf=lambda q, c: -np.log(np.expm1(-np.log1p(-q) / c)),
    entropy=lambda c: -np.log(c) + sp.psi(c + 1) + EULER + 1,
    mean=lambda c: EULER + sp.psi(c),
    var=lambda c: PI * PI / 6 + polygamma(1, c),
)
GOMPERTZ = Law(
    lambda x, c: np.log(c) + x - c * np.expm1(x),
    cdf=lambda x, c: -np.expm1(-c * np.expm1(x)),
    logsf=lambda x, c: -c * np.expm1(x),
    ppf=lambda q, c: np.log1p(-np.log1p(-q) / c),
    isf=lambda q, c: np.log1p(-np.log(q) / c),
)
INVWEIBULL = Law(
    lambda x, c: np.log(c) - (c + 1) * np.log(x) - x**-c,
    logcdf=lambda x, c: -(x**-c),
    sf=lambda x, c: -np.expm1(-(x**-c)),
    ppf=lambda q, c: (-np.log(q)) ** (-1 / c),
    isf=lambda q, c: (-np.log1p(-q)) ** (-1 / c),
    entropy=lambda c: 1 + EULER + EULER / c - np.log(c),
    mean=lambda c: defined(c > 1, sp.gamma(1 - 1 / at(c > 1, c, 2.0))),
    vanishing=True,
)


def _exponweib_log(x: Any, c: Any) -> Any:
    return np.log(-np.expm1(-(x**c)))


EXPONWEIB = Law(
    lambda x, a, c: (
        np.log(a) + np.log(c) + sp.xlogy(a - 1, -np.expm1(-(x**c))) - x**c + sp.xlogy(c - 1, x)
    ),
    logcdf=lambda x, a, c: a * _exponweib_log(x, c),
    sf=lambda x, a, c: -np.expm1(a * _exponweib_log(x, c)),
    ppf=lambda q, a, c: (-np.log1p(-(q ** (1 / a)))) ** (1 / c),
    isf=lambda q, a, c: (-np.log(-np.expm1(np.log1p(-q) / a))) ** (1 / c),
)


def _dweibull_cdf(x: Any, c: Any) -> Any:
    # Not of abs(x): its derivative is 0 at 0, where the slope for c = 1 is not.
    tail = 0.5 * np.exp(-(np.where(x > 0, x, -x) ** c))
    return np.where(x > 0, 1 - tail, tail)


def _dweibull_ppf(q: Any, c: Any) -> Any:
    size = (-np.log(2 * np.where(q > 0.5, 1 - q, q))) ** (1 / c)
    return np.where(q > 0.5, size, -size)


DWEIBULL = Law(
    lambda x, c: np.log(c) - LOG_2 + sp.xlogy(c - 1, np.abs(x)) - np.abs(x) ** c,
    cdf=_dweibull_cdf,
    ppf=_dweibull_ppf,
    mean=lambda c: 0.0 * c,
    var=lambda c: sp.gamma(1 + 2 / c),
    even=True,
)


def _asymmetric_cdf(x: Any, k: Any) -> Any:
    right, weight = x >= 0, 1 / (k + 1 / k)
    tail = np.exp(-np.where(right, x, 0.0) * k) * weight / k
    return np.where(right, 1 - tail, np.exp(np.where(right, 0.0, x) / k) * weight * k)


def _asymmetric_ppf(q: Any, k: Any) -> Any:
    weight = k + 1 / k
    right = q >= k / weight
    high = -np.log((1 - q) * weight * k) / k
    return np.where(right, high, np.log(q * weight / k) * k)


LAPLACE_ASYMMETRIC = Law(
    lambda x, k: x * np.where(x >= 0, -k, 1 / k) - np.log(k + 1 / k),
    cdf=_asymmetric_cdf,
    sf=lambda x, k: _asymmetric_cdf(-x, 1 / k),
    ppf=_asymmetric_ppf,
    isf=lambda q, k: -_asymmetric_ppf(q, 1 / k),
    entropy=lambda k: 1 + np.log(k + 1 / k),
    mean=lambda k: 1 / k - k,
    var=lambda k: 1 / (k * k) + k * k,
)

# -- of normal variables -------------------------------------------------------------------------


def _fatigue(q: Any, c: Any) -> Any:
    return 0.25 * np.square(c * q + np.sqrt(np.square(c * q) + 4))


FATIGUELIFE = Law(
    lambda x, c: (
        np.log1p(x)
        - np.square((x - 1) / c) / (2 * x)
        - np.log(2 * c)
        - 0.5 * (LOG_2PI + 3 * np.log(x))
    ),
    cdf=lambda x, c: sp.ndtr((np.sqrt(x) - 1 / np.sqrt(x)) / c),
    sf=lambda x, c: sp.ndtr(-(np.sqrt(x) - 1 / np.sqrt(x)) / c),
    ppf=lambda q, c: _fatigue(sp.ndtri(q), c),
    isf=lambda q, c: _fatigue(-sp.ndtri(q), c),
    mean=lambda c: 1 + 0.5 * c * c,
    var=lambda c: c * c * (1 + 1.25 * c * c),
    vanishing=True,
)
FOLDNORM = Law(
    lambda x, c: (
        0.5 * math.log(2 / PI) - LOG_2 + np.logaddexp(c * x, -c * x) - 0.5 * (x * x + c * c)
    ),
    cdf=lambda x, c: 0.5 * (sp.erf((x - c) / _ROOT_2) + sp.erf((x + c) / _ROOT_2)),
    sf=lambda x, c: sp.ndtr(c - x) + sp.ndtr(-x - c),
)
JOHNSONSB = Law(
    lambda x, a, b: np.log(b) - np.log(x) - np.log1p(-x) + normal_log(a + b * sp.logit(x)),
    cdf=lambda x, a, b: sp.ndtr(a + b * sp.logit(x)),
    sf=lambda x, a, b: sp.ndtr(-(a + b * sp.logit(x))),
    ppf=lambda q, a, b: sp.expit((sp.ndtri(q) - a) / b),
    isf=lambda q, a, b: sp.expit((-sp.ndtri(q) - a) / b),
    vanishing=True,
)
POWERNORM = Law(
    lambda x, c: np.log(c) + normal_log(x) + (c - 1) * sp.log_ndtr(-x),
    cdf=lambda x, c: -np.expm1(c * sp.log_ndtr(-x)),
    logsf=lambda x, c: c * sp.log_ndtr(-x),
    ppf=lambda q, c: -sp.ndtri_exp(np.log1p(-q) / c),
    isf=lambda q, c: -sp.ndtri_exp(np.log(q) / c),
)
ALPHA = Law(
    lambda x, a: normal_log(a - 1 / x) - 2 * np.log(x) - sp.log_ndtr(a),
    cdf=lambda x, a: sp.ndtr(a - 1 / x) / sp.ndtr(a),
    ppf=lambda q, a: 1 / (a - sp.ndtri(q * sp.ndtr(a))),
    vanishing=True,
)
RICE = Law(
    lambda x, b: np.log(x) - 0.5 * np.square(x - b) + np.log(sp.i0e(x * b)),
    cdf=lambda x, b: sp.chndtr(x * x, 2.0, b * b),
    ppf=lambda q, b: np.sqrt(sp.chndtrix(q, 2.0, b * b)),
)


def _ncx2_logpdf(x: Any, df: Any, nc: Any) -> Any:
    order, a, b = df / 2 - 1, np.sqrt(x), np.sqrt(nc)
    log = sp.xlogy(order / 2, x / nc) - 0.5 * np.square(a - b)
    return log + np.log(sp.ive(order, a * b) / 2)


NCX2 = Law(
    _ncx2_logpdf,
    cdf=lambda x, df, nc: sp.chndtr(x, df, nc),
    ppf=lambda q, df, nc: sp.chndtrix(q, df, nc),
    mean=lambda df, nc: df + nc,
    var=lambda df, nc: 2 * (df + 2 * nc),
    vanishing=True,
)


def _norminvgauss_logpdf(x: Any, a: Any, b: Any) -> Any:
    root = np.sqrt(1 + x * x)
    rate = np.sqrt(a * a - b * b)
    log = np.log(a / PI) + np.log(sp.k1e(a * root)) - np.log(root)
    return log + rate + b * x - a * root


NORMINVGAUSS = Law(
    _norminvgauss_logpdf,
    mean=lambda a, b: b / np.sqrt(a * a - b * b),
    var=lambda a, b: a * a / (a * a - b * b) ** 1.5,
)

# -- others --------------------------------------------------------------------------------------

BRADFORD = Law(
    lambda x, c: np.log(c) - np.log(np.log1p(c)) - np.log1p(c * x),
    cdf=lambda x, c: np.log1p(c * x) / np.log1p(c),
    ppf=lambda q, c: np.expm1(q * np.log1p(c)) / c,
    entropy=lambda c: 0.5 * np.log1p(c) - np.log(c / np.log1p(c)),
    mean=lambda c: (c - np.log1p(c)) / (c * np.log1p(c)),
)


def _tukey_logpdf(x: Any, lam: Any) -> Any:
    p = sp.tklmbda(x, lam)
    return -np.log(p ** (lam - 1) + (1 - p) ** (lam - 1))


TUKEYLAMBDA = Law(
    _tukey_logpdf,
    cdf=lambda x, lam: sp.tklmbda(x, lam),
    ppf=lambda q, lam: sp.boxcox(q, lam) - sp.boxcox1p(-q, lam),
    even=True,
)
