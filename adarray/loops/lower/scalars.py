"""Functions of numbers as expressions of kernels, by the names of the scalar catalogue.

What kernels have a text and a derivative for is itself; the rest is made of that. Integers wrap as
NumPy's do, and what they are divided by may be 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from adarray.compiler.ir.loopir import Apply, Const, Expr
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import SIZES
from adarray.kernels import build
from adarray.kernels.build import add, compare, const, divide, logical_not, multiply, where
from adarray.kernels.functions import MATH, PREDICATES
from adarray.kernels.types import FLOATS

Let = Callable[[str, Expr], Expr]
_DIRECT = frozenset((*MATH.values(), "maximum", "minimum"))
_TRUTHS = {
    "add": "logical_or", "maximum": "logical_or", "bitwise_or": "logical_or",
    "multiply": "logical_and", "minimum": "logical_and", "bitwise_and": "logical_and",
    "logical_and": "logical_and", "logical_or": "logical_or",
}  # fmt: skip
_UNEQUAL = ("bitwise_xor", "logical_xor", "not_equal")
_MOST_FACTORS = 8


def function(name: str, args: tuple[Expr, ...], dtype: str, let: Let) -> Expr | None:
    """Return a function of expressions of the dtypes that it takes; None if it is not known.

    Parameters
    ----------
    name : str
        Of a NumPy ufunc.
    args : tuple of Expr
    dtype : str
        Of the result.
    let : callable
        Gives an expression a name, where it is used several times.
    """
    known = FUNCTIONS.get(name)
    name = (known.same_as if known is not None else "") or name
    if name in build.COMPARISONS and args[0].dtype != "bool":
        return build.call(name, "bool", *args)
    if name.startswith("logical_"):
        args = tuple(map(build.truth, args))
    if name in PREDICATES:
        if args[0].dtype in FLOATS:
            return Apply("bool", name, args)
        return const(name == "isfinite", "bool") if name != "signbit" else None
    if all(a.dtype == "bool" for a in args) and dtype == "bool":
        return _of_truths(name, args)
    if dtype in FLOATS:
        return _of_floats(name, args, dtype, let)
    return _of_integers(name, args, dtype, let) if dtype != "bool" else None


def _of_truths(name: str, args: tuple[Expr, ...]) -> Expr | None:
    if name in _UNEQUAL:
        return build.call("not_equal", "bool", *args)
    if name in ("logical_not", "invert"):
        return logical_not(args[0])
    if name == "logical_and" or _TRUTHS.get(name) == "logical_and":
        return build.both(*args)
    if name in _TRUTHS:
        return build.call(_TRUTHS[name], "bool", *args)
    return build.call(name, "bool", *args) if name in build.COMPARISONS else None


# -- floats ----------------------------------------------------------------------------------------


def _of_floats(name: str, args: tuple[Expr, ...], dtype: str, let: Let) -> Expr | None:
    if name in ("add", "subtract", "multiply", "divide"):
        return Apply(dtype, name, args)  # rounded and signed as NumPy does: nothing is folded
    if name == "negative":
        return build.negative(args[0])
    if name == "power":
        return _power(args, dtype, let)
    if name in _DIRECT:
        several = name in ("maximum", "minimum")
        return Apply(dtype, name, tuple(let("x", a) for a in args) if several else args)
    if name in ("remainder", "floor_divide"):
        a, b = (let("x", x) for x in args)
        rest = _remainder(a, b, let)
        return rest if name == "remainder" else _floor_divide(a, b, rest)
    rule = _FLOATS.get(name)
    return None if rule is None else rule(*(let("x", a) for a in args))


def _power(args: tuple[Expr, ...], dtype: str, let: Let) -> Expr:
    x, p = args
    if isinstance(p, Const):
        if p.value == 0.5:
            return Apply(dtype, "sqrt", (x,))
        if p.value == -1:
            return divide(const(1, dtype), x)
        if p.value == int(p.value) and 0 < p.value <= 4:
            return _repeated(x, int(p.value), lambda a, b: multiply(a, b), let)
    return Apply(dtype, "power", args)


def _repeated(x: Expr, count: int, product: Callable[[Expr, Expr], Expr], let: Let) -> Expr:
    x = let("factor", x)
    if count == 1:
        return x
    half = _repeated(x, count // 2, product, let)
    half = let("factor", half)
    square = product(half, half)
    return product(square, x) if count % 2 else square


def _sign(x: Expr) -> Expr:
    zero, one = const(0, x.dtype), const(1, x.dtype)
    below = where(compare("less", x, zero), const(-1, x.dtype), x)  # x: 0 or nan
    return where(compare("greater", x, zero), one, below)


def _remainder(a: Expr, b: Expr, let: Let) -> Expr:
    """Return the remainder that has the sign of `b`."""
    zero = const(0, a.dtype)
    rest = let("rest", Apply(a.dtype, "fmod", (a, b)))
    if isinstance(b, Const) and b.value > 0:
        return where(compare("less", rest, zero), add(rest, b), rest)
    other = compare("not_equal", compare("less", rest, zero), compare("less", b, zero))
    nonzero = compare("not_equal", rest, zero)
    return where(build.both(nonzero, other), add(rest, b), rest)


def _floor_divide(a: Expr, b: Expr, rest: Expr) -> Expr:
    """Return the quotient without its fraction: what is left over is taken off before."""
    quotient = divide(build.subtract(a, rest), b)
    whole = Apply(a.dtype, "rint", (quotient,))
    return where(compare("equal", b, const(0, a.dtype)), divide(a, b), whole)


def _logaddexp(log: str, exp: str) -> Callable[[Expr, Expr], Expr]:
    def rule(a: Expr, b: Expr) -> Expr:
        dtype = a.dtype
        high, low = Apply(dtype, "maximum", (a, b)), Apply(dtype, "minimum", (a, b))
        difference = build.subtract(low, high)
        fraction = Apply(dtype, exp, (difference,))
        if log == "log1p":
            small: Expr = Apply(dtype, log, (fraction,))
        else:
            small = Apply(dtype, log, (add(const(1, dtype), fraction),))
        return where(compare("equal", a, b), add(a, const(math.log(2), dtype)), add(high, small))

    return rule


_FLOATS: dict[str, Callable[..., Expr]] = {
    "positive": lambda x: x,
    "square": lambda x: multiply(x, x),
    "reciprocal": lambda x: divide(const(1, x.dtype), x),
    "deg2rad": lambda x: multiply(x, const(math.pi / 180, x.dtype)),
    "rad2deg": lambda x: multiply(x, const(180 / math.pi, x.dtype)),
    "sign": _sign,
    "logaddexp": _logaddexp("log1p", "exp"),
    "heaviside": lambda x, h: where(
        compare("equal", x, const(0, x.dtype)), h,
        where(compare("less", x, const(0, x.dtype)), const(0, x.dtype),
              where(compare("equal", x, x), const(1, x.dtype), x)),
    ),
}  # fmt: skip


# -- integers --------------------------------------------------------------------------------------


def wrapped(name: str, a: Expr, b: Expr) -> Expr:
    """Return a sum, difference or product that wraps; C's of signed integers may not."""
    dtype = a.dtype
    if dtype in ("uint32", "uint64"):
        return build.call(name, dtype, a, b)
    wide = "uint64" if dtype == "int64" else "uint32"
    return build.cast(build.call(name, wide, build.cast(a, wide), build.cast(b, wide)), dtype)


