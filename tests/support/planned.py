"""A plan by hand: two kernels, a product and a call, with costs that can be counted.

For tests of `explain`, pictures and profiles.
"""

from __future__ import annotations

import numpy as np

from adarray.base.recording import Call, Guard, Symbol
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Param,
    Store,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Note, Operand, Plan
from adarray.compiler.ir.primitives import (
    Constant,
    Map,
    Matmul,
    ProgramInput,
    PythonCall,
    Reduce,
    Slot,
)
from adarray.compiler.ir.program import Program, Value
from adarray.runtime import CompiledPlan

N, M = 1000, 100
F = np.dtype(np.float64)


def call(function, line):
    return Call(None, function, (), {}, (), where=("/home/user/model.py", line))


def example():
    """Return program and plan of ``s = sin(2 x); sort(sum(s) * (s @ w)), sum(s), s``."""
    x = Value(ProgramInput(0, (1,)), (), (N,), F)
    w = Value(ProgramInput(1, (M, 1)), (), (N, M), F)
    two = Value(Constant(np.float64(2.0)), (), (), F)
    doubled = Value(Map("multiply"), (x, two), (N,), F, call(np.multiply, 11))
    s = Value(Map("sin"), (doubled,), (N,), F, call(np.sin, 12))
    total = Value(Reduce("add", (0,)), (s,), (), F, call(np.sum, 13))
    product = Value(Matmul(), (s, w), (M,), F, call(np.matmul, 14))
    scaled = Value(Map("multiply"), (product, total), (M,), F, call(np.multiply, 15))
    ordered = Value(PythonCall(np.sort, (Slot(0),), {}), (scaled,), (M,), F, call(np.sort, 16))
    values = [x, w, two, doubled, s, total, product, scaled, ordered]
    program = Program([x, w], values, [ordered, total, s])

    bx, bw = Buffer("input", F, N, 0), Buffer("input", F, N * M, 1)
    bs, bt = Buffer("output", F, N, 2), Buffer("output", F, 1, 1)
    bp, bm = Buffer("temp", F, M), Buffer("temp", F, M)
    bo = Buffer("output", F, M, 0)
    bp.offset, bm.offset = 0, 832
    steps = (
        KernelStep(_first(), (bx, bs, bt), (N,), (doubled, s, total), 1000.0),
        MatmulStep(
            Operand(bs, 0, (1, N), (0, 1)),
            Operand(bw, 0, (N, M), (M, 1)),
            Operand(bp, 0, (1, M), (M, 1)),
            (product,),
        ),
        KernelStep(_second(), (bp, bt, bm), (M,), (scaled,), 100.0),
        CallStep(np.sort, (Slot(0),), {}, (Operand(bm, 0, (M,), (1,)),), (bo,), (ordered,)),
    )
    outputs = (Operand(bo, 0, (M,), (1,)), Operand(bt, 0, (), ()), Operand(bs, 0, (N,), (1,)))
    notes = (
        Note(s, product, "a product reads its operands from memory"),
        Note(product, scaled, "a product is a step of its own"),
    )
    return program, Plan(steps, (bx, bw, bs, bt, bp, bm, bo), (), outputs, 1664, notes)


def _first() -> Kernel:
    i = Var("int64", "i")
    doubled = Apply("float64", "multiply", (Load("float64", "a", i), Const("float64", 2.0)))
    body = (
        Let("v", Apply("float64", "sin", (doubled,))),
        Store("b", i, Var("float64", "v")),
        Fold("acc", "add", Var("float64", "v")),
    )
    return Kernel(
        (Param("a", "float64"), Param("b", "float64", "out"), Param("t", "float64", "out")),
        ("n",),
        (Total("acc", "float64", "add", "t"),),
        (For("i", integer(0), Var("int64", "n"), body, "vector"),),
    )


def _second() -> Kernel:
    i = Var("int64", "i")
    scaled = Apply(
        "float64", "multiply", (Load("float64", "a", i), Load("float64", "t", integer(0)))
    )
    return Kernel(
        (Param("a", "float64"), Param("t", "float64"), Param("o", "float64", "out")),
        ("n",),
        (),
        (For("i", integer(0), Var("int64", "n"), (Store("o", i, scaled),), "vector"),),
    )


def events():
    """Return a recording that ends at a guard: ``if sum(sin(x)) > 0``, on line 14."""
    x, s, t, b = Symbol((N,), F), Symbol((N,), F), Symbol((), F), Symbol((), bool)
    model = "/home/user/model.py"
    return (
        Call(None, np.sin, (x,), {}, (s,), where=(model, 12)),
        Call(None, np.sum, (s,), {"axis": 0}, (t,), where=(model, 13)),
        Call(None, np.greater, (t, 0.0), {}, (b,), where=(model, 14)),
        Guard("bool", b, True, (model, 14)),
    )


class Executable(CompiledPlan):
    """Stands in for compiled code: runs the plan's example and says how long its steps took."""

    compiled, from_disk, in_memory = 1, 1, 0

    def __init__(self) -> None:
        self.stamps: list[int] = []

    def source_of(self, step: int) -> str:
        return f"/* step {step} */ int64_t adk_{step}(void);" if step in (0, 2) else ""

    def schedule_of(self, step: int) -> str:
        return ""

    def timed(self, arrays):
        import time

        self.stamps = [time.perf_counter_ns()]
        x, w = arrays
        s = np.sin(2 * x)
        total = s.sum()
        self.stamps.append(time.perf_counter_ns())
        product = s @ w
        self.stamps.append(time.perf_counter_ns())
        scaled = product * total
        self.stamps.append(time.perf_counter_ns())
        out = np.sort(scaled)
        self.stamps.append(time.perf_counter_ns())
        return [out, total, s], self.stamps

    def __call__(self, arrays):
        return self.timed(arrays)[0]
