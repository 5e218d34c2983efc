"""Which right-hand sides have certainly no kinks: their steps are not tried for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import adarray
import adarray.scipy.integrate as ours
from adarray.base.watching import WATCHES
from adarray.ops.creation import asarray
from adarray.scipy import _ode_kinks
from adarray.scipy._ode_smooth import is_smooth

Y = np.linspace(1.0, 2.0, 6)


def in_place(t: Any, y: Any) -> Any:
    d = np.empty_like(y)
    d[0] = y[1]
    d[1:] = -(y[:-1] ** 2) * np.exp(-t)
    return d


def brusselator(t: Any, y: Any) -> Any:
    u, v = np.split(y, 2)
    flow = [np.diff(np.pad(w, 1, mode="edge"), n=2) for w in (u, v)]
    return np.concatenate([1 + u * u * v - 4 * u + flow[0], 3 * u - u * u * v + flow[1]])


SMOOTH: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda t, y: np.eye(6) @ y,
    "in place": in_place,
    "brusselator": brusselator,
    "list": lambda t, y: [y[1], -math.sin(y[0]), t, *y[3:]],
    "array": lambda t, y: np.array([y[0], t, *y[2:]]),
    "loop": lambda t, y: sum(np.cos(k * t) * y ** (k + 1) for k in range(len(y))),
    "roll": lambda t, y: (np.roll(y, 1) - y) * np.tanh(y),
    "a branch of a constant": lambda t, y: y if len(Y) > 3 else np.abs(y),
}
KINKS: dict[str, Callable[[Any, Any], Any]] = {
    "abs": lambda t, y: np.abs(y),
    "abs of time": lambda t, y: y * abs(t),
    "mask": lambda t, y: (y > 0) * y,
    "branch": lambda t, y: y if y[0] > 0 else 2 * y,
    "branch of time": lambda t, y: y * (1.0 if float(t) > 1 else 2.0),
    "maximum": lambda t, y: np.maximum(y, t),
    "max": lambda t, y: y * max(t, 0.5),
    "int": lambda t, y: y * int(t),
    "round": lambda t, y: y * round(t),
    "np.floor": lambda t, y: y * np.floor(t),
    "math.floor": lambda t, y: y * math.floor(t),
    "//": lambda t, y: y * (t // 1),
    "%": lambda t, y: y * (t % 1),
    "sign": lambda t, y: y * np.sign(y),
    "heaviside": lambda t, y: 0 * y + np.heaviside(t, 0.5),
    "interp": lambda t, y: np.interp(t, [0, 1], [0, 1]) * y,
    "sort": lambda t, y: y[np.argsort(y)],
    "where": lambda t, y: np.where(y > 0, y, 0),
    "clip": lambda t, y: np.clip(y, 0, 1),
    "norm": lambda t, y: np.linalg.norm(y) * y,
    "bool": lambda t, y: y * bool(t),
    "any": lambda t, y: y if y.any() else -y,
    "in": lambda t, y: y * (t in (0.3, 0.4)),
    "max of array": lambda t, y: y / y.max(),
    "takes plain times": lambda t, y: y * (np.datetime64(t, "s") is None),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth(name: str) -> None:
    assert is_smooth(lambda t, y: asarray(SMOOTH[name](t, y)), 0.3, Y)
    assert not WATCHES


@pytest.mark.parametrize("name", KINKS)
def test_kinks(name: str) -> None:
    assert not is_smooth(lambda t, y: asarray(KINKS[name](t, y)), 0.3, Y)
    assert not WATCHES


def test_only_kinks_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    doubtful = _ode_kinks.Refinement._differences

    def counted(self: Any, *args: Any) -> Any:
        tried.append(1)
        return doubtful(self, *args)

    monkeypatch.setattr(_ode_kinks.Refinement, "_differences", counted)
    cases = (lambda t, y, k: -k * y**2, False), (lambda t, y, k: -k * np.abs(y) * y, True)
    for field, looks in cases:
        g = adarray.grad(
            lambda k, f=field: ours.solve_ivp(f, (0, 1), [1.0], args=(k,), rtol=1e-8).y[0, -1]
        )
        assert g(1.0) == pytest.approx(-0.25, rel=1e-5)
        assert bool(tried) == looks


def test_a_watch_is_of_its_thread_and_of_traced_values() -> None:
    with adarray.base.watching.watched() as watch:
        assert adarray.array([1.0])[0] > 0.5
        assert not watch.triggered
        adarray.grad(lambda x: x if x > 0.0 else -x)(1.0)
        assert watch.triggered
