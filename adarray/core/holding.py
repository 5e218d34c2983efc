"""What functions, classes, objects and containers hold: captured values and callables."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.base.aval import Symbolic
from adarray.base.redirecting import all_names, original_of
from adarray.base.scope import client_of, package_of
from adarray.core.trace import Handle
from adarray.device import KINDS, DeviceArray

LIMIT = 20_000  # objects
_FEW = 64  # items of a list or a table that are looked at whatever they are
WRAPPED = (staticmethod, classmethod)
# What arguments are as a rule.
DATA = frozenset({
    np.ndarray, np.float64, np.float32, np.int64, float, int, bool, complex, str, bytes,
    types.NoneType, np.dtype, slice, range,
})  # fmt: skip


# What is computed with: code that makes it is not looked into.
VALUES = (Handle, DeviceArray, Symbolic)

CALLED = frozenset({types.FunctionType, types.MethodType, functools.partial})
TABLES = (
    list, tuple, dict, set, frozenset, collections.deque, collections.ChainMap,
    types.MappingProxyType,
)  # fmt: skip
RUNNING = {
    types.GeneratorType: "gi_code", types.CoroutineType: "cr_code",
    types.AsyncGeneratorType: "ag_code",
}  # fmt: skip
MAY_HOLD = frozenset({
    *TABLES, *RUNNING, collections.OrderedDict, collections.defaultdict,
})  # fmt: skip


def arrays_of(f: object) -> Iterator[tuple[str, object]]:
    """Yield the arrays that a function captured, with the names that lead to them."""
    return ((name, x) for name, x in _captures(f) if type(x) is not types.FunctionType)


def functions_of(f: object) -> Iterator[types.FunctionType]:
    """Yield the functions of client code that a function may call."""
    for _, x in _captures(f):
        if type(x) is types.FunctionType and client_of(x.__globals__):
            yield x


def _captures(f: object) -> Iterator[tuple[str, object]]:
    """Yield the arrays and functions that a function leads to, with names."""
    for name, x in _reached(f):
        kind = type(x)
        if isinstance(x, np.ndarray) or issubclass(kind, Handle) or kind is types.FunctionType:
            yield name, x


def visited(f: object) -> Iterator[object]:
    """Yield the objects that a function leads to and that can keep others; its cells, too.

    Of the globals of a function, the dictionary with those alone that its code names.
    """
    for _, x in _reached(f):
        kind = type(x)
        if kind is types.FunctionType:
            names = all_names(original_of(x.__code__))
            if client_of(x.__globals__) and names.intersection(x.__globals__):
                yield x.__globals__
            yield from (c for c in x.__closure__ or () if _is_assigned(c))
        if issubclass(kind, TABLES) or not (kind in DATA or issubclass(kind, VALUES)):
            yield x


def _is_assigned(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _reached(f: object) -> Iterator[tuple[str, Any]]:
    """Yield all that a function leads to, with names; arrays and values as often as they are."""
    waiting: list[tuple[str, Any]] = [("", f)]
    seen: dict[int, object] = {}
    while waiting and len(seen) < LIMIT:
        name, x = waiting.pop()
        kind = type(x)
        if isinstance(x, np.ndarray) or issubclass(kind, Handle):
            yield name, x
        if id(x) in seen or kind in DATA or kind in KINDS or issubclass(kind, VALUES):
            continue
        seen[id(x)] = x
        yield name, x
        if kind is types.FunctionType:
            names = all_names(original_of(x.__code__))
            if client_of(x.__globals__):
                waiting += [(n, x.__globals__[n]) for n in names if n in x.__globals__]
            cells = original_of(x.__code__).co_freevars
            waiting += [(cells[i] if i < len(cells) else name, v)
                        for i, v in enumerate(captured_last(x))]  # fmt: skip
            waiting.append((name, wrapped_in(x)))
        elif kind is types.MethodType:
            waiting += [(name, x.__func__), (name, x.__self__)]
        elif kind is functools.partial:
            waiting += [(name, v) for v in (x.func, *x.args, *x.keywords.values())]
        elif kind in WRAPPED:
            waiting.append((name, x.__func__))
        elif issubclass(kind, TABLES):
            waiting += [(name, v) for v in items_of(x)]
        elif issubclass(kind, types.ModuleType):
            if client_of(vars(x)):
                waiting += [(n, v) for n, v in vars(x).items() if isinstance(v, np.ndarray)]
        elif issubclass(kind, type):
            if is_clients(x):
                waiting += [(f"{name}.{n}", v) for n, v in tuple(x.__dict__.items())]
        elif is_clients(kind):
            waiting.append((name, kind))
            waiting += [(f"{name}.{n}", v) for n, v in _attributes(x)]
        else:
            waiting.append((name, wrapped_in(x)))


def _attributes(x: object) -> Iterator[tuple[str, object]]:
    """Yield names and values of what an object holds."""
    space = getattr(x, "__dict__", None)
    if isinstance(space, dict):
        yield from tuple(space.items())
    for cls in type(x).__mro__:
        for n, s in tuple(cls.__dict__.items()):
            if type(s) is types.MemberDescriptorType and is_set(s, x):
                yield n, s.__get__(x)


def captured_last(f: types.FunctionType) -> list[object]:
    """Return what a function closes over, in the order of its names, then its defaults."""
    cells = []
    for cell in f.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            cells.append(None)
    return [*cells, *(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]


def items_of(x: Any) -> Iterator[object]:
    """Yield the items of a container; of a long one, only callables and objects."""
    if isinstance(x, collections.ChainMap):
        x = x.maps
    if isinstance(x, dict) and "__builtins__" in x:
        return iter(())  # the globals of a module, which names lead to
    # Without asking lists: one that jit passes notes when its items are read.
    items = tuple(list.__iter__(x) if isinstance(x, list) else x)
    if isinstance(x, dict):
        items += tuple(dict.values(x))
    elif isinstance(x, types.MappingProxyType):
        items += tuple(x.values())
    if len(items) <= _FEW:
        return iter(items)
    kinds = {k for k in set(map(type, items)) if k in CALLED or _is_callable(k)}
    return (i for i in items if type(i) in kinds) if kinds else iter(())


def _is_callable(kind: type) -> bool:
    return kind not in DATA and (
        any("__call__" in c.__dict__ for c in kind.__mro__) or is_clients(kind)
    )


def is_clients(cls: object) -> bool:
    """Whether a class is made by client code."""
    module = getattr(cls, "__dict__", {}).get("__module__")  # a TypeVar may stand among bases
    return isinstance(module, str) and bool(client_of({"__name__": module}))


def parts_of(x: object) -> Iterator[object]:
    """Yield what an object holds that may be called."""
    for v in attributes_of(x):
        if callable(v) or type(v) in MAY_HOLD or is_clients(type(v)):
            yield v


def attributes_of(x: object) -> list[object]:
    """Return what an object holds as attributes and in slots."""
    try:
        space = object.__getattribute__(x, "__dict__")
    except Exception:  # a TypeVar of Python 3.12 has room for one and none; a property may raise
        space = None
    values = list(space.values()) if isinstance(space, dict) else []
    for cls in type(x).__mro__:
        if "__slots__" in cls.__dict__:
            slots = (s for s in cls.__dict__.values() if type(s) is types.MemberDescriptorType)
            values += [s.__get__(x) for s in slots if is_set(s, x)]
    return values


def is_set(slot: types.MemberDescriptorType, x: object) -> bool:
    """Whether a slot of an object has a value."""
    try:
        slot.__get__(x)
    except AttributeError:
        return False
    return True


def captured(f: types.FunctionType) -> Iterator[object]:
    """Yield the defaults of a function and what it closes over."""
    yield from f.__defaults__ or ()
    yield from (f.__kwdefaults__ or {}).values()
    for cell in f.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


_WRAPPERS = ("builtins", "functools", "numpy", "adarray")


def wrapped_in(x: object) -> object:
    """Return the function that a decorator of a library has wrapped."""
    if callable(x) and package_of(type(x).__module__) in _WRAPPERS:
        for name in ("__wrapped__", "pyfunc", "_f"):
            inner = getattr(x, name, None)
            if inner is not None:
                return inner
    return None
