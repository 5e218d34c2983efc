"""Rows that are register-resident while several loops go over them.

A kernel that folds a row several times and then makes results of it, such as a layer norm and
its gradient, would read the row in each of its loops, and compute again there what others have
computed. Where the row is short enough, each thread of a block has the same packs of it from
the first loop to the last: what comes from memory is loaded once, values that later loops need
stay, and array totals of the row's elements stay from row to row.

References
----------
- V. Volkov, J. W. Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008 (registers as
  the largest memory of a block).
- M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, 2018
  (the other way: fewer loops over a row in memory).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO, at, terms
from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    statements,
    walk,
)
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.gpu.loops import (
    LONG,
    PACK,
    WARP,
    folding,
    is_whole,
    scattered,
    walks,
)
from adarray.compiler.schedule.gpu.row_values import WORTH, Numbers, cost, needed
from adarray.compiler.schedule.gpu.shared_rows import LEAST, resolved
from adarray.compiler.schedule.remainders import Remainders
from adarray.compiler.schedule.vectors import expressions

LOOPS = 2  # over a row, from which on it is register-resident where array totals are
MANY = 4  # the same where there are none
REGISTERS = 65536  # of an SM
BESIDE = 2048  # bytes of shared memory of a block beside what it fetches and combines
BLOCKS = 32  # that reside on an SM at most
LEAST_PACKS = 64  # of a row: threads that share shorter ones would wait for each other
OWN = 48  # registers of a thread beside its packs


class RegisterRow(NamedTuple):
    """A row that is register-resident.

    Parameters
    ----------
    name : str
        Of what threads have of it.
    load : Load
        What loads it, once.
    first : Expr
        The index of its first element: of the variable of the parallel loop and of the
        kernel's integers alone.
    """

    name: str
    load: Load
    first: Expr


class ResidentRows(NamedTuple):
    """A kernel whose rows are register-resident.

    Parameters
    ----------
    kernel : Kernel
        It, with loads from arrays that each thread has of its own.
    inner : tuple of For
        The loops over a row; all begin at zero.
    stop : str
        Their end, an integer of the kernel.
    arrays : dict
        Dtypes of the arrays that threads have of a row.
    totals : dict
        The same of array totals.
    width : int
        Elements of a pack.
    rows : tuple of RegisterRow
        What is fetched before it is needed.
    """

    kernel: Kernel
    inner: tuple[For, ...]
    stop: str
    arrays: dict[str, str]
    totals: dict[str, str]
    width: int
    rows: tuple[RegisterRow, ...]

    @property
    def fetched(self) -> int:
        """Return the bytes of a pack of each row that several loops read."""
        return sum(self.width * SIZES[self.arrays[r.name]] for r in self.rows)

    @property
    def words(self) -> int:
        """Return the registers that a thread needs for each pack of a row, at most."""
        resident = [*self.arrays.values(), *self.totals.values()]
        return sum(self.width * SIZES[d] for d in resident) // 4


def resident_rows(kernel: Kernel) -> ResidentRows | None:
    """Return the kernel with its rows in registers; None if it has no such rows."""
    loops = [s for s in kernel.body if isinstance(s, For)]
    if sum(s.kind == "parallel" for s in loops) != 1 or loops[0].kind != "parallel":
        return None
    loop = loops[0]
    totals = {t.name: t.dtype for t in kernel.totals if t.size is not None}
    inner = tuple(s for s in loop.body if isinstance(s, For))
    if len(inner) < (LOOPS if totals else MANY) or not _is_simple(kernel, loop, inner):
        return None
    width = _width(kernel, inner)
    changed, values = _with_values(loop, inner)
    changed, rows, loads = _with_rows(kernel, loop, changed)
    if not rows and not totals:
        return None
    new = IdentityMap(zip(inner, changed, strict=True))
    body = tuple(new.get(s, s) if isinstance(s, For) else s for s in loop.body)
    own = replace(loop, body=body)
    top = tuple(own if s is loop else s for s in kernel.body)
    stop = inner[0].stop
    assert isinstance(stop, Var)
    rewritten = replace(kernel, body=top)
    fetched = tuple(r for r in loads if width * SIZES[r.load.dtype] >= LEAST)
    return ResidentRows(rewritten, changed, stop.name, {**values, **rows}, totals, width, fetched)


def _is_simple(kernel: Kernel, loop: For, inner: tuple[For, ...]) -> bool:
    """Whether an iteration is vector loops over one row, and scalars between them."""
    if any(not isinstance(s, For | Let | Local | Fold | Store | Assign) for s in loop.body):
        return False
    if any(isinstance(s, Local) and s.size is not None for s in statements(kernel.body)):
        return False
    ends = {s.stop for s in inner}
    (end,) = ends if len(ends) == 1 else (None,)
    if not isinstance(end, Var) or end.name not in kernel.ints:
        return False
    outs = {b.name for b in kernel.buffers if b.access != "in"}
    for s in inner:
        if s.kind != "vector" or s.start != ZERO or scattered(s) or len(s.body) > LONG:
            return False
        if any(isinstance(x, Fold) and x.target in outs for x in s.body):
            return False
    if any(isinstance(s, Fold) and s.index is not None for s in loop.body):
        return False
    if any(t.size is not None and not is_whole(folding(kernel, t), t) for t in kernel.totals):
        return False
    return _stores_last(loop, inner, outs)


def _stores_last(loop: For, inner: tuple[For, ...], outs: set[str]) -> bool:
    """Whether rows are stored once each, and read by the threads that store them, before that."""
    places: dict[str, tuple[int, Expr]] = {}
    for i, s in enumerate(inner):
        own = {x.name: x.value for x in s.body if isinstance(x, Let)}
        for x in s.body:
            if isinstance(x, Store):
                if x.buffer in places or not walks(x.index, s.var, own):
                    return False
                places[x.buffer] = i, at(x.index, s.var, ZERO, own)
    for i, s in enumerate(inner):
        own = {x.name: x.value for x in s.body if isinstance(x, Let)}
        for e in _loads(s):
            if e.buffer not in outs:
                continue
            if e.buffer not in places or not walks(e.index, s.var, own):
                return False
            last, where = places[e.buffer]
            if i > last or at(e.index, s.var, ZERO, own) != where:
                return False
    between = (x for x in loop.body if not isinstance(x, For))
    loads = (e for x in between for root in expressions(x) for e in walk(root))
    if any(isinstance(e, Load) and e.buffer in outs for e in loads):
        return False
    return not any(isinstance(x, Store) and x.buffer in places for x in loop.body)


def _loads(s: For) -> Iterator[Load]:
    for x in s.body:
        for root in expressions(x):
            yield from (e for e in walk(root) if isinstance(e, Load))


def _width(kernel: Kernel, inner: tuple[For, ...]) -> int:
    """Return how many elements a pack has in all loops: of the widest type they move."""
    dtypes = {b.name: b.dtype for b in kernel.buffers} | {t.name: t.dtype for t in kernel.totals}
    moved = {e.buffer for s in inner for e in _loads(s)}
    for s in inner:
        moved |= {x.buffer for x in s.body if isinstance(x, Store)}
        moved |= {x.target for x in s.body if isinstance(x, Fold) and x.index is not None}
    return PACK // max((SIZES[dtypes[n]] for n in moved if n in dtypes), default=PACK)


# -- values that later loops need ----------------------------------------------------------


def _with_values(loop: For, inner: tuple[For, ...]) -> tuple[tuple[For, ...], dict[str, str]]:
    """Return the loops with arrays of the values that several of them need, and these."""
    known: dict[tuple[object, ...], int] = {}
    numbers = [Numbers("", known, s) for s in inner]
    # What each number may be read from later: the loop, the name there, and its dtype.
    first: dict[int, tuple[int, Let]] = {}
    reads: list[dict[str, int]] = []
    for i, s in enumerate(inner):
        reads.append(_reused(s, numbers[i], first, _changing(loop, inner, first, i)))
        for x in s.body:
            if isinstance(x, Let) and x.value.dtype in SIZES and _is_dear(x, numbers[i]):
                first.setdefault(numbers[i].named[x.name], (i, x))
    needed_later = dict.fromkeys(n for numbers in reads for n in numbers.values())
    names = {n: f"value{k}_" for k, n in enumerate(needed_later)}
    loops: list[For] = []
    for i, s in enumerate(inner):
        body: list[Stmt] = []
        for x in s.body:
            if isinstance(x, Let) and x.name in reads[i]:
                name = names[reads[i][x.name]]
                x = Let(x.name, Load(x.value.dtype, name, Var("int64", s.var)))
            body.append(x)
        for n, name in names.items():
            j, let = first[n]
            if j == i:
                body.append(Store(name, Var("int64", s.var), Var(let.value.dtype, let.name)))
        loops.append(replace(s, body=needed(body)))
    return tuple(loops), {name: first[n][1].value.dtype for n, name in names.items()}


def _is_dear(x: Let, numbers: Numbers) -> bool:
    """Whether a value rather stays in registers than is computed again."""
    dtype = x.value.dtype
    if dtype not in ("float32", "float64"):
        return False
    parts = numbers.parts(x.value, set())
    return cost(parts, dtype) >= WORTH


def _changing(
    loop: For, inner: tuple[For, ...], first: Mapping[int, tuple[int, Let]], i: int
) -> set[int]:
    """Return the numbers of values that depend on what has changed before loop `i`."""
    numbers: set[int] = set()
    changes: dict[int, set[str]] = {}
    for n, (j, let) in first.items():
        if j not in changes:
            a, b = (next(k for k, s in enumerate(loop.body) if s is inner[m]) for m in (j, i))
            changes[j] = {
                x.name if isinstance(x, Assign) else x.target
                for x in statements(loop.body[a : b + 1])
                if isinstance(x, Assign | Fold)
            }
        own = {x.name: x.value for x in inner[j].body if isinstance(x, Let)}
        if _names(let.value, own) & changes[j]:
            numbers.add(n)
    return numbers


def _names(e: Expr, lets: Mapping[str, Expr]) -> set[str]:
    """Return the names that a value depends on."""
    names: set[str] = set()
    stack = [e]
    while stack:
        for x in walk(stack.pop()):
            if isinstance(x, Var) and x.name not in names:
                names.add(x.name)
                if x.name in lets:
                    stack.append(lets[x.name])
    return names


def _reused(
    s: For, numbers: Numbers, first: Mapping[int, tuple[int, Let]], changed: set[int]
) -> dict[str, int]:
    """Return the names of a loop whose values an earlier loop has, of those that it needs."""
    lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
    stack = [e for x in s.body if not isinstance(x, Let) for e in expressions(x)]
    names: dict[str, int] = {}
    seen: set[str] = set()
    while stack:
        for x in walk(stack.pop()):
            if not isinstance(x, Var) or x.name not in lets or x.name in seen:
                continue
            seen.add(x.name)
            n = numbers.named[x.name]
            if n in first and n not in changed:
                names[x.name] = n
            else:
                stack.append(lets[x.name])
    return names


# -- rows ----------------------------------------------------------------------------------


def _with_rows(
    kernel: Kernel, loop: For, inner: tuple[For, ...]
) -> tuple[tuple[For, ...], dict[str, str], tuple[RegisterRow, ...]]:
    """Return the loops with arrays of the rows that several of them load, these, and loads."""
    places: dict[tuple[str, int, frozenset[tuple[Expr, int]]], list[tuple[int, Load]]] = {}
    dtypes = {b.name: b.dtype for b in kernel.buffers}
    inputs = {b.name for b in kernel.buffers if b.access == "in"}
    outer = {x.name: x.value for x in loop.body if isinstance(x, Let)}
    for i, s in enumerate(inner):
        own = {x.name: x.value for x in s.body if isinstance(x, Let)}
        for e in dict.fromkeys(_loads(s)):
            if e.buffer in dtypes and walks(e.index, s.var, own):
                const, multiples = terms(at(e.index, s.var, ZERO, own), outer)
                if _moves(multiples, loop.var):
                    key = e.buffer, const, frozenset(multiples.items())
                    places.setdefault(key, []).append((i, e))
    rows = {k: reads for k, reads in places.items() if len({i for i, _ in reads}) > 1}
    names = {k: f"row{m}_" for m, k in enumerate(rows)}
    loops = list(inner)
    for key, reads in rows.items():
        begin = reads[0][0]
        for i in range(begin, len(inner)):
            loads = {e for j, e in reads if j == i}
            own_ = Var("int64", loops[i].var)
            if i == begin:
                store = Store(names[key], own_, reads[0][1])
                loops[i] = replace(loops[i], body=(*loops[i].body, store))
            elif loads:
                load = Load(dtypes[key[0]], names[key], own_)
                body = tuple(_replaced(x, loads, load) for x in loops[i].body)
                loops[i] = replace(loops[i], body=body)
    known = set(kernel.ints) | {loop.var}
    fetch = []
    for key, reads in rows.items():
        begin, load = reads[0]
        own = {x.name: x.value for x in loops[begin].body if isinstance(x, Let)}
        first = resolved(at(load.index, loops[begin].var, ZERO, own), outer, known)
        if first is not None and dtypes[key[0]] != "bool" and key[0] in inputs:
            fetch.append(RegisterRow(names[key], load, first))
    return tuple(loops), {names[k]: dtypes[k[0]] for k in rows}, tuple(fetch)


def _moves(multiples: Mapping[Expr, int], var: str) -> bool:
    """Whether an index depends on the variable of the parallel loop."""
    names = {x.name for e in multiples for x in walk(e) if isinstance(x, Var)}
    return var in names


def _replaced(s: Stmt, old: set[Load], new: Load) -> Stmt:
    """Return a statement of a vector loop with other loads."""

    def of(e: Expr) -> Expr:
        if isinstance(e, Load) and e in old:
            return new
        return replace(e, args=tuple(map(of, e.args))) if isinstance(e, Apply) else e

    if isinstance(s, Let):
        return Let(s.name, of(s.value))
    if isinstance(s, Store):
        return Store(s.buffer, s.index, of(s.value))
    if isinstance(s, Assign):
        return Assign(s.name, of(s.value))
    assert isinstance(s, Fold)
    return Fold(s.target, s.combine, of(s.value), s.index)


# -- how many threads ----------------------------------------------------------------------


def shape_of(
    resident: ResidentRows, kernel: Kernel, ints: Mapping[str, int], target: GpuTarget
) -> tuple[int, int, int] | None:
    """Return threads of a block, packs of each, and blocks that reside side by side.

    None if rows are too long, or do not begin at multiples of packs.

    Parameters
    ----------
    resident : ResidentRows
    kernel : Kernel
    ints : mapping of str to int
        Its integers.
    target : GpuTarget
    """
    packs, rest = divmod(ints[resident.stop], resident.width)
    if rest or packs < LEAST_PACKS or not _in_packs(kernel, resident, ints):
        return None
    shapes: list[tuple[int, int, int]] = []
    for each in (4, 2, 1):
        block = (-(-packs // each) + WARP - 1) // WARP * WARP
        own = (OWN + each * resident.words + 7) // 8 * 8
        near = block * (each * resident.fetched + 8) + BESIDE
        if (
            block <= min(1024, target.threads_per_sm)
            and block * own <= REGISTERS
            and near <= target.shared_memory
        ):
            # Each of four schedulers has a quarter of the registers, for whole warps.
            side = min(target.threads_per_sm, REGISTERS // (4 * WARP * own) * 4 * WARP) // block
            side = max(1, min(side, BLOCKS, (target.shared_memory + 1024) // (near + 1024)))
            shapes.append((block, each, side))
    # The most packs of each thread, unless more than a fifth of them would be missing.
    return min(shapes, key=lambda x: max(0, 4 * x[0] * x[1] - 5 * packs), default=None)


def _in_packs(kernel: Kernel, resident: ResidentRows, ints: Mapping[str, int]) -> bool:
    """Whether all rows begin at multiples of packs, if arrays do."""
    left = Remainders(kernel, ints, resident.width)
    loops = [s for s in statements(kernel.body) if isinstance(s, For) and s.kind == "vector"]
    for s in loops:
        own = {x.name: x.value for x in s.body if isinstance(x, Let)}
        places = [e.index for e in _loads(s)] + [x.index for x in s.body if isinstance(x, Store)]
        moving = [e for e in places if walks(e, s.var, own)]
        if any(left.of(at(e, s.var, ZERO, own)) != 0 for e in moving):
            return False
    return True
