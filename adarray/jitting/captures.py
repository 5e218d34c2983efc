"""What a function reads besides its arguments: globals, closures, defaults, attributes.

`captured` walks over everything that the function can reach under the names in its code.
Arrays in it become inputs of the compiled program, read again at every call; numbers,
text and the like are compared by value, functions and classes by identity. The walk only
looks; `adarray.jitting.checks` makes the test that every call does, `adarray.jitting.clones` a
copy of the function in which the inputs have taken the places of the arrays.
"""

from __future__ import annotations

import array
import collections
import contextvars
import dis
import enum
import functools
import operator
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.device import KINDS
from adarray.intercepting.memory import is_cached
from adarray.intercepting.standins import FunctionStandIn
from adarray.scope import KEPT, package_of
from adarray.trace import Handle

LIMIT = 4000

_SCALARS = (
    bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, slice, range,
    enum.Enum, type(Ellipsis),
)  # fmt: skip
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SEQUENCES = (list, tuple, collections.deque)
_CACHED = type(functools.cache(lambda: None))
_RANDOM = (np.random.Generator, np.random.RandomState)
# What closures of adarray's own functions hold of the user's.
_CALLED = frozenset({"function", "method", "partial", "instance", "jitted", "cached"})
# Names by which code reaches attributes that are not written in it.
INDIRECT = frozenset({
    "getattr", "hasattr", "vars", "__dict__", "asdict", "astuple", "attrgetter", "globals",
})  # fmt: skip
# Objects of libraries that are made of the user's.
_WRAPPERS = (
    collections.ChainMap, collections.UserDict, collections.UserList, threading.local,
    weakref.WeakKeyDictionary, weakref.WeakValueDictionary,
)  # fmt: skip
# Functions of attributes that are not named in the code.
_GETTERS = (operator.attrgetter, operator.methodcaller)


class Edge:
    """A way from one object to another.

    Attributes
    ----------
    how : str
        ``item``, ``global``, ``import``, ``cell``, ``default``, ``keyword``, ``attribute``,
        ``slot``, ``class``, ``module``, ``method``, ``part``, ``context``.
    key : any
        Name, index or cell.
    child : Found
    clones : bool
        Whether a clone of the parent can have a clone of the child there.
    """

    __slots__ = ("child", "clones", "how", "key")

    def __init__(self, how: str, key: Any, child: Found, clones: bool = True) -> None:
        self.how = how
        self.key = key
        self.child = child
        self.clones = clones


class Found:
    """An object that the function reaches.

    Attributes
    ----------
    value : any
    kind : str
        ``array``, ``adarray``, ``device`` (an array of a device's library), ``scalar``,
        ``function``, ``method``, ``partial``, ``sequence``, ``mapping``, ``proxy``,
        ``instance``, ``class``, ``module``, ``set``, ``random``, ``jitted``, ``cached``,
        ``dispatch``, ``variable``, ``content`` (compared by its contents) or ``opaque``.
    name : str
        How the user would write it.
    edges : list of Edge
    direct : bool
        Whether a chain of clones leads to it.
    hidden : bool
        Whether there is a way to it that no clone covers.
    """

    __slots__ = ("direct", "edges", "hidden", "kind", "name", "value")

    def __init__(self, value: Any, kind: str, name: str) -> None:
        self.value = value
        self.kind = kind
        self.name = name
        self.edges: list[Edge] = []
        self.direct = False
        self.hidden = False

    def __repr__(self) -> str:
        return f"<captured {self.kind} {self.name}>"


class TooMuchError(Exception):
    """A function reaches more objects than can be checked at every call."""


