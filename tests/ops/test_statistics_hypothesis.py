"""Reductions, orders and statistics on random arrays and arguments: NumPy's values and errors.

Untraced arrays give exactly what NumPy gives; so do traced ones, or the same error.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adarray
from adarray.testing import check_grads

# Deterministic, and no time limit: the machine may be busy.
STEADY = settings(max_examples=80, deadline=None, derandomize=True, database=None)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
KINDS = st.sampled_from(["f8", "f8", "f4", "f2", "c16", "i8", "?", "ties", "nan"])
AXES = st.sampled_from([None, None, 0, -1, 1, (0,), (0, 1), (1, -1), (), 3])
NONE = st.just({})


@st.composite
def arrays(draw: st.DrawFn, kinds: st.SearchStrategy[str] = KINDS) -> np.ndarray:
    """Draw an array of a random kind with random strides."""
    shape, kind = draw(SHAPES), draw(kinds)
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in shape]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    base = np.asarray(3 * rng.normal(size=[n * abs(k) for n, k in zip(shape, steps, strict=True)]))
    if kind == "ties":
        base = np.round(base)
    elif kind == "nan":
        base = np.where(rng.random(base.shape) < 0.3, np.nan, base)
    elif kind == "c16":
        base = base + 1j * np.round(rng.normal(size=base.shape))
    else:
        base = base.astype(kind)
    return np.asarray(base[tuple(slice(None, None, k) for k in steps)])


def options(**values: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Draw keyword arguments, each of them given or not."""
    return st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in values.items()})


