"""Indexing and writing: views and boxes, gathers and scatters."""

from __future__ import annotations

from types import EllipsisType
from typing import NamedTuple, TypeAlias, cast

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.compiler.ir import views
from adarray.compiler.ir.builder import BOOL, INT, PAIRS, Builder, Weak
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.views import Shape, StridedLayout
from adarray.compiler.translate import (
    Translated,
    ValueCall,
    function,
    index_of,
    of_pairs,
    record,
)
from adarray.compiler.translate.shape import seen
from adarray.core.graph import Steps
from adarray.core.inplace import part_of

of_pairs("getitem", "permute_along_axis", "write", "add.at", np.take, np.take_along_axis)

# -- what an index says ------------------------------------------------------------------------


class IndexParts(NamedTuple):
    """An index in two steps: a view, then arrays along some axes of it.

    Attributes
    ----------
    view : StridedLayout
        Of the indexed array; axes with an array are whole in it.
    arrays : tuple of Value
        int64.
    axes : tuple of int
        Axes of the view that the arrays index.
    position : int
        Where the arrays' axes stand in the result.
    whole : tuple of int or None
        Axes of the indexed array itself if nothing but whole axes, arrays and integers
        stand in the index; `arrays` and `numbers` index these.
    numbers : tuple of Value
        `arrays` with the integers among them.
    """

    view: StridedLayout
    arrays: tuple[Value, ...]
    axes: tuple[int, ...]
    position: int
    whole: tuple[int, ...] | None
    numbers: tuple[Value, ...]


_INTEGER = (int, np.integer)
_Part: TypeAlias = Value | int | np.integer | slice | EllipsisType | None


def parse(b: Builder, shape: Shape, index: object) -> IndexParts | None:
    """Read an index of an array of `shape`; None if it holds masks known at run time only."""
    parts = _parts(b, index, len(shape))
    if parts is None:
        return None
    offset = 0
    strides: list[int] = []
    lengths: list[int] = []
    arrays: list[Value] = []
    numbers: list[Value] = []
    axes: list[int] = []
    whole: list[int] = []
    steps = c_strides(shape)
    k = 0
    simple = True
    before: int | None = None  # axes of the result in front of the first array or integer
    apart = gap = False
    for part in parts:
        if isinstance(part, (Value, *_INTEGER)):
            apart |= gap
            if before is None:
                before = len(lengths) - len(axes)
            whole.append(k)
            if isinstance(part, Value):
                arrays.append(part)
                axes.append(len(lengths))
                numbers.append(part)
                strides.append(steps[k])
                lengths.append(shape[k])
            else:
                i = int(part) + (shape[k] if part < 0 else 0)
                numbers.append(b.const(i, INT))
                offset += i * steps[k]
            k += 1
            continue
        gap = before is not None
        if part is None:
            strides.append(0)
            lengths.append(1)
            simple = False
        elif part is not Ellipsis:
            places = range(*part.indices(shape[k]))
            offset += places.start * steps[k] if places else 0
            strides.append(steps[k] * places.step)
            lengths.append(len(places))
            simple = simple and places == range(shape[k])
            k += 1
    position = 0 if apart else before or 0
    view = views.normal(offset, tuple(strides), tuple(lengths))
    return IndexParts(
        view, tuple(arrays), tuple(axes), position, tuple(whole) if simple else None, tuple(numbers)
    )


def _parts(b: Builder, index: object, ndim: int) -> list[_Part] | None:
    """Return the parts of an index: slices for all axes, int64 values for arrays.

    The ellipsis stays in front of the slices that it stands for, since it keeps arrays
    apart even where it stands for no axis.
    """
    parts: list[_Part] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, (Weak, Value)):
            part = part.value if isinstance(part, Weak) else part
            if part.dtype.kind not in "iu":
                return None
            parts.append(b.cast(part, INT))
        elif part is None or part is Ellipsis or isinstance(part, slice):
            if isinstance(part, slice) and any(
                isinstance(i, (Value, Weak)) for i in (part.start, part.stop, part.step)
            ):
                return None
            parts.append(part)
        elif isinstance(part, (bool, np.bool)):
            return None
        elif isinstance(part, _INTEGER):
            parts.append(part)
        else:
            array = np.asarray(part, int if isinstance(part, list) and not part else None)
            if array.dtype == BOOL:
                if not array.ndim:
                    return None
                parts.extend(b.array(places) for places in array.nonzero())
            elif array.dtype.kind in "iu":
                parts.append(b.array(array.astype(np.int64)) if array.ndim else int(array))
            else:
                return None
    indexed = sum(p is not None and p is not Ellipsis for p in parts)
    at = next((i for i, p in enumerate(parts) if p is Ellipsis), len(parts))
    parts[at + 1 : at + 1] = [slice(None)] * (ndim - indexed)
    return parts


