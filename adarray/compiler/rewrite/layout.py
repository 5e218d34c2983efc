"""Layout propagation: values are computed where they are few, and read where they lie.

Broadcasts move behind elementwise maps, so that equal numbers are computed once;
transposes and reshapes that all operands of a map share move behind it, so that memory is
read in order and products take transposes as flags; picks of a few elements move in front
of maps, so that the rest of the big array need not be computed for them, nor stored.

References
----------
- P. S. Abrams, "An APL machine", PhD thesis, Stanford University, 1970 (reads by strides in place
  of copies, and selections before arithmetic).
"""

from __future__ import annotations

import math
from collections import Counter

from adarray.compiler.ir import views
from adarray.compiler.ir.builder import BOOL, INT, Builder, uniform
from adarray.compiler.ir.primitives import GatherND, Iota, Map, Reduce, ScatterND, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.views import Shape, StridedLayout
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses

# Maps through which a pick moves at most.
DEPTH = 12


# Axes that are indexed, indices, and the shape that these lie in.
Checked = set[tuple[Shape, tuple[Value, ...], Shape]]


def layout(program: Program) -> Program:
    """Return the program with views, gathers and scatters where they cost least."""
    count = uses(program)
    checked = _checked(program)

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        new = None
        match v.primitive:
            case Map() as p:
                new = _map(b, p, v, args)
            case Reduce() as p:
                new = _reduce(b, p, v, args[0])
            case View() as p:
                new = _view(b, p, v, args[0], count)
            case GatherND() as p:
                many = 2 if count[v.args[0]] == 1 else 16
                if isinstance(args[0].primitive, Map) and v.size * many <= args[0].size:
                    new = _gathered(b, p, v, args[0], args[1:])
            case ScatterND() as p:
                new = _one_hot(b, p, v, args, checked)
        return renewed(b, v, args) if new is None else new

    return rebuild(program, rule)


# -- maps --------------------------------------------------------------------------------------


