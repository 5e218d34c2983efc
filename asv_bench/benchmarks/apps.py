"""Whole functions: the three-layer network and the workloads of the peers' tables."""

from __future__ import annotations

from typing import Any

import adarray
import numpy as np

from .common import DTYPES, ENGINES, LARGE, OnEngine, warm
from .workloads import WORKLOADS, Workload, make_network

# Large profile: also those that take seconds on the reference backend.
SLOW = ("heat20 1024", "mlp b512 h1024 f32", "softmax-xent 2048x4096 f32", "blackscholes 1e6")
NAMES = [name for name in WORKLOADS if LARGE or name not in SLOW]


def bound(w: Workload) -> tuple[Any, tuple[np.ndarray, ...]]:
    """Return a function of the variables of `w` alone, and the variables."""
    variables, constants = w.data()
    return (lambda *xs: w.body(np, *xs, *constants)), variables


class Network(OnEngine):
    """One step of the 784-h-h-10 network on 128 pictures, forward and backward."""

    params = (list(ENGINES), [128, 256, 1024] if LARGE else [64, 256], list(DTYPES))
    param_names = ["engine", "width", "dtype"]

    def setup(self, engine: str, width: int, dtype: str) -> None:
        self.enter(engine)
        f, self.variables = bound(make_network(128, width, np.dtype(dtype)))
        self.f = f
        self.traced = [adarray.array(x, requires_grad=True) for x in self.variables]
        warm(f, *self.traced)
        _, self.pullback = adarray.vjp(f, *self.variables)
        self.one = np.ones((), dtype)[()]
        warm(self.pullback, self.one)
        self.gradient = adarray.value_and_grad(f, argnums=tuple(range(len(self.variables))))
        warm(self.gradient, *self.variables)

    def time_forward(self, engine: str, width: int, dtype: str) -> None:
        """Compute and record the loss."""
        self.f(*self.traced)

    def time_backward(self, engine: str, width: int, dtype: str) -> None:
        """Pull back to all parameters."""
        self.pullback(self.one)

    def time_step(self, engine: str, width: int, dtype: str) -> None:
        """Loss, gradient, and a step along it."""
        _, gradient = self.gradient(*self.variables)
        for x, g in zip(self.variables, gradient, strict=True):
            x -= 1e-4 * g


class Gradient(OnEngine):
    """Value and gradient of the functions that are also timed on the peers."""

    params = (list(ENGINES), NAMES)
    param_names = ["engine", "workload"]
    timeout = 300

    def setup(self, engine: str, workload: str) -> None:
        self.enter(engine)
        f, self.variables = bound(WORKLOADS[workload])
        self.gradient = adarray.value_and_grad(f, argnums=tuple(range(len(self.variables))))
        warm(self.gradient, *self.variables)

    def time_value_and_grad(self, engine: str, workload: str) -> None:
        """Value and gradient."""
        self.gradient(*self.variables)
