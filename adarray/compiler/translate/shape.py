"""Operations that move elements and keep their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from adarray.base.op import OPS, Op
from adarray.base.recording import Symbol
from adarray.compiler.ir.builder import PAIRS, Builder
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.views import Shape, StridedLayout
from adarray.compiler.translate import (
    Arguments,
    Translated,
    Translation,
    ValueCall,
    axes_of,
    function,
    index_of,
    of_any_dtype,
    of_pairs,
    record,
)
from adarray.ops.common import normalized_axes

# -- views -------------------------------------------------------------------------------------


of_any_dtype("reshape")
of_pairs(
    "reshape", "squeeze", "expand_dims", "ravel", "transpose", "swapaxes", "moveaxis",
    "broadcast_to", "flip", "copy", "real", "imag", "conjugate", "rot90", "diagonal",
    "sliding_window_view", "einsum_view", "astype", "roll", "repeat", "tile", "pad", "tril", "triu",
    "concatenate", np.stack, np.vstack, np.hstack,
)  # fmt: skip


@record("reshape")
def _reshape(b: Builder, call: ValueCall) -> Translated:
    order = call.params.get("order", "C")
    if order == "F":  # C order of the reversed axes
        back = b.reshape(_reversed(b, b.value(call.operands[0])), call.result.shape[::-1])
        return _reversed(b, back)
    return None if order != "C" else b.reshape(b.value(call.operands[0]), call.result.shape)


@record("squeeze", "expand_dims")
def _same_order(b: Builder, call: ValueCall) -> Translated:
    return b.reshape(b.value(call.operands[0]), call.result.shape)


@record("ravel")
def _ravel(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    if call.params.get("order", "C") == "F":
        x = _reversed(b, x)
    elif call.params.get("order", "C") != "C":
        return None
    return b.reshape(x, call.result.shape)


def _reversed(b: Builder, x: Value) -> Value:
    return b.transpose(x, range(x.ndim)[::-1])


@record("transpose")
def _transpose(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    axes = call.params.get("axes")
    order = range(x.ndim)[::-1] if axes is None else normalize_axis_tuple(axes_of(axes), x.ndim)
    return b.transpose(x, order)


@record("swapaxes")
def _swapaxes(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    order = list(range(x.ndim))
    i, j = (index_of(call.params[name]) for name in ("axis1", "axis2"))
    order[i], order[j] = order[j], order[i]
    return b.transpose(x, order)


@record("moveaxis")
def _moveaxis(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    source, destination = (
        normalize_axis_tuple(axes_of(call.params[name]), x.ndim)
        for name in ("source", "destination")
    )
    order = [i for i in range(x.ndim) if i not in source]
    for to, at in sorted(zip(destination, source, strict=True)):
        order.insert(to, at)
    return b.transpose(x, order)


@record("broadcast_to")
def _broadcast_to(b: Builder, call: ValueCall) -> Translated:
    return b.broadcast(b.value(call.operands[0]), call.result.shape)


@record("flip")
def _flip(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    return b.flip(x, normalized_axes(call.params.axis(), x.ndim))


@record("copy")
def _copy(b: Builder, call: ValueCall) -> Translated:
    return b.value(call.operands[0])


@record("conjugate")
def _conjugate(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    return b.map("conjugate", x) if x.dtype in PAIRS else x


@record("real")
def _real(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    return b.parts(x)[0] if x.dtype in PAIRS else x


@record("imag")
def _imag(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    return b.parts(x)[1] if x.dtype in PAIRS else None


def _by_layout(name: str) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        return by_layout(b, name, call)

    return translate


for _name in ("rot90", "diagonal", "sliding_window_view", "einsum_view"):
    record(_name)(_by_layout(_name))


def by_layout(b: Builder, name: str, call: ValueCall) -> Translated:
    """Translate an operation of one operand to the view that NumPy makes of it.

    NumPy runs on an array whose memory nobody reads, and the call.result's address and strides
    say which elements it shows.
    """
    x = b.value(call.operands[0])
    if 0 in call.result.shape:
        return b.full(call.result.shape, 0, x.dtype)
    shown = layout_of(OPS[name], x.shape, call.params)
    return None if shown is None else b.view(x, *shown)


def layout_of(op: Op, shape: Shape, params: Arguments) -> StridedLayout | None:
    """Return the view that a layout operation makes of a C-ordered array; None for a copy."""
    dummy = np.empty(shape, np.int8)
    return seen(op.evaluate(dummy, **params), dummy)


def seen(r: object, base: np.ndarray) -> StridedLayout | None:
    """Return `r`, a view of the C-ordered array `base` of bytes, as a `StridedLayout`."""
    if not isinstance(r, np.ndarray) or not np.may_share_memory(r, base):
        return None
    offset = r.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return StridedLayout(offset, r.strides, r.shape)


# -- dtypes ------------------------------------------------------------------------------------


@record("astype")
def _astype(b: Builder, call: ValueCall) -> Translated:
    return b.value(call.operands[0], call.result.dtype)


# -- copies ------------------------------------------------------------------------------------


@record("roll")
def _roll(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    axis, shift = call.params.axis(), call.params.integers("shift")
    if shift is None or not x.size:
        return None
    if axis is None:
        flat = roll(b, b.reshape(x, (x.size,)), int(shift.sum()), 0)
        return b.reshape(flat, x.shape)
    shifts, axes = np.broadcast_arrays(np.atleast_1d(shift), np.atleast_1d(axis))
    for k, i in zip(shifts.tolist(), axes.tolist(), strict=True):
        x = roll(b, x, k, normalize_axis_index(i, x.ndim))
    return x


def roll(b: Builder, x: Value, shift: int, axis: int) -> Value:
    """Move elements along an axis; those that leave at the end come in at the start."""
    n = x.shape[axis]
    shift %= max(n, 1)
    if not shift:
        return x
    parts = [b.slice(x, axis, n - shift, n), b.slice(x, axis, 0, n - shift)]
    return b.concatenate(parts, axis)


@record("repeat")
def _repeat(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    axis, repeats = call.params.integer("axis"), call.params.integers("repeats")
    if repeats is None:
        return None
    if axis is None:
        x, axis = b.reshape(x, (x.size,)), 0
    axis = normalize_axis_index(axis, x.ndim) if x.ndim else 0
    if not x.ndim:
        x = b.reshape(x, (1,))
    if repeats.size != 1:
        picked = np.repeat(np.arange(x.shape[axis]), repeats)
        return b.gather(x, [b.array(picked)], (axis,), axis)
    times = int(repeats.reshape(()))
    shape = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    strides = c_strides(x.shape)
    spread = b.view(x, 0, (*strides[: axis + 1], 0, *strides[axis + 1 :]), shape)
    return b.reshape(spread, call.result.shape)


@record("tile")
def _tile(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    reps = call.params.integers("reps")
    if reps is None:
        return None
    counts = tuple(int(r) for r in np.atleast_1d(reps))
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    sizes = (1,) * (ndim - x.ndim) + x.shape
    shape = tuple(n for pair in zip(counts, sizes, strict=True) for n in pair)
    strides = tuple(s for step in c_strides(sizes) for s in (0, step))
    return b.reshape(b.view(x, 0, strides, shape), call.result.shape)


@record("pad")
def _pad(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    widths = call.params["pad_width"]
    if isinstance(widths, dict):
        return None
    pairs = np.broadcast_to(np.asarray(widths), (x.ndim, 2))
    base = b.full(call.result.shape, 0, x.dtype)
    return b.update_slice(base, x, tuple(int(w[0]) for w in pairs), (1,) * x.ndim)


def _triangle(lower: bool) -> Translation:
    def make(b: Builder, call: ValueCall) -> Translated:
        x = b.value(call.operands[0])
        k = call.params.integer("k", 0)
        mask = triangle(b, call.result.shape[-2:], k if lower else k - 1)
        zero = b.const(0, x.dtype)
        return b.map("where", mask, *((x, zero) if lower else (zero, x)))

    return make


def triangle(b: Builder, shape: Shape, k: int) -> Value:
    """Return where ``column - row <= k`` in a matrix of `shape`."""
    row = b.map("add", b.iota((shape[0], 1), 0), b.const(k, np.int64))
    return b.map("less_equal", b.iota((1, shape[1]), 1), row)


record("tril")(_triangle(lower=True))
record("triu")(_triangle(lower=False))


@record("concatenate")
def _concatenate(b: Builder, call: ValueCall) -> Translated:
    return concatenate(b, call.operands, call.params.integer("axis", 0), call.result)


def concatenate(b: Builder, operands: Iterable[object], axis: int | None, result: Symbol) -> Value:
    """Concatenate arrays in the result's dtype."""
    parts = [b.value(x, result.dtype) for x in operands]
    if axis is None:
        parts, axis = [b.reshape(p, (p.size,)) for p in parts], 0
    return b.concatenate(parts, normalize_axis_index(axis, len(result.shape)))


