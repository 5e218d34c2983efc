"""What kernels for GPUs compute again, rather than read it from memory."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_plans import SMALL, emulated_agree
from recorded import recorded

import adarray
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.target import CPU, GPU
from adarray.compiler.planning import planner, recompute
from adarray.compiler.rewrite.pieces import read_in_whole

RNG = np.random.default_rng(5)
STEPS = 12


def along(u: Any) -> Any:
    """Take steps of a stencil on a line, and put the ends beside it."""
    for _ in range(STEPS):
        c = u[1:-1]
        n = c - 0.1 * c * (c - u[:-2]) + 0.2 * (u[2:] - 2.0 * c + u[:-2])
        u = np.concatenate([u[:1], n, u[-1:]])
    return np.mean(u * u)


def around(u: Any) -> Any:
    """Take steps of a stencil on rings."""
    for _ in range(STEPS):
        u = u + 0.1 * u * np.tanh(np.roll(u, 1, axis=1) + np.roll(u, -1, axis=1) - 2.0 * u)
    return np.mean(u * u)


def softmax(s: Any) -> Any:
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def planned(f: Callable[..., Any], *args: np.ndarray) -> Plan:
    return planner.plan(recorded(f, *args).program, target=GPU)


def kernels(plan: Plan) -> list[KernelStep]:
    return [s for s in plan.steps if isinstance(s, KernelStep)]


def moved(plan: Plan) -> int:
    """Return how many elements the kernels of a plan read and write."""
    return sum(b.size for s in kernels(plan) for b in dict.fromkeys(s.buffers))


@pytest.mark.parametrize(
    ("f", "shape", "passes"), [(along, (100_000,), 18), (around, (128, 1000), 16)]
)
def test_steps_of_stencils_read_what_they_must(
    f: Callable[..., Any], shape: tuple[int, ...], passes: int
) -> None:
    u = RNG.normal(size=shape).astype(np.float32)
    plan = planned(adarray.value_and_grad(f), u)
    assert len(kernels(plan)) <= 4 * STEPS
    assert moved(plan) <= passes * STEPS * u.size


@pytest.mark.parametrize("shape", [(6, 1024, 1024), (2, 3, 512, 1024), (6144, 1024)])
def test_short_outer_axes_do_not_divide_rows(shape: tuple[int, ...]) -> None:
    assert len(kernels(planned(softmax, np.ones(shape, np.float32)))) == 1


def test_the_least_memory_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    u = RNG.normal(size=(128, 1000)).astype(np.float32)
    best = moved(planned(adarray.value_and_grad(around), u))
    for rounds in planner.ROUNDS:
        with monkeypatch.context() as now:
            now.setattr(planner, "ROUNDS", (rounds,))
            assert best <= moved(planned(adarray.value_and_grad(around), u))


def test_pieces_are_read_of_the_whole() -> None:
    u = RNG.normal(size=1000)
    r = recorded(lambda u: (along(u), u[3:] * 2.0), u)
    program = read_in_whole(r.program, GPU)
    assert program is not r.program
    for actual, expected in zip(interpret(program, [u]), r.leaves, strict=True):
        np.testing.assert_allclose(actual, expected)
    assert read_in_whole(r.program, CPU) is r.program


def test_pieces_that_nothing_else_reads_stay() -> None:
    r = recorded(lambda u: np.sum(np.concatenate([u[:1], np.sin(u), u[-1:]]) ** 2), np.ones(1000))
    assert read_in_whole(r.program, GPU) is r.program


def chain(seed: int) -> Callable[[Any, Any], Any]:
    """Return a chain of functions that ends with a mean of columns."""
    rng = random.Random(seed)
    functions = (
        lambda a: 1.0 / (1.0 + np.exp(-a)),
        lambda a: np.exp(-a * a),
        lambda a: a / (1.0 + np.abs(a)),
        lambda a: np.log1p(a * a),
        lambda a: np.tanh(a + 0.5),
        lambda a: np.sqrt(a * a + 0.1),
        np.cos,
    )
    chosen = [rng.choice(functions) for _ in range(rng.randint(3, 5))]

    def f(x: Any, w: Any) -> Any:
        a = x * w
        for function in chosen:
            a = function(a)
        return np.mean(a * a * np.mean(a, axis=0))

    return f


def test_what_lies_between_values_that_are_read_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of chains move less memory, and in no case more."""
    x, w = np.zeros((400, 300), np.float32), np.zeros((400, 1), np.float32)
    programs = [recorded(adarray.value_and_grad(chain(seed), (0, 1)), x, w) for seed in range(12)]
    now = [moved(planner.plan(r.program, target=GPU)) for r in programs]
    monkeypatch.setattr(recompute.Recompute, "_choose_between", lambda *_: False)
    before = [moved(planner.plan(r.program, target=GPU)) for r in programs]
    assert all(a < b + x.size / 50 for a, b in zip(now, before, strict=True))  # arrays of columns
    assert sum(a < b - x.size for a, b in zip(now, before, strict=True)) >= 6


def test_a_chain_of_quotients_keeps_what_is_dear() -> None:
    """Of each ``1 / (1 + exp(-a))`` the exponential, and not the sum and the quotient as well."""

    def f(x: Any, w: Any) -> Any:
        a = np.cos(1.0 / (1.0 + np.exp(-1.0 / (1.0 + np.exp(-x * w)))))
        return np.sum(a * a * np.mean(a, axis=0))

    x, w = np.zeros((2048, 300), np.float32), np.zeros((2048, 1), np.float32)
    plan = planned(adarray.value_and_grad(f), x, w)
    assert moved(plan) < 8.2 * x.size


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
def test_chains_that_are_computed_again_give_the_values_of_numpy(tmp_path: Path) -> None:
    x = RNG.normal(size=(31, 45)).astype(np.float32)
    w = RNG.normal(size=(31, 1)).astype(np.float32)
    cases = []
    for seed in range(8):
        r = recorded(adarray.value_and_grad(chain(seed), (0, 1)), x, w)
        cases.append((r, planner.plan(r.program, target=SMALL)))
    emulated_agree(cases, tmp_path, 2e-4)
