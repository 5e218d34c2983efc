"""Which loops of a row the outer loop may run over, too: those that all nests have in common."""

from __future__ import annotations

from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import Concatenate, UpdateSlice
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref, covers


def joins(order: list[KernelNode], c: int) -> bool:
    """Whether the iterations of a loop that all nests have need nothing of each other."""
    for node in order:
        if _moves(node, c) and any(r.node is not None and r.node.classes for r in node.args):
            return False  # a piece has other indices than the whole
        # Totals add up all iterations; others have a result for each.
        folds = isinstance(node.operation, Folded) and node.classes is not None
        if folds and (c in node.result) == node.total:
            return False
        for ref in node.args:
            below = None if ref.node is None else ref.node.classes
            if below is not None and c in below and not _alike(node, ref, c):
                return False
    return True


def _moves(node: KernelNode, c: int) -> bool:
    """Whether a node has pieces that begin or end somewhere along the axis of a loop."""
    if node.classes is None or c not in node.classes:
        return isinstance(node.operation, (UpdateSlice, Concatenate))
    axis = node.classes.index(c)
    match node.operation:
        case Concatenate() as p:
            return p.axis == axis
        case UpdateSlice() as p:
            return not covers(node, p, axis)
        case _:
            return False


def _alike(node: KernelNode, ref: Ref, c: int) -> bool:
    """Whether a node reads another one in the same iteration of a loop."""
    if node.classes is None or ref.node is None or ref.maps is None:
        return False
    if c not in ref.node.result:
        return True
    m = ref.maps[ref.node.result.index(c)]
    return c in node.classes and m == AffineIndex(0, ((node.classes.index(c), 1),))
