"""Neighbouring axes that a program takes as one become one, where pieces lie along the outer one.

``np.roll(x, 1, axis=1)`` of an array of shape (n, 145, 6) is a roll by six of rows of 870 elements,
and slices along the first of four axes are those of a matrix. Kernels of a GPU then go along memory
rather than along a short axis, and find steps of stencils in arrays of fewer axes. Other programs
need no such pass: loops that all values run through alike become one in
`adarray.compiler.kernels.collapse`.

References
----------
- C. D. Polychronopoulos, "Loop coalescing: a compiler transformation for parallel machines", ICPP
  1987.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    GatherND,
    Map,
    PrefixScan,
    Primitive,
    ProgramInput,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value, c_strides
from adarray.compiler.ir.target import Target
from adarray.compiler.ir.views import Shape, StridedLayout, broadcast_strides, normal, region
from adarray.compiler.rewrite.rebuild import keep, rebuild

# Elements for each index of an axis below which it becomes one with what is in it.
SHORT = 256
# What lies between axis k of a value and the next one.
Seam = tuple[Value, int]


def merged_axes(program: Program, target: Target) -> Program:
    """Return the program with axes merged that nothing takes apart."""
    if not target.along:
        return program
    likely = [v for v in program.values if v.size > target.small and _inner_seams(v)]
    if not likely:
        return program
    seams = _Seams()
    for v in program.values:
        seams.take(v)
    while merged := seams.merged(likely):
        unfit = [s for v in program.values for s in _unfit(v, merged)]
        if not unfit:
            return _rewritten(program, merged)
        seams.fixed.update(unfit)
    return program


def _inner_seams(v: Value) -> list[int]:
    """Return the seams to merge behind axes along which a value has pieces.

    Where much lies side by side for each index of such an axis, it stays one: kernels go along
    memory then, and may take several steps down the rows of a matrix.
    """
    match v.primitive:
        case Concatenate() as p:
            axes = [p.axis]
        case UpdateSlice() as p:
            axes = [a for a in range(v.ndim) if v.args[1].shape[a] != v.shape[a]]
        case _:
            axes = []
    return [
        k
        for a in axes
        for k in range(a, v.ndim - 1)
        if k > a or math.prod(v.shape[a + 1 :]) < SHORT
    ]


# -- which axes may be merged ------------------------------------------------------------------


class _Seams:
    """Seams that are merged together or not at all, and those that are not."""

    def __init__(self) -> None:
        self.parent: dict[Seam, Seam] = {}
        self.fixed: set[Seam] = set()

    def merged(self, likely: Iterable[Value]) -> frozenset[Seam]:
        """Return the seams to merge: of what has pieces along the axis before one of them."""
        fixed = {self._find(s) for s in self.fixed}
        wanted = {self._find((v, k)) for v in likely for k in _inner_seams(v)} - fixed
        return frozenset(s for s in list(self.parent) if self._find(s) in wanted)

    def _find(self, s: Seam) -> Seam:
        root = s
        while (up := self.parent.setdefault(root, root)) != root:
            root = up
        while s != root:
            self.parent[s], s = root, self.parent[s]
        return root

    def _tie(self, first: Seam, second: Seam, whole: bool = True) -> None:
        """Let two seams be merged together; if not `whole`, neither is."""
        self.parent[self._find(first)] = self._find(second)
        if not whole:
            self.fixed.add(second)

    def _fix(self, v: Value, seams: Iterable[int] | None = None) -> None:
        self.fixed.update((v, k) for k in (range(v.ndim - 1) if seams is None else seams))

    def take(self, v: Value) -> None:
        """Note what a value asks of the axes of its operands, and of its own."""
        match v.primitive:
            case ProgramInput() as p:
                if p.strides != c_strides(v.shape):
                    self._fix(v)
            case Constant():
                pass
            case Map():
                for a in v.args:
                    self._broadcast(v, a)
            case View() as p:
                self._view(p, v, v.args[0])
            case Reduce() as p:
                self._reduced(v, v.args[0], p.axes)
            case PrefixScan() as p:
                self._alike(v, v.args[0])
                self._fix(v, _around(p.axis, v.ndim))
            case Concatenate() as p:
                for a in v.args:
                    self._alike(v, a)
                self._fix(v, range(p.axis - 1, p.axis) if p.axis else ())
            case UpdateSlice() as p:
                self._update(p, v)
            case GatherND() as p:
                self._indexed(v.args[0], v, p.axes, p.position, v.args[1].ndim)
            case ScatterND() as p:
                self._alike(v, v.args[0])
                self._indexed(v, v.args[1], p.axes, p.position, v.args[2].ndim)
            case _:
                self._fix(v)
                for a in v.args:
                    self._fix(a)
        if isinstance(v.primitive, (GatherND, ScatterND)):
            for a in v.args[1 if isinstance(v.primitive, GatherND) else 2 :]:
                self._fix(a)

    def _alike(self, v: Value, a: Value) -> None:
        for k in range(v.ndim - 1):
            self._tie((a, k), (v, k))

    def _broadcast(self, v: Value, a: Value) -> None:
        """Tie the seams of an operand that is spread over the shape of a map."""
        lead = v.ndim - a.ndim
        if a.ndim:
            for k in range(lead):  # an axis that the operand lacks
                if k + 1 >= lead and a.shape[k + 1 - lead] != 1:
                    self.fixed.add((v, k))
        for k in range(a.ndim - 1):
            mine, whole = a.shape[k : k + 2], v.shape[k + lead : k + lead + 2]
            self._tie((a, k), (v, k + lead), mine in (whole, (1, 1)))

    def _view(self, p: View, v: Value, x: Value) -> None:
        """Tie the seams of a box, of a broadcast or a transpose of an operand."""
        if _spreads(p, v, x):
            self._broadcast(v, x)
            return
        order = _order(p, v, x)
        for k, (a, b) in enumerate(pairwise(order)):
            if a < 0 or b != a + 1:
                self.fixed.add((v, k))
                continue
            self._tie((v, k), (x, a), _together(p, v, x, k, a))
        seen = {a for a, b in pairwise(order) if b == a + 1}
        self._fix(x, [k for k in range(x.ndim - 1) if k not in seen])

    def _reduced(self, v: Value, x: Value, axes: Shape) -> None:
        """Tie the seams of a fold: neighbouring axes are both folded, or both kept."""
        unfolded = [k for k in range(x.ndim) if k not in axes]
        for k in range(x.ndim - 1):
            if (k in axes) != (k + 1 in axes):
                self.fixed.add((x, k))
        for k, (a, b) in enumerate(pairwise(unfolded)):
            if b == a + 1:
                self._tie((v, k), (x, a))
            else:
                self.fixed.add((v, k))

    def _update(self, p: UpdateSlice, v: Value) -> None:
        base, piece = v.args
        self._alike(v, base)
        for k in range(v.ndim - 1):
            inner = piece.shape[k + 1] == v.shape[k + 1] and p.starts[k + 1] == 0
            self._tie((piece, k), (v, k), inner and p.steps[k] == p.steps[k + 1] == 1)

    def _indexed(self, x: Value, v: Value, axes: Shape, position: int, width: int) -> None:
        """Tie the seams of what is indexed and of the elements at the indices."""
        rest = [k for k in range(x.ndim) if k not in axes]
        own = [k for k in range(v.ndim) if not position <= k < position + width]
        place = dict(zip(rest, own, strict=True))
        seen = set()
        for k in range(x.ndim - 1):
            if k in place and k + 1 in place and place[k + 1] == place[k] + 1:
                self._tie((v, place[k]), (x, k))
                seen.add(place[k])
            else:
                self.fixed.add((x, k))
        self._fix(v, [k for k in range(v.ndim - 1) if k not in seen])


def _unfit(v: Value, merged: frozenset[Seam]) -> list[Seam]:
    """Return seams of a value that are not merged together, though each may be by itself.

    Between axes of lengths 4 and 3, one of length 1 belongs to either: ``w`` of shape (1, 1, 3) is
    spread over (4, 1, 3), and no row of 3 is spread over 12.
    """
    unfit = []
    for g in _groups(v, merged):
        long = [k for k in g if v.shape[k] != 1]
        if len(long) < 2:
            continue
        match v.primitive:
            case Map():
                shapes = [(1,) * (v.ndim - a.ndim) + a.shape for a in v.args]
                fits = all(
                    all(s[k] == v.shape[k] for k in long) or all(s[k] == 1 for k in long)
                    for s in shapes
                )
            case View(strides=s):
                fits = all(s[a] == s[b] * v.shape[b] for a, b in pairwise(long))
            case _:
                fits = True
        if not fits:
            unfit += [(v, k) for k in g[:-1]]
    return unfit


def _around(axis: int, ndim: int) -> list[int]:
    return [k for k in (axis - 1, axis) if 0 <= k < ndim - 1]


def _spreads(p: View, v: Value, x: Value) -> bool:
    """Whether a view is its operand, spread over more axes."""
    lead = v.ndim - x.ndim
    return (
        lead >= 0
        and not p.offset
        and all(n in (1, m) for n, m in zip(x.shape, v.shape[lead:], strict=True))
        and p.strides == broadcast_strides(x.shape, v.shape)
    )


def _order(p: View, v: Value, x: Value) -> list[int]:
    """Return the operand's axis of each axis of a view, -1 where it is not known."""
    unknown = [-1] * v.ndim
    if v.ndim != x.ndim:
        return unknown
    strides = c_strides(x.shape)
    if all(s in (0, t) or n == 1 for s, t, n in zip(p.strides, strides, v.shape, strict=True)):
        return list(range(v.ndim))
    box = region(StridedLayout(p.offset, p.strides, v.shape), x.shape)
    if box is None:
        return unknown
    axes = box[2]
    if all(a in (-1, k) for k, a in enumerate(axes)):
        return list(range(v.ndim))
    return list(axes) if -1 not in axes else unknown


