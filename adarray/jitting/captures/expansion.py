"""Where the walk over captured state goes on from an object: a rule for each kind."""

from __future__ import annotations

import builtins
import enum
import sys
import types
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from adarray.base.redirecting import original_of
from adarray.jitting.captures.fingerprints import slots_in
from adarray.jitting.captures.kinds import (
    ASSIGNING,
    CALLED,
    GETTERS,
    INDIRECT,
    TEXTS,
    WRAPPERS,
    WRITTEN,
    can_clone,
    globals_in,
    has_plain_bases,
    imports_in,
    is_library,
    kind_of,
    names_in,
    passed_on,
    stored_in,
    texts_in,
    unwrapped,
)
from adarray.jitting.captures.objects import LIMIT, CapturedObject, TooMuchError
from adarray.jitting.captures.surroundings import asks_for_today, is_outside

if TYPE_CHECKING:
    from adarray.jitting.captures.walk import CaptureWalk

# Containers of libraries with more items than this are not walked.
_TABLE = 64
_TEXT = (str, bytes)
# Names by which code gets attributes that nothing in it names.
BY_ANY_NAME = INDIRECT - {"format", "format_map", "vformat", "hasattr", "asdict", "astuple"}
# Names by which code goes over all entries of a dictionary.
_ALL = frozenset({"items", "values", "keys"})
_STREAMS = frozenset({"modules", "stdin", "stdout", "stderr", "__stdin__", "__stdout__",
                      "__stderr__", "path_importer_cache"})  # fmt: skip


