"""Finding chains of stencil steps that threads take down column strips (see `lower_strips`).

The counterpart of `adarray.compiler.stencil.rings` for GPUs. A step is a group that computes arrays
of two axes from cells near its own, of arrays of the same shape; or from what is read at one
place for all cells, or along one of the axes.

References
----------
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.builder import PRINTABLE
from adarray.compiler.ir.domains import Use, identity, linear
from adarray.compiler.ir.primitives import Concatenate, Constant, Iota, Map, UpdateSlice, View
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.ir.uses import op_cost
from adarray.compiler.kernels.nodes import (
    Cloned,
    FromRing,
    KernelNode,
    Nodes,
    Operation,
    Ref,
    ValueMemory,
)
from adarray.compiler.kernels.scope import Affine
from adarray.compiler.kernels.values import Index, mapped
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.stencil.lower_strips import (
    StripRows,
    StripSizes,
    StripStage,
    beside,
    loader,
    rotated,
    strip_columns,
)

# Rows and columns between what a step reads and writes.
FAR = 4
# Cells of an array that is worth it: a few strips for each multiprocessor.
LARGE = 1 << 18
# Last rows that are kept of each array; readings and operations of one cell of a step;
# operations of a whole kernel, whose text has each as often as there are rows. Cells of more
# work cost more to compute again than to read: with one tanh, eight steps on 1024 x 1024
# cells take 73 microseconds in one kernel, and 42 in eight.
ROWS, READINGS, WORK, TEXT = 8, 200, 48, 1500
# Bytes of rows that a lane holds: beside them it has to have what it computes with.
REGISTERS = 576
NAMES = ("row", "column")
CELL: Index = (Affine(0, (("row", 1),)), Affine(0, (("column", 1),)))
# What a step reads of an array: nearest and farthest row, nearest and farthest column.
Span = tuple[int, int, int, int]


# What threads can do on their way down, cell by cell.
CELLWISE: frozenset[type[Operation]] = frozenset({
    Map, View, Constant, Iota, Concatenate, UpdateSlice,
})  # fmt: skip


# Nodes, at which index they are read, and whether that may be round the end.
Stack = list[tuple[KernelNode, Index, bool]]


class Reads:
    """What a cell of a group reads.

    Attributes
    ----------
    spans : dict
        By value in memory, if cells beside the reader's own are read of it.
    own : set of Value
        Those in memory that are read at the cell itself.
    elsewhere : set of Value
        Those of which other elements are read: at one place for all cells, or along an axis.
    values : dict
        The others, in the order in which they are read.
    fits : bool
        Whether threads can do it on their way down.
    cost : int
        Operations of a cell.
    """

    def __init__(self, roots: Iterable[KernelNode], shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.spans: dict[Value, Span] = {}
        self.own: set[Value] = set()
        self.elsewhere: set[Value] = set()
        self.values: dict[Value, None] = {}
        self.fits = True
        self.cost = 0
        seen: set[tuple[KernelNode, Index, bool]] = set()
        stack: Stack = [(n, CELL, False) for n in roots]
        while stack and self.fits:
            node, index, round_ = stack.pop()
            if (node, index, round_) not in seen:
                seen.add((node, index, round_))
                self.fits = len(seen) <= READINGS and self.cost <= WORK
                self._visit(node, index, round_, stack)

    def _visit(self, node: KernelNode, index: Index, round_: bool, stack: Stack) -> None:
        operation = node.operation
        if type(operation) not in CELLWISE:
            self.fits = False
            return
        if isinstance(operation, Map):
            if FUNCTIONS[operation.name].is_heavy:
                self.fits = False
                return
            self.cost += max(1, op_cost(node.value))
        self.cost += isinstance(operation, (Concatenate, UpdateSlice))
        if isinstance(operation, Concatenate):
            same = rotated(operation.axis, node, index, NAMES, self.shape)
            if same is not None:
                # By a whole round it would be read where it is no row of the kernel's.
                self.fits = same[0].node is not None or same[1] != CELL
                self._follow(same[0], same[1], True, stack)
                return
        if round_ and isinstance(operation, (Concatenate, UpdateSlice, Iota)):
            self.fits = False  # it asks where it is, and would hear of a place behind the end
            return
        for ref in node.args:
            if ref.use is None or ref.use.maps is None:
                self.fits = False
                return
            self._follow(ref, mapped(ref.use.maps, index), round_, stack)

    def _follow(self, ref: Ref, index: Index, round_: bool, stack: Stack) -> None:
        """Pursue what is read at `index`, or note it."""
        if ref.node is not None:
            stack.append((ref.node, index, round_))
            return
        assert ref.memory is not None
        value = ref.memory.value
        if index == CELL and value.shape == self.shape:
            self.own.add(value)
        elif not self._is_near(ref.memory, index):
            self.elsewhere.add(value)
            moves = any(a.terms for a in index)
            self.fits = self.fits and self._is_inside(value, index) and not (round_ and moves)
            return
        else:
            row, column = (beside(index[a], value.shape[a], self.shape[a]) for a in (0, 1))
            low, high, left, right = self.spans.get(value, (row, row, column, column))
            self.spans[value] = (
                min(low, row), max(high, row), min(left, column), max(right, column)
            )  # fmt: skip
            self.fits = self.fits and max(abs(row), abs(column)) <= FAR
        self.values[value] = None

    def _is_near(self, memory: ValueMemory, index: Index) -> bool:
        """Whether it is a cell at a fixed distance."""
        value = memory.value
        return (
            is_close(value.shape, self.shape)
            and memory.offset == 0
            and memory.strides == c_strides(value.shape)
            and all(a.terms == ((n, 1),) for a, n in zip(index, NAMES, strict=True))
        )

    def _is_inside(self, value: Value, index: Index) -> bool:
        """Whether an index is one of the array, whatever the cell is."""
        last = dict(zip(NAMES, (n - 1 for n in self.shape), strict=True))
        for a, n in zip(index, value.shape, strict=True):
            low = a.const + sum(min(0, c * last[name]) for name, c in a.terms)
            high = a.const + sum(max(0, c * last[name]) for name, c in a.terms)
            if low < 0 or high >= n:
                return False
        return True

    def span(self, key: Value) -> Span | None:
        """Return the cells that are read of a value; None for none."""
        known = self.spans.get(key)
        if key not in self.own:
            return known
        low, high, left, right = known or (0, 0, 0, 0)
        return min(low, 0), max(high, 0), min(left, 0), max(right, 0)


def is_close(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether an array is as large as another one, but for a few rows and columns."""
    near_ = (0 <= n - m <= 4 * FAR for m, n in zip(shape, to, strict=False))
    return len(shape) == len(to) == 2 and all(near_)


