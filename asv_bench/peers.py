"""Time adarray and its peers side by side, and print ratios.

    python -m asv_bench.peers --peer-python /path/to/peers/bin/python
    python -m asv_bench.peers --acceptance --output acceptance.md

Every engine runs in a process of its own; they are asked in turn, in rounds, and one
computes at a time. All results are compared with each other before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from asv_bench.acceptance import acceptance
from asv_bench.benchmarks.workloads import INPLACE, KERNELS, WORKLOADS
from asv_bench.engines import ADARRAY, PEERS
from asv_bench.fleet import Fleet, Result, import_times, progress, ratio, runnable
from asv_bench.tables import ratio_text, table, time_text

GROUPS = ("gradients", "kernels", "guard", "inplace", "import")


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a target of ``--acceptance`` is missed, else 0."""
    options = parse(argv)
    ours = [f"adarray-{name}" for name in options.engines]
    engines = ["numpy", *ours, *options.peers]

    with Fleet(engines, options.peer_python, options.threads, options.rounds, progress) as fleet:
        report: dict[str, Any] = {"machine": machine(options.threads), "engines": versions(fleet)}
        if options.acceptance:
            text, report["acceptance"] = acceptance(fleet, ours)
        else:
            text, report["results"] = compare(fleet, ours, options)
        report["machine"]["cores used by others"] = busiest(fleet.others)
    text = f"{heading(report)}\n\n{text}\n"
    print(text)
    for path in options.output:
        content = json.dumps(report, indent=1) if path.suffix == ".json" else text
        path.write_text(content)
    if options.acceptance:
        return 0 if all(row["met"] for row in report["acceptance"]) else 1
    return 0


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    names = list(WORKLOADS)
    parser.add_argument(
        "--peers", nargs="*", choices=list(PEERS), default=["autograd", "mygrad", "torch", "jax"]
    )
    parser.add_argument("--engines", nargs="*", choices=ADARRAY, default=list(ADARRAY))
    parser.add_argument(
        "--groups", nargs="+", choices=GROUPS, default=list(GROUPS), help="what to measure"
    )
    parser.add_argument(
        "--workloads",
        nargs="+",
        metavar="NAME",
        default=names,
        help=f"gradients to take: {', '.join(names)}; part of a name picks all that hold it",
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer-python", type=runnable, default=sys.executable, metavar="PYTHON",
        help="interpreter that has the peers",
    )  # fmt: skip
    parser.add_argument(
        "--acceptance", action="store_true", help="measure the targets and say which are met"
    )
    parser.add_argument(
        "--output", type=Path, action="append", default=[], help="also write FILE.md or FILE.json"
    )
    options = parser.parse_args(argv)
    picked = [n for n in names if any(part in n for part in options.workloads)]
    for part in options.workloads:
        if not any(part in n for n in names):
            parser.error(f"no workload has {part!r} in its name; there are {', '.join(names)}")
    for path in options.output:
        if path.suffix not in (".md", ".json"):
            parser.error(f"--output {path}: the name ends in .md or .json")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    options.workloads = picked
    return options


