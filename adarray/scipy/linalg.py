"""Drop-in for `scipy.linalg`: linear systems and decompositions that differentiate.

Plain arrays go to SciPy itself. Structure that SciPy is told about (one triangle,
the diagonal) is where the derivative goes, too: of a Hermitian matrix that is given
by one triangle, the other one has the gradient zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

# isort: off
from adarray.scipy._decompositions import (
    cho_factor as cho_factor,
    cho_solve as cho_solve,
    cholesky as cholesky,
    eig as eig,
    eig_banded as eig_banded,
    eigh as eigh,
    eigh_tridiagonal as eigh_tridiagonal,
    eigvals as eigvals,
    eigvals_banded as eigvals_banded,
    eigvalsh as eigvalsh,
    eigvalsh_tridiagonal as eigvalsh_tridiagonal,
    lu as lu,
    lu_factor as lu_factor,
    lu_solve as lu_solve,
    orth as orth,
    orthogonal_procrustes as orthogonal_procrustes,
    polar as polar,
    qr as qr,
    qr_multiply as qr_multiply,
    rq as rq,
    svd as svd,
    svdvals as svdvals,
)
from adarray.scipy._drop_in import (
    array,
    constant,
    fill_in,
    instead_of,
    is_complex,
    over_batch,
    value,
)
from adarray.scipy._matrix_functions import (
    coshm as coshm,
    cosm as cosm,
    expm as expm,
    expm_frechet as expm_frechet,
    fractional_matrix_power as fractional_matrix_power,
    logm as logm,
    signm as signm,
    sinhm as sinhm,
    sinm as sinm,
    solve_continuous_are as solve_continuous_are,
    solve_continuous_lyapunov as solve_continuous_lyapunov,
    solve_discrete_are as solve_discrete_are,
    solve_discrete_lyapunov as solve_discrete_lyapunov,
    solve_lyapunov as solve_lyapunov,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
    tanhm as tanhm,
    tanm as tanm,
)
from adarray.scipy._structured import (
    banded as banded,
    block_diag as block_diag,
    circulant as circulant,
    companion as companion,
    conj_band as conj_band,
    convolution_matrix as convolution_matrix,
    diagsvd as diagsvd,
    fiedler as fiedler,
    hankel as hankel,
    khatri_rao as khatri_rao,
    leslie as leslie,
    matmul_toeplitz as matmul_toeplitz,
    solve_banded as solve_banded,
    solve_circulant as solve_circulant,
    solve_toeplitz as solve_toeplitz,
    solveh_banded as solveh_banded,
    toeplitz as toeplitz,
)
from adarray.scipy._triangular import (
    from_triangle as from_triangle,
    h as h,
    solve_triangular as solve_triangular,
    t as t,
)
# isort: on

_TRIANGLES = {"sym": False, "symmetric": False, "her": True, "hermitian": True,
              "pos": True, "positive definite": True}  # fmt: skip
_KINDS = {None, "gen", "general", "diagonal", "tridiagonal", "banded", "upper triangular",
          "lower triangular", *_TRIANGLES}  # fmt: skip


def _assumed(a: Any, assume_a: str | None, lower: bool) -> Any:
    """Return the matrix that SciPy solves with; elements that it does not read are zero."""
    if assume_a not in _KINDS:
        raise ValueError(f"{assume_a} is not a recognized matrix structure")
    if assume_a in _TRIANGLES:
        return from_triangle(a, lower, hermitian=_TRIANGLES[assume_a])
    if assume_a == "lower triangular":
        return np.tril(a)
    if assume_a == "upper triangular":
        return np.triu(a)
    if assume_a in ("diagonal", "tridiagonal"):
        k = int(assume_a == "tridiagonal")
        return np.triu(np.tril(a, k), -k)
    return a


@instead_of(scipy.linalg.solve)
def solve(
    a: Any, b: Any, lower: bool = False, assume_a: str | None = None, transposed: bool = False
) -> Any:
    a, b = np.atleast_2d(array(a)), np.atleast_1d(array(b))
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Expected square matrix, got a1.shape={a.shape}")
    if transposed and is_complex(a):
        raise NotImplementedError(
            "scipy.linalg.solve can currently not solve a^T x = b or a^H x = b for complex "
            "matrices."
        )
    a = _assumed(a, assume_a, lower)
    a = t(a) if transposed else a
    columns = b[:, None] if b.ndim == 1 else b
    if a.shape[-1] == 1 and a.size == 1:
        return b / np.reshape(a, ())
    if columns.shape[-2] != a.shape[-1]:
        raise ValueError(f"incompatible shapes: a1.shape={a.shape} and b1.shape={columns.shape}")
    x = np.linalg.solve(a, columns)
    return x[..., 0] if b.ndim == 1 else x


@instead_of(scipy.linalg.inv)
def inv(a: Any, assume_a: str | None = None, lower: bool = False) -> Any:
    return np.linalg.inv(_assumed(array(a), assume_a, lower))


@instead_of(scipy.linalg.det)
def det(a: Any) -> Any:
    return np.linalg.det(array(a))


@instead_of(scipy.linalg.norm)
def norm(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    return np.linalg.norm(array(a), ord, axis, keepdims)


def _cut(sizes: Any, a: Any, atol: Any, rtol: Any) -> tuple[float, int]:
    """Return below which singular values count as zero, relative to the largest, and the rank."""
    atol = 0.0 if atol is None else value(atol)
    rtol = max(a.shape[-2:]) * np.finfo(sizes.dtype).eps if rtol is None else value(rtol)
    largest = float(np.max(sizes, initial=0.0))
    limit = atol + largest * rtol
    return (limit / largest if largest else 0.0), int(np.sum(sizes > limit))


@instead_of(scipy.linalg.pinv)
@over_batch(("a", 2))
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False) -> Any:
    sizes = np.linalg.svd(value(a), compute_uv=False)
    cut, rank = _cut(sizes, a, atol, rtol)
    x = np.linalg.pinv(a, rcond=cut)
    return (x, np.asarray(rank)) if return_rank else x


@instead_of(scipy.linalg.pinvh)
@over_batch(("a", 2))
def pinvh(
    a: Any, atol: Any = None, rtol: Any = None, lower: bool = True, return_rank: bool = False
) -> Any:
    a = from_triangle(a, lower)
    sizes = np.abs(np.linalg.eigvalsh(value(a)))
    cut, rank = _cut(sizes, a, atol, rtol)
    x = np.linalg.pinv(a, rcond=cut)
    return (x, np.asarray(rank)) if return_rank else x


@instead_of(scipy.linalg.lstsq)
@over_batch(("a", 2), ("b", "1|2"))
def lstsq(a: Any, b: Any, cond: Any = None) -> Any:
    if a.ndim != 2 or a.shape[0] != b.shape[0]:
        raise ValueError(
            f"Shape mismatch: a and b should have the same number of rows ({a.shape[0]} != "
            f"{b.shape[0]})."
        )
    cut = np.finfo(np.result_type(a.dtype, b.dtype)).eps if cond is None else value(cond)
    x, residuals, rank, sizes = np.linalg.lstsq(a, b, rcond=cut)
    if b.ndim == 1 and residuals.size:
        residuals = np.reshape(residuals, ())  # SciPy's is a number
    return x, residuals, value(rank), sizes


@instead_of(scipy.linalg.subspace_angles)
@over_batch(("A", 2), ("B", 2))
def subspace_angles(A: Any, B: Any) -> Any:
    qa, qb = orth(A), orth(B)
    product = np.matmul(h(qa), qb)
    cosines = np.linalg.svd(product, compute_uv=False)
    if qa.shape[1] >= qb.shape[1]:
        rest = qb - np.matmul(qa, product)
    else:
        rest = qa - np.matmul(qb, h(product))
    sines = np.linalg.svd(rest, compute_uv=False)
    small = value(cosines) ** 2 >= 0.5  # there the arc cosine loses digits
    k = cosines.shape[0]
    inside = np.where(small, np.minimum(sines[:k][::-1], 1.0), 0.0)
    outside = np.where(small, 0.0, np.clip(cosines, -1.0, 1.0))
    return np.where(small, np.arcsin(inside), np.arccos(outside))[::-1]


@instead_of(scipy.linalg.cho_solve_banded)
def cho_solve_banded(cb_and_lower: Any, b: Any) -> Any:
    cb, lower = cb_and_lower
    cb, b = array(cb), array(b)
    width = cb.shape[0] - 1
    adjoint = conj_band(cb, width, lower)
    if lower:
        return banded(adjoint, banded(cb, b, width, 0), 0, width)
    return banded(cb, banded(adjoint, b, width, 0), 0, width)


bandwidth, issymmetric, ishermitian = map(
    constant, (scipy.linalg.bandwidth, scipy.linalg.issymmetric, scipy.linalg.ishermitian)
)

_ARBITRARY = "its result depends on arbitrary choices (a basis, an order), which no derivative has"
__getattr__, __dir__, __all__ = fill_in(
    globals(),
    scipy.linalg,
    {
        "null_space": _ARBITRARY,
        "schur": _ARBITRARY,
        "qz": _ARBITRARY,
        "ordqz": _ARBITRARY,
        "hessenberg": _ARBITRARY,
        "matrix_balance": "its scaling is by powers of two, which jump",
        "funm": "its function is not known to be differentiable; expm, logm, sqrtm, "
        "fractional_matrix_power and the like have rules",
    },
)
