"""Plain arrays that come into intercepted code, `adarray.wrap`, and losses that raise."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import adarray
import adarray.testing
from adarray.intercepting import intercepted

X = np.array([[1.0, 2.0], [0.5, -1.0], [3.0, 0.2]])
OUTSIDE = np.polynomial.Polynomial([1.0, 2.0])
Point = namedtuple("Point", ["x", "y"])


class Model:
    """Holds plain data, as objects do that were made before."""

    def __init__(self) -> None:
        self.data = X.copy()

    def through_numpy(self, w: Any) -> Any:
        return np.asarray(self.data).dot(w).sum()

    def by_method(self, w: Any) -> Any:
        return self.data.dot(w).sum()


# -- plain arrays that come in -------------------------------------------------------


def test_arguments_enter_as_adarrays() -> None:
    def f(w, data, more):
        assert isinstance(data, np.ndarray)
        y = data.copy()
        y[0] = w
        return data.dot(w).sum() + y.sum() + more["k"][0].dot(w)

    w = np.array([0.5, 2.0])
    g = adarray.grad(intercepted(f))(w, X, {"k": [np.array([1.0, 2.0]), "text"]})
    assert np.allclose(g, X.sum(axis=0) + 1.0 + [1.0, 2.0])


def test_data_of_objects() -> None:
    model = Model()
    w = np.array([0.5, 2.0])
    assert np.allclose(adarray.grad(intercepted(model.through_numpy))(w), X.sum(axis=0))
    assert np.allclose(adarray.grad(intercepted(model.by_method))(w), X.sum(axis=0))


def _in_place(w: Any) -> Any:
    work, whole = X.copy(), X.flatten()
    work[1] += w
    whole[:2] = w * w
    return (work**2).sum() + whole.sum() + X.T.astype(float).dot(X.dot(w)).sum()


def test_methods_of_captured_arrays_take_traced_values() -> None:
    local = X[:2] * 2.0
    table = {"a": 1, "dot": 2}
    w = np.array([0.5, 2.0])

    def closed(w: Any) -> Any:
        assert table.copy() == table  # of other objects methods are their own
        assert [1, 2].copy() == [1, 2]
        at = X[:, 0].searchsorted(0.7)
        by_name = X[at].dot  # not called at once: numpy's own
        return local.dot(w).sum() + X.take([0, 1], axis=0).dot(w).sum() + by_name(X[0])

    expected = local.sum(axis=0) + X[:2].sum(axis=0)
    assert np.allclose(adarray.grad(closed)(w), expected)
    adarray.testing.check_grads(_in_place, (w,))
    assert type(X.copy()) is np.ndarray
    assert type(_in_place(w)) is np.float64


def test_an_argument_is_written_through() -> None:
    buffer = np.zeros(3)

    def f(x, work):
        work[:] = 2.0
        work += 1.0
        np.multiply(work, 2.0, out=work)
        y = np.asarray(work)
        y[0] = 7.0
        return np.sum(x * work)

    g = adarray.grad(intercepted(f))(np.ones(3), buffer)
    assert buffer.tolist() == [7.0, 6.0, 6.0]
    assert g.tolist() == [7.0, 6.0, 6.0]


def test_a_traced_value_does_not_enter_plain_memory() -> None:
    def f(x, work):
        work[0] = x[0]
        return work.sum()

    message = r"in-place update of the memory of a plain ndarray of shape \(3,\).*np.copy"
    with pytest.raises(adarray.TraceError, match=message):
        adarray.grad(intercepted(f))(np.ones(3), np.zeros(3))

    def through_a_view(x, work):
        np.asarray(work).reshape(3, 1)[1] = x[0]
        return work.sum()

    with pytest.raises(adarray.TraceError):
        adarray.grad(intercepted(through_a_view))(np.ones(3), np.zeros(3))


@pytest.mark.parametrize("size", [3, 100_000])
def test_plain_memory_that_changes_after_use(size: int) -> None:
    """A rule must not read what was written after the operation (autograd gives 6 here)."""
    work = np.zeros(size)

    def f(x, original):
        shared = np.asarray(work)
        total = 0.0
        for k in (1.0, 2.0):
            original[:] = k
            work[:] = k
            total = total + np.sum(x * original) + np.sum(x * shared)
        return total

    run = adarray.grad(intercepted(f))
    if size == 3:
        assert run(np.ones(3), np.zeros(3)).tolist() == [6.0, 6.0, 6.0]
    else:
        with pytest.raises(ValueError, match="read-only"):
            run(np.ones(size), np.zeros(size))


def test_views_of_plain_memory_follow_it() -> None:
    data = np.arange(4.0)

    def f(x):
        v = np.reshape(data, (2, 2))
        before = np.sum(v * x)
        data[0] = 10.0
        return before + np.sum(v * x)

    assert adarray.grad(intercepted(f))(1.0) == 6.0 + 16.0


# -- wrap -------------------------------------------------------------------------


def test_wrap_gives_what_it_was_given() -> None:
    def f(x, scale=1.0):
        return {"y": np.array([x.sum() if isinstance(x, np.ndarray) else x, scale])}

    run = adarray.wrap(f)
    assert type(run(np.ones(2))["y"]) is np.ndarray
    assert type(run(adarray.array([1.0, 2.0]))["y"]) is adarray.ADArray
    assert type(run(1.0, scale=adarray.array(2.0))["y"]) is adarray.ADArray
    assert run.__name__ == "f"
    g = adarray.grad(lambda x: run(x, scale=x[0])["y"].sum())(np.ones(2))
    assert g.tolist() == [2.0, 1.0]


def test_wrap_of_methods_partials_and_objects() -> None:
    import functools

    class Area:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x: Any) -> Any:
            return np.array([self.k * x, 1.0]).prod()

        def method(self, x: Any) -> Any:
            return self(x) * 2.0

    area = Area(3.0)
    assert adarray.grad(adarray.wrap(area))(1.0) == 3.0
    assert adarray.grad(adarray.wrap(area.method))(1.0) == 6.0
    assert adarray.grad(adarray.wrap(functools.partial(Area.method, area)))(1.0) == 6.0
    with pytest.raises(TypeError, match="wrap: expected a function, got int"):
        adarray.wrap(3)  # type: ignore[arg-type]


# -- losses that raise ----------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda x: np.array([x, 1.0], dtype=int).sum(),
        lambda x: np.array([x], dtype=object)[0],
        lambda x: np.zeros(2, dtype=int).__setitem__(0, x),
        lambda x: f"{x:d}",
        lambda x: "{:.2f} {}".format(*np.array([x, x]).tobytes()),
    ],
)
def test_what_would_lose_the_gradient_raises(f: Any) -> None:
    with pytest.raises((adarray.TraceError, ValueError, AttributeError)):
        adarray.grad(intercepted(f))(1.5)


def test_lists_and_dictionaries_of_the_caller() -> None:
    array = np.array([1.0, 2.0])
    history: list[Any] = []
    mixed: list[Any] = [array, 1]
    table: dict[str, Any] = {"a": array, "inner": [array]}

    def f(x, history, mixed, table):
        history.append("called")
        mixed.append(3)
        table["b"] = table["a"]
        table["inner"].append("x")
        del table["a"]
        return mixed[0].dot(np.array([x, x])) + table["inner"][0].dot(np.array([x, 0.0]))

    assert adarray.grad(intercepted(f))(1.0, history, mixed, table) == 4.0
    assert history == ["called"]
    assert mixed[0] is array
    assert mixed[1:] == [1, 3]
    assert set(table) == {"b", "inner"}
    assert table["b"] is array
    assert table["inner"][0] is array
    assert table["inner"][1:] == ["x"]


def test_memory_of_other_objects() -> None:
    class Frame:
        def __init__(self) -> None:
            self.values = np.arange(3.0)

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.values

    frame = Frame()

    def f(x):
        y = np.asarray(frame)
        total = np.sum(y * x)
        frame.values[:] = 10.0  # after use
        fresh = np.zeros_like(y)
        fresh[0] = x
        return total + y.dot(fresh)

    assert adarray.grad(intercepted(f))(2.0) == 13.0

    def write(x):
        np.asarray(frame)[0] = x

    with pytest.raises(adarray.TraceError, match="in-place update of the memory of a plain"):
        adarray.grad(intercepted(write))(1.0)


def test_scalars_are_keys_as_numpys_are() -> None:
    def f(x):
        table = {0: 1.0, 1: 2.0, 2: 3.0}
        order = np.argsort(x)
        assert {np.float64(0.5): 1}[np.array([0.5])[0]] == 1
        return sum(table[k] * x[k] for k in order)

    assert adarray.grad(intercepted(f))(np.array([3.0, 1.0, 2.0])).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="unhashable type: 'traced ADArray'"):
        adarray.grad(lambda x: {1.0: x}[x])(1.0)
    with pytest.raises(TypeError, match="unhashable type: 'ADArray'"):
        hash(adarray.array([1.0]))


def test_modules_that_numba_compiles_are_left_alone(client) -> None:
    import types as python_types

    module = client("client_jitted", "import numpy as np\n")
    fake = python_types.new_class("Dispatcher", (), {}, lambda d: d.update(__module__="numba.core"))
    module.compiled = fake()
    with adarray.intercept():
        assert type(module.np) is python_types.ModuleType


def test_text_shows_traced_numbers() -> None:
    seen = []

    def f(x):
        seen.append("%.2f and %g" % (x[0], x[1]))  # noqa: UP031
        seen.append(f"{x[0]:.1f}")
        seen.append("{:.1f}".format(x[1]))  # noqa: UP032
        text = "%5.1f"
        text %= x[0]
        seen.append(text)
        assert (7.0 % x[0]) == 1.0
        assert isinstance(3 % x[0], adarray.ADArray)
        return x.sum()

    assert adarray.grad(f, intercept=True)(np.array([1.5, 2.0])).tolist() == [1.0, 1.0]
    assert seen == ["1.50 and 2", "1.5", "2.0", "  1.5"]
    with pytest.raises(adarray.TraceError, match="float: a traced value"):
        adarray.grad(lambda x: math.floor(7) % 4 + x.__float__())(1.0)
