"""Sums over the first axes and a short last one, on a GPU: over the first ones, and then over it.

Threads that share a row add up its elements side by side. Were neighbours to add to the same sum,
they would wait for each other, and a thread for each sum would read far apart.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Reduce
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import Target
from adarray.compiler.rewrite.rebuild import rebuild, renewed

LARGE = 1 << 18  # elements that are folded, at least
LAST = 32  # of the last axis, at most
SUMS = 1 << 13  # that are left of the first axes, at most: each block has its own


def sums_in_stages(program: Program, target: Target) -> Program:
    """Return the program with such folds in two stages."""
    if not target.along or not any(_is_staged(v) for v in program.values):
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
    if not _is_staged(v) or not isinstance(p, Reduce):
        return renewed(b, v, args)
    last = max(a for a in p.axes if v.args[0].shape[a] > 1)
    first = [a for a in p.axes if a < last]
    sums = b.reduce(p.combine, args[0], first)
    return b.reduce(p.combine, sums, [a - len(first) for a in p.axes if a >= last])
