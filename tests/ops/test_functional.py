"""Choices, and Python functions along arrays."""

import numpy as np
import pytest

import adarray
from adarray.errors import TraceError, UnsupportedFunctionError
from adarray.ops.functional import TracedVectorize
from adarray.testing import check_grads

X = np.array([[-1.5, -0.2, 0.7], [1.2, 2.5, 3.1]])


def same(f, *args):
    """Check values and dtypes against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-14)
    check_grads(f, args)


# -- piecewise, select, choose --------------------------------------------------------------


def test_piecewise_with_functions_and_constants():
    same(lambda x: np.piecewise(x, [x < 0, x > 2], [np.sin, 5.0, np.exp]), X)
    same(lambda x: np.piecewise(x, [x < 0, x >= 0], [-1, lambda v, k: k * v**2], 3.0), X)
    same(lambda x, c: np.piecewise(x, [x < 0], [c, np.square]), X, 2.0)
    same(lambda x: np.piecewise(x, x > 0, [np.square]), X[0])
    same(lambda x: np.piecewise(x, [x > 0], [np.square, np.sin]), 0.7)


def test_piecewise_reads_no_function_where_nothing_is_chosen():
    def fail(x):
        raise AssertionError

    same(lambda x: np.piecewise(x, [x > 100, x <= 100], [fail, np.exp]), X)
    with pytest.raises(ValueError, match="with 1 condition"):
        adarray.vjp(lambda x: np.piecewise(x, [x > 0], [1, 2, 3]), X)


def test_select():
    same(lambda x: np.select([x < 0, x < 2], [x**2, np.sin(x)], default=x), X)
    same(lambda x, d: np.select([X < 0, X < 2], [x, 3], default=d), X, 0.5)
    same(lambda x: np.select([[True, False, True]], [x]), X)
    single = X.astype(np.float32)
    assert np.select([single > 0], [adarray.array(single)], 0).dtype == np.float32


@pytest.mark.parametrize(
    ("conditions", "choices"), [([], []), ([X > 0], [X, X]), ([X], [X]), ([1], [X])]
)
def test_select_raises_numpys_errors(conditions, choices):
    with pytest.raises((ValueError, TypeError)) as want:
        np.select(conditions, choices)
    with pytest.raises((ValueError, TypeError)) as got:
        np.select(conditions, choices, adarray.array(1.0))
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize("mode", ["raise", "wrap", "clip"])
def test_choose(mode):
    a = np.array([0, 2, 1]) if mode == "raise" else np.array([-1, 5, 1])
    same(lambda x, y: np.choose(a, [x, y, 1.5], mode=mode), X, X[0])
    same(lambda x: np.choose(a, x, mode=mode), np.arange(9.0).reshape(3, 3))
    same(lambda x: np.choose(1, [x, 2 * x]), X)
    single, _ = adarray.vjp(lambda x: np.choose([0, 1, 0], [x, 2.0]), X.astype(np.float32))
    assert np.asarray(single).dtype == np.float32


def test_choose_out_of_range_and_into_out():
    with pytest.raises(ValueError, match="invalid entry in choice array"):
        adarray.vjp(lambda x: np.choose([0, 3, 1], [x, x]), X)

    def f(x):
        out = np.zeros_like(x[0])
        assert np.choose([1, 0, 1], [x[0], x[1]], out=out) is out
        return out

    check_grads(f, (X,))


# -- along axes -------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_apply_along_axis(axis):
    same(lambda x: np.apply_along_axis(lambda r: np.cumsum(r) * r[0], axis, x), X)
    same(lambda x: np.apply_along_axis(np.sum, axis, x), X)
    same(lambda x: np.apply_along_axis(lambda r: [r[0], 2.0], axis, x), X)
    same(lambda x: np.apply_along_axis(lambda r, k, p=1: np.diag(r**p) * k, axis, x, 2.0, p=3), X)


def test_apply_along_axis_of_positions_is_constant():
    actual, _ = adarray.vjp(lambda x: np.sum(x) * np.apply_along_axis(np.argmax, 1, x), X)
    np.testing.assert_allclose(actual, np.sum(X) * np.argmax(X, axis=1))


def test_apply_over_axes():
    cube = np.arange(24.0).reshape(2, 3, 4) / 7
    same(lambda x: np.apply_over_axes(np.sum, x**2, [0, -1]), cube)
    same(lambda x: np.apply_over_axes(np.prod, x + 1, 1), cube)


# -- vectorize --------------------------------------------------------------------------------


def branch(x, y):
    """Return a value by a branch that arrays cannot take."""
    return x * y if x > y else x - np.exp(y)


def test_vectorize_calls_the_function_for_each_element():
    f = TracedVectorize(branch)
    np.testing.assert_array_equal(f(X, 0.5), np.vectorize(branch)(X, 0.5))
    got, _ = adarray.vjp(f, X, X[0])
    np.testing.assert_array_equal(got, np.vectorize(branch)(X, X[0]))
    check_grads(f, (X + 0.1, X[0]))
    check_grads(lambda y: f(X, y), (0.5,))
    check_grads(f, (0.3, 0.5))


def test_vectorize_keeps_numpys_arguments():
    many = TracedVectorize(
        lambda x, k: (x * k, x**2), excluded=["k"], doc="Two.", otypes=[float, float]
    )
    assert many.__doc__ == "Two."
    check_grads(lambda x: many(x, k=3.0), (X,))
    first, second = many(adarray.array(X), k=3.0)
    np.testing.assert_array_equal(first, X * 3)
    np.testing.assert_array_equal(second, X**2)
    empty = TracedVectorize(lambda x: x, otypes=[np.float32])(np.zeros((0, 2)))
    assert empty.shape == (0, 2)
    assert empty.dtype == np.float32
    with pytest.raises(ValueError, match="cannot call `vectorize` on size 0 inputs"):
        TracedVectorize(lambda x: x)(np.zeros(0))
    with pytest.raises(TraceError, match="array with dtype=int64"):
        adarray.vjp(TracedVectorize(lambda x: 0 if x < 0 else x), X)  # the first result is an int


def test_vectorize_as_a_decorator_with_a_signature():
    @TracedVectorize(signature="(n),(n)->(),(n)")
    def parts(x, y):
        return np.sum(x * y), x / (1 + y**2)

    first, second = parts(X, X[0])
    np.testing.assert_allclose(first, X @ X[0])
    np.testing.assert_allclose(second, X / (1 + X[0] ** 2))
    check_grads(parts, (X, X[0]))
    check_grads(lambda x: parts(x, X[0]), (X,))


def test_numpys_own_vectorize_and_frompyfunc_are_refused():
    with pytest.raises(TraceError, match=r"np\.asarray: a traced value would leave the graph"):
        adarray.vjp(np.vectorize(branch), X, X)
    with pytest.raises(UnsupportedFunctionError) as error:
        adarray.vjp(np.frompyfunc(branch, 2, 1), X, X)
    assert "branch (vectorized): adarray has no derivative rule for this function" in str(
        error.value
    )


def test_fromfunction_with_a_traced_closure():
    check_grads(lambda k: np.fromfunction(lambda i, j: np.sin(k * i) + j * k, (3, 2)), (0.7,))
    check_grads(lambda k: np.fromfunction(lambda i, k: i * k, (3,), k=k), (0.7,))
