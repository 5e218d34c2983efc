"""Plain code on captured arrays, and what a jitted function changes besides its result."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from captured import X, agree, compiled

import adarray
from adarray.jitting import JitWarning

# What the functions below read, and what the tests change.
weights = np.arange(4.0)
mode = "plain"
log: list[Any] = []
state = np.zeros(4)
total = 0.0


def start() -> dict[str, Any]:
    """Return what the globals hold before each test."""
    return {
        "weights": np.arange(4.0),
        "mode": "plain",
        "log": [],
        "state": np.zeros(4),
        "total": 0.0,
    }


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, and put back what it changed."""
    globals().update(start())
    with adarray.use(backend):
        yield
    globals().update(start())


# -- plain code that reads captured arrays -----------------------------------------------


def test_plain_code_on_captured_arrays() -> None:
    """It is recorded as well: arrays are inputs wherever they are read."""
    global weights

    def f(x: Any) -> Any:
        centred = weights - weights.mean()
        return x * centred / weights.std() + float(weights[0]) + len(weights[weights > 1.0])

    jf = compiled(f, X)
    weights[0] = 3.0
    agree(jf, f, X)
    weights[:] = [5.0, 4.0, 3.0, 2.0]
    agree(jf, f, X)
    weights = np.array([0.1, 0.2, 0.3, 7.0])
    agree(jf, f, X)


def test_branches_on_captured_arrays() -> None:
    def f(x: Any) -> Any:
        return x if weights[0] > 1.0 else -x

    jf = compiled(f, X)
    weights[0] = 5.0
    agree(jf, f, X)
    weights[0] = 0.0
    agree(jf, f, X)


def test_class_attributes_read_by_plain_code() -> None:
    class Holder:
        table = np.arange(4.0)

    def f(x: Any) -> Any:
        return x if Holder.table.sum() > 10.0 else x * Holder.table

    jf = compiled(f, X)
    Holder.table[0] = 50.0
    agree(jf, f, X)
    Holder.table = np.zeros(4)
    agree(jf, f, X)


def test_big_arrays_behind_a_class_are_compared_whole() -> None:
    class Holder:
        table = np.zeros(200_001)

    def f(x: Any) -> Any:
        return x + Holder.table.sum()

    jf = compiled(f, X)
    for at in (0, 77_777, 200_000):
        Holder.table[at] += 1.0
        agree(jf, f, X)


# -- what the function changes -----------------------------------------------------------


def test_a_counter_is_kept() -> None:
    calls = 0

    def f(x: Any) -> Any:
        nonlocal calls
        calls += 1
        return x * calls

    jf = adarray.jit(f)
    for i in range(1, 9):
        np.testing.assert_array_equal(jf(X), X * i)
    assert calls == 8
    assert type(calls) is int
    assert jf.cache_info().paths == 1


def test_an_appended_list_is_kept() -> None:
    def f(x: Any) -> Any:
        log.append(np.sum(x))
        return x * 2.0

    jf = adarray.jit(f)
    for _ in range(6):
        jf(X)
    assert log == [X.sum()] * 6
    assert all(type(v) is np.float64 for v in log)
    assert jf.cache_info().paths == 1


def test_state_in_attributes_is_kept() -> None:
    class Cell:
        def __init__(self) -> None:
            self.h = np.zeros(4)

        def step(self, x: Any) -> Any:
            self.h = np.tanh(self.h + x)
            return self.h

    one, two = Cell(), Cell()
    jf = adarray.jit(one.step)
    for _ in range(6):
        result = jf(X)
        np.testing.assert_allclose(result, two.step(X))
        assert one.h is result
    assert jf.cache_info().paths == 1


def test_a_global_rebound_is_kept() -> None:
    def f(x: Any) -> Any:
        global total
        total = total + np.sum(x)
        return x * 2.0

    jf = adarray.jit(f)
    for _ in range(6):
        jf(X)
    assert total == pytest.approx(6 * X.sum())
    assert jf.cache_info().paths == 1


def test_writes_into_captured_arrays_compile() -> None:
    def f(x: Any) -> Any:
        state[1:] += x[1:]
        return state * 2.0

    jf = adarray.jit(f)
    expected = np.zeros(4)
    for i in range(5):
        expected[1:] += X[1:] + i
        np.testing.assert_allclose(jf(X + i), expected * 2.0)
        np.testing.assert_allclose(state, expected)
    assert jf.cache_info().traces == 1


