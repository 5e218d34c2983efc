"""Passes: what is done to a program between recording and kernels, in order."""

from __future__ import annotations

from collections.abc import Callable

from adarray.passes.algebra import algebra
from adarray.passes.cse import cse
from adarray.passes.dead import dead
from adarray.passes.fold import fold
from adarray.passes.layout import layout
from adarray.passes.products import products
from adarray.passes.verify import ProgramError, verify_program
from adarray.program import Program
from adarray.spans import span

Pass = Callable[[Program], Program]

# Patterns are looked for among values that are equal if and only if they are identical.
PASSES: tuple[Pass, ...] = (dead, fold, cse, layout, algebra, products, cse, dead)


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
