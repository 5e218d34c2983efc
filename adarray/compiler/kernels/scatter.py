"""Scatters: kernels that write or add pieces at indices which are read from memory.

References
----------
- J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "An optimized approach to
  histogram computation on GPU", Machine Vision and Applications 24 (2013), 899-908 (atomic
  additions).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fold,
    For,
    If,
    Load,
    Store,
    Var,
    integer,
)
from adarray.compiler.ir.primitives import Constant, ScatterND, map_of
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, Ref, ValueMemory
from adarray.compiler.kernels.scope import NOTHING, Affine, combine
from adarray.compiler.kernels.steps import Serial, reference
from adarray.compiler.kernels.values import Outside

SHARED, COLUMNS = 8, 256  # iterations that threads of a processor share, at least; of a block
BLOCKS = 4  # of columns, at least
WIDE = 32  # elements side by side that a group of threads takes, rather than each thread one


class ScatterLoops:
    """A scatter: what it writes where.

    Parameters
    ----------
    p : ScatterND
    value : Value
    nodes : Nodes
    """

    def __init__(self, p: ScatterND, value: Value, nodes: Nodes) -> None:
        self.value = value
        self.nodes = nodes
        _, self.piece, *indices = value.args
        self.refs = [reference(nodes, i) for i in indices]
        self.new = reference(nodes, self.piece)
        self.position, self.axes = p.position, p.axes
        self.width = indices[0].ndim
        ahead = range(self.position, self.position + self.width)
        self.rest = [a for a in range(self.piece.ndim) if a not in ahead]
        self.order = [*ahead, *self.rest]
        self.unindexed = [a for a in range(value.ndim) if a not in self.axes]
        self.index_shape = indices[0].shape
        self.count = math.prod(self.index_shape)
        # Distances of places from each other, and the extents of the indexed axes.
        self.extents = tuple(value.shape[a] for a in self.axes)
        self.own = c_strides(self.extents)

    def place(self, s: Serial, number: Affine, outside: Outside = "clamped") -> Affine:
        """Return the number of the place where a piece goes, given the piece's number."""
        where = s.unravelled(number, self.index_shape)
        return combine([
            (step, s.values.wrapped(ref, where, n, outside))
            for step, ref, n in zip(self.own, self.refs, self.extents, strict=True)
        ])  # fmt: skip

    def refuse(self, s: Serial, number: Affine) -> None:
        """Leave the kernel here if the indices of a piece are out of range."""
        where = s.unravelled(number, self.index_shape)
        for ref, n in zip(self.refs, self.extents, strict=True):
            s.values.refuse(ref, where, n)

    def piece_index(self, piece: tuple[Affine, ...], at: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Return where an element of a piece lies that goes to an index of the result."""
        by_axis = {self.position + k: i for k, i in enumerate(piece)}
        by_axis |= {a: at[axis] for a, axis in zip(self.rest, self.unindexed, strict=True)}
        return tuple(by_axis[a] for a in range(self.piece.ndim))

    def stretches(self, base: Ref | None) -> list[tuple[int, int]]:
        """Return the axes of the result to loop over, with the iterations of each.

        Neighbouring axes that everything runs through as one are one loop, over the last of them.
        """
        axes: list[tuple[int, int]] = []
        piece_axis = dict(zip(self.unindexed, self.rest, strict=True))
        for axis, n in enumerate(self.value.shape):
            if n == 1:
                continue
            if axes and axis in piece_axis and axes[-1][0] in piece_axis:
                before, length = axes[-1]
                between = range(before + 1, axis)
                if (
                    all(a in piece_axis for a in between)
                    and (base is None or _runs_on(base, before, axis, n))
                    and _runs_on(self.new, piece_axis[before], piece_axis[axis], n)
                ):
                    axes[-1] = axis, length * n
                    continue
            axes.append((axis, n))
        return axes or [(0, 1)] if self.value.ndim else []

    def element(self, s: Serial, index: tuple[Affine, ...]) -> tuple[Expr, Expr]:
        """Return what is written with an index in the order of the loops, and where."""
        by_axis = dict(zip(self.order, index, strict=True))
        strides = c_strides(self.value.shape)
        parts = list(self.places(s, index[: self.width], strides, self.axes))
        for axis, a in zip(self.unindexed, self.rest, strict=True):
            parts.append((strides[axis], by_axis[a]))
        element, _ = s.values.read(self.new, tuple(by_axis[a] for a in range(self.piece.ndim)))
        return element, s.scope.index(combine(parts))[0]

    def places(
        self, s: Serial, where: tuple[Affine, ...], strides: tuple[int, ...], axes: tuple[int, ...]
    ) -> list[tuple[int, Affine]]:
        """Return the parts of an index that are read from memory."""
        extents = [self.value.shape[a] for a in self.axes]
        return [
            (strides[a], s.values.wrapped(ref, where, n))
            for a, ref, n in zip(axes, self.refs, extents, strict=True)
        ]

    def shared_axis(self) -> int:
        """Return the axis of the piece that threads of a processor share, -1 if there is none.

        One before the indices is best, whose parts lie in memory one after the other.
        """
        shape = self.piece.shape
        for a in self.rest:
            if shape[a] >= (BLOCKS * COLUMNS if a == self.rest[-1] else SHARED):
                single = a < self.position or a != self.rest[-1]
                return a if single or all(shape[b] == 1 for b in self.rest if b != a) else -1
        return -1

    def piece_stretches(self) -> list[tuple[int, int]]:
        """Return the axes of the piece to loop over, as `stretches` does for the result's."""
        axes: list[tuple[int, int]] = []
        to = dict(zip(self.rest, self.unindexed, strict=True))
        for axis, n in enumerate(self.piece.shape):
            if n == 1:
                continue
            if axes and axis in to and axes[-1][0] in to:
                before, length = axes[-1]
                together = all(a not in self.axes for a in range(to[before], to[axis]))
                if together and before + 1 == axis and _runs_on(self.new, before, axis, n):
                    axes[-1] = axis, length * n
                    continue
            axes.append((axis, n))
        return axes or [(0, 1)]

    def kinds(self, parallel: bool, count: int) -> list[str]:
        """Return the kinds of the first `count` loops."""
        shape = [self.piece.shape[a] for a in self.order]
        kinds = ["serial"] * len(shape)
        if parallel:
            kinds[next((k for k, n in enumerate(shape[: self.width]) if n != 1), 0)] = "parallel"
        if self.rest and self.piece.shape[self.rest[-1]] != 1:
            kinds[-1] = "vector"
        return kinds[:count]


def _runs_on(ref: Ref, axis: int, inner: int, n: int) -> bool:
    """Whether what is read goes on along `axis` where its `n` elements along `inner` end."""
    if ref.node is not None:
        return isinstance(ref.node.operation, Constant)
    assert ref.at is not None
    steps = dict(ref.at.terms)
    return steps.get(axis, 0) == steps.get(inner, 0) * n


def scatter(p: ScatterND, value: Value, nodes: Nodes, target: Target) -> Lowered:
    """Return the kernel that scatters into memory that holds the base already, piece by piece.

    Threads share an axis that is not indexed: each goes through all pieces, in their order.
    """
    s, x = Serial(value, nodes), ScatterLoops(p, value, nodes)

    def body(index: dict[int, Affine]) -> None:
        element, at = x.element(s, tuple(index.get(a, NOTHING) for a in x.order))
        if p.add:
            old = Load(value.dtype.name, s.target, at)
            name = "logical_or" if value.dtype == np.bool_ else "add"
            element = Apply(value.dtype.name, name, (old, element))
        s.scope.emit(Store(s.target, at, element))

    outer = x.shared_axis() if x.piece.size > target.small else -1
    if outer >= 0 and outer == x.rest[-1]:
        _in_columns(s, x, body)
        return s.lowered("inout")
    order = x.order if outer < 0 else [outer, *(a for a in x.order if a != outer)]
    kinds = x.kinds(False, len(order))
    if outer >= 0:
        kinds[0] = "parallel"
    shape = [x.piece.shape[a] for a in order]
    s.loops(shape, kinds, lambda index: body(dict(zip(order, index, strict=True))))
    return s.lowered("inout")


def _in_columns(s: Serial, x: ScatterLoops, body: Callable[[dict[int, Affine]], None]) -> None:
    """Write the loops of pieces whose only other axis is shared in blocks of columns."""
    scope, last = s.scope, x.rest[-1]
    n = x.piece.shape[last]
    ahead = x.order[: x.width]
    scope.open()
    blocks = -(-n // COLUMNS)
    block = scope.index_name("block", 0, blocks - 1, scope.here)
    size, length = integer(COLUMNS), scope.number("n", n, literal=False)
    low, _ = scope.let("low", Apply("int64", "multiply", (Var("int64", block), size)), scope.here)
    end = Apply("int64", "minimum", (Apply("int64", "add", (low, size)), length))
    high, _ = scope.let("high", end, scope.here)

    def columns(index: tuple[Affine, ...]) -> None:
        scope.open()
        name = scope.index_name("j", 0, n - 1, scope.here)
        s.values.vector_depth = scope.here
        body(dict(zip(ahead, index, strict=True)) | {last: Affine(0, ((name, 1),))})
        s.values.vector_depth = -1
        scope.emit(For(name, low, high, scope.close(), "vector"))

    s.loops([x.piece.shape[a] for a in ahead], ["serial"] * x.width, columns)
    count = Apply("int64", "add", (length, integer(COLUMNS - 1)))
    count = Apply("int64", "floor_divide", (count, size))
    scope.emit(For(block, integer(0), count, scope.close(), "parallel"))


def scatter_add(p: ScatterND, value: Value, nodes: Nodes) -> Lowered:
    """Return the kernel that adds all pieces at a time, by atomic additions.

    Threads share all axes: what they read lies side by side.
    """
    s, x = Serial(value, nodes), ScatterLoops(p, value, nodes)
    loops = x.piece_stretches()
    axes = [axis for axis, _ in loops]
    shape = [n for _, n in loops]
    inner = axes[-1] in x.rest and shape[-1] >= WIDE

    def outer(index: tuple[Affine, ...]) -> None:
        def add(last: tuple[Affine, ...]) -> None:
            by_axis = dict(zip(axes, (*index, *last), strict=True))
            element, at = x.element(s, tuple(by_axis.get(a, NOTHING) for a in x.order))
            s.scope.emit(Fold(s.target, "add", element, at))

        s.loops(shape[-1:], ["vector"], add) if inner else add(())

    s.flat(shape[:-1] if inner else shape, outer)
    return s.lowered("inout")


def owners(p: ScatterND, value: Value) -> Value:
    """Return the array that holds for each place of a scatter which piece comes last."""
    shape = tuple(value.shape[a] for a in p.axes)
    return Value(map_of("cast"), (), shape, np.dtype(np.int64))


def scatter_last(p: ScatterND, value: Value, nodes: Nodes, owner: Value) -> list[Lowered]:
    """Return kernels that scatter in any order: of pieces for one place the last one stays.

    The first two note in `owner` which piece that is; the third one writes it.
    """
    x = ScatterLoops(p, value, nodes)
    shape = [x.piece.shape[a] for a in x.order]
    own, number = c_strides(owner.shape), c_strides(tuple(shape[: x.width]))
    every = tuple(range(len(own)))
    clear = Serial(owner, nodes)

    def none(index: tuple[Affine, ...]) -> None:
        at, _ = clear.scope.index(index[0])
        clear.scope.emit(Store(clear.target, at, Const("int64", -1)))

    clear.loops([owner.size], ["vector"], none)
    mark = Serial(owner, nodes)

    def note(index: tuple[Affine, ...]) -> None:
        at, _ = mark.scope.index(combine(x.places(mark, index, own, every)))
        n, _ = mark.scope.index(combine(list(zip(number, index, strict=True))))
        mark.scope.emit(Fold(mark.target, "maximum", n, at))

    mark.loops(shape[: x.width], x.kinds(True, x.width), note)
    write = Serial(value, nodes)

    def choose(index: tuple[Affine, ...]) -> None:
        scope = write.scope
        where = combine(x.places(write, index, own, every))
        name = write.values.buffer(ValueMemory(owner))
        last, _ = write.values.load(name, "int64", where, 0)
        n, _ = scope.index(combine(list(zip(number, index, strict=True))))
        scope.open()

        def piece(rest: tuple[Affine, ...]) -> None:
            element, at = x.element(write, (*index, *rest))
            scope.emit(Store(write.target, at, element))

        write.loops(shape[x.width :], x.kinds(True, len(shape))[x.width :], piece)
        scope.emit(If(Apply("bool", "equal", (last, n)), scope.close()))

    write.loops(shape[: x.width], x.kinds(True, x.width), choose)
    return [clear.lowered("out"), mark.lowered("inout"), write.lowered("inout")]
