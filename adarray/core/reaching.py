"""The functions of client code that a function may call, made ready to be transformed.

A function's own code, what its globals, closures and defaults lead to by the names that
are written in it, and the methods of classes and objects on the way; of arguments, the same.
Code that runs already cannot be made ready: a generator that asks for types is refused.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from adarray.base.errors import TraceError
from adarray.base.hooks import Hook
from adarray.base.redirecting import IdentityCache, all_names, original_of
from adarray.base.scope import client_of
from adarray.base.types import Operands, Params
from adarray.core.asking import refuse_held_type, take_type
from adarray.core.caught import watch_libraries
from adarray.core.comparing import (
    NAMES_NUMPYS,
    Comparing,
    asks_truths,
    bound_to,
    compared,
    truths_in,
)
from adarray.core.generics import answer_for_libraries
from adarray.core.holding import (
    CALLED,
    DATA,
    LIMIT,
    MAY_HOLD,
    RUNNING,
    TABLES,
    VALUES,
    WRAPPED,
    captured,
    is_clients,
    items_of,
    parts_of,
    wrapped_in,
)
from adarray.core.loads import RedirectedNames, generation, names_for, redirect_uses
from adarray.core.needs import dispatches, needs_interception
from adarray.core.trace import Handle
from adarray.device import KINDS

# A weak reference to a function, None for the one that was looked at, and what it compares.
Site: TypeAlias = tuple[weakref.ref[object] | None, Comparing]
# A function or module likewise, and names in it with what returns that to which they are bound.
Bindings: TypeAlias = tuple[weakref.ref[object] | None, list[tuple[str, Callable[[], object]]]]

# What was looked at -> (generation, what it depends on, what compares): see `_Walk`.
_reached: IdentityCache[Reached] = IdentityCache()
# The code of functions without closures and defaults -> what the last one of it became.
_twins: IdentityCache[tuple[weakref.ref[types.CodeType], int, Reached]] = IdentityCache()

# Gives a function of client code other code that does the same, before loads are redirected.
rewriting_hook: Hook[Callable[[types.FunctionType], None]] = Hook(
    "adarray.loops.rewriting", lambda _function: None
)


def rewrite_with(rewrite: Callable[[types.FunctionType], None]) -> None:
    """Give functions other code from now on; those that were reached before are reached again."""
    rewriting_hook.set(rewrite)
    _reached.clear()
    _twins.clear()


class Reached:
    """What an analysis of everything that a function may call has shown.

    Parameters
    ----------
    needs : bool
        Whether it must be intercepted: whether anything there does what NumPy's protocols
        do not show.
    bindings : list
        What that depends on: a weak reference to a function or module, None for the function
        itself; pairs of a name in its namespace and what returns that to which it is bound.
    sites : list
        The same of functions that compare objects, or call one that does by its name.
    truths : int
        What functions do with truth values as objects: see `truths_in`.

    Attributes
    ----------
    rebound : object
        For which modules interception has seen to it (see `adarray.intercepting.rebinding`).
    """

    __slots__ = ("__weakref__", "_generation", "bindings", "needs", "rebound", "sites", "truths")

    def __init__(
        self, needs: bool, bindings: list[Bindings], sites: list[Site], truths: int
    ) -> None:
        # What is compared with np.True_ by ``is`` must be the one that NumPy has.
        self.needs = needs or asks_truths(truths)
        self.bindings = bindings
        self.sites = sites
        self.truths = truths
        self.rebound: object = None
        self._generation = generation()

    def holds(self, root: object) -> bool:
        """Whether names are bound to what they were bound to; `root` is the function."""
        if self._generation is not generation():
            return False
        for owner, names in self.bindings:
            x = root if owner is None else owner()
            if x is None:
                return False
            space = x.__globals__ if type(x) is types.FunctionType else x.__dict__
            for name, value in names:
                if space.get(name) is not value():
                    return False
        return True


def reach(f: Any) -> Reached:
    """Make what `f` may call ready to be transformed; cheap, if nothing has changed since.

    Parameters
    ----------
    f : callable

    Returns
    -------
    Reached
    """
    if type(f) is types.MethodType:  # another one each time it is asked for
        reach(f.__func__)
        f = f.__self__
    kind = type(f)
    known = _reached.get(f) if kind.__weakrefoffset__ else None
    if known is not None and known.holds(f):
        return known
    simple = kind is types.FunctionType and not (f.__closure__ or f.__defaults__ or f.__dict__)
    if simple and (known := _like_another(f)) is not None:
        return known
    code = f.__code__ if simple else None
    reached = _Walk().run(f)
    if kind.__weakrefoffset__:
        _reached.note(f, reached)
    if simple:
        _twins.note(code, (weakref.ref(f.__code__), id(f.__globals__), reached))
    return reached


def sites(f: object) -> list[Site]:
    """Return which functions that were reached from `f` compare objects."""
    if type(f) is types.MethodType:
        return [*sites(f.__func__), *sites(f.__self__)]
    known = _reached.get(f) if type(f).__weakrefoffset__ else None
    if known is not None:
        return known.sites
    if type(f) is not types.FunctionType:
        return []
    twin = _twins.get(f.__code__) or _twins.get(original_of(f.__code__))
    return [] if twin is None else twin[2].sites


def reach_arguments(args: Operands, kwargs: Params) -> bool:
    """Make ready what arguments of a function may call; return whether there is anything."""
    for x in (*args, *kwargs.values()) if kwargs else args:
        kind = type(x)
        if kind not in DATA and not issubclass(kind, Handle):
            return _reach_objects([*args, *kwargs.values()])
    return False


def _reach_objects(waiting: list[object]) -> bool:
    """Make functions and objects ready; return whether there are any, or numbers in a sequence.

    NumPy converts a sequence of numbers where it takes an array, and no protocol shows that.
    """
    seen: dict[int, object] = {}  # they may hold each other
    any_reached = False
    while waiting and len(seen) < LIMIT:
        x = waiting.pop()
        kind = type(x)
        if kind in DATA or issubclass(kind, Handle) or id(x) in seen:
            continue
        seen[id(x)] = x
        if issubclass(kind, TABLES):
            items = list(items_of(x))
            any_reached = any_reached or (issubclass(kind, (list, tuple)) and _holds_numbers(items))
            waiting += items
            continue
        any_reached = True
        if kind in CALLED:
            reach(x)
        elif issubclass(kind, type) or is_clients(kind):
            reach(x if issubclass(kind, type) else kind)
            waiting += parts_of(x)
        elif kind in RUNNING:
            _refuse_running(x)
    return any_reached


def _holds_numbers(items: list[object]) -> bool:
    return any(type(x) is float or isinstance(x, (Handle, np.floating)) for x in items)


def _like_another(f: types.FunctionType) -> Reached | None:
    """Reuse the result for another function of the same code and globals, as made in a loop."""
    twin = _twins.get(f.__code__)
    if twin is None or twin[1] != id(f.__globals__) or not twin[2].holds(f):
        return None
    code = twin[0]()
    if code is None:
        return None
    if f.__code__ is not code:
        f.__code__ = code
    return twin[2]


def _nothing() -> None:
    return None


class _StrongReference:
    """A strong reference, called like a weak one; for NumPy's functions, which allow none."""

    __slots__ = ("_of",)

    def __init__(self, of: object) -> None:
        self._of = of

    def __call__(self) -> object:
        return self._of


