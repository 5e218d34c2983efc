"""Kernels of values that fuse with nothing: updates, scatters, scans, long concatenations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.ir.domains import Use, spread, strided
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Load,
    Local,
    Param,
    Store,
    Var,
    integer,
)
from adarray.compiler.ir.primitives import PrefixScan, map_of
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import SAME, KernelNode, Nodes, Ref, ValueMemory
from adarray.compiler.kernels.scope import NOTHING, Affine, LoopScope, combine, neutral
from adarray.compiler.kernels.spread import spread as flattened
from adarray.compiler.kernels.values import Values


def own_use(fusion: Fusion, operand: Value) -> Use:
    """Return the use of an operand by its own indices."""
    return spread(fusion.uses.access(operand), operand.shape, operand.ndim)


# Returns what a step reads at an index by axis, and where it is written.
Term = Callable[[dict[int, Affine]], tuple[Expr, Expr]]
ACROSS = 4096  # elements of running folds side by side, from which on a GPU takes line by line
# Chunks of a line of running folds, and elements of each, from which on threads take chunks of a
# line, and how many threads a GPU has for all lines.
CHUNK, THREADS = 64, 1 << 16


def reference(nodes: Nodes, operand: Value) -> Ref:
    """Return what a step reads of an operand, by the operand's own indices."""
    use = own_use(nodes.fusion, operand)
    if nodes.is_node(use):
        nodes.add(use.root)
    return nodes.ref(use)


def region(out: Value, starts: Sequence[int], steps: Sequence[int]) -> ValueMemory:
    """Return the memory of a region of a value."""
    memory = ValueMemory(out)
    strides = c_strides(out.shape)
    memory.offset = sum(a * s for a, s in zip(starts, strides, strict=True))
    memory.strides = tuple(a * s for a, s in zip(steps, strides, strict=True))
    return memory


Pieces: TypeAlias = list[tuple[Ref, ValueMemory]]


def pieces(
    parts: Pieces, shape: tuple[int, ...], add: bool, target: Target
) -> tuple[list[KernelNode], dict[KernelNode, ValueMemory], int, list[int], str]:
    """Return what to lower, to write what references of one shape read to memory, or add it there.

    Returns
    -------
    tuple
        Nodes, what is stored, the outer loop and the extents, as for `Lowering`, and how the
        memory is accessed.
    """
    classes = tuple(a if n != 1 else -1 for a, n in enumerate(shape))
    nodes: dict[KernelNode, ValueMemory] = {}
    below: dict[KernelNode, None] = {}
    for ref, memory in parts:
        dtype = memory.value.dtype
        operation = map_of("logical_or" if dtype == np.bool_ else "add") if add else SAME
        node = KernelNode(Value(operation, (), shape, dtype), classes)
        node.args = [ref]
        if add:
            here = strided(memory.offset, memory.strides)
            node.args = [Ref(None, ValueMemory(memory.value), None, here), ref]
        nodes[node] = memory
        below.update(dict.fromkeys(_below(ref)))
    size = math.prod(shape)
    axes = [a for a, n in enumerate(shape) if n != 1]
    outer = -1
    if size > target.small:
        outer = axes[0] if shape[axes[0]] >= 8 else max(axes, key=lambda a: shape[a])
    _, memory = parts[0]
    whole = memory.offset == 0 and memory.strides == c_strides(memory.value.shape)
    whole &= not add and shape == memory.value.shape
    return [*below, *nodes], nodes, outer, list(shape), "out" if whole else "inout"


def _below(ref: Ref) -> list[KernelNode]:
    """Return the nodes that a reading needs, operands first."""
    done: dict[KernelNode, None] = {}
    stack = [(ref.node, False)]
    while stack:
        node, ready = stack.pop()
        if node is None or node in done:
            continue
        if ready:
            done[node] = None
        else:
            stack.append((node, True))
            stack += [(r.node, False) for r in reversed(node.args)]
    return list(done)


