"""Results in the memory of arguments that the caller has given up.

A result may take the place of an argument that nothing reads once the first element of the
result is written. A kernel may read and write the same memory, if it reads each element for
the last time before it writes it; its two parameters become one then, so that the compiler
knows. What may fail has to be over by then: the plain function could not run again.

References
----------
- P. Hudak, A. Bloss, "The aggregate update problem in functional programming systems", POPL 1985.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Expr,
    Fail,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Stmt,
    Store,
    Var,
    statements,
    walk,
)
from adarray.compiler.ir.plan import Buffer, CallStep, KernelStep, MatmulStep, Operand, Step
from adarray.compiler.ir.program import c_strides
from adarray.compiler.planning.buffers import touched

# Sums of products: coefficients by the sorted texts of the factors.
Polynomial = dict[tuple[str, ...], int]


def donate(
    steps: Sequence[Step],
    buffers: Sequence[Buffer],
    outputs: Sequence[Operand],
    pairs: Iterable[tuple[int, int]],
) -> tuple[list[Step], list[tuple[int, int, str]]]:
    """Let results have the memory of inputs, where that is possible.

    Parameters
    ----------
    steps, buffers, outputs
        Of a plan whose temporaries have no places yet.
    pairs : iterable of (int, int)
        An output, and the input whose memory it may have: contiguous, and of its dtype and
        size.

    Returns
    -------
    list of Step
        The steps; ``Buffer.donor`` of the outputs is set that lie in an input.
    list of (int, int, str)
        For each other pair, why not.
    """
    current = list(steps)
    inputs = {b.index: b for b in buffers if b.kind == "input"}
    refused = []
    for j, i in pairs:
        donor = inputs.get(i)
        out = outputs[j].buffer
        why = "nothing was planned to write it"
        if donor is not None and out.kind == "output":
            why = _obstacle(current, outputs, j, donor)
        if not why and donor is not None:
            changed = _shared(current, out, donor)
            if changed is None:
                why = "a kernel reads elements of the argument after it has written others"
            else:
                current = changed
                out.donor = i
        if why:
            refused.append((j, i, why))
    return current, refused


def _written(step: Step) -> list[Buffer]:
    if isinstance(step, MatmulStep):
        return [step.out.buffer]
    if isinstance(step, CallStep):
        return list(step.results)
    both = zip(step.kernel.buffers, step.buffers, strict=True)
    return [b for p, b in both if p.access != "in"]


def _first(steps: Sequence[Step], out: Buffer) -> int:
    """Return the number of the first step that writes into a buffer."""
    for k, step in enumerate(steps):
        if any(b is out for b in _written(step)):
            return k
    return len(steps)


def _obstacle(steps: Sequence[Step], outputs: Sequence[Operand], j: int, donor: Buffer) -> str:
    """Return why an output cannot lie in an input, whatever its kernels do; "" if it can."""
    x = outputs[j]
    out = x.buffer
    whole = x.offset == 0 and math.prod(x.shape) == out.size and x.strides == c_strides(x.shape)
    if not whole or out.size != donor.size or out.dtype != donor.dtype or out.donor >= 0:
        return "it is not an array of its own in C order"
    if any(o.buffer is donor for o in outputs):
        return "the argument itself is a result too"
    begin = _first(steps, out)
    for k, step in enumerate(steps):
        reads = any(b is donor for b in touched(step))
        if isinstance(step, CallStep) and (reads or k >= begin):
            return "functions of Python between the kernels may need the argument"
        if reads and (k > begin or (k == begin and not _in_place(step, donor))):
            return "the argument is read when the result is written already"
        if k >= begin and isinstance(step, KernelStep) and _can_fail(step.kernel):
            return "a kernel may refuse its data when the result is written already"
    return ""


def _in_place(step: Step, donor: Buffer) -> bool:
    """Whether a step may write over what it reads: a kernel maybe, a sum what it adds to."""
    if isinstance(step, MatmulStep):
        return all(o.buffer is not donor for o in (step.a, step.b))
    return isinstance(step, KernelStep)


def _can_fail(kernel: Kernel) -> bool:
    return any(isinstance(s, Fail) for s in statements(kernel.body))


def _shared(steps: list[Step], out: Buffer, donor: Buffer) -> list[Step] | None:
    """Return the steps with an output in the memory of an input; None if a kernel forbids it."""
    begin = _first(steps, out)
    if begin == len(steps):
        return None
    step = steps[begin]
    if isinstance(step, MatmulStep) or all(b is not donor for b in touched(step)):
        return steps
    assert isinstance(step, KernelStep)
    kernel = merged(step, out, donor)
    if kernel is None:
        return None
    others = [k for k, b in enumerate(step.buffers) if b is not donor]
    if _copies_itself(kernel, step.ints):
        return [*steps[:begin], *steps[begin + 1 :]]
    buffers = tuple(step.buffers[k] for k in others)
    return [*steps[:begin], step._replace(kernel=kernel, buffers=buffers), *steps[begin + 1 :]]


# -- kernels ------------------------------------------------------------------------------


class _Access:
    """One load or store: where it stands, and of which element."""

    __slots__ = ("index", "loops", "place", "value")

    def __init__(self, index: Expr, loops: tuple[For, ...], place: int, value: Expr | None) -> None:
        self.index = index
        self.loops = loops
        self.place = place
        self.value = value


class _Accesses:
    """The loads and stores of some buffers in a kernel, integers by value.

    Attributes
    ----------
    loads, stores : list of _Access
    alone : bool
        Whether one group of threads does all of it, in order. A loop that is shared out is
        different: some threads are in it while others still do what stands in front of it.
    """

    def __init__(self, kernel: Kernel, ints: tuple[int, ...], read: set[str], out: str) -> None:
        self.names: dict[str, Expr] = {
            n: Const("int64", v) for n, v in zip(kernel.ints, ints, strict=True)
        }
        self.locals: set[str] = set()
        self.loads: list[_Access] = []
        self.stores: list[_Access] = []
        tops = [s for s in kernel.body if isinstance(s, For)]
        # A single loop may be shared out, too (see adarray.compiler.schedule.vectors.shared).
        self.alone = len(tops) != 1 and all(s.kind != "parallel" for s in tops)
        self._read, self._out = read, out
        self._count = 0
        self._body(kernel.body, ())

    def _body(self, body: tuple[Stmt, ...], loops: tuple[For, ...]) -> None:
        for s in body:
            self._count += 1
            for e in _expressions(s):
                self._loads(e, loops)
            if isinstance(s, Let):
                self.names[s.name] = s.value
            elif isinstance(s, Local):
                self.locals.add(s.name)
            elif isinstance(s, Store) and s.buffer == self._out:
                self.stores.append(_Access(s.index, loops, self._count, s.value))
            elif isinstance(s, For):
                self._body(s.body, (*loops, s))
            elif isinstance(s, If):
                self._body(s.body, loops)
                self._body(s.orelse, loops)

    def _loads(self, e: Expr, loops: tuple[For, ...]) -> None:
        for x in walk(e):
            if isinstance(x, Load) and x.buffer in self._read:
                self.loads.append(_Access(x.index, loops, self._count, None))

    def polynomial(self, e: Expr, names: dict[str, str]) -> Polynomial | None:
        """Return an index as a sum; loop variables renamed; None if it depends on data."""
        if isinstance(e, Const):
            return {(): int(e.value)} if e.value else {}
        if isinstance(e, Var):
            if e.name in self.locals:
                return None
            value = self.names.get(e.name)
            if value is not None:
                return self.polynomial(value, names)
            return {(names.get(e.name, e.name),): 1}
        if not isinstance(e, Apply):
            return None
        known: list[Polynomial] = []
        for a in e.args:
            of_part = self.polynomial(a, names)
            if of_part is None:
                return None
            known.append(of_part)
        if e.name in ("add", "subtract") and len(known) == 2:
            return _added(known[0], known[1], 1 if e.name == "add" else -1)
        if e.name == "multiply" and len(known) == 2:
            return _multiplied(known[0], known[1])
        return {(f"{e.name}{[sorted(p.items()) for p in known]}",): 1}


def _added(a: Polynomial, b: Polynomial, sign: int) -> Polynomial:
    terms = dict(a)
    for k, n in b.items():
        terms[k] = terms.get(k, 0) + sign * n
    return {k: n for k, n in terms.items() if n}


def _multiplied(a: Polynomial, b: Polynomial) -> Polynomial:
    terms: Polynomial = {}
    for k, m in a.items():
        for q, n in b.items():
            key = tuple(sorted((*k, *q)))
            terms[key] = terms.get(key, 0) + m * n
    return {k: n for k, n in terms.items() if n}


def _expressions(s: Stmt) -> Iterable[Expr]:
    """Yield the expressions that a statement evaluates itself."""
    for name in ("value", "index", "size", "init", "start", "stop", "condition"):
        e = getattr(s, name, None)
        if isinstance(e, Expr):
            yield e


def merged(step: KernelStep, out: Buffer, donor: Buffer) -> Kernel | None:
    """Return the kernel of a step with one parameter for both buffers; None if it must not be."""
    kernel: Kernel = step.kernel
    pairs = list(zip(kernel.buffers, step.buffers, strict=True))
    reads = {p.name for p, b in pairs if b is donor}
    writes = [p for p, b in pairs if b is out]
    if len(writes) != 1 or any(t.out == writes[0].name for t in kernel.totals):
        return None
    (target,) = writes
    accesses = _Accesses(kernel, step.ints, reads, target.name)
    if target.access != "out" or not accesses.stores:
        return None
    if not all(_once(accesses, y) for y in accesses.stores):
        return None
    if not all(_before(accesses, x, y) for x in accesses.loads for y in accesses.stores):
        return None
    params = tuple(
        replace(p, access="inout", stream=False) if p is target else p
        for p in kernel.buffers
        if p.name not in reads
    )
    body = tuple(_renamed(s, reads, target.name) for s in kernel.body)
    return replace(kernel, buffers=params, body=body)


def _before(accesses: _Accesses, load: _Access, store: _Access) -> bool:
    """Whether a load is over when what it reads is written.

    Either all of it comes first, or it reads what the store writes in the same iterations of the
    loops that they have in common, and comes first there.
    """
    if load.place > store.place:
        return False
    if not load.loops or not store.loops or load.loops[0] is not store.loops[0]:
        return accesses.alone
    if len(load.loops) != len(store.loops):
        return False
    names: dict[str, str] = {}
    for a, b in zip(load.loops, store.loops, strict=True):
        for x, y in ((a.start, b.start), (a.stop, b.stop)):
            p, q = accesses.polynomial(x, names), accesses.polynomial(y, {})
            if p is None or p != q:
                return False
        names[a.var] = b.var
    p, q = accesses.polynomial(load.index, names), accesses.polynomial(store.index, {})
    return p is not None and p == q


def _once(accesses: _Accesses, store: _Access) -> bool:
    """Whether no element is stored twice."""
    index = accesses.polynomial(store.index, {})
    if index is None:
        return False
    steps = []
    for loop in store.loops:
        start, stop = accesses.polynomial(loop.start, {}), accesses.polynomial(loop.stop, {})
        if start is None or stop is None or {*start, *stop} - {()}:
            return False
        steps.append((index.pop((loop.var,), 0), stop.get((), 0) - start.get((), 0)))
    if set(index) - {()}:
        return False
    reach = 0
    for step, extent in sorted(s for s in steps if s[1] > 1):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def _renamed(x: Any, reads: set[str], target: str) -> Any:
    """Return a statement or expression with loads from some buffers as loads from another."""
    if isinstance(x, Load):
        index = _renamed(x.index, reads, target)
        return replace(x, buffer=target if x.buffer in reads else x.buffer, index=index)
    if isinstance(x, Apply):
        return replace(x, args=tuple(_renamed(a, reads, target) for a in x.args))
    if isinstance(x, Expr):
        return x
    changed: dict[str, Any] = {}
    for name in x.__slots__:
        part = getattr(x, name)
        if isinstance(part, Expr):
            changed[name] = _renamed(part, reads, target)
        elif isinstance(part, tuple):
            changed[name] = tuple(_renamed(s, reads, target) for s in part)
    return replace(x, **changed)


def _copies_itself(kernel: Kernel, ints: tuple[int, ...]) -> bool:
    """Whether all that a kernel does is to store the elements of an array where they are."""
    if len(kernel.buffers) != 1 or kernel.totals:
        return False
    name = kernel.buffers[0].name
    accesses = _Accesses(kernel, ints, {name}, name)
    for store in accesses.stores:
        value = store.value
        while isinstance(value, Var):
            value = accesses.names.get(value.name)
        if not isinstance(value, Load) or value.buffer != name:
            return False
        p, q = accesses.polynomial(value.index, {}), accesses.polynomial(store.index, {})
        if p is None or p != q:
            return False
    return True
