"""The adjoint of a kernel: its forward part, and its statements backwards.

What is added to an element in the reverse sweep is added as one step where other threads may add to
it, and plainly where only one thread can. A barrier is its own adjoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from adarray.compiler.ir.loopir import (
    Apply,
    For,
    If,
    Let,
    Load,
    Local,
    Param,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Comment,
    Pop,
    Push,
    Record,
    Shared,
    Stmt,
    ThreadKernel,
    all_statements,
    for_,
    if_,
    is_vector,
    used,
)
from adarray.errors import KernelError
from adarray.kernels import build
from adarray.kernels.activity import Activity, activity, without_rule
from adarray.kernels.at_once import set_at_once
from adarray.kernels.forward import EVERY, ForwardPart
from adarray.kernels.functions import NAMED
from adarray.kernels.needs import Needs, RestorePlan
from adarray.kernels.ownership import Ownership
from adarray.kernels.reverse import Reverse
from adarray.kernels.reverse_expressions import shadow
from adarray.kernels.reverse_parts import OldValue, Prologue, Segment
from adarray.kernels.simplify import merged, simplified
from adarray.kernels.sinking import Sinking
from adarray.kernels.ssa import (
    Def,
    Exchange,
    Node,
    Place,
    Read,
    SsaLoop,
    SsaProgram,
    Wait,
    Write,
    dtype_of,
)
from adarray.kernels.tape_arrays import TapeArrays, back
from adarray.kernels.warp_adjoints import thread_numbers


class Checkpoints(NamedTuple):
    """How much loops with checkpoints put on the tape.

    Parameters
    ----------
    state : int
        Number of values of a checkpoint.
    taped : int
        Number of values of an iteration that runs again.
    """

    state: int
    taped: int


def _checkpoints(
    program: SsaProgram, needs: Needs, checkpointed: frozenset[int]
) -> Checkpoints | None:
    """Return the largest figures of the loops with checkpoints; None where there are none."""
    if not checkpointed:
        return None
    loops = [n for n in program.nodes if isinstance(n, SsaLoop) and n.number in checkpointed]
    state = max(sum(c.name in needs.forward.names for c in n.carried) for n in loops)
    return Checkpoints(state, max(len(needs.taped[n.number]) for n in loops))


@dataclass(frozen=True, slots=True)
class AdjointKernel:
    """The adjoint of a kernel.

    Attributes
    ----------
    kernel : ThreadKernel
        Its parameters are those of the kernel that it reads, then shadows: of buffers, whose
        values are cotangents of what was written before and of what was read after, and of
        numbers, one element each, to which is added.
    shadows : dict
        Name of the shadow by that of the parameter.
    copies : frozenset of str
        Buffers that the forward part writes: it gets copies of what they held before.
    taped : int
        Number of values that iterations of loops put on the tape, counted in the text.
    recomputed : tuple of str
        Values that are read or computed again in reverse iterations: loads, functions and what
        threads exchange.
    counting : ThreadKernel
        The forward part alone, which counts what it puts on the tape.
    checkpoints : Checkpoints, optional
        Of loops that run again from there.
    results : frozenset of str
        Buffers that it gets as the kernel left them.
    """

    kernel: ThreadKernel
    shadows: dict[str, str]
    copies: frozenset[str]
    taped: int
    recomputed: tuple[str, ...]
    counting: ThreadKernel
    checkpoints: Checkpoints | None = None
    results: frozenset[str] = frozenset()


class _Assembly:
    """Puts prologues in their places, and both halves together."""

    def __init__(self, program: SsaProgram, needs: Needs, reverse: Reverse) -> None:
        self.program = program
        self.needs = needs
        self.reverse = reverse

    def closed(self, body: list[Any]) -> list[Stmt]:
        """Return statements with prologues, and tuples in the place of lists."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Prologue):
                out += self._prologue(s.loop)
            elif isinstance(s, Segment):
                out += self._segment(s)
            elif isinstance(s, OldValue):
                out.append(self._old(s))
            elif isinstance(s, For):
                loop = next((t.loop for t in s.body if isinstance(t, Prologue)), None)
                if loop is not None and self.reverse.tape.has(loop):
                    out.append(self.reverse.tape.recall(loop, self.reverse.counted[loop.number][1]))
                out.append(for_(s.var, s.start, s.stop, self.closed(list(s.body)), s.kind))
            elif isinstance(s, If):
                then, orelse = self.closed(list(s.body)), self.closed(list(s.orelse))
                out.append(if_(s.condition, tuple(then), tuple(orelse)))
            else:
                out.append(s)
        return out

    def _prologue(self, loop: SsaLoop) -> list[Stmt]:
        out: list[Stmt] = []
        for taped in reversed(self.needs.taped.get(loop.number, [])):
            dtype, shown = dtype_of(self.program, taped), self.reverse.renamed(taped)
            array = self.reverse.tape.of_value(loop, taped)
            out.append(self._from_tape(loop, array, shown, dtype))
        replay = self.needs.replays.get(loop.number)
        if replay is None:
            return out
        hoisted = self.needs.required.get(loop.number, set())

        def name(n: str) -> str:
            home = self.program.home(n) if n in self.program.values else None
            if home is not None and home is not loop and home not in loop.loops:
                return f"{n}__f{loop.number}"
            return self.reverse.renamed(n)

        forward = ForwardPart(self.program, replay, hoisted, name, {}, self.arrays(loop))
        replayed = forward.statements(loop.body)
        if replay.waits:
            whole = any(isinstance(n, Wait) and not n.warp for n in self.program.nodes)
            barrier = Barrier(warp=not whole)
            replayed = [barrier, *replayed, barrier]
        return out + replayed

    def _old(self, s: OldValue) -> Stmt:
        n = s.write
        return self._from_tape(n.home, self.reverse.tape.of_write(n), s.name, n.value.dtype)

    def _from_tape(self, loop: SsaLoop | None, array: str, name: str, dtype: str) -> Stmt:
        """Return the statement that names what an iteration has put on the tape."""
        if loop is None or not self.reverse.tape.has(loop):
            return Pop(name, dtype)
        return Let(name, Load(dtype, back(array), self.reverse.counted[loop.number][0]))

    def _segment(self, s: Segment) -> list[Stmt]:
        def name(n: str) -> str:
            home = self.program.home(n) if n in self.program.values else None
            inside = home is not None and (home is s.loop or s.loop in home.loops)
            return f"{n}__c" if inside else n

        forward = ForwardPart(
            self.program, self.needs.forward, self.hoisted(), name, self.needs.taped, set()
        )
        return forward.segment(s.loop, s.first, s.last)

    def hoisted(self) -> set[str]:
        """Return values that are read outside of the branches of the forward half."""
        # What is read in the reverse sweep, or goes to the tape behind an iteration.
        return self.needs.required.get(None, set()).union(*self.needs.taped.values())

    def arrays(self, loop: SsaLoop | None) -> set[str]:
        """Return the thread's arrays that are declared in iterations of a loop."""
        return {n.name for n in self.program.nodes if isinstance(n, Place) and n.home is loop}


