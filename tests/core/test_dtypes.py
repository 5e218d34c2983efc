"""Unusual dtypes and arrays: half and extended precision, byte orders, files, subclasses."""

from __future__ import annotations

import re

import numpy as np
import pytest

import adarray
from adarray import ADArray, DTypeError, NotDifferentiableError, TraceError
from adarray.testing import check_grads

X = np.linspace(0.3, 1.7, 12).reshape(3, 4)


def program(x):
    y = np.sin(x) * x + np.exp(-(x**2)) / (1 + x)
    y = y @ y.T + np.cumsum(y, axis=0)[:, :3] - y.mean(axis=1, keepdims=True)
    y[0] = np.maximum(y[1], y[2] * 0.5)
    z = np.concatenate([y, np.sqrt(np.abs(y) + 1)], axis=1)
    return np.sum(np.where(z > 1, np.log1p(z * z), z)) / z.size


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 2e-2), (np.float32, 2e-5), (np.longdouble, 1e-12)]
)
def test_gradients_in_every_precision(dtype, tolerance, backend):
    x = X.astype(dtype)
    expected_value, expected = adarray.value_and_grad(program)(X)
    with adarray.use(backend):
        value, grad = adarray.value_and_grad(program)(x)
        tangent = adarray.jvp(program, (x,), (np.ones_like(x),))[1]
    assert value.dtype == grad.dtype == tangent.dtype == dtype
    np.testing.assert_allclose(value.astype(float), expected_value, rtol=tolerance)
    np.testing.assert_allclose(grad.astype(float), expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(float(tangent), expected.sum(), rtol=10 * tolerance)


def test_longdouble_keeps_its_precision():
    x = np.longdouble(1) / 3
    slope = adarray.grad(lambda x: np.exp(x) * np.sin(x))(x)
    exact = np.exp(x) * (np.sin(x) + np.cos(x))
    assert abs(slope - exact) <= 4 * np.finfo(np.longdouble).eps * abs(exact)


def test_half_precision_through_the_ufunc_methods():
    x = X.astype(np.float16)
    for f in (
        lambda x: np.add.reduce(x, axis=None),
        lambda x: np.hypot.reduce(x, axis=None),
        lambda x: np.multiply.outer(x[0], x[1]).max(),
        lambda x: np.maximum.accumulate(x, 1).sum(),
        lambda x: np.add.reduceat(x[0], [0, 2])[1],
    ):
        value, grad = adarray.value_and_grad(f)(x)
        assert value.dtype == grad.dtype == np.float16
        assert value == f(x)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">c16", "<f8"])
def test_byte_orders_normalise(dtype, backend):
    x = X.astype(dtype)
    copy = x.copy()
    native = x.dtype.newbyteorder("=")

    def f(x):
        assert (x * 2).dtype == native
        return np.real(np.sum(x * x * X + np.sin(x)))

    with adarray.use(backend):
        value, grad = adarray.value_and_grad(f)(x)
        expected_value, expected = adarray.value_and_grad(f)(x.astype(native))
    assert grad.dtype == native
    assert grad.dtype.isnative
    np.testing.assert_array_equal(value, expected_value)
    np.testing.assert_array_equal(grad, expected)
    np.testing.assert_array_equal(x, copy)
    assert adarray.array(x).dtype == native
    tangent = adarray.jvp(f, (x,), (x,))[1]
    assert tangent.dtype.isnative
    np.testing.assert_allclose(tangent, np.real(np.sum(expected * x)), rtol=1e-6)


def test_big_endian_constants(backend):
    def f(x, k):
        return np.sum(x * k) + np.sum(k @ x.T if k.ndim else x)

    with adarray.use(backend):
        for k in (X.astype(">f8"), np.float64(2).astype(">f8"), X.astype(">i4")):
            value, grad = adarray.value_and_grad(f)(X, k)
            plain = np.asarray(k, k.dtype.newbyteorder("="))
            expected = adarray.value_and_grad(f)(X, plain)
            assert grad.dtype == np.float64
            np.testing.assert_allclose(value, expected[0], rtol=1e-14)
            np.testing.assert_allclose(grad, expected[1], rtol=1e-14)


