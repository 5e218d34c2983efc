"""Calls in a kernel's source: CUDA's functions, and functions of the source, which are inlined."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from adarray.compiler.ir.loopir import Const, Expr, Var
from adarray.compiler.ir.threads import Atomic, Barrier
from adarray.errors import KernelError
from adarray.kernels import bits, build, functions, warp_calls
from adarray.kernels.declarations import line_of, parameters, result_type, type_of
from adarray.kernels.preprocess import VECTORS
from adarray.kernels.types import (
    FLOATS,
    CType,
    Pointer,
    Scalar,
    Struct,
    Void,
    common,
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
    StructValue,
    Value,
    read,
)
from adarray.kernels.values import (
    type_of as value_type,
)

if TYPE_CHECKING:
    from adarray.kernels.lower import SourceLowering

_NOTHING = frozenset(
    ("__threadfence", "__threadfence_block", "__threadfence_system", "assert", "__trap")
)
_BARRIERS = {"__syncthreads": False, "__syncwarp": True}  # whether they are of a warp
_ATOMICS = {"atomicAdd": "add", "atomicSub": "add", "atomicMin": "minimum", "atomicMax": "maximum",
            "atomicAdd_block": "add"}  # fmt: skip
_ORDER = "this atomic function has no derivative that does not depend on the order of threads"
_REFUSED = (
    (("__shfl", "__ballot", "__any", "__all", "__reduce", "__match"),
     "this function of a warp is not supported; use those with _sync"),
    (("atomicCAS", "atomicExch", "atomicInc", "atomicDec", "atomicAnd", "atomicOr", "atomicXor"),
     _ORDER),
    (("tex1D", "tex2D", "tex3D", "surf"), "textures are not supported; read a plain array"),
    (("curand",), "random numbers of curand are not supported; pass them as an array"),
    (("printf",), "printf is not supported; take it out"),
    (("malloc", "free"), "memory is not allocated in kernels"),
    (("__half", "__float2half", "__hadd"), "half precision is not supported"),
    (("__float_as_", "__int_as_", "__double_as_", "__double2hi", "__double2lo", "__hiloint",
      "__longlong_as", "__uint_as"),
     "numbers that are read as others have no derivative"),
    (("clock",), "clocks are not supported"),
)  # fmt: skip
_DEPTH = 64


class CallReader:
    """Reads calls, into the statements of a `SourceLowering`."""

    def __init__(self, lowering: SourceLowering) -> None:
        self.low = lowering
        self.depth = 0
        self.warps = warp_calls.WarpReader(lowering)

    def call(self, node: Any) -> Value | None:
        """Return what a call returns."""
        name, line = getattr(node.name, "name", None), line_of(node)
        if not isinstance(name, str):
            raise KernelError("pointers to functions are not supported", line)
        nodes = [] if node.args is None else node.args.exprs
        if name in self.low.unit.functions:
            return self._user(name, [self._argument(n) for n in nodes], node)
        if name in _BARRIERS:
            self.low.emit(Barrier(line, _BARRIERS[name]))
            return None
        if name in _NOTHING:
            return None
        if name in warp_calls.NAMES:
            return self.warps.call(name, nodes, node)
        if name not in _ATOMICS and any(name.startswith(starts) for starts, _ in _REFUSED):
            self._refuse(name, line)
        if name in _ATOMICS:
            return self._atomic(name, nodes, node)
        if name in ("sincosf", "sincos", "__sincosf"):
            self._sincos(nodes, node)
            return None
        args = [self.low.expressions.value(n) for n in nodes]
        result = self._math(name, args, node)
        if result is None:
            self._refuse(name, line)
        return result

    def _refuse(self, name: str, line: int) -> None:
        for starts, why in _REFUSED:
            if name.startswith(starts):
                raise KernelError(f"{name}: {why}", line)
        raise KernelError(f"the function {name!r} is not known", line)

    def _argument(self, node: Any) -> Value:
        """Return an argument: a place stays one, for references."""
        a = self.low.expressions.ast
        if isinstance(node, (a.ID, a.ArrayRef, a.StructRef)):
            from adarray.kernels.expressions import BUILTINS

            builtin = isinstance(node, a.StructRef) and getattr(node.name, "name", "") in BUILTINS
            known = not isinstance(node, a.ID) or self.low.lookup(node.name) is not None
            if not builtin and known and self._names_place(node):
                place = self.low.expressions.place(node)
                if isinstance(place, ElementPlace) and isinstance(place.type, Struct | Scalar):
                    return Reference(place)
                if not isinstance(place, (ElementPlace, PointerPlace)):
                    return Reference(place)
        return self.low.expressions.value(node)

    def _names_place(self, node: Any) -> bool:
        a = self.low.expressions.ast
        while isinstance(node, a.StructRef) and node.type == ".":
            node = node.name
        return isinstance(node, (a.ID, a.ArrayRef, a.StructRef))

    # -- CUDA's functions ----------------------------------------------------------------------

    def _math(self, name: str, args: list[Value], node: Any) -> Value | None:
        if name.startswith("make_") and name[5:] in VECTORS:
            base, n = VECTORS[name[5:]]
            dtype = {"float": "float32", "double": "float64", "int": "int32", "uint": "uint32"}[
                base
            ]
            t = self.low.unit.typedefs[name[5:]]
            assert isinstance(t, Struct)
            if len(args) != n:
                raise KernelError(f"{name} takes {n} numbers", line_of(node))
            fields = {
                f: NumberValue(build.cast(self._number(v, node), dtype))
                for f, v in zip("xyzw", args, strict=False)
            }
            return StructValue(t, dict(fields))
        if name == "__ldg" and len(args) == 1:
            return read(self.low.expressions.pointee(args[0], line_of(node)))
        numbers = [v.expr for v in args if isinstance(v, NumberValue)]
        if len(numbers) != len(args) or not numbers:
            return None
        if name in bits.NAMES and len(numbers) == 1:
            return NumberValue(bits.call(name, numbers[0], self.low.named))
        e = _function(name, numbers)
        return None if e is None else NumberValue(self.low.settled(e))

    def _number(self, v: Value, node: Any) -> Expr:
        return self.low.expressions.as_number(v, node)

    def _atomic(self, name: str, nodes: list[Any], node: Any) -> Value:
        line = line_of(node)
        target = self.low.expressions.value(nodes[0])
        place = self.low.expressions.pointee(target, line)
        value = self.low.expressions.number(nodes[1])
        if isinstance(place, ElementPlace) and isinstance(place.type, Scalar):
            value = build.cast(value, place.type.dtype)
            value = build.negative(value) if name == "atomicSub" else value
            if not place.memory.written:
                raise KernelError(f"{place.memory.name!r} is const, and written", line)
            combine = _ATOMICS[name]
            if combine != "add" and place.type.dtype in FLOATS:
                raise KernelError(f"{name} of floating-point numbers: {_ORDER}", line)
            result = self.low.emitter.fresh("old")
            index = self.low.settled(place.index)
            self.low.emit(Atomic(place.memory.name, index, combine, value, result))
            return NumberValue(Var(place.type.dtype, result))
        raise KernelError(f"{name} wants the address of an element", line)

    def _sincos(self, nodes: list[Any], node: Any) -> None:
        x = self.low.expressions.number(nodes[0])
        x = x if x.dtype in FLOATS else build.cast(x, "float64")
        x = self.low.named("angle", x)
        for name, target in (("sin", nodes[1]), ("cos", nodes[2])):
            place = self.low.expressions.pointee(self.low.expressions.value(target), line_of(node))
            self.low.expressions.store(place, NumberValue(build.call(name, x.dtype, x)), node)

    # -- functions of the source ---------------------------------------------------------------

    def operator(self, name: str, args: list[Value], node: Any) -> Value:
        """Return the result of an operator on structs."""
        called = f"operator_{name}"
        if called not in self.low.unit.functions:
            raise KernelError(f"there is no operator for these structs ({name})", line_of(node))
        result = self._user(called, args, node)
        assert result is not None
        return result

    def compound(self, name: str, place: Place, right: Value, node: Any) -> Value | None:
        """Carry out ``+=`` and its like on a struct; return what is to be stored."""
        if f"operator_i{name}" in self.low.unit.functions:
            self._user(f"operator_i{name}", [Reference(place), right], node)
            return None
        return self.operator(name, [read(place), right], node)

    def _user(self, name: str, args: list[Value], node: Any) -> Value | None:
        """Inline a function of the source."""
        line = line_of(node)
        self.depth += 1
        if self.depth > _DEPTH:
            raise KernelError(f"{name}: recursion is not supported", line)
        function = self._chosen(name, args, line)
        result = self._run(function, args, node)
        self.depth -= 1
        return result

    def _chosen(self, name: str, args: list[Value], line: int) -> Any:
        """Return the function of a name that fits the arguments best."""
        fits = []
        for f in self.low.unit.functions[name]:
            types = [type_of(p.type, self.low.unit) for p in parameters(f)]
            if len(types) == len(args):
                fits.append((sum(_distance(v, t) for v, t in zip(args, types, strict=True)), f))
        if not fits:
            raise KernelError(f"{name} takes another number of arguments", line)
        best = min(score for score, _ in fits)
        if best >= 1000:
            raise KernelError(f"{name}: the arguments have other types", line)
        return next(f for score, f in fits if score == best)

    def _run(self, function: Any, args: list[Value], node: Any) -> Value | None:
        low, unit = self.low, self.low.unit
        t = result_type(function, unit)
        scope: dict[str, Place] = {}
        for p, v in zip(parameters(function), args, strict=True):
            scope[p.name] = self._bound(p.name, type_of(p.type, unit), v, node)
        result: Place | None = None
        if isinstance(t, Pointer):
            result = PointerPlace(t.to)
        elif not isinstance(t, Void):
            result = low.declare(f"{function.decl.name}_result", t, None, node)
        low.statements.inlined(function, scope, result)
        return None if result is None else read(result)

    def _bound(self, name: str, t: CType, v: Value, node: Any) -> Place:
        """Return the place of a parameter."""
        if isinstance(t, Pointer) and t.reference:
            if isinstance(v, Reference):
                return v.place
            if isinstance(v, PointerValue):
                return PointerPlace(v.to, v)
            return self.low.declare(name, t.to, v, node)
        value = read(v.place) if isinstance(v, Reference) and not isinstance(t, Pointer) else v
        return self.low.declare(name, t, value, node)


def _distance(v: Value, t: CType) -> int:
    """Return how far an argument is from a parameter's type; 1000 where it does not fit."""
    actual = value_type(v)
    if isinstance(t, Pointer) and t.reference:
        t = t.to
        actual = actual.to if isinstance(v, Reference) and isinstance(actual, Pointer) else actual
    elif isinstance(v, Reference) and not isinstance(t, Pointer) and isinstance(actual, Pointer):
        actual = actual.to
    if isinstance(actual, Scalar) and isinstance(t, Scalar):
        if actual.dtype == t.dtype:
            return 0
        return 1 if (actual.dtype in FLOATS) == (t.dtype in FLOATS) else 2
    if isinstance(actual, Pointer) and isinstance(t, Pointer):
        return 0 if spelled(actual.to) == spelled(t.to) else 3
    return 0 if spelled(actual) == spelled(t) else 1000


