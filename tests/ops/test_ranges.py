"""Ranges and grids with traced ends."""

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

A, B = np.array([1.5, 2.0]), np.array([4.0, 3.5])


def same(f, *args):
    """Check values and dtypes against NumPy's, then derivatives."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    got, want = (x if isinstance(x, (list, tuple)) else (x,) for x in (got, want))
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-15)
    check_grads(f, args)


@pytest.mark.parametrize("function", [np.linspace, np.logspace, np.geomspace])
@pytest.mark.parametrize("kwargs", [{}, {"endpoint": False}, {"num": 1}, {"num": 0}])
def test_numbers(function, kwargs):
    kwargs = {"num": 5, **kwargs}
    same(lambda a, b: function(a, b, **kwargs), 1.5, 2.5)


@pytest.mark.parametrize("function", [np.linspace, np.logspace, np.geomspace])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_arrays_along_an_axis(function, axis):
    same(lambda a, b: function(a, b, 4, axis=axis), A, B)
    same(lambda a: function(a, 5.0, 4, axis=axis), A)
    same(lambda b: function(1, b, 4, axis=axis), B)


def test_a_range_of_length_zero_keeps_its_derivative():
    same(lambda a, b: np.linspace(a, b, 4), 2.0, 2.0)
    same(lambda a, b: np.linspace(a, b, 4), A, np.array([1.5, 3.0]))


@pytest.mark.parametrize("endpoint", [True, False])
def test_linspace_returns_its_step(endpoint):
    same(lambda a, b: np.linspace(a, b, 5, endpoint=endpoint, retstep=True), A, B)


def test_dtype_is_honoured():
    got, _ = adarray.vjp(lambda a: np.linspace(a, 4, 5, dtype=np.float32), 1.0)
    assert np.asarray(got).dtype == np.float32
    single, _ = adarray.vjp(lambda a: np.geomspace(a, 4, 5, dtype=np.float32), 1.0)
    assert np.asarray(single).dtype == np.float32
    ints = np.linspace(adarray.array(0.0), 4.5, 5, dtype=int)
    np.testing.assert_array_equal(ints, np.linspace(0.0, 4.5, 5, dtype=int))
    assert ints.dtype == np.linspace(0.0, 4.5, 5, dtype=int).dtype


def test_logspace_in_its_base():
    same(lambda a, b, base: np.logspace(a, b, 4, base=base), 0.5, 2.0, 3.0)
    same(lambda a, base: np.logspace(a, 2.0, 4, base=base), 0.5, np.array([2.0, 3.0]))


def test_geomspace_of_negative_ends():
    same(lambda a, b: np.geomspace(a, b, 4), -8.0, -1.0)
    with pytest.raises(ValueError, match="Geometric sequence cannot include zero"):
        adarray.vjp(lambda a: np.geomspace(a, 0.0, 4), 2.0)


def test_a_negative_number_of_samples_raises_numpys_error():
    with pytest.raises(ValueError, match="Number of samples, -1, must be non-negative"):
        adarray.vjp(lambda a: np.linspace(a, 0.0, -1), 2.0)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("copy", [False, True])
def test_meshgrid(indexing, sparse, copy):
    def f(x, y, z):
        return np.meshgrid(x, y, z, indexing=indexing, sparse=sparse, copy=copy)

    same(f, A, B, np.array([3.0, 4.0, 5.0]))
    same(lambda x: np.meshgrid(x, 2.0, indexing=indexing, sparse=sparse, copy=copy), A)


def test_ix_opens_a_mesh_of_values():
    same(lambda x, y: np.ix_(x, y), A, np.array([1.0, 2.0, 3.0]))
    rows, columns = np.ix_(adarray.array([True, False, True]), [0, 2])
    np.testing.assert_array_equal(np.eye(3)[rows, columns], [[1, 0], [0, 1]])


def test_index_functions_keep_working_on_shapes_of_traced_arrays():
    def f(x):
        n = len(x)
        return x[np.tril_indices(n)] * np.tri(n)[np.tril_indices(n)] + x[np.diag_indices(n)].sum()

    check_grads(f, (np.arange(9.0).reshape(3, 3),))
