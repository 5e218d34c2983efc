"""Running a program with NumPy, one value after the other.

This is what the other stages are checked against, and what runs where there is no
compiler: each value is what NumPy's own function of that name makes of its operands,
so results are those of the recorded calls, bit for bit. With an engine, pointwise
operations, reductions and products go to its kernels first, as those of eager code do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from adarray.base.engines import Engine
from adarray.base.errors import ADArrayError
from adarray.base.types import Params
from adarray.compiler.ir.interpret_values import (
    Array,
    Run,
    RunPlace,
    Values,
    constant_value,
    may_alias,
    run_of,
)
from adarray.compiler.ir.primitives import ProgramInput
from adarray.compiler.ir.program import Program, Value


def interpret(program: Program, arrays: Iterable[npt.ArrayLike]) -> list[Array]:
    """Return the results of `program` for the inputs `arrays`.

    Parameters
    ----------
    program : Program
    arrays : iterable of ndarray
        One for each input. They are not written to.

    Returns
    -------
    list
        Fresh arrays, none sharing memory with another or with an input; NumPy scalars for
        results without axes.

    Examples
    --------
    >>> from adarray.compiler.ir.primitives import Map, ProgramInput
    >>> from adarray.compiler.ir.program import Program, Value
    >>> x = Value(ProgramInput(0, (1,)), (), (3,), "float64")
    >>> y = Value(Map("multiply"), (x, x), (3,), "float64")
    >>> interpret(Program([x], [x, y], [y]), [np.arange(3.0)])
    [array([0., 1., 4.])]
    """
    return Interpreted(program)(list(arrays))


class Interpreted:
    """A program that runs with NumPy, and with the kernels of an engine if there is one.

    Called with a list of arrays, one for each input, it returns the list of results as
    `interpret` does. Values are dropped after their last use.

    Parameters
    ----------
    program : Program
    engine : Engine, optional
    around : callable, optional
        ``around(value, operands, run)`` returns what runs in place of each step.
    """

    def __init__(
        self,
        program: Program,
        engine: Engine | None = None,
        around: Callable[[Value, tuple[int, ...], Run], Run] | None = None,
    ) -> None:
        self.program = program
        slots = {v: i for i, v in enumerate(program.values)}
        self._inputs = [slots[v] for v in program.inputs]
        self._outputs = [slots[v] for v in program.outputs]
        self._start: Values = [None] * len(slots)
        self._constants: set[int] = set()  # identities of arrays that outlive a call
        self._steps: list[tuple[Run, int, tuple[int, ...]]] = []
        lives = _Lives(program, slots)
        for i, v in enumerate(program.values):
            if isinstance(v.primitive, ProgramInput):
                continue
            constant = constant_value(v)
            if constant is not None:
                self._start[i] = constant
                self._constants.add(id(constant))
                continue
            operands = tuple(slots[a] for a in v.args)
            step = RunPlace(operands, engine, around is None and lives.last_touch(i))
            run = under(v.origin.errors if v.origin else None, run_of(v, step))
            if around is not None:
                run = around(v, operands, run)
            self._steps.append((run, i, lives.dead_after(i)))

    def __call__(
        self,
        arrays: Sequence[npt.ArrayLike],
        watch: Callable[[Value, int, int], object] | None = None,
    ) -> list[Array]:
        """Return the results for `arrays`.

        Parameters
        ----------
        arrays : list of ndarray
        watch : callable, optional
            ``watch(value, start, stop)`` is called after each step, with the times of
            `time.perf_counter_ns`.
        """
        if len(arrays) != len(self._inputs):
            raise ADArrayError(
                f"program: it has {len(self._inputs)} inputs, got {len(arrays)} arrays"
            )
        values = self._start.copy()
        for i, x in zip(self._inputs, arrays, strict=True):
            values[i] = x if isinstance(x, np.ndarray) else np.asarray(x)
        shared = self._constants | {id(values[i]) for i in self._inputs}
        for run, i, dead in self._steps:
            if watch is None:
                values[i] = run(values)
            else:
                start = time.perf_counter_ns()
                values[i] = run(values)
                watch(self.program.values[i], start, time.perf_counter_ns())
            for k in dead:
                values[k] = None
        return [_result(values[i], shared) for i in self._outputs]

    def __repr__(self) -> str:
        return f"<interpreted {self.program!r}>"


def under(errors: Params | None, run: Run) -> Run:
    """Return a step that runs with what the function itself asked of `numpy.errstate`."""
    if errors is None:
        return run

    def quiet(values: Values) -> object:
        with np.errstate(**errors):
            return run(values)

    return quiet


def _result(x: np.ndarray, shared: set[int]) -> Array:
    """Return a value as a result: a scalar, or an array that nobody else has."""
    if x.ndim == 0:
        return x[()]
    if id(x) in shared or x.base is not None or not (x.flags.owndata and x.flags.writeable):
        x = np.array(x, order="C")
    shared.add(id(x))
    return x


# -- lives of values -----------------------------------------------------------------------


class _Lives:
    """When values are used for the last time, and whose memory they share."""

    def __init__(self, program: Program, slots: dict[Value, int]) -> None:
        values = program.values
        group = list(range(len(values)))  # the first value that may share its memory

        def find(i: int) -> int:
            while group[i] != i:
                group[i] = group[group[i]]
                i = group[i]
            return i

        last = list(range(len(values)))
        for i, v in enumerate(values):
            alias = may_alias(v)
            for a in v.args:
                k = slots[a]
                last[k] = i
                if alias:
                    one, other = sorted((find(k), find(i)))
                    group[other] = one
        for v in program.outputs:
            last[slots[v]] = len(values)
        self._values = values
        self._slots = slots
        self._group = [find(i) for i in range(len(values))]
        self._last_of_group: dict[int, int] = {}
        self._dead: dict[int, list[int]] = {}
        for i, end in enumerate(last):
            g = self._group[i]
            self._last_of_group[g] = max(self._last_of_group.get(g, 0), end)
            self._dead.setdefault(end, []).append(i)

    def dead_after(self, i: int) -> tuple[int, ...]:
        """Return the values that nothing after step `i` reads."""
        return tuple(self._dead.get(i, ()))

    def last_touch(self, i: int) -> bool:
        """Whether step `i` may write into its first operand: nothing sees that memory later."""
        v = self._values[i]
        if not v.args:
            return False
        base = v.args[0]
        g, *others = (self._group[self._slots[a]] for a in v.args)
        owner = self._values[g]
        own = not may_alias(owner)
        return own and owner is base and self._last_of_group[g] == i and g not in others
