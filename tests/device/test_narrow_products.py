"""Recurrent networks of narrow state on a GPU.

What they compute without a GPU is tested in tests/compiler/rewrite/test_narrow_products.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from on_gpu import placed
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite import optimise

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
RNG = np.random.default_rng(31)
plan = partial(planning.plan, target=GPU)


def network(x: Any, w: Any, u: Any) -> Any:
    h = np.tanh(x[0] @ w)
    for t in range(1, len(x)):
        h = np.tanh(x[t] @ w + h @ u)
    return np.mean(h * h)


@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(("steps", "rows", "size"), [(5, 5000, 16), (20, 4097, 7), (6, 20000, 20)])
def test_a_network_with_its_gradients(steps: int, rows: int, size: int, by: int) -> None:
    """Its products are loops of kernels, but in the last case, where they are large."""
    from adarray_backends.cuda.plans import executable

    shapes = (steps, rows, size), (size, size), (size, size)
    arrays = [(RNG.normal(size=s) / size).astype(np.float32) for s in shapes]
    r = recorded(adarray.value_and_grad(network, argnums=(0, 1, 2)), *arrays)
    run = executable(plan(optimise(r.program)))
    expected = interpret(r.program, arrays)
    for _ in range(4):  # launches, then graphs
        for got, want in zip(run([placed(a, by) for a in arrays]), expected, strict=True):
            close(got.get(), want, 1e-4)
