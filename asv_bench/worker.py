"""One engine in a process of its own, driven over pipes by `asv_bench.peers`.

Requests and answers are lines of JSON. The engine computes only between a request and
its answer, so of several workers one computes at a time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Appended, so that an installed adarray (with its compiled modules) comes first.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np

from asv_bench.benchmarks.jit_workloads import EVERY
from asv_bench.benchmarks.workloads import (
    INPLACE,
    LOGISTIC,
    WORKLOADS,
    kernel_data,
)
from asv_bench.engines import Absent, Prepared, make
from asv_bench.jit import once

UNTIL_COMPILED = 3  # calls: `jit` records two runs before it compiles
BATCH_S = 0.002  # shorter calls are timed several at once


def _no_guard(_: np.ndarray) -> None:
    """Stand in for `adarray.core.guard.WriteGuard`: the array is saved without protection."""


def batch_size(call: Callable[[], Any]) -> int:
    """Return how many calls take about `BATCH_S`."""
    number = 1
    while True:
        start = time.perf_counter()
        for _ in range(number):
            call()
        if time.perf_counter() - start >= BATCH_S:
            return number
        number *= 2


def sample(call: Callable[[], Any], number: int) -> float:
    """Return the mean time of `number` calls in s."""
    start = time.perf_counter()
    for _ in range(number):
        call()
    return (time.perf_counter() - start) / number


class Worker:
    """The state of one worker: its engine and the calls that were prepared."""

    def __init__(self, engine: str, threads: int) -> None:
        self.engine = make(engine, threads)
        self.calls: list[tuple[Callable[[], Any], int]] = []

    def prepare(self, kind: str, name: str, n: int = 1000) -> dict[str, Any]:
        """Build the inputs, run once, and return what was computed, for comparison."""
        self.calls.clear()  # the data of the previous workload goes first
        gc.collect()
        digest = None
        if kind == "gradient":
            prepared = self.engine.gradient(WORKLOADS[name])
            digest = digest_of(*prepared.result(prepared.call()))
            calls = [prepared.call]
        elif kind == "jit":
            digest, call = self._compiled(self.engine.gradient(EVERY[name].workload))
            calls = [call]
        elif kind == "jit both":  # side by side, for the ratio: the machine's speed changes
            digest, call = self._compiled(self.engine.gradient(EVERY[name].workload))
            calls = [call, self._compiled(self.engine.value(EVERY[name].workload))[1]]
        elif kind == "overhead":
            calls = [self.engine.trivial()]
            for _ in range(UNTIL_COMPILED):
                calls[0]()
        elif kind == "kernel":
            calls = [self.engine.kernel(name, kernel_data(name))]
            digest = digest_of(*kernel_result(calls[0]()))
        elif kind == "guard":
            calls = self._guard()
        else:
            calls = self._inplace(name, n)
        self.calls += [(call, batch_size(call)) for call in calls]
        return {"digest": digest}

    def _compiled(self, prepared: Prepared) -> tuple[list[float], Callable[[], Any]]:
        """Call until compiled code runs; return what was computed, and the call."""
        for _ in range(UNTIL_COMPILED):
            result = prepared.call()
        if hasattr(self.engine, "confirm"):
            self.engine.confirm()
        return digest_of(*prepared.result(result)), prepared.call

    def once(self, name: str) -> dict[str, Any]:
        """Return the figures measured once per process: compile time and peak memory."""
        return once.measure(self.engine, EVERY[name].workload)

    def record(self, count: int) -> dict[str, float]:
        """Return microseconds per recorded operation, by stage."""
        return once.record_rate(self.engine, count)

    def product(self, dtype: str) -> dict[str, Any]:
        """Return the operations per second of a large matrix product."""
        return {"rate": once.product_rate(self.engine.product(dtype, once.PRODUCT_SIZE))}

    def _guard(self) -> list[Callable[[], Any]]:
        """Return logistic regression with the protection of its operands, and without."""
        from adarray.core import guard

        call = self.engine.gradient(LOGISTIC).call

        guarded = guard.WriteGuard

        def unguarded() -> None:
            guard.WriteGuard = _no_guard  # type: ignore[assignment, misc]
            try:
                call()
            finally:
                guard.WriteGuard = guarded  # type: ignore[misc]

        return [call, unguarded]

    def _inplace(self, name: str, n: int) -> list[Callable[[], Any]]:
        """Return the gradient of filling ``4 n`` elements, and of filling `n`."""
        g = self.engine.adarray.grad(lambda x: INPLACE[name](np, x, x.size))
        rng = np.random.default_rng(0)
        large, small = rng.normal(size=4 * n), rng.normal(size=n)
        return [lambda: g(large), lambda: g(small)]

    def measure(self, seconds: float, least: int = 3) -> dict[str, Any]:
        """Return the median time of each prepared call in s, and the median of ratios."""
        samples: list[list[float]] = []
        end = time.perf_counter() + seconds
        while len(samples) < least or time.perf_counter() < end:
            samples.append([sample(call, number) for call, number in self.calls])
            if time.perf_counter() - end > 5.0:  # one call of a slow engine must do
                break
        times = [statistics.median(column) for column in zip(*samples, strict=True)]
        ratio = statistics.median(row[0] / row[-1] for row in samples)
        return {"times": times, "ratio": ratio}


def kernel_result(value: Any) -> tuple[Any, list[Any]]:
    """Return the result of a kernel as a digest takes it: a sum, and the array."""
    array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
    return array.sum(), [array]


def digest_of(value: Any, gradients: list[Any]) -> list[float]:
    """Return numbers that tell results apart: the value, and two sums of each gradient."""
    digest = [float(value)]
    for g in gradients:
        flat = np.asarray(g, dtype=np.float64).ravel()
        digest += [float(np.linalg.norm(flat)), float(flat @ np.cos(np.arange(flat.size)))]
    return digest


def serve(worker: Any, requests: Any, answers: Any) -> None:
    """Answer requests until the pipe closes."""
    for line in requests:
        request = json.loads(line)
        command = request.pop("do")
        try:
            answer = getattr(worker, command)(**request)
        except Exception as error:
            text = str(error).strip().splitlines()
            answer = {
                "error": f"{type(error).__name__}: {text[0] if text else ''}",
                "traceback": traceback.format_exc(),
            }
        print(json.dumps(answer), file=answers, flush=True)


def serving(make_worker: Callable[[], Any]) -> None:
    """Make a worker, say its version, and answer until the pipe closes."""
    # What libraries print must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        worker = make_worker()
    except Absent as error:
        print(json.dumps({"absent": str(error)}), file=answers, flush=True)
        return
    print(json.dumps({"version": worker.engine.version}), file=answers, flush=True)
    with contextlib.suppress(BrokenPipeError):
        serve(worker, sys.stdin, answers)


def main() -> None:
    """Run one worker: ``worker.py ENGINE THREADS``."""
    serving(lambda: Worker(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
