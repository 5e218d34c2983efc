"""Lowering: a group of values becomes a kernel of loop IR.

The outer loop runs over rows, or over blocks of rows where rows are short: then rows are
the innermost, vector loop. Every iteration is a sequence of nests (see `lower_stages`).

References
----------
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013.
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from adarray.compiler.ir.loopir import (
    Apply,
    Expr,
    Fold,
    For,
    Kernel,
    Local,
    Param,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.primitives import Concatenate, UpdateSlice
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import CPU, Target
from adarray.compiler.kernels.joint import joins
from adarray.compiler.kernels.loop_nests import WIDE, LoopNests, NestWork
from adarray.compiler.kernels.nodes import Folded, KernelNode, ValueMemory
from adarray.compiler.kernels.rows import in_blocks
from adarray.compiler.kernels.scope import NOTHING, Affine, LoopScope
from adarray.compiler.kernels.spread import SHORT, spread
from adarray.compiler.kernels.stages import Stages
from adarray.compiler.kernels.values import Stored, Values

# Rows of a block: without local arrays, and at most and at least with them.
BLOCK, MOST, LEAST = 4096, 1024, 64
# Blocks at least, as long as they are not shorter than that many rows: threads share them.
BLOCKS = 16
# Rows from which on blocks of a GPU are so large: below, there are more of them, and smaller ones.
SHARED_OUT = ((1 << 21, BLOCK), (1 << 19, 1024), (0, 256))
# Bytes of local arrays that a block of rows may take.
LOCAL_BYTES = 96 * 1024


class Lowered(NamedTuple):
    """A kernel, the values whose memory its buffers are, and its integers."""

    kernel: Kernel
    buffers: tuple[Value, ...]
    ints: tuple[int, ...]


class Lowering(LoopNests):
    """One kernel in the making.

    Parameters
    ----------
    order : list of KernelNode
        All nodes of the kernel, operands first.
    stored : dict
        Memory of the nodes whose results are written.
    outer : int
        Class of the outer loop, -1 if there is none.
    extents : list of int
        Of each class.
    base : Lowering, optional
        Another stage of the same kernel, whose names and buffers are shared.
    rows : bool
        Whether rows are computed one by one, rather than in blocks if they are short.
    target : Target
    wide : bool
        Whether the outer loop of few rows runs over what all nests have in common, too, and vector
        loops are the longest ones where others would leave most threads of a block nothing to do.
    most : int
        Iterations from which on an outer loop runs over no more loops.
    flat : bool
        Whether nests that fold all their iterations are one loop, which threads of a row share.

    Attributes
    ----------
    narrow : bool
        Whether loops would be others if `wide`.
    can_grow : bool
        Whether the outer loop would run over more loops if `most` were more.
    nested : bool
        Whether loops would be others if `flat`.
    """

    def __init__(
        self,
        order: list[KernelNode],
        stored: Stored,
        outer: int,
        extents: list[int],
        base: Lowering | None = None,
        rows: bool = False,
        target: Target = CPU,
        wide: bool = False,
        most: int = SHORT,
        flat: bool = False,
    ) -> None:
        self.order = order
        self.wide = wide
        self.narrow = False
        self.most = most
        self.can_grow = False
        self.flat = flat
        self.nested = False
        self.stored = stored
        self.outer = outer
        # "inout" where only a region of what is stored is written.
        self.access = "out"
        self.extents = extents
        self.scope = LoopScope(target.along) if base is None else base.scope
        self.values = Values(self.scope) if base is None else base.values
        self.values.choose = target.choose
        self.totals: list[Total] = [] if base is None else base.totals
        self.total_names: dict[KernelNode, str] = {}
        self.vars: dict[int, str] = {}
        self.blocked = not rows and outer >= 0 and in_blocks(order, outer, extents, target)
        self.aligned = target.aligned
        self.spread = target.along
        self._todo: dict[int, dict[frozenset[int], list[NestWork]]] | None = None
        self.joint = frozenset({outer} - {-1})
        self.joined: list[int] = []  # those of them other than `outer`, in order
        self.stages = self._stages(target)
        self.apart = self.spread and not self.blocked and outer >= 0 and len(self._nests()) > 1
        if self.apart and not rows and base is None:
            self._join(target)
        self.size = BLOCK
        self.low: Affine = NOTHING
        self.high: Expr = integer(0)
        self.written: set[str] = set() if base is None else base.written
        # Local memory of nodes whose nest is being written.
        self.pending: dict[KernelNode, tuple[str, tuple[int, ...]]] = {}

    # -- the outer loop's classes ---------------------------------------------------------

    def _stages(self, target: Target) -> Stages:
        self._todo = None
        return Stages(self.order, set(self.stored), self.joint, self.blocked, target.keep)

    def _nests(self) -> list[frozenset[int]]:
        """Return the nests of an iteration of the outer loop."""
        return [nest for works in self._works().values() for nest in works]

    def _join(self, target: Target) -> None:
        """Let a short outer loop run over other loops, too, that all nests have in common.

        Otherwise they would be serial ones in each row, and threads wait for each other in every
        iteration. A single nest needs no such thing: see `spread`.
        """
        while True:
            nests = self._nests()
            common = frozenset.intersection(*nests)
            largest: tuple[int, ...] = max((n.classes or () for n in self.order), key=len)
            local = self.stages.local
            c = next((c for c in largest if c in common and joins(self.order, local, c)), -1)
            if c < 0 or len(max(nests, key=len)) < 2:
                return
            if self._rows() >= self.most:
                self.can_grow = True
                return
            if not self.wide:
                self.narrow = True
                return
            self.joined.append(c)
            self.joint |= {c}
            self.stages = self._stages(target)

    def _in_order(self) -> list[int]:
        """Return the classes of the outer loop, the last of which lies side by side in memory."""
        largest: tuple[int, ...] = max((n.classes or () for n in self.order), key=len)
        return sorted(self.joint, key=largest.index)

    def _rows(self) -> int:
        return math.prod(self.extents[c] for c in self.joint)

    # -- the kernel -----------------------------------------------------------------------

    def run(self) -> Lowered:
        """Return the kernel."""
        self.declare()
        if self.outer < 0:
            self.scope.open()
            self.write_iteration()
            self.scope.emit(*self.scope.close())
        elif self.blocked and self._flat():
            self._nest(frozenset({self.outer}), self._works()[0][frozenset({self.outer})])
        else:
            self._outer_loop()
        return self.kernel()

    def declare(self) -> None:
        """Declare buffers that are written, and totals."""
        for node in self.order:
            memory = self.stored.get(node)
            if isinstance(memory, ValueMemory):
                self.written.add(self.values.buffer(memory))
            if node.total:
                self._declare_total(node)

    def kernel(self) -> Lowered:
        """Return the kernel of what was written, for all its stages."""
        v = self.values
        buffers = tuple(
            Param(n, v.dtypes[n], self.access if n in self.written else "in")
            for n in v.buffers.values()
        )
        ints = self.scope.ints
        body = tuple(self.scope.levels[0].statements)
        kernel = Kernel(buffers, tuple(ints.values()), tuple(self.totals), body)
        return Lowered(kernel, tuple(v.buffers), tuple(k[1] for k in ints))

    @property
    def rows(self) -> int:
        """Iterations of the outer loop."""
        return self.extents[self.outer]

    def _declare_total(self, node: KernelNode) -> None:
        name = self.total_names[node] = f"s{len(self.totals)}"
        memory = self.stored[node]
        assert isinstance(memory, ValueMemory)
        out, size = self.values.buffer(memory), None
        if any(c >= 0 for c in node.result):
            size = self._product([c for c in node.result if c >= 0])
        self.totals.append(Total(name, node.dtype, node.combine, out, size))

    # -- the outer loop -------------------------------------------------------------------

    def _flat(self) -> bool:
        """Whether the kernel is one loop over rows, which needs no blocks.

        Where its parts begin and end at different rows, it is a loop for each part. Those read
        the same rows, so a processor takes them block by block; all threads of a GPU share each.
        """
        works = self._works()
        return (
            len(works) == 1
            and list(works[0]) == [frozenset({self.outer})]
            and not any(w.what == "keep" for ws in works[0].values() for w in ws)
            and (self.spread or self._even())
        )

    def _even(self) -> bool:
        """Whether all that the kernel computes has the same rows, alike from first to last."""
        return not any(
            isinstance(n.operation, (UpdateSlice, Concatenate)) for n in self.order
        ) and all(self._end(n, self.outer) == self.rows for n in self.order)

    def _outer_loop(self) -> None:
        scope = self.scope
        n = self.extent(self.outer)
        scope.open()
        if self.blocked:
            self.size = self._block_size()
            block = scope.index_name(
                "block", 0, max(0, -(-self.extents[self.outer] // self.size) - 1), 1
            )
            size = integer(self.size)
            first, _ = scope.let("low", Apply("int64", "multiply", (Var("int64", block), size)), 1)
            assert isinstance(first, Var)
            scope.depth[first.name] = 1
            scope.range[first.name] = (0, max(0, self.extents[self.outer] - 1))
            self.low = Affine(0, ((first.name, 1),))
            end = Apply("int64", "minimum", (Apply("int64", "add", (first, size)), n))
            self.high = scope.let("high", end, 1)[0]
            count: Expr = Apply(
                "int64",
                "floor_divide",
                (Apply("int64", "add", (n, integer(self.size - 1))), size),
            )
            name = block
        else:
            name = scope.index_name("i", 0, max(0, self._rows() - 1), 1)
            count = n
            for c in self.joined:
                count = Apply("int64", "multiply", (count, self.extent(c)))
            whole = name
            first_axis, *others = self._in_order()
            for c in reversed(others):
                whole = self._split(whole, c)
            self.vars[first_axis] = whole
        self.write_iteration()
        body = scope.close()
        loop = For(name, integer(0), count, body, "parallel")
        # What threads choose by an index, they choose once for all iterations of a serial loop.
        chooses = any(isinstance(x.operation, (UpdateSlice, Concatenate)) for x in self.order)
        few = self._rows() < SHORT or not chooses or self._has_long_loops()
        spreads = self.spread and not self.blocked and few
        scope.emit(self._spread(loop) if spreads else loop)

    def _has_long_loops(self) -> bool:
        """Whether the vector loops are so long that what is chosen once for each costs little."""
        nests = [x for works in self._works().values() for x in works.items()]
        return all(self.extents[self._loops(*x)[-1]] >= WIDE for x in nests if x[0])

    def _spread(self, loop: For) -> For:
        """Flatten the outer loop with the next ones; if `wide`, around sums over rows, too."""
        flat, wide = spread(loop), spread(loop, frozenset(t.name for t in self.totals))
        self.narrow |= not self.wide and flat.var != wide.var
        return wide if self.wide else flat

    def _block_size(self) -> int:
        """Return how many rows a block has: local arrays of all of them stay near."""
        width = 0
        for node in self.order:
            if isinstance(node.operation, Folded) or node in self.stages.local:
                if node.total or (node in self.stored and not isinstance(node.operation, Folded)):
                    continue
                size = 8
                for c in self.stages.results(node):
                    if c != self.outer:
                        size *= self.extents[c]
                width += size
        most = BLOCK if not width else max(LEAST, min(MOST, LOCAL_BYTES // width // LEAST * LEAST))
        if self.spread:
            return min(most, next(size for rows, size in SHARED_OUT if self.rows >= rows))
        while most > LEAST and self.rows < BLOCKS * most:
            most = max(LEAST, most // 2 // LEAST * LEAST)
        return most

    def _works(self) -> dict[int, dict[frozenset[int], list[NestWork]]]:
        """Return what is to be done, by time and nest."""
        s = self.stages
        if self._todo is not None:
            return self._todo
        works: dict[int, dict[frozenset[int], list[NestWork]]] = {}

        def add(time: int, nest: frozenset[int], work: NestWork) -> None:
            if work.what != "fold" and work.node.value.size == 0:
                return
            works.setdefault(time, {}).setdefault(nest, []).append(work)

        for node in self.order:
            time = s.time[node]
            if isinstance(node.operation, Folded):
                add(time, s.nest(node), NestWork("fold", node))
                if node in self.stored and not node.total:
                    add(time + 1, s.results(node), NestWork("store", node))
            elif node in self.stored:
                add(time, s.nest(node), NestWork("store", node))
            elif node in s.local:
                add(time, s.nest(node), NestWork("keep", node))
        self._todo = works
        return works

    def write_iteration(self) -> None:
        """Write one iteration of the outer loop."""
        works = self._works()
        for time in sorted(works):
            for nest in sorted(works[time], key=lambda c: (len(c), sorted(c))):
                if nest:
                    self._nest(nest, works[time][nest])
                else:
                    self._row(works[time][nest])

    def _row(self, works: list[NestWork]) -> None:
        """Write what is computed once a row."""
        for work in works:
            node = work.node
            if work.what == "store":
                self._store(node, self._result_index(node))
            else:
                index = self._index(node)
                value, _ = (
                    self.values.read(node.args[0], index)
                    if len(node.args) == 1
                    else (self._term(node, index), 0)
                )
                if node.total:
                    self.scope.emit(Fold(self.total_names[node], node.combine, value))
                else:
                    name = self.scope.fresh("r")
                    self.scope.emit(Local(name, node.dtype, None, value))
                    self.values.done[node] = (name, None)

    # -- nests ----------------------------------------------------------------------------
