"""Reductions and running folds: every argument, masks and nan, corners, backends."""

from __future__ import annotations

import inspect
import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import grad, jvp
from adarray.testing import check_grads
from adarray.testing._ops import use_all_sizes

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 4))
T = RNG.normal(size=(2, 3, 4))
Z = X + 1j * RNG.normal(size=(3, 4))
MASK = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 1, 1]], bool)
NAN, INF = np.nan, np.inf
HOLES = np.where(np.arange(12).reshape(3, 4) % 5 == 1, NAN, X)
SUMS = (np.sum, np.prod, np.nansum, np.nanprod)
EXTREMA = (np.max, np.min, np.nanmax, np.nanmin)
MEANS = (np.mean, np.nanmean)
SPREADS = (np.var, np.std, np.nanvar, np.nanstd)
RUNNING = (np.cumsum, np.cumprod, np.nancumsum, np.nancumprod)


def agree(f: Callable[..., Any], *xs: Any) -> None:
    """Assert that values, traced or not, are NumPy's, and that derivatives are right."""
    expected = f(*xs)
    traced, _ = adarray.vjp(f, *xs)
    untraced = f(*(adarray.array(x) for x in xs)).numpy()
    for got in (traced, untraced):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-6 if expected.itemsize < 8 else 1e-13)
    check_grads(f, xs)


# -- arguments -----------------------------------------------------------------------------------

AXES: list[dict[str, Any]] = [
    {},
    {"axis": 1},
    {"axis": (0, -1), "keepdims": True},
    {"axis": ()},
]


@pytest.mark.parametrize("axes", AXES, ids=str)
@pytest.mark.parametrize("function", [*SUMS, *EXTREMA, *MEANS, *SPREADS])
@pytest.mark.parametrize("x", [X, T, Z], ids=["matrix", "3-d", "complex"])
def test_axes_and_keepdims(function: Any, axes: dict[str, Any], x: np.ndarray) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", np.exceptions.ComplexWarning)
        agree(lambda v: function(v, **axes), x)


@pytest.mark.parametrize("function", [*SUMS, *MEANS, *SPREADS])
@pytest.mark.parametrize("mask", [MASK, MASK[0], MASK[:, 2:3], True], ids=str)
def test_where(function: Any, mask: Any) -> None:
    agree(lambda v: function(v, axis=1, where=mask), X)
    agree(lambda v: function(v, keepdims=True, where=mask), Z)


@pytest.mark.parametrize("function", [*SUMS, *EXTREMA])
def test_a_traced_initial_value(function: Any) -> None:
    agree(lambda v, i: function(v, axis=0, initial=i), X, np.float64(0.4))
    agree(lambda v, i: function(v, axis=1, keepdims=True, initial=i, where=MASK), X, 0.4)
    # NumPy does not ask `initial` whether it knows better.
    with pytest.raises(adarray.TraceError, match="a traced value would leave the graph"):
        grad(lambda i: function(X, initial=i))(0.4)


@pytest.mark.parametrize("function", SPREADS)
@pytest.mark.parametrize("mask", [True, MASK], ids=["all", "some"])
def test_a_traced_mean(function: Any, mask: Any) -> None:
    means = np.array([[0.3], [-0.2], [0.9]])
    agree(lambda v, m: function(v, axis=1, mean=m, where=mask), X, means)
    if function in (np.var, np.std):
        agree(lambda m: function(X, axis=1, mean=m, where=mask, keepdims=True), means)

    def centered(v: Any) -> Any:
        m = np.mean(v, axis=0, keepdims=True, where=mask)
        return function(v, axis=0, mean=m, where=mask)

    agree(centered, X)
    np.testing.assert_allclose(
        grad(lambda v: np.sum(centered(v)))(X),
        grad(lambda v: np.sum(function(v, axis=0, where=mask)))(X),
        rtol=1e-12,
    )


@pytest.mark.parametrize("function", SPREADS)
@pytest.mark.parametrize("free", [{"ddof": 1}, {"correction": 1}, {"correction": 0.5}], ids=str)
def test_degrees_of_freedom(function: Any, free: dict[str, Any]) -> None:
    agree(lambda v: function(v, axis=0, **free), X)
    agree(lambda v: function(v, where=MASK, **free), X)


@pytest.mark.parametrize("function", [*SUMS, *MEANS, *SPREADS, *RUNNING])
def test_dtype(function: Any) -> None:
    narrow = X.astype(np.float32)
    agree(lambda v: function(v, axis=1, dtype=np.float64), narrow)
    assert grad(lambda v: np.sum(function(v, dtype=np.float64)))(narrow).dtype == np.float32
    if function not in RUNNING:
        agree(lambda v: function(v, axis=0, dtype=np.float64, where=MASK), narrow)


