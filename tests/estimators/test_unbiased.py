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
from adarray.estimators import LikelihoodRatio, likelihood_ratio
from adarray.estimators.sites import Perturbed, run_with
from adarray.transforms.tree import flatten

# Standard errors that one number of some hundred exceeds with a probability below 1e-5.
MANY = 6.0
# What others show as well is slow.
CASES = [
    pytest.param(n, c, marks=pytest.mark.slow if n in ("rnn", "lstm", "gru") else ())
    for n in NETWORKS
    for c in ("auto", "local")
    if c == "auto" or n == "gcn"
]


def noisy(network: Network, noise: Any, sigma: float, sign: float, k: int, offset: Any) -> Any:
    """Return the losses of one copy, with an offset beside the noise of each place."""

    def adder(name: str, place: int, eps: Any) -> Any:
        return lambda v: v + (sign * sigma * eps[k] + offset[name][place])

    adders = {
        name: [adder(name, p, d.each[0]) for p, d in enumerate(places)]
        for name, places in noise.items()
    }
    return lambda w: np.mean(run_with(Perturbed(adders), network.f, (w, *network.data)))


def zeros(noise: Any) -> Any:
    return {n: [np.zeros(d.each[0].shape[1:]) for d in places] for n, places in noise.items()}


def pathwise_full(network: Network, noise: Any, est: LikelihoodRatio, sigma: float) -> Any:
    """Return the mean derivative of the losses at these draws."""
    signs = (1.0, -1.0) if est.antithetic else (1.0,)

    def mean(w: Any) -> Any:
        silent = zeros(noise)
        return sum(
            noisy(network, noise, sigma, s, k, silent)(w) for s in signs for k in range(est.draws)
        ) / (len(signs) * est.draws)

    return adarray.grad(mean)(network.params)


def pathwise_layerwise(network: Network, noise: Any, est: LikelihoodRatio, sigma: float) -> Any:
    """Return the derivatives by each site alone, pulled back at the values without noise."""
    signs = (1.0, -1.0) if est.antithetic else (1.0,)
    deltas = {}
    for name, places in noise.items():

        def mean(offset: Any, own: Any = {name: places}) -> Any:  # noqa: B006
            return sum(
                noisy(network, own, sigma, s, k, offset)(network.params)
                for s in signs
                for k in range(est.draws)
            ) / (len(signs) * est.draws)

        deltas |= adarray.grad(mean)(zeros({name: places}))

    def clean(w: Any) -> Any:
        run = Perturbed({n: [lambda v: v] * len(p) for n, p in noise.items()}, cut=True)
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
    made = []
    for _ in range(draws):
        noise = est.draw(network.params, *network.data, rng=rng)
        found = est.evaluate(noise, network.params, *network.data, sigma=sigma).gradient
        made.append(difference(found, reference(network, noise, est, sigma)))
    return made


@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize(("name", "credit"), CASES)
def test_every_kind_of_layer(name: str, credit: str, mode: Any) -> None:
    network = NETWORKS[name]()
    est = likelihood_ratio(
        network.f,
        mode=mode,
        copies=4,
        antithetic=mode == "full",
        credit=LOCAL if credit == "local" else credit,
    )
    assert largest_z(differences(network, est, 0.5, 60)) < MANY
