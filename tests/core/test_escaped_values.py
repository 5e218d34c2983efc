"""What code keeps of a function that a transform has run is plain afterwards."""

from __future__ import annotations

import collections
import copy
import json
import pickle
import statistics
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import TraceError

X = np.array([1.0, 2.0, 3.0])


class Model:
    def __init__(self) -> None:
        self.history: list[Any] = []
        self.state: dict[str, Any] = {}
        self.weights: Any = None

    def loss(self, w: Any) -> Any:
        self.weights = w
        self.state["twice"] = 2 * w
        value = np.sum(w**2)
        self.history.append(value)
        return value


def _kept(transform: str) -> Model:
    model = Model()
    if transform == "grad":
        adarray.grad(model.loss)(X)
    elif transform == "vjp":
        adarray.vjp(model.loss, X)
    elif transform == "jvp":
        adarray.jvp(model.loss, (X,), (X,))
    elif transform == "hessian":
        adarray.hessian(model.loss)(X)
    else:
        adarray.jacobian(model.loss)(X)
    return model


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "hessian", "jacobian"])
def test_what_was_kept_is_plain(transform: str) -> None:
    model = _kept(transform)
    loss = model.history[-1]
    assert isinstance(loss, np.floating)
    assert float(loss) == 14.0
    assert np.mean(model.history) == 14.0
    assert json.loads(json.dumps({"loss": loss.item(), "w": model.weights.tolist()})) == {
        "loss": 14.0,
        "w": [1.0, 2.0, 3.0],
    }
    assert (str(loss), f"{loss:.1f}", ", ".join(map(str, model.history[:1]))) == (
        "14.0", "14.0", "14.0",
    )  # fmt: skip
    np.testing.assert_array_equal(np.asarray(model.state["twice"]), 2 * X)
    np.testing.assert_array_equal(np.ones((2, 3)).dot(model.weights), [6.0, 6.0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model.weights)), X)
    np.testing.assert_array_equal(copy.deepcopy(model.state)["twice"], 2 * X)
    table = np.zeros(3)
    table[0] = loss
    assert table[0] == 14.0
    assert np.argmin(model.history) == 0


def test_a_view_that_was_kept() -> None:
    references = []

    def f(x: Any) -> Any:
        y = x * 2
        references.extend([y[:2], y])
        y[0] = x[1]
        return y.sum()

    adarray.grad(f)(X)
    np.testing.assert_array_equal(np.asarray(references[0]), [2.0, 4.0])
    np.testing.assert_array_equal(np.asarray(references[1]), [2.0, 4.0, 6.0])
    references[1][1] = 7.0
    np.testing.assert_array_equal(np.asarray(references[0]), [2.0, 7.0])


def test_in_another_transform_it_is_a_constant() -> None:
    model = _kept("grad")
    g = adarray.grad(lambda x: np.sum(model.weights * x) * float(model.history[0]))(X)
    np.testing.assert_array_equal(g, 14.0 * X)


def test_what_an_outer_transform_sees_stays_traced() -> None:
    def outer(x: Any) -> Any:
        references = []

        def inner(y: Any) -> Any:
            references.append(x * y)
            return y * y

        adarray.grad(inner)(2.0)
        return references[0] if lost is None else lost(references[0])

    lost: Any = None
    assert adarray.grad(outer)(3.0) == 2.0
    assert adarray.jvp(outer, (3.0,), (1.0,))[1] == 2.0
    lost = float
    with pytest.raises(TraceError, match="float: a traced value would leave the graph"):
        adarray.grad(outer, intercept=False)(3.0)
    with pytest.raises(TraceError, match="float: a traced value would leave the graph"):
        adarray.jvp(outer, (3.0,), (1.0,), intercept=False)


def test_leaves_have_no_end() -> None:
    leaf = adarray.array([1.0, 2.0], requires_grad=True)
    references: list[Any] = []

    def f(x: Any) -> Any:
        references.append(x * leaf)
        return np.sum(x * x)

    adarray.grad(f)(np.array([3.0, 4.0]))
    with pytest.raises(TraceError):
        np.asarray(references[0])
    with pytest.raises(TraceError):
        float(np.sum(leaf))


def test_a_pullback_of_what_was_kept() -> None:
    model = Model()
    value, pullback = adarray.vjp(model.loss, X)
    assert float(model.history[0]) == value  # asked before the walk
    np.testing.assert_array_equal(pullback(1.0)[0], 2 * X)


def test_plots_inside_of_a_function_show_values() -> None:
    """It raised, in a line of matplotlib's."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    shown = []

    def loss(x: Any) -> Any:
        y = np.sin(x)
        history = [np.sum(y), np.sum(y**2)]
        figure = Figure()
        axes = figure.subplots()
        (line,) = axes.plot(x, y)
        axes.plot([float(h) for h in history])
        axes.set_ylim(0.0, float(np.max(y)) + 1.0)
        axes.set_title(f"{history[-1]:.3f}")
        shown.append((line.get_ydata(orig=False), axes.get_ylim()[1]))
        return history[-1]

    np.testing.assert_allclose(adarray.grad(loss)(X), np.sin(2 * X))
    values, limit = shown[0]
    assert not isinstance(values, adarray.ADArray)
    np.testing.assert_allclose(values, np.sin(X))
    assert limit == pytest.approx(np.sin(X).max() + 1.0)


class Log:
    def __init__(self) -> None:
        self.last: Any = None
        self.values: list[Any] = []
        self.named: dict[str, Any] = {}
        self.recent: Any = collections.deque(maxlen=2)

    def loss(self, w: Any) -> Any:
        value = np.sum(w**2)
        self.last = float(value)
        self.values.append(float(value) * 0.5)
        self.values += [value.item(), 1]
        self.named["loss"] = {"of": [float(value)]}
        self.recent.append(float(value))
        kept.append(float(value))
        return value


kept: list[Any] = []


@pytest.mark.parametrize("transform", ["grad", "vjp", "jvp", "hessian", "value_and_grad", "jacfwd"])
def test_python_numbers_that_were_kept_are_those_of_python(transform: str) -> None:
    """`json` and `statistics` did not take what ``history.append(float(loss))`` had kept."""
    log = Log()
    kept.clear()
    seen: Any = None

    def loss(w: Any) -> Any:
        nonlocal seen
        seen = float(w[0])
        return log.loss(w)

    if transform == "jvp":
        adarray.jvp(loss, (X,), (X,))
    elif transform == "vjp":
        pullback = adarray.vjp(loss, X)[1]
        np.testing.assert_array_equal(pullback(1.0)[0], 2 * X)
    else:
        getattr(adarray, transform)(loss)(X)
    references = [log.last, *log.values, *log.named["loss"]["of"], *log.recent, *kept, seen]
    assert {type(x) for x in references} == {float, int}
    assert json.dumps(kept[-1:]) == "[14.0]"
    assert statistics.mean(log.values[-3:-1]) == 10.5


def test_numbers_of_a_trace_that_is_open_are_followed() -> None:
    """The one within another ends first; what it has kept is differentiated by the other."""
    history: list[Any] = []

    def inner(y: Any) -> Any:
        history.append(float(y) * 3.0)
        return y**2

    def outer(x: Any) -> Any:
        history.append(float(x[0]))
        slope = adarray.grad(inner)(x[1])
        return slope * history[0] * history[-1]

    np.testing.assert_allclose(adarray.grad(outer)(np.array([2.0, 5.0])), [150.0, 120.0])
    assert [type(x) for x in history] == [float, float]
