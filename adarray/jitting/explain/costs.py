"""What the steps of a plan cost: bytes moved and arithmetic, counted and not measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from adarray.compiler.ir.loopir import (
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
    walk,
)
from adarray.compiler.ir.plan import Buffer, KernelStep, MatmulStep, Operand, Plan, Step
from adarray.compiler.scalars.catalogue import FUNCTIONS

# A loop whose iterations differ by their bounds is counted at so many of them at most,
# and loops like that inside of it at fewer.
SAMPLES, LEAST = 32, 4


class Cost(NamedTuple):
    """What a step, or a plan, does.

    Parameters
    ----------
    read, written : int
        Bytes of the buffers that it reads and writes, each counted once.
    flops : float
        Arithmetic operations on floating-point numbers; a function of the library is one.
    calls : float
        How many of these are functions of the library (exp, sin, ...).
    """

    read: int = 0
    written: int = 0
    flops: float = 0.0
    calls: float = 0.0

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def plus(self, other: Cost) -> Cost:
        """Return the sum of both."""
        return Cost(
            self.read + other.read,
            self.written + other.written,
            self.flops + other.flops,
            self.calls + other.calls,
        )


def cost(step: Step) -> Cost:
    """Return the cost of a step."""
    if isinstance(step, KernelStep):
        return Cost(*_memory(step), *_arithmetic(step))
    if isinstance(step, MatmulStep):
        return _matmul(step)
    read = sum({id(o.buffer): _span(o) for o in step.operands}.values())
    return Cost(read, sum(map(nbytes, step.results)))


def costs(plan: Plan) -> list[Cost]:
    """Return the cost of each step of a plan; equal steps are counted once."""
    arithmetic: dict[tuple[int, tuple[int, ...]], tuple[float, float]] = {}
    out = []
    for step in plan.steps:
        if isinstance(step, KernelStep):
            key = (id(step.kernel), step.ints)
            if key not in arithmetic:
                arithmetic[key] = _arithmetic(step)
            out.append(Cost(*_memory(step), *arithmetic[key]))
        else:
            out.append(cost(step))
    return out


def total(plan: Plan) -> Cost:
    """Return the total cost of the steps of a plan."""
    out = Cost()
    for c in costs(plan):
        out = out.plus(c)
    return out


def nbytes(buffer: Buffer) -> int:
    """Return the bytes of a buffer."""
    return int(buffer.size * buffer.dtype.itemsize)


def peak(plan: Plan) -> int:
    """Return the bytes that a run of the plan needs: arguments, constants, results, arena."""
    return plan.arena + sum(nbytes(b) for b in plan.buffers if b.kind != "temp")


def _span(o: Operand) -> int:
    """Return the bytes of the elements that an operand shows, each counted once."""
    shown = math.prod(
        n for n, stride in zip(o.shape, o.strides, strict=True) if stride != 0 or n == 0
    )
    return int(shown * o.buffer.dtype.itemsize)


def _matmul(step: MatmulStep) -> Cost:
    """Count a matmul: two operations for each multiplication and addition."""
    depth = step.a.shape[-1]
    return Cost(
        sum(map(_span, step.operands)), _span(step.out), 2.0 * math.prod(step.out.shape) * depth
    )


def _memory(step: KernelStep) -> tuple[int, int]:
    """Return the bytes of the buffers that a kernel reads, and of those that it writes."""
    read = written = 0
    seen: set[tuple[int, str]] = set()
    for param, buffer in zip(step.kernel.buffers, step.buffers, strict=True):
        for way in ("in", "out"):
            if way in param.access and (id(buffer), way) not in seen:
                seen.add((id(buffer), way))
                read += nbytes(buffer) if way == "in" else 0
                written += nbytes(buffer) if way == "out" else 0
    return read, written


def _arithmetic(step: KernelStep) -> tuple[float, float]:
    """Return a kernel's arithmetic operations, and how many are functions of the library."""
    kernel: Kernel = step.kernel
    return _count(kernel.body, dict(zip(kernel.ints, step.ints, strict=True)), SAMPLES)


# -- counting loops ------------------------------------------------------------------------


