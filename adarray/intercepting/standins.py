"""Stand-ins for modules, functions and classes, bound to names of client modules.

Outside of `adarray.intercept` a stand-in passes everything through to what it
stands for, and cannot be told from it but by ``is`` and ``type()``. Inside, calls
go to an implementation over ADArrays. Which of both is decided at each use, from a
context variable: stand-ins may stay bound for good, and threads do not meet.
"""

from __future__ import annotations

import copyreg
import importlib
import pkgutil
import sys
import types
from collections.abc import Callable
from typing import Any

from adarray.base.scope import SCOPE, package_of
from adarray.core.loads import StandIn
from adarray.intercepting.bytecode import is_called, is_dotted
from adarray.intercepting.memory import Memory

Resolver = Callable[[Any, str], Any]


def active(package: str) -> bool:
    """Whether code of the top-level `package` is intercepted now."""
    scope = SCOPE.get()
    return scope is not None and scope.covers(package)


class FunctionStandIn(StandIn):
    """Stands for a function, ufunc or other callable.

    Parameters
    ----------
    original : callable
    package : str
        The top-level package whose modules have it.
    inside : callable
        Called in its place inside of `intercept`.
    path : str
        Where `original` is found, as ``module:name``; for pickling.
    """

    __slots__ = ("__weakref__", "_adarray_inside", "_adarray_of", "_adarray_package",
                 "_adarray_path")  # fmt: skip

    def __init__(self, original: Any, package: str, inside: Callable[..., Any], path: str) -> None:
        put = object.__setattr__
        put(self, "_adarray_of", original)
        put(self, "_adarray_package", package)
        put(self, "_adarray_inside", inside)
        put(self, "_adarray_path", path)

    def _adarray_original(self) -> Any:
        """Return the original."""
        return self._adarray_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the stand-in stands for, or what it is inside."""
        scope = SCOPE.get()
        if scope is not None and (scope.packages is None or scope.covers(self._adarray_package)):
            return self._adarray_inside(*args, **kwargs)
        return self._adarray_of(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._adarray_of, name)
        # The methods of a ufunc compute as it does itself.
        if active(self._adarray_package) and hasattr(self._adarray_inside, "attribute"):
            return self._adarray_inside.attribute(name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._adarray_of, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._adarray_of, name)

    def __dir__(self) -> Any:
        return dir(self._adarray_of)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FunctionStandIn):
            other = other._adarray_of
        return bool(self._adarray_of == other)

    def __hash__(self) -> int:
        return hash(self._adarray_of)

    def __repr__(self) -> str:
        return repr(self._adarray_of)

    def __str__(self) -> str:
        return str(self._adarray_of)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A reader of the pickle gets the original, without adarray.
        return pkgutil.resolve_name, (self._adarray_path,)

    def __copy__(self) -> FunctionStandIn:
        return self

    def __deepcopy__(self, memo: Any) -> FunctionStandIn:
        return self

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._adarray_of)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        doc: str | None = self._adarray_of.__doc__
        return doc

    @property
    def __module__(self) -> str | None:  # type: ignore[override]
        name: str | None = getattr(self._adarray_of, "__module__", None)
        return name


class MethodStandIn(FunctionStandIn):
    """Stands for a method with `functools.lru_cache`, in the class."""

    __slots__ = ()

    @classmethod
    def of(cls, cached: Any, package: str) -> MethodStandIn:
        """Return the stand-in of the attribute `cached` of a class."""
        path = f"{cached.__module__}:{cached.__qualname__}"
        return cls(cached, package, Memory(cached), path)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def remembered(cached: Any) -> FunctionStandIn:
    """Return a stand-in of a function with a cache, wherever that was found."""
    package = package_of(cached.__module__)
    path = f"{cached.__module__}:{cached.__qualname__}"
    return FunctionStandIn(cached, package, Memory(cached), path)


class ObjectStandIn(StandIn):
    """Stands for an object that is used by its attributes or by indexing.

    Such as ``np.mgrid`` or a distribution of scipy.stats: inside of `intercept`,
    everything goes to `inside` in its place.
    """

    __slots__ = ("__weakref__", "_adarray_inside", "_adarray_of", "_adarray_package",
                 "_adarray_path")  # fmt: skip

    def __init__(self, original: Any, package: str, inside: Any, path: str) -> None:
        put = object.__setattr__
        put(self, "_adarray_of", original)
        put(self, "_adarray_package", package)
        put(self, "_adarray_inside", inside)
        put(self, "_adarray_path", path)

    def _adarray_original(self) -> Any:
        """Return the original."""
        return self._adarray_of

    def _adarray_now(self) -> Any:
        return self._adarray_inside if active(self._adarray_package) else self._adarray_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the stand-in stands for, or what it is inside."""
        return self._adarray_now()(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._adarray_now()[key]

    def __len__(self) -> int:
        return len(self._adarray_of)

    def __getattr__(self, name: str) -> Any:
        if active(self._adarray_package) and hasattr(self._adarray_inside, name):
            return getattr(self._adarray_inside, name)
        return getattr(self._adarray_of, name)

    __setattr__ = FunctionStandIn.__setattr__
    __delattr__ = FunctionStandIn.__delattr__
    __dir__ = FunctionStandIn.__dir__
    __hash__ = FunctionStandIn.__hash__
    __repr__ = FunctionStandIn.__repr__
    __reduce_ex__ = FunctionStandIn.__reduce_ex__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ObjectStandIn):
            other = other._adarray_of
        return bool(self._adarray_of == other)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._adarray_of)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        doc: str | None = self._adarray_of.__doc__
        return doc


