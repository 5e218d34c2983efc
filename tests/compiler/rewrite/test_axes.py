"""Axes that become one, and arrays that are computed in the order in which they lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from random_stencils import StencilProgram
from recorded import Recorded, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Concatenate, ScatterND, View
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.memory_order import memory_order
from adarray.compiler.rewrite.merged_axes import merged_axes
from adarray.compiler.rewrite.sum_stages import sums_in_stages

PASSES = (memory_order, merged_axes, sums_in_stages)


def rolled(x: Any) -> Any:
    return np.tanh(np.roll(x, 1, axis=2)) * x


def sliced(x: Any) -> Any:
    return np.concatenate([x[:1], x[1:-1] * (x[2:] - x[:-2]), x[-1:]])


def spread(x: Any, w: Any) -> Any:
    """Roll along an axis beside which a factor has one number for all."""
    return np.roll(x * w, 1, axis=1)


def parted(x: Any) -> Any:
    """Read within the axis beside the one that is rolled."""
    return np.roll(x, 1, axis=1)[..., 1:-1] * x[..., :-2]


def beside(x: Any, w: Any) -> Any:
    """Roll along the first axis of what has an axis of length 1 behind it."""
    return np.sin(np.roll(x, 1, axis=0) * w)


def shown(x: Any, w: Any) -> Any:
    """Show elements several times, beside an axis of length 1."""
    return np.concatenate([np.broadcast_to(w, x.shape), x])


def run(r: Recorded, change: Callable[[Program, Any], Program]) -> Program:
    """Return the changed program, which gives what the recorded run gave."""
    new = change(r.program, GPU)
    verify_program(new)
    results = interpret(new, [np.asarray(a) for a in r.arrays])
    for got, want in zip(results, r.leaves, strict=True):
        assert np.shape(got) == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-11)
    return new


def pieces(program: Program) -> list[tuple[int, ...]]:
    """Return the shapes of what has pieces."""
    return [v.shape for v in program.values if isinstance(v.primitive, Concatenate)]


@pytest.mark.parametrize(
    ("f", "shapes", "want"),
    [
        (rolled, [(4, 3, 9, 5)], (4, 3, 45)),
        (rolled, [(4, 3, 9, 300)], (4, 3, 9, 300)),  # along memory as it is
        (sliced, [(9, 3, 2, 5)], (270,)),
        (sliced, [(9, 30, 2, 5)], (9, 300)),  # a matrix, down whose rows threads may march
        (spread, [(4, 9, 5), (4, 1, 1)], (4, 45)),
        (spread, [(4, 9, 5), (9, 5)], (4, 45)),
        (spread, [(4, 9, 5), (1, 9, 1)], (4, 9, 5)),
        (parted, [(4, 9, 5)], (4, 9, 5)),
        (beside, [(4, 1, 3), (1, 1, 3)], (4, 1, 3)),  # a row of 3 is not spread over 12
        (beside, [(4, 1, 3), (1, 3)], (4, 1, 3)),
        (beside, [(4, 5, 1, 3), (4, 1, 1, 3)], (4, 5, 1, 3)),
        (beside, [(4, 5, 1, 3), (4, 5, 1, 1)], (4, 5, 1, 3)),
        (beside, [(4, 5, 1, 3), (5, 1, 3)], (4, 15)),
        (beside, [(4, 1, 3), (1, 1, 1)], (12,)),
        (shown, [(4, 5, 1, 3), (4, 5, 1, 1)], (8, 5, 1, 3)),
        (shown, [(4, 1, 3), (1, 1, 3)], (8, 1, 3)),
    ],
)
def test_axes_behind_pieces(
    f: Callable[..., Any], shapes: list[tuple[int, ...]], want: tuple[int, ...]
) -> None:
    rng = np.random.default_rng(2)
    r = recorded(f, *[rng.normal(size=s) for s in shapes])
    assert pieces(run(r, merged_axes)) == [want]
    assert merged_axes(r.program, CPU) is r.program


def test_inputs_in_another_order_keep_their_axes() -> None:
    x = np.asfortranarray(np.random.default_rng(3).normal(size=(4, 3, 9, 5)))
    assert pieces(run(recorded(rolled, x), merged_axes)) == [(4, 3, 9, 5)]


def stepped(x: Any) -> Any:
    a = np.swapaxes(x, 0, 2)
    a = np.sin(np.roll(a, 1, axis=0) - a)
    b = np.concatenate([a[:1], a[1:-1] - a[:-2] * a[2:], a[-1:]])
    return np.sum(np.take(b, [1, 0, 1], axis=1) ** 2)


def test_steps_of_a_transposed_array_need_no_transpose() -> None:
    x = np.random.default_rng(4).normal(size=(5, 6, 9))
    new = dead(run(recorded(adarray.value_and_grad(stepped), x), memory_order))
    assert set(pieces(new)) == {(5, 6, 9)}
    for v in new.values:
        if isinstance(v.primitive, View) and v.size > 1:
            steps = [s for s, n in zip(v.primitive.strides, v.shape, strict=True) if n > 1]
            assert steps == sorted(steps, reverse=True)


def test_operands_of_two_orders_stay() -> None:
    def f(x: Any) -> Any:
        a = np.swapaxes(x, 0, 2)
        return np.sum(np.concatenate([a[:1], a[1:] * np.sin(x)[1:]]))

    r = recorded(f, np.random.default_rng(5).normal(size=(6, 4, 6)))
    assert set(pieces(run(r, memory_order))) == {(6, 4, 6)}


def test_transposed_pieces_that_share_a_place() -> None:
    """Many rows are added to the only one of a base."""

    def f(x: Any, y: Any, k: Any) -> Any:
        a = np.sin(np.swapaxes(x, 1, 2))
        np.add.at(a, k, np.swapaxes(y, 1, 2))
        return a * 2.0

    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(1, 4, 3)), rng.normal(size=(7, 4, 3))
    new = run(recorded(f, x, y, np.zeros(7, np.int64)), memory_order)
    assert (1, 4, 3) in {v.shape for v in new.values if isinstance(v.primitive, ScatterND)}


@pytest.mark.parametrize("change", PASSES)
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_random_programs(seed: int, change: Callable[[Program, Any], Program]) -> None:
    program = StencilProgram(seed)
    args = program.arguments("float64")
    run(recorded(adarray.value_and_grad(program.f, argnums=tuple(range(len(args)))), *args), change)
