"""Scatters: kernels that write or add pieces at indices which are read from memory.

References
----------
- J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "An optimized approach to
  histogram computation on GPU", Machine Vision and Applications 24 (2013), 899-908 (atomic
  additions).
"""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Fold, If, Load, Store
from adarray.compiler.ir.primitives import ScatterND, map_of
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, ValueMemory
from adarray.compiler.kernels.scope import Affine, combine
from adarray.compiler.kernels.steps import Serial, reference


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

    def kinds(self, parallel: bool, count: int) -> list[str]:
        """Return the kinds of the first `count` loops."""
        shape = [self.piece.shape[a] for a in self.order]
        kinds = ["serial"] * len(shape)
        if parallel:
            kinds[next((k for k, n in enumerate(shape[: self.width]) if n != 1), 0)] = "parallel"
        if self.rest and self.piece.shape[self.rest[-1]] != 1:
            kinds[-1] = "vector"
        return kinds[:count]


def scatter(p: ScatterND, value: Value, nodes: Nodes, target: Target) -> Lowered:
    """Return the kernel that scatters into memory that holds the base already."""
    s, x = Serial(value, nodes), ScatterLoops(p, value, nodes)
    together = p.add and value.dtype.name in target.atomic

    def body(index: tuple[Affine, ...]) -> None:
        element, at = x.element(s, index)
        if together:
            s.scope.emit(Fold(s.target, "add", element, at))
            return
        if p.add:
            old = Load(value.dtype.name, s.target, at)
            name = "logical_or" if value.dtype == np.bool_ else "add"
            element = Apply(value.dtype.name, name, (old, element))
        s.scope.emit(Store(s.target, at, element))

    s.loops([x.piece.shape[a] for a in x.order], x.kinds(together, len(x.order)), body)
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
