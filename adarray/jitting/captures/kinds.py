"""Kinds of captured objects: how the walk over captured state treats each."""

from __future__ import annotations

import array
import collections
import contextvars
import dis
import enum
import functools
import itertools
import operator
import re
import sys
import threading
import types
import weakref
from typing import Any, NamedTuple

import numpy as np

from adarray.base.scope import UNINTERCEPTED, package_of
from adarray.base.transformed import Transformed
from adarray.core.trace import Handle
from adarray.custom import REGISTERED
from adarray.device import KINDS
from adarray.intercepting.memory import is_cached
from adarray.intercepting.standins import FunctionStandIn, ObjectStandIn
from adarray.jitting.captures.fingerprints import is_code, is_python, rule_of
from adarray.transforms.calls import Whole

_SCALARS = (
    bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, slice, range,
    enum.Enum, type(Ellipsis),
)  # fmt: skip
_CACHED = type(functools.cache(lambda: None))
_RANDOM = (np.random.Generator, np.random.RandomState)
# What closures of adarray's own functions hold of the user's.
CALLED = frozenset({
    "function", "method", "partial", "instance", "jitted", "cached", "transformed", "whole",
})  # fmt: skip
# Names by which code reaches attributes that are not written in it.
INDIRECT = frozenset({
    "getattr", "hasattr", "vars", "__dict__", "asdict", "astuple", "attrgetter", "globals",
    "getattr_static", "getmembers", "__getattribute__", "format", "format_map", "vformat", "dir",
})  # fmt: skip
# Names by which code assigns attributes that are not written in it.
ASSIGNING = frozenset({"setattr", "__setattr__"})
# Names by which code reads all items of an object as text.
TEXTS = frozenset({"repr", "str", "ascii"})
# Functions whose code is made as they run: what it reads is not known.
WRITTEN = frozenset({"eval", "exec", "compile", "__import__", "input", "open"})
# Objects of libraries that are made of the user's.
WRAPPERS = (
    collections.ChainMap, collections.UserDict, collections.UserList, threading.local,
    weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
)  # fmt: skip
# Functions of attributes that are not named in the code.
GETTERS = (operator.attrgetter, operator.methodcaller)


def kind_of(x: Any) -> str:
    """Return how an object is treated; see `adarray.jitting.captures.objects.CapturedObject`."""
    cls = type(x)
    if cls is np.ndarray:
        if x.dtype.hasobject:
            return "objects" if x.dtype.names is None else "fingerprint"
        return "array" if x.dtype.kind in "biufc" and x.dtype.isnative else "content"
    if issubclass(cls, Handle):
        return "adarray"
    if cls in KINDS:
        return "device"
    if issubclass(cls, np.void):  # a view of an element of an array
        return "fingerprint" if x.dtype.hasobject else "content"
    if isinstance(x, _SCALARS) and not issubclass(cls, type) and is_library(cls.__module__):
        return "scalar"
    if cls is types.FunctionType:
        name = x.__globals__.get("__name__")
        if not is_library(name) or _holds_functions(x):
            return "function"
        return "dispatch" if hasattr(x, "registry") and hasattr(x, "dispatch") else "opaque"
    return _KINDS.get(cls) or _kind_of_class(x, cls)


