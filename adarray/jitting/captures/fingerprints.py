"""Fingerprints of objects that the walk over captured state cannot follow.

A fingerprint consists of plain values alone, such that two of them are equal if and only if nothing
about the object has changed. It is found by a rule for the object's class (`register_captured`;
ours are in `adarray.jitting.captures.rules`), else from all of its attributes, else from its
pickle. What has none of these is opaque, and keeps a function eager.
"""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import itertools
import operator
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.base.scope import UNINTERCEPTED, package_of
from adarray.jitting.shared.contents import Content
from adarray.jitting.shared.keys import Same, value_key

Rule = Callable[[Any], Any]
# Objects that one fingerprint may take in.
LIMIT = 4000

_EXACT = frozenset({bool, int, float, complex, str, bytes, type(None), type(Ellipsis),
                    type(NotImplemented), range})  # fmt: skip
_SCALARS = (int, float, complex, str, bytes, np.generic)
# Rules by class, and by package and name of classes that may not have been imported.
_rules: dict[type, Rule | None] = {}
_named: dict[tuple[str, str], Rule | None] = {}
_rule_cache: dict[type, tuple[bool, Rule | None]] = {}


class OpaqueError(Exception):
    """An object has no fingerprint."""


def register_captured(cls: type | str, fingerprint: Rule | None = None) -> None:
    """Tell `jit` how to notice that a captured object has changed.

    A compiled function may read objects from globals, closures and attributes besides its
    arguments. Each call compares these with what they were when the function was compiled. adarray
    can do this for Python's own types and for objects of pandas, xarray, SciPy and torch. A
    function that reads an object of another type, that adarray cannot inspect, stays uncompiled.

    Parameters
    ----------
    cls : type or str
        The class, or its name as ``"package:Class"``, so that it need not be imported. The rule
        also applies to subclasses.
    fingerprint : callable, optional
        ``fingerprint(obj)`` returns everything about `obj` that a function may read, as arrays,
        numbers, text, tuples, lists, dicts and other objects that can be compared. Without it,
        objects of the class are taken to be immutable, and are compared by identity only.

    Raises
    ------
    TypeError
        If `cls` is no class, or `fingerprint` not callable.
    ValueError
        If the name of a class has no package.

    Examples
    --------
    >>> import adarray
    >>> class Table:
    ...     __slots__ = ("handle",)
    >>> adarray.register_captured(Table, lambda table: table.handle)
    """
    if fingerprint is not None and not callable(fingerprint):
        raise TypeError(
            f"register_captured: fingerprint is {fingerprint!r}; pass a function of the object"
        )
    if isinstance(cls, str):
        package, _, name = cls.partition(":")
        if not package or not name:
            raise ValueError(
                f"register_captured: {cls!r} names no class; write it as 'package:Class'"
            )
        _named[package, name] = fingerprint
    elif isinstance(cls, type):
        _rules[cls] = fingerprint
    else:
        raise TypeError(
            f"register_captured: expected a class or its name, got {type(cls).__name__}"
        )
    _rule_cache.clear()


def rule_of(cls: type) -> tuple[bool, Rule | None]:
    """Return whether there is a rule for a class, and the rule; None compares by identity."""
    known = _rule_cache.get(cls)
    if known is None:
        known = _rule_cache[cls] = _rule_of(cls)
    return known


def _rule_of(cls: type) -> tuple[bool, Rule | None]:
    for base in cls.__mro__:
        if base in _rules:
            return True, _rules[base]
        name = package_of(base.__module__), base.__qualname__
        # A class that a user derived from an immutable one may add to it.
        if name in _named and (
            _named[name] is not None or package_of(cls.__module__) in UNINTERCEPTED
        ):
            return True, _named[name]
    return False, None


