"""Writes into captured arrays: each is done in every call, or the function stays eager."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning

X = np.linspace(0.5, 2.0, 4)
M = np.linspace(0.0, 1.0, 16).reshape(4, 4)

# Every function that writes: into `v`, of `x`. With computed values, they went into a copy.
WRITERS: dict[str, Any] = {
    "in place": lambda v, x: v.__iadd__(x),
    "item": lambda v, x: v.__setitem__(slice(1, None), x[1:]),
    "add": lambda v, x: np.add(v, x, out=v),
    "where": lambda v, x: np.add(v, x, out=v, where=v < 0.5),
    "copyto": lambda v, x: np.copyto(v, x),
    "put": lambda v, x: np.put(v, [0, 2], x[:2]),
    "at": lambda v, x: np.add.at(v, [0, 0], x[:2]),
    "place": lambda v, x: np.place(v, v < 0.5, x),
    "putmask": lambda v, x: np.putmask(v, v < 0.5, x),
    "cumsum": lambda v, x: np.cumsum(x, out=v),
    "clip": lambda v, x: np.clip(x, 0.6, 0.9, out=v),
    "take": lambda v, x: np.take(x, [1, 0, 3, 2], out=v, mode="clip"),
    "matmul": lambda v, x: np.matmul(M, x, out=v),
    "einsum": lambda v, x: np.einsum("ij,j->i", M, x, out=v),
    "fill_diagonal": lambda v, x: np.fill_diagonal(v.reshape(2, 2), x[0]),
}


@dataclasses.dataclass(slots=True)
class Slots:
    """A dataclass as people write them."""

    v: Any


class Items(list):  # type: ignore[type-arg]
    """A list of a class."""


def places() -> dict[str, Any]:
    """Return, for each way to reach an array, a function that gets it."""
    v = np.zeros(4)

    class Holder:
        table = np.zeros(4)

    @functools.lru_cache
    def cached() -> Any:
        return np.zeros(4)

    slots, items = Slots(np.zeros(4)), Items([np.zeros(4)])
    other = Slots(v[::-1])
    return {
        "slots": lambda: slots.v,
        "class": lambda: Holder.table,
        "list of a class": lambda: items[0],
        "cache": lambda: cached(),
        "a view of another": lambda: (v, other.v)[1],
    }


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("place", places())
@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_writes_are_done(place: str, writer: str, backend: str) -> None:
    write, get, other = WRITERS[writer], places()[place], places()[place]

    def f(x: Any) -> Any:
        write(get(), x)
        return get() * 2.0

    def twin(x: Any) -> Any:
        write(other(), x)
        return other() * 2.0

    with adarray.use(backend):
        jf = adarray.jit(f)
        for k in range(4):
            x = X * (1.0 + k)
            np.testing.assert_allclose(jf(x), twin(x), rtol=1e-13)
            np.testing.assert_allclose(np.asarray(get()), other(), rtol=1e-13)


def test_writes_into_slots_compile(backend: str) -> None:
    s = Slots(np.zeros(4))

    def f(x: Any) -> Any:
        s.v += x
        return s.v.sum()

    with adarray.use(backend):
        jf = adarray.jit(f)
        assert [float(jf(np.ones(4))) for _ in range(4)] == [4.0, 8.0, 12.0, 16.0]
    np.testing.assert_array_equal(s.v, np.full(4, 4.0))
    assert jf.cache_info().traces == 2
    assert jf.cache_info().eager == 0


def test_values_that_classes_and_slots_get_are_plain() -> None:
    class Holder:
        last: Any = None

    s = Slots(np.zeros(4))

    def f(x: Any) -> Any:
        Holder.last = x * 2.0
        s.v = s.v + x
        return x

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="changes what it captured"):
        jf(X)
    for _ in range(3):
        jf(X)
    assert type(Holder.last) is np.ndarray
    np.testing.assert_array_equal(Holder.last, X * 2.0)
    np.testing.assert_allclose(s.v, X * 4.0)


def test_a_failed_recording_takes_its_writes_back() -> None:
    """What was written before it was known that nothing can be recorded is not written twice."""

    class Holder:
        count, total = np.zeros(1), np.zeros(4)

    @functools.lru_cache
    def buffer() -> Any:
        return np.zeros(2)

    def f(x: Any) -> Any:
        Holder.count[0] += 1.0
        buffer()[1] += 1.0
        Holder.total += x
        return Holder.total * Holder.count[0] + buffer()[1]

    buffer()  # nothing is recorded while its cache is empty
    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="writes a computed value into a plain array"):
        np.testing.assert_array_equal(jf(X), X + 1.0)
    np.testing.assert_array_equal(jf(X), X * 4.0 + 2.0)
    assert Holder.count[0] == 2.0


def test_memory_that_is_read_another_way() -> None:
    base = np.zeros(4)
    s, view = Slots(base), base[::-1]

    def f(x: Any) -> Any:
        view[:] = x
        return s.v * 1.0

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="whose memory it also reads by another way"):
        np.testing.assert_array_equal(jf(X), X[::-1])
    np.testing.assert_array_equal(jf(X + 1.0), X[::-1] + 1.0)


@pytest.mark.parametrize("first", ["cache", "view"])
@pytest.mark.parametrize("read", ["cache", "view"])
@pytest.mark.filterwarnings("ignore::adarray.jitting.JitWarning")
def test_what_a_cache_holds_and_a_view_of_it(first: str, read: str) -> None:
    def make() -> Any:
        @functools.lru_cache
        def cached() -> Any:
            return np.linspace(0.0, 1.0, 4)

        table = {"view": cached()[::-1]}

        def f(x: Any) -> Any:
            written = cached() if first == "cache" else table["view"]
            written[1:3] *= 0.5
            return x * (cached() if read == "cache" else table["view"]).sum()

        return f, cached

    (f, ours), (twin, theirs) = make(), make()
    jf = adarray.jit(f)
    for k in range(4):
        np.testing.assert_allclose(jf(X + k), twin(X + k), rtol=1e-14)
        np.testing.assert_allclose(ours(), theirs(), rtol=1e-14)


def test_an_argument_that_a_class_holds_too() -> None:
    class Holder:
        table = np.zeros(4)

    def f(x: Any) -> Any:
        x += 1.0
        return x * Holder.table.sum()

    jf = adarray.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            np.testing.assert_array_equal(jf(X.copy()), (X + 1.0) * 0.0)
    Holder.table = X.copy()
    np.testing.assert_array_equal(jf(X.copy()), (X + 1.0) * X.sum())
    args = Holder.table = X.copy()
    np.testing.assert_array_equal(jf(args), (X + 1.0) * (X + 1.0).sum())


def test_a_failed_recording_takes_back_what_objects_of_libraries_hold() -> None:
    p, s = np.poly1d([1.0, 2.0]), Items([np.zeros(4)])

    def f(x: Any) -> Any:
        p[0] += 1.0
        np.add(s[0], x, out=s[0])
        return s[0] * float(p[0])

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="cannot be recorded"):
        np.testing.assert_array_equal(jf(X), X * 3.0)
    np.testing.assert_array_equal(jf(X), X * 8.0)
