"""The stand-ins of a client package: which objects have one, and what it does inside.

Objects are recognised by identity, whatever name they are bound to.
"""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.scope import package_of
from adarray.core.loads import STANDS_FOR, add_classes
from adarray.core.protocol import plain, traced
from adarray.intercepting.inside import (
    OBJECTS,
    Inside,
    adarray_vectorize,
    adopt,
    inside_class,
    inside_function,
    random_function,
    stacked,
)
from adarray.intercepting.mathematics import NUMBERS, math_table
from adarray.intercepting.memory import Memory, is_cached
from adarray.intercepting.polynomials import POLYNOMIALS, over
from adarray.intercepting.standins import (
    Called,
    FunctionStandIn,
    Holder,
    ModuleStandIn,
    ObjectStandIn,
    module_stand_in,
)

INTERCEPTED_ROOTS = ("numpy", "scipy", "math", "cmath")
# Public modules of NumPy whose functions are recognised in ``from numpy.linalg import solve``.
_NUMPY_MODULES = (
    "numpy", "numpy.linalg", "numpy.fft", "numpy.random", "numpy.testing",
    "numpy.lib.stride_tricks", "numpy.lib.scimath", "numpy.emath",
    "numpy.polynomial.polynomial", "numpy.polynomial.chebyshev", "numpy.polynomial.legendre",
    "numpy.polynomial.hermite", "numpy.polynomial.hermite_e", "numpy.polynomial.laguerre",
)  # fmt: skip


@functools.cache
def _numpy_table() -> dict[int, tuple[Any, Any, str]]:
    """Return ``id(original) -> (original, inside, path)`` for NumPy's functions and objects."""
    table: dict[int, tuple[Any, Any, str]] = {}
    for where in _NUMPY_MODULES:
        try:
            module = importlib.import_module(where)
        except ImportError:  # one that this NumPy does not have
            continue
        for name in dir(module):
            if name.startswith("_") or id(value := _attribute(module, name)) in table:
                continue
            if id(value) in OBJECTS:
                table[id(value)] = (value, OBJECTS[id(value)], f"{where}:{name}")
            elif callable(value) and not isinstance(value, type):
                random = where == "numpy.random"
                inside = random_function(name) if random else inside_function(value)
                if inside is not None:
                    table[id(value)] = (value, inside, f"{where}:{name}")
    return table


def _attribute(module: types.ModuleType, name: str) -> Any:
    """Return an attribute; None where NumPy announces that it has gone."""
    return vars(module).get(name)


def _drop_in(module: str) -> types.ModuleType | None:
    """Return ``adarray.scipy.x`` for ``scipy.x``, if there is such a module."""
    if module != "scipy" and not module.startswith("scipy."):
        return None
    try:
        return importlib.import_module("adarray." + module)
    except ModuleNotFoundError as error:
        if error.name and f"adarray.{module}.".startswith(error.name + "."):
            return None
        raise


@functools.cache
def _scipy_function(module: str, name: str) -> Callable[..., Any] | None:
    """Return the drop-in of a SciPy function; None if there is none."""
    drop_in = _drop_in(module)
    if drop_in is None or name not in getattr(drop_in, "__all__", vars(drop_in)):
        return None
    function = getattr(drop_in, name)
    return function if function is not getattr(sys.modules.get(module), name, None) else None


