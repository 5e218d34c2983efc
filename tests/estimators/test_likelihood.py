"""The likelihood-ratio estimator: modes, directions, exact parts, compiled and in little memory."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import numpy as np
import pytest
from noisy_networks import LOCAL, NETWORKS

import adarray
from adarray.errors import DTypeError, NotDifferentiableError, ShapeError
from adarray.estimators import (
    diagnose,
    evolution_strategies,
    likelihood_ratio,
    noise_site,
    reinforce,
    spsa,
)
from adarray.estimators.hadamard import elements, order_for
from adarray.estimators.lean import LeanCall
from adarray.transforms.tree import flatten


def assert_near(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-12) -> None:
    for x, y in zip(flatten(actual)[0], flatten(expected)[0], strict=True):
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def linear(w: Any, x: Any, y: Any) -> Any:
    """Return losses of degree two in the noise of both layers together."""
    h = noise_site(x @ w["a"] + w["b"], "hidden")
    return np.sum((noise_site(h @ w["c"], "out") - y) ** 2, axis=1)


def linear_case() -> Any:
    rng = np.random.default_rng(0)
    w = {"a": rng.normal(size=(3, 5)), "b": rng.normal(size=5), "c": rng.normal(size=(5, 2))}
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    return w, x, y, adarray.grad(lambda w: np.mean(linear(w, x, y)))(w)


@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_orthogonal_directions_are_exact(mode: Any) -> None:
    """As many pairs as the width (of all layers together, with noise at all) see everything."""
    w, x, y, exact = linear_case()
    pairs = 8  # the next order of a matrix from 5, and from 5 + 2, on
    for seed in range(3):
        est = likelihood_ratio(
            linear, directions="hadamard", copies=2 * pairs, mode=mode, sigma=1e-4
        )
        assert_near(est(w, x, y, rng=seed).gradient, exact, rtol=1e-5, atol=1e-6)
    fewer = likelihood_ratio(linear, directions="hadamard", copies=pairs, mode=mode, sigma=1e-4)
    gradient = fewer(w, x, y, rng=0).gradient["a"]
    assert np.abs(gradient - exact["a"]).max() > 1e-2


def test_matrices_of_orthogonal_signs() -> None:
    known = []
    for width in range(1, 130):
        order = order_for(width, 1)
        h = elements(order, np.arange(order), np.arange(order)).astype(int)
        assert set(np.unique(h)) <= {-1, 1}
        np.testing.assert_array_equal(h @ h.T, order * np.eye(order, dtype=int))
        known.append(order)
    missing = [n for n in range(4, 129, 4) if n not in known]
    assert missing == [52, 92, 100, 116]  # from other constructions
    assert order_for(266, 272) == 272
    assert order_for(10, 128) == 16  # of which 128 is a multiple
    assert order_for(10, 20) == 20
    assert order_for(10, 13) == 12


def test_parts_that_are_exact() -> None:
    """What lies after the last noisy site is differentiated, and what lies between sites, too."""
    w, x, y, exact = linear_case()
    one = likelihood_ratio(linear, sites=["hidden"], copies=4)(w, x, y, rng=0)
    assert_near(one.gradient["c"], exact["c"])
    assert np.abs(one.gradient["a"] - exact["a"]).max() > 1e-3
    same = likelihood_ratio(linear, exact=["out"], copies=4, mode="mixed")(w, x, y, rng=0)
    assert_near(same, one)
    # Noise at the outputs alone, exact for a quadratic loss: everything before is pulled back.
    est = likelihood_ratio(linear, sites=["out"], directions="hadamard", copies=4)
    estimate = est(w, x, y, rng=0)
    assert_near(estimate.gradient, exact)
    assert_near(estimate.losses, linear(w, x, y))
    assert float(estimate.value) == pytest.approx(float(np.mean(estimate.losses)))
    total = likelihood_ratio(linear, sites=["out"], directions="hadamard", copies=4, reduce="sum")(
        w, x, y, rng=0
    )
    assert_near(total.gradient["a"], 4 * exact["a"])


def test_ways_around_a_site() -> None:
    """A value that is also used without its noise keeps the derivative of that way."""

    def f(w: Any) -> Any:
        v = w * 2.0
        return noise_site(v, "v") * 0.5 + v**3 + w

    est = likelihood_ratio(f, directions="hadamard", copies=2)
    assert_near(
        est(np.array([1.0, 2.0]), rng=0).gradient, (1.0 + 6.0 * np.array([4.0, 16.0]) + 1.0) / 2
    )


@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize("antithetic", [True, False])
@pytest.mark.parametrize("baseline", ["clean", "mean"])
def test_the_ways_to_compute_agree(mode: Any, antithetic: bool, baseline: Any) -> None:
    """Copies at once, in blocks, one by one, and layer by layer with noise from seeds."""
    for name in ("rnn", "gcn"):
        network = NETWORKS[name]()
        options: dict[str, Any] = {
            "mode": mode, "copies": 6, "antithetic": antithetic, "baseline": baseline,
            "learn_sigma": True, "credit": LOCAL if name == "gcn" else "auto",
        }  # fmt: skip
        args = (network.params, *network.data)
        lean = likelihood_ratio(network.f, encoding="seed", **options)
        seeds = lean.draw(*args, rng=3)
        expected = lean.evaluate(seeds, *args)
        call = LeanCall(lean, seeds, args, 0.1)
        at_once = likelihood_ratio(network.f, **options)
        noise = at_once.draw(*args, rng=0)
        for site, places in noise.items():
            noise[site] = [
                d._replace(each=(np.stack([call.eps(k, site, p) for k in range(lean.draws)]),))
                for p, d in enumerate(places)
            ]
        assert_near(at_once.evaluate(noise, *args), expected)
        one_by_one = likelihood_ratio(network.f, vectorize=False, **options)
        assert_near(one_by_one.evaluate(noise, *args), expected)
        if baseline == "clean":  # the mean of a block is another one
            blocks = likelihood_ratio(network.f, copies_per_block=4, **options)
            assert_near(blocks.evaluate(noise, *args), expected)


@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_the_mean_of_the_others(mode: Any) -> None:
    """It takes away the bias of the mean of all, which is a factor (copies - 1) / copies."""
    network = NETWORKS["dense"]()
    others, mean = (
        likelihood_ratio(network.f, mode=mode, copies=5, antithetic=False, baseline=b)(
            network.params, *network.data, rng=0
        ).gradient
        for b in ("loo", "mean")
    )
    assert_near(others, {name: 5 / 4 * g for name, g in mean.items()})


@pytest.mark.parametrize("mode", ["layerwise", "full"])
@pytest.mark.parametrize("directions", ["laplace", "rademacher"])
def test_one_bit_is_all_of_some_scores(mode: Any, directions: str) -> None:
    network = NETWORKS["rnn"]()
    args = (network.params, *network.data)
    results = [
        likelihood_ratio(network.f, mode=mode, copies=4, directions=directions, encoding=e)(
            *args, rng=5
        )
        for e in ("seed", "sign")
    ]
    assert_near(*results)


@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_the_sign_of_normal_noise_will_do(mode: Any) -> None:
    """For a loss that is linear in the noise it has the right mean."""

    def f(w: Any, x: Any) -> Any:
        return noise_site(x @ w, "v") * 2.0

    x = np.eye(2)
    est = likelihood_ratio(f, encoding="sign", copies=1000, mode=mode)
    gradient = est(np.zeros(2), x, rng=0).gradient
    np.testing.assert_allclose(gradient, [1.0, 1.0], atol=6 * 0.6 / np.sqrt(500))


@pytest.mark.parametrize(
    ("mode", "directions"),
    [
        ("full", "gaussian"),
        ("layerwise", "hadamard"),
        pytest.param("layerwise", "gaussian", marks=pytest.mark.slow),
        pytest.param("layerwise", "lowrank", marks=pytest.mark.slow),
        pytest.param("full", "hadamard", marks=pytest.mark.slow),
        pytest.param("full", "lowrank", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow_on("openmp")
def test_compiled(mode: Any, directions: str, backend: str) -> None:
    """One path, and the result of the plain run, in both precisions."""
    for name, dtype in (("dense", np.float64), ("gcn", np.float32)):
        network = NETWORKS[name]()
        args = tuple(
            rebuild([np.asarray(x, dtype) for x in leaves])
            for leaves, rebuild in map(flatten, (network.params, *network.data))
        )
        est = likelihood_ratio(network.f, mode=mode, directions=directions, copies=8, sigma=0.2)
        with adarray.use(backend):
            compiled = adarray.jit(est.evaluate)
            for seed in range(3):
                noise = est.draw(*args, rng=seed)
                expected, actual = est.evaluate(noise, *args), compiled(noise, *args)
                rtol, atol = (1e-9, 1e-11) if dtype is np.float64 else (2e-4, 2e-4)
                assert_near(actual, expected, rtol, atol)
                assert {x.dtype for x in flatten(actual.gradient)[0]} == {np.dtype(dtype)}
            assert compiled.cache_info().eager == 0
            assert compiled.cache_info().paths == 1


def test_blocks_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are of one size, more or less, and of two draws where they need others."""
    network = NETWORKS["dense"]()
    args = (network.params, *network.data)
    for most, sizes in ((2, [2, 2, 3]), (4, [3, 4]), (7, [7]), (1, [2, 2, 3])):
        est = likelihood_ratio(
            network.f, copies=7, antithetic=False, baseline="loo", copies_per_block=most
        )
        seen: list[int] = []
        estimate = est.directions.estimate
        monkeypatch.setattr(
            est.directions, "estimate",
            lambda w, *rest, seen=seen, run=estimate: (seen.append(len(w)), run(w, *rest))[1],
        )  # fmt: skip
        in_blocks = est(*args, rng=0)
        assert seen == 2 * sizes
        assert all(np.isfinite(g).all() for g in in_blocks.gradient.values())


