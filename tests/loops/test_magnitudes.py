"""Comparisons of absolute values of complex numbers in loops are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.loops import policy

RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture loops however short they are."""
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))


def each(z: Any, limits: Any) -> Any:
    out = np.zeros((len(limits), len(z), 5))
    for i in range(len(limits)):
        for k in range(len(z)):
            if abs(z[k]) < limits[i]:
                out[i, k, 0] = 1.0
            if abs(z[k]) <= limits[i]:
                out[i, k, 1] = 1.0
            if limits[i] < abs(z[k]):
                out[i, k, 2] = 1.0
            if limits[i] <= np.abs(z[k]):
                out[i, k, 3] = 1.0
            if 0.5 * abs(z[k]) > limits[i]:
                out[i, k, 4] = 1.0
    return out


def whole(z: Any, limits: Any) -> Any:
    out = np.zeros((len(limits), len(z)))
    for i in range(len(limits)):
        out[i] = np.where(np.abs(z) < limits[i], 1.0, out[i])
    return out


def numbers(near: float) -> np.ndarray:
    """Return numbers beside a circle, as near as `near`, and all sorts of others."""
    apart = np.exp(RNG.uniform(np.log(near), np.log(0.5), 3000)) * RNG.choice([-1, 1], 3000)
    circle = 1.7 * (1 + apart) * np.exp(1j * RNG.uniform(0, 7, 3000))
    odd = [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-320, 1e-160, 1e160, 1.7, 3e-200]
    return np.concatenate([circle, [complex(a, b) for a in odd for b in odd]])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("f", [each, whole])
@pytest.mark.parametrize("dtype", ["complex128", "complex64"])
def test_values(f: Any, dtype: str) -> None:
    with np.errstate(all="ignore"):
        # Roots may be wrong by some last digits, in NumPy as well.
        z = numbers(4e-15 if dtype == "complex128" else 2e-6).astype(dtype)
        real = np.zeros(0, dtype).real.dtype
        limits = [1.7, 0.0, -1.0, np.inf, np.nan]
        limits = np.array([*limits, 1e-160, 1e160, 1e-320]).astype(real)
        expected = f(z, limits)
        with adarray.use("serial"):
            jf = adarray.jit(f)
            for _ in range(3):
                np.testing.assert_array_equal(jf(z, limits), expected)
            assert ": captured, " in str(jf.explain(z, limits))


def of_the_iteration_before(x: Any) -> Any:
    z, size, s = 1 + 1j, 5.0, 0.0
    for i in range(len(x)):
        if size < 1.3:
            s += x[i] * i
        size = abs(z)
        z = z * 0.5 + 1j * x[i]
    return s


def of_what_has_changed_since(x: Any) -> Any:
    z, s = 1 + 1j, 0.0
    for i in range(len(x)):
        size = abs(z)
        if x[i] > 0.0:
            z = z * 0.5
        z = z + 0.25j * x[i]
        if size < 1.3:
            s += x[i] * i
    return s


@pytest.mark.parametrize("f", [of_the_iteration_before, of_what_has_changed_since])
def test_numbers_that_change(f: Any) -> None:
    """The body is read several times, and names mean something else each time."""
    x = np.linspace(-1.5, 1.7, 9)
    with adarray.use("serial"):
        jf = adarray.jit(f)
        for _ in range(3):
            np.testing.assert_allclose(jf(x), f(x), 1e-13)
        assert ": captured, " in str(jf.explain(x))


def test_gradients() -> None:
    """What is compared has a derivative where it is used, too."""

    def f(x: Any) -> Any:
        z = x + 1j * x[::-1]
        s = 0.0
        for k in range(len(x)):
            size = abs(z[k])
            if size < 1.0:
                s += size * x[k]
            elif size >= 1.5:
                s += x[k] * x[k]
        return s

    x = np.linspace(-1.5, 1.2, 9)
    value, gradient = adarray.value_and_grad(f)(x)
    with adarray.use("serial"):
        jf = adarray.jit(adarray.value_and_grad(f))
        for _ in range(3):
            got = jf(x)
            np.testing.assert_allclose(got[0], value, 1e-13)
            np.testing.assert_allclose(got[1], gradient, 1e-13)
        assert ": captured, " in str(jf.explain(x))
