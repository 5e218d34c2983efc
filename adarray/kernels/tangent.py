"""The tangent of a kernel: each statement is followed by the derivative of what it computes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
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
    Pop,
    Push,
    Recall,
    Record,
    Shared,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    for_,
    if_,
)
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.activity import _FLAT
from adarray.kernels.functions import NAMED, PARTIALS
from adarray.kernels.types import FLOATS


def tangent_name(name: str) -> str:
    """Return the name of a value's derivative."""
    return f"{name}__t"


@dataclass(frozen=True, slots=True)
class TangentKernel:
    """The tangent of a kernel.

    Attributes
    ----------
    kernel : ThreadKernel
        Its parameters are those of the kernel, then tangents of the active ones.
    tangents : dict
        Name of the tangent by that of the parameter.
    """

    kernel: ThreadKernel
    tangents: dict[str, str]


class TangentTransform:
    """Differentiates statements."""

    def __init__(self, kernel: ThreadKernel, inputs: frozenset[str]) -> None:
        self.kernel = kernel
        self.names = set(inputs)
        self.count = 0
        # Everything on the tape is active if anything of a float is: both halves must agree.
        statements = list(all_statements(kernel.body))
        while True:
            size = len(self.names)
            for s in statements:
                self._spread(s)
            if len(self.names) == size:
                break

    def _spread(self, s: Stmt) -> None:
        """Note what a statement makes active."""
        if (isinstance(s, (Let, Assign)) and self.depends(s.value)) or (
            isinstance(s, Local) and s.init is not None and s.size is None and self.depends(s.init)
        ):
            self.names.add(s.name)
        elif isinstance(s, (Store, Atomic)) and self.depends(s.value):
            self.names.add(s.buffer)
        elif isinstance(s, (Record, Recall)):
            self.names |= {n for n, d in s.arrays if d in FLOATS}
        elif (isinstance(s, Pop) and s.dtype in FLOATS) or (
            isinstance(s, WarpOp) and s.dtype in FLOATS and self.depends(s.value)
        ):
            self.names.add(s.name)
        if isinstance(s, Atomic) and s.result is not None and s.buffer in self.names:
            self.names.add(s.result)

    def depends(self, e: Expr) -> bool:
        """Whether an expression has a tangent."""
        if e.dtype not in FLOATS:
            return False
        if isinstance(e, Var):
            return e.name in self.names
        if isinstance(e, Load):
            return e.buffer in self.names
        return isinstance(e, Apply) and e.name not in _FLAT and any(map(self.depends, e.args))

    def expr(self, e: Expr, out: list[Stmt]) -> tuple[Expr, Expr]:
        """Return an expression with its tangent; what both use is named."""
        if not self.depends(e):
            return e, build.const(0, e.dtype)
        if isinstance(e, Var):
            return e, Var(e.dtype, tangent_name(e.name))
        if isinstance(e, Load):
            return e, Load(e.dtype, tangent_name(e.buffer), e.index)
        assert isinstance(e, Apply)
        pairs = [self.expr(a, out) if a.dtype in FLOATS else (a, a) for a in e.args]
        args = tuple(a for a, _ in pairs)
        if e.name == "cast":
            return Apply(e.dtype, "cast", args), build.cast(pairs[0][1], e.dtype)
        if e.name == "where":
            (c, _), (a, da), (b, db) = pairs
            changed = self._strong_zero(e, db, out)
            return Apply(e.dtype, "where", (c, a, b)), build.where(c, da, changed)
        value: Expr = Apply(e.dtype, e.name, args)
        if e.name in NAMED:
            value = self.named(value, out)
        if e.name not in PARTIALS:
            raise KernelError(f"the derivative of {e.name} is not known")
        total: Expr = build.const(0, e.dtype)
        for p, (a, d), source in zip(PARTIALS[e.name](args, value), pairs, e.args, strict=True):
            if p is not None and a.dtype in FLOATS and self.depends(source):
                total = build.add(total, build.multiply(d, p))
        if isinstance(total, Apply) and total.name != "negative":
            total = self.named(total, out)
        return value, total

    def _strong_zero(self, e: Apply, tangent: Expr, out: list[Stmt]) -> Expr:
        """Return the tangent of the number that `where` chooses last.

        Where that is a share of a cotangent of 0 that does not change either, it is 0 for nan: a
        derivative may be finite, and its own derivative infinite.
        """
        cotangent = build.cotangent_of(e)
        if cotangent is None:
            return tangent
        tangent = self.named(tangent, out)
        idle = build.strong_zero(cotangent, tangent)
        changes = self.expr(cotangent, out)[1]
        zero = build.const(0, changes.dtype)
        return build.where(build.compare("equal", changes, zero), idle, tangent)

    def named(self, e: Expr, out: list[Stmt]) -> Expr:
        """Return a value by a name of its own."""
        self.count += 1
        out.append(Let(f"t__{self.count}", e))
        return Var(e.dtype, f"t__{self.count}")

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements with their tangents."""
        out: list[Stmt] = []
        for s in body:
            self.statement(s, out)
        return tuple(out)

    def statement(self, s: Stmt, out: list[Stmt]) -> None:
        """Add a statement and its tangent."""
        if isinstance(s, Let):
            value, d = self.expr(s.value, out)
            if s.name in self.names:
                out.append(Let(tangent_name(s.name), d))
            out.append(Let(s.name, value))
        elif isinstance(s, Local):
            self._local(s, out)
        elif isinstance(s, Assign):
            value, d = self.expr(s.value, out)
            if s.name in self.names:
                d = self.named(d, out) if isinstance(d, Apply) else d
                value = self.named(value, out) if isinstance(value, Apply) else value
                out.append(Assign(tangent_name(s.name), d))
            out.append(Assign(s.name, value))
        elif isinstance(s, Store):
            value, d = self.expr(s.value, out)
            if s.buffer in self.names:
                out.append(Store(tangent_name(s.buffer), s.index, d))
            out.append(Store(s.buffer, s.index, value))
        elif isinstance(s, Atomic):
            self._atomic(s, out)
        elif isinstance(s, WarpOp):
            value, d = self.expr(s.value, out)
            if s.name in self.names:
                out.append(replace(s, name=tangent_name(s.name), value=d))
            out.append(replace(s, value=value))
        elif isinstance(s, Push):
            value, d = self.expr(s.value, out)
            out.append(Push(value))
            if s.value.dtype in FLOATS:
                out.append(Push(d))
        elif isinstance(s, Pop):
            if s.dtype in FLOATS:
                out.append(Pop(tangent_name(s.name), s.dtype))
            out.append(s)
        elif isinstance(s, (Record, Recall)):
            tangents = tuple((tangent_name(n), d) for n, d in s.arrays if d in FLOATS)
            out.append(replace(s, arrays=(*s.arrays, *tangents)))
        elif isinstance(s, If):
            out.append(if_(s.condition, self.block(s.body), self.block(s.orelse)))
        elif isinstance(s, For):
            out.append(for_(s.var, s.start, s.stop, self.block(s.body), s.kind))
        elif isinstance(s, While):
            out.append(While(s.condition, self.block(s.body), s.line))
        else:
            out.append(s)

    def _local(self, s: Local, out: list[Stmt]) -> None:
        if s.name in self.names:
            if s.size is not None:
                zero = build.const(0, s.dtype)
                out.append(Local(tangent_name(s.name), s.dtype, s.size, zero))
            else:
                init, d = self.expr(s.init, out) if s.init is not None else (None, None)
                out.append(Local(tangent_name(s.name), s.dtype, None, d))
                out.append(Local(s.name, s.dtype, None, init))
                return
        out.append(s)

    def _atomic(self, s: Atomic, out: list[Stmt]) -> None:
        value, d = self.expr(s.value, out)
        if s.buffer in self.names:
            if s.result is not None and s.value.dtype in FLOATS:
                raise KernelError(
                    f"the result of an atomic operation on {s.buffer!r} is used, and depends on "
                    "the order of threads; it has no derivative"
                )
            out.append(replace(s, buffer=tangent_name(s.buffer), value=d, result=None))
        out.append(replace(s, value=value))


def tangent(kernel: ThreadKernel, inputs: frozenset[str]) -> TangentKernel:
    """Return the tangent of a kernel by some of its parameters."""
    forward = TangentTransform(kernel, inputs)
    body = forward.block(kernel.body)
    names = forward.names
    buffers = list(kernel.buffers)
    scalars = list(kernel.scalars)
    order = list(kernel.order)
    tangents = {}
    for b in kernel.buffers:
        if b.name in names and b.dtype in FLOATS:
            tangents[b.name] = tangent_name(b.name)
            buffers.append(Param(tangent_name(b.name), b.dtype, b.access))
            order.append(tangent_name(b.name))
    for n, d in kernel.scalars:
        if n in names and d in FLOATS:
            tangents[n] = tangent_name(n)
            scalars.append((tangent_name(n), d))
            order.append(tangent_name(n))
    shared = list(kernel.shared)
    shared += [
        Shared(tangent_name(s.name), s.dtype, s.size, True)
        for s in kernel.shared
        if s.name in names
    ]
    tangent_kernel = ThreadKernel(
        f"{kernel.name}_tangent",
        tuple(buffers),
        tuple(scalars),
        tuple(order),
        tuple(shared),
        body,
        kernel.tables,
    )
    return TangentKernel(tangent_kernel, tangents)


def doubled(kernel: ThreadKernel) -> ThreadKernel:
    """Return what counts the tape of a tangent: every float on it has a tangent behind it."""

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, If):
                s = if_(s.condition, block(s.body), block(s.orelse))
            elif isinstance(s, For):
                s = for_(s.var, s.start, s.stop, block(s.body), s.kind)
            elif isinstance(s, While):
                s = While(s.condition, block(s.body), s.line)
            out += [s, s] if isinstance(s, Push) and s.value.dtype in FLOATS else [s]
        return tuple(out)

    return replace(kernel, body=block(kernel.body))
