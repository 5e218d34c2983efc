"""What names and expressions of a kernel's source stand for while it is read."""

from __future__ import annotations

from dataclasses import dataclass, field

from adarray.compiler.ir.loopir import Apply, Expr, Load, Var
from adarray.compiler.ir.threads import Stmt
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.types import Array, CType, Pointer, Scalar, Struct, leaves


@dataclass(frozen=True, slots=True)
class MemoryRef:
    """A buffer, or an array of a block or a thread: numbers of one dtype in a row."""

    name: str
    dtype: str
    written: bool = True  # whether it may be


@dataclass(frozen=True, slots=True)
class NumberValue:
    """The value of an expression."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class StructValue:
    """The value of a struct."""

    type: Struct
    fields: dict[str, Value]


@dataclass(frozen=True, slots=True)
class PointerValue:
    """A pointer's value: memory, and an offset that counts numbers, not elements."""

    to: CType
    memory: MemoryRef
    offset: Expr


@dataclass(frozen=True, slots=True)
class Reference:
    """The address of a variable."""

    place: Place


Value = NumberValue | StructValue | PointerValue | Reference


@dataclass(frozen=True, slots=True)
class ScalarPlace:
    """A variable that is a number; `known` is its value where that never changes."""

    name: str
    dtype: str
    known: Expr | None = None


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """A value in memory, at an index that counts numbers."""

    type: CType
    memory: MemoryRef
    index: Expr


@dataclass(frozen=True, slots=True)
class StructPlace:
    """A variable that is a struct."""

    type: Struct
    fields: dict[str, Place]


@dataclass(slots=True)
class PointerPlace:
    """A variable that is a pointer: it stays in one memory, and its offset changes."""

    to: CType
    value: PointerValue | Reference | None = None
    offset: str | None = None  # the local variable that holds the offset


Place = ScalarPlace | ElementPlace | StructPlace | PointerPlace


@dataclass(slots=True)
class Frame:
    """A loop or function that jumps leave: `live` is false when the rest is left out."""

    live: str
    go: str | None = None  # of a loop: whether there is another iteration
    result: Place | None = None
    function: bool = False


@dataclass(slots=True)
class Emitter:
    """Statements as they are written, and names that are taken."""

    blocks: list[list[Stmt]] = field(default_factory=lambda: [[]])
    names: set[str] = field(default_factory=set)

    def emit(self, s: Stmt) -> None:
        """Add a statement to the innermost block."""
        self.blocks[-1].append(s)

    def fresh(self, name: str) -> str:
        """Return a name that nothing else has."""
        name = f"{name}v" if name.endswith("_") else name  # those are the printers'
        unique, n = name, 1
        while unique in self.names:
            n += 1
            unique = f"{name}_{n}"
        self.names.add(unique)
        return unique

    def begin(self) -> None:
        """Begin a block."""
        self.blocks.append([])

    def end(self) -> tuple[Stmt, ...]:
        """End the innermost block; return its statements."""
        return tuple(self.blocks.pop())


def element_dtype(t: CType, line: int) -> str:
    """Return the dtype of the numbers that elements in memory consist of."""
    dtypes = set(leaves(t))
    if len(dtypes) != 1:
        raise KernelError(
            "arrays of structs whose fields have different types are not supported; use an array "
            "for each type",
            line,
        )
    return dtypes.pop()


def at(memory: MemoryRef, offset: Expr, t: CType) -> ElementPlace:
    """Return the place of a value in memory."""
    return ElementPlace(t, memory, offset)


def moved(address: PointerValue, by: Expr) -> PointerValue:
    """Return an address some elements further."""
    size = len(leaves(address.to))
    step = build.multiply(build.cast(by, "int64"), build.index(size))
    return PointerValue(address.to, address.memory, build.add(address.offset, step))


def read(place: Place) -> Value:
    """Return the value of a place."""
    if isinstance(place, ScalarPlace):
        return NumberValue(place.known if place.known is not None else Var(place.dtype, place.name))
    if isinstance(place, StructPlace):
        return StructValue(place.type, {n: read(f) for n, f in place.fields.items()})
    if isinstance(place, PointerPlace):
        assert place.value is not None
        if isinstance(place.value, PointerValue) and place.offset is not None:
            return PointerValue(place.to, place.value.memory, Var("int64", place.offset))
        return place.value
    t = place.type
    if isinstance(t, Scalar):
        return NumberValue(Load(t.dtype, place.memory.name, place.index))
    if isinstance(t, Array):
        return PointerValue(t.of, place.memory, place.index)
    assert isinstance(t, Struct)
    return StructValue(t, {n: read(part(place, n, 0)) for n, _ in t.fields})


def part(place: Place, name: str, line: int) -> Place:
    """Return the place of a field."""
    if isinstance(place, StructPlace) and name in place.fields:
        return place.fields[name]
    if isinstance(place, ElementPlace) and isinstance(place.type, Struct):
        offset = 0
        for other, t in place.type.fields:
            if other == name:
                return at(place.memory, build.add(place.index, build.index(offset)), t)
            offset += len(leaves(t))
    raise KernelError(f"there is no field {name!r}", line)


def type_of(v: Value) -> CType:
    """Return the type of a value."""
    if isinstance(v, NumberValue):
        return Scalar(v.expr.dtype)
    if isinstance(v, StructValue):
        return v.type
    if isinstance(v, PointerValue):
        return Pointer(v.to)
    return Pointer(place_type(v.place))


def place_type(p: Place) -> CType:
    """Return the type of what is at a place."""
    if isinstance(p, ScalarPlace):
        return Scalar(p.dtype)
    return Pointer(p.to) if isinstance(p, PointerPlace) else p.type


def is_division(e: Expr) -> bool:
    """Whether an expression may stop the program on a processor."""
    return isinstance(e, Apply) and not build.is_free(e)
