"""Memory of results: fresh for each run, and the same again once nobody uses it.

A graph holds addresses, so a loop in which results are the next call's inputs should come back to
few of them; pools of memory give free blocks of one size in any order. So a stream keeps the
memory of its last results, and takes it again when nothing else refers to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from operator import attrgetter
from sys import getrefcount
from typing import Any, NamedTuple

from adarray_backends.cuda.instances import Instance

SETS = 4  # results of so many runs: the next ones, what was returned last, and what is given
_EARLY = 64 << 10  # bytes of one result that is allocated before the run that writes it
_LEAST = 512  # bytes that CuPy's pool gives at least
_APART = 128  # bytes: results that share a block begin at multiples
_address = attrgetter("ptr")


class ResultMemory(NamedTuple):
    """Memory of results: bytes, and for each result its number, its slot and its place."""

    size: int
    parts: list[tuple[int, int, int]]


class Set:
    """The memory of one run's results.

    Attributes
    ----------
    places : list
        Of each result.
    addresses : list of tuple of int
        Slot and address of each result.
    """

    __slots__ = ("__weakref__", "_all", "_uses", "addresses", "places")

    def __init__(self, places: list[Any], addresses: list[tuple[int, int]], owners: list[Any]):
        self.places = places
        self.addresses = addresses
        # Arrays refer to places, and views of them to what owns these.
        self._all = (*places, *owners)
        self._uses: list[int] = []

    def settle(self) -> None:
        """Note how often memory is referred to while nobody uses it."""
        self._uses = self._count()

    def is_free(self) -> bool:
        """Whether nobody uses any of it."""
        return self._count() == self._uses

    def _count(self) -> list[int]:
        return [getrefcount(x) for x in self._all]


class Results:
    """Allocates the results of runs.

    Parameters
    ----------
    gpu : Gpu
    arrays : list of tuple
        Slot, shape and dtype of each result.

    Attributes
    ----------
    bytes : int
        Of the results of one run.
    """

    def __init__(self, gpu: Any, arrays: list[tuple[int, tuple[int, ...], Any]]) -> None:
        self._gpu = gpu
        self._count = len(arrays)
        self.bytes = sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in arrays)
        spare = gpu.spare()
        self._again = SETS * self.bytes <= spare
        blocks = _grouped(arrays)
        most = spare if self.bytes <= spare else _EARLY
        self._early = _alike(b for b in blocks if b.size <= most)
        self._late = _alike(b for b in blocks if b.size > most)

    def begin(self, x: Instance) -> list[Any]:
        """Return the memory of the results of a run; write its addresses down."""
        places, x.ready = x.ready, None
        if places is None:
            places = self._next(x)
        if self._late:
            self._place(x, self._late, places)
        return places

    def prepare(self, x: Instance) -> None:
        """Find memory for small results of the next run, while the GPU is busy with this one."""
        if not self._early:
            return
        try:
            x.ready = self._next(x)
        except self._gpu.out_of_memory:
            return  # the next run says so

    def _next(self, x: Instance) -> list[Any]:
        if self._again:
            for i, set_ in enumerate(x.sets):
                if set_.is_free():
                    x.sets.append(x.sets.pop(i))
                    for slot, address in set_.addresses:
                        x.addresses[slot] = address
                    return set_.places
        places: list[Any] = [None] * self._count
        addresses, owners = self._place(x, self._early, places)
        if self._again:
            set_ = Set(places, addresses, owners)
            del owners
            set_.settle()
            del x.sets[: 1 - SETS]
            x.sets.append(set_)
        return places

    def _place(
        self, x: Instance, groups: list[list[ResultMemory]], places: list[Any]
    ) -> tuple[list[tuple[int, int]], list[Any]]:
        """Allocate results; write their addresses down, and return them and what owns them."""
        addresses, owners = [], []
        for blocks in groups:
            most = max(b.size for b in blocks)  # any of them may take any of these
            memories = [self._gpu.alloc(most) for _ in blocks]
            # Sorted, so that results that are not kept come back to few addresses, too.
            if len(memories) > 1:
                memories.sort(key=_address)
            for memory, (_, parts) in zip(memories, blocks, strict=True):
                owners.append(self._gpu.owner(memory))
                for i, slot, offset in parts:
                    place = memory + offset if offset else memory
                    places[i] = place
                    x.addresses[slot] = place.ptr
                    addresses.append((slot, int(place.ptr)))
        return addresses, owners


def _grouped(arrays: list[tuple[int, tuple[int, ...], Any]]) -> list[ResultMemory]:
    """Return the memory of results.

    Those that together take no more than the least that an allocator gives share a block.
    """
    blocks: list[ResultMemory] = []
    small: list[tuple[int, int, int]] = []
    used = 0
    for i, (slot, shape, dtype) in enumerate(arrays):
        size = math.prod(shape) * dtype.itemsize
        room = -(-size // _APART) * _APART
        if used + room > _LEAST:
            blocks.append(ResultMemory(size, [(i, slot, 0)]))
        else:
            small.append((i, slot, used))
            used += room
    return [*blocks, *([ResultMemory(used, small)] if small else [])]


def _alike(blocks: Iterable[ResultMemory]) -> list[list[ResultMemory]]:
    """Return blocks in groups of those that take the same memory from an allocator."""
    by_size: dict[int, list[ResultMemory]] = {}
    for b in blocks:
        by_size.setdefault(-(-b.size // _LEAST), []).append(b)
    return list(by_size.values())
