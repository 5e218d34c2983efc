"""Folds over pairs: those over either side have kernels of their own, which compute pairs again.

What all pairs of two sets of points compute, ``f(x[:, None], y[None, :])``, is an array that is
much larger than the points. Folds over its rows and over its columns, as those of a gradient with
respect to ``x`` and ``y``, cannot run in one loop without going through sums in memory for each
pair, and what is folded later, as a gradient is, would be stored pair by pair meanwhile. Pairs that
are folded alone are computed from the points by each kernel instead. There are as many of these as
there are sides and stages: a stage ends where points are computed of folds of pairs.

All of them run alike: along the axis that is folded on the outside, and that of the results on the
inside, where a thread has its own points and its sums in registers
(`adarray.compiler.schedule.gpu.pair_columns`).

References
----------
- L. Nyland, M. Harris, J. Prins, "Fast N-body simulation with CUDA", GPU Gems 3, 2007, chapter 31.
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from adarray.compiler.ir.builder import PRINTABLE, Builder, uniform
from adarray.compiler.ir.primitives import Map, Matmul, ProgramInput, Reduce, View
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.ir.uses import op_cost, sweeps
from adarray.compiler.ir.views import Shape, broadcast_shape, broadcast_strides
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.rebuild import rebuild, renewed

PAIRS = 1 << 16  # elements of an array of pairs, at least
SPREAD = 8  # times as many as what it is computed from, at least
# Kernels of the same pairs from which on these may be stored instead, and operations in whose time
# a number of each pair is read, or somewhat more.
MANY, MOVED = 8, 40


class PairSide(NamedTuple):
    """What folds of one kernel have in common.

    Parameters
    ----------
    pairs : Value
        That stands for all pairs that are computed of each other.
    stage : int
        How many folds of pairs came one after the other before.
    axis : int
        The one of two long axes that is folded, 0 or 1.
    """

    pairs: Value
    stage: int
    axis: int


def pair_sides(program: Program, target: Target) -> Program:
    """Return the program with pairs computed again for the folds over either side, for a GPU."""
    if not target.along:
        return program
    program = dead(program)
    pairs = _Pairs(program)
    weighted = {v: axis for v in program.values for axis in [pairs.weighted(v)] if axis is not None}
    summed = program
    if weighted:
        summed = _summed(program, weighted)
        pairs = _Pairs(summed)
    return _Sides(pairs).run(summed) if pairs.sides else program


def _summed(program: Program, weighted: dict[Value, int]) -> Program:
    """Return the program with sums over pairs in place of products with vectors of weights."""

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        axis = weighted.get(v)
        if axis is None:
            return renewed(b, v, args)
        pairs, weights = args if v.args[0].ndim == 2 else args[::-1]
        if isinstance(pairs.primitive, View):  # as `_Pairs.weighted` has it, the transpose
            (pairs,) = pairs.args
        shape = (weights.size, 1) if axis == 0 else (1, weights.size)
        terms = b.map("multiply", pairs, b.reshape(weights, shape))
        return b.reshape(b.reduce("add", terms, (axis,)), v.shape)

    return rebuild(program, rule)


class _Pairs:
    """What is known of the pairs of a program.

    Attributes
    ----------
    known : dict
        Maps whose elements are pairs and that are computed from points alone, and views of these
        that show all of them in their order; each with such a map.
    folded : set of Value
        Those of which nothing but folds is asked.
    sides : dict
        The folds of these.
    """

    def __init__(self, program: Program) -> None:
        self.known: dict[Value, Value] = {}
        self.met: dict[Value, Value] = {}
        stages: dict[Value, int] = {}
        for v in program.values:
            stages[v] = max((stages[a] for a in v.args), default=0)
            if isinstance(v.primitive, Reduce):
                stages[v] += v.args[0] in self.known
            elif self._is_pairs(v):
                self._meet(v)
            elif isinstance(v.primitive, View) and v.args[0] in self.known and _shows_all(v):
                self.known[v] = self.known[v.args[0]]
        self.folded = self.known.keys() - self._stored(program)
        self.sides: dict[Value, PairSide] = {}
        for v in program.values:
            if isinstance(v.primitive, Reduce) and v.args[0] in self.folded:
                a = self.known[v.args[0]]
                self.sides[v] = PairSide(self._root(a), stages[a], min(_folded(v), key=_extent(a)))
        repeated = self._repeated()
        self.sides = {v: s for v, s in self.sides.items() if s.pairs not in repeated}
        self.folded = {v for v in self.folded if self._root(self.known[v]) not in repeated}

    def _repeated(self) -> set[Value]:
        """Return what stands for pairs that so many folds need that they are rather stored once."""
        computed: dict[PairSide, set[Value]] = {}
        for v, side in self.sides.items():
            own = computed.setdefault(side, set())
            stack = [self.known[v.args[0]]]
            while stack:
                w = stack.pop()
                if w not in own:
                    own.add(w)
                    stack += [self.known[a] for a in w.args if a in self.known]
        groups: dict[Value, list[set[Value]]] = {}
        for side, own in computed.items():
            groups.setdefault(side.pairs, []).append(own)
        repeated = set()
        for root, sets in groups.items():
            again = sum(sum(map(op_cost, own)) for own in sets)
            again -= sum(map(op_cost, set().union(*sets)))
            if len(sets) >= MANY and again > MOVED * (1 + len(sets)):
                repeated.add(root)
        return repeated

    def _is_pairs(self, v: Value) -> bool:
        if not isinstance(v.primitive, Map) or v.size < PAIRS or v.dtype not in PRINTABLE:
            return False
        extents = long(v.shape)
        if len(extents) != 2:
            return False
        return all(
            (a in self.known and long(a.shape) == extents) or _is_points(a, v.size) for a in v.args
        )

    def _meet(self, v: Value) -> None:
        self.known[v] = self.met[v] = v
        for a in v.args:
            if a in self.known:
                self.met[self._root(self.known[a])] = v

    def weighted(self, v: Value) -> int | None:
        """Return the axis of pairs that a product with a vector sums over; None for others."""
        if not isinstance(v.primitive, Matmul) or not sweeps(v) or v.dtype not in PRINTABLE:
            return None
        places = [i for i, a in enumerate(v.args) if a.ndim == 2 and v.size == v.shape[-1]]
        for i in places:
            a, other = v.args[i], v.args[1 - i]
            if other.ndim != 1 or a.dtype != v.dtype or other.dtype != v.dtype:
                continue
            if a in self.known and a is self.known[a]:
                return 1 - i
            if isinstance(a.primitive, View) and a.args[0] in self.known and _transposes(a):
                return i
        return None

    def _root(self, v: Value) -> Value:
        """Return the value that stands for all pairs that are computed of each other."""
        while self.met[v] is not v:
            self.met[v] = v = self.met[self.met[v]]
        return v

    def _stored(self, program: Program) -> set[Value]:
        """Return the pairs that something needs in memory, and all that gives those."""
        stored = {v for v in program.outputs if v in self.known}
        for v in reversed(program.values):
            if v in self.known:
                needed = v in stored
            else:
                needed = not isinstance(v.primitive, Reduce) or v.dtype != v.args[0].dtype
                needed = needed or not _folded(v)
            if needed:
                stored.update(a for a in v.args if a in self.known)
        return stored


def long(shape: Shape) -> Shape:
    """Return the extents of a shape other than 1."""
    return tuple(n for n in shape if n != 1)


def _folded(v: Value) -> list[int]:
    """Return which of the long axes of its operand a fold is over."""
    assert isinstance(v.primitive, Reduce)
    (a,) = v.args
    axes = {k % a.ndim for k in v.primitive.axes}
    places = [k for k, n in enumerate(a.shape) if n != 1]
    return [i for i, k in enumerate(places) if k in axes]


def _extent(v: Value) -> Callable[[int], int]:
    return long(v.shape).__getitem__


def _shows_all(v: Value) -> bool:
    """Whether a view shows all elements in their order, with other axes of one element."""
    assert isinstance(v.primitive, View)
    (a,) = v.args
    own = c_strides(v.shape)
    return (
        not v.primitive.offset
        and long(v.shape) == long(a.shape)
        and all(s == t for s, t, n in zip(v.primitive.strides, own, v.shape, strict=True) if n != 1)
    )


def _transposes(v: Value) -> bool:
    """Whether a view of two axes is the transpose of what it shows."""
    assert isinstance(v.primitive, View)
    (a,) = v.args
    rows = a.shape[::-1] == v.shape
    return rows and not v.primitive.offset and v.primitive.strides == (1, a.shape[-1])


def _is_points(a: Value, pairs: int) -> bool:
    """Whether an operand of pairs is a number, or shows an array that is much smaller."""
    if uniform(a) is not None:
        return True
    count = a.size
    if isinstance(a.primitive, View):
        moves = zip(a.shape, a.primitive.strides, strict=True)
        count = math.prod(n for n, s in moves if s)
    return count * SPREAD <= pairs


class _Sides:
    """Makes a program in which each side has pairs of its own."""

    def __init__(self, pairs: _Pairs) -> None:
        self.pairs = pairs
        self.b = Builder()
        self.new: dict[Value, Value] = {}
        self.own: dict[tuple[Value, PairSide], Value] = {}
        self.numbers: dict[PairSide, int] = {}
        self.apart: dict[Value, int] = {}

    def run(self, program: Program) -> Program:
        """Return the program, which says what belongs to which side."""
        b = self.b
        for v in program.values:
            b.origin = v.origin
            if isinstance(v.primitive, ProgramInput):
                b.values.append(v)
                self.new[v] = v
            elif v in self.pairs.sides:
                self.new[v] = self._fold(v, self.pairs.sides[v])
            elif v not in self.pairs.folded:
                self.new[v] = renewed(b, v, tuple(self.new[a] for a in v.args))
        b.inputs = list(program.inputs)
        changed = b.program([self.new[v] for v in program.outputs])
        changed.apart = self.apart
        return changed

    def _fold(self, v: Value, side: PairSide) -> Value:
        """Fold pairs of a side's own along their first axis; and the second one, if need be."""
        b = self.b
        assert isinstance(v.primitive, Reduce)
        number = self.numbers.setdefault(side, len(self.numbers))
        terms, doublings = self.pairs.known[v.args[0]], 0
        while v.primitive.combine == "add" and self._is_double(terms):
            terms, doublings = self.pairs.known[terms.args[0]], doublings + 1
        pairs = self._pairs_of(terms, side, number)
        b.origin = v.origin
        sums = b.reduce(v.primitive.combine, pairs, (0,))
        self.apart[sums] = number
        for _ in range(doublings):  # no bit of a sum changes
            sums = b.map("add", sums, sums)
        if len(_folded(v)) == 2:
            sums = b.reduce(v.primitive.combine, sums, (0,))
        return b.reshape(sums, v.shape)

    def _is_double(self, v: Value) -> bool:
        """Whether pairs are twice what others are, as those of gradients of squares are."""
        double = v.primitive == Map("add") and v.args[0] is v.args[1] and v.dtype.kind == "f"
        return double and v.args[0] in self.pairs.known

    def _pairs_of(self, v: Value, side: PairSide, number: int) -> Value:
        """Return pairs with the axis that is folded before the other one."""
        known, own = self.pairs.known, self.own
        stack = [v]
        while stack:
            w = stack[-1]
            missing = [known[a] for a in w.args if a in known and (known[a], side) not in own]
            if missing or (w, side) in own:
                stack[-1:] = [w, *missing] if missing else []
                continue
            stack.pop()
            assert isinstance(w.primitive, Map)
            self.b.origin = w.origin
            args = tuple(self._operand(a, w.shape, side) for a in w.args)
            shape = long(w.shape)[:: 1 if side.axis == 0 else -1]
            if broadcast_shape([a.shape for a in args]) != shape:  # pairs of points of one side
                args = (self.b.broadcast(args[0], shape), *args[1:])
            own[w, side] = pairs = self.b.apply(w.primitive.name, args, w.dtype)
            self.apart[pairs] = number
        return own[v, side]

    def _operand(self, a: Value, shape: Shape, side: PairSide) -> Value:
        """Return an operand of pairs: those of the side, a number, or points along either axis."""
        if a in self.pairs.known:
            return self.own[self.pairs.known[a], side]
        constant = uniform(a)
        if constant is not None:
            return self.new.get(constant, constant)
        strides = broadcast_strides(a.shape, shape)
        source, offset = self.new[a], 0
        if isinstance(a.primitive, View):
            source, offset = self.new[a.args[0]], a.primitive.offset
            missing = len(shape) - a.ndim
            own = zip(a.shape, a.primitive.strides, strict=True)
            strides = (0,) * missing + tuple(0 if n == 1 else s for n, s in own)
        axes = [k for k, n in enumerate(shape) if n != 1]
        moves = [(shape[k], strides[k]) for k in (axes if side.axis == 0 else axes[::-1])]
        sizes = tuple(n if s else 1 for n, s in moves)  # operands are broadcast
        return self.b.view(source, offset, tuple(s for _, s in moves), sizes)
