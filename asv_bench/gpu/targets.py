"""Targets of the CUDA backend on one GPU, and whether a report meets them."""

from __future__ import annotations

import statistics
from typing import Any

from asv_bench.gpu.engines import OURS, PEERS
from asv_bench.gpu.workloads import BANDWIDTH, GPU_WORKLOADS
from asv_bench.jit.targets import Line, least, most

PRODUCTS = 0.95  # of the ceiling
EAGER = 1.03  # of torch eager's time, the fifteen operations
LONGEST = "chain 1e8"
# How calls are timed: each is waited for, or many in a row are.
WAYS = WAITED, ROW = ("waited", "row")
Figures = dict[str, Any]


def median(figures: Figures, engine: str, way: str = WAITED) -> float | None:
    """Return an engine's median time over the rounds; None if it has none."""
    times = figures.get(engine, {}).get(way)
    return statistics.median(times) if times else None


def best_peer(figures: Figures, way: str = WAITED) -> str | None:
    """Return the peer with the smallest median."""
    medians = {n: m for n in PEERS if (m := median(figures, n, way)) is not None}
    return min(medians, key=medians.__getitem__) if medians else None


def ratio(figures: Figures, ours: str, other: str | None, way: str = WAITED) -> float | None:
    """Return the other's time in units of ours: the median over rounds that both were in."""
    a, b = (figures.get(n, {}).get(way) for n in (ours, other))
    if not a or not b:
        return None
    return statistics.median(y / x for x, y in zip(a, b, strict=True))


def copy_rate(report: Figures) -> float | None:
    """Return the best measured rate of copies, bytes read and written per second."""
    rates = report.get("ceilings", {}).get("torch", {}).get("copy")
    return max(rates.values()) if rates else None


def bandwidth(report: Figures, name: str, ours: str = OURS) -> float | None:
    """Return the fraction of the copy bandwidth that a workload reaches."""
    rate = copy_rate(report)
    took = median(report["workloads"].get(name, {}), ours, ROW)  # as copies are timed
    return GPU_WORKLOADS[name].base.moved / took / rate if rate and took else None


def speed(report: Figures) -> list[Line]:
    """Return how many times as long as ours the best peer takes."""
    checked = []
    for name, w in GPU_WORKLOADS.items():
        figures = report["workloads"].get(name, {})
        peer = best_peer(figures)
        value = ratio(figures, OURS, peer)
        checked.append(least(f"{name}: {peer or 'best peer'} / {OURS}", value, w.target))
    value = bandwidth(report, LONGEST) if LONGEST in report["workloads"] else None
    checked.append(least(f"{LONGEST}: fraction of copy bandwidth", value, BANDWIDTH))
    return checked


def products(report: Figures) -> list[Line]:
    """Return the rates of products in units of the ceilings."""
    limits_of = report.get("ceilings", {})
    limits, ours = (limits_of.get(n, {}).get("products", {}) for n in ("torch", OURS))
    checked = []
    for precision, limit in limits.items():
        mine = ours.get(precision, {})
        value = product_ratio(mine, limit)
        what = f"product of matrices, {precision}: fraction of ceiling"
        checked.append(least(what, value, PRODUCTS))
    return checked


def product_ratio(mine: Figures, limit: Figures) -> float | None:
    """Return a rate in units of the ceiling: the median over rounds."""
    a, b = mine.get("rates"), limit.get("rates")
    return statistics.median(x / y for x, y in zip(a, b, strict=True)) if a and b else None


def operations(report: Figures) -> list[Line]:
    """Return the times of single operations, eager, in units of torch eager's."""
    rows = report.get("fifteen", {}).get("rows", {})
    return [
        most(f"{name}, forward and backward: adarray / torch eager", r["ratio"], EAGER)
        for name, r in rows.items()
    ]


def lines(report: Figures) -> list[Line]:
    """Return every target."""
    return [*speed(report), *products(report), *operations(report)]