@pytest.mark.parametrize("function", [*SUMS, *EXTREMA, *MEANS, *SPREADS, *RUNNING])
def test_out(function: Any) -> None:
    def into(x: Any, position: int | None) -> Any:
        out = np.zeros_like(x[0]) if function not in RUNNING else np.zeros_like(x)
        if position is None:
            r = function(x, 0, out=out)
        else:
            r = function(x, 0, out) if position == 2 else function(x, 0, None, out)
        assert r is out
        return out * 2.0

    agree(lambda v: into(v, None), X)
    agree(lambda v: into(v, 2 if function in EXTREMA else 3), X)
    with pytest.raises(adarray.TraceError, match="into a plain ndarray"):
        grad(lambda v: np.sum(function(v, out=np.zeros(()), axis=None)), intercept=False)(X[0, :1])


def _parameters() -> list[tuple[Any, str]]:
    """Return every parameter of every reduction, read from NumPy's own signatures."""
    functions = (*SUMS, *EXTREMA, *MEANS, *SPREADS, *RUNNING)
    return [(f, name) for f in functions for name in list(inspect.signature(f).parameters)[1:]]


ARGUMENTS: dict[str, Any] = {
    "axis": 1, "dtype": np.float32, "keepdims": True, "where": MASK, "initial": 2.5, "ddof": 1,
    "correction": 1, "mean": np.full((3, 1), 0.25),
}  # fmt: skip


@pytest.mark.parametrize(("function", "name"), _parameters())
def test_every_parameter_makes_the_difference_that_it_makes_in_numpy(
    function: Any, name: str
) -> None:
    """No argument is swallowed: with it the result is another one, and NumPy's."""
    if name == "out":
        return  # test_out
    options = {name: ARGUMENTS[name], **({"axis": 1} if name == "mean" else {})}
    if function in EXTREMA and name in ("initial", "where"):
        far = 9.0 if "min" in function.__name__ else -9.0
        inside = X > -0.3 if far > 0 else X < 0.3
        options = {"initial": far, "where": inside} if name == "where" else {"initial": -far}
    without = {k: v for k, v in options.items() if k != name}
    expected = function(X, **options)
    traced, pullback = adarray.vjp(lambda v: function(v, **options), X)
    np.testing.assert_allclose(traced, expected, rtol=1e-6)
    assert (traced.dtype, traced.shape) == (expected.dtype, expected.shape)
    plain = function(X, **without)
    same = (plain.shape, plain.dtype) == (expected.shape, expected.dtype)
    assert not (same and np.array_equal(plain, expected))
    assert pullback(np.ones_like(expected))[0].shape == X.shape


def test_methods_take_the_same_arguments() -> None:
    agree(lambda v: v.sum(0, where=MASK, initial=2.0), X)
    agree(lambda v: v.prod(axis=1, initial=0.5, keepdims=True), X)
    agree(lambda v: v.max(axis=1, initial=-0.1, where=MASK), X)
    agree(lambda v: v.min(1, initial=0.1), X)
    agree(lambda v: v.mean(axis=0, where=MASK), X)
    agree(lambda v: v.var(axis=0, where=MASK, ddof=1), X)
    agree(lambda v: v.std(axis=0, ddof=1, keepdims=True), X)


def test_ufunc_reductions_take_the_same_arguments() -> None:
    agree(lambda v: np.add.reduce(v, axis=1, where=MASK, initial=1.5), X)
    agree(lambda v: np.maximum.reduce(v, axis=1, initial=0.3, where=MASK), X)
    agree(lambda v: np.multiply.reduce(v, axis=(0, 1), initial=2.0), X)


def test_a_mask_may_be_an_adarray_and_change_later() -> None:
    def total(v: Any) -> Any:
        mask = MASK.copy()
        r = np.sum(v * v, where=mask) + np.mean(v, where=v > 0)
        mask[...] = False
        return r

    expected = 2 * X * MASK + (X > 0) / np.sum(X > 0)
    np.testing.assert_allclose(grad(total)(X), expected, rtol=1e-14)


def test_truth_values_and_counts_are_constants() -> None:
    def scaled(v: Any) -> Any:
        any_, all_ = np.any(v > 0, axis=0, where=MASK), np.all(v, axis=1, keepdims=True)
        return np.sum(v * any_ * all_) * np.count_nonzero(v, axis=None)

    any_ = np.any(X > 0, axis=0, where=MASK)
    np.testing.assert_array_equal(grad(scaled)(X), 12.0 * np.broadcast_to(any_, X.shape))


