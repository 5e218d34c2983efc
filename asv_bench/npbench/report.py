"""From the figures of a report to tables: Markdown for the terminal, tsv for the documentation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from asv_bench.npbench.measure import ratio
from asv_bench.tables import ratio_text, table, time_text


def cell(row: dict[str, Any]) -> str:
    """Return an engine's time, with what is wrong with it."""
    if "error" in row:
        return "-"
    marks = {True: "", False: " wrong", None: " not checked"}[row.get("right", True)]
    return time_text(row["median"]) + marks + (" eager" if row["note"] else "")


def engines(report: dict[str, Any]) -> list[str]:
    """Return the engines that were there."""
    rows = [r for sizes in report["programs"].values() for r in sizes.values()]
    return [n for n in report["engines"] if any("median" in r.get(n, {}) for r in rows)]


def lines(report: dict[str, Any], size: str) -> list[list[str]]:
    """Return the rows of the table of one size."""
    names = engines(report)
    return [
        [program, *[cell(sizes[size].get(n, {"error": "absent"})) for n in names]]
        for program, sizes in report["programs"].items()
        if size in sizes
    ]


def geometric_mean(report: dict[str, Any], size: str, a: str, b: str) -> tuple[float | None, int]:
    """Return how many times longer `b` takes than `a`, and for how many programs."""
    rows = [sizes[size] for sizes in report["programs"].values() if size in sizes]
    sound = [r for r in rows if all(r.get(n, {}).get("right", n == "numpy") for n in (a, b))]
    ratios = [x for r in sound if (x := ratio(r, a, b)) is not None]
    if not ratios:
        return None, 0
    return math.exp(sum(map(math.log, ratios)) / len(ratios)), len(ratios)


def summary(report: dict[str, Any], size: str) -> list[list[str]]:
    """Return the rows of the table of engines: how many programs, and how fast."""
    rows = [sizes[size] for sizes in report["programs"].values() if size in sizes]
    names = [n for n in engines(report) if n != "numpy"]
    table = []
    for n in names:
        done = [r[n] for r in rows if "median" in r.get(n, {})]
        table.append([
            n,
            str(sum(r["right"] is True for r in done)),
            str(sum(r["right"] is False for r in done)),
            str(sum(bool(r["note"]) for r in done)),
            *[ratio_text(geometric_mean(report, size, n, m)[0]) for m in names],
        ])  # fmt: skip
    return table


def costs(report: dict[str, Any], size: str) -> list[list[str]]:
    """Return the rows of the table of first calls: seconds, and bytes at most, by engine."""
    names = [n for n in engines(report) if n != "numpy"]
    rows = []
    for program, sizes in report["programs"].items():
        done = [sizes.get(size, {}).get(n, {}) for n in names]
        if any("first" in r for r in done):
            times = [time_text(r["first"]) if "first" in r else "-" for r in done]
            peaks = [f"{r['peak'] / 2**20:.0f}" if "first" in r else "-" for r in done]
            rows.append([program, *times, *peaks])
    return rows


def slowest(report: dict[str, Any], size: str, a: str, b: str, most: int = 10) -> list[list[str]]:
    """Return those programs on which `b` takes the least in units of what `a` takes."""
    ratios = [
        (x, program)
        for program, sizes in report["programs"].items()
        if (x := ratio(sizes.get(size, {}), a, b)) is not None
        and sizes[size][b].get("right", False)
    ]
    return [[program, ratio_text(x)] for x, program in sorted(ratios)[:most]]


def _more(report: dict[str, Any], size: str) -> list[str]:
    """Return the tables of first calls, and of the programs that others do better."""
    names = [n for n in engines(report) if n != "numpy"]
    heads = [*[f"{n}, first calls" for n in names], *[f"{n}, MiB" for n in names]]
    tables = [table(f"size {size}: until compiled", ["program", *heads], costs(report, size))]
    for a in names:
        for b in ("jax", "dace"):
            rows = slowest(report, size, a, b) if a.startswith("jit-") and b in names else []
            if rows:
                tables.append(
                    table(f"size {size}: {b} in units of {a}, worst", ["program", b], rows)
                )
    return tables


def text(report: dict[str, Any]) -> str:
    """Return the report as text."""
    names = engines(report)
    others = [n for n in names if n != "numpy"]
    parts = []
    for size in report["sizes"]:
        parts.append(
            table(f"value and gradient, size {size}", ["program", *names], lines(report, size))
        )
        head = ["engine", "right", "wrong", "eager", *[f"{n} takes" for n in others]]
        parts.append(
            table(f"size {size}: times of others in units of its own", head, summary(report, size))
        )
        parts += _more(report, size)
    tables = len(parts)
    parts += [f"{n}: {said}" for n, said in report["engines"].items()]
    for program, sizes in report["programs"].items():
        for size, row in sizes.items():
            for n, r in row.items():
                why = r.get("error") or r.get("note")
                if why and why != "absent":
                    parts.append(f"{program}, {size}, {n}: {why}")
    return "\n\n".join(parts[:tables]) + "\n\n" + "\n".join(parts[tables:])


def write(report: dict[str, Any], folder: Path) -> None:
    """Write the tables for the documentation: a file of times for each size, and a summary."""
    folder.mkdir(parents=True, exist_ok=True)
    names = engines(report)
    others = [n for n in names if n != "numpy"]
    for size in report["sizes"]:
        _tsv(folder / f"npbench-{size}.tsv", [["program", *names], *lines(report, size)])
        head = ["engine", "right", "wrong", "eager", *others]
        _tsv(folder / f"npbench-{size}-summary.tsv", [head, *summary(report, size)])


def _tsv(path: Path, rows: list[list[str]]) -> None:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
