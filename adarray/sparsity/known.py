"""Values of a program that do not depend on the differentiated inputs, computed lazily."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from adarray.compiler.ir.interpret_values import RunPlace, constant_value, run_of
from adarray.compiler.ir.primitives import ProgramInput
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.dead import pure


class Known:
    """Values of a program that do not depend on the differentiated inputs.

    Parameters
    ----------
    program : Program
    values : mapping of int to ndarray
        Inputs by number that are not differentiated, with what they hold now.

    Attributes
    ----------
    used : set of int
        Inputs whose contents were read.
    """

    def __init__(self, program: Program, values: Mapping[int, Any]) -> None:
        self._inputs = values
        self.used: set[int] = set()
        self._place = {v: i for i, v in enumerate(program.values)}
        self._all = program.values
        self._values: list[Any] = [None] * len(program.values)
        self._varies: list[bool] = []
        # The inputs that each value is computed from are wanted only where one is used.
        for v in program.values:
            self._varies.append(self._starts_varying(v))

    def _starts_varying(self, v: Value) -> bool:
        if isinstance(v.primitive, ProgramInput):
            return v.primitive.index not in self._inputs
        if not pure(v):
            return True
        return any(self._varies[self._place[a]] for a in v.args)

    def varies(self, v: Value) -> bool:
        """Whether a value may be another one in another run along the same path."""
        return self._varies[self._place[v]]

    def inputs_of(self, v: Value) -> set[int]:
        """Return the numbers of the inputs that a known value is computed from."""
        indices: set[int] = set()
        seen: set[Value] = set()
        stack = [v]
        while stack:
            w = stack.pop()
            if w in seen:
                continue
            seen.add(w)
            if isinstance(w.primitive, ProgramInput):
                indices.add(w.primitive.index)
            stack += w.args
        return indices

    def value(self, v: Value) -> Any:
        """Return the array of a value that does not vary; note which inputs that relies on."""
        self.used |= self.inputs_of(v)
        stack = [v]
        while stack:
            w = stack[-1]
            at = self._place[w]
            if self._values[at] is not None:
                stack.pop()
                continue
            missing = [a for a in w.args if self._values[self._place[a]] is None]
            if missing:
                stack += missing
                continue
            stack.pop()
            self._values[at] = self._computed(w)
        return self._values[self._place[v]]

    def _computed(self, v: Value) -> Any:
        if isinstance(v.primitive, ProgramInput):
            return np.asarray(self._inputs[v.primitive.index])
        constant = constant_value(v)
        if constant is not None:
            return constant
        operands = tuple(self._place[a] for a in v.args)
        with np.errstate(all="ignore"):
            return run_of(v, RunPlace(operands, None, False))(self._values)
