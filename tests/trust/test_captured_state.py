"""Captured state, changed between calls and by calls: what plain code does, jitted code does.

Programs read several kinds of state, which change in random orders, or write into captured
arrays by every function that writes. Each program runs twice, with state of its own: once jitted,
once by NumPy alone, and results, errors and what the state holds afterwards are compared.
"""

from __future__ import annotations

import importlib.util
import random
import warnings
from typing import Any

import numpy as np
import pytest
from captured_kinds import KINDS, X
from captured_kinds_all import ADVANCING, NEEDS, OF_THE_PROCESS
from captured_runs import plain, same
from captured_writes import program, start
from trust import BACKENDS, seeds

import adarray
from adarray.testing._ops import use_all_sizes

CHUNK = 20  # programs in one test


def quiet(f: Any, *args: Any) -> Any:
    """Call a function without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return f(*args)


def chunks(short: int) -> list[range]:
    """Return the seeds of the programs, some to a test."""
    every = seeds(short)
    return [every[i : i + CHUNK] for i in range(0, len(every), CHUNK)]


# -- writes ------------------------------------------------------------------------------------


def writing(seed: int) -> None:
    """Run one program that writes, on one of the backends."""
    text = program(seed)
    ours, theirs = start(text), start(text)
    jitted = adarray.jit(ours["f"])
    with use_all_sizes(BACKENDS[seed % len(BACKENDS)]):
        for k in range(5):
            x = X * (0.5 + 0.2 * (k % 3))
            title = f"seed {seed}, call {k}:\n{text}\n"
            got, expected = plain(jitted, x), plain(theirs["f"], x)
            if expected is ValueError and "np.dot" in text:
                return  # NumPy's function takes no out= with other strides, ours does
            same(got, expected, title)
            for a, b in zip(ours["held"](), theirs["held"](), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13, err_msg=title)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", chunks(160), ids=lambda r: f"{r[0]}-{r[-1]}")
def test_writes_into_captured_arrays(chosen: range) -> None:
    for seed in chosen:
        quiet(writing, seed)


# -- state of many kinds -----------------------------------------------------------------------


def available() -> list[str]:
    """Return the names of the kinds whose packages are there."""
    return [k for k in KINDS if k not in NEEDS or importlib.util.find_spec(NEEDS[k]) is not None]


def joined(parts: list[Any]) -> Any:
    """Return a function that reads what several others do."""

    def f(x: Any) -> Any:
        r = x * 0.5
        for part in parts:
            r = r + part(x)
        return r

    return f


def changed(change: Any) -> type | None:
    """Apply a change, which may be impossible after others; return its error."""
    try:
        change()
    except Exception as error:
        return type(error)
    return None


def order(rng: random.Random, names: list[str], result: list[Any]) -> list[tuple[int, int]]:
    """Return which changes of which kinds to make, in order."""
    pairs = []
    for i, (_, changes) in enumerate(result):
        numbers = list(range(len(changes)))
        if names[i] not in OF_THE_PROCESS:
            numbers = [rng.choice(numbers) for _ in numbers]
        pairs += [(i, n) for n in numbers]
    rng.shuffle(pairs)
    steady = {i for i, name in enumerate(names) if name in OF_THE_PROCESS}
    ordered = {i: iter(sorted(n for k, n in pairs if k == i)) for i in steady}
    return [(i, next(ordered[i]) if i in steady else n) for i, n in pairs]


def reading(seed: int) -> None:
    """Run one program that reads state of some kinds, which changes."""
    rng = random.Random(seed)
    names = rng.sample(available(), rng.randint(1, 3))
    ours, theirs = [KINDS[n]() for n in names], [KINDS[n]() for n in names]
    f, twin = joined([g for g, _ in ours]), joined([g for g, _ in theirs])
    jitted = adarray.jit(f)
    with use_all_sizes(BACKENDS[seed % len(BACKENDS)]):
        changes = [None, *order(rng, names, ours)]
        for number, change in enumerate(changes):
            if change is not None:
                i, n = change
                assert changed(ours[i][1][n]) is changed(theirs[i][1][n])
            for k in range(rng.choice([1, 1, 3, 4])):
                x = X * (1 + 0.1 * k)
                title = f"seed {seed}, {names}, change {number} of {changes}, call {k}"
                same(plain(jitted, x), plain(twin, x), title)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", chunks(120), ids=lambda r: f"{r[0]}-{r[-1]}")
def test_state_of_many_kinds(chosen: range) -> None:
    for seed in chosen:
        quiet(reading, seed)


# -- derivatives -------------------------------------------------------------------------------


def differentiating(seed: int) -> None:
    """Compare derivatives of a program that reads changing state with differences."""
    rng = random.Random(seed)
    # Rules of derivatives are NumPy code: where its functions are replaced, they differ, too.
    steady = [k for k in available() if k not in ADVANCING and not k.startswith("functions_of")]
    names = rng.sample(steady, 2)
    ours, theirs = [KINDS[n]() for n in names], [KINDS[n]() for n in names]
    f, twin = joined([g for g, _ in ours]), joined([g for g, _ in theirs])
    weights = np.cos(np.arange(4.0))
    loss = lambda x: np.sum(f(x) * weights)  # noqa: E731
    run = adarray.jit(adarray.value_and_grad(loss))
    if seed % 2:
        run = adarray.value_and_grad(adarray.jit(loss))
    with use_all_sizes(BACKENDS[seed % len(BACKENDS)]):
        for change in [None, *order(rng, names, ours)]:
            if change is not None:
                i, n = change
                assert changed(ours[i][1][n]) is changed(theirs[i][1][n])
            first = plain(twin, X)
            if isinstance(first, type):
                continue
            for _ in range(3):
                value, slope = run(X * 1)
                title = f"seed {seed}, {names}, {change}"
                np.testing.assert_allclose(value, np.sum(first * weights), 1e-12, err_msg=title)
                steps = np.eye(4) * 1e-4
                expected = [
                    np.sum((plain(twin, X + h) - plain(twin, X - h)) * weights) / 2e-4
                    for h in steps
                ]
                np.testing.assert_allclose(slope, expected, 1e-6, 1e-6, err_msg=title)


@pytest.mark.slow
@pytest.mark.parametrize("chosen", chunks(20), ids=lambda r: f"{r[0]}-{r[-1]}")
def test_derivatives_over_changing_state(chosen: range) -> None:
    for seed in chosen:
        quiet(differentiating, seed)
