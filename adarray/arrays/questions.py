"""What code learns when it asks an ADArray what it is: the answers of its plain value.

User code branches on the type of a value: ``isinstance(x, np.ndarray)``, ``hasattr(x, "shape")``,
``isinstance(x, Iterable)``. It gets the answer that it would get without adarray. Libraries
(NumPy, SciPy, adarray itself) get the true one, since they must know what they have.

Three things are asked. ``x.__class__``, by `isinstance`, patterns and single dispatch, answers by
who asks. Attributes that the plain value lacks raise AttributeError. Abstract base classes look
into ``type(x)`` as well, which cannot answer by the value: what they have asked becomes an instance
of a class that says of itself what the plain value's class says.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType, MethodType
from typing import Any, TypeVar, cast

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.levels import LEVEL, refused
from adarray.base.scope import CHECKER_CODE, SCOPE, STORES, UNINTERCEPTED_MODULES, asking
from adarray.core.protocol import followed, traced
from adarray.core.trace import Handle, levels_of, plain_class

CHECKER_CODE.add(np.isscalar.__code__)
Method = TypeVar("Method", bound=Callable[..., Any])
_set_class = object.__dict__["__class__"].__set__


class MissingError(AttributeError, TypeError):
    """An attribute that the plain value lacks; operators and built-ins raise TypeError then."""


def is_array(x: Handle) -> bool:
    """Whether the plain value is an ndarray, 0-d ones included, and no number."""
    v = x._plain
    return type(v) is np.ndarray or v.__class__ is np.ndarray


def seen_class(x: Handle, frame: FrameType) -> type:
    """Return the class that ``x.__class__`` gives to the code in `frame`."""
    by = asking(frame)
    if by is None:
        return shown_class(x)
    if (
        LEVEL.get() == 0
        and SCOPE.get() is None
        and not traced(x)
        and not _symbolic(x)
        and not (x._x is not None and x._x.escaped)
    ):
        return shown_class(x)  # outside of all transforms, the user holds it as what it is
    if by is not frame:
        show_as_plain(x)
    return plain_class(x)


def show_as_plain(x: Handle) -> None:
    """Make an ADArray an instance of a class that says of itself what its plain class says."""
    weak = x._x is not None and x._x.weak
    wanted = _shy_class(plain_class(x), Handle.number_class if weak else Handle.array_class)
    if type(x) is not wanted and (type(x) is Handle.array_class or type(type(x)) is Shy):
        _set_class(x, wanted)


_shy: dict[type, type] = {}


def _shy_class(shown: type, base: Any) -> type:
    cls = _shy.get(shown)
    if cls is None:
        names = {"__slots__": (), "__getitem__": Indexing(base.__getitem__)}
        cls = _shy[shown] = Shy(_named(shown), (base,), names)
        type.__setattr__(cls, "_shown", shown)
    return cls


def _symbolic(x: Handle) -> bool:
    return type(x._plain) is not np.ndarray and isinstance(x._plain, Symbolic)


def asked_by_user(depth: int = 2) -> bool:
    """Whether user code looks for an attribute now, `depth` frames above."""
    frame = sys._getframe(depth)
    return (
        frame.f_globals.get("__name__") not in UNINTERCEPTED_MODULES and asking(frame) is not None
    )


def _named(cls: type) -> str:
    return cls.__name__ if cls.__module__ == "builtins" else f"numpy.{cls.__name__}"


def of_some(message: str = "") -> Callable[[Method], Method]:
    """Return a decorator for a method that not every kind of value has."""

    def decorate(function: Method) -> Method:
        kind = _KINDS.get(function.__name__, OfArrays)
        text = message or f"'{{}}' object has no attribute '{function.__name__}'"
        return cast("Method", kind(function, text))

    return decorate


class OfArrays:
    """A method that arrays have and numbers lack, such as ``__len__``, or the other way round.

    Parameters
    ----------
    function : callable
        The method.
    message : str
        Of the error that built-ins raise for a number; ``{}`` stands for its class.
    """

    def __init__(self, function: Callable[..., Any], message: str) -> None:
        self.name = function.__name__
        self.arrays = hasattr(np.ndarray, self.name)
        self.function = function
        self.message = message
        self.__doc__ = function.__doc__

    def __get__(self, x: Any, cls: Any = None) -> Any:
        if x is None:
            return self.function
        there = self.arrays if is_array(x) else hasattr(plain_class(x), self.name)
        if there and (self.name not in _FOR_USERS or asking(sys._getframe(1)) is not None):
            return MethodType(self.function, x)
        raise MissingError(self.message.format(_named(plain_class(x))))


# Libraries ask for it to find out whether a number is Python's own.
_FOR_USERS = frozenset({"as_integer_ratio"})


class Lacking:
    """An attribute that plain values have, and ADArrays lack: who catches the error is told.

    ``__getattr__`` would do it for any name, and makes every other attribute slow.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, cls: Any = None) -> Any:
        error = AttributeError(
            f"{f'{cls.__name__!r} object' if x is not None else f'type object {cls.__name__!r}'} "
            f"has no attribute {self.name!r}",
            name=self.name,
            obj=x,
        )
        if x is not None and hasattr(plain_class(x), self.name):  # NumPy would have it
            if not followed(x) and isinstance(x._plain, (np.generic, float, complex, int)):
                return getattr(plain_class(x)(x._plain), self.name)
            refused(error, levels_of(x) or None)
        raise error


