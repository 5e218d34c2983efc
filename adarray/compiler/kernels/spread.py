"""One parallel loop in place of two: GPUs need more iterations than a short outermost axis has."""

from __future__ import annotations

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Let,
    Local,
    Stmt,
    Store,
    Var,
    integer,
    statements,
)

SHORT = 8192  # iterations below which a loop is flattened with the one in it


def spread(loop: For, totals: frozenset[str] = frozenset()) -> For:
    """Return a parallel loop flattened with the serial ones that are all it consists of.

    The iterations of maps and of folds into totals are independent, whatever the loop is. Others
    stay as they are, and so do those of folds into arrays other than `totals`. What is computed
    in front of the inner loop, such as an index that is read and checked, is computed in each
    iteration.
    """
    while True:
        ahead = tuple(s for s in loop.body if isinstance(s, Let) or _refuses(s))
        loops = [s for s in loop.body if isinstance(s, For)]
        if len(loops) != 1 or len(ahead) + 1 != len(loop.body):
            return loop
        (inner,) = loops
        names = {loop.var, *(s.name for s in ahead if isinstance(s, Let))}
        if not _flattens(loop, inner, names, totals):
            return loop
        var = f"{loop.var}_{inner.var}"
        passed, count = Var("int64", var), inner.stop
        outer = Apply("int64", "floor_divide", (passed, count))
        before = Apply("int64", "multiply", (Var("int64", loop.var), count))
        body: tuple[Stmt, ...] = (
            Let(loop.var, outer),
            Let(inner.var, Apply("int64", "subtract", (passed, before))),
            *ahead,
            *inner.body,
        )
        stop = Apply("int64", "multiply", (loop.stop, count))
        loop = For(var, integer(0), stop, body, "parallel")


def _flattens(loop: For, inner: For, names: set[str], totals: frozenset[str]) -> bool:
    begins = loop.start == integer(0) and inner.start == integer(0)
    if inner.kind != "serial" or not begins or not _is_size(inner.stop, names):
        return False
    return all(
        isinstance(s, Let | Store)
        or (isinstance(s, Local) and s.size is None)  # each iteration has its own
        or _refuses(s)
        or (isinstance(s, For) and s.kind in ("serial", "vector"))
        or (isinstance(s, Fold) and (s.index is None or s.target in totals))
        for s in statements(inner.body)
    )


def _refuses(s: Stmt) -> bool:
    """Whether a statement leaves the kernel where the data is wrong, and does nothing else."""
    if isinstance(s, If):
        return not s.orelse and all(isinstance(x, Fail) for x in s.body)
    return isinstance(s, Fail)


def _is_size(e: Expr, names: set[str]) -> bool:
    return isinstance(e, Const) or (isinstance(e, Var) and e.name not in names)
