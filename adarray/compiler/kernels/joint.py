"""Which loops of a row the outer loop may run over, too: those that all nests have in common."""

from __future__ import annotations

from collections.abc import Set

from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import Concatenate, Constant, Map, UpdateSlice, View
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref, covers


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
        moves = _moves(node, c)  # a piece has other indices than the whole
        for ref in node.args:
            if ref.node in own and (moves or not _alike(node, ref, c)):
                return False
        if folds or node in local or any(ref.node in own for ref in node.args):
            own.add(node)
    return True


def _moves(node: KernelNode, c: int) -> bool:
    """Whether a node has pieces that begin or end somewhere along the axis of a loop."""
    if node.classes is None or c not in node.classes:
        return isinstance(node.operation, (UpdateSlice, Concatenate))
    axis = node.classes.index(c)
    match node.operation:
        case Concatenate() as p:
            return p.axis == axis
        case UpdateSlice():
            return not covers(node, axis)
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


def flattens(
    order: list[KernelNode], roots: list[KernelNode], classes: list[int], extents: list[int]
) -> bool:
    """Whether loops can be one in a nest of `roots`, in which these are stored or folded.

    They are if all that is folded over one of them is folded over all, and arrays that have all of
    them have them side by side.
    """
    if any(not isinstance(n.operation, Map | Folded | View | Constant) for n in order):
        return False
    for node in roots:
        if node.classes is None or not set(classes) <= set(node.classes):
            return False
        axes = [node.classes.index(c) for c in classes]
        if len({a in node.folded for a in axes}) > 1 or any(
            node.shape[a] != extents[c] for a, c in zip(axes, classes, strict=True)
        ):
            return False
    return all(_side_by_side(n, classes, extents) for n in order if n.classes is not None)


def _side_by_side(node: KernelNode, classes: list[int], extents: list[int]) -> bool:
    """Whether what a node reads of memory along all classes lies side by side, in their order."""
    own = node.classes or ()
    axes = [own.index(c) for c in classes if c in own]
    if len(axes) < len(classes):
        return True
    for ref in node.args:
        coefs = {} if ref.at is None else dict(ref.at.terms)
        steps = [coefs.get(a, 0) for a in axes]
        inner = [s * extents[c] for s, c in zip(steps[1:], classes[1:], strict=True)]
        if all(steps) and steps[:-1] != inner:
            return False
    return True
