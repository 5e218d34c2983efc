"""Scatters: kernels that write or add pieces at indices which are read from memory.

References
----------
- J. Gómez-Luna, J. M. González-Linares, J. I. Benavides, N. Guil, "An optimized approach to
  histogram computation on GPU", Machine Vision and Applications 24 (2013), 899-908 (atomic
  additions).
"""

from __future__ import annotations

from operator import itemgetter

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Fold, If, Load, Store
from adarray.compiler.ir.primitives import ScatterND, map_of
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, ValueMemory
from adarray.compiler.kernels.scope import Affine, combine
from adarray.compiler.kernels.steps import Serial, reference

# Rows from which on threads share a last axis of so many elements, rather than all elements.
ROWS, LONG = 8192, 64


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
        self.ahead = range(self.position, self.position + self.width)
        self.rest = [a for a in range(self.piece.ndim) if a not in self.ahead]
        self.order = [*self.ahead, *self.rest]
        self.unindexed = [a for a in range(value.ndim) if a not in self.axes]

    def element(self, s: Serial, index: tuple[Affine, ...]) -> tuple[Expr, Expr]:
        """Return what is written with an index of the piece, and where."""
        strides = c_strides(self.value.shape)
        parts = list(self.places(s, self.where(index), strides, self.axes))
        for axis, a in zip(self.unindexed, self.rest, strict=True):
            parts.append((strides[axis], index[a]))
        element, _ = s.values.read(self.new, index)
        return element, s.scope.index(combine(parts))[0]

    def where(self, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Return the part of a piece's index at which the arrays of indices are read."""
        return tuple(index[a] for a in self.ahead)

    def by_axis(self, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Return an index in the order of the loops as an index of the piece."""
        return tuple(x for _, x in sorted(zip(self.order, index, strict=True), key=itemgetter(0)))

    def places(
        self, s: Serial, where: tuple[Affine, ...], strides: tuple[int, ...], axes: tuple[int, ...]
    ) -> list[tuple[int, Affine]]:
        """Return the parts of an index that are read from memory."""
        extents = [self.value.shape[a] for a in self.axes]
        return [
            (strides[a], s.values.wrapped(ref, where, n))
            for a, ref, n in zip(axes, self.refs, extents, strict=True)
        ]

    def kinds(self) -> list[str]:
        """Return the kinds of loops that one thread makes."""
        kinds = ["serial"] * len(self.order)
        if self.rest and self.piece.shape[self.rest[-1]] != 1:
            kinds[-1] = "vector"
        return kinds

    def shared(self) -> list[str]:
        """Return the kinds of loops over a piece in C order that threads share in any order.

        Neighbours take neighbouring elements, whichever axes are indexed. A long last axis that
        is not has a loop of its own: its indices are read once.
        """
        shape = self.piece.shape
        axes = [a for a, n in enumerate(shape) if n != 1]
        kinds = ["serial"] * len(shape)
        if axes:
            kinds[axes[0]] = "parallel"
            last = axes[-1]
            rows = self.piece.size // shape[last]
            if last not in self.ahead and rows >= ROWS and shape[last] >= LONG:
                kinds[last] = "vector"
        return kinds


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

    if together:
        s.loops(x.piece.shape, x.shared(), body)
        s.flatten()
    else:
        shape = [x.piece.shape[a] for a in x.order]
        s.loops(shape, x.kinds(), lambda index: body(x.by_axis(index)))
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
    shape = [x.piece.shape[a] for a in x.ahead]
    own, number = c_strides(owner.shape), c_strides(tuple(shape))
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

    kinds = ["serial"] * x.width
    kinds[next((k for k, n in enumerate(shape) if n != 1), 0)] = "parallel"
    mark.loops(shape, kinds, note)
    mark.flatten()
    write = Serial(value, nodes)

    def choose(index: tuple[Affine, ...]) -> None:
        scope, at = write.scope, x.where(index)
        place = combine(x.places(write, at, own, every))
        name = write.values.buffer(ValueMemory(owner))
        last, _ = write.values.load(name, "int64", place, 0)
        n, _ = scope.index(combine(list(zip(number, at, strict=True))))
        scope.open()
        element, there = x.element(write, index)
        scope.emit(Store(write.target, there, element))
        scope.emit(If(Apply("bool", "equal", (last, n)), scope.close()))

    write.loops(x.piece.shape, x.shared(), choose)
    write.flatten()
    return [clear.lowered("out"), mark.lowered("inout"), write.lowered("inout")]
