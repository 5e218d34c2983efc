"""Several steps of stencils in one kernel on a GPU: the bits of a kernel for each step.

What kernels compute without a GPU is tested in tests/compiler/stencil/test_strips.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import stencils
from recorded import recorded

import adarray
from adarray.compiler.fusion import fuse
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning import recompute
from adarray.compiler.schedule.gpu.schedules import ColumnStrips
from adarray.compiler.stencil import strips

pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(9)


@pytest.fixture(autouse=True)
def small(on_gpu: None, monkeypatch: Any) -> None:
    """Skip without a GPU; small arrays are worth it."""
    monkeypatch.setattr(strips, "LARGE", 1)
    monkeypatch.setattr(fuse, "LAUNCH", 0)
    # Kernels for each step recompute as little as those of several.
    monkeypatch.setattr(recompute, "_read_across", lambda _: frozenset())


def same(r: Any, skew: int = 0, **options: Any) -> Any:
    """Compare with a kernel for each step; inputs lie `skew` elements from a multiple of 16."""
    import cupy
    from adarray_backends.cuda.plans import executable

    def targets(a: Any) -> Any:
        memory = cupy.zeros(a.size + skew, a.dtype)[skew:].reshape(a.shape)
        memory[...] = cupy.asarray(a)
        return memory

    collected = []
    for march in (GPU.march, 0):
        new_plan = planning.plan(r.program, target=replace(GPU, march=march))
        run = executable(new_plan, **options)
        schedules = {type(k.schedule) for k in run.encoder.kernels.values()}
        assert (ColumnStrips in schedules) == (march > 0)
        for _ in range(2):
            results = [x.get() for x in run([targets(np.asarray(a)) for a in r.arrays])]
        collected.append(results)
    for got, want in zip(*collected, strict=True):
        np.testing.assert_array_equal(got, want)


def array(*shape: int, dtype: str = "float32") -> Any:
    """Return random numbers."""
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("f", stencils.VALUED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_value_and_gradient(f: Any, dtype: str) -> None:
    for shape in ((64, 132), (67, 301), (512, 516), (1030, 141)):
        same(recorded(adarray.value_and_grad(f), array(*shape, dtype=dtype)))


@pytest.mark.parametrize("skew", [0, 1, 4])
def test_inputs_that_begin_anywhere(skew: int) -> None:
    same(recorded(adarray.value_and_grad(stencils.heat), array(70, 256)), skew)


@pytest.mark.parametrize("threads", [64, 1024])
def test_blocks_of_any_size(threads: int) -> None:
    same(recorded(adarray.value_and_grad(stencils.heat), array(70, 256)), threads=threads)


def test_coefficients_and_other_types() -> None:
    u, c = array(66, 141), array(66, 141)
    others = c, array(141), array(66, 1), array()
    same(recorded(adarray.value_and_grad(stencils.with_coefficients), u, *others))
    f = adarray.value_and_grad(stencils.with_neighbours_of_coefficients, (0, 1))
    same(recorded(f, u, c))
    for f in (
        stencils.with_all_results,
        stencils.by_position,
        stencils.by_truth,
        stencils.smaller_and_smaller,
    ):
        same(recorded(f, u))
    same(recorded(stencils.life, (u > 0.5).astype(np.int32)))
    same(recorded(adarray.value_and_grad(stencils.of_two_types), u))


def test_many_strips() -> None:
    same(recorded(adarray.value_and_grad(lambda u: stencils.heat(u, 17)), array(2048, 2048)))
