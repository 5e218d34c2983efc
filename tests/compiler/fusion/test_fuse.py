"""What becomes one kernel, and what the plan says of it."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.domains import AffineIndex, decompose, linear, substitute
from adarray.compiler.ir.loopir import For, statements
from adarray.compiler.ir.plan import Buffer, KernelStep, MatmulStep
from adarray.compiler.ir.program import c_strides
from adarray.compiler.planning.buffers import Arena, place_buffers
from adarray.compiler.planning.planner import plan

RNG = np.random.default_rng(5)


def planned(f, *args, gradient=True):
    """Return the plan of a function's value, and of its gradient by all its arguments."""
    if gradient:
        f = adarray.value_and_grad(f, argnums=tuple(range(len(args))))
    return plan(recorded(f, *args).program)


def kernels(new_plan):
    return [s for s in new_plan.steps if isinstance(s, KernelStep)]


def large(new_plan):
    """Return the kernels that run over more than a few numbers."""
    return [s for s in kernels(new_plan) if any(b.size > 64 for b in s.buffers)]


def bytes_written(new_plan):
    return sum(
        b.size * b.dtype.itemsize
        for s in kernels(new_plan)
        for p, b in zip(s.kernel.buffers, s.buffers, strict=True)
        if p.access != "in"
    )


class TestOneKernel:
    def test_value_and_gradient_of_a_sum(self):
        def chain(x):
            return np.sum(np.sin(x) * np.exp(-x * x) + np.log1p(x * x))

        x = RNG.normal(size=10_000)
        new_plan = planned(chain, x)
        assert len(new_plan.steps) == 1
        assert new_plan.arena == 0
        loops = [s for s in statements(new_plan.steps[0].kernel.body) if isinstance(s, For)]
        assert [s.kind for s in loops] == ["vector"]

    def test_softmax_cross_entropy(self):
        labels = RNG.integers(0, 300, 64)

        def loss(x):
            x = x - np.max(x, axis=1, keepdims=True)
            norm = np.log(np.sum(np.exp(x), axis=1))
            return np.mean(norm - x[np.arange(len(labels)), labels])

        x = RNG.normal(size=(64, 300))
        new_plan = planned(loss, x)
        assert len(large(new_plan)) == 1
        assert bytes_written(new_plan) <= x.nbytes + 64

    def test_layer_norm_with_the_gradients_of_scale_and_shift(self):
        def norm(x, scale, shift):
            centred = x - np.mean(x, axis=1, keepdims=True)
            variance = np.mean(centred * centred, axis=1, keepdims=True)
            return np.mean(np.tanh(centred / np.sqrt(variance + 1e-5) * scale + shift) ** 2)

        x = RNG.normal(size=(64, 200))
        new_plan = planned(norm, x, RNG.normal(size=200), RNG.normal(size=200))
        assert len(large(new_plan)) == 1

    def test_products_with_one_matrix(self):
        x, y = RNG.normal(size=(300, 40)), RNG.normal(size=300)

        def loss(w):
            return np.mean(np.tanh(x @ w - y) ** 2)

        new_plan = planned(loss, RNG.normal(size=40))
        assert not any(isinstance(s, MatmulStep) for s in new_plan.steps)
        assert len(large(new_plan)) == 1

    def test_all_pairs_without_a_matrix_of_them(self):
        def energy(x, y):
            d = (x[:, None] - x[None, :]) ** 2 + (y[:, None] - y[None, :]) ** 2
            return np.sum(1.0 / np.sqrt(d + 0.01))

        new_plan = planned(energy, RNG.normal(size=100), RNG.normal(size=100))
        assert all(b.size <= 100 for s in kernels(new_plan) for b in s.buffers)

    def test_small_arrays_of_different_shapes(self):
        def f(x, w):
            x = x / np.sqrt(np.sum(x * x))
            return np.sum(np.tanh(x[1:] - x[:-1])) + np.sum(w.T * x)

        new_plan = planned(f, RNG.normal(size=10), RNG.normal(size=(10, 3)))
        assert len(new_plan.steps) == 1

    def test_many_operations_on_few_numbers(self):
        def f(x):
            for _ in range(100):
                x = np.sin(x) * 1.01
            return np.sum(x)

        assert len(planned(f, RNG.normal(size=32)).steps) == 1


