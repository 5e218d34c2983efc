"""What a loop overwrites or does not choose has no part in gradients, infinite as it may be."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import device
import host_gpu
import numpy as np
import pytest

import adarray
from adarray.kernels.strong_zeros import StrongZeros
from adarray.loops import capture, policy
from adarray.loops.memory import Operations

X = np.array([0.0, 2.0, 3.0, 1.5])
DATA = np.array([1.0, np.nan, 3.0, 2.0])


def elements_not_read(x: Any) -> Any:
    y = np.log(x)
    s = 0.0
    for i in range(len(x)):
        if x[i] > 0:
            s += y[i]
    return s


def rows_not_read(x: Any) -> Any:
    y = np.outer(np.log(x), x) @ x
    s = 0.0
    for i in range(2, len(x)):
        s += y[i] * x[i]
    return s


def number_not_read(x: Any) -> Any:
    t = np.sum(x) / (x[0] - x[0])
    s = 0.0
    for i in range(len(x)):
        if x[i] > 100:
            s += t
        s += x[i]
    return s


def number_of_the_last_loop(x: Any) -> Any:
    s, t = 0.5, 0.25
    for i in range(2):
        for _ in range(3):
            s += 0.01 * np.sum(x)
            t = 0.5 * t
        t = s / i
    return s + 0.5 * t


def product_not_chosen(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        v = x[i] * np.inf * x[i]
        if v < 1e300:
            s += v
        s += x[i]
    return s


def missing_data(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        v = x[i] * DATA[i]
        if not np.isnan(v):
            s += v
    return s


def missing_squares(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        v = (x[i] / (x[i] - 2.0)) ** 2
        if np.isfinite(v):
            s += v
    return s


def element_overwritten(x: Any) -> Any:
    z = np.zeros(4)
    s = 0.0
    for i in range(len(x)):
        z[0] = x[i] * np.exp(-np.log(x[i] - x[0]))
        z[0] = x[i]
        s += z[0]
    return s


def number_overwritten(x: Any) -> Any:
    t = 0.0
    s = 0.5
    for i in range(2):
        t = np.sum(x) / t % 2.0
        s = x[i] * np.sin(t) * np.tanh(t)
        t = 0.25
    return s + t


def power_not_chosen(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        y = 2.0 * x[i] ** 1.5
        if y > 0:
            s += y
        else:
            s += x[i] ** 3
    return s


PROGRAMS = (
    elements_not_read, rows_not_read, number_not_read, number_of_the_last_loop, product_not_chosen,
    missing_data, missing_squares, element_overwritten, number_overwritten, power_not_chosen,
)  # fmt: skip


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture loops however short they are."""
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_python(f: Callable[..., Any]) -> None:
    value, gradient = adarray.value_and_grad(f)(X)
    assert np.all(np.isfinite(gradient))
    with adarray.use("serial"):
        jf = adarray.jit(adarray.value_and_grad(f))
        for _ in range(3):
            got = jf(X)
            np.testing.assert_allclose(got[0], value, 1e-12)
            np.testing.assert_allclose(got[1], gradient, 1e-12)
        assert ": captured, " in str(jf.explain(X))


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [missing_data, missing_squares, element_overwritten],
                         ids=lambda f: f.__name__)  # fmt: skip
def test_text_for_gpus(f: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are not read there, and cotangents are compared with 0 at once."""
    monkeypatch.setattr(capture, "_computing", lambda: (1, True))
    monkeypatch.setattr(policy, "_ON_DEVICE", ((1, 1 << 30),))
    monkeypatch.setattr(capture, "_operations", Operations())
    device.installed(monkeypatch)
    engine = host_gpu.HostGpu("standin", device.library())
    monkeypatch.setattr(device.StandIn, "engine", lambda _self: engine)
    gradient = adarray.grad(f)
    expected = gradient(X)
    with adarray.use("standin"):
        jf = adarray.jit(gradient)
        np.testing.assert_allclose(np.asarray(jf(X)), expected, 1e-12)
        assert ": captured, " in str(jf.explain(X))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [missing_data, missing_squares, power_not_chosen],
                         ids=lambda f: f.__name__)  # fmt: skip
def test_second_derivatives(f: Callable[..., Any]) -> None:
    v = np.array([0.5, 1.0, -1.0, 2.0])
    expected = adarray.hvp(f)(X, v)
    assert np.all(np.isfinite(expected))
    with adarray.use("serial"):
        jf = adarray.jit(lambda x, v: adarray.hvp(f)(x, v))
        for _ in range(3):
            np.testing.assert_allclose(jf(X, v), expected, 1e-12, 1e-14)


def test_nan_that_python_has_stays() -> None:
    def f(x: Any) -> Any:
        s = 0.0
        for i in range(len(x)):
            s += x[i] * DATA[i]
        return s

    with adarray.use("serial"):
        jf = adarray.jit(adarray.grad(f))
        for _ in range(3):
            np.testing.assert_array_equal(jf(X), DATA)


def test_gradients_of_finite_numbers_are_computed_once() -> None:
    """And those that had nan are computed with strong zeros at once from then on."""
    calls: list[str] = []

    def compute(by: str) -> dict[str, Any]:
        calls.append(by)
        return {"x": np.array([1.0, np.nan if by == "usual" and key == "b" else 2.0])}

    zeros = StrongZeros(lambda: "strong")
    for key in ("a", "a", "b", "b"):
        zeros.gradients(key, "usual", compute, True)
    assert calls == ["usual", "usual", "usual", "strong", "strong"]
    calls.clear()
    key = "a"
    zeros.gradients(key, "usual", compute, False)
    assert calls == ["strong"]
