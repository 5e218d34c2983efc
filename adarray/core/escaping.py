"""Python numbers that outlive a transform become plain Python numbers again.

``history.append(float(loss))`` keeps an ADArray in the place of a float. It computes as a float,
but `json`, `statistics` and other code that checks the class reject it. So when the outermost
trace has ended, results of ``float(x)`` and ``x.item()`` that are still alive are searched for
where the function can store them: in lists, dictionaries, attributes, closures and globals that
its code leads to.
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
    """Note the function that the outermost transform runs."""
    level = LEVEL.get()
    if OPEN.get(level) == 0 and level not in _numbers:
        _numbers[level] = f, []


def note_number(x: T) -> T:
    """Note a traced Python number that code receives, and return it."""
    level = LEVEL.get()
    while OPEN.get(level):
        level = OPEN[level]
    noted = _numbers.get(level)
    if noted is not None and isinstance(x, Handle):
        noted[1].append(weakref.ref(x))
    return x


def settle(level: int) -> None:
    """Replace the numbers that outlive a trace by plain ones."""
    noted = _numbers.pop(level, None)
    if noted is None or not noted[1]:
        return
    if any(r() is not None for r in noted[1]):
        for x in visited(noted[0]):
            _settle_in(x)


def _is_settled(x: Handle) -> bool:
    """Whether no open trace and no recording sees a value."""
    if isinstance(x._plain, Symbolic):
        return False
    return (x._node is None and not (x._x is not None and x._x.tangents)) or is_over(x)


def _is_left(x: Any) -> TypeGuard[Handle]:
    """Whether a value stands for a Python number and is no longer traced."""
    return (
        issubclass(type(x), Handle)
        and x._x is not None
        and x._x.weak
        and not isinstance(x._plain, Symbolic)
        and _is_settled(x)
    )


def _plain(x: Handle) -> object:
    return x._plain.item() if hasattr(x._plain, "item") else x._plain


def _settle_in(x: object) -> None:
    """Replace the numbers in one object."""
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
