"""Products of rows and columns in loops: one product before the loop, where that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray.loops import policy
from adarray.loops import products as found_products


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take small products, too, and compare loops with those of Python."""
    monkeypatch.setattr(found_products, "_FEWEST", 1)
    monkeypatch.setattr(found_products, "_DEEPEST", 2)
    monkeypatch.setattr(found_products, "_LEAST_SUMMED", 1)
    monkeypatch.setattr(policy, "_LIMITS", ((1, 1 << 30),))
    monkeypatch.setattr(policy, "_PRODUCTS", ((0, 1 << 30),))
    monkeypatch.setenv("ADARRAY_CHECK", "1")


def columns(x, y):
    n = x.shape[1]
    out = np.zeros((n, n), x.dtype)
    for i in range(n - 1):
        out[i + 1 : n, i] = out[i, i + 1 : n] = x[:, i] @ x[:, i + 1 : n] / 3.0
    return np.sum(out * out) + np.sum(y)


def rows(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    for i in range(len(x)):
        for j in range(len(y)):
            out[i, j] = x[i] @ y[j, :] * (i + 0.5 * j)
    return np.sum(np.sin(out))


def negative(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    for i in range(len(x)):
        out[i] = y @ x[i - 1]
    return np.sum(out * out * out)


def written(x, y):  # each row depends on the one before
    x = x * 1.0
    for i in range(1, len(x)):
        for j in range(i):
            x[i, j] += 0.001 * (x[i - 1, :] @ x[j, :])
    return np.sum(x * x) + np.sum(y)


def written_by_another_name(x, y):
    x = x * 1.0
    z = x[7:]
    for i in range(len(z)):
        for j in range(len(x)):
            z[i, 0] += 0.001 * (x[i, :] @ x[j, :])
    return np.sum(x * x) + np.sum(y)


def bound_anew(x, y):
    s = 0.0
    for i in range(len(x)):
        x = x * 1.1
        for j in range(len(y)):
            s += np.sin(x[i, :] @ y[j, :])
    return s


def now_and_then(x, y):
    s = 0.0
    for i in range(len(x)):
        for j in range(len(y)):
            if x[i, 0] > 0.5:
                s += np.cos(x[i, :] @ y[j, :])
    return s


def diagonal(x, y):
    s = 0.0
    for i in range(len(x)):
        s += (x[i, :] @ y[i, :]) ** 2
    return s


def band(x, y):
    out = np.zeros((len(x), 2), x.dtype)
    for i in range(len(x) - 2):
        out[i] = x[i] @ y.T[:, i : i + 2]
        out[i] += y[i : i + 2, :] @ x[i]
    return np.sum(out * out)


def added_up(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(x.shape[1]):
                out[i, j] += x[i, k] * y[k, j]
    return np.sum(np.sin(out))


def added_up_transposed(x, y):
    out = x * y
    for i in range(9):
        for j in range(9):
            s = 0.0
            for k in range(len(x)):
                s -= y[j, k] * x[k, i]
            out[i, j] *= 2 * s
    return np.sum(out * out)


def added_up_between(x, y):
    out = x * y
    for i in range(9):
        for k in range(9):
            for j in range(i + 1):
                out[i, j] += y[i, k] * x[k, j]
    return np.sum(out * out)


def scaled(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    alpha = 0.5 * y[0, 0]
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(x.shape[1]):
                out[i, j] += alpha * x[i, k] * y[k, j]
    return np.sum(np.sin(out))


def triangular(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(i):
                out[i, j] += x[i, k] * y[k, j]
    return np.sum(out * out)


def range_that_changes(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    n = 9
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(n):
                out[i, j] += x[i, k] * y[k, j]
        n = n - 1
    return np.sum(out * out)


def index_read_later(x, y):
    out = np.zeros((len(x), len(y)), x.dtype)
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(x.shape[1]):
                out[i, j] += x[i, k] * y[k, j]
            out[i, j] *= k
    return np.sum(out * out)


def of_itself(x, y):
    out = y * 1.0
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(x.shape[1]):
                out[i, j] += 0.01 * x[i, k] * out[k, j]
    return np.sum(out * out)


def cut_off(x, y):
    out = np.zeros((len(x), len(y)), int)
    for i in range(len(x)):
        for j in range(len(y)):
            for k in range(x.shape[1]):
                out[i, j] -= x[i, k].astype(int) * y[k, j].astype(int)
    return np.sum(x) + np.sum(out)


def other_range(x, y):
    def range(n):  # noqa: A001
        return (0, 1)

    out = x * y
    for i in (0, 1, 2):
        for j in (3, 4, 5):
            for k in range(9):
                out[i, j] += x[i, k] * y[k, j]
    return np.sum(out * out)


@pytest.mark.parametrize(
    ("f", "hoisted"),
    [
        (added_up, True), (added_up_transposed, True), (added_up_between, True),
        (triangular, False), (range_that_changes, False), (index_read_later, False),
        (of_itself, False), (cut_off, False), (other_range, False),
        (columns, True), (rows, True), (negative, True), (written, False),
        (written_by_another_name, False), (bound_anew, False), (now_and_then, False),
        (diagonal, False), (band, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_products_of_loops(
    f: Any, hoisted: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    taken: list[Any] = []
    value = found_products.Product.value

    def noted(product: Any, values: Any) -> Any:
        taken.append(product)
        return value(product, values)

    monkeypatch.setattr(found_products.Product, "value", noted)
    x = rng.uniform(0.1, 1.0, (9, 9)).astype(dtype)
    y = rng.uniform(0.1, 1.0, (9, 9)).astype(dtype)
    g = adarray.value_and_grad(f, argnums=(0, 1))
    with adarray.use("serial"):
        jitted = adarray.jit(g)
        got = [jitted(x, y) for _ in range(3)][-1]
        want = g(x, y)
    near = 1e-10 if dtype == "float64" else 2e-3
    np.testing.assert_allclose(np.asarray(got[0]), np.asarray(want[0]), near)
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), near, near * np.abs(b).max())
    assert bool(taken) == hoisted


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scaled_products(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A factor is multiplied behind the product, if that takes no digits from the sum."""
    test_products_of_loops(scaled, dtype == "float64", dtype, monkeypatch)


def in_double(x, y):
    out = np.zeros((len(x), y.shape[1]))
    for i in range(len(x)):
        for j in range(y.shape[1]):
            s = out[i, j]
            for k in range(x.shape[1]):
                s += x[i, k] * y[k, j]
            out[i, j] = s
    return out


def test_single_products_are_added_up_in_double() -> None:
    """No product of float32 takes digits from a sum in float64."""
    rng = np.random.default_rng(3)
    x, y = (3 + rng.normal(size=shape).astype("float32") for shape in ((5, 800), (800, 5)))
    with adarray.use("serial"):
        jitted = adarray.jit(in_double)
        values = [jitted(x, y) for _ in range(3)]
    for value in values:
        np.testing.assert_allclose(value, in_double(x, y), 1e-13)


@pytest.mark.parametrize("shift", [0, 1])
def test_indices_out_of_range_raise_as_in_python(shift: int) -> None:
    def f(x):
        s = 0.0
        for i in range(len(x)):
            for j in range(len(x)):
                s += (x[i + shift, :] @ x[j, :]) ** 2
        return s

    x = np.linspace(0.0, 1.0, 40 * 40).reshape(40, 40)
    jitted = adarray.jit(adarray.grad(f))
    if shift:
        with pytest.raises(IndexError):
            jitted(x)
    else:
        np.testing.assert_allclose(np.asarray(jitted(x)), 2 * 2 * (x @ x.T) @ x)


def test_a_batch_has_products_of_its_own() -> None:
    rng = np.random.default_rng(4)
    x = rng.uniform(0.1, 1.0, (3, 9, 12))
    y = rng.uniform(0.1, 1.0, 5)
    f = adarray.vmap(lambda a: columns(a, y))
    got = adarray.jit(f)(x)
    np.testing.assert_allclose(np.asarray(got), [columns(a, y) for a in x])
