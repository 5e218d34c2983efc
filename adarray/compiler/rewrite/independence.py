"""Which values of a program wait for each other, while some of them become one.

Values that are computed at once are one node of the graph of dependences. That leaves it without
cycles where no path leads from one of them to another, as between members of a group that have the
same number of other members before them on their longest path.

References
----------
- A. B. Kahn, "Topological sorting of large networks", Commun. ACM 5 (1962), 558-562.
- V. Sarkar, "Partitioning and Scheduling Parallel Programs for Multiprocessors", MIT Press 1989,
  chapter 4 (nodes of a graph merged without cycles).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from adarray.compiler.ir.primitives import PythonCall
from adarray.compiler.ir.program import Program, Value


class Independence:
    """The dependences of a program's values, some of which are computed at once.

    Nodes have the position of their first value. Calls wait for each other: they may have effects.

    Parameters
    ----------
    program : Program
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.position = {v: k for k, v in enumerate(program.values)}
        self._node = list(range(len(program.values)))
        self._order = self._node.copy()
        self._members: dict[int, list[Value]] = {}
        self._before: list[set[int]] = []
        call: int | None = None
        for k, v in enumerate(program.values):
            before = {self.position[a] for a in v.args}
            if isinstance(v.primitive, PythonCall):
                before |= set() if call is None else {call}
                call = k
            self._before.append(before)

    def levels(self, members: Iterable[Value]) -> list[list[Value]]:
        """Return the members in lists of which none waits for another one, operands first."""
        chosen = {self._node[self.position[v]]: v for v in members}
        depth = [0] * len(self._node)
        levels: dict[int, list[Value]] = defaultdict(list)
        for node in self._order:
            most = max((depth[self._node[k]] for k in self._before[node]), default=0)
            if node in chosen:
                levels[most].append(chosen[node])
                most += 1
            depth[node] = most
        return [levels[k] for k in sorted(levels)]

    def unite(self, groups: Iterable[list[Value]]) -> None:
        """Let the members of each group be computed at once; all are of one call of `levels`."""
        changed = False
        for group in groups:
            positions = [self.position[v] for v in group]
            first = min(positions)
            self._members[first] = group
            self._before[first] = set().union(*(self._before[k] for k in positions))
            for k in positions:
                self._node[k] = first
            changed = True
        if changed:
            self._order = self._sorted()

    def waits(self, value: Value, other: Value) -> bool:
        """Whether a value waits for another one, directly or not."""
        goal, stack = self._node[self.position[other]], [self._node[self.position[value]]]
        seen = set(stack)
        while stack:
            before = {self._node[k] for k in self._before[stack.pop()]} - seen
            if goal in before:
                return True
            seen |= before
            stack += before
        return False

    def postpone(self, value: Value, other: Value) -> None:
        """Let a value wait for another one, which does not wait for it."""
        self._before[self._node[self.position[value]]].add(self.position[other])

    def ordered(self) -> Program:
        """Return the program with values after what they wait for, and those computed at once."""
        values = self.program.values
        order = [v for node in self._sorted() for v in self._members.get(node, (values[node],))]
        return Program(self.program.inputs, order, self.program.outputs)

    def _sorted(self) -> list[int]:
        """Return the nodes with what they wait for first, otherwise in the program's order."""
        after: dict[int, list[int]] = defaultdict(list)
        waits = {}
        nodes = [k for k, node in enumerate(self._node) if k == node]
        for node in nodes:
            before = {self._node[k] for k in self._before[node]}
            waits[node] = len(before)
            for k in before:
                after[k].append(node)
        ready = [node for node in nodes if not waits[node]]
        heapify(ready)
        order = []
        while ready:
            node = heappop(ready)
            order.append(node)
            for k in after[node]:
                waits[k] -= 1
                if not waits[k]:
                    heappush(ready, k)
        assert len(order) == len(nodes), "values that are computed at once wait for each other"
        return order
