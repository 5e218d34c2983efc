"""Time random programs on every engine, and say how they compare: one script for CPUs and GPUs."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from asv_bench.fleet import Failed, Member, agreed, progress, runnable
from asv_bench.random_programs.programs import NAMED, described
from asv_bench.random_programs.report import Report, text
from asv_bench.random_programs.rounding import exact, rounded_alike
from asv_bench.random_programs.worker import ON_GPU

WORKER = Path(__file__).with_name("worker.py")
TOLERANCE = 2e-3  # sums of float32 in another order
WAYS = ("waited", "row")
START_S = 90.0  # patience with a process that starts
Group = dict[str, Member]


class Judged(NamedTuple):
    """What a script times.

    Parameters
    ----------
    prog : str
        Its command.
    about : str or None
        What it says of itself.
    ours : str
        The engine that is judged.
    peers : tuple of str
    elements : tuple of float
        The fewest and the most elements of the largest arrays.
    """

    prog: str
    about: str | None
    ours: str
    peers: tuple[str, ...]
    elements: tuple[float, float]


def main(judged: Judged, argv: list[str] | None = None) -> int:
    """Run the script of a kind of machine; return 1 if a program's results are wrong."""
    options = parse(judged, argv)
    if options.show:
        for name in options.programs:
            print(described(name))
        return 0
    report = resumed(options)
    with groups(options) as members:
        report["engines"] |= {n: m.absent or m.version for n, m in members[0].items()}
        run(members, report, options)
    print(text(report, options.worst))
    return 1 if any(p.get("wrong") for p in report["programs"].values()) else 0


def parse(judged: Judged, argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog=judged.prog, description=judged.about)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--n", type=int, default=100, help="programs")
    parser.add_argument("--seed", type=int, default=0, help="of the first one; others follow")
    parser.add_argument(
        "--elements", type=float, nargs=2, default=judged.elements, metavar=("LOW", "HIGH"),
        help="of the largest arrays",
    )  # fmt: skip
    parser.add_argument(
        "--programs", nargs="+", default=[], metavar="NAME",
        help=f"programs in place of random ones: {', '.join(NAMED)}; or NAME:SIZE",
    )  # fmt: skip
    parser.add_argument("--ours", default=judged.ours, help="the engine that is judged")
    parser.add_argument("--peers", nargs="*", default=list(judged.peers))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--round-seconds", type=float, default=0.1, metavar="S")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--wave", type=int, default=1, metavar="N", help="programs that are compiled at once"
    )
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S",
        help="seconds in which an engine has to compile a program and run it",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=float, default=float("inf"), metavar="S",
        help="seconds after which no more programs are begun",
    )  # fmt: skip
    parser.add_argument("--peer-python", type=runnable, default=sys.executable, metavar="PYTHON")
    parser.add_argument("--output", type=Path, help="FILE.json for the figures; a run resumes it")
    parser.add_argument("--worst", type=int, default=10, help="programs whose text is printed")
    parser.add_argument("--show", action="store_true", help="print the programs and run nothing")
    options = parser.parse_args(argv)
    if options.n < 1 or options.rounds < 1 or options.wave < 1:
        parser.error("--n, --rounds and --wave are at least 1")
    low, high = options.elements
    if not options.programs:
        seeds = range(options.seed, options.seed + options.n)
        options.programs = [f"{seed}:{low:g}:{high:g}" for seed in seeds]
    for name in options.programs:
        try:
            described(name)
        except (KeyError, ValueError):
            parser.error(f"no program is called {name!r}; there are {', '.join(NAMED)}")
    return options


def resumed(options: argparse.Namespace) -> Report:
    """Return the report of an earlier run, or a new one."""
    if options.output and options.output.exists():
        report: Report = json.loads(options.output.read_text())
        return report
    return {"ours": options.ours, "peers": options.peers, "engines": {}, "programs": {}}