class Serial:
    """A kernel written loop by loop."""

    def __init__(self, out: Value, nodes: Nodes) -> None:
        self.scope = LoopScope()
        self.values = Values(self.scope)
        self.nodes = nodes
        self.out = ValueMemory(out)
        self.target = self.values.buffer(self.out)

    def loops(
        self,
        shape: Sequence[int],
        kinds: Sequence[str],
        body: Callable[[tuple[Affine, ...]], None],
    ) -> None:
        """Write loops over `shape` round what `body` writes; length 1 has none."""
        index: list[Affine] = []
        opened = []
        for n, kind in zip(shape, kinds, strict=True):
            if n == 1:
                index.append(NOTHING)
                continue
            self.scope.open()
            name = self.scope.index_name("i", 0, max(0, n - 1), self.scope.here)
            if kind == "vector":
                self.values.vector_depth = self.scope.here
            opened.append((name, n, kind))
            index.append(Affine(0, ((name, 1),)))
        body(tuple(index))
        for name, n, kind in reversed(opened):
            inside = self.scope.close()
            stop = self.scope.number("n", n, literal=False)
            self.scope.emit(For(name, integer(0), stop, inside, kind))
            if kind == "vector":
                self.values.vector_depth = -1
                if self.values.bad:
                    self.scope.emit(If(Var("bool", self.values.bad), (Fail(1),)))
                    self.values.bad = ""

    def flat(self, shape: Sequence[int], body: Callable[[tuple[Affine, ...]], None]) -> None:
        """Write one parallel loop over all of `shape` round what `body` writes."""
        scope = self.scope
        count = math.prod(shape)
        scope.open()
        name = scope.index_name("i", 0, max(0, count - 1), scope.here)
        body(self.unravelled(Affine(0, ((name, 1),)), shape))
        stop = scope.number("n", count, literal=False)
        inside = scope.close()
        scope.emit(For(name, integer(0), stop, inside, "parallel"))

    def unravelled(self, number: Affine, shape: Sequence[int]) -> tuple[Affine, ...]:
        """Return the index of an element of `shape`, given its number in C order."""
        scope = self.scope
        index = [NOTHING] * len(shape)
        axes = [a for a, n in enumerate(shape) if n != 1]
        size = math.prod(shape)
        for a in reversed(axes[1:]):
            position, depth = scope.index(number)
            n = scope.number("n", shape[a], literal=False)
            size //= shape[a]
            whole = Apply("int64", "floor_divide", (position, n))
            row = self.values.index_let(("whole", number, a), whole, depth, 0, size - 1)
            before = Apply("int64", "multiply", (Var("int64", row), n))
            column = self.values.index_let(
                ("own", number, a), Apply("int64", "subtract", (position, before)),
                depth, 0, shape[a] - 1,
            )  # fmt: skip
            index[a] = Affine(0, ((column, 1),))
            number = Affine(0, ((row, 1),))
        if axes:
            index[axes[0]] = number
        return tuple(index)

    def flatten(self) -> None:
        """Make a parallel loop and those that are all it consists of one.

        Threads may fold into one element of what the kernel writes at the same time.
        """
        level, target = self.scope.levels[0], frozenset({self.target})
        level.statements = [
            flattened(x, target) if isinstance(x, For) and x.kind == "parallel" else x
            for x in level.statements
        ]

    def lowered(self, access: str, others: Mapping[str, str] = {}) -> Lowered:
        """Return the kernel; `others` says how buffers besides the target are accessed."""
        v = self.values
        names = v.buffers
        accesses = {**others, self.target: access}
        buffers = tuple(Param(n, v.dtypes[n], accesses.get(n, "in")) for n in names.values())
        ints = self.scope.ints
        body = self.scope.levels[0].statements
        kernel = Kernel(buffers, tuple(ints.values()), (), tuple(body))
        return Lowered(kernel, tuple(names), tuple(k[1] for k in ints))


def scan(p: PrefixScan, value: Value, nodes: Nodes, target: Target) -> list[Lowered]:
    """Return the kernels of running folds along an axis: one, or three of few long lines."""
    ref = reference(nodes, value.args[0])
    n = value.shape[p.axis % value.ndim]
    lines = value.size // n if n else 0
    beside = math.prod(value.shape[p.axis % value.ndim + 1 :]) > 1
    if target.along and beside and n >= CHUNK * CHUNK and lines * CHUNK <= THREADS:
        return _in_chunks(p, value, ref, nodes, target)
    return [_scan(p, value, ref, nodes, target)]


