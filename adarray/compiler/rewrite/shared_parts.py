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

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Concatenate
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import rebuild, renewed


def shared_parts(program: Program) -> Program:
    """Return the program with concatenations of rows as views of longer ones."""
    wholes: dict[Value, tuple[Value, int]] = {}
    found = _longer(program)
    for part, (whole, row) in found.items():
        if whole not in found and not _needs(whole, part):
            wholes[part] = whole, row
            program = _after(program, whole, part)
    if not wholes:
        return program
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v in wholes:
            whole, row = wholes[v]
            new[v] = b.slice(new[whole], 0, row, row + v.shape[0])
        else:
            new[v] = renewed(b, v, args)
        return new[v]

    return rebuild(program, rule)


def _longer(program: Program) -> dict[Value, tuple[Value, int]]:
    """Return the concatenations that others are parts of, and the rows where these begin."""
    every = [v for v in program.values if v.primitive == Concatenate(0)]
    by_part: dict[Value, list[Value]] = defaultdict(list)
    for v in every:
        for x in dict.fromkeys(v.args):
            by_part[x].append(v)
    found: dict[Value, tuple[Value, int]] = {}
    for v in every:
        for whole in sorted(by_part[v.args[0]], key=lambda w: -len(w.args)):
            begin = whole.args.index(v.args[0])
            if len(whole.args) > len(v.args) == len(set(v.args)) and (
                whole.args[begin : begin + len(v.args)] == v.args
            ):
                found[v] = whole, sum(x.shape[0] for x in whole.args[:begin])
                break
    return found


def _needs(value: Value, other: Value) -> bool:
    """Whether a value is computed of another one."""
    seen = {value}
    stack = [value]
    while stack:
        for x in stack.pop().args:
            if x is other:
                return True
            if x not in seen:
                seen.add(x)
                stack.append(x)
    return False


def _after(program: Program, first: Value, then: Value) -> Program:
    """Return the program with its values in the order that they have, but one after another."""
    position = {v: k for k, v in enumerate(program.values)}
    readers: dict[Value, list[Value]] = defaultdict(list)
    waits: dict[Value, int] = {}
    for v in program.values:
        needed = {x for x in v.args if x in position} | ({first} if v is then else set())
        waits[v] = len(needed)
        for x in needed:
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
