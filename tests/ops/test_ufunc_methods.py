"""Every method of ufuncs, with every argument: values as NumPy's, derivatives right."""

from __future__ import annotations

import numpy as np
import pytest

import adarray
from adarray import TraceError
from adarray.testing import check_grads

RNG = np.random.default_rng(11)
MATRIX = RNG.uniform(0.5, 2.0, size=(3, 4))
CUBE = RNG.uniform(0.5, 2.0, size=(2, 3, 4))
VECTOR = RNG.uniform(0.5, 2.0, size=6)
MASK = np.array([[True, False, True, True], [False, False, True, True], [True] * 4])

BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.fmax, np.fmin,
    np.hypot, np.logaddexp, np.logaddexp2, np.remainder, np.fmod, np.copysign,
]  # fmt: skip
REORDERABLE = [
    np.add, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.hypot, np.logaddexp,
]  # fmt: skip


def name_of(value):
    return getattr(value, "__name__", None)


def compare(f, x, order=1, rtol=1e-12):
    """Check values against NumPy's and derivatives against differences."""
    value = adarray.vjp(f, x)[0]
    expected = f(x)
    np.testing.assert_allclose(value, expected, rtol=rtol)
    assert np.shape(value) == np.shape(expected)
    assert np.asarray(value).dtype == np.asarray(expected).dtype
    check_grads(lambda x: np.sum(f(x) * 1.5), (x,), order=order)


# -- reduce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ufunc", BINARY, ids=name_of)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1, (1,), ()])
def test_reduce_along_one_axis(ufunc, axis, keepdims):
    compare(lambda x: ufunc.reduce(x, axis=axis, keepdims=keepdims), MATRIX)


@pytest.mark.parametrize("ufunc", REORDERABLE, ids=name_of)
@pytest.mark.parametrize("axis", [None, (0, 2), (-1, 1)])
def test_reduce_along_several_axes(ufunc, axis):
    compare(lambda x: ufunc.reduce(x, axis), CUBE, order=2)


@pytest.mark.parametrize("ufunc", BINARY, ids=name_of)
@pytest.mark.parametrize("initial", [0.75, np.float64(3.0)])
def test_reduce_from_an_initial_value(ufunc, initial):
    compare(lambda x: ufunc.reduce(x, axis=1, initial=initial), MATRIX)


@pytest.mark.parametrize("ufunc", BINARY, ids=name_of)
@pytest.mark.parametrize("where", [MASK, MASK[0], MASK[:, :1]], ids=["full", "row", "column"])
def test_reduce_where(ufunc, where):
    compare(lambda x: ufunc.reduce(x, axis=1, initial=1.25, where=where), MATRIX)


def test_reduce_with_a_traced_initial_value():
    for ufunc in BINARY:
        check_grads(lambda x, i: np.sum(ufunc.reduce(x, initial=i)), (MATRIX, 0.8))  # noqa: B023


def test_initial_none_means_that_there_is_none():
    compare(lambda x: np.add.reduce(x, initial=None), MATRIX)
    compare(lambda x: np.maximum.reduce(x, initial=None), MATRIX)
    with pytest.raises(ValueError, match="zero-size array"):
        adarray.grad(lambda x: np.sum(np.hypot.reduce(x, initial=None)))(np.zeros((0, 2)))


@pytest.mark.parametrize("ufunc", [np.power, np.arctan2, np.float_power], ids=name_of)
def test_folds_that_numpy_gets_wrong(ufunc):
    # The vector code of NumPy 2.4 for power and arctan2 ignores that reduce feeds results back.
    x = np.array([1.5, 2.0, 0.7])
    value, grad = adarray.value_and_grad(ufunc.reduce)(x)
    expected, slope = adarray.value_and_grad(lambda x: ufunc(ufunc(x[0], x[1]), x[2]))(x)
    assert value == expected
    np.testing.assert_allclose(grad, slope, rtol=1e-14)


@pytest.mark.parametrize(
    ("ufunc", "x", "expected"),
    [
        (np.logaddexp, [-np.inf, 0.0, -np.inf], [0, 1, 0]),
        (np.logaddexp, [-np.inf, -np.inf], [0, 0]),
        (np.logaddexp, [800.0, 800.0], [0.5, 0.5]),
        (np.logaddexp2, [-np.inf, -2000.0], [0, 1]),
        (np.hypot, [0.0, 0.0], [0, 0]),
        (np.hypot, [-3.0], [-1]),
        (np.hypot, [0.0, -2.0, 0.0], [0, -1, 0]),
        (np.fmax, [np.nan, 1.0, 1.0], [0, 0.5, 0.5]),
        (np.fmin, [np.nan, np.nan], [0, 0]),
        (np.maximum, [2.0, 1.0, 2.0], [0.5, 0, 0.5]),
    ],
    ids=str,
)
def test_reduce_at_kinks(ufunc, x, expected):
    with np.errstate(invalid="raise", divide="raise"):
        np.testing.assert_allclose(adarray.grad(ufunc.reduce)(np.array(x)), expected, rtol=1e-13)


