"""A slow interpreter of loop IR, for tests of kernels; written with the public paths alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from adarray.compiling import (
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
    Stmt,
    Store,
    Var,
    numpy_function,
)

NEUTRAL = {"add": 0, "multiply": 1, "logical_and": True, "logical_or": False}


class LeftError(Exception):
    """A kernel was left by Fail."""


def neutral(combine: str, dtype: str) -> Any:
    """Return the number that a fold of that kind begins with."""
    if combine in NEUTRAL:
        return np.dtype(dtype).type(NEUTRAL[combine])
    sign = -1 if combine == "maximum" else 1
    if np.dtype(dtype).kind == "f":
        return np.dtype(dtype).type(sign * np.inf)
    if dtype == "bool":
        return np.bool_(sign > 0)
    info = np.iinfo(dtype)
    return np.dtype(dtype).type(info.max if sign > 0 else info.min)


class Interpreter:
    """Runs a kernel on NumPy arrays, one element at a time, in the order of its text.

    Vector and parallel loops are run as serial ones, which is one of the orders that they allow.
    """

    def __init__(self, kernel: Kernel, arrays: Sequence[Any], ints: Sequence[int]) -> None:
        self.kernel = kernel
        self.memory = {b.name: a.reshape(-1) for b, a in zip(kernel.buffers, arrays, strict=True)}
        self.names: dict[str, Any] = {
            n: np.int64(v) for n, v in zip(kernel.ints, ints, strict=True)
        }

    def run(self) -> int:
        """Run it; return the code of the `Fail` that was reached, 0 if none was."""
        totals = self.kernel.totals
        for t in totals:
            shape = () if t.size is None else (int(self.expr(t.size)),)
            self.memory[t.name] = np.full(shape, neutral(t.combine, t.dtype), t.dtype)
        stored = not any(isinstance(s, For) and s.kind == "parallel" for s in self.kernel.body)
        try:
            for s in self.kernel.body:
                self.statement(s)
                if isinstance(s, For) and s.kind == "parallel":
                    self.store_totals()
            if stored:
                self.store_totals()
        except LeftError as left:
            return int(left.args[0])
        return 0

    def store_totals(self) -> None:
        """Store what was folded over the parallel loop."""
        for t in self.kernel.totals:
            total = self.memory[t.name]
            self.memory[t.out][: total.size] = total

    def expr(self, e: Expr) -> Any:
        """Return the value of an expression, a NumPy scalar."""
        if isinstance(e, Const):
            return np.dtype(e.dtype).type(e.value)
        if isinstance(e, Var):
            return self.names[e.name]
        if isinstance(e, Load):
            return self.memory[e.buffer][int(self.expr(e.index))]
        assert isinstance(e, Apply)
        args = [self.expr(a) for a in e.args]
        with np.errstate(all="ignore"):
            if e.name == "cast":
                return np.asarray(args[0]).astype(e.dtype)[()]
            # Arrays: NumPy's loops for them are the standard, not those of its scalars.
            # One element is a scalar to np.power, whose -inf ** 0.5 is nan then; in others the
            # length decides about the sign of the larger of two zeros.
            arrays = [np.asarray(a)[None] for a in args]
            if e.name == "power":
                arrays = [np.repeat(a, 2) for a in arrays]
            result = numpy_function(e.name)(*arrays)[0]
        return result.astype(e.dtype)

    def body(self, body: tuple[Stmt, ...]) -> None:
        """Run statements."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """Run a statement."""
        if isinstance(s, Let | Assign):
            self.names[s.name] = self.expr(s.value)
        elif isinstance(s, Local):
            if s.size is not None:
                self.memory[s.name] = np.zeros(int(self.expr(s.size)), s.dtype)
            else:
                self.names[s.name] = (
                    np.dtype(s.dtype).type(0) if s.init is None else self.expr(s.init)
                )
        elif isinstance(s, Store):
            self.memory[s.buffer][int(self.expr(s.index))] = self.expr(s.value)
        elif isinstance(s, Fold):
            self.fold(s)
        elif isinstance(s, If):
            self.body(s.body if self.expr(s.condition) else s.orelse)
        elif isinstance(s, Fail):
            raise LeftError(s.code)
        else:
            for i in range(int(self.expr(s.start)), int(self.expr(s.stop))):
                self.names[s.var] = np.int64(i)
                self.body(s.body)

    def fold(self, s: Fold) -> None:
        """Combine a value into a scalar or an element."""
        value, combine = self.expr(s.value), numpy_function(s.combine)
        with np.errstate(all="ignore"):
            if s.index is not None:
                i = int(self.expr(s.index))
                if s.before:
                    self.names[s.before] = self.memory[s.target][i]
                self.memory[s.target][i] = combine(self.memory[s.target][i], value)
            elif s.target in self.memory:
                self.memory[s.target][()] = combine(self.memory[s.target], value)
            else:
                self.names[s.target] = combine(self.names[s.target], value)