# -- corners -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        # Ties share equally; the initial value is one of them.
        (lambda v: np.max(v, initial=3.0), [1.0, 3.0, 3.0], [0.0, 1 / 3, 1 / 3]),
        (lambda v: np.min(v, initial=0.0, where=[True, False, True]), [0.0, 0.0, 1.0], [0.5, 0, 0]),
        (lambda v: np.nanmax(v), [NAN, 3.0, 3.0], [0.0, 0.5, 0.5]),
        # Minus infinity is a value, not nan's stand-in.
        (lambda v: np.nanmax(v), [NAN, -INF], [0.0, 1.0]),
        # Where nothing is left, nothing moves.
        (lambda v: np.sum(v, where=False), [1.0, 2.0], [0.0, 0.0]),
        (lambda v: np.sum(v, where=None), [1.0, 2.0], [0.0, 0.0]),  # None is false to NumPy
        (lambda v: np.max(v, where=None, initial=1.0), [1.0, 2.0], [0.0, 0.0]),
        (lambda v: np.nansum(v), [NAN, NAN], [0.0, 0.0]),
        (lambda v: np.nanprod(v), [NAN, 2.0], [0.0, 1.0]),
        (lambda v: np.nancumsum(v)[-1], [1.0, NAN, 2.0], [1.0, 0.0, 1.0]),
        (lambda v: np.nancumprod(v)[-1], [2.0, NAN, 3.0], [3.0, 0.0, 2.0]),
        # Deviation zero.
        (lambda v: np.std(v, where=[True, True, False]), [2.0, 2.0, 7.0], [0.0, 0.0, 0.0]),
        (lambda v: np.nanstd(v), [2.0, NAN, 2.0], [0.0, 0.0, 0.0]),
        (lambda v: np.var(v, mean=2.0 + 0 * v[:1]), [2.0, 2.0], [0.0, 0.0]),
        # Products are exact where elements are zero.
        (lambda v: np.prod(v, initial=2.0), [0.0, 3.0, 0.5], [3.0, 0.0, 0.0]),
        (lambda v: np.prod(v, where=[True, False, True]), [0.0, NAN, 5.0], [5.0, 0.0, 0.0]),
        # What takes no part reaches no derivative.
        (lambda v: np.var(v, where=np.isfinite(v)), [1.0, INF, 3.0], [-1.0, 0.0, 1.0]),
        (lambda v: np.nanvar(v), [1.0, NAN, 3.0], [-1.0, 0.0, 1.0]),
        (lambda v: np.mean(v, where=[True, False]), [1.0, NAN], [1.0, 0.0]),
        (lambda v: np.max(v, where=[True, False], initial=0), [1.0, 9.0], [1.0, 0.0]),
    ],
)  # fmt: skip
def test_corners(f: Callable[[Any], Any], x: list[float], expected: list[float]) -> None:
    x = np.array(x)
    np.testing.assert_allclose(grad(f)(x), expected, rtol=1e-14)
    for k, e in enumerate(np.eye(len(x))):
        np.testing.assert_allclose(jvp(f, (x,), (e,))[1], expected[k], rtol=1e-14)


@pytest.mark.parametrize("function", [np.nanmean, np.nanmax, np.nanmin, np.nanstd, np.nanvar])
def test_all_nan_warns_as_numpy_does_and_has_no_derivative(function: Any) -> None:
    x = np.array([NAN, NAN])
    with warnings.catch_warnings(record=True) as expected:
        warnings.simplefilter("always")
        function(x)
    with warnings.catch_warnings(record=True) as got:
        warnings.simplefilter("always")
        np.testing.assert_array_equal(grad(function)(x), [0.0, 0.0])
    assert [str(w.message) for w in got] == [str(w.message) for w in expected]


def test_nothing_is_folded_as_numpy_does_it() -> None:
    empty = np.zeros((0, 3))
    np.testing.assert_array_equal(grad(lambda v: np.sum(np.prod(v, axis=0)))(empty), empty)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y, pullback = adarray.vjp(np.mean, np.zeros(0))
    assert "Mean of empty slice" in str(caught[0].message)
    assert np.isnan(y)
    assert pullback(np.float64(1.0))[0].shape == (0,)
    for f in (np.max, np.nanmin):
        with pytest.raises(ValueError, match="zero-size array to reduction operation"):
            grad(f)(np.zeros(0))


def test_degrees_of_freedom_may_be_used_up() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.isnan(grad(lambda v: np.var(v, ddof=2))(np.ones(2))).all()
    assert "Degrees of freedom <= 0" in str(caught[0].message)


def test_errors_are_numpys() -> None:
    for call in (
        lambda v: np.sum(v, axis=2),
        lambda v: np.sum(v, axis=(0, 0)),
        lambda v: np.max(v, where=MASK),
        lambda v: np.sum(v, where=np.ones(5, bool)),
        lambda v: np.std(v, ddof=1, correction=1),
    ):
        with pytest.raises((ValueError, np.exceptions.AxisError)) as expected:
            call(X)
        for traced in (adarray.array(X), None):
            with pytest.raises(type(expected.value)) as got:
                call(traced) if traced is not None else grad(call)(X)
            assert str(expected.value).strip() in str(got.value)


