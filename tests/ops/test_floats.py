"""i0 and the Kaiser window; parts and neighbours of floating point numbers."""

import numpy as np
import pytest

import adarray
import adarray.numpy
from adarray.errors import TraceError
from adarray.ops.bessel import _i1
from adarray.ops.borrow import borrowed
from adarray.testing import check_grads

X = np.array([-9.5, -2.1, -0.3, 0.7, 7.999, 8.001, 30.4])


def test_i1_against_references():
    """Values of Abramowitz and Stegun, table 9.8, and the sum rule of its order 0."""
    np.testing.assert_allclose(_i1(np.float64(1.0)), 0.5651591039924851, rtol=1e-15)
    np.testing.assert_allclose(_i1(np.float64(10.0)), 2670.988303701255, rtol=1e-14)
    np.testing.assert_allclose(_i1(-X), -_i1(X))
    assert _i1(np.float64(0)) == 0
    assert np.isfinite(_i1(np.float64(712.0)))
    assert _i1(np.float32(2)).dtype == np.float32
    special = pytest.importorskip("scipy.special")
    at = np.concatenate([np.linspace(-20, 20, 401), np.linspace(20, 700, 100)])
    np.testing.assert_allclose(_i1(at), special.i1(at), rtol=3e-14)


def test_i0_to_the_third_derivative():
    check_grads(np.i0, (X[:-1],))
    third = adarray.grad(adarray.grad(adarray.grad(np.i0)))
    # I0''' = I1'' = I1 (1 + 2 / x**2) - I0 / x
    x = 1.7
    i0, i1 = np.i0(x), _i1(np.float64(x))
    np.testing.assert_allclose(third(x), i1 * (1 + 2 / x**2) - i0 / x, rtol=1e-13)


def test_i0_is_smooth_at_zero():
    assert adarray.grad(np.i0)(0.0) == 0
    assert adarray.grad(adarray.grad(np.i0))(0.0) == 0.5


def test_kaiser_in_its_shape():
    kaiser = borrowed(np.kaiser)
    got, _ = adarray.vjp(lambda beta: kaiser(7, beta), 3.1)
    np.testing.assert_allclose(got, np.kaiser(7, 3.1), rtol=1e-15)
    check_grads(lambda beta: kaiser(7, beta), (3.1,))
    check_grads(lambda beta: adarray.numpy.kaiser(7, beta), (3.1,))
    inside = adarray.grad(lambda beta: np.sum(np.kaiser(7, beta)), intercept=True)(3.1)
    np.testing.assert_allclose(inside, adarray.grad(lambda b: np.sum(kaiser(7, b)))(3.1))
    np.testing.assert_array_equal(kaiser(5, 2.0), np.kaiser(5, 2.0))
    with pytest.raises(TraceError, match="kaiser: operand 0, the number of points, is traced"):
        adarray.vjp(lambda n: kaiser(n, 2.0), 5.0)


def test_nextafter_and_modf():
    check_grads(lambda x: np.nextafter(x, 0.0), (X,))
    fraction, whole = np.modf(adarray.array(X))
    np.testing.assert_array_equal(fraction + whole, X)
    check_grads(np.modf, (X,))


def test_frexp_inverts_ldexp():
    mantissa, exponent = np.frexp(adarray.array(X))
    np.testing.assert_array_equal(np.ldexp(mantissa, exponent), X)
    check_grads(lambda x: np.frexp(x)[0], (X,))
    grad = adarray.grad(lambda x: np.sum(np.ldexp(*np.frexp(x))))(X)
    np.testing.assert_array_equal(grad, np.ones(7))


def test_real_if_close():
    z = np.array([1.0 + 1e-15j, 2.0])

    def f(z):
        return np.real_if_close(z) ** 2

    got, _ = adarray.vjp(f, z)
    assert np.asarray(got).dtype == np.float64
    np.testing.assert_array_equal(got, f(z))
    saved, _ = adarray.vjp(np.real_if_close, z + 1j)
    assert np.asarray(saved).dtype == np.complex128
    check_grads(lambda x: np.real_if_close(x), (X,))


@pytest.mark.parametrize(
    "kwargs", [{}, {"nan": 7.0}, {"posinf": 1.0}, {"neginf": -1.0, "nan": -2.0, "posinf": 3.0}]
)
def test_nan_to_num_of_complex_parts(kwargs):
    z = np.array([1 + 2j, complex(np.nan, 1), complex(2, np.inf), complex(-np.inf, np.nan)])

    def f(z):
        return np.nan_to_num(z, **kwargs)

    got, pull = adarray.vjp(f, z)
    np.testing.assert_array_equal(got, f(z))
    (back,) = pull(np.full(4, 1 - 2j))
    # g pairs with tangents as Re(g t): each part that was replaced has no derivative.
    np.testing.assert_array_equal(back, [1 - 2j, -2j, 1, 0])


@pytest.mark.parametrize("copy", [False, True])
def test_nan_to_num_in_place(copy):
    def f(x):
        x = x * 1.0
        array = np.nan_to_num(x, copy=copy, nan=2.0)
        return np.sum(array**2 + x)

    grad = adarray.grad(f)(np.array([1.0, np.nan]))
    assert grad[0] == 3.0
    assert grad[1] == (1.0 if copy else 0.0)