@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_memory_maps_work_and_are_never_written(tmp_path, mode, backend):
    for x in (X, np.linspace(0, 1, 50_000)):  # copied, and guarded while it is saved
        path = tmp_path / f"{x.size}{mode}{backend}"
        x.tofile(path)
        mapped = np.memmap(path, float, mode, shape=x.shape)

        weights = x

        def f(x):
            y = np.sin(x) * weights  # noqa: B023
            x[0] = 5.0
            x *= 2
            return np.sum(y + x * weights)  # noqa: B023

        with adarray.use(backend):
            if mode == "r":  # as in a plain run
                with pytest.raises(ValueError, match="assignment destination is read-only"):
                    adarray.grad(f)(mapped)
            else:
                grad = adarray.grad(f)(mapped)
                assert type(grad) is np.ndarray
                expected = np.cos(x) * x + 2 * x
                expected[0] -= 2 * x[0]
                np.testing.assert_allclose(grad, expected, rtol=1e-12)
        np.testing.assert_array_equal(mapped, x)
        assert mapped.flags.writeable == (mode != "r")
        np.testing.assert_array_equal(np.fromfile(path).reshape(x.shape), x)
        assert type(adarray.array(mapped)._plain) is np.ndarray


def test_read_only_inputs():
    for x in (X.copy(), np.broadcast_to(np.float64(0.5), (3, 4)), np.linspace(0, 1, 50_000)):
        x = x.view()
        x.flags.writeable = False

        def f(x):
            x += 1
            x[0] *= 3
            return np.sum(x**2)

        def g(x):
            return np.sum((3 * x + 1) ** 2)

        before = x.copy()
        for h in (f, adarray.jit(f)):  # as in a plain run
            with pytest.raises(ValueError, match="read-only"):
                adarray.grad(h)(x)
        np.testing.assert_allclose(adarray.grad(g)(x), 6 * (3 * x + 1), rtol=1e-14)
        np.testing.assert_array_equal(x, before)
        assert not x.flags.writeable


# -- dtypes that are no numbers -----------------------------------------------------------------

DATES = np.array(["2020-01-01", "2021-06-01"], "M8[D]")


def test_dates_strings_and_records_pass_untraced():
    for value in (
        DATES,
        DATES - DATES[0],
        np.array(["a", "bc"]),
        np.array([b"a"]),
        np.array([(1.0, 2)], [("t", float), ("n", int)]),
    ):
        x = adarray.array(value)
        assert isinstance(x, ADArray)
        assert x.dtype == value.dtype
        np.testing.assert_array_equal(x.numpy(), value)
        assert str(value.dtype) in repr(x) or value.dtype.names
    days = (adarray.array(DATES) - DATES[0]) / np.timedelta64(1, "D")
    np.testing.assert_array_equal(days, [0, 517])
    assert not np.isnat(adarray.array(DATES)).any()

    def f(x):
        days = (DATES - DATES[0]) / np.timedelta64(1, "D")
        return np.sum(x * days)

    np.testing.assert_array_equal(adarray.grad(f)(np.ones(2)), [0, 517])


@pytest.mark.parametrize(
    "value",
    [DATES, np.array(["a"]), np.array([None]), np.array([(1.0,)], [("t", float)]), np.array([1, 2]),
     np.array([True])],
    ids=lambda v: str(v.dtype),
)  # fmt: skip
def test_only_numbers_are_differentiated(value):
    with pytest.raises(DTypeError):
        adarray.grad(lambda x: 1.0)(value)
    with pytest.raises(DTypeError, match=r"needs a floating or complex dtype|array of objects"):
        adarray.array(value, requires_grad=True)


def test_operands_that_are_no_numbers():
    objects = np.array([1.0, 2.0], dtype=object)
    for f in (
        lambda x: x * objects,
        lambda x: objects + x,
        lambda x: np.concatenate([x, objects]),
        lambda x: np.where(x > 0, objects, x),
    ):
        with pytest.raises(DTypeError, match=r"convert it with \.astype\(float\)"):
            adarray.grad(lambda x: f(x).sum())(np.ones(2))  # noqa: B023
    for other in (np.array(["a", "b"]), np.array([(1.0,), (2.0,)], [("t", float)])):
        with pytest.raises((TypeError, ValueError)):
            adarray.grad(lambda x: np.sum(x + other))(np.ones(2))  # noqa: B023
    np.testing.assert_array_equal(adarray.grad(lambda x: np.dot(x, objects))(np.ones(2)), [1, 2])
    assert (adarray.array(np.ones(2)) * objects).dtype == object


# -- subclasses of ndarray ------------------------------------------------------------------------

