"""Counts in bins: linear in the weights, and with edges that move with the data.

How many elements fall into a bin is piecewise constant; the derivatives are those of
weights, of edges (the ends of a range are the extreme elements) and, with
``density=True``, of the widths of bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.op import Op, Scatter, dynamic, register
from adarray.batching.rules import members
from adarray.core.dispatch import run
from adarray.core.protocol import finish, plain, traced
from adarray.ops.common import composite_if_traced, s
from adarray.ops.creation import asarray

bincount: Op = register(
    Op(
        "bincount",
        np.bincount,
        Scatter(),
        [None, lambda g, out, x, weights, minlength=0: g[x]],
        jvp=[None, lambda t, out, x, weights, minlength=0: run(bincount, x, t, minlength=len(out))],
        samples=lambda rng: [
            s(np.array([0, 3, 1, 1]), rng.normal(size=4)),
            s(np.array([0, 3, 1, 1]), rng.normal(size=4), minlength=6),
            s(np.array([2]), weights=rng.normal(size=1)),
            s(np.array([], int), weights=np.zeros(0), minlength=2),
        ],
        operands=("x", "weights"),
        params=("minlength",),
        dynamic=lambda operands, params: (operands, params),
        batch=members,
        signature="x, /, weights=None, minlength=0",
        note="in the weights",
    )
)


def _sums_by_bin(weights: Any, places: Any, n: int) -> Any:
    """Return the sums of the weights in n bins, in their dtype; bin n is left out."""
    if weights.dtype.kind == "c":
        real, imag = (np.bincount(places, w, n + 1)[:n] for w in (weights.real, weights.imag))
        return (real + 1j * imag).astype(weights.dtype)
    return np.bincount(places, weights, n + 1)[:n].astype(weights.dtype)


sums_by_bin: Op = register(
    Op(
        "sums_by_bin",
        _sums_by_bin,
        Scatter(),
        [lambda g, out, weights, places, n: np.append(g, 0)[places]],
        jvp="linear",
        samples=lambda rng: [
            s(rng.normal(size=4), np.array([0, 3, 1, 1]), 3),
            s(rng.normal(size=2), np.array([0, 0]), 3),
        ],
        operands=("weights",),
        params=("places", "n"),
        batch=members,
        note="the weights of histograms",
    )
)


# -- edges ---------------------------------------------------------------------------------------


def _outer_edges(a: Any, limits: Any) -> tuple[Any, Any]:
    """Return the first and the last edge of equal bins, with NumPy's half around one value."""
    if limits is not None:
        first, last = limits
    elif a.size == 0:
        first, last = 0.0, 1.0
    else:
        first, last = np.min(a), np.max(a)
    if plain(first) == plain(last):
        return first - 0.5, last + 0.5
    return first, last


def _edges(a: Any, bins: Any, limits: Any, known: Any) -> Any:
    """Return the edges as they depend on the arguments; `known` are their values."""
    if np.ndim(plain(bins)) == 1:
        return asarray(bins) if traced(bins) else known
    if not (traced(limits) if limits is not None else traced(a)):
        return known
    return np.linspace(*_outer_edges(a, limits), len(known), dtype=known.dtype)


def _places(values: Any, edges: Any, equal: bool = False) -> Any:
    """Return the bin of each value, and the number of bins for those in none.

    Parameters
    ----------
    values, edges : array
    equal : bool
        Whether the bins have the same width.
    """
    n = len(edges) - 1
    if equal and values.dtype.kind == "f" and values.dtype == edges.dtype:
        # As NumPy does: computed, then moved by one where rounding has missed an edge.
        first, last = edges[0], edges[-1]
        inside = (values >= first) & (values <= last)
        at = (np.where(inside, values, first) - first) / (last - first) * n
        bins = np.minimum(np.astype(at, np.intp), n - 1)
        bins = bins - (values < edges[bins])
        bins = bins + ((values >= edges[bins + 1]) & (bins < n - 1))
        return np.where(inside, bins, n)
    bins = np.searchsorted(edges, values, side="right") - 1
    bins = np.where(values == edges[-1], n - 1, bins)
    # NaN is sorted behind everything.
    return np.where((bins < 0) | (bins >= n), n, bins)


# -- one axis ------------------------------------------------------------------------------------


dynamic(np.histogram, np.histogram_bin_edges)


@composite_if_traced(np.histogram_bin_edges)
def _histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    known = np.histogram_bin_edges(*plain((a, bins, range, weights)))
    return finish(_edges(asarray(a), bins, range, known), None, "histogram_bin_edges")


@composite_if_traced(np.histogram)
def _histogram(
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> Any:
    a = asarray(a)
    counts: Any = None
    if traced(weights):  # of which the sums are computed below
        known = np.histogram_bin_edges(*plain((a, bins, range, weights)))
    else:
        counts, known = np.histogram(*plain((a, bins, range, None, weights)))
    edges = _edges(a, bins, range, known)
    if traced(weights):
        places = _places(plain(a).ravel(), known, np.ndim(plain(bins)) == 0)
        counts = run(sums_by_bin, np.ravel(weights), places=places, n=len(known) - 1)
    if density:
        counts = counts / np.diff(edges).astype(float) / np.sum(counts)
    return finish((counts, edges), None, "histogram")


# -- several axes --------------------------------------------------------------------------------


def _length(bins: Any) -> int | None:
    """Return the length of a sequence, None for a number."""
    return None if np.isscalar(bins) or getattr(bins, "ndim", 1) == 0 else len(bins)


def _columns(sample: Any) -> list[Any]:
    """Return the coordinates of the points of ``histogramdd``."""
    if not hasattr(sample, "shape"):
        return [asarray(x) for x in sample]
    return [sample[:, k] for k in range(sample.shape[1])] if sample.ndim == 2 else [sample]


@composite_if_traced(np.histogramdd)
def _histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> Any:
    # NumPy computes the values and looks at the arguments.
    counts, known = np.histogramdd(*plain((sample, bins, range, None, weights)))
    columns = _columns(sample)
    each = [bins] * len(columns) if _length(bins) is None else list(bins)
    limits = [None] * len(columns) if range is None else list(range)
    edges = [_edges(*part) for part in zip(columns, each, limits, known, strict=True)]
    if traced(weights):
        shape = counts.shape
        places = [
            _places(plain(x), e, np.ndim(plain(b)) == 0)
            for x, e, b in zip(columns, known, each, strict=True)
        ]
        outside = np.any([p == n for p, n in zip(places, shape, strict=True)], axis=0)
        inside = [np.where(outside, 0, p) for p in places]
        flat = np.where(outside, counts.size, np.ravel_multi_index(tuple(inside), shape))
        weights = np.astype(np.ravel(weights), counts.dtype)
        counts = run(sums_by_bin, weights, places=flat, n=counts.size)
        counts = np.reshape(counts, shape)
    if density:
        total = np.sum(counts)
        for k, e in enumerate(edges):
            width = np.diff(e)
            counts = counts / np.reshape(width, (-1,) + (1,) * (len(edges) - 1 - k))
        counts = counts / total
    return finish(counts, None, "histogramdd"), type(known)(
        finish(e, None, "histogramdd") for e in edges
    )


@composite_if_traced(np.histogram2d)
def _histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> Any:
    if len(x) != len(y):
        raise ValueError("x and y must have the same length.")
    if _length(bins) not in (None, 1, 2):
        bins = [bins, bins]  # one list of edges for both
    counts, (across, along) = _histogramdd([x, y], bins, range, density, weights)
    return counts, across, along
