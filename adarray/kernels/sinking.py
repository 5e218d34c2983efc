"""Sums of a loop: what its iterations add to one element is added once, behind it.

Each atomic addition to memory waits for those of other threads, and all lanes of a warp whose
elements are the same wait for each other; a variable of the thread does not.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Let, Local, Var
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Pop,
    Stmt,
    WarpOp,
    While,
    all_statements,
    for_,
    if_,
    loads,
    reads,
    used,
    variables,
)
from adarray.kernels import build
from adarray.kernels.types import FLOATS


class Sinking:
    """Moves additions behind loops."""

    def __init__(self) -> None:
        self.count = 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements whose loops add what is theirs to the same element once."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, If):
                out.append(if_(s.condition, self.block(s.body), self.block(s.orelse)))
            elif isinstance(s, While):
                out.append(While(s.condition, self.block(s.body), s.line, s.any_thread))
            elif isinstance(s, For):
                out += self._loop(for_(s.var, s.start, s.stop, self.block(s.body), s.kind))
            else:
                out.append(s)
        return tuple(out)

    def _loop(self, loop: For) -> list[Stmt]:
        if any(isinstance(s, Barrier) for s in all_statements(loop.body)):
            return [loop]  # other threads may read the sums so far
        changing = {loop.var} | _set(loop.body)
        read = _read(loop.body)
        before: list[Stmt] = []
        body: list[Stmt] = []
        behind: list[Stmt] = []
        sums: dict[tuple[str, Expr, str], Var] = {}
        for s in loop.body:
            if not isinstance(s, Atomic) or s.buffer in read or not _stays(s, changing):
                body.append(s)
                continue
            key = (s.buffer, s.index, s.same)
            total = sums.get(key)
            if total is None:
                total = sums[key] = Var(s.value.dtype, f"{s.buffer}__loop{self.count}")
                self.count += 1
                before.append(Local(total.name, total.dtype, None, build.const(0, total.dtype)))
                behind.append(Atomic(s.buffer, s.index, "add", total, same=s.same))
            body.append(Assign(total.name, build.add(total, s.value)))
        if not sums:
            return [loop]
        # Without iterations there need not be such an element.
        runs = build.compare("less", loop.start, loop.stop)
        known = not variables(runs)
        last = behind if known else [if_(runs, behind)]
        return [*before, for_(loop.var, loop.start, loop.stop, body), *last]


def _stays(s: Atomic, changing: set[str]) -> bool:
    """Whether all iterations add to the same element, and none needs to know what it holds."""
    if s.combine != "add" or s.result is not None or s.value.dtype not in FLOATS:
        return False
    if s.same not in ("", "warp", "x", "y") or any(True for _ in loads(s.index)):
        return False
    return not variables(s.index) & changing


def _set(body: tuple[Stmt, ...]) -> set[str]:
    """Return the variables that statements set."""
    names: set[str] = set()
    for s in all_statements(body):
        if isinstance(s, (Let, Local, Assign, WarpOp, Pop)):
            names.add(s.name)
        elif isinstance(s, For):
            names.add(s.var)
        elif isinstance(s, Atomic) and s.result is not None:
            names.add(s.result)
    return names


def _read(body: tuple[Stmt, ...]) -> set[str]:
    """Return the memory that statements read or set, but for what they only add to."""
    names: set[str] = set()
    for s in all_statements(body):
        if isinstance(s, Atomic):
            if s.combine != "add" or s.result is not None:
                names.add(s.buffer)
            names |= {x.buffer for e in (s.index, s.value) for x in loads(e)}
        elif isinstance(s, If | For | While):
            names |= {x.buffer for e in reads(s) for x in loads(e)}
        else:
            names |= used((s,))
    return names
