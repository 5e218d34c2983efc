"""Statements of one thread in an order in which what is set to 0 and added to is set at once.

A sum in memory waits for what was stored there just before. Other sums in between are made
afterwards: the order of additions is free, whether they are to the same element or not.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Assign, Expr, For, If, Load, Store, Var
from adarray.compiler.ir.threads import (
    Stmt,
    all_statements,
    for_,
    if_,
    loads,
    reads,
    used,
    variables,
)
from adarray.kernels import build


def set_at_once(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return equal statements, up to the order of additions."""
    out = [_inside(s) for s in body]
    k = 0
    while k < len(out):
        s = out[k]
        if isinstance(s, Store) and build.is_zero(s.value):
            again = _stored(out, k)
        elif isinstance(s, Assign) and build.is_zero(s.value):
            again = _assigned(out, k)
        else:
            again = None
        if again is None:
            k += 1
        else:
            out = again
    return tuple(out)


def _inside(s: Stmt) -> Stmt:
    if isinstance(s, If):
        return if_(s.condition, set_at_once(s.body), set_at_once(s.orelse))
    if isinstance(s, For):
        return for_(s.var, s.start, s.stop, set_at_once(s.body), s.kind)
    return s


def _added(s: Stmt, memory: str) -> Expr | None:
    """Return what a statement adds to an element, if it does nothing else with the memory."""
    if not isinstance(s, Store) or s.buffer != memory or not isinstance(s.value, Apply):
        return None
    old = Load(s.value.dtype, memory, s.index)
    if s.value.name not in ("add", "subtract") or s.value.args[0] != old:
        return None
    added = s.value.args[1]
    if any(x.buffer == memory for e in (added, s.index) for x in loads(e)):
        return None
    return added if s.value.name == "add" else build.negative(added)


def _stored(body: list[Stmt], k: int) -> list[Stmt] | None:
    """Return statements in which an element is set to the first thing that is added to it."""
    zero = body[k]
    assert isinstance(zero, Store)
    later: list[Stmt] = []
    between: list[Stmt] = []
    names: set[str] = set()  # that what is done later reads
    for at in range(k + 1, len(body)):
        s = body[at]
        added = _added(s, zero.buffer)
        if added is not None and isinstance(s, Store):
            if s.index == zero.index:
                first = Store(zero.buffer, zero.index, added)
                return [*body[:k], *between, first, *later, *body[at + 1 :]]
            later.append(s)
            names |= variables(s.index) | variables(s.value)
            names |= {x.buffer for e in (s.index, s.value) for x in loads(e)} - {zero.buffer}
            continue
        if zero.buffer in used((s,)) or _sets(s) & names:
            return None
        if _sets(s) & variables(zero.index):
            return None
        between.append(s)
    return None


def _sets(s: Stmt) -> set[str]:
    """Return the variables and memories that a statement changes."""
    names = {t.name for t in all_statements((s,)) if isinstance(t, Assign)}
    return names | {t.buffer for t in all_statements((s,)) if isinstance(t, Store)}


def _assigned(body: list[Stmt], k: int) -> list[Stmt] | None:
    """Return statements in which a variable is set to the first thing that is added to it."""
    zero = body[k]
    assert isinstance(zero, Assign)
    for at in range(k + 1, len(body)):
        s = body[at]
        here = [t for t in all_statements((s,)) if isinstance(t, Assign) and t.name == zero.name]
        read = any(isinstance(e, Var) and e.name == zero.name for t in all_statements((s,))
                   for e in reads(t))  # fmt: skip
        if not here and not read:
            continue
        e = s.value if isinstance(s, Assign) and s.name == zero.name else None
        if not isinstance(e, Apply) or e.name not in ("add", "subtract"):
            return None
        if e.args[0] != Var(e.dtype, zero.name) or zero.name in variables(e.args[1]):
            return None
        added = e.args[1] if e.name == "add" else build.negative(e.args[1])
        return [*body[:k], *body[k + 1 : at], Assign(zero.name, added), *body[at + 1 :]]
    return None
