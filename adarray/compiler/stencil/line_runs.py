"""Groups one after the other that are steps on a line, and how many of them one kernel takes.

A kernel less saves a launch, and a step more leaves less of a strip to store: among the first
groups of a run, as many become one kernel as take the least time.

References
----------
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012 (how many steps a tile takes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import Shape
from adarray.compiler.ir.primitives import Concatenate, Map, UpdateSlice, View
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.ir.uses import is_source, op_cost
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES, LAUNCH
from adarray.compiler.schedule.gpu.strips import LANES as WARP
from adarray.compiler.stencil.line_reads import FAR, LineReads
from adarray.compiler.stencil.lines import MOST_HALO, Reach, line_columns

# Elements of a line that is worth it: some strips.
LEAST = 1 << 10
# Operations of a cell in one kernel, all of which stand in its text.
WORK = 1500
# Groups in a row that are not of the line, and run behind it.
BEHIND = 64
# Instructions for each operation: to choose at ends of the line, to get cells from other lanes.
INSTRUCTIONS = 2
# Operations from which on a value is stored, rather than computed again where it is read.
CHEAP = 8
RECOMPUTED = Map, UpdateSlice, Concatenate
# Arrays that a line hands over to what is left of a group.
EXPORTS = 2
# What a cell of a border reads: cells of arrays, from its own on; None for a certain element.
Cells = list[tuple[Value, int | None]]


class LineContext:
    """What runs know of their program.

    Parameters
    ----------
    fusion : Fusion
    results : iterable of Value
        What the program returns.
    target : GpuTarget

    Attributes
    ----------
    readers : dict
        By value: the groups other than its own that read it.
    peak : float
        Operations a second.
    """

    def __init__(self, fusion: Fusion, results: Iterable[Value], target: GpuTarget) -> None:
        self.fusion = fusion
        self.results = frozenset(results)
        self.readers = _readers(fusion)
        self.peak = target.sms * LANES * CLOCK
        self.reads: dict[Shape, LineReads] = {}
        self.sources: dict[Value, tuple[Value, ...]] = {}

    def reads_of(self, shape: Shape) -> LineReads:
        """Return what values read, where the longest arrays are of a shape."""
        if shape not in self.reads:
            self.reads[shape] = LineReads(self.fusion.uses, shape)
        return self.reads[shape]

    def stored(self, value: Value) -> tuple[Value, ...]:
        """Return what is likely to be in memory: another value, if it comes cheaply of that."""
        known = self.sources.get(value)
        if known is None:
            known = self.sources[value] = self._sources(value)
        return known

    def _sources(self, value: Value) -> tuple[Value, ...]:
        sources: dict[Value, None] = {}
        stack, cost = [value], 0
        while stack:
            v = stack.pop()
            cost += op_cost(v)
            if cost > CHEAP or type(v.primitive) not in RECOMPUTED:
                return (value,)
            for use in self.fusion.uses.uses(v):
                root = use.root
                if root in self.readers or is_source(root):
                    sources[root] = None
                elif not self.fusion.uses.is_inline(root):
                    stack.append(root)
        large = [r for r in sources if 2 * r.size > value.size]
        return tuple(large) if len(large) == 1 else (value,)


class Part(NamedTuple):
    """What a line takes of a group, and what it leaves: sums, for one, and what they are of."""

    group: Group
    members: list[Value]
    rest: list[Value]


class _Export(NamedTuple):
    """A value that others than its own part read.

    Parameters
    ----------
    part : int
        Which part has it.
    last : int
        The last one that reads it.
    outside : bool
        Whether groups read it that are not of the run.
    stored : set of Value
        What is stored for it.
    is_line : bool
        Whether it can be stored.
    """

    part: int
    last: int
    outside: bool
    stored: set[Value]
    is_line: bool


class _Prefix(NamedTuple):
    """What the first parts of a run come to.

    Parameters
    ----------
    halo : int
    work : int
        Operations of a cell.
    loaded : int
        How many arrays are loaded.
    alone : float
        Seconds of kernels of their groups.
    rest : float
        Seconds of those of what is left of these.
    fused : bool
        Whether cells read others that are computed here.
    """

    halo: int
    work: int
    loaded: int
    alone: float
    rest: float
    fused: bool


class Run:
    """Groups one after the other that a kernel could take."""

    def __init__(self, context: LineContext, shape: Shape) -> None:
        self.context = context
        self.uses = context.fusion.uses
        self.reads = context.reads_of(shape)
        self.parts: list[Part] = []
        self.later: set[Value] = set()  # what is computed behind it
        self.inside: set[Value] = set()
        self.ends: dict[Value, Cells] = {}
        self.reach = Reach()
        self.loaded: dict[Value, None] = {}
        self.work = self.since = 0
        self.fused = False
        self.itemsize = 1
        self.prefixes = [_Prefix(0, 0, 0, 0.0, 0.0, False)]
        self.goes_on = math.prod(shape) >= LEAST and shape[-1] >= WARP

    def add(self, group: Group) -> bool:
        """Add a group, or note that it runs behind; whether it was added."""
        if not self.goes_on:
            return False
        before = dict(self.reach.sides), dict(self.loaded), set(self.inside), dict(self.ends)
        others, sizes = set(self.later), (self.work, self.itemsize, self.fused)
        part = self._part(group) if self._is_of_line(group) else None
        if part is not None:
            last = self.prefixes[-1]
            sides = [self.reach.of(m) for m in part.members if self.reads.is_line(m)]
            halo = max([last.halo, *sides])
            if halo <= MOST_HALO * self._columns() and self.work <= WORK:
                self.parts.append(part)
                alone, rest = last.alone + self._alone(group), last.rest + self._rest_alone(part)
                loaded = len(self.loaded)
                self.prefixes.append(_Prefix(halo, self.work, loaded, alone, rest, self.fused))
                self.since = 0
                return True
            self.goes_on = False
        self.reach.sides, self.loaded, self.inside, self.ends = before
        self.later, (self.work, self.itemsize, self.fused) = others, sizes
        self.later.update(group.members)
        self.since += 1
        self.goes_on = self.goes_on and self.since <= BEHIND
        return False

    def _part(self, group: Group) -> Part | None:
        """Return what can be computed here of a group; None if that is too little."""
        members: list[Value] = []
        rest: list[Value] = []
        for m in group.members:
            (members if self._member(m) else rest).append(m)
            self.later.update(rest[-1:])
        if not rest:
            return Part(group, members, rest)
        if group.kind != "rows":
            return None
        remaining = set(rest)
        read_by: dict[Value, set[Value]] = {}
        for m in group.members:
            for leaf in self._leaves(m):
                read_by.setdefault(leaf, set()).add(m)
        for m in reversed(members):
            outside = m in self.context.readers or m in self.context.results
            if not outside and op_cost(m) <= CHEAP and read_by.get(m, set()) <= remaining:
                remaining.add(m)
                self.inside.discard(m)
                self.later.add(m)
        mine = [m for m in members if m not in remaining]
        exports = {m for m in mine if read_by.get(m, set()) & remaining}
        fits = len(exports) <= EXPORTS and all(map(self.reads.is_line, exports))
        if not fits or not any(map(self.reads.is_line, mine)):
            return None
        return Part(group, mine, [m for m in group.members if m in remaining])

    def _leaves(self, value: Value) -> Iterator[Value]:
        """Yield what a value reads that is computed once."""
        for use in self.uses.uses(value):
            yield from self.uses.leaves.get(use.root, (use.root,))

    def _is_of_line(self, group: Group) -> bool:
        """Whether a kernel that takes a line could compute a group."""
        if group.library or (
            group.kind == "step" and not isinstance(group.members[0].primitive, UpdateSlice)
        ):
            return False
        if any(map(self.reads.is_line, group.members)):
            return True
        # Single elements: ends of the line, if only that needs them.
        readers = {r for m in group.members for r in self.context.readers.get(m, ())} - {group}
        return (
            bool(self.parts)
            and bool(readers)
            and not any(m in self.context.results for m in group.members)
            and all(any(map(self.reads.is_line, r.members)) for r in readers)
        )

    def _member(self, value: Value) -> bool:
        """Note a value; whether it can be computed here."""
        cells = self._cells(value)
        if cells is None:
            return False
        if self.reads.is_line(value):
            near = []
            for root, shift in cells:
                if shift is None:
                    return False
                near.append((root, self.reads.beside(shift)))
            if any(abs(shift) > FAR for _, shift in near):
                return False
            self.reach.add(value, near)
            self.fused = self.fused or any(shift and root in self.inside for root, shift in near)
            self.loaded.update((root, None) for root, _ in near if root not in self.inside)
            self.itemsize = max(
                self.itemsize, value.dtype.itemsize, *(r.dtype.itemsize for r, _ in near), 1
            )
            self.work += op_cost(value)
        else:
            self.ends[value] = cells
        self.inside.add(value)
        return True

    def _cells(self, value: Value) -> Cells | None:
        """Return the cells of the line that a value reads; None if it reads others, too."""
        reads = self.reads.of(value)
        if reads is None or isinstance(value.primitive, View):
            return None
        cells: Cells = []
        for read in reads:
            root = read.root
            if root in self.later:
                return None
            if root in self.inside and self.reads.is_line(root):
                cells.append((root, read.shift))
            elif root in self.inside or self.uses.is_inline(root):
                below = self.ends.get(root)
                if below is None:
                    below = self._cells(root)
                if below is None:
                    return None
                cells += [
                    (r, None if s is None or read.shift is None else s + read.shift)
                    for r, s in below
                ]
            elif read.border and read.moves:
                return None  # it would be read beyond its end
            elif read.shift is not None and not read.border:
                cells.append((root, read.shift))
        return cells

    # -- how many groups --------------------------------------------------------------------

    def _columns(self) -> int:
        return line_columns(self.itemsize, self.reads.count)

    def best(self) -> int:
        """Return how many parts one kernel should take; 0 if kernels for each are as good."""
        columns, count = self._columns(), self.reads.count
        lines = math.prod(self.reads.lead)
        pack = columns // WARP
        exports = self._exports()
        best, least = 0, 1.0
        for k, prefix in enumerate(self.prefixes[1:], 1):
            own = columns - 2 * (-(-prefix.halo // pack) * pack)
            written = self._written(k, exports)
            if written is None or not prefix.fused:
                continue
            read = self._stored(list(self.loaded)[: prefix.loaded])
            moved = (len(read) + written) * lines * count * self.itemsize
            cells = lines * -(-count // own) * columns
            time = (prefix.rest + self._time(moved, prefix.work * cells)) / prefix.alone
            if time <= least:
                best, least = k, time
        return best

    def _time(self, moved: float, operations: float) -> float:
        return LAUNCH + max(moved / BANDWIDTH, INSTRUCTIONS * operations / self.context.peak)

    def _alone(self, group: Group) -> float:
        """Return the seconds of a kernel of a group, which computes again what it reads beside."""
        places: dict[Value, set[int]] = {}
        loaded: set[Value] = set()
        operations = 0
        for m in reversed(group.members):
            at = places.get(m) or {0}
            operations += op_cost(m) * len(at) * m.size
            reads = self.reads.of(m)
            for k, use in enumerate(self.uses.uses(m)):
                shift = 0 if reads is None else reads[k].shift or 0
                if use.root in group.classes:
                    places.setdefault(use.root, set()).update(n + shift for n in at)
                elif not self.uses.is_inline(use.root):
                    loaded.add(use.root)
        stored = [
            m for m in group.members if m in self.context.readers or m in self.context.results
        ]
        moved = self._stored(loaded) | (self._stored(stored) & set(group.members))
        return self._time(sum(v.size * v.dtype.itemsize for v in moved), operations)

    def _rest_alone(self, part: Part) -> float:
        """Return the seconds of a kernel of what is left of a group."""
        if not part.rest:
            return 0.0
        mine = set(part.members)
        read = {u.root for m in part.rest for u in self.uses.uses(m) if u.root in mine}
        return self._time(2 * sum(v.size * v.dtype.itemsize for v in read), 0)

    def _exports(self) -> list[_Export]:
        """Return the values that others than their own part read."""
        at = {p.group: k for k, p in enumerate(self.parts)}
        by_rest = {leaf for p in self.parts for m in p.rest for leaf in self._leaves(m)}
        exports = []
        for k, p in enumerate(self.parts):
            for m in p.members:
                readers = self.context.readers.get(m, ())
                last = max((at.get(r, -1) for r in readers), default=-1)
                outside = m in self.context.results or m in by_rest
                outside = outside or any(r not in at for r in readers)
                if outside or last > k:
                    stored = self.inside.intersection(self.context.stored(m))
                    exports.append(_Export(k, last, outside, stored, self.reads.is_line(m)))
        return exports

    @staticmethod
    def _written(size: int, exports: list[_Export]) -> int | None:
        """Return how many arrays a kernel of the first parts writes and the next one reads."""
        written: set[Value] = set()
        again = 0
        for x in exports:
            if x.part < size and (x.outside or x.last >= size):
                if not x.is_line:
                    return None  # an end of the line, which is not stored
                written |= x.stored
                again += x.last >= size
        return len(written) + again

    def _stored(self, values: Iterable[Value]) -> set[Value]:
        """Return what is stored for some values: those from which they come cheaply, if need be."""
        return {root for v in values for root in self.context.stored(v)}


def _readers(fusion: Fusion) -> dict[Value, set[Group]]:
    """Return the groups that read each value."""
    uses = fusion.uses
    readers: dict[Value, set[Group]] = {}
    for value, group in fusion.owner.items():
        for a in value.args:
            root = uses.access(a).root
            for leaf in uses.leaves.get(root, (root,)):
                if not is_source(leaf):
                    readers.setdefault(leaf, set()).add(group)
    return {v: others for v, g in readers.items() if (others := g - {fusion.owner.get(v)})}
