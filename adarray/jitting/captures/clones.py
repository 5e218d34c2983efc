"""A clone of a function in which inputs of a recording stand for what it captured.

Functions get globals, closure cells and defaults of their own; objects, lists and
dictionaries on the way to a captured array are copied. Nothing of the user's is touched,
so that other threads see nothing, and what a run writes into its captured state can be
found and handed back.
"""

from __future__ import annotations

import collections
import copy
import functools
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from adarray.core.inplace import sync_if_view
from adarray.core.protocol import concrete, followed
from adarray.core.trace import Handle
from adarray.intercepting.memory import is_cached
from adarray.intercepting.standins import remembered
from adarray.jitting.captures.checks import Input
from adarray.jitting.captures.effects import GrowingList, StateBefore, items_of
from adarray.jitting.captures.fingerprints import is_python, slots_in
from adarray.jitting.captures.kinds import is_library, is_ours, names_in, stored_in
from adarray.jitting.captures.objects import CapturedObject
from adarray.jitting.captures.parts import (
    ArrayForm,
    Cells,
    ClassAttributes,
    Elements,
    ObjectParts,
    Slots,
)
from adarray.jitting.captures.walk import CaptureWalk

_CELL = types.CellType
_NOTHING = object()
_COPIED_GLOBALS = ("__name__", "__package__", "__spec__", "__loader__", "__file__", "__builtins__",
                 "__doc__")  # fmt: skip


