"""Loops of C as loops of the IR: those that count, and those that go on while a condition holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Assign, Const, Expr, Let, Local, Var
from adarray.compiler.ir.threads import While, for_, if_
from adarray.kernels import build, warp_calls
from adarray.kernels.canonical import Counted, assigned, constant_loop, counted
from adarray.kernels.declarations import line_of, type_of
from adarray.kernels.types import FLOATS, Scalar
from adarray.kernels.values import (
    Frame,
    NumberValue,
    PointerPlace,
    ScalarPlace,
)

if TYPE_CHECKING:
    from adarray.kernels.lower import SourceLowering
    from adarray.kernels.statements import StatementReader


class LoopReader:
    """Reads loops, into the statements of a `SourceLowering`."""

    def __init__(self, lowering: SourceLowering, statements: StatementReader) -> None:
        from pycparser import c_ast

        self.low = lowering
        self.ast = c_ast
        self.statements = statements

    def read_for(self, s: Any) -> None:
        """Read a `for` loop."""
        if self._unrolled(s):
            return
        self.low.scopes.append({})
        breaks = self._leaves(s.stmt)
        loop = None if breaks else counted(self.ast, s)
        if s.init is not None and (loop is None or loop.declared is None):
            self._start(s.init)
        if loop is not None and self._counted(s, loop):
            self.low.scopes.pop()
            return
        if loop is not None and loop.declared is not None:
            self._start(s.init)
        self.read_while(s, s.cond, s.next, False)
        self.low.scopes.pop()

    def _unrolled(self, s: Any) -> bool:
        """Read a short loop of constant bounds around exchanges of a warp, iteration by iteration.

        Sums over a warp halve a distance from iteration to iteration. Written out, what they
        exchange is in registers, and nothing of it goes to a tape.
        """
        if not warp_calls.are_in(self.ast, s.stmt, self.low.unit):
            return False
        loop = constant_loop(self.ast, s, self._constant)
        if loop is None or loop.name in assigned(self.ast, s.stmt, self.low.unit):
            return False
        if self._leaves(s.stmt) or self.statements.jumps(s.stmt, in_loop=True):
            return False
        items = self.statements.items(s.stmt)
        for number in loop.values:
            value = build.const(number, loop.dtype)
            self.low.scopes.append({loop.name: ScalarPlace(loop.name, loop.dtype, value)})
            for inner in self.statements.nested(lambda: self.statements.block(items)):
                self.low.emit(inner)
            self.low.scopes.pop()
        return True

    def _constant(self, node: Any) -> int | None:
        """Return the value of an expression that is a constant integer."""
        self.low.emitter.begin()
        value = self.low.expressions.maybe(node)
        self.low.emitter.end()
        e = value.expr if isinstance(value, NumberValue) else None
        return int(e.value) if isinstance(e, Const) and e.dtype not in FLOATS else None

    def _start(self, init: Any) -> None:
        if isinstance(init, self.ast.DeclList):
            for d in init.decls:
                self.statements.declaration(d)
        else:
            self.low.expressions.maybe(init)

    def _leaves(self, body: Any) -> bool:
        """Whether a loop's body may end the loop early."""
        a = self.ast

        def exits(node: Any, depth: int) -> bool:
            if isinstance(node, a.Return) or (isinstance(node, a.Break) and depth == 0):
                return True
            inner = depth + isinstance(node, (a.For, a.While, a.DoWhile, a.Switch))
            return any(exits(c, inner) for _, c in node.children())

        return body is not None and exits(body, 0)

    def _counted(self, s: Any, loop: Counted) -> bool:
        """Read a loop whose number of iterations is known when it begins."""
        low = self.low
        fixed = assigned(self.ast, s.stmt, low.unit)
        names: set[str] = set()
        for e in (loop.stop, loop.step):
            names |= _identifiers(self.ast, e)
        if names & fixed or loop.name in fixed or not self._steady((loop.stop, loop.step)):
            return False
        if loop.declared is not None:
            t = type_of(loop.declared.type, low.unit)
            if not isinstance(t, Scalar):
                return False
            dtype = t.dtype
            start = build.cast(low.expressions.number(loop.start), dtype)
        else:
            place = low.lookup(loop.name)
            if not isinstance(place, ScalarPlace) or place.known is not None:
                return False
            dtype = place.dtype
            start = low.named("start", Var(dtype, place.name))
        if dtype not in ("int32", "int64", "uint32", "uint64"):
            return False
        start, stop = (
            build.cast(start, "int64"),
            build.cast(low.expressions.number(loop.stop), "int64"),
        )
        step = build.cast(low.expressions.number(loop.step), "int64")
        start, stop, step = (
            e if isinstance(e, Const) or build.is_simple(e) else low.named("bound", e)
            for e in (start, stop, step)
        )
        if loop.inclusive:
            stop = build.add(stop, build.index(1 if loop.up else -1))
        k = low.emitter.fresh("k")
        var: Expr = Var("int64", k)
        if build.is_one(step) and loop.up:
            first, last, value = start, stop, var
        else:
            span = build.subtract(stop, start) if loop.up else build.subtract(start, stop)
            rounded = build.add(span, build.subtract(step, build.index(1)))
            trips = (
                rounded if build.is_one(step) else build.call("quotient", "int64", rounded, step)
            )
            first, last = (
                build.index(0),
                trips if isinstance(trips, Const) else low.named("trips", trips),
            )
            by = build.multiply(var, step)
            value = build.add(start, by) if loop.up else build.subtract(start, by)

        def body() -> None:
            name = low.emitter.fresh(loop.name)
            low.emit(Let(name, build.cast(value, dtype)))
            low.scopes[-1][loop.name] = ScalarPlace(name, dtype)
            low.emit(Local(live, "bool", None, build.const(True, "bool")))
            self.statements.block(self.statements.items(s.stmt))

        live = low.emitter.fresh("live")
        self.statements.frames.append(Frame(live))
        inner = self.statements.nested(body)
        self.statements.frames.pop()
        low.emit(for_(k, first, last, inner))
        if loop.declared is None:
            count = build.subtract(last, first)
            count = build.call("maximum", "int64", count, build.index(0))
            by = build.multiply(count, step)
            end = build.add(start, by) if loop.up else build.subtract(start, by)
            place = low.lookup(loop.name)
            assert isinstance(place, ScalarPlace)
            low.emit(Assign(place.name, build.cast(end, dtype)))
        return True

    def _steady(self, nodes: Iterable[Any]) -> bool:
        """Whether bounds are the same in each iteration: they call and read nothing."""
        a = self.ast
        stack = list(nodes)
        while stack:
            node = stack.pop()
            if isinstance(node, (a.FuncCall, a.Assignment)):
                name = getattr(getattr(node, "name", None), "name", "")
                if name not in ("min", "max"):
                    return False
            if isinstance(node, a.UnaryOp) and node.op in ("++", "--", "p++", "p--", "*"):
                return False
            if isinstance(node, a.ArrayRef) and not self._constant_array(node):
                return False
            stack += [c for _, c in node.children()]
        return True

    def _constant_array(self, node: Any) -> bool:
        place = self.low.lookup(node.name.name) if isinstance(node.name, self.ast.ID) else None
        value = place.value if isinstance(place, PointerPlace) else None
        memory = getattr(value, "memory", None)
        return memory is not None and not memory.written

    def read_while(self, s: Any, test: Any, step: Any, at_end: bool) -> None:
        """Read a loop that goes on as long as a condition holds."""
        low = self.low
        yes = build.const(True, "bool")

        def condition() -> Expr:
            return yes if test is None else low.expressions.condition(test)

        go = low.variable("go", "bool", yes if at_end else condition()).name
        live = low.emitter.fresh("live")
        self.statements.frames.append(Frame(live, go))

        def advance() -> None:
            if step is not None:
                low.expressions.maybe(step)
            low.emit(Assign(go, condition()))

        def body() -> None:
            low.emit(Local(live, "bool", None, yes))
            for inner in self.statements.nested(
                lambda: self.statements.block(self.statements.items(s.stmt))
            ):
                low.emit(inner)
            if self._leaves(s.stmt):
                low.emit(if_(Var("bool", go), self.statements.nested(advance)))
            else:
                advance()

        inner = self.statements.nested(body)
        self.statements.frames.pop()
        low.emit(While(go, inner, line_of(s)))


def _identifiers(ast: Any, node: Any) -> set[str]:
    """Return the names in an expression."""
    names = {node.name} if isinstance(node, ast.ID) else set()
    for _, c in node.children():
        names |= _identifiers(ast, c)
    return names
