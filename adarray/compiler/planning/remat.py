"""Rematerialise or store: keeping the memory of temporaries within a limit.

What fills memory in a gradient are values of the forward pass that wait for the backward pass.
Where they take more than the limit, the program up to its fullest moment is cut into
segments. Only what crosses a cut is kept; the rest of a segment is computed a second time,
when something after that moment first reads of it, so that one segment at a time is in
memory. Of a chain of n equal steps about the square root of n cuts need least; where that is
not enough, the result is treated in the same way again. How many segments there are, and how
many of them are computed twice, is chosen by counting what would be alive, before anything
is planned.

References
----------
- T. Chen, B. Xu, C. Zhang, C. Guestrin, "Training deep nets with sublinear memory cost",
  arXiv:1604.06174, 2016.
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 12.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.plan import Plan
from adarray.compiler.ir.primitives import (
    CallResult,
    Constant,
    ConstantArray,
    Iota,
    Map,
    Matmul,
    Primitive,
    ProgramInput,
    PythonCall,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.uses import op_cost
from adarray.compiler.planning.remat_values import LatePlanner, Planned, singly

# Plans that are made before the search ends: what fusion stores is known afterwards only.
ATTEMPTS = 3
# Times that the search begins again, from the best plan and what that stores.
ROUNDS = 4
# Times that a program is cut again.
LEVELS = 4
WORTH = 0.97  # of memory: less is not worth a cut
SEGMENTS = (2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64)
SHORT = 300  # values of programs in which single values are tried one by one
NEVER_REPEATED: frozenset[type[Primitive]] = frozenset({
    ProgramInput, Constant, ConstantArray, Iota, PythonCall, CallResult,
})  # fmt: skip
# Operations of a product per element of its factor, in the units of `op_cost`.
PRODUCT_COST = 0.1


class RematVariant(NamedTuple):
    """A program that computes some values again.

    Parameters
    ----------
    program : Program
    late : dict
        By value that is computed again: values with one number belong together.
    stored : set of Value
        Those that are expected to lie in memory, results included.
    """

    program: Program
    late: dict[Value, int]
    stored: set[Value]


def within(program: Program, limit: int, attempt: LatePlanner) -> Plan:
    """Return a plan whose temporaries take at most `limit` bytes, or as few as can be.

    Parameters
    ----------
    program : Program
    limit : int
        Bytes.
    attempt : callable
        ``attempt(program, late)`` returns a planner, not run yet, that computes the values
        `late` no earlier than they stand in the program.
    """
    planner = attempt(program, {})
    best = planner.run()
    if best.arena > limit:
        best = _searched(program, limit, attempt, planner, best)
    if best.arena > limit and len(program.values) <= SHORT:
        plan = singly(program, limit, attempt)
        best = plan if plan.arena < best.arena else best
    if best.arena > limit:
        warnings.warn(
            f"jit: memory_limit: temporaries need {best.arena} bytes, got a limit of {limit}; "
            "raise the limit, or split the function",
            RuntimeWarning,
            stacklevel=2,
        )
    return best


def _searched(
    program: Program, limit: int, attempt: LatePlanner, planner: Planned, best: Plan
) -> Plan:
    """Return a plan below a limit, or the smallest that is found; `best` is that of `planner`."""
    variant = _as_planned(RematVariant(program, {}, set()), planner)
    following: tuple[RematVariant, Planned] | None = None
    for number in range(ROUNDS):
        before = best
        late = variant.late | _early(variant, planner.fusion.owner)
        variant = variant._replace(late=late)
        if number:  # what is in memory where these values are computed late
            planner = attempt(variant.program, late)
            plan = planner.run()
            if plan.arena < best.arena:
                best, following = plan, (variant, planner)
            variant = _as_planned(variant, planner)
        target = float(limit)
        for _ in range(ATTEMPTS):
            candidate = _within(variant, target, number * LEVELS)
            if candidate is None or best.arena <= limit:
                break
            other = attempt(candidate.program, candidate.late)
            plan = other.run()
            if plan.arena < best.arena:
                best, following = plan, (candidate, other)
            # What fusion leaves in memory besides is not known beforehand.
            target *= min(0.8, limit / plan.arena)
        if best.arena <= limit or (best is before and number > 1):
            break
        if number > 0 and following is not None:
            variant, planner = following
            variant = _as_planned(variant, planner)
    return best


def _as_planned(variant: RematVariant, planner: Planned) -> RematVariant:
    """Return a variant with the values that a planner of it has stored."""
    stored = {v for _, v in planner.stored_values()}
    return variant._replace(stored=stored | set(variant.program.outputs))


def _early(start: RematVariant, owner: Mapping[Value, Group]) -> dict[Value, int]:
    """Return values that fusion computes before the fullest moment, and are read after it.

    They are computed beside their operands, which may be good for speed. Those that the same
    stored value reads first belong together: others would be computed with them too early.
    """
    values = start.program.values
    place = {v: k for k, v in enumerate(values)}
    fullest = Liveness(start).fullest
    first = list(range(len(values), 2 * len(values)))  # the first stored reader of each
    for k in range(len(values) - 1, -1, -1):
        reader = k if values[k] in start.stored else first[k]
        for a in values[k].args:
            at = place[a]
            first[at] = min(first[at], reader)
    readers: dict[Value, int] = {}
    for k in range(fullest + 1, len(values)):
        v = values[k]
        group = owner.get(v) if isinstance(v.primitive, Map) else None
        if group is not None and place.get(group.members[0], k) <= fullest:
            readers[v] = first[k]
    return readers


def _within(start: RematVariant, target: float, first: int = 0) -> RematVariant | None:
    """Return the program with the least work that is expected to stay below `target` bytes."""
    best, least = None, Liveness(start).peak
    if least <= target:
        return start
    current = start
    for level in range(first, first + LEVELS):
        cut, cost, peak = None, float("inf"), least
        for variant, work in _cuts(current, level, target):
            needs = Liveness(variant).peak
            fits = needs <= target
            if (fits and (peak > target or work < cost)) or (not fits and needs < WORTH * peak):
                cut, cost, peak = variant, work, needs
        if cut is None:
            return best
        best = current = cut
        least = peak
        if peak <= target:
            return best
    return best


def _cuts(start: RematVariant, level: int, target: float) -> Iterator[tuple[RematVariant, float]]:
    """Yield programs with the values before the fullest moment cut in different ways."""
    live = Liveness(start)
    waiting = [k for k in live.alive() if start.program.values[k] in start.stored]
    total = sum(start.program.values[k].nbytes for k in waiting)
    for count in SEGMENTS:
        if count > len(waiting):
            return
        ends: list[int] = []
        size = 0.0
        for k in waiting:
            size += start.program.values[k].nbytes
            if size >= total * (len(ends) + 1) / count:
                ends.append(k)
        ends[-1] = live.fullest
        if len(ends) < 2:
            continue
        low, high = 1, len(ends) - 1
        most = _cut(start, ends, high, live.fullest, level)
        yield most
        if Liveness(most[0]).peak > target:
            continue
        while low < high:  # the fewest segments that are enough
            middle = (low + high) // 2
            variant = _cut(start, ends, middle, live.fullest, level)
            if Liveness(variant[0]).peak <= target:
                high = middle
            else:
                low = middle + 1
        yield _cut(start, ends, low, live.fullest, level)


class Liveness:
    """Bytes of the stored values of a program that are alive, by position.

    A value that is not stored is taken to be computed where stored ones read it.

    Attributes
    ----------
    peak, fullest : int
        The most bytes at a time, and where.
    last : list of int
        Of each position the last one that reads its value.
    """

    def __init__(self, variant: RematVariant) -> None:
        values, stored = variant.program.values, variant.stored
        place = {v: k for k, v in enumerate(values)}
        self.last = list(range(len(values)))
        for v in variant.program.outputs:
            self.last[place[v]] = len(values)
        for k in range(len(values) - 1, -1, -1):
            until = k if values[k] in stored else self.last[k]
            for a in values[k].args:
                at = place[a]
                self.last[at] = max(self.last[at], until)
        use = [0] * (len(values) + 2)
        for k, v in enumerate(values):
            if v in stored and self.last[k] < len(values):  # a result is no temporary
                use[k] += v.nbytes
                use[self.last[k] + 1] -= v.nbytes
        now = self.peak = self.fullest = 0
        for k, change in enumerate(use):
            now += change
            if now > self.peak:
                self.peak, self.fullest = now, k

    def alive(self) -> list[int]:
        """Return the positions of temporaries that are alive when memory is fullest."""
        return [k for k in range(self.fullest + 1) if self.fullest < self.last[k] < len(self.last)]


def _cut(
    start: RematVariant, ends: list[int], again: int, fullest: int, level: int
) -> tuple[RematVariant, float]:
    """Return a program that computes values of its first segments again, and what that costs.

    Parameters
    ----------
    start : RematVariant
    ends : list of int
        The last position of each segment.
    again : int
        How many segments are computed again.
    fullest : int
        The position after which readers read what was computed again.
    level : int
        How often the program was cut before.
    """
    values = start.program.values
    segment: dict[Value, int] = {}
    number = 0
    for k in range(ends[again - 1] + 1):
        number += k > ends[number]
        if type(values[k].primitive) not in NEVER_REPEATED:
            segment[values[k]] = number
    for k in range(ends[again - 1] + 1, fullest + 1):
        for a in values[k].args:
            segment.pop(a, None)
    for k in range(ends[again - 1] + 1):  # what crosses a cut is kept
        own = segment.get(values[k], -1)
        for a in values[k].args:
            if segment.get(a, own) != own:
                del segment[a]
    for v in start.program.outputs:
        segment.pop(v, None)
    return _Copier(start, segment, fullest, level).run()


class _Copier:
    """Writes a program in which some values are computed again, segment by segment."""

    def __init__(
        self, start: RematVariant, segment: Mapping[Value, int], fullest: int, level: int
    ) -> None:
        self.start = start
        self.segment = segment
        self.fullest = fullest
        self.level = level
        self.values: list[Value] = []
        self.stored: set[Value] = set()
        self.late: dict[Value, int] = {}
        self.now: dict[Value, Value] = {}  # what stands for a value
        self.cost = 0.0
        self.members: dict[int, list[Value]] = {}

    def run(self) -> tuple[RematVariant, float]:
        """Return the program and the cost of what it computes again."""
        program = self.start.program
        needed = self._needed()
        for v in program.values:
            if v in needed:
                self.members.setdefault(self.segment[v], []).append(v)
        for k, v in enumerate(program.values):
            if k > self.fullest:
                for a in v.args:
                    self._again(self.segment.get(a, -1))
            self._add(v, self.start.late.get(v))
        outputs = [self.now[v] for v in program.outputs]
        changed = Program(program.inputs, self.values, outputs)
        return RematVariant(changed, self.late, self.stored), self.cost

    def _needed(self) -> set[Value]:
        """Return the values that are computed again: those read later, and what they need."""
        values = self.start.program.values
        needed: set[Value] = set()
        for k in range(len(values) - 1, -1, -1):
            if k > self.fullest or values[k] in needed:
                needed.update(a for a in values[k].args if a in self.segment)
        return needed

    def _again(self, number: int) -> None:
        """Compute a segment again, before its first reader."""
        for v in self.members.pop(number, ()):
            self._add(v, (self.level + 1) * 1_000_000 + number, copy=True)
            work = v.size * float(op_cost(v))
            if isinstance(v.primitive, Matmul):
                work = PRODUCT_COST * v.size * v.args[0].shape[-1]
            self.cost += work

    def _add(self, v: Value, batch: int | None, copy: bool = False) -> None:
        args = tuple(self.now[a] for a in v.args)
        new = v
        if copy or any(a is not b for a, b in zip(args, v.args, strict=True)):
            new = v.with_args(args)
        self.values.append(new)
        self.now[v] = new
        if batch is not None:
            self.late[new] = batch
        if v in self.start.stored:
            self.stored.add(new)
