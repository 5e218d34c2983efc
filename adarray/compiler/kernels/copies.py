"""Copies of what blocks of rows read across: rows of a block side by side.

Where rows are the vector loop, elements of an array in C order lie far apart along it. If
other loops read them again and again, they are copied first, once for each block.

References
----------
- M. S. Lam, E. E. Rothberg, M. E. Wolf, "The cache performance and optimizations of blocked
  algorithms", ASPLOS 1991.
"""

from __future__ import annotations

import math

from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import View
from adarray.compiler.ir.program import Value
from adarray.compiler.kernels.nodes import KernelNode, Ref, ValueMemory

# Readings of an element that are worth a copy, and what a copy counts as cost, so that it
# is kept (see `lower_stages`).
READINGS, COST = 4, 8
# Elements of a row that are copied at most.
WIDTH = 64
Place = tuple[Value, int, tuple[tuple[int, int], ...]]


def with_copies(order: list[KernelNode], outer: int, extents: list[int]) -> list[KernelNode]:
    """Return the nodes of a kernel in blocks of rows, with copies of what they read across.

    Parameters
    ----------
    order : list of KernelNode
        Operands first; what they read is changed in place.
    outer : int
        Class of the rows.
    extents : list of int
        Of each class.
    """
    readings: dict[Place, int] = {}
    for node in order:
        for ref in node.args:
            place = _place(node, ref, outer)
            if place is not None:
                loops = {c for c in node.classes or () if c >= 0}
                again = loops.difference(c for c, _ in place[2])
                readings[place] = readings.get(place, 0) + math.prod(extents[c] for c in again)
    copies: dict[Place, KernelNode] = {}
    nodes: list[KernelNode] = []
    for node in order:
        for k, ref in enumerate(node.args):
            place = _place(node, ref, outer)
            if place is None or readings[place] < READINGS:
                continue
            if math.prod(extents[c] for c, _ in place[2] if c != outer) > WIDTH:
                continue
            if place not in copies:
                assert ref.memory is not None
                copies[place] = _copy(ref.memory, place, extents)
                nodes.append(copies[place])
            node.args[k] = _reference(node, copies[place])
        nodes.append(node)
    return nodes


def _place(node: KernelNode, ref: Ref, outer: int) -> Place | None:
    """Return which elements are read, by the loops over them, if that is across the rows."""
    if ref.memory is None or ref.at is None or node.classes is None:
        return None
    if any(a >= len(node.classes) for a, _ in ref.at.terms):
        return None
    terms = tuple(sorted((node.classes[a], coef) for a, coef in ref.at.terms))
    loops = [c for c, _ in terms]
    if min(loops, default=-1) < 0 or len(set(loops)) < len(loops):
        return None
    if dict(terms).get(outer, 1) == 1 or len(terms) < 2:
        return None
    return ref.memory.value, ref.at.const, terms


def _copy(memory: ValueMemory, place: Place, extents: list[int]) -> KernelNode:
    _, const, terms = place
    root = memory.value
    shape = tuple(extents[c] for c, _ in terms)
    view = View(const, tuple(coef for _, coef in terms))
    value = Value(view, (root,), shape, root.dtype, root.origin)
    node = KernelNode(value, tuple(c for c, _ in terms))
    at = AffineIndex(const, tuple((k, coef) for k, (_, coef) in enumerate(terms)))
    node.args = [Ref(None, memory, None, at)]
    node.cost = COST
    return node


def _reference(node: KernelNode, copy: KernelNode) -> Ref:
    """Return how `node` reads a copy."""
    assert node.classes is not None
    assert copy.classes is not None
    maps = tuple(AffineIndex(0, ((node.classes.index(c), 1),)) for c in copy.classes)
    return Ref(copy, None, maps, None)
