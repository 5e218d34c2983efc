"""Derivatives where functions have corners, jumps or poles: as the records' notes say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import grad, jvp
from adarray.base.op import OPS
from adarray.ops.elementwise import relu

INF, NAN = np.inf, np.nan


def both_modes(f: Callable[..., Any], x: Any) -> np.ndarray:
    """Return the gradient of ``sum(f(x))`` after comparing reverse with forward mode."""
    x = np.asarray(x, float)
    reverse = grad(lambda v: np.sum(f(v)))(x)
    for k in np.ndindex(x.shape):
        t = np.zeros(x.shape)
        t[k] = 1.0
        tangent = jvp(f, (x,), (t,))[1]
        # A zero tangent at a pole is 0 * inf: only the element that moves counts there.
        np.testing.assert_array_equal(np.nansum(tangent), reverse[k])
    return reverse


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (np.abs, [0.0, -0.0, 2.0, -2.0], [0.0, 0.0, 1.0, -1.0]),
        (np.fabs, [0.0, 2.0, -2.0], [0.0, 1.0, -1.0]),
        (relu, [0.0, -0.0, 2.0, -2.0], [0.0, 0.0, 1.0, 0.0]),
        (lambda x: np.maximum(x, 0), [0.0, 2.0, -2.0], [0.5, 1.0, 0.0]),
        (lambda x: np.minimum(0, x), [0.0, 2.0, -2.0], [0.5, 0.0, 1.0]),
        (lambda x: np.maximum(x, x), [1.0, 2.0], [1.0, 1.0]),
        (lambda x: np.fmax(x, NAN), [1.0, 2.0], [1.0, 1.0]),
        (lambda x: np.fmin(NAN, x), [1.0, 2.0], [1.0, 1.0]),
        (lambda x: np.clip(x, -1, 1), [-1.0, 1.0, 0.0, 3.0, -3.0], [1.0, 1.0, 1.0, 0.0, 0.0]),
        (np.max, [1.0, 3.0, 3.0, 2.0], [0.0, 0.5, 0.5, 0.0]),
        (np.min, [1.0, 1.0, 1.0, 4.0], [1 / 3, 1 / 3, 1 / 3, 0.0]),
        (lambda x: np.max(x, axis=0), [[1.0, 3.0], [1.0, 2.0]], [[0.5, 1.0], [0.5, 0.0]]),
        (np.linalg.norm, [0.0, 0.0], [0.0, 0.0]),
        (lambda x: np.linalg.norm(x, 3), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: np.linalg.norm(x, 1), [0.0, 2.0], [0.0, 1.0]),
        (lambda x: np.linalg.norm(x, axis=1), [[0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [0.6, 0.8]]),
        (lambda x: np.hypot(x[0], x[1]), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: np.hypot(x[0], x[1]), [3.0, 4.0], [0.6, 0.8]),
        (np.std, [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
        (np.var, [2.0, 2.0], [0.0, 0.0]),
        (np.sqrt, [0.0, 4.0], [INF, 0.25]),
        (np.cbrt, [0.0, 8.0], [INF, 1 / 12]),
        (np.sinc, [0.0, 1.0], [0.0, -1.0]),
        (lambda x: x**0, [0.0, 2.0], [0.0, 0.0]),
        (lambda x: x**1, [0.0, 2.0], [1.0, 1.0]),
        (lambda x: x**2, [0.0, -2.0], [0.0, -4.0]),
        (lambda x: x**3.0, [0.0, -2.0], [0.0, 12.0]),
        (lambda x: x**0.5, [0.0, 4.0], [INF, 0.25]),
        (lambda x: 0.0**x, [0.0, 1.0, 2.0], [0.0, 0.0, 0.0]),
        (lambda x: 2.0**x, [0.0, 1.0], [np.log(2), 2 * np.log(2)]),
        (np.prod, [2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
        (np.prod, [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        (lambda x: np.prod(x, axis=1), [[0.0, 5.0], [2.0, 3.0]], [[5.0, 0.0], [3.0, 2.0]]),
        (np.cumprod, [2.0, 0.0, 3.0], [1.0, 8.0, 0.0]),
        (lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), 0.0), [-1.0, 0.0, 2.0],
         [0.0, 0.0, 0.5]),
        (lambda x: np.where(x > 0, x * 2, x * 3), [-1.0, 0.0, 2.0], [3.0, 3.0, 2.0]),
        (np.nan_to_num, [INF, NAN, -INF, 2.0], [0.0, 0.0, 0.0, 1.0]),
        (lambda x: x % 2.0, [2.0, 3.0, -1.0], [1.0, 1.0, 1.0]),
        (lambda x: np.copysign(x, -1.0), [2.0, -3.0, 0.0], [-1.0, 1.0, -1.0]),
        (lambda x: np.arctan2(x, 0.0), [1.0, -2.0], [0.0, 0.0]),
        (lambda x: np.logaddexp(x, -INF), [1.0, 2.0], [1.0, 1.0]),
        (lambda x: np.sort(x), [1.0, 1.0], [1.0, 1.0]),
        (np.sign, [0.0, 2.0], [0.0, 0.0]),
        (lambda x: np.nanmax(x), [1.0, NAN, 3.0], [0.0, 0.0, 1.0]),
        (lambda x: np.nansum(x), [1.0, NAN, 3.0], [1.0, 0.0, 1.0]),
        (lambda x: np.nanstd(np.stack([x, x])), [2.0], [0.0]),
        (lambda x: np.log1p(np.expm1(x)), [0.0], [1.0]),
        (lambda x: np.tanh(x), [400.0, -400.0], [0.0, 0.0]),
    ],
)  # fmt: skip
def test_derivative(f: Callable[[Any], Any], x: Any, expected: Any) -> None:
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(both_modes(f, x), expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_overflow_free_derivatives(dtype: type) -> None:
    """No rule overflows where the derivative itself is an ordinary number."""
    huge = dtype(80.0)
    assert grad(lambda x: np.logaddexp(x, huge))(huge) == pytest.approx(0.5, rel=1e-5)
    assert grad(lambda x: np.logaddexp(x, dtype(0)))(dtype(-80)) > 0
    far = np.finfo(dtype).max / 4
    with np.errstate(over="raise", invalid="raise"):
        assert grad(lambda x: np.hypot(x, far))(dtype(far)) == pytest.approx(0.5**0.5)
        assert grad(np.tanh)(dtype(far)) == 0
        assert grad(lambda x: np.logaddexp(x, dtype(0)))(dtype(far)) == 1
        assert grad(lambda x: np.logaddexp(x, dtype(0)))(dtype(-far)) == 0


def test_clip_bounds_get_the_derivative_that_the_value_does_not() -> None:
    x = np.array([-3.0, -1.0, 0.0, 1.0, 3.0])
    low, high = grad(lambda a, b: np.sum(np.clip(x, a, b)), argnums=(0, 1))(-1.0, 1.0)
    assert (low, high) == (1.0, 1.0)


def test_exponent_of_a_base_zero_and_of_a_negative_one() -> None:
    with np.errstate(invalid="ignore"):
        assert grad(lambda y: np.power(0.0, y))(2.0) == 0.0
        assert np.isnan(grad(lambda y: np.power(-2.0, y))(2.0))


def test_second_derivatives_at_kinks_are_finite() -> None:
    assert grad(grad(lambda x: x**2))(0.0) == 2.0
    assert grad(grad(lambda x: x**3))(0.0) == 0.0
    assert grad(grad(grad(lambda x: x**3)))(0.0) == 6.0
    assert grad(grad(np.abs))(0.0) == 0.0
    assert grad(grad(relu))(0.0) == 0.0
    assert grad(grad(np.sinc))(0.5) == pytest.approx(_sinc_second(0.5), rel=1e-9)


def _sinc_second(x: float) -> float:
    """Return the second derivative of sin(pi x) / (pi x)."""
    p = np.pi
    return float(-p * np.sin(p * x) / x - 2 * np.cos(p * x) / x**2 + 2 * np.sin(p * x) / (p * x**3))


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ("absolute", "0 at 0"), ("sqrt", "inf at 0"), ("maximum", "equally"), ("max", "equally"),
        ("clip", "1 on the bounds"), ("relu", "0 at 0"), ("hypot", "0 at the origin"),
        ("norm", "0 at 0"), ("std", "0 where"), ("power", "0 where the base is 0"),
        ("prod", "exact where elements are 0"), ("where", "branch not taken"),
    ],
)  # fmt: skip
def test_the_notes_say_so(op: str, words: str) -> None:
    assert words in OPS[op].note


def test_where_lets_no_gradient_into_the_branch_not_taken() -> None:
    x = np.array([0.0, 4.0])
    with np.errstate(all="ignore"):
        direct = grad(lambda v: np.sum(np.where(v > 0, np.sqrt(v), 0.0)))(x)
    np.testing.assert_array_equal(direct, [0.0, 0.25])
    safe = grad(lambda v: np.sum(np.where(v > 0, np.sqrt(np.where(v > 0, v, 1.0)), 0.0)))(x)
    np.testing.assert_array_equal(safe, [0.0, 0.25])


def test_relu_of_a_plain_array_is_plain() -> None:
    np.testing.assert_array_equal(relu(np.array([-1.0, 2.0])), [0.0, 2.0])
    assert isinstance(relu(adarray.array([-1.0])), adarray.ADArray)
