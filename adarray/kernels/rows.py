"""Rows of elements that a thread of a GPU adds to: its warp adds them side by side.

The memory of a GPU takes the additions of a warp by sectors of 32 bytes. Where the threads of a
warp add to places far from each other, each thread to a few neighbours, one addition after the
other takes a sector for each thread each time. `gathered` puts such additions into an array of the
thread, and into one loop; a printer may let the threads of a warp add neighbours together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    for_,
    if_,
    is_collective,
    loads,
    variables,
)
from adarray.kernels import build

MOST = 16  # elements of a row
_INTEGERS = ("int32", "int64")


class _Index(NamedTuple):
    """An index as a sum: what it is besides a variable and a number, and multiples of these."""

    base: tuple[tuple[Expr, int], ...]
    step: int
    first: int


def _sum(e: Expr, lets: dict[str, Expr], var: str | None) -> _Index:
    """Return an index as a sum, with names of `lets` written out."""
    if isinstance(e, Const) and isinstance(e.value, int):
        return _Index((), 0, e.value)
    if isinstance(e, Var):
        if e.name == var:
            return _Index((), 1, 0)
        if e.name in lets:
            return _sum(lets[e.name], lets, var)
    if isinstance(e, Apply) and e.dtype in _INTEGERS:
        if e.name == "cast" and e.args[0].dtype in _INTEGERS:
            return _sum(e.args[0], lets, var)
        if e.name in ("add", "subtract"):
            a, b = (_sum(x, lets, var) for x in e.args)
            sign = 1 if e.name == "add" else -1
            parts = dict(a.base)
            for x, k in b.base:
                parts[x] = parts.get(x, 0) + sign * k
            base = sorted(((x, k) for x, k in parts.items() if k), key=repr)
            return _Index(tuple(base), a.step + sign * b.step, a.first + sign * b.first)
    return _Index(((e, 1),), 0, 0)


class _Addition(NamedTuple):
    """Additions of a block to neighbours: one, or those of a loop.

    Attributes
    ----------
    at : int
        Number of the statement in the block.
    atomic : Atomic
    loop : For, optional
        The statement, if it is a loop.
    place : _Index
        The index, by the loop's variable.
    """

    at: int
    atomic: Atomic
    loop: For | None
    place: _Index

    @property
    def places(self) -> range:
        """Elements that are added to, as distances from the base."""
        count = _trips(self.loop) if self.loop is not None else 1
        last = self.place.first + self.place.step * (count - 1)
        return range(min(self.place.first, last), max(self.place.first, last) + 1)


def _trips(loop: For) -> int:
    """Return the number of iterations of a loop that begins at 0; 0 where it is not known."""
    start, stop = loop.start, loop.stop
    if isinstance(start, Const) and isinstance(stop, Const) and start.value == 0:
        return int(stop.value)
    return 0


class _Rows:
    def __init__(self, kernel: ThreadKernel, buffers: set[str]) -> None:
        self.dtypes = {b.name: b.dtype for b in kernel.buffers}
        self.buffers = buffers
        self.count = 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements with rows in the place of additions to neighbours."""
        parts: dict[tuple[str, object], list[_Addition]] = {}
        for a in self._additions(body):
            parts.setdefault((a.atomic.buffer, a.place.base), []).append(a)
        out = list(body)
        before: dict[int, list[Stmt]] = {}
        behind: dict[int, list[Stmt]] = {}
        for additions in parts.values():
            if self._fits(additions, body):
                self._row(additions, out, before, behind)
        result: list[Stmt] = []
        for i, s in enumerate(out):
            result += before.get(i, ())
            result.append(self._inside(s))
            result += behind.get(i, ())
        return tuple(result)

    def _inside(self, s: Stmt) -> Stmt:
        if isinstance(s, If):
            return if_(s.condition, self.block(s.body), self.block(s.orelse))
        if isinstance(s, For):
            return for_(s.var, s.start, s.stop, self.block(s.body))
        return replace(s, body=self.block(s.body)) if isinstance(s, While) else s

    def _additions(self, body: tuple[Stmt, ...]) -> Iterator[_Addition]:
        """Yield additions to memory of all blocks."""
        for i, s in enumerate(body):
            if isinstance(s, Atomic) and self._counts(s):
                yield _Addition(i, s, None, _sum(s.index, {}, None))
            elif isinstance(s, For) and 1 < _trips(s) <= MOST:
                lets = {t.name: t.value for t in s.body if isinstance(t, Let)}
                for t in s.body:
                    if isinstance(t, Atomic) and self._counts(t):
                        index = _sum(t.index, lets, s.var)
                        own = {n for x, _ in index.base for n in variables(x)}
                        if abs(index.step) == 1 and not own & _set((s,)):
                            yield _Addition(i, t, s, index)

    def _counts(self, s: Atomic) -> bool:
        plain = s.combine == "add" and s.result is None and s.same == ""
        return plain and s.buffer in self.buffers and not any(True for _ in loads(s.index))

    def _fits(self, additions: list[_Addition], body: tuple[Stmt, ...]) -> bool:
        """Whether additions are a row, whose place is the same from the first to the last one."""
        places = sorted(p for a in additions for p in a.places)
        if not 1 < len(places) <= MOST or places != list(range(places[0], places[-1] + 1)):
            return False
        between = body[additions[0].at : additions[-1].at + 1]
        names = {n for x, _ in additions[0].place.base for n in variables(x)}
        return not names & _set(between) and not is_collective(between)

    def _row(
        self,
        additions: list[_Addition],
        out: list[Stmt],
        before: dict[int, list[Stmt]],
        behind: dict[int, list[Stmt]],
    ) -> None:
        """Write values into an array of the thread, and one loop that adds them."""
        buffer = additions[0].atomic.buffer
        dtype = self.dtypes[buffer]
        row = f"{buffer}__row{self.count}"
        self.count += 1
        places = [p for a in additions for p in a.places]
        first, size = min(places), len(places)
        before.setdefault(additions[0].at, []).append(Local(row, dtype, build.index(size)))
        for a in additions:
            step, offset = a.place.step, a.place.first - first
            if a.loop is None:
                out[a.at] = Store(row, build.index(offset), a.atomic.value)
                continue
            loop = out[a.at]
            assert isinstance(loop, For)
            var: Expr = Var("int64", loop.var)
            start: Expr = build.index(offset)
            at = build.add(start, var) if step > 0 else build.subtract(start, var)
            store = Store(row, at, a.atomic.value)
            inside: list[Stmt] = [*loop.body]
            inside[inside.index(a.atomic)] = store
            out[a.at] = for_(loop.var, loop.start, loop.stop, inside)
        k = Var("int64", f"{row}__k")
        place: Expr = build.index(first)
        for x, times in additions[0].place.base:
            term = build.multiply(build.index(times), build.cast(x, "int64"))
            place = build.add(place, term)
        added = Atomic(buffer, build.add(place, k), "add", Load(dtype, row, k), same="row")
        loop_ = for_(k.name, build.index(0), build.index(size), (added,))
        behind.setdefault(additions[-1].at, []).append(loop_)


def _set(body: tuple[Stmt, ...]) -> set[str]:
    """Return the variables that statements set."""
    names = set()
    for s in all_statements(body):
        if isinstance(s, (Let, Local, Assign)):
            names.add(s.name)
        elif isinstance(s, For):
            names.add(s.var)
    return names


def gathered(kernel: ThreadKernel, buffers: tuple[str, ...]) -> ThreadKernel:
    """Return an equal kernel with rows of additions to buffers that it only adds to.

    Parameters
    ----------
    kernel : ThreadKernel
    buffers : tuple of str
    """
    return replace(kernel, body=_Rows(kernel, set(buffers)).block(kernel.body))
