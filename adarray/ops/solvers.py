"""Linear equations, inverses and determinants of `numpy.linalg`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.errors import NotDifferentiableError
from adarray.op import Op, Opaque, Sample, register
from adarray.ops import creation
from adarray.ops.borrow import borrow
from adarray.ops.common import composite_if_traced, s
from adarray.ops.complex import conjugate_of, is_complex
from adarray.ops.matrices import (
    adjoint,
    diagonal,
    folded,
    hermitian,
    is_zero,
    largest,
    precision,
    transposed,
)
from adarray.protocol import plain, traced


def regular(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Return random matrices, shape (..., n, n), that are far from singular ones."""
    return rng.normal(size=shape) + 3 * np.eye(shape[-1])


# -- solve and inv -------------------------------------------------------------------------


def _solved_transpose(g: Any, a: Any, b: Any) -> Any:
    if np.ndim(b) == 1:
        return np.linalg.solve(transposed(a), g[..., None])[..., 0]
    return np.linalg.solve(transposed(a), g)


def _solve_matrix(g: Any, out: Any, a: Any, b: Any) -> Any:
    r = _solved_transpose(g, a, b)
    if np.ndim(b) == 1:
        return -r[..., None] * out[..., None, :]
    return -np.matmul(r, transposed(out))


def _solve_tangent(t: Any, out: Any, a: Any, b: Any) -> Any:
    if np.ndim(b) == 1:
        return -np.linalg.solve(a, np.matmul(t, out[..., None]))[..., 0]
    return -np.linalg.solve(a, np.matmul(t, out))


register(
    Op(
        "solve",
        np.linalg.solve,
        Opaque(),
        [_solve_matrix, lambda g, out, a, b: _solved_transpose(g, a, b)],
        jvp=[_solve_tangent, lambda t, out, a, b: np.linalg.solve(a, t)],
        samples=lambda rng: [
            s(regular(rng, 3, 3), rng.normal(size=3)),
            s(regular(rng, 3, 3), rng.normal(size=(3, 2))),
            s(regular(rng, 2, 3, 3), rng.normal(size=(2, 3, 2))),
            s(regular(rng, 2, 3, 3), rng.normal(size=3)),
            s(regular(rng, 2, 1, 3, 3), rng.normal(size=(4, 3, 2))),
            s(regular(rng, 3, 3)[::-1, ::-1], rng.normal(size=(3, 1))),
            s(regular(rng, 1, 1), rng.normal(size=(1, 1))),
        ],
        operands=("a", "b"),
    )
)

inv = register(
    Op(
        "inv",
        np.linalg.inv,
        Opaque(),
        [lambda g, out, a: -np.matmul(np.matmul(transposed(out), g), transposed(out))],
        jvp=[lambda t, out, a: -np.matmul(np.matmul(out, t), out)],
        samples=lambda rng: [
            s(regular(rng, 3, 3)),
            s(regular(rng, 2, 3, 3)),
            s(regular(rng, 3, 3).T),
            s(regular(rng, 1, 1)),
        ],
        operands=("a",),
    )
)


# -- determinants --------------------------------------------------------------------------


def cofactors(a: Any, det: Any) -> Any:
    """Return the matrices of cofactors, the derivative of the determinant.

    They are ``det * inv(a).T`` for a regular matrix. A matrix that is nearly
    singular is written as ``b - sigma * u @ vh``, where u and vh hold its k singular
    vectors of singular values near 0, and b is regular. Then
    ``det(a) = det(b) * det(m)`` with the small matrix
    ``m = 1 - sigma * vh @ inv(b) @ u``, whose determinant and adjugate are found
    without a division by it. All of it is exact, so that derivatives of any order
    are right at singular matrices too.
    """
    v = np.asarray(plain(a))
    if v.shape[-1] == 0 or not np.all(np.isfinite(v)):
        return np.zeros_like(a) + det[..., None, None]
    try:
        inverse = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        inverse = None
    # Derivatives of the inverse lose accuracy with powers of the condition number.
    small = precision(v) ** (0.25 if traced(a) else 0.5)
    if inverse is not None:
        condition = largest(v) * largest(inverse)
        if np.all(condition < 1 / (small * v.shape[-1])):
            return det[..., None, None] * transposed(inverse)
    u, sizes, vh = np.linalg.svd(v)
    longest = np.where(sizes[..., :1] == 0, 1, sizes[..., :1])
    k = int(np.max(np.sum(sizes < small * longest, axis=-1), initial=1))
    u, vh, sigma = u[..., -k:], vh[..., -k:, :], longest[..., None]
    b = a + np.matmul(u * sigma, vh)
    inverse = np.linalg.inv(b)
    left, right = np.matmul(inverse, u) * sigma, np.matmul(vh, inverse)
    eye = np.eye(k, dtype=v.dtype)
    factor, adjugate = _adjugate(eye - np.matmul(vh, left))
    both = factor * inverse + np.matmul(np.matmul(left, adjugate), right)
    return np.linalg.det(b)[..., None, None] * transposed(both)


