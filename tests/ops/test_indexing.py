"""Picking elements by index: all modes, NumPy's errors."""

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

X = np.random.default_rng(4).normal(size=(3, 4))
ORDER = np.argsort(X, axis=1)


def same(f, x=X):
    """Check values and dtype against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, x)
    want = f(x)
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_array_equal(np.asarray(got), want)
    check_grads(f, (x,))


@pytest.mark.parametrize("axis", [None, 0, 1, -2])
def test_take(axis):
    same(lambda x: np.take(x, [0, 2, 2], axis))
    same(lambda x: np.take(x, 1, axis))
    same(lambda x: np.take(x, [[-1, 0], [1, 1]], axis=axis))
    same(lambda x: x.take([0, 1], axis=axis))
    for mode in ("wrap", "clip"):
        same(lambda x, mode=mode: np.take(x, [-7, 9, 2], axis, mode=mode))


def test_take_into_out():
    def f(x):
        out = np.zeros_like(x[0, :2])
        assert np.take(x[0], [1, 1], out=out) is out
        return out

    check_grads(f, (X,))


def test_take_along_axis():
    same(lambda x: np.take_along_axis(x, ORDER, 1))
    same(lambda x: np.take_along_axis(x, ORDER[:, :1], axis=-1))
    same(lambda x: np.take_along_axis(x, np.array([3, 3, 0]), None))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress_and_extract(axis):
    same(lambda x: np.compress([True, False, True], x, axis))
    same(lambda x: x.compress([False, True], axis))
    same(lambda x: np.extract(X > 0, x))
    same(lambda x: x[x > 0])
    same(lambda x: x[np.nonzero(x > 0)] * np.argwhere(x > 0)[:, 1])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.take(x, [0], axis=2),
        lambda x: np.take(x, [12]),
        lambda x: np.take(x, [0], mode="nothing"),
        lambda x: np.take_along_axis(x, ORDER, 2),
        lambda x: np.take_along_axis(x, ORDER[0], 1),
        lambda x: np.take_along_axis(x, ORDER * 1.0, 1),
        lambda x: np.take_along_axis(x, ORDER, None),
        lambda x: np.take_along_axis(x, ORDER + 9, 1),
        lambda x: np.compress([[True]], x),
        lambda x: np.compress([False] * 5 + [True], x, axis=0),
        lambda x: np.rollaxis(x, 3),
        lambda x: np.rollaxis(x, 1, 4),
    ],
)
def test_numpys_errors(call):
    with pytest.raises((IndexError, ValueError)) as want:
        call(X)
    with pytest.raises((IndexError, ValueError)) as got:
        adarray.vjp(call, X)
    assert isinstance(got.value, type(want.value))


@pytest.mark.parametrize("start", [0, 1, 2, -1])
def test_rollaxis(start):
    same(lambda x: np.rollaxis(x, -1, start))
