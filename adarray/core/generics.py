"""Modules of the standard library that ask for types in the name of user code.

`typing` answers ``isinstance(x, typing.Sequence)`` and ``isinstance(x, typing.Union[float, list])``
in Python, by ``type(x)``. That would be the class of the ADArray, where user code asks for that of
the plain value. `json` gives what is of no type that it knows to the ``default`` of the user, who
may return anything; it knows the types of the plain values.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

from adarray.base.levels import LEVEL
from adarray.base.redirecting import redirect
from adarray.base.scope import SCOPE, asking
from adarray.core.loads import class_of
from adarray.core.protocol import followed
from adarray.core.refusals import leaves_graph
from adarray.core.trace import Handle

_CHECKS = ("_UnionGenericAlias", "_BaseGenericAlias")  # whose ``__instancecheck__`` asks so


def _seen_class(x: Any) -> type:
    return type(x) if asking(sys._getframe(1)) is None else class_of(x)


class _SeenClass:
    """Pushes what takes the place of `type` there."""

    def __invert__(self) -> Any:
        return _seen_class


def _checking(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that makes an encoder for JSON like `make`, whose numbers are numbers."""

    def maker(markers: Any, default: Callable[[Any], Any], *args: Any) -> Any:
        def checked(x: Any) -> Any:
            if not issubclass(type(x), Handle) or not issubclass(class_of(x), (float, int)):
                return default(x)
            if followed(x):
                raise leaves_graph("JSON", "compute with the array, not with its text", x)
            inside = LEVEL.get() or SCOPE.get() is not None
            return class_of(x)(x._plain) if inside else default(x)

        return make(markers, checked, *args)

    return maker


class _Checking:
    """Pushes what takes the place of a function that makes encoders."""

    def __init__(self, name: str) -> None:
        make = vars(json.encoder).get(name)
        self._maker = make if make is None else _checking(make)

    def __invert__(self) -> Any:
        return self._maker


_MAKERS = ("c_make_encoder", "_make_iterencode")


def answer_for_libraries() -> None:
    """Let these modules ask as the code would that calls them; done once."""
    if _answered:
        return
    _answered.append(True)
    makers = {name: _Checking(name) for name in _MAKERS}
    encode = vars(json.JSONEncoder)["iterencode"]
    if type(encode) is types.FunctionType:
        redirect(encode, _MAKERS, lambda name, _: makers[name], "json")
    load = _SeenClass()
    for name in _CHECKS:
        check = vars(getattr(typing, name, object)).get("__instancecheck__")
        if type(check) is types.FunctionType:
            redirect(check, ["type"], lambda _, how: load if how == "call" else None, "typing")


_answered: list[bool] = []
