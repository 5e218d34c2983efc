"""Checks of loop IR: what printers may rely on."""

from __future__ import annotations

import os

from adarray.base.environment import switch
from adarray.compiler.ir.affine import ZERO, slope
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import DTYPES, INTEGERS

COMBINES = frozenset({"add", "multiply", "maximum", "minimum", "logical_and", "logical_or"})
ACCESS = ("in", "out", "inout")


class VerifyError(AssertionError):
    """A kernel breaks the rules of loop IR: a mistake inside of adarray."""


def checking() -> bool:
    """Whether the environment variable ``ADARRAY_CHECK`` asks for checks of compiled code.

    Raises
    ------
    ValueError
        If it is neither 0, 1 nor empty.
    """
    # Nearly always it is not there.
    return "ADARRAY_CHECK" in os.environ and switch("ADARRAY_CHECK", False)


def verify(kernel: Kernel, after: str = "") -> Kernel:
    """Return `kernel` if it keeps the rules of `adarray.compiler.ir.loopir`.

    Parameters
    ----------
    kernel : Kernel
    after : str, optional
        The pass that returned it.

    Raises
    ------
    VerifyError
        Otherwise; the message names the pass, the statement and the reason.
    """
    _Verifier(kernel, f" after {after}" if after else "").run()
    return kernel


