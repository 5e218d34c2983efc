"""What a kernel fetches ahead: the rows that come next, while it works on one in cache.

A row loop reads a row from memory in its first vector loop, and again, out of the caches,
in later ones. Memory would rest meanwhile; so these ask for the row after the next.

References
----------
- T. C. Mowry, M. S. Lam, A. Gupta, "Design and evaluation of a compiler algorithm for prefetching",
  ASPLOS 1992.
"""

from __future__ import annotations

from collections.abc import Iterator

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import (
    Apply,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Store,
    Var,
    statements,
    walk,
)
from adarray.compiler.scalars.catalogue import FUNCTIONS

# How far ahead; the next row is too close if rows are short.
ROWS = 2
# Buffers that one loop fetches at most.
MOST = 2
# What a call of a mathematical function counts among arithmetic ones.
CALL = 10
Ahead = tuple[tuple[Load, Expr], ...]


def ahead(kernel: Kernel) -> IdentityMap[For, Ahead]:
    """Return what vector loops fetch, by loop.

    Returns
    -------
    IdentityMap
        Pairs of a load, as the loop would make it, and of what its index grows by per row.
    """
    buffers = {b.name for b in kernel.buffers}
    by_loop: IdentityMap[For, list[tuple[Load, Expr]]] = IdentityMap()
    for s in statements(kernel.body):
        if isinstance(s, For) and s.kind != "vector":
            for loop, load, step in _of_rows(s, buffers):
                fetched = by_loop.setdefault(loop, [])
                if len(fetched) < MOST:
                    fetched.append((load, step))
    return IdentityMap((loop, tuple(fetched)) for loop, fetched in by_loop.items())


def _of_rows(rows: For, buffers: set[str]) -> Iterator[tuple[For, Load, Expr]]:
    """Yield what the loops directly in a loop over rows can fetch."""
    loops = [s for s in rows.body if isinstance(s, For) and s.kind == "vector"]
    if len(loops) < 2:
        return
    outside = {s.name: s.value for s in rows.body if isinstance(s, Let)}
    seen: set[str] = set()
    for k, loop in enumerate(loops):
        lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
        later = [c for c in loops[k + 1 :] if (c.start, c.stop) == (loop.start, loop.stop)]
        for e in _loads(loop):
            if e.buffer not in buffers or e.buffer in seen:
                continue
            if slope(e.index, loop.var, lets) != ONE:
                continue
            seen.add(e.buffer)
            step = slope(e.index, rows.var, outside | lets)
            if later and step is not None and step != ZERO:
                to = max(later, key=_weight)
                index = at(e.index, loop.var, Var("int64", to.var), lets)
                yield to, Load(e.dtype, e.buffer, index), step


def _expressions(loop: For) -> Iterator[Expr]:
    for s in loop.body:
        if isinstance(s, Let | Store | Fold):
            yield from walk(s.value)


def _loads(loop: For) -> Iterator[Load]:
    return (e for e in _expressions(loop) if isinstance(e, Load))


def _weight(loop: For) -> int:
    """Return how much an iteration computes; what waits for arithmetic can fetch meanwhile."""
    applied = [e.name for e in _expressions(loop) if isinstance(e, Apply)]
    return len(applied) + CALL * sum(FUNCTIONS[name].is_call for name in applied)
