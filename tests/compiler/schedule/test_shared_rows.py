"""Rows that kernels of GPUs fetch into shared memory before they need them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import Compiled, DevicePlanRunner
from plan_runner import FailedError
from recorded import Recorded, close, recorded
from row_functions import cross_entropy, layer_norm, masked, scaled_squares, softmax

import adarray
from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Store,
    Var,
    statements,
)
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.planning import planner as planning
from adarray.compiler.print_cuda import printer as cuda
from adarray.compiler.schedule.gpu import choose, facts
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.row_values import ROW_VALUES, replacing
from adarray.compiler.schedule.gpu.schedules import RowsByBlock, Schedule, SharedRows
from adarray.compiler.schedule.gpu.shared_rows import fetched_rows

RNG = np.random.default_rng(7)
LARGE = GpuTarget(sms=2, threads_per_sm=1024, shared_memory=96 << 10)
plan = partial(planning.plan, target=GPU)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def deeper(x: Any) -> Any:
    """Return a function along the last of three axes."""
    return x - np.mean(x * x, axis=-1, keepdims=True)


def steps_of(p: Plan) -> list[tuple[Kernel, dict[str, int]]]:
    """Return the kernels of a plan with their integers."""
    steps = [s for s in p.steps if isinstance(s, KernelStep)]
    return [(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True))) for s in steps]


def whatever(kernel: Kernel) -> Any:
    """Return what a kernel can fetch, as if it read nothing else."""
    rows = fetched_rows(kernel)
    return None if rows is None else rows._replace(others=False)


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let rows be fetched whatever their length is, by blocks of choice."""

    def by(*blocks: tuple[int, int]) -> None:
        monkeypatch.setattr(choose, "FETCHED", 0)
        monkeypatch.setattr(choose, "REPLACED", 0)
        monkeypatch.setattr(choose, "FETCHING", tuple((*block, 1 << 30) for block in blocks))
        monkeypatch.setattr(facts, "fetched_rows", whatever)
        monkeypatch.setattr(facts, "resident_rows", lambda kernel: None)

    return by


def compare(
    cases: list[Recorded], folder: Path, target: GpuTarget = LARGE, change: Any = None
) -> Compiled:
    """Compare plans on the emulator with the interpreter; return what was compiled."""
    plans = [plan(r.program) for r in cases]
    compiled = Compiled(plans, folder, target)
    for r, device_plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(a) for a in r.arrays] if change is None else change(r.arrays)
        expected = interpret(r.program, arrays)
        single = any(v.dtype == np.float32 for v in r.program.values)
        got = DevicePlanRunner(device_plan, compiled)(arrays)
        for actual, want in zip(got, expected, strict=True):
            close(actual, want, 2e-3 if single else 1e-10)
    return compiled


def slots(compiled: Compiled) -> list[int]:
    """Return the slots of the kernels that fetch rows."""
    return [s.slots for s, _ in compiled.texts.values() if isinstance(s, SharedRows)]


def of_rows(dtype: Any, rows: int, n: int) -> list[Recorded]:
    """Return functions of long rows."""
    z = RNG.normal(size=(rows, n)).astype(dtype)
    labels = RNG.integers(-n, n, rows)
    scale, shift = RNG.normal(size=(2, n)).astype(dtype)
    return [
        recorded(adarray.value_and_grad(cross_entropy), z, labels),
        recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), z, scale, shift),
        recorded(softmax, z),
        recorded(masked, z, z > 0.3, RNG.normal(size=(rows, n)).astype(dtype)),
        recorded(deeper, z.reshape(-1, rows, n)),
    ]


