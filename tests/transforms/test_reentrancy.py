"""Transforms in threads, in generators, in each other's rules; and errors leave nothing behind."""

from __future__ import annotations

import contextvars
import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.ad.reverse import WALK
from adarray.base.levels import FORWARD, LEVEL, OPEN
from adarray.base.runtime import MODE
from adarray.base.scope import SCOPE

W = np.random.default_rng(0).normal(size=(3, 3)) / 2
X = np.array([0.3, -0.7, 1.1])
V = np.array([1.0, 0.5, -0.2])


class StopError(Exception):
    """What the functions raise, if they are told to."""


class Ticks(threading.local):
    """How often functions ran in this thread, and when they raise."""

    count, last = 0, 0


TICKS = Ticks()


def tick(x: Any) -> Any:
    TICKS.count += 1
    if TICKS.count == TICKS.last:
        raise StopError
    return x


def scale(x: Any) -> Any:
    return np.tanh(W @ tick(x)) * x[0]


@adarray.custom_jvp
def with_jvp(x: Any) -> Any:
    return scale(x)


@with_jvp.defjvp
def _with_jvp(primals: Any, tangents: Any) -> Any:
    return adarray.jvp(scale, primals, tangents)  # forward mode in a rule


@adarray.custom_vjp
def with_vjp(x: Any) -> Any:
    return scale(x)


with_vjp.defvjp(lambda x: (scale(x), x), lambda x, g: (adarray.vjp(scale, x)[1](g)[0],))


def solved(x: Any) -> Any:
    by = lambda matvec, b: np.linalg.solve(np.stack([matvec(e) for e in np.eye(3)], 1), b)  # noqa: E731
    a = W + 3.0 * np.eye(3)
    return adarray.custom_linear_solve(lambda y: a @ y * x[1], scale(x), by, by)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "plain": (scale, scale),
    "checkpoint": (adarray.checkpoint(scale), scale),
    "captured": (lambda x: adarray.checkpoint(lambda y: tick(y) * x[0])(np.tanh(W @ x)), scale),
    "loop": (
        lambda x: adarray.checkpointed_loop(lambda y: np.sin(tick(y)) * x[0], x, 7, 2),
        lambda x: repeated(lambda y: np.sin(y) * x[0], x, 7),
    ),
    "disk": (
        lambda x: adarray.checkpointed_loop(scale, x, 9, 1, disk=2),
        lambda x: repeated(scale, x, 9),
    ),
    "custom_jvp": (with_jvp, scale),
    "custom_vjp": (with_vjp, scale),
    "solve": (solved, lambda x: np.linalg.solve((W + 3.0 * np.eye(3)) * x[1], scale(x))),
    "gradient": (  # a gradient in the function
        lambda x: adarray.grad(lambda y: np.sum(scale(y) * x))(x),
        lambda x: adarray.vjp(scale, x)[1](x)[0],
    ),
}


def repeated(step: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = step(x)
    return x


def loss(f: Any) -> Any:
    return lambda x: np.sum(f(x) ** 2)


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "grad": lambda f, x: adarray.grad(loss(f))(x),
    "jvp": lambda f, x: adarray.jvp(f, (x,), (V,))[1],
    "hvp": lambda f, x: adarray.hvp(loss(f))(x, V),
    "jacrev": lambda f, x: adarray.jacrev(f)(x),
    "make_hvp": lambda f, x: adarray.make_hvp(loss(f))(x)[0](V),
}


def state() -> Any:
    """Return all that a transform changes while it runs."""
    return (
        MODE.get(), SCOPE.get(), LEVEL.get(), WALK.get(), dict(OPEN), set(FORWARD),
        gc.get_threshold(), np.geterr(),
    )  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = state()
    yield
    assert state() == before


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


CASES = [
    (f, t) for f in FUNCTIONS for t in TRANSFORMS if not (f == "custom_vjp" and t == "jvp")
]  # fmt: skip


def check(name: str, transform: str, x: Any) -> None:
    mine, plain = FUNCTIONS[name]
    close(TRANSFORMS[transform](mine, x), TRANSFORMS[transform](plain, x))


@pytest.mark.parametrize(("name", "transform"), CASES)
def test_alone(name: str, transform: str) -> None:
    check(name, transform, X)