def test_the_initial_value_takes_its_share_of_a_tie():
    x = np.array([2.0, 2.0, 1.0])
    for ufunc in (np.fmax, np.maximum):
        grad = adarray.grad(lambda x: ufunc.reduce(x, initial=2.0))(x)  # noqa: B023
        np.testing.assert_allclose(grad, [1 / 3, 1 / 3, 0])


def test_a_mask_may_change_after_the_call():
    mask = np.array([True, False, True])

    def f(x):
        y = np.hypot.reduce(x, initial=0.0, where=mask) + np.sin(x, out=x * 1.0, where=mask).sum()
        mask[:] = False
        return y

    grad = adarray.grad(f)(np.array([3.0, 1.0, 4.0]))
    np.testing.assert_allclose(grad, [0.6 + np.cos(3.0), 1.0, 0.8 + np.cos(4.0)])


def test_reduce_dtype():
    x = MATRIX
    for ufunc in (np.add, np.maximum, np.hypot):
        value = adarray.vjp(lambda x: ufunc.reduce(x, dtype=np.float32), x)[0]  # noqa: B023
        np.testing.assert_array_equal(value, ufunc.reduce(x, dtype=np.float32))
        assert value.dtype == np.float32
    check_grads(lambda x: np.hypot.reduce(x, None, np.longdouble).astype(float), (x,))


def test_reduce_to_integers_and_truth_values_is_constant():
    def f(x):
        assert np.add.reduce(x, dtype=int).dtype == int
        assert not np.add.reduce(x, dtype=int).requires_grad
        assert bool(np.logical_and.reduce(x > 0, axis=None))
        assert bool(np.logical_or.reduce(x, axis=None))
        assert np.logical_xor.reduce(x, axis=None) == (x.size % 2 == 1)
        return np.sum(x) + np.floor_divide.reduce(x, axis=0).sum()

    gradient = adarray.grad(f, intercept=False)(MATRIX)
    np.testing.assert_array_equal(gradient, np.ones_like(MATRIX))


def test_reduce_of_empty_and_scalar_arrays():
    compare(lambda x: np.hypot.reduce(x, axis=0), np.zeros((0, 3)))
    compare(lambda x: np.exp(np.logaddexp.reduce(x, axis=1)), np.zeros((2, 0)))
    compare(lambda x: np.subtract.reduce(x), np.array([2.5]))
    np.testing.assert_array_equal(
        adarray.grad(lambda x: np.add.reduce(x, axis=None))(np.float64(2.0)), 1.0
    )


@pytest.mark.parametrize(
    ("f", "error", "message"),
    [
        (lambda x: np.subtract.reduce(x, axis=(0, 1)), ValueError, "not reorderable"),
        (lambda x: np.hypot.reduce(x, axis=2), np.exceptions.AxisError, "out of bounds"),
        (lambda x: np.divide.reduce(x, where=MASK), ValueError, "does not have an identity"),
        (lambda x: np.divmod.reduce(x), ValueError, "returning a single value"),
        (lambda x: np.sin.reduce(x), ValueError, "only supported for binary functions"),
        (lambda x: np.hypot.accumulate(x, axis=None), ValueError, "multiple axes"),
        (lambda x: np.add.accumulate(x[0, 0]), TypeError, "cannot accumulate on a scalar"),
        (lambda x: np.add.reduceat(x, [9]), IndexError, "out-of-bounds"),
        (lambda x: np.add.at(x.copy(), [9], 1.0), IndexError, "out of bounds"),
        (lambda x: np.add(x, 1.0, dtype=int), TypeError, "Cannot cast"),
        (lambda x: np.add(x, 1.0, casting="no", dtype=np.float32), TypeError, "Cannot cast"),
        (lambda x: np.add(x, 1.0, signature="ff->f", casting="safe"), TypeError, "Cannot cast"),
        (lambda x: np.add(x, 1.0, out=x.astype(int)), TypeError, "Cannot cast"),
        (
            lambda x: np.add(x, 1.0, where=np.array([0, 1, 1, 0]), out=None),
            TypeError,
            "dtype\\('bool'\\)",
        ),
        (lambda x: np.add(x, 1.0, nonsense=1), TypeError, "nonsense"),
        (lambda x: np.sin(x, out=x[0].copy()), ValueError, "non-broadcastable output"),
    ],
)
def test_errors_are_numpys(f, error, message):
    with pytest.raises(error, match=message):
        f(MATRIX)
    with pytest.raises(error, match=message):
        adarray.vjp(f, MATRIX)


