"""checkpoint and custom_vjp: calls that are one operation each."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from random_programs import seeded

import adarray
from adarray.errors import ForwardModeError, ShapeError, TraceError

W = np.random.default_rng(0).normal(size=(3, 3))
V = np.linspace(-1.0, 1.0, 9).reshape(3, 3)
X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def layer(x: Any, w: Any) -> Any:
    y = np.sin(x @ w)
    y[0] *= 0.5
    return np.tanh(y)


kept_layer = adarray.checkpoint(layer)


def network(w: Any, step: Any = layer) -> Any:
    x = np.ones(3)
    for _ in range(3):
        x = step(x, w)
    return np.sum(x**2)


def kept(w: Any) -> Any:
    return network(w, kept_layer)


def test_derivatives_of_every_order_are_those_of_the_function() -> None:
    np.testing.assert_allclose(adarray.grad(kept)(W), adarray.grad(network)(W), rtol=1e-12)
    h = adarray.hessian(network)(W)
    np.testing.assert_allclose(adarray.hessian(kept)(W), h, rtol=1e-10, atol=1e-14)
    back = adarray.jacrev(adarray.grad(kept))(W)
    np.testing.assert_allclose(back, h, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(
        adarray.jvp(kept, (W,), (V,))[1], np.sum(adarray.grad(network)(W) * V), rtol=1e-12
    )
    third = adarray.grad(lambda w: np.sum(adarray.make_hvp(kept)(w)[0](V) * V))(W)
    expected = adarray.grad(lambda w: np.sum(adarray.hvp(network)(w, V) * V))(W)
    np.testing.assert_allclose(third, expected, rtol=1e-9, atol=1e-13)


def test_compiled() -> None:
    jitted = adarray.jit(adarray.grad(kept))
    for i in range(4):
        w = W + 0.1 * i
        np.testing.assert_allclose(jitted(w), adarray.grad(network)(w), rtol=1e-10)
    assert jitted.cache_info().eager == 0


def test_compiled_code_sees_what_the_functions_capture() -> None:
    scale = np.array([1.0, 2.0, 3.0])
    doubled = adarray.custom_vjp(lambda x: x * scale)
    doubled.defvjp(lambda x: (x * scale, None), lambda r, g: (2.0 * g * scale,))
    for f, factor in ((adarray.checkpoint(lambda x: x * scale), 1.0), (doubled, 2.0)):
        jitted = adarray.jit(adarray.grad(lambda x, f=f: np.sum(f(x) * x)))
        for k in range(5):
            scale[0] = k
            np.testing.assert_allclose(jitted(X), (1.0 + factor) * scale * X)
        assert jitted.cache_info().eager == 0


def test_nests_numbers_and_several_results() -> None:
    @adarray.checkpoint
    def f(p: Any, n: int, *, unused: Any = None) -> Any:
        return {"a": p["x"] * p["s"], "n": n, "b": np.sum(p["x"]) * n}

    def loss(p: Any) -> Any:
        r = f(p, 2)
        assert r["n"] == 2
        return np.sum(r["a"] ** 2) + r["b"]

    g = adarray.grad(loss)({"x": X, "s": 0.5})
    np.testing.assert_allclose(g["x"], 2 * X * 0.25 + 2.0)
    assert g["s"] == pytest.approx(np.sum(2 * X**2 * 0.5))
    assert type(g["s"]) is float
    np.testing.assert_array_equal(f({"x": X, "s": 0.5}, 3)["b"], 18.0)  # nothing is traced
    assert adarray.grad(lambda x: f(p={"x": x, "s": 1.0}, n=3)["b"])(X).tolist() == [3.0] * 3


@pytest.mark.usefixtures("_host_memory")
def test_a_loop_holds_the_square_root_of_its_states() -> None:
    n, size = 1024, 2_000
    root = 32

    def step(x: Any) -> Any:
        return np.sin(x) * 1.01

    @adarray.checkpoint
    def segment(x: Any) -> Any:
        for _ in range(n // root):
            x = step(x)
        return x

    def whole(x: Any) -> Any:
        for _ in range(n):
            x = step(x)
        return np.sum(x)

    def pieces(x: Any) -> Any:
        for _ in range(root):
            x = segment(x)
        return np.sum(x)

    x = np.linspace(0.1, 1.0, size)
    np.testing.assert_allclose(adarray.grad(pieces)(x), adarray.grad(whole)(x), rtol=1e-12)
    peaks = []
    for f in (pieces, whole):
        tracemalloc.start()
        adarray.grad(f)(x)
        peaks.append(tracemalloc.get_traced_memory()[1] / x.nbytes)
        tracemalloc.stop()
    assert peaks[1] > n  # one value of each step at least
    assert peaks[0] < 6 * root  # two values of each step of a segment, one of each segment


def test_what_checkpoint_cannot_see_is_refused() -> None:
    @adarray.checkpoint
    def writes(x: Any) -> Any:
        x[0] = 0.0
        return np.sum(x)

    with pytest.raises(TraceError, match="writes into an argument"):
        adarray.grad(lambda x: writes(x * 1.0))(X)
    rng = np.random.default_rng(0)
    noisy = adarray.checkpoint(lambda x: np.sum(x * rng.normal(size=3)))
    with pytest.raises(TraceError, match="computed something else when it ran again"):
        adarray.grad(noisy)(X)
    with pytest.raises(TraceError, match="computed something else when it ran again"):
        adarray.jit(adarray.grad(noisy))(X)


def test_code_that_needs_interception() -> None:
    import math

    @adarray.checkpoint
    def f(x: Any) -> Any:
        y = np.zeros(2)
        y[0] = math.sin(x[0])
        return np.array([y[0], float(x[1]) ** 2])

    g = adarray.grad(lambda x: np.sum(f(x)))(X)
    np.testing.assert_allclose(g, [np.cos(1.0), 4.0, 0.0])


class Model:
    def __init__(self) -> None:
        self.scale = 2.0

    @adarray.checkpoint
    def scaled(self, x: Any) -> Any:
        return np.sin(x) * self.scale


def test_methods() -> None:
    model = Model()
    g = adarray.grad(lambda x: np.sum(model.scaled(x)))(X)
    np.testing.assert_allclose(g, 2.0 * np.cos(X))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    """Gradients through a checkpoint, and tangents by the transpose of pullbacks."""
    program = seeded(seed)
    f, args = program.function("loss"), program.args(0)
    numbers = tuple(range(len(args)))
    value, expected = adarray.value_and_grad(f, numbers)(*args)
    again, gradient = adarray.value_and_grad(adarray.checkpoint(f), numbers)(*args)
    np.testing.assert_array_equal(again, value)
    for a, b in zip(gradient, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    tangents = [np.cos(np.asarray(a) + 1.0)[()] for a in args]
    _, slope = adarray.jvp(f, args, tangents)
    _, tangent_map = adarray.linearize(f, *args)
    scale = sum(np.sum(np.abs(g * t)) for g, t in zip(expected, tangents, strict=True))
    rounding = 1e3 * np.finfo(np.asarray(slope).dtype).eps
    np.testing.assert_allclose(tangent_map(*tangents), slope, rtol=rounding, atol=rounding * scale)


# -- custom_vjp ------------------------------------------------------------------------------------


def plain_logsum(x: Any) -> Any:
    return np.log(np.sum(np.exp(x)))


@adarray.custom_vjp
def logsum(x: Any) -> Any:
    return plain_logsum(x)


def _forward(x: Any) -> Any:
    m = np.max(x)
    e = np.exp(x - m)
    s = np.sum(e)
    return m + np.log(s), e / s


logsum.defvjp(_forward, lambda p, g: (p * g,))


def test_a_rule_of_ones_own() -> None:
    np.testing.assert_allclose(adarray.grad(logsum)(X), adarray.grad(plain_logsum)(X))
    big = np.array([1e3, 1e3])
    np.testing.assert_allclose(adarray.grad(logsum)(big), [0.5, 0.5])  # the plain one overflows
    h = adarray.hessian(plain_logsum)(X)
    np.testing.assert_allclose(adarray.jacrev(adarray.grad(logsum))(X), h, atol=1e-14)
    np.testing.assert_allclose(adarray.hessian(logsum)(X), h, atol=1e-14)
    third = adarray.jacrev(adarray.jacrev(adarray.grad(logsum)))(X)
    expected = adarray.jacobian(adarray.hessian(plain_logsum))(X)
    np.testing.assert_allclose(third, expected, atol=1e-13)
    jitted = adarray.jit(adarray.grad(logsum))
    for i in range(4):
        np.testing.assert_allclose(jitted(X + i), adarray.grad(plain_logsum)(X + i))
    assert jitted.cache_info().eager == 0


def test_nests_and_arguments_without_derivatives() -> None:
    def f(power: Any, p: Any, q: Any) -> Any:
        return {"y": p["a"] ** power * q, "power": power}

    rule = adarray.custom_vjp(f, nondiff_argnums=(0,))
    rule.defvjp(
        lambda power, p, q: (f(power, p, q), (p["a"], q)),
        lambda power, r, g: (
            {"a": 10.0 * power * r[0] ** (power - 1) * r[1] * g["y"]},
            np.sum(r[0] ** power * g["y"]),
        ),
    )  # fmt: skip

    def loss(p: Any, q: Any) -> Any:
        return np.sum(rule(3, p, q)["y"])

    gp, gq = adarray.grad(loss, (0, 1))({"a": X}, 2.0)
    np.testing.assert_allclose(gp["a"], 10.0 * 3 * X**2 * 2.0)  # ten times the derivative
    assert gq == pytest.approx(np.sum(X**3))
    assert adarray.grad(lambda q: np.sum(rule(2, {"a": X}, q)["y"]))(2.0) == pytest.approx(14.0)


def test_mistakes_in_rules_are_named() -> None:
    f = adarray.custom_vjp(lambda x: x * 2.0)
    assert f(3.0) == 6.0
    with pytest.raises(TypeError, match=r"custom_vjp\(<lambda>\): no rule; set it by defvjp"):
        adarray.grad(f)(3.0)
    f.defvjp(lambda x: x * 2.0, lambda r, g: (g,))
    with pytest.raises(TypeError, match=r"fwd returned .* a pair"):
        adarray.grad(f)(3.0)
    f.defvjp(lambda x: (x * 2.0, None), lambda r, g: g)
    with pytest.raises(TypeError, match=r"bwd returned .* a tuple of 1 cotangents"):
        adarray.grad(f)(3.0)
    f.defvjp(lambda x: (x * 2.0, None), lambda r, g: (np.ones(2),))
    with pytest.raises(ShapeError, match=r"has shape \(2,\), and its argument \(3,\)"):
        adarray.grad(lambda x: np.sum(f(x)))(X)
    f.defvjp(lambda x: (x * 2.0, None), lambda r, g: (None,))
    np.testing.assert_array_equal(adarray.grad(lambda x: np.sum(f(x) * x))(X), 2.0 * X)
    with pytest.raises(ForwardModeError, match="rule of reverse mode and none of forward mode"):
        adarray.jvp(f, (X,), (X,))

    def reads(w: Any) -> Any:
        f = adarray.custom_vjp(lambda x: x * w)
        f.defvjp(lambda x: (x * w, None), lambda r, g: (g,))
        return f(3.0 * w)

    with pytest.raises(TraceError, match=r"reads a traced value that is no argument"):
        adarray.grad(reads)(2.0)
    with pytest.raises(TypeError, match="custom_vjp: expected a function"):
        adarray.custom_vjp(3.0)  # type: ignore[arg-type]
