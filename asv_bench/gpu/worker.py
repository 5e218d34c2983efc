"""One engine on a GPU in a process of its own, driven over pipes by `asv_bench.gpu.measure`."""

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

from asv_bench.gpu.ceilings import Products
from asv_bench.gpu.engines import PreparedCall, make
from asv_bench.gpu.workloads import GPU_WORKLOADS
from asv_bench.worker import UNTIL_COMPILED, digest_of, serving

BATCH_S = 0.004  # calls in a row that one wait follows take about as long at least
LEAST = 3  # samples


def sample(prepared: PreparedCall, number: int) -> float:
    """Return the mean time of `number` calls in s, until all of them are computed."""
    start = time.perf_counter()
    for _ in range(number):
        prepared.call()
    prepared.wait()
    return (time.perf_counter() - start) / number


class GpuWorker:
    """The state of one worker: its engine and the workload that was prepared."""

    def __init__(self, engine: str) -> None:
        self.engine = make(engine)
        self.prepared: PreparedCall | None = None
        self.matrices: Products | None = None
        self.number = 1

    def prepare(self, name: str) -> dict[str, Any]:
        """Compile a workload and run it; return what it computed, for comparison.

        What is compared is the result of the first call: later steps of gradient descent
        are somewhere else.
        """
        self.prepared = None  # the data of the previous workload goes first
        gc.collect()
        start = time.perf_counter()
        self.prepared = prepared = self.engine.prepare(GPU_WORKLOADS[name])
        compiled = time.perf_counter()
        digest = digest_of(*prepared.result(prepared.call()))
        first = time.perf_counter()
        for _ in range(UNTIL_COMPILED):
            prepared.call()
            prepared.wait()
        if hasattr(self.engine, "confirm"):
            self.engine.confirm()
        ready = time.perf_counter()
        self.number = 1
        while sample(prepared, self.number) * self.number < BATCH_S:
            self.number *= 2
        return {"digest": digest, "data": compiled - start, "first": first - compiled,
                "warm": ready - first}  # fmt: skip

    def measure(self, seconds: float) -> dict[str, Any]:
        """Return the median time of calls that are waited for, and of calls in a row."""
        assert self.prepared is not None
        medians = {}
        for way, number in (("waited", 1), ("row", self.number)):
            times: list[float] = []
            end = time.perf_counter() + seconds / 2
            while len(times) < LEAST or time.perf_counter() < end:
                times.append(sample(self.prepared, number))
            medians[way] = statistics.median(times)
        return medians

    def copies(self) -> dict[str, Any]:
        """Return the rates of copies."""
        return {"copy": self.engine.copies()}

    def product(self, precision: str) -> dict[str, Any]:
        """Return the rate of matrix products and their error."""
        if self.matrices is None:
            self.matrices = Products(self.engine)
        return self.matrices.measure(precision)

    def release(self) -> dict[str, Any]:
        """Give memory back: other processes share the GPU."""
        self.prepared = self.matrices = None
        gc.collect()
        self.engine.release()
        return {}


def make_worker(arguments: list[str]) -> Callable[[], GpuWorker]:
    """Return the factory of the worker of a command line: the name of an engine."""
    if not arguments:
        raise SystemExit("asv_bench.gpu.worker: name an engine; python -m asv_bench.gpu starts it")
    return lambda: GpuWorker(arguments[0])


if __name__ == "__main__":
    serving(make_worker(sys.argv[1:]))
