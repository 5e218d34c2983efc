"""Which loops of a row the outer loop may run over, too: those that all nests have in common."""

from __future__ import annotations

from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import Concatenate, UpdateSlice
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref


def joins(order: list[KernelNode], c: int) -> bool:
    """Whether the iterations of a loop that all nests have need nothing of each other."""
    for node in order:
        if isinstance(node.operation, (UpdateSlice, Concatenate)):
            return False
        if isinstance(node.operation, Folded) and node.classes is not None:
            # A total is one number; others have a result for each iteration.
            inside = max(node.result, default=-1) < 0 if node.total else c in node.result
            if not inside:
                return False
        for ref in node.args:
            below = None if ref.node is None else ref.node.classes
            if below is not None and c in below and not _alike(node, ref, c):
                return False
    return True


def _alike(node: KernelNode, ref: Ref, c: int) -> bool:
    """Whether a node reads another one in the same iteration of a loop."""
    if node.classes is None or ref.node is None or ref.maps is None:
        return False
    if c not in ref.node.result:
        return True
    m = ref.maps[ref.node.result.index(c)]
    return c in node.classes and m == AffineIndex(0, ((node.classes.index(c), 1),))