# -- randomness --------------------------------------------------------------------------


def test_a_generator_in_slots_is_drawn_from() -> None:
    class Holder:
        __slots__ = ("rng",)

        def __init__(self, rng: Any) -> None:
            self.rng = rng

    holder, twin = Holder(np.random.default_rng(3)), np.random.default_rng(3)
    jf = adarray.jit(lambda x: x + holder.rng.normal(size=4))
    for _ in range(4):
        np.testing.assert_array_equal(jf(X), X + twin.normal(size=4))
    assert jf.cache_info().eager == 0


def test_a_generator_of_a_class_stays_eager() -> None:
    """Classes are not cloned: what they hold is drawn from unseen."""

    class Holder:
        rng = np.random.default_rng(3)

    twin = np.random.default_rng(3)
    jf = adarray.jit(lambda x: x + Holder.rng.normal(size=4))
    with pytest.warns(JitWarning, match=r"rng, which a class or slots hold.*an argument"):
        first = jf(X)
    for got in (first, jf(X), jf(X), jf(X)):
        np.testing.assert_array_equal(got, X + twin.normal(size=4))


def test_the_random_state_of_python_stays_eager() -> None:
    jf = adarray.jit(lambda x: x * random.random())
    with pytest.warns(JitWarning, match="random state of Python"):
        draws = [jf(X)]
    draws += [jf(X) for _ in range(3)]
    assert len({d.tobytes() for d in draws}) == 4


def test_values_from_nowhere_stay_eager() -> None:
    """Two runs that differ, and nothing that was captured explains it."""
    source = iter(range(1, 100))
    jf = adarray.jit(lambda x: x * next(source), assume_constant="source")
    got = [jf(X) for _ in range(3)]
    with pytest.warns(JitWarning, match="two runs on the same signature"):
        got.append(jf(X))
    got += [jf(X) for _ in range(3)]
    for i, value in enumerate(got, 1):
        np.testing.assert_array_equal(value, X * i)


def test_what_keeps_changing_stays_eager() -> None:
    global mode

    def f(x: Any) -> Any:
        return x * len(mode)

    jf = adarray.jit(f)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for i in range(12):
            mode = "a" * (i + 1)
            agree(jf, f, X)
    assert [w.category for w in said] == [JitWarning]
    assert "keeps changing" in str(said[0].message)
    agree(jf, f, X)


def test_captured_leaves_of_backward_stay_eager() -> None:
    w = adarray.array(np.ones(4), requires_grad=True)
    jf = adarray.jit(lambda x: np.sum(w * x))
    with pytest.warns(JitWarning, match="requires_grad"):
        y = jf(X)
    y.backward()
    np.testing.assert_array_equal(w.grad, X)


def test_captured_adarrays_are_inputs() -> None:
    w = adarray.array(np.ones(4))

    def f(x: Any) -> Any:
        return x * w

    jf = adarray.jit(f)
    for i in range(5):
        w[1] = float(i)
        np.testing.assert_array_equal(np.asarray(jf(X)), X * w.numpy())
    assert jf.cache_info().traces == 1


class _Storage:
    def __init__(self) -> None:
        self.parts: list[Any] = [1.0, 2.0]
        self.history: list[Any] = []

    def loss(self, w: Any) -> Any:
        self.history.append(np.sum(w**2))
        return self.history[0]

    def same(self, w: Any) -> Any:
        self.again = self.parts
        return np.sum(w)


_HISTORY: list[Any] = []


def _appended(w: Any) -> Any:
    _HISTORY.append(np.sum(w))
    return np.sum(w**2) * len(_HISTORY)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: _Storage().loss, "reads a list that it appends to (self.history)"),
        (lambda: _Storage().same, "changes what it captured (self.again)"),
        (lambda: _appended, "reads a list that it appends to (_HISTORY)"),
    ],
)
def test_the_warning_names_what_is_changed(make: Any, told: str) -> None:
    f = make()
    jitted = adarray.jit(adarray.grad(f))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(4):
            jitted(np.array([1.0, 2.0]))
    assert [told in str(w.message) for w in said] == [True]
    member = getattr(f, "__self__", None)
    for x in [*_HISTORY, *(member.history if member is not None else ())]:
        assert float(x) in (3.0, 5.0)
