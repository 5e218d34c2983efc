"""Steps of stencils that a warp takes down a column strip: plans, and what kernels compute."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from recorded import recorded
from stencils import (
    VALUED,
    by_position,
    by_truth,
    heat,
    life,
    of_two_types,
    smaller_and_smaller,
    turned_positions,
    with_a_smaller_array,
    with_all_results,
    with_coefficients,
    with_neighbours_of_coefficients,
)

import adarray
from adarray.compiler.fusion import fuse
from adarray.compiler.ir.loopir import Apply, For, Kernel, Load, Local, Param, Store, Var, integer
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning import recompute
from adarray.compiler.schedule.gpu import blocks
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import ColumnStrips
from adarray.compiler.schedule.gpu.strips import MARGIN, width
from adarray.compiler.stencil import strips

RNG = np.random.default_rng(8)
DOWN = replace(GPU, march=8)
SINGLE = replace(GPU, march=0)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(strips, "LARGE", 1)
    monkeypatch.setattr(fuse, "LAUNCH", 0)
    # Kernels for each step recompute as little as those of several.
    monkeypatch.setattr(recompute, "_read_across", lambda _: frozenset())


def array(*shape, dtype="float64"):
    return RNG.normal(size=shape).astype(dtype)


def kinds(plan):
    """Return the variants of schedules of a plan's kernels."""
    names = []
    for s in plan.steps:
        assert isinstance(s, KernelStep)
        verify(s.kernel)
        ints = dict(zip(s.kernel.ints, s.ints, strict=True))
        names.append(type(schedule_of(s.kernel, ints, SMALL)))
    return names


def planned(f, *args, target=DOWN):
    return planning.plan(recorded(f, *args).program, target=target)


