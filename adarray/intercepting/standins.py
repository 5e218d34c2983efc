"""Stand-ins for modules, functions and classes, bound to names of client modules.

Outside of `adarray.intercept` a stand-in passes everything through to what it
stands for, and cannot be told from it but by ``is`` and ``type()``. Inside, calls
go to an implementation over ADArrays. Which of both is decided at each use, from a
context variable: stand-ins may stay bound for good, and threads do not meet.
"""

from __future__ import annotations

import copyreg
import dis
import importlib
import pkgutil
import sys
import types
from collections.abc import Callable
from types import FrameType
from typing import Any

from adarray.intercepting.memory import Memory
from adarray.scope import SCOPE

Resolver = Callable[[Any, str], Any]


def active(package: str) -> bool:
    """Whether code of the top-level `package` is intercepted now."""
    scope = SCOPE.get()
    return scope is not None and scope.covers(package)


class FunctionStandIn:
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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call what the stand-in stands for, or what it is inside."""
        scope = SCOPE.get()
        if scope is None or not scope.covers(self._adarray_package):
            return self._adarray_of(*args, **kwargs)
        return self._adarray_inside(*args, **kwargs)

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


class ObjectStandIn:
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


class ModuleStandIn(types.ModuleType):
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

    class StandIn(ModuleStandIn):
        def __getattribute__(self, name: str) -> Any:
            scope = SCOPE.get()
            if name in _PASSED:
                return own(self, name)
            value = getattr(module, name)
            if scope is None or not scope.covers(package):
                return value
            found = known.get(name)
            if found is None or found[0] is not value:  # an attribute may have been set anew
                found = known[name] = value, resolve(value, name)
            if isinstance(found[1], Called):
                return found[1].function if is_called(sys._getframe(1)) else value
            return found[1]

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

    StandIn.__name__ = StandIn.__qualname__ = "module"
    StandIn.__module__ = "builtins"
    # cloudpickle and the like look a class up in this table; plain pickle refuses modules.
    copyreg.pickle(StandIn, _reduce_module)
    return StandIn(module.__name__, module.__doc__)


def _reduce_module(stand_in: types.ModuleType) -> Any:
    return importlib.import_module, (stand_in.__name__,)


class Called:
    """A class of NumPy's that is itself when looked at, and `function` when called.

    ``np.float64`` is a dtype and a class for isinstance in most places, which ask
    for identity; only the call ``np.float64(x)`` converts.
    """

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


_CACHE = dis.opmap["CACHE"]
_LOAD_ATTR = dis.opmap["LOAD_ATTR"]
_LOAD_METHOD = dis.opmap.get("LOAD_METHOD", -1)
_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_PUSH_NULL = dis.opmap["PUSH_NULL"]


def _before(code: bytes, at: int) -> int:
    """Return the offset of the instruction before the one at `at`, -1 if there is none."""
    at -= 2
    while at >= 0 and code[at] == _CACHE:
        at -= 2
    return at


def is_called(frame: FrameType) -> bool:
    """Whether `frame` loads an attribute in order to call it.

    CPython marks it: by LOAD_METHOD or the lowest bit of LOAD_ATTR for a method
    call, and by a NULL below or above the function for others.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if at < 0:
        return False
    if code[at] == _LOAD_METHOD:
        return True
    if code[at] != _LOAD_ATTR:
        return False
    if sys.version_info >= (3, 12) and code[at + 1] & 1:
        return True
    if sys.version_info >= (3, 13):
        after = at + 2
        while after < len(code) and code[after] == _CACHE:
            after += 2
        return after < len(code) and code[after] == _PUSH_NULL
    load = _before(code, at)
    if load >= 0 and code[load] == _LOAD_GLOBAL:
        return bool(code[load + 1] & 1)
    null = _before(code, load)
    return null >= 0 and code[null] == _PUSH_NULL


class NumberStandIn(type):
    """Metaclass of the stand-ins of ``float``, ``complex`` and NumPy's floating types.

    They are classes, since client code passes them to isinstance and as dtypes.
    """

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Convert to the number type, or make an instance of a derived class."""
        if "_adarray_inside" not in cls.__dict__:  # a class that the client derived from it
            return super().__call__(*args, **kwargs)
        if active(cls._adarray_package):  # type: ignore[attr-defined]
            return cls._adarray_inside(*args, **kwargs)  # type: ignore[attr-defined]
        return cls._adarray_of(*args, **kwargs)  # type: ignore[attr-defined]

    def __instancecheck__(cls, x: Any) -> bool:
        if "_adarray_inside" not in cls.__dict__:
            return super().__instancecheck__(x)
        return isinstance(x, cls._adarray_of)  # type: ignore[attr-defined]

    def __subclasscheck__(cls, other: type) -> bool:
        if "_adarray_inside" not in cls.__dict__:
            return super().__subclasscheck__(other)
        return issubclass(other, cls._adarray_of)  # type: ignore[attr-defined]

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.__dict__.get("_adarray_of", cls)

    def __hash__(cls) -> int:
        return hash(cls.__dict__["_adarray_of"]) if "_adarray_of" in cls.__dict__ else id(cls)

    def __repr__(cls) -> str:
        original = cls.__dict__.get("_adarray_of")
        return super().__repr__() if original is None else repr(original)


def _reduce_number(cls: type) -> Any:
    if "_adarray_of" in cls.__dict__:
        original = cls.__dict__["_adarray_of"]
        return pkgutil.resolve_name, (f"{original.__module__}:{original.__name__}",)
    return cls.__qualname__  # a derived class, by its own name


copyreg.pickle(NumberStandIn, _reduce_number)


def number_stand_in(original: type, package: str, inside: Callable[..., Any]) -> type:
    """Return the stand-in of a class of numbers for one client package."""
    import numpy as np

    return NumberStandIn(
        original.__name__,
        (original,),
        {
            "__slots__": (),
            "__module__": original.__module__,
            "__doc__": original.__doc__,
            "_adarray_of": original,
            "_adarray_package": package,
            "_adarray_inside": staticmethod(inside),
            "dtype": np.dtype(original),  # by which NumPy takes it for the dtype
        },
    )


_IDENTITY = frozenset(dis.opmap[n] for n in ("IS_OP",) if n in dis.opmap)


def is_call_only(codes: list[types.CodeType], name: str) -> bool:
    """Whether no code compares the global `name` by identity.

    Calls, isinstance checks, ``==`` and use as a dtype are the same with a stand-in.
    """
    for code in codes:
        if name not in code.co_names:
            continue
        index = code.co_names.index(name)
        text, argument = code.co_code, 0
        for at in range(0, len(text), 2):
            op, argument = text[at], argument | text[at + 1]
            if op == _LOAD_GLOBAL and argument >> 1 == index:
                after = at + 2
                while after < len(text) and text[after] == _CACHE:
                    after += 2
                if after < len(text) and text[after] in _IDENTITY:
                    return False
            argument = argument << 8 if op == dis.EXTENDED_ARG else 0
    return True
