"""Algebraic simplification: only what keeps every bit, signed zeros and nan included.

The exceptions are sums: a sum of equal terms becomes a product, sums of sums one sum, a sum of
multiples a multiple of the sum (`adarray.compiler.rewrite.sums`), which round less often than what
they stand for; and softplus, logaddexp of a constant, which is written out so that loops over it
become vector code.

References
----------
- D. Goldberg, "What every computer scientist should know about floating-point arithmetic", ACM
  Comput. Surv. 23 (1991), 5-48.
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, chapter 4
  (sums).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from adarray.compiler.ir.builder import BOOL, WIDE, Builder, number_of, uniform
from adarray.compiler.ir.primitives import Constant, Map, Reduce, UpdateSlice, View
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.views import Shape, StridedLayout
from adarray.compiler.rewrite.boxes import placed, through
from adarray.compiler.rewrite.rebuild import rebuild, renewed, uses
from adarray.compiler.rewrite.sums import sum_of_multiples
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.translate.elementwise import emit

MapRule = Callable[[Builder, tuple[Value, ...]], Value | None]
# Operations that are looked through to find that something is zero.
DEPTH = 16
# Operations inside of each other that are looked through to find that nothing is rounded.
NESTED = 4


def algebra(program: Program) -> Program:
    """Return the program with simpler values in place of equal ones."""
    count = uses(program)
    sums: dict[tuple[Value, Shape], Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        new = None
        match v.primitive:
            case Map() as p:
                new = simplified(b, p, v, args)
            case Reduce() as p:
                x, add = args[0], p.combine == "add"
                new = sum_of_multiples(b, x, p.axes, sums) if add else None
                if new is None:
                    new = _reduce(b, p, x, count[v.args[0]] == 1)
                if new is None and add:
                    new = sums[x, p.axes] = renewed(b, v, args)
            case UpdateSlice() as p:
                new = placed(b, p, v, *args)
            case View() as p:
                new = through(b, StridedLayout(p.offset, p.strides, v.shape), args[0])
        return renewed(b, v, args) if new is None else new

    return rebuild(program, rule)


# -- maps --------------------------------------------------------------------------------------


def simplified(b: Builder, p: Map, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Return a simpler value for a map, None if there is none."""
    name = p.name
    if name == "cast":
        return _cast(b, args[0], v)
    rule = RULES.get(name)
    result = rule(b, args) if rule is not None else None
    if result is None:
        return None
    return result if result.shape == v.shape else b.broadcast(result, v.shape)


def number(x: Value) -> float | int | bool | None:
    """Return the number that all elements are; None if they are not equal."""
    c = uniform(x)
    if c is None:
        return None
    value: float | int | bool = number_of(c).item()
    return value


def is_map(x: Value, name: str) -> bool:
    """Whether a value is computed by the scalar function `name`."""
    return isinstance(x.primitive, Map) and x.primitive.name == name


def _positive_zero(n: float | int | bool | None) -> bool:
    return n is not None and n == 0 and math.copysign(1, n) > 0


def _add(b: Builder, args: tuple[Value, ...]) -> Value | None:
    x, y = args
    exact = x.dtype.kind != "f"
    for this, other in ((x, y), (y, x)):
        n = number(this)
        # x + 0.0 is not x for x = -0.0, but x + -0.0 is.
        if n is not None and n == 0 and (exact or math.copysign(1, n) < 0):
            return other
        if is_map(this, "negative"):
            return b.map("subtract", other, this.args[0])
    return None


def _subtract(b: Builder, args: tuple[Value, ...]) -> Value | None:
    x, y = args
    if _positive_zero(number(y)):
        return x
    if is_map(y, "negative"):
        return b.map("add", x, y.args[0])
    return None


def _multiply(b: Builder, args: tuple[Value, ...]) -> Value | None:
    x, y = args
    for this, other in ((x, y), (y, x)):
        n = number(this)
        if n == 1:
            return other
        if n == -1 and other.dtype.kind in "if":
            return b.map("negative", other)
    if x is y and is_map(x, "absolute"):
        return b.map("multiply", x.args[0], x.args[0])
    return _signs_out(b, "multiply", x, y)


