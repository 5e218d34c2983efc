"""Several steps of stencils on a line in one kernel on a GPU.

What kernels compute without a GPU is tested in tests/compiler/stencil/test_lines.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from random_lines import LineProgram
from recorded import recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.schedule.gpu.schedules import ColumnStrips

pytestmark = pytest.mark.gpu


@pytest.mark.usefixtures("on_gpu")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("shape", [(2048,), (100_003,), (7, 1000), (5, 6, 130)])
def test_random_programs(seed: int, shape: tuple[int, ...]) -> None:
    """Results are those of a kernel for each step, up to the order of sums."""
    import cupy
    from adarray_backends.cuda.plans import executable

    program = LineProgram(seed)
    args = program.arguments(shape, "float64" if seed % 3 == 2 else "float32")
    r = recorded(adarray.value_and_grad(program.f, argnums=tuple(range(len(args)))), *args)
    results: list[list[Any]] = []
    for march in (GPU.march, 0):
        run = executable(planning.plan(r.program, target=replace(GPU, march=march)))
        schedules = {type(k.schedule) for k in run.encoder.kernels.values()}
        assert march or ColumnStrips not in schedules
        for _ in range(2):
            values = [x.get() for x in run([cupy.asarray(np.asarray(a)) for a in r.arrays])]
        results.append(values)
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5 * np.max(np.abs(want)))
