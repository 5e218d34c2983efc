"""Rows that are register-resident, and tiles of folds over pairs of rows.

What such kernels compute without a GPU is tested in tests/compiler/schedule, by modules of the
same names.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from on_gpu import placed
from pairs import all_of_them, bells, largest, squares, two_of_each
from recorded import Recorded, close, recorded
from row_functions import layer_norm, norm, scaled_squares, weighted_norm

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.schedule.gpu.schedules import RegisterRows, Schedule, Tiles

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
RNG = np.random.default_rng(23)
plan = partial(planning.plan, target=GPU)


def schedules(r: Recorded, by: int = 0, limit: float = 1e-4) -> list[Schedule]:
    """Compare with the interpreter, and runs with each other; return the schedules of kernels."""
    from adarray_backends.cuda.plans import executable

    run = executable(plan(r.program))
    arrays = [np.asarray(a) for a in r.arrays]
    args = [placed(a, by) for a in arrays]
    first = [x.get() for x in run(args)]
    for got, want in zip(first, interpret(r.program, arrays), strict=True):
        close(got, want, limit if arrays[0].dtype == np.float32 else 1e-10)
    for _ in range(3):  # the same bits again, from graphs as well
        for got, want in zip(run(args), first, strict=True):
            np.testing.assert_array_equal(got.get(), want)
    return [k.schedule for k in run.encoder.kernels.values()]


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "rows", "n"),
    [(np.float32, 3000, 256), (np.float32, 1500, 1028), (np.float32, 700, 4096),
     (np.float32, 300, 8192), (np.float64, 900, 1022), (np.float64, 300, 2048)],
)  # fmt: skip
def test_rows_are_register_resident(dtype: Any, rows: int, n: int, by: int) -> None:
    x, w = RNG.normal(size=(2, rows, n)).astype(dtype)
    scale, shift = RNG.normal(size=(2, n)).astype(dtype)
    cases = [
        recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), x, scale, shift),
        recorded(adarray.value_and_grad(weighted_norm, (0, 1, 2, 3)), x, scale, shift, w),
        recorded(adarray.value_and_grad(scaled_squares, (0, 1, 2)), x, scale, shift),
        recorded(adarray.value_and_grad(norm), x),
    ]
    resident = [any(isinstance(s, RegisterRows) for s in schedules(r, by, 2e-3)) for r in cases]
    assert sum(resident) >= 3


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("n", "m", "k"), [(900, 1024, 64), (2001, 650, 9), (777, 801, 37)])
def test_tiles_of_pairs_of_rows(dtype: Any, n: int, m: int, k: int, by: int) -> None:
    a, b = RNG.normal(size=(n, k)).astype(dtype), RNG.normal(size=(m, k)).astype(dtype)
    for f in (squares, bells, largest, all_of_them, two_of_each):
        schedule = schedules(recorded(f, a, b), by)
        assert any(isinstance(s, Tiles) for s in schedule), f.__name__
