"""Kernels that take several steps of a stencil on a line (see `lower_lines`).

A `LineKernel` divides what a group computes into stages. A value has a stage of its own if it is a
result, or read at several places: it is register-resident, so that costs little. Others are
computed where they are read.

References
----------
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import AffineIndex, Use, identity, linear, strided
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
# In the order in which they were found, which kernels depend on.
Demands = dict[Demand, None]


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
    reads : LineReads
        What values of the group read.

    Attributes
    ----------
    sizes : LineSizes
    nodes : Nodes
        All that it computes and reads.
    """

    def __init__(
        self, group: Group, fusion: Fusion, cloned: Cloned, wanted: list[Value], reads: LineReads
    ) -> None:
        self.group = group
        self.fusion = fusion
        self.reads = reads
        self.wanted = frozenset(wanted)
        self.sizes = LineSizes(reads.shape, 0, 0)
        self.nodes = Nodes(group, fusion, cloned)
        for v in wanted:
            self.nodes.add(v)
        self.order = [n.value for n in self.nodes.order]
        self.inside = frozenset(self.order)
        # By value with a stage: the rows that this reads, and how many cells away.
        self.rows_of: dict[Value, dict[tuple[Value, int], None]] = {}

    @cached_property
    def valid(self) -> bool:
        """Whether it can run: there are no stages otherwise."""
        lines = all(map(self.reads.is_line, self.wanted))
        return lines and self._divide() and self._measure()

    @cached_property
    def stages(self) -> list[LineStage]:
        """Stages in the order in which they can run."""
        assert self.valid
        stages: list[LineStage] = []
        rows: dict[Value, KernelNode] = {}
        for value in self.order:
            if value not in self.rows_of:
                continue
            read = {root: None for root, _ in sorted(self.rows_of[value], key=lambda r: r[1])}
            for root in read:
                if root not in rows:
                    stages.append(self._load(root))
                    rows[root] = self._reader(root, stages[-1].row)
            stages.append(self._compute(value, {root: rows[root] for root in read}))
            rows[value] = self._reader(value, stages[-1].row)
        return stages

    # -- which values have a stage --------------------------------------------------------

    def _divide(self) -> bool:
        """Find the values that have a stage, and what they read; False if one is not local."""
        demands: dict[Value, Demands] = defaultdict(dict)
        for value in reversed(self.order):
            reads = self.reads.of(value)
            if reads is None:
                return False
            read_by = demands[value]
            if value in self.wanted or self._has_stage(value, read_by, reads):
                for reader, at, _ in read_by:
                    if at is None:
                        return False  # one element of it, for all strips
                    self.rows_of[reader][value, at] = None
                self.rows_of[value] = {}
                read_by = {(value, 0, False): None}
            for demand in read_by:
                if not all(self._pursue(demand, read, demands) for read in reads):
                    return False
        return True

    def _has_stage(self, value: Value, read_by: Demands, reads: Iterable[CellRead]) -> bool:
        """Whether a value has a stage, given what reads it."""
        wraps = any(goes_round for _, _, goes_round in read_by)
        if not self.reads.is_line(value) or isinstance(value.primitive, Constant):
            return False
        if wraps or (len(read_by) > 1 and not isinstance(value.primitive, Iota)):
            return True
        if any(at for _, at, _ in read_by) and any(self._is_end(r.root) for r in reads):
            return True
        return any(
            abs(self.reads.beside(at + r.shift)) > MARGIN
            for _, at, _ in read_by
            for r in reads
            if at is not None and r.shift is not None and self.reads.is_line(r.root)
        )

    def _is_end(self, value: Value) -> bool:
        """Whether a value is one element, computed of cells here."""
        border = self.reads.is_border(value) and not isinstance(value.primitive, Constant)
        return border and value in self.inside

    def _pursue(self, demand: Demand, read: CellRead, demands: dict[Value, Demands]) -> bool:
        """Note what is read for a stage; False if it cannot."""
        reader, at, _ = demand
        root = read.root
        inside = root in self.inside
        if at is None or read.shift is None or (read.border and not inside):
            if inside:
                demands[root][reader, None, False] = None
            if at is not None and read.border and read.moves:
                return False  # it would be read beyond its end
            return not (inside and self.reads.is_line(root))
        place = at + read.shift
        if self.reads.is_line(root):
            there = self.reads.beside(place)
            if abs(there) > MARGIN:
                return False
            goes_round = read.round or there != place
        else:
            there, goes_round = place, False
        if inside:
            demands[root][reader, there, goes_round] = None
        else:
            self.rows_of[reader][root, there] = None
        return True

    # -- how the line is cut --------------------------------------------------------------

    def _measure(self) -> bool:
        """Find the sizes of strips; False if they would store too little."""
        reach = Reach()
        for value in self.order:
            if value in self.rows_of:
                reach.add(value, self.rows_of[value])
        loaded = {root for rows in self.rows_of.values() for root, _ in rows}
        itemsize = max(v.dtype.itemsize for v in (*loaded, *self.rows_of))
        columns = line_columns(itemsize, self.reads.count)
        pack = columns // LANES
        halo = -(-max(map(reach.of, self.wanted)) // pack) * pack
        self.sizes = LineSizes(self.reads.shape, halo, columns)
        return halo <= MOST_HALO * columns and columns <= self.reads.count

    # -- stages ---------------------------------------------------------------------------

    @staticmethod
    def _load(value: Value) -> LineStage:
        """Return the stage that loads an array."""
        memory = ValueMemory(value)
        maps = identity(value.shape)
        use = Use(value, maps, 0, memory.strides)
        ref = Ref(None, memory, None, linear(maps, memory.strides), use)
        node = loader(value, ref)
        return LineStage([node], node, row_of(value), loads=True)

    def _compute(self, value: Value, rows: dict[Value, KernelNode]) -> LineStage:
        """Return the stage of a value, given the rows that it reads."""
        nodes = Nodes(self.group, self.fusion, lambda v, _: v in self.inside, rows)
        node = nodes.add(value)
        for n in nodes.order:
            if not isinstance(n.operation, FromRing):
                self._place_borders(n, nodes)
        memory = ValueMemory(value) if value in self.wanted else None
        return LineStage(nodes.order, node, row_of(value), stored=memory)

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


def row_of(value: Value) -> LineRow:
    """Return the cells of a value that belong to a strip."""
    return LineRow(dtype_name(value.dtype), value.shape[-1])


def line_columns(itemsize: int, count: int) -> int:
    """Return the cells of a strip: no more than a line has, if that is a warp's."""
    columns = strip_columns(itemsize)
    while columns > max(count, LANES):
        columns //= 2
    return columns