class StripChain:
    """Groups that one kernel computes on the way down.

    Parameters
    ----------
    shape : tuple of int
        Of its largest arrays.

    Attributes
    ----------
    groups : list of Group
    reads : list of Reads
    producers : dict
        Number of the group that stores each value.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.groups: list[Group] = []
        self.reads: list[Reads] = []
        self.producers: dict[Value, int] = {}

    def add(self, group: Group, reads: Reads, stored: list[Value]) -> None:
        """Add a group."""
        self.producers.update((v, len(self.groups)) for v in stored)
        self.groups.append(group)
        self.reads.append(reads)

    def drop(self) -> None:
        """Take the last group away."""
        self.groups.pop()
        self.reads.pop()
        last = len(self.groups)
        self.producers = {k: n for k, n in self.producers.items() if n < last}

    def in_rings(self) -> dict[Value, None]:
        """Return the values whose rows are kept in rings: of the chain, or arrays it reads."""
        values: dict[Value, None] = {}
        for r in self.reads:
            again = r.spans.keys() | (r.own & self.producers.keys())
            values.update((v, None) for v in r.values if v in again)
        return values

    def lags(self) -> list[int]:
        """Return by how many iterations each group is behind what the chain begins with."""
        lag: list[int] = []
        for r in self.reads:
            behind = 0
            for key in r.values:
                span = r.span(key)
                if span is not None and (key in self.producers or key in r.spans):
                    producer = self.producers.get(key, -1)
                    behind = max(behind, (lag[producer] if producer >= 0 else 0) + span[1])
            lag.append(behind)
        return lag

    def sizes(self, march: int) -> StripSizes | None:
        """Return how the chain marches; None if it cannot, in up to `march` iterations of delay."""
        lag, ringed = self.lags(), self.in_rings()
        if any(r.elsewhere & (ringed.keys() | self.producers.keys()) for r in self.reads):
            return None
        rows, lead = dict.fromkeys(ringed, 1), 0
        before = [0] * len(lag)
        left, right = [0] * len(lag), [0] * len(lag)
        for k, r in enumerate(self.reads):
            for key in ringed.keys() & r.values.keys():
                low, _, first, last = r.span(key) or (0, 0, 0, 0)
                producer = self.producers.get(key, -1)
                behind = lag[k] - (lag[producer] if producer >= 0 else 0)
                rows[key] = max(rows[key], behind - low + 1)
                left[k] = max(left[k], (left[producer] if producer >= 0 else 0) - first)
                right[k] = max(right[k], (right[producer] if producer >= 0 else 0) + last)
        for k in reversed(range(len(lag))):
            r = self.reads[k]
            lead = max(lead, before[k] - lag[k])
            for key in ringed.keys() & r.values.keys():
                low = (r.span(key) or (0,))[0]
                producer = self.producers.get(key, -1)
                if producer >= 0:
                    before[producer] = max(before[producer], before[k] - low)
                else:
                    lead = max(lead, before[k] - low)
        size = max(v.dtype.itemsize for v in (*ringed, *self.producers))
        columns = strip_columns(size)
        pack = columns // 32
        halo = -(-max(*left, *right) // pack) * pack
        most = max(rows.values())
        cost = most * sum(r.cost for r in self.reads)
        # Each array that is only read has rows on their way, too.
        bytes_ = sum(
            (rows[k] + (k not in self.producers) * most) * pack * max(4, k.dtype.itemsize)
            for k in ringed
        )
        shapes = [v.shape for v in (*ringed, *self.producers)]
        if max(*lag, lead) > march or most > ROWS or 4 * halo > columns:
            return None
        if cost > TEXT or bytes_ > REGISTERS:
            return None
        # Rows and columns that go round do so once.
        if max(lag) + lead + 3 * most + 4 * FAR > min(n for n, _ in shapes):
            return None
        if any(columns + self.shape[1] > 2 * n for _, n in shapes):
            return None
        return StripSizes((self.shape[0], self.shape[1]), most, lead, halo, columns)


def find_chains(
    groups: list[Group], nodes: dict[int, Nodes], requested: Container[Value], target: Target
) -> list[StripChain]:
    """Return chains among groups that run one after the other."""
    chains: list[StripChain] = []
    if target.march < 2:
        return chains
    chain: StripChain | None = None
    for group in groups:
        stored = [m for m in group.members if m in requested]
        own = nodes.get(group.index)
        if group.kind != "rows" or own is None or group.totals or not stored:
            chain = None
            continue
        if chain is not None and len(chain.groups) < 2 * target.march:
            reads = _reads(own, stored, chain.shape)
            if reads is not None and any(k in chain.producers for k in reads.values):
                chain.add(group, reads, stored)
                if chain.sizes(target.march) is not None:
                    if len(chain.groups) == 2:
                        chains.append(chain)
                    continue
                chain.drop()
        shape = _shape(own, stored)
        reads = _reads(own, stored, shape)
        chain = None
        if reads is not None and reads.spans:
            chain = StripChain(shape)
            chain.add(group, reads, stored)
            if chain.sizes(target.march) is None:
                chain = None
    return chains


def _shape(nodes: Nodes, stored: list[Value]) -> tuple[int, ...]:
    """Return the shape that all arrays fit into which a group stores, and those it reads."""
    common = stored[0].shape
    others = [v.shape for v in stored] + [m.value.shape for m in nodes.memories.values()]
    for shape in others:
        if len(shape) == len(common) == 2:
            larger = tuple(map(max, shape, common))
            if is_close(shape, larger) and is_close(common, larger):
                common = larger
    return common


def _reads(nodes: Nodes, stored: list[Value], shape: tuple[int, ...]) -> Reads | None:
    """Return what a group reads, if its results are large arrays of about one shape."""
    for v in stored:
        plain = is_close(v.shape, shape) and v.dtype in PRINTABLE
        if not plain or v.size < LARGE or v not in nodes.by_value:
            return None
    reads = Reads([nodes.by_value[v] for v in stored], shape)
    moved = all(v.dtype in PRINTABLE for v in reads.values)
    return reads if reads.fits and moved else None


class Strips:
    """The steps of a chain.

    Parameters
    ----------
    chain : StripChain
    fusion : Fusion
    cloned : callable
        As for `Nodes`.
    requested : container of Value
        Values that are stored.
    external : callable
        ``external(value, groups)``: whether other groups than these read a value.
    """

    def __init__(
        self,
        chain: StripChain,
        fusion: Fusion,
        cloned: Cloned,
        requested: Container[Value],
        external: Callable[[Value, list[Group]], bool],
    ) -> None:
        self.chain = chain
        sizes = chain.sizes(1 << 30)
        assert sizes is not None
        self.sizes: StripSizes = sizes
        self.rings = {v: StripRows(v.dtype.name, v.shape) for v in chain.in_rings()}
        self.steps: list[StripStage] = []
        lag = chain.lags()
        at_hand: dict[Value, KernelNode] = {}
        for value, row in self.rings.items():
            if value not in chain.producers:
                memory = ValueMemory(value)
                maps = identity(value.shape)
                use = Use(value, maps, 0, memory.strides)
                ref = Ref(None, memory, None, linear(maps, memory.strides), use)
                node = loader(value, ref)
                self.steps.append(StripStage([node], [(node, row)], {}, 0, True))
                at_hand[value] = self._node(value)
        for k, group in enumerate(chain.groups):
            mine = [key for key in self.rings if chain.producers.get(key) == k]
            stored = [m for m in group.members if m in requested]
            wanted = [m for m in stored if m not in self.rings or external(m, chain.groups)]
            nodes = Nodes(group, fusion, cloned, dict(at_hand))
            rows = [(nodes.add(v), self.rings[v]) for v in mine]
            if rows:
                self.steps.append(StripStage(nodes.order, rows, {}, lag[k]))
            at_hand |= {key: self._node(key) for key in mine}
            if wanted:
                nodes = Nodes(group, fusion, cloned, dict(at_hand))
                stored_by = nodes.results(wanted)
                self.steps.append(StripStage(nodes.order, [], stored_by, lag[k]))
        members = {m for g in chain.groups for m in g.members}
        read = (r.memory for s in self.steps for node in s.order for r in node.args)
        self.valid = not any(m is not None and m.value in members for m in read)

    def orders(self) -> list[list[KernelNode]]:
        """Return the nodes of every step."""
        return [s.order for s in self.steps]

    def _node(self, value: Value) -> KernelNode:
        node = KernelNode(value, None)
        node.operation, node.shape, node.folded = FromRing(), value.shape, ()
        node.cost = 1
        node.ring = self.rings[value]
        return node
