"""What compiled calls change besides arrays: attributes, items, globals, and lists that grow.

A recorded run writes into clones of the objects that the function captured
(`adarray.jitting.captures.clones`). What it has put there in the end are further results of the
compiled program, and each call puts them into the objects that are found there then. Numbers that
a run changes become inputs. A list that a run only appends to need not be compared in each call:
the run gets one that notices when it is read.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from adarray.core.loads import STANDS_FOR
from adarray.core.trace import Handle
from adarray.jitting.captures.parts import Slots
from adarray.jitting.shared.keys import Same

# Numbers that are inputs where they change.
NUMBERS = (float, int, np.float64, np.float32)
# Values that are what they are: no other object can take their place between two calls.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# What reads the items of a list in C, without asking it.
_UNSEEN = frozenset({"heappush", "heappop", "heapify", "heapreplace", "heappushpop"})


class Effect(NamedTuple):
    """One change that each call makes.

    Parameters
    ----------
    how : {"attribute", "slot", "item", "append", "global", "cell"}
    place : int or Same
        What is changed: the number of an object among those that the walk over captured state
        has found; a dictionary of globals; a closure cell.
    key : any
        Name, index or key; None for cells and lists that grow.
    name : str
        What is changed, as the user would write it.
    argument_path : tuple or None
        Where in ``(args, kwargs)`` the value is, if it is a container that the caller has passed.
    """

    how: str
    place: Any
    key: Any
    name: str
    argument_path: tuple[Any, ...] | None = None


class StateChanges(NamedTuple):
    """What a run has changed.

    Parameters
    ----------
    effects : tuple of Effect
    values : list
        Of each of them, as the run computed it.
    numbers : set of str
        Captured numbers that were changed, and were no inputs.
    lists : set of str
        Captured lists that were appended to, and that could have been read.
    repeats : bool
        Whether a compiled call can make the same changes. If not, the rest says nothing.
    """

    @property
    def needs_another_run(self) -> bool:
        """Whether another run, which knows `numbers` and `lists`, is to be compiled."""
        return bool(self.numbers or self.lists)

    effects: tuple[Effect, ...] = ()
    values: list[Any] = []  # noqa: RUF012  (never changed)
    numbers: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    repeats: bool = True


class StateBefore(NamedTuple):
    """What a clone, or an object that was not cloned, held before a run.

    Parameters
    ----------
    clone, original : object
        Mappings or lists.
    before : dict
    how : str
        As of an `Effect`; "" where changes cannot be repeated.
    captured : CapturedObject or None
        The object; None for globals.
    """

    clone: Any
    original: Any
    before: dict[Any, Any]
    how: str
    captured: Any


def items_of(x: Any) -> dict[Any, Any]:
    """Return the items of a mapping or a list by key; a list that notes reads notes none."""
    if hasattr(x, "keys"):
        return {key: x[key] for key in x.keys()} if isinstance(x, Slots) else dict(x)  # noqa: SIM118
    return dict(enumerate(list.__iter__(x) if isinstance(x, list) else x))


# -- lists that only grow ------------------------------------------------------------------------


class GrowingList(list):  # type: ignore[type-arg]
    """A list that notes whether the items that it had at first are read."""

    __slots__ = ("before", "was_read")
    __class__ = list  # type: ignore[assignment]  # answers ``x.__class__``

    def __init__(self, items: list[Any]) -> None:
        list.__init__(self, items)
        self.before = list.__len__(self)
        self.was_read = False

    def append(self, item: Any) -> None:
        """Append an item."""
        list.append(self, item)

    def extend(self, items: Any) -> None:
        """Append items."""
        list.extend(self, items)

    def __iadd__(self, items: Any) -> Any:  # type: ignore[misc]
        list.extend(self, items)
        return self

    def __radd__(self, items: Any) -> Any:
        self.was_read = True
        return items + list(list.__iter__(self))

    def __reduce_ex__(self, protocol: Any) -> Any:  # copies are lists
        self.was_read = True
        return list, (list(list.__iter__(self)),)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, SupportsIndex) or not self._is_new(key.__index__()):
            self.was_read = True
        return list.__getitem__(self, key)

    def _is_new(self, index: int) -> bool:
        """Whether an index, from the end, is that of an item that was appended meanwhile."""
        return self.before - list.__len__(self) <= index < 0


def _reading(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def read(self: GrowingList, *args: Any, **kwargs: Any) -> Any:
        self.was_read = True
        return method(self, *args, **kwargs)

    return read


for _method in sorted({
    "__len__", "__iter__", "__contains__", "__eq__", "__ne__", "__lt__", "__le__", "__gt__",
    "__ge__", "__add__", "__mul__", "__rmul__", "__imul__", "__reversed__", "__setitem__",
    "__delitem__", "__repr__", "clear", "copy", "count", "index", "insert", "pop",
    "remove", "reverse", "sort", "__sizeof__",
}):  # fmt: skip
    setattr(GrowingList, _method, _reading(_method))
GrowingList.__hash__ = None  # as that of a list
STANDS_FOR[GrowingList] = list  # answers ``type(x)``


def can_grow(obj: Any, names: set[str]) -> bool:
    """Whether a captured list that a run appended to can be one that notices reads."""
    own = obj is not None and obj.direct and not obj.hidden
    return own and type(obj.value) is list and _UNSEEN.isdisjoint(names)


# -- what a run has changed ----------------------------------------------------------------------


class EffectReader:
    """Finds what a run has changed, while its values can still be recorded.

    Parameters
    ----------
    clones : Clones
    order : list of CapturedObject
    names : set of str
        What the code that was found calls things by.
    numbers : set of str
        Names of captured numbers that are inputs already.
    """

    def __init__(self, clones: Any, order: list[Any], names: set[str], numbers: set[str]) -> None:
        self._clones = clones
        self._order = order
        self._names = names
        self._inputs = numbers
        self._effects: list[Effect] = []
        self._values: list[Any] = []
        self._numbers: set[str] = set()
        self._lists: set[str] = set()
        self._containers: set[int] = set()
        self._argument_paths: dict[int, tuple[Any, ...]] = {}

    def read(self, result: Any, args: Any) -> StateChanges:
        """Return the changes.

        Parameters
        ----------
        result : any
            What the function returned.
        args : tuple
            ``(args, kwargs)`` of the run.
        """
        self._argument_paths = dict(_containers(args, ()))
        self._places = {id(obj): i for i, obj in enumerate(self._order)}
        containers = list(_containers(result, ()))
        self._containers = {i for i, _ in containers}
        repeats = all(self._note(noted, now) for noted, now in self._clones.written())
        repeats = repeats and all(
            self._cell(cell, before, now) for cell, before, now in self._clones.cells_written()
        )
        if not repeats:
            return StateChanges(repeats=False)
        numbers, lists = frozenset(self._numbers), frozenset(self._lists)
        return StateChanges(tuple(self._effects), self._values, numbers, lists)

    def _note(self, noted: StateBefore, now: dict[Any, Any]) -> bool:
        """Note the changes of one object; return whether they can be repeated."""
        before, obj, how = noted.before, noted.captured, noted.how
        if not how or not before.keys() <= now.keys():
            return False
        if isinstance(noted.original, dict) and list(now)[: len(before)] != list(before):
            return False  # something was removed, and came back behind the others
        if isinstance(noted.original, collections.deque) and len(now) != len(before):
            return False  # its items move
        place: Any = Same(noted.original)
        if obj is not None:
            place = self._places[id(obj)]
            if obj.hidden or not obj.direct:
                return False
        changed = [k for k in now if k not in before or before[k] is not now[k]]
        if isinstance(noted.original, list) and len(now) > len(before):
            if changed[0] < len(before) or not can_grow(obj, self._names):
                return False
            if not isinstance(noted.clone, GrowingList):
                self._lists.add(obj.name)
            return self._add("append", place, None, obj.name, [now[k] for k in changed])
        for key in changed:
            if type(key) not in _PLAIN:
                return False
            self._learn([e for e in self._edges(noted) if _key(e) == key])
            if not self._add(how, place, key, _name(noted, key), now[key]):
                return False
        return True

    def _cell(self, cell: Any, before: Any, now: Any) -> bool:
        """Note that a variable of an enclosing function was changed."""
        if type(before) is types.CellType:  # it was not assigned
            return False
        edges = [e for f in self._order for e in f.edges if e.how == "cell" and e.key is cell]
        self._learn(edges)
        name = edges[0].child.name if edges else "a closure"
        return self._add("cell", Same(cell), None, name, now)

    def _edges(self, noted: StateBefore) -> list[Any]:
        if noted.captured is not None:
            return [e for e in noted.captured.edges if e.how in (noted.how, "module")]
        return [
            e
            for f in self._order
            for e in f.edges
            if e.how == "global" and f.value.__globals__ is noted.original
        ]

    def _learn(self, edges: list[Any]) -> None:
        """Note that numbers that these edges lead to are changed: they have to be inputs."""
        waiting = [edge.child for edge in edges]
        for child in waiting:
            own = child.direct and not child.hidden
            if child.kind in ("sequence", "mapping") and own:  # which another one replaces
                waiting += [edge.child for edge in child.edges if edge.child not in waiting]
            elif type(child.value) in NUMBERS and own and child.name not in self._inputs:
                self._numbers.add(child.name)

    def _add(self, how: str, place: Any, key: Any, name: str, value: Any) -> bool:
        """Note one change; return whether it can be repeated."""
        path = self._argument_paths.get(id(value)) if _is_container(value) else None
        if path is not None:
            value = None
        elif not self._is_value(value):
            return False
        self._effects.append(Effect(how, place, key, name, path))
        self._values.append(value)
        return True

    def _is_value(self, x: Any) -> bool:
        """Whether something can be made anew in each call, from computed values."""
        if _is_container(x):
            # What is held in two places, or was there before, is one object in both.
            if id(x) in self._containers or id(x) in self._argument_paths or self._clones.knows(x):
                return False
            self._containers.add(id(x))
            if type(x) is dict and not all(type(key) in _PLAIN for key in x):
                return False
            return all(self._is_value(i) for i in (x.values() if type(x) is dict else x))
        if type(x) is np.ndarray:
            return x.dtype.kind in "biufc"
        return isinstance(x, (Handle, np.generic)) or type(x) in _PLAIN


def _is_container(x: Any) -> bool:
    return type(x) in (list, dict, tuple) and bool(x or type(x) is not tuple)


def _containers(x: Any, path: tuple[Any, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the identity of each list, tuple and dict in a nest, and where it is."""
    if _is_container(x):
        yield id(x), path
        for key, part in x.items() if type(x) is dict else enumerate(x):
            yield from _containers(part, (*path, key))


