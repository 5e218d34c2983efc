"""Averages, covariances and histograms: values, derivatives, every argument."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import grad
from adarray.testing import check_grads

RNG = np.random.default_rng(11)
X = RNG.normal(size=(3, 4))
Z = X + 1j * RNG.normal(size=(3, 4))
W = RNG.uniform(0.5, 2, size=4)
F = np.array([1, 2, 1, 3])
V = RNG.normal(size=11)
U = RNG.uniform(0.5, 2, size=11)
P = RNG.normal(size=(9, 3))
EDGES = np.array([-2.0, -0.7, 0.0, 0.4, 1.9])


def leaves(r: Any) -> list[Any]:
    """Return the arrays of a result, nested in tuples and lists or not."""
    return [a for part in r for a in leaves(part)] if isinstance(r, (tuple, list)) else [r]


def agree(f: Callable[..., Any], *xs: Any) -> None:
    """Assert that values, traced or not, are NumPy's, and that derivatives are right."""
    expected = f(*xs)
    results = [f(*(adarray.array(x) for x in xs))]

    def noted(*ys: Any) -> Any:
        results.append(f(*ys))
        return [r for r in leaves(results[-1]) if r.dtype.kind in "fc"]

    adarray.vjp(noted, *xs)
    for got in results:
        assert type(got) is type(expected) or not isinstance(expected, (tuple, list))
        for a, b in zip(leaves(got), leaves(expected), strict=True):
            a = adarray.value_of(a)
            assert (np.asarray(a).dtype, np.shape(a)) == (np.asarray(b).dtype, np.shape(b))
            np.testing.assert_allclose(a, b, rtol=1e-6 if b.itemsize < 8 else 1e-13, atol=1e-15)
    check_grads(f, xs)


# -- averages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("returned", [False, True])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("x", [X, Z, X.astype(np.float32)], ids=["real", "complex", "float32"])
def test_average(x: np.ndarray, keepdims: bool, returned: bool) -> None:
    options = {"keepdims": keepdims, "returned": returned}
    agree(lambda v: np.average(v, **options), x)
    agree(lambda v: np.average(v, axis=(0, 1), **options), x)
    agree(lambda v, w: np.average(v, axis=1, weights=w, **options), x, W)
    agree(lambda v, w: np.average(v, -1, w, **options), x, W.astype(np.float32))
    agree(lambda v, w: np.average(v, axis=(1, 0), weights=w, **options), x, X.T**2)
    agree(lambda v, w: np.average(v, weights=w, **options), x, X**2)


def test_average_of_plain_numbers_with_traced_weights() -> None:
    agree(lambda w: np.average([1, 2, 3, 4], weights=w), W)
    agree(lambda w: np.average(np.arange(4, dtype=np.float32), weights=w, returned=True), W)


def test_average_refuses_what_numpy_refuses() -> None:
    for call in (
        lambda v: np.average(v, weights=[1, 2, 3]),
        lambda v: np.average(v, axis=0, weights=[1, 2]),
        lambda v: np.average(v, axis=2),
        lambda v: np.average(v, axis=1, weights=[1, -1, 0, 0]),
    ):
        with pytest.raises(Exception, match=r".") as expected:
            call(X)
        with pytest.raises(type(expected.value)) as got:
            grad(lambda v, c=call: np.sum(c(v)))(X)
        assert str(got.value).split() == str(expected.value).split()


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_ptp(axis: Any) -> None:
    agree(lambda v: np.ptp(v, axis=axis), X)
    agree(lambda v: np.ptp(v, axis=axis, keepdims=True), Z)

    def into(v: Any) -> Any:
        out = v[0] * 0
        np.ptp(v, 0, out)
        return out * v[1]

    agree(into, X)
    np.testing.assert_array_equal(grad(np.ptp)(np.array([1.0, 1.0, 3.0])), [-0.5, -0.5, 1.0])


# -- covariances ---------------------------------------------------------------------------------

