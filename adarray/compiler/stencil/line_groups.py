"""Which groups of a program are steps of a stencil on a line, that one kernel takes (see `lines`).

Groups are put together before it is known what kernels compute again. What is not of the line, such
as sums of what steps compute, runs behind it.

References
----------
- K. Kennedy, K. S. McKinley, "Maximizing loop parallelism and improving data locality via loop
  fusion and distribution", LCPC 1993.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import Shape
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget, Target
from adarray.compiler.kernels.nodes import Cloned
from adarray.compiler.stencil.line_reads import SHORTER
from adarray.compiler.stencil.line_runs import LineContext, Part, Run
from adarray.compiler.stencil.lines import LineKernel

# Kernels saved that leave no doubt: others compute again what two steps need of each other.
CLEAR = 40


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
    number : int
        The first index that no group has.
    saved : int
        Kernels less than without lines.
    """

    def __init__(self, fusion: Fusion, results: Iterable[Value], target: Target) -> None:
        self.fusion = fusion
        self.shapes: dict[int, Shape] = {}
        self.borders: set[Value] = set()
        self.number = len(fusion.groups)
        self.saved = 0
        if isinstance(target, GpuTarget) and target.march > 1 and _has_shifts(fusion):
            self.context = LineContext(fusion, results, target)
            fusion.groups = self._merged(fusion.groups)

    @property
    def is_near_tie(self) -> bool:
        """Whether kernels that compute again what they need of each other may be as good."""
        return bool(self.shapes) and self.saved < CLEAR

    def kernel(self, group: Group, wanted: list[Value], cloned: Cloned) -> LineKernel:
        """Return the kernel of a group."""
        reads = self.context.reads_of(self.shapes[group.index])
        return LineKernel(group, self.fusion, cloned, wanted, reads)

    def _merged(self, groups: list[Group]) -> list[Group]:
        """Return the groups with those of a line put together."""
        merged: list[Group] = []
        rest = deque(groups)
        while rest:
            first = rest[0]
            run = Run(self.context, _shape(first, self.fusion))
            if not run.add(first):
                merged.append(rest.popleft())
                continue
            scanned = [rest.popleft()]
            while rest and run.goes_on:
                scanned.append(rest.popleft())
                run.add(scanned[-1])
            size = run.best()
            chosen = {p.group: p for p in run.parts[:size]}
            if chosen:
                merged.append(self._one(run, size))
            elif run.fused:
                chosen[first] = run.parts[0]
                merged.append(first)
            else:  # nor would any of the others be
                merged += scanned
                continue
            for g in reversed(scanned):
                if g not in chosen:
                    rest.appendleft(g)
                elif size and chosen[g].rest:
                    rest.appendleft(self._rest(chosen[g]))
        return merged

    def _one(self, run: Run, size: int) -> Group:
        """Return one group of the first ones of a run."""
        one = Group(run.parts[0].group.index, "line")
        self.saved += size - 1 - sum(bool(p.rest) for p in run.parts[:size])
        one.members = [m for p in run.parts[:size] for m in p.members]
        one.classes = dict.fromkeys(one.members, ())
        self.fusion.owner.update((m, one) for m in one.members)
        self.shapes[one.index] = run.reads.shape
        ends = {m for m in one.members if not run.reads.is_line(m)}
        self.borders |= ends
        self.borders |= {
            m for m in one.members if any(u.root in ends for u in self.fusion.uses.uses(m))
        }
        return one

    def _rest(self, part: Part) -> Group:
        """Return a group of what a line leaves of one."""
        whole, members = part.group, part.rest
        rest = Group(self.number, whole.kind)
        self.number += 1
        rest.outer = whole.outer
        rest.members = members
        rest.classes = {m: whole.classes[m] for m in members}
        rest.depth = {m: whole.depth[m] for m in members}
        rest.chains = {m: whole.chains[m] for m in members}
        rest.again = {m: whole.again[m] for m in members}
        rest.extents, rest.parents = list(whole.extents), list(whole.parents)
        rest.united, rest.shape = whole.united, whole.shape
        rest.totals = set(members) & whole.totals
        self.fusion.owner.update((m, rest) for m in members)
        for m in members:
            for use in self.fusion.uses.uses(m):
                for leaf in self.fusion.uses.leaves.get(use.root, (use.root,)):
                    if leaf in part.members:
                        self.context.readers.setdefault(leaf, set()).add(rest)
        return rest


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


def _has_shifts(fusion: Fusion) -> bool:
    """Whether anything is computed of neighbouring elements."""
    return not fusion.late and any(
        use.maps and use.maps[-1].const and use.maps[-1].terms
        for value in fusion.owner
        for use in fusion.uses.uses(value)
    )
