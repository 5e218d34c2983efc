"""One array as several arguments of a transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import TraceError


def f(a: Any, b: Any) -> Any:
    a *= 2
    a[1:] += b[:-1]
    return np.sum(b**2)


def plain(x: Any) -> float:
    y = x.copy()
    return float(f(y, y))


def slope(x: Any) -> Any:
    steps = 1e-6 * np.eye(len(x))
    return np.array([(plain(x + h) - plain(x - h)) / 2e-6 for h in steps])


X = np.array([1.0, -2.0, 3.0])


def test_what_is_written_into_one_is_in_the_other() -> None:
    for transform in (
        adarray.value_and_grad,
        lambda g, n: adarray.jit(adarray.value_and_grad(g, n)),
    ):
        both: Any = transform(f, (0, 1))
        for _ in range(3):
            x = X.copy()
            value, (ga, gb) = both(x, x)
            np.testing.assert_allclose(value, plain(X))
            np.testing.assert_allclose(ga + gb, slope(X), rtol=1e-6)
            np.testing.assert_array_equal(x, X)


def test_in_forward_mode_and_nests() -> None:
    x = X.copy()
    value, tangent = adarray.jvp(f, (x, x), (np.ones(3), np.ones(3)))
    np.testing.assert_allclose(value, plain(X))
    np.testing.assert_allclose(tangent, np.sum(slope(X)), rtol=1e-6)
    value, g = adarray.value_and_grad(lambda p: f(p["a"], p["b"][0]))({"a": x, "b": [x]})
    np.testing.assert_allclose(value, plain(X))
    np.testing.assert_allclose(g["a"] + g["b"][0], slope(X), rtol=1e-6)
    value, pull = adarray.vjp(f, x, x)
    np.testing.assert_allclose(sum(pull(1.0)), slope(X), rtol=1e-6)


def test_positions_are_variables_of_their_own() -> None:
    x = X.copy()
    ga, gb = adarray.grad(lambda a, b: np.sum(a * b**2), argnums=(0, 1))(x, x)
    np.testing.assert_allclose(ga, X**2)
    np.testing.assert_allclose(gb, 2 * X**2)
    np.testing.assert_allclose(adarray.grad(lambda a, b: np.sum(a * b**2))(x, x), X**2)


@pytest.mark.parametrize("args", [(X, X), (X, X[::-1]), (X[1:], X[:2])])
def test_writes_that_would_not_be_seen_are_refused(args: Any) -> None:
    def into_the_first(a: Any, b: Any) -> Any:
        a *= 2.0
        return np.sum(a * b)

    def into_the_second(a: Any, b: Any) -> Any:
        b *= 2.0
        return np.sum(a * b)

    for g in (into_the_first, into_the_second):
        before = X.copy()
        with pytest.raises(TraceError, match="shares memory with"):
            adarray.grad(g)(*args)
        X[:] = before


def test_questions_of_identity_are_refused() -> None:
    with pytest.raises(TraceError, match="asks which objects they are"):
        adarray.grad(lambda a, b: np.sum(a * (2.0 if a is b else 3.0)))(X, X)
    g = adarray.grad(lambda a, b: np.sum(a * (2.0 if a is b else 3.0)))(X, X.copy())
    np.testing.assert_array_equal(g, 3.0 * np.ones(3))
    assert adarray.grad(lambda a, b=None: 0.0 if b is None else np.sum(a))(X, X)[0] == 1.0


QUESTIONS = {
    "arguments": lambda a, b: np.shares_memory(a, b),
    "may": lambda a, b: np.may_share_memory(a[2:], b[:2]),
    "parts": lambda a, b: np.shares_memory(a[:2], b[:2]),
    "turned": lambda a, b: np.shares_memory(a[::-1][:3], b.reshape(-1)[1:]),
    "computed": lambda a, b: np.shares_memory(a * 1.0, b),
    "own": lambda a, b: np.shares_memory(a, a[1:]),
}


@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("way", ["grad", "jvp", "jit(grad)", "hessian"])
def test_questions_about_memory_are_answered_for_what_was_passed(name: str, way: str) -> None:
    """Inputs that overlapped had memory of their own, and did not say so."""
    memory = np.arange(1.0, 9.0)

    def f(a: Any, b: Any) -> Any:
        return np.sum(a * b) * (2.0 if QUESTIONS[name](a, b) else 3.0)

    pairs = [(memory[:5], memory[2:7]), (memory[:4], memory[4:]), (memory[::2], memory[1::2])]
    for a, b in pairs[: 2 if name == "may" else 3]:
        expected = f(a, b)
        if way == "jvp":
            tangent = adarray.jvp(f, (a, b), (a, b))[0]
        elif way == "hessian":
            inner = lambda a, b: adarray.jvp(f, (a, b), (a, b))[0]  # noqa: E731
            tangent = adarray.value_and_grad(inner, (0, 1))(a, b)[0]
        else:
            both = adarray.value_and_grad(f, (0, 1))
            tangent = (adarray.jit(both) if way == "jit(grad)" else both)(a, b)[0]
        np.testing.assert_allclose(tangent, expected)
