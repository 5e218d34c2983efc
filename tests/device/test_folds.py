"""Reductions of single operations, whose kernels depend on the shape: rows, columns, parts."""

from __future__ import annotations

import numpy as np
import pytest

import adarray

SHAPES = [
    ((100, 4096), 0),  # whole columns in each block
    ((37, 4100), 0),
    ((50, 4097), 0),  # no packs
    ((3000, 520), 0),  # parts of columns, folded once more
    ((3, 64, 1504), 1),
    ((40, 9, 4096), (0, 1)),
    ((5, 40000), 1),
    ((300, 200), 1),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_and_extrema(device_backend, shape, axis, keepdims, dtype):
    x = np.random.default_rng(3).normal(size=shape).astype(dtype)
    x.flat[::977] *= 50
    near = 1e-5 if dtype == np.float32 else 1e-12
    with adarray.use(device_backend):
        operand = adarray.array(x)
        for f in (np.sum, np.mean, np.max, np.min):
            got = f(operand, axis=axis, keepdims=keepdims)
            want = f(x.astype(np.float64), axis=axis, keepdims=keepdims)
            assert got.shape == want.shape
            np.testing.assert_allclose(got.numpy(), want, rtol=near, atol=near * 300)


@pytest.mark.parametrize("shape", [(1, 4096), (4096,), (4, 1, 1), (1,), ()])
def test_gradients_of_what_was_broadcast(device_backend, shape):
    full = (4, 90, 4096)
    x = np.random.default_rng(4).normal(size=shape)
    g = np.random.default_rng(5).normal(size=full)
    with adarray.use(device_backend):
        leaf = adarray.array(x, requires_grad=True)
        np.broadcast_to(leaf, full).backward(adarray.array(g))
        got = leaf.grad.numpy()
    want = adarray.grad(lambda x: np.sum(np.broadcast_to(x, full) * g))(x)
    assert got.shape == shape
    np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize(
    ("shape", "axis"), [((837, 9, 33), (0, 1)), ((64, 40, 16), 1), ((900, 50), None), ((50, 9), -1)]
)
@pytest.mark.parametrize("keepdims", [False, True])
def test_sums_of_complex_arrays(device_backend, shape, axis, keepdims, dtype):
    rng = np.random.default_rng(6)
    x = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    near = 1e-5 if dtype == np.complex64 else 1e-12
    with adarray.use(device_backend):
        operands = adarray.array(x), adarray.array(x[::2]), adarray.array(x.T)
        for f in (np.sum, np.mean):
            for operand in operands:
                got = f(operand, axis=axis, keepdims=keepdims)
                want = f(operand.numpy().astype(np.complex128), axis=axis, keepdims=keepdims)
                assert got.shape == want.shape
                assert got.dtype == dtype
                np.testing.assert_allclose(got.numpy(), want, rtol=near, atol=near * 300)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_parts_of_complex_arrays(dtype):
    folds = pytest.importorskip("adarray_backends.cuda.folds")
    x = (np.arange(24.0) - 1j * np.arange(24.0) ** 2).astype(dtype).reshape(2, 3, 4)
    parts = folds.in_parts(x)
    np.testing.assert_array_equal(parts[..., 0], x.real)
    np.testing.assert_array_equal(parts[..., 1], x.imag)
    np.testing.assert_array_equal(folds.of_parts(parts.sum(axis=1), dtype), x.sum(axis=1))


@pytest.mark.parametrize("dtype", ["?", "b", "H", "i", "L", "f", "d", "F"])
@pytest.mark.parametrize("shape", [(), (1,), (37,), (3, 5, 7), (300, 4099), (0, 3)])
def test_truths_of_whole_arrays(device_backend, shape, dtype):
    count = int(np.prod(shape))
    zeros, ones = np.zeros(shape, dtype), np.ones(shape, dtype)
    cases = [zeros, ones]
    for k in {0, count // 2, count - 1} if count else ():
        one, other = zeros.copy(), ones.copy()
        one.flat[k], other.flat[k] = 1, 0
        cases += [one, other]
    if dtype in "fd" and count:
        cases += [-zeros, np.full(shape, np.nan, dtype)]
    with adarray.use(device_backend):
        for x in cases:
            operands = [adarray.array(x)]
            if x.ndim > 1:
                operands += [operands[0].T, operands[0][:, ::2], operands[0][1:]]
            elif x.ndim and count > 1:
                operands += [operands[0][1:], operands[0][::2]]
            for operand in operands:
                plain = operand.numpy()
                assert bool(np.any(operand)) is bool(np.any(plain))
                assert bool(np.all(operand)) is bool(np.all(plain))
                assert bool(operand.any()) is bool(plain.any())
                assert np.all(operand).shape == np.any(operand).shape == ()
                assert np.all(operand).dtype == np.bool_
                truth = np.any(operand, axis=None, keepdims=True)
                assert truth.shape == (1,) * x.ndim
                if x.ndim and dtype == "?":  # CuPy compiles for seconds
                    got = np.all(operand, axis=-1)
                    np.testing.assert_array_equal(got.numpy(), np.all(plain, axis=-1))
