"""Estimators take arrays of a device, and return such."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.device import KINDS, adopt
from adarray.estimators import evolution_strategies, likelihood_ratio, noise_site, spsa
from adarray.estimators.devices import adopted_tree
from adarray.transforms.tree import flatten


def losses(w: Any, x: Any, y: Any) -> Any:
    h = np.tanh(noise_site(x @ w["in"] + w["b"], "hidden"))
    z = noise_site(h @ w["out"], "out")
    z = z - np.max(z, axis=1, keepdims=True)
    return np.log(np.sum(np.exp(z), axis=1)) - np.sum(z * y, axis=1)


def data() -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    w = {"in": rng.normal(size=(6, 5)), "b": np.zeros(5), "out": rng.normal(size=(5, 3))}
    return w, rng.normal(size=(8, 6)), np.eye(3)[rng.integers(0, 3, 8)]


CASES = {
    "layerwise": (likelihood_ratio, {}),
    "full": (likelihood_ratio, {"mode": "full"}),
    "hadamard": (likelihood_ratio, {"directions": "hadamard"}),
    "lowrank": (likelihood_ratio, {"directions": "lowrank", "antithetic": False}),
    "blocks": (likelihood_ratio, {"directions": "qmc", "copies_per_block": 4, "exact": ("out",)}),
    "sigma": (likelihood_ratio, {"learn_sigma": True}),
    "spsa": (spsa, {}),
    "strategies": (evolution_strategies, {"rank": 2}),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("case", CASES)
def test_arrays_of_a_device_are_taken_and_returned(
    device_backend: str, case: str, compiled: bool
) -> None:
    make, options = CASES[case]
    est = make(losses, copies=16, sigma=0.1, **options)
    args = data()
    noise = est.draw(*args, rng=3)
    expected = est.evaluate(noise, *args)
    with adarray.use(device_backend) as used:
        library = used._engine.library

        def place(tree: Any) -> Any:
            leaves, rebuild = flatten(tree)
            return rebuild([library.place(x).raw if np.ndim(x) else x for x in leaves])

        moved = place(args)
        run = adarray.jit(est.evaluate) if compiled else est.evaluate
        for _ in range(3 if compiled else 1):
            got = run(place(noise), *moved)
        own = est(*moved, rng=1).gradient
    for a, b in zip(flatten(got)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(adopt(a).host() if type(a) in KINDS else a, b, 1e-8, 1e-10)
    assert {type(x) for x in flatten((got.gradient, own))[0]} <= set(KINDS)
    assert not any(type(x) in KINDS for x in flatten(adopted_tree(moved))[0])


@pytest.mark.parametrize("drawn", ["host", "device"])
@pytest.mark.parametrize("case", CASES)
def test_adarrays_on_a_device(device_backend: str, case: str, drawn: str) -> None:
    """Noise may be of NumPy's generator, or of that of the library, whose arrays are its own."""
    make, options = CASES[case]
    est = make(losses, copies=16, sigma=0.1, **options)
    args = data()
    noise = est.draw(*args, rng=3)
    expected = est.evaluate(noise, *args)
    with adarray.use(device_backend) as used:
        library = used._engine.library
        moved = adopted_tree(args)
        leaves, rebuild = flatten(args)
        moved = rebuild([adarray.ADArray(library.place(x)) for x in leaves])
        if drawn == "device":
            leaves, rebuild = flatten(noise)
            noise = rebuild([library.place(x).raw for x in leaves])
        actual = est.evaluate(noise, *moved)
        for x, y in zip(flatten(actual)[0], flatten(expected)[0], strict=True):
            assert isinstance(x, adarray.ADArray)
            np.testing.assert_allclose(x.numpy(), y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("encoding", ["seed", "sign"])
@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_copies_one_by_one_on_a_device(device_backend: str, mode: Any, encoding: Any) -> None:
    est = likelihood_ratio(losses, copies=4, mode=mode, encoding=encoding, directions="laplace")
    args = data()
    seeds = est.draw(*args, rng=3)
    expected = est.evaluate(seeds, *args)
    with adarray.use(device_backend) as used:
        place = used._engine.library.place
        leaves, rebuild = flatten(args)
        actual = est.evaluate(seeds, *rebuild([adarray.ADArray(place(x)) for x in leaves]))
        gradient = [x.numpy() for x in flatten(actual.gradient)[0]]
    for x, y in zip(gradient, flatten(expected.gradient)[0], strict=True):
        if device_backend == "standin":  # which has no generator of its own
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
        assert x.shape == y.shape
