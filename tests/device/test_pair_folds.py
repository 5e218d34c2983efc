"""Generated programs that fold pairs of points over either side, on a stand-in for a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.planning.planner import plan
from adarray.compiler.rewrite import pair_sides, short_axes
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import ColumnFolds, Schedule

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")

# What is made of squared distances, with the numbers of either point, and how it is folded.
TERMS: tuple[Callable[..., Any], ...] = (
    lambda s, d, u, v: np.exp(-0.5 * s),
    lambda s, d, u, v: 1.0 / np.sqrt(s + 0.1),
    lambda s, d, u, v: np.log1p(s) * v[None, :],
    lambda s, d, u, v: np.where(s < 1.0, u[:, None] * s, v[None, :]),
    lambda s, d, u, v: np.tanh(s - u[:, None] * v[None, :]),
    lambda s, d, u, v: np.sqrt(s + 0.2) / (1.0 + np.abs(u[:, None])),
)
FOLDS: tuple[Callable[..., Any], ...] = (
    lambda w, d: np.mean(w, axis=0),
    lambda w, d: np.sum(w, axis=1),
    lambda w, d: np.max(w, axis=1),
    lambda w, d: np.sum(w, axis=0) + np.mean(w),
    lambda w, d: np.mean(d * w[:, :, None], axis=1),
    lambda w, d: np.sum(d * w[:, :, None], axis=0),
    lambda w, d: w @ np.cos(np.arange(w.shape[1], dtype=np.float32)),
    lambda w, d: np.sin(np.arange(w.shape[0], dtype=np.float32)) @ w,
    lambda w, d: np.sum((w / np.sum(w, axis=1, keepdims=True)) ** 2, axis=0),
)


def program(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Return a function of points and their numbers, and arguments."""
    rng = np.random.default_rng(seed)
    term, fold = TERMS[seed % len(TERMS)], FOLDS[seed % len(FOLDS)]
    m, n = rng.integers(20, 150, 2)
    k = rng.choice([1, 2, 3, 5, 12, 16, 19])
    twice, alike = rng.random(2) < 0.3

    def f(x: Any, y: Any, u: Any, v: Any) -> Any:
        y, v = (x, u) if alike else (y, v)
        for _ in range(1 + twice):
            d = x[:, None, :] - y[None, :, :]
            a = fold(term(np.sum(d * d, axis=-1), d, u, v), d)
            if a.shape == y.shape:
                y = y + 0.1 * a
        return np.mean(a * a) + np.mean(y * y)

    shapes = (m, k), (n, k), (m,), (n,)
    return f, [(0.5 * rng.normal(size=s)).astype(np.float32) for s in shapes]


@pytest.fixture(autouse=True)
def small_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_axes, "PAIRS", 64)
    monkeypatch.setattr(short_axes, "TRANSPOSED", 1024)
    monkeypatch.setattr(pair_sides, "PAIRS", 64)
    monkeypatch.setattr(pair_sides, "SPREAD", 2)
    monkeypatch.setattr(short_axes, "SPREAD", 2)


def schedules(steps: Any) -> list[Schedule]:
    kernels = (s for s in steps if isinstance(s, KernelStep))
    return [
        schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), SMALL) for s in kernels
    ]


@emulated
@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 36), marks=pytest.mark.slow)], ids=str
)
def test_folds_of_pairs_are_those_of_numpy(seeds: range, tmp_path: Path) -> None:
    cases = []
    for seed in seeds:
        f, arrays = program(seed)
        r = recorded(adarray.value_and_grad(f, argnums=(0, 1, 2, 3)), *arrays)
        cases.append((r, plan(r.program, target=SMALL)))
    compiled = Compiled([p for _, p in cases], tmp_path)
    chosen = 0
    for r, p in cases:
        m, n = len(r.arrays[0]), len(r.arrays[1])
        sizes = {b.size for s in p.steps if isinstance(s, KernelStep) for b in s.buffers}
        assert sizes.isdisjoint({m * n, m * m})
        chosen += sum(isinstance(s, ColumnFolds) for s in schedules(p.steps))
        got = DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])
        for one, expected in zip(got, r.leaves, strict=True):
            close(one, expected, 5e-4)
    assert chosen >= 2 * len(seeds)
