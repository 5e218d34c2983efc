"""`adarray.scipy.integrate` against SciPy, and its derivatives against differences."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.integrate as theirs
import scipy.optimize

import adarray
import adarray.scipy.integrate as ours
from adarray import ADArray, NotDifferentiableError
from adarray.testing import check_grads

rng = np.random.default_rng(2)
Y = rng.normal(size=9)
M = rng.normal(size=(5, 6))
T = np.cumsum(rng.uniform(0.2, 1.0, size=9))
T6 = T[:6].copy()
TM = np.cumsum(rng.uniform(0.2, 1.0, size=(5, 6)), axis=0)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("trapezoid", (Y,), {"dx": 0.3}, (0,)),
    ("trapezoid", (Y, T), {}, (0, 1)),
    ("trapezoid", (M, TM), {"axis": 0}, (0, 1)),
    ("trapezoid", (M, T6), {}, (0, 1)),
    ("cumulative_trapezoid", (M,), {"axis": 0, "initial": 0}, (0,)),
    ("cumulative_trapezoid", (Y, T), {}, (0, 1)),
    ("simpson", (Y,), {"dx": 0.3}, (0,)),
    ("simpson", (Y, T), {}, (0, 1)),
    ("simpson", (M, T6), {}, (0, 1)),
    ("simpson", (M, TM), {"axis": 0}, (0, 1)),
    ("simpson", (M[:2],), {"axis": 0}, (0,)),
    ("simpson", (M[:, :4].copy(), T[:4].copy()), {}, (0, 1)),
    ("cumulative_simpson", (Y,), {"dx": 0.3}, (0,)),
    ("cumulative_simpson", (M,), {"x": T6}, (0,)),
    ("cumulative_simpson", (M,), {"x": TM, "axis": 0, "initial": 0.5}, (0,)),
    ("cumulative_simpson", (M[:, :2].copy(),), {}, (0,)),
    ("romb", (Y,), {"dx": 0.3}, (0,)),
    ("romb", (M,), {"axis": 0}, (0,)),
    ("romb", (Y[:2],), {}, (0,)),
]


@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_samples(case: int, drop_in: Callable[..., None]) -> None:
    name, args, kwargs, argnums = CASES[case]
    drop_in(getattr(ours, name), getattr(theirs, name), args, kwargs, argnums, single=False)


def test_single_precision_stays_single() -> None:
    for name in ("trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson", "romb"):
        g = adarray.grad(lambda y, name=name: np.sum(getattr(ours, name)(y) ** 2))
        assert g(Y.astype(np.float32)).dtype == np.float32


def test_spacing_differentiates() -> None:
    for name in ("trapezoid", "simpson", "cumulative_trapezoid", "cumulative_simpson", "romb"):
        check_grads(lambda dx, y, name=name: getattr(ours, name)(y, dx=dx), (0.3, Y))
    check_grads(lambda y, x: ours.cumulative_simpson(y, x=x), (Y, T))


# -- functions --------------------------------------------------------------------------------


def test_quad_of_plain_functions_is_scipys() -> None:
    def f(x: float, a: float) -> float:
        return math.exp(-a * x)

    assert ours.quad(f, 0, 2, args=(0.5,)) == theirs.quad(f, 0, 2, args=(0.5,))
    assert ours.quad(f, 0, np.inf, args=0.5) == theirs.quad(f, 0, np.inf, args=0.5)
    full = ours.quad(f, 0, 2, args=(0.5,), full_output=1)
    assert full[:2] == theirs.quad(f, 0, 2, args=(0.5,))


def _gaussian(x: Any, a: Any) -> Any:
    return np.exp(-a * x**2) * np.cos(x)


@pytest.mark.parametrize(
    "limits",
    [(0.2, 1.5), (1.5, 0.2), (0.3, np.inf), (-np.inf, 0.4), (-np.inf, np.inf), (np.inf, 1)],
)
def test_quad_in_arguments(limits: tuple[float, float]) -> None:
    def f(a: Any) -> Any:
        return ours.quad(_gaussian, *limits, args=(a,))[0]

    expected = theirs.quad(lambda x: math.exp(-0.7 * x * x) * math.cos(x), *limits)[0]
    np.testing.assert_allclose(adarray.vjp(f, 0.7)[0], expected, rtol=1e-13)
    check_grads(f, (0.7,), eps=1e-3, rtol=1e-5)


def test_quad_in_limits_is_exact() -> None:
    """The derivative with respect to a limit is the integrand, and so on."""

    def f(a: Any, b: Any) -> Any:
        return ours.quad(lambda x: np.sin(x) * np.exp(x), a, b)[0]

    derivative = adarray.grad(lambda b: f(0.1, b))
    assert abs(derivative(1.2) - math.sin(1.2) * math.exp(1.2)) < 1e-14
    third = adarray.grad(adarray.grad(derivative))(1.2)
    np.testing.assert_allclose(third, 2 * math.cos(1.2) * math.exp(1.2), rtol=1e-12)
    assert abs(adarray.grad(lambda a: f(a, 1.2))(0.1) + math.sin(0.1) * math.exp(0.1)) < 1e-14
    check_grads(f, (0.1, 1.2))


def test_quad_of_a_singular_integrand() -> None:
    # d/da of the integral of x**(a - 1) over (0, 1) = 1 / a is -1 / a**2.
    g = adarray.grad(lambda a: ours.quad(lambda x: x ** (a - 1), 0, 1)[0])(0.5)
    np.testing.assert_allclose(g, -4.0, rtol=1e-4)


def test_quad_in_closures_and_breakpoints() -> None:
    def f(a: Any, b: Any) -> Any:
        return ours.quad(lambda x: np.abs(x - 0.3) * a + x * b, b, 1, points=[0.3])[0]

    check_grads(f, (0.7, 0.1))


def test_quad_of_complex_functions() -> None:
    def f(a: Any) -> Any:
        z = ours.quad(lambda x: np.exp(1j * a * x), 0, 1, complex_func=True)[0]
        return np.real(z), np.imag(z)

    check_grads(f, (0.7,))


def test_quad_refuses_weights() -> None:
    with pytest.raises(NotDifferentiableError, match="quad: weight='cos'"):
        adarray.grad(lambda a: ours.quad(lambda x: a * x, 0, 1, weight="cos", wvar=2.0)[0])(0.5)


def test_quad_vec() -> None:
    powers = np.arange(3.0)

    def f(a: Any, b: Any) -> Any:
        return ours.quad_vec(lambda x: np.exp(-a * x) * x**powers, 0.1, b)[0]

    expected = theirs.quad_vec(lambda x: np.exp(-0.7 * x) * x**powers, 0.1, 1.5)[0]
    np.testing.assert_array_equal(adarray.vjp(f, 0.7, 1.5)[0], expected)
    check_grads(f, (0.7, 1.5))
    check_grads(lambda a: f(a, -0.4), (0.7,))
    assert ours.quad_vec(np.cos, 0, 1) == theirs.quad_vec(np.cos, 0, 1)
    with pytest.raises(NotDifferentiableError, match="quad_vec: infinite limits"):
        adarray.grad(lambda a: ours.quad_vec(lambda x: np.exp(-a * x), 0, np.inf)[0])(0.5)


def test_multiple_integrals() -> None:
    def double(a: Any, b: Any) -> Any:
        return ours.dblquad(lambda y, x: np.exp(-a * x * y), 0, b, 0.0, lambda x: a * x)[0]

    plain = theirs.dblquad(lambda y, x: math.exp(-0.7 * x * y), 0, 1.1, 0.0, lambda x: 0.7 * x)
    np.testing.assert_allclose(adarray.vjp(double, 0.7, 1.1)[0], plain[0], rtol=1e-10)
    check_grads(double, (0.7, 1.1), order=1)
    assert ours.dblquad(lambda y, x: x * y, 0, 1, 0, 2) == theirs.dblquad(
        lambda y, x: x * y, 0, 1, 0, 2
    )

    def many(a: Any) -> Any:
        return ours.nquad(lambda x, y, c: c * a * x * y, [[0, 1], [0, a]], args=(2.0,))[0]

    np.testing.assert_allclose(adarray.grad(many)(1.5), 3 * 1.5**2 / 2)
    ranges = [[0, 1], [0, 2]]
    assert ours.nquad(lambda x, y: x + y, ranges) == theirs.nquad(lambda x, y: x + y, ranges)

    def triple(a: Any) -> Any:
        return ours.tplquad(lambda z, y, x: a * x, 0, 1, 0, 1, 0, lambda x, y: a * x)[0]

    np.testing.assert_allclose(adarray.grad(triple)(1.5), 2 * 1.5 / 3)


def test_fixed_quad() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return ours.fixed_quad(lambda x, c: np.exp(c * x), a, b, args=(c,), n=6)[0]

    plain = theirs.fixed_quad(lambda x: np.exp(0.3 * x), 0.1, 1.2, n=6)[0]
    np.testing.assert_allclose(adarray.vjp(f, 0.1, 1.2, 0.3)[0], plain)
    check_grads(f, (0.1, 1.2, 0.3))
    check_grads(lambda c: ours.fixed_quad(lambda x: np.exp(c * x), 0, 1)[0], (0.3,))


# -- differential equations --------------------------------------------------------------------


def _pendulum(t: Any, y: Any, a: Any) -> Any:
    return [y[1], -a * np.sin(y[0]) + 0.1 * np.cos(t)]


_START = np.array([0.5, 0.2])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA"])
@pytest.mark.parametrize("listed", [False, True], ids=["end", "t_eval"])
def test_solve_ivp(method: str, listed: bool) -> None:
    at = np.linspace(0.0, 2.0, 4) if listed else None
    tight = {"rtol": 1e-9, "atol": 1e-11} if method != "RK23" else {"rtol": 1e-6, "atol": 1e-8}
    if method in ("Radau", "BDF", "LSODA"):
        tight = {"rtol": 1e-7, "atol": 1e-9}

    def f(y0: Any, a: Any) -> Any:
        r = ours.solve_ivp(_pendulum, (0.0, 2.0), y0, method, at, args=(a,), **tight)
        return r.y if listed else r.y[:, -1]

    plain = theirs.solve_ivp(_pendulum, (0.0, 2.0), _START, method, at, args=(0.7,), **tight)
    expected = plain.y if listed else plain.y[:, -1]
    np.testing.assert_allclose(adarray.vjp(f, _START, 0.7)[0], expected, rtol=1e-14)

    # The truth, from a much tighter solution.
    def truth(y0: Any, a: Any) -> Any:
        r = theirs.solve_ivp(_pendulum, (0.0, 2.0), y0, "DOP853", at, args=(a,), rtol=1e-13,
                             atol=1e-13)  # fmt: skip
        return np.sum(r.y if listed else r.y[:, -1])

    h = 1e-4
    slope = (truth(_START, 0.7 + h) - truth(_START, 0.7 - h)) / (2 * h)
    g = adarray.grad(lambda a: np.sum(f(_START, a)))(0.7)
    limit = 1e-4 if method == "RK23" else 1e-6
    np.testing.assert_allclose(g, slope, rtol=limit)
    second = adarray.grad(adarray.grad(lambda a: np.sum(f(_START, a))))(0.7)
    curve = (truth(_START, 0.7 + 1e-2) - 2 * truth(_START, 0.7) + truth(_START, 0.7 - 1e-2)) / 1e-4
    np.testing.assert_allclose(second, curve, rtol=1e-3)
    move = np.array([1.0, -0.5])
    y_slope = (truth(_START + h * move, 0.7) - truth(_START - h * move, 0.7)) / (2 * h)
    y_grad = adarray.grad(lambda y0: np.sum(f(y0, 0.7)))(_START)
    np.testing.assert_allclose(y_grad @ move, y_slope, rtol=limit)
    forward = adarray.jvp(lambda a: np.sum(f(_START, a)), (0.7,), (1.0,))[1]
    np.testing.assert_allclose(forward, g, rtol=1e-9)


def test_solve_ivp_in_times() -> None:
    """The derivative with respect to the last time is the right-hand side there."""

    def end(t0: Any, t1: Any) -> Any:
        return ours.solve_ivp(lambda t, y: -0.5 * y + t, (t0, t1), [1.0], rtol=1e-10, atol=1e-12).y[
            0, -1
        ]

    last = float(end(0.0, 1.5))
    np.testing.assert_allclose(adarray.grad(lambda t1: end(0.0, t1))(1.5), -0.5 * last + 1.5)
    # y' = -y / 2 + t from y(t0) = 1: dy(t1)/dt0 = -(f(t0, 1)) exp(-(t1 - t0) / 2)
    g = adarray.grad(lambda t0: end(t0, 1.5))(0.2)
    np.testing.assert_allclose(g, -(-0.5 + 0.2) * math.exp(-0.65), rtol=1e-8)

    def listed(times: Any) -> Any:
        return ours.solve_ivp(lambda t, y: -y, (0.0, 2.0), [1.0], t_eval=times, rtol=1e-10,
                              atol=1e-12).y[0]  # fmt: skip

    times = np.array([0.5, 1.7])
    np.testing.assert_allclose(
        adarray.grad(lambda t: np.sum(listed(t)))(times), -np.exp(-times), rtol=1e-8
    )


@pytest.mark.slow
def test_solve_ivp_of_a_stiff_equation() -> None:
    def stiff(t: Any, y: Any, k: Any) -> Any:
        return np.stack([-k * (y[0] - np.cos(t)), y[0] - y[1]])

    def f(k: Any, y0: Any) -> Any:
        return ours.solve_ivp(stiff, (0.0, 1.0), y0, "Radau", args=(k,), rtol=1e-8, atol=1e-10).y[
            :, -1
        ]

    check_grads(f, (500.0, np.array([0.0, 1.0])), order=1, rtol=1e-4, eps=1e-2)


def test_solve_ivp_of_complex_states() -> None:
    def f(a: Any) -> Any:
        y = ours.solve_ivp(lambda t, y: 1j * a * y, (0, 1), [1.0 + 0j], rtol=1e-9, atol=1e-9).y
        return np.real(y[0, -1])

    np.testing.assert_allclose(adarray.grad(f)(0.7), -math.sin(0.7), rtol=1e-7)


def test_solve_ivp_plain_and_refused() -> None:
    a = ours.solve_ivp(lambda t, y: -y, (0, 1), [1.0], dense_output=True)
    b = theirs.solve_ivp(lambda t, y: -y, (0, 1), [1.0], dense_output=True)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.sol(0.3), b.sol(0.3))

    def hit(t: Any, y: Any) -> Any:
        return y[0] - 0.5

    plain = ours.solve_ivp(lambda t, y: -y, (0, 1), [1.0], events=hit)
    np.testing.assert_allclose(plain.t_events[0], math.log(2), rtol=1e-3)
    with pytest.raises(NotDifferentiableError, match=r"solve_bvp: boundary value problems"):
        adarray.grad(lambda y: ours.solve_bvp(None, None, T, y).y.sum())(Y)


@pytest.mark.parametrize("stiff", [1.0, 3000.0])
def test_odeint(stiff: float) -> None:
    times = np.linspace(0.0, 1.5, 5)

    def field(y: Any, t: Any, k: Any) -> Any:
        return [-k * stiff * (y[0] - np.cos(t)), y[0] - y[1]]

    def f(y0: Any, k: Any) -> Any:
        return ours.odeint(field, y0, times, args=(k,))

    expected = theirs.odeint(field, _START, times, args=(0.7,))
    np.testing.assert_allclose(adarray.vjp(f, _START, 0.7)[0], expected, rtol=1e-15)

    def tight(k: float) -> Any:
        return np.sum(theirs.odeint(field, _START, times, args=(k,), rtol=1e-12, atol=1e-12))

    slope = (tight(0.7 + 1e-3) - tight(0.7 - 1e-3)) / 2e-3
    g = adarray.grad(lambda k: np.sum(f(_START, k)))(0.7)
    np.testing.assert_allclose(g, slope, rtol=1e-4)
    assert np.array_equal(ours.odeint(field, _START, times, args=(0.7,)), expected)
    y, info = ours.odeint(field, ADArray(_START), times, args=(0.7,), full_output=1)
    assert isinstance(y, ADArray)
    assert "nfe" in info


def test_odeint_in_times_and_tfirst() -> None:
    times = np.array([0.0, 0.4, 1.0])

    def f(t: Any) -> Any:
        return np.sum(ours.odeint(lambda t, y: -y + t, 1.0, t, tfirst=True))

    h = 1e-5
    expected = []
    for i in range(3):
        move = np.eye(3)[i] * h
        values = [
            np.sum(theirs.odeint(lambda t, y: -y + t, 1.0, times + s * move, tfirst=True,
                                 rtol=1e-12, atol=1e-12))
            for s in (1, -1)
        ]  # fmt: skip
        expected.append((values[0] - values[1]) / (2 * h))
    np.testing.assert_allclose(adarray.grad(f)(times), expected, rtol=1e-5)


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None


def test_integrands_of_python_numbers() -> None:
    def integral(a: Any, f: Any) -> Any:
        return theirs.quad(f(a), 0.0, 2.0)[0]

    def late(a: Any) -> Any:
        return lambda x: 1.0 if x < 0.3 else math.exp(-a * x)

    for f in (lambda a: lambda x: math.exp(-a * x), lambda a: lambda x: float(a) * x,
              lambda a: lambda x: (np.asarray(a) * x).item(), late):  # fmt: skip
        h = 1e-4
        expected = (integral(0.7 + h, f) - integral(0.7 - h, f)) / (2 * h)
        np.testing.assert_allclose(adarray.grad(integral)(0.7, f), expected, rtol=1e-6)
    root = adarray.grad(lambda a: scipy.optimize.brentq(lambda x: math.exp(a * x) - 2, 0.0, 4.0))
    np.testing.assert_allclose(root(0.7), -math.log(2) / 0.49)
