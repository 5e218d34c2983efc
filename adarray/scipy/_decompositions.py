"""Decompositions under SciPy's names, on top of those of `numpy.linalg`.

References
----------
- S. F. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions with
  application in optimum experimental design", arXiv:1001.1654, 2010.
- F. R. de Hoog, R. S. Anderssen, M. A. Lukas, "Differentiation of matrix functionals using
  triangular factorization", Math. Comp. 80 (2011), 1585-1600 (LU).
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from adarray.base.errors import NotDifferentiableError
from adarray.ops.common import s
from adarray.scipy._drop_in import array, instead_of, is_complex, operation, over_batch, value
from adarray.scipy._matrix_functions import sqrtm
from adarray.scipy._structured import full_matrix
from adarray.scipy._triangular import conj, from_triangle, h, t, triangular

# -- LU -------------------------------------------------------------------------------------------


def _rows(piv: Any, m: int) -> Any:
    """Return the permutation of rows that LAPACK's exchanges make."""
    order = np.arange(m)
    for i, k in enumerate(piv):
        order[[i, k]] = order[[k, i]]
    return order


def _packed(a: Any) -> tuple[Any, Any]:
    lu, piv = scipy.linalg.lu_factor(a, check_finite=False)
    return lu, piv


def _factors(lu: Any) -> tuple[Any, Any]:
    """Return square L and U of packed factors, filled up with ones on their diagonals."""
    m, n = lu.shape
    k = min(m, n)
    lower = np.tril(lu[:, :k], -1)
    if m > k:
        lower = np.concatenate([lower, np.zeros((m, m - k), lu.dtype)], axis=1)
    upper = np.triu(lu[:k])
    if n > k:
        upper = np.concatenate([upper, np.eye(n, dtype=lu.dtype)[k:]], axis=0)
    return lower + np.eye(m, dtype=lu.dtype), upper


def _lu_tangent(d: Any, out: Any, a: Any) -> Any:
    """Return ``dL = L tril(F, -1)`` and ``dU = triu(F) U``, packed; F is ``inv(L) P dA inv(U)``."""
    lu, piv = out
    lower, upper = _factors(lu)
    f = triangular(lower, d[_rows(value(piv), d.shape[0])], 0, True, True)
    f = t(triangular(upper, t(f), 1, False))
    m, n = a.shape
    lower_part = np.matmul(lower, np.tril(f, -1))
    upper_part = np.matmul(np.triu(f), upper)
    return lower_part[:m, :n] + upper_part[:m, :n], None


def _lu_rule(g: Any, out: Any, a: Any) -> Any:
    # The transpose of the tangent, step by step: a = L (F_lower) + (F_upper) U, packed.
    lu, piv = out
    lower, upper = _factors(lu)
    f = np.tril(np.matmul(t(lower), g[0]), -1) + np.triu(np.matmul(g[0], t(upper)))
    f = triangular(lower, f, 1, True, True)
    f = t(triangular(upper, t(f), 0, False))
    order = np.argsort(_rows(value(piv), a.shape[0]))
    return f[order]


def _lu_samples(rng: np.random.Generator) -> list[Any]:
    a = rng.normal(size=(4, 4))
    return [s(a), s(rng.normal(size=(4, 3))), s(rng.normal(size=(3, 5))),
            s(a + 1j * rng.normal(size=(4, 4)))]  # fmt: skip


packed: Any = operation(
    "scipy.linalg.lu_factor",
    _packed,
    [_lu_rule],
    jvp=[_lu_tangent],
    samples=_lu_samples,
    operands=("a",),
    outputs=2,
    note="the pivots are constants",
)


@instead_of(scipy.linalg.lu_factor)
@over_batch(("a", 2))
def lu_factor(a: Any) -> Any:
    lu, piv = packed(array(a))
    return lu, value(piv)


@instead_of(scipy.linalg.lu)
@over_batch(("a", 2))
def lu(a: Any, permute_l: bool = False, p_indices: bool = False) -> Any:
    a = array(a)
    lu_, piv = packed(a)
    m, n = a.shape
    k = min(m, n)
    lower = np.tril(lu_[:, :k], -1) + np.eye(m, k, dtype=lu_.dtype)
    inverse = np.argsort(_rows(value(piv), m))
    if permute_l:
        return lower[inverse], np.triu(lu_[:k])
    p = inverse if p_indices else np.eye(m, dtype=np.abs(value(lu_[:0])).dtype)[inverse]
    return p, lower, np.triu(lu_[:k])


@instead_of(scipy.linalg.lu_solve)
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0) -> Any:
    return _lu_solve(*lu_and_piv, b, trans)


