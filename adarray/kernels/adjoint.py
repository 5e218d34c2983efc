"""The adjoint of a kernel: its forward part, and its statements backwards.

What is added to an element on the way back is added as one step where other threads may add to
it, and plainly where only one thread can. A barrier is its own adjoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
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
    Shared,
    Stmt,
    ThreadKernel,
    all_statements,
    for_,
    has_barrier,
    if_,
    inside,
    reads,
    replaced,
    variables,
)
from adarray.errors import KernelError
from adarray.kernels import build, sums
from adarray.kernels.activity import Activity, activity, dependent, without_rule
from adarray.kernels.forward import Forward, dtype_of
from adarray.kernels.functions import NAMED, PARTIALS
from adarray.kernels.needs import Needs
from adarray.kernels.simplify import merged, simplified
from adarray.kernels.ssa import Branch, Carried, Def, Loop, Node, Place, Program, Read, Wait, Write


@dataclass(frozen=True, slots=True)
class Adjoint:
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
    atomics : int
        Number of additions to memory of all blocks that are made as one step.
    counting : ThreadKernel
        The forward part alone, which counts what it puts on the tape.
    """

    kernel: ThreadKernel
    shadows: dict[str, str]
    copies: frozenset[str]
    taped: int
    atomics: int
    counting: ThreadKernel


def shadow(name: str) -> str:
    """Return the name of a value's derivative on the way back."""
    return f"{name}__b"


