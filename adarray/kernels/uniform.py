"""Barriers stand where all threads of a block come: a check, before anything is lowered."""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Assign, Expr, For, If, Let, Load, Local, Var
from adarray.compiler.ir.threads import (
    THREAD,
    Atomic,
    Barrier,
    Pop,
    Stmt,
    ThreadKernel,
    WarpOp,
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
    varying, own = differing(kernel)
    _check_uniform(kernel.body, varying, own)


def differing(kernel: ThreadKernel) -> tuple[set[str], set[str]]:
    """Return variables that may differ between threads of a block, and arrays of a thread."""
    varying = set(THREAD)
    own = {
        s.name for s in all_statements(kernel.body) if isinstance(s, Local) and s.size is not None
    }
    while True:
        size = len(varying)
        _spread(kernel.body, varying, own, False)
        if len(varying) == size:
            return varying, own


def varies(e: Expr, varying: set[str], own: set[str]) -> bool:
    """Whether an expression may differ between threads of a block."""
    if isinstance(e, Var):
        return e.name in varying
    if isinstance(e, Load):
        return e.buffer in own or varies(e.index, varying, own)
    return isinstance(e, Apply) and any(varies(a, varying, own) for a in e.args)


def _spread(body: tuple[Stmt, ...], varying: set[str], own: set[str], inside: bool) -> None:
    """Note variables that differ between threads; `inside` of a branch that does, all do."""
    for s in body:
        if isinstance(s, (Let, Assign)):
            if inside or varies(s.value, varying, own):
                varying.add(s.name)
        elif isinstance(s, Local):
            if s.init is not None and varies(s.init, varying, own):
                varying.add(s.name)
        elif isinstance(s, (WarpOp, Pop)):
            varying.add(s.name)
        elif isinstance(s, Atomic):
            if s.result is not None:
                varying.add(s.result)
        elif isinstance(s, If):
            deeper = inside or varies(s.condition, varying, own)
            _spread(s.body, varying, own, deeper)
            _spread(s.orelse, varying, own, deeper)
        elif isinstance(s, For):
            deeper = inside or varies(s.start, varying, own) or varies(s.stop, varying, own)
            _spread(s.body, varying, own, deeper)
        elif isinstance(s, While):
            _spread(s.body, varying, own, inside or s.condition in varying)


def _check_uniform(body: tuple[Stmt, ...], varying: set[str], own: set[str]) -> None:
    for s in body:
        differs = False
        parts: tuple[Stmt, ...]
        if isinstance(s, If):
            differs = varies(s.condition, varying, own)
            parts = (*s.body, *s.orelse)
        elif isinstance(s, For):
            differs = varies(s.start, varying, own) or varies(s.stop, varying, own)
            parts = s.body
        elif isinstance(s, While):
            differs = s.condition in varying
            parts = s.body
        else:
            continue
        if differs and has_barrier(parts):
            barriers = [t for t in all_statements(parts) if isinstance(t, Barrier)]
            line = next(t.line for t in barriers if not t.warp)
            raise KernelError("a barrier that not all threads of a block reach", line)
        _check_uniform(parts, varying, own)
