"""Random programs of complex arrays: eager and compiled values and gradients, and differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray

N = 6
Array = np.ndarray


def _write(x: Array, y: Array, k: int) -> Array:
    z = x.copy()
    z[k % N, 1:] = y[0, 1:] * 2
    z[:, k % N] += y[:, 0]
    z[[0, 3]] = 1j
    return z


def _columns(x: Array, y: Array, k: int) -> Array:
    z = np.zeros((N, N), dtype=complex)
    for j in range(N):
        z[:, j] = x[:, (j + k) % N] * y[j] + z[:, j - 1]
    return z


def _real_part(x: Array, y: Array, _: int) -> Array:
    z = x.copy()
    z.real = y.imag
    return z


# Of two complex matrices, a third one of about their size; `k` chooses among places.
STEPS: tuple[Callable[[Array, Array, int], Any], ...] = (
    lambda x, y, k: x + y * (0.5 - 1j),
    lambda x, y, k: x * y,
    lambda x, y, k: (x - y) / (3 + y.real**2),
    lambda x, y, k: x / (y + 4j + np.abs(x)),
    lambda x, y, k: np.conj(x) * y.imag,
    lambda x, y, k: np.exp(1j * x.real) * np.abs(y),
    lambda x, y, k: np.exp(-0.1 * x) + y,
    lambda x, y, k: np.where(x.real > y.imag, x, 1j * y),
    lambda x, y, k: x @ y / N,
    lambda x, y, k: x.T @ y[k % N] + y,
    lambda x, y, k: (x.reshape(3, 2, N)[:, :, :2] @ y.reshape(3, 2, N)).reshape(N, N),
    lambda x, y, k: np.roll(x, k, axis=k % 2) - y.T,
    lambda x, y, k: np.stack([x[: N // 2], y[N // 2 :]], axis=k % 2).reshape(N, N),
    lambda x, y, k: np.concatenate([x[k % N :], y[: k % N]]),
    lambda x, y, k: x - x.mean(axis=k % 2, keepdims=True) + y.sum() / N,
    lambda x, y, k: np.cumsum(x, axis=k % 2) * 0.3 + y[::-1],
    lambda x, y, k: x[:, [0, 2, 1, 5, 5, 3]] * y[k % N],
    lambda x, y, k: np.sqrt(x * x + 9) + np.sin(0.3 * y),
    lambda x, y, k: np.linalg.solve(x + 8 * np.eye(N), y),
    lambda x, y, k: np.fft.fft(x, axis=k % 2) / N + y**2 / 4,
    lambda x, y, k: np.einsum("ij,kj->ik", x, np.conj(y)) / N,
    lambda x, y, k: np.outer(x[k % N], y[0]) + np.vdot(x, y) / N**2,
    lambda x, y, k: np.repeat(x[: N // 2], 2, axis=0) + np.triu(y),
    _write, _columns, _real_part,
)  # fmt: skip


def program(seed: int) -> Callable[[Array, Array, Array], Any]:
    """Return a real function of two complex matrices and a real one."""
    rng = np.random.default_rng(seed)
    steps = [(int(rng.integers(len(STEPS))), *map(int, rng.integers(0, 100, 3)))
             for _ in range(int(rng.integers(3, 9)))]  # fmt: skip

    def f(a: Array, b: Array, w: Array) -> Any:
        values = [a, b, a * w]
        for step, i, j, k in steps:
            z = STEPS[step](values[-1 - i % 2], values[j % len(values)], k)
            values.append(z / (1 + 0.1 * np.mean(np.abs(z) ** 2)))
        z = values[-1]
        return np.sum(np.abs(z) ** 2 * w) + np.sum((z * np.conj(values[-2])).real) + np.sum(z.imag)

    return f


@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("seed", range(8))
def test_values_and_gradients_agree(seed: int, backend: str) -> None:
    check(seed, backend)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["serial", "openmp"])
@pytest.mark.parametrize("seed", range(8, 200))
def test_values_and_gradients_of_more_programs_agree(seed: int, backend: str) -> None:
    check(seed, backend)


def check(seed: int, backend: str) -> None:
    """Compare the value and the gradient of a program with its eager ones, and with differences."""
    rng = np.random.default_rng(1000 + seed)
    f = program(seed)
    a, b = (rng.normal(size=(N, N)) + 1j * rng.normal(size=(N, N)) for _ in range(2))
    w = rng.uniform(0.5, 1.5, (N, N))
    g = adarray.value_and_grad(f, argnums=(0, 1, 2))
    value, gradients = g(a, b, w)
    with adarray.use(backend):
        jitted = adarray.jit(g)
        jitted.compile(a, b, w)
        assert all(s.plan is not None for s in jitted.explain(a, b, w).segments)
        for x in (a, a * 0.9 + 0.01j):
            got = jitted(x, b, w)
            want = g(x, b, w)
            np.testing.assert_allclose(got[0], want[0], 1e-9)
            for p, q in zip(got[1], want[1], strict=True):
                assert np.asarray(p).dtype == np.asarray(q).dtype
                size = np.max(np.abs(np.asarray(q)), initial=1e-3)
                np.testing.assert_allclose(p, q, rtol=1e-8, atol=1e-9 * size)
    assert np.isfinite(float(value))
    h = 1e-6
    da, db = (rng.normal(size=(N, N)) + 1j * rng.normal(size=(N, N)) for _ in range(2))
    dw = rng.normal(size=(N, N))
    ends = [float(f(a + s * da, b + s * db, w + s * dw)) for s in (h, -h, h / 2, -h / 2)]
    slopes = (ends[0] - ends[1]) / (2 * h), (ends[2] - ends[3]) / h
    if abs(slopes[0] - slopes[1]) < 1e-5 * (1 + abs(slopes[0])):  # no kink between
        pairs = zip(gradients, (da, db, dw), strict=True)
        mine = sum(float(np.sum((np.asarray(p) * d).real)) for p, d in pairs)
        np.testing.assert_allclose(mine, slopes[1], rtol=1e-4, atol=1e-4)
