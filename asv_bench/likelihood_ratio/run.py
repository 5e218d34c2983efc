"""The trainings of one experiment, and the times of their steps."""

from __future__ import annotations

import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from asv_bench.likelihood_ratio import store
from asv_bench.likelihood_ratio.problems import PROBLEMS, Problem
from asv_bench.likelihood_ratio.training import Place, Training, train


@dataclass(frozen=True)
class Options:
    """The options of the command line; `methods` may be empty: all of them."""

    methods: tuple[str, ...]
    seeds: int
    place: Place
    epochs: int | None
    quick: bool
    out: Path


def chosen(problem: Problem, methods: tuple[str, ...]) -> tuple[str, ...]:
    """Return the methods of an experiment that were asked for.

    Raises
    ------
    ValueError
        If there is none of that name.
    """
    for name in methods:
        if name not in problem.methods:
            raise ValueError(
                f"likelihood_ratio: {problem.name} has no method {name!r}; it has "
                f"{', '.join(problem.methods)}"
            )
    return methods or tuple(problem.methods)


def described(problem: Problem, method: str, place: Place) -> store.Row:
    """Return the row of a training."""
    how = problem.methods[method]
    return {
        "problem": problem.name,
        "data": problem.title,
        "network": problem.network,
        "method": method,
        "title": how.title,
        "settings": how.text,
        "backend": place.backend,
        "precision": place.precision if place.on_gpu else "float32",
        "epochs": problem.epochs,
    }


def trainings(name: str, options: Options) -> int:
    """Train with all methods and seeds that are not in the file yet; return how many failed."""
    problem = PROBLEMS[name](options.epochs, options.quick)
    path = options.out / store.RUNS
    known = {store.key(row) for row in store.read(path) if "error" not in row}
    failed = 0
    for method in chosen(problem, options.methods):
        for seed in range(options.seeds):
            row = {**described(problem, method, options.place), "seed": seed}
            if store.key(row) in known:
                continue
            try:
                row |= train(problem, method, seed, options.place)
            except Exception as error:  # the other trainings are still made
                traceback.print_exc()
                row["error"] = f"{type(error).__name__}: {error}"[:2000]
                failed += 1
            else:
                print(line(row), flush=True)
            store.add(path, row)
    return failed


def line(row: store.Row) -> str:
    """Return one line on a training."""
    return (
        f"{row['problem']} {row['title']} ({row['settings']}), {row['backend']} "
        f"{row['precision']}, seed {row['seed']}: test {row['test']:.2f} %, "
        f"{row['epoch_s']:.3g} s per epoch"
    )


# -- times -----------------------------------------------------------------------------------

WARM, ROUNDS, ROUND_S = 4, 5, 0.2


def speeds(name: str, options: Options, precisions: tuple[str, ...]) -> int:
    """Time the steps of all methods by turns, nothing beside them; return how many failed."""
    problem = PROBLEMS[name](options.epochs, options.quick)
    ready: list[tuple[store.Row, Timed]] = []
    failed = 0
    for precision in precisions:
        place = Place(options.place.backend, precision)
        for method in problem.methods:
            if options.methods and method not in options.methods:
                continue  # another experiment has it
            row = described(problem, method, place)
            try:
                ready.append((row, Timed(problem, method, place)))
            except Exception as error:  # the others are still timed
                traceback.print_exc()
                store.add(options.out / store.SPEED, {**row, "error": f"{error}"[:2000]})
                failed += 1
    for _ in range(ROUNDS):
        for _, timed in ready:
            timed.round()
    for row, timed in ready:
        row |= {
            "epoch_s": statistics.median(timed.times) * timed.steps,
            "times": [round(t * timed.steps, 6) for t in timed.times],
        }
        if row["precision"] == precisions[0]:
            with timed.place():
                row["peak_bytes"] = timed.run.peak_bytes(timed.batches[0])
        store.add(options.out / store.SPEED, row)
        print(
            f"{name} {row['title']}, {row['backend']} {row['precision']}: "
            f"{row['epoch_s']:.3g} s per epoch",
            flush=True,
        )
    return failed


class Timed:
    """A training whose steps are timed.

    Attributes
    ----------
    steps : int
        Of an epoch.
    times : list of float
        Seconds of a step, one for each round.
    """

    def __init__(self, problem: Problem, method: str, place: Place) -> None:
        self.place = place
        start = time.perf_counter()
        with place():
            self.run = Training(problem, method, 0, place)
            self.batches = self.run.epoch()
            self.steps = len(self.batches)
            for k in range(WARM):
                self.run.step(self.batches[k % self.steps], 10**6)
            place.wait()
            began = time.perf_counter()
            self.run.step(self.batches[0], 10**6)
            place.wait()
        self.count = max(1, min(2000, int(ROUND_S / (time.perf_counter() - began))))
        self.times: list[float] = []
        print(
            f"{problem.name} {method}: compiled in {began - start:.1f} s",
            file=sys.stderr,
            flush=True,
        )

    def round(self) -> None:
        """Time some steps."""
        with self.place():
            self.place.wait()
            start = time.perf_counter()
            for k in range(self.count):
                self.run.step(self.batches[k % self.steps], 10**6)
            self.place.wait()
            self.times.append((time.perf_counter() - start) / self.count)
