"""Rows that a kernel of a GPU fetches into shared memory before it needs them.

A kernel that reads a long row in several vector loops, such as a maximum, a sum and a result,
reads it from memory again in each: the rows that all blocks work on do not fit the caches.
And memory rests while a block computes. So threads fetch the packs of their rows into slots of
shared memory, each the same ones that it reads in every loop: nobody waits for others because
of them. In the last loop that reads a slot, the thread fetches what comes next into it: packs
of the next row, and of the one after it if there are more slots than packs of a row.

References
----------
- M. Bauer, H. Cook, B. Khailany, "CudaDMA: optimizing GPU memory bandwidth via warp
  specialization", SC 2011 (copies to shared memory ahead of their use).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO, at, terms
from adarray.compiler.ir.identity import IdentityMap, IdentitySet
from adarray.compiler.ir.loopir import (
    Apply,
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
    statements,
    walk,
)
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.gpu.loops import LONG, PACK, scattered, walks
from adarray.compiler.schedule.vectors import expressions

LEAST = 4  # bytes that one instruction can fetch
DEEP = 64  # names below which an index is not taken apart

# What identifies a row: its array, and the index of its first element as `terms` gives it.
Key = tuple[str, int, frozenset[tuple[Expr, int]]]


class Source(NamedTuple):
    """An array whose rows are fetched.

    Parameters
    ----------
    buffer, dtype : str
    first : Expr
        The index of the first element of a row: of the variable of the parallel loop and of
        the kernel's integers alone.
    """

    buffer: str
    dtype: str
    first: Expr


class FetchedRows(NamedTuple):
    """What a kernel can fetch.

    Parameters
    ----------
    loop : For
        The parallel loop.
    inner : tuple of For
        The vector loops that read the rows, in their order; all have the same iterations.
    start, stop : Expr
        Of these loops, of the kernel's integers alone.
    sources : tuple of Source
    loads : IdentityMap of For to dict
        The source of each load, by loop.
    width : int
        Elements of a pack.
    others : bool
        Whether these loops read other memory, too, or fold into array totals.
    """

    loop: For
    inner: tuple[For, ...]
    start: Expr
    stop: Expr
    sources: tuple[Source, ...]
    loads: IdentityMap[For, dict[Load, int]]
    width: int
    others: bool

    @property
    def bytes(self) -> int:
        """Return the bytes of a slot: a pack of each source."""
        return sum(self.width * SIZES[s.dtype] for s in self.sources)


class _Read(NamedTuple):
    inner: For
    load: Load
    key: Key
    first: Expr


def fetched_rows(kernel: Kernel) -> FetchedRows | None:
    """Return what a kernel can fetch; None if no row of an array is read in several loops."""
    loops = [s for s in kernel.body if isinstance(s, For) and s.kind == "parallel"]
    if not loops:
        return None
    by_bounds: dict[tuple[Expr, Expr], list[_Read]] = {}
    for bounds, read in _reads(kernel, loops[0]):
        by_bounds.setdefault(bounds, []).append(read)
    for (start, stop), reads in by_bounds.items():
        rows = _chosen(kernel, loops[0], reads)
        if rows is not None:
            return rows._replace(start=start, stop=stop)
    return None


def _reads(kernel: Kernel, loop: For) -> Iterator[tuple[tuple[Expr, Expr], _Read]]:
    """Yield the loads of rows in the vector loops directly in `loop`, with their bounds."""
    sources = {b.name for b in kernel.buffers if b.access == "in"}
    outs = {b.name for b in kernel.buffers if b.access != "in"}
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    integers = {*kernel.ints, *(s.name for s in kernel.body if isinstance(s, Let))}
    for inner in loop.body:
        if not isinstance(inner, For) or inner.kind != "vector" or scattered(inner, outs):
            continue
        bounds = [resolved(e, lets, integers) for e in (inner.start, inner.stop)]
        own = {s.name: s.value for s in inner.body if isinstance(s, Let)}
        if bounds[0] is None or bounds[1] is None:
            continue
        for e in dict.fromkeys(_loads(inner)):
            if e.buffer in sources and walks(e.index, inner.var, own):
                start = at(e.index, inner.var, inner.start, own)
                first = resolved(start, lets, integers | {loop.var})
                if first is not None and _moves(first, loop.var):
                    const, multiples = terms(first, {})
                    key = e.buffer, const, frozenset(multiples.items())
                    yield (bounds[0], bounds[1]), _Read(inner, e, key, first)


def _loads(s: For) -> Iterator[Load]:
    for x in s.body:
        for root in expressions(x):
            yield from (e for e in walk(root) if isinstance(e, Load))


def _moves(e: Expr, var: str) -> bool:
    return any(isinstance(x, Var) and x.name == var for x in walk(e))


def resolved(e: Expr, lets: Mapping[str, Expr], known: set[str], depth: int = DEEP) -> Expr | None:
    """Return an integer expression of `known` names alone; None if it needs anything else."""
    if isinstance(e, Const):
        return e
    if isinstance(e, Var):
        if e.name in lets and depth:
            return resolved(lets[e.name], lets, known, depth - 1)
        return e if e.name in known else None
    if not isinstance(e, Apply) or e.dtype != "int64":
        return None
    args = [resolved(a, lets, known, depth) for a in e.args]
    resolved_ = tuple(a for a in args if a is not None)
    return Apply(e.dtype, e.name, resolved_) if len(resolved_) == len(args) else None


def _chosen(kernel: Kernel, loop: For, reads: list[_Read]) -> FetchedRows | None:
    """Return the rows that several loops read."""
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    places: dict[Key, list[_Read]] = {}
    for r in reads:
        places.setdefault(r.key, []).append(r)
    if len({k[0] for k in places}) < len(places):
        return None  # a row and its neighbours: they are read out of each other
    places = {k: same for k, same in places.items() if len(IdentitySet(r.inner for r in same)) > 1}
    if not places:
        return None
    numbers = {k: i for i, k in enumerate(places)}
    sources = tuple(Source(k[0], dtypes[k[0]], same[0].first) for k, same in places.items())
    own = IdentitySet(r.inner for same in places.values() for r in same)
    inner = tuple(s for s in loop.body if isinstance(s, For) and s in own)
    loads: IdentityMap[For, dict[Load, int]] = IdentityMap((s, {}) for s in inner)
    for k, same in places.items():
        for r in same:
            loads[r.inner][r.load] = numbers[k]
    width = _width(kernel, inner)
    if any(width * SIZES[s.dtype] < LEAST for s in sources):
        return None
    fetches = {s.buffer for s in sources}
    others = any(e.buffer not in fetches for s in inner for e in _loads(s))
    others |= any(isinstance(x, Fold) and x.index is not None for s in inner for x in s.body)
    return FetchedRows(loop, inner, ZERO, ZERO, sources, loads, width, others)


def _width(kernel: Kernel, inner: tuple[For, ...]) -> int:
    """Return how many elements a pack has in all loops: of the widest type they move."""
    if any(len(s.body) > LONG for s in inner):
        return 1
    dtypes = {b.name: b.dtype for b in kernel.buffers} | {
        s.name: s.dtype for s in statements(kernel.body) if isinstance(s, Local) and s.size
    }
    moved = {e.buffer for s in inner for e in _loads(s)}
    moved |= {x.buffer for s in inner for x in s.body if isinstance(x, Store)}
    return PACK // max(SIZES[dtypes[n]] for n in moved if n in dtypes)


def slots_of(rows: FetchedRows, iterations: int, threads: int, room: int) -> int:
    """Return how many slots a thread has in `room` bytes; 0 if a row has more packs.

    Parameters
    ----------
    rows : FetchedRows
    iterations : int
        Of the loops that read a row.
    threads : int
        That share a row.
    room : int
        Bytes of shared memory for these threads.
    """
    packs = -(-iterations // (rows.width * threads))
    slots = room // (threads * rows.bytes)
    return slots if slots >= packs > 0 else 0
