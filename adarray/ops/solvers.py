"""Linear equations, inverses and determinants of `numpy.linalg`.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- G. W. Stewart, "On the adjugate matrix", Linear Algebra Appl. 283 (1998), 151-164.
- D. K. Faddeev, V. N. Faddeeva, "Computational Methods of Linear Algebra", Freeman 1963 (the
  recursion of Faddeev and Le Verrier).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, register
from adarray.batching.layouts import solved
from adarray.batching.rules import stacked
from adarray.core.protocol import plain, plain_array, traced
from adarray.ops import creation
from adarray.ops.borrow import borrow
from adarray.ops.common import composite_if_traced, s
from adarray.ops.complex import is_complex
from adarray.ops.matrices import (
    diagonal,
    is_zero,
    largest,
    precision,
    transposed,
)


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
    """Return ``-inv(A) dA x`` (Giles 2008)."""
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
        batch=solved,
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
        batch=stacked(2),
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
    v = plain_array(a)
    if v.shape[-1] == 0:
        return np.zeros_like(a) + det[..., None, None]
    finite = np.all(np.isfinite(v), axis=(-2, -1), keepdims=True)
    if not np.all(finite):  # of some matrices; the others have their cofactors
        regular = np.where(finite, a, np.eye(v.shape[-1], dtype=v.dtype))
        of_finite = cofactors(regular, np.linalg.det(regular))
        return np.where(finite, of_finite, det[..., None, None])
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
        batch=stacked(2),
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
    # sign = det / |det| rotates with the imaginary part of tr(inv(a) @ t), logabsdet
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
        batch=stacked(2),
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


# -- made of these -------------------------------------------------------------------------

borrow(np.linalg.tensorinv, np.linalg.matrix_power, np.linalg.multi_dot)


@composite_if_traced(np.linalg.tensorsolve)
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    original, a, b = a, creation.asarray(a), creation.asarray(b)
    if axes is not None:
        order = list(range(a.ndim))
        for k in axes:
            order.remove(k)
            order.append(k)
        a = np.transpose(a, order)
    shape = a.shape[-(a.ndim - b.ndim) :]
    n = math.prod(shape)
    if a.size != n * n:
        np.linalg.tensorsolve(plain(original), plain(b), axes)  # raises NumPy's error
    x = np.linalg.solve(np.reshape(a, (n, n)), np.reshape(b, (-1,)))
    return np.reshape(x, shape)


@composite_if_traced(np.linalg.cond)
def _cond(x: Any, p: Any = None) -> Any:
    """``np.linalg.cond``; a singular matrix has condition inf, and no gradient flows."""
    if traced(p):
        raise NotDifferentiableError("cond: the order p is traced; pass adarray.value_of(p)")
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
    if np.any(lost):
        r = np.where(lost, value, r)
    return r if r.dtype == value.dtype else r.astype(value.dtype)  # NumPy 2.0 keeps complex
