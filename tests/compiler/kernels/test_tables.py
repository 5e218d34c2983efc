"""Numbers of unrolled loops that kernels read from tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from plan_runner import PlanRunner
from recorded import recorded

from adarray import grad
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.plan import KernelStep, Plan
from adarray.compiler.ir.primitives import Constant, ConstantArray, Map
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.kernels import tables
from adarray.compiler.kernels.lower import Lowered
from adarray.compiler.kernels.tables import tabled
from adarray.compiler.planning import passes
from adarray.compiler.planning.planner import plan
from adarray.compiler.planning.shared import SharedKernels

X = np.linspace(0.1, 0.9, 6)


def _driven(x: Any, steps: int = 80) -> Any:
    """Take steps with a number each, and with two that all of them have."""
    for k in range(steps):
        x = x + 0.01 * np.sin(x * (0.1 + 0.03 * k)) - 0.002 * x * x * x
    return x


def _program(f: Callable[..., Any], *args: Any) -> Program:
    program = recorded(f, *args).program
    assert len(program.values) >= tables.UNROLLED
    return program


def _constants(program: Program) -> set[float]:
    return {float(v.primitive.value) for v in program.values if isinstance(v.primitive, Constant)}


def _kernels(new_plan: Plan) -> int:
    return len({id(s.kernel) for s in new_plan.steps if isinstance(s, KernelStep)})


def test_numbers_that_vary_are_read_and_others_stay_in_the_text() -> None:
    program = _program(_driven, X)
    rewritten = tabled(program, 2048)
    verify_program(rewritten)
    read = {id(a) for v in rewritten.values if isinstance(v.primitive, Map) for a in v.args}
    left = {
        float(v.primitive.value)
        for v in rewritten.values
        if isinstance(v.primitive, Constant) and id(v) in read
    }
    assert left == {0.01, 0.002, 0.1}  # that of the first step, which reads the argument
    (table,) = [
        v.primitive.value for v in rewritten.values if isinstance(v.primitive, ConstantArray)
    ]
    assert set(table) == _constants(program) - left
    assert interpret(rewritten, [X])[0].tobytes() == interpret(program, [X])[0].tobytes()


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_steps_with_other_numbers_share_kernels(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = X.astype(dtype)
    program = _program(grad(lambda x: np.sum(_driven(x))), x)
    new_plan = plan(program)
    assert _kernels(new_plan) <= 8
    others = tuple(p for p in passes.TARGET_PASSES if p[0] != "tabled")
    assert len(others) == len(passes.TARGET_PASSES) - 1
    monkeypatch.setattr(passes, "TARGET_PASSES", others)
    before = plan(program)
    assert _kernels(before) > 2 * _kernels(new_plan)
    assert PlanRunner(new_plan)([x])[0].tobytes() == PlanRunner(before)([x])[0].tobytes()


def test_kernels_that_are_found_again_are_those_that_would_be_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lowering, seen = SharedKernels.lower, set[tuple[int, ...]]()

    def compare(self: SharedKernels, *args: Any) -> Lowered:
        lowered = lowering(self, *args)
        fresh = lowering(SharedKernels(self.target, self.literal), *args)
        assert lowered.kernel == fresh.kernel
        assert lowered.ints == fresh.ints
        assert all(a is b for a, b in zip(lowered.buffers, fresh.buffers, strict=True))
        seen.add(lowered.ints)
        return lowered

    monkeypatch.setattr(SharedKernels, "lower", compare)
    program = _program(grad(lambda x: np.sum(_driven(x))), X)
    new_plan = plan(program)
    assert len({id(s.kernel) for s in new_plan.steps if isinstance(s, KernelStep)}) + 5 < len(seen)


def test_short_programs_and_large_arrays_keep_their_numbers() -> None:
    short = recorded(lambda x: _driven(x, 20), X).program
    assert tabled(short, 2048) is short
    large = _program(_driven, np.linspace(0, 1, 3000))
    assert tabled(large, 2048) is large


def test_numbers_that_other_functions_read_stay() -> None:
    """Powers are multiplied out, integers index: what they are decides what is computed."""

    def f(x: Any) -> Any:
        for k in range(200):
            x = np.abs(x) ** (0.5 + 0.001 * k) + (np.arange(6) + k > 3)
        return x

    program = _program(f, X)
    rewritten = tabled(program, 2048)
    assert all(
        v.primitive.name != "power" or isinstance(v.args[1].primitive, Constant)
        for v in rewritten.values
        if isinstance(v.primitive, Map)
    )
    assert interpret(rewritten, [X])[0].tobytes() == interpret(program, [X])[0].tobytes()


def test_a_program_whose_results_are_constants() -> None:
    def f(x: Any) -> Any:
        y = _driven(x)
        return y, x * 7.25, np.full(3, 2.5)

    program = _program(f, X)
    for got, wanted in zip(PlanRunner(plan(program))([X]), interpret(program, [X]), strict=True):
        np.testing.assert_array_equal(got, wanted)
