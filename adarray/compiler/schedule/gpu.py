"""How a kernel runs on a GPU: which threads share a pass, and where arrays lie.

The counterpart of `adarray.compiler.schedule.vectors`. The choice depends on extents, by classes: a
kernel's text holds the class alone, and so serves many extents.

References
----------
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013 (a schedule beside the algorithm).
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from adarray.compiler.ir.loopir import (
    Fold,
    For,
    Kernel,
    Load,
    Local,
    Store,
    Total,
    statements,
    walk,
)
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.scalars.functions import SIZES
from adarray.compiler.schedule.extents import (
    count_of,
    counts_of,
    evaluate,
    extents_of,
    padded,
    power_of_two,
    with_lets,
)
from adarray.compiler.schedule.gpu_fetch import fetched, slots_of
from adarray.compiler.schedule.gpu_kept import kept
from adarray.compiler.schedule.gpu_loops import (
    LONG,
    PACK,
    WARP,
    across,
    arrays,
    crossing,
    folding,
    is_flat,
    is_scan,
    is_shared,
    is_sheet,
    is_whole,
    scattered,
)
from adarray.compiler.schedule.gpu_rows import held, shape_of
from adarray.compiler.schedule.gpu_tiles import SIDE, is_worth, tiled, tiles_of
from adarray.compiler.schedule.lanes import in_packs, width
from adarray.compiler.schedule.ranges import is_narrow
from adarray.compiler.schedule.vectors import expressions, longest

BLOCK = 256  # threads of a block whose groups are warps, or parts of them
LARGEST = 1024
MARCHING = 128  # threads of a block whose warps march: one for each scheduler
NARROW = 1 << 30  # where all extents are below, int32 counts passes
NEAR = 64 * 1024  # bytes of array totals that a block may have in shared memory
PASSES = 16  # of a long vector loop, for each thread
TURNS = 8  # groups of `BLOCK` threads with array totals in sheets, for each SM
TALL = 512  # passes up to which a block makes all of them for its part of array totals
TALLER = 2048  # the same where such blocks fill the SMs
PARTS = 256 * 1024  # bytes of array totals of blocks that one block folds
WORD = 4  # bytes that a thread of a sheet with array totals moves at a time
SLIM = 8  # threads that share a pass of a sheet with array totals, at least
FEW = 16  # blocks side by side below which those with array totals are as large as can be
ZEROS = 8192  # bytes of zeros at the beginning of scratch memory: numbers of blocks that are done
FETCHED = 48 * 1024  # bytes of a row from which on it is fetched before it is needed
KEPT = 16 * 1024  # the same where the last loop finds there what another one has computed
# Threads of blocks that do, how many of these reside on an SM, and bytes of the longest rows.
FETCHING = (256, 4, 32 * 1024), (512, 2, 1 << 30), (1024, 1, 1 << 30)
LONGEST = 1 << 15  # passes of a running fold, from which on all blocks share it
ITEMS = 4  # neighbouring passes of a running fold that a thread takes at a time
SHEET = 8  # passes of a vector loop for each thread of a sheet
TILES = 32  # blocks that compute tiles, for each SM
GROUPS = 64  # most groups of an SM that keep array totals of their own


class Form(NamedTuple):
    """How a kernel runs.

    Parameters
    ----------
    kind : {"flat", "rows", "sheet", "alone", "lanes", "scan", "tiles"}
        Vector loops at the top are shared by all threads of all blocks; or groups share out
        the passes of the parallel loop; or groups of several blocks share a pass, and those
        of one block take neighbouring ones; or one block does everything; or warps share out
        the passes, with local arrays in their registers (`adarray.compiler.schedule.lanes`); or all
        blocks share one loop that stores what it has folded so far, in two kernels; or blocks
        fold tiles of pairs of rows (`adarray.compiler.schedule.gpu_tiles`).
    group : int
        Threads that share a pass.
    block : int
        Threads of a block.
    shared : frozenset of str
        Local arrays that lie in shared memory; the others lie in scratch memory. Array
        totals that lie there while passes fold into them.
    narrow : bool
        Whether int32 counts the passes of every vector loop; in lanes, whether it holds
        every integer.
    single : frozenset of str
        Variables of vector loops that have one pass, such as those at borders: a warp
        of its own makes it while others go through the longer loops.
    far : bool
        Whether array totals of blocks are combined by a kernel of its own, with many blocks.
    wide : int
        Most elements of array totals that a thread of a sheet has side by side.
    short : bool
        Whether no vector loop of a pass has more passes than a group has threads.
    slots : int
        Packs of rows that a thread has in shared memory, or on the way there, as
        `adarray.compiler.schedule.gpu_fetch` says; 0 if rows are read whenever they are needed.
    kept : bool
        Whether the last loop over a row finds a value there that another one has computed, as
        `adarray.compiler.schedule.gpu_kept` says.
    lanes : int
        Columns of local arrays that each lane of a warp holds.
    packs : bool
        Whether lanes, and threads that hold rows, load and store whole packs, at multiples of
        16 bytes: the kernel must get arrays that begin so.
    turns : int
        Packs of a row that each thread of a block holds in registers, as
        `adarray.compiler.schedule.gpu_rows` says; 0 if rows are not held.
    side : int
        Blocks that then reside on an SM.
    even : bool
        Whether all threads of a block hold as many packs.
    """

    kind: str
    group: int
    block: int
    shared: frozenset[str] = frozenset()
    narrow: bool = False
    single: frozenset[str] = frozenset()
    far: bool = False
    wide: int = PACK
    short: bool = False
    slots: int = 0
    kept: bool = False
    lanes: int = 0
    packs: bool = False
    turns: int = 0
    side: int = 0
    even: bool = False


class Launch(NamedTuple):
    """Sizes of one launch: blocks, bytes of shared and of scratch memory, blocks for a pass."""

    blocks: int
    shared: int
    scratch: int
    chunks: int = 1


def form_of(kernel: Kernel, ints: Mapping[str, int], target: GpuTarget) -> Form:
    """Choose how a kernel runs with these integers."""
    counts = extents_of(kernel.body, with_lets(kernel.body, ints))
    narrow = max((*ints.values(), *counts), default=0) < NARROW
    form = _form(kernel, ints, target)._replace(narrow=narrow)
    if form.lanes:
        return form._replace(narrow=is_narrow(kernel, ints), packs=in_packs(kernel, ints))
    if form.kind in ("flat", "tiles") or (form.kind != "sheet" and form.group <= WARP):
        return form
    return form._replace(single=_single(kernel, with_lets(kernel.body, ints)))


def _single(kernel: Kernel, known: Mapping[str, int]) -> frozenset[str]:
    """Return the variables of vector loops that have one pass."""
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    names = Counter(s.var for s in loops)
    return frozenset(
        s.var
        for s in loops
        if s.kind == "vector" and names[s.var] == 1 and count_of(s, known) == 1 and not scattered(s)
    )


def _form(kernel: Kernel, ints: Mapping[str, int], target: GpuTarget) -> Form:
    tops = [s for s in kernel.body if isinstance(s, For)]
    parallel = [s for s in tops if s.kind == "parallel"]
    if parallel:
        lanes = width(kernel)
        if lanes:
            return Form("lanes", WARP, MARCHING, lanes=lanes)
        return _rows(kernel, parallel[0], ints, target)
    if is_flat(kernel.body, checks=True):
        return Form("flat", BLOCK, BLOCK)
    known = with_lets(kernel.body, ints)
    most = max(extents_of(kernel.body, known), default=1)
    if most >= LONGEST and is_scan(kernel):
        return Form("scan", BLOCK, BLOCK)
    group = min(max(WARP, power_of_two(most)), LARGEST)
    return _placed(kernel, Form("alone", group, group), known, target)


def _rows(kernel: Kernel, loop: For, ints: Mapping[str, int], target: GpuTarget) -> Form:
    """Choose the number of threads for a pass of the parallel loop."""
    pairs = tiled(kernel)
    if pairs is not None and is_worth(pairs, ints, target.sms):
        return Form("tiles", SIDE * SIDE, SIDE * SIDE)
    found = held(kernel)
    shape = None if found is None else shape_of(found, kernel, ints, target)
    if found is not None and shape is not None:
        return _holding(kernel, shape, ints, target, ints[found.stop] // found.width)
    known = with_lets(kernel.body, ints)
    passes = count_of(loop, known) or 1
    sized = [t for t in kernel.totals if t.size is not None]
    if is_sheet(loop) and all(is_whole(folding(kernel, t), t) for t in sized):
        group = crossing(loop, kernel)
        if not sized:  # short rows: several for each warp, whose threads have a pack each
            longest_ = max(extents_of(loop.body, with_lets(loop.body, known)), default=WARP)
            return Form("sheet", group or min(WARP, power_of_two(-(-longest_ // 4))), BLOCK)
        group = group or WARP
        return _columns(kernel, sized, group, passes, known, target)
    most = max(extents_of(loop.body, with_lets(loop.body, known)), default=1)
    if most <= 2 or not any(isinstance(s, For) and is_shared(s) for s in statements(loop.body)):
        group = 1
    elif most <= 2 * WARP:
        group = min(power_of_two(most), WARP)
    else:
        group = max(WARP, power_of_two(most // PASSES))
        # Few passes: more threads for each.
        while group < min(most, LARGEST) and passes * group < target.sms * target.threads_per_sm:
            group *= 2
    group = min(group, LARGEST)
    if WARP < group < 128:
        group = 128  # a block; smaller ones do not fill an SM
    block = BLOCK if group <= WARP else group
    if across(loop):  # lines side by side, few of which would fill few SMs
        group, block = 1, max(WARP, min(BLOCK, power_of_two(passes // target.sms)))
    counts = counts_of(loop.body, with_lets(loop.body, known))
    short = 1 < group <= WARP and all(n is not None and n <= group for n in counts)
    form = _placed(kernel, Form("rows", group, block, short=short), known, target)
    form = _fetching(kernel, known, target) or form
    return _merged_far(kernel, form, ints, target)


def _holding(
    kernel: Kernel, shape: tuple[int, int, int], ints: Mapping[str, int], target: GpuTarget,
    packs: int,
) -> Form:  # fmt: skip
    """Return the form in which the threads of a block hold a row of so many packs."""
    block, turns, side = shape
    even = packs == block * turns
    form = Form("rows", block, block, packs=True, turns=turns, side=side, even=even)
    return _merged_far(kernel, form, ints, target)


def _merged_far(kernel: Kernel, form: Form, ints: Mapping[str, int], target: GpuTarget) -> Form:
    """Return a form whose array totals of blocks another kernel combines, if they are large."""
    known = with_lets(kernel.body, ints)
    near = [t for t in kernel.totals if is_merged(form, t)]
    if not near:
        return form
    size = max(padded(evaluate(t.size, known) or 0) * SIZES[t.dtype] for t in near if t.size)
    return form._replace(far=launch_of(kernel, form, ints, target).blocks * size > PARTS)


def _fetching(kernel: Kernel, known: Mapping[str, int], target: GpuTarget) -> Form | None:
    """Return the form in which long rows are fetched, if there are any and a block has room."""
    found = fetched(kernel)
    start = None if found is None else evaluate(found.start, known)
    stop = None if found is None else evaluate(found.stop, known)
    if found is None or start is None or stop is None:
        return None
    # What is kept is kept in packs alone.
    keeps = (stop - start) % found.width == 0 and kept(kernel, found) is not None
    if found.others and not keeps:
        return None  # what is not fetched would be waited for by too few threads
    bytes_ = (stop - start) * found.bytes // found.width
    if bytes_ < (KEPT if keeps else FETCHED):
        return None
    for block, side, most in FETCHING:
        if block * side > target.threads_per_sm or bytes_ > most:
            continue
        form = _placed(kernel, Form("rows", block, block), known, target)
        room = (
            (target.shared_memory + 1024) // side - 1024 - _own(kernel) - _near(kernel, form, known)
        )
        form = form._replace(slots=slots_of(found, stop - start, block, room))
        if form.slots:
            return form._replace(kept=keeps)
    return None


def _columns(
    kernel: Kernel, sized: list[Total], group: int, passes: int, known: Mapping[str, int],
    target: GpuTarget,
) -> Form:  # fmt: skip
    """Choose the blocks of a sheet with array totals.

    Blocks that make all passes for few columns are best, where there are enough of them, or few
    passes: others leave parts that the last one of them folds. Threads move four bytes at a time,
    of many passes side by side: packs are slower, since a pass waits for another.
    """
    loops = [folding(kernel, t)[0] for t in sized]
    count = max((count_of(s, known) or 1 for s in loops), default=1)
    group = min(group, max(power_of_two(count), SLIM))
    wide = max(1, *(sheet_width(kernel, s) * WORD // PACK for s in loops))
    while wide > 1 and group * wide > power_of_two(count):
        wide //= 2
    chunks = -(-count // (group * wide))
    large = _is_tall(chunks, passes, target) or chunks <= FEW
    form = Form("sheet", group, min(LARGEST if large else BLOCK, target.threads_per_sm), wide=wide)
    while form.block > group and merging(kernel, form) > target.shared_memory - 1024:
        form = form._replace(block=form.block // 2)
    return form


def _is_tall(chunks: int, passes: int, target: GpuTarget) -> bool:
    """Whether one block makes all passes of a sheet for its part of array totals."""
    return passes <= (TALLER if 4 * chunks >= 3 * target.sms else TALL)


def is_merged(form: Form, t: Total) -> bool:
    """Whether blocks combine what their groups have of an array total, before others do."""
    own = form.kind == "sheet" or form.turns > 0
    return t.size is not None and (own or t.name in form.shared)


def merging(kernel: Kernel, form: Form) -> int:
    """Return the bytes of shared memory in which blocks combine array totals."""
    most = 0
    for t in kernel.totals:
        if not is_merged(form, t):
            continue
        count = form.block
        if form.kind == "sheet":
            width = min(sheet_width(kernel, folding(kernel, t)[0]), form.wide)
            count += count * (width - 1) + form.block // form.group * width
        most = max(most, padded(count) * SIZES[t.dtype])
    return most


def _placed(kernel: Kernel, form: Form, known: Mapping[str, int], target: GpuTarget) -> Form:
    """Choose which arrays lie in shared memory: those first that are declared first."""
    room, shared = target.shared_memory - _own(kernel), set()
    known = dict(known)
    totals = [t for t in kernel.totals if t.size is not None and form.kind == "rows"]
    room -= max((padded(form.block) * SIZES[t.dtype] for t in totals), default=0)
    near = min(NEAR, room)
    placed: list[Total | Local] = [*totals, *arrays(kernel)]
    for s in placed:
        assert s.size is not None
        size = evaluate(s.size, known)
        bytes_ = None if size is None else padded(size) * SIZES[s.dtype]
        most = near if isinstance(s, Total) else room
        if bytes_ is not None and bytes_ * (form.block // form.group) <= most:
            room -= bytes_ * (form.block // form.group)
            near -= bytes_ * (form.block // form.group)
            shared.add(s.name)
    return form._replace(shared=frozenset(shared))


def _own(kernel: Kernel) -> int:
    """Return more than the bytes of shared memory that a kernel's text declares: for folds."""
    loops = (s for s in statements(kernel.body) if isinstance(s, For))
    most = max((sum(isinstance(x, Fold) for x in s.body) for s in loops), default=0)
    return 512 * max(2, 1 + most)


