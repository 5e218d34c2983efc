"""Pieces of rows on a GPU: short rows choose among them by index, and axes beside them collapse."""

from __future__ import annotations

import shutil
from functools import partial
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, Compiled, DevicePlanRunner
from plan_runner import PlanRunner
from recorded import close, recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import For, statements
from adarray.compiler.ir.plan import KernelStep
from adarray.compiler.ir.target import GPU
from adarray.compiler.kernels import loop_nests
from adarray.compiler.planning import planner
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.schedules import SheetRows

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
plan = partial(planner.plan, target=GPU)


def along(axis: int, piece: slice) -> tuple[Any, ...]:
    """Return the index of a region along an axis."""
    return (*(slice(None),) * axis, piece)


def rolled(x: Any, axis: int) -> Any:
    """Return a step with periodic borders."""
    return x + 0.1 * np.tanh(np.roll(x, 1, axis) + np.roll(x, -2, axis) - 2.0 * x)


def bordered(x: Any, axis: int) -> Any:
    """Return a step that leaves the ends as they are."""
    inner, left, right = (
        x[along(axis, s)] for s in (slice(1, -1), slice(None, -2), slice(2, None))
    )
    first, last = x[along(axis, slice(1))], x[along(axis, slice(-1, None))]
    return np.concatenate([first, inner * (left - 0.5 * right), last], axis)


def written(x: Any, axis: int) -> Any:
    """Return a step that is written into a copy."""
    y = x.copy()
    y[along(axis, slice(1, -1))] *= x[along(axis, slice(2, None))]
    return y


def padded(x: Any, axis: int) -> Any:
    """Return sums of neighbours, with zeros past the ends."""
    y = np.pad(x, [(0, 0)] * axis + [(1, 1)] + [(0, 0)] * (x.ndim - axis - 1))
    return y[along(axis, slice(2, None))] + y[along(axis, slice(None, -2))] * x


def reversed_(x: Any, axis: int) -> Any:
    """Return products with the mirrored array."""
    return x * np.flip(x, axis) + 0.5


def stacked(x: Any, axis: int) -> Any:
    """Return two functions of parts beside each other."""
    n = x.shape[axis] // 2
    return np.concatenate([np.sin(x[along(axis, slice(n))]), x[along(axis, slice(n, None))]], axis)


STEPS = (rolled, bordered, written, padded, reversed_, stacked)
LENGTHS = (3, 8, 17, 32, 70, 300)


def random_stencil(seed: int) -> Any:
    """Return the recording of the value and the gradient of some steps along some axes."""
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(3, 7, rng.integers(1, 5))]
    shape[rng.integers(len(shape))] = int(rng.choice(LENGTHS))
    chosen = [(STEPS[rng.integers(len(STEPS))], int(rng.integers(len(shape)))) for _ in range(3)]
    folded = tuple(a for a in range(len(shape)) if rng.random() < 0.4)

    def f(x: Any) -> Any:
        for step, axis in chosen:
            x = step(x, axis)
        y = np.mean(x, axis=folded)
        return np.sum(y * y)

    x = (rng.normal(size=shape) * 0.5).astype(rng.choice(["float32", "float64"]))
    return recorded(adarray.value_and_grad(f), x)


@emulated
@pytest.mark.parametrize("first", [0, pytest.param(8, marks=pytest.mark.slow)])
@pytest.mark.parametrize("longest", [0, 256], ids=["parts", "chosen"])
def test_random_stencils(first: int, longest: int, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(loop_nests, "CHOSEN", longest)
    cases = [random_stencil(seed) for seed in range(first, first + (40 if first else 8))]
    plans = [plan(r.program) for r in cases]
    compiled = Compiled(plans, tmp_path, SMALL)
    for r, device_plan in zip(cases, plans, strict=True):
        arrays = [np.asarray(a) for a in r.arrays]
        expected = interpret(r.program, arrays)
        single = arrays[0].dtype == np.float32
        for got, want in zip(
            DevicePlanRunner(device_plan, compiled)(arrays), expected, strict=True
        ):
            close(got, want, 2e-3 if single else 1e-10)


@pytest.mark.parametrize("shape", [(7, 3), (5, 2, 100)])
def test_pieces_of_one_array_collapse_each_for_itself(shape: Any) -> None:
    """The base of an update becomes one loop; what is written into it reads other rows."""

    def f(x: Any) -> Any:
        y = np.tanh(x)
        y[::2] *= 3
        return np.sum(np.sin(y))

    x = np.random.default_rng(0).normal(size=shape)
    r = recorded(adarray.grad(f), x)
    (got,) = PlanRunner(plan(r.program))([x])
    close(got, interpret(r.program, [x])[0], 1e-12)


def kernels(f: Any, *shape: int) -> list[KernelStep]:
    """Return the kernels of a function of one array."""
    steps = plan(recorded(f, np.ones(shape, np.float32)).program).steps
    return [s for s in steps if isinstance(s, KernelStep)]


@pytest.mark.parametrize("step", [rolled, bordered, written, padded])
def test_axes_beside_that_of_the_pieces_are_one(step: Any) -> None:
    (s,) = kernels(lambda x: step(x, 3), 3, 5, 700, 16)
    loops = [x for x in statements(s.kernel.body) if isinstance(x, For)]
    assert [x.kind for x in loops] == ["parallel", "vector"]
    schedule = schedule_of(s.kernel, dict(zip(s.kernel.ints, s.ints, strict=True)), GPU)  # type: ignore[arg-type]
    assert isinstance(schedule, SheetRows)
    assert schedule.facts.rows == 3 * 5 * 700


def test_axes_on_both_sides_are_one_each() -> None:
    (s,) = kernels(lambda x: rolled(x, 2), 4, 30, 20, 8, 40)
    loops = [x for x in statements(s.kernel.body) if isinstance(x, For)]
    assert len(loops) <= 3
    assert loops[-1].kind == "vector"


def test_long_rows_are_loops_for_each_piece() -> None:
    (s,) = kernels(lambda x: rolled(x, 1), 90, 4096)
    loops = [x for x in statements(s.kernel.body) if isinstance(x, For) and x.kind == "vector"]
    assert len(loops) == 3
