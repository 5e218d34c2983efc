"""What is drawn into an array lies there in the order of its memory, as NumPy's draws do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import MODES, check

import adarray

X = np.arange(6.0).reshape(2, 3) / 6 + 0.25


def rng() -> Any:
    return np.random.Generator(np.random.PCG64(5))


def layouts() -> dict[str, Callable[[], np.ndarray]]:
    """Return functions that make an array of the shape of `X`, by name."""
    return {
        "rows": lambda: np.zeros((2, 3)),
        "columns": lambda: np.zeros((2, 3), order="F"),
        "transpose": lambda: np.zeros((3, 2)).T,
        "strided": lambda: np.zeros((6, 4)).T[::2, ::2],
    }


def into(name: str, **options: Any) -> Callable[[Any, Any], Any]:
    """Return a function that draws into an array, and reads it."""

    def f(x: Any, out: Any) -> Any:
        getattr(rng(), name)(out=out, **options)
        return x * out

    return f


DRAWS = {
    "random": into("random"),
    "normal": into("standard_normal", dtype=np.float64),
    "exponential": into("standard_exponential", method="inv"),
    "gamma": into("standard_gamma", shape=2.0),
    "permuted": lambda x, out: (rng().permuted(x, out=out), out * x)[1],
    "permuted numbers": lambda x, out: (rng().permuted(X * 1, out=out), out * x)[1],
    "permuted rows": lambda x, out: (rng().permuted(x, axis=1, out=out), out * x)[1],
    "shuffle": lambda x, out: (np.copyto(out, x), rng().shuffle(out, axis=1), out * x)[2],
}  # fmt: skip


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("layout", layouts())
def test_draws_into_arrays(draw: str, layout: str) -> None:
    def f(x: Any) -> Any:
        return DRAWS[draw](x, layouts()[layout]())

    try:
        f(X.copy())
    except ValueError:
        for transformed in (adarray.grad(lambda x: np.sum(f(x)), intercept=True), adarray.jit(f)):
            with pytest.raises(ValueError, match="contiguous"):
                transformed(X)
        return
    counts = check(f, (X,), backends=("numpy", "serial"), calls=3)
    # Without interception NumPy's own generator refuses traced values aloud.
    assert counts["right"] >= 2 * (len(MODES) - 1)


def test_shapes_that_differ() -> None:
    def f(x: Any) -> Any:
        return rng().permuted(x, out=np.zeros((3, 2)))

    for transformed in (adarray.grad(lambda x: np.sum(f(x)), intercept=True), adarray.jit(f)):
        with pytest.raises(ValueError, match="shape"):
            transformed(X)


ORDERS = {
    "rows": lambda x: x * 2,
    "columns": lambda x: np.asfortranarray(x) * 2,
    "transpose": lambda x: x.T,
    "every other": lambda x: np.concatenate([x, x], 1).T[::2],
    "three axes": lambda x: (x[:, :, None] * np.arange(1.0, 5.0)).transpose(2, 1, 0),
    "three axes, mixed": lambda x: (x[:, :, None] * np.arange(1.0, 5.0)).transpose(1, 0, 2),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_permuted(order: str, axis: int | None) -> None:
    def f(x: Any) -> Any:
        return rng().permuted(ORDERS[order](x), axis=axis)

    counts = check(f, (X,), backends=("numpy", "serial"), calls=3)
    # Without interception NumPy's own generator refuses traced values aloud.
    assert counts["right"] >= 2 * (len(MODES) - 1)
