"""Several stencil steps in one kernel of a GPU: a warp marches down a column strip.

Each iteration reads one row of what the chain begins with, and computes one row of every step,
some rows behind the step that it reads. The last rows of each array lie in local arrays, of
which a printer can keep each lane's columns in registers (`adarray.compiler.schedule.gpu.strips`).
Columns and rows beside those that a strip writes are computed again by the strips that need them,
and all arrays go round at their ends, so that a row or column always is one of the array;
what must not be read there is never chosen.

References
----------
- D. Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and network
  limitations", IPDPS 2000.
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012 (overlapped tiles).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from adarray.compiler.ir.loopir import (
    Apply,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    integer,
    walk,
)
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered, Lowering
from adarray.compiler.kernels.nodes import SAME, KernelNode, Ref, ValueMemory
from adarray.compiler.kernels.scope import Affine, LoopScope
from adarray.compiler.kernels.values import Index, Values
from adarray.compiler.schedule.gpu.strips import LANES, MARGIN, wrapped
from adarray.compiler.schedule.vectors import expressions
from adarray.compiler.stencil.lower_rings import rotation


class StripRows:
    """The last rows of a value, as columns of a strip.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
        Of the whole value.
    names : list of str
        Local arrays, which take rows round robin.
    """

    __slots__ = ("dtype", "names", "shape")

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.names: list[str] = []

    def find(self, values: Values, index: Index) -> tuple[str, Affine]:
        """Return the local array of a row, and where in it an element lies."""
        cell = values.stage
        assert isinstance(cell, Cell)
        row, column = (beside(index[a], self.shape[a], cell.shape[a]) for a in (0, 1))
        assert [i.terms for i in index] == [((n, 1),) for n in cell.names], index
        at = Affine(column, ((cell.iteration, 1),))
        return self.names[(cell.slot + row) % len(self.names)], at


class Cell:
    """Where the stage that is being written stands.

    Parameters
    ----------
    row, column : str
        Names of its row and column in the arrays.
    shape : tuple of int
        Of the arrays.
    slot : int
        Which of the local arrays takes its row.
    iteration : str
        The variable of the vector loop, which counts the columns of the strip from `MARGIN` on.
    """

    # Indices stay as they are, whatever is read at them: see `Values._inside`.
    unbounded = True

    def __init__(
        self, row: str, column: str, shape: tuple[int, ...], slot: int, iteration: str
    ) -> None:
        self.names = (row, column)
        self.shape = shape
        self.slot = slot
        self.iteration = iteration

    def one_row(self, axis: int, node: KernelNode, index: Index) -> tuple[Ref, Index] | None:
        """Return the one reading that all pieces of a concatenation are, if it is a rotation."""
        operand = rotated(axis, node, index, self.names, self.shape)
        return operand if operand is not None and operand[0].node is not None else None


def near(shift: int, count: int) -> int:
    """Return a distance in arrays of `count` rows, round the end where that is nearer."""
    if 2 * abs(shift) > count:
        shift += -count if shift > 0 else count
    return shift


def beside(index: Affine, count: int, all_: int) -> int:
    """Return by how much an index of an array is beside that of the cell.

    Arrays that are as long as the longest one go round at their ends, like all indices.
    """
    return near(index.const, count) if count == all_ else index.const


def rotated(
    axis: int, node: KernelNode, index: Index, names: tuple[str, ...], shape: tuple[int, ...]
) -> tuple[Ref, Index] | None:
    """Return the one reading that all pieces of a concatenation are, counted round the ends."""
    for name, count in zip(names, shape, strict=True):
        if index[axis].terms == ((name, 1),):
            return rotation(axis, node, index, ((name, 1),), partial(near, count=count))
    return None


@dataclass(frozen=True, slots=True, eq=False)
class StripStage:
    """A stage: the values of one group, or of an array that is read.

    Parameters
    ----------
    order : list of KernelNode
        All that it computes.
    rings : list of (KernelNode, Row)
        Values of which later stages read rows.
    stored : dict
        Memory of the results that it writes.
    lag : int
        Iterations by which it is behind.
    reads : bool
        Whether it only reads an array.
    """

    order: list[KernelNode]
    rings: list[tuple[KernelNode, StripRows]]
    stored: dict[KernelNode, ValueMemory]
    lag: int
    reads: bool = False


class StripSizes(NamedTuple):
    """How a chain marches.

    Parameters
    ----------
    shape : tuple of int
        Of its largest arrays; others are some rows or columns shorter.
    rows : int
        Last rows that are kept of each array.
    lead : int
        Iterations before the first row that is written, less the lag of what writes it.
    halo : int
        Columns on either side of a strip that others write.
    columns : int
        Of a strip, with these.
    """

    shape: tuple[int, int]
    rows: int
    lead: int
    halo: int
    columns: int


def write(
    steps: list[StripStage], rows: list[StripRows], sizes: StripSizes, target: Target
) -> Lowered:
    """Return the kernel of a chain."""
    return _Writer(steps, rows, sizes, target).run()


class _Writer:
    """The kernel in the making."""

    def __init__(
        self, steps: list[StripStage], rows: list[StripRows], sizes: StripSizes, target: Target
    ) -> None:
        self.steps = steps
        self.rows = rows
        self.sizes = sizes
        self.fetched: dict[StripStage, list[str]] = {}
        self.base = Lowering([], {}, -1, [], target=target)
        self.scope: LoopScope = self.base.scope
        self.values: Values = self.base.values
        self.last = max(s.lag for s in steps if s.stored)
        self.height = height(sizes, self.last, target)

    def run(self) -> Lowered:
        """Return the kernel."""
        scope, sizes = self.scope, self.sizes
        for s in self.steps:
            self.base.written |= {self.values.buffer(m) for m in s.stored.values()}
        count, self.width = self._extents(sizes.shape)
        own = sizes.columns - 2 * sizes.halo
        across = scope.number("across", -(-sizes.shape[1] // own), literal=False)
        high = scope.number("height", self.height, literal=False)
        scope.open()
        down = -(-sizes.shape[0] // self.height)
        strip = Var("int64", scope.index_name("strip", 0, down * -(-sizes.shape[1] // own) - 1, 1))
        part = self._let("part", Apply("int64", "floor_divide", (strip, across)))
        column = _minus(strip, Apply("int64", "multiply", (part, across)))
        first = Apply("int64", "multiply", (column, integer(own)))
        self.left = self._let("left", _minus(first, integer(sizes.halo + MARGIN)))
        self.first = self._let("first", Apply("int64", "multiply", (part, high)))
        self.count = count
        rest = _minus(count, self.first)
        self.mine = self._let("mine", Apply("int64", "minimum", (high, rest)))
        size = integer(sizes.columns + 2 * MARGIN)
        for row in self.rows:
            row.names = [scope.fresh("row") for _ in range(sizes.rows)]
            scope.emit(*(Local(name, row.dtype, size) for name in row.names))
        for s in self.steps:
            if s.reads:  # rows that are on their way from memory
                names = self.fetched[s] = [scope.fresh("ahead") for _ in range(sizes.rows)]
                scope.emit(*(Local(name, s.rings[0][1].dtype, size) for name in names))
                for k in range(sizes.rows):
                    behind = integer(k - sizes.lead)
                    self._fetch(s, self._let(("ahead", s, k), _plus(self.first, behind)), k)
        self._march()
        body = scope.close()
        upper = _plus(count, _minus(high, integer(1)))
        parts = Apply("int64", "floor_divide", (upper, high))
        stop = Apply("int64", "multiply", (parts, across))
        scope.emit(For(strip.name, integer(0), stop, body, "parallel"))
        top = scope.levels[0].statements
        top[:] = needed(tuple(top), set())
        return self.base.kernel()

    def _let(self, key: object, expr: Expr) -> Expr:
        return self.scope.let(("strip", key), expr, self.scope.here)[0]

    def _march(self) -> None:
        """Write the loop over iterations, as many in its body as there are rows of each array."""
        scope, rows = self.scope, self.sizes.rows
        iterations = _plus(self.mine, integer(self.sizes.lead + self.last + rows - 1))
        scope.open()
        most = self.height + self.sizes.lead + self.last
        block = Var("int64", scope.index_name("block", 0, -(-most // rows), scope.here))
        begin = self._let("begin", Apply("int64", "multiply", (block, integer(rows))))
        for k in range(rows):
            for s in self.steps:
                self._step(s, begin, k)
        body = scope.close()
        stop = Apply("int64", "floor_divide", (iterations, integer(rows)))
        scope.emit(For(block.name, integer(0), stop, body, "serial"))

    def _step(self, s: StripStage, begin: Expr, k: int) -> None:
        """Write what one stage does in iteration `k` of the body: one row."""
        scope, sizes = self.scope, self.sizes
        behind = integer(k - sizes.lead - s.lag)
        own = self._let(("own", s, k), _plus(begin, behind))
        row = self._let(("row", s, k), _plus(self.first, own))
        if s.reads:
            scope.open()
            cell = self._cell(row, k)
            at, _ = scope.index(Affine(0, ((cell.iteration, 1),)))
            dtype = s.rings[0][1].dtype
            arrived = self._let("arrived", Load(dtype, self.fetched[s][k], at))
            scope.emit(Store(s.rings[0][1].names[k], at, arrived))
            self._loop(cell, integer(MARGIN), integer(MARGIN + sizes.columns))
            self._fetch(s, self._let(("next", s, k), _plus(row, integer(sizes.rows))), k)
        elif s.rings:
            round_ = self._let(("round", s, k), wrapped(row, self.count))
            self._name(round_, 0, sizes.shape[0] - 1)
            scope.open()
            cell = self._cell(round_, k - s.lag)
            for node, ring in s.rings:
                index = tuple(Affine(0, ((n, 1),)) for n in cell.names)
                value, _ = self.values.value(node, index)
                at, _ = scope.index(Affine(0, ((cell.iteration, 1),)))
                scope.emit(Store(ring.names[(k - s.lag) % sizes.rows], at, value))
            self._loop(cell, integer(MARGIN), integer(MARGIN + sizes.columns))
        for shape in dict.fromkeys(m.value.shape for m in s.stored.values()):
            self._results(s, shape, own, row, k)

    def _fetch(self, s: StripStage, row: Expr, k: int) -> None:
        """Write the loads of a row of an array, for some iterations later."""
        rows, columns = self._extents(s.rings[0][1].shape)
        round_ = self._let(("round", s, row), wrapped(row, self.count, rows))
        self._name(round_, 0, self.sizes.shape[0] - 1)
        self.scope.open()
        cell = self._cell(round_, k, columns)
        value, _ = self.values.value(s.order[0], tuple(Affine(0, ((n, 1),)) for n in cell.names))
        at, _ = self.scope.index(Affine(0, ((cell.iteration, 1),)))
        self.scope.emit(Store(self.fetched[s][k], at, value))
        self._loop(cell, integer(MARGIN), integer(MARGIN + self.sizes.columns))

    def _name(self, named: Expr, low: int, high: int) -> None:
        """Let a named value be a term of indices, in the innermost level."""
        assert isinstance(named, Var)
        scope = self.scope
        scope.depth[named.name] = scope.here
        scope.range[named.name] = (low, high)
        scope.levels[scope.here].names.append(named.name)

    def _extents(self, shape: tuple[int, ...]) -> tuple[Expr, Expr]:
        """Return the numbers of rows and columns of an array."""
        rows, columns = zip(("rows", "columns"), shape, strict=True)
        return (
            self.scope.number(*rows, literal=False), self.scope.number(*columns, literal=False)
        )  # fmt: skip

    def _cell(self, row: Expr, slot: int, own: Expr | None = None) -> Cell:
        """Begin a vector loop over the columns of the strip, whose level is open.

        What is read may be an array that has fewer columns of its `own`.
        """
        scope, sizes = self.scope, self.sizes
        assert isinstance(row, Var)
        iteration = Var(
            "int64", scope.index_name("j", MARGIN, MARGIN + sizes.columns - 1, scope.here)
        )
        at = Apply("int64", "add", (self.left, iteration))
        column = self._let(("column", iteration.name), wrapped(at, self.width, own))
        self._name(column, 0, sizes.shape[1] - 1)
        assert isinstance(column, Var)
        cell = Cell(row.name, column.name, sizes.shape, slot, iteration.name)
        self.values.stage = cell
        self.values.vector_depth = self.values.row_depth = scope.here
        return cell

    def _loop(self, cell: Cell, start: Expr, stop: Expr) -> None:
        """End a vector loop."""
        self.values.stage = None
        self.values.vector_depth, self.values.row_depth = -1, 1
        self.scope.emit(For(cell.iteration, start, stop, self.scope.close(), "vector"))

    def _results(self, s: StripStage, shape: tuple[int, ...], own: Expr, row: Expr, k: int) -> None:
        """Write a row of all results of a shape, the columns that are the strip's own."""
        scope, sizes = self.scope, self.sizes
        rows, columns = self._extents(shape)
        mine = self.mine
        if rows != self.count:
            mine = Apply("int64", "minimum", (mine, _minus(rows, self.first)))
        inside = Apply("bool", "logical_and", (
            Apply("bool", "greater_equal", (own, integer(0))), Apply("bool", "less", (own, mine))
        ))  # fmt: skip
        round_ = self._let(("round", s, k, shape), wrapped(row, self.count))
        self._name(round_, 0, sizes.shape[0] - 1)
        start, last = (integer(MARGIN + n) for n in (sizes.halo, sizes.columns - sizes.halo))
        rest = Apply("int64", "minimum", (last, _minus(columns, self.left)))
        # No iteration, rather than a branch: rows before and behind overlap in time.
        stop = Apply("int64", "where", (inside, rest, start))
        scope.open()
        cell = self._cell(round_, k - s.lag)
        index = tuple(Affine(0, ((n, 1),)) for n in cell.names)
        for node in s.order:
            memory = s.stored.get(node)
            if memory is None or memory.value.shape != shape:
                continue
            value, _ = self.values.value(node, index)
            assert memory.strides[1] == 1
            assert memory.offset == 0
            down = scope.number("stride", memory.strides[0])
            column = _plus(self.left, Var("int64", cell.iteration))
            at = _plus(Apply("int64", "multiply", (row, down)), column)
            scope.emit(Store(self.values.buffer(memory), at, value))
        self._loop(cell, start, stop)