# -- accumulate, outer, reduceat ----------------------------------------------------------------


@pytest.mark.parametrize("ufunc", BINARY, ids=name_of)
@pytest.mark.parametrize("axis", [0, -1])
def test_accumulate(ufunc, axis):
    compare(lambda x: ufunc.accumulate(x, axis=axis), MATRIX)


def test_accumulate_of_extrema_with_ties_and_nan():
    x = np.array([1.0, 3.0, 3.0, 2.0, np.nan, 5.0])
    value, pullback = adarray.vjp(np.maximum.accumulate, x)
    np.testing.assert_array_equal(value, np.maximum.accumulate(x))
    np.testing.assert_array_equal(pullback(np.ones(6))[0], [1, 3, 0, 0, 2, 0])
    value, pullback = adarray.vjp(np.fmin.accumulate, x[::-1])
    np.testing.assert_array_equal(value, np.fmin.accumulate(x[::-1]))
    compare(lambda x: np.minimum.accumulate(x, 1), CUBE, order=2)
    compare(np.maximum.accumulate, np.zeros(0))
    compare(lambda x: np.hypot.accumulate(x), np.zeros((0, 2)))


def test_accumulate_dtype():
    value, pullback = adarray.vjp(lambda x: np.hypot.accumulate(x, dtype=np.float32), VECTOR)
    assert value.dtype == np.float32
    assert pullback(value)[0].dtype == np.float64


@pytest.mark.parametrize("ufunc", [*BINARY, np.power, np.float_power], ids=name_of)
def test_outer(ufunc):
    compare(lambda x: ufunc.outer(x, MATRIX[0]), VECTOR)
    compare(lambda x: ufunc.outer([1.25, 2.5], x), VECTOR)
    check_grads(lambda x, y: np.sum(ufunc.outer(x, y) * 0.5), (MATRIX, VECTOR))


def test_outer_with_two_results_and_out():
    def f(x):
        out = np.zeros_like(x, shape=(6, 2))
        r = np.multiply.outer(x, [2.0, 3.0], out=out, where=np.array([True, False]))
        assert r is out
        quotient, rest = np.divmod.outer(x, np.array([0.3, 0.4]))
        assert not getattr(quotient, "requires_grad", False)
        return np.sum(out**2) + np.sum(rest)

    check_grads(f, (VECTOR,), order=2)


@pytest.mark.parametrize("ufunc", BINARY, ids=name_of)
@pytest.mark.parametrize(
    "indices", [[0, 2, 3], [1, 4], [3, 1, 1, 5], [0, 4, 1, 2, 2], np.array([5])], ids=str
)
def test_reduceat(ufunc, indices):
    compare(lambda x: ufunc.reduceat(x, indices), VECTOR)
    compare(lambda x: ufunc.reduceat(np.outer(x[:2], x), indices, axis=1), VECTOR)


def test_a_segment_of_one_element_is_that_element():
    x = np.array([-3.0, 2.0, -1.0])
    for at in ([0, 1], [2, 1], [2]):
        compare(lambda x: np.hypot.reduceat(x, at), x)  # noqa: B023


def test_reduceat_of_ties_dtype_and_no_segments():
    x = np.array([2.0, 2.0, 1.0, 3.0])
    _, pullback = adarray.vjp(lambda x: np.maximum.reduceat(x, [0, 3]), x)
    np.testing.assert_array_equal(pullback(np.ones(2))[0], [0.5, 0.5, 0, 1])
    value = adarray.vjp(lambda x: np.multiply.reduceat(x, [0, 2], dtype=np.float32), x)[0]
    assert value.dtype == np.float32
    compare(lambda x: np.add.reduceat(x, np.zeros(0, int)), x)
    check_grads(lambda x: np.sum(np.add.reduceat(x, [0, 2]) ** 3), (x,), order=2)
    check_grads(lambda x: np.sum(np.multiply.reduceat(x, [0, 2]) ** 2), (x,), order=2)


# -- at ----------------------------------------------------------------------------------------

REPEATED = [0, 2, 2, 5, 2, 0]


