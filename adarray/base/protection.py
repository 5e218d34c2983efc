"""Arrays that are read-only while somebody needs them, and writeable again after that."""

from __future__ import annotations

import threading
import types
from typing import TypeVar

import numpy as np

from adarray.base.types import ArrayValue

A = TypeVar("A", bound=ArrayValue)

lock = threading.RLock()  # of this module and of `adarray.base.seals`

# id of the owning array -> [number of protections], [owner, arrays made read-only, owner first]
protected: dict[int, tuple[list[int], list[np.ndarray]]] = {}


def owner_of(value: A) -> A | np.ndarray:
    """Return the array that owns the memory of another one, as far as NumPy knows."""
    owner: A | np.ndarray = value
    while isinstance(base := owner.base, np.ndarray):
        owner = base
    return owner


def _protect(value: np.ndarray) -> int:
    owner = owner_of(value)
    key = id(owner)
    # The owner is always listed first: that keeps its id from being reused.
    entry = protected.get(key)
    if entry is None:
        protected[key] = entry = [0], [owner]
    entry[0][0] += 1
    if _restorable(owner):
        for array in _views(value):
            if array.flags.writeable:
                array.setflags(write=False)  # a third of the time of `flags.writeable =`
                entry[1].append(array)
    return key


def _unprotect(key: int) -> None:
    entry = protected.get(key)
    if entry is None:
        return
    count, arrays = entry
    count[0] -= 1
    if count[0] == 0:
        del protected[key]
        for array in arrays[1:]:
            try:  # `suppress` takes longer
                array.setflags(write=True)
            except ValueError:  # somebody else made its base read-only
                continue


def _views(value: np.ndarray) -> list[np.ndarray]:
    """Return the arrays that an array is a view of, the owner of the memory first, and itself."""
    chain = [value]
    while isinstance(base := chain[-1].base, np.ndarray):
        chain.append(base)
    return chain[::-1]


def _restorable(owner: np.ndarray) -> bool:
    """Whether NumPy lets an array be writeable again that was made read-only."""
    if owner.flags.owndata or not owner.flags.writeable:
        return True
    try:
        return not memoryview(owner.base).readonly  # type: ignore[arg-type]
    except TypeError:  # what `__array_interface__` gave, as of `as_strided`
        return False


# Whoever calls these has the lock. `protect` makes an array read-only with those that it is a view
# of, and returns what `unprotect` takes, which makes them writeable again if nobody else needs
# them.
protect = _protect
unprotect = _unprotect


def use(native: types.ModuleType) -> None:
    """Do in C what an array takes that is no view and that nobody else protects."""
    global protect, unprotect
    protect, unprotect = native.protection(protected, _protect, _unprotect)
