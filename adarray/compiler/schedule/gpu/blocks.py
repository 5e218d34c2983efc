"""Other blocks for a kernel of a GPU: which there are, and whether they change a bit.

Sums are folded by the threads that share a row, and then, for totals, by those of all blocks:
a kernel with totals, or with folds that all threads of a block share, gives other bits with
other blocks. Everywhere else the number of threads of a block is free to be measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from adarray.compiler.ir.loopir import Fold, For, statements
from adarray.compiler.schedule.gpu.choose import BLOCK, LARGEST
from adarray.compiler.schedule.gpu.loops import WARP
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

CHOICES = (128, BLOCK, 512, LARGEST)


def is_free(s: Schedule) -> bool:
    """Whether every result has the same bits whatever the number of threads of a block is."""
    kernel = s.facts.kernel
    if kernel.totals:
        return False
    body = kernel.body
    if isinstance(s, RowsByWarp | SheetRows):
        # Within an iteration of the parallel loop, groups fold; around it, whole blocks.
        body = tuple(x for x in body if not (isinstance(x, For) and x.kind == "parallel"))
    return not any(isinstance(x, Fold) for x in statements(body))


def resized(s: Schedule, block: int) -> Schedule:
    """Return a schedule with blocks of so many threads, a multiple of 32.

    Groups of up to a warp stay as they are; others are whole blocks. Larger blocks of groups
    that have arrays in shared memory may not fit: there the schedule stays as it is.
    """
    match s:
        case RegisterRows() | Tiles() | ColumnFolds():  # they fit their blocks
            return s
        case ColumnStrips():  # more of them have too few registers
            return replace(s, block=min(block, BLOCK))
        case SharedRows():  # other blocks read rows whenever they need them
            if block == s.block:
                return s
            schedule = RowsByBlock(s.facts, block, s.narrow, s.shared, s.far, small=s.small)
            return replace(schedule, single=_single(s, block))
        case SingleBlock() | RowsByBlock():
            return replace(s, block=block, single=_single(s, block))
        case FlatLoops() | DeviceScan() | SheetRows():
            return replace(s, block=block)
        case RowsByWarp():
            return s if s.shared and block > s.block else replace(s, block=block)
        case _:
            assert_never(s)


def _single(s: SingleBlock | RowsByBlock | SharedRows, block: int) -> frozenset[str]:
    """Return the loops that have a warp of their own, where there is more than one."""
    return s.single if block > WARP else frozenset()


def candidates(s: Schedule) -> list[Schedule]:
    """Return the schedules to choose from by measurement: the given one first."""
    if isinstance(s, SingleBlock) or not is_free(s):
        return [s]
    return list(dict.fromkeys([s, *(resized(s, n) for n in CHOICES)]))
