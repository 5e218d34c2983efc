"""How a kernel runs on a GPU: which threads share a pass, and where arrays lie.

The counterpart of `adarray.codegen.schedule`. The choice depends on extents, by classes: a
kernel's text holds the class alone, and so serves many extents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from adarray.codegen.affine import ONE, ZERO, at, slope
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
    Load,
    Local,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.codegen.schedule import expressions

WARP = 32
BLOCK = 256  # threads of a block whose groups are warps, or parts of them
LARGEST = 1024
PACK = 16  # bytes that one instruction moves
NARROW = 1 << 30  # where all extents are below, int32 counts passes
PASSES = 16  # of a long vector loop, for each thread
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
        Local arrays that lie in shared memory; the others lie in scratch memory.
    narrow : bool
        Whether int32 counts the passes of every vector loop.
    """

    kind: str
    group: int
    block: int
    shared: frozenset[str] = frozenset()
    narrow: bool = False


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
    return _form(kernel, ints, device)._replace(narrow=narrow)


def _form(kernel: Kernel, ints: Mapping[str, int], device: Device) -> Form:
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
    simple = all(isinstance(s, For | Let | Store) for s in body)
    return simple and all(s.kind == "vector" for s in loops) and not _reads_its_own(body)


def _reads_its_own(body: tuple[Stmt, ...]) -> bool:
    """Whether statements load from memory that they write."""
    found = list(statements(body))
    written = {s.buffer for s in found if isinstance(s, Store)}
    loads = (e for s in found for root in expressions(s) for e in walk(root))
    return any(isinstance(e, Load) and e.buffer in written for e in loads)


def _rows(kernel: Kernel, loop: For, ints: Mapping[str, int], device: Device) -> Form:
    """Choose the number of threads for a pass of the parallel loop."""
    known = _with_lets(kernel.body, ints)
    passes = _count(loop, known) or 1
    sized = [t for t in kernel.totals if t.size is not None]
    if _is_sheet(loop) and all(_whole(folding(kernel, t)) for t in sized):
        return Form("sheet", WARP, BLOCK)
    longest = max(_extents(loop.body, _with_lets(loop.body, known)), default=1)
    if longest <= 2 or not any(
        isinstance(s, For) and s.kind == "vector" for s in statements(loop.body)
    ):
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


def _is_sheet(loop: For) -> bool:
    """Whether the passes of the vector loops in a parallel loop need nothing of each other."""
    inner = [s for s in loop.body if isinstance(s, For)]
    lets = all(isinstance(s, For | Let | Store) for s in loop.body)
    if not inner or not lets or any(s.kind != "vector" for s in inner):
        return False
    # Scalars that are folded into are totals.
    return not any(scattered(s) for s in inner) and not _reads_its_own(loop.body)


