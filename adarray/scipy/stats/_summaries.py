"""Summary statistics of traced data, under the names of `scipy.stats`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.stats

from adarray.base.errors import NotDifferentiableError
from adarray.core.protocol import finish, plain, traced
from adarray.ops.common import normalized_axes
from adarray.scipy._drop_in import (
    REPLACEMENTS,
    UncoveredError,
    array,
    by_original,
    constant,
    holds,
    select,
)
from adarray.scipy._elementwise import sp
from adarray.scipy.stats._distribution import wide

SUMMARIES: dict[str, Callable[..., Any]] = {}


def summary(body: Callable[..., Any]) -> Callable[..., Any]:
    """Put the body in the place of SciPy's function of the same name for traced arguments.

    Results with several parts keep their own type.
    """
    name = body.__name__
    function = getattr(scipy.stats, name)
    signature, honoured = inspect.signature(function), inspect.signature(body).parameters
    sample = next(iter(honoured))

    @functools.wraps(function)
    def either(*args: Any, **kwargs: Any) -> Any:
        if not (holds(args) or holds(kwargs)):
            return function(*args, **kwargs)
        if not (traced(args) or traced(kwargs)):
            r = function(*plain(args), **plain(kwargs))
            return finish(r, None, name) if isinstance(r, (np.ndarray, np.generic)) else r
        bound = signature.bind(*args, **kwargs).arguments
        if "axis" in honoured and not np.ndim(bound[sample]):
            bound[sample] = np.reshape(array(bound[sample]), (1,))
        try:
            rest = select(name, signature, honoured, bound)
        except UncoveredError as error:
            return by_original(function, args, kwargs, error.refusal)
        return body(**rest)

    REPLACEMENTS[function] = SUMMARIES[name] = either
    return either


def _count(a: Any, axis: Any) -> int:
    n = 1
    for i in normalized_axes(axis, np.ndim(a)):
        n *= np.shape(a)[i]
    return n


# -- location and spread -----------------------------------------------------------------------


@summary
def zscore(a: Any, axis: Any = 0, ddof: int = 0) -> Any:
    """As `scipy.stats.zscore`."""
    return zmap(a, a, axis, ddof)


@summary
def zmap(scores: Any, compare: Any, axis: Any = 0, ddof: int = 0) -> Any:
    """As `scipy.stats.zmap`."""
    scores, compare = wide(scores), wide(compare)
    center = np.mean(compare, axis=axis, keepdims=True)
    return (scores - center) / np.std(compare, axis=axis, ddof=ddof, keepdims=True)


@summary
def sem(a: Any, axis: Any = 0, ddof: int = 1, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.sem`."""
    a = wide(a)
    return np.std(a, axis=axis, ddof=ddof, keepdims=keepdims) / np.sqrt(_count(a, axis))


