"""Arguments on the host that share memory, and are written into by calls on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from shared_arrays import compare
from trust import seeds

import adarray


def test_an_array_of_the_host_is_written_in_each_call(device_backend: str) -> None:
    """What was computed in its copy on the device did not come back from the third call on."""

    @adarray.jit
    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        y[0] = np.sum(x)
        return x + y

    with adarray.use(device_backend):
        for k in range(4):
            x, y = np.arange(4.0) + k, np.ones(4)
            r = f(x, y)
            assert y[0] == np.sum(x)
            np.testing.assert_array_equal(r, x + y)


def test_arrays_of_the_host_that_share_memory_are_seen_by_each_call(device_backend: str) -> None:
    """Compiled code was given copies, of which a write into one was not seen in the other."""

    def f(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x[1] = 7.0
        return y * 2.0

    with adarray.use(device_backend):
        jitted = adarray.jit(f)
        for k in range(6):  # together from the fourth call on: it is compiled before
            memory, own = np.arange(6.0), np.arange(6.0)
            cut = 1 if k > 2 else 3
            for g, m in ((jitted, memory), (f, own)):
                result = g(m[:3], m[cut : cut + 3])
                if g is jitted:
                    got = result
            np.testing.assert_array_equal(got, result)
            np.testing.assert_array_equal(memory, own)


@pytest.mark.slow
def test_random_programs(device_backend: str) -> None:
    for seed in seeds(80):
        compare(seed, device_backend, views=False)


@pytest.mark.parametrize("compiled", [False, True])
def test_what_changes_nothing_is_a_view(device_backend: str, compiled: bool) -> None:
    """A library may return its argument itself, as NumPy does, where nothing is to be squeezed."""

    def f(x: Any) -> Any:
        y = x * 1.0
        v = y.squeeze()
        v[0] = 9.0
        w = np.reshape(np.squeeze(v), (3, 2))
        w[1] *= 2.0
        return np.sum(np.sin(y * x)), y * 1.0

    x = np.arange(1.0, 7.0)
    value, y = f(x)
    gradient = adarray.grad(f, has_aux=True)(x)[0]
    transformed = adarray.value_and_grad(f, has_aux=True)
    transformed = adarray.jit(transformed) if compiled else transformed
    with adarray.use(device_backend):
        for _ in range(3):
            actual, g = transformed(x)
            np.testing.assert_allclose(actual[0], value)
            np.testing.assert_allclose(actual[1], y)
            np.testing.assert_allclose(g, gradient)
