"""The functions of client code that a function may call, made ready to be transformed.

A function's own code, what its globals, closures and defaults lead to by the names that
are written in it, and the methods of classes and objects on the way. What is reached only
through an argument or a table of more than a few items is not looked at.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Iterator
from typing import Any

from adarray.loads import Names, generation, names_for, redirect_uses
from adarray.redirecting import Noted, all_names, original_of
from adarray.scope import client_of, package_of

_LIMIT = 4000  # objects
_FEW = 64  # items of a list or a table
_WRAPPED = (staticmethod, classmethod)

# What was looked at -> (generation, what it depends on): see `_Walk.found`.
_reached = Noted()
# The code of functions without closures and defaults -> what the last one of it became.
_twins = Noted()


def reach(f: Any) -> None:
    """Make what `f` may call ready to be transformed; cheap, if nothing has changed since.

    Parameters
    ----------
    f : callable
    """
    if type(f) is types.MethodType:  # another one each time it is asked for
        reach(f.__func__)
        f = f.__self__
    kind = type(f)
    known = _reached.get(f) if kind.__weakrefoffset__ else None
    if known is not None and known[0] is generation() and (not known[1] or _holds(known[1], f)):
        return
    simple = kind is types.FunctionType and not (f.__closure__ or f.__defaults__ or f.__dict__)
    if simple and _like_another(f):
        return
    code = f.__code__ if simple else None
    walk = _Walk()
    walk.run(f)
    if kind.__weakrefoffset__:
        _reached.note(f, (generation(), walk.found))
    if simple:
        _twins.note(code, (weakref.ref(f.__code__), id(f.__globals__), generation(), walk.found))


def _like_another(f: types.FunctionType) -> bool:
    """Make a function what one of the same code and globals was made, as in a loop."""
    twin = _twins.get(f.__code__)
    if twin is None or twin[1] != id(f.__globals__) or twin[2] is not generation():
        return False
    code = twin[0]()
    if code is None or not _holds(twin[3], f):
        return False
    if f.__code__ is not code:
        f.__code__ = code
    return True


def _holds(found: list[tuple[Any, list[tuple[str, Any]]]], root: Any) -> bool:
    """Whether names are bound to what they were bound to; see `_Walk.found`."""
    for owner, names in found:
        x = root if owner is None else owner()
        if x is None:
            return False
        space = x.__globals__ if type(x) is types.FunctionType else x.__dict__
        for name, value in names:
            if space.get(name) is not value():
                return False
    return True


def _nothing() -> None:
    return None


class _Walk:
    """One look at everything that a function reaches.

    Attributes
    ----------
    found : list
        A weak reference to a function or module, None for the first one; pairs of a name in
        its namespace and a weak reference to what that is bound to.
    """

    def __init__(self) -> None:
        self.found: list[tuple[Any, list[tuple[str, Any]]]] = []
        self._seen: dict[int, Any] = {}
        self._names: dict[int, Names] = {}  # id of globals -> names that are ours
        self._waiting: list[Any] = []
        self._modules: dict[frozenset[str], set[int]] = {}  # names -> modules asked for them

    def run(self, f: Any) -> None:
        """Look at `f`, then at what that leads to."""
        self._root = f
        self._waiting.append(f)
        while self._waiting and len(self._seen) < _LIMIT:
            x = self._waiting.pop()
            if id(x) in self._seen:
                continue
            self._seen[id(x)] = x
            known = _reached.get(x) if type(x) is types.FunctionType else None
            if known is not None and known[0] is generation() and _holds(known[1], x):
                me = weakref.ref(x)
                self.found += [(owner or me, names) for owner, names in known[1]]
            else:
                self._waiting.extend(self._next(x))

    def _next(self, x: Any) -> Iterator[Any]:
        kind = type(x)
        if kind is types.FunctionType:
            yield from self._of_function(x)
        elif kind is types.MethodType:
            yield x.__func__
            yield x.__self__
        elif kind is functools.partial:
            yield x.func
            yield from x.args
            yield from x.keywords.values()
        elif kind in _WRAPPED:
            yield x.__func__
        elif kind is property:
            yield from (x.fget, x.fset)
        elif kind is functools.cached_property:
            yield x.func
        elif kind is list or kind is tuple:
            yield from x if len(x) <= _FEW else ()
        elif kind is dict:
            yield from tuple(x.values()) if len(x) <= _FEW else ()
        elif issubclass(kind, type):
            if _is_clients(x):
                yield from (b for b in x.__mro__[1:] if _is_clients(b))
                yield from tuple(x.__dict__.values())
        elif _is_clients(kind):
            yield kind
            yield from _parts(x)
        elif (inner := _wrapped(x)) is not None:
            yield inner

    def _of_function(self, f: types.FunctionType) -> Iterator[Any]:
        space = f.__globals__
        names = all_names(original_of(f.__code__))
        for value in _captured(f):
            if issubclass(type(value), types.ModuleType):
                yield from self._of_module(value, names)
            else:
                yield value
        if (inner := _wrapped(f)) is not None:
            yield inner
        if not client_of(space):
            return
        own = self._names.get(id(space))
        if own is None:
            own = self._names[id(space)] = names_for(space)
        redirect_uses(f, own)
        found: list[tuple[str, Any]] = []
        for name in names:
            value = space.get(name)
            kind = type(value)
            if value is None:
                if name in space or name in own.calls:
                    found.append((name, _nothing))
            elif issubclass(kind, types.ModuleType):
                yield from self._of_module(value, names)
            elif callable(value) or kind in _TABLES or _is_clients(kind):
                if kind.__weakrefoffset__:
                    found.append((name, weakref.ref(value)))
                yield value
        if found:
            self.found.append((None if f is self._root else weakref.ref(f), found))

    def _of_module(self, module: Any, names: frozenset[str]) -> Iterator[Any]:
        inner = object.__getattribute__(module, "__dict__")
        if id(module) in self._modules.setdefault(names, set()):
            return
        self._modules[names].add(id(module))
        if not isinstance(inner, dict) or not client_of(inner):
            return
        found = []
        for name in names:
            value = inner.get(name)
            if issubclass(type(value), types.ModuleType):
                yield from self._of_module(value, names)
            elif callable(value) and type(value).__weakrefoffset__:
                found.append((name, weakref.ref(value)))
                yield value
        if found and type(module) is types.ModuleType:
            self.found.append((weakref.ref(module), found))


_TABLES = (list, tuple, dict)


def _is_clients(cls: Any) -> bool:
    """Whether a class is made by client code."""
    module = getattr(cls, "__dict__", {}).get("__module__")  # a TypeVar may stand among bases
    return isinstance(module, str) and bool(client_of({"__name__": module}))


def _parts(x: Any) -> Iterator[Any]:
    """Yield what an object holds that may be called."""
    if not getattr(type(x), "__dictoffset__", 0):
        return
    try:
        space = object.__getattribute__(x, "__dict__")
    except Exception:  # a TypeVar of Python 3.12 has room for one and none; a property may raise
        return
    if isinstance(space, dict) and len(space) <= _FEW:
        yield from (v for v in space.values() if callable(v) or _is_clients(type(v)))


def _captured(f: types.FunctionType) -> Iterator[Any]:
    """Yield the defaults of a function and what it closes over."""
    yield from f.__defaults__ or ()
    yield from (f.__kwdefaults__ or {}).values()
    for cell in f.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


_WRAPPERS = ("builtins", "functools", "numpy", "adarray")


def _wrapped(x: Any) -> Any:
    """Return the function that a decorator of a library has wrapped."""
    if callable(x) and package_of(type(x).__module__) in _WRAPPERS:
        for name in ("__wrapped__", "pyfunc", "_f"):
            inner = getattr(x, name, None)
            if inner is not None:
                return inner
    return None