@pytest.mark.parametrize(
    "ufunc",
    [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.power, np.hypot,
     np.arctan2, np.logaddexp],
    ids=name_of,
)  # fmt: skip
def test_at_counts_every_repetition(ufunc):
    values = RNG.uniform(0.5, 2.0, size=6)

    def f(x, v):
        y = x * 1.0
        assert ufunc.at(y, REPEATED, v) is None
        return y

    expected = VECTOR.copy()
    ufunc.at(expected, REPEATED, values)
    np.testing.assert_allclose(adarray.vjp(f, VECTOR, values)[0], expected, rtol=1e-14)
    check_grads(lambda x, v: np.sum(f(x, v) ** 2), (VECTOR, values), order=2)
    check_grads(lambda v: np.sum(f(adarray.array(VECTOR), v)), (values,))
    check_grads(lambda x: np.sum(f(x, 1.5)), (VECTOR,))


@pytest.mark.parametrize(
    "index",
    [2, slice(1, 5, 2), np.array([True, False] * 3), ([1, 1, 3],), np.array([[0, 0], [1, 0]])],
    ids=str,
)
def test_at_with_every_kind_of_index(index):
    def f(x):
        y = x.copy()
        np.multiply.at(y, index, 3.0)
        np.negative.at(y, index)
        np.cos.at(y, index)
        return y

    expected = VECTOR.copy()
    np.multiply.at(expected, index, 3.0)
    np.negative.at(expected, index)
    np.cos.at(expected, index)
    np.testing.assert_allclose(adarray.vjp(f, VECTOR)[0], expected, rtol=1e-14)
    check_grads(lambda x: np.sum(f(x) * x), (VECTOR,))


def test_at_in_views_and_two_dimensions():
    def f(x):
        y = x.copy()
        np.multiply.at(y[1], [0, 0, 3], x[0, :3])
        np.divide.at(y.T, ([0, 0, 2], [1, 1, 2]), x[2, 1])
        np.add.at(y, (slice(None), [1, 1]), x[:, :1])
        return y

    def g(x):
        return np.sum(f(x) ** 2)

    np.testing.assert_allclose(adarray.vjp(f, MATRIX)[0], f(MATRIX), rtol=1e-14)
    check_grads(g, (MATRIX,), order=2)


def test_at_of_an_untraced_array_is_numpys():
    y = adarray.array(VECTOR)
    view = y[::2]
    np.add.at(view, [0, 0], 1.0)
    expected = VECTOR.copy()
    np.add.at(expected[::2], [0, 0], 1.0)
    np.testing.assert_array_equal(y, expected)
    plain = np.zeros(3)
    np.add.at(plain, [1, 1], adarray.array([1.0, 2.0]))
    np.testing.assert_array_equal(plain, [0, 3, 0])


def test_at_into_a_plain_array_is_refused():
    def f(x):
        np.multiply.at(np.ones(3), [0], x[0])

    with pytest.raises(TraceError, match=r"multiply\.at into a plain ndarray"):
        adarray.vjp(f, VECTOR, intercept=False)


def test_out_of_every_method():
    def f(x):
        total = np.zeros_like(x, shape=(4,))
        assert np.hypot.reduce(x, out=total) is total
        running = np.zeros_like(x)
        assert np.maximum.accumulate(x, axis=1, out=running) is running
        segments = np.zeros_like(x, shape=(3, 2))
        assert np.multiply.reduceat(x, [0, 1], axis=1, out=segments) is segments
        table = np.zeros_like(x, shape=(4, 4))
        assert np.subtract.outer(x[0], x[1], out=table) is table
        view = table[1:3, :2]
        assert np.add.reduce(x[None, :2, :2], axis=0, out=view) is view
        target = np.zeros_like(x, shape=(1, 4))
        np.minimum.reduce(x, axis=0, keepdims=True, initial=1.0, where=MASK, out=target)
        return np.sum(total * running) + np.sum(segments**2) + np.sum(table**2) + np.sum(target)

    check_grads(f, (MATRIX,), order=2)
    with pytest.raises(ValueError, match="non-broadcastable output operand"):
        adarray.vjp(lambda x: np.add.reduce(x, out=np.zeros_like(x, shape=(2, 4))), MATRIX)


def test_complex_at():
    def f(z):
        y = z * 1.0
        np.multiply.at(y, ([0, 0, 2], [1, 1, 3]), z[0, :3])
        return np.sum(np.abs(y) ** 2)

    check_grads(f, (MATRIX + 1j * MATRIX[::-1] ** 2,))
