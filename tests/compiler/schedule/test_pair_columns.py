"""Pairs that are folded over rows by threads with columns in registers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, emulated_agree
from recorded import recorded

from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning.planner import plan
from adarray.compiler.print_cuda.printer import source
from adarray.compiler.rewrite import pair_sides
from adarray.compiler.schedule.gpu import choose
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.pair_columns import ColumnShape, column_shape, pair_columns
from adarray.compiler.schedule.gpu.schedules import ColumnFolds, SheetRows

RNG = np.random.default_rng(41)
emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
SHAPES = [
    ColumnShape(*sizes) for sizes in (
        (1, 32, 1, 1), (4, 32, 2, 1), (2, 8, 1, 1), (1, 16, 4, 1),
        (1, 8, 2, 2), (2, 32, 1, 3), (4, 16, 2, 2), (1, 32, 4, 1),
    )
]  # fmt: skip


def folds(x: Any, y: Any, u: Any, v: Any) -> Any:
    """Fold distances, the numbers of rows that are near, and whether any is."""
    s = (x[:, None] - y[None, :]) ** 2
    near = np.where(u[:, None] > v[None, :], s, 0.5)
    return np.sum(s * near, axis=0), np.max(near, axis=0), np.any(s < 1e-3, axis=0)


def arrays(m: int, n: int, dtype: str) -> list[np.ndarray]:
    return [RNG.normal(size=k).astype(dtype) for k in (m, n, m, n)]


def steps(p: Plan) -> list[tuple[Any, dict[str, int]]]:
    kernels = (s for s in p.steps if isinstance(s, KernelStep))
    return [(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True))) for s in kernels]


@emulated
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_folds_all_rows(
    shape: ColumnShape, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair_sides, "PAIRS", 16)
    monkeypatch.setattr(pair_sides, "SPREAD", 1)
    monkeypatch.setattr(choose, "column_shape", lambda *_: shape)
    cases = []
    for m, n, dtype in ((70, 133, "float32"), (129, 31, "float64"), (33, 64, "float32")):
        r = recorded(folds, *arrays(m, n, dtype))
        p = plan(r.program, target=SMALL)
        assert any(isinstance(schedule_of(k, i, SMALL), ColumnFolds) for k, i in steps(p))
        cases.append((r, p))
    emulated_agree(cases, tmp_path, 1e-4)


def test_shapes_follow_extents() -> None:
    p = plan(recorded(folds, *arrays(700, 900, "float32")).program, target=GPU)
    (kernel, _) = next(s for s in steps(p) if pair_columns(s[0]) is not None)
    pairs = pair_columns(kernel)
    assert pairs is not None
    many = column_shape(pairs, 10_000, 100_000, GPU)
    few = column_shape(pairs, 1_000_000, 9, GPU)
    assert many is not None
    assert few is not None
    assert many.blocks * -(-100_000 // (many.width * many.threads)) >= GPU.sms  # all SMs take part
    assert many.width > 1  # what rows have is read for several columns
    assert few.threads == 8  # few lanes are idle
    assert few.blocks * few.warps >= GPU.sms


def test_other_kernels_keep_their_schedules() -> None:
    """Sums over the rows of an array in memory move what they fold."""
    x, w = RNG.normal(size=(700, 900)), RNG.normal(size=900)
    p = plan(recorded(lambda x, w: np.sum(np.sin(x) * w, axis=0), x, w).program, target=GPU)
    assert [type(schedule_of(k, i, GPU)) for k, i in steps(p)] == [SheetRows]


def test_products_of_sums_are_fused() -> None:
    p = plan(recorded(folds, *arrays(700, 900, "float32")).program, target=GPU)
    chosen = [schedule_of(k, i, GPU) for k, i in steps(p)]
    (s,) = (s for s in chosen if isinstance(s, ColumnFolds))
    assert len(s.pairs.fused) == 1
    assert "fmaf(" in source(s).text
    assert launch_of(s, GPU).blocks == s.blocks
