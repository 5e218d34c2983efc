"""One parallel loop in place of two: GPUs need more iterations than a short outermost axis has."""

from __future__ import annotations

from adarray.compiler.ir.affine import ONE, ZERO, slope
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    integer,
    statements,
    walk,
)
from adarray.compiler.schedule.vectors import expressions

SHORT = 8192  # iterations below which a loop is flattened with the one in it


def spread(loop: For, totals: frozenset[str] = frozenset()) -> For:
    """Return a parallel loop flattened with the serial ones that are all it consists of.

    The iterations of maps and of folds into totals are independent, whatever the loop is. Others
    stay as they are, and so do those of folds into arrays other than `totals`. Names that are bound
    before the inner loop, and tests of the data there, belong to each of its iterations then.
    """
    while True:
        *before, inner = loop.body
        if not isinstance(inner, For) or not all(isinstance(s, Let) or _refuses(s) for s in before):
            return loop
        names = {loop.var, *(s.name for s in before if isinstance(s, Let))}
        if not _flattens(loop, inner, names, totals):
            return loop
        # Neighbouring iterations are those of the loop along which arrays lie side by side.
        first, last = (inner, loop) if _swaps(loop, inner, names) else (loop, inner)
        var, count = f"{loop.var}_{inner.var}", last.stop
        passed = Var("int64", var)
        outer = Apply("int64", "floor_divide", (passed, count))
        passed_before = Apply("int64", "multiply", (Var("int64", first.var), count))
        body: tuple[Stmt, ...] = (
            Let(first.var, outer),
            Let(last.var, Apply("int64", "subtract", (passed, passed_before))),
            *before,
            *inner.body,
        )
        stop = Apply("int64", "multiply", (loop.stop, inner.stop))
        loop = For(var, integer(0), stop, body, "parallel")


def _swaps(loop: For, inner: For, names: set[str]) -> bool:
    """Whether neighbours along the outer loop share sectors, and those along the inner one do not.

    Vector loops in them go across these arrays.
    """
    if not _is_size(loop.stop, names):
        return False
    lets = {s.name: s.value for s in statements(loop.body) if isinstance(s, Let)}
    beside = {loop.var: 0, inner.var: 0}
    for vector in (s for s in inner.body if isinstance(s, For) and s.kind == "vector"):
        for s in vector.body:
            places = [e.index for x in expressions(s) for e in walk(x) if isinstance(e, Load)]
            places += [s.index] if isinstance(s, Store) else []
            for index in places:
                if slope(index, vector.var, lets) not in (ZERO, ONE):
                    for name in beside:
                        beside[name] += slope(index, name, lets) == ONE
    return beside[loop.var] > 0 and not beside[inner.var]


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
