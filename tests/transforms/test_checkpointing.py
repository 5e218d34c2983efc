"""checkpoint of functions that capture, and sequences of functions."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.errors import TraceError

RNG = np.random.default_rng(3)
W = RNG.normal(size=(3, 3)) / 2
U = RNG.normal(size=(3, 3)) / 2
X = np.array([0.3, -0.7, 1.1])
V = RNG.normal(size=(3, 3))


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def network(w: Any, wrap: Any = lambda f: f) -> Any:
    """Return a loss of functions that capture the weights, computed or as they are."""
    scale = np.exp(np.sum(w) * 0.1)

    @wrap
    def first(x: Any) -> Any:  # no argument of it is traced
        return np.tanh(w @ x) * scale

    @wrap
    def second(x: Any, y: Any) -> Any:
        y = y.copy()
        y[1] *= w[0, 2]
        inner = wrap(lambda z: np.sin(w.T @ z) + scale * z)
        return {"sum": inner(x + y), "weights": w[0] * 2.0, "text": "kept", "number": 3}

    x = first(X)
    out = second(x, x * w[1])
    assert (out["text"], out["number"]) == ("kept", 3)
    w2 = w * out["sum"]
    return np.sum(wrap(lambda x: np.cos(w2 @ x))(x)) + np.sum(out["weights"] ** 2)


def kept(w: Any) -> Any:
    return network(w, adarray.checkpoint)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_what_is_captured_gets_its_gradient() -> None:
    assert kept(W) == network(W)
    close(adarray.grad(kept)(W), adarray.grad(network)(W))
    _, pullback = adarray.vjp(kept, W)
    for factor in (1.0, 2.0):  # called more than once
        close(pullback(np.asarray(factor))[0], factor * adarray.grad(network)(W))
    w = adarray.array(W, requires_grad=True)
    kept(w).backward()
    close(w.grad, adarray.grad(network)(W))


def test_higher_orders_with_captured_values() -> None:
    h = adarray.hessian(network)(W)
    close(adarray.hessian(kept)(W), h)
    close(adarray.jacrev(adarray.grad(kept))(W), h)
    close(adarray.jacfwd(adarray.jacfwd(kept))(W), h)
    close(adarray.jacrev(adarray.jacfwd(kept))(W), h)
    close(adarray.hvp(kept)(W, V), adarray.hvp(network)(W, V))
    close(adarray.make_hvp(kept)(W)[0](V), adarray.hvp(network)(W, V))
    w = adarray.array(W, requires_grad=True)
    kept(w).backward(create_graph=True)
    g = w.grad
    w.grad = None
    np.sum(g * V).backward()
    close(w.grad, adarray.hvp(network)(W, V))


def third(f: Any) -> Any:
    return adarray.grad(lambda w: np.sum(adarray.hvp(f)(w, V) * np.cos(w)))


def slope(f: Any, x: Any, v: Any) -> Any:
    return adarray.jvp(f, (x,), (v,))[1]


@pytest.mark.parametrize(
    "transform",
    [
        third,
        lambda f: adarray.grad(lambda w: np.sum(adarray.make_hvp(f)(w)[0](V) * V)),
        lambda f: lambda w: adarray.jvp(lambda w: adarray.hvp(f)(w, V), (w,), (V,))[1],
        lambda f: lambda w: adarray.hvp(lambda u: adarray.jvp(f, (u,), (V,))[1])(w, V),
        lambda f: adarray.grad(lambda w: slope(lambda u: slope(f, u, V), w, w)),
    ],
)  # fmt: skip
def test_three_levels(transform: Any) -> None:
    close(transform(kept)(W), transform(network)(W))


def test_captured_at_two_levels() -> None:
    def outer(w: Any, wrap: Any) -> Any:
        def inner(u: Any) -> Any:
            f = wrap(lambda x: np.tanh(w @ x) * np.sin(u @ x))
            return np.sum(f(f(X)) ** 2)

        g = adarray.grad(inner)(U * w[0, 0])
        return np.sum(g * w)

    expected = adarray.grad(lambda w: outer(w, lambda f: f))(W)
    close(adarray.grad(lambda w: outer(w, adarray.checkpoint))(W), expected)
    _, slope = adarray.jvp(lambda w: outer(w, adarray.checkpoint), (W,), (V,))
    close(slope, np.sum(expected * V))


@pytest.mark.slow_on("openmp")
def test_compiled_with_captured_values() -> None:
    for f in (adarray.grad(kept), lambda w: adarray.hvp(kept)(w, V)):
        jitted = adarray.jit(f)
        for k in range(4):
            w = W + 0.1 * k
            close(jitted(w), f(w))
        assert jitted.cache_info().eager == 0


def test_other_captured_values_in_the_second_run_are_refused() -> None:
    calls = []

    def loss(w: Any) -> Any:
        u = np.sin(w)

        @adarray.checkpoint
        def f(x: Any) -> Any:
            calls.append(0)
            return np.sum(x * (w if len(calls) == 1 else u * w / adarray.value_of(u)))

        return f(X[0] * w)

    with pytest.raises(TraceError, match="read other traced values when it ran again"):
        adarray.grad(loss)(W)


@pytest.mark.slow_on("openmp")
@pytest.mark.usefixtures("_host_memory")
def test_forward_over_reverse_saves_memory() -> None:
    n, size = 256, 2_000

    def step(x: Any) -> Any:
        return np.sin(x) * 1.01

    def segment(x: Any) -> Any:
        for _ in range(16):
            x = step(x)
        return x

    def whole(x: Any, run: Any) -> Any:
        for _ in range(n // 16):
            x = run(x)
        return np.sum(x)

    x = np.linspace(0.1, 1.0, size)
    v = np.cos(x)
    peaks, results = [], []
    for run in (adarray.checkpoint(segment), segment):
        tracemalloc.start()
        results.append(adarray.hvp(lambda x, run=run: whole(x, run))(x, v))
        peaks.append(tracemalloc.get_traced_memory()[1] / x.nbytes)
        tracemalloc.stop()
    close(results[0], results[1])
    assert peaks[0] < peaks[1] / 4


def test_sequences() -> None:
    functions = [np.sin, lambda x: {"a": x, "b": W @ x}, lambda t: t["a"] * t["b"], np.tanh, np.exp]
    runs = []

    def counted(f: Any) -> Any:
        return lambda x: (runs.append(0), f(x))[1]

    def plain(x: Any) -> Any:
        for f in functions:
            x = f(x)
        return np.sum(x)

    expected = adarray.grad(plain)(X)
    for segments, count in ((1, 5), (2, 8), (3, 9), (5, 9), (9, 9), ("sqrt", 8)):
        runs.clear()
        g = adarray.grad(
            lambda x, s=segments: np.sum(
                adarray.checkpoint_sequential([counted(f) for f in functions], x, s)
            )
        )(X)
        close(g, expected)
        assert len(runs) == count
    assert adarray.checkpoint_sequential([], 3.0) == 3.0
    with pytest.raises(ValueError, match="segments is 0; pass a number of at least 1, or 'sqrt'"):
        adarray.checkpoint_sequential(functions, X, 0)
    with pytest.raises(TypeError, match="checkpoint_sequential: expected a function"):
        adarray.checkpoint_sequential([3.0], X)  # type: ignore[list-item]
    weights = [W, U, W + U, W - U]

    def deep(ws: Any) -> Any:
        layers = [lambda x, w=w: np.tanh(w @ x) for w in ws]
        return np.sum(adarray.checkpoint_sequential(layers, X))

    def flat(ws: Any) -> Any:
        x = X
        for w in ws:
            x = np.tanh(w @ x)
        return np.sum(x)

    for a, b in zip(adarray.grad(deep)(weights), adarray.grad(flat)(weights), strict=True):
        close(a, b)
    jitted = adarray.jit(adarray.grad(deep))
    for _ in range(3):
        close(jitted(weights)[1], adarray.grad(flat)(weights)[1])