class Binder:
    """Makes the stand-ins of one client package, one for each object."""

    def __init__(self, package: str) -> None:
        self.package = package
        self.stand_ins: dict[int, tuple[Any, Any]] = {}  # id -> (original, stand-in)

    def of(self, value: Any, plain_use: bool = True) -> Any:
        """Return the stand-in for `value`; None if it stays as it is."""
        entry = self.stand_ins.get(id(value))
        if entry is None or entry[0] is not value:
            stand_in = self._make(value)
            if stand_in is None:
                return None
            entry = self.stand_ins[id(value)] = value, stand_in
        if plain_use and issubclass(type(value), type):
            return None  # a class bound to a name stays: see adarray.core.loads for its calls
        return entry[1]

    def _make(self, value: Any) -> Any:
        # By type(value): the attributes of somebody's proxy or lazy module are left alone.
        kind = type(value)
        if issubclass(kind, types.ModuleType):
            if issubclass(kind, ModuleStandIn) or not _is_intercepted_module(value):
                return None
            resolve = functools.partial(self._resolve, value)
            return module_stand_in(value, self.package, resolve)
        if issubclass(kind, type):
            called = class_inside(value, "call")
            if called is None:
                return None
            attribute = class_inside(value, "attribute")
            return Called(called, value if attribute is None else attribute)
        if is_cached(value):
            path = f"{value.__module__}:{value.__qualname__}"
            return FunctionStandIn(value, self.package, Memory(value), path)
        if type(value) is np.vectorize:
            return ObjectStandIn(value, self.package, _Vectorized(value), "")
        entry = _numpy_table().get(id(value)) or math_table().get(id(value))
        if entry is not None and entry[0] is value:
            return self._stand_in(*entry)
        return self._of_others(value, kind)

    def _stand_in(self, original: Any, inside: Any, path: str) -> Any:
        if not callable(original) or not hasattr(original, "__name__"):
            return ObjectStandIn(original, self.package, inside, path)
        if package_of(path) == "scipy" and not isinstance(inside, Inside):
            inside = Inside(inside)
        return FunctionStandIn(original, self.package, inside, path)

    def _of_others(self, value: Any, kind: type) -> Any:
        """Return the stand-in of a SciPy function or distribution that has a drop-in."""
        if kind is types.BuiltinFunctionType:
            pair = _of_bottleneck(value)
            return None if pair is None else self._stand_in(*pair)
        entry = _of_scipy(value, kind)
        return None if entry is None else self._stand_in(*entry)

    def _resolve(self, module: types.ModuleType, value: Any, name: str) -> Any:
        """Return what stands for ``module.name`` inside."""
        if package_of(module.__name__) == "scipy" and not isinstance(value, types.ModuleType):
            if type(value) is np.ufunc:
                return self.of(value, plain_use=False) or value
            drop_in = _scipy_function(module.__name__, name)
            if drop_in is None:
                return value
            if isinstance(value, type):
                return Called(drop_in, Holder(drop_in, value))
            return self._stand_in(value, drop_in, f"{module.__name__}:{name}")
        inside = self.of(value, plain_use=False)
        return value if inside is None else inside


@functools.cache
def _class_called(cls: Any) -> Any:
    """Return the function that calling a class runs inside; None if the class stays."""
    if cls is np.vectorize:
        return adarray_vectorize()
    if cls in NUMBERS:
        return NUMBERS[cls]
    inside = over(cls) if cls in POLYNOMIALS else inside_class(cls) or _drop_in_class(cls)
    if isinstance(inside, type):
        STANDS_FOR[inside] = cls
    return inside


def class_inside(cls: Any, how: str) -> Any:
    """Return what stands for a class inside where it is called, or an attribute is read.

    Parameters
    ----------
    cls : type
    how : str
        ``"call"`` or ``"attribute"``.

    Returns
    -------
    any
        None if it is itself.
    """
    if package_of(_module_of(cls)) not in _OF_CLASSES:
        return None
    called = _class_called(cls)
    if how == "call" or called is None:
        return called
    return Holder(called, cls) if cls in POLYNOMIALS or _is_of_scipy(cls) else None


# What a class says is its module, past a metaclass that answers otherwise.
_module_of = type.__dict__["__module__"].__get__
_OF_CLASSES = ("builtins", "numpy", "scipy")
add_classes(class_inside)


def _is_of_scipy(cls: type) -> bool:
    return package_of(cls.__module__) == "scipy"


