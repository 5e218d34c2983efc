"""The last segment of a path computes cheap values again in place of keeping them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting.tree import tree

N = 500


def kepler(mean: Any, eccentricity: Any) -> Any:
    anomaly = mean + eccentricity * np.sin(mean)
    error = 1.0
    while error > 1e-10:
        step = (anomaly - eccentricity * np.sin(anomaly) - mean) / (
            1.0 - eccentricity * np.cos(anomaly)
        )
        anomaly = anomaly - step
        error = np.max(np.abs(step))
    return np.sum(np.cos(anomaly))


def halved(x: Any) -> Any:
    while np.max(x) > 1.0:
        x = x * 0.5
    return np.sum(x * x)


def expensive(x: Any) -> Any:
    y = np.exp(x)
    if np.sum(y) > 0.0:
        y = y * 2.0
    return y + 1.0


CASES = {
    "kepler": (adarray.value_and_grad(kepler, (0, 1)), 2),
    "halved": (adarray.value_and_grad(halved), 1),
    "expensive": (expensive, 1),
}


def run(f: Any, args: Any) -> tuple[Any, Any]:
    """Return the results of a jitted function, and its segments."""
    jf = adarray.jit(f)
    for _ in range(3):
        result = jf(*args)
    assert jf.cache_info().traces == 1
    return result, jf.path(*args)


@pytest.mark.parametrize("name", CASES)
def test_results_have_the_same_bits(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, count = CASES[name]
    rng = np.random.default_rng(2)
    args = (rng.uniform(0.0, 6.0, N), rng.uniform(0.0, 0.7, N))[:count]
    with adarray.use(backend):
        got, nodes = run(f, args)
        monkeypatch.setattr(tree, "recomputed", lambda _part, _path: [])
        expected, memory = run(f, args)
    for a, b in zip(leaves(got), leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(leaves(got), leaves(f(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
    assert len(nodes) == len(memory) > 1
    reads, before = len(nodes[-1].sources), len(memory[-1].sources)
    assert (reads, before) == {"kepler": (3, 29), "halved": (1, 1), "expensive": (1, 1)}[name]


def leaves(x: Any) -> list[Any]:
    """Return the arrays in nested tuples."""
    return [i for part in x for i in leaves(part)] if isinstance(x, tuple) else [x]


def test_bodies_of_loops_are_left_alone() -> None:
    with adarray.use("numpy"):
        _, nodes = run(adarray.value_and_grad(halved), (np.full(N, 1e6),))
    assert len(nodes) > 15
    assert {len(n.calls) for n in nodes[1:-1]} == {3}