@pytest.mark.parametrize("backend_name", [pytest.param("numpy", marks=pytest.mark.slow), "serial"])
def test_threads_run_different_transforms(backend_name: str) -> None:
    if backend_name not in adarray.backends():
        pytest.skip("not there")
    barrier = threading.Barrier(8)

    def work(k: int) -> None:
        barrier.wait()
        with adarray.use(backend_name):
            for n, (name, transform) in enumerate(CASES):
                name, transform = CASES[(n * 7 + k * 5) % len(CASES)]
                check(name, transform, X + 0.1 * k)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_threads_share_one_pullback() -> None:
    for name, (mine, plain) in FUNCTIONS.items():
        _, pullback = adarray.vjp(mine, X)
        _, expected = adarray.vjp(plain, X)
        barrier = threading.Barrier(6)

        def work(k: int, name: str = name, barrier: Any = barrier, pull: Any = pullback) -> Any:
            barrier.wait()
            return [pull(V * (k + i))[0] for i in range(5)]

        with ThreadPoolExecutor(6) as pool:
            actual = list(pool.map(work, range(6)))
        for k, rows in enumerate(actual):
            for i, row in enumerate(rows):
                close(row, expected(V * (k + i))[0])


def test_threads_inside_of_a_transform() -> None:
    def f(x: Any) -> Any:
        contexts = [contextvars.copy_context() for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            parts = [
                pool.submit(c.run, FUNCTIONS[name][0], x)
                for c, name in zip(
                    contexts, ("checkpoint", "loop", "custom_jvp", "solve"), strict=True
                )
            ]
            return sum(p.result() for p in parts)

    def plain(x: Any) -> Any:
        return sum(FUNCTIONS[name][1](x) for name in ("checkpoint", "loop", "custom_jvp", "solve"))

    close(adarray.grad(loss(f))(X), adarray.grad(loss(plain))(X))


@pytest.mark.parametrize("name", [n for n in FUNCTIONS if n != "plain"])
@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_errors_at_each_place_leave_nothing_behind(name: str, transform: str) -> None:
    """The function raises when it runs for the first time, for the second and so on."""
    if (name, transform) not in CASES:
        return
    before = state()
    for last in range(1, 200):
        TICKS.count, TICKS.last = 0, last
        try:
            TRANSFORMS[transform](FUNCTIONS[name][0], X)
            break
        except StopError:
            assert state() == before
        finally:
            TICKS.last = 0
    assert 1 < last < 199
    check(name, transform, X)


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_generators_that_are_suspended(name: str) -> None:
    """Inside of a transform, between transforms, and left before they end."""
    mine, plain = FUNCTIONS[name]

    def values(x: Any) -> Iterator[Any]:
        for k in range(4):
            yield mine(x * (k + 1.0))

    def f(x: Any) -> Any:
        generator = values(x)
        total = next(generator)
        inner = adarray.grad(loss(plain))(x)  # while it is suspended
        total = total + next(generator) * inner
        generator.close()
        return total

    def expected(x: Any) -> Any:
        return plain(x) + plain(x * 2.0) * adarray.grad(loss(plain))(x)

    close(adarray.grad(loss(f))(X), adarray.grad(loss(expected))(X))

    def gradients() -> Iterator[Any]:
        for k in range(3):
            yield adarray.grad(loss(mine))(X + k)

    one, other = gradients(), gradients()
    for k in range(3):
        close(next(one), adarray.grad(loss(plain))(X + k))
        close(next(other), adarray.grad(loss(plain))(X + k))


def test_a_transform_that_a_generator_suspends() -> None:
    """A generator holds a pullback, and others take theirs meanwhile."""

    def rows(f: Any, x: Any) -> Iterator[Any]:
        y, pullback = adarray.vjp(f, x)
        for k in range(len(y)):
            yield pullback(np.eye(len(y))[k])[0]

    names = list(FUNCTIONS)
    running = [rows(FUNCTIONS[n][0], X) for n in names]
    results = [[next(r) for r in running] for _ in range(3)]
    for k, n in enumerate(names):
        close(np.stack([row[k] for row in results]), adarray.jacrev(FUNCTIONS[n][1])(X))
