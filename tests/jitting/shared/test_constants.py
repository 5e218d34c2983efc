"""Plain arrays that a recorded run reads: known by one number, or compared, and never hashed."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting.shared import keys
from adarray.jitting.shared.constants import Contents, constant, first_of

LARGE = 300_000  # elements, more than are looked at one by one


def late(n: int = LARGE) -> np.ndarray:
    """Return zeros but for the last element but one."""
    x = np.zeros(n)
    x[-2] = 1
    return x


UNIFORM: dict[str, tuple[np.ndarray, Any]] = {
    "zeros": (np.zeros((600, 500)), 0.0),
    "ones": (np.ones(LARGE, np.float32), 1.0),
    "columns": (np.full((600, 500), 3, np.int16).T, 3),
    "gaps": (np.full((600, 1000), 2.5)[:, ::2], 2.5),
    "repeated": (np.broadcast_to(np.float32(7), (40, 50)), 7.0),
    "rows repeated": (np.broadcast_to(np.full(50, 7.0), (40, 50)), 7.0),
    "nan": (np.full(5, np.nan), np.nan),
    "complex": (np.full((3, 3), 1 + 2j), 1 + 2j),
    "truth values": (np.ones(7, bool), True),
    "one": (np.array(3.0), 3.0),
    "halves": (np.full(9, 0.5, np.float16), 0.5),
}
OTHER: dict[str, np.ndarray] = {
    "late": late(),
    "last": late()[:-1],
    "signs of zero": np.array([0.0, -0.0]),
    "range": np.arange(5),
    "backwards": np.arange(5.0)[::-1],
    "columns repeated": np.broadcast_to(np.arange(4.0), (3, 4)),
    "empty": np.zeros((0, 3)),
    "objects": np.array([None, None]),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_one_number_everywhere_is_found(name: str) -> None:
    x, number = UNIFORM[name]
    first = first_of(x)
    assert first.shape == (1,)
    assert first.dtype == x.dtype
    np.testing.assert_array_equal(first[0], number)


@pytest.mark.parametrize("name", OTHER)
def test_other_arrays_are_not_taken_for_one_number(name: str) -> None:
    assert first_of(OTHER[name]) is None


def test_one_number_takes_no_memory_and_has_one_key() -> None:
    x, key = constant(np.full((600, 500), 2.0))
    assert x.strides == (0, 0)
    assert key == constant(np.broadcast_to(2.0, (600, 500)))[1]
    assert key != constant(np.full((600, 500), 2.5))[1]
    assert key != constant(np.full((500, 600), 2.0))[1]
    assert key != constant(np.full((600, 500), 2.0, np.float32))[1]
    assert constant(np.zeros(9))[1] != constant(-np.zeros(9))[1]
    assert keys.array_key(np.zeros((6, 5))) == keys.array_key(np.broadcast_to(0.0, (6, 5)))


def test_contents_are_compared_to_the_last_bit() -> None:
    x = np.random.default_rng(0).normal(size=LARGE)
    y, z = x.copy(), x.copy()
    z[123_457] = np.nextafter(z[123_457], np.inf)
    a, b, c = map(Contents, (x, y, z))
    assert a == b
    assert hash(a) == hash(b)
    assert b.array is x  # one array is enough
    assert a != c
    assert hash(a) == hash(c)  # so that it is compared at all
    assert a != Contents(x.reshape(3, -1))
    assert a != Contents(x.view(np.int64))
    assert a != 3
    assert Contents(np.array([0.0, 1.0])) != Contents(np.array([-0.0, 1.0]))
    assert Contents(np.array([np.nan, 1.0])) == Contents(np.array([np.nan, 1.0]))


# -- in compiled functions -------------------------------------------------------------------------


def picked(x: Any, rows: Any, columns: Any) -> Any:
    return adarray.grad(lambda x: np.sum(x[rows, columns]))(x)


def added(x: Any, rows: Any, columns: Any) -> Any:
    array = np.zeros(x.shape)
    np.add.at(array, (rows, columns), x[rows, columns])
    return array


def halved(x: Any, rows: Any, columns: Any) -> Any:
    return np.sum(x * np.full(x.shape, 0.5), axis=0) + x[rows[0], columns[0]]


def kept_bytes() -> int:
    """Return the memory of arrays that are there, among those made since tracing began."""
    of_arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    snapshot = tracemalloc.take_snapshot().filter_traces([of_arrays])
    return sum(t.size for t in snapshot.traces)


PROGRAMS: dict[str, Callable[..., Any]] = {"picked": picked, "added": added, "halved": halved}


@pytest.mark.parametrize("name", PROGRAMS)
def test_recording_hashes_and_keeps_nothing_of_the_size_of_arrays(
    name: str, monkeypatch: Any
) -> None:
    f = PROGRAMS[name]
    rng = np.random.default_rng(1)
    x = rng.normal(size=(700, 900))
    rows, columns = np.arange(700), rng.integers(0, 900, 700)
    hashed: list[int] = []
    digest = keys.digest

    def counted(array: np.ndarray) -> bytes:
        hashed.append(array.nbytes)
        return digest(array)

    monkeypatch.setattr(keys, "digest", counted)
    expected = f(x, rows, columns)
    jf = adarray.jit(f)
    tracemalloc.start()
    try:
        for _ in range(2):
            np.testing.assert_allclose(jf(x, rows, columns), expected)
        size = kept_bytes()
    finally:
        tracemalloc.stop()
    assert max(hashed, default=0) < x.nbytes / 100
    assert size < x.nbytes / 2
    np.testing.assert_allclose(jf(x, rows, columns), expected)
    assert jf.cache_info().eager == 0
    assert jf.cache_info().compiled == 1


def test_other_constants_are_kept_once() -> None:
    x = np.random.default_rng(2).normal(size=(700, 900))

    def f(x: Any) -> Any:
        return np.sum(x * np.tri(*x.shape), axis=1)

    jf = adarray.jit(f)
    tracemalloc.start()
    try:
        for _ in range(2):
            np.testing.assert_allclose(jf(x), f(x))
        size = kept_bytes()
    finally:
        tracemalloc.stop()
    assert size < 2.5 * x.nbytes  # the array, that of the last path, and what is small
    for _ in range(2):
        np.testing.assert_allclose(jf(x), f(x))
    assert jf.cache_info().eager == 0


@pytest.mark.parametrize("number", [0.0, -0.0, 2.0])
def test_arrays_that_are_written_between_two_uses(number: float) -> None:
    """What a constant holds is what it held when it was read."""

    def f(x: Any) -> Any:
        z = np.full(LARGE, number)
        a = np.copysign(x, z)
        z[:] = 3.0
        b = x * z
        z[-2] = 5.0
        c = x * z
        z[:] = number
        return a, b, c, x + z

    x = np.random.default_rng(3).normal(size=LARGE)
    expected = f(x)
    jf = adarray.jit(f)
    for _ in range(4):
        for got, want in zip(jf(x), expected, strict=True):
            np.testing.assert_array_equal(got, want)
    assert jf.cache_info().eager == 0


@pytest.mark.parametrize("uniform", [True, False])
def test_constants_that_differ_from_run_to_run_are_noticed(uniform: bool) -> None:
    numbers = iter(range(1, 100))

    class Source:
        def __call__(self) -> Any:
            array = np.full(LARGE, float(next(numbers)))
            if not uniform:
                array[LARGE // 2] = -1.0
            return array

    source = Source()

    def f(x: Any) -> Any:
        return x * source()

    jf = adarray.jit(f)
    x = np.ones(LARGE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(1, 8):
            assert jf(x)[0] == i
    assert jf.cache_info().compiled == 0


def test_results_that_are_constants_are_fresh() -> None:
    jf = adarray.jit(lambda x: (np.zeros(LARGE), adarray.grad(lambda a, b: np.sum(a), 1)(x, x)))
    x = np.ones(LARGE)
    for _ in range(4):
        for result in jf(x):
            np.testing.assert_array_equal(result, 0.0)
            result[:] = 9.0
