"""The laws of the gamma and the beta family."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.scipy._elementwise import sp
from adarray.scipy._special_rules_cdf import student_density
from adarray.scipy._special_rules_gamma import polygamma
from adarray.scipy.stats._law import LOG_2, Law, at, defined

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
    mean=lambda a: defined(a > 1, 1 / (at(a > 1, a, 2.0) - 1)),
    var=lambda a: defined(a > 2, 1 / (np.square(at(a > 2, a, 3.0) - 1) * (at(a > 2, a, 3.0) - 2))),
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
    mean=lambda df: defined(df > 1, 0.0 * df),
    var=lambda df: np.where(
        df > 2, df / (at(df > 2, df, 3.0) - 2), np.where(df > 1, np.inf, np.nan)
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
    mean=lambda n, d: defined(d > 2, d / (at(d > 2, d, 3.0) - 2) + 0 * n),
    var=lambda n, d: defined(d > 4, _f_var(n, at(d > 4, d, 5.0))),
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
    mean=lambda b: defined(b > 1, b / (at(b > 1, b, 2.0) - 1)),
    var=lambda b: defined(b > 2, b / (at(b > 2, b, 3.0) - 2) / np.square(at(b > 2, b, 3.0) - 1)),
)
LOMAX = Law(
    lambda x, c: np.log(c) - (c + 1) * np.log1p(x),
    cdf=lambda x, c: -np.expm1(-c * np.log1p(x)),
    logsf=lambda x, c: -c * np.log1p(x),
    ppf=lambda q, c: np.expm1(-np.log1p(-q) / c),
    isf=lambda q, c: np.expm1(-np.log(q) / c),
    entropy=lambda c: 1 + 1 / c - np.log(c),
    mean=lambda c: defined(c > 1, 1 / (at(c > 1, c, 2.0) - 1)),
    var=lambda c: defined(c > 2, c / (at(c > 2, c, 3.0) - 2) / np.square(at(c > 2, c, 3.0) - 1)),
)
