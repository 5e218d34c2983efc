"""The idioms of NumPy code under jit: values, gradients and second derivatives."""

from __future__ import annotations

from typing import Any

import idioms_of_arrays  # noqa: F401  (registers)
import idioms_of_python  # noqa: F401
import numpy as np
import pytest
from differential import skip_unless_long
from idiom import IDIOMS, X

import adarray
from adarray.testing._ops import use_all_sizes

INPUTS = [X, X[::-1].copy(), X, 0.9 * X, X[[2, 0, 1, 5, 4, 3]], X]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", IDIOMS)
def test_value(name: str, backend: str) -> None:
    skip_unless_long(backend == "numpy")
    f = IDIOMS[name]
    with use_all_sizes(backend):
        jitted = adarray.jit(f)
        for x in INPUTS:
            before = x.copy()
            expected = adarray.vjp(f, x)[0]
            got = jitted(x)
            np.testing.assert_array_equal(x, before)
            np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-15)
            assert np.shape(got) == np.shape(expected)
            assert np.asarray(got).dtype == np.asarray(expected).dtype


@pytest.mark.sampled(3)
@pytest.mark.slow_on("serial")
@pytest.mark.parametrize("name", IDIOMS)
def test_gradient(name: str, backend: str) -> None:
    skip_unless_long(backend in ("numpy", "serial"))
    f = IDIOMS[name]

    def loss(x: Any) -> Any:
        y = f(x)
        return np.sum(y * np.cos(np.arange(np.size(y)).reshape(np.shape(y))))

    with use_all_sizes(backend):
        expected = adarray.value_and_grad(loss)
        jitted = adarray.jit(expected)
        for x in INPUTS:
            value, gradient = jitted(x)
            np.testing.assert_allclose(value, expected(x)[0], rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(gradient, expected(x)[1], rtol=1e-12, atol=1e-13)


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize("name", IDIOMS)
def test_hessian(name: str) -> None:
    f = IDIOMS[name]

    def loss(x: Any) -> Any:
        return np.sum(f(x) ** 2)

    expected = adarray.hessian(loss)
    jitted = adarray.jit(expected)
    with adarray.use("numpy"):
        for x in INPUTS[:4]:
            np.testing.assert_allclose(jitted(x), expected(x), rtol=1e-11, atol=1e-11)


@pytest.mark.filterwarnings("error::adarray.JitWarning")
def test_running_extrema_compile():
    """The drawdown of a path: positions are written, and methods of ufuncs are new objects."""

    def drawdown(r):
        value = np.cumprod(1.0 + r)
        return np.max(1.0 - value / np.maximum.accumulate(value)) + np.minimum.accumulate(r)[-1]

    r = np.array([0.1, -0.2, 0.05, 0.3, -0.1])
    fast = adarray.jit(adarray.grad(drawdown))
    for scale in (1.0, 1.0, 1.0, 0.5, -1.0):
        np.testing.assert_allclose(fast(scale * r), adarray.grad(drawdown)(scale * r), atol=1e-14)
    assert fast.explain(r).kernels


@pytest.mark.filterwarnings("error::adarray.JitWarning")
def test_methods_of_ufuncs_compile_on_integers():
    @adarray.jit
    def last_positive(x):
        return np.maximum.accumulate((x > 0) * np.arange(4)), np.bitwise_or.reduce(x > 0)

    for _ in range(4):
        positions, some = last_positive(np.array([1.0, -1.0, 2.0, -3.0]))
        np.testing.assert_array_equal(positions, [0, 0, 2, 2])
        assert some
