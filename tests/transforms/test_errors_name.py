"""Errors name what the user wrote: the transform, the place in the argument."""

from __future__ import annotations

import dataclasses
import statistics

import numpy as np
import pytest

import adarray

pytest.importorskip("scipy")

from adarray.scipy.linalg import (
    cho_factor,
    cho_solve,
    cholesky,
    solve_triangular,
)


@dataclasses.dataclass
class Layer:
    weights: object
    bias: object


def nothing(*_):
    return 1.0


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "jacobian", "hessian"])
@pytest.mark.parametrize(
    ("argument", "place"),
    [({"hidden": ["text", np.arange(3)]}, r"\['hidden'\]\[1\]"),
     ([None, Layer(np.sin, 3)], r"\[1\]\.bias"), (4, ""),
     (({"a": np.sin}, {"b": "text"}), r"\[0\]\['a'\]")],
)  # fmt: skip
def test_what_cannot_be_differentiated_is_named_by_its_place(name, argument, place):
    """It was the number of a leaf, and of another transform."""
    with pytest.raises(adarray.DTypeError, match=rf"^{name}: argument 1{place}: (has|is)"):
        getattr(adarray, name)(nothing, argnums=1)(2.0, argument)


def test_a_hessian_speaks_of_itself():
    with pytest.raises(adarray.ShapeError, match=r"^hessian: the function returned shape \(3,\)"):
        adarray.hessian(lambda x: x)(np.ones(3))
    with pytest.raises(TypeError, match=r"^hessian: argnums=2"):
        adarray.hessian(np.sum, argnums=2)(np.ones(3))


# -- what `jit` compiles ----------------------------------------------------------------------

X = np.array([0.0, 0.7, 1.9])


def kernel(x):
    return np.exp(-((x[:, None] - x) ** 2))


def factors(x):
    return x @ cho_solve(cho_factor(kernel(x) + 0.1 * np.eye(3)), x)


def triangles(x):
    lower = cholesky(kernel(x) + 0.1 * np.eye(3), lower=True)
    return np.sum(solve_triangular(lower, x, lower=True) ** 2)


def on_the_diagonal(x):
    k = kernel(x)
    k[np.diag_indices_from(k)] += 0.1 * x[1]
    k[np.triu_indices_from(k, 1)] *= 0.5
    k[np.tril_indices_from(k, -1)] *= x[2]
    return np.sum(np.linalg.inv(k))


@pytest.mark.parametrize("f", [factors, triangles, on_the_diagonal])
def test_code_of_gaussian_processes_compiles(f):
    """It stayed eager, and the advice was to use what it used."""
    eager, jitted = adarray.grad(f, intercept=True), adarray.jit(adarray.grad(f))
    for k in range(4):
        x = X + 0.1 * k * np.arange(3)
        got = jitted(x)
        np.testing.assert_allclose(got, eager(x), rtol=1e-9)
        step = 1e-6 * np.eye(3)
        slopes = [(f(x + e) - f(x - e)) / 2e-6 for e in step]
        np.testing.assert_allclose(got, slopes, rtol=1e-5, atol=1e-7)
    assert jitted.cache_info().eager == 0


def test_compiled_code_still_checks_that_values_are_finite():
    jitted = adarray.jit(adarray.grad(factors))
    for _ in range(4):
        jitted(X)
    with pytest.raises(ValueError, match="infs or NaNs"):
        jitted(np.array([0.0, np.nan, 1.0]))
    np.testing.assert_allclose(jitted(X), adarray.grad(factors)(X), rtol=1e-9)


def test_lines_of_the_standard_library_are_no_users():
    def averaged(x):
        return statistics.fmean([x, x**2])

    with pytest.raises(
        adarray.TraceError, match=r"\(in averaged, file .*test_errors_name.py, line"
    ):
        adarray.grad(averaged)(2.0)