@emulated
class TestEmulated:
    """What kernels compute that fetch rows."""

    @pytest.mark.slow
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize(("rows", "n"), [(5, 130), (9, 515), (11, 1028), (17, 64)])
    def test_rows_of_every_length(
        self, dtype: Any, rows: int, n: int, fetching: Any, tmp_path: Path
    ) -> None:
        fetching((64, 1))
        seen = compare(of_rows(dtype, rows, n), tmp_path)
        assert len(slots(seen)) >= 4
        assert all(
            "adarray_arrived<1>" in t.text
            for s, t in seen.texts.values()
            if isinstance(s, SharedRows)
        )

    @pytest.mark.parametrize("room", [10, 12, 15, 17, 40])
    def test_with_as_many_slots_as_there_is_room_for(
        self, room: int, fetching: Any, tmp_path: Path
    ) -> None:
        # A row of float32 has 8 packs of 64 threads; slots for less, for just as much as two.
        fetching((64, 1))
        z = RNG.normal(size=(23, 2048 - 3)).astype(np.float32)
        target = replace(LARGE, shared_memory=room * 1024 + 1024 + 512)
        seen = compare([recorded(softmax, z)], tmp_path, target)
        assert slots(seen) == [room]

    def test_rows_that_do_not_fit_are_read_whenever_they_are_needed(
        self, fetching: Any, tmp_path: Path
    ) -> None:
        fetching((64, 2), (64, 1))
        z = RNG.normal(size=(5, 2048)).astype(np.float32)
        assert not slots(
            compare([recorded(softmax, z)], tmp_path, replace(LARGE, shared_memory=9000))
        )

    def test_memory_that_is_not_aligned(self, fetching: Any, tmp_path: Path) -> None:
        fetching((64, 1))

        def shifted(arrays: list[Any]) -> list[Any]:
            parts = []
            for a in arrays:
                room = np.zeros(a.nbytes + 64, np.uint8)
                begin = -room.ctypes.data % 16 + a.itemsize
                moved = room[begin : begin + a.nbytes].view(a.dtype).reshape(a.shape)
                moved[...] = a
                parts.append(moved)
            return parts

        for i, (dtype, n) in enumerate([(np.float32, 256), (np.float32, 259), (np.float64, 131)]):
            folder = tmp_path / str(i)
            folder.mkdir()
            assert slots(compare(of_rows(dtype, 7, n), folder, change=shifted))

    def test_an_index_out_of_range_is_told(self, fetching: Any, tmp_path: Path) -> None:
        fetching((64, 1))
        z, labels = RNG.normal(size=(40, 300)), RNG.integers(0, 300, 40)
        r = recorded(adarray.value_and_grad(cross_entropy), z, labels)
        new_plan = plan(r.program)
        run = DevicePlanRunner(new_plan, Compiled([new_plan], tmp_path, LARGE))
        assert slots(run.compiled)
        run([z, labels])
        with pytest.raises(FailedError):
            run([z, np.where(np.arange(40) == 3, 300, labels)])

    def test_the_emulator_shows_rows_that_nobody_waited_for(
        self, fetching: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fetching((64, 1))
        source = cuda.source
        for i, old in enumerate(["adarray_arrived<1>();", "adarray_commit();"]):

            def broken(schedule: Schedule, old: str = old) -> Any:
                text = source(schedule)
                return text._replace(text=text.text.replace(old, ""))

            folder = tmp_path / str(i)
            folder.mkdir()
            monkeypatch.setattr(cuda, "source", broken)
            with pytest.raises(AssertionError):
                compare([recorded(softmax, RNG.normal(size=(9, 300)))], folder)

    def test_bits_do_not_depend_on_how_rows_come(self, fetching: Any, tmp_path: Path) -> None:
        r = recorded(softmax, RNG.normal(size=(9, 512)))
        new_plan = plan(r.program)
        results = []
        for i, shared in enumerate((8 << 10, 64 << 10)):
            fetching((64, 1))
            folder = tmp_path / str(i)
            folder.mkdir()
            compiled = Compiled([new_plan], folder, replace(LARGE, shared_memory=shared))
            assert len(slots(compiled)) == 1
            results += DevicePlanRunner(new_plan, compiled)(r.arrays)
        np.testing.assert_array_equal(*results)


def functions(kernel: Kernel, facts: Any) -> list[str]:
    """Return the functions whose values take the place of a row in a kernel."""
    result = replacing(kernel, facts)
    if result is None:
        return []
    (stored,) = (
        s for s in statements(result.kernel.body) if isinstance(s, Store) and s.buffer == ROW_VALUES
    )
    lets = {s.name: s.value for s in statements(result.kernel.body) if isinstance(s, Let)}
    return [lets[stored.value.name].name]


class TestReplaced:
    """Values that the last loop over a row finds where the row was."""

    def of(self, f: Any, *args: Any) -> list[str]:
        texts = []
        for kernel, _ in steps_of(plan(recorded(f, *args).program)):
            fetches = fetched_rows(kernel)
            texts += [] if fetches is None else functions(kernel, fetches)
        return texts

    def test_what_the_last_loop_follows_from_replaces_the_row(self) -> None:
        x = RNG.normal(size=(50, 400))
        scale, shift = RNG.normal(size=(2, 400))
        assert self.of(softmax, x) == ["exp"]
        assert self.of(lambda x, s: softmax(x) * s, x, scale) == ["exp"]
        assert self.of(adarray.value_and_grad(scaled_squares, (0, 1, 2)), x, scale, shift) == [
            "add"
        ]

    def test_a_row_that_is_needed_itself_or_in_two_ways_is_not_replaced(self) -> None:
        x = RNG.normal(size=(50, 400))
        assert self.of(lambda x: x * softmax(x), x) == []
        assert self.of(deeper, x[None]) == []
        labels = RNG.integers(0, 400, 50)
        # The gradient of the maximum needs the row, beside the exponentials.
        assert self.of(adarray.value_and_grad(cross_entropy), x, labels) == []

    def test_values_of_a_sum_that_grows_meanwhile_replace_nothing(self) -> None:
        i, j, k = (Var("int64", n) for n in "ijk")
        load = lambda v: Load("float64", "x", Apply("int64", "add", (i, v)))  # noqa: E731
        total = Var("float64", "sum")
        value = lambda v: Apply("float64", "multiply", (load(v), total))  # noqa: E731
        loops = (
            For("j", ZERO, Var("int64", "n"), (Let("a", value(j)),
                Fold("sum", "add", Var("float64", "a"))), "vector"),
            For("k", ZERO, Var("int64", "n"), (Let("b", value(k)),
                Store("y", Apply("int64", "add", (i, k)), Var("float64", "b"))), "vector"),
        )  # fmt: skip
        body = (Local("sum", "float64", init=Const("float64", 1.0)), *loops)
        rows = For("i", ZERO, Var("int64", "m"), body, "parallel")
        buffers = (Param("x", "float64"), Param("y", "float64", "out"))
        kernel = Kernel(buffers, ("n", "m"), (), (rows,))
        facts = fetched_rows(kernel)
        assert facts is not None
        assert replacing(kernel, facts) is None

    @pytest.mark.slow
    @emulated
    @pytest.mark.parametrize("n", [96, 516, 518])
    def test_results_are_the_same_bits(self, n: int, fetching: Any, tmp_path: Path) -> None:
        fetching((64, 1))
        z = RNG.normal(size=(50, n))
        scale, shift = RNG.normal(size=(2, n))
        cases = [
            recorded(softmax, z),
            recorded(adarray.value_and_grad(scaled_squares, (0, 1, 2)), z, scale, shift),
            recorded(lambda x: np.sin(x) / np.sum(np.sin(x), axis=1, keepdims=True),
                     z.astype(np.float32)),
        ]  # fmt: skip
        results = []
        for name, replaces in (("replaced", True), ("not", False)):

            def changed(s: Schedule, replaces: bool = replaces) -> Schedule:
                if isinstance(s, SharedRows):
                    return replace(s, replaces=s.replaces and replaces)
                return s

            plans = [plan(r.program) for r in cases]
            folder = tmp_path / name
            folder.mkdir()
            compiled = Compiled(plans, folder, LARGE, changed)
            runs = [
                DevicePlanRunner(p, compiled)(r.arrays) for p, r in zip(plans, cases, strict=True)
            ]
            results.append([x for run in runs for x in run])
            shared_rows = [s for s, _ in compiled.texts.values() if isinstance(s, SharedRows)]
            count = sum(s.replaces for s in shared_rows)
            # Packs of float32 have four elements, of which 518 are no multiple.
            assert count == (0 if name == "not" else 3 if n % 4 == 0 else 2)
        for got, want in zip(*results, strict=True):
            np.testing.assert_array_equal(got, want)


class TestChoice:
    """Which rows are fetched, and how many blocks there are."""

    def schedules(self, f: Any, *args: Any, target: GpuTarget | None = None) -> list[Any]:
        gpu = target or GPU
        schedules_seen = [
            schedule_of(k, ints, gpu) for k, ints in steps_of(plan(recorded(f, *args).program))
        ]
        return [(s, launch_of(s, gpu)) for s in schedules_seen]

    @pytest.mark.slow
    def test_long_rows_are_fetched_and_short_ones_are_not(self) -> None:
        ((long, launch),) = self.schedules(softmax, np.ones((300, 32768), np.float32))
        assert long.slots >= 32768 // (4 * long.block)
        assert launch.blocks == 132
        assert 128 << 10 < launch.shared <= 227 << 10
        ((short, _),) = self.schedules(softmax, np.ones((300, 512), np.float32))
        assert not isinstance(short, SharedRows)
        ((replaced, launch),) = self.schedules(softmax, np.ones((3000, 4096), np.float32))
        assert replaced.replaces
        assert replaced.block == 256
        assert launch.blocks == 4 * 132
        ((longer, _),) = self.schedules(softmax, np.ones((300, 100_000)))
        assert not isinstance(longer, SharedRows)

    def test_rows_beside_other_operands_are_fetched_if_something_replaces_them(self) -> None:
        x = RNG.normal(size=(300, 32768)).astype(np.float32)
        scale, shift = x[:2]

        def norm(x: Any, scale: Any, shift: Any) -> Any:
            c = x - np.mean(x, axis=1, keepdims=True)
            return c / np.sqrt(np.mean(c * c, axis=1, keepdims=True)) * scale + shift

        ((schedule, _),) = self.schedules(norm, x, scale, shift)
        assert not isinstance(schedule, SharedRows)
        schedule, launch = self.schedules(
            adarray.value_and_grad(scaled_squares, (0, 1, 2)), x, scale, shift
        )[0]  # fmt: skip
        assert isinstance(schedule, SharedRows)
        assert schedule.replaces
        assert launch.shared <= 227 << 10

    def test_threads_that_are_asked_for_read_rows_as_before(self) -> None:
        from adarray.compiler.schedule.gpu import blocks

        ((schedule, _),) = self.schedules(softmax, np.ones((300, 32768), np.float32))
        assert blocks.resized(schedule, schedule.block) == schedule
        assert isinstance(blocks.resized(schedule, 64), RowsByBlock)

    def test_what_several_loops_read_at_the_same_places_is_fetched(self) -> None:
        def sources(f: Any, *args: Any) -> list[Any]:
            kernels = [k for k, _ in steps_of(plan(recorded(f, *args).program))]
            return [
                None if (rows := fetched_rows(k)) is None else len(rows.sources) for k in kernels
            ]

        x, y = np.ones((2, 50, 400), np.float32)
        assert sources(softmax, x) == [1]
        assert sources(lambda x, y: softmax(x * y), x, y) == [2]
        # What one loop reads, or what all rows share, is not.
        assert sources(lambda x, y: softmax(x) * y, x, y) == [1]
        assert sources(lambda x, y: softmax(x) * y, x, y[0]) == [1]
        assert sources(lambda x: np.sum(x, axis=1), x) == [None]
        assert sources(np.exp, x) == [None]

    def test_neighbours_are_read_out_of_each_other(self) -> None:
        def pairs(x: Any) -> Any:
            d = x[:, 1:] - x[:, :-1]
            return d / np.sum(d * d, axis=1, keepdims=True)

        x = RNG.normal(size=(50, 400))
        kernels = steps_of(plan(recorded(pairs, x).program))
        assert [fetched_rows(k) for k, _ in kernels] == [None]
