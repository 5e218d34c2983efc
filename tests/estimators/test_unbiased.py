"""Estimates are unbiased: z-tests of their differences to derivatives through the same noise.

With noise of a density, the derivative of the expected loss is also that of the loss at each draw
(the pathwise derivative). The difference of both has the mean zero, and is known per draw; so its
mean over many draws is compared with its own standard error, not with a tolerance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from noisy_networks import LOCAL, NETWORKS, Network

import adarray
from adarray.estimators import (
    LikelihoodRatio,
    evolution_strategies,
    forward_gradient,
    likelihood_ratio,
    reinforce,
    spsa,
)
from adarray.estimators.sites import Perturbed, run_with
from adarray.transforms.tree import flatten

# Standard errors that one number of some hundred exceeds with a probability below 1e-5.
MANY = 6.0
# What others show as well is slow.
CASES = [
    pytest.param(n, c, marks=pytest.mark.slow if n not in ("dense", "gcn") else ())
    for n in NETWORKS
    for c in ("auto", "local")
    if c == "auto" or n == "gcn"
]


def noisy(network: Network, sigma: float, offset: Any) -> Any:
    """Return the mean loss of one copy, with an offset beside the noise of each place."""

    def mean(w: Any, eps: Any, sign: float) -> Any:
        def adder(name: str, place: int) -> Any:
            return lambda v: v + (sign * sigma * eps[name][place] + offset[name][place])

        adders = {n: [adder(n, p) for p in range(len(places))] for n, places in eps.items()}
        return np.mean(run_with(Perturbed(adders), network.f, (w, *network.data)))

    return mean


def each(noise: Any) -> Any:
    return {n: [d.each[0] for d in places] for n, places in noise.items()}


def zeros(noise: Any) -> Any:
    return {n: [np.zeros(d.each[0].shape[1:]) for d in places] for n, places in noise.items()}


def mean_over_copies(slope: Any, noise: Any, est: LikelihoodRatio) -> Any:
    """Return the mean of ``slope(eps, sign)`` over the noise of all copies and its signs."""
    results = [
        flatten(adarray.vmap(lambda eps, s=s: slope(eps, s))(each(noise)))
        for s in ((1.0, -1.0) if est.antithetic else (1.0,))
    ]
    rebuild = results[0][1]
    return rebuild(
        [
            sum(x.mean(axis=0) for x in xs) / len(xs)
            for xs in zip(*(f for f, _ in results), strict=True)
        ]
    )


def pathwise_full(network: Network, noise: Any, est: LikelihoodRatio, sigma: float) -> Any:
    """Return the mean derivative of the losses at these draws."""
    slope = adarray.grad(noisy(network, sigma, zeros(noise)))
    return mean_over_copies(lambda eps, s: slope(network.params, eps, s), noise, est)


def pathwise_layerwise(network: Network, noise: Any, est: LikelihoodRatio, sigma: float) -> Any:
    """Return the derivatives by each site alone, pulled back at the values without noise."""
    deltas = {}
    for name, places in noise.items():
        own = {name: places}

        def slope(eps: Any, sign: float, own: Any = own) -> Any:
            return adarray.grad(
                lambda offset: noisy(network, sigma, offset)(network.params, eps, sign)
            )(zeros(own))

        deltas |= mean_over_copies(slope, own, est)

    def clean(w: Any) -> Any:
        run = Perturbed({n: [lambda v: v] * len(p) for n, p in noise.items()}, cut=lambda v: v)
        return np.mean(run_with(run, network.f, (w, *network.data))), run.values

    _, pull = adarray.vjp(clean, network.params)
    return pull((1.0, deltas))[0]


def largest_z(differences: list[Any]) -> float:
    """Return the largest mean among all numbers, in standard errors of it."""
    rows = np.array([np.concatenate([np.ravel(x) for x in flatten(d)[0]]) for d in differences])
    error = rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
    assert np.any(error > 0)
    return float(np.max(np.abs(rows.mean(axis=0)) / np.where(error > 0, error, np.inf)))


def difference(a: Any, b: Any) -> Any:
    xs, rebuild = flatten(a)
    return rebuild([x - y for x, y in zip(xs, flatten(b)[0], strict=True)])


def differences(network: Network, est: LikelihoodRatio, sigma: float, draws: int) -> list[Any]:
    """Return estimates minus derivatives through the same noise."""
    rng = np.random.default_rng(7)
    reference = pathwise_full if est.mode == "full" else pathwise_layerwise
    results = []
    for _ in range(draws):
        noise = est.draw(network.params, *network.data, rng=rng)
        gradient = est.evaluate(noise, network.params, *network.data, sigma=sigma).gradient
        results.append(difference(gradient, reference(network, noise, est, sigma)))
    return results


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize(("name", "credit"), CASES)
def test_every_kind_of_layer(name: str, credit: str, mode: Any) -> None:
    network = NETWORKS[name]()
    est = likelihood_ratio(
        network.f,
        mode=mode,
        copies=256,
        antithetic=mode == "full",
        credit=LOCAL if credit == "local" else credit,
    )
    assert largest_z(differences(network, est, 0.5, 30)) < MANY


@pytest.mark.parametrize(
    "options",
    [
        {"directions": "laplace"},
        {"antithetic": False, "baseline": "loo"},
        {"exact": ("first",)},
        *(
            pytest.param(options, marks=pytest.mark.slow)
            for options in (
                {"directions": "laplace", "antithetic": False, "mode": "layerwise"},
                {"directions": "qmc", "antithetic": False, "mode": "layerwise"},
                {"antithetic": False, "baseline": None},
                {"antithetic": False, "baseline": lambda w, x, y: y**2},
                {"mode": "layerwise", "antithetic": False, "baseline": "loo"},
                {"sites": ("first",)},
                {"credit": "total"},
                {"copies_per_block": 100},
            )
        ),
    ],
)
def test_every_option(options: dict[str, Any]) -> None:
    network = NETWORKS["dense"]()
    est = likelihood_ratio(network.f, **{"mode": "full", "copies": 256, **options})
    assert largest_z(differences(network, est, 0.4, 30)) < MANY


def test_scales_of_single_features() -> None:
    """The noise is the scale times unit noise, and the score is divided by it, not multiplied."""
    network = NETWORKS["dense"]()
    scale = {"first": np.array([0.1, 0.8]), "second": 0.3}
    est = likelihood_ratio(network.f, mode="full", copies=256)
    rng = np.random.default_rng(0)
    results = []
    for _ in range(30):
        noise = est.draw(network.params, *network.data, rng=rng)
        gradient = est.evaluate(noise, network.params, *network.data, sigma=scale).gradient
        for name, s in scale.items():
            noise[name] = [d._replace(each=(d.each[0] * s,)) for d in noise[name]]
        results.append(difference(gradient, pathwise_full(network, noise, est, 1.0)))
    assert largest_z(results) < MANY


@pytest.mark.parametrize("after", [False, True])
def test_a_recurrent_weight_by_hand(after: bool) -> None:
    """The formula has the state before the step; with the state after it, it is wrong."""
    rng = np.random.default_rng(3)
    w, u, x, sigma = 0.7, 1.3, rng.normal(size=3), 0.4

    def run(w: Any, noise: Any) -> Any:
        h, states = 0.5, [0.5]
        for t in range(3):
            h = np.tanh(w * h + u * x[t] + sigma * noise[t])
            states.append(h)
        return (h - 1.0) ** 2, states

    rows = []
    for _ in range(4000):
        eps = rng.normal(size=3)
        loss, states = run(w, eps)
        base = run(w, np.zeros(3))[0]
        estimate = (loss - base) * sum(eps[t] * states[t + after] for t in range(3)) / sigma
        h, slope = 0.5, 0.0
        for t in range(3):
            before, h = h, states[t + 1]
            slope = (1.0 - h**2) * (before + w * slope)
        rows.append(np.array([estimate - 2.0 * (h - 1.0) * slope]))
    assert (largest_z(rows) < MANY) != after


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("directions", "square"), [("gaussian", 1.0), ("laplace", 2.0)])
@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize("encoding", [None, "sign", pytest.param("seed", marks=pytest.mark.slow)])
def test_derivatives_by_scales(directions: str, square: float, mode: Any, encoding: Any) -> None:
    """The square of noise of scale s has the mean s**2, or twice that."""

    def f(w: Any, x: Any) -> Any:
        return np.sum(adarray.estimators.noise_site(x @ w, "v") ** 2, axis=1)

    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(2, 3)), rng.normal(size=(4, 2))
    sigma = np.array([0.5, 1.0, 2.0])
    est = likelihood_ratio(
        f, sigma={"v": sigma}, copies=16, mode=mode, directions=directions, learn_sigma=True,
        encoding=encoding,
    )  # fmt: skip
    errors = [est(w, x, rng=rng).sigma["v"] - 2.0 * square * sigma for _ in range(60)]
    assert largest_z(errors) < MANY


SQUARES = np.random.default_rng(0).normal(size=(5, 3))


def squares(w: Any, x: Any = SQUARES) -> Any:
    """Return losses of degree two in a matrix and a vector: pairs have no bias."""
    return np.sum((x @ w["m"] + w["b"]) ** 2, axis=1)


@pytest.mark.parametrize("reduce", ["mean", pytest.param("sum", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "make",
    [
        lambda **o: spsa(squares, **o),
        lambda **o: evolution_strategies(squares, **o),
        lambda **o: evolution_strategies(squares, antithetic=False, **o),
        lambda **o: evolution_strategies(squares, rank=2, **o),
        lambda **o: evolution_strategies(squares, rank=1, copies_per_block=400, **o),
        lambda **o: forward_gradient(squares, **o),
        lambda **o: forward_gradient(squares, directions="rademacher", **o),
    ],
)
def test_moved_parameters(make: Any, reduce: Any) -> None:
    rng = np.random.default_rng(1)
    w = {"m": rng.normal(size=(3, 2)), "b": rng.normal(size=2)}
    exact = adarray.grad(lambda w: getattr(np, reduce)(squares(w)))(w)
    est = make(reduce=reduce, copies=1024)
    assert largest_z([difference(est(w, rng=rng).gradient, exact) for _ in range(50)]) < MANY
    few = make(reduce=reduce, copies=6)
    noise = few.draw(w, rng=rng)
    one_by_one = make(reduce=reduce, copies=6, vectorize=False).evaluate(noise, w).gradient
    for x, y in zip(
        *(flatten(g)[0] for g in (one_by_one, few.evaluate(noise, w).gradient)), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_decisions() -> None:
    p = np.array([0.3, 0.6])

    def bets(p: Any, rng: Any) -> Any:
        heads = rng.random(2) < adarray.value_of(p)
        return np.sum(heads * np.array([1.0, 3.0])), np.sum(np.log(np.where(heads, p, 1.0 - p)))

    est = reinforce(bets, copies=6)
    rng = np.random.default_rng(0)
    assert largest_z([est(p, rng=rng).gradient - np.array([1.0, 3.0]) for _ in range(100)]) < MANY
