"""Arrays and numbers that a loop finds in objects, ``self.w`` or ``config.grid.dt``, as variables.

In the syntax tree that is lowered they are names of their own.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adarray.base.scope import client_of
from adarray.loops.names import Loop

_NOT_THERE = object()


def attributes(loop: Loop, value_of: Callable[[str], Any]) -> dict[str, Any]:
    """Return what attributes that a loop reads hold, by their names with dots.

    Parameters
    ----------
    loop : For or While
    value_of : callable
        Returns what a name is bound to; raises NameError.
    """
    written = {
        n.attr for n in ast.walk(loop)
        if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load)
    }  # fmt: skip
    values: dict[str, Any] = {}
    for node in ast.walk(loop):
        if isinstance(node, ast.Attribute) and node.attr not in written:
            name = dotted(node)
            if name and name not in values:
                value = _value(node, value_of)
                if value is not _NOT_THERE:
                    values[name] = value
    return values


def dotted(node: ast.expr) -> str:
    """Return the text of a chain of attributes of a name, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return base and f"{base}.{node.attr}"
    return ""


def _value(node: ast.expr, value_of: Callable[[str], Any]) -> Any:
    """Return what a chain of attributes leads to, where no code of the objects runs for it."""
    if isinstance(node, ast.Name):
        try:
            return value_of(node.id)
        except NameError:
            return _NOT_THERE
    assert isinstance(node, ast.Attribute)
    owner = _value(node.value, value_of)
    if owner is _NOT_THERE:
        return _NOT_THERE
    kind = type(owner)
    if kind is types.ModuleType:
        if not client_of(owner.__dict__):
            return _NOT_THERE  # np.pi stands in the text
        return owner.__dict__.get(node.attr, _NOT_THERE)
    looked_up: Any = object.__getattribute__
    plain = kind.__getattribute__ is looked_up and "__dict__" in dir(kind)
    space = owner.__dict__ if plain else None
    if type(space) is not dict or node.attr not in space:
        return _NOT_THERE
    for cls in kind.__mro__:  # a property, or what else computes it
        if hasattr(type(cls.__dict__.get(node.attr)), "__set__"):
            return _NOT_THERE
    return space[node.attr]


class _Naming(ast.NodeTransformer):
    def __init__(self, attribute_names: Mapping[str, str], aliases: Mapping[str, str]) -> None:
        self._attributes = attribute_names
        self._aliases = aliases

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        name = self._attributes.get(dotted(node))
        if name is None or not isinstance(node.ctx, ast.Load):
            return self.generic_visit(node)
        return ast.copy_location(ast.Name(self._aliases.get(name, name), ast.Load()), node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = self._aliases.get(node.id)
        return node if name is None else ast.copy_location(ast.Name(name, node.ctx), node)


def names_for(loop: Loop, attribute_names: Iterable[str]) -> dict[str, str]:
    """Return names that take the place of attributes."""
    used = {n.id for n in ast.walk(loop) if isinstance(n, ast.Name)}
    names: dict[str, str] = {}
    for attribute in sorted(attribute_names):
        name = attribute.replace(".", "_")
        while name in used:
            name += "_"
        used.add(name)
        names[attribute] = name
    return names


def named(loop: Loop, attribute_names: Mapping[str, str], aliases: Mapping[str, str]) -> Loop:
    """Return a copy of a loop with names in the place of attributes.

    Parameters
    ----------
    loop : For or While
    attribute_names : mapping of str to str
        From attributes to names.
    aliases : mapping of str to str
        From these, and from other names, to those that take their place.
    """
    out: Loop = _Naming(attribute_names, aliases).visit(copy.deepcopy(loop))
    return out