class _Prologue:
    """Stands where values of an iteration come from the tape, or are computed again."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop


class Reverse:
    """Writes the statements of a program backwards."""

    def __init__(
        self, program: Program, active: Activity, needs: Needs, plain: frozenset[str]
    ) -> None:
        self.program = program
        self.active = active
        self.needs = needs
        self.plain = plain
        self.live: set[str] = set()  # values whose derivative something has been added to
        self.count = 0
        self.terms: dict[str, sums.Term] = {}  # by the names of the sums
        self.uses = sums.uses(program)
        self.at: Node | None = None  # whose adjoint is written
        self.calls: dict[Expr, list[Def]] = {}
        for n in program.nodes:
            if isinstance(n, Def) and isinstance(n.value, Apply) and n.value.name in NAMED:
                self.calls.setdefault(n.value, []).append(n)
        self.buffers = {b.name for b in program.kernel.buffers}
        self.shared = {s.name for s in program.kernel.shared}

    # -- expressions ---------------------------------------------------------------------------

    def renamed(self, name: str) -> str:
        """Return the name that a value has on the way back."""
        in_loop = name in self.program.values and self.program.home(name) is not None
        return f"{name}__r" if in_loop else name

    def known(self, e: Expr) -> Expr:
        """Return an expression with the names of functions that the kernel calls there."""
        if not isinstance(e, Apply):
            return e
        at = self.at
        for d in self.calls.get(e, ()):
            if at is not None and d.home is at.home and (not d.branches or d.block == at.block):
                return Var(e.dtype, d.name)
        return Apply(e.dtype, e.name, tuple(map(self.known, e.args)))

    def read(self, e: Expr) -> Expr:
        """Return an expression as the reverse half reads it."""
        e = self.known(e)
        self.needs.read(e)
        return self.shown(e)

    def shown(self, e: Expr) -> Expr:
        """Return an expression with the names of the reverse half."""
        if isinstance(e, Var):
            return Var(e.dtype, self.renamed(e.name))
        if isinstance(e, Apply):
            return Apply(e.dtype, e.name, tuple(map(self.shown, e.args)))
        return e

    def add(self, name: str, value: Expr, out: list[Any]) -> None:
        """Add to the derivative by a value."""
        if build.is_zero(value):
            return
        self.live.add(name)
        b = Var(value.dtype, shadow(name))
        out.append(Assign(b.name, build.add(b, value)))

    def push(self, e: Expr, g: Expr, out: list[Any], result: Expr | None = None) -> None:
        """Add the derivatives by what is in an expression whose own derivative is `g`."""
        if isinstance(e, Var):
            if e.name in self.active.values:
                self.add(e.name, g, out)
            return
        if not isinstance(e, Apply) or not dependent(e, self.active.values) or build.is_zero(g):
            return
        if e.name == "cast":
            self.push(e.args[0], build.cast(g, e.args[0].dtype), out)
            return
        moving = [a for a in e.args if dependent(a, self.active.values)]
        if len(moving) > 1 and not build.is_simple(g):
            g = self.named(g, out)
        if e.name == "where":
            condition = self.read(e.args[0])
            zero = build.const(0, g.dtype)
            self.push(e.args[1], build.where(condition, g, zero), out)
            self.push(e.args[2], build.where(condition, zero, g), out)
            return
        if e.name == "divide":
            self._divide(e, g, out, result)
            return
        partials = PARTIALS[e.name](e.args, result if result is not None else e)
        for a, p in zip(e.args, partials, strict=True):
            if p is not None and dependent(a, self.active.values) and not build.is_zero(p):
                self.push(a, build.multiply(g, self.read(p)), out)

    def _divide(self, e: Apply, g: Expr, out: list[Any], result: Expr | None) -> None:
        """Add the derivatives of a quotient, with one more division for both."""
        top, bottom = e.args
        share = build.divide(g, self.read(bottom))
        if dependent(bottom, self.active.values):
            share = self.named(share, out)
            quotient = self.read(result if result is not None else e)
            self.push(bottom, build.negative(build.multiply(share, quotient)), out)
        self.push(top, share, out)

    def named(self, g: Expr, out: list[Any]) -> Expr:
        """Return a derivative by a name of its own."""
        self.count += 1
        out.append(Let(f"g__{self.count}", g))
        return Var(g.dtype, f"g__{self.count}")

    # -- statements ----------------------------------------------------------------------------

    def block(self, nodes: list[Node], ends: list[Any]) -> list[Any]:
        """Return the statements of a block backwards; `ends` are what comes first."""
        own = set()
        for n in nodes:
            own |= _defined(n)
        declared: set[str] = set()
        out: list[Any] = []
        self._declare(ends, own, declared, out)
        for n in reversed(nodes):
            self._declare(self.node(n), own, declared, out)
        for n in nodes:
            if isinstance(n, Place) and n.name in self.active.memory:
                array = Local(shadow(n.name), n.dtype, build.index(n.size), build.const(0, n.dtype))
                out.insert(0, array)
        return out if any(not isinstance(s, Barrier) for s in out) else []

    def _declare(self, chunk: list[Any], own: set[str], declared: set[str], out: list[Any]) -> None:
        """Add statements, after declarations of the derivatives that they are the first to set."""
        targets = _assigned(chunk)
        for name in sorted(own - declared):
            if shadow(name) in targets:
                declared.add(name)
                out.append(Local(shadow(name), dtype_of(self.program, name), None,
                                 build.const(0, dtype_of(self.program, name))))  # fmt: skip
        out += chunk

    def node(self, n: Node) -> list[Any]:
        """Return the adjoint of a node."""
        out: list[Any] = []
        self.at = n
        if isinstance(n, Def):
            term = self.terms.get(n.name)
            if term is not None:
                g: Expr = Var(n.value.dtype, shadow(term.carried))
                self.push(term.value, g if term.plus else build.negative(g), out)
            elif n.name in self.live:
                b = Var(n.value.dtype, shadow(n.name))
                self.push(n.value, b, out, Var(n.value.dtype, n.name))
        elif isinstance(n, Read):
            if n.name in self.live and n.buffer in self.active.memory:
                self._into(n.buffer, self.read(n.index), Var(n.dtype, shadow(n.name)), out)
        elif isinstance(n, Write):
            if n.buffer in self.active.memory:
                self._write(n, out)
        elif isinstance(n, Wait):
            out.append(Barrier())
        elif isinstance(n, Branch):
            self._branch(n, out)
        elif isinstance(n, Loop):
            self._loop(n, out)
        return out

    def _into(self, buffer: str, index: Expr, value: Expr, out: list[Any]) -> None:
        """Add to an element of a shadow."""
        b = shadow(buffer)
        several = buffer in self.buffers or buffer in self.shared
        if several and buffer not in self.plain:
            out.append(Atomic(b, index, "add", value))
        else:
            out.append(Store(b, index, build.add(Load(value.dtype, b, index), value)))

    def _write(self, n: Write, out: list[Any]) -> None:
        index = self.read(n.index)
        b = shadow(n.buffer)
        dtype = n.value.dtype
        if n.result is not None and n.result in self.active.values:
            raise KernelError(
                f"the result of an atomic operation on {n.buffer!r} is used, and depends on the "
                "order of threads; it has no derivative"
            )
        g: Expr = build.const(0, dtype)
        if dependent(n.value, self.active.values):
            g = self.named(Load(dtype, b, index), out)
        if n.combine is None:
            out.append(Store(b, index, build.const(0, dtype)))
        self.push(n.value, g, out)

    def _branch(self, n: Branch, out: list[Any]) -> None:
        ends: tuple[list[Any], list[Any]] = ([], [])
        for p in n.phis:
            if p.name in self.live and p.name in self.active.values:
                g = Var(p.dtype, shadow(p.name))
                self.push(p.then, g, ends[0])
                self.push(p.orelse, g, ends[1])
        body = self.block(n.body, ends[0])
        orelse = self.block(n.orelse, ends[1])
        if body or orelse:
            out.append(if_(self.read(n.condition), body, orelse))

    def _sum(self, n: Loop, out: list[Any]) -> bool:
        """Write the adjoint of a loop that only adds up, if it is one, in the loop's own order."""
        moving = [c for c in n.carried if c.name in self.active.values]
        if n.var is None or not sums.quiet(n, self.active.memory):
            return False
        found: dict[str, sums.Term] = {}
        for c in moving:
            terms = sums.terms(self.program, c, self.uses)
            if terms is None:
                return False
            found |= terms
        going = [c for c in moving if c.out in self.live]
        names = {c.name for c in going}
        outside = set(self.live)
        self.terms |= {d: t for d, t in found.items() if t.carried in names}
        body = self.block(n.body, [])
        if self.needs.taped.get(n.number) or names & self.live:
            self.live = outside  # the tape comes back in the opposite order
            self.terms = {d: t for d, t in self.terms.items() if d not in found}
            return False
        out += [Local(shadow(c.name), c.dtype, None, Var(c.dtype, shadow(c.out))) for c in going]
        if body:
            start, stop = self.read(n.start), self.read(n.stop)
            body.insert(0, _Prologue(n))
            out.append(for_(self.renamed(n.var), start, stop, body))
        for c in going:
            self.push(c.first, Var(c.dtype, shadow(c.name)), out)
        return True

    def _loop(self, n: Loop, out: list[Any]) -> None:
        if self._sum(n, out):
            return
        moving = [c for c in n.carried if c.name in self.active.values]
        going = [c for c in moving if c.out in self.live]
        while True:
            outside = set(self.live)
            ends: list[Any] = []
            self.live |= {c.name for c in going}
            for c in going:
                ends.append(Let(f"{c.name}__d", Var(c.dtype, shadow(c.name))))
                ends.append(Assign(shadow(c.name), build.const(0, c.dtype)))
            for c in going:
                self.push(c.next, Var(c.dtype, f"{c.name}__d"), ends)
            body = self.block(n.body, ends)
            more = [c for c in moving if c.name in self.live and c not in going]
            if not more:
                break
            going += more
            self.live = outside
        if not body:
            return
        for c in going:
            first: Expr = build.const(0, c.dtype)
            if c.out in self.live:
                first = Var(c.dtype, shadow(c.out))
            out.append(Local(shadow(c.name), c.dtype, None, first))
        back = f"{n.var or n.trips}__back"
        if n.var is not None:
            start, stop = self.read(n.start), self.read(n.stop)
            count = build.subtract(stop, start)
            # A loop whose bounds are the wrong way round has no iterations.
            last = build.subtract(stop, build.index(1))
            turned = build.subtract(last, Var("int64", back))
            body.insert(0, Let(self.renamed(n.var), turned))
        else:
            count = self.read(Var("int64", n.trips))
        body.insert(1 if n.var is not None else 0, _Prologue(n))
        out.append(for_(back, build.index(0), count, body))
        for c in going:
            self.push(c.first, Var(c.dtype, shadow(c.name)), out)