COVARIANCES: dict[str, dict[str, Any]] = {
    "plain": {},
    "columns": {"rowvar": False},
    "bias": {"bias": True},
    "ddof": {"ddof": 2},
    "no ddof": {"ddof": 0, "bias": False},
    "frequencies": {"fweights": F},
    "frequencies as floats": {"fweights": F.astype(float)},
    "dtype": {"dtype": np.float64},
}


@pytest.mark.parametrize("options", COVARIANCES.values(), ids=COVARIANCES)
@pytest.mark.parametrize("x", [X, Z], ids=["real", "complex"])
def test_cov(x: np.ndarray, options: dict[str, Any]) -> None:
    if x.dtype.kind == "c" and "dtype" in options:
        options = {"dtype": np.complex128}
    agree(lambda v: np.cov(v, **options), x.T if "rowvar" in options else x)


@pytest.mark.parametrize("options", COVARIANCES.values(), ids=COVARIANCES)
@pytest.mark.parametrize("x", [X, Z], ids=["real", "complex"])
def test_cov_of_two_with_traced_weights(x: np.ndarray, options: dict[str, Any]) -> None:
    x = x.T if "rowvar" in options else x
    options = {k: v for k, v in options.items() if k != "dtype"}
    if "fweights" in options:  # NumPy multiplies the weights into an array of floats
        options["fweights"] = F
    agree(lambda v, y, w: np.cov(v, y, aweights=w, **options), x, x[::-1] ** 2, W)


def test_cov_of_vectors() -> None:
    agree(lambda v: np.cov(v), W)
    agree(lambda v, y: np.cov(v, y), W, X[0])
    agree(lambda v, y: np.cov(v, y, False), W, X[0])
    agree(lambda w: np.cov(X, aweights=w), W)
    agree(lambda v: np.cov(v), X.astype(np.float32))


def test_weights_of_a_covariance_are_not_written_to() -> None:
    frequencies, weights = F.astype(float), W.copy()
    grad(lambda v, w: np.sum(np.cov(v, aweights=w, fweights=frequencies)), (0, 1))(X, weights)
    np.testing.assert_array_equal(frequencies, F)
    np.testing.assert_array_equal(weights, W)


@pytest.mark.parametrize("x", [X, Z, X.astype(np.float32)], ids=["real", "complex", "float32"])
def test_corrcoef(x: np.ndarray) -> None:
    agree(lambda v: np.corrcoef(v), x)
    agree(lambda v: np.corrcoef(v, rowvar=False), x.T)
    agree(lambda v, y: np.corrcoef(v, y), x, x[::-1] ** 2)
    agree(lambda v: np.corrcoef(v[0]), x)
    if x.dtype == np.float32:
        agree(lambda v: np.corrcoef(v, dtype=np.float64), x)


def test_cov_refuses_what_numpy_refuses() -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda v: np.cov(v, ddof=1.5),
        lambda v: np.cov(v, fweights=[0.5, 1, 1, 1]),
        lambda v: np.cov(v, fweights=[1, 1]),
        lambda v: np.cov(v, aweights=-W),
        lambda v: np.cov(v[None]),
    ]
    for call in calls:
        with pytest.raises((ValueError, TypeError, RuntimeError)) as expected:
            call(X)
        with pytest.raises(type(expected.value)) as got:
            grad(lambda v, c=call: np.sum(c(v)))(X)
        assert str(got.value) == str(expected.value)


# -- histograms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("density", [None, False, True])
@pytest.mark.parametrize("bins", [4, "sturges", EDGES, EDGES.tolist()], ids=str)
@pytest.mark.parametrize("limits", [None, (-1.5, 1.25)], ids=["all", "some"])
def test_histogram(limits: Any, bins: Any, density: Any) -> None:
    options = {"range": limits, "density": density}
    agree(lambda v: np.histogram(v, bins, **options), V)
    if isinstance(bins, str):
        with pytest.raises(TypeError, match="not supported for weighted data"):
            adarray.vjp(lambda v, w: np.histogram(v, bins, weights=w)[0], V, U)
        return
    agree(lambda w: np.histogram(V, bins, weights=w, **options), U)
    agree(lambda v, w: np.histogram(v, bins, weights=w, **options), V, U)


