"""Integers of several kinds, and numbers that a dtype does not hold: as by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.device import Library

BIG = np.array([0, 3, 2**53 + 1, 2**63 + 5], np.uint64)
SMALL = np.array([-7, 3, 2**53, 2**53 + 1])
SIZES = np.arange(4, dtype=np.uint8) * 80
CALLS = {
    "searchsorted": lambda p: np.searchsorted(p(BIG), p(SMALL)),
    "searchsorted right": lambda p: np.searchsorted(p(SMALL), p(BIG), side="right"),
    "searchsorted short": lambda p: np.searchsorted(
        p(np.array([16777216, 16777217, 16777219])), p(np.array([16777218.0], np.float32))
    ),
    "digitize": lambda p: np.digitize(p(SMALL), p(BIG)),
    "less": lambda p: p(SMALL) < p(BIG),
    "equal": lambda p: np.equal(p(BIG), p(SMALL)),
    "less than a number": lambda p: p(SIZES) < 300,
    "greater than a number": lambda p: p(BIG) > -1,
    "clip": lambda p: np.clip(p(SIZES), 0, 256),
    "clip below": lambda p: np.clip(p(SIZES), -1, 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_integers_of_several_kinds(library: Library, name: str) -> None:
    expected = CALLS[name](lambda x: x)
    result: Any = CALLS[name](library.place)
    result = result.host() if hasattr(result, "host") else result
    np.testing.assert_array_equal(result, expected)
    assert result.dtype == expected.dtype


@pytest.mark.parametrize("source", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("to", "bBhHiIlL")
def test_floating_point_beyond_the_range_of_an_integer(
    library: Library, source: Any, to: str
) -> None:
    info = np.iinfo(to)
    edges = [float(info.min), float(info.max), info.min - 0.5, info.max + 0.5]
    values = [0.0, 1.7, -1.2, -0.5, 300.7, -300.7, 1e30, -1e30, np.inf, -np.inf, np.nan, *edges]
    with np.errstate(all="ignore"):
        for x in values:
            host = np.array([x, 2.0, 3.9]).astype(source)
            expected = host.astype(to)
            device = library.place(host)
            np.testing.assert_array_equal(device.astype(to).host(), expected, str(x))
            target = library.place(np.zeros(3, to))
            target[...] = device
            np.testing.assert_array_equal(target.host(), expected, str(x))


@pytest.mark.parametrize("value", [300, -1, 2**70, np.nan, np.inf, 1e30])
def test_numbers_that_an_array_does_not_hold_are_refused(library: Library, value: Any) -> None:
    """They wrapped, or became something."""
    host, device = np.zeros(3, np.uint8), library.place(np.zeros(3, np.uint8))
    for array in (host, device):
        with pytest.raises((OverflowError, ValueError)):
            array[1] = value
        if type(value) is int:
            with pytest.raises(OverflowError):
                array + value
    np.testing.assert_array_equal(device.host(), host)


def test_indices_of_floating_point_come_from_the_device(library: Library) -> None:
    with adarray.use(library.name.partition(":")[0]):
        x = adarray.ADArray(np.array([0.2, 1.9, 2.4]))
        before = library.transfers.bytes_to_host
        i = x.astype(int)
        assert library.transfers.bytes_to_host - before < x.nbytes  # that all are in range
    np.testing.assert_array_equal(i.numpy(), [0, 1, 2])


@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("to", "bBhHiIlL")
def test_compiled_casts_beyond_the_range_of_an_integer(
    library: Library, source: Any, to: str
) -> None:
    info = np.iinfo(to)
    edges = [float(info.min), float(info.max), info.min - 0.5, info.max + 0.5, info.min - 1.5]
    values = [0.0, 1.7, -1.2, 300.7, -300.7, 5e9, -5e9, 1e30, -1e30, np.inf, -np.inf, np.nan]
    x = np.array([*values, *edges]).astype(source)

    def f(x: Any) -> Any:
        return (x + source(0)).astype(to)

    jitted = adarray.jit(f)
    with np.errstate(all="ignore"), adarray.use(library.name.partition(":")[0]):
        expected = x.astype(to)
        for _ in range(4):
            actual = jitted(library.place(x))
            actual = actual.host() if hasattr(actual, "host") else np.asarray(actual)
            np.testing.assert_array_equal(actual, expected)
