"""Random programs of folds over any axes, with operands that are broadcast, of several dtypes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, emulated_agree
from recorded import Recorded, recorded

import adarray
from adarray.compiler.fusion import fuse, turns
from adarray.compiler.ir.loopir import For, statements
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels import rows
from adarray.compiler.planning import shared
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import sum_stages
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.loops import crossing
from adarray.compiler.schedule.gpu.schedules import RowsByWarp, Schedule, SheetRows
from adarray.compiler.schedule.gpu.span import span_of

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
LENGTHS = (1, 2, 3, 5, 6, 8, 13, 32, 37)


def shape_of(rng: random.Random) -> tuple[int, ...]:
    """Return lengths of two to four axes, of at most some thousand elements."""
    while True:
        shape = tuple(rng.choice(LENGTHS) for _ in range(rng.choice((2, 3, 3, 4))))
        if 100 <= np.prod(shape) <= 6000:
            return shape


def program(seed: int) -> tuple[Callable[..., Any], list[np.ndarray], int]:
    """Return a function, its arguments, and how many of them are differentiated."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    shape = shape_of(rng)

    def part() -> tuple[int, ...]:
        return tuple(n if rng.random() < 0.5 else 1 for n in shape)

    moved = rng.random() < 0.3
    own = (*shape[-1:], *shape[:-1]) if moved else shape
    floats = [numbers.normal(size=s).astype(np.float32) for s in (own, part(), part())]
    count = numbers.integers(-3, 4, part()).astype(rng.choice((np.int16, np.int32)))
    axes = [tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape) - 1))))
            for _ in range(3)]  # fmt: skip
    kinds = [rng.choice(("column", "softmax", "centred", "roll", "mixed")) for _ in range(2)]
    fold = rng.choice((np.sum, np.mean, np.max, np.min))

    def f(x: Any, w: Any, v: Any, k: Any) -> Any:
        x = np.moveaxis(x, 0, -1) if moved else x
        a = np.tanh((x - v) * w)
        for kind, over in zip(kinds, axes, strict=False):
            if kind == "mixed":
                a = a * (k + 1) * 0.4
            elif kind == "softmax":
                e = np.exp(a - np.max(a, axis=over, keepdims=True))
                a = e / np.sum(e, axis=over, keepdims=True)
            elif kind == "centred":
                a = a - np.log(np.mean(np.exp(a), axis=over, keepdims=True))
            elif kind == "roll":
                a = a + 0.1 * np.tanh(np.roll(a, 1, over[0]) - 2.0 * a + np.roll(a, -1, over[0]))
            else:
                a = np.tanh(a + fold(a, axis=over, keepdims=True) * v)
        b = fold(a, axis=axes[-1])
        return np.sum(b * b) + np.mean(a * x)

    return f, [*floats, count], len(floats)


def planned(seed: int, target: Any) -> tuple[Recorded, Plan]:
    """Return the recorded run of a program with its gradient, and its plan."""
    f, arguments, varied = program(seed)
    r = recorded(adarray.value_and_grad(f, argnums=tuple(range(varied))), *arguments)
    return r, plan(r.program, target=target)


BATCH = 12


