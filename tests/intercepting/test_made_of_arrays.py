"""Numbers of NumPy's classes, arrays over the memory of others, and ``out=`` of plain operands."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import adarray
import adarray.numpy
from tests.support.trust import check

X = np.array([0.7, 1.3, 0.4, 1.9, 1.1, 0.8])
P = np.array([[1.5, 0.2, 0.9], [0.4, 1.2, 0.3], [0.8, 0.1, 1.7]])


def refused(f, modes=("intercept", "jit", "jit(grad)")):
    """Return how many modes refuse a function; raise where one is wrong."""
    return check(f, (X,), modes, backends=("serial",), calls=3)["refused"]


CLASSES = {
    "int8": lambda x: np.int8(x),
    "int32": lambda x: np.int32(x),
    "int64": lambda x: np.int64(x),
    "uint8": lambda x: np.uint8(x),
    "bool": lambda x: np.bool_(x),
    "intp": lambda x: np.intp(x),
    "longlong": lambda x: np.longlong(x),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_calls_of_integer_classes_take_steps_whose_derivative_is_zero(kind):
    """They were refused, as ``np.asarray(x, int)`` is, which ``x.astype(int)`` is not."""

    def number(x):
        return x * CLASSES[kind](x[3] * 2)

    def array(x):
        return x * CLASSES[kind](x * 2)

    for f in (number, array):
        assert refused(f) == 0


def test_a_number_of_an_integer_class_counts_and_indexes():
    def f(x):
        n = np.int64(x[3] * 2)
        return np.sum(x[:n]) * x[np.int32(x[1])] + np.zeros(n).size

    assert refused(f) == 0


def contiguous(x):
    return np.ndarray((2, 3), buffer=x) ** 2


def in_columns(x):
    return np.ndarray((3, 2), np.float64, x * 1.0, order="F") ** 2 * np.arange(6.0).reshape(3, 2)


def strided(x):
    a = x * 2
    return np.ndarray((2,), dtype=float, buffer=a, offset=8, strides=(16,)) ** 3


def backwards(x):
    return np.ndarray(3, buffer=x * 2, offset=16, strides=(-8,)) ** np.arange(3)


def of_a_matrix(x):
    return np.ndarray(4, buffer=np.asfortranarray(x.reshape(2, 3)), offset=8) ** 2


def written(x):
    a = x * 2
    b = np.ndarray((2, 3), buffer=a)
    b[0] = x[:3] ** 2
    a[4] *= x[0]
    return a * 1.0, b * 1.0


def filled(x):
    a = np.zeros(6)
    np.ndarray((2, 3), buffer=a)[1] = x[:3] ** 2
    return a * x


@pytest.mark.parametrize(
    "f", [contiguous, in_columns, strided, backwards, of_a_matrix, written, filled]
)
def test_an_array_over_a_buffer_is_a_view_of_it(f):
    """NumPy asked for "a bytes-like object", and got an ADArray."""
    assert refused(f) == 0


def test_an_array_over_a_buffer_that_is_no_slice_is_refused():
    def f(x):
        return np.sum(np.ndarray((2, 2), buffer=x, strides=(24, 8)))

    with pytest.raises(adarray.TraceError, match="take a slice"):
        adarray.grad(f, intercept=True)(X)
    with pytest.raises(TypeError, match="buffer is too small"):
        adarray.grad(lambda x: np.sum(np.ndarray(9, buffer=x)), intercept=True)(X)


def test_the_namespace_has_arrays_over_buffers():
    xp = adarray.numpy
    g = adarray.grad(lambda x: xp.sum(xp.ndarray((2, 3), buffer=x) ** 2))(X)
    np.testing.assert_allclose(g, 2 * X)


@pytest.mark.parametrize(
    ("shape", "window", "axis"),
    [((6,), [2], [0]), ((2, 3), [2, 2], [0, 1]), ((2, 3), (2,), [-1]), ((2, 3), [1, 2], (1, 1)),
     ((2, 3), np.array([1, 2]), np.array([0, 1])), ((6,), 3, None)],
)  # fmt: skip
def test_windows_along_a_list_of_axes(shape, window, axis):
    """The rule compared a list with a number."""

    def f(x):
        return sliding_window_view(x.reshape(shape), window, axis=axis) ** 2

    assert refused(f) == 0


OUT = {
    "one term": lambda b: np.einsum("ij->i", P, out=b),
    "two terms": lambda b: np.einsum("ij,j->i", P, P[0], out=b),
    "three terms": lambda b: np.einsum("ij,jk,k->i", P, P, P[0], out=b, optimize=True),
    "diagonal": lambda b: np.einsum("ii->i", P, out=b),
    "sublists": lambda b: np.einsum(P, [0, 1], [1], out=b),
    "matmul": lambda b: np.matmul(P, P[0], out=b),
    "dot": lambda b: np.dot(P, P[1], out=b),
    "add": lambda b: np.add(P[0], 1, b),
    "where": lambda b: np.sin(P[0], out=b, where=[True, False, True]),
    "reduce": lambda b: np.add.reduce(P, axis=0, out=b),
    "median": lambda b: np.median(P, axis=1, out=b),
    "concatenate": lambda b: np.concatenate([P[0, :1], P[1, 1:]], out=b),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OUT)
def test_out_of_plain_operands(name):
    """``np.einsum`` failed an assertion; `jit` said that what NumPy had made was no input."""

    def into_zeros(x):
        b = np.zeros(3)
        OUT[name](b)
        return b * x[:3]

    def into_a_part(x):
        b = x * 2
        OUT[name](b[1:4])
        return b * x

    for f in (into_zeros, into_a_part):
        assert refused(f) == 0


def parts(x):
    a = np.zeros(6, complex)
    a.imag[:] = x
    a.real[:] = x**2
    a.imag[1:3] *= 2
    a.real[::2] += x[::2]
    return np.abs(a) ** 2 * x


def parts_of_a_computed_array(x):
    a = x + 0j
    a.imag[...] = x**2
    a.real = 3
    np.multiply(a.imag, 2, out=a.imag)
    return np.abs(a) ** 2


@pytest.mark.parametrize("f", [parts, parts_of_a_computed_array])
def test_real_and_imaginary_parts_are_written_into(f):
    assert refused(f) == 0
