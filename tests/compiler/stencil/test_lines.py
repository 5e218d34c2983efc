"""Steps of stencils on lines that a warp takes strip by strip: what kernels compute, and plans."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from random_lines import LineProgram
from recorded import recorded

import adarray
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU, GpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.planning import planner as planning
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import ColumnStrips, FlatLoops
from adarray.compiler.stencil.lines import LineKernel

RNG = np.random.default_rng(8)
LINES = replace(GPU, march=8)
SINGLE = replace(GPU, march=0)
DEVICE = GpuTarget(sms=4, threads_per_sm=512, shared_memory=8192)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
SIZES = [(1500, "float32"), (2051, "float32"), (1026, "float64")]
SHAPES = [(1500,), (5, 300), (1026,), (3, 4, 141), (2051,)]


def array(n, dtype="float32"):
    return RNG.normal(size=n).astype(dtype)


def burgers(u, steps=12):
    for _ in range(steps):
        c = u[1:-1]
        n = c - 0.1 * c * (c - u[:-2]) + 0.2 * (u[2:] - 2.0 * c + u[:-2])
        u = np.concatenate([u[:1], n, u[-1:]])
    return np.mean(u * u)


def rolled(u, steps=5):
    for _ in range(steps):
        u = u + 0.1 * np.tanh(np.roll(u, 1) + np.roll(u, -1) - 2.0 * u)
    return u


def planned(f, *args):
    return planning.plan(recorded(f, *args).program, target=LINES)


def kinds(plan):
    """Return the variants of schedules of a plan's kernels."""
    names = []
    for s in plan.steps:
        assert isinstance(s, KernelStep)
        verify(s.kernel)
        ints = dict(zip(s.kernel.ints, s.ints, strict=True))
        names.append(type(schedule_of(s.kernel, ints, SMALL)))
    return names


def with_gradient(f, args):
    """Return the recording of value and gradient, and what NumPy says in float64."""
    g = adarray.value_and_grad(f, argnums=tuple(range(len(args))))
    with adarray.use("numpy"):
        value, gradient = g(*[a.astype("float64") for a in args])
    return recorded(g, *args), [value, *gradient]


@emulated
class TestEmulated:
    """Results are those of NumPy, and of kernels for each step."""

    @staticmethod
    def same(cases, folder):
        plans = [planning.plan(r.program, target=LINES) for r, _ in cases]
        single = [planning.plan(r.program, target=SINGLE) for r, _ in cases]
        compiled = Compiled([*plans, *single], folder, DEVICE)
        for (r, expected), new, old in zip(cases, plans, single, strict=True):
            arrays = [np.asarray(a) for a in r.arrays]
            tolerance = 1e-5 if arrays[0].dtype == "float32" else 1e-12
            results = [DevicePlanRunner(p, compiled)(arrays) for p in (new, old)]
            for got, each, want in zip(*results, expected, strict=True):
                scale = tolerance * max(1.0, float(np.max(np.abs(want))))
                np.testing.assert_allclose(got, want, rtol=0, atol=scale)
                np.testing.assert_allclose(got, each, rtol=0, atol=scale)
        return plans

    def test_fixed_ends(self, tmp_path):
        cases = [with_gradient(burgers, [array(n, t)]) for n, t in SIZES]
        for plan in self.same(cases, tmp_path):
            assert ColumnStrips in kinds(plan)
            assert len(plan.steps) <= 6

    def test_every_cell_has_the_bits_of_single_steps(self, tmp_path):
        r = recorded(rolled, array(2048))
        plans = [planning.plan(r.program, target=t) for t in (LINES, SINGLE)]
        compiled = Compiled(plans, tmp_path, DEVICE)
        results = [DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays]) for p in plans]
        assert kinds(plans[0]) == [ColumnStrips]
        np.testing.assert_array_equal(*[x[0] for x in results])

    @pytest.mark.parametrize(
        "seeds", [range(4), *[pytest.param(range(k, k + 6), marks=pytest.mark.slow)
                              for k in range(4, 100, 6)]]
    )  # fmt: skip
    def test_random_programs(self, seeds, tmp_path):
        cases = []
        for seed in seeds:
            program, dtype = LineProgram(seed), ("float32", "float32", "float64")[seed % 3]
            cases.append(with_gradient(program.f, program.arguments(SHAPES[seed % 5], dtype)))
        self.same(cases, tmp_path)


class TestPlans:
    """Which steps one kernel takes."""

    def test_about_eight_steps_of_a_long_chain(self):
        plan = planned(lambda u: rolled(u, 50), array(1 << 20))
        assert set(kinds(plan)) == {ColumnStrips}
        assert len(plan.steps) <= 7

    def test_a_short_line_takes_a_kernel_for_each_step(self):
        assert ColumnStrips not in kinds(planned(rolled, array(1000)))

    def test_cells_far_away(self):
        def f(u):
            for _ in range(3):
                u = u + 0.1 * np.roll(u, 50)
            return u

        assert ColumnStrips not in kinds(planned(f, array(4096)))

    def test_one_cell_for_all(self):
        """What all cells read of a step must be computed before."""

        def f(u):
            for _ in range(3):
                u = u + 0.1 * np.roll(u, 1) * u[5]
            return u

        assert ColumnStrips not in kinds(planned(f, array(4096)))

    def test_what_is_not_of_the_line_runs_behind(self):
        def f(u):
            scans = []
            for _ in range(6):
                u = u + 0.1 * np.roll(u, 1) * u
                scans.append(np.cumsum(u))
            return (u, *scans)

        plan = planned(f, array(1 << 16))
        assert kinds(plan)[0] is ColumnStrips
        assert kinds(plan).count(ColumnStrips) == 1

    def test_sums_of_what_a_line_computes_have_a_kernel(self):
        plan = planned(lambda u: np.sum(rolled(u) * u), array(1 << 16))
        assert kinds(plan) == [ColumnStrips, FlatLoops]

    def test_lines_of_several_axes(self):
        def f(u):
            for _ in range(6):
                u = u + 0.1 * np.tanh(np.roll(u, 1, axis=-1) - u)
            return u

        assert kinds(planned(f, array((40, 30, 200)))) == [ColumnStrips]
        assert ColumnStrips not in kinds(planned(f, array((400, 300, 20))))

    def test_steps_that_do_not_fit_after_all(self, monkeypatch):
        monkeypatch.setattr(LineKernel, "valid", False)
        plan = planned(rolled, array(4096))
        assert ColumnStrips not in kinds(plan)
        assert len(plan.steps) > 1

    def test_equal_kernels(self):
        plan = planned(lambda u: rolled(u, 64), array(1 << 20))
        assert len({s.kernel for s in plan.steps}) <= 2 < len(plan.steps)