class Walk:
    """Everything that a function reaches.

    Parameters
    ----------
    f : callable
    statics : list
        Arguments that are no inputs: callbacks, objects with methods.

    Attributes
    ----------
    roots : list of Found
        Of `f`, then of `statics`.
    order : list of Found
        All, parents before their children.
    names : set of str
        What the code of all functions that were found calls things by.
    absent : dict
        By the identity of their dictionary: globals, and the names that functions look for
        there and do not find, such as those of builtins.
    """

    def __init__(self, f: Any, statics: list[Any]) -> None:
        self.names: set[str] = set()
        while True:  # functions that are found add names by which more is found
            count = len(self.names)
            self.order: list[Found] = []
            self._known: dict[int, Found] = {}
            self.absent: dict[int, tuple[dict[str, Any], set[str]]] = {}
            self.roots = [self._find(f, getattr(f, "__name__", type(f).__name__))]
            self.roots += [self._find(x, f"argument {i}") for i, x in enumerate(statics)]
            for found in self.order:
                self._expand(found)
                if len(self.order) > LIMIT:
                    raise TooMuchError(
                        f"it reaches more than {LIMIT} objects, as by {found.name}; pass what "
                        "it needs as arguments"
                    )
            if len(self.names) == count:
                break
        _mark(self.roots)

    def _find(self, value: Any, name: str) -> Found:
        kind = kind_of(value)
        if kind != "scalar":  # equal numbers may be one object, and change apart
            known = self._known.get(id(value))
            if known is not None:
                return known
        found = Found(value, kind, name)
        if kind != "scalar":
            self._known[id(value)] = found
        self.order.append(found)
        return found

    def _expand(self, found: Found) -> None:
        expand = getattr(self, f"_expand_{found.kind}", None)
        if expand is not None:
            found.edges = [
                Edge(how, key, self._find(child, name), clones)
                for how, key, child, name, clones in expand(found.value, found.name)
            ]

    # -- functions -----------------------------------------------------------------------------

    def _expand_function(self, f: Any, name: str) -> Iterator[Any]:
        ours = is_library(f.__globals__.get("__name__"))
        code = f.__code__
        for variable, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if not ours or kind_of(value) in _CALLED:
                yield "cell", cell, value, f"{variable} (a closure of {f.__name__})", True
        if ours:
            return
        names = names_in(code)
        self.names |= names
        for i, value in enumerate(f.__defaults__ or ()):
            yield "default", i, value, f"a default argument of {f.__name__}", True
        for key, value in (f.__kwdefaults__ or {}).items():
            yield "keyword", key, value, f"the default of {key} of {f.__name__}", True
        space = f.__globals__
        missing = {key for key in globals_in(code) if key not in space}
        if missing:
            self.absent.setdefault(id(space), (space, set()))[1].update(missing)
        for key in sorted(names):
            if key in space:
                yield "global", key, space[key], key, True
            elif kind_of(sys.modules.get(key)) == "module":  # imported inside of the function
                yield "import", key, sys.modules[key], key, False
        for key, value in f.__dict__.items():
            if key in self.names:
                yield "attribute", key, value, f"{name}.{key}", False

    def _expand_method(self, method: Any, name: str) -> Iterator[Any]:
        yield "part", "__func__", method.__func__, name, True
        yield "part", "__self__", method.__self__, f"the object of {name}", True

    def _expand_partial(self, partial: Any, name: str) -> Iterator[Any]:
        yield "part", "func", partial.func, name, True
        yield "part", "args", partial.args, f"the arguments of {name}", True
        yield "part", "keywords", partial.keywords, f"the arguments of {name}", True

    def _expand_jitted(self, jitted: Any, name: str) -> Iterator[Any]:
        yield "part", "_f", jitted._f, name, True

    def _expand_cached(self, cached: Any, name: str) -> Iterator[Any]:
        yield "part", "__wrapped__", cached.__wrapped__, name, False

    def _expand_opaque(self, x: Any, name: str) -> Iterator[Any]:
        if isinstance(x, _GETTERS):
            wanted = x.__reduce__()[1]
            self.names.update(part for path in wanted for part in str(path).split("."))
        elif type(x) is np.vectorize:
            yield "part", "pyfunc", x.pyfunc, name, False

    def _expand_dispatch(self, f: Any, name: str) -> Iterator[Any]:
        yield "part", "registry", f.registry, f"what {name} chooses from", False

    def _expand_variable(self, variable: Any, name: str) -> Iterator[Any]:
        value = variable.get(None)
        yield "context", None, variable.get() if value is None else value, f"{name}.get()", False

    # -- containers ------------------------------------------------------------------------------

    def _expand_sequence(self, items: Any, name: str) -> Iterator[Any]:
        for i, x in enumerate(items):
            yield "item", i, x, f"{name}[{i}]", True

    def _expand_mapping(self, items: Any, name: str) -> Iterator[Any]:
        for key, x in items.items():
            yield "item", key, x, f"{name}[{key!r}]", True

    def _expand_proxy(self, items: Any, name: str) -> Iterator[Any]:
        for key, x in items.items():
            yield "item", key, x, f"{name}[{key!r}]", False

    # -- objects ---------------------------------------------------------------------------------

    def _expand_module(self, module: Any, name: str) -> Iterator[Any]:
        space = vars(module)
        for key in sorted(self.names):
            if key in space:
                yield "module", key, space[key], f"{name}.{key}", True

    def _expand_class(self, cls: Any, _name: str) -> Iterator[Any]:
        for base in (*cls.__mro__, *type(cls).__mro__):
            if is_library(base.__module__):
                continue
            for key, value in tuple(base.__dict__.items()):
                if key in self.names or key == "__init__":
                    value = unwrapped(value)
                    yield "class", (base, key), value, f"{base.__name__}.{key}", False

    def _expand_instance(self, obj: Any, name: str) -> Iterator[Any]:
        cls = type(obj)
        clones = can_clone(obj)
        space = getattr(obj, "__dict__", {})
        everything = bool(self.names & INDIRECT) or isinstance(obj, _WRAPPERS)
        for key, value in tuple(space.items()):
            if everything or key in self.names:
                yield "attribute", key, value, f"{name}.{key}", clones
        for key in slots_of(cls):
            if (everything or key in self.names) and hasattr(obj, key):
                yield "slot", key, getattr(obj, key), f"{name}.{key}", False
        if isinstance(obj, (list, tuple)):
            yield from (
                (how, k, x, n, False) for how, k, x, n, _ in self._expand_sequence(obj, name)
            )
        elif isinstance(obj, dict):
            yield from (
                (how, k, x, n, False) for how, k, x, n, _ in self._expand_mapping(obj, name)
            )
        if cls is types.SimpleNamespace:
            return
        methods: set[str] = set()
        for base in cls.__mro__:
            for key, value in tuple(base.__dict__.items()):
                if is_library(base.__module__) or key in space:
                    continue
                if (
                    type(value) is types.FunctionType
                    and key in self.names
                    and not _dunder(key)
                    and key not in methods
                    and clones
                ):
                    methods.add(key)
                    yield "method", key, value, f"{name}.{key}", True
                elif key in self.names or _dunder(key):
                    # Methods that Python looks up itself, or that super() finds.
                    value = unwrapped(value)
                    if kind_of(value) != "opaque" or key in self.names:
                        yield "class", (base, key), value, f"{base.__name__}.{key}", False


