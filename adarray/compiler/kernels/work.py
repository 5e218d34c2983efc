"""How long kernels take, roughly: for the choice of a number of threads."""

from __future__ import annotations

import math

from adarray.compiler.ir.primitives import Map
from adarray.compiler.ir.target import CPU
from adarray.compiler.kernels.nodes import KernelNode, Ref
from adarray.compiler.scalars.catalogue import FUNCTIONS


def work_of(order: list[KernelNode]) -> float:
    """Return about how many nanoseconds the nodes take on one thread."""
    total = 0.0
    for node in order:
        operation = node.operation
        heavy = isinstance(operation, Map) and FUNCTIONS[operation.name].is_heavy
        per = 2.5 if heavy else 0.15
        per += sum(0.4 if _across(node, r) else 0.1 for r in node.args if r.memory is not None)
        total += math.prod(node.shape) * per
    return total


def _across(node: KernelNode, ref: Ref) -> bool:
    """Whether an array is read across its rows, since these are too short for a vector loop."""
    if ref.at is None or len(ref.at.terms) < 2:
        return False
    along = [node.shape[a] for a, step in ref.at.terms if step == 1 and a < len(node.shape)]
    return not along or max(along) < CPU.short
