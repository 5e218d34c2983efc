"""A part of a kernel as statements that run forward: before the reverse sweep, or again in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from adarray.compiler.ir.loopir import Assign, Expr, Let, Load, Local, Store, Var
from adarray.compiler.ir.threads import (
    Atomic,
    Barrier,
    Pop,
    Push,
    Stmt,
    WarpOp,
    While,
    for_,
    if_,
    replaced,
    variables,
)
from adarray.kernels import build
from adarray.kernels.needs import Slice
from adarray.kernels.ssa import (
    Branch,
    Carried,
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

# Iterations between two checkpoints: an argument of adjoints that have them.
EVERY = Var("int64", "checkpoint__every")


class ForwardPart:
    """Writes a slice of a program.

    Parameters
    ----------
    program : SsaProgram
    part : Slice
    hoisted : set of str
        Values of branches that are read outside of them.
    name : callable
        The name in the text of a value or array.
    taped : dict
        For loops by number: values that go to the tape at the end of an iteration.
    arrays : set of str
        The thread's arrays that are declared.
    checkpointed : frozenset of int, optional
        Loops by number of which only what iterations begin with goes to the tape, of every
        `EVERY`-th one.
    restored : frozenset of int, optional
        Writes, by order, before which the old value goes to the tape.
    arrays_of_tape : TapeArrays, optional
        Of loops that put their values there.
    """

    def __init__(
        self,
        program: SsaProgram,
        part: Slice,
        hoisted: set[str],
        name: Callable[[str], str],
        taped: dict[int, list[str]],
        arrays: set[str],
        checkpointed: frozenset[int] = frozenset(),
        restored: frozenset[int] = frozenset(),
        arrays_of_tape: TapeArrays | None = None,
    ) -> None:
        self.restored = restored
        self.arrays_of_tape = arrays_of_tape
        self.program = program
        self.part = part
        self.hoisted = hoisted
        self.name = name
        self.taped = taped
        self.arrays = arrays
        self.checkpointed = checkpointed

    def expr(self, e: Expr) -> Expr:
        """Return an expression with the names of the text."""
        by = {n: Var(_dtype(e, n), self.name(n)) for n in variables(e)}
        return replaced(e, {n: v for n, v in by.items() if v.name != n})

    def statements(self, nodes: list[Node]) -> list[Stmt]:
        """Return the statements of a body."""
        base: list[Stmt] = []
        out: list[Stmt] = []
        self._block(nodes, out, base, 0)
        return base + out

    def _set(self, name: str, value: Expr, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        """Give a value its name."""
        shown = self.name(name)
        if depth and name in self.hoisted:
            base.append(Local(shown, value.dtype))
            out.append(Assign(shown, value))
        else:
            out.append(Let(shown, value))

    def _block(self, nodes: list[Node], out: list[Stmt], base: list[Stmt], depth: int) -> None:
        names = self.part.names
        for n in nodes:
            if isinstance(n, Def):
                if n.name in names:
                    self._set(n.name, self.expr(n.value), out, base, depth)
            elif isinstance(n, Read):
                if n.name in names:
                    load = Load(n.dtype, n.buffer, self.expr(n.index))
                    self._set(n.name, load, out, base, depth)
            elif isinstance(n, Write):
                if self.part.has(n):
                    self._write(n, out, base, depth)
            elif isinstance(n, Exchange):
                if n.name in names:
                    self._exchange(n, out, base, depth)
            elif isinstance(n, Wait):
                if self.part.waits:
                    out.append(Barrier(warp=n.warp))
            elif isinstance(n, Place):
                if n.name in self.arrays:
                    base.append(Local(n.name, n.dtype, build.index(n.size)))
            elif isinstance(n, Branch):
                self._branch(n, out, base, depth)
            else:
                self._loop(n, out, base, depth)

    def _exchange(self, n: Exchange, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        hoisted = depth and n.name in self.hoisted
        shown = self.name(n.name)
        op = self.warp_op(n.op, f"{shown}__here" if hoisted else shown)
        out.append(op)
        if hoisted:
            base.append(Local(shown, n.dtype))
            out.append(Assign(shown, Var(n.dtype, op.name)))

    def warp_op(self, op: WarpOp, name: str) -> WarpOp:
        """Return an operation of a warp with the names of the text."""
        mask = None if op.mask is None else self.expr(op.mask)
        return replace(op, name=name, value=self.expr(op.value), lane=self.expr(op.lane), mask=mask)

    def _write(self, n: Write, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        index, value = self.expr(n.index), self.expr(n.value)
        if n.order in self.restored:
            out.append(self._saved(n, Load(value.dtype, n.buffer, index)))
        if n.combine is None:
            out.append(Store(n.buffer, index, value))
            return
        result = n.result if n.result in self.part.names else None
        shown = self.name(result) if result else None
        if result and depth and result in self.hoisted:
            base.append(Local(self.name(result), value.dtype))
            out.append(Atomic(n.buffer, index, n.combine, value, f"{shown}__here"))
            out.append(Assign(self.name(result), Var(value.dtype, f"{shown}__here")))
        else:
            out.append(Atomic(n.buffer, index, n.combine, value, shown))

    def _saved(self, n: Write, old: Expr) -> Stmt:
        arrays = self.arrays_of_tape
        if arrays is None or n.home is None or not arrays.has(n.home):
            return Push(old)
        return Store(arrays.of_write(n), self._number(n.home), old)

    def _number(self, n: SsaLoop) -> Expr:
        """Return the number of an iteration of a loop that counts."""
        assert n.var is not None
        return build.subtract(Var("int64", self.name(n.var)), self.expr(n.start))

    def _branch(self, n: Branch, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        body: list[Stmt] = []
        orelse: list[Stmt] = []
        self._block(n.body, body, base, depth + 1)
        self._block(n.orelse, orelse, base, depth + 1)
        for p in n.phis:
            if p.name in self.part.names:
                shown = self.name(p.name)
                where = base if depth and p.name in self.hoisted else out
                where.append(Local(shown, p.dtype))
                body.append(Assign(shown, self.expr(p.then)))
                orelse.append(Assign(shown, self.expr(p.orelse)))
        if body or orelse:
            out.append(if_(self.expr(n.condition), tuple(body), tuple(orelse)))

    def _loop(self, n: SsaLoop, out: list[Stmt], base: list[Stmt], depth: int) -> None:
        if not self.part.has(n):
            return
        carried = self._carried(n)
        out += [Local(self.name(c.name), c.dtype, None, self.expr(c.first)) for c in carried]
        sparse = n.number in self.checkpointed
        counts = sparse or (n.trips and n.trips in self.part.names)
        if counts:
            count = Var("int64", f"{self.name(n.trips or n.var or '')}__count")
            out.append(Local(count.name, "int64", None, build.index(0)))
        body = self._iteration(n, carried, not sparse)
        if sparse:
            due = build.compare(
                "equal", build.call("modulo", "int64", count, EVERY), build.index(0)
            )
            state = (Push(Var(c.dtype, self.name(c.name))) for c in carried)
            body.insert(0, if_(due, tuple(state)))
        if counts:
            body.append(Assign(count.name, build.add(count, build.index(1))))
        if self.arrays_of_tape is not None and self.arrays_of_tape.has(n):
            room = build.subtract(self.expr(n.stop), self.expr(n.start))
            out.append(self.arrays_of_tape.record(n, room))
        if n.var is not None:
            start, stop = self.expr(n.start), self.expr(n.stop)
            out.append(for_(self.name(n.var), start, stop, tuple(body), n.kind))
        else:
            assert n.condition is not None
            out.append(While(self.name(n.condition.name), tuple(body)))
        for c in carried:
            self._set(c.out, Var(c.dtype, self.name(c.name)), out, base, depth)
        if n.trips and n.trips in self.part.names:
            self._set(n.trips, count, out, base, depth)

    def _carried(self, n: SsaLoop) -> list[Carried]:
        return [c for c in n.carried if c.name in self.part.names]

    def _iteration(self, n: SsaLoop, carried: list[Carried], taped: bool) -> list[Stmt]:
        """Return the statements of an iteration, and those that pass on carried values."""
        body = self.statements(n.body)
        if taped:
            arrays = self.arrays_of_tape
            for name in self.taped.get(n.number, ()):
                taped_value = Var(dtype_of(self.program, name), self.name(name))
                if arrays is not None and arrays.has(n):
                    array = arrays.of_value(n, name)
                    body.append(Store(array, self._number(n), taped_value))
                else:
                    body.append(Push(taped_value))
        moves = [(self.name(c.name), self.expr(c.next), c.dtype) for c in carried]
        return body + self._advance(moves)

    def segment(self, n: SsaLoop, first: Expr, last: Expr) -> list[Stmt]:
        """Return statements that run iterations from a checkpoint on, with all of the tape."""
        carried = self._carried(n)
        out: list[Stmt] = []
        for c in reversed(carried):
            begun = f"{self.name(c.name)}__begun"
            out.append(Pop(begun, c.dtype))
            out.append(Local(self.name(c.name), c.dtype, None, Var(c.dtype, begun)))
        var = f"{self.name(n.var or n.trips)}__again"
        body = self._iteration(n, carried, True)
        if n.var is not None:
            at = build.add(self.expr(n.start), Var("int64", var))
            body.insert(0, Let(self.name(n.var), at))
        return [*out, for_(var, first, last, tuple(body))]

    def _advance(self, moves: list[tuple[str, Expr, str]]) -> list[Stmt]:
        """Return statements that set carried values, all as they were before."""
        targets = {name for name, _, _ in moves}
        first: list[Stmt] = []
        last: list[Stmt] = []
        for name, value, dtype in moves:
            if value == Var(dtype, name):
                continue
            if variables(value) & (targets - {name}):
                first.append(Let(f"{name}__next", value))
                value = Var(dtype, f"{name}__next")
            last.append(Assign(name, value))
        return first + last


def _dtype(e: Expr, name: str) -> str:
    from adarray.compiler.ir.loopir import walk

    return next(x.dtype for x in walk(e) if isinstance(x, Var) and x.name == name)
