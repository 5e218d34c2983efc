"""The laws of extremes, angles and the triangle."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.stats

from adarray.base.op import Op
from adarray.core.dispatch import run
from adarray.scipy._elementwise import elementwise, sp
from adarray.scipy._quadrature import in_chunks
from adarray.scipy.stats._law import EULER, LOG_2, LOG_2PI, PI, Law, at, defined

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
    safe = at(inside, c, 0.5)
    slope = EULER - 0.5 * c * (EULER * EULER + PI * PI / 6)  # near c = 0
    return np.where(inside, (1 - sp.gamma(1 + safe)) / safe, np.where(c == 0, slope, np.inf))


def _genextreme_var(c: Any) -> Any:
    inside = (c > -0.5) & (c != 0)
    safe = at(inside, c, 0.5)
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
    mean=lambda c: defined(c < 1, 1 / (1 - at(c < 1, c, 0.0))),
    var=lambda c: defined(c < 0.5, _genpareto_var(at(c < 0.5, c, 0.0))),
)

# -- angles, triangle --------------------------------------------------------------------------

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(96)


def _vonmises_moment(n: int, x: Any, kappa: Any) -> Any:
    """Integral of the density times (cos t - A)**n, up to x, A being the mean of cos t.

    The density is below rounding outside of |t| < t0, which keeps the nodes of Gauss
    and Legendre on its peak.
    """

    def flat(x: Any, kappa: Any) -> Any:
        mean = (sp.i1e(kappa) / sp.i0e(kappa))[:, None]
        start = np.arccos(np.maximum(1 - 40 / np.maximum(kappa, 1e-9), -1.0))
        front = 1 / (2 * PI * sp.i0e(kappa))

        def upto(end: Any) -> Any:
            half = (np.clip(end, -start, start) + start) / 2
            t = half[:, None] * (_NODES + 1) - start[:, None]
            f = np.exp(kappa[:, None] * sp.cosm1(t)) * (np.cos(t) - mean) ** n
            return front * half * np.sum(f * _WEIGHTS, axis=-1)

        periods = np.round(x / (2 * PI))
        rest = upto(x - 2 * PI * periods)
        return rest + periods * upto(np.full_like(x, PI)) if n > 1 else rest

    return in_chunks(flat, x, kappa)


@functools.cache
def _vonmises_op(n: int) -> Op:
    def in_x(out: Any, x: Any, kappa: Any) -> Any:
        density = np.exp(kappa * sp.cosm1(x)) / (2 * PI * sp.i0e(kappa))
        return density * (np.cos(x) - sp.i1e(kappa) / sp.i0e(kappa)) ** n if n else density

    def in_kappa(out: Any, x: Any, kappa: Any) -> Any:
        slope = run(_vonmises_op(n + 1), x, kappa)
        if not n:
            return slope
        mean = sp.i1e(kappa) / sp.i0e(kappa)
        change = 0.5 * (1 + sp.ive(2, kappa) / sp.i0e(kappa)) - mean * mean
        return slope - n * change * run(_vonmises_op(n - 1), x, kappa)

    return elementwise(
        functools.partial(_vonmises_moment, n) if n else _plain_vonmises_cdf,
        in_x,
        in_kappa,
        domain=[(-4.0, 4.0), (0.5, 3.0)],
        name=f"stats.vonmises_moment_{n}",
    )


def _plain_vonmises_cdf(x: Any, kappa: Any) -> Any:
    return scipy.stats.vonmises.cdf(x, kappa)


VONMISES = Law(
    lambda x, kappa: kappa * sp.cosm1(x) - LOG_2PI - np.log(sp.i0e(kappa)),
    cdf=lambda x, kappa: run(_vonmises_op(0), x, kappa),
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
    angle = PI * np.where(lower, q, 1 - q)
    part = 2 * np.arctan2(ratio * np.sin(angle), np.cos(angle))
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
