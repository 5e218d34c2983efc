"""What the records of `numpy.linalg` share: transposes, triangles, guarded divisions.

The rules pair a cotangent and a tangent as ``Re(sum(g * t))``, without a conjugate. So the
pullback of ``A @ X @ B`` is ``A.T @ g @ B.T``, for complex matrices too.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- E. Elmroth, F. Gustavson, I. Jonsson, B. Kagstrom, "Recursive blocked algorithms and hybrid data
  structures for dense matrix library software", SIAM Rev. 46 (2004), 3-45.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.runtime import MODE
from adarray.core.protocol import plain
from adarray.ops.complex import conjugate_of


def transposed(x: Any) -> Any:
    """Return the transposes of a stack of matrices, shape (..., n, m)."""
    return np.swapaxes(x, -1, -2)


def adjoint(x: Any) -> Any:
    """Return the conjugate transposes of a stack of matrices, shape (..., n, m)."""
    return conjugate_of(transposed(x))


def diagonal(x: Any) -> Any:
    """Return the diagonals of a stack of matrices, shape (..., min(m, n))."""
    return np.diagonal(x, axis1=-2, axis2=-1)


def diagonal_matrix(d: Any) -> Any:
    """Return the matrices with the diagonals `d`, shape (..., n, n)."""
    return d[..., None] * np.eye(d.shape[-1], dtype=d.dtype)


def strict(x: Any, uplo: str) -> Any:
    """Return the triangle below ("L") or above ("U") the diagonal, zeros elsewhere."""
    return np.tril(x, -1) if uplo == "L" else np.triu(x, 1)


def hermitian(x: Any, uplo: str) -> Any:
    """Return the Hermitian matrices of which `x` gives one triangle, as LAPACK reads it."""
    part = strict(x, uplo)
    return part + adjoint(part) + diagonal_matrix(np.real(diagonal(x)))


def folded(g: Any, uplo: str) -> Any:
    """Return the pullback of `hermitian`: the other triangle of `g` is added to the one read."""
    return strict(g + adjoint(g), uplo) + diagonal_matrix(np.real(diagonal(g)))


def block_rows(n: int) -> int:
    """Return how many of `n` rows a recursion over halves of them leaves to LAPACK.

    Few calls in all, since `jit` records each, and few multiplications that are none of matrices.
    On a device a call takes longer than the multiplications it saves, up to a thousand rows.
    """
    mode = MODE.get()
    while mode is not None and mode.recorder is not None:
        mode = mode.recorder.inner
    on_device = mode is not None and mode.place is not None
    return max(1024 if on_device else 128, -(-n // 8))


def half_of(n: int, block: int) -> int:
    """Return half of `n` rows, in whole blocks."""
    return (n // 2 + block - 1) // block * block


def solved_triangle(a: Any, b: Any, lower: bool) -> Any:
    """Return ``inv(a) @ b`` for triangular matrices, shape (..., n, n), that are zero elsewhere.

    Half of the rows after the other (Elmroth et al. 2004): nearly all of it is products of
    matrices, with half of the multiplications that a product with the inverse takes.
    """
    return _solved_rows(a, b, lower, block_rows(a.shape[-1]))


def _solved_rows(a: Any, b: Any, lower: bool, block: int) -> Any:
    n = a.shape[-1]
    if n <= block:
        return np.linalg.solve(a, b)
    h = half_of(n, block)
    rows = slice(None, h), slice(h, None)
    one, two = rows if lower else rows[::-1]
    first = _solved_rows(a[..., one, one], b[..., one, :], lower, block)
    rest = b[..., two, :] - np.matmul(a[..., two, one], first)
    second = _solved_rows(a[..., two, two], rest, lower, block)
    return np.concatenate([first, second] if lower else [second, first], axis=-2)


def is_zero(g: Any) -> bool:
    """Whether a cotangent is plain zeros, as nothing flowed back into a result."""
    return isinstance(g, (np.ndarray, np.generic)) and not np.any(g)


def precision(x: Any) -> float:
    """Return the machine epsilon of the dtype of `x`."""
    return float(np.finfo(x.dtype).eps)


def largest(x: Any) -> Any:
    """Return the largest magnitude in each matrix of a stack, shape (..., 1, 1)."""
    return np.max(np.abs(plain(x)), axis=(-2, -1), keepdims=True, initial=0.0)


def reciprocal(d: Any, without: Any) -> Any:
    """Return ``1 / d``, and 0 where `without` is true: no division happens there."""
    if not np.any(without):
        return 1 / d
    one = np.ones((), d.dtype)
    return np.where(without, 0 * one, 1 / np.where(without, one, d))


def refuse(name: str, touched: Any, what: str, fix: str) -> None:
    """Raise if any of `touched` is true: a derivative there is not determined."""
    if np.any(touched):
        raise NotDifferentiableError(f"{name}: {what}; {fix}")


def negligible(x: Any) -> Any:
    """Return the elements of matrices `x` that are rounding errors next to the largest."""
    return np.abs(plain(x)) <= precision(x) ** 0.5 * largest(x)
