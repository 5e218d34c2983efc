"""Stencils, gathers and folds of transposed arrays, in the order in which these lie in memory.

Steps of a stencil along the first two axes of ``np.swapaxes(x, 0, 2)`` are steps along the last two
of ``x``: no array needs to be transposed for them, nor read across its rows. Maps of whole
transposes are computed so by `adarray.compiler.rewrite.layout`; here go slices and pieces of them.

References
----------
- P. S. Abrams, "An APL machine", PhD thesis, Stanford University, 1970 (arithmetic in the order of
  memory, transposes behind it).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import (
    Concatenate,
    GatherND,
    Map,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import Target
from adarray.compiler.ir.views import Shape
from adarray.compiler.rewrite.layout import NARROW
from adarray.compiler.rewrite.rebuild import keep, rebuild

Order = tuple[int, ...]
# The order in which arrays of a shape were computed last.
Usual = dict[Shape, Order]


def memory_order(program: Program, target: Target) -> Program:
    """Return the program with pieces of transposed arrays computed in the order of memory."""
    if not target.along or not any(_is_transposed(v) for v in program.values):
        return program

    usual: Usual = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        new = _in_order(b, v, args, usual)
        if new is not None:
            return new
        if isinstance(v.primitive, View) and args != v.args:
            return b.view(args[0], v.primitive.offset, v.primitive.strides, v.shape)
        return keep(b, v, args)

    return rebuild(program, rule)


def _is_transposed(v: Value) -> bool:
    order = _order_of(v)
    return order is not None and list(order) != sorted(order)


def _in_order(b: Builder, v: Value, args: tuple[Value, ...], usual: Usual) -> Value | None:
    """Return a value computed in the order in which its operands lie; None to leave it."""
    match v.primitive:
        case Map() as p:
            order = _shared(v.shape, args, usual)
            if order is None:
                return None
            inner = [_ordered(b, a, order) if a.ndim else a for a in args]
            return _back(b, b.apply(p.name, tuple(inner), v.dtype), order)
        case Concatenate() as p:
            order = _shared(v.shape, args, usual)
            if order is None:
                return None
            pieces = [_ordered(b, a, order) for a in args]
            return _back(b, b.concatenate(tuple(pieces), order.index(p.axis)), order)
        case UpdateSlice() as p:
            order = _shared(v.shape, args, usual)
            if order is None:
                return None
            base, piece = (_ordered(b, a, order) for a in args)
            starts, steps = (tuple(n[k] for k in order) for n in (p.starts, p.steps))
            return _back(b, b.update_slice(base, piece, starts, steps, p.add), order)
        case GatherND() as p if _takes(p.axes, p.position, args[1:]):
            order = _shared(args[0].shape, args[:1], usual)
            if order is None:
                return None
            axis = order.index(p.position)
            elements = b.gather(_ordered(b, args[0], order), args[1:], (axis,), axis)
            return _back(b, elements, order)
        case ScatterND() as p if _takes(p.axes, p.position, args[2:]):
            order = _shared(v.shape, args[:2], usual)
            if order is None:
                return None
            axis = order.index(p.position)
            base, piece = (_ordered(b, a, order) for a in args[:2])
            return _back(b, b.scatter(base, piece, args[2:], (axis,), axis, p.add), order)
        case Reduce() as p:
            order = _shared(args[0].shape, args, usual)
            return None if order is None else _reduced(b, p, args[0], order)
        case _:
            return None


def _takes(axes: Order, position: int, indices: tuple[Value, ...]) -> bool:
    """Whether elements at indices of one axis stand where the axis was."""
    return axes == (position,) and indices[0].ndim == 1


def _reduced(b: Builder, p: Reduce, x: Value, order: Order) -> Value:
    """Fold what lies in memory, and give its axes the order of the result."""
    axes = [order.index(a) for a in p.axes]
    folded = b.reduce(p.combine, _ordered(b, x, order), sorted(axes))
    unfolded = [a for a in order if a not in p.axes]
    return b.transpose(folded, [unfolded.index(a) for a in sorted(unfolded)])


# -- orders of axes ----------------------------------------------------------------------------


def _order_of(a: Value) -> Order | None:
    """Return the axes of a view longer than 1, the one farthest apart in memory first."""
    p = a.primitive
    if not isinstance(p, View):
        return None
    long = [k for k, n in enumerate(a.shape) if n != 1]
    if any(p.strides[k] == 0 for k in long):
        return None
    return tuple(sorted(long, key=lambda k: (-abs(p.strides[k]), k)))


def _shared(shape: Shape, args: Iterable[Value], usual: Usual) -> Order | None:
    """Return the order of axes that all large operands lie in; None if it is that of the axes.

    Operands that are small beside the result, or repeat elements, may lie in any. Where pieces do
    not tell, a line in an array of zeros for one, it is what arrays of the shape usually have.
    """
    size = math.prod(shape)
    orders = []
    for a in args:
        order = _order_of(a) if a.ndim == len(shape) else None
        if order is not None:  # what is added to one place may have any length there
            orders.append(tuple(k for k in order if shape[k] != 1))
        elif a.size * NARROW > size and not _repeats(a):
            usual.pop(shape, None)
            return None
    best = max(orders, key=len, default=())
    missing = [k for k, n in enumerate(shape) if n != 1 and k not in best]
    if missing:
        best = usual.get(shape, ())
    elif list(best) == sorted(best):
        usual.pop(shape, None)
    if list(best) == sorted(best) or not orders:
        return None
    for order in orders:
        place = [best.index(k) for k in order]
        if place != sorted(place):
            return None
    usual[shape] = best
    return (*(k for k, n in enumerate(shape) if n == 1), *best)


def _repeats(a: Value) -> bool:
    """Whether a value is a view that shows elements of a few several times."""
    return isinstance(a.primitive, View) and a.args[0].size * NARROW <= a.size


def _ordered(b: Builder, a: Value, order: Order) -> Value:
    """Return an operand with its axes, aligned with those of the result, in an order."""
    return b.transpose(b.reshape(a, (1,) * (len(order) - a.ndim) + a.shape), order)


def _back(b: Builder, v: Value, order: Order) -> Value:
    return b.transpose(v, [order.index(k) for k in range(len(order))])
