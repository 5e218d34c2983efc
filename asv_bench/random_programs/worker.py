"""One engine in a process of its own, driven over pipes by `asv_bench.random_programs.race`."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Appended, so that an installed adarray (with its compiled modules) comes first.
sys.path.append(str(Path(__file__).resolve().parents[2]))

from asv_bench import engines
from asv_bench.benchmarks.jit_workloads import JitWorkload
from asv_bench.benchmarks.workloads import Workload
from asv_bench.gpu import engines as gpu_engines
from asv_bench.gpu.engines import PreparedCall
from asv_bench.gpu.workloads import GpuWorkload
from asv_bench.random_programs.programs import workload_of
from asv_bench.worker import UNTIL_COMPILED, digest_of, serving

BATCH_S = 0.004  # calls in a row that one wait follows take about as long at least
LEAST = 3  # samples
ON_GPU = "gpu "  # before the name of an engine that computes on a GPU


class RandomWorker:
    """The state of one worker: its engine and the program that was prepared."""

    def __init__(self, engine: str, threads: int) -> None:
        self.on_gpu = engine.startswith(ON_GPU)
        if self.on_gpu:
            self.engine = gpu_engines.make(engine.removeprefix(ON_GPU))
        else:
            self.engine = engines.make(engine, threads)
        self.prepared: PreparedCall | None = None
        self.number = 1

    def prepare(self, program: str) -> dict[str, Any]:
        """Compile a program and run it; return what it computed, for comparison."""
        self.prepared = None  # the data of the previous program goes first
        gc.collect()
        w = workload_of(program)
        start = time.perf_counter()
        self.prepared = prepared = self._prepared(w)
        digest = digest_of(*prepared.result(prepared.call()))
        for _ in range(UNTIL_COMPILED):
            prepared.call()
            prepared.wait()
        if hasattr(self.engine, "confirm"):
            self.engine.confirm()
        ready = time.perf_counter() - start
        self.number = 1
        while self._sample(self.number) * self.number < BATCH_S:
            self.number *= 2
        return {"digest": digest, "first": ready}

    def _prepared(self, w: Workload) -> PreparedCall:
        if self.on_gpu:
            base = JitWorkload(w, "float32", "memory", 0.0)
            return self.engine.prepare(GpuWorkload(base, 1.0))  # type: ignore[no-any-return]
        call, result = self.engine.gradient(w)
        return PreparedCall(call, lambda: None, result)

    def _sample(self, number: int) -> float:
        """Return the mean time of `number` calls in s, until all of them are computed."""
        assert self.prepared is not None
        start = time.perf_counter()
        for _ in range(number):
            self.prepared.call()
        self.prepared.wait()
        return (time.perf_counter() - start) / number

    def measure(self, seconds: float) -> dict[str, Any]:
        """Return the median time of calls that are waited for, and of calls in a row."""
        medians = {}
        for way, number in (("waited", 1), ("row", self.number)):
            times: list[float] = []
            end = time.perf_counter() + seconds / 2
            while len(times) < LEAST or time.perf_counter() < end:
                times.append(self._sample(number))
            medians[way] = statistics.median(times)
        return medians

    def release(self) -> dict[str, Any]:
        """Give memory back: other processes share the machine."""
        self.prepared = None
        gc.collect()
        if hasattr(self.engine, "release"):
            self.engine.release()
        return {}


def make_worker(arguments: list[str]) -> Callable[[], RandomWorker]:
    """Return the factory of the worker of a command line: an engine, and threads."""
    if len(arguments) < 2:
        raise SystemExit("asv_bench.random_programs.worker: name an engine and a number of threads")
    return lambda: RandomWorker(arguments[0], int(arguments[1]))


if __name__ == "__main__":
    serving(make_worker(sys.argv[1:]))
