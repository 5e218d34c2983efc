"""jit around transforms, transforms around jit, jit in jit; trees, argnums, has_aux."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from transformed import INPUTS, TRANSFORMS, M, V, X, f, g

import adarray
from adarray.testing._ops import use_all_sizes
from adarray.transforms.tree import flatten


def compare(got: Any, expected: Any, rtol: float = 1e-12) -> None:
    a, b = flatten(got)[0], flatten(expected)[0]
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        assert np.asarray(x).dtype == np.asarray(y).dtype
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def same_under_jit(function: Callable[..., Any], inputs: Any, backend: str) -> Any:
    """Call `function` under jit on several inputs, and compare with eager calls."""
    with use_all_sizes(backend):
        jitted = adarray.jit(function)
        for args in inputs:
            args = args if isinstance(args, tuple) else (args,)
            compare(jitted(*args), function(*args))
    return jitted


@pytest.mark.slow
@pytest.mark.checked
@pytest.mark.parametrize("name", TRANSFORMS)
def test_jit_of_a_transform(name: str, backend: str) -> None:
    same_under_jit(TRANSFORMS[name](), INPUTS, backend)


@pytest.mark.parametrize("name", ["grad", "value_and_grad", "hessian", "jacobian"])
def test_a_transform_of_jit(name: str, backend: str) -> None:
    transform = getattr(adarray, name)
    function = g if name == "jacobian" else f
    with use_all_sizes(backend):
        transformed = transform(adarray.jit(function))
        for x in INPUTS:
            compare(transformed(x), transform(function)(x))


def test_forward_mode_through_jit(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(g)
        for x in INPUTS:
            compare(adarray.jvp(jitted, (x,), (V,)), adarray.jvp(g, (x,), (V,)))
            compare(adarray.vjp(jitted, x)[1](np.ones(4)), adarray.vjp(g, x)[1](np.ones(4)))


def test_backward_through_jit(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(f)
        for x in INPUTS:
            a, b = adarray.array(x, requires_grad=True), adarray.array(x, requires_grad=True)
            jitted(a).backward()
            f(b).backward()
            compare(np.asarray(a.grad), np.asarray(b.grad))


def test_jit_in_jit(backend: str) -> None:
    inner = adarray.jit(g)

    @adarray.jit
    def middle(x: Any) -> Any:
        return np.sum(inner(x) ** 2) + inner(x * 0.5)[0]

    def plain(x: Any) -> Any:
        return np.sum(g(x) ** 2) + g(x * 0.5)[0]

    with use_all_sizes(backend):
        outer = adarray.jit(adarray.value_and_grad(middle))
        for x in INPUTS:
            compare(middle(x), plain(x))
            compare(outer(x), adarray.value_and_grad(plain)(x))


def test_grad_of_jit_of_grad(backend: str) -> None:
    def third(h: Any) -> Any:
        return adarray.grad(lambda x: np.sum(h(x) * V))

    with use_all_sizes(backend):
        jitted = third(adarray.jit(adarray.grad(f)))
        for x in INPUTS:
            compare(jitted(x), third(adarray.grad(f))(x))


# -- arguments and results ---------------------------------------------------------------------

Layer = namedtuple("Layer", "w b")


def network(params: dict[str, Any], x: Any, scale: float = 1.0) -> Any:
    h = x
    for layer in params["layers"]:
        h = np.tanh(h @ layer.w + layer.b)
    return np.mean(h**2) * scale + params["shift"]


def _params(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    layers = [Layer(rng.normal(size=(n, m)), rng.normal(size=m)) for n, m in ((5, 7), (7, 3))]
    return {"layers": layers, "shift": float(rng.normal())}


def test_trees_of_arguments(backend: str) -> None:
    inputs = [(_params(k % 3), M * (1 + 0.1 * k)) for k in range(6)]
    same_under_jit(adarray.value_and_grad(network), inputs, backend)


def test_keyword_arguments_and_defaults(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(network)
        for k in range(5):
            compare(jitted(_params(k), M), network(_params(k), M))
            compare(jitted(_params(k), x=M, scale=0.5 + k), network(_params(k), x=M, scale=0.5 + k))


@pytest.mark.parametrize("argnums", [0, 1, (0, 1), (1, 0)])
def test_argnums(argnums: Any, backend: str) -> None:
    def loss(x: Any, y: Any) -> Any:
        return np.sum(x * y + np.cos(y)) ** 2

    inputs = [(x, V * (k + 1)) for k, x in enumerate(INPUTS)]
    same_under_jit(adarray.value_and_grad(loss, argnums=argnums), inputs, backend)


def test_has_aux(backend: str) -> None:
    def loss(x: Any) -> Any:
        y = np.sin(x)
        return np.sum(y**2), {"y": y, "name": "sine", "n": 3, "mean": np.mean(y)}

    with use_all_sizes(backend):
        expected = adarray.value_and_grad(loss, has_aux=True)
        jitted = adarray.jit(expected)
        for x in INPUTS:
            (value, aux), gradient = jitted(x)
            (value2, aux2), gradient2 = expected(x)
            assert aux["name"] == "sine"
            assert aux["n"] == 3
            compare((value, aux["y"], aux["mean"], gradient),
                    (value2, aux2["y"], aux2["mean"], gradient2))  # fmt: skip


def test_results_of_every_shape(backend: str) -> None:
    def many(x: Any) -> Any:
        return {"a": [x, (x * 2, None)], "b": x.sum(), "c": (), "d": 1.5, "e": x[:0], "f": x}

    with use_all_sizes(backend):
        jitted = adarray.jit(many)
        for x in INPUTS:
            got, expected = jitted(x), many(x)
            assert got["a"][1][1] is None
            assert got["c"] == ()
            assert got["d"] == 1.5
            for key in ("b", "e", "f"):
                np.testing.assert_allclose(got[key], expected[key])
            np.testing.assert_array_equal(got["a"][1][0], 2 * x)
            assert got["a"][0] is x
            assert got["f"] is x


def test_adarrays_in_adarrays_out(backend: str) -> None:
    with use_all_sizes(backend):
        jitted = adarray.jit(g)
        for x in INPUTS:
            out = jitted(adarray.array(x))
            assert isinstance(out, adarray.ADArray)
            compare(out.numpy(), g(x))


def test_python_numbers_stay_weak(backend: str) -> None:
    x32 = X.astype(np.float32)

    def scaled(x: Any, a: Any) -> Any:
        return x * a + a / 3

    with use_all_sizes(backend):
        jitted = adarray.jit(scaled)
        for a in (0.1, 0.2, -1.7, 0.1, 2, 3, 4, 5):
            got = jitted(x32, a)
            assert got.dtype == np.float32
            np.testing.assert_array_equal(got, scaled(adarray.array(x32), a).numpy())
        for a in (np.float64(0.1), np.float64(0.7), np.float64(0.9), np.float64(0.3)):
            got = jitted(x32, a)
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, scaled(x32, a), rtol=1e-15)


def test_a_method_and_an_attribute_that_changes(backend: str) -> None:
    class Model:
        def __init__(self) -> None:
            self.w = V.copy()
            self.rate = 0.5

        @adarray.jit
        def value(self, x: Any) -> Any:
            return np.sum(self.w * x) * self.rate

    model = Model()
    with use_all_sizes(backend):
        for k in range(8):
            np.testing.assert_allclose(model.value(X), np.sum(model.w * X) * model.rate, rtol=1e-14)
            if k % 2:
                model.w = model.w + 1.0
            else:
                model.w[0] += 1.0
                model.rate *= 1.5


def test_exceptions_come_through(backend: str) -> None:
    def picky(x: Any) -> Any:
        if np.min(x) < -1.0:
            raise ValueError("picky: too small")
        return np.sum(x)

    with use_all_sizes(backend):
        jitted = adarray.jit(picky)
        for k in range(3):
            assert jitted(X + 1) == pytest.approx(np.sum(X + 1))
            with pytest.raises(ValueError, match="too small"):
                jitted(X - 1 - k)
        assert jitted(X + 2) == pytest.approx(np.sum(X + 2))
