"""Sibling groups: loops over nearly the same rows of the same arrays become one kernel.

Slices of one array differ in length by a few rows, and so do the kernels of what is computed
from them: a sum over ``x[1:] - x[:-1]`` and its gradient, which is as long as ``x``. Where
neither reads what the other stores, one loop over the longer range does both, and what they
read comes from memory once.

References
----------
- K. Kennedy, K. S. McKinley, "Maximizing loop parallelism and improving data locality via loop
  fusion and distribution", LCPC 1993.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from adarray.compiler.fusion.groups import MEMBERS, STREAMS, Group
from adarray.compiler.ir.loopir import Apply, For, If, Var, integer
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowered, Lowering
from adarray.compiler.kernels.nodes import KernelNode, ValueMemory
from adarray.compiler.kernels.rows import in_blocks
from adarray.compiler.kernels.spread import SHORT

# Ranges that differ by at most one part in so many; groups that may lie between two siblings.
NEAR, BETWEEN = 16, 8
# Bytes that siblings must both read.
SHARED = 1 << 15


class Sibling(NamedTuple):
    """What one of the groups of a kernel computes.

    Parameters
    ----------
    order : list of KernelNode
        Operands first.
    stored : dict
        Memory of the nodes whose results are written.
    outer : int
        Class of the outer loop.
    extents : list of int
        Of each class.
    """

    order: list[KernelNode]
    stored: dict[KernelNode, ValueMemory]
    outer: int
    extents: list[int]

    @property
    def rows(self) -> int:
        """Iterations of the outer loop."""
        return self.extents[self.outer]

    @property
    def flat(self) -> bool:
        """Whether the outer loop is the only one."""
        return all(
            c in (-1, self.outer) for n in self.order if n.classes is not None
            for c in n.classes
        )  # fmt: skip

    @property
    def flattens(self) -> bool:
        """Whether rows are few, and loops in them are to become one with the outer one.

        Rows of siblings differ in number, and stay as they are: so such a group runs alone.
        """
        nested = any(
            sum(c not in (-1, self.outer) for c in n.classes or ()) > 1 for n in self.order
        )
        return nested and self.rows < SHORT

    def lowering(self, target: Target, base: Lowering | None = None) -> Lowering:
        """Return what writes the loops of a part, row by row; see `Lowering`."""
        return Lowering(self.order, self.stored, self.outer, self.extents, base, True, target)


class Family:
    """Groups that run as one, and what they read and make."""

    def __init__(self, group: Group, part: Sibling | None, reads: set[Value]) -> None:
        self.groups = [group]
        self.parts = [part] if part is not None else []
        self.reads = reads
        self.makes = set(group.members)

    def takes(self, part: Sibling, reads: set[Value]) -> bool:
        """Whether one loop over rows does the work of one more part, and saves reading."""
        if not self.parts or self.makes & reads:
            return False
        if len(self.reads | reads) > STREAMS:
            return False
        if sum(len(p.order) for p in self.parts) + len(part.order) > MEMBERS:
            return False
        if not any(v.nbytes >= SHARED for v in reads & self.reads):
            return False
        rows = [p.rows for p in self.parts] + [part.rows]
        if (max(rows) - min(rows)) * NEAR > max(rows):
            return False
        first = self.parts[0]
        if first.flat or part.flat:
            return first.flat and part.flat
        return not any(in_blocks(p.order, p.outer, p.extents) for p in (first, part))

    def add(self, other: Family) -> None:
        """Take in a group."""
        self.groups += other.groups
        self.parts += other.parts
        self.reads = self.reads | other.reads
        self.makes |= other.makes


def find_siblings(
    groups: list[Group],
    reads: Callable[[Group], Iterable[Value]],
    part: Callable[[Group], Sibling | None],
) -> list[Family]:
    """Return the groups that run together, in the place of the first one.

    Parameters
    ----------
    groups : list of Group
        In the order in which they run.
    reads : callable
        Returns the values that a group reads from memory.
    part : callable
        Returns what a group computes; None if it runs alone.
    """
    families: list[Family] = []
    recent: list[Family] = []
    for group in groups:
        mine = set(reads(group))
        computed = part(group)
        new = Family(group, computed, mine)
        for family in reversed(recent):
            if computed is not None and family.takes(computed, mine):
                family.add(new)
                if len(family.groups) == 2:
                    families.append(family)
                break
            if family.makes & mine:
                recent.append(new)
                break
        else:
            recent.append(new)
        del recent[:-BETWEEN]
    return families


def one_loop(
    parts: list[Sibling],
) -> tuple[list[KernelNode], dict[KernelNode, ValueMemory], int, list[int]]:
    """Return the nodes of parts whose outer loop is the only one, as those of one kernel."""
    order = [n for p in parts for n in p.order]
    stored = {key: m for p in parts for key, m in p.stored.items()}
    for n in order:
        if n.classes is not None:
            n.classes = tuple(min(c, 0) for c in n.classes)
    return order, stored, 0, [max(p.rows for p in parts)]


def write(parts: list[Sibling], target: Target) -> Lowered:
    """Return the kernel that computes a row of each part after the other."""
    parts = sorted(parts, key=lambda p: -p.rows)
    base = parts[0].lowering(target)
    stages = [base, *(p.lowering(target, base) for p in parts[1:])]
    for stage in stages:
        stage.declare()
    scope = base.scope
    scope.open()
    name = scope.index_name("i", 0, max(0, base.rows - 1), 1)
    for stage in stages:
        stage.vars[stage.outer] = name
        if stage.rows == base.rows:
            stage.write_iteration()
        else:
            _first_rows(stage, name)
    body = scope.close()
    scope.emit(For(name, integer(0), base.extent(base.outer), body, "parallel"))
    return base.kernel()


def _first_rows(stage: Lowering, name: str) -> None:
    """Write an iteration that the first rows alone have."""
    scope, values = stage.scope, stage.values
    scope.open()
    here = scope.here
    # Known inside of the branch alone, so that nothing moves out of it.
    outside = scope.depth[name], scope.range[name]
    scope.depth[name], scope.range[name] = here, (0, max(0, stage.rows - 1))
    values.row_depth = here
    stage.write_iteration()
    values.row_depth = 1
    scope.depth[name], scope.range[name] = outside
    inside = Apply("bool", "less", (Var("int64", name), stage.extent(stage.outer)))
    scope.emit(If(inside, scope.close()))
