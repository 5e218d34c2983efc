"""Tables of evaluations: values, tangents and adjoints of every operation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import ShapeError, TraceError


def textbook(x1: Any, x2: Any) -> Any:
    return np.log(x1) + x1 * x2 - np.sin(x2)


def test_the_example_of_the_textbooks() -> None:
    trace = adarray.evaluation_trace(textbook, (2.0, 5.0), (1.0, 0.0))
    assert [s.text for s in trace.steps] == [
        "x1", "x2", "log(v0)", "v0 * v1", "v2 + v3", "sin(v1)", "v4 - v5",
    ]  # fmt: skip
    sine = np.sin(5.0)
    np.testing.assert_allclose(
        [s.value for s in trace.steps],
        [2.0, 5.0, np.log(2.0), 10.0, np.log(2.0) + 10.0, sine, np.log(2.0) + 10.0 - sine],
    )
    np.testing.assert_allclose([s.tangent for s in trace.steps], [1, 0, 0.5, 5, 5.5, 0, 5.5])
    np.testing.assert_allclose(
        [s.adjoint for s in trace.steps], [5.5, 2 - np.cos(5.0), 1, 1, 1, -1, 1]
    )
    assert [s.operands for s in trace.steps] == [(), (), (0,), (0, 1), (2, 3), (1,), (4, 5)]
    assert trace.tangent == 5.5
    assert trace.gradient == adarray.grad(textbook, (0, 1))(2.0, 5.0)
    assert "test_evaluation.py" in trace.steps[-1].place


def in_place(w: Any, x: Any) -> Any:
    h = np.tanh(x @ w)
    y = np.zeros(3)
    for i in range(3):
        y[i] = h[i] * 2
    y[::2] += w[0, :2]
    rows = np.ones((2, 3))
    rows[1][1:] = y[:2]
    return np.sum(y**2) + np.max(h) + np.sum(rows * w)


def several_results(x: Any, y: Any) -> Any:
    values, _ = np.linalg.eigh(x + x.T)
    if values[0] < 0:
        values = values * 2
    r = np.linalg.qr(x)[1]
    return np.sum(np.where(values > 0, values, 2 * values)) + x[0, 1] ** 2 + np.sum(r**2) * y


def captured(x: Any, y: float) -> Any:
    return np.einsum("ij,j->", CAPTURED, x) * y + float(CAPTURED[0, 0])


CAPTURED = np.arange(6.0).reshape(2, 3)
W = np.arange(6.0).reshape(2, 3) / 5


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (in_place, (W, np.array([0.5, -0.2]))),
        (several_results, (np.array([[0.2, 1.0], [0.5, -3.0]]), 0.5)),
        (captured, (np.array([1.0, 2.0, 3.0]), 0.25)),
    ],
)
def test_derivatives_are_those_of_the_transforms(f: Any, args: Any) -> None:
    directions = tuple(np.cos(np.arange(np.size(a))).reshape(np.shape(a))[()] for a in args)
    trace = adarray.evaluation_trace(f, args, directions)
    value, tangent = adarray.jvp(f, args, directions)
    gradient = adarray.grad(f, tuple(range(len(args))))(*args)
    np.testing.assert_allclose(trace.value, value, rtol=1e-13)
    np.testing.assert_allclose(trace.tangent, tangent, rtol=1e-12)
    for a, b in zip(trace.gradient, gradient, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
    assert len(str(trace).splitlines()) == len(trace.steps) + 2
    assert trace._repr_html_().count("<tr>") == len(trace.steps) + 1
    dot = trace.picture().dot()
    assert dot.count(" -> ") == sum(len(set(s.operands)) for s in trace.steps)


def test_arrays_need_a_cotangent() -> None:
    x = np.array([1.0, 2.0])
    with pytest.raises(ShapeError, match=r"array of shape \(2,\); give a cotangent"):
        adarray.evaluation_trace(np.exp, (x,))
    trace = adarray.evaluation_trace(lambda x: np.exp(x) * 2, (x,), cotangent=[1.0, 0.0])
    np.testing.assert_allclose(trace.gradient[0], [2 * np.e, 0.0])


@pytest.mark.parametrize(
    ("args", "directions", "message"),
    [
        ((1.0, 2.0), (1.0,), "2 primals and 1 tangents"),
        ((1.0, np.ones(2)), (1.0, 1.0), r"tangent 1 has shape \(\) and its primal \(2,\)"),
    ],
)
def test_directions_are_of_the_arguments(args: Any, directions: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        adarray.evaluation_trace(lambda x, y: np.sum(x * y), args, directions)


def test_what_cannot_be_recorded_is_an_error() -> None:
    plain = np.zeros(2)

    def f(x: Any) -> Any:
        plain[0] = x
        return x * plain[0]

    with pytest.raises(TraceError, match="evaluation_trace: a value was written into a plain"):
        adarray.evaluation_trace(f, (1.0,))
    with pytest.raises(TypeError, match="it returned 2 values"):
        adarray.evaluation_trace(lambda x: (x, 2 * x), (1.0,))
    with pytest.raises(TypeError, match="depends on its arguments"):
        adarray.evaluation_trace(lambda x: 3.0, (1.0,))