class Space(dict):  # type: ignore[type-arg]
    """Globals of a cloned function: its own, then those of the original."""

    def __init__(self, real: dict[str, Any]) -> None:
        super().__init__({k: real[k] for k in _COPIED_GLOBALS if k in real})
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
    """Return the contents of a closure cell; itself if it is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return cell


class Clones:
    """Clones of what leads to captured inputs.

    Parameters
    ----------
    walk : CaptureWalk
    inputs : list of Input
    values : list
        What takes the place of each input.
    """

    def __init__(self, walk: CaptureWalk, inputs: list[Input], values: list[Any]) -> None:
        self._walk = walk
        self._clones: dict[int, Any] = {
            id(i.captured): v for i, v in zip(inputs, values, strict=True)
        }
        self._originals: dict[int, tuple[Any, Any]] = {}  # id of clone -> clone, original
        for i, v in zip(inputs, values, strict=True):
            self._originals[id(v)] = (v, i.captured.value)
        for obj in walk.order:
            # Their caches must not hold what a run computes: see adarray.jitting.captures.cached.
            if obj.kind == "cached" and is_cached(obj.value):
                self._keep(obj, remembered(obj.value))
        growing = [obj for obj in walk.order if obj.grows(walk.growing)]
        self._dirty, self._shared = _with_globals({*self._clones, *map(id, growing)}, walk)
        self._spaces: dict[int, Space] = {}  # by the identity of the globals
        self._own_cells: dict[int, Any] = {}  # by the identity of the cell that each stands for
        self._cells: list[tuple[Any, Any, Any]] = []  # (clone, original, contents)
        self._restoring: dict[int, Any] = {}  # objects that the run made
        self._values: dict[int, tuple[Handle, Any]] = {}  # by the identity of the handle
        self.roots = [self._of(r) for r in walk.roots]
        self._begin()

    def _of(self, obj: CapturedObject) -> Any:
        """Return the clone of an object; itself if it leads to no input."""
        clone = self._clones.get(id(obj))
        if clone is None:
            if id(obj) not in self._dirty:
                return obj.value
            clone = getattr(self, f"_clone_{obj.kind}")(obj)
            self._clones[id(obj)] = clone
            self._originals[id(clone)] = (clone, obj.value)
        return clone

    def _keep(self, obj: CapturedObject, clone: Any) -> None:
        """Note a clone before its parts are cloned: they may lead back to it."""
        self._clones[id(obj)] = clone
        self._originals[id(clone)] = (clone, obj.value)

    # -- one kind each ---------------------------------------------------------------------------

    def _clone_function(self, obj: CapturedObject) -> Any:
        f = obj.value
        space: Any = f.__globals__
        if id(space) in self._shared:
            space = self._spaces.get(id(space)) or self._spaces.setdefault(id(space), Space(space))
        changing = {id(e.key) for e in obj.edges if id(e.child) in self._dirty}
        cells = tuple(
            self._own_cells.setdefault(id(c), _CELL()) if id(c) in changing else c
            for c in f.__closure__ or ()
        )
        clone = types.FunctionType(f.__code__, space, f.__name__, f.__defaults__, cells)
        clone.__kwdefaults__ = dict(f.__kwdefaults__) if f.__kwdefaults__ else None
        clone.__dict__.update(f.__dict__)
        clone.__qualname__, clone.__module__ = f.__qualname__, f.__module__
        clone.__annotations__ = f.__annotations__
        self._keep(obj, clone)
        defaults = list(f.__defaults__ or ())
        for e in obj.edges:
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
                clone.__kwdefaults__[e.key] = value  # type: ignore[index]
        clone.__defaults__ = tuple(defaults) if f.__defaults__ else None
        return clone

    def _parts(self, obj: CapturedObject) -> dict[Any, Any]:
        return {e.key: self._of(e.child) for e in obj.edges}

    def _clone_method(self, obj: CapturedObject) -> Any:
        parts = self._parts(obj)
        if any(e.child.kind == "random" for e in obj.edges):
            return getattr(parts["__self__"], obj.value.__name__)
        return types.MethodType(parts["__func__"], parts["__self__"])

    def _clone_bound(self, obj: CapturedObject) -> Any:
        return getattr(self._parts(obj)["__self__"], obj.value.__name__)

    def _clone_partial(self, obj: CapturedObject) -> Any:
        parts = self._parts(obj)
        clone = functools.partial(parts["func"], *parts["args"], **parts["keywords"])
        clone.__dict__.update(obj.value.__dict__)
        return clone

    def _clone_jitted(self, obj: CapturedObject) -> Any:
        return self._parts(obj)["_f"]  # inside of a recording it would be called through

    def _clone_transformed(self, obj: CapturedObject) -> Any:
        return self._parts(obj)["_call"]

    def _clone_whole(self, obj: CapturedObject) -> Any:
        return obj.value.over(self._parts(obj))

    def _clone_sequence(self, obj: CapturedObject) -> Any:
        x = obj.value
        if isinstance(x, tuple):
            items = [self._of(e.child) for e in obj.edges if e.how == "item"]
            return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
        if obj.grows(self._walk.growing):
            return GrowingList(x)
        clone = copy.copy(x)
        self._keep(obj, clone)
        for e in obj.edges:
            if e.how == "item":
                clone[e.key] = self._of(e.child)
        return clone

    def _clone_mapping(self, obj: CapturedObject) -> Any:
        clone = copy.copy(obj.value)
        self._keep(obj, clone)
        for e in obj.edges:
            if e.how == "item":
                clone[e.key] = self._of(e.child)
        return clone

    def _clone_instance(self, obj: CapturedObject) -> Any:
        instance = obj.value
        cls = type(instance)
        clone: Any = cls() if cls is types.SimpleNamespace else object.__new__(cls)
        if hasattr(instance, "__dict__"):
            clone.__dict__.update(instance.__dict__)
        slots = Slots(instance)
        Slots(clone).update({key: slots[key] for key in slots.keys()})  # noqa: SIM118
        self._keep(obj, clone)
        for e in obj.edges:
            if e.clones and id(e.child) in self._dirty:
                value = self._of(e.child)
                if e.how == "slot":
                    e.key.__set__(clone, value)
                    continue
                clone.__dict__[e.key] = (
                    types.MethodType(value, clone) if e.how == "method" else value
                )
        return clone

    def _clone_module(self, obj: CapturedObject) -> Any:
        clone = types.ModuleType(obj.value.__name__)
        clone.__dict__.update(obj.value.__dict__)
        self._keep(obj, clone)
        for e in obj.edges:
            clone.__dict__[e.key] = self._of(e.child)
        return clone

    # -- what the run wrote ----------------------------------------------------------------------

    def _begin(self) -> None:
        """Note what the clones, and what was not cloned, hold before the run."""
        self._before: list[StateBefore] = []
        self._classes: set[type] = set()
        for space in self._spaces.values():
            self._before.append(StateBefore(space, space.real, dict(space), "global", None))
        globals_: dict[int, Globals] = {}
        shared: set[int] = set()  # cells that clones and originals have in common
        for obj in self._walk.order:
            original = obj.value
            clone = self._clones.get(id(obj), original)
            if obj.kind == "function" and not is_ours(original.__module__):
                real = original.__globals__
                globals_.setdefault(id(real), Globals(real)).names |= names_in(original.__code__)
                for own, cell in zip(
                    clone.__closure__ or (), original.__closure__ or (), strict=True
                ):
                    if own is cell and id(cell) not in shared:
                        shared.add(id(cell))
                        self._cells.append((cell, cell, contents(cell)))
            self._note(obj, clone)
            if obj.hidden and clone is not original and obj.kind != "array":
                self._note(obj, original)
        for part in globals_.values():
            before = {n: part[n] for n in part.keys()}  # noqa: SIM118
            self._before.append(StateBefore(part, part.real, before, "global", None))

    def _note(self, obj: CapturedObject, clone: Any) -> None:
        """Note what an object, and its clone, hold before the run."""
        original, kind = obj.value, obj.kind
        # Clone, original, and how a compiled call can change it as the run does.
        parts: list[tuple[Any, Any, str]] = []
        if kind == "mapping" or (kind == "sequence" and not isinstance(original, tuple)):
            parts.append((clone, original, "item"))
        elif kind in ("instance", "module"):
            if hasattr(original, "__dict__"):
                parts.append((clone.__dict__, original.__dict__, "attribute"))
            if isinstance(original, (list, dict)):
                parts.append((clone, original, ""))
        elif kind == "function":  # what is written there is only taken back
            parts.append((clone.__dict__, original.__dict__, ""))
        if kind == "instance" and any(True for _ in slots_in(type(original))):
            own = Slots(clone)
            parts.append((own, own if clone is original else Slots(original), "slot"))
        if type(original) is set or (kind == "instance" and isinstance(original, set)):
            parts.append((Elements(original),) * 2 + ("",))
        elif kind == "objects":
            parts.append((Cells(original),) * 2 + ("",))
        if isinstance(original, np.ndarray) and (clone is original or obj.hidden):
            parts.append((ArrayForm(original),) * 2 + ("",))
        for cls in (original if kind == "class" else type(original)).__mro__:
            if cls not in self._classes and not is_library(cls.__module__):
                self._classes.add(cls)
                parts.append((ClassAttributes(cls),) * 2 + ("",))
        self._before += [StateBefore(a, b, items_of(a), how, obj) for a, b, how in parts]

    def written(self) -> Iterator[tuple[StateBefore, dict[Any, Any]]]:
        """Yield the record of each object that differs now, and the contents of its clone."""
        for noted in self._before:
            now = items_of(noted.clone)
            before = noted.before
            if list(now) != list(before) or any(now[k] is not before[k] for k in now):
                yield noted, now

    def cells_written(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield the cells that hold something else now: the user's, and what they held and hold."""
        for own, cell, value in self._cells:
            now = contents(own)
            if now is not value:
                yield cell, value, now

    def split(self) -> str:
        """Return the name of what was changed, and is reached by ways with and without clones.

        What one half of the code has written, the other half has not seen.
        """
        loose = [f for f in self._walk.order if f.kind == "function" and f.hidden]
        for (_, original, before, how, obj), now in self.written():
            if obj is not None:
                if obj.hidden and self._clones.get(id(obj), obj.value) is not obj.value:
                    return _shown(obj.name)
            elif how == "global" and id(original) in self._spaces:
                changed = {k for k in now if k not in before or before[k] is not now[k]}
                for f in loose:
                    if f.value.__globals__ is original and changed & names_in(f.value.__code__):
                        return str(min(changed))
        for cell, _, _ in self.cells_written():
            if id(cell) in self._own_cells:
                for f in loose:
                    if any(c is cell for c in f.value.__closure__ or ()):
                        return f"a variable of {_shown(f.name)}"
        return ""

    def knows(self, x: Any) -> bool:
        """Whether an object was there before the run, or is the clone of one."""
        return id(x) in self._originals or any(x is obj.value for obj in self._walk.order)

    def unexpected_read(self) -> str:
        """Return the name of a list that grows and was read; "" if there is none."""
        for noted in self._before:
            if isinstance(noted.clone, GrowingList) and noted.clone.was_read:
                return _shown(noted.captured.name)
        return ""

    def wrote(self) -> bool:
        """Whether the run wrote into an object, a global or a closure."""
        return any(True for _ in self.cells_written()) or any(True for _ in self.written())

    def changed(self) -> str:
        """Return the name of what the run wrote into, as the user would write it; "" if unknown."""
        for (_, original, before, *_), now in self.written():
            keys = [*(k for k in now if k not in before or before[k] is not now[k]), *before]
            for obj in self._walk.order:
                if obj.value is original:
                    return _shown(obj.name)
                space = getattr(obj.value, "__dict__", None)
                of = original.of if isinstance(original, ObjectParts) else original
                if space is of or of is obj.value:
                    where = "" if obj.kind == "module" else f"{_shown(obj.name)}."
                    return f"{where}{keys[0]}"
            if isinstance(original, dict) and "__name__" in original:
                return str(keys[0])
        return ""

    def undo(self) -> None:
        """Take back what the run wrote into the user's own objects; clones are dropped anyway."""
        for (clone, original, before, *_), now in list(self.written()):
            own = clone is original or getattr(clone, "real", None) is original
            if not own or isinstance(clone, Space):
                continue
            if hasattr(clone, "keys"):
                for key in now.keys() - before.keys():
                    _drop(original, key)
                for key, value in before.items():
                    if key not in now or now[key] is not value:
                        _put(original, key, value)
                if isinstance(original, dict) and list(original) != list(before):
                    _sort(original, before)
            else:
                _fill(original, before.values())
        for own, cell, value in self._cells:
            if own is cell and contents(own) is not value and value is not cell:
                cell.cell_contents = value

    def hand_back(self, values: Iterable[tuple[Handle, Any]] = ()) -> bool:
        """Give the user's objects what the run wrote into them; return whether it wrote.

        `values` are the user's arrays in the places of what stood for them in the run.
        """
        self._values = {id(handle): (handle, x) for handle, x in values}
        wrote = False
        for (clone, original, before, *_), now in list(self.written()):
            wrote = True
            if hasattr(clone, "keys"):
                for key in before.keys() - now.keys():
                    if key in original:
                        _drop(original, key)
                for key, value in now.items():
                    if key not in before or before[key] is not value:
                        _put(original, key, self._restored(value))
                if isinstance(original, dict) and list(original) != list(now):
                    _sort(original, now)
            else:
                _fill(original, [self._restored(x) for x in now.values()])
        for own, cell, value in self._cells:
            if contents(own) is not value:
                wrote = True
                cell.cell_contents = self._restored(contents(own))
        self._values.clear()  # handles lead back to whoever holds this
        return wrote

    def _restored(self, x: Any) -> Any:
        """Return the user's object or value for a clone or a recorded value."""
        known = self._originals.get(id(x))
        if known is not None:
            return known[1]
        if isinstance(x, Handle):
            if not followed(x):
                return x
            if id(x) not in self._values:
                value = concrete(sync_if_view(x))
                self._values[id(x)] = x, value.copy() if isinstance(value, np.ndarray) else value
            return self._values[id(x)][1]
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


