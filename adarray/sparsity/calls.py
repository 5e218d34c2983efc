"""The dependence of operations that are no primitives, where their records say something of it.

Those are operations on complex numbers, which the compiler leaves to NumPy, linear algebra on
stacks, and what works along axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from adarray.base.op import Gather, Layout, Op, Reduction
from adarray.batching.rules import Coupling
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.program import Value
from adarray.core.inplace import WRITE
from adarray.ops.common import normalized_axes
from adarray.sparsity.known import Known
from adarray.sparsity.terms import Term, Terms, gathered, reduced, slotted, union

Of = Callable[[Value], Terms]


def of_record(
    p: PythonCall, v: Value, shapes: list[Any], of: Of, known: Known, n: int
) -> list[Terms] | None:
    """Return the dependence of the results of a call; None where the record says nothing.

    Parameters
    ----------
    p : PythonCall
    v : Value
        What it makes.
    shapes : list of (tuple of int, dtype)
        Of the results.
    of : callable
        Returns the dependence of an operand.
    known : Known
    n : int
        Number of input elements.
    """
    if v.origin is None or v.origin.op is None:
        return None
    op: Op = v.origin.op
    operands = [v.args[x.index] if isinstance(x, Slot) else x for x in p.args]
    kwargs = p.kwargs
    if _holds_slots(list(kwargs.values())) or not all(
        isinstance(x, Value) or not _holds_slots(x) for x in operands
    ):
        return None
    moving = [of(x) if isinstance(x, Value) else () for x in operands]
    results = []
    for shape, dtype in shapes:
        terms = _result(op, operands, moving, kwargs, tuple(shape), known, n)
        if terms is None:
            return None
        results.append(terms if np.dtype(dtype).kind in "fc" else ())
    return results


def _holds_slots(x: Any) -> bool:
    if isinstance(x, Slot):
        return True
    if isinstance(x, (tuple, list)):
        return any(map(_holds_slots, x))
    if isinstance(x, slice):
        return any(map(_holds_slots, (x.start, x.stop, x.step)))
    return False


def _result(
    op: Op,
    operands: list[Any],
    moving: list[Terms],
    kwargs: Mapping[str, Any],
    shape: tuple[int, ...],
    known: Known,
    n: int,
) -> Terms | None:
    """Return the dependence of one result."""
    if op is WRITE:
        return _written(moving, kwargs, shape, n)
    if op.variadic:
        return None
    if op.pointwise:
        return union(moving, shape, n)
    if isinstance(op.batch, Coupling) and op.batch.core:
        return _stacked(operands, moving, op.batch.core, shape, n)
    if isinstance(op.batch, Coupling) and op.batch.pairs is not None:
        shapes = [x.shape if isinstance(x, Value) else np.shape(x) for x in operands]
        pairs = []
        for i, terms in enumerate(moving):
            if terms:
                out, numbers = op.batch.pairs(i, shapes, **kwargs)
                pairs += [(t.table, out, t.row.reshape(-1)[numbers]) for t in terms]
        return gathered(pairs, shape, n)
    if any(moving[1:]) or not moving[0]:
        return None
    source: Value = operands[0]
    if op.name == "conjugate" or (isinstance(op.lower, Layout) and op.lower.part):
        return moving[0]
    if isinstance(op.lower, (Layout, Gather)):
        if any(known.varies(x) for x in operands[1:] if isinstance(x, Value)):
            return None
        rest = [known.value(x) if isinstance(x, Value) else x for x in operands[1:]]
        return _moved(op, moving[0], rest, kwargs, shape)
    if isinstance(op.lower, Reduction):
        return _along(source, moving[0], kwargs.get("axis"), shape, n)
    if isinstance(op.batch, Coupling) and op.batch.along is not None:
        _, name, default = op.batch.along
        return _along(source, moving[0], kwargs.get(name, default), shape, n)
    return None


def _moved(
    op: Op, terms: Terms, rest: list[Any], kwargs: Mapping[str, Any], shape: tuple[int, ...]
) -> Terms | None:
    """Return the dependence of what changes places alone: the operation, done with numbers."""
    if "dtype" in kwargs:  # of `view` and `astype`
        return terms if terms[0].row.shape == shape else None
    rows = [np.asarray(op.evaluate(t.row, *rest, **kwargs)) for t in terms]
    if any(r.shape != shape or r.dtype != np.int32 for r in rows):
        return None
    return tuple(Term(t.table, r) for t, r in zip(terms, rows, strict=True))


def _written(
    moving: list[Terms], kwargs: Mapping[str, Any], shape: tuple[int, ...], n: int
) -> Terms | None:
    """Return the dependence of an array with a region set."""
    steps, index = kwargs["steps"], kwargs["index"]
    if any(s[0].lower.part or s[0].lower.cast for s in steps):
        return None
    numbers = np.arange(math.prod(shape), dtype=np.int64).reshape(shape)
    for step, rest, params in steps:
        numbers = step.evaluate(numbers, *rest, **params)
    key = np.unravel_index(np.asarray(numbers[index]), shape)
    base, value = moving
    return slotted([(base, None, None), (value, None, key)], shape, n)


def _along(source: Value, terms: Terms, axis: Any, shape: tuple[int, ...], n: int) -> Terms | None:
    """Return the dependence of a result on all elements along axes."""
    if not isinstance(axis, (int, tuple, type(None))) or not source.ndim:
        return None
    axes = normalized_axes(axis, source.ndim)
    folded = reduced(terms, axes, n)
    if len(shape) == source.ndim:
        keepdims_shape = tuple(1 if k in axes else m for k, m in enumerate(source.shape))
        folded = tuple(Term(t.table, t.row.reshape(keepdims_shape)) for t in folded)
    elif len(shape) != source.ndim - len(axes):
        return None
    return _broadcast(folded, shape)


def _stacked(
    operands: list[Any],
    moving: list[Terms],
    core: tuple[int, ...],
    shape: tuple[int, ...],
    n: int,
) -> Terms | None:
    """Return the dependence of a result on stacks of which members go together."""
    if len(operands) < len(core) or any(moving[len(core) :]):
        return None
    shapes = [x.shape if isinstance(x, Value) else np.shape(x) for x in operands]
    leads = [s[: max(len(s) - k, 0)] for s, k in zip(shapes, core, strict=False)]
    outer = np.broadcast_shapes(*leads)
    if shape[: len(outer)] != outer:
        return None
    parts: list[Terms] = []
    for s, lead, terms in zip(shapes, leads, moving, strict=False):
        folded = reduced(terms, tuple(range(len(lead), len(s))), n)
        full = (1,) * (len(outer) - len(lead)) + lead + (1,) * (len(shape) - len(outer))
        broadcast = _broadcast([Term(t.table, t.row.reshape(full)) for t in folded], shape)
        if broadcast is None:
            return None
        parts.append(broadcast)
    return union(parts, shape, n)


def _broadcast(terms: Iterable[Term], shape: tuple[int, ...]) -> Terms | None:
    """Return terms broadcast to a shape; None if they cannot be."""
    try:
        return tuple(Term(t.table, np.broadcast_to(t.row, shape)) for t in terms)
    except ValueError:
        return None
