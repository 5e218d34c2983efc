"""Small kernels that run as one: which may, in which order, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_runner import PlanRunner
from random_programs import seeded
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import For, Kernel, Load, Param, Store, Var, integer
from adarray.compiler.ir.plan import Buffer, KernelStep, MatmulStep, Operand
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning.launches import PARTS, Launches

F = np.dtype(np.float32)
RNG = np.random.default_rng(11)


def buffer(n=100, kind="temp", index=-1):
    return Buffer(kind, F, n, index)


def copy(kind="vector"):
    """Return a kernel that copies n elements."""
    i = Var("int64", "i")
    body = (Store("out", i, Load("float32", "x", i)),)
    loop = For("i", integer(0), Var("int64", "n"), body, kind)
    params = (Param("x", "float32"), Param("out", "float32", "out"))
    return Kernel(params, ("n",), (), (loop,))


def step(x, out, kernel=None):
    return KernelStep(kernel or copy(), (x, out), (x.size,), (), 1.0)


def dot(a, b, out):
    return MatmulStep(*(Operand(x, 0, (10, 10), (10, 1)) for x in (a, b, out)), ())


def joined(steps, most=1 << 20, inside=None):
    buffers = [b for s in steps if isinstance(s, KernelStep) for b in s.buffers]
    return Launches(most, buffers, inside or {}).run(steps)


def written(steps):
    """Return what each step writes."""
    return [
        [b for p, b in zip(s.kernel.buffers, s.buffers, strict=True) if p.access != "in"]
        if isinstance(s, KernelStep)
        else [s.out.buffer]
        for s in steps
    ]


class TestOrder:
    """Which kernels are joined, and where they run."""

    def test_kernels_that_need_nothing_of_each_other_run_last_as_one(self):
        a, b, c, d, e = (buffer() for _ in range(5))
        product = dot(a, a, e)
        launches = joined([step(a, b), product, step(c, d)])
        assert written(launches) == [[e], [b, d]]
        assert launches[0] is product
        assert launches[1].ints == (100, 100)
        assert launches[1].work == 2.0
        verify(launches[1].kernel)

    def test_a_kernel_runs_before_what_reads_it(self):
        a, b, c, d, e = (buffer() for _ in range(5))
        launches = joined([step(a, b), step(a, c), dot(b, b, d), step(a, e)])
        assert written(launches) == [[b], [d], [c, e]]

    def test_a_kernel_runs_before_what_it_reads_is_overwritten(self):
        a, b, c = (buffer() for _ in range(3))
        launches = joined([step(a, b), dot(c, c, a), step(c, buffer())])
        assert written(launches)[0] == [b]

    def test_a_kernel_runs_before_its_result_is_overwritten(self):
        a, b, c = (buffer() for _ in range(3))
        launches = joined([step(a, b), dot(c, c, b)])
        assert written(launches) == [[b], [b]]

    def test_a_kernel_that_reads_another_ones_result_follows_it(self):
        a, b, c = (buffer() for _ in range(3))
        launches = joined([step(a, b), step(b, c)])
        assert written(launches) == [[b], [c]]

    def test_memory_of_a_donated_argument_is_the_arguments(self):
        args, out = buffer(kind="input", index=3), buffer(kind="output", index=0)
        out.donor = 3
        a, b = buffer(), buffer()
        launches = joined([step(args, a), step(b, out)])
        assert written(launches) == [[a], [out]]

    def test_memory_inside_of_other_memory_is_the_others(self):
        whole, part, a, b = buffer(200), buffer(), buffer(), buffer()
        launches = joined([step(whole, a), step(b, part)], inside={part: (whole, 0)})
        assert written(launches) == [[a], [part]]

    def test_large_kernels_and_such_with_rows_stay_alone(self):
        a, b, c, d = buffer(), buffer(), buffer(), buffer()
        assert len(joined([step(a, b), step(c, d)], most=800)) == 1
        assert len(joined([step(a, b), step(c, d)], most=799)) == 2
        rows = copy("parallel")
        assert len(joined([step(a, b, rows), step(c, d, rows)])) == 2

    def test_so_many_at_most(self):
        steps = [step(buffer(), buffer()) for _ in range(2 * PARTS + 1)]
        assert [len(w) for w in written(joined(steps))] == [PARTS, PARTS, 1]

    def test_the_same_kernels_are_joined_into_one_object(self):
        kernel = copy()
        steps = [step(buffer(), buffer(), kernel) for _ in range(2 * PARTS)]
        first, second = joined(steps)
        assert first.kernel is second.kernel
        names = [p.name for p in first.kernel.buffers]
        assert len(set(names)) == len(names) == 2 * PARTS

    def test_streams_are_kept(self):
        kernel = copy()
        past = replace(kernel, buffers=(kernel.buffers[0], replace(kernel.buffers[1], stream=True)))
        (launches,) = joined([step(buffer(), buffer()), step(buffer(), buffer(), past)])
        assert [p.stream for p in launches.kernel.buffers] == [False, False, False, True]


def network(w1, b1, w2, b2, x, targets):
    hidden = np.maximum(x @ w1 + b1, 0.0)
    scores = hidden @ w2 + b2
    scores = scores - np.max(scores, axis=1, keepdims=True)
    return np.mean(np.log(np.sum(np.exp(scores), axis=1)) - np.sum(scores * targets, axis=1))


def descent(*arrays):
    value, slopes = adarray.value_and_grad(network, argnums=(0, 1, 2, 3))(*arrays)
    return value, tuple(p - 0.01 * s for p, s in zip(arrays, slopes, strict=False))


def parameters(batch, n, width, classes):
    shapes = (n, width), (width,), (width, classes), (classes,), (batch, n)
    targets = np.eye(classes, dtype=F)[np.arange(batch) % classes]
    return *(RNG.normal(size=s).astype(F) / 9 for s in shapes), targets


def checked(r, target):
    """Return the plan of a recording, after it was compared with the interpreter."""
    arrays = [np.asarray(a) for a in r.arrays]
    new_plan = planning.plan(r.program, target=target)
    for s in new_plan.steps:
        if isinstance(s, KernelStep):
            verify(s.kernel)
    expected = interpret(r.program, arrays)
    for got, want in zip(PlanRunner(new_plan)(arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)
    return new_plan


class TestPlans:
    """Plans of whole programs."""

    def test_updates_of_biases_are_one_kernel(self):
        r = recorded(descent, *parameters(400, 90, 80, 10))
        new_plan = planning.plan(r.program, target=GPU)
        assert len(new_plan.steps) < len(
            planning.plan(r.program, target=replace(GPU, merged_bytes=0)).steps
        )
        sizes = [
            [b.size for p, b in zip(s.kernel.buffers, s.buffers, strict=True) if p.access != "in"]
            for s in new_plan.steps
            if isinstance(s, KernelStep)
        ]
        assert {1, 10, 80} <= set(sizes[-1])  # the mean, and both biases

    def test_a_step_of_gradient_descent(self):
        new_plan = checked(recorded(descent, *parameters(8, 30, 20, 5)), GPU)
        assert any(len(s.kernel.ints) > 1 for s in new_plan.steps if isinstance(s, KernelStep))

    def test_processors_join_nothing(self):
        assert CPU.merged_bytes == 0

    @pytest.mark.parametrize("seed", [1, 2, 4, 5, 6, 7, 8, 10])
    def test_random_programs(self, seed):
        program = seeded(seed)
        checked(recorded(program.function("f"), *program.args(0)), GPU)
