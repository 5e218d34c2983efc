"""adarray.scipy.optimize: roots as functions of what the equation depends on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

scipy_optimize = pytest.importorskip("scipy.optimize")
from adarray.scipy import optimize  # noqa: E402

BRACKETED = ("brentq", "brenth", "ridder", "bisect", "toms748")


@pytest.mark.parametrize("name", BRACKETED)
def test_bracketed(name: str) -> None:
    solve = getattr(optimize, name)
    check_grads(lambda a, b: solve(lambda x, c: x**3 + c * x - a, 0.0, 10.0, args=(b,)), (4.0, 0.5))
    check_grads(lambda a: solve(lambda x: np.exp(x) - a, 0.0, 3.0, full_output=True)[0], (4.0,))


@pytest.mark.parametrize("name", BRACKETED)
def test_plain_equations_are_scipys(name: str) -> None:
    calls = []

    def f(x: float) -> float:
        calls.append(x)
        return x**3 - 2.0

    ours = getattr(optimize, name)(f, 0.0, 2.0)
    count = len(calls)
    assert ours == getattr(scipy_optimize, name)(f, 0.0, 2.0)
    assert len(calls) == 2 * count
    assert type(ours) is type(getattr(scipy_optimize, name)(f, 0.0, 2.0))


def test_the_value_is_scipys() -> None:
    expected = scipy_optimize.brentq(lambda x: np.cos(x) - 0.3 * x, 0.0, 2.0)
    value, _ = adarray.value_and_grad(
        lambda a: optimize.brentq(lambda x: np.cos(x) - a * x, 0.0, 2.0)
    )(0.3)
    assert value == expected


def test_newton() -> None:
    start = np.array([1.0, 2.0])

    def equation(x: Any, c: Any) -> Any:
        return np.exp(x) - c * x - 3.0

    check_grads(lambda c: optimize.newton(equation, start, args=(c,)), (np.array([0.5, 0.7]),))
    check_grads(lambda c: optimize.newton(equation, 1.0, args=[c]), (0.5,))
    check_grads(lambda c: optimize.newton(equation, start, args=(c,), full_output=True)[0],
                (np.array([0.5, 0.7]),))  # fmt: skip
    check_grads(lambda a: optimize.newton(lambda x: x**2 - a, 1.0, lambda x: 2 * x), (2.0,))


def test_root_scalar() -> None:
    check_grads(lambda a: optimize.root_scalar(lambda x: x**3 - a, bracket=(0.0, 5.0)).root, (2.0,))

    def with_slope(a: Any) -> Any:
        return optimize.root_scalar(
            lambda x: (x**2 - a, 2.0 * x), x0=1.0, fprime=True, method="newton"
        ).root

    check_grads(with_slope, (2.0,))


def test_systems() -> None:
    def listed(x: Any, c: Any) -> Any:
        return [x[0] ** 2 + c[0] * x[1] - 1.0, x[0] - c[1] * x[1]]

    start, c = np.array([1.0, 1.0]), np.array([0.5, 0.7])
    check_grads(lambda c: optimize.fsolve(listed, start, args=(c,), xtol=1e-12), (c,))
    check_grads(lambda c: optimize.fsolve(listed, start, (c,), full_output=True)[0], (c,))
    check_grads(lambda c: optimize.root(lambda x: np.stack(listed(x, c)), start).x, (c,))


def test_fixed_point() -> None:
    check_grads(lambda a: optimize.fixed_point(lambda x, c: np.cos(c * x), 0.5, args=(a,)), (0.8,))


def test_a_root_that_is_not_smooth() -> None:
    message = (
        r"brentq: the root does not depend smoothly on traced values, since the slope of the "
        r"equation there is -?0.0; start at a simple root, or pass adarray.value_of\(x\)"
    )
    with pytest.raises(adarray.NotDifferentiableError, match=message):
        adarray.grad(lambda a: optimize.brentq(lambda x: a * 0.0 * x, 0.0, 1.0))(1.0)
    with pytest.raises(adarray.NotDifferentiableError, match="root: the root does not depend"):
        adarray.grad(lambda a: optimize.root(lambda x: a * 0.0 * x, np.ones(2)).x.sum())(1.0)


def test_minima_are_refused_by_name() -> None:
    with pytest.raises(adarray.UnsupportedFunctionError, match=r"scipy.optimize.minimize: the min"):
        adarray.grad(lambda a: optimize.minimize(lambda x: x**2, a).x)(1.0)


def test_reached_by_intercept() -> None:
    from scipy.optimize import brentq

    def f(a: Any) -> Any:
        from scipy.optimize import newton

        return brentq(lambda x: x**2 - a, 0.0, 5.0) + newton(lambda x: x**3 - a, 1.0)

    assert adarray.grad(adarray.wrap(f))(2.0) == pytest.approx(
        0.5 / 2**0.5 + 1.0 / (3.0 * 2 ** (2 / 3))
    )
