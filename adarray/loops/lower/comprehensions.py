"""Comprehensions, and generators that a call reads at once: as the loops that they stand for.

``[f(a) for a in x if a > 0]`` is read as a loop that appends to a new list, ``sum(f(a) for ...)``
as one that adds up, and so on. So all that is known of loops holds for them: what their types are,
which errors they raise, and what they carry. Variables of a comprehension are its own, and get
other names.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from adarray.loops.forms import Known, NotCaptured
from adarray.loops.lower.values import Growing, Number, Value, Walk, integer

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

Node = TypeVar("Node", bound=ast.AST)
Comprehension = ast.ListComp | ast.GeneratorExp
_ITEMS, _ITEM, _FIRST, _OTHER = "%items", "%item", "%first", "%other"
_TOTAL, _BEST, _TRUE = "%sum", "%extreme", "%truth"


class Comprehensions:
    """Reads comprehensions, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state

    # -- lists -------------------------------------------------------------------------------------

    def listed(self, node: Comprehension, stacks: bool = False) -> Growing:
        """Return the list of what a comprehension computes.

        With `stacks`, the lists in it are to become rows of one array.
        """
        self._check(node)
        new = self.low.lists.created(_at(ast.List([], ast.Load()), node), "items")
        item = node.elt
        if stacks and isinstance(item, (ast.ListComp, ast.List, ast.Tuple)):
            array: Any = np.array  # which a constant of the text may stand for here
            item = ast.Call(ast.Constant(array), [item], [])

        def append(item: ast.expr) -> ast.stmt:
            function = ast.Attribute(_read(_ITEMS), "append", ast.Load())
            return ast.Expr(ast.Call(function, [item], []))

        loop = _loop(node, item, append)
        self.low.names[new.count] = self._within({_ITEMS: new}, [loop], new.count)
        return new

    def extend(self, name: str, node: Comprehension) -> None:
        """Append to a list what a comprehension computes."""
        self._check(node)
        if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node)):
            raise self.state.refusal("a list is extended by what is computed from it")

        def append(item: ast.expr) -> ast.stmt:
            function = ast.Attribute(_read(name), "append", ast.Load())
            return ast.Expr(ast.Call(function, [item], []))

        growing = self.low.names[name]
        assert isinstance(growing, Growing)
        loop = _loop(node, node.elt, append)
        self.low.names[growing.count] = self._within({}, [loop], growing.count)

    def _within(
        self, bound: dict[str, Value], statements: Sequence[ast.stmt], result: str
    ) -> Value:
        """Read statements that see some more names; return what one of these is afterwards.

        Names are then what they were.
        """
        low = self.low
        before = dict(low.names)
        low.names |= bound
        low.statements.block(statements)
        value = low.lookup(result)
        low.names = before
        return value

    def _for_once(self, items: Growing, use: Callable[[], Value]) -> Value:
        """Return what is made of a list that nothing has afterwards."""
        value = use()
        del self.low.names[items.count]
        return value

    def _check(self, node: Comprehension) -> None:
        """Refuse a comprehension whose variables are not its own alone."""
        if any(isinstance(n, (ast.NamedExpr, ast.Lambda)) for n in ast.walk(node)):
            raise self.state.refusal("a name is bound, or a function made, in a comprehension")
        if any(g.is_async for g in node.generators):
            raise self.state.refusal("a comprehension that awaits")

    # -- calls -------------------------------------------------------------------------------------

    def call(self, function: Value, node: ast.Call) -> Value | None:
        """Return the value of a call that reads a comprehension at once; None for other calls."""
        if not isinstance(function, Known) or not node.args:
            return None
        f, first = function.value, node.args[0]
        if not isinstance(first, Comprehension):
            return None
        keywords = {k.arg: k.value for k in node.keywords}
        if f is builtins.sum and len(node.args) <= 2 and keywords.keys() <= {"start"}:
            start = node.args[1] if len(node.args) == 2 else keywords.get("start")
            return self._sum(first, start)
        if len(node.args) > 1:
            return None
        if f in (builtins.max, builtins.min) and keywords.keys() <= {"default"}:
            return self._extreme_of(f is builtins.max, first, keywords.get("default"))
        if f in (builtins.all, builtins.any) and not keywords:
            return self._truth(f is builtins.all, first)
        if f in (builtins.list, builtins.tuple) and not keywords:
            return self.listed(first)
        if isinstance(first, ast.ListComp) and isinstance(f, type(np.sum) | type(np.array)):
            return self._of_array(function, node)
        return None

    def _simple(self, node: Comprehension, use: Callable[[Walk], Value]) -> Value | None:
        """Return what is made of items that are computed one by one, if that is understood."""
        if len(node.generators) > 1 or node.generators[0].ifs:
            return None
        saved, line = self.low.snapshot(), self.state.line
        try:
            walk = self.low.expressions.walk(node)
            return use(walk) if isinstance(walk, Walk) else None
        except NotCaptured:
            self.low.restore(saved)
            self.state.line = line
            return None

    def _of_array(self, function: Known, node: ast.Call) -> Value:
        """Return what a function of NumPy's makes of a list."""
        (first,) = node.args
        assert isinstance(first, ast.ListComp)
        low = self.low
        keywords = {k.arg or "": low.expressions.values((k.value,))[0] for k in node.keywords}
        if function.value is np.array and keywords.keys() <= {"dtype"}:
            dtype = keywords.get("dtype")
            array = self._simple(first, lambda w: low.calls.stacking.of_walk(w, dtype))
            if array is not None:
                return array
        items = self.listed(first, True)
        return self._for_once(items, lambda: low.calls.call(function, (items,), keywords))

    def _sum(self, node: Comprehension, start: ast.expr | None) -> Value:
        self._check(node)
        if start is None:
            total = self._simple(node, self.low.calls.python.builtin_sum)
            if total is not None:
                return total
        other: Value = integer(0)
        if start is not None:
            other = self._argument(start, isinstance(node, ast.ListComp))
        begin = _at(_set(_TOTAL, _read(_OTHER)), node)

        def add(item: ast.expr) -> ast.stmt:
            return _set(_TOTAL, ast.BinOp(_read(_TOTAL), ast.Add(), item))

        return self._within({_OTHER: other}, [begin, _loop(node, node.elt, add)], _TOTAL)

    def sum_of(self, items: Growing) -> Value:
        """Return Python's sum of the items of a list."""
        add = _set(_TOTAL, ast.BinOp(_read(_TOTAL), ast.Add(), _read(_ITEM)))
        loop = ast.For(ast.Name(_ITEM, ast.Store()), _read(_ITEMS), [add], [])
        statements = [self._here(_set(_TOTAL, ast.Constant(0))), self._here(loop)]
        return self._within({_ITEMS: items}, statements, _TOTAL)

    def _here(self, new: ast.stmt) -> ast.stmt:
        line = self.state.line
        return _at(new, ast.Pass(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0))

    def _truth(self, every: bool, node: Comprehension) -> Value:
        self._check(node)

        def test(item: ast.expr) -> ast.stmt:
            condition = ast.UnaryOp(ast.Not(), item) if every else item
            return ast.If(condition, [_set(_TRUE, ast.Constant(not every)), ast.Break()], [])

        # A loop around the one that ends ends as well.
        ended = ast.UnaryOp(ast.Not(), _read(_TRUE)) if every else _read(_TRUE)
        first = _at(_set(_TRUE, ast.Constant(every)), node)
        return self._within({}, [first, _loop(node, node.elt, test, ended)], _TRUE)

    def _argument(self, node: ast.expr, plain: bool) -> Value:
        """Return another argument, which Python evaluates between what it runs over and the loop.

        It must not matter when that is done; `plain`: nor what the comprehension writes.
        """
        if any(isinstance(n, (ast.Call, ast.NamedExpr)) for n in ast.walk(node)) or (
            plain and not isinstance(node, (ast.Constant, ast.Name))
        ):
            raise self.state.refusal("a call beside a comprehension")
        value = self.low.expressions.value(node)
        return self.low.elements.settled(value, "argument")

    def _extreme_of(self, most: bool, node: Comprehension, default: ast.expr | None) -> Value:
        """Return the largest or the smallest of what a comprehension computes."""
        is_list = isinstance(node, ast.ListComp)
        other = None if default is None else self._argument(default, is_list)
        items = self.listed(node)
        return self._for_once(items, lambda: self._extreme(most, items, other))

    def extreme(self, most: bool, items: Growing) -> Value:
        """Return the largest or the smallest item of a list, the first one of equal ones."""
        return self._extreme(most, items, None)

    def _extreme(self, most: bool, items: Growing, default: Value | None) -> Value:
        bound: dict[str, Value] = {_ITEMS: items}
        first: ast.expr = _read(_FIRST)
        if default is None or self.low.lists.has_items(items):
            bound[_FIRST] = self.low.lists.first(items, default is None)
        if default is not None:
            bound[_OTHER] = default
            other = _read(_OTHER)
            first = ast.IfExp(_read(_ITEMS), first, other) if _FIRST in bound else other
        better = ast.Gt() if most else ast.Lt()
        test = ast.Compare(_read(_ITEM), [better], [_read(_BEST)])
        target = ast.Name(_ITEM, ast.Store())
        choose = ast.If(test, [_set(_BEST, _read(_ITEM))], [])
        loop = ast.For(target, _read(_ITEMS), [choose], [])
        statements = [self._here(_set(_BEST, first)), self._here(loop)]
        value = self._within(bound, statements, _BEST)
        if not isinstance(value, Number):
            raise self.state.refusal("an extreme of what are no numbers")
        return value