def _together(p: View, v: Value, x: Value, k: int, a: int) -> bool:
    """Whether axes k and k + 1 of a view are those a and a + 1 of its operand, taken as one."""
    (n, m), (outer, inner) = v.shape[k : k + 2], x.shape[a : a + 2]
    step = c_strides(x.shape)
    if (outer, inner) == (1, 1):
        return p.strides[k] == p.strides[k + 1] == 0
    if m != inner or (m != 1 and p.strides[k + 1] != step[a + 1]):
        return False
    if p.offset // max(1, step[a + 1]) % max(1, inner):
        return False  # it begins within the inner axis
    return n == 1 or p.strides[k] == step[a]


# -- the program with them ---------------------------------------------------------------------


def _rewritten(program: Program, merged: frozenset[Seam]) -> Program:
    """Return the program with seams merged."""
    shapes: dict[Value, Value] = {}  # inputs in their new shapes

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        old = v.args
        args = tuple([_operand(b, shapes, *x, merged) for x in zip(args, old, strict=True)])
        groups = _groups(v, merged)
        shape = tuple(math.prod(v.shape[k] for k in g) for g in groups)
        if shape == v.shape and [a.shape for a in args] == [a.shape for a in old]:
            return keep(b, v, args)
        return b.make(_primitive(v, groups, merged), args, shape, v.dtype)

    new = rebuild(program, rule)
    if all(v.shape == old.shape for v, old in zip(new.outputs, program.outputs, strict=True)):
        return new
    values, outputs = list(new.values), []
    for v, old in zip(new.outputs, program.outputs, strict=True):
        if v.shape != old.shape:
            layout = normal(0, c_strides(old.shape), old.shape)
            v = Value(View(0, layout.strides), (v,), old.shape, v.dtype, v.origin)
            values.append(v)
        outputs.append(v)
    return Program(new.inputs, values, outputs)


