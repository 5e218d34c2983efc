"""Cholesky and QR factors and singular values and vectors of `numpy.linalg`.

Factors are unique up to signs or phases. NumPy's choice is locally constant for real
matrices; for complex ones each record's note names the convention. Functions that do
not depend on the choice have the same derivatives under each.

Singular vectors of equal singular values are not unique, nor are eigenvectors of equal
eigenvalues (in `adarray.ops.eigen`). What a function does with them decides whether its
derivative exists, and a rule cannot see it: where something depends on directions inside
of such a space, the rules raise. Functions of the values alone need no such care.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44; in full as "An
  extended collection of matrix derivative results for forward and reverse mode automatic
  differentiation", report NA-08/01, Oxford University.
- I. Murray, "Differentiation of the Cholesky decomposition", arXiv:1602.07527, 2016, section 3.
- S. F. Walter, L. Lehmann, "Algorithmic differentiation of linear algebra functions with
  application in optimum experimental design", arXiv:1001.1654, 2010.
- J. Townsend, "Differentiating the singular value decomposition", technical report, 2016.
- Z.-Q. Wan, S.-X. Zhang, "Automatic differentiation for complex valued SVD", arXiv:1909.02659,
  2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, Sample, register
from adarray.batching.rules import stacked
from adarray.core.dispatch import apply
from adarray.core.protocol import plain
from adarray.ops.borrow import borrowed, replace
from adarray.ops.common import composite_if_traced, s
from adarray.ops.complex import conjugate_of, is_complex
from adarray.ops.matrices import (
    adjoint,
    block_rows,
    diagonal,
    diagonal_matrix,
    folded,
    half_of,
    hermitian,
    is_zero,
    largest,
    negligible,
    precision,
    reciprocal,
    refuse,
    solved_triangle,
    transposed,
)
from adarray.ops.solvers import regular

# -- Cholesky ------------------------------------------------------------------------------


def _lower_half(x: Any) -> Any:
    """Return the lower triangle with half of the diagonal."""
    n = x.shape[-1]
    half = np.ones((n, n), np.real(np.empty(0, x.dtype)).dtype)
    half[np.arange(n), np.arange(n)] = 0.5
    return np.tril(x) * half


def _cholesky(g: Any, out: Any, a: Any, upper: bool = False) -> Any:
    """Return the pullback on the triangle that NumPy reads."""
    if upper:  # it is the factor of the conjugate transpose, transposed
        g, out = adjoint(g), adjoint(out)
    ct = _pulled_back(g, out, block_rows(out.shape[-1]))
    return adjoint(ct) if upper else ct


def _pulled_back(g: Any, out: Any, block: int) -> Any:
    """Return the pullback of the factor, in the lower triangle.

    Small ones are ``inv(L)^T P(L^T g) conj(inv(L))``. Of halves of the rows, it is that of ::

        L21 = A21 inv(L11)^H,    L22 = cholesky(A22 - L21 L21^H)

    which is nearly all products of matrices, and a quarter of the multiplications (Murray 2016,
    whose blocks are columns).
    """
    n = out.shape[-1]
    if n <= block:
        inner = _lower_half(np.matmul(transposed(out), g))
        left = np.linalg.solve(transposed(out), inner)
        return folded(transposed(np.linalg.solve(adjoint(out), transposed(left))), "L")
    h = half_of(n, block)
    below = out[..., h:, :h]
    last = _pulled_back(g[..., h:, h:], out[..., h:, h:], block)
    ct = g[..., h:, :h] - np.matmul(last + adjoint(last), conjugate_of(below))
    solved = solved_triangle(adjoint(out[..., :h, :h]), transposed(ct), lower=False)
    ct = g[..., :h, :h] - conjugate_of(np.matmul(solved, below))
    first = _pulled_back(ct, out[..., :h, :h], block)
    above = np.zeros_like(transposed(below))
    top = np.concatenate([first, above], axis=-1)
    return np.concatenate([top, np.concatenate([transposed(solved), last], axis=-1)], axis=-2)


def _cholesky_tangent(t: Any, out: Any, a: Any, upper: bool = False) -> Any:
    """Return ``L P(inv(L) dA inv(L)^H)``, where P halves the diagonal of a lower triangle."""
    if upper:
        t, out = adjoint(t), adjoint(out)
    left = solved_triangle(out, hermitian(t, "L"), lower=True)
    inner = adjoint(solved_triangle(out, adjoint(left), lower=True))
    tangent = np.matmul(out, _lower_half(inner))
    return adjoint(tangent) if upper else tangent


def positive_definite(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random symmetric matrices, shape (..., n, n), that stay definite when moved."""
    x = rng.normal(size=shape)
    out: np.ndarray = np.matmul(x, np.swapaxes(x, -1, -2)) + shape[-1] * np.eye(shape[-1])
    return out


