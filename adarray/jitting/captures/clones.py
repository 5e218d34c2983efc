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
from adarray.jitting.captures.effects import GrowingList, StateBefore, held
from adarray.jitting.captures.fingerprints import is_python, slots_in
from adarray.jitting.captures.kinds import is_library, is_ours, names_in, stored_in
from adarray.jitting.captures.parts import Cells, ClassAttributes, Elements, Slots
from adarray.jitting.captures.walk import CapturedObject, CaptureWalk

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
    walk : CaptureWalk
    inputs : list of Input
    values : list
        What takes the place of each input.
    """

    def __init__(self, walk: CaptureWalk, inputs: list[Input], values: list[Any]) -> None:
        self._walk = walk
        self._clones: dict[int, Any] = {id(i.found): v for i, v in zip(inputs, values, strict=True)}
        self._originals: dict[int, tuple[Any, Any]] = {}  # id of clone -> clone, original
        for i, v in zip(inputs, values, strict=True):
            self._originals[id(v)] = (v, i.found.value)
        for found in walk.order:
            # Their caches must not hold what a run computes: see adarray.jitting.captures.cached.
            if found.kind == "cached" and is_cached(found.value):
                self._keep(found, remembered(found.value))
        growing = [found for found in walk.order if found.grows(walk.growing)]
        self._dirty, self._shared = _with_globals({*self._clones, *map(id, growing)}, walk)
        self._spaces: dict[int, Space] = {}  # by the identity of the globals
        self._own_cells: dict[int, Any] = {}  # by the identity of the cell that each stands for
        self._cells: list[tuple[Any, Any, Any]] = []  # (clone, original, contents)
        self._restoring: dict[int, Any] = {}  # objects that the run made
        self._values: dict[int, tuple[Handle, Any]] = {}  # by the identity of the handle
        self.roots = [self._of(r) for r in walk.roots]
        self._begin()

    def _of(self, found: CapturedObject) -> Any:
        """Return the clone of an object; itself if it leads to no input."""
        made = self._clones.get(id(found))
        if made is None:
            if id(found) not in self._dirty:
                return found.value
            made = getattr(self, f"_clone_{found.kind}")(found)
            self._clones[id(found)] = made
            self._originals[id(made)] = (made, found.value)
        return made

    def _keep(self, found: CapturedObject, made: Any) -> None:
        """Note a clone before its parts are cloned: they may lead back to it."""
        self._clones[id(found)] = made
        self._originals[id(made)] = (made, found.value)

    # -- one kind each ---------------------------------------------------------------------------

    def _clone_function(self, found: CapturedObject) -> Any:
        f = found.value
        space: Any = f.__globals__
        if id(space) in self._shared:
            space = self._spaces.get(id(space)) or self._spaces.setdefault(id(space), Space(space))
        changing = {id(e.key) for e in found.edges if id(e.child) in self._dirty}
        cells = tuple(
            self._own_cells.setdefault(id(c), _CELL()) if id(c) in changing else c
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

    def _parts(self, found: CapturedObject) -> dict[Any, Any]:
        return {e.key: self._of(e.child) for e in found.edges}

    def _clone_method(self, found: CapturedObject) -> Any:
        parts = self._parts(found)
        if any(e.child.kind == "random" for e in found.edges):
            return getattr(parts["__self__"], found.value.__name__)
        return types.MethodType(parts["__func__"], parts["__self__"])

    def _clone_bound(self, found: CapturedObject) -> Any:
        return getattr(self._parts(found)["__self__"], found.value.__name__)

    def _clone_partial(self, found: CapturedObject) -> Any:
        parts = self._parts(found)
        made = functools.partial(parts["func"], *parts["args"], **parts["keywords"])
        made.__dict__.update(found.value.__dict__)
        return made

    def _clone_jitted(self, found: CapturedObject) -> Any:
        return self._parts(found)["_f"]  # inside of a recording it would be called through

    def _clone_transformed(self, found: CapturedObject) -> Any:
        return self._parts(found)["_call"]

    def _clone_whole(self, found: CapturedObject) -> Any:
        return found.value.over(self._parts(found))

    def _clone_sequence(self, found: CapturedObject) -> Any:
        x = found.value
        if isinstance(x, tuple):
            items = [self._of(e.child) for e in found.edges if e.how == "item"]
            return type(x)(*items) if hasattr(x, "_fields") else tuple(items)
        if found.grows(self._walk.growing):
            return GrowingList(x)
        made = copy.copy(x)
        self._keep(found, made)
        for e in found.edges:
            if e.how == "item":
                made[e.key] = self._of(e.child)
        return made

    def _clone_mapping(self, found: CapturedObject) -> Any:
        made = copy.copy(found.value)
        self._keep(found, made)
        for e in found.edges:
            if e.how == "item":
                made[e.key] = self._of(e.child)
        return made

    def _clone_instance(self, found: CapturedObject) -> Any:
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

    def _clone_module(self, found: CapturedObject) -> Any:
        made = types.ModuleType(found.value.__name__)
        made.__dict__.update(found.value.__dict__)
        self._keep(found, made)
        for e in found.edges:
            made.__dict__[e.key] = self._of(e.child)
        return made

    # -- what the run wrote ----------------------------------------------------------------------

    def _begin(self) -> None:
        """Note what the clones, and what was not cloned, hold before the run."""
        self._before: list[StateBefore] = []
        self._classes: set[type] = set()
        for space in self._spaces.values():
            self._before.append(StateBefore(space, space.real, dict(space), "global", None))
        globals_: dict[int, Globals] = {}
        shared: set[int] = set()  # cells that clones and originals have in common
        for found in self._walk.order:
            original = found.value
            clone = self._clones.get(id(found), original)
            if found.kind == "function" and not is_ours(original.__module__):
                real = original.__globals__
                globals_.setdefault(id(real), Globals(real)).names |= names_in(original.__code__)
                for own, cell in zip(
                    clone.__closure__ or (), original.__closure__ or (), strict=True
                ):
                    if own is cell and id(cell) not in shared:
                        shared.add(id(cell))
                        self._cells.append((cell, cell, contents(cell)))
            self._note(found, clone)
            if found.hidden and clone is not original and found.kind != "array":
                self._note(found, original)
        for part in globals_.values():
            before = {n: part[n] for n in part.keys()}  # noqa: SIM118
            self._before.append(StateBefore(part, part.real, before, "global", None))

    def _note(self, found: CapturedObject, clone: Any) -> None:
        """Note what an object, and its clone, hold before the run."""
        original, kind = found.value, found.kind
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
        for cls in (original if kind == "class" else type(original)).__mro__:
            if cls not in self._classes and not is_library(cls.__module__):
                self._classes.add(cls)
                parts.append((ClassAttributes(cls),) * 2 + ("",))
        self._before += [StateBefore(a, b, held(a), how, found) for a, b, how in parts]

    def written(self) -> Iterator[tuple[StateBefore, dict[Any, Any]]]:
        """Yield what was noted of each object that differs now, and what its clone holds."""
        for noted in self._before:
            now = held(noted.clone)
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
        for (_, original, before, how, found), now in self.written():
            if found is not None:
                if found.hidden and self._clones.get(id(found), found.value) is not found.value:
                    return _shown(found.name)
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
        return id(x) in self._originals or any(x is found.value for found in self._walk.order)

    def looked(self) -> str:
        """Return the name of a list that grows and was read; "" if there is none."""
        for noted in self._before:
            if isinstance(noted.clone, GrowingList) and noted.clone.looked:
                return _shown(noted.found.name)
        return ""

    def wrote(self) -> bool:
        """Whether the run wrote into an object, a global or a closure."""
        return any(True for _ in self.cells_written()) or any(True for _ in self.written())

    def changed(self) -> str:
        """Return the name of what the run wrote into, as the user would write it; "" if unknown."""
        for (_, original, before, *_), now in self.written():
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
        """Return what the user's objects hold in place of a clone or a recorded value."""
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
    items = {k: dict.pop(mapping, k) for k in keys if k in mapping}
    dict.update(mapping, items)