def _of_integers(name: str, args: tuple[Expr, ...], dtype: str, let: Let) -> Expr | None:
    if name in ("add", "subtract", "multiply"):
        return wrapped(name, *args)
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        return build.call(name, dtype, *args)
    if name == "invert":
        ones = build.const(-1, dtype)
        return build.cast(build.call("bitwise_xor", dtype, args[0], ones), dtype)
    if name in ("positive", "floor", "ceil", "trunc", "rint"):
        return args[0]
    if name in ("left_shift", "right_shift"):
        return _shifted(name, *args)
    if name == "power":
        p = args[1]
        if not isinstance(p, Const) or not 0 <= p.value <= _MOST_FACTORS:
            return None
        if p.value == 0:
            return const(1, dtype)
        return _repeated(args[0], int(p.value), lambda a, b: wrapped("multiply", a, b), let)
    x, *rest = (let("n", a) for a in args)
    zero = const(0, dtype)
    if name in ("maximum", "minimum"):
        return build.call(name, dtype, x, *rest)
    if name == "negative":
        return wrapped("subtract", zero, x)
    if name == "absolute":
        return where(compare_same("less", x, zero), wrapped("subtract", zero, x), x)
    if name == "square":
        return wrapped("multiply", x, x)
    if name == "sign":
        negative = where(compare_same("less", x, zero), const(-1, dtype), zero)
        return where(compare_same("greater", x, zero), const(1, dtype), negative)
    if name in ("floor_divide", "remainder", "fmod"):
        return _divided(name, x, rest[0], let)
    return None


def _shifted(name: str, a: Expr, by: Expr) -> Expr | None:
    """Return a shift by a number of bits that is known."""
    dtype = a.dtype
    if not isinstance(by, Const) or not 0 <= by.value < 8 * SIZES[dtype]:
        return None
    if name == "right_shift":
        return build.cast(Apply(dtype, name, (a, by)), dtype)
    wide = "uint64" if dtype.endswith("64") else "uint32"
    shifted = Apply(wide, name, (build.cast(a, wide), build.cast(by, wide)))
    return build.cast(shifted, dtype)


def compare_same(name: str, a: Expr, b: Expr) -> Expr:
    """Return a comparison in the operands' own dtype."""
    return build.call(name, "bool", a, b)


def _divided(name: str, a: Expr, b: Expr, let: Let) -> Expr:
    """Return a quotient or remainder as NumPy has it: 0 where the divisor is 0."""
    dtype = a.dtype
    zero, one = const(0, dtype), const(1, dtype)
    signed = not dtype.startswith("u")
    none = compare_same("equal", b, zero)
    # The lowest number divided by -1 is no number of the dtype; C leaves that open.
    bad = none
    if signed:
        bad = build.call("logical_or", "bool", none, compare_same("equal", b, const(-1, dtype)))
    divisor = let("divisor", where(bad, one, b))
    rest = let("rest", where(bad, zero, build.cast(Apply(dtype, "modulo", (a, divisor)), dtype)))
    other: Expr = zero
    if signed:
        differs = build.call(
            "not_equal", "bool", compare_same("less", rest, zero), compare_same("less", b, zero)
        )
        other = build.both(compare_same("not_equal", rest, zero), differs)
    if name == "fmod" or (name == "remainder" and not signed):
        return rest
    if name == "remainder":
        return where(other, build.cast(add(rest, b), dtype), rest)
    quotient = build.cast(Apply(dtype, "quotient", (a, divisor)), dtype)
    if not signed:
        return where(none, zero, quotient)
    quotient = build.subtract(quotient, where(other, one, zero))
    quotient = where(
        compare_same("equal", b, const(-1, dtype)), wrapped("subtract", zero, a), quotient
    )
    return where(none, zero, quotient)
