"""A kernel for all members of a batch at once: ``blockIdx.z`` is the number of the member."""

from __future__ import annotations

from dataclasses import replace

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
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    all_statements,
    for_,
    if_,
    reads,
)
from adarray.kernels import build
from adarray.kernels.types import FLOATS

MOST_MEMBERS = 65535  # that a grid may have along z
_MEMBER = "member__z"


def stride(name: str) -> str:
    """Return the name of the number of elements from a member's array to that of the next."""
    return f"{name}__member"


def each(name: str) -> str:
    """Return the name of the array of the members' values of a number."""
    return f"{name}__each"


def uses_z(kernel: ThreadKernel) -> bool:
    """Whether a kernel reads its block's place along z, or how many there are."""
    names = ("blockIdx.z", "gridDim.z")
    return any(
        isinstance(e, Var) and e.name in names
        for s in all_statements(kernel.body)
        for e in reads(s)
    )


class _Members:
    """Writes statements whose memory is that of a member."""

    def __init__(self, kernel: ThreadKernel) -> None:
        self.buffers = {b.name for b in kernel.buffers}

    def at(self, buffer: str, index: Expr) -> Expr:
        """Return the index of an element of a member's array."""
        index = self.expr(index)
        if buffer not in self.buffers:
            return index
        first = build.multiply(Var("int64", _MEMBER), Var("int64", stride(buffer)))
        return build.add(first, index)

    def expr(self, e: Expr) -> Expr:
        """Return an expression."""
        if isinstance(e, Load):
            return Load(e.dtype, e.buffer, self.at(e.buffer, e.index))
        if isinstance(e, Apply):
            return Apply(e.dtype, e.name, tuple(map(self.expr, e.args)))
        return e

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return statements."""
        return tuple(map(self.statement, body))

    def statement(self, s: Stmt) -> Stmt:
        """Return a statement."""
        if isinstance(s, (Let, Assign)):
            return replace(s, value=self.expr(s.value))
        if isinstance(s, Local) and s.init is not None:
            return replace(s, init=self.expr(s.init))
        if isinstance(s, (Store, Atomic)):
            return replace(s, index=self.at(s.buffer, s.index), value=self.expr(s.value))
        if isinstance(s, WarpOp):
            mask = None if s.mask is None else self.expr(s.mask)
            return replace(s, value=self.expr(s.value), lane=self.expr(s.lane), mask=mask)
        if isinstance(s, If):
            return if_(self.expr(s.condition), self.block(s.body), self.block(s.orelse))
        if isinstance(s, For):
            start, stop = self.expr(s.start), self.expr(s.stop)
            return for_(s.var, start, stop, self.block(s.body), s.kind)
        return replace(s, body=self.block(s.body)) if isinstance(s, While) else s


def batched(kernel: ThreadKernel) -> ThreadKernel:
    """Return a kernel for all members, each of which is a layer of the grid.

    Its parameters are those of the kernel, with arrays of all members in the place of arrays and
    floating-point numbers; then, for each array, how far the members' parts are apart.
    """
    members = _Members(kernel)
    floats = [n for n, d in kernel.scalars if d in FLOATS]
    dtypes = dict(kernel.scalars)
    member = build.cast(Var("uint32", "blockIdx.z"), "int64")
    first: list[Stmt] = [Let(_MEMBER, member)]
    first += [Let(n, Load(dtypes[n], each(n), Var("int64", _MEMBER))) for n in floats]
    strides = tuple(stride(b.name) for b in kernel.buffers)
    return ThreadKernel(
        f"{kernel.name}_members",
        (*kernel.buffers, *(Param(each(n), dtypes[n], "in") for n in floats)),
        (*((n, d) for n, d in kernel.scalars if d not in FLOATS),
         *((n, "int64") for n in strides)),
        (*(each(n) if n in floats else n for n in kernel.order), *strides),
        kernel.shared, (*first, *members.block(kernel.body)), kernel.tables,
    )  # fmt: skip