@emulated
@pytest.mark.parametrize(
    ("limits", "batch"),
    [
        ("small", 0), ("usual", 1), *(
            pytest.param(limits, n, marks=pytest.mark.slow)
            for n in range(6) for limits in ("small", "usual")
            if (limits, n) not in (("small", 0), ("usual", 1))
        ),
    ],
)  # fmt: skip
def test_folds_are_those_of_numpy(
    limits: str, batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With small limits, these arrays pass those of schedules, and all loops grow that can."""
    if limits == "small":
        monkeypatch.setattr(fuse, "LONG_ROW", 16)
        monkeypatch.setattr(rows, "LONG_ROW", 16)
        monkeypatch.setattr(rows, "SIDE_BY_SIDE", 64)
        monkeypatch.setattr(shared, "SPREAD", 16)
        monkeypatch.setattr(shared, "GAIN", 0)
        monkeypatch.setattr(sum_stages, "LARGE", 64)
    cases = [planned(BATCH * batch + k, SMALL) for k in range(BATCH)]
    emulated_agree(cases, tmp_path, 2e-4)


def column_maximum(x: Any, k: Any) -> Any:
    return np.mean(np.max(x * (k + 1) * 0.4, axis=0) ** 2)


def column_softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x, axis=0, keepdims=True))
    a = np.tanh(e / np.sum(e, axis=0, keepdims=True))
    return np.sum((a + 0.1 * np.roll(a, 1, axis=2)) ** 2)


def few_long_rows(x: Any, y: Any, w: Any) -> Any:
    return np.mean(np.tanh((x - y) * w) ** 2)


def schedules(f: Callable[..., Any], *arguments: Any, derives: bool = True) -> list[Schedule]:
    """Return the schedules of a function, and of its gradient by its arrays of floats."""
    varied = tuple(i for i, x in enumerate(arguments) if x.dtype.kind == "f")
    r = recorded(adarray.value_and_grad(f, argnums=varied) if derives else f, *arguments)
    steps = [s for s in plan(r.program, target=GPU).steps if isinstance(s, KernelStep)]
    chosen = [
        schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU) for s in steps
    ]
    return [s for s in chosen if s.facts.parallel is not None]


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("f", "arguments"),
    [
        (column_maximum, (zeros(8, 9, 3000, 32), np.zeros((8, 1, 3000, 1), np.int16))),
        (column_softmax, (zeros(12, 1024, 100),)),
    ],
)
def test_short_columns_side_by_side_have_a_thread_each(f: Any, arguments: Any) -> None:
    """Whatever is between them, and though neighbours wrap around."""
    chosen = schedules(f, *arguments)
    columns = arguments[0].size // arguments[0].shape[0]
    folding = [s for s in chosen if isinstance(s, RowsByWarp)]
    assert folding
    assert all((s.group, s.facts.rows) == (1, columns) for s in folding)


def test_blocks_share_few_long_rows() -> None:
    n = 1 << 19
    (s,) = schedules(few_long_rows, zeros(6, n), zeros(n), zeros(6, 1))
    assert s.facts.rows * s.block > GPU.sms * 32
    assert span_of(s, launch_of(s, GPU), GPU) < 1.5e-5


def broadcast(x: Any, w: Any, k: Any) -> Any:
    return np.tanh(np.maximum(x, w) * (k + 1))


def test_short_last_axes_are_one_loop_with_those_before_them() -> None:
    """Though operands are broadcast along either, and folded over one of them afterwards."""
    x, w, k = zeros(9000, 50, 6), zeros(50, 1), np.zeros((9000, 1, 6), np.int16)
    (mapped,) = schedules(broadcast, x, w, k, derives=False)
    assert mapped.facts.inner == [300]
    f = schedules(lambda x, w, k: np.sum(broadcast(x, w, k) ** 2), x, w, k)
    assert all(s.facts.inner == [300] for s in f if s.facts.rows == 9000)
    assert any(s.facts.rows == 9000 for s in f)


def test_neighbouring_rows_of_a_transpose_lie_side_by_side() -> None:
    """They are those of the loop along which the result does, whichever loop is outside."""
    (s,) = schedules(lambda x: np.swapaxes(x, 0, 2) * 2.0, zeros(128, 37, 7000), derives=False)
    assert isinstance(s, SheetRows)
    assert s.group == 4
    assert crossing(s.facts.kernel.body[0], s.facts.kernel) == 4


def centred_by_two(x: Any) -> Any:
    a = x - np.log(np.mean(np.exp(x), axis=-1, keepdims=True))
    b = a - np.log(np.mean(np.exp(a), axis=1, keepdims=True))
    c = b / np.sqrt(np.mean(b * b, axis=-1, keepdims=True) + 0.01)
    return np.mean(np.mean(c, axis=(0, 1, 3)) ** 2)


def centred_once(x: Any) -> Any:
    a = x - np.log(np.mean(np.exp(x), axis=-1, keepdims=True))
    return np.mean(a / np.sqrt(np.mean(a * a, axis=-1, keepdims=True) + 0.01))


def test_folds_over_several_axes_of_rows_are_no_turns_of_a_few_threads() -> None:
    """Rows of 24 by 40 by 8 elements have a fold in each kernel, of all threads of the GPU."""
    chosen = schedules(centred_by_two, zeros(24, 40, 1000, 8))
    folding = [s for s in chosen if isinstance(s, RowsByWarp) and s.facts.rows >= 24 * 1000]
    assert len(folding) >= 3
    assert all(span_of(s, launch_of(s, GPU), GPU) < 1e-4 for s in chosen)


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (centred_once, (24, 40, 1000, 8)),  # over the same axis
        (lambda x: np.mean(np.mean(centred_rows(x), axis=(1, 2)) ** 2), (65536, 16, 32)),
        (lambda x: np.mean(np.mean(centred_rows(x), axis=(1, 2)) ** 2), (1000, 18, 8)),
    ],
)
def test_rows_that_are_folded_quickly_stay_one_kernel(
    f: Any, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with the same axes are cut finer, and many or short rows take few turns."""
    program = recorded(adarray.value_and_grad(f), zeros(*shape)).program
    count = len(plan(program, target=GPU).steps)
    monkeypatch.setattr(turns, "TURN", 0.0)
    assert len(plan(program, target=GPU).steps) == count


def centred_rows(x: Any) -> Any:
    return x - np.log(np.mean(np.exp(x), axis=-1, keepdims=True))


@emulated
@pytest.mark.parametrize("batch", [5, pytest.param(6, marks=pytest.mark.slow)])
def test_folds_in_kernels_of_their_own_are_those_of_numpy(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where every fold over another axis of a row is one."""
    apart: list[bool] = []

    def noted(attempt: Any, target: Any) -> bool:
        apart.append(turns.folds_in_turn(attempt, target))
        return apart[-1]

    monkeypatch.setattr(fuse, "folds_in_turn", noted)
    monkeypatch.setattr(turns, "TURN", 1.0)
    monkeypatch.setattr(turns, "SHORT", 64)
    cases = [planned(BATCH * batch + k, SMALL) for k in range(BATCH)]
    assert sum(apart) >= 3  # of programs in batches that have such folds
    emulated_agree(cases, tmp_path, 2e-4)


def test_sums_of_a_convolution_of_few_long_rows_are_one_loop() -> None:
    """Its gradient sums all elements several times, in the loop that computes them."""

    def convolved(x: Any, k: Any) -> Any:
        n = x.shape[1] - 2
        a = sum(k[i, j] * x[i : i + 4, j : j + n] for i in range(3) for j in range(3))
        return np.mean(a * a)

    sums = schedules(convolved, zeros(6, (1 << 18) + 2), zeros(3, 3))[0]
    assert sums.facts.rows == 4
    assert len(sums.facts.kernel.totals) == 10
    assert len([s for s in statements(sums.facts.kernel.body) if isinstance(s, For)]) == 2
