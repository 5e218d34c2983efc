"""Differences, interpolation and convolution: values as NumPy's, derivatives as differences."""

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

RNG = np.random.default_rng(3)
F = RNG.normal(size=(5, 6))
UNEVEN = np.array([0.0, 0.7, 1.1, 2.3, 3.0, 4.2])


def same_value(f, *args):
    """Check that traced arguments give NumPy's values; return them."""
    got, _ = adarray.vjp(f, *args)
    want = f(*args)
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-13, atol=1e-13)
    return want


# -- gradient ------------------------------------------------------------------------------


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("axis", [None, 0, 1, (1, 0)])
def test_gradient_in_f(axis, edge_order):
    def f(x):
        return np.gradient(x, axis=axis, edge_order=edge_order)

    same_value(f, F)
    check_grads(f, (F,))


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("x", [UNEVEN, np.arange(6.0), np.linspace(0, 2, 6)])
def test_gradient_in_coordinates(x, edge_order):
    """Evenly spaced ones, too: NumPy reads only the first step there."""

    def f(y, x):
        return np.gradient(y, x, axis=1, edge_order=edge_order)

    same_value(f, F, x)
    check_grads(f, (F, x))


def test_gradient_with_several_spacings():
    def f(y, h, x):
        return np.gradient(y, h, x)

    same_value(f, F, 0.5, UNEVEN)
    check_grads(f, (F, 0.5, UNEVEN))
    check_grads(lambda h: np.gradient(F, h), (0.3,))


def test_gradient_of_integers_with_traced_spacing():
    y = np.array([1, 4, 9, 16])
    same_value(lambda h: np.gradient(y, h), 0.5)
    same_value(lambda x: np.gradient(y, x), np.array([0.0, 1.0, 2.0, 4.0]))


@pytest.mark.parametrize(
    ("args", "kwargs", "error"),
    [
        ((F, UNEVEN, UNEVEN, UNEVEN), {}, TypeError),
        ((F, UNEVEN), {}, TypeError),
        ((F, UNEVEN, UNEVEN), {}, ValueError),
        ((F[0, :2], UNEVEN[:2]), {"edge_order": 2}, ValueError),
        ((F[0], UNEVEN), {"edge_order": 3}, ValueError),
    ],
)
def test_gradient_raises_numpys_errors(args, kwargs, error):
    with pytest.raises(error) as want:
        np.gradient(*args, **kwargs)
    with pytest.raises(error) as got:
        adarray.vjp(lambda x: np.gradient(args[0], x, *args[2:], **kwargs), args[1])
    assert str(got.value) == str(want.value)


# -- interp --------------------------------------------------------------------------------

XP = np.array([-1.0, 0.2, 0.7, 2.0])
FP = np.array([0.3, -1.0, 2.0, 0.5])
AT = np.array([[-0.7, 0.25, 1.9], [-2.0, 3.0, 0.5]])


@pytest.mark.parametrize("ends", [{}, {"left": 5.0}, {"right": -3.0}, {"left": 1, "right": 2}])
def test_interp_in_every_argument(ends):
    def f(x, xp, fp):
        return np.interp(x, xp, fp, **ends)

    same_value(f, AT, XP, FP)
    check_grads(f, (AT, XP, FP))


def test_interp_with_traced_ends():
    def f(fp, left, right):
        return np.interp(AT, XP, fp, left=left, right=right)

    same_value(f, FP, 1.0, 2.0)
    check_grads(f, (FP, 1.0, 2.0))
    at = adarray.array(AT)  # NumPy asks only the first three arguments
    assert adarray.grad(lambda left: np.sum(np.interp(at, XP, FP, left)))(1.0) == 1.0
    with pytest.raises(adarray.errors.TraceError, match="float: a traced value would leave"):
        adarray.grad(lambda left: np.sum(np.interp(AT, XP, FP, left)))(1.0)