def test_estimators_are_pickled() -> None:
    w, x, y, _ = linear_case()
    for est in (
        likelihood_ratio(linear, copies=4),
        likelihood_ratio(linear, sites="products", copies=4, exact=["hidden", "out"]),
        likelihood_ratio(linear, encoding="seed", copies=4),
        evolution_strategies(linear, copies=4, rank=1),
    ):
        copied = pickle.loads(pickle.dumps(est))
        assert_near(copied(w, x, y, rng=0), est(w, x, y, rng=0))


def test_draws_within_compiled_code() -> None:
    w, x, y, _ = linear_case()
    est = likelihood_ratio(linear, copies=4)

    @adarray.jit
    def step(w: Any, rng: Any) -> Any:
        return est(w, x, y, rng=rng).gradient["a"]

    a, b = np.random.default_rng(0), np.random.default_rng(0)
    for _ in range(4):
        assert_near(step(w, a), est(w, x, y, rng=b).gradient["a"])


@pytest.mark.parametrize("encoding", [None, "seed"])
@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_compiled_networks_run_as_plain_code(mode: Any, encoding: Any) -> None:
    """Compiled code has no sites; and what is compiled later has no noise."""
    w, x, y, _ = linear_case()
    compiled = adarray.jit(linear)
    inner = lambda w, x, y: compiled(w, x, y) * 1.0  # noqa: E731
    options: dict[str, Any] = {"mode": mode, "copies": 4, "encoding": encoding}
    expected = likelihood_ratio(linear, **options)(w, x, y, rng=0)
    for calls in range(4):
        for f in (compiled, inner):
            assert_near(likelihood_ratio(f, **options)(w, x, y, rng=0), expected)
        if calls:
            assert_near(compiled(w, x, y), linear(w, x, y))
    assert compiled.cache_info().compiled == 1
    assert compiled.cache_info().eager == 0


