"""Calls with one matrix share its factors in compiled programs."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import PythonCall
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite import factors as module
from adarray.compiler.rewrite.factors import LEAST, factors

pytest.importorskip("scipy")
N = LEAST + 5


def matrix(dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, N)) + (1j * rng.normal(size=(N, N)) if dtype[0] == "c" else 0)
    return (x + 12 * np.eye(N)).astype(dtype)


def vector(dtype, *shape):
    return np.random.default_rng(1).normal(size=shape or (N,)).astype(dtype)


def compared(f, *args, rtol=1e-9):
    """Rewrite what `f` does, compare the values, and return the names of the calls."""
    program = recorded(f, *args).program
    after = factors(program, CPU)
    verify_program(after)
    arrays = [np.asarray(a) for a in args]
    for one, two in zip(interpret(program, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(two, one, rtol=rtol, atol=rtol * np.max(np.abs(one)))
    return names(after)


def names(program):
    return [
        v.primitive.function.__name__ for v in program.values if isinstance(v.primitive, PythonCall)
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_one_factorisation_of_a_matrix(dtype):
    """Every function that factorises, of the matrix and of its transpose."""

    def f(a, b, c):
        sign, logarithm = np.linalg.slogdet(a)
        return (
            np.linalg.solve(a, b), np.linalg.solve(a.T, b), np.linalg.solve(a, c),
            np.linalg.inv(a), np.linalg.inv(a.T), np.linalg.det(a / 100) , sign, logarithm,
        )  # fmt: skip

    args = matrix(dtype), vector(dtype), vector(dtype, N, 3)
    rtol = 2e-3 if dtype in ("float32", "complex64") else 1e-9
    calls = compared(f, *args, rtol=rtol)
    assert calls.count("decompose") == 1
    assert {"solve", "inv", "slogdet"}.isdisjoint(calls)
    assert calls.count("det") == 1  # of another matrix


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_complex_matrix_that_kernels_compute_is_factorised_once(dtype):
    def f(a, b):
        m = a * 2 + 1j
        return np.linalg.solve(m, b), np.linalg.solve(m.T, b) * 1j, np.linalg.inv(m)

    rtol = 2e-3 if dtype == "complex64" else 1e-9
    calls = compared(f, matrix(dtype), vector(dtype), rtol=rtol)
    assert calls.count("decompose") == 1
    assert {"solve", "inv"}.isdisjoint(calls)


def test_determinants():
    a = matrix("float64") / 12
    calls = compared(lambda a: np.linalg.det(a) + np.linalg.slogdet(a)[0], a)
    assert sorted(calls) == ["decompose", "determinant", "logarithm_of_determinant"]
    swapped = a[np.random.default_rng(2).permutation(N)]
    compared(lambda a: np.linalg.det(a) + np.linalg.slogdet(a)[0], swapped)


def test_the_way_back_solves_with_the_factors():
    def loss(a, b):
        return np.sum(np.linalg.solve(a, b) ** 2) + np.linalg.slogdet(a)[1]

    args = matrix("float64"), vector("float64")
    calls = compared(adarray.value_and_grad(loss, argnums=(0, 1)), *args)
    assert calls.count("decompose") == 1
    assert {"solve", "inv", "slogdet"}.isdisjoint(calls)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_what_cholesky_returns_is_a_triangle(dtype, upper):
    def f(a, b):
        factor = np.linalg.cholesky(a, upper=upper)
        block = factor[3:, 3:]
        return (
            np.linalg.solve(factor, b), np.linalg.solve(factor.T, b[:, None]),
            np.linalg.solve(block.T, b[3:]),
            np.linalg.solve(factor[5:, :-5] + 90 * np.eye(N - 5), b[5:]),
        )  # fmt: skip

    x = matrix(dtype)
    calls = compared(f, x @ np.conj(x.T), vector(dtype))
    if dtype == "float64":  # of complex matrices NumPy makes the transposes, too
        assert sorted(calls) == ["cholesky", "solve", *["solve_triangle"] * 3]


def test_one_call_stays():
    assert compared(np.linalg.solve, matrix("float64"), vector("float64")) == ["solve"]


def test_small_matrices_stay():
    def f(a, b):
        return np.linalg.solve(a, b), np.linalg.inv(a)

    assert compared(f, np.eye(4) * 3, np.ones(4)) == ["solve", "inv"]


def test_stacked_matrices_stay():
    def f(a):
        return np.linalg.det(a), np.linalg.inv(a)

    assert compared(f, np.stack([matrix("float64", k) for k in range(2)])) == ["det", "inv"]


def test_numpy_alone_has_no_lapack(monkeypatch):
    program = recorded(lambda a: (np.linalg.inv(a), np.linalg.det(a)), matrix("float64")).program
    monkeypatch.setattr(module, "lapack", lambda: None)
    assert factors(program, CPU) is program


def test_on_a_gpu_one_call_is_two_and_a_view_is_a_matrix(monkeypatch):
    """Its backend launches both, so SciPy is not asked for."""
    monkeypatch.setattr(module, "lapack", lambda: None)
    a, b = np.eye(5) * 3 + 1, np.ones(4)
    program = recorded(lambda a, b: np.linalg.solve(a[1:, 1:], b), a, b).program
    assert names(factors(program, GPU)) == ["decompose", "solve_decomposed"]
    for other in (np.stack([a, a]), a + 1j):
        program = recorded(np.linalg.inv, other).program
        assert factors(program, GPU) is program


@pytest.mark.parametrize("function", [np.linalg.solve, lambda a, b: np.linalg.inv(a)])
def test_singular_matrices_raise_as_in_numpy(function):
    singular = np.zeros((N, N))

    @adarray.jit
    def f(a, b):
        return function(a, b), np.linalg.slogdet(a)

    with adarray.use("serial"):
        for _ in range(3):
            f(matrix("float64"), vector("float64"))
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            f(singular, vector("float64"))


def test_the_logarithm_of_a_singular_determinant():
    def f(a):
        return np.linalg.slogdet(a), np.linalg.det(a)

    (sign, logarithm), det = adarray.jit(f)(np.zeros((N, N)))
    assert (sign, logarithm, det) == (0, -np.inf, 0)
    compared(lambda a: np.linalg.slogdet(a)[0] + np.linalg.det(a), np.ones((N, N)))
