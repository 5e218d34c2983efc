"""Warnings and errors of NumPy and Python, which compiled code cannot raise itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.base.recording import PYTHON, Call
from adarray.compiler.ir.interpret import Interpreted
from adarray.compiler.ir.primitives import ProgramInput
from adarray.compiler.ir.program import Program

Run = Callable[[list[Any]], list[Any]]


class FailError(Exception):
    """A compiled segment stopped; f must run eagerly, which raises NumPy's own error."""


# Attribute of exceptions that came when donated arguments had been overwritten: the function
# itself cannot run in the place of its compiled code any more.
SPENT = "adarray_spent"

_FLAGS = (("divide", 1), ("over", 2), ("under", 4), ("invalid", 8))
_PYTHON_BITS = sum(bit for name, bit in _FLAGS if PYTHON[name] == "raise")


class Rerun:
    """What happens when a compiled program raised floating-point flags, or stopped.

    NumPy's warnings and errors are those of its own functions, so the program is run again
    with them: where np.errstate asks for warnings only the first time.
    """

    def __init__(self, program: Any, spent: bool = False) -> None:
        self._program = program
        self._spent = spent  # whether arguments hold results by now
        self._run: Run | None = None
        self._warned = 0
        # What the function itself asks for in blocks of np.errstate; None: what the caller does.
        origins = dict.fromkeys(v.origin for v in program.values)
        settings = [None if x is None else x.errors for x in origins]
        self._own = [x for x in settings if x is not None and x is not PYTHON]
        self._outer = any(x is None for x in settings)
        # Arithmetic of Python numbers, which raises errors of its own.
        self._numbers = _numbers_of(program) if any(x is PYTHON for x in settings) else None

    def _settings(self, flags: int) -> set[str]:
        """Return the settings of `np.errstate` for raised flags."""
        settings: list[dict[str, Any]] = [*self._own, *([dict(np.geterr())] if self._outer else [])]
        return {errors[name] for name, bit in _FLAGS if flags & bit for errors in settings}

    def hears(self, flags: int) -> bool:
        """Whether anybody asked for any of the raised flags."""
        python = self._numbers is not None and bool(flags & _PYTHON_BITS)
        return python or not self._settings(flags) <= {"ignore"}

    def __call__(self, arrays: list[Any], flags: int, code: int, results: Any) -> Any:
        """Return the results of the call, after NumPy has warned, raised or called."""
        if code:
            raise FailError(f"code {code}")
        if self._numbers is not None and flags & _PYTHON_BITS:
            self._numbers(list(arrays))  # where Python would raise, f runs eagerly
        wants = self._settings(flags)
        if wants <= {"ignore"} or (
            wants <= {"ignore", "warn"} and flags | self._warned == self._warned
        ):
            return results
        self._warned |= flags
        if self._spent:
            _signal(flags)
            return results
        if self._run is None:
            self._run = Interpreted(self._program)
        self._run(list(arrays))
        return results


def _signal(flags: int) -> None:
    """Let NumPy say that flags were raised, without what raised them."""
    one, huge = np.ones(1), np.full(1, 1e308)
    examples: Any = ((np.divide, one, 0.0), (np.multiply, huge, huge), (np.divide, 1e-308, huge),
                (np.subtract, np.inf, np.full(1, np.inf)))  # fmt: skip
    try:
        for (function, x, y), (_, bit) in zip(examples, _FLAGS, strict=True):
            if flags & bit:
                function(x, y)
    except Exception as error:
        setattr(error, SPENT, True)
        raise


def _numbers_of(program: Program) -> Run:
    """Return a function that computes the arithmetic of Python numbers alone."""
    results = [v for v in program.values if _of_numbers(v.origin)]
    live = {*results, *program.inputs}
    needed = []
    for v in reversed(program.values):
        if v in live:
            needed.append(v)
            live.update(v.args)
    return Interpreted(Program(program.inputs, reversed(needed), results))


def _of_numbers(call: Call | None) -> bool:
    """Whether a recorded call was arithmetic of Python numbers."""
    return call is not None and call.errors is PYTHON


# Arithmetic of Python numbers that raises, other than by overflow.
_RAISING = frozenset({"divide", "floor_divide", "remainder", "power", "float_power"})


def after_numbers(run: Run, program: Program, kind: type) -> Run:
    """Return `run` after arithmetic of Python numbers that may raise.

    Devices tell of no floating-point flags, so it is done on the host in every call, if the
    numbers are there: where Python would raise, this does, and f runs eagerly. `kind` is the class
    of arrays on the device.
    """
    results = [
        v
        for v in program.values
        if v.args
        and v.origin is not None
        and _of_numbers(v.origin)
        and getattr(v.origin.function, "__name__", "") in _RAISING
    ]
    if not results:
        return run
    needed = set(results)
    for v in reversed(program.values):
        if v in needed:
            needed.update(v.args)
    values = [v for v in program.values if v in needed or isinstance(v.primitive, ProgramInput)]
    numbers = Interpreted(Program(program.inputs, values, results))
    used = [v in needed for v in program.inputs]

    def both(arrays: list[Any]) -> list[Any]:
        if all(type(x) is not kind for x, u in zip(arrays, used, strict=True) if u):
            numbers([x if u else 0.0 for x, u in zip(arrays, used, strict=True)])
        return run(arrays)

    return both
