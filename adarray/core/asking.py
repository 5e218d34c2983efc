"""`type` where it was put before code was transformed: defaults, closures, tables, attributes.

Calls of the name are redirected (`adarray.core.loads`); what holds the class itself is not. In
default arguments and variables of enclosing functions, what answers for the plain value takes
its place. Lists, tables and objects belong to the user, and are left as they are: a function that
reaches `type` in one is refused, since nothing could tell what it asks of a traced value.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

from adarray.base.errors import TraceError
from adarray.base.redirecting import original_of
from adarray.core.holding import TABLES, is_clients, items_of
from adarray.core.loads import Type

_DEPTH = 3  # of containers in containers
_MOST = 64  # items of a container that are looked at


def take_type(f: types.FunctionType) -> None:
    """Let defaults and closed-over variables of a function that are `type` answer for it."""
    if any(v is type for v in f.__defaults__ or ()):
        f.__defaults__ = tuple(Type if v is type else v for v in f.__defaults__ or ())
    keywords: dict[str, object] = f.__kwdefaults__ or {}
    for name, value in tuple(keywords.items()):
        if value is type:
            keywords[name] = Type
    for cell in f.__closure__ or ():
        try:
            if cell.cell_contents is type:
                cell.cell_contents = Type
        except ValueError:  # not assigned yet
            continue


def refuse_held_type(f: types.FunctionType, names: frozenset[str]) -> None:
    """Raise if a function reaches `type` in something that is not a name.

    Parameters
    ----------
    f : function
    names : frozenset of str
        In its code.

    Raises
    ------
    TraceError
    """
    for name, x in _variables(f, names):
        where = _place_of_type(x, name, names, _DEPTH)
        if x is builtins and not names.isdisjoint(("vars", "__dict__")):
            where = f"an item of vars({name})"
        if where:
            code = original_of(f.__code__)
            line = next(
                (i.positions.lineno for i in dis.get_instructions(code)
                 if i.argval == name and i.positions is not None), code.co_firstlineno,
            )  # fmt: skip
            raise TraceError(
                f"type: {f.__qualname__} ({code.co_filename}, line {line}) reaches the builtin "
                f"`type` as {where}, where a call would show the class of an ADArray; call it by "
                "its name, type(x)"
            )


def _variables(f: types.FunctionType, names: frozenset[str]) -> Iterator[tuple[str, object]]:
    """Yield the variables of a function that are there before it runs: names and values."""
    code, space = f.__code__, f.__globals__
    for name in names:
        value = space.get(name)
        if value is not None:
            yield name, value
    positional = code.co_varnames[: code.co_argcount]
    defaults = f.__defaults__ or ()
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (f.__kwdefaults__ or {}).items()
    for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def _place_of_type(x: Any, name: str, names: frozenset[str], depth: int) -> str:
    """Return how code writes what leads from a variable to `type`; "" if nothing does."""
    kind = type(x)
    parts: list[tuple[str, object]] = []
    if kind is functools.partial:
        parts = [(f"{name}.func", x.func), *((f"an argument of {name}", a) for a in x.args)]
    elif issubclass(kind, TABLES):
        if depth and not (kind is tuple and len(x) > 1 and all(isinstance(i, type) for i in x)):
            # Several classes in a tuple are what isinstance takes.
            # Without asking lists: one that jit passes notes when it is read.
            count = list.__len__(x) if isinstance(x, list) else len(x)
            items = list(items_of(x)) if count <= _MOST else []
            parts = [(f"an item of {name}", i) for i in items]
    elif kind is types.SimpleNamespace or is_clients(x if issubclass(kind, type) else kind):
        parts = [(f"{name}.{n}", v) for n, v in _attributes(x) if n in names]
    for where, part in parts:
        part = part.__func__ if type(part) is staticmethod else part
        if part is type:
            return where
        if depth and (found := _place_of_type(part, where, names, depth - 1)):
            return found
    return ""


def _attributes(x: Any) -> Iterator[tuple[str, object]]:
    classes = x.__mro__ if isinstance(x, type) else (x, *type(x).__mro__)
    for owner in classes:
        try:
            space = (type if isinstance(owner, type) else object).__getattribute__(
                owner, "__dict__"
            )
        except Exception:  # there is none, or a property raises
            continue
        if isinstance(space, (dict, types.MappingProxyType)):
            yield from tuple(space.items())
