"""Expressions of the syntax tree as values."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.compiler.ir.loopir import Const
from adarray.compiler.ir.threads import Stmt
from adarray.kernels import build
from adarray.loops.forms import Known, NotCaptured
from adarray.loops.lower import names
from adarray.loops.lower.kinds import BOOL, INT, PARTS, stored
from adarray.loops.lower.values import (
    Array,
    Closure,
    Complex,
    Growing,
    Items,
    Lazy,
    Method,
    Missing,
    Number,
    Part,
    Scalar,
    Span,
    Value,
    View,
    Walk,
    integer,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide",
    ast.FloorDiv: "floor_divide", ast.Mod: "remainder", ast.Pow: "power",
    ast.LShift: "left_shift", ast.RShift: "right_shift", ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal",
    ast.Eq: "equal", ast.NotEq: "not_equal",
}  # fmt: skip


class Expressions:
    """Reads expressions, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.numbers = lowering.numbers
        self.elements = lowering.elements
        self._readers: dict[type[ast.expr], Callable[[Any], Value]] = {
            ast.Constant: lambda n: self.known(n.value),
            ast.Name: lambda n: self.low.lookup(n.id),
            ast.BinOp: self._binary, ast.UnaryOp: self._unary, ast.Compare: self._compare,
            ast.BoolOp: self._logical, ast.IfExp: self._choice, ast.Call: self._call,
            ast.Attribute: self._attribute, ast.Subscript: self._subscript,
            ast.Tuple: lambda n: Items(self.values(n.elts)),
            ast.List: lambda n: Items(self.values(n.elts)),
            ast.Slice: self._slice, ast.GeneratorExp: self.walk,
            ast.ListComp: self._list_comprehension, ast.NamedExpr: self._named,
            ast.Lambda: lambda n: self.low.functions.closure(n),
        }  # fmt: skip

    # -- values ------------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return the value of an expression."""
        self.state.line = getattr(node, "lineno", self.state.line)
        reader = self._readers.get(type(node))
        if reader is None:
            raise self.state.refusal(f"{type(node).__name__} is not understood")
        return reader(node)

    def _named(self, node: ast.NamedExpr) -> Value:
        self.low.statements.bind(node.target, self.value(node.value))
        return self.low.lookup(node.target.id)

    @contextmanager
    def binding_nothing(self) -> Iterator[None]:
        """Refuse names that are bound inside, where that may not be evaluated."""
        before = self.low.names
        self.low.names = dict(before)
        yield
        if self.low.names.keys() != before.keys() or any(
            v is not before[n] for n, v in self.low.names.items()
        ):
            raise self.state.refusal("a name is bound by a part of an expression")
        self.low.names = before

    def values(self, nodes: Sequence[ast.expr]) -> tuple[Value, ...]:
        """Return the values of expressions, one after the other."""
        out: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                raise self.state.refusal("a starred expression")
            before = self.low.stores
            out.append(self.value(node))
            if self.low.stores != before and any(isinstance(v, Lazy) for v in out[:-1]):
                raise self.state.refusal("a call that writes arrays inside of an expression")
        return tuple(out)

    def known(self, value: object) -> Value:
        """Return an object of Python's as a value."""
        number = self.numbers.constant(value)
        if number is not None:
            return number
        if isinstance(value, tuple):
            return Items(tuple(map(self.known, value)))
        return self.elements.complexes.constant(value) or Known(value)

    def number(self, node: ast.expr) -> Number:
        """Return the value of an expression that is a number."""
        return self.as_number(self.value(node))

    def as_number(self, value: Value) -> Number:
        """Return a value that is a number."""
        if isinstance(value, (View, Lazy)):
            single = self.elements.number(value)
            if isinstance(single, Number):
                return single
        if not isinstance(value, Number):
            raise self.state.refusal(f"{self.shown(value)} where a number is expected")
        return value

    def numeric(self, value: Value) -> Array | Scalar:
        """Return a value that is an array or a number."""
        if isinstance(value, Items):
            raise self.state.refusal("a tuple or list where an array is expected")
        if not isinstance(value, (Number, Complex, View, Lazy)):
            raise self.state.refusal(f"{self.shown(value)} where a number or an array is expected")
        return value

    def integer(self, value: Value) -> Number:
        """Return a value that is a whole number."""
        return self.numbers.as_int(self.as_number(value))

    def shown(self, value: Value) -> str:
        """Return a value as reasons show it."""
        if isinstance(value, Known):
            name = getattr(value.value, "__name__", None)
            # What objects show of themselves may be traced values, whose text jit refuses.
            return f"the object {name}" if name else f"an object of {type(value.value).__name__}"
        return {
            View: "an array", Lazy: "an array", Items: "a tuple", Method: "a method",
            Closure: "a function", Complex: "a complex number",
            Growing: "a list",
            Span: "a range", Number: "a number",
        }.get(type(value), "this")  # fmt: skip

    def truth(self, node: ast.expr) -> Number:
        """Return whether a value is true."""
        value = self.value(node)
        if isinstance(value, Growing):
            value = self.low.lists.count(value)
        if isinstance(value, Known):
            plain = value.value is None or isinstance(value.value, (str, bool))
            if not plain:
                raise self.state.refusal(f"a test of {self.shown(value)}")
            return self.as_number(self.known(bool(value.value)))
        return self.numbers.truth(self.as_number(value))

    # -- operators ---------------------------------------------------------------------------------

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.values((node.left, node.right))
        return self.operator(node.op, left, right)

    def operator(self, op: ast.operator, left: Value, right: Value) -> Value:
        """Return what a binary operator makes of two values."""
        if isinstance(op, ast.MatMult):
            return self.low.reductions.matmul(self._array(left), self._array(right))
        if isinstance(op, ast.Add) and isinstance(left, Items) and isinstance(right, Items):
            return Items(left.items + right.items)
        return self.elements.operator(BINARY[type(op)], self.numeric(left), self.numeric(right))

    def _array(self, value: Value) -> Array:
        if not isinstance(value, (View, Lazy)) or not value.shape:
            raise self.state.refusal(f"{self.shown(value)} where an array is expected")
        return value

    def _unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return self.numbers.negated(self.truth(node.operand))
        value = self.numeric(self.value(node.operand))
        value = self.elements.number(value)
        if isinstance(value, Complex) and value.kind == "python complex":
            if not isinstance(node.op, ast.USub):
                raise self.state.refusal("an operator of Python's complex numbers")
            re, im = (Number(build.negative(p.expr), p.kinds) for p in (value.re, value.im))
            return Complex(re, im, value.kind)
        if isinstance(value, Number) and value.kind in (INT, BOOL):
            whole = self.numbers.as_int(value)
            if isinstance(node.op, ast.UAdd):
                return whole
            if isinstance(node.op, ast.USub):
                return self.numbers.minus(integer(0), whole)
            return self.numbers.minus(integer(-1), whole)
        if isinstance(value, Number) and value.kind == "python float":
            if isinstance(node.op, ast.UAdd):
                return value
            if isinstance(node.op, ast.USub):
                return Number(build.negative(value.expr), value.kinds)
        name = {ast.USub: "negative", ast.UAdd: "positive", ast.Invert: "invert"}[type(node.op)]
        if isinstance(value, Number) and len(value.kinds) > 1 and name == "negative":
            return self.numbers.operator("multiply", integer(-1), value)
        return self.elements.ufunc(getattr(np, name), value)

    def _compare(self, node: ast.Compare) -> Value:
        left = self.value(node.left)
        result: Value | None = None
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            if result is None:
                right = self.value(right_node)
                one = self.comparison(op, left, right)
            else:
                first = self.as_number(result)
                holder: list[Value] = []

                def rest(
                    op: ast.cmpop = op, right_node: ast.expr = right_node, left: Value = left,
                    holder: list[Value] = holder,
                ) -> Number:  # fmt: skip
                    holder.append(self.value(right_node))
                    return self.as_number(self.comparison(op, left, holder[0]))

                one = self.both(first, rest)
                right = holder[0] if holder else left
            result, left = one, right
        assert result is not None
        return result

    def comparison(self, op: ast.cmpop, left: Value, right: Value) -> Value:
        """Return a comparison of two values."""
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._is(left, right, isinstance(op, ast.Is))
        if type(op) not in _COMPARISONS:
            raise self.state.refusal("a test of membership")
        name = _COMPARISONS[type(op)]
        if isinstance(left, Known) and isinstance(right, Known):
            plain = (str, type(None), bool)
            if isinstance(left.value, plain) and isinstance(right.value, plain):
                same = left.value == right.value
                if name in ("equal", "not_equal"):
                    return self.known(same is (name == "equal"))
        a = self.elements.number(self.numeric(left))
        b = self.elements.number(self.numeric(right))
        if isinstance(a, Number) and isinstance(b, Number):
            return self.numbers.compare(name, a, b)
        if any(k in PARTS for x in (a, b) for k in self.elements.kinds(x)):
            return self.elements.ufunc(getattr(np, name), a, b)
        return self.elements.mapped(
            lambda x, y: self.numbers.compare(name, x, y), "bool", a, b, name=name
        )

    def _is(self, left: Value, right: Value, same: bool) -> Value:
        for a, b in ((left, right), (right, left)):
            if isinstance(b, Known) and (b.value is None):
                if isinstance(a, Known):
                    return self.known((a.value is None) is same)
                if not isinstance(a, Missing):
                    return self.known(not same)
        raise self.state.refusal("a test of identity")

    # -- what is evaluated on a condition ----------------------------------------------------------

    def both(self, first: Number, rest: Callable[[], Number]) -> Number:
        """Return whether a truth value and another are true; that is read only if need be."""
        return self._short(first, rest, True)

    def _short(self, first: Number, rest: Callable[[], Number], every: bool) -> Number:
        if isinstance(first.expr, Const):
            return rest() if bool(first.expr.value) is every else first
        known = first.holds if every else first.fails
        with self.state.block() as body, self.state.facts.assuming(known), self.binding_nothing():
            second = self.numbers.truth(rest())
        combine = self.numbers.both if every else self.numbers.either
        if not body:
            return combine(first, second)
        variable = self.state.local("test", "bool", first.expr)
        tag = self.numbers.tag_variable(first.kinds | second.kinds, first, second)
        self.numbers.set_tag(tag, first)
        with self.state.block() as last:
            self.state.assign(variable, second.expr)
            self.numbers.set_tag(tag, second)
        condition = variable if every else build.logical_not(variable)
        self.state.branch(condition, body + last)
        result = combine(first, second)
        return replace(result, expr=variable, tag=tag)

    def _logical(self, node: ast.BoolOp) -> Value:
        every = isinstance(node.op, ast.And)
        result = self.value(node.values[0])
        first = self._operand(node.values[0], result)
        for operand in node.values[1:]:

            def rest(operand: ast.expr = operand) -> Number:
                return self._operand(operand, self.value(operand))

            first = self._short(first, rest, every)
        return first

    def _operand(self, node: ast.expr, value: Value) -> Number:
        """Return an operand of ``and`` or ``or``, which are their operands, not truth values."""
        if isinstance(value, Known):
            return self.truth(node)
        number = self.as_number(value)
        if number.expr.dtype != "bool" and not self.low.in_test:
            raise self.state.refusal("`and` or `or` of numbers that are no truth values")
        return self.numbers.truth(number)

    def _choice(self, node: ast.IfExp) -> Value:
        with self.low.testing():
            test = self.truth(node.test)
        if isinstance(test.expr, Const):
            return self.value(node.body if test.expr.value else node.orelse)
        facts, nothing = self.state.facts, self.binding_nothing
        with self.state.block() as body, facts.assuming(test.holds), nothing():
            first = self.value(node.body)
        with self.state.block() as orelse, facts.assuming(test.fails), nothing():
            second = self.value(node.orelse)
        a, b = self.as_number(first), self.as_number(second)
        if not body and not orelse:
            chosen = self.numbers.chosen(test, a, b)
        else:
            condition = self.state.let("test", test.expr)
            chosen = self.one_of("chosen", test, (body, a), (orelse, b))
            self.state.branch(condition, body, orelse)
        if chosen is None:
            raise self.state.refusal("a number that is one of several types")
        return chosen

    def one_of(
        self, name: str, test: Number, then: tuple[list[Stmt], Number],
        orelse: tuple[list[Stmt], Number],
    ) -> Number | None:  # fmt: skip
        """Return a number that the statements of one part of a branch or the other compute."""
        (body, a), (other, b) = then, orelse
        kinds = self.numbers.joined((a, b))
        if kinds is None:
            return None
        dtype = stored(kinds)
        assert dtype is not None
        variable = self.state.local(name, dtype)
        tag = self.numbers.tag_variable(kinds, a, b)
        for statements, x in ((body, a), (other, b)):
            with self.state.block() as last:
                self.state.assign(variable, x.expr)
                self.numbers.set_tag(tag, x)
            statements += last
        return Number(variable, kinds, self.numbers.hull(a, b, test), tag=tag)

    def _list_comprehension(self, node: ast.ListComp) -> Value:
        """Return a list, all of whose items are computed here."""
        only = node.generators[0]
        if len(node.generators) == 1 and not only.ifs and isinstance(self.peeked(only.iter), Items):
            return self.walk(node)
        return self.low.comprehensions.listed(node)

    def peeked(self, node: ast.expr) -> Value | None:
        """Return the value of an expression that is read later, if it is understood."""
        saved, line = self.low.snapshot(), self.state.line
        try:
            return self.value(node)
        except NotCaptured:
            return None
        finally:
            self.low.restore(saved)
            self.state.line = line

    def walk(self, node: ast.GeneratorExp | ast.ListComp) -> Value:
        """Return items that are computed where something goes over them."""
        (generator, *others) = node.generators
        if others or generator.ifs or generator.is_async:
            raise self.state.refusal("a comprehension of several loops, or with a condition")
        source = self.value(generator.iter)
        walk = None if isinstance(source, Items) else self.low.loops.walk(source)

        def element(item: Value) -> Value:
            before = dict(self.low.names)
            if names.changed_lists(node):
                raise self.state.refusal("a comprehension that changes a list")
            self.low.statements.bind(generator.target, item)
            if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
                raise self.state.refusal("a name is bound in a comprehension")
            value = self.low.elements.settled(self.value(node.elt), "item")
            self.low.names = before
            return value

        if isinstance(source, Items):
            return Items(tuple(map(element, source.items)))
        assert walk is not None
        return Walk(walk.count, lambda k: element(walk.item(k)), walk.most)

    # -- attributes, subscripts, calls -------------------------------------------------------------

    def _attribute(self, node: ast.Attribute) -> Value:
        value = self.value(node.value)
        self.state.line = node.lineno
        if isinstance(value, Known):
            if isinstance(value.value, ModuleType):
                try:
                    return self.known(getattr(value.value, node.attr))
                except AttributeError:
                    where = value.value.__name__
                    reason = f"there is no {node.attr!r} in {where}"
                    raise self.state.refusal(reason) from None
            return Method(value, node.attr)
        return self.low.calls.attribute(value, node.attr)

    def _call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute):
            growing = self.low.lists.named(node.func.value)
            if growing is not None:
                return self.low.lists.method(growing, node)
        function = self.value(node.func)
        at_once = self.low.comprehensions.call(function, node)
        if at_once is not None:
            return at_once
        args = self.values(node.args)
        keywords: dict[str, Value] = {}
        for k in node.keywords:
            if k.arg is None:
                raise self.state.refusal("keyword arguments by **")
            keywords[k.arg] = self.values((k.value,))[0]
        self.state.line = node.lineno
        return self.low.calls.call(function, args, keywords)

    def _slice(self, node: ast.Slice) -> Value:
        def end(part: ast.expr | None) -> Number | None:
            if part is None:
                return None
            value = self.value(part)
            if isinstance(value, Known) and value.value is None:
                return None
            return self.integer(value)

        return Part(end(node.lower), end(node.upper), end(node.step))

    def subscript(self, node: ast.expr) -> tuple[Value, ...]:
        """Return the indices between brackets."""
        value = self.value(node)
        return value.items if isinstance(value, Items) else (value,)

    def _subscript(self, node: ast.Subscript) -> Value:
        value = self.value(node.value)
        items = self.subscript(node.slice)
        self.state.line = node.lineno
        if isinstance(value, Items):
            return self._of_items(value, items)
        if isinstance(value, Growing):
            if len(items) != 1 or not isinstance(items[0], Number):
                raise self.state.refusal("a part of a list")
            return self.low.lists.item(value, items[0])
        if isinstance(value, Lazy):
            value = self.elements.materialised(value)
        if not isinstance(value, View):
            raise self.state.refusal(f"an index of {self.shown(value)}")
        mask = self.elements.masks.mask(value, items)
        if mask is not None:
            return self.elements.masks.chosen(value, mask)
        if any(isinstance(i, (View, Lazy)) and i.shape for i in items):
            return self.low.gathering.gathered(value, items)
        part = self.low.views.item(value, self.scalars(items))
        return self.elements.number(part)

    def scalars(self, items: tuple[Value, ...]) -> tuple[Value, ...]:
        """Return indices with numbers in the place of arrays of no axes."""
        return tuple(
            self.elements.number(i) if isinstance(i, (View, Lazy)) and not i.shape else i
            for i in items
        )

    def _of_items(self, value: Items, items: tuple[Value, ...]) -> Value:
        """Return an item of a tuple, at an index that is known."""
        at = items[0]
        if len(items) == 1 and isinstance(at, Number):
            i = self.integer(at)
            if isinstance(i.expr, Const) and -len(value.items) <= i.expr.value < len(value.items):
                return value.items[int(i.expr.value)]
        if len(items) == 1 and isinstance(at, Part):
            ends = [at.start, at.stop, at.step]
            if all(e is None or isinstance(e.expr, Const) for e in ends):
                chosen = slice(*(e.expr.value if e is not None and isinstance(e.expr, Const)
                                 else None for e in ends))  # fmt: skip
                return Items(value.items[chosen])
        raise self.state.refusal("an index of a tuple that is not known")