# Methods of Python's own classes: those of subclasses may do more, as Counter's `update` does.


def _put(mapping: Any, key: Any, value: Any) -> None:
    if isinstance(mapping, dict) and not isinstance(mapping, collections.OrderedDict):
        dict.__setitem__(mapping, key, value)
    else:
        mapping[key] = value


def _drop(mapping: Any, key: Any) -> None:
    if isinstance(mapping, dict) and not isinstance(mapping, collections.OrderedDict):
        dict.__delitem__(mapping, key)
    else:
        del mapping[key]


def _fill(sequence: Any, items: Iterable[Any]) -> None:
    if isinstance(sequence, list):
        list.__setitem__(sequence, slice(None), list(items))
    else:
        sequence.clear()
        sequence.extend(items)


def _sort(mapping: dict[Any, Any], keys: Iterable[Any]) -> None:
    """Put those of the keys of a mapping that are among `keys` into their order, others first."""
    base = collections.OrderedDict if isinstance(mapping, collections.OrderedDict) else dict
    for key in [k for k in keys if k in mapping]:
        value = base.pop(mapping, key)
        base.__setitem__(mapping, key, value)


def _shown(name: str) -> str:
    """Return the name of something found as the function's own code has it."""
    name = re.sub(r" \(a closure of [^)]*\)", "", name)
    return re.sub(r"^the object of [^.]+", "self", name)


