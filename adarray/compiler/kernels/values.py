"""Computing one element of a node, at given indices, as loop IR."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Protocol, assert_never

from adarray.compiler.ir.domains import Maps
from adarray.compiler.ir.loopir import Apply, Const, Expr, Fail, Fold, If, Load, Local, Var, integer
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value
from adarray.compiler.kernels.nodes import (
    Folded,
    FromRing,
    KernelNode,
    Ref,
    ValueMemory,
    covers,
    dtype_name,
)
from adarray.compiler.kernels.scope import NOTHING, Affine, LoopScope, combine
from adarray.compiler.kernels.tables import is_table

Index = tuple[Affine, ...]
# An expression, and the level of the scope where it is known.
ExprAtLevel = tuple[Expr, int]
# What is done with indices that are out of range.
Outside = Literal["refused", "clamped", "unchanged"]
# Where an operand of a concatenation begins and ends, and how it is read.
Border = tuple[int, int, Ref]


class WrittenRows(Protocol):
    """Rows of a value that a stage keeps for later ones."""

    name: str
    axis: int

    def element(self, values: Values, index: Index) -> Affine:
        """Return where an element lies, as the present stage sees it."""


# Where nodes are written.
Stored = Mapping[KernelNode, ValueMemory | WrittenRows]


class RowStage(Protocol):
    """Where a stage of a kernel stands among the rows."""

    # Whether an index that must not be used is left as it is.
    unbounded: bool

    def one_row(self, axis: int, node: KernelNode, index: Index) -> tuple[Ref, Index] | None:
        """Return the one reading that all pieces of a concatenation are, if it is a rotation."""


def mapped(maps: Maps, index: Index) -> Index:
    """Return what `maps` make of an index."""
    return tuple(combine([(c, index[a]) for a, c in m.terms], m.const) for m in maps)


class Values:
    """Elements of nodes, in a scope.

    Attributes
    ----------
    done : dict
        Where nodes that were computed before lie: a scalar's name, or an array's
        with strides along the axes of the result.
    buffers : dict
        Name of the buffer parameter of each memory, by its value.
    """

    def __init__(self, scope: LoopScope) -> None:
        self.scope = scope
        self.done: dict[KernelNode, tuple[str, tuple[int, ...] | None]] = {}
        self.buffers: dict[Value, str] = {}
        self.dtypes: dict[str, str] = {}
        # Name of the row that a local array begins at, where rows come in blocks.
        self.origin: dict[str, Affine] = {}
        self.vector_depth = -1
        self.bad = ""
        # Level of an iteration over one row, inside which local memory is written and read.
        self.row_depth = 1
        # Whether rows out of pieces of one node are chosen by their index.
        self.choose = False
        # Where a stage stands among the rows, if the kernel has several (see `lower_rings`).
        self.stage: RowStage | None = None

    def buffer(self, memory: ValueMemory) -> str:
        """Return the name of the buffer that holds a memory."""
        key = memory.value
        name = self.buffers.get(key)
        if name is None:
            name = self.buffers[key] = f"b{len(self.buffers)}"
            self.dtypes[name] = dtype_name(memory.value.dtype)
        return name

    # -- reading --------------------------------------------------------------------------

    def read(self, ref: Ref, index: Index) -> ExprAtLevel:
        """Return what a reader at `index` reads."""
        if ref.node is not None:
            assert ref.maps is not None
            return self.value(ref.node, self.seen(ref, index))
        assert ref.memory is not None
        assert ref.at is not None
        at = combine([(c, index[a]) for a, c in ref.at.terms], ref.at.const)
        value = ref.memory.value
        role = "table" if is_table(value) else "at"
        return self.load(self.buffer(ref.memory), dtype_name(value.dtype), at, 0, role)

    @staticmethod
    def seen(ref: Ref, index: Index) -> Index:
        """Return the index at which a node is read by a reader at `index`."""
        assert ref.maps is not None
        return mapped(ref.maps, index)

    def load(
        self, buffer: str, dtype: str, at: Affine, least: int, role: str = "at"
    ) -> ExprAtLevel:
        """Return an element of a buffer or local array."""
        key = ("load", buffer, at)
        hit = self.scope.memo.get(key)
        if hit is not None:
            return hit
        expr, depth = self.scope.index(at, role)
        return self.scope.let(key, Load(dtype, buffer, expr), max(depth, least))

    def value(self, node: KernelNode, index: Index) -> ExprAtLevel:
        """Return the element of a node at an index of its result."""
        key = (node, index)
        hit = self.scope.memo.get(key)
        if hit is not None:
            return hit
        place = self.done.get(node)
        if place is not None:
            return self._from_local(node, place, index)
        match node.operation:
            case Map():
                return self._map(node, index)
            case View():
                result = self.read(node.args[0], index)
            case Constant() as p:
                result = Const(node.dtype, p.value.item()), 0
            case Iota() as p:
                result = self._iota(p, node, index)
            case Concatenate() as p:
                result = self._concatenate(p, node, index)
            case UpdateSlice() as p:
                result = self._update_slice(p, node, index)
            case GatherND() as p:
                result = self._gather(p, node, index)
            case ScatterND() as p:
                result = self._scatter(p, node, index)
            case FromRing():
                result = self._ring(node, index)
            case Folded() | Reduce() | Matmul():
                raise AssertionError(f"{node.value} is read before it is folded")
            case ProgramInput() | ConstantArray() | PrefixScan() | PythonCall() | CallResult():
                raise AssertionError(f"{node.value} lies in memory, and is no node")
            case _:
                assert_never(node.operation)
        if isinstance(result[0], (Apply, Load)):
            return self.scope.let(key, *result)
        return result

    def _from_local(
        self, node: KernelNode, place: tuple[str, tuple[int, ...] | None], index: Index
    ) -> ExprAtLevel:
        name, strides = place
        if strides is None:
            return Var(node.dtype, name), min(self.row_depth, self.scope.here)
        parts = list(zip(strides, index, strict=True))
        if name in self.origin:
            parts.append((-1, self.origin[name]))
        least = min(self.row_depth, self.scope.here)
        return self.load(name, node.dtype, combine(parts), least)

    def _ring(self, node: KernelNode, index: Index) -> ExprAtLevel:
        assert node.ring is not None
        name, at = node.ring.find(self, index)
        return self.load(name, node.dtype, at, min(self.row_depth, self.scope.here))

    # -- kinds ----------------------------------------------------------------------------

    def _map(self, node: KernelNode, index: Index) -> ExprAtLevel:
        """Return the element of a map of maps, however long the chain of them is."""
        stack: list[tuple[KernelNode, Index, Iterator[Ref], list[ExprAtLevel]]] = []
        stack.append((node, index, iter(node.args), []))
        while True:
            node, index, refs, args = stack[-1]
            for ref in refs:
                below = ref.node
                if (
                    below is not None
                    and isinstance(below.operation, Map)
                    and below not in self.done
                ):
                    at = self.seen(ref, index)
                    hit = self.scope.memo.get((below, at))
                    if hit is None:
                        stack.append((below, at, iter(below.args), []))
                        break
                    args.append(hit)
                else:
                    args.append(self.read(ref, index))
            else:
                depth = max((d for _, d in args), default=0)
                assert isinstance(node.operation, Map)
                applied = Apply(node.dtype, node.operation.name, tuple(e for e, _ in args))
                result = self.scope.let((node, index), applied, depth)
                stack.pop()
                if not stack:
                    return result
                stack[-1][3].append(result)

    def _iota(self, p: Iota, node: KernelNode, index: Index) -> ExprAtLevel:
        expr, depth = self.scope.index(index[p.axis])
        if node.dtype == "int64":
            return expr, depth
        return Apply(node.dtype, "cast", (expr,)), depth

    def _update_slice(self, p: UpdateSlice, node: KernelNode, index: Index) -> ExprAtLevel:
        base, piece = node.args
        starts = p.starts
        inside: list[Expr] = []
        depth = 0
        where: list[Affine] = []
        shape = node.value.args[1].shape
        for axis, (at, start, n) in enumerate(zip(index, starts, shape, strict=True)):
            if covers(node, p, axis):
                where.append(at)
                continue
            low, high = self.scope.bounds(at)
            if high < start or low >= start + n:
                return self.read(base, index)
            clamped, conditions, d = self._inside(at, start, start + n)
            where.append(clamped)
            inside += conditions
            depth = max(depth, d)
        value, d = self.read(piece, tuple(where))
        depth = max(depth, d)
        added = p.add
        if not inside and not added:
            return value, depth
        below, d = self.read(base, index)
        depth = max(depth, d)
        if added:
            value = Apply(node.dtype, "add", (below, value))
        if not inside:
            return value, depth
        return Apply(node.dtype, "where", (self._all(inside), value, below)), depth

    def _inside(self, at: Affine, start: int, stop: int) -> tuple[Affine, list[Expr], int]:
        """Return an index that stays in a range, the conditions that it was there, and where."""
        low, high = self.scope.bounds(at)
        if start <= low and high < stop:
            return at, [], 0
        key = ("inside", at, start, stop)
        expr, depth = self.scope.index(at)
        hit = self.scope.memo.get(key)
        if hit is not None:
            condition = hit[0]
        else:
            tests: list[Expr] = []
            if low < start:
                tests.append(Apply("bool", "greater_equal", (expr, self._bound(start))))
            if high >= stop:
                tests.append(Apply("bool", "less", (expr, self._bound(stop))))
            condition = self.scope.let(key, self._all(tests), depth)[0]
        if self.stage is not None and self.stage.unbounded:
            return at, [condition], depth
        other = self._bound(min(max(low, start), stop - 1))
        chosen = Apply("int64", "where", (condition, expr, other))
        name = self.index_let(("clamped", at, start, stop), chosen, depth, start, stop - 1)
        return Affine(0, ((name, 1),)), [condition], depth

    def _bound(self, value: int) -> Expr:
        return self.scope.number("bound", value)

    @staticmethod
    def _all(conditions: list[Expr]) -> Expr:
        expr = conditions[0]
        for other in conditions[1:]:
            expr = Apply("bool", "logical_and", (expr, other))
        return expr

    def index_let(self, key: object, expr: Expr, depth: int, low: int, high: int) -> str:
        """Name an index; it can be a term of others."""
        hit = self.scope.memo.get(key)
        if hit is None:
            hit = self.scope.let(key, expr, depth)
        assert isinstance(hit[0], Var)
        name = hit[0].name
        if name not in self.scope.depth:
            self.scope.depth[name] = depth
            self.scope.range[name] = (low, high)
            self.scope.levels[depth].names.append(name)
        return name

    def _concatenate(self, p: Concatenate, node: KernelNode, index: Index) -> ExprAtLevel:
        axis = p.axis
        at = index[axis]
        low, high = self.scope.bounds(at)
        borders, start = [], 0
        for a, ref in zip(node.value.args, node.args, strict=True):
            stop = start + a.shape[axis]
            if low < stop and high >= start and stop > start:
                borders.append((start, stop, ref))
            start = stop
        if len(borders) == 1:
            return self.read(borders[0][2], index)
        if self.stage is not None:
            same = self.stage.one_row(axis, node, index)
            if same is not None:
                assert same[0].node is not None
                return self.value(same[0].node, same[1])
        one = self._one_source(borders, axis, index)
        if one is None and self.choose and self.stage is None:
            one = self._one_node(borders, axis, index)
        if one is not None:
            return one
        start, stop, ref = borders[-1]
        clamped, _, depth = self._inside(at, start, stop)
        expr, d = self.read(ref, (*index[:axis], clamped, *index[axis + 1 :]))
        depth = max(depth, d)
        for start, stop, ref in reversed(borders[:-1]):
            position, deep = self.scope.index(at)
            clamped, _, d = self._inside(at, start, stop)
            value, d2 = self.read(ref, (*index[:axis], clamped, *index[axis + 1 :]))
            depth = max(depth, d, d2, deep)
            below = Apply("bool", "less", (position, self._bound(stop)))
            expr = Apply(node.dtype, "where", (below, value, expr))
        return expr, depth

    def _one_source(self, borders: list[Border], axis: int, index: Index) -> ExprAtLevel | None:
        """Return the element of pieces that are regions of one array, by choosing its row."""
        memory = borders[0][2].memory
        at = index[axis]
        depth = self.scope.depth_of(at)
        if memory is None or (depth == self.vector_depth and not self.choose):
            return None
        rows: list[Affine] = []
        rest: set[Affine] = set()
        for _, _, ref in borders:
            if ref.memory is None or ref.at is None or ref.memory.value is not memory.value:
                return None
            whole = combine([(c, index[a]) for a, c in ref.at.terms], ref.at.const)
            fixed = tuple(t for t in whole.terms if self.scope.depth[t[0]] <= depth)
            rows.append(Affine(whole.const, fixed))
            rest.add(Affine(0, tuple(t for t in whole.terms if self.scope.depth[t[0]] > depth)))
        if len(rest) > 1:
            return None
        shift = self._column(rows) if self.choose else 0
        rows = [Affine(r.const - shift, r.terms) for r in rows]
        stops = tuple(stop for _, stop, _ in borders[:-1])
        key = ("chosen", memory.value, at, stops, tuple(rows))
        hit = self.scope.memo.get(key)
        if hit is None:
            position, _ = self.scope.index(at)
            expr = self.scope.index(rows[-1])[0]
            for (_, stop, _), row in list(zip(borders, rows, strict=True))[-2::-1]:
                below = Apply("bool", "less", (position, self._bound(stop)))
                expr = Apply("int64", "where", (below, self.scope.index(row)[0], expr))
            hit = self.scope.let(key, expr, depth)
        name = self.index_let(key, hit[0], depth, 0, memory.value.size)
        element = combine([(1, rest.pop()), (1, Affine(0, ((name, 1),)))], shift)
        return self.load(self.buffer(memory), dtype_name(memory.value.dtype), element, 0)

    @staticmethod
    def _column(rows: list[Affine]) -> int:
        """Return what indices of rows have besides whole rows.

        Without it, neighbouring columns are of one row, which is chosen once, and their
        distance is a number in the text.
        """
        step = max((abs(c) for r in rows for _, c in r.terms), default=1)
        return (rows[-1].const + step // 2) % step - step // 2

    def _one_node(self, borders: list[Border], axis: int, index: Index) -> ExprAtLevel | None:
        """Return the element of pieces that are regions of one node, by choosing its row."""
        node, at = borders[0][2].node, index[axis]
        depth = self.scope.depth_of(at)
        if node is None:
            return None
        seen: list[Index] = []
        for _, _, ref in borders:
            if ref.node is not node:
                return None
            seen.append(self.seen(ref, index))
        differ = [k for k in range(len(seen[0])) if len({s[k] for s in seen}) > 1]
        if len(differ) != 1 or any(self.scope.depth_of(s[differ[0]]) > depth for s in seen):
            return None
        k = differ[0]
        rows = [s[k] for s in seen]
        key = ("row", node, k, at, tuple(stop for _, stop, _ in borders[:-1]), tuple(rows))
        position, _ = self.scope.index(at)
        expr = self.scope.index(rows[-1])[0]
        for (_, stop, _), row in list(zip(borders, rows, strict=True))[-2::-1]:
            below = Apply("bool", "less", (position, self._bound(stop)))
            expr = Apply("int64", "where", (below, self.scope.index(row)[0], expr))
        name = self.index_let(key, expr, depth, 0, node.value.shape[k] - 1)
        return self.value(node, (*seen[0][:k], Affine(0, ((name, 1),)), *seen[0][k + 1 :]))

    def _gather(self, p: GatherND, node: KernelNode, index: Index) -> ExprAtLevel:
        shape = node.value.args[0].shape
        extended = list(index)
        axes = p.axes
        used = self._used_axes(node.args[0])
        for k, ref in enumerate(node.args[1:]):
            if len(index) + k in used:
                extended.append(self.wrapped(ref, index, shape[axes[k]]))
            else:
                extended.append(NOTHING)
        return self.read(node.args[0], tuple(extended))

    @staticmethod
    def _used_axes(ref: Ref) -> set[int]:
        maps = (ref.at,) if ref.at is not None else ref.maps or ()
        return {a for m in maps for a, _ in m.terms}

    def wrapped(self, ref: Ref, index: Index, extent: int, outside: Outside = "refused") -> Affine:
        """Return an index that is read from an array, wrapped, as a name.

        Unless they are ``"refused"``, something else refuses indices that are out of range. The
        kernel goes on until then: what it addresses with them must be ``"clamped"``.
        """
        raw, depth = self.read(ref, index)
        key = (outside, raw, extent)
        hit = self.scope.memo.get(key)
        if hit is None:
            if outside == "refused":
                hit = self._check(raw, depth, extent, key)
            else:
                at = self._wrap(raw, extent)
                if outside == "clamped":
                    last = self.scope.number("last", extent - 1)
                    at = Apply("int64", "maximum", (at, integer(0)))
                    at = Apply("int64", "minimum", (at, last))
                hit = self.scope.let(key, at, depth)
        assert isinstance(hit[0], Var)
        name = hit[0].name
        if name not in self.scope.depth:
            self.scope.depth[name] = hit[1]
            self.scope.range[name] = (0, extent - 1)
            self.scope.levels[hit[1]].names.append(name)
        return Affine(0, ((name, 1),))

    def _wrap(self, raw: Expr, extent: int) -> Expr:
        """Return an index from the front: negative ones count from the end."""
        up = Apply("int64", "add", (raw, self.scope.number("extent", extent, literal=False)))
        negative = Apply("bool", "less", (raw, integer(0)))
        return Apply("int64", "where", (negative, up, raw))

    def refuse(self, ref: Ref, index: Index, extent: int) -> None:
        """Leave the kernel here if an index that is read from an array is out of range."""
        raw, _ = self.read(ref, index)
        _, wrong = self._tested(raw, self.scope.here, extent)
        self.scope.emit(If(wrong, (Fail(1),)))

    def _tested(self, raw: Expr, depth: int, extent: int) -> tuple[Expr, Expr]:
        """Return an index that is wrapped, and whether it is out of range."""
        scope = self.scope
        n = scope.number("extent", extent, literal=False)
        wrapped, _ = scope.let(("wrap", raw, extent), self._wrap(raw, extent), depth)
        wrong, _ = scope.let(
            ("wrong", raw, extent),
            Apply(
                "bool",
                "logical_or",
                (
                    Apply("bool", "less", (wrapped, integer(0))),
                    Apply("bool", "greater_equal", (wrapped, n)),
                ),
            ),
            depth,
        )
        return wrapped, wrong

    def _check(self, raw: Expr, depth: int, extent: int, key: object) -> ExprAtLevel:
        scope, zero = self.scope, integer(0)
        wrapped, wrong = self._tested(raw, depth, extent)
        if depth == self.vector_depth:
            if not self.bad:
                self.bad = scope.fresh("bad")
                scope.emit(Local(self.bad, "bool", None, Const("bool", False)), depth=depth - 1)
            scope.emit(Fold(self.bad, "logical_or", wrong), depth=depth)
            return scope.let(key, Apply("int64", "where", (wrong, zero, wrapped)), depth)
        scope.emit(If(wrong, (Fail(1),)), depth=depth)
        return scope.let(key, Apply("int64", "add", (wrapped, zero)), depth)

    def _scatter(self, p: ScatterND, node: KernelNode, index: Index) -> ExprAtLevel:
        """Return an element of a scatter that writes each element at most once."""
        value = node.value
        base, piece, *indices = node.args
        axes = p.axes
        below, depth = self.read(base, index)
        counted = node.counted
        line = index[axes[counted]]
        length = value.args[2].shape[0]
        line, conditions, d = self._inside(line, 0, length)
        depth = max(depth, d)
        inner = tuple(line if a == axes[counted] else at for a, at in enumerate(index))
        for k, ref in enumerate(indices):
            if k == counted:
                continue
            wrapped = self.wrapped(ref, inner, value.shape[axes[k]])
            wanted, d1 = self.scope.index(wrapped)
            here, d2 = self.scope.index(index[axes[k]])
            conditions.append(Apply("bool", "equal", (wanted, here)))
            depth = max(depth, d1, d2)
        new, d = self.read(piece, inner)
        depth = max(depth, d)
        if p.add:
            new = Apply(node.dtype, "add", (below, new))
        if not conditions:
            return new, depth
        return Apply(node.dtype, "where", (self._all(conditions), new, below)), depth