def launch_of(kernel: Kernel, form: Form, ints: Mapping[str, int], target: GpuTarget) -> Launch:
    """Return the sizes of the launch of a kernel."""
    known = with_lets(kernel.body, ints)
    per_block = form.block // form.group
    locals_ = [] if form.lanes or form.kind == "tiles" else arrays(kernel)
    shared = _near(kernel, form, known)
    found = fetched(kernel) if form.slots else None
    if found is not None:
        shared += form.slots * form.block * found.bytes
    holds = held(kernel) if form.turns else None
    if holds is not None:
        shared += form.turns * form.block * holds.fetched
    chunks = _chunks(kernel, form, known) if form.kind == "sheet" else 1
    blocks = _blocks(kernel, form, known, target, shared, chunks)
    groups = blocks * per_block
    scratch = ZEROS
    for t in kernel.totals:
        size = None if t.size is None else evaluate(t.size, known) or 0
        each = blocks if is_merged(form, t) else groups
        count = blocks * chunks if size is None else each * padded(size)
        scratch += padded(count) * SIZES[t.dtype]
    if form.kind == "scan":  # what each block has
        scratch += padded(blocks) * 8
    for s in locals_:
        if s.name not in form.shared and s.size is not None:
            scratch += padded(evaluate(s.size, known) or 0) * groups * SIZES[s.dtype]
    return Launch(blocks, shared, scratch, chunks)


