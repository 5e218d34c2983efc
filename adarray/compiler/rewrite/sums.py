"""Sums of multiples of what is summed already, such as the sum of a softmax.

What a gradient subtracts from the scores of a softmax is the sum of its terms: a number for
each row times the exponentials, whose sum is known since the forward pass, and a number in
the place of the label. The sum of multiples is the multiple of the sum, so that no other
pass over the row is needed; it rounds less often than what it stands for. Where terms are nan
or infinite, so is it, but for one case: terms that are finite and whose sum is not.

References
----------
- N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., SIAM 2002, chapter 4.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from adarray.compiler.ir.builder import Builder, number_of, uniform
from adarray.compiler.ir.primitives import Constant, Iota, Map, View
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.views import Shape

# Operations that are looked through.
DEPTH = 6
# Functions whose values are not negative, so that sums of them are zero or infinite only if
# all of them or some are.
POSITIVE = frozenset({"exp", "exp2", "absolute", "square"})
Sums = Mapping[tuple[Value, Shape], Value]
# A sum, and how many known ones it is made of.
Terms = tuple[Value, int]


def sum_of_multiples(b: Builder, x: Value, axes: Shape, sums: Sums) -> Value | None:
    """Return the sum of `x` over `axes`, made of one that is in `sums`; None if it cannot be.

    Parameters
    ----------
    b : Builder
    x : Value
    axes : tuple of int
    sums : mapping
        Sums that were made before, by what is summed and the axes.
    """
    if not isinstance(x.primitive, Map) or x.dtype.kind != "f":
        return None
    total = _Terms(b, x.shape, axes, sums).sum_of(x, DEPTH)
    return total[0] if total is not None and total[1] == 1 else None


class _Terms:
    """Sums of terms of one shape over the same axes, with how many known sums they hold.

    Sums of differences are not differences of sums: where terms cancel, those would be less
    exact. So one known sum may take part, and numbers in single places besides.
    """

    def __init__(self, b: Builder, shape: Shape, axes: Shape, sums: Sums) -> None:
        self.b = b
        self.shape = shape
        self.axes = axes
        self.sums = sums

    def sum_of(self, x: Value, depth: int) -> Terms | None:
        """Return the sum of a term."""
        known = self.sums.get((x, self.axes))
        if known is not None:
            return (known, 1) if _is_positive(x) else None
        if not isinstance(x.primitive, Map) or x.shape != self.shape or not depth:
            return None
        name, args = x.primitive.name, x.args
        if name in ("multiply", "divide"):
            return self._multiple(name, args, depth - 1)
        if name == "negative":
            inner = self.sum_of(args[0], depth - 1)
            return None if inner is None else (self.b.map(name, inner[0]), inner[1])
        if name == "where":
            return self._single(*args)
        if name not in ("add", "subtract"):
            return None
        first = self.sum_of(args[0], depth // 2)
        second = None if first is None else self.sum_of(args[1], depth // 2)
        if first is None or second is None or first[1] + second[1] > 1:
            return None
        return self.b.map(name, first[0], second[0]), first[1] + second[1]

    def _multiple(self, name: str, args: tuple[Value, ...], depth: int) -> Terms | None:
        """Return the sum of a product or quotient whose factor keeps nan and infinity as they are.

        Finite numbers do, and so do the sum itself and a number divided by it: with the sum
        the terms are finite, or all of them and it are not.
        """
        for factor, x in (args, args[::-1])[: 2 if name == "multiply" else 1]:
            if name == "divide":
                factor, x = x, factor
            inner = self.sum_of(x, depth)
            if inner is not None and (self._finite(factor) or self._scaled(name, factor, x)):
                here = self._same(factor)
                return None if here is None else (self.b.map(name, inner[0], here), inner[1])
        return None

    @staticmethod
    def _finite(x: Value) -> bool:
        c = uniform(x)
        return c is not None and bool(np.isfinite(number_of(c)) and number_of(c) != 0)

    def _scaled(self, name: str, factor: Value, x: Value) -> bool:
        """Whether a factor is the sum of `x`, as a divisor, or a number divided by that."""
        known = self.sums.get((x, self.axes))
        base = _whole(factor)
        if known is None:
            return False
        if name == "divide":
            return base is known
        if not isinstance(base.primitive, Map) or base.primitive.name != "divide":
            return False
        return self._finite(base.args[0]) and _whole(base.args[1]) is known

    def _single(self, condition: Value, x: Value, y: Value) -> Terms | None:
        """Return the sum of what is zero but in one place of each row."""
        zero = uniform(y)
        if zero is None or number_of(zero) != 0 or len(self.axes) != 1:
            return None
        if not isinstance(condition.primitive, Map) or condition.primitive.name != "equal":
            return None
        b, (axis,) = self.b, self.axes
        n = self.shape[axis]
        for numbers, place in (condition.args, condition.args[::-1]):
            along = axis - len(self.shape) + numbers.ndim
            if not isinstance(numbers.primitive, Iota) or numbers.primitive.axis != along:
                continue
            if numbers.shape[along] != n:
                continue
            where, value = self._same(place), self._same(x)
            if where is None or value is None:
                return None
            above = b.map("greater_equal", where, b.const(0, where.dtype))
            below = b.map("less", where, b.const(n, where.dtype))
            inside = b.map("logical_and", above, below)
            return b.map("where", inside, value, b.const(0, value.dtype)), 0
        return None

    def _same(self, x: Value) -> Value | None:
        """Return what is the same along the axes without them; None if it is not."""
        if isinstance(x.primitive, Constant):
            return x
        v = self.b.broadcast(x, self.shape)
        if not isinstance(v.primitive, View):
            return None
        strides = v.primitive.strides
        if any(strides[a] for a in self.axes):
            return None
        rest = [a for a in range(len(self.shape)) if a not in self.axes]
        shape = tuple(self.shape[a] for a in rest)
        return self.b.view(v.args[0], v.primitive.offset, tuple(strides[a] for a in rest), shape)


def _is_positive(x: Value) -> bool:
    """Whether no element is negative, by what makes it."""
    if not isinstance(x.primitive, Map):
        return False
    return x.primitive.name in POSITIVE or (
        x.primitive.name == "multiply" and x.args[0] is x.args[1]
    )


def _whole(x: Value) -> Value:
    """Return what a value that repeats or reshapes another one shows."""
    while isinstance(x.primitive, View):
        x = x.args[0]
    return x