MASKED = np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * MASKED,
        lambda x: np.add(x, MASKED),
        lambda x: np.add(x, 1.0, out=MASKED.copy()),
        lambda x: np.hypot(MASKED, x, where=[True, False, True], out=None),
        lambda x: np.multiply.outer(x, MASKED),
        lambda x: x @ MASKED,
        lambda x: np.dot(MASKED, x),
        lambda x: np.where(x > 1, MASKED, x),
        lambda x: np.concatenate([x, MASKED]),
        lambda x: np.stack([MASKED, x]),
        lambda x: np.interp(0.5, MASKED, x),
        lambda x: x > MASKED,
        lambda x: np.maximum(MASKED, x),
    ],
)
def test_masked_arrays_raise_with_advice(f):
    with pytest.raises((DTypeError, TraceError)) as caught:
        adarray.grad(lambda x: np.sum(f(x)))(np.ones(3))
    if isinstance(caught.value, DTypeError):
        assert "an operand is a masked array: its mask would be lost; pass np.where(x.mask" in str(
            caught.value
        )


def test_a_masked_array_on_the_left_raises():
    # np.ma coerces the other operand before any protocol is asked.
    for f in (lambda x: MASKED * x, lambda x: MASKED + x, lambda x: np.ma.add(MASKED, x)):
        with pytest.raises(TraceError):
            adarray.grad(lambda x: np.sum(f(x)))(np.ones(3))  # noqa: B023


def test_masked_inputs():
    ones = np.ones(3)
    for call in (
        lambda: adarray.grad(np.sum)(MASKED),
        lambda: adarray.value_and_grad(lambda x, y: np.sum(x * y), argnums=1)(ones, MASKED),
        lambda: adarray.jacobian(np.sin)(MASKED),
        lambda: adarray.hessian(np.sum)(MASKED),
        lambda: adarray.jvp(np.sum, (MASKED,), (ones,)),
        lambda: adarray.jvp(np.sum, (ones,), (MASKED,)),
        lambda: adarray.array(MASKED),
        lambda: adarray.grad(lambda x: np.average(x, weights=MASKED))(ones),
        lambda: adarray.grad(lambda x: np.sum(np.clip(x, 0, MASKED)))(ones),
        lambda: adarray.grad(lambda x: np.sum(x, where=MASKED > 1))(ones),
    ):
        with pytest.raises(DTypeError, match="masked array: its mask would be lost"):
            call()


def test_masked_untraced():
    with pytest.raises(DTypeError, match="masked array"):
        adarray.array(np.ones(3)) * MASKED


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_matrices_raise_with_advice():
    matrix = np.matrix(np.eye(3))
    message = re.escape(
        "an operand is a numpy.matrix, whose * is a matrix product; pass np.asarray"
    )
    for f in (
        lambda x: x * matrix,
        lambda x: matrix * x,
        lambda x: x @ matrix,
        lambda x: np.dot(x, matrix),
        lambda x: np.add(matrix, x),
    ):
        with pytest.raises((DTypeError, TraceError)) as caught:
            adarray.grad(lambda x: np.sum(f(x)))(np.ones((3, 3)))  # noqa: B023
        if isinstance(caught.value, DTypeError):
            assert re.search(message, str(caught.value))


def test_record_arrays_and_user_subclasses():
    class Tagged(np.ndarray):
        pass

    tagged = X.view(Tagged)
    value, grad = adarray.value_and_grad(lambda x: np.sum(x * tagged))(tagged)
    np.testing.assert_allclose(value, np.sum(X * X))
    np.testing.assert_allclose(grad, X)
    assert type(grad) is np.ndarray
    record = np.rec.array([(1.0, 2), (3.0, 4)], [("t", float), ("n", int)])
    np.testing.assert_array_equal(adarray.grad(lambda x: np.sum(x * record.t))(np.ones(2)), [1, 3])


def test_complex_of_every_precision():
    for dtype in (np.complex64, np.clongdouble):
        z = (X + 0.5j).astype(dtype)
        grad = adarray.grad(lambda z: np.sum(np.abs(z) ** 2))(z)
        assert grad.dtype == dtype
        np.testing.assert_allclose(grad, 2 * np.conj(z), rtol=1e-5)


def test_results_that_are_no_numbers_have_no_gradient():
    def f(x):
        assert x.astype(str).dtype.kind == "U"
        assert x.astype(bool).all()
        return x.astype(np.float32).astype(np.longdouble).sum().astype(float)

    check_grads(lambda x: np.sum(x.astype(np.longdouble) ** 2).astype(float), (X,))
    np.testing.assert_array_equal(adarray.grad(f)(X), np.ones_like(X))
    with pytest.raises((DTypeError, NotDifferentiableError, TypeError, TraceError)):
        adarray.grad(lambda x: np.sum(x.astype(object)))(X)
