"""Stencils of any rank along any axes: kernels of a GPU give the numbers of NumPy."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from plan_runner import FailedError
from random_stencils import StencilProgram
from recorded import close, recorded

import adarray
from adarray.compiler.fusion import fuse
from adarray.compiler.ir.affine import ONE, ZERO, slope
from adarray.compiler.ir.loopir import For, Let, Load, Store, statements, walk
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import shared
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import sum_stages
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.schedules import Schedule, SheetRows
from adarray.compiler.schedule.gpu.span import span_of
from adarray.compiler.schedule.vectors import expressions

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def check(cases: list[tuple[Any, list[np.ndarray], float]], folder: Path) -> None:
    """Compare values and gradients with those of the recorded run."""
    target = replace(SMALL, small=1)
    planned = []
    for f, args, tight in cases:
        r = recorded(adarray.value_and_grad(f, argnums=tuple(range(len(args)))), *args)
        planned.append((r, plan(r.program, target=target), tight))
    compiled = Compiled([p for _, p, _ in planned], folder, target)
    for r, p, tight in planned:
        got = DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])
        for one, expected in zip(got, r.leaves, strict=True):
            close(one, expected, tight)


@emulated
@pytest.mark.parametrize(
    "seeds",
    [range(8), *[pytest.param(range(k, k + 24), marks=pytest.mark.slow) for k in (8, 32, 56)]],
)
def test_random_programs(seeds: range, tmp_path: Path) -> None:
    cases = []
    for seed in seeds:
        program = StencilProgram(seed)
        double = seed % 4 == 3
        args = program.arguments("float64" if double else "float32")
        cases.append((program.f, args, 1e-10 if double else 2e-4))
    check(cases, tmp_path)


@emulated
def test_pieces_of_other_lengths_are_other_choices(tmp_path: Path) -> None:
    """Two and two, and four and two, of six columns: what is read differs by six in both."""

    def there_and_back(a: Any) -> Any:
        return np.sum(np.sin(np.roll(a, 2, axis=2) - 3.0 * np.roll(a, -2, axis=2)))

    def without(a: Any) -> Any:
        """Leave out a column of what the kernel computes."""
        b = np.tanh(a)
        b = b - np.mean(b, axis=1, keepdims=True)
        first = np.concatenate([b[:, :2], b[:, 3:]], axis=1)
        return np.sum(np.sin(first - 3.0 * np.concatenate([b[:, :4], b[:, 5:]], axis=1)))

    rng = np.random.default_rng(3)
    cases = [(there_and_back, (3, 9, 6)), (without, (5, 7)), (without, (3, 7, 4))]
    check([(f, [rng.normal(size=s)], 1e-10) for f, s in cases], tmp_path)


@emulated
@pytest.mark.slow
def test_other_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the model says: nests are one loop, rows are of all axes in common, folds staged."""
    monkeypatch.setattr(shared, "GAIN", 0)
    for name, value in {"EACH": 4, "ROW": 3}.items():
        monkeypatch.setattr(sum_stages, name, value)
    for name, value in {"STAGED": 4, "ENOUGH": 2, "FEW_ROWS": 0, "MANY_ROWS": 2}.items():
        monkeypatch.setattr(fuse, name, value)
    programs = [StencilProgram(seed) for seed in range(100, 124)]
    check([(p.f, p.arguments("float32"), 2e-4) for p in programs], tmp_path)


def kernels(f: Any, *shapes: tuple[int, ...]) -> list[KernelStep]:
    """Return the kernels of a value and its gradients."""
    args = [np.ones(s, np.float32) for s in shapes]
    r = recorded(adarray.value_and_grad(f, argnums=tuple(range(len(args)))), *args)
    return [s for s in plan(r.program, target=GPU).steps if isinstance(s, KernelStep)]


def schedules(f: Any, *shapes: tuple[int, ...]) -> list[Schedule]:
    return [
        schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU)
        for s in kernels(f, *shapes)
    ]


def around(a: Any, axes: tuple[int, ...]) -> Any:
    total = sum(np.roll(a, s, axis=k) for k in axes for s in (1, -1))
    return a + 0.1 * np.tanh(total - 2.0 * len(axes) * a)


