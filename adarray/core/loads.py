"""What names of classes and builtins mean to client code while it is transformed.

``float(x)`` would drop the derivative of a traced `x`; ``type(x)`` would say ADArray and
``hasattr(x, "numpy")`` yes where the plain run sees an array or a number. Functions that
call such names are made to load them through a `NameLoad` (see `adarray.base.redirecting`), which
asks at each use whether this thread transforms the code now. Everybody else gets what the
name is bound to.
"""

from __future__ import annotations

import builtins
import functools
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np

from adarray.base.aval import PLAIN_ARRAYS
from adarray.base.hooks import Hook
from adarray.base.levels import LEVEL
from adarray.base.redirecting import RedirectedMethods, all_names, handles, original_of, redirect
from adarray.base.scope import SCOPE, client_of
from adarray.base.types import Function, Namespace
from adarray.core.caught import CAUGHT
from adarray.core.trace import Handle, plain_class

_ABSENT = object()


class StandIn:
    """What a global of a client module is bound to in place of a function or module."""

    __slots__ = ()

    def _adarray_original(self) -> object:
        """Return what it stands for."""
        raise NotImplementedError


# Classes that are made in the place of another, and what ``type(x)`` answers for their instances.
STANDS_FOR: dict[type, type] = {}


def class_of(x: Any) -> type:
    """Return the class that `x` would have in a plain run."""
    cls = type(x)
    if issubclass(cls, Handle):
        return plain_class(x)
    if issubclass(cls, StandIn):
        return type(original(x))
    return np.ndarray if cls in PLAIN_ARRAYS else STANDS_FOR.get(cls, cls)


def _type(*args: Any, **kwargs: Any) -> type:
    """``type(x)`` of what may be traced; ``type(name, bases, space)``."""
    if len(args) == 1 and not kwargs:
        return class_of(args[0])
    return _new_class(sys._getframe(1), args, kwargs)


def _new_class(frame: types.FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> type:
    if len(args) == 3 and isinstance(args[2], dict) and "__module__" not in args[2]:
        # Python takes the module from the frame that calls.
        module = frame.f_globals.get("__name__", "builtins")
        args = (*args[:2], {**args[2], "__module__": module})
    return type(*args, **kwargs)


class _Asking(type):
    """The class of `Type`, and of classes that are made of that."""

    def __call__(cls, *args: object, **kwargs: object) -> object:
        if cls is not Type:
            return super().__call__(*args, **kwargs)
        if len(args) == 1 and not kwargs:
            inside = LEVEL.get() or SCOPE.get() is not None
            return class_of(args[0]) if inside else type(args[0])
        return _new_class(sys._getframe(1), args, kwargs)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, type) if cls is Type else super().__instancecheck__(x)

    def __subclasscheck__(cls, x: type) -> bool:
        return issubclass(x, type) if cls is Type else super().__subclasscheck__(x)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is Type and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is Type else type.__hash__(cls)

    def __repr__(cls) -> str:
        return repr(type) if cls is Type else super().__repr__()


class Type(type, metaclass=_Asking):
    """What `type` is where transformed code passes it on: whoever calls it asks for that code."""


def _has(x: Handle, name: str) -> bool:
    """Whether the plain value of an ADArray has an attribute."""
    if name == "mT":  # a property that raises
        return hasattr(x, name)
    return any(name in cls.__dict__ for cls in plain_class(x).__mro__)


def _hasattr(*args: Any) -> bool:
    """``hasattr(x, name)`` of what may be traced."""
    if len(args) == 2 and issubclass(type(args[0]), Handle) and isinstance(args[1], str):
        return _has(*args)
    return hasattr(*args)


def _getattr(*args: Any) -> object:
    """``getattr(x, name, default)`` of what may be traced."""
    if len(args) > 1 and issubclass(type(args[0]), Handle) and isinstance(args[1], str):
        if args[1] == "__class__":
            return class_of(args[0])
        if len(args) == 3 and not _has(*args[:2]):
            return args[2]
    value = getattr(*args)
    return _PASSED.get(id(value), value)


# Builtins that ask what a value is, and what answers in their place in all transforms.
_QUESTIONS: dict[Function, Function] = {type: _type, hasattr: _hasattr, getattr: _getattr}
# The same where they are passed on, to be called elsewhere.
_PASSED: dict[int, Function] = {id(type): Type, id(hasattr): _hasattr, id(getattr): _getattr}


class _Builtins:
    """What the module `builtins` is, where an attribute is taken of it: ``builtins.type(x)``."""

    def __getattr__(self, name: str) -> object:
        value = getattr(builtins, name)
        return _PASSED.get(id(value), value)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(builtins, name, value)


