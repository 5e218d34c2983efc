"""Concatenations of the same values: one that holds some of another's parts is a view of it.

The gradient of the matrix that the state of a recurrent network is multiplied by sums over all
steps but the first; that of the inputs' matrix sums over all. What each step computes can be
written into the memory of one concatenation alone, and would be copied into that of the other.

References
----------
- A. B. Kahn, "Topological sorting of large networks", Commun. ACM 5 (1962), 558-562.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Concatenate
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# A concatenation that holds another one's parts, and the row where these begin.
Place = tuple[Value, int]


def shared_parts(program: Program) -> Program:
    """Return the program with concatenations of rows as views of longer ones."""
    longer = _longer(program)
    places: dict[Value, Place] = {}
    for part, place in longer.items():
        if place[0] not in longer and not _needs(place[0], part, places):
            places[part] = place
    if not places:
        return program
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v in places:
            whole, row = places[v]
            new[v] = b.slice(new[whole], 0, row, row + v.shape[0])
        else:
            new[v] = renewed(b, v, args)
        return new[v]

    return rebuild(_ordered(program, places), rule)


def _longer(program: Program) -> dict[Value, Place]:
    """Return the concatenations that others are parts of, and the rows where these begin."""
    every = [v for v in program.values if v.primitive == Concatenate(0)]
    by_part: dict[Value, list[Value]] = defaultdict(list)
    for v in every:
        for x in dict.fromkeys(v.args):
            by_part[x].append(v)
    longer: dict[Value, Place] = {}
    for v in every:
        for whole in sorted(by_part[v.args[0]], key=lambda w: -len(w.args)):
            begin = whole.args.index(v.args[0])
            if len(whole.args) > len(v.args) == len(set(v.args)) and (
                whole.args[begin : begin + len(v.args)] == v.args
            ):
                longer[v] = whole, sum(x.shape[0] for x in whole.args[:begin])
                break
    return longer


def _waits_for(v: Value, places: Mapping[Value, Place]) -> tuple[Value, ...]:
    """Return what comes before a value: its operands, and what it is a view of."""
    return (*v.args, places[v][0]) if v in places else v.args


def _needs(value: Value, other: Value, places: Mapping[Value, Place]) -> bool:
    """Whether a value waits for another one, directly or not."""
    seen = {value}
    stack = [value]
    while stack:
        for x in _waits_for(stack.pop(), places):
            if x is other:
                return True
            if x not in seen:
                seen.add(x)
                stack.append(x)
    return False


def _ordered(program: Program, places: Mapping[Value, Place]) -> Program:
    """Return the program with its values in the order that they have, but wholes before parts."""
    position = {v: k for k, v in enumerate(program.values)}
    readers: dict[Value, list[Value]] = defaultdict(list)
    waits: dict[Value, int] = {}
    for v in program.values:
        before = set(_waits_for(v, places)) & position.keys()
        waits[v] = len(before)
        for x in before:
            readers[x].append(v)
    ready = [position[v] for v in program.values if not waits[v]]
    heapq.heapify(ready)
    values: list[Value] = []
    while ready:
        v = program.values[heapq.heappop(ready)]
        values.append(v)
        for reader in readers[v]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(ready, position[reader])
    return Program(program.inputs, values, program.outputs)
