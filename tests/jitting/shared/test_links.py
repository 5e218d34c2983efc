"""Arguments, captured arrays and results that are one object, or share memory, stay so."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes
from adarray.transforms.tree import flatten

W = np.arange(4.0)
CALLS = 4


class Owner:
    v = np.arange(4.0)


@dataclasses.dataclass
class Pair:
    a: Any
    b: Any


def pattern(*trees: Any) -> list[tuple[bool, bool]]:
    """Return which arrays are one object, and which share memory."""
    arrays = [x for x in flatten(trees)[0] if isinstance(x, np.ndarray)]
    return [(a is b, bool(np.shares_memory(a, b))) for i, a in enumerate(arrays)
            for b in arrays[:i]]  # fmt: skip


def written(x: Any, y: Any) -> Any:
    x *= 2.0
    return np.sum(y), x[1:]


def written_views(x: Any, y: Any) -> Any:
    x[0] = y[1]
    v = x[1:]
    v += 1.0
    return v, x, y[::-1]


def computed_index(x: Any, y: Any) -> Any:
    return x[int(y[1]) :], x


def in_a_loop(x: Any, y: Any) -> Any:
    z = np.zeros(4)
    while np.sum(z) < 20.0:
        z += 1.0 + np.abs(x) + y
    return z[1:], z[:2]


def captured_is_written(x: Any, y: Any) -> Any:
    W[0] += x[1]
    return W[:2], np.sum(y)


def of_zeros(x: Any, y: Any) -> Any:
    z = np.zeros(4)
    z[1] = x[1] + y[1]
    return z[1:], z[:2]


PROGRAMS: list[Callable[..., Any]] = [
    lambda x, y: (np.sin(x),) * 2,
    lambda x, y: (s := np.sin(x), s[1:]),
    lambda x, y: ((s := np.sin(x))[1:], s[:2], s.T),
    lambda x, y: ((z := np.zeros(4) + np.sum(x))[::-1], *((v := z[1:]), z, v)),
    lambda x, y: ((v := (z := np.sin(x))[1:]), z, v, z),
    lambda x, y: {"a": x, "b": [y[1:], x[::-1]]},
    lambda x, y: Pair(x, x * 2.0),
    lambda x, y: (W, W[1:], x * W),
    lambda x, y: (Owner.v, x * Owner.v),
    lambda x, y: (Owner.v[1:], x * Owner.v),
    lambda x, y: x * (2.0 if x is y else 3.0),
    lambda x, y: (x * y, x is W, x is y),
    lambda x, y: np.sum(x) + (np.shares_memory(x, y) and 1.0),
    written, written_views, computed_index, in_a_loop, captured_is_written, of_zeros,
]  # fmt: skip
ARGUMENTS: dict[str, Callable[[], Any]] = {
    "apart": lambda: (np.arange(4.0), np.arange(4.0) * 2),
    "one array": lambda: (np.arange(4.0),) * 2,
    "overlapping": lambda: (lambda a: (a[:4], a[2:]))(np.arange(6.0)),
    "turned": lambda: (lambda a: (a, a[::-1]))(np.arange(4.0)),
    "captured": lambda: (W, W),
    "a view of captured": lambda: (np.arange(4.0), W[::-1]),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_memory_is_shared_as_in_plain_code(number: int, backend: str) -> None:
    f = PROGRAMS[number]
    with use_all_sizes(backend), warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        jitted = adarray.jit(f)
        for name, make in [*ARGUMENTS.items()] * 2:
            for _ in range(CALLS):
                runs = []
                for function in (f, jitted):
                    W[:] = np.arange(4.0)
                    args = make()
                    result = function(*args)
                    links = pattern(result, args, W, Owner.v)
                    runs.append((links, [np.array(x) for x in flatten((result, args, W))[0]]))
                (shared, expected), (shared_too, got) = runs
                assert shared_too == shared, name
                for a, b in zip(got, expected, strict=True):
                    np.testing.assert_allclose(a, b)
    W[:] = np.arange(4.0)


@pytest.mark.parametrize("make", [lambda x: ([x, x],), lambda x: ({"a": x, "b": x},),
                                  lambda x: (Pair(x, x),)])  # fmt: skip
def test_one_array_twice_in_a_nest(make: Any) -> None:
    def f(p: Any) -> Any:
        a, b = flatten(p)[0]
        a += 1.0
        return np.sum(b), a is b

    jitted = adarray.jit(f)
    for _ in range(CALLS):
        total, same = jitted(*make(np.ones(3)))
        assert total == 6.0
        assert same is True
        apart = make(np.ones(3))[0]
        leaves, rebuild = flatten(apart)
        total, same = jitted(rebuild([x.copy() for x in leaves]))
        assert total == 3.0
        assert same is False


def test_keyword_arguments() -> None:
    def f(x: Any, *, other: Any) -> Any:
        x *= 2.0
        return np.sum(other)

    jitted = adarray.jit(f)
    for _ in range(CALLS):
        x = np.ones(3)
        assert jitted(x, other=x) == 6.0
        assert jitted(np.ones(3), other=x) == 6.0


def test_adarrays_stay_the_objects_that_were_given() -> None:
    jitted = adarray.jit(lambda x: (x, x[1:], s := x * 2.0, s, s[:1]))
    for _ in range(CALLS):
        x = adarray.array([1.0, 2.0])
        same, tail, double, again, head = jitted(x)
        assert same is x
        assert again is double
        x[1] = 5.0
        double[0] = 7.0
        assert float(tail[0]) == 5.0
        assert float(head[0]) == 7.0


def test_gradients_through_results_that_are_arguments() -> None:
    @adarray.jit
    def f(x: Any, y: Any) -> Any:
        s = np.sin(x)
        return x, s, s[1:], y

    def loss(x: Any, y: Any) -> Any:
        a, b, c, d = f(x, y)
        return np.sum(a * b) + np.sum(c) + np.sum(d * a)

    x, y = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    for _ in range(CALLS):
        g = adarray.grad(loss, argnums=(0, 1))(x, y)
        np.testing.assert_allclose(g[0], np.sin(x) + x * np.cos(x) + [0, np.cos(x[1])] + y)
        np.testing.assert_allclose(g[1], x)
