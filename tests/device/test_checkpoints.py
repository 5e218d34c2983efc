"""Checkpoints, loops and rules of users, of arrays on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray

X = np.array([0.3, -0.7, 1.1])


def step(x: Any) -> Any:
    return np.tanh(x * x[0])


def repeated(f: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = f(x)
    return x


by_jvp = adarray.custom_jvp(step)
by_jvp.defjvp(lambda p, t: adarray.jvp(step, p, t))
by_vjp = adarray.custom_vjp(step)
by_vjp.defvjp(lambda x: (step(x), x), lambda x, g: (adarray.vjp(step, x)[1](g)[0],))

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "checkpoint": (adarray.checkpoint(step), step),
    "captured": (
        lambda x: adarray.checkpoint(lambda y: y * x[0])(step(x)), lambda x: step(x) * x[0],
    ),
    "loop": (lambda x: adarray.checkpointed_loop(step, x, 5, 2), lambda x: repeated(step, x, 5)),
    "disk": (
        lambda x: adarray.checkpointed_loop(step, x, 5, 1, disk=2), lambda x: repeated(step, x, 5),
    ),
    "captured by a loop": (
        lambda x: adarray.checkpointed_loop(lambda y: np.sin(y) * x[0], x, 5, 2),
        lambda x: repeated(lambda y: np.sin(y) * x[0], x, 5),
    ),
    "custom_jvp": (by_jvp, step),
    "custom_vjp": (by_vjp, step),
    "black_box": (
        adarray.black_box(lambda x: np.sin(np.asarray(x)), lambda x: np.diag(np.cos(x))), np.sin,
    ),
    "solve": (
        lambda x: adarray.custom_linear_solve(
            lambda y: y * (2 + x * x), x, lambda m, b: b / m(np.ones(3)), symmetric=True
        ),
        lambda x: x / (2 + x * x),
    ),
}  # fmt: skip


def loss(f: Any) -> Any:
    return lambda x: np.sum(f(x) ** 2)


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("transform", ["grad", "hvp", "jvp"])
def test_as_on_the_host(device_backend: str, name: str, transform: str) -> None:
    if (name, transform) == ("custom_vjp", "jvp"):
        return
    mine, plain = FUNCTIONS[name]
    derivative: Callable[[Any], Any] = {
        "grad": lambda f: adarray.grad(loss(f))(X),
        "hvp": lambda f: adarray.hvp(loss(f))(X, X),
        "jvp": lambda f: adarray.jvp(loss(f), (X,), (X,))[1],
    }[transform]
    expected = derivative(plain)
    with adarray.use(device_backend):
        np.testing.assert_allclose(derivative(mine), expected, rtol=1e-9)
