"""From the figures of a report to rows, and from rows to tables: text, tsv and rst."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import Any

from asv_bench.benchmarks.jit_workloads import EVERY
from asv_bench.jit.ceilings import Ceilings, ceilings, floor
from asv_bench.jit.measure import OURS, best_peer, ratio
from asv_bench.tables import ratio_text, table, time_text

Row = dict[str, Any]


def rows(report: dict[str, Any]) -> list[Row]:
    """Return one row per workload, in s and bytes; None where something was not measured."""
    rates = report["ceilings"]
    limits = ceilings(rates, rates["products"])
    return [make_row(name, part, limits) for name, part in report["workloads"].items()]


def make_row(name: str, part: dict[str, Any], limits: Ceilings) -> Row:
    """Return the row of one workload."""
    w = EVERY[name]
    gradients, both = part["gradients"], part.get("gradient/value", [])
    ours = gradients.get(OURS, {}).get("median")
    least = floor(w, limits)
    peer = best_peer(gradients)
    return {
        "name": name,
        "kind": w.kind,
        "ours": ours,
        "times": {n: r.get("median") for n, r in gradients.items()},
        "errors": {n: r["error"] for n, r in gradients.items() if r.get("error")},
        "peer": peer,
        "peer time": gradients[peer]["median"] if peer else None,
        "ratio": ratio(gradients, OURS, peer) if peer else None,
        "floor": least.seconds,
        "limit": least.limit,
        "fraction": least.seconds / ours if ours else None,
        "bandwidth": least.memory / ours if ours else None,
        "gradient/value": statistics.median(both) if both else None,
        **compile_row(part, peer),
    }


def compile_row(part: dict[str, Any], peer: str | None) -> Row:
    """Return the figures measured once per process."""
    cold, warm = part.get("cold", {}), part.get("warm", {})
    mine, again = cold.get(OURS, {}), warm.get(OURS, {})
    facts = mine.get("facts", {})
    stages = again.get("facts", {}).get("seconds", {})
    return {
        "kernels": facts.get("kernels"),
        "distinct": facts.get("distinct"),
        "steps": sum(facts[k] for k in ("kernels", "products", "other")) if facts else None,
        "calls": facts.get("calls"),
        "compile": own_seconds(facts),
        "extra": mine.get("extra"),
        "load": stages.get("compile"),
        "extra from disk": again.get("extra"),
        "peer extra": {n: r["extra"] for n, r in cold.items() if n != OURS and "extra" in r},
        "peak": mine.get("peak"),
        "peak first": mine.get("peak first"),
        "peer peak": cold.get(peer, {}).get("peak"),
        "peaks": {n: r["peak"] for n, r in cold.items() if "peak" in r},
    }


def own_seconds(facts: Row) -> float | None:
    """Return the seconds from recording to executable: passes, planning, compiling."""
    if not facts:
        return None
    return float(sum(s for stage, s in facts["seconds"].items() if stage != "trace"))


def geometric_mean(values: list[float]) -> float | None:
    """Return the geometric mean, None of nothing."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def mean_ratio(table_rows: list[Row]) -> float | None:
    """Return the geometric mean of the ratios to the best peers."""
    return geometric_mean([r["ratio"] for r in table_rows if r["ratio"]])


# -- cells --------------------------------------------------------------------------------


def time_cell(seconds: float | None) -> str:
    """Return a time, or a dash."""
    return "-" if seconds is None else time_text(seconds)


def bytes_cell(size: float | None) -> str:
    """Return megabytes, or a dash."""
    return "-" if size is None else f"{size / 1e6:.1f} MB"


def percent_cell(part: float | None) -> str:
    """Return a fraction in percent, or a dash."""
    return "-" if part is None else f"{100 * part:.0f} %"


def count_cell(count: int | None) -> str:
    """Return a count, or a dash."""
    return "-" if count is None else str(count)


SPEED = (
    "workload", "adarray jit", "best peer", "its time", "peer / adarray", "floor", "set by",
    "floor / adarray", "gradient / value",
)  # fmt: skip
COMPILING = (
    "workload", "kernels", "distinct", "recorded calls", "compile, cold", "load from disk",
    "first calls, cold", "first calls, disk", "torch.compile, cold", "jax", "peak memory",
    "best peer's",
)  # fmt: skip


def speed_cells(row: Row) -> list[str]:
    """Return the cells of the table of speed."""
    return [
        row["name"],
        time_cell(row["ours"]),
        row["peer"] or "-",
        time_cell(row["peer time"]),
        ratio_text(row["ratio"]),
        time_cell(row["floor"]),
        row["limit"],
        percent_cell(row["fraction"]),
        ratio_text(row["gradient/value"]),
    ]


