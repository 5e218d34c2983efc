"""The statements of a kernel backwards: derivatives that are added up in the opposite order.

What is added to an element of memory is one atomic step where other threads may add to it, and a
plain addition where only one thread can. A barrier is its own adjoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Expr,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    for_,
    if_,
    used,
    variables,
)
from adarray.errors import KernelError
from adarray.kernels import build, sums
from adarray.kernels.activity import Activity, dependent
from adarray.kernels.forward import EVERY
from adarray.kernels.functions import NAMED, PARTIALS
from adarray.kernels.needs import Needs
from adarray.kernels.ownership import Ownership
from adarray.kernels.reload import Apart
from adarray.kernels.reverse_expressions import ReverseExpressions, shadow
from adarray.kernels.reverse_parts import (
    OldValue,
    Prologue,
    Segment,
    SteadyElements,
    assigned_by,
    defined_by,
)
from adarray.kernels.ssa import (
    Branch,
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
from adarray.kernels.tape_arrays import TapeArrays
from adarray.kernels.totals import BlockTotals
from adarray.kernels.warp_adjoints import SameForWarp, WarpAdjoint


class Reverse(ReverseExpressions):
    """Writes the statements of a program backwards."""

    def __init__(
        self,
        program: SsaProgram,
        active: Activity,
        needs: Needs,
        owners: Ownership,
        inputs: frozenset[str],
        checkpointed: frozenset[int] = frozenset(),
        apart: Apart | None = None,
    ) -> None:
        super().__init__(program, active, needs, apart)
        self.needs = needs
        self.owners = owners
        self.inputs = inputs
        self.checkpointed = checkpointed
        self.terms: dict[str, sums.Summand] = {}  # by the names of the sums
        self.uses = sums.uses(program)
        self.buffers = {b.name for b in program.kernel.buffers}
        self.shared = {s.name for s in program.kernel.shared}
        self.same = SameForWarp(program)
        names = used(program.kernel.body)
        self.lines = {
            axis: SameForWarp(program, (f"threadIdx.{axis}",))
            for axis in "xy"
            if f"threadIdx.{axis}" in names
        }
        self.totals = BlockTotals(program)
        self.steady: list[SteadyElements] = []
        # Number of an iteration, and how many there are, in the reverse sweep; by loop.
        self.counted: dict[int, tuple[Expr, Expr]] = {}
        self.tape = TapeArrays(program, needs)

    def block(self, nodes: list[Node], ends: list[Any]) -> list[Any]:
        """Return the statements of a block backwards; `ends` are what comes first."""
        own = set()
        for n in nodes:
            own |= defined_by(n)
        declared: set[str] = set()
        out: list[Any] = []
        self._declare(ends, own, declared, out)
        for n in reversed(nodes):
            self._declare(self.node(n), own, declared, out)
        for n in nodes:
            if isinstance(n, Place) and n.name in self.active.memory:
                b = shadow(n.name)
                array = Local(b, n.dtype, build.index(n.size), build.const(0, n.dtype))
                first = next((k for k, s in enumerate(out) if b in used((s,))), None)
                if first is not None:
                    out.insert(first, array)
        return out if any(not isinstance(s, Barrier) for s in out) else []

    def _declare(self, chunk: list[Any], own: set[str], declared: set[str], out: list[Any]) -> None:
        """Add statements, after declarations of the derivatives that they are the first to set."""
        targets = assigned_by(chunk)
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
        self.reload.before(n)
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
                self._into(n.buffer, n.index, Var(n.dtype, shadow(n.name)), out)
        elif isinstance(n, Write):
            self._result(n, out)
            if n.order in self.needs.plan.writes:
                self._restore(n, out)
            if n.buffer in self.active.memory:
                self._write(n, out)
        elif isinstance(n, Exchange):
            if n.name in self.live and n.name in self.active.values:
                self._exchange(n, out)
        elif isinstance(n, Wait):
            out.append(Barrier(warp=n.warp))
        elif isinstance(n, Branch):
            self._branch(n, out)
        elif isinstance(n, SsaLoop):
            self._loop(n, out)
        return out

    def _exchange(self, n: Exchange, out: list[Any]) -> None:
        mask = None if n.op.mask is None else self.read(n.op.mask, out)
        op = replace(n.op, lane=self.read(n.op.lane, out), mask=mask)
        self.count += 1
        adjoint = WarpAdjoint(op, Var(n.dtype, shadow(n.name)), f"warp__{self.count}")
        g = adjoint.derivative(self.same.expr(n.op.lane))
        out += adjoint.out
        self.push(n.op.value, self.named(g, out), out)

    def _into(self, buffer: str, place: Expr, value: Expr, out: list[Any]) -> None:
        """Add to the element of a shadow at an index of the kernel."""
        if self.at is not None and self.at.order in self.needs.plan.sums:
            sum_ = self.steady[-1].total(shadow(buffer), place, value.dtype)
            out.append(Assign(sum_.name, build.add(sum_, value)))
            return
        total = self.totals.of(buffer, place, value.dtype)
        if total is not None:
            out.append(Assign(total.name, build.add(total, value)))
            return
        index = self.read(place, out)
        b = shadow(buffer)
        several = buffer in self.buffers or buffer in self.shared
        if several and buffer not in self.owners.alone:
            lines = (axis for axis, same in self.lines.items() if same.expr(place))
            same = "warp" if self.same.expr(place) else next(lines, "")
            out.append(Atomic(b, index, "add", value, same=same))
        elif buffer in self.owners.once and not self.program.writes(buffer):
            out.append(Store(b, index, value))  # the one addition to a 0
        else:
            out.append(Store(b, index, build.add(Load(value.dtype, b, index), value)))

    def _result(self, n: Write, out: list[Any]) -> None:
        """Read what a write has left, if it is the value of a function whose derivative needs it.

        Behind it, memory is restored.
        """
        if not isinstance(n.value, Var) or n not in self.needs.stored.get(n.value.name, ()):
            return
        d = self.program.values[n.value.name]
        if isinstance(d, Def) and self.needs.plan.revisits and self._needs_result(d):
            self.reload.behind(n)
            if self.needs.late(d.name):
                self.read(n.value, out)
            self.reload.before(n)

    def _needs_result(self, d: Def) -> bool:
        """Whether the derivative of a function is made of its value."""
        e = d.value
        if not isinstance(e, Apply) or d.name not in self.active.values:
            return False
        if e.name == "divide":
            return dependent(e.args[1], self.active.values)
        y = Var(e.dtype, d.name)
        if e.name not in NAMED:
            return False
        partials = zip(e.args, PARTIALS[e.name](e.args, y), strict=True)
        moving = (p for a, p in partials if dependent(a, self.active.values))
        return any(p is not None and d.name in variables(p) for p in moving)

    def _restore(self, n: Write, out: list[Any]) -> None:
        """Give an element what it held before it was written."""
        self.reload.behind(n)
        index = self.read(n.index, out)
        self.count += 1
        old = Var(n.value.dtype, f"{n.buffer}__old{self.count}")
        out.append(OldValue(n, old.name))
        out.append(Store(n.buffer, index, old))
        self.reload.before(n)

    def _write(self, n: Write, out: list[Any]) -> None:
        added = self.added(n)
        if added is not None and not dependent(added, self.active.values):
            return
        index = self.read(n.index, out)
        b = shadow(n.buffer)
        dtype = n.value.dtype
        if added is not None:
            if n.order in self.needs.plan.steady:
                g: Expr = self.steady[-1].value(b, n.index, dtype)
            else:
                g = self.named(Load(dtype, b, index), out)
            self.push(added, g, out)
            return
        if n.result is not None and n.result in self.active.values:
            raise KernelError(
                f"the result of an atomic operation on {n.buffer!r} is used, and depends on the "
                "order of threads; it has no derivative"
            )
        g = build.const(0, dtype)
        if dependent(n.value, self.active.values):
            g = self.named(Load(dtype, b, index), out)
        if n.combine is None and not self._last(n):
            out.append(Store(b, index, build.const(0, dtype)))
        self.push(n.value, g, out)

    def _last(self, n: Write) -> bool:
        """Whether nobody reads the derivative by what was in an element before this write."""
        alone = len(self.program.accesses(n.buffer)) == 1 and not n.loops
        once = alone or n.buffer in self.owners.once
        return once and n.buffer in self.buffers and n.buffer not in self.inputs

    def added(self, n: Write) -> Expr | None:
        """Return what a write adds to the element as it was; None where it does something else.

        The derivative by the old value is that by the new one: it stays where it is.
        """
        if n.combine is not None:
            return None
        for r in self.program.accesses(n.buffer):
            if not isinstance(r, Read) or r.block != n.block or r.order > n.order:
                continue
            if r.index != n.index or self.uses[r.name] != 1:
                continue
            between = self.program.nodes[r.order + 1 : n.order]
            if any(
                isinstance(x, Wait) or (isinstance(x, Write) and x.buffer == n.buffer)
                for x in between
            ):
                continue
            rest = sums.without(n.value, r.name)
            if rest is not None:
                return rest
        return None

    def _branch(self, n: Branch, out: list[Any]) -> None:
        ends: tuple[list[Any], list[Any]] = ([], [])
        moving = [p for p in n.phis if p.name in self.live and p.name in self.active.values]
        with self.scope():
            self.reload.behind(n, n.body)
            for p in moving:
                self.push(p.then, Var(p.dtype, shadow(p.name)), ends[0])
            body = self.block(n.body, ends[0])
        with self.scope():
            self.reload.behind(n)
            for p in moving:
                self.push(p.orelse, Var(p.dtype, shadow(p.name)), ends[1])
            orelse = self.block(n.orelse, ends[1])
        if body or orelse:
            self.reload.behind(n)
            out.append(if_(self.read(n.condition, out), body, orelse))

    def _sum(self, n: SsaLoop, out: list[Any]) -> bool:
        """Write the adjoint of a loop that only adds up, if it is one, in the loop's own order."""
        moving = [c for c in n.carried if c.name in self.active.values]
        if n.var is None or not sums.quiet(n, self.active.memory) or self.reload.restores(n):
            return False
        loop_terms: dict[str, sums.Summand] = {}
        for c in moving:
            terms = sums.terms(self.program, c, self.uses)
            if terms is None:
                return False
            loop_terms |= terms
        going = [c for c in moving if c.out in self.live]
        names = {c.name for c in going}
        outside = set(self.live)
        self.terms |= {d: t for d, t in loop_terms.items() if t.carried in names}
        with self.scope(), self._steadily(n) as steady:
            body = self.block(n.body, [])
        if self.tape.is_backwards(n) or names & self.live:
            self.live = outside  # the tape comes back in the opposite order
            self.terms = {d: t for d, t in self.terms.items() if d not in loop_terms}
            return False
        out += [Local(shadow(c.name), c.dtype, None, Var(c.dtype, shadow(c.out))) for c in going]
        self.reload.behind(n)
        if body:
            start, stop = self.read(n.start, out), self.read(n.stop, out)
            body.insert(0, Prologue(n))
            self._before(n, steady, out)
            self._count(n, start, stop)
            kind = "vector" if n.number in self.needs.plan.vector else "serial"
            out.append(for_(self.renamed(n.var), start, stop, body, kind))
        self.reload.before(n)
        self._after(n, steady, out)
        for c in going:
            self.push(c.first, Var(c.dtype, shadow(c.name)), out)
        return True

    def _loop(self, n: SsaLoop, out: list[Any]) -> None:
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
            with self.scope(), self._steadily(n) as steady:
                self.reload.end_of(n)
                for c in going:
                    self.push(c.next, Var(c.dtype, f"{c.name}__d"), ends)
                body = self.block(n.body, ends)
            more = [c for c in moving if c.name in self.live and c not in going]
            if not more:
                break
            going += more
            self.live = outside
        if not body and not self.needs.taped.get(n.number):
            return  # else what its iterations have put on the tape is to be taken off
        for c in going:
            first: Expr = build.const(0, c.dtype)
            if c.out in self.live:
                first = Var(c.dtype, shadow(c.out))
            out.append(Local(shadow(c.name), c.dtype, None, first))
        body.insert(0, Prologue(n))
        self.reload.behind(n)
        self._before(n, steady, out)
        if n.number in self.checkpointed:
            self._segments(n, body, out)
        elif n.number in self.needs.plan.vector and n.var is not None and not going:
            start, stop = self.read(n.start, out), self.read(n.stop, out)
            self._count(n, start, stop)
            out.append(for_(self.renamed(n.var), start, stop, body, "vector"))
        else:
            self._backwards(n, body, out)
        self.reload.before(n)
        self._after(n, steady, out)
        for c in going:
            self.push(c.first, Var(c.dtype, shadow(c.name)), out)

    @contextmanager
    def _steadily(self, n: SsaLoop) -> Iterator[SteadyElements]:
        """Collect the elements that iterations of a loop have to themselves."""
        self.steady.append(SteadyElements(n.number))
        yield self.steady[-1]
        self.steady.pop()

    def _runs(self, n: SsaLoop, out: list[Any]) -> Expr:
        """Return whether a loop has iterations: without, there need not be such an element."""
        return build.compare("less", self.read(n.start, out), self.read(n.stop, out))

    def _before(self, n: SsaLoop, steady: SteadyElements, out: list[Any]) -> None:
        """Read derivatives that stay the same in a loop, and begin sums."""
        names = (*steady.values.values(), *steady.totals.values())
        out += [Local(v.name, v.dtype, None, build.const(0, v.dtype)) for v in names]
        for (b, index), v in steady.values.items():
            load = Load(v.dtype, b, self.read(index, out))
            out.append(if_(self._runs(n, out), [Assign(v.name, load)]))

    def _after(self, n: SsaLoop, steady: SteadyElements, out: list[Any]) -> None:
        """Add the sums of a loop to memory."""
        for (b, place), v in steady.totals.items():
            index = self.read(place, out)
            added = Store(b, index, build.add(Load(v.dtype, b, index), v))
            out.append(if_(self._runs(n, out), [added]))

    def _count(self, n: SsaLoop, start: Expr, stop: Expr) -> None:
        number = build.subtract(Var("int64", self.renamed(n.var or "")), start)
        self.counted[n.number] = number, build.subtract(stop, start)

    def _backwards(self, n: SsaLoop, body: list[Any], out: list[Any]) -> None:
        """Write a loop over reverse iterations."""
        back = f"{n.var or n.trips}__back"
        if n.var is not None:
            start, stop = self.read(n.start, out), self.read(n.stop, out)
            count = build.subtract(stop, start)
            # A loop whose bounds are the wrong way round has no iterations.
            last = build.subtract(stop, build.index(1))
            current = build.subtract(last, Var("int64", back))
            self._count(n, start, stop)
            body.insert(0, Let(self.renamed(n.var), current))
        else:
            count = self.read(Var("int64", n.trips), out)
        out.append(for_(back, build.index(0), count, body))

    def _segments(self, n: SsaLoop, body: list[Any], out: list[Any]) -> None:
        """Write a loop over parts of a loop, the last one first: each runs forward, then back."""
        name = n.var or n.trips
        one = build.index(1)
        if n.var is not None:
            count = build.subtract(self.read(n.stop, out), self.read(n.start, out))
        else:
            count = self.read(Var("int64", n.trips), out)
        trips, parts = Var("int64", f"{name}__trips"), Var("int64", f"{name}__parts")
        first, last = Var("int64", f"{name}__first"), Var("int64", f"{name}__last")
        part, back = f"{name}__part", f"{name}__back"
        out.append(Let(trips.name, build.call("maximum", "int64", count, build.index(0))))
        rounded = build.add(trips, build.subtract(EVERY, one))
        out.append(Let(parts.name, build.call("quotient", "int64", rounded, EVERY)))
        if n.var is not None:
            at = build.subtract(build.subtract(last, one), Var("int64", back))
            body.insert(0, Let(self.renamed(n.var), build.add(self.read(n.start, out), at)))
        number = build.subtract(build.subtract(parts, one), Var("int64", part))
        end = build.call("minimum", "int64", build.add(first, EVERY), trips)
        whole: list[Any] = [
            Let(first.name, build.multiply(number, EVERY)),
            Let(last.name, end),
            Segment(n, first, last),
            for_(back, build.index(0), build.subtract(last, first), body),
        ]
        out.append(for_(part, build.index(0), parts, whole))
