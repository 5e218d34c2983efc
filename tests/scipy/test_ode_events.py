"""Events, dense output and ends of the solutions of ODEs: known answers and differences."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.integrate as theirs
from scipy.special import ellipk

import adarray
import adarray.scipy.integrate as ours
from adarray.scipy import _ode_track
from adarray.testing import check_grads

METHODS = ["RK45", "DOP853", "Radau", "LSODA"]
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
G, H = 9.81, 2.0


def ground(t: Any, y: Any, *args: Any) -> Any:
    return y[0]


ground.terminal = True  # type: ignore[attr-defined]
ground.direction = -1.0  # type: ignore[attr-defined]


def flight(t: Any, y: Any, g: Any) -> Any:
    return np.stack([y[1], 0.0 * y[0] - g])


def fall(h: Any, g: Any, method: str) -> Any:
    r = ours.solve_ivp(
        flight, (0.0, 10.0), np.stack([h, 0.0 * h]), method, events=ground, args=(g,), **TIGHT
    )
    return r.t_events[0][0], r.y_events[0][0, 1], r.t[-1], r.y[1, -1]


@pytest.mark.parametrize("method", METHODS)
def test_a_fall(method: str) -> None:
    """The time is sqrt(2 h / g), and the speed sqrt(2 g h)."""
    matrix = adarray.jacobian(fall, (0, 1))(H, G, method)
    time = np.sqrt(H / (2 * G)) * np.array([1 / H, -1 / G])
    speed = -np.sqrt(G * H / 2) * np.array([1 / H, 1 / G])
    np.testing.assert_allclose(matrix, [time, speed, time, speed], rtol=1e-6)
    second = adarray.hessian(lambda h: fall(h, G, method)[0])(H)
    assert float(second) == pytest.approx(-0.25 * np.sqrt(2 / G) * H**-1.5, rel=1e-5)
    _, along = adarray.jvp(lambda h: fall(h, G, method)[1], (H,), (1.0,))
    assert float(along) == pytest.approx(speed[0], rel=1e-6)


def bounced(h: Any, c: Any, count: int, until: float) -> Any:
    """Return the height of a ball that keeps a part `c` of its speed when it bounces."""
    t, y = 0.0, np.stack([h, 0.0 * h])
    for _ in range(count):
        r = ours.solve_ivp(flight, (t, 10.0), y, events=ground, args=(G,), **TIGHT)
        t, y = r.t_events[0][0], np.stack([0.0 * h, -c * r.y_events[0][0, 1]])
    return ours.solve_ivp(flight, (t, until), y, args=(G,), **TIGHT).y[0, -1]


def bounced_by_hand(h: Any, c: Any, count: int, until: float) -> Any:
    t = np.sqrt(2 * h / G) * (1 + 2 * sum(c**k for k in range(1, count)))
    v = c**count * np.sqrt(2 * G * h)
    return v * (until - t) - G * (until - t) ** 2 / 2


@pytest.mark.parametrize("count", [1, 3])
def test_a_bouncing_ball(count: int) -> None:
    """The adjoint jumps with each bounce, whose time moves."""
    until = {1: 1.0, 3: 2.4}[count]
    gradient = adarray.grad(bounced, (0, 1))(H, 0.8, count, until)
    np.testing.assert_allclose(
        gradient, adarray.grad(bounced_by_hand, (0, 1))(H, 0.8, count, until), rtol=1e-6
    )


def test_the_period_of_a_pendulum() -> None:
    """A quarter of it is K(sin(a/2)^2), for an amplitude a."""

    def quarter(a: Any) -> Any:
        r = ours.solve_ivp(
            lambda t, y: np.stack([y[1], -np.sin(y[0])]), (0.0, 3.0), np.stack([a, 0.0 * a]),
            "DOP853", events=ground, **TIGHT,
        )  # fmt: skip
        return r.t_events[0][0]

    a, step = 1.2, 1e-4
    assert float(quarter(a)) == pytest.approx(float(ellipk(np.sin(a / 2) ** 2)), rel=1e-8)
    up, down = (float(ellipk(np.sin((a + s) / 2) ** 2)) for s in (step, -step))
    assert adarray.grad(quarter)(a) == pytest.approx((up - down) / (2 * step), rel=1e-6)


def many(k: Any, phase: Any, method: str, t_eval: Any = None) -> Any:
    """Return all that a solution with several events has."""

    def crosses(t: Any, y: Any) -> Any:
        return y[0] - 0.3 * phase

    def rises(t: Any, y: Any) -> Any:
        return y[1] - np.sin(phase) * t / 20

    def never(t: Any, y: Any) -> Any:
        return y[0] + 10.0

    rises.direction, rises.terminal = 1, 2  # type: ignore[attr-defined]
    r = ours.solve_ivp(
        lambda t, y: np.stack([y[1], -k * y[0]]), (0.0, 20.0), [1.0, 0.1], method,
        events=[crosses, rises, never], t_eval=t_eval, dense_output=True, **TIGHT,
    )  # fmt: skip
    assert r.status == 1
    assert len(r.t_events[2]) == len(r.y_events[2]) == 0
    times = np.array([0.3, 1.7, 0.9])
    return (*r.t_events[:2], *r.y_events[:2], r.y[:, -1], r.t[-1], r.sol(times), r.sol(1.1))


@pytest.mark.parametrize("t_eval", [None, [0.5, 1.0, 2.0]])
@pytest.mark.parametrize(
    "method", [pytest.param(m, marks=pytest.mark.slow) if m in METHODS[2:] else m for m in METHODS]
)
def test_events_and_dense_output(method: str, t_eval: Any) -> None:
    """Against differences, with the values of SciPy."""
    plain = many(1.3, 0.7, method, t_eval)
    actual = adarray.vjp(lambda k, p: many(k, p, method, t_eval), 1.3, 0.7)[0]
    for a, b in zip(actual, plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    _, tangent = adarray.jvp(lambda k, p: many(k, p, method, t_eval), (1.3, 0.7), (1.0, -0.5))
    step = 1e-4
    up, down = (many(1.3 + s, 0.7 - 0.5 * s, "DOP853", t_eval) for s in (step, -step))
    for t, a, b in zip(tangent, up, down, strict=True):
        np.testing.assert_allclose(t, (a - b) / (2 * step), rtol=1e-3, atol=1e-4)


def test_dense_output_in_time_and_start() -> None:
    matrix = np.array([[-0.5, 1.0], [-1.0, -0.5]])

    def solve(y0: Any, t: Any) -> Any:
        r = ours.solve_ivp(lambda s, y: matrix @ y, (0.0, 3.0), y0, dense_output=True, **TIGHT)
        assert (r.sol.t_min, r.sol.t_max) == (0.0, 3.0)
        return r.sol(t)

    def exact(y0: Any, t: Any) -> Any:
        transposed = np.stack([y0[0] * np.cos(t) + y0[1] * np.sin(t),
                           y0[1] * np.cos(t) - y0[0] * np.sin(t)])  # fmt: skip
        return np.exp(-0.5 * t) * transposed

    args = np.array([1.0, 0.3]), np.array([0.0, 0.7, 2.2, 3.0])
    for mine, known in zip(
        adarray.jacobian(solve, (0, 1))(*args), adarray.jacobian(exact, (0, 1))(*args), strict=True
    ):
        np.testing.assert_allclose(mine, known, atol=1e-6)
    second = adarray.grad(adarray.grad(lambda t: solve(args[0], t)[0]))(0.7)
    assert second == pytest.approx(
        adarray.grad(adarray.grad(lambda t: exact(args[0], t)[0]))(0.7), abs=1e-4
    )


def test_backwards_in_time() -> None:
    def back(k: Any) -> Any:
        r = ours.solve_ivp(
            lambda t, y: k * y, (1.0, -5.0), [1.0], events=lambda t, y: y[0] - 0.5,
            dense_output=True, **TIGHT,
        )  # fmt: skip
        return r.t_events[0][0], r.sol(0.2)[0]

    check_grads(back, (0.7,), order=1, rtol=1e-5, atol=1e-6, eps=1e-4)
    assert adarray.grad(lambda k: back(k)[0])(0.7) == pytest.approx(np.log(2) / 0.49, rel=1e-6)


def test_an_event_of_a_threshold_alone() -> None:
    """The solution itself does not depend on what moves."""

    def time(level: Any) -> Any:
        r = ours.solve_ivp(
            lambda t, y: -y, (0, 5), [1.0], events=lambda t, y: y[0] - level, **TIGHT
        )
        return r.t_events[0][0]

    assert adarray.grad(time)(0.25) == pytest.approx(-4.0, rel=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, adarray.jit], ids=["eager", "jit"])
def test_original_code(wrap: Any) -> None:
    def f(h: Any) -> Any:
        r = theirs.solve_ivp(
            lambda t, y: [y[1], -G], (0.0, 10.0), [h, 0.0], events=ground, dense_output=True
        )
        return r.t_events[0][0] + r.sol(0.1)[0]

    g = wrap(adarray.grad(f))
    expected = 1.0 + 0.5 * np.sqrt(2 / (G * H))
    if wrap is adarray.jit:
        with pytest.warns(adarray.JitWarning):
            assert g(H) == pytest.approx(expected, rel=1e-6)
    assert g(H) == pytest.approx(expected, rel=1e-6)


def heat(k: Any, y0: Any) -> Any:
    """Return a functional of a solution whose right-hand side reads what is around it."""
    r = ours.solve_ivp(
        lambda t, y: k * (np.roll(y, 1) - 2 * y + np.roll(y, -1)) + np.cos(t) * y, (0.0, 0.3), y0,
        rtol=1e-4, dense_output=True, events=lambda t, y: y[0] - 0.2,
    )  # fmt: skip
    return np.sum(r.y[:, -1] ** 2) + r.t_events[0].sum() + r.sol(0.1)[1]


def test_long_solutions_keep_their_states_only(monkeypatch: pytest.MonkeyPatch) -> None:
    y0 = np.sin(np.linspace(0.0, 3.0, 5)) + 0.1
    expected = adarray.grad(heat, (0, 1))(3.0, y0)
    second = adarray.hvp(heat)(3.0, y0, 1.0)
    _, along = adarray.jvp(heat, (3.0, y0), (1.0, y0))
    monkeypatch.setattr(_ode_track, "MUCH", 0)
    for actual, known in zip(adarray.grad(heat, (0, 1))(3.0, y0), expected, strict=True):
        np.testing.assert_allclose(actual, known, rtol=1e-10)
    assert adarray.hvp(heat)(3.0, y0, 1.0) == pytest.approx(second, rel=1e-8)
    assert adarray.grad(adarray.grad(heat))(3.0, y0) == pytest.approx(second, rel=1e-8)
    assert adarray.jvp(heat, (3.0, y0), (1.0, y0))[1] == pytest.approx(along, rel=1e-10)


@pytest.mark.unchecked
def test_memory_of_a_long_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """One state a step, and what one step computes."""
    monkeypatch.setattr(_ode_track, "MUCH", 0)
    n = 4_000
    y0 = np.sin(np.linspace(0.0, 3.0, n))
    peak, steps = [], []

    def f(k: Any) -> Any:
        r = ours.solve_ivp(
            lambda t, y: -k * np.sin(y) * np.exp(-y) * np.tanh(y + t), (0.0, 20.0), y0, rtol=1e-6
        )
        steps.append(r.t.size)
        return np.sum(r.y[:, -1])

    tracemalloc.start()
    try:
        adarray.grad(f)(1.0)
        peak.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    state = 8 * n
    assert steps[0] > 20
    assert peak[0] < (8 * steps[0] + 150) * state  # SciPy has it several times; a step has 100