def test_arguments_that_change_the_layers() -> None:
    def f(w: Any, layers: int, name: str) -> Any:
        for _ in range(layers):
            w = np.tanh(noise_site(w, name))
        return w

    est = likelihood_ratio(f, copies=2)
    for layers in (1, 3, 2):
        assert est(W, layers, "a", rng=0).gradient.shape == W.shape
    assert list(est.layout(W, 2, "b").places) == ["b"]


def simulator(v: Any) -> Any:
    """Stand for foreign code, which takes memory and knows no ADArray."""
    assert type(v) is np.ndarray
    return np.array([sum(float(t) ** 2 for t in row) for row in memoryview(v).tolist()])


@pytest.mark.parametrize("encoding", [None, "seed", "sign"])
@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_a_black_box_behind_the_last_site(mode: Any, encoding: Any) -> None:
    def f(w: Any, x: Any) -> Any:
        return simulator(noise_site(np.tanh(x @ w), "out"))

    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(3, 2)), rng.normal(size=(4, 3))
    exact = adarray.grad(lambda w: np.mean(np.sum(np.tanh(x @ w) ** 2, axis=1)))(w)
    est = likelihood_ratio(
        f, mode=mode, copies=8, directions="rademacher", vectorize=False, sigma=1e-3,
        encoding=encoding,
    )  # fmt: skip
    gradient = [est(w, x, rng=rng).gradient - exact for _ in range(40)]
    error = np.std(gradient, axis=0, ddof=1) / np.sqrt(40)
    assert np.all(np.abs(np.mean(gradient, axis=0)) < 6 * error + 1e-6)
    moved = spsa(lambda w: simulator(x @ w), vectorize=False)(w, rng=0).gradient
    assert moved.shape == w.shape