def height(sizes: StripSizes, last: int, target: Target) -> int:
    """Return how many rows each strip writes, so that threads take the fewest rows one by one.

    In low strips more rows are computed more than once; in high ones the last strips leave
    more of the SMs idle.
    """
    fewest, most = target.strip
    across = -(-sizes.shape[1] // (sizes.columns - 2 * sizes.halo))
    more = sizes.lead + last + sizes.rows

    def iterations(rows: int) -> int:
        rounds = -(-across * -(-sizes.shape[0] // rows) // target.strips)
        return max(rounds, 2) * (rows + more)

    return min(range(min(fewest, sizes.shape[0]), min(most, sizes.shape[0]) + 1), key=iterations)


def needed(body: tuple[Stmt, ...], used: set[str]) -> tuple[Stmt, ...]:
    """Return statements without names that nothing reads; `used` are those read later."""
    remaining: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, Let) and s.name not in used:
            continue
        if isinstance(s, For | If):
            s = replace(s, body=needed(s.body, used))
        used |= {e.name for x in expressions(s) for e in walk(x) if isinstance(e, Var)}
        remaining.append(s)
    return tuple(reversed(remaining))


def _plus(a: Expr, b: Expr) -> Expr:
    return Apply("int64", "add", (a, b))


def _minus(a: Expr, b: Expr) -> Expr:
    return Apply("int64", "subtract", (a, b))


def strip_columns(itemsize: int) -> int:
    """Return the columns of a strip: a pack of 16 bytes for each lane."""
    return LANES * max(1, min(4, 16 // itemsize))


def loader(value: Value, ref: Ref) -> KernelNode:
    """Return a node that is what `ref` reads of an array in memory."""
    node = KernelNode(value, None)
    node.operation, node.shape, node.folded = SAME, value.shape, ()
    node.args = [ref]
    return node
