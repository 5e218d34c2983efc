"""Lists of traced numbers where NumPy takes lists for arrays: operators, item assignment."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.testing import check_grads

X = np.array([1.0, -2.0, 3.0])
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod,
    operator.floordiv, operator.matmul,
]  # fmt: skip


@pytest.mark.parametrize("sequence", [list, tuple])
@pytest.mark.parametrize("op", BINARY)
def test_operators_join_lists_on_either_side(
    op: Callable[[Any, Any], Any], sequence: type[list[Any]]
) -> None:
    x = np.array([1.3, 2.4, 0.7])

    def right(x: Any) -> Any:
        return op(x, sequence([x[1], 2.0, x[0]]))

    def left(x: Any) -> Any:
        return op(sequence([x[1], 2.0, x[0]]), x)

    for f in (right, left):
        plain = x if f is right else np.array([x[1], 2.0, x[0]])
        other = np.array([x[1], 2.0, x[0]]) if f is right else x
        np.testing.assert_array_equal(adarray.vjp(f, x)[0], op(plain, other))
        check_grads(f, (x,))


def test_comparisons_join_lists() -> None:
    def above(x: Any) -> Any:
        return np.where(x > [x[1], x[2], 0.0], x**2, 0.0)

    assert adarray.grad(lambda x: above(x).sum())(X).tolist() == [2.0, 0.0, 6.0]


def test_augmented_assignment_of_a_list_gives_an_array() -> None:
    def scaled(x: Any) -> Any:
        axis = [x[0], 1.0, x[2]]
        axis /= np.linalg.norm(x)
        return axis

    check_grads(scaled, (X,))


@pytest.mark.parametrize("index", [slice(None), np.array([True, True, True]), [2, 0, 1]])
def test_items_take_lists_with_traced_numbers(index: Any) -> None:
    def written(x: Any) -> Any:
        z = np.zeros_like(x)
        z[index] = [x[0] * x[1], 2.0, x[2]]
        return z * x

    check_grads(written, (X,))


def test_rows_take_nested_lists() -> None:
    def rotation(angle: Any) -> Any:
        r = adarray.array(np.eye(3))
        c, s = np.cos(angle), np.sin(angle)
        r[:2, :2] = [[c, -s], [s, c]]
        return r

    check_grads(rotation, (0.3,))


def test_ragged_lists_raise_as_numpy() -> None:
    x = adarray.array(X)
    with pytest.raises(ValueError, match="inhomogeneous shape"):
        x[:2] = [[x[0], 1.0], [x[1]]]
    assert x.tolist() == X.tolist()


def test_require_takes_a_traced_python_number() -> None:
    with adarray.intercept():
        assert adarray.grad(lambda x: np.require(x, float, ["W"]).sum())(2.0) == 1.0


def test_deques_of_traced_numbers_are_arrays() -> None:
    """NumPy takes them for sequences: a window of the last values."""

    def smoothed(x: Any) -> Any:
        window: deque[Any] = deque(maxlen=3)
        total = 0.0
        for k in range(5):
            window.append(np.sin(k * x))
            total = total + np.mean(window) + np.max(window)
        return (
            total + np.array(window).sum() + np.sum(np.square(window)) + np.dot(window, [1, 2, 3])
        )

    slope = adarray.grad(smoothed)
    expected = (smoothed(0.7 + 1e-6) - smoothed(0.7 - 1e-6)) / 2e-6
    assert slope(0.7) == pytest.approx(expected, rel=1e-6)
    assert adarray.jit(slope)(0.7) == pytest.approx(expected, rel=1e-6)