def _placed(kernel: Kernel, form: Form, known: Mapping[str, int], device: Device) -> Form:
    """Choose which arrays lie in shared memory: those first that are declared first."""
    room, shared = device.shared - 1024, set()
    known = dict(known)
    for s in arrays(kernel):
        assert s.size is not None
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
    locals_ = arrays(kernel)
    shared = 64 * 8 + sum(
        padded(evaluate(s.size, known) or 0) * SIZES[s.dtype] * per_block
        for s in locals_
        if s.name in form.shared and s.size is not None
    )
    blocks = _blocks(kernel, form, known, device, shared)
    groups = blocks * per_block
    chunks = 1
    if form.kind == "sheet":
        longest = max(_extents(kernel.body, known), default=1)
        chunks = min(max(1, longest // (WARP * SHEET)), 1024)
    scratch = 64 * 4
    for t in kernel.totals:
        size = None if t.size is None else evaluate(t.size, known) or 0
        count = blocks * chunks if size is None else groups * padded(size)
        scratch += padded(count) * SIZES[t.dtype]
    for s in locals_:
        if s.name not in form.shared and s.size is not None:
            scratch += padded(evaluate(s.size, known) or 0) * groups * SIZES[s.dtype]
    return Launch(blocks, shared, scratch, chunks)


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
        elif form.kind == "sheet":
            resident = 1 << 20
        else:
            resident *= 4
    return max(1, min(wanted, device.processors * resident))


def arrays(kernel: Kernel) -> list[Local]:
    """Return the local arrays that have memory of their own, see `homes`."""
    where = homes(kernel)
    found = (s for s in statements(kernel.body) if isinstance(s, Local) and s.size is not None)
    return [s for s in found if where[s.name] == s.name]


def homes(kernel: Kernel) -> dict[str, str]:
    """Return for each local array the one whose memory it takes: mostly itself.

    One that is no longer used gives its memory to the next one of the same size, from the
    loop on that reads it for the last time, if each pass writes only where it reads.
    """
    found: dict[str, str] = {}
    bodies = [kernel.body]
    bodies += [s.body for s in kernel.body if isinstance(s, For)]
    for body in bodies:
        declared = [s for s in body if isinstance(s, Local) and s.size is not None]
        uses = {s.name: [i for i, x in enumerate(body) if s.name in _named(x)] for s in declared}
        free = dict.fromkeys(s.name for s in declared)
        for s in declared:
            found.setdefault(s.name, s.name)
            for t in declared:
                same = t.name in free and t.size == s.size and t.dtype == s.dtype and uses[t.name]
                if t is s or not same or not uses[s.name] or body.index(t) > body.index(s):
                    continue
                last, first = uses[t.name][-1], uses[s.name][0]
                if last < first or (last == first and _in_place(body[last], t.name, s.name)):
                    found[s.name] = found[t.name]
                    del free[t.name]
                    break
    for x in statements(kernel.body):
        if isinstance(x, Local) and x.size is not None:
            found.setdefault(x.name, x.name)
    return found


def _named(s: Stmt) -> set[str]:
    """Return the arrays that a statement, and those in it, read or write."""
    found = set()
    for x in statements((s,)):
        found |= {e.buffer for root in expressions(x) for e in walk(root) if isinstance(e, Load)}
        if isinstance(x, Store):
            found.add(x.buffer)
        elif isinstance(x, Fold):
            found.add(x.target)
    return found


def _in_place(s: Stmt, old: str, new: str) -> bool:
    """Whether each pass of a vector loop reads `old` where it writes `new`, and before."""
    if not isinstance(s, For) or s.kind != "vector":
        return False
    stored = [x.index for x in s.body if isinstance(x, Store) and x.buffer == new]
    loads = [e for x in s.body for root in expressions(x) for e in walk(root)]
    read = [e.index for e in loads if isinstance(e, Load) and e.buffer == old]
    again = any(isinstance(e, Load) and e.buffer == new for e in loads)
    folded = any(isinstance(x, Fold) and x.target in (old, new) for x in s.body)
    written = any(isinstance(x, Store) and x.buffer == old for x in s.body)
    at = [i for i, x in enumerate(s.body) if isinstance(x, Store) and x.buffer == new]
    later = any(
        isinstance(e, Load) and e.buffer == old
        for x in s.body[at[0] + 1 :]
        for root in expressions(x)
        for e in walk(root)
    ) if at else True  # fmt: skip
    return (
        not (again or folded or written or later)
        and set(read) == set(stored)
        and len(set(stored)) == 1
    )


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
    found = (
        _count(s, known) for s in statements(body) if isinstance(s, For) and s.kind == "vector"
    )
    return [n for n in found if n is not None]


def folding(kernel: Kernel, t: Total) -> list[For]:
    """Return the vector loops that fold into a total."""
    return [
        s
        for s in statements(kernel.body)
        if isinstance(s, For)
        and s.kind == "vector"
        and any(isinstance(x, Fold) and x.target == t.name for x in s.body)
    ]


def _whole(loops: list[For]) -> bool:
    """Whether one loop folds into each element, its number being that of the pass."""
    if len(loops) != 1 or loops[0].start != ZERO:
        return False
    (loop,) = loops
    indices = [s.index for s in loop.body if isinstance(s, Fold) and s.index is not None]
    return all(i == Var("int64", loop.var) for i in indices)


def walks(index: Expr, var: str, lets: Mapping[str, Expr]) -> bool:
    """Whether an index grows by one each pass, from a place that is known before the loop."""
    if slope(index, var, lets) != ONE:
        return False
    first = at(index, var, ZERO, lets)
    return not any(isinstance(e, Var) and (e.name in lets or e.name == var) for e in walk(first))


def scattered(loop: For) -> list[Fold]:
    """Return the folds of a vector loop into elements that several passes may share."""
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    return [
        s
        for s in loop.body
        if isinstance(s, Fold)
        and s.index is not None
        and slope(s.index, loop.var, lets) not in (ONE, ZERO)
    ]