register(
    Op(
        "cholesky",
        np.linalg.cholesky,
        Opaque(),
        [_cholesky],
        jvp=[_cholesky_tangent],
        batch=stacked(2),
        samples=lambda rng: [
            s(positive_definite(rng, 3, 3)),
            s(positive_definite(rng, 2, 3, 3)),
            s(positive_definite(rng, 3, 3), upper=True),
            s(positive_definite(rng, 1, 1)),
        ],
        operands=("a",),
        params=("upper",),
        note="NumPy reads one triangle: the other has gradient 0, and the one read has that "
        "of both",
    )
)

# -- QR ------------------------------------------------------------------------------------


def _skew(c: Any) -> Any:
    """Return the skew-Hermitian matrix that differs from `c` by an upper triangle, real diagonal.

    It is its own pullback up to `_skew_pullback`, which see.
    """
    low = np.tril(c, -1)
    skew = low - adjoint(low)
    return skew + diagonal_matrix(1j * np.imag(diagonal(c))) if is_complex(c) else skew


def _skew_pullback(w: Any) -> Any:
    both = w - adjoint(w)
    pulled = np.tril(both, -1)
    return pulled + diagonal_matrix(diagonal(both) / 2) if is_complex(w) else pulled


def _check_qr(r: Any) -> None:
    d = np.abs(plain(diagonal(r)))
    bound = max(r.shape[-2:]) * precision(r) * np.max(d, axis=-1, keepdims=True, initial=0.0)
    refuse(
        "qr",
        d <= bound,
        "the first columns are linearly dependent",
        "the factors are not differentiable there; use svd, lstsq or pinv",
    )


def _divided(x: Any, r: Any) -> Any:
    """Return ``x @ inv(r)``."""
    return transposed(np.linalg.solve(transposed(r), transposed(x)))


def _qr(g: Any, out: Any, a: Any, mode: Any = "reduced") -> Any:
    """Return the pullback: the formulas of the tangent, transposed (Walter and Lehmann 2010)."""
    n = a.shape[-1]
    gq, gr = conjugate_of(g[0]), conjugate_of(g[1])
    q, r = out[0][..., :n], out[1][..., :n, :]
    _check_qr(r)
    if mode == "complete":
        # The columns of q beyond n rotate against those before: dq2 = -q @ dq.H @ q2.
        q2, gq2 = out[0][..., n:], gq[..., n:]
        gq, gr = gq[..., :n], gr[..., :n, :]
        gq = gq - np.matmul(np.matmul(q2, adjoint(gq2)), q)
    y, z = np.matmul(adjoint(q), gq), np.matmul(gr, adjoint(r))
    inner = z + _skew_pullback(y - z)
    ct = gq - np.matmul(q, y) + np.matmul(q, inner)
    return conjugate_of(_divided(ct, adjoint(r)))


def _qr_tangent(t: Any, out: Any, a: Any, mode: Any = "reduced") -> Any:
    """Return the tangents of Q and R (Walter and Lehmann 2010).

    With ``C = Q^H dA inv(R)`` and the skew-Hermitian W that has the lower triangle of C::

        dQ = (1 - Q Q^H) dA inv(R) + Q W
        dR = (C - W) R
    """
    m, n = a.shape[-2:]
    q, r = out[0][..., :n], out[1][..., :n, :]
    _check_qr(r)
    moved = _divided(t, r)
    c = np.matmul(adjoint(q), moved)
    skew = _skew(c)
    tq = moved - np.matmul(q, c) + np.matmul(q, skew)
    tr = np.matmul(np.triu(c - skew), r)
    if mode == "complete":
        q2 = out[0][..., n:]
        tq = np.concatenate([tq, -np.matmul(q, np.matmul(adjoint(tq), q2))], axis=-1)
        below = np.zeros((*a.shape[:-2], m - n, n), r.dtype)
        tr = np.concatenate([tr, below], axis=-2)
    return tq, tr


def _qr_invariants(out: Any) -> Any:
    q, r = out
    n = r.shape[-1]
    return q[..., :n], np.matmul(q[..., n:], adjoint(q[..., n:])), r


