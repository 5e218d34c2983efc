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

import itertools
import math
from typing import NamedTuple

from adarray.compiler.ir.loopir import (
    Apply,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Local,
    Param,
    Store,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.primitives import Concatenate, GatherND, UpdateSlice
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import CPU, Target
from adarray.compiler.kernels.breaks import borders
from adarray.compiler.kernels.folds import Folds
from adarray.compiler.kernels.joint import flattens, joins
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref, ValueMemory
from adarray.compiler.kernels.rows import in_blocks
from adarray.compiler.kernels.scope import NOTHING, Affine, LoopScope, combine
from adarray.compiler.kernels.spread import SHORT, spread
from adarray.compiler.kernels.stages import Stages
from adarray.compiler.kernels.values import Index, Stored, Values

# Rows of a block: without local arrays, and at most and at least with them.
BLOCK, MOST, LEAST = 4096, 1024, 64
# Blocks at least, as long as they are not shorter than that many rows: threads share them.
BLOCKS = 16
# Rows from which on blocks of a GPU are so large: below, there are more of them, and smaller ones.
SHARED_OUT = ((1 << 21, BLOCK), (1 << 19, 1024), (0, 256))
# Iterations for all threads of a block: where one takes a row of several nests, a serial loop over
# shorter ones would have its threads wait for each other again and again.
WIDE = 64
# Iterations of a vector loop of a GPU up to which its threads choose among operands by their index:
# each part would be a loop of its own, in which most of them wait.
CHOSEN = 256
# Bytes of local arrays that a block of rows may take.
LOCAL_BYTES = 96 * 1024


class Lowered(NamedTuple):
    """A kernel, the values whose memory its buffers are, and its integers."""

    kernel: Kernel
    buffers: tuple[Value, ...]
    ints: tuple[int, ...]


class NestWork(NamedTuple):
    """What a nest does with a node: ``"store"``, ``"fold"`` or ``"keep"``."""

    what: str
    node: KernelNode


class Lowering(Folds):
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

    def _split(self, name: str, c: int, depth: int = 1) -> str:
        """Bind the index of the last of the loops that are one to a name; return the others'."""
        scope = self.scope
        n = integer(self.extents[c]) if depth > 1 else self.extent(c)
        flat, last = scope.range[name][1], self.extents[c] - 1
        whole, _ = scope.let(
            ("whole", c), Apply("int64", "floor_divide", (Var("int64", name), n)), depth
        )
        before = Apply("int64", "multiply", (whole, n))
        own, _ = scope.let(
            ("own", c), Apply("int64", "subtract", (Var("int64", name), before)), depth
        )
        for index, high in ((whole, (flat + 1) // (last + 1) - 1), (own, last)):
            assert isinstance(index, Var)
            scope.depth[index.name] = depth
            scope.range[index.name] = (0, high)
            scope.levels[depth].names.append(index.name)
        assert isinstance(whole, Var)
        assert isinstance(own, Var)
        self.vars[c] = own.name
        if depth > 1:
            scope.parts[whole.name, own.name] = name, last + 1
        return whole.name

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

    def _store(self, node: KernelNode, index: Index) -> None:
        """Write an element of a node to its memory."""
        memory = self.stored[node]
        value, _ = self.values.value(node, index)
        if not isinstance(memory, ValueMemory):
            where, _ = self.scope.index(memory.element(self.values, index))
            self.scope.emit(Store(memory.name, where, value))
            return
        at = combine(list(zip(memory.strides, index, strict=True)), memory.offset)
        where, _ = self.scope.index(at)
        self.scope.emit(Store(self.values.buffer(memory), where, value))

    def _loops(self, nest: frozenset[int], works: list[NestWork]) -> list[int]:
        """Return the loops of a nest, outermost first; the last one is the vector loop."""
        largest = max((w.node for w in works), key=lambda n: len(n.classes or ()))
        order = [c for c in largest.classes or () if c in nest]
        order += sorted(nest - set(order))
        if self.blocked:
            return [*(c for c in order if c != self.outer), self.outer]
        if len(order) == 1:
            return order
        score = dict.fromkeys(order, 0)
        for node in self.order:
            for ref in node.args:
                if ref.at is None or node.classes is None or self._few_indices(node, ref):
                    continue
                for a, coef in ref.at.terms:
                    c = node.classes[a] if a < len(node.classes) else -1
                    if c in score:
                        score[c] += 1 if coef == 1 else -1
        last = max(order, key=lambda c: (self.extents[c] >= 8, score[c], order.index(c)))
        widest = max(order, key=lambda c: self.extents[c])
        if self.apart and self.extents[last] < WIDE <= self.extents[widest]:
            self.narrow |= not self.wide
            last = widest if self.wide else last
        return [*(c for c in order if c != last), last]

    def _few_indices(self, node: KernelNode, ref: Ref) -> bool:
        """Whether a GPU reads what is little beside all that the node computes.

        Indices of what is gathered are such, and operands that are broadcast along an axis where
        something is gathered.
        """
        gathers = any(isinstance(n.operation, GatherND) for n in self.order)
        return (
            self.spread
            and gathers
            and not (isinstance(node.operation, GatherND) and ref is node.args[0])
            and ref.memory is not None
            and 2 * ref.memory.value.size <= math.prod(node.shape)
        )

    def _nest(self, nest: frozenset[int], works: list[NestWork]) -> None:
        """Write a loop nest."""
        flat = self._flattened(nest, works)
        loops = [c for c in self._loops(nest, works) if c not in flat[:-1]]
        if flat:
            loops = [*(c for c in loops if c != flat[-1]), flat[-1]]
        vector = loops[-1]
        folds = [w.node for w in works if w.what == "fold"]
        for node in folds:
            if not node.total:
                self._declare_fold(node, vector)
        for w in works:
            if w.what == "keep":
                self._declare_array(w.node)
        opened = []
        for c in loops[:-1]:
            self.scope.open()
            depth = self.scope.here
            self.vars[c] = self.scope.index_name("k", 0, max(0, self.extents[c] - 1), depth)
            opened.append(c)
        self._innermost(vector, works, folds, flat)
        for c in reversed(opened):
            body = self.scope.close()
            self.scope.emit(For(self.vars.pop(c), integer(0), self.extent(c), body, "serial"))
        for w in works:
            self._finish(w.node)

    def _flattened(self, nest: frozenset[int], works: list[NestWork]) -> list[int]:
        """Return the innermost loops of a nest that are one vector loop on a GPU, in order.

        Few threads would share the last one where it is short, and go through the others in turn.
        Operands that are broadcast along some of them keep these from becoming one axis; threads
        take the index apart for those.
        """
        if not self.spread or self.blocked or self.outer < 0 or len(nest) < 2:
            return []
        largest = max((w.node for w in works), key=lambda n: len(n.classes or ()))
        order = [c for c in largest.classes or () if c in nest]
        if len(order) == len(nest) and self._folds_all(nest, works):
            self.nested = True
            if self.flat:
                return order
        flat: list[int] = []
        while order and (not flat or math.prod(self.extents[c] for c in flat) < WIDE):
            if not flattens(self.order, [w.node for w in works], [order[-1], *flat], self.extents):
                break
            flat.insert(0, order.pop())
        return flat if len(flat) > 1 else []

    def _folds_all(self, nest: frozenset[int], works: list[NestWork]) -> bool:
        """Whether a nest folds all its iterations, and stores what has no end in between.

        Threads of a block would wait for each other in every iteration of its outer loops. Which
        piece of an array it is that they read, they choose by its index.
        """
        folds = [w.node for w in works if w.what == "fold"]
        return (
            bool(folds)
            and all(w.what != "keep" for w in works)
            and all(self._end(w.node, c) == self.extents[c] for w in works for c in nest)
            and not any(nest & set(node.result) for node in folds)
        )

    def _finish(self, node: KernelNode) -> None:
        """Note where a node can be read, after its nest."""
        memory = self.stored.get(node)
        if node in self.pending:
            name, strides = self.pending.pop(node)
            scalar = isinstance(node.operation, Folded) and not self.stages.results(node)
            self.values.done[node] = (name, None if scalar else strides)
        elif isinstance(memory, ValueMemory) and node in self.stages.local:
            self.values.done[node] = (self.values.buffer(memory), memory.strides)

    def _innermost(
        self, vector: int, works: list[NestWork], folds: list[KernelNode], flat: list[int]
    ) -> None:
        """Write the vector loop of a nest, in parts where regions begin and end.

        It runs over all loops of `flat`, if there are any, and is one part.
        """
        scope, v = self.scope, self.values
        partial: dict[KernelNode, str] = {}
        for node in folds:
            if self._folds_over(node, vector):
                name = self._partial(node)
                if name:
                    partial[node] = name
        v.bad = ""
        count = math.prod(self.extents[c] for c in flat or [vector])
        for low, high in [(0, count)] if flat else self._segments(vector, works):
            scope.open()
            v.vector_depth = scope.here
            name = whole = scope.index_name("j", low, high - 1, scope.here)
            for c in reversed(flat[1:]):
                whole = self._split(whole, c, scope.here)
            self.vars[flat[0] if flat else vector] = whole
            for w in works:
                if not flat and self._end(w.node, vector) < high:
                    continue
                if w.what == "fold":
                    self._fold(w.node, self._index(w.node), partial)
                else:
                    self._keep(w, self._result_index(w.node))
            for c in flat or [vector]:
                del self.vars[c]
            body = scope.close()
            v.vector_depth = -1
            start, stop = (
                (integer(0), self._product(flat)) if flat else self._range(vector, low, high)
            )
            scope.emit(For(name, start, stop, body, "vector"))
        if v.bad:
            scope.emit(If(Var("bool", v.bad), (Fail(1),)))
        for node in folds:
            if node in partial:
                self._merge(node, partial[node])

    def _keep(self, work: NestWork, index: Index) -> None:
        node = work.node
        if work.what == "store":
            self._store(node, index)
            return
        value, _ = self.values.value(node, index)
        name, strides = self.pending[node]
        parts = list(zip(strides, index, strict=True))
        if name in self.values.origin:
            parts.append((-1, self.values.origin[name]))
        where, _ = self.scope.index(combine(parts))
        self.scope.emit(Store(name, where, value))

    def _segments(self, vector: int, works: list[NestWork]) -> list[tuple[int, int]]:
        """Return the parts of the vector loop in which no region begins or ends."""
        n = self.extents[vector]
        ends = {self._end(w.node, vector) for w in works}
        if ends == {n} and not any(
            isinstance(node.operation, (UpdateSlice, Concatenate)) for node in self.order
        ):
            return [(0, n)]
        if self.spread and n <= CHOSEN:
            points = [0, *sorted(ends - {n}), n]
            return [(a, b) for a, b in itertools.pairwise(points) if a < b]
        names = dict(self.vars)
        self.vars[vector] = "vector"
        self.scope.depth["vector"] = self.scope.here + 1
        self.scope.range["vector"] = (0, max(0, n - 1))
        roots = []
        for w in works:
            if w.what != "fold" or not isinstance(w.node.operation, Folded):
                roots.append((w.node, self._result_index(w.node)))
                continue
            index = self._index(w.node)
            roots += [(ref.node, self.values.seen(ref, index)) for ref in w.node.args if ref.node]
        breaks = borders(roots, "vector", n, self.values)
        self.vars = names
        del self.scope.depth["vector"], self.scope.range["vector"]
        breaks = sorted({*breaks, *ends} - {n})
        points = [0, *breaks, n]
        short = self.aligned
        if breaks and breaks[0] % short and points[2] - breaks[0] > 4 * short:
            # Vectors of the long part begin where those of a whole row would.
            points.insert(2, breaks[0] + -breaks[0] % short)
        return [(a, b) for a, b in itertools.pairwise(points) if a < b] or [(0, n)]

    def _end(self, node: KernelNode, vector: int) -> int:
        """Return the last index, plus one, that a node has along a vector loop.

        It is less than the loop's for siblings (see `adarray.compiler.kernels.siblings`).
        """
        classes = node.classes or ()
        return node.shape[classes.index(vector)] if vector in classes else self.extents[vector]

    def _range(self, vector: int, low: int, high: int) -> tuple[Expr, Expr]:
        """Return where a part of the vector loop begins and ends."""
        whole = (low, high) == (0, self.extents[vector])
        start = integer(0) if low == 0 else self.scope.number("bound", low)
        stop = (
            self.extent(vector)
            if high == self.extents[vector]
            else self.scope.number("bound", high)
        )
        if not (self.blocked and vector == self.outer and self.low.terms):
            return start, stop
        first = Var("int64", self.low.terms[0][0])
        if whole:
            return first, self.high
        return (
            Apply("int64", "maximum", (first, start)),
            Apply("int64", "minimum", (self.high, stop)),
        )