def _function(name: str, args: list[Expr]) -> Expr | None:
    """Return a call of one of CUDA's functions of numbers; None for others."""
    e = _integers(name, args)
    if e is not None:
        return e
    single = name.endswith("f") and name[:-1] in functions.MATH
    base = name[:-1] if single else name
    if base not in functions.MATH and base not in functions.PREDICATES:
        return _special(name, args)
    dtype = "float32" if single or base.endswith("_rn") else args[0].dtype
    for a in args[1:]:
        dtype = dtype if single else common(dtype, a.dtype)
    dtype = dtype if dtype in FLOATS else "float64"
    args = [build.cast(a, dtype) for a in args]
    if base in functions.PREDICATES:
        return build.call(functions.PREDICATES[base], "bool", *args)
    ours = functions.MATH[base]
    if len(args) != (2 if ours in functions.BINARY else 1):
        return None
    power = args[1] if ours == "power" else None
    if isinstance(power, Const) and power.value == 2:
        return build.multiply(args[0], args[0])
    return build.call(ours, dtype, *args)


def _integers(name: str, args: list[Expr]) -> Expr | None:
    """Return ``min``, ``max`` and ``abs``, which take numbers of every kind."""
    if name in ("min", "max", "umin", "umax") and len(args) == 2:
        dtype = common(args[0].dtype, args[1].dtype)
        a, b = (build.cast(x, dtype) for x in args)
        if dtype in FLOATS:
            return build.call("fmin" if "min" in name else "fmax", dtype, a, b)
        return build.call("minimum" if "min" in name else "maximum", dtype, a, b)
    if name in ("abs", "labs", "llabs") and len(args) == 1:
        x = build.cast(args[0], promoted(args[0].dtype))
        if x.dtype in FLOATS:
            return build.call("absolute", x.dtype, x)
        return build.where(build.compare("less", x, build.const(0, x.dtype)), build.negative(x), x)
    if name in ("__mul24", "__umul24", "__mulhi") and name != "__mulhi":
        return build.multiply(*(build.cast(x, common(args[0].dtype, args[1].dtype)) for x in args))
    return None


