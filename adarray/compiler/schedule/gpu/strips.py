"""Rows of arrays in the registers of a warp: which kernels of loop IR run so.

A kernel whose threads march down the rows of a column strip has the last rows of
every array as local arrays of a constant size, a few elements wider than the strip. Each of
the 32 lanes of a warp then has the same columns of all of them, and gets those beside
from its neighbours: there is no memory and no waiting.

References
----------
- P. Chen, M. Wahib, S. Takizawa, R. Takano, S. Matsuoka, "A versatile software systolic execution
  model for GPU memory-bound kernels", SC 2019.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.loopir import (
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
    Var,
    integer,
    statements,
    walk,
)
from adarray.compiler.schedule.remainders import Remainders
from adarray.compiler.schedule.vectors import expressions

LANES = 32
# Elements that a local array has before the strip and behind it.
MARGIN = 4
WIDTHS = (1, 2, 4)


def wrapped(index: Expr, count: Expr, own: Expr | None = None) -> Expr:
    """Return an index of a round of `count`, from one of up to a round before or behind it.

    Of an array that has fewer elements, `own`, it is the last one where it has no such.

    Examples
    --------
    >>> i = Var("int64", "i")
    >>> unwrapped(wrapped(i, integer(5), integer(3))) == (i, integer(5), integer(3))
    True
    """
    if own is not None and own != count:
        last = Apply("int64", "subtract", (own, integer(1)))
        return Apply("int64", "minimum", (wrapped(index, count), last))
    below = Apply("bool", "less", (index, integer(0)))
    within = Apply("bool", "less", (index, count))
    behind = Apply("int64", "subtract", (index, count))
    rest = Apply("int64", "where", (within, index, behind))
    return Apply("int64", "where", (below, Apply("int64", "add", (index, count)), rest))


def unwrapped(expr: Expr) -> tuple[Expr, Expr, Expr] | None:
    """Return what `wrapped` was given; None if it did not make `expr`."""
    if not isinstance(expr, Apply) or expr.dtype != "int64":
        return None
    if expr.name == "minimum":
        parts, last = unwrapped(expr.args[0]), expr.args[1]
        if parts is None or not isinstance(last, Apply) or last.name != "subtract":
            return None
        index, count, own = *parts[:2], last.args[0]
    elif expr.name == "where" and isinstance(plus := expr.args[1], Apply) and plus.name == "add":
        index, count, own = *plus.args, plus.args[1]
    else:
        return None
    return (index, count, own) if wrapped(index, count, own) == expr else None


def fixed_lets(loop: For) -> dict[str, Expr]:
    """Return the values of names in a vector loop, but for indices that were wrapped."""
    return {s.name: s.value for s in loop.body if isinstance(s, Let) and unwrapped(s.value) is None}


def shift(index: Expr, var: str, lets: Mapping[str, Expr]) -> int | None:
    """Return by how many columns an element of a row lies beside iteration `var`; None if unknown.

    Iterations are numbered like the elements of rows, from `MARGIN` on.
    """
    if slope(index, var, lets) != ONE:
        return None
    first = at(index, var, ZERO, lets)
    return _constant(first)


def _constant(e: Expr) -> int | None:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Apply) and e.name in ("add", "subtract"):
        parts = [_constant(a) for a in e.args]
        if parts[0] is not None and parts[1] is not None:
            return parts[0] + parts[1] if e.name == "add" else parts[0] - parts[1]
    return None


def width(kernel: Kernel) -> int:
    """Return how many columns each lane has; 0 if a kernel does not march down strips."""
    parallel = [s for s in kernel.body if isinstance(s, For) and s.kind == "parallel"]
    arrays = [s for s in statements(kernel.body) if isinstance(s, Local) and s.size is not None]
    sizes = {s.size.value if isinstance(s.size, Const) else 0 for s in arrays}
    if len(parallel) != 1 or kernel.totals or len(sizes) != 1:
        return 0
    columns = sizes.pop() - 2 * MARGIN
    if columns % LANES or columns // LANES not in WIDTHS:
        return 0
    others = [s for s in kernel.body if s is not parallel[0]]
    if not all(isinstance(s, Let) for s in others):
        return 0
    names = frozenset(s.name for s in arrays)
    read = {e.buffer for s in statements(kernel.body) for x in expressions(s) for e in walk(x)
            if isinstance(e, Load)}  # fmt: skip
    if any(isinstance(s, Store) and s.buffer in read - names for s in statements(kernel.body)):
        return 0
    return columns // LANES if _marches(parallel[0].body, names, columns) else 0


def _marches(body: tuple[Stmt, ...], names: frozenset[str], columns: int) -> bool:
    """Whether rows are touched in vector loops alone, at a fixed distance from the iteration."""
    stack: list[Stmt] = list(body)
    while stack:
        s = stack.pop()
        if isinstance(s, For) and s.kind == "vector":
            if not _in_lanes(s, names, columns):
                return False
            continue
        if isinstance(s, Fold | Fail | Store) or _loads(expressions(s), names):
            return False
        if isinstance(s, For):
            stack += s.body
        elif isinstance(s, If):
            stack += [*s.body, *s.orelse]
    return True


def _loads(roots: Iterable[Expr], names: frozenset[str]) -> bool:
    return any(isinstance(e, Load) and e.buffer in names for root in roots for e in walk(root))


def _in_lanes(loop: For, names: frozenset[str], columns: int) -> bool:
    """Whether lanes can share the iterations of a vector loop, as many as there are columns."""
    lets = fixed_lets(loop)
    first, last = MARGIN, MARGIN + columns
    if not isinstance(loop.start, Const) or not first <= loop.start.value <= last:
        return False
    whole = loop.start == integer(first) and loop.stop == integer(last)
    if _most(loop.stop) > last or any(isinstance(s, Fold) for s in loop.body):
        return False
    for s in loop.body:
        if isinstance(s, Store):
            by = shift(s.index, loop.var, lets)
            if s.buffer in names and (not whole or by != 0):
                return False
            if slope(s.index, loop.var, lets) != ONE:
                return False
        for e in (x for root in expressions(s) for x in walk(root)):
            if not isinstance(e, Load):
                continue
            if e.buffer in names:
                by = shift(e.index, loop.var, lets)
                if by is None or abs(by) > MARGIN:
                    return False
            elif slope(e.index, loop.var, lets) != ZERO:
                return False  # columns beyond the loop's are computed, too
    return True


def _most(stop: Expr) -> int:
    """Return the most that the end of a loop can be, as far as it is to be seen."""
    if isinstance(stop, Const):
        return int(stop.value)
    if isinstance(stop, Apply) and stop.name == "minimum":
        return min(_most(a) for a in stop.args)
    if isinstance(stop, Apply) and stop.name == "where":
        return max(_most(a) for a in stop.args[1:])
    return 1 << 62


def in_packs(kernel: Kernel, ints: Mapping[str, int]) -> bool:
    """Whether what lanes load and store are whole packs, if arrays begin with one."""
    remainders = Remainders(kernel, ints, width(kernel))
    first = integer(MARGIN)
    for loop in statements(kernel.body):
        if not isinstance(loop, For) or loop.kind != "vector":
            continue
        lets, names = fixed_lets(loop), wrapped_names(loop)
        places: list[Expr] = []
        for s in loop.body:
            for e in (x for root in expressions(s) for x in walk(root)):
                name = neighbours(e.index, loop) if isinstance(e, Load) else None
                if isinstance(e, Load) and name is not None:
                    start, count, own = names[name]
                    places += [at(e.index, name, ZERO, lets), count, own]
                    places.append(at(start, loop.var, first, lets))
            if isinstance(s, Store):
                places.append(at(s.index, loop.var, first, lets))
                places += [_back(loop.start), _back(loop.stop)]
        if any(remainders.of(e) != 0 for e in places):
            return False
    return True


def _back(bound: Expr) -> Expr:
    return Apply("int64", "subtract", (bound, integer(MARGIN)))


def wrapped_names(loop: For) -> dict[str, tuple[Expr, Expr, Expr]]:
    """Return what the wrapped indices of a vector loop were made of, by name."""
    by_name = {}
    for s in loop.body:
        parts = unwrapped(s.value) if isinstance(s, Let) else None
        if parts is not None:
            assert isinstance(s, Let)
            by_name[s.name] = parts
    return by_name


def neighbours(index: Expr, loop: For) -> str | None:
    """Return the wrapped name along which an index walks by ones; None if there is no such."""
    lets = fixed_lets(loop)
    for name in wrapped_names(loop):
        if slope(index, name, lets) == ONE and slope(index, loop.var, lets) == ZERO:
            first = at(index, name, ZERO, lets)
            inner = {*lets, *wrapped_names(loop), loop.var}
            if not any(isinstance(e, Var) and e.name in inner for e in walk(first)):
                return name
    return None
