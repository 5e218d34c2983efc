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


def distances(n: int, x: Any) -> Any:
    """Return a sum over all pairs of points, about `n` pairs."""
    points = np.reshape(x[: 8 * int(np.sqrt(n))], (-1, 8))
    count = points.shape[0]
    total = 0.0
    for i in range(count):
        for j in range(count):
            s = 0.1
            for k in range(8):
                d = points[i, k] - points[j, k]
                s += d * d
            total += np.sqrt(s)
    return total


def convolution(n: int, x: Any) -> Any:
    """Return the energy of an image of `n` points, filtered with 5 x 5 weights."""
    side = int(np.sqrt(n))
    image, weights = np.reshape(x[: side**2], (side, side)), np.reshape(x[:25], (5, 5))
    out = np.zeros((side - 4, side - 4))
    for i in range(side - 4):
        for j in range(side - 4):
            for k in range(5):
                for m in range(5):
                    out[i, j] += image[i + k, j + m] * weights[k, m]
    return np.sum(out * out)


def walks(n: int, x: Any) -> Any:
    """Return the mean payoff of paths of 50 steps, `n` steps in all."""
    z = np.reshape(x[: n // 50 * 50], (-1, 50))
    total = 0.0
    for p in range(z.shape[0]):
        s, mean = 1.0, 0.0
        for t in range(50):
            s *= np.exp(0.1 * z[p, t] - 0.05)
            mean += s / 50
        if mean > 1.0:
            total += mean - 1.0
    return total


def matmul(n: int, x: Any) -> Any:
    """Return the energy of a product of matrices of `n` elements, added up element by element."""
    side = int(np.sqrt(n))
    a = np.reshape(x[: side**2], (side, side))
    c = np.zeros((side, side))
    for i in range(side):
        for j in range(side):
            for k in range(side):
                c[i, j] += a[i, k] * a[k, j]
    return np.sum(c * c)


INDEPENDENT = {f.__name__: f for f in (distances, convolution, walks, matmul)}


class SharedLoops(OnEngine):
    """Value and gradient of loops whose iterations threads share."""

    params = (
        ["serial", "openmp-1", "openmp-2", *(["openmp-8"] if LARGE else [])],
        sorted(INDEPENDENT),
        [1_000_000] if LARGE else [100_000],
    )
    param_names = ("engine", "function", "n")

    def setup(self, engine: str, function: str, n: int) -> None:
        """Make the data and compile."""
        self.enter(engine)
        self.x = np.random.default_rng(0).uniform(0.1, 1.0, n)
        f = INDEPENDENT[function]
        self.step = adarray.jit(adarray.value_and_grad(lambda x: f(n, x)), wait=True)
        for _ in range(3):
            warm(self.step, self.x)

    def time_step(self, *_: Any) -> None:
        """One call."""
        self.step(self.x)
