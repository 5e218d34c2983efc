"""Collapsing axes: two loops that every value and array runs through as one become one.

References
----------
- C. D. Polychronopoulos, "Loop coalescing: a compiler transformation for parallel machines", ICPP
  1987.
"""

from __future__ import annotations

import itertools

from adarray.compiler.ir.domains import AffineIndex, Maps, Shape
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    GatherND,
    Iota,
    Map,
    UpdateSlice,
    View,
)
from adarray.compiler.kernels.nodes import (
    Folded,
    KernelNode,
    Operation,
    Ref,
    ValueMemory,
    covers,
)

COLLAPSIBLE: frozenset[type[Operation]] = frozenset({Map, Folded, View, Constant})
# Those that choose among operands along some of their axes; others may be collapsed.
CHOOSING: frozenset[type[Operation]] = frozenset({Concatenate, UpdateSlice, GatherND, Iota})


def collapse(
    order: list[KernelNode],
    stored: dict[KernelNode, ValueMemory],
    outer: int,
    extents: list[int],
    through: bool = False,
) -> int:
    """Merge classes in `order`, in place, as long as some can be; return the outer class.

    With `through`, values that are computed again where they are read do not stand in the way,
    nor do those that choose among operands along other axes.
    """
    count = len(extents)
    kinds = COLLAPSIBLE | CHOOSING if through else COLLAPSIBLE
    placed = _placed(order, kinds, extents) if through else []
    outer = _collapse(order, stored, outer, extents, kinds)
    for n in placed:
        n.classes = None
    del extents[count:]
    return outer


def _placed(
    order: list[KernelNode], kinds: frozenset[type[Operation]], extents: list[int]
) -> list[KernelNode]:
    """Give nodes without classes those of their readers, where all read them at their own indices.

    Axes that some reader reads elsewhere get classes of their own, which nothing else has.
    """
    wanted: dict[KernelNode, list[tuple[int, ...] | None]] = {}
    placed = []
    for n in reversed(order):
        readers = wanted.get(n, [])
        if n.classes is None and readers and type(n.operation) in kinds:
            n.classes = _common(readers, n.shape, extents)
            if n.classes is not None:
                placed.append(n)
        for r in n.args:
            if r.node is not None and r.node.classes is None:
                wanted.setdefault(r.node, []).append(_classes_of(r, n))
    return placed


# The class of an axis that is not read at the reader's index.
ELSEWHERE = -2


def _common(
    readers: list[tuple[int, ...] | None], shape: Shape, extents: list[int]
) -> tuple[int, ...] | None:
    """Return the classes that all readers agree in, and new ones in place of others."""
    classes = []
    for axis, n in enumerate(shape):
        found = {ELSEWHERE if r is None else r[axis] for r in readers}
        c = found.pop() if len(found) == 1 else ELSEWHERE
        if c == ELSEWHERE:
            c = len(extents)
            extents.append(n)
        classes.append(c)
    return tuple(classes)


def _classes_of(r: Ref, reader: KernelNode) -> tuple[int, ...] | None:
    """Return the classes of the axes of what is read, as in its reader, or `ELSEWHERE`."""
    if r.node is None or r.maps is None or reader.classes is None:
        return None
    classes = []
    for m, n in zip(r.maps, r.node.shape, strict=True):
        if n == 1:
            classes.append(-1)
            continue
        axis = m.terms[0][0] if len(m.terms) == 1 else len(reader.shape)
        own = axis < len(reader.shape) and m == AffineIndex(0, ((axis, 1),))
        whole = own and reader.shape[axis] == n
        classes.append(reader.classes[axis] if whole else ELSEWHERE)
    return tuple(classes)


def _collapse(
    order: list[KernelNode],
    stored: dict[KernelNode, ValueMemory],
    outer: int,
    extents: list[int],
    kinds: frozenset[type[Operation]],
) -> int:
    if any(n.classes is not None and type(n.operation) not in kinds for n in order):
        return outer
    own = [n for n in order if n.classes is not None]
    if not own:
        return outer
    single = [n for n in order if n.classes is None]
    tried: set[tuple[int, int]] = set()
    while True:
        pair = _candidate(own, tried)
        if pair is None:
            return outer
        tried.add(pair)
        first, second = pair
        if any(_has(r.node, first, second) for n in single for r in n.args):
            continue
        if all(_fits(n, first, second, extents, stored) for n in own):
            for n in own:
                _merge(n, first, second, stored)
            extents[first] *= extents[second]
            if outer == second:
                outer = first
            tried.clear()


def _candidate(own: list[KernelNode], tried: set[tuple[int, int]]) -> tuple[int, int] | None:
    for n in own:
        assert n.classes is not None
        classes = [c for c in n.classes if c >= 0]
        for pair in itertools.pairwise(classes):
            if pair not in tried:
                return pair
    return None