@function(np.stack)
def _stack(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("arrays", "axis", "out")
    if args is None or not isinstance(args["arrays"], (list, tuple)):
        return None
    axis = normalize_axis_index(args.integer("axis", 0), len(call.result.shape))
    parts = [b.value(x, call.result.dtype) for x in args["arrays"]]
    shapes = [(*p.shape[:axis], 1, *p.shape[axis:]) for p in parts]
    return b.concatenate([b.reshape(p, s) for p, s in zip(parts, shapes, strict=True)], axis)


def _concatenation(axis_of: Callable[[list[Value]], int], ndmin: int) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        if (
            len(call.operands) != 1
            or call.params
            or not isinstance(call.operands[0], (list, tuple))
        ):
            return None
        parts = [b.value(x) for x in call.operands[0]]
        shaped = [_at_least(b, p, ndmin) for p in parts]
        return concatenate(b, shaped, axis_of(shaped), call.result)

    return translate


def _at_least(b: Builder, x: Value, ndim: int) -> Value:
    lead = ndim - x.ndim
    return x if lead <= 0 else b.reshape(x, (1,) * lead + x.shape)


function(np.vstack)(_concatenation(lambda _: 0, 2))
function(np.hstack)(_concatenation(lambda parts: 0 if parts[0].ndim == 1 else 1, 1))
