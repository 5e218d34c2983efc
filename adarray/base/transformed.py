"""What a transform returns: a function that names the transform, and can be pickled."""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Iterable
from typing import Any, NamedTuple

from adarray.base.types import Function, Params


class Transform(NamedTuple):
    """How a function was transformed, to do it again.

    Parameters
    ----------
    function : callable
        `adarray.grad`, say.
    f : callable
        What it was called with.
    options : dict
        Its other arguments.
    """

    function: Function
    f: Function
    options: Params


class Transformed:
    """A transformed function.

    Parameters
    ----------
    transform : Transform
    call : callable
        Computes.
    """

    # In slots, since the attributes of the function are taken over: it may be another of these.
    __slots__ = ("__dict__", "__weakref__", "_call", "_transform")

    def __init__(self, transform: Transform, call: Function) -> None:
        f, name = transform.f, transform.function.__name__
        check_argnums(name, transform.options.get("argnums", 0))
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, f)
        self.__name__ = f"{name}({getattr(f, '__name__', repr(f))})"
        self._transform = transform
        self._call = call

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call it as the function that was transformed."""
        return self._call(*args, **kwargs)

    def __get__(self, obj: object, cls: type | None = None) -> Transformed | types.MethodType:
        return self if obj is None else types.MethodType(self, obj)

    def __repr__(self) -> str:
        return f"<{self._transform.function.__name__} of {self._transform.f!r}>"

    def __copy__(self) -> Transformed:
        return self  # as functions are

    def __deepcopy__(self, memo: object) -> Transformed:
        return self

    def __reduce__(self) -> str | tuple[Function, tuple[object, ...]]:
        return global_name(self) or (again, tuple(self._transform))


def global_name(x: object) -> str | None:
    """Return the name under which an object is found in its module, None if it is not.

    Such objects are pickled by their names, as plain functions are.
    """
    name: str = getattr(x, "__qualname__", "")
    value: object = sys.modules.get(getattr(x, "__module__", None) or "")
    for part in name.split("."):
        value = getattr(value, part, None)
    return name if value is x else None


def again(function: Function, f: Function, options: Params) -> object:
    """Transform a function as it was before it was pickled."""
    return function(f, **options)


def check_argnums(name: str, argnums: int | str | Iterable[object]) -> None:
    """Raise unless `argnums` is a position, a name or a sequence of them.

    Raises
    ------
    TypeError
    """
    if isinstance(argnums, (int, str)):
        return
    wanted: tuple[object, ...]
    try:
        wanted = tuple(argnums)
    except TypeError:
        wanted = (argnums,)
    if not all(isinstance(k, (int, str)) for k in wanted):
        raise TypeError(
            f"{name}: argnums is of type {type(argnums).__name__}; pass positions or names of "
            f"arguments here, and the arguments to what it returns: {name}(f)(x)"
        )
