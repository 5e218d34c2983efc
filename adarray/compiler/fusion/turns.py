"""Folds over different axes of rows, which a GPU would go through piece by piece.

Rows that are all folded over the same axes are cut further: their other axes join the outer loop.
Folded over different ones, a row is what the axes of all of them span, and the few threads that
share its short last axis take turns at the rest. A kernel for each fold moves the array again, but
with all threads of the GPU.

So do folds of rows beside a sum over rows that is an array: its axes stay within the row, since
threads would add to elements of others otherwise, and the outer loop is as short as the sum is
long. A fold of what others give keeps the axes that it is over within the row, too.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from adarray.compiler.fusion.groups import AxisAssignment, Classes
from adarray.compiler.ir.domains import elements
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.ir.uses import domain, folded

# Iterations of the last axis that no more than a warp shares.
SHORT = 32
# Seconds of a turn: 0.26e-6 where little is computed, 1.1e-6 with twenty functions.
TURN = 0.5e-6
# The same where more than a warp folds what it has: threads wait for each other twice.
FOLDED = 1e-6
# Seconds of another kernel that is short, and bytes that a GPU moves in one.
KERNEL, BANDWIDTH = 5e-6, 4.1e12
# How many times as long the turns of one fold must take as a kernel of its own.
GAIN = 2
# Threads of a block, at most, and elements that each has at a time.
BLOCK, PACK = 1024, 4
# How many times as large as all that a group has an array must be to be one that it does not suit.
MUCH = 8
# Elements of float32 in a sector of memory: what is read of each for an element far from others.
SECTOR = 8


def folds_in_turn(attempt: AxisAssignment, target: GpuTarget) -> bool:
    """Whether a value would better have a kernel of its own than be one of a group's rows."""
    return _folds_other_axes(attempt, target) or _keeps_rows_few(attempt, target)


def _folds_other_axes(attempt: AxisAssignment, target: GpuTarget) -> bool:
    """Whether a fold of rows is over other axes than others of the group."""
    g = attempt.group
    outer = g.find(g.outer)
    mine = _folded(attempt, outer)
    if outer < 0 or not mine:
        return False
    row = {c for c in map(g.find, attempt.classes) if c not in (-1, outer)}
    others = False
    for m in g.members:
        axes = folded(m)
        if not axes or m in g.totals:
            continue
        classes = g.of(m)
        if {classes[a] for a in axes} - {-1} not in (mine, set()):
            others = True
            row |= {c for c in classes if c not in (-1, outer)}
    if not others:
        return False
    last = next((c for c in reversed(attempt.classes) if g.find(c) in row), -1)
    threads = g.extents[g.find(last)]
    if last < 0 or threads > SHORT:
        return False
    at_once = target.sms * target.threads_per_sm // threads
    rounds = max(1.0, g.extents[outer] / at_once)
    turns = math.prod(g.extents[c] for c in row) // threads
    moved = 2 * elements(attempt.shape) * attempt.value.dtype.itemsize
    return rounds * turns * TURN >= GAIN * (KERNEL + moved / BANDWIDTH)


def _folded(attempt: AxisAssignment, outer: int) -> set[int]:
    """Return the classes that the value is folded over; none if the outer one is among them."""
    found = {attempt.group.find(attempt.classes[a]) for a in folded(attempt.value)} - {-1}
    return set() if outer in found else found


class _Fold(NamedTuple):
    """A fold of a group: classes of its domain, those that it folds, and bytes of an element."""

    classes: Classes
    over: frozenset[int]
    itemsize: int

    @property
    def kept(self) -> frozenset[int]:
        """The classes of what it gives."""
        return frozenset(self.classes) - self.over - {-1}


def _keeps_rows_few(attempt: AxisAssignment, target: GpuTarget) -> bool:
    """Whether rows would be gone through in turn because of the value.

    It may be a fold of them, what keeps axes of theirs within the row, or a large array of which
    the group has folded only what belongs to its rows.
    """
    g, value = attempt.group, attempt.value
    if g.outer < 0:
        return False
    outer = g.find(g.outer)
    known = [_fold(g.of(m), m) for m in g.members if folded(m)]
    if not known:
        return False
    if not folded(value):
        largest = max(elements(domain(m)) for m in g.members)
        if elements(attempt.shape) < MUCH * largest:
            return False
    new = _fold(tuple(map(g.find, attempt.classes)), value)
    time = _in_turn([*known, new], outer, attempt, target) - _in_turn(known, outer, attempt, target)
    return time > 0 and time >= GAIN * (KERNEL + _moved(attempt) / BANDWIDTH)


def _moved(attempt: AxisAssignment) -> int:
    """Return the bytes that are moved if a value has a kernel of its own."""
    inside = {use.root for use in attempt.inside}
    again = {use.root for use in attempt.outside} & attempt.group.streams
    return sum(2 * v.nbytes for v in inside) + sum(v.nbytes for v in again)


def _fold(classes: Classes, value: Value) -> _Fold:
    over = frozenset(classes[a] for a in folded(value)) - {-1}
    return _Fold(classes, over, value.dtype.itemsize)


def _in_turn(folds: list[_Fold], outer: int, attempt: AxisAssignment, target: GpuTarget) -> float:
    """Return the seconds of folds of rows that the outer loop cannot share out.

    It runs over no axis of a sum over rows, and over none that some fold is over.
    """
    within: set[int] = set()
    for f in folds:
        within |= f.kept if outer in f.over else f.over
    within.discard(outer)
    return sum(
        _turns(f, outer, attempt, target) for f in folds if outer not in f.over and f.kept & within
    )


def _turns(fold: _Fold, outer: int, attempt: AxisAssignment, target: GpuTarget) -> float:
    """Return the seconds of a fold of rows, some of whose axes stay within these.

    With them the time for what threads move in vain if they go across the array. Pairs of what is
    small lie nowhere, and threads need not wait for them.
    """
    extents = attempt.group.extents
    row = [c for c in fold.classes if c not in (-1, outer)]
    whole = math.prod(extents[c] for c in row)
    size = extents[outer] * whole
    read = _read(attempt, size)
    if not read:
        return 0.0
    over = math.prod(extents[c] for c in row if c in fold.over)
    across = row[-1] in fold.over and over <= SHORT  # threads share what is kept
    if not fold.over:
        shared = extents[row[-1]]
    else:
        shared = over if row[-1] in fold.over and not across else whole // over
    threads = min(BLOCK, max(1, shared))
    at_once = max(1, target.sms * target.threads_per_sm // threads)
    turns = whole // shared * -(-shared // (BLOCK * PACK))
    meets = row[-1] in fold.over and threads > SHORT
    time = max(1.0, extents[outer] / at_once) * turns * (FOLDED if meets else TURN)
    if across:
        time += (SECTOR - 1) * size * fold.itemsize * read / BANDWIDTH
    return time


def _read(attempt: AxisAssignment, size: int) -> int:
    """Return how many arrays of so many elements the kernel reads."""
    roots = {use.root for use in attempt.outside} | attempt.group.streams
    return sum(root.size == size for root in roots)
