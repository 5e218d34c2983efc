"""grad, value_and_grad, vjp, jvp, jacobian, hessian: values, structures, nesting."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import grad, hessian, jacobian, jvp, value_and_grad, vjp
from adarray.testing import check_grads

X = np.linspace(0.2, 1.0, 4)


def f(x):
    return np.sum(np.sin(x) * np.exp(-x * x) + np.log1p(x * x))


def test_plain_in_plain_out():
    value, g = value_and_grad(f)(X)
    assert type(value) is np.float64
    assert type(g) is np.ndarray
    assert g.flags.writeable
    assert g.flags.owndata
    assert value == f(X)
    check_grads(f, (X,), order=3)


def test_adarray_in_adarray_out():
    value, g = value_and_grad(f)(adarray.array(X))
    assert isinstance(value, adarray.ADArray)
    assert isinstance(g, adarray.ADArray)
    np.testing.assert_array_equal(g.numpy(), grad(f)(X))


def test_results_never_alias_inputs():
    def identity(x):
        return x

    y, pullback = vjp(identity, X)
    assert not np.shares_memory(y, X)
    v = np.ones(4)
    (back,) = pullback(v)
    assert not np.shares_memory(back, v)
    g = grad(lambda x: x.sum())(X)
    g[0] = 3  # not a read-only broadcast
    ga, gb = grad(lambda a, b: np.sum((a + b) ** 2), argnums=(0, 1))(X, X)
    assert not np.shares_memory(ga, gb)


def test_float32_stays_float32():
    x = X.astype(np.float32)
    value, g = value_and_grad(lambda x: np.sum(np.tanh(x) * 2.0) / 3)(x)
    assert value.dtype == np.float32
    assert g.dtype == np.float32
    # mixed: each gradient has its operand's dtype
    ga, gb = grad(lambda a, b: np.sum(a * b), argnums=(0, 1))(x, X)
    assert ga.dtype == np.float32
    assert gb.dtype == np.float64


def test_traced_python_numbers_are_weak():
    x = X.astype(np.float32)
    seen = []

    def scaled(s, t):
        y = x * (s * 2 + t / 3 - s**2)
        seen.append(y.dtype)
        return np.sum(y)

    g = grad(scaled)(3.0, 1.5)
    assert type(g) is float
    assert seen == [np.float32]

    def through_item(v):
        y = x * v[0].item()
        seen.append(y.dtype)
        return np.sum(y)

    grad(through_item)(X)
    assert seen[-1] == np.float32
    # np.sum results are strong, as NumPy's are
    grad(lambda v: np.sum(x * np.sum(v)) if not seen.append((x * np.sum(v)).dtype) else 0)(X)
    assert seen[-1] == np.float64


Point = namedtuple("Point", "x y")


@dataclasses.dataclass
class Layer:
    w: np.ndarray
    b: float


def test_trees():
    tree = {
        "layers": [Layer(X, 0.5), Layer(2 * X, 1.5)],
        "p": Point(X, (1.0, None)),
    }

    def loss(t):
        s = sum(np.sum(layer.w**2) * layer.b for layer in t["layers"])
        return s + np.sum(t["p"].x) * t["p"].y[0]

    g = grad(loss)(tree)
    assert isinstance(g["layers"][0], Layer)
    assert isinstance(g["p"], Point)
    np.testing.assert_allclose(g["layers"][1].w, 2 * 2 * X * 1.5)
    np.testing.assert_allclose(g["layers"][1].b, np.sum(4 * X**2))
    np.testing.assert_allclose(g["p"].x, np.ones(4))
    assert g["p"].y == (X.sum(), None)
    y, dy = jvp(loss, (tree,), (tree,))
    np.testing.assert_allclose(y, loss(tree))
    directional = (loss_at(loss, tree, 1e-6) - loss_at(loss, tree, -1e-6)) / 2e-6
    np.testing.assert_allclose(dy, directional, rtol=1e-7)


def loss_at(loss, tree, e):
    leaves, rebuild = adarray.transforms.tree.flatten(tree)
    return loss(rebuild([(1 + e) * x for x in leaves]))


def test_argnums():
    def h(a, b, c):
        return np.sum(a * b) * c

    ga, gc = grad(h, argnums=(0, -1))(X, 2 * X, 3.0)
    np.testing.assert_allclose(ga, 6 * X)
    assert gc == np.sum(2 * X * X)
    assert isinstance(grad(h, argnums=[1])(X, X, 1.0), tuple)


def test_has_aux_and_keyword_arguments():
    def h(x, *, scale):
        y = x * scale
        return np.sum(y), {"y": y, "text": "kept"}

    (value, aux), g = value_and_grad(h, has_aux=True)(X, scale=2.0)
    assert type(aux["y"]) is np.ndarray
    np.testing.assert_allclose(aux["y"], 2 * X)
    assert aux["text"] == "kept"
    g2, aux2 = grad(h, has_aux=True)(X, scale=2.0)
    np.testing.assert_array_equal(g, g2)
    y, pullback, aux3 = vjp(lambda x: h(x, scale=2.0), X, has_aux=True)
    assert y == value
    np.testing.assert_array_equal(pullback(1.0)[0], g)
    assert aux3["text"] == aux2["text"] == "kept"


def test_unused_input_has_zero_gradient():
    ga, gb = grad(lambda a, b: np.sum(a), argnums=(0, 1))(X, 3.0)
    np.testing.assert_array_equal(ga, np.ones(4))
    assert gb == 0.0
    np.testing.assert_array_equal(grad(lambda x: 1.0)(X), np.zeros(4))
    y, dy = jvp(lambda x: np.ones(3), (X,), (X,))
    np.testing.assert_array_equal(dy, np.zeros(3))
    np.testing.assert_array_equal(y, np.ones(3))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("constant", [np.ones(3), np.ones(3)[0], adarray.array(np.ones(3))])
def test_jvp_of_a_constant_result_has_its_dtype(constant: Any, dtype: str) -> None:
    c = constant.astype(dtype)
    y, dy = jvp(lambda x: (c, c + 0 * x), (1.0,), (1.0,))
    assert [np.asarray(t).dtype for t in dy] == [np.asarray(v).dtype for v in y]
    assert np.asarray(dy[0]).dtype == dtype
    assert not np.any(dy[0])


@pytest.mark.parametrize("constant", [3, True, np.arange(3), adarray.array(np.arange(3))])
def test_jvp_of_an_integer_result_is_zero_in_float64(constant: Any) -> None:
    y, dy = jvp(lambda x: constant, (1.0,), (1.0,))
    np.testing.assert_array_equal(y, constant)
    assert np.asarray(dy).dtype == "float64"
    assert np.shape(dy) == np.shape(constant)
    assert not np.any(dy)


def test_nesting_does_not_confuse_perturbations():
    assert grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0) == 1.0
    assert jvp(lambda x: x * jvp(lambda y: x + y, (1.0,), (1.0,))[1], (1.0,), (1.0,))[1] == 1.0
    assert grad(lambda x: x * jvp(lambda y: x * y, (2.0,), (1.0,))[1])(3.0) == 6.0
    assert jvp(lambda x: x * grad(lambda y: x * y)(2.0), (3.0,), (1.0,))[1] == 6.0
    assert grad(lambda x: grad(lambda y: x * y**2)(x))(3.0) == 12.0


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order_by_all_mixtures(order):
    def by_grad(f):
        return grad(f)

    def by_jvp(f):
        return lambda x: jvp(f, (x,), (1.0,))[1]

    x = 0.7
    expected = {1: np.cos, 2: lambda v: -np.sin(v), 3: lambda v: -np.cos(v), 4: np.sin}[order](x)
    for mixture in range(2**order):
        g = np.sin
        for k in range(order):
            g = (by_grad, by_jvp)[mixture >> k & 1](g)
        np.testing.assert_allclose(float(g(x)), expected, rtol=1e-14)


def test_second_order_through_saved_results():
    # exp saves its result, divide both, max compares: forward over reverse must see tangents.
    def h(x):
        e = np.exp(x - np.max(x))
        p = e / np.sum(e)
        return np.sum(np.log(p) * p) + np.prod(np.tanh(x))

    forward = jacobian(grad(h), mode="forward")(X)
    reverse = jacobian(grad(h), mode="reverse")(X)
    np.testing.assert_allclose(forward, reverse, atol=1e-13)
    check_grads(h, (X,), order=3)


def test_jacobian_shapes_and_modes():
    def h(x):
        return np.outer(x, x)[:, :2]

    for mode in ("auto", "forward", "reverse"):
        j = jacobian(h, mode=mode)(X)
        assert j.shape == (4, 2, 4)
        for k in range(4):
            np.testing.assert_allclose(j[..., k], jvp(h, (X,), (np.eye(4)[k],))[1])
    tree = jacobian(lambda t: {"s": np.sum(t[0]) * t[1], "v": t[0] * t[1]})((X, 2.0))
    assert tree["v"][0].shape == (4, 4)
    assert tree["v"][1].shape == (4,)
    assert np.shape(tree["s"][1]) == ()
    empty = jacobian(lambda x: x[:0])(X)
    assert empty.shape == (0, 4)
    a, b = jacobian(lambda a, b: a * b, argnums=(0, 1))(X, X)
    np.testing.assert_allclose(a, np.diag(X))
    np.testing.assert_allclose(b, np.diag(X))


def test_hessian():
    a = np.random.default_rng(0).normal(size=(4, 4))
    np.testing.assert_allclose(hessian(lambda x: x @ a @ x)(X), a + a.T)
    h = hessian(lambda t: np.sum(t["a"] ** 2 * t["b"]))({"a": X, "b": 2.0})
    np.testing.assert_allclose(h["a"]["a"], np.diag(np.full(4, 4.0)))
    np.testing.assert_allclose(h["a"]["b"], 2 * X)
    assert h["b"]["b"] == 0.0


def test_vjp_pullback_many_times_and_traced():
    y, pullback = vjp(np.sin, X)
    for v in np.eye(4):
        np.testing.assert_allclose(pullback(v)[0], v * np.cos(X))
    g = grad(lambda v: np.sum(pullback(v)[0] ** 2))(np.ones(4))
    np.testing.assert_allclose(g, 2 * np.cos(X) ** 2)
    dy = jvp(lambda v: pullback(v)[0], (np.ones(4),), (X,))[1]
    np.testing.assert_allclose(dy, X * np.cos(X))
    np.testing.assert_array_equal(y, np.sin(X))


def test_pullback_of_several_results():
    y, pullback = vjp(lambda a, b: (a * b, {"s": np.sum(a)}), X, 2.0)
    ga, gb = pullback((np.ones(4), {"s": 3.0}))
    np.testing.assert_allclose(ga, 2 * np.ones(4) + 3)
    np.testing.assert_allclose(gb, X.sum())
    np.testing.assert_allclose(y[0], 2 * X)


def test_names_and_docs_of_transformed_functions():
    assert grad(f).__name__ == "grad(f)"
    assert grad(np.sin)(0.0) == 1.0


def test_exceptions_leave_no_trace_behind():
    def broken(x):
        raise RuntimeError("user error")

    big = np.ones(50_000)

    def broken_late(x):
        np.sum(x * big)
        raise RuntimeError("user error")

    for g in (grad(broken), grad(broken_late)):
        with pytest.raises(RuntimeError, match="user error"):
            g(np.ones(50_000))
    assert adarray.core.trace.LEVEL.get() == 0
    assert big.flags.writeable
    assert grad(f)(X).shape == (4,)


def test_a_gradient_of_a_gradient_with_a_traced_closure() -> None:
    """Nodes of the inner traces alone are freed by the inner walks; the outer one passes them."""
    x0, a0 = np.array([0.3, 0.2]), np.array([1.0, 2.0])

    def f(a: Any) -> Any:
        def slope(x: Any) -> Any:
            return adarray.grad(lambda y: np.sum((y - a) ** 4))(x)

        return np.sum(adarray.grad(lambda x: np.sum(slope(x) ** 2))(x0))

    np.testing.assert_allclose(adarray.grad(f)(a0), -480 * (x0 - a0) ** 4)


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_results_for_adarrays_are_not_traced_any_more(shape):
    """The trace is closed: what comes back converts freely, and still mirrors its inputs."""
    x = adarray.array(np.ones(shape))
    value, slope = adarray.value_and_grad(lambda x: np.sum(x * x))(x)
    y, pullback = adarray.vjp(np.sin, x)
    p, t = adarray.jvp(np.sin, (x,), (x,))
    for actual in (value, slope, y, p, t):
        assert isinstance(actual, adarray.ADArray)
        assert not actual.requires_grad
    assert float(value) == x.size
    (g,) = pullback(y)
    np.testing.assert_allclose(np.asarray(g), np.cos(1.0) * np.sin(1.0))
    y[...] = 0.0  # the pullback keeps what it needs
    (again,) = pullback(np.ones(shape))
    np.testing.assert_allclose(np.asarray(again), np.cos(1.0))


def test_results_for_adarrays_are_seen_by_an_outer_trace():
    def f(x):
        value, slope = adarray.value_and_grad(lambda x: np.sum(x**3))(x)
        return np.sum(slope) + value

    x = adarray.array(np.array([1.0, 2.0]))
    np.testing.assert_allclose(np.asarray(adarray.grad(f)(x)), [9.0, 24.0])


WHOLE = [lambda x: x > 0, lambda x: np.sum(x > 0), lambda x: np.argmax(np.atleast_1d(x))]


@pytest.mark.parametrize("f", WHOLE)
def test_integers_and_truth_values_have_no_derivative(f: Any) -> None:
    """A derivative of 0 was returned. `vjp` takes any results: cotangents of these do not count."""
    y, pullback = adarray.vjp(f, 1.0)
    assert pullback(np.ones_like(y))[0] == 0.0
    g = adarray.grad
    cases = [g(f), adarray.value_and_grad(f), adarray.jacobian(f), adarray.hessian(f)]
    cases += [g(g(f)), adarray.jit(g(f)), g(lambda x: x * g(f)(x)), g(f, intercept=True)]
    cases += [adarray.jacobian(f, mode=mode) for mode in ("forward", "reverse")]
    for transformed in cases:
        with pytest.raises(adarray.DTypeError, match="which has no derivative; return floating"):
            transformed(1.0)


def test_integers_beside_floating_point_are_results() -> None:
    y, pullback = adarray.vjp(lambda x: (x * 2.0, x > 0), np.array([1.0, -1.0]))
    np.testing.assert_array_equal(y[1], [True, False])
    np.testing.assert_array_equal(pullback((np.ones(2), np.zeros(2)))[0], [2.0, 2.0])


def test_text_in_a_dataclass_stays() -> None:
    @dataclasses.dataclass
    class Fit:
        slope: float
        name: str
        bias: np.ndarray
        centred: bool = True

    def f(p):
        return p.slope * np.sum(p.bias**2) * len(p.name) * (2.0 if p.centred else 1.0)

    g = adarray.grad(f)(Fit(0.5, "abc", np.array([1.0, 2.0])))
    assert (g.slope, g.name, g.centred) == (30.0, "abc", True)
    np.testing.assert_array_equal(g.bias, [6.0, 12.0])
    assert adarray.grad(lambda p: p["slope"])({"slope": 1.0, "name": "abc"}) == {
        "slope": 1.0, "name": None,
    }  # fmt: skip
