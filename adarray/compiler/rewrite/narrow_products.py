"""Products of many short rows with a small matrix, which loops compute on a GPU.

A library takes several times as long for them as their memory does, and stores what the next
operation reads. As loops they belong to the kernel of their neighbours: where each row of the state
of a recurrent network depends on itself alone, to one kernel for all steps.

References
----------
- G. Diamos et al., "Persistent RNNs: stashing recurrent weights on-chip", ICML 2016.
"""

from __future__ import annotations

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Matmul
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import numeric
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# Rows, at least, and elements of the matrix, at most.
LEAST_ROWS, LARGEST = 4096, 256
# Such products of a program, at most: each is a loop in a text that is to be compiled.
MOST = 64


def narrow_products(program: Program, target: Target) -> Program:
    """Return the program with products of short rows as loops, on a GPU."""
    if not isinstance(target, GpuTarget):
        return program
    narrow = {v for v in program.values if _narrow(v)}
    if not 0 < len(narrow) <= MOST:
        return program

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v in narrow:
            return b.make(Matmul(loops=True), args, v.shape, v.dtype)
        return renewed(b, v, args)

    return rebuild(program, rule)


def _narrow(v: Value) -> bool:
    if v.primitive != Matmul() or any(a.ndim != 2 for a in v.args) or not numeric(v.dtype):
        return False
    rows, matrix = v.args
    return rows.shape[0] >= LEAST_ROWS and 0 < matrix.size <= LARGEST
