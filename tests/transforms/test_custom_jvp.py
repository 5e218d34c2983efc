"""custom_jvp: one rule for both modes, and for derivatives of any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import ShapeError, TraceError

X = np.array([0.4, 1.0, 2.0])
V = np.array([1.0, -0.5, 0.3])


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-13)


def plain(x: Any, y: Any) -> Any:
    return np.sin(x) * np.exp(0.1 * y)


@adarray.custom_jvp
def full(x: Any, y: Any) -> Any:
    return plain(x, y)


@full.defjvp
def _full_jvp(primals: Any, tangents: Any) -> Any:
    (x, y), (s, t) = primals, tangents
    out = full(x, y)
    return out, np.cos(x) * np.exp(0.1 * y) * s + 0.1 * out * t


each = adarray.custom_jvp(plain)
each.defjvps(
    lambda t, out, x, y: np.cos(x) * np.exp(0.1 * y) * t, lambda t, out, x, y: 0.1 * out * t
)


@adarray.custom_jvp
def nest(p: Any, q: Any) -> Any:
    return {"a": plain(p["x"], q), "n": 3, "b": p["x"] * 2.0}


@nest.defjvp
def _nest_jvp(primals: Any, tangents: Any) -> Any:
    (p, q), (dp, dq) = primals, tangents
    slope = np.cos(p["x"]) * np.exp(0.1 * q) * dp["x"] + 0.1 * plain(p["x"], q) * dq
    return nest(p, q), {"a": slope, "n": None, "b": dp["x"] * 2.0}


def by_nest(x: Any, y: Any) -> Any:
    out = nest({"x": x}, y)
    assert out["n"] == 3
    return out["a"] + out["b"] - 2.0 * x


def loss_of(f: Any) -> Any:
    return lambda x: np.sum(f(x * x, np.cos(x)) ** 2 * f(x, 2.0))


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("f", [full, each, by_nest])
def test_derivatives_of_every_order(f: Any) -> None:
    mine, expected = loss_of(f), loss_of(plain)
    close(mine(X), expected(X))
    close(adarray.grad(mine)(X), adarray.grad(expected)(X))
    close(adarray.jvp(mine, (X,), (V,))[1], adarray.jvp(expected, (X,), (V,))[1])
    h = adarray.hessian(expected)(X)
    close(adarray.hessian(mine)(X), h)
    close(adarray.jacrev(adarray.grad(mine))(X), h)
    close(adarray.jacrev(adarray.jacfwd(mine))(X), h)
    close(adarray.jacfwd(adarray.jacfwd(mine))(X), h)
    close(adarray.make_hvp(mine)(X)[0](V), h @ V)
    third = lambda f: adarray.grad(lambda x: np.sum(adarray.hvp(f)(x, V) * np.cos(x)))  # noqa: E731
    close(third(mine)(X), third(expected)(X))
    other = lambda f: adarray.jacfwd(adarray.jacrev(adarray.jacfwd(f)))  # noqa: E731
    close(other(mine)(X), other(expected)(X))
    x = adarray.array(X, requires_grad=True)
    mine(x).backward()
    close(x.grad, adarray.grad(expected)(X))
    close(adarray.linearize(mine, X)[1](V), h[0, 0] * 0 + adarray.jvp(expected, (X,), (V,))[1])


@pytest.mark.slow_on("openmp")
@pytest.mark.parametrize("f", [full, each, by_nest])
def test_compiled(f: Any) -> None:
    mine, expected = loss_of(f), loss_of(plain)
    for transform in (
        adarray.grad,
        adarray.hessian,
        lambda f: lambda x: adarray.jvp(f, (x,), (V,))[1],
    ):
        jitted = adarray.jit(transform(mine))
        for k in range(4):
            close(jitted(X + 0.1 * k), transform(expected)(X + 0.1 * k))
        assert jitted.cache_info().eager == 0


def test_the_rule_is_what_counts() -> None:
    f = adarray.custom_jvp(lambda x: x * 1.0)
    f.defjvp(lambda primals, tangents: (f(*primals), 10.0 * primals[0] * tangents[0]))
    close(adarray.grad(lambda x: np.sum(f(x)))(X), 10.0 * X)
    close(adarray.jvp(f, (X,), (V,))[1], 10.0 * X * V)
    close(adarray.hessian(lambda x: np.sum(f(x)))(X), 10.0 * np.eye(3))
    close(adarray.jacfwd(adarray.jacrev(lambda x: np.sum(f(x) ** 2)))(X),
          np.diag(2 * (10 * X) * (10 * X) + 2 * X * 10))  # fmt: skip
    f.defjvps(None)
    close(adarray.grad(lambda x: np.sum(f(x) * x))(X), X)


def test_arguments_without_derivatives() -> None:
    def apply(fn: Any, x: Any, k: int) -> Any:
        return fn(x) * k

    f = adarray.custom_jvp(apply, nondiff_argnums=(0,))

    @f.defjvp
    def _rule(fn: Any, primals: Any, tangents: Any) -> Any:
        assert tangents[1] is None
        return fn(primals[0]) * primals[1], 7.0 * tangents[0]

    close(adarray.grad(lambda x: np.sum(f(np.sin, x, 2)))(X), np.full(3, 7.0))
    close(adarray.jvp(lambda x: f(np.sin, x, 2), (X,), (V,))[1], 7.0 * V)


def test_a_number() -> None:
    f = adarray.custom_jvp(lambda x: x**2)
    f.defjvp(lambda p, t: (p[0] ** 2, 2.0 * p[0] * t[0]))
    assert adarray.grad(f)(3.0) == 6.0
    assert adarray.grad(adarray.grad(f))(3.0) == 2.0
    assert adarray.jvp(f, (3.0,), (1.0,))[1] == 6.0


def test_residuals_are_apart_from_what_is_returned() -> None:
    f = adarray.custom_vjp(np.exp)
    f.defvjp(lambda x: (np.exp(x),) * 2, lambda y, g: (g * y,))

    def loss(x: Any) -> Any:
        y = f(x)
        total = np.sum(y)
        y *= 0.0
        return total + np.sum(y)

    close(adarray.grad(loss)(X), np.exp(X))


def test_mistakes_in_rules_are_named() -> None:
    f = adarray.custom_jvp(lambda x: x * 2.0)
    for derivative in (adarray.grad(lambda x: np.sum(f(x))), adarray.jacfwd(f)):
        with pytest.raises(TypeError, match=r"custom_jvp\(<lambda>\): no rule; set it by defjvp"):
            derivative(X)
    f.defjvp(lambda p, t: t[0])
    with pytest.raises(TypeError, match=r"the rule returned .*; it returns a pair"):
        adarray.jacfwd(f)(X)
    f.defjvp(lambda p, t: (p[0], np.sum(t[0])))
    with pytest.raises(ShapeError, match=r"the tangent has shape \(\), and the result \(3,\)"):
        adarray.jacfwd(f)(X)
    f.defjvp(lambda p, t: (p[0], (t[0], t[0])))
    with pytest.raises(ShapeError, match="the tangent has 2 arrays, and the result 1"):
        adarray.jacfwd(f)(X)
    f.defjvps(None, None)
    with pytest.raises(TypeError, match="2 rules were given to defjvps, and 1 arrays as arguments"):
        adarray.jacfwd(f)(X)

    def reads(w: Any) -> Any:
        f = adarray.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (p[0] * w, t[0] * w))
        return f(3.0 * w)

    for transform in (adarray.grad, lambda f: lambda x: adarray.hvp(f)(x, 1.0)):
        with pytest.raises(TraceError, match="reads a traced value that is no argument of it"):
            transform(reads)(2.0)


RULES = {
    "square": lambda p, t: (p[0] ** 2, (2 * p[0] * t[0]) ** 2),
    "shifted": lambda p, t: (p[0] ** 2, 2 * p[0] * t[0] + 1.0),
    "magnitude": lambda p, t: (p[0] ** 2, np.abs(2 * p[0] * t[0])),
    "largest": lambda p, t: (p[0] ** 2, np.maximum(2 * p[0] * t[0], 0.0)),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", ["grad", "jit(grad)", "jacrev", "hessian", "vmap", "number"])
def test_rules_that_are_not_linear_have_no_gradient(name: str, kind: str) -> None:
    """The gradient of a square of tangents was 0."""
    f = adarray.custom_jvp(lambda x: x**2)
    f.defjvp(RULES[name])

    def loss(x: Any) -> Any:
        return np.sum(f(x))

    transformed, x = {
        "grad": (adarray.grad(loss), np.array([1.0, 2.0])),
        "jit(grad)": (adarray.jit(adarray.grad(loss)), np.array([1.0, 2.0])),
        "jacrev": (adarray.jacrev(f), np.array([1.0, 2.0])),
        "hessian": (adarray.hessian(loss), np.array([1.0, 2.0])),
        "vmap": (adarray.vmap(adarray.grad(loss)), np.array([[1.0, 2.0]])),
        "number": (adarray.grad(f), 2.0),
    }[kind]
    with pytest.raises(ValueError, match="rule of custom_jvp is not linear in the tangents"):
        transformed(x)
    f.defjvp(lambda p, t: (p[0] ** 2, 2 * p[0] * t[0]))
    np.testing.assert_allclose(
        np.sum(transformed(x)), {"number": 4.0, "hessian": 4.0}.get(kind, 6.0)
    )
