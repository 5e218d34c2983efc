"""Folds of short axes over pairs of rows, of which blocks compute tiles."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from pairs import (
    all_of_them,
    bells,
    largest,
    product,
    squares,
    two_of_each,
    weighted,
)
from recorded import close, recorded

from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import Kernel
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.schedules import RowsByBlock, RowsByWarp, Tiles
from adarray.compiler.schedule.gpu.tiles import pair_folds

RNG = np.random.default_rng(3)
# For as few multiprocessors as run it: there are few results for more, which share out rows.
plan = partial(planning.plan, target=replace(GPU, sms=SMALL.sms))
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


FUNCTIONS = (squares, bells, largest, product, all_of_them, weighted, two_of_each)


def step_of(f: Callable[..., Any], *args: Any) -> tuple[Kernel, dict[str, int]]:
    """Return the first kernel of a function, with its integers."""
    steps = (s for s in plan(recorded(f, *args).program).steps if isinstance(s, KernelStep))
    step = next(steps)
    return step.kernel, dict(zip(step.kernel.ints, step.ints, strict=True))


@pytest.mark.slow
@emulated
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("n", "m", "k"), [(70, 133, 20), (64, 64, 16), (65, 3, 7), (130, 66, 33), (5, 64, 50)]
)
def test_tiles_at_every_end(dtype: Any, n: int, m: int, k: int, tmp_path: Path) -> None:
    a, b = RNG.normal(size=(n, k)).astype(dtype), RNG.normal(size=(m, k)).astype(dtype)
    cases = [recorded(f, a, b) for f in FUNCTIONS]
    plans = [plan(r.program) for r in cases]
    compiled = Compiled(plans, tmp_path, SMALL)
    for r, device_plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(x) for x in r.arrays]
        got = DevicePlanRunner(device_plan, compiled)(arrays)
        for actual, want in zip(got, interpret(r.program, arrays), strict=True):
            close(actual, want, 2e-5 if dtype is np.float32 else 1e-12)
    assert sum(isinstance(s, Tiles) for s, _ in compiled.texts.values()) >= 5


class TestKernels:
    """Which kernels fold tiles."""

    def test_both_arrays_are_staged_once(self) -> None:
        kernel, _ = step_of(squares, np.ones((600, 9)), np.ones((500, 9)))
        rows = pair_folds(kernel)
        assert rows is not None
        assert [s.left for s in rows.staged] == [True, False]
        assert not kernel.totals
        text = cuda.source(schedule_of(kernel, dict.fromkeys(kernel.ints, 600), GPU)).text
        assert text.count("adarray_stage<") == 2
        assert "fma(" in text  # squares are added without being rounded

    @pytest.mark.parametrize("count", [9, 16, 30])
    def test_a_sum_of_all_results_is_folded_by_tiles(self, count: int) -> None:
        kernel, ints = step_of(all_of_them, np.ones((600, count)), np.ones((500, count)))
        assert len(kernel.totals) == 1
        assert isinstance(schedule_of(kernel, ints, GPU), Tiles)

    def test_extrema_of_rows_are_folded_as_they_are(self) -> None:
        kernel, ints = step_of(largest, np.ones((600, 9)), np.ones((500, 9)))
        assert "fma(" not in cuda.source(schedule_of(kernel, ints, GPU)).text

    def test_few_results_and_long_rows_have_blocks_of_their_own(self) -> None:
        for change in {600: 64}, {9: 5000}:
            kernel, ints = step_of(squares, np.ones((600, 9)), np.ones((600, 9)))
            ints = {name: change.get(value, value) for name, value in ints.items()}
            assert pair_folds(kernel) is not None
            assert isinstance(schedule_of(kernel, ints, GPU), RowsByWarp | RowsByBlock)

    def test_sums_over_the_rows_of_results_are_not_tiles(self) -> None:
        def f(a: Any, b: Any) -> Any:
            return np.sum(np.sqrt(squares(a, b)), axis=1)

        kernel, ints = step_of(f, np.ones((600, 40)), np.ones((500, 40)))
        assert pair_folds(kernel) is None
        assert isinstance(schedule_of(kernel, ints, GPU), RowsByWarp | RowsByBlock)

    def test_a_row_of_results_that_is_folded_twice_is_not_tiles(self) -> None:
        def f(a: Any, b: Any) -> Any:
            d = squares(a, b)
            return d - np.max(d, axis=1, keepdims=True)

        kernel, _ = step_of(f, np.ones((600, 9)), np.ones((500, 9)))
        assert pair_folds(kernel) is None

    @pytest.mark.parametrize(("n", "most"), [(600, 10 * 10), (6000, 32 * 132)])
    def test_there_are_blocks_for_all_tiles_up_to_some_for_each_multiprocessor(
        self, n: int, most: int
    ) -> None:
        kernel, ints = step_of(squares, np.ones((600, 9)), np.ones((600, 9)))
        ints = {name: n if value == 600 else value for name, value in ints.items()}
        schedule = schedule_of(kernel, ints, GPU)
        assert isinstance(schedule, Tiles)
        assert launch_of(schedule, GPU).blocks == most
        assert blocks.resized(schedule, 64) == schedule