class FingerprintReader:
    """Reads one object, and what it holds.

    Parameters
    ----------
    is_walked : callable
        Whether the walk over captured state visits an object itself.
    undo : list, optional
        Gets functions that put back what arrays, containers and attributes hold now.

    Attributes
    ----------
    children : list
        Objects of the user's that were met: the walk goes on there.
    """

    def __init__(
        self, is_walked: Callable[[Any], bool], undo: list[Callable[[], None]] | None = None
    ) -> None:
        self._is_walked = is_walked
        self._undo = undo
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # what rules made, whose identities are in use
        self.children: list[Any] = []

    def of(self, x: Any) -> Any:
        """Return the fingerprint of an object.

        Raises
        ------
        OpaqueError
            If it, or something inside of it, has none.
        """
        kind = type(x)
        if kind in _EXACT:
            return value_key(x, {})
        if kind in _STEADY:
            return Same(x)
        number = self._numbers.get(id(x))
        if number is not None:
            return ("again", number)
        self._numbers[id(x)] = len(self._numbers)
        self._alive.append(x)
        if len(self._alive) > LIMIT:
            raise OpaqueError(f"it holds more than {LIMIT} objects")
        if self._undo is not None:
            self._undo += list(_restorers(x))
        known, rule = rule_of(kind)
        if known:
            return Same(x) if rule is None else (kind, self._by_rule(rule, x))
        return self._unruled(x, kind)

    def _by_rule(self, rule: Rule, x: Any) -> Any:
        try:
            parts = rule(x)
        except OpaqueError:
            raise
        except Exception as error:
            raise OpaqueError(f"{type(error).__name__}: {error}") from error
        if parts is x:
            raise OpaqueError(f"its fingerprint is the {type(x).__name__} itself")
        self._alive.append(parts)
        return self.of(parts)

    def _unruled(self, x: Any, kind: type) -> Any:
        if isinstance(x, np.ndarray):
            return (kind, *self._array(x), *self._attributes(x))
        if isinstance(x, np.generic):
            return value_key(x, {})
        if kind is list or kind is tuple:
            return (kind, *map(self.of, x))
        if kind is dict:
            return (kind, *[(self.of(k), self.of(v)) for k, v in x.items()])
        if kind is types.MappingProxyType:
            return (kind, self.of(dict(x)))
        if kind is set or kind is frozenset:
            return (kind, *map(self.of, x))
        if kind is weakref.ReferenceType:
            return (kind, self.of(x()))
        if kind is bytearray or kind is memoryview:
            return (kind, bytes(x))
        if kind is slice:
            return (kind, self.of(x.start), self.of(x.stop), self.of(x.step))
        if self._is_walked(x):
            self.children.append(x)
            return Same(x)
        if is_code(x):
            return Same(x)
        if hasattr(kind, "__next__"):
            raise OpaqueError("it is an iterator, which calls advance")
        if is_python(kind):
            return (kind, *self._contents(x), *self._attributes(x))
        return (kind, *self._pickled(x))

    def _array(self, x: np.ndarray) -> Any:
        form = (x.dtype.str, x.dtype.descr if x.dtype.names else None, x.shape)
        if x.dtype.hasobject:
            return (repr(form), self.of(x.tolist()))
        plain = x.view(np.ndarray)
        mask = np.ma.getmask(x)
        masked = () if mask is np.ma.nomask else (mask.tobytes(), repr(x.fill_value))  # type: ignore[attr-defined]
        return (repr(form), plain.tobytes(), *masked)

    def _contents(self, x: Any) -> Iterator[Any]:
        """Yield the contents of an instance of a subclass of a container, a number or text."""
        if isinstance(x, _SCALARS):
            base = next(b for b in type(x).__mro__ if b in _EXACT or issubclass(b, np.generic))
            yield value_key(base(x), {})
        elif isinstance(x, (list, tuple)):
            yield from map(self.of, tuple.__iter__(x) if isinstance(x, tuple) else list.__iter__(x))
        elif isinstance(x, dict):
            yield from [(self.of(k), self.of(v)) for k, v in dict.items(x)]
        elif isinstance(x, (set, frozenset)):
            yield from map(self.of, set(x))

    def _attributes(self, x: Any) -> Iterator[Any]:
        """Yield the names and fingerprints of all attributes of an object's own."""
        space = getattr(x, "__dict__", None)
        if type(space) is dict:
            yield from [(key, self.of(value)) for key, value in tuple(space.items())]
        for member in slots_in(type(x)):
            try:
                yield member.__name__, self.of(member.__get__(x))
            except AttributeError:
                yield member.__name__, "not set"

    def _pickled(self, x: Any) -> Iterator[Any]:
        """Yield the parts of the pickle of an object whose class is written in C."""
        try:
            reduced = x.__reduce_ex__(4)
        except Exception as error:
            raise OpaqueError(f"{type(error).__name__}: {error}") from error
        if isinstance(reduced, str):  # found by its name
            yield Same(x)
            return
        self._alive.append(reduced)
        for part in reduced:
            if hasattr(type(part), "__next__"):  # items, in the order of the object
                part = list(part)
                self._alive.append(part)
            yield self.of(part)


