"""A clone of a function in which inputs of a recording stand for what it captured.

Functions get globals, closure cells and defaults of their own; objects, lists and
dictionaries on the way to a captured array are copied. Nothing of the user's is touched,
so that other threads see nothing, and what a run writes into its captured state can be
found and handed back.
"""

from __future__ import annotations

import copy
import functools
import re
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from adarray.inplace import sync_if_view
from adarray.intercepting.memory import is_cached
from adarray.intercepting.standins import remembered
from adarray.jitting.captures import Found, Walk
from adarray.jitting.checks import Input
from adarray.jitting.fingerprints import is_python, slots_in
from adarray.jitting.kinds import is_library, is_ours, names_in
from adarray.jitting.parts import Cells, ClassAttributes, Elements, Slots
from adarray.protocol import concrete, followed
from adarray.trace import Handle

_CELL = types.CellType
_NOTHING = object()
_KEPT_GLOBALS = ("__name__", "__package__", "__spec__", "__loader__", "__file__", "__builtins__",
                 "__doc__")  # fmt: skip


class Space(dict):  # type: ignore[type-arg]
    """Globals of a cloned function: its own, then those of the original."""

    def __init__(self, real: dict[str, Any]) -> None:
        super().__init__({k: real[k] for k in _KEPT_GLOBALS if k in real})
        self.real = real

    def __missing__(self, key: str) -> Any:
        return self.real[key]


class Globals:
    """Those globals of a module that its functions here may write."""

    def __init__(self, real: dict[str, Any]) -> None:
        self.real = real
        self.names: frozenset[str] = frozenset()

    def keys(self) -> list[str]:
        """Return the names that are bound."""
        return [n for n in self.names if n in self.real]

    def __getitem__(self, name: str) -> Any:
        return self.real[name]