def _map(b: Builder, p: Map, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Compute a map on as few elements as there are different ones, in their own order."""
    chosen = _chosen(b, p, v, args)
    if chosen is not None:
        return chosen
    if not any(isinstance(a.primitive, View) for a in args):
        return None
    if any(map(_spread, args)):
        narrow = _without_lead(b, tuple([_narrowed(b, a) for a in args]))
        if any(a.shape == v.shape for a in narrow):
            pulled = _pulled(b, p, v, narrow)
            if pulled is not None:
                return pulled
        return b.broadcast(b.apply(p.name, narrow, v.dtype), v.shape)
    return _pulled(b, p, v, args)


# A value counts as narrow if it has this many times fewer elements than what it meets.
NARROW = 4


def _chosen(b: Builder, p: Map, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Choose between two narrow results rather than compute with a chosen operand.

    ``f(where(c, x, y), z)`` is ``where(c, f(x, z), f(y, z))``, which computes nothing per
    element if x, y and z have one number a row, say; 1 and 0 as numbers are such a choice.
    """
    choice = None
    for a in args:
        if a.size * NARROW <= v.size:
            continue
        if _spread(a) and a.args[0].size * NARROW <= v.size:
            continue
        if (choice is not None and a is not choice) or _choices(b, a, v.size) is None:
            return None
        choice = a
    if choice is None or choice.shape != v.shape:
        return None
    name = p.name
    if name == "where" and args[0] is choice:
        return None
    choices = _choices(b, choice, v.size)
    assert choices is not None
    chosen = []
    for x in choices[1:]:
        parts = tuple([x if a is choice else _narrowed(b, a) for a in args])
        chosen.append(b.apply(name, parts, v.dtype))
    return b.broadcast(b.map("where", choices[0], *chosen), v.shape)


def _choices(b: Builder, x: Value, size: int) -> tuple[Value, Value, Value] | None:
    """Return ``(condition, one, other)`` of a value that is one of two narrow ones."""
    if not isinstance(x.primitive, Map):
        return None
    if x.primitive.name == "cast" and x.args[0].dtype == BOOL:
        return x.args[0], b.const(1, x.dtype), b.const(0, x.dtype)
    if x.primitive.name != "where" or x.args[0].shape != x.shape:
        return None
    condition, one, other = x.args
    if max(one.size, other.size) * NARROW > size:
        return None
    return condition, one, other


def _spread(x: Value) -> bool:
    """Whether a value is a view that repeats elements along some axis."""
    p = x.primitive
    return isinstance(p, View) and any(
        s == 0 and n > 1 for s, n in zip(p.strides, x.shape, strict=True)
    )


def _narrowed(b: Builder, x: Value) -> Value:
    """Return `x` with length 1 along the axes on which its elements repeat."""
    if not isinstance(x.primitive, View) or not _spread(x):
        return x
    strides = x.primitive.strides
    shape = tuple(1 if s == 0 else n for s, n in zip(strides, x.shape, strict=True))
    return b.view(x.args[0], x.primitive.offset, strides, shape)


def _without_lead(b: Builder, args: tuple[Value, ...]) -> tuple[Value, ...]:
    """Return operands without leading axes that have length 1 in all of them."""
    ndim = max(a.ndim for a in args)
    spare = 0
    while spare < ndim and all(
        a.ndim < ndim - spare or a.shape[a.ndim - ndim + spare] == 1 for a in args
    ):
        spare += 1
    if not spare:
        return args
    return tuple(
        [b.reshape(a, a.shape[a.ndim - ndim + spare :]) if a.ndim > ndim - spare else a
         for a in args]
    )  # fmt: skip


def _pulled(b: Builder, p: Map, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Move a transpose or reshape that all large operands share behind the map.

    Behind a transpose, narrow operands are transposed in its place.
    """
    shared: tuple[int, Shape, Shape, Shape] | None = None
    narrow = False
    for a in args:
        if a.size == 1:
            continue
        if not isinstance(a.primitive, View) or a.shape != v.shape or _spread(a):
            narrow |= a.size * NARROW <= v.size
            if a.size * NARROW <= v.size:
                continue
            return None
        mine = (a.primitive.offset, a.primitive.strides, a.shape, a.args[0].shape)
        if shared is None:
            shared = mine
        elif shared != mine:
            return None
    if shared is None:
        return None
    offset, strides, shape, of = shared
    if offset or not _permutes(strides, shape) or math.prod(of) != v.size:
        return None
    axes = _axes_of(strides, shape, of) if narrow else []
    if axes is None:
        return None
    inner = [
        b.reshape(a, ())
        if a.size == 1
        else a.args[0]
        if a.shape == shape
        else _transposed(b, a, axes)
        for a in args
    ]
    return b.view(b.apply(p.name, tuple(inner), v.dtype), 0, strides, shape)


def _axes_of(strides: Shape, shape: Shape, of: Shape) -> list[int] | None:
    """Return for each axis of an array which axis of a transpose shows it; None if it is none."""
    if len(of) != len(shape):
        return None
    shown = {s: i for i, (s, n) in enumerate(zip(strides, shape, strict=True)) if n != 1}
    single = [i for i, n in enumerate(shape) if n == 1]
    axes = []
    for step, n in zip(c_strides(of), of, strict=True):
        i = single.pop() if n == 1 and single else shown.get(step, -1)
        if i < 0 or shape[i] != n:
            return None
        axes.append(i)
    return axes


def _transposed(b: Builder, a: Value, axes: list[int]) -> Value:
    """Return a narrow operand of a map with its axes in another order."""
    whole = b.reshape(a, (1,) * (len(axes) - a.ndim) + a.shape)
    return b.transpose(whole, axes)


def _permutes(strides: Shape, shape: Shape) -> bool:
    """Whether a view shows every element of its operand once, axes in some order."""
    step = 1
    for s, n in sorted(p for p in zip(strides, shape, strict=True) if p[1] != 1):
        if s != step:
            return False
        step *= n
    return True


# -- folds and views ---------------------------------------------------------------------------


def _reduce(b: Builder, p: Reduce, v: Value, x: Value) -> Value | None:
    """Fold what lies in memory rather than a reordered view of it."""
    if not isinstance(x.primitive, View) or x.primitive.offset or x.size != x.args[0].size:
        return None
    strides, axes = x.primitive.strides, p.axes
    if not _permutes(strides, x.shape):
        return None
    source = x.args[0]
    if len(axes) == x.ndim:
        return b.reduce(p.combine, source, range(source.ndim))
    # Axis by axis in the order of memory; each must be an axis of the source.
    order = sorted((i for i in range(x.ndim) if x.shape[i] != 1), key=lambda i: -strides[i])
    of = [k for k, n in enumerate(source.shape) if n != 1]
    if [source.shape[k] for k in of] != [x.shape[i] for i in order]:
        return None
    axis_of = dict(zip(order, of, strict=True))
    folded = [axis_of[i] for i in axes if i in axis_of]
    r = b.reduce(p.combine, source, folded)
    remaining = [k for k in of if k not in folded]
    r = b.reshape(r, tuple(source.shape[k] for k in remaining))
    wanted = [axis_of[i] for i in range(x.ndim) if i in axis_of and axis_of[i] not in folded]
    return b.reshape(b.transpose(r, [remaining.index(k) for k in wanted]), v.shape)


def _view(b: Builder, p: View, v: Value, x: Value, count: Counter[Value]) -> Value | None:
    """Move a view of a small part in front of the map that it shows."""
    if (
        not isinstance(x.primitive, Map)
        or not v.size
        or v.size * 8 > x.size
        or count[v.args[0]] > 1
    ):
        return None
    view = StridedLayout(p.offset, p.strides, v.shape)
    box = views.region(view, x.shape)
    if box is None:
        return None
    starts, steps, axes = box
    return _viewed(b, x.primitive, x, starts, steps, axes, v.shape)


def _viewed(
    b: Builder, p: Map, x: Value, starts: Shape, steps: Shape, axes: Shape, shape: Shape
) -> Value:
    """Return a box of a map, computed of boxes of its operands."""
    parts = []
    for a in x.args:
        lead = x.ndim - a.ndim
        strides = c_strides(a.shape)
        offset, moves = 0, []
        for k, n in enumerate(a.shape):
            offset += starts[k + lead] * strides[k] if n != 1 else 0
        for k in axes:
            whole = k >= lead and a.shape[k - lead] != 1
            moves.append(steps[k] * strides[k - lead] if whole else 0)
        lengths = tuple(n if s else 1 for n, s in zip(shape, moves, strict=True))
        parts.append(b.view(a, offset, tuple(moves), lengths) if a.ndim else a)
    return b.broadcast(b.apply(p.name, tuple(parts), x.dtype), shape)


# -- gathers and scatters ----------------------------------------------------------------------


def _gathered(b: Builder, p: GatherND, v: Value, x: Value, indices: tuple[Value, ...]) -> Value:
    """Return a gather of a map, as maps of gathers down to what is no map."""
    axes, position = p.axes, p.position
    done: dict[Value, Value] = {}

    def visit(x: Value, ndim: int, depth: int) -> Value:
        if x not in done:
            if (
                isinstance(x.primitive, Map)
                and depth
                and x.ndim == ndim
                and any(a.ndim for a in x.args)
            ):
                parts = [visit(a, ndim, depth - 1) if a.ndim else a for a in x.args]
                done[x] = b.apply(x.primitive.name, tuple(parts), x.dtype)
            else:
                done[x] = _picked(b, x, indices, axes, position, ndim)
        return done[x]

    return b.broadcast(visit(x, x.ndim, DEPTH), v.shape)


def _picked(
    b: Builder, x: Value, indices: tuple[Value, ...], axes: Shape, position: int, ndim: int
) -> Value:
    """Return a gather of an operand that may broadcast to `ndim` axes."""
    shape = (1,) * (ndim - x.ndim) + x.shape
    at = [(k, i) for k, i in zip(axes, indices, strict=True) if shape[k] != 1]
    rest = [k for k in range(ndim) if k not in axes]
    if not at:
        lengths = [shape[k] for k in rest]
        return b.reshape(x, (*lengths[:position], *(1,) * indices[0].ndim, *lengths[position:]))
    remaining = [k for k in range(ndim) if k in rest or shape[k] != 1]
    x = b.reshape(x, tuple(shape[k] for k in remaining))
    return b.gather(x, [i for _, i in at], [remaining.index(k) for k, _ in at], position)


def _checked(program: Program) -> Checked:
    """Return what gathers check of indices: that these lie in these axes of such a shape."""
    return {
        (v.primitive.axes, v.args[1:], v.args[0].shape)
        for v in program.values
        if isinstance(v.primitive, GatherND)
    }


def _one_hot(
    b: Builder,
    p: ScatterND,
    v: Value,
    args: tuple[Value, ...],
    checked: Checked,
) -> Value | None:
    """Write one element a row of equal numbers by comparing column numbers.

    That is a map, in line with others: the whole array need not be made for the writes.
    Of the indices all but one count the rows, so that no element is written twice. Whether
    the other one lies in range is checked by the gather of the same elements, of which
    this is the derivative; without one, by a gather of the column numbers.
    """
    base, value, *indices = args
    axes, c = p.axes, uniform(base)
    if c is None or len(axes) != base.ndim or indices[0].ndim != base.ndim - 1:
        return None
    free = [k for k, i in enumerate(indices) if not isinstance(i.primitive, Iota)]
    if len(free) > 1:
        return None
    at = free[0] if free else len(indices) - 1
    counted = [i.primitive for k, i in enumerate(indices) if k != at]
    rows = [i.axis for i in counted if isinstance(i, Iota)]
    shape = indices[0].shape
    order = [axes[k] for k in range(len(axes)) if k != at]
    if sorted(rows) != list(range(len(shape))) or any(
        shape[r] != base.shape[a] for r, a in zip(rows, order, strict=True)
    ):
        return None
    column, n = axes[at], base.shape[axes[at]]
    index = indices[at]
    if (axes, v.args[2:], base.shape) in checked:
        below = b.map("less", index, b.const(0, INT))
        wrapped = b.map("where", below, b.map("add", index, b.const(n, INT)), index)
    else:
        wrapped = b.gather(b.iota((n,), 0), [index], (0,), 0)
    # Axes of the index in the order of the axes of the base.
    to = [rows[order.index(a)] for a in sorted(order)]
    wide = tuple(1 if a == column else k for a, k in enumerate(base.shape))
    numbers = b.iota(tuple(n if a == column else 1 for a in range(base.ndim)), column)
    hit = b.map("equal", numbers, b.reshape(b.transpose(wrapped, to), wide))
    new = b.reshape(b.transpose(value, to), wide)
    if p.add:
        new = b.map("add", c, new)
    return b.map("where", hit, new, c)