# Containers that are put back by their own methods; an OrderedDict keeps its order in C.
_CONTAINERS: tuple[Any, ...] = (collections.OrderedDict, dict, list, set, collections.deque)


def _restorers(x: Any) -> Iterator[Callable[[], None]]:
    """Yield functions that put back what an object holds itself."""
    if isinstance(x, np.ndarray) and not x.dtype.hasobject:
        yield functools.partial(Content(x.view(np.ndarray)).restore, x.view(np.ndarray))
    elif isinstance(x, (bytearray, array.array)):
        yield functools.partial(Content(x).restore, x)
    elif isinstance(x, np.random.BitGenerator):
        yield functools.partial(setattr, x, "state", x.state)
    elif isinstance(x, np.random.SeedSequence):  # how often it has spawned is in its pickle alone
        yield functools.partial(x.__setstate__, x.__reduce__()[2])  # type: ignore[attr-defined]
    elif isinstance(x, _CONTAINERS):
        # Methods of a subclass may do something else: a sparse matrix, a dict, iterates over rows.
        base = next(b for b in type(x).__mro__ if b in _CONTAINERS)
        yield functools.partial(_refill, base, x, _items(base, x))
    space = getattr(x, "__dict__", None)
    if type(space) is dict and not isinstance(x, (type, types.ModuleType, types.FunctionType)):
        yield functools.partial(_refill, dict, space, _items(dict, space))
    for member in slots_in(type(x)):
        with contextlib.suppress(AttributeError):
            yield functools.partial(member.__set__, x, member.__get__(x))


def _items(base: Any, x: Any) -> list[tuple[Any, ...]]:
    """Return what a container holds: keys with values, or elements alone."""
    return list(base.items(x)) if issubclass(base, dict) else [(y,) for y in base.__iter__(x)]


def _refill(base: Any, x: Any, items: list[tuple[Any, ...]]) -> None:
    """Give a container what it held, unless it holds the same objects."""
    now = _items(base, x)
    if len(now) == len(items) and all(
        map(operator.is_, itertools.chain(*now), itertools.chain(*items))
    ):
        return
    add = base.__setitem__ if issubclass(base, dict) else base.add if base is set else base.append
    base.clear(x)
    for item in items:
        add(x, *item)


_Fields = collections.namedtuple("_Fields", "field")  # whose fields C code reads

# Parts of Python code, and objects that have no state that code reads.
_CODE = frozenset({
    types.ModuleType, types.BuiltinFunctionType, types.CodeType, types.FunctionType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType,
    types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType, np.ufunc,
    types.GenericAlias, types.UnionType, type(np.mean), type(_Fields.field),
})  # fmt: skip
_STEADY = frozenset({type, np.dtype, types.ModuleType, types.BuiltinFunctionType, np.ufunc})


def is_code(x: Any) -> bool:
    """Whether an object is part of a program: a class, a module, a builtin or library function."""
    return isinstance(x, type) or type(x) in _CODE


def is_python(cls: type) -> bool:
    """Whether an object consists of its attributes and one of Python's containers alone.

    What C code adds to a class makes its instances larger.
    """
    base = next(b for b in cls.__mro__ if b in _LAYOUTS)
    if cls is base:
        return False
    pointers = (cls.__dictoffset__ != 0) + (cls.__weakrefoffset__ != 0) + len(list(slots_in(cls)))
    return cls.__basicsize__ <= base.__basicsize__ + 8 * pointers


def slots_in(cls: type) -> Iterator[types.MemberDescriptorType]:
    """Yield the descriptors of the slots of a class, those of its bases first."""
    for base in reversed(cls.__mro__):
        if "__slots__" in base.__dict__:
            for member in tuple(base.__dict__.values()):
                if type(member) is types.MemberDescriptorType:
                    yield member


_LAYOUTS = frozenset({object, list, tuple, dict, set, frozenset, int, float, complex, str, bytes})


class SavedFingerprint:
    """The fingerprint that an object had."""

    __slots__ = ("_is_walked", "children", "parts")

    def __init__(
        self,
        x: Any,
        is_walked: Callable[[Any], bool],
        undo: list[Callable[[], None]] | None = None,
    ) -> None:
        reader = FingerprintReader(is_walked, undo)
        self.parts = reader.of(x)
        self.children = reader.children
        self._is_walked = is_walked

    def same(self, x: Any) -> bool:
        """Whether an object has this fingerprint."""
        try:
            return bool(self.parts == FingerprintReader(self._is_walked).of(x))
        except OpaqueError:
            return False
