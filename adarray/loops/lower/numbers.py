"""Arithmetic of numbers: Python's of its own, NumPy's where one of them is NumPy's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr
from adarray.kernels import build
from adarray.kernels.types import FLOATS, INTEGERS
from adarray.loops.lower import scalars
from adarray.loops.lower.intervals import HIGHEST, LOWEST, Affine
from adarray.loops.lower.kinds import (
    BOOL,
    FLOAT,
    INT,
    PYTHON,
    Kinds,
    dtype_of,
    is_float,
    is_truth,
    is_whole,
    kind_of,
    resolved,
    stored,
)
from adarray.loops.lower.state import State
from adarray.loops.lower.values import Number, integer, number

_EXACT = 1 << 53  # whole numbers below are floats
_SMALL = 1 << 12
_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip


class Arithmetic:
    """Numbers from numbers."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.facts = state.facts

    # -- constants, conversions --------------------------------------------------------------------

    def is_fixed(self, a: Number) -> bool:
        """Whether a number is the same in all iterations."""
        return a.whole is not None and a.whole.value is not None

    def constant(self, value: object) -> Number | None:
        """Return a number that stands in the text; None for other objects."""
        kind = kind_of(value)
        if kind is None:
            return None
        if is_whole(kind):
            whole = int(value)  # type: ignore[call-overload]
            if not LOWEST <= whole <= HIGHEST:
                raise self.state.refusal("an integer of more than 64 bits")
            return number(build.const(whole, dtype_of(kind)), kind, Affine(whole))
        return number(build.const(value, dtype_of(kind)), kind)

    def cast(self, a: Number, dtype: str) -> Expr:
        """Return a number as an operand of an operation in a dtype."""
        if INT in a.kinds and dtype not in FLOATS and dtype != "bool":
            low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
            if a.whole is None or not self.facts.within(a.whole, low, high):
                raise self.state.refusal(f"a Python integer may be none of {dtype}")
        return build.cast(a.expr, dtype)

    def truth(self, a: Number) -> Number:
        """Return whether a number is not 0."""
        if is_truth(a.kinds):
            return a
        test = number(build.truth(a.expr), BOOL)
        if a.whole is None or INT not in a.kinds:
            return test
        return self.compare("not_equal", a, integer(0))

    def joined(self, values: Sequence[Number]) -> Kinds | None:
        """Return the kinds of a variable that is one of some numbers; None if it has no dtype."""
        kinds = frozenset(k for v in values for k in v.kinds)
        dtype = stored(kinds)
        if dtype in FLOATS:
            for v in values:
                if INT in v.kinds and v.kind == INT and not self._is_exact(v):
                    return None
        return kinds if dtype is not None else None

    def _is_exact(self, a: Number) -> bool:
        return a.whole is not None and self.facts.within(a.whole, -_EXACT, _EXACT)

    def _need_exact(self, a: Number) -> None:
        """Give up where an integer has more digits than a float."""
        if self._is_exact(a):
            return
        size = Apply("float64", "absolute", (build.cast(a.expr, "float64"),))
        limit = build.const(_EXACT, "float64")
        self.state.fail_if(build.call("greater_equal", "bool", size, limit))

    # -- Python's integers -------------------------------------------------------------------------

    def int_of(self, expr: Expr, whole: Affine) -> Number:
        """Return a Python integer, if it has 64 bits."""
        if not self.facts.within(whole, LOWEST, HIGHEST):
            raise self.state.refusal("a Python integer may have more than 64 bits")
        return number(expr, INT, whole)

    def plus(self, a: Number, b: Number) -> Number:
        """Return the sum of two integers."""
        assert a.whole is not None
        assert b.whole is not None
        whole = a.whole + b.whole
        if not self.facts.within(whole, LOWEST, HIGHEST):
            return self._checked("add", a, b)
        return number(build.add(a.expr, b.expr), INT, whole)

    def _checked(self, name: str, a: Number, b: Number) -> Number:
        """Return a sum, difference or product that may have more than 64 bits."""
        x, y = self.state.let("a", a.expr), self.state.let("b", b.expr)
        estimate = build.call(name, "float64", *(build.cast(e, "float64") for e in (x, y)))
        size = Apply("float64", "absolute", (estimate,))
        large = build.call("greater", "bool", size, build.const(1 << 62, "float64"))
        self.state.fail_if(large)
        # No more than is rounded off is missing in the bound.
        whole = self.facts.symbol([Affine(LOWEST)], [Affine(HIGHEST)])
        return number(self.state.let("n", scalars.wrapped(name, x, y)), INT, whole)

    def minus(self, a: Number, b: Number) -> Number:
        """Return the difference of two integers."""
        assert a.whole is not None
        assert b.whole is not None
        if a.expr == b.expr:
            return integer(0)
        whole = a.whole - b.whole
        if not self.facts.within(whole, LOWEST, HIGHEST):
            return self._checked("subtract", a, b)
        return number(build.subtract(a.expr, b.expr), INT, whole)

    def times(self, a: Number, b: Number) -> Number:
        """Return the product of two integers."""
        assert a.whole is not None
        assert b.whole is not None
        expr = build.multiply(a.expr, b.expr)
        known = [y.scaled(x.value) for x, y in ((a.whole, b.whole), (b.whole, a.whole))
                 if x.value is not None]  # fmt: skip
        if known:
            if not self.facts.within(known[0], LOWEST, HIGHEST):
                return self._checked("multiply", a, b)
            return number(expr, INT, known[0])
        ends = [x * y for x in self.facts.range(a.whole) for y in self.facts.range(b.whole)]
        if min(ends) < LOWEST or max(ends) > HIGHEST:
            return self._checked("multiply", a, b)
        lows, highs = [Affine(min(ends))], [Affine(max(ends))]
        if self.facts.at_least(a.whole, 1) and self.facts.at_least(b.whole, 1):
            lows += [a.whole, b.whole]
        return number(expr, INT, self.facts.symbol(lows, highs))

    def least(self, a: Number, b: Number) -> Number:
        """Return the smaller of two integers."""
        assert a.whole is not None
        assert b.whole is not None
        if self.facts.at_least(b.whole, a.whole):
            return a
        if self.facts.at_least(a.whole, b.whole):
            return b
        # The bounds hold wherever the two are the same, whatever is known here.
        low = min(self.facts.least(a.whole), self.facts.least(b.whole))
        key = ("least", a.whole, b.whole)
        whole = self.facts.function(key, [Affine(low)], [a.whole, b.whole])
        a, b = self.state.named("a", a), self.state.named("b", b)
        return number(build.call("minimum", "int64", a.expr, b.expr), INT, whole)

    def most(self, a: Number, b: Number) -> Number:
        """Return the larger of two integers."""
        assert a.whole is not None
        assert b.whole is not None
        if self.facts.at_least(a.whole, b.whole):
            return a
        if self.facts.at_least(b.whole, a.whole):
            return b
        high = -min(self.facts.least(a.whole.scaled(-1)), self.facts.least(b.whole.scaled(-1)))
        key = ("most", a.whole, b.whole)
        whole = self.facts.function(key, [a.whole, b.whole], [Affine(high)])
        a, b = self.state.named("a", a), self.state.named("b", b)
        return number(build.call("maximum", "int64", a.expr, b.expr), INT, whole)

    def divided(self, a: Number, b: Number) -> tuple[Number, Number]:
        """Return quotient and remainder of two integers, as Python has them."""
        assert a.whole is not None
        assert b.whole is not None
        facts = self.facts
        if facts.at_least(b.whole, 1):
            pass
        elif facts.at_least(Affine(-1), b.whole):
            q, r = self.divided(self.minus(integer(0), a), self.minus(integer(0), b))
            return q, self.minus(integer(0), r)
        else:
            return self._divided_by_any(a, b)
        if facts.at_least(a.whole, 0) and facts.at_least(b.whole - 1, a.whole):
            return integer(0), a
        (low, high), (least, most) = facts.range(a.whole), facts.range(b.whole)
        quotients = [x // y for x in (low, high) for y in (least, most)]
        positive = low >= 0 or facts.at_least(a.whole, 0)
        lows, highs = [Affine(min(quotients))], [Affine(max(quotients))]
        rest_highs = [b.whole - 1]
        if positive:
            lows, highs, rest_highs = [*lows, Affine(0)], [*highs, a.whole], [*rest_highs, a.whole]
        x, y = self.state.let("a", a.expr), self.state.let("b", b.expr)
        quotient: Expr = Apply("int64", "quotient", (x, y))
        rest: Expr = Apply("int64", "modulo", (x, y))
        if isinstance(y, Const) and y.value == 1:
            return a, integer(0)
        if not positive:
            below = build.call("less", "bool", rest, build.index(0))
            one = build.where(below, build.index(1), build.index(0))
            quotient, rest = (
                build.subtract(quotient, one), build.where(below, build.add(rest, y), rest)
            )  # fmt: skip
        if low == high and least == most:
            return number(quotient, INT, Affine(low // least)), number(
                rest, INT, Affine(low % least)
            )
        return (
            number(quotient, INT, facts.symbol(lows, highs)),
            number(rest, INT, facts.symbol([Affine(0)], rest_highs)),
        )

    def _divided_by_any(self, a: Number, b: Number) -> tuple[Number, Number]:
        """Return quotient and remainder where the divisor's sign is not known, or may be 0."""
        assert a.whole is not None
        assert b.whole is not None
        self._no_zero("floor_divide", b)
        x, y = self.state.let("a", a.expr), self.state.let("b", b.expr)
        parts = [scalars.function(n, (x, y), "int64", self.state.let)
                 for n in ("floor_divide", "remainder")]  # fmt: skip
        most = max(map(abs, self.facts.range(a.whole)))
        rest = max(map(abs, self.facts.range(b.whole)))
        assert parts[0] is not None
        assert parts[1] is not None
        return (
            number(parts[0], INT, self.facts.symbol([Affine(-most)], [Affine(most)])),
            number(parts[1], INT, self.facts.symbol([Affine(-rest)], [Affine(rest)])),
        )

    def whole_of(self, x: Number, name: str) -> Number:
        """Return a float as an integer of Python's, by ``trunc``, ``floor`` or ``ceil``."""
        expr = self.state.let("x", Apply(x.expr.dtype, name, (x.expr,)))
        size = build.call("less", "bool", Apply(expr.dtype, "absolute", (expr,)),
                          build.const(1 << 62, expr.dtype))  # fmt: skip
        fits = self.state.let("fits", size)  # false for nan as well
        self.state.fail_if(build.logical_not(fits))
        safe = build.where(fits, expr, build.const(0, expr.dtype))
        whole = self.facts.symbol([Affine(-(1 << 62))], [Affine(1 << 62)])
        return number(self.state.let("n", build.cast(safe, "int64")), INT, whole)

    # -- operators ---------------------------------------------------------------------------------

    def operator(self, name: str, a: Number, b: Number) -> Number:
        """Return what an operator makes of two numbers; `name` is that of NumPy's ufunc."""
        if a.kinds | b.kinds <= PYTHON:
            return self._python(name, a, b)
        return self.ufunc(getattr(np, name), a, b)

    def _python(self, name: str, a: Number, b: Number) -> Number:
        kinds = a.kinds | b.kinds
        if kinds <= {INT, BOOL}:
            if kinds == {BOOL} and name.startswith("bitwise"):
                expr = scalars.function(name, (a.expr, b.expr), "bool", self.state.let)
                assert expr is not None
                return number(expr, BOOL)
            return self._of_ints(name, self.as_int(a), self.as_int(b))
        if name not in _OPERATORS or name.endswith("shift"):
            raise self.state.refusal(f"{name} of floats")
        if FLOAT not in a.kinds & b.kinds and {INT, FLOAT} <= a.kinds | b.kinds:
            for x in (a, b):
                if x.kind == INT:
                    self._need_exact(x)
        if len(a.kinds) > 1 or len(b.kinds) > 1:
            return self._mixed(getattr(np, name), a, b)
        self._no_zero(name, b)
        args = (build.cast(a.expr, "float64"), build.cast(b.expr, "float64"))
        expr = scalars.function(name, args, "float64", self.state.let)
        assert expr is not None
        return number(self.finite(expr, args) if name == "power" else expr, FLOAT)

    def finite(self, value: Expr, args: Sequence[Expr]) -> Expr:
        """Return what a function of Python's gives: it raises an error rather than give nan or inf.

        That is, for operands that are finite; `value` is what C has.
        """
        value = self.state.let("y", value)
        odd = build.logical_not(Apply("bool", "isfinite", (value,)))
        for a in args:
            if not isinstance(a, Const):
                odd = build.both(odd, Apply("bool", "isfinite", (a,)))
        self.state.fail_if(odd)
        return value

    def _no_zero(self, name: str, divisor: Number) -> None:
        """Note that Python raises an error for a divisor that is 0."""
        if name not in ("divide", "floor_divide", "remainder"):
            return
        if divisor.whole is not None and divisor.kind == INT and self._is_nonzero(divisor.whole):
            return
        expr = divisor.expr
        if isinstance(expr, Const):
            self.state.fail_if(build.const(expr.value == 0, "bool"))
        else:
            self.state.fail_if(build.call("equal", "bool", expr, build.const(0, expr.dtype)))

    def _is_nonzero(self, a: Affine) -> bool:
        return self.facts.at_least(a, 1) or self.facts.at_least(Affine(-1), a)

    def as_int(self, a: Number) -> Number:
        """Return a truth value or an integer as an integer of Python's."""
        if a.kind == INT:
            assert a.whole is not None
            return a
        if is_truth(a.kinds):
            return number(
                build.cast(a.expr, "int64"), INT, self.facts.symbol([Affine(0)], [Affine(1)])
            )
        if a.whole is None and a.kind in INTEGERS and a.kind != "uint64":
            limits = np.iinfo(a.kind)
            whole = self.facts.symbol([Affine(int(limits.min))], [Affine(int(limits.max))])
            a = number(a.expr, a.kind, whole)
        if a.whole is None or not self.facts.within(a.whole, LOWEST, HIGHEST):
            raise self.state.refusal("an integer whose size is not known")
        return number(build.cast(a.expr, "int64"), INT, a.whole)

    def _of_ints(self, name: str, a: Number, b: Number) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        simple = {"add": self.plus, "subtract": self.minus, "multiply": self.times}
        if name in simple:
            return simple[name](a, b)
        if name == "floor_divide":
            return self.divided(a, b)[0]
        if name == "remainder":
            return self.divided(a, b)[1]
        if name == "divide":
            self._no_zero(name, b)
            self._need_exact(a)
            self._need_exact(b)
            args = (build.cast(a.expr, "float64"), build.cast(b.expr, "float64"))
            return number(build.divide(*args), FLOAT)
        if name == "power":
            return self._int_power(a, b)
        if name in ("left_shift", "right_shift"):
            return self._shifted(name, a, b)
        return self._bits(name, a, b)

    def _int_power(self, a: Number, b: Number) -> Number:
        assert b.whole is not None
        exponent = b.whole.value
        if isinstance(b.expr, Const) and exponent is not None and 0 <= exponent <= 8:
            result = integer(1)
            a = self.state.named("factor", a)
            for _ in range(exponent):
                result = self.times(result, a)
            return result
        if isinstance(a.expr, Const) and a.expr.value == 2 and self.facts.within(b.whole, 0, 61):
            return self._shifted("left_shift", integer(1), b)
        raise self.state.refusal("a power of integers, whose exponent is not known")

    def _shifted(self, name: str, a: Number, b: Number) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        if not self.facts.within(b.whole, 0, 62):
            raise self.state.refusal("a shift by a number of bits that is not known")
        ends, shifts = self.facts.range(a.whole), self.facts.range(b.whole)
        if name == "left_shift":
            expr: Expr = build.multiply(
                a.expr, build.call("left_shift", "int64", build.index(1), b.expr)
            )
            values = [x << s for x in ends for s in shifts]
        else:
            expr = build.call("right_shift", "int64", a.expr, b.expr)
            values = [x >> s for x in ends for s in shifts]
        return self.int_of(expr, self.facts.symbol([Affine(min(values))], [Affine(max(values))]))

    def _bits(self, name: str, a: Number, b: Number) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        if name not in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            raise self.state.refusal(f"{name} of Python integers")
        (low, high), (least, most) = self.facts.range(a.whole), self.facts.range(b.whole)
        bits = max(x.bit_length() for x in (low, high, least, most))
        lows, highs = [Affine(-(1 << bits))], [Affine((1 << bits) - 1)]
        if name == "bitwise_and" and (low >= 0 or least >= 0):
            lows = [Affine(0)]
            highs = [Affine(h) for x, h in ((low, high), (least, most)) if x >= 0]
        elif low >= 0 and least >= 0:
            lows = [Affine(0)]
        return number(
            build.call(name, "int64", a.expr, b.expr), INT, self.facts.symbol(lows, highs)
        )

    # -- NumPy's functions -------------------------------------------------------------------------

    def ufunc(self, f: np.ufunc, *args: Number) -> Number:
        """Return what a ufunc makes of numbers."""
        if any(len(a.kinds) > 1 for a in args):
            return self._mixed(f, *args)
        kinds = tuple(next(iter(a.kinds)) for a in args)
        dtypes = resolved(f, kinds)
        if dtypes is None:
            raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
        exprs = tuple(self.cast(a, d) for a, d in zip(args, dtypes, strict=False))
        result = self.of_dtypes(f.__name__, exprs, dtypes[-1])
        if result is None:
            raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
        return Number(
            result, frozenset((dtypes[-1],)), self._whole_of(f.__name__, args, dtypes[-1])
        )

    def of_dtypes(self, name: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
        """Return a function of expressions of the dtypes that it takes; None if it is unknown."""
        expr = scalars.function(name, args, dtype, self.state.let)
        small = dtype in ("int8", "uint8", "int16", "uint16")
        return self.state.let("n", expr) if expr is not None and small else expr

    def _whole_of(self, name: str, args: tuple[Number, ...], dtype: str) -> Affine | None:
        """Return what is known of an integer of NumPy's: nothing where it may have wrapped."""
        wholes = [a.whole for a in args]
        if dtype in FLOATS or dtype == "bool" or any(w is None for w in wholes):
            return None
        if name == "add" and wholes[0] is not None and wholes[1] is not None:
            whole = wholes[0] + wholes[1]
        elif name == "subtract" and wholes[0] is not None and wholes[1] is not None:
            whole = wholes[0] - wholes[1]
        else:
            return None
        limits = np.iinfo(dtype)
        return whole if self.facts.within(whole, int(limits.min), int(limits.max)) else None

    def _mixed(self, f: np.ufunc, *args: Number) -> Number:
        """Return what a ufunc makes of numbers of which one may be of several kinds.

        One text computes for all of them. It has float64 for Python's integers and floats, too.
        """
        results: set[str] = set()
        inputs: set[str] = set()
        for kinds in itertools.product(*(a.kinds for a in args)):
            if set(kinds) <= PYTHON:
                whole = set(kinds) <= {INT, BOOL} and f.__name__ != "divide"
                results.add(INT if whole else FLOAT)
                inputs.add("int64" if whole else "float64")
                continue
            dtypes = resolved(f, kinds)
            if dtypes is None:
                raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
            results.add(dtypes[-1])
            inputs |= set(dtypes[:-1])
        shown = " or ".join(sorted(set().union(*(a.kinds for a in args))))
        if "int64" in inputs and results & {INT} and len(inputs) > 1:
            small = [a for a in args if a.whole is not None and a.kind == INT]
            few = all(self.facts.within(a.whole, -_SMALL, _SMALL) for a in small if a.whole)
            if f.__name__ not in ("add", "subtract") or not few:
                raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
            inputs.discard("int64")
        if len(inputs) != 1 or f.__name__ not in ("add", "subtract", "multiply", "divide",
                                                  "maximum", "minimum", "negative"):  # fmt: skip
            raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
        dtype = inputs.pop()
        for kind in results:
            if dtype_of(kind) != dtype and not (kind == INT and dtype == "float64"):
                raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
        if len(args) == 2:
            self._no_zero(f.__name__, args[1])
            if INT in args[1].kinds and f.__name__ == "divide" and args[1].whole is None:
                raise self.state.refusal(f"a division by a number that is {shown}")
        expr = scalars.function(
            f.__name__, tuple(build.cast(a.expr, dtype) for a in args), dtype, self.state.let
        )
        assert expr is not None
        return Number(expr, frozenset(results))

    # -- comparisons and truth values --------------------------------------------------------------

    def compare(self, name: str, a: Number, b: Number) -> Number:
        """Return a comparison."""
        python = a.kinds | b.kinds <= PYTHON
        result = BOOL if python else "bool"
        if a.whole is not None and b.whole is not None and INT in a.kinds | b.kinds:
            return self._compare_whole(name, a, b, result)
        if any(is_float(k) and k != FLOAT for k in a.kinds | b.kinds) or not python:
            kinds = {tuple(k) for k in itertools.product(a.kinds, b.kinds)}
            dtypes = {resolved(getattr(np, name), k) for k in kinds}
            if None in dtypes:
                raise self.state.refusal(f"a comparison of {a.kinds} with {b.kinds}")
            inputs = {d for ds in dtypes if ds is not None for d in ds[:-1]}
        else:
            inputs = {"float64"}
        mixed = inputs <= {"float64", "int64"} and len(inputs) == 2
        if mixed:  # integers among floats are exact
            inputs = {"float64"}
        if len(inputs) != 1:
            raise self.state.refusal("a comparison of numbers of several dtypes")
        dtype = inputs.pop()
        x, y = (self.cast(v, dtype) for v in (a, b))
        if dtype == "bool" and name not in ("equal", "not_equal"):
            x, y = build.cast(x, "int32"), build.cast(y, "int32")
        return number(build.call(name, "bool", x, y), result)

    def _compare_whole(self, name: str, a: Number, b: Number, result: str) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        less, more = b.whole - a.whole, a.whole - b.whole
        holds: tuple[Affine, ...]
        fails: tuple[Affine, ...]
        none: tuple[Affine, ...] = ()
        holds, fails = {
            "less": ((less - 1,), (more,)), "less_equal": ((less,), (more - 1,)),
            "greater": ((more - 1,), (less,)), "greater_equal": ((more,), (less - 1,)),
            "equal": ((less, more), none), "not_equal": (none, (less, more)),
        }[name]  # fmt: skip
        if holds and all(map(self.facts.nonnegative, holds)):
            return number(build.const(True, "bool"), result)
        if fails and all(map(self.facts.nonnegative, fails)):
            return number(build.const(False, "bool"), result)
        if not holds or not fails:
            apart = self._is_nonzero(less)
            if apart:
                return number(build.const(name == "not_equal", "bool"), result)
        x, y = build.cast(a.expr, "int64"), build.cast(b.expr, "int64")
        return Number(build.call(name, "bool", x, y), frozenset((result,)), None, holds, fails)

    def negated(self, a: Number) -> Number:
        """Return ``not a``."""
        a = self.truth(a)
        kinds = frozenset((BOOL,))
        return Number(build.logical_not(a.expr), kinds, None, a.fails, a.holds)

    def both(self, a: Number, b: Number) -> Number:
        """Return whether two truth values are true."""
        expr = build.both(a.expr, b.expr)
        kinds = frozenset((BOOL,)) if a.kinds | b.kinds == {BOOL} else frozenset(("bool",))
        return Number(expr, kinds, None, (*a.holds, *b.holds))

    def either(self, a: Number, b: Number) -> Number:
        """Return whether one of two truth values is true."""
        expr = build.logical_not(build.both(build.logical_not(a.expr), build.logical_not(b.expr)))
        if not isinstance(expr, Const):
            expr = build.call("logical_or", "bool", a.expr, b.expr)
        kinds = frozenset((BOOL,)) if a.kinds | b.kinds == {BOOL} else frozenset(("bool",))
        return Number(expr, kinds, None, (), (*a.fails, *b.fails))

    def chosen(self, test: Number, a: Number, b: Number) -> Number | None:
        """Return `a` where `test` holds, else `b`; None if no variable has both."""
        kinds = self.joined((a, b))
        if kinds is None:
            return None
        dtype = stored(kinds)
        assert dtype is not None
        x, y = build.cast(a.expr, dtype), build.cast(b.expr, dtype)
        return Number(build.where(test.expr, x, y), kinds, self.hull(a, b, test))

    def hull(self, a: Number, b: Number, test: Number | None = None) -> Affine | None:
        """Return what is known of a number that is one of two, by a test."""
        if a.whole is None or b.whole is None:
            return None
        if a.whole == b.whole:
            return a.whole
        with self.facts.assuming(() if test is None else test.holds):
            low, high = self.facts.range(a.whole)
        with self.facts.assuming(() if test is None else test.fails):
            least, most = self.facts.range(b.whole)
        lows, highs = [Affine(min(low, least))], [Affine(max(high, most))]
        for x, y in ((a.whole, b.whole), (b.whole, a.whole)):
            if self.facts.at_least(x, y):
                lows, highs = [*lows, y], [*highs, x]
        return self.facts.symbol(lows, highs)
