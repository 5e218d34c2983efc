"""Sums in two stages on a GPU: of what lies side by side, and of these sums.

Sums over the first axes and a short last one are sums over the first ones, and then over it.
Threads that share a row add up its elements side by side. Were neighbours to add to the same sum,
they would wait for each other, and a thread for each sum would read far apart.

A few sums of very many elements, which come from pieces along several axes, begin with sums over
the last axis: rows enough for all threads. A block for each sum would leave most of a GPU idle.
So do folds of several axes of what was computed of folds of the last one: a few threads have each
row of the array, where a block would take all rows of a result in turn, and wait for each.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from collections.abc import Callable
from types import UnionType

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import (
    Concatenate,
    GatherND,
    Map,
    Primitive,
    Reduce,
    Shape,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import rebuild, renewed

LARGE = 1 << 18  # elements that are folded, at least
LAST = 32  # of the last axis, at most
SUMS = 1 << 13  # that are left of the first axes, at most: each block has its own
# Elements of each sum of pieces, and of the last axis, at least; sums, at most; values of maps that
# are looked through for pieces.
EACH, ROW, FEW, LOOK = 1 << 16, 32, 1 << 11, 200


def sums_in_stages(program: Program, target: Target) -> Program:
    """Return the program with such folds in two stages."""
    if not target.along or not any(_is_staged(v) or _has_rows(v) for v in program.values):
        return program
    return rebuild(program, _staged)


def _is_staged(v: Value) -> bool:
    p = v.primitive
    if not isinstance(p, Reduce) or v.args[0].size < LARGE:
        return False
    shape = v.args[0].shape
    long = [a for a, n in enumerate(shape) if n > 1]
    if len(long) < 3 or long[-1] not in p.axes or long[0] not in p.axes:
        return False
    left = v.size * shape[long[-1]]
    return long[-2] not in p.axes and shape[long[-1]] <= LAST and v.size > 1 and left <= SUMS


def _staged(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    p = v.primitive
    if isinstance(p, Reduce) and _has_rows(v):
        last = _last(v)
        rows = b.reduce(p.combine, args[0], [last])
        return b.reduce(p.combine, rows, [a - (a > last) for a in p.axes if a != last])
    if not _is_staged(v) or not isinstance(p, Reduce):
        return renewed(b, v, args)
    last = max(a for a in p.axes if v.args[0].shape[a] > 1)
    first = [a for a in p.axes if a < last]
    sums = b.reduce(p.combine, args[0], first)
    return b.reduce(p.combine, sums, [a - len(first) for a in p.axes if a >= last])


def _last(v: Value) -> int:
    """Return the last axis of what a value folds that is longer than 1."""
    return max((a for a, n in enumerate(v.args[0].shape) if n > 1), default=0)


def _has_rows(v: Value) -> bool:
    """Whether a value is a few long folds, of the last axis and others, of pieces or of rows."""
    p = v.primitive
    if not isinstance(p, Reduce) or not 1 < v.size <= FEW:
        return False
    x, last = v.args[0], _last(v)
    several = sum(x.shape[a] > 1 for a in p.axes) > 1
    if not several or last not in p.axes or x.shape[last] < ROW:
        return False
    if x.size >= EACH * v.size and _leads_to(x, _is_piece, Map):
        return True
    return x.size >= LARGE and _leads_to(x, lambda f: _folds_row(f, x.shape, last), Map | View)


def _is_piece(v: Value) -> bool:
    """Whether a value keeps axes from becoming one: pieces, or elements at indices."""
    return isinstance(v.primitive, Concatenate | UpdateSlice | GatherND)


def _folds_row(v: Value, shape: Shape, last: int) -> bool:
    """Whether a value folds the last axis alone of an array of some shape."""
    p = v.primitive
    return isinstance(p, Reduce) and v.args[0].shape == shape and tuple(p.axes) == (last,)


def _leads_to(
    x: Value, what: Callable[[Value], bool], through: type[Primitive] | UnionType
) -> bool:
    """Whether some kinds of primitives lead from a value to one that is wanted."""
    stack, seen = [x], {x}
    while stack and len(seen) < LOOK:
        v = stack.pop()
        if what(v):
            return True
        if isinstance(v.primitive, through):
            new = [a for a in v.args if a not in seen and a.size > 1]
            seen.update(new)
            stack += new
    return False