def compile_cells(row: Row) -> list[str]:
    """Return the cells of the table of compile times and memory."""
    extra = row["peer extra"]
    return [
        row["name"],
        count_cell(row["kernels"]),
        count_cell(row["distinct"]),
        count_cell(row["calls"]),
        time_cell(row["compile"]),
        time_cell(row["load"]),
        time_cell(row["extra"]),
        time_cell(row["extra from disk"]),
        time_cell(extra.get("torch.compile")),
        time_cell(extra.get("jax")),
        bytes_cell(row["peak"]),
        bytes_cell(row["peer peak"]),
    ]


def peer_cells(row: Row, names: list[str]) -> list[str]:
    """Return the cells of the table of all engines."""
    return [row["name"], *(time_cell(row["times"].get(n)) for n in names)]


def tables(report: dict[str, Any]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Return ``(title, head, rows of cells)`` of every table of a report."""
    measured = rows(report)
    names = list(dict.fromkeys(n for r in measured for n in r["times"]))
    every = [
        ("Value and gradient", list(SPEED), [speed_cells(r) for r in measured]),
        ("Every engine", ["workload", *names], [peer_cells(r, names) for r in measured]),
    ]
    if any(r["compile"] is not None for r in measured):
        long = report.get("long")
        extra = [{"name": report["long name"], **compile_row(long, None)}] if long else []
        cells = [compile_cells(r) for r in [*measured, *extra]]
        every.append(("Compiling, and peak memory", list(COMPILING), cells))
    return every


def failures(report: dict[str, Any]) -> list[str]:
    """Return lines on engines that could not do a workload."""
    return [
        f"{row['name']}, {engine}: {error}"
        for row in rows(report)
        for engine, error in row["errors"].items()
        if error != "absent"
    ]


# -- text ---------------------------------------------------------------------------------


def text(report: dict[str, Any]) -> str:
    """Return all tables as Markdown."""
    measured = rows(report)
    parts = [table(title, head, cells) for title, head, cells in tables(report)]
    mean = mean_ratio(measured)
    parts.append(f"Geometric mean of best peer / adarray jit: {ratio_text(mean)}")
    failed = failures(report)
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts)


def tsv(report: dict[str, Any]) -> str:
    """Return the figures as tab-separated values, in s and bytes."""
    measured = rows(report)
    columns = (
        "name", "kind", "ours", "peer", "peer time", "ratio", "floor", "limit", "fraction",
        "bandwidth", "gradient/value", "kernels", "distinct", "steps", "calls", "compile",
        "load", "extra", "extra from disk", "peak", "peak first", "peer peak",
    )  # fmt: skip
    engines = list(dict.fromkeys(n for r in measured for n in r["times"]))
    lines = ["\t".join([*columns, *engines])]
    for row in measured:
        cells = [row[c] for c in columns] + [row["times"].get(n) for n in engines]
        lines.append("\t".join(_plain(c) for c in cells))
    return "\n".join(lines) + "\n"


def _plain(cell: Any) -> str:
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def rst(report: dict[str, Any]) -> str:
    """Return the tables for the documentation."""
    parts = [f"Measured on: {machine_text(report)}."]
    for title, head, cells in tables(report):
        parts.append(list_table(title, head, cells))
    parts.append(
        "Geometric mean of the best peer's time / adarray's: "
        f"{ratio_text(mean_ratio(rows(report)))}."
    )
    failed = failures(report)
    if failed:
        parts.append("Not measured:\n\n" + "\n".join(f"- {line}" for line in failed))
    return "\n\n".join(parts) + "\n"


def list_table(title: str, head: list[str], cells: list[list[str]]) -> str:
    """Return a reStructuredText table."""
    lines = [f".. list-table:: {title}", "    :header-rows: 1", ""]
    for line in [head, *cells]:
        # Numbers stay on a line with their units.
        whole = [re.sub(r"^([\d.e+]+) ([a-zA-Z%]+)$", "\\1\u00a0\\2", cell) for cell in line]
        lines += [f"    {'*' if i == 0 else ' '} - {cell}" for i, cell in enumerate(whole)]
    return "\n".join(lines)


def machine_text(report: dict[str, Any]) -> str:
    """Return a sentence on the machine, the engines and the ceilings."""
    facts = [f"{key} {value}" for key, value in report["machine"].items()]
    versions = [f"{name} {version}" for name, version in report["engines"].items()]
    rates = report["ceilings"]
    limits = ceilings(rates, rates["products"])
    large = max(limits.copy)
    facts.append(
        f"copy {limits.copy[large] / 1e9:.0f} and read {limits.read[large] / 1e9:.0f} GB/s "
        f"at {large >> 20} MiB"
    )
    facts += [f"{t} products {rate / 1e9:.0f} GFLOP/s" for t, rate in limits.products.items()]
    return ", ".join(facts) + "; " + ", ".join(versions)


def write(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write ``speed.tsv`` and ``speed.rst`` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "speed.tsv", folder / "speed.rst"]
    paths[0].write_text(tsv(report))
    paths[1].write_text(rst(report))
    return paths
