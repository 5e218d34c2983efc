"""Arrays of indices and knots that a function captured, in its compiled derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray

AT = np.array([0, 3, 3, 1, 7, 2, 5, 5])
KNOTS, HEIGHTS = np.arange(-4.0, 4.0), np.arange(8.0) ** 2
U = np.random.default_rng(0).normal(size=8)


def written_rows(u: Any) -> Any:
    table = np.zeros((8, 8))
    table[np.arange(8), AT] = u
    return np.sum(np.sin(table[2]) * u)


def written_twice(u: Any) -> Any:
    written = np.zeros(8)
    written[AT] = u**2
    return np.sum(written * np.arange(8.0))


def interpolated(u: Any) -> Any:
    return np.sum(np.interp(u, KNOTS, HEIGHTS) ** 2)


def knots_too(u: Any) -> Any:
    return np.sum(np.interp(KNOTS[:4], np.sort(u), HEIGHTS * u) ** 2)


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("f", [written_rows, written_twice, interpolated, knots_too])
@pytest.mark.parametrize(
    "derivative",
    [
        adarray.grad,
        lambda f: lambda x: adarray.jvp(f, (x,), (np.ones(8),))[1],
        lambda f: lambda x: adarray.hvp(f)(x, np.ones(8)),
    ],
    ids=["grad", "jvp", "hvp"],
)
def test_derivatives_compile(
    f: Callable[..., Any], derivative: Callable[..., Any], backend: str
) -> None:
    with adarray.use(backend):
        jitted = adarray.jit(derivative(f))
        for k in range(4):
            np.testing.assert_allclose(jitted(U + k), derivative(f)(U + k), rtol=1e-12, atol=1e-12)
        assert jitted.cache_info().eager == 0


def test_indices_that_change_between_calls() -> None:
    at = AT.copy()

    def f(u: Any) -> Any:
        array = np.zeros(8)
        array[at] = u**2
        return np.sum(array * np.arange(8.0))

    jitted = adarray.jit(adarray.grad(f))
    for k in range(8):
        at[1] = k
        np.testing.assert_allclose(jitted(U), adarray.grad(f)(U), rtol=1e-14)
