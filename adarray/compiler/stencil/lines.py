"""Kernels that take several steps of a stencil on a line (see `lower_lines`).

A `LineKernel` divides what a group computes into stages. A value has a stage of its own if it is a
result, or read at several places: it is register-resident, so that costs little. Others are
computed where they are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import AffineIndex, Shape, Use, identity, linear, strided
from adarray.compiler.ir.primitives import Constant, Iota
from adarray.compiler.ir.program import Value
from adarray.compiler.kernels.nodes import (
    Cloned,
    FromRing,
    KernelNode,
    Nodes,
    Ref,
    ValueMemory,
    dtype_name,
)
from adarray.compiler.schedule.gpu.strips import LANES, MARGIN
from adarray.compiler.stencil.line_reads import CellRead, LineReads
from adarray.compiler.stencil.lower_lines import LineRow, LineSizes, LineStage
from adarray.compiler.stencil.lower_strips import loader, strip_columns

# The share of a strip on either side that it may leave to others.
MOST_HALO = 3 / 8
# A stage that reads a value, and how many cells away; None for an element that all cells read.
Demand = tuple[Value, int | None, bool]


class Reach:
    """By how many cells the ends of a strip are wrong, on the left and on the right, by value."""

    def __init__(self) -> None:
        self.sides: dict[Value, tuple[int, int]] = {}

    def add(self, value: Value, reads: Iterable[tuple[Value, int]]) -> None:
        """Note a value that reads cells so far away of others; those not known are loaded."""
        left = right = 0
        for root, shift in reads:
            before, behind = self.sides.get(root, (0, 0))
            left, right = max(left, before - shift), max(right, behind + shift)
        self.sides[value] = left, right

    def of(self, value: Value) -> int:
        """Return the cells on either side that are wrong."""
        return max(self.sides[value])


class LineKernel:
    """What one kernel computes of a line.

    Parameters
    ----------
    group : Group
    fusion : Fusion
    cloned : callable
        As for `Nodes`.
    wanted : list of Value
        Members that are stored.
    shape : tuple of int
        Of the longest arrays.

    Attributes
    ----------
    valid : bool
        Whether it can run: there are no stages otherwise.
    sizes : LineSizes
    stages : list of LineStage
    nodes : Nodes
        All that it computes and reads.
    """

    def __init__(
        self, group: Group, fusion: Fusion, cloned: Cloned, wanted: list[Value], shape: Shape
    ) -> None:
        self.group = group
        self.fusion = fusion
        self.cloned = cloned
        self.reads = LineReads(fusion.uses, shape)
        self.sizes = LineSizes(shape, 0, 0)
        self.stages: list[LineStage] = []
        self.nodes = Nodes(group, fusion, cloned)
        for v in wanted:
            self.nodes.add(v)
        self.order = [n.value for n in self.nodes.order]
        self.inside = frozenset(self.order)
        # By value with a stage: the rows that this reads, and how many cells away.
        self.rows_of: dict[Value, set[tuple[Value, int]]] = {}
        self.valid = (
            all(map(self.reads.is_line, wanted)) and self._divide(set(wanted)) and self._cut(wanted)
        )

    # -- which values have a stage --------------------------------------------------------

    def _divide(self, wanted: set[Value]) -> bool:
        """Find the values that have a stage, and what they read; False if one is not local."""
        demands: dict[Value, set[Demand]] = defaultdict(set)
        for value in reversed(self.order):
            reads = self.reads.of(value)
            if reads is None:
                return False
            read_by = demands[value]
            if value in wanted or self._has_stage(value, read_by, reads):
                for reader, at, _ in read_by:
                    if at is None:
                        return False  # one element of it, for all strips
                    self.rows_of[reader].add((value, at))
                self.rows_of[value] = set()
                read_by = {(value, 0, False)}
            for demand in read_by:
                if not all(self._pursue(demand, read, demands) for read in reads):
                    return False
        return True

    def _has_stage(self, value: Value, read_by: set[Demand], reads: Iterable[CellRead]) -> bool:
        """Whether a value has a stage, given what reads it."""
        turned = any(goes_round for _, _, goes_round in read_by)
        if not self.reads.is_line(value) or isinstance(value.primitive, Constant):
            return False
        if turned or (len(read_by) > 1 and not isinstance(value.primitive, Iota)):
            return True
        if any(at for _, at, _ in read_by) and any(self._is_end(r.root) for r in reads):
            return True
        return any(
            abs(self.reads.beside(r.root, at + r.shift)) > MARGIN
            for _, at, _ in read_by
            for r in reads
            if at is not None and r.shift is not None and self.reads.is_line(r.root)
        )

    def _is_end(self, value: Value) -> bool:
        """Whether a value is one element, computed of cells here."""
        border = self.reads.is_border(value) and not isinstance(value.primitive, Constant)
        return border and value in self.inside

    def _pursue(self, demand: Demand, read: CellRead, demands: dict[Value, set[Demand]]) -> bool:
        """Note what is read for a stage; False if it cannot."""
        reader, at, _ = demand
        root = read.root
        inside = root in self.inside
        if at is None or read.shift is None or (read.border and not inside):
            if inside:
                demands[root].add((reader, None, False))
            if at is not None and read.border and read.moves:
                return False  # it would be read beyond its end
            return not (inside and self.reads.is_line(root))
        place = at + read.shift
        if self.reads.is_line(root):
            there = self.reads.beside(root, place)
            if abs(there) > MARGIN:
                return False
            goes_round = read.round or there != place
        else:
            there, goes_round = place, False
        if inside:
            demands[root].add((reader, there, goes_round))
        else:
            self.rows_of[reader].add((root, there))
        return True

    # -- how the line is cut --------------------------------------------------------------

    def _cut(self, wanted: list[Value]) -> bool:
        """Find the sizes of strips, and make the stages; False if they would store too little."""
        reach = Reach()
        for value in self.order:
            if value in self.rows_of:
                reach.add(value, self.rows_of[value])
        loaded = {root for rows in self.rows_of.values() for root, _ in rows}
        itemsize = max(v.dtype.itemsize for v in (*loaded, *self.rows_of))
        columns = line_columns(itemsize, self.reads.count)
        pack = columns // LANES
        halo = -(-max(map(reach.of, wanted)) // pack) * pack
        self.sizes = LineSizes(self.reads.shape, halo, columns)
        if halo > MOST_HALO * columns or columns > self.reads.count:
            return False
        rows: dict[Value, KernelNode] = {}
        for value in self.order:
            if value not in self.rows_of:
                continue
            read = {root: None for root, _ in sorted(self.rows_of[value], key=lambda r: r[1])}
            for root in read:
                if root not in rows:
                    rows[root] = self._load(root)
            own = {root: rows[root] for root in read}
            rows[value] = self._compute(value, own, value in wanted)
        return True

    def _load(self, value: Value) -> KernelNode:
        """Add the stage that loads an array; return what reads it."""
        memory = ValueMemory(value)
        maps = identity(value.shape)
        use = Use(value, maps, 0, memory.strides)
        ref = Ref(None, memory, None, linear(maps, memory.strides), use)
        node = loader(value, ref)
        row = self._row(value)
        self.stages.append(LineStage([node], node, row, loads=True))
        return self._reader(value, row)

    def _compute(self, value: Value, rows: dict[Value, KernelNode], stored: bool) -> KernelNode:
        """Add the stage of a value; return what reads it."""
        nodes = Nodes(self.group, self.fusion, self.cloned, rows)
        node = nodes.add(value)
        for n in nodes.order:
            if not isinstance(n.operation, FromRing):
                self._place_borders(n, nodes)
        row = self._row(value)
        memory = ValueMemory(value) if stored else None
        self.stages.append(LineStage(nodes.order, node, row, stored=memory))
        return self._reader(value, row)

    def _place_borders(self, node: KernelNode, nodes: Nodes) -> None:
        """Let what one cell reads alone be found by that cell's index, unless it is in memory."""
        reads = self.reads.of(node.value)
        assert reads is not None
        for k, (ref, read) in enumerate(zip(node.args, reads, strict=True)):
            if ref.node is None or not (read.border or read.shift is None):
                continue
            use = ref.use
            assert use is not None
            if read.root not in self.inside:  # a row here, but of the array in memory this reads
                at = strided(use.offset, use.strides)
                node.args[k] = Ref(None, nodes.memory(read.root), None, at, use)
            elif read.border and not read.moves:
                assert read.shift is not None
                assert use.maps is not None
                maps = (*use.maps[:-1], AffineIndex(read.shift, ((self.reads.axis, 1),)))
                node.args[k] = Ref(ref.node, None, maps, None, use)

    @staticmethod
    def _row(value: Value) -> LineRow:
        return LineRow(dtype_name(value.dtype), value.shape[-1])

    @staticmethod
    def _reader(value: Value, row: LineRow) -> KernelNode:
        node = KernelNode(value, None)
        node.operation, node.shape, node.folded = FromRing(), value.shape, ()
        node.cost = 1
        node.ring = row
        return node

    # -- for planning ---------------------------------------------------------------------

    def orders(self) -> list[list[KernelNode]]:
        """Return the nodes of every stage."""
        return [s.order for s in self.stages]


def line_columns(itemsize: int, count: int) -> int:
    """Return the cells of a strip: no more than a line has, if that is a warp's."""
    columns = strip_columns(itemsize)
    while columns > max(count, LANES):
        columns //= 2
    return columns
