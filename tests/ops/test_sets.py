"""Sets of values: positions as NumPy finds them, derivatives to the elements that stay."""

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

A = np.array([3.0, 1.0, 2.5, 1.0, 3.0, -1.0])
B = np.array([2.5, 7.0, 1.0, 7.0])
ROWS = np.array([[1.0, 2.0, 1.0], [0.5, 1.0, 0.5], [1.0, 2.0, 1.0]])


def agree(got, want):
    """Check one result, or each of several, against NumPy's."""
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert isinstance(a, adarray.ADArray)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(np.asarray(adarray.value_of(a)), b)


def in_trace(f, *args):
    """Return the results of `f` on traced arguments, as ADArrays."""
    references = []

    def run(*xs):
        result = f(*xs)
        references.append(result)
        first = result[0] if isinstance(result, tuple) else result
        return np.sum(first)

    adarray.grad(run, argnums=tuple(range(len(args))), intercept=False)(*args)
    return references[0]


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize(("x", "axis"), [(A, None), (ROWS, None), (ROWS, 0), (ROWS, 1)])
def test_unique(x, axis, index, inverse, counts):
    def f(x):
        return np.unique(x, index, inverse, counts, axis)

    agree(in_trace(f, x), f(x))


def test_unique_gives_the_derivative_to_the_first():
    grad = adarray.grad(lambda x: np.sum(np.unique(x) * [1.0, 2.0, 3.0, 4.0]))(A)
    np.testing.assert_array_equal(grad, [4, 2, 3, 0, 0, 1])
    grad = adarray.grad(lambda x: np.sum(np.unique(x, axis=0) * [[1.0], [2.0]]))(ROWS)
    np.testing.assert_array_equal(grad, [[2, 2, 2], [1, 1, 1], [0, 0, 0]])
    check_grads(np.unique, (np.array([2.0, -1.0, 0.5]),))


@pytest.mark.parametrize("equal_nan", [False, True])
def test_unique_of_nan(equal_nan):
    x = np.array([np.nan, 1.0, np.nan, 0.0])

    def f(x):
        return np.unique(x, return_counts=True, equal_nan=equal_nan)

    agree(in_trace(f, x), f(x))


@pytest.mark.parametrize(
    "function",
    [np.unique_all, np.unique_counts, np.unique_inverse, np.unique_values],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("x", [A, ROWS, np.array([np.nan, 1.0, np.nan]), np.zeros(0)])
def test_named_forms_of_unique(function, x):
    got, want = in_trace(function, x), function(x)
    if function is np.unique_values:
        agree(got, want)
        return
    assert type(got) is type(want)
    agree(tuple(got), tuple(want))


def test_set_operations_keep_values_and_derivatives():
    for function in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d):
        agree(in_trace(function, A, B), function(A, B))
        agree(in_trace(lambda a, f=function: f(a, B), A), function(A, B))
        agree(in_trace(lambda b, f=function: f(A, b), B), function(A, B))
    unequal = np.array([0.3, 4.0, -2.0])
    for function in (np.union1d, np.setdiff1d, np.setxor1d):
        check_grads(function, (np.array([1.0, 5.0]), unequal))


def test_set_operations_on_unique_arguments():
    a, b = np.array([3.0, 1.0, 2.0]), np.array([2.0, 5.0, 1.0])
    for function in (np.intersect1d, np.setdiff1d, np.setxor1d):

        def f(a, b, function=function):
            return function(a, b, assume_unique=True)

        agree(in_trace(f, a, b), f(a, b))


def test_intersect1d_with_positions_and_its_derivative():
    def f(a, b):
        return np.intersect1d(a, b, return_indices=True)

    agree(in_trace(f, A, B), f(A, B))
    grads = adarray.grad(lambda a, b: np.sum(np.intersect1d(a, b)), argnums=(0, 1))(A, B)
    np.testing.assert_array_equal(grads[0], [0, 1, 1, 0, 0, 0])
    np.testing.assert_array_equal(grads[1], np.zeros(4))


def test_isin_is_constant():
    grad = adarray.grad(lambda a: np.sum(a * np.isin(a, B)))(A)
    np.testing.assert_array_equal(grad, np.isin(A, B).astype(float))


@pytest.mark.parametrize("trim", ["f", "b", "fb"])
@pytest.mark.parametrize("x", [[0.0, 0.0, 1.0, 0.0, 2.0, 0.0], [0.0, 0.0], [1.0, 2.0], [0.0, 3.0]])
def test_trim_zeros(trim, x):
    x = np.array(x)
    want = np.trim_zeros(x, trim)
    agree(in_trace(lambda x: np.trim_zeros(x, trim), x), want)
    grad = adarray.grad(lambda x: np.sum(np.trim_zeros(x, trim)))(x)
    assert np.sum(grad) == want.size
    np.testing.assert_array_equal(x[grad == 1], want)


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.2.0", reason="axis is new in 2.2")
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
def test_trim_zeros_of_several_axes(axis):
    if isinstance(axis, tuple) and np.lib.NumpyVersion(np.__version__) < "2.4.0":
        pytest.skip("NumPy before 2.4 fails with several axes")
    x = np.zeros((4, 5))
    x[1:3, 2] = 1.5
    agree(in_trace(lambda x: np.trim_zeros(x, axis=axis), x), np.trim_zeros(x, axis=axis))