def test_interp_with_a_period():
    xp = np.array([190.0, -190.0, 350.0, -350.0])
    x = np.array([-180.0, -173.0, 5.5, 365.25])

    def f(x, xp, fp, period):
        return np.interp(x, xp, fp, period=period)

    same_value(f, x, xp, FP, 360.0)
    check_grads(f, (x, xp, FP, 360.0))
    with pytest.raises(ValueError, match="period must be a non-zero value"):
        adarray.grad(lambda fp: np.sum(np.interp(x, xp, fp, period=0)))(FP)


def test_interp_on_knots_has_the_slope_to_the_right():
    slopes = np.diff(FP) / np.diff(XP)
    grad = adarray.grad(lambda x: np.sum(np.interp(x, XP, FP)))(XP)
    np.testing.assert_allclose(grad, [*slopes, slopes[-1]])


def test_interp_of_complex_values():
    fp = FP + 1j * FP[::-1]

    def f(x, fp):
        r = np.interp(x, XP, fp)
        return np.real(r), np.imag(r)

    same_value(f, AT, fp)
    check_grads(lambda x: f(x, fp), (AT,))


def test_interp_keeps_nan_to_itself():
    grad = adarray.grad(lambda fp: np.nansum(np.interp([np.nan, 0.0], XP, fp)))(FP)
    assert np.isfinite(grad).all()


# -- the others ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "m"), [(6, 3), (3, 6), (4, 4), (5, 2), (2, 5), (1, 4)])
def test_correlate_and_convolve(n, m, mode):
    a, v = F[0, :n], F[1, :m]
    for function in (np.correlate, np.convolve):

        def f(a, v, function=function):
            return function(a, v, mode)

        same_value(f, a, v)
        check_grads(f, (a, v))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "m"), [(5, 2), (2, 5), (3, 4)])
def test_correlate_of_complex_arrays_conjugates_the_second(n, m, mode):
    a, v = F[0, :n] + 1j * F[1, :n], F[2, :m] + 1j * F[3, :m]
    for function in (np.correlate, np.convolve):

        def f(a, v, function=function):
            return function(a, v, mode)

        same_value(f, a, v)
        check_grads(f, (a, v))


def test_convolve_of_empty_arrays_raises_numpys_error():
    with pytest.raises(ValueError, match="v cannot be empty"):
        adarray.grad(lambda a: np.sum(np.convolve(a, [])))(F[0])


def test_correlation_is_a_convolution_with_the_reverse():
    grad = adarray.grad(lambda v: np.sum(np.correlate(F[0], v, "full") * np.arange(8.0)))(F[1, :3])
    other = adarray.grad(lambda v: np.sum(np.convolve(F[0], v, "full") * np.arange(8.0)))(
        F[1, :3][::-1]
    )
    np.testing.assert_allclose(grad, other[::-1])


@pytest.mark.parametrize("kwargs", [{}, {"axis": 0}, {"discont": 4.0}, {"period": 5.0}])
def test_unwrap(kwargs):
    x = 4 * F

    def f(x):
        return np.unwrap(x, **kwargs)

    same_value(f, x)
    check_grads(f, (x,))


def test_unwrap_in_the_period():
    x = np.array([0.0, 4.0, 1.0, 6.0, 0.5])

    def f(x, period):
        return np.unwrap(x, period=period)

    same_value(f, x, 5.0)
    check_grads(f, (x, 5.0))
    check_grads(lambda period: np.unwrap(adarray.array(x), period=period), (5.0,))


def test_ediff1d_with_traced_ends():
    def f(x, first, last):
        return np.ediff1d(x, to_begin=first, to_end=last)

    same_value(f, F, np.array([1.0, 2.0]), 3.0)
    check_grads(f, (F, np.array([1.0, 2.0]), 3.0))
    with pytest.raises(TypeError, match="dtype of `to_end` must be compatible"):
        adarray.vjp(lambda x: np.ediff1d(x, to_end=[1j]), F)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_diff_inverts_cumsum(n):
    def f(x, first):
        return np.diff(np.cumsum(x, axis=1), n=n, axis=1, prepend=first)

    same_value(f, F, 0.5)
    check_grads(f, (F, 0.5))