def test_histograms_of_other_numbers() -> None:
    agree(lambda w: np.histogram(V, weights=w), U.astype(np.float32))
    agree(lambda w: np.histogram(V, weights=w), U + 1j * V)
    agree(lambda v: np.histogram(v, 3, density=True), V.astype(np.float32))
    agree(lambda w: np.histogram(np.arange(11).reshape(11, 1), 4, weights=w), U[:, None])
    agree(lambda v: np.histogram(v, 3), np.array([2.0]))  # one value: half a unit around it
    adarray.vjp(lambda v: np.histogram(v, 3)[1], np.zeros(0))


def test_edges_move_with_what_they_are_made_of() -> None:
    agree(lambda v, r, w: np.histogram(v, 4, (-r, 2 * r), True, w), V, np.float64(0.8), U)
    agree(lambda v, e, w: np.histogram(v, e, density=True, weights=w), V, EDGES, U)
    agree(lambda v: np.histogram_bin_edges(v, 5), V)
    agree(lambda v: np.histogram_bin_edges(v, "fd"), V)
    agree(lambda e: np.histogram_bin_edges(V, e), EDGES)
    jacobian = adarray.jacobian(lambda v: np.histogram_bin_edges(v, 2))(np.array([4.0, 0.0, 1.0]))
    np.testing.assert_allclose(jacobian, [[0, 1, 0], [0.5, 0.5, 0], [1, 0, 0]])


def test_histograms_of_recorded_values() -> None:
    def f(weights: Any, x: Any) -> Any:
        sums = np.histogram(x, 5, weights=weights)[0]
        return np.sum(sums / np.histogram(x, 5)[0] * np.arange(5.0))

    rng = np.random.default_rng(0)
    jf = adarray.jit(adarray.value_and_grad(f))
    for _ in range(4):
        weights, x = rng.random(40), rng.random(40)
        value, gradient = jf(weights, x)
        expected = adarray.value_and_grad(f)(weights, x)
        assert value == pytest.approx(expected[0], rel=1e-14)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-14)
    assert not any(e.eager for e in jf.entries)


def test_values_on_edges_are_counted_where_numpy_counts_them() -> None:
    x = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 3.0, -1.0, 4.0])
    weights = np.arange(8.0)
    for bins in ([0, 1, 2, 3], [0.0, 1.0, 3.0]):
        got, pullback = adarray.vjp(lambda w, b=bins: np.histogram(x, b, weights=w)[0], weights)
        np.testing.assert_array_equal(got, np.histogram(x, bins, weights=weights)[0])
        inside = (x >= 0) & (x <= 3)
        np.testing.assert_array_equal(pullback(np.ones(len(got)))[0], inside)


@pytest.mark.parametrize("density", [None, True])
@pytest.mark.parametrize(
    "bins",
    [3, [3, 4], EDGES, [EDGES, EDGES[1:]], [EDGES, 2]],
    ids=["3", "3 by 4", "edges", "edges twice", "edges and 2"],
)
def test_histogram2d(bins: Any, density: Any) -> None:
    limits = [[-1.5, 1.5], [0.2, 1.8]]
    for r in (None, limits):
        agree(lambda w, r=r: np.histogram2d(V, U, bins, r, density, w), U**2)
        agree(lambda x, y, w, r=r: np.histogram2d(x, y, bins, r, density, w), V, U, U**2)
    agree(lambda e, w: np.histogram2d(V, U, [e, 3], None, density, w), EDGES, U)


@pytest.mark.parametrize("density", [None, True])
def test_histogramdd(density: Any) -> None:
    weights = RNG.uniform(1, 2, size=9)
    agree(lambda p, w: np.histogramdd(p, 3, None, density, w), P, weights)
    agree(lambda p: np.histogramdd(p, (2, 3, 2), density=density), P)
    agree(lambda v: np.histogramdd(v, 3, density=density), V)
    agree(lambda x, y: np.histogramdd([x, y], 3, [None, (0, 3)], density), V, U)
    agree(lambda w: np.histogramdd(P, [EDGES, 2, 3], None, density, w), weights.astype("f4"))


