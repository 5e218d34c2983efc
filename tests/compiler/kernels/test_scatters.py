"""Scatters of random shapes in each form that they have on a GPU."""

from __future__ import annotations

import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from plan_runner import FailedError, PlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.loopir import Fail, For, statements
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.primitives import ScatterND
from adarray.compiler.ir.target import GPU, CpuTarget
from adarray.compiler.kernels import scatter, segments
from adarray.compiler.kernels.scatter_forms import ScatterForm
from adarray.compiler.planning import step_writer
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import few_places
from adarray.compiler.schedule.gpu import choose
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.schedules import DeviceScan

pytest.importorskip("adarray_native._device")
from adarray_backends.cuda.checks import index_bounds

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
FORMS = list(ScatterForm)
SUMS = {ScatterForm.COUNTED}  # forms of additions alone
DTYPES = [np.float32, np.float64]  # of sums; others are set
OTHERS = [np.int32, np.int8, np.bool_]


class Example:
    """A scatter into a random shape: before, indexed, after; one index array or two."""

    def __init__(self, seed: int, wrong: bool = False) -> None:
        rng = np.random.default_rng(seed)
        choice = random.Random(seed)
        shape = [choice.choice((1, 2, 3, 4, 5, 8, 12)) for _ in range(choice.randrange(1, 5))]
        axis = choice.randrange(len(shape))
        width = 2 if choice.random() < 0.3 and axis + 1 < len(shape) else 1
        index_shape = choice.choice(((7,), (1,), (3, 4), (2, 1, 3)))
        self.add = choice.random() < 0.7
        self.base = choice.choice(("zeros", "over", "read"))
        self.pieces = choice.choice(("as given", "backward", "computed", "equal"))
        dtype = np.dtype(choice.choice(DTYPES if self.add else DTYPES + OTHERS))
        self.axis, self.width = axis, width
        self.x = self.numbers(rng, shape, dtype)
        piece = (*shape[:axis], *index_shape, *shape[axis + width :])
        self.v = self.numbers(rng, piece, dtype)
        self.at = [rng.integers(-n, n, index_shape) for n in shape[axis : axis + width]]
        if wrong:
            self.at[0].flat[choice.randrange(self.at[0].size)] = shape[axis]

    @staticmethod
    def numbers(rng: np.random.Generator, shape: Any, dtype: Any) -> np.ndarray:
        if dtype.kind == "f":
            return rng.normal(size=shape).astype(dtype)
        return rng.integers(0 if dtype.kind == "b" else -9, 9, shape).astype(dtype)

    def run(self, x: Any, v: Any, *at: Any) -> Any:
        base = np.zeros_like(x) if self.base == "zeros" else x * x
        y = base.copy() if self.base == "read" else base
        if self.pieces == "backward":
            v = v[::-1, ..., ::-1] if v.ndim > 1 else v[::-1]
        elif self.pieces == "computed":
            v = v * v
        elif self.pieces == "equal":
            v = np.ones((), v.dtype)
        index = (*(slice(None),) * self.axis, *at)
        if self.add:
            np.add.at(y, index, v)
        else:
            y[index] = v
        return (y, base) if self.base == "read" else y

    @property
    def arrays(self) -> list[Any]:
        return [self.x, self.v, *self.at]


def planned(
    monkeypatch: pytest.MonkeyPatch, form: ScatterForm, r: Any, target: Any = GPU, many: int = 2
) -> Plan:
    monkeypatch.setattr(step_writer, "form_of", lambda *_: form)
    monkeypatch.setattr(segments, "BESIDE", 2)
    monkeypatch.setattr(segments, "OVERLAP", 1)
    monkeypatch.setattr(segments, "MOST", 2)
    monkeypatch.setattr(segments, "MANY", many)
    monkeypatch.setattr(scatter, "WIDE", 4)
    return plan(r.program, target=target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(60))
