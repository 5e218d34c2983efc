"""Loops of one thread as kernels of many threads: one for each iteration.

That is for GPUs, whose single threads are slow. What iterations add to elements that they share are
atomic additions; sums in variables are added to the element in which they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from adarray.compiler.ir.loopir import Assign, Const, Expr, For, If, Let, Local, Store, Var
from adarray.compiler.ir.threads import (
    Atomic,
    Comment,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    for_,
    if_,
    loads,
    reads,
    replaced,
)
from adarray.kernels import build
from adarray.kernels.carried import ADDED, MARKED, carried
from adarray.kernels.nests import Access, Loop, Nests, added, assigned, summed

BLOCK = 128  # threads
LEAST = 64  # iterations, for which it pays to have several threads
_FIT = (Let, Local, Assign, Store, If, For, While, Comment)


@dataclass(frozen=True, slots=True)
class Spread:
    """A kernel of many threads.

    Attributes
    ----------
    kernel : ThreadKernel
    blocks : int
        Of `BLOCK` threads each.
    """

    kernel: ThreadKernel
    blocks: int


class _Levels:
    """The loops whose iterations become threads: one, or two of which one is all of the other."""

    def __init__(self, nests: Nests, outer: For) -> None:
        self.nests = nests
        self.loops = [nests.loops[id(outer)]]
        self.between: list[Stmt] = []  # what comes before the inner loop
        self.atomic: set[str] = set()
        self.legal = self._is_legal(self.loops[0])
        lets: list[Stmt] = [s for s in outer.body if not isinstance(s, Comment)]
        last = lets[-1] if lets else None
        plain = all(isinstance(s, Let) for s in lets[:-1])
        if self.legal and isinstance(last, For) and plain:
            inner = nests.loops[id(last)]
            if inner.exact is not None and self._is_legal(inner):
                self.loops.append(inner)
                self.between = lets[:-1]

    @property
    def body(self) -> tuple[Stmt, ...]:
        """What each thread does."""
        return self.loops[-1].node.body

    @property
    def trips(self) -> int | None:
        """How many threads there are."""
        counts = [x.exact for x in self.loops]
        if None in counts:
            return None
        total = 1
        for n in counts:
            total *= n or 0
        return total

    def _is_legal(self, loop: Loop) -> bool:
        """Whether iterations are independent but for sums, for which `atomic` has the memory."""
        if not all(isinstance(s, _FIT) for s in all_statements(loop.node.body)):
            return False
        by_buffer: dict[str, list[Access]] = {}
        for a in self.nests.inside(loop.node.body):
            by_buffer.setdefault(a.buffer, []).append(a)
        own = {s.name for s in all_statements(loop.node.body) if isinstance(s, Local)}
        atomic: set[str] = set()
        for buffer, accesses in by_buffer.items():
            if buffer in own or not any(
                (a.writes or b.writes) and self.nests.meet_later(a, b, loop)
                for a in accesses for b in accesses
            ):  # fmt: skip
                continue
            if not all(a.sums for a in accesses):
                return False
            atomic.add(buffer)
        self.atomic |= atomic
        return True


def spread(kernel: ThreadKernel, integers: Mapping[str, int], zeros: Set[str]) -> Spread | None:
    """Return a kernel of many threads that does what one of one thread does; None: it cannot.

    Parameters
    ----------
    kernel : ThreadKernel
        Of a loop.
    integers : mapping of str to int
        Its parameters that are known.
    zeros : set of str
        Arrays that hold zeros before it runs.
    """
    body = [s for s in summed(kernel.body) if not isinstance(s, Comment)]
    places = [k for k, s in enumerate(body) if isinstance(s, For)]
    if len(places) != 1 or kernel.shared:
        return None
    before, behind = body[: places[0]], body[places[0] + 1 :]
    loop = body[places[0]]
    assert isinstance(loop, For)
    levels = _Levels(Nests(tuple(body), integers), loop)
    trips = levels.trips
    if not levels.legal or trips is None or trips < LEAST:
        return None
    if any(s.buffer in levels.atomic for s in behind if isinstance(s, Store)):
        return None
    ends = _ends(before, loop, behind, zeros)
    if ends is None:
        return None
    written = {s.buffer for s in all_statements(tuple(body)) if isinstance(s, Store)}
    if any(x.buffer in written for s in before for e in reads(s) for x in loads(e)):
        return None
    return Spread(_written(kernel, before, levels, ends), max(1, -(-trips // BLOCK)))


def _ends(
    before: Sequence[Stmt], loop: For, behind: Sequence[Stmt], zeros: Set[str]
) -> list[tuple[str, Store, str]] | None:
    """Return the variables that iterations set: where each ends, and what is done to it."""
    first = {s.name: s for s in before if isinstance(s, Local) and s.size is None}
    if len(first) + sum(isinstance(s, Let) for s in before) < len(before):
        return None
    names = assigned(loop.body)
    ends: list[tuple[str, Store, str]] = []
    for s in behind:
        if not isinstance(s, Store) or not isinstance(s.value, Var) or s.value.name not in names:
            return None
        if s.buffer not in zeros or s.value.name not in first:
            return None
        local = first[s.value.name]
        kind = carried(loop.body, local.name, local.dtype, names)
        if kind is None:
            return None
        marked = kind[0] == MARKED and isinstance(local.init, Const)
        if marked and isinstance(local.init, Const) and not 0 <= local.init.value <= kind[1]:
            return None
        if kind[0] != ADDED and not marked:
            return None
        ends.append((local.name, s, kind[0]))
    # What is not stored is of no use, but must not be what iterations go by.
    if names != {n for n, _, _ in ends} or len({s.buffer for _, s, _ in ends}) < len(ends):
        return None
    return ends


def _written(
    kernel: ThreadKernel,
    before: Sequence[Stmt],
    levels: _Levels,
    ends: list[tuple[str, Store, str]],
) -> ThreadKernel:
    """Return the kernel of many threads."""
    used = {s.name for s in all_statements(kernel.body) if isinstance(s, (Let, Local))}
    name = "thread"
    while name in used or name in kernel.order:
        name += "_"

    def index(what: str) -> Expr:
        return build.cast(Var("uint32", f"{what}.x"), "int64")

    at = Let(name, build.add(build.multiply(index("blockIdx"), index("blockDim")),
                             index("threadIdx")))  # fmt: skip
    thread = Var("int64", name)
    starts = {n: s for n, s, kind in ends if kind == ADDED}
    out: list[Stmt] = [at]
    first: dict[str, Expr] = {}
    for s in before:
        if isinstance(s, Local) and s.name in starts:
            zero = build.const(0, s.dtype)
            first[s.name] = zero if s.init is None else s.init
            out.append(replace(s, init=zero))
        else:
            out.append(s)
    outer = levels.loops[0].node
    body = _atomic(levels.body, levels.atomic)
    if len(levels.loops) == 1:
        lets: list[Stmt] = [Let(outer.var, build.add(outer.start, thread))]
        condition = build.compare("less", thread, build.subtract(outer.stop, outer.start))
    else:
        inner = levels.loops[1].node
        # Sizes are no part of the text; the bounds are evaluated once more, for any iteration.
        trips = _trips(inner, levels.between, outer)
        lets = [
            Let(outer.var, build.add(outer.start, build.call("quotient", "int64", thread, trips))),
            *levels.between,
            Let(inner.var, build.add(inner.start, build.call("modulo", "int64", thread, trips))),
        ]
        total = build.multiply(build.subtract(outer.stop, outer.start), trips)
        condition = build.compare("less", thread, total)
    out.append(if_(condition, [*lets, *body]))
    for n, value in first.items():
        alone = build.compare("equal", thread, build.index(0))
        dtype = starts[n].value.dtype
        out.append(if_(alone, [Assign(n, build.add(Var(dtype, n), value))]))
    for _, s, kind in ends:
        combine = "add" if kind == ADDED else "maximum"
        out.append(Atomic(s.buffer, s.index, combine, s.value))
    access = {s.buffer for _, s, _ in ends}
    buffers = tuple(
        replace(b, access="inout") if b.name in access and b.access == "out" else b
        for b in kernel.buffers
    )
    return replace(kernel, body=tuple(out), buffers=buffers)


def _trips(inner: For, between: list[Stmt], outer: For) -> Expr:
    """Return how many iterations an inner loop has, which is the same in all of the outer one."""
    by: dict[str, Expr] = {outer.var: outer.start}
    for s in between:
        assert isinstance(s, Let)
        by[s.name] = replaced(s.value, by)
    return build.subtract(replaced(inner.stop, by), replaced(inner.start, by))


def _atomic(body: Iterable[Stmt], memory: Set[str]) -> list[Stmt]:
    """Return statements in which additions to some memory are atomic."""
    out: list[Stmt] = []
    for s in body:
        value: Any = added(s) if isinstance(s, Store) and s.buffer in memory else None
        if isinstance(s, Store) and value is not None:
            out.append(Atomic(s.buffer, s.index, "add", value))
        elif isinstance(s, If):
            out.append(if_(s.condition, _atomic(s.body, memory), _atomic(s.orelse, memory)))
        elif isinstance(s, For):
            out.append(for_(s.var, s.start, s.stop, _atomic(s.body, memory), s.kind))
        elif isinstance(s, While):
            out.append(replace(s, body=tuple(_atomic(s.body, memory))))
        else:
            out.append(s)
    return out