@pytest.mark.parametrize("mode", ["layerwise", "full"])
def test_less_memory_than_backpropagation(mode: Any) -> None:
    rng = np.random.default_rng(0)
    w = [(rng.normal(size=(32, 32)) / 6).astype(np.float32) for _ in range(24)]
    x = rng.normal(size=(512, 32)).astype(np.float32)

    def f(w: Any) -> Any:
        h = x
        for k, m in enumerate(w):
            h = np.tanh(noise_site(h @ m, f"layer {k}"))
        return np.sum(h**2, axis=1)

    def peak(run: Any) -> int:
        run()
        tracemalloc.start()
        try:
            run()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    exact = adarray.grad(lambda w: np.mean(f(w)))
    est = likelihood_ratio(f, mode=mode, copies=2, encoding="seed", credit="rows")
    assert peak(lambda: est(w, rng=0)) < 0.6 * peak(lambda: exact(w))


def test_credit_is_looked_at() -> None:
    """Rows that have an effect on each other's losses do not get credit for their own alone."""
    graph, dense = NETWORKS["gcn"](), NETWORKS["dense"]()
    layout = likelihood_ratio(graph.f).layout(graph.params, *graph.data)
    assert layout.credit == {"first": "total", "second": "rows"}
    layout = likelihood_ratio(dense.f).layout(dense.params, *dense.data)
    assert layout.credit == {"first": "rows", "second": "rows"}
    scalar = likelihood_ratio(lambda *a: np.mean(dense.f(*a)))
    assert scalar.layout(dense.params, *dense.data).credit == {"first": "total", "second": "total"}

    # Where moved rows spoil all losses, they are coupled.
    def spoilt(w: Any) -> Any:
        v = noise_site(w, "v")
        return v + 0.0 * np.sqrt(np.min(v) - 0.99)

    assert likelihood_ratio(spoilt).layout(np.ones(4)).credit == {"v": "total"}
    # Credit by a function and by a matrix is the same, and pays.
    exact = adarray.grad(lambda w: np.mean(graph.f(w, *graph.data)))(graph.params)
    local = {**LOCAL, "first": lambda losses: LOCAL["first"] @ losses}
    estimators = [
        likelihood_ratio(graph.f, credit=c, copies=64)(graph.params, *graph.data, rng=0)
        for c in (LOCAL, local)
    ]
    assert_near(*estimators)
    diagnosis = diagnose(
        {"local": likelihood_ratio(graph.f, credit=LOCAL), "total": likelihood_ratio(graph.f)},
        exact, graph.params, *graph.data, repeats=30, rng=0,
    )  # fmt: skip
    first = {r.estimator: r.variance for r in diagnosis.rows if r.leaf == "w['first']"}
    assert first["local"] < first["total"]


def _f(w: Any) -> Any:
    return noise_site(w, "v") ** 2


