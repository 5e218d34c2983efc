"""SciPy's optimisers with derivatives by adarray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
from scipy import optimize

import adarray

START = np.array([1.3, 0.7, 0.8, 1.9, 1.2])
TIMES = np.linspace(0.0, 4.0, 41)
MEASURED = 2.0 * np.exp(-0.7 * TIMES) + 0.5 + 0.1 * TIMES


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def same(f: Any) -> Any:
    return f


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wrap", [same, adarray.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("method", "second"),
    [("BFGS", None), ("L-BFGS-B", None), ("CG", None), ("TNC", None), ("SLSQP", None),
     ("Newton-CG", "hessp"), ("trust-ncg", "hessp"), ("trust-krylov", "hessp"),
     ("trust-exact", "hess"), ("dogleg", "hess")],
)  # fmt: skip
def test_rosenbrock(method: str, second: str | None, wrap: Any) -> None:
    start = START
    if method == "dogleg":  # takes positive definite Hessians alone
        start = 1.0 + 0.1 * (START - 1.0)
    curvature = {"hessp": wrap(adarray.hvp(rosenbrock)), "hess": wrap(adarray.hessian(rosenbrock))}
    more = {second: curvature[second]} if second else {}
    options: dict[str, Any] = {"gtol": 1e-9} if second else {}
    options = {"TNC": {"maxfun": 1000}, "Newton-CG": {"xtol": 1e-10}}.get(method, options)
    value_and_grad = wrap(adarray.value_and_grad(rosenbrock))
    solution = optimize.minimize(
        value_and_grad, start, jac=True, method=method, options=options, **more
    )
    np.testing.assert_allclose(solution.x, np.ones(5), rtol=2e-3 if method == "TNC" else 1e-4)
    if second:  # Newton's methods find many digits
        np.testing.assert_allclose(solution.x, np.ones(5), rtol=1e-7)


def test_with_constraints() -> None:
    """The distance from a point to a circle, inside of a box."""
    ring = optimize.NonlinearConstraint(
        lambda x: np.sum(x**2), 1.0, 1.0,
        jac=adarray.grad(lambda x: np.sum(x**2)),
        hess=lambda x, v: v[0] * adarray.hessian(lambda x: np.sum(x**2))(x),
    )  # fmt: skip

    def distance(x: Any) -> Any:
        return np.sum((x - np.array([3.0, 4.0])) ** 2)

    solution = optimize.minimize(
        adarray.value_and_grad(distance), np.array([0.5, 0.5]), jac=True, method="trust-constr",
        hessp=adarray.hvp(distance), constraints=[ring], bounds=[(0.0, 2.0)] * 2,
    )  # fmt: skip
    np.testing.assert_allclose(solution.x, [0.6, 0.8], atol=1e-5)
    solution = optimize.minimize(
        adarray.value_and_grad(distance), np.array([0.5, 0.5]), jac=True, method="SLSQP",
        constraints={"type": "eq", "fun": lambda x: np.sum(x**2) - 1.0,
                     "jac": adarray.grad(lambda x: np.sum(x**2))},
    )  # fmt: skip
    np.testing.assert_allclose(solution.x, [0.6, 0.8], atol=1e-5)


GUESS = {"height": 1.0, "rate": 1.0, "trend": np.zeros(2), "name": "decay", "terms": 2}


def model(p: Any) -> Any:
    trend = sum(p["trend"][k] * TIMES**k for k in range(p["terms"]))
    return p["height"] * np.exp(-p["rate"] * TIMES) + trend


def assert_fitted(p: Any, rtol: float) -> None:
    assert (p["name"], p["terms"]) == ("decay", 2)
    assert type(p["height"]) is float
    np.testing.assert_allclose([p["height"], p["rate"], *p["trend"]], [2.0, 0.7, 0.5, 0.1], rtol)


@pytest.mark.parametrize("wrap", [same, adarray.jit], ids=["eager", "jit"])
def test_a_fit_with_a_nest_of_parameters(wrap: Any) -> None:
    vector, unravel = adarray.ravel(GUESS)

    def residuals(v: Any) -> Any:
        return model(unravel(v)) - MEASURED

    def loss(v: Any) -> Any:
        return np.sum(residuals(v) ** 2)

    for method in ("trf", "dogbox", "lm"):
        solution = optimize.least_squares(
            residuals, vector, jac=wrap(adarray.jacobian(residuals)), method=method
        )
        assert_fitted(unravel(solution.x), 1e-6)
    solution = optimize.minimize(
        wrap(adarray.value_and_grad(loss)), vector, jac=True, hess=wrap(adarray.hessian(loss)),
        method="trust-exact",
    )  # fmt: skip
    assert_fitted(unravel(solution.x), 1e-5)


def test_roots_with_jacobians() -> None:
    def equations(x: Any) -> Any:
        return np.array([x[0] ** 2 + x[1] ** 2 - 25.0, x[0] * x[1] - 12.0])

    solution = optimize.root(equations, np.array([2.0, 5.0]), jac=adarray.jacobian(equations))
    np.testing.assert_allclose(solution.x, [3.0, 4.0], rtol=1e-10)
    slope = adarray.grad(lambda x: x**3 - 2.0)
    assert optimize.newton(lambda x: x**3 - 2.0, 1.0, fprime=slope) == pytest.approx(2 ** (1 / 3))


def test_a_sparse_jacobian() -> None:
    """Positions along a chain, from their distances and some of them."""
    n = 300
    truth = np.cumsum(1.0 + 0.3 * np.sin(np.arange(n)))

    def residuals(x: Any) -> Any:
        return np.concatenate([np.sqrt(1.0 + np.diff(x) ** 2), x[::50]]) - measured

    measured = np.zeros(n - 1 + 6)
    measured = residuals(truth)
    jac = adarray.sparse_jacobian(residuals)
    start = truth + 0.3 * np.cos(3.0 * np.arange(n))
    solution = optimize.least_squares(residuals, start, jac=jac, xtol=1e-12, ftol=1e-15, gtol=1e-12)
    assert jac(start).nnz == 2 * (n - 1) + 6
    np.testing.assert_allclose(solution.x, truth, atol=1e-5)
    np.testing.assert_allclose(jac(start).toarray(), adarray.jacobian(residuals)(start), rtol=1e-10)
