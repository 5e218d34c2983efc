"""Rematerialise or store, value by value: for short programs that are no chains.

Values that are alive at the fullest moment and cheap to compute again are not kept: they are
computed a second time, for those that read them after that moment. One after the other is
tried, the largest for its cost first; what helps stays.

References
----------
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.ir.plan import Buffer, Plan
from adarray.compiler.ir.primitives import Concatenate, Map, Primitive, UpdateSlice
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.uses import op_cost
from adarray.compiler.planning.buffers import touched

# Plans that are made before the search ends.
ATTEMPTS = 64
CHEAP: frozenset[type[Primitive]] = frozenset({Map, UpdateSlice, Concatenate})


class Planned(Protocol):
    """What makes one plan: a `Planner`."""

    fusion: Fusion

    def run(self) -> Plan:
        """Return the plan."""

    def stored_values(self) -> Iterable[tuple[Buffer, Value]]:
        """Yield the values in buffers, with the buffer."""


# ``attempt(program, late)``: what plans a program with some values computed late.
LatePlanner = Callable[[Program, Mapping[Value, int]], Planned]


def singly(
    program: Program,
    limit: int,
    attempt: LatePlanner,
) -> Plan:
    """Return a plan that comes nearer to a limit; see `adarray.compiler.planning.remat.within`."""
    chosen: dict[Value, int] = {}
    planner = attempt(program, {})
    best = planner.run()
    origin: Mapping[Value, Value] = {v: v for v in program.values}
    place = {v: k for k, v in enumerate(program.values)}
    tried: set[Value] = set()
    for _ in range(ATTEMPTS):
        if best.arena <= limit:
            break
        candidate = _candidate(best, planner, origin, place, tried)
        if candidate is None:
            break
        value, split = candidate
        tried.add(value)
        again = chosen | {value: split}
        changed, late, origins = duplicated(program, again)
        other = attempt(changed, late)
        plan = other.run()
        if plan.arena < best.arena:
            chosen, best, planner, origin = again, plan, other, origins
    return best


def duplicated(
    program: Program, again: Mapping[Value, int]
) -> tuple[Program, dict[Value, int], dict[Value, Value]]:
    """Return a program that computes some values twice.

    Parameters
    ----------
    program : Program
    again : dict
        By value: the place in the program from which its readers read another one, computed
        there.

    Returns
    -------
    Program
    dict
        The second ones, and a number of each.
    dict
        By value of the new program that is computed once or first: the value of `program`
        that it is.
    """
    now: dict[Value, Value] = {}
    waiting: dict[Value, int] = {}
    late: dict[Value, int] = {}
    origin: dict[Value, Value] = {}
    values: list[Value] = []

    def current(v: Value, k: int) -> Value:
        """Return what a reader at place `k` reads for a value."""
        if v in waiting and k > waiting[v]:
            del waiting[v]
            second = v.with_args(tuple(current(a, k) for a in v.args))
            late[second] = len(late)
            values.append(second)
            now[v] = second
        return now[v]

    for k, v in enumerate(program.values):
        args = tuple(current(a, k) for a in v.args)
        same = all(a is b for a, b in zip(args, v.args, strict=True))
        new = v if same else v.with_args(args)
        values.append(new)
        now[v] = new
        origin[new] = v
        if v in again:
            waiting[v] = again[v]
    outputs = [now[v] for v in program.outputs]
    return Program(program.inputs, values, outputs), late, origin


def _candidate(
    plan: Plan,
    planner: Planned,
    origin: Mapping[Value, Value],
    place: Mapping[Value, int],
    tried: set[Value],
) -> tuple[Value, int] | None:
    """Return a value that is alive when memory is fullest, and from where to compute it again."""
    alive, step, fresh = _fullest(plan)
    computed = [place[origin[v]] for v in step if v in origin]
    if not computed:
        return None
    split = max(computed)
    chosen: tuple[Value, int] | None = None
    gain = 0.0
    for buffer, stored in planner.stored_values():
        value = origin.get(stored)
        if buffer not in alive or value is None or value in tried:
            continue
        if type(value.primitive) not in CHEAP:
            continue
        if value.nbytes / op_cost(value) > gain:
            # What is made at that moment need not be made before it is read.
            chosen = value, place[value] if buffer in fresh else split
            gain = value.nbytes / op_cost(value)
    return chosen


def _fullest(plan: Plan) -> tuple[set[Buffer], tuple[Value, ...], set[Buffer]]:
    """Return the temporaries that could be away when most bytes are in use.

    With them the values of the step at that moment, and those of the temporaries that this
    step makes.
    """
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, step in enumerate(plan.steps):
        for b in touched(step):
            if b.kind == "temp":
                first.setdefault(b, k)
                last[b] = k
    use = [0] * (len(plan.steps) + 1)
    for b in first:
        size = b.size * int(b.dtype.itemsize)
        use[first[b]] += size
        use[last[b] + 1] -= size
    now = peak = at = 0
    for k, change in enumerate(use):
        now += change
        if now > peak:
            peak, at = now, k
    if not plan.steps:
        return set(), (), set()
    # A value that is read at that moment has to be there.
    here = set(touched(plan.steps[at]))
    fresh = {b for b in first if first[b] == at < last[b]}
    idle = {b for b in first if first[b] < at < last[b] and b not in here}
    return fresh | idle, plan.steps[at].values, fresh
