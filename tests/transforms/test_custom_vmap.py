"""Checkpoints, loops and rules of users under vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray

X = np.linspace(0.1, 1.0, 12).reshape(4, 3)
W = np.eye(3) * 0.5 + 0.1


def step(x: Any) -> Any:
    return np.tanh(W @ x) * np.sum(x)


def looked_at(x: Any) -> Any:
    """Have members go different ways."""
    return step(x) if np.sum(x) > 1.0 else 2.0 * step(x)


def repeated(f: Any, x: Any, n: int) -> Any:
    for _ in range(n):
        x = f(x)
    return x


@adarray.custom_jvp
def by_jvp(x: Any) -> Any:
    return step(x)


by_jvp.defjvp(lambda p, t: adarray.jvp(step, p, t))


@adarray.custom_vjp
def by_vjp(x: Any) -> Any:
    return step(x)


by_vjp.defvjp(lambda x: (step(x), x), lambda x, g: (adarray.vjp(step, x)[1](g)[0],))


@adarray.custom_vjp
def by_looking(x: Any) -> Any:
    return step(x)


def _looking(r: Any, g: Any) -> Any:
    (x,) = r
    return (
        adarray.vjp(step, x)[1](g)[0] if np.sum(x) > 1.0 else adarray.vjp(step, x * 1.0)[1](g)[0],
    )


by_looking.defvjp(lambda x: (step(x), [x]), _looking)


def columns(matvec: Any, b: Any) -> Any:
    return np.linalg.solve(np.stack([matvec(e) for e in np.eye(3)], 1), b)


def solved(x: Any) -> Any:
    a = W * x[0] + np.eye(3)
    return adarray.custom_linear_solve(lambda y: a @ y, x, columns, columns)


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "checkpoint": (adarray.checkpoint(step), step),
    "ways": (adarray.checkpoint(looked_at), looked_at),
    "captured": (
        lambda x: adarray.checkpoint(lambda y: y * x[0])(step(x)),
        lambda x: step(x) * x[0],
    ),
    "captured by a loop": (
        lambda x: adarray.checkpointed_loop(lambda y: np.sin(y) * x[0], x, 5, 2),
        lambda x: repeated(lambda y: np.sin(y) * x[0], x, 5),
    ),
    "loop": (lambda x: adarray.checkpointed_loop(step, x, 5, 2), lambda x: repeated(step, x, 5)),
    "loop of ways": (
        lambda x: adarray.checkpointed_loop(looked_at, x, 4, 2),
        lambda x: repeated(looked_at, x, 4),
    ),
    "sequence": (
        lambda x: adarray.checkpoint_sequential([step] * 4, x), lambda x: repeated(step, x, 4),
    ),
    "custom_jvp": (by_jvp, step),
    "custom_vjp": (by_vjp, step),
    "looking": (by_looking, step),
    "solve": (solved, lambda x: np.linalg.solve(W * x[0] + np.eye(3), x)),
    "black_box": (
        adarray.black_box(lambda x: np.sin(np.asarray(x)), lambda x: np.diag(np.cos(x))), np.sin,
    ),
}  # fmt: skip


def loss(f: Any) -> Any:
    return lambda x: np.sum(f(x) ** 2)


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "value": adarray.vmap,
    "grad inside": lambda f: adarray.vmap(adarray.grad(loss(f))),
    "grad outside": lambda f: adarray.grad(loss(adarray.vmap(f))),
    "hvp inside": lambda f: adarray.vmap(lambda x: adarray.hvp(loss(f))(x, x)),
    "jvp inside": lambda f: adarray.vmap(lambda x: adarray.jvp(f, (x,), (x,))[1]),
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("transform", list(TRANSFORMS))
def test_as_member_by_member(name: str, transform: str) -> None:
    mine, plain = FUNCTIONS[name]
    if transform == "jvp inside" and name in ("custom_vjp", "looking"):
        with pytest.raises(adarray.errors.ForwardModeError, match="none of forward mode"):
            TRANSFORMS[transform](mine)(X)
        return
    by_member = {
        "value": lambda f, x: f(x),
        "grad inside": lambda f, x: adarray.grad(loss(f))(x),
        "grad outside": lambda f, x: adarray.grad(loss(f))(x),
        "hvp inside": lambda f, x: adarray.hvp(loss(f))(x, x),
        "jvp inside": lambda f, x: adarray.jvp(f, (x,), (x,))[1],
    }[transform]
    expected = np.stack([by_member(plain, x) for x in X])
    np.testing.assert_allclose(TRANSFORMS[transform](mine)(X), expected, rtol=1e-9, atol=1e-12)


def test_different_ways_and_captured_values() -> None:
    def f(x: Any) -> Any:
        return adarray.checkpoint(lambda y: y * x[0] if np.sum(y) > 1.0 else y * x[1])(step(x))

    def plain(x: Any) -> Any:
        y = step(x)
        return y * x[0] if np.sum(y) > 1.0 else y * x[1]

    for transform in ("grad inside", "grad outside"):
        expected = np.stack([adarray.grad(loss(plain))(x) for x in X])
        transformed = TRANSFORMS[transform](f)(X)
        np.testing.assert_allclose(transformed, expected, rtol=1e-9)
