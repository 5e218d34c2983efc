"""`adarray.scipy.linalg` against SciPy, and its derivatives against differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")
import scipy
import scipy.linalg as theirs

import adarray
import adarray.scipy.linalg as ours
from adarray import ADArray, NotDifferentiableError
from adarray.scipy import RECORDS
from adarray.testing import check_grads, opcheck

rng = np.random.default_rng(0)
A = rng.normal(size=(4, 4)) + 4 * np.eye(4)
C = A + 1j * rng.normal(size=(4, 4))
S = A @ A.T / 4
H = C @ C.conj().T / 4
B = rng.normal(size=(4, 2))
V = rng.normal(size=4)
D = rng.normal(size=(4, 4)) / 4 + np.diag([1.0, 4.0, 8.0, 12.0])  # eigenvalues apart
BAND = rng.normal(size=(3, 5)) + np.array([[0.0], [6.0], [0.0]])
HALF = rng.normal(size=(2, 5)) + np.array([[0.0], [5.0]])
TALL = rng.normal(size=(5, 3))
WIDE = rng.normal(size=(3, 5))
LOW = np.tril(rng.normal(size=(4, 4))) + 3 * np.eye(4)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("solve", (A, V), {}, (0, 1)),
    ("solve", (A, B), {"transposed": True}, (0, 1)),
    ("solve", (S, B), {"assume_a": "pos"}, (0, 1)),
    ("solve", (S, B), {"assume_a": "sym", "lower": True}, (0, 1)),
    ("solve", (H, B), {"assume_a": "her"}, (0, 1)),
    ("solve", (LOW, V), {"assume_a": "lower triangular"}, (0, 1)),
    ("solve", (LOW.T, V), {"assume_a": "upper triangular"}, (0, 1)),
    ("solve", (np.diag(V), B), {"assume_a": "diagonal"}, (0, 1)),
    ("solve", (np.triu(np.tril(A, 1), -1), B), {"assume_a": "tridiagonal"}, (0, 1)),
    ("solve", (A, B), {"assume_a": "banded"}, (0, 1)),
    ("solve", (np.stack([A, S]), B), {}, (0, 1)),
    ("solve_triangular", (LOW, V), {"lower": True}, (0, 1)),
    ("solve_triangular", (C, B), {"trans": "C"}, (0, 1)),
    ("solve_triangular", (A, B), {"trans": "T", "unit_diagonal": True}, (0, 1)),
    ("solve_triangular", (np.stack([A, S]), B), {"lower": True}, (0, 1)),
    ("inv", (A,), {}, (0,)),
    ("inv", (S,), {"assume_a": "pos"}, (0,)),
    ("det", (A,), {}, (0,)),
    ("det", (np.stack([A, S]),), {}, (0,)),
    ("norm", (A,), {}, (0,)),
    ("norm", (A,), {"ord": 1, "axis": (0, 1)}, (0,)),
    ("norm", (A,), {"ord": 2}, (0,)),
    ("norm", (A,), {"ord": 3, "axis": 1, "keepdims": True}, (0,)),
    ("pinv", (TALL,), {}, (0,)),
    ("pinv", (WIDE,), {"return_rank": True}, (0,)),
    ("pinvh", (S,), {}, (0,)),
    ("lstsq", (TALL, rng.normal(size=5)), {}, (0, 1)),
    ("lstsq", (TALL, rng.normal(size=(5, 2))), {}, (0, 1)),
    ("lstsq", (WIDE, rng.normal(size=3)), {}, (0, 1)),
    ("cholesky", (S,), {}, (0,)),
    ("cholesky", (H,), {"lower": True}, (0,)),
    ("cho_factor", (S,), {}, (0,)),
    ("cho_factor", (S,), {"lower": True}, (0,)),
    ("lu", (A,), {}, (0,)),
    ("lu", (TALL,), {"permute_l": True}, (0,)),
    ("lu", (WIDE,), {"p_indices": True}, (0,)),
    ("lu", (np.stack([A, S]),), {}, (0,)),
    ("lu_factor", (C,), {}, (0,)),
    ("qr", (A,), {}, (0,)),
    ("qr", (TALL,), {"mode": "economic"}, (0,)),
    ("qr", (TALL,), {"mode": "r"}, (0,)),
    ("qr", (A,), {"pivoting": True}, (0,)),
    ("qr", (WIDE,), {}, (0,)),
    ("rq", (WIDE,), {"mode": "economic"}, (0,)),
    ("qr_multiply", (TALL, rng.normal(size=(2, 5))), {}, (0, 1)),
    ("qr_multiply", (A, B), {"mode": "left"}, (0, 1)),
    ("svd", (A,), {}, (0,)),
    ("svd", (TALL,), {"full_matrices": False}, (0,)),
    ("svd", (TALL,), {"compute_uv": False}, (0,)),
    ("svdvals", (WIDE,), {}, (0,)),
    ("orth", (TALL,), {}, (0,)),
    ("polar", (A,), {}, (0,)),
    ("polar", (TALL,), {"side": "left"}, (0,)),
    ("polar", (WIDE,), {}, (0,)),
    ("polar", (WIDE,), {"side": "left"}, (0,)),
    ("orthogonal_procrustes", (TALL, rng.normal(size=(5, 3))), {}, (0, 1)),
    ("eigh", (D,), {}, (0,)),
    ("eigh", (D,), {"lower": False, "subset_by_index": [1, 2]}, (0,)),
    ("eigh", (D, S), {}, (0, 1)),
    ("eigh", (D, S), {"type": 2}, (0, 1)),
    ("eigh", (D, S), {"type": 3}, (0, 1)),
    ("eigh", (D, S), {"eigvals_only": True}, (0, 1)),
    ("eigvalsh", (D,), {"subset_by_value": [0.0, 9.0]}, (0,)),
    ("eigvalsh", (D, S), {"type": 2}, (0, 1)),
    ("eig", (D,), {}, (0,)),
    ("eig", (D, S), {"left": True}, (0, 1)),
    ("eigvals", (D,), {}, (0,)),
    ("eigh_tridiagonal", (2 * np.arange(4.0) + 1, V[:3] / 4), {}, (0, 1)),
    ("eigvalsh_tridiagonal", (np.arange(4.0), V[:3]), {"select": "i", "select_range": (0, 1)},
     (0, 1)),
    ("eig_banded", (HALF * [[1.0, 2, 3, 4, 5]],), {}, (0,)),
    ("eigvals_banded", (HALF[::-1] * [[1.0, 2, 3, 4, 5]],), {"lower": True}, (0,)),
    ("expm", (A / 4,), {}, (0,)),
    ("expm", (np.stack([C, H]) / 4,), {}, (0,)),
    ("expm_frechet", (A / 4, S), {}, (0, 1)),
    ("logm", (A,), {}, (0,)),
    ("sqrtm", (A,), {}, (0,)),
    ("fractional_matrix_power", (A, 0.4), {}, (0,)),
    ("cosm", (A / 4,), {}, (0,)),
    ("sinm", (C / 4,), {}, (0,)),
    ("tanm", (A / 8,), {}, (0,)),
    ("coshm", (A / 4,), {}, (0,)),
    ("sinhm", (A / 4,), {}, (0,)),
    ("tanhm", (A / 4,), {}, (0,)),
    ("solve_sylvester", (A, S[:2, :2], B), {}, (0, 1, 2)),
    ("solve_continuous_lyapunov", (A, S), {}, (0, 1)),
    ("solve_continuous_lyapunov", (C, H), {}, (0, 1)),
    ("solve_discrete_lyapunov", (A / 9, S), {}, (0, 1)),
    ("solve_discrete_lyapunov", (C / 9, H), {"method": "bilinear"}, (0, 1)),
    ("solve_banded", ((1, 1), BAND, V[[0, 1, 2, 3, 0]]), {}, (1, 2)),
    ("solve_banded", ((0, 2), BAND[::-1] + 5.0, rng.normal(size=(5, 2))), {}, (1, 2)),
    ("solveh_banded", (HALF, V[[0, 1, 2, 3, 0]]), {}, (0, 1)),
    ("solveh_banded", (HALF[::-1], rng.normal(size=(5, 2))), {"lower": True}, (0, 1)),
    ("solve_circulant", (V + np.array([4, 0, 0, 0]), V), {}, (0, 1)),
    ("solve_toeplitz", (V + np.array([6, 0, 0, 0]), B), {}, (0, 1)),
    ("matmul_toeplitz", (V, B), {}, (0, 1)),
    ("toeplitz", (V, V[::-1].copy()), {}, (0, 1)),
    ("toeplitz", (V + 1j,), {}, (0,)),
    ("hankel", (V,), {}, (0,)),
    ("hankel", (V, V[[3, 0, 1]]), {}, (0, 1)),
    ("circulant", (B.T.copy(),), {}, (0,)),
    ("companion", (V,), {}, (0,)),
    ("leslie", (V, V[:3]), {}, (0, 1)),
    ("fiedler", (V,), {}, (0,)),
    ("convolution_matrix", (V, 3), {}, (0,)),
    ("convolution_matrix", (V, 6), {"mode": "same"}, (0,)),
    ("convolution_matrix", (V, 3), {"mode": "valid"}, (0,)),
    ("block_diag", (A, B, V), {}, (0, 1, 2)),
    ("khatri_rao", (B, TALL[:, :2].copy()), {}, (0, 1)),
    ("diagsvd", (V, 4, 5), {}, (0,)),
    ("diagsvd", (V, 6, 4), {}, (0,)),
    ("subspace_angles", (TALL[:, :2].copy(), TALL[:, 1:] + 0.3), {}, (0, 1)),
]  # fmt: skip
_OLD = tuple(map(int, scipy.__version__.split(".")[:2])) < (1, 16)
# Single precision of these is not SciPy's: it computes them in double, or loses digits.
_DOUBLE = {
    "det",
    "solve_discrete_lyapunov",
    "matmul_toeplitz",
    "expm_frechet",
    "fractional_matrix_power",
    "logm",
    "subspace_angles",
    "orth",
}


@pytest.mark.parametrize("case", range(len(CASES)), ids=[c[0] for c in CASES])
def test_values_and_derivatives(case: int, drop_in: Callable[..., None]) -> None:
    name, args, kwargs, argnums = CASES[case]
    if _OLD and ((name == "inv" and kwargs) or np.ndim(args[0]) > 2):
        pytest.skip("SciPy takes batches and structures since version 1.16")
    single = name not in _DOUBLE
    drop_in(getattr(ours, name), getattr(theirs, name), args, kwargs, argnums, single=single)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", [n for n in RECORDS if n.startswith("scipy.linalg.")])
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
def test_records(op: str, dtype: type) -> None:
    opcheck(op, "numpy", dtype)


def test_factors_solve() -> None:
    """The gradient flows through a factorisation and the solutions made from it."""

    def with_lu(trans: int) -> Callable[..., Any]:
        return lambda a, b: ours.lu_solve(ours.lu_factor(a), b, trans=trans)

    for trans, system in ((0, A), (1, A.T), (2, A.T)):
        np.testing.assert_allclose(with_lu(trans)(A, B), np.linalg.solve(system, B))
        check_grads(with_lu(trans), (A, B))
    for lower in (False, True):

        def with_cholesky(a: Any, b: Any, lower: bool = lower) -> Any:
            return ours.cho_solve(ours.cho_factor(a, lower=lower), b)

        np.testing.assert_allclose(with_cholesky(S, B), np.linalg.solve(S, B))
        check_grads(with_cholesky, (S, B))


@pytest.mark.parametrize("lower", [False, True])
def test_banded_factor(lower: bool) -> None:
    half = HALF[::-1] if lower else HALF
    factor = theirs.cholesky_banded(half, lower=lower)
    b = rng.normal(size=5)

    def solution(cb: Any, b: Any) -> Any:
        return ours.cho_solve_banded((cb, lower), b)

    traced = adarray.vjp(solution, factor, b)[0]
    np.testing.assert_allclose(traced, theirs.cho_solve_banded((factor, lower), b))
    check_grads(solution, (factor, b))


def test_riccati() -> None:
    r = S[:2, :2] + np.eye(2)
    for name in ("solve_continuous_are", "solve_discrete_are"):
        call, reference = getattr(ours, name), getattr(theirs, name)
        args = (A / 3, B, S + np.eye(4), r)
        np.testing.assert_allclose(adarray.vjp(call, *args)[0], reference(*args), rtol=1e-8)

        def symmetric(a: Any, b: Any, q: Any, r: Any, call: Any = call) -> Any:
            # SciPy refuses matrices q and r that are not symmetric.
            return call(a, b, q + q.T, r + r.T)

        check_grads(symmetric, (A / 3, B, S + np.eye(4), r), order=2, rtol=1e-5, atol=1e-5)


def test_riccati_third_derivative() -> None:
    """Newton's steps give derivatives of higher order: x**2 = 2 a x + q, of 1 by 1 matrices."""

    def x(a: Any) -> Any:
        return ours.solve_continuous_are(np.reshape(a, (1, 1)), *[np.eye(1)] * 3)[0, 0]

    third = adarray.grad(adarray.grad(adarray.grad(x)))(0.5)
    # a + sqrt(a**2 + 1)
    np.testing.assert_allclose(third, -3 * 0.5 / 1.25**2.5)


