"""What blocks have in shared memory: local arrays, array totals, and parts of totals."""

from __future__ import annotations

from collections.abc import Set
from typing import assert_never

from adarray.compiler.ir.loopir import Local, Total
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.extents import padded
from adarray.compiler.schedule.gpu.facts import KernelFacts
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

ROOMS = 64 * 8  # bytes in front of what schedules place
NEAR = 64 * 1024  # bytes of array totals that a block may have in shared memory


def shared_names(s: Schedule) -> frozenset[str]:
    """Return the local arrays and array totals that lie in shared memory."""
    match s:
        case SingleBlock() | RowsByWarp() | RowsByBlock() | SharedRows():
            return s.shared
        case (
            FlatLoops()
            | DeviceScan()
            | RegisterRows()
            | SheetRows()
            | ColumnStrips()
            | Tiles()
            | ColumnFolds()
        ):
            return frozenset()
        case _:
            assert_never(s)


def has_arrays(s: Schedule) -> bool:
    """Whether local arrays lie in shared memory or in the workspace, and not in registers."""
    match s:
        case ColumnStrips() | Tiles() | ColumnFolds():
            return False
        case (
            FlatLoops()
            | SingleBlock()
            | DeviceScan()
            | RowsByWarp()
            | RowsByBlock()
            | SharedRows()
            | RegisterRows()
            | SheetRows()
        ):
            return True
        case _:
            assert_never(s)


def is_merged(s: Schedule, t: Total) -> bool:
    """Whether blocks combine what their groups have of an array total, before others do."""
    if t.size is None:
        return False
    match s:
        case SheetRows() | RegisterRows() | ColumnFolds():  # where it is in registers
            return True
        case SingleBlock() | RowsByWarp() | RowsByBlock() | SharedRows():
            return t.name in s.shared
        case FlatLoops() | DeviceScan() | ColumnStrips() | Tiles():
            return False
        case _:
            assert_never(s)


def merge_bytes(s: Schedule) -> int:
    """Return the bytes of shared memory in which blocks combine array totals."""
    most = 0
    for t in s.facts.sized:
        if not is_merged(s, t):
            continue
        count = s.block
        if isinstance(s, SheetRows):
            width = s.total_width(t)
            count += count * (width - 1) + s.block // s.group * width
        elif isinstance(s, ColumnFolds):
            count *= s.width
        most = max(most, padded(count) * SIZES[t.dtype])
    return most


def array_bytes(s: Schedule) -> int:
    """Return the bytes of shared memory for arrays, and for combining array totals."""
    return near_bytes(s.facts, shared_names(s), s.block // s.group) + merge_bytes(s)


def near_bytes(facts: KernelFacts, shared: Set[str], groups: int) -> int:
    """Return the bytes of shared memory for the arrays of so many groups."""
    placed: list[Total | Local] = [*facts.kernel.totals, *facts.arrays]
    return ROOMS + sum((facts.bytes_of(x) or 0) * groups for x in placed if x.name in shared)


def fold_bytes(facts: KernelFacts) -> int:
    """Return more than the bytes of shared memory that a kernel's text declares: for folds."""
    numbers = sum(t.size is None for t in facts.kernel.totals)
    return 512 * max(2, 1 + facts.most_folds) + 256 * numbers


def placed(
    facts: KernelFacts, block: int, group: int, room: int, totals: bool = True
) -> frozenset[str]:
    """Return which arrays lie in shared memory: those first that are declared first.

    Parameters
    ----------
    facts : KernelFacts
    block, group : int
        Threads of a block, and of those that share a row.
    room : int
        Bytes of shared memory that a block may have.
    totals : bool
        Whether array totals may lie there.
    """
    shared: set[str] = set()
    sized = facts.sized if totals else []
    room -= fold_bytes(facts)
    room -= max((padded(block) * SIZES[t.dtype] for t in sized), default=0)
    near, groups = min(NEAR, room), block // group
    things: list[Total | Local] = [*sized, *facts.arrays]
    for x in things:
        bytes_ = facts.bytes_of(x)
        most = near if isinstance(x, Total) else room
        if bytes_ is not None and bytes_ * groups <= most:
            room -= bytes_ * groups
            near -= bytes_ * groups
            shared.add(x.name)
    return frozenset(shared)