def adjoint(
    program: SsaProgram,
    inputs: frozenset[str],
    private: frozenset[tuple[str, int]] = frozenset(),
    owners: Ownership = Ownership(),  # noqa: B008  (immutable)
    checkpoints: bool = False,
    plan: RestorePlan | None = None,
    known: bool = False,
) -> AdjointKernel:
    """Return the adjoint of a kernel.

    Parameters
    ----------
    program : SsaProgram
    inputs : frozenset of str
        Parameters that derivatives are wanted by.
    private : frozenset of (str, int)
        See `adarray.kernels.needs`.
    owners : Ownership
        Who touches the elements of buffers.
    checkpoints : bool
        Whether loops that can run again put checkpoints on the tape, and nothing else, until the
        reverse sweep comes to them.
    plan : RestorePlan, optional
        What one thread restores; see `adarray.kernels.restoring`. Not together with checkpoints.
    known : bool
        Whether the results of the kernel are known: where a plan is final, nothing runs forward.
    """
    active = activity(program, set(inputs))
    missing = without_rule(program, active)
    if missing is not None:
        raise KernelError(f"the derivative of {missing} is not known")
    if not checkpoints:
        return _adjoint(program, inputs, active, private, owners, frozenset(), plan, known)
    first = Needs(program, set(private))
    Reverse(program, active, first, owners, inputs).block(program.body, [])
    return _adjoint(program, inputs, active, private, owners, _repeatable(program, first))


