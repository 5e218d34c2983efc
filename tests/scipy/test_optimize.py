"""`adarray.scipy.optimize` against SciPy, and derivatives of solutions against differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.optimize as theirs

import adarray
import adarray.scipy.optimize as ours
from adarray import NotDifferentiableError
from adarray.testing import check_grads

rng = np.random.default_rng(7)
BRACKETS = ("brentq", "brenth", "bisect", "ridder", "toms748")


def _cubic(x: Any, a: Any, b: Any) -> Any:
    return x**3 + a * x - b


@pytest.mark.parametrize("name", BRACKETS)
def test_bracketed_roots(name: str) -> None:
    def solve(a: Any, b: Any) -> Any:
        return getattr(ours, name)(_cubic, 0.0, 3.0, args=(a, b))

    expected = getattr(theirs, name)(_cubic, 0.0, 3.0, args=(0.7, 2.0))
    assert solve(0.7, 2.0) == expected
    assert adarray.vjp(solve, 0.7, 2.0)[0] == expected
    g = adarray.grad(solve, argnums=(0, 1))(0.7, 2.0)
    slope = 3 * expected**2 + 0.7
    np.testing.assert_allclose(g, (-expected / slope, 1 / slope), rtol=1e-9)
    check_grads(solve, (0.7, 2.0), rtol=1e-5, atol=1e-6, eps=1e-4)
    x, info = getattr(ours, name)(lambda x: x**2 - adarray.array(2.0), 0.0, 2.0, full_output=True)
    assert info.converged
    assert abs(float(x) - math.sqrt(2)) < 1e-9


def test_third_derivative_of_a_root() -> None:
    def root(a: Any) -> Any:
        return ours.brentq(lambda x: x * x - a, 0.0, 4.0)

    third = adarray.grad(adarray.grad(adarray.grad(root)))(2.0)
    np.testing.assert_allclose(third, 3 / 8 * 2.0**-2.5, rtol=1e-9)


def test_newton() -> None:
    def solve(a: Any) -> Any:
        return ours.newton(lambda x, a: x**3 - a, 1.5, args=(a,))

    np.testing.assert_allclose(adarray.grad(solve)(2.0), 2.0 ** (-2 / 3) / 3, rtol=1e-9)

    def many(a: Any) -> Any:
        return ours.newton(
            lambda x: x**3 - a, np.full(3, 1.5), fprime=lambda x: 3 * x**2, tol=1e-12
        )

    a = np.array([2.0, 3.0, 5.0])
    np.testing.assert_allclose(adarray.vjp(many, a)[0], a ** (1 / 3))
    check_grads(many, (a,))
    assert ours.newton(math.cos, 1.0) == theirs.newton(math.cos, 1.0)


@pytest.mark.parametrize("options", [{"bracket": (0.0, 3.0)}, {"x0": 1.0, "x1": 1.5},
                                     {"x0": 1.0, "fprime": lambda x, a: 3 * x**2 + a}])  # fmt: skip
def test_root_scalar(options: dict[str, Any]) -> None:
    def solve(a: Any) -> Any:
        return ours.root_scalar(lambda x, a: x**3 + a * x - 2, args=(a,), **options).root

    check_grads(solve, (0.7,), rtol=1e-5, atol=1e-6, eps=1e-4)
    plain = ours.root_scalar(lambda x, a: x**3 + a * x - 2, args=(0.7,), **options)
    assert plain.root == solve(0.7)


def _equations(x: Any, a: Any) -> Any:
    return [x[0] ** 2 + a[0] * x[1] - 1, np.exp(x[1]) - x[0] * a[1]]


A = np.array([0.7, 1.9])


@pytest.mark.parametrize("method", ["hybr", "lm", "krylov"])
def test_root(method: str) -> None:
    def solve(a: Any) -> Any:
        return ours.root(_equations, [0.8, 0.4], args=(a,), method=method, tol=1e-12).x

    def tight(a: Any) -> Any:
        return theirs.root(_equations, [0.8, 0.4], args=(a,), tol=1e-13).x

    np.testing.assert_allclose(adarray.vjp(solve, A)[0], tight(A), rtol=1e-6)
    g = adarray.jacobian(solve)(A)
    expected = [(tight(A + d) - tight(A - d)) / 2e-5 for d in 1e-5 * np.eye(2)]
    np.testing.assert_allclose(g, np.transpose(expected), rtol=1e-5)


def test_fsolve_and_fixed_point() -> None:
    check_grads(
        lambda a: ours.fsolve(_equations, [0.8, 0.4], args=(a,), xtol=1e-13), (A,), rtol=1e-5,
        eps=1e-4,
    )  # fmt: skip
    x, info, flag, _ = ours.fsolve(_equations, [0.8, 0.4], args=(A,), full_output=True)
    assert flag == 1
    assert "fvec" in info
    np.testing.assert_array_equal(x, theirs.fsolve(_equations, [0.8, 0.4], args=(A,)))

    def point(c: Any) -> Any:
        return ours.fixed_point(lambda x, c: np.sqrt(c / (x + 3.0)), [1.0, 1.2], args=(c,),
                                xtol=1e-13)  # fmt: skip

    check_grads(point, (np.array([10.0, 12.0]),), rtol=1e-5, eps=1e-3)


def _cost(x: Any, a: Any) -> Any:
    return (x[0] - a[0]) ** 2 + np.exp(x[0] * x[1]) + (x[1] - a[1]) ** 4 + x[1] ** 2


def _gradient(x: Any, a: Any) -> Any:
    both = np.exp(x[0] * x[1])
    return np.stack([2 * (x[0] - a[0]) + x[1] * both,
                     x[0] * both + 4 * (x[1] - a[1]) ** 3 + 2 * x[1]])  # fmt: skip


@pytest.mark.parametrize("method", ["BFGS", "Newton-CG", "L-BFGS-B", "Nelder-Mead"])
def test_minimize(method: str) -> None:
    jac = None if method == "Nelder-Mead" else _gradient
    tol = {"Nelder-Mead": 1e-10}.get(method, 1e-9)

    def solve(a: Any) -> Any:
        r = ours.minimize(_cost, [0.3, 0.2], args=(a,), method=method, jac=jac, tol=tol)
        return r.x, r.fun

    def tight(a: Any) -> Any:
        x = theirs.minimize(_cost, [0.3, 0.2], args=(a,), jac=_gradient, tol=1e-12).x
        return theirs.root(_gradient, x, args=(a,), tol=1e-14).x

    plain = theirs.minimize(_cost, [0.3, 0.2], args=(A,), method=method, jac=jac, tol=tol)
    x, fun = adarray.vjp(solve, A)[0]
    np.testing.assert_array_equal(x, plain.x)
    np.testing.assert_allclose(fun, plain.fun)
    expected = np.transpose([(tight(A + d) - tight(A - d)) / 2e-5 for d in 1e-5 * np.eye(2)])
    np.testing.assert_allclose(adarray.jacobian(lambda a: solve(a)[0])(A), expected, rtol=1e-4)
    # At a minimum, only the direct dependence counts.
    direct = [-2 * (plain.x[0] - A[0]), -4 * (plain.x[1] - A[1]) ** 3]
    np.testing.assert_allclose(adarray.grad(lambda a: solve(a)[1])(A), direct, rtol=1e-4)


def test_minimize_with_bounds() -> None:
    def solve(a: Any) -> Any:
        return ours.minimize(
            lambda x: np.sum((x - a) ** 2) + x[0] * x[1], [0.5, 0.5], bounds=[(0, 1), (0, None)],
            tol=1e-12,
        ).x  # fmt: skip

    a = np.array([3.0, 1.0])  # the first variable is at its bound
    np.testing.assert_allclose(adarray.jacobian(solve)(a), [[0, 0], [0, 1.0]], atol=1e-8)


def test_minimize_scalar() -> None:
    def solve(a: Any) -> Any:
        return ours.minimize_scalar(lambda x: np.cosh(x - a) + 0.1 * x * x, tol=1e-12).x

    g = adarray.grad(solve)(0.7)
    x = float(solve(0.7))
    np.testing.assert_allclose(g, math.cosh(x - 0.7) / (math.cosh(x - 0.7) + 0.2), rtol=1e-6)
    end = adarray.grad(  # at a bound, where it stays
        lambda a: ours.minimize_scalar(lambda x: a * x, bounds=(0, 1), options={"xatol": 1e-9}).x
    )
    assert end(1.0) == 0.0


T = np.linspace(0.0, 2.0, 9)
OBSERVED = 1.3 * np.exp(-0.8 * T) + 0.2 + 0.05 * rng.normal(size=9)


def test_least_squares() -> None:
    def fit(y: Any) -> Any:
        r = ours.least_squares(lambda p, y: p[0] * np.exp(-p[1] * T) - y, [1.0, 1.0], args=(y,),
                               xtol=1e-14, ftol=1e-14, gtol=1e-14)  # fmt: skip
        return r.x, r.cost

    check_grads(fit, (OBSERVED,), order=1, rtol=1e-4, atol=1e-5, eps=1e-3)
    with pytest.raises(NotDifferentiableError, match="least_squares: a loss that is a function"):
        adarray.grad(
            lambda y: ours.least_squares(
                lambda p: p - y, [1.0] * 9, loss=lambda z: np.stack([z, z * 0 + 1, z * 0])
            ).x.sum()
        )(OBSERVED)


@pytest.mark.parametrize("loss", ["soft_l1", "huber", "cauchy", "arctan"])
def test_robust_losses(loss: str) -> None:
    observed = OBSERVED + np.where(np.arange(9) == 4, 0.8, 0.0)  # one is far away

    def fit(y: Any) -> Any:
        r = ours.least_squares(
            lambda p: p[0] * np.exp(-p[1] * T) + 0.2 - y, [1.0, 1.0], loss=loss, f_scale=0.1,
            xtol=1e-14, ftol=1e-14, gtol=1e-14,
        )  # fmt: skip
        return r.x, r.cost

    check_grads(fit, (observed,), order=1, rtol=1e-3, atol=1e-4, eps=1e-4)


def _decay(t: Any, a: Any, k: Any) -> Any:
    return a * np.exp(-k * t)


@pytest.mark.parametrize("absolute", [False, True])
def test_curve_fit(absolute: bool) -> None:
    sigma = 0.05 + 0.02 * rng.uniform(size=9)

    def fit(y: Any, s: Any) -> Any:
        return ours.curve_fit(
            _decay, T, y, sigma=s, absolute_sigma=absolute, xtol=1e-14, ftol=1e-14
        )

    expected = theirs.curve_fit(
        _decay, T, OBSERVED, sigma=sigma, absolute_sigma=absolute, xtol=1e-14, ftol=1e-14
    )
    for a, b in zip(adarray.vjp(fit, OBSERVED, sigma)[0], expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
    check_grads(fit, (OBSERVED, sigma), order=1, rtol=1e-3, atol=1e-4, eps=1e-4)
    for a, b in zip(fit(OBSERVED, sigma), expected, strict=True):
        np.testing.assert_allclose(a, b)


def test_constants_refusals_and_names() -> None:
    cost = rng.normal(size=(3, 3))

    def assigned(c: Any) -> Any:
        rows, cols = ours.linear_sum_assignment(c)
        return c[rows, cols].sum()

    assert adarray.grad(assigned)(cost).sum() == 3
    with pytest.raises(NotDifferentiableError, match="milp: its solution changes by jumps"):
        adarray.grad(lambda a: ours.milp(a).x.sum())(np.ones(3))
    check_grads(ours.rosen, (A,))
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
