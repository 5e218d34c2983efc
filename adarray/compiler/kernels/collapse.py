"""Collapsing axes: two loops that every value and array runs through as one become one.

Whole rows are moved as their elements are, one after the other, so a stencil along the first of two
axes, and regions of whole rows, are no obstacle.

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
KINDS = COLLAPSIBLE | CHOOSING


def collapse(
    order: list[KernelNode],
    stored: dict[KernelNode, ValueMemory],
    outer: int,
    extents: list[int],
    rows: bool = False,
) -> int:
    """Merge classes in `order`, in place, as long as some can be; return the outer class.

    Values that are computed again where they are read do not stand in the way, nor do those that
    choose among operands along other axes; with `rows`, nor do those that choose among whole rows.
    """
    count = len(extents)
    placed = _placed(order, extents)
    outer = _Collapse(order, stored, extents, count, rows, placed).run(outer)
    for n in placed:
        n.classes = None
    del extents[count:]
    return outer


def _placed(order: list[KernelNode], extents: list[int]) -> list[KernelNode]:
    """Give nodes without classes those of their readers, where all read them at their own indices.

    Axes that some reader reads elsewhere get classes of their own, which nothing else has.
    """
    wanted: dict[KernelNode, list[tuple[int, ...] | None]] = {}
    placed = []
    for n in reversed(order):
        readers = wanted.get(n, [])
        if n.classes is None and readers and type(n.operation) in KINDS:
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


class _Collapse:
    """Merges of classes of some nodes.

    Parameters
    ----------
    order : list of KernelNode
    stored : dict
        Memory of the nodes whose results are written.
    extents : list of int
        Of each class.
    count : int
        Classes from here on are of axes that are read elsewhere than at the reader's index.
    rows : bool
        Whether nodes may choose among whole rows, and be read some rows away.
    again : list of KernelNode
        Nodes that are computed again wherever they are read.
    """

    def __init__(
        self,
        order: list[KernelNode],
        stored: dict[KernelNode, ValueMemory],
        extents: list[int],
        count: int,
        rows: bool,
        again: list[KernelNode],
    ) -> None:
        self.own = [n for n in order if n.classes is not None]
        self.again = frozenset(again)  # computed wherever they are read
        self.single = [n for n in order if n.classes is None]
        self.stored = stored
        self.extents = extents
        self.count = count
        self.rows = rows
        self.kept = False  # whether other rows of an own node may have to be there, too
        # By node: the axes of the two classes that are to be merged, if it has them.
        self.places: dict[KernelNode, tuple[int, int] | None] = {}

    def run(self, outer: int) -> int:
        """Merge classes as long as some can be; return the outer class."""
        if any(type(n.operation) not in KINDS for n in self.own):
            return outer
        tried: set[tuple[int, int]] = set()
        while (pair := self._candidate(tried)) is not None:
            tried.add(pair)
            first, second = pair
            # What an iteration of the outer loop keeps, it may read at any place of other loops.
            self.kept = second == outer
            if any(_has(r.node, first, second) for n in self.single for r in n.args):
                continue
            if not self._place(first, second):
                continue
            if self.rows:
                self._name_rows(self.extents[second])
            if all(self._fits(n, first, second) for n in self.own):
                self._merge_all(second)
                if outer == second:
                    outer = first
                tried.clear()
        return outer

    def _candidate(self, tried: set[tuple[int, int]]) -> tuple[int, int] | None:
        for n in self.own:
            assert n.classes is not None
            classes = [c for c in n.classes if c >= 0]
            for pair in itertools.pairwise(classes):
                if pair not in tried:
                    return pair
        return None

    def _place(self, first: int, second: int) -> bool:
        """Find the axes of two classes in all nodes; return False if they are apart in one."""
        self.places.clear()
        for n in self.own:
            assert n.classes is not None
            if first not in n.classes and second not in n.classes:
                self.places[n] = None
                continue
            if second not in n.classes:
                return False
            b = n.classes.index(second)
            a = b - 1
            while a >= 0 and n.classes[a] < 0:
                a -= 1
            if a < 0 or not (n.classes[a] == first or (self.rows and n.classes[a] >= self.count)):
                return False
            if n.classes[a] != first and first in n.classes:
                return False
            self.places[n] = a, b
        return True

    def _name_rows(self, extent: int) -> None:
        """Read pieces of one row at the index of the row, as those of several rows are.

        They are read nowhere else, so it is the same element.
        """
        for n, place in self.places.items():
            if place is None:
                continue
            a, b = place
            for r, (start, stop) in zip(n.args, _rows_of_pieces(n, a), strict=False):
                if r.at is None or stop - start != 1 or any(axis == a for axis, _ in r.at.terms):
                    continue
                step = dict(r.at.terms).get(b, 0) * extent
                if step:
                    terms = tuple(sorted((*r.at.terms, (a, step))))
                    r.at = AffineIndex(r.at.const - start * step, terms)

    def _fits(self, n: KernelNode, first: int, second: int) -> bool:
        place, extent = self.places[n], self.extents[second]
        if place is None:  # it has neither loop, and may yet read an element of what has both
            return not any(_has(r.node, first, second) for r in n.args)
        a, b = place
        if (a in n.folded) != (b in n.folded) or self._chooses(n, a, b):
            return False
        if n in self.stored and a not in n.folded:
            strides = self.stored[n].strides
            k, m = n.unfolded.index(a), n.unfolded.index(b)
            if strides[k] != strides[m] * extent:
                return False
        return all(self._ref_fits(r, a, b, extent) for r in n.args)

    def _chooses(self, n: KernelNode, a: int, b: int) -> bool:
        """Whether a node chooses among its operands by its index along one of two axes."""
        match n.operation:
            case Concatenate() as p:
                return p.axis == b or (p.axis == a and not self.rows)
            case Iota() as p:
                return p.axis in (a, b)
            case UpdateSlice():
                return not covers(n, b) or not (covers(n, a) or self.rows)
            case _:  # indices of a gather are read along their own axes, which have no other
                return False

    def _ref_fits(self, r: Ref, a: int, b: int, extent: int) -> bool:
        if r.at is not None:
            coefs = dict(r.at.terms)
            return coefs.get(a, 0) == coefs.get(b, 0) * extent
        assert r.node is not None
        assert r.maps is not None
        if r.node.classes is None:
            return not any(axis in (a, b) for m in r.maps for axis, _ in m.terms)
        place = self._result_axes(r.node)
        for k, m in enumerate(r.maps):
            if k in place:
                own = (a, b)[place.index(k)]
                away = self.rows and own == a and (r.node in self.again or not self.kept)
                if m.terms != ((own, 1),) or (m.const and not away):
                    return False
            elif any(axis in (a, b) for axis, _ in m.terms):
                return False
        return True

    def _result_axes(self, n: KernelNode) -> list[int]:
        """Return the axes of a node's result that belong to the two classes, in that order."""
        unfolded = n.unfolded
        return [unfolded.index(axis) for axis in self.places[n] or () if axis in unfolded]

    def _merge_all(self, second: int) -> None:
        extent = self.extents[second]
        merged = {n.classes[p[0]] for n, p in self.places.items() if p and n.classes}
        for n in self.own:  # readings first, by the axes as they are
            for r in n.args:
                if r.node is not None and r.node.classes is not None:
                    r.maps = self._merged_maps(r, extent)
        for n in self.own:
            self._merge(n, extent)
        for c in merged:
            self.extents[c] *= extent

    def _merge(self, n: KernelNode, extent: int) -> None:
        """Make the two classes one axis of a node: the second one gets length 1."""
        place = self.places[n]
        if place is None:
            return
        a, b = place
        if n in self.stored and a not in n.folded:
            memory = self.stored[n]
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
        n.regions = _merged_regions(n, a, b, extent)
        classes, shape = list(n.classes or ()), list(n.shape)
        shape[a] *= shape[b]
        shape[b] = 1
        classes[b] = -1
        n.classes, n.shape = tuple(classes), tuple(shape)

    def _merged_maps(self, r: Ref, extent: int) -> Maps:
        """Return the maps of a reading after the axes of what it reads are merged."""
        assert r.maps is not None
        assert r.node is not None
        place = self._result_axes(r.node)
        if not place:
            return r.maps
        maps = list(r.maps)
        first, second = place
        maps[first] = AffineIndex(maps[first].const * extent, maps[first].terms)
        maps[second] = AffineIndex(0, ())
        return tuple(maps)


def _rows_of_pieces(n: KernelNode, axis: int) -> tuple[tuple[int, int], ...]:
    """Return where on an axis the operands of a choice along it lie, one for each."""
    match n.operation:
        case Concatenate() as p if p.axis == axis:
            return n.regions
        case UpdateSlice():
            return (0, n.shape[axis]), n.regions[axis]
        case _:
            return ()


def _merged_regions(n: KernelNode, a: int, b: int, extent: int) -> tuple[tuple[int, int], ...]:
    """Return the regions of a node whose axes `a` and `b` are merged."""
    match n.operation:
        case Concatenate() as p if p.axis == a:
            return tuple((start * extent, stop * extent) for start, stop in n.regions)
        case UpdateSlice():
            regions = list(n.regions)
            regions[a] = regions[a][0] * extent, regions[a][1] * extent
            regions[b] = 0, 1
            return tuple(regions)
        case _:
            return n.regions


def _has(n: KernelNode | None, first: int, second: int) -> bool:
    """Whether one of two classes is an axis of a node's result."""
    return n is not None and n.classes is not None and bool({first, second} & set(n.result))
