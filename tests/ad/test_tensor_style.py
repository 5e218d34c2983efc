"""The tensor style: requires_grad, backward, grad, no_grad."""

from __future__ import annotations

import re

import numpy as np
import pytest

import adarray
from adarray import ShapeError, TraceError


def leaf(*values):
    return adarray.array(values, dtype=float, requires_grad=True)


def test_backward_accumulates():
    x = leaf(1.0, 2.0)
    np.sum(x * x).backward()
    np.testing.assert_array_equal(x.grad, [2.0, 4.0])
    assert type(x.grad) is np.ndarray
    np.sum(3 * x).backward()
    np.testing.assert_array_equal(x.grad, [5.0, 7.0])
    x.grad = None
    assert x.grad is None


def test_gradient_argument():
    x = leaf(1.0, 2.0)
    y = x * x
    y.backward(np.array([1.0, 10.0]))
    np.testing.assert_array_equal(x.grad, [2.0, 40.0])
    with pytest.raises(ShapeError, match=re.escape("gradient has shape (3,) and the array (2,)")):
        (x * x).backward(np.ones(3))
    with pytest.raises(ShapeError, match="not a scalar's; reduce it"):
        (x * x).backward()


def test_graph_is_freed_unless_retained():
    x = leaf(1.0, 2.0)
    y = np.sum(np.exp(x))
    y.backward(retain_graph=True)
    y.backward()
    np.testing.assert_allclose(x.grad, 2 * np.exp([1.0, 2.0]))
    with pytest.raises(TraceError, match=r"freed by an earlier backward\(\) or gradient"):
        y.backward()


def test_create_graph_gives_second_derivatives():
    x = leaf(2.0)
    np.sum(x**3).backward(create_graph=True)
    first = x.grad
    x.grad = None
    np.sum(first).backward()
    np.testing.assert_allclose(x.grad, [12.0])


def test_leaf_is_updated_under_no_grad_only():
    w = leaf(1.0, 2.0)
    with pytest.raises(TraceError, match="leaf with requires_grad=True"):
        w -= 0.1
    with pytest.raises(TraceError, match="leaf with requires_grad=True"):
        w[0] = 0.1
    np.testing.assert_array_equal(w.numpy(), [1.0, 2.0])
    for _ in range(3):
        w.grad = None
        np.sum((w - 3) ** 2).backward()
        with adarray.no_grad():
            w -= 0.5 * w.grad
    np.testing.assert_allclose(w.numpy(), [3.0, 3.0])


def test_update_after_saving_does_not_change_the_gradient():
    w = leaf(1.0, 2.0)
    y = np.sum(w * w)
    with adarray.no_grad():
        w *= 100
    y.backward()
    np.testing.assert_array_equal(w.grad, [2.0, 4.0])


def test_no_grad_makes_constants():
    x = leaf(1.0)
    with adarray.no_grad():
        y = x * 2
    assert not y.requires_grad
    assert x.requires_grad


def test_captured_leaf_inside_grad():
    w = leaf(3.0)
    g = adarray.grad(lambda x: np.sum(x * x * w))(np.array([2.0]))
    assert isinstance(g, adarray.ADArray)
    np.sum(g).backward()
    np.testing.assert_allclose(w.grad, [4.0])


def test_backward_inside_grad_is_differentiated():
    def f(x):
        w = adarray.array([2.0], requires_grad=True)
        np.sum(w**2 * x).backward()
        return np.sum(w.grad)

    # The result still depends on w, so it is an ADArray.
    np.testing.assert_allclose(adarray.value_of(adarray.grad(f)(np.array([5.0]))), [4.0])


def test_detach_and_stop_gradient():
    x = leaf(2.0)
    np.sum(x * x.detach() + adarray.stop_gradient(x)).backward()
    np.testing.assert_allclose(x.grad, [2.0])
    assert type(adarray.value_of(x)) is np.ndarray
    assert adarray.value_of(3) == 3


def test_array_from_traced_parts():
    def f(x):
        return np.sum(adarray.array([[x[0], 1.0], [2.0, x[1] * x[0]]]) ** 2)

    np.testing.assert_allclose(adarray.grad(f)(np.array([2.0, 3.0])), [4 + 36, 24])
