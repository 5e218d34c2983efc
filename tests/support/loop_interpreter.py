"""Running plans in Python: kernels of loop IR become Python functions, statement by statement."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.codegen.loopir import (
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
)
from adarray.codegen.plan import Buffer, CallStep, DotStep, KernelStep, Operand, Plan
from adarray.program import Slot

NEUTRAL = {"add": 0, "multiply": 1, "logical_or": False, "logical_and": True}
SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "floor_divide": "//", "remainder": "%"}


class FailedError(Exception):
    """A kernel's `Fail` was reached."""


def neutral(combine: str, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if combine in NEUTRAL:
        return dtype.type(NEUTRAL[combine])
    if dtype == bool:
        return np.bool_(combine == "minimum")
    if dtype.kind == "f":
        return dtype.type(-np.inf if combine == "maximum" else np.inf)
    info = np.iinfo(dtype)
    return dtype.type(info.min if combine == "maximum" else info.max)


def apply(name: str, dtype: str, *args: Any) -> Any:
    if name == "cast":
        return np.asarray(args[0]).astype(dtype)[()]
    return np.dtype(dtype).type(getattr(np, name)(*args))


class Writer:
    """Writes a kernel as Python."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.lines: list[str] = []
        self.indent = 1
        self.consts: dict[str, Any] = {}
        self.totals = {t.name for t in kernel.totals}

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def expr(self, e: Expr) -> str:
        if isinstance(e, Var):
            return e.name
        if isinstance(e, Const):
            if e.dtype == "int64":
                return repr(int(e.value))
            name = f"c{len(self.consts)}_"
            self.consts[name] = np.dtype(e.dtype).type(e.value)
            return name
        if isinstance(e, Load):
            return f"at({e.buffer}, {self.expr(e.index)})"
        assert isinstance(e, Apply)
        args = [self.expr(a) for a in e.args]
        if e.dtype == "int64" and e.name in SIGNS and not any(_loaded(a) for a in e.args):
            return f"({args[0]} {SIGNS[e.name]} {args[1]})"
        return f"apply({e.name!r}, {e.dtype!r}, {', '.join(args)})"

    def body(self, body: tuple[Stmt, ...]) -> None:
        self.indent += 1
        for s in body:
            self.statement(s)
        if not body:
            self.line("pass")
        self.indent -= 1

    def statement(self, s: Stmt) -> None:
        if isinstance(s, Let):
            self.line(f"{s.name} = {self.expr(s.value)}")
        elif isinstance(s, Local):
            if s.size is None:
                start = self.expr(s.init) if s.init is not None else 0
                self.line(f"{s.name} = {start}")
            else:
                self.line(f"{s.name} = poison(int({self.expr(s.size)}), {s.dtype!r})")
        elif isinstance(s, Assign):
            self.line(f"{s.name} = {self.expr(s.value)}")
        elif isinstance(s, Store):
            self.line(f"put({s.buffer}, {self.expr(s.index)}, {self.expr(s.value)})")
        elif isinstance(s, Fold):
            dtype, value = s.value.dtype, self.expr(s.value)
            if s.index is not None:
                at = self.expr(s.index)
                self.line(f"put({s.target}, {at}, apply({s.combine!r}, {dtype!r}, "
                          f"at({s.target}, {at}), {value}))")  # fmt: skip
            elif s.target in self.totals:
                self.line(f"{s.target}[0] = apply({s.combine!r}, {dtype!r}, {s.target}[0], {value})")
            else:
                self.line(f"{s.target} = apply({s.combine!r}, {dtype!r}, {s.target}, {value})")
        elif isinstance(s, For):
            self.line(f"for {s.var} in range(int({self.expr(s.start)}), int({self.expr(s.stop)})):")
            self.body(s.body)
            if s.kind == "parallel":
                self.merge()
        elif isinstance(s, If):
            self.line(f"if {self.expr(s.condition)}:")
            self.body(s.body)
            if s.orelse:
                self.line("else:")
                self.body(s.orelse)
        elif isinstance(s, Fail):
            self.line(f"raise FailedError({s.code})")

    def merge(self) -> None:
        for t in self.kernel.totals:
            self.line(f"{t.out}[:len({t.name})] = {t.name}")

    def function(self) -> Any:
        k = self.kernel
        names = ", ".join([b.name for b in k.buffers] + list(k.ints))
        for t in k.totals:
            size = self.expr(t.size) if t.size is not None else "1"
            self.line(f"{t.name} = full(int({size}), {t.combine!r}, {t.dtype!r})")
        for s in k.body:
            self.statement(s)
        if not any(isinstance(s, For) and s.kind == "parallel" for s in k.body):
            self.merge()
        self.line("return 0")
        scope = {"at": at, "put": put, "apply": apply, "poison": poison, "full": full,
                 "FailedError": FailedError, "np": np, **self.consts}  # fmt: skip
        exec("\n".join([f"def kernel({names}):", *self.lines]), scope)
        return scope["kernel"]


def _loaded(e: Expr) -> bool:
    return isinstance(e, Load)


def at(buffer: Any, index: Any) -> Any:
    i = int(index)
    if not isinstance(buffer, Signed) and not 0 <= i < len(buffer):
        raise IndexError(f"element {i} of {len(buffer)}")
    return buffer[i]


def put(buffer: Any, index: Any, value: Any) -> None:
    i = int(index)
    if not 0 <= i < len(buffer):
        raise IndexError(f"element {i} of {len(buffer)} is written")
    buffer[i] = value


def poison(size: int, dtype: str) -> Any:
    made = np.empty(-(-size // 64) * 64, dtype)
    made.view(np.uint8)[:] = 0xFF if made.dtype != bool else 1
    return made


def full(size: int, combine: str, dtype: str) -> Any:
    return np.full(size, neutral(combine, dtype), dtype)


class PlanRunner:
    """A plan that runs in Python. Memory that nothing has written is NaN."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.kernels = {
            id(s.kernel): Writer(s.kernel).function()
            for s in plan.steps
            if isinstance(s, KernelStep)
        }

    def __call__(self, arrays: list[Any]) -> list[Any]:
        plan = self.plan
        self.arrays = [np.asarray(a) for a in arrays]
        self.arena = poison(plan.arena + 64, "uint8")
        self.outputs: dict[int, Any] = {}
        with np.errstate(all="ignore"):
            for step in plan.steps:
                self.step(step)
        return [np.array(self.look(o)) for o in plan.outputs]

    def memory(self, b: Buffer) -> Any:
        if b.kind == "input":
            x = self.arrays[b.index]
            span = sum((n - 1) * abs(s) // x.itemsize for n, s in zip(x.shape, x.strides))
            if any(s < 0 for s in x.strides):
                return Signed(x)
            return np.lib.stride_tricks.as_strided(x, (span + 1 if x.size else 0,), (x.itemsize,))
        if b.kind == "const":
            return np.ascontiguousarray(self.plan.consts[b.index]).reshape(-1)
        if b.kind == "output":
            if id(b) not in self.outputs:
                self.outputs[id(b)] = poison(b.size, b.dtype)[: b.size] if b.size else np.empty(0, b.dtype)
            return self.outputs[id(b)]
        assert b.offset >= 0
        assert b.offset % 64 == 0
        assert b.offset + b.size * b.dtype.itemsize <= self.plan.arena
        return self.arena[b.offset : b.offset + b.size * b.dtype.itemsize].view(b.dtype)

    def look(self, o: Operand) -> Any:
        flat = self.memory(o.buffer)
        if 0 in o.shape:
            return np.empty(o.shape, o.buffer.dtype)
        if isinstance(flat, Signed):
            flat, start = flat.x, o.offset
            index = np.indices(o.shape).reshape(len(o.shape), -1)
            where = start + sum(s * i for s, i in zip(o.strides, index)) if o.shape else [start]
            found = [Signed(flat)[int(w)] for w in np.atleast_1d(where)]
            return np.array(found, flat.dtype).reshape(o.shape)
        return np.lib.stride_tricks.as_strided(
            flat[o.offset :], o.shape, [s * flat.itemsize for s in o.strides]
        )

    def step(self, step: Any) -> None:
        if isinstance(step, KernelStep):
            self.kernels[id(step.kernel)](*map(self.memory, step.buffers), *step.ints)
        elif isinstance(step, DotStep):
            self.look(step.out)[...] = np.matmul(self.look(step.a), self.look(step.b))
        else:
            assert isinstance(step, CallStep)
            found = step.function(
                *fill(step.args, [self.look(o) for o in step.operands]),
                **fill(step.kwargs, [self.look(o) for o in step.operands]),
            )
            many = found if isinstance(found, (tuple, list)) and len(step.results) > 1 else (found,)
            for b, x in zip(step.results, many, strict=True):
                self.memory(b)[:] = np.asarray(x).reshape(-1)


class Signed:
    """Elements of an array with negative strides, counted from its first element."""

    def __init__(self, x: Any) -> None:
        self.x = x
        self.address = x.__array_interface__["data"][0]
        low = sum((n - 1) * s for n, s in zip(x.shape, x.strides) if s < 0)
        high = sum((n - 1) * s for n, s in zip(x.shape, x.strides) if s > 0)
        self.low = low // x.itemsize
        start = tuple(slice(None, None, -1 if s < 0 else 1) for s in x.strides)
        self.flat = np.lib.stride_tricks.as_strided(
            x[start], ((high - low) // x.itemsize + 1,), (x.itemsize,)
        )

    def __len__(self) -> int:
        return 1 << 60

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i - self.low < len(self.flat):
            raise IndexError(f"element {i}")
        return self.flat[i - self.low]


def fill(value: Any, operands: list[Any]) -> Any:
    if isinstance(value, Slot):
        return operands[value.index]
    if isinstance(value, (tuple, list)):
        return type(value)(fill(v, operands) for v in value)
    if isinstance(value, dict):
        return {k: fill(v, operands) for k, v in value.items()}
    return value
