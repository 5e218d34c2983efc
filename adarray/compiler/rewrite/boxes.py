"""Boxes: what is written into arrays, and read again; parts of concatenated arrays.

References
----------
- K. Knobe, V. Sarkar, "Array SSA form and its use in parallelization", POPL 1998.
"""

from __future__ import annotations

from adarray.compiler.ir import views
from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Concatenate, Map, UpdateSlice, View
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.views import Shape, StridedLayout

# Writes that are looked through to find what a view shows.
DEPTH = 64


def placed(b: Builder, p: UpdateSlice, v: Value, base: Value, value: Value) -> Value | None:
    """Simplify what is written over, what was read there, and what is added to it."""
    starts, steps = p.starts, p.steps
    if not p.add and _covers(starts, steps, value, base):
        return b.update_slice(base.args[0], value, starts, steps)
    if not p.add and _shows(value, base, box_view(starts, steps, value.shape, base.shape)):
        return base  # what was read there
    if p.add:
        c = uniform(base)
        if c is not None:
            return b.update_slice(base, b.map("add", c, value), starts, steps)
        return None
    if value.primitive == Map("add") and value.shape == v.args[1].shape:
        shown = box_view(starts, steps, value.shape, base.shape)
        for this, other in (value.args, value.args[::-1]):
            if other.shape == value.shape and _shows(this, base, shown):
                return b.update_slice(base, other, starts, steps, add=True)
    return None


def _covers(starts: Shape, steps: Shape, value: Value, base: Value) -> bool:
    """Whether a box writes over the one that `base` has just got."""
    if not isinstance(base.primitive, UpdateSlice) or value.shape != base.args[1].shape:
        return False
    return (base.primitive.starts, base.primitive.steps) == (starts, steps)


def box_view(starts: Shape, steps: Shape, shape: Shape, of: Shape) -> StridedLayout:
    """Return a box of an array of shape `of` as a view."""
    strides = c_strides(of)
    offset = sum(a * s for a, s in zip(starts, strides, strict=True))
    return views.normal(offset, tuple(d * s for d, s in zip(steps, strides, strict=True)), shape)


def _shows(x: Value, base: Value, view: StridedLayout) -> bool:
    """Whether `x` is `view` of `base`, in any shape."""
    if not isinstance(x.primitive, View) or x.args[0] is not base:
        return False
    mine = views.merged(x.primitive.strides, x.shape)
    return x.primitive.offset == view.offset and mine == views.merged(view.strides, view.shape)


def through(b: Builder, view: StridedLayout, x: Value) -> Value | None:
    """Return what a view of boxes or concatenated parts shows, if that is one of them alone.

    It is no earlier state of an array that boxes are written into: what is read later keeps
    its memory, so the boxes could not be written where the array lies, and each would copy it.
    """
    first, latest = x, (view, x)
    for _ in range(DEPTH):
        part = _part(view, x)
        if part is None:
            break
        beside = part[1] is x.args[0] and isinstance(x.primitive, UpdateSlice)
        view, x = part
        while isinstance(x.primitive, View):
            inner = StridedLayout(x.primitive.offset, x.primitive.strides, x.shape)
            composed = views.compose(view, inner)
            if composed is None:
                return b.view(x, *view)
            view, x = composed, x.args[0]
        if not (beside and isinstance(x.primitive, UpdateSlice)):
            latest = view, x
    view, x = latest
    return b.view(x, *view) if x is not first else None


def _part(view: StridedLayout, x: Value) -> tuple[StridedLayout, Value] | None:
    """Return the view of one operand of `x` that shows what `view` shows of `x`."""
    if not isinstance(x.primitive, (UpdateSlice, Concatenate)) or 0 in view.shape:
        return None
    box = views.region(view, x.shape)
    if box is None:
        return None
    starts, steps, axes = box
    lengths = [1] * x.ndim
    for k, n in zip(axes, view.shape, strict=True):
        if k >= 0:
            lengths[k] = n
    if isinstance(x.primitive, Concatenate):
        return _of_concatenation(x.primitive.axis, x, starts, steps, axes, lengths, view.shape)
    return _of_place(x.primitive, x, view, starts, steps, axes, lengths)


def _boxed(
    starts: Shape, steps: Shape, axes: Shape,
    shape: Shape, of: Value,
) -> tuple[StridedLayout, Value]:  # fmt: skip
    """Return the view of `of` with axes along its axes."""
    strides = c_strides(of.shape)
    offset = sum(a * s for a, s in zip(starts, strides, strict=True))
    moves = tuple(0 if k < 0 else steps[k] * strides[k] for k in axes)
    return views.normal(offset, moves, shape), of


def _of_concatenation(
    axis: int, x: Value, starts: Shape, steps: Shape, axes: Shape,
    lengths: list[int], shape: Shape,
) -> tuple[StridedLayout, Value] | None:  # fmt: skip
    ends = (starts[axis], starts[axis] + steps[axis] * (lengths[axis] - 1))
    at = 0
    for part in x.args:
        stop = at + part.shape[axis]
        if min(ends) < stop:
            if max(ends) >= stop:
                return None
            moved = tuple(s - at if k == axis else s for k, s in enumerate(starts))
            return _boxed(moved, steps, axes, shape, part)
        at = stop
    return None


def _of_place(
    p: UpdateSlice, x: Value, view: StridedLayout, starts: Shape, steps: Shape, axes: Shape,
    lengths: list[int],
) -> tuple[StridedLayout, Value] | None:  # fmt: skip
    base, value = x.args
    inside = not p.add
    moved, scaled = [], []
    for k in range(x.ndim):
        first, step, n = p.starts[k], p.steps[k], value.shape[k]
        a, d, m = starts[k], steps[k], lengths[k]
        low, high = min(a, a + d * (m - 1)), max(a, a + d * (m - 1))
        if high < first or low > first + step * (n - 1):
            return view, base  # beside the box
        if step > 1 and (a - first) % step and (m == 1 or d % step == 0):
            return view, base  # between its elements
        i, rest = divmod(a - first, step)
        j = i + (d // step) * (m - 1) if m > 1 else i
        if rest or (m > 1 and d % step) or min(i, j) < 0 or max(i, j) >= n:
            inside = False
        moved.append(i)
        scaled.append(d // step)
    return _boxed(tuple(moved), tuple(scaled), axes, view.shape, value) if inside else None
