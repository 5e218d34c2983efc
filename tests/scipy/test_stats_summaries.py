"""`adarray.scipy.stats`: distributions of vectors, and summary statistics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import adarray
import adarray.scipy.special
import adarray.scipy.stats as stats
from adarray.core.protocol import traced
from adarray.errors import ShapeError
from adarray.scipy.stats._summaries import SUMMARIES
from adarray.testing import check_grads


def close(got: Any, expected: Any) -> None:
    values = adarray.value_of(got)
    np.testing.assert_allclose(values, expected, rtol=1e-10, atol=1e-15)
    assert np.asarray(values).dtype == np.asarray(expected).dtype


# -- vectors -------------------------------------------------------------------------------------

A = np.array([[1.2, 0.0, 0.0], [0.4, 0.9, 0.0], [-0.3, 0.2, 1.1]])
COV = A @ A.T
MEAN = np.array([0.2, -0.1, 0.5])
X = np.array([[0.3, 0.4, -0.2], [1.0, -1.0, 0.1]])


@pytest.mark.parametrize("method", ["pdf", "logpdf"])
def test_multivariate_normal(method: str) -> None:
    f, other = getattr(stats.multivariate_normal, method), scipy.stats.multivariate_normal
    for x, mean, cov in (
        (X, MEAN, COV), (X[0], MEAN, COV), (X, None, 2.0), (X, MEAN, np.array([1.0, 2.0, 0.5])),
        (np.array([0.3, 1.2]), 0.1, 1.5), (0.3, 0.1, 1.5),
    ):  # fmt: skip
        mean_or_zero = np.zeros(3) if mean is None else mean
        got = f(x, adarray.array(mean_or_zero, dtype=float, requires_grad=True), cov)
        expected = getattr(other, method)(x, mean_or_zero, cov)
        np.testing.assert_allclose(adarray.value_of(got), expected, rtol=1e-10)
        assert np.shape(got) == np.shape(expected)
    check_grads(lambda x, m, a: f(x, m, a @ a.T), (X, MEAN, A))
    frozen = adarray.grad(
        lambda m: np.sum(stats.multivariate_normal(m, COV).logpdf(X)),
    )(MEAN)
    np.testing.assert_allclose(frozen, np.linalg.solve(COV, (X - MEAN).sum(0)), rtol=1e-10)


def test_entropy_of_multivariate_normal() -> None:
    check_grads(lambda a: stats.multivariate_normal.entropy(MEAN, a @ a.T), (A,))
    got = stats.multivariate_normal.entropy(MEAN, adarray.array(COV, requires_grad=True))
    np.testing.assert_allclose(
        adarray.value_of(got), scipy.stats.multivariate_normal.entropy(MEAN, COV), rtol=1e-12
    )
    plain = stats.multivariate_normal(MEAN, COV)
    assert plain.entropy() == scipy.stats.multivariate_normal(MEAN, COV).entropy()
    with pytest.raises(ShapeError, match=r"the covariance has shape \(2, 2\) for vectors of 3"):
        stats.multivariate_normal.logpdf(X, adarray.array(MEAN, requires_grad=True), np.eye(2))


@pytest.mark.parametrize("method", ["pdf", "logpdf"])
def test_multivariate_t(method: str) -> None:
    f, other = getattr(stats.multivariate_t, method), getattr(scipy.stats.multivariate_t, method)
    got = f(X, MEAN, adarray.array(COV, requires_grad=True), 3.5)
    np.testing.assert_allclose(adarray.value_of(got), other(X, MEAN, COV, 3.5), rtol=1e-10)
    check_grads(lambda x, m, a, df: f(x, m, a @ a.T, df), (X, MEAN, A, 3.5))


def test_dirichlet() -> None:
    alpha, x = np.array([1.2, 2.0, 0.7]), np.array([0.2, 0.5, 0.3])
    for name, args in (
        ("logpdf", (x, alpha)), ("pdf", (x[:2], alpha)), ("entropy", (alpha,)), ("mean", (alpha,)),
        ("var", (alpha,)),
    ):  # fmt: skip
        f = getattr(stats.dirichlet, name)
        traced_alpha = adarray.array(alpha, requires_grad=True)
        got = f(*args[:-1], traced_alpha)
        expected = getattr(scipy.stats.dirichlet, name)(*args)
        np.testing.assert_allclose(adarray.value_of(got), expected, rtol=1e-10)
        check_grads(lambda a, f=f, args=args: f(*args[:-1], a), (alpha,))
    check_grads(lambda y: stats.dirichlet.logpdf(y, alpha), (x[:2],))
    with pytest.raises(ValueError, match="parameters must be greater than 0"):
        stats.dirichlet.logpdf(x, -adarray.array(alpha, requires_grad=True))


def test_multinomial() -> None:
    p, x = np.array([0.2, 0.5, 0.3]), np.array([[1, 2, 2], [0, 5, 0], [1, 1, 1]])
    got = stats.multinomial.logpmf(x, 5, adarray.array(p, requires_grad=True))
    np.testing.assert_allclose(
        adarray.value_of(got), scipy.stats.multinomial.logpmf(x, 5, p), rtol=1e-10
    )
    check_grads(
        lambda v: stats.multinomial.pmf(x[:2], 5, stats_softmax(v)), (np.array([0.1, 0.4, -0.3]),)
    )


def stats_softmax(v: Any) -> Any:
    return adarray.scipy.special.softmax(v)


# -- summaries -----------------------------------------------------------------------------------

D = np.array([[0.3, 1.2, 2.2], [1.9, 0.7, 0.2], [0.8, 2.4, 1.1], [2.9, 0.4, 1.7], [1.4, 3.1, 0.6]])
W = np.array([[0.2], [0.5], [1.0], [0.7], [0.3]])
SUMMARY_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("zscore", {}), ("zscore", {"axis": 1, "ddof": 1}), ("sem", {}),
    ("sem", {"axis": None, "ddof": 0}), ("variation", {"axis": 1, "keepdims": True}),
    ("gstd", {}), ("moment", {}), ("moment", {"order": 3, "axis": 1}),
    ("moment", {"order": 2, "center": 0.5, "keepdims": True}), ("skew", {}),
    ("skew", {"bias": False, "axis": None}), ("kurtosis", {}),
    ("kurtosis", {"fisher": False, "bias": False, "axis": 0}), ("gmean", {}),
    ("gmean", {"weights": W}), ("hmean", {"axis": 1}), ("hmean", {"weights": W}),
    ("entropy", {}), ("entropy", {"base": 2, "axis": 1}), ("iqr", {}),
    ("iqr", {"axis": 0, "rng": (10, 80)}), ("median_abs_deviation", {}),
    ("median_abs_deviation", {"scale": "normal", "axis": None}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "kwargs"), SUMMARY_CALLS)
def test_summary(name: str, kwargs: dict[str, Any]) -> None:
    f = getattr(stats, name)
    got = f(adarray.array(D, requires_grad=True), **kwargs)
    assert traced(got)
    close(got, getattr(scipy.stats, name)(D, **kwargs))
    check_grads(lambda a: f(a, **kwargs), (D,))


def test_summaries_of_two_arguments() -> None:
    x, y = D[:, 0], D[:, 1] + 2 * D[:, 0]
    for name, args in (
        ("zmap", (x, y)), ("entropy", (x, y)), ("pmean", (x, 1.5)), ("boxcox", (x, 0.3)),
        ("boxcox_llf", (0.3, x)),
    ):  # fmt: skip
        f = getattr(stats, name)
        close(
            f(*(adarray.array(a, requires_grad=True) for a in args)),
            getattr(scipy.stats, name)(*args),
        )
        check_grads(f, args)


def test_pearsonr() -> None:
    x, y = D[:, 0], D[:, 1]
    r = stats.pearsonr(adarray.array(x, requires_grad=True), y)
    expected = scipy.stats.pearsonr(x, y)
    np.testing.assert_allclose(adarray.value_of(r.statistic), expected.statistic, rtol=1e-12)
    np.testing.assert_allclose(adarray.value_of(r.pvalue), expected.pvalue, rtol=1e-10)
    check_grads(lambda x, y: tuple(stats.pearsonr(x, y)), (x, y))
    check_grads(lambda x: stats.pearsonr(x, D[::-1], axis=0).statistic, (D,))


def test_linregress() -> None:
    x, y = D[:, 0], D[:, 1]
    r = stats.linregress(x, adarray.array(y, requires_grad=True))
    expected = scipy.stats.linregress(x, y)
    for name in ("slope", "intercept", "rvalue", "pvalue", "stderr", "intercept_stderr"):
        np.testing.assert_allclose(
            adarray.value_of(getattr(r, name)), getattr(expected, name), rtol=1e-10
        )
    slope, intercept, *_ = r
    assert len(r) == 5
    assert traced(slope)
    assert traced(intercept)
    check_grads(lambda x, y: tuple(stats.linregress(x, y)), (x, y))
    assert stats.linregress(adarray.array(x), y).slope == expected.slope


def test_describe_and_mode() -> None:
    got = stats.describe(adarray.array(D, requires_grad=True))
    expected = scipy.stats.describe(D)
    assert got.nobs == expected.nobs
    for name in ("mean", "variance", "skewness", "kurtosis"):
        np.testing.assert_allclose(
            adarray.value_of(getattr(got, name)), getattr(expected, name), rtol=1e-12
        )
    np.testing.assert_array_equal(adarray.value_of(got.minmax[0]), expected.minmax[0])
    a = np.array([1.0, 2.0, 2.0, 3.0])
    actual = stats.mode(adarray.array(a, requires_grad=True))
    assert adarray.value_of(actual.mode) == 2.0
    assert actual.count == 2
    np.testing.assert_array_equal(
        adarray.grad(lambda a: stats.mode(a).mode)(a), [0.0, 0.5, 0.5, 0.0]
    )


def test_ranks_are_constant() -> None:
    a = adarray.array([3.0, 1.0, 2.0], requires_grad=True)
    ranks = stats.rankdata(a)
    np.testing.assert_array_equal(adarray.value_of(ranks), [3.0, 1.0, 2.0])
    assert not traced(ranks)


def test_every_summary_is_tested() -> None:
    mentioned = {name for name, _ in SUMMARY_CALLS} | {
        "zmap", "pmean", "boxcox", "boxcox_llf", "pearsonr", "linregress", "describe", "mode",
        "rankdata",
    }  # fmt: skip
    assert set(SUMMARIES) == mentioned
