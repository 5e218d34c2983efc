"""Scatters as gathers: each element of the result collects the pieces that are written there.

Elements are independent then, so that threads share all axes, the base is read where the result
is written, and pieces for one place come in their order, as in NumPy. A place finds its pieces by
comparing all indices with its own number, or in lists that are sorted by place.

References
----------
- M. Harris, S. Sengupta, J. D. Owens, "Parallel prefix sum (scan) with CUDA", GPU Gems 3, chapter
  39, 2007 (sorting by counting).
- S. Sengupta, M. Harris, Y. Zhang, J. D. Owens, "Scan primitives for GPU computing", Graphics
  Hardware 2007 (segments).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Expr,
    Fold,
    For,
    If,
    Load,
    Local,
    Store,
    Var,
    integer,
)
from adarray.compiler.ir.primitives import ScatterND, map_of
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, Ref, ValueMemory
from adarray.compiler.kernels.scatter import ScatterLoops
from adarray.compiler.kernels.scope import NOTHING, Affine, combine
from adarray.compiler.kernels.steps import Serial, reference

# Elements of the result that a thread collects, for which it finds the pieces once; and threads
# side by side that remain where these are of the innermost axis.
SHARES, BESIDE = (4, 2), 128


def lists_of(p: ScatterND, value: Value) -> Value:
    """Return the array of the pieces' numbers sorted by place, and of where each place begins."""
    count, places = value.args[2].size, 1
    for a in p.axes:
        places *= value.shape[a]
    return Value(map_of("cast"), (), (count + places + 1,), np.dtype(np.int64))


def sort_by_place(p: ScatterND, value: Value, nodes: Nodes, lists: Value) -> Lowered:
    """Return the kernel that sorts the pieces of a scatter by counting those before each.

    It also counts the pieces before each place, where the list of that place begins.
    """
    x, s = ScatterLoops(p, value, nodes), Serial(lists, nodes)
    scope, count = s.scope, x.count

    def entry(index: tuple[Affine, ...]) -> None:
        at, depth = scope.index(index[0])
        n = scope.number("count", count)
        is_piece, _ = scope.let("piece", Apply("bool", "less", (at, n)), depth)
        number = Apply("int64", "where", (is_piece, at, integer(0)))
        mine = Affine(0, ((s.values.index_let("mine", number, depth, 0, count - 1), 1),))
        own, _ = scope.index(x.place(s, mine))
        number = Apply("int64", "where", (is_piece, own, Apply("int64", "subtract", (at, n))))
        place, _ = scope.let("place", number, depth)
        before = scope.fresh("r")
        scope.emit(Local(before, "int64", None, integer(0)))

        def compare(other: tuple[Affine, ...]) -> None:
            its, _ = scope.index(x.place(s, other[0], check=False))
            earlier = Apply("bool", "less", (scope.index(other[0])[0], scope.index(mine)[0]))
            same = Apply("bool", "logical_and", (Apply("bool", "equal", (its, place)), earlier))
            first = Apply("bool", "logical_or", (Apply("bool", "less", (its, place)), same))
            one = Apply("int64", "where", (first, integer(1), integer(0)))
            scope.emit(Fold(before, "add", one))

        s.loops([count], ["vector"], compare)
        rank = Var("int64", before)
        to, new = (Apply("int64", "where", (is_piece, *pair)) for pair in ((rank, at), (at, rank)))
        scope.emit(Store(s.target, to, new))

    s.flat([lists.size], entry)
    return s.lowered("out")


def collect(
    p: ScatterND, value: Value, nodes: Nodes, lists: Value | None, over: bool, checked: bool
) -> Lowered:
    """Return the kernel that collects each element of a scatter's result.

    Parameters
    ----------
    p : ScatterND
    value : Value
    nodes : Nodes
    lists : Value or None
        What `sort_by_place` has written; without it all indices are compared.
    over : bool
        Whether the result's memory holds the base.
    checked : bool
        Whether another kernel refuses indices that are out of range.
    """
    return _Collector(p, value, nodes, over).run(lists, checked or lists is not None)


