"""Where regions and pieces begin and end along a vector loop."""

from __future__ import annotations

from adarray.compiler.ir.primitives import Concatenate, UpdateSlice
from adarray.compiler.kernels.nodes import Folded, KernelNode, covers
from adarray.compiler.kernels.scope import Affine
from adarray.compiler.kernels.values import Index, Values

# More parts than that are not worth their code.
PARTS = 8


def borders(
    roots: list[tuple[KernelNode, Index]], name: str, extent: int, values: Values
) -> list[int]:
    """Return the sorted values of index `name` where updates or concatenations change operands.

    None at all where there are too many: then conditions are evaluated element by element.
    """
    places: set[int] = set()
    seen: set[tuple[KernelNode, Index]] = set()
    stack = list(roots)
    while stack:
        node, index = stack.pop()
        if (node, index) in seen:
            continue
        seen.add((node, index))
        _own(node, index, name, places)
        for ref in node.args:
            if ref.node is not None and ref.node not in values.done:
                below = ref.node
                if any(a >= len(index) for m in ref.maps or () for a, _ in m.terms):
                    continue
                seen_at = Values.seen(ref, index)
                if not isinstance(below.operation, Folded):
                    stack.append((below, seen_at))
    inside = sorted(p for p in places if 0 < p < extent)
    return inside if len(inside) < PARTS else []


def _own(node: KernelNode, index: Index, name: str, places: set[int]) -> None:
    """Add the borders of a node that chooses among its operands."""
    match node.operation:
        case UpdateSlice():
            for axis, (at, region) in enumerate(zip(index, node.regions, strict=True)):
                if not covers(node, axis):
                    for border in region:
                        _add(at, border, name, places)
        case Concatenate() as p:
            for start, _ in node.regions[1:]:
                _add(index[p.axis], start, name, places)


def _add(at: Affine, border: int, name: str, places: set[int]) -> None:
    """Add where an index that moves with `name` alone reaches a border."""
    if len(at.terms) != 1 or at.terms[0][0] != name:
        return
    coef = at.terms[0][1]
    if coef == 1:
        places.add(border - at.const)
    elif coef == -1:
        places.add(at.const - border + 1)
