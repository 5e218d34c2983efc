"""What a run of random programs says: ratios to the best peer, percentiles, the worst programs."""

from __future__ import annotations

import math
import statistics
from typing import Any

from asv_bench.tables import table

Report = dict[str, Any]
WAYS = {"waited": "each call waited for", "row": "calls in a row"}
PERCENTILES = (0, 10, 25, 50, 75, 90)


def ratio(figures: dict[str, Any], ours: str, way: str) -> float | None:
    """Return the best peer's time over ours: the median of the rounds; None without either."""
    times = figures["times"]
    own = times.get(ours, {}).get(way)
    peers = [t[way] for e, t in times.items() if e != ours]
    if not own or not peers:
        return None
    best = min(peers, key=statistics.median)
    return statistics.median(p / o for p, o in zip(best, own, strict=True))


def ratios(report: Report, way: str) -> dict[str, float]:
    """Return the ratio of each program that has one, the worst first."""
    made = {n: ratio(p, report["ours"], way) for n, p in report["programs"].items()}
    known = {n: r for n, r in made.items() if r is not None}
    return dict(sorted(known.items(), key=lambda item: item[1]))


def percentile(ordered: list[float], percent: float) -> float:
    """Return the number below which so many percent of ordered numbers are."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def summary(report: Report) -> str:
    """Return the table of geometric means and percentiles."""
    rows = []
    for way, words in WAYS.items():
        ordered = list(ratios(report, way).values())
        if not ordered:
            continue
        mean = math.exp(statistics.fmean(map(math.log, ordered)))
        shown = [percentile(ordered, p) for p in PERCENTILES]
        rows.append([words, str(len(ordered)), *(f"{x:.2f}" for x in (mean, *shown))])
    head = ["best peer over ours", "programs", "geometric mean", "worst"]
    head += [f"{p} %" for p in PERCENTILES[1:]]
    return table(f"{report['ours']} on random programs", head, rows)


def failures(report: Report) -> str:
    """Return the programs that an engine did not run, or ran with another result."""
    rows = [
        [name, engine, error[:100]]
        for name, p in report["programs"].items()
        for engine, error in p["errors"].items()
    ]
    return table("Not timed", ["program", "engine", "why"], rows) if rows else ""


def worst(report: Report, count: int) -> str:
    """Return the texts of the programs with the lowest ratios, and their times."""
    parts = []
    for name, r in list(ratios(report, "waited").items())[:count]:
        p = report["programs"][name]
        times = ", ".join(
            f"{e} {1e6 * statistics.median(t['waited']):.0f} us" for e, t in p["times"].items()
        )
        parts.append(f"{name}: {r:.2f} ({times})\n\n{p['text']}")
    return "\n".join(parts)


def text(report: Report, count: int) -> str:
    """Return the whole report."""
    return "\n\n".join(x for x in (summary(report), failures(report), worst(report, count)) if x)
