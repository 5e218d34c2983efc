"""Derivatives of minima with bounds and constraints, of linear programs, and what has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.optimize as theirs

import adarray
import adarray.scipy.optimize as ours
from adarray import NotDifferentiableError
from adarray.testing import check_grads

rng = np.random.default_rng(11)
BOUNDED = {
    "L-BFGS-B": {"ftol": 1e-15, "gtol": 1e-10}, "TNC": {"ftol": 1e-15, "gtol": 1e-9},
    "SLSQP": {"ftol": 1e-14}, "trust-constr": {"gtol": 1e-10, "xtol": 1e-12},
    "COBYQA": {"final_tr_radius": 1e-9}, "Nelder-Mead": {"xatol": 1e-8, "fatol": 1e-14},
}  # fmt: skip


def in_a_box(a: Any, low: Any, method: str) -> Any:
    """Return the point of a box that is next to `a`, in a norm that couples the variables."""
    r = ours.minimize(
        lambda x: np.sum((x - a) ** 2) + 0.5 * (x[1] - a[1]) * (x[2] - a[2]),
        np.full(3, 0.4), bounds=[(low, 1.0), (None, 1.0), (low, None)], method=method,
        options=BOUNDED[method],
    )  # fmt: skip
    return r.x


@pytest.mark.filterwarnings("ignore:delta_grad == 0.0", "ignore:Values in x were outside")
@pytest.mark.parametrize("method", [m for m in BOUNDED if m != "Nelder-Mead"])
def test_bounds(method: str) -> None:
    """The second variable is held above: the third gives way by a quarter of what it misses."""
    a = np.array([0.5, 2.0, 0.7])
    j = adarray.jacobian(in_a_box)(a, 0.0, method)
    low = adarray.grad(lambda b: in_a_box(np.array([-1.0, 0.5, 0.3]), b, method)[0])(0.0)
    np.testing.assert_allclose(j, [[1, 0, 0], [0, 0, 0], [0, 0.25, 1]], atol=1e-5)
    assert low == pytest.approx(1.0)  # a variable that is held follows its bound


SOLVERS = {"SLSQP": {"ftol": 1e-14, "maxiter": 300}, "COBYQA": {"final_tr_radius": 1e-9},
           "trust-constr": {"gtol": 1e-11, "xtol": 1e-13, "barrier_tol": 1e-11}}  # fmt: skip


def on_a_circle(a: Any, radius: Any, method: str, form: str) -> Any:
    """Return the point of a disc that is next to `a`; it is `radius * a / |a|`."""
    disc: Any = {
        "dict": {"type": "ineq", "fun": lambda x, r: r**2 - np.sum(x**2), "args": (radius,)},
        "object": theirs.NonlinearConstraint(lambda x: np.sum(x**2) / radius**2, -np.inf, 1.0),
        "equality": [{"type": "eq", "fun": lambda x: np.sum(x**2) - radius**2}],
    }[form]
    r = ours.minimize(
        lambda x: np.sum((x - a) ** 2), np.array([0.3, 0.2]), constraints=disc, method=method,
        options=SOLVERS[method],
    )  # fmt: skip
    return r.x


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:delta_grad == 0.0", "ignore:Singular Jacobian")
@pytest.mark.parametrize("form", ["dict", "object", "equality"])
@pytest.mark.parametrize("method", SOLVERS)
def test_a_disc(method: str, form: str) -> None:
    a = np.array([3.0, 4.0])
    unit = a / 5.0
    actual = adarray.vjp(on_a_circle, a, 2.0, method, form, allow_int=True)[0]
    np.testing.assert_allclose(actual, 2.0 * unit, atol=1e-5)
    j, along = adarray.jacobian(on_a_circle, (0, 1))(a, 2.0, method, form)
    np.testing.assert_allclose(j, 2.0 / 5.0 * (np.eye(2) - np.outer(unit, unit)), atol=1e-6)
    np.testing.assert_allclose(along, unit, atol=1e-6)


def test_second_derivatives_on_a_disc() -> None:
    a = np.array([3.0, 4.0])

    def known(a: Any) -> Any:
        return np.sum((2.0 * a / np.sqrt(np.sum(a**2))) * np.array([1.0, 3.0]))

    def solved(a: Any) -> Any:
        return np.sum(on_a_circle(a, 2.0, "SLSQP", "dict") * np.array([1.0, 3.0]))

    np.testing.assert_allclose(adarray.hessian(solved)(a), adarray.hessian(known)(a), atol=1e-7)


def test_a_constraint_that_is_not_active() -> None:
    j = adarray.jacobian(on_a_circle)(np.array([0.3, 0.4]), 2.0, "SLSQP", "dict")
    np.testing.assert_allclose(j, np.eye(2), atol=1e-7)


def quadratic(p: Any, method: str) -> Any:
    """Return the minimum of a random program with bounds, equations and inequalities."""
    q, c, matrix, b, d, low = p
    rows = [theirs.LinearConstraint(matrix, -np.inf, b),
            {"type": "eq", "fun": lambda x: np.sum(x * d) - 1.0}]  # fmt: skip
    return ours.minimize(
        lambda x: x @ (q @ q.T + np.eye(6)) @ x / 2 + c @ x,
        np.full(6, 0.2), bounds=theirs.Bounds(low, np.full(6, np.inf)), constraints=rows,
        jac=lambda x: adarray.value_of((q @ q.T + np.eye(6)) @ x + c), method=method,
        options=SOLVERS[method],
    )  # fmt: skip


def program(seed: int) -> list[np.ndarray]:
    r = np.random.default_rng(seed)
    return [r.normal(size=(6, 6)), r.normal(size=6), r.normal(size=(3, 6)), r.uniform(0, 0.5, 3),
            r.uniform(0.5, 1.5, 6), r.uniform(-0.3, 0.1, 6)]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int) -> None:
    """Against differences of programs that are solved again."""
    p, v = program(seed), program(seed + 100)
    v = [0.1 * x for x in v]

    def solve(p: Any) -> Any:
        r = quadratic(p, "SLSQP")
        return np.concatenate([r.x, np.reshape(r.fun, (1,))])

    if not quadratic(p, "SLSQP").success:
        pytest.skip("no point satisfies the constraints")
    _, tangent = adarray.jvp(solve, (p,), (v,))
    step = 1e-4
    up, down = (solve([x + s * t for x, t in zip(p, v, strict=True)]) for s in (step, -step))
    np.testing.assert_allclose(tangent, (up - down) / (2 * step), rtol=1e-3, atol=1e-4)
    _, pullback = adarray.vjp(solve, p)
    g = rng.normal(size=7)
    reverse = sum(np.sum(a * b) for a, b in zip(pullback(g)[0], v, strict=True))
    assert reverse == pytest.approx(np.sum(g * tangent), rel=1e-6)


def test_what_has_no_derivative() -> None:
    def constrained(a: Any) -> Any:  # the unconstrained minimum is at the bound
        return ours.minimize(lambda x: np.sum((x - a) ** 2), [0.5], bounds=[(0, None)]).x.sum()

    with pytest.raises(
        NotDifferentiableError,
        match=r"^minimize: the bound of variable 0 is active with a multiplier of zero, where the "
        r"derivative of the solution jumps; move it, or leave it out",
    ):
        adarray.grad(constrained)(np.zeros(1))
    with pytest.raises(NotDifferentiableError, match=r"^minimize: the constraint 0 is active with"):
        adarray.grad(lambda a: on_a_circle(a, 5.0, "SLSQP", "dict").sum())(np.array([3.0, 4.0]))

    def twice(a: Any) -> Any:
        same = {"type": "eq", "fun": lambda x: x[0] - 1.0}
        return ours.minimize(
            lambda x: np.sum((x - a) ** 2), [0.5, 0.5, 0.5], constraints=[same, same],
            method="trust-constr",
        ).x.sum()  # fmt: skip

    with (
        pytest.warns(UserWarning, match=r"Singular|delta_grad"),
        pytest.raises(NotDifferentiableError, match="the matrix of the linearised equations is s"),
    ):
        adarray.grad(twice)(np.array([0.3, 0.4, 0.1]))

    def valley(a: Any) -> Any:  # of many minima
        return ours.minimize(lambda x: (x[0] + x[1] - a) ** 2, [0.5, 0.1]).x.sum()

    with pytest.raises(
        NotDifferentiableError, match="make the solution unique by further equation"
    ):
        adarray.grad(valley)(2.0)

    def flat(a: Any) -> Any:
        return ours.minimize(lambda x: np.sum((x - a) ** 4), [0.5]).x.sum()

    with pytest.raises(NotDifferentiableError, match="Newton steps from the solution that SciPy"):
        adarray.grad(flat)(2.0)
    with pytest.raises(
        NotDifferentiableError, match="too far from the minimum to tell which bound"
    ):
        adarray.grad(lambda a: in_a_box(a, 0.0, "Nelder-Mead").sum())(np.array([0.5, 2.0, 0.7]))
    with pytest.raises(NotDifferentiableError, match=r"^brentq: the slope of the equation is zero"):
        adarray.grad(lambda a: ours.brentq(lambda x: x**3 - a, -1.0, 1.0))(0.0)


@pytest.mark.parametrize("method", ["trf", "dogbox"])
def test_least_squares_in_a_box(method: str) -> None:
    t = np.linspace(0.0, 2.0, 9)
    y = 1.3 * np.exp(-0.8 * t) + 0.2

    def fit(y: Any, top: Any) -> Any:
        return ours.least_squares(
            lambda p: p[0] * np.exp(-p[1] * t) - y, [0.5, 0.4], bounds=([0.0, 0.0], [top, np.inf]),
            method=method, xtol=1e-15, ftol=1e-15, gtol=1e-13,
        ).x  # fmt: skip

    (_, pullback) = adarray.vjp(fit, y, 1.1)
    by_y, by_top = pullback(np.array([0.0, 1.0]))
    v = np.sin(t)
    step = 1e-4
    slope = (fit(y + step * v, 1.1)[1] - fit(y - step * v, 1.1)[1]) / (2 * step)
    assert np.sum(by_y * v) == pytest.approx(slope, rel=1e-4)
    slope = (fit(y, 1.1 + step)[1] - fit(y, 1.1 - step)[1]) / (2 * step)
    assert by_top == pytest.approx(slope, rel=1e-4)
    assert adarray.grad(lambda top: fit(y, top)[0])(1.1) == pytest.approx(1.0)


A = rng.uniform(0.2, 1.0, size=(5, 3))
B = A @ np.array([1.0, -1.0, 0.5])


def test_nonnegative_least_squares() -> None:
    def fit(a: Any, b: Any) -> Any:
        return ours.nnls(a, b)

    x, norm = fit(A, B)
    assert (x[1], norm) == (0.0, theirs.nnls(A, B)[1])
    check_grads(fit, (A, B), order=1, rtol=1e-5, atol=1e-6, eps=1e-5)

    def boxed(a: Any, b: Any, high: Any) -> Any:
        return ours.lsq_linear(a, b, (0.0, high), tol=1e-14).x

    check_grads(boxed, (A, B, 0.1), order=1, rtol=1e-4, atol=1e-5, eps=1e-5)


COSTS, ABOVE, LIMITS = np.array([-3.0, -2.0, 1.0]), np.array([[1.0, 1.0, 0.5], [1.0, 3.0, -1.0]]), (
    np.array([4.0, 6.0])
)  # fmt: skip


def test_linear_programs() -> None:
    def solve(c: Any, a: Any, b: Any, high: Any) -> Any:
        r = ours.linprog(c, a, b, [[0.0, 1.0, 2.0]], [1.2], [(0, high), (0, None), (0, 1.0)])
        return r.x, r.fun, r.slack, r.ineqlin.marginals, r.upper.marginals

    plain = theirs.linprog(COSTS, ABOVE, LIMITS, [[0.0, 1.0, 2.0]], [1.2],
                           [(0, 3.0), (0, None), (0, 1.0)])  # fmt: skip
    actual = adarray.vjp(solve, COSTS, ABOVE, LIMITS, 3.0)[0]
    for a, b in zip(actual, (plain.x, plain.fun, plain.slack, plain.ineqlin.marginals,
                            plain.upper.marginals), strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, atol=1e-12)
    check_grads(solve, (COSTS, ABOVE, LIMITS, 3.0), rtol=1e-6, atol=1e-6, eps=1e-4)


@pytest.mark.parametrize("seed", range(8))
def test_random_linear_programs(seed: int) -> None:
    r = np.random.default_rng(seed)
    c, a, b = r.normal(size=5), r.normal(size=(4, 5)), r.uniform(1.0, 2.0, 4)

    def solve(c: Any, a: Any, b: Any) -> Any:
        actual = ours.linprog(c, a, b, bounds=(-1.0, 2.0))
        return actual.x, actual.fun

    check_grads(solve, (c, a, b), rtol=1e-5, atol=1e-5, eps=1e-6)
    np.testing.assert_allclose(adarray.grad(lambda c: solve(c, a, b)[1])(c), solve(c, a, b)[0])


def test_linear_programs_without_a_derivative() -> None:
    with pytest.raises(
        NotDifferentiableError, match=r"^linprog: the solution is not unique, or mor"
    ):
        adarray.grad(lambda c: ours.linprog(c, [[1.0, 1.0]], [1.0]).x.sum())(-np.ones(2))
    three = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]  # three lines through one point
    with pytest.raises(NotDifferentiableError, match="more constraints hold there than it has"):
        adarray.grad(lambda b: ours.linprog([-1.0, -2.0], three, b).x.sum())(np.array([1.0, 1, 2]))
    with pytest.raises(
        NotDifferentiableError, match=r"^linprog: a solution in integers moves by ju"
    ):
        adarray.grad(lambda b: ours.linprog([-1.0], [[1.0]], b, integrality=1).x.sum())(np.ones(1))


@pytest.mark.parametrize("wrap", [lambda f: f, adarray.jit], ids=["eager", "jit"])
def test_original_code(wrap: Any) -> None:
    """SciPy's own functions and objects, with traced limits and matrices."""

    def solve(a: Any, matrix: Any, low: Any, b: Any) -> Any:
        r = theirs.minimize(
            lambda x: np.sum((x - a) ** 2), np.array([0.1, 0.2]), bounds=theirs.Bounds(low, np.inf),
            constraints=theirs.LinearConstraint(matrix, -np.inf, b), options={"ftol": 1e-14},
        )  # fmt: skip
        lp = theirs.linprog(a, matrix, b, bounds=[(low[0], None), (low[1], None)])
        return r.x @ np.array([1.0, 3.0]) + lp.fun

    args = np.array([1.0, 2.0]), np.array([[1.0, 1.0]]), np.array([0.6, -0.5]), np.array([1.0])
    g = wrap(adarray.grad(solve, (0, 1, 2, 3)))
    if wrap is adarray.jit:
        with pytest.warns(adarray.JitWarning):
            actual = g(*args)
    else:
        actual = g(*args)
    step = 1e-5
    for k, x in enumerate(args):
        for i in np.ndindex(x.shape):
            move = np.zeros(x.shape)
            move[i] = step
            up, down = (
                float(np.sum(solve(*args[:k], x + m, *args[k + 1 :]))) for m in (move, -move)
            )
            assert actual[k][i] == pytest.approx((up - down) / (2 * step), rel=1e-3, abs=1e-4)