def _signs_out(b: Builder, name: str, x: Value, y: Value) -> Value | None:
    """Take the signs out of a product or quotient, for sums to take them up.

    A negative operand that broadcasts stays, since there are fewer of its elements.
    """
    signs = [is_map(v, "negative") for v in (x, y)]
    if not any(signs) or x.dtype.kind not in "fi":
        return None
    left, right = (v.args[0] if s else v for v, s in zip((x, y), signs, strict=True))
    if all(signs):
        return b.map(name, left, right)
    n = number(right if signs[0] else left)
    if n is not None and x.dtype.kind == "f":
        c = b.const(-n, x.dtype)
        return b.map(name, left, c) if signs[0] else b.map(name, c, right)
    if (left if signs[0] else right).size < max(x.size, y.size):
        return None
    return b.map("negative", b.map(name, left, right))


def _divide(b: Builder, args: tuple[Value, ...]) -> Value | None:
    x, y = args
    n = number(y)
    if n is None:
        return _signs_out(b, "divide", x, y)
    if n == 1:
        return x
    if n == -1:
        return b.map("negative", x)
    if _power_of_two(n, y.dtype):
        return b.map("multiply", x, b.const(1 / n, y.dtype))
    return _signs_out(b, "divide", x, y)


def _power_of_two(n: float, dtype: np.dtype) -> bool:
    """Whether dividing by `n` is multiplying by 1 / n: both round the same number once."""
    if n == 0 or not math.isfinite(n) or abs(math.frexp(n)[0]) != 0.5:
        return False
    tiny = np.finfo(dtype).smallest_normal
    return bool(tiny <= abs(n) <= 1 / tiny / 4)


def _negative(b: Builder, args: tuple[Value, ...]) -> Value | None:
    (x,) = args
    if is_map(x, "negative"):
        return x.args[0]
    if is_map(x, "multiply") and x.dtype.kind == "f":  # -(x * 2) is x * -2
        for this, other in (x.args, x.args[::-1]):
            n = number(this)
            if n is not None:
                return b.map("multiply", other, b.const(-n, x.dtype))
    return None


def _absolute(b: Builder, args: tuple[Value, ...]) -> Value | None:
    (x,) = args
    if is_map(x, "absolute") or is_map(x, "exp") or is_map(x, "sqrt"):
        return x if not is_map(x, "sqrt") else None  # sqrt(-0.0) is -0.0
    if is_map(x, "negative"):
        return b.map("absolute", x.args[0])
    return None


def _where(b: Builder, args: tuple[Value, ...]) -> Value | None:
    condition, x, y = args
    g = _masked(condition, y)
    if g is not None and number(x) == 0:
        if _vanishes(y, g, DEPTH):
            return y
        if _scales(y, g, DEPTH):
            return b.map("where", b.map("equal", g, b.const(0, g.dtype)), x, y)
    if x is y:
        return x
    truth = number(condition)
    if truth is not None:
        return x if truth else y
    if is_map(condition, "logical_not"):
        return b.map("where", condition.args[0], y, x)
    if x.dtype == BOOL and number(x) is True and number(y) is False:
        return condition
    return None


def _masked(condition: Value, ct: Value) -> Value | None:
    """Return g of a condition ``isnan(ct) & (g == 0)``, None if it is another one.

    The walk of a gradient writes zero where it holds, as below a branch that is not taken:
    an infinite derivative there must not turn zero into nan. That goes where `ct` is zero
    if g is. Where `ct` is a multiple of g, it is zero or nan if g is zero, so that one
    comparison will do: zero is then written without its sign.
    """
    if not is_map(condition, "logical_and"):
        return None
    for nan, zero in (condition.args, condition.args[::-1]):
        if is_map(nan, "isnan") and nan.args[0] is ct and is_map(zero, "equal"):
            g, n = zero.args
            if number(g) == 0:
                g, n = n, g
            return g if number(n) == 0 else None
    return None


