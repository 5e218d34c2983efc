"""Which loop over rows is the vector loop of a kernel."""

from __future__ import annotations

from adarray.compiler.fusion.fuse import LONG_ROW
from adarray.compiler.ir.target import CPU, Target
from adarray.compiler.kernels.nodes import KernelNode

# Rows from which on they are a GPU's vector loop because they lie side by side in memory.
SIDE_BY_SIDE = 1 << 19


def in_blocks(
    order: list[KernelNode], outer: int, extents: list[int], target: Target = CPU
) -> bool:
    """Whether rows are the vector loop: they are short, or lie side by side in memory."""
    inner: dict[int, int] = {}
    for node in order:
        for c in node.classes or ():
            if c >= 0 and c != outer:
                inner[c] = 0
    if not inner:
        return True
    if max(extents[c] for c in inner) < target.short:
        return True
    sized = any(n.total and any(c >= 0 for c in n.result) for n in order)
    if target.along and extents[outer] < (LONG_ROW if sized else SIDE_BY_SIDE):
        return False  # few blocks: few threads
    across = 0
    for node in order:
        for ref in node.args:
            if ref.at is None or node.classes is None:
                continue
            moved = [(a, coef) for a, coef in ref.at.terms if a < len(node.classes)]
            if not any(node.classes[a] == outer for a, _ in moved):
                continue  # the same for all rows: it stays in a cache either way
            for a, coef in moved:
                if coef == 1:
                    c = node.classes[a]
                    if c == outer:
                        across += len(ref.at.terms) > 1
                    elif c >= 0:
                        inner[c] += 1
    return across > max(inner.values())