def _dunder(key: str) -> bool:
    return key.startswith("__") and key.endswith("__") and key not in _NO_CODE


_NO_CODE = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__",
                      "__annotations__", "__dataclass_fields__", "__dataclass_params__",
                      "__match_args__", "__slots__", "__init__", "__new__", "__repr__",
                      "__firstlineno__", "__static_attributes__", "__orig_bases__",
                      "__parameters__", "__abstractmethods__", "__init_subclass__"})  # fmt: skip


def _mark(roots: list[Found]) -> None:
    """Find out what clones lead to, and what can be reached without passing through one."""
    waiting = list(roots)
    for found in roots:
        found.direct = True
    hidden: list[Found] = []
    while waiting:
        found = waiting.pop()
        for edge in found.edges:
            if not edge.clones:
                hidden.append(edge.child)
            elif not edge.child.direct:
                edge.child.direct = True
                waiting.append(edge.child)
    while hidden:
        found = hidden.pop()
        if not found.hidden:
            found.hidden = True
            hidden.extend(edge.child for edge in found.edges)


def kind_of(x: Any) -> str:
    """Return how an object is treated; see `Found`."""
    cls = type(x)
    if cls is np.ndarray:
        return "array" if x.dtype.kind in "biufc" and x.dtype.isnative else "content"
    if issubclass(cls, Handle):
        return "adarray"
    if cls in KINDS:
        return "device"
    if issubclass(cls, np.void):  # a look at an element of an array
        return "content"
    if isinstance(x, _SCALARS) and not issubclass(cls, type):
        return "scalar"
    if cls is types.FunctionType:
        name = x.__globals__.get("__name__")
        if not is_library(name) or _holds_functions(x):
            return "function"
        return "dispatch" if hasattr(x, "registry") and hasattr(x, "dispatch") else "opaque"
    if cls is types.MethodType:
        return "method"
    if cls is functools.partial:
        return "partial"
    if cls is _CACHED or (issubclass(cls, FunctionStandIn) and is_cached(x._adarray_of)):
        return "cached"
    if cls in _SEQUENCES or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return "sequence"
    if cls in _MAPPINGS:
        return "mapping"
    if cls is types.MappingProxyType:
        return "proxy"
    if cls is contextvars.ContextVar:
        return "variable" if _is_set(x) else "opaque"
    if cls is set or cls is frozenset:
        return "set"
    if issubclass(cls, np.ndarray) or cls in (bytearray, array.array, memoryview):
        return "content"
    if isinstance(x, _RANDOM):
        return "random"
    if issubclass(cls, type):
        return "opaque" if is_library(x.__module__) else "class"
    if cls is types.ModuleType:
        return "opaque" if is_library(x.__name__) else "module"
    if getattr(cls, "adarray_jitted", False) is True:
        return "jitted"
    if cls in _OBJECTS or not is_library(cls.__module__):
        return "instance"
    return "opaque"


