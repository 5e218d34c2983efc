"""Pseudoinverse and least squares of `numpy.linalg`.

References
----------
- G. H. Golub, V. Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
  problems whose variables separate", SIAM J. Numer. Anal. 10 (1973), 413-432.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, Sample, register
from adarray.batching.rules import members, stacked
from adarray.core.protocol import plain_array
from adarray.ops.common import s
from adarray.ops.complex import conjugate_of
from adarray.ops.matrices import (
    adjoint,
    folded,
    hermitian,
    is_zero,
    precision,
    reciprocal,
    transposed,
)
from adarray.ops.solvers import regular

# -- pinv ------------------------------------------------------------------------------------


def _identity(n: int, x: Any) -> Any:
    return np.eye(n, dtype=x.dtype)


def _pinv(
    g: Any,
    out: Any,
    a: Any,
    rcond: Any = None,
    hermitian: bool = False,
    rtol: Any = np._NoValue,
) -> Any:
    if hermitian:
        a = _read(a)
    above = _above_cutoff(a, rcond, rtol)
    ct = _constant_rank(g, out, a) if above is None else _Cut(a, above).pullback(g)
    return folded(ct, "L") if hermitian else ct


def _pinv_tangent(
    t: Any,
    out: Any,
    a: Any,
    rcond: Any = None,
    hermitian: bool = False,
    rtol: Any = np._NoValue,
) -> Any:
    if hermitian:
        a, t = _read(a), _read(t)
    above = _above_cutoff(a, rcond, rtol)
    return _constant_rank_tangent(t, out, a) if above is None else _Cut(a, above).tangent(t)


def _read(a: Any) -> Any:
    """Return the Hermitian matrix that NumPy reads from the lower triangle of `a`."""
    return hermitian(a, "L")


def _above_cutoff(a: Any, rcond: Any, rtol: Any) -> Any:
    """Return which singular values the cutoff leaves, None if it drops only zeros."""
    if rcond is None:
        if rtol is np._NoValue or rtol is None:
            return None
        rcond = rtol
    sizes = np.linalg.svdvals(plain_array(a))
    top = np.max(sizes, axis=-1, keepdims=True, initial=0.0)
    above = sizes > plain_array(rcond)[..., None] * top
    zero = sizes <= max(a.shape[-2:]) * precision(a) * top
    return above if np.any(~above & ~zero) else None


def _constant_rank(g: Any, out: Any, a: Any) -> Any:
    """Return the pullback of Golub and Pereyra's formula."""
    m, n = a.shape[-2:]
    ct = -np.matmul(np.matmul(transposed(out), g), transposed(out))
    gram = np.matmul(np.matmul(transposed(g), out), adjoint(out))
    ct = ct + conjugate_of(np.matmul(_identity(m, a) - np.matmul(a, out), gram))
    gram = np.matmul(np.matmul(adjoint(out), out), transposed(g))
    return ct + conjugate_of(np.matmul(gram, _identity(n, a) - np.matmul(out, a)))


def _constant_rank_tangent(t: Any, out: Any, a: Any) -> Any:
    m, n = a.shape[-2:]
    left = _identity(n, a) - np.matmul(out, a)
    right = _identity(m, a) - np.matmul(a, out)
    tangent = -np.matmul(np.matmul(out, t), out)
    tangent = tangent + np.matmul(np.matmul(np.matmul(out, adjoint(out)), adjoint(t)), right)
    return tangent + np.matmul(np.matmul(left, adjoint(t)), np.matmul(adjoint(out), out))