def _adjugate(m: Any) -> tuple[Any, Any]:
    """Return determinant, shape (..., 1, 1), and adjugate of `m` without dividing by it.

    This is the recursion of Faddeev and LeVerrier for the characteristic polynomial.
    """
    k = m.shape[-1]
    eye = np.eye(k, dtype=m.dtype)
    power, product = eye, m
    c = -np.sum(diagonal(m), axis=-1)[..., None, None]
    for j in range(2, k + 1):
        power = product + c * eye
        product = np.matmul(m, power)
        c = -np.sum(diagonal(product), axis=-1)[..., None, None] / j
    sign = (-1) ** k
    return sign * c, -sign * power


register(
    Op(
        "det",
        np.linalg.det,
        Opaque(),
        [lambda g, out, a: g[..., None, None] * cofactors(a, out)],
        jvp=[lambda t, out, a: np.sum(cofactors(a, out) * t, axis=(-2, -1))],
        samples=lambda rng: [
            s(regular(rng, 3, 3)),
            s(rng.normal(size=(2, 2, 3, 3))),
            s(regular(rng, 3, 3)[:, ::-1]),
            s(rng.normal(size=(1, 1))),
        ],
        operands=("a",),
        note="right at singular matrices too",
    )
)


def _slogdet(g: Any, out: Any, a: Any) -> Any:
    # sign = det / |det| turns with the imaginary part of tr(inv(a) @ t), logabsdet
    # grows with the real part.
    weight = g[1]
    if is_complex(a) and not is_zero(g[0]):
        weight = weight - 1j * np.real(1j * g[0] * out[0])
    return weight[..., None, None] * transposed(np.linalg.inv(a))


def _slogdet_tangent(t: Any, out: Any, a: Any) -> Any:
    z = np.sum(transposed(np.linalg.inv(a)) * t, axis=(-2, -1))
    if is_complex(a):
        return out[0] * (1j * np.imag(z)), np.real(z)
    return np.zeros_like(z), z


register(
    Op(
        "slogdet",
        np.linalg.slogdet,
        Opaque(),
        [_slogdet],
        jvp=[_slogdet_tangent],
        samples=lambda rng: [
            s(regular(rng, 3, 3)),
            s(rng.normal(size=(2, 2, 3, 3))),
            s(regular(rng, 3, 3)[::-1]),
            s(regular(rng, 3, 3) + 1j * rng.normal(size=(3, 3))),
            s(rng.normal(size=(1, 1))),
        ],
        operands=("a",),
        outputs=2,
        note="LinAlgError at singular matrices, where the logarithm is -inf",
    )
)


# -- pinv and lstsq ------------------------------------------------------------------------


def _identity(n: int, x: Any) -> Any:
    return np.eye(n, dtype=x.dtype)


def _pinv(g: Any, out: Any, a: Any, hermitian: bool = False, **_: Any) -> Any:
    if hermitian:
        a = _read(a)
    m, n = a.shape[-2:]
    ct = -np.matmul(np.matmul(transposed(out), g), transposed(out))
    gram = np.matmul(np.matmul(transposed(g), out), adjoint(out))
    ct = ct + conjugate_of(np.matmul(_identity(m, a) - np.matmul(a, out), gram))
    gram = np.matmul(np.matmul(adjoint(out), out), transposed(g))
    ct = ct + conjugate_of(np.matmul(gram, _identity(n, a) - np.matmul(out, a)))
    return folded(ct, "L") if hermitian else ct


