"""Expressions of C as expressions of loop IR; what they do on the way becomes statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Assign, Const, Expr, Local, Store, Var
from adarray.compiler.ir.threads import BLOCK as BLOCK_INDICES
from adarray.compiler.ir.threads import SIZES, THREAD, if_
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.declarations import line_of, type_of
from adarray.kernels.types import (
    FLOATS,
    CType,
    Pointer,
    Scalar,
    Struct,
    common,
    leaves,
    promoted,
    spelled,
)
from adarray.kernels.values import (
    ElementPlace,
    NumberValue,
    Place,
    PointerPlace,
    PointerValue,
    Reference,
    ScalarPlace,
    StructPlace,
    StructValue,
    Value,
    at,
    moved,
    part,
    place_type,
    read,
)

if TYPE_CHECKING:
    from adarray.kernels.lower import SourceLowering

_BINARY = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "modulo",
    "<<": "left_shift", ">>": "right_shift", "&": "bitwise_and", "|": "bitwise_or",
    "^": "bitwise_xor", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal",
    "==": "equal", "!=": "not_equal",
}  # fmt: skip
_OF_STRUCTS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
BUILTINS = frozenset(n.partition(".")[0] for n in (*THREAD, *BLOCK_INDICES, *SIZES))
_INFINITY = {"INFINITY": float("inf"), "HUGE_VALF": float("inf"), "NAN": float("nan"),
             "CUDART_INF_F": float("inf")}  # fmt: skip
_LIMITS = {
    "FLT_MAX": (3.4028234663852886e38, "float32"), "INT_MAX": (2147483647, "int32"),
    "FLT_MIN": (1.1754943508222875e-38, "float32"), "INT_MIN": (-2147483648, "int32"),
    "FLT_EPSILON": (1.1920928955078125e-07, "float32"), "warpSize": (32, "int32"),
    "DBL_MAX": (1.7976931348623157e308, "float64"),
    "DBL_EPSILON": (2.220446049250313e-16, "float64"),
}  # fmt: skip


class ExpressionReader:
    """Reads expressions, into the statements of a `SourceLowering`."""

    def __init__(self, lowering: SourceLowering) -> None:
        from pycparser import c_ast

        self.low = lowering
        self.ast = c_ast

    # -- values --------------------------------------------------------------------------------

    def value(self, node: Any) -> Value:
        """Return the value of an expression."""
        result = self.maybe(node)
        if result is None:
            raise KernelError("this has no value", line_of(node))
        return result

    def maybe(self, node: Any) -> Value | None:
        """Return the value of an expression; None where it is void."""
        a = self.ast
        if isinstance(node, a.Constant):
            return NumberValue(literal(node))
        if isinstance(node, (a.ID, a.ArrayRef, a.StructRef)):
            return self._named(node)
        if isinstance(node, a.BinaryOp):
            return self._binary(node)
        if isinstance(node, a.UnaryOp):
            return self._unary(node)
        if isinstance(node, a.TernaryOp):
            return self._choice(node)
        if isinstance(node, a.Cast):
            return self.cast(self.value(node.expr), type_of(node.to_type, self.low.unit), node)
        if isinstance(node, a.FuncCall):
            return self.low.calls.call(node)
        if isinstance(node, a.Assignment):
            return self._assignment(node)
        if isinstance(node, a.ExprList):
            result: Value | None = None
            for e in node.exprs:
                result = self.maybe(e)
            return result
        if isinstance(node, a.CompoundLiteral):
            t = type_of(node.type, self.low.unit)
            value = self.low.statements.initial(node.init, t)
            assert value is not None
            return value
        if isinstance(node, a.InitList):
            raise KernelError("lists in braces only begin a declaration", line_of(node))
        raise KernelError(f"{type(node).__name__} is not supported here", line_of(node))

    def number(self, node: Any) -> Expr:
        """Return the value of an expression that is a number."""
        return self.as_number(self.value(node), node)

    def as_number(self, v: Value, node: Any) -> Expr:
        """Return the expression of a number."""
        if not isinstance(v, NumberValue):
            raise KernelError("this is no number", line_of(node))
        return v.expr

    def condition(self, node: Any) -> Expr:
        """Return whether an expression is not 0."""
        return build.truth(self.number(node))

    def _named(self, node: Any) -> Value:
        a = self.ast
        if isinstance(node, a.ID):
            if node.name in _INFINITY:
                return NumberValue(build.const(_INFINITY[node.name], "float32"))
            if node.name in _LIMITS and self.low.lookup(node.name) is None:
                return NumberValue(build.const(*_LIMITS[node.name]))
        if isinstance(node, a.StructRef) and isinstance(node.name, a.ID):
            full = f"{node.name.name}.{node.field.name}"
            if node.name.name in BUILTINS and self.low.lookup(node.name.name) is None:
                return NumberValue(Var("uint32", full))
        if isinstance(node, a.StructRef) and node.type == "." and not self._is_place(node.name):
            whole = self.value(node.name)
            if isinstance(whole, StructValue) and node.field.name in whole.fields:
                return whole.fields[node.field.name]
        return read(self.place(node))

    def _is_place(self, node: Any) -> bool:
        return isinstance(
            node, (self.ast.ID, self.ast.ArrayRef, self.ast.StructRef, self.ast.UnaryOp)
        )

    # -- places --------------------------------------------------------------------------------

    def place(self, node: Any) -> Place:
        """Return the place that an expression names."""
        a, line = self.ast, line_of(node)
        if isinstance(node, a.ID):
            place = self.low.lookup(node.name)
            if place is None:
                raise KernelError(f"the name {node.name!r} is not known", line)
            return place
        if isinstance(node, a.ArrayRef):
            base = self.value(node.name)
            by = self.number(node.subscript)
            if not isinstance(base, PointerValue):
                raise KernelError("this is no array", line)
            by = self.low.settled(by)
            return self.element(moved(base, by), line)
        if isinstance(node, a.StructRef):
            if node.type == "->":
                return part(self.pointee(self.value(node.name), line), node.field.name, line)
            return part(self.place(node.name), node.field.name, line)
        if isinstance(node, a.UnaryOp) and node.op == "*":
            return self.pointee(self.value(node.expr), line)
        raise KernelError("this is no place that could be written", line)

    def element(self, address: PointerValue, line: int) -> ElementPlace:
        """Return the place that an address points to."""
        if isinstance(address.to, Pointer):
            raise KernelError("pointers to pointers are not supported", line)
        return at(address.memory, address.offset, address.to)

    def pointee(self, v: Value, line: int) -> Place:
        """Return what a pointer points to."""
        if isinstance(v, Reference):
            return v.place
        if isinstance(v, PointerValue):
            return self.element(v, line)
        raise KernelError("this is no pointer", line)

    def address_of(self, place: Place) -> Value:
        """Return a pointer to a place."""
        if isinstance(place, ElementPlace):
            return PointerValue(place.type, place.memory, place.index)
        return Reference(place)

    # -- operators -----------------------------------------------------------------------------

    def _binary(self, node: Any) -> Value:
        if node.op in ("&&", "||"):
            return NumberValue(self._lazy(node))
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(left, StructValue) or isinstance(right, StructValue):
            if node.op not in _OF_STRUCTS:
                raise KernelError(f"structs have no operator {node.op}", line_of(node))
            return self.low.calls.operator(_OF_STRUCTS[node.op], [left, right], node)
        return self.arithmetic(node.op, left, right, node)

    def arithmetic(self, op: str, left: Value, right: Value, node: Any) -> Value:
        """Return the result of an operator on numbers or pointers."""
        line = line_of(node)
        if isinstance(left, PointerValue) or isinstance(right, PointerValue):
            return self._of_pointers(op, left, right, line)
        a, b = self.as_number(left, node), self.as_number(right, node)
        name = _BINARY[op]
        if name in build.COMPARISONS:
            return NumberValue(build.compare(name, a, b))
        if name in ("left_shift", "right_shift"):
            dtype = promoted(a.dtype)
            return NumberValue(build.call(name, dtype, build.cast(a, dtype), build.cast(b, dtype)))
        dtype = common(a.dtype, b.dtype)
        a, b = build.cast(a, dtype), build.cast(b, dtype)
        if dtype in FLOATS:
            if name not in ("add", "subtract", "multiply", "divide"):
                raise KernelError(f"floating-point numbers have no operator {op}", line)
            return NumberValue(build.call(name, dtype, a, b))
        return NumberValue(integer(name, a, b))

    def _of_pointers(self, op: str, left: Value, right: Value, line: int) -> Value:
        if isinstance(left, PointerValue) and isinstance(right, NumberValue) and op in "+-":
            by = build.cast(right.expr, "int64")
            return moved(left, by if op == "+" else build.negative(by))
        if isinstance(right, PointerValue) and isinstance(left, NumberValue) and op == "+":
            return moved(right, left.expr)
        if not isinstance(left, PointerValue) or not isinstance(right, PointerValue):
            raise KernelError(f"a pointer and a value have no operator {op}", line)
        if left.memory == right.memory and left.to == right.to:
            if op == "-":
                size = build.index(len(leaves(left.to)))
                by = build.call("subtract", "int64", left.offset, right.offset)
                return NumberValue(integer("divide", by, size))
            if _BINARY.get(op) in build.COMPARISONS:
                return NumberValue(build.compare(_BINARY[op], left.offset, right.offset))
        raise KernelError(f"pointers into different arrays have no operator {op}", line)

    def _lazy(self, node: Any) -> Expr:
        """Return ``a && b`` or ``a || b``; `b` is not computed where `a` decides."""
        name = "logical_and" if node.op == "&&" else "logical_or"
        left = self.condition(node.left)
        self.low.emitter.begin()
        right = self.condition(node.right)
        then = self.low.emitter.end()
        if not then and build.is_free(right):
            return build.call(name, "bool", left, right)
        result = self.low.variable("both" if node.op == "&&" else "either", "bool", left)
        test = result if node.op == "&&" else build.logical_not(result)
        self.low.emit(if_(test, (*then, Assign(result.name, right))))
        return result

    def _choice(self, node: Any) -> Value:
        condition = self.condition(node.cond)
        emitter = self.low.emitter
        emitter.begin()
        yes = self.value(node.iftrue)
        first = emitter.end()
        emitter.begin()
        no = self.value(node.iffalse)
        second = emitter.end()
        if isinstance(yes, NumberValue) and isinstance(no, NumberValue):
            a, b = yes.expr, no.expr
            dtype = a.dtype if a.dtype == b.dtype else common(a.dtype, b.dtype)
            a, b = build.cast(a, dtype), build.cast(b, dtype)
            # Both sides of `where` are computed, and so are their derivatives: one that is infinite
            # on the side that is not taken would spoil the other.
            if not first and not second and build.is_tame(a) and build.is_tame(b):
                return NumberValue(build.where(condition, a, b))
            result = self.low.variable("chosen", dtype, None)
            self.low.emit(
                if_(condition, (*first, Assign(result.name, a)), (*second, Assign(result.name, b)))
            )
            return NumberValue(result)
        if isinstance(yes, StructValue) and isinstance(no, StructValue) and yes.type == no.type:
            place = self.low.declare_struct("chosen", yes.type)
            emitter.begin()
            self.store(place, yes, node)
            first += emitter.end()
            emitter.begin()
            self.store(place, no, node)
            self.low.emit(if_(condition, first, second + emitter.end()))
            return read(place)
        raise KernelError(
            "both values of ?: must be numbers, or structs of one type", line_of(node)
        )

    def _unary(self, node: Any) -> Value:
        op, line = node.op, line_of(node)
        if op == "&":
            return self.address_of(self.place(node.expr))
        if op == "*":
            return read(self.pointee(self.value(node.expr), line))
        if op in ("++", "--", "p++", "p--"):
            place = self.place(node.expr)
            before = self.frozen(read(place)) if op.startswith("p") else None
            one = NumberValue(build.const(1, "int32"))
            self.store(place, self.arithmetic(op[-1], read(place), one, node), node)
            return before if before is not None else read(place)
        if op == "sizeof":
            raise KernelError("sizeof is not supported; write the number", line)
        v = self.value(node.expr)
        if isinstance(v, StructValue) and op == "-":
            return self.low.calls.operator("subtract", [v], node)
        e = self.as_number(v, node)
        if op == "!":
            return NumberValue(build.logical_not(build.truth(e)))
        e = build.cast(e, promoted(e.dtype))
        if op == "+":
            return NumberValue(e)
        if op == "-":
            return NumberValue(build.negative(e))
        if op == "~" and e.dtype not in FLOATS:
            return NumberValue(build.call("bitwise_xor", e.dtype, e, build.const(-1, e.dtype)))
        raise KernelError(f"the operator {op} is not supported", line)

    def frozen(self, v: Value) -> Value:
        """Return a value as it is now, whatever is written afterwards."""
        if isinstance(v, NumberValue) and not isinstance(v.expr, Const):
            return NumberValue(self.low.named("before", v.expr))
        if isinstance(v, PointerValue):
            return PointerValue(v.to, v.memory, self.low.named("before", v.offset))
        return v

    def _assignment(self, node: Any) -> Value:
        place = self.place(node.lvalue)
        if node.op == "=":
            self.store(place, self.value(node.rvalue), node)
            return read(place)
        right = self.value(node.rvalue)
        before = read(place)
        op = node.op[:-1]
        if isinstance(before, StructValue):
            result = self.low.calls.compound(_OF_STRUCTS.get(op, op), place, right, node)
        else:
            result = self.arithmetic(op, before, right, node)
        if result is not None:
            self.store(place, result, node)
        return read(place)

    # -- conversions and writes ----------------------------------------------------------------

    def cast(self, v: Value, t: CType, node: Any) -> Value:
        """Return a value as one of another type."""
        line = line_of(node)
        if isinstance(t, Scalar) and isinstance(v, NumberValue):
            return NumberValue(build.cast(v.expr, t.dtype))
        if isinstance(t, Struct) and isinstance(v, StructValue) and t.name == v.type.name:
            return v
        if isinstance(t, Pointer) and isinstance(v, PointerValue):
            if isinstance(t.to, (Scalar, Struct)) and set(leaves(t.to)) == {v.memory.dtype}:
                return PointerValue(t.to, v.memory, v.offset)
            raise KernelError(
                f"{v.memory.name!r} holds {v.memory.dtype} and is read as {spelled(t.to)}; "
                "numbers that are read as others have no derivative",
                line,
            )
        if isinstance(t, Pointer) and isinstance(v, Reference):
            return v
        raise KernelError(f"this is not converted to {spelled(t)}", line)

    def store(self, place: Place, v: Value, node: Any) -> None:
        """Write a value to a place."""
        line = line_of(node)
        if isinstance(place, ScalarPlace):
            if place.known is not None:
                raise KernelError("a constant is written", line)
            value = build.cast(self.as_number(v, node), place.dtype)
            self.low.emit(Assign(place.name, value))
        elif isinstance(place, PointerPlace):
            self._point(place, v, line)
        elif isinstance(place, StructPlace) or isinstance(place.type, Struct):
            self._store_struct(place, v, node)
        elif isinstance(place.type, Scalar):
            if not place.memory.written:
                raise KernelError(f"{place.memory.name!r} is const, and written", line)
            value = build.cast(self.as_number(v, node), place.type.dtype)
            self.low.emit(Store(place.memory.name, self.low.settled(place.index), value))
        else:
            raise KernelError("arrays are not assigned; copy element by element", line)

    def _store_struct(self, place: Place, v: Value, node: Any) -> None:
        t = place_type(place)
        if not isinstance(v, StructValue) or not isinstance(t, Struct) or v.type.name != t.name:
            raise KernelError("a struct is assigned something else", line_of(node))
        values = {n: self.frozen(f) if len(t.fields) > 1 else f for n, f in v.fields.items()}
        for name, _ in t.fields:
            self.store(part(place, name, line_of(node)), values[name], node)

    def _point(self, place: PointerPlace, v: Value, line: int) -> None:
        if isinstance(v, Reference) and place.value is None:
            place.value = v
            return
        if not isinstance(v, PointerValue):
            raise KernelError("this is no pointer", line)
        if place.value is None:
            place.value = PointerValue(place.to, v.memory, v.offset)
            if place.offset is not None:
                self.low.emit(Local(place.offset, "int64", None, v.offset))
            return
        if not isinstance(place.value, PointerValue) or place.value.memory != v.memory:
            raise KernelError("a pointer is moved to another array, which is not supported", line)
        if place.offset is None:
            raise KernelError("this pointer cannot be moved", line)
        self.low.emit(Assign(place.offset, v.offset))


def integer(name: str, a: Expr, b: Expr) -> Expr:
    """Return the result of an operator on integers of one dtype."""
    if name == "add":
        return build.add(a, b)
    if name == "subtract":
        return build.subtract(a, b)
    if name == "multiply":
        return build.multiply(a, b)
    if name == "divide":
        return a if build.is_one(b) else build.call("quotient", a.dtype, a, b)
    return build.call(name, a.dtype, a, b)


def literal(node: Any) -> Expr:
    """Return the value of a literal."""
    text = node.value
    if node.type in ("char", "string"):
        raise KernelError("texts are not supported", line_of(node))
    if "float" in node.type or "double" in node.type:
        dtype = "float32" if text[-1] in "fF" else "float64"
        return build.const(float(text.rstrip("fFlL")), dtype)
    digits = text.rstrip("uUlL")
    value = (
        int(digits, 8)
        if digits.startswith("0") and digits.isdigit() and len(digits) > 1
        else int(digits, 0)
    )
    ending = text[len(digits) :].lower()
    unsigned = "u" in ending or (digits.startswith("0x") and value > 0x7FFFFFFF)
    wide = "l" in ending or value > (0xFFFFFFFF if unsigned else 0x7FFFFFFF)
    return build.const(value, ("u" if unsigned else "") + ("int64" if wide else "int32"))
