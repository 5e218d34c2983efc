"""Arguments on the host that share memory, and are written into by calls on a device."""

from __future__ import annotations

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
