"""The laws of distributions without shape parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.scipy._elementwise import sp
from adarray.scipy.stats._law import EULER, LOG_2, LOG_2PI, PI, Law, normal_log

_ROOT_2 = math.sqrt(2)

# -- without shape parameters ------------------------------------------------------------------

NORM = Law(
    normal_log,
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
    # Not of abs(x): its derivative is 0 at 0, where the distribution function has a slope.
    tail = 0.5 * np.exp(np.where(x > 0, -x, x))
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
