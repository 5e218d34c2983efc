"""Small groups whose kernel would be large: they are cut where few values cross.

The values of a small group are computed by one kernel whatever their axes are, so the steps of an
unrolled loop over a small array all come into one. A C compiler takes longer for a function
than its length tells, and has no other function to compile meanwhile. Cut where least is
handed over, which is between two steps, the pieces compute the same: they share one kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.primitives import Map, mnemonic
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.uses import Uses

# Statements of a kernel, from which on it is cut: gcc takes about half a second for so
# many; and of its pieces.
MOST, PIECE = 640, 160
# Values from which on a program may be an unrolled loop.
UNROLLED = 640
# Iterations up to which a loop of such a program's small kernels has their number in its text. A
# compiler then writes a sum of four products as four, which takes it a fifth of the time. Sums
# of so many are added in the same order either way.
SHORT = 8
# Members of a group from which on its last ones are looked at first, and how many of them:
# writing a large kernel to count its statements takes long.
MANY, SAMPLE = 128, 64
# Members on either side that make a place like another one, and how many times as many values
# may cross there as at the best place.
NEAR, LIKE = 8, 2


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
            for members in reversed(_pieces(group.members, SAMPLE, self._uses)):
                sampled = self._statements(self._group(group, members), group)
                if sampled:  # they are not there for nobody
                    count = sampled / len(members) * size
                    break
        if count <= 2 * MOST:
            count = self._statements(group, None)
        if count <= MOST or size < 2:
            return [group]
        most = max(1, int(size * PIECE / count))
        return [self._group(group, members) for members in _pieces(group.members, most, self._uses)]

    def _group(self, whole: Group, members: list[Value]) -> Group:
        """Return a group of some of the members of another one."""
        part = Group(self._number, whole.kind)
        self._number += 1
        part.members = members
        part.classes = {m: whole.classes[m] for m in members}
        part.depth = {m: whole.depth[m] for m in members}
        part.chains = {m: whole.chains[m] for m in members}
        part.extents, part.parents = list(whole.extents), list(whole.parents)
        part.united = whole.united
        part.totals = set(members) & whole.totals
        part.shape = whole.shape
        return part


def _pieces(members: list[Value], most: int, uses: Uses) -> list[list[Value]]:
    """Return members in pieces of so many at most, cut where few values cross.

    Where there is a choice, they are cut at places like those of earlier cuts: the pieces of
    a loop's steps are the same for all of them then, whatever part of a step has room in one.
    """
    crossing = _crossing(members, uses)
    around = _surroundings(members)
    cuts: set[int] = set()
    pieces = []
    start = 0
    while len(members) - start > most:
        ends = range(start + max(1, most // 2), start + most + 1)
        fewest = min(crossing[k] for k in ends)
        known = [k for k in ends if around[k] in cuts and crossing[k] <= LIKE * fewest]
        end = min(known or ends, key=lambda k: (crossing[k], -k))
        cuts.add(around[end])
        pieces.append(members[start:end])
        start = end
    pieces.append(members[start:])
    return pieces


def _surroundings(members: list[Value]) -> list[int]:
    """Return for each place a number that tells what is computed before and behind it."""
    keys: dict[Hashable, int] = {}
    roles = [keys.setdefault((_role(m), m.shape, len(m.args)), len(keys)) for m in members]
    return [hash(tuple(roles[max(0, k - NEAR) : k + NEAR])) for k in range(len(roles))]


def _role(member: Value) -> str:
    """Return the scalar function of a map, and the word for another primitive."""
    p = member.primitive
    return p.name if isinstance(p, Map) else mnemonic(p)


def _crossing(members: list[Value], uses: Uses) -> list[int]:
    """Return for each place how many members before it are read at or behind it."""
    places = {m: k for k, m in enumerate(members)}
    last = list(range(len(members)))
    for k, m in enumerate(members):
        for use in uses.uses(m):
            for leaf in uses.leaves.get(use.root, (use.root,)):
                if leaf in places:
                    last[places[leaf]] = k
    change = [0] * (len(members) + 2)
    for k, end in enumerate(last):
        change[k + 1] += 1
        change[end + 1] -= 1
    counts, now = [], 0
    for c in change:
        now += c
        counts.append(now)
    return counts
