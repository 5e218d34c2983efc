#!/usr/bin/env python3
"""Build, test, sanitise and benchmark the CUDA backend on a machine with a GPU, in one call.

    python .ci/gpu.py --install --docs docs/cuda
    python .ci/gpu.py --steps tests sanitise --logs gpu-logs

Without ``--install`` the adarray that this interpreter imports is tested. Tests and the
sanitiser run side by side; what is timed runs alone. Every step leaves a log, and
``summary.md`` beside the logs says after each step what came out: a step that fails, or is
cut, takes nothing from the others.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
STEPS = ("tests", "sanitise", "fifteen", "speed", "sweep")
TOOLS = ("memcheck", "racecheck", "initcheck")
# Seconds that steps take on an H200, and the last wave of workloads that the comparison begins.
USUAL_S = {"fifteen": 50.0, "sweep": 100.0}
SWEEP_S = 80.0  # of measuring: pictures and imports come on top
WAVE_S = 40.0
GRACE_S = 6.0  # to write what was measured, for a step that is cut
SHARES = 12  # processes that run kernels side by side
ERRORS_FOUND = 9  # exit status of compute-sanitizer where it has found an error


class Job(NamedTuple):
    """A process, what it is called, and the seconds that it may take."""

    name: str
    command: list[str]
    limit: float
    env: dict[str, str] = {}  # noqa: RUF012  (never changed)


class JobResult(NamedTuple):
    """How a job ended."""

    name: str
    status: int | None
    seconds: float
    log: Path

    @property
    def verdict(self) -> str:
        """A word on the end."""
        if self.status is None:
            return "took too long"
        return "passed" if self.status == 0 else f"FAILED with status {self.status}"

    @property
    def step(self) -> str:
        """The name of all its shares together."""
        return self.name.partition("-")[0]


def python(*arguments: str) -> list[str]:
    """Return a command of this interpreter."""
    return [sys.executable, *arguments]


def install() -> Job:
    """Return the job that installs this checkout with its compiled modules."""
    return Job("install", python("-m", "pip", "install", "-e", f"{ROOT}[test,cuda,bench]"), 900)


def tests(options: argparse.Namespace) -> Job:
    """Return the tests that need a GPU."""
    command = python("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider", *options.tests)
    if _has("xdist"):
        command += ["-n", str(options.processes), "--dist", "load"]
    if _has("pytest_benchmark"):
        command += ["-p", "no:benchmark"]
    env = {"ADARRAY_LONG": str(options.programs)} if options.programs else {}
    return Job("tests", command, options.limit, env)


def sanitised(options: argparse.Namespace) -> list[Job]:
    """Return the runs of compute-sanitizer over the printed kernels; it fails if there is none."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        text = "compute-sanitizer is not on PATH; install the CUDA toolkit, or leave sanitise out"
        return [Job("sanitise", python("-c", f"raise SystemExit({text!r})"), options.limit)]
    head = [tool, "--error-exitcode", str(ERRORS_FOUND), "--print-limit", "20"]
    return [
        Job(f"{name}-{i}", [*head, "--tool", name, *command], options.limit)
        for name in TOOLS
        for i, command in enumerate(shares(SHARES // len(TOOLS)))
    ]


def kernels(options: argparse.Namespace) -> list[Job]:
    """Return the jobs that run the printed kernels, which the tools find compiled on disk."""
    return [Job(f"kernels-{i}", command, options.limit) for i, command in enumerate(shares(SHARES))]


def shares(count: int) -> list[list[str]]:
    """Return commands that run all kernels, each a share of them."""
    run = python("-m", "asv_bench.gpu.kernels", "--shard")
    return [[*run, str(i), str(count)] for i in range(count)]


def _has(module: str) -> bool:
    """Whether a module can be imported."""
    from importlib.util import find_spec

    return find_spec(module) is not None


def run(jobs: list[Job], logs: Path, end: float = float("inf")) -> list[JobResult]:
    """Run jobs side by side, each in a log of its own, at most until the clock shows `end`."""
    start = time.perf_counter()
    begun = []
    for job in jobs:
        log = logs / f"{job.name}.log"
        with log.open("w") as file:
            file.write(" ".join(job.command) + "\n")
            file.flush()
            env = {**os.environ, **job.env}
            begun.append((job, log, subprocess.Popen(
                job.command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, env=env,
                start_new_session=True,
            )))  # fmt: skip
    results = []
    for job, log, process in begun:
        try:
            remaining = min(start + job.limit, end) - time.perf_counter()
            status: int | None = process.wait(max(1.0, remaining))
        except subprocess.TimeoutExpired:
            stop(process)
            status = None
        results.append(JobResult(job.name, status, time.perf_counter() - start, log))
        print(
            f"{job.name}: {results[-1].verdict} after {results[-1].seconds:.0f} s, {log}",
            flush=True,
        )
        if status != 0:
            print("".join(f"    {line}\n" for line in tail(log)), flush=True)
    return results


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it began, after some seconds to write what it has."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return


def tail(log: Path, count: int = 25) -> list[str]:
    """Return the last lines of a log."""
    return log.read_text(errors="replace").splitlines()[-count:]


# What logs say of a step, the last match of each: tests, the sanitiser, figures.
_SUMMARY_LINES = (
    r"^=*\s*(\d+ (?:passed|failed|error).* in [\d.]+)s?\b",
    r"(ERROR SUMMARY: .*)",
    r"(RACECHECK SUMMARY: .*)",
    r"^(eager: \d+ cases, \d+ wrong)",
    r"^(compiled: \d+ cases, \d+ wrong)",
)


def summary_lines(log: Path) -> list[str]:
    """Return the lines of a log that sum it up; the last line where it has none."""
    text = log.read_text(errors="replace")
    matches = [re.findall(p, text, re.MULTILINE) for p in _SUMMARY_LINES]
    lines = [f[-1].strip() for f in matches if f]
    return lines or [x.strip() for x in tail(log, 1)]


def targets_of(figures: Path) -> list[str]:
    """Return how many targets the comparison has met, and those that it has not."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # last: an installed adarray stays the one in use
    from asv_bench.gpu.targets import lines

    targets = lines(json.loads(figures.read_text()))
    met = sum(x.met for x in targets)
    return [f"{met} of {len(targets)} targets met", *(
        f"{x.what}: {'-' if x.figure is None else format(x.figure, '.3g')}, target {x.target}, "
        f"{x.verdict}" for x in targets if not x.met
    )]  # fmt: skip


def summary(results: list[JobResult], figures: Path) -> str:
    """Return the results of every step, as Markdown."""
    parts = ["# CUDA on one machine", ""]
    for step in dict.fromkeys(r.step for r in results):
        here = [r for r in results if r.step == step]
        bad = [r for r in here if r.status != 0]
        verdict = ", ".join(f"{r.name} {r.verdict}" for r in bad) or "passed"
        parts.append(f"- **{step}**: {verdict} ({max(r.seconds for r in here):.0f} s)")
        notes = dict.fromkeys(line for r in here for line in summary_lines(r.log))
        if step == "speed" and figures.exists():
            notes = dict.fromkeys(targets_of(figures))
        parts += [f"  - {line}" for line in notes]
    return "\n".join(parts) + "\n"


def timed(options: argparse.Namespace, logs: Path, seconds: float) -> list[Job]:
    """Return the jobs that measure, in order; `left` are the seconds for all of them."""
    jobs = {}
    figures, speed = logs / "fifteen.json", logs / "speed.json"
    jobs["fifteen"] = Job(
        "fifteen", python("-m", "asv_bench.gpu.fifteen", "--json", str(figures)), options.limit
    )
    docs = ["--docs", str(options.docs)] if options.docs else []
    rounds = ["--rounds", str(options.rounds), "--output", str(speed), *docs]
    if seconds < float("inf"):
        others = sum(s for name, s in USUAL_S.items() if name in options.steps)
        rounds += ["--budget", f"{max(seconds - others - WAVE_S, 0.0):.0f}"]
    fifteen = ["--fifteen", str(figures)] if "fifteen" in options.steps else []
    command = python("-m", "asv_bench.gpu", *rounds, *fifteen)
    jobs["speed"] = Job("speed", command, options.limit)
    output = str(options.docs or logs)
    command = python("-m", "adarray", "bench", "--seconds", f"{SWEEP_S:g}", "--output", output)
    jobs["sweep"] = Job("sweep", command, options.limit)
    return [jobs[name] for name in STEPS if name in jobs and name in options.steps]


def tables(options: argparse.Namespace, figures: Path) -> Job:
    """Return the job that writes tables of the figures of earlier jobs."""
    command = python("-m", "asv_bench.gpu", "--load", str(figures), "--docs", str(options.docs))
    return Job("tables", command, 60)


def main(argv: list[str] | None = None) -> int:
    """Run the script; return 1 if a step fails."""
    options = parse(argv)
    end = time.perf_counter() + options.seconds
    logs = options.logs
    logs.mkdir(parents=True, exist_ok=True)
    figures = logs / "speed.json"
    figures.unlink(missing_ok=True)
    results: list[JobResult] = []

    def do(jobs: list[Job]) -> bool:
        """Run jobs, and write the summary anew; return whether they passed."""
        finished = run(jobs, logs, end)
        results.extend(finished)
        (logs / "summary.md").write_text(summary(results, figures))
        return all(r.status == 0 for r in finished)

    if options.install and not do([install()]):
        return 1
    do([Job("info", python("-m", "adarray", "info"), 60)])
    if "sanitise" in options.steps:  # compiles the kernels, which the tools then find on disk
        do(kernels(options))
    side = [tests(options)] if "tests" in options.steps else []
    side += sanitised(options) if "sanitise" in options.steps else []
    if side:
        do(side)
    for job in timed(options, logs, end - time.perf_counter()):
        if not do([job]) and job.name == "speed" and options.docs and figures.exists():
            do([tables(options, figures)])  # of the workloads that were measured
    print(summary(results, figures))
    return 0 if all(r.status == 0 for r in results) else 1


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python .ci/gpu.py", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--install", action="store_true", help="install this checkout first")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--logs", type=Path, default=Path("gpu-logs"), metavar="FOLDER")
    parser.add_argument("--docs", type=Path, help="folder for tables and pictures")
    parser.add_argument("--rounds", type=int, default=4, help="of the timed comparison")
    parser.add_argument(
        "--tests", nargs="+", default=["tests/device"], metavar="PATH", help="files, folders"
    )
    parser.add_argument("--programs", type=int, metavar="N", help="random programs of the tests")
    parser.add_argument("--processes", type=int, default=min(12, os.cpu_count() or 1), metavar="N")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="S", help="of all steps together"
    )
    parser.add_argument("--limit", type=float, default=600.0, metavar="S", help="of each step")
    options = parser.parse_args(argv)
    options.logs = options.logs.resolve()
    if options.docs is not None:
        options.docs = options.docs.resolve()
    return options


if __name__ == "__main__":
    sys.exit(main())