def contents(cell: Any) -> Any:
    """Return what a closure cell holds; itself if it is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


class Clones:
    """Clones of what leads to captured inputs.

    Parameters
    ----------
    walk : Walk
    inputs : list of Input
    values : list
        What takes the place of each input.
    """

    def __init__(self, walk: Walk, inputs: list[Input], values: list[Any]) -> None:
        self._walk = walk
        self._clones: dict[int, Any] = {id(i.found): v for i, v in zip(inputs, values, strict=True)}
        self._originals: dict[int, tuple[Any, Any]] = {}  # id of clone -> clone, original
        for i, v in zip(inputs, values, strict=True):
            self._originals[id(v)] = (v, i.found.value)
        for found in walk.order:
            # Their caches must not hold what a run computes: see adarray.jitting.cached.
            if found.kind == "cached" and is_cached(found.value):
                self._keep(found, remembered(found.value))
        self._dirty = _leading_to(set(self._clones), walk)
        self._spaces: dict[int, Space] = {}  # by the identity of the globals
        self._cells: list[tuple[Any, Any, Any]] = []  # (clone, original, contents)
        self._restoring: dict[int, Any] = {}  # objects that the run made
        self.roots = [self._of(r) for r in walk.roots]
        self._begin()

    def _of(self, found: Found) -> Any:
        """Return the clone of an object; itself if it leads to no input."""
        made = self._clones.get(id(found))
        if made is None:
            if id(found) not in self._dirty:
                return found.value
            made = getattr(self, f"_clone_{found.kind}")(found)
            self._clones[id(found)] = made
            self._originals[id(made)] = (made, found.value)
        return made

    def _keep(self, found: Found, made: Any) -> None:
        """Note a clone before its parts are cloned: they may lead back to it."""
        self._clones[id(found)] = made
        self._originals[id(made)] = (made, found.value)

    # -- one kind each ---------------------------------------------------------------------------

    def _clone_function(self, found: Found) -> Any:
        f = found.value
        space: Any = f.__globals__
        if any(e.how == "global" and id(e.child) in self._dirty for e in found.edges):
            space = self._spaces.get(id(space)) or self._spaces.setdefault(id(space), Space(space))
        cells = tuple(
            _CELL() if any(e.key is c and id(e.child) in self._dirty for e in found.edges) else c
            for c in f.__closure__ or ()
        )
        made = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, cells)
        made.__kwdefaults__ = dict(f.__kwdefaults__) if f.__kwdefaults__ else None
        made.__dict__.update(f.__dict__)
        made.__qualname__, made.__module__ = f.__qualname__, f.__module__
        made.__annotations__ = f.__annotations__
        self._keep(found, made)
        defaults = list(f.__defaults__ or ())
        for e in found.edges:
            if id(e.child) not in self._dirty or not e.clones:
                continue
            value = self._of(e.child)
            if e.how == "global":
                space[e.key] = value
            elif e.how == "cell":
                own = next(c for c, o in zip(cells, f.__closure__, strict=True) if o is e.key)
                own.cell_contents = value
                self._cells.append((own, e.key, value))
            elif e.how == "default":
                defaults[e.key] = value
            elif e.how == "keyword":
                made.__kwdefaults__[e.key] = value  # type: ignore[index]
        made.__defaults__ = tuple(defaults) if f.__defaults__ else None
        return made

    def _parts(self, found: Found) -> dict[Any, Any]:
        return {e.key: self._of(e.child) for e in found.edges}

    def _clone_method(self, found: Found) -> Any:
        parts = self._parts(found)
        if any(e.child.kind == "random" for e in found.edges):
            return getattr(parts["__self__"], found.value.__name__)
        return types.MethodType(parts["__func__"], parts["__self__"])

    def _clone_bound(self, found: Found) -> Any:
        return getattr(self._parts(found)["__self__"], found.value.__name__)

    def _clone_partial(self, found: Found) -> Any:
        parts = self._parts(found)
        made = functools.partial(parts["func"], *parts["args"], **parts["keywords"])
        made.__dict__.update(found.value.__dict__)
        return made

    def _clone_jitted(self, found: Found) -> Any:
        return self._parts(found)["_f"]  # inside of a recording it would be called through

    def _clone_transformed(self, found: Found) -> Any:
        return self._parts(found)["_call"]

    def _clone_sequence(self, found: Found) -> Any:
        x = found.value
        if isinstance(x, tuple):
            items = [self._of(e.child) for e in found.edges if e.how == "item"]
            return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
        made = copy.copy(x)
        self._keep(found, made)
        for e in found.edges:
            if e.how == "item":
                made[e.key] = self._of(e.child)
        return made

    def _clone_mapping(self, found: Found) -> Any:
        made = copy.copy(found.value)
        self._keep(found, made)
        for e in found.edges:
            if e.how == "item":
                made[e.key] = self._of(e.child)
        return made

    def _clone_instance(self, found: Found) -> Any:
        obj = found.value
        cls = type(obj)
        made: Any = cls() if cls is types.SimpleNamespace else object.__new__(cls)
        if hasattr(obj, "__dict__"):
            made.__dict__.update(obj.__dict__)
        slots = Slots(obj)
        Slots(made).update({key: slots[key] for key in slots.keys()})  # noqa: SIM118
        self._keep(found, made)
        for e in found.edges:
            if e.clones and id(e.child) in self._dirty:
                value = self._of(e.child)
                if e.how == "slot":
                    e.key.__set__(made, value)
                    continue
                made.__dict__[e.key] = types.MethodType(value, made) if e.how == "method" else value
        return made

    def _clone_module(self, found: Found) -> Any:
        made = types.ModuleType(found.value.__name__)
        made.__dict__.update(found.value.__dict__)
        self._keep(found, made)
        for e in found.edges:
            made.__dict__[e.key] = self._of(e.child)
        return made

    # -- what the run wrote ----------------------------------------------------------------------

    def _begin(self) -> None:
        """Note what the clones, and what was not cloned, hold before the run."""
        self._before: list[tuple[Any, Any, dict[Any, Any]]] = []
        self._classes: set[type] = set()
        for space in self._spaces.values():
            self._before.append((space, space.real, dict(space)))
        globals_: dict[int, Globals] = {}
        for found in self._walk.order:
            original = found.value
            clone = self._clones.get(id(found), original)
            if found.kind == "function" and not is_ours(original.__module__):
                real = original.__globals__
                globals_.setdefault(id(real), Globals(real)).names |= names_in(original.__code__)
                if clone is original:
                    for cell in original.__closure__ or ():
                        self._cells.append((cell, cell, contents(cell)))
            self._note(found, clone)
        for part in globals_.values():
            self._before.append((part, part.real, {n: part[n] for n in part.keys()}))  # noqa: SIM118

    def _note(self, found: Found, clone: Any) -> None:
        """Note what an object, and its clone, hold before the run."""
        original, kind, before = found.value, found.kind, self._before
        if kind == "sequence" and not isinstance(original, tuple):
            before.append((clone, original, dict(enumerate(clone))))
        elif kind == "mapping":
            before.append((clone, original, dict(clone)))
        elif kind in ("instance", "module"):
            if hasattr(original, "__dict__"):
                before.append((clone.__dict__, original.__dict__, dict(clone.__dict__)))
            if isinstance(original, list):
                before.append((clone, original, dict(enumerate(clone))))
            elif isinstance(original, dict):
                before.append((clone, original, dict(clone)))
        pairs: list[tuple[Any, Any]] = []
        if kind == "instance" and any(True for _ in slots_in(type(original))):
            own = Slots(clone)
            pairs.append((own, own if clone is original else Slots(original)))
        if type(original) is set or (kind == "instance" and isinstance(original, set)):
            pairs.append((Elements(original),) * 2)
        elif kind == "objects":
            pairs.append((Cells(original),) * 2)
        for cls in (original if kind == "class" else type(original)).__mro__:
            if cls not in self._classes and not is_library(cls.__module__):
                self._classes.add(cls)
                pairs.append((ClassAttributes(cls),) * 2)
        before += [(a, b, {k: a[k] for k in a.keys()}) for a, b in pairs]  # noqa: SIM118

    def _written(self) -> Iterator[tuple[Any, Any, dict[Any, Any], dict[Any, Any]]]:
        """Yield clone, original, what the clone held before and what it holds, where it differs."""
        for clone, original, before in self._before:
            now = dict(clone) if hasattr(clone, "keys") else dict(enumerate(clone))
            if now.keys() != before.keys() or any(now[k] is not before[k] for k in now):
                yield clone, original, before, now

    def wrote(self) -> bool:
        """Whether the run wrote into an object, a global or a closure."""
        cells = any(contents(own) is not value for own, _, value in self._cells)
        return cells or any(True for _ in self._written())

    def changed(self) -> str:
        """Return the name of what the run wrote into, as the user would write it; "" if unknown."""
        for _, original, before, now in self._written():
            keys = [*(k for k in now if k not in before or before[k] is not now[k]), *before]
            for found in self._walk.order:
                if found.value is original:
                    return _shown(found.name)
                space = getattr(found.value, "__dict__", None)
                if space is original or (
                    isinstance(original, Slots) and original.of is found.value
                ):
                    where = "" if found.kind == "module" else f"{_shown(found.name)}."
                    return f"{where}{keys[0]}"
            if isinstance(original, dict) and "__name__" in original:
                return str(keys[0])
        return ""

    def undo(self) -> None:
        """Take back what the run wrote into the user's own objects; clones are dropped anyway."""
        for clone, original, before, now in list(self._written()):
            own = clone is original or getattr(clone, "real", None) is original
            if not own or isinstance(clone, Space):
                continue
            if hasattr(clone, "keys"):
                for key in now.keys() - before.keys():
                    del original[key]
                original.update(before)
            else:
                original.clear()
                original.extend(before.values())
        for own, cell, value in self._cells:
            if own is cell and contents(own) is not value and value is not cell:
                cell.cell_contents = value

    def hand_back(self) -> bool:
        """Give the user's objects what the run wrote into them; return whether it wrote."""
        wrote = False
        for clone, original, before, now in list(self._written()):
            wrote = True
            if hasattr(clone, "keys"):
                for key in before.keys() - now.keys():
                    original.pop(key, None)
                for key, value in now.items():
                    if key not in before or before[key] is not value:
                        original[key] = self._restored(value)
            else:
                items = [self._restored(x) for x in clone]
                original.clear()
                original.extend(items)
        for own, cell, value in self._cells:
            if contents(own) is not value:
                wrote = True
                cell.cell_contents = self._restored(contents(own))
        return wrote

    def _restored(self, x: Any) -> Any:
        """Return what the user's objects hold in place of a clone or a recorded value."""
        known = self._originals.get(id(x))
        if known is not None:
            return known[1]
        if isinstance(x, Handle):
            if not followed(x):
                return x
            value = concrete(sync_if_view(x))
            return value.copy() if isinstance(value, np.ndarray) else value
        if type(x) is list:
            x[:] = [self._restored(i) for i in x]
        elif type(x) is tuple:
            return tuple(self._restored(i) for i in x)
        elif type(x) is dict:
            for key, value in x.items():
                x[key] = self._restored(value)
        elif not is_library(type(x).__module__) and is_python(type(x)):
            self._restore_attributes(x)
        return x

    def _restore_attributes(self, x: Any) -> None:
        """Restore what an object that the run made holds."""
        if id(x) in self._restoring:
            return
        self._restoring[id(x)] = x
        parts: list[Any] = [Slots(x)]
        if type(getattr(x, "__dict__", None)) is dict:
            parts.append(x.__dict__)
        for part in parts:
            for key in tuple(part.keys()):
                value = self._restored(part[key])
                if value is not part[key]:
                    part[key] = value

    def original(self, x: Any) -> Any:
        """Return the user's object in place of its clone; an input's value stays as it is."""
        known = self._originals.get(id(x))
        return x if known is None or isinstance(x, Handle) else known[1]


def _shown(name: str) -> str:
    """Return the name of something found as the function's own code has it."""
    name = re.sub(r" \(a closure of [^)]*\)", "", name)
    return re.sub(r"^the object of [^.]+", "self", name)


def _leading_to(targets: set[int], walk: Walk) -> set[int]:
    """Return the identities of what was found that leads to one of `targets` through clones."""
    above: dict[int, list[Found]] = {}
    for found in walk.order:
        for e in found.edges:
            if e.clones:
                above.setdefault(id(e.child), []).append(found)
    dirty, waiting = set(targets), list(targets)
    while waiting:
        for found in above.get(waiting.pop(), ()):
            if id(found) not in dirty:
                dirty.add(id(found))
                waiting.append(id(found))
    return dirty
