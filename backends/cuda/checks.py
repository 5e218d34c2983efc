"""Checks of indices before the kernels that read them.

A kernel that reads or writes at indices refuses those out of bounds, and the call that asked for it
raises NumPy's error: so the host must know before it returns. It need not wait for all that the
call computes: arguments that are indices are checked first, by a kernel of their own, and what
computes indices is followed by one that says whether they were right. While the GPU computes the
rest, the host prepares the next call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    Fold,
    If,
    Kernel,
    Let,
    Load,
    Var,
    statements,
)
from adarray.compiler.ir.plan import Buffer, KernelStep, Plan
from adarray.compiler.ir.primitives import ProgramInput
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.print_cuda.printer import KernelText, may_fail

Constants = Sequence[np.ndarray]

THREADS = 256  # of a block
_EACH = 8  # indices of a thread, where there are enough blocks
_DTYPES = {"int64": "int64_t", "int32": "int32_t"}
# Results: 1 if no index is out of bounds and no kernel before has refused its data, else 2.
_TEXT = """\
#include "adarray_device.h"
extern "C" __global__ void __launch_bounds__({threads}) \
{name}(const {dtype} *__restrict__ const index, const int64_t count, const int64_t extent, \
const int64_t last, char *const scratch, int *const fail, int *const checked)
{{
    unsigned *const blocks = (unsigned *)scratch; /* that are through */
    int *const wrong = (int *)scratch + 1;
    const int64_t step = (int64_t)gridDim.x * {threads};
    bool bad = false;
    for (int64_t i = (int64_t)blockIdx.x * {threads} + threadIdx.x; i < count; i += step) {{
        const int64_t x = index[i];
        bad |= x >= extent || x < -extent;
    }}
    if (bad) atomicExch(wrong, 1);
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(blocks, 1u) + 1 != gridDim.x) return;
    __threadfence();
    *blocks = 0;
    if (!last) return;
    const bool refused = atomicExch(wrong, 0) != 0 || *(volatile int *)fail != 0;
    *(volatile int *)checked = refused ? {alarm} : 1;
}}
"""

ALARM = 2
TEXTS = {
    d: KernelText(
        f"adk_indices_{d}",
        _TEXT.format(threads=THREADS, name=f"adk_indices_{d}", dtype=c_type, alarm=ALARM),
        (),
    )
    for d, c_type in _DTYPES.items()
}
SAYS = TEXTS["int64"]  # what says, without indices, that kernels before refused nothing


class IndexBound(NamedTuple):
    """Indices of a buffer that must lie in ``-extent <= index < extent``."""

    buffer: Buffer
    extent: int


class Checks(NamedTuple):
    """How the host learns that no kernel of a segment refuses its data.

    Parameters
    ----------
    after : int
        The steps of the segment before them.
    bounds : tuple of IndexBound
        What they test; nothing if they only say that those steps refused nothing.
    """

    after: int
    bounds: tuple[IndexBound, ...]


def texts_for(plan: Plan) -> list[KernelText]:
    """Return the kernels that the checks of a plan may need."""
    steps = [s for s in plan.steps if isinstance(s, KernelStep) and may_fail(s.kernel)]
    if not steps:
        return []
    read = {b.dtype.name for s in steps for b in s.buffers}
    return [t for d, t in TEXTS.items() if d in read or t is SAYS]


def blocks_for(count: int, sms: int) -> int:
    """Return the blocks that check so many indices."""
    return max(1, min(-(-count // (THREADS * _EACH)), 4 * sms))


def checks_of(
    steps: Mapping[int, KernelStep], last: int, known: frozenset[Buffer], consts: Constants
) -> Checks | None:
    """Return the checks of a segment; None: the host must wait for its end.

    Without steps and bounds in them, no kernel can refuse its data.

    Parameters
    ----------
    steps : dict
        Those of its kernels that may refuse their data, by number from the segment's first.
    last : int
        How many steps it has.
    known : set of Buffer
        Inputs whose elements lie side by side, and that nothing writes.
    consts : sequence of ndarray
        Of the plan.
    """
    after = 0
    bounds: dict[Buffer, int] = {}
    for i, s in steps.items():
        found = index_bounds(s)
        open_ = None if found is None else [x for x in found if not _holds(x, consts)]
        if open_ is None or any(x.buffer not in known for x in open_):
            after = i + 1
            continue
        for buffer, extent in open_:
            bounds[buffer] = min(extent, bounds.get(buffer, extent))
    if after == last:
        return None
    return Checks(after, tuple(IndexBound(*x) for x in bounds.items()))


def _holds(x: IndexBound, consts: Constants) -> bool:
    """Whether indices are constants of the plan that lie within their bounds."""
    if x.buffer.kind != "const":
        return False
    values = consts[x.buffer.index]
    return not np.any((values < -x.extent) | (values >= x.extent))


def index_bounds(s: KernelStep) -> list[IndexBound] | None:
    """Return what must hold so that a kernel does not refuse its data; None if that is not known.

    More may be said than must hold: of whole buffers, where a kernel reads some elements.
    """
    tests = _tests(s.kernel)
    if tests is None:
        return None
    buffers = {p.name: b for p, b in zip(s.kernel.buffers, s.buffers, strict=True)}
    written = {p.name for p in s.kernel.buffers if p.access != "in"}
    numbers = dict(zip(s.kernel.ints, s.ints, strict=True))
    bounds = []
    for load, extent in tests:
        n = extent.value if isinstance(extent, Const) else numbers.get(getattr(extent, "name", ""))
        if n is None or load.buffer in written or load.dtype not in _DTYPES:
            return None
        bounds.append(IndexBound(buffers[load.buffer], int(n)))
    return bounds


def _tests(kernel: Kernel) -> list[tuple[Load, Expr]] | None:
    """Return loads of indices and the extents that they are compared with; None if others fail."""
    inside = list(statements(kernel.body))
    lets = {s.name: s.value for s in inside if isinstance(s, Let)}
    folds: dict[str, list[Expr]] = {}
    for s in inside:
        if isinstance(s, Fold) and s.combine == "logical_or" and s.index is None:
            folds.setdefault(s.target, []).append(s.value)
    tests: list[tuple[Load, Expr]] = []
    fails = sum(isinstance(s, Fail) for s in inside)
    for s in inside:
        if not isinstance(s, If) or not any(isinstance(x, Fail) for x in s.body):
            continue
        fails -= sum(isinstance(x, Fail) for x in s.body)
        waiting = [s.condition]
        while waiting:
            e = _named(waiting.pop(), lets)
            if isinstance(e, Var) and e.name in folds:
                waiting += folds[e.name]
            elif (test := _test(e, lets)) is not None:
                tests.append(test)
            elif isinstance(e, Apply) and e.name == "logical_or":
                waiting += e.args
            else:
                return None
    return None if fails else tests


def _named(e: Expr, lets: Mapping[str, Expr]) -> Expr:
    """Return what a name stands for."""
    while isinstance(e, Var) and e.name in lets:
        e = lets[e.name]
    return e


def _parts(e: Expr, name: str, lets: Mapping[str, Expr]) -> tuple[Expr, ...] | None:
    """Return the operands of a scalar function, if an expression is one of that name."""
    e = _named(e, lets)
    if not isinstance(e, Apply) or e.name != name:
        return None
    return tuple(_named(x, lets) for x in e.args)


def _test(e: Expr, lets: Mapping[str, Expr]) -> tuple[Load, Expr] | None:
    """Return load x and extent n of ``w < 0 or w >= n``, w being ``where(x < 0, x + n, x)``."""
    sides = _parts(e, "logical_or", lets)
    low = _parts(sides[0], "less", lets) if sides else None
    high = _parts(sides[1], "greater_equal", lets) if sides else None
    if low is None or high is None or low[0] != high[0] or not _is_zero(low[1]):
        return None
    extent = high[1]
    wrapped = _parts(low[0], "where", lets)
    if wrapped is None:
        return None
    negative = _parts(wrapped[0], "less", lets)
    up = _parts(wrapped[1], "add", lets)
    x = wrapped[2]
    if negative is None or negative[0] != x or not _is_zero(negative[1]) or up != (x, extent):
        return None
    if isinstance(x, Apply) and x.name == "cast":
        x = _named(x.args[0], lets)
    return (x, extent) if isinstance(x, Load) else None


def _is_zero(e: Expr) -> bool:
    return isinstance(e, Const) and e.value == 0


def settled_inputs(plan: Plan) -> frozenset[Buffer]:
    """Return the inputs whose elements lie side by side, and that nothing of the plan writes."""
    inputs: dict[int, Value] = {}
    waiting = [v for s in plan.steps for v in s.values]
    seen = set(waiting)
    while waiting:
        v = waiting.pop()
        if isinstance(v.primitive, ProgramInput):
            inputs[v.primitive.index] = v
        fresh = [x for x in v.args if x not in seen]
        seen.update(fresh)
        waiting += fresh
    donors = {b.donor for b in plan.buffers}
    return frozenset(
        b
        for b in plan.buffers
        if b.kind == "input" and b.index not in donors and _lies_dense(inputs.get(b.index), b.size)
    )


def _lies_dense(v: Value | None, size: int) -> bool:
    """Whether the elements of an input lie one after the other, in C order."""
    if v is None or not isinstance(v.primitive, ProgramInput):
        return False
    each = zip(v.shape, v.primitive.strides, c_strides(v.shape), strict=True)
    return size == math.prod(v.shape) and all(n == 1 or s == t for n, s, t in each)
