"""The declarations of a source: its types, functions and constants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from adarray.errors import KernelError
from adarray.kernels import preprocess
from adarray.kernels.types import NAMES, Array, CType, Pointer, Scalar, Struct, Void


def line_of(node: Any) -> int:
    """Return the line of the source that a node of the tree came from."""
    coord = getattr(node, "coord", None)
    return int(coord.line) if coord is not None and coord.line else 0


@dataclass(slots=True)
class TranslationUnit:
    """A source as a tree, and what it declares.

    Attributes
    ----------
    functions : dict
        Lists of functions by name: there may be several of one name.
    constants : dict
        Declarations of constants outside of functions.
    """

    functions: dict[str, list[Any]] = field(default_factory=dict)
    kernels: dict[str, Any] = field(default_factory=dict)
    structs: dict[str, Struct] = field(default_factory=dict)
    typedefs: dict[str, CType] = field(default_factory=dict)
    constants: list[Any] = field(default_factory=list)


def parse(source: preprocess.PreparedSource) -> TranslationUnit:
    """Return what a source declares.

    Raises
    ------
    KernelError
        If it is not C, but for CUDA's words.
    """
    from pycparser import c_ast, c_parser  # importing adarray does not need it

    parser = c_parser.CParser()
    try:
        tree = parser.parse(source.text, "source")
    except (c_parser.ParseError, AssertionError) as error:
        raise syntax_error(str(error), getattr(parser.clex, "_lineno", 0)) from None
    unit = TranslationUnit()
    for node in tree.ext:
        if isinstance(node, c_ast.FuncDef):
            name = node.decl.name
            if "_Noreturn" in node.decl.funcspec:
                unit.kernels[name] = node
            unit.functions.setdefault(name, []).append(node)
        elif isinstance(node, c_ast.Typedef):
            unit.typedefs[node.name] = type_of(node.type, unit)
        elif isinstance(node, c_ast.Decl):
            if isinstance(node.type, c_ast.FuncDecl):
                continue
            if isinstance(node.type, (c_ast.Struct, c_ast.Enum)) or node.name is None:
                type_of(node.type, unit)
            else:
                unit.constants.append(node)
        else:
            raise KernelError("this is no declaration", line_of(node))
    return unit


def syntax_error(text: str, reached: int) -> KernelError:
    """Return an error of the parser; `reached` is the line where it stopped."""
    parts = text.split(":")
    line = int(parts[1]) if len(parts) > 2 and parts[1].strip().isdigit() else reached
    what = parts[-1].strip() or "the end of the text"
    return KernelError(f"this is not C as far as adarray reads it ({what})", line)


def type_of(node: Any, unit: TranslationUnit) -> CType:
    """Return the type that a node of the tree stands for."""
    from pycparser import c_ast

    if isinstance(node, c_ast.TypeDecl):
        return type_of(node.type, unit)
    if isinstance(node, c_ast.Typename):
        return type_of(node.type, unit)
    if isinstance(node, c_ast.IdentifierType):
        return _named(node, unit)
    if isinstance(node, c_ast.PtrDecl):
        constant = "const" in getattr(node.type, "quals", [])
        return Pointer(type_of(node.type, unit), constant, "_Atomic" in node.quals)
    if isinstance(node, c_ast.ArrayDecl):
        size = None if node.dim is None else constant_of(node.dim)
        return Array(type_of(node.type, unit), size)
    if isinstance(node, c_ast.Struct):
        if node.decls is not None:
            struct = Struct(node.name or "struct", _fields(node, unit))
            if node.name:
                unit.structs[node.name] = struct
            return struct
        return unit.structs.get(node.name) or Struct(node.name, ())
    if isinstance(node, c_ast.Enum):
        raise KernelError("enum is not supported; use const int", line_of(node))
    if isinstance(node, c_ast.FuncDecl):
        raise KernelError("pointers to functions are not supported", line_of(node))
    raise KernelError(f"a type of kind {type(node).__name__} is not supported", line_of(node))


def _fields(node: Any, unit: TranslationUnit) -> tuple[tuple[str, CType], ...]:
    fields = []
    for d in node.decls:
        if d.name is None or not hasattr(d, "type"):
            raise KernelError("structs hold named fields only", line_of(d))
        fields.append((d.name, type_of(d.type, unit)))
    return tuple(fields)


def _named(node: Any, unit: TranslationUnit) -> CType:
    words = node.names
    if words == ["void"]:
        return Void()
    name = " ".join(words)
    if len(words) == 1 and name in unit.typedefs:
        known = unit.typedefs[name]
        # A name that was declared before its fields were.
        return unit.structs.get(known.name, known) if isinstance(known, Struct) else known
    dtype = NAMES.get(" ".join(sorted(words)))
    if dtype is None:
        raise KernelError(f"the type {name!r} is not supported", line_of(node))
    return Scalar(dtype)


def constant_of(node: Any) -> int:
    """Return the value of a constant in a declaration outside of functions."""
    from pycparser import c_ast

    if isinstance(node, c_ast.Constant) and "float" not in node.type:
        return int(node.value.rstrip("uUlL"), 0)
    if isinstance(node, c_ast.BinaryOp) and node.op in ("+", "-", "*", "/"):
        a, b = constant_of(node.left), constant_of(node.right)
        return {"+": a + b, "-": a - b, "*": a * b, "/": a // b if b else 0}[node.op]
    raise KernelError("the size of an array is no constant", line_of(node))


def parameters(function: Any) -> list[Any]:
    """Return the declarations of a function's parameters."""
    from pycparser import c_ast

    args = function.decl.type.args
    params = [] if args is None else list(args.params)
    return [p for p in params if isinstance(p, c_ast.Decl)]


def result_type(function: Any, unit: TranslationUnit) -> CType:
    """Return the type of what a function returns."""
    return type_of(function.decl.type.type, unit)
