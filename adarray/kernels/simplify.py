"""Loop IR of threads without what reading a source leaves behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

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
    walk,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Comment,
    Push,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    for_,
    if_,
    is_collective,
    reads,
    used,
    variables,
)
from adarray.kernels import build
from adarray.kernels.types import INTEGERS

_WRAPPING = ("add", "subtract", "multiply")


def simplified(kernel: ThreadKernel) -> ThreadKernel:
    """Return an equal kernel: names that stand for others and unread variables are gone."""
    body = kernel.body
    while True:
        again = _unread(_Substitution(body).run(body))
        if again == body:
            return replace(kernel, body=body)
        body = again


class _Substitution:
    """Puts constants and unchanging names in the place of names that only repeat them."""

    def __init__(self, body: tuple[Stmt, ...]) -> None:
        self.changing = {s.name for s in all_statements(body) if isinstance(s, Assign)}
        # Locals without a first value change too, and so does what they are copied to.
        self.changing |= {
            s.name for s in all_statements(body) if isinstance(s, Local) and s.init is None
        }
        self.by: dict[str, Expr] = {}

    def run(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements rewritten."""
        out: list[Stmt] = []
        for s in body:
            out += self._one(s)
        return tuple(out)

    def _one(self, s: Stmt) -> list[Stmt]:
        if isinstance(s, Local) and s.size is None and s.init is not None:
            if s.name in self.changing:
                return [replace(s, init=self.expr(s.init))]
            s = Let(s.name, s.init)
        if isinstance(s, Let):
            value = self.expr(s.value)
            steady = isinstance(value, Var) and value.name not in self.changing
            if isinstance(value, Const) or steady:
                self.by[s.name] = value
                return []
            return [Let(s.name, value)]
        if isinstance(s, Assign):
            return [Assign(s.name, self.expr(s.value))]
        if isinstance(s, Store):
            return [Store(s.buffer, self.expr(s.index), self.expr(s.value))]
        if isinstance(s, Atomic):
            return [replace(s, index=self.expr(s.index), value=self.expr(s.value))]
        if isinstance(s, WarpOp):
            mask = None if s.mask is None else self.expr(s.mask)
            return [replace(s, value=self.expr(s.value), lane=self.expr(s.lane), mask=mask)]
        if isinstance(s, Push):
            return [Push(self.expr(s.value))]
        if isinstance(s, For):
            start, stop = self.expr(s.start), self.expr(s.stop)
            return [for_(s.var, start, stop, self.run(s.body), s.kind)]
        if isinstance(s, While):
            return [replace(s, body=self.run(s.body))]
        if isinstance(s, If):
            return self._if(s)
        return [s]

    def _if(self, s: If) -> list[Stmt]:
        condition = self.expr(s.condition)
        body, orelse = self.run(s.body), self.run(s.orelse)
        if isinstance(condition, Const):
            return list(body if condition.value else orelse)
        if not body and orelse:
            condition, body, orelse = build.logical_not(condition), orelse, ()
        return [if_(condition, body, orelse)] if body else []

    def expr(self, e: Expr) -> Expr:
        """Return an expression rewritten."""
        if isinstance(e, Var):
            return self.by.get(e.name, e)
        if isinstance(e, Load):
            return Load(e.dtype, e.buffer, self.expr(e.index))
        if not isinstance(e, Apply):
            return e
        args = tuple(map(self.expr, e.args))
        if e.name == "cast":
            return self._cast(args[0], e.dtype)
        builders = {"add": build.add, "multiply": build.multiply, "subtract": build.subtract}
        if e.name in builders and e.dtype in INTEGERS:
            return builders[e.name](*args)
        return build.call(e.name, e.dtype, *args)

    def _cast(self, e: Expr, dtype: str) -> Expr:
        """Return a conversion; sums of 32 bits are made in the type that is wanted."""
        narrow = dtype == "int32" and e.dtype == "uint32"
        if narrow and isinstance(e, Apply) and e.name in _WRAPPING:
            a, b = (self._cast(x, dtype) for x in e.args)
            return build.call(e.name, dtype, a, b)
        if narrow and isinstance(e, Apply) and e.name == "cast" and e.args[0].dtype == "int32":
            return e.args[0]
        return build.cast(e, dtype)


