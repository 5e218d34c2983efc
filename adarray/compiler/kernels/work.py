"""How long kernels take, roughly: for the choice of a number of threads."""

from __future__ import annotations

from adarray.compiler.ir.primitives import Map
from adarray.compiler.kernels.nodes import KernelNode
from adarray.compiler.scalars.catalogue import FUNCTIONS


def work_of(order: list[KernelNode]) -> float:
    """Return about how many nanoseconds the nodes take on one thread."""
    total = 0.0
    for node in order:
        if node.classes is None:
            continue
        size = 1
        for n in node.shape:
            size *= n
        operation = node.operation
        heavy = isinstance(operation, Map) and FUNCTIONS[operation.name].is_heavy
        per = 2.5 if heavy else 0.15
        total += size * (per + 0.1 * sum(r.memory is not None for r in node.args))
    return total
