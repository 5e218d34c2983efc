"""Sorting, partitions, medians and quantiles: values, derivatives, every argument."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import NotDifferentiableError, grad, jvp
from adarray.testing import check_grads

RNG = np.random.default_rng(8)
X = RNG.normal(size=(3, 4))
T = RNG.normal(size=(2, 3, 4))
V = RNG.normal(size=9)
Z = X + 1j * RNG.normal(size=(3, 4))
NAN = np.nan
HOLES = np.array([[0.3, NAN, 1.1, -0.4], [0.7, 0.1, 0.4, 0.2], [NAN, 1.3, -1.0, NAN]])
CONTINUOUS = (
    "interpolated_inverted_cdf", "hazen", "weibull", "linear", "median_unbiased", "normal_unbiased",
)  # fmt: skip
JUMPING = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "lower", "higher", "midpoint",
    "nearest",
)  # fmt: skip
QUANTILES = ((np.quantile, 1.0), (np.nanquantile, 1.0), (np.percentile, 100.0),
             (np.nanpercentile, 100.0))  # fmt: skip


def agree(f: Callable[..., Any], *xs: Any) -> None:
    """Assert that values, traced or not, are NumPy's, and that derivatives are right."""
    expected = f(*xs)
    traced, _ = adarray.vjp(f, *xs)
    untraced = f(*(adarray.array(x) for x in xs)).numpy()
    for got in (traced, untraced):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-6 if expected.itemsize < 8 else 1e-13)
    check_grads(f, xs)


# -- sort and partition --------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("how", [{}, {"kind": "stable"}, {"stable": True}, {"kind": "heapsort"}])
@pytest.mark.parametrize("x", [X, Z, X[::-1, ::2]], ids=["real", "complex", "strided"])
def test_sort(x: np.ndarray, how: dict[str, Any], axis: int | None) -> None:
    agree(lambda v: np.sort(v, axis=axis, **how), x)


@pytest.mark.parametrize("x", [X, Z, X.astype(np.float32)], ids=["real", "complex", "float32"])
def test_sort_complex(x: np.ndarray) -> None:
    agree(lambda v: np.sort_complex(v), x)
    agree(lambda v: np.real(np.sort_complex(v)), x)


def test_equal_elements_keep_their_places_when_stable() -> None:
    x = np.array([2.0, 1.0, 2.0, 1.0, np.nan])
    weights = np.array([10.0, 20.0, 30.0, 40.0, 50.0])
    got = grad(lambda v: np.sum(weights * np.sort(v, stable=True)))(x)
    np.testing.assert_array_equal(got, [30.0, 10.0, 40.0, 20.0, 50.0])


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("kth", [1, -1, (0, 2)])
def test_partition(axis: int | None, kth: Any) -> None:
    def smallest(v: Any) -> Any:
        r = np.partition(v, kth, axis=axis)
        line = np.moveaxis(r, axis, -1) if axis is not None else r
        return np.sort(line[..., : np.max(kth) % line.shape[-1] + 1])

    agree(smallest, X)
    agree(smallest, Z)


@pytest.mark.parametrize("axis", [0, -1])
def test_methods_work_in_place(axis: int) -> None:
    def in_place(v: Any) -> Any:
        y = v * 1.0
        row = y[1]  # a view
        assert y.sort(axis=axis) is None
        y[0].sort(stable=True)
        z = v * 2.0
        assert z.partition(1, axis=axis) is None
        return np.concatenate([y[0], row, np.min(z[1:] if axis == 0 else z[:, 1:], axis=axis)])

    agree(in_place, X)


def test_methods_in_place_need_an_axis() -> None:
    for call in (lambda v: v.sort(axis=None), lambda v: v.partition(1, axis=None)):
        for x in (V.copy(), adarray.array(V)):
            with pytest.raises(TypeError, match="'NoneType' object cannot be interpreted"):
                call(x)


def test_argsort_gathers() -> None:
    agree(lambda v: v[np.argsort(v)], V)
    agree(lambda v: np.take_along_axis(v, np.argsort(v, axis=0, stable=True), 0), X)
    agree(lambda v: v[v.argsort(kind="stable")[:3]], V)
    agree(lambda v: v[np.argpartition(v, 0)[:1]] * V[np.lexsort((V,))[0]], V)


def test_sort_of_every_edge_shape() -> None:
    for x in (np.zeros(0), np.zeros((0, 3)), np.ones((1, 1))):
        assert grad(lambda v: np.sum(np.sort(v, axis=0)))(x).shape == x.shape
    for axis in (2, -3):
        for call in (np.sort, lambda v, axis: np.partition(v, 1, axis=axis)):
            with pytest.raises(np.exceptions.AxisError) as caught:
                grad(lambda v, c=call, a=axis: np.sum(c(v, axis=a)))(X)
            assert f"axis {axis} is out of bounds" in str(caught.value)


