"""All experiments side by side in processes of their own, then the times, one after the other."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from asv_bench.likelihood_ratio.problems import PROBLEMS
from asv_bench.likelihood_ratio.run import Options

ROOT = Path(__file__).resolve().parents[2]
TAIL = 25  # lines of a failed job that are shown


@dataclass(frozen=True)
class TrainingJob:
    """A process: some trainings of one experiment."""

    what: str
    method: str
    precision: str


def jobs(methods: tuple[str, ...], precisions: tuple[str, ...], quick: bool) -> list[TrainingJob]:
    """Return the processes: what says most first, one that takes long before others."""
    every = [
        TrainingJob(name, method, p)
        for name in ("cora", "mnist", "agnews")
        for method in PROBLEMS[name](quick=quick).methods
        if not methods or method in methods
        for p in rounded(name, precisions)
    ]

    def place(job: TrainingJob) -> tuple[bool, ...]:
        slow = job.what == "agnews" and job.method.startswith("lr-f")
        first = job.what == "agnews" and job.method == "lr-l"
        return slow, job.precision != precisions[0], job.precision in precisions[2:], not first

    return sorted(every, key=place)


def rounded(name: str, precisions: tuple[str, ...]) -> tuple[str, ...]:
    """Return the precisions of an experiment: two, and all of them for the perceptron."""
    return precisions if name == "mnist" else precisions[:2]


def command(job: TrainingJob, options: Options) -> list[str]:
    """Return the command line of a job."""
    line = [
        sys.executable, "-m", "asv_bench.likelihood_ratio", job.what, "--methods", job.method,
        "--seeds", str(options.seeds), "--backend", options.place.backend,
        "--precision", job.precision, "--out", str(options.out.resolve()), "--no-report",
    ]  # fmt: skip
    if options.epochs is not None:
        line += ["--epochs", str(options.epochs)]
    return [*line, "--quick"] if options.quick else line


def run(job: TrainingJob, options: Options, end: float, threads: int) -> bool:
    """Run a job until it is done or the clock shows `end`; return whether it went well."""
    remaining = end - time.perf_counter()
    if remaining <= 0:
        print(f"{job}: no time is left", flush=True)
        return False
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command(job, options), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=remaining if math.isfinite(remaining) else None, check=False, cwd=ROOT,
            env={"OMP_NUM_THREADS": str(threads), **os.environ},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"{job}: cut after {remaining:.0f} s", flush=True)
        return False
    lines = [x for x in done.stdout.replace("\r", "\n").splitlines() if x.strip()]
    seconds = time.perf_counter() - start
    if done.returncode:
        print(f"{job}: FAILED after {seconds:.0f} s\n" + "\n".join(lines[-TAIL:]), flush=True)
    else:
        progress = [x for x in lines if "per epoch" in x]
        print(f"{job}: {seconds:.0f} s\n" + "\n".join(f"    {x}" for x in progress), flush=True)
    return done.returncode == 0


def all_jobs(
    options: Options, precisions: tuple[str, ...], side_by_side: int, budget: float
) -> int:
    """Run every job, `side_by_side` at a time, within `budget` seconds; return how many failed."""
    end = time.perf_counter() + budget
    threads = max(1, (os.cpu_count() or 1) // side_by_side)
    todo = jobs(options.methods, precisions, options.quick)
    Path(options.out).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(side_by_side) as pool:
        went = list(pool.map(lambda job: run(job, options, end, threads), todo))
    return went.count(False)
