"""Barriers stand where all threads of a block come: a check, before anything is lowered."""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Assign, Expr, For, If, Let, Load, Local, Var
from adarray.compiler.ir.threads import (
    THREAD,
    Atomic,
    Barrier,
    Stmt,
    ThreadKernel,
    While,
    all_statements,
    has_barrier,
)
from adarray.errors import KernelError


def check(kernel: ThreadKernel) -> None:
    """Refuse barriers in control flow that differs between threads of a block.

    Raises
    ------
    KernelError
        If there is one.
    """
    if not has_barrier(kernel.body):
        return
    varying = set(THREAD)
    own = {
        s.name for s in all_statements(kernel.body) if isinstance(s, Local) and s.size is not None
    }
    while True:
        size = len(varying)
        _spread(kernel.body, varying, own, False)
        if len(varying) == size:
            break
    _check_uniform(kernel.body, varying, own)


def _varies(e: Expr, varying: set[str], own: set[str]) -> bool:
    if isinstance(e, Var):
        return e.name in varying
    if isinstance(e, Load):
        return e.buffer in own or _varies(e.index, varying, own)
    return isinstance(e, Apply) and any(_varies(a, varying, own) for a in e.args)


def _spread(body: tuple[Stmt, ...], varying: set[str], own: set[str], inside: bool) -> None:
    """Note variables that differ between threads; `inside` of a branch that does, all do."""
    for s in body:
        if isinstance(s, (Let, Assign)):
            if inside or _varies(s.value, varying, own):
                varying.add(s.name)
        elif isinstance(s, Local):
            if s.init is not None and _varies(s.init, varying, own):
                varying.add(s.name)
        elif isinstance(s, Atomic):
            if s.result is not None:
                varying.add(s.result)
        elif isinstance(s, If):
            deeper = inside or _varies(s.condition, varying, own)
            _spread(s.body, varying, own, deeper)
            _spread(s.orelse, varying, own, deeper)
        elif isinstance(s, For):
            deeper = inside or _varies(s.start, varying, own) or _varies(s.stop, varying, own)
            _spread(s.body, varying, own, deeper)
        elif isinstance(s, While):
            _spread(s.body, varying, own, inside or s.condition in varying)


def _check_uniform(body: tuple[Stmt, ...], varying: set[str], own: set[str]) -> None:
    for s in body:
        differs = False
        parts: tuple[Stmt, ...]
        if isinstance(s, If):
            differs = _varies(s.condition, varying, own)
            parts = (*s.body, *s.orelse)
        elif isinstance(s, For):
            differs = _varies(s.start, varying, own) or _varies(s.stop, varying, own)
            parts = s.body
        elif isinstance(s, While):
            differs = s.condition in varying
            parts = s.body
        else:
            continue
        if differs and has_barrier(parts):
            line = next(t.line for t in all_statements(parts) if isinstance(t, Barrier))
            raise KernelError("a barrier that not all threads of a block reach", line)
        _check_uniform(parts, varying, own)