def test_histograms_refuse_what_numpy_refuses() -> None:
    for call in (
        lambda v: np.histogram(v, 0),
        lambda v: np.histogram(v, [3, 1, 2]),
        lambda v: np.histogram(v, weights=[1.0]),
        lambda v: np.histogram(v * np.nan),
        lambda v: np.histogramdd(v, [3, 3]),
        lambda v: np.histogram2d(v, U[:3]),
    ):
        with pytest.raises((ValueError, TypeError)) as expected:
            call(V)
        with pytest.raises(type(expected.value)) as got:
            grad(lambda v, c=call: np.sum(c(v)[0]))(V)
        assert str(got.value) == str(expected.value)


def test_bincount() -> None:
    places = np.array([3, 0, 1, 1])
    agree(lambda w: np.bincount(places, w), W)
    agree(lambda w: np.bincount(places.tolist(), weights=w, minlength=7), W)
    agree(lambda w: np.bincount(places, weights=w), W.astype(np.float32))
    got, pullback = adarray.vjp(lambda w: np.bincount(places[:0], w, 2) * 1.0, np.zeros(0))
    np.testing.assert_array_equal(got, [0.0, 0.0])
    assert pullback(got)[0].shape == (0,)
    with pytest.raises(TypeError, match="Cannot cast array data"):
        grad(lambda w: np.real(np.sum(np.bincount(places, w))))(W + 0j)
    with pytest.raises(ValueError, match="same length"):
        grad(lambda w: np.sum(np.bincount(places, w)))(V)
    counts = np.bincount(adarray.array(places))
    np.testing.assert_array_equal(np.asarray(counts), [1, 2, 0, 1])


def test_places_are_constants() -> None:
    def scaled(v: Any) -> Any:
        return v * np.digitize(v, EDGES) + v * np.searchsorted(EDGES, v, side="right")

    places = np.digitize(V, EDGES) + np.searchsorted(EDGES, V, side="right")
    np.testing.assert_array_equal(grad(lambda v: np.sum(scaled(v)))(V), places)


# -- every argument ------------------------------------------------------------------------------

ARGUMENTS: dict[Any, dict[str, Any]] = {
    np.average: {"axis": 1, "weights": X**2, "returned": True, "keepdims": True},
    np.ptp: {"axis": 1, "keepdims": True},
    np.cov: {"y": X[::-1], "rowvar": False, "bias": True, "ddof": 0, "fweights": F, "aweights": W,
             "dtype": np.float32},
    np.corrcoef: {"y": X[::-1], "rowvar": False, "dtype": np.float32},
    np.histogram: {"bins": 3, "range": (-1, 1), "density": True, "weights": X**2},
    np.histogram_bin_edges: {"bins": 3, "range": (-1, 1)},
    np.histogramdd: {"bins": 3, "range": [(-1, 1)] * 4, "density": True, "weights": W[:3]},
}  # fmt: skip
# Arguments tested above, or that NumPy itself does not look at.
ELSEWHERE = {"out", "bias", "ddof", "weights"}


@pytest.mark.parametrize("function", ARGUMENTS)
def test_every_parameter_makes_the_difference_that_it_makes_in_numpy(function: Any) -> None:
    args = ARGUMENTS[function]
    names = list(inspect.signature(function).parameters)[1:]
    assert set(names) - set(args) <= ELSEWHERE
    plain = leaves(function(X))
    for name, value in args.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            expected = leaves(function(X, **{name: value}))
            got: list[Any] = []
            grad(
                lambda v, n=name, x=value, r=got: (
                    r.extend(leaves(function(v, **{n: x}))) or 0 * np.sum(v)
                )
            )(X)
        differs = [
            a.shape != b.shape or a.dtype != b.dtype or not np.allclose(a, b)
            for a, b in zip(expected, plain, strict=False)
        ]
        assert any(differs) or len(expected) != len(plain)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_allclose(adarray.value_of(a), b, rtol=1e-5)
            assert a.dtype == b.dtype
