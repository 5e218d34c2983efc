"""The longest chain of what threads of a kernel do one after the other, in seconds.

However many threads there are, a row takes as long as its loops, of which each iteration waits for
memory, and where threads of a block share a fold, for each other. Times are those of an H200: a
serial loop around a fold of a block takes 0.9 to 1.5 us an iteration, around a loop that one thread
makes 0.26 us, and a running fold of one thread 0.06 us.

References
----------
- R. P. Brent, "The parallel evaluation of general arithmetic expressions", J. ACM 21 (1974),
  201-206.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from adarray.compiler.ir.loopir import Fold, For, If, Stmt
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.schedule.extents import count_of, with_lets
from adarray.compiler.schedule.gpu.launch import LaunchSizes
from adarray.compiler.schedule.gpu.loops import WARP, running, scattered
from adarray.compiler.schedule.gpu.schedules import (
    ColumnFolds,
    ColumnStrips,
    DeviceScan,
    FlatLoops,
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    Schedule,
    SharedRows,
    SheetRows,
    SingleBlock,
    Tiles,
)

STEP = 0.25e-6  # of a vector loop: loads that are waited for, and what is computed of them
SERIAL = 0.06e-6  # of a loop of one thread, several of whose loads are under way at a time
MEET = 0.3e-6  # threads of a block wait for each other
JOIN = 0.45e-6  # a fold of what they have, besides
WIDTH = 4  # iterations of a vector loop that a thread makes at a time


def span_of(s: Schedule, launch: LaunchSizes, target: GpuTarget) -> float:
    """Return the seconds of the longest chain of a kernel; 0 where rows are no chains."""
    match s:
        case RowsByWarp() | RowsByBlock() | SharedRows() | RegisterRows():
            loop = s.facts.parallel
            if loop is None:
                return 0.0
            resident = min(
                target.threads_per_sm // s.block, target.shared_memory // max(launch.shared, 1)
            )
            groups = min(launch.blocks, target.sms * max(1, resident)) * (s.block // s.group)
            rows = max(1.0, s.facts.rows / groups)
            return rows * _chain(loop.body, s.group, with_lets(loop.body, s.facts.known))
        case SingleBlock():
            return _chain(s.facts.kernel.body, s.block, s.facts.known)
        case FlatLoops() | SheetRows() | Tiles() | ColumnStrips() | DeviceScan() | ColumnFolds():
            return 0.0  # threads of all blocks share what there is
        case _:
            assert_never(s)


def _chain(body: tuple[Stmt, ...], threads: int, known: Mapping[str, int]) -> float:
    """Return the seconds of statements that so many threads share."""
    time = 0.0
    for s in body:
        if isinstance(s, If):
            time += max(_chain(s.body, threads, known), _chain(s.orelse, threads, known))
        elif isinstance(s, For):
            time += _loop(s, threads, known)
    return time


def _loop(s: For, threads: int, known: Mapping[str, int]) -> float:
    count = count_of(s, known) or 0
    if s.kind == "vector" and scattered(s):
        return count * STEP + (MEET if threads > WARP else 0.0)
    if s.kind == "vector" or (threads > 1 and running(s) is not None):
        met = MEET + JOIN * any(isinstance(x, Fold) and x.index is None for x in s.body)
        steps = -(-count // (threads * WIDTH))
        return steps * (STEP if threads > 1 else SERIAL) + (met if threads > WARP else 0.0)
    return count * (_chain(s.body, threads, known) or SERIAL)