_BUILTINS = _Builtins()


def _own_type(*args: object, **kwargs: object) -> type:
    """``type(x)`` for code that knows of ADArrays: one class, whatever the value."""
    if len(args) == 1 and issubclass(type(args[0]), Handle):
        return Handle.array_class
    return _type(*args, **kwargs)


# ``(value, how)``: returns what a class is while code is intercepted; None if it stays. Not every
# process needs interception.
_inside: Hook[Callable[[object, str], Function | None]] = Hook(
    "adarray.intercepting.binding", lambda _value, _how: None
)


def add_classes(inside: Callable[[object, str], Function | None]) -> None:
    """Answer for the classes that interception knows, too."""
    _inside.set(inside)
    NameLoad.known.clear()


def generation() -> object:
    """Return an object that is replaced whenever more classes are known."""
    return _inside.call


class NameLoad:
    """Pushes what a name is bound to, or what that is while the code is transformed.

    Parameters
    ----------
    name : str
    how : str
        ``"call"``; ``"attribute"`` if an attribute is taken of it; ``"read"`` of a stand-in;
        ``"passed"`` on, a builtin that asks; ``"own"``, a call of ``type`` by code that knows of
        ADArrays.
    package : str
        The package of the code.
    """

    __slots__ = ("__weakref__", "how", "name", "package")
    # By identity and use: the value, and what stands for it.
    known: dict[tuple[int, str], tuple[object, object]] = {}  # noqa: RUF012
    questions: dict[int, Function] = {id(b): function for b, function in _QUESTIONS.items()}  # noqa: RUF012

    def __init__(self, name: str, how: str, package: str) -> None:
        self.name = name
        self.how = how
        self.package = package

    def __invert__(self) -> object:
        frame = sys._getframe(1)
        name = self.name
        value = frame.f_globals.get(name, _ABSENT)
        if value is _ABSENT:
            value = frame.f_builtins.get(name, _ABSENT)
            if value is _ABSENT or type(frame.f_globals) is not dict:
                value = _look_up(frame, name)
        if self.how == "own":
            return _own_type if value is type else value
        scope = SCOPE.get()
        if self.how == "passed":
            applies = LEVEL.get() or (scope is not None and scope.covers(self.package))
            return _PASSED.get(id(value), value) if applies else value
        if self.how == "read":  # outside, nobody meets a stand-in
            inside = scope is not None and scope.covers(self.package)
            return value if inside or not issubclass(type(value), StandIn) else original(value)
        if scope is not None and scope.covers(self.package):
            entry = NameLoad.known.get((id(value), self.how))
            if entry is None or entry[0] is not value:
                entry = self._find(value)
            return entry[1]
        if value is builtins:
            return _BUILTINS if LEVEL.get() else value
        if LEVEL.get() and (answer := NameLoad.questions.get(id(value))) is not None:
            return answer
        return value

    def _find(self, value: object) -> tuple[object, object]:
        replacement = standing_for(value, self.how)
        if replacement is None:
            return value, value
        entry = NameLoad.known[id(value), self.how] = value, replacement
        return entry

    def __reduce__(self) -> tuple[Callable[..., NameLoad], tuple[str, ...]]:
        return load_of, (self.name, self.how, self.package)

    def __repr__(self) -> str:
        return f"<{self.how} of {self.name}>"


# Methods that NumPy computes in C, or that make an array into which traced values may be written,
# and `MethodLoad.special` ones.
_METHODS = frozenset({
    "astype", "choose", "copy", "dot", "fill", "flatten", "interp", "put", "repeat", "searchsorted",
    "take",
})  # fmt: skip


class MethodLoad:
    """Pushes the method of an object in ``x.dot(y)``, for plain arrays that client code captured.

    Parameters
    ----------
    name : str
    package : str
        The package of the code.
    """

    __slots__ = ("__weakref__", "name", "package")
    # Makes a plain array what intercepted code gets.
    enter: ClassVar[Hook[Callable[[np.ndarray], object]]] = Hook("adarray.arrays.plainarrays")
    # Methods of objects of other libraries that convert what they hold, by their names: what takes
    # their place, given the object, or None.
    special: ClassVar[dict[str, Callable[[object], object]]] = {}

    def __init__(self, name: str, package: str) -> None:
        self.name = name
        self.package = package

    def __matmul__(self, x: object) -> object:
        if type(x) is np.ndarray or self.name in MethodLoad.special:
            scope = SCOPE.get()
            if scope is not None and scope.covers(self.package):
                if type(x) is np.ndarray:
                    x = MethodLoad.enter.call(x)
                elif (method := MethodLoad.special[self.name](x)) is not None:
                    return method
        if issubclass(type(x), Handle):
            return getattr(x, self.name)
        try:
            return getattr(x, self.name)
        except AttributeError as error:  # of the user's function, which may catch it
            raise error.with_traceback(None)  # noqa: B904

    def __reduce__(self) -> tuple[Callable[..., MethodLoad], tuple[str, ...]]:
        return method_load_of, (self.name, self.package)

    def __repr__(self) -> str:
        return f"<method {self.name}>"


