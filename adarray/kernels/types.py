"""Types of C, and how arithmetic converts between them."""

from __future__ import annotations

from dataclasses import dataclass

INTEGERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float32", "float64")
_RANK = {d: i for i, d in enumerate((*INTEGERS, *FLOATS))}

# Names of C's types, as sorted words.
NAMES = {
    "_Bool": "bool", "char": "int8", "signed char": "int8", "unsigned char": "uint8",
    "short": "int16", "signed short": "int16", "int short": "int16", "short unsigned": "uint16",
    "int short unsigned": "uint16", "unsigned short": "uint16",
    "int": "int32", "signed": "int32", "int signed": "int32", "unsigned": "uint32",
    "int unsigned": "uint32", "long": "int64", "int long": "int64", "long long": "int64",
    "int long long": "int64", "long unsigned": "uint64", "int long unsigned": "uint64",
    "long long unsigned": "uint64", "int long long unsigned": "uint64", "long signed": "int64",
    "float": "float32", "double": "float64", "char signed": "int8", "char unsigned": "uint8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or truth value."""

    dtype: str


@dataclass(frozen=True, slots=True)
class Pointer:
    """A pointer, or a reference; `constant` says that nothing is written through it."""

    to: CType
    constant: bool = False
    reference: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """An array; `size` is None where the launch says how many elements there are."""

    of: CType
    size: int | None


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct."""

    name: str
    fields: tuple[tuple[str, CType], ...]


@dataclass(frozen=True, slots=True)
class Void:
    """No value."""


CType = Scalar | Pointer | Array | Struct | Void


def promoted(dtype: str) -> str:
    """Return what an operand of arithmetic becomes."""
    return "int32" if _RANK[dtype] < _RANK["int32"] else dtype


def common(a: str, b: str) -> str:
    """Return the dtype of arithmetic on two operands."""
    return max(promoted(a), promoted(b), key=_RANK.__getitem__)


def leaves(t: CType) -> list[str]:
    """Return the dtypes of the numbers that a value of a type consists of, in order."""
    if isinstance(t, Scalar):
        return [t.dtype]
    if isinstance(t, Struct):
        return [d for _, f in t.fields for d in leaves(f)]
    if isinstance(t, Array):
        return leaves(t.of) * (t.size or 0)
    return []


def field_offset(t: Struct, name: str) -> int:
    """Return how many numbers come before a field."""
    offset = 0
    for other, f in t.fields:
        if other == name:
            return offset
        offset += len(leaves(f))
    raise KeyError(name)


def spelled(t: CType) -> str:
    """Return a type as messages show it."""
    if isinstance(t, Scalar):
        return t.dtype
    if isinstance(t, Pointer):
        return f"{spelled(t.to)} *"
    if isinstance(t, Array):
        return f"{spelled(t.of)}[{t.size or ''}]"
    return t.name if isinstance(t, Struct) else "void"
