"""Threads that have left a kernel in which others still wait for each other.

A barrier must be reached by all threads of a block. Where some have returned, what they no longer
do is left out piece by piece, and the barriers in between stay for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Let, Local
from adarray.compiler.ir.threads import (
    REDUCTIONS,
    Stmt,
    WarpOp,
    While,
    for_,
    has_barrier,
    if_,
    operands,
)
from adarray.kernels import build


def masked(body: Iterable[Stmt], flag: Expr) -> list[Stmt]:
    """Return statements of which only barriers, and what decides about them, run without `flag`."""
    out: list[Stmt] = []
    group: list[Stmt] = []

    def close() -> None:
        if group:
            out.append(if_(flag, tuple(group)))
            group.clear()

    for s in body:
        if isinstance(s, (Let, Local)):
            free = all(map(build.is_free, operands(s)))
            if free:
                close()
                out.append(s)
                continue
            value = s.value if isinstance(s, Let) else s.init
            assert value is not None
            out.append(Local(s.name, value.dtype, None, None))
            group.append(Assign(s.name, value))
        elif isinstance(s, Assign) and build.is_free(s.value):
            close()
            out.append(s)
        elif isinstance(s, WarpOp):
            close()
            out.append(limited(s, flag))
        elif not has_barrier((s,)):
            group.append(s)
        else:
            close()
            out.append(_inside(s, flag))
    close()
    return out


def limited(s: WarpOp, flag: Expr) -> WarpOp:
    """Return an operation of a warp to which threads without `flag` add nothing."""
    if s.kind not in REDUCTIONS:
        return s
    return replace(s, value=build.where(flag, s.value, neutral(s)))


def neutral(s: WarpOp) -> Expr:
    """Return the value that changes nothing in a reduction of a warp."""
    value = REDUCTIONS[s.kind]
    if value is None:
        limits = np.iinfo(s.value.dtype)
        value = int(limits.max if s.kind == "minimum" else limits.min)
    return build.const(value, s.value.dtype)


def _inside(s: Stmt, flag: Expr) -> Stmt:
    """Return a statement that holds a barrier with its body masked."""
    if isinstance(s, For):
        return for_(s.var, s.start, s.stop, tuple(masked(s.body, flag)))
    if isinstance(s, While):
        return While(s.condition, tuple(masked(s.body, flag)), s.line)
    if isinstance(s, If):
        return if_(s.condition, tuple(masked(s.body, flag)), tuple(masked(s.orelse, flag)))
    return s