def _repeatable(program: SsaProgram, needs: Needs) -> frozenset[int]:
    """Return loops with a tape that can run again: what they read is as it was, or carried."""
    numbers = set()
    for loop in program.nodes:
        if not isinstance(loop, SsaLoop) or loop.loops or not needs.taped.get(loop.number):
            continue
        if all(_runs_again(n, needs) for n in program.nodes if loop in n.loops):
            numbers.add(loop.number)
    return frozenset(numbers)


def _runs_again(n: Node, needs: Needs) -> bool:
    if isinstance(n, SsaLoop):
        return not needs.taped.get(n.number)
    if isinstance(n, Read):
        return n.name not in needs.forward.names or n.buffer not in needs.memory
    if isinstance(n, Write):
        return not needs.forward.has(n)
    return not isinstance(n, (Wait, Exchange))


def _adjoint(
    program: SsaProgram,
    inputs: frozenset[str],
    active: Activity,
    private: frozenset[tuple[str, int]],
    owners: Ownership,
    checkpointed: frozenset[int],
    plan: RestorePlan | None = None,
    known: bool = False,
) -> AdjointKernel:
    """Return the adjoint of a kernel, with checkpoints in some of its loops."""
    needs = Needs(program, set(private), plan)
    reverse = Reverse(program, active, needs, owners, inputs, checkpointed)
    back = reverse.block(program.body, [])
    needs.restore()
    scalars = dict(program.kernel.scalars)
    numbers = [n for n in scalars if n in reverse.live and n in inputs]
    declared: list[Stmt] = [
        Local(shadow(n), scalars[n], None, build.const(0, scalars[n])) for n in numbers
    ]
    totals: list[Stmt] = [
        Atomic(f"{n}__sum", build.index(0), "add", Var(scalars[n], shadow(n)), same="grid")
        for n in numbers
    ]
    declared += reverse.totals.declarations()
    totals += reverse.totals.additions()
    assembly = _Assembly(program, needs, reverse)
    closed = assembly.closed(back)
    results = frozenset(needs.memory) if known and needs.plan.final else frozenset[str]()
    if results:
        needs.memory.clear()
        needs.forward.nodes.clear()  # neither loops nor writes
    forward = ForwardPart(
        program, needs.forward, assembly.hoisted(), lambda n: n, needs.taped,
        _forward_arrays(program, needs), checkpointed, needs.plan.writes,
        TapeArrays(program, needs),
    )  # fmt: skip
    first = forward.statements(program.body)
    if any(isinstance(n, Exchange) for n in program.nodes):
        declared += thread_numbers()
    waits = any(isinstance(n, Wait) for n in program.nodes)
    waited = bool(first) and isinstance(first[-1], Barrier) and not first[-1].warp
    middle: list[Stmt] = [Barrier()] if waits and first and not waited else []
    body = [*_joined(first, middle, declared, closed), *totals]
    kernel = _finished(program, active, tuple(first), tuple(body), numbers, needs)
    results &= {b.name for b in kernel.kernel.buffers}
    state = _checkpoints(program, needs, checkpointed)
    return replace(kernel, checkpoints=state, results=results)


def _joined(
    first: list[Stmt], middle: list[Stmt], declared: list[Stmt], back: list[Stmt]
) -> list[Stmt]:
    """Return both halves; where all of them is under one condition, it is asked once."""
    divider = Comment("and back")
    if first and not middle and len(back) == 1:
        a, b = first[-1], back[0]
        same = isinstance(a, If) and isinstance(b, If) and a.condition == b.condition
        if same and isinstance(a, If) and isinstance(b, If) and not a.orelse and not b.orelse:
            inside = [*a.body, divider, *b.body]
            return [*first[:-1], *declared, if_(a.condition, inside)]
    return [*first, *middle, divider, *declared, *back]


