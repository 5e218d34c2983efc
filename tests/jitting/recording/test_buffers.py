"""Writes of a recorded run cost what is written, and values from before stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.base import memory
from adarray.jitting.recording import buffers, recorder

LONG = 5000


def first(f: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a recorded run, and check that it was recorded."""
    jf = adarray.jit(f)
    result = jf(*args)
    info = jf.cache_info()
    assert (info.traces, info.eager) == (1, 0)
    return result


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the bytes of arrays that writes copy."""
    counts: list[int] = []

    def duplicate(x: Any, exactly: bool = False) -> Any:
        counts.append(x.nbytes)
        return memory.duplicate(x, exactly)

    monkeypatch.setattr(recorder, "duplicate", duplicate)
    monkeypatch.setattr(buffers, "duplicate", duplicate)
    return counts


def recurrence(x: Any) -> Any:
    y = np.zeros(LONG)
    for i in range(1, 60):
        y[i] = y[i - 1] * 0.5 + x[i]
    return y


def rows(x: Any) -> Any:
    y = x.reshape(50, 100) * 1.0
    for i in range(1, 50):
        row = y[i]
        y[i] = row + y[i - 1] * 0.5
        y[i, 0] += row[1]
    return y


def through_a_view(x: Any) -> Any:
    y = x * 1.0
    table = y.reshape(50, 100)
    for i in range(1, 50):
        table[i] += table[i - 1]
        y[i] = table[i, 3]
    return y


@pytest.mark.parametrize("f", [recurrence, rows, through_a_view])
def test_writes_do_not_copy_the_array(copied: list[int], f: Any) -> None:
    x = np.linspace(0.5, 1.5, LONG)
    np.testing.assert_allclose(first(f, x), f(x), rtol=1e-13)
    # The array once at most, when it is first written into, and rows that are still shown.
    assert sum(n for n in copied if n == x.nbytes) <= 2 * x.nbytes
    assert sum(copied) <= 3 * x.nbytes + 100 * 800


def test_a_saved_operand_is_restored(copied: list[int]) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = 3.0
        z = y * y  # the product saves what `y` holds now
        for i in range(1, 20):
            y[i] = 0.0
        return np.sum(z) + np.sum(y)

    x = np.linspace(0.5, 1.5, LONG)
    np.testing.assert_array_equal(first(adarray.grad(f), x), adarray.grad(f)(x))
    assert sum(n == x.nbytes for n in copied) < 10


def test_a_large_view_keeps_what_it_shows() -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = 2.0
        half = y[: LONG // 2]
        z = half * half
        y[5] = 7.0
        y[6] = 8.0
        return np.sum(z) + half[5] * half[6]

    x = np.linspace(0.5, 1.5, LONG)
    assert first(f, x) == f(x)
    np.testing.assert_array_equal(first(adarray.grad(f), x), adarray.grad(f)(x))


@pytest.mark.parametrize("index", [7, (slice(None), 0), (slice(2), np.ones(4))])
def test_a_write_that_raises_changes_nothing(index: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = 2.0
        try:
            y[index] = np.ones(5)
        except (IndexError, ValueError):
            y[1] = 3.0
        return y

    x = np.linspace(0.0, 1.0, 4)
    jf = adarray.jit(f)
    for _ in range(3):
        np.testing.assert_array_equal(jf(x), f(x))


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.__setitem__(slice(1, None), y[:-1]),
        lambda y: y.__setitem__(slice(None), y[::-1]),
        lambda y: y.__setitem__(np.array([3, 2, 1, 0]), y),
        lambda y: y.__setitem__(y > 1.0, y[y > 1.0] * 2.0),
        lambda y: np.add(y[1:], y[:-1], out=y[1:]),
    ],
)
def test_what_is_written_may_be_a_view_of_the_array(write: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 1.0
        y[0] = 2.0
        write(y)
        write(y)
        return y

    x = np.linspace(0.5, 1.5, 4)
    np.testing.assert_array_equal(first(f, x), f(x))


def test_an_index_that_is_written_over_later() -> None:
    def f(x: Any) -> Any:
        places = np.arange(4) + (x[0] > 100.0)
        places[0] = 1
        y = x * 1.0
        y[3] = 2.0
        z = y * y
        y[places] = 5.0
        places[:] = 0
        return np.sum(z) + np.sum(y * np.arange(4.0)) + np.sum(places)

    x = np.linspace(0.5, 1.5, 4)
    np.testing.assert_array_equal(first(adarray.grad(f), x), adarray.grad(f)(x))


# -- random programs -----------------------------------------------------------------------------

SHAPE = (6, 200)  # views of it are larger than what is copied at once


def program(rng: np.random.Generator) -> Callable[[Any], Any]:
    """Return a function that writes into arrays and views, and reads older values later."""
    kinds = rng.integers(0, 8, 14)
    draws = rng.integers(0, 6, (14, 3))

    def f(x: Any) -> Any:
        y = x * 1.0
        views: list[Any] = [y]
        total = 0.0
        for kind, (a, b, c) in zip(kinds.tolist(), draws.tolist(), strict=True):
            view = views[a % len(views)]
            if kind == 0:
                y[a, b] = y[b, c] * 0.5
            elif kind == 1:
                y[a] = y[b] + 0.1
            elif kind == 2:
                y[:, b] *= 0.7
            elif kind == 3:
                views.append((y.reshape(-1), y[:4], y.T, y[:, ::2], y[b], y[1:, 1:3])[c])
            elif kind == 4:
                total = total + np.sum(view * view)  # which saves it
            elif kind == 5:
                view[..., b % 2] = total * 0.01 + 0.3
            elif kind == 6:
                y[np.array([a, b])] = y[np.array([b, c])] * 1.1
            else:
                y[y > 1.4] = 0.2
        return total + np.sum(y * y) + sum(np.sum(v) for v in views)

    return f


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    f, x = program(rng), rng.uniform(0.5, 1.5, SHAPE)
    value, gradient = first(adarray.value_and_grad(f), x)
    expected, by_eager = adarray.value_and_grad(f)(x)
    np.testing.assert_allclose(value, f(x), rtol=1e-12)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(gradient, by_eager, rtol=1e-11, atol=1e-12)
    t = rng.normal(size=SHAPE)
    _, tangent = first(lambda x: adarray.jvp(f, (x,), (t,)), x)
    np.testing.assert_allclose(tangent, np.sum(by_eager * t), rtol=1e-9, atol=1e-9)
