"""Loops that count: ``for (i = a; i < b; i += c)`` with bounds that do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from adarray.kernels.declarations import TranslationUnit, parameters


@dataclass(frozen=True, slots=True)
class Counted:
    """A loop that counts; `declared` is the declaration of its variable, if it has one there."""

    name: str
    declared: Any
    start: Any
    stop: Any
    step: Any
    up: bool
    inclusive: bool


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!="}


def counted(ast: Any, s: Any) -> Counted | None:
    """Return what a loop counts; None where it does not look like one that counts."""
    declared, start = None, None
    if isinstance(s.init, ast.DeclList) and len(s.init.decls) == 1:
        declared = s.init.decls[0]
        name, start = declared.name, declared.init
    elif (
        isinstance(s.init, ast.Assignment)
        and s.init.op == "="
        and isinstance(s.init.lvalue, ast.ID)
    ):
        name, start = s.init.lvalue.name, s.init.rvalue
    elif s.init is None and isinstance(s.next, (ast.UnaryOp, ast.Assignment)):
        target = s.next.expr if isinstance(s.next, ast.UnaryOp) else s.next.lvalue
        if not isinstance(target, ast.ID):
            return None
        name = target.name
    else:
        return None
    if declared is not None and start is None:
        return None
    stepped = _step(ast, s.next, name)
    test = s.cond
    if stepped is None or not isinstance(test, ast.BinaryOp) or test.op not in _MIRRORED:
        return None
    step, up = stepped
    op, stop = test.op, test.right
    if isinstance(test.right, ast.ID) and test.right.name == name:
        op, stop = _MIRRORED[op], test.left
    elif not (isinstance(test.left, ast.ID) and test.left.name == name):
        return None
    one = isinstance(step, ast.Constant) and step.value == "1"
    if op == "!=" and not one:
        return None
    if op != "!=" and (op[0] == "<") != up:
        return None
    return Counted(name, declared, start, stop, step, up, op.endswith("=") and op != "!=")


def _step(ast: Any, node: Any, name: str) -> tuple[Any, bool] | None:
    """Return by how much a loop's variable changes, and whether it grows."""
    one = ast.Constant("int", "1")
    if isinstance(node, ast.UnaryOp) and isinstance(node.expr, ast.ID) and node.expr.name == name:
        return {"++": (one, True), "p++": (one, True), "--": (one, False), "p--": (one, False)}.get(
            node.op
        )
    if not isinstance(node, ast.Assignment) or getattr(node.lvalue, "name", None) != name:
        return None
    if node.op in ("+=", "-="):
        if isinstance(node.rvalue, ast.UnaryOp) and node.rvalue.op == "-":
            return node.rvalue.expr, node.op == "-="
        return node.rvalue, node.op == "+="
    sum_ = node.rvalue
    if node.op == "=" and isinstance(sum_, ast.BinaryOp) and sum_.op in ("+", "-"):
        if getattr(sum_.left, "name", None) == name:
            return sum_.right, sum_.op == "+"
        if getattr(sum_.right, "name", None) == name and sum_.op == "+":
            return sum_.left, True
    return None


def assigned(ast: Any, node: Any, unit: TranslationUnit) -> set[str]:
    """Return the names of variables that a statement may change."""
    names: set[str] = set()
    if node is None:
        return names
    target = None
    if isinstance(node, ast.Assignment):
        target = node.lvalue
    elif isinstance(node, ast.UnaryOp) and node.op in ("++", "--", "p++", "p--", "&"):
        target = node.expr
    elif isinstance(node, ast.FuncCall) and node.args is not None:
        names |= _by_reference(ast, node, unit)
    while isinstance(target, (ast.StructRef, ast.ArrayRef)):
        target = target.name
    if isinstance(target, ast.ID):
        names.add(target.name)
    for _, c in node.children():
        names |= assigned(ast, c, unit)
    return names


def _by_reference(ast: Any, node: Any, unit: TranslationUnit) -> set[str]:
    """Return names that a call passes to references."""
    names = set()
    for f in unit.functions.get(getattr(node.name, "name", ""), []):
        for p, argument in zip(parameters(f), node.args.exprs, strict=False):
            reference = isinstance(p.type, ast.PtrDecl) and "_Atomic" in p.type.quals
            while isinstance(argument, ast.StructRef):
                argument = argument.name
            if reference and isinstance(argument, ast.ID):
                names.add(argument.name)
    return names


class ConstantLoop(NamedTuple):
    """A loop whose variable takes known values."""

    name: str
    dtype: str
    values: tuple[int, ...]


_MOST_VALUES = 16
_STEPS: dict[str, Callable[[int, int], int]] = {
    "+=": lambda a, b: a + b, "-=": lambda a, b: a - b, "*=": lambda a, b: a * b,
    "/=": lambda a, b: int(a / b), ">>=": lambda a, b: a >> b, "<<=": lambda a, b: a << b,
}  # fmt: skip
_TESTS: dict[str, Callable[[int, int], bool]] = {
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b, "!=": lambda a, b: a != b,
}  # fmt: skip


def constant_loop(ast: Any, s: Any, constant: Callable[[Any], int | None]) -> ConstantLoop | None:
    """Return a short loop over known values of a variable that it declares; None for others.

    Parameters
    ----------
    ast : module
    s : node
    constant : callable
        The value of an expression that is a constant integer, or None.
    """
    d = s.init.decls[0] if isinstance(s.init, ast.DeclList) and len(s.init.decls) == 1 else None
    test, step = s.cond, s.next
    if d is None or d.init is None or not isinstance(d.type, ast.TypeDecl):
        return None
    words = set(getattr(d.type.type, "names", ())) - {"const", "signed"}
    dtype = {("int",): "int32", ("unsigned",): "uint32", ("int", "unsigned"): "uint32"}.get(
        tuple(sorted(words))
    )
    if isinstance(step, ast.UnaryOp) and step.op in ("++", "--", "p++", "p--"):
        step = ast.Assignment(f"{step.op[-1]}=", step.expr, ast.Constant("int", "1"))
    if dtype is None or not isinstance(test, ast.BinaryOp) or test.op not in _TESTS:
        return None
    if not isinstance(step, ast.Assignment) or step.op not in _STEPS:
        return None
    if any(getattr(x, "name", None) != d.name for x in (test.left, step.lvalue)):
        return None
    first, last, by = (constant(e) for e in (d.init, test.right, step.rvalue))
    if first is None or last is None or by is None or (step.op == "/=" and by == 0):
        return None
    values: list[int] = []
    while _TESTS[test.op](first, last):
        if len(values) == _MOST_VALUES:
            return None
        values.append(first)
        first = _STEPS[step.op](first, by)
    return ConstantLoop(d.name, dtype, tuple(values))
