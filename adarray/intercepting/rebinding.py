"""Finding the names of client modules that are bound to NumPy, and rebinding them.

Only globals of pure Python modules of client packages are changed, with the
defaults and closures of their functions and the attributes of their classes: never
`sys.modules`, an attribute of NumPy, or anything that two packages share.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
import types
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from typing import Any

import numpy as np

from adarray.base.scope import CLIENTS, UNINTERCEPTED, client_of, package_of
from adarray.base.transformed import Transformed
from adarray.core.loads import names_for, redirect_uses
from adarray.core.reaching import Reached, reach
from adarray.core.trace import Handle
from adarray.intercepting.binding import Binder, binder_of
from adarray.intercepting.bytecode import assigned_globals
from adarray.intercepting.memory import is_cached
from adarray.intercepting.standins import (
    FunctionStandIn,
    MethodStandIn,
    ModuleStandIn,
)

_lock = threading.RLock()

# Name -> (module, its spec): modules that were scanned. A reload makes a new spec.
_seen: dict[str, tuple[types.ModuleType, Any]] = {}
# Package -> [globals, name, id of its value] of globals that functions assign.
_watched: dict[str, list[list[Any]]] = {}
# id of globals -> their names, and the ids of what those are bound to
_names: dict[int, tuple[tuple[str, ...], tuple[int, ...]]] = {}
# For each set of packages: the state of sys.modules when they were rebound.
_last: dict[frozenset[str] | None, tuple[int, str | None]] = {}


def _namespace(module: Any) -> dict[str, Any] | None:
    """Return the globals of a module, without waking up one that loads lazily."""
    kind = type(module)  # isinstance would wake up a module that loads lazily
    if not issubclass(kind, types.ModuleType) or issubclass(kind, ModuleStandIn):
        return None
    space = object.__getattribute__(module, "__dict__")
    return space if isinstance(space, dict) else None


def _is_compiled(space: dict[str, Any]) -> bool:
    file = space.get("__file__")
    return isinstance(file, str) and file.endswith(tuple(EXTENSION_SUFFIXES))


def _is_jitted(space: dict[str, Any]) -> bool:
    """Whether a module has functions that Numba compiles: they read its globals."""
    kinds = (type(v).__module__ for v in tuple(space.values()))
    return any(isinstance(k, str) and k.startswith("numba.") for k in kinds)


def _compiled_packages(modules: dict[str, Any]) -> set[str]:
    """Return the packages of which a compiled module is loaded."""
    packages = set()
    for name, module in modules.items():
        space = _namespace(module)
        if space is not None and _is_compiled(space):
            packages.add(package_of(name))
    return packages


def rebind(
    packages: frozenset[str] | None, *spaces: dict[str, Any], everywhere: bool = True
) -> None:
    """Rebind the names of client modules that are loaded and not scanned yet.

    Parameters
    ----------
    packages : frozenset of str, optional
        Top-level packages; None means all client packages.
    *spaces : dict
        Globals to scan in any case: names in them may have been bound since, and
        no module may have them (those of an interactive session or a doctest).
    everywhere : bool
        Whether functions with the globals `spaces` are searched for wherever they are stored,
        which takes 0.1 s; False if what is needed of them will be reached by names.
    """
    now = (len(sys.modules), next(reversed(sys.modules), None))
    new: list[dict[str, Any]] = []
    with _lock:
        if now != _last.get(packages):
            modules = dict(sys.modules)
            excluded = (
                UNINTERCEPTED | _compiled_packages(modules) if packages is None else UNINTERCEPTED
            )
            for name, module in modules.items():
                package = package_of(name)
                if package in excluded or not (packages is None or package in packages):
                    continue
                if name not in _seen or not _is_seen(name, module):
                    new += _rebind_module(name, module)
            # Drop-ins for SciPy may have been imported meanwhile.
            _last[packages] = (len(sys.modules), next(reversed(sys.modules), None))
        elif now[1] in _seen and not _is_seen(now[1], sys.modules[now[1]]):
            # A reload puts its module at the end, where it may have been before.
            new += _rebind_module(now[1], sys.modules[now[1]])
        _rebind_watched(packages)
        for space in spaces:
            package = client_of(space)
            if package and (packages is None or package in packages):
                CLIENTS.add(package)
                # Whose names changed since; ids only, so that no value is kept alive.
                known = _names.get(id(space))
                if known is None or known[1] != tuple(map(id, space.values())):
                    if known is None or not _only_data(space, *known):
                        rebind_names(space, package)
                    new += [space] if known is None and everywhere else []
                    _names[id(space)] = tuple(space), tuple(map(id, space.values()))
        if new:
            _redirect_all(new)


# What nothing is bound to a stand-in for, and no function is found in.
_DATA = (Handle, np.ndarray, np.generic, str, bytes, int, float, complex, list, tuple, dict, set,
         range, slice, type(None))  # fmt: skip


def _only_data(space: dict[str, Any], names: tuple[str, ...], ids: tuple[int, ...]) -> bool:
    """Whether all that globals were bound to since is data, as by the steps of a script's loop."""
    before = dict(zip(names, ids, strict=True))
    return before.keys() <= space.keys() and all(
        issubclass(type(v), _DATA) and (k in before or not hasattr(builtins, k))
        for k, v in tuple(space.items())
        if before.get(k) != id(v)
    )


