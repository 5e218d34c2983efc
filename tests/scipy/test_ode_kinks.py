"""Gradients of ODEs whose right-hand side has kinks are as accurate as the solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import integrate

import adarray
from adarray.core.protocol import traced
from adarray.errors import NotDifferentiableError
from adarray.scipy import _ode_kinks
from adarray.scipy import integrate as ours

KNOTS, TABLE = [0.0, 0.3, 0.7, 1.2, 2.0], [0.0, 1.0, 0.2, 0.8, 0.1]


# Right-hand sides of one state that begins at 1, and what it is at 2, both by hand.


def _ramp(t: Any, y: Any, k: Any) -> Any:
    return np.maximum(t - k, 0.0) + 0.0 * y  # (2 - k)^2 / 2


def _v(t: Any, y: Any, k: Any) -> Any:
    return np.abs(t - k) + 0.0 * y  # (k^2 + (2 - k)^2) / 2


def _bent(t: Any, y: Any, k: Any) -> Any:
    return np.where(y > 0.5, -k + 0.0 * y, -5.0 * k * (y - 0.2))


def _clipped(t: Any, y: Any, k: Any) -> Any:
    # cut at 0.6: y = 1 - 0.6 t down to y = 0.6/k at t1, then y = 0.6/k exp(-k (t - t1)).
    return -np.clip(k * y, 0.0, 0.6)


def _two(t: Any, y: Any, k: Any) -> Any:
    return np.minimum(np.maximum(t - 0.4 * k, 0.0), k) + 0.0 * y


def _clipped_end(k: float) -> float:
    t1 = (1 - 0.6 / k) / 0.6
    return 0.6 / k * np.exp(-k * (2 - t1))


def _two_end(k: float) -> float:
    return 1 + k**2 / 2 + k * (2 - 1.4 * k)


CASES: dict[str, tuple[Callable[..., Any], Callable[[float], float]]] = {
    "maximum of time": (_ramp, lambda k: 1 + (2 - k) ** 2 / 2),
    "abs of time": (_v, lambda k: 1 + (k**2 + (2 - k) ** 2) / 2),
    "clip of the state": (_clipped, _clipped_end),
    "two kinks": (_two, _two_end),
}


def _end(f: Callable[..., Any], k: Any, method: str, rtol: float) -> Any:
    tight = {"rtol": rtol, "atol": rtol * 1e-2}
    if method == "odeint":
        return ours.odeint(lambda y, t: f(t, y, k), [1.0], np.array([0.0, 2.0]), **tight)[-1, 0]
    return ours.solve_ivp(lambda t, y: f(t, y, k), (0.0, 2.0), [1.0], method, **tight).y[0, -1]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA", "odeint"])
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_as_accurate_as_the_solution(case: str, method: str) -> None:
    """They were off by 3e-6 to 3e-4, the length of a step over the kink."""
    f, exact = CASES[case]
    implicit = method in ("Radau", "BDF", "LSODA")
    rtol = 1e-6 if method == "RK23" else 1e-8 if implicit else 1e-10
    k, h = 0.83, 1e-4
    expected = (8 * (exact(k + h) - exact(k - h)) - exact(k + 2 * h) + exact(k - 2 * h)) / (12 * h)
    value, gradient = adarray.value_and_grad(lambda k: _end(f, k, method, rtol))(k)
    assert abs(value - exact(k)) < 100 * rtol
    assert abs(gradient - expected) < (10 * rtol**0.5 if implicit else 100 * rtol)


@pytest.mark.parametrize("mode", ["jvp", "intercept", "args", "start"])
def test_in_every_mode(mode: str) -> None:
    f, exact = CASES["clip of the state"]
    k, h = 0.83, 1e-4
    expected = (exact(k + h) - exact(k - h)) / (2 * h)

    def end(k: Any) -> Any:
        return _end(f, k, "RK45", 1e-9)

    if mode == "jvp":
        tangent = adarray.jvp(end, (k,), (1.0,))[1]
    elif mode == "intercept":
        tangent = adarray.grad(end, intercept=True)(k)
    elif mode == "args":
        tangent = adarray.grad(lambda k: ours.solve_ivp(
            f, (0.0, 2.0), [1.0], args=(k,), rtol=1e-9, atol=1e-11).y[0, -1])(k)  # fmt: skip
    else:  # y(2) = k y0 for a start below the kink; here it is above

        def from_start(a: Any) -> Any:
            return ours.solve_ivp(
                lambda t, y: f(t, y, k), (0.0, 2.0), [a], rtol=1e-9, atol=1e-11
            ).y[0, -1]

        tangent = adarray.grad(from_start)(1.0)
        expected = k / 0.6 * exact(k)  # t1 moves by 1/0.6
    assert abs(tangent - expected) < 2e-8


@pytest.mark.parametrize("method", ["RK45", "DOP853", "odeint", "Radau", "BDF", "LSODA"])
def test_a_jump_of_the_state_is_refused(method: str) -> None:
    """The time of the jump moves, which no operation says."""
    with pytest.raises(
        NotDifferentiableError, match=r"the right-hand side jumps from .* at t=0\.6"
    ):
        adarray.grad(lambda k: _end(_bent, k, method, 1e-8))(0.83)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["Radau", "BDF", "LSODA"])
def test_implicit_methods_over_what_is_no_jump_of_the_state(method: str) -> None:
    """Kinks, jumps at given times and fast layers are differentiated."""
    for f, tolerance in (
        (_clipped, 1e-4),
        (lambda t, y, k: -k * y + np.where(t < 0.7, 1.0, 0.0), 1e-3),
        (lambda t, y, k: -500.0 * k * (y - np.abs(np.cos(3.0 * t))), 1e-3),
        (lambda t, y, k: -k * np.tanh(200.0 * (y - 0.6)), 1e-3),
    ):
        h, k = 1e-4, 0.83
        gradient = adarray.grad(lambda k, f=f: _end(f, k, method, 1e-8))(k)
        ends = [_end(f, k + d, "Radau", 1e-11) for d in (h, -h)]
        assert abs(gradient - (ends[0] - ends[1]) / (2 * h)) < tolerance


@pytest.mark.parametrize("outer", [adarray.grad, lambda g: lambda k: adarray.jvp(g, (k,), (1.0,))])
def test_second_derivatives_over_a_kink_of_the_state_are_refused(outer: Any) -> None:
    """They miss how the time of the kink moves: 0.477 for 0.770."""
    with pytest.raises(NotDifferentiableError, match="a second derivative would miss how its time"):
        outer(adarray.grad(lambda k: _end(_clipped, k, "RK45", 1e-9)))(0.83)


def test_second_derivatives_over_kinks_at_given_times() -> None:
    def f(t: Any, y: Any, k: Any) -> Any:
        return np.interp(t, KNOTS, TABLE) - k * y

    k, h = 0.83, 1e-3
    slope = adarray.grad(lambda k: _end(f, k, "RK45", 1e-10))
    gradient = adarray.grad(slope)(k)
    assert abs(gradient - (slope(k + h) - slope(k - h)) / (2 * h)) < 1e-5


def test_a_jump_at_a_given_time_is_differentiated() -> None:
    def f(t: Any, y: Any, k: Any) -> Any:
        return -k * y + np.where(t < 0.7, 1.0, 0.0)

    def exact(k: float) -> float:
        at = 1 / k + (1 - 1 / k) * np.exp(-0.7 * k)
        return float(at * np.exp(-1.3 * k))

    h = 1e-4
    expected = (exact(0.83 + h) - exact(0.83 - h)) / (2 * h)
    assert abs(adarray.grad(lambda k: _end(f, k, "RK45", 1e-10))(0.83) - expected) < 2e-8


def test_times_that_only_plain_numbers_can_be() -> None:
    import math

    def f(t: Any, y: Any, k: Any) -> Any:
        return -np.clip(k * y, 0.0, 0.6) * (1.0 + 0.0 * math.sin(t))

    k, h, exact = 0.83, 1e-4, CASES["clip of the state"][1]
    expected = (exact(k + h) - exact(k - h)) / (2 * h)
    assert abs(adarray.grad(lambda k: _end(f, k, "RK45", 1e-9))(k) - expected) < 2e-7


def test_backwards_and_with_times_to_report() -> None:
    f, exact = CASES["abs of time"]
    k, at = 0.83, np.array([2.0, 1.5, 0.9, 0.1, 0.0])

    def sums(k: Any) -> Any:
        r = ours.solve_ivp(lambda t, y: f(t, y, k), (2.0, 0.0), [exact(0.83)], t_eval=at,
                           rtol=1e-10, atol=1e-12)  # fmt: skip
        return np.sum(r.y)

    expected = sum((2 - k) - abs(s - k) for s in at)  # the integral of sign(k - t) from 2
    assert abs(adarray.grad(sums)(k) - expected) < 1e-8


def _calls(f: Callable[..., Any], method: str) -> tuple[int, int]:
    """Return how often f is called with traced states for a gradient, and how often in all."""
    seen = [0, 0]

    def counted(t: Any, y: Any, k: Any) -> Any:
        seen[0] += traced(y)
        seen[1] += 1
        return f(t, y, k)

    def end(k: Any) -> Any:
        r = ours.solve_ivp(lambda t, y: counted(t, y, k), (0.0, 6.0), np.array([1.0, 0.2]) * k**0,
                           method, rtol=1e-7, atol=1e-9)  # fmt: skip
        return np.sum(r.y[:, -1])

    adarray.grad(end)(0.83)
    return seen[0], seen[1]


def _pendulum(t: Any, y: Any, k: Any) -> Any:
    return np.stack([y[1], -np.abs(k) * np.sin(y[0]) - 0.1 * y[1]])  # abs: it may have kinks


def _single(t: Any, y: Any, k: Any) -> Any:
    """Raise for stacked states."""
    pushed = np.stack([y[1], -np.abs(k) * np.sin(y[0]) - 0.1 * y[1]])
    return pushed + np.array([0.1, 0.2]) * np.ones(2)


@pytest.mark.parametrize("f", [_pendulum, _single])
@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_smooth_steps_are_tried_with_plain_values(f: Callable[..., Any], method: str) -> None:
    """Each was tried with a traced step of its own: gradients took four times as long."""
    solution = integrate.solve_ivp(
        lambda t, y: f(t, y, 0.83), (0.0, 6.0), [1.0, 0.2], method, rtol=1e-7, atol=1e-9
    )
    steps, stages = solution.t.size - 1, {"RK45": 6, "DOP853": 12}[method]
    recorded, calls = _calls(f, method)
    # The check of what the formula is, and the batches of all steps.
    assert recorded == 3
    assert calls - recorded - solution.nfev < (
        steps + 4 * stages if f is _pendulum else 8 * steps * stages
    )


def test_smooth_formulas_are_not_tried() -> None:
    def smooth(t: Any, y: Any, k: Any) -> Any:
        return np.stack([y[1], -k * np.sin(y[0]) - 0.1 * y[1]])

    solution = integrate.solve_ivp(
        lambda t, y: smooth(t, y, 0.83), (0.0, 6.0), [1.0, 0.2], rtol=1e-7, atol=1e-9
    )
    recorded, calls = _calls(smooth, "RK45")
    assert recorded == 3
    assert calls == recorded + solution.nfev + 1  # the check of what the slopes read


def _mixing(t: Any, y: Any, k: Any) -> Any:
    """Stacked states go through, and give something else."""
    return np.stack([-np.clip(k * y[0], 0.0, 0.6) + 0.0 * np.max(y), 0.1 * np.max(y)])


def _added(t: Any, y: Any, k: Any) -> Any:
    return -np.clip(k * y, 0.0, 0.6) + np.zeros(2) * k


def _branching(t: Any, y: Any, k: Any) -> Any:
    return np.stack([-k * y[0] if k * y[0] < 0.6 else -0.6 + 0.0 * k, 0.0 * y[1]])


@pytest.mark.parametrize("f", [_mixing, _added, _branching])
@pytest.mark.parametrize("method", ["RK45", "DOP853", "odeint"])
def test_right_hand_sides_of_one_state(f: Callable[..., Any], method: str) -> None:
    def end(k: Any) -> Any:
        if method == "odeint":
            return ours.odeint(f, [1.0, 1.0], np.array([0.0, 2.0]), (k,), tfirst=True,
                               rtol=1e-9, atol=1e-11)[-1, 0]  # fmt: skip
        return ours.solve_ivp(lambda t, y: f(t, y, k), (0.0, 2.0), [1.0, 1.0], method,
                              rtol=1e-9, atol=1e-11).y[0, -1]  # fmt: skip

    k, h = 0.83, 1e-4
    expected = (_clipped_end(k + h) - _clipped_end(k - h)) / (2 * h)
    assert abs(adarray.grad(end)(k) - expected) < 1e-7


def test_more_kinks_than_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were left without a word."""
    monkeypatch.setattr(_ode_kinks, "_MOST", 3)

    def end(k: Any) -> Any:
        r = ours.solve_ivp(lambda t, y: 0.05 * np.abs(np.sin(300 * (t - k))) + 0.0 * y + 1.0,
                           (0.0, 2.0), [0.0], rtol=1e-3, atol=1e-3)  # fmt: skip
        return r.y[0, -1]

    with pytest.warns(RuntimeWarning, match="solve_ivp: the right-hand side has more") as said:
        adarray.grad(end)(0.83)
    assert [w.filename for w in said] == [__file__]


