"""Calls of ufuncs with keywords: ``out=``, ``where=``, dtypes, memory orders and core axes."""

from __future__ import annotations

import numpy as np
import pytest

import adarray
from adarray import ADArray, TraceError
from adarray.testing import check_grads

RNG = np.random.default_rng(12)
MATRIX = RNG.uniform(0.5, 2.0, size=(3, 4))
VECTOR = RNG.uniform(0.5, 2.0, size=6)
MASK = np.array([[True, False, True, True], [False, False, True, True], [True] * 4])


# -- out=, where=, dtype, casting, order, signature ------------------------------------------------


def test_where_keeps_the_old_elements_and_their_gradient():
    mask = VECTOR > 1.2

    def f(x):
        out = np.cos(x)
        r = np.log(x - 1.2, out=out, where=mask)
        assert r is out
        return out

    def plain(x):
        return np.log(x - 1.2, out=np.cos(x), where=mask)

    with np.errstate(all="raise"):
        compare_value = adarray.vjp(f, VECTOR)[0]
    np.testing.assert_array_equal(compare_value, plain(VECTOR))
    check_grads(lambda x: np.sum(f(x)), (VECTOR,), order=2)


def test_where_without_out_is_constant_elsewhere():
    mask = np.array([[True, False, True, True, False, False]] * 2)

    def f(x):
        y = np.multiply(x, x, where=mask, out=None)
        assert y.shape == (2, 6)
        return y[mask]

    check_grads(lambda x: np.sum(f(x)), (VECTOR,))
    _, pullback = adarray.vjp(lambda x: np.sqrt(x, where=mask, out=None), VECTOR)
    np.testing.assert_array_equal(pullback(np.ones((2, 6)))[0] == 0, ~mask[0])


def test_where_with_plain_operands_and_a_traced_out():
    def f(x):
        out = x * 2
        np.add(VECTOR, 1.0, out=out, where=np.arange(6) < 2)
        np.floor(VECTOR[4:5], out=out[4:5], where=[True])
        return np.sum(out)

    np.testing.assert_array_equal(adarray.grad(f)(VECTOR), [0, 0, 2, 2, 0, 2])


def test_where_into_a_plain_array_is_refused():
    with pytest.raises(TraceError, match="sin into a plain ndarray of shape \\(6,\\)"):
        adarray.vjp(
            lambda x: np.sin(x, out=np.zeros(6), where=np.ones(6, bool)), VECTOR, intercept=False
        )


def test_out_broadcasts_casts_and_aliases():
    def f(x):
        wide = np.zeros_like(x, shape=(2, 6))
        assert np.sin(x, out=wide) is wide
        single = np.zeros_like(x, dtype=np.float32)
        np.multiply(x, 2.0, single)
        y = x.copy()
        np.multiply(y[1:], y[:-1], out=y[1:])
        np.add.reduce(wide, axis=0, out=y[:])
        return np.sum(y * y) + single[0].astype(float) * 0

    compare_to = np.sum((2 * np.sin(VECTOR)) ** 2)
    np.testing.assert_allclose(adarray.vjp(f, VECTOR)[0], compare_to, rtol=1e-14)
    check_grads(f, (VECTOR,))


def test_out_with_unsafe_casting():
    def f(x):
        n = np.zeros_like(x, dtype=np.int64)
        with pytest.raises(TypeError, match="same_kind"):
            np.multiply(x, 3.0, out=n)
        np.multiply(adarray.stop_gradient(x), 3.0, out=n, casting="unsafe")
        return np.sum(x * n)

    np.testing.assert_array_equal(adarray.grad(f)(VECTOR), (VECTOR * 3).astype(int))

    def lost(x):
        n = np.zeros_like(x, dtype=np.int64)
        np.multiply(x, 3.0, out=n, casting="unsafe")
        return np.sum(x * n)

    with pytest.raises(TraceError, match="in-place update of an array of dtype int64"):
        adarray.grad(lost)(VECTOR)


def test_two_results_with_out():
    x = np.array([1.75, -2.25, 6.5])

    def f(x):
        a, b = np.zeros_like(x), np.zeros_like(x)
        assert np.divmod(x, 0.8, out=(a, b))[1] is b
        np.testing.assert_array_equal(a, np.divmod(adarray.value_of(x), 0.8)[0])
        c = np.zeros_like(x)
        fraction, whole = np.modf(x, out=(None, c))
        assert whole is c
        mantissa, exponent = np.frexp(x)
        assert exponent.dtype.kind == "i"
        np.testing.assert_array_equal(exponent, np.frexp(adarray.value_of(x))[1])
        np.divmod(x, 0.5, out=(a, a.copy()), where=[True, False, False])
        return np.sum(b * b + fraction * 2 + mantissa**2)

    check_grads(f, (x,), order=2)
    mantissa = adarray.vjp(lambda x: np.frexp(x)[0], x)[0]
    np.testing.assert_array_equal(mantissa, np.frexp(x)[0])


def test_dtype_signature_and_order():
    x = MATRIX
    for kwargs in (
        {"dtype": np.float32},
        {"dtype": "f4", "casting": "unsafe"},
        {"signature": "ff->f"},
        {"signature": (None, None, np.float32)},
        {"dtype": np.longdouble, "order": "F"},
        {"order": "F"},
        {"order": "C", "subok": False},
        {"casting": "safe"},
    ):
        value, pullback = adarray.vjp(lambda x: np.hypot(x, 2, **kwargs), x)  # noqa: B023
        expected = np.hypot(x, 2, **kwargs)
        np.testing.assert_array_equal(value, expected)
        assert value.dtype == expected.dtype
        back = pullback(np.ones_like(value))[0]
        assert back.dtype == x.dtype
        np.testing.assert_allclose(back, x / np.hypot(x, 2), rtol=1e-6)

    def layout(x):
        return np.sin(x, order="F").flags.f_contiguous

    assert adarray.vjp(lambda x: (layout(x), x)[1], x)[0] is not None
    assert layout(adarray.array(x))


