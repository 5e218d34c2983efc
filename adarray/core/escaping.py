"""Python numbers that code keeps beyond a transform: they become numbers of Python's own.

``history.append(float(loss))`` keeps an ADArray in the place of a float. It computes as one, and
`json`, `statistics` and other code that asks for the class does not take it. So what ``float(x)``
and ``x.item()`` returned, and is still there when the outermost trace has ended, is looked for
where the function can keep it: lists, dictionaries, attributes, closures and globals that its code
leads to.
"""

from __future__ import annotations

import collections
import types
import weakref
from typing import Any, TypeGuard, TypeVar

from adarray.base.aval import Symbolic
from adarray.base.levels import LEVEL, OPEN
from adarray.core.holding import visited
from adarray.core.trace import Handle, is_over, settle_hook

T = TypeVar("T")

# By the level of the outermost trace: the function that it runs, and the numbers.
_numbers: dict[int, tuple[object, list[weakref.ref[Handle]]]] = {}


def begin(f: object) -> None:
    """Note that a transform runs a function, if no other one is around it."""
    level = LEVEL.get()
    if OPEN.get(level) == 0 and level not in _numbers:
        _numbers[level] = f, []


def note_number(x: T) -> T:
    """Note a traced Python number that code was given, and return it."""
    level = LEVEL.get()
    while OPEN.get(level):
        level = OPEN[level]
    noted = _numbers.get(level)
    if noted is not None and isinstance(x, Handle):
        noted[1].append(weakref.ref(x))
    return x


def settle(level: int) -> None:
    """Put plain numbers in the places of those that are left of a trace."""
    noted = _numbers.pop(level, None)
    if noted is None or not noted[1]:
        return
    if any(r() is not None for r in noted[1]):
        for x in visited(noted[0]):
            _settle_in(x)


def _is_settled(x: Handle) -> bool:
    """Whether no open trace sees a value, and no recording."""
    if isinstance(x._v, Symbolic):
        return False
    return (x._node is None and not (x._x is not None and x._x.tangents)) or is_over(x)


def _is_left(x: Any) -> TypeGuard[Handle]:
    """Whether a value stands for a Python number, and is followed no more."""
    return (
        issubclass(type(x), Handle)
        and x._x is not None
        and x._x.weak
        and not isinstance(x._v, Symbolic)
        and _is_settled(x)
    )


def _plain(x: Handle) -> object:
    return x._v.item() if hasattr(x._v, "item") else x._v


def _settle_in(x: object) -> None:
    """Put plain numbers into one object."""
    if isinstance(x, list):
        for i in range(list.__len__(x)):
            if _is_left(item := list.__getitem__(x, i)):
                list.__setitem__(x, i, _plain(item))
    elif isinstance(x, collections.deque):
        for i, item in enumerate(tuple(x)):
            if _is_left(item):
                x[i] = _plain(item)
    elif isinstance(x, dict):
        _settle_in_mapping(x)
    elif type(x) is types.CellType:
        if _is_left(x.cell_contents):
            x.cell_contents = _plain(x.cell_contents)
    else:
        space = getattr(x, "__dict__", None)
        if type(space) is dict:
            _settle_in_mapping(space)


def _settle_in_mapping(x: dict[object, object]) -> None:
    for key, item in tuple(dict.items(x)):
        if _is_left(item):
            dict.__setitem__(x, key, _plain(item))


settle_hook.set(settle)
