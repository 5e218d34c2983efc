"""Operations that move elements and keep their values."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.errors import NotDifferentiableError
from adarray.base.op import ALIKE, Layout, Op, composite, dynamic, register
from adarray.batching.layouts import (
    diagonals,
    expanded,
    flipped,
    raveled,
    reshaped,
    rolled,
    rotated,
    spread,
    squeezed,
    tiled,
    transposed,
    triangle,
)
from adarray.batching.rules import along, same, shifted
from adarray.core.dispatch import apply
from adarray.core.protocol import plain, plain_array
from adarray.core.trace import Handle
from adarray.ops.borrow import borrow
from adarray.ops.common import (
    always_array,
    arrayed,
    as_operand,
    composite_if_traced,
    in_order,
    s,
    unbroadcast,
)


def _linear(
    function: Any,
    rule: Any,
    samples: Any,
    *,
    operands: tuple[str, ...] = ("a",),
    name: str | None = None,
    lower: Layout | None = None,
    **options: Any,
) -> Op:
    """Register an operation that is linear in its operands."""
    return register(
        Op(
            name or function.__name__,
            function,
            lower or Layout(),
            [rule],
            jvp="linear",
            samples=samples,
            operands=operands,
            **options,
        )
    )


# -- one array, other axes -----------------------------------------------------------------


def _reshape(a: Any, shape: Any, order: Any = "C", copy: Any = None) -> Any:
    """Call ``np.reshape``, whose second argument has another name in NumPy 2.0."""
    if copy is None:
        return np.reshape(a, shape, order)
    return np.reshape(a, shape, order, copy=copy)


def _fixed(order: Any) -> Any:
    """Return an order that does not depend on the memory of one array."""
    if order == "A":
        raise NotDifferentiableError(
            "reshape: order='A' means another order for every array; pass 'C' or 'F'"
        )
    return order


reshape = _linear(
    np.reshape,
    lambda g, out, a, shape, order="C", copy=None: np.reshape(g, a.shape, order=_fixed(order)),
    lambda rng: [
        s(rng.normal(size=(3, 4)), (2, 6)),
        s(rng.normal(size=(3, 4)), -1),
        s(rng.normal(size=(3, 4)).T, (2, 6)),
        s(rng.normal(size=(3, 4)), (6, 2), order="F"),
        s(np.float64(2.0), (1, 1)),
        s(np.zeros((0, 3)), (3, 0)),
    ],
    signature="a, shape=None, order='C', *, newshape=_, copy=None",
    params=("shape", "order", "copy"),
    batch=reshaped,
    evaluate=_reshape,
    zero_d=as_operand,
)
transpose = _linear(
    np.transpose,
    lambda g, out, a, axes=None: np.transpose(
        g, None if axes is None else tuple(int(i) for i in np.argsort([x % a.ndim for x in axes]))
    ),
    lambda rng: [
        s(rng.normal(size=(3, 4))),
        s(rng.normal(size=(2, 3, 4)), (2, 0, 1)),
        s(rng.normal(size=(2, 3, 4)), (-1, 0, 1)),
        s(rng.normal(size=3)),
        s(np.float64(1.0)),
    ],
    params=("axes",),
    batch=transposed,
    zero_d=as_operand,
    aliases=(np.permute_dims,) if np.permute_dims is not np.transpose else (),
)
swapaxes = _linear(
    np.swapaxes,
    lambda g, out, a, axis1, axis2: np.swapaxes(g, axis1, axis2),
    lambda rng: [s(rng.normal(size=(2, 3, 4)), 0, -1), s(rng.normal(size=(3, 4)), 0, 1)],
    params=("axis1", "axis2"),
    batch=shifted("axis1", "axis2"),
    methods=("swapaxes",),
)
moveaxis = _linear(
    np.moveaxis,
    lambda g, out, a, source, destination: np.moveaxis(g, destination, source),
    lambda rng: [
        s(rng.normal(size=(2, 3, 4)), 0, -1),
        s(rng.normal(size=(2, 3, 4)), (0, 1), (2, 0)),
    ],
    params=("source", "destination"),
    batch=shifted("source", "destination"),
    zero_d=as_operand,
)
squeeze = _linear(
    np.squeeze,
    lambda g, out, a, axis=None: np.reshape(g, a.shape),
    lambda rng: [s(rng.normal(size=(1, 3, 1))), s(rng.normal(size=(1, 3, 1)), axis=0)],
    params=("axis",),
    batch=squeezed,
    zero_d=as_operand,
    methods=("squeeze",),
)
expand_dims = _linear(
    np.expand_dims,
    lambda g, out, a, axis: np.reshape(g, a.shape),
    lambda rng: [s(rng.normal(size=(3, 4)), 1), s(rng.normal(size=3), (0, 2))],
    params=("axis",),
    batch=expanded,
)


def _ravel_in_order(a: Any, order: Any = "C") -> Any:
    return np.ravel(a, order)


ravel = _linear(
    _ravel_in_order,
    lambda g, out, a, order="C": np.reshape(g, a.shape, order=order),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(3, 4)), order="F")],
    params=("order",),
    batch=raveled,
    name="ravel",
)


@composite(np.ravel)
def _ravel(a: Any, order: Any = "C") -> Any:
    """``np.ravel``; the orders K and A follow the layout of the values in memory."""
    if order in ("K", "A"):
        value = plain_array(a)
        if order == "A":
            order = "F" if value.flags.fnc else "C"
        else:
            axes = sorted(range(value.ndim), key=lambda i: -abs(value.strides[i]))
            a, order = np.transpose(a, axes), "C"
    return apply(ravel, (a,), {"order": order})


broadcast_to = _linear(
    np.broadcast_to,
    lambda g, out, array, shape, subok=False: unbroadcast(g, array.shape),
    lambda rng: [
        s(rng.normal(size=(3, 1)), (2, 3, 4)),
        s(rng.normal(size=4), (3, 4)),
        s(np.float64(2.0), (2, 2)),
        s(rng.normal(size=(1,)), (0,)),
    ],
    operands=("array",),
    params=("shape", "subok"),
    lower=Layout(readonly=True),
    batch=spread,
    zero_d=always_array,
)
flip = _linear(
    np.flip,
    lambda g, out, m, axis=None: np.flip(g, axis),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 4)), axis=(0, 2))],
    operands=("m",),
    params=("axis",),
    batch=flipped,
)
rot90 = _linear(
    np.rot90,
    lambda g, out, m, k=1, axes=(0, 1): np.rot90(g, -k, axes),
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 4)), 3, (1, 2))],
    operands=("m",),
    params=("k", "axes"),
    batch=rotated,
)
roll = _linear(
    np.roll,
    lambda g, out, a, shift, axis=None: np.roll(
        g, -shift if np.ndim(shift) == 0 else tuple(-int(k) for k in shift), axis
    ),
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), -1, axis=1),
        s(rng.normal(size=(3, 4)), (1, 2), axis=(0, 1)),
    ],
    params=("shift", "axis"),
    batch=rolled,
    zero_d=always_array,
)
copy = _linear(
    np.copy,
    lambda g, out, a, order="K", subok=False: g,
    lambda rng: [s(rng.normal(size=(3, 4))), s(rng.normal(size=(3, 4)).T), s(np.float64(2.0))],
    params=("order", "subok"),
    batch=same,
    zero_d=as_operand,
)
astype = _linear(
    np.astype,
    lambda g, out, x, dtype, copy=True: g,
    lambda rng: [s(rng.normal(size=(3, 4)), np.float64), s(np.ones(3), np.float32)],
    operands=("x",),
    params=("dtype", "copy"),
    lower=Layout(cast=True),
    batch=same,
    zero_d=as_operand,
    signature="x, dtype, /, *, copy=True, order='K', casting='unsafe', subok=True, device=None",
    methods=("astype",),
    evaluate=lambda x, dtype, copy=True: (
        x.astype(dtype, copy=copy)
        if isinstance(x, (np.ndarray, np.generic))
        else arrayed(x).astype(dtype, copy=copy)[()]
    ),
    note="an integer result has no derivative",
)


def _tri_samples(rng: np.random.Generator) -> list[Any]:
    return [s(rng.normal(size=(3, 4))), s(rng.normal(size=(2, 3, 3)), 1), s(rng.normal(size=3))]


tril = _linear(
    np.tril,
    lambda g, out, m, k=0: unbroadcast(np.tril(g, k), m.shape),
    _tri_samples,
    drops=True,
    operands=("m",),
    params=("k",),
    batch=triangle,
)
triu = _linear(
    np.triu,
    lambda g, out, m, k=0: unbroadcast(np.triu(g, k), m.shape),
    _tri_samples,
    drops=True,
    operands=("m",),
    params=("k",),
    batch=triangle,
)


def _diagonal_vjp(g: Any, out: Any, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    shape = list(a.shape)
    axis1, axis2 = axis1 % a.ndim, axis2 % a.ndim
    rows, columns = shape[axis1], shape[axis2]
    rest = (n for i, n in enumerate(shape) if i not in (axis1, axis2))
    back = np.zeros_like(g, shape=(*rest, rows, columns))
    i = np.arange(out.shape[-1])
    back[..., i + max(-offset, 0), i + max(offset, 0)] = g
    return np.moveaxis(back, (-2, -1), (axis1, axis2))


diagonal = _linear(
    np.diagonal,
    _diagonal_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4))),
        s(rng.normal(size=(3, 4)), 1),
        s(rng.normal(size=(2, 3, 4)), -1, 2, 0),
    ],
    params=("offset", "axis1", "axis2"),
    lower=Layout(readonly=True),
    batch=diagonals,
    methods=("diagonal",),
    drops=True,
)


@composite(np.trace)
def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), axis=-1, dtype=dtype, out=out)


@composite(np.diag)
def _diag(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)  # a view, which sees what is written into `v` later
    if v.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    n = v.shape[0] + abs(k)
    out = np.zeros_like(v, shape=(n, n))
    i = np.arange(v.shape[0])
    out[i + max(-k, 0), i + max(k, 0)] = v
    return out


# -- repeating ---------------------------------------------------------------------------------


def _repeat_vjp(g: Any, out: Any, a: Any, repeats: Any, axis: int | None = None) -> Any:
    shape = a.shape
    if axis is None:
        g, n, at = np.reshape(g, (-1,)), a.size, 0
    else:
        at = axis % a.ndim
        n = shape[at]
    if np.size(repeats) == 1:
        times = int(np.asarray(repeats).reshape(()))
        split = np.reshape(g, (*g.shape[:at], n, times, *g.shape[at + 1 :]))
        return np.reshape(np.sum(split, axis=at + 1), shape)
    back = np.zeros_like(g, shape=(*g.shape[:at], n, *g.shape[at + 1 :]))
    index: Any = (*(slice(None),) * at, np.repeat(np.arange(n), repeats))
    np.add.at(back, index, g)
    return np.reshape(back, shape)


repeat = _linear(
    np.repeat,
    _repeat_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), 3, axis=0),
        s(rng.normal(size=(3, 4)), np.array([1, 0, 2]), axis=0),
    ],
    params=("repeats", "axis"),
    dynamic=lambda args, params: (args[1:], params),
    batch=along("flat"),
    methods=("repeat",),
    drops=True,
)


def _tile_vjp(g: Any, out: Any, A: Any, reps: Any) -> Any:
    reps = (reps,) if np.ndim(reps) == 0 else tuple(reps)
    d = max(len(reps), A.ndim)
    reps = (1,) * (d - len(reps)) + reps
    shape = (1,) * (d - A.ndim) + A.shape
    split = np.reshape(g, tuple(n for pair in zip(reps, shape, strict=True) for n in pair))
    return np.reshape(np.sum(split, axis=tuple(range(0, 2 * d, 2))), A.shape)


tile = _linear(
    np.tile,
    _tile_vjp,
    lambda rng: [
        s(rng.normal(size=(3, 4)), 2),
        s(rng.normal(size=(3, 4)), (2, 3)),
        s(rng.normal(size=3), (2, 2)),
        s(rng.normal(size=(2, 3)), (2, 1, 2)),
    ],
    operands=("A",),
    params=("reps",),
    batch=tiled,
    # NumPy's own asks for writeable subclasses on the way; values are all we need.
    evaluate=lambda A, reps: np.tile(arrayed(A), reps),
)

borrow(np.rollaxis, views=True)

# -- other names -------------------------------------------------------------------------------


@composite(np.fliplr)
def _fliplr(m: Any) -> Any:
    return np.flip(m, 1)


@composite(np.flipud)
def _flipud(m: Any) -> Any:
    return np.flip(m, 0)


@composite(np.matrix_transpose)
def _matrix_transpose(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


ALIKE.add(np.full_like)


@composite(np.full_like)
def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """``np.full_like``: constant in `a`, linear in the value."""
    out = np.empty_like(a, dtype=dtype, order=order, shape=shape, device=device)
    if out.dtype.kind in "iub" and not isinstance(fill_value, Handle):
        # NumPy copies it, which refuses other numbers than an assignment does.
        fill_value = np.full(np.shape(fill_value), fill_value, out.dtype)
    out[...] = fill_value
    return out


def _picked(a: Any, numbers: Any) -> Any:
    """Return the elements of `a` that stand where a NumPy function moved their numbers."""
    return np.reshape(a, (-1,))[numbers]


def _numbers(a: Any) -> Any:
    return np.arange(a.size).reshape(a.shape)


dynamic(np.delete)


@composite_if_traced(np.delete)
def _delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    r = _picked(arr, np.delete(_numbers(arr), plain(obj), axis))
    return in_order(r, "F") if arr.flags.fnc else r


@composite_if_traced(np.resize)
def _resize(a: Any, new_shape: Any) -> Any:
    """``np.resize``: the elements over and over; zeros where there are none."""
    if not a.size:
        return type(a)(np.resize(plain(a), new_shape))
    numbers = np.resize(_numbers(a), new_shape)
    r = _picked(a, numbers)
    return r if numbers.ndim else np.reshape(r, (1,))[..., 0]


@composite(np.diagflat)
def _diagflat(v: Any, k: int = 0) -> Any:
    return np.diag(np.ravel(v), k)
