"""Kernels for GPUs: run on the processor by an emulator of blocks, and compiled by nvcc."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from functools import partial

import adarray_native
import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from plan_runner import FailedError
from random_recordings import random_recordings
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.kernels import loop_nests, lower
from adarray.compiler.kernels import rows as row_loops
from adarray.compiler.kernels.scatter_forms import ScatterForm
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning import step_writer
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import choose, facts
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.memory import shared_names
from adarray.compiler.schedule.gpu.schedules import (
    DeviceScan,
    FlatLoops,
    RowsByBlock,
    RowsByWarp,
    SharedRows,
    SheetRows,
    SingleBlock,
)
from adarray.compiler.stencil import rings

RNG = np.random.default_rng(5)
plan = partial(planning.plan, target=GPU)

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(params=["small", "gpu", "rows", "blocks"])
def lowering(request, monkeypatch):
    """Let kernels have each of the shapes that lowering knows, whatever the size of arrays."""
    if request.param == "small":
        monkeypatch.setitem(globals(), "plan", planning.plan)
    if request.param in ("rows", "blocks"):
        target = replace(GPU, short=1 if request.param == "rows" else 1000)
        monkeypatch.setitem(globals(), "plan", partial(planning.plan, target=target))
        for name in ("BLOCK", "MOST", "LEAST"):
            monkeypatch.setattr(lower, name, 4)
    return request.param


def compare(cases, folder, device=SMALL):
    """Compare plans on the emulator with the interpreter; return what was compiled."""
    plans = [plan(r.program) for r in cases]
    compiled = Compiled(plans, folder, device)
    for r, device_plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(a) for a in r.arrays]
        expected = interpret(r.program, arrays)
        single = any(v.dtype == np.float32 for v in r.program.values)
        tight = 2e-3 if single else 1e-10
        for got, want in zip(
            DevicePlanRunner(device_plan, compiled)(arrays), expected, strict=True
        ):
            close(got, want, tight)
    return compiled


def kinds(compiled):
    """Return the variants of schedules of kernels."""
    return {type(schedule) for schedule, _ in compiled.texts.values()}


def cross_entropy(z, labels):
    z = z - np.max(z, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(z), axis=1)) - z[np.arange(len(labels)), labels])


def layer_norm(x, scale, shift):
    c = x - np.mean(x, axis=1, keepdims=True)
    v = np.mean(c * c, axis=1, keepdims=True)
    return np.sum(np.tanh(c / np.sqrt(v + 1e-5) * scale + shift) ** 2)


def softmax(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def heat(u):
    return u + 0.1 * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) - 3 * u)


def half_cases():
    """Return programs in half precision, whose elements are moved as 16 bits."""
    x, w = RNG.normal(size=(2, 37, 66)).astype(np.float16)
    rows = RNG.integers(0, 37, 90)
    return [
        *row_cases(np.float16, 130),
        recorded(adarray.value_and_grad(lambda x, w: np.sum(x[rows] * w[rows]), (0, 1)), x, w),
        recorded(
            lambda x, w: (np.concatenate([x, w * 2], 1), np.pad(x, 2), np.where(x > w, x, w)), x, w
        ),
        recorded(lambda x: (np.cumsum(x, axis=1), np.maximum.accumulate(x), np.mean(x)), x),
        recorded(lambda x: (x.astype(float) * 3, (x * 9).astype(np.int32), x[::-1].T + 1), x),
        recorded(lambda x: x.astype(np.float16) * 2, RNG.normal(size=999)),
    ]


def row_cases(dtype, n):
    z = RNG.normal(size=(7, n)).astype(dtype)
    labels = RNG.integers(0, n, 7)
    scale, shift = RNG.normal(size=(2, n)).astype(dtype)
    return [
        recorded(adarray.value_and_grad(cross_entropy), z, labels),
        recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), z, scale, shift),
        recorded(softmax, z),
        recorded(heat, z),
        recorded(lambda x: (np.sum(x, axis=0), np.max(x, axis=1), np.prod(x)), z),
    ]


@emulated
class TestEmulated:
    """What printed kernels compute."""

    def test_half_precision(self, lowering, tmp_path):
        seen = compare(half_cases(), tmp_path)
        text = "".join(t.text for _, t in seen.texts.values())
        assert "adarray_f16_to_f32" in text
        assert "adarray_f64_to_f16" in text
        assert lowering == "small" or "adarray_pack<uint16_t, 8>" in text

    @pytest.mark.slow
    def test_random_programs(self, lowering, tmp_path):
        seen = compare(list(random_recordings(range(24))), tmp_path)
        assert FlatLoops in kinds(seen)
        assert kinds(seen) & ({SingleBlock} if lowering == "small" else {RowsByWarp, RowsByBlock})

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_rows(self, dtype, monkeypatch, tmp_path):
        monkeypatch.setattr(row_loops, "SIDE_BY_SIDE", 1)  # few rows are scheduled as many
        cases = [case for n in (1, 5, 96, 130, 513) for case in row_cases(dtype, n)]
        for i, device in enumerate(
            (SMALL, GpuTarget(sms=2, threads_per_sm=1024, shared_memory=48 << 10))
        ):
            folder = tmp_path / str(i)
            folder.mkdir()
            seen = compare(cases, folder, device)
            assert kinds(seen) >= {SheetRows, FlatLoops}
            assert kinds(seen) & {RowsByWarp, RowsByBlock}
        assert any(shared_names(s) for s, _ in seen.texts.values())

    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [6, 67, 140])
    def test_several_steps_of_a_stencil_in_one_kernel(self, columns, monkeypatch, tmp_path):
        monkeypatch.setattr(rings, "LARGE", 1)
        monkeypatch.setattr(rings, "ROWS", 8)
        monkeypatch.setattr(rings, "WIDE", 4)
        monkeypatch.setattr(loop_nests, "CHOSEN", 0)  # as long rows have it: a loop for each piece
        target = replace(GPU, chain=5, block=(4, 5))
        monkeypatch.setitem(globals(), "plan", partial(planning.plan, target=target))

        def steps(u):
            for _ in range(4):
                u = heat(u)
            return np.sum(u * u)

        u = RNG.normal(size=(23, columns))
        cases = [recorded(adarray.value_and_grad(steps), x) for x in (u, u.astype(np.float32))]
        seen = compare(
            cases, tmp_path, GpuTarget(sms=2, threads_per_sm=1024, shared_memory=64 << 10)
        )
        shared = [shared_names(s) for s, _ in seen.texts.values()]
        assert any(len(names) >= 3 for names in shared)
        if columns > 64:
            text = next(t.text for s, t in seen.texts.values() if shared_names(s))
            assert "adarray_store_near" in text  # packs
            assert "? y" in text  # neighbours out of registers
            # Borders are made by warps of their own, and wait for nobody.
            assert "lane == span - 1 - 0 % span)" in text
            assert text.count("adarray_sync") < 6

    @pytest.mark.parametrize("rows", [60, 600])
    def test_array_totals_that_are_longer_than_a_group(self, rows, tmp_path):
        z, scale, shift = RNG.normal(size=(rows, 45)), *RNG.normal(size=(2, 45))
        r = recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), z, scale, shift)
        seen = compare(
            [r], tmp_path, GpuTarget(sms=4, threads_per_sm=1024, shared_memory=128 << 10)
        )
        (step,) = [s for s in seen.steps if any(t.size is not None for t in s.kernel.totals)]
        schedule = seen.texts[id(step)][0]
        assert isinstance(schedule, RowsByWarp)
        assert schedule.shared
        assert schedule.threads == 32 < schedule.block
        assert launch_of(schedule, seen.device).blocks > 1

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
    def test_sums_over_rows(self, dtype, tmp_path):
        def f(x):
            y = np.maximum(x, dtype(1))
            return y, np.sum(y, axis=0), np.max(x, axis=0)

        shapes = (3, 1), (40, 7), (600, 20), (1100, 65), (700, 31), (530, 200), (2, 515)
        cases = [recorded(f, RNG.integers(-8, 8, s).astype(dtype)) for s in shapes]
        seen = compare(cases, tmp_path)
        assert SheetRows in kinds(seen)
        launches = [launch_of(seen.texts[id(s)][0], SMALL) for s in seen.steps]
        assert {min(n.blocks, 2) for n in launches if n.chunks > 1} == {1}
        assert max(n.blocks for n in launches) > 1

    def test_stencils_with_borders_of_each_kind(self, tmp_path):
        def periodic(u):
            for _ in range(3):
                u = heat(u)
            return np.sum(u * u)

        def fixed(u):
            for _ in range(3):
                v = u.copy()
                inner = u[1:-1, 1:-1]
                v[1:-1, 1:-1] = inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] - inner)
                u = v
            return np.sum(u * u)

        u = RNG.normal(size=(23, 70))
        cases = [recorded(adarray.value_and_grad(f), u) for f in (periodic, fixed)]
        cases.append(recorded(periodic, u.astype(np.float32)))
        assert SheetRows in kinds(compare(cases, tmp_path))

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_arrays_that_are_read_across(self, dtype, tmp_path):
        x, y = RNG.normal(size=(70, 41)).astype(dtype), RNG.normal(size=(41, 70)).astype(dtype)
        cases = [
            recorded(lambda x, y: x + y.T, x, y),
            recorded(lambda x: np.ascontiguousarray(x.T) * 2.0, x),
            recorded(lambda x, y: np.sum(x * y.T, axis=0), x, y),
            recorded(lambda x, y: np.exp(x) @ np.ones(41, dtype) + np.sum(y, axis=0), x, y),
            recorded(lambda x: (np.mean(x, axis=0), np.var(x, axis=0)), x),
            recorded(lambda x, k: x[k] * 2.0, x, RNG.integers(0, 70, 30)),
        ]
        seen = compare(cases, tmp_path)
        assert {s.group for s, _ in seen.texts.values()} >= {np.dtype(dtype).itemsize, 32}

    @pytest.mark.slow
    @pytest.mark.parametrize("n", [1, 5, 40, 300, 1500])
    def test_running_sums(self, n, tmp_path):
        x = RNG.normal(size=(7, n))
        cases = [
            recorded(lambda x: np.cumsum(np.sin(x), axis=1) * 2.0, x),
            recorded(lambda x: np.cumsum(x[0]), x),
            recorded(lambda x: np.maximum.accumulate(x, axis=1), x.astype(np.float32)),
            recorded(lambda x: np.cumprod(x, axis=-1), 1.0 + x / 9.0),
            recorded(lambda x: np.cumsum(x, axis=0), x),
            recorded(lambda x: np.maximum.accumulate(np.sin(x), axis=0), x.astype(np.float32)),
            recorded(lambda k: np.cumsum(k, axis=1), RNG.integers(0, 9, (7, n))),
        ]
        for i, device in enumerate(
            (SMALL, GpuTarget(sms=2, threads_per_sm=1024, shared_memory=48 << 10))
        ):
            folder = tmp_path / str(i)
            folder.mkdir()
            seen = compare(cases, folder, device)
        texts = [t.text for _, t in seen.texts.values()]
        assert n == 1 or any("adarray_before" in text for text in texts)

    @pytest.mark.parametrize("n", [17, 130, 4000])
    def test_long_running_sums_are_shared_by_all_blocks(self, n, monkeypatch, tmp_path):
        monkeypatch.setattr(choose, "LONGEST", 17)
        monkeypatch.setattr(choose, "BLOCK", 64)
        x = RNG.normal(size=n)
        cases = [
            recorded(lambda x: np.cumsum(np.sin(x)), x),
            recorded(lambda x: np.cumsum(x[::-1]) * 2.0, x.astype(np.float32)),
            recorded(lambda x: np.maximum.accumulate(x), x),
            recorded(lambda k: np.cumsum(k), RNG.integers(0, 9, n)),
            recorded(adarray.grad(lambda x: np.sum(np.cumsum(x) ** 2)), x),
            recorded(lambda x: np.cumsum(x), np.full(n, -0.0)),
        ]
        seen = compare(cases, tmp_path)
        assert DeviceScan in kinds(seen)
        assert any("_scan" in name for _, t in seen.texts.values() for name in t.followers)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_operands_off_alignment(self, dtype, tmp_path):
        x, b = RNG.normal(size=(9, 131)).astype(dtype), RNG.normal(size=131).astype(dtype)
        cases = [
            recorded(lambda v: v[1:] * 2.0, x[0]),
            recorded(lambda v: np.sin(v[3:]) + np.log1p(v[:-3] ** 2), x[0]),
            recorded(lambda x: x[:, 1:] * 2.0, x),
            recorded(lambda x, b: np.maximum(x + b, 0.0), x, b),
            recorded(lambda x: (x[:, 2:] - x[:, :-2], np.sum(x[:, 1:])), x),
        ]
        seen = compare(cases, tmp_path)
        assert any("adarray_load_each" in t.text for _, t in seen.texts.values())

    def test_the_last_of_several_pieces_for_one_place_stays(self, tmp_path, monkeypatch):
        monkeypatch.setattr(step_writer, "form_of", lambda *_: ScatterForm.ATOMIC)

        def put(x, k, v):
            x = x.copy()
            x[k] = v
            return x

        k = RNG.integers(-7, 7, 60)
        flat, wide = RNG.normal(size=60), RNG.normal(size=(60, 37))
        cases = [
            recorded(put, np.zeros(7), k, flat),
            recorded(put, np.zeros((7, 37)), k, wide),
            recorded(put, np.zeros((7, 37)), k.reshape(4, 15), wide.reshape(4, 15, 37)),
            recorded(lambda x, j, k, v: put(x, (j, k), v), np.zeros((7, 37)), k, k // 3, flat),
            recorded(lambda x, k, v: put(x, (slice(None), k), v), wide[:, :7], k, wide[:, :1]),
        ]
        seen = compare(cases, tmp_path)
        assert any("adarray_atomic_maximum" in t.text for _, t in seen.texts.values())

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_sums_at_repeated_indices(self, dtype, tmp_path, monkeypatch):
        monkeypatch.setattr(step_writer, "form_of", lambda *_: ScatterForm.ATOMIC)

        def rows(x, k, v):
            x = x.copy()
            np.add.at(x, k, v)
            return x

        k = RNG.integers(-7, 7, 40)
        flat, wide = (RNG.integers(-9, 9, s).astype(dtype) for s in ((40,), (40, 33)))
        cases = [
            recorded(rows, np.zeros(7, dtype), k, flat),
            recorded(rows, np.ones((7, 33), dtype), k, wide),
            recorded(lambda x, k, v: rows(x, (slice(None), k), v), wide[:7], k, wide[:7, :1]),
            recorded(lambda x, j, k, v: rows(x, (j, k), v), wide, k[:7], k[7:14], flat[:7]),
        ]
        seen = compare(cases, tmp_path)
        assert sum("adarray_atomic_add" in t.text for _, t in seen.texts.values()) >= 3

    def test_an_index_out_of_range_is_told(self, tmp_path):
        r = recorded(lambda x, k: np.exp(x[k]), RNG.normal(size=9), np.array([1, 2, 8]))
        new_plan = plan(r.program)
        run = DevicePlanRunner(new_plan, Compiled([new_plan], tmp_path))
        run([r.arrays[0], r.arrays[1]])
        with pytest.raises(FailedError):
            run([r.arrays[0], np.array([1, 2, 9])])

    def test_vectors_indexed_by_arrays_are_shared_by_all_blocks(self, tmp_path):
        x, k = RNG.normal(size=400), RNG.integers(-400, 400, 3001)
        r = recorded(lambda x, k: x[k] * 2.0, x, k)
        seen = compare([r], tmp_path)
        assert kinds(seen) == {FlatLoops}
        run = DevicePlanRunner(result := plan(r.program), Compiled([result], tmp_path))
        for place in (0, 1500, 3000):
            wrong = k.copy()
            wrong[place] = 400
            with pytest.raises(FailedError):
                run([x, wrong])

    def test_maps_over_several_axes_have_many_passes(self, tmp_path):
        x, b = RNG.normal(size=(3, 5, 7, 40)).astype(np.float32), RNG.normal(size=5)
        b = b.astype(np.float32)
        cases = [
            recorded(lambda x: np.ascontiguousarray(np.transpose(x, (0, 2, 3, 1))) * 2.0, x),
            recorded(lambda x, b: np.maximum(x + b[:, None, None], 0.0), x, b),
            recorded(lambda x, b: np.sum(x * b[:, None, None]), x, b),
            recorded(adarray.grad(lambda x, b: np.sum((x * b[:, None, None]) ** 2), (0, 1)), x, b),
            recorded(lambda x: np.stack([x[0], x[1] * 2.0], axis=-1), x),
        ]
        seen = compare(cases, tmp_path)
        texts = [t.text for _, t in seen.texts.values()]
        assert sum("(uint32_t)" in text for text in texts) >= 3

    @pytest.mark.parametrize("columns", [1, 3, 8, 33])
    def test_short_rows(self, columns, tmp_path):
        x = RNG.normal(size=(301, columns)).astype(np.float32)
        compare([recorded(lambda x: x - np.mean(x, axis=0), x), recorded(softmax, x)], tmp_path)

    def test_a_result_does_not_depend_on_blocks(self, tmp_path):
        r = recorded(lambda x: np.sin(x) * 2, RNG.normal(size=5000))
        new_plan = plan(r.program)
        results = []
        for i, device in enumerate(
            (SMALL, GpuTarget(sms=7, threads_per_sm=512, shared_memory=4096))
        ):
            folder = tmp_path / str(i)
            folder.mkdir()
            results += DevicePlanRunner(new_plan, Compiled([new_plan], folder, device))(r.arrays)
        np.testing.assert_array_equal(*results)


class TestSchedules:
    """Who shares an iteration."""

    def first(self, f, *args, device=None):
        steps = plan(recorded(f, *args).program).steps
        (step,) = [s for s in steps if isinstance(s, KernelStep)][:1]
        ints = dict(zip(step.kernel.ints, step.ints, strict=True))
        schedule = schedule_of(step.kernel, ints, device or GPU)
        return schedule, launch_of(schedule, device or GPU), step

    def test_one_loop_is_shared_by_all(self):
        schedule, launch, _ = self.first(np.sin, np.ones(100_000))
        assert isinstance(schedule, FlatLoops)
        assert launch.blocks == -(-100_000 // (4 * schedule.block))

    def test_long_rows_have_large_groups(self):
        short, long = (self.first(softmax, np.ones(s))[0] for s in ((20_000, 200), (4000, 4096)))
        assert isinstance(short, RowsByWarp)
        assert short.threads == 32
        assert isinstance(long, SharedRows)
        assert long.group == long.block == 256

    @pytest.mark.parametrize("rows", [30, 4096])
    def test_memory_that_blocks_share_is_counted(self, rows, monkeypatch):
        monkeypatch.setattr(facts, "resident_rows", lambda kernel: None)
        schedule, launch, step = self.first(
            adarray.value_and_grad(layer_norm, (0, 1, 2)), np.ones((rows, 512)), np.ones(512),
            np.ones(512),
        )  # fmt: skip
        sized = [t for t in step.kernel.totals if t.size is not None]
        assert len(sized) == 2
        assert {t.name for t in sized} <= schedule.shared
        assert launch.workspace >= 2 * launch.blocks * 512 * 8
        assert (
            launch.shared >= 2 * (schedule.block // schedule.group) * 512 * 8 + schedule.block * 8
        )
        followers = cuda.source(schedule).followers
        assert len(followers) == schedule.far == (rows > 30)  # many blocks combine many parts

    @pytest.mark.slow
    def test_totals_of_groups_that_have_no_room_are_combined_by_a_kernel_of_its_own(self):
        schedule, launch, step = self.first(
            adarray.value_and_grad(layer_norm, (0, 1, 2)), np.ones((4096, 8192)), np.ones(8192),
            np.ones(8192),
        )  # fmt: skip
        far = [
            t for t in step.kernel.totals if t.size is not None and t.name not in schedule.shared
        ]
        assert far
        groups = launch.blocks * (schedule.block // schedule.group)
        assert launch.workspace >= len(far) * groups * 8192 * 8
        assert cuda.source(schedule).followers[0].endswith("_merge")

    @pytest.mark.parametrize(
        ("shape", "blocks"),
        [
            ((128, 128), 1),
            ((256, 1024), 1),
            ((1024, 4096), 1),
            ((2100, 8192), 4),
            ((2100, 4096), 8),
            ((200_000, 64), 132),
            ((200_000, 10), 264),
        ],
    )
    def test_column_sums_leave_few_parts(self, shape, blocks):
        schedule, launch, _ = self.first(lambda x: np.sum(x, axis=0), np.ones(shape, np.float32))
        assert isinstance(schedule, SheetRows)
        assert launch.blocks == blocks
        assert cuda.source(schedule).followers == ()
        assert launch.blocks * launch.chunks * schedule.block <= 132 * 2048 or blocks == 1

    def test_text_depends_on_classes_of_extents_alone(self):
        texts = set()
        for n in (100_000, 123_456):
            schedule, _, _ = self.first(np.sin, np.ones(n))
            texts.add(cuda.source(schedule).text)
        assert len(texts) == 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_nvcc_compiles_what_is_printed(lowering, tmp_path):
    cases = [*random_recordings(range(8)), *row_cases(np.float32, 130), *row_cases(np.float64, 600)]
    texts = {}
    for r in cases:
        for s in plan(r.program).steps:
            if isinstance(s, KernelStep):
                ints = dict(zip(s.kernel.ints, s.ints, strict=True))
                text = cuda.source(schedule_of(s.kernel, ints, GPU))
                texts[text.name] = text.text
    source = tmp_path / "kernels.cu"
    source.write_text("\n".join(texts.values()))
    command = [
        "nvcc",
        "-arch=sm_90",
        "-std=c++17",
        "-cubin",
        "-w",
        *adarray_native.INCLUDE_CUDA,
    ]
    command += ["-Xcicc", "-O1", "-Xptxas", "-O1"]  # the question is whether it compiles
    done = subprocess.run(
        [*command, str(source), "-o", str(tmp_path / "kernels.cubin")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
