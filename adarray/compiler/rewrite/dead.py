"""Dead code: values that no result needs.

References
----------
- R. Cytron, J. Ferrante, B. K. Rosen, M. N. Wegman, F. K. Zadeck, "Efficiently computing static
  single assignment form and the control dependence graph", ACM Trans. Program. Lang. Syst. 13
  (1991), 451-490.
"""

from __future__ import annotations

import numpy as np

from adarray.base.types import Function
from adarray.compiler.ir.primitives import ProgramInput, PythonCall
from adarray.compiler.ir.program import Program, Value

_MODULES = ("numpy", "scipy", "adarray")
_RANDOM = ("numpy.random",)


def pure(value: Value) -> bool:
    """Whether a value may be dropped, or computed once for two.

    Calls that draw random numbers, or of functions that are not known, may not.
    """
    p = value.primitive
    return not isinstance(p, PythonCall) or is_pure(p.function)


def is_pure(function: Function) -> bool:
    """Whether calls of a function depend on nothing but the arguments, and change nothing."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, np.ufunc):
        return getattr(function, "__name__", "") != "at"
    if owner is not None and not isinstance(owner, type) and type(owner).__name__ != "module":
        return False
    if isinstance(function, np.ufunc):
        return True
    module = getattr(function, "__module__", None) or ""
    if module.startswith(_RANDOM) or getattr(function, "__name__", "") == "draw":
        return False
    return module.partition(".")[0] in (*_MODULES, "_operator", "operator")


def dead(program: Program) -> Program:
    """Return the program without values that nothing reads; inputs stay."""
    live = set(program.outputs)
    needed = []
    for v in reversed(program.values):
        if v in live or isinstance(v.primitive, ProgramInput) or not pure(v):
            needed.append(v)
            live.update(v.args)
    return Program(program.inputs, reversed(needed), program.outputs)
