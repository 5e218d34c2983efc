"""What compiling backends are given: plans, the loop IR of kernels, targets, scalar functions.

`adarray.runtime.CompilingEngine` is what such a backend provides, and docs/backends.rst the guide.

A `Plan` is a list of steps, run in order, and the memory that they read and write. A `KernelStep`
runs a `Kernel`: a loop nest in loop IR, a small language of frozen records: expressions (`Expr`),
statements (`Stmt`) and parameters. A `MatmulStep` multiplies matrices, and a `CallStep` calls a
Python function.
"""

from adarray.compiler.ir.interpret_values import function_of as numpy_function
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.compiler.ir.plan import (
    Buffer,
    CallStep,
    KernelStep,
    MatmulStep,
    Operand,
    Plan,
    Step,
)
from adarray.compiler.ir.primitives import Slot
from adarray.compiler.ir.target import CPU, GPU, CpuTarget, GpuTarget, Target
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.scalars.catalogue import FUNCTIONS as SCALAR_FUNCTIONS
from adarray.compiler.scalars.record import (
    Helper,
    Infix,
    LibraryFunction,
    ScalarFunction,
    Template,
    VectorVersion,
)

__all__ = [
    "CPU",
    "GPU",
    "SCALAR_FUNCTIONS",
    "Apply",
    "Assign",
    "Buffer",
    "CallStep",
    "Const",
    "CpuTarget",
    "Expr",
    "Fail",
    "Fold",
    "For",
    "GpuTarget",
    "Helper",
    "If",
    "Infix",
    "Kernel",
    "KernelStep",
    "Let",
    "LibraryFunction",
    "Load",
    "Local",
    "MatmulStep",
    "Operand",
    "Param",
    "Plan",
    "ScalarFunction",
    "Slot",
    "Step",
    "Stmt",
    "Store",
    "Target",
    "Template",
    "Total",
    "Var",
    "VectorVersion",
    "numpy_function",
    "statements",
    "verify",
    "walk",
]
