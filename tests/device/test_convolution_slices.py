"""Convolutions by slices on a GPU: random ones, whose sums of all weights end together.

What kernels compute without a GPU is tested in tests/compiler/planning/test_convolutions.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from convolutions import random_convolution
from recorded import close, recorded

import adarray
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning.planner import plan

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]


@pytest.mark.parametrize("seed", range(100, 116))
def test_results_are_those_of_numpy(seed: int) -> None:
    """Twice: the numbers of blocks that are done are zeros again."""
    import cupy
    from adarray_backends.cuda.plans import executable

    c = random_convolution(seed, most=40, long=3000)
    r = recorded(adarray.value_and_grad(c.function, argnums=(0, 1, 2)), *c.arguments)
    run = executable(plan(r.program, target=GPU))
    for _ in range(2):
        results = run([cupy.asarray(np.asarray(a)) for a in r.arrays])
        for one, expected in zip(results, r.leaves, strict=True):
            close(one.get(), expected, 1e-3)
