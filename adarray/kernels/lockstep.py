"""Exchanges of a warp in control flow that differs between threads, for processors.

All threads of a block run an exchange together, since a loop over threads ends there. Where only
some of them come to it, the branch or loop around it is taken by all threads; what those do that
do not belong there is left out piece by piece. Their part in an exchange does no harm: none of the
threads that belong there reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from adarray.compiler.ir.loopir import Assign, Expr, For, If, Let, Local, Var
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Pop,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
    for_,
    has_barrier,
    if_,
    is_collective,
    operands,
)
from adarray.kernels import build
from adarray.kernels.exits import limited
from adarray.kernels.uniform import differing, varies

_YES, _NO = build.const(True, "bool"), build.const(False, "bool")


def in_lockstep(kernel: ThreadKernel) -> ThreadKernel:
    """Return an equal kernel whose exchanges stand where all threads of a block come."""
    varying, own = differing(kernel)
    return replace(kernel, body=tuple(_Lockstep(varying, own).block(kernel.body, None)))


class _Lockstep:
    def __init__(self, varying: set[str], own: set[str]) -> None:
        self.varying = varying
        self.own = own
        self.count = 0

    def fresh(self, name: str) -> str:
        """Return a new name."""
        self.count += 1
        return f"{name}__{self.count}"

    def differs(self, *es: Expr) -> bool:
        """Whether an expression may differ between threads of a block."""
        return any(varies(e, self.varying, self.own) for e in es)

    def block(self, body: Iterable[Stmt], flag: Expr | None) -> list[Stmt]:
        """Return statements that threads with `flag` carry out; None stands for all threads."""
        out: list[Stmt] = []
        group: list[Stmt] = []

        def close() -> None:
            if group:
                out.extend(group if flag is None else [if_(flag, tuple(group))])
                group.clear()

        for s in body:
            if is_collective((s,)):
                close()
                out += self._collective(s, flag)
            elif flag is not None and (
                isinstance(s, (Let, Local, Pop)) or (isinstance(s, Atomic) and s.result)
            ):
                close()
                out += self._declared(s, group)
            else:
                group.append(s)
        close()
        return out

    def _declared(self, s: Let | Local | Pop | Atomic, group: list[Stmt]) -> list[Stmt]:
        """Return a declaration that later statements see; its value may come into `group`."""
        if isinstance(s, Pop):
            popped = self.fresh(s.name)
            group += [replace(s, name=popped), Assign(s.name, Var(s.dtype, popped))]
            return [Local(s.name, s.dtype)]
        if isinstance(s, Atomic):
            assert s.result is not None
            before = self.fresh(s.result)
            dtype = s.value.dtype
            group += [replace(s, result=before), Assign(s.result, Var(dtype, before))]
            return [Local(s.result, dtype)]
        if all(map(build.is_free, operands(s))):
            return [s]
        value = s.value if isinstance(s, Let) else s.init
        assert value is not None
        group.append(Assign(s.name, value))
        return [Local(s.name, value.dtype)]

    def _collective(self, s: Stmt, flag: Expr | None) -> list[Stmt]:
        """Return a statement in which threads wait for each other."""
        if isinstance(s, WarpOp):
            return [s if flag is None else limited(s, flag)]
        if isinstance(s, If):
            if has_barrier((s,)) or not self.differs(s.condition):
                return [if_(s.condition, self.block(s.body, flag), self.block(s.orelse, flag))]
            return self._branch(s, flag)
        if isinstance(s, For):
            if has_barrier((s,)) or not self.differs(s.start, s.stop):
                return [for_(s.var, s.start, s.stop, self.block(s.body, flag))]
            return self._counted(s, flag)
        if isinstance(s, While):
            if has_barrier((s,)) or s.condition not in self.varying:
                return [replace(s, body=tuple(self.block(s.body, flag)))]
            return self._while(s, flag)
        assert isinstance(s, Barrier)
        return [s]

    def _flag(self, condition: Expr, flag: Expr | None) -> tuple[list[Stmt], Expr]:
        """Return statements that find out which threads go on, and their flag."""
        name = self.fresh("here")
        here = Var("bool", name)
        if flag is None:
            return [Let(name, condition)], here
        return [Local(name, "bool", None, _NO), if_(flag, (Assign(name, condition),))], here

    def _branch(self, s: If, flag: Expr | None) -> list[Stmt]:
        out, here = self._flag(s.condition, flag)
        out += self.block(s.body, here)
        if s.orelse:
            others, rest = self._flag(build.logical_not(here), flag)
            out += [*others, *self.block(s.orelse, rest)]
        return out

    def _counted(self, s: For, flag: Expr | None) -> list[Stmt]:
        at, stop, more = (self.fresh(n) for n in ("at", "stop", "more"))
        bounds: list[Stmt] = [Assign(at, s.start), Assign(stop, s.stop)]
        here, end = Var("int64", at), Var("int64", stop)
        goes_on = Var("bool", more)
        test = Assign(more, build.compare("less", here, end))
        step = (Assign(at, build.add(here, build.index(1))), test)
        body = [Let(s.var, here), *self.block(s.body, goes_on), if_(goes_on, step)]
        first = (*bounds, test)
        return [
            Local(at, "int64", None, build.index(0)),
            Local(stop, "int64", None, build.index(0)),
            Local(more, "bool", None, _NO),
            if_(_YES if flag is None else flag, first),
            While(more, tuple(body), 0, True),
        ]

    def _while(self, s: While, flag: Expr | None) -> list[Stmt]:
        # The condition changes before the end of an iteration, which goes on nevertheless.
        more = self.fresh("more")
        condition: Expr = Var("bool", s.condition)
        going = condition if flag is None else build.both(flag, condition)
        here = Var("bool", self.fresh("here"))
        body = [
            Let(here.name, Var("bool", more)),
            *self.block(s.body, here),
            if_(here, (Assign(more, condition),)),
        ]
        return [Local(more, "bool", None, going), While(more, tuple(body), s.line, True)]
