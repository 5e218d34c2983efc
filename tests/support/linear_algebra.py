"""Matrices, functions of matrices and a comparison for tests of linear algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray import ADArray

DTYPES = [np.float64, np.float32, np.complex128, np.complex64]


def normal(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return random numbers, complex ones for complex dtypes."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def regular(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Return matrices with separate eigenvalues and singular values, far from 0."""
    n = shape[-1]
    spread = np.diag(3.0 * np.arange(1, n + 1))
    return np.asarray(normal(*shape, dtype=dtype, seed=seed) / 2 + spread, dtype)


def adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def definite(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Return Hermitian positive definite matrices."""
    x = normal(*shape, dtype=dtype)
    return np.asarray(x @ adjoint(x) + shape[-1] * np.eye(shape[-1]), dtype)


def low_rank(a: Any) -> Any:
    """Return the closest matrix of rank 1."""
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return u[..., :1] * s[..., None, :1] @ vh[..., :1, :]


def root(a: Any) -> Any:
    w, v = np.linalg.eigh(a)
    return (v * np.sqrt(w)[..., None, :]) @ adjoint(v)


def compare(got: Any, expected: Any, exact: bool) -> None:
    """Compare values, shapes, dtypes and names of fields."""
    if isinstance(expected, tuple):
        assert isinstance(got, tuple)
        assert getattr(got, "_fields", None) == getattr(expected, "_fields", None)
        for a, b in zip(got, expected, strict=True):
            compare(a, b, exact)
        return
    values = got.numpy() if isinstance(got, ADArray) else got
    assert np.shape(values) == np.shape(expected)
    assert np.asarray(values).dtype == np.asarray(expected).dtype
    if exact:
        np.testing.assert_array_equal(values, expected)
    else:
        eps = np.finfo(np.asarray(expected).dtype).eps
        np.testing.assert_allclose(values, expected, rtol=200 * eps, atol=200 * eps)
