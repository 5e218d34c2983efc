"""Passes: what is done to a program between recording and kernels, in order."""

from __future__ import annotations

from collections.abc import Callable

from adarray.base.spans import span
from adarray.compiler.ir.program import Program
from adarray.compiler.ir.verify_program import ProgramError, verify_program
from adarray.compiler.rewrite.algebra import algebra
from adarray.compiler.rewrite.cse import cse
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.fold import fold
from adarray.compiler.rewrite.hoist import hoist
from adarray.compiler.rewrite.layout import layout
from adarray.compiler.rewrite.products import products

Pass = Callable[[Program], Program]

# Patterns are looked for among values that are equal if and only if they are identical.
PASSES: tuple[Pass, ...] = (dead, fold, cse, layout, algebra, products, hoist, cse, dead)


def optimise(program: Program, check: bool = False) -> Program:
    """Return a program that computes the same with less.

    Parameters
    ----------
    program : Program
    check : bool
        Whether to verify the program before and after every pass.

    Raises
    ------
    ProgramError
        If `check` finds a pass at fault.
    """
    if check:
        verify_program(program, "canonicalise")
    for step in PASSES:
        with span("passes", step.__name__):
            program = step(program)
        if check:
            verify_program(program, step.__name__)
    return program


__all__ = ["PASSES", "ProgramError", "optimise", "verify_program"]
