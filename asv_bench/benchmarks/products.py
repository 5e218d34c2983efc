"""Products that repeat over steps, and factorisations that repeat on the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adarray

from .common import LARGE, OnEngine, warm


def recurrent(w: Any, u: Any, b: Any, inputs: Any) -> Any:
    """Return the squared state of a recurrent network after its last input, without a batch."""
    state = np.zeros(len(b), b.dtype)
    for x in inputs:
        state = np.tanh(x @ w + state @ u + b)
    return np.sum(state * state)


def layer(w: Any, u: Any, b: Any, inputs: Any) -> Any:
    """Return the sum of a layer's squares over a list of vectors."""
    return sum(np.sum(np.tanh(x @ w + b) ** 2) for x in inputs) + 0 * np.sum(u)


COMPILING = ("serial", "openmp-2")


class Steps(OnEngine):
    """Value and gradient of 50 steps, compiled."""

    params = (
        ["serial", "openmp-2"],
        ["recurrent", "layer"],
        [64, 128, 256] if LARGE else [64, 128],
    )
    param_names = ("engine", "function", "n")

    def setup(self, engine: str, function: str, n: int) -> None:
        """Make the data and compile."""
        self.enter(engine)
        rng = np.random.default_rng(0)
        w, u = (rng.normal(size=(2, n, n)) / np.sqrt(n)).astype("float32")
        b = rng.normal(size=n).astype("float32")
        series = rng.normal(size=(50, n)).astype("float32")
        inputs = series if function == "recurrent" else list(series)
        loss: Callable[..., Any] = recurrent if function == "recurrent" else layer
        self.args = w, u, b, inputs
        self.step = adarray.jit(adarray.value_and_grad(loss, argnums=(0, 1, 2)))
        for _ in range(3):
            warm(self.step, *self.args)

    def time_step(self, *_: Any) -> None:
        """One call."""
        self.step(*self.args)


def covariance(p: Any, x: Any) -> Any:
    """Return the covariance of noisy values of a Gaussian process at points."""
    d = x[:, None] - x[None, :]
    return p[1] ** 2 * np.exp(-d * d / (2 * p[0] ** 2)) + p[2] * np.eye(len(x))


def by_cholesky(p: Any, x: Any, y: Any) -> Any:
    """Return the negative log likelihood by NumPy alone, up to a constant."""
    factor = np.linalg.cholesky(covariance(p, x))
    weights = np.linalg.solve(factor.T, np.linalg.solve(factor, y))
    return 0.5 * np.dot(y, weights) + np.sum(np.log(np.diag(factor)))


def by_lu(p: Any, x: Any, y: Any) -> Any:
    """Return the same by a solution and a determinant."""
    k = covariance(p, x)
    return 0.5 * np.dot(y, np.linalg.solve(k, y)) + 0.5 * np.linalg.slogdet(k)[1]


class GaussianProcess(OnEngine):
    """Value and gradient of the log likelihood of a Gaussian process."""

    params = (
        ["serial", "openmp-2"],
        ["by_cholesky", "by_lu"],
        [500, 2000] if LARGE else [200, 500],
    )
    param_names = ("engine", "function", "n")

    def setup(self, engine: str, function: str, n: int) -> None:
        """Make the data, and compile."""
        self.enter(engine)
        rng = np.random.default_rng(0)
        x = np.sort(rng.uniform(0, 10, n))
        self.args = np.array([1.0, 1.0, 0.1]), x, np.sin(x) + 0.1 * rng.normal(size=n)
        loss: Callable[..., Any] = by_cholesky if function == "by_cholesky" else by_lu
        self.gradient = adarray.value_and_grad(loss)
        self.compiled = adarray.jit(self.gradient)
        for _ in range(3):
            warm(self.compiled, *self.args)

    def time_eager(self, *_: Any) -> None:
        """One call without a compiler."""
        self.gradient(*self.args)

    def time_compiled(self, *_: Any) -> None:
        """One compiled call."""
        self.compiled(*self.args)
