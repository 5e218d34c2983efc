"""Differentiate the programs of NPBench by adarray and by others, and print tables.

    git clone https://github.com/spcl/npbench
    python -m asv_bench.npbench --root npbench --peer-python /path/to/peers/bin/python
    python -m asv_bench.npbench --root npbench --sizes S M --programs trisolv adi --rounds 5

Value and gradient of a weighted sum of all that a program computes, with respect to all its
floating-point arrays. Every engine is in a process of its own, and they are asked in turn.
Gradients are compared with central differences before anything is timed, and with each other.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

from asv_bench.fleet import present, progress, runnable
from asv_bench.npbench import measure, picture, report
from asv_bench.npbench.engines import OURS, PEERS
from asv_bench.npbench.programs import SIZES, find
from asv_bench.peers import busiest, machine


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a gradient of adarray's is wrong, else 0."""
    options = parse(argv)
    figures = loaded(options.load) if options.load else collect(options)
    for path in options.output:
        path.write_text(json.dumps(figures, indent=1) + "\n")
    print(report.text(figures))
    if options.docs:
        report.write(figures, options.docs)
        for size in figures["sizes"]:
            names = [options.docs / f"npbench-{size}{ending}" for ending in (".svg", ".png")]
            picture.draw(figures, size, names)
    rows = [row for sizes in figures["programs"].values() for row in sizes.values()]
    return int(any(row[n].get("right") is False for row in rows for n in OURS if n in row))


def collect(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; return the report."""
    figures = measure.measure(options, progress)
    figures["machine"] = machine(options.threads)
    figures["machine"]["cores used by others"] = busiest(figures.pop("others"))
    return figures


def loaded(paths: list[Path]) -> dict[str, Any]:
    """Return the report in some files: the first one's, with the programs of all."""
    figures: dict[str, Any] = json.loads(paths[0].read_text())
    for path in paths[1:]:
        more = json.loads(path.read_text())
        for name, sizes in more["programs"].items():
            figures["programs"].setdefault(name, {}).update(sizes)
        figures["sizes"] = [s for s in SIZES if s in {*figures["sizes"], *more["sizes"]}]
    figures["programs"] = dict(sorted(figures["programs"].items()))
    rows = [row for sizes in figures["programs"].values() for row in sizes.values()]
    others = [x for row in rows for r in row.values() for x in r.get("others", ())]
    figures["machine"]["cores used by others"] = busiest(others)
    return figures


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.npbench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--root", type=Path, help="a checkout of NPBench")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=["S"])
    parser.add_argument("--programs", nargs="+", metavar="NAME", default=[], help="all by default")
    parser.add_argument(
        "--engines", nargs="+", choices=(*OURS, *PEERS), metavar="NAME",
        default=["adarray-serial", "jit-serial", "jit-openmp", *PEERS],
        help=", ".join((*OURS, *PEERS)),
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--peer-python", type=runnable, default=sys.executable, metavar="PYTHON",
        help="interpreter that has the peers",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds to wait for one engine's answer"
    )
    parser.add_argument("--output", type=Path, action="append", default=[], help="FILE.json")
    parser.add_argument(
        "--budget", type=float, default=math.inf,
        help="seconds after which no further round of a program begins",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=present, nargs="+", metavar="FILE",
        help="files of --output, instead of measuring",
    )  # fmt: skip
    parser.add_argument("--docs", type=Path, help="folder for the tables and the picture")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    if options.load:
        return options
    if options.root is None:
        parser.error("--root is the folder of a checkout of NPBench")
    options.root = options.root.resolve()
    try:
        known = find(options.root)
    except LookupError as error:
        parser.error(str(error))
    for name in options.programs:
        if name not in known:
            parser.error(f"there is no program {name!r}; there are {', '.join(known)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