def merged(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements in which a variable begins as what is added first, not as 0."""
    out = _cleared([_merged_inside(s) for s in body])
    i = 0
    while i < len(out):
        s = out[i]
        if isinstance(s, Local) and s.size is None and s.init is not None and build.is_zero(s.init):
            k = next((k for k in range(i + 1, len(out)) if _mentions(out[k], s.name)), i)
            out[k] = _set_in_branches(out[k], s.name)
            first = _first_sum(out[k], s.name)
            if first is not None:
                out[k] = Local(s.name, s.dtype, None, first)
                del out[i]
                continue
        i += 1
    return tuple(out)


def _cleared(body: list[Stmt]) -> list[Stmt]:
    """Return statements in which what is added to an element that was just set to 0 is stored."""
    out = list(body)
    for i, s in enumerate(body):
        if not isinstance(s, Store) or not build.is_zero(s.value):
            continue
        k = next((k for k in range(i + 1, len(out)) if _touches(out[k], s.buffer)), None)
        last = out[k] if k is not None else None
        if k is None or not isinstance(last, Store) or last.index != s.index:
            continue
        old = Load(s.value.dtype, s.buffer, s.index)
        if isinstance(last.value, Apply) and last.value.name == "add" and last.value.args[0] == old:
            added = last.value.args[1]
            if last.buffer == s.buffer and old not in walk(added):
                out[i] = Comment("")
                out[k] = Store(s.buffer, s.index, added)
    return [s for s in out if s != Comment("")]


def _touches(s: Stmt, buffer: str) -> bool:
    """Whether a statement reads or writes a memory, or waits for other threads that may."""
    return is_collective((s,)) or buffer in used((s,))


def _merged_inside(s: Stmt) -> Stmt:
    if isinstance(s, If):
        return if_(s.condition, merged(s.body), merged(s.orelse))
    if isinstance(s, For):
        return for_(s.var, s.start, s.stop, merged(s.body), s.kind)
    return replace(s, body=merged(s.body)) if isinstance(s, While) else s


def _mentions(s: Stmt, name: str) -> bool:
    for t in all_statements((s,)):
        if isinstance(t, (Assign, Local)) and t.name == name:
            return True
        if isinstance(t, While) and t.condition == name:
            return True
        if any(isinstance(e, Var) and e.name == name for e in reads(t)):
            return True
    return False


def _set_in_branches(s: Stmt, name: str) -> Stmt:
    """Return a branch in which what is added first to a variable that is 0 is what it is set to."""
    if not isinstance(s, If) or any(isinstance(e, Var) and e.name == name for e in reads(s)):
        return s

    def part(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        k = next((k for k, t in enumerate(body) if _mentions(t, name)), None)
        if k is None:
            return body
        first = _first_sum(body[k], name)
        set_ = _set_in_branches(body[k], name) if first is None else Assign(name, first)
        return (*body[:k], set_, *body[k + 1 :])

    return if_(s.condition, part(s.body), part(s.orelse))


def _first_sum(s: Stmt, name: str) -> Expr | None:
    """Return what a statement adds to a variable, if that is all that it does with it."""
    if not isinstance(s, Assign) or s.name != name or not isinstance(s.value, Apply):
        return None
    if s.value.name not in ("add", "subtract") or s.value.args[0] != Var(s.value.dtype, name):
        return None
    added = s.value.args[1]
    if name in variables(added):
        return None
    return added if s.value.name == "add" else build.negative(added)


def _unread(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements without scalars that nothing reads."""
    read: Counter[str] = Counter()
    for s in all_statements(body):
        own = s.name if isinstance(s, Assign) else None
        for e in reads(s):
            if isinstance(e, Var) and e.name != own:
                read[e.name] += 1
            elif isinstance(e, Load):
                read[e.buffer] += 1
        if isinstance(s, While):
            read[s.condition] += 1

    def keep(part: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in part:
            if isinstance(s, (Let, Local, Assign, WarpOp)) and not read[s.name]:
                array = isinstance(s, Local) and s.size is not None
                if not array or not any(
                    isinstance(t, (Store, Atomic)) and t.buffer == s.name
                    for t in all_statements(body)
                ):
                    continue
            if isinstance(s, Atomic) and s.result is not None and not read[s.result]:
                s = replace(s, result=None)
            if isinstance(s, If):
                then, orelse = keep(s.body), keep(s.orelse)
                if not then and not orelse:
                    continue
                s = if_(s.condition, then, orelse)
            elif isinstance(s, For):
                inner = keep(s.body)
                if not inner:
                    continue
                s = for_(s.var, s.start, s.stop, inner, s.kind)
            elif isinstance(s, While):
                s = replace(s, body=keep(s.body))
            out.append(s)
        return tuple(out)

    return keep(body)
