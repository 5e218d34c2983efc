"""What loops of a kernel read, write and fold, for the choice of threads on a GPU."""

from __future__ import annotations

from collections.abc import Container, Mapping

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.loopir import (
    STRIDE,
    Apply,
    Const,
    Expr,
    Fail,
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
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.vectors import expressions, longest

WARP = 32
SECTOR = 32  # bytes of memory that come together at least
PACK = 16  # bytes that one instruction moves
LONG = 100  # statements of a loop whose iterations are printed once


def is_flat(body: tuple[Stmt, ...], checks: bool = False) -> bool:
    """Whether statements are vector loops that no other statement needs, and what leads there.

    Threads of different blocks cannot wait for each other, so nothing may read what a loop
    has written, or folded other than into totals. With `checks`, loops may fold into what
    is tested afterwards, to refuse the data: each block tests its part.
    """
    if checks:
        body = _unchecked(body)
    if any(isinstance(s, Local | If) for s in body):
        return False
    loops = [s for s in body if isinstance(s, For)]
    simple = all(isinstance(s, For | Let | Store) for s in body)
    return simple and all(s.kind == "vector" for s in loops) and not reads_its_own(body)


def _unchecked(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements without truths of which nothing is needed but whether one holds."""
    truths = {s.name for s in body if isinstance(s, Local) and s.size is None and s.dtype == "bool"}
    for s in body:
        used = {e.name for root in expressions(s) for e in walk(root) if isinstance(e, Var)}
        refuses = isinstance(s, If) and not s.orelse and all(isinstance(x, Fail) for x in s.body)
        if refuses and isinstance(s, If) and isinstance(s.condition, Var):
            continue
        truths -= used
        for x in statements((s,)):
            truths -= {e.name for root in expressions(x) for e in walk(root) if isinstance(e, Var)}
            if isinstance(x, Fold) and (x.index is not None or x.combine != "logical_or"):
                truths.discard(x.target)
    return tuple(
        s
        for s in body
        if not (isinstance(s, Local) and s.name in truths)
        and not (isinstance(s, If) and isinstance(s.condition, Var) and s.condition.name in truths)
    )


def neighbours(loop: For) -> tuple[str, set[str]]:
    """Return what grows by one from iteration to iteration, and names that mostly stay the same.

    The variable of a parallel loop, or the inner one of those that were joined into it.
    """
    if len(loop.body) > 1 and all(isinstance(s, Let) for s in loop.body[:2]):
        first, second = loop.body[:2]
        assert isinstance(first, Let)
        assert isinstance(second, Let)
        own = Var("int64", loop.var)
        divided = isinstance(first.value, Apply) and first.value.name == "floor_divide"
        rest = isinstance(second.value, Apply) and second.value.name == "subtract"
        if divided and rest and first.value.args[0] == own and second.value.args[0] == own:  # type: ignore[attr-defined]
            return second.name, {first.name, second.name}
    return loop.var, set()


def index_parts(kernel: Kernel) -> frozenset[Expr]:
    """Return the quotients that take the indices of loops out of the one that they became.

    They are of numbers that are not negative, by extents, which are positive wherever there is an
    iteration: neither the sign nor a divisor of zero needs a test.
    """
    parts: set[Expr] = set()
    for loop in statements(kernel.body):
        if not isinstance(loop, For) or loop.kind == "serial" or loop.start != ZERO:
            continue
        several = isinstance(loop.stop, Apply) and loop.stop.name == "multiply"
        if loop.kind == "vector" and not several:
            continue  # no loops became it
        indices = {loop.var}
        quotients: dict[Expr, Expr] = {}
        for s in loop.body:
            e = s.value if isinstance(s, Let) else None
            if not isinstance(s, Let) or not isinstance(e, Apply) or e.dtype != "int64":
                continue
            first, second = e.args[0], e.args[-1]
            if not isinstance(first, Var) or first.name not in indices:
                continue
            if e.name == "floor_divide" and _is_extent(second, kernel):
                parts.add(e)
                quotients[Apply("int64", "multiply", (Var("int64", s.name), second))] = first
                indices.add(s.name)
            elif e.name == "subtract" and quotients.get(second) == first:
                indices.add(s.name)  # what is left over
    return frozenset(parts)


def _is_extent(e: Expr, kernel: Kernel) -> bool:
    """Whether an expression is an integer of a kernel, or a positive number."""
    if isinstance(e, Const):
        return int(e.value) > 0
    return isinstance(e, Var) and e.name in kernel.ints


def reads_its_own(body: tuple[Stmt, ...]) -> bool:
    """Whether statements load from memory that they write."""
    inside = list(statements(body))
    written = {s.buffer for s in inside if isinstance(s, Store)}
    loads = (e for s in inside for root in expressions(s) for e in walk(root))
    return any(isinstance(e, Load) and e.buffer in written for e in loads)


def crossing(loop: For, kernel: Kernel) -> int:
    """Return the size of groups if iterations read or write across the rows of an array; else 0.

    Threads with one number in neighbouring groups then move what lies side by side: as many
    of a warp as fill a sector of memory.
    """
    along, fixed = neighbours(loop)
    all_lets = (s for s in statements(loop.body) if isinstance(s, Let))
    lets = {s.name: s.value for s in all_lets if s.name not in fixed}
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    accesses: list[tuple[str, str, Expr]] = []
    for inner in loop.body:
        for s in inner.body if isinstance(inner, For) else ():
            assert isinstance(inner, For)
            loads = [e for x in expressions(s) for e in walk(x) if isinstance(e, Load)]
            accesses += [(inner.var, e.buffer, e.index) for e in loads]
            if isinstance(s, Store):
                accesses.append((inner.var, s.buffer, s.index))
    sizes = [
        SIZES[dtypes[buffer]]
        for var, buffer, index in accesses
        if buffer in dtypes
        and slope(index, var, lets) not in (ZERO, ONE)
        and slope(index, along, lets) == ONE
    ]
    return WARP * max(sizes) // SECTOR if sizes else 0


def crossed(loop: For, kernel: Kernel) -> int:
    """Return the size of groups if nothing that a row of loops reads and writes lies along it.

    Neighbouring groups then share sectors, as in `crossing`. It is 0 if some array has the row side
    by side, or none has what neighbouring rows read so.
    """
    along, fixed = neighbours(loop)
    lets = {
        s.name: s.value for s in statements(loop.body) if isinstance(s, Let) and s.name not in fixed
    }
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    most = 0
    for inner in statements(loop.body):
        if not isinstance(inner, For) or inner.kind != "vector":
            continue
        for s in inner.body:
            places = [
                (e.buffer, e.index) for x in expressions(s) for e in walk(x) if isinstance(e, Load)
            ]
            if isinstance(s, Store):
                places.append((s.buffer, s.index))
            for buffer, index in places:
                step = slope(index, inner.var, lets, usually=True)
                between = slope(index, along, lets, usually=True)
                if buffer not in dtypes or ZERO in (step, between):
                    continue  # one for the row, or the same for its neighbours
                if step == ONE:
                    return 0
                if between == ONE:  # others are apart either way
                    most = max(most, SIZES[dtypes[buffer]])
    return WARP * most // SECTOR


def is_sheet(loop: For) -> bool:
    """Whether the iterations of the vector loops in a parallel loop need nothing of each other.

    What refuses the data may be tested afterwards: each group tests its part.
    """
    body = _unchecked(loop.body)
    inner = [s for s in body if isinstance(s, For)]
    lets = all(isinstance(s, For | Let | Store) for s in body)
    if not inner or not lets or any(s.kind != "vector" for s in inner):
        return False
    # Scalars that are folded into are totals.
    return not any(scattered(s) for s in inner) and not reads_its_own(loop.body)


def homes(kernel: Kernel) -> dict[str, str]:
    """Return for each local array the one whose memory it takes: mostly itself.

    One that is no longer used gives its memory to the next one of the same size, from the
    loop on that reads it for the last time, if each iteration writes only where it reads.
    """
    owners: dict[str, str] = {}
    bodies = [kernel.body]
    bodies += [s.body for s in kernel.body if isinstance(s, For)]
    for body in bodies:
        declared = [s for s in body if isinstance(s, Local) and s.size is not None]
        named = [_named(x) for x in body] if declared else []
        uses = {s.name: [i for i, names in enumerate(named) if s.name in names] for s in declared}
        free = dict.fromkeys(s.name for s in declared)
        for s in declared:
            owners.setdefault(s.name, s.name)
            for t in declared:
                same = t.name in free and t.size == s.size and t.dtype == s.dtype and uses[t.name]
                if t is s or not same or not uses[s.name] or body.index(t) > body.index(s):
                    continue
                last, first = uses[t.name][-1], uses[s.name][0]
                if last < first or (last == first and _in_place(body[last], t.name, s.name)):
                    owners[s.name] = owners[t.name]
                    del free[t.name]
                    break
    for x in statements(kernel.body):
        if isinstance(x, Local) and x.size is not None:
            owners.setdefault(x.name, x.name)
    return owners


def _named(s: Stmt) -> set[str]:
    """Return the arrays that a statement, and those in it, read or write."""
    names = set()
    for x in statements((s,)):
        names |= {e.buffer for root in expressions(x) for e in walk(root) if isinstance(e, Load)}
        if isinstance(x, Store):
            names.add(x.buffer)
        elif isinstance(x, Fold):
            names.add(x.target)
    return names


def _in_place(s: Stmt, old: str, new: str) -> bool:
    """Whether each iteration of a vector loop reads `old` where it writes `new`, and before."""
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


def is_shared(loop: For) -> bool:
    """Whether threads of a group share the iterations of a loop."""
    return loop.kind == "vector" or running(loop) is not None


def running(loop: For) -> tuple[Fold, Store] | None:
    """Return the fold and the store of a loop that stores what it has folded so far."""
    folds = [s for s in loop.body if isinstance(s, Fold)]
    stores = [s for s in loop.body if isinstance(s, Store)]
    simple = all(isinstance(s, Let | Fold | Store) for s in loop.body)
    if loop.kind != "serial" or not simple or len(folds) != 1 or len(stores) != 1:
        return None
    (fold,), (store,) = folds, stores
    if fold.index is not None or store.value != Var(fold.value.dtype, fold.target):
        return None
    if loop.body.index(fold) > loop.body.index(store):
        return None
    rest = [x for s in loop.body for x in expressions(s) if x is not store.value]
    for e in (e for x in rest for e in walk(x)):
        if isinstance(e, Var) and e.name == fold.target:
            return None
        if isinstance(e, Load) and e.buffer == store.buffer:
            return None
    return fold, store


def across(loop: For) -> bool:
    """Whether iterations of a parallel loop store what they fold across the rows of an array."""
    along, fixed = neighbours(loop)
    all_lets = (s for s in statements(loop.body) if isinstance(s, Let))
    lets = {s.name: s.value for s in all_lets if s.name not in fixed}
    for s in statements(loop.body):
        parts = running(s) if isinstance(s, For) else None
        if parts is not None and slope(parts[1].index, along, lets) == ONE:
            assert isinstance(s, For)
            return slope(parts[1].index, s.var, lets) != ONE
    return False


def is_scan(kernel: Kernel) -> bool:
    """Whether a kernel is one loop that stores what it has folded so far."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    rest = [s for s in kernel.body if not isinstance(s, For)]
    simple = all(isinstance(s, Let) or (isinstance(s, Local) and s.size is None) for s in rest)
    last = kernel.body[-1:] == tuple(loops)
    return simple and last and not kernel.totals and running(loops[0]) is not None


def folding(kernel: Kernel, t: Total) -> list[For]:
    """Return the vector loops that fold into a total."""
    return [
        s
        for s in statements(kernel.body)
        if isinstance(s, For)
        and s.kind == "vector"
        and any(isinstance(x, Fold) and x.target == t.name for x in s.body)
    ]


def is_whole(loops: list[For], t: Total) -> bool:
    """Whether one loop folds into each element, its number being that of the iteration."""
    if len(loops) != 1 or loops[0].start != ZERO or loops[0].stop != t.size:
        return False
    (loop,) = loops
    indices = [s.index for s in loop.body if isinstance(s, Fold) and s.index is not None]
    return all(i == Var("int64", loop.var) for i in indices)


def sheet_width(kernel: Kernel, loop: For) -> int:
    """Return how many elements of array totals a thread of a sheet has side by side."""
    iterations = longest(loop, {})
    if len(loop.body) > LONG or (iterations is not None and iterations < 64):
        return 1
    dtypes = {b.name: b.dtype for b in kernel.buffers} | {t.name: t.dtype for t in kernel.totals}
    names = {e.buffer for s in loop.body for x in expressions(s) for e in walk(x)
             if isinstance(e, Load)}  # fmt: skip
    names |= {s.buffer for s in loop.body if isinstance(s, Store)}
    names |= {s.target for s in loop.body if isinstance(s, Fold)}
    return PACK // max((SIZES[dtypes[n]] for n in names if n in dtypes), default=PACK)


def walks(index: Expr, var: str, lets: Mapping[str, Expr]) -> bool:
    """Whether an index grows by one each iteration, from a place that is known before the loop."""
    if slope(index, var, lets) != ONE:
        return False
    first = at(index, var, ZERO, lets)
    return not any(isinstance(e, Var) and (e.name in lets or e.name == var) for e in walk(first))


def scattered(loop: For, atomic: Container[str] = ()) -> list[Fold]:
    """Return the folds of a vector loop into elements that several iterations may share.

    Those into buffers, `atomic`, need no care.
    """
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    return [
        s
        for s in loop.body
        if isinstance(s, Fold)
        and s.target not in atomic
        and s.index is not None
        and slope(s.index, loop.var, lets) not in (ONE, ZERO)
        and not _apart(s.index, s.target, loop, lets)
    ]


def _apart(index: Expr, target: str, loop: For, lets: Mapping[str, Expr]) -> bool:
    """Whether each iteration folds into an element of its own, at equal distances."""
    by = slope(index, loop.var, lets)
    indices = [s.index for s in loop.body if isinstance(s, Fold) and s.target == target]
    distinct = isinstance(by, Var) and by.name.startswith(STRIDE)
    distinct = distinct or (isinstance(by, Const) and by.value != 0)
    return distinct and all(i == index for i in indices)