def _defined(n: Node) -> set[str]:
    """Return the values that a node defines in its block."""
    if isinstance(n, (Def, Read)):
        return {n.name}
    if isinstance(n, Write):
        return {n.result} if n.result else set()
    if isinstance(n, Branch):
        return {p.name for p in n.phis}
    return {c.out for c in n.carried} if isinstance(n, Loop) else set()


def _assigned(chunk: list[Any]) -> set[str]:
    """Return the names that statements assign to."""
    found: set[str] = set()
    for s in chunk:
        if isinstance(s, Assign):
            found.add(s.name)
        elif isinstance(s, For):
            found |= _assigned(list(s.body))
        elif isinstance(s, If):
            found |= _assigned(list(s.body)) | _assigned(list(s.orelse))
    return found


class _Assembly:
    """Puts prologues in their places, and both halves together."""

    def __init__(self, program: Program, needs: Needs, reverse: Reverse) -> None:
        self.program = program
        self.needs = needs
        self.reverse = reverse

    def closed(self, body: list[Any]) -> list[Stmt]:
        """Return statements with prologues, and tuples in the place of lists."""
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, _Prologue):
                out += self._prologue(s.loop)
            elif isinstance(s, For):
                out.append(for_(s.var, s.start, s.stop, tuple(self.closed(list(s.body)))))
            elif isinstance(s, If):
                then, orelse = self.closed(list(s.body)), self.closed(list(s.orelse))
                out.append(if_(s.condition, tuple(then), tuple(orelse)))
            else:
                out.append(s)
        return out

    def _prologue(self, loop: Loop) -> list[Stmt]:
        out: list[Stmt] = [
            Pop(self.reverse.renamed(name), dtype_of(self.program, name))
            for name in reversed(self.needs.taped.get(loop.number, []))
        ]
        replay = self.needs.replays.get(loop.number)
        if replay is None:
            return out
        hoisted = self.needs.required.get(loop.number, set())

        def name(n: str) -> str:
            home = self.program.home(n) if n in self.program.values else None
            if home is not None and home is not loop and home not in loop.loops:
                return f"{n}__f{loop.number}"
            return self.reverse.renamed(n)

        forward = Forward(self.program, replay, hoisted, name, {}, self.arrays(loop))
        made = forward.statements(loop.body)
        if replay.waits:
            made = [Barrier(), *made, Barrier()]
        return out + made

    def arrays(self, loop: Loop | None) -> set[str]:
        """Return the thread's arrays that are declared in iterations of a loop."""
        return {n.name for n in self.program.nodes if isinstance(n, Place) and n.home is loop}


