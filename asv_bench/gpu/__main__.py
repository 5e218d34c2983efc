"""Time the CUDA backend beside PyTorch and JAX on one GPU, and print tables.

    python -m asv_bench.gpu --docs docs/cuda
    python -m asv_bench.gpu --workloads chain mlp --rounds 3 --peers jax --output speed.json

Value and gradient in float32, and steps of gradient descent; every engine in a process of
its own, asked in turn. Results are compared with each other before anything is timed, and the
rates of copies and of matrix products are measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from asv_bench.fleet import present, progress, runnable
from asv_bench.gpu import measure, picture, report
from asv_bench.gpu.engines import OWN, PEERS
from asv_bench.gpu.targets import lines
from asv_bench.gpu.workloads import GPU_WORKLOADS


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a target of ``--acceptance`` is missed, else 0."""
    options = parse(argv)
    figures = json.loads(options.load.read_text()) if options.load else collect(options)
    if options.fifteen and options.fifteen.exists():  # it is a step of its own, and may fail
        figures["fifteen"] = json.loads(options.fifteen.read_text())
    print(report.text(figures))
    if options.output:
        options.output.write_text(json.dumps(figures, indent=1) + "\n")
    if options.docs:
        report.write(figures, options.docs)
        picture.draw(figures, [options.docs / "speed.svg", options.docs / "speed.png"])
    if not options.acceptance:
        return 0
    return 0 if all(line.met for line in lines(figures)) else 1


def collect(options: argparse.Namespace) -> dict[str, Any]:
    """Measure; return the report."""
    return measure.measure(options, progress)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m asv_bench.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--engines", nargs="*", choices=list(OWN), default=list(OWN))
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), default=list(PEERS))
    parser.add_argument(
        "--workloads", nargs="+", metavar="NAME", default=[],
        help=f"{'; '.join(GPU_WORKLOADS)}: part of a name picks all that hold it",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--round-seconds", type=float, default=0.12, metavar="S")
    parser.add_argument(
        "--wave", type=int, default=4, metavar="N", help="workloads that are compiled at once"
    )
    parser.add_argument(
        "--patience", type=float, default=75.0, metavar="S",
        help="seconds to wait for one engine to compile a workload",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="S",
        help="seconds after which no more workloads are begun",
    )  # fmt: skip
    parser.add_argument(
        "--peer-python", type=runnable, default=sys.executable, metavar="PYTHON",
        help="interpreter that has the peers",
    )  # fmt: skip
    parser.add_argument(
        "--no-ceilings", dest="ceilings", action="store_false", help="leave out rates of the GPU"
    )
    parser.add_argument(
        "--acceptance", action="store_true", help="exit with 1 if a target is missed"
    )
    parser.add_argument("--fifteen", type=Path, help="figures of asv_bench.gpu.fifteen --json")
    parser.add_argument("--output", type=Path, help="FILE.json for the figures")
    parser.add_argument("--load", type=present, help="a file of --output, instead of measuring")
    parser.add_argument("--docs", type=Path, help="folder for the tables and the picture")
    options = parser.parse_args(argv)
    for part in options.workloads:
        if not any(part in name for name in GPU_WORKLOADS):
            parser.error(
                f"no workload has {part!r} in its name; there are {'; '.join(GPU_WORKLOADS)}"
            )
    parts = options.workloads
    options.workloads = [n for n in GPU_WORKLOADS if not parts or any(p in n for p in parts)]
    if options.rounds < 1 or options.wave < 1:
        parser.error("--rounds and --wave are at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
