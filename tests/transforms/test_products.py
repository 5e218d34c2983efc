"""Derivatives times vectors, Jacobians by either mode, and arguments by name."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import DTypeError, ShapeError

X = np.array([0.3, 0.7, 1.1, -0.4])
V = np.array([1.0, -2.0, 0.5, 0.25])
A = np.random.default_rng(0).normal(size=(3, 4))


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_hessian(x: np.ndarray) -> np.ndarray:
    """Return the known answer, a tridiagonal matrix."""
    n = len(x)
    h = np.diag(-400.0 * x[:-1], 1) + np.diag(-400.0 * x[:-1], -1)
    d = np.zeros(n)
    d[:-1] += 1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0
    d[1:] += 200.0
    return h + np.diag(d)


def in_place(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1:] = x[:-1] * x[1:]
    y[0] += np.sin(x[0])
    y *= x
    return np.sum(y**2)


def layered(x: Any) -> Any:
    return np.tanh(A @ np.where(x > 0.0, x, x**2))


SCALARS = {"rosenbrock": rosenbrock, "in place": in_place, "layered": lambda x: layered(x) @ V[:3]}
VECTORS = {"layered": layered, "array": lambda x: np.array([x[0] * x[1], np.sin(x[2]), x[3] ** 3]),
           "sort": lambda x: np.sort(x)[::2] * x[:2]}  # fmt: skip


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


@pytest.mark.parametrize("name", SCALARS)
def test_products_with_the_hessian(name: str) -> None:
    f = SCALARS[name]
    h = adarray.hessian(f)(X)
    np.testing.assert_allclose(adarray.hvp(f)(X, V), h @ V, rtol=1e-10)
    product, gradient = adarray.make_hvp(f)(X)
    np.testing.assert_allclose(gradient, adarray.grad(f)(X), rtol=1e-10)
    for v in (V, 2.0 * V, X):  # prepared once
        np.testing.assert_allclose(product(v), h @ v, rtol=1e-10)


def test_a_known_hessian() -> None:
    h = rosenbrock_hessian(X)
    np.testing.assert_allclose(adarray.hessian(rosenbrock)(X), h, rtol=1e-12)
    np.testing.assert_allclose(adarray.hvp(rosenbrock)(X, V), h @ V, rtol=1e-12)


@pytest.mark.parametrize("name", VECTORS)
def test_jacobians_by_either_mode(name: str) -> None:
    f = VECTORS[name]
    expected = adarray.jacobian(f)(X)
    np.testing.assert_allclose(adarray.jacfwd(f)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(adarray.jacrev(f)(X), expected, rtol=1e-12)
    np.testing.assert_allclose(adarray.directional_derivative(f)(X, V), expected @ V, rtol=1e-10)
    y, tangent_map = adarray.linearize(f, X)
    np.testing.assert_allclose(y, f(X))
    for v in (V, X):
        np.testing.assert_allclose(tangent_map(v), expected @ v, rtol=1e-10)


def test_linearize_runs_the_function_once() -> None:
    runs = []

    def f(x: Any) -> Any:
        runs.append(1)
        return np.sin(x) * x

    _, tangent_map = adarray.linearize(f, X)
    for v in (V, X, V):
        np.testing.assert_allclose(
            tangent_map(v), adarray.jvp(lambda x: np.sin(x) * x, (X,), (v,))[1]
        )
    assert len(runs) == 1


@pytest.mark.parametrize("name", VECTORS)
def test_everything_nests(name: str) -> None:
    """Derivatives of derivatives times vectors, against those of Jacobians."""
    f = VECTORS[name]

    def by_jacobian(x: Any) -> Any:
        return np.sum((adarray.jacobian(f)(x) @ V) ** 2)

    expected = adarray.grad(by_jacobian)(X)
    for along in (
        lambda x: adarray.directional_derivative(f)(x, V),
        lambda x: adarray.linearize(f, x)[1](V),
        lambda x: adarray.jacfwd(f)(x) @ V,
        lambda x: adarray.jacrev(f)(x) @ V,
    ):
        gradient = adarray.grad(lambda x, along=along: np.sum(along(x) ** 2))(X)
        np.testing.assert_allclose(gradient, expected, rtol=1e-9)
        _, gradient = adarray.jvp(lambda x, along=along: np.sum(along(x) ** 2), (X,), (V,))
        np.testing.assert_allclose(gradient, expected @ V, rtol=1e-9)


def test_third_derivatives() -> None:
    f = SCALARS["layered"]
    third = adarray.jacobian(adarray.hessian(f))(X)
    matrix = adarray.jacobian(lambda x: adarray.hvp(f)(x, V))(X)
    np.testing.assert_allclose(matrix, np.einsum("ijk,j->ik", third, V), rtol=1e-8, atol=1e-12)
    matrix = adarray.jacobian(lambda x: adarray.make_hvp(f)(x)[0](V))(X)
    np.testing.assert_allclose(matrix, np.einsum("ijk,j->ik", third, V), rtol=1e-8, atol=1e-12)


@pytest.mark.slow_on("openmp")
def test_compiled() -> None:
    for result, args in (
        (adarray.hvp(rosenbrock), (X, V)),
        (adarray.jacfwd(layered), (X,)),
        (adarray.jacrev(layered), (X,)),
        (adarray.elementwise_grad(np.tanh), (X,)),
        (adarray.directional_derivative(layered), (X, V)),
        (lambda x, v: adarray.linearize(layered, x)[1](v), (X, V)),
        (lambda g: adarray.linear_transpose(np.diff, X)(g)[0], (V[:3],)),
        (lambda x, v: adarray.make_hvp(rosenbrock)(x)[0](v), (X, V)),
    ):
        jitted = adarray.jit(result)
        for _ in range(3):
            np.testing.assert_allclose(jitted(*args), result(*args), rtol=1e-12)
        assert jitted.cache_info().eager == 0


def test_nests_and_several_arguments() -> None:
    def f(p: Any, s: Any) -> Any:
        return np.sum(np.tanh(p["w"] * s + p["b"]) ** 2)

    p, s = {"w": X, "b": 0.5}, 1.5
    dp, ds = {"w": V, "b": -1.0}, 0.25
    step = 1e-5
    up, down = (
        adarray.grad(f, (0, 1))({"w": X + k * V, "b": 0.5 - k}, s + k * ds) for k in (step, -step)
    )
    product = adarray.hvp(f, (0, 1))(p, s, (dp, ds))
    np.testing.assert_allclose(product[0]["w"], (up[0]["w"] - down[0]["w"]) / (2 * step), rtol=1e-6)
    assert product[0]["b"] == pytest.approx((up[0]["b"] - down[0]["b"]) / (2 * step), rel=1e-6)
    assert product[1] == pytest.approx((up[1] - down[1]) / (2 * step), rel=1e-6)
    assert type(product[0]["b"]) is type(product[1]) is float
    y, tangent_map = adarray.linearize(lambda p, n: {"y": p["w"] * n, "n": n * 2.0}, p, s)
    tangent = tangent_map(dp, ds)
    np.testing.assert_allclose(tangent["y"], V * s + X * ds)
    assert (y["n"], tangent["n"]) == (3.0, 0.5)
    slopes = adarray.elementwise_grad(lambda p: p["w"] * 2)(p)
    np.testing.assert_allclose(slopes["w"], np.full(4, 2.0))


def test_auxiliary_values() -> None:
    def f(x: Any) -> Any:
        return x**2, {"norm": np.sum(x)}

    for transform in (adarray.jacfwd, adarray.jacrev):
        j, aux = transform(f, has_aux=True)(X)
        np.testing.assert_allclose(j, np.diag(2 * X))
        assert type(aux["norm"]) is np.float64
        assert aux["norm"] == X.sum()
    j, aux = adarray.jacobian(f, has_aux=True)(X)
    y, dy, aux_too = adarray.jvp(f, (X,), (V,), has_aux=True)
    np.testing.assert_allclose(dy, 2 * X * V)
    assert aux == aux_too == {"norm": X.sum()}
    y_too, tangent_map, aux_too = adarray.linearize(f, X, has_aux=True)
    np.testing.assert_array_equal(y, y_too)
    np.testing.assert_allclose(tangent_map(V), dy)
    assert aux == aux_too


def weighted(a: Any, b: Any = 2.0, *, scale: Any = 3.0) -> Any:
    return np.sum(a**2 * b) * scale


def test_arguments_by_name() -> None:
    b = np.ones(4)
    np.testing.assert_allclose(adarray.grad(weighted, "a")(X, b), 6 * X)
    np.testing.assert_allclose(adarray.grad(weighted, "b")(X, b=b), 3 * X**2)
    value, (ds, da) = adarray.value_and_grad(weighted, ("scale", 0))(X, b, scale=0.5)
    assert ds == pytest.approx(np.sum(X**2))
    assert value == pytest.approx(0.5 * ds)
    np.testing.assert_allclose(da, X)
    np.testing.assert_allclose(adarray.hessian(weighted, "b")(X, b=b), np.zeros((4, 4)))
    np.testing.assert_allclose(
        adarray.jacobian(weighted, ["a", "scale"])(X, b, scale=1.0)[0], 2 * X
    )
    np.testing.assert_allclose(adarray.hvp(weighted, "a")(X, V, scale=1.0), 4 * V)
    np.testing.assert_allclose(adarray.jit(adarray.grad(weighted, "b"))(X, b=b), 3 * X**2)
    np.testing.assert_allclose(adarray.grad(weighted, (-1, "scale"))(X, b, scale=2.0)[0], 2 * X**2)


def test_mistakes_are_named() -> None:
    text = r"grad: argnums='scale', but no argument 'scale' was passed to weighted\(a, b, scale\)"
    with pytest.raises(TypeError, match=text):
        adarray.grad(weighted, "scale")(X)
    with pytest.raises(TypeError, match=r"hvp: expected the arguments .* and a vector behind them"):
        adarray.hvp(rosenbrock)(X)
    with pytest.raises(ShapeError, match=r"hvp: "):
        adarray.hvp(rosenbrock)(X, V[:3])
    with pytest.raises(ShapeError, match=r"linearize: the tangents have shapes"):
        adarray.linearize(layered, X)[1](V[:2])
    with pytest.raises(ShapeError, match=r"hvp: the function returned shape \(3,\)"):
        adarray.hvp(layered)(X, V)
    with pytest.raises(DTypeError, match=r"elementwise_grad: .*int"):
        adarray.elementwise_grad(np.sin)(np.arange(3))
    with pytest.raises(DTypeError, match="jacrev: the function returned bool"):
        adarray.jacrev(lambda x: x > 0.0)(X)
    with pytest.raises(ValueError, match=r"linear_transpose: .* not linear"):
        adarray.linear_transpose(lambda x: x + 1.0, X)
    with pytest.raises(TypeError, match="make_hvp: expected a function"):
        adarray.make_hvp(3.0)  # type: ignore[arg-type]


cubed = adarray.register_rule(lambda x: x**3, lambda g, out, x: 3.0 * g * x**2, name="cubed_of")


def test_a_rule_without_forward_mode() -> None:
    def f(x: Any) -> Any:
        return np.sum(cubed(x) * x)

    np.testing.assert_allclose(adarray.hvp(f)(X, V), 12.0 * X**2 * V)
    _, tangent_map = adarray.linearize(lambda x: cubed(x), X)
    np.testing.assert_allclose(tangent_map(V), 3.0 * X**2 * V)


def test_transposes() -> None:
    transpose = adarray.linear_transpose(lambda x, s: A @ x + s, X, 0.0)
    g = V[:3]
    np.testing.assert_allclose(transpose(g)[0], A.T @ g)
    assert transpose(g)[1] == pytest.approx(g.sum())
    c = np.array([1.0 + 2.0j, 0.5j])
    np.testing.assert_allclose(adarray.linear_transpose(lambda z: c * z, c)(c)[0], c * c)


def test_what_transforms_return_can_be_copied() -> None:
    transformed = adarray.hvp(rosenbrock)
    assert repr(transformed) == f"<hvp of {rosenbrock!r}>"
    for again in (pickle.loads(pickle.dumps(transformed)), copy.deepcopy(transformed)):
        np.testing.assert_allclose(again(X, V), transformed(X, V))