@summary
def variation(a: Any, axis: Any = 0, ddof: int = 0, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.variation`."""
    a = wide(a)
    spread = np.std(a, axis=axis, ddof=ddof, keepdims=keepdims)
    return spread / np.mean(a, axis=axis, keepdims=keepdims)


@summary
def gstd(a: Any, axis: Any = 0, ddof: int = 1, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.gstd`."""
    return np.exp(np.std(np.log(wide(a)), axis=axis, ddof=ddof, keepdims=keepdims))


def _central(a: Any, order: int, axis: Any, center: Any, keepdims: bool) -> Any:
    center = np.mean(a, axis=axis, keepdims=True) if center is None else center
    return np.mean((a - center) ** order, axis=axis, keepdims=keepdims)


@summary
def moment(
    a: Any, order: int = 1, axis: Any = 0, *, center: Any = None, keepdims: bool = False
) -> Any:
    """As `scipy.stats.moment`, of one order."""
    if np.ndim(order):
        raise NotDifferentiableError(
            "moment: the argument order is an array, and one order is differentiated at a time; "
            "call it for each"
        )
    if order != int(order):
        raise ValueError("All elements of `order` must be integral.")
    return _central(wide(a), int(order), axis, center, keepdims)


@summary
def skew(a: Any, axis: Any = 0, bias: bool = True, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.skew`."""
    a, n = wide(a), _count(a, axis)
    spread = _central(a, 2, axis, None, keepdims)
    r = _central(a, 3, axis, None, keepdims) / spread**1.5
    return r if bias or n < 3 else r * np.sqrt((n - 1.0) * n) / (n - 2.0)


@summary
def kurtosis(
    a: Any, axis: Any = 0, fisher: bool = True, bias: bool = True, *, keepdims: bool = False
) -> Any:
    """As `scipy.stats.kurtosis`."""
    a, n = wide(a), _count(a, axis)
    spread = _central(a, 2, axis, None, keepdims)
    r = _central(a, 4, axis, None, keepdims) / np.square(spread)
    if not bias and n > 3:
        r = 1.0 / (n - 2) / (n - 3) * ((n**2 - 1.0) * r - 3 * (n - 1) ** 2.0) + 3.0
    return r - 3 if fisher else r


def _average(a: Any, axis: Any, weights: Any, keepdims: bool) -> Any:
    if weights is None:
        return np.mean(a, axis=axis, keepdims=keepdims)
    weights = wide(weights)
    weights = weights + np.zeros(a.shape)
    total = np.sum(weights, axis=axis, keepdims=keepdims)
    return np.sum(a * weights, axis=axis, keepdims=keepdims) / total


@summary
def gmean(a: Any, axis: Any = 0, weights: Any = None, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.gmean`."""
    return np.exp(_average(np.log(wide(a)), axis, weights, keepdims))


@summary
def hmean(a: Any, axis: Any = 0, *, weights: Any = None, keepdims: bool = False) -> Any:
    """As `scipy.stats.hmean`."""
    return 1 / _average(1 / wide(a), axis, weights, keepdims)


@summary
def pmean(a: Any, p: Any, *, axis: Any = 0, weights: Any = None, keepdims: bool = False) -> Any:
    """As `scipy.stats.pmean`."""
    if np.ndim(p) == 0 and plain(p) == 0:
        return gmean(a, axis=axis, weights=weights, keepdims=keepdims)
    return _average(wide(a) ** p, axis, weights, keepdims) ** (1 / p)


@summary
def iqr(x: Any, axis: Any = None, rng: Any = (25, 75), *, keepdims: bool = False) -> Any:
    """As `scipy.stats.iqr`."""
    x = wide(x)
    low, high = (np.percentile(x, q, axis=axis, keepdims=keepdims) for q in sorted(rng))
    return high - low


@summary
def median_abs_deviation(x: Any, axis: Any = 0, scale: Any = 1.0, *, keepdims: bool = False) -> Any:
    """As `scipy.stats.median_abs_deviation`."""
    x = wide(x)
    scale = 0.6744897501960817 if scale == "normal" else scale
    away = np.abs(x - np.median(x, axis=axis, keepdims=True))
    return np.median(away, axis=axis, keepdims=keepdims) / scale


class ModeResult(NamedTuple):
    """The most frequent value and its count; ties share the derivative equally."""

    mode: Any
    count: Any


@summary
def mode(a: Any, axis: Any = 0, *, keepdims: bool = False) -> ModeResult:
    """As `scipy.stats.mode`."""
    a = wide(a)
    modes = scipy.stats.mode(plain(a), axis=axis, keepdims=True)
    equal = plain(a) == modes.mode
    weights = equal / np.sum(equal, axis=axis, keepdims=True)
    value = np.sum(np.where(equal, a, 0.0) * weights, axis=axis, keepdims=keepdims)
    count = modes.count if keepdims else np.sum(equal, axis=axis)
    return ModeResult(value, count)


class DescribeResult(NamedTuple):
    """The result of `describe`."""

    nobs: int
    minmax: tuple[Any, Any]
    mean: Any
    variance: Any
    skewness: Any
    kurtosis: Any


@summary
def describe(a: Any, axis: Any = 0, ddof: int = 1, bias: bool = True) -> DescribeResult:
    """As `scipy.stats.describe`."""
    a = wide(a)
    return DescribeResult(
        _count(a, axis),
        (np.min(a, axis=axis), np.max(a, axis=axis)),
        np.mean(a, axis=axis),
        np.var(a, axis=axis, ddof=ddof),
        skew(a, axis=axis, bias=bias),
        kurtosis(a, axis=axis, bias=bias),
    )


# -- entropy, transformations ------------------------------------------------------------------


@summary
def entropy(
    pk: Any, qk: Any = None, base: Any = None, axis: Any = 0, *, keepdims: bool = False
) -> Any:
    """As `scipy.stats.entropy`."""
    pk = wide(pk)
    if qk is not None:
        qk = wide(qk)
        shape = np.broadcast_shapes(pk.shape, qk.shape)
        pk, qk = np.broadcast_to(pk, shape), np.broadcast_to(qk, shape)
    p = pk / np.sum(pk, axis=axis, keepdims=True)
    parts = sp.entr(p) if qk is None else sp.rel_entr(p, qk / np.sum(qk, axis=axis, keepdims=True))
    r = np.sum(parts, axis=axis, keepdims=keepdims)
    return r if base is None else r / np.log(base)


@summary
def boxcox_llf(lmb: Any, data: Any) -> Any:
    """As `scipy.stats.boxcox_llf` of one sample."""
    data = wide(data)
    spread = np.var(sp.boxcox(data, lmb), axis=0)
    return (lmb - 1) * np.sum(np.log(data), axis=0) - data.shape[0] / 2 * np.log(spread)


@summary
def boxcox(x: Any, lmbda: Any = None) -> Any:
    """As `scipy.stats.boxcox` with a given lambda."""
    if lmbda is None:
        raise NotDifferentiableError(
            "boxcox: the lambda of greatest likelihood is searched, and is not differentiated; "
            "pass lmbda="
        )
    return sp.boxcox(wide(x), lmbda)


# -- two samples -------------------------------------------------------------------------------


class PearsonRResult(NamedTuple):
    """The result of `pearsonr`."""

    statistic: Any
    pvalue: Any

    @property
    def correlation(self) -> Any:
        """The statistic."""
        return self.statistic


def _unit(x: Any, axis: int) -> Any:
    away = x - np.mean(x, axis=axis, keepdims=True)
    return away / np.sqrt(np.sum(away * away, axis=axis, keepdims=True))


@summary
def pearsonr(x: Any, y: Any, *, axis: int = 0) -> PearsonRResult:
    """As `scipy.stats.pearsonr`, two-sided."""
    x, y = wide(x), wide(y)
    n = x.shape[axis]
    if n < 2 or y.shape[axis] != n:
        raise ValueError("`x` and `y` must have the same length, of at least 2, along `axis`.")
    r = np.clip(np.sum(_unit(x, axis) * _unit(y, axis), axis=axis), -1.0, 1.0)
    if n == 2:
        return PearsonRResult(r, np.ones_like(plain(r)))
    half = n / 2 - 1
    return PearsonRResult(r, 2 * sp.betainc(half, half, (1 - np.abs(r)) / 2))


class _Line(NamedTuple):
    slope: Any
    intercept: Any
    rvalue: Any
    pvalue: Any
    stderr: Any


class LinregressResult(_Line):
    """The result of `linregress`: five values, and ``intercept_stderr``."""

    intercept_stderr: Any


_TINY = 1e-20


@summary
def linregress(x: Any, y: Any) -> LinregressResult:
    """As `scipy.stats.linregress` of two samples, two-sided."""
    x, y = wide(x), wide(y)
    if x.ndim != 1 or x.shape != y.shape or x.shape[0] < 3:
        raise ValueError("linregress: x and y must be vectors of the same length, of at least 3")
    n, x_mean, y_mean = x.shape[0], np.mean(x), np.mean(y)
    dx, dy = x - x_mean, y - y_mean
    xx, xy, yy = np.mean(dx * dx), np.mean(dx * dy), np.mean(dy * dy)
    r = np.clip(xy / np.sqrt(xx * yy), -1.0, 1.0)
    slope, df = xy / xx, n - 2
    t = r * np.sqrt(df / ((1.0 - r + _TINY) * (1.0 + r + _TINY)))
    stderr = np.sqrt((1 - r * r) * yy / xx / df)
    result = LinregressResult(
        slope, y_mean - slope * x_mean, r, 2 * sp.stdtr(float(df), -np.abs(t)), stderr
    )
    result.intercept_stderr = stderr * np.sqrt(xx + x_mean * x_mean)
    return result


SUMMARIES["rankdata"] = constant(scipy.stats.rankdata)
REASONS = dict.fromkeys(
    ["kendalltau", "spearmanr", "somersd", "weightedtau"],
    "its statistic is one of ranks, which are piecewise constant",
)
