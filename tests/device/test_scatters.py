"""Scatters on a GPU, in each form; without a GPU see tests/compiler/kernels/test_scatters.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_gpu import placed
from recorded import close, recorded

from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels.scatter_forms import ScatterForm
from adarray.compiler.planning import planner, step_writer

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_gpu")]
RNG = np.random.default_rng(23)
SHAPES = [
    ((8, 5000, 12), 0, 2), ((700, 16, 16), 1, 32), ((40, 177, 28), 1, 59), ((100, 4), 0, 33),
    ((20000,), 0, 3000), ((3000, 83), 0, 6000), ((7,), 0, 5000), ((6, 40, 1001), 2, 300),
    ((1,), 0, 9), ((40000, 9), 0, 9000), ((5, 36), 0, 2000),
]  # fmt: skip


def added(x: Any, v: Any, at: Any, axis: int) -> Any:
    y = x * x
    np.add.at(y, (*(slice(None),) * axis, at), v)
    return y


def replaced(x: Any, v: Any, at: Any, axis: int) -> Any:
    y = np.zeros_like(x)
    y[(*(slice(None),) * axis, at)] = v
    return y


@pytest.mark.parametrize("form", ScatterForm)
@pytest.mark.parametrize("by", [0, 1])
@pytest.mark.parametrize(("shape", "axis", "count"), SHAPES)
def test_forms(
    form: ScatterForm, by: int, shape: Any, axis: int, count: int, monkeypatch: Any
) -> None:
    from adarray_backends.cuda.plans import executable

    monkeypatch.setattr(step_writer, "form_of", lambda *_: form)
    n = shape[axis]
    x = RNG.normal(size=shape).astype(np.float32)
    v = RNG.normal(size=(*shape[:axis], count, *shape[axis + 1 :])).astype(np.float32)
    at = RNG.integers(-n, n, count)
    counted = form is ScatterForm.COUNTED  # which adds alone
    for f in (added,) if counted else (added, replaced):
        r = recorded(lambda x, v, at, f=f: f(x, v, at, axis), x, v, at)
        run = executable(planner.plan(r.program, target=GPU))
        arrays = [np.asarray(a) for a in r.arrays]
        args = [placed(a, by) for a in arrays]
        for _ in range(3):
            for got, want in zip(run(args), interpret(r.program, arrays), strict=True):
                close(got.get(), want, 1e-4)
