"""Time `adarray.jit` beside JAX, PyTorch and autograd, and print tables.

    python -m asv_bench.jit --peer-python /path/to/peers/bin/python
    python -m asv_bench.jit --peer-python ... --workloads chain heat20 --rounds 5 --no-compile
    python -m asv_bench.jit --acceptance --peer-python ... --docs docs/jit

Value and gradient of each workload, every engine in a process of its own, asked in turn.
All results are compared with each other before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from asv_bench.benchmarks.jit_workloads import JIT_WORKLOADS, LONG
from asv_bench.fleet import present, progress, runnable
from asv_bench.jit import measure, picture, report, targets
from asv_bench.peers import busiest, machine


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a target of ``--acceptance`` is missed, else 0."""
    options = parse(argv)
    figures = json.loads(options.load.read_text()) if options.load else collect(options)
    print(report.text(figures))
    for path in options.output:
        path.write_text(json.dumps(figures, indent=1) + "\n")
    if options.docs:
        write(figures, options.docs)
    if not options.acceptance:
        return 0
    lines = targets.lines(figures)
    print(f"\n{targets.text(lines)}")
    return 0 if all(line.met for line in lines) else 1


def collect(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; return the report."""
    figures = measure.measure(options, progress)
    figures["machine"] = machine(options.threads)
    figures["machine"]["cores used by others"] = busiest(figures.pop("others"))
    if options.compile:
        progress("recording")
        figures["recording"] = measure.recording(options)
        figures["long name"] = LONG.name
    return figures


def write(figures: dict[str, Any], folder: Path) -> None:
    """Write the tables, the figures and the picture for the documentation."""
    report.write(figures, folder)
    (folder / "speed.json").write_text(json.dumps(figures, indent=1) + "\n")
    picture.draw(figures, [folder / "speed.svg", folder / "speed.png"])


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.jit", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--peers", nargs="*", choices=measure.JIT_PEERS, default=list(measure.JIT_PEERS)
    )
    parser.add_argument(
        "--workloads", nargs="+", metavar="NAME", default=[],
        help=f"{', '.join(JIT_WORKLOADS)}; part of a name picks all that hold it",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer-python", type=runnable, default=sys.executable, metavar="PYTHON",
        help="interpreter that has the peers",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, default=150.0, help="seconds to wait for one engine's answer"
    )
    parser.add_argument(
        "--no-compile", dest="compile", action="store_false",
        help="leave out compile times and peaks of memory",
    )  # fmt: skip
    parser.add_argument(
        "--acceptance", action="store_true", help="say of every target whether it is met"
    )
    parser.add_argument("--output", type=Path, action="append", default=[], help="FILE.json")
    parser.add_argument("--load", type=present, help="a file of --output, instead of measuring")
    parser.add_argument("--docs", type=Path, help="folder for the tables and the picture")
    options = parser.parse_args(argv)
    for part in options.workloads:
        if not any(part in name for name in JIT_WORKLOADS):
            names = ", ".join(JIT_WORKLOADS)
            parser.error(f"no workload has {part!r} in its name; there are {names}")
    options.workloads = measure.default_workloads(options.workloads)
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