@pytest.mark.parametrize("function", [*SUMS, *EXTREMA, *MEANS, *SPREADS, np.median, np.ptp])
def test_traced_python_numbers(function: Any) -> None:
    """They have no shape of their own, which rules ask for."""

    def cubed(t: Any) -> Any:
        return function(t) ** 3 + function(t * t)

    constant = function in (*SPREADS, np.ptp)
    assert grad(cubed)(0.7) == pytest.approx(0.0 if constant else 3 * 0.49 + 1.4)
    assert grad(grad(cubed))(0.7) == pytest.approx(0.0 if constant else 6 * 0.7 + 2)
    assert jvp(grad(cubed), (0.7,), (1.0,))[1] == pytest.approx(0.0 if constant else 6.2)
    x = np.array([0.7, 2.0])
    got = grad(lambda v: cubed(v[0].item()))(x)
    np.testing.assert_allclose(got, [grad(cubed)(0.7), 0.0])


# -- backends ------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [*SUMS, *EXTREMA, *MEANS, *SPREADS])
def test_masks_on_a_backend(function: Any, backend: str) -> None:
    """Printed kernels know nothing of masks: they must not be used with them."""
    rng = np.random.default_rng(1)
    x, mask = rng.uniform(0.9, 1.1, size=(40, 30)), rng.random((40, 30)) < 0.7
    options = {} if function in (*MEANS, *SPREADS) else {"initial": 1.05}

    def f(v: Any) -> Any:
        return np.sum(np.square(function(v, axis=1, where=mask, **options)))

    expected = adarray.value_and_grad(f)(x)
    with use_all_sizes(backend):
        got = adarray.value_and_grad(f)(x)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10)


# -- running folds -------------------------------------------------------------------------------


@pytest.mark.parametrize("function", RUNNING)
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("x", [X, T[:, ::-1], Z, X[0, 0]], ids=["matrix", "3-d", "complex", "0-d"])
def test_running_folds(function: Any, axis: int | None, x: Any) -> None:
    if x.ndim or axis is None:
        agree(lambda v: function(v, axis=axis), x)


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
@pytest.mark.parametrize("start", [False, True])
def test_cumulative(name: str, start: bool) -> None:
    function = getattr(np, name, None)
    if function is None:
        pytest.skip("since NumPy 2.1")
    for axis in (0, -1):
        agree(lambda v, a=axis: function(v, axis=a, include_initial=start), X)
    agree(lambda v: function(v, include_initial=start, dtype=np.float64), X[0].astype("f4"))

    def into(v: Any) -> Any:
        out = np.concatenate([v, v[:1]]) if start else v * 1.0
        function(v, include_initial=start, out=out)
        return out * v[0]

    agree(into, X[0])
    for call in (lambda v: function(v), lambda v: function(v, axis=3)):
        with pytest.raises(ValueError, match=r"axis"):
            grad(lambda v, c=call: np.sum(c(v)))(X)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 9, 31, 64])
def test_cumprod_of_every_length_is_exact_at_zeros(n: int) -> None:
    x = np.random.default_rng(n).uniform(-2, 2, size=n)
    x[n // 2 :: 3] = 0.0
    g = np.random.default_rng(n + 1).normal(size=n)
    # The derivative of out[i] with respect to x[j] is the product of the others up to i.
    jacobian = np.array(
        [[np.prod(np.delete(x[: i + 1], j)) if j <= i else 0.0 for j in range(n)] for i in range(n)]
    )
    np.testing.assert_allclose(grad(lambda v: np.cumprod(v) @ g)(x), g @ jacobian, rtol=1e-12)
    np.testing.assert_allclose(jvp(np.cumprod, (x,), (g,))[1], jacobian @ g, rtol=1e-12)


def test_cumprod_takes_memory_in_proportion_to_its_length() -> None:
    x = 1 + 1e-5 * np.random.default_rng(0).normal(size=20_000)
    tracemalloc.start()
    try:
        got = grad(lambda v: np.cumprod(v)[-1])(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(got, np.prod(x) / x, rtol=1e-10)
    assert peak < 100 * x.nbytes  # all derivatives of all results would be 20000 times as much


def test_differences() -> None:
    agree(lambda v, a, b: np.diff(v, n=2, axis=0, prepend=a, append=b), X, 0.3, X[:1] * 2)
    agree(lambda v: np.diff(v, n=0), X)
    agree(lambda a: np.diff([1.0, 4.0, 9.0], prepend=a), np.float64(0.3))
    agree(lambda y, x: np.trapezoid(y, x, axis=0), X, np.array([0.0, 0.5, 2.0]))
    with pytest.raises(ValueError, match="order must be non-negative but got -1"):
        grad(lambda v: np.sum(np.diff(v, n=-1)))(X)
