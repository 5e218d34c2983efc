"""Python's integers: arithmetic with 64 bits, where what is known of them tells that these suffice.

Where it does not, the kernel finds out when it runs, and notes it like an error.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Apply, Const, Expr
from adarray.kernels import build
from adarray.loops.lower import scalars
from adarray.loops.lower.intervals import HIGHEST, LOWEST, Affine
from adarray.loops.lower.kinds import INT
from adarray.loops.lower.state import State
from adarray.loops.lower.values import Number, integer, number

_EXACT = 1 << 53  # whole numbers below are floats


class Integers:
    """Integers from integers, as Python has them."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.facts = state.facts

    def is_exact(self, a: Number) -> bool:
        """Whether a float has all digits of an integer."""
        return a.whole is not None and self.facts.within(a.whole, -_EXACT, _EXACT)

    def need_exact(self, a: Number) -> None:
        """Give up where an integer has more digits than a float."""
        if self.is_exact(a):
            return
        size = Apply("float64", "absolute", (build.cast(a.expr, "float64"),))
        limit = build.const(_EXACT, "float64")
        self.state.fail_if(build.call("greater_equal", "bool", size, limit))

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
        self.no_zero("floor_divide", b)
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

    def no_zero(self, name: str, divisor: Number) -> None:
        """Note that Python raises an error for a divisor that is 0."""
        if name not in ("divide", "floor_divide", "remainder"):
            return
        if divisor.whole is not None and divisor.kind == INT and self.is_nonzero(divisor.whole):
            return
        expr = divisor.expr
        if isinstance(expr, Const):
            self.state.fail_if(build.const(expr.value == 0, "bool"))
        else:
            self.state.fail_if(build.call("equal", "bool", expr, build.const(0, expr.dtype)))

    def is_nonzero(self, a: Affine) -> bool:
        """Whether a form is proven not to be 0."""
        return self.facts.at_least(a, 1) or self.facts.at_least(Affine(-1), a)

    def power(self, a: Number, b: Number) -> Number:
        """Return a power whose exponent, or whose base 2, stands in the text."""
        assert b.whole is not None
        exponent = b.whole.value
        if isinstance(b.expr, Const) and exponent is not None and 0 <= exponent <= 8:
            result = integer(1)
            a = self.state.named("factor", a)
            for _ in range(exponent):
                result = self.times(result, a)
            return result
        if isinstance(a.expr, Const) and a.expr.value == 2 and self.facts.within(b.whole, 0, 61):
            return self.shifted("left_shift", integer(1), b)
        raise self.state.refusal("a power of integers, whose exponent is not known")

    def shifted(self, name: str, a: Number, b: Number) -> Number:
        """Return an integer with its bits moved."""
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

    def bits(self, name: str, a: Number, b: Number) -> Number:
        """Return an integer with the bits of two combined."""
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
