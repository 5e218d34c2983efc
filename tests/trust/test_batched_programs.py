"""Random programs for all members of a batch, beside a loop over them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batched_programs import program
from members import assert_same, looped

import adarray

AXES = [(0, None), (0, 0), (0, 1)]
CLOSE = (1e-8, 1e-9)


def _arguments(seed: int, n: int, axes: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4, n))
    w = rng.normal(size=n if axes[1] is None else (4, n))
    return x, w.T.copy() if axes[1] == 1 else w


@pytest.mark.parametrize("seed", range(60))
def test_values(seed: int) -> None:
    f, _, n = program(seed, __name__)
    axes = AXES[seed % 3]
    args = _arguments(seed, n, axes)
    assert_same(adarray.vmap(f, in_axes=axes)(*args), looped(f, args, axes), *CLOSE)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(100, 140))
def test_gradients(seed: int) -> None:
    _, loss, n = program(seed, __name__)
    axes = AXES[seed % 3]
    args = _arguments(seed, n, axes)
    gradient = adarray.grad(loss, argnums=(0, 1))
    want = looped(gradient, args, axes)
    assert_same(adarray.vmap(gradient, in_axes=axes)(*args), want, *CLOSE)

    def total(x: Any, w: Any) -> Any:
        return np.sum(adarray.vmap(loss, in_axes=axes)(x, w))

    want[1] = want[1].sum(0) if axes[1] is None else np.moveaxis(want[1], 0, axes[1])
    assert_same(adarray.grad(total, argnums=(0, 1))(*args), want, *CLOSE)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(200, 215))
def test_second_derivatives(seed: int) -> None:
    _, loss, n = program(seed, __name__)
    axes = AXES[seed % 3]
    args = _arguments(seed, n, axes)
    hessian = adarray.hessian(loss)
    assert_same(adarray.vmap(hessian, in_axes=axes)(*args), looped(hessian, args, axes), 1e-7, 1e-8)


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore::adarray.JitWarning")
@pytest.mark.parametrize("backend", ["numpy", "serial"])
@pytest.mark.parametrize("seed", [*range(300, 306), *(
    pytest.param(s, marks=pytest.mark.slow) for s in range(306, 340)
)])  # fmt: skip
def test_under_jit(seed: int, backend: str) -> None:
    f, _, n = program(seed, __name__)
    axes = AXES[seed % 3]
    with adarray.use(backend):
        compiled = adarray.jit(adarray.vmap(f, in_axes=axes))
        for k in (seed, seed, seed + 1):  # others go other ways
            args = _arguments(k, n, axes)
            assert_same(list(compiled(*args)), looped(f, args, axes), *CLOSE)


@pytest.mark.parametrize("seed", range(400, 420))
def test_nested(seed: int) -> None:
    f, _, n = program(seed, __name__)
    args = _arguments(seed, n, (0, 0))
    table = adarray.vmap(adarray.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(*args)
    want = looped(lambda x: tuple(looped(lambda w: f(x, w), (args[1],), (0,))), args[:1], (0,))
    assert_same(table, want, *CLOSE)
