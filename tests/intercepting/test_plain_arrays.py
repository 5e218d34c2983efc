"""Arrays that are not differentiated stay ndarrays, and work with traced values."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.arrays.plainarrays import PlainArray

X = np.array([0.1, 0.2, 0.3])
DATA = np.array([1.0, 2.0, 3.0])


def differences(f: Callable[..., Any], x: np.ndarray, *rest: Any) -> np.ndarray:
    steps = 1e-6 * np.eye(x.size)
    slopes = [(f(x + h, *copy.deepcopy(rest)) - f(x - h, *copy.deepcopy(rest))) for h in steps]
    return np.array(slopes) / 2e-6


def gradient(f: Callable[..., Any], *args: Any) -> Any:
    return adarray.grad(f, intercept=True)(*args)


def methods(x: Any, k: Any) -> Any:
    return k.dot(x) + k.clip(x, 2).sum() + (k > 1).dot(x) + k.repeat(2).dot(np.repeat(x, 2))


def integers(x: Any, k: Any) -> Any:
    table = np.array([[2, 1, 0], [1, 3, 0]])
    return np.sum(table.dot(x) ** 2) + (np.eye(3, dtype=int) @ x).sum() + np.arange(3).dot(x)


def copies(x: Any, k: Any) -> Any:
    total = 0.0
    for result in (
        k.copy(), k * 1, k + 0, k.astype(float), k.flatten(), k[[0, 1, 2]], k[k > 0], copy.copy(k),
        copy.deepcopy(k), np.copy(k), np.array(k), k.reshape(-1) - 0,
    ):  # fmt: skip
        result[1] = x[0]
        result[:2] *= x[1]
        total += np.sum(result**2)
    return total


def operators(x: Any, k: Any) -> Any:
    return np.sum((k - x) / k**x + k * x - x / k + x**k + (x < k) * x) + k @ x + x @ k


def functions(x: Any, k: Any) -> Any:
    joined = np.concatenate([k, x]) * np.stack([x, k]).reshape(-1)
    return (
        joined.sum() + np.where(k > 1, k, x).sum() + np.maximum(k, x).sum() + np.dot(k, x)
        + np.interp(1.5, k, x) + np.outer(k, x).sum() + np.einsum("i,i", k, x) + np.cov(k, x)[0, 1]
        + np.average(x, weights=k) + np.add.outer(k, x).prod() + np.trapezoid(x, k)
    )  # fmt: skip


def masks(x: Any, k: Any) -> Any:
    chosen = np.zeros(3, dtype=bool)
    chosen[0] = x[0] > 0
    chosen[1:] = x[1:] > 0.25
    counts = np.zeros(3, int)
    counts[np.argmax(x)] += 1
    return np.sum(x[chosen]) + np.sum(x * counts) + np.sum(chosen * x**2) + x[k.argmax()]


def views(x: Any, k: Any) -> Any:
    return k[1:].dot(x[1:]) + k.reshape(3, 1).T.dot(x)[0] + k[::-1].dot(x) + k[:, None].T.dot(x)[0]


def written(x: Any, k: Any) -> Any:
    k[:] = 2.0
    k *= 2
    np.add(k, 1.0, out=k)
    np.copyto(k[:1], 7.0)
    k.sort()
    return np.sum(k * x)


@pytest.mark.parametrize(
    "f", [methods, integers, copies, operators, functions, masks, views, written]
)
def test_gradients(f: Callable[..., Any]) -> None:
    expected = differences(f, X, DATA)
    np.testing.assert_allclose(gradient(f, X, DATA.copy()), expected, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        adarray.jit(adarray.grad(f, intercept=True))(X, DATA.copy()), expected, 1e-6, 1e-8
    )


def test_what_is_written_is_written_into_the_array_of_the_caller() -> None:
    k = DATA.copy()
    gradient(written, X, k)
    np.testing.assert_array_equal(k, [5.0, 5.0, 7.0])


def stored(x: Any, k: Any) -> Any:
    k[0] = x[0]
    return k.sum()


def added(x: Any, k: Any) -> Any:
    k += x
    return k.sum()


def given_out(x: Any, k: Any) -> Any:
    return np.add(x, k, out=k).sum()


def into_integers(x: Any, k: Any) -> Any:
    i = np.zeros(3, dtype=int)
    i[0] = x[0]
    return i.sum() * x.sum()


@pytest.mark.parametrize("f", [stored, added, given_out, into_integers])
def test_a_traced_value_is_not_lost(f: Callable[..., Any]) -> None:
    with pytest.raises(adarray.TraceError):
        gradient(f, X, DATA.copy())


def test_everybody_else_sees_an_ndarray() -> None:
    seen: list[Any] = []

    def f(x: Any, k: Any) -> Any:
        assert type(k) is np.ndarray
        assert repr(k) == "array([1., 2., 3.])"
        assert isinstance(k > 1, np.ndarray)
        assert type(pickle.loads(pickle.dumps(k))) is np.ndarray
        memoryview(k)
        seen.append(k)
        return np.sum(np.array([x[0], 1.0])) * k.sum(), (k, k > 1, np.arange(3), x > 0)

    _, aux = adarray.grad(f, has_aux=True, intercept=True)(X, DATA)
    assert [type(a) for a in aux] == [np.ndarray] * 4
    array = seen[0]
    assert type(array) is PlainArray
    assert np.shares_memory(array, DATA)
    assert [type(r) for r in (array + 1, np.sin(array), array.copy(), array[[0]])] == [
        np.ndarray
    ] * 4
