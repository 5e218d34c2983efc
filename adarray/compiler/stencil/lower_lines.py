"""Several steps of a stencil on a line in one kernel of a GPU: a warp takes a strip of the line.

Each warp loads its strip of the arrays that the kernel begins with, and some cells on either side;
step after step it computes the same cells of each array, which are register-resident (see
`adarray.compiler.schedule.gpu.strips`): lanes read their neighbours' cells, and nothing waits. What
is computed near the ends of a strip is wrong for lack of neighbours, some cells farther inside with
every step; those cells are the neighbouring strips' own, and are not stored. As in `lower_strips`,
indices go round at the ends of the line; what must not be read there is never chosen.

References
----------
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012 (overlapped tiles).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from adarray.compiler.ir.loopir import STRIDE, Apply, Expr, For, Load, Local, Store, Var, integer
from adarray.compiler.ir.program import c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered, Lowering
from adarray.compiler.kernels.nodes import KernelNode, Ref, ValueMemory
from adarray.compiler.kernels.scope import Affine
from adarray.compiler.kernels.values import Index, Values
from adarray.compiler.schedule.gpu.strips import MARGIN, wrapped
from adarray.compiler.stencil.lower_strips import near, needed, rotated


class LineRow:
    """The cells of a value that belong to a strip.

    Attributes
    ----------
    dtype : str
    count : int
        Elements of the whole value.
    name : str
        The local array.
    """

    __slots__ = ("count", "dtype", "name")

    def __init__(self, dtype: str, count: int) -> None:
        self.dtype = dtype
        self.count = count
        self.name = ""

    def find(self, values: Values, index: Index) -> tuple[str, Affine]:
        """Return the local array, and where in it an element lies."""
        cell = values.stage
        assert isinstance(cell, LineCell)
        at = index[-1]
        assert at.terms == ((cell.names[-1], 1),), index
        return self.name, Affine(near(at.const, cell.count), ((cell.iteration, 1),))


class LineCell:
    """Where the stage that is being written stands.

    Parameters
    ----------
    names : tuple of str
        Names of the indices of its cell in the arrays.
    count : int
        Elements of the longest lines.
    iteration : str
        The variable of the vector loop, which counts the cells of the strip from `MARGIN` on.
    """

    # Indices stay as they are, whatever is read at them: see `Values._inside`.
    unbounded = True

    def __init__(self, names: tuple[str, ...], count: int, iteration: str) -> None:
        self.names = names
        self.count = count
        self.iteration = iteration

    def one_row(self, axis: int, node: KernelNode, index: Index) -> tuple[Ref, Index] | None:
        """Return the one reading that all pieces of a concatenation are, if it is a rotation."""
        operand = rotated(axis, node, index, self.names[-1:], (self.count,))
        return operand if operand is not None and operand[0].node is not None else None


@dataclass(frozen=True, slots=True, eq=False)
class LineStage:
    """A stage: one value of all cells of a strip.

    Parameters
    ----------
    order : list of KernelNode
        All that is computed for it.
    node : KernelNode
        The value.
    row : LineRow
        Where it goes.
    loads : bool
        Whether it only loads an array.
    stored : ValueMemory or None
        Memory of the value, if it is a result.
    """

    order: list[KernelNode]
    node: KernelNode
    row: LineRow
    loads: bool = False
    stored: ValueMemory | None = None


class LineSizes(NamedTuple):
    """How lines are divided.

    Parameters
    ----------
    shape : tuple of int
        Of the longest arrays, whose last axis is that of lines; others have some elements fewer.
    halo : int
        Cells on either side of a strip that other strips store.
    columns : int
        Cells of a strip, with these.
    """

    shape: tuple[int, ...]
    halo: int
    columns: int

    @property
    def own(self) -> int:
        """Cells that a strip stores."""
        return self.columns - 2 * self.halo


def write(stages: list[LineStage], sizes: LineSizes, target: Target) -> Lowered:
    """Return the kernel of some stages, in the order in which they can run."""
    return _Writer(stages, sizes, target).run()


class _Writer:
    """The kernel in the making."""

    def __init__(self, stages: list[LineStage], sizes: LineSizes, target: Target) -> None:
        self.stages = stages
        self.sizes = sizes
        self.base = Lowering([], {}, -1, [], target=target)
        self.scope = self.base.scope
        self.values = self.base.values

    def run(self) -> Lowered:
        """Return the kernel."""
        scope, sizes = self.scope, self.sizes
        stored = [s.stored for s in self.stages if s.stored is not None]
        self.base.written |= {self.values.buffer(m) for m in stored}
        *lead, count = sizes.shape
        self.count = self._extent(count)
        across = -(-count // sizes.own)
        strips = self._across = scope.number("across", across, literal=False)
        lines = math.prod(lead)
        if lines > 1:
            strips = Apply("int64", "multiply", (strips, scope.number("lines", lines, False)))
        scope.open()
        strip = Var("int64", scope.index_name("strip", 0, lines * across - 1, 1))
        first = Apply("int64", "multiply", (self._begin(strip, lead), integer(sizes.own)))
        before = integer(sizes.halo + MARGIN)
        self.left = scope.let("left", Apply("int64", "subtract", (first, before)), 1)[0]
        for s in self.stages:
            s.row.name = scope.fresh("row")
            scope.emit(Local(s.row.name, s.row.dtype, integer(sizes.columns + 2 * MARGIN)))
        for s in self.stages:
            self._stage(s)
        scope.emit(For(strip.name, integer(0), strips, scope.close(), "parallel"))
        top = scope.levels[0].statements
        top[:] = needed(tuple(top), set())
        return self.base.kernel()

    def _begin(self, strip: Var, lead: list[int]) -> Expr:
        """Name the line that a strip is of; return which of its strips it is."""
        self.lead: tuple[str, ...] = ()
        self.line: Expr = integer(0)
        if math.prod(lead) == 1:
            self.lead = tuple(self._named(integer(0), 0) for _ in lead)
            return strip
        line, rest = self._divided(strip, self._across)
        self.line = line
        for n in reversed(lead[1:]):
            line, own = self._divided(line, self.scope.number("lead", n, literal=False))
            self.lead = (self._named(own, n - 1), *self.lead)
        self.lead = (self._named(line, lead[0] - 1), *self.lead)
        return rest

    def _divided(self, a: Expr, by: Expr) -> tuple[Expr, Expr]:
        """Return the whole part and the rest of a division, named."""
        scope = self.scope
        whole, _ = scope.let(("whole", a, by), Apply("int64", "floor_divide", (a, by)), 1)
        less = Apply("int64", "multiply", (whole, by))
        rest, _ = scope.let(("rest", a, by), Apply("int64", "subtract", (a, less)), 1)
        return whole, rest

    def _named(self, expr: Expr, last: int) -> str:
        """Let an expression be a term of indices, up to `last`; return its name."""
        scope = self.scope
        if not isinstance(expr, Var):
            expr = scope.let(("lead", expr, len(self.lead)), expr, scope.here)[0]
        assert isinstance(expr, Var)
        scope.depth[expr.name] = scope.here
        scope.range[expr.name] = (0, last)
        scope.levels[scope.here].names.append(expr.name)
        return expr.name

    def _extent(self, count: int) -> Expr:
        return self.scope.number("columns", count, literal=False)

    def _stage(self, s: LineStage) -> None:
        """Write the loops of a stage."""
        scope, sizes = self.scope, self.sizes
        cell = self._cell(self._extent(s.row.count) if s.loads else None)
        names = cell.names[-len(s.node.shape) :]
        value, _ = self.values.value(s.node, tuple(Affine(0, ((n, 1),)) for n in names))
        at, _ = scope.index(Affine(0, ((cell.iteration, 1),)))
        scope.emit(Store(s.row.name, at, value))
        self._loop(cell, integer(MARGIN), integer(MARGIN + sizes.columns))
        if s.stored is not None:
            self._result(s.row, s.stored)

    def _result(self, row: LineRow, memory: ValueMemory) -> None:
        """Write the loop that stores the cells of a result that are the strip's own."""
        scope, sizes = self.scope, self.sizes
        assert memory.strides == c_strides(memory.value.shape)
        assert memory.offset == 0
        start, last = (integer(MARGIN + n) for n in (sizes.halo, sizes.columns - sizes.halo))
        rest = Apply("int64", "subtract", (self._extent(row.count), self.left))
        scope.open()
        iteration = Var("int64", self._iteration())
        at = Apply("int64", "add", (self.left, iteration))
        if self.line != integer(0):
            down = self.scope.number(STRIDE, row.count, literal=False)
            at = Apply("int64", "add", (Apply("int64", "multiply", (self.line, down)), at))
        value = Load(row.dtype, row.name, iteration)
        scope.emit(Store(self.values.buffer(memory), at, value))
        stop = Apply("int64", "minimum", (last, rest))
        scope.emit(For(iteration.name, start, stop, scope.close(), "vector"))

    def _iteration(self) -> str:
        last = MARGIN + self.sizes.columns - 1
        return self.scope.index_name("j", MARGIN, last, self.scope.here)

    def _cell(self, own: Expr | None) -> LineCell:
        """Begin a vector loop over the cells of the strip.

        What is loaded may be an array that has fewer elements of its `own`.
        """
        scope = self.scope
        scope.open()
        iteration = Var("int64", self._iteration())
        at = Apply("int64", "add", (self.left, iteration))
        column, _ = scope.let(("column", iteration.name), wrapped(at, self.count, own), scope.here)
        count = self.sizes.shape[-1]
        cell = LineCell((*self.lead, self._named(column, count - 1)), count, iteration.name)
        self.values.stage = cell
        self.values.vector_depth = self.values.row_depth = scope.here
        return cell

    def _loop(self, cell: LineCell, start: Expr, stop: Expr) -> None:
        """End a vector loop."""
        self.values.stage = None
        self.values.vector_depth, self.values.row_depth = -1, 1
        self.scope.emit(For(cell.iteration, start, stop, self.scope.close(), "vector"))
