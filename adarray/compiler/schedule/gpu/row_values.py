"""Values that a loop over a fetched row computes, and the last loop needs in its place.

The sum of a softmax computes exponentials that its result is made of. Where all that the last
loop makes of a row follows from one such value, the loop before it writes that into the slots
of the row (`adarray.compiler.schedule.gpu.shared_rows`) instead of what was fetched, and the last
loop reads it.

References
----------
- M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", arXiv:1805.02867, 2018
  (which folds the maximum and the sum in one loop, where this keeps the exponentials).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from adarray.compiler.ir.identity import IdentityMap
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    statements,
    walk,
)
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.schedule.gpu.shared_rows import FetchedRows
from adarray.compiler.schedule.vectors import expressions

ROW_VALUES = "row_values_"  # the name of the values as an array
# Operations from which on a value is rather stored than computed again, and what functions count.
WORTH, CALL = 5, 10


class Replacing(NamedTuple):
    """A kernel that replaces rows by values, and what it fetches."""

    kernel: Kernel
    fetched: FetchedRows


class Numbers:
    """Numbers of the values in loops: equal ones have the same, whatever their names are."""

    def __init__(self, source: str, known: dict[tuple[object, ...], int], loop: For) -> None:
        self.source = source
        self.known = known
        self.var = loop.var
        self.lets = {s.name: s.value for s in loop.body if isinstance(s, Let)}
        self.named: dict[str, int] = {}
        for name, value in self.lets.items():
            self.named[name] = self.of(value)

    def of(self, e: Expr) -> int:
        """Return the number of a value."""
        if isinstance(e, Var) and e.name in self.named:
            return self.named[e.name]
        return self.known.setdefault(self._key(e), len(self.known))

    def _key(self, e: Expr) -> tuple[object, ...]:
        if isinstance(e, Const):
            return "const", e.dtype, repr(e.value)
        if isinstance(e, Var):
            return ("iteration",) if e.name == self.var else ("name", e.name)
        if isinstance(e, Load):
            return "load", e.buffer, self.of(e.index)
        assert isinstance(e, Apply)
        return "apply", e.dtype, e.name, *(self.of(a) for a in e.args)

    def parts(self, e: Expr, stop: set[int]) -> list[Expr]:
        """Return what a value is computed of, without what values `stop` are computed of."""
        parts: list[Expr] = []
        seen: set[int] = set()
        stack = [e]
        while stack:
            x = stack.pop()
            while isinstance(x, Var) and x.name in self.lets:
                x = self.lets[x.name]
            n = self.of(x)
            if n in seen:
                continue
            seen.add(n)
            parts.append(x)
            if n not in stop:
                stack += x.args if isinstance(x, Apply) else ()
                stack += (x.index,) if isinstance(x, Load) else ()
        return parts

    def reached(self, e: Expr, stop: set[int]) -> set[int] | None:
        """Return which of the values `stop` `e` follows from; None if from the row otherwise."""
        parts = {self.of(x): x for x in self.parts(e, stop)}
        rest = (x for n, x in parts.items() if n not in stop)
        if any(isinstance(x, Load) and x.buffer == self.source for x in rest):
            return None
        return parts.keys() & stop

    def rebuilt(self, e: Expr, number: int, new: Expr) -> Expr:
        """Return `e` with `new` in place of the value of that number."""
        if self.of(e) == number:
            return new
        if isinstance(e, Apply):
            args = tuple(self.rebuilt(a, number, new) for a in e.args)
            return replace(e, args=args)
        return replace(e, index=self.rebuilt(e.index, number, new)) if isinstance(e, Load) else e


def replacing(kernel: Kernel, fetched: FetchedRows) -> Replacing | None:
    """Return the kernel that stores a value for its last loop; None if there is no such value."""
    if len(fetched.sources) != 1:
        return None
    first, last = fetched.inner[-2:]
    source = fetched.sources[0]
    known: dict[tuple[object, ...], int] = {}
    before = Numbers(source.buffer, known, first)
    after = Numbers(source.buffer, known, last)
    values = _values(kernel, fetched, before)
    hits: set[int] = set()
    for e in _results(last):
        reached = after.reached(e, set(values))
        if reached is None:
            return None
        hits |= reached
    if len(hits) != 1:
        return None
    (number,) = hits
    name, dtype = values[number]
    return _changed(kernel, fetched, (name, dtype, number), after)


def _values(kernel: Kernel, fetched: FetchedRows, numbers: Numbers) -> dict[int, tuple[str, str]]:
    """Return name and dtype of the values of the first loop that a slot could have instead."""
    first, last = fetched.inner[-2:]
    dtype = fetched.sources[0].dtype
    body = fetched.loop.body
    at = [i for i, s in enumerate(body) if s is first or s is last]
    changing = {
        x.name if isinstance(x, Assign) else x.target
        for x in statements(body[at[0] : at[1] + 1])
        if isinstance(x, Assign | Fold)
    }
    steady = {b.name for b in kernel.buffers if b.access == "in"}
    values = {}
    for s in first.body:
        if not isinstance(s, Let) or s.value.dtype != dtype:
            continue
        parts = numbers.parts(s.value, set())
        loads = {e.buffer for e in parts if isinstance(e, Load)}
        names = {e.name for e in parts if isinstance(e, Var)}
        free = loads <= steady and not names & changing
        if numbers.source in loads and free and cost(parts, dtype) >= WORTH:
            values[numbers.named[s.name]] = s.name, dtype
    return values


def cost(parts: list[Expr], dtype: str) -> int:
    """Return how many operations a value takes, of those that are made of all its operands."""
    functions = [e.name for e in parts if isinstance(e, Apply) and e.dtype == dtype]
    return sum(CALL if FUNCTIONS[n].is_call or n == "divide" else 1 for n in functions)


def _results(loop: For) -> list[Expr]:
    return [e for s in loop.body if not isinstance(s, Let) for e in expressions(s)]


def _changed(
    kernel: Kernel, fetched: FetchedRows, value: tuple[str, str, int], numbers: Numbers
) -> Replacing:
    """Return the kernel with a store of the value, and with loads of it in the last loop."""
    name, dtype, number = value
    first, last = fetched.inner[-2:]
    store = Store(ROW_VALUES, Var("int64", first.var), Var(dtype, name))
    load = Load(dtype, ROW_VALUES, Var("int64", last.var))
    body = [_rebuilt(s, numbers, number, load) for s in last.body]
    new = IdentityMap(
        [
            (first, replace(first, body=(*first.body, store))),
            (last, replace(last, body=needed(body))),
        ]
    )
    loop = replace(fetched.loop, body=tuple(_new(s, new) for s in fetched.loop.body))
    top = tuple(loop if s is fetched.loop else s for s in kernel.body)
    inner = tuple(new.get(s, s) for s in fetched.inner)
    loads = IdentityMap((new.get(s, s), by) for s, by in fetched.loads.items() if s is not last)
    loads[new[last]] = {load: 0}
    changed = fetched._replace(loop=loop, inner=inner, loads=loads)
    return Replacing(replace(kernel, body=top), changed)


def _new(s: Stmt, new: IdentityMap[For, For]) -> Stmt:
    return new.get(s, s) if isinstance(s, For) else s


def _rebuilt(s: Stmt, numbers: Numbers, number: int, load: Load) -> Stmt:
    if isinstance(s, Let):
        return Let(s.name, numbers.rebuilt(s.value, number, load))
    if isinstance(s, Store):
        index = numbers.rebuilt(s.index, number, load)
        return Store(s.buffer, index, numbers.rebuilt(s.value, number, load))
    if isinstance(s, Assign):
        return Assign(s.name, numbers.rebuilt(s.value, number, load))
    assert isinstance(s, Fold)
    index_ = None if s.index is None else numbers.rebuilt(s.index, number, load)
    return Fold(s.target, s.combine, numbers.rebuilt(s.value, number, load), index_)


def needed(body: list[Stmt]) -> tuple[Stmt, ...]:
    """Return statements without names that nothing needs."""
    needed: set[str] = set()
    remaining: list[Stmt] = []
    for s in reversed(body):
        if isinstance(s, Let) and s.name not in needed:
            continue
        remaining.append(s)
        needed |= {e.name for root in expressions(s) for e in walk(root) if isinstance(e, Var)}
    return tuple(reversed(remaining))
