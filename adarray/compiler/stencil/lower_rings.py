"""Several stencil steps in one kernel: every step's last rows stay in a ring of rows.

Step after step of a stencil would read and write the whole array each time. Here a block
of rows goes through several steps at once: iteration after iteration, each step computes one row,
some rows behind the step that it reads, whose last rows are in the cache. Rows beside the
block are computed again by the blocks that need them.

References
----------
- D. Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and network
  limitations", IPDPS 2000.
- S. Krishnamoorthy et al., "Effective automatic parallelization of stencil computations", PLDI 2007
  (overlapped tiles).
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013 (sliding windows).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from adarray.compiler.ir.loopir import Apply, Expr, For, If, Local, Var, integer
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered, Lowering
from adarray.compiler.kernels.nodes import KernelNode, Ref
from adarray.compiler.kernels.scope import Affine, LoopScope, combine
from adarray.compiler.kernels.values import Index, Values, mapped

# Elements between rows of a ring.
PADDING = 24


class Ring:
    """The last rows of a value.

    Attributes
    ----------
    name : str
        Local array.
    axis : int
        Which axis of the value counts rows.
    rows : int
        Rows that are kept, a power of two.
    strides : tuple of int
        Of the other axes, within a row.
    width : int
        Elements from one row to the next.
    """

    __slots__ = ("axis", "name", "rows", "strides", "width")

    def __init__(self, shape: tuple[int, ...], axis: int) -> None:
        self.name = ""
        self.axis = axis
        self.rows = 0
        strides, step = [0] * len(shape), 1
        for a in reversed(range(len(shape))):
            if a != axis:
                strides[a] = step
                step *= shape[a]
        self.strides = tuple(strides)
        # Rows at multiples of 4096 bytes would fight for the same lines of the cache.
        self.width = -(-step // 8) * 8 + PADDING

    def find(self, values: Values, index: Index) -> tuple[str, Affine]:
        """Return the array that holds an element, and where it lies in it."""
        return self.name, self.element(values, index)

    def element(self, values: Values, index: Index) -> Affine:
        """Return where an element lies in the ring, as the present stage sees it."""
        parts = [(s, i) for s, i in zip(self.strides, index, strict=True) if s]
        assert isinstance(values.stage, Position)
        return combine([*parts, (1, values.stage.slot(self, index[self.axis]))])


class RingStage(NamedTuple):
    """One step of the pipeline.

    Parameters
    ----------
    lowering : Lowering
    before, after : int
        Rows that it computes beside those of the block.
    lag : int
        Iterations by which it is behind the first stage.
    rotates : bool
        Whether it reads rows of rings round the end of the array.
    """

    lowering: Lowering
    before: int
    after: int
    lag: int
    rotates: bool


class Position:
    """Where the stage that is being written stands: the names of its row and iteration."""

    # Whether an index that must not be used is left as it is: see `Values._inside`.
    unbounded = False

    def __init__(
        self, scope: LoopScope, row: str, iteration: str, count: int, periodic: bool
    ) -> None:
        self.scope = scope
        self.row = row
        self.iteration = iteration
        self.count = count
        self.periodic = periodic

    def slot(self, ring: Ring, at: Affine) -> Affine:
        """Return where row `at` of a ring begins."""
        scope = self.scope
        shift = combine([(1, at), (-1, Affine(0, ((self.row, 1),)))])
        if not shift.terms:
            shift = Affine(self.near(shift.const))
            positive = 64 * ring.rows
        else:
            positive = -(-self.count // ring.rows + 64) * ring.rows
        iteration = combine([(1, shift), (1, Affine(0, ((self.iteration, 1),)))], positive)
        key = ("slot", ring.name, iteration)
        hit = scope.memo.get(key)
        if hit is None:
            expr, depth = scope.index(iteration)
            wrapped = Apply("int64", "bitwise_and", (expr, integer(ring.rows - 1)))
            width = scope.number("width", ring.width, literal=False)
            hit = scope.let(key, Apply("int64", "multiply", (wrapped, width)), depth)
            name = hit[0].name  # type: ignore[attr-defined]
            scope.depth[name] = depth
            scope.range[name] = (0, (ring.rows - 1) * ring.width)
            scope.levels[depth].names.append(name)
        return Affine(0, ((hit[0].name, 1),))  # type: ignore[attr-defined]

    def near(self, shift: int) -> int:
        """Return a distance between rows; those of periodic arrays are taken round the end."""
        if self.periodic and 2 * abs(shift) > self.count:
            shift += -self.count if shift > 0 else self.count
        return shift

    def one_row(self, axis: int, node: KernelNode, index: Index) -> tuple[Ref, Index] | None:
        """Return the one reading that all concatenated pieces are, if it is a rotation of rows."""
        if not self.periodic:
            return None
        operand = rotation(axis, node, index, ((self.row, 1),), self.near)
        return operand if operand is not None and operand[0].node is not None else None


def rotation(
    axis: int,
    node: KernelNode,
    index: Index,
    row: tuple[tuple[str, int], ...],
    near: Callable[[int], int],
) -> tuple[Ref, Index] | None:
    """Return the one reading that all pieces of a concatenation of rows are, counted round the end.

    Parameters
    ----------
    axis : int
        Along which the pieces lie.
    node : KernelNode
        The concatenation.
    index : tuple of Affine
        Of the element that is read.
    row : tuple
        Terms of an index that counts rows.
    near : callable
        Gives a distance between rows, round the end where that is nearer.
    """
    at = index[axis]
    if at.terms != row:
        return None
    pieces = []
    start = 0
    for a, ref in zip(node.value.args, node.args, strict=True):
        if ref.use is None or ref.use.maps is None:
            return None
        if a.shape[axis]:
            pieces.append((a.shape[axis], start, ref, mapped(ref.use.maps, index)))
        start += a.shape[axis]
    _, _, chosen, longest = max(pieces, key=lambda p: p[0])
    rows = [k for k, i in enumerate(longest) if i.terms == row]
    indices: set[Index] = set()
    for n, start, ref, seen in pieces:
        if ref.use is None or chosen.use is None or ref.use.root is not chosen.use.root:
            return None
        normal = list(seen)
        for k in rows:
            const, terms = seen[k]
            if n == 1 and not terms:
                const, terms = const - start + at.const, row  # where the piece is read
            normal[k] = Affine(near(const), terms) if terms == row else Affine(const, terms)
        indices.add(tuple(normal))
    return (chosen, indices.pop()) if len(indices) == 1 else None


def write(
    stages: list[RingStage], rings: list[Ring], count: int, periodic: bool, target: Target
) -> Lowered:
    """Return the kernel of a pipeline over `count` rows."""
    base = stages[0].lowering
    scope, values = base.scope, base.values
    for stage in stages:
        stage.lowering.declare()
    fewest, most = target.block
    rows = max(fewest, min(most, -(-count // 8)))
    n = scope.number("rows", count, literal=False)
    scope.open()
    block = scope.index_name("block", 0, max(0, -(-count // rows) - 1), 1)
    size = integer(rows)
    first = scope.let("first", Apply("int64", "multiply", (Var("int64", block), size)), 1)[0]
    end = Apply("int64", "minimum", (Apply("int64", "add", (first, size)), n))
    mine = scope.let("mine", Apply("int64", "subtract", (end, first)), 1)[0]
    for ring in rings:
        ring.name = scope.fresh("ring")
        width = scope.number("width", ring.width, literal=False)
        scope.emit(
            Local(
                ring.name,
                _dtype(stages, ring),
                Apply("int64", "multiply", (integer(ring.rows), width)),
            )
        )
    lead = stages[0].before
    scope.open()
    step = scope.index_name("step", 0, rows + 64, scope.here)
    for stage in stages:
        _stage(stage, scope, values, (step, lead), (first, mine, n), count, periodic, most)
    body = scope.close()
    iterations = max(lead + s.lag + s.after for s in stages)
    stop = Apply("int64", "add", (mine, integer(iterations)))
    scope.emit(For(step, integer(0), stop, body, "serial"))
    body = scope.close()
    blocks = Apply("int64", "floor_divide", (Apply("int64", "add", (n, integer(rows - 1))), size))
    scope.emit(For(block, integer(0), blocks, body, "parallel"))
    return base.kernel()


def _dtype(stages: list[RingStage], ring: Ring) -> str:
    for stage in stages:
        for node in stage.lowering.order:
            if stage.lowering.stored.get(node) is ring:
                return node.dtype
    raise AssertionError("a ring that no stage writes")


def _stage(
    stage: RingStage,
    scope: LoopScope,
    values: Values,
    at: tuple[str, int],
    block: tuple[Expr, Expr, Expr],
    count: int,
    periodic: bool,
    most: int,
) -> None:
    """Write one stage in one iteration: a row, if it is one that the block needs."""
    step, lead = at
    first, mine, n = block
    depth = scope.here
    behind = integer(lead + stage.lag)
    iteration = scope.let(
        ("iteration", stage.lowering),
        Apply("int64", "subtract", (Var("int64", step), behind)),
        depth,
    )[0]
    zero = integer(0)
    conditions: list[Expr] = [
        Apply("bool", "greater_equal", (iteration, integer(-stage.before))),
        Apply("bool", "less", (iteration, Apply("int64", "add", (mine, integer(stage.after))))),
    ]
    row = scope.let(("row", stage.lowering), Apply("int64", "add", (first, iteration)), depth)[0]
    if not periodic:
        conditions.append(Apply("bool", "greater_equal", (row, zero)))
        conditions.append(Apply("bool", "less", (row, n)))
    elif stage.before or stage.after:
        below = Apply("int64", "where", (
            Apply("bool", "less", (row, zero)), Apply("int64", "add", (row, n)), row
        ))  # fmt: skip
        low = scope.let(("low", stage.lowering), below, depth)[0]
        above = Apply("int64", "where", (
            Apply("bool", "greater_equal", (low, n)), Apply("int64", "subtract", (low, n)), low
        ))  # fmt: skip
        row = scope.let(("wrapped", stage.lowering), above, depth)[0]
    condition = conditions[0]
    for other in conditions[1:]:
        condition = Apply("bool", "logical_and", (condition, other))
    scope.open()
    here = scope.here
    names = []
    for expr, low_, high in ((row, 0, count - 1), (iteration, -64, most + 64)):
        name = expr.name  # type: ignore[attr-defined]
        # Known inside of the branch alone, so that nothing moves out of it.
        scope.depth[name] = here
        scope.range[name] = (low_, high)
        scope.levels[here].names.append(name)
        names.append(name)
    values.stage = Position(scope, names[0], names[1], count, stage.rotates)
    values.row_depth = here
    lowering = stage.lowering
    lowering.vars[lowering.outer] = names[0]
    lowering.write_iteration()
    values.stage = None
    values.row_depth = 1
    scope.emit(If(condition, scope.close()))
