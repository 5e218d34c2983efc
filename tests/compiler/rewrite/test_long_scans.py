"""Long running folds of few lines are cut into blocks for a GPU."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import PrefixScan
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.planning import planner
from adarray.compiler.rewrite import long_scans

RNG = np.random.default_rng(11)
FOLDS = {
    "add": np.cumsum,
    "multiply": np.cumprod,
    "maximum": np.maximum.accumulate,
    "minimum": np.minimum.accumulate,
}
# Shapes and axes, where the number of blocks divides the length and where it does not.
LINES = [((3, 600), 1), ((3, 601), 1), ((2, 3, 511), -1), ((2, 397, 1), 1)]


@pytest.fixture
def small(monkeypatch: Any) -> None:
    """Cut lines of some hundred elements."""
    monkeypatch.setattr(long_scans, "SIZE", 1)
    monkeypatch.setattr(long_scans, "LINES", 64)
    monkeypatch.setattr(long_scans, "SHORTEST", 20)
    monkeypatch.setattr(long_scans, "MOVED", 0.0)


def longest(program: Any) -> int:
    """Return the most elements that one running fold goes through."""
    return max(
        (v.shape[v.primitive.axis] for v in program.values if isinstance(v.primitive, PrefixScan)),
        default=0,
    )


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize(("shape", "axis"), LINES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_blocks_of_lines_fold_alike(
    fold: str, shape: Any, axis: int, dtype: Any, small: None
) -> None:
    x = RNG.integers(-3, 4, shape) if dtype == np.int64 else RNG.normal(size=shape).astype(dtype)
    r = recorded(lambda x: FOLDS[fold](x, axis=axis), x)
    cut = long_scans.long_scans(r.program, GPU)
    assert longest(cut) < longest(r.program) // 3
    (got,), (want,) = interpret(cut, [x]), interpret(r.program, [x])
    if fold in ("maximum", "minimum") or dtype == np.int64:
        np.testing.assert_array_equal(got, want)
    else:
        close(got, want, 2e-4 if dtype == np.float32 else 1e-10)


def test_nan_stays_where_it_begins(small: None) -> None:
    x = RNG.normal(size=(2, 300))
    x[1, 130] = np.nan
    r = recorded(lambda x: np.maximum.accumulate(x, axis=1), x)
    (got,) = interpret(long_scans.long_scans(r.program, GPU), [x])
    np.testing.assert_array_equal(got, np.maximum.accumulate(x, axis=1))


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_kernels_of_values_and_gradients(small: None, tmp_path: Any) -> None:
    def loss(axis: int) -> Any:
        def f(x: Any) -> Any:
            y = np.cumsum(np.sin(x), axis=axis) * 0.1
            return np.mean(np.sqrt(y * y + 0.1))

        return adarray.value_and_grad(f)

    cases = [recorded(loss(axis), RNG.normal(size=shape)) for shape, axis in LINES]
    plans = [planner.plan(r.program, target=GPU) for r in cases]
    compiled = Compiled(plans, tmp_path, SMALL)
    for r, plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(a) for a in r.arrays]
        results = DevicePlanRunner(plan, compiled)(arrays)
        for got, want in zip(results, interpret(r.program, arrays), strict=True):
            close(got, want, 1e-10)


def test_what_stays_whole() -> None:
    def folded(*shape: int, axis: int = 0) -> Any:
        return recorded(lambda x: np.cumsum(x, axis=axis), np.ones(shape, np.float32)).program

    many, short = folded(4096, 3000, axis=1), folded(300, 40, axis=1)
    vector, across = folded(1 << 20), folded(1 << 16, 16)
    for program in (many, short, vector, across):
        assert long_scans.long_scans(program, GPU) is program
    long = folded(16, 1 << 16, axis=1)
    assert long_scans.long_scans(long, CPU) is long
    assert longest(long_scans.long_scans(long, GPU)) < 1 << 12
