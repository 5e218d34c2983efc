"""`grad(jit(f))`: a compiled call is one operation of the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import adarray

X = np.linspace(0.2, 1.5, 5)


@pytest.fixture(autouse=True)
def engine(backend: str) -> Iterator[None]:
    """Run each test on one backend."""
    with adarray.use(backend):
        yield


def agree(g: Any, plain: Any, *args: Any, rtol: float = 1e-12) -> None:
    """Check nested tuples of arrays."""
    for a, b in zip(flat(g(*args)), flat(plain(*args)), strict=True):
        assert type(a) is type(b)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-14)


def flat(x: Any) -> list[Any]:
    """Return the arrays in nested tuples and lists."""
    return [i for part in x for i in flat(part)] if isinstance(x, (tuple, list)) else [x]


class Calls:
    """A function that counts how often Python runs it."""

    def __init__(self, f: Any) -> None:
        self.f = f
        self.count = 0

    def jitted(self) -> Any:
        """Return it jitted; the count is said to be no state, so that calls which count compile."""
        counts: list[None] = []
        self.count_ = counts
        add = counts.append
        f = self.f

        def counted(*args: Any) -> Any:
            add(None)
            return f(*args)

        return adarray.jit(counted, assume_constant="add")

    @property
    def runs(self) -> int:
        """How often it ran."""
        return len(self.count_)


def layers(x: Any, w: Any, b: Any) -> Any:
    return np.tanh(x @ w + b)


W, B = np.linspace(-1.0, 1.0, 15).reshape(5, 3), np.array([0.1, 0.2, 0.3])


@pytest.mark.unchecked
def test_nothing_runs_in_python_once_it_is_compiled() -> None:
    calls = Calls(layers)
    jf = calls.jitted()
    g = adarray.value_and_grad(lambda w, b: np.sum(jf(X, w, b) ** 2), (0, 1))
    plain = adarray.value_and_grad(lambda w, b: np.sum(layers(X, w, b) ** 2), (0, 1))
    for _ in range(4):
        agree(g, plain, W, B)
    before = calls.runs
    for k in range(4):
        agree(g, plain, W + k, B)
    assert calls.runs == before


@pytest.mark.parametrize("argnums", [0, 1, 2, (0, 2), (0, 1, 2)])
def test_any_arguments(argnums: Any) -> None:
    jf = adarray.jit(layers)
    g = adarray.grad(lambda *a: np.sum(jf(*a)), argnums)
    plain = adarray.grad(lambda *a: np.sum(layers(*a)), argnums)
    for k in range(5):
        agree(g, plain, X + k, W, B)


def test_higher_orders() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x**2)

    jf = adarray.jit(f)
    for transform in (
        adarray.hessian,
        lambda h: adarray.grad(lambda x: np.sum(adarray.grad(h)(x) ** 2)),
        lambda h: adarray.grad(lambda x: adarray.grad(lambda y: adarray.grad(h)(y)[1])(x)[1]),
        lambda h: lambda x: adarray.jvp(adarray.grad(h), (x,), (np.ones(5),)),
        lambda h: adarray.grad(lambda x: adarray.jvp(h, (x,), (np.ones(5),))[1]),
        adarray.jacobian,
    ):
        for _ in range(4):
            agree(transform(jf), transform(f), X)


def test_several_results_and_structures() -> None:
    def f(p: Any, n: int) -> Any:
        y = p["a"] * p["b"][0]
        return {"y": y, "sum": y.sum(), "n": n, "index": np.argmax(y), "text": "t"}

    jf = adarray.jit(f)

    def loss(h: Any) -> Any:
        def of(p: Any) -> Any:
            r = h(p, 3)
            assert r["text"] == "t"
            assert r["n"] == 3
            return np.sum(np.exp(r["y"])) * r["sum"] + r["y"][int(r["index"])]

        return adarray.grad(of)

    for k in range(5):
        p = {"a": X + k, "b": [X * 0.5]}
        got, expected = loss(jf)(p), loss(f)(p)
        np.testing.assert_allclose(got["a"], expected["a"])
        np.testing.assert_allclose(got["b"][0], expected["b"][0])


def test_results_of_which_none_or_some_are_used() -> None:
    def f(x: Any) -> Any:
        return np.sin(x), np.cos(x), np.round(x)

    jf = adarray.jit(f)
    for part in range(3):
        g = adarray.grad(lambda x: np.sum(jf(x)[part]))  # noqa: B023
        plain = adarray.grad(lambda x: np.sum(f(x)[part]))  # noqa: B023
        for _ in range(4):
            agree(g, plain, X)


def test_branches_and_loops() -> None:
    def f(x: Any) -> Any:
        if np.sum(x) > 3.0:
            return np.exp(-x)
        while np.max(x) > 0.3:
            x = x * 0.5
        return x**2

    jf = adarray.jit(f)
    for _ in range(5):
        for scale in (1.0, 5.0, 0.1):
            agree(adarray.grad(lambda x: np.sum(jf(x))), adarray.grad(lambda x: np.sum(f(x))),
                  X * scale)  # fmt: skip


def test_python_numbers() -> None:
    def f(x: Any, k: Any) -> Any:
        return np.sum(x) * k + k * k

    jf = adarray.jit(f)
    for _ in range(4):
        agree(adarray.grad(jf, (0, 1)), adarray.grad(f, (0, 1)), X, 2.0)
        agree(adarray.grad(lambda k: jf(X, k)), adarray.grad(lambda k: f(X, k)), 3.0)
        agree(adarray.grad(jf, 1), adarray.grad(f, 1), X.astype(np.float32), np.float32(2.0),
              rtol=1e-6)  # fmt: skip
    square = adarray.jit(lambda k: k * k)
    for _ in range(4):
        assert adarray.grad(square)(3.0) == 6.0
        assert type(adarray.grad(square)(3.0)) is float


def test_captured_arrays_change_between_the_call_and_its_derivative() -> None:
    for size in (5, 100_000):
        w = np.full(size, 2.0)

        def f(x: Any, w: Any = w) -> Any:
            return np.sum(x * x * w)

        jf = adarray.jit(f)
        x = np.full(size, 3.0)
        for _ in range(4):
            w[:] = 2.0
            y, back = adarray.vjp(jf, x)
            try:
                w[:] = 7.0
            except ValueError:  # a big array is protected until the graph is gone
                assert size > 5
            np.testing.assert_array_equal(back(1.0)[0], np.full(size, 12.0))
            del y, back


def test_captured_numbers_change_between_the_call_and_its_derivative() -> None:
    k = 2.0

    def f(x: Any) -> Any:
        return np.sum(x * x * k)

    jf = adarray.jit(f)
    for i in range(8):
        k = 2.0 + i
        expected = 2.0 * X * k
        _, back = adarray.vjp(jf, X)
        try:
            got = back(1.0)[0]
        except adarray.TraceError:
            continue
        np.testing.assert_allclose(got, expected)


def test_captured_traced_values() -> None:
    def outer(w: Any) -> Any:
        inner = adarray.jit(lambda x: np.sum(x * w))
        return inner(w) + inner(2.0 * w)

    for _ in range(4):
        agree(adarray.grad(outer), lambda w: 6.0 * w, X)


def test_state_that_is_written_under_a_derivative() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        y = x * x
        seen.append(y)
        return np.sum(y)

    jf = adarray.jit(f)

    def loss(x: Any) -> Any:
        return jf(x) + np.sum(seen[-1])

    for i in range(4):
        agree(adarray.grad(loss), lambda x: 4.0 * x, X)
        assert len(seen) == i + 1


def test_writes_into_arguments_under_a_derivative() -> None:
    def f(x: Any) -> Any:
        x[0] = x[1] * 2.0
        return np.sum(x * x)

    def loss(h: Any) -> Any:
        def of(x: Any) -> Any:
            y = x * 1.0
            return h(y) + y[0]

        return adarray.grad(of)

    jf = adarray.jit(f)
    for _ in range(4):
        agree(loss(jf), loss(f), X)


def test_backward_on_leaves() -> None:
    jf = adarray.jit(layers)
    for _ in range(4):
        w, b = adarray.array(W, requires_grad=True), adarray.array(B, requires_grad=True)
        np.sum(jf(X, w, b)).backward()
        v, c = adarray.array(W, requires_grad=True), adarray.array(B, requires_grad=True)
        np.sum(layers(X, v, c)).backward()
        np.testing.assert_allclose(w.grad, v.grad)
        np.testing.assert_allclose(b.grad, c.grad)


def test_operands_are_written_after_the_call() -> None:
    jf = adarray.jit(lambda x: np.sum(np.exp(x)))

    def loss(x: Any) -> Any:
        y = x * 1.0
        r = jf(y)
        y[:] = 0.0
        return r + np.sum(y)

    for _ in range(4):
        agree(adarray.grad(loss), np.exp, X)


@pytest.mark.parametrize("n", [4, 100_000])  # copied when it is saved, and not
def test_a_captured_adarray_is_written_after_the_call(n: int) -> None:
    array = adarray.array(np.full(n, 2.0))
    f = adarray.jit(lambda x: np.sum(np.sin(x) * array * array))
    x = np.ones(n)
    writes = (
        lambda: array.__iadd__(1.0),
        lambda: array.__setitem__(0, 7.0),
        lambda: adarray.jit(lambda y: np.add(y, 1.0, out=y))(array),
    )
    for _ in range(3):  # recorded, and compiled
        for write in writes:
            before = array.numpy().copy()
            _, pull = adarray.vjp(f, x)
            write()
            np.testing.assert_allclose(pull(1.0)[0], np.cos(x) * before**2, rtol=1e-13)
            assert not np.array_equal(array.numpy(), before)


def test_complex_results() -> None:
    def f(z: Any) -> Any:
        return np.exp(z) * 1j

    jf = adarray.jit(f)
    z = X + 1j * X[::-1]
    g = adarray.grad(lambda z: np.sum(np.abs(jf(z)) ** 2))
    plain = adarray.grad(lambda z: np.sum(np.abs(f(z)) ** 2))
    for _ in range(4):
        agree(g, plain, z)


def test_jit_over_jit_over_grad() -> None:
    jf = adarray.jit(layers)
    g = adarray.jit(adarray.grad(lambda w: np.sum(jf(X, w, B))))
    for _ in range(4):
        agree(g, adarray.grad(lambda w: np.sum(layers(X, w, B))), W)
