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
        Bytes of the elements that it reads and writes, those of a buffer counted once at most.
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
        return _of_kernel(step, _counted(step))
    if isinstance(step, MatmulStep):
        return _matmul(step)
    read = sum({id(o.buffer): _span(o) for o in step.operands}.values())
    return Cost(read, sum(map(nbytes, step.results)))


def costs(plan: Plan) -> list[Cost]:
    """Return the cost of each step of a plan; equal steps are counted once."""
    counted: dict[tuple[int, tuple[int, ...]], Counts] = {}
    out = []
    for step in plan.steps:
        if isinstance(step, KernelStep):
            key = (id(step.kernel), step.ints)
            if key not in counted:
                counted[key] = _counted(step)
            out.append(_of_kernel(step, counted[key]))
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


def _of_kernel(step: KernelStep, counts: Counts) -> Cost:
    """Return the cost of a kernel, given what it does: of a buffer, no more than there is."""
    moved: dict[tuple[int, str], float] = {}
    for param, buffer in zip(step.kernel.buffers, step.buffers, strict=True):
        for way in ("in", "out"):
            if way in param.access:
                whole = param.access == way == "out"
                elements = math.inf if whole else counts.get((way, param.name), 0.0)
                size = buffer.dtype.itemsize * elements + moved.get((id(buffer), way), 0.0)
                moved[id(buffer), way] = min(size, nbytes(buffer))
    read, written = (
        int(sum(size for (_, side), size in moved.items() if side == way)) for way in ("in", "out")
    )
    return Cost(read, written, counts.get(FLOPS, 0.0), counts.get(CALLS, 0.0))


def _counted(step: KernelStep) -> Counts:
    """Return what a kernel does."""
    kernel: Kernel = step.kernel
    env = dict(zip(kernel.ints, step.ints, strict=True))
    counts = _count(kernel.body, env, SAMPLES)
    for t in kernel.totals:
        size = 1 if t.size is None else _value(t.size, env)
        _add(counts, {("out", t.out): math.inf if size is None else float(size)})
    return counts


# -- counting loops ------------------------------------------------------------------------

# How often something happens: operations, those that are functions of the library, and by
# ``("in", name)`` and ``("out", name)`` reads and writes of elements.
Counts = dict[tuple[str, str], float]
FLOPS, CALLS = ("flops", ""), ("calls", "")


def _add(counts: Counts, more: Counts, times: float = 1.0) -> None:
    for what, n in more.items():
        counts[what] = counts.get(what, 0.0) + n * times


def _count(body: tuple[Stmt, ...], env: dict[str, int], samples: int) -> Counts:
    """Count what statements do, the loops' iterations multiplied out."""
    counts: Counts = {}
    for s in body:
        if isinstance(s, For):
            _add(counts, _loop(s, env, samples))
        elif isinstance(s, If):
            _add(counts, _branch(s, env, samples))
        else:
            _simple(s, counts)
            if isinstance(s, Let) and s.value.dtype == "int64":
                known = _value(s.value, env)
                if known is not None:
                    env = {**env, s.name: known}
    return counts


def _loop(s: For, env: dict[str, int], samples: int) -> Counts:
    start, stop = _value(s.start, env), _value(s.stop, env)
    counts = _reads((s.start, s.stop))
    if start is None or stop is None:  # the data decides: it may read and write all there is
        once = _count(s.body, env, LEAST)
        _add(counts, {what: math.inf for what in once if what not in (FLOPS, CALLS)})
        return counts
    if stop <= start:
        return counts
    if not _depends(s.body, s.var):
        _add(counts, _count(s.body, env, samples), stop - start)
        return counts
    # Evenly among the iterations, with the first and the last, which may be shorter.
    n = stop - start
    at = sorted({start + round(i * (n - 1) / (samples - 1)) for i in range(samples)})
    fewer = max(LEAST, samples // 4)
    for i in at:
        _add(counts, _count(s.body, {**env, s.var: i}, fewer), n / len(at))
    return counts


def _branch(s: If, env: dict[str, int], samples: int) -> Counts:
    """Count the branch that is taken; where the data decides, the longer one."""
    holds = _value(s.condition, env)
    a, b = _count(s.body, env, samples), _count(s.orelse, env, samples)
    for counts in (a, b):
        _add(counts, _reads((s.condition,)))
    if holds is not None:
        return a if holds else b
    longer = max(a, b, key=lambda c: (c.get(FLOPS, 0.0), c.get(CALLS, 0.0)))
    most = {what: max(a.get(what, 0.0), b.get(what, 0.0)) for what in (*a, *b)}
    return {**most, FLOPS: longer.get(FLOPS, 0.0), CALLS: longer.get(CALLS, 0.0)}


def _reads(expressions: tuple[Expr, ...]) -> Counts:
    counts: Counts = {}
    for expr in expressions:
        for e in walk(expr):
            if isinstance(e, Load):
                _add(counts, {("in", e.buffer): 1.0})
    return counts


def _simple(s: Stmt, counts: Counts) -> None:
    for expr in _expressions(s):
        for e in walk(expr):
            if isinstance(e, Apply) and e.dtype.startswith("float"):
                f = FUNCTIONS[e.name]
                _add(counts, {FLOPS: f.flops, CALLS: float(f.is_heavy or f.is_call)})
    _add(counts, _reads(_expressions(s)))
    if isinstance(s, Store):
        _add(counts, {("out", s.buffer): 1.0})
    if isinstance(s, Fold):
        if s.value.dtype.startswith("float"):
            _add(counts, {FLOPS: 1.0})
        if s.index is not None:
            _add(counts, {("in", s.target): 1.0, ("out", s.target): 1.0})


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
