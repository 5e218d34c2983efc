"""Running plans in Python: memory is checked, and what nothing has written is NaN.

It is written with the public paths alone, as backends of others are.
For tests of planning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from loop_interpreter import Interpreter

from adarray.compiling import (
    Buffer,
    CallStep,
    KernelStep,
    Local,
    MatmulStep,
    Operand,
    Plan,
    Slot,
    Step,
    Stmt,
)


class FailedError(Exception):
    """A kernel's `Fail` was reached."""


class Checked:
    """Memory that knows its bounds. Elements are counted from `first`."""

    def __init__(self, flat: Any, first: int = 0) -> None:
        self.flat = flat
        self.first = first
        self.size = flat.size

    def reshape(self, _: int) -> Checked:
        return self

    def _at(self, i: Any) -> Any:
        if isinstance(i, slice):
            return i
        if not 0 <= i + self.first < self.flat.size:
            raise IndexError(f"element {i} of {self.flat.size}")
        return i + self.first

    def __getitem__(self, i: Any) -> Any:
        return self.flat[self._at(i)]

    def __setitem__(self, i: Any, value: Any) -> None:
        self.flat[self._at(i)] = value


def poison(size: int, dtype: Any) -> Any:
    """Return memory that nobody has written."""
    array = np.empty(size, dtype)
    array.view(np.uint8)[:] = 1 if array.dtype == np.bool_ else 0xFF
    return array


class CheckedInterpreter(Interpreter):
    """Local arrays begin as poison."""

    def statement(self, s: Stmt) -> None:
        super().statement(s)
        if isinstance(s, Local) and s.size is not None:
            size = -(-int(self.expr(s.size)) // 64) * 64
            self.memory[s.name] = Checked(poison(size, s.dtype))


class PlanRunner:
    """A plan made ready to run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def __call__(self, arrays: list[Any]) -> list[Any]:
        self.arrays = [np.asarray(a) for a in arrays]
        self.arena = poison(self.plan.arena, np.uint8)
        self.outputs: dict[int, Any] = {}
        for step in self.plan.steps:
            self.step(step)
        # What is no memory of one result alone is copied, in C order, as by executables.
        buffers = [o.buffer for o in self.plan.outputs if o.buffer.kind == "output"]
        return [
            np.array(self.array(o), order="K" if buffers.count(o.buffer) == 1 else "C")
            for o in self.plan.outputs
        ]

    def memory(self, b: Buffer) -> Checked:
        """Return the memory of a buffer."""
        if b.kind == "input":
            return _spanned(self.arrays[b.index])
        if b.kind == "const":
            return Checked(np.ascontiguousarray(self.plan.consts[b.index]).reshape(-1))
        if b.donor >= 0:
            return _spanned(self.arrays[b.donor])
        if b.kind == "output":
            return Checked(self.outputs.setdefault(id(b), poison(b.size, b.dtype)))
        size = b.size * b.dtype.itemsize
        assert b.offset >= 0
        assert b.offset % 64 == 0
        assert b.offset + size <= self.plan.arena
        return Checked(self.arena[b.offset : b.offset + size].view(b.dtype))

    def array(self, o: Operand) -> Any:
        """Return the array that an operand is."""
        memory = self.memory(o.buffer)
        if 0 in o.shape:
            return np.empty(o.shape, o.buffer.dtype)
        low = memory.first + o.offset
        low += sum((n - 1) * s for n, s in zip(o.shape, o.strides, strict=True) if s < 0)
        high = memory.first + o.offset
        high += sum((n - 1) * s for n, s in zip(o.shape, o.strides, strict=True) if s > 0)
        assert 0 <= low <= high < memory.flat.size
        start = memory.flat[memory.first + o.offset :]
        strides = [s * start.itemsize for s in o.strides]
        return np.lib.stride_tricks.as_strided(start, o.shape, strides)

    def step(self, step: Step) -> None:
        """Run one step."""
        if isinstance(step, KernelStep):
            memories = [self.memory(b) for b in step.buffers]
            code = CheckedInterpreter(step.kernel, memories, step.ints).run()
            if code:
                raise FailedError(code)
        elif isinstance(step, MatmulStep):
            result = np.matmul(self.array(step.a), self.array(step.b))
            if step.added is not None:
                result = self.array(step.added) + result.dtype.type(step.scale) * result
            if step.row is not None:
                result = result + self.array(step.row)
            self.array(step.out)[...] = np.maximum(result, 0) if step.relu else result
        else:
            assert isinstance(step, CallStep)
            operands = [self.array(o) for o in step.operands]
            results = step.function(*_filled(step.args, operands), **_filled(step.kwargs, operands))
            many = results if isinstance(results, (tuple, list)) else (results,)
            for b, x in zip(step.results, many, strict=True):
                self.memory(b).flat[:] = np.asarray(x).reshape(-1)


def _spanned(x: Any) -> Checked:
    """Return the memory of an array of any strides, counted from its first element."""
    if x.size == 0:
        return Checked(np.empty(0, x.dtype))
    low = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(x.shape, x.strides, strict=True) if s > 0)
    first = x[tuple(slice(None, None, -1) if s < 0 else slice(None) for s in x.strides)]
    count = (high - low) // x.itemsize + 1
    flat = np.lib.stride_tricks.as_strided(first, (count,), (x.itemsize,))
    return Checked(flat, -low // x.itemsize)


def _filled(value: Any, operands: list[Any]) -> Any:
    """Return arguments with their operands in place."""
    if isinstance(value, Slot):
        return operands[value.index]
    if isinstance(value, (tuple, list)):
        return type(value)(_filled(v, operands) for v in value)
    if isinstance(value, dict):
        return {k: _filled(v, operands) for k, v in value.items()}
    return value
