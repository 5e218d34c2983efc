"""What kernels compute with: functions by CUDA's names, their text, and their derivatives.

Where a function of `adarray.compiler.scalars` means the same, it has its name. Conventions at
kinks are adarray's: `fabs` has slope 0 at 0, and `fmin` and `fmax` share a tie evenly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from adarray.compiler.ir.loopir import Apply, Expr
from adarray.kernels.build import (
    add,
    compare,
    const,
    divide,
    multiply,
    negative,
    subtract,
    where,
)

# CUDA's name without the ending f: our name. Fast versions have the derivative of the exact ones.
MATH = {
    "sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2",
    "exp10": "exp10", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10",
    "log1p": "log1p", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin",
    "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "erf": "erf", "erfc": "erfc",
    "fabs": "absolute", "floor": "floor", "ceil": "ceil", "rint": "rint", "round": "round",
    "trunc": "trunc", "nearbyint": "rint", "normcdf": "normcdf", "lgamma": "lgamma",
    "pow": "power", "fmin": "fmin", "fmax": "fmax", "fmod": "fmod", "atan2": "arctan2",
    "hypot": "hypot", "copysign": "copysign", "fdim": "fdim", "fdivide": "divide",
    "__exp": "exp", "__exp10": "exp10", "__log": "log", "__log2": "log2", "__log10": "log10",
    "__sin": "sin", "__cos": "cos", "__tan": "tan", "__pow": "power", "__fdivide": "divide",
    "__frsqrt_rn": "rsqrt", "__fsqrt_rn": "sqrt", "__fdiv_rn": "divide",
}  # fmt: skip
BINARY = frozenset(
    ("power", "fmin", "fmax", "fmod", "arctan2", "hypot", "copysign", "fdim", "divide")
)
PREDICATES = {"isnan": "isnan", "isinf": "isinf", "isfinite": "isfinite", "signbit": "signbit"}

# Our name: C's, where they differ.
SPELLED = {
    **{ours: cuda for cuda, ours in MATH.items() if not cuda.startswith("__") and ours != "divide"},
    "rint": "rint",
}
# What the C library has not got is written out: {0} is the operand, {f} the ending f.
TEMPLATES = {
    "rsqrt": "{one} / sqrt{f}({0})", "exp10": "pow{f}({ten}, {0})",
    "normcdf": "{half} * erfc{f}(-({0}) * {root})",
}  # fmt: skip

Partials = Callable[[tuple[Expr, ...], Expr], tuple[Expr | None, ...]]


def _k(value: float, like: Expr) -> Expr:
    return const(value, like.dtype)


def _f(name: str, *args: Expr) -> Expr:
    return Apply(args[0].dtype, name, args)


def _square(x: Expr) -> Expr:
    return multiply(x, x)


def _one_minus(x: Expr) -> Expr:
    return subtract(_k(1, x), x)


def _tie(name: str) -> Partials:
    def rule(a: tuple[Expr, ...], y: Expr) -> tuple[Expr | None, ...]:  # noqa: ARG001
        x, z = a
        first, second = compare(name, x, z), compare(name, z, x)
        # A nan loses against a number; a tie is shared.
        lost, won = compare("not_equal", z, z), compare("not_equal", x, x)
        half = _k(0.5, x)
        tie = where(compare("equal", x, z), half, _k(0, x))
        dx = where(first, _k(1, x), where(lost, _k(1, x), tie))
        dz = where(second, _k(1, x), where(won, _k(1, x), tie))
        return dx, dz

    return rule


def _greater(name: str) -> Partials:
    """Return the rule of a maximum or minimum that passes nan on."""

    def rule(a: tuple[Expr, ...], y: Expr) -> tuple[Expr | None, ...]:  # noqa: ARG001
        x, z = a
        tie = where(compare("equal", x, z), _k(0.5, x), _k(0, x))
        dx = where(compare(name, x, z), _k(1, x), tie)
        return dx, where(compare(name, z, x), _k(1, x), tie)

    return rule


def _power(a: tuple[Expr, ...], y: Expr) -> tuple[Expr | None, ...]:
    x, p = a
    zero = _k(0, x)
    dx = where(compare("equal", p, zero), zero, multiply(p, _f("power", x, subtract(p, _k(1, p)))))
    dp = where(compare("greater", x, zero), multiply(y, _f("log", x)), zero)
    return dx, dp


def _atan2(a: tuple[Expr, ...], y: Expr) -> tuple[Expr | None, ...]:  # noqa: ARG001
    s = add(_square(a[0]), _square(a[1]))
    return divide(a[1], s), negative(divide(a[0], s))


def _sign(x: Expr) -> Expr:
    zero = _k(0, x)
    return where(
        compare("greater", x, zero), _k(1, x), where(compare("less", x, zero), _k(-1, x), zero)
    )


def _one(rule: Callable[[Expr, Expr], Expr]) -> Partials:
    return lambda a, y: (rule(a[0], y),)


_ROOT = 2 / math.sqrt(math.pi)

PARTIALS: dict[str, Partials] = {
    "add": lambda a, y: (_k(1, y), _k(1, y)),
    "subtract": lambda a, y: (_k(1, y), _k(-1, y)),
    "multiply": lambda a, y: (a[1], a[0]),
    "divide": lambda a, y: (divide(_k(1, y), a[1]), negative(divide(y, a[1]))),
    "negative": _one(lambda x, y: _k(-1, y)),
    "cast": _one(lambda x, y: _k(1, y)),
    "where": lambda a, y: (None, where(a[0], _k(1, y), _k(0, y)), where(a[0], _k(0, y), _k(1, y))),
    "sqrt": _one(lambda x, y: divide(_k(0.5, x), y)),
    "rsqrt": _one(lambda x, y: multiply(_k(-0.5, x), divide(y, x))),
    "cbrt": _one(lambda x, y: divide(_k(1, x), multiply(_k(3, x), _square(y)))),
    "exp": _one(lambda x, y: y),
    "exp2": _one(lambda x, y: multiply(y, _k(math.log(2), x))),
    "exp10": _one(lambda x, y: multiply(y, _k(math.log(10), x))),
    "expm1": _one(lambda x, y: add(y, _k(1, x))),
    "log": _one(lambda x, y: divide(_k(1, x), x)),
    "log2": _one(lambda x, y: divide(_k(1 / math.log(2), x), x)),
    "log10": _one(lambda x, y: divide(_k(1 / math.log(10), x), x)),
    "log1p": _one(lambda x, y: divide(_k(1, x), add(_k(1, x), x))),
    "sin": _one(lambda x, y: _f("cos", x)),
    "cos": _one(lambda x, y: negative(_f("sin", x))),
    "tan": _one(lambda x, y: add(_k(1, x), _square(y))),
    "arcsin": _one(lambda x, y: _f("rsqrt", _one_minus(_square(x)))),
    "arccos": _one(lambda x, y: negative(_f("rsqrt", _one_minus(_square(x))))),
    "arctan": _one(lambda x, y: divide(_k(1, x), add(_k(1, x), _square(x)))),
    "sinh": _one(lambda x, y: _f("cosh", x)),
    "cosh": _one(lambda x, y: _f("sinh", x)),
    "tanh": _one(lambda x, y: _one_minus(_square(y))),
    "arcsinh": _one(lambda x, y: _f("rsqrt", add(_square(x), _k(1, x)))),
    "arccosh": _one(lambda x, y: _f("rsqrt", subtract(_square(x), _k(1, x)))),
    "arctanh": _one(lambda x, y: divide(_k(1, x), _one_minus(_square(x)))),
    "erf": _one(lambda x, y: multiply(_k(_ROOT, x), _f("exp", negative(_square(x))))),
    "erfc": _one(lambda x, y: multiply(_k(-_ROOT, x), _f("exp", negative(_square(x))))),
    "normcdf": _one(lambda x, y: multiply(_k(1 / math.sqrt(2 * math.pi), x),
                                 _f("exp", multiply(_k(-0.5, x), _square(x))))),
    "absolute": _one(lambda x, y: _sign(x)),
    "floor": _one(lambda x, y: _k(0, x)), "ceil": _one(lambda x, y: _k(0, x)),
    "rint": _one(lambda x, y: _k(0, x)), "round": _one(lambda x, y: _k(0, x)),
    "trunc": _one(lambda x, y: _k(0, x)),
    "power": _power,
    "fmin": _tie("less"), "fmax": _tie("greater"),
    "minimum": _greater("less"), "maximum": _greater("greater"),
    "fmod": lambda a, y: (_k(1, y), negative(_f("trunc", divide(a[0], a[1])))),
    "arctan2": _atan2,
    "hypot": lambda a, y: (divide(a[0], y), divide(a[1], y)),
    "copysign": lambda a, y: (multiply(_sign(a[0]), _f("copysign", _k(1, y), a[1])), _k(0, y)),
    "fdim": lambda a, y: (where(compare("greater", *a), _k(1, y), _k(0, y)),
                          where(compare("greater", *a), _k(-1, y), _k(0, y))),
}  # fmt: skip
# Functions whose value its derivative reads: worth a name of its own.
NAMED = frozenset(PARTIALS) - {"add", "subtract", "multiply", "negative", "cast", "where"}
# Functions whose derivative may be infinite or nan.
SINGULAR = NAMED - {
    "sin", "cos", "arctan", "tanh", "arcsinh", "erf", "erfc", "normcdf", "absolute", "floor",
    "ceil", "rint", "round", "trunc", "fmin", "fmax", "minimum", "maximum", "copysign", "fdim",
}  # fmt: skip
# Functions whose derivative is infinite or nan at some operands, these among them.
UNBOUNDED = NAMED | {"multiply"}
