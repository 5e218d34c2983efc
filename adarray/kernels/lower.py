"""A kernel's source as loop IR: scopes, declarations, statements."""

from __future__ import annotations

from typing import Any

from adarray.compiler.ir.loopir import Assign, Const, Expr, Let, Local, Param, Var
from adarray.compiler.ir.threads import ConstantTable, Shared, Stmt, ThreadKernel, loads
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.calls import CallReader
from adarray.kernels.declarations import TranslationUnit, line_of, parameters, type_of
from adarray.kernels.expressions import ExpressionReader
from adarray.kernels.statements import StatementReader
from adarray.kernels.types import Array, CType, Pointer, Scalar, Struct, leaves
from adarray.kernels.values import (
    ElementPlace,
    Emitter,
    MemoryRef,
    NumberValue,
    Place,
    PointerPlace,
    PointerValue,
    Reference,
    ScalarPlace,
    StructPlace,
    Value,
    element_dtype,
    part,
)

RESERVED = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if int
    long register return short signed sizeof static struct switch typedef union unsigned void
    volatile while inline restrict bool true false class new delete this template public private
    operator y0 y1 j0 j1 jn yn gamma exp sin cos tan log sqrt pow floor ceil round trunc index div
    abs min max rint erf tape blockIdx threadIdx blockDim gridDim main signal call malloc calloc
    free memset memcpy lambda""".split()  # noqa: SIM905
)


class SourceLowering:
    """Reads one kernel of a source.

    Attributes
    ----------
    emitter : Emitter
        Where statements go.
    scopes : list of dict
        What names stand for, innermost last.
    """

    def __init__(self, unit: TranslationUnit) -> None:
        self.unit = unit
        self.emitter = Emitter()
        self.emitter.names |= RESERVED
        self.scopes: list[dict[str, Place]] = [{}]
        self.shared: list[Shared] = []
        self.tables: list[ConstantTable] = []
        self.structs: dict[str, str] = {}  # parameters that are numbers of a struct, by name
        self.expressions = ExpressionReader(self)
        self.calls = CallReader(self)
        self.statements = StatementReader(self)

    # -- names ---------------------------------------------------------------------------------

    def lookup(self, name: str) -> Place | None:
        """Return what a name stands for."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def emit(self, s: Stmt) -> None:
        """Add a statement."""
        self.emitter.emit(s)

    def variable(self, name: str, dtype: str, init: Expr | None) -> Var:
        """Declare a local variable; return it."""
        unique = self.emitter.fresh(name)
        self.emit(Local(unique, dtype, None, init))
        return Var(dtype, unique)

    def named(self, name: str, value: Expr) -> Expr:
        """Return a value as it is now."""
        if isinstance(value, Const):
            return value
        unique = self.emitter.fresh(name)
        self.emit(Let(unique, value))
        return Var(value.dtype, unique)

    def settled(self, value: Expr) -> Expr:
        """Return a value that is read from memory once."""
        return self.named("at", value) if any(True for _ in loads(value)) else value

    # -- declarations --------------------------------------------------------------------------

    def declare(self, name: str, t: CType, value: Value | None, node: Any) -> Place:
        """Declare a variable that begins as `value`."""
        if isinstance(t, Scalar):
            init = None
            if value is not None:
                init = build.cast(self.expressions.as_number(value, node), t.dtype)
            return ScalarPlace(self.variable(name, t.dtype, init).name, t.dtype)
        if isinstance(t, Struct):
            place = self.declare_struct(name, t)
            if value is not None:
                self.expressions.store(place, value, node)
            return place
        if isinstance(t, Pointer):
            offset = None if isinstance(value, Reference) else self.emitter.fresh(f"{name}_at")
            pointer = PointerPlace(t.to, None, offset)
            if value is not None:
                self.expressions._point(pointer, self._as_pointer(value, t, node), line_of(node))
            return pointer
        assert isinstance(t, Array)
        raise KernelError("arrays are not passed by value", line_of(node))

    def _as_pointer(self, v: Value, t: Pointer, node: Any) -> Value:
        return self.expressions.cast(v, t, node) if isinstance(v, PointerValue) else v

    def declare_struct(self, name: str, t: Struct) -> StructPlace:
        """Declare a struct, field by field."""
        fields: dict[str, Place] = {}
        for field, f in t.fields:
            full = f"{name}_{field}"
            if isinstance(f, Scalar):
                fields[field] = ScalarPlace(self.variable(full, f.dtype, None).name, f.dtype)
            elif isinstance(f, Struct):
                fields[field] = self.declare_struct(full, f)
            elif isinstance(f, Array):
                fields[field] = self.array(full, f, False, 0)
            else:
                raise KernelError("structs do not hold pointers here", 0)
        return StructPlace(t, fields)

    def array(self, name: str, t: Array, shared: bool, line: int) -> ElementPlace:
        """Declare an array of the thread, or of the block."""
        inner: CType = t.of
        while isinstance(inner, Array):
            inner = inner.of
        dtype = element_dtype(inner, line)
        unique = self.emitter.fresh(name)
        count = None if t.size is None else len(leaves(t))
        if shared:
            self.shared.append(Shared(unique, dtype, count))
        elif count is None:
            raise KernelError(f"the array {name!r} has no size", line)
        else:
            self.emit(Local(unique, dtype, build.index(count)))
        return ElementPlace(t, MemoryRef(unique, dtype), build.index(0))

    def table(self, name: str, t: Array, values: list[Const]) -> ElementPlace:
        """Declare an array of constants; what is not given is 0."""
        inner: CType = t.of
        while isinstance(inner, Array):
            inner = inner.of
        dtype = element_dtype(inner, 0)
        unique = self.emitter.fresh(name)
        numbers = [build.const(v.value, dtype).value for v in values]
        numbers += [0] * (len(leaves(t)) - len(numbers))
        self.tables.append(ConstantTable(unique, dtype, tuple(numbers)))
        return ElementPlace(t, MemoryRef(unique, dtype, False), build.index(0))

    # -- the kernel ----------------------------------------------------------------------------

    def kernel(self, function: Any) -> ThreadKernel:
        """Return a kernel of the source as loop IR."""
        buffers: list[Param] = []
        scalars: list[tuple[str, str]] = []
        order: list[str] = []
        for node in self.unit.constants:
            if node.init is None and "extern" not in node.storage:
                raise KernelError(
                    f"{node.name!r} is filled by the host; make it a parameter", line_of(node)
                )
            self.statements.declaration(node)
        for p in parameters(function):
            t, line = type_of(p.type, self.unit), line_of(p)
            name = self.emitter.fresh(p.name)
            if isinstance(t, Array):
                t = Pointer(t.of)
            if isinstance(t, Pointer) and not t.reference:
                dtype = element_dtype(t.to, line)
                memory = MemoryRef(name, dtype, not t.constant)
                offset = self.emitter.fresh(f"{p.name}_at")
                pointer = PointerPlace(t.to, None, offset)
                self.expressions._point(pointer, PointerValue(t.to, memory, build.index(0)), line)
                self.scopes[-1][p.name] = pointer
                buffers.append(Param(name, dtype, "in" if t.constant else "inout"))
                order.append(name)
            elif isinstance(t, Scalar):
                # Parameters may be assigned in the body.
                self.scopes[-1][p.name] = self.declare(
                    p.name, t, NumberValue(Var(t.dtype, name)), p
                )
                scalars.append((name, t.dtype))
                order.append(name)
            elif isinstance(t, Struct):
                self.scopes[-1][p.name] = self._struct_parameter(p.name, t, scalars, order, p)
            else:
                raise KernelError(
                    f"the parameter {p.name!r} has a type that is not supported", line
                )
        self.scopes.append({})
        self.statements.function(function.body, None)
        body = self.emitter.end()
        return ThreadKernel(
            function.decl.name,
            tuple(buffers),
            tuple(scalars),
            tuple(order),
            tuple(self.shared),
            body,
            tuple(self.tables),
        )

    def _struct_parameter(
        self, name: str, t: Struct, scalars: list[tuple[str, str]], order: list[str], node: Any
    ) -> StructPlace:
        """Declare a struct that a launch passes by value: its fields are arguments."""
        place = self.declare_struct(name, t)
        for field, f in t.fields:
            if not isinstance(f, Scalar):
                raise KernelError("structs that are passed to kernels hold numbers", line_of(node))
            full = self.emitter.fresh(f"{name}_{field}_in")
            scalars.append((full, f.dtype))
            order.append(full)
            self.structs[full] = name
            target = part(place, field, line_of(node))
            assert isinstance(target, ScalarPlace)
            self.emit(Assign(target.name, Var(f.dtype, full)))
        return place