def adjoint(
    program: Program,
    inputs: frozenset[str],
    private: frozenset[tuple[str, int]] = frozenset(),
    plain: frozenset[str] = frozenset(),
) -> Adjoint:
    """Return the adjoint of a kernel.

    Parameters
    ----------
    program : Program
    inputs : frozenset of str
        Parameters that derivatives are wanted by.
    private : frozenset of (str, int)
        See `adarray.kernels.needs`.
    plain : frozenset of str
        Memories of whose elements no two threads touch the same between two barriers.
    """
    active = activity(program, set(inputs))
    missing = without_rule(program, active)
    if missing is not None:
        raise KernelError(f"the derivative of {missing} is not known")
    needs = Needs(program, set(private))
    reverse = Reverse(program, active, needs, plain)
    back = reverse.block(program.body, [])
    scalars = dict(program.kernel.scalars)
    numbers = [n for n in scalars if n in reverse.live and n in inputs]
    declared: list[Stmt] = [
        Local(shadow(n), scalars[n], None, build.const(0, scalars[n])) for n in numbers
    ]
    totals = [
        Atomic(f"{n}__sum", build.index(0), "add", Var(scalars[n], shadow(n)), None, True)
        for n in numbers
    ]
    assembly = _Assembly(program, needs, reverse)
    closed = assembly.closed(back)
    # What is read on the way back, or goes to the tape behind an iteration, outlives branches.
    hoisted = needs.required.get(None, set()).union(*needs.taped.values())
    forward = Forward(
        program, needs.forward, hoisted, lambda n: n, needs.taped, _forward_arrays(program, needs)
    )
    first = forward.statements(program.body)
    waits = any(isinstance(n, Wait) for n in program.nodes)
    middle: list[Stmt] = [Barrier()] if waits and first else []
    body = [*_joined(first, middle, declared, closed), *totals]
    return _finished(program, active, tuple(first), tuple(body), numbers, needs)


