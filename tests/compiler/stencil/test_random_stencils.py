"""Stencils of any rank along any axes: kernels of a GPU give the numbers of NumPy."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from random_stencils import StencilProgram
from recorded import close, recorded

import adarray
from adarray.compiler.planning.planner import plan

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")


def check(cases: list[tuple[Any, list[np.ndarray], float]], folder: Path) -> None:
    """Compare values and gradients with those of the recorded run."""
    target = replace(SMALL, small=1)
    planned = []
    for f, args, tight in cases:
        r = recorded(adarray.value_and_grad(f, argnums=tuple(range(len(args)))), *args)
        planned.append((r, plan(r.program, target=target), tight))
    compiled = Compiled([p for _, p, _ in planned], folder, target)
    for r, p, tight in planned:
        got = DevicePlanRunner(p, compiled)([np.asarray(a) for a in r.arrays])
        for one, expected in zip(got, r.leaves, strict=True):
            close(one, expected, tight)


@emulated
@pytest.mark.parametrize("first", [0, 24, 48])
def test_random_programs(first: int, tmp_path: Path) -> None:
    cases = []
    for seed in range(first, first + 24):
        program = StencilProgram(seed)
        double = seed % 4 == 3
        args = program.arguments("float64" if double else "float32")
        cases.append((program.f, args, 1e-10 if double else 2e-4))
    check(cases, tmp_path)


@emulated
def test_pieces_of_other_lengths_are_other_choices(tmp_path: Path) -> None:
    """Two and two, and four and two, of six columns: what is read differs by six in both."""

    def there_and_back(a: Any) -> Any:
        return np.sum(np.sin(np.roll(a, 2, axis=2) - 3.0 * np.roll(a, -2, axis=2)))

    def without(a: Any) -> Any:
        """Leave out a column of what the kernel computes."""
        b = np.tanh(a)
        b = b - np.mean(b, axis=1, keepdims=True)
        first = np.concatenate([b[:, :2], b[:, 3:]], axis=1)
        return np.sum(np.sin(first - 3.0 * np.concatenate([b[:, :4], b[:, 5:]], axis=1)))

    rng = np.random.default_rng(3)
    cases = [(there_and_back, (3, 9, 6)), (without, (5, 7)), (without, (3, 7, 4))]
    check([(f, [rng.normal(size=s)], 1e-10) for f, s in cases], tmp_path)
