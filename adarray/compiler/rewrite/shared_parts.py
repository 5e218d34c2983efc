"""Concatenations of the same values: one that holds some of another's parts is a view of it.

The gradient of the matrix that the state of a recurrent network is multiplied by sums over all
steps but the first; that of the inputs' matrix sums over all. What each step computes can be
written into the memory of one concatenation alone, and would be copied into that of the other.

References
----------
- P. Munksgaard et al., "Memory optimizations in an array language", SC 2022 (values that are
  computed in the memory of a concatenation).
"""

from __future__ import annotations

from collections import defaultdict

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Concatenate
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.independence import Independence
from adarray.compiler.rewrite.rebuild import rebuild, renewed

# A concatenation that holds another one's parts, and the row where these begin.
Place = tuple[Value, int]


def shared_parts(program: Program) -> Program:
    """Return the program with concatenations of rows as views of longer ones."""
    longer = _longer(program)
    if not longer:
        return program
    graph, places = Independence(program), dict[Value, Place]()
    for part, (whole, row) in longer.items():
        if whole not in longer and not graph.waits(whole, part):
            graph.postpone(part, whole)
            places[part] = whole, row
    new: dict[Value, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        if v in places:
            whole, row = places[v]
            new[v] = b.slice(new[whole], 0, row, row + v.shape[0])
        else:
            new[v] = renewed(b, v, args)
        return new[v]

    return rebuild(graph.ordered(), rule)


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
