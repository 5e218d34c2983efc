"""NumPy's submodules with ADArrays: found by name, wrapped when first used."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.numpy._lift import call_lifted, dressed, wrapped
from adarray.ops.borrow import borrowed
from adarray.protocol import plain, traced

# Submodules that work on text, records and other things that ADArrays do not hold.
PLAIN = frozenset(
    {
        "char", "core", "ctypeslib", "distutils", "dtypes", "exceptions", "f2py", "ma", "rec",
        "strings", "typing", "version", "matrixlib", "compat",
    }
)  # fmt: skip


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
        space[name] = made = wrap(value)
        return made

    def listed() -> list[str]:
        return sorted({*space, *dir(module)})

    return get, listed


class Mirror(types.ModuleType):
    """A module of NumPy whose functions give ADArrays, with its submodules.

    Parameters
    ----------
    name : str
        Its name here.
    module : module
        NumPy's.
    wrap : callable
        What to show in place of a function.
    """

    def __init__(
        self, name: str, module: types.ModuleType, wrap: Callable[[Any], Any] = wrapped
    ) -> None:
        super().__init__(name, module.__doc__)
        self.__dict__["_module"] = module
        self.__dict__["_wrap"] = wrap
        self.__all__ = list(getattr(module, "__all__", ()))
        sys.modules.setdefault(name, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(self._module, name)
        if isinstance(value, types.ModuleType):
            inside = value.__name__.startswith("numpy.")
            made = Mirror(f"{self.__name__}.{name}", value, self._wrap) if inside else value
        else:
            made = self._wrap(value)
        self.__dict__[name] = made
        return made

    def __dir__(self) -> list[str]:
        return dir(self._module)


def over_adarrays(value: Any) -> Any:
    """Show a function of NumPy's Python code: its own body runs over traced arrays."""
    if isinstance(value, type) or not callable(value) or isinstance(value, np.ufunc):
        return wrapped(value)

    def call(*args: Any, **kwargs: Any) -> Any:
        if traced(args) or traced(kwargs):
            return borrowed(value)(*args, **kwargs)
        return call_lifted(value, plain(args), plain(kwargs))

    return dressed(call, value)


def on_values(value: Any) -> Any:
    """Show a function that looks at values only, such as those of `numpy.testing`."""
    if isinstance(value, type) or not isinstance(value, types.FunctionType):
        return value

    def call(*args: Any, **kwargs: Any) -> Any:
        return value(*plain(args), **plain(kwargs))

    return dressed(call, value)
