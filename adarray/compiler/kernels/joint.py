"""Which loops of a row the outer loop may run over, too: those that all nests have in common."""

from __future__ import annotations

from collections.abc import Set

from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import Concatenate, UpdateSlice
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref


def joins(order: list[KernelNode], local: Set[KernelNode], c: int) -> bool:
    """Whether the iterations of a loop that all nests have need nothing of each other.

    What they fold, or have in local memory, is known in one of them alone. All else is computed
    again wherever it is read, be it the piece of a concatenation or a neighbour.
    """
    own: set[KernelNode] = set()  # those that an iteration cannot compute for another one
    for node in order:
        folds = isinstance(node.operation, Folded) and node.classes is not None
        if folds and node.total == (c in node.result):
            return False  # a total is one for all iterations, and others have one in each
        chooses = isinstance(node.operation, (UpdateSlice, Concatenate))
        for ref in node.args:
            if ref.node in own and (chooses or not _alike(node, ref, c)):
                return False
        if folds or node in local or any(ref.node in own for ref in node.args):
            own.add(node)
    return True


def _alike(node: KernelNode, ref: Ref, c: int) -> bool:
    """Whether a node reads another one in the same iteration of a loop."""
    if node.classes is None or ref.node is None or ref.maps is None:
        return False
    if c not in ref.node.result:
        return True
    m = ref.maps[ref.node.result.index(c)]
    return c in node.classes and m == AffineIndex(0, ((node.classes.index(c), 1),))