def _position(n: KernelNode, first: int, second: int) -> int | None:
    """Return the axis of `first`, -1 if neither class occurs, None if they are apart."""
    assert n.classes is not None
    classes = n.classes
    if first not in classes and second not in classes:
        return -1
    if first not in classes:
        return None
    a = classes.index(first)
    b = a + 1
    while b < len(classes) and classes[b] < 0:
        b += 1
    if b == len(classes) or classes[b] != second:
        return None
    return a


def _other(n: KernelNode, a: int) -> int:
    """Return the axis that follows axis `a`, past those of length 1."""
    assert n.classes is not None
    b = a + 1
    while n.classes[b] < 0:
        b += 1
    return b


def _fits(
    n: KernelNode,
    first: int,
    second: int,
    extents: list[int],
    stored: dict[KernelNode, ValueMemory],
) -> bool:
    a = _position(n, first, second)
    if a is None:
        return False
    if a < 0:  # it has neither loop, and may yet read an element of what has both
        return not any(_has(r.node, first, second) for r in n.args)
    b = _other(n, a)
    if (a in n.folded) != (b in n.folded) or _chooses(n, a) or _chooses(n, b):
        return False
    if n in stored and a not in n.folded:
        strides = stored[n].strides
        k, m = n.unfolded.index(a), n.unfolded.index(b)
        if strides[k] != strides[m] * extents[second]:
            return False
    return all(_ref_fits(r, a, b, extents[second], first, second) for r in n.args)


def _chooses(n: KernelNode, axis: int) -> bool:
    """Whether a node chooses among its operands by its index along an axis."""
    match n.operation:
        case Concatenate() | Iota() as p:
            return p.axis == axis
        case UpdateSlice() as p:
            return not covers(n, p, axis)
        case _:  # indices of a gather are read along their own axes, which have no other
            return False


def _has(n: KernelNode | None, first: int, second: int) -> bool:
    """Whether one of two classes is an axis of a node's result."""
    return n is not None and n.classes is not None and bool({first, second} & set(n.result))


def _ref_fits(r: Ref, a: int, b: int, extent: int, first: int, second: int) -> bool:
    if r.at is not None:
        coefs = dict(r.at.terms)
        return coefs.get(a, 0) == coefs.get(b, 0) * extent
    assert r.node is not None
    assert r.maps is not None
    if r.node.classes is None:
        return not any(axis in (a, b) for m in r.maps for axis, _ in m.terms)
    place = _result_axes(r.node, first, second)
    for k, m in enumerate(r.maps):
        axes = [axis for axis, _ in m.terms]
        if k in place:
            if m != AffineIndex(0, (((a, b)[place.index(k)], 1),)):
                return False
        elif a in axes or b in axes:
            return False
    return True


def _result_axes(n: KernelNode, first: int, second: int) -> list[int]:
    """Return the axes of a node's result that belong to the two classes, in that order."""
    result = n.result
    return [result.index(c) for c in (first, second) if c in result]


def _merge(n: KernelNode, first: int, second: int, stored: dict[KernelNode, ValueMemory]) -> None:
    """Make the two classes one axis of a node: the second one gets length 1."""
    for r in n.args:
        if r.node is not None and r.node.classes is not None:
            r.maps = _merged_maps(r)
    a = _position(n, first, second)
    assert a is not None
    if a < 0:
        return
    b = _other(n, a)
    if n in stored and a not in n.folded:
        memory = stored[n]
        strides = list(memory.strides)
        strides[n.unfolded.index(a)] = strides[n.unfolded.index(b)]
        memory.strides = tuple(strides)
    for r in n.args:
        if r.at is not None:
            coefs = dict(r.at.terms)
            step = coefs.pop(b, 0)
            coefs.pop(a, 0)
            if step:
                coefs[a] = step
            r.at = AffineIndex(r.at.const, tuple(sorted(coefs.items())))
    classes, shape = list(n.classes or ()), list(n.shape)
    shape[a] *= shape[b]
    shape[b] = 1
    classes[b] = -1
    n.classes, n.shape = tuple(classes), tuple(shape)


def _merged_maps(r: Ref) -> Maps:
    """Return the maps of a reading after its target's axes are merged."""
    assert r.maps is not None
    assert r.node is not None
    # The target comes earlier: it is merged already, and has only the first class; the
    # second one's axis has length 1 now.
    value_axes = r.node.unfolded
    assert r.node.classes is not None
    return tuple(
        AffineIndex(0, ()) if r.node.classes[axis] < 0 else m
        for axis, m in zip(value_axes, r.maps, strict=True)
    )
