"""Maps and sets by identity: which statement, not what it says.

Statements of loop IR are equal by their contents, and equal ones may stand at several places of a
kernel, each of which is shared among threads, waited before or printed in its own way. What is
known of a place is keyed by the object. Keys are kept alive: the ``id`` of an object that is gone
may be that of another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, MutableSet
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class IdentityMap(MutableMapping[K, V]):
    """A dictionary whose keys are compared by ``is``, in the order in which they came.

    Parameters
    ----------
    items : iterable of (K, V)

    Examples
    --------
    >>> a, b = [1], [1]
    >>> by_list = IdentityMap([(a, "a")])
    >>> a in by_list, b in by_list
    (True, False)
    """

    __slots__ = ("_entries",)

    def __init__(self, items: Iterable[tuple[K, V]] = ()) -> None:
        self._entries: dict[int, tuple[K, V]] = {id(k): (k, v) for k, v in items}

    def __getitem__(self, key: K) -> V:
        return self._entries[id(key)][1]

    def __setitem__(self, key: K, value: V) -> None:
        self._entries[id(key)] = key, value

    def __delitem__(self, key: K) -> None:
        del self._entries[id(key)]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def __iter__(self) -> Iterator[K]:
        return (k for k, _ in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityMap) and self._entries == other._entries


class IdentitySet(MutableSet[K]):
    """A set whose elements are compared by ``is``, in the order in which they came.

    Parameters
    ----------
    elements : iterable of K
    """

    __slots__ = ("_elements",)

    def __init__(self, elements: Iterable[K] = ()) -> None:
        self._elements: dict[int, K] = {id(x): x for x in elements}

    def add(self, value: K) -> None:
        """Add an element."""
        self._elements[id(value)] = value

    def discard(self, value: K) -> None:
        """Remove an element, if it is there."""
        self._elements.pop(id(value), None)

    def __contains__(self, value: object) -> bool:
        return id(value) in self._elements

    def __iter__(self) -> Iterator[K]:
        return iter(self._elements.values())

    def __len__(self) -> int:
        return len(self._elements)
