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

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.nodes import Nodes, Ref, ValueMemory
from adarray.compiler.kernels.scatter import ScatterLoops
from adarray.compiler.kernels.scope import NOTHING, Affine, combine
from adarray.compiler.kernels.steps import Serial, reference

# Elements of the result that a thread collects, for which it finds the pieces once; and threads
# side by side that remain where these are of the innermost axis: fewer, as many as move a sector,
# where threads are so many that some wait until others have ended.
SHARES, BESIDE = (4, 2), 128
SECTOR, MANY_THREADS = 8, 1 << 18
# Where these do not divide a loop, its parts overlap by up to this part of it: what two threads
# collect they both store.
OVERLAP = 16


# Pieces of a place that a thread collects from the lists of more than so many pieces: the others
# are added atomically, so that no thread has most of the work where most pieces go to one place.
MOST, MANY = 64, 512


@dataclass(frozen=True)
class RankedLists:
    """Lists that are sorted by comparing all pieces.

    Parameters
    ----------
    lists : Value
        The numbers of the pieces, sorted by place; then where the list of each place begins.
    is_cut : bool
        Whether a thread collects `MOST` pieces of a place.
    """

    lists: Value
    is_cut: bool


@dataclass(frozen=True)
class CountedLists:
    """Lists that are sorted by counting with atomic additions, in an order that varies.

    Parameters
    ----------
    counts, ends : Value
        The number of pieces for each place, and of all up to it.
    ranks : Value
        Which piece of its place each one is.
    order : Value
        The numbers of the pieces, sorted by place.
    """

    counts: Value
    ends: Value
    ranks: Value
    order: Value


Lists = RankedLists | CountedLists | None


def _integers(n: int) -> Value:
    """Return an array that the kernels of a scatter share."""
    return Value(map_of("cast"), (), (n,), np.dtype(np.int64))


def ranked_lists(p: ScatterND, value: Value, target: Target) -> RankedLists:
    """Return the memory of lists for `sort_by_place`."""
    count = value.args[2].size
    is_cut = p.add and count > MANY and value.dtype.name in target.atomic
    return RankedLists(_integers(count + _places(p, value) + 1), is_cut)


def counted_lists(p: ScatterND, value: Value) -> CountedLists:
    """Return the memory of lists for `count_by_place`."""
    count, places = value.args[2].size, _places(p, value)
    return CountedLists(*map(_integers, (places, places, count, count)))


def _places(p: ScatterND, value: Value) -> int:
    return math.prod(value.shape[a] for a in p.axes)


def count_by_place(
    p: ScatterND, value: Value, nodes: Nodes, lists: CountedLists
) -> Iterator[Lowered]:
    """Yield the kernels that sort the pieces of a scatter by counting them.

    Lists are whole where indices are out of range, too: kernels run until the host knows that.
    """
    x = ScatterLoops(p, value, nodes)
    clear = Serial(lists.counts, nodes)

    def zero(index: tuple[Affine, ...]) -> None:
        clear.scope.emit(Store(clear.target, clear.scope.index(index[0])[0], integer(0)))

    clear.loops([lists.counts.size], ["vector"], zero)
    yield clear.lowered("out")
    count = Serial(lists.ranks, nodes)
    counts = count.values.buffer(ValueMemory(lists.counts))

    def number(index: tuple[Affine, ...]) -> None:
        scope, rank = count.scope, count.scope.fresh("r")
        place, _ = scope.index(x.place(count, index[0]))
        scope.emit(Local(rank, "int64", None, integer(0)))
        scope.emit(Fold(counts, "add", integer(1), place, rank))
        scope.emit(Store(count.target, scope.index(index[0])[0], Var("int64", rank)))
        x.refuse(count, index[0])

    count.flat([x.count], number)
    yield count.lowered("out", {counts: "inout"})
    yield _ends(lists, nodes)
    order = Serial(lists.order, nodes)

    def put(index: tuple[Affine, ...]) -> None:
        place = x.place(order, index[0])
        first, _ = _bounds(order, lists, place)
        at = Apply("int64", "add", (first, _loaded(order, lists.ranks, index[0])))
        order.scope.emit(Store(order.target, at, order.scope.index(index[0])[0]))

    order.flat([x.count], put)
    yield order.lowered("out")


