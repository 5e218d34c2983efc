"""Complex numbers of programs: functions of their parts, which are real values.

A complex value is an array in memory, or ``paired`` of two real ones. Formulas, and orders of
operations, are NumPy's.

References
----------
- R. L. Smith, *Algorithm 116: Complex division*, Communications of the ACM 5 (8), 1962.
- W. Kahan, *Branch cuts for complex elementary functions*, The State of the Art in Numerical
  Analysis, Oxford University Press 1987.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from adarray.base.scalar import LOGICAL
from adarray.compiler.ir import views
from adarray.compiler.ir.primitives import Constant, DType, View

if TYPE_CHECKING:
    from adarray.compiler.ir.builder import Builder
    from adarray.compiler.ir.program import Value

Pair: TypeAlias = "tuple[Value, Value]"

# The dtype of the parts of each complex dtype.
PART_OF: dict[DType, DType] = {
    np.dtype(np.complex64): np.dtype(np.float32),
    np.dtype(np.complex128): np.dtype(np.float64),
}
WHOLE_OF = {part: whole for whole, part in PART_OF.items()}
# Powers of a larger exponent are left to NumPy.
LARGEST_POWER = 16
# Matrices of at most so many columns are multiplied term by term.
FEW_TERMS = 4
# Multiplications of a matrix product that is no work for a library, and numbers of such a result
# of long sums.
SMALL_PRODUCT, FEW_SUMS = 1024, 16


class NoKernelError(Exception):
    """Something that kernels do not compute of complex numbers: NumPy is called."""


def apply(b: Builder, name: str, args: tuple[Value, ...], dtype: DType) -> Value:
    """Apply a scalar function to operands of which at least one is complex.

    Raises
    ------
    NoKernelError
        If kernels do not compute it.
    """
    if name == "cast":
        return cast(b, args[0], dtype)
    if name == "where":
        condition, *rest = args
        pairs = [b.parts(a) for a in rest]
        return b.paired(*(b.map("where", condition, *ps) for ps in zip(*pairs, strict=True)))
    pairs = [b.parts(a) for a in args]
    if name in _TRUTHS:
        of_part, combine = _TRUTHS[name]
        re, im = (b.map(of_part, *ps) for ps in zip(*pairs, strict=True))
        return b.map(combine, re, im)
    if name in ("real", "imag"):
        return pairs[0][name == "imag"]
    if name == "absolute":
        return _absolute(b, pairs[0])
    function = _FUNCTIONS.get(name)
    if function is None:
        raise NoKernelError(name)
    return b.paired(*function(b, *pairs))


def supports(name: str) -> bool:
    """Whether kernels compute a scalar function of complex numbers."""
    others = ("absolute", "where", "power")
    return name in _FUNCTIONS or name in _TRUTHS or name in LOGICAL or name in others


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    """Convert real or complex numbers to complex ones, or complex ones to truth values."""
    if x.dtype == dtype:
        return x
    if dtype.kind == "b":
        zero = b.const(0, x.dtype)
        return apply(b, "not_equal", (x, zero), dtype)
    part = PART_OF[dtype]
    if x.dtype in PART_OF:
        return b.paired(*(b.cast(p, part) for p in b.parts(x)))
    return b.paired(b.cast(x, part), b.const(0, part))


def power(b: Builder, x: Value, exponent: float) -> Value:
    """Return a power of a number that stood in the code, by multiplications as NumPy's.

    Raises
    ------
    NoKernelError
        If the exponent is no small integer.
    """
    n = int(exponent) if math.isfinite(exponent) else 0
    if n != exponent or not 0 < abs(n) <= LARGEST_POWER:
        raise NoKernelError("power")
    pair = b.parts(x)
    if n == 2:
        return b.paired(*_multiplied(b, pair, pair))
    if n == -1:
        return b.paired(*_reciprocal(b, pair))
    zero, one = b.const(0, pair[0].dtype), b.const(1, pair[0].dtype)
    if n == 1:
        result = pair
    elif n == 3:
        result = _multiplied(b, pair, _multiplied(b, pair, pair))
    else:
        result, square, rest = (one, zero), pair, abs(n)
        while rest:
            if rest & 1:
                result = _multiplied(b, result, square)
            rest >>= 1
            if rest:
                square = _multiplied(b, square, square)
    if n < 0:
        result = _divided(b, (one, zero), result)
    none = b.map("logical_and", *(b.map("equal", p, zero) for p in pair))
    of_zero = zero if n > 0 else b.const(math.nan, zero.dtype)
    return b.paired(*(b.map("where", none, of_zero, p) for p in result))


def matmul(b: Builder, x: Value, y: Value) -> Value:
    """Return the product of matrices or vectors: sums of products, or one real product."""
    left = b.reshape(x, (1, *x.shape)) if x.ndim == 1 else x
    right = b.reshape(y, (*y.shape, 1)) if y.ndim == 1 else y
    (rows, terms), columns = left.shape[-2:], right.shape[-1]
    lead = views.broadcast_shape([left.shape[:-2], right.shape[:-2]])
    shape = (*lead, *x.shape[-2:-1], *(y.shape[-1:] if y.ndim > 1 else ()))
    if terms == 0 or 0 in shape:
        return b.full(shape, 0, x.dtype)
    if terms <= FEW_TERMS:
        total = _term(b, left, right, 0)
        for k in range(1, terms):
            total = b.map("add", total, _term(b, left, right, k))
        return b.reshape(total, shape)
    small = rows * columns * terms <= SMALL_PRODUCT or rows * columns <= FEW_SUMS
    if not small and 1 not in (rows, columns):
        return b.reshape(_stacked(b, left, right), shape)
    order = [*range(right.ndim - 2), right.ndim - 1, right.ndim - 2]
    across = b.transpose(right, order)
    left = b.reshape(left, (*left.shape[:-1], 1, terms))
    across = b.reshape(across, (*across.shape[:-2], 1, columns, terms))
    products = b.map("multiply", left, across)
    return b.reshape(b.reduce("add", products, (products.ndim - 1,)), shape)


def _stacked(b: Builder, x: Value, y: Value) -> Value:
    """Return a product of matrices by one of real matrices, which hold the parts side by side.

    The smaller matrix is the one whose parts are written twice.
    """
    (xr, xi), (yr, yi) = b.parts(x), b.parts(y)
    rows, columns = x.shape[-2], y.shape[-1]
    above, beside_x, beside_y = x.ndim - 2, x.ndim - 1, y.ndim - 1
    if rows <= columns:
        re = b.concatenate((xr, b.map("negative", xi)), beside_x)
        im = b.concatenate((xi, xr), beside_x)
        left = b.concatenate((re, im), above)
        right = b.concatenate((yr, yi), y.ndim - 2)
        axis, length = -2, rows
    else:
        left = b.concatenate((xr, xi), beside_x)
        re = b.concatenate((yr, b.map("negative", yi)), y.ndim - 2)
        im = b.concatenate((yi, yr), y.ndim - 2)
        right = b.concatenate((re, im), beside_y)
        axis, length = -1, columns
    both = b.matmul(left, right)
    axis += both.ndim
    parts = (b.slice(both, axis, k * length, (k + 1) * length) for k in (0, 1))
    return b.paired(*parts)


def _term(b: Builder, x: Value, y: Value, k: int) -> Value:
    """Return column `k` of a matrix times row `k` of another."""
    return b.map("multiply", b.slice(x, x.ndim - 1, k, k + 1), b.slice(y, y.ndim - 2, k, k + 1))


# -- formulas ----------------------------------------------------------------------------------


def _is(x: Value, number: float) -> bool:
    """Whether all elements are one number."""
    while isinstance(x.primitive, View):
        x = x.args[0]
    return isinstance(x.primitive, Constant) and bool(x.primitive.value == number)


def _added(b: Builder, x: Pair, y: Pair) -> Pair:
    return b.map("add", x[0], y[0]), b.map("add", x[1], y[1])


def _subtracted(b: Builder, x: Pair, y: Pair) -> Pair:
    return b.map("subtract", x[0], y[0]), b.map("subtract", x[1], y[1])


def _multiplied(b: Builder, x: Pair, y: Pair) -> Pair:
    re = b.map("subtract", b.map("multiply", x[0], y[0]), b.map("multiply", x[1], y[1]))
    im = b.map("add", b.map("multiply", x[0], y[1]), b.map("multiply", x[1], y[0]))
    return re, im


def _divided(b: Builder, x: Pair, y: Pair) -> Pair:
    """Return a quotient: scaled by the larger part of the divisor."""
    zero, one = b.const(0, y[0].dtype), b.const(1, y[0].dtype)
    if _is(y[1], 0):
        none = b.map("equal", y[0], zero)
        large = b.map("where", none, zero, y[0])
        ratio = b.map("where", none, zero, b.map("divide", zero, y[0]))
        scale = b.map("divide", one, large)
        p, q = x
    else:
        sizes = [b.map("absolute", p) for p in y]
        by_first = b.map("greater_equal", *sizes)
        none = b.map("logical_and", *(b.map("equal", s, zero) for s in sizes))
        large = b.map("where", none, zero, b.map("where", by_first, *y))
        small = b.map("where", by_first, y[1], y[0])
        ratio = b.map("where", none, zero, b.map("divide", small, large))
        scale = b.map("divide", one, b.map("add", large, b.map("multiply", small, ratio)))
        p, q = b.map("where", by_first, *x), b.map("where", by_first, x[1], x[0])
    # Of the smaller part, the larger one times the ratio is subtracted, or the other way round.
    # A divisor of zero has no smaller part, which an infinity would make nan.
    of_p, of_q = (b.map("where", none, zero, b.map("multiply", t, ratio)) for t in (p, q))
    re, im = b.map("add", p, of_q), b.map("subtract", q, of_p)
    if not _is(y[1], 0):
        im = b.map("where", by_first, im, b.map("subtract", of_p, q))
    return b.map("multiply", re, scale), b.map("multiply", im, scale)


def _reciprocal(b: Builder, x: Pair) -> Pair:
    """Return ``1 / x``, which is nan at 0."""
    one = b.const(1, x[0].dtype)
    by_first = b.map("less_equal", b.map("absolute", x[1]), b.map("absolute", x[0]))
    large, small = b.map("where", by_first, *x), b.map("where", by_first, x[1], x[0])
    ratio = b.map("divide", small, large)
    size = b.map("add", large, b.map("multiply", small, ratio))
    p, q = b.map("divide", one, size), b.map("divide", ratio, size)
    return (
        b.map("where", by_first, p, q),
        b.map("negative", b.map("where", by_first, q, p)),
    )


def _negative(b: Builder, x: Pair) -> Pair:
    return b.map("negative", x[0]), b.map("negative", x[1])


def _conjugate(b: Builder, x: Pair) -> Pair:
    return x[0], b.map("negative", x[1])


def _sign(b: Builder, x: Pair) -> Pair:
    """Return ``x / |x|``, 0 at 0, and the direction of one infinite part."""
    size = _absolute(b, x)
    zero, one = b.const(0, size.dtype), b.const(1, size.dtype)
    infinite = [b.map("isinf", p) for p in x]
    either, both = b.map("logical_or", *infinite), b.map("logical_and", *infinite)
    size = b.map("where", either, b.map("where", both, b.const(math.nan, size.dtype), one), size)
    none = b.map("equal", size, zero)

    def part(p: Value, is_infinite: Value) -> Value:
        unit = b.map("where", is_infinite, b.map("copysign", one, p), zero)
        quotient = b.map("divide", b.map("where", either, unit, p), size)
        return b.map("where", none, zero, quotient)

    return part(x[0], infinite[0]), part(x[1], infinite[1])


def _exp(b: Builder, x: Pair) -> Pair:
    """Return an exponential; of a real number it is one, whose infinity stays.

    So does that of an infinite real part where the imaginary one is no number of finite size.
    """
    size, zero = b.map("exp", x[0]), b.const(0, x[0].dtype)
    if _is(x[1], 0):
        return size, x[1]
    re = b.map("multiply", size, b.map("cos", x[1]))
    im = b.map("multiply", size, b.map("sin", x[1]))
    nowhere = b.map("logical_not", b.map("isfinite", x[1]))
    limit = b.map("logical_and", b.map("isinf", x[0]), nowhere)
    vanishes = b.map("logical_and", limit, b.map("equal", size, zero))
    re = b.map("where", limit, size, re)
    im = b.map("where", vanishes, b.map("copysign", zero, x[1]), im)
    return re, b.map("where", b.map("equal", x[1], zero), x[1], im)


def _sqrt(b: Builder, x: Pair) -> Pair:
    """Return the root whose real part is not negative."""
    dtype = x[0].dtype
    half, zero = b.const(0.5, dtype), b.const(0, dtype)
    sizes = b.map("absolute", x[0]), _absolute(b, x)
    total = b.map("add", *sizes)
    halves = (b.map("multiply", half, s) for s in sizes)
    mean = b.map("multiply", half, total)
    large = b.map("sqrt", b.map("where", b.map("isinf", total), b.map("add", *halves), mean))
    none = b.map("equal", large, zero)
    below = b.map("divide", b.map("multiply", half, b.map("absolute", x[1])), large)
    small = b.map("where", none, zero, below)
    right = b.map("logical_not", b.map("signbit", x[0]))
    far = b.map("isinf", x[1])
    re, im = (
        b.map("where", far, b.const(math.inf, dtype), b.map("where", right, *sides))
        for sides in ((large, small), (small, large))
    )
    return re, b.map("copysign", im, x[1])


def _circular(first: str, second: str, negative: bool) -> Callable[[Builder, Pair], Pair]:
    """Return a circular function: ``first(x) cosh(y) + i second(x) sinh(y)``."""

    def function(b: Builder, x: Pair) -> Pair:
        re = _product(b, first, x[0], "cosh", x[1])
        im = _product(b, second, x[0], "sinh", x[1])
        return re, b.map("negative", im) if negative else im

    return function


def _hyperbolic(first: str, second: str) -> Callable[[Builder, Pair], Pair]:
    """Return a hyperbolic function: ``first(x) cos(y) + i second(x) sin(y)``."""

    def function(b: Builder, x: Pair) -> Pair:
        return _product(b, "cos", x[1], first, x[0]), _product(b, "sin", x[1], second, x[0])

    return function


def _product(b: Builder, circular: str, x: Value, hyperbolic: str, y: Value) -> Value:
    """Return a circular function times a hyperbolic one: 0 where one is, however large the other.

    The hyperbolic one overflows, so this holds for real numbers, too.
    """
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    product = b.map("multiply", b.map(circular, x), b.map(hyperbolic, y))
    odd = [p for p, name in ((x, circular), (y, hyperbolic)) if name in ("sin", "sinh")]
    if not odd:
        return product
    signed = b.map("copysign", zero, odd[0])
    if len(odd) == 2:
        signed = b.map("multiply", signed, b.map("copysign", one, odd[1]))
    none = [b.map("equal", p, zero) for p in odd]
    either = none[0] if len(none) == 1 else b.map("logical_or", *none)
    return b.map("where", b.map("logical_and", either, b.map("isnan", product)), signed, product)


def _absolute(b: Builder, x: Pair) -> Value:
    return b.map("hypot", *x)


_FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "add": _added, "subtract": _subtracted, "multiply": _multiplied, "divide": _divided,
    "reciprocal": _reciprocal, "negative": _negative, "conjugate": _conjugate, "sign": _sign,
    "positive": lambda _, x: x, "square": lambda b, x: _multiplied(b, x, x), "exp": _exp,
    "sqrt": _sqrt, "sin": _circular("sin", "cos", False), "cos": _circular("cos", "sin", True),
    "sinh": _hyperbolic("sinh", "cosh"), "cosh": _hyperbolic("cosh", "sinh"),
}  # fmt: skip
# What tells numbers apart: a function of the parts, and how both answers are one.
_TRUTHS = {
    "equal": ("equal", "logical_and"), "not_equal": ("not_equal", "logical_or"),
    "isnan": ("isnan", "logical_or"), "isinf": ("isinf", "logical_or"),
    "isfinite": ("isfinite", "logical_and"),
}  # fmt: skip