def test_arguments_that_are_not_differentiated_are_refused() -> None:
    with pytest.raises(NotDifferentiableError, match="eig: the argument homogeneous_eigvals=True"):
        adarray.grad(lambda a: ours.eig(a, homogeneous_eigvals=True)[0].real.sum())(D)
    with pytest.raises(
        NotDifferentiableError, match=r"scipy\.linalg\.schur: its result depends on"
    ):
        adarray.grad(lambda a: ours.schur(a)[0].sum())(D)
    with pytest.raises(NotDifferentiableError, match=r"scipy\.linalg\.null_space"):
        adarray.grad(lambda a: ours.null_space(a).sum())(WIDE)
    with pytest.raises(NotDifferentiableError, match="qr: mode='raw'"):
        adarray.grad(lambda a: ours.qr(a, mode="raw")[1].sum())(D)


def test_check_finite_is_honoured() -> None:
    bad = np.where(np.eye(4) > 0, np.nan, A)
    with pytest.raises(ValueError, match="must not contain infs or NaNs"):
        adarray.grad(lambda a: ours.solve(a, V).sum())(bad)
    g = adarray.grad(lambda a: ours.solve(a, V, check_finite=False, overwrite_a=True).sum())(A)
    assert np.all(np.isfinite(g))


def test_namespace_is_scipys() -> None:
    for name in theirs.__all__:
        assert getattr(ours, name) is not None
    assert set(theirs.__all__) <= set(dir(ours))
    assert ours.null_space is ours.null_space
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        ours.no_such_name  # noqa: B018
    assert isinstance(ours.null_space(ADArray(WIDE)), ADArray)
    assert ours.LinAlgError is np.linalg.LinAlgError


@pytest.mark.parametrize("trans", [0, 1])
def test_the_other_triangle_has_no_effect(trans: int) -> None:
    a = np.tril(np.full((3, 3), 4.0))  # the derivative of sqrt is infinite above the diagonal

    def f(a: Any) -> Any:
        return np.sum(ours.solve_triangular(np.sqrt(a), np.arange(1.0, 4.0), trans, lower=True))

    with np.errstate(divide="ignore"):
        g = adarray.grad(f)(a)
    assert np.all(np.isfinite(g))
    assert not np.any(np.triu(g, 1))
    t = np.tril(np.arange(1.0, 10.0).reshape(3, 3))
    h = 1e-6
    np.testing.assert_allclose(np.sum(g * t), (f(a + h * t) - f(a - h * t)) / (2 * h), rtol=1e-6)