def _ends(lists: CountedLists, nodes: Nodes) -> Lowered:
    """Return the kernel that adds up the counts of all places."""
    s = Serial(lists.ends, nodes)
    total = s.scope.fresh("r")
    s.scope.emit(Local(total, "int64", None, integer(0)))

    def end(index: tuple[Affine, ...]) -> None:
        s.scope.emit(Fold(total, "add", _loaded(s, lists.counts, index[0])))
        s.scope.emit(Store(s.target, s.scope.index(index[0])[0], Var("int64", total)))

    s.loops([lists.ends.size], ["serial"], end)
    return s.lowered("out")


def _loaded(s: Serial, array: Value, at: Affine) -> Expr:
    name = s.values.buffer(ValueMemory(array))
    return s.values.load(name, "int64", at, s.scope.here)[0]


def _bounds(s: Serial, lists: CountedLists, place: Affine) -> tuple[Expr, Expr]:
    """Return where the list of a place begins and ends."""
    last = _loaded(s, lists.ends, place)
    return Apply("int64", "subtract", (last, _loaded(s, lists.counts, place))), last


def add_others(
    p: ScatterND, value: Value, nodes: Nodes, lists: RankedLists | CountedLists
) -> Lowered:
    """Return the kernel that adds the pieces that `collect` has left: those past `MOST`.

    There are none, mostly. A thread takes one piece, beginning elsewhere than its neighbours,
    since many of these may add to one place.
    """
    x, s = ScatterLoops(p, value, nodes), Serial(value, nodes)
    axes = x.stretches(None)
    shape = [n for axis, n in axes if axis in x.unindexed]
    free = [axis for axis, _ in axes if axis in x.unindexed]

    def other(index: tuple[Affine, ...]) -> None:
        scope = s.scope
        number, _ = scope.index(index[0])
        if isinstance(lists, CountedLists):
            rank = _loaded(s, lists.ranks, index[0])
        else:
            at, number = number, _loaded(s, lists.lists, index[0])
            name = s.values.index_let("number", number, scope.here, 0, x.count - 1)
            place = x.place(s, Affine(0, ((name, 1),)))
            first = _loaded(s, lists.lists, combine([(1, place)], x.count))
            rank = Apply("int64", "subtract", (at, first))
        scope.open()
        here = s.values.index_let("here", number, scope.here, 0, x.count - 1)
        piece = s.unravelled(Affine(0, ((here, 1),)), x.index_shape)
        to = [s.values.wrapped(ref, piece, n, "clamped")
              for ref, n in zip(x.refs, x.extents, strict=True)]  # fmt: skip

        def add(rest: tuple[Affine, ...]) -> None:
            by_axis = dict(zip(free, rest, strict=True))
            if free:
                by_axis[free[-1]] = _rotated(s, number, by_axis[free[-1]], shape[-1])
            by_axis |= dict(zip(x.axes, to, strict=True))
            at = tuple(by_axis.get(a, NOTHING) for a in range(value.ndim))
            element, _ = s.values.read(x.new, x.piece_index(piece, at))
            where, _ = scope.index(combine(list(zip(c_strides(value.shape), at, strict=True))))
            scope.emit(Fold(s.target, "add", element, where))

        s.loops(shape, ["serial"] * len(shape), add)
        beyond = Apply("bool", "greater_equal", (rank, scope.number("most", MOST, literal=False)))
        scope.emit(If(beyond, scope.close()))

    s.flat([x.count], other)
    return s.lowered("inout")


def _rotated(s: Serial, number: Expr, at: Affine, n: int) -> Affine:
    """Return an index that begins elsewhere for each number, and ends before that."""
    scope, here = s.scope, s.scope.here
    length = scope.number("n", n, literal=False)
    begin = Apply("int64", "remainder", (number, length))
    moved, _ = scope.let(("moved", at), Apply("int64", "add", (scope.index(at)[0], begin)), here)
    past = Apply("bool", "greater_equal", (moved, length))
    back = Apply("int64", "subtract", (moved, length))
    chosen = Apply("int64", "where", (past, back, moved))
    name = s.values.index_let(("rotated", at), chosen, here, 0, n - 1)
    return Affine(0, ((name, 1),))


