"""``isinstance(x, typing.Sequence)``, ``isinstance(x, typing.Union[float, list])``.

`typing` answers both in Python, by ``type(x)``. That would be the class of the ADArray, where user
code asks for that of the plain value.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

from adarray.base.redirecting import redirect
from adarray.base.scope import asking
from adarray.core.loads import class_of

_CHECKS = ("_UnionGenericAlias", "_BaseGenericAlias")  # whose ``__instancecheck__`` asks so


def _seen_class(x: Any) -> type:
    return type(x) if asking(sys._getframe(1)) is None else class_of(x)


class _SeenClass:
    """Pushes what takes the place of `type` there."""

    def __invert__(self) -> Any:
        return _seen_class


def answer_for_typing() -> None:
    """Let these checks ask for the class that the code which makes them sees; done once."""
    if _answered:
        return
    _answered.append(True)
    load = _SeenClass()
    for name in _CHECKS:
        check = vars(getattr(typing, name, object)).get("__instancecheck__")
        if type(check) is types.FunctionType:
            redirect(check, ["type"], lambda _, how: load if how == "call" else None, "typing")


_answered: list[bool] = []
