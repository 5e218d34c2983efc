"""Statements of C as statements of loop IR.

Loop IR has no jumps. What follows ``if (c) return;`` becomes the other branch; where a jump lies
deeper, a flag says whether what follows is still to be done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Assign, Const, Expr, Var
from adarray.compiler.ir.threads import Stmt, has_barrier, if_
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.declarations import line_of, type_of
from adarray.kernels.exits import masked
from adarray.kernels.loops import LoopReader
from adarray.kernels.types import Array, CType, Pointer, Scalar, Struct, Void, leaves
from adarray.kernels.values import (
    ElementPlace,
    Frame,
    NumberValue,
    Place,
    ScalarPlace,
    Value,
    at,
    part,
    place_type,
    read,
)
from adarray.kernels.values import (
    type_of as value_type,
)

if TYPE_CHECKING:
    from adarray.kernels.lower import SourceLowering


class StatementReader:
    """Reads statements, into those of a `SourceLowering`."""

    def __init__(self, lowering: SourceLowering) -> None:
        from pycparser import c_ast

        self.low = lowering
        self.ast = c_ast
        self.frames: list[Frame] = []
        self.loops = LoopReader(lowering, self)

    # -- functions -----------------------------------------------------------------------------

    def function(self, body: Any, result: Place | None) -> None:
        """Read the body of a function whose parameters are in scope."""
        live = self.low.variable("live", "bool", build.const(True, "bool")).name
        self.frames.append(Frame(live, None, result, True))
        self.block(body.block_items or [])
        self.frames.pop()

    def inlined(self, function: Any, scope: dict[str, Place], result: Place | None) -> None:
        """Read a function in the place of a call."""
        scopes, self.low.scopes = self.low.scopes, [self.low.scopes[0], scope, {}]
        self.function(function.body, result)
        self.low.scopes = scopes

    def nested(self, read_body: Callable[[], None]) -> tuple[Stmt, ...]:
        """Return the statements of a block with a scope of its own."""
        self.low.scopes.append({})
        self.low.emitter.begin()
        read_body()
        self.low.scopes.pop()
        return self.low.emitter.end()

    def items(self, node: Any) -> list[Any]:
        """Return the statements that a body consists of."""
        if node is None:
            return []
        return list(node.block_items or []) if isinstance(node, self.ast.Compound) else [node]

    def block(self, items: list[Any]) -> None:
        """Read statements in order."""
        for k, s in enumerate(items):
            rest = items[k + 1 :]
            jumps = self.jumps(s)
            if jumps and rest and isinstance(s, self.ast.If) and self._splits(s, rest):
                return
            self.statement(s)
            if jumps and isinstance(s, (self.ast.Return, self.ast.Break, self.ast.Continue)):
                return
            if jumps and rest:
                self._guarded(Var("bool", self.frames[-1].live), rest)
                return

    def _guarded(self, condition: Expr, rest: list[Any]) -> None:
        """Read what is done only if `condition` still holds."""
        body = self.nested(lambda: self.block(rest))
        self._emit_exit(condition, body)

    def _emit_exit(self, condition: Expr, body: tuple[Stmt, ...]) -> None:
        if not has_barrier(body):
            self.low.emit(if_(condition, body))
            return
        flag = self.low.variable("alive", "bool", condition)
        for s in masked(body, flag):
            self.low.emit(s)

    def _splits(self, s: Any, rest: list[Any]) -> bool:
        """Read ``if (c) { ...; return; }`` with what follows as its other branch."""
        items = self.items(s.iftrue)
        ends = isinstance(
            items[-1] if items else None, (self.ast.Return, self.ast.Break, self.ast.Continue)
        )
        if not ends or any(map(self.jumps, items[:-1])) or (s.iffalse and self.jumps(s.iffalse)):
            return False
        condition = self.low.expressions.condition(s.cond)
        then = self.nested(lambda: self.block(items))
        if s.iffalse is None:
            orelse = self.nested(lambda: self.block(rest))
        else:
            orelse = self.nested(lambda: self.block([*self.items(s.iffalse), *rest]))
        if has_barrier(then):
            raise KernelError("a barrier in a branch that leaves the kernel", line_of(s))
        if has_barrier(orelse):
            condition = self.low.named("leaves", condition)
            self.low.emit(if_(condition, then))
            self._emit_exit(build.logical_not(condition), orelse)
        else:
            self.low.emit(if_(condition, then, orelse))
        return True

    def jumps(self, node: Any, in_loop: bool = False, in_switch: bool = False) -> bool:
        """Whether a statement may leave the block that it is in."""
        a = self.ast
        if isinstance(node, a.Return):
            return True
        if isinstance(node, a.Break):
            return not in_loop and not in_switch
        if isinstance(node, a.Continue):
            return not in_loop
        if isinstance(node, (a.For, a.While, a.DoWhile)):
            in_loop = True
        if isinstance(node, a.Switch):
            in_switch = True
        parts = (c for _, c in node.children()) if node is not None else ()
        return any(self.jumps(c, in_loop, in_switch) for c in parts)

    # -- statements ----------------------------------------------------------------------------

    def statement(self, s: Any) -> None:
        """Read one statement."""
        a = self.ast
        if isinstance(s, a.Decl):
            self.declaration(s)
        elif isinstance(s, a.DeclList):
            for d in s.decls:
                self.declaration(d)
        elif isinstance(s, a.Compound):
            for inner in self.nested(lambda: self.block(s.block_items or [])):
                self.low.emit(inner)
        elif isinstance(s, a.If):
            condition = self.low.expressions.condition(s.cond)
            then = self.nested(lambda: self.block(self.items(s.iftrue)))
            orelse = self.nested(lambda: self.block(self.items(s.iffalse)))
            self.low.emit(if_(condition, then, orelse))
        elif isinstance(s, a.For):
            self.loops.read_for(s)
        elif isinstance(s, (a.While, a.DoWhile)):
            self.loops.read_while(s, s.cond, None, isinstance(s, a.DoWhile))
        elif isinstance(s, a.Switch):
            self._switch(s)
        elif isinstance(s, (a.Return, a.Break, a.Continue)):
            self._jump(s)
        elif isinstance(s, (a.Goto, a.Label)):
            raise KernelError("goto is not supported", line_of(s))
        elif not isinstance(s, (a.EmptyStatement, a.Pragma)):
            self.low.expressions.maybe(s)

    def _jump(self, s: Any) -> None:
        a = self.ast
        no = build.const(False, "bool")
        left = [self.frames[-1]]
        if isinstance(s, a.Return):
            k = next(i for i in reversed(range(len(self.frames))) if self.frames[i].function)
            left = self.frames[k:]
            if s.expr is not None:
                target = left[0].result
                if target is None:
                    raise KernelError("a kernel returns nothing", line_of(s))
                self.low.expressions.store(target, self._returned(s.expr, target), s)
        for frame in left:
            self.low.emit(Assign(frame.live, no))
            if frame.go is not None and not isinstance(s, a.Continue):
                self.low.emit(Assign(frame.go, no))

    def _returned(self, node: Any, target: Place) -> Value:
        """Return the value of a result, which may be a list in braces."""
        if isinstance(node, self.ast.CompoundLiteral):
            names = getattr(getattr(node.type.type, "type", None), "names", [])
            if names == ["auto_t"]:
                value = self.initial(node.init, place_type(target))
                assert value is not None
                return value
        return self.low.expressions.value(node)

    def _switch(self, s: Any) -> None:
        """Read cases that end with break as branches."""
        a = self.ast
        value = self.low.named("case", self.low.expressions.number(s.cond))
        groups: list[tuple[list[Any], list[Any]]] = []
        labels: list[Any] = []
        for case in self.items(s.stmt):
            if not isinstance(case, (a.Case, a.Default)):
                raise KernelError("a switch holds cases only", line_of(case))
            labels.append(case)
            if not case.stmts:
                continue
            *body, last = case.stmts
            if isinstance(last, a.Compound):
                body, last = (
                    [*body, *(last.block_items or [])][:-1],
                    (last.block_items or [None])[-1],
                )
            final = case is self.items(s.stmt)[-1]
            if not isinstance(last, (a.Break, a.Return)) and not final:
                raise KernelError(
                    "a case that goes on into the next is not supported", line_of(case)
                )
            groups.append((labels, body if isinstance(last, a.Break) else [*body, last]))
            labels = []
        self._cases(
            value, sorted(groups, key=lambda g: any(isinstance(c, a.Default) for c in g[0]))
        )

    def _cases(self, value: Expr, groups: list[tuple[list[Any], list[Any]]]) -> None:
        if not groups:
            return
        labels, body = groups[0]
        condition: Expr = build.const(False, "bool")
        for case in labels:
            if isinstance(case, self.ast.Default):
                condition = build.const(True, "bool")
            elif not (isinstance(condition, Const) and condition.value):
                one = build.compare("equal", value, self.low.expressions.number(case.expr))
                known = isinstance(condition, Const)
                condition = one if known else build.call("logical_or", "bool", condition, one)
        then = self.nested(lambda: self.block(body))
        orelse = self.nested(lambda: self._cases(value, groups[1:]))
        self.low.emit(if_(condition, then, orelse))

    # -- declarations --------------------------------------------------------------------------

    def declaration(self, d: Any) -> None:
        """Read the declaration of a variable."""
        low, line = self.low, line_of(d)
        shared = "_Thread_local" in d.storage
        t = self._sized(d.type)
        constant = "const" in d.quals
        if isinstance(t, Array) or shared:
            if isinstance(t, Scalar | Struct):  # one value of the block
                place = low.array(d.name, Array(t, 1), True, line)
                low.scopes[-1][d.name] = ElementPlace(t, place.memory, build.index(0))
                return
            assert isinstance(t, Array)
            if t.size is None and isinstance(d.init, self.ast.InitList):
                t = Array(t.of, len(d.init.exprs))
            known = None if shared or not constant else self._constants(d.init, t)
            if known is not None:
                low.scopes[-1][d.name] = low.table(d.name, t, known)
                return
            array = low.array(d.name, t, shared, line)
            low.scopes[-1][d.name] = array
            if d.init is not None:
                self._fill(array, d.init)
            return
        if isinstance(t, Void):
            raise KernelError("a variable has no type", line)
        value = self.initial(d.init, t)
        if isinstance(t, Struct) and t.name == "__auto":
            if value is None:
                raise KernelError("auto needs a value", line)
            t = value_type(value)
        if isinstance(t, Pointer) and t.reference:
            assert d.init is not None
            self._reference(d)
            return
        if constant and isinstance(value, NumberValue) and isinstance(t, Scalar):
            fixed = build.cast(value.expr, t.dtype)
            if isinstance(fixed, Const):
                low.scopes[-1][d.name] = ScalarPlace(d.name, t.dtype, fixed)
                return
        low.scopes[-1][d.name] = low.declare(d.name, t, value, d)

    def _constants(self, init: Any, t: CType) -> list[Const] | None:
        """Return what an array of constants holds, row by row; None where it is not known."""
        if not isinstance(t, Array) or not isinstance(init, self.ast.InitList):
            return None
        constants: list[Const] = []
        for e in init.exprs:
            if isinstance(e, self.ast.InitList):
                row = self._constants(e, t.of)
                if row is None:
                    return None
                constants += row + [build.const(0, "int32")] * (len(leaves(t.of)) - len(row))
                continue
            self.low.emitter.begin()
            value = self.low.expressions.value(e)
            self.low.emitter.end()
            if not isinstance(value, NumberValue) or not isinstance(value.expr, Const):
                return None
            constants.append(value.expr)
        return constants

    def _reference(self, d: Any) -> None:
        place = self.low.expressions.place(d.init)
        if isinstance(place, ElementPlace):
            place = at(place.memory, self.low.named(f"{d.name}_at", place.index), place.type)
        self.low.scopes[-1][d.name] = place

    def initial(self, init: Any, t: CType) -> Value | None:
        """Return what a variable of a type begins as."""
        if init is None:
            return None
        if not isinstance(init, self.ast.InitList):
            return self.low.expressions.value(init)
        if isinstance(t, Scalar) and len(init.exprs) == 1:
            return self.low.expressions.value(init.exprs[0])
        if not isinstance(t, Struct):
            raise KernelError("a list in braces begins no such variable", line_of(init))
        place = self.low.declare_struct("list", t)
        self._fill(place, init)
        return read(place)

    def _sized(self, node: Any) -> CType:
        """Return a type; sizes of arrays may be constants of the source."""
        if isinstance(node, self.ast.ArrayDecl):
            size = None
            if node.dim is not None:
                known = self.low.expressions.number(node.dim)
                if not isinstance(known, Const):
                    raise KernelError("the size of an array is no constant", line_of(node))
                size = int(known.value)
            return Array(self._sized(node.type), size)
        return type_of(node, self.low.unit)

    def _fill(self, place: Place, init: Any) -> None:
        """Write what stands between braces."""
        t = place_type(place)
        if not isinstance(init, self.ast.InitList):
            if isinstance(t, Array):
                raise KernelError("an array begins with a list in braces", line_of(init))
            self.low.expressions.store(place, self.low.expressions.value(init), init)
            return
        exprs = list(init.exprs)
        if isinstance(t, Struct):
            for (name, _), e in zip(t.fields, exprs, strict=False):
                self._fill(part(place, name, line_of(init)), e)
            return
        if not isinstance(t, Array) or not isinstance(place, ElementPlace):
            raise KernelError("a list in braces begins no such variable", line_of(init))
        width = len(leaves(t.of))
        for k in range(t.size or 0):
            inner = at(place.memory, build.add(place.index, build.index(k * width)), t.of)
            if k < len(exprs):
                self._fill(inner, exprs[k])
            elif isinstance(t.of, Scalar):  # the rest is zero
                self.low.expressions.store(inner, NumberValue(build.const(0, t.of.dtype)), init)
