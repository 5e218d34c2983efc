"""How a kernel runs on a GPU: which threads share a pass, and where arrays lie.

The counterpart of `adarray.codegen.schedule`. The choice depends on extents, by classes: a
kernel's text holds the class alone, and so serves many extents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from adarray.codegen.functions import SIZES
from adarray.codegen.loopir import (
    Apply,
    Const,
    Expr,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Local,
    Stmt,
    Store,
    Var,
    statements,
)

WARP = 32
BLOCK = 256  # threads of a block whose groups are warps, or parts of them
LARGEST = 1024
PASSES = 16  # of a long vector loop, for each thread
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
    kind : {"flat", "rows", "alone"}
        Vector loops at the top are shared by all threads of all blocks; or groups share out
        the passes of the parallel loop; or one block does everything.
    group : int
        Threads that share a pass.
    block : int
        Threads of a block.
    shared : frozenset of str
        Local arrays and totals that lie in shared memory; the others lie in scratch memory.
    """

    kind: str
    group: int
    block: int
    shared: frozenset[str] = frozenset()


class Launch(NamedTuple):
    """Sizes of one launch: blocks, and bytes of shared and of scratch memory."""

    blocks: int
    shared: int
    scratch: int


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


_FUNCTIONS = {
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
    tops = [s for s in kernel.body if isinstance(s, For)]
    parallel = [s for s in tops if s.kind == "parallel"]
    if parallel:
        return _rows(kernel, parallel[0], ints, device)
    if is_flat(kernel.body):
        return Form("flat", BLOCK, BLOCK)
    known = _with_lets(kernel.body, ints)
    longest = max(_extents(kernel.body, known), default=1)
    group = min(max(WARP, _power(longest)), LARGEST)
    return _placed(kernel, Form("alone", group, group), known, device)


def is_flat(body: tuple[Stmt, ...]) -> bool:
    """Whether statements are vector loops that no other statement needs, and what leads there.

    Threads of different blocks cannot wait for each other, so nothing may read what a loop
    has written, or folded other than into totals.
    """
    if any(isinstance(s, Local | If) for s in body):
        return False
    loops = [s for s in body if isinstance(s, For)]
    return all(s.kind == "vector" for s in loops) and all(
        isinstance(s, For | Let | Store) for s in body
    )


def _rows(kernel: Kernel, loop: For, ints: Mapping[str, int], device: Device) -> Form:
    """Choose the number of threads for a pass of the parallel loop."""
    known = _with_lets(kernel.body, ints)
    passes = _count(loop, known) or 1
    longest = max(_extents(loop.body, _with_lets(loop.body, known)), default=1)
    if longest <= 2 or not any(isinstance(s, For) and s.kind == "vector" for s in statements(loop.body)):
        group = 1
    elif longest <= 2 * WARP:
        group = min(_power(longest), WARP)
    else:
        group = max(WARP, _power(longest // PASSES))
        # Few passes: more threads for each.
        while group < min(longest, LARGEST) and passes * group < device.processors * device.threads:
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
    for s in statements(kernel.body):
        if isinstance(s, Local) and s.size is not None:
            size = evaluate(s.size, known)
            bytes_ = None if size is None else padded(size) * SIZES[s.dtype]
            if bytes_ is not None and bytes_ * (form.block // form.group) <= room:
                room -= bytes_ * (form.block // form.group)
                shared.add(s.name)
    return form._replace(shared=frozenset(shared))


def launch_of(kernel: Kernel, form: Form, ints: Mapping[str, int], device: Device) -> Launch:
    """Return the sizes of the launch of a kernel."""
    known = _with_lets(kernel.body, ints)
    per_block = form.block // form.group
    locals_ = [s for s in statements(kernel.body) if isinstance(s, Local) and s.size is not None]
    shared = 64 * 8 + sum(
        padded(evaluate(s.size, known) or 0) * SIZES[s.dtype] * per_block
        for s in locals_
        if s.name in form.shared and s.size is not None
    )
    blocks = _blocks(kernel, form, known, device, shared)
    groups = blocks * per_block
    scratch = 64 * 4
    for t in kernel.totals:
        size = None if t.size is None else evaluate(t.size, known) or 0
        count = blocks if size is None else groups * padded(size)
        scratch += padded(count) * SIZES[t.dtype]
    for s in locals_:
        if s.name not in form.shared and s.size is not None:
            scratch += padded(evaluate(s.size, known) or 0) * groups * SIZES[s.dtype]
    return Launch(blocks, shared, scratch)


def _blocks(
    kernel: Kernel, form: Form, known: Mapping[str, int], device: Device, shared: int
) -> int:
    if form.kind == "alone":
        return 1
    loops = [s for s in kernel.body if isinstance(s, For)]
    resident = max(1, min(device.threads // form.block, device.shared // max(shared, 1)))
    if form.kind == "flat":
        counts = [_count(s, known) or 1 for s in loops]
        per_thread = 4  # a pack of 16 bytes
        wanted = -(-max(counts, default=1) // (form.block * per_thread))
        resident *= 2
    else:
        parallel = next(s for s in loops if s.kind == "parallel")
        wanted = -(-(_count(parallel, known) or 1) // (form.block // form.group))
        if any(t.size is not None for t in kernel.totals):
            resident = max(1, min(resident, GROUPS * form.group // form.block))
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
    found = (_count(s, known) for s in statements(body) if isinstance(s, For) and s.kind == "vector")
    return [n for n in found if n is not None]


def scattered(loop: For) -> list[Fold]:
    """Return the folds of a vector loop into elements that several passes may share."""
    from adarray.codegen.affine import ONE, ZERO, slope

    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    return [
        s
        for s in loop.body
        if isinstance(s, Fold)
        and s.index is not None
        and slope(s.index, loop.var, lets) not in (ONE, ZERO)
    ]