qr = register(
    Op(
        "qr",
        lambda a, mode="reduced": np.linalg.qr(a, mode),
        Opaque(),
        [_qr],
        jvp=[_qr_tangent],
        batch=stacked(2),
        samples=lambda rng: [
            s(rng.normal(size=(4, 2))),
            s(rng.normal(size=(2, 4, 3))),
            s(regular(rng, 3, 3)),
            s(rng.normal(size=(4, 3)), mode="complete"),
            s(rng.normal(size=(5, 2)), mode="complete"),
            s(regular(rng, 3, 3), mode="complete"),
            s(rng.normal(size=(1, 1))),
        ],
        operands=("a",),
        params=("mode",),
        outputs=2,
        invariants=_qr_invariants,
        note="the diagonal of r is real, as LAPACK makes it; the first min(m, n) columns must be "
        "linearly independent. The columns of q that mode='complete' adds have the derivative "
        "without a rotation among themselves: it is right for functions of the space they span",
    )
)

_QRResult: Any = type(np.linalg.qr(np.eye(1)))


@composite_if_traced(np.linalg.qr)
def _linalg_qr(a: Any, mode: Any = "reduced") -> Any:
    if mode in ("f", "full"):
        np.linalg.qr(plain(a), mode)  # warns as NumPy does
        mode = "reduced"
    if mode not in ("reduced", "complete", "r"):
        np.linalg.qr(plain(a), mode)  # an error of NumPy's comes first
        raise NotDifferentiableError(
            f"qr: the mode {mode!r} gives Householder reflectors, which are not differentiated; "
            "use the modes 'reduced', 'complete' or 'r'"
        )
    kind = "complete" if mode == "complete" else "reduced"
    m, n = a.shape[-2:] if a.ndim > 1 else (0, 0)
    if m >= n:
        q, r = apply(qr, (a,), {"mode": kind})
    else:  # q belongs to the first m columns
        q, first = apply(qr, (a[..., :m],), {"mode": kind})
        r = np.concatenate([first, np.matmul(adjoint(q), a[..., m:])], axis=-1)
    return r if mode == "r" else _QRResult(q, r)


# -- singular values -----------------------------------------------------------------------

_FIX = (
    "use svdvals (or compute_uv=False) for functions of the singular values alone, or add a small "
    "matrix that separates them"
)


def _svdvals_tangent(t: Any, out: Any, x: Any) -> Any:
    """Return ``Re diag(U^H dA V)`` (Giles 2008)."""
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return np.real(np.sum(conjugate_of(u) * np.matmul(t, adjoint(vh)), axis=-2))


def _svdvals(g: Any, out: Any, x: Any) -> Any:
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return conjugate_of(np.matmul(u * g[..., None, :], vh))


svdvals = register(
    Op(
        "svdvals",
        np.linalg.svdvals,
        Opaque(),
        [_svdvals],
        jvp=[_svdvals_tangent],
        batch=stacked(2),
        samples=lambda rng: [
            s(rng.normal(size=(3, 3))),
            s(rng.normal(size=(2, 4, 3))),
            s(rng.normal(size=(2, 4)) + np.eye(2, 4)),
            s(rng.normal(size=(1, 1))),
        ],
        operands=("x",),
        note="right for every smooth function of the singular values, equal ones included (the "
        "second order needs distinct ones); at 0, where a singular value alone has a kink, a "
        "subgradient",
    )
)


def _near(sizes: Any) -> tuple[Any, Any]:
    """Return which pairs of singular values are equal, and which single ones are 0."""
    v = plain(sizes)
    bound = v.shape[-1] * precision(v) * np.max(v, axis=-1, keepdims=True, initial=0.0)
    apart = np.abs(v[..., None, :] - v[..., :, None])
    return apart <= bound[..., None], v <= bound


class _Pairs:
    """The divisions by differences and sums of singular values, where they are not 0."""

    def __init__(self, sizes: Any) -> None:
        self.equal, self.zero = _near(sizes)
        self.both_zero = self.zero[..., None, :] & self.zero[..., :, None]
        row, column = sizes[..., None, :], sizes[..., :, None]
        self.by_difference = reciprocal(row - column, self.equal)
        self.by_sum = reciprocal(row + column, self.both_zero)
        self.by_size = reciprocal(sizes, self.zero)

    def check(self, symmetric: Any, skew: Any) -> None:
        """Raise where a quotient by 0 matters, given the numerators."""
        off = ~np.eye(self.equal.shape[-1], dtype=bool)
        if np.any(self.equal & off):
            touched = self.equal & off & ~negligible(symmetric)
            refuse("svd", touched, "singular values are equal, and their vectors not unique", _FIX)
        if np.any(self.both_zero):
            self._refuse_zero(self.both_zero & ~negligible(skew))

    def check_columns(self, columns: Any) -> None:
        """Raise where a column, shape (..., m, k), is to be divided by a singular value 0."""
        if np.any(self.zero):
            self._refuse_zero(self.zero[..., None, :] & ~negligible(columns))

    @staticmethod
    def _refuse_zero(touched: Any) -> None:
        refuse("svd", touched, "a singular value is 0, and its vectors are not unique", _FIX)