def _near(kernel: Kernel, form: Form, known: Mapping[str, int]) -> int:
    """Return the bytes of shared memory for arrays."""
    placed: list[Total | Local] = [*kernel.totals, *arrays(kernel)]
    shared = 64 * 8 + sum(
        padded(evaluate(s.size, known) or 0) * SIZES[s.dtype] * (form.block // form.group)
        for s in placed
        if s.name in form.shared and s.size is not None
    )
    return shared + merging(kernel, form)


def _chunks(kernel: Kernel, form: Form, known: Mapping[str, int]) -> int:
    """Return how many blocks of a sheet share a pass."""
    most = max(extents_of(kernel.body, known), default=1)
    chunks = min(-(-most // (form.group * SHEET)), 1024)
    for t in kernel.totals:
        if t.size is not None:  # a pack for each thread, which keeps it
            (loop,) = folding(kernel, t)
            width = min(sheet_width(kernel, loop), form.wide)
            chunks = max(chunks, -(-(count_of(loop, known) or 1) // (form.group * width)))
    return max(1, chunks)


def sheet_width(kernel: Kernel, loop: For) -> int:
    """Return how many elements of array totals a thread of a sheet has side by side."""
    passes = longest(loop, {})
    if len(loop.body) > LONG or (passes is not None and passes < 64):
        return 1
    dtypes = {b.name: b.dtype for b in kernel.buffers} | {t.name: t.dtype for t in kernel.totals}
    names = {e.buffer for s in loop.body for x in expressions(s) for e in walk(x)
             if isinstance(e, Load)}  # fmt: skip
    names |= {s.buffer for s in loop.body if isinstance(s, Store)}
    names |= {s.target for s in loop.body if isinstance(s, Fold)}
    return PACK // max((SIZES[dtypes[n]] for n in names if n in dtypes), default=PACK)


def _blocks(
    kernel: Kernel,
    form: Form,
    known: Mapping[str, int],
    target: GpuTarget,
    shared: int,
    chunks: int,
) -> int:
    if form.kind == "alone":
        return 1
    if form.kind == "tiles":
        pairs = tiled(kernel)
        assert pairs is not None
        down, across_ = tiles_of(pairs, known)
        return min(down * across_, TILES * target.sms)
    if form.kind == "scan":
        wanted = -(-max(extents_of(kernel.body, known)) // (form.block * ITEMS))
        return max(1, min(wanted, target.sms * target.threads_per_sm // form.block))
    loops = [s for s in kernel.body if isinstance(s, For)]
    resident = max(
        1, min(target.threads_per_sm // form.block, target.shared_memory // max(shared, 1))
    )
    if form.kind == "flat":
        counts = [count_of(s, known) or 1 for s in loops]
        per_thread = 4  # a pack of 16 bytes
        wanted = -(-max(counts, default=1) // (form.block * per_thread))
        # Many turns, so that SMs end together; one block folds what all have summed.
        resident *= 4 if kernel.totals else 8
    else:
        parallel = next(s for s in loops if s.kind == "parallel")
        wanted = -(-(count_of(parallel, known) or 1) // (form.block // form.group))
        sized = any(t.size is not None for t in kernel.totals)
        if sized and form.kind == "sheet":  # few blocks, since each one's totals are stored
            passes = count_of(parallel, known) or 1
            most = target.sms * TURNS * BLOCK // (form.block * chunks)
            return 1 if _is_tall(chunks, passes, target) else max(1, min(wanted, most))
        if form.turns:
            resident = form.side
        elif sized:
            resident = max(1, min(resident, GROUPS * form.group // form.block))
        elif form.kind == "sheet":
            resident = 1 << 20
        elif form.slots:
            pass  # each begins with rows that it waits for
        else:
            resident *= 4
    return max(1, min(wanted, target.sms * resident))
