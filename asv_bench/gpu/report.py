"""From the figures of a report to tables: Markdown, tab-separated values and reStructuredText."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asv_bench.gpu.engines import OURS
from asv_bench.gpu.targets import (
    ROW,
    WAITED,
    WAYS,
    bandwidth,
    best_peer,
    copy_rate,
    lines,
    median,
    product_ratio,
    ratio,
)
from asv_bench.gpu.workloads import GPU_WORKLOADS
from asv_bench.jit.report import list_table, percent_cell
from asv_bench.tables import ratio_text, table

Report = dict[str, Any]
Table = tuple[str, list[str], list[list[str]]]


def us(seconds: float | None) -> str:
    """Return microseconds, or a dash."""
    return "-" if seconds is None else f"{1e6 * seconds:.4g}"


def names_of(report: Report) -> list[str]:
    """Return the engines that measured something, in order."""
    measured = {
        n for part in report["workloads"].values() for n, f in part.items() if f.get(WAITED)
    }
    return [n for n in report["engines"] if n in measured]


def speed(report: Report) -> Table:
    """Return the table of ours beside the best peer."""
    head = ["workload", OURS, "best peer", "its time", "peer / adarray", "target"]
    head += [f"in a row: {OURS}", "best peer", "its time", "peer / adarray"]
    head += ["share of copy bandwidth"]
    rows = []
    for name, part in report["workloads"].items():
        w = GPU_WORKLOADS[name]
        memory = w.base.kind in ("elementwise", "memory") and not w.long
        share = percent_cell(bandwidth(report, name) if memory else None)
        cells = _beside(part, WAITED)
        rows.append([name, *cells, f"{w.target:g}", *_beside(part, ROW), share])
    return "Value and gradient, or a step of gradient descent: microseconds", head, rows


def _beside(part: dict[str, Any], way: str) -> list[str]:
    """Return our time, the best peer, its time and their ratio."""
    peer = best_peer(part, way)
    theirs = median(part, peer, way) if peer else None
    return [us(median(part, OURS, way)), peer or "-", us(theirs),
            ratio_text(ratio(part, OURS, peer, way))]  # fmt: skip


def engines(report: Report, way: str) -> Table:
    """Return the table of all engines."""
    names = names_of(report)
    rows = [
        [name, *(us(median(part, n, way)) for n in names)]
        for name, part in report["workloads"].items()
    ]
    how = {WAITED: "each call waited for", ROW: "calls in a row"}[way]
    return f"Every engine, {how}: microseconds", ["workload", *names], rows


def ceilings(report: Report) -> Table | None:
    """Return the table of products of matrices."""
    limits_of = report.get("ceilings", {})
    limits, ours = (limits_of.get(n, {}).get("products", {}) for n in ("torch", OURS))
    if not limits:
        return None
    head = ["precision", "ceiling (torch), TFLOP/s", "its error", "adarray, TFLOP/s", "its error",
            "adarray / ceiling"]  # fmt: skip
    rows = []
    for precision, limit in limits.items():
        mine = ours.get(precision, {})
        rate = mine.get("rate")
        rows.append([
            precision,
            f"{limit['rate'] / 1e12:.4g}" if "rate" in limit else "-",
            f"{limit['relative error']:.1e}" if "rate" in limit else "-",
            f"{rate / 1e12:.4g}" if rate else "-",
            f"{mine['relative error']:.1e}" if rate else "-",
            ratio_text(product_ratio(mine, limit)),
        ])  # fmt: skip
    return "Products of 8192 x 8192 matrices", head, rows


def fifteen(report: Report) -> Table | None:
    """Return the table of single operations, eager."""
    figures = report.get("fifteen")
    if not figures:
        return None
    head = ["operation", "adarray", "torch", "adarray / torch", "forward alone", "torch forward"]
    rows = [
        [
            name,
            f"{r['adarray']:.1f}", f"{r['torch']:.1f}", f"{r['ratio']:.2f}",
            f"{r['forward']:.1f}", f"{r['torch forward']:.1f}",
        ]
        for name, r in figures["rows"].items()
    ]  # fmt: skip
    size = figures["size"]
    return f"Eager, {size} x {size}, forward and backward: microseconds", head, rows


def tables(report: Report) -> list[Table]:
    """Return every table."""
    every = [speed(report), *(engines(report, way) for way in WAYS), ceilings(report),
             fifteen(report), targets(report)]  # fmt: skip
    return [t for t in every if t is not None and t[2]]


def targets(report: Report) -> Table:
    """Return the targets, and whether they are met."""
    rows = [
        [x.what, x.target, "-" if x.figure is None else f"{x.figure:.3g}",
         {"PASS": "met", "SHORT": "short"}.get(x.verdict, "not measured")]
        for x in lines(report)
    ]  # fmt: skip
    return "Targets", ["what", "target", "figure", "verdict"], rows


def failures(report: Report) -> list[str]:
    """Return lines on engines that could not do a workload."""
    return [
        f"{name}, {engine}: {figures['error']}"
        for name, part in report["workloads"].items()
        for engine, figures in part.items()
        if "error" in figures
    ]


def machine(report: Report) -> str:
    """Return a sentence on the machine and the engines."""
    facts = [f"{key} {value}" for key, value in report.get("machine", {}).items()]
    rate = copy_rate(report)
    if rate:
        facts.append(f"copies at {rate / 1e12:.2f} TB/s (bytes read and written)")
    versions = [f"{name} {version}" for name, version in report["engines"].items()]
    return ", ".join(facts) + "; " + ", ".join(versions)


def text(report: Report) -> str:
    """Return all tables as Markdown."""
    parts = [machine(report), *(table(*t) for t in tables(report))]
    met = [x.met for x in lines(report)]
    parts.append(f"{sum(met)} of {len(met)} targets met.")
    failed = failures(report)
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts)


def rst(report: Report) -> str:
    """Return all tables for the documentation."""
    parts = [f"Measured on: {machine(report)}."]
    parts += [list_table(*t) for t in tables(report)]
    met = [x.met for x in lines(report)]
    parts.append(f"{sum(met)} of {len(met)} targets met.")
    failed = failures(report)
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts) + "\n"


def tsv(report: Report) -> str:
    """Return the medians in s, as tab-separated values: calls waited for, and in a row."""
    names = names_of(report)
    rows = [["workload", "calls", *names]]
    for name, part in report["workloads"].items():
        for way in WAYS:
            medians = (median(part, n, way) for n in names)
            rows.append([name, way, *("" if m is None else f"{m:.6g}" for m in medians)])
    return "".join("\t".join(row) + "\n" for row in rows)


def write(report: Report, folder: Path) -> None:
    """Write ``speed.rst``, ``speed.tsv`` and ``speed.json`` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "speed.rst").write_text(rst(report))
    (folder / "speed.tsv").write_text(tsv(report))
    (folder / "speed.json").write_text(json.dumps(report, indent=1) + "\n")