def _rebind_watched(packages: frozenset[str] | None) -> None:
    """Rebind globals that functions assign, as in ``global quad; from scipy... import quad``."""
    for package in tuple(_watched) if packages is None else packages:
        for entry in _watched.get(package, ()):
            space, name, known = entry
            value = space.get(name)
            if id(value) != known:
                stand_in = binder_of(package).of(value)
                if stand_in is not None:
                    space[name] = stand_in
                entry[2] = id(space.get(name))


def rebind_reached(f: Any, packages: frozenset[str] | None, reached: Reached | None = None) -> None:
    """Rebind the names of client modules, and all that `f` uses; cheap, if nothing has changed.

    Parameters
    ----------
    f : callable
    packages : frozenset of str, optional
        As for `rebind`.
    reached : Reached, optional
        What `reach` has just returned for `f`.
    """
    now = (packages, len(sys.modules), next(reversed(sys.modules), None))
    if (reached or reach(f)).rebound == now:
        if _watched:
            _rebind_watched(packages)
        return
    space = globals_of(f)
    rebind(packages, space, everywhere=False)
    # No global may show what a function captured.
    package = client_of(space)
    if package:
        for function in functions_of(f, space.get("__name__")):
            _rebind_captured(function, binder_of(package))
    reach(f).rebound = (packages, len(sys.modules), next(reversed(sys.modules), None))


def rebind_class(cls: type) -> None:
    """Rebind the attributes of a class that is no global, such as methods with a cache."""
    package = client_of({"__name__": cls.__module__})
    if package:
        _rebind_attributes(cls, binder_of(package))


def globals_of(f: Any) -> dict[str, Any]:
    """Return the globals of a function, method, partial or callable object; {} if it has none."""
    for _ in range(32):
        if isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, types.MethodType):
            f = f.__func__
        elif hasattr(f, "__wrapped__"):
            f = f.__wrapped__
        else:
            break
    if not isinstance(f, types.FunctionType):
        f = f if isinstance(f, type) else type(f)
        f = f.__dict__.get("__call__", f.__init__)
    return getattr(f, "__globals__", {})


def _is_seen(name: str, module: Any) -> bool:
    known, spec = _seen[name]
    space = _namespace(module)
    return known is module and space is not None and space.get("__spec__") is spec


def _references(spaces: list[dict[str, Any]], k: int) -> int:
    return sys.getrefcount(spaces[k])


_EMPTY = types.ModuleType("empty")
_FEWEST = _references([vars(_EMPTY)], 0)  # of the globals of a module without functions


def _names_lead_to_all(spaces: list[dict[str, Any]], k: int) -> bool:
    """Whether `rebind_names` has found all functions with the globals number `k`, of a module.

    Each function holds a reference to its globals, so their count tells whether there are others.
    """
    references = _references(spaces, k) - _FEWEST
    space = spaces[k]
    name = space.get("__name__")
    if not isinstance(name, str) or _namespace(sys.modules.get(name)) is not space:
        return False
    named = {
        id(f) for v in tuple(space.values()) for f in functions_of(v, name)
        if f.__globals__ is space
    }  # fmt: skip
    watched = sum(s is space for s, _, _ in _watched.get(package_of(name), ()))
    return references <= len(named) + watched


def _functions(spaces: list[dict[str, Any]]) -> list[types.FunctionType]:
    """Return functions, wherever they are stored: all of those with these globals, and others.

    The collector compares what each object refers to with each of its arguments, and functions
    refer to their builtins, which are mostly one dict: to look for some globals takes as long for
    each of them. Functions are not looked for among `gc.get_objects`: a tuple that another thread
    is filling must have no second reference when it gets its length, or Python raises a
    SystemError there.
    """
    given = (space.get("__builtins__") for space in spaces)
    dicts = (vars(b) if isinstance(b, types.ModuleType) else b for b in given)
    known = {id(b): b for b in (vars(builtins), *dicts) if isinstance(b, dict)}
    return [x for x in gc.get_referrers(*known.values()) if type(x) is types.FunctionType]


