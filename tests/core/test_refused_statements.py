"""Errors call what NumPy's C code refuses as the user wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray

HISTORY = np.zeros(4)
X = np.ones((2, 3))
s = 1


def _number(x: Any) -> Any:
    table = 2 * HISTORY
    table[s + 1] = x
    return table.sum()


def _rows(x: Any) -> Any:
    table = 2 * HISTORY
    table[:2] = np.array([x, x])
    return table.sum()


def _by_dot(x: Any) -> Any:
    return X.dot(np.full_like(X[0], 1.0) * x).sum()


@pytest.mark.parametrize(
    ("f", "intercept", "message"),
    [
        (
            _number,
            True,
            r"^table\[s \+ 1\] = \.\.\.: a traced value .* by np.zeros or np.array, or ",
        ),
        (
            _number,
            False,
            r"^table\[s \+ 1\] = \.\.\.: a traced value .* by np.zeros_like\(x\), or ",
        ),
        (_rows, True, r"^table\[:2\] = \.\.\.: a traced value would leave the graph"),
        (
            _by_dot,
            False,
            r"^X\.dot\(.*\): a traced value would .*; write np\.dot\(X, \.\.\.\), or ",
        ),
    ],
)
def test_the_statement_is_named(f: Any, intercept: bool, message: str) -> None:
    with pytest.raises(adarray.TraceError, match=message):
        adarray.grad(f, intercept=intercept)(1.5)


def test_errors_of_the_function_stay() -> None:
    def f(x: Any) -> Any:
        raise ValueError("a value") from KeyError("a key")

    with pytest.raises(ValueError, match=r"^a value$") as caught:
        adarray.grad(f)(1.5)
    assert type(caught.value.__cause__) is KeyError