def pick(b: Builder, x: Value, index: IndexParts) -> Value:
    """Return the elements that an index names."""
    shown = b.view(x, *index.view)
    if not index.arrays:
        return shown
    return b.gather(shown, index.arrays, index.axes, index.position)


def linear(b: Builder, view: StridedLayout) -> Value:
    """Return the numbers (int64) of the elements that a view shows."""
    total = b.const(view.offset, INT)
    for k, (s, n) in enumerate(zip(view.strides, view.shape, strict=True)):
        if s == 0 or n == 1:
            continue
        shape = tuple(n if i == k else 1 for i in range(len(view.shape)))
        steps = b.map("multiply", b.iota(shape, k), b.const(s, INT))
        total = b.map("add", total, steps)
    return b.broadcast(total, view.shape)


# -- reading -----------------------------------------------------------------------------------


@record("getitem")
def _getitem(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    index = parse(b, x.shape, call.params["index"])
    return None if index is None else pick(b, x, index)


def take(b: Builder, x: Value, indices: object, axis: int | None) -> Value | None:
    """Return the elements at `indices` along an axis."""
    if axis is None:
        x, axis = b.reshape(x, (x.size,)), 0
    at = b.value(indices if isinstance(indices, (Value, Weak)) else np.asarray(indices))
    if at.dtype.kind not in "iu":
        return None
    axis = normalize_axis_index(axis, x.ndim)
    return b.gather(x, [b.cast(at, INT)], (axis,), axis)


@function(np.take)
def _take(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "indices", "axis", "out", "mode")
    if args is None or args.get("mode", "raise") != "raise":
        return None
    return take(b, b.value(args["a"]), args["indices"], args.integer("axis"))


def take_along(b: Builder, x: Value, order: Value, axis: int) -> Value | None:
    """Return ``np.take_along_axis(x, order, axis)``."""
    if order.dtype.kind not in "iu" or order.ndim != x.ndim:
        return None
    axis %= x.ndim
    order = b.cast(order, INT)
    shape = tuple(
        m if i == axis else max(n, m) if 1 in (n, m) else n
        for i, (n, m) in enumerate(zip(x.shape, order.shape, strict=True))
    )
    order = b.broadcast(order, shape)
    indices = []
    for i in range(x.ndim):
        if i == axis:
            indices.append(order)
        elif x.shape[i] == 1:
            indices.append(b.full(shape, 0, INT))
        else:
            line = b.iota(tuple(n if k == i else 1 for k, n in enumerate(shape)), i)
            indices.append(b.broadcast(line, shape))
    return b.gather(x, indices, tuple(range(x.ndim)), 0)


@record("permute_along_axis")
def _permute(b: Builder, call: ValueCall) -> Translated:
    x, order = b.value(call.operands[0]), b.value(call.params["order"])
    return take_along(b, x, order, index_of(call.params["axis"]))


@function(np.take_along_axis)
def _take_along_axis(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("arr", "indices", "axis")
    if args is None:
        return None
    x, axis = b.value(args["arr"]), args.integer("axis", -1) if "axis" in args else -1
    if axis is None:
        x, axis = b.reshape(x, (x.size,)), 0
    return take_along(b, x, b.value(args["indices"]), axis)


# -- writing -----------------------------------------------------------------------------------


def write_view(b: Builder, base: Value, value: Value, view: StridedLayout, add: bool) -> Value:
    """Set, or add to, the elements of `base` that a view shows."""
    if 0 in view.shape:
        return base
    value = _fitted(b, value, view.shape)
    box = views.region(view, base.shape)
    if box is None:
        return _write_numbers(b, base, value, linear(b, view), add)
    starts, steps, axes = list(box[0]), list(box[1]), box[2]
    order = sorted((k, i) for i, k in enumerate(axes) if k >= 0)
    shape = [1] * base.ndim
    for k, i in order:
        shape[k] = view.shape[i]
    rest = [i for i, k in enumerate(axes) if k < 0]
    value = b.transpose(b.broadcast(value, view.shape), [*rest, *(i for _, i in order)])
    value = b.reshape(value, tuple(shape))
    backward = [k for k, s in enumerate(steps) if s < 0]
    for k in backward:
        starts[k] += steps[k] * (shape[k] - 1)
        steps[k] = -steps[k]
    if backward:
        value = b.flip(value, backward)
    return b.update_slice(base, value, tuple(starts), tuple(steps), add)


def _fitted(b: Builder, value: Value, shape: Shape) -> Value:
    """Return a value that is written into a region of `shape`: spare axes of length 1 go."""
    spare = value.ndim - len(shape)
    return value if spare <= 0 else b.reshape(value, value.shape[spare:])


def _write_numbers(b: Builder, base: Value, value: Value, numbers: Value, add: bool) -> Value:
    """Write at the element numbers of `base`."""
    flat = b.reshape(base, (base.size,))
    spread = b.broadcast(value, numbers.shape)
    return b.reshape(b.scatter(flat, spread, [numbers], (0,), 0, add), base.shape)


def write(
    b: Builder,
    base: Value,
    value: Value,
    index: object,
    through: StridedLayout | None,
    add: bool = False,
) -> Value | None:
    """Return `base` with ``view[index] = value``, the view being `through` or all of it."""
    shape = base.shape if through is None else through.shape
    at = parse(b, shape, index)
    if at is None:
        return None
    value = b.cast(value, base.dtype)
    if not at.arrays:
        view = at.view if through is None else views.compose(at.view, through)
        if view is not None:
            return write_view(b, base, value, view, add)
    if through is None and at.whole is not None:
        rest = [n for k, n in enumerate(shape) if k not in at.whole]
        of_arrays = views.broadcast_shape([i.shape for i in at.numbers])
        region = (*rest[: at.position], *of_arrays, *rest[at.position :])
        value = _fitted(b, value, region)
        return b.scatter(base, value, at.numbers, at.whole, at.position, add)
    numbers = linear(b, views.normal(0, c_strides(shape), shape) if through is None else through)
    picked = pick(b, numbers, at)
    return _write_numbers(b, base, _fitted(b, value, picked.shape), picked, add)


def _write_mask(b: Builder, base: Value, value: Value, index: object) -> Value | None:
    """Return `base` with ``base[mask] = value`` for a mask known at run time only."""
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if not isinstance(mask, Value) or mask.dtype != BOOL or not mask.ndim:
        return None
    if mask.shape != base.shape[: mask.ndim]:
        return None
    while value.ndim and value.shape[0] == 1:
        value = b.reshape(value, value.shape[1:])
    if value.ndim > base.ndim - mask.ndim:
        return None
    mask = b.reshape(mask, mask.shape + (1,) * (base.ndim - mask.ndim))
    return b.map("where", mask, b.cast(value, base.dtype), base)


@record("write")
def _write(b: Builder, call: ValueCall) -> Translated:
    base, value = b.value(call.operands[0]), b.value(call.operands[1])
    if value.dtype in PAIRS and base.dtype not in PAIRS:
        return None  # NumPy warns of it
    value = (
        b.cast(value, call.result.dtype)
        if isinstance(call.operands[1], Value)
        else b.value(call.operands[1], call.result.dtype)
    )
    through = None
    steps = cast("Steps", call.params["steps"])
    if part_of(steps) is not None:
        return None  # halves of elements
    if steps:
        dummy = np.empty(base.shape, np.int8)
        shown = dummy
        for op, rest, params in steps:
            if op.name == "view":
                return None  # bytes of elements
            shown = op.evaluate(shown, *rest, **params)
        through = seen(shown, dummy)
        if through is None:
            return None
    index = call.params["index"]
    if through is None:
        masked = _write_mask(b, base, value, index)
        if masked is not None:
            return masked
    return write(b, base, value, index, through)


@record("add.at")
def _add_at(b: Builder, call: ValueCall) -> Translated:
    base, value = (b.value(x, call.result.dtype) for x in call.operands)
    return write(b, base, value, call.params["index"], None, add=True)


@record("sums_by_bin")
def _sums_by_bin(b: Builder, call: ValueCall) -> Translated:
    weights = b.value(call.operands[0], np.float64)
    places = b.value(call.params["places"], INT)
    if weights.ndim != 1:
        return None
    n = index_of(call.params["n"])
    # Place n is for what lies in no bin.
    sums = b.scatter(b.full((n + 1,), 0, np.float64), weights, [places], (0,), 0, add=True)
    return b.cast(b.slice(sums, 0, 0, n), call.result.dtype)
