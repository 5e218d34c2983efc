"""The choice of a schedule for a kernel and its integers.

It depends on extents by classes: a kernel's text holds the class alone, and so serves many extents.

References
----------
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013 (a schedule beside the algorithm).
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from adarray.compiler.ir.loopir import For, Kernel, Total, statements
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.schedule.extents import count_of, evaluate, power_of_two
from adarray.compiler.schedule.gpu.facts import KernelFacts
from adarray.compiler.schedule.gpu.launch import is_tall, launch_of
from adarray.compiler.schedule.gpu.loops import (
    PACK,
    WARP,
    across,
    crossed,
    crossing,
    is_shared,
    scattered,
)
from adarray.compiler.schedule.gpu.memory import (
    fold_bytes,
    is_merged,
    merge_bytes,
    near_bytes,
    placed,
)
from adarray.compiler.schedule.gpu.pair_columns import FEWEST_ROWS, column_shape
from adarray.compiler.schedule.gpu.register_rows import shape_of
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
from adarray.compiler.schedule.gpu.shared_rows import slots_of
from adarray.compiler.schedule.gpu.tiles import SIDE, is_worth

BLOCK = 256  # threads of a block whose groups are warps, or parts of them
LARGEST = 1024
MARCHING = 128  # threads of a block whose warps march: one for each scheduler
# Folds and values of a loop from which on threads of larger blocks have too few registers for them.
FOLDS, VALUES = 8, 128
FEWEST = 128  # threads of a block that takes rows; smaller ones do not fill an SM
AT_ONCE = 8  # iterations that a thread begins together, at most
EACH = 4  # iterations of a short vector loop, for each thread if there are rows enough
ITERATIONS = 16  # of a long vector loop, for each thread
PARTS = 256  # bytes of array totals of blocks that each thread of one block folds
WORD = 4  # bytes that a thread of a sheet with array totals moves at a time
SLIM = 8  # threads that share a row of a sheet with array totals, at least
FEW = 16  # blocks side by side below which those with array totals are as large as can be
FETCHED = 48 * 1024  # bytes of a row from which on it is fetched before it is needed
REPLACED = 16 * 1024  # the same where the last loop finds there what another one has computed
# Threads of blocks that do, how many of these reside on an SM, and bytes of the longest rows.
FETCHING = (256, 4, 32 * 1024), (512, 2, 1 << 30), (1024, 1, 1 << 30)
# Running folds across the rows of an array from which on a thread takes a line, as far as the next
# thread's: it waits for memory some 60 ns for each element. A block that shares a line moves eight
# times the bytes, out of the cache mostly, and as many threads as there are wait.
LINES = 1024
# Threads of an SM from which on groups share rows that lie side by side: fewer would wait longer.
SIDE_BY_SIDE = 64
LONGEST = 1 << 15  # iterations of a running fold, from which on all blocks share it


def schedule_of(kernel: Kernel, ints: Mapping[str, int], target: GpuTarget) -> Schedule:
    """Return how a kernel runs with these integers."""
    facts = KernelFacts(kernel, ints)
    return replace(
        _schedule(facts, target),
        small=facts.is_narrow,
        apart=facts.apart,
        ragged=facts.is_ragged,
    )


def _schedule(facts: KernelFacts, target: GpuTarget) -> Schedule:
    """Choose how a kernel runs."""
    if facts.parallel is not None:
        return _parallel(facts, facts.parallel, target)
    narrow = facts.fits_int32
    if facts.is_flat:
        return FlatLoops(facts, BLOCK, narrow)
    most = max(facts.extents, default=1)
    if most >= LONGEST and facts.is_scan:
        return DeviceScan(facts, BLOCK, narrow)
    block = min(max(WARP, power_of_two(most)), LARGEST)
    shared = placed(facts, block, block, target.shared_memory, totals=False)
    return SingleBlock(facts, block, narrow, shared, _single(facts) if block > WARP else _NONE)


_NONE: frozenset[str] = frozenset()


def _single(facts: KernelFacts) -> frozenset[str]:
    """Return the variables of vector loops of one iteration, such as those at borders.

    A warp of its own makes it while others go through the longer loops.
    """
    loops = [s for s in statements(facts.kernel.body) if isinstance(s, For)]
    names = Counter(s.var for s in loops)
    return frozenset(
        s.var
        for s in loops
        if s.kind == "vector"
        and names[s.var] == 1
        and count_of(s, facts.known) == 1
        and not scattered(s)
    )


def _parallel(facts: KernelFacts, loop: For, target: GpuTarget) -> Schedule:
    """Choose how a kernel with a parallel loop runs."""
    if facts.strip_columns:
        marching = any(isinstance(s, For) and s.kind == "serial" for s in loop.body)
        return ColumnStrips(
            facts, MARCHING, facts.is_narrow, facts.strip_columns, facts.strip_packs, marching
        )
    if facts.pairs is not None and is_worth(facts.pairs, facts.ints, target.sms):
        return Tiles(facts, SIDE * SIDE, facts.fits_int32, facts.pairs)
    return (
        _column_folds(facts, target)
        or _register_rows(facts, target)
        or (_sheet(facts, loop, target) if facts.is_sheet else None)
        or _rows(facts, loop, target)
    )


def _column_folds(facts: KernelFacts, target: GpuTarget) -> ColumnFolds | None:
    """Return the schedule that folds pairs over rows, if rows fit in shared memory."""
    pairs = facts.pair_columns
    if pairs is None or facts.rows < FEWEST_ROWS:
        return None
    shape = column_shape(pairs, facts.rows, facts.count(pairs.across), target)
    if shape is None:
        return None
    return ColumnFolds(
        facts, WARP * shape.warps, facts.fits_int32, pairs, shape.width, shape.threads,
        shape.blocks > 1, shape.blocks,
    )  # fmt: skip


def _register_rows(facts: KernelFacts, target: GpuTarget) -> RegisterRows | None:
    """Return the schedule with rows in registers, if there is room for them."""
    rows = facts.resident
    shape = None if rows is None else shape_of(rows, facts.kernel, facts.ints, target)
    if rows is None or shape is None:
        return None
    block, packs, resident = shape
    even = facts.ints[rows.stop] // rows.width == block * packs
    schedule = RegisterRows(facts, block, facts.fits_int32, rows, packs, even, resident)
    return replace(schedule, far=_is_far(schedule, target))


def _is_far(s: RowsByWarp | RowsByBlock | SharedRows | RegisterRows, target: GpuTarget) -> bool:
    """Whether array totals of blocks are so large that a kernel of its own combines them."""
    near = [t for t in s.facts.sized if is_merged(s, t)]
    size = max((s.facts.bytes_of(t) or 0 for t in near), default=0)
    return bool(near) and launch_of(s, target).blocks * size > PARTS * s.block


def _rows(facts: KernelFacts, loop: For, target: GpuTarget) -> Schedule:
    """Choose the number of threads for an iteration of the parallel loop."""
    group = _threads_of_row(facts, loop, target)
    if group > WARP:
        schedule: RowsByWarp | RowsByBlock | SharedRows = RowsByBlock(
            facts, group, facts.fits_int32, placed(facts, group, group, target.shared_memory)
        )
    else:
        block = BLOCK
        if group == 1 and across(loop):  # lines side by side, few of which would fill few SMs
            group, block = 1, max(WARP, min(BLOCK, power_of_two(facts.rows // target.sms)))
        each = group > 1 and all(n is not None and n <= group for n in facts.inner)
        shared = placed(facts, block, group, target.shared_memory)
        at_once = 0 if each else _at_once(facts, group)
        schedule = RowsByWarp(
            facts, block, facts.fits_int32, group, shared, one_each=each, at_once=at_once
        )
    schedule = _shared_rows(facts, target) or schedule
    if not isinstance(schedule, RowsByWarp):
        schedule = replace(schedule, single=_single(facts))
    return replace(schedule, far=_is_far(schedule, target))


def _at_once(facts: KernelFacts, group: int) -> int:
    """Return how many iterations of a short row each of its threads begins at once.

    It would wait for memory in each of them. So does a thread with a row of its own, however long
    that is: nobody takes packs beside it.
    """
    most = facts.longest_inner or 1
    if group > 1 and (most < group or most > 2 * WARP):
        return 0
    # What some threads have and others have not is a loop of its own.
    return min(AT_ONCE, most // group)


def _threads_of_row(facts: KernelFacts, loop: For, target: GpuTarget) -> int:
    """Return how many threads share a row."""
    most = 1 if facts.longest_inner is None else facts.longest_inner
    if most <= 2 or not any(isinstance(s, For) and is_shared(s) for s in statements(loop.body)):
        return 1
    if across(loop) and (facts.rows >= LINES or most <= 2 * WARP):
        return 1
    side_by_side = 0 if facts.arrays or facts.sized else crossed(loop, facts.kernel)
    if side_by_side and facts.rows * side_by_side >= target.sms * SIDE_BY_SIDE:
        return 1 if facts.rows >= target.sms * target.threads_per_sm // 4 else side_by_side
    if most <= 2 * WARP:
        each = 1 if facts.arrays or facts.sized else EACH  # groups have their own
        group = min(power_of_two(-(-most // each)), WARP)
        while group < min(most, WARP) and facts.rows * group < target.sms * target.threads_per_sm:
            group *= 2
        return group
    group = max(WARP, power_of_two(most // ITERATIONS))
    # Few rows: more threads for each.
    while group < min(most, LARGEST) and facts.rows * group < target.sms * target.threads_per_sm:
        group *= 2
    heavy = facts.most_folds >= FOLDS or facts.most_values >= VALUES
    heavy &= 4 * facts.rows * BLOCK >= target.sms * target.threads_per_sm
    group = min(group, BLOCK if heavy else LARGEST)
    return max(group, FEWEST) if group > WARP else group


def _shared_rows(facts: KernelFacts, target: GpuTarget) -> SharedRows | None:
    """Return the schedule that fetches long rows, if there are any and a block has room."""
    fetched = facts.fetched
    start = None if fetched is None else evaluate(fetched.start, facts.known)
    stop = None if fetched is None else evaluate(fetched.stop, facts.known)
    if fetched is None or start is None or stop is None:
        return None
    # What replaces a row is stored in packs alone.
    replaces = (stop - start) % fetched.width == 0 and facts.replacing is not None
    if fetched.others and not replaces:
        return None  # what is not fetched would be waited for by too few threads
    bytes_ = (stop - start) * fetched.bytes // fetched.width
    if bytes_ < (REPLACED if replaces else FETCHED):
        return None
    for block, resident, most in FETCHING:
        if block * resident > target.threads_per_sm or bytes_ > most:
            continue
        shared = placed(facts, block, block, target.shared_memory)
        schedule = SharedRows(facts, block, facts.fits_int32, fetched, 0, replaces, shared)
        room = (target.shared_memory + 1024) // resident - 1024 - fold_bytes(facts)
        room -= near_bytes(facts, shared, 1) + merge_bytes(schedule)
        slots = slots_of(fetched, stop - start, block, room)
        if slots:
            return replace(schedule, slots=slots)
    return None


def _sheet(facts: KernelFacts, loop: For, target: GpuTarget) -> SheetRows:
    """Choose the threads of a sheet."""
    group = crossing(loop, facts.kernel)
    if facts.sized:
        schedule = _columns(facts, facts.sized, group or WARP, target)
    else:  # short rows: several for each warp, whose threads have a pack each
        longest = WARP if facts.longest_inner is None else facts.longest_inner
        group = group or min(WARP, power_of_two(-(-longest // 4)))
        schedule = SheetRows(facts, BLOCK, facts.fits_int32, group, PACK)
    return replace(schedule, single=_single(facts))


def _columns(facts: KernelFacts, sized: list[Total], group: int, target: GpuTarget) -> SheetRows:
    """Choose the blocks of a sheet with array totals.

    Blocks that take all rows for few columns are best, where there are enough of them, or few
    rows: others leave parts that the last one of them folds. Threads move four bytes at a time,
    of many rows side by side: packs are slower, since a row waits for another.
    """
    count = max((facts.count(facts.folding[t.name][0]) for t in sized), default=1)
    group = min(group, max(power_of_two(count), SLIM))
    width = max(1, *(facts.total_widths[t.name] * WORD // PACK for t in sized))
    while width > 1 and group * width > power_of_two(count):
        width //= 2
    chunks = -(-count // (group * width))
    large = is_tall(chunks, facts.rows, target) or chunks <= FEW
    block = min(LARGEST if large else BLOCK, target.threads_per_sm)
    schedule = SheetRows(facts, block, facts.fits_int32, group, width)
    while schedule.block > group and merge_bytes(schedule) > target.shared_memory - 1024:
        schedule = replace(schedule, block=schedule.block // 2)
    return schedule
