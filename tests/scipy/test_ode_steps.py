"""Steps of small systems, walked back for all steps at once: as one by one, in fewer calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

import adarray
import adarray.scipy.integrate as ours
from adarray.scipy import _ode_steps

SPAN = (0.0, 3.0)
Y0 = np.array([1.0, 0.2])
P = {"k": np.array([1.3, 0.4]), "s": 0.7}


def swing(t: Any, y: Any, p: Any) -> Any:
    return [y[1], -p["k"][0] * np.sin(y[0]) - p["k"][1] * y[1] + p["s"] * np.cos(t)]


def kinked(t: Any, y: Any, p: Any) -> Any:
    return np.stack([y[1], -p["k"][0] * np.abs(y[0]) + p["s"]])


def branching(t: Any, y: Any, p: Any) -> Any:
    force = p["s"] * y[0] ** 2 if y[0] > 0.5 else p["s"] * y[0] / 2
    return np.stack([y[1], -force])


def one_state_only(t: Any, y: Any, p: Any) -> Any:
    """`vmap` has no rule for a member's own list of Python floats."""
    d = np.zeros_like(y)
    d[0] = y[1] * float(p["k"].size)
    d[1] = -p["k"][0] * np.sort(y)[0] * p["s"]
    return d


def end(f: Callable[..., Any], p: Any, y0: Any, method: str, **options: Any) -> Any:
    def rhs(t: Any, y: Any) -> Any:
        return f(t, y, p)

    options = {"t_span": SPAN, "rtol": 1e-6, "atol": 1e-9, **options}
    r = ours.solve_ivp(rhs, options.pop("t_span"), y0, method, **options)
    return np.sum(np.cos(r.y) @ np.linspace(0.0, 1.0, r.y.shape[1])) + np.sum(r.y[:, -1] ** 2)


CASES: dict[str, tuple[Callable[..., Any], str, dict[str, Any]]] = {
    "RK45": (swing, "RK45", {}),
    "RK23": (swing, "RK23", {"rtol": 1e-4}),
    "DOP853": (swing, "DOP853", {}),
    "the end alone": (swing, "DOP853", {"t_eval": [3.0]}),
    "times between": (swing, "RK45", {"t_eval": np.linspace(0.1, 2.9, 5)}),
    "backwards": (swing, "RK45", {"t_span": (2.0, -1.0)}),
    "kinks": (kinked, "RK45", {"rtol": 1e-4}),
    "members take branches": (branching, "RK23", {"rtol": 1e-4}),
    "writes": (one_state_only, "RK45", {}),
    "an event": (swing, "RK45", {"events": lambda t, y: y[0]}),
}


def both(case: str, monkeypatch: pytest.MonkeyPatch, of: Callable[..., Any]) -> tuple[Any, Any]:
    """Return what `of` gives by steps at once, and one by one."""
    f, method, options = CASES[case]

    def loss(p: Any, y0: Any) -> Any:
        return end(f, p, y0, method, **options)

    actual = of(loss)(P, Y0)
    monkeypatch.setattr(_ode_steps, "LARGEST", 0)
    return actual, of(loss)(P, Y0)


