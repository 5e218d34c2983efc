"""Recompute or read: which values of earlier groups a kernel computes again.

Memory is dear and arithmetic is cheap: a value that costs a few operations is computed
again from what the kernel reads anyway, rather than written by one kernel and read by
another.

References
----------
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Mapping, Set
from typing import TypeAlias

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.primitives import (
    Concatenate,
    Map,
    Primitive,
    ProgramInput,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.uses import domain, op_cost
from adarray.compiler.kernels.nodes import Nodes
from adarray.compiler.planning.predicted import readings_in_place

# A value that costs at most so much is recomputed rather than read from memory.
CHEAP = 8
# The same, where one array that is read anyway gives it.
LOCAL = 24
# What costs so much is recomputed however much is.
SLIGHT = 4
# What a kernel recomputes at most per element, where it asks for values in memory again and again.
BUDGET = 32
# Times that a value is read from which on it is stored if it is not cheap.
MANY = 16
# Arrays that it may be recomputed from.
SOURCES = 2
RECOMPUTED: frozenset[type[Primitive]] = frozenset({Map, UpdateSlice, Concatenate})
# Values from each of which alone another one comes, with those on the way; None for inputs.
Ways: TypeAlias = list[tuple[Value | None, list[Value]]]


class Recompute:
    """Decisions for the groups of a program, last group first.

    Parameters
    ----------
    fusion : Fusion
    requested : container of Value
        Those that later groups read from memory; it grows.
    fixed : container of Value
        Those that only their own group computes.
    """

    def __init__(
        self, fusion: Fusion, requested: Container[Value], fixed: Container[Value] = ()
    ) -> None:
        self.fusion = fusion
        self.fixed = fixed
        self.requested = requested
        self.sources: dict[Value, int] = {}
        self.chosen: set[tuple[Value, int]] = set()
        self.spent: Counter[int] = Counter()  # by group: what its recomputed values cost
        # Whether a value may come from another one and what is near.
        self.near = False
        # What a group reads of an earlier one at first hand is likely to be in memory.
        self.likely = _read_across(fusion) if fusion.along else frozenset()

    def cloned(self, root: Value, group: Group) -> bool:
        """Whether a value of an earlier group is recomputed in `group`."""
        if (root, group.index) in self.chosen:
            return True
        if type(root.primitive) not in RECOMPUTED or root in self.requested or root in self.fixed:
            return False
        if _is_copy(root):
            return False
        owner = self.fusion.owner.get(root)
        if owner is None or owner is group or owner.kind == "step":
            return False
        return self.fusion.uses.cost[root] <= CHEAP and self._sources(root) <= SOURCES

    def _sources(self, value: Value) -> int:
        """Return from how many arrays a cheap value comes."""
        count = self.sources.get(value)
        if count is None:
            uses = self.fusion.uses
            seen: set[Value] = set()
            roots: set[Value | int] = set()
            stack = [value]
            while stack:
                v = stack.pop()
                if v in seen:
                    continue
                seen.add(v)
                for use in uses.uses(v):
                    if use.maps is None:
                        roots.update((use.root, -1, -2))
                    elif uses.cost[use.root] and type(use.root.primitive) in RECOMPUTED:
                        stack.append(use.root)
                    elif not uses.is_inline(use.root):
                        roots.add(use.root)
            count = self.sources[value] = len(roots)
        return count

    def choose(self, group: Group, nodes: Nodes) -> bool:
        """Choose further values to recompute in `group`, given all that it would read.

        Values that come cheaply from one other are recomputed from that, if it is read as
        well, here or by another group, or if several come from it; so are those that come from
        inputs alone.
        """
        read = [m.value for m in nodes.memories.values()]
        largest = max(math.prod(domain(m)) for m in group.members)
        mine = [v for v in read if self._local(v, group) and not self._repeated(v, largest)]
        if not mine:
            return False
        # Threads of a GPU compute a value at each place where it is read; a line does so once.
        again = self.fusion.along and group.kind != "line"
        readings = readings_in_place(nodes.order) if again else self._readings(nodes)
        have = set(read)
        chains = {
            v: self._ancestors(v, LOCAL // readings.get(v, 1))
            for v in mine
            if v not in self.requested
        }
        count = Counter(mine)
        for v in mine:
            for a, _ in chains.get(v, ()):
                if a is not None:
                    count[a] += 1
        changed = False
        for v in mine:
            if v in self.requested or count[v] > 1:
                continue  # others come from it
            for a, way in chains[v]:
                read_anyway = a in have or a in self.requested or a in self.likely
                cost = sum(map(op_cost, way)) * readings.get(v, 1)
                # An array less to read and to write is worth some operations in any case.
                dear = cost if cost > SLIGHT else 0
                if self.likely and self.spent[group.index] + dear > BUDGET:
                    break
                if a is None or read_anyway or count[a] > 1:
                    self.spent[group.index] += dear
                    self.chosen.update((w, group.index) for w in way)
                    changed = True
                    break
        if self.fusion.along and not changed:
            return self._choose_between(group, chains, have, readings)
        return changed

    def _choose_between(
        self,
        group: Group,
        chains: Mapping[Value, Ways],
        have: Set[Value],
        readings: Mapping[Value, int],
    ) -> bool:
        """Choose values that others would come from, had the kernel not enough to do already.

        Those are read, so what lies between them and comes cheaply from one of them need not be.
        Each saves more than it takes, however much the kernel computes.
        """
        changed = False
        for v, ways in chains.items():
            way = next((way for a, way in ways if a in have), [])
            new = [w for w in way if (w, group.index) not in self.chosen]
            if new and sum(map(op_cost, new)) * readings.get(v, 1) <= CHEAP:
                self.chosen.update((w, group.index) for w in new)
                changed = True
        return changed

    @staticmethod
    def _readings(nodes: Nodes) -> dict[Value, int]:
        """Return at how many places the nodes read each array per element."""
        seen: dict[Value, set[AffineIndex | None]] = {}
        for node in nodes.order:
            for ref in node.args:
                if ref.memory is not None:
                    seen.setdefault(ref.memory.value, set()).add(ref.at)
        return {key: len(at) for key, at in seen.items()}

    def _local(self, value: Value, group: Group) -> bool:
        owner = self.fusion.owner.get(value)
        return owner is not None and owner is not group and owner.kind != "step"

    def _repeated(self, value: Value, largest: int) -> bool:
        """Whether a value is dear and would be computed again and again for other rows."""
        dear = self.fusion.uses.cost[value] > CHEAP
        if dear and self.likely:  # what it is computed from may be in memory
            dear = not any(
                sum(map(op_cost, way)) <= CHEAP for _, way in self._ancestors(value, CHEAP)
            )
        return dear and MANY * value.size <= largest

    def _ancestors(self, value: Value, limit: int) -> Ways:
        """Return values of the same group from each of which alone `value` comes cheaply.

        Nearest first, each with the values on the way. Other operands may be inputs and
        constants of the program. The last one is None if a few inputs give the value.
        """
        uses, owner = self.fusion.uses, self.fusion.owner
        mine = owner[value]
        if mine.places is None:
            mine.places = {m: k for k, m in enumerate(mine.members)}
        ways: Ways = []
        inputs: set[Value] = set()
        frontier = {mine.places[value]: value}
        way: list[Value] = []
        cost = 0
        while True:
            v = frontier.pop(max(frontier))
            cost += op_cost(v)
            if type(v.primitive) not in RECOMPUTED or v in self.fixed or cost > limit:
                return ways
            if _is_copy(v):
                return ways
            way.append(v)
            for use in uses.uses(v):
                root = use.root
                if use.maps is None:
                    return ways
                if uses.is_inline(root):
                    if uses.leaves[root]:
                        return ways
                elif isinstance(root.primitive, ProgramInput) or (
                    root in self.likely and owner.get(root) is not mine
                ):
                    inputs.add(root)
                else:
                    if owner.get(root) is not mine or root in mine.totals:
                        return ways
                    frontier[mine.places[root]] = root
            if not frontier:
                if len(inputs) <= SOURCES:
                    ways.append((None, way))
                return ways
            if len(frontier) == 1:
                ways.append((next(iter(frontier.values())), list(way)))
            elif self.near:
                near = [u for u in frontier.values() if self._is_near(u)]
                if len(frontier) - len(near) == 1:
                    (a,) = (u for u in frontier.values() if u not in near)
                    ways.append((a, [*way, *near]))

    def _is_near(self, value: Value) -> bool:
        """Whether inputs, or what other groups read as well, give a value by one operation."""
        uses, owner = self.fusion.uses, self.fusion.owner
        if type(value.primitive) not in RECOMPUTED or op_cost(value) > CHEAP:
            return False
        mine = owner[value]
        return all(
            use.maps is not None
            and (
                (uses.is_inline(use.root) and not uses.leaves[use.root])
                or isinstance(use.root.primitive, ProgramInput)
                or (use.root in self.likely and owner.get(use.root) is not mine)
            )
            for use in uses.uses(value)
        )


def _is_copy(value: Value) -> bool:
    """Whether a value is made for the order in which its elements lie in memory."""
    if not isinstance(value.primitive, Map) or value.primitive.name != "cast":
        return False
    (a,) = value.args
    return a.dtype == value.dtype and isinstance(a.primitive, View)


def _read_across(fusion: Fusion) -> frozenset[Value]:
    """Return the values that other groups than their own have operations of."""
    uses, owner = fusion.uses, fusion.owner
    return frozenset(
        use.root
        for value, group in owner.items()
        for use in uses.uses(value)
        if owner.get(use.root, group) is not group
    )
