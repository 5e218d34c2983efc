"""Medians, percentiles and quantiles, with and without nan.

NumPy computes the values. A result is a weighted mean of one or two elements; the
rules find out which, and with what weights, by asking NumPy for the same quantile of
the positions 0, 1, 2, ...: so they agree with every method of every version.

References
----------
- R. J. Hyndman, Y. Fan, "Sample quantiles in statistical packages", The American Statistician 50
  (1996), 361-365.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.op import Op, Opaque, register
from adarray.batching.rules import along
from adarray.core.inplace import plain_value
from adarray.core.protocol import plain_array
from adarray.core.trace import Handle
from adarray.ops.common import normalized_axes, s, weighted, zeros_beside
from adarray.ops.folding import real_dtype, size_along
from adarray.ops.indexing import apply_add_at

# Sorting is as fast as selecting more elements than that.
_SELECTED = 8

# The position of quantile q among n sorted elements is n q + alpha + q (1 - alpha - beta) - 1
# in these methods; in the others it jumps, and the derivative with respect to q is 0.
_ALPHA_BETA = {
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "linear": (1.0, 1.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}


class Selection(NamedTuple):
    """Elements of which quantiles are made: ``(1 - weight) * low + weight * high``.

    Parameters
    ----------
    shape : tuple of int
        Shape of the operand.
    axes : tuple of int
        Permutation of its axes that makes the folded ones the last.
    low, high : ndarray of int, shape (lines, quantiles)
        Places of the elements in their lines.
    weight : array, shape (lines, quantiles)
        An ADArray if the quantiles are one.
    slope : ndarray, shape (lines, quantiles)
        Derivative of `weight` with respect to the quantile.
    """

    shape: tuple[int, ...]
    axes: tuple[int, ...]
    low: Any
    high: Any
    weight: Any
    slope: Any

    @property
    def lines(self) -> tuple[int, int]:
        """Number of lines, and of elements in each."""
        n = self.low.shape[0]
        return n, int(np.prod(self.shape)) // n

    def gather(self, a: Any) -> tuple[Any, Any]:
        """Return the low and the high elements of an array of the operand's shape."""
        flat = np.reshape(np.transpose(a, self.axes), self.lines)
        rows = np.arange(len(self.low))[:, None]
        return flat[rows, self.low], flat[rows, self.high]

    def scatter(self, low: Any, high: Any) -> Any:
        """Return an array of the operand's shape with these elements added into zeros."""
        places = np.concatenate([self.low, self.high], axis=1)
        rows = np.broadcast_to(np.arange(len(places))[:, None], places.shape)
        both = np.concatenate([low, high], axis=1)
        zeros = zeros_beside(plain_value(both), self.lines, both.dtype)
        back = apply_add_at(zeros, both, (rows, places))
        back = np.reshape(back, tuple(self.shape[i] for i in self.axes))
        return np.transpose(back, tuple(int(i) for i in np.argsort(self.axes)))

    def by_line(self, g: Any) -> Any:
        """Give a cotangent of the result the shape (lines, quantiles)."""
        return np.transpose(np.reshape(g, self.low.shape[::-1]))


# -- which elements ------------------------------------------------------------------------------


def _positions(n: int, q: Any, method: Any) -> tuple[Any, Any]:
    """Return the positions of quantiles among n sorted elements, and their slopes in q."""
    if n == 0:
        return np.zeros(q.shape), np.zeros(q.shape)
    positions = np.asarray(np.quantile(np.arange(float(n)), q, method=method))
    if method not in _ALPHA_BETA:
        return positions, np.zeros(q.shape)
    alpha, beta = _ALPHA_BETA[method]
    free = n * q + alpha + q * (1 - alpha - beta) - 1
    return positions, np.where((free >= 0) & (free <= n - 1), n + 1 - alpha - beta, 0.0)


def _sorted_places(flat: Any, before: Any, after: Any) -> tuple[Any, Any]:
    """Return where in each line the elements stand whose ranks are `before` and `after`."""
    ranks = np.unique(np.concatenate([before, after], axis=None))
    if len(ranks) > _SELECTED:
        order = np.argsort(flat, axis=1)
    else:
        order = np.argpartition(flat, ranks, axis=1)
    rows = np.arange(len(flat))[:, None]
    return order[rows, before], order[rows, after]