class _Renaming(ast.NodeTransformer):
    """Gives variables of a comprehension names that nothing else has."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        name = self.names.get(node.id, node.id)
        return ast.copy_location(ast.Name(name, node.ctx), node)


def _loop(
    node: Comprehension,
    item: ast.expr,
    use: Callable[[ast.expr], ast.stmt],
    ended: ast.expr | None = None,
) -> ast.stmt:
    """Return the loops of a comprehension, and what is done with an item."""
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    prefix = f"%{node.lineno}_{node.col_offset}_"
    renaming = _Renaming({n: prefix + n for n in targets})

    def renamed(part: Any) -> Any:
        return renaming.visit(copy.deepcopy(part))

    body = use(renamed(item))
    for k, g in reversed(list(enumerate(node.generators))):
        for test in reversed(g.ifs):
            body = ast.If(renamed(test), [body], [])
        # What the first one runs over is evaluated outside.
        over = copy.deepcopy(g.iter) if k == 0 else renamed(g.iter)
        statements = [body]
        if ended is not None and k < len(node.generators) - 1:
            statements.append(ast.If(copy.deepcopy(ended), [ast.Break()], []))
        body = ast.For(renamed(g.target), over, statements, [])
    return _at(body, node)


def _at(new: Node, node: ast.AST) -> Node:
    """Give a new part of the tree the place of another one."""
    return ast.fix_missing_locations(ast.copy_location(new, node))


def _read(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)
