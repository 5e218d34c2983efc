"""Which groups of a program are steps of a stencil on a line, that one kernel takes (see `lines`).

Groups are put together before it is known what kernels compute again. How many one kernel takes is
a matter of time: each kernel less saves a launch, and each step more leaves less of a strip to
store. What is not of the line, such as sums of what steps compute, runs behind it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import Shape
from adarray.compiler.ir.primitives import Concatenate, Map, UpdateSlice, View
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import is_source, op_cost
from adarray.compiler.kernels.nodes import Cloned
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES, LAUNCH
from adarray.compiler.schedule.gpu.strips import LANES as WARP
from adarray.compiler.stencil.line_reads import FAR, SHORTER, LineReads
from adarray.compiler.stencil.lines import MOST_HALO, LineKernel, Reach, line_columns

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
# What a cell of a border reads: cells of arrays, from its own on; None for a certain element.
Cells = list[tuple[Value, int | None]]


class Lines:
    """The lines of a program.

    Parameters
    ----------
    fusion : Fusion
        Its groups are put together.
    results : iterable of Value
        What the program returns.
    target : Target

    Attributes
    ----------
    shapes : dict
        By index of a group that is computed strip by strip: the shape of its longest arrays.
    borders : set of Value
        Single elements at ends of lines, and what reads them: no other kernel computes these again.
    """

    def __init__(self, fusion: Fusion, results: Iterable[Value], target: Target) -> None:
        self.fusion = fusion
        self.shapes: dict[int, Shape] = {}
        self.borders: set[Value] = set()
        self.sources: dict[Value, tuple[Value, ...]] = {}
        if isinstance(target, GpuTarget) and target.march > 1 and not fusion.late:
            self.peak = target.sms * LANES * CLOCK
            self.results = frozenset(results)
            self.readers = _readers(fusion)
            fusion.groups = self._merged(fusion.groups)

    def kernel(self, group: Group, wanted: list[Value], cloned: Cloned) -> LineKernel:
        """Return the kernel of a group."""
        return LineKernel(group, self.fusion, cloned, wanted, self.shapes[group.index])

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

    def _merged(self, groups: list[Group]) -> list[Group]:
        """Return the groups with those of a line put together."""
        merged: list[Group] = []
        rest = deque(groups)
        while rest:
            first = rest[0]
            run = _Run(self, _shape(first, self.fusion))
            if not run.add(first):
                merged.append(rest.popleft())
                continue
            scanned = [rest.popleft()]
            while rest and run.goes_on:
                scanned.append(rest.popleft())
                run.add(scanned[-1])
            chosen = run.groups[: max(1, run.best())]
            merged.append(self._one(chosen, run) if len(chosen) > 1 else chosen[0])
            rest.extendleft(g for g in reversed(scanned) if g not in chosen)
        return merged

    def _one(self, groups: list[Group], run: _Run) -> Group:
        """Return one group of several."""
        one = Group(groups[0].index, "line")
        one.members = [m for g in groups for m in g.members]
        one.classes = dict.fromkeys(one.members, ())
        self.fusion.owner.update((m, one) for m in one.members)
        self.shapes[one.index] = run.reads.shape
        ends = {m for m in one.members if not run.reads.is_line(m)}
        self.borders |= ends
        self.borders |= {
            m for m in one.members if any(u.root in ends for u in self.fusion.uses.uses(m))
        }
        return one


class _Run:
    """Groups one after the other that a kernel could take."""

    def __init__(self, lines: Lines, shape: Shape) -> None:
        self.lines = lines
        self.uses = lines.fusion.uses
        self.reads = LineReads(self.uses, shape)
        self.groups: list[Group] = []
        self.later: set[Value] = set()  # what those compute that run behind it
        self.inside: set[Value] = set()
        self.ends: dict[Value, Cells] = {}
        self.reach = Reach()
        self.loaded: dict[Value, None] = {}
        self.halo = self.work = self.since = 0
        self.itemsize = 1
        # By number of groups: the halo, operations of a cell, and how many arrays are loaded.
        self.prefixes: list[tuple[int, int, int]] = []
        self.goes_on = math.prod(shape) >= LEAST and shape[-1] >= WARP

    def add(self, group: Group) -> bool:
        """Add a group, or note that it runs behind; whether it was added."""
        if not self.goes_on:
            return False
        reach, loaded = dict(self.reach.sides), dict(self.loaded)
        inside, ends = set(self.inside), dict(self.ends)
        work, itemsize = self.work, self.itemsize
        if self._is_of_line(group) and all(map(self._member, group.members)):
            halo = max(
                (self.reach.of(m) for m in group.members if self.reads.is_line(m)), default=0
            )
            self.halo = max(self.halo, halo)
            if self.halo <= MOST_HALO * self._columns() and self.work <= WORK:
                self.groups.append(group)
                self.prefixes.append((self.halo, self.work, len(self.loaded)))
                self.since = 0
                return True
            self.goes_on = False
        self.reach.sides, self.loaded = reach, loaded
        self.inside, self.ends = inside, ends
        self.work, self.itemsize = work, itemsize
        self.later.update(group.members)
        self.since += 1
        self.goes_on = self.goes_on and self.since <= BEHIND
        return False

    def _is_of_line(self, group: Group) -> bool:
        """Whether a kernel that takes a line could compute a group."""
        if group.library or (
            group.kind == "step" and not isinstance(group.members[0].primitive, UpdateSlice)
        ):
            return False
        if group.kind != "step" and group.totals:
            return False
        lines = [m for m in group.members if self.reads.is_line(m)]
        if lines:
            return True
        # Single elements: ends of the line, if only that needs them.
        readers = {r for m in group.members for r in self.lines.readers.get(m, ())} - {group}
        return (
            bool(self.groups)
            and bool(readers)
            and not any(m in self.lines.results for m in group.members)
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
                near.append((root, self.reads.beside(root, shift)))
            if any(abs(shift) > FAR for _, shift in near):
                return False
            self.reach.add(value, near)
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
        """Return how many groups one kernel should take; 0 if that is never good."""
        columns, count = self._columns(), self.reads.count
        lines = math.prod(self.reads.lead)
        pack = columns // WARP
        best, least = 0, 0.0
        for k, (halo, work, loaded) in enumerate(self.prefixes, 1):
            own = columns - 2 * (-(-halo // pack) * pack)
            written = self._written(k)
            if written is None or not work or not halo:
                continue
            read = self._stored(list(self.loaded)[:loaded])
            moved = (len(read) + written) * lines * count * self.itemsize
            cells = lines * -(-count // own) * columns
            computed = INSTRUCTIONS * work * cells / self.lines.peak
            time = (LAUNCH + max(moved / BANDWIDTH, computed)) / work
            if not best or time <= least:
                best, least = k, time
        return best

    def _written(self, size: int) -> int | None:
        """Return how many arrays a kernel of the first groups writes and the next one reads."""
        chosen, others = set(self.groups[:size]), set(self.groups[size:])
        outside: list[Value] = []
        again: list[Value] = []
        for g in self.groups[:size]:
            for m in g.members:
                readers = [r for r in self.lines.readers.get(m, ()) if r not in chosen]
                if readers or m in self.lines.results:
                    if not self.reads.is_line(m):
                        return None  # an end of the line, which is not stored
                    outside.append(m)
                    if any(r in others for r in readers):
                        again.append(m)
        return len(self._stored(outside) & self.inside) + len(again)

    def _stored(self, values: Iterable[Value]) -> set[Value]:
        """Return what is stored for some values: those from which they come cheaply, if need be."""
        return {root for v in values for root in self.lines.stored(v)}


def _shape(group: Group, fusion: Fusion) -> Shape:
    """Return the shape of the longest arrays that a group computes, or reads cell by cell."""
    largest = max(group.members, key=lambda m: m.size)
    if group.library or not largest.ndim:
        return (0,)
    *lead, count = largest.shape
    axis = largest.ndim - 1
    for m in group.members:
        for use in fusion.uses.uses(m):
            moves = use.maps is not None and use.maps and use.maps[-1].terms == ((axis, 1),)
            if moves and use.root.shape[:-1] == (*lead,):
                n = use.root.shape[-1]
                count = n if count < n <= count + SHORTER else count
    return (*lead, count)


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
