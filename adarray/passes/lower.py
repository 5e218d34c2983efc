"""Lowering: a group of values becomes a kernel of loop IR.

The outer loop runs over rows, or over blocks of rows where rows are short: then rows are
the innermost, vector loop. Every pass is a sequence of nests (see `lower_stages`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from adarray.codegen.loopir import (
    Apply,
    Const,
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
from adarray.passes.lower_breaks import borders
from adarray.passes.lower_nodes import Memory, Node
from adarray.passes.lower_scope import NOTHING, Affine, Scope, combine, neutral
from adarray.passes.lower_stages import Stages
from adarray.passes.lower_values import Index, Values
from adarray.program import Value, c_strides

# Rows of a block: without local arrays, and at most and at least with them.
BLOCK, MOST, LEAST = 4096, 1024, 64
# Bytes of local arrays that a block of rows may take.
SCRATCH = 96 * 1024
# Rows shorter than that are not vector loops.
SHORT = 24
BLOCKS = 2


class Lowered(NamedTuple):
    """A kernel, the values whose memory its buffers are, and its integers."""

    kernel: Kernel
    buffers: tuple[Value, ...]
    ints: tuple[int, ...]


class Work(NamedTuple):
    """What a nest does with a node: ``"store"``, ``"fold"`` or ``"keep"``."""

    what: str
    node: Node


class Lowering:
    """One kernel in the making.

    Parameters
    ----------
    order : list of Node
        All nodes of the kernel, operands first.
    stored : dict
        Memory of the nodes whose results are written, by ``id`` of the node.
    outer : int
        Class of the outer loop, -1 if there is none.
    extents : list of int
        Of each class.
    base : Lowering, optional
        Another stage of the same kernel, whose names and buffers are shared.
    """

    def __init__(
        self,
        order: list[Node],
        stored: dict[int, Any],
        outer: int,
        extents: list[int],
        base: Lowering | None = None,
    ) -> None:
        self.order = order
        self.stored = stored
        self.outer = outer
        # "inout" where only a region of what is stored is written.
        self.access = "out"
        self.extents = extents
        self.scope = Scope() if base is None else base.scope
        self.values = Values(self.scope) if base is None else base.values
        self.totals: list[Total] = [] if base is None else base.totals
        self.total_names: dict[int, str] = {}
        self.vars: dict[int, str] = {}
        self.blocked = base is None and outer >= 0 and self._in_blocks()
        self.stages = Stages(order, set(stored), outer, self.blocked)
        self.size = BLOCK
        self.low: Affine = NOTHING
        self.high: Expr = integer(0)
        self.written: set[str] = set() if base is None else base.written
        self._todo: dict[int, dict[frozenset[int], list[Work]]] | None = None
        # Local memory of nodes whose nest is being written.
        self.pending: dict[int, tuple[str, tuple[int, ...]]] = {}

    # -- the kernel -----------------------------------------------------------------------

    def run(self) -> Lowered:
        """Return the kernel."""
        self.declare()
        if self.outer < 0:
            self.scope.open()
            self.write_pass()
            self.scope.emit(*self.scope.close())
        elif self.blocked and self._flat():
            self._nest(frozenset({self.outer}), self._works()[0][frozenset({self.outer})])
        else:
            self._outer_loop()
        return self.kernel([self])

    def declare(self) -> None:
        """Declare buffers that are written, and totals."""
        for node in self.order:
            if id(node) in self.stored and isinstance(self.stored[id(node)], Memory):
                self.written.add(self.values.buffer(self.stored[id(node)]))
            if node.total:
                self._declare_total(node)

    def kernel(self, stages: list[Lowering]) -> Lowered:
        """Return the kernel of what was written for all its stages."""
        v = self.values
        found: dict[int, Value] = {}
        for stage in stages:
            found |= {id(m.value): m.value for m in stage.stored.values() if isinstance(m, Memory)}
            for node in stage.order:
                for ref in node.args:
                    if ref.memory is not None:
                        found[id(ref.memory.value)] = ref.memory.value
        buffers = tuple(
            Param(n, v.dtypes[n], self.access if n in self.written else "in")
            for n in v.buffers.values()
        )
        ints = self.scope.ints
        body = tuple(self.scope.levels[0].statements)
        kernel = Kernel(buffers, tuple(ints.values()), tuple(self.totals), body)
        return Lowered(kernel, tuple(found[k] for k in v.buffers), tuple(k[1] for k in ints))

    def _declare_total(self, node: Node) -> None:
        name = self.total_names[id(node)] = f"s{len(self.totals)}"
        out = self.values.buffer(self.stored[id(node)])
        size = None
        if any(c >= 0 for c in node.result):
            size = self._product([c for c in node.result if c >= 0])
        self.totals.append(Total(name, node.dtype, node.combine, out, size))

    def extent(self, c: int) -> Expr:
        """Return the extent of a class as an expression."""
        return self.scope.number(f"n{c}_", self.extents[c], literal=False)

    def _product(self, classes: list[int]) -> Expr:
        expr = self.extent(classes[0])
        for c in classes[1:]:
            expr = Apply("int64", "multiply", (expr, self.extent(c)))
        return expr

    # -- the outer loop -------------------------------------------------------------------

    def _in_blocks(self) -> bool:
        """Whether rows are the vector loop: they are short, or lie side by side in memory."""
        inner: dict[int, int] = {}
        for node in self.order:
            for c in node.classes or ():
                if c >= 0 and c != self.outer:
                    inner[c] = 0
        if not inner:
            return True
        if max(self.extents[c] for c in inner) < SHORT:
            return True
        across = 0
        for node in self.order:
            for ref in node.args:
                if ref.at is None or node.classes is None:
                    continue
                for a, coef in ref.at.terms:
                    if a < len(node.classes) and coef == 1:
                        c = node.classes[a]
                        if c == self.outer:
                            across += len(ref.at.terms) > 1
                        elif c >= 0:
                            inner[c] += 1
        return across > max(inner.values())

    def _flat(self) -> bool:
        """Whether the kernel is one loop over rows, which needs no blocks."""
        works = self._works()
        return (
            len(works) == 1
            and list(works[0]) == [frozenset({self.outer})]
            and not any(w.what == "keep" for ws in works[0].values() for w in ws)
            and not any(n.kind in ("place", "join") for n in self.order)
        )

    def _outer_loop(self) -> None:
        scope = self.scope
        n = self.extent(self.outer)
        scope.open()
        if self.blocked:
            self.size = self._block_size()
            block = scope.index_name("block", 0, max(0, -(-self.extents[self.outer] // self.size) - 1), 1)
            size = integer(self.size)
            first, _ = scope.let("low", Apply("int64", "multiply", (Var("int64", block), size)), 1)
            assert isinstance(first, Var)
            scope.depth[first.name] = 1
            scope.range[first.name] = (0, max(0, self.extents[self.outer] - 1))
            self.low = Affine(0, ((first.name, 1),))
            end = Apply("int64", "minimum", (Apply("int64", "add", (first, size)), n))
            self.high = scope.let("high", end, 1)[0]
            count = Apply(
                "int64",
                "floor_divide",
                (Apply("int64", "add", (n, integer(self.size - 1))), size),
            )
            name = block
        else:
            name = scope.index_name("i", 0, max(0, self.extents[self.outer] - 1), 1)
            self.vars[self.outer] = name
            count = n
        self.write_pass()
        body = scope.close()
        scope.emit(For(name, integer(0), count, body, "parallel"))

    def _block_size(self) -> int:
        """Return how many rows a block has: local arrays of all of them stay near."""
        width = 0
        for node in self.order:
            if node.kind == "fold" or id(node) in self.stages.kept:
                if node.total or id(node) in self.stored and node.kind != "fold":
                    continue
                size = 8
                for c in self.stages.results(node):
                    if c != self.outer:
                        size *= self.extents[c]
                width += size
        if not width:
            return BLOCK
        return max(LEAST, min(MOST, SCRATCH // width // LEAST * LEAST))

    def _works(self) -> dict[int, dict[frozenset[int], list[Work]]]:
        """Return what is to be done, by time and nest."""
        s = self.stages
        if self._todo is not None:
            return self._todo
        works: dict[int, dict[frozenset[int], list[Work]]] = {}

        def add(time: int, nest: frozenset[int], work: Work) -> None:
            if work.what != "fold" and work.node.value.size == 0:
                return
            works.setdefault(time, {}).setdefault(nest, []).append(work)

        for node in self.order:
            time = s.time[id(node)]
            if node.kind == "fold":
                add(time, s.nest(node), Work("fold", node))
                if id(node) in self.stored and not node.total:
                    add(time + 1, s.results(node), Work("store", node))
            elif id(node) in self.stored:
                add(time, s.nest(node), Work("store", node))
            elif id(node) in s.kept:
                add(time, s.nest(node), Work("keep", node))
        self._todo = works
        return works

    def write_pass(self) -> None:
        """Write one pass of the outer loop."""
        works = self._works()
        for time in sorted(works):
            for nest in sorted(works[time], key=lambda c: (len(c), sorted(c))):
                if nest:
                    self._nest(nest, works[time][nest])
                else:
                    self._row(works[time][nest])

    def _row(self, works: list[Work]) -> None:
        """Write what is computed once a row."""
        for work in works:
            node = work.node
            if work.what == "store":
                self._store(node, self._result_index(node))
            else:
                index = self._index(node)
                value, _ = self.values.read(node.args[0], index) if len(node.args) == 1 else (
                    self._term(node, index), 0)
                if node.total:
                    self.scope.emit(Fold(self.total_names[id(node)], node.combine, value))
                else:
                    name = self.scope.fresh("r")
                    self.scope.emit(Local(name, node.dtype, None, value))
                    self.values.done[id(node)] = (name, None)

    # -- nests ----------------------------------------------------------------------------

    def _index(self, node: Node) -> Index:
        """Return the index of a node's domain in the loops that are open."""
        assert node.classes is not None
        return tuple(
            Affine(0, ((self.vars[c], 1),)) if c >= 0 else NOTHING for c in node.classes
        )

    def _result_index(self, node: Node) -> Index:
        return tuple(Affine(0, ((self.vars[c], 1),)) if c >= 0 else NOTHING for c in node.result)

    def _term(self, node: Node, index: Index) -> Expr:
        """Return what a fold folds."""
        args = [self.values.read(r, index) for r in node.args]
        if len(args) == 1:
            found, depth = args[0]
            if found.dtype != node.dtype:
                key = ("cast", id(node), index)
                return self.scope.let(key, Apply(node.dtype, "cast", (found,)), depth)[0]
            return found
        key = ("product", id(node), index)
        product = Apply(node.dtype, "multiply", tuple(e for e, _ in args))
        return self.scope.let(key, product, max(d for _, d in args))[0]

    def _store(self, node: Node, index: Index) -> None:
        """Write an element of a node to its memory."""
        memory = self.stored[id(node)]
        value, _ = self.values.value(node, index)
        if not isinstance(memory, Memory):
            where, _ = self.scope.index(memory.element(self.values, index))
            self.scope.emit(Store(memory.name, where, value))
            return
        at = combine(list(zip(memory.strides, index, strict=True)), memory.offset)
        where, _ = self.scope.index(at)
        self.scope.emit(Store(self.values.buffer(memory), where, value))

    def _loops(self, nest: frozenset[int], works: list[Work]) -> list[int]:
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
                if ref.at is None or node.classes is None:
                    continue
                for a, coef in ref.at.terms:
                    c = node.classes[a] if a < len(node.classes) else -1
                    if c in score:
                        score[c] += 1 if coef == 1 else -1
        last = max(order, key=lambda c: (self.extents[c] >= 8, score[c], order.index(c)))
        return [*(c for c in order if c != last), last]

    def _nest(self, nest: frozenset[int], works: list[Work]) -> None:
        """Write a loop nest."""
        loops = self._loops(nest, works)
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
        self._innermost(vector, works, folds)
        for c in reversed(opened):
            body = self.scope.close()
            self.scope.emit(For(self.vars.pop(c), integer(0), self.extent(c), body, "serial"))
        for w in works:
            self._finish(w.node)

    def _finish(self, node: Node) -> None:
        """Note where a node can be read, after its nest."""
        key = id(node)
        if key in self.pending:
            name, strides = self.pending.pop(key)
            scalar = node.kind == "fold" and not self.stages.results(node)
            self.values.done[key] = (name, None if scalar else strides)
        elif isinstance(self.stored.get(key), Memory) and key in self.stages.kept:
            memory = self.stored[key]
            self.values.done[key] = (self.values.buffer(memory), memory.strides)

    def _innermost(self, vector: int, works: list[Work], folds: list[Node]) -> None:
        """Write the vector loop of a nest, in parts where regions begin and end."""
        scope, v = self.scope, self.values
        partial: dict[int, str] = {}
        for node in folds:
            if self._folds_over(node, vector):
                name = self._partial(node)
                if name:
                    partial[id(node)] = name
        v.bad = ""
        for low, high in self._segments(vector, works):
            scope.open()
            v.vector_depth = scope.here
            self.vars[vector] = scope.index_name("j", low, high - 1, scope.here)
            for w in works:
                if w.what == "fold":
                    self._fold(w.node, self._index(w.node), vector, partial)
                else:
                    self._keep(w, self._result_index(w.node))
            name = self.vars.pop(vector)
            body = scope.close()
            v.vector_depth = -1
            start, stop = self._range(vector, low, high)
            scope.emit(For(name, start, stop, body, "vector"))
        if v.bad:
            scope.emit(If(Var("bool", v.bad), (Fail(1),)))
        for node in folds:
            if id(node) in partial:
                self._merge(node, partial[id(node)])

    def _keep(self, work: Work, index: Index) -> None:
        node = work.node
        if work.what == "store":
            self._store(node, index)
            return
        value, _ = self.values.value(node, index)
        name, strides = self.pending[id(node)]
        parts = list(zip(strides, index, strict=True))
        if name in self.values.origin:
            parts.append((-1, self.values.origin[name]))
        where, _ = self.scope.index(combine(parts))
        self.scope.emit(Store(name, where, value))

    def _segments(self, vector: int, works: list[Work]) -> list[tuple[int, int]]:
        """Return the parts of the vector loop in which no region begins or ends."""
        n = self.extents[vector]
        if not any(node.kind in ("place", "join") for node in self.order):
            return [(0, n)]
        names = dict(self.vars)
        self.vars[vector] = "vector"
        self.scope.depth["vector"] = self.scope.here + 1
        self.scope.range["vector"] = (0, max(0, n - 1))
        roots = []
        for w in works:
            if w.what != "fold" or w.node.kind != "fold":
                roots.append((w.node, self._result_index(w.node)))
                continue
            index = self._index(w.node)
            for ref in w.node.args:
                if ref.node is not None:
                    roots.append((ref.node, self.values.seen(ref, index)))
        found = borders(roots, "vector", n, self.values)
        self.vars = names
        del self.scope.depth["vector"], self.scope.range["vector"]
        points = [0, *found, n]
        return [(a, b) for a, b in zip(points, points[1:], strict=False) if a < b] or [(0, n)]

    def _range(self, vector: int, low: int, high: int) -> tuple[Expr, Expr]:
        """Return where a part of the vector loop begins and ends."""
        whole = (low, high) == (0, self.extents[vector])
        start = integer(0) if low == 0 else self.scope.number("bound", low)
        stop = self.extent(vector) if high == self.extents[vector] else self.scope.number(
            "bound", high)
        if not (self.blocked and vector == self.outer and self.low.terms):
            return start, stop
        first = Var("int64", self.low.terms[0][0])
        if whole:
            return first, self.high
        return (
            Apply("int64", "maximum", (first, start)),
            Apply("int64", "minimum", (self.high, stop)),
        )

    # -- folds ----------------------------------------------------------------------------

    def _folds_over(self, node: Node, c: int) -> bool:
        assert node.classes is not None
        return any(node.classes[a] == c for a in node.folded)

    def _serial_folds(self, node: Node, vector: int) -> bool:
        """Whether a fold runs over loops other than the vector loop, too."""
        assert node.classes is not None
        return any(node.classes[a] not in (-1, vector) for a in node.folded)

    def _layout(self, node: Node) -> tuple[list[int], int]:
        """Return strides of a local array of a node's result, and its number of elements.

        Rows of a block lie side by side.
        """
        strides = [0] * len(node.kept)
        step = 1
        result = node.result
        if self.blocked and self.outer in result:
            strides[result.index(self.outer)] = 1
            step = self.size
        for k in reversed(range(len(result))):
            c = result[k]
            if c >= 0 and c != self.outer:
                strides[k] = step
                step *= self.extents[c]
        return strides, step

    def _array(self, node: Node) -> tuple[str, tuple[int, ...]]:
        """Declare a local array for a node's result."""
        strides, _ = self._layout(node)
        name = self.scope.fresh("a")
        classes = [c for c in node.result if c >= 0 and c != self.outer]
        size: Expr = self._product(classes) if classes else integer(1)
        if self.blocked and self.outer in node.result:
            size = Apply("int64", "multiply", (size, integer(self.size))) if classes else integer(
                self.size)
            self.values.origin[name] = self.low
        self.scope.emit(Local(name, node.dtype, size), depth=min(1, self.scope.here))
        return name, tuple(strides)

    def _declare_array(self, node: Node) -> None:
        self.pending[id(node)] = self._array(node)

    def _declare_fold(self, node: Node, vector: int) -> None:
        """Declare what an inner fold folds into, with its neutral element."""
        if not self.stages.results(node):
            name = self.scope.fresh("r")
            start = neutral(node.combine, node.dtype)
            self.scope.emit(Local(name, node.dtype, None, start))
            self.pending[id(node)] = (name, ())
            return
        name, strides = self.pending[id(node)] = self._array(node)
        if self._folds_over(node, vector) and not self._serial_folds(node, vector):
            return
        self._clear(node, name)

    def _clear(self, node: Node, name: str) -> None:
        _, count = self._layout(node)
        classes = [c for c in node.result if c >= 0 and c != self.outer]
        size: Expr = self._product(classes) if classes else integer(1)
        if self.blocked and self.outer in node.result:
            size = Apply("int64", "multiply", (size, integer(self.size))) if classes else integer(
                self.size)
        var = self.scope.fresh("z")
        zero = neutral(node.combine, node.dtype)
        body = (Store(name, Var("int64", var), zero),)
        self.scope.emit(For(var, integer(0), size, body, "vector"))

    def _partial(self, node: Node) -> str:
        """Declare a scalar for the fold of one vector loop; none if the fold is one itself."""
        if not node.total and not self.stages.results(node):
            return ""
        if node.total and self._direct(node):
            return ""
        name = self.scope.fresh("p")
        start = neutral(node.combine, node.dtype)
        self.scope.emit(Local(name, node.dtype, None, start))
        return name

    def _direct(self, node: Node) -> bool:
        """Whether a total is folded into without a scalar in between."""
        return self.scope.here == 0

    def _fold(self, node: Node, index: Index, vector: int, partial: dict[int, str]) -> None:
        value = self._term(node, index)
        if id(node) in partial:
            self.scope.emit(Fold(partial[id(node)], node.combine, value))
            return
        target, where = self._target(node, tuple(index[a] for a in node.kept))
        self.scope.emit(Fold(target, node.combine, value, where))

    def _target(self, node: Node, own: Index) -> tuple[str, Expr | None]:
        """Return what a fold folds into at an index of its result."""
        if node.total:
            name = self.total_names[id(node)]
            if not any(c >= 0 for c in node.result):
                return name, None
            strides = c_strides(tuple(node.shape[a] for a in node.kept))
            return name, self.scope.index(combine(list(zip(strides, own, strict=True))))[0]
        name, strides = self.pending[id(node)]
        if not self.stages.results(node):
            return name, None
        parts = list(zip(strides, own, strict=True))
        if name in self.values.origin:
            parts.append((-1, self.values.origin[name]))
        return name, self.scope.index(combine(parts))[0]

    def _merge(self, node: Node, partial: str) -> None:
        """Fold the scalar of a vector loop into its target."""
        own = self._result_index(node)
        target, where = self._target(node, own)
        value = Var(node.dtype, partial)
        if node.total or self._cleared(node):
            self.scope.emit(Fold(target, node.combine, value, where))
        else:
            assert where is not None
            self.scope.emit(Store(target, where, value))

    def _cleared(self, node: Node) -> bool:
        assert node.classes is not None
        folded = [node.classes[a] for a in node.folded if node.classes[a] >= 0]
        return len(folded) > 1


def work_of(order: list[Node]) -> float:
    """Return about how many nanoseconds the nodes take on one thread."""
    total = 0.0
    for node in order:
        if node.classes is None:
            continue
        size = 1
        for n in node.shape:
            size *= n
        per = 2.5 if node.kind == "map" and node.cost >= 20 and _heavy(node) else 0.15
        total += size * (per + 0.1 * sum(r.memory is not None for r in node.args))
    return total


def _heavy(node: Node) -> bool:
    from adarray.passes.uses import HEAVY

    return node.value.params.get("name") in HEAVY


__all__ = ["Const", "Lowered", "Lowering", "work_of"]
