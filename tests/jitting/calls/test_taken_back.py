"""What a run changed that is not kept: taken back as it was, and done once."""

from __future__ import annotations

import array
import collections
import contextvars
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray

X = np.array([1.0, 2.0, 3.0])
Factory = tuple[Callable[[Any], Any], Callable[[], Any]]


class Adding(dict):  # type: ignore[type-arg]
    """A mapping that adds what it is given."""

    def update(self, other: Any) -> None:  # type: ignore[override]
        for key, value in other.items():
            self[key] = self.get(key, 0) + value


class Noisy(dict):  # type: ignore[type-arg]
    """A mapping that counts its writes."""

    writes = 0

    def __setitem__(self, key: Any, value: Any) -> None:
        dict.__setitem__(self, key, value)
        dict.__setitem__(self, "writes", self.get("writes", 0) + 1)


class Doubling(list):  # type: ignore[type-arg]
    """A list that takes everything twice."""

    def extend(self, items: Any) -> None:
        list.extend(self, [i for item in items for i in (item, item)])


def counter() -> Factory:
    d: Any = collections.Counter()

    def f(x: Any) -> Any:
        d.update("a")
        return x * d["a"]

    return f, lambda: dict(d)


def adding() -> Factory:
    d = Adding()

    def f(x: Any) -> Any:
        d.update({"n": 1})
        return x * d["n"]

    return f, lambda: dict(d)


def noisy() -> Factory:
    d = Noisy()

    def f(x: Any) -> Any:
        d["n"] = d.get("n", 0) + 1
        return x * d["n"]

    return f, lambda: dict(d)


def doubling() -> Factory:
    d = Doubling()

    def f(x: Any) -> Any:
        d.extend([1.0])
        return x * len(d)

    return f, lambda: list(d)


def own_attribute() -> Factory:
    def f(x: Any) -> Any:
        f.n += 1  # type: ignore[attr-defined]
        return x * f.n  # type: ignore[attr-defined]

    f.n = 0  # type: ignore[attr-defined]
    return f, lambda: f.n  # type: ignore[attr-defined]


def attribute_of_another() -> Factory:
    def g(x: Any) -> Any:
        g.calls = [*getattr(g, "calls", []), 1]  # type: ignore[attr-defined]
        return x * len(g.calls)  # type: ignore[attr-defined]

    return lambda x: g(x) + g(x), lambda: g.calls  # type: ignore[attr-defined]


def short_deque() -> Factory:
    d: Any = collections.deque([1.0], maxlen=3)

    def f(x: Any) -> Any:
        d.append(float(len(d)))
        return x * sum(d)

    return f, lambda: list(d)


def left_deque() -> Factory:
    d: Any = collections.deque()

    def f(x: Any) -> Any:
        d.appendleft(float(len(d)))
        return x * (d[0] + 2 * d[-1])

    return f, lambda: list(d)


def buffer() -> Factory:
    b = array.array("d", [0.0])

    def f(x: Any) -> Any:
        b[0] += 1.0
        b.append(1.0)
        return x * b[0] * len(b)

    return f, lambda: list(b)


def row_of_bytes() -> Factory:
    b = bytearray(1)

    def f(x: Any) -> Any:
        b[0] += 1
        b.append(2)
        return x * b[0] * len(b)

    return f, lambda: bytes(b)


def look_at_a_buffer() -> Factory:
    b = array.array("d", [0.0, 0.0])
    memory = memoryview(b)

    def f(x: Any) -> Any:
        memory[1] += 1.0
        return x * memory[1]

    return f, lambda: list(b)


def variable() -> Factory:
    count: contextvars.ContextVar[int] = contextvars.ContextVar("count")
    count.set(0)

    def f(x: Any) -> Any:
        count.set(count.get() + 1)
        return x * count.get()

    return f, count.get


def environment() -> Factory:
    name = f"ADARRAY_TEST_{next(_names)}"
    os.environ[name] = "0"

    def f(x: Any) -> Any:
        os.environ[name] = str(int(os.environ[name]) + 1)
        return x * int(os.environ[name])

    return f, lambda: os.environ[name]


_names = itertools.count()


def record() -> Factory:
    rows = np.zeros(3, [("v", float), ("n", int)])
    row = rows[1]

    def f(x: Any) -> Any:
        row["v"] += 1.0
        return x * float(row["v"])

    return f, lambda: rows.tolist()


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize("mode", ["jit", "jit(grad)", "grad of jit"])
@pytest.mark.parametrize(
    "make",
    [
        counter, adding, noisy, doubling, own_attribute, attribute_of_another, short_deque,
        left_deque, buffer, row_of_bytes, look_at_a_buffer, record,
        variable, environment,
    ],
)  # fmt: skip
def test_state_after_each_call_is_that_of_plain_calls(
    make: Callable[[], Factory], mode: str
) -> None:
    (plain, state), (f, own) = make(), make()
    weights = np.array([1.0, -2.0, 0.5])
    if mode == "jit":
        call = adarray.jit(f)
    elif mode == "jit(grad)":
        both = adarray.jit(adarray.value_and_grad(lambda x: np.sum(f(x) * weights)))
        call = lambda x: both(x)[0]  # noqa: E731
    else:
        jitted = adarray.jit(f)
        both = adarray.value_and_grad(lambda x: np.sum(jitted(x) * weights))
        call = lambda x: both(x)[0]  # noqa: E731
    for k in range(6):
        x = X + k
        expected = plain(x) if mode == "jit" else np.sum(plain(x) * weights)
        np.testing.assert_allclose(call(x), expected, rtol=1e-12)
        assert own() == state()
