"""A kernel run with every access checked: races, and indices out of range.

The kernel gets, beside each memory, notes of who touched an element last between two barriers.
Threads of a block run one after the other, so that what one finds is what another left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

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
    Param,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Shared,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    for_,
    if_,
)
from adarray.errors import KernelError, RaceError
from adarray.kernels import build
from adarray.kernels.geometry import Launch
from adarray.kernels.ownership import _me, size

# Kinds of errors, as numbers in the report.
RACE, RANGE = 1, 2
REPORT = "found__check"
_ROUND = "round__check"
_ME = "me__check"
_SHIFT = 1 << 32
# The first and the last thread that did something are noted: if both are this one, all were.
_KINDS = ("read", "write", "atomic", "last_read", "last_write", "last_atomic")
_AGAINST = {
    "read": ("write", "last_write", "atomic", "last_atomic"),
    "write": ("read", "last_read", "write", "last_write", "atomic", "last_atomic"),
    "atomic": ("read", "last_read", "write", "last_write"),
}


def notes(name: str, kind: str) -> str:
    """Return the name of the notes about a memory."""
    return f"{name}__{kind}"


class _Checker:
    """Writes checks before accesses.

    A note is the number of an interval between barriers, times 2**32, plus the thread plus 1. Of
    a buffer, whose elements other blocks may touch, it is the thread alone: no barrier settles
    what blocks do to each other.
    """

    def __init__(self, kernel: ThreadKernel) -> None:
        self.kernel = kernel
        self.buffers = {b.name for b in kernel.buffers}
        self.shared = {s.name: s for s in kernel.shared}
        self.sizes = {
            s.name: int(s.size.value)
            for s in all_statements(kernel.body)
            if isinstance(s, Local) and isinstance(s.size, Const)
        }
        self.sizes |= {t.name: len(t.values) for t in kernel.tables}
        self.names: list[str] = []

    def size(self, name: str) -> Expr:
        """Return how many elements a memory has."""
        if name in self.sizes:
            return build.index(self.sizes[name])
        known = self.shared.get(name)
        if known is not None and known.size is not None:
            return build.index(known.size)
        return Var("int64", size(name))

    def number(self, name: str) -> Expr:
        """Return the number of a memory in the report."""
        if name not in self.names:
            self.names.append(name)
        return build.index(self.names.index(name))

    def report(self, name: str, kind: int, index: Expr) -> tuple[Stmt, ...]:
        """Return statements that note what was found first."""
        code = build.add(build.multiply(self.number(name), build.index(4)), build.index(kind))
        zero = build.compare("equal", Load("int64", REPORT, build.index(0)), build.index(0))
        noted = (
            Store(REPORT, build.index(1), index),
            Store(REPORT, build.index(2), Var("int64", _ME)),
            Store(REPORT, build.index(0), code),
        )
        return (if_(zero, noted),)

    def access(self, name: str, index: Expr, kind: str, then: tuple[Stmt, ...]) -> list[Stmt]:
        """Return an access behind its checks; `kind` is "read", "write" or "atomic"."""
        inside_ = build.both(
            build.compare("less_equal", build.index(0), index),
            build.compare("less", index, self.size(name)),
        )
        body = [*self.races(name, index, kind), *then]
        return [if_(inside_, tuple(body), self.report(name, RANGE, index))]

    def races(self, name: str, index: Expr, kind: str) -> list[Stmt]:
        """Return checks of who touched an element before."""
        if name not in self.buffers and name not in self.shared:
            return []
        now: Expr = Var("int64", _ME)
        if name in self.shared:
            now = build.add(build.multiply(Var("int64", _ROUND), build.index(_SHIFT)), now)
        out: list[Stmt] = []
        for other in _AGAINST[kind]:
            before = Load("int64", notes(name, other), index)
            same = build.compare("equal", before, now)
            fine = build.call("logical_or", "bool", self._settled(name, before), same)
            out.append(if_(build.logical_not(fine), self.report(name, RACE, index)))
        first = notes(name, kind)
        settled = self._settled(name, Load("int64", first, index))
        out.append(if_(settled, (Store(first, index, now),)))
        out.append(Store(notes(name, f"last_{kind}"), index, now))
        return out

    def _settled(self, name: str, before: Expr) -> Expr:
        """Return whether nobody touched an element, or a barrier came since then."""
        if name not in self.shared:
            return build.compare("equal", before, build.index(0))
        begun = build.multiply(Var("int64", _ROUND), build.index(_SHIFT))
        return build.compare("less", before, begun)

    # -- statements ----------------------------------------------------------------------------

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements with checks."""
        out: list[Stmt] = []
        for s in body:
            self.statement(s, out)
        return tuple(out)

    def expr(self, e: Expr, out: list[Stmt]) -> Expr:
        """Return an expression whose loads are checked first."""
        if isinstance(e, Load):
            index = self.expr(e.index, out)
            name = f"v__{len(self.names)}_{self._next()}"
            at = f"{name}_at"
            out.append(Let(at, index))
            out.append(Local(name, e.dtype))
            here = Var("int64", at)
            load = (Assign(name, Load(e.dtype, e.buffer, here)),)
            out += self.access(e.buffer, here, "read", load)
            return Var(e.dtype, name)
        if isinstance(e, Apply):
            return Apply(e.dtype, e.name, tuple(self.expr(a, out) for a in e.args))
        return e

    _count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def statement(self, s: Stmt, out: list[Stmt]) -> None:
        """Add a statement behind its checks."""
        if isinstance(s, (Let, Assign)):
            out.append(replace(s, value=self.expr(s.value, out)))
        elif isinstance(s, Local):
            init = None if s.init is None or s.size is not None else self.expr(s.init, out)
            out.append(replace(s, init=init))
        elif isinstance(s, (Store, Atomic)):
            at = Let(f"at__{self._next()}", self.expr(s.index, out))
            value = self.expr(s.value, out)
            out.append(at)
            here = Var("int64", at.name)
            if isinstance(s, Atomic) and s.result is not None:
                out.append(Local(s.result, s.value.dtype))
                old = Load(s.value.dtype, s.buffer, here)
                body: tuple[Stmt, ...] = (
                    Assign(s.result, old), replace(s, index=here, value=value, result=None),
                )  # fmt: skip
            else:
                body = (replace(s, index=here, value=value),)
            kind = "write" if isinstance(s, Store) else "atomic"
            out += self.access(s.buffer, here, kind, body)
        elif isinstance(s, WarpOp):
            mask = None if s.mask is None else self.expr(s.mask, out)
            value, lane = self.expr(s.value, out), self.expr(s.lane, out)
            out.append(replace(s, value=value, lane=lane, mask=mask))
        elif isinstance(s, Barrier):
            out.append(s)
            out.append(Assign(_ROUND, build.add(Var("int64", _ROUND), build.index(1))))
        elif isinstance(s, If):
            condition = self.expr(s.condition, out)
            out.append(if_(condition, self.block(s.body), self.block(s.orelse)))
        elif isinstance(s, For):
            start, stop = self.expr(s.start, out), self.expr(s.stop, out)
            out.append(for_(s.var, start, stop, self.block(s.body)))
        elif isinstance(s, While):
            out.append(replace(s, body=self.block(s.body)))
        else:
            out.append(s)


