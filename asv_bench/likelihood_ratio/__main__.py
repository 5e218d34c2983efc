"""The command line: ``python -m asv_bench.likelihood_ratio --help``."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

import adarray
import asv_bench.likelihood_ratio
from asv_bench.likelihood_ratio import copies, report, schedule
from asv_bench.likelihood_ratio.data import DataError
from asv_bench.likelihood_ratio.problems import PROBLEMS
from asv_bench.likelihood_ratio.run import Options, speeds, trainings
from asv_bench.likelihood_ratio.training import PRECISIONS, Place


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m asv_bench.likelihood_ratio",
        description=asv_bench.likelihood_ratio.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "what",
        choices=[*PROBLEMS, "speed", "copies", "all", "report"],
        help="an experiment; the times of all; angles and memory by copies; all trainings "
        "and times; tables and pictures of what there is",
    )
    add("--methods", nargs="+", default=[], help="bp, lr-f, lr-l, lr-m, ...; all if not given")
    add("--seeds", type=positive, default=3, help="trainings of each method, from seeds 0, 1, ...")
    add("--backend", default="openmp", help="serial, openmp (the default), cuda or numpy")
    add(
        "--precision",
        nargs="+",
        choices=PRECISIONS,
        default=["float32"],
        help="of products on a GPU; several for `speed` and `all`",
    )
    add("--epochs", type=positive, help="what suits the experiment if not given")
    add("--quick", action="store_true", help="small parts of the data, few epochs")
    add("--out", type=Path, default=Path("likelihood-ratio"), help="folder of the results")
    add(
        "--jobs",
        type=positive,
        default=max(1, (os.cpu_count() or 2) // 2),
        help="processes side by side of `all`",
    )
    add("--budget", type=float, default=math.inf, help="seconds for the trainings of `all`")
    add("--trainings-only", action="store_true", help="no times alone after the trainings of `all`")
    add("--no-report", action="store_true", help="no tables and pictures")
    options = parser.parse_args(argv)
    if len(options.precision) > 1 and options.what in PROBLEMS:
        parser.error(f"one --precision for {options.what}; several are for speed and all")
    unknown = sorted({*options.methods} - {*report.METHODS})
    if unknown:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(report.METHODS)}")
    return options  # fmt: skip


def positive(text: str) -> int:
    """Return a number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def main(argv: list[str] | None = None) -> int:
    """Run the script; return the exit status."""
    arguments = parsed(argv)
    place = Place(arguments.backend, arguments.precision[0])
    options = Options(
        tuple(arguments.methods),
        arguments.seeds,
        place,
        arguments.epochs,
        arguments.quick,
        arguments.out,
    )
    precisions = tuple(arguments.precision)
    failed = 0
    try:
        if arguments.what != "report":
            with place():  # a backend that cannot work here says so at once
                pass
        if arguments.what in PROBLEMS:
            failed = trainings(arguments.what, options)
        if arguments.what == "all":
            failed = schedule.all_jobs(options, precisions, arguments.jobs, arguments.budget)
        if arguments.what == "copies":
            copies.measure(place, arguments.out, arguments.quick)
        if arguments.what == "speed" or (arguments.what == "all" and not arguments.trainings_only):
            for name in PROBLEMS:
                failed += speeds(name, options, schedule.rounded(name, precisions))
    except (DataError, adarray.BackendError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    if not arguments.no_report:
        told(arguments.out)
    return 1 if failed else 0


def told(out: Path) -> None:
    """Print the tables, and write them and the pictures."""
    out.mkdir(parents=True, exist_ok=True)
    print("\n" + report.write(out))
    try:
        from asv_bench.likelihood_ratio import picture

        paths = [*picture.draw(out), *picture.draw_copies(out)]
    except ImportError:
        print("no pictures: matplotlib is not installed (pip install 'adarray[demo]')")
        return
    for path in paths:
        print(f"wrote {path}")


if __name__ == "__main__":
    raise SystemExit(main())