class Iterating(OfArrays):
    """``__iter__``: a number that is asked for it is not iterated by ``__getitem__`` either."""

    def __get__(self, x: Any, cls: Any = None) -> Any:
        if x is None or is_array(x):
            return super().__get__(x, cls)
        show_as_plain(x)
        frame = sys._getframe(1)
        _iterating.place = frame.f_code, frame.f_lasti
        raise MissingError(self.message.format(_named(plain_class(x))))


_iterating = threading.local()


class Writing(OfArrays):
    """``__setitem__``: there only if asked for, since results of adarray can be written into."""

    def __get__(self, x: Any, cls: Any = None) -> Any:
        if x is None or is_array(x):
            return super().__get__(x, cls)
        frame = sys._getframe(1)
        if frame.f_code.co_code[frame.f_lasti] in STORES or asking(frame) is None:
            return MethodType(self.function, x)
        return super().__get__(x, cls)


_KINDS = {"__iter__": Iterating, "__setitem__": Writing}


class Indexing:
    """``__getitem__`` of what was asked for ``__iter__``, and of Python numbers.

    ``iter(x)`` looks for ``__iter__``, and where there is none for ``__getitem__``; a scalar of
    NumPy has the second but is not iterable. Both look-ups come from one instruction.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, x: Any, cls: Any = None) -> Any:
        if x is None:
            return self.function
        if not is_array(x):
            frame = sys._getframe(1)
            if getattr(_iterating, "place", None) == (frame.f_code, frame.f_lasti):
                raise MissingError(f"'{_named(plain_class(x))}' object is not iterable")
            if x._x is not None and x._x.weak and asking(frame) is not None:
                raise MissingError(f"'{_named(plain_class(x))}' object is not subscriptable")
        return MethodType(self.function, x)


class StaticAttributes:
    """The attributes of a class, bases included, as `inspect.getattr_static` reads them.

    It goes on to real base classes where one is missing: so an error says that there is none.
    """

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def __contains__(self, name: str) -> bool:
        if not hasattr(self.cls, name):
            raise AttributeError(name)
        return True

    def __getitem__(self, name: str) -> Any:
        return getattr(self.cls, name)


class Shy(type):
    """Metaclass of classes that answer for the class of a plain value.

    The interpreter finds methods without it. Abstract base classes look into ``__mro__`` and
    keep what they find, so that it is the same for everybody. Other attributes are those of the
    plain class for user code only; NumPy asks for its protocols in the name of user code.
    """

    def __getattribute__(cls, name: str) -> Any:
        if name == "__mro__":
            return super().__getattribute__("_shown").__mro__
        if name == "__dict__" and sys._getframe(1).f_globals.get("__name__") == "inspect":
            return StaticAttributes(super().__getattribute__("_shown"))
        if name[:8] != "__array_" and asking(sys._getframe(1)) is not None:
            return getattr(super().__getattribute__("_shown"), name)
        return super().__getattribute__(name)


def shown_class(x: Any) -> type:
    """Return the class of an ADArray as libraries see it, with its attributes."""
    cls = type(x)
    return cls if type(cls) is type else Handle.array_class


def visible(name: str, of_arrays: Any) -> property:
    """Return an attribute of arrays as one that Python numbers lack, for user code.

    NumPy's functions and the rules of derivatives take numbers for arrays without axes.
    """

    def get(x: Any) -> Any:
        if x._x is not None and x._x.weak:
            cls = plain_class(x)
            if not hasattr(cls, name) and asked_by_user(2):
                raise MissingError(f"'{_named(cls)}' object has no attribute '{name}'")
        return of_arrays.__get__(x, type(x)) if hasattr(of_arrays, "__get__") else of_arrays

    def put(x: Any, value: Any) -> None:
        of_arrays.__set__(x, value)

    return property(get, put if hasattr(of_arrays, "__set__") else None)
