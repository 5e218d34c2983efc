"""Folds over different axes of rows, which a GPU would go through piece by piece.

Rows that are all folded over the same axes are cut further: their other axes join the outer loop.
Folded over different ones, a row is what the axes of all of them span, and the few threads that
share its short last axis take turns at the rest. A kernel for each fold moves the array again, but
with all threads of the GPU.
"""

from __future__ import annotations

import math

from adarray.compiler.fusion.groups import AxisAssignment
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


def folds_in_turn(attempt: AxisAssignment, target: GpuTarget) -> bool:
    """Whether a fold would better have a kernel of its own than be one of a group's rows."""
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
