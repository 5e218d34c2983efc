"""Making expressions: what is known is folded, neutral operands are left out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Load, Var
from adarray.kernels.types import FLOATS, common

COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"))

_FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "quotient": lambda a, b: (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1),
    "modulo": lambda a, b: int(math.fmod(a, b)), "left_shift": lambda a, b: a << b,
    "right_shift": lambda a, b: a >> b, "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b, "bitwise_xor": lambda a, b: a ^ b,
    "less": lambda a, b: a < b, "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b, "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b, "not_equal": lambda a, b: a != b,
    "logical_and": lambda a, b: bool(a and b), "logical_or": lambda a, b: bool(a or b),
    "minimum": min, "maximum": max,
}  # fmt: skip


def const(value: Any, dtype: str) -> Const:
    """Return a constant."""
    if dtype in FLOATS:
        return Const(dtype, float(value))
    if dtype == "bool":
        return Const(dtype, bool(value))
    return Const(dtype, int(np.array(int(value)).astype(dtype)))


def index(value: int) -> Const:
    """Return a constant index."""
    return Const("int64", value)


def is_zero(e: Expr) -> bool:
    """Whether an expression is the constant 0."""
    return isinstance(e, Const) and e.value == 0


def is_one(e: Expr) -> bool:
    """Whether an expression is the constant 1."""
    return isinstance(e, Const) and e.value == 1


def cast(e: Expr, dtype: str) -> Expr:
    """Return a value as one of another dtype."""
    if e.dtype == dtype:
        return e
    if isinstance(e, Const) and not (dtype not in FLOATS and not math.isfinite(e.value)):
        return const(e.value, dtype)
    if dtype == "bool":
        return Apply("bool", "not_equal", (e, const(0, e.dtype)))
    return Apply(dtype, "cast", (e,))


def truth(e: Expr) -> Expr:
    """Return whether a value is not 0."""
    return cast(e, "bool")


def call(name: str, dtype: str, *args: Expr) -> Expr:
    """Return a function of expressions of the right dtypes."""
    if name in _FOLD and all(isinstance(a, Const) for a in args) and len(args) == 2:
        a, b = (arg.value for arg in args if isinstance(arg, Const))
        whole = dtype not in FLOATS and args[0].dtype not in FLOATS
        if whole and not (name in ("quotient", "modulo") and b == 0):
            return const(_FOLD[name](a, b), dtype)
    return Apply(dtype, name, args)


def add(a: Expr, b: Expr) -> Expr:
    """Return a sum."""
    if is_zero(a):
        return b
    if is_zero(b):
        return a
    if isinstance(b, Apply) and b.name == "negative":
        return call("subtract", a.dtype, a, b.args[0])
    return call("add", a.dtype, a, b)


def subtract(a: Expr, b: Expr) -> Expr:
    """Return a difference."""
    if is_zero(b):
        return a
    if is_zero(a) and a.dtype in FLOATS:
        return negative(b)
    return call("subtract", a.dtype, a, b)


def multiply(a: Expr, b: Expr) -> Expr:
    """Return a product; those with an exact 0 are 0, as derivatives want it."""
    if is_zero(a) or is_zero(b):
        return const(0, a.dtype)
    if is_one(a):
        return b
    if is_one(b):
        return a
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Const) and one.value == -1 and one.dtype in FLOATS:
            return negative(other)
    if isinstance(a, Apply) and a.name == "negative":
        return negative(multiply(a.args[0], b))
    if isinstance(b, Apply) and b.name == "negative":
        return negative(multiply(a, b.args[0]))
    return call("multiply", a.dtype, a, b)


def divide(a: Expr, b: Expr) -> Expr:
    """Return a quotient of floats."""
    if is_zero(a) or is_one(b):
        return a
    return Apply(a.dtype, "divide", (a, b))


def negative(a: Expr) -> Expr:
    """Return the negative of a value."""
    if isinstance(a, Const):
        return const(-a.value, a.dtype)
    if isinstance(a, Apply) and a.name == "negative":
        return a.args[0]
    return Apply(a.dtype, "negative", (a,))


def where(c: Expr, a: Expr, b: Expr) -> Expr:
    """Return `a` where `c` holds, else `b`."""
    if isinstance(c, Const):
        return a if c.value else b
    if a == b:
        return a
    return Apply(a.dtype, "where", (c, a, b))


def compare(name: str, a: Expr, b: Expr) -> Expr:
    """Return a comparison, after C's conversions."""
    dtype = common(a.dtype, b.dtype)
    return call(name, "bool", cast(a, dtype), cast(b, dtype))


def logical_not(e: Expr) -> Expr:
    """Return the contrary of a truth value."""
    if isinstance(e, Const):
        return const(not e.value, "bool")
    if isinstance(e, Apply) and e.name == "logical_not":
        return e.args[0]
    contrary = {"less": "greater_equal", "greater_equal": "less", "greater": "less_equal",
                "less_equal": "greater", "equal": "not_equal", "not_equal": "equal"}  # fmt: skip
    # Comparisons of floats that are no numbers are all false, but for one.
    if (
        isinstance(e, Apply)
        and e.name in contrary
        and (e.args[0].dtype not in FLOATS or e.name in ("equal", "not_equal"))
    ):
        return Apply("bool", contrary[e.name], e.args)
    return Apply("bool", "logical_not", (e,))


def both(a: Expr, b: Expr) -> Expr:
    """Return whether two conditions hold."""
    if isinstance(a, Const):
        return b if a.value else a
    return a if isinstance(b, Const) and b.value else Apply("bool", "logical_and", (a, b))


def strong_zero(cotangent: Expr, share: Expr) -> Expr:
    """Return what an operand gets of a cotangent: 0 for nan where the cotangent is 0."""
    zero = const(0, cotangent.dtype)
    nan = compare("not_equal", share, share)
    return where(both(nan, compare("equal", cotangent, zero)), zero, share)


def cotangent_of(e: Expr) -> Expr | None:
    """Return the cotangent of a share by `strong_zero`; None for other expressions."""
    match e:
        case Apply(
            name="where",
            args=(
                Apply(name="logical_and", args=(_, Apply(name="equal", args=(cotangent, _)))),
                _,
                share,
            ),
        ) if e == strong_zero(cotangent, share):
            return cotangent
        case _:
            return None


def is_free(e: Expr) -> bool:
    """Whether evaluating an expression can do no harm, whatever its operands are."""
    if isinstance(e, Load):
        return False
    return not isinstance(e, Apply) or (is_harmless(e) and all(map(is_free, e.args)))


def is_harmless(e: Apply) -> bool:
    """Whether a function can do no harm, whatever its operands are."""
    if e.name not in ("quotient", "modulo"):
        return True
    return isinstance(e.args[1], Const) and e.args[1].value != 0


_TAME = COMPARISONS | {"add", "subtract", "multiply", "negative", "cast", "logical_not"}


def is_tame(e: Expr) -> bool:
    """Whether an expression and its derivatives are finite wherever its operands are."""
    if isinstance(e, Apply):
        return e.name in _TAME and all(map(is_tame, e.args))
    return not isinstance(e, Load)


def is_simple(e: Expr) -> bool:
    """Whether an expression costs nothing to repeat."""
    return isinstance(e, (Const, Var)) or (
        isinstance(e, Apply) and e.name == "negative" and is_simple(e.args[0])
    )
