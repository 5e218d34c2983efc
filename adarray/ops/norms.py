"""Norms of vectors and matrices.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
- G. A. Watson, "Characterization of the subdifferential of some matrix norms", Linear Algebra Appl.
  170 (1992), 33-45.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import Op, Opaque, register
from adarray.batching.layouts import norms
from adarray.core.dispatch import apply
from adarray.core.protocol import plain, traced
from adarray.ops import creation
from adarray.ops.common import composite_if_traced, keep, s
from adarray.ops.complex import conjugate_of
from adarray.ops.decompositions import picked_singular_values


def _euclidean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    norm: Any = np.linalg.norm
    return norm(x, axis=axis, keepdims=keepdims)


def _unit(x: Any, out: Any, axis: Any) -> Any:
    """Return conj(x) / norm, which is the derivative of the norm; 0 where the norm is 0."""
    length = keep(out, x.shape, axis)
    return conjugate_of(x) / (length + (length == 0))


norm = register(
    Op(
        "norm",
        _euclidean,
        Opaque(),
        [lambda g, out, x, axis=None, keepdims=False: keep(g, x.shape, axis) * _unit(x, out, axis)],
        jvp=[
            lambda t, out, x, axis=None, keepdims=False: np.real(
                np.sum(t * _unit(x, out, axis), axis=axis, keepdims=keepdims)
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
        batch=norms,
        note="the Euclidean (Frobenius) norm; 0 at 0. Other orders are made of sums, maxima and "
        "singular values",
    )
)


@composite_if_traced(np.linalg.norm)
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """``np.linalg.norm``: 0 at 0 for every order."""
    if ord is None and (axis is None or isinstance(axis, int)):
        return apply(norm, (x,), {"axis": axis, "keepdims": keepdims})
    x = creation.asarray(x)
    if x.size == 0:
        return type(x)(np.linalg.norm(plain(x), ord, axis, keepdims))
    if axis is None:
        axes: tuple[int, ...] = tuple(range(x.ndim))
    elif isinstance(axis, tuple):
        axes = tuple(normalize_axis_index(i, x.ndim) for i in axis)
    else:
        try:
            axes = (normalize_axis_index(int(axis), x.ndim),)
        except TypeError:
            raise TypeError("'axis' must be None, an integer or a tuple of integers") from None
    if len(axes) == 1:
        return _vector_norm(x, ord, axes[0], keepdims)
    if len(axes) != 2:
        raise ValueError("Improper number of dimensions to norm.")
    return _matrix_norm(x, ord, axes, keepdims)


def _vector_norm(x: Any, p: Any, axis: int, keepdims: bool) -> Any:
    if traced(p):
        return _power_norm(x, p, axis, keepdims)
    if p is None or p == 2:
        return apply(norm, (x,), {"axis": axis, "keepdims": keepdims})
    if isinstance(p, str):
        raise ValueError(f"Invalid norm order '{p}' for vectors")
    size = np.abs(x)
    if p == 0:
        return np.sum((x != 0).astype(size.dtype), axis=axis, keepdims=keepdims)
    if p == np.inf:
        return np.max(size, axis=axis, keepdims=keepdims)
    if p == -np.inf:
        return np.min(size, axis=axis, keepdims=keepdims)
    if p == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    return _power_norm(x, p, axis, keepdims)


def _power_norm(x: Any, p: Any, axis: int, keepdims: bool) -> Any:
    total = np.sum(np.abs(x) ** p, axis=axis, keepdims=keepdims)
    # 0 at 0: the root is taken of 1 there, whose derivative is finite.
    return np.power(total + (total == 0), 1.0 / p) - (total == 0)


_SINGULAR = {2: np.max, -2: np.min, "nuc": np.sum}


def _matrix_norm(x: Any, p: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if traced(p):
        raise NotDifferentiableError(
            "norm: the order of a matrix norm, ord, is traced; pass adarray.value_of(ord)"
        )
    if axes[0] == axes[1]:
        raise ValueError("Duplicate axes given.")
    if p is None or p in ("fro", "f"):
        return apply(norm, (x,), {"axis": axes, "keepdims": keepdims})
    if p in _SINGULAR:
        r = picked_singular_values(np.moveaxis(x, axes, (-2, -1)), _SINGULAR[p])
        return keep(r, x.shape, axes) if keepdims else r
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
    x = creation.asarray(x)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    rest = tuple(i for i in range(x.ndim) if i not in axes)
    size = int(np.prod([x.shape[i] for i in axes], dtype=int))
    flat = np.reshape(np.transpose(x, rest + axes), (*(x.shape[i] for i in rest), size))
    r = _vector_norm(flat, ord, flat.ndim - 1, False)
    return keep(r, x.shape, axes) if keepdims else r


@composite_if_traced(np.linalg.matrix_norm)
def _linalg_matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    return _matrix_norm(x, ord, normalize_axis_tuple((-2, -1), x.ndim), keepdims)