def _perpendicular(g: Any, basis: Any, k: int) -> Any:
    """Return the part of a cotangent of k vectors that lies across them, shape (..., m, k).

    The vectors beyond k in `basis` rotate against those before.
    """
    first, rest = basis[..., :k], basis[..., k:]
    ct = g[..., :k] - np.matmul(first, np.matmul(adjoint(first), g[..., :k]))
    if rest.shape[-1]:
        ct = ct - np.matmul(rest, np.matmul(adjoint(g[..., k:]), first))
    return ct


def _svd(g: Any, out: Any, a: Any, full_matrices: bool = True) -> Any:
    """Return the pullback of the cotangents gU, gs and gV: the tangent's formulas, transposed.

    With ``N = U^H gU + V^H gV``, ``D = U^H gU - V^H gV`` and quotients elementwise as there, it is
    the conjugate of ::

        U [(N - N^H) / (2 (s[j] - s[i])) + (D - D^H) / (2 (s[j] + s[i])) + diag(gs)] V^H
            + (1 - U U^H) gU diag(1 / s) V^H  +  U diag(1 / s) gV^H (1 - V V^H)
    """
    u, sizes, v = out[0], out[1], adjoint(out[2])
    k = sizes.shape[-1]
    u1, v1 = u[..., :k], v[..., :k]
    if is_zero(g[0]) and is_zero(g[2]):
        return conjugate_of(np.matmul(u1 * g[1][..., None, :], adjoint(v1)))
    gu, gv = conjugate_of(g[0]), transposed(g[2])
    pairs = _Pairs(sizes)
    nu, nv = np.matmul(adjoint(u1), gu[..., :k]), np.matmul(adjoint(v1), gv[..., :k])
    symmetric, skew = nu + nv, nu - nv
    pairs.check(symmetric + adjoint(symmetric), skew - adjoint(skew))
    inner = pairs.by_difference * (symmetric - adjoint(symmetric)) + pairs.by_sum * (
        skew - adjoint(skew)
    )
    inner = inner / 2 + diagonal_matrix(g[1])
    ct = np.matmul(np.matmul(u1, inner), adjoint(v1))
    if a.shape[-2] > k:
        across = _perpendicular(gu, u, k)
        pairs.check_columns(across)
        ct = ct + np.matmul(across * pairs.by_size[..., None, :], adjoint(v1))
    if a.shape[-1] > k:
        across = _perpendicular(gv, v, k)
        pairs.check_columns(across)
        ct = ct + np.matmul(u1, adjoint(across * pairs.by_size[..., None, :]))
    return conjugate_of(ct)


def _vectors_tangent(t: Any, basis: Any, inner: Any, across: Any, k: int) -> Any:
    """Return the tangent of singular vectors: turned by `inner`, moved by `across`."""
    first, rest = basis[..., :k], basis[..., k:]
    moved = np.matmul(first, inner)
    if across is not None:
        away = across - np.matmul(first, np.matmul(adjoint(first), across))
        moved = moved + away
        if rest.shape[-1]:
            back = -np.matmul(first, np.matmul(adjoint(away), rest))
            moved = np.concatenate([moved, back], axis=-1)
    return moved


