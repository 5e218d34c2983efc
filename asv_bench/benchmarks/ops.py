"""Single operations, forward and backward: by backend, threads, size and dtype.

Forward is the recorded call on a traced array; backward is the pullback of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import adarray
from adarray.base.op import Pointwise, all_ops
from adarray.ops.elementwise import relu

from .common import DTYPES, ENGINES, LARGE, OnEngine, uniform, warm

REAL, POSITIVE = (-3.0, 3.0), (0.5, 2.0)


class Case(NamedTuple):
    """An operation on square matrices; `row` marks operands that are one row."""

    call: Callable[..., Any]
    ranges: tuple[tuple[float, float], ...]
    row: tuple[bool, ...] = ()


# The fifteen operations of Patel and Karandikar, "Automatic Differentiation on CUDA", 2023.
STUDY = {
    "add": Case(np.add, (REAL, REAL)),
    "broadcast": Case(np.add, (REAL, REAL), (False, True)),
    "copy": Case(np.copy, (REAL,)),
    "divide": Case(np.divide, (REAL, POSITIVE)),
    "exp": Case(np.exp, (REAL,)),
    "log": Case(np.log, (POSITIVE,)),
    "matmul": Case(np.matmul, (REAL, REAL)),
    "max": Case(lambda x: np.max(x, axis=1), (REAL,)),
    "multiply": Case(np.multiply, (REAL, REAL)),
    "negate": Case(np.negative, (REAL,)),
    "power": Case(np.power, (POSITIVE, REAL)),
    "relu": Case(relu, (REAL,)),
    "subtract": Case(np.subtract, (REAL, REAL)),
    "sum": Case(lambda x: np.sum(x, axis=1), (REAL,)),
    "transpose": Case(np.transpose, (REAL,)),
}


def pointwise_cases() -> dict[str, Case]:
    """Return every elementwise operation of the registry, with its domains."""
    return {
        op.name: Case(op.numpy, tuple(op.samples))
        for op in all_ops()
        if isinstance(op.lower, Pointwise)
    }


def operands(case: Case, n: int, dtype: str) -> list[np.ndarray]:
    """Return the operands of `case` as n by n matrices (or a row of n)."""
    arrays = []
    for i, (low, high, *kind) in enumerate(case.ranges):
        shape = (n,) if case.row and case.row[i] else (n, n)
        x = uniform(shape, low, high, dtype, seed=i)
        arrays.append(x > (low + high) / 2 if "bool" in kind else x)
    return arrays


class _Forward(OnEngine):
    """The recorded call."""

    cases: dict[str, Case]
    timeout = 120

    def setup(self, engine: str, op: str, n: int, dtype: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        case = self.cases[op]
        self.call = case.call
        # Results of an operation, as most operands are: leaves take a longer way.
        self.args = [
            np.positive(adarray.array(x, requires_grad=True)) if x.dtype.kind == "f" else x
            for x in operands(case, n, dtype)
        ]
        warm(self.call, *self.args)

    def time_forward(self, *_: Any) -> None:
        """Compute and record."""
        self.call(*self.args)


class _Backward(OnEngine):
    """The pullback."""

    cases: dict[str, Case]
    timeout = 120

    def setup(self, engine: str, op: str, n: int, dtype: str) -> None:
        """Make the operands and run once."""
        self.enter(engine)
        case = self.cases[op]
        xs = operands(case, n, dtype)
        real = [x.dtype.kind == "f" for x in xs]

        def call(*traced: Any) -> Any:
            values = iter(traced)
            return case.call(*(next(values) if r else x for x, r in zip(xs, real, strict=True)))

        y, self.pullback = adarray.vjp(call, *(x for x, r in zip(xs, real, strict=True) if r))
        self.g = uniform(np.shape(y), 0.5, 1.5, dtype)
        warm(self.pullback, self.g)

    def time_backward(self, *_: Any) -> None:
        """Pull one cotangent back to all operands."""
        self.pullback(self.g)


_NAMES = ("engine", "op", "n", "dtype")
_SIZES = [64, 256, 1024, 4096] if LARGE else [32, 256]


class StudyForward(_Forward):
    """The fifteen operations, forward."""

    cases = STUDY
    params = (list(ENGINES), sorted(STUDY), _SIZES, list(DTYPES))
    param_names = _NAMES


class StudyBackward(_Backward):
    """The fifteen operations, backward."""

    cases = STUDY
    params = StudyForward.params
    param_names = _NAMES


class ElementwiseForward(_Forward):
    """Every elementwise operation of the registry, forward."""

    cases = pointwise_cases()
    params = (list(ENGINES), sorted(cases), [1024] if LARGE else [128], list(DTYPES)[: 1 + LARGE])
    param_names = _NAMES


class ElementwiseBackward(_Backward):
    """Every elementwise operation of the registry, backward."""

    cases = ElementwiseForward.cases
    params = ElementwiseForward.params
    param_names = _NAMES
