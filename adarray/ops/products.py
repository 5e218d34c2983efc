"""Products of vectors and matrices, under their names in `numpy` and `numpy.linalg`.

References
----------
- M. B. Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
  differentiation", in Advances in Automatic Differentiation, Springer 2008, 35-44.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.base.op import Op, Opaque, composite, register
from adarray.batching.rules import stacked
from adarray.core.protocol import plain
from adarray.ops.common import composite_if_traced, newer, s
from adarray.ops.complex import conjugate_of

# -- products of stacks ------------------------------------------------------------------------

register(
    Op(
        "vecdot",
        np.vecdot,
        Opaque(),
        [
            lambda g, out, x1, x2: conjugate_of(g[..., None] * x2),
            lambda g, out, x1, x2: g[..., None] * conjugate_of(x1),
        ],
        jvp="linear",
        batch=stacked(1, 1),
        samples=lambda rng: [
            s(rng.normal(size=3), rng.normal(size=3)),
            s(rng.normal(size=(4, 3)), rng.normal(size=3)),
            s(rng.normal(size=(2, 1, 3)), rng.normal(size=(4, 3))[::-1]),
        ],
        operands=("x1", "x2"),
        signature="x1, x2, /",
        note="conjugates its first operand",
    )
)

for _matvec in newer("matvec"):
    register(
        Op(
            "matvec",
            _matvec,
            Opaque(),
            [
                lambda g, out, x1, x2: g[..., :, None] * x2[..., None, :],
                lambda g, out, x1, x2: np.matmul(g[..., None, :], x1)[..., 0, :],
            ],
            jvp="linear",
            batch=stacked(2, 1),
            samples=lambda rng: [
                s(rng.normal(size=(2, 3)), rng.normal(size=3)),
                s(rng.normal(size=(4, 2, 3)), rng.normal(size=3)),
                s(rng.normal(size=(2, 3)), rng.normal(size=(4, 3))),
            ],
            operands=("x1", "x2"),
            signature="x1, x2, /",
        )
    )

for _vecmat in newer("vecmat"):
    register(
        Op(
            "vecmat",
            _vecmat,
            Opaque(),
            [
                lambda g, out, x1, x2: conjugate_of(np.matmul(x2, g[..., :, None])[..., 0]),
                lambda g, out, x1, x2: conjugate_of(x1)[..., :, None] * g[..., None, :],
            ],
            jvp="linear",
            batch=stacked(1, 2),
            samples=lambda rng: [
                s(rng.normal(size=3), rng.normal(size=(3, 2))),
                s(rng.normal(size=3), rng.normal(size=(4, 3, 2))),
                s(rng.normal(size=(4, 3)), rng.normal(size=(3, 2))),
            ],
            operands=("x1", "x2"),
            signature="x1, x2, /",
            note="conjugates its first operand",
        )
    )


@composite(np.linalg.vecdot)
def _linalg_vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    vecdot: Any = np.vecdot  # the type stubs do not know axis=
    return vecdot(x1, x2, axis=axis)


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


# -- parts of matrices -------------------------------------------------------------------------


@composite(np.linalg.diagonal)
def _linalg_diagonal(x: Any, /, *, offset: int = 0) -> Any:
    return np.diagonal(x, offset, -2, -1)


@composite(np.linalg.trace)
def _linalg_trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1, dtype)


@composite(np.linalg.matrix_transpose)
def _linalg_matrix_transpose(x: Any, /) -> Any:
    if np.ndim(x) < 2:
        np.linalg.matrix_transpose(plain(x))  # raises NumPy's error
    return np.swapaxes(x, -1, -2)


# -- Kronecker and cross products ----------------------------------------------------------------


def _as_array(x: Any) -> Any:
    return x if hasattr(x, "ndim") else np.asarray(x)


@composite_if_traced(np.kron)
def _kron(a: Any, b: Any) -> Any:
    a, b = _as_array(a), _as_array(b)
    n = max(a.ndim, b.ndim)
    shape_a, shape_b = (1,) * (n - a.ndim) + a.shape, (1,) * (n - b.ndim) + b.shape
    left = np.reshape(a, tuple(k for m in shape_a for k in (m, 1)))
    right = np.reshape(b, tuple(k for m in shape_b for k in (1, m)))
    return np.reshape(left * right, tuple(i * j for i, j in zip(shape_a, shape_b, strict=True)))


@composite_if_traced(np.cross)
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    """``np.cross``; vectors of 2 components lie in the plane, as long as NumPy has them."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = _as_array(a), _as_array(b)
    if a.ndim == 0 or b.ndim == 0:
        np.cross(plain(a), plain(b))  # raises NumPy's error
    a = np.moveaxis(a, normalize_axis_index(axisa, a.ndim, "axisa"), -1)
    b = np.moveaxis(b, normalize_axis_index(axisb, b.ndim, "axisb"), -1)
    sizes = (a.shape[-1], b.shape[-1])
    if sizes != (3, 3):
        np.cross(np.zeros(sizes[0]), np.zeros(sizes[1]))  # warns or raises as this NumPy does
    last = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    if sizes == (2, 2):
        return last if last.ndim else np.reshape(last, (1,))[..., 0]  # an array
    if sizes == (3, 3):
        first = a[..., 1] * b[..., 2] - a[..., 2] * b[..., 1]
        second = a[..., 2] * b[..., 0] - a[..., 0] * b[..., 2]
    elif sizes == (2, 3):
        first, second = a[..., 1] * b[..., 2], -(a[..., 0] * b[..., 2])
    else:
        first, second = -(a[..., 2] * b[..., 1]), a[..., 2] * b[..., 0]
    out = np.stack([first, second, last], axis=-1)
    return np.moveaxis(out, -1, normalize_axis_index(axisc, out.ndim, "axisc"))


@composite_if_traced(np.linalg.cross)
def _linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    sizes = (np.shape(x1)[axis], np.shape(x2)[axis])
    if sizes != (3, 3):
        np.linalg.cross(np.zeros(sizes[0]), np.zeros(sizes[1]))  # raises NumPy's error
    return np.cross(x1, x2, axis=axis)
