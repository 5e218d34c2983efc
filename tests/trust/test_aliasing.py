"""Random programs over arrays that share memory: values, writes, and which results share it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from shared_arrays import compare, differentiated
from trust import BACKENDS, seeds

import adarray
from adarray.errors import TraceError

W = np.array([1.0, 2.0, 3.0])
V = W[::-1]


@pytest.mark.parametrize("seed", seeds(80))
def test_random_programs(seed: int) -> None:
    backend = BACKENDS[seed % len(BACKENDS)]
    compare(seed, backend, views=backend != "cuda")


@pytest.mark.parametrize("mode", ["grad", "vjp", "jvp", "one", "nested", "jit"])
def test_derivatives_of_random_programs(mode: str) -> None:
    refused = Counter(differentiated(seed, mode) for seed in seeds(40))
    print(refused)
    assert refused[False] > refused[True] / 3


def _write_captured(x: Any) -> Any:
    W[0] = 5.0
    return np.sum(x * x)


def _write_view(x: Any) -> Any:
    V[0] += 4.0
    return np.sum(x * x)


def _write_argument(x: Any) -> Any:
    x[0] = 5.0
    return np.sum(W * x)


def _write_argument_read_view(x: Any) -> Any:
    x *= 2.0
    return np.sum(V * x)


def _compare(x: Any) -> Any:
    return np.sum(x) * (2.0 if x is W else 3.0)


def _compare_numbers(x: Any) -> Any:
    return np.sum(x) * (2.0 if id(x) == id(W) else 3.0)


@pytest.mark.parametrize(
    "f",
    [_write_captured, _write_view, _write_argument, _write_argument_read_view, _compare,
     _compare_numbers],
)  # fmt: skip
def test_arguments_that_are_captured_too(f: Any) -> None:
    """What the function wrote into one was not in the other, and `is` said no."""
    for call in (
        lambda x: adarray.grad(f)(x),
        lambda x: adarray.vjp(f, x),
        lambda x: adarray.jvp(f, (x,), (np.ones(3),)),
    ):
        W[:] = 1.0, 2.0, 3.0
        with pytest.raises(TraceError, match="pass a copy"):
            call(W)
        W[:] = 1.0, 2.0, 3.0
        call(W.copy())


def test_helpers_that_compare_arguments() -> None:
    def same(a: Any, b: Any) -> bool:
        return a is b

    def f(x: Any, y: Any) -> Any:
        return np.sum(x) * (2.0 if same(x, y) else 3.0)

    with pytest.raises(TraceError, match="asks which objects they are"):
        adarray.grad(f)(W, W)
    np.testing.assert_array_equal(adarray.grad(f)(W, W.copy()), np.full(3, 3.0))
