"""Random numbers under jit: the generator's stream goes on as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.testing._ops import use_all_sizes

X = np.linspace(0.5, 2.0, 6)


def noisy(x: Any, rng: Any) -> Any:
    return np.sum(x * rng.normal(size=6)) + rng.uniform()


def dropout(x: Any, rng: Any) -> Any:
    keep = rng.random(x.shape) < 0.7
    return np.sum(np.where(keep, x / 0.7, 0.0) ** 2)


def rejection(x: Any, rng: Any) -> Any:
    """How often it draws depends on what it draws."""
    n = 0
    while True:
        y = x * rng.normal(size=6)
        n += 1
        if np.sum(y) > 0.0 or n == 6:
            return np.sum(np.sin(y)) + n


def minibatch(x: Any, rng: Any) -> Any:
    picked = rng.permutation(6)[:3]
    return np.mean(x[picked] ** 2)


DRAWERS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (noisy, dropout, rejection, minibatch)
}


@pytest.mark.parametrize("name", DRAWERS)
def test_a_generator_as_argument(name: str, backend: str) -> None:
    f = DRAWERS[name]
    with use_all_sizes(backend):
        jitted = adarray.jit(f)
        ours, theirs = np.random.default_rng(1), np.random.default_rng(1)
        seen = []
        for k in range(10):
            x = X * (1 + 0.1 * (k % 3))
            seen.append(float(jitted(x, ours)))
            assert seen[-1] == pytest.approx(float(f(x, theirs)), rel=1e-12)
            assert ours.bit_generator.state == theirs.bit_generator.state
        assert len(set(seen)) > 5


@pytest.mark.parametrize("name", DRAWERS)
def test_gradients(name: str, backend: str) -> None:
    with use_all_sizes(backend):
        expected = adarray.value_and_grad(DRAWERS[name])
        jitted = adarray.jit(expected)
        ours, theirs = np.random.default_rng(2), np.random.default_rng(2)
        for k in range(10):
            x = X * (1 + 0.1 * (k % 3))
            (v, g), (v2, g2) = jitted(x, ours), expected(x, theirs)
            assert v == pytest.approx(v2, rel=1e-12)
            np.testing.assert_allclose(g, g2, rtol=1e-12, atol=1e-14)


def test_a_generator_made_inside_starts_afresh(backend: str) -> None:
    def seeded(x: Any) -> Any:
        rng = np.random.default_rng(7)
        return np.sum(x * rng.normal(size=6))

    with use_all_sizes(backend):
        jitted = adarray.jit(seeded)
        for k in range(5):
            assert jitted(X + k) == pytest.approx(seeded(X + k), rel=1e-13)


def test_two_generators(backend: str) -> None:
    def both(x: Any, a: Any, b: Any) -> Any:
        return np.sum(x * a.normal(size=6)) + b.normal() * np.sum(x)

    with use_all_sizes(backend):
        jitted = adarray.jit(both)
        ours = [np.random.default_rng(k) for k in (1, 2)]
        theirs = [np.random.default_rng(k) for k in (1, 2)]
        for _ in range(5):
            assert jitted(X, *ours) == pytest.approx(both(X, *theirs), rel=1e-12)
        one, same = np.random.default_rng(4), np.random.default_rng(4)
        for _ in range(5):
            assert jitted(X, one, one) == pytest.approx(both(X, same, same), rel=1e-12)
