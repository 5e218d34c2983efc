"""Functions with `functools.lru_cache` run as often, and in the same places, as in plain code."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from repeated import X, repeat

import adarray
from adarray.intercepting.memory import holds
from adarray.jitting import JitWarning

Made = tuple[Callable[[Any], Any], Callable[[], Any]]


def writes() -> Made:
    s, log = types.SimpleNamespace(n=0), np.zeros(2)

    @functools.lru_cache
    def scale(k: int) -> float:
        s.n += 1
        log[k] += 1.0
        return k + 2.0

    return lambda x: np.sum(x * scale(0) * scale(1)), lambda: (s.n, log.tolist())


def other_arguments_in_each_call() -> Made:
    calls: list[int] = []
    s = types.SimpleNamespace(n=0)

    @functools.lru_cache
    def scale(k: int) -> float:
        calls.append(k)
        return k * 2.0

    def f(x: Any) -> Any:
        s.n += 1
        return np.sum(x * scale(s.n))

    return f, lambda: (s.n, tuple(calls))


def too_small_a_cache() -> Made:
    calls: list[int] = []

    @functools.lru_cache(maxsize=1)
    def scale(k: int) -> float:
        calls.append(k)
        return k * 2.0

    return lambda x: np.sum(x * scale(1) * scale(2)), lambda: tuple(calls)


def nothing_is_kept() -> Made:
    calls: list[int] = []

    @functools.lru_cache(maxsize=0)
    def scale(k: int) -> float:
        calls.append(k)
        return k * 2.0

    return lambda x: np.sum(x * scale(1)), lambda: tuple(calls)


def errors_are_not_kept() -> Made:
    calls: list[int] = []

    @functools.lru_cache
    def scale(k: int) -> float:
        calls.append(k)
        raise ValueError("no scale")

    def f(x: Any) -> Any:
        try:
            return np.sum(x * scale(1))
        except ValueError:
            return np.sum(x**2)

    return f, lambda: tuple(calls)


def writes_what_the_function_has_written() -> Made:
    s = types.SimpleNamespace(n=0)

    @functools.lru_cache
    def scale(k: int) -> float:
        s.n += 1
        return k * 2.0

    def f(x: Any) -> Any:
        s.n = 5
        return np.sum(x * scale(1)) * s.n

    return f, lambda: s.n


def a_cache_that_is_emptied() -> Made:
    s = types.SimpleNamespace(n=0, calls=0)

    @functools.lru_cache
    def scale(k: int) -> float:
        s.n += 1
        return k * 2.0

    def f(x: Any) -> Any:
        s.calls += 1
        if s.calls % 3 == 0:
            scale.cache_clear()
        return np.sum(x * scale(1)) * s.calls

    return f, lambda: (s.n, s.calls)


def a_method() -> Made:
    class Model:
        def __init__(self) -> None:
            self.n, self.calls = 0, 0

        @functools.lru_cache  # noqa: B019
        def scale(self, k: int) -> float:
            self.n += 1
            return k * 2.0

        def f(self, x: Any) -> Any:
            self.calls += 1
            return np.sum(x * self.scale(2)) * self.calls

    model = Model()
    return model.f, lambda: (model.n, model.calls)


PROGRAMS = (
    writes, other_arguments_in_each_call, too_small_a_cache, nothing_is_kept, errors_are_not_kept,
    writes_what_the_function_has_written, a_cache_that_is_emptied, a_method,
)  # fmt: skip


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_the_function_runs_as_often(make: Callable[[], Made]) -> None:
    assert not repeat(make)


def test_a_cache_that_somebody_else_empties(backend: str) -> None:
    f, state = writes()
    jitted = adarray.jit(f)
    scale = next(c.cell_contents for c in f.__closure__ or () if callable(c.cell_contents))
    with adarray.use(backend):
        for k in range(1, 6):
            scale.cache_clear()
            for _ in range(4):
                jitted(X)
                assert state() == (2 * k, [k, k])


def test_a_cache_that_never_holds_what_is_asked_for_is_named(backend: str) -> None:
    f, _ = too_small_a_cache()
    jitted = adarray.jit(f)
    with adarray.use(backend):
        for _ in range(8):
            jitted(X)
        with pytest.warns(JitWarning, match="the cache of scale does not hold what it asks for in"):
            jitted(X)


def test_functions_with_a_full_cache_compile(backend: str) -> None:
    f, state = writes()
    jitted = adarray.jit(f)
    with adarray.use(backend):
        for _ in range(5):
            jitted(X)
    assert jitted.cache_info().compiled == 1
    assert state() == (2, [1.0, 1.0])


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("maxsize", [None, 4])
def test_what_a_cache_holds(maxsize: int | None, typed: bool) -> None:
    @functools.lru_cache(maxsize=maxsize, typed=typed)
    def f(*args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}), ((1,), {}), (("a",), {}), ((2.0,), {}), ((True,), {}), ((1, 2), {}),
        (((1, 2),), {}), ((1,), {"k": 2}), ((), {"k": 2, "j": "a"}), ((), {"j": "a", "k": 2}),
        ((None,), {}), ((1, "k", 2), {}),
    ]  # fmt: skip
    for args, kwargs in calls:
        misses = f.cache_info().misses
        is_cached = holds(f, args, kwargs)
        f(*args, **kwargs)
        assert is_cached is (f.cache_info().misses == misses)
        assert holds(f, args, kwargs)