W = np.array([1.0, 2.0])


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda: likelihood_ratio(3), TypeError, "f is of type int; pass a function"),
        (lambda: likelihood_ratio(_f, mode="all"), ValueError, "mode='all'; pass one of"),
        (lambda: likelihood_ratio(_f, mode="mixed"), ValueError, "and all sites get noise; name"),
        (lambda: likelihood_ratio(_f, directions="x"), ValueError, "directions='x'; pass one of"),
        (lambda: likelihood_ratio(_f, baseline="x"), ValueError, "baseline='x'; pass one of"),
        (lambda: likelihood_ratio(_f, credit="x"), ValueError, "credit='x'; pass one of"),
        (lambda: likelihood_ratio(_f, copies=3), ValueError, "copies=3; pass at least 2, and an"),
        (
            lambda: likelihood_ratio(_f, learn_sigma=True, directions="hadamard"),
            ValueError, "whose scale has no density",
        ),
        (
            lambda: likelihood_ratio(_f, encoding="seed", directions="qmc"),
            ValueError, "whose copies are drawn together",
        ),
        (
            lambda: likelihood_ratio(_f, encoding="sign", mode="full", baseline="mean"),
            ValueError, "each copy is done before the next one runs",
        ),
        (
            lambda: likelihood_ratio(_f, sites=["u"])(W),
            ValueError, "sites has 'u', which f does not meet; it meets 'v'",
        ),
        (
            lambda: likelihood_ratio(_f, exact=["u"])(W),
            ValueError, "exact has 'u', which f does not meet; it meets 'v'",
        ),
        (lambda: likelihood_ratio(_f, exact=["v"])(W), ValueError, "no site is active"),
        (lambda: likelihood_ratio(np.square)(W), ValueError, "no site is active"),
        (lambda: likelihood_ratio(_f, sigma=0.0)(W), ValueError, "sigma of site 'v' is 0.0; it"),
        (
            lambda: likelihood_ratio(_f, sigma={"u": 1.0})(W),
            ValueError, "sigma has no scale for site 'v'; it has 'u'",
        ),
        (
            lambda: likelihood_ratio(lambda w: np.outer(_f(w), w))(W),
            ShapeError, "f returned shape \\(2, 2\\); return one loss for each sample",
        ),
        (
            lambda: likelihood_ratio(lambda w: _f(w)[:1], credit="rows")(W),
            ShapeError, "site 'v' has shape \\(2,\\) and there are 1 losses",
        ),
        (
            lambda: likelihood_ratio(_f, credit=np.ones((3, 2)))(W),
            ShapeError, "credit gives shape \\(3, 16\\) for site 'v' of shape \\(2,\\)",
        ),
        (
            lambda: likelihood_ratio(lambda w: np.where(noise_site(w, "v") > w, np.inf, w))(W),
            FloatingPointError, "losses with noise are not finite; take a smaller sigma",
        ),
        (
            lambda: adarray.grad(lambda w: likelihood_ratio(_f)(w).value)(W),
            NotDifferentiableError, "a derivative is taken of an estimate",
        ),
        (
            lambda: likelihood_ratio(lambda w: noise_site(np.sign(w) > 0, "v") * w)(W),
            DTypeError, "noise_site 'v': the value is bool",
        ),
        (lambda: noise_site(W, 3), TypeError, "the name is 3, of type int; pass text"),
        (lambda: spsa(np.square, sigma=-1.0), ValueError, "spsa: sigma=-1.0; it must be positive"),
        (lambda: spsa(np.square, copies=3), ValueError, "spsa: copies=3; pass at least 1, and an"),
        (lambda: reinforce(np.square, copies=1), ValueError, "copies=1; pass at least 2"),
        (lambda: diagnose(spsa(np.square), W, W, repeats=1), ValueError, "repeats=1; pass at"),
        (
            lambda: diagnose(spsa(np.square), np.ones(3), W),
            ShapeError, r"gives shapes \[\(2,\)\] and the exact gradient has \[\(3,\)\]",
        ),
    ],
)  # fmt: skip
def test_errors(run: Any, error: Any, text: str) -> None:
    with np.errstate(all="ignore"), pytest.raises(error, match=text):
        run()


@pytest.mark.parametrize("encoding", [None, "seed"])
def test_sites_that_depend_on_values(encoding: Any) -> None:
    def more(w: Any) -> Any:
        v = noise_site(w, "v")
        return noise_site(v, "v") if np.sum(v) > 3.0 else v

    with pytest.raises(ShapeError, match=r"noise_site 'v': met (1 times|more often)"):
        likelihood_ratio(more, copies=16, sigma=1.0, encoding=encoding)(W, rng=0)
