"""Finding chains of groups that run as one pipeline over rows (see `lower_rings`)."""

from __future__ import annotations

from typing import Any

from adarray.passes.groups import Group
from adarray.passes.lower import Lowered, Lowering
from adarray.passes.lower_nodes import Memory, Node, Nodes
from adarray.passes.lower_rings import Ring, Stage, write
from adarray.passes.lower_scope import NOTHING, Affine
from adarray.passes.lower_values import Index, Values
from adarray.program import Value

# Groups of a chain; rows between what a step reads and writes; rows that are worth it.
LONGEST, FAR, ROWS = 5, 4, 64
# Elements of a row that make a vector loop, and bytes of an array that leaves the cache.
WIDE, LARGE = 64, 1 << 18
# Bytes of all rings.
CACHE = 512 * 1024


class Reach:
    """Which rows of earlier values the rows of a group read.

    Attributes
    ----------
    rows : dict
        Nearest and farthest row, relative to the reader's, by ``id`` of the value.
    periodic : bool
        Whether rows are counted round the end.
    fits : bool
        Whether a pipeline can do it.
    """

    def __init__(self, nodes: Nodes, chained: dict[int, Ring], count: int) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self.periodic = False
        self.fits = True
        self.mixed = False
        self.count = count
        self.chained = chained
        group = nodes.group
        seen: set[tuple[int, Index]] = set()
        stack: list[tuple[Node, Index]] = []
        for node in nodes.order:
            if node.classes is not None and group.find(group.outer) in node.classes:
                stack.append((node, self._natural(node, group.find(group.outer))))
        while stack and self.fits:
            node, index = stack.pop()
            if (id(node), index) in seen:
                continue
            seen.add((id(node), index))
            if node.kind in ("gather", "scatter"):
                self.fits = not any(self._is_chained(r) for r in node.args)
                continue
            if node.kind == "join":
                self._check_join(node, index)
            for ref in node.args:
                if self._is_chained(ref):
                    self._note(ref, index)
                elif ref.node is not None and ref.node.kind != "fold":
                    stack.append((ref.node, Values.seen(ref, index)))

    @staticmethod
    def _natural(node: Node, outer: int) -> Index:
        assert node.classes is not None
        return tuple(
            Affine(0, (("row" if c == outer else f"c{c}", 1),)) if c >= 0 else NOTHING
            for c in node.classes
        )

    def _is_chained(self, ref: Any) -> bool:
        return ref.memory is not None and id(ref.memory.value) in self.chained

    def _near(self, shift: int) -> int:
        if 2 * abs(shift) > self.count:
            self.periodic = True
            shift += -self.count if shift > 0 else self.count
        return shift

    def _note(self, ref: Any, index: Index) -> None:
        """Note the row that is read of a value of the chain."""
        value = ref.memory.value
        if ref.use.maps is None:
            self.fits = False
            return
        ref_maps = ref.use.maps
        at = Values.seen(_Maps(ref_maps), index)[self.chained[id(value)].axis]
        if at.terms != (("row", 1),):
            self.fits = False
            return
        shift = self._near(at.const)
        if abs(shift) > FAR:
            self.fits = False
        low, high = self.rows.get(id(value), (shift, shift))
        self.rows[id(value)] = (min(low, shift), max(high, shift))

    def _check_join(self, node: Node, index: Index) -> None:
        """Note whether the pieces of a join are one row, counted round the end."""
        if index[node.value.params["axis"]].terms != (("row", 1),):
            return
        found = set()
        for ref in node.args:
            if ref.use is None or ref.use.maps is None:
                self.mixed = True
                return
            seen = Values.seen(_Maps(ref.use.maps), index)
            normal = tuple(
                Affine(self._near(i.const), i.terms) if i.terms == (("row", 1),) else i
                for i in seen
            )
            found.add((id(ref.node or ref.memory.value), normal))
            if ref.memory is not None and not self._is_chained(ref):
                self.mixed = self.mixed or len(found) > 1
        self.mixed = self.mixed or len(found) > 1


class _Maps(NamedTuple := __import__("typing").NamedTuple):  # type: ignore[misc]
    """Maps where a reading is expected."""

    maps: Any