@st.composite
def masks(draw: st.DrawFn, x: np.ndarray) -> dict[str, Any]:
    """Draw ``where=`` for an array, or nothing."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = draw(st.sampled_from([None, None, x.shape, x.shape[-1:], ()]))
    return {} if shape is None else {"where": np.asarray(rng.random(shape) < 0.6)}


def outcome(f: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a call, or the error."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return f(*args)
        except (ValueError, TypeError, IndexError, ZeroDivisionError, RuntimeError) as error:
            return error


def compare(got: Any, expected: Any, exact: bool) -> None:
    """Assert that two outcomes are the same."""
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected)), (got, expected)
        return
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            compare(a, b, exact)
        return
    if isinstance(got, Exception):
        raise got
    value, expected = np.asarray(adarray.value_of(got)), np.asarray(expected)
    assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
    if exact or value.dtype.kind not in "fc":
        np.testing.assert_array_equal(value, expected)
    else:
        tolerance = 16 * np.finfo(value.dtype).eps
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


def check(f: Callable[[Any], Any], x: np.ndarray) -> None:
    """Compare `f` on an untraced and on a traced array with NumPy."""
    expected = outcome(f, x)
    compare(outcome(f, adarray.array(x)), expected, exact=True)
    if x.dtype.kind not in "fc":
        return
    results: list[Any] = []

    def noted(v: Any) -> Any:
        results.append(f(v))
        return 0.0 * np.sum(np.real(v))

    error = outcome(adarray.grad(noted), x)
    compare(results[0] if results else error, expected, exact=False)


@STEADY
@given(st.data(), arrays(), AXES, options(keepdims=[True, False, np._NoValue]))
@pytest.mark.parametrize("name", ["sum", "prod", "nansum", "nanprod", "max", "min", "nanmax",
                                  "nanmin", "all", "any"])  # fmt: skip
def test_folds(
    name: str, data: st.DataObject, x: np.ndarray, axis: Any, keywords: dict[str, Any]
) -> None:
    keywords |= data.draw(masks(x))
    if name not in ("all", "any"):
        keywords |= data.draw(options(initial=[1.5, np.float64(0.25), 2]))
    if "sum" in name or "prod" in name:
        keywords |= data.draw(options(dtype=[np.float32, np.float64, complex]))
    check(lambda v: getattr(np, name)(v, axis=axis, **keywords), x)


@STEADY
@given(st.data(), arrays(), AXES, options(keepdims=[True, False], dtype=[np.float32, np.float64]))
@pytest.mark.parametrize("name", ["mean", "nanmean", "var", "std", "nanvar", "nanstd"])
def test_moments(
    name: str, data: st.DataObject, x: np.ndarray, axis: Any, keywords: dict[str, Any]
) -> None:
    keywords |= data.draw(masks(x))
    if "mean" not in name:
        keywords |= data.draw(options(ddof=[1, 0.5], mean=[0.25]) | options(correction=[1, 0.5]))
    check(lambda v: getattr(np, name)(v, axis=axis, **keywords), x)


@STEADY
@given(arrays(), st.sampled_from([None, 0, 1, -1, 3]), options(dtype=[np.float32, complex]))
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "nancumsum", "nancumprod"])
def test_running_folds(name: str, x: np.ndarray, axis: Any, keywords: dict[str, Any]) -> None:
    check(lambda v: getattr(np, name)(v, axis=axis, **keywords), x)


@STEADY
@given(arrays(), st.sampled_from([None, 0, 1, -1, 3]), options(kind=["stable"], stable=[True]))
def test_orders(x: np.ndarray, axis: Any, keywords: dict[str, Any]) -> None:
    check(lambda v: np.sort(v, axis=axis, **keywords), x)
    check(lambda v: np.argsort(v, axis=axis, kind="stable"), x)
    check(lambda v: np.sort(np.partition(v, 1, axis=axis), axis=axis), x)
    check(lambda v: np.sort_complex(v), x)


METHODS = [
    "linear", "hazen", "weibull", "median_unbiased", "normal_unbiased", "inverted_cdf",
    "interpolated_inverted_cdf", "averaged_inverted_cdf", "closest_observation", "lower", "higher",
    "midpoint", "nearest", "unknown",
]  # fmt: skip
LEVELS = st.sampled_from([0.3, np.float64(0.5), [0.1, 0.62], np.array([[0.2], [0.9]]), 1.0, 0, 1.5])


@STEADY
@given(arrays(), AXES, LEVELS, st.sampled_from(METHODS), options(keepdims=[True]))
@pytest.mark.parametrize("name", ["quantile", "percentile", "nanquantile", "nanpercentile"])
def test_quantiles(
    name: str, x: np.ndarray, axis: Any, q: Any, method: str, keywords: dict[str, Any]
) -> None:
    q = q if "quantile" in name else (100 * np.asarray(q))[()]
    check(lambda v: getattr(np, name)(v, q, axis=axis, method=method, **keywords), x)


@STEADY
@given(arrays(), AXES, options(keepdims=[True, False], overwrite_input=[True]))
@pytest.mark.parametrize("name", ["median", "nanmedian", "ptp"])
def test_medians(name: str, x: np.ndarray, axis: Any, keywords: dict[str, Any]) -> None:
    if name == "ptp":
        keywords.pop("overwrite_input", None)
    # NumPy may take leave to overwrite.
    check(lambda v: getattr(np, name)(v.copy(), axis=axis, **keywords), x)


@STEADY
@given(st.data(), arrays(), AXES)
def test_averages(data: st.DataObject, x: np.ndarray, axis: Any) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    shape = data.draw(st.sampled_from([None, x.shape, x.shape[:1], x.shape[-1:]]))
    weights = None if shape is None else np.asarray(rng.uniform(0.5, 2, size=shape))
    keywords = data.draw(options(returned=[True], keepdims=[True, False]))
    check(lambda v: np.average(v, axis=axis, weights=weights, **keywords), x)


@STEADY
@given(st.data(), arrays(st.sampled_from(["f8", "f4", "c16", "i8", "ties"])))
def test_covariances(data: st.DataObject, x: np.ndarray) -> None:
    n = x.shape[-1] if x.ndim else 1
    keywords = data.draw(options(rowvar=[False], bias=[True], ddof=[0, 1], fweights=[np.arange(n)],
                              aweights=[1.0 / np.arange(1, n + 1)], dtype=[complex]))  # fmt: skip
    check(lambda v: np.cov(v, **keywords), x)
    remaining = {k: v for k, v in keywords.items() if k in ("rowvar", "dtype")}
    check(lambda v: np.corrcoef(v, **remaining), x)


@STEADY
@given(st.data(), arrays(st.sampled_from(["f8", "f4", "i8", "ties"])))
def test_histograms(data: st.DataObject, x: np.ndarray) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    keywords = data.draw(
        options(bins=[3, 0, "fd", [-2, 0, 1, 5], np.linspace(-3, 3, 5)],
                range=[(-2, 2), (1, 1), (2, -2)], density=[True],
                weights=[rng.random(x.shape), rng.random(x.shape).astype("f4")])
    )  # fmt: skip
    check(lambda v: np.histogram(v, **keywords), x)
    if isinstance(keywords.get("bins", 1), int):
        keywords |= {"range": None, "weights": None}
        check(lambda v: np.histogramdd(v.reshape(v.size, 1), **keywords)[0], x)


@STEADY
@given(arrays(st.just("f8")), AXES, st.data())
@pytest.mark.parametrize("name", ["sum", "mean", "std", "nanvar", "nanmax", "median", "cumprod"])
def test_gradients(name: str, x: np.ndarray, axis: Any, data: st.DataObject) -> None:
    options: dict[str, Any] = {"axis": axis}
    if name == "cumprod":
        options = {"axis": 0 if isinstance(axis, tuple) else axis}
    elif name not in ("median", "nanmax"):
        options |= data.draw(masks(x))
    expected = outcome(lambda v: getattr(np, name)(v, **options), x)
    if isinstance(expected, Exception) or not np.all(np.isfinite(expected)):
        return
    if not x.size or (name == "std" and np.any(expected == 0)):
        return  # nothing to differentiate, or a corner
    with np.errstate(all="ignore"):
        check_grads(lambda v: getattr(np, name)(v, **options), (x,), order=1)
