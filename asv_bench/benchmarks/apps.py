"""Whole functions: the three-layer network and the workloads of the peers' tables."""

from __future__ import annotations

from typing import Any

import numpy as np

import adarray

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
    """The 784-h-h-10 network on 128 pictures, forward and backward."""

    params = (list(ENGINES), [128, 256, 1024] if LARGE else [64, 256], list(DTYPES))
    param_names = ("engine", "width", "dtype")

    def setup(self, engine: str, width: int, dtype: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        self.f, variables = bound(make_network(128, width, np.dtype(dtype)))
        self.traced = [adarray.array(x, requires_grad=True) for x in variables]
        warm(self.f, *self.traced)
        _, self.pullback = adarray.vjp(self.f, *variables)
        self.one = np.ones((), dtype)[()]
        warm(self.pullback, self.one)

    def time_forward(self, *_: Any) -> None:
        """Compute and record the loss."""
        self.f(*self.traced)

    def time_backward(self, *_: Any) -> None:
        """Pull back to all parameters."""
        self.pullback(self.one)


class NetworkStep(OnEngine):
    """A whole step of training: loss, gradient, and a move along it."""

    params = Network.params
    param_names = Network.param_names

    def setup(self, engine: str, width: int, dtype: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        f, self.variables = bound(make_network(128, width, np.dtype(dtype)))
        self.gradient = adarray.value_and_grad(f, argnums=tuple(range(len(self.variables))))
        warm(self.time_step)

    def time_step(self, *_: Any) -> None:
        """Gradient, and one step."""
        _, gradient = self.gradient(*self.variables)
        for x, g in zip(self.variables, gradient, strict=True):
            x -= 1e-4 * g


class Gradient(OnEngine):
    """Value and gradient of the functions that are also timed on the peers."""

    params = (list(ENGINES), NAMES)
    param_names = ("engine", "workload")
    timeout = 300

    def setup(self, engine: str, workload: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        f, self.variables = bound(WORKLOADS[workload])
        self.gradient = adarray.value_and_grad(f, argnums=tuple(range(len(self.variables))))
        warm(self.gradient, *self.variables)

    def time_value_and_grad(self, *_: Any) -> None:
        """Value and gradient."""
        self.gradient(*self.variables)