def sort_by_place(p: ScatterND, value: Value, nodes: Nodes, lists: RankedLists) -> Lowered:
    """Return the kernel that sorts the pieces of a scatter by counting those before each.

    It also counts the pieces before each place, where the list of that place begins. Lists are
    whole where indices are out of range, too: kernels run until the host knows that.
    """
    x, s = ScatterLoops(p, value, nodes), Serial(lists.lists, nodes)
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
            its, _ = scope.index(x.place(s, other[0]))
            earlier = Apply("bool", "less", (scope.index(other[0])[0], scope.index(mine)[0]))
            same = Apply("bool", "logical_and", (Apply("bool", "equal", (its, place)), earlier))
            first = Apply("bool", "logical_or", (Apply("bool", "less", (its, place)), same))
            one = Apply("int64", "where", (first, integer(1), integer(0)))
            scope.emit(Fold(before, "add", one))

        s.loops([count], ["vector"], compare)
        rank = Var("int64", before)
        to, new = (Apply("int64", "where", (is_piece, *pair)) for pair in ((rank, at), (at, rank)))
        scope.emit(Store(s.target, to, new))
        x.refuse(s, mine)

    s.flat([lists.lists.size], entry)
    return s.lowered("out")


def collect(
    p: ScatterND, value: Value, nodes: Nodes, lists: Lists, over: bool, checked: bool
) -> Lowered:
    """Return the kernel that collects each element of a scatter's result.

    Parameters
    ----------
    p : ScatterND
    value : Value
    nodes : Nodes
    lists : RankedLists, CountedLists or None
        What was sorted; without it all indices are compared.
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
            many = self.value.size // shares >= MANY_THREADS
            beside = min(BESIDE, SECTOR) if many else BESIDE
            for k in sorted(free, key=lambda k: -self.axes[k][1]):
                n = self.axes[k][1]
                innermost = k == len(self.axes) - 1
                twice = -n % shares
                divides = twice == 0 or (not self.over and OVERLAP * twice <= n)
                if divides and (not innermost or n // shares >= beside):
                    return k, shares
        return -1, 1

    def run(self, lists: Lists, checked: bool) -> Lowered:
        """Return the kernel."""
        shape = [n for _, n in self.axes]
        if self.shares > 1:
            shape[self.shared] = -(-shape[self.shared] // self.shares)
        self.s.flat(shape, lambda index: self._elements(index, lists, checked))
        return self.s.lowered("inout" if self.over else "out")

    def _elements(self, index: tuple[Affine, ...], lists: Lists, checked: bool) -> None:
        """Collect the elements of one thread."""
        s, dtype = self.s, self.value.dtype.name
        every, totals = [], []
        for share in range(self.shares):
            own = list(index)
            if self.shares > 1:
                n = self.axes[self.shared][1]
                step = -(-n // self.shares)
                own[self.shared] = combine([(1, own[self.shared])], min(share * step, n - step))
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
            its, _ = s.scope.index(self.x.place(s, index[0], "unchanged" if checked else "refused"))
            s.scope.open()
            take(index[0])
            s.scope.emit(If(Apply("bool", "equal", (its, mine)), s.scope.close()))

        s.loops([self.x.count], ["serial"], compare)

    def _listed(
        self, here: Affine, lists: RankedLists | CountedLists, take: Callable[[Affine], None]
    ) -> None:
        """Go through the list of a place; of pieces that replace each other take the last."""
        s, count, scope = self.s, self.x.count, self.s.scope
        if isinstance(lists, CountedLists):
            assert self.add
            numbers = lists.order
            begin, last = _bounds(s, lists, here)
            first, _ = scope.let("first", begin, scope.here)
        else:
            numbers = lists.lists
            first, last = (_loaded(s, numbers, combine([(1, here)], count + k)) for k in (0, 1))
        if isinstance(lists, CountedLists) or lists.is_cut:
            most = Apply("int64", "add", (first, scope.number("most", MOST, literal=False)))
            last = Apply("int64", "minimum", (last, most))
        scope.open()
        if not self.add:
            before = Apply("int64", "subtract", (last, integer(1)))
            at = s.values.index_let("last", before, scope.here, 0, count - 1)
            take(self._number(numbers, at))
            scope.emit(If(Apply("bool", "less", (first, last)), scope.close()))
            return
        at = scope.index_name("p", 0, count - 1, scope.here)
        take(self._number(numbers, at))
        scope.emit(For(at, first, last, scope.close(), "serial"))

    def _number(self, numbers: Value, at: str) -> Affine:
        """Return the number of a piece in the lists."""
        s = self.s
        number = _loaded(s, numbers, Affine(0, ((at, 1),)))
        name = s.values.index_let(("number", at), number, s.scope.here, 0, self.x.count - 1)
        return Affine(0, ((name, 1),))
