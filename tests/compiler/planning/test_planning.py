"""Plans: every kind of program against the interpreter, memory checked element by element."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from plan_runner import FailedError, PlanRunner
from random_recordings import random_recordings
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import Load, statements, walk
from adarray.compiler.ir.plan import CallStep, KernelStep
from adarray.compiler.ir.primitives import Map
from adarray.compiler.ir.target import CPU
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.kernels import copies as lower_copies
from adarray.compiler.kernels import lower, siblings
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning import shared as lower_shared
from adarray.compiler.schedule.vectors import expressions
from adarray.compiler.stencil import rings

RNG = np.random.default_rng(3)
plan = planning.plan


def plan_for(monkeypatch, **sizes):
    """Let `plan` plan for a processor with other sizes."""
    target = replace(CPU, **sizes)
    monkeypatch.setitem(globals(), "plan", partial(planning.plan, target=target))


def checked(f, *args, limit=None):
    """Plan the program of `f`, compare it with the interpreter, and return the plan."""
    r = recorded(f, *args)
    return compared(r.program, [np.asarray(a) for a in r.arrays], limit)


def compared(program, arrays, limit=None):
    expected = interpret(program, arrays)
    new_plan = plan(program, memory_limit=limit)
    for step in new_plan.steps:
        if isinstance(step, KernelStep):
            verify(step.kernel)
    for got, want in zip(PlanRunner(new_plan)(arrays), expected, strict=True):
        want = np.asarray(want)
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want)
            continue
        single = any(v.dtype == np.float32 for v in program.values)
        tight = 1e-4 if single else 1e-10
        size = np.max(np.abs(want[np.isfinite(want)]), initial=1.0)
        np.testing.assert_allclose(got, want, rtol=tight, atol=tight * size)
    return new_plan


@pytest.fixture(params=["small", "rows", "blocks"])
def form(request, monkeypatch):
    """Let kernels have each of their forms, whatever the size of arrays."""
    if request.param != "small":
        plan_for(monkeypatch, small=1, short=1 if request.param == "rows" else 1000)
        for name in ("BLOCK", "MOST", "LEAST"):
            monkeypatch.setattr(lower, name, 4)
        monkeypatch.setattr(lower_copies, "READINGS", 1)
        monkeypatch.setattr(siblings, "SHARED", 1)
        monkeypatch.setattr(siblings, "NEAR", 2)
    return request.param


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 24, 4))
def test_random_programs(form, first):
    compiled = 0
    for r in random_recordings(range(first, first + 4)):
        compared(r.program, [np.asarray(a) for a in r.arrays])
        compiled += 1
    assert compiled >= 4


class TestKinds:
    def test_regions_and_pieces(self, form):
        def f(x):
            y = x.copy()
            y[2:5, 1:] = np.sin(x[:3, :-1])
            y[::2] += x[1::2]
            return np.concatenate([y, np.roll(x, 2, 1), x[:1]], axis=0)

        checked(f, RNG.normal(size=(8, 6)))

    def test_many_pieces_are_written_in_place(self, form):
        def f(x, w):
            return np.concatenate([np.tanh(k * x) @ w for k in range(7)], axis=0)

        new_plan = checked(f, RNG.normal(size=(8, 8)), RNG.normal(size=(8, 8)))
        if form == "small":
            return
        # Products are results themselves: the join copies no piece that it can place.
        assert sum(isinstance(s, KernelStep) for s in new_plan.steps) <= 8

    def test_gathers_and_scatters(self, form):
        rows = np.array([3, -1, 0, 3])

        def f(x, v):
            y = x.copy()
            y[rows] = v
            np.add.at(y, rows, v)
            return y, x[np.arange(4), rows], x[rows]

        checked(f, RNG.normal(size=(5, 5)), RNG.normal(size=(4, 5)))

    def test_an_index_out_of_range_fails(self, form):
        r = recorded(lambda x, i: x[i] * 2.0, RNG.normal(size=5), np.array([0, 4, 2]))
        new_plan = plan(r.program)
        with pytest.raises(FailedError):
            PlanRunner(new_plan)([r.arrays[0], np.array([0, 5, 2])])

    @pytest.mark.parametrize("axis", [0, 1, 2])
    def test_scans(self, form, axis):
        checked(lambda x: np.cumsum(np.exp(x), axis=axis) * 2.0, RNG.normal(size=(3, 4, 5)))

    def test_views_as_results(self, form):
        checked(lambda x: (np.sin(x).T, np.cos(x)[1:, ::-1], np.exp(x).reshape(-1)),
                RNG.normal(size=(4, 5)))  # fmt: skip

    def test_inputs_of_any_strides(self, form):
        x = RNG.normal(size=(6, 8))
        for y in (x.T, x[::2, ::-1], x[:, 3:4], np.broadcast_to(x[0], (5, 8))):
            checked(lambda y: (np.sum(np.sin(y), axis=0), y.reshape(-1) + 1.0), y)

    def test_empty_arrays(self, form):
        checked(lambda x: (np.sum(x, axis=0), x * 2.0, np.sum(x)), np.zeros((0, 3)))

    def test_functions_that_kernels_do_not_know(self, form):
        x = RNG.normal(size=(3, 4)) + 1j
        new_plan = checked(lambda x: (x.T * 2.0, np.log(x) + 1.0), x)
        assert any(isinstance(s, CallStep) for s in new_plan.steps)

    def test_mixed_dtypes(self, form):
        def f(x, i):
            return np.where(i > 2, x.astype(np.float32), i.astype(np.float32)) + i % 3, np.sum(i)

        checked(f, RNG.normal(size=(7,)), np.arange(7))


class TestBlocks:
    @staticmethod
    def distances(x, means, scales):
        scaled = (x[:, None, :] - means) * np.exp(scales)
        return np.log(np.sum(np.exp(-np.sum(scaled * scaled, axis=2)), axis=1))

    @pytest.mark.parametrize("rows", [130, 300])
    def test_what_is_read_across_is_copied_once(self, rows):
        args = RNG.normal(size=(rows, 5)), RNG.normal(size=(7, 5)), RNG.normal(size=(7, 5))
        new_plan = checked(self.distances, *args)
        large = max((s for s in new_plan.steps if isinstance(s, KernelStep)), key=lambda s: s.work)
        params = zip(large.buffers, large.kernel.buffers, strict=True)
        (name,) = [p.name for b, p in params if b.kind == "input" and b.size == 5 * rows]
        reads = [e for e in loads(large.kernel) if e.buffer == name]
        assert len(reads) == 1

    def test_dear_small_values_are_stored(self):
        args = RNG.normal(size=(300, 5)), RNG.normal(size=(7, 5)), RNG.normal(size=(7, 5))
        new_plan = checked(self.distances, *args)
        exps = [
            sum(isinstance(v.primitive, Map) and v.primitive.name == "exp" for v in s.values)
            for s in new_plan.steps
            if isinstance(s, KernelStep)
        ]
        assert exps == [1, 1]


def loads(kernel):
    """Return the loads in a kernel."""
    return [
        e
        for s in statements(kernel.body)
        for top in expressions(s)
        for e in walk(top)
        if isinstance(e, Load)
    ]


class TestSiblings:
    @staticmethod
    def kernels(f, *args):
        return [s for s in checked(f, *args).steps if isinstance(s, KernelStep)]

    @staticmethod
    def read(kernels, nbytes):
        """Return how often kernels read arrays of that size."""
        return sum(
            b.size * b.dtype.itemsize == nbytes and p.access == "in"
            for k in kernels
            for b, p in zip(k.buffers, k.kernel.buffers, strict=True)
        )

    def test_value_and_gradient_of_slices_are_one_kernel(self):
        def f(x):
            return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

        for n in (4096, 9001):
            (kernel,) = self.kernels(adarray.value_and_grad(f), RNG.normal(size=n))
            assert self.read([kernel], 8 * n) == 1

    def test_far_slices_are_kernels_of_their_own(self):
        def f(x):
            return np.sum(x[5000:] * x[:-5000]), np.cumsum(np.exp(x))[-1] + x

        assert self.read(self.kernels(f, RNG.normal(size=10000)), 80000) > 1

    def test_what_reads_a_result_waits_for_it(self):
        def f(x):
            total = np.sum(x[1:] * x[:-1])
            return total, np.sum(x * total)

        assert len(self.kernels(f, RNG.normal(size=9000))) == 2

    def test_rows_of_several_loops(self):
        def f(x):
            top = np.max(x, axis=1, keepdims=True)
            first = np.sum(np.log(np.sum(np.exp(x - top), axis=1)))
            return first, np.sum(np.exp(x[2:] * x[:-2]), axis=1), np.sum(x[1:] * x[:-1], axis=0)

        kernels = self.kernels(f, RNG.normal(size=(100, 80)))
        assert self.read(kernels, 8 * 8000) == 1


class TestRings:
    """Several steps of a stencil in one kernel."""

    @pytest.fixture(autouse=True)
    def _narrow(self, monkeypatch):
        plan_for(monkeypatch, small=1, block=(4, 5))
        monkeypatch.setattr(rings, "LARGE", 1)
        monkeypatch.setattr(rings, "ROWS", 8)
        monkeypatch.setattr(rings, "WIDE", 4)

    @staticmethod
    def both(f, u, most):
        """Check value and gradient; return the number of steps of the value."""
        new_plan = checked(f, u)
        assert len(new_plan.steps) <= most
        checked(adarray.value_and_grad(f), u)

    def test_heat_on_a_periodic_grid(self):
        def heat(u):
            for _ in range(4):
                around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1)
                u = u + 0.1 * (around - 3.0 * u)
            return np.sum(u * u)

        self.both(heat, RNG.normal(size=(23, 6)), 1)

    def test_steps_that_read_two_rows_away_and_two_steps_back(self):
        def wave(u):
            before = 0.5 * u
            for _ in range(4):
                after = 2.0 * u - before + 0.1 * np.sin(np.roll(u, 2, 0) - np.roll(u, -1, 0))
                before, u = u, after
            return np.sum(u * before)

        self.both(wave, RNG.normal(size=(23, 6)), 4)

    def test_fixed_edges(self):
        def heat(u):
            for _ in range(4):
                v = u.copy()
                inner = u[1:-1, 1:-1]
                v[1:-1, 1:-1] = inner + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] - 2.0 * inner)
                u = v
            return np.sum(u * u)

        self.both(heat, RNG.normal(size=(23, 6)), 8)

    def test_results_on_the_way(self):
        def f(u):
            results = []
            for _ in range(3):
                u = u + 0.1 * np.sin(np.roll(u, 1, 0))
                results.append(np.sum(u))
            return (u, *results)

        assert len(checked(f, RNG.normal(size=(23, 6))).steps) == 1


def trace_of_diagonal(x, y):
    t = 0.0
    for k in range(len(x)):
        t += np.tanh(x[k, k])
    return np.sum(y * (x + t))


def forward_substitution(x, y):
    z = np.full(len(x), -1.0)
    for k in range(len(x)):
        z[k] = (y[k] - x[k, :k] @ z[:k]) / x[k, k]
    return np.sum(np.sin(z))


class TestMemory:
    @staticmethod
    def deep(x, w):
        a, b, c = np.exp(np.sin(x)), np.sin(np.exp(x)), np.tanh(np.sin(x))
        y = np.tanh(((a + b + c) @ w) @ w) @ w
        return np.sum(((y * a) @ w * b) @ w * c)

    def test_a_limit_is_kept_by_computing_again(self):
        x, w = RNG.normal(size=(20, 12)), RNG.normal(size=(12, 12))
        r = recorded(self.deep, x, w)
        free = plan(r.program).arena
        fewer = compared(r.program, [x, w], limit=free * 3 // 4)
        assert fewer.arena <= free * 3 // 4

    def test_a_limit_that_cannot_be_kept_is_reported(self):
        x, w = RNG.normal(size=(20, 12)), RNG.normal(size=(12, 12))
        with pytest.warns(RuntimeWarning, match="memory_limit: temporaries need"):
            checked(self.deep, x, w, limit=64)

    def test_an_array_filled_element_by_element_is_updated_in_place(self, monkeypatch):
        plan_for(monkeypatch, small=1)

        def f(x):
            y = np.zeros_like(x)
            for k in range(1, 9):
                y[k] = 0.5 * y[k - 1] + x[k]
            return y * 2.0

        x = RNG.normal(size=64)
        new_plan = checked(f, x)
        assert new_plan.arena <= 3 * x.nbytes

    @pytest.mark.parametrize("loop", [trace_of_diagonal, forward_substitution])
    def test_gradients_of_element_loops_write_elements_not_arrays(self, loop):
        """A write that copies the array would make n of them cost n arrays."""

        def counts(n):
            x, y = RNG.normal(size=(n, n)) + 3 * np.eye(n), RNG.normal(size=n)
            planned = checked(adarray.grad(loop), x, y)
            assert planned.arena <= 3 * x.nbytes
            assert not any(isinstance(s, CallStep) for s in planned.steps)
            whole = [
                s
                for s in planned.steps
                if isinstance(s, KernelStep) and s.work >= 0.5 * x.size and len(s.values) == 1
            ]
            return len(whole), sum(s.work for s in planned.steps if isinstance(s, KernelStep))

        few, work = counts(48)
        many, more = counts(96)
        assert few == many <= 2  # the array that the elements are written into
        assert more <= 5 * work  # as many elements as the matrix has


class TestLongPrograms:
    """Chains and loops of thousands of operations: linear, without recursion, few kernels."""

    def test_a_long_chain_in_few_kernels(self):
        def f(x):
            for _ in range(450):
                x = np.sin(x) * 0.9
            return x

        new_plan = checked(f, RNG.normal(size=8))
        assert len(new_plan.steps) <= 8
        assert len({id(s.kernel) for s in new_plan.steps if isinstance(s, KernelStep)}) <= 3

    def test_one_kernel_for_all_steps_of_a_loop(self, monkeypatch):
        """Kernels that are found again are those that would be made, integers included."""
        lowering = lower_shared.SharedKernels.lower

        def compare(self, *args):
            lowered = lowering(self, *args)
            fresh = lowering(lower_shared.SharedKernels(), *args)
            assert lowered.kernel == fresh.kernel
            assert lowered.ints == fresh.ints
            assert all(a is b for a, b in zip(lowered.buffers, fresh.buffers, strict=True))
            return lowered

        monkeypatch.setattr(lower_shared.SharedKernels, "lower", compare)

        def f(x, w):
            h = np.zeros((16, 32))
            results = []
            for t in range(12):
                h = np.tanh(x[t] + h @ w) * x[t, :, :1]
                results.append(np.sin(h))
            return np.stack(results)

        new_plan = checked(f, RNG.normal(size=(12, 16, 32)), RNG.normal(size=(32, 32)) / 8)
        steps = [s for s in new_plan.steps if isinstance(s, KernelStep)]
        assert len({id(s.kernel) for s in steps}) <= 8
        assert len(steps) > 12


class TestOnKernel:
    """What is said of kernels while the plan is being made."""

    def f(self, x, w):
        for k in range(6):
            x = np.tanh(x @ w) + k
        return np.sum(x * np.max(x, 1, keepdims=True))

    @pytest.mark.parametrize("rows", [8, 500])
    def test_all_kernels_are_found_in_time(self, rows):
        r = recorded(self.f, np.ones((rows, 40)), np.ones((40, 40)))
        kernels_seen = []
        new_plan = planning.plan(r.program, on_kernel=kernels_seen.append)
        kernels = [s.kernel for s in new_plan.steps if isinstance(s, KernelStep)]
        assert len(set(kernels)) > 1
        assert set(kernels) == set(kernels_seen)
        again = planning.plan(r.program)
        assert [s.kernel for s in again.steps if isinstance(s, KernelStep)] == kernels

    def test_small_ones_are_found_before_the_first_step(self, monkeypatch):
        r = recorded(self.f, np.ones((8, 40)), np.ones((40, 40)))
        events = []
        write = planning.Planner._write
        monkeypatch.setattr(
            planning.Planner,
            "_write",
            lambda self, group: (events.append("step"), write(self, group)),
        )
        new_plan = planning.plan(r.program, on_kernel=events.append)
        early = {id(k) for k in events[: events.index("step")]}
        assert {id(s.kernel) for s in new_plan.steps if isinstance(s, KernelStep)} == early