def test_results_are_those_of_numpy(
    form: ScatterForm, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = Example(seed)
    if form in SUMS and not example.add:
        pytest.skip("it sets elements")
    r = recorded(example.run, *example.arrays)
    got = PlanRunner(planned(monkeypatch, form, r))([np.asarray(a) for a in r.arrays])
    for one, expected in zip(got, r.leaves, strict=True):
        close(one, expected, 1e-5 if example.x.dtype == np.float32 else 1e-12)


@emulated
def test_results_of_printed_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choose, "LONGEST", 4)
    cases = []
    for seed in range(100, 107):
        example = Example(seed)
        for form in FORMS:
            if form in SUMS and not example.add:
                continue
            r = recorded(example.run, *example.arrays)
            cases.append((r, planned(monkeypatch, form, r, SMALL)))
    compiled = Compiled([p for _, p in cases], tmp_path)
    assert any(isinstance(s, DeviceScan) for s, _ in compiled.texts.values())
    for r, p in cases:
        got = DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])
        for one, expected in zip(got, r.leaves, strict=True):
            close(one, expected, 1e-5 if one.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", range(6))
def test_an_index_out_of_range_fails(
    form: ScatterForm, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, wrong = Example(seed), Example(seed, wrong=True)
    if form in SUMS and not good.add:
        pytest.skip("it sets elements")
    r = recorded(good.run, *good.arrays)
    new_plan = planned(monkeypatch, form, r)
    arrays = [np.asarray(a) for a in r.arrays]
    places = [next(k for k, a in enumerate(arrays) if a is i or np.shares_memory(a, i))
              for i in good.at[:1] if any(np.shares_memory(a, i) for a in arrays)]  # fmt: skip
    assert places
    arrays[places[0]] = wrong.at[0].reshape(arrays[places[0]].shape)
    with pytest.raises(FailedError):
        PlanRunner(new_plan)(arrays)


@pytest.mark.parametrize(
    ("row", "columns"), [(60, 15), (83, 21), (186, 47), (29, 15), (15, 15), (512, 128)]
)
def test_a_thread_collects_several_elements_of_a_row(
    row: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the lists once: there are threads enough, and those of a sector side by side.

    What does not divide the row overlaps a little.
    """
    places = 1 << 17
    monkeypatch.setattr(step_writer, "form_of", lambda *_: ScatterForm.COUNTED)

    def f(x: Any, at: Any) -> Any:
        y = np.zeros((places, row), np.float32)
        np.add.at(y, at, x)
        return y

    x, at = np.zeros((places, row), np.float32), np.arange(places)
    steps = plan(recorded(f, x, at).program, target=GPU).steps
    chosen = [
        schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU)
        for s in steps
        if isinstance(s, KernelStep) and s.buffers[0].size == x.size
    ]
    # The first one collects; the other one adds what it has left.
    assert [s.facts.rows for s in chosen] == [places * columns, places]


class GoesOn(DevicePlanRunner):
    """Runs the kernels behind one that has refused its data, as a GPU does."""

    refused = 0

    def step(self, step: Any) -> None:
        try:
            super().step(step)
        except FailedError:
            self.refused += 1


@emulated
def test_kernels_behind_a_wrong_index_stay_in_their_arrays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = np.random.default_rng(6)
    v, at = rng.normal(size=(3, 40, 5)), rng.integers(-7, 7, 40)
    at[[0, 11, 39]] = 7, 1 << 40, -(1 << 40)
    right = np.clip(np.where(at < 0, at + 7, at), 0, 6)

    def f(v: Any, at: Any) -> Any:
        y = np.zeros((3, 7, 5))
        np.add.at(y, (slice(None), at), v)
        return y

    r = recorded(f, v, right)
    plans = [planned(monkeypatch, form, r, SMALL) for form in (ScatterForm.LISTED, *SUMS)]
    compiled = Compiled(plans, tmp_path)
    for p in plans:
        run = GoesOn(p, compiled)
        (got,) = run([v, at])
        assert run.refused == 1
        close(got, f(v, right), 1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_indices_can_be_checked_before(form: ScatterForm, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host need not wait for kernels that refuse indices which are arguments."""
    seed = next(k for k in range(9) if Example(k).add)
    example = Example(seed)
    r = recorded(example.run, *example.arrays)
    steps = [s for s in planned(monkeypatch, form, r).steps if isinstance(s, KernelStep)]
    failing = [s for s in steps if any(isinstance(x, Fail) for x in statements(s.kernel.body))]
    assert failing
    for s in failing:
        bounds = index_bounds(s)
        assert bounds is not None
        assert {b.buffer.kind for b in bounds} == {"input"}


def test_sums_of_collected_pieces_have_numpys_order(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    v, at = rng.normal(size=(64, 3)).astype(np.float32), rng.integers(0, 4, 64)

    def f(v: Any, at: Any) -> Any:
        y = np.zeros((4, 3), np.float32)
        np.add.at(y, at, v)
        return y

    r = recorded(f, v, at)
    for form in (ScatterForm.COMPARED, ScatterForm.LISTED):
        (got,) = PlanRunner(planned(monkeypatch, form, r, many=512))(
            [np.asarray(a) for a in r.arrays]
        )
        np.testing.assert_array_equal(got, f(v, at))


# -- few places --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "axis", "width"), [((7,), 0, 1), ((2, 3, 2), 1, 1), ((3, 4, 1), 0, 2)]
)
@pytest.mark.parametrize("fresh", [False, True])
def test_sums_at_few_places_are_folds(
    shape: Any, axis: int, width: int, fresh: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_places, "PIECES", 4)
    rng = np.random.default_rng(2)
    x, v = rng.normal(size=shape), rng.normal(size=(*shape[:axis], 5, 4, *shape[axis + width :]))
    at = [rng.integers(-n, n, (5, 4)) for n in shape[axis : axis + width]]

    def f(x: Any, v: Any, *at: Any) -> Any:
        y = np.zeros_like(x) if fresh else x * x
        np.add.at(y, (*(slice(None),) * axis, *at), np.exp(v))
        return y * 2.0

    r = recorded(f, x, v, *at)
    new_plan = plan(r.program, target=GPU)
    assert not any(isinstance(v.primitive, ScatterND) for s in new_plan.steps for v in s.values)
    arrays = [np.asarray(a) for a in r.arrays]
    (got,) = PlanRunner(new_plan)(arrays)
    close(got, r.leaves[0], 1e-12)
    arrays[2] = np.full((5, 4), shape[axis])
    with pytest.raises(FailedError):
        PlanRunner(new_plan)(arrays)


# -- processors --------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_threads_of_a_processor_share_slices(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatter, "SHARED", 2)
    monkeypatch.setattr(scatter, "COLUMNS", 2)
    monkeypatch.setattr(scatter, "BLOCKS", 2)
    example = Example(seed)
    r = recorded(example.run, *example.arrays)
    new_plan = plan(r.program, target=CpuTarget(small=1))
    got = PlanRunner(new_plan)([np.asarray(a) for a in r.arrays])
    for one, expected in zip(got, r.leaves, strict=True):
        close(one, expected, 1e-5 if example.x.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    ("shape", "axis"), [((50, 40, 30), 0), ((50, 40, 30), 1), ((50, 40, 30), 2), ((50, 3000), 0)]
)
def test_scatters_on_a_processor_are_parallel(shape: Any, axis: int) -> None:
    x = np.ones(shape)
    at = np.arange(0, shape[axis], 2)
    r = recorded(adarray.grad(lambda x: np.sum(np.take(x, at, axis=axis) ** 2)), x)
    kernels = [s.kernel for s in plan(r.program).steps
               if isinstance(s, KernelStep)
               and any(isinstance(v.primitive, ScatterND) for v in s.values)]  # fmt: skip
    assert isinstance(kernels[-1].body[-1], For)
    assert kernels[-1].body[-1].kind == "parallel"


# -- the choice --------------------------------------------------------------------------------


def taken(shape: tuple[int, ...], axis: int, count: int) -> list[KernelStep]:
    """Return the kernels of the gradient of elements that are taken along an axis."""
    x = np.broadcast_to(np.float32(1), shape)
    at = np.zeros(count, np.int64)
    size = math.prod(shape) // shape[axis] * count
    v = np.broadcast_to(np.float32(1), (*shape[:axis], count, *shape[axis + 1 :]))
    assert size == v.size

    def f(x: Any, v: Any, at: Any) -> Any:
        return adarray.vjp(lambda x: np.take(x, at, axis=axis), x)[1](v)

    r = recorded(f, x, v, at)
    return [s for s in plan(r.program, target=GPU).steps
            if isinstance(s, KernelStep)
            and any(isinstance(y.primitive, ScatterND) for y in s.values)]  # fmt: skip


def shapes() -> list[tuple[tuple[int, ...], int, int]]:
    """Return random shapes of up to some million elements, the indexed axis, and indices."""
    choice = random.Random(3)
    examples = []
    while len(examples) < 30:
        axes = choice.randrange(1, 4)
        total = 10 ** choice.uniform(5, 6.3)
        parts = [choice.random() for _ in range(axes)]
        shape = tuple(max(2, round(total ** (p / sum(parts)))) for p in parts)
        axis = choice.randrange(axes)
        n = shape[axis]
        examples.append((shape, axis, max(2, choice.choice((n, n // 3, 2 * n)))))
    return examples


@pytest.mark.parametrize(("shape", "axis", "count"), shapes())
def test_threads_share_all_axes(shape: tuple[int, ...], axis: int, count: int) -> None:
    for s in taken(shape, axis, count):
        if any(n.startswith("most") for n in s.kernel.ints) and all(
            b.access != "out" for b in s.kernel.buffers
        ):
            continue  # what is left over has a thread for each piece
        schedule = schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU)
        launch = launch_of(schedule, GPU)
        threads = launch.blocks * launch.chunks * schedule.block
        moved = max(b.size for b in s.buffers)
        assert threads * 16 >= min(moved, GPU.sms * 1024), (shape, axis, count, schedule)