@contextmanager
def groups(options: argparse.Namespace) -> Iterator[list[Group]]:
    """Start the processes of a wave, one for each engine and place; end them at last."""
    names = [options.ours, *options.peers]
    jobs = [(place, name) for place in range(options.wave) for name in names]

    def begin(job: tuple[int, str]) -> Member:
        python = sys.executable if "jit" in job[1] else options.peer_python
        return Member(job[1], python, options.threads, None, START_S, WORKER)

    with ThreadPoolExecutor(len(jobs)) as pool:
        members = list(pool.map(begin, jobs))
    started: list[Group] = [{} for _ in range(options.wave)]
    for (place, name), member in zip(jobs, members, strict=True):
        started[place][name] = member
    try:
        yield started
    finally:
        for member in members:
            if not member.absent:
                member.close()


def run(members: list[Group], report: Report, options: argparse.Namespace) -> None:
    """Measure all programs that the report does not have, wave by wave."""
    started = time.perf_counter()
    todo = [name for name in options.programs if name not in report["programs"]]
    for first in range(0, len(todo), len(members)):
        if time.perf_counter() - started > options.budget:
            progress("no time is left for the other programs")
            break
        wave = dict(zip(todo[first : first + len(members)], members, strict=False))
        ready = prepared(wave, options)
        for name, group in wave.items():
            report["programs"][name] = figures = compared(name, ready, options)
            timed(figures, group, options)
            progress(f"{time.perf_counter() - started:.0f} s: {line(name, figures)}")
            if options.output:
                options.output.write_text(json.dumps(report) + "\n")


def prepared(wave: dict[str, Group], options: argparse.Namespace) -> dict[tuple[str, str], Any]:
    """Let all processes of a wave compile, side by side if there are several programs."""

    def ask(job: tuple[str, str]) -> dict[str, Any]:
        member = wave[job[0]][job[1]]
        member.patience = options.patience
        try:
            return member.ask(do="prepare", program=job[0])
        except Failed as error:
            return {"error": str(error)}

    jobs = [(n, e) for n, group in wave.items() for e, m in group.items() if not m.absent]
    with ThreadPoolExecutor(len(jobs) if len(wave) > 1 else 1) as pool:
        return dict(zip(jobs, pool.map(ask, jobs), strict=True))


def compared(
    name: str, answers: dict[tuple[str, str], Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Return the program's figures: what was wrong, and engines that are to be timed."""
    figures: dict[str, Any] = {"text": described(name), "times": {}, "errors": {}, "first": {}}
    of_program = {e: a for (n, e), a in answers.items() if n == name}
    reference: list[float] | None = None
    for engine in sorted(
        of_program, key=lambda e: e == options.ours
    ):  # ours is compared with peers'
        answer = of_program[engine]
        try:
            if "error" in answer:
                raise Failed(answer["error"])
            if reference is not None or engine != options.ours:
                reference = agreed(answer["digest"], reference, TOLERANCE)
            figures["times"][engine] = {way: [] for way in WAYS}
            figures["first"][engine] = answer["first"]
        except Failed as error:
            if engine == options.ours and reference is not None and "digest" in answer:
                if rounded_alike(answer["digest"], reference, exact(name), TOLERANCE):
                    figures["rounding"] = str(error)
                    figures["times"][engine] = {way: [] for way in WAYS}
                    figures["first"][engine] = answer["first"]
                    continue
                figures["wrong"] = True
            figures["errors"][engine] = str(error)
    return figures


def timed(figures: dict[str, Any], group: Group, options: argparse.Namespace) -> None:
    """Time one program: every engine in turn, round by round, no one always after the same."""
    order = random.Random(0)
    for _ in range(options.rounds):
        engines = list(figures["times"])
        order.shuffle(engines)
        for engine in engines:
            try:
                answer = group[engine].ask(do="measure", seconds=options.round_seconds)
            except Failed as error:
                figures["errors"][engine] = str(error)
                del figures["times"][engine]
                continue
            for way in WAYS:
                figures["times"][engine][way].append(answer[way])
    for engine in group:
        if not group[engine].absent:
            group[engine].ask(do="release")


def line(name: str, figures: dict[str, Any]) -> str:
    """Return one line on a program."""
    times = {
        e: " / ".join(f"{1e6 * statistics.median(t[way]):.0f}" for way in WAYS)
        for e, t in figures["times"].items()
    }
    rest = {e: f"failed: {error[:60]}" for e, error in figures["errors"].items()}
    return f"{name}: " + ", ".join(
        f"{e.removeprefix(ON_GPU)} {t}" for e, t in (times | rest).items()
    )