def _redirect_all(spaces: list[dict[str, Any]]) -> None:
    """Redirect the calls of all functions with these globals, wherever they are stored."""
    # A search of the heap of a large process takes a second.
    left = [spaces[k] for k in range(len(spaces)) if not _names_lead_to_all(spaces, k)]
    names = {id(space): names_for(space) for space in left}
    for function in _functions(left) if left else ():
        wanted = names.get(id(function.__globals__))
        if wanted is not None:
            redirect_uses(function, wanted)


def _rebind_module(name: str, module: Any) -> list[dict[str, Any]]:
    """Rebind the names of a module; return its globals, if there is anything to it."""
    space = _namespace(module)
    if space is None or _is_compiled(space) or _is_jitted(space):
        return []
    package = package_of(name)
    _seen[name] = (module, space.get("__spec__"))
    CLIENTS.add(package)
    rebind_names(space, package)
    return [space]


def rebind_names(space: dict[str, Any], package: str) -> bool:
    """Rebind the names in one module's globals; return whether there were any."""
    binder = binder_of(package)
    rebound = False
    for key, value in tuple(space.items()):
        if key.startswith("__") and key.endswith("__"):
            continue
        stand_in = binder.of(value)
        if stand_in is not None:
            space[key], rebound = stand_in, True
    name = space.get("__name__")
    codes: list[types.CodeType] = []
    names = names_for(space)
    for value in tuple(space.values()):
        for function in functions_of(value, name):
            rebound |= _rebind_captured(function, binder)
            redirect_uses(function, names)
            codes += _codes(function.__code__)
        if issubclass(type(value), type) and value.__dict__.get("__module__") == name:
            rebound |= _rebind_attributes(value, binder)
    known = {name for s, name, _ in _watched.get(package, ()) if s is space}
    for assigned in {n for code in codes for n in assigned_globals(code)} - known:
        entry = [space, assigned, id(space.get(assigned))]
        _watched.setdefault(package, []).append(entry)
    return rebound


def functions_of(value: Any, module: Any, depth: int = 0) -> Iterator[types.FunctionType]:
    """Yield the Python functions of `module` in a global: itself, methods, what is wrapped."""
    kind = type(value)
    if depth > 8:
        return
    if kind is types.FunctionType:
        if value.__globals__.get("__name__") == module:  # __module__ may be another's by wraps
            yield value
        if "__wrapped__" in value.__dict__:
            yield from functions_of(value.__wrapped__, module, depth + 1)
    elif kind is Transformed:
        yield from functions_of(value._transform.f, module, depth + 1)
    elif kind is staticmethod or kind is classmethod:
        yield from functions_of(value.__func__, module, depth + 1)
    elif kind is property:
        for part in (value.fget, value.fset):
            yield from functions_of(part, module, depth + 1)
    elif is_cached(value) or kind is functools.cached_property:
        inner = value.__wrapped__ if is_cached(value) else value.func
        yield from functions_of(inner, module, depth + 1)
    elif kind is FunctionStandIn and is_cached(value._adarray_of):
        yield from functions_of(value._adarray_of, module, depth)
    elif issubclass(kind, type) and value.__dict__.get("__module__") == module:
        for part in tuple(value.__dict__.values()):
            yield from functions_of(part, module, depth + 1)


def _rebind_captured(function: types.FunctionType, binder: Binder) -> bool:
    """Rebind the default arguments and closed-over names of a function of client code."""
    if not client_of(function.__globals__):
        return False
    rebound = False
    if function.__defaults__:
        stand_ins = [binder.of(v) for v in function.__defaults__]
        if any(g is not None for g in stand_ins):
            pairs = zip(function.__defaults__, stand_ins, strict=True)
            function.__defaults__ = tuple(v if g is None else g for v, g in pairs)
            rebound = True
    keywords: dict[str, Any] = function.__kwdefaults__ or {}
    for key, value in tuple(keywords.items()):
        stand_in = binder.of(value)
        if stand_in is not None:
            keywords[key], rebound = stand_in, True
    for cell in function.__closure__ or ():
        try:
            stand_in = binder.of(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
        if stand_in is not None:
            cell.cell_contents, rebound = stand_in, True
    return rebound


def _rebind_attributes(cls: type, binder: Binder) -> bool:
    """Rebind modules and static functions among the attributes of a class."""
    rebound = False
    for key, value in tuple(cls.__dict__.items()):
        replacement = None
        if issubclass(type(value), types.ModuleType):
            replacement = binder.of(value)
        elif type(value) is staticmethod:
            stand_in = binder.of(value.__func__)
            replacement = None if stand_in is None else staticmethod(stand_in)
        elif is_cached(value):
            replacement = MethodStandIn.of(value, binder.package)
        if replacement is not None:
            try:
                setattr(cls, key, replacement)
            except (AttributeError, TypeError):  # a class that does not allow it
                continue
            rebound = True
    return rebound


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object and those nested in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
