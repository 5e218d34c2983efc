"""Small groups whose kernel would be large: they are cut where few values cross.

The values of a small group are computed by one kernel whatever their axes are, so the steps of an
unrolled loop over a small array all come into one. A C compiler takes longer for a function
than its length tells, and has no other function to compile meanwhile. Cut where least is
handed over, which is between two steps, the pieces compute the same: they share one kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from adarray.passes.groups import Group
from adarray.passes.uses import Uses
from adarray.program import Value

# Statements of a kernel, from which on it is cut: gcc takes about half a second for so
# many; and of its pieces.
MOST, PIECE = 640, 160
# Members of a group from which on its last ones are looked at first, and how many of them:
# writing a large kernel to count its statements takes long.
MANY, SAMPLE = 128, 64


class Division:
    """Cuts the small groups of a plan.

    Parameters
    ----------
    uses : Uses
    number : int
        The first index that no group has.
    statements : callable
        ``statements(group, old)``: how many the kernel of a group has. `old` is the group whose
        members it has, if it is no group of the plan.
    """

    def __init__(
        self, uses: Uses, number: int, statements: Callable[[Group, Group | None], int]
    ) -> None:
        self._uses = uses
        self._number = number
        self._statements = statements

    def pieces(self, group: Group) -> list[Group]:
        """Return the groups that compute what a small one does: itself if it is not cut."""
        size = len(group.members)
        count = 0.0
        if size > MANY:
            last = self._group(group, _pieces(group.members, SAMPLE, self._uses)[-1])
            count = self._statements(last, group) / len(last.members) * size
        if count <= 2 * MOST:
            count = self._statements(group, None)
        if count <= MOST or size < 2:
            return [group]
        most = max(1, int(size * PIECE / count))
        return [self._group(group, members) for members in _pieces(group.members, most, self._uses)]

    def _group(self, whole: Group, members: list[Value]) -> Group:
        """Return a group of some of the members of another one."""
        made = Group(self._number, whole.kind)
        self._number += 1
        made.members = members
        made.classes = {id(m): whole.classes[id(m)] for m in members}
        made.depth = {id(m): whole.depth[id(m)] for m in members}
        made.extents, made.parents = list(whole.extents), list(whole.parents)
        made.united = whole.united
        made.totals = {id(m) for m in members} & whole.totals
        made.shape = whole.shape
        return made


def _pieces(members: list[Value], most: int, uses: Uses) -> list[list[Value]]:
    """Return members in pieces of so many at most, cut where the fewest values cross."""
    crossing = _crossing(members, uses)
    found = []
    start = 0
    while len(members) - start > most:
        ends = range(start + max(1, most // 2), start + most + 1)
        end = min(ends, key=lambda k: (crossing[k], -k))
        found.append(members[start:end])
        start = end
    found.append(members[start:])
    return found


def _crossing(members: list[Value], uses: Uses) -> list[int]:
    """Return for each place how many members before it are read at or behind it."""
    places = {id(m): k for k, m in enumerate(members)}
    last = list(range(len(members)))
    for k, m in enumerate(members):
        for use in uses.uses(m):
            for leaf in uses.leaves.get(id(use.root), (use.root,)):
                if id(leaf) in places:
                    last[places[id(leaf)]] = k
    change = [0] * (len(members) + 2)
    for k, end in enumerate(last):
        change[k + 1] += 1
        change[end + 1] -= 1
    found, now = [], 0
    for c in change:
        now += c
        found.append(now)
    return found
