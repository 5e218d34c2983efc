"""Which states of a loop of steps are kept, and which steps run again: checkpointing schedules.

A schedule says how to get from a known state to the end of a stretch of steps, such that the
last step is recorded: which states to keep on the way, and which steps to keep recorded. Then the
stretch is walked back: what is on top of the stack is either a recorded step, or a state from
where a shorter stretch begins.

References
----------
A. Griewank, A. Walther: Algorithm 799: Revolve, ACM Trans. Math. Softw. 26 (2000), 19-45.
P. Stumm, A. Walther: MultiStage approaches for optimal offline checkpointing, SIAM J. Sci. Comput.
31 (2009), 1946-1967.
Q. Wang, P. Moin, G. Iaccarino: Minimal repetition dynamic checkpointing algorithm for unsteady
adjoint calculation, SIAM J. Sci. Comput. 31 (2009), 2549-2567.
J. R. Maddison: Step-based checkpointing with high-level algorithmic differentiation, J. Comput.
Sci. 82 (2024), 102405.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

# Entries of the table of a mixed schedule that are computed, some seconds.
LARGEST = 400_000_000


class Move(NamedTuple):
    """The next action on the way to the end of a stretch.

    Parameters
    ----------
    keep : bool
        Whether the state is kept; else the next step is recorded.
    steps : int
        How many steps are taken.
    """

    keep: bool
    steps: int


# Takes the length of a stretch and the number of units that are free; yields moves.
Schedule = Callable[[int, int], Iterator[Move]]
_RECORD = Move(False, 1)


def reach(units: int, repeats: int) -> int:
    """Return how many steps can be walked back with `units` states stored at a time.

    Each step runs at most `repeats` times, and once more where it is recorded.
    """
    return math.comb(units + repeats, units) if repeats >= 0 else 0


def repetition(length: int, units: int) -> int:
    """Return the least number of times, at most, that a step runs before it is recorded."""
    repeats = 0
    while reach(units, repeats) < length:
        repeats += 1
    return repeats


def least_steps(length: int, units: int) -> int:
    """Return how many steps a binomial schedule runs, those that are recorded included.

    No schedule that keeps at most so many states at a time, the first one included, and one
    recorded step runs fewer (Griewank and Walther 2000, theorem 6.1).
    """
    repeats = repetition(length, units)
    return (repeats + 1) * length - math.comb(units + repeats, units + 1)


def binomial(length: int, units: int) -> Iterator[Move]:
    """Yield the moves of Revolve: the fewest steps for so many states, one recorded step."""
    while length > 1:
        repeats = repetition(length, units)
        steps = min(reach(units, repeats - 1), length - reach(units - 1, repeats - 1))
        yield Move(True, steps)
        length, units = length - steps, units - 1
    yield _RECORD


def periodic(size: int) -> Schedule:
    """Return a schedule that keeps every `size`-th state, and records what is between two."""

    def moves(length: int, units: int) -> Iterator[Move]:
        while length > size and units > 0:
            yield Move(True, size)
            length, units = length - size, units - 1
        for _ in range(length):
            yield _RECORD

    return moves


def mixed(length: int, units: int) -> Schedule:
    """Return a schedule with the fewest steps where a unit holds a state or a recorded step.

    Raises
    ------
    ValueError
        If it would take long to find.
    """
    units = min(units, length)
    if length**2 * units > LARGEST:
        raise ValueError(
            f"checkpointed_loop: schedule='mixed' for {length} steps and {units} snapshots would "
            "take long to find; take 'binomial', or steps of several steps"
        )
    _, choice = mixed_table(length, units)

    def moves(length: int, units: int) -> Iterator[Move]:
        while length > 1:
            steps = int(choice[min(units, choice.shape[0] - 1), length])
            yield Move(True, steps) if steps else _RECORD
            length, units = length - (steps or 1), units - 1
        yield _RECORD

    return moves


@functools.lru_cache(maxsize=8)
def mixed_table(length: int, units: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the fewest steps by units and length, and the first move: 0 records a step.

    Dynamic programming as by Maddison (2024); the step at the end of a stretch, which is walked
    back at once, takes no unit.
    """
    never = np.int64(1) << 40
    least = np.full((units + 1, length + 1), never)
    choice = np.zeros((units + 1, length + 1), np.int64)
    least[:, 0] = 0
    least[:, 1:2] = 1
    steps = np.arange(1, length)
    for n in range(2, length + 1):
        if units == 0:
            break
        # A state is kept: the steps to the next one run, then what follows, then these again.
        totals = steps[: n - 1] + least[1:, 1:n] + least[:-1, n - 1 : 0 : -1]
        best = np.argmin(totals, axis=1)
        stored = np.take_along_axis(totals, best[:, None], axis=1)[:, 0]
        recorded = 1 + least[:-1, n - 1]
        least[1:, n] = np.minimum(stored, recorded)
        choice[1:, n] = np.where(recorded <= stored, 0, best + 1)
    return least, choice


def accesses(schedule: Schedule, length: int, units: int) -> list[int]:
    """Return how often each place of the stack is written or read, in a whole loop."""
    count = [0] * (units + 1)
    stack: list[tuple[bool, int]] = []

    def descend(at: int, end: int, on_stack: bool) -> None:
        for move in schedule(end - at, units - len(stack)):
            if move.keep and not on_stack:
                count[min(len(stack), units)] += 1
            on_stack = False
            stack.append((move.keep, at))
            at += move.steps

    descend(0, length, False)
    todo = length
    while todo:
        keep, at = stack.pop()
        if keep:
            count[min(len(stack), units)] += 1
            descend(at, todo, True)
        else:
            todo = at
    return count[:units]


class Dynamic:
    """States of a loop of unknown length: which of them are kept while it runs.

    Each has a level. One is dispensable if a later one has a higher level; where none is, the
    last one makes room, and the new one is a level higher (Wang, Moin and Iaccarino 2009).

    Attributes
    ----------
    levels : list of float
        Of the states that are kept, in the order of their steps.
    """

    def __init__(self, units: int) -> None:
        self.units = units
        self.levels: list[float] = []

    def place(self) -> int | None:
        """Keep the next state, as the last one; return the place of the one that goes, if any."""
        if not self.levels:
            self.levels.append(math.inf)
            return None
        if len(self.levels) < self.units:
            self.levels.append(0)
            return None
        highest = -1.0
        for k in range(len(self.levels) - 1, 0, -1):
            if self.levels[k] < highest:
                del self.levels[k]
                self.levels.append(0)
                return k
            highest = max(highest, self.levels[k])
        last = len(self.levels) - 1
        if last == 0:
            return -1  # the first one alone is kept
        self.levels.append(self.levels.pop() + 1)
        return last
