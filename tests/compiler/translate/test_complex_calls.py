"""Complex arrays in programs: kernels compute with their parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import adarray
from tests.support.recorded import agrees, recorded

RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "complex128") -> np.ndarray:
    """Return complex numbers of some shape."""
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


X, Y, M = numbers(4, 6), numbers(4, 6), numbers(6, 3)
R = RNG.normal(size=(4, 6))
ODD = np.array([0, -0.0, 1, -1, 1j, -1j, 3 + 4j, -2 - 1e-3j, 1e-200j, 1e200, complex(-0.0, 2)])

FUNCTIONS: dict[str, Callable[..., object]] = {
    "arithmetic": lambda x, y, r: (x + y) * x / y - r * x + x / 2 - 2j / x,
    "negative": lambda x, y, r: -x + (+y),
    "conjugate": lambda x, y, r: np.conj(x) * x.conj(),
    "parts": lambda x, y, r: x.real * y.imag + np.imag(x) - np.real(r),
    "absolute": lambda x, y, r: np.abs(x) + abs(y) ** 2,
    "square": lambda x, y, r: np.square(x) + x**2 + x**3 + x**5 + x**-2 + 1 / x,
    "exp": lambda x, y, r: np.exp(x) + np.exp(1j * r),
    "circular": lambda x, y, r: np.sin(x) + np.cos(y) + np.sinh(x) * np.cosh(y),
    "sqrt": lambda x, y, r: np.sqrt(x) + np.sqrt(-y),
    "sign": lambda x, y, r: np.sign(x) + np.angle(y),
    "where": lambda x, y, r: np.where(r > 0, x, y) + np.where(x == y, 1, r),
    "tests": lambda x, y, r: np.isfinite(x) & (x != y) & ~np.isnan(y) & ~np.isinf(x),
    "truths": lambda x, y, r: np.logical_and(x, y) | np.logical_not(x),
    "views": lambda x, y, r: x.T[1:, ::-1] + np.reshape(y, (6, 4))[1:] + y.ravel()[3],
    "moved": lambda x, y, r: np.roll(x, 2, axis=1) + np.pad(y[:2], ((1, 1), (0, 0))) + np.triu(x),
    "concatenated": lambda x, y, r: np.concatenate([x, y, r], axis=1) * np.stack([x, y])[0, 0, 0],
    "repeated": lambda x, y, r: np.repeat(x, 2, axis=0) + np.tile(y, (2, 1)),
    "picked": lambda x, y, r: x[[0, 2, 2]] + np.take(y, [1, 0, 3], axis=0),
    "sums": lambda x, y, r: (np.sum(x, axis=0), x.mean(axis=1), np.cumsum(y, axis=1), x.sum()),
    "casts": lambda x, y, r: (r.astype(complex) + 1j, x.astype(np.complex64) * 2),
    "products": lambda x, y, r: (x @ y.T, x @ y[0], x[0] @ y[1], np.dot(x, r.T), np.inner(x, y)),
    "contractions": lambda x, y, r: (np.vdot(x, y), np.outer(x[0], y[0]),
                                     np.einsum("ij,kj->i", x, y), np.tensordot(x, y, (1, 1))),
    "constants": lambda x, y, r: x * X + 1j * Y - np.array([1j, 2, 3, 4, 5, 6]),
    "numpy scalars": lambda x, y, r: np.complex128(1 + 2j) * x + np.float64(2) * y,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_computed_by_parts(name: str) -> None:
    r = recorded(FUNCTIONS[name], X, Y, R)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()


@pytest.mark.parametrize("name", ["arithmetic", "absolute", "exp", "sqrt", "sums", "views"])
def test_single_precision_stays(name: str) -> None:
    r = recorded(FUNCTIONS[name], X.astype("c8"), Y.astype("c8"), R.astype("f4"))
    agrees(r, rtol=1e-4)
    assert "python_call" not in r.kinds()


@pytest.mark.parametrize("name", ["negative", "conjugate", "parts", "absolute", "where", "tests",
                                  "truths", "sqrt", "sign", "exp"])  # fmt: skip
def test_zeros_and_large_numbers(name: str) -> None:
    with np.errstate(all="ignore"):
        agrees(recorded(FUNCTIONS[name], ODD, ODD[::-1].copy(), ODD.real.copy()), rtol=1e-12)


def test_division_by_zero_is_infinite_as_numpy_has_it() -> None:
    with np.errstate(all="ignore"):
        agrees(recorded(lambda x, y: x / y, numbers(11), ODD), rtol=1e-12)


def test_writes_into_slices_and_places() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> object:
        z = x.copy()
        z[1:3, ::2] = y[:2, :3]
        z[0] += 2 * y[1]
        z[[3, 3], [0, 1]] = 1j
        z[z.real > 1] = 0
        return z

    r = recorded(f, X, Y)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()


def test_large_products_are_work_for_a_library() -> None:
    a, b = numbers(20, 30), numbers(30, 40)
    r = recorded(lambda a, b: ((2 * a) @ b, b.T @ a.T, (b.T @ a.T[None])[0]), a, b)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()
    assert "matmul" in r.kinds()


def test_calls_read_and_return_complex_arrays() -> None:
    def f(m: np.ndarray, x: np.ndarray) -> object:
        y = np.linalg.solve(m * 2, x + 1)
        return np.sum(y * np.conj(y)), np.linalg.inv(m).T[1:] * 1j, np.fft.fft(x) * x

    m, x = numbers(5, 5), numbers(5)
    agrees(recorded(f, m, x), rtol=1e-10)


@pytest.mark.parametrize("backend", ["serial", "openmp"])
def test_small_products_and_shapes_of_complex_arrays(backend: str) -> None:
    a, x, w = numbers(2, 2), numbers(4096), RNG.normal(size=4096)

    def f(x, a):
        t = np.reshape(np.transpose(np.reshape(x, (2, 2, 1024)), (1, 0, 2)), (2, 2048))
        z = np.reshape(a @ t, (4096,))
        q = np.reshape(z.reshape(4, 1024).T, (4096,))
        return np.sum(np.real(z * z) * w) + np.sum(np.imag(q) * w)

    g = adarray.value_and_grad(f, argnums=(0, 1))
    with adarray.use(backend):
        jitted = adarray.jit(g)
        jitted.compile(x, a)
        value, gradients = jitted(x, a)
        assert "python_call" not in str(jitted.explain(x, a))
    want, expected = g(x, a)
    np.testing.assert_allclose(value, want, 1e-12)
    for got, e in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(e), 1e-12, 1e-12)
