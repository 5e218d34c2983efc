"""Functions of arrays, and transforms of them, to be jitted.

For tests of `jit` and transforms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import adarray

X = np.array([0.7, -1.3, 0.4, 2.1, -0.6])
M = np.linspace(-1.0, 1.2, 20).reshape(4, 5)
V = np.array([0.2, -0.1, 0.5, 0.3, -0.7])


def f(x: Any) -> Any:
    """Return a number, by a branch that half of the inputs of the tests take."""
    y = np.sin(x) * np.exp(-x * x)
    if np.sum(x) > 1.0:
        y = y + 0.1 * x**3
    return np.sum(np.log1p(y * y)) + np.max(x) * 0.3


def g(x: Any) -> Any:
    """Return an array."""
    y = np.tanh(M @ x)
    y[1] += x[0] * x[1]
    return y


INPUTS = [X, X[::-1] * 0.5, X - 0.8, X, X * 1.1, X - 0.8]


TRANSFORMS: dict[str, Callable[[], Callable[..., Any]]] = {
    "grad": lambda: adarray.grad(f),
    "value_and_grad": lambda: adarray.value_and_grad(f),
    "grad of grad": lambda: adarray.grad(lambda x: np.sum(adarray.grad(f)(x) ** 2)),
    "jvp": lambda: lambda x: adarray.jvp(g, (x,), (V,)),
    "vjp": lambda: lambda x: adarray.vjp(g, x)[1](np.ones(4)),
    "jacobian": lambda: adarray.jacobian(g),
    "jacobian, forward": lambda: adarray.jacobian(g, mode="forward"),
    "hessian": lambda: adarray.hessian(f),
    "hessian-vector product": lambda: lambda x: adarray.jvp(adarray.grad(f), (x,), (V,))[1],
    "grad of jvp": lambda: adarray.grad(lambda x: np.sum(adarray.jvp(g, (x,), (V,))[1] ** 2)),
}
