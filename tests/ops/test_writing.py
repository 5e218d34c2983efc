"""NumPy's functions that write into their first argument, into ADArrays."""

import numpy as np
import pytest

import adarray
from adarray.errors import TraceError
from adarray.testing import check_grads

RNG = np.random.default_rng(9)
X = RNG.normal(size=(3, 4))
V = np.array([10.0, 20.0, 30.0])
MASK = X > 0

# name -> what writes `v` into `x`
WRITES = {
    "copyto": lambda x, v: np.copyto(x[:, :3], v),
    "copyto where": lambda x, v: np.copyto(x, v[0], where=MASK),
    "copyto where rows": lambda x, v: np.copyto(x, v[:, None], where=MASK[0]),
    "copyto unsafe": lambda x, v: np.copyto(x[0, :3], v, casting="unsafe"),
    "put": lambda x, v: np.put(x, [0, 5, -1], v),
    "put repeats": lambda x, v: np.put(x, [1, 1, 2, 7, 9], v),
    "put fewer": lambda x, v: np.put(x, [3], v),
    "put wraps": lambda x, v: np.put(x, [-13, 14, 40], v, mode="wrap"),
    "put clips": lambda x, v: np.put(x, [-3, 14, 40], v, mode="clip"),
    "put list": lambda x, v: np.put(x, [0, 1], [v[0], v[2] * 2]),
    "put method": lambda x, v: x.put([2, 4], v),
    "place": lambda x, v: np.place(x, MASK, v),
    "putmask": lambda x, v: np.putmask(x, MASK, v),
    "putmask whole": lambda x, v: np.putmask(x, MASK, np.outer(v, v[[0, 1, 2, 0]])),
    "put_along_axis": lambda x, v: np.put_along_axis(x, np.argsort(X, 1)[:, :1], v[:, None], 1),
    "put_along_axis 0": lambda x, v: np.put_along_axis(x, np.argmin(X, 0)[None], v[0], axis=0),
    "put_along_axis flat": lambda x, v: np.put_along_axis(x, np.array([1, 5, 1]), v, axis=None),
    "fill_diagonal": lambda x, v: np.fill_diagonal(x, v),
    "fill_diagonal number": lambda x, v: np.fill_diagonal(x, v[1]),
    "fill_diagonal short": lambda x, v: np.fill_diagonal(x, v[:2]),
    "fill": lambda x, v: x.fill(v[0]),
}


@pytest.mark.parametrize("name", WRITES)
def test_values_and_derivatives(name):
    write = WRITES[name]

    def f(x, v):
        x = x * 1.0
        write(x, v)
        return x * x

    got, _ = adarray.vjp(f, X, V)
    np.testing.assert_array_equal(got, f(X, V))
    check_grads(f, (X, V))


def test_fill_diagonal_that_wraps():
    def f(x, v):
        x = x * 1.0
        np.fill_diagonal(x, v, wrap=True)
        return x * x

    tall = RNG.normal(size=(7, 3))
    got, _ = adarray.vjp(f, tall, V)
    np.testing.assert_array_equal(got, f(tall, V))
    check_grads(f, (tall, V))


# NumPy asks the target only for fill_diagonal, and looks into no list for put.
UNSEEN = {"put list", "put method", "fill", *(n for n in WRITES if n.startswith("fill_diagonal"))}


@pytest.mark.parametrize("name", sorted(WRITES.keys() - UNSEEN))
def test_plain_arrays_refuse_traced_values(name):
    function = name.split()[0]
    with pytest.raises(TraceError, match=f"{function} into a plain ndarray of shape"):
        adarray.vjp(lambda v: WRITES[name](X.copy(), v), V, intercept=False)


@pytest.mark.parametrize("name", ["put list", *sorted(UNSEEN - {"put list", "put method", "fill"})])
def test_what_numpy_does_not_dispatch_raises_too(name):
    with pytest.raises((TraceError, ValueError, TypeError)):
        adarray.vjp(lambda v: WRITES[name](X.copy(), v), V, intercept=False)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: np.put(x, [99], 1.0),
        lambda x: np.put(x, [0], 1.0, mode="nothing"),
        lambda x: np.place(x, MASK, []),
        lambda x: np.putmask(x, MASK[0], 1.0),
        lambda x: np.put_along_axis(x, np.array([0, 1]), 1.0, 1),
        lambda x: np.copyto(x, 1j),
        lambda x: np.copyto(x, np.ones(3)),
        lambda x: np.copyto(x, np.float32(1), casting="no"),
        lambda x: np.fill_diagonal(x[0], 1.0),
    ],
)
def test_numpys_errors(write):
    with pytest.raises((ValueError, TypeError, IndexError)) as want:
        write(X.copy())

    def f(x):
        x = x * 1.0
        write(x)
        return x

    with pytest.raises(type(want.value)) as got:
        adarray.vjp(f, X)
    assert str(want.value) in str(got.value)


def test_a_python_number_is_cast_as_numpy_casts_it():
    x = adarray.array(np.zeros(3, np.float32))
    np.copyto(x, 2.5, casting="safe")
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, [2.5, 2.5, 2.5])
