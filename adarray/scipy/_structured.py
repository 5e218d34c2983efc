"""Matrices with structure: Toeplitz and relatives, block diagonals, bands.

References
----------
- N. Levinson, "The Wiener (root mean square) error criterion in filter design and prediction", J.
  Math. Phys. 25 (1946), 261-278.
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from adarray.ops.common import s
from adarray.scipy._drop_in import array, instead_of, is_complex, operation, over_batch, value
from adarray.scipy._triangular import conj, from_triangle


def _vector(x: Any, name: str) -> Any:
    x = array(x)
    if x.ndim != 1:
        raise ValueError(f"{name}: the operand has shape {x.shape}; pass a vector")
    return x


@instead_of(scipy.linalg.toeplitz)
@over_batch(("c", 1), ("r", 1))
def toeplitz(c: Any, r: Any = None) -> Any:
    c = np.reshape(array(c), (-1,))
    r = conj(c) if r is None else np.reshape(array(r), (-1,))
    m, n = c.shape[0], r.shape[0]
    band = np.concatenate([c[::-1], r[1:]])
    return band[m - 1 - np.arange(m)[:, None] + np.arange(n)[None, :]]


@instead_of(scipy.linalg.hankel)
def hankel(c: Any, r: Any = None) -> Any:
    c = np.reshape(array(c), (-1,))
    r = np.zeros_like(c) if r is None else np.reshape(array(r), (-1,))
    band = np.concatenate([c, r[1:]])
    return band[np.arange(c.shape[0])[:, None] + np.arange(r.shape[0])[None, :]]


@instead_of(scipy.linalg.circulant)
def circulant(c: Any) -> Any:
    c = array(c)
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)[None, :]) % n]


def _framed(first: Any, n: int, below: Any = None) -> Any:
    """Return the matrix of n rows with `first` on top and a subdiagonal `below` (ones)."""
    eye = np.eye(n - 1, n, dtype=first.dtype)
    rest = eye if below is None else eye * below[:, None]
    return np.concatenate([first[None, :], rest])


@instead_of(scipy.linalg.companion)
@over_batch(("a", 1))
def companion(a: Any) -> Any:
    if a.shape[0] < 2:
        raise ValueError("The length of `a` along the last axis must be at least 2.")
    return _framed(-a[1:] / a[0], a.shape[0] - 1)


@instead_of(scipy.linalg.leslie)
@over_batch(("f", 1), ("s", 1))
def leslie(f: Any, s: Any) -> Any:
    if f.shape[0] != s.shape[0] + 1:
        raise ValueError("The length of s must be one less than the length of f (and at least 1)")
    return _framed(f + np.zeros_like(f), f.shape[0], s)


@instead_of(scipy.linalg.fiedler)
@over_batch(("a", 1))
def fiedler(a: Any) -> Any:
    if a.ndim == 0:
        return np.array([0.0])
    return np.abs(a[:, None] - a[None, :])


@instead_of(scipy.linalg.convolution_matrix)
@over_batch(("a", 1))
def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    if n <= 0:
        raise ValueError("n must be a positive integer.")
    if mode not in ("full", "valid", "same"):
        raise ValueError("'mode' argument must be one of ('full', 'valid', 'same')")
    m = a.shape[0]
    zeros = np.zeros(n - 1, a.dtype)
    full = toeplitz(np.concatenate([a, zeros]), np.concatenate([a[:1], zeros]))
    if mode == "full":
        return full
    keep = min(m, n)
    size, trim = (
        (max(m, n) - keep + 1, keep - 1) if mode == "valid" else (max(m, n), (keep - 1) // 2)
    )
    return full[trim : trim + size]


@instead_of(scipy.linalg.block_diag)
def block_diag(*arrs: Any) -> Any:
    blocks = [np.atleast_2d(array(x)) for x in arrs] or [np.zeros((1, 0))]
    batch = np.broadcast_shapes(*(b.shape[:-2] for b in blocks))
    dtype = np.result_type(*(b.dtype for b in blocks))
    width = sum(b.shape[-1] for b in blocks)
    rows, at = [], 0
    for b in blocks:
        b = np.broadcast_to(b, batch + b.shape[-2:])
        left = np.zeros((*b.shape[:-1], at), dtype)
        at += b.shape[-1]
        rows.append(np.concatenate([left, b, np.zeros((*b.shape[:-1], width - at), dtype)], -1))
    return np.concatenate(rows, axis=-2)


@instead_of(scipy.linalg.khatri_rao)
@over_batch(("a", 2), ("b", 2))
def khatri_rao(a: Any, b: Any) -> Any:
    if a.shape[1] != b.shape[1]:
        raise ValueError("The number of columns for both arrays should be equal.")
    return np.reshape(a[:, None, :] * b[None, :, :], (a.shape[0] * b.shape[0], a.shape[1]))


@instead_of(scipy.linalg.diagsvd)
@over_batch(("s", 1))
def diagsvd(s: Any, M: int, N: int) -> Any:
    if s.shape[0] not in (M, N):
        raise ValueError("Length of s must be M or N.")
    return (
        s[:, None] * np.eye(M, N, dtype=s.dtype)
        if s.shape[0] == M
        else (np.eye(M, N, dtype=s.dtype) * s[None, :])
    )


# -- Toeplitz and circulant systems ---------------------------------------------------------------


def _levinson(c: Any, r: Any, b: Any) -> Any:
    return scipy.linalg.solve_toeplitz((c, r), b, check_finite=False)


def _diagonal_sums(u: Any, x: Any) -> tuple[Any, Any]:
    """Return the sums of ``u x^T`` along its diagonals: down the first column, along the row."""
    if u.ndim == 1:
        u, x = u[:, None], x[:, None]
    n = u.shape[0]
    column = np.stack([np.sum(u[k:] * x[: n - k]) for k in range(n)])
    row = np.stack([np.sum(u[: n - k] * x[k:]) for k in range(n)])
    return column, row


def _first_zero(x: Any) -> Any:
    """Return `x` without its first element, which c and not r gives."""
    return np.concatenate([np.zeros_like(x[:1]), x[1:]])


def _toeplitz_samples(rng: np.random.Generator) -> list[Any]:
    c, r = rng.normal(size=4) + np.array([6, 0, 0, 0]), rng.normal(size=4)
    return [s(c, r, rng.normal(size=4)), s(c, r + 0.5j, rng.normal(size=(4, 2)))]


_solve_toeplitz: Any = operation(
    "scipy.linalg.solve_toeplitz",
    _levinson,
    [
        lambda g, out, c, r, b: -_diagonal_sums(_transposed_solve(c, r, g), out)[0],
        lambda g, out, c, r, b: -_first_zero(_diagonal_sums(_transposed_solve(c, r, g), out)[1]),
        lambda g, out, c, r, b: _transposed_solve(c, r, g),
    ],
    jvp=[
        lambda d, out, c, r, b: (
            -_solve_toeplitz(c, r, np.matmul(toeplitz(d, np.zeros_like(r)), out))
        ),
        lambda d, out, c, r, b: (
            -_solve_toeplitz(c, r, np.matmul(toeplitz(np.zeros_like(c), _first_zero(d)), out))
        ),
        lambda d, out, c, r, b: _solve_toeplitz(c, r, d),
    ],
    samples=_toeplitz_samples,
    operands=("c", "r", "b"),
)


def _transposed_solve(c: Any, r: Any, b: Any) -> Any:
    return _solve_toeplitz(np.concatenate([c[:1], r[1:]]), c, b)


def _pair(c_or_cr: Any) -> tuple[Any, Any]:
    """Return first column and first row of a Toeplitz matrix."""
    if isinstance(c_or_cr, tuple):
        c, r = (np.reshape(array(x), (-1,)) for x in c_or_cr)
        return c, r
    c = np.reshape(array(c_or_cr), (-1,))
    return c, conj(c)


@instead_of(scipy.linalg.solve_toeplitz)
def solve_toeplitz(c_or_cr: Any, b: Any) -> Any:
    c, r = _pair(c_or_cr)
    b = array(b)
    if c.shape[0] != r.shape[0] or b.shape[0] != c.shape[0]:
        raise ValueError("Incompatible dimensions.")
    return np.reshape(_solve_toeplitz(c, r, np.reshape(b, (b.shape[0], -1))), b.shape)


@instead_of(scipy.linalg.matmul_toeplitz)
def matmul_toeplitz(c_or_cr: Any, x: Any) -> Any:
    c, r = _pair(c_or_cr)
    return np.matmul(toeplitz(c, r), array(x))


@instead_of(scipy.linalg.solve_circulant)
def solve_circulant(
    c: Any, b: Any, singular: str = "raise", caxis: int = -1, baxis: int = 0, outaxis: int = 0
) -> Any:
    c, b = np.atleast_1d(array(c)), np.atleast_1d(array(b))
    fc = np.fft.fft(np.moveaxis(c, caxis, -1), axis=-1)
    fb = np.fft.fft(np.moveaxis(b, baxis, -1), axis=-1)
    size = np.abs(np.asarray(value(fc)))
    if np.any(size <= size.max() * size.shape[-1] * np.finfo(size.dtype).eps):
        if singular != "lstsq":
            raise np.linalg.LinAlgError("near singular circulant matrix.")
        raise np.linalg.LinAlgError(
            "near singular circulant matrix; its solution has no derivative"
        )
    x = np.fft.ifft(fb / fc, axis=-1)
    x = x if is_complex(c, b) else np.real(x)
    return np.moveaxis(x, -1, outaxis)


# -- bands ----------------------------------------------------------------------------------------


def _band(x: Any, k: int, n: int) -> Any:
    """Return row `k` of banded storage: diagonal `k` (up positive), zeros outside the matrix."""
    columns = np.arange(n)
    return np.where((columns - k >= 0) & (columns - k < n), x, np.zeros_like(x))


def _transposed_band(ab: Any, lower: int, upper: int) -> Any:
    """Return the banded storage of the transpose."""
    n = ab.shape[1]
    rows = [np.roll(_band(ab[upper - k], k, n), -k) for k in range(-lower, upper + 1)]
    return np.stack(rows)


def _band_matmul(ab: Any, x: Any, lower: int, upper: int) -> Any:
    """Multiply a banded matrix with vectors."""
    n = ab.shape[1]
    total = None
    for k in range(-lower, upper + 1):
        d = _band(ab[upper - k], k, n)
        part = np.roll(d * x if x.ndim == 1 else d[:, None] * x, -k, axis=0)
        total = part if total is None else total + part
    return total


def _band_outer(u: Any, x: Any, lower: int, upper: int) -> Any:
    """Return ``u x^T`` in banded storage."""
    n = x.shape[0]
    rows = []
    for k in range(upper, -lower - 1, -1):
        product = np.roll(u, k, axis=0) * x
        rows.append(_band(product if x.ndim == 1 else np.sum(product, axis=1), k, n))
    return np.stack(rows)


def _solve_band(ab: Any, b: Any, lower: int, upper: int) -> Any:
    return scipy.linalg.solve_banded((lower, upper), ab, b, check_finite=False)


def _banded_samples(rng: np.random.Generator) -> list[Any]:
    ab = rng.normal(size=(3, 5)) + np.array([[0], [5], [0]])
    wide = rng.normal(size=(4, 5)) + np.array([[0], [0], [6], [0]])
    return [
        s(ab, rng.normal(size=5), 1, 1),
        s(wide, rng.normal(size=(5, 2)), 1, 2),
        s(ab + 0.3j, rng.normal(size=5), 1, 1),
        s(wide, rng.normal(size=5) + 1j, 1, 2),
    ]


def _banded_pull(g: Any, ab: Any, lower: int, upper: int) -> Any:
    return banded(_transposed_band(ab, lower, upper), g, upper, lower)


banded: Any = operation(
    "scipy.linalg.solve_banded",
    _solve_band,
    [
        lambda g, out, ab, b, lower, upper: (
            -_band_outer(_banded_pull(g, ab, lower, upper), out, lower, upper)
        ),
        lambda g, out, ab, b, lower, upper: _banded_pull(g, ab, lower, upper),
    ],
    jvp=[
        lambda d, out, ab, b, lower, upper: (
            -banded(ab, _band_matmul(d, out, lower, upper), lower, upper)
        ),
        lambda d, out, ab, b, lower, upper: banded(ab, d, lower, upper),
    ],
    samples=_banded_samples,
    operands=("ab", "b"),
    params=("lower", "upper"),
)


@instead_of(scipy.linalg.solve_banded)
def solve_banded(l_and_u: Any, ab: Any, b: Any) -> Any:
    lower, upper = (int(i) for i in l_and_u)
    ab, b = array(ab), array(b)
    if ab.ndim != 2 or ab.shape[-1] != b.shape[0]:
        raise ValueError("shapes of ab and b are not compatible.")
    if lower + upper + 1 != ab.shape[0]:
        raise ValueError(
            f"invalid values for the number of lower and upper diagonals: l+u+1 "
            f"({lower + upper + 1}) does not equal ab.shape[0] ({ab.shape[0]})"
        )
    return banded(ab, b, lower, upper)


def both_bands(ab: Any, lower: bool) -> Any:
    """Return the full banded storage of a Hermitian matrix of which one half is given."""
    n, width = ab.shape[1], ab.shape[0] - 1
    order = range(width + 1) if lower else range(width, -1, -1)
    below, above = [], []
    for k, i in enumerate(order):  # k-th diagonal from the main one
        sign = -k if lower else k
        band = _band(ab[i], sign, n)
        other = conj(np.roll(band, -sign))
        below.append(band if lower else other)
        above.append(other if lower else band)
    main = np.real(below[0]) + 0 * below[0] if is_complex(ab) else below[0]
    return np.stack([*above[:0:-1], main, *below[1:]])


def full_matrix(ab: Any, lower: bool) -> Any:
    """Return the Hermitian matrix of which one half is given in banded storage."""
    n, width = ab.shape[1], ab.shape[0] - 1
    i, j = np.indices((n, n))
    k = i - j if lower else j - i
    row = np.where((k >= 0) & (k <= width), k if lower else width - k, 0)
    picked = np.where((k >= 0) & (k <= width), ab[row, j], np.zeros_like(ab[row, j]))
    return from_triangle(picked, lower)


@instead_of(scipy.linalg.solveh_banded)
def solveh_banded(ab: Any, b: Any, lower: bool = False) -> Any:
    ab, b = array(ab), array(b)
    if ab.ndim != 2 or ab.shape[-1] != b.shape[0]:
        raise ValueError("shapes of ab and b are not compatible.")
    width = ab.shape[0] - 1
    return banded(both_bands(ab, lower), b, width, width)


def conj_band(ab: Any, width: int, lower: bool) -> Any:
    """Return the banded storage of the conjugate transpose of a triangle."""
    return conj(_transposed_band(ab, width if lower else 0, 0 if lower else width))