class Holder:
    """Has the attributes of the class that stands for another inside, then those of that one."""

    __slots__ = ("_classes",)

    def __init__(self, *classes: Any) -> None:
        self._classes = classes

    def __getattr__(self, name: str) -> Any:
        for cls in self._classes[:-1]:
            if hasattr(cls, name):
                return getattr(cls, name)
        return getattr(self._classes[-1], name)


class ModuleStandIn(types.ModuleType, StandIn):
    """Stands for a module. `module_stand_in` makes a subclass of it for each one."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return importlib.import_module, (self.__name__,)


_PASSED = frozenset({"__class__", "__reduce_ex__", "__reduce__"})


def module_stand_in(module: types.ModuleType, package: str, resolve: Resolver) -> ModuleStandIn:
    """Return the stand-in of `module` for one client package.

    Parameters
    ----------
    module : module
    package : str
    resolve : callable
        ``resolve(value, name)`` returns what the attribute `name`, whose value in
        the module is `value`, is inside of `intercept`.
    """
    known: dict[str, tuple[Any, Any]] = {}
    own = object.__getattribute__

    class Module(ModuleStandIn):
        def _adarray_original(self) -> Any:
            return module

        def __getattribute__(self, name: str) -> Any:
            if name in _PASSED:
                return own(self, name)
            value = getattr(module, name)
            scope = SCOPE.get()
            if scope is None or (scope.packages is not None and not scope.covers(package)):
                return value
            entry = known.get(name)
            if entry is None or entry[0] is not value:  # an attribute may have been set anew
                entry = known[name] = value, resolve(value, name)
            inside = entry[1]
            if type(inside) is Called:
                return inside.as_used(sys._getframe(1), value)
            return inside

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(module, name, value)

        def __delattr__(self, name: str) -> None:
            delattr(module, name)

        def __dir__(self) -> Any:
            return dir(module)

        def __repr__(self) -> str:
            return repr(module)

        def __eq__(self, other: object) -> bool:
            return other is self or other is module or getattr(other, "__dict__", 0) is vars(module)

        def __hash__(self) -> int:
            return hash(module)

    Module.__name__ = Module.__qualname__ = "module"
    Module.__module__ = "builtins"
    # cloudpickle and the like look a class up in this table; plain pickle refuses modules.
    copyreg.pickle(Module, _reduce_module)
    return Module(module.__name__, module.__doc__)


def _reduce_module(stand_in: types.ModuleType) -> Any:
    return importlib.import_module, (stand_in.__name__,)


class Called:
    """A class that is itself when read, and `function` when called.

    ``np.float64`` is a dtype and a class for isinstance in most places, which ask
    for identity; only the call ``np.float64(x)`` converts. An attribute, as in
    ``np.polynomial.Polynomial.fit``, is taken of `holder`.
    """

    __slots__ = ("function", "holder")

    def __init__(self, function: Callable[..., Any], holder: Any) -> None:
        self.function = function
        self.holder = holder

    def as_used(self, frame: types.FrameType, value: Any) -> Any:
        """Return the object for `frame`, which loads `value` as an attribute of a module."""
        if is_called(frame):
            return self.function
        return self.holder if is_dotted(frame) else value