def _scales(x: Value, g: Value, depth: int) -> bool:
    """Whether elements of `x` are those of `g` times or divided by something."""
    while depth and x is not g:
        if not isinstance(x.primitive, Map):
            return False
        name, args = x.primitive.name, x.args
        if name in ("divide", "negative", "cast"):
            x = args[0]
        elif name == "multiply":
            x = args[0] if _scales(args[0], g, depth // 2) else args[1]
        else:
            return False
        depth -= 1
    return x is g


def _vanishes(x: Value, g: Value, depth: int) -> bool:
    """Whether elements of `x` are zero where those of `g` are."""
    if x is g:
        return True
    if isinstance(x.primitive, View) and x.args[0].size == x.size and g.size == x.size == 1:
        return x.args[0] is g
    if not isinstance(x.primitive, Map) or not depth:
        return False
    name, args = x.primitive.name, x.args
    if name == "multiply":
        return any(
            _vanishes(this, g, depth - 1) and _finite(other, 2)
            for this, other in (args, args[::-1])
        )
    if name == "divide":
        n = number(args[1])
        return bool(n) and n == n and _vanishes(args[0], g, depth - 1)
    if name in ("negative", "cast"):
        return _vanishes(args[0], g, depth - 1)
    if name in ("add", "subtract"):
        return all(_vanishes(a, g, depth // 2) for a in args)
    if name == "where":
        return all(number(a) == 0 or _vanishes(a, g, depth // 2) for a in args[1:])
    return False


def _finite(x: Value, depth: int) -> bool:
    """Whether no element is infinite or nan, whatever the inputs are."""
    if x.dtype.kind in "biu":
        return True
    n = number(x)
    if n is not None:
        return math.isfinite(n)
    if isinstance(x.primitive, View):
        return depth > 0 and _finite(x.args[0], depth - 1)
    if not isinstance(x.primitive, Map) or not depth:
        return False
    if x.primitive.name == "cast":
        return x.args[0].dtype.kind in "biu"
    if x.primitive.name in ("where", "negative", "maximum", "minimum"):
        operands = x.args[-2:]
        return all(_finite(a, depth - 1) for a in operands)
    return False


def _same_twice(_: Builder, args: tuple[Value, ...]) -> Value | None:
    return args[0] if args[0] is args[1] else None


def _truths(neutral: bool) -> MapRule:
    def rule(_: Builder, args: tuple[Value, ...]) -> Value | None:
        x, y = args
        if x is y:
            return x
        for this, other in ((x, y), (y, x)):
            n = number(this)
            if n is not None:
                return other if n is neutral else this
        return None

    return rule


_OPPOSITE = {"equal": "not_equal", "not_equal": "equal"}


def _logical_not(b: Builder, args: tuple[Value, ...]) -> Value | None:
    (x,) = args
    if is_map(x, "logical_not"):
        return x.args[0]
    if not isinstance(x.primitive, Map):
        return None
    name, operands = x.primitive.name, x.args
    if name in _OPPOSITE:
        return b.map(_OPPOSITE[name], *operands)
    return None


def _not_equal(_: Builder, args: tuple[Value, ...]) -> Value | None:
    for this, other in (args, args[::-1]):
        if is_map(this, "cast") and this.args[0].dtype == BOOL and number(other) == 0:
            return this.args[0]
        if this.dtype == BOOL and number(other) is False:
            return this
    return None


def _power(b: Builder, args: tuple[Value, ...]) -> Value | None:
    """Multiply small powers out, when the exponent turns out to be constant."""
    n = number(args[1])
    if n not in (1, 2, 3, 4) or args[0].dtype.kind != "f":
        return None
    return emit(b, "power", (args[0], b.const(n, args[1].dtype)), literal=True)


def _logaddexp(b: Builder, args: tuple[Value, ...]) -> Value | None:
    """Write the function out where one operand is a constant that is not negative.

    Then both terms of the sum are positive, so that nothing cancels and the vector versions
    of exp and log1p will do: the error stays below 3 units in the last place.
    """
    for this, other in (args, args[::-1]):
        n = number(this)
        if n is None or not 0 <= n < math.inf:
            continue
        c = b.const(n, other.dtype)
        apart = other if n == 0 else b.map("subtract", other, c)
        less = b.map("exp", b.map("negative", b.map("absolute", apart)))
        return b.map("add", b.map("maximum", other, c), b.map("log1p", less))
    return None


def _cast(b: Builder, x: Value, v: Value) -> Value | None:
    """Drop the middle one of a chain of casts where it keeps every number."""
    if not is_map(x, "cast"):
        return None
    source = x.args[0]
    if x.dtype.kind == "f" and v.dtype.kind in "iu" and not holds(v.dtype, source.dtype):
        return None  # integers wrap, numbers out of range do not
    if x.dtype in WIDE and source.dtype == v.dtype and _fits(source, x.dtype):
        return source
    return b.cast(source, v.dtype) if holds(x.dtype, source.dtype) else None


def _fits(x: Value, narrow: np.dtype, depth: int = NESTED) -> bool:
    """Whether a narrower dtype has all numbers that are elements of `x`.

    Functions that round nothing give numbers of the dtype of their operands.
    """
    match x.primitive:
        case Constant(value=c):
            with np.errstate(all="ignore"):
                return bool(c != c or c.astype(narrow) == c)
        case View():
            return _fits(x.args[0], narrow, depth)
        case Reduce(combine=name) | Map(name=name) if name != "cast":
            numbers = [a for a in x.args if a.dtype != BOOL]
            f = FUNCTIONS[name]
            exact = f.is_exact and not f.of_spacing
            return exact and depth > 0 and all(_fits(a, narrow, depth - 1) for a in numbers)
        case Map():
            return holds(narrow, x.args[0].dtype)
        case _:
            return False


def holds(wide: np.dtype, narrow: np.dtype) -> bool:
    """Whether `wide` represents every number of `narrow` exactly."""
    if wide.kind == "f" and narrow.kind in "iu":
        return narrow.itemsize < wide.itemsize
    return bool(np.can_cast(narrow, wide, "safe"))


RULES: dict[str, MapRule] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "negative": _negative,
    "absolute": _absolute,
    "where": _where,
    "maximum": _same_twice,
    "minimum": _same_twice,
    "fmax": _same_twice,
    "fmin": _same_twice,
    "logical_and": _truths(neutral=True),
    "logical_or": _truths(neutral=False),
    "logical_not": _logical_not,
    "not_equal": _not_equal,
    "power": _power,
    "logaddexp": _logaddexp,
}


# -- folds -------------------------------------------------------------------------------------


def _reduce(b: Builder, p: Reduce, x: Value, single: bool) -> Value | None:
    """Simplify a fold of a broadcast, of a fold, and of a box in zeros."""
    combine, axes = p.combine, p.axes
    if isinstance(x.primitive, Reduce) and single and x.primitive.combine == combine:
        inner = x.primitive.axes
        others = [i for i in range(x.args[0].ndim) if i not in inner]
        return b.reduce(combine, x.args[0], (*inner, *(others[i] for i in axes)))
    if isinstance(x.primitive, View) and combine != "multiply":
        return _of_broadcast(b, combine, x.primitive, x, axes)
    if isinstance(x.primitive, UpdateSlice) and combine == "add" and single:
        return _of_box(b, x, axes)
    if is_map(x, "negative") and combine == "add" and single:
        return b.map("negative", b.reduce("add", x.args[0], axes))
    return None


def _of_broadcast(b: Builder, combine: str, view: View, x: Value, axes: Shape) -> Value | None:
    """Fold equal elements by one multiplication, or not at all."""
    strides = view.strides
    flat = [i for i in axes if strides[i] == 0 and x.shape[i] > 1]
    if not flat:
        return None
    n = math.prod(x.shape[i] for i in flat)
    if combine == "add" and x.dtype.kind not in "fiu":
        return None
    shape = tuple(1 if i in flat else k for i, k in enumerate(x.shape))
    r = b.reduce(combine, b.view(x.args[0], view.offset, strides, shape), axes)
    return b.map("multiply", r, b.const(n, x.dtype)) if combine == "add" else r


def _of_box(b: Builder, x: Value, axes: Shape) -> Value | None:
    """Sum a box that lies in zeros without them, if it spans the axes that remain."""
    base, value = x.args
    if number(base) != 0:
        return None
    if any(value.shape[i] != n for i, n in enumerate(base.shape) if i not in axes):
        return None
    return b.reduce("add", value, axes)