def _with_globals(targets: set[int], walk: CaptureWalk) -> tuple[set[int], set[int]]:
    """Return the objects that lead to `targets`, and the globals their functions get copies of.

    By identity. Where one function assigns a global, all that use it must see the same globals.
    """
    functions = [obj for obj in walk.order if obj.kind == "function"]
    stored: dict[int, frozenset[str]] = {}
    for function in functions:
        space = id(function.value.__globals__)
        stored[space] = stored.get(space, frozenset()) | stored_in(function.value.__code__)
    while True:
        dirty = _leading_to(targets, walk)
        shared = {
            id(function.value.__globals__)
            for function in functions
            if any(e.how == "global" and id(e.child) in dirty for e in function.edges)
        }
        more = {
            id(function)
            for function in functions
            if id(function) not in dirty
            and id(function.value.__globals__) in shared
            and not stored[id(function.value.__globals__)].isdisjoint(
                names_in(function.value.__code__)
            )
        }
        if not more:
            return dirty, shared
        targets = targets | more


def _leading_to(targets: set[int], walk: CaptureWalk) -> set[int]:
    """Return the identities of the objects that lead to `targets` through clones."""
    above: dict[int, list[CapturedObject]] = {}
    for obj in walk.order:
        for e in obj.edges:
            if e.clones:
                above.setdefault(id(e.child), []).append(obj)
    dirty, waiting = set(targets), list(targets)
    while waiting:
        for obj in above.get(waiting.pop(), ()):
            if id(obj) not in dirty:
                dirty.add(id(obj))
                waiting.append(id(obj))
    return dirty
