"""Products of few rows and columns that sum over many terms, as many products of some terms each.

A library gives each tile of a result to one block of a GPU: where there are few tiles, most of the
GPU would wait. Gradients of small matrices over all rows of a batch, or all steps of a network, are
such products. Parts of the sum are a stack of products, which are added up afterwards.

References
----------
- M. Osama et al., "Stream-K: work-centric parallel decomposition for dense matrix-matrix
  multiplication on the GPU", PPoPP 2023 (and the fixed split of a sum that it begins with).
"""

from __future__ import annotations

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Matmul
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import numeric
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# Terms of a product that is divided, at least, and of each part; elements of a result, at most.
DEEP, PART, FEW = 1 << 18, 1 << 12, 1 << 10


def deep_products(program: Program, target: Target) -> Program:
    """Return the program with products that sum over many terms as stacks of them, on a GPU."""
    if not isinstance(target, GpuTarget) or not any(_deep(v) for v in program.values):
        return program

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        return _divided(b, *args) if _deep(v) else renewed(b, v, args)

    return rebuild(program, rule)


def _deep(v: Value) -> bool:
    if v.primitive != Matmul() or any(a.ndim != 2 for a in v.args) or not numeric(v.dtype):
        return False
    return v.dtype.kind == "f" and v.size <= FEW and v.args[0].shape[1] >= DEEP


def _divided(b: Builder, left: Value, right: Value) -> Value:
    """Return the product, parts of whose sum are a stack; what is over is a product by itself."""
    (m, depth), n = left.shape, right.shape[1]
    count, rest = divmod(depth, PART)
    lefts = b.view(left, 0, (PART, depth, 1), (count, m, PART))
    rights = b.view(right, 0, (PART * n, n, 1), (count, PART, n))
    total = b.reduce("add", b.matmul(lefts, rights), (0,))
    if not rest:
        return total
    whole = depth - rest
    last = b.matmul(b.slice(left, 1, whole, depth), b.slice(right, 0, whole, depth))
    return b.map("add", total, last)