@over_batch(("lu", 2), ("piv", 1), ("b", "1|2"))
def _lu_solve(lu: Any, piv: Any, b: Any, trans: Any = 0) -> Any:
    if lu.shape[0] != b.shape[0]:
        raise ValueError(f"Shapes of lu {lu.shape} and b {b.shape} are incompatible")
    order = _rows(value(piv), lu.shape[0])
    if trans in (0, "N"):
        y = triangular(lu, b[order], 0, True, True)
        return triangular(lu, y, 0, False)
    code = {1: 1, "T": 1, 2: 2, "C": 2}[trans]
    y = triangular(lu, triangular(lu, b, code, False), code, True, True)
    return y[np.argsort(order)]


# -- Cholesky -------------------------------------------------------------------------------------


@instead_of(scipy.linalg.cholesky)
def cholesky(a: Any, lower: bool = False) -> Any:
    a = array(a)
    factor = np.linalg.cholesky(from_triangle(a, lower))
    return factor if lower else h(factor)


# Whether SciPy leaves the other triangle as it was (until 1.17) or clears it.
_LEAVES_OTHER = bool(scipy.linalg.cho_factor(np.array([[2.0, 1.0], [1.0, 2.0]]))[0][1, 0])


@instead_of(scipy.linalg.cho_factor)
def cho_factor(a: Any, lower: bool = False) -> Any:
    a = array(a)
    factor = np.linalg.cholesky(from_triangle(a, lower))
    if not _LEAVES_OTHER:
        return factor if lower else h(factor), lower
    if lower:
        return np.tril(factor) + np.triu(a, 1), lower
    return np.triu(h(factor)) + np.tril(a, -1), lower


@instead_of(scipy.linalg.cho_solve)
def cho_solve(c_and_lower: Any, b: Any) -> Any:
    c, lower = c_and_lower
    return _cho_solve(c, b, bool(value(lower)))


@over_batch(("c", 2), ("b", "1|2"))
def _cho_solve(c: Any, b: Any, lower: bool) -> Any:
    if c.ndim != 2 or c.shape[0] != c.shape[1] or c.shape[1] != b.shape[0]:
        raise ValueError(f"incompatible dimensions ({c.shape} and {b.shape})")
    first = triangular(c, b, 0 if lower else 2, lower)
    return triangular(c, first, 2 if lower else 0, lower)


# -- QR and SVD -----------------------------------------------------------------------------------


