"""The checks of programs find what is wrong, and the passes take linear time."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.loopir import Fail
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    Epilogue,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    Slot,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.verify_loops import VerifyError
from adarray.compiler.planning import passes
from adarray.compiler.planning import planner as planning
from adarray.compiler.rewrite import PASSES, ProgramError, optimise, verify_program

F = "float64"


def value(primitive, operands, shape, dtype=F):
    return Value(primitive, operands, shape, dtype)


X = value(ProgramInput(0, (4, 1)), (), (3, 4))
M = value(ProgramInput(1, (5, 1)), (), (4, 5))
ROW = value(ProgramInput(2, (1,)), (), (4,))
SUM = value(ProgramInput(3, (5, 1)), (), (3, 5))
I = value(Iota(0), (), (3,), "int64")  # noqa: E741
B = value(Map("less"), (X, X), (3, 4), "bool")

WRONG = {
    "shape of a map": value(Map("sin"), (X,), (4,)),
    "dtype of a map": value(Map("sin"), (X,), (3, 4), "float32"),
    "a comparison is bool": value(Map("less"), (X, X), (3, 4)),
    "mixed operands": value(Map("add"), (X, B), (3, 4)),
    "condition": value(Map("where"), (X, X, X), (3, 4)),
    "logic on numbers": value(Map("logical_and"), (X, X), (3, 4), "bool"),
    "a view leaves": value(View(9, (1,)), (X,), (4,)),
    "a view leaves backwards": value(View(0, (-1,)), (X,), (2,)),
    "strides of a view": value(View(0, (1,)), (X,), (3, 4)),
    "axes of a fold": value(Reduce("add", (2,)), (X,), (3,)),
    "no axes": value(Reduce("add", ()), (X,), (3, 4)),
    "shape of a fold": value(Reduce("add", (1,)), (X,), (4,)),
    "a box leaves": value(UpdateSlice((0, 1), (1, 1), False), (X, X), (3, 4)),
    "steps": value(UpdateSlice((2, 0), (-1, 1), False), (X, X), (3, 4)),
    "join": value(Concatenate(0), (X, I), (6, 4)),
    "indices": value(GatherND((0,), 0), (X, X), (3, 4, 4)),
    "gathered shape": value(GatherND((0,), 0), (X, I), (3,)),
    "scattered shape": value(ScatterND((0,), 0, True), (X, I, I), (3, 4)),
    "scan": value(PrefixScan("add", 2), (X,), (3, 4)),
    "product": value(Matmul(), (X, X), (3, 4)),
    "product of integers": value(Matmul(), (I, I), (), "int64"),
    "slot": value(PythonCall(np.sin, (Slot(1),), {}), (X,), (3, 4)),
    "value in a call": value(PythonCall(np.sin, ([X],), {}), (X,), (3, 4)),
    "pick": value(CallResult(0), (X,), (3, 4)),
    "constant": value(Constant(np.float32(1)), (), ()),
    "a matrix of another shape is added": value(Matmul(Epilogue(1.0)), (X, M, X), (3, 5)),
    "a row of another length is added": value(Matmul(Epilogue(1.0, row=True)), (X, M, ROW), (3, 5)),
    "two matrices are added": value(Matmul(Epilogue(1.0)), (X, M, SUM, SUM), (3, 5)),
    "a matrix is added without epilogue": value(Matmul(), (X, M, SUM), (3, 5)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_found(name):
    with pytest.raises(ProgramError):
        verify_program(Program([X], [X, I, B, WRONG[name]], [X]))


def test_order():
    y = value(Map("sin"), (X,), (3, 4))
    verify_program(Program([X], [X, y], [y]))
    for values, outputs in (([y, X], [y]), ([X, X, y], [y]), ([X], [y])):
        with pytest.raises(ProgramError):
            verify_program(Program([X], values, outputs))
    with pytest.raises(ProgramError, match="input 0"):
        verify_program(Program([y], [X, y], [y]))


def test_a_pass_at_fault_is_named(monkeypatch):
    def broken(program):
        return Program(program.inputs, program.values[::-1], program.outputs)

    monkeypatch.setattr("adarray.compiler.rewrite.PASSES", (*PASSES, broken))
    y = value(Map("sin"), (X,), (3, 4))
    optimise(Program([X], [X, y], [y]))
    with pytest.raises(ProgramError, match="broken"):
        optimise(Program([X], [X, y], [y]), check=True)


def test_what_a_target_changes_is_named_and_verified(monkeypatch):
    def broken(program, _):
        return Program(program.inputs, program.values[::-1], program.outputs)

    y = value(Map("sin"), (X,), (3, 4))
    program = Program([X], [X, y], [y])
    names = [name for name, _ in passes.TARGET_PASSES]
    assert names == [
        "memory_order",
        "results_in_c_order",
        "factors",
        "fourier_calls",
        "scipy_transforms",
        "long_scans",
        "few_places",
        "large_products",
        "sums_in_stages",
        "stacked",
        "narrow_products",
        "deep_products",
        "shifted_sums",
        "short_axes",
        "merged_axes",
        "read_in_whole",
        "tabled",
        "accumulated",
        "biased",
        "pair_sides",
    ]
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    assert planning.plan(program).steps
    monkeypatch.setattr(passes, "TARGET_PASSES", (*passes.TARGET_PASSES, ("broken", broken)))
    with pytest.raises(ProgramError, match="broken"):
        planning.plan(program)


def test_kernels_are_verified_after_what_changes_steps(monkeypatch):
    def broken(planner, _):
        steps = planner.writer.steps
        kernel = replace(steps[0].kernel, body=(Fail(1), *steps[0].kernel.body[::-1]))
        buffers = tuple(replace(b, access="in") for b in kernel.buffers)
        steps[0] = steps[0]._replace(kernel=replace(kernel, buffers=buffers))
        return []

    y = value(Map("sin"), (X,), (3, 4))
    program = Program([X], [X, y], [y])
    assert [name for name, _ in planning.STEP_PASSES] == ["donate", "merge"]
    monkeypatch.setattr(planning, "STEP_PASSES", (*planning.STEP_PASSES, ("broken", broken)))
    assert planning.plan(program).steps
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    with pytest.raises(VerifyError, match="loop IR after broken: "):
        planning.plan(program)


# -- time --------------------------------------------------------------------------------------


def calls_per_operation(f, n):
    """Return how many functions run for each recorded call of ``f(n)``, in all passes."""
    r = recorded(adarray.value_and_grad(f(n)), np.ones(3), optimised=False)
    assert len(r.calls) >= n
    count = 0

    def see(_frame, what, _arg):
        nonlocal count
        count += what in ("call", "c_call")

    sys.setprofile(see)
    try:
        optimise(r.translate())
    finally:
        sys.setprofile(None)
    return count / len(r.calls)


def chain(n):
    def f(x):
        for _ in range(n):
            x = np.sin(x) * 1.5 + x
        return np.sum(x)

    return f


def writes(n):
    def f(x):
        y = np.zeros(n)
        y[0] = x[0]
        for i in range(1, n):
            y[i] = np.sin(y[i - 1]) + x[i % 3]
        return np.sum(y)

    return f


def picks(n):
    def f(x):
        total = 0.0
        for i in range(n):
            x = np.exp(-x * x)
            total = total + x[i % 3]
        return total

    return f


@pytest.mark.parametrize("f", [chain, writes, picks])
def test_time_is_linear(f):
    """What is done for each recorded operation does not grow with their number."""
    few, many = calls_per_operation(f, 40), calls_per_operation(f, 240)
    assert many < 1.3 * few
    assert many < 900