def test_fields_are_refused() -> None:
    for name, call in (
        ("sort", lambda v: np.sort(v, order="f")),
        ("partition", lambda v: np.partition(v, 1, order="f")),
    ):
        with pytest.raises(NotDifferentiableError) as caught:
            grad(lambda v, c=call: np.sum(c(v)))(V)
        assert str(caught.value) == (
            f"{name}: the argument order='f' names fields, which a traced array does not have; "
            "leave it out"
        )


# -- medians -------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [np.median, np.nanmedian])
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), (1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_median(function: Any, axis: Any, keepdims: bool) -> None:
    for x in (X, X[:, :3], T, X.astype(np.float32)):
        agree(lambda v: function(v, axis=axis, keepdims=keepdims, overwrite_input=True), x)
    agree(lambda v: function(v, axis, None, False, keepdims), Z)


def test_the_operand_is_not_overwritten() -> None:
    for function in (lambda v: np.median(v, overwrite_input=True),
                     lambda v: np.quantile(v, 0.3, overwrite_input=True)):  # fmt: skip
        x = V.copy()
        grad(function)(x)
        adarray.vjp(function, x)
        function(adarray.array(x))
        np.testing.assert_array_equal(x, V)


def test_a_median_picks_the_middle() -> None:
    np.testing.assert_array_equal(grad(np.median)(np.array([3.0, 1.0, 2.0])), [0, 0, 1])
    np.testing.assert_array_equal(grad(np.median)(np.array([4.0, 1, 2, 3])), [0, 0, 0.5, 0.5])
    np.testing.assert_array_equal(grad(np.nanmedian)(np.array([4.0, NAN, 2, 3])), [0, 0, 0, 1])
    assert np.sum(grad(np.median)(np.ones(5))) == 1.0
    np.testing.assert_array_equal(grad(np.median)(np.array(2.0)), 1.0)


def test_all_nan_has_no_derivative() -> None:
    for function in (np.nanmedian, lambda v: np.nanquantile(v, 0.3)):
        with pytest.warns(RuntimeWarning, match="All-NaN slice"):
            np.testing.assert_array_equal(grad(function)(np.full(3, NAN)), np.zeros(3))
        with pytest.warns(RuntimeWarning, match="All-NaN slice"):
            _, tangent = jvp(function, (np.full(3, NAN),), (np.ones(3),))
        assert tangent == 0.0
    x = np.array([1.0, NAN, 3.0])
    assert np.isnan(adarray.vjp(np.median, x)[0])  # as NumPy: with nan there is no median


# -- quantiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*CONTINUOUS, *JUMPING])
@pytest.mark.parametrize(("function", "scale"), QUANTILES)
def test_every_method(function: Any, scale: float, method: str) -> None:
    q = np.array([0.04, 0.31, 0.52, 0.97]) * scale
    agree(lambda v, p: function(v, p, method=method), V, q)
    agree(lambda v, p: function(v, p, axis=0, method=method), X, q[1:3].reshape(1, 2))
    agree(lambda p: function(V, p, method=method), 0.43 * scale)
    agree(lambda v: function(v, q.tolist(), axis=(0, -1), keepdims=True, method=method), T)


@pytest.mark.parametrize(("function", "scale"), [QUANTILES[1], QUANTILES[3]])
@pytest.mark.parametrize("method", [*CONTINUOUS, *JUMPING])
def test_nan_is_left_out(function: Any, scale: float, method: str) -> None:
    inside = ~np.isnan(HOLES)

    def by_line(v: Any, p: Any) -> Any:
        """Return the same of the lines without nan."""
        rows = (np.quantile(v[i][inside[i]], p / scale, method=method) for i in range(3))
        return np.stack(list(rows))

    def masked(v: Any, p: Any) -> Any:
        return function(np.where(inside, v, NAN), p, 1, method=method)

    point = (np.where(inside, HOLES, 0.0), np.float64(0.41 * scale))
    results = [
        adarray.value_and_grad(lambda v, p, f=f: V[:3] @ f(v, p), argnums=(0, 1))(*point)
        for f in (masked, by_line)
    ]
    (got, slopes), (expected, expected_slopes) = results
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    for a, b in zip(slopes, expected_slopes, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_percentiles_move_a_hundredth() -> None:
    x = np.array([3.0, 1.0, 7.0])
    assert grad(lambda q: np.quantile(x, q))(0.3) == pytest.approx(2 * 2.0)
    assert grad(lambda q: np.percentile(x, q))(30.0) == pytest.approx(2 * 2.0 / 100)
    assert grad(lambda q: np.quantile(x, q, method="lower"))(0.3) == 0.0


def test_quantiles_at_their_kinks() -> None:
    x = np.array([3.0, 1.0, 7.0])
    slopes = [grad(lambda q: np.quantile(x, q))(q) for q in (0.0, 0.5, 1.0)]
    np.testing.assert_allclose(slopes, [2 * 2.0, 2 * 4.0, 2 * 4.0])
    # Beyond the first and the last element these methods do not extrapolate.
    for q in (0.01, 0.99):
        assert grad(lambda p: np.quantile(x, p, method="weibull"))(q) == 0.0
    np.testing.assert_array_equal(
        grad(lambda v: np.quantile(v, 0.01, method="hazen"))(x), [0, 1, 0]
    )


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(("function", "scale"), QUANTILES)
def test_weights(function: Any, scale: float, axis: int | None) -> None:
    weights = RNG.uniform(0.5, 2, size=(3, 4))
    q = np.array([0.2, 0.8]) * scale

    def f(v: Any, w: Any) -> Any:
        return function(v, q, axis=axis, weights=w, method="inverted_cdf")

    agree(f, X, weights)
    if axis is not None and function in (np.quantile, np.percentile):
        agree(lambda v: f(v, weights.take(0, 1 - axis)), X)
    with pytest.raises(ValueError, match="Only method 'inverted_cdf' supports weights"):
        grad(lambda v: np.sum(function(v, q, weights=weights)))(X)


@pytest.mark.parametrize(("function", "scale"), QUANTILES)
def test_out(function: Any, scale: float) -> None:
    def into(v: Any, position: bool) -> Any:
        out = np.zeros_like(v[0])
        r = function(v, 0.3 * scale, 0, out) if position else function(v, 0.3 * scale, 0, out=out)
        assert r is out
        return out * v[1]

    agree(lambda v: into(v, True), X)
    agree(lambda v: into(v, False), X)


ARGUMENTS = {"axis": 1, "overwrite_input": True, "method": "higher", "keepdims": True,
             "weights": np.arange(1.0, 13.0).reshape(3, 4)}  # fmt: skip


@pytest.mark.parametrize("function", [np.median, np.nanmedian, *(f for f, _ in QUANTILES)])
def test_every_parameter_makes_the_difference_that_it_makes_in_numpy(function: Any) -> None:
    q = () if "median" in function.__name__ else (0.4 if "quantile" in function.__name__ else 40.0,)
    for name in list(inspect.signature(function).parameters)[1 + len(q) :]:
        if name in ("out", "interpolation"):  # test_out; a deprecated name, refused by NumPy 2.4
            continue
        options = {name: ARGUMENTS[name]}
        if name == "weights":
            options["method"] = "inverted_cdf"
        expected = function(X.copy(), *q, **options)
        got, pullback = adarray.vjp(lambda v, g=options: function(v, *q, **g), X)
        np.testing.assert_array_equal(got, expected)
        assert pullback(np.ones_like(expected))[0].shape == X.shape
        if name != "overwrite_input":
            plain = function(X, *q, **{k: v for k, v in options.items() if k != name})
            assert plain.shape != expected.shape or not np.array_equal(plain, expected)


def test_errors_are_numpys() -> None:
    for call in (
        lambda v: np.quantile(v, 1.5),
        lambda v: np.percentile(v, -1.0),
        lambda v: np.quantile(v, 0.5, method="nearly"),
        lambda v: np.median(v, axis=2),
        lambda v: np.median(v, axis=(0, 0)),
    ):
        with pytest.raises((ValueError, np.exceptions.AxisError)) as expected:
            call(X)
        for run in (lambda c=call: c(adarray.array(X)), lambda c=call: grad(c)(X)):
            with pytest.raises(type(expected.value)) as got:
                run()
            assert str(expected.value) in str(got.value)
    with pytest.raises(TypeError, match="a must be an array of real numbers"):
        grad(lambda v: np.real(np.quantile(v, 0.5)))(Z)


def test_quantiles_of_many_elements_take_one_gather() -> None:
    """A long array with few quantiles is selected from, not sorted; with many it is sorted."""
    x = np.random.default_rng(2).permutation(5001.0 * np.arange(5001)) / 5000
    for q in (np.array([0.25, 0.5]), np.linspace(0.01, 0.99, 33)):
        got = grad(lambda v, p=q: np.sum(np.quantile(v, p)))(x)
        assert np.sum(got) == pytest.approx(len(q))
        assert np.count_nonzero(got) <= 2 * len(q)
        places = np.sort(x.argsort().argsort()[np.flatnonzero(got)])
        assert set(places) <= {int(f) + d for f in q * 5000 for d in (0, 1)} | {
            int(np.round(f)) for f in q * 5000
        }
