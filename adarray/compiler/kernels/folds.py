"""Local memory of a kernel, and folds into it."""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Expr, Fold, For, Local, Store, Total, Var, integer
from adarray.compiler.ir.program import c_strides
from adarray.compiler.kernels.nodes import KernelNode
from adarray.compiler.kernels.scope import NOTHING, Affine, LoopScope, combine, neutral
from adarray.compiler.kernels.stages import Stages
from adarray.compiler.kernels.values import Index, Stored, Values


class Folds:
    """The part of a `Lowering` that declares local memory and folds into it."""

    scope: LoopScope
    values: Values
    stages: Stages
    stored: Stored
    outer: int
    # Classes of the outer loop: `outer`, and those that were joined to it.
    joint: frozenset[int]
    blocked: bool
    spread: bool
    size: int
    low: Affine
    extents: list[int]
    # Most iterations of a loop whose number stands in the text.
    literal: int = 0
    totals: list[Total]
    total_names: dict[KernelNode, str]
    pending: dict[KernelNode, tuple[str, tuple[int, ...]]]
    vars: dict[int, str]

    def extent(self, c: int) -> Expr:
        """Return the extent of a class as an expression."""
        n = self.extents[c]
        if n <= self.literal:
            return integer(n)
        return self.scope.number(f"n{c}_", n, literal=False)

    def _product(self, classes: list[int]) -> Expr:
        expr = self.extent(classes[0])
        for c in classes[1:]:
            expr = Apply("int64", "multiply", (expr, self.extent(c)))
        return expr

    def _index(self, node: KernelNode) -> Index:
        """Return the index of a node's domain in the loops that are open."""
        assert node.classes is not None
        return tuple(Affine(0, ((self.vars[c], 1),)) if c >= 0 else NOTHING for c in node.classes)

    def _result_index(self, node: KernelNode) -> Index:
        return tuple(Affine(0, ((self.vars[c], 1),)) if c >= 0 else NOTHING for c in node.result)

    def _term(self, node: KernelNode, index: Index) -> Expr:
        """Return what a fold folds."""
        args = [self.values.read(r, index) for r in node.args]
        if len(args) == 1:
            term, depth = args[0]
            if term.dtype != node.dtype:
                key = ("cast", node, index)
                return self.scope.let(key, Apply(node.dtype, "cast", (term,)), depth)[0]
            return term
        key = ("product", node, index)
        product = Apply(node.dtype, "multiply", tuple(e for e, _ in args))
        return self.scope.let(key, product, max(d for _, d in args))[0]

    def _folds_over(self, node: KernelNode, c: int) -> bool:
        assert node.classes is not None
        return any(node.classes[a] == c for a in node.folded)

    def _serial_folds(self, node: KernelNode, vector: int) -> bool:
        """Whether a fold runs over loops other than the vector loop, too."""
        assert node.classes is not None
        return any(node.classes[a] not in (-1, vector) for a in node.folded)

    def _layout(self, node: KernelNode) -> tuple[list[int], int]:
        """Return strides of a local array of a node's result, and its number of elements.

        Rows of a block lie side by side.
        """
        strides = [0] * len(node.unfolded)
        step = 1
        result = node.result
        if self.blocked and self.outer in result:
            strides[result.index(self.outer)] = 1
            step = self.size
        for k in reversed(range(len(result))):
            c = result[k]
            if c >= 0 and c not in self.joint:
                strides[k] = step
                step *= self.extents[c]
        return strides, step

    def _array(self, node: KernelNode) -> tuple[str, tuple[int, ...]]:
        """Declare a local array for a node's result."""
        strides, _ = self._layout(node)
        name = self.scope.fresh("a")
        classes = [c for c in node.result if c >= 0 and c not in self.joint]
        size: Expr = self._product(classes) if classes else integer(1)
        if self.blocked and self.outer in node.result:
            size = (
                Apply("int64", "multiply", (size, integer(self.size)))
                if classes
                else integer(self.size)
            )
            self.values.origin[name] = self.low
        self.scope.emit(Local(name, node.dtype, size), depth=min(1, self.scope.here))
        return name, tuple(strides)

    def _declare_array(self, node: KernelNode) -> None:
        self.pending[node] = self._array(node)

    def _declare_fold(self, node: KernelNode, vector: int) -> None:
        """Declare what an inner fold folds into, with its neutral element."""
        if not self.stages.results(node):
            name = self.scope.fresh("r")
            start = neutral(node.combine, node.dtype)
            self.scope.emit(Local(name, node.dtype, None, start))
            self.pending[node] = (name, ())
            return
        name = (self.pending.setdefault(node, self._array(node)))[0]
        if self._folds_over(node, vector) and not self._serial_folds(node, vector):
            return
        self._clear(node, name)

    def _clear(self, node: KernelNode, name: str) -> None:
        classes = [c for c in node.result if c >= 0 and c not in self.joint]
        size: Expr = self._product(classes) if classes else integer(1)
        if self.blocked and self.outer in node.result:
            size = (
                Apply("int64", "multiply", (size, integer(self.size)))
                if classes
                else integer(self.size)
            )
        var = self.scope.fresh("z")
        zero = neutral(node.combine, node.dtype)
        body = (Store(name, Var("int64", var), zero),)
        self.scope.emit(For(var, integer(0), size, body, "vector"))

    def _partial(self, node: KernelNode) -> str:
        """Declare a scalar for the fold of one vector loop; none if the fold is one itself.

        Threads of a GPU fold what they have of all rows into a number before they meet.
        """
        if not node.total and not self.stages.results(node):
            return ""
        if node.total and self.scope.here == 0:
            return ""
        if node.total and self.spread and not any(c >= 0 for c in node.result):
            return ""
        name = self.scope.fresh("p")
        start = neutral(node.combine, node.dtype)
        self.scope.emit(Local(name, node.dtype, None, start))
        return name

    def _fold(self, node: KernelNode, index: Index, partial: dict[KernelNode, str]) -> None:
        value = self._term(node, index)
        if node in partial:
            self.scope.emit(Fold(partial[node], node.combine, value))
            return
        target, where = self._target(node, tuple(index[a] for a in node.unfolded))
        self.scope.emit(Fold(target, node.combine, value, where))

    def _target(self, node: KernelNode, own: Index) -> tuple[str, Expr | None]:
        """Return what a fold folds into at an index of its result."""
        if node.total:
            name = self.total_names[node]
            if not any(c >= 0 for c in node.result):
                return name, None
            strides = c_strides(tuple(node.shape[a] for a in node.unfolded))
            return name, self.scope.index(combine(list(zip(strides, own, strict=True))))[0]
        name, strides = self.pending[node]
        if not self.stages.results(node):
            return name, None
        parts = list(zip(strides, own, strict=True))
        if name in self.values.origin:
            parts.append((-1, self.values.origin[name]))
        return name, self.scope.index(combine(parts))[0]

    def _merge(self, node: KernelNode, partial: str) -> None:
        """Fold the scalar of a vector loop into its target."""
        own = self._result_index(node)
        target, where = self._target(node, own)
        value = Var(node.dtype, partial)
        if node.total or self._cleared(node):
            self.scope.emit(Fold(target, node.combine, value, where))
        else:
            assert where is not None
            self.scope.emit(Store(target, where, value))

    def _cleared(self, node: KernelNode) -> bool:
        assert node.classes is not None
        folded = [node.classes[a] for a in node.folded if node.classes[a] >= 0]
        return len(folded) > 1