class _Verifier:
    def __init__(self, kernel: Kernel, after: str = "") -> None:
        self.kernel = kernel
        self.after = after
        self.buffers = {b.name: b for b in kernel.buffers}
        self.totals = {t.name: t for t in kernel.totals}
        # What each visible name is: a dtype (a value), or the statement that declares it.
        self.scopes: list[dict[str, str | Local]] = [dict.fromkeys(kernel.ints, "int64")]
        self.stage = "parallel"  # or "before", "after"

    # -- helpers ---------------------------------------------------------------------------

    def need(self, condition: object, where: object, reason: str) -> None:
        """Raise unless `condition` holds."""
        if not condition:
            text = repr(where)
            shown = text if len(text) < 300 else text[:300] + "..."
            raise VerifyError(f"loop IR{self.after}: {reason}, in {shown}")

    def visible(self, name: str) -> str | Local | None:
        """Return what a name is, None if it is not declared here."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def declare(self, name: str, what: str | Local, where: Stmt) -> None:
        """Add a name to the innermost scope."""
        declared = self.visible(name) is not None or name in self.buffers or name in self.totals
        self.need(not declared, where, f"the name {name!r} is taken")
        self.scopes[-1][name] = what

    # -- the kernel ------------------------------------------------------------------------

    def run(self) -> None:
        """Check everything."""
        k = self.kernel
        names = [b.name for b in k.buffers] + list(k.ints) + [t.name for t in k.totals]
        self.need(len(set(names)) == len(names), names, "two parameters have one name")
        for b in k.buffers:
            self.need(b.dtype in DTYPES, b, f"dtype {b.dtype!r} is not known")
            self.need(b.access in ACCESS, b, f"access is one of {', '.join(ACCESS)}")
            self.need(b.access == "out" or not b.stream, b, "what is streamed is only written")
        for t in k.totals:
            self.total(t)
        tops = [i for i, s in enumerate(k.body) if isinstance(s, For) and s.kind == "parallel"]
        self.need(len(tops) < 2, k.body, "there are two parallel loops")
        for i, s in enumerate(k.body):
            if tops:
                self.stage = "before" if i < tops[0] else "after" if i > tops[0] else "parallel"
            if tops and i == tops[0] + 1:
                scalars: dict[str, str | Local] = {
                    n: d for n, d in self.scopes[0].items() if isinstance(d, str)
                }
                self.scopes = [scalars]
            self.statement(s, top=True)

    def total(self, t: Total) -> None:
        """Check a total."""
        out = self.buffers.get(t.out)
        self.need(t.combine in COMBINES, t, f"combine is none of {', '.join(sorted(COMBINES))}")
        self.need(out is not None, t, f"there is no buffer {t.out!r}")
        assert isinstance(out, Param)
        self.need(out.access != "in", t, "its buffer is only read")
        self.need(out.dtype == t.dtype, t, "its buffer has another dtype")
        self.need(self.can_fold(t.combine, t.dtype), t, f"{t.combine} does not fold {t.dtype}")
        if t.size is not None:
            self.size(t.size, t)

    def can_fold(self, combine: str, dtype: str) -> bool:
        """Whether values of `dtype` can be combined."""
        return functions.supports(combine, [dtype, dtype], dtype)

    def size(self, size: Expr, where: object) -> None:
        """Check the size of an array: it is known when the kernel begins."""
        self.need(size.dtype == "int64", where, "a size is int64")
        for e in walk(size):
            self.need(not isinstance(e, Load), where, "a size reads memory")
            if isinstance(e, Var):
                self.need(
                    e.name in self.kernel.ints, where, f"a size depends on {e.name!r}, no parameter"
                )

    # -- expressions -----------------------------------------------------------------------

    def expr(self, expr: Expr, where: Stmt) -> None:
        """Check an expression; each object once."""
        seen: set[int] = set()
        stack = [expr]
        while stack:
            e = stack.pop()
            if id(e) in seen:
                continue
            seen.add(id(e))
            self.need(e.dtype in DTYPES, where, f"dtype {e.dtype!r} is not known")
            if isinstance(e, Const):
                self.constant(e, where)
            elif isinstance(e, Var):
                self.variable(e, where)
            elif isinstance(e, Apply):
                self.apply(e, where)
                stack += e.args
            elif isinstance(e, Load):
                self.load(e, where)
                stack.append(e.index)
            else:
                self.need(False, where, f"{e!r} is no expression")

    def constant(self, e: Const, where: Stmt) -> None:
        """Check that a constant has a value of its dtype."""
        if e.dtype == "bool":
            self.need(e.value in (False, True), where, f"{e.value!r} is no truth value")
        elif e.dtype in INTEGERS:
            low, high = functions.limits(e.dtype)
            good = int(e.value) == e.value and low <= e.value <= high
            self.need(good, where, f"{e.value!r} is no {e.dtype}")
        else:
            float(e.value)

    def variable(self, e: Var, where: Stmt) -> None:
        """Check that a variable is a declared scalar."""
        what = self.visible(e.name)
        self.need(what is not None, where, f"the name {e.name!r} is not declared")
        if isinstance(what, Local):
            self.need(what.size is None, where, f"{e.name!r} is an array")
            what = what.dtype
        self.need(what == e.dtype, where, f"{e.name!r} is {what}, not {e.dtype}")

    def apply(self, e: Apply, where: Stmt) -> None:
        """Check a function and the dtypes of its operands."""
        dtypes = [a.dtype for a in e.args]
        shown = f"{e.name}({', '.join(dtypes)}) -> {e.dtype}"
        self.need(functions.supports(e.name, dtypes, e.dtype), where, f"{shown} is not known")
        if e.name == "where":
            good = dtypes[0] == "bool" and dtypes[1] == dtypes[2] == e.dtype
        else:
            mixed = e.dtype == "bool" or e.name in ("cast", "real", "imag", "paired")
            good = mixed or all(d == e.dtype for d in dtypes)
        self.need(good, where, f"the dtypes of {shown} do not fit")

    def load(self, e: Load, where: Stmt) -> None:
        """Check that memory of the dtype is read at an int64 index."""
        self.need(e.index.dtype == "int64", where, "an index is not int64")
        self.need(self.memory(e.buffer, where) == e.dtype, where, f"{e.buffer!r} is no {e.dtype}")

    def memory(self, name: str, where: Stmt) -> str:
        """Return the dtype of a buffer or local array."""
        if name in self.buffers:
            return self.buffers[name].dtype
        what = self.visible(name)
        self.need(isinstance(what, Local) and what.size, where, f"there is no memory {name!r}")
        assert isinstance(what, Local)
        return what.dtype

    # -- statements ------------------------------------------------------------------------

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Check statements with a scope of their own."""
        self.scopes.append({})
        for s in body:
            self.statement(s)
        self.scopes.pop()

    def statement(self, s: Stmt, top: bool = False) -> None:
        """Check one statement and those inside."""
        if isinstance(s, Let):
            self.expr(s.value, s)
            self.declare(s.name, s.value.dtype, s)
        elif isinstance(s, Local):
            self.local(s)
        elif isinstance(s, Assign):
            self.expr(s.value, s)
            what = self.visible(s.name)
            good = isinstance(what, Local) and what.size is None and what.dtype == s.value.dtype
            self.need(good, s, f"{s.name!r} is no local scalar of dtype {s.value.dtype}")
        elif isinstance(s, Store):
            self.store(s)
        elif isinstance(s, Fold):
            self.fold(s)
        elif isinstance(s, If):
            self.expr(s.condition, s)
            self.need(s.condition.dtype == "bool", s, "a condition is not bool")
            self.body(s.body)
            self.body(s.orelse)
        elif isinstance(s, For):
            self.loop(s, top)
        else:
            self.need(isinstance(s, Fail) and s.code != 0, s, "this is no statement")

    def local(self, s: Local) -> None:
        """Check a declaration."""
        self.need(s.dtype in DTYPES, s, f"dtype {s.dtype!r} is not known")
        if s.size is not None:
            self.need(s.init is None, s, "an array has no first value")
            self.size(s.size, s)
        elif s.init is not None:
            self.expr(s.init, s)
            self.need(s.init.dtype == s.dtype, s, "the first value has another dtype")
        self.declare(s.name, s, s)

    def writable(self, name: str, dtype: str, s: Stmt) -> None:
        """Check that memory of `dtype` may be written here."""
        self.need(self.memory(name, s) == dtype, s, f"{name!r} is no {dtype}")
        if name in self.buffers:
            self.need(self.buffers[name].access != "in", s, f"{name!r} is only read")
            self.need(
                self.stage != "before", s, "buffers are written before the parallel loop, by all"
            )

    def store(self, s: Store) -> None:
        """Check a store."""
        self.expr(s.index, s)
        self.expr(s.value, s)
        self.need(s.index.dtype == "int64", s, "an index is not int64")
        self.writable(s.buffer, s.value.dtype, s)

    def fold(self, s: Fold) -> None:
        """Check a fold and its target."""
        self.expr(s.value, s)
        dtype = s.value.dtype
        self.need(s.combine in COMBINES, s, f"combine is none of {', '.join(sorted(COMBINES))}")
        self.need(self.can_fold(s.combine, dtype), s, f"{s.combine} does not fold {dtype}")
        if s.index is not None:
            self.expr(s.index, s)
            self.need(s.index.dtype == "int64", s, "an index is not int64")
        if s.before:
            what = self.visible(s.before)
            good = isinstance(what, Local) and what.size is None and what.dtype == dtype
            good = good and s.index is not None and s.target in self.buffers
            self.need(good, s, f"{s.before!r} is no local scalar for an element of a buffer")
        total = self.totals.get(s.target)
        if total is not None:
            self.need(self.stage == "parallel", s, "a total is folded outside the parallel loop")
            self.need(total.combine == s.combine, s, "the total combines otherwise")
            self.need(total.dtype == dtype, s, "the total has another dtype")
            self.need(
                (total.size is None) == (s.index is None), s, "an array wants an index, alone"
            )
        elif s.index is not None:
            self.writable(s.target, dtype, s)
        else:
            what = self.visible(s.target)
            good = isinstance(what, Local) and what.size is None and what.dtype == dtype
            self.need(good, s, f"{s.target!r} is no local scalar of dtype {dtype} and no total")

    # -- loops -----------------------------------------------------------------------------

    def loop(self, s: For, top: bool) -> None:
        """Check a loop and its body."""
        self.need(s.kind in ("serial", "parallel", "vector"), s, f"kind is {s.kind!r}")
        self.need(s.kind != "parallel" or top, s, "a parallel loop is inside of another statement")
        for bound in (s.start, s.stop):
            self.expr(bound, s)
            self.need(bound.dtype == "int64", s, "a bound is not int64")
        self.scopes.append({})
        self.declare(s.var, "int64", s)
        for inner in s.body:
            self.statement(inner)
        if s.kind == "vector":
            self.vector(s)
        elif s.kind == "parallel":
            self.parallel(s)
        self.scopes.pop()

    def parallel(self, s: For) -> None:
        """Check that iterations share nothing but totals."""
        own = {t.name for t in statements(s.body) if isinstance(t, Local)}
        for t in statements(s.body):
            names = [t.name] if isinstance(t, Assign) else []
            names += [t.target, t.before] if isinstance(t, Fold) else []
            for name in names:
                if name and name not in own and isinstance(self.visible(name), Local):
                    reason = f"iterations of the parallel loop share {name!r}; use a Total"
                    self.need(False, t, reason)

    def vector(self, s: For) -> None:
        """Check that iterations are independent."""
        lets = {t.name: t.value for t in s.body if isinstance(t, Let)}
        folded = set()
        for t in s.body:
            good = isinstance(t, Let | Store | Fold)
            self.need(good, t, "a vector loop holds Let, Store and Fold only")
            if isinstance(t, Store):
                self.need(
                    slope(t.index, s.var, lets) != ZERO, t, "all iterations store to one element"
                )
            elif isinstance(t, Fold) and t.before:
                self.need(False, t, "a vector loop has no order")
            elif isinstance(t, Fold) and t.index is None:
                folded.add(t.target)
            elif isinstance(t, Fold) and t.index is not None:
                by = slope(t.index, s.var, lets)
                self.need(by is not None, t, "the index of a fold is not affine in the variable")
        for t in s.body:
            for e in self.read(t):
                used = isinstance(e, Var) and e.name in folded
                self.need(not used, t, "a vector loop reads what it folds into")

    def read(self, s: Stmt) -> list[Expr]:
        """Return all expressions inside a statement of a vector loop, each object once."""
        expressions: dict[int, Expr] = {}
        stack = [e for e in (getattr(s, "value", None), getattr(s, "index", None)) if e is not None]
        while stack:
            e = stack.pop()
            if id(e) not in expressions:
                expressions[id(e)] = e
                stack += e.args if isinstance(e, Apply) else ()
                stack += [e.index] if isinstance(e, Load) else ()
        return list(expressions.values())
