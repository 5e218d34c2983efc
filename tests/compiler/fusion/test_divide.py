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

from adarray import grad, jit
from adarray.compiler.fusion import divide
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.loopir import statements
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.planning import planner as planning
from adarray.compiler.planning.planner import plan
from adarray.compiler.print_c import printer as cprinter

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


def _sizes(new_plan: Plan) -> dict[int, int]:
    """Return the statements of each kernel of a plan."""
    return {
        id(s.kernel): sum(1 for _ in statements(s.kernel.body))
        for s in new_plan.steps
        if isinstance(s, KernelStep)
    }


def _compared(f: Callable[..., Any], *args: Any) -> Plan:
    return _right(recorded(f, *args))


def _right(r: Any, limit: int | None = None) -> Plan:
    """Return the plan of what was recorded, once it has computed what the interpreter does."""
    arrays = [np.asarray(a) for a in r.arrays]
    new_plan = plan(r.program, memory_limit=limit)
    for step in new_plan.steps:
        if isinstance(step, KernelStep):
            verify(step.kernel)
    for got, wanted in zip(PlanRunner(new_plan)(arrays), interpret(r.program, arrays), strict=True):
        assert got.dtype == np.asarray(wanted).dtype
        size = np.max(np.abs(np.asarray(wanted, float)), initial=1.0)
        single = any(v.dtype == np.float32 for v in r.program.values)
        np.testing.assert_allclose(got, wanted, 1e-4 if single else 1e-10, size * 1e-10)
    return new_plan


@pytest.mark.parametrize("f", [_rolled, _written, _fresh])
def test_unrolled_steps_have_small_kernels(f: Callable[..., Any]) -> None:
    """One kernel had 14,000 statements, and gcc took half a minute for it."""
    new_plan = _compared(grad(lambda u: f(u, 12)), U[:9, :9])
    assert max(_sizes(new_plan).values()) <= divide.MOST
    longer = plan(recorded(grad(lambda u: f(u, 60)), U).program)
    assert max(_sizes(longer).values()) <= divide.MOST


def test_steps_share_kernels() -> None:
    new_plan = plan(recorded(lambda u: _rolled(u, 60), U).program)
    launched = sum(isinstance(s, KernelStep) for s in new_plan.steps)
    assert len(_sizes(new_plan)) <= 8 < launched


def test_kernels_that_are_small_enough_stay_whole() -> None:
    def many(x: Any) -> Any:
        for _ in range(100):
            x = np.sin(x) * 0.5 + 0.1
        return x

    new_plan = plan(recorded(many, np.linspace(0, 1, 32)).program)
    assert sum(isinstance(s, KernelStep) for s in new_plan.steps) == 1


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
        new_plan = _right(r)
        cut += sum(isinstance(s, KernelStep) for s in new_plan.steps) > 1
        _right(r, limit=new_plan.arena // 2 + 64)
    assert cut >= 1


# -- steps of unrolled loops -----------------------------------------------------------------------


def _runge_kutta(p: Any, steps: int) -> Any:
    """Fit a driven oscillator to points; the times are plain numbers."""
    points = np.random.default_rng(0).normal(size=(steps, 2))
    h = 0.05

    def rhs(t: float, y: Any) -> Any:
        drive = p[2] * np.sin(p[3] * t)
        return np.stack([y[1], p[0] * (1 - y[0] ** 2) * y[1] - p[1] * y[0] + drive])

    y, states = np.array([1.0, 0.8]), []
    for k in range(steps):
        t = k * h
        a = rhs(t, y)
        b = rhs(t + h / 2, y + h / 2 * a)
        c = rhs(t + h / 2, y + h / 2 * b)
        y = y + h / 6 * (a + 2 * b + 2 * c + rhs(t + h, y + h * c))
        states.append(y)
    return np.mean((np.stack(states) - points) ** 2)


def _kalman(theta: Any, steps: int) -> Any:
    """Filter points with matrices of 2 by 2 and 4 by 4; inverses are calls."""
    f, h = np.eye(4), np.eye(2, 4)
    f[0, 2] = f[1, 3] = 0.1
    x, p, loss = np.zeros(4), np.eye(4), 0.0
    for z in np.random.default_rng(1).normal(size=(steps, 2)):
        x, p = f @ x, f @ p @ f.T + np.exp(theta[0]) * np.eye(4)
        r = z - h @ x
        inverse = np.linalg.inv(h @ p @ h.T + np.exp(theta[1]) * np.eye(2))
        gain = p @ h.T @ inverse
        loss = loss + r @ inverse @ r
        x, p = x + gain @ r, (np.eye(4) - gain @ h) @ p
    return loss


def _network(w: Any, steps: int) -> Any:
    """Run a recurrent network over inputs of its own."""
    h, loss = np.zeros(6), 0.0
    for x in np.random.default_rng(2).normal(size=(steps, 3)):
        h = np.tanh(w[:, :6] @ h + w[:, 6:9] @ x + w[:, 9])
        loss = loss + np.sum(h)
    return loss


def _leapfrog(q: Any, steps: int) -> Any:
    """Move bodies that attract each other."""

    def acceleration(q: Any) -> Any:
        d = q[None] - q[:, None]
        return np.sum(d / (np.sum(d**2, -1) + 0.05)[..., None] ** 1.5, 1)

    p = np.zeros((4, 2))
    a = acceleration(q)
    for _ in range(steps):
        p = p + 0.005 * a
        q = q + 0.01 * p
        a = acceleration(q)
        p = p + 0.005 * a
    return np.sum(q**2)


LOOPS = [
    (_runge_kutta, np.array([1.1, 0.9, 0.4, 1.3]), 15),
    (_kalman, np.array([-1.0, -0.5]), 40),
    (_network, np.random.default_rng(3).normal(size=(6, 10)), 80),
    (_leapfrog, np.random.default_rng(4).normal(size=(4, 2)), 60),
]


def _text(new_plan: Plan) -> list[str]:
    """Return the C of the kernels of a plan."""
    kernels = {id(s.kernel): s.kernel for s in new_plan.steps if isinstance(s, KernelStep)}
    return sorted({cprinter.source(k, CpuTarget()) for k in kernels.values()})


@pytest.mark.slow
@pytest.mark.parametrize(("f", "x", "steps"), LOOPS)
def test_twice_the_steps_are_hardly_more_c(f: Callable[..., Any], x: Any, steps: int) -> None:
    """Groups of 500 values each began in another part of a step: no two kernels were equal."""
    once, twice = (
        _text(plan(recorded(grad(lambda x, n=n: f(x, n)), x).program)) for n in (steps, 2 * steps)
    )
    assert len(twice) <= len(once) + 6
    assert sum(map(len, twice)) <= 1.25 * sum(map(len, once)) <= 550_000
    assert max(map(len, twice)) <= 50_000


@pytest.mark.parametrize(("f", "x", "steps"), LOOPS)
def test_steps_of_loops_compute_what_they_did(f: Callable[..., Any], x: Any, steps: int) -> None:
    _compared(grad(lambda x: f(x, steps // 4)), x)


@pytest.mark.parametrize(("f", "x", "steps"), LOOPS[1:3])
def test_short_loops_with_their_number_in_the_text_add_in_the_same_order(
    f: Callable[..., Any], x: Any, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> Any:
        compiled = jit(grad(lambda x: f(x, steps // 20)))
        for _ in range(3):
            actual = compiled(x)
        return actual

    monkeypatch.setattr(planning, "UNROLLED", 1)
    actual = made()
    monkeypatch.setattr(planning, "SHORT", 0)
    assert np.array_equal(actual, made())