class _Cut:
    """The derivative where a cutoff drops singular values that are not 0.

    With ``x = u.H @ da @ v``, the tangent is ``v @ k @ u.H``, where
    ``k = alpha * x + beta * x.H``. Between kept values alpha is ``-1 / (si * sj)`` and
    beta 0; between a kept value r and a dropped one d they are ``d / r / (r**2 - d**2)``
    and ``1 / (r**2 - d**2)``; between dropped ones, 0. Singular values are filled up
    with zeros, which are dropped.
    """

    def __init__(self, a: Any, above: Any) -> None:
        u, sizes, vh = np.linalg.svd(a)
        self.u, self.v = u, adjoint(vh)
        m, n = a.shape[-2:]
        self.k = min(m, n)
        rows, columns = _filled(sizes, above, n), _filled(sizes, above, m)
        (s_row, above_row), (s_column, above_column) = rows, columns
        i, above_i = s_row[..., :, None], above_row[..., :, None]
        j, above_j = s_column[..., None, :], above_column[..., None, :]
        both, mixed = above_i & above_j, above_i ^ above_j
        sign = np.where(above_i, 1, -1).astype(sizes.dtype)
        self.beta = sign * reciprocal(i * i - j * j, ~mixed)
        ratio = np.where(above_i, j, i) * reciprocal(np.where(above_i, i, j), ~mixed)
        self.alpha = ratio * self.beta - reciprocal(i * j, ~both)

    def pullback(self, g: Any) -> Any:
        """Return the cotangent of the matrix."""
        k, m, n = self.k, self.u.shape[-1], self.v.shape[-1]
        w = np.matmul(np.matmul(transposed(self.v), g), conjugate_of(self.u))
        x = conjugate_of(transposed(self.beta * w))
        square = (self.alpha * w)[..., :k, :k]
        x = x + _padded(square, m, n)
        return np.matmul(np.matmul(conjugate_of(self.u), x), transposed(self.v))

    def tangent(self, t: Any) -> Any:
        """Return the tangent of the pseudoinverse."""
        k, m, n = self.k, self.u.shape[-1], self.v.shape[-1]
        x = np.matmul(np.matmul(adjoint(self.u), t), self.v)
        inner = self.alpha * _padded(x[..., :k, :k], n, m) + self.beta * adjoint(x)
        return np.matmul(np.matmul(self.v, inner), adjoint(self.u))


def _filled(sizes: Any, above: Any, n: int) -> tuple[Any, Any]:
    """Return singular values and which are kept, with zeros up to `n`."""
    more = (*sizes.shape[:-1], n - sizes.shape[-1])
    none = np.zeros(more, bool)
    filled = np.concatenate([sizes, np.zeros(more, sizes.dtype)], axis=-1)
    return filled, np.concatenate([above, none], axis=-1)


def _padded(x: Any, m: int, n: int) -> Any:
    """Return square matrices with rows and columns of zeros added, shape (..., m, n)."""
    k, stack = x.shape[-1], x.shape[:-2]
    x = np.concatenate([x, np.zeros((*stack, k, n - k), x.dtype)], axis=-1)
    return np.concatenate([x, np.zeros((*stack, m - k, n), x.dtype)], axis=-2)


def _pinv_samples(rng: np.random.Generator) -> list[Sample]:
    square = regular(rng, 3, 3)
    return [
        s(rng.normal(size=(4, 2))),
        s(rng.normal(size=(2, 4))),
        s(rng.normal(size=(2, 3, 2)), rcond=1e-3),
        s(regular(rng, 3, 3), rtol=1e-4),
        s(square + square.T, hermitian=True),
        s(np.diag([1.0, 3.0, 9.0]) + 0.1 * rng.normal(size=(3, 3)), rcond=0.2),
        s(np.diag([1.0, 9.0, 3.0, 3.0])[:, :3] + 0.1 * rng.normal(size=(4, 3)), rtol=0.2),
        s(np.diag([1.0, 9.0, 3.0])[:2] + 0.1 * rng.normal(size=(2, 3)), rtol=0.2),
        s(np.diag([1.0, -9.0, 3.0]) + 0.1 * rng.normal(size=(3, 3)), rtol=0.2, hermitian=True),
    ]


register(
    Op(
        "pinv",
        np.linalg.pinv,
        Opaque(),
        [_pinv],
        jvp=[_pinv_tangent],
        batch=stacked(2),
        samples=_pinv_samples,
        operands=("a",),
        params=("rcond", "hermitian", "rtol"),
        note="for changes that keep the rank, or the number of singular values that a cutoff "
        "leaves; with hermitian=True the upper triangle, which "
        "NumPy does not read, has gradient 0",
    )
)


# -- lstsq -----------------------------------------------------------------------------------


def _check_rank(rank: Any, a: Any) -> None:
    n = min(a.shape)
    if int(plain_array(rank)) < n:
        raise NotDifferentiableError(
            f"lstsq: operand 0 has shape {tuple(a.shape)} and rank {int(plain_array(rank))}; the "
            "solution jumps where the rank changes: drop dependent columns, or use pinv with a "
            "cutoff if the rank stays"
        )


def _matrix(b: Any) -> Any:
    """Return a right-hand side as a matrix, shape (m, k)."""
    return b if np.ndim(b) == 2 else b[:, None]