def _in_chunks(
    p: PrefixScan, value: Value, ref: Ref, nodes: Nodes, target: Target
) -> list[Lowered]:
    """Return kernels that fold chunks of lines, what these give, and all with what is before."""
    axis, n, dtype = p.axis % value.ndim, value.shape[p.axis % value.ndim], value.dtype.name
    count = max(CHUNK, min(n // CHUNK, THREADS * n // value.size))
    size = -(-n // count)
    count = -(-n // size)
    shape = (*value.shape[:axis], count, *value.shape[axis + 1 :])
    folds, sums = (Value(SAME, (), shape, value.dtype) for _ in range(2))
    order = [a for a, m in enumerate(shape) if m != 1]
    kinds = ["parallel", *["serial"] * (len(order) - 1)]
    strides = c_strides(shape)
    start = neutral(p.combine, dtype)
    if start == Const(dtype, 0.0):
        start = Const(dtype, -0.0)

    def chunk(s: Serial, by_axis: dict[int, Affine], stores: bool, *first: Expr) -> str:
        """Write the folds of a chunk; return their name."""
        total = s.scope.fresh("r")
        s.scope.emit(Local(total, dtype, None, start))
        for x in first:
            s.scope.emit(Fold(total, p.combine, x))
        own, _ = s.scope.index(by_axis[axis])
        s.scope.open()
        step = Affine(0, ((s.scope.index_name("i", 0, size - 1, s.scope.here), 1),))
        by_axis = by_axis | {axis: combine([(size, by_axis[axis]), (1, step)])}
        full = tuple(by_axis.get(a, NOTHING) for a in range(value.ndim))
        expr, _ = s.values.read(ref, full)
        s.scope.emit(Fold(total, p.combine, expr))
        if stores:
            own_strides = c_strides(value.shape)
            at, _ = s.scope.index(combine(list(zip(own_strides, full, strict=True))))
            s.scope.emit(Store(s.target, at, Var(dtype, total)))
        body = s.scope.close()
        width = s.scope.number("n", size, literal=False)
        rest = Apply("int64", "subtract", (
            s.scope.number("n", n, literal=False), Apply("int64", "multiply", (own, width)),
        ))  # fmt: skip
        stop = Apply("int64", "minimum", (width, rest))
        s.scope.emit(For(step.terms[0][0], integer(0), stop, body, "serial"))
        return total

    def place(s: Serial, by_axis: dict[int, Affine]) -> Expr:
        """Return where what is known of a chunk is."""
        return s.scope.index(combine([(strides[a], by_axis[a]) for a in order]))[0]

    one, all_ = Serial(folds, nodes), Serial(value, nodes)
    before = all_.values.buffer(ValueMemory(sums))

    def fold(index: tuple[Affine, ...]) -> None:
        by_axis = dict(zip(order, index, strict=True))
        total = chunk(one, by_axis, False)
        one.scope.emit(Store(one.target, place(one, by_axis), Var(dtype, total)))

    def run(index: tuple[Affine, ...]) -> None:
        by_axis = dict(zip(order, index, strict=True))
        here, (own, _) = place(all_, by_axis), all_.scope.index(by_axis[axis])
        first = Apply("bool", "less", (own, integer(1)))
        step = all_.scope.number("n", strides[axis], literal=False)
        at = Apply("int64", "where", (first, here, Apply("int64", "subtract", (here, step))))
        known = Apply(dtype, "where", (first, start, Load(dtype, before, at)))
        chunk(all_, by_axis, True, known)

    one.loops([shape[a] for a in order], kinds, fold)
    all_.loops([shape[a] for a in order], kinds, run)
    one.flatten()
    all_.flatten()
    known = Ref(None, ValueMemory(folds), None, strided(0, strides))
    middle = _scan(PrefixScan(p.combine, axis), sums, known, nodes, target)
    return [one.lowered("out"), middle, all_.lowered("out")]


def _scan(p: PrefixScan, value: Value, ref: Ref, nodes: Nodes, target: Target) -> Lowered:
    """Return the kernel of running folds along an axis of what a reference shows."""
    axis, combine_ = p.axis % value.ndim, p.combine
    s = Serial(value, nodes)
    shape, dtype = value.shape, value.dtype.name
    strides = c_strides(shape)
    lead, tail = list(range(axis)), list(range(axis + 1, value.ndim))
    wide = any(shape[a] != 1 for a in tail)
    order = [*lead, axis, *tail] if wide else [*lead, axis]
    outer = [a for a in lead if shape[a] != 1]
    kinds = ["serial"] * len(order)
    if outer and value.size > target.small:
        kinds[order.index(outer[0])] = "parallel"
    if wide:
        last = max(a for a in tail if shape[a] != 1)
        kinds[order.index(last)] = "vector"

    def term(index: dict[int, Affine]) -> tuple[Expr, Expr]:
        full = tuple(index.get(a, NOTHING) for a in range(value.ndim))
        expr, _ = s.values.read(ref, full)
        at, _ = s.scope.index(combine([(strides[a], full[a]) for a in range(value.ndim)]))
        return expr, at

    if not wide:
        s.loops([shape[a] for a in lead], kinds[: len(lead)],
                lambda i: _line(s, p, value, term, dict(enumerate(i))))  # fmt: skip
        if target.along:
            s.flatten()
        return s.lowered("out")
    wide_axes = [a for a in (*lead, *tail) if shape[a] != 1]
    if target.along and value.size >= ACROSS:
        # A line for each thread, or block; neighbours take what lies side by side.
        def line(index: tuple[Affine, ...]) -> None:
            _line(s, p, value, term, dict(zip(wide_axes, index, strict=True)))

        kinds = ["parallel", *["serial"] * (len(wide_axes) - 1)]
        s.loops([shape[a] for a in wide_axes], kinds, line)
        s.flatten()
        return s.lowered("out")

    def first(index: tuple[Affine, ...]) -> None:
        expr, at = term(dict(zip([*lead, *tail], index, strict=True)))
        s.scope.emit(Store(s.target, at, expr))

    def later(index: tuple[Affine, ...]) -> None:
        by_axis = dict(zip(order, index, strict=True))
        before = dict(by_axis)
        if shape[axis] != 1:
            by_axis[axis] = combine([(1, by_axis[axis])], 1)
        expr, at = term(by_axis)
        full = tuple(before.get(a, NOTHING) for a in range(value.ndim))
        old, _ = s.scope.index(combine([(strides[a], full[a]) for a in range(value.ndim)]))
        load = Load(dtype, s.target, old)
        s.scope.emit(Store(s.target, at, Apply(dtype, combine_, (load, expr))))

    plain = ["vector" if k == "vector" else "serial" for k in kinds]
    s.loops([shape[a] for a in (*lead, *tail)], [plain[order.index(a)] for a in (*lead, *tail)],
            first)  # fmt: skip
    if shape[axis] > 1:
        s.loops([shape[a] - (a == axis) for a in order], plain, later)
    return s.lowered("out")


def _line(s: Serial, p: PrefixScan, value: Value, term: Term, index: dict[int, Affine]) -> None:
    """Write the running fold of one line, at an index of the other axes."""
    axis, combine_ = p.axis % value.ndim, p.combine
    dtype = value.dtype.name
    total = s.scope.fresh("r")
    start = neutral(combine_, dtype)
    if start == Const(dtype, 0.0):
        start = Const(dtype, -0.0)  # the first sum is the first term, sign of zero included
    s.scope.emit(Local(total, dtype, None, start))
    s.scope.open()
    n = value.shape[axis]
    name = s.scope.index_name("i", 0, max(0, n - 1), s.scope.here)
    where = index | {axis: Affine(0, ((name, 1),))}
    expr, at = term(where)
    s.scope.emit(Fold(total, combine_, expr))
    s.scope.emit(Store(s.target, at, Var(dtype, total)))
    body = s.scope.close()
    stop = s.scope.number("n", n, literal=False)
    s.scope.emit(For(name, integer(0), stop, body, "serial"))
