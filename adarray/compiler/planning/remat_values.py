"""Rematerialise or store, value by value: for short programs that are no chains.

Values that are alive at the fullest moment and cheap to compute again are not kept: they are
computed a second time, for those that read them after that moment. One after the other is
tried, the largest for its cost first; what helps stays.

References
----------
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from adarray.compiler.ir.plan import Buffer, Plan
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.uses import op_cost
from adarray.compiler.planning.buffers import touched

# Plans that are made before the search ends.
ATTEMPTS = 64
KINDS = frozenset({"map", "place", "join"})


def singly(
    program: Program,
    limit: int,
    attempt: Callable[[Program, Any], Any],
) -> Plan:
    """Return a plan that comes nearer to a limit; see `adarray.compiler.planning.remat.within`."""
    chosen: dict[int, int] = {}
    planner = attempt(program, {})
    best: Plan = planner.run()
    origin: dict[int, Value] = {id(v): v for v in program.values}
    place = {id(v): k for k, v in enumerate(program.values)}
    tried: set[int] = set()
    for _ in range(ATTEMPTS):
        if best.arena <= limit:
            break
        found = _candidate(best, planner, origin, place, tried)
        if found is None:
            break
        value, split = found
        tried.add(id(value))
        again = chosen | {id(value): split}
        changed, late, origins = duplicated(program, again)
        other = attempt(changed, late)
        plan = other.run()
        if plan.arena < best.arena:
            chosen, best, planner, origin = again, plan, other, origins
    return best


def duplicated(
    program: Program, again: dict[int, int]
) -> tuple[Program, dict[int, int], dict[int, Value]]:
    """Return a program that computes some values twice.

    Parameters
    ----------
    program : Program
    again : dict
        By ``id`` of a value: the place in the program from which its readers read another
        one, computed there.

    Returns
    -------
    Program
    dict
        The second ones, by ``id``, and a number of each.
    dict
        By ``id`` of a value of the new program that is computed once or first: the value of
        `program` that it is.
    """
    now: dict[int, Value] = {}
    waiting: dict[int, int] = {}
    late: dict[int, int] = {}
    origin: dict[int, Value] = {}
    values: list[Value] = []

    def current(v: Value, k: int) -> Value:
        """Return what a reader at place `k` reads for a value."""
        if id(v) in waiting and k > waiting[id(v)]:
            del waiting[id(v)]
            second = _copy(v, tuple(current(a, k) for a in v.args))
            late[id(second)] = len(late)
            values.append(second)
            now[id(v)] = second
        return now[id(v)]

    for k, v in enumerate(program.values):
        args = tuple(current(a, k) for a in v.args)
        same = all(a is b for a, b in zip(args, v.args, strict=True))
        made = v if same else _copy(v, args)
        values.append(made)
        now[id(v)] = made
        origin[id(made)] = v
        if id(v) in again:
            waiting[id(v)] = again[id(v)]
    outputs = [now[id(v)] for v in program.outputs]
    return Program(program.inputs, values, outputs), late, origin


def _copy(v: Value, args: tuple[Value, ...]) -> Value:
    return Value(v.kind, args, v.params, v.shape, v.dtype, v.origin)


def _candidate(
    plan: Plan, planner: Any, origin: dict[int, Value], place: dict[int, int], tried: set[int]
) -> tuple[Value, int] | None:
    """Return a value that is alive when memory is fullest, and from where to compute it again."""
    alive, step, fresh = _fullest(plan)
    computed = [place[id(origin[id(v)])] for v in step if id(v) in origin]
    if not computed:
        return None
    split = max(computed)
    found: tuple[Value, int] | None = None
    gain = 0.0
    for key, stored in planner.stored_values():
        value = origin.get(id(stored))
        if key not in alive or value is None or id(value) in tried or value.kind not in KINDS:
            continue
        if value.nbytes / op_cost(value) > gain:
            # What is made at that moment need not be made before it is read.
            found = value, place[id(value)] if key in fresh else split
            gain = value.nbytes / op_cost(value)
    return found


def _fullest(plan: Plan) -> tuple[set[int], tuple[Value, ...], set[int]]:
    """Return the temporaries, by ``id``, that could be away when most bytes are in use.

    With them the values of the step at that moment, and those of the temporaries that this
    step makes.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    buffers: dict[int, Buffer] = {}
    for k, step in enumerate(plan.steps):
        for b in touched(step):
            if b.kind == "temp":
                buffers[id(b)] = b
                first.setdefault(id(b), k)
                last[id(b)] = k
    use = [0] * (len(plan.steps) + 1)
    for key, b in buffers.items():
        size = b.size * int(b.dtype.itemsize)
        use[first[key]] += size
        use[last[key] + 1] -= size
    now = peak = at = 0
    for k, change in enumerate(use):
        now += change
        if now > peak:
            peak, at = now, k
    if not plan.steps:
        return set(), (), set()
    # A value that is read at that moment has to be there.
    here = {id(b) for b in touched(plan.steps[at])}
    fresh = {key for key in buffers if first[key] == at < last[key]}
    idle = {key for key in buffers if first[key] < at < last[key] and key not in here}
    return fresh | idle, plan.steps[at].values, fresh
