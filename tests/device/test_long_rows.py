"""Long rows on a GPU, which kernels fetch into shared memory before they need them.

What such kernels compute without a GPU is tested in tests/compiler/schedule/test_shared_rows.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from on_gpu import placed
from recorded import Recorded, close, recorded
from row_functions import cross_entropy, layer_norm, masked, softmax

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.schedule.gpu.schedules import SharedRows

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
RNG = np.random.default_rng(19)
plan = partial(planning.plan, target=GPU)


def cases(dtype: Any, rows: int, n: int) -> list[Recorded]:
    """Return functions of long rows."""
    z, w = RNG.normal(size=(2, rows, n)).astype(dtype)
    scale, shift = RNG.normal(size=(2, n)).astype(dtype)
    return [
        recorded(adarray.value_and_grad(cross_entropy), z, RNG.integers(-n, n, rows)),
        recorded(adarray.value_and_grad(layer_norm, (0, 1, 2)), z, scale, shift),
        recorded(softmax, z),
        recorded(masked, z, z > 0.3, w),
    ]


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "rows", "n"),
    [(np.float32, 300, 16384), (np.float32, 290, 13001), (np.float32, 150, 32768),
     (np.float32, 140, 50003), (np.float64, 280, 8192), (np.float64, 140, 27001)],
)  # fmt: skip
def test_rows_of_every_length_and_alignment(dtype: Any, rows: int, n: int, by: int) -> None:
    from adarray_backends.cuda.plans import executable

    fetching = 0
    for r in cases(dtype, rows, n):
        run = executable(plan(r.program))
        fetching += any(isinstance(k.schedule, SharedRows) for k in run.encoder.kernels.values())
        arrays = [np.asarray(a) for a in r.arrays]
        expected = interpret(r.program, arrays)
        args = [placed(a, by) for a in arrays]
        first = [x.get() for x in run(args)]
        for got, want in zip(first, expected, strict=True):
            close(got, want, 1e-4 if dtype is np.float32 else 1e-10)
        for _ in range(3):  # the same bits again, from graphs as well
            for got, want in zip(run(args), first, strict=True):
                np.testing.assert_array_equal(got.get(), want)
    assert fetching >= 2


def test_rows_that_do_not_fit_are_read_as_before() -> None:
    from adarray_backends.cuda.plans import executable

    r = recorded(softmax, RNG.normal(size=(140, 40000)))
    run = executable(plan(r.program))
    assert not any(isinstance(k.schedule, SharedRows) for k in run.encoder.kernels.values())
    (got,), (want,) = run([placed(a, 0) for a in r.arrays]), interpret(r.program, r.arrays)
    close(got.get(), want, 1e-10)


def test_an_index_out_of_range_in_the_midst_of_rows_is_told() -> None:
    f = adarray.jit(adarray.value_and_grad(cross_entropy))
    z = RNG.normal(size=(600, 16384)).astype(np.float32)
    labels = RNG.integers(0, 16384, 600)
    with adarray.use("cuda"):
        moved = adarray.array(z)
        for _ in range(3):
            f(moved, adarray.array(labels))
        labels[517] = 16384
        with pytest.raises(IndexError):
            f(moved, adarray.array(labels))
        labels[517] = 3
        value, slope = f(moved, adarray.array(labels))
    want, slopes = adarray.value_and_grad(cross_entropy)(z, labels)
    close(value.numpy(), want, 1e-4)
    close(slope.numpy(), slopes, 1e-4)
