"""Assignments, branches and calls: what the statements of a loop's body do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.compiler.ir.loopir import Const
from adarray.compiler.ir.threads import Stmt
from adarray.kernels import build
from adarray.loops.forms import Known
from adarray.loops.lower import names
from adarray.loops.lower.expressions import BINARY
from adarray.loops.lower.gathering import GatheredPlace
from adarray.loops.lower.kinds import BOOL, stored
from adarray.loops.lower.masks import ChosenPlace
from adarray.loops.lower.values import (
    Complex,
    Growing,
    Items,
    Lazy,
    Missing,
    Number,
    Value,
    View,
    Walk,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

RESULT = "%result"  # what a function returns, among its names


@dataclass(frozen=True, slots=True)
class Frame:
    """A body that may be left early.

    Attributes
    ----------
    live : str
        Name that is true as long as this iteration goes on.
    ended : str, optional
        Name that is true once the loop has ended.
    is_function : bool
    """

    live: str
    ended: str | None = None
    is_function: bool = False


def flag(value: bool) -> Number:
    """Return a truth value that stands in the text."""
    return number(build.const(value, "bool"), BOOL)


def memories(value: Value) -> set[str]:
    """Return the names of the memories that a value is read from."""
    if isinstance(value, View):
        return {value.buffer.name}
    if isinstance(value, Items):
        return {n for v in value.items for n in memories(v)}
    if isinstance(value, Lazy):
        return {v.buffer.name for v in (*value.pointwise, *value.others)}
    return set()


class Statements:
    """Reads statements, into those of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.frames: list[Frame] = []
        self._readers: dict[type[ast.stmt], Callable[[Any], None]] = {
            ast.Assign: self._assign, ast.AugAssign: self._in_place, ast.AnnAssign: self._annotated,
            ast.If: lambda s: self._if(s, s.body, s.orelse), ast.Expr: self._expression,
            ast.For: self._for, ast.While: self._while,
            ast.Pass: lambda _: None, ast.Break: self._jump, ast.Continue: self._jump,
            ast.Return: self._jump, ast.Assert: self._assert, ast.Raise: self._raise,
            ast.Try: self._try, ast.With: self._with, ast.Delete: self._delete,
            ast.FunctionDef: self._define,
        }  # fmt: skip

    def _for(self, s: ast.For) -> None:
        self.low.loops.for_(s)

    def _while(self, s: ast.While) -> None:
        self.low.loops.while_(s)

    # -- blocks ------------------------------------------------------------------------------------

    def block(self, items: Sequence[ast.stmt]) -> None:
        """Read statements in order."""
        for k, s in enumerate(items):
            rest = items[k + 1 :]
            jumps = names.leaves(s)
            if jumps and rest and isinstance(s, ast.If):
                if names.ends(s.body):
                    self._if(s, s.body, [*s.orelse, *rest])
                    return
                if names.ends(s.orelse):
                    self._if(s, [*s.body, *rest], s.orelse)
                    return
            self.statement(s)
            if isinstance(s, (ast.Break, ast.Continue, ast.Return, ast.Raise)):
                return
            if jumps and rest:
                self.guarded(rest)
                return

    def guarded(self, rest: Sequence[ast.stmt]) -> None:
        """Read what is done only if nothing has left the innermost body."""
        live = self.low.names[self.frames[-1].live]
        assert isinstance(live, Number)

        def then() -> None:
            self.low.names |= self.going_on()
            self.block(rest)

        def orelse() -> None:
            self.low.names[self.frames[-1].live] = flag(False)

        self.branch(live, then, orelse)

    def of_function(self) -> list[Frame]:
        """Return the bodies that a return leaves; none where it leaves the whole loop."""
        inside = (i for i in reversed(range(len(self.frames))) if self.frames[i].is_function)
        k = next(inside, None)
        return [] if k is None else self.frames[k:]

    def going_on(self) -> dict[str, Value]:
        """Return what holds as long as nothing has left the innermost body."""
        frames = self.of_function() or self.frames[-1:]
        known: dict[str, Value] = {f.live: flag(True) for f in frames}
        return known | {f.ended: flag(False) for f in frames if f.ended is not None}

    def left(self) -> dict[str, Value]:
        """Return what holds after a return."""
        frames = self.of_function()
        known: dict[str, Value] = {f.live: flag(False) for f in frames}
        return known | {f.ended: flag(True) for f in frames if f.ended is not None}

    def statement(self, s: ast.stmt) -> None:
        """Read one statement."""
        self.state.line = s.lineno
        reader = self._readers.get(type(s))
        if reader is None:
            raise self.state.refusal(f"the statement {type(s).__name__.lower()} is not understood")
        reader(s)

    def _expression(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self.low.expressions.value(s.value)

    def _jump(self, s: ast.stmt) -> None:
        frames = [self.frames[-1]]
        if isinstance(s, ast.Return):
            frames = self.of_function()
            if not frames:
                raise self.state.refusal("return leaves the loop")
            value = Known(None) if s.value is None else self.low.expressions.value(s.value)
            if isinstance(value, (Items, Growing)):
                value = self.settled(value, "result")
            self.low.names[RESULT] = self.low.elements.settled(value, "result")
        for frame in frames:
            self.low.names[frame.live] = flag(False)
            if frame.ended is not None and not isinstance(s, ast.Continue):
                self.low.names[frame.ended] = flag(True)

    def _assert(self, s: ast.Assert) -> None:
        with self.low.testing():
            test = self.low.expressions.truth(s.test)
        self.state.fail_if(self.low.numbers.negated(test).expr)

    def _raise(self, _: ast.Raise) -> None:
        """Note that Python raises an error; nothing that comes next is of use."""
        self.state.fail()
        self.low.names[self.frames[-1].live] = flag(False)

    def _try(self, s: ast.Try) -> None:
        # An error that is handled is noted as any other is: then the loop runs in Python.
        if s.finalbody and any(map(names.leaves, (*s.body, *s.orelse))):
            raise self.state.refusal("a jump out of a statement that has a finally clause")
        self.block([*s.body, *s.orelse, *s.finalbody])

    def _with(self, s: ast.With) -> None:
        for item in s.items:
            if item.optional_vars is not None or not self._is_errstate(item.context_expr):
                raise self.state.refusal("the statement with is not understood")
        self.block(s.body)

    def _is_errstate(self, node: ast.expr) -> bool:
        """Whether a context only says that NumPy goes on where a number is odd."""
        if not isinstance(node, ast.Call) or node.args:
            return False
        function = self.low.expressions.value(node.func)
        if not isinstance(function, Known) or function.value is not np.errstate:
            return False
        return all(
            k.arg in ("all", "divide", "over", "under", "invalid")
            and isinstance(k.value, ast.Constant) and k.value.value in ("ignore", "warn")
            for k in node.keywords
        )  # fmt: skip

    def _delete(self, s: ast.Delete) -> None:
        for target in s.targets:
            if not isinstance(target, ast.Name):
                raise self.state.refusal("an item or an attribute is deleted")
            self.low.lookup(target.id)
            self.low.names[target.id] = Missing(f"{target.id!r} may not be bound")

    def _define(self, s: ast.FunctionDef) -> None:
        if s.decorator_list:
            raise self.state.refusal("a function that is decorated")
        self.low.names[s.name] = self.low.functions.closure(s)

    # -- assignments -------------------------------------------------------------------------------

    def _assign(self, s: ast.Assign) -> None:
        if len(s.targets) == 1 and self._new_lists(s.targets[0], s.value):
            return
        value = self.low.expressions.value(s.value)
        first = s.targets[0]
        if isinstance(value, Growing) and not isinstance(s.value, ast.Name):
            self._new_list(s, value)
            return
        if len(s.targets) > 1 or isinstance(first, (ast.Tuple, ast.List)):
            # What is stored into the first target may be read for the second.
            value = self._fixed(value)
        for target in s.targets:
            self.bind(target, value)

    def _new_list(self, s: ast.Assign, value: Growing) -> None:
        """Have a name stand for a list that a comprehension made, or for a tuple."""
        (target,) = s.targets if len(s.targets) == 1 else (None,)
        if not isinstance(target, ast.Name):
            raise self.state.refusal("a list that has two names")
        if target.id in self.low.scope.lists and not isinstance(s.value, ast.ListComp):
            raise self.state.refusal("a list that is made by a call changes")
        self.low.names[target.id] = value

    def _new_lists(self, target: ast.expr, value: ast.expr) -> bool:
        """Assign lists that the loop appends to, if there are any, and what is assigned as well."""
        targets, values = [target], [value]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            targets, values = target.elts, value.elts
        new = [
            t.id if isinstance(t, ast.Name) and t.id in self.low.scope.lists
            and isinstance(v, ast.List) else None
            for t, v in zip(targets, values, strict=False)
        ]  # fmt: skip
        if not any(new) or len(targets) != len(values):
            return False
        bound: list[Value] = []
        for name, v in zip(new, values, strict=True):
            if name is not None and isinstance(v, ast.List):
                bound.append(self.low.lists.created(v, name))
            else:
                bound.append(self._fixed(self.low.expressions.value(v)))
        for t, x in zip(targets, bound, strict=True):
            if isinstance(x, Growing) and isinstance(t, ast.Name):
                self.low.names[t.id] = x
            else:
                self.bind(t, x)
        return True

    def _annotated(self, s: ast.AnnAssign) -> None:
        if s.value is not None:
            self.bind(s.target, self.low.expressions.value(s.value))

    def _fixed(self, value: Value) -> Value:
        if isinstance(value, Items):
            return Items(tuple(map(self._fixed, value.items)))
        if isinstance(value, Lazy):
            return self.low.elements.settled(value, "own")
        return value

    def bind(self, target: ast.expr, value: Value) -> None:
        """Assign a value to a target."""
        self.state.line = getattr(target, "lineno", self.state.line)
        if isinstance(target, ast.Name):
            if not self._waits(target.id, value):
                value = self._at_home(target.id, value)
            self.low.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for t, v in zip(target.elts, self._parts(value, len(target.elts)), strict=True):
                self.bind(t, v)
        elif isinstance(target, ast.Subscript):
            place = self._place(target)
            if isinstance(place, View):
                self.store(place, value)
            else:
                self.check_write(place.view)
                place.store(self.low.expressions.numeric(value))
        elif isinstance(target, ast.Attribute) and target.attr == "shape":
            self._reshape(target.value, value)
        else:
            raise self.state.refusal("an assignment to such a target")

    def _reshape(self, node: ast.expr, shape: Value) -> None:
        """Give an array another shape; it is the loop's own, and nothing else has its memory."""
        view = self.low.lookup(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(node, ast.Name) or not isinstance(view, View):
            raise self.state.refusal("the shape of what is no array with a name is set")
        name = view.buffer.name
        scopes = [self.low.names, *(names_ for names_, _ in self.low.functions.callers)]
        holders = [n for names_ in scopes for n, v in names_.items() if name in memories(v)]
        own = all(b.name != name for b in self.state.buffers.values())
        if not own or holders != [node.id] or not self.low.views.is_whole(view):
            raise self.state.refusal("the shape of an array is set that may have other names")
        self.low.names[node.id] = self.low.calls.arrays.reshape(view, shape)

    def settled(self, value: Value, name: str) -> Value:
        """Return a value as a name stands for it."""
        if isinstance(value, Items):
            return Items(tuple(self.settled(v, name) for v in value.items))
        if isinstance(value, Missing):
            raise self.state.refusal(value.reason)
        if isinstance(value, Walk):
            raise self.state.refusal("a list or an iterator that has a name")
        if isinstance(value, Growing):
            raise self.state.refusal("a list that has two names")
        return self.low.elements.settled(value, name)

    def _waits(self, name: str, value: Value) -> bool:
        """Whether a name may stand for truth values that are computed where they are used."""
        if not isinstance(value, Lazy) or value.mask is not None or not value.shape:
            return False
        if (self.low.functions.depth, name) in self.low.homes:
            return False
        return name in self.low.scope.contained and self.low.elements.waits(value)

    def _at_home(self, name: str, value: Value) -> Value:
        """Return what a name stands for: an array that a loop passes on, where that lies.

        Nobody else has the array that lies there, so that it need not stay as it is.
        """
        home = self.low.homes.get((self.low.functions.depth, name))
        if home is None or not isinstance(value, Lazy) or value.dtype != home.dtype:
            return self.settled(value, name)
        fits = len(value.shape) == len(home.shape) and all(
            self.low.views.same(a, b) for a, b in zip(value.shape, home.shape, strict=True)
        )
        others = (v for n, v in self.low.names.items() if n != name)
        if not fits or any(home.buffer.name in memories(v) for v in others):
            return self.settled(value, name)
        self.low.elements.store(home, value)
        self.low.fresh.add(home.buffer.name)
        return home

    def _parts(self, value: Value, count: int) -> Sequence[Value]:
        if isinstance(value, Items) and len(value.items) == count:
            return value.items
        if isinstance(value, (View, Lazy)) and value.shape:
            view = value if isinstance(value, View) else self.low.elements.materialised(value)
            extent = view.shape[0].whole
            if extent is not None and extent.value == count:
                parts = [self.low.views.item(view, (self.low.int(k),)) for k in range(count)]
                return [self.low.elements.number(p) for p in parts]
        raise self.state.refusal("a value of another number of items than there are targets")

    def _place(self, target: ast.Subscript) -> View | ChosenPlace | GatheredPlace:
        """Return the elements that a subscript names."""
        base = self.low.expressions.value(target.value)
        if not isinstance(base, View):
            shown = self.low.expressions.shown(base)
            raise self.state.refusal(f"an assignment to an item of {shown}")
        items = self.low.expressions.subscript(target.slice)
        mask = self.low.elements.masks.mask(base, items)
        if mask is not None:
            return ChosenPlace(self.low.elements.masks, base, mask)
        if any(isinstance(i, (View, Lazy)) and i.shape for i in items):
            return self.low.gathering.place(base, items)
        return self.low.views.item(base, self.low.expressions.scalars(items))

    def store(self, view: View, value: Value) -> None:
        """Write a value into the elements of a view."""
        self.check_write(view)
        self.low.elements.store(view, self.low.expressions.numeric(value))

    def check_write(self, view: View) -> None:
        """Note that elements of a view are written; refuse if it may be the wrong array."""
        self.low.stores += 1
        if view.buffer.name in self.low.unsure:
            raise self.state.refusal("an array is written that may be another one")
        home = any(h.buffer.name == view.buffer.name for h in self.low.homes.values())
        if home and view.buffer.name not in self.low.fresh:
            raise self.state.refusal("an array is written before it is bound in an iteration")

    def _in_place(self, s: ast.AugAssign) -> None:
        if isinstance(s.target, ast.Name):
            old = self.low.lookup(s.target.id)
            if isinstance(old, Growing):
                self._add_to_list(s, old)
                return
            view = old if isinstance(old, View) else None
            if isinstance(old, Lazy) and s.target.id not in self.low.scope.contained:
                raise self.state.refusal("chosen elements change that may have another name")
        elif isinstance(s.target, ast.Subscript):
            place = self._place(s.target)
            if not isinstance(place, View):
                self._chosen_in_place(s, place)
                return
            view = place
            old = self.low.elements.number(view)
        else:
            raise self.state.refusal("an operator in place on such a target")
        before = self.low.stores
        value = self.low.expressions.value(s.value)
        if self.low.stores != before and not isinstance(old, View):
            raise self.state.refusal("a call that writes arrays inside of an expression")
        self.state.line = s.lineno
        result = self.low.expressions.operator(s.op, old, value)
        if view is None:
            assert isinstance(s.target, ast.Name)
            if isinstance(old, Lazy):
                result = self._converted(BINARY.get(type(s.op), "matmul"), result, old)
            self.low.bind(s.target.id, self.settled(result, s.target.id))
            return
        if view.axes or isinstance(s.target, ast.Name):
            self.check_cast(BINARY.get(type(s.op), "matmul"), view.dtype, result)
        self.store(view, result)

    def _converted(self, name: str, result: Value, old: Lazy) -> Value:
        """Return what an operator in place leaves in an array that is no memory here."""
        self.check_cast(name, old.dtype, result)
        value = self.low.elements.cast(self.low.expressions.numeric(result), old.dtype)
        shape = self.low.elements.shape(value)
        pairs = zip(shape, old.shape, strict=False)
        if len(shape) != len(old.shape) or not all(self.low.views.same(a, b) for a, b in pairs):
            raise self.state.refusal("an operator in place of an array of another shape")
        return value

    def _add_to_list(self, s: ast.AugAssign, x: Growing) -> None:
        comprehension = isinstance(s.value, (ast.ListComp, ast.GeneratorExp))
        literal = isinstance(s.value, (ast.List, ast.Tuple))
        if not isinstance(s.op, ast.Add) or not (literal or comprehension):
            raise self.state.refusal("an operator in place of a list")
        if x.depth != self.low.functions.depth:
            raise self.state.refusal("a list that another function changes")
        if isinstance(s.value, (ast.ListComp, ast.GeneratorExp)):
            assert isinstance(s.target, ast.Name)
            self.low.comprehensions.extend(s.target.id, s.value)
            return
        assert isinstance(s.value, (ast.List, ast.Tuple))
        for item in s.value.elts:
            self.low.lists.append(x, item)

    def _chosen_in_place(self, s: ast.AugAssign, place: ChosenPlace | GatheredPlace) -> None:
        """Change chosen elements: all of them are read before the first is set."""
        old = place.read()
        before = self.low.stores
        value = self.low.expressions.value(s.value)
        if self.low.stores != before:
            raise self.state.refusal("a call that writes arrays inside of an expression")
        result = self.low.expressions.operator(s.op, old, value)
        self.check_cast(BINARY.get(type(s.op), "matmul"), place.view.dtype, result)
        self.check_write(place.view)
        place.store(self.low.expressions.numeric(result))

    def check_cast(self, name: str, dtype: str, result: Value) -> None:
        """Refuse operators in place whose result NumPy does not convert back."""
        kinds = self.low.elements.kinds(self.low.expressions.numeric(result))
        for kind in kinds:
            if not np.can_cast(np.dtype(stored(frozenset((kind,)))), dtype, "same_kind"):
                raise self.state.refusal(f"{name} in place gives {kind}, and the array has {dtype}")

    # -- branches ----------------------------------------------------------------------------------

    def _if(self, s: ast.If, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        with self.low.testing():
            test = self.low.expressions.truth(s.test)
        self.branch(test, lambda: self.block(body), lambda: self.block(orelse))

    def branch(self, test: Number, then: Callable[[], None], orelse: Callable[[], None]) -> None:
        """Write a branch; names stand afterwards for what one part or the other bound."""
        facts = self.state.facts
        if isinstance(test.expr, Const):
            (then if test.expr.value else orelse)()
            return
        condition = self.state.let("test", test.expr)
        before, fresh = dict(self.low.names), set(self.low.fresh)
        with self.state.block() as body, facts.assuming(test.holds):
            dead = facts.impossible()
            if not dead:
                then()
        first, self.low.names = self.low.names, before.copy()
        bound, self.low.fresh = self.low.fresh, fresh
        with self.state.block() as other, facts.assuming(test.fails):
            dead_too = facts.impossible()
            if not dead_too:
                orelse()
        second = self.low.names
        self.low.names = before
        if not dead:
            self.low.fresh = bound if dead_too else bound & self.low.fresh
        if dead or dead_too:
            self.low.names = second if dead else first
            for statement in other if dead else body:
                self.state.emit(statement)
            return
        self._merge(test, (first, body), (second, other))
        self.state.branch(condition, body, other)

    def _merge(
        self,
        test: Number,
        then: tuple[dict[str, Value], list[Stmt]],
        orelse: tuple[dict[str, Value], list[Stmt]],
    ) -> None:
        (first, body), (second, other) = then, orelse
        merged: dict[str, Value] = {}
        for name in [*first, *(n for n in second if n not in first)]:
            a, b = first.get(name), second.get(name)
            if name == RESULT and (a is None) is not (b is None):
                # Whether it is set, the function's frame tells.
                merged[name] = self._result(a, body) if b is None else self._result(b, other)
            elif a is None or b is None:
                merged[name] = Missing(f"{name!r} may not be bound")
            elif a is b or a == b:
                merged[name] = a
            else:
                merged[name] = self._merged(name.strip("%"), test, (a, body), (b, other))
        self.low.names = merged

    def _result(self, value: Value | None, body: list[Stmt]) -> Value:
        """Return what a function returns if it does so in one part of a branch."""
        if isinstance(value, Items):
            return Items(tuple(self._result(v, body) for v in value.items))
        if isinstance(value, Complex):
            re, im = (self._result(p, body) for p in (value.re, value.im))
            assert isinstance(re, Number)
            assert isinstance(im, Number)
            return Complex(re, im, value.kind)
        if isinstance(value, Known) or (isinstance(value, View) and self.low.loops.is_fixed(value)):
            return value
        if not isinstance(value, Number):
            return Missing("one object or another")
        dtype = stored(value.kinds)
        assert dtype is not None
        variable = self.state.local("result", dtype)
        tag = self.low.numbers.tag_variable(value.kinds, value)
        with self.state.block() as last:
            self.state.assign(variable, value.expr)
            self.low.numbers.set_tag(tag, value)
        body += last
        return Number(variable, value.kinds, value.whole, tag=tag)

    def _merged(
        self, name: str, test: Number, then: tuple[Value, list[Stmt]],
        orelse: tuple[Value, list[Stmt]],
    ) -> Value:  # fmt: skip
        """Return what a name stands for that two parts of a branch bind differently."""
        (a, body), (b, other) = then, orelse
        if isinstance(a, Missing) or isinstance(b, Missing):
            return a if isinstance(a, Missing) else b
        if isinstance(a, Items) and isinstance(b, Items) and len(a.items) == len(b.items):
            pairs = zip(a.items, b.items, strict=True)
            parts = (self._merged(name, test, (x, body), (y, other)) for x, y in pairs)
            return Items(tuple(parts))
        if isinstance(a, Complex) and isinstance(b, Complex) and a.kind == b.kind:
            re, im = (
                self._merged(name, test, (p, body), (q, other))
                for p, q in ((a.re, b.re), (a.im, b.im))
            )
            assert isinstance(re, Number)
            assert isinstance(im, Number)
            return Complex(re, im, a.kind)
        if not isinstance(a, Number) or not isinstance(b, Number):
            return Missing(f"{name!r} is one object or another")
        merged = self.low.expressions.one_of(name, test, (body, a), (other, b))
        return merged or Missing(f"{name!r} is a number of one type or another")
