"""What compiled calls change besides arrays, and what they must not change."""

from __future__ import annotations

import bisect
import copy
import json
import pickle
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.jitting import JitWarning
from adarray.jitting.captures.effects import GrowingList

X = np.array([0.5, -1.0, 2.0, 0.25])
total, seen = 0.0, 0


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend, from the same globals."""
    global total, seen
    total, seen = 0.0, 0
    with adarray.use(backend):
        yield


class Slots:
    __slots__ = ("best", "count")

    def __init__(self) -> None:
        self.count = 0


class Model:
    def __init__(self) -> None:
        self.velocity: Any = 0.0
        self.losses: list[Any] = []
        self.log: dict[str, list[Any]] = defaultdict(list)
        self.slots = Slots()
        self.params: Any = None
        self.last: Any = None

    def momentum(self, x: Any) -> Any:
        self.velocity = 0.9 * self.velocity + x
        return self.velocity

    def everything(self, x: Any) -> Any:
        y = np.tanh(x)
        loss = np.sum(y**2)
        self.losses += [loss]
        self.log["loss"].append(loss)
        self.slots.count += 1
        self.slots.best = y
        self.last = {"y": y, "pair": (loss, self.slots.count), "name": "tanh"}
        return y, loss

    def keep(self, params: Any) -> Any:
        self.params = params
        return np.sum(params["w"] * params["b"])


def compiled(jf: Any) -> bool:
    info = jf.cache_info()
    return bool(info.eager == 0 and info.compiled)


def test_attributes_are_those_of_plain_runs() -> None:
    model, plain = Model(), Model()
    jf = adarray.jit(model.everything)
    for i in range(6):
        y, _ = jf(X + i)
        plain.everything(X + i)
        assert model.slots.best is y
        assert model.last["y"] is y
        assert model.last["pair"] == (pytest.approx(plain.last["pair"][0]), i + 1)
        assert list(map(type, model.last["pair"])) == list(map(type, plain.last["pair"]))
        assert model.last["name"] == "tanh"
    np.testing.assert_allclose(model.losses, plain.losses)
    np.testing.assert_allclose(model.log["loss"], plain.log["loss"])
    assert compiled(jf)


def test_an_attribute_may_change_its_kind_once() -> None:
    """First a number, then an array: two states of what was captured."""
    model, plain = Model(), Model()
    jf = adarray.jit(model.momentum)
    for i in range(6):
        np.testing.assert_allclose(jf(X + i), plain.momentum(X + i))
        np.testing.assert_array_equal(model.velocity, plain.velocity)
    assert compiled(jf)


def test_arguments_that_are_kept_are_the_callers_own() -> None:
    model = Model()
    jf = adarray.jit(model.keep)
    for i in range(5):
        params = {"w": X + i, "b": X * 2.0}
        assert jf(params) == pytest.approx(np.sum((X + i) * X * 2.0))
        assert model.params is params
    assert compiled(jf)


def test_values_are_plain_after_a_compiled_gradient() -> None:
    model = Model()
    jf = adarray.jit(adarray.grad(lambda x: model.everything(x)[1]))
    loss = np.sum(np.tanh(X) ** 2)
    for i in range(5):
        np.testing.assert_allclose(jf(X), 2 * np.tanh(X) * (1 - np.tanh(X) ** 2))
        np.testing.assert_allclose(json.loads(json.dumps(model.losses)), [loss] * (i + 1))
    assert type(model.slots.best) is np.ndarray
    assert compiled(jf)


def test_under_a_gradient_everything_is_changed_once() -> None:
    model = Model()
    jf = adarray.jit(lambda x: model.everything(x)[1])
    for i in range(4):
        adarray.grad(jf)(X)
        assert model.slots.count == len(model.losses) == i + 1


def test_closures_are_shared_by_the_functions_that_use_them() -> None:
    count = 0

    def bump() -> None:
        nonlocal count
        count += 1

    def f(x: Any) -> Any:
        bump()
        return x * count

    jf = adarray.jit(f)
    for i in range(1, 8):
        np.testing.assert_array_equal(jf(X), X * i)
    assert (count, type(count)) == (7, int)
    assert compiled(jf)
    adarray.grad(lambda x: np.sum(jf(x)))(X)
    assert count == 8


def read_total() -> float:
    return total


def test_globals_are_shared_by_the_functions_that_use_them() -> None:
    weights = np.full(4, 2.0)

    def f(x: Any) -> Any:
        global total
        total = total + 1.0
        return x * weights * read_total()

    jf = adarray.jit(f)
    for i in range(1, 6):
        np.testing.assert_array_equal(jf(X), X * 2.0 * i)
    assert total == 5.0
    assert compiled(jf)


class Called:
    """Python finds its ``__call__`` in the class, where jit puts no copy."""

    def __init__(self) -> None:
        self.weights = np.ones(4)

    def __call__(self, x: Any) -> Any:
        global seen
        seen += 1
        return x * self.weights


def test_what_is_changed_behind_a_class_is_seen() -> None:
    called = Called()

    def f(x: Any) -> Any:
        y = called(x)
        return y * seen

    jf = adarray.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", JitWarning)
        for i in range(1, 7):
            np.testing.assert_array_equal(jf(X), X * i)
    assert seen == 6


def test_an_object_that_a_class_holds_too_is_not_split() -> None:
    model = Model()
    model.params = np.ones(4)

    class Registry:
        items = (model,)

    def f(x: Any) -> Any:
        Registry.items[0].slots.count += 1
        model.last = x * 2.0
        return x * model.params * model.slots.count

    jf = adarray.jit(f)
    with pytest.warns(JitWarning, match="reaches in two ways"):
        np.testing.assert_array_equal(jf(X), X)
    for i in range(2, 5):
        np.testing.assert_array_equal(jf(X), X * i)
    np.testing.assert_array_equal(model.last, X * 2.0)


def test_branches_have_effects_of_their_own() -> None:
    model, plain = Model(), Model()

    def step(m: Model, x: Any) -> Any:
        m.slots.count += 1
        if np.sum(x) > 2.0:
            m.losses.append(np.sum(x))
        if m.slots.count % 3 == 0:
            m.last = x + 1.0
        return x * 2.0

    jf = adarray.jit(lambda x: step(model, x))
    for i in range(14):
        jf(X + (i % 2))
        step(plain, X + (i % 2))
        assert model.slots.count == plain.slots.count
        np.testing.assert_array_equal(model.losses, plain.losses)
        assert (model.last is None) == (plain.last is None)
    np.testing.assert_array_equal(model.last, plain.last)
    assert compiled(jf)


def test_another_object_in_its_place_gets_the_changes() -> None:
    model = Model()
    jf = adarray.jit(lambda x: model.everything(x)[1])
    for _ in range(4):
        jf(X)
    old, model = model, Model()
    jf(X)
    assert (old.slots.count, model.slots.count, len(model.losses)) == (4, 1, 1)


def test_an_error_changes_nothing_in_compiled_calls() -> None:
    model = Model()

    def f(x: Any) -> Any:
        model.slots.count += 1
        if x[0] > 9.0:
            raise ValueError("too large")
        return x * model.slots.count

    jf = adarray.jit(f)
    for _ in range(4):
        jf(X)
    with pytest.raises(ValueError, match="too large"):
        jf(X + 10.0)
    assert model.slots.count == 5  # as a plain run leaves it
    np.testing.assert_array_equal(jf(X), X * 6)


@pytest.mark.parametrize(
    "read",
    [
        len, list, tuple, sum, max, sorted, repr, str, bool, reversed, iter, copy.copy,
        copy.deepcopy, np.array, np.asarray, np.sum, enumerate, json.dumps, pickle.dumps,
        lambda x: [*x], lambda x: x[0], lambda x: x[-1], lambda x: x[:], lambda x: 2.0 in x,
        lambda x: x == [1.0], lambda x: x + [1.0], lambda x: [1.0] + x,  # noqa: RUF005
        lambda x: x * 2, lambda x: x.index(1.0), lambda x: x.count(1.0), lambda x: x.copy(),
        lambda x: x.pop(), lambda x: x.sort(), lambda x: x.insert(0, 1.0), lambda x: x.clear(),
        lambda x: x.__setitem__(0, 1.0), lambda x: max(*x), lambda x: ",".join(map(str, x)),
        lambda x: bisect.bisect(x, 0.5), lambda x: list(zip(x, x, strict=True)),
        lambda x: [1.0].extend(x), lambda x: x < [1.0], lambda x: x.remove(1.0),
        lambda x: next(iter(x)),
    ],
)  # fmt: skip
def test_a_list_that_grows_notices_reads(read: Callable[[Any], Any]) -> None:
    items = GrowingList([1.0, 2.0])
    read(items)
    assert items.was_read


def test_a_list_that_grows_takes_items_unnoticed() -> None:
    items = GrowingList([1.0])
    items.append(2.0)
    items.extend((3.0, 4.0))
    items += [5.0]
    assert (items[-1], items[-4]) == (5.0, 2.0)  # those that it took
    assert isinstance(items, list)
    assert items.__class__ is list
    assert not items.was_read
    assert items[-5] == 1.0
    assert items.was_read


def test_a_run_that_changes_objects_belongs_to_the_state_before_it() -> None:
    space: dict[str, Any] = {"np": np, "__name__": "changing"}
    exec(
        """
class Model: pass
m = Model(); m.p = np.zeros(3); m.q = np.ones(3); m.a = m.p; m.alias = m.p; total = 0.75
def f(x):
    global total
    m.a = m.p
    total = total + 1
    if x[0] < 1.0:
        m.a = m.q
    total = 0.75
    m.alias = m.a
    return np.sum(x)
""",
        space,
    )
    jitted, m = adarray.jit(space["f"]), space["m"]
    for first in (2.0, 2.0, 0.5, 2.0, 0.5, 0.5, 2.0, 2.0, 0.5, 2.0):
        jitted(np.full(3, first))
        assert m.a is m.alias
        assert m.a is (m.q if first < 1.0 else m.p)


def test_items_that_come_back_stand_behind_the_others() -> None:
    table = {"a": 1.0, "b": 2.0}

    def f(x: Any) -> Any:
        del table["a"]
        table["a"] = 1.0
        table["new"] = 0.5
        return np.sum(x)

    jitted = adarray.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", adarray.JitWarning)
        jitted(np.ones(3))
        assert list(table) == ["b", "a", "new"]
        jitted(np.ones(3))
        assert list(table) == ["b", "new", "a"]