def _forward_arrays(program: SsaProgram, needs: Needs) -> set[str]:
    arrays = {n.name for n in program.nodes if isinstance(n, Place)}
    return {a for a in arrays if a in needs.memory}


def _recomputed(program: SsaProgram, needs: Needs) -> tuple[str, ...]:
    """Return the loads and functions that reverse iterations carry out again."""
    names = set[str]().union(*(part.names for part in needs.replays.values()))

    def costs(name: str) -> bool:
        v = program.values[name]
        function = isinstance(v, Def) and isinstance(v.value, Apply) and v.value.name in NAMED
        return function or isinstance(v, Read)

    return tuple(sorted(filter(costs, names)))


def _changed(body: tuple[Stmt, ...]) -> set[str]:
    """Return the memory that statements write."""
    return {s.buffer for s in all_statements(body) if isinstance(s, (Store, Atomic))}


def _settled(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return statements whose vector loops hold nothing that vectors do not."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, For):
            kind = s.kind if is_vector(s) else "serial"
            out.append(for_(s.var, s.start, s.stop, _settled(s.body), kind))
        elif isinstance(s, If):
            out.append(if_(s.condition, _settled(s.body), _settled(s.orelse)))
        else:
            out.append(s)
    return tuple(out)


def _finished(
    program: SsaProgram,
    active: Activity,
    first: tuple[Stmt, ...],
    body: tuple[Stmt, ...],
    numbers: list[str],
    needs: Needs,
) -> AdjointKernel:
    k = program.kernel
    whole = merged(simplified(ThreadKernel(f"{k.name}_adjoint", (), (), (), (), body)).body)
    whole = Sinking().block(whole)
    if needs.arrays:
        whole = _settled(set_at_once(whole))
    names = used(whole)
    params = {b.name: b for b in k.buffers}
    copies = frozenset(n for n in params if n in needs.memory)
    shadows = {n: shadow(n) for n in params if n in active.memory and shadow(n) in names}
    buffers = [
        Param(n, b.dtype, "inout" if n in copies else "in") for n, b in params.items() if n in names
    ]
    changed = _changed(whole)
    buffers += [
        Param(s, params[n].dtype, "inout" if s in changed else "in") for n, s in shadows.items()
    ]
    scalars = tuple((n, d) for n, d in k.scalars if n in names)
    if EVERY.name in names:
        scalars += ((EVERY.name, EVERY.dtype),)
    dtypes = dict(k.scalars)
    buffers += [Param(f"{n}__sum", dtypes[n], "inout") for n in numbers]
    order = [n for n in k.order if n in names] + list(shadows.values())
    order += [f"{n}__sum" for n in numbers]
    order += [EVERY.name] if EVERY.name in names else []
    shared = [s for s in k.shared if s.name in names]
    shared += [
        Shared(shadow(s.name), s.dtype, s.size, True) for s in k.shared if shadow(s.name) in names
    ]
    tables = tuple(t for t in k.tables if t.name in names)
    kernel = ThreadKernel(
        f"{k.name}_adjoint", tuple(buffers), scalars, tuple(order), tuple(shared), whole, tables
    )
    taped = sum(isinstance(s, Push) for s in all_statements(whole))
    taped += sum(len(s.arrays) for s in all_statements(whole) if isinstance(s, Record))
    counted = simplified(ThreadKernel(k.name, (), (), (), (), first)).body
    inner = used(counted)
    counting = ThreadKernel(
        f"{k.name}_count", tuple(b for b in buffers if b.name in inner),
        tuple(s for s in scalars if s[0] in inner), tuple(n for n in order if n in inner),
        tuple(s for s in k.shared if s.name in inner), counted,
        tuple(t for t in k.tables if t.name in inner),
    )  # fmt: skip
    shadows |= {n: f"{n}__sum" for n in numbers}
    return AdjointKernel(kernel, shadows, copies, taped, _recomputed(program, needs), counting)
