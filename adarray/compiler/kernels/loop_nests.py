"""Loop nests of an iteration: what each stores and folds, and the parts of its vector loop."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from adarray.compiler.ir.loopir import Apply, Expr, Fail, For, If, Store, Var, integer
from adarray.compiler.ir.primitives import Concatenate, GatherND, UpdateSlice
from adarray.compiler.kernels.breaks import borders
from adarray.compiler.kernels.folds import Folds
from adarray.compiler.kernels.joint import flattens
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref, ValueMemory
from adarray.compiler.kernels.scope import combine
from adarray.compiler.kernels.values import Index

# Iterations for all threads of a block: where one takes a row of several nests, a serial loop over
# shorter ones would have its threads wait for each other again and again.
WIDE = 64
# Iterations of a vector loop of a GPU up to which its threads choose among operands by their index:
# each part would be a loop of its own, in which most of them wait.
CHOSEN = 256


class NestWork(NamedTuple):
    """What a nest does with a node: ``"store"``, ``"fold"`` or ``"keep"``."""

    what: str
    node: KernelNode


class LoopNests(Folds):
    """The part of a `Lowering` that writes loop nests."""

    order: list[KernelNode]
    aligned: int
    apart: bool
    narrow: bool
    flat: bool
    nested: bool
    wide: bool
    high: Expr

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
        gathers = any(isinstance(n.operation, GatherND) for n in self.order)
        for node in self.order:
            for ref in node.args:
                few = gathers and self._few_indices(node, ref)
                if ref.at is None or node.classes is None or few:
                    continue
                for a, coef in ref.at.terms:
                    c = node.classes[a] if a < len(node.classes) else -1
                    if c in score:
                        score[c] += 1 if coef == 1 else -1
        last = max(order, key=lambda c: (self.extents[c] >= 8, score[c], order.index(c)))
        if score[last] <= 0 and self._continues(last, order[-1]):
            last = order[-1]
        widest = max(order, key=lambda c: self.extents[c])
        if self.apart and self.extents[last] < WIDE <= self.extents[widest]:
            self.narrow |= not self.wide
            last = widest if self.wide else last
        return [*(c for c in order if c != last), last]

    def _continues(self, long: int, short: int) -> bool:
        """Whether threads of a GPU have memory side by side along a short axis, not a long one.

        Rows of the outer loop lie behind each other there, so its neighbours go on where a row
        ends.
        """
        if not self.spread or self.blocked or self.outer < 0:
            return False
        steps: dict[int, set[int]] = {c: set() for c in (self.outer, long, short)}
        for node in self.order:
            memory = self.stored.get(node)
            if isinstance(memory, ValueMemory):
                for c, step in zip(node.result, memory.strides, strict=True):
                    steps.get(c, set()).add(step)
            axes = node.classes or ()
            for ref in node.args:
                for a, step in () if ref.at is None else ref.at.terms:
                    if a < len(axes):
                        steps.get(axes[a], set()).add(step)
        beside = steps[short] == {1} and steps[self.outer] == {self.extents[short]}
        return beside and 1 not in steps[long]

    def _few_indices(self, node: KernelNode, ref: Ref) -> bool:
        """Whether a kernel that gathers reads what is little beside all that the node computes.

        Indices of what is gathered are such, and operands that are broadcast along an axis where
        something is gathered.
        """
        return (
            self.spread
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
