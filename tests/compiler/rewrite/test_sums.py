"""Sums of multiples of what is summed already."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import agrees, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Reduce

RNG = np.random.default_rng(7)


def sums(r):
    """Return the shapes of what the program sums up."""
    return [
        v.args[0].shape
        for v in r.program.values
        if isinstance(v.primitive, Reduce) and v.primitive.combine == "add"
    ]


def at(k):
    """Return where a row's number is."""
    return np.arange(30) == k[:, None]


def cross_entropy(z, labels):
    z = z - np.max(z, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(labels)), labels])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cross_entropy_sums_exponentials_and_ties_alone(dtype):
    z, labels = RNG.normal(size=(6, 50)).astype(dtype), RNG.integers(-50, 50, 6)
    r = recorded(adarray.value_and_grad(cross_entropy), z, labels)
    assert sums(r).count((6, 50)) == 2
    agrees(r)


def test_the_largest_score_gets_no_more_than_rounding():
    """The gradient of the maximum is what the scores' gradients sum up to: zero."""
    z, labels = RNG.normal(size=(40, 300)), RNG.integers(0, 300, 40)
    r = recorded(adarray.value_and_grad(cross_entropy), z, labels)
    _, gradient = interpret(r.program, r.arrays)
    p = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    p[np.arange(40), labels] -= 1
    np.testing.assert_allclose(gradient, p / 40, rtol=1e-13, atol=1e-17)


@pytest.mark.parametrize(
    "f",
    [
        lambda e, s, c, k: np.sum(e / s[:, None], axis=1),
        lambda e, s, c, k: np.sum(e * (3.0 / s[:, None]), axis=1),
        lambda e, s, c, k: np.sum(-((-0.5 / s[:, None]) * e) * 2.0, axis=1),
        lambda e, s, c, k: np.sum(2.5 * e, axis=1),
        lambda e, s, c, k: np.sum(np.where(at(k), c[:, None], 0.0) - e / 3.0, axis=1),
        lambda e, s, c, k: np.sum(e / s[:, None] + np.where(at(k), 2.0, 0.0), axis=1),
    ],
)
def test_one_sum_serves_its_multiples(f):
    def both(x, c, k):
        e = np.exp(x)
        s = np.sum(e, axis=1)
        return s, f(e, s, c, k)

    places = np.array([4, 0, 29, -1, 30])  # the last two are in no row
    r = recorded(both, RNG.normal(size=(5, 30)), RNG.normal(size=5) + 3.0, places)
    assert sums(r) == [(5, 30)]
    agrees(r, rtol=1e-13)


@pytest.mark.parametrize(
    "f",
    [
        lambda e, d, c: np.sum(e * d, axis=1),  # the factor differs along the row
        lambda e, d, c: np.sum(e * c[:, None], axis=1),  # it may be zero or infinite
        lambda e, d, c: np.sum(e / c[:, None], axis=1),
        lambda e, d, c: np.sum(e * 0.0, axis=1),
        lambda e, d, c: np.sum(e * np.inf, axis=1),
        lambda e, d, c: np.sum(c[:, None] * e, axis=0),  # other axes
        lambda e, d, c: np.sum(2.0 * e - 2.0 * d, axis=1),  # terms that may cancel
        lambda e, d, c: np.sum(np.where(np.arange(30) < 4, c[:, None], 0.0) + e, axis=1),
        lambda e, d, c: np.sum(np.where(np.arange(30) == 4, 1.0, 0.5) + e, axis=1),
        lambda e, d, c: np.sum(c[:, None] / e, axis=1),
    ],
)
def test_other_sums_stay(f):
    def all_(x, c):
        e, d = np.exp(x), np.exp(x * 1.001)
        return np.sum(e, axis=1), np.sum(d, axis=1), f(e, d, c)

    r = recorded(all_, RNG.normal(size=(5, 30)), RNG.normal(size=5) + 3.0)
    assert len(sums(r)) == 3
    agrees(r)


def test_a_quotient_by_zero_is_nan_where_it_was():
    def f(x, c):
        e = np.exp(x)
        return np.sum(e, axis=1), np.sum(e / c[:, None], axis=1)

    x = np.array([[0.0, -np.inf]])
    with np.errstate(all="ignore"):
        r = recorded(f, x, np.zeros(1))
        _, quotient = interpret(r.program, r.arrays)
    assert np.isnan(quotient[0])


def test_softmax_of_what_is_not_finite_is_as_in_numpy():
    z = RNG.normal(size=(6, 20))
    z[0, 3], z[1, 4], z[2, 5], z[3], z[4, :2] = np.nan, np.inf, -np.inf, -np.inf, (np.inf, np.nan)
    labels = RNG.integers(0, 20, 6)
    with np.errstate(all="ignore"):
        r = recorded(adarray.value_and_grad(cross_entropy), z, labels)
        _, gradient = interpret(r.program, r.arrays)
        _, eager = adarray.value_and_grad(cross_entropy)(z, labels)
    assert sums(r).count((6, 20)) == 2
    np.testing.assert_allclose(gradient, eager, rtol=1e-12, atol=1e-16)
