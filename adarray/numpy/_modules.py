"""NumPy's submodules with ADArrays: found by name, wrapped when first used."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.core.protocol import plain, traced
from adarray.numpy._lift import call_lifted, dressed, wrapped
from adarray.ops.borrow import borrowed


def attribute(
    module: types.ModuleType, wrap: Callable[[Any], Any], space: dict[str, Any]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a module that stands for `module` of NumPy."""

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {space['__name__']!r} has no attribute {name!r}")
        try:
            value = getattr(module, name)
        except AttributeError:
            raise AttributeError(
                f"module {space['__name__']!r} has no attribute {name!r}"
            ) from None
        space[name] = member = wrap(value)
        return member

    def listed() -> list[str]:
        return sorted({*space, *dir(module)})

    return get, listed


class ModuleMirror(types.ModuleType):
    """A module of NumPy as it is shown here; NumPy's is imported when it is first looked into.

    Parameters
    ----------
    name : str
        Name below this package, such as ``"lib.stride_tricks"``.
    wrap : callable
        What to show in place of a public object.
    """

    def __init__(self, name: str, wrap: Callable[[Any], Any]) -> None:
        super().__init__(f"adarray.numpy.{name}")
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, None)
        self.__dict__["_below"] = name
        self.__dict__["_wrap"] = wrap
        sys.modules.setdefault(self.__name__, self)

    def _module(self) -> types.ModuleType:
        # NumPy's name may be another one's: emath is lib.scimath.
        module = getattr(np, self._below, None)
        if isinstance(module, types.ModuleType):
            return module
        return importlib.import_module(f"numpy.{self._below}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        inside = f"{self.__name__}.{name}"
        if inside in sys.modules:
            member: Any = sys.modules[inside]
        else:
            value = getattr(self._module(), name)
            member = value if name == "__all__" else self._wrap(value)
        self.__dict__[name] = member
        return member

    def __dir__(self) -> list[str]:
        return dir(self._module())


def over_adarrays(value: Any) -> Any:
    """Show a function or class of NumPy's Python code: its own body runs over traced arrays."""
    if isinstance(value, type) and hasattr(value, "deriv"):
        return class_over_adarrays(value)
    if isinstance(value, type) or not callable(value) or isinstance(value, np.ufunc):
        return wrapped(value)

    def call(*args: Any, **kwargs: Any) -> Any:
        if traced(args) or traced(kwargs):
            return borrowed(value)(*args, **kwargs)
        return call_lifted(value, plain(args), plain(kwargs))

    return dressed(call, value)


_METHODS = (types.FunctionType, staticmethod, classmethod, property)


def _method_over_adarrays(member: Any) -> Any:
    if isinstance(member, types.FunctionType):
        return borrowed(member)
    if isinstance(member, property):
        get, put = (f and borrowed(f) for f in (member.fget, member.fset))
        return property(get, put, member.fdel, member.__doc__)
    return type(member)(_method_over_adarrays(member.__func__))


@functools.cache
def class_over_adarrays(cls: type) -> type:
    """Return a subclass of a class of polynomials whose coefficients may be traced.

    The subclass has all methods again, borrowed: NumPy's code with other globals.
    """
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] != "numpy":
            continue
        for name, member in vars(base).items():
            if isinstance(member, _METHODS):
                members[name] = _method_over_adarrays(member)
            else:
                members.pop(name, None)  # stands in a subclass for a method
    doc = f"As `{cls.__module__}.{cls.__name__}`; the coefficients may be traced."
    members.update(__module__=f"adarray.{cls.__module__}", __doc__=doc)
    return type(cls)(cls.__name__, (cls,), members)


def on_values(value: Any) -> Any:
    """Show a function that reads values only, such as those of `numpy.testing`."""
    if isinstance(value, type) or not isinstance(value, types.FunctionType):
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        return value(*plain(args), **plain(kwargs))

    return dressed(call, value)


def unchanged(value: Any) -> Any:
    """Show an object of NumPy as it is: text, records, masks and types hold no ADArrays."""
    return value


# Modules of NumPy without one of their own here, and how their objects are shown.
MIRRORS: dict[str, Callable[[Any], Any]] = {
    "lib": wrapped,
    **{f"lib.{n}": wrapped for n in ("array_utils", "format", "mixins", "npyio", "stride_tricks")},
    "lib.scimath": over_adarrays,
    "emath": over_adarrays,
    "polynomial": over_adarrays,
    **{
        f"polynomial.{n}": over_adarrays
        for n in ("polynomial", "chebyshev", "hermite", "hermite_e", "laguerre", "legendre")
    },
    "testing": on_values,
    **dict.fromkeys(
        ("char", "ctypeslib", "dtypes", "exceptions", "ma", "rec", "strings"), unchanged
    ),
}
