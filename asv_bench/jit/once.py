"""What a process measures once: how long compiling takes, and the memory at its peak.

Loaded by workers, also in interpreters that have no adarray.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from asv_bench.benchmarks.workloads import Workload

CALLS = 4  # the first of them: recorded, compiled, compiled code run for the first time
STEADY_S = 0.5  # measuring time of the calls after them
PRODUCT_SIZE = 2048

# Compiled before anything is measured, so that the compiler itself is loaded.
TRIVIAL = Workload(
    "trivial",
    lambda np, x: np.sum(x * x),
    lambda rng: (rng.normal(size=8),),
    torch=lambda torch, x: torch.sum(x * x),
    scan=lambda jax, x: jax.numpy.sum(x * x),
)


def status(field: str) -> float:
    """Return a field of ``/proc/self/status`` in bytes; `VmHWM` is the most that was held.

    Where the system has no such file, the peak of the whole process.
    """
    path = Path("/proc/self/status")
    if not path.exists():
        return 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for line in path.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024.0 * float(line.split()[1])
    raise LookupError(f"{path} has no {field}")


def forget_peak() -> None:
    """Let the peak begin at what is held now, where the system can."""
    path = Path("/proc/self/clear_refs")
    if path.exists():
        path.write_text("5")


def timed(call: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(engine: Any, w: Workload) -> dict[str, Any]:
    """Return times of the first calls and the peaks of memory.

    Returns
    -------
    dict
        ``first``: seconds of the first calls; ``steady``: of the fastest later one;
        ``extra``: what the first calls took beyond as many steady ones. ``peak``: bytes
        that data, temporaries and results take at most during steady calls, ``peak
        first`` during the first ones. ``facts``: what the engine says of its own work.
    """
    trivial = engine.gradient(TRIVIAL)
    for _ in range(CALLS):
        trivial.call()
    before = status("VmRSS")
    forget_peak()
    prepared = engine.gradient(w)
    first = [timed(prepared.call) for _ in range(CALLS)]
    peak_first = status("VmHWM") - before
    forget_peak()
    later = []
    end = time.perf_counter() + STEADY_S
    while len(later) < 3 or time.perf_counter() < end:
        later.append(timed(prepared.call))
    steady = min(later)
    facts = engine.facts() if hasattr(engine, "facts") else {}
    return {
        "first": first,
        "steady": steady,
        "extra": sum(max(0.0, t - steady) for t in first),
        "peak": status("VmHWM") - before,
        "peak first": peak_first,
        "facts": facts,
    }


def product_rate(call: Callable[[], Any]) -> float:
    """Return the operations per second of a product of two square matrices."""
    call()
    return 2.0 * PRODUCT_SIZE**3 / min(timed(call) for _ in range(9))


def record_rate(engine: Any, count: int) -> dict[str, float]:
    """Return microseconds per recorded operation of `count` of them, by stage.

    After a trivial function was compiled, as in `measure`: the compiler's modules are loaded.
    """
    trivial = engine.gradient(TRIVIAL)
    for _ in range(CALLS):
        trivial.call()
    jitted = engine.adarray.jit(lambda x: _many(x, count))
    x = np.linspace(0.1, 0.9, 8)
    eager = min(timed(lambda: _many(engine.adarray.array(x), count)) for _ in range(3))
    first = timed(lambda: jitted(x))
    jitted(x)
    nodes = jitted.path(x)
    spent = {"trace": max(0.0, first - eager)}
    for node in nodes:
        for stage, seconds in node.seconds.items():
            if stage != "trace":
                spent[stage] = spent.get(stage, 0.0) + seconds
    calls = sum(len(node.calls) for node in nodes)
    return {stage: 1e6 * seconds / calls for stage, seconds in spent.items()} | {
        "calls": float(calls)
    }


def _many(x: Any, count: int) -> Any:
    """Apply `count` operations."""
    for _ in range(count // 2):
        x = np.sin(x) * 1.01
    return x