def _select(a: Any, q: Any, out: Any, axis: Any, method: str, weights: Any, skip: bool) -> Any:
    """Return the `Selection` for quantiles `q`; `a` has elements."""
    axes = normalized_axes(axis, a.ndim)
    order = (*(i for i in range(a.ndim) if i not in axes), *axes)
    n = size_along(a.shape, axis)
    flat = plain_array(a).transpose(order).reshape(-1, n)
    levels = plain_array(q, float).reshape(-1)
    shape = (len(flat), len(levels))
    if weights is not None:
        # The only method with weights picks an element: the first one of that value.
        values = np.reshape(plain_array(out), shape[::-1])
        low = np.stack([np.argmax(flat == v[:, None], axis=1) for v in values], axis=1)
        return Selection(a.shape, order, low, low, np.zeros(shape), np.zeros(shape))
    counts = np.sum(~np.isnan(flat), axis=1) if skip else np.full(len(flat), n)
    positions, slope = np.empty(shape), np.empty(shape)
    for k in np.unique(counts):
        positions[counts == k], slope[counts == k] = _positions(int(k), levels, method)
    last = np.maximum(counts - 1, 0)[:, None]
    before = np.clip(np.floor(positions), 0, np.maximum(last - 1, 0)).astype(np.intp)
    low, high = _sorted_places(flat, before, np.minimum(before + 1, last))
    weight: Any = positions - before
    if isinstance(q, Handle):  # the weight moves with q
        moving: Any = q
        weight = weight + slope * (np.reshape(moving, -1) - levels)
    return Selection(a.shape, order, low, high, weight, slope)


# -- rules ---------------------------------------------------------------------------------------


class Quantile:
    """The rules of one function: quantiles ``q / scale``, with `skip` of what is not nan."""

    def __init__(self, scale: float, skip: bool) -> None:
        self.scale = scale
        self.skip = skip

    def select(self, out: Any, a: Any, q: Any, weights: Any, params: dict[str, Any]) -> Any:
        """Return what the results are made of."""
        if self.scale != 1:
            q = np.true_divide(q, self.scale)
        method = params.get("method", "linear")
        return _select(a, q, out, params.get("axis"), method, weights, self.skip)

    def of_a(self, g: Any, out: Any, a: Any, q: Any, weights: Any, **params: Any) -> Any:
        """Cotangent of `a`."""
        if not a.size:
            return np.zeros_like(a)
        chosen = self.select(out, a, q, weights, params)
        g = chosen.by_line(g)
        weight = chosen.weight.astype(real_dtype(g))
        back = chosen.scatter(g * (1 - weight), g * weight)
        return np.where(np.isnan(a), 0, back) if self.skip else back  # of nothing but nan

    def of_q(self, g: Any, out: Any, a: Any, q: Any, weights: Any, **params: Any) -> Any:
        """Cotangent of `q`: the distance of the two elements, times the elements per unit of q."""
        if not a.size:
            return np.zeros_like(q)
        chosen = self.select(out, a, q, weights, params)
        low, high = chosen.gather(a)
        moved = chosen.by_line(g) * (high - low) * (chosen.slope / self.scale)
        return np.reshape(np.sum(moved, axis=0), np.shape(q))

    def tangent(self, t: Any, out: Any, a: Any, q: Any, weights: Any, **params: Any) -> Any:
        """Tangent of the result for that of `a`."""
        if not a.size:
            return np.zeros_like(out)
        chosen = self.select(out, a, q, weights, params)
        low, high = chosen.gather(np.where(np.isnan(a), 0, t) if self.skip else t)
        weight = chosen.weight.astype(real_dtype(t))
        moved = weighted(low, 1 - weight) + weighted(high, weight)
        return np.reshape(np.transpose(moved), out.shape)

    def tangent_of_q(self, t: Any, out: Any, a: Any, q: Any, weights: Any, **params: Any) -> Any:
        """Tangent of the result for that of `q`."""
        if not a.size:
            return np.zeros_like(out)
        chosen = self.select(out, a, q, weights, params)
        low, high = chosen.gather(a)
        moved = np.reshape(t, -1) * (high - low) * (chosen.slope / self.scale)
        return np.reshape(np.transpose(moved), out.shape)


# -- records -------------------------------------------------------------------------------------


def _median_samples(rng: np.random.Generator) -> list[Any]:
    x = rng.normal(size=(3, 4))
    return [
        s(x),
        s(x, axis=0),
        s(x, axis=1, keepdims=True),
        s(rng.normal(size=(2, 3, 4)), axis=(0, -1)),
        s(x.T[::-1], axis=(1, 0)),
        s(np.float64(0.3)),
        s(np.zeros((2, 0)), axis=0),
    ]


