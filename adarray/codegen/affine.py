"""How indices of loop IR depend on a loop variable."""

from __future__ import annotations

from collections.abc import Mapping

from adarray.codegen.loopir import Apply, Const, Expr, Load, Var, integer

Slope = Expr | None
ZERO, ONE = integer(0), integer(1)


def plus(a: Expr, b: Expr, name: str = "add") -> Expr:
    """Return a + b (or a - b) of int64 expressions, with constants computed."""
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(a.value + b.value if name == "add" else a.value - b.value)
    if b == ZERO:
        return a
    if a == ZERO and name == "add":
        return b
    return Apply("int64", name, (a, b))


def times(a: Expr, b: Expr) -> Expr:
    """Return a * b of int64 expressions, with constants computed."""
    if isinstance(a, Const) and isinstance(b, Const):
        return integer(a.value * b.value)
    if ZERO in (a, b):
        return ZERO
    if a == ONE:
        return b
    return a if b == ONE else Apply("int64", "multiply", (a, b))


def slope(expr: Expr, var: str, lets: Mapping[str, Expr]) -> Slope:
    """Return what `expr` grows by from one pass of the loop over `var` to the next.

    Parameters
    ----------
    expr : Expr
    var : str
    lets : mapping
        Values of the names that are bound inside the loop.

    Returns
    -------
    Expr or None
        ``Const("int64", 0)`` where it does not change; None where it is not affine.

    Examples
    --------
    >>> i, n = Var("int64", "i"), Var("int64", "n")
    >>> slope(plus(n, times(i, integer(2))), "i", {}).value
    2
    """
    if isinstance(expr, Const):
        return ZERO
    if isinstance(expr, Var):
        if expr.name == var:
            return ONE
        return slope(lets[expr.name], var, lets) if expr.name in lets else ZERO
    if isinstance(expr, Load):
        return ZERO if slope(expr.index, var, lets) == ZERO else None
    if not isinstance(expr, Apply):
        return None
    slopes = [slope(a, var, lets) for a in expr.args]
    if all(s == ZERO for s in slopes):
        return ZERO
    if any(s is None for s in slopes) or expr.dtype != "int64":
        return None
    return _combined(expr, [s for s in slopes if s is not None])


def _combined(expr: Apply, slopes: list[Expr]) -> Slope:
    """Return the slope of a function of affine operands that are not all constant."""
    if expr.name in ("add", "subtract"):
        return plus(slopes[0], slopes[1], expr.name)
    if expr.name == "negative":
        return times(integer(-1), slopes[0])
    if expr.name == "multiply" and ZERO in slopes:
        moving = 0 if slopes[1] == ZERO else 1
        return times(slopes[moving], expr.args[1 - moving])
    return slopes[0] if expr.name == "cast" and expr.args[0].dtype == "int64" else None


def at(expr: Expr, var: str, place: Expr, lets: Mapping[str, Expr]) -> Expr:
    """Return an affine `expr` for ``var == place``, without names bound inside the loop."""
    if isinstance(expr, Var):
        if expr.name == var:
            return place
        if expr.name in lets and slope(expr, var, lets) != ZERO:
            return at(lets[expr.name], var, place, lets)
        return expr
    if not isinstance(expr, Apply) or slope(expr, var, lets) == ZERO:
        return expr
    if expr.name == "cast":
        return at(expr.args[0], var, place, lets)
    return Apply(expr.dtype, expr.name, tuple(at(a, var, place, lets) for a in expr.args))
