"""`score_function`: against expectations that are summed over all outcomes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import ShapeError


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


OUTCOMES = np.array(list(itertools.product([0, 1], repeat=3)))  # of three throws
P = np.array([0.3, 0.6, 0.45])


def log_prob(p: Any) -> Any:
    return np.sum(np.where(OUTCOMES, np.log(p), np.log(1.0 - p)), axis=1)


def cost(p: Any) -> Any:
    """Return what each outcome costs, which depends on the parameters, too."""
    return np.cos(OUTCOMES @ np.array([1.0, 2.0, 3.0])) * p[0] + OUTCOMES[:, 1] * np.sin(p[2])


def exact(p: Any) -> Any:
    return np.sum(np.exp(log_prob(p)) * cost(p))


def by_score(p: Any, baseline: Any = 0.0) -> Any:
    """Weigh the estimates of all outcomes with their probabilities, which are constant."""
    weights = np.exp(log_prob(P))
    return np.sum(weights * adarray.score_function(cost(p), log_prob(p), baseline))


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("baseline", [0.0, 0.7, np.full(8, -1.5)])
def test_the_expectation_of_the_estimate(baseline: Any) -> None:
    """It is exact to every order: weights times estimates over all outcomes."""
    assert by_score(P, baseline) == pytest.approx(exact(P))
    first = adarray.grad(exact)(P)
    np.testing.assert_allclose(adarray.grad(by_score)(P, baseline), first, rtol=1e-10)
    np.testing.assert_allclose(
        adarray.hessian(by_score)(P, baseline), adarray.hessian(exact)(P), rtol=1e-9, atol=1e-12
    )
    v = np.array([1.0, -0.5, 2.0])
    _, slope = adarray.jvp(lambda p: by_score(p, baseline), (P,), (v,))
    assert float(slope) == pytest.approx(first @ v)
    third = adarray.grad(lambda p: v @ adarray.hessian(by_score)(p, baseline) @ v)
    expected = adarray.grad(lambda p: v @ adarray.hessian(exact)(p) @ v)
    np.testing.assert_allclose(third(P), expected(P), rtol=1e-8, atol=1e-10)
    jitted = adarray.jit(adarray.grad(by_score))
    for _ in range(2):
        np.testing.assert_allclose(jitted(P, baseline), first, rtol=1e-10)
    assert jitted.cache_info().eager == 0


def test_values_stay() -> None:
    x = np.array([0.1, 1e16, -3.0])
    actual = adarray.score_function(x, np.array([-1.0, -2.0, -700.0]), "others")
    np.testing.assert_array_equal(actual, x)
    assert adarray.score_function(2.5, -1.0) == 2.5
    value, _ = adarray.vjp(lambda s: adarray.score_function(x, s), np.array([-0.5, -1.0, -2.0]))
    np.testing.assert_array_equal(value, x)


def test_a_policy() -> None:
    """Two decisions, the second in a state that the first one leads to."""
    rng = np.random.default_rng(0)
    reward = np.array([[1.0, 0.0], [2.0, 5.0]])

    def expected(w: Any) -> Any:
        p = 1.0 / (1.0 + np.exp(-w))
        first = np.stack([1.0 - p[0], p[0]])
        second = np.stack([1.0 - p[1:], p[1:]], axis=1)
        return np.sum(first[:, None] * second * reward)

    def sampled(w: Any, n: int = 40_000) -> Any:
        p = 1.0 / (1.0 + np.exp(-w))
        a = (rng.random(n) < adarray.value_of(p[0])).astype(int)
        b = (rng.random(n) < adarray.value_of(p[1:][a])).astype(int)
        score = np.log(np.where(a, p[0], 1 - p[0])) + np.log(np.where(b, p[1:][a], 1 - p[1:][a]))
        return np.mean(adarray.score_function(reward[a, b], score, "others"))

    w = np.array([0.2, -0.4, 0.7])
    value, gradient = adarray.value_and_grad(sampled)(w)
    assert float(value) == pytest.approx(expected(w), abs=0.05)
    np.testing.assert_allclose(gradient, adarray.grad(expected)(w), atol=0.03)


def test_the_other_draws_are_a_good_baseline() -> None:
    """The estimates of both have one mean, and the noise of the first is less."""
    rng = np.random.default_rng(1)

    def estimate(p: Any, baseline: Any) -> Any:
        chosen = rng.random(50) < adarray.value_of(p)
        c = np.where(chosen, 11.0, 10.0)
        return np.mean(adarray.score_function(c, np.log(np.where(chosen, p, 1 - p)), baseline))

    slopes = {
        b: np.array([adarray.grad(estimate)(0.4, b) for _ in range(200)]) for b in (0.0, "others")
    }
    assert np.mean(slopes["others"]) == pytest.approx(1.0, abs=0.05)
    assert np.std(slopes["others"]) < 0.1 * np.std(slopes[0.0])


def test_mistakes() -> None:
    c, s = np.ones(4), np.zeros((4, 3))
    with pytest.raises(ShapeError, match=r"^score_function: log_prob has shape \(4, 3\) and the c"):
        adarray.score_function(c, s)
    with pytest.raises(
        ShapeError, match=r"^score_function: baseline has shape \(3,\) and the cost"
    ):
        adarray.score_function(c, np.zeros(4), np.zeros(3))
    with pytest.raises(ShapeError, match="baseline='others' needs two draws"):
        adarray.score_function(1.0, 0.0, "others")
    with pytest.raises(ValueError, match="baseline is 'mean'; pass numbers or 'others'"):
        adarray.score_function(c, np.zeros(4), "mean")  # type: ignore[arg-type]