@instead_of(scipy.linalg.qr)
@over_batch(("a", 2))
def qr(a: Any, mode: str = "full", pivoting: bool = False) -> Any:
    if mode not in ("full", "qr", "r", "economic", "raw"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']")
    if mode == "raw":
        raise NotDifferentiableError(
            "qr: mode='raw' returns Householder vectors, which are not differentiated; "
            "use mode='economic'"
        )
    a = array(a)
    m, n = a.shape
    last: tuple[Any, ...] = ()
    if pivoting:
        *_, p = scipy.linalg.qr(value(a), mode="r", pivoting=True)
        a, last = a[:, p], (p,)
    if mode == "r":
        r: Any = np.linalg.qr(a, "r")
        if m > n:
            r = np.concatenate([r, np.zeros((m - n, n), r.dtype)])
        return (r, *last) if last else (r,)
    q, r = np.linalg.qr(a, "complete" if mode != "economic" and m > n else "reduced")
    return (q, r, *last)


@instead_of(scipy.linalg.rq)
@over_batch(("a", 2))
def rq(a: Any, mode: str = "full") -> Any:
    if mode not in ("full", "r", "economic"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic']")
    a = array(a)
    m, n = a.shape
    if m < n and mode != "economic":
        raise NotDifferentiableError(
            f"rq: mode={mode!r} of a wide matrix completes an orthogonal basis arbitrarily, and is "
            "not differentiated; use mode='economic'"
        )
    if m > n:
        raise NotDifferentiableError(
            "rq: a matrix with more rows than columns is not differentiated; use qr of its "
            "transpose"
        )
    # With rows and columns reversed, the QR decomposition of the conjugate transpose.
    q, r = np.linalg.qr(h(a[::-1]), "reduced")
    r, q = h(r)[::-1, ::-1], h(q)[::-1]
    _, plain_q = scipy.linalg.rq(value(a), mode="economic")
    sign = np.sign(np.sum(np.conj(value(q)) * plain_q, axis=1))  # LAPACK's choice
    q, r = q * sign[:, None], r * np.conj(sign)[None, :]
    return r if mode == "r" else (r, q)


@instead_of(scipy.linalg.qr_multiply)
@over_batch(("a", 2), ("c", "1|2"))
def qr_multiply(
    a: Any, c: Any, mode: str = "right", pivoting: bool = False, conjugate: bool = False
) -> Any:
    if mode not in ("left", "right"):
        raise ValueError("Mode argument can only be 'left' or 'right' but not '{mode}'")
    q, r, *last = qr(a, mode="economic", pivoting=pivoting)
    q = conj(q) if conjugate else q
    c = array(c)
    if mode == "left":
        return (np.matmul(q, c[: q.shape[1]]), r, *last)
    return (np.matmul(c, q), r, *last)


@instead_of(scipy.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    a = array(a)
    if not compute_uv:
        return np.linalg.svd(a, compute_uv=False)
    square = a.shape[-1] == a.shape[-2]
    return tuple(np.linalg.svd(a, full_matrices=full_matrices and not square))


@instead_of(scipy.linalg.svdvals)
def svdvals(a: Any) -> Any:
    return np.linalg.svd(array(a), compute_uv=False)


@instead_of(scipy.linalg.orth)
@over_batch(("A", 2))
def orth(A: Any, rcond: float | None = None) -> Any:
    u, sizes, _ = np.linalg.svd(A, full_matrices=False)
    largest = float(np.max(value(sizes), initial=0.0))
    cut = np.finfo(value(sizes).dtype).eps * max(A.shape) if rcond is None else rcond
    return u[:, : int(np.sum(value(sizes) > largest * cut))]


@instead_of(scipy.linalg.polar)
@over_batch(("a", 2))
def polar(a: Any, side: str = "right") -> Any:
    if side not in ("right", "left"):
        raise ValueError("`side` must be either 'right' or 'left'")
    m, n = a.shape
    tall = m >= n
    # The positive factor on the short side is regular; the other one follows from it.
    p = sqrtm(np.matmul(h(a), a) if tall else np.matmul(a, h(a)))
    p = p if is_complex(a) or not is_complex(p) else np.real(p)
    u = np.matmul(a, np.linalg.inv(p)) if tall else np.matmul(np.linalg.inv(p), a)
    if tall:
        return u, p if side == "right" else np.matmul(np.matmul(u, p), h(u))
    return u, p if side == "left" else np.matmul(np.matmul(h(u), p), u)


@instead_of(scipy.linalg.orthogonal_procrustes)
@over_batch(("A", 2), ("B", 2))
def orthogonal_procrustes(A: Any, B: Any) -> Any:
    if A.shape != B.shape or A.ndim != 2:
        raise ValueError(f"the shapes of A and B differ ({A.shape} vs {B.shape})")
    m = np.matmul(h(A), B) if is_complex(A, B) else np.matmul(t(A), B)
    u, p = polar(m)
    return u, np.real(np.trace(p))


# -- eigenvalues ----------------------------------------------------------------------------------


def _subset(w: Any, subset_by_index: Any, subset_by_value: Any) -> slice:
    if subset_by_index is not None:
        low, high = (int(i) for i in subset_by_index)
        return slice(low, high + 1)
    if subset_by_value is not None:
        low, high = subset_by_value
        picked = np.flatnonzero((value(w) > low) & (value(w) <= high))
        return slice(picked[0], picked[-1] + 1) if picked.size else slice(0, 0)
    return slice(None)


def _reduced(a: Any, b: Any, kind: int) -> tuple[Any, Any]:
    """Return the ordinary problem of a generalised one, and the factor of `b`."""
    factor = np.linalg.cholesky(b)
    if kind == 1:
        half = triangular(factor, a, 0, True)
        return h(triangular(factor, h(half), 0, True)), factor
    return np.matmul(np.matmul(h(factor), a), factor), factor


@instead_of(scipy.linalg.eigh)
@over_batch(("a", 2), ("b", 2))
def eigh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    type: int = 1,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
) -> Any:
    if type not in (1, 2, 3):
        raise ValueError('"type" keyword only accepts 1, 2, and 3.')
    if subset_by_index is not None and subset_by_value is not None:
        raise ValueError("Either index or value subset can be requested.")
    matrix = from_triangle(a, lower)
    factor = None
    if b is not None:
        matrix, factor = _reduced(matrix, from_triangle(b, lower), type)
    if eigvals_only:
        w = np.linalg.eigvalsh(matrix)
        return w[_subset(w, subset_by_index, subset_by_value)]
    w, v = np.linalg.eigh(matrix)
    if factor is not None:
        v = np.matmul(factor, v) if type == 3 else triangular(factor, v, 2, True)
    part = _subset(w, subset_by_index, subset_by_value)
    v = v[:, part]
    _, expected = scipy.linalg.eigh(
        value(a), None if b is None else value(b), lower=lower, type=type,
        subset_by_index=subset_by_index, subset_by_value=subset_by_value,
    )  # fmt: skip
    return w[part], v * _phases(v, expected)


def _phases(v: Any, expected: Any) -> Any:
    """Return the constant factors of modulus 1 that turn vectors into those SciPy returns."""
    overlap = np.sum(np.conj(value(v)) * expected, axis=0)
    size = np.abs(overlap)
    return np.where(size > 0, overlap / np.where(size > 0, size, 1), 1).astype(expected.dtype)


@instead_of(scipy.linalg.eigvalsh)
def eigvalsh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    type: int = 1,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
) -> Any:
    return eigh(
        a, b, lower=lower, eigvals_only=True, type=type,
        subset_by_index=subset_by_index, subset_by_value=subset_by_value,
    )  # fmt: skip


@instead_of(scipy.linalg.eig)
@over_batch(("a", 2), ("b", 2))
def eig(a: Any, b: Any = None, left: bool = False, right: bool = True) -> Any:
    matrix = a if b is None else np.linalg.solve(b, a)
    if not (left or right):
        return np.linalg.eigvals(matrix) + 0j
    w, v = np.linalg.eig(matrix)
    w = w + 0j  # SciPy's eigenvalues are always complex
    results = [w]
    expected = scipy.linalg.eig(value(a), None if b is None else value(b), left, right)
    if left:
        # Rows of the inverse are left eigenvectors of the matrix; those of the pencil
        # follow with b.
        inverse = h(np.linalg.inv(v))
        inverse = inverse if b is None else np.linalg.solve(h(b), inverse)
        results.append(_normal(inverse, expected[1]))
    if right:
        results.append(_normal(v, expected[-1]))
    return tuple(results)


def _normal(v: Any, expected: Any) -> Any:
    """Return eigenvectors with the lengths and phases of SciPy's, phases constant."""
    length = np.sqrt(np.sum(np.real(v * np.conjugate(v)), axis=0))
    scale = np.sqrt(np.sum(np.abs(expected) ** 2, axis=0))
    v = v / length * scale
    if np.isrealobj(expected):
        v = np.real(v)  # NumPy's are always complex since 2.5
    return v * _phases(v, expected)


@instead_of(scipy.linalg.eigvals)
def eigvals(a: Any, b: Any = None) -> Any:
    return eig(a, b, left=False, right=False)


@instead_of(scipy.linalg.eigh_tridiagonal)
@over_batch(("d", 1), ("e", 1))
def eigh_tridiagonal(
    d: Any, e: Any, eigvals_only: bool = False, select: Any = "a", select_range: Any = None
) -> Any:
    by_index, by_value = _selected(select, select_range)
    a = np.diag(d) + np.diag(e, -1)
    if eigvals_only:
        return eigh(a, eigvals_only=True, subset_by_index=by_index, subset_by_value=by_value)
    w, v = eigh(a, subset_by_index=by_index, subset_by_value=by_value)
    _, expected = scipy.linalg.eigh_tridiagonal(
        value(d), value(e), select=select, select_range=select_range
    )
    return w, v * _phases(v, expected)


def _selected(select: Any, select_range: Any) -> tuple[Any, Any]:
    if select in (0, "a", "all"):
        return None, None
    if select in (2, "i", "index"):
        return select_range, None
    return None, select_range


@instead_of(scipy.linalg.eigvalsh_tridiagonal)
def eigvalsh_tridiagonal(d: Any, e: Any, select: Any = "a", select_range: Any = None) -> Any:
    return eigh_tridiagonal(d, e, eigvals_only=True, select=select, select_range=select_range)


@instead_of(scipy.linalg.eig_banded)
@over_batch(("a_band", 2))
def eig_banded(
    a_band: Any,
    lower: bool = False,
    eigvals_only: bool = False,
    select: Any = "a",
    select_range: Any = None,
) -> Any:
    by_index, by_value = _selected(select, select_range)
    a = full_matrix(a_band, lower)
    if eigvals_only:
        return eigh(a, eigvals_only=True, subset_by_index=by_index, subset_by_value=by_value)
    w, v = eigh(a, subset_by_index=by_index, subset_by_value=by_value)
    _, expected = scipy.linalg.eig_banded(
        value(a_band), lower, select=select, select_range=select_range
    )
    return w, v * _phases(v, expected)


@instead_of(scipy.linalg.eigvals_banded)
def eigvals_banded(
    a_band: Any, lower: bool = False, select: Any = "a", select_range: Any = None
) -> Any:
    return eig_banded(a_band, lower, True, select=select, select_range=select_range)