def test_untraced_calls_are_numpys():
    x, m = adarray.array(MATRIX), MASK
    plain = np.full((3, 4), 7.0)
    r = np.add(x, 1, out=plain, where=m)
    assert r is plain
    np.testing.assert_array_equal(plain, np.where(m, MATRIX + 1, 7.0))
    out = adarray.array(np.full((3, 4), 7.0))
    assert np.add(x, 1, out=out, where=m) is out
    np.testing.assert_array_equal(out, plain)
    view = out[:, 1]
    np.multiply.reduce(x, axis=1, out=view)
    np.testing.assert_array_equal(out.numpy()[:, 1], MATRIX.prod(1))
    a, b = np.divmod(x, 2)
    assert isinstance(a, ADArray)
    np.testing.assert_array_equal(np.divmod(MATRIX, 2), (a, b))
    for f in (
        lambda x: np.maximum.accumulate(x, 1),
        lambda x: np.add.reduceat(x, [0, 2], axis=1),
        lambda x: np.hypot.outer(x, [1, 2]),
        lambda x: np.add(x, 1, dtype=np.float32),
        lambda x: np.greater.outer(x, x),
        lambda x: np.matmul(x, x, axes=[(0, 1), (1, 0), (0, 1)]),
    ):
        np.testing.assert_array_equal(f(x), f(MATRIX))
        assert f(x).dtype == f(MATRIX).dtype


@pytest.mark.parametrize(
    "f",
    [
        lambda z: np.multiply.reduce(z),
        lambda z: np.subtract.reduce(z, axis=1, initial=0.5j),
        lambda z: np.add.accumulate(z, axis=1),
        lambda z: np.divide.accumulate(z),
        lambda z: np.add.reduceat(z, [0, 2], axis=1),
        lambda z: np.multiply.outer(z[0], z[1]),
        lambda z: np.exp(z, out=z * 1j, where=MASK),
        lambda z: np.add(z, 1.0, dtype=np.complex64),
        lambda z: np.matmul(z, z, axes=[(1, 0), (0, 1), (0, 1)]),
    ],
)
def test_complex_numbers(f):
    z = MATRIX + 1j * MATRIX[::-1] ** 2
    value, _ = adarray.vjp(f, z)
    np.testing.assert_allclose(value, f(z), rtol=1e-6)
    if value.dtype == np.complex128:
        check_grads(lambda z: np.sum(np.abs(f(z)) ** 2), (z,))


# -- generalized ufuncs ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "shapes"),
    [
        ([(0, 1), (1, 0), (0, 1)], ((3, 4), (2, 4))),
        ([(-2, -1), (-2, -1), (0, 2)], ((5, 2, 3), (5, 3, 4))),
        ([(1, 0), (0, 1), (1, 0)], ((4, 3), (4, 2))),
        ([(0, 1), (0,), (0,)], ((3, 4), (4,))),
    ],
    ids=str,
)
def test_matmul_axes(axes, shapes):
    a, b = (RNG.normal(size=shape) for shape in shapes)
    expected = np.matmul(a, b, axes=axes)
    value, _ = adarray.vjp(lambda a, b: np.matmul(a, b, axes=axes), a, b)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    check_grads(lambda a, b: np.sum(np.matmul(a, b, axes=axes) ** 2), (a, b), order=2)


GUFUNCS = [
    ("vecdot", {"axis": 0}, ((4, 3), (4, 3))),
    ("vecdot", {"axis": 0, "keepdims": True}, ((4, 3), (4, 3))),
    ("vecdot", {"keepdims": True}, ((4, 3), (4, 3))),
    ("vecdot", {"axes": [0, 1, ()]}, ((4, 3), (3, 4))),
    ("vecdot", {"axes": [(0,), (-1,), (1,)], "keepdims": True}, ((4, 3), (3, 4))),
    ("matvec", {"axes": [(1, 0), 0, 0]}, ((4, 3), (4,))),
    ("vecmat", {"axes": [0, (1, 0), 0]}, ((4,), (3, 4))),
]


@pytest.mark.parametrize(("name", "kwargs", "shapes"), GUFUNCS, ids=str)
def test_axes_of_vector_products(name, kwargs, shapes):
    ufunc = getattr(np, name, None)
    if ufunc is None:
        pytest.skip(f"np.{name} is newer than NumPy {np.__version__}")
    a, b = (RNG.normal(size=shape) for shape in shapes)
    value, _ = adarray.vjp(lambda a, b: ufunc(a, b, **kwargs), a, b)
    expected = ufunc(a, b, **kwargs)
    np.testing.assert_allclose(value, expected, rtol=1e-13)
    assert np.shape(value) == np.shape(expected)
    check_grads(lambda a, b: np.sum(ufunc(a, b, **kwargs) ** 2), (a, b), order=2)


def test_bad_axes_are_numpys_errors():
    with pytest.raises(ValueError, match="axes"):
        adarray.vjp(lambda x: np.matmul(x, x, axes=[(0, 1)]), np.eye(2))
    for a in (np.eye(2), adarray.array(np.eye(2))):
        with pytest.raises(TypeError, match="where"):
            np.matmul(a, a, where=np.array([True, False]), out=np.zeros((2, 2)))
    with pytest.raises(TypeError, match="where"):
        adarray.vjp(lambda x: np.matmul(x, x, where=np.array([True, False])), np.eye(2))
    with pytest.raises(TypeError, match="axis"):
        adarray.vjp(lambda x: np.sin(x, axis=0), np.eye(2))