class _Walk:
    """The analysis of everything that a function reaches; see `Reached`."""

    def __init__(self) -> None:
        self._bindings: list[Bindings] = []
        self._sites: list[Site] = []
        self._needs = False
        self._truths = 0
        self._seen: dict[int, object] = {}
        self._names: dict[int, RedirectedNames] = {}  # id of globals -> names that are ours
        self._waiting: list[object] = []
        self._modules: dict[frozenset[str], set[int]] = {}  # names -> modules asked for them

    def run(self, f: object) -> Reached:
        """Look at `f`, then at what that leads to."""
        watch_libraries()
        answer_for_libraries()
        self._root = f
        self._needs = not (type(f) is types.FunctionType or dispatches(f))
        self._waiting.append(f)
        while self._waiting and len(self._seen) < LIMIT:
            x = self._waiting.pop()
            if id(x) in self._seen:
                continue
            self._seen[id(x)] = x
            known = _reached.get(x) if type(x) is types.FunctionType else None
            if known is not None and known.holds(x):
                me = weakref.ref(x)
                self._bindings += [(owner or me, names) for owner, names in known.bindings]
                self._sites += [(owner or me, what) for owner, what in known.sites]
                self._needs |= known.needs
                self._truths |= known.truths
            else:
                self._waiting.extend(self._next(x))
        return Reached(self._needs, self._bindings, self._sites, self._truths)

    def _next(self, x: Any) -> Iterator[object]:
        kind = type(x)
        if kind is np.bool_:
            self._truths |= NAMES_NUMPYS
        if kind in KINDS or issubclass(kind, VALUES):
            return
        if kind is types.FunctionType:
            yield from self._of_function(x)
        elif kind is types.MethodType:
            yield x.__func__
            yield x.__self__
        elif kind is functools.partial:
            yield x.func
            yield from x.args
            yield from x.keywords.values()
        elif kind in WRAPPED:
            yield x.__func__
        elif kind is property:
            yield from (x.fget, x.fset)
        elif kind is functools.cached_property:
            yield x.func
        elif kind in RUNNING:
            _refuse_running(x)
        elif issubclass(kind, TABLES):
            yield from items_of(x)
            if is_clients(kind):
                yield kind
        elif issubclass(kind, type):
            if is_clients(x):
                if is_clients(kind):  # which may answer for isinstance
                    yield kind
                yield from (b for b in x.__mro__[1:] if is_clients(b))
                yield from tuple(x.__dict__.values())
        elif is_clients(kind):
            yield kind
            yield from parts_of(x)
        elif (inner := wrapped_in(x)) is not None:
            yield inner

    def _of_function(self, f: types.FunctionType) -> Iterator[object]:
        space = f.__globals__
        names = all_names(original_of(f.__code__))
        if not names.isdisjoint(_BY_TEXT):
            texts = _texts(original_of(f.__code__))
            names |= texts
            for module in [sys.modules[t] for t in texts if t in sys.modules]:
                yield from self._of_module(module, names)
        for value in captured(f):
            if issubclass(type(value), types.ModuleType):
                yield from self._of_module(value, names)
            else:
                yield value
        if (inner := wrapped_in(f)) is not None:
            yield inner
        if not client_of(space):
            return
        rewriting_hook.call(f)
        if "ADArray" not in names:  # else it is told the class that is there
            take_type(f)
            refuse_held_type(f, names)
        own = self._names.get(id(space))
        if own is None:
            own = self._names[id(space)] = names_for(space)
        redirect_uses(f, own)
        self._needs = self._needs or needs_interception(f, original_of(f.__code__))
        self._truths |= truths_in(original_of(f.__code__))
        what = compared(f, (*(bound_to(space, n) for n in names), *captured(f)))
        if what.by:
            self._sites.append((None if f is self._root else weakref.ref(f), what))
        bindings: list[tuple[str, Callable[[], object]]] = []
        for name in names:
            value = space.get(name)
            kind = type(value)
            if kind is np.bool_:
                self._truths |= NAMES_NUMPYS
            if value is None:
                if name in space or name in own.calls:
                    bindings.append((name, _nothing))
            elif issubclass(kind, types.ModuleType):
                bindings.append((name, weakref.ref(value)))
                yield from self._of_module(value, names)
            elif callable(value) or kind in MAY_HOLD or is_clients(kind):
                if kind.__weakrefoffset__:
                    bindings.append((name, weakref.ref(value)))
                elif dispatches(value):
                    bindings.append((name, _StrongReference(value)))
                yield value
        if bindings:
            self._bindings.append((None if f is self._root else weakref.ref(f), bindings))

    def _of_module(self, module: object, names: frozenset[str]) -> Iterator[object]:
        inner = object.__getattribute__(module, "__dict__")
        if id(module) in self._modules.setdefault(names, set()):
            return
        self._modules[names].add(id(module))
        if not isinstance(inner, dict) or not client_of(inner):
            return
        bindings: list[tuple[str, Callable[[], object]]] = []
        for name in names:
            value = inner.get(name)
            if issubclass(type(value), types.ModuleType):
                yield from self._of_module(value, names)
            elif callable(value) and type(value).__weakrefoffset__:
                bindings.append((name, weakref.ref(value)))
                yield value
        if bindings and type(module) is types.ModuleType:
            self._bindings.append((weakref.ref(module), bindings))


