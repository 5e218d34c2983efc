"""How a kernel runs on a GPU: which threads share a pass, and where arrays lie.

The counterpart of `adarray.codegen.schedule`. The choice depends on extents, by classes: a
kernel's text holds the class alone, and so serves many extents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from adarray.codegen.device_loops import (
    WARP,
    arrays,
    crossing,
    folding,
    is_flat,
    is_shared,
    is_sheet,
    is_whole,
    scattered,
)
from adarray.codegen.functions import SIZES
from adarray.codegen.loopir import (
    Apply,
    Const,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.codegen.schedule import expressions, longest

BLOCK = 256  # threads of a block whose groups are warps, or parts of them
LARGEST = 1024
PACK = 16  # bytes that one instruction moves
NARROW = 1 << 30  # where all extents are below, int32 counts passes
LONG = 100  # statements of a loop whose passes are printed once
NEAR = 64 * 1024  # bytes of array totals that a block may have in shared memory
PASSES = 16  # of a long vector loop, for each thread
TURNS = 8  # blocks of sheets with array totals, for each processor
SHEET = 8  # passes of a vector loop for each thread of a sheet
GROUPS = 64  # most groups of a processor that keep array totals of their own


class Device(NamedTuple):
    """What a schedule needs to know of a GPU.

    Parameters
    ----------
    processors : int
        Multiprocessors.
    threads : int
        The most that one multiprocessor holds.
    shared : int
        Bytes of shared memory that one block may have.
    """

    processors: int = 132
    threads: int = 2048
    shared: int = 227 * 1024


class Form(NamedTuple):
    """How a kernel runs.

    Parameters
    ----------
    kind : {"flat", "rows", "sheet", "alone"}
        Vector loops at the top are shared by all threads of all blocks; or groups share out
        the passes of the parallel loop; or groups of several blocks share a pass, and those
        of one block take neighbouring ones; or one block does everything.
    group : int
        Threads that share a pass.
    block : int
        Threads of a block.
    shared : frozenset of str
        Local arrays that lie in shared memory; the others lie in scratch memory. Array
        totals that lie there while passes fold into them.
    narrow : bool
        Whether int32 counts the passes of every vector loop.
    single : frozenset of str
        Variables of vector loops that have one pass, such as those at borders: a warp
        of its own makes it while others go through the longer loops.
    """

    kind: str
    group: int
    block: int
    shared: frozenset[str] = frozenset()
    narrow: bool = False
    single: frozenset[str] = frozenset()


class Launch(NamedTuple):
    """Sizes of one launch: blocks, bytes of shared and of scratch memory, blocks for a pass."""

    blocks: int
    shared: int
    scratch: int
    chunks: int = 1


def evaluate(expr: Expr, known: Mapping[str, int]) -> int | None:
    """Return an int64 expression of integer parameters; None if it holds anything else."""
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return known.get(expr.name)
    if not isinstance(expr, Apply):
        return None
    found = [evaluate(a, known) for a in expr.args]
    args = [a for a in found if a is not None]
    if len(args) < len(found):
        return None
    if expr.name == "where":
        return args[1] if args[0] else args[2]
    function = _FUNCTIONS.get(expr.name)
    return None if function is None else int(function(*args))


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negative": lambda a: -a,
    "floor_divide": lambda a, b: a // b if b else 0,
    "minimum": min,
    "maximum": max,
    "less": lambda a, b: a < b,
    "greater_equal": lambda a, b: a >= b,
    "cast": lambda a: a,
}


def form_of(kernel: Kernel, ints: Mapping[str, int], device: Device) -> Form:
    """Choose how a kernel runs with these integers."""
    counts = _extents(kernel.body, _with_lets(kernel.body, ints))
    narrow = max((*ints.values(), *counts), default=0) < NARROW
    form = _form(kernel, ints, device)._replace(narrow=narrow)
    if form.kind == "flat" or (form.kind != "sheet" and form.group <= WARP):
        return form
    return form._replace(single=_single(kernel, _with_lets(kernel.body, ints)))


def _single(kernel: Kernel, known: Mapping[str, int]) -> frozenset[str]:
    """Return the variables of vector loops that have one pass."""
    loops = [s for s in statements(kernel.body) if isinstance(s, For)]
    names = Counter(s.var for s in loops)
    return frozenset(
        s.var
        for s in loops
        if s.kind == "vector" and names[s.var] == 1 and _count(s, known) == 1 and not scattered(s)
    )


def _form(kernel: Kernel, ints: Mapping[str, int], device: Device) -> Form:
    tops = [s for s in kernel.body if isinstance(s, For)]
    parallel = [s for s in tops if s.kind == "parallel"]
    if parallel:
        return _rows(kernel, parallel[0], ints, device)
    if is_flat(kernel.body):
        return Form("flat", BLOCK, BLOCK)
    known = _with_lets(kernel.body, ints)
    most = max(_extents(kernel.body, known), default=1)
    group = min(max(WARP, _power(most)), LARGEST)
    return _placed(kernel, Form("alone", group, group), known, device)


def _rows(kernel: Kernel, loop: For, ints: Mapping[str, int], device: Device) -> Form:
    """Choose the number of threads for a pass of the parallel loop."""
    known = _with_lets(kernel.body, ints)
    passes = _count(loop, known) or 1
    sized = [t for t in kernel.totals if t.size is not None]
    if is_sheet(loop) and all(is_whole(folding(kernel, t), t) for t in sized):
        return Form("sheet", crossing(loop, kernel) or WARP, BLOCK)
    most = max(_extents(loop.body, _with_lets(loop.body, known)), default=1)
    if most <= 2 or not any(isinstance(s, For) and is_shared(s) for s in statements(loop.body)):
        group = 1
    elif most <= 2 * WARP:
        group = min(_power(most), WARP)
    else:
        group = max(WARP, _power(most // PASSES))
        # Few passes: more threads for each.
        while group < min(most, LARGEST) and passes * group < device.processors * device.threads:
            group *= 2
    group = min(group, LARGEST)
    if WARP < group < 128:
        group = 128  # a block; smaller ones do not fill a multiprocessor
    block = BLOCK if group <= WARP else group
    return _placed(kernel, Form("rows", group, block), known, device)


def _placed(kernel: Kernel, form: Form, known: Mapping[str, int], device: Device) -> Form:
    """Choose which arrays lie in shared memory: those first that are declared first."""
    room, shared = device.shared - 1024, set()
    known = dict(known)
    totals = [t for t in kernel.totals if t.size is not None and form.kind == "rows"]
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


def launch_of(kernel: Kernel, form: Form, ints: Mapping[str, int], device: Device) -> Launch:
    """Return the sizes of the launch of a kernel."""
    known = _with_lets(kernel.body, ints)
    per_block = form.block // form.group
    locals_ = arrays(kernel)
    placed: list[Total | Local] = [*kernel.totals, *locals_]
    shared = 64 * 8 + sum(
        padded(evaluate(s.size, known) or 0) * SIZES[s.dtype] * per_block
        for s in placed
        if s.name in form.shared and s.size is not None
    )
    chunks = _chunks(kernel, form, known) if form.kind == "sheet" else 1
    blocks = _blocks(kernel, form, known, device, shared, chunks)
    groups = blocks * per_block
    scratch = 64 * 4
    for t in kernel.totals:
        size = None if t.size is None else evaluate(t.size, known) or 0
        count = blocks * chunks if size is None else groups * padded(size)
        scratch += padded(count) * SIZES[t.dtype]
    for s in locals_:
        if s.name not in form.shared and s.size is not None:
            scratch += padded(evaluate(s.size, known) or 0) * groups * SIZES[s.dtype]
    return Launch(blocks, shared, scratch, chunks)


def _chunks(kernel: Kernel, form: Form, known: Mapping[str, int]) -> int:
    """Return how many blocks of a sheet share a pass."""
    most = max(_extents(kernel.body, known), default=1)
    chunks = min(-(-most // (form.group * SHEET)), 1024)
    for t in kernel.totals:
        if t.size is not None:  # a pack for each thread, which keeps it
            (loop,) = folding(kernel, t)
            width = sheet_width(kernel, loop)
            chunks = max(chunks, -(-(_count(loop, known) or 1) // (form.group * width)))
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
    kernel: Kernel, form: Form, known: Mapping[str, int], device: Device, shared: int, chunks: int
) -> int:
    if form.kind == "alone":
        return 1
    loops = [s for s in kernel.body if isinstance(s, For)]
    resident = max(1, min(device.threads // form.block, device.shared // max(shared, 1)))
    if form.kind == "flat":
        counts = [_count(s, known) or 1 for s in loops]
        per_thread = 4  # a pack of 16 bytes
        wanted = -(-max(counts, default=1) // (form.block * per_thread))
        # Many turns, so that multiprocessors end together; one block folds what all have summed.
        resident *= 4 if kernel.totals else 8
    else:
        parallel = next(s for s in loops if s.kind == "parallel")
        wanted = -(-(_count(parallel, known) or 1) // (form.block // form.group))
        sized = any(t.size is not None for t in kernel.totals)
        if sized and form.kind == "sheet":  # few groups, since each one's totals are stored
            return max(1, min(wanted, -(-device.processors * TURNS // chunks)))
        if sized:
            resident = max(1, min(resident, GROUPS * form.group // form.block))
        elif form.kind == "sheet":
            resident = 1 << 20
        else:
            resident *= 4
    return max(1, min(wanted, device.processors * resident))


def padded(count: int) -> int:
    """Return `count` rounded up to a multiple of 64."""
    return (count + 63) // 64 * 64


def _power(count: int) -> int:
    """Return the least power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def _with_lets(body: tuple[Stmt, ...], known: Mapping[str, int]) -> dict[str, int]:
    """Return the integers, and the names that statements bind to values of them."""
    found = dict(known)
    for s in body:
        if isinstance(s, Let) and s.value.dtype == "int64":
            value = evaluate(s.value, found)
            if value is not None:
                found[s.name] = value
    return found


def _count(loop: For, known: Mapping[str, int]) -> int | None:
    start, stop = evaluate(loop.start, known), evaluate(loop.stop, known)
    return None if start is None or stop is None else max(0, stop - start)


def _extents(body: tuple[Stmt, ...], known: Mapping[str, int]) -> list[int]:
    """Return the lengths of the vector loops in statements, of those that can be told."""
    found = (_count(s, known) for s in statements(body) if isinstance(s, For) and is_shared(s))
    return [n for n in found if n is not None]
