"""Loops whose iterations run side by side: which ones, and that they compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import BACKENDS

import adarray
from adarray.compiler.ir.threads import ThreadKernel
from adarray.kernels import lanes

RNG = np.random.default_rng(5)


def product(a: Any, b: Any, c: Any) -> Any:
    c = c.copy()
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            for k in range(a.shape[1]):
                c[i, j] += 0.5 * a[i, k] * b[k, j]
    return np.sum(c**2)


def triangle(a: Any, b: Any, c: Any) -> Any:
    c = c.copy()
    for i in range(a.shape[0]):
        c[i, : i + 1] *= 0.5
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[i, k] * b[: i + 1, k]
    return np.sum(c**2)


def factors(a: Any, b: Any, c: Any) -> Any:
    a = a @ a.T + 40.0 * np.eye(a.shape[0])
    n = a.shape[0]
    for i in range(n):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, n):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return np.sum(a * b) + np.sum(c)


def neighbours(a: Any, b: Any, c: Any) -> Any:
    a, b = a.copy(), b.copy()
    for _ in range(3):
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i + 1, j] + a[i - 1, j])
        for i in range(1, a.shape[0] - 1):
            for j in range(1, a.shape[1] - 1):
                a[i, j] = 0.3 * b[i, j] * c[j, i]
    return np.sum(a * b)


def one_after_another(a: Any, b: Any, c: Any) -> Any:
    a = a.copy()
    for i in range(1, a.shape[0]):
        for j in range(1, a.shape[1]):
            a[i, j] += 0.5 * np.sin(a[i, j - 1]) * np.cos(a[i - 1, j])
    return np.sum(a * b) + np.sum(c)


PROGRAMS = (product, triangle, factors, neighbours, one_after_another)


def matrices(n: int) -> tuple[np.ndarray, ...]:
    return tuple(RNG.normal(size=(n, n)) for _ in range(3))


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """Return whether loops of kernels became strips, by the kernels' names."""
    out: dict[str, bool] = {}
    arranged = lanes.arranged

    def noted(kernel: ThreadKernel, integers: Any) -> ThreadKernel:
        result = arranged(kernel, integers)
        text = repr(result.body)
        out[kernel.name] = out.get(kernel.name, False) or "__strip" in text
        return result

    monkeypatch.setattr(lanes, "arranged", noted)
    return out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [24, 37])
@pytest.mark.parametrize("program", PROGRAMS)
def test_derivatives(program: Callable[..., Any], n: int) -> None:
    """Values, gradients and second derivatives are those of eager code."""
    args = matrices(n)
    along = matrices(n)
    gradient = adarray.value_and_grad(program, argnums=(0, 1, 2))
    value, by = gradient(*args)
    for backend in BACKENDS:
        with adarray.use(backend):
            fast = adarray.jit(gradient)
            fast.compile(*args)
            again, others = fast(*args)
            np.testing.assert_allclose(again, value, rtol=1e-10)
            for x, y in zip(by, others, strict=True):
                np.testing.assert_allclose(y, x, rtol=1e-8, atol=1e-9 * np.max(np.abs(x)))
            assert fast.explain(*args).loops[0].partition("): ")[2].startswith("captured")
    if n > 30:
        return
    second_order = adarray.jit(adarray.hvp(program))
    with adarray.use("serial"):
        second_order.compile(*args, along[0])
        second = second_order(*args, along[0])
    h = 1e-5
    ends = [adarray.grad(program)(args[0] + e * h * along[0], *args[1:]) for e in (1, -1)]
    expected = (ends[0] - ends[1]) / (2 * h)
    np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-5 * np.max(np.abs(expected)))


def test_which(seen: dict[str, bool]) -> None:
    """A product becomes strips in value and gradient; a recurrence does not."""
    n = 26  # which no other test has
    args = matrices(n)
    with adarray.use("serial"):
        for program, strips in ((product, True), (one_after_another, False)):
            seen.clear()
            fast = adarray.jit(adarray.value_and_grad(program, argnums=(0, 1, 2)))
            fast.compile(*args)
            fast(*args)
            assert seen == {"loop": strips, "loop_adjoint": strips}


def test_sums_over_lanes() -> None:
    """What all lanes add to one number is added up behind them."""

    def f(x: Any, y: Any) -> Any:
        total = 0.0
        for i in range(len(x)):
            total += x[i] * y[i]
        return total

    x, y = RNG.normal(size=1003), RNG.normal(size=1003)
    with adarray.use("serial"):
        fast = adarray.jit(adarray.value_and_grad(f, argnums=(0, 1)))
        for _ in range(3):
            value, by = fast(x, y)
    np.testing.assert_allclose(value, x @ y, rtol=1e-12)
    np.testing.assert_array_equal(by[0], y)
    np.testing.assert_array_equal(by[1], x)