def _operand(
    b: Builder, shapes: dict[Value, Value], a: Value, old: Value, merged: frozenset[Seam]
) -> Value:
    """Return an operand; an input in the shape that its axes give it now."""
    if not isinstance(old.primitive, ProgramInput):
        return a
    shape = tuple(math.prod(old.shape[k] for k in g) for g in _groups(old, merged))
    if shape == old.shape:
        return a
    if a not in shapes:
        shapes[a] = b.reshape(a, shape)
    return shapes[a]


def _groups(v: Value, merged: frozenset[Seam]) -> list[list[int]]:
    """Return the axes of a value, those together that become one."""
    groups: list[list[int]] = []
    for k in range(v.ndim):
        if k and (v, k - 1) in merged:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _primitive(v: Value, groups: list[list[int]], merged: frozenset[Seam]) -> Primitive:
    """Return how a value is computed with its axes in groups."""
    match v.primitive:
        case View() as p:
            strides = []
            for g in groups:
                long = [k for k in g if v.shape[k] != 1]
                strides.append(p.strides[long[-1]] if long else 0)
            return View(p.offset, tuple(strides))
        case Concatenate() as p:
            return Concatenate(_group_of(groups, p.axis))
        case PrefixScan() as p:
            return PrefixScan(p.combine, _group_of(groups, p.axis))
        case Reduce() as p:
            of = _groups(v.args[0], merged)
            return Reduce(p.combine, tuple(sorted({_group_of(of, a) for a in p.axes})))
        case UpdateSlice() as p:
            starts = []
            for g in groups:
                step = c_strides(tuple(v.shape[k] for k in g))
                starts.append(sum(p.starts[k] * s for k, s in zip(g, step, strict=True)))
            return UpdateSlice(tuple(starts), tuple(p.steps[g[-1]] for g in groups), p.add)
        case GatherND() as p:
            of = _groups(v.args[0], merged)
            axes = tuple(_group_of(of, a) for a in p.axes)
            return GatherND(axes, sum(g[0] < p.position for g in groups))
        case ScatterND() as p:
            axes = tuple(_group_of(groups, a) for a in p.axes)
            of = _groups(v.args[1], merged)
            return ScatterND(axes, sum(g[0] < p.position for g in of), p.add)
        case p:
            return p


def _group_of(groups: list[list[int]], axis: int) -> int:
    return next(i for i, g in enumerate(groups) if axis in g)
