"""vmap and Jacobians over arrays on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
from members import assert_same, looped

import adarray
from adarray.device import is_device

X = np.random.default_rng(0).normal(size=(5, 3))


def branching(x: Any) -> Any:
    if x[0] > 0:
        return np.sin(x) * x[np.argmax(x)]
    return np.cumsum(x) @ np.outer(x, x)


def in_place(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = x[:-1] * x[1:]
    y[x > 0.1] *= 0.5
    y += np.sum(x)
    return y


def test_values_and_gradients(device_backend: str) -> None:
    for f in (branching, in_place, np.linalg.norm):
        want = looped(f, (X,), (0,))

        def loss(x: Any, f: Any = f) -> Any:
            return np.sum(np.square(f(x)))

        slopes = looped(adarray.grad(loss), (X,), (0,))
        with adarray.use(device_backend):
            array = adarray.array(X)
            got = adarray.vmap(f)(array)
            assert is_device(got._plain)
            assert_same(got.numpy(), want)
            gradient = adarray.vmap(adarray.grad(loss))(array)
            assert is_device(gradient._plain)
            assert_same(gradient.numpy(), slopes)
            total = adarray.grad(lambda a, g=loss: np.sum(adarray.vmap(g)(a)))(array)
            assert is_device(total._plain)
            assert_same(total.numpy(), slopes)


def test_jacobians_stay_on_the_device(device_backend: str) -> None:
    x = np.linspace(-1, 1, 40)
    want = adarray.jacobian(in_place)(x)
    with adarray.use(device_backend):
        array = adarray.array(x)
        for of in (adarray.jacfwd, adarray.jacrev):
            got = of(in_place)(array)
            assert is_device(got._plain)
            assert_same(got.numpy(), want)


def test_under_jit(device_backend: str) -> None:
    want = looped(in_place, (X,), (0,))
    with adarray.use(device_backend):
        compiled = adarray.jit(adarray.vmap(in_place))
        array = adarray.array(X)
        for _ in range(3):
            got = compiled(array)
        assert_same(got.numpy(), want)
