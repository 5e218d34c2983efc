"""Discrete distributions, in their continuous parameters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import plain, traced
from adarray.scipy._elementwise import sp
from adarray.scipy.stats._distribution import ScipyDistribution, install

Body = Callable[..., Any]


class DiscreteLaw(NamedTuple):
    """The standard form (loc 0) of a discrete distribution.

    Functions take a count in the support and the shape parameters; `cdf` and `sf` are
    given at whole counts.
    """

    logpmf: Body
    cdf: Body | None = None
    sf: Body | None = None
    entropy: Body | None = None
    mean: Body | None = None
    var: Body | None = None


def _log_choose(n: Any, k: Any) -> Any:
    return sp.gammaln(n + 1) - sp.gammaln(k + 1) - sp.gammaln(n - k + 1)


# -- laws --------------------------------------------------------------------------------------

BERNOULLI = DiscreteLaw(
    lambda k, p: sp.xlogy(k, p) + sp.xlog1py(1 - k, -p),
    cdf=lambda k, p: np.where(k < 1, 1 - p, 1.0),
    sf=lambda k, p: np.where(k < 1, p, 0.0),
    entropy=lambda p: sp.entr(p) + sp.entr(1 - p),
    mean=lambda p: p,
    var=lambda p: p * (1 - p),
)
BINOM: DiscreteLaw = DiscreteLaw(
    lambda k, n, p: _log_choose(n, k) + sp.xlogy(k, p) + sp.xlog1py(n - k, -p),
    cdf=lambda k, n, p: sp.bdtr(k, n, p),
    sf=lambda k, n, p: sp.bdtrc(k, n, p),
    entropy=lambda n, p: _sum_entropy(BINOM, int(np.max(plain(n))), n, p),
    mean=lambda n, p: n * p,
    var=lambda n, p: n * p * (1 - p),
)
NBINOM = DiscreteLaw(
    lambda k, n, p: (
        sp.gammaln(n + k) - sp.gammaln(k + 1) - sp.gammaln(n) + n * np.log(p) + sp.xlog1py(k, -p)
    ),
    cdf=lambda k, n, p: sp.betainc(n, k + 1, p),
    sf=lambda k, n, p: sp.betaincc(n, k + 1, p),
    mean=lambda n, p: n * (1 - p) / p,
    var=lambda n, p: n * (1 - p) / (p * p),
)
POISSON: DiscreteLaw = DiscreteLaw(
    lambda k, mu: sp.xlogy(k, mu) - sp.gammaln(k + 1) - mu,
    cdf=lambda k, mu: sp.pdtr(k, mu),
    sf=lambda k, mu: sp.pdtrc(k, mu),
    entropy=lambda mu: _sum_entropy(POISSON, _poisson_end(plain(mu)), mu),
    mean=lambda mu: mu,
    var=lambda mu: mu,
)
GEOM = DiscreteLaw(
    lambda k, p: sp.xlog1py(k - 1, -p) + np.log(p),
    cdf=lambda k, p: -np.expm1(k * np.log1p(-p)),
    sf=lambda k, p: np.exp(k * np.log1p(-p)),
    entropy=lambda p: -np.log(p) - np.log1p(-p) * (1 - p) / p,
    mean=lambda p: 1 / p,
    var=lambda p: (1 - p) / (p * p),
)


def _betabinom_logpmf(k: Any, n: Any, a: Any, b: Any) -> Any:
    return _log_choose(n, k) + sp.betaln(k + a, n - k + b) - sp.betaln(a, b)


def _betabinom_cdf(k: Any, n: Any, a: Any, b: Any) -> Any:
    """Sum of the probabilities up to k."""
    total: Any = 0.0
    for j in range(int(np.max(plain(k), initial=0)) + 1):
        counted = (j <= k) & (j <= n)
        term = np.exp(_betabinom_logpmf(np.where(counted, j, 0.0), n, a, b))
        total = total + np.where(counted, term, 0.0)
    return total


BETABINOM = DiscreteLaw(
    _betabinom_logpmf,
    cdf=_betabinom_cdf,
    mean=lambda n, a, b: n * a / (a + b),
    var=lambda n, a, b: n * a * b * (a + b + n) / (np.square(a + b) * (a + b + 1)),
)


def _poisson_end(mu: Any) -> int:
    """Return a count whose probability and all later ones are below rounding."""
    top = float(np.max(mu, initial=0.0))
    return int(top + 40 * math.sqrt(top + 1) + 40)


def _sum_entropy(law: DiscreteLaw, last: int, *shapes: Any) -> Any:
    """Return the entropy as the sum over the counts up to `last`."""
    total: Any = 0.0
    n = shapes[0] if law is BINOM else np.inf
    for k in range(last + 1):
        count = np.where(k <= plain(n), float(k), 0.0)
        log = law.logpmf(count, *shapes)
        total = total - np.where(k <= plain(n), np.exp(log) * log, 0.0)
    return total


# -- the distribution --------------------------------------------------------------------------

_METHODS = ("pmf", "logpmf", "cdf", "logcdf", "sf", "logsf", "entropy", "mean", "var", "std")
# Values below and above the support.
_OUTSIDE = {
    "cdf": (0.0, 1.0),
    "sf": (1.0, 0.0),
    "logcdf": (-np.inf, 0.0),
    "logsf": (0.0, -np.inf),
}


class Discrete(ScipyDistribution):
    """A discrete distribution with a law of counts; loc and the variable are constants."""

    variable = "k"

    def __init__(self, scipy: Any, law: DiscreteLaw) -> None:
        super().__init__(scipy, ("loc",))
        self.law = law

    def refusal(self, name: str) -> str:
        """Return why a method has no derivative."""
        if name in ("ppf", "isf", "median"):
            return "a quantile is a count, which has no derivative"
        return super().refusal(name)

    def compute(self, method: str, x: Any, parameters: list[Any]) -> Any:
        """Compute a method of traced values."""
        *shapes, loc = parameters
        if traced(x) or traced(loc):
            raise NotDifferentiableError(
                f"{self.name}.{method}: the variable and loc are counts, which have no derivative; "
                "pass adarray.value_of(k)"
            )
        low, high = self.scipy.support(*map(plain, shapes))
        valid = ~np.isnan(np.asarray(low, float))
        if x is None:
            return np.where(valid, self.moment(method, shapes, plain(loc)), np.nan)
        k = plain(x) - plain(loc)
        safe = np.where(valid, low, 0.0)
        if method in ("pmf", "logpmf"):
            inside = (k >= low) & (k <= high) & (k == np.floor(k)) & valid & np.isfinite(k)
            r = self.law.logpmf(np.where(inside, k, safe), *shapes)
            r = np.exp(r) if method == "pmf" else r
            outside: Any = 0.0 if method == "pmf" else -np.inf
        else:
            inside = (k >= low) & (k < high) & valid
            r = self.tail(method, np.where(inside, np.floor(k), safe), shapes)
            below, above = _OUTSIDE[method]
            outside = np.where(k >= high, above, below)
        r = np.where(inside, r, outside)
        return np.where(valid & ~np.isnan(k), r, np.nan)

    def tail(self, method: str, k: Any, shapes: list[Any]) -> Any:
        """Return the distribution or survival function, or the logarithm of it."""
        name = method.removeprefix("log")
        body = self.law.cdf if name == "cdf" else self.law.sf
        if body is not None:
            r = body(k, *shapes)
        else:
            other = self.law.sf if name == "cdf" else self.law.cdf
            if other is None:
                raise self.missing(method)
            r = 1 - other(k, *shapes)
        return np.log(r) if method != name else r

    def moment(self, method: str, shapes: list[Any], loc: Any) -> Any:
        """Return entropy, mean, variance or standard deviation."""
        body: Body | None = getattr(self.law, "var" if method == "std" else method)
        if body is None:
            raise self.missing(method)
        r = body(*shapes)
        if method == "mean":
            return r + loc
        return np.sqrt(r) if method == "std" else r


install(Discrete, _METHODS)

LAWS: dict[str, DiscreteLaw] = {
    "bernoulli": BERNOULLI,
    "betabinom": BETABINOM,
    "binom": BINOM,
    "geom": GEOM,
    "nbinom": NBINOM,
    "poisson": POISSON,
}


def discrete() -> dict[str, Discrete]:
    """Return the distributions by name."""
    return {n: Discrete(getattr(scipy.stats, n), law) for n, law in LAWS.items()}