def _kind_of_class(x: Any, cls: type) -> str:
    if cls is types.BuiltinMethodType or cls is types.MethodWrapperType:
        owner = getattr(x, "__self__", None)
        steady = owner is None or isinstance(owner, (type, types.ModuleType))
        return "opaque" if steady else "bound"
    if issubclass(cls, FunctionStandIn) and is_cached(x._adarray_of):
        return "cached"
    if issubclass(cls, ObjectStandIn) and not isinstance(x._adarray_of, type):
        return "stand_in"
    if issubclass(cls, type):
        return "opaque" if is_library(x.__module__) else "class"
    if cls is types.ModuleType:
        return "opaque" if is_library(x.__name__) else "module"
    if cls is contextvars.ContextVar:
        return "variable" if _is_set(x) else "opaque"
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return "sequence"
    if issubclass(cls, weakref.ReferenceType):
        return "reference"
    if getattr(cls, "adarray_jitted", False) is True:
        return "jitted"
    if cls is Transformed:
        return "transformed"
    if issubclass(cls, Whole):
        return "whole"
    if isinstance(x, _RANDOM):
        return "random"
    known, rule = rule_of(cls)
    if known:
        return "opaque" if rule is None else "fingerprint"
    if id(x) in REGISTERED:  # one operation, such as a ufunc of Numba's
        return "opaque"
    if is_code(x) or package_of(cls.__module__) in _OURS or issubclass(cls, types.ModuleType):
        return "opaque"
    if cls in _OBJECTS or (not is_library(cls.__module__) and is_python(cls)):
        return "instance"
    return "fingerprint"


_ORDERED: dict[str, str] = collections.OrderedDict()
_KINDS: dict[type, str] = {
    types.MethodType: "method", functools.partial: "partial", _CACHED: "cached",
    list: "sequence", tuple: "sequence", collections.deque: "sequence", dict: "mapping",
    collections.OrderedDict: "mapping", collections.defaultdict: "mapping",
    collections.Counter: "mapping", types.MappingProxyType: "proxy", set: "set", frozenset: "set",
    bytearray: "content", array.array: "content", memoryview: "content",
    type({}.keys()): "view", type({}.values()): "view", type({}.items()): "view",
    type(_ORDERED.keys()): "view", type(_ORDERED.values()): "view", type(_ORDERED.items()): "view",
    weakref.ProxyType: "proxied",
    weakref.CallableProxyType: "proxied", np.random.Generator: "random",
    np.random.RandomState: "random",
}  # fmt: skip
_OURS = frozenset({"adarray", "adarray_backends", "adarray_native"})
_OBJECTS = frozenset({types.SimpleNamespace, *WRAPPERS})


def _is_set(variable: Any) -> bool:
    try:
        variable.get()
    except LookupError:
        return False
    return True


def _holds_functions(f: Any) -> bool:
    """Whether a function of a library is the wrapper of a user's, as decorators make them."""
    if hasattr(f, "registry"):
        return False  # that of singledispatch
    for cell in f.__closure__ or ():
        try:
            value = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        if type(value) is types.FunctionType:
            module = value.__globals__.get("__name__")
        elif kind_of(value) in CALLED:
            return True
        else:
            module = "builtins" if isinstance(value, type) else type(value).__module__
        if callable(value) and (not is_library(module) or is_ours(module)):
            return True
    return is_ours(f.__globals__.get("__name__"))


def is_library(module: Any) -> bool:
    """Whether a module is not the user's: its state is not walked."""
    return package_of(module) in UNINTERCEPTED


def is_ours(module: Any) -> bool:
    """Whether a module belongs to adarray: its functions hold the user's in their closures."""
    return package_of(module) == "adarray"


def unwrapped(x: Any) -> tuple[Any, ...]:
    """Return the functions in a static or class method or a property; else the object itself."""
    if isinstance(x, (staticmethod, classmethod)):
        return (x.__func__,)
    if isinstance(x, property):
        return tuple(part for part in (x.fget, x.fset, x.fdel) if part is not None)
    if isinstance(x, (functools.cached_property, functools.partialmethod)):
        return (x.func,)
    return (x,)


def slots_of(cls: type) -> list[str]:
    """Return the names of the slots of a class of the user's."""
    names: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ()) if not is_library(base.__module__) else ()
        names += [slots] if isinstance(slots, str) else list(slots)
    return [s for s in names if s not in ("__dict__", "__weakref__")]


def can_clone(obj: Any) -> bool:
    """Whether an object consists of its ``__dict__`` and slots alone."""
    cls = type(obj)
    if cls is types.SimpleNamespace:
        return True
    return (
        all(getattr(cls, name) is getattr(object, name) for name in ("__new__", "__getattribute__"))
        and not hasattr(cls, "__del__")
        and isinstance(getattr(obj, "__dict__", {}), dict)
        and has_plain_bases(cls)
        and is_python(cls)
    )


