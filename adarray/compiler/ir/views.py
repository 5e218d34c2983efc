"""Arithmetic of views: which elements of a C-ordered array a view shows.

A view is ``(offset, strides, shape)``, counted in elements of its operand. Axes of length
1 have stride 0, so that equal views are equal tuples.

References
----------
- P. S. Abrams, "An APL machine", PhD thesis, Stanford University, 1970.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from adarray.compiler.ir.program import c_strides

Shape = tuple[int, ...]


class StridedLayout(NamedTuple):
    """The elements ``offset + i*strides[0] + j*strides[1] + ...`` of an operand."""

    offset: int
    strides: Shape
    shape: Shape


def normal(offset: int, strides: Shape, shape: Shape) -> StridedLayout:
    """Return a view in normal form."""
    if 0 in shape:
        return StridedLayout(0, (0,) * len(shape), shape)
    if 1 in shape:
        strides = tuple(0 if n == 1 else s for s, n in zip(strides, shape, strict=True))
    return StridedLayout(offset, strides, shape)


def is_whole(view: StridedLayout, size: int) -> bool:
    """Whether a view shows all `size` elements of its operand, in their order."""
    if view.offset or math.prod(view.shape) != size:
        return False
    return all(
        n == 1 or s == c
        for n, s, c in zip(view.shape, view.strides, c_strides(view.shape), strict=True)
    )


def merged(strides: Shape, shape: Shape) -> tuple[Shape, Shape]:
    """Return strides and shape with neighbouring axes joined where one stride serves both."""
    out_s: list[int] = []
    out_n: list[int] = []
    for s, n in zip(strides, shape, strict=True):
        if n == 1:
            continue
        if out_n and out_s[-1] == s * n:
            out_s[-1] = s
            out_n[-1] *= n
        else:
            out_s.append(s)
            out_n.append(n)
    return tuple(out_s), tuple(out_n)


def compose(outer: StridedLayout, inner: StridedLayout) -> StridedLayout | None:
    """Return the view that shows through `inner` what `outer` shows of it.

    None where no strides say it: `outer` merges axes that `inner` keeps apart, as a
    reshape of a transposed array does.
    """
    if 0 in outer.shape:
        return outer
    strides, shape = merged(inner.strides, inner.shape)
    radix = c_strides(shape)
    low = digits(outer.offset, radix)
    high = list(low)
    composed = []
    for s, n in zip(outer.strides, outer.shape, strict=True):
        if n == 1 or s == 0:
            composed.append(0)
            continue
        moved = 0
        for k, d in enumerate(digits(abs(s), radix)):
            if not d:
                continue
            d = d if s > 0 else -d
            moved += d * strides[k]
            if d > 0:
                high[k] += d * (n - 1)
            else:
                low[k] += d * (n - 1)
        composed.append(moved)
    if any(a < 0 for a in low) or any(b >= n for b, n in zip(high, shape, strict=True)):
        return None
    start = sum(d * s for d, s in zip(digits(outer.offset, radix), strides, strict=True))
    return normal(inner.offset + start, tuple(composed), outer.shape)


def digits(number: int, radix: Shape) -> list[int]:
    """Return the multi-index of element `number`, given the strides of a C-ordered array."""
    indices = []
    for step in radix:
        d, number = divmod(number, step)
        indices.append(d)
    return indices


def region(view: StridedLayout, shape: Shape) -> tuple[Shape, Shape, tuple[int, ...]] | None:
    """Return ``(starts, steps, axes)`` of a view that is a box of an array of `shape`.

    Axis k of the view runs along axis ``axes[k]`` of the array, -1 for one of length 1;
    steps may be negative. None if the view is no box: a diagonal, a broadcast, windows.
    """
    radix = c_strides(shape)
    if 0 in view.shape:
        return None
    starts = digits(view.offset, radix)
    steps = [1] * len(shape)
    axes = []
    for s, n in zip(view.strides, view.shape, strict=True):
        if n == 1:
            axes.append(-1)
            continue
        at = [(k, d) for k, d in enumerate(digits(abs(s), radix)) if d]
        if len(at) != 1 or at[0][0] in axes:
            return None
        k, d = at[0]
        step = d if s > 0 else -d
        if not 0 <= starts[k] + step * (n - 1) < shape[k]:
            return None
        steps[k] = step
        axes.append(k)
    return tuple(starts), tuple(steps), tuple(axes)


def broadcast_shape(shapes: list[Shape]) -> Shape:
    """Return the shape that arrays of `shapes` broadcast to."""
    first = shapes[0]
    if len(shapes) == 2:
        second = shapes[1]
        if first == second or not second:
            return first
        if not first:
            return second
    elif all(s == first for s in shapes):
        return first
    ndim = max(map(len, shapes))
    common = [1] * ndim
    for shape in shapes:
        lead = ndim - len(shape)
        for i, n in enumerate(shape, lead):
            if n != 1:
                if common[i] not in (1, n):
                    raise ValueError(f"broadcasting: shapes {shapes} do not broadcast")
                common[i] = n
    return tuple(common)


def broadcast_strides(shape: Shape, to: Shape) -> Shape:
    """Return the strides that spread a C-ordered array of `shape` over shape `to`."""
    lead = len(to) - len(shape)
    strides = tuple(0 if n == 1 else s for s, n in zip(c_strides(shape), shape, strict=True))
    return (0,) * lead + strides
