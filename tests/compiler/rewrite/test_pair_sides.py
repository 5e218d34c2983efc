"""Pairs that are folded over both sides are computed again for each, and stored nowhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from recorded import Recorded, agrees, recorded

import adarray
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.primitives import Map, Matmul, Reduce
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import pair_sides as module
from adarray.compiler.rewrite.pair_sides import pair_sides
from adarray.compiler.rewrite.short_axes import short_axes

RNG = np.random.default_rng(31)
WEIGHTS, OTHERS = RNG.normal(size=70), RNG.normal(size=90)


def bells(x: Any, y: Any) -> Any:
    return np.exp(-((x[:, None] - y[None, :]) ** 2))


def columns(x: Any, y: Any) -> Any:
    return np.mean(bells(x, y), axis=0)


def rows(x: Any, y: Any) -> Any:
    return np.max(bells(x, y), axis=1)


def all_pairs(x: Any, y: Any) -> Any:
    return np.sum(bells(x, y))


def normalised(x: Any, y: Any) -> Any:
    w = bells(x, y)
    return np.sum(w / np.sum(w, axis=1, keepdims=True), axis=0)


def weighted(x: Any, y: Any) -> Any:
    return bells(x, y) @ OTHERS


def weighted_before(x: Any, y: Any) -> Any:
    return WEIGHTS @ bells(x, y)


def transposed(x: Any, y: Any) -> Any:
    return bells(x, y).T @ WEIGHTS


def weighted_by_transposed(x: Any, y: Any) -> Any:
    return OTHERS @ bells(x, y).T


def one_side(x: Any, y: Any) -> Any:
    """Fold what depends on the points of one side alone."""
    return np.sum(np.where(np.ones((70, 90), bool), np.exp(x)[:, None], y[None, :]), axis=0) + (
        np.sum(np.sin(np.broadcast_to(y, (70, 90))), axis=0)
    )


def stages(x: Any, y: Any) -> Any:
    for _ in range(3):
        y = y + 0.1 * np.mean(x[:, None] * bells(x, y), axis=0)
    return y


CASES = (
    columns, rows, all_pairs, normalised, weighted, weighted_before, transposed,
    weighted_by_transposed, stages,
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS", 256)


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    return adarray.value_and_grad(lambda x, y: np.sum(f(x, y) ** 2), argnums=(0, 1))


def checked(r: Recorded) -> Program:
    """Return the program with pairs of their own for each side, after comparing results."""
    changed = pair_sides(r.program, GPU)
    verify_program(changed)
    agrees(Recorded(changed, r.arrays, r.leaves, r.calls, r.translate))
    return changed


def arrays() -> tuple[np.ndarray, np.ndarray]:
    return RNG.normal(size=70), RNG.normal(size=90)


def axes_of(program: Program) -> list[tuple[tuple[int, ...], bool]]:
    """Return the axes of folds of pairs, and whether these have a kernel of their own."""
    return [
        (v.primitive.axes, v in program.apart)
        for v in program.values
        if isinstance(v.primitive, Reduce) and v.args[0].size == 70 * 90
    ]


@pytest.mark.parametrize("f", [*CASES, one_side])
def test_results_stay(f: Callable[..., Any]) -> None:
    for g in f, gradient(f):
        checked(recorded(g, *arrays()))


@pytest.mark.parametrize("f", CASES)
def test_folds_are_over_the_first_axis(f: Callable[..., Any]) -> None:
    changed = checked(recorded(f, *arrays()))
    assert set(axes_of(changed)) == {((0,), True)}
    assert not any(isinstance(v.primitive, Matmul) for v in changed.values)


@pytest.mark.parametrize("f", CASES)
def test_no_array_of_pairs_is_stored(f: Callable[..., Any]) -> None:
    steps = plan(recorded(gradient(f), *arrays()).program, target=GPU).steps
    buffers = [b for s in steps if isinstance(s, KernelStep) for b in s.buffers]
    assert max(b.size for b in buffers) < 70 * 90


def test_each_side_and_stage_has_a_kernel() -> None:
    changed = checked(recorded(gradient(columns), *arrays()))
    assert set(changed.apart.values()) == {0, 1, 2}
    assert len(set(checked(recorded(stages, *arrays())).apart.values())) == 3


def test_pairs_that_are_results_are_computed_once() -> None:
    def f(x: Any, y: Any) -> Any:
        w = bells(x, y)
        return w, np.sum(w, axis=0)

    changed = pair_sides(recorded(f, *arrays()).program, GPU)
    assert not changed.apart


def test_pairs_that_many_kernels_need_are_stored() -> None:
    """Scaling rows and columns in turn reads all pairs each time, or computes them again."""

    def scaled(terms: int) -> Any:
        def f(x: Any, y: Any) -> Any:
            w = bells(x, y)
            for k in range(terms):
                w = np.tanh(w + 0.1 * k)
            b = y
            for _ in range(6):
                a = 1.0 / (w @ b)
                b = 1.0 / (a @ w)
            return b

        return f

    assert len(set(pair_sides(recorded(scaled(0), *arrays()).program, GPU).apart.values())) == 12
    r = recorded(scaled(4), *arrays())
    assert not pair_sides(r.program, GPU).apart


def test_doublings_follow_sums() -> None:
    """A gradient of squares adds up each term once."""
    changed = checked(recorded(gradient(columns), *arrays()))
    doubled = [v.primitive for v in changed.apart if len(set(v.args)) < len(v.args)]
    assert set(doubled) == {Map("multiply")}


def test_processors_keep_their_loops() -> None:
    r = recorded(gradient(columns), *arrays())
    assert pair_sides(r.program, CPU) is r.program


def test_points_that_others_need_whole_leave_short_axes_of_other_pairs() -> None:
    """Whether pairs are taken apart does not depend on what is asked of other pairs."""

    def f(x: Any, y: Any, z: Any) -> Any:
        d, e = x[:, None, :] - y[None, :, :], z[:, None, :] - z[None, :, :]
        return np.sum(np.exp(-np.sum(d * d, axis=-1)), axis=0), e

    r = recorded(f, *(RNG.normal(size=(n, 3)) for n in (150, 160, 170)))
    shapes = [v.shape for v in short_axes(r.program, GPU).values]
    assert (170, 170, 3) in shapes
    assert (150, 160, 3) not in shapes
