"""The checks of programs find what is wrong, and the passes take linear time."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from recorded import recorded

import adarray
from adarray.compiler.ir.program import Program, Slot, Value
from adarray.compiler.rewrite import PASSES, ProgramError, optimise, verify_program

F = "float64"


def value(kind, operands, shape, dtype=F, /, **params):
    return Value(kind, operands, params, shape, dtype)


X = value("input", (), (3, 4), index=0, strides=(4, 1))
I = value("iota", (), (3,), "int64", axis=0)  # noqa: E741
B = value("map", (X, X), (3, 4), "bool", name="less")

WRONG = {
    "shape of a map": value("map", (X,), (4,), name="sin"),
    "dtype of a map": value("map", (X,), (3, 4), "float32", name="sin"),
    "a comparison is bool": value("map", (X, X), (3, 4), name="less"),
    "mixed operands": value("map", (X, B), (3, 4), name="add"),
    "condition": value("map", (X, X, X), (3, 4), name="where"),
    "logic on numbers": value("map", (X, X), (3, 4), "bool", name="logical_and"),
    "a view leaves": value("view", (X,), (4,), offset=9, strides=(1,)),
    "a view leaves backwards": value("view", (X,), (2,), offset=0, strides=(-1,)),
    "strides of a view": value("view", (X,), (3, 4), offset=0, strides=(1,)),
    "axes of a fold": value("reduce", (X,), (3,), combine="add", axes=(2,)),
    "no axes": value("reduce", (X,), (3, 4), combine="add", axes=()),
    "shape of a fold": value("reduce", (X,), (4,), combine="add", axes=(1,)),
    "a box leaves": value("place", (X, X), (3, 4), starts=(0, 1), steps=(1, 1), add=False),
    "steps": value("place", (X, X), (3, 4), starts=(2, 0), steps=(-1, 1), add=False),
    "join": value("join", (X, I), (6, 4), axis=0),
    "indices": value("gather", (X, X), (3, 4, 4), axes=(0,), position=0),
    "gathered shape": value("gather", (X, I), (3,), axes=(0,), position=0),
    "scattered shape": value("scatter", (X, I, I), (3, 4), axes=(0,), position=0, add=True),
    "scan": value("scan", (X,), (3, 4), combine="add", axis=2),
    "product": value("dot", (X, X), (3, 4)),
    "product of integers": value("dot", (I, I), (), "int64"),
    "slot": value("call", (X,), (3, 4), function=np.sin, args=(Slot(1),), kwargs={}),
    "value in a call": value("call", (X,), (3, 4), function=np.sin, args=([X],), kwargs={}),
    "pick": value("pick", (X,), (3, 4), index=0),
    "constant": value("const", (), (), value=np.float32(1)),
    "kind": value("what", (X,), (3, 4)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_found(name):
    with pytest.raises(ProgramError):
        verify_program(Program([X], [X, I, B, WRONG[name]], [X]))


def test_order():
    y = value("map", (X,), (3, 4), name="sin")
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
    y = value("map", (X,), (3, 4), name="sin")
    optimise(Program([X], [X, y], [y]))
    with pytest.raises(ProgramError, match="broken"):
        optimise(Program([X], [X, y], [y]), check=True)


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