def machine(threads: int) -> dict[str, Any]:
    """Return the machine and the versions that the figures depend on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [x for x in info.read_text().splitlines() if x.startswith("model name")]
        cpu = lines[0].partition(":")[2].strip() if lines else cpu
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "simd": (simd.get("found") or simd["baseline"])[-1],
        "python": platform.python_version(),
    }


def busiest(others: list[float]) -> str:
    """Say how many cores other processes used during the rounds."""
    if not others:
        return "not measured"
    return f"{statistics.median(others):.2f} (median), {max(others):.2f} (worst round)"


def versions(fleet: Fleet) -> dict[str, str]:
    """Return the version of every engine, or why it is absent."""
    return {
        name: f"absent: {m.absent}" if m.absent else m.version for name, m in fleet.members.items()
    }


def heading(report: dict[str, Any]) -> str:
    """Return a paragraph on the machine and the engines."""
    facts = ", ".join(f"{key} {value}" for key, value in report["machine"].items())
    engines = "\n".join(f"- {name}: {text}" for name, text in report["engines"].items())
    return f"Measured on: {facts}.\n\n{engines}"


def compare(
    fleet: Fleet, ours: list[str], options: argparse.Namespace
) -> tuple[str, dict[str, Any]]:
    """Measure what was asked for; return the tables and the figures."""
    parts: list[str] = []
    figures: dict[str, Any] = {}
    if "gradients" in options.groups:
        results = {name: fleet.race("gradient", name) for name in options.workloads}
        parts += gradient_tables(results, ours, options.peers)
        figures["gradients"] = _figures(results)
    if "kernels" in options.groups:
        engines = ["numpy", *(n for n in ours if n != "adarray-numpy")]
        results = {name: fleet.race("kernel", name, engines) for name in KERNELS}
        parts.append(kernel_table(results, engines))
        figures["kernels"] = _figures(results)
    if "guard" in options.groups:
        results = {"logreg 20000x500": fleet.race("guard", "logreg", ours)}
        parts.append(pair_table("Protection of plain operands: time with / without", results, ours))
        figures["guard"] = _figures(results)
    if "inplace" in options.groups:
        results = {name: fleet.race("inplace", name, ours) for name in INPLACE}
        parts.append(pair_table("Filling arrays: time(4n) / time(n), n = 1000", results, ours))
        figures["inplace"] = _figures(results)
    if "import" in options.groups:
        times = import_times()
        figures["import"] = times
        rows = [[m, time_text(statistics.median(samples))] for m, samples in times.items()]
        parts.append(table("Import", ["module", "median"], rows))
    return "\n\n".join(parts), figures


def _figures(results: dict[str, dict[str, Result]]) -> dict[str, Any]:
    return {
        name: {engine: r._asdict() for engine, r in row.items()} for name, row in results.items()
    }


def gradient_tables(
    results: dict[str, dict[str, Result]], ours: list[str], peers: list[str]
) -> list[str]:
    """Return the table of times, and that of ratios to the peers."""
    columns = ["numpy", *ours, *peers]
    times = [
        [name, *(time_text(row[c].median) if not row[c].error else "-" for c in columns)]
        for name, row in results.items()
    ]
    head = ["workload", "NumPy, value only", *columns[1:]]
    tables = [table("Value and gradient: median times", head, times)]
    ratios = [
        [name, engine, *(ratio_text(ratio(row[engine], row[c])) for c in ["numpy", *peers])]
        for name, row in results.items()
        for engine in ours
        if not row[engine].error
    ]
    if ratios:
        title = "adarray's time / the other's (below 1: adarray is faster)"
        tables.append(table(title, ["workload", "engine", "NumPy, value only", *peers], ratios))
    overhead = [
        [name, *(f"{r.median / WORKLOADS[name].ops * 1e6:.2f}" if not r.error else "-"
                 for r in (row[c] for c in columns[1:]))]
        for name, row in results.items()
        if WORKLOADS[name].ops
    ]  # fmt: skip
    if overhead:
        head = ["workload", *columns[1:]]
        tables.append(table("Microseconds per operation, value and gradient", head, overhead))
    errors = {
        f"- {name}, {c}: {row[c].error}"
        for name, row in results.items()
        for c in columns
        if row[c].error not in ("", "absent")
    }
    if errors:
        tables.append("Not measured:\n\n" + "\n".join(sorted(errors)))
    return tables


def kernel_table(results: dict[str, dict[str, Result]], engines: list[str]) -> str:
    """Return the table of single NumPy functions, a million float64 each."""
    head = ["function", *(f"{e}" for e in engines), *(f"numpy / {e}" for e in engines[1:])]
    rows = [
        [
            name,
            *(time_text(row[e].median) if not row[e].error else "-" for e in engines),
            *(ratio_text(ratio(row["numpy"], row[e])) for e in engines[1:]),
        ]
        for name, row in results.items()
    ]
    return table("One call on 1,000,000 float64, value only", head, rows)


def pair_table(title: str, results: dict[str, dict[str, Result]], engines: list[str]) -> str:
    """Return a table of the ratios measured within one engine."""
    rows = [
        [name, *(ratio_text(statistics.median(row[e].ratios)) if not row[e].error else "-"
                 for e in engines)]
        for name, row in results.items()
    ]  # fmt: skip
    return table(title, ["case", *engines], rows)


if __name__ == "__main__":
    sys.exit(main())