def _special(name: str, args: list[Expr]) -> Expr | None:
    """Return functions that are written by others."""
    if name in ("fma", "fmaf", "__fmaf_rn", "__fma_rn") and len(args) == 3:
        dtype = "float64" if name in ("fma", "__fma_rn") else "float32"
        a, b, c = (build.cast(x, dtype) for x in args)
        return build.add(build.multiply(a, b), c)
    two = {"__fadd_rn": "add", "__fmul_rn": "multiply", "__fsub_rn": "subtract",
           "__dadd_rn": "add", "__dmul_rn": "multiply"}  # fmt: skip
    if name in two and len(args) == 2:
        dtype = "float64" if name.startswith("__d") else "float32"
        return build.call(two[name], dtype, *(build.cast(x, dtype) for x in args))
    if name == "__saturatef" and len(args) == 1:
        x = build.cast(args[0], "float32")
        low = build.call("fmax", x.dtype, x, build.const(0, x.dtype))
        return build.call("fmin", x.dtype, low, build.const(1, x.dtype))
    if name in ("sinpi", "sinpif", "cospi", "cospif") and len(args) == 1:
        dtype = "float32" if name.endswith("f") else args[0].dtype
        x = build.multiply(build.cast(args[0], dtype), build.const(math.pi, dtype))
        return build.call(name[:3], dtype, x)
    return _converted(name, args)


_NUMBERS = {"float": "float32", "double": "float64", "int": "int32", "uint": "uint32",
            "ll": "int64", "ull": "uint64"}  # fmt: skip
_ROUNDINGS = {"d": "floor", "u": "ceil", "n": "rint", "z": "trunc"}
_CONVERSION = re.compile(rf"__({'|'.join(_NUMBERS)})2({'|'.join(_NUMBERS)})(?:_r([nzud]))?")


def _converted(name: str, args: list[Expr]) -> Expr | None:
    """Return a conversion, such as ``__float2int_rn``: its value has no derivative if it rounds."""
    match = _CONVERSION.fullmatch(name)
    if match is None or len(args) != 1:
        return None
    source, target = _NUMBERS[match[1]], _NUMBERS[match[2]]
    x = build.cast(args[0], source)
    if target not in FLOATS and source in FLOATS:
        x = build.call(_ROUNDINGS[match[3] or "z"], source, x)
    elif match[3] in ("z", "u", "d"):
        return None  # numbers of the host are rounded to the nearest
    return build.cast(x, target)
