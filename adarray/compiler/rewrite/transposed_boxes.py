"""Boxes of transposed arrays: what is computed of them is computed in the order of memory.

``np.swapaxes(x, 0, 1)[:, 1:]`` is a box of ``x`` whose axes are in another order. Where all that is
large in a map, a fold or a write into a box has its axes in the same other order, the transpose
moves behind it, as one of whole arrays does (`adarray.compiler.rewrite.layout`).

References
----------
- P. S. Abrams, "An APL machine", PhD thesis, Stanford University, 1970 (reads by strides in place
  of copies, and selections before arithmetic).
"""

from __future__ import annotations

from typing import NamedTuple

from adarray.compiler.ir import views
from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.primitives import Map, Reduce, UpdateSlice, View
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.views import StridedLayout

Axes = tuple[int, ...]


class Box(NamedTuple):
    """A box with its axes in the order of memory, and which of them each axis of a view is."""

    value: Value
    axes: Axes


def transposed_box(b: Builder, x: Value) -> Box | None:
    """Return the box that a view transposes; None if it is none, or in the order of memory."""
    if not isinstance(x.primitive, View) or x.ndim != x.args[0].ndim:
        return None
    source = x.args[0]
    view = StridedLayout(x.primitive.offset, x.primitive.strides, x.shape)
    box = views.region(view, source.shape)
    if box is None:
        return None
    _, steps, along = box
    if list(long := [k for k in along if k >= 0]) == sorted(long):
        return None
    single = iter([k for k in range(x.ndim) if k not in along])
    axes = tuple(k if k >= 0 else next(single) for k in along)
    lengths = dict(zip(axes, x.shape, strict=True))
    strides = tuple(d * s for d, s in zip(steps, c_strides(source.shape), strict=True))
    shape = tuple(lengths[k] for k in range(x.ndim))
    return Box(b.view(source, x.primitive.offset, strides, shape), axes)


def mapped(
    b: Builder, p: Map, v: Value, args: tuple[Value, ...], narrow: int
) -> Value | None:  # fmt: skip
    """Compute a map of transposed boxes in the order of memory, and transpose the result.

    Operands that are so many times smaller are transposed in place of the large ones.
    """
    axes: Axes | None = None
    boxes: dict[Value, Value] = {}
    for a in args:
        if a.size * narrow <= v.size or a.size == 1:
            continue
        box = transposed_box(b, a) if a.shape == v.shape else None
        if box is None or axes not in (None, box.axes):
            return None
        axes, boxes[a] = box.axes, box.value
    if axes is None:
        return None
    inverse = sorted(range(v.ndim), key=axes.__getitem__)
    inner = []
    for a in args:
        if a in boxes:
            inner.append(boxes[a])
        elif a.size == 1:
            inner.append(b.reshape(a, ()))
        else:
            whole = b.reshape(a, (1,) * (v.ndim - a.ndim) + a.shape)
            inner.append(b.transpose(whole, inverse))
    return b.transpose(b.apply(p.name, tuple(inner), v.dtype), axes)


def reduced(b: Builder, p: Reduce, v: Value, x: Value) -> Value | None:
    """Fold a transposed box in the order of memory."""
    box = transposed_box(b, x)
    if box is None:
        return None
    remaining = [k for i, k in enumerate(box.axes) if i not in p.axes]
    r = b.reduce(p.combine, box.value, [box.axes[i] for i in p.axes])
    order = sorted(remaining)
    r = b.reshape(r, tuple(box.value.shape[k] for k in order))
    return b.reshape(b.transpose(r, [order.index(k) for k in remaining]), v.shape)


def updated(b: Builder, p: UpdateSlice, base: Value, piece: Value) -> Value | None:
    """Write a transposed box into an array that is transposed alike, or of equal numbers."""
    box = transposed_box(b, piece)
    if box is None:
        return None
    shape = tuple(n for _, n in sorted(zip(box.axes, base.shape, strict=True)))
    c = uniform(base)
    if c is not None:
        below = b.broadcast(c, shape)
    else:
        whole = transposed_box(b, base)
        if whole is None or whole.axes != box.axes:
            return None
        below = whole.value
    starts = tuple(n for _, n in sorted(zip(box.axes, p.starts, strict=True)))
    steps = tuple(n for _, n in sorted(zip(box.axes, p.steps, strict=True)))
    return b.transpose(b.update_slice(below, box.value, starts, steps, p.add), box.axes)
