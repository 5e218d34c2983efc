"""`adarray.jit`: speed of every workload, cost of a call, compile time, peak memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import adarray

from .common import ENGINES, LARGE, OnEngine, warm
from .jit_workloads import EVERY, JIT_WORKLOADS, JitWorkload

ROOT = str(Path(__file__).resolve().parents[2])
# Large profile: also those that need seconds, or gigabytes, on the reference backend.
SLOW = ("heat200 1024", "heat20 1024", "chain 1e7", "chain 1e7 f32", "mlp b512 h1024 f32")
NAMES = [name for name in JIT_WORKLOADS if LARGE or name not in SLOW]
COMPILED = [name for name in EVERY if LARGE or name not in SLOW[:1]]


def jitted(w: JitWorkload) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Return the compiled value and gradient of a workload, and its arguments."""
    variables, constants = w.workload.data()

    def f(*arrays: Any) -> Any:
        return w.workload.body(np, *arrays)

    g = adarray.value_and_grad(f, argnums=tuple(range(len(variables))))
    return adarray.jit(g), (*variables, *constants)


class JitGradient(OnEngine):
    """Value and gradient, compiled."""

    params = (list(ENGINES), NAMES)
    param_names = ("engine", "workload")
    timeout = 300

    def setup(self, engine: str, workload: str) -> None:
        """Call until the compiled path is taken."""
        self.enter(engine)
        self.f, self.arrays = jitted(JIT_WORKLOADS[workload])
        warm(self.f, *self.arrays)
        self.f(*self.arrays)

    def time_value_and_grad(self, *_: Any) -> None:
        """Value and gradient."""
        self.f(*self.arrays)


class JitCall(OnEngine):
    """What a call costs when there is nothing to compute, NumPy arrays in and out."""

    params = (list(ENGINES), [1, 2, 8])
    param_names = ("engine", "arguments")

    def setup(self, engine: str, arguments: int) -> None:
        """Call until the compiled path is taken."""
        self.enter(engine)

        def f(x: Any, *rest: Any) -> Any:
            for y in rest:
                x = x * y
            return x + 1.0

        self.f = adarray.jit(f)
        self.arrays = [np.linspace(0.5, 1.5, 4) for _ in range(arguments)]
        warm(self.f, *self.arrays)
        self.f(*self.arrays)

    def time_call(self, *_: Any) -> None:
        """Call it."""
        self.f(*self.arrays)


class JitCaptured(OnEngine):
    """What a call costs that compares ten captured names with those that were compiled."""

    params = (list(ENGINES),)
    param_names = ("engine",)

    def setup(self, engine: str) -> None:
        """Call until the compiled path is taken."""
        self.enter(engine)
        a, b, c, d, e = 1.5, 2, np.ones(4), np.arange(4.0), (1.0, 2.0)
        g, h, i, j, k = 0.25, np.full(4, 0.5), "text", 7.0, True

        def f(x: Any) -> Any:
            return x * a + b * c - d * e[0] * g + h * len(i) + j * k

        self.f = adarray.jit(f)
        self.x = np.linspace(0.5, 1.5, 4)
        warm(self.f, self.x)
        self.f(self.x)

    def time_call(self, *_: Any) -> None:
        """Call it."""
        self.f(self.x)


# Each sample is a process of its own: the kernels of another are not in its memory.
_SETUP = """
import os, shutil, sys, tempfile
{cache}
import adarray
sys.path.append({root!r})
from asv_bench.benchmarks.jit import EVERY, jitted
used = adarray.use({backend!r})
used.__enter__()
f, arrays = jitted(EVERY[{workload!r}])
{before}
"""
_FRESH = """
import atexit
folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, folder, ignore_errors=True)
os.environ["ADARRAY_CACHE_DIR"] = folder
"""


class JitCompile(OnEngine):
    """From the first call to compiled code: recorded runs, passes, and the compiler."""

    params = (["serial"], COMPILED)
    param_names = ("engine", "workload")
    number = 1
    repeat = (2, 5, 60.0)
    timeout = 300

    def setup(self, engine: str, workload: str) -> None:  # noqa: ARG002
        """Skip where the backend is absent."""
        self.enter(engine)

    def timeraw_cold(self, engine: str, workload: str) -> tuple[str, str]:
        """Return the first calls, and a setup that empties the cache on disk."""
        return self._calls(engine, workload, _FRESH, "")

    def timeraw_from_disk(self, engine: str, workload: str) -> tuple[str, str]:
        """Return the first calls, and a setup after which the cache holds the kernels."""
        # Other processes have compiled it: this one's child, if none before.
        before = (
            "if os.fork() == 0:\n    f(*arrays); f(*arrays); f(*arrays); os._exit(0)\nos.wait()"
        )
        return self._calls(engine, workload, "", before)

    def _calls(self, engine: str, workload: str, cache: str, before: str) -> tuple[str, str]:
        setup = _SETUP.format(
            cache=cache, root=ROOT, backend=engine, workload=workload, before=before
        )
        return "f(*arrays); f(*arrays); f(*arrays)", setup


class JitTrace:
    """Recording and passes, by the number of operations: seconds have to grow linearly."""

    params = ([200, 2_000, 20_000] if LARGE else [200, 2_000],)
    param_names = ("operations",)
    timeout = 300

    def setup(self, operations: int) -> None:
        """Make the operands."""
        self.x = np.linspace(0.1, 0.9, 8)
        self.operations = operations

    def time_record(self, *_: Any) -> None:
        """Record one run."""

        def f(x: Any) -> Any:
            for _ in range(self.operations // 2):
                x = np.sin(x) * 1.01
            return x

        adarray.jit(f)(self.x)


class JitTraceWrites:
    """Recording writes of single elements, by the size of the array, which must not matter."""

    params = ([2_000, 2_000_000],)
    param_names = ("size",)
    timeout = 300

    def setup(self, size: int) -> None:
        """Make the array."""
        self.x = np.linspace(0.1, 0.9, size)

    def time_record(self, *_: Any) -> None:
        """Record one run."""

        def f(x: Any) -> Any:
            y = x * 0.5
            for i in range(1, 1000):
                y[i] = y[i - 1] * 0.5 + x[i]
            return y

        adarray.jit(f)(self.x)


class JitPeak:
    """Peak memory of a process that runs one compiled workload."""

    params = ([name for name in NAMES if "1e3" not in name],)
    param_names = ("workload",)
    timeout = 300

    def peakmem_value_and_grad(self, workload: str) -> None:
        """Call until the compiled path is taken, and once more."""
        f, arrays = jitted(JIT_WORKLOADS[workload])
        for _ in range(4):
            f(*arrays)
