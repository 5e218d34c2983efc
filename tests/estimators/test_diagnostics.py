"""Diagnostics of estimators whose error is known, and matrices plus thin products."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.estimators import Estimate, LowRankSum, diagnose, evolution_strategies


def test_numbers_that_are_known() -> None:
    """An estimate with an error of known mean and variance."""
    exact = {"a": np.array([3.0, 0.0]), "b": np.array(4.0)}

    def est(w: Any, rng: Any) -> Estimate:
        a = exact["a"] + np.array([0.0, 0.5]) + 0.1 * rng.normal(size=2)
        return Estimate(0.0, {"a": a, "b": exact["b"] + 0.2 * rng.normal()}, None, None)

    diagnosis = diagnose({"it": est}, exact, None, repeats=4000, rng=0)
    a, b, both = diagnosis.rows
    assert [(r.estimator, r.leaf) for r in diagnosis.rows] == [
        ("it", x) for x in ("w['a']", "w['b']", "all")
    ]
    assert a.variance == pytest.approx(0.02 / 9, rel=0.1)
    assert a.bias == pytest.approx(0.5 / 3, rel=0.02)
    assert b.variance == pytest.approx(0.04 / 16, rel=0.1)
    assert b.bias < 3 * b.bias_error
    assert b.bias_error == pytest.approx(0.2 / 4 / np.sqrt(4000), rel=0.1)
    assert b.cosine == pytest.approx(1.0)
    assert both.variance == pytest.approx(0.06 / 25, rel=0.1)
    cosine = 5 / np.sqrt(25.25)
    assert both.cosine == pytest.approx(cosine, abs=2e-3)
    text = str(diagnosis).splitlines()
    assert text[0].split() == [
        "estimator",
        "leaf",
        "variance",
        "bias",
        "+-",
        "cosine",
        "+-",
        "ms",
        "us/copy",
    ]
    assert len(text) == 5
    assert text[-1].startswith("it         all")


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    est = evolution_strategies(lambda w: np.sum(w**2), copies=8)
    diagnosis = diagnose(est, 2.0 * np.ones(3), np.ones(3), repeats=3, rng=0)
    diagnosis.save(tmp_path / "it.svg")
    assert "<svg" in (tmp_path / "it.svg").read_text()


MATRIX = np.arange(6.0).reshape(2, 3)
X = np.array([[1.0, 2.0], [0.5, -1.0], [0.0, 3.0]])


@pytest.mark.parametrize(
    "use",
    [
        lambda p: X @ p,
        lambda p: np.matmul(X, p),
        lambda p: np.dot(X, p),
        lambda p: X[0] @ p,
        lambda p: p @ np.array([1.0, 2.0, 3.0]),
        lambda p: p.T @ X.T,
        lambda p: np.tanh(X @ p) @ p.T,
        lambda p: p @ p.T,
        lambda p: p + 1.0,
        lambda p: 2.0 * p,
        lambda p: np.exp(p),
        lambda p: np.sum(p, axis=0),
        lambda p: p.sum(),
        lambda p: p[1, 1:],
        lambda p: p.reshape(-1)[: len(p)],
        lambda p: np.einsum("bi,ij->bj", X, p),
    ],
)
def test_a_sum_that_is_not_formed(use: Any) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(5, 2, 1)), rng.normal(size=(5, 3, 1))
    expected = np.stack([use(MATRIX + a @ b.T) for a, b in zip(left, right, strict=True)])
    one_by_one = [use(LowRankSum(MATRIX, a, b)) for a, b in zip(left, right, strict=True)]
    np.testing.assert_allclose(np.stack(one_by_one), expected, rtol=1e-12)
    at_once = adarray.vmap(lambda a, b: use(LowRankSum(MATRIX, a, b)))
    np.testing.assert_allclose(at_once(left, right), expected, rtol=1e-12)


def test_products_leave_the_sum_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Any) -> Any:
        raise AssertionError("formed")

    def layers(w: Any, x: Any) -> Any:
        return np.sum(np.tanh(x @ w["a"]) @ w["b"].T, axis=1)

    monkeypatch.setattr(LowRankSum, "whole", refuse)
    w = {"a": np.ones((2, 4)), "b": np.ones((3, 4))}
    est = evolution_strategies(layers, copies=6, rank=1)
    eager = est.evaluate(est.draw(w, X, rng=0), w, X)
    compiled = adarray.jit(est.evaluate)
    for _ in range(3):
        estimate = compiled(est.draw(w, X, rng=0), w, X)
    for name in w:
        np.testing.assert_allclose(estimate.gradient[name], eager.gradient[name], rtol=1e-10)
    assert compiled.cache_info().eager == 0


@pytest.mark.parametrize("fitness", ["standardized", "ranks", "sign"])
def test_fitness(fitness: Any) -> None:
    """Directions do not depend on the scale of the loss, and point the right way."""
    w, exact = np.array([1.0, -2.0, 0.5]), np.array([2.0, -4.0, 1.0])
    estimates = [
        evolution_strategies(lambda w, s=s: s * np.sum(w**2), copies=400, fitness=fitness)(w, rng=0)
        for s in (1.0, 1e3)
    ]
    np.testing.assert_allclose(estimates[0].gradient, estimates[1].gradient, rtol=1e-6)
    g = estimates[0].gradient
    assert g @ exact > 0.9 * np.linalg.norm(g) * np.linalg.norm(exact)
