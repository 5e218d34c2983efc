"""``x.shape = ...``: in place, with views that go on sharing memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray

X = np.arange(1.0, 10.0)
# That NumPy warns of for its own arrays.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def views_before_and_after(x: Any) -> Any:
    a = x * 2.0
    before, t = a[1:4], a[::-1]
    a.shape = 3, 3
    a[0] = a[1] * x[:3]
    before[1] = 7.0 * x[0]
    a[2, 0] += before[0]
    after = a.ravel()
    after[8] = x[1] * x[1]
    return np.sum(a.T * t.reshape(3, 3)) + np.sum(before * before)


def of_a_view(x: Any) -> Any:
    a = x * x
    row = a[3:]
    row.shape = 2, 3
    row[1, 0] = x[0] * row[0, 0]
    row.T[0, 0] = 5.0 * x[1]
    return np.sum(a * np.arange(9.0)) + np.sum(row[:, 1])


def several_times(x: Any) -> Any:
    a, b = x * 1.0, np.sin(x)
    a.shape = b.shape = 3, 3
    same = a
    for _ in range(3):
        same.shape = a.size
        a[1:] *= b.ravel()[:-1]
        a.shape = -1, 1, 3
        b += a[:, 0]
    return np.sum(a * 0.5) + np.sum(b) + same.ndim


FUNCTIONS = (views_before_and_after, of_a_view, several_times)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients(f: Any, backend: str) -> None:
    steps = np.eye(9) * 1e-6
    expected = [(f(X + d) - f(X - d)) / 2e-6 for d in steps]
    with adarray.use(backend):
        value, gradient = adarray.value_and_grad(f)(X)
        assert value == f(X)
        np.testing.assert_allclose(gradient, expected, 1e-5, 1e-5)
        slope = adarray.jvp(f, (X,), (np.ones(9),))[1]
        np.testing.assert_allclose(slope, np.sum(gradient), 1e-10)
        jf = adarray.jit(adarray.value_and_grad(f))
        for _ in range(3):
            got = jf(X)
            np.testing.assert_allclose(got[0], value, 1e-12)
            np.testing.assert_allclose(got[1], gradient, 1e-10)
        hessian = adarray.hessian(f)(X)
    np.testing.assert_allclose(hessian, hessian.T, 1e-9, 1e-9)


def test_other_names_and_containers_see_the_shape() -> None:
    a = adarray.array(X)
    other, box = a, [a]
    view = a[2:5]
    a.shape = 3, 3
    assert other.shape == box[0].shape == (3, 3)
    a[1, 0] = 50.0
    np.testing.assert_array_equal(adarray.value_of(view), [3.0, 50.0, 5.0])
    view[0] = 60.0
    assert float(a[0, 2]) == 60.0
    a.shape = 9
    assert float(a[2]) == 60.0


def test_an_argument_keeps_its_shape() -> None:
    def f(x: Any) -> Any:
        x.shape = 3, 3
        return np.sum(x @ x)

    for transform in (adarray.grad, lambda f: adarray.jit(adarray.grad(f))):
        with pytest.raises(AttributeError, match="an argument is not reshaped in place"):
            transform(f)(X.copy())
    with pytest.raises(AttributeError, match="an argument is not reshaped in place"):
        adarray.array(X, requires_grad=True).shape = 3, 3


def test_elements_that_lie_elsewhere() -> None:
    def f(x: Any) -> Any:
        a = np.outer(x, x).T
        try:
            a.shape = -1
        except AttributeError:
            return np.sum(a[0])
        return np.sum(a)

    np.testing.assert_allclose(adarray.grad(f)(X), np.full(9, X[0]) + np.sum(X) * np.eye(9)[0])