class Expansion:
    """The rules of one walk.

    Parameters
    ----------
    walk : CaptureWalk
        Gets the names in the code that is found, and what it cannot follow.
    """

    def __init__(self, walk: CaptureWalk) -> None:
        self._walk = walk

    def children(self, obj: CapturedObject) -> Iterator[Any]:
        """Yield ``(how, key, child, name, clones)`` of what an object leads to: see `Edge`."""
        expand = getattr(self, f"_expand_{obj.kind}", None)
        if expand is not None:
            yield from expand(obj.value, obj.name)

    def _passed_on(self, code: types.CodeType, name: str, x: Any) -> None:
        """Refuse code by which anything may be read of a module of clocks, files or the like."""
        asks = isinstance(x, types.ModuleType) or not BY_ANY_NAME.isdisjoint(names_in(code))
        if asks and name in passed_on(code).variables and is_outside(x):
            self._walk.refuse_all_of(x, name)

    # -- functions -----------------------------------------------------------------------------

    def _expand_function(self, f: Any, name: str) -> Iterator[Any]:
        ours = is_library(f.__globals__.get("__name__"))
        code = original_of(f.__code__)
        for variable, cell in zip(code.co_freevars, f.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            if not ours:
                self._passed_on(code, variable, value)
            if not ours or kind_of(value) in CALLED:
                yield "cell", cell, value, f"{variable} (a closure of {f.__name__})", True
        if ours:
            return
        self._walk.names |= names_in(code)
        if not BY_ANY_NAME.isdisjoint(names_in(code)):
            self._walk.passed |= passed_on(code).attributes
        if asks_for_today(texts_in(code), names_in(code)):
            self._walk.refuse(
                "it reads the clock, by the text of a date, which may be another later"
            )
        for i, value in enumerate(f.__defaults__ or ()):
            yield "default", i, value, f"a default argument of {f.__name__}", True
        for key, value in (f.__kwdefaults__ or {}).items():
            yield "keyword", key, value, f"the default of {key} of {f.__name__}", True
        yield from self._globals(f)
        for key, value in f.__dict__.items():
            if key in self._walk.names:
                yield "attribute", key, value, f"{name}.{key}", False

    def _globals(self, f: Any) -> Iterator[Any]:
        """Yield the globals, builtins and modules that a function uses."""
        space, code = f.__globals__, original_of(f.__code__)
        wanted = globals_in(code) | stored_in(code)  # what is assigned is there before, or is not
        missing = {key for key in wanted if key not in space}
        if missing:
            self._walk.absent.setdefault(id(space), (space, set()))[1].update(missing)
        if "globals" in wanted:
            wanted = wanted | self._walk.names
            if not _ALL.isdisjoint(self._walk.names):
                self._walk.whole[id(space)] = space
        for key in sorted(wanted):
            if key in space:
                self._passed_on(code, key, space[key])
                yield "global", key, space[key], key, True
            elif key in missing and key in vars(builtins):
                value = vars(builtins)[key]
                if key in WRITTEN and type(value) is types.BuiltinFunctionType:
                    self._walk.refuse(f"it calls {key}, and what that reads is not known")
                yield "builtin", key, value, key, False
        for key in sorted(imports_in(code)):  # inside of the function
            if isinstance(sys.modules.get(key), types.ModuleType):
                self._passed_on(code, key, sys.modules[key])
                yield "import", key, sys.modules[key], key, False

    def _expand_method(self, method: Any, name: str) -> Iterator[Any]:
        yield "part", "__func__", method.__func__, name, True
        yield "part", "__self__", method.__self__, f"the object of {name}", True

    def _expand_bound(self, method: Any, name: str) -> Iterator[Any]:
        yield "part", "__self__", method.__self__, f"the object of {name}", True

    def _expand_partial(self, partial: Any, name: str) -> Iterator[Any]:
        yield "part", "func", partial.func, name, True
        yield "part", "args", partial.args, f"the arguments of {name}", True
        yield "part", "keywords", partial.keywords, f"the arguments of {name}", True
        for key, value in vars(partial).items():
            if key in self._walk.names:
                yield "attribute", key, value, f"{name}.{key}", False

    def _expand_jitted(self, jitted: Any, name: str) -> Iterator[Any]:
        yield "part", "_f", jitted._f, name, True

    def _expand_transformed(self, transformed: Any, name: str) -> Iterator[Any]:
        yield "part", "_call", transformed._call, name, True

    def _expand_whole(self, whole: Any, name: str) -> Iterator[Any]:
        for key in whole.functions():
            yield "part", key, getattr(whole, key), name, True

    def _expand_cached(self, cached: Any, name: str) -> Iterator[Any]:
        yield "part", "__wrapped__", cached.__wrapped__, name, False

    def _expand_dispatch(self, f: Any, name: str) -> Iterator[Any]:
        yield "part", "registry", f.registry, f"what {name} chooses from", False

    def _expand_variable(self, variable: Any, name: str) -> Iterator[Any]:
        value = variable.get(None)
        yield "context", None, variable.get() if value is None else value, f"{name}.get()", False

    # -- objects of libraries --------------------------------------------------------------------

    def _expand_opaque(self, x: Any, name: str) -> Iterator[Any]:
        if isinstance(x, GETTERS):
            wanted = x.__reduce__()[1]
            self._walk.names.update(part for path in wanted for part in str(path).split("."))
        elif isinstance(x, types.ModuleType):
            space = space_of(x)
            if x.__name__ == "sys" and "modules" in self._walk.names:
                self._walk.refuse("it looks modules up in sys.modules; import them by their names")
            for key in sorted(self._walk.names):
                if key in space and key not in _STREAMS and _is_small(space[key]):
                    yield "module", key, space[key], f"{name}.{key}", False

    def _expand_fingerprint(self, x: Any, name: str) -> Iterator[Any]:
        fingerprint = self._walk.fingerprint_of(x)
        for child in fingerprint.children if fingerprint is not None else ():
            yield "fingerprint", None, child, f"an object in {name}", False
        if not is_library(type(x).__module__):
            yield from self._of_class(type(x), frozenset(), False, name)

    def _expand_stand_in(self, x: Any, name: str) -> Iterator[Any]:
        yield "part", "_adarray_of", x._adarray_of, name, False

    def _expand_reference(self, reference: Any, name: str) -> Iterator[Any]:
        yield "referent", None, reference(), f"{name}()", False

    def _expand_proxied(self, proxy: Any, name: str) -> Iterator[Any]:
        try:
            yield "referent", None, referent(proxy), name, False
        except ReferenceError:
            self._walk.refuse(f"the object of the weak reference {name} is gone")

    # -- containers ------------------------------------------------------------------------------

    def _expand_sequence(self, items: Any, name: str) -> Iterator[Any]:
        for i, x in enumerate(items):
            yield "item", i, x, f"{name}[{i}]", True
        if isinstance(items, tuple) and not is_library(type(items).__module__):
            yield from self._of_class(type(items), frozenset(), False, name)

    def _expand_mapping(self, items: Any, name: str) -> Iterator[Any]:
        for key, x in items.items():
            yield "item", key, x, f"{name}[{key!r}]", True
        yield from self._keys(items, name)
        if hasattr(items, "default_factory"):
            yield "part", "default_factory", items.default_factory, f"{name}[...]", False

    def _expand_proxy(self, items: Any, name: str) -> Iterator[Any]:
        for key, x in items.items():
            yield "item", key, x, f"{name}[{key!r}]", False
        yield from self._keys(items, name)

    def _expand_view(self, view: Any, name: str) -> Iterator[Any]:
        yield "part", "mapping", view.mapping, name, False

    def _expand_set(self, items: Any, name: str) -> Iterator[Any]:
        return self._keys(items, name)

    def _keys(self, keys: Any, name: str) -> Iterator[Any]:
        """Yield those keys of a dictionary, or elements of a set, that have attributes."""
        for key in keys:
            if type(key) not in _TEXT and kind_of(key) != "scalar":
                yield "fingerprint", None, key, f"a key of {name}", False

    def _expand_objects(self, items: Any, name: str) -> Iterator[Any]:
        if items.size > LIMIT:
            raise TooMuchError(f"{name} has more than {LIMIT} objects; pass it as an argument")
        for i, x in enumerate(items.flat):
            yield "element", i, x, f"an element of {name}", False

    # -- objects ---------------------------------------------------------------------------------

    def _expand_module(self, module: Any, name: str) -> Iterator[Any]:
        space = vars(module)
        for key in sorted({*self._walk.names, "__getattr__"}):
            if key in space:
                yield "module", key, space[key], f"{name}.{key}", True

    def _expand_class(self, cls: Any, _name: str) -> Iterator[Any]:
        self._patterns(cls)
        for base in (*cls.__mro__, *type(cls).__mro__):
            if is_library(base.__module__):
                continue
            for key, value in tuple(base.__dict__.items()):
                if key in self._walk.names or key in ("__init__", "__new__") or _dunder(key):
                    for part in unwrapped(value):
                        if key in self._walk.names or kind_of(part) in CALLED:
                            yield "class", (base, key), part, f"{base.__name__}.{key}", False
        if issubclass(cls, enum.Enum):  # members are found by values and names, too
            for member in cls.__members__.values():
                yield "fingerprint", None, member, str(member), False

    def _patterns(self, cls: type) -> None:
        """Take in the attributes that ``case Point(x, y)`` reads."""
        if "__match_args__" in self._walk.names:
            self._walk.names.update(getattr(cls, "__match_args__", ()))

    def _expand_instance(self, obj: Any, name: str) -> Iterator[Any]:
        cls = type(obj)
        self._patterns(cls)
        clones = can_clone(obj)
        space = getattr(obj, "__dict__", {})
        everything = not has_plain_bases(cls) or bool(self._walk.names & INDIRECT)
        everything = everything or isinstance(obj, WRAPPERS) or bool(self._walk.names & ASSIGNING)
        for key, value in tuple(space.items()):
            if isinstance(obj, enum.Enum) and key.startswith("_") and key != "_value_":
                continue
            if everything or key in self._walk.names:
                yield "attribute", key, value, f"{name}.{key}", clones
        for member in slots_in(cls):
            key = member.__name__
            if everything or key in self._walk.names:
                try:
                    yield "slot", member, member.__get__(obj), f"{name}.{key}", clones
                except AttributeError:  # not set
                    continue
        yield from self._items(obj, name)
        if cls is not types.SimpleNamespace:
            yield from self._of_class(cls, frozenset(space), clones, name)

    def _items(self, obj: Any, name: str) -> Iterator[Any]:
        """Yield the items of an instance of a subclass of a container; clones have none."""
        items: Any = ()
        if isinstance(obj, (list, tuple)):
            items = self._expand_sequence(obj, name) if isinstance(obj, list) else (
                ("item", i, x, f"{name}[{i}]", False) for i, x in enumerate(tuple.__iter__(obj))
            )  # fmt: skip
        elif isinstance(obj, dict):
            items = self._expand_mapping(obj, name)
        elif isinstance(obj, (set, frozenset)):
            items = self._keys(obj, name)
        yield from ((how, key, x, n, False) for how, key, x, n, _ in items)

    def _of_class(
        self, cls: type, hidden: frozenset[str], clones: bool, name: str
    ) -> Iterator[Any]:
        """Yield the class attributes that an instance uses: methods and others."""
        methods: set[str] = set()
        texts = not TEXTS.isdisjoint(self._walk.names)
        for base in cls.__mro__:
            for key, value in tuple(base.__dict__.items()):
                if is_library(base.__module__) or key in hidden:
                    continue
                if (
                    type(value) is types.FunctionType
                    and key in self._walk.names
                    and not _dunder(key)
                    and key not in methods
                    and clones
                    and cls.__dictoffset__
                ):
                    methods.add(key)
                    yield "method", key, value, f"{name}.{key}", True
                elif key in self._walk.names or _dunder(key) or (texts and key == "__repr__"):
                    # Methods that Python looks up itself, or that super() finds.
                    for part in unwrapped(value):
                        if key in self._walk.names or kind_of(part) in CALLED:
                            yield "class", (base, key), part, f"{base.__name__}.{key}", False


def _is_small(x: Any) -> bool:
    """Whether data of a library are walked: large tables are taken to be constant."""
    return not isinstance(x, (list, tuple, dict, set, frozenset)) or len(x) <= _TABLE


def space_of(module: Any) -> dict[str, Any]:
    """Return the names of a module, of a stand-in those of what it stands for."""
    real = sys.modules.get(module.__name__, module)
    space: dict[str, Any] = vars(real)
    return space


def referent(x: Any) -> Any:
    """Return the object of a weak reference or proxy."""
    return x() if isinstance(x, weakref.ReferenceType) else x.__init__.__self__


def _dunder(key: str) -> bool:
    return key.startswith("__") and key.endswith("__") and key not in _NO_CODE


_NO_CODE = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__qualname__",
                      "__annotations__", "__dataclass_fields__", "__dataclass_params__",
                      "__match_args__", "__slots__", "__init__", "__new__", "__repr__",
                      "__firstlineno__", "__static_attributes__", "__orig_bases__",
                      "__parameters__", "__abstractmethods__", "__init_subclass__"})  # fmt: skip