class TestSeveralKernels:
    def test_a_chain_of_neighbours_is_computed_once(self):
        """Fusing across `roll` without a limit would recompute exponentially."""

        def f(u):
            for _ in range(10):
                u = u + 0.1 * np.roll(u, 1) - 0.1 * np.roll(u, -1)
            return np.sum(u * u)

        new_plan = planned(f, RNG.normal(size=5000))
        assert 10 <= len(new_plan.steps) <= 32

    def test_cheap_values_are_computed_again_rather_than_stored(self):
        def rosenbrock(x):
            return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)

        x = RNG.normal(size=5000)
        new_plan = planned(rosenbrock, x)
        assert len(new_plan.steps) <= 2
        assert new_plan.arena == 0

    def test_equal_steps_share_a_kernel(self):
        w = RNG.normal(size=(64, 64))

        def f(x):
            for _ in range(20):
                x = np.tanh(x @ w + 1.0)
            return np.sum(x)

        new_plan = planned(f, RNG.normal(size=(64, 64)))
        assert len({id(s.kernel) for s in kernels(new_plan)}) <= 6 < len(kernels(new_plan))

    def test_the_plan_says_why_neighbours_are_apart(self):
        def f(x):
            return np.sum(np.exp(x) / np.sum(np.exp(x)))

        new_plan = planned(f, RNG.normal(size=5000), gradient=False)
        reasons = {n.reason for n in new_plan.notes}
        assert "it needs a result of the whole kernel" in reasons


class TestBuffers:
    def test_lives_that_do_not_meet_share_memory(self):
        w = RNG.normal(size=(64, 64))

        def f(x):
            for _ in range(20):
                x = np.sort(x @ w, axis=0)
            return x

        x = RNG.normal(size=(64, 64))
        assert planned(f, x, gradient=False).arena <= 3 * x.nbytes

    def test_best_fit(self):
        arena = Arena()
        a, b, c, d = (arena.take(n) for n in (256, 64, 128, 64))
        arena.release(a, 256)
        arena.release(c, 128)
        assert arena.take(128) == c
        assert arena.take(64) == a
        arena.release(b, 64)
        assert arena.take(256) == a + 64
        arena.release(d, 64)
        assert arena.size == 512

    def test_a_stretch_lies_in_its_whole(self):
        f = np.dtype(np.float64)
        whole, part, other = (Buffer("temp", f, n) for n in (64, 16, 16))
        step = KernelStep(None, (part, other), (), (), 0.0)
        last = KernelStep(None, (whole,), (), (), 0.0)
        place_buffers([step, last], [whole, part, other], (), {part: (whole, 128)})
        assert part.offset == whole.offset + 128
        assert other.offset >= whole.offset + 512 or other.offset + 128 <= whole.offset


class TestDomains:
    @pytest.mark.parametrize(
        "look",
        [
            lambda x: x.T, lambda x: x[1:, ::-2], lambda x: x[::2, 3], lambda x: x[None, 2],
            lambda x: np.broadcast_to(x[:, :1], (4, 6)),
            lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, axis=1),
        ],
    )  # fmt: skip
    def test_views_are_maps_of_indices(self, look):
        base = np.arange(24).reshape(4, 6)
        view = look(base)
        strides = tuple(
            s // 8 if n > 1 else 0 for s, n in zip(view.strides, view.shape, strict=True)
        )
        maps = decompose(int(view.flat[0]), strides, view.shape, base.shape)
        for index in np.ndindex(view.shape):
            at = tuple(m.const + sum(c * index[a] for a, c in m.terms) for m in maps)
            assert base[at] == view[index]
        whole = linear(maps, c_strides(base.shape))
        assert whole.const == view.flat[0]

    def test_what_runs_over_the_end_of_a_row_is_none(self):
        assert decompose(0, (1,), (12,), (3, 4)) is None
        assert decompose(2, (1,), (3,), (3, 4)) is None

    def test_substitution(self):
        outer = (AffineIndex(1, ((0, 2), (1, 1))),)
        inner = (AffineIndex(3, ((1, 1),)), AffineIndex(0, ((0, -1),)))
        assert substitute(outer, inner) == (AffineIndex(7, ((0, -1), (1, 2))),)