def _key(edge: Any) -> Any:
    return edge.key.__name__ if edge.how == "slot" else edge.key


def _name(noted: StateBefore, key: Any) -> str:
    if noted.captured is None:
        return str(key)
    name = noted.captured.name
    return f"{name}[{key!r}]" if noted.how == "item" else f"{name}.{key}"


# -- what a call does ----------------------------------------------------------------------------


def apply(
    effects: tuple[Effect, ...], objects: list[Any], values: list[Any], args: tuple[Any, ...]
) -> None:
    """Make the changes of a call.

    Parameters
    ----------
    effects : tuple of Effect
    objects : list
        Those that effects with a number as their place change, in their order.
    values : list
        Of each effect.
    args : tuple
        ``(args, kwargs)`` of the call.
    """
    owners = iter(objects)
    for effect, value in zip(effects, values, strict=True):
        owner = effect.place.of if type(effect.place) is Same else next(owners)
        if effect.argument_path is not None:
            value = args
            for key in effect.argument_path:
                value = value[key]
        if effect.how == "append":
            owner.extend(value)
        elif effect.how == "cell":
            owner.cell_contents = value
        elif effect.how == "attribute":
            owner.__dict__[effect.key] = value
        elif effect.how == "slot":
            Slots(owner)[effect.key] = value
        else:
            owner[effect.key] = value