def _residual(out: Any, a: Any, b: Any) -> Any:
    return _matrix(b) - np.matmul(a, _matrix(out[0]))


def _lstsq_matrix(g: Any, out: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    if not (is_zero(g[0]) and is_zero(g[1])):
        _check_rank(out[2], a)
    x, r, ct = _matrix(out[0]), _residual(out, a, b), np.zeros(a.shape, a.dtype)
    if not is_zero(g[0]):
        p, gx = np.linalg.pinv(a, rtol=0), _matrix(g[0])
        back, kernel = np.matmul(transposed(p), gx), _identity(a.shape[1], a) - np.matmul(p, a)
        ct = ct - np.matmul(back, transposed(x))
        ct = ct + conjugate_of(np.matmul(np.matmul(np.matmul(r, transposed(gx)), p), adjoint(p)))
        ct = ct + conjugate_of(
            np.matmul(np.matmul(np.matmul(adjoint(p), x), transposed(gx)), kernel)
        )
    if g[1].size and not is_zero(g[1]):
        ct = ct - np.matmul(2 * g[1] * conjugate_of(r), transposed(x))
    if not is_zero(g[3]):
        u, _, vh = np.linalg.svd(a, full_matrices=False)
        ct = ct + conjugate_of(np.matmul(u * g[3], vh))
    return ct


def _lstsq_right(g: Any, out: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    _check_rank(out[2], a)
    ct = np.matmul(transposed(np.linalg.pinv(a, rtol=0)), _matrix(g[0]))
    if g[1].size:
        ct = ct + 2 * g[1] * conjugate_of(_residual(out, a, b))
    return np.reshape(ct, np.shape(b))


def _lstsq_residuals(out: Any, r: Any, t: Any) -> Any:
    """Return the tangent of the sums of squares, where there are any, for residuals' `t`."""
    if not out[1].size:
        return np.zeros(out[1].shape, out[1].dtype)
    return np.sum(2 * np.real(conjugate_of(r) * t), axis=0)


def _lstsq_tangent(t: Any, out: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    _check_rank(out[2], a)
    a = a if hasattr(a, "ndim") else np.asarray(a)
    b = b if hasattr(b, "ndim") else np.asarray(b)
    p, x, r = np.linalg.pinv(a, rtol=0), _matrix(out[0]), _residual(out, a, b)
    moved, th = np.matmul(t, x), adjoint(t)
    kernel = _identity(a.shape[1], a) - np.matmul(p, a)
    tx = -np.matmul(p, moved) + np.matmul(np.matmul(p, adjoint(p)), np.matmul(th, r))
    tx = tx + np.matmul(kernel, np.matmul(th, np.matmul(adjoint(p), x)))
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    ts = np.real(np.sum(conjugate_of(u) * np.matmul(t, adjoint(vh)), axis=0))
    return np.reshape(tx, out[0].shape), _lstsq_residuals(out, r, -moved), None, ts


def _lstsq_right_tangent(t: Any, out: Any, a: Any, b: Any, rcond: Any = None) -> Any:
    a = a if hasattr(a, "ndim") else np.asarray(a)
    _check_rank(out[2], a)
    tx = np.matmul(np.linalg.pinv(a, rtol=0), _matrix(t))
    residuals = _lstsq_residuals(out, _residual(out, a, b), _matrix(t))
    return np.reshape(tx, out[0].shape), residuals, None, np.zeros(out[3].shape, out[3].dtype)


register(
    Op(
        "lstsq",
        np.linalg.lstsq,
        Opaque(),
        [_lstsq_matrix, _lstsq_right],
        jvp=[_lstsq_tangent, _lstsq_right_tangent],
        dynamic=lambda operands, params: (operands, params),  # residuals: of full rank alone
        batch=members,
        samples=lambda rng: [
            s(rng.normal(size=(5, 2)), rng.normal(size=5)),
            s(rng.normal(size=(5, 3)), rng.normal(size=(5, 2)), rcond=1e-6),
            s(rng.normal(size=(2, 4)), rng.normal(size=(2, 3))),
            s(rng.normal(size=(2, 4)), rng.normal(size=2)),
            s(regular(rng, 3, 3), rng.normal(size=(3, 1))),
        ],
        operands=("a", "b"),
        params=("rcond",),
        outputs=4,
        note="solution, residuals and singular values, in both operands, for a of full rank; "
        "refused otherwise",
    )
)
