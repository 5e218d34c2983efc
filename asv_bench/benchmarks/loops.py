"""Element loops under jit: calls and compiling by how many iterations there are."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import adarray

from .common import LARGE, OnEngine, warm


def recurrence(n: int, x: Any) -> Any:
    """Return the sum of a damped recurrence of `n` steps."""
    state, total = x[0], 0.0
    for k in range(1, n):
        state = 0.9 * state + np.sin(x[k])
        total = total + state
    return total


def sweeps(n: int, x: Any) -> Any:
    """Return the energy after Gauss-Seidel sweeps in place, about `n` elements in all."""
    side = 20
    u = np.reshape(x[: side * side], (side, side)) * 1.0
    for _ in range(max(n // side**2, 1)):
        for i in range(1, side - 1):
            for j in range(1, side - 1):
                u[i, j] = (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1] + u[i, j]) * 0.2
    return np.sum(u * u)


def products(n: int, x: Any) -> Any:
    """Return the sum of a triangle of products of rows, about `n` elements in all."""
    m = int(np.sqrt(n))
    a = np.reshape(x[: m * 16], (m, 16))
    c = np.zeros((m, m))
    for i in range(m):
        for k in range(16):
            c[i, : i + 1] += a[i, k] * a[: i + 1, k]
    return np.sum(np.sin(c))


FUNCTIONS = {f.__name__: f for f in (recurrence, sweeps, products)}


class Loops(OnEngine):
    """Value and gradient of loops that `jit` captures."""

    params = (
        ["serial", "openmp-1"],
        sorted(FUNCTIONS),
        [1_000, 10_000, 100_000] if LARGE else [1_000, 10_000],
    )
    param_names = ("engine", "function", "n")

    def setup(self, engine: str, function: str, n: int) -> None:
        """Make the data and compile."""
        self.enter(engine)
        self.x = np.random.default_rng(0).uniform(0.1, 1.0, n)
        f = FUNCTIONS[function]
        start = time.perf_counter()
        self.step = adarray.jit(adarray.value_and_grad(lambda x: f(n, x)), wait=True)
        for _ in range(3):
            warm(self.step, self.x)
        self.first = time.perf_counter() - start

    def time_step(self, *_: Any) -> None:
        """One call."""
        self.step(self.x)

    def track_until_compiled(self, *_: Any) -> float:
        """Seconds of the first calls, from what is cached on disk or not."""
        return self.first

    track_until_compiled.unit = "s"  # type: ignore[attr-defined]
