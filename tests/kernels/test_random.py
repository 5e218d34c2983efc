"""Random kernels: adjoints are transposed tangents, and tangents are differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import random_kernels
import random_warps

import adarray
from adarray.kernels import RawKernel

SEEDS = [*range(4), *(pytest.param(s, marks=pytest.mark.slow) for s in range(4, 60))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_kernel(seed: int) -> None:
    kernel = RawKernel(random_kernels.source(seed), "random_kernel")
    rng = np.random.default_rng(seed)
    x, y, p = rng.normal(size=8), rng.normal(size=8), 0.3

    def f(x: Any, y: Any, p: Any) -> Any:
        return kernel.apply(2, 4, (x, y, p, 8))

    t = (rng.normal(size=8), rng.normal(size=8), rng.normal())
    g = rng.normal(size=8)
    with adarray.use("serial"):
        out, tangent = adarray.jvp(f, (x, y, p), t)
        again, pullback = adarray.vjp(f, x, y, p)
        parts = [np.vdot(a, b) for a, b in zip(pullback(g), t, strict=True)]
        differences = []
        for h in (1e-6, 2e-6):
            plus = f(*(a + h * b for a, b in zip((x, y, p), t, strict=True)))
            minus = f(*(a - h * b for a, b in zip((x, y, p), t, strict=True)))
            differences.append((plus - minus) / (2 * h))
    np.testing.assert_array_equal(out, again)
    scale = sum(map(abs, parts)) + np.sum(np.abs(g * tangent)) + 1e-3
    assert abs(np.vdot(g, tangent) - sum(parts)) < 1e-12 * scale
    # Where two steps disagree, a kink lies between.
    smooth = np.abs(differences[0] - differences[1]) < 1e-4 * (1 + np.abs(differences[0]))
    np.testing.assert_allclose(tangent[smooth], differences[0][smooth], rtol=1e-4, atol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", SEEDS[:24])
def test_random_exchanges_of_warps(seed: int) -> None:
    kernel = RawKernel(random_warps.source(seed), "random_warps")
    rng = np.random.default_rng(seed)
    x, t, g = (rng.normal(size=192) for _ in range(3))
    warps = 2 if seed % 3 == 0 else 3  # of each block; others return early

    def f(x: Any) -> Any:
        return kernel.apply(2, 96, (x, np.zeros(192), warps))

    with adarray.use("serial"):
        out, tangent = adarray.jvp(f, (x,), (t,))
        again, pullback = adarray.vjp(f, x)
        cotangent = pullback(g)
        h = 1e-6
        difference = (f(x + h * t) - f(x - h * t)) / (2 * h)
    np.testing.assert_array_equal(out, again)
    scale = np.sum(np.abs(g * tangent)) + 1e-3
    assert abs(np.vdot(g, tangent) - np.vdot(cotangent, t)) < 1e-12 * scale
    np.testing.assert_allclose(tangent, difference, rtol=1e-5, atol=1e-5)
