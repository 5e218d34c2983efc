"""Sizes of launches: one function for each schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, assert_never

from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.extents import evaluate, padded
from adarray.compiler.schedule.gpu.memory import array_bytes, has_arrays, is_merged, shared_names
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
from adarray.compiler.schedule.gpu.tiles import tiles_of

ZEROS = 8192  # bytes of zeros at the beginning of the workspace: numbers of blocks that are done
PACK = 4  # iterations of a flat loop that a thread makes at a time
SHEET = 8  # iterations of a vector loop for each thread of a sheet
MERGE = 1024  # threads of a block that combines array totals
COLUMNS = 32  # elements that it combines, and such blocks for each SM at most
MERGING = 8
MOST_CHUNKS = 1024  # blocks that share a row of a sheet
SHEET_THREADS = 2048  # of blocks with array totals in sheets, for each SM
TALL = 512  # rows up to which a block takes all of them for its part of array totals
TALLER = 2048  # the same where such blocks fill the SMs
ITEMS = 4  # neighbouring iterations of a running fold that a thread takes at a time
TILES = 32  # blocks that compute tiles, for each SM
GROUPS = 64  # most groups of an SM that have array totals of their own
# Numbers of all blocks up to which the last block folds each by itself; of more, a warp each.
FEW_NUMBERS = 4
ENDS = 8  # most blocks for each SM where a warp folds what they have
WAIT_LITTLE = 4  # blocks for each that resides: so that SMs end together
WAIT_LESS = 8  # the same where no block has totals to combine


class LaunchSizes(NamedTuple):
    """Blocks of a launch, bytes of shared memory and of the workspace, and blocks for a row."""

    blocks: int
    shared: int
    workspace: int
    chunks: int = 1


class Grid(NamedTuple):
    """Blocks of one kernel of a launch, threads of each, and bytes of shared memory."""

    blocks: tuple[int, int, int]
    threads: int
    shared: int


def grids(s: Schedule, launch: LaunchSizes, target: GpuTarget) -> Mapping[str, Grid]:
    """Return the grids of the kernels that a schedule may be printed as, by their names' ends.

    Those are the first one, ``""``; the second one of a scan; the one that combines array totals,
    which has memory of its own, too much beside the first one's; and what stands behind the
    parallel loop.
    """
    first = Grid((launch.blocks, launch.chunks, 1), s.block, launch.shared)
    sizes = [evaluate(t.size, s.facts.known) or 0 for t in s.facts.sized if t.size is not None]
    columns = max(1, min(-(-max(sizes, default=0) // COLUMNS), MERGING * target.sms))
    return {
        "": first,
        "_scan": first,
        "_merge": Grid((columns, len(sizes) if isinstance(s, ColumnFolds) else 1, 1), MERGE, 0),
        "_after": Grid((1, 1, 1), s.block, 0),
    }


def launch_of(s: Schedule, target: GpuTarget) -> LaunchSizes:
    """Return the sizes of the launch of a kernel that runs by a schedule."""
    match s:
        case FlatLoops():
            return _flat(s, target)
        case SingleBlock():
            return _launch(s, 1, array_bytes(s))
        case DeviceScan():
            return _scan(s, target)
        case RowsByWarp() | RowsByBlock():
            return _rows(s, target)
        case SharedRows():
            return _shared_rows(s, target)
        case RegisterRows():
            return _register_rows(s, target)
        case SheetRows():
            return _sheet(s, target)
        case ColumnStrips():
            return _strips(s, target)
        case Tiles():
            return _tiles(s, target)
        case ColumnFolds():
            return _column_folds(s)
        case _:
            assert_never(s)


def _launch(s: Schedule, blocks: int, shared: int, chunks: int = 1) -> LaunchSizes:
    """Return a launch of so many blocks, with the workspace that their totals and arrays take."""
    facts, groups = s.facts, blocks * (s.block // s.group)
    workspace = ZEROS
    for t in facts.kernel.totals:
        size = None if t.size is None else evaluate(t.size, facts.known) or 0
        each = blocks if is_merged(s, t) else groups
        count = blocks * chunks if size is None else each * padded(size)
        workspace += padded(count) * SIZES[t.dtype]
    if has_arrays(s):
        near = shared_names(s)
        workspace += sum(
            (facts.bytes_of(x) or 0) * groups for x in facts.arrays if x.name not in near
        )
    return LaunchSizes(blocks, shared, workspace, chunks)


def _resident(s: Schedule, shared: int, target: GpuTarget) -> int:
    """Return how many blocks reside on an SM, as far as threads and shared memory allow."""
    return max(1, min(target.threads_per_sm // s.block, target.shared_memory // max(shared, 1)))


def _most_blocks(s: Schedule, waves: int, shared: int, target: GpuTarget) -> int:
    """Return the most blocks of a launch, so many for each that resides; fewer with many totals."""
    most = _resident(s, shared, target) * waves
    numbers = sum(t.size is None for t in s.facts.kernel.totals)
    return target.sms * (min(most, ENDS) if numbers > FEW_NUMBERS else most)


def _over_rows(s: Schedule, resident: int, target: GpuTarget) -> int:
    """Return the blocks that share out rows, so many on each SM."""
    wanted = -(-s.facts.rows // (s.block // s.group))
    return max(1, min(wanted, target.sms * resident))


def _flat(s: FlatLoops, target: GpuTarget) -> LaunchSizes:
    facts, shared = s.facts, array_bytes(s)
    wanted = -(-max(map(facts.count, facts.tops), default=1) // (s.block * PACK))
    # Many waves, so that SMs end together; one block folds what all have summed.
    waves = WAIT_LITTLE if facts.kernel.totals else WAIT_LESS
    return _launch(s, max(1, min(wanted, _most_blocks(s, waves, shared, target))), shared)


def _scan(s: DeviceScan, target: GpuTarget) -> LaunchSizes:
    wanted = -(-max(s.facts.extents) // (s.block * ITEMS))
    blocks = max(1, min(wanted, target.sms * target.threads_per_sm // s.block))
    launch = _launch(s, blocks, array_bytes(s))
    return launch._replace(workspace=launch.workspace + padded(blocks) * 8)  # what each block has


def _rows(s: RowsByWarp | RowsByBlock, target: GpuTarget) -> LaunchSizes:
    shared = array_bytes(s)
    resident = _resident(s, shared, target)
    if s.facts.sized:
        resident = max(1, min(resident, GROUPS * s.group // s.block))
    else:
        resident = _most_blocks(s, WAIT_LITTLE, shared, target) // target.sms
    return _launch(s, _over_rows(s, resident, target), shared)


def _shared_rows(s: SharedRows, target: GpuTarget) -> LaunchSizes:
    shared = array_bytes(s) + s.slots * s.block * s.rows.bytes
    resident = _resident(s, shared, target)  # each begins with rows that it waits for
    if s.facts.sized:
        resident = max(1, min(resident, GROUPS * s.group // s.block))
    return _launch(s, _over_rows(s, resident, target), shared)


def _register_rows(s: RegisterRows, target: GpuTarget) -> LaunchSizes:
    shared = array_bytes(s) + s.packs * s.block * s.rows.fetched
    return _launch(s, _over_rows(s, s.resident, target), shared)


def _sheet(s: SheetRows, target: GpuTarget) -> LaunchSizes:
    facts, shared = s.facts, array_bytes(s)
    chunks = min(-(-max(facts.extents, default=1) // (s.group * SHEET)), MOST_CHUNKS)
    for t in facts.sized:  # a pack for each thread, which stays there
        (loop,) = facts.folding[t.name]
        chunks = max(chunks, -(-facts.count(loop) // (s.group * s.total_width(t))))
    chunks = max(1, chunks)
    wanted = -(-facts.rows // (s.block // s.group))
    most = target.sms << 20
    if facts.sized:  # few blocks, since each one's totals are stored
        most = target.sms * SHEET_THREADS // (s.block * chunks)
        most = 1 if is_tall(chunks, facts.rows, target) else most
    elif facts.kernel.totals:  # one block folds what all have summed
        most = _most_blocks(s, WAIT_LITTLE, shared, target) // chunks
    return _launch(s, max(1, min(wanted, most)), shared, chunks)


def is_tall(chunks: int, rows: int, target: GpuTarget) -> bool:
    """Whether one block takes all rows of a sheet for its part of array totals."""
    return rows <= (TALLER if 4 * chunks >= 3 * target.sms else TALL)


def _strips(s: ColumnStrips, target: GpuTarget) -> LaunchSizes:
    shared = array_bytes(s)
    resident = _resident(s, shared, target) * WAIT_LITTLE
    return _launch(s, _over_rows(s, resident, target), shared)


def _tiles(s: Tiles, target: GpuTarget) -> LaunchSizes:
    down, across = tiles_of(s.pairs, s.facts.known)
    return _launch(s, min(down * across, TILES * target.sms), array_bytes(s))


def _column_folds(s: ColumnFolds) -> LaunchSizes:
    strips = -(-s.facts.count(s.pairs.across) // (s.threads * s.width))
    return _launch(s, s.blocks, array_bytes(s), strips)