def _joined(
    first: list[Stmt], middle: list[Stmt], declared: list[Stmt], back: list[Stmt]
) -> list[Stmt]:
    """Return both halves; where all of them is under one condition, it is asked once."""
    turn = Comment("and back")
    if first and not middle and len(back) == 1:
        a, b = first[-1], back[0]
        same = isinstance(a, If) and isinstance(b, If) and a.condition == b.condition
        if same and isinstance(a, If) and isinstance(b, If) and not a.orelse and not b.orelse:
            inside = [*a.body, turn, *b.body]
            return [*first[:-1], *declared, if_(a.condition, inside)]
    return [*first, *middle, turn, *declared, *back]


def _forward_arrays(program: Program, needs: Needs) -> set[str]:
    arrays = {n.name for n in program.nodes if isinstance(n, Place)}
    return {a for a in arrays if a in needs.memory}


def used(body: tuple[Stmt, ...]) -> set[str]:
    """Return the names of memory and variables in statements."""
    found: set[str] = set()
    for s in all_statements(body):
        if isinstance(s, (Store, Atomic)):
            found.add(s.buffer)
        for e in reads(s):
            if isinstance(e, Var):
                found.add(e.name)
            elif isinstance(e, Load):
                found.add(e.buffer)
    return found


def _finished(
    program: Program,
    active: Activity,
    first: tuple[Stmt, ...],
    body: tuple[Stmt, ...],
    numbers: list[str],
    needs: Needs,
) -> Adjoint:
    k = program.kernel
    whole = merged(simplified(ThreadKernel(f"{k.name}_adjoint", (), (), (), (), body)).body)
    names = used(whole)
    params = {b.name: b for b in k.buffers}
    copies = frozenset(n for n in params if n in needs.memory)
    shadows = {n: shadow(n) for n in params if n in active.memory and shadow(n) in names}
    buffers = [
        Param(n, b.dtype, "inout" if n in copies else "in") for n, b in params.items() if n in names
    ]
    buffers += [Param(s, params[n].dtype, "inout") for n, s in shadows.items()]
    scalars = tuple((n, d) for n, d in k.scalars if n in names)
    dtypes = dict(k.scalars)
    buffers += [Param(f"{n}__sum", dtypes[n], "inout") for n in numbers]
    order = [n for n in k.order if n in names] + list(shadows.values())
    order += [f"{n}__sum" for n in numbers]
    shared = [s for s in k.shared if s.name in names]
    shared += [
        Shared(shadow(s.name), s.dtype, s.size, True) for s in k.shared if shadow(s.name) in names
    ]
    tables = tuple(t for t in k.tables if t.name in names)
    kernel = ThreadKernel(
        f"{k.name}_adjoint", tuple(buffers), scalars, tuple(order), tuple(shared), whole, tables
    )
    shared_names = {s.name for s in shared}
    atomics = sum(
        isinstance(s, Atomic) and not s.uniform and s.buffer not in shared_names
        for s in all_statements(whole)
    )
    taped = sum(isinstance(s, Push) for s in all_statements(whole))
    counted = simplified(ThreadKernel(k.name, (), (), (), (), first)).body
    inner = used(counted)
    counting = ThreadKernel(
        f"{k.name}_count", tuple(b for b in buffers if b.name in inner),
        tuple(s for s in scalars if s[0] in inner), tuple(n for n in order if n in inner),
        tuple(s for s in k.shared if s.name in inner), counted,
        tuple(t for t in k.tables if t.name in inner),
    )  # fmt: skip
    shadows |= {n: f"{n}__sum" for n in numbers}
    return Adjoint(kernel, shadows, copies, taped, atomics, counting)


__all__ = [
    "Adjoint",
    "Carried",
    "Const",
    "adjoint",
    "has_barrier",
    "inside",
    "replaced",
    "variables",
]
