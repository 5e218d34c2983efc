"""Errors of Python's `math`, which code catches, where NumPy gives nan or infinity."""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning

ERRORS = (ValueError, OverflowError, ZeroDivisionError)
X = np.array([0.7, 1.3, 0.4])
FIRST = (0.7, 0.9, 1000.0, 0.7, -0.5, 0.0, -1.0, 3.0, 1.0, np.inf, np.nan, 0.7)
NUMBERS: dict[str, Callable[[float, float], Any]] = {
    "log": lambda a, b: math.log(a),
    "log with a base": lambda a, b: math.log(b, a),
    "sqrt": lambda a, b: math.sqrt(a),
    "1 / sqrt": lambda a, b: 1 / math.sqrt(a),
    "pow": lambda a, b: math.pow(a, 0.5),
    "pow to a negative": lambda a, b: math.pow(a, -1),
    "exp": lambda a, b: math.exp(a),
    "sin": lambda a, b: math.sin(a),
    "acosh": lambda a, b: math.acosh(a),
    "atanh": lambda a, b: math.atanh(a / 2),
    "fmod": lambda a, b: math.fmod(b, a),
    "remainder": lambda a, b: math.remainder(b, a),
    "fsum": lambda a, b: math.fsum([a, b, a]),
    "modf": lambda a, b: math.modf(a)[0] + math.modf(a)[1],
    "copysign": lambda a, b: math.copysign(1.0, a) / a,
    "hypot": lambda a, b: math.hypot(a, b),
    "tanh": lambda a, b: math.tanh(a),
    "of complex numbers": lambda a, b: abs(cmath.log(a)),
    "whole": lambda a, b: float(a).is_integer() * b,
}


def caught(number: Callable[[float, float], Any]) -> Callable[[Any], Any]:
    """Return a function that catches errors of another."""

    def f(x: Any) -> Any:
        try:
            s = number(float(x[0]), float(x[1]))
        except ERRORS:
            s = -2.5 * x[1]
        return x * s

    return f


def of_python(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return what sums up the results of a function."""
    return lambda x: np.sum(f(x))


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("backend", ["numpy", "serial"])
def test_errors_that_are_caught(number: str, backend: str) -> None:
    """Compiled code computed on with nan or infinity, or always returned what the handler did."""
    f = caught(NUMBERS[number])
    total = of_python(f)
    jitted, graded = adarray.jit(f), adarray.jit(adarray.value_and_grad(total))
    with adarray.use(backend), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", JitWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        for first in FIRST:
            x = np.array([first, *X[1:]])
            np.testing.assert_allclose(jitted(x), f(x), err_msg=f"{first}")
            value, slope = adarray.value_and_grad(total, intercept=True)(x)
            np.testing.assert_allclose(value, total(x), err_msg=f"{first}")
            got, compiled = graded(x)
            np.testing.assert_allclose(got, value, err_msg=f"{first}")
            np.testing.assert_allclose(compiled, slope, err_msg=f"{first}")


def test_errors_that_are_not_caught() -> None:
    jitted = adarray.jit(lambda x: x * math.log(x[0]) * math.exp(x[1]))
    for _ in range(3):
        np.testing.assert_allclose(jitted(X), X * math.log(0.7) * math.exp(1.3))
    for wrong, kind in ((-1.0, ValueError), (0.0, ValueError), (np.nan, None)):
        x = np.array([wrong, 1.0, 2.0])
        if kind is None:
            assert np.isnan(jitted(x)).all()
        else:
            with pytest.raises(kind, match="math domain error"):
                jitted(x)
    with pytest.raises(OverflowError, match="math range error"):
        jitted(np.array([1.0, 1000.0, 2.0]))
    np.testing.assert_allclose(jitted(X), X * math.log(0.7) * math.exp(1.3))
    assert not jitted.cache_info().eager


def test_numbers_are_of_python() -> None:
    def f(x: Any) -> Any:
        a = float(x[0])
        kinds = [type(v) is float for v in (math.copysign(1, a), *math.modf(a), math.sqrt(a))]
        return x * sum(kinds)

    for transformed in (adarray.jit(f), lambda x: adarray.vjp(f, x, intercept=True)[0]):
        np.testing.assert_array_equal(transformed(X), 4 * X)


def test_the_derivative_of_a_root_at_zero() -> None:
    """The rule was computed by Python, which raises an error for a negative power of zero."""
    with np.errstate(divide="ignore"):
        slope = adarray.grad(lambda x: math.pow(float(x[0]), 0.5), intercept=True)(np.zeros(1))
    assert np.isinf(slope[0])
