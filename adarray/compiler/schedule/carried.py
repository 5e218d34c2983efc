"""Totals of rows: what a row adds to a total is added to it at once, not first to a sum of the row.

Lanes of such a sum go on from row to row (see `adarray.compiler.print_c.vectors`). A sum of its
own for each row costs a tree of additions, as much as the terms themselves where rows are short:
the gradients of a convolution's weights are nine sums or more over the same short rows.

References
----------
- N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), 783-799.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from adarray.compiler.ir.loopir import (
    Assign,
    Const,
    Fold,
    For,
    Kernel,
    Local,
    Stmt,
    Var,
    statements,
    walk,
)
from adarray.compiler.scalars.dtypes import FLOATS
from adarray.compiler.schedule.vectors import expressions


def added_at_once(kernel: Kernel) -> Kernel:
    """Return `kernel` with terms added to totals, where only a row's sum of them was."""
    totals = {t.name for t in kernel.totals if t.combine == "add" and t.size is None}
    if not totals:
        return kernel
    reads = Counter(
        e.name
        for s in statements(kernel.body)
        for root in expressions(s)
        for e in walk(root)
        if isinstance(e, Var)
    )
    body = tuple(_direct(s, totals, reads) for s in kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _direct(s: Stmt, totals: set[str], reads: Counter[str]) -> Stmt:
    """Return a loop whose rows add to totals at once."""
    if not isinstance(s, For) or s.kind == "vector":
        return s
    sums = {
        x.value.name: x.target
        for x in s.body
        if isinstance(x, Fold)
        and x.target in totals
        and isinstance(x.value, Var)
        and reads[x.value.name] == 1
    }
    sums = {name: total for name, total in sums.items() if _only_added(s.body, name)}
    body = tuple(
        _direct(_retargeted(x, sums), totals, reads)
        for x in s.body
        if not (isinstance(x, Local) and x.name in sums)
        and not (isinstance(x, Fold) and isinstance(x.value, Var) and x.value.name in sums)
    )
    return replace(s, body=body)


def _only_added(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether a local scalar of a loop starts as 0 and sums, in vector loops alone."""
    declared = [x for x in body if isinstance(x, Local) and x.name == name]
    if len(declared) != 1 or declared[0].size is not None or declared[0].dtype not in FLOATS:
        return False
    if not isinstance(declared[0].init, Const) or declared[0].init.value != 0:
        return False
    inside = [x for s in body if isinstance(s, For) and s.kind == "vector" for x in s.body]
    folds = [x for x in inside if isinstance(x, Fold) and x.target == name]
    changes = [
        x
        for x in statements(body)
        if (isinstance(x, Fold) and name in (x.target, x.before))
        or (isinstance(x, Assign) and x.name == name)
    ]
    return bool(folds) and len(folds) == len(changes) and all(_is_sum(x) for x in folds)


def _is_sum(s: Fold) -> bool:
    return s.combine == "add" and s.index is None and not s.before


def _retargeted(s: Stmt, sums: dict[str, str]) -> Stmt:
    """Return a vector loop that folds into totals in place of sums of the row."""
    if not sums or not isinstance(s, For) or s.kind != "vector":
        return s
    body = tuple(
        replace(x, target=sums[x.target]) if isinstance(x, Fold) and x.target in sums else x
        for x in s.body
    )
    return replace(s, body=body)