def sheared(x: Any) -> Any:
    """Roll along an axis with few elements beside each."""
    return np.sum(around(around(x, (0, 2)), (0, 2)) ** 2)


def turned(x: Any, w: Any) -> Any:
    """Step along the first axes of a transposed array, and take rows of it."""
    a = np.tanh(np.swapaxes(x, 0, 2) * w)
    for _ in range(2):
        a = around(a, (0, 1))
        a = np.concatenate([a[:1], a[1:-1] * (a[2:] - a[:-2]), a[-1:]], axis=0)
    return np.mean(np.take(a, [3, 1, 1, 8], axis=1) ** 2)


def scaled(x: Any, w: Any) -> Any:
    """Scale each of a few large parts: the gradient of a scale is a sum over several axes."""
    return np.sum(around(np.tanh(x * w), (1, 2, 3)) ** 2)


def test_pieces_along_an_axis_with_few_elements_beside_it_lie_in_packs() -> None:
    """Most of what a step loads and stores is beside what its neighbours load and store."""
    for s in kernels(sheared, (200, 3, 300, 6)):
        for loop in (x for x in statements(s.kernel.body) if isinstance(x, For)):
            if loop.kind == "vector":
                lets = {x.name: x.value for x in loop.body if isinstance(x, Let)}
                stores = [x for x in loop.body if isinstance(x, Store)]
                assert all(slope(x.index, loop.var, lets) == ONE for x in stores)


def test_transposed_arrays_are_computed_in_the_order_of_memory() -> None:
    """No kernel goes across the rows of an array."""
    for s in kernels(turned, (40, 90, 64), (40,)):
        for loop in (x for x in statements(s.kernel.body) if isinstance(x, For)):
            if loop.kind == "vector":
                lets = {x.name: x.value for x in loop.body if isinstance(x, Let)}
                stores = [x.index for x in loop.body if isinstance(x, Store)]
                loads = [
                    e.index
                    for x in loop.body
                    for root in expressions(x)
                    for e in walk(root)
                    if isinstance(e, Load)
                ]
                for index in (*stores, *loads):
                    assert slope(index, loop.var, lets) in (ONE, ZERO, None)


def test_threads_of_a_block_do_not_wait_in_every_short_loop() -> None:
    for s in schedules(scaled, (256, 278, 9, 8), (256, 1, 1, 1)):
        assert span_of(s, launch_of(s, GPU), GPU) < 60e-6, type(s).__name__


def test_few_sums_of_many_elements_have_rows_for_all_threads() -> None:
    def planes(x: Any, w: Any) -> Any:
        return np.sum(around(np.tanh(x * w), (1, 2)) ** 2)

    for s in schedules(planes, (72, 900, 80), (72, 1, 1)):
        launch = launch_of(s, GPU)
        work = s.facts.rows * math.prod(n or 1 for n in s.facts.inner)
        assert work < 1 << 20 or launch.blocks * launch.chunks >= GPU.sms


def test_sums_of_short_rows_of_pieces_are_apart() -> None:
    def biased(x: Any, b: Any) -> Any:
        return np.sum(around(np.tanh(x + b), (0, 2)) ** 2)

    for s in schedules(biased, (50, 9000, 12), (12,)):
        assert not s.facts.sized or isinstance(s, SheetRows)


@emulated
@pytest.mark.parametrize("wrong", [0, 30_000, 59_999])
def test_blocks_that_share_a_row_refuse_its_indices(wrong: int, tmp_path: Path) -> None:
    """Each group tests what it gathers, wherever in the row."""

    def gathered(x: Any, k: Any) -> Any:
        return np.tanh(np.take(x, k, axis=1))

    x, k = np.ones((3, 40), np.float32), np.arange(60_000) % 40
    r = recorded(gathered, x, k)
    p = plan(r.program, target=SMALL)
    compiled = Compiled([p], tmp_path)
    (step,) = compiled.steps
    schedule = compiled.texts[id(step)][0]
    assert isinstance(schedule, SheetRows)
    assert launch_of(schedule, SMALL).chunks > 1
    (got,) = DevicePlanRunner(p, compiled)([x, k])
    close(got, r.leaves[0], 1e-6)
    k[wrong] = 40
    with pytest.raises(FailedError):
        DevicePlanRunner(p, compiled)([x, k])