class _Vectorized:
    """A vectorised function, as it is when it is called, for traced arrays too."""

    __slots__ = ("_of",)
    _NAMES = ("pyfunc", "otypes", "excluded", "cache", "signature")

    def __init__(self, of: Any) -> None:
        self._of = of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = {k: getattr(self._of, k) for k in self._NAMES}
        return adarray_vectorize()(**now)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)


def _is_intercepted_module(module: types.ModuleType) -> bool:
    name = object.__getattribute__(module, "__dict__").get("__name__", "")
    if package_of(name) not in INTERCEPTED_ROOTS:
        return False
    return sys.modules.get(name) is module or name in INTERCEPTED_ROOTS


# Functions of bottleneck, which are NumPy's in C: the same names, without dispatch.
_BOTTLENECK = ("nansum", "nanmean", "nanstd", "nanvar", "nanmin", "nanmax", "median", "nanmedian",
               "argmin", "argmax", "nanargmin", "nanargmax")  # fmt: skip


def _of_bottleneck(value: Any) -> tuple[Any, Any, str] | None:
    """Return the entry of a function of bottleneck; NumPy computes for traced arguments."""
    module = sys.modules.get("bottleneck")
    name = getattr(value, "__name__", None)
    if module is None or name not in _BOTTLENECK:
        return None
    original: Any = vars(module)[name]
    if original is not value:
        return None
    with_rules = getattr(np, name)

    def inside(*args: Any, **kwargs: Any) -> Any:
        if traced(args):
            return with_rules(*args, **kwargs)
        return adopt(original(*plain(args), **plain(kwargs)))

    return value, inside, f"bottleneck:{name}"


@functools.cache
def _scipy_table(where: str) -> dict[int, tuple[Any, Any, str]]:
    """Return ``id(original) -> (original, inside, path)`` of a public module of SciPy."""
    table: dict[int, tuple[Any, Any, str]] = {}
    module, drop_in = sys.modules.get(where), _drop_in(where)
    if module is None or drop_in is None:
        return table
    for name in getattr(drop_in, "__all__", ()):
        original, inside = vars(module).get(name), _scipy_function(where, name)
        if original is not None and inside is not None and not isinstance(original, type):
            table[id(original)] = (original, inside, f"{where}:{name}")
    return table


def _drop_in_class(original: type) -> Any:
    """Return the drop-in of a class of SciPy; None if there is none."""
    for home in _scipy_homes(original.__dict__.get("__module__")):
        drop_in = _scipy_function(home, original.__name__)
        if drop_in is not None and drop_in is not original:
            return drop_in
    return None


def _scipy_homes(name: Any) -> list[str]:
    """Return the public modules of SciPy that may have an object of the module `name`."""
    if not isinstance(name, str) or not name.startswith("scipy."):
        return []
    parts = name.split(".")
    public = next((i for i, p in enumerate(parts) if p.startswith("_")), len(parts))
    return [".".join(parts[:n]) for n in range(public, 1, -1)]


def _of_scipy(value: Any, kind: type) -> tuple[Any, Any, str] | None:
    """Return ``(original, inside, path)`` of a SciPy function or distribution."""
    if kind is np.ufunc:
        special: Any = sys.modules.get("scipy.special")
        name = value.__name__
        if id(getattr(special, name, None)) != id(value):
            return None
        return value, Inside(value, stacked), f"scipy.special:{name}"
    for home in _scipy_homes(value.__module__ if kind is types.FunctionType else kind.__module__):
        entry = _scipy_table(home).get(id(value))
        if entry is not None and entry[0] is value:
            return entry
    return None


_binders: dict[str, Binder] = {}


def stand_in_of(f: Any) -> Any:
    """Return the stand-in that client code gets for a function; itself, if it has none."""
    stand_in = binder_of("__main__").of(f)
    return f if stand_in is None else stand_in


def binder_of(package: str) -> Binder:
    """Return the one `Binder` of a client package."""
    return _binders.setdefault(package, Binder(package))