def _holes(samples: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Return samples with one more: an array with nan in it."""

    def more(rng: np.random.Generator) -> list[Any]:
        more_samples = samples(rng)
        x = np.array([[0.3, np.nan, 1.1, -0.4], [0.7, 0.1, 0.4, 0.2], [np.nan, 1.3, -1.0, np.nan]])
        first = more_samples[0]
        return [*more_samples, s(x, *first.args[1:], **{**first.kwargs, "axis": 1})]

    return more


def _quantile_samples(scale: float) -> Callable[[np.random.Generator], list[Any]]:
    def samples(rng: np.random.Generator) -> list[Any]:
        x, y = rng.normal(size=(3, 4)), rng.normal(size=7)
        q = np.array([0.13, 0.51, 0.87]) * scale
        inside = [s(y, q, method=m) for m in _ALPHA_BETA]
        jumps = ("inverted_cdf", "averaged_inverted_cdf", "closest_observation", "lower", "higher",
                 "midpoint", "nearest")  # fmt: skip
        return [
            s(x, q),
            s(x, np.float64(0.3 * scale), axis=0),
            s(x, 0.3 * scale, axis=1, keepdims=True),
            s(rng.normal(size=(2, 3, 4)), q.reshape(1, 3), axis=(0, -1)),
            s(x.T[::-1], [0.2 * scale, 0.9 * scale], axis=0),
            s(y, np.linspace(0.03, 0.99, 12) * scale),
            *inside,
            *(s(y, q, method=m) for m in jumps),
            s(y, np.float64(0.01 * scale), method="hazen"),
            s(x, q, axis=1, method="inverted_cdf", weights=rng.uniform(1, 2, size=(3, 4))),
            s(x.T, q, axis=0, method="inverted_cdf", weights=rng.uniform(1, 2, size=(4, 3))),
            s(np.array([0.3]), q),
            s(np.float64(0.3), np.float64(0.4 * scale)),
        ]

    return samples


def _without_overwriting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` such that it never takes leave to write into its operand."""

    def evaluate(a: Any, *operands: Any, overwrite_input: bool = False, **params: Any) -> Any:
        if operands and operands[-1] is not None:
            params["weights"] = operands[-1]
        return function(a, *operands[:1], **params)

    return evaluate


def _median(name: str, function: Callable[..., Any], skip: bool) -> Op:
    quantile = Quantile(1, skip)

    def of_a(g: Any, out: Any, a: Any, **params: Any) -> Any:
        return quantile.of_a(g, out, a, 0.5, None, **params)

    def tangent(t: Any, out: Any, a: Any, **params: Any) -> Any:
        return quantile.tangent(t, out, a, 0.5, None, **params)

    return register(
        Op(
            name,
            function,
            Opaque(),
            [of_a],
            jvp=[tangent],
            batch=along("all"),
            drops=True,
            samples=_holes(_median_samples) if skip else _median_samples,
            operands=("a",),
            params=("axis", "overwrite_input", "keepdims"),
            evaluate=_without_overwriting(function),
            note="of the middle elements, wherever the sort puts them among equal ones",
        )
    )


def _no_change(g: Any, out: Any, a: Any, q: Any, weights: Any, **_: Any) -> Any:
    """Cotangent of the weights, with which results jump."""
    return np.zeros(np.shape(weights))


def _no_move(t: Any, out: Any, *_: Any, **__: Any) -> Any:
    return np.zeros_like(out)


def _quantile(name: str, function: Callable[..., Any], scale: float, skip: bool) -> Op:
    rules = Quantile(scale, skip)
    samples = _quantile_samples(scale)
    return register(
        Op(
            name,
            function,
            Opaque(),
            [rules.of_a, rules.of_q, _no_change],
            jvp=[rules.tangent, rules.tangent_of_q, _no_move],
            batch=along("all", moved=True),
            drops=True,
            samples=_holes(samples) if skip else samples,
            operands=("a", "q", "weights"),
            params=("axis", "overwrite_input", "method", "keepdims"),
            evaluate=_without_overwriting(function),
            note="in q from the right at its kinks; 0 where a method jumps",
        )
    )


median = _median("median", np.median, skip=False)
nanmedian = _median("nanmedian", np.nanmedian, skip=True)
quantile = _quantile("quantile", np.quantile, 1.0, skip=False)
nanquantile = _quantile("nanquantile", np.nanquantile, 1.0, skip=True)
percentile = _quantile("percentile", np.percentile, 100.0, skip=False)
nanpercentile = _quantile("nanpercentile", np.nanpercentile, 100.0, skip=True)
