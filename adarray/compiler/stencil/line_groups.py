"""Which groups of a program are steps of a stencil on a line, that one kernel takes (see `lines`).

Groups are put together before it is known what kernels compute again. How many one kernel takes is
a matter of time: each kernel less saves a launch, and each step more leaves less of a strip to
store. What is not of the line, such as sums of what steps compute, runs behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.primitives import UpdateSlice, View
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.ir.uses import is_source, op_cost
from adarray.compiler.kernels.nodes import Cloned
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES, LAUNCH
from adarray.compiler.stencil.line_reads import FAR, LineReads
from adarray.compiler.stencil.lines import MOST_HALO, LineKernel, Reach
from adarray.compiler.stencil.lower_strips import strip_columns

# Elements of a line that is worth it: some strips.
LEAST = 1 << 10
# Operations of a cell in one kernel, all of which stand in its text.
WORK = 1500
# Groups in a row that are not of the line, and run behind it.
BEHIND = 64
# Instructions for each operation: to choose at ends of the line, to get cells from other lanes.
INSTRUCTIONS = 2
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
    counts : dict
        By index of a group that is computed strip by strip: elements of its longest arrays.
    borders : set of Value
        Single elements at ends of lines, and what reads them: no other kernel computes these again.
    """

    def __init__(self, fusion: Fusion, results: Iterable[Value], target: Target) -> None:
        self.fusion = fusion
        self.counts: dict[int, int] = {}
        self.borders: set[Value] = set()
        if isinstance(target, GpuTarget) and target.march > 1 and not fusion.late:
            self.peak = target.sms * LANES * CLOCK
            self.results = frozenset(results)
            self.readers = _readers(fusion)
            fusion.groups = self._merged(fusion.groups)

    def kernel(self, group: Group, wanted: list[Value], cloned: Cloned) -> LineKernel:
        """Return the kernel of a group."""
        return LineKernel(group, self.fusion, cloned, wanted, self.counts[group.index])

    def _merged(self, groups: list[Group]) -> list[Group]:
        """Return the groups with those of a line put together."""
        merged: list[Group] = []
        rest = deque(groups)
        while rest:
            first = rest[0]
            run = _Run(self, _count(first, self.fusion))
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
        self.counts[one.index] = run.count
        ends = {m for m in one.members if not run.reads.is_line(m)}
        self.borders |= ends
        self.borders |= {
            m for m in one.members if any(u.root in ends for u in self.fusion.uses.uses(m))
        }
        return one


class _Run:
    """Groups one after the other that a kernel could take."""

    def __init__(self, lines: Lines, count: int) -> None:
        self.lines = lines
        self.uses = lines.fusion.uses
        self.count = count
        self.reads = LineReads(self.uses, count)
        self.groups: list[Group] = []
        self.behind: list[Group] = []
        self.later: set[Value] = set()  # what those compute that run behind it
        self.inside: set[Value] = set()
        self.ends: dict[Value, Cells] = {}
        self.reach = Reach()
        self.loaded: set[Value] = set()
        self.halo = self.work = self.since = 0
        self.itemsize = 1
        # By number of groups: the halo, operations of a cell, and arrays that are loaded.
        self.prefixes: list[tuple[int, int, int]] = []
        self.goes_on = count >= LEAST

    def add(self, group: Group) -> bool:
        """Add a group, or note that it runs behind; whether it was added."""
        if not self.goes_on:
            return False
        reach, loaded = dict(self.reach.sides), set(self.loaded)
        inside, ends = set(self.inside), dict(self.ends)
        work, itemsize = self.work, self.itemsize
        if self._is_of_line(group) and all(map(self._member, group.members)):
            halo = max(
                (self.reach.of(m) for m in group.members if self.reads.is_line(m)), default=0
            )
            self.halo = max(self.halo, halo)
            if self.halo <= MOST_HALO * strip_columns(self.itemsize) and self.work <= WORK:
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
            self.loaded.update(root for root, _ in near if root not in self.inside)
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
            elif read.shift is not None and not read.border:
                cells.append((root, read.shift))
        return cells

    # -- how many groups --------------------------------------------------------------------

    def best(self) -> int:
        """Return how many groups one kernel should take; 0 if that is never good."""
        columns = strip_columns(self.itemsize)
        best, least = 0, 0.0
        for k, (halo, work, loaded) in enumerate(self.prefixes, 1):
            own = columns - 2 * (-(-halo // (columns // 32)) * (columns // 32))
            written = self._written(k)
            if written is None or not work:
                continue
            moved = (loaded + written) * self.count * self.itemsize
            computed = INSTRUCTIONS * work * self.count * columns / own / self.lines.peak
            time = (LAUNCH + max(moved / BANDWIDTH, computed)) / work
            if not best or time <= least:
                best, least = k, time
        return best

    def _written(self, size: int) -> int | None:
        """Return how many arrays a kernel of the first groups writes and the next one reads."""
        chosen, others = set(self.groups[:size]), set(self.groups[size:])
        written = 0
        for g in self.groups[:size]:
            for m in g.members:
                outside = [r for r in self.lines.readers.get(m, ()) if r not in chosen]
                if outside or m in self.lines.results:
                    if not self.reads.is_line(m):
                        return None  # an end of the line, which is not stored
                    written += 1 + any(r in others for r in outside)
        return written


def _count(group: Group, fusion: Fusion) -> int:
    """Return how long the longest arrays are that a group computes, or reads step by step."""
    if group.library:
        return 0
    counts = [m.shape[0] for m in group.members if m.ndim == 1]
    reads = [use for m in group.members for use in fusion.uses.uses(m) if use.root.ndim == 1]
    counts += [use.root.shape[0] for use in reads if use.maps is not None and use.maps[0].terms]
    return max(counts, default=0)


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
    return {v: groups - {fusion.owner.get(v)} for v, groups in readers.items()}
