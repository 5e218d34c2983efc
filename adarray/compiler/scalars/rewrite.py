"""Rewriting of scalar expressions before they are printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.scalar import ScalarExpr, as_expr, call


def substitute(expr: ScalarExpr, values: dict[str, float]) -> ScalarExpr:
    """Return `expr` with numbers in place of some variables, and what follows folded.

    Examples
    --------
    >>> from adarray.base import scalar
    >>> substitute(scalar.var("x") ** scalar.var("n"), {"n": 3})
    multiply(multiply(x, x), x)
    """
    if expr.op == "var":
        return as_expr(values[expr.value]) if expr.value in values else expr
    if expr.op == "const":
        return expr
    return _fold(ScalarExpr(expr.op, tuple(substitute(a, values) for a in expr.args)))


def simplify(expr: ScalarExpr) -> ScalarExpr:
    """Return `expr` with constant parts computed and small powers multiplied out."""
    return substitute(expr, {})


def _fold(expr: ScalarExpr) -> ScalarExpr:
    args = expr.args
    if all(a.op == "const" for a in args):
        function: Any = getattr(np, expr.op)
        return as_expr(function(*(a.value for a in args)))
    if expr.op == "power" and args[1].op == "const":
        return _power(args[0], args[1].value, expr)
    return expr


def _power(x: ScalarExpr, exponent: float, expr: ScalarExpr) -> ScalarExpr:
    """Return x**exponent by multiplication, where that keeps NumPy's special values.

    A constant exponent comes from a Python number, for which NumPy itself takes the
    square, the square root and the reciprocal. Cubes and fourth powers overflow and
    underflow as their results do; x**-2 as 1/(x*x) would not, so it stays a power.
    """
    if exponent == 2:
        return call("multiply", x, x)
    if exponent == 3:
        return call("multiply", call("multiply", x, x), x)
    if exponent == 4:
        square = call("multiply", x, x)
        return call("multiply", square, square)
    if exponent == 1:
        return x
    if exponent == 0.5:
        return call("sqrt", x)
    if exponent == -1:
        return call("reciprocal", x)
    return expr
