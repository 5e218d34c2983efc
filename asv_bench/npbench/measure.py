"""Measure every program on every engine; return one report of plain numbers."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asv_bench.fleet import Failed, Fleet, Result
from asv_bench.npbench.engines import PEERS
from asv_bench.npbench.programs import deviation, find

WORKER = Path(__file__).with_name("worker.py")
# How far slopes may be from differences, in double and in single precision.
TOLERANCE = {False: 1e-4, True: 2e-2}
Progress = Callable[[str], None]


def measure(options: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Return the report."""
    programs = find(options.root)
    names = [n for n in programs if not options.programs or n in options.programs]
    pythons = dict.fromkeys(PEERS, options.peer_python)
    engines = ["numpy", *options.engines]
    report: dict[str, Any] = {"sizes": options.sizes, "programs": {}}
    with Fleet(
        engines, options.peer_python, options.threads, options.rounds, progress,
        options.patience, WORKER, pythons, options.budget,
    ) as fleet:  # fmt: skip
        report["engines"] = {n: m.absent or m.version for n, m in fleet.members.items()}
        for name in names:
            rows = report["programs"][name] = {}
            for size in options.sizes:
                if size in programs[name].info["parameters"]:
                    rows[size] = one(fleet, name, str(options.root), size)
        report["others"] = fleet.others
    return report


def one(fleet: Fleet, name: str, root: str, size: str) -> dict[str, Any]:
    """Return the times of one program of one size, and whether its gradients are right."""
    results = fleet.race(size, name, root=root, size=size)
    try:
        differences = fleet.members["numpy"].ask(
            do="differences", name=name, root=root, size=size, budget=min(fleet.budget, 1e6)
        )
        expected = differences["slopes"]
    except Failed as error:
        expected, results["numpy"] = [], Result([], [], [], str(error))
    rows = {engine: figures(r, expected) for engine, r in results.items()}
    for engine, row in rows.items():
        if "median" not in row or row.get("right", True):
            continue
        for other in PEERS:  # of another library
            slopes = results[other].prepared.get("slopes") if other in results else None
            if other != engine and slopes and agree(results[engine].prepared, slopes):
                row["right"], row["by"] = True, other
    return rows


def agree(said: dict[str, Any], slopes: list[tuple[float, float]]) -> bool:
    """Whether slopes of two engines are the same, where steps of differences lead elsewhere."""
    tolerance = TOLERANCE[said["single"]] / 10
    return deviation(said["slopes"], [[x] for x, _ in slopes]) <= tolerance


def figures(r: Result, expected: list[list[float]]) -> dict[str, Any]:
    """Return what a report holds of one engine: times, or the error."""
    if r.error or not r.times:
        return {"error": r.error or "it was not timed"}
    said = r.prepared
    row: dict[str, Any] = {
        "median": r.median,
        "times": [times[0] for times in r.times],
        "others": r.others,
        "first": said["first"],
        "peak": said["peak"],
        "note": said["note"],
    }
    if said["slopes"]:
        row["deviation"] = off = deviation(said["slopes"], expected) if expected else None
        # None where there are no differences to compare it with, of a program that takes long.
        row["right"] = None if off is None else off <= TOLERANCE[said["single"]]
    elif r.prepared["gradients"]:
        return {"error": "it has no floating-point inputs"}
    return row


def ratio(row: dict[str, Any], a: str, b: str) -> float | None:
    """Return `b`'s time in units of `a`'s: the median over rounds that both were in."""
    first, second = row.get(a, {}), row.get(b, {})
    if not first.get("times") or not second.get("times"):
        return None
    return statistics.median(y / x for x, y in zip(first["times"], second["times"], strict=True))