def _shown(name: str) -> str:
    """Return the name of something found as the function's own code has it."""
    name = re.sub(r" \(a closure of [^)]*\)", "", name)
    return re.sub(r"^the object of [^.]+", "self", name)


def _with_globals(targets: set[int], walk: CaptureWalk) -> tuple[set[int], set[int]]:
    """Return what leads to one of `targets`, and the globals that its functions get copies of.

    By identity. Where one function assigns a global, all that use it must see the same globals.
    """
    functions = [found for found in walk.order if found.kind == "function"]
    stored: dict[int, frozenset[str]] = {}
    for found in functions:
        space = id(found.value.__globals__)
        stored[space] = stored.get(space, frozenset()) | stored_in(found.value.__code__)
    while True:
        dirty = _leading_to(targets, walk)
        shared = {
            id(found.value.__globals__)
            for found in functions
            if any(e.how == "global" and id(e.child) in dirty for e in found.edges)
        }
        more = {
            id(found)
            for found in functions
            if id(found) not in dirty
            and id(found.value.__globals__) in shared
            and not stored[id(found.value.__globals__)].isdisjoint(names_in(found.value.__code__))
        }
        if not more:
            return dirty, shared
        targets = targets | more


def _leading_to(targets: set[int], walk: CaptureWalk) -> set[int]:
    """Return the identities of what was found that leads to one of `targets` through clones."""
    above: dict[int, list[CapturedObject]] = {}
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
