"""Convolutions by slices on a GPU: the gradients of image and weights are a few kernels each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convolutions import convolve, random_convolution
from device_plans import SMALL, emulated_agree
from recorded import agrees, recorded

import adarray
from adarray.compiler.ir.loopir import For, Let, Load, statements, walk
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning.planner import plan
from adarray.compiler.print_cuda.printer import source
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.loops import crossed, crossing
from adarray.compiler.schedule.gpu.schedules import Schedule
from adarray.compiler.schedule.vectors import expressions

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
ALL = (0, 1, 2)


@emulated
@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (8, 16))])
def test_random_convolutions_have_numpys_results(first: int, tmp_path: Path) -> None:
    cases = []
    for seed in range(first, first + 8):
        c = random_convolution(seed)
        r = recorded(adarray.value_and_grad(c.function, argnums=ALL), *c.arguments)
        agrees(r)
        cases.append((r, plan(r.program, target=SMALL)))
    emulated_agree(cases, tmp_path, 4e-4)


def squares(x: Any, w: Any) -> Any:
    a = convolve(np.maximum(x, 0.1), w, (1,) * w.ndim)
    return np.mean(a * a)


def transposed(x: Any, w: Any) -> Any:
    a = convolve(np.swapaxes(np.tanh(x), 0, 2), w, (1,) * w.ndim)
    return np.mean(a * a)


def kernels(f: Any, shape: tuple[int, ...], window: tuple[int, ...]) -> list[KernelStep]:
    """Return the kernels of a value and its gradients."""
    x, w = np.ones(shape, np.float32), np.ones(window, np.float32)
    program = recorded(adarray.value_and_grad(f, argnums=(0, 1)), x, w).program
    return [s for s in plan(program, target=GPU).steps if isinstance(s, KernelStep)]


def schedule(step: KernelStep) -> Schedule:
    return schedule_of(step.kernel, dict(zip(step.kernel.ints, step.ints, strict=True)), GPU)


SHAPES = [
    ((70, 4099), (3, 3)), ((4000, 37), (3, 3)), ((300, 31, 45), (3, 3, 3)), ((100003,), (7,)),
    ((40, 30, 500), (5, 3)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "window"), SHAPES)
def test_the_image_is_read_and_written_a_few_times(
    shape: tuple[int, ...], window: tuple[int, ...]
) -> None:
    """No update lies in memory between two taps, and no multiple of a gradient."""
    large = [
        [b for b in dict.fromkeys(s.buffers) if 2 * b.size > np.prod(shape)]
        for s in kernels(squares, shape, window)
    ]
    assert sum(map(bool, large)) == 2  # the sums, and the gradient of the image
    assert sum(map(len, large)) <= 5


@pytest.mark.parametrize(("shape", "window"), SHAPES)
def test_what_is_dear_is_not_computed_at_each_tap(
    shape: tuple[int, ...], window: tuple[int, ...]
) -> None:
    taps = int(np.prod(window))
    for step in kernels(squares, shape, window):
        loops = (s for s in statements(step.kernel.body) if isinstance(s, For))
        most = max((sum(isinstance(x, Let) for x in s.body) for s in loops), default=0)
        assert most <= 12 * taps + 24


@pytest.mark.parametrize(("shape", "window"), SHAPES)
def test_sums_of_all_weights_end_together(shape: tuple[int, ...], window: tuple[int, ...]) -> None:
    """Threads wait, and blocks count themselves, once for all sums."""
    totals = 0
    for step in kernels(squares, shape, window):
        text, numbers = source(schedule(step)).text, len(step.kernel.totals)
        if numbers > 1:
            totals += numbers
            assert text.count("adarray_is_last(") == 1
            assert "adarray_last<" not in text
    assert totals == 1 + np.prod(window)


def normalised(x: Any, w: Any) -> Any:
    a = convolve(x, w, (1,) * w.ndim)
    a = a / np.sqrt(np.mean(a * a, axis=-1, keepdims=True) + 0.1)
    return np.mean((a[:, 2:] + 2.0 * a[:, 1:-1] - a[:, :-2]) ** 2)


def test_sums_that_several_loops_need_are_stored() -> None:
    """No loop computes the sum from all its slices at each place where it needs it."""
    x, w = np.ones((700, 6000), np.float32), np.ones((3, 3), np.float32)
    program = recorded(normalised, x, w).program
    steps = [s for s in plan(program, target=GPU).steps if isinstance(s, KernelStep)]
    loops = [
        sum(isinstance(e, Load) for x in statements(s.body) for r in expressions(x)
            for e in walk(r))
        for step in steps for s in statements(step.kernel.body)
        if isinstance(s, For) and s.kind == "vector"
    ]  # fmt: skip
    assert max(loops) == 9  # 27 where it is computed at each of three places
    assert sum(loops) <= 21


def test_neighbours_in_any_row_are_loaded_once() -> None:
    """Each row of the window is a pack and what lies beside it."""
    (first, *_) = kernels(squares, (70, 4099), (3, 3))
    text = source(schedule(first)).text
    assert text.count("adarray_load_each(") == 3
    assert "adarray_load(" not in text


def test_transposed_images_are_read_as_they_lie() -> None:
    """Neighbouring threads read and write neighbours, of the sums and of the gradient."""
    large = [
        s for s in kernels(transposed, (90, 31, 800), (3, 3))
        if max(b.size for b in s.buffers) > 500_000
    ]  # fmt: skip
    assert len(large) <= 3
    assert sum(b.size > 500_000 for s in large for b in dict.fromkeys(s.buffers)) <= 7
    for step in large:
        loop = schedule(step).facts.parallel
        assert loop is None or not (crossing(loop, step.kernel) or crossed(loop, step.kernel))