def _svd_tangent(t: Any, out: Any, a: Any, full_matrices: bool = True) -> Any:
    """Return the tangents of U, s and V^H (Townsend 2016; of complex matrices Wan and Zhang 2019).

    With ``P = U^H dA V``, its parts ``H = (P + P^H) / 2`` and ``K = (P - P^H) / 2``, and
    elementwise quotients by the singular values of row i and column j, 0 for i = j in the first::

        ds = Re diag(P)
        dU = U [H / (s[j] - s[i]) + K / (s[j] + s[i])] + (1 - U U^H) dA V diag(1 / s)
        dV = V [H / (s[j] - s[i]) - K / (s[j] + s[i])] + (1 - V V^H) dA^H U diag(1 / s)

    Townsend's ``F = 1 / (s[j]^2 - s[i]^2)`` is both quotients in one. Apart, a difference 0 matters
    only where H is not 0, and a sum 0 only where K is not. The diagonal of K, which is 0 for real
    matrices, rotates the phases of a pair of vectors by opposite angles.
    """
    u, sizes, v = out[0], out[1], adjoint(out[2])
    k = sizes.shape[-1]
    u1, v1 = u[..., :k], v[..., :k]
    pairs = _Pairs(sizes)
    right, left = np.matmul(t, v1), np.matmul(adjoint(t), u1)
    p = np.matmul(adjoint(u1), right)
    symmetric, skew = p + adjoint(p), p - adjoint(p)
    pairs.check(symmetric, skew)
    symmetric, skew = pairs.by_difference * symmetric / 2, pairs.by_sum * skew / 2
    across_u = across_v = None
    if a.shape[-2] > k:
        pairs.check_columns(right - np.matmul(u1, p))
        across_u = right * pairs.by_size[..., None, :]
    if a.shape[-1] > k:
        pairs.check_columns(left - np.matmul(v1, adjoint(p)))
        across_v = left * pairs.by_size[..., None, :]
    tu = _vectors_tangent(t, u, symmetric + skew, across_u, k)
    tv = _vectors_tangent(t, v, symmetric - skew, across_v, k)
    return tu, np.real(diagonal(p)), adjoint(tv)


def _svd_samples(rng: np.random.Generator) -> list[Sample]:
    return [
        s(rng.normal(size=(3, 3)) + np.diag([1.0, 3.0, 6.0])),
        s(rng.normal(size=(2, 4, 2)) + np.diag([1.0, 4.0, 0, 0])[:, :2], full_matrices=False),
        s(rng.normal(size=(2, 4)) + np.diag([1.0, 4.0, 0, 0])[:2], full_matrices=False),
        s(rng.normal(size=(3, 2)) + np.diag([1.0, 4.0, 0])[:, :2]),
        s(rng.normal(size=(2, 3)) + np.diag([1.0, 4.0, 0])[:2]),
        s(rng.normal(size=(1, 1)) + 3.0),
    ]


def _svd_invariants(out: Any) -> Any:
    u, sizes, vh = out
    k = sizes.shape[-1]
    pairs = transposed(u[..., :k])[..., :, None] * vh[..., :k, None, :]
    rest = (np.matmul(x, adjoint(x)) for x in (u[..., k:], adjoint(vh)[..., k:]))
    return pairs, sizes, *rest


svd = register(
    Op(
        "svd",
        lambda a, full_matrices=True: np.linalg.svd(a, full_matrices),
        Opaque(),
        [_svd],
        jvp=[_svd_tangent],
        batch=stacked(2),
        samples=_svd_samples,
        operands=("a",),
        params=("full_matrices",),
        outputs=3,
        invariants=_svd_invariants,
        note="where singular values are equal (or 0) and the function depends on their vectors, "
        "NotDifferentiableError. Vectors that full_matrices=True adds do not rotate among "
        "themselves; complex phases rotate by equal and opposite angles in u and v",
    )
)


@composite_if_traced(np.linalg.svd)
def _linalg_svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    if hermitian:
        return _hermitian_svd(a, full_matrices, compute_uv, True)
    if not compute_uv:
        return apply(svdvals, (a,))
    return apply(svd, (a,), {"full_matrices": bool(full_matrices)})


# NumPy's own, which takes the eigenvalues' magnitudes and orders them. Its `_makearray`
# gives an array and the function that wraps results as the argument was.
replace(
    np.linalg._linalg._makearray,  # type: ignore[attr-defined]
    lambda a: (a, lambda result: result),
)
_hermitian_svd = borrowed(np.linalg.svd)


def picked_singular_values(x: Any, pick: Any) -> Any:
    """Return ``pick`` (max, min or sum) of singular values; those that are 0 have derivative 0."""
    sizes = np.linalg.svdvals(x)
    v = plain(sizes)
    bound = max(x.shape[-2:]) * precision(v) * np.max(v, axis=-1, keepdims=True, initial=0.0)
    zero = v <= bound
    if np.any(zero):
        sizes = np.where(zero, v, sizes)
    return pick(sizes, axis=-1)


__all__ = ["largest", "picked_singular_values", "positive_definite", "qr", "svd", "svdvals"]