def close(actual: Any, expected: Any, rtol: float = 1e-9) -> None:
    for x, y in zip(adarray.ravel(actual)[0], adarray.ravel(expected)[0], strict=True):
        assert x == pytest.approx(y, rel=rtol, abs=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_as_one_by_one(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    close(*both(case, monkeypatch, lambda f: adarray.grad(f, (0, 1))))


@pytest.mark.parametrize(
    "of",
    [
        lambda f: (
            lambda p, y: adarray.hvp(lambda s, y: f({**p, "s": s}, y), (0, 1))(p["s"], y, (1.0, y))
        ),
        lambda f: lambda p, y: adarray.hessian(lambda s: f({**p, "s": s}, y))(p["s"]),
        lambda f: lambda p, y: adarray.grad(adarray.grad(lambda s: f({**p, "s": s}, y)))(p["s"]),
        lambda f: lambda p, y: adarray.jvp(f, (p, y), ({"k": p["k"], "s": 1.0}, y))[1],
    ],
    ids=["hvp", "hessian", "grad of grad", "jvp"],
)
def test_further_derivatives(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    close(*both("RK23", monkeypatch, of), rtol=1e-7)


def test_many_cotangents_and_members() -> None:
    def states(k: Any) -> Any:
        return ours.solve_ivp(lambda t, y: -k * y, (0.0, 1.0), Y0, t_eval=[0.5, 1.0], rtol=1e-8).y

    expected = np.stack([-t * Y0 * np.exp(-2.0 * t) for t in (0.5, 1.0)], axis=1)
    for of in (adarray.jacrev, adarray.jacfwd):
        np.testing.assert_allclose(of(states)(2.0), expected, rtol=1e-5)
    slopes = adarray.vmap(adarray.grad(lambda k: np.sum(states(k)[:, 1])))(np.array([1.0, 2.0]))
    np.testing.assert_allclose(slopes, -np.sum(Y0) * np.exp([-1.0, -2.0]), rtol=1e-5)


def test_arrays_that_record_themselves() -> None:
    k = adarray.array(2.0, requires_grad=True)
    r = ours.solve_ivp(lambda t, y: -k * y, (0.0, 1.0), Y0, rtol=1e-8)
    np.sum(r.y[:, -1]).backward()
    assert float(k.grad) == pytest.approx(-np.sum(Y0) * np.exp(-2.0), rel=1e-5)


def test_few_calls_of_the_right_hand_side() -> None:
    """The solver's own, and some more, however many steps there are."""
    calls = []

    def loss(k: Any, last: float) -> Any:
        def rhs(t: Any, y: Any) -> Any:
            calls.append(t)
            return -k * np.sin(y)

        return np.sum(ours.solve_ivp(rhs, (0.0, last), Y0, "RK45", t_eval=[last]).y)

    more = []
    for last in (2.0, 40.0):
        calls.clear()
        adarray.value_and_grad(loss)(2.0, last)
        every = len(calls)
        calls.clear()
        loss(2.0, last)
        more.append(every - len(calls))
    assert more[0] == more[1] < 8


def test_what_only_some_steps_read() -> None:
    def loss(k: Any) -> Any:
        return np.sum(ours.solve_ivp(
            lambda t, y: -y * (k if 0.2 < t % 1.0 < 0.4 else 1.0), (0.0, 1.0), Y0, max_step=0.3
        ).y[:, -1])  # fmt: skip

    assert adarray.grad(loss)(2.0) == pytest.approx(-0.2 * np.sum(Y0) * np.exp(-1.2), rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["RK45", "DOP853"])
def test_steps_of_a_jitted_right_hand_side(method: str) -> None:
    """One compiled operation a step, for systems of any size; derivatives of all kinds."""
    spread = np.linspace(0.5, 1.5, _ode_steps.LARGEST + 2)

    def f(t: Any, y: Any, k: Any) -> Any:
        d = np.zeros_like(y)
        d[1:-1] = k * (y[2:] - 2.0 * y[1:-1] + y[:-2])
        return d - y**3 * np.cos(t)

    def loss(rhs: Any) -> Any:
        def final(k: Any, y0: Any) -> Any:
            r = ours.solve_ivp(rhs, (0.0, 1.0), y0, method, args=(k,), t_eval=[0.5, 1.0])
            return np.sum(r.y[:, -1] ** 2) + r.y[3, 0]

        return final

    jitted, plain = loss(adarray.jit(f)), loss(f)
    assert jitted(0.7, spread) == pytest.approx(plain(0.7, spread), rel=1e-12)
    for _ in range(2):
        for of in (
            lambda f: adarray.grad(f, (0, 1))(0.7, spread),
            lambda f: adarray.hvp(f)(0.7, spread, 1.0),
            lambda f: adarray.jvp(f, (0.7, spread), (1.0, spread))[1],
            lambda f: adarray.grad(adarray.grad(f))(0.7, spread),
        ):
            close(of(jitted), of(plain))
