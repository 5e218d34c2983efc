"""Norms, and products of vectors and matrices under their names in `numpy.linalg`."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.dispatch import apply
from adarray.errors import NotDifferentiableError
from adarray.op import Op, Opaque, composite, register
from adarray.ops.common import composite_if_traced, keep, normalized_axes, s


def _euclidean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    norm: Any = np.linalg.norm
    return norm(x, axis=axis, keepdims=keepdims)


def _unit(x: Any, out: Any, axis: Any) -> Any:
    """Return x / norm, which is the derivative of the norm; 0 where the norm is 0."""
    length = keep(out, x.shape, axis)
    return x / (length + (length == 0))


norm = register(
    Op(
        "norm",
        _euclidean,
        Opaque(),
        [lambda g, out, x, axis=None, keepdims=False: keep(g, x.shape, axis) * _unit(x, out, axis)],
        jvp=[
            lambda t, out, x, axis=None, keepdims=False: np.sum(
                t * _unit(x, out, axis), axis=axis, keepdims=keepdims
            )
        ],
        samples=lambda rng: [
            s(rng.normal(size=5)),
            s(rng.normal(size=(3, 4))),
            s(rng.normal(size=(3, 4)), axis=0),
            s(rng.normal(size=(3, 4)), axis=-1, keepdims=True),
            s(rng.normal(size=(2, 3, 4)), axis=(0, 2)),
            s(rng.normal(size=(2, 3, 4))[::-1], axis=(-1, 0), keepdims=True),
            s(rng.normal(size=(2, 3)), keepdims=True),
        ],
        operands=("x",),
        params=("axis", "keepdims"),
        note="the Euclidean (Frobenius) norm; 0 at 0. Other orders are made of sums and maxima",
    )
)


@composite_if_traced(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    if ord is None:
        return apply(norm, (x,), {"axis": axis, "keepdims": keepdims})
    axes = normalized_axes(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    return _matrix_norm(x, ord, axes, keepdims)


def _vector_norm(x: Any, p: Any, axis: int, keepdims: bool) -> Any:
    if p == 2:
        return apply(norm, (x,), {"axis": axis, "keepdims": keepdims})
    if p == 0:
        return np.sum((x != 0).astype(x.dtype), axis=axis, keepdims=keepdims)
    if isinstance(p, str):
        raise ValueError(f"Invalid norm order '{p}' for vectors")
    size = np.abs(x)
    if p == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if p == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if p == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    total = np.sum(size**p, axis=axis, keepdims=keepdims)
    # 0 at 0: the root is taken of 1 there, whose derivative is finite.
    return np.power(total + (total == 0), 1.0 / p) - (total == 0)


def _matrix_norm(x: Any, p: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if p in ("fro", "f"):
        return apply(norm, (x,), {"axis": axes, "keepdims": keepdims})
    if p in (2, -2, "nuc"):
        raise NotDifferentiableError(
            f"norm: the order {p!r} of a matrix needs singular values, which have no derivative "
            "rule; use the Frobenius norm, or pass adarray.value_of(x)"
        )
    if p not in (1, -1, np.inf, -np.inf):
        raise ValueError("Invalid norm order for matrices.")
    summed, picked = axes if abs(p) == 1 else axes[::-1]
    pick = np.max if p > 0 else np.min
    r = pick(np.sum(np.abs(x), axis=summed, keepdims=True), axis=picked, keepdims=True)
    return r if keepdims else np.squeeze(r, axis=axes)


@composite_if_traced(np.linalg.vector_norm)
def _linalg_vector_norm(
    x: Any,
    /,
    *,
    axis: Any = None,
    keepdims: bool = False,
    ord: Any = 2,
) -> Any:
    axes = normalized_axes(axis, x.ndim)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    flat = np.reshape(np.transpose(x, rest + axes), (*(x.shape[i] for i in rest), -1))
    r = _vector_norm(flat, ord, flat.ndim - 1, False)
    return keep(r, x.shape, axes) if keepdims else r


@composite_if_traced(np.linalg.matrix_norm)
def _linalg_matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _matrix_norm(x, ord, (x.ndim - 2, x.ndim - 1), keepdims)


# -- products ----------------------------------------------------------------------------------


@composite(np.linalg.matmul)
def _linalg_matmul(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, x2)


@composite(np.linalg.tensordot)
def _linalg_tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return np.tensordot(x1, x2, axes)


@composite(np.linalg.outer)
def _linalg_outer(x1: Any, x2: Any, /) -> Any:
    if np.ndim(x1) != 1 or np.ndim(x2) != 1:
        raise ValueError(
            "Input arrays must be one-dimensional, but they are "
            f"x1.ndim={np.ndim(x1)} and x2.ndim={np.ndim(x2)}."
        )
    return np.outer(x1, x2)


@composite(np.vecdot)
def _vecdot(x1: Any, x2: Any, /) -> Any:
    return np.sum(np.multiply(np.conjugate(x1), x2), axis=-1)


@composite(np.linalg.vecdot)
def _linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return _vecdot(np.moveaxis(x1, axis, -1), np.moveaxis(x2, axis, -1))


@composite(np.matvec)
def _matvec(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, np.expand_dims(x2, -1))[..., 0]


@composite(np.vecmat)
def _vecmat(x1: Any, x2: Any, /) -> Any:
    return np.matmul(np.expand_dims(x1, -2), x2)[..., 0, :]


@composite(np.linalg.diagonal)
def _linalg_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return np.diagonal(x, offset, -2, -1)


@composite(np.linalg.trace)
def _linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1, dtype)


@composite(np.linalg.matrix_transpose)
def _linalg_matrix_transpose(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


@composite(np.kron)
def _kron(a: Any, b: Any) -> Any:
    a = a if hasattr(a, "ndim") else np.asarray(a)
    b = b if hasattr(b, "ndim") else np.asarray(b)
    n = max(a.ndim, b.ndim)
    shape_a, shape_b = (1,) * (n - a.ndim) + a.shape, (1,) * (n - b.ndim) + b.shape
    left = np.reshape(a, tuple(k for m in shape_a for k in (m, 1)))
    right = np.reshape(b, tuple(k for m in shape_b for k in (1, m)))
    return np.reshape(left * right, tuple(i * j for i, j in zip(shape_a, shape_b, strict=True)))


@composite(np.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a = np.moveaxis(a if hasattr(a, "ndim") else np.asarray(a), axisa, -1)
    b = np.moveaxis(b if hasattr(b, "ndim") else np.asarray(b), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise NotDifferentiableError(
            f"cross: operands 0 and 1 have {a.shape[-1]} and {b.shape[-1]} components; only "
            "vectors of 3 are differentiated: append a zero to those of 2"
        )
    one, two = np.array([1, 2, 0]), np.array([2, 0, 1])
    return np.moveaxis(a[..., one] * b[..., two] - a[..., two] * b[..., one], -1, axisc)


@composite(np.linalg.cross)
def _linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    return np.cross(x1, x2, axis=axis)


@composite(np.linalg.multi_dot)
def _multi_dot(arrays: Any, *, out: Any = None) -> Any:
    """Multiply in the order that costs least."""
    arrays = list(arrays)
    if len(arrays) < 2:
        raise ValueError("Expecting at least two arrays.")
    n, ends = len(arrays), (np.ndim(arrays[0]), np.ndim(arrays[-1]))
    letters = [chr(97 + i) for i in range(n + 1)]
    terms = [letters[i] + letters[i + 1] for i in range(n)]
    terms[0] = terms[0][1:] if ends[0] == 1 else terms[0]
    terms[-1] = terms[-1][:1] if ends[1] == 1 else terms[-1]
    right = (letters[0] if ends[0] == 2 else "") + (letters[-1] if ends[1] == 2 else "")
    r = np.einsum(",".join(terms) + "->" + right, *arrays, optimize=True)
    return r if out is None else np.positive(r, out=out)


@composite(np.linalg.matrix_power)
def _matrix_power(a: Any, n: int) -> Any:
    if n < 0:
        raise NotDifferentiableError(
            f"matrix_power: the exponent {n} needs an inverse, which has no derivative rule; "
            "use exponents from 0 up"
        )
    if n == 0:
        return np.zeros_like(a) + np.eye(a.shape[-1], dtype=a.dtype)
    result, square = None, a
    while n:
        if n & 1:
            result = square if result is None else np.matmul(result, square)
        n >>= 1
        if n:
            square = np.matmul(square, square)
    return result
