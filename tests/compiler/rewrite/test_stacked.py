"""Arrays whose slices are computed alike are one array in programs for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import UpdateSlice
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite.stacked import stacked

RNG = np.random.default_rng(6)
SHAPES = [(4, 5, 6), (5, 4, 6), (5, 6, 4)]  # of four slices along each axis


def writes(f: Any, *args: Any) -> tuple[int, int]:
    """Rewrite what `f` does, compare; return how many slices are set, before and after."""
    program = recorded(f, *args).program
    after = stacked(program, GPU)
    verify_program(after)
    arrays = [np.asarray(a) for a in args]
    for want, got in zip(interpret(program, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
    before, now = (
        sum(isinstance(v.primitive, UpdateSlice) for v in p.values) for p in (program, after)
    )
    return before, now


def at(k: int, axis: int) -> tuple[Any, ...]:
    return (slice(None),) * axis + (k,)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_of_one_array(axis: int, backwards: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        out = np.zeros_like(x)
        for k in range(4):
            out[at(k, axis)] = np.tanh(2 * x[at(3 - k if backwards else k, axis)] + y)
        return out

    x = RNG.normal(size=SHAPES[axis])
    y = RNG.normal(size=x[at(0, axis)].shape[1:])
    assert writes(f, x, y) == (4, 0)


def test_the_last_one_wins() -> None:
    def f(x: Any) -> Any:
        out = np.ones_like(x)
        for k in (2, 0, 1, 2, 3):
            out[k] = x[k] * (k != 2) if k != 2 else x[2] - 1
        return out

    before, now = writes(f, RNG.normal(size=(4, 3)))
    assert now == before  # which are not computed alike


def test_derivatives_of_time_steps() -> None:
    """The slices are rows of one product, the last step first."""

    def loss(x: Any, w: Any, u: Any) -> Any:
        h = np.tanh(x[0] @ w)
        for k in range(1, 6):
            h = np.tanh(x[k] @ w + h @ u)
        return np.sum(h * h)

    args = RNG.normal(size=(6, 40, 8)), RNG.normal(size=(8, 8)), RNG.normal(size=(8, 8))
    before, now = writes(adarray.grad(loss, (0, 1, 2)), *args)
    assert (before, now) == (6, 0)


def test_others_stay() -> None:
    def part(x: Any) -> Any:
        out = np.zeros_like(x)
        for k in range(3):
            out[k] = np.exp(x[k])
        return out

    def different(x: Any) -> Any:
        out = np.zeros_like(x)
        for k, j in enumerate((0, 2, 1, 3)):
            out[k] = np.exp(x[j])
        return out

    def shared(x: Any) -> Any:
        rows = [np.exp(x[k]) for k in range(4)]
        out = np.zeros_like(x)
        for k in range(4):
            out[k] = rows[k]
        return out, rows[0]

    def wide(x: Any) -> Any:
        out = np.zeros_like(x)
        out[:2], out[2:] = np.exp(x[:2]), np.exp(x[2:])
        return out

    x = RNG.normal(size=(4, 3))
    for f in (part, different, shared, wide):
        before, now = writes(f, x)
        assert before == now > 0
    program = recorded(lambda x: np.exp(x), x).program
    assert stacked(program, GPU) is program
    assert stacked(recorded(part, x).program, CPU).values