@functools.cache
def method_load_of(name: str, package: str) -> MethodLoad:
    """Return the one `MethodLoad` of its kind."""
    return MethodLoad(name, package)


def standing_for(value: object, how: str) -> Any:
    """Return the replacement of `value` in intercepted code that uses it so; None for none."""
    if value is builtins:
        return _BUILTINS if how == "attribute" else None
    if value is map or id(value) in NameLoad.questions:
        return NameLoad.questions.get(id(value), _map) if how == "call" else None
    if not issubclass(type(value), type):
        return None
    return _inside.call(value, how)


def _map(function: Function, *iterables: Iterable[object]) -> Iterator[object]:
    """``map(float, xs)``: the class is called for each item."""
    replacement = standing_for(function, "call")
    return map(function if replacement is None else replacement, *iterables)


def _look_up(frame: types.FrameType, name: str) -> object:
    """Return a global that is not in the dictionary: a clone's, or a builtin."""
    for space in (frame.f_globals, frame.f_builtins):
        try:
            return space[name]
        except KeyError:
            continue
    raise NameError(f"name {name!r} is not defined", name=name)


@functools.cache
def load_of(name: str, how: str, package: str) -> NameLoad:
    """Return the one `NameLoad` of its kind."""
    return NameLoad(name, how, package)


def original(value: Any) -> object:
    """Return what a stand-in stands for; its own attributes are those of that."""
    return type(value)._adarray_original(value)


class RedirectedNames(NamedTuple):
    """Names of globals that are not always what they are bound to.

    Parameters
    ----------
    calls : frozenset of str
        Of classes that are something else where they are called.
    reads : frozenset of str
        Bound to a stand-in.
    modules : frozenset of str
        Bound to a module.
    """

    calls: frozenset[str]
    reads: frozenset[str]
    modules: frozenset[str]


def names_for(space: Namespace) -> RedirectedNames:
    """Return the names in the globals `space` at whose uses code has to be told apart."""
    builtin: tuple[Function, ...] = (*_QUESTIONS,)
    if _inside.is_set:
        builtin = (*_QUESTIONS, map, float, complex)
    if type(space) is not dict:  # a clone's, which looks up in the original's: see adarray.jitting
        space = {**getattr(space, "real", {}), **space}
    calls = {cls.__name__ for cls in builtin if cls.__name__ not in space}
    reads, modules = set(), set()
    for name, value in tuple(space.items()):
        kind = type(value)
        if value is builtins or any(value is b for b in builtin):
            calls.add(name)
        elif issubclass(kind, type):
            if _inside.call(value, "call") is not None:
                calls.add(name)
        elif issubclass(kind, StandIn):
            reads.add(name)
        if issubclass(kind, types.ModuleType):
            modules.add(name)
    return RedirectedNames(frozenset(calls), frozenset(reads), frozenset(modules))


def redirect_uses(function: types.FunctionType, names: RedirectedNames) -> None:
    """Make a function of client code find what names stand for where it uses them.

    Parameters
    ----------
    function : function
    names : RedirectedNames
        See `names_for`.
    """
    space = function.__globals__
    package = client_of(space)
    code = original_of(function.__code__)
    used = all_names(code)
    calls, reads = names.calls & used, names.reads & used
    methods = RedirectedMethods(frozenset(), frozenset())
    if _inside.is_set and not _METHODS.isdisjoint(used):
        methods = RedirectedMethods(_METHODS & used, names.modules & used)
    if not package or not (calls or reads or methods.names or handles(code)):
        return
    bound = {n: space.get(n, getattr(builtins, n, None)) for n in calls}
    asking = frozenset(n for n, v in bound.items() if any(v is q for q in _QUESTIONS))
    own = asking if "ADArray" in used else frozenset()  # it knows what it is given

    def make(name: str, how: str) -> object:
        if how == "method":
            return method_load_of(name, package)
        if name not in calls and name not in reads:
            return None
        is_read = how in ("read", "compared")
        if how == "read" and name in asking and name not in own:
            return load_of(name, "passed", package)
        if is_read is not (name in reads) or (name in own and how != "call"):
            return None
        return load_of(name, "own" if name in own else "read" if is_read else how, package)

    redirect(function, calls | reads, make, (package, calls, reads), CAUGHT, methods)
