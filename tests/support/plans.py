"""Plans made by hand, for tests of what runs them.

For tests of executors on processors and GPUs.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Param,
    Stmt,
    Store,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, Operand, Plan
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.program import Value, c_strides

_unique = itertools.count(1)
INDEX, N = Var("int64", "i"), Var("int64", "n")


def buffer(kind: str, size: int, index: int = -1, dtype: Any = np.float64) -> Buffer:
    return Buffer(kind, np.dtype(dtype), size, index)


def whole(b: Buffer, shape: tuple[int, ...] | None = None) -> Operand:
    """Return a whole buffer as an operand in C order."""
    shape = (b.size,) if shape is None else shape
    return Operand(b, 0, shape, c_strides(shape))


def operand(b: Buffer, x: np.ndarray, base: np.ndarray) -> Operand:
    """Return `b`, which holds the elements of `base`, seen as `x` sees them."""
    step = x.itemsize
    offset = (x.ctypes.data - base.ctypes.data) // step
    return Operand(b, offset, x.shape, tuple(s // step for s in x.strides))


def plan(steps: Any, buffers: Any, outputs: Any, consts: Any = ()) -> Plan:
    """Return a plan whose temporaries lie one after the other."""
    arena = 0
    for b in buffers:
        if b.kind == "temp":
            b.offset = arena
            arena += -(-b.size * b.dtype.itemsize // 64) * 64
    return Plan(tuple(steps), tuple(buffers), tuple(consts), tuple(outputs), arena)


def apply(name: str, *args: Expr, dtype: str = "float64") -> Expr:
    return Apply(dtype, name, args)


def scaled(dtype: str = "float64", factor: float | None = None) -> Kernel:
    """Return a kernel ``out = exp(a) * s``, the sum of it in `total`, for a scalar `s`.

    With a factor, ``out = exp(a) * s * factor``; two factors are two kernels.
    """
    value = apply(
        "multiply",
        apply("exp", Load(dtype, "a", INDEX), dtype=dtype),
        Load(dtype, "s", integer(0)),
        dtype=dtype,
    )
    if factor is not None:
        value = apply("multiply", value, Const(dtype, factor), dtype=dtype)
    body: tuple[Stmt, ...] = (
        Let("v", value),
        Store("out", INDEX, Var(dtype, "v")),
        Fold("sum", "add", Var(dtype, "v")),
    )
    return Kernel(
        (
            Param("a", dtype),
            Param("s", dtype),
            Param("out", dtype, "out"),
            Param("total", dtype, "out"),
        ),
        ("n",),
        (Total("sum", dtype, "add", "total"),),
        (For("i", integer(0), N, body, "vector"),),
    )


def unique() -> Kernel:
    """Return a kernel that was never made before in this process."""
    return scaled(factor=1.0 + next(_unique) / 1024)


def scaled_plan(n: int, dtype: str = "float64", kernel: Kernel | None = None, work: float = 0.0):
    """Return a plan of two inputs, an array and a scalar, for `scaled`."""
    a, s = buffer("input", n, 0, dtype), buffer("input", 1, 1, dtype)
    out, total = buffer("output", n, 0, dtype), buffer("output", 1, 1, dtype)
    step = KernelStep(kernel or scaled(dtype), (a, s, out, total), (n,), (), work)
    return plan([step], [a, s, out, total], [whole(out), whole(total, ())])


def refusing() -> Kernel:
    """Return a kernel that copies `a` and fails with code 7 where an element is negative."""
    negative = Apply("bool", "less", (Load("float64", "a", INDEX), Const("float64", 0.0)))
    return Kernel(
        (Param("a", "float64"), Param("out", "float64", "out")),
        ("n",),
        (),
        (
            For(
                "i",
                integer(0),
                N,
                (If(negative, (Fail(7),)), Store("out", INDEX, Load("float64", "a", INDEX))),
                "parallel",
            ),
        ),
    )


def call_step(
    function: Any, args: Any, kwargs: Any, operands: Any, result: Any, results: Any = None
) -> CallStep:
    """Return a step that calls `function`; its first result is `made[0]`."""
    shape, dtype = (result[0].size,), result[0].dtype
    value = Value(PythonCall(function, args, kwargs, results), (), shape, dtype)
    return CallStep(function, args, kwargs, operands, result, (value,))


def sorted_plan(function: Any, n: int = 6) -> Plan:
    """Return a plan: a kernel, a call of `function` on its result, and another kernel."""
    a, s, out, total = (
        buffer("input", n, 0), buffer("input", 1, 1), buffer("output", n, 0), buffer("output", 1, 1)
    )  # fmt: skip
    middle, called = buffer("temp", n), buffer("temp", n)
    steps = [
        KernelStep(scaled(), (a, s, middle, total), (n,), (), 0.0),
        call_step(function, (Slot(0),), {}, (whole(middle),), (called,)),
        KernelStep(scaled(), (called, s, out, total), (n,), (), 0.0),
    ]
    return plan(steps, [a, s, middle, called, out, total], [whole(out), whole(total, ())])


class Rerun:
    """What an executable calls after flags that `numpy.errstate` asks for, or a failure."""

    def __init__(self, function: Any) -> None:
        self.function = function

    def hears(self, flags: int) -> bool:
        handling = np.geterr()
        names = ("divide", "over", "under", "invalid")
        return any(flags >> i & 1 and handling[n] != "ignore" for i, n in enumerate(names))

    def __call__(self, arrays: Any, flags: int, code: int, results: Any) -> Any:
        return self.function(arrays, flags, code, results)
