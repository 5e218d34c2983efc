"""Products with parameters that are found, and what compiled estimates share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base.runtime import WATCHED
from adarray.estimators import likelihood_ratio, noise_site
from adarray.ops.nn import conv2d
from adarray.transforms.tree import flatten


def network(w: Any, x: Any, unused: Any = None) -> Any:
    """Return losses of layers that are written in several ways."""
    h = np.tanh(conv2d(x, w["k"]).reshape(len(x), -1) + w["b"])
    h = np.tanh(np.einsum("bi,ij->bj", h, w["c"][0]))
    h = h @ np.eye(3) + np.einsum("bi,bi->b", h, h)[:, None]  # no parameters: no sites
    return np.dot(np.tanh(h @ w["c"][1].T), w["d"]) ** 2


def case() -> Any:
    rng = np.random.default_rng(0)
    w = {
        "k": rng.normal(size=(2, 1, 2, 2)),
        "b": rng.normal(size=8),
        "c": [rng.normal(size=(8, 3)), rng.normal(size=(4, 3))],
        "d": rng.normal(size=4),
    }
    return w, rng.normal(size=(4, 1, 3, 3))


@pytest.mark.parametrize("encoding", [None, "seed"])
@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_products_are_found(mode: Any, encoding: Any) -> None:
    w, x = case()
    exact = adarray.grad(lambda w: np.mean(network(w, x)))(w)
    options: dict[str, Any] = {"directions": "hadamard"} if encoding is None else {
        "encoding": encoding, "directions": "rademacher",
    }  # fmt: skip
    est = likelihood_ratio(network, sites="products", mode=mode, sigma=1e-4, copies=128, **options)
    names = ["['k']", "['c'][0]", "['c'][1]", "['d']"]
    assert list(est.layout(w, x).places) == names
    estimate = est(w, x, rng=0)
    assert type(estimate.value) is np.float64
    for g, e in zip(flatten(estimate.gradient)[0], flatten(exact)[0], strict=True):
        if encoding is None:
            np.testing.assert_allclose(g, e, rtol=0.05, atol=0.05 * np.abs(e).max())
        else:
            assert np.vdot(g, e) > 0.5 * np.linalg.norm(g) * np.linalg.norm(e)
    assert not WATCHED


def test_some_products() -> None:
    """Those that are exact are; a compiled estimate finds them, too; so does one whole argument."""
    w, x = case()
    exact = adarray.grad(lambda w: np.mean(network(w, x)))(w)
    last = likelihood_ratio(
        network, sites="products", exact=["['k']", "['c'][0]", "['c'][1]"], sigma=1e-3,
        directions="hadamard", copies=2,
    )  # fmt: skip
    noise = last.draw(w, x, rng=0)
    compiled = adarray.jit(last.evaluate)
    for run in (last.evaluate, compiled, compiled, compiled):
        for g, e in zip(flatten(run(noise, w, x).gradient)[0], flatten(exact)[0], strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-7)
    assert compiled.cache_info().eager == 0
    one = likelihood_ratio(lambda m: np.sum((x.reshape(4, 9) @ m) ** 2, axis=1), sites="products")
    assert list(one.layout(np.ones((9, 2))).places) == ["parameter"]
    with pytest.raises(ValueError, match="sites='all'; pass a list of names, or 'products'"):
        likelihood_ratio(network, sites="all")  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_lies_before_a_site_is_computed_once() -> None:
    """Of six layers the compiled estimate has each product once, and those behind for each pair.

    Products by one matrix may be one.
    """
    rng = np.random.default_rng(0)
    w, x = [rng.normal(size=(16, 16)) for _ in range(6)], rng.normal(size=(8, 16))

    def f(w: Any, x: Any) -> Any:
        for k, m in enumerate(w):
            x = np.tanh(noise_site(x @ m, f"layer {k}"))
        return np.sum(x**2, axis=1)

    est = likelihood_ratio(f, copies=4)
    shown = str(adarray.jit(est.evaluate).explain(est.draw(w, x, rng=0), w, x))
    forward, behind, local = 6, 2 * (5 + 4 + 3 + 2 + 1), 6
    assert 6 < shown.count("product  matmul") <= forward + behind + local
