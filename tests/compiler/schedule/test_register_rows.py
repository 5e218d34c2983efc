"""Rows that are register-resident while several loops go over them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from careful import floats
from device_plans import Compiled, DevicePlanRunner
from recorded import Recorded, close, recorded
from row_functions import layer_norm, norm, scaled_squares, softmax, weighted_norm

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import For, Kernel, Load, Store, statements, walk
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import blocks, choose
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.register_rows import (
    REGISTERS,
    ResidentRows,
    resident_rows,
    shape_of,
)
from adarray.compiler.schedule.gpu.schedules import RegisterRows, Schedule
from adarray.compiler.schedule.vectors import expressions

RNG = np.random.default_rng(11)
SMALL = GpuTarget(sms=2, threads_per_sm=256, shared_memory=24 << 10)
LARGE = GpuTarget(sms=3, threads_per_sm=2048, shared_memory=96 << 10)
plan = partial(planning.plan, target=GPU)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def kernel_of(f: Callable[..., Any], *args: Any) -> tuple[Kernel, dict[str, int]]:
    """Return the first kernel of a function, with its integers."""
    steps = (s for s in plan(recorded(f, *args).program).steps if isinstance(s, KernelStep))
    step = next(steps)
    return step.kernel, dict(zip(step.kernel.ints, step.ints, strict=True))


def gradient(n: int, dtype: Any = np.float32) -> tuple[Kernel, dict[str, int]]:
    """Return the kernel of the gradient of a layer norm."""
    x, scale, shift = (np.ones(s, dtype) for s in ((50, n), n, n))
    return kernel_of(adarray.value_and_grad(layer_norm, (0, 1, 2)), x, scale, shift)


def resident(kernel: Kernel) -> ResidentRows:
    """Return what is register-resident in a kernel."""
    rows = resident_rows(kernel)
    assert rows is not None
    return rows


def of_rows(rows: int, n: int, dtype: Any) -> list[Recorded]:
    """Return functions whose rows are register-resident, if they are whole packs."""
    x, w = RNG.normal(size=(2, rows, n)).astype(dtype)
    scale, shift = RNG.normal(size=(2, n)).astype(dtype)
    return [
        recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), x, scale, shift),
        recorded(adarray.value_and_grad(weighted_norm, (0, 1, 2, 3)), x, scale, shift, w),
        recorded(adarray.value_and_grad(scaled_squares, (0, 1, 2)), x, scale, shift),
        recorded(adarray.value_and_grad(norm), x),
    ]


def quotients(x: Any, w: Any) -> Any:
    """Return rows by the largest elements of others, whose columns are summed, too."""
    return x / np.max(w, axis=1, keepdims=True), np.sum(w, axis=0)


def compare(cases: list[Recorded], folder: Path, target: GpuTarget, **options: Any) -> Compiled:
    """Compare plans on the emulator with the interpreter; return what was compiled."""
    plans = [plan(r.program) for r in cases]
    compiled = Compiled(plans, folder, target, **options)
    for r, device_plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(a) for a in r.arrays]
        single = any(v.dtype == np.float32 for v in r.program.values)
        got = DevicePlanRunner(device_plan, compiled)(arrays)
        for actual, want in zip(got, interpret(r.program, arrays), strict=True):
            close(actual, want, 2e-4 if single else 1e-11)
    return compiled


@emulated
class TestEmulated:
    """What kernels compute whose rows are register-resident."""

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(("rows", "n"), [(9, 256), (70, 260), (33, 516), (9, 1024)])
    @pytest.mark.parametrize("target", [SMALL, LARGE], ids=["small", "large"])
    def test_rows_of_whole_packs(
        self, dtype: Any, rows: int, n: int, target: GpuTarget, tmp_path: Path
    ) -> None:
        seen = compare(of_rows(rows, n, dtype), tmp_path, target)
        assert sum(isinstance(s, RegisterRows) for s, _ in seen.texts.values()) >= (
            2 if n < 1024 else 1
        )

    @pytest.mark.parametrize("aligned", [True, False])
    def test_totals_of_many_blocks_are_combined_by_a_kernel_of_its_own(
        self, aligned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(choose, "PARTS", 0)

        def changed(s: Schedule) -> Schedule:
            return replace(s, aligned=aligned) if isinstance(s, RegisterRows) else s

        seen = compare(of_rows(37, 388, np.float32), tmp_path, LARGE, choose=changed)
        results = [(s, t) for s, t in seen.texts.values() if isinstance(s, RegisterRows)]
        assert any(s.far and t.followers for s, t in results)
        assert all(("adarray_load_each" in t.text) != aligned for _, t in results)

    def test_quotients_of_all_kinds_of_numbers(self, tmp_path: Path) -> None:
        x = floats(4)
        x = np.resize(x, (24, x.size // 4 * 4)).astype(np.float32)
        by = [3.0, 0.7, 1e-29, 1e29, -2.5, 0.0, -0.0, np.inf, np.nan, 1e-40, 1e38, 1.0]
        w = np.repeat(np.float32(by * 2), x.shape[1]).reshape(x.shape)
        w[12:, ::2] = -np.inf  # the largest is the other one
        with np.errstate(all="ignore"):
            r = recorded(quotients, x, w)
        new_plan = plan(r.program)
        compiled = Compiled(
            [new_plan], tmp_path, GpuTarget(sms=2, threads_per_sm=2048, shared_memory=96 << 10)
        )
        assert any("adarray_quotientf" in t.text for _, t in compiled.texts.values())
        got = DevicePlanRunner(new_plan, compiled)([np.asarray(a) for a in r.arrays])[0]
        with np.errstate(all="ignore"):
            wanted = (x / w[:, 1:2]).astype(np.float32)
        ordinary = (np.abs(wanted) > 1e-37) & (np.abs(x) > 1e-30)
        assert (got[ordinary] == wanted[ordinary]).mean() > 1 - 1e-4
        near = np.maximum(np.abs(np.spacing(wanted)), np.finfo(np.float32).smallest_subnormal)
        finite = np.isfinite(wanted)
        with np.errstate(all="ignore"):
            assert (np.abs(got - wanted)[finite] <= 2 * near[finite]).all()
        np.testing.assert_array_equal(got[~finite], wanted[~finite])
        np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(wanted[finite]))

    def test_the_order_of_sums_does_not_depend_on_how_often_it_runs(self, tmp_path: Path) -> None:
        (r, *_) = of_rows(90, 260, np.float32)
        new_plan = plan(r.program)
        compiled = Compiled([new_plan], tmp_path, LARGE)
        arrays = [np.asarray(a) for a in r.arrays]
        first, second = (DevicePlanRunner(new_plan, compiled)(arrays) for _ in range(2))
        for a, b in zip(first, second, strict=True):
            np.testing.assert_array_equal(a, b)


class TestKernels:
    """What is register-resident."""

    def test_each_row_is_loaded_once(self) -> None:
        kernel, _ = gradient(512)
        rows = resident(kernel)
        x = kernel.buffers[[b.access for b in kernel.buffers].index("in")].name

        def loops(k: Kernel) -> int:
            own = [s for s in statements(k.body) if isinstance(s, For) and s.kind == "vector"]
            return sum(
                any(
                    isinstance(e, Load) and e.buffer == x
                    for y in s.body
                    for root in expressions(y)
                    for e in walk(root)
                )
                for s in own
            )

        assert loops(kernel) >= 4
        assert loops(rows.kernel) == 1

    def test_costly_values_are_computed_once(self) -> None:
        kernel, _ = gradient(512)
        rows = resident(kernel)

        def calls(k: Kernel, name: str) -> int:
            return sum(
                getattr(e, "name", "") == name
                for s in statements(k.body)
                for root in expressions(s)
                for e in walk(root)
            )

        assert calls(kernel, "tanh") >= 2
        assert calls(rows.kernel, "tanh") == 1
        stored = {s.buffer for s in statements(rows.kernel.body) if isinstance(s, Store)}
        assert stored >= rows.arrays.keys()

    def test_a_softmax_is_left_as_it_is(self) -> None:
        kernel, _ = kernel_of(softmax, np.ones((50, 512), np.float32))
        assert resident_rows(kernel) is None

    @pytest.mark.parametrize("n", [510, 252, 65536])
    def test_rows_that_are_no_packs_or_short_or_long_are_not_resident(self, n: int) -> None:
        kernel, ints = gradient(n)
        rows = resident_rows(kernel)
        assert rows is None or shape_of(rows, kernel, ints, GPU) is None
        assert not isinstance(schedule_of(kernel, ints, GPU), RegisterRows)

    @pytest.mark.parametrize("n", [256, 260, 1024, 4096, 8192])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_registers_suffice(self, n: int, dtype: Any) -> None:
        kernel, ints = gradient(n, dtype)
        schedule = schedule_of(kernel, ints, GPU)
        if not isinstance(schedule, RegisterRows):
            assert n == 8192
            assert dtype is np.float64
            return
        rows = resident(kernel)
        block, packs, side = schedule.block, schedule.packs, schedule.resident
        assert packs * block * rows.width >= n
        assert block * side * packs * rows.words < REGISTERS
        assert launch_of(schedule, GPU).blocks <= 132 * side
        assert f"__launch_bounds__({block}, {side})" in cuda.source(schedule).text

    @pytest.mark.parametrize(("n", "packs"), [(256, 2), (260, 1), (1024, 4), (1028, 2), (2052, 4)])
    def test_few_threads_have_less_to_do_than_others(self, n: int, packs: int) -> None:
        kernel, ints = gradient(n)
        schedule = schedule_of(kernel, ints, GPU)
        assert isinstance(schedule, RegisterRows)
        assert schedule.packs == packs
        assert schedule.even == (n in (256, 1024))

    def test_blocks_stay_what_rows_need(self) -> None:
        kernel, ints = gradient(1024)
        schedule = schedule_of(kernel, ints, GPU)
        assert blocks.resized(schedule, 64) == schedule
        assert blocks.candidates(schedule) == [schedule]
