"""Python's own functions of numbers, and what loops run over."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Apply
from adarray.kernels import build
from adarray.kernels.types import FLOATS
from adarray.loops.lower.kinds import BOOL, FLOAT, INT, dtype_of
from adarray.loops.lower.values import (
    Growing,
    Items,
    Lazy,
    Number,
    Span,
    Value,
    Walk,
    integer,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.calls import Calls


class PythonCalls:
    """Builtin functions."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.low = calls.low
        self.state = calls.state
        self.numbers = calls.numbers
        self.elements = calls.elements
        self.functions: dict[Any, Callable[..., Value]] = {
            builtins.abs: calls.absolute, builtins.min: self.least, builtins.max: self.most,
            builtins.len: self.length, builtins.float: self.to_float, builtins.int: self.to_int,
            builtins.bool: self.to_bool, builtins.range: self.range,
            builtins.enumerate: self.enumerate, builtins.zip: self.zip,
            builtins.reversed: self.reversed, builtins.sum: self.builtin_sum,
            builtins.divmod: self.divmod, builtins.round: self.round,
            builtins.pow: lambda a, b: self.elements.operator(
                "power", calls.numeric(a), calls.numeric(b)
            ),
        }  # fmt: skip

    def _extreme(self, name: str, args: Sequence[Value]) -> Value:
        if len(args) == 1 and isinstance(args[0], Growing):
            return self.low.comprehensions.extreme(name == "greater", args[0])
        if len(args) == 1 and isinstance(args[0], Items):
            args = args[0].items
        if len(args) < 2:
            raise self.state.refusal("an extreme of what is no tuple")
        numbers = [self.low.expressions.as_number(a) for a in args]
        result = numbers[0]
        for x in numbers[1:]:
            if result.kind == INT and x.kind == INT:
                pick = self.numbers.least if name == "less" else self.numbers.most
                result = pick(result, x)
                continue
            a, b = self.state.named("a", result), self.state.named("b", x)
            chosen = self.numbers.chosen(self.numbers.compare(name, b, a), b, a)
            if chosen is None:
                raise self.state.refusal("a number that is one of several types")
            result = chosen
        return result

    def least(self, *args: Value) -> Value:
        """Return the smallest of some numbers."""
        return self._extreme("less", args)

    def most(self, *args: Value) -> Value:
        """Return the largest of some numbers."""
        return self._extreme("greater", args)

    def divmod(self, a: Value, b: Value) -> Value:
        """Return quotient and remainder."""
        x, y = self.calls.numeric(a), self.calls.numeric(b)
        return Items(tuple(self.elements.operator(n, x, y) for n in ("floor_divide", "remainder")))

    def round(self, x: Value) -> Value:
        """Return the nearest integer, the even one of two."""
        return self.calls.whole(self.low.expressions.as_number(x), "rint")

    def length(self, x: Value) -> Value:
        """Return the extent of the first axis, or the number of items."""
        if isinstance(x, Items):
            return integer(len(x.items))
        if isinstance(x, Span):
            return self.low.loops.walk(x).count
        if isinstance(x, Growing):
            return self.low.lists.count(x)
        array = self.calls.array(x)
        if isinstance(array, Lazy) and array.mask is not None:
            return self.elements.masks.count(array.mask)
        shape = array.shape
        if not shape:
            raise self.state.refusal("the length of a number")
        return shape[0]

    def to_float(self, x: Value) -> Value:
        """Return a number as one of Python's floats."""
        return number(build.cast(self.low.expressions.as_number(x).expr, "float64"), FLOAT)

    def to_int(self, x: Value) -> Value:
        """Return a number as one of Python's integers."""
        return self.calls.whole(self.low.expressions.as_number(x), "trunc")

    def to_bool(self, x: Value) -> Value:
        """Return whether a number is not 0."""
        test = self.numbers.truth(self.low.expressions.as_number(x))
        return Number(test.expr, frozenset((BOOL,)), None, test.holds, test.fails)

    def builtin_sum(self, x: Value, start: Value | None = None) -> Value:
        """Return the sum of some numbers."""
        if isinstance(x, Growing):
            if start is None and not self.low.lists.are_floats(x):
                return self.low.comprehensions.sum_of(x)
            x = self.low.lists.walk(x)
        if isinstance(x, Walk) and start is None:
            return self._summed(x)
        if not isinstance(x, Items):
            raise self.state.refusal("Python's sum of what is no tuple")
        total: Value = integer(0) if start is None else start
        for item in x.items:
            total = self.elements.operator(
                "add", self.calls.numeric(total), self.calls.numeric(item)
            )
        return total

    def _summed(self, walk: Walk) -> Number:
        """Return Python's sum of the numbers of a comprehension, if they are floats."""
        kinds = self.calls.kinds_of(walk)
        dtypes = {dtype_of(k) for k in kinds}
        if len(kinds) != 1 or not dtypes <= set(FLOATS):
            raise self.state.refusal("Python's sum of other than floats of one type")
        (dtype,) = dtypes
        total = self.state.local("total", dtype, build.const(0, dtype))
        with self.state.loop("k", walk.count) as k:
            x = self.low.expressions.as_number(walk.item(k))
            self.state.assign(total, Apply(dtype, "add", (total, x.expr)))
        assert walk.count.whole is not None
        if self.numbers.facts.at_least(walk.count.whole, 1):
            return Number(total, kinds)
        some = build.call("less", "bool", build.index(0), walk.count.expr)
        tag = self.numbers.tag_of_one(some, Number(total, kinds), integer(0))
        return Number(total, kinds | {INT}, tag=tag)

    def range(self, *args: Value) -> Value:
        """Return a range."""
        ends = [self.low.expressions.integer(a) for a in args]
        if not 1 <= len(ends) <= 3:
            raise self.state.refusal("a range of such arguments")
        if len(ends) == 1:
            ends.insert(0, integer(0))
        return Span(ends[0], ends[1], ends[2] if len(ends) == 3 else integer(1))

    def enumerate(self, x: Value, start: Value | None = None) -> Value:
        """Return items with their numbers."""
        walk = self.low.loops.walk(x)
        first = integer(0) if start is None else self.low.expressions.integer(start)
        return Walk(walk.count, lambda k: Items((self.numbers.plus(first, k), walk.item(k))))

    def zip(self, *xs: Value) -> Value:
        """Return items of several walks, side by side."""
        walks = [self.low.loops.walk(x) for x in xs]
        if not walks:
            raise self.state.refusal("zip of nothing")
        count = walks[0].count
        for w in walks[1:]:
            count = self.numbers.least(count, w.count)
        return Walk(count, lambda k: Items(tuple(w.item(k) for w in walks)))

    def reversed(self, x: Value) -> Value:
        """Return items from the last to the first."""
        walk = self.low.loops.walk(x)
        last = self.numbers.minus(walk.count, integer(1))
        return Walk(walk.count, lambda k: walk.item(self.numbers.minus(last, k)))