def _read(a: Any) -> Any:
    """Return the Hermitian matrix that NumPy reads from the lower triangle of `a`."""
    return hermitian(a, "L")


def _pinv_tangent(t: Any, out: Any, a: Any, hermitian: bool = False, **_: Any) -> Any:
    if hermitian:
        a, t = _read(a), _read(t)
    m, n = a.shape[-2:]
    left = _identity(n, a) - np.matmul(out, a)
    right = _identity(m, a) - np.matmul(a, out)
    tangent = -np.matmul(np.matmul(out, t), out)
    tangent = tangent + np.matmul(np.matmul(np.matmul(out, adjoint(out)), adjoint(t)), right)
    return tangent + np.matmul(np.matmul(left, adjoint(t)), np.matmul(adjoint(out), out))


def _pinv_samples(rng: np.random.Generator) -> list[Sample]:
    square = regular(rng, 3, 3)
    return [
        s(rng.normal(size=(4, 2))),
        s(rng.normal(size=(2, 4))),
        s(rng.normal(size=(2, 3, 2)), rcond=1e-3),
        s(regular(rng, 3, 3), rtol=1e-4),
        s(square + square.T, hermitian=True),
    ]


register(
    Op(
        "pinv",
        np.linalg.pinv,
        Opaque(),
        [_pinv],
        jvp=[_pinv_tangent],
        samples=_pinv_samples,
        operands=("a",),
        params=("rcond", "hermitian", "rtol"),
        note="for changes that keep the rank; with hermitian=True the upper triangle, which "
        "NumPy does not read, has gradient 0",
    )
)


def _check_rank(rank: Any, a: Any) -> None:
    n = min(a.shape)
    if int(np.asarray(rank)) < n:
        raise NotDifferentiableError(
            f"lstsq: operand 0 has shape {tuple(a.shape)} and rank {int(np.asarray(rank))}; the "
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


# -- made of these -------------------------------------------------------------------------

borrow(np.linalg.tensorinv, np.linalg.matrix_power, np.linalg.multi_dot)


@composite_if_traced(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    given, a, b = a, creation.asarray(a), creation.asarray(b)
    if axes is not None:
        order = list(range(a.ndim))
        for k in axes:
            order.remove(k)
            order.append(k)
        a = np.transpose(a, order)
    shape = a.shape[-(a.ndim - b.ndim) :]
    n = math.prod(shape)
    if a.size != n * n:
        np.linalg.tensorsolve(plain(given), plain(b), axes)  # raises NumPy's error
    x = np.linalg.solve(np.reshape(a, (n, n)), np.reshape(b, (-1,)))
    return np.reshape(x, shape)


@composite_if_traced(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Any:
    """``np.linalg.cond``; a singular matrix has condition inf, and no gradient flows."""
    if x.ndim < 2 or (p is not None and p not in (2, -2) and x.shape[-1] != x.shape[-2]):
        np.linalg.cond(plain(x), p)  # raises NumPy's error
    if 0 in x.shape[-2:]:
        raise np.linalg.LinAlgError("cond is not defined on empty arrays")
    value = np.asarray(np.linalg.cond(plain(x), p))
    # The identity stands in for matrices without a finite condition.
    lost = ~np.isfinite(value)
    if np.any(lost):
        x = np.where(lost[..., None, None], np.eye(*x.shape[-2:], dtype=x.dtype), x)
    if p is None or p in (2, -2):
        sizes = np.linalg.svdvals(x)
        ends = (sizes[..., -1], sizes[..., 0])
        r = ends[0] / ends[1] if p == -2 else ends[1] / ends[0]
    else:
        norm, inverse = np.linalg.norm, np.linalg.inv(x)
        r = norm(x, p, axis=(-2, -1)) * norm(inverse, p, axis=(-2, -1))
    return np.where(lost, value, r) if np.any(lost) else r
