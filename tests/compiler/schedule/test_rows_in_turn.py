"""Rows that blocks would take in turn: folds of folds, of several axes, beside sums over rows."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, emulated_agree
from recorded import recorded

import adarray
from adarray.compiler.fusion import turns
from adarray.compiler.ir.affine import slope
from adarray.compiler.ir.loopir import For, Let, Store, integer, statements
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels import loop_nests
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import sum_stages
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.model import BANDWIDTH
from adarray.compiler.schedule.gpu.span import span_of

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
FOLDS: tuple[Callable[..., Any], ...] = (np.max, np.sum, np.mean, np.min, np.var)


def program(seed: int) -> tuple[Callable[[Any], Any], int]:
    """Return a function of an array, and of how many axes that is."""
    rng = random.Random(seed)
    ndim = rng.choice((3, 3, 4))
    kind = rng.choice(("of folds", "of centred rows", "beside"))
    first = rng.randrange(ndim - (kind == "of folds"))
    fold, then = rng.choice(FOLDS[1:]), rng.choice(FOLDS)
    others = [a for a in range(ndim) if a != first]
    over = rng.choice(others)
    several = tuple(sorted(rng.sample(range(1, ndim), 2)))

    def f(x: Any) -> Any:
        if kind == "of centred rows":
            a = x - np.mean(x, axis=-1, keepdims=True)
            b = then(np.exp(-a * a) / (1.0 + np.abs(a)), axis=several)
        else:
            b = np.exp(-(fold(np.tanh(x), axis=first) ** 2))
            if kind == "of folds":
                b = then(b, axis=over - (over > first))
            else:
                b = np.mean(b) * then(np.tanh(x), axis=over) + np.mean(x)
        return np.mean(np.exp(-b * b))

    return f, ndim


def shape_of(rng: random.Random, ndim: int, elements: int) -> tuple[int, ...]:
    """Return lengths of axes, of about so many elements."""
    parts = [rng.uniform(0.4, 1.0) for _ in range(ndim)]
    return tuple(max(2, round(elements ** (p / sum(parts)))) for p in parts)


def stencil(x: Any) -> Any:
    """Return a mean of steps along two axes, whose last one is short and folded alone."""
    a = np.tanh(x)
    for _ in range(2):
        around = sum(np.roll(a, d, axis=k) for d in (1, -1) for k in (0, 1))
        a = a + 0.1 * a * np.tanh(around - 4.0 * a)
    b = a / np.sqrt(np.mean(a * a, axis=2, keepdims=True) + 0.01)
    c = np.tanh(b)
    return np.mean((c / np.sqrt(np.mean(c * c, axis=1, keepdims=True) + 0.01)) ** 2)


def kernels(p: Plan) -> Iterator[KernelStep]:
    return (s for s in p.steps if isinstance(s, KernelStep))


@emulated
@pytest.mark.parametrize(
    "batch", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 5))]
)
def test_values_are_those_of_numpy(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every fold that can have a kernel of its own has one, and all have stages that can."""
    for name, value in {"TURN": 1.0, "FOLDED": 1.0, "SHORT": 6, "MUCH": 2}.items():
        monkeypatch.setattr(turns, name, value)
    for name, value in {"LARGE": 64, "ROW": 3}.items():
        monkeypatch.setattr(sum_stages, name, value)
    cases = []
    for seed in range(12 * batch, 12 * batch + 12):
        f, ndim = program(seed)
        rng = random.Random(-seed - 1)
        x = np.random.default_rng(seed).normal(size=shape_of(rng, ndim, 1200)).astype(np.float32)
        r = recorded(adarray.value_and_grad(f), x)
        cases.append((r, plan(r.program, target=SMALL)))
    x = np.random.default_rng(batch).normal(size=(9, 40 + batch, 5)).astype(np.float32)
    r = recorded(adarray.value_and_grad(stencil), x)
    cases.append((r, plan(r.program, target=SMALL)))
    emulated_agree(cases, tmp_path, 2e-4)


def spans(p: Plan) -> list[tuple[float, float]]:
    """Return for each kernel the seconds that threads wait in turn, and those for its bytes."""
    times = []
    for step in kernels(p):
        s = schedule_of(step.kernel, dict(zip(step.kernel.ints, step.ints, strict=True)), GPU)
        moved = sum(b.size * b.dtype.itemsize for b in set(step.buffers))
        times.append((span_of(s, launch_of(s, GPU), GPU), moved / BANDWIDTH))
    return times


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: np.mean(np.max(np.sqrt(np.var(x, axis=1) + 0.1), axis=0)), (16, 512, 20, 45)),
        (lambda x: np.mean(np.min(np.exp(-np.var(x, axis=1)), axis=0) ** 2), (12, 700, 300)),
        (lambda x: np.mean(np.var(np.mean(x * x, axis=2), axis=0)), (9, 40, 800, 50)),
        (
            lambda x: np.mean(np.max(x - np.mean(x, axis=-1, keepdims=True), axis=(1, 2)) ** 2),
            (300, 48, 130),
        ),
        (
            lambda x: np.mean(np.var(np.exp(x) / np.sum(np.exp(x), -1, keepdims=True), (1, 2))),
            (400, 50, 100),
        ),
    ],
)
def test_no_kernel_waits_longer_than_memory_takes(f: Any, shape: tuple[int, ...]) -> None:
    """Each is done within two launches, or twice the time of its bytes, which are not many more."""
    program = recorded(adarray.value_and_grad(f), np.zeros(shape, np.float32)).program
    times = spans(plan(program, target=GPU))
    assert all(span < 1e-5 + 2 * memory for span, memory in times)
    assert sum(memory for _, memory in times) < 10 * 4 * np.prod(shape) / BANDWIDTH


def test_a_fold_of_rows_and_a_sum_over_them_share_a_kernel_where_there_are_rows_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums of columns beside folds of rows, as in the gradient of a layer norm with a gain."""

    def normed(x: Any, w: Any) -> Any:
        a = x - np.mean(x, axis=-1, keepdims=True)
        return np.mean(np.tanh(a / np.sqrt(np.mean(a * a, axis=-1, keepdims=True) + 0.01) * w))

    arguments = np.zeros((8, 500, 256), np.float32), np.zeros(256, np.float32)
    program = recorded(adarray.value_and_grad(normed, argnums=(0, 1)), *arguments).program
    count = len(plan(program, target=GPU).steps)
    monkeypatch.setattr(turns, "_keeps_rows_few", lambda *_: False)
    assert len(plan(program, target=GPU).steps) == count


@pytest.mark.parametrize("shape", [(17, 9000, 6), (9, 20001, 5), (40, 12000, 3)])
def test_stencils_with_short_last_axes_go_along_memory(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads store side by side, not along the first axis, whose rows are far apart."""
    program = recorded(adarray.value_and_grad(stencil), np.zeros(shape, np.float32)).program
    assert not across(plan(program, target=GPU))
    monkeypatch.setattr(loop_nests.LoopNests, "_continues", lambda *_: False)
    assert across(plan(program, target=GPU))


def across(p: Plan) -> int:
    """Return how many stores of vector loops, not of folds, go across memory."""
    count = 0
    for step in kernels(p):
        lets = {s.name: s.value for s in statements(step.kernel.body) if isinstance(s, Let)}
        names = {b.name for b in step.kernel.buffers}
        for loop in statements(step.kernel.body):
            if isinstance(loop, For) and loop.kind == "vector":
                stored = [s for s in loop.body if isinstance(s, Store) and s.buffer in names]
                count += sum(
                    slope(s.index, loop.var, lets, usually=True) != integer(1) for s in stored
                )
    return count
