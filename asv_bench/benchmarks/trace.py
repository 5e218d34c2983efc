"""What recording costs: time per operation on tiny arrays, filling in place, imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adarray

from .common import ENGINES, LARGE, OnEngine, warm
from .workloads import INPLACE

COUNT = 100


def _unary(x: Any) -> Any:
    for _ in range(COUNT):
        x = np.sin(x)
    return np.sum(x)


def _method(x: Any) -> Any:
    for _ in range(COUNT):
        x = -x
    return np.sum(x)


def _binary(x: Any) -> Any:
    y = x
    for _ in range(COUNT):
        y = y * x
    return np.sum(y)


def _number(x: Any) -> Any:
    for _ in range(COUNT):
        x = x * 1.01
    return np.sum(x)


def _reduction(x: Any) -> Any:
    total = np.sum(x)
    for _ in range(COUNT - 1):
        total = total + np.sum(x)
    return total


def _getitem(x: Any) -> Any:
    total = x[0]
    for i in range(COUNT - 1):
        total = total + x[i % 3]
    return total


def _setitem(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(COUNT):
        y[i % 3] = x[(i + 1) % 3]
    return np.sum(y)


def _reshape(x: Any) -> Any:
    for _ in range(COUNT // 2):
        x = x.reshape(1, 3).reshape(3)
    return np.sum(x)


def _matvec(x: Any) -> Any:
    a = np.full((3, 3), 0.3)
    for _ in range(COUNT):
        x = a @ x
    return np.sum(x)


# About COUNT operations of one kind on three numbers.
KINDS: dict[str, Callable[[Any], Any]] = {
    "unary": _unary,
    "operator": _method,
    "binary": _binary,
    "number": _number,
    "reduction": _reduction,
    "getitem": _getitem,
    "setitem": _setitem,
    "reshape": _reshape,
    "matvec": _matvec,
}


class Overhead(OnEngine):
    """A hundred operations on three numbers, by kind of operation."""

    params = (list(ENGINES), list(KINDS))
    param_names = ("engine", "kind")

    def setup(self, engine: str, kind: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        self.f = KINDS[kind]
        self.x = np.array([0.3, 0.4, 0.5])
        self.t = np.ones(3)
        self.constant = adarray.array(self.x)
        self.gradient = adarray.grad(self.f)
        warm(self.gradient, self.x)
        warm(self.f, self.constant)
        warm(adarray.jvp, self.f, (self.x,), (self.t,))

    def time_gradient(self, *_: Any) -> None:
        """Record and walk back."""
        self.gradient(self.x)

    def time_untraced(self, *_: Any) -> None:
        """Compute on an ADArray that nothing is recorded for."""
        self.f(self.constant)

    def time_jvp(self, *_: Any) -> None:
        """Forward mode."""
        adarray.jvp(self.f, (self.x,), (self.t,))


class TransformCall:
    """What one call of a transform costs, of a function that does next to nothing."""

    params = (["grad", "value_and_grad", "jvp", "vmap", "use"],)
    param_names = ("transform",)

    def setup(self, transform: str) -> None:
        """Make the operands and run once."""
        x = np.array([0.3, 0.4, 0.5])
        rows = np.ones((4, 3))
        gradient = adarray.grad(np.sum)
        both = adarray.value_and_grad(lambda x: np.sum(x * x))
        batched = adarray.vmap(lambda x: x * 2.0)

        def use() -> None:
            with adarray.use("numpy"):
                pass

        self.call = {
            "grad": lambda: gradient(x),
            "value_and_grad": lambda: both(x),
            "jvp": lambda: adarray.jvp(np.sin, (x,), (x,)),
            "vmap": lambda: batched(rows),
            "use": use,
        }[transform]
        warm(self.call)

    def time_call(self, *_: Any) -> None:
        """Call it."""
        self.call()


class Fill:
    """Filling an array in place: the time grows with n, not with its square."""

    params = (list(INPLACE), [1000, 4000, 16000] if LARGE else [500, 2000])
    param_names = ("kind", "n")

    def setup(self, kind: str, n: int) -> None:
        """Make the operands and run once."""
        self.x = np.random.default_rng(0).normal(size=n)
        self.gradient = adarray.grad(lambda x: INPLACE[kind](np, x, n))
        warm(self.gradient, self.x)

    def time_gradient(self, *_: Any) -> None:
        """Fill, and pull back through every write."""
        self.gradient(self.x)


class Import:
    """Time to import, each in a fresh interpreter; NumPy's is part of adarray's."""

    repeat = 5
    number = 1

    def timeraw_adarray(self) -> str:
        """Return the statement to time."""
        return "import adarray"

    def timeraw_numpy(self) -> str:
        """Return the statement to time."""
        return "import numpy"