@emulated
class TestEmulated:
    """Results have the bits that a kernel for each step gives."""

    @staticmethod
    def same(cases, folder, target=DOWN, together=True):
        new_plans = [planning.plan(r.program, target=target) for r in cases]
        single = [planning.plan(r.program, target=SINGLE) for r in cases]
        compiled = Compiled(
            [*new_plans, *single], folder, GpuTarget(sms=4, threads_per_sm=512, shared_memory=4096)
        )
        for r, x, y in zip(cases, new_plans, single, strict=True):
            assert ColumnStrips in kinds(x) or not together
            assert ColumnStrips not in kinds(y)
            assert len(x.steps) < len(y.steps) or not together
            arrays = [np.asarray(a) for a in r.arrays]
            results = [DevicePlanRunner(p, compiled)(arrays) for p in (x, y)]
            for got, want in zip(*results, strict=True):
                np.testing.assert_array_equal(got, want)

    @pytest.mark.slow
    @pytest.mark.parametrize("f", VALUED, ids=lambda f: f.__name__)
    def test_value_and_gradient(self, f, tmp_path):
        f = adarray.value_and_grad(f)
        # Whole packs and strips; neither; rows that no pack of a neighbour begins with.
        sizes = [((64, 132), "float32"), ((67, 301), "float32"), ((71, 69), "float64")]
        self.same([recorded(f, array(*n, dtype=t)) for n, t in sizes], tmp_path)

    @pytest.mark.slow
    @pytest.mark.parametrize("strips_", [1, 4, 40])
    def test_strips_of_any_height(self, strips_, tmp_path):
        u = array(90, 140, dtype="float32")
        target = replace(DOWN, strips=strips_, strip=(1, 100))
        self.same([recorded(adarray.value_and_grad(heat), u)], tmp_path, target)

    def test_coefficients(self, tmp_path):
        others = array(66, 131), array(131), array(66, 1), array()
        f = adarray.value_and_grad(with_neighbours_of_coefficients, (0, 1))
        self.same(
            [
                recorded(adarray.value_and_grad(with_coefficients), array(66, 131), *others),
                recorded(f, array(66, 131), others[0]),
            ],
            tmp_path,
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("columns", [140, 141])
    def test_a_smaller_array(self, columns, tmp_path):
        u, w = array(66, columns, dtype="float32"), array(64, columns - 2, dtype="float32")
        f = adarray.value_and_grad(with_a_smaller_array, (0, 1))
        self.same([recorded(f, u, w)], tmp_path)

    def test_what_is_turned_must_go_round(self, tmp_path):
        case = recorded(adarray.value_and_grad(turned_positions), array(66, 140))
        self.same([case], tmp_path, together=False)

    @pytest.mark.slow
    def test_other_values(self, tmp_path):
        u = array(65, 141, dtype="float32")
        cases = [recorded(f, u) for f in (with_all_results, by_position, by_truth)]
        cases.append(recorded(smaller_and_smaller, u))
        cases.append(recorded(life, (u > 0.5).astype(np.int32)))
        cases.append(recorded(adarray.value_and_grad(of_two_types), u))
        self.same(cases, tmp_path)


class TestPlans:
    """Which steps are taken together."""

    def test_eight_steps_a_kernel(self):
        u = array(64, 128, dtype="float32")
        plan = planned(lambda u: heat(u, 17), u)
        assert kinds(plan).count(ColumnStrips) == 2
        assert len(plan.steps) == 3

    def test_a_linear_step_keeps_nothing_for_the_gradient(self):
        plan = planned(adarray.grad(lambda u: heat(u, 9)), array(64, 128))
        written = {id(b) for s in plan.steps for b in s.buffers}
        assert len(written) <= 6

    @pytest.mark.parametrize("shape", [(64, 127), (12, 400)])
    def test_small_arrays_take_a_kernel_each(self, shape):
        assert ColumnStrips not in kinds(planned(heat, array(*shape, dtype="float32")))

    def test_arrays_of_a_strip(self, monkeypatch):
        u = array(64, 128, dtype="float32")
        assert ColumnStrips in kinds(planned(heat, u))
        monkeypatch.setattr(strips, "LARGE", u.size + 1)
        assert ColumnStrips not in kinds(planned(heat, u))

    @pytest.mark.parametrize("axis", [0, 1])
    def test_cells_far_away(self, axis):
        def f(u):
            for _ in range(3):
                u = u + np.roll(u, 5, axis) * np.roll(u, 1, 1 - axis)
            return u

        assert ColumnStrips not in kinds(planned(f, array(64, 128)))

    @pytest.mark.parametrize(
        "step",
        [
            lambda u: np.tanh(u + np.roll(u, 1, 0)),
            lambda u: sum(np.roll(u, i % 3, 0) * (u + i) for i in range(20)),
        ],
        ids=["a function", "much arithmetic"],
    )
    def test_much_work(self, step):
        def f(u):
            for _ in range(3):
                u = step(u)
            return u

        assert ColumnStrips not in kinds(planned(f, array(64, 128)))

    def test_cells_of_one_row(self):
        def f(u):
            for _ in range(3):
                u = u + np.roll(u, 1, 0) * u[3]
            return u

        assert ColumnStrips not in kinds(planned(f, array(64, 128)))

    def test_rows_in_another_order(self):
        def f(u):
            for _ in range(3):
                u = u + np.roll(u, 1, 0) * u[::-1]
            return u

        assert ColumnStrips not in kinds(planned(f, array(64, 128)))

    def test_columns_side_by_side_in_memory(self):
        u = np.asfortranarray(array(128, 128))
        plan = planned(heat, u)
        assert ColumnStrips in kinds(plan)  # but for the first step
        assert kinds(plan)[0] is not ColumnStrips

    def test_folds_end_a_chain(self):
        def f(u):
            results = []
            for _ in range(4):
                u = u + np.roll(u, 1, 0) * 0.5
                results.append(np.sum(u))
            return (u, *results)

        plan = planned(f, array(64, 128))
        assert all(k is not ColumnStrips for k in kinds(plan))


class TestSchedules:
    """How the kernels of chains run."""

    @staticmethod
    def schedule(n, **other):
        u = array(64, n, dtype="float32")
        (step,) = [s for s in planned(lambda u: heat(u, 4), u).steps if not s.kernel.totals]
        ints = dict(zip(step.kernel.ints, step.ints, strict=True))
        ints |= {n: v for n in ints for k, v in other.items() if n.startswith(k)}
        return schedule_of(step.kernel, ints, SMALL)

    def test_whole_packs(self):
        assert self.schedule(132).aligned
        assert not self.schedule(133).aligned
        assert not self.schedule(132, stride=133).aligned
        assert not self.schedule(132, columns=133).aligned

    def test_integers_of_32_bits(self):
        assert self.schedule(132).narrow
        assert self.schedule(132, rows=1 << 15, stride=1 << 14).narrow
        assert not self.schedule(132, rows=1 << 17, stride=1 << 15).narrow

    def test_blocks(self):
        schedule = self.schedule(132)
        assert isinstance(schedule, ColumnStrips)
        assert blocks.resized(schedule, 64).block == 64
        assert blocks.resized(schedule, 1024).block == 256


class TestColumns:
    """Which kernels keep rows in registers."""

    @staticmethod
    def kernel(by=0, loaded="row", size=64 + 2 * MARGIN, stop=64 + MARGIN, index=None):
        """Return a kernel that stores a row and loads from beside it."""
        j = Var("int64", "j")
        beside = Apply("int64", "add", (j, integer(by)))
        inner = For("j", integer(MARGIN), integer(stop), (
            Store("row", j, Load("float64", "a", integer(0))),
        ), "vector")  # fmt: skip
        after = For("j", integer(MARGIN), integer(stop), (
            Store("out", j, Load("float64", loaded, index or beside)),
        ), "vector")  # fmt: skip
        body = (Local("row", "float64", integer(size)), inner, after)
        loop = For("i", integer(0), integer(3), body, "parallel")
        return Kernel((Param("a", "float64"), Param("out", "float64", "out")), (), (), (loop,))

    @pytest.mark.parametrize("by", [0, 1, -1, MARGIN, -MARGIN])
    def test_cells_beside(self, by):
        assert width(self.kernel(by)) == 2

    @pytest.mark.parametrize(
        "other",
        [
            {"by": MARGIN + 1},
            {"by": -MARGIN - 1},
            {"size": 65 + 2 * MARGIN},
            {"stop": 65 + MARGIN},
            {"stop": 63 + MARGIN},
            {"loaded": "a"},  # past the end of the loop, where lanes read, too
            {"loaded": "out"},
            {"index": integer(5)},
            {"index": Apply("int64", "multiply", (Var("int64", "j"), integer(2)))},
        ],
    )
    def test_what_lanes_cannot_do(self, other):
        assert width(self.kernel(**other)) == 0