def has_plain_bases(cls: type) -> bool:
    """Whether all bases of a class are the user's, or have neither state nor methods of note."""
    return all(not is_library(b.__module__) or b in _PLAIN_BASES for b in cls.__mro__)


_PLAIN_BASES = frozenset({object, __import__("typing").Generic, __import__("abc").ABC,
                          __import__("typing").Protocol})  # fmt: skip


_WORD = re.compile(r"[^\W\d]\w*")


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in a code object and those nested in it."""
    names = set(code.co_names)
    indirect = not INDIRECT.isdisjoint(names)
    patterns = any(i.opname == "MATCH_CLASS" for i in dis.get_instructions(code))
    if patterns:
        names.add("__match_args__")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
        elif indirect and type(constant) is str:
            names.update(_WORD.findall(constant))  # of an attribute, by getattr or format
        elif (patterns or indirect) and type(constant) is tuple:
            names.update(x for x in constant if type(x) is str and x.isidentifier())
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the names that a code object, and those nested in it, look up among globals."""
    names = {
        i.argval for i in dis.get_instructions(code)
        if i.opname.startswith("LOAD_") and ("GLOBAL" in i.opname or "NAME" in i.opname)
    }  # fmt: skip
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= globals_in(constant)
        elif "globals" in code.co_names and type(constant) is str and constant.isidentifier():
            names.add(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def stored_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of the globals that a code object, and those nested in it, assign."""
    names = {
        i.argval for i in dis.get_instructions(code)
        if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
    }  # fmt: skip
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= stored_in(constant)
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def imports_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of the modules that a code object, and those nested in it, import."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME"}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= imports_in(constant)
    return frozenset(names)


class PassedOn(NamedTuple):
    """Names that code uses as objects; of others only attributes are read, by their names.

    Parameters
    ----------
    variables : frozenset of str
        Modules that are imported are meant by their own names, too.
    attributes : frozenset of str
    """

    variables: frozenset[str]
    attributes: frozenset[str]


@functools.lru_cache(maxsize=4096)
def passed_on(code: types.CodeType) -> PassedOn:
    """Return what a code object, and those nested in it, use as objects."""
    variables: set[str] = set()
    attributes: set[str] = set()
    imported: dict[str, str] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _NO_USE]
    for i, following in itertools.pairwise(instructions):
        if i.opname == "IMPORT_NAME" and following.opname.startswith("STORE_"):
            imported[following.argval] = i.argval
        loaded = _loaded(i)
        variables.update(loaded[:-1])
        if following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            variables.update(loaded[-1:])
            if i.opname == "LOAD_ATTR" and (_METHODS_APART or not (i.arg or 0) & 1):
                attributes.add(i.argval)
    variables |= {module for name, module in imported.items() if name in variables}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            variables |= passed_on(constant).variables
            attributes |= passed_on(constant).attributes
    return PassedOn(frozenset(variables), frozenset(attributes))


_METHODS_APART = sys.version_info < (3, 12)  # whether loads of them have a name of their own
_NO_USE = frozenset({"CACHE", "EXTENDED_ARG", "PUSH_NULL", "COPY_FREE_VARS", "RESUME", "NOP"})


def _loaded(instruction: dis.Instruction) -> list[str]:
    """Return the names of the variables that an instruction loads, the one on top last."""
    name, value = instruction.opname, instruction.argval
    if not name.startswith(("LOAD_FAST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "STORE_FAST_")):
        return []
    loaded = [value] if isinstance(value, str) else list(value)  # two in one, of Python 3.13
    return loaded[1:] if name.startswith("STORE_FAST_LOAD") else loaded


@functools.lru_cache(maxsize=4096)
def texts_in(code: types.CodeType) -> frozenset[str]:
    """Return the texts in a code object and in those nested in it."""
    texts = {c for c in code.co_consts if type(c) is str}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            texts |= texts_in(constant)
    return frozenset(texts)
