# ruff: noqa: N806 - matrices have capital letters
"""SciPy's own sparse arrays beside traced vectors, and systems that `jit` compiles."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy.sparse
import scipy.sparse.linalg

import adarray

FORMATS = [
    "csr_array",
    "csc_array",
    "coo_array",
    "dia_array",
    "csr_matrix",
    "bsr_array",
    "lil_array",
]
DENSE = np.array([[2.0, 1.0, 0.0], [0.0, 3.0, 0.0], [1.0, 0.0, 4.0]])


@pytest.mark.filterwarnings("error::adarray.JitWarning")
@pytest.mark.parametrize("kind", FORMATS)
def test_products_with_sparse_arrays_of_scipy(kind):
    """A matrix that a module has made: SciPy asks for the values of a traced vector."""
    A = getattr(scipy.sparse, kind)(DENSE)
    x, wide = np.array([1.0, -2.0, 3.0]), np.arange(6.0).reshape(3, 2)
    for f, B in (
        (lambda x: A @ x, DENSE), (lambda x: A.T @ x, DENSE.T), (lambda x: x @ A, DENSE.T),
    ):  # fmt: skip
        g = adarray.grad(lambda x, f=f: np.sum(f(x) ** 2))
        fast = adarray.jit(g)
        for start in (x, wide) if B is DENSE else (x,):
            np.testing.assert_allclose(g(start), 2 * B.T @ (B @ start))
            for _ in range(3):
                np.testing.assert_allclose(fast(start), 2 * B.T @ (B @ start))
    np.testing.assert_allclose(adarray.jvp(lambda x: A @ x, (x,), (x,))[1], DENSE @ x)
    off = adarray.grad(lambda x: np.sum(A @ x), intercept=False)
    np.testing.assert_allclose(off(x), DENSE.sum(0))


def test_products_with_matrices_of_scipy_follow_their_stars_and_changes():
    A, x = scipy.sparse.csr_matrix(DENSE), np.array([1.0, -2.0, 3.0])
    np.testing.assert_allclose(adarray.grad(lambda x: np.sum(A * x))(x), DENSE.sum(0))
    np.testing.assert_allclose(adarray.grad(lambda x: np.sum(x * A))(x), DENSE.sum(1))
    f = adarray.grad(lambda x: np.sum(A @ x))
    A.data[:] *= 2.0  # in place
    np.testing.assert_allclose(f(x), 2 * DENSE.sum(0))
    A.data = A.data * 1.5  # other memory
    np.testing.assert_allclose(f(x), 3 * DENSE.sum(0))
    with pytest.raises(ValueError, match="dimension mismatch"):
        adarray.grad(lambda x: np.sum(A @ x[:2]))(x)
    with pytest.raises(ValueError, match="Scalar operands"):
        adarray.grad(lambda x: np.sum(A @ x[0]))(x)


@pytest.mark.filterwarnings("error::adarray.JitWarning")
def test_solvers_compile_where_the_matrix_is_made_in_the_function():
    def compliance(k):
        rows, cols = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
        values = np.array([k[0] + k[1], -k[1], -k[1], k[1]])
        K = scipy.sparse.csr_matrix((values, (rows, cols)), shape=(2, 2))
        return np.sum(scipy.sparse.linalg.spsolve(K.tocsc(), np.array([0.0, 1.0])))

    fast, k = adarray.jit(adarray.grad(compliance)), np.array([2.0, 4.0])
    for scale in (1.0, 1.0, 1.0, 0.5):
        expected = [-2 / (scale * k[0]) ** 2, -1 / (scale * k[1]) ** 2]
        np.testing.assert_allclose(fast(scale * k), expected)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "dia", "lil"])
def test_what_is_written_into_a_sparse_array_between_calls_counts(kind: str) -> None:
    a = scipy.sparse.csr_array(np.diag([1.0, 2.0, 3.0]) + np.eye(3, k=1)).asformat(kind)
    slope = adarray.grad(lambda x: np.sum((a @ x) ** 2))
    for change in (None, "data", "indices", "whole"):
        if change == "data" and kind != "lil":
            a.data *= 2.0
        elif change == "indices" and kind in ("csr", "csc"):
            a.indices[0] = 2
        elif change == "whole":
            a *= 2.0
        dense = a.toarray()
        x = np.arange(1.0, 4.0)
        np.testing.assert_allclose(slope(x), 2 * dense.T @ (dense @ x))
