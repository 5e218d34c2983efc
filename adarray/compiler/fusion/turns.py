"""Folds over different axes of rows, which a GPU would go through piece by piece.

Rows that are all folded over the same axes are cut further: their other axes join the outer loop.
Folded over different ones, a row is what the axes of all of them span, and the few threads that
share its short last axis take turns at the rest. A kernel for each fold moves the array again, but
with all threads of the GPU.

So do folds of rows beside a sum over rows that is an array: its axes stay within the row, since each
thread would add to elements of others otherwise, and the outer loop is as short as the sum is long.
"""

from __future__ import annotations

import math

from adarray.compiler.fusion.groups import AxisAssignment, Classes
from adarray.compiler.ir.domains import elements
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.ir.uses import folded

# Iterations of the last axis that no more than a warp shares.
SHORT = 32
# Seconds of a turn: 0.26e-6 where little is computed, 1.1e-6 with twenty functions.
TURN = 0.5e-6
# Seconds of another kernel that is short, and bytes that a GPU moves in one.
KERNEL, BANDWIDTH = 5e-6, 4.1e12
# How many times as long the turns of one fold must take as a kernel of its own.
GAIN = 2
# Threads of a block, at most, and elements that each has at a time.
BLOCK, PACK = 1024, 4
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


def _keeps_rows_few(attempt: AxisAssignment, target: GpuTarget) -> bool:
    """Whether folds of rows would be made in turn for a sum over rows that is an array.

    Either may come first: the group has one of them, and the value is the other one.
    """
    g, value = attempt.group, attempt.value
    axes = set(folded(value))
    if g.outer < 0 or not axes:
        return False
    outer = g.find(g.outer)
    classes = tuple(map(g.find, attempt.classes))
    kept = {c for a, c in enumerate(classes) if c >= 0 and a not in axes}
    if outer in {classes[a] for a in axes}:
        sums, folds = [kept], [m for m in g.members if folded(m) and m not in g.totals]
        rows = [(g.of(m), folded(m), m.dtype.itemsize) for m in folds]
    else:
        sums = [{c for c in g.result(t) if c >= 0} for t in g.totals]
        rows = [(classes, folded(value), value.dtype.itemsize)]
    within = set().union(*sums) - {outer}
    time = least = 0.0
    for of, over, itemsize in rows:
        turns, moved = _turns(attempt, of, over, within, outer, target)
        time += turns + moved * itemsize / BANDWIDTH
        least = max(least, math.prod(g.extents[c] for c in of if c >= 0) * itemsize / BANDWIDTH)
    again = 2 * elements(attempt.shape) * value.dtype.itemsize / BANDWIDTH
    return bool(rows) and time >= GAIN * (KERNEL + again + least)


def _turns(
    attempt: AxisAssignment,
    classes: Classes,
    axes: tuple[int, ...],
    within: set[int],
    outer: int,
    target: GpuTarget,
) -> tuple[float, float]:
    """Return the seconds of a fold of rows some of whose axes are `within` an array of sums.

    Beside it the elements that its threads move in vain, as they go across the array; both are 0
    where the outer loop can take the axes that the fold keeps.
    """
    extents = attempt.group.extents
    over = {classes[a] for a in axes} - {-1}
    row = [c for c in classes if c not in (-1, outer)]
    kept = [c for c in row if c not in over]
    if not within & set(kept) or not row:
        return 0.0, 0.0
    size = {
        True: math.prod(extents[c] for c in row if c in over),
        False: math.prod(extents[c] for c in kept),
    }
    last = row[-1] in over
    across = last and size[True] <= SHORT  # threads share what is kept, and fold side by side
    shared = last and not across
    threads = min(BLOCK, max(1, size[shared]))
    at_once = max(1, target.sms * target.threads_per_sm // threads)
    rounds = max(1.0, extents[outer] / at_once)
    turns = size[not shared] * -(-size[shared] // (BLOCK * PACK))
    moved = 0
    if across:
        whole = extents[outer] * size[True] * size[False]
        moved = whole * (SECTOR - 1) * _read(attempt, whole)
    return rounds * turns * TURN, float(moved)


def _read(attempt: AxisAssignment, size: int) -> int:
    """Return how many arrays of so many elements the kernel reads, at least one."""
    roots = {use.root for use in attempt.outside} | attempt.group.streams
    return max(1, sum(root.size == size for root in roots))
