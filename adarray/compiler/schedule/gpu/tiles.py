"""Folds of short axes over pairs of rows, as a GPU computes them: tiles of results.

Distances of all rows of an array to all rows of another one fold an axis that is short, over
operands of which each is read for many results. A block computes a tile of results: the parts
of both arrays that it needs lie in shared memory, each thread loads some elements of either
into registers, and combines each with each.

References
----------
- V. Volkov, J. W. Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008.
- K. Goto, R. A. van de Geijn, "Anatomy of high-performance matrix multiplication", ACM Trans. Math.
  Softw. 34 (2008), article 12.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.loopir import (
    Const,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Store,
    Var,
    walk,
)
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.gpu.loops import LONG
from adarray.compiler.schedule.gpu.shared_rows import resolved
from adarray.compiler.schedule.vectors import expressions

SIDE = 16  # threads along each side of a tile
DEPTH = 16  # elements of the folded axis that lie in shared memory at a time
EACH = 4  # rows of either array that a thread combines
MANY = 1 << 31  # tiles, of which 32 bits hold the number
ROOM = 40 * 1024  # bytes of shared memory of a block


class Staged(NamedTuple):
    """What a tile reads of an array.

    Parameters
    ----------
    load : Load
    first : Expr
        The index of the first element of a row: of the row's variable and the kernel's
        integers alone.
    left : bool
        Whether it belongs to the rows of the parallel loop.
    """

    load: Load
    first: Expr
    left: bool


class PairFolds(NamedTuple):
    """A kernel that folds pairs of rows.

    Parameters
    ----------
    loop, across, inner, last : For
        Over the rows of results, over those of the other array, over what is folded, and over
        the results of a row.
    fold : Fold
        Of the innermost loop.
    array : str
        The local array of a row's folds.
    staged : tuple of Staged
    """

    loop: For
    across: For
    inner: For
    last: For
    fold: Fold
    array: str
    staged: tuple[Staged, ...]


def pair_folds(kernel: Kernel) -> PairFolds | None:
    """Return the parts of a kernel that folds pairs of rows; None for others."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    if len(loops) != 1 or loops[0].kind != "parallel" or loops[0].start != ZERO:
        return None
    if any(not isinstance(s, For) for s in kernel.body):
        return None
    (loop,) = loops
    parts = _parts(kernel, loop)
    if parts is None:
        return None
    array, across, last = parts
    loop_and_fold = _inner(across, array.name)
    if loop_and_fold is None:
        return None
    inner, fold = loop_and_fold
    staged = _staged(kernel, loop, across, inner)
    if staged is None or {s.left for s in staged} != {True, False}:
        return None
    bytes_ = sum(SIZES[s.load.dtype] for s in staged) * (SIDE * EACH + 4) * DEPTH
    if bytes_ > ROOM or not _ends_well(kernel, last, array.name):
        return None
    return PairFolds(loop, across, inner, last, fold, array.name, staged)


def _parts(kernel: Kernel, loop: For) -> tuple[Local, For, For] | None:
    """Return the array of a row's folds, the loop over them, and what is made of them."""
    rest = [s for s in loop.body if not isinstance(s, Let)]
    if len(rest) != 3 or any(t.size is not None for t in kernel.totals):
        return None
    array, across, last = rest
    if not isinstance(array, Local) or array.size is None:
        return None
    if not isinstance(across, For) or not isinstance(last, For):
        return None
    whole = across.start == last.start == ZERO and across.stop == last.stop == array.size
    if not whole or (across.kind, last.kind) != ("serial", "vector"):
        return None
    ends = (loop.stop, across.stop)
    if any(not isinstance(e, Var) or e.name not in kernel.ints for e in ends):
        return None
    return array, across, last


def _inner(across: For, array: str) -> tuple[For, Fold] | None:
    """Return the innermost loop and its fold, if its result is an element of the array."""
    rest = [s for s in across.body if not isinstance(s, Let)]
    if len(rest) != 3:
        return None
    scalar, inner, store = rest
    if not isinstance(scalar, Local) or not isinstance(inner, For) or not isinstance(store, Store):
        return None
    own = store.buffer == array and store.index == Var("int64", across.var)
    if not own or store.value != Var(scalar.dtype, scalar.name) or scalar.size is not None:
        return None
    if inner.kind != "vector" or inner.start != ZERO or len(inner.body) > LONG:
        return None
    folds = [s for s in inner.body if not isinstance(s, Let)]
    if len(folds) != 1 or not isinstance(folds[0], Fold) or folds[0].target != scalar.name:
        return None
    return inner, folds[0]


def _staged(kernel: Kernel, loop: For, across: For, inner: For) -> tuple[Staged, ...] | None:
    """Return what the innermost loop reads; None if it reads other things than rows."""
    lets = {s.name: s.value for b in (loop, across) for s in b.body if isinstance(s, Let)}
    own = {s.name: s.value for s in inner.body if isinstance(s, Let)}
    outs = {b.name for b in kernel.buffers if b.access != "in"}
    integers = set(kernel.ints)
    if not isinstance(inner.stop, Var) or inner.stop.name not in integers:
        return None
    staged: dict[Load, Staged] = {}
    for e in (x for s in inner.body for root in expressions(s) for x in _values(root)):
        if isinstance(e, Var) and e.name not in own:
            return None
        if not isinstance(e, Load):
            continue
        if e.buffer in outs or slope(e.index, inner.var, own) != ONE or e.dtype == "bool":
            return None
        row = at(e.index, inner.var, ZERO, own)
        moves = [slope(row, b.var, lets) != ZERO for b in (loop, across)]
        var = across.var if moves[1] else loop.var
        first = resolved(row, lets, integers | {var})
        if all(moves) or first is None:
            return None
        staged[e] = Staged(e, first, not moves[1])
    return tuple(staged.values())


def _values(e: Expr) -> Iterator[Expr]:
    """Yield what a value is made of, without the indices of loads."""
    stack = [e]
    while stack:
        x = stack.pop()
        yield x
        stack += () if isinstance(x, Var | Const | Load) else getattr(x, "args", ())


def _ends_well(kernel: Kernel, last: For, array: str) -> bool:
    """Whether the results of a row need nothing of each other, and no other array is in place."""
    outs = {b.name for b in kernel.buffers if b.access != "in"}
    stored: list[str] = []
    for s in last.body:
        if not isinstance(s, Let | Store | Fold) or (isinstance(s, Fold) and s.index is not None):
            return False
        if isinstance(s, Store):
            stored.append(s.buffer)
        for e in (x for root in expressions(s) for x in walk(root)):
            if isinstance(e, Load) and e.buffer in outs:
                return False
            if isinstance(e, Load) and e.buffer == array and e.index != Var("int64", last.var):
                return False
    return len(set(stored)) == len(stored) and set(stored) <= outs


def tiles_of(pairs: PairFolds, ints: Mapping[str, int]) -> tuple[int, int]:
    """Return the tiles down and across."""
    each = SIDE * EACH
    ends = (pairs.loop.stop, pairs.across.stop)
    down, across = (ints[e.name] for e in ends if isinstance(e, Var))
    return -(-down // each), -(-across // each)


def is_worth(pairs: PairFolds, ints: Mapping[str, int], sms: int) -> bool:
    """Whether there are tiles for most SMs, and rows are not much longer than wide."""
    down, across = tiles_of(pairs, ints)
    assert isinstance(pairs.inner.stop, Var)
    some = sms <= 2 * down * across < MANY
    return some and ints[pairs.inner.stop.name] <= 4096
