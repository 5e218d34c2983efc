"""How a kernel runs on a target: threads, vectors, lanes. Printers obey and decide nothing.

References
----------
- R. Allen, K. Kennedy, "Optimizing Compilers for Modern Architectures", Morgan Kaufmann 2001,
  chapters 2, 5 and 6.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from adarray.compiler.ir.affine import ONE, ZERO, plus, slope, times
from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
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
    integer,
    statements,
)
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.prefetch import Ahead, ahead

# Iterations of a vector loop that a thread takes at a time, where the kernel has no loop around
# it; whole vectors of every type.
CHUNK = 1024
# Terms that lanes add up before the sums of lanes are added pairwise.
LEAF = 1024
# Iterations whose results are written together past the caches.
STAGE = 512
# A loop of at most this many iterations is printed once, with the last block padded.
SHORT = 256
# A loop of at most this many iterations is no vector loop.
FEW = 2
# Iterations computed together in a padded loop: one of the widest vectors, of float32 where the
# loop has any. Longer blocks gain nothing in long loops and lose in short ones.
BLOCK = {4: 16, 8: 8}
# Vectors of accumulators, which hide the latency of a fold; functions in a body that is
# slower than that anyway.
ACCUMULATORS, LIGHT = 4, 12
# What a call of a mathematical function counts among arithmetic ones.
CALL = 10


class VectorLoop(NamedTuple):
    """How a vector loop is printed.

    Parameters
    ----------
    form : {"serial", "plain", "lanes", "padded"}
        No vectors, for an iteration or two; or one loop, left to the compiler; or iterations in
        blocks with one accumulator per iteration of a block, the rest one by one; or all
        iterations in blocks, the last one padded, so that vector functions compute every value.
    block : int
        Iterations of a block.
    leaf : int
        Iterations after which lanes are combined and what was written is streamed; 0 for all.
    stream : bool
        Whether the loop writes past the caches.
    ahead : tuple of (Load, Expr)
        What it fetches into the caches for later rows: see `adarray.compiler.schedule.prefetch`.
    """

    form: str
    block: int
    leaf: int
    stream: bool = False
    ahead: Ahead = ()


class Scheduled(NamedTuple):
    """A kernel, how its vector loops are printed, and the buffers that stream."""

    kernel: Kernel
    target: CpuTarget
    loops: IdentityMap[For, VectorLoop]
    streamed: frozenset[str]


def schedule(kernel: Kernel, target: CpuTarget) -> Scheduled:
    """Decide how `kernel` runs on `target`."""
    kernel = shared(kernel)
    lets = {s.name: s.value for s in statements(kernel.body) if isinstance(s, Let)}
    streamed = frozenset(b.name for b in kernel.buffers if b.stream) - _read(kernel)
    loops: IdentityMap[For, VectorLoop] = IdentityMap()
    fetched = ahead(kernel)
    for s in statements(kernel.body):
        if isinstance(s, For) and s.kind == "vector":
            iterations = longest(s, lets)
            form = _vector_loop(s, target, iterations)
            if streams(s, streamed) and (iterations is None or iterations > SHORT):
                form = form._replace(leaf=form.leaf or STAGE, stream=True)
            if s in fetched and form.form != "serial":
                form = form._replace(ahead=fetched[s])
                if form.form == "plain":  # in blocks, each of which fetches some lines
                    form = form._replace(
                        form="lanes", block=ACCUMULATORS * target.vector_bytes // 8
                    )
            loops[s] = form
    return Scheduled(kernel, target, loops, streamed)


def streams(loop: For, streamed: frozenset[str]) -> bool:
    """Whether `loop` writes neighbouring elements of a streamed buffer."""
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    return any(
        isinstance(s, Store) and s.buffer in streamed and slope(s.index, loop.var, lets) == ONE
        for s in loop.body
    )


def _read(kernel: Kernel) -> set[str]:
    """Return the names of the buffers whose elements a kernel reads or folds into."""
    names = {s.target for s in statements(kernel.body) if isinstance(s, Fold)}
    names |= {t.out for t in kernel.totals}
    return names | {e.buffer for e in _below(kernel.body) if isinstance(e, Load)}


def longest(loop: For, lets: Mapping[str, Expr]) -> int | None:
    """Return how many iterations `loop` has at most, None if that is not to be seen.

    It is for constant bounds, and for those like ``start .. minimum(start + 64, n)``.
    """
    seen = 0

    def value(e: Expr) -> Expr:
        nonlocal seen
        while isinstance(e, Var) and e.name in lets and seen < 64:
            e, seen = lets[e.name], seen + 1
        return e

    start, stop = loop.start, value(loop.stop)
    ends = stop.args if isinstance(stop, Apply) and stop.name == "minimum" else (stop,)
    lengths = []
    for end in map(value, ends):
        first = value(start)
        if isinstance(end, Const) and isinstance(first, Const):
            lengths.append(end.value - first.value)
        elif isinstance(end, Apply) and end.name == "add":
            for a, b in (end.args, end.args[::-1]):
                by = value(b)
                if (a == start or value(a) == first) and isinstance(by, Const):
                    lengths.append(by.value)
    return min(lengths, default=None)


def shared(kernel: Kernel) -> Kernel:
    """Return `kernel` with its outermost vector loop cut into chunks for threads.

    That is done where the loop is the kernel's only one at the top, and folds into totals
    alone. Single elements that are stored beside it are stored afterwards, once: what stands
    before the loop is done by all threads.
    """
    tops = [s for s in kernel.body if isinstance(s, For)]
    totals = {t.name for t in kernel.totals}
    if len(tops) != 1 or tops[0].kind != "vector" or any(isinstance(s, If) for s in kernel.body):
        return kernel
    loop = tops[0]
    locals_ = {s.name for s in kernel.body if isinstance(s, Local)}
    written = {s.target for s in loop.body if isinstance(s, Fold) and s.target not in totals}
    written |= {s.buffer for s in loop.body if isinstance(s, Store)}
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    fixed = any(
        isinstance(s, Fold)
        and s.target not in totals
        and (s.index is None or slope(s.index, loop.var, lets) == ZERO)
        for s in loop.body
    )
    if fixed or locals_ & written:
        return kernel
    chunk = Var("int64", _fresh("chunk", kernel))
    size = integer(CHUNK)
    first = plus(loop.start, times(chunk, size))
    inner = replace(
        loop, start=first, stop=Apply("int64", "minimum", (plus(first, size), loop.stop))
    )
    count = plus(loop.stop, loop.start, "subtract")
    chunks = Apply("int64", "floor_divide", (plus(count, integer(CHUNK - 1)), size))
    outer = For(chunk.name, integer(0), chunks, (inner,), "parallel")
    body = [outer if s is loop else s for s in kernel.body if not isinstance(s, Store)]
    return replace(kernel, body=(*body, *(s for s in kernel.body if isinstance(s, Store))))


def _fresh(name: str, kernel: Kernel) -> str:
    used = {*kernel.ints, *(b.name for b in kernel.buffers), *(t.name for t in kernel.totals)}
    for s in statements(kernel.body):
        used.add(s.var if isinstance(s, For) else getattr(s, "name", ""))
    while name in used:
        name += "_"
    return name


def lane_folds(loop: For) -> list[Fold]:
    """Return the folds of a vector loop into one place, which its iterations share."""
    lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
    return [
        s
        for s in loop.body
        if isinstance(s, Fold) and (s.index is None or slope(s.index, loop.var, lets) == ZERO)
    ]


def _vector_loop(loop: For, target: CpuTarget, iterations: int | None) -> VectorLoop:
    """Choose the form of a vector loop of at most `iterations`."""
    if iterations is not None and iterations <= FEW:
        return VectorLoop("serial", 1, 0)
    applied = list(_applied(loop.body))
    libmvec = 0 if target.precise else target.libmvec
    inexact = any(functions.is_vector_call(a.name, a.dtype, libmvec) for a in applied)
    folds = lane_folds(loop)
    weight = sum(CALL if functions.is_call(a.name, a.dtype) else 1 for a in applied)
    # Accumulators of truth values are int32.
    size = min((SIZES[f.value.dtype.replace("bool", "int32")] for f in folds), default=8)
    leaf = LEAF if any(f.combine in ("add", "multiply") for f in folds) else 0
    if iterations is not None and iterations <= LEAF:
        leaf = 0
    short = iterations is not None and iterations <= SHORT
    if inexact or (folds and (weight > LIGHT or short)):
        narrow = _is_narrow(loop)
        return VectorLoop("padded", BLOCK[4 if narrow else 8], leaf)
    if folds:
        return VectorLoop("lanes", ACCUMULATORS * target.vector_bytes // size, leaf)
    return VectorLoop("plain", 1, 0)


def _is_narrow(loop: For) -> bool:
    """Whether a loop computes in float32, or reads or writes elements of less than 8 bytes.

    gcc has no vectors of eight bytes: eight doubles beside eight truth values stay scalar.
    """
    moved = [s.value.dtype for s in loop.body if isinstance(s, (Store, Fold))]
    moved += [e.dtype for e in _below(loop.body) if isinstance(e, Load)]
    return any(np.dtype(d).itemsize < 8 for d in moved) or any(
        e.dtype == "float32" for e in _below(loop.body)
    )


def _applied(body: tuple[Stmt, ...]) -> Iterable[Apply]:
    """Yield the functions that statements apply, each object once."""
    return (e for e in _below(body) if isinstance(e, Apply))


def _below(body: tuple[Stmt, ...]) -> Iterable[Expr]:
    """Yield the expressions in statements, each object once."""
    seen: set[int] = set()
    stack = [e for s in statements(body) for e in expressions(s)]
    while stack:
        e = stack.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        yield e
        if isinstance(e, Apply):
            stack += e.args
        elif isinstance(e, Load):
            stack.append(e.index)


def expressions(s: Stmt) -> list[Expr]:
    """Return the expressions of a statement, without those of statements inside."""
    if isinstance(s, Let | Assign):
        return [s.value]
    if isinstance(s, Store):
        return [s.index, s.value]
    if isinstance(s, Fold):
        return [s.value] if s.index is None else [s.index, s.value]
    if isinstance(s, For):
        return [s.start, s.stop]
    if isinstance(s, If):
        return [s.condition]
    if isinstance(s, Local):
        return [e for e in (s.size, s.init) if e is not None]
    return []


# -- names --------------------------------------------------------------------------------


def canonical(kernel: Kernel, prefix: str = "") -> Kernel:
    """Return `kernel` with its names replaced by ``b0, n0, t0, v0, ...`` in order.

    They begin with `prefix`.
    """
    names: dict[str, str] = {}
    names |= {b.name: f"{prefix}b{i}" for i, b in enumerate(kernel.buffers)}
    names |= {n: f"{prefix}n{i}" for i, n in enumerate(kernel.ints)}
    names |= {t.name: f"{prefix}t{i}" for i, t in enumerate(kernel.totals)}
    rename = _Renamer(names, prefix)
    buffers = tuple(replace(b, name=names[b.name]) for b in kernel.buffers)
    totals = tuple(
        Total(names[t.name], t.dtype, t.combine, names[t.out], t.size and rename.expr(t.size))
        for t in kernel.totals
    )
    ints = tuple(names[n] for n in kernel.ints)
    return Kernel(buffers, ints, totals, rename.body(kernel.body))


class _Renamer:
    """Renames what statements bind, in order of appearance."""

    def __init__(self, names: dict[str, str], prefix: str = "") -> None:
        self.names = names
        self.prefix = prefix
        self.count = 0
        self.done: dict[tuple[int, int], Expr] = {}
        self.alive: list[Expr] = []
        self.scope = 0

    def bind(self, name: str) -> str:
        """Give `name` its new one, from here on."""
        self.names[name] = f"{self.prefix}v{self.count}"
        self.count += 1
        self.scope += 1
        return self.names[name]

    def expr(self, expr: Expr) -> Expr:
        """Return `expr` with new names."""
        stack = [(expr, False)]
        while stack:
            e, ready = stack.pop()
            if (id(e), self.scope) in self.done:
                continue
            below = e.args if isinstance(e, Apply) else (e.index,) if isinstance(e, Load) else ()
            if below and not ready:
                stack.append((e, True))
                stack += [(a, False) for a in below]
                continue
            self.done[id(e), self.scope] = self._one(e, below)
            self.alive.append(e)
        return self.done[id(expr), self.scope]

    def _one(self, e: Expr, below: tuple[Expr, ...]) -> Expr:
        new = tuple(self.done[id(a), self.scope] for a in below)
        if isinstance(e, Var):
            return Var(e.dtype, self.names[e.name])
        if isinstance(e, Apply):
            return Apply(e.dtype, e.name, new)
        return Load(e.dtype, self.names[e.buffer], new[0]) if isinstance(e, Load) else e

    def body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements with new names."""
        return tuple(self.statement(s) for s in body)

    def statement(self, s: Stmt) -> Stmt:
        """Return one statement with new names."""
        if isinstance(s, Let):
            value = self.expr(s.value)
            return Let(self.bind(s.name), value)
        if isinstance(s, Local):
            size, init = s.size and self.expr(s.size), s.init and self.expr(s.init)
            return Local(self.bind(s.name), s.dtype, size, init)
        if isinstance(s, Assign):
            return Assign(self.names[s.name], self.expr(s.value))
        if isinstance(s, Store):
            return Store(self.names[s.buffer], self.expr(s.index), self.expr(s.value))
        if isinstance(s, Fold):
            index = s.index and self.expr(s.index)
            before = s.before and self.names[s.before]
            return Fold(self.names[s.target], s.combine, self.expr(s.value), index, before)
        if isinstance(s, If):
            return If(self.expr(s.condition), self.body(s.body), self.body(s.orelse))
        if isinstance(s, For):
            start, stop = self.expr(s.start), self.expr(s.stop)
            return For(self.bind(s.var), start, stop, self.body(s.body), s.kind)
        return s