@pytest.mark.parametrize("case", ["RK45", "DOP853"])
def test_a_kink_that_is_first_looked_for_elsewhere(case: str) -> None:
    """A swing within a step looked like the kink: cuts went there again and again."""
    a, b, w, start, p = {
        "RK45": (0.426, 0.0702, 1.498, [-0.605, 0.657], [1.358, 1.327]),
        "DOP853": (0.3875, -0.541, 0.742, [0.6465, -0.7223], [1.211, 0.7623]),
    }[case]

    def field(t: Any, y: Any, p: Any) -> Any:
        u = np.where(y[0] > a * p[0], y[0] - a * p[0], 0.3 * (y[0] - a * p[0]))
        v = np.tanh(y[1] - b) if case == "RK45" else np.sqrt((y[1] - b) ** 2)
        first = y[1] * p[1] - 0.6 * u + 0.2 * np.sin(w * t)
        return np.stack([first, -p[0] * y[0] + 0.5 * v - 0.1 * y[1]])

    def exact(p: Any) -> Any:
        tight = {"rtol": 1e-13, "atol": 1e-13, "max_step": 0.02}
        return integrate.solve_ivp(field, (0.0, 4.0), start, "DOP853", args=(p,), **tight).y[:, -1]

    def solved(p: Any) -> Any:
        loose = {"rtol": 1e-5, "atol": 1e-5}
        return np.sum(ours.solve_ivp(field, (0.0, 4.0), start, case, args=(p,), **loose).y[:, -1])

    at, h = np.array(p), 1e-4
    expected = [np.sum(exact(at + h * e) - exact(at - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(adarray.grad(solved)(at), expected, atol=3e-4)