_OBJECTS = frozenset({types.SimpleNamespace, *_WRAPPERS})


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
        elif kind_of(value) in _CALLED:
            return True
        else:
            module = "builtins" if isinstance(value, type) else type(value).__module__
        if callable(value) and (not is_library(module) or is_ours(module)):
            return True
    return is_ours(f.__globals__.get("__name__"))


def is_library(module: Any) -> bool:
    """Whether a module is not the user's: its state is not looked at."""
    return package_of(module) in KEPT


def is_ours(module: Any) -> bool:
    """Whether a module belongs to adarray: its functions hold the user's in their closures."""
    return package_of(module) == "adarray"


def unwrapped(x: Any) -> Any:
    """Return the function in a static or class method or a property."""
    if isinstance(x, (staticmethod, classmethod)):
        return x.__func__
    if isinstance(x, property):
        return x.fget
    if isinstance(x, (functools.cached_property, functools.partialmethod)):
        return x.func
    return x


def slots_of(cls: type) -> list[str]:
    """Return the names of the slots of a class of the user's."""
    found: list[str] = []
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ()) if not is_library(base.__module__) else ()
        found += [slots] if isinstance(slots, str) else list(slots)
    return [s for s in found if s not in ("__dict__", "__weakref__")]


def can_clone(obj: Any) -> bool:
    """Whether an object is made of its ``__dict__`` alone."""
    cls = type(obj)
    if cls is types.SimpleNamespace:
        return True
    return (
        all(getattr(cls, name) is getattr(object, name) for name in ("__new__", "__getattribute__"))
        and not hasattr(cls, "__del__")
        and not slots_of(cls)
        and isinstance(getattr(obj, "__dict__", None), dict)
        and all(not is_library(b.__module__) or b in _PLAIN_BASES for b in cls.__mro__)
    )


_PLAIN_BASES = frozenset({object, __import__("typing").Generic, __import__("abc").ABC})


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes in a code object and those nested in it."""
    names = set(code.co_names)
    indirect = not INDIRECT.isdisjoint(names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= names_in(constant)
        elif indirect and type(constant) is str and constant.isidentifier():
            names.add(constant)  # of an attribute, by getattr
    return frozenset(names)


@functools.lru_cache(maxsize=4096)
def globals_in(code: types.CodeType) -> frozenset[str]:
    """Return the names that a code object, and those nested in it, look for among globals."""
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
