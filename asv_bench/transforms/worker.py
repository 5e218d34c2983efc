"""One engine of `asv_bench.transforms` in a process of its own."""

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

import numpy as np

from asv_bench.engines import JAXEngine, JitEngine, _require
from asv_bench.transforms.workloads import TASKS, TransformTask
from asv_bench.worker import UNTIL_COMPILED, batch_size, sample, serving

Call = Callable[[], Any]


def _direction(x: Any) -> Any:
    return np.cos(np.arange(x.size, dtype=float)).reshape(x.shape)


def _digest(result: Any) -> list[float]:
    """Return numbers that tell results apart."""
    parts = result if isinstance(result, (tuple, list)) else [result]
    digest = [0.0]
    for part in parts:
        x = np.asarray(part.sum(axis=1) if hasattr(part, "tocsr") else part, float).ravel()
        digest += [float(np.linalg.norm(x)), float(x @ np.cos(np.arange(x.size)))]
    return digest


class Ours:
    """adarray's transforms, compiled."""

    def __init__(self, threads: int) -> None:
        self.engine = JitEngine("openmp", threads)
        self.adarray = self.engine.adarray

    def prepare(self, task: TransformTask) -> tuple[Call, float]:
        """Return a call, and the seconds that preparing took apart from compiling."""
        ad, args = self.adarray, task.args()
        x, rest = args[0], args[1:]

        def f(x: Any, *rest: Any) -> Any:
            return task.f(np, x, *rest)

        kind = task.transform
        if kind.startswith("sparse"):
            maker = ad.sparse_jacobian if kind.endswith("jacobian") else ad.sparse_hessian
            start = time.perf_counter()
            prepared = maker(f).prepare(x)
            seconds = time.perf_counter() - start
            self.colors = prepared.n_colors
            return lambda: prepared(x), seconds
        v = _direction(x)
        transformed = {
            "f": lambda x, *rest: f(x, *rest),
            "jvp": lambda x, *rest: ad.jvp(lambda x: f(x, *rest), (x,), (v,)),
            "grad": ad.grad(f),
            "hvp": lambda x, *rest: ad.hvp(lambda x: f(x, *rest))(x, v),
            "jacobian": ad.jacobian(f),
            "vmap": ad.vmap(f),
        }[kind]
        jitted = ad.jit(transformed)
        return lambda: jitted(x, *rest), 0.0

    @property
    def version(self) -> str:
        """Version of the library."""
        return str(self.engine.version)


class Peer:
    """JAX's transforms under ``jax.jit``; sparse ones by asdex."""

    def __init__(self, threads: int, scanned: bool) -> None:
        self.engine = JAXEngine(threads)
        self.jax = self.engine.jax
        self.scanned = scanned
        self.asdex: Any = None

    def prepare(self, task: TransformTask) -> tuple[Call, float]:
        """Return a call, and the seconds that preparing took apart from compiling."""
        jax, jnp = self.jax, self.engine.numpy
        args = [jnp.asarray(x) for x in task.args()]
        x, rest = args[0], args[1:]
        scanned = task.scanned if self.scanned else None

        def f(x: Any, *rest: Any) -> Any:
            return scanned(jax, x, *rest) if scanned else task.f(jnp, x, *rest)

        kind = task.transform
        if kind.startswith("sparse"):
            return self._sparse(kind, f, x)
        v = jnp.asarray(_direction(x))
        g = jax.grad(f)
        transformed = {
            "f": f,
            "jvp": lambda x, *rest: jax.jvp(lambda x: f(x, *rest), (x,), (v,)),
            "grad": g,
            "hvp": lambda x, *rest: jax.jvp(lambda x: g(x, *rest), (x,), (v,))[1],
            # As the shape says: forward unless there are fewer results than arguments.
            "jacobian": jax.jacfwd(f) if x.size <= 200 else jax.jacrev(f),
            "vmap": jax.vmap(f),
        }[kind]
        jitted = jax.jit(transformed)
        return lambda: jax.block_until_ready(jitted(x, *rest)), 0.0

    def _sparse(self, kind: str, f: Any, x: Any) -> tuple[Call, float]:
        self.asdex = _require("asdex")
        _require("scipy.sparse")
        jacobian = kind.endswith("jacobian")
        start = time.perf_counter()
        coloring = (self.asdex.jacobian_coloring if jacobian else self.asdex.hessian_coloring)(f, x)
        seconds = time.perf_counter() - start
        self.colors = int(coloring.num_colors)
        derivative = (
            self.asdex.jacobian_from_coloring if jacobian else self.asdex.hessian_from_coloring
        )
        jitted = self.jax.jit(derivative(f, coloring))
        return lambda: self.jax.block_until_ready(jitted(x)), seconds

    @property
    def version(self) -> str:
        """Version of the library."""
        return str(self.engine.version)


class TransformsWorker:
    """The state of one worker: its engine and the call that was prepared."""

    def __init__(self, name: str, threads: int) -> None:
        self.engine: Any = Ours(threads) if name == "jit-openmp" else Peer(threads, "scan" in name)
        self.call: Call = lambda: None
        self.number = 1

    def prepare(self, kind: str, name: str) -> dict[str, Any]:
        """Prepare a task and run it; return what it computed, and what came before."""
        gc.collect()
        task = TASKS[name]
        if kind == "text" and task.scanned is None:
            raise ValueError("there is no other text")
        self.call, seconds = self.engine.prepare(task)
        start = time.perf_counter()
        for _ in range(UNTIL_COMPILED):
            result = self.call()
        first = time.perf_counter() - start
        if hasattr(result, "todense") and not hasattr(result, "tocsr"):  # JAX's sparse matrices
            result = result @ np.ones(result.shape[1])
        self.number = batch_size(self.call)
        colors = getattr(self.engine, "colors", None) if "sparse" in name else None
        return {
            "digest": _digest(result), "prepared_s": seconds, "first_s": first, "colors": colors,
        }  # fmt: skip

    def measure(self, seconds: float, least: int = 3) -> dict[str, Any]:
        """Return the median time of the call in s."""
        samples: list[float] = []
        end = time.perf_counter() + seconds
        while len(samples) < least or time.perf_counter() < end:
            samples.append(sample(self.call, self.number))
            if time.perf_counter() - end > 5.0:
                break
        return {"times": [statistics.median(samples)], "ratio": 1.0}


def main() -> None:
    """Run one worker: ``worker.py ENGINE THREADS``."""
    serving(lambda: TransformsWorker(sys.argv[1], int(sys.argv[2])))


if __name__ == "__main__":
    main()
