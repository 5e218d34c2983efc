"""Functions made of others: values against NumPy's, derivatives against differences.

Each case is checked on float64 (value, forward, reverse, second order) and on
float32 (the dtype stays, and the rules agree with those in float64).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads
from adarray.testing._ops import use_all_sizes

Inputs = tuple[np.ndarray, ...]


def normal(*shapes: tuple[int, ...]) -> Inputs:
    """Return arrays of the shapes, the same for the same shapes."""
    rng = np.random.default_rng(sum(map(sum, shapes)) + len(shapes))
    return tuple(np.asarray(rng.normal(size=shape)) for shape in shapes)


M = (normal((3, 4))[0],)
T = (normal((2, 3, 4))[0],)
V = (normal((5,))[0],)
# Functions and keywords came after NumPy 2.0; what this one refuses is no case for us.
OLD = np.lib.NumpyVersion(np.__version__) < "2.3.0"
CASES: dict[str, tuple[Callable[..., Any], Inputs]] = {}


def case(name: str, f: Callable[..., Any], inputs: Inputs) -> None:
    """Add one case, unless it is of a function that came after the NumPy at hand."""
    assert name not in CASES
    if OLD:
        try:
            f(*inputs)
        except (AttributeError, TypeError):
            return
    CASES[name] = (f, inputs)


# -- products --------------------------------------------------------------------------------

for _a in ((), (4,), (3, 4), (2, 3, 4)):
    for _b in ((), (4,), (4, 2), (5, 4, 2)):
        case(f"dot {_a} {_b}", np.dot, normal(_a, _b))
        case(f"method dot {_a} {_b}", lambda a, b: a.dot(b), normal(_a, _b))
for _a, _b in (
    ((4,), (4,)),
    ((3, 4), (2, 4)),
    ((2, 3, 4), (5, 4)),
    ((), (3, 2)),
    ((4,), (2, 3, 4)),
):
    case(f"inner {_a} {_b}", np.inner, normal(_a, _b))
for _a, _b in (((3,), (4,)), ((2, 3), (2,)), ((), (3,))):
    case(f"outer {_a} {_b}", np.outer, normal(_a, _b))
case("vdot vectors", np.vdot, normal((4,), (4,)))
case("vdot matrices", np.vdot, normal((2, 3), (2, 3)))
for _axes in (0, 1, 2, ([1, 0], [0, 1]), (-1, 0), ([-1], [0]), ([], [])):
    case(
        f"tensordot {_axes}",
        lambda a, b, axes=_axes: np.tensordot(a, b, axes),
        normal((3, 4), (4, 3)) if _axes != 2 else normal((3, 4), (3, 4)),
    )
case(
    "tensordot 3-d", lambda a, b: np.tensordot(a, b, ([2, 0], [0, 2])), normal((2, 3, 4), (4, 5, 2))
)
for _a, _b in (((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 2)), ((3, 4), (4, 2)), ((2, 3, 4), (4, 2)),
               ((4,), (2, 4, 3)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2))):  # fmt: skip
    case(f"operator @ {_a} {_b}", lambda a, b: a @ b, normal(_a, _b))
case("plain @ traced", lambda b: M[0] @ b, normal((4, 2)))
case("matmul transposed", lambda a, b: np.matmul(a.T, b[::-1].T), normal((4, 3), (2, 4)))
case("vecdot", np.vecdot, normal((2, 3), (3,)))
case("matvec", lambda a, b: np.matvec(a, b), normal((2, 3, 4), (4,)))
case("vecmat", lambda a, b: np.vecmat(a, b), normal((2, 3), (3, 4)))
case("linalg.vecdot", lambda a, b: np.linalg.vecdot(a, b, axis=0), normal((3, 2), (3, 2)))
case("linalg.matmul", np.linalg.matmul, normal((3, 4), (4, 2)))
case("linalg.tensordot", lambda a, b: np.linalg.tensordot(a, b, axes=1), normal((3, 4), (4, 2)))
case("linalg.outer", np.linalg.outer, normal((3,), (4,)))
case("multi_dot", lambda *a: np.linalg.multi_dot(a), normal((3, 4), (4, 2), (2, 5)))
case("multi_dot with vectors", lambda *a: np.linalg.multi_dot(a), normal((4,), (4, 2), (2,)))
case("matrix_power 0", lambda a: np.linalg.matrix_power(a, 0), normal((3, 3)))
case("matrix_power 1", lambda a: np.linalg.matrix_power(a, 1), normal((3, 3)))
case("matrix_power 5", lambda a: np.linalg.matrix_power(a, 5), normal((3, 3)))
case("kron", np.kron, normal((2, 3), (3, 2)))
case("kron ranks", np.kron, normal((2,), (3, 2, 2)))
case("cross", np.cross, normal((4, 3), (3,)))
case("cross axis", lambda a, b: np.cross(a, b, axis=0), normal((3, 4), (3, 4)))
case("linalg.cross", np.linalg.cross, normal((3,), (3,)))

# -- einsum ------------------------------------------------------------------------------------

for _text, _shapes in {
    "ij,jk->ik": ((2, 3), (3, 4)),
    "ij,jk": ((2, 3), (3, 4)),
    "ij->ji": ((2, 3),),
    "ij->": ((2, 3),),
    "ij->j": ((2, 3),),
    "ii->i": ((3, 3),),
    "ii": ((3, 3),),
    "ba": ((2, 3),),
    "i,i": ((4,), (4,)),
    "i,j->ij": ((3,), (4,)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)),
    "...ij,jk": ((2, 3, 4), (4, 5)),
    "i...->...": ((2, 3, 4),),
    "...": ((2, 3),),
    "...i,...i": ((2, 3), (3,)),
    "ij...,jk...->ik...": ((2, 3, 2), (3, 4, 2)),
    "iij->j": ((3, 3, 2),),
    "iji->j": ((3, 2, 3),),
    "ii,ij->j": ((3, 3), (3, 2)),
    "ij,ij->ij": ((2, 3), (1, 3)),
    "aij,ajk->aik": ((5, 2, 3), (1, 3, 4)),
    "i,ij,j->": ((2,), (2, 3), (3,)),
    "ij,kl->ijkl": ((2, 2), (2, 3)),
    "ij,k->i": ((2, 3), (4,)),
    "ijk,jil->kl": ((2, 3, 4), (3, 2, 5)),
    " i j , j k -> k i ": ((2, 3), (3, 4)),
    "iii->i": ((3, 3, 3),),
    "iijj->ij": ((2, 2, 3, 3),),
    ",ij->ij": ((), (2, 3)),
    "Ab,bC->AC": ((2, 3), (3, 4)),
    "...a,...b->...ab": ((2, 3), (4,)),
}.items():
    case(
        f"einsum {_text!r} {_shapes}", lambda *x, text=_text: np.einsum(text, *x), normal(*_shapes)
    )
_chain = normal((2, 3), (3, 4), (4, 2))
case("einsum optimize", lambda *x: np.einsum("ij,jk,kl->il", *x, optimize=True), _chain)
case("einsum greedy", lambda *x: np.einsum("ij,jk,kl", *x, optimize="greedy"), _chain)
case(
    "einsum optimize ellipsis", lambda *x: np.einsum("...j,jk,kl->...l", *x, optimize=True), _chain
)
case("einsum optimize size 1", lambda *x: np.einsum("ij,ij,jk->ik", *x, optimize=True),
     normal((2, 3), (1, 3), (3, 4)))  # fmt: skip
case(
    "einsum sublists", lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [2, 0]), normal((2, 3), (3, 4))
)
case(
    "einsum implicit sublists", lambda a, b: np.einsum(a, [0, 1], b, [1, 2]), normal((2, 3), (3, 4))
)
case("einsum sublists ellipsis", lambda a: np.einsum(a, [Ellipsis, 0], [0, Ellipsis]), T)
case("einsum same operand twice", lambda a: np.einsum("ij,ij->i", a, a), M)
case("einsum plain operand", lambda a: np.einsum("ij,j", a, np.arange(4.0, dtype=a.dtype)), M)

# -- joining and splitting ---------------------------------------------------------------------

for _axis in (0, 1, 2, -1, -3):
    case(
        f"stack axis={_axis}",
        lambda a, b, axis=_axis: np.stack([a, b], axis),
        normal((2, 3), (2, 3)),
    )
case("stack scalars", lambda a: np.stack([a[0], a[1] * a[2]]), V)
for _function in (np.vstack, np.hstack, np.dstack, np.column_stack):
    for _shapes in (((3,), (3,)), ((2, 3), (2, 3)), ((2, 3, 1), (2, 3, 1))):
        if _function is np.column_stack and len(_shapes[0]) == 3:
            continue
        case(f"{_function.__name__} {_shapes[0]}", lambda *x, f=_function: f(x), normal(*_shapes))
case("column_stack mixed", lambda a, b: np.column_stack([a, b]), normal((3,), (3, 2)))
case("hstack scalars", lambda a: np.hstack([a[0], a[1:3]]), V)
case("concatenate axis=None", lambda a, b: np.concatenate([a, b], axis=None), normal((2, 3), (4,)))
case("concatenate with plain", lambda a: np.concatenate([a, np.ones((1, 4), a.dtype)]), M)
case("concatenate twice the same", lambda a: np.concatenate([a, a * a, a], axis=1), M)
case("append flat", np.append, normal((2, 3), (2,)))
case("append axis", lambda a, b: np.append(a, b, axis=0), normal((2, 3), (1, 3)))
case("split", lambda a: np.split(a, 2, axis=1), M)
case("split at", lambda a: np.split(a, [1, 3], axis=1), M)
case("split out of range", lambda a: np.split(a, [1, 7], axis=-1), M)
case("split backwards", lambda a: np.split(a, [-1]), M)
case("array_split", lambda a: np.array_split(a, 3, axis=1), M)
case("array_split more than there is", lambda a: np.array_split(a, 5), M)
case("hsplit", lambda a: np.hsplit(a, 2), M)
case("hsplit 1-d", lambda a: np.hsplit(a, [2]), V)
case("vsplit", lambda a: np.vsplit(a, 3), M)
case("dsplit", lambda a: np.dsplit(a, 2), T)
case("unstack", lambda a: np.unstack(a, axis=1), M)
case("atleast_1d", lambda a: np.atleast_1d(a[0, 0]), M)
case("atleast_2d", lambda a: np.atleast_2d(a[0], a[0, 0], a), M)
case("atleast_3d", lambda a: np.atleast_3d(a[0], a[0, 0], a), M)
case("broadcast_arrays", lambda a, b: list(np.broadcast_arrays(a, b)), normal((3, 1), (4,)))
case("meshgrid", lambda a, b: list(np.meshgrid(a, b)), normal((3,), (4,)))
case("meshgrid ij 3", lambda *x: list(np.meshgrid(*x, indexing="ij")), normal((2,), (3,), (2,)))
case("meshgrid sparse", lambda *x: list(np.meshgrid(*x, sparse=True)), normal((2,), (3,)))
for _name, _f in {
    "r_-like": lambda a, b: np.concatenate((a, b, a)),
    "list of rows": lambda a, b: np.stack([a, b]).T,
}.items():
    case(_name, _f, normal((3,), (3,)))

# -- moving ------------------------------------------------------------------------------------

for _axis, _start in ((2, 0), (0, 3), (1, 1), (-1, -2), (0, -1), (2, 2)):
    case(f"rollaxis {_axis} {_start}", lambda a, x=_axis, s=_start: np.rollaxis(a, x, s), T)
for _k in (-1, 0, 1, 2, 3, 5):
    case(f"rot90 {_k}", lambda a, k=_k: np.rot90(a, k), M)
    case(f"rot90 {_k} axes", lambda a, k=_k: np.rot90(a, k, (2, 0)), T)
case("fliplr", np.fliplr, M)
case("flipud", np.flipud, M)
case("matrix_transpose", np.matrix_transpose, T)
case("moveaxis negative", lambda a: np.moveaxis(a, [-1, 0], [0, -1]), T)
case("transpose negative", lambda a: np.transpose(a, (-2, 0, -1)), T)
case("roll tuple, one axis", lambda a: np.roll(a, (1, 2), axis=1), M)
case("roll int, two axes", lambda a: np.roll(a, 1, axis=(0, 1)), M)
case("roll list", lambda a: np.roll(a, [1, 2], axis=[0, 1]), M)
case("roll array", lambda a: np.roll(a, np.array([1, 2]), axis=(0, 1)), M)
case("squeeze negative", lambda a: np.squeeze(a[None, :, None], axis=(0, -2)), M)
case("tile 3", lambda a: np.tile(a, (2, 1, 2)), M)
case("tile 0", lambda a: np.tile(a, (0, 1)), M)
case("tile scalar", lambda a: np.tile(a[0, 0], 3), M)
case("repeat scalar", lambda a: np.repeat(a[0, 0], 3), M)
case("repeat counts flat", lambda a: np.repeat(a, [1, 0, 2, 3, 1]), V)
case("repeat negative axis", lambda a: np.repeat(a, 2, axis=-2), M)
case("resize", lambda a: np.resize(a, (5, 4)), M)
case("delete", lambda a: np.delete(a, [0, 2], axis=1), M)
case("delete flat", lambda a: np.delete(a, 3), M)
case("fftshift", np.fft.fftshift, M)
case("ifftshift axes", lambda a: np.fft.ifftshift(a, axes=0), M)
case("trace", lambda a: np.trace(a), M)
case("trace offset", lambda a: np.trace(a, 1), M)
case("trace 3-d", lambda a: np.trace(a, -1, 2, 0), T)
case("linalg.trace", lambda a: np.linalg.trace(a), T)
case("linalg.diagonal", lambda a: np.linalg.diagonal(a, offset=1), T)
for _k in (-2, -1, 0, 1, 3):
    case(f"diag of matrix {_k}", lambda a, k=_k: np.diag(a, k), M)
    case(f"diag of vector {_k}", lambda a, k=_k: np.diag(a, k), V)
    case(f"tril {_k}", lambda a, k=_k: np.tril(a, k), M)
    case(f"triu {_k}", lambda a, k=_k: np.triu(a, k), T)
case("diagflat", lambda a: np.diagflat(a, 1), M)
case("full_like traced value", lambda a: np.full_like(a, a[0, 0]), M)
case("full_like traced row", lambda a: np.full_like(a, a[0]), M)

# -- padding -----------------------------------------------------------------------------------

_WIDTHS: list[Any] = [1, (1, 2), ((0, 2), (3, 1))]
if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    _WIDTHS += [{0: 2}, {-1: (1, 2)}]
for _mode in ("constant", "edge", "wrap", "reflect", "symmetric"):
    for _width in _WIDTHS:
        case(f"pad {_mode} {_width}", lambda a, m=_mode, w=_width: np.pad(a, w, m), M)
    case(f"pad {_mode} wider than the array", lambda a, m=_mode: np.pad(a, 9, m), V)
case("pad value", lambda a: np.pad(a, 1, constant_values=2.5), M)
case("pad values", lambda a: np.pad(a, ((1, 2), (0, 1)), constant_values=((1, 2), (3, 4))), M)
case("pad reflect even", lambda a: np.pad(a, 2, "reflect", reflect_type="even"), M)
case("pad keyword", lambda a: np.pad(array=a, pad_width=1, mode="edge"), M)

# -- picking -----------------------------------------------------------------------------------

for _mode in ("raise", "wrap", "clip"):
    _index = np.array([[0, 2], [1, 1]]) if _mode == "raise" else np.array([[0, 12], [-7, 1]])
    for _axis in (None, 0, 1, -1):
        case(f"take {_mode} {_axis}",
             lambda a, i=_index, m=_mode, x=_axis: np.take(a, i, axis=x, mode=m), M)  # fmt: skip
case("take scalar index", lambda a: np.take(a, 1, axis=0), M)
case("take list", lambda a: a.take([0, 0, 3], axis=1), M)
case("take_along_axis", lambda a: np.take_along_axis(a, np.array([[0], [2], [2]]), 1), M)
case("take_along_axis argsort", lambda a: np.take_along_axis(a, np.argsort(a, 0), 0), M)
case("take_along_axis flat", lambda a: np.take_along_axis(a, np.array([0, 7, 7]), None), M)
case("compress", lambda a: np.compress([True, False, True], a, axis=0), M)
case("compress flat", lambda a: np.compress([False, True, True, False, True], a), M)
case("compress by values", lambda a: np.compress(a[0] > 0, a, axis=1), M)
case("extract", lambda a: np.extract(a > 0, a), M)
for _axis in (None, 0, 1, -1):
    case(f"sort {_axis}", lambda a, x=_axis: np.sort(a, axis=x), M)
    case(f"partition {_axis}", lambda a, x=_axis: np.partition(a, 1, axis=x), M)
case("sort stable", lambda a: np.sort(a, kind="stable"), M)
case("where 3", lambda a, b: np.where(a > b, a * b, b), normal((3, 4), (4,)))
case("where plain branch", lambda a: np.where(a > 0, a, 0.0), M)
case("where scalar condition", lambda a: np.where(True, a, 2 * a), M)
case("where 1", lambda a: a[np.where(a > 0)], M)
case("heaviside of the value", lambda a: np.heaviside(np.array([0.0, -1.0, 1.0, 0.0]), a), M)
_picks: dict[str, Any] = {
    "int": 1,
    "negative": -2,
    "slice": slice(0, 2),
    "step": (slice(None), slice(None, None, -2)),
    "ellipsis": (..., 0),
    "newaxis": (None, 1, ..., None),
    "mask": M[0] > 0,
    "row mask": (np.array([True, False, True]),),
    "array": np.array([2, 0, 2]),
    "two arrays": (np.array([0, 2]), np.array([1, 1])),
    "array and slice": (slice(1, 3), np.array([3, 3, 0])),
    "list": [0, 0, 1],
    "empty list": [],
    "separated arrays": (np.array([0, 1]), None, np.array([1, 1])),
    "0-d array": np.array(1),
    "numpy integer": np.int64(2),
    "bool": True,
    "column of rows": (np.array([[0], [2]]), np.array([1, 3])),
    "empty slice": slice(2, 2),
    "everything": (),
    "mask and int": (np.array([True, False, True]), 2),
}
for _name, _pick in _picks.items():
    case(f"getitem {_name}", lambda a, i=_pick: a[i], M)

# -- choices and bounds --------------------------------------------------------------------------

for _name, _f in {
    "both": lambda a: np.clip(a, -0.5, 0.5),
    "low": lambda a: np.clip(a, -0.5, None),
    "high": lambda a: np.clip(a, None, 0.5),
    "keywords": lambda a: np.clip(a, min=-0.5, max=0.5),
    "min only": lambda a: np.clip(a, min=-0.5),
    "a_min a_max": lambda a: np.clip(a, a_min=-1, a_max=0.5),
    "array bounds": lambda a: np.clip(a, np.full(4, -0.5, a.dtype), np.full((3, 1), 0.5, a.dtype)),
    "method": lambda a: a.clip(-0.5, 0.5),
    "method low": lambda a: a.clip(-0.5),
    "method keywords": lambda a: a.clip(min=-0.5, max=0.7),
    "traced bound": lambda a: np.clip(a, -0.5, a[0]),
    "plain array, traced bounds": lambda a: np.clip(np.zeros(4, a.dtype), a[0] - 1, a[1] + 2),
}.items():
    case(f"clip {_name}", _f, M)
case("nan_to_num options", lambda a: np.nan_to_num(a, nan=1.0, posinf=2.0, neginf=3.0), M)

# -- norms and reductions --------------------------------------------------------------------------

for _name, _f in {
    "vector": lambda a: np.linalg.norm(a[0]),
    "Frobenius": lambda a: np.linalg.norm(a),
    "fro": lambda a: np.linalg.norm(a, "fro"),
    "axis": lambda a: np.linalg.norm(a, axis=1),
    "axis keepdims": lambda a: np.linalg.norm(a, axis=0, keepdims=True),
    "2, axis": lambda a: np.linalg.norm(a, 2, axis=-1),
    "1": lambda a: np.linalg.norm(a[0], 1),
    "inf": lambda a: np.linalg.norm(a[0], np.inf),
    "-inf": lambda a: np.linalg.norm(a[0], -np.inf),
    "3": lambda a: np.linalg.norm(a, 3, axis=0),
    "0": lambda a: np.linalg.norm(a[0], 0) + a[0, 0],
    "matrix 1": lambda a: np.linalg.norm(a, 1),
    "matrix -1": lambda a: np.linalg.norm(a, -1),
    "matrix inf": lambda a: np.linalg.norm(a, np.inf),
    "keepdims": lambda a: np.linalg.norm(a, keepdims=True),
    "matrix -inf": lambda a: np.linalg.norm(a, -np.inf, keepdims=True),
    "axes": lambda a: np.linalg.norm(a, axis=(0, 1), keepdims=True),
    "vector_norm": lambda a: np.linalg.vector_norm(a),
    "vector_norm axis": lambda a: np.linalg.vector_norm(a, axis=0, ord=1),
    "vector_norm keepdims": lambda a: np.linalg.vector_norm(a, keepdims=True, ord=3),
    "matrix_norm": lambda a: np.linalg.matrix_norm(a),
    "matrix_norm 1": lambda a: np.linalg.matrix_norm(a, ord=1, keepdims=True),
}.items():
    case(f"norm {_name}", _f, M)
case("norm axes of 3-d", lambda a: np.linalg.norm(a, axis=(0, 2)), T)
case("matrix_norm 3-d inf", lambda a: np.linalg.matrix_norm(a, ord=np.inf), T)
case("vector_norm two axes", lambda a: np.linalg.vector_norm(a, axis=(0, 2), keepdims=True), T)
case("ptp", lambda a: np.ptp(a), M)
case("ptp axis", lambda a: np.ptp(a, axis=1, keepdims=True), M)
case("average", lambda a: np.average(a), M)
case("average axis", lambda a: np.average(a, axis=1, keepdims=True), M)
case("average weights", lambda a, w: np.average(a, axis=1, weights=np.exp(w)), normal((3, 4), (4,)))
case("average full weights", lambda a, w: np.average(a, weights=np.exp(w)), normal((3, 4), (3, 4)))
case("average returned", lambda a: np.average(a, axis=0, weights=np.exp(a), returned=True), M)
case("diff", np.diff, M)
case("diff twice", lambda a: np.diff(a, 2, axis=0), M)
case("diff prepend", lambda a: np.diff(a, prepend=0, append=a[:, :1]), M)
case("trapezoid", np.trapezoid, M)
case("trapezoid dx", lambda a: np.trapezoid(a, dx=0.5, axis=0), M)
case("trapezoid x", lambda a, x: np.trapezoid(a, np.exp(x), axis=0), normal((3, 4), (3,)))
case("cumulative_sum", lambda a: np.cumulative_sum(a, axis=1), M)
case("cumulative_sum initial", lambda a: np.cumulative_sum(a, axis=0, include_initial=True), M)
case("cumulative_prod initial", lambda a: np.cumulative_prod(a, include_initial=True), V)
_holes = np.where(np.arange(12).reshape(3, 4) % 5 == 1, np.nan, M[0])
for _name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd"):
    _f = getattr(np, _name)
    for _axis in (None, 0, 1):
        # The holes are made inside: differences around nan say nothing.
        case(
            f"{_name} {_axis}",
            lambda a, f=_f, x=_axis: f(np.where(np.isnan(_holes), np.nan, a), axis=x),
            M,
        )
case("nancumsum", lambda a: np.nancumsum(np.where(np.isnan(_holes), np.nan, a), axis=1), M)
case("nancumprod", lambda a: np.nancumprod(np.where(np.isnan(_holes), np.nan, a)), M)
case("select", lambda a: np.select([a > 0.5, a > -0.5], [a * a, 2 * a], default=a[0]), M)
case("select plain", lambda a: np.select([a > 0], [a]), M)
case("polyval", lambda p, x: np.polyval(p, x), normal((4,), (2, 3)))
case("linspace", lambda a: np.linspace(a[0, 0], a[1, 1], 5), M)
case("linspace arrays", lambda a: np.linspace(a[0], a[1], 4, endpoint=False, axis=-1), M)
case("linspace with its step", lambda a: np.linspace(a[0], a[1], 3, retstep=True), M)
case("block", lambda a, b: np.block([[a, b], [b * b, a]]), normal((2, 3), (2, 3)))
case("block of ranks", lambda a: np.block([a[0, 0], a[0], a[1]]), M)
case("block of one", lambda a: np.block(a), M)
case("modf", lambda a: list(np.modf(a)), M)
case("divmod", lambda a: list(np.divmod(a, 0.7)), M)
case("ldexp", lambda a: np.ldexp(a, np.array([0, 1, -2, 3])), M)
case("real, conj", lambda a: np.real(a) * np.conj(a) + a.real * a.conj(), M)


@pytest.mark.parametrize("name", CASES)
def test_value(name: str) -> None:
    f, inputs = CASES[name]
    for dtype in (np.float64, np.float32):
        xs = [x.astype(dtype) for x in inputs]
        expected = f(*xs)
        traced, _ = adarray.vjp(f, *xs)
        untraced = f(*map(adarray.ADArray, xs))
        forward, _ = adarray.jvp(f, xs, xs)
        for got in (traced, untraced, forward):
            compare(got, expected)


def compare(got: Any, expected: Any) -> None:
    """Assert that a result has the structure, dtypes, shapes and values of NumPy's."""
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            compare(a, b)
        return
    value = got.numpy() if isinstance(got, adarray.ADArray) else got
    assert value.dtype == expected.dtype
    assert value.shape == expected.shape
    tolerance = 64 * np.finfo(expected.dtype).eps
    np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    f, inputs = CASES[name]
    check_grads(f, inputs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_float32_derivatives(name: str) -> None:
    f, inputs = CASES[name]
    check_grads(f, tuple(x.astype(np.float32) for x in inputs), order=1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
def test_gradient_on_a_backend(name: str, backend: str) -> None:
    """Kernels give the values and gradients that NumPy gives."""
    f, inputs = CASES[name]
    results = []
    for context in (use_all_sizes("numpy"), use_all_sizes(backend)):
        with context:
            y, pullback = adarray.vjp(f, *inputs)
            results.append((y, pullback(y)))
    compare(results[1][0], results[0][0])
    compare(results[1][1], results[0][1])