class _Collector:
    """The kernel that collects each element, in the making."""

    def __init__(self, p: ScatterND, value: Value, nodes: Nodes, over: bool) -> None:
        self.value = value
        self.add = p.add
        self.over = over
        self.x = ScatterLoops(p, value, nodes)
        self.s = Serial(value, nodes)
        self.base: Ref | None = None if over else reference(nodes, value.args[0])
        self.axes = self.x.stretches(self.base)
        self.shared, self.shares = self._shares()

    def _shares(self) -> tuple[int, int]:
        """Return the loop of which a thread takes several iterations, and how many."""
        free = [k for k, (axis, _) in enumerate(self.axes) if axis in self.x.unindexed]
        for shares in SHARES:
            for k in sorted(free, key=lambda k: -self.axes[k][1]):
                n = self.axes[k][1]
                innermost = k == len(self.axes) - 1
                if n % shares == 0 and (not innermost or n // shares >= BESIDE):
                    return k, shares
        return -1, 1

    def run(self, lists: Value | None, checked: bool) -> Lowered:
        """Return the kernel."""
        shape = [n for _, n in self.axes]
        if self.shares > 1:
            shape[self.shared] //= self.shares
        self.s.flat(shape, lambda index: self._elements(index, lists, checked))
        return self.s.lowered("inout" if self.over else "out")

    def _elements(self, index: tuple[Affine, ...], lists: Value | None, checked: bool) -> None:
        """Collect the elements of one thread."""
        s, dtype = self.s, self.value.dtype.name
        every, totals = [], []
        for share in range(self.shares):
            own = list(index)
            if self.shares > 1:
                step = self.axes[self.shared][1] // self.shares
                own[self.shared] = combine([(1, own[self.shared])], share * step)
            by_axis = {axis: i for (axis, _), i in zip(self.axes, own, strict=True)}
            every.append(tuple(by_axis.get(a, NOTHING) for a in range(self.value.ndim)))
        strides = c_strides(self.value.shape)
        places = [s.scope.index(combine(list(zip(strides, at, strict=True))))[0] for at in every]
        for at, where in zip(every, places, strict=True):
            total = s.scope.fresh("r")
            before = Load(dtype, s.target, where) if self.base is None else self._base(at)
            s.scope.emit(Local(total, dtype, None, before))
            totals.append(total)

        def take(number: Affine) -> None:
            """Collect a piece, which must be read here and not before."""
            expr, _ = s.scope.index(number)
            name = s.values.index_let(
                ("here", number, s.scope.here), expr, s.scope.here, 0, self.x.count - 1
            )
            piece = s.unravelled(Affine(0, ((name, 1),)), self.x.index_shape)
            for at, total in zip(every, totals, strict=True):
                element, _ = s.values.read(self.x.new, self.x.piece_index(piece, at))
                s.scope.emit(self._taken(total, element))

        here = combine([(n, every[0][a]) for n, a in zip(self.x.own, self.x.axes, strict=True)])
        if lists is None:
            self._compared(here, take, checked)
        else:
            self._listed(here, lists, take)
        for where, total in zip(places, totals, strict=True):
            s.scope.emit(Store(s.target, where, Var(dtype, total)))

    def _base(self, at: tuple[Affine, ...]) -> Expr:
        assert self.base is not None
        return self.s.values.read(self.base, at)[0]

    def _taken(self, total: str, element: Expr) -> Fold | Assign:
        if not self.add:
            return Assign(total, element)
        return Fold(total, "logical_or" if element.dtype == "bool" else "add", element)

    def _compared(self, here: Affine, take: Callable[[Affine], None], checked: bool) -> None:
        """Compare the indices of all pieces with a place."""
        s = self.s

        def compare(index: tuple[Affine, ...]) -> None:
            mine, _ = s.scope.index(here)
            its, _ = s.scope.index(self.x.place(s, index[0], check=not checked))
            s.scope.open()
            take(index[0])
            s.scope.emit(If(Apply("bool", "equal", (its, mine)), s.scope.close()))

        s.loops([self.x.count], ["serial"], compare)

    def _listed(self, here: Affine, lists: Value, take: Callable[[Affine], None]) -> None:
        """Go through the list of a place; of pieces that replace each other take the last."""
        s, count = self.s, self.x.count
        name = s.values.buffer(ValueMemory(lists))
        first, last = (
            s.values.load(name, "int64", combine([(1, here)], count + k), s.scope.here)[0]
            for k in (0, 1)
        )
        s.scope.open()
        if not self.add:
            at = s.values.index_let(
                "last", Apply("int64", "subtract", (last, integer(1))), s.scope.here, 0, count - 1
            )
            take(self._number(name, Affine(0, ((at, 1),))))
            s.scope.emit(If(Apply("bool", "less", (first, last)), s.scope.close()))
            return
        at = s.scope.index_name("p", 0, count - 1, s.scope.here)
        take(self._number(name, Affine(0, ((at, 1),))))
        s.scope.emit(For(at, first, last, s.scope.close(), "serial"))

    def _number(self, lists: str, at: Affine) -> Affine:
        """Return the number of a piece in the lists."""
        s = self.s
        number, depth = s.values.load(lists, "int64", at, s.scope.here)
        name = s.values.index_let(("number", at), number, depth, 0, self.x.count - 1)
        return Affine(0, ((name, 1),))
