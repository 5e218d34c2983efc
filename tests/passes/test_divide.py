"""Small groups that are cut: kernels stay small, and plans compute the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_runner import PlanRunner
from random_recordings import random_recordings
from recorded import recorded

from adarray import grad
from adarray.codegen.loopir import statements
from adarray.codegen.plan import KernelStep, Plan
from adarray.codegen.verify import verify
from adarray.passes import divide
from adarray.passes.interpret import interpret
from adarray.passes.planning import plan

LONG = int(os.environ.get("ADARRAY_LONG", "0"))
U = np.random.default_rng(5).random((20, 20))


def _rolled(u: Any, steps: int) -> Any:
    for _ in range(steps):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u = u + 0.1 * (around - 4 * u)
    return np.sum(u**2)


def _written(u: Any, steps: int) -> Any:
    u = u.copy()
    for _ in range(steps):
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        u[1:-1, 1:-1] += 0.1 * (around - 4 * u[1:-1, 1:-1])
    return np.sum(u**2)


def _fresh(u: Any, steps: int) -> Any:
    for _ in range(steps):
        v = np.zeros_like(u)
        around = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
        v[1:-1, 1:-1] = np.sin(u[1:-1, 1:-1]) + 0.1 * (around - 4 * u[1:-1, 1:-1])
        u = v
    return np.sum(u**2)


def _sizes(made: Plan) -> dict[int, int]:
    """Return the statements of each kernel of a plan."""
    return {
        id(s.kernel): sum(1 for _ in statements(s.kernel.body))
        for s in made.steps
        if isinstance(s, KernelStep)
    }


def _compared(f: Callable[..., Any], *args: Any) -> Plan:
    return _right(recorded(f, *args))


def _right(r: Any, limit: int | None = None) -> Plan:
    """Return the plan of what was recorded, once it has computed what the interpreter does."""
    arrays = [np.asarray(a) for a in r.arrays]
    made = plan(r.program, memory_limit=limit)
    for step in made.steps:
        if isinstance(step, KernelStep):
            verify(step.kernel)
    for got, wanted in zip(PlanRunner(made)(arrays), interpret(r.program, arrays), strict=True):
        assert got.dtype == np.asarray(wanted).dtype
        size = np.max(np.abs(np.asarray(wanted, float)), initial=1.0)
        single = any(v.dtype == np.float32 for v in r.program.values)
        np.testing.assert_allclose(got, wanted, 1e-4 if single else 1e-10, size * 1e-10)
    return made


@pytest.mark.parametrize("f", [_rolled, _written, _fresh])
def test_unrolled_steps_have_small_kernels(f: Callable[..., Any]) -> None:
    """One kernel had 14,000 statements, and gcc took half a minute for it."""
    made = _compared(grad(lambda u: f(u, 12)), U[:9, :9])
    assert max(_sizes(made).values()) <= divide.MOST
    longer = plan(recorded(grad(lambda u: f(u, 60)), U).program)
    assert max(_sizes(longer).values()) <= divide.MOST


def test_steps_share_kernels() -> None:
    made = plan(recorded(lambda u: _rolled(u, 60), U).program)
    launched = sum(isinstance(s, KernelStep) for s in made.steps)
    assert len(_sizes(made)) <= 8 < launched


def test_kernels_that_are_small_enough_stay_whole() -> None:
    def many(x: Any) -> Any:
        for _ in range(100):
            x = np.sin(x) * 0.5 + 0.1
        return x

    made = plan(recorded(many, np.linspace(0, 1, 32)).program)
    assert sum(isinstance(s, KernelStep) for s in made.steps) == 1


def test_one_value_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divide, "MOST", 1)
    monkeypatch.setattr(divide, "PIECE", 1)
    _compared(lambda u: np.roll(u, 3, (0, 1)) + u[::-1], U[:5, :5])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sizes", [(4, 2), (12, 6), (40, 12)])
@pytest.mark.parametrize("part", range(4))
def test_random_programs_in_pieces(
    sizes: tuple[int, int], part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divide, "MOST", sizes[0])
    monkeypatch.setattr(divide, "PIECE", sizes[1])
    monkeypatch.setattr(divide, "MANY", 8)
    monkeypatch.setattr(divide, "SAMPLE", 4)
    count = 6 + LONG // 12
    cut = 0
    for r in random_recordings(range(part * count, (part + 1) * count)):
        made = _right(r)
        cut += sum(isinstance(s, KernelStep) for s in made.steps) > 1
        _right(r, limit=made.arena // 2 + 64)
    assert cut >= 1
