"""Captured objects hold again what they held, where a run that had changed them is undone.

A function with a cache that is empty has to run outside of a recording: the run so far is undone,
and the function runs once more.
"""

from __future__ import annotations

import array
import collections
import functools
import queue
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import adarray
from adarray.jitting import JitWarning

X = np.arange(4.0)


class Rows(list):
    """A list that iterates over something else than it holds."""

    def __iter__(self) -> Any:
        return iter([np.zeros(3)] * len(self))


class Names(set):
    """A set that says it holds nothing."""

    def __len__(self) -> int:
        return 0


def bits() -> Any:
    b = np.random.PCG64(4)
    return lambda x: x * (b.random_raw() % 7)


def seeds() -> Any:
    s = np.random.SeedSequence(4)
    return lambda x: x * len(s.spawn(2)) * s.n_children_spawned


def waiting() -> Any:
    q: Any = queue.Queue()
    for i in range(20):
        q.put(i)
    return lambda x: x * q.get()


def ordered() -> Any:
    d = collections.OrderedDict(a=1.0, b=2.0, c=4.0)

    def f(x: Any) -> Any:
        d.move_to_end(next(iter(d)))
        return x * next(iter(d.values()))

    return f


def in_slots(make: Callable[[], Any], change: Callable[[Any], Any]) -> Callable[[], Any]:
    """Return a maker of a function that changes an object in a slot of another, and reads it."""

    class Holder:
        __slots__ = ("held",)

    def maker() -> Any:
        holder = Holder()
        holder.held = make()  # type: ignore[attr-defined]
        return lambda x: x * float(change(holder.held))  # type: ignore[attr-defined]

    return maker


def with_rows() -> Any:
    rows = Rows([1.0, 2.0])
    return lambda x: (rows.append(3.0), x * len(rows))[1]


def with_names() -> Any:
    names = Names("a")
    return lambda x: (names.add(str(set.__len__(names))), x * set.__len__(names))[1]


def sparse() -> Any:
    m = scipy.sparse.dok_matrix(np.diag([1.0, 2.0, 0.0, 4.0]))

    def f(x: Any) -> Any:
        m[0, 0] = m[0, 0] + 1.0
        return x * m[0, 0]

    return f


KINDS: dict[str, Callable[[], Any]] = {
    "bits": bits,
    "seeds": seeds,
    "queue": waiting,
    "ordered": ordered,
    "rows": with_rows,
    "names": with_names,
    "sparse": sparse,
    "bytes": in_slots(lambda: bytearray(b"abc"), lambda b: (b.extend(b"1"), len(b))[1]),
    "numbers": in_slots(lambda: array.array("d", [1.0]), lambda a: (a.append(1), len(a))[1]),
    "deque": in_slots(lambda: collections.deque([1, 2, 3]), lambda d: (d.rotate(1), d[0])[1]),
    "counter": in_slots(collections.Counter, lambda c: (c.update("a"), c["a"])[1]),
    "default": in_slots(lambda: collections.defaultdict(int), lambda d: (d[len(d)], len(d))[1]),
}


def results(maker: Callable[[], Any], jit: bool) -> list[Any]:
    changing = maker()

    @functools.lru_cache
    def table() -> dict[str, Any]:
        return {"k": [2.0]}

    def f(x: Any) -> Any:
        return changing(x) * table()["k"][0]

    run = adarray.jit(f) if jit else f
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        return [np.array(run(X)) for _ in range(4)]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_hold_again_what_they_held(kind: str) -> None:
    np.testing.assert_array_equal(results(KINDS[kind], True), results(KINDS[kind], False))
