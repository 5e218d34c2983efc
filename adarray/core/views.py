"""Views: results that share memory with an operand, and follow writes into it."""

from __future__ import annotations

import numpy as np

from adarray.base.aval import BATCHED, Symbolic
from adarray.base.op import Layout, Op
from adarray.base.runtime import MODE
from adarray.base.types import ArrayValue, Operands, Params
from adarray.core.trace import Extras, Handle, root_of
from adarray.device import is_device


def wrapped(
    op: Op,
    operands: Operands,
    params: Params,
    values: list[object],
    r: ArrayValue,
    cls: type[Handle],
) -> Handle:
    """Return the result as an ADArray: a view of operand 0 where memory is shared."""
    if r.__class__ is not np.ndarray:
        return cls(r)
    # What stands for a constant that a layout leaves as it is shares its memory, without a base.
    stands = isinstance(op.lower, Layout) and isinstance(r, Symbolic)
    if r.base is None and not stands and not any(r is v for v in values):
        return cls(r)
    source = operands[0]
    if isinstance(op.lower, Layout) and isinstance(source, Handle):
        memory = root_of(source)._plain
        if isinstance(r, Symbolic) and type(memory) is np.ndarray and type(r) not in BATCHED:
            # Made of a constant while recording, as by np.zeros: of the copy that stands for it.
            mode = MODE.get()
            assert mode is not None
            assert mode.recorder is not None
            memory = mode.recorder.capture(memory)
        if _overlap(r, memory):
            return view_of(source, op, operands[1:], params, r)
    if isinstance(r, Symbolic) and type(r) not in BATCHED:
        return cls(r)
    for x in operands:
        v = root_of(x)._plain if isinstance(x, Handle) else x
        if isinstance(v, np.ndarray) and np.may_share_memory(r, v):
            return cls(r.copy())
    return cls(r)


def _overlap(r: ArrayValue, memory: ArrayValue) -> bool:
    """Whether a result may lie in the memory of an operand."""
    if is_device(r):  # without a way through NumPy's protocols
        return (
            is_device(memory)
            and r.library is memory.library
            and r.library.shares(r.raw, memory.raw)
        )
    return bool(np.may_share_memory(r, memory))


def view_of(source: Handle, op: Op, rest: Operands, params: Params, value: ArrayValue) -> Handle:
    """Return a handle on `value`, which is ``op(source, *rest, **params)`` without a copy."""
    root = root_of(source)
    steps = source._x.steps if source._x is not None and source is not root else ()
    x = Extras(root, (*steps, (op, rest, params)))
    if source is not root and source._x is not None:
        x.peers = source._x.peers  # why the view is not written into
    return type(source)(value, None, x)
