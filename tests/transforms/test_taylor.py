"""jet: Taylor mode beside nested forward mode, and known series."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from curves import check

import adarray
from adarray.errors import DTypeError, ForwardModeError, ShapeError

X = np.array([0.3, 0.7, 0.5, 0.9])
RNG = np.random.default_rng(0)
SERIES = [RNG.normal(size=4) for _ in range(4)]


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def in_place(x: Any) -> Any:
    y = np.zeros(4)
    y[:2] = x[2:] ** 2
    y[2:] = np.sin(x[:2])
    y *= x
    part = y[1:3]
    part += 1.0
    part[0] = x[0] * x[1]
    return y


def looped(x: Any) -> Any:
    y = x[0]
    for i in range(1, 4):
        y = y * x[i] + np.cos(y)
    return y


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "composed": lambda x: np.exp(np.sin(x)) * np.sqrt(1.0 + x * x) / np.tanh(x) ** 1.5,
    "both operands of a power": lambda x: x**x,
    "whole power at zero": lambda x: (x - x[0]) ** 3,
    "in place": in_place,
    "loop": looped,
    "branches": lambda x: np.where(x > 0.5, x * x, np.sqrt(x)) + np.maximum(x, x[::-1] ** 2),
    "layout": lambda x: np.concatenate([x.reshape(2, 2).T.ravel(), x[::-1]]) ** 2,
    "products": lambda x: x.reshape(2, 2) @ x.reshape(2, 2).T @ x[:2],
    "einsum": lambda x: np.einsum("ij,jk,kl->il", *[x.reshape(2, 2)] * 3),
    "solve": lambda x: np.linalg.solve(x.reshape(2, 2) + 2.0 * np.eye(2), x[:2]),
    "gradient inside": lambda x: adarray.grad(lambda y: np.sum(y**3 * np.sin(x)))(x * x),
    "tangent inside": lambda x: adarray.jvp(lambda y: np.tanh(y) * x, (x,), (x * x,))[1],
    "statistics": lambda x: np.std(x) * np.linalg.norm(x) + np.prod(x),
    "where": lambda x: np.sum(x**3, where=x > 0.4) + np.max(x, where=x < 0.6, initial=0.0) ** 2,
    "stacked": lambda x: np.stack([x, x * x]) @ x,
    "constant": lambda x: np.ones(3) + 0.0 * np.floor(x[0]),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    check(PROGRAMS[name], (X,), (SERIES,))


def test_several_arguments_and_nests() -> None:
    def f(w: Any, x: Any) -> Any:
        return {"y": w["a"] * x + w["b"] ** 2, "text": "kept", "z": np.sum(x)}

    w = {"a": np.array([1.0, 2.0]), "b": 0.5}
    ws = [{"a": np.array([0.5, 0.0]), "b": 1.0}, {"a": np.array([0.0, 1.0]), "b": 0.0}]
    y, coefficients = adarray.jet(f, (w, np.array([3.0, 4.0])), (ws, [np.ones(2), np.zeros(2)]))
    np.testing.assert_allclose(y["y"], [3.25, 8.25])
    np.testing.assert_allclose(coefficients["y"], [[3.5, 3.0], [3.0, 6.0]])
    np.testing.assert_allclose(coefficients["z"], [2.0, 0.0])
    assert (y["text"], coefficients["text"]) == ("kept", None)


def test_known_series() -> None:
    def coefficients(f: Callable[[Any], Any], x: float) -> list[float]:
        y, coefficients = adarray.jet(f, (x,), ([1.0] + [0.0] * 11,), factorial_scaled=False)
        return [y, *coefficients]

    k = np.arange(13)
    factorial = np.array([math.factorial(i) for i in k], float)
    np.testing.assert_allclose(coefficients(np.exp, 0.0), 1.0 / factorial)
    np.testing.assert_allclose(coefficients(lambda x: 1.0 / (1.0 - x), 0.0), np.ones(13))
    signs = np.where(k % 2 == 0, 0.0, (-1.0) ** (k // 2))
    np.testing.assert_allclose(coefficients(np.sin, 0.0), signs / factorial)
    np.testing.assert_allclose(coefficients(np.log1p, 0.0)[1:], -((-1.0) ** k[1:]) / k[1:])
    odd = np.where(k % 2 == 0, 0.0, (-1.0) ** (k // 2) / np.maximum(k, 1))
    np.testing.assert_allclose(coefficients(np.arctan, 0.0), odd, atol=1e-14)
    tangents = [1.0, 1 / 3, 2 / 15, 17 / 315, 62 / 2835, 1382 / 155925]
    np.testing.assert_allclose(coefficients(np.tan, 0.0)[1::2], tangents)
    binomial = np.cumprod([1.0, *((0.5 - i) / (i + 1) for i in range(12))])
    np.testing.assert_allclose(coefficients(lambda x: np.sqrt(1.0 + x), 0.0), binomial)
    np.testing.assert_allclose(coefficients(lambda x: (1.0 + x) ** 0.5, 0.0), binomial)


@pytest.mark.slow_on("openmp")
def test_speelpenning() -> None:
    """The product of all variables along (1, ..., 1) is a polynomial with these roots."""

    def product(x: Any) -> Any:
        result = 1.0
        for i in range(len(x)):
            result = result * x[i]
        return result

    x = np.arange(1.0, 7.0)
    series = [np.ones(6), *[np.zeros(6)] * 7]
    for f in (product, np.prod):
        y, coefficients = adarray.jet(f, (x,), (series,))
        results = [y, *(d / math.factorial(k + 1) for k, d in enumerate(coefficients))]
        np.testing.assert_allclose(results, [*np.poly(-x)[::-1], 0.0, 0.0])


def test_scales() -> None:
    derivatives = adarray.jet(np.exp, (0.3,), ([1.0, 2.0, 3.0],))[1]
    powers = adarray.jet(np.exp, (0.3,), ([1.0, 1.0, 0.5],), factorial_scaled=False)[1]
    np.testing.assert_allclose(derivatives, np.multiply(powers, [1.0, 2.0, 6.0]))


def test_under_jit_and_inside_of_other_transforms() -> None:
    f = PROGRAMS["composed"]

    def g(x: Any) -> Any:
        return adarray.jet(f, (x,), ([x, x * x, np.ones(4)],))

    compiled = adarray.jit(g)
    for x in (X, X, 0.5 * X, X):
        y, result = compiled(x)
        np.testing.assert_allclose(y, f(x))
        np.testing.assert_allclose(result, g(x)[1], rtol=1e-10)

    def third(x: Any) -> Any:
        return np.sum(adarray.jet(np.sin, (x,), ([x, np.zeros(4), np.zeros(4)],))[1][2])

    expected = -3.0 * X**2 * np.cos(X) + X**3 * np.sin(X)
    np.testing.assert_allclose(adarray.grad(third)(X), expected)
    np.testing.assert_allclose(adarray.jvp(third, (X,), (np.ones(4),))[1], np.sum(expected))

    def second(x: Any) -> Any:
        return adarray.jet(np.sin, (x,), ([1.0, 0.0],))[1][1]

    outer = adarray.jet(second, (0.4,), ([1.0, 0.0],))[1]
    np.testing.assert_allclose(outer, [-np.cos(0.4), np.sin(0.4)])
    inner = adarray.jit(np.tanh)
    np.testing.assert_allclose(
        adarray.jet(inner, (X,), (SERIES,))[1], adarray.jet(np.tanh, (X,), (SERIES,))[1]
    )


def test_rules_of_the_user() -> None:
    @adarray.custom_jvp
    def wave(x: Any) -> Any:
        return np.sin(x)

    wave.defjvp(lambda xs, ts: (wave(xs[0]), np.cos(xs[0]) * ts[0]))

    @adarray.custom_jvp
    def grown(x: Any, y: Any) -> Any:
        return np.exp(x * y)

    grown.defjvps(lambda t, out, x, y: t * y * out, lambda t, out, x, y: t * x * out)
    matrix = np.eye(4) + np.arange(16.0).reshape(4, 4) / 20.0

    def solved(solve: Any) -> Any:
        return lambda x: solve(matrix * (1.0 + x[0] ** 2), x) * x

    def by_rule(a: Any, b: Any) -> Any:
        values = adarray.value_of(a)
        return adarray.custom_linear_solve(
            lambda v: a @ v, b, lambda _, b: np.linalg.solve(values, b)
        )

    pairs = [
        (lambda x: wave(x * x) ** 2, lambda x: np.sin(x * x) ** 2),
        (lambda x: grown(x, x[::-1] ** 2), lambda x: np.exp(x * x[::-1] ** 2)),
        (adarray.checkpoint(PROGRAMS["composed"]), PROGRAMS["composed"]),
        (solved(by_rule), solved(np.linalg.solve)),
    ]
    for f, plain in pairs:
        coefficients, expected = (adarray.jet(g, (X,), (SERIES,))[1] for g in (f, plain))
        np.testing.assert_allclose(coefficients, expected, rtol=1e-9)

    @adarray.custom_vjp
    def reverse_alone(x: Any) -> Any:
        return x * 2.0

    reverse_alone.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 2.0,))
    with pytest.raises(ForwardModeError):
        adarray.jet(reverse_alone, (X,), (SERIES,))


def test_members_of_a_batch() -> None:
    def third(x: Any) -> Any:
        return adarray.jet(np.tanh, (x,), ([1.0, 0.0, 0.0],))[1][2]

    np.testing.assert_allclose(adarray.vmap(third)(X), [third(x) for x in X])
    inner = adarray.vmap(lambda y: np.sin(y) * y**2)
    result, expected = (
        adarray.jet(f, (X,), (SERIES,))[1] for f in (inner, lambda y: np.sin(y) * y**2)
    )
    np.testing.assert_allclose(result, expected)


def test_float32_and_numbers() -> None:
    y, (dy, d2y) = adarray.jet(np.exp, (np.float32(0.0),), ([np.float32(1.0), np.float32(0.0)],))
    assert {np.asarray(v).dtype for v in (y, dy, d2y)} == {np.dtype(np.float32)}
    complex_ = adarray.jet(np.exp, (1j * np.ones(2),), ([np.ones(2) + 0j, np.zeros(2) + 0j],))
    np.testing.assert_allclose(complex_[1], np.exp(1j) * np.ones((2, 2)))


REFUSED = [
    (lambda: adarray.jet(np.sin, (X,), ()), ShapeError,
     "jet: 1 primals and 0 series; pass one series for each"),
    (lambda: adarray.jet(np.sin, (X,), ([],)), ShapeError,
     "jet: the series have [0] terms; pass a list of derivatives for each primal, of all equally "
     "many and at least one"),
    (lambda: adarray.jet(np.hypot, (X, X), ([X], [X, X])), ShapeError,
     "jet: the series have [1, 2] terms"),
    (lambda: adarray.jet(np.sin, (X,), ([X[:2]],)), ShapeError,
     "jet: primals[0]: the tangent has shape (2,) and its primal (4,); they must be equal"),
    (lambda: adarray.jet(np.sin, (X,), ([1j * X],)), DTypeError,
     "has dtype float64 and its tangent is complex"),
    (lambda: adarray.jet(np.sin, (3,), ([1.0],)), DTypeError, "non-floating dtype"),
    (lambda: adarray.jet(np.sin, X, (X,)), TypeError,
     "jet: primals is of type ndarray and series of type tuple; pass a tuple each, with an item"),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_refusals(k: int) -> None:
    call, error, text = REFUSED[k]
    with pytest.raises(error) as raised:
        call()
    assert text in str(raised.value)