# What finds a function by a text.
_BY_TEXT = frozenset({
    "getattr", "globals", "vars", "attrgetter", "methodcaller", "import_module", "modules",
    "__dict__", "__import__", "eval",
})  # fmt: skip


def _texts(code: types.CodeType) -> frozenset[str]:
    """Return the texts in code and in what is nested in it, which may be names."""
    texts: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, str):
            texts.add(constant)
        elif isinstance(constant, tuple):
            texts.update(c for c in constant if isinstance(c, str))
        elif isinstance(constant, types.CodeType):
            texts |= _texts(constant)
    return frozenset(texts)


def _refuse_running(x: object) -> None:
    """Raise if a generator that was made before is about to ask for types."""
    code = getattr(x, RUNNING[type(x)], None)
    frame = getattr(x, RUNNING[type(x)][:3] + "frame", None)
    if code is None or frame is None or original_of(code) is not code:
        return
    asks = any(
        i.opname.startswith("LOAD") and i.argval == "type" and "ATTR" not in i.opname
        for i in dis.get_instructions(code)
    )
    if asks and client_of(frame.f_globals):
        raise TraceError(
            f"type: {getattr(x, '__qualname__', x)}() was made before the transform, and its code "
            "calls type(), which would not see the plain class of a traced value; make it inside "
            "of the function, or ask with isinstance()"
        )
