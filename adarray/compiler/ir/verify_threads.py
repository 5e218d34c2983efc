"""Checks of kernels for one thread of a grid: what their printers may rely on."""

from __future__ import annotations

from typing import Any

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
)
from adarray.compiler.ir.threads import (
    INDICES,
    REDUCTIONS,
    SHUFFLES,
    Atomic,
    Barrier,
    Comment,
    Pop,
    Push,
    Recall,
    Record,
    Stmt,
    ThreadKernel,
    WarpOp,
    While,
)
from adarray.compiler.ir.verify_loops import VerifyError
from adarray.compiler.scalars.dtypes import DTYPES

COMBINES = frozenset(("add", "minimum", "maximum"))
_TRUTHS = frozenset(("isnan", "isinf", "isfinite", "signbit"))


def verify(kernel: ThreadKernel) -> ThreadKernel:
    """Return `kernel` if it keeps the rules of `adarray.compiler.ir.threads`.

    Every name is declared once, before it is read and where it is seen; dtypes fit; memory that
    is written may be.

    Raises
    ------
    VerifyError
        Otherwise; the message names the statement and the reason.
    """
    _Verifier(kernel).run()
    return kernel


class _Verifier:
    def __init__(self, kernel: ThreadKernel) -> None:
        self.kernel = kernel
        self.memory = {b.name: b.dtype for b in kernel.buffers}
        self.memory |= {s.name: s.dtype for s in kernel.shared}
        self.memory |= {t.name: t.dtype for t in kernel.tables}
        self.fixed = {b.name for b in kernel.buffers if b.access == "in"}
        self.fixed |= {t.name for t in kernel.tables}
        # Dtypes of the names that are seen, and whether they may be assigned.
        first = {n: (d, False) for n, d in kernel.scalars} | dict.fromkeys(
            INDICES, ("uint32", False)
        )
        self.scopes: list[dict[str, tuple[str, bool]]] = [first]
        self.declared = {*self.memory, *first}

    def need(self, condition: object, where: Any, reason: str) -> None:
        """Raise unless `condition` holds."""
        if not condition:
            raise VerifyError(f"kernel {self.kernel.name}: {reason}, in {repr(where)[:300]}")

    def run(self) -> None:
        """Check everything."""
        k = self.kernel
        names = [b.name for b in k.buffers] + [n for n, _ in k.scalars]
        self.need(sorted(names) == sorted(k.order), k.order, "the order names other parameters")
        for d in [*self.memory.values(), *(d for _, d in k.scalars)]:
            self.need(d in DTYPES, d, f"dtype {d!r} is not known")
        self.body(k.body)

    def declare(self, name: str, dtype: str, changes: bool, where: Stmt) -> None:
        """Add a name to the innermost scope; no name is given twice, wherever it is seen."""
        self.need(name not in self.declared, where, f"the name {name!r} is taken")
        self.declared.add(name)
        self.scopes[-1][name] = (dtype, changes)

    def seen(self, name: str, where: Any) -> tuple[str, bool]:
        """Return what is known of a name."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        self.need(False, where, f"the name {name!r} is not declared")
        raise AssertionError

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Check statements with a scope of their own."""
        self.scopes.append({})
        memory = dict(self.memory)
        for s in body:
            self.statement(s)
        self.memory = memory
        self.scopes.pop()

    # -- expressions -----------------------------------------------------------------------

    def expr(self, e: Expr, where: Stmt, dtype: str | None = None) -> None:
        """Check an expression."""
        self.need(dtype is None or e.dtype == dtype, where, f"{dtype} is expected, not {e.dtype}")
        if isinstance(e, Var):
            known = self.seen(e.name, where)[0]
            self.need(known == e.dtype, where, f"{e.name!r} is {known}, not {e.dtype}")
        elif isinstance(e, Load):
            self.need(self.memory.get(e.buffer) == e.dtype, where, f"{e.buffer!r} is no {e.dtype}")
            self.expr(e.index, where, "int64")
        elif isinstance(e, Apply):
            for a in e.args:
                self.expr(a, where)
            dtypes = [a.dtype for a in e.args]
            if e.name == "where":
                good = dtypes[0] == "bool" and dtypes[1] == dtypes[2] == e.dtype
            elif e.name == "cast":
                good = len(dtypes) == 1
            elif e.dtype == "bool":
                good = len(set(dtypes)) == 1
            else:
                good = set(dtypes) == {e.dtype} or e.name in ("left_shift", "right_shift")
            self.need(good or e.name in _TRUTHS, where, f"the dtypes of {e.name} do not fit")
        else:
            self.need(isinstance(e, Const), where, f"{e!r} is no expression")

    # -- statements ------------------------------------------------------------------------

    def statement(self, s: Stmt) -> None:
        """Check one statement and those inside."""
        if isinstance(s, Let):
            self.expr(s.value, s)
            self.declare(s.name, s.value.dtype, False, s)
        elif isinstance(s, Local):
            self._local(s)
        elif isinstance(s, Assign):
            dtype, changes = self.seen(s.name, s)
            self.need(changes, s, f"{s.name!r} is assigned, and does not change")
            self.expr(s.value, s, dtype)
        elif isinstance(s, (Store, Atomic)):
            self._write(s)
        elif isinstance(s, WarpOp):
            self._warp(s)
        elif isinstance(s, Push):
            self.expr(s.value, s)
        elif isinstance(s, Pop):
            self.declare(s.name, s.dtype, False, s)
        elif isinstance(s, (Record, Recall)):
            self.expr(s.count, s, "int64")
            for name, dtype in s.arrays:
                self.need(name not in self.declared, s, f"the name {name!r} is taken")
                self.declared.add(name)
                self.memory[name] = dtype
                if isinstance(s, Recall):
                    self.fixed.add(name)
        elif isinstance(s, If):
            self.expr(s.condition, s, "bool")
            self.body(s.body)
            self.body(s.orelse)
        elif isinstance(s, For):
            self.expr(s.start, s, "int64")
            self.expr(s.stop, s, "int64")
            self.scopes.append({})
            self.declare(s.var, "int64", False, s)
            self.body(s.body)
            self.scopes.pop()
        elif isinstance(s, While):
            self.need(self.seen(s.condition, s) == ("bool", True), s, "its condition never changes")
            self.body(s.body)
        else:
            self.need(isinstance(s, (Barrier, Comment)), s, "this is no statement of threads")

    def _local(self, s: Local) -> None:
        if s.size is None:
            if s.init is not None:
                self.expr(s.init, s, s.dtype)
            self.declare(s.name, s.dtype, True, s)
            return
        self.need(isinstance(s.size, Const), s, "the size of an array is no constant")
        self.need(s.name not in self.declared, s, f"the name {s.name!r} is taken")
        self.declared.add(s.name)
        self.memory[s.name] = s.dtype

    def _warp(self, s: WarpOp) -> None:
        known = s.kind in SHUFFLES or s.kind in REDUCTIONS or s.kind == "match"
        self.need(known, s, f"kind {s.kind!r} is not known")
        self.need(s.width in (1, 2, 4, 8, 16, 32), s, "the width is no power of 2 up to 32")
        if s.kind not in REDUCTIONS:
            words = s.value.dtype in ("int32", "uint32", "int64", "uint64", "float32", "float64")
            self.need(words, s, f"{s.value.dtype} is not exchanged")
            self.expr(s.value, s)
        else:
            voted = s.value.dtype in (("bool",) if s.kind == "ballot" else ("int32", "uint32"))
            self.need(voted, s, f"{s.value.dtype} is not combined")
            self.expr(s.value, s)
        self.expr(s.lane, s, "int32")
        if s.mask is not None:
            self.expr(s.mask, s, "uint32")
        self.declare(s.name, s.dtype, False, s)

    def _write(self, s: Store | Atomic) -> None:
        self.expr(s.index, s, "int64")
        self.expr(s.value, s, self.memory.get(s.buffer, "memory"))
        self.need(s.buffer not in self.fixed, s, f"{s.buffer!r} is only read")
        if isinstance(s, Atomic):
            self.need(s.combine in COMBINES, s, f"combine is none of {', '.join(sorted(COMBINES))}")
            if s.result is not None:
                self.declare(s.result, s.value.dtype, False, s)