def _count(body: tuple[Stmt, ...], env: dict[str, int], samples: int) -> tuple[float, float]:
    """Return the operations and calls of statements, the loops' iterations multiplied out."""
    flops = calls = 0.0
    for s in body:
        if isinstance(s, For):
            f, c = _loop(s, env, samples)
        elif isinstance(s, If):
            f, c = _branch(s, env, samples)
        else:
            f, c = _simple(s)
            if isinstance(s, Let) and s.value.dtype == "int64":
                known = _value(s.value, env)
                if known is not None:
                    env = {**env, s.name: known}
        flops += f
        calls += c
    return flops, calls


def _loop(s: For, env: dict[str, int], samples: int) -> tuple[float, float]:
    start, stop = _value(s.start, env), _value(s.stop, env)
    if start is None or stop is None or stop <= start:
        return 0.0, 0.0
    if not _depends(s.body, s.var):
        f, c = _count(s.body, env, samples)
        return f * (stop - start), c * (stop - start)
    # Evenly among the iterations, with the first and the last, which may be shorter.
    n = stop - start
    at = sorted({start + round(i * (n - 1) / (samples - 1)) for i in range(samples)})
    fewer = max(LEAST, samples // 4)
    flops = calls = 0.0
    for i in at:
        f, c = _count(s.body, {**env, s.var: i}, fewer)
        flops += f
        calls += c
    return flops * n / len(at), calls * n / len(at)


def _branch(s: If, env: dict[str, int], samples: int) -> tuple[float, float]:
    """Count the branch that is taken; where the data decides, the longer one."""
    holds = _value(s.condition, env)
    a, b = _count(s.body, env, samples), _count(s.orelse, env, samples)
    if holds is None:
        return max(a, b)
    return a if holds else b


def _simple(s: Stmt) -> tuple[float, float]:
    flops = calls = 0.0
    for expr in _expressions(s):
        for e in walk(expr):
            if isinstance(e, Apply) and e.dtype.startswith("float"):
                f = FUNCTIONS[e.name]
                flops += f.flops
                calls += f.is_heavy or f.is_call
    if isinstance(s, Fold) and s.value.dtype.startswith("float"):
        flops += 1
    return flops, calls


def _expressions(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement, those of its body left out."""
    if isinstance(s, Let | Assign):
        return (s.value,)
    if isinstance(s, Store):
        return (s.index, s.value)
    if isinstance(s, Fold):
        return (s.value,) if s.index is None else (s.index, s.value)
    if isinstance(s, Local):
        return tuple(e for e in (s.size, s.init) if e is not None)
    if isinstance(s, For):
        return (s.start, s.stop)
    if isinstance(s, If):
        return (s.condition,)
    assert isinstance(s, Fail)
    return ()


def _depends(body: tuple[Stmt, ...], var: str) -> bool:
    """Whether the iterations of loops or the branches in `body` depend on a variable."""
    tainted = {var}
    stack = list(reversed(body))
    while stack:
        s = stack.pop()
        reads = {e.name for x in _expressions(s) for e in walk(x) if isinstance(e, Var)}
        if isinstance(s, For | If):
            if reads & tainted:
                return True
            stack += reversed(s.body if isinstance(s, For) else (*s.body, *s.orelse))
        elif isinstance(s, Let) and reads & tainted:
            tainted.add(s.name)
    return False


_INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b if b else 0,
    "remainder": lambda a, b: a % b if b else 0,
    "minimum": min,
    "maximum": max,
    "negative": lambda a: -a,
    "cast": lambda a: a,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "logical_and": lambda a, b: a and b,
    "logical_or": lambda a, b: a or b,
    "logical_not": lambda a: not a,
    "where": lambda c, a, b: a if c else b,
}


def _value(expr: Expr, env: dict[str, int]) -> Any:
    """Return an integer or truth value; None where it depends on data."""
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return env.get(expr.name)
    if isinstance(expr, Apply) and expr.name in _INTEGER and not expr.dtype.startswith("float"):
        args = [_value(a, env) for a in expr.args]
        return None if None in args else _INTEGER[expr.name](*args)
    assert isinstance(expr, Apply | Load)
    return None