def checked(kernel: ThreadKernel) -> tuple[ThreadKernel, tuple[str, ...]]:
    """Return a kernel that checks its accesses, and the memories that its report numbers."""
    checker = _Checker(kernel)
    body = checker.block(kernel.body)
    first = (
        Let(_ME, build.add(_me(False), build.index(1))),
        Local(_ROUND, "int64", None, build.index(1)),
    )
    buffers = [*kernel.buffers, Param(REPORT, "int64", "inout")]
    shared = list(kernel.shared)
    scalars = list(kernel.scalars)
    for b in kernel.buffers:
        buffers += [Param(notes(b.name, kind), "int64", "inout") for kind in _KINDS]
        scalars.append((size(b.name), "int64"))
    for s in kernel.shared:
        shared += [Shared(notes(s.name, kind), "int64", s.size, True) for kind in _KINDS]
        if s.size is None:
            scalars.append((size(s.name), "int64"))
    known = {n for n, _ in kernel.scalars} | {b.name for b in kernel.buffers}
    rest = [b.name for b in buffers if b.name not in known]
    rest += [n for n, _ in scalars if n not in known]
    checked_kernel = ThreadKernel(
        f"{kernel.name}_checked", tuple(buffers), tuple(scalars), (*kernel.order, *rest),
        tuple(shared), first + body, kernel.tables,
    )  # fmt: skip
    return checked_kernel, tuple(checker.names)


def arguments(kernel: ThreadKernel, launch: Launch, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the checked kernel takes beside the arguments of the kernel."""
    args: dict[str, Any] = {REPORT: np.zeros(3, np.int64)}
    for b in kernel.buffers:
        count = int(values[b.name].size)
        args[size(b.name)] = count
        for kind in _KINDS:
            args[notes(b.name, kind)] = np.zeros(count, np.int64)
    for s in kernel.shared:
        if s.size is None:
            args[size(s.name)] = launch.shared // np.dtype(s.dtype).itemsize
    return args


def judge(kernel: ThreadKernel, names: tuple[str, ...], report: Any, launch: Launch) -> None:
    """Raise what was found.

    Raises
    ------
    RaceError
        If two threads touched an element, one of them wrote it, and no barrier was between them.
    KernelError
        If an index was out of range.
    """
    code, index, me = map(int, report)
    if not code:
        return
    name, kind = names[code // 4], code % 4
    thread, block = (me - 1) % launch.threads, (me - 1) // launch.threads
    who = f"thread {thread} of block {block}"
    if kind == RANGE:
        raise KernelError(
            f"kernel {kernel.name}: {who} reaches for element {index} of {name!r}, which is out of "
            "range"
        )
    raise RaceError(
        f"kernel {kernel.name}: {who} touches element {index} of {name!r}, which another thread "
        "touches as well, and one of them writes; put a barrier between them, or use an atomic "
        "operation"
    )
