"""Adjoints of what the threads of a warp exchange.

A shuffle gives each thread the value of one other. Its adjoint adds, for each thread, the
derivatives of all threads that got its value. Where the choice is a shift, a permutation or one
thread for all, that is again a shuffle, or a sum over the warp; otherwise each thread reads from
all others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from adarray.compiler.ir.loopir import Apply, Assign, Const, Expr, Let, Local, Var
from adarray.compiler.ir.threads import BLOCK, SIZES, THREAD, Stmt, WarpOp, for_
from adarray.kernels import build
from adarray.kernels.ssa import Carried, Def, Phi, Read, SsaLoop, SsaProgram, Write

_SHARED_INDICES = frozenset((*BLOCK, *SIZES))
_ZERO = build.const(0, "int32")
_OPPOSITE = {"up": "down", "down": "up"}


class SameForWarp:
    """Finds what all threads of a warp have in common.

    Parameters
    ----------
    program : SsaProgram
    indices : collection of str, optional
        Indices in which the threads differ.
    """

    def __init__(self, program: SsaProgram, indices: Collection[str] = THREAD) -> None:
        self.program = program
        self.indices = indices
        self.names: dict[str, bool] = {}
        self.written = {n.buffer for n in program.nodes if isinstance(n, Write)}

    def name(self, name: str) -> bool:
        """Whether a value is the same for them."""
        if name in _SHARED_INDICES or name in THREAD:
            return name not in self.indices
        if name not in self.names:
            self.names[name] = True  # in a circle of carried values, the others decide
            self.names[name] = self._defined(name)
        return self.names[name]

    def _defined(self, name: str) -> bool:
        v = self.program.values.get(name)
        if v is None:
            return True  # a parameter
        if isinstance(v, Def):
            return self.expr(v.value)
        if isinstance(v, Read):
            return v.buffer not in self.written and self.expr(v.index)
        if isinstance(v, Carried):
            return self.expr(v.first) and self.expr(v.next) and self._loop(v.loop)
        if isinstance(v, Phi):
            return all(map(self.expr, (v.then, v.orelse, v.branch.condition)))
        return isinstance(v, SsaLoop) and self._loop(v)

    def _loop(self, loop: SsaLoop) -> bool:
        if loop.condition is not None and not self.name(loop.condition.name):
            return False
        return self.expr(loop.start) and self.expr(loop.stop)

    def expr(self, e: Expr) -> bool:
        """Whether an expression is the same for them."""
        if isinstance(e, Var):
            return self.name(e.name)
        return isinstance(e, Const) or (isinstance(e, Apply) and all(map(self.expr, e.args)))


def _integer(name: str, a: Expr, b: Expr | int) -> Expr:
    return build.call(name, "int32", a, build.const(b, "int32") if isinstance(b, int) else b)


_ME, _COUNT = Var("int32", "thread__number"), Var("int32", "thread__count")


def thread_numbers() -> list[Stmt]:
    """Return statements that name the number of a thread in its block, and how many there are."""
    at = {n: build.cast(Var("uint32", n), "int32") for n in (*THREAD, *SIZES)}
    e = at["threadIdx.z"]
    for axis in "yx":
        e = build.add(build.multiply(e, at[f"blockDim.{axis}"]), at[f"threadIdx.{axis}"])
    x, y, z = (at[f"blockDim.{a}"] for a in "xyz")
    return [
        Let(_ME.name, e),
        Let(_COUNT.name, build.multiply(build.multiply(x, y), z)),
    ]


class WarpAdjoint:
    """Writes the adjoint of one shuffle.

    Parameters
    ----------
    op : WarpOp
        The shuffle; its operands have the names of the reverse sweep.
    g : Expr
        The derivative by what it names.
    label : str
        What names begin with.
    """

    def __init__(self, op: WarpOp, g: Expr, label: str) -> None:
        self.op = op
        self.g = g
        self.label = label
        self.out: list[Stmt] = []
        self.me: Expr = _ME
        self.place = _integer("bitwise_and", self.me, op.width - 1)  # in its part of the warp
        self.count: Expr = _COUNT

    def _named(self, what: str, value: Expr) -> Expr:
        self.out.append(Let(f"{self.label}_{what}", value))
        return Var(value.dtype, f"{self.label}_{what}")

    def _shuffle(self, what: str, kind: str, value: Expr, lane: Expr) -> Expr:
        name = f"{self.label}_{what}"
        self.out.append(replace(self.op, name=name, kind=kind, value=value, lane=lane))
        return Var(value.dtype, name)

    def derivative(self, same: bool) -> Expr:
        """Return the derivative by the value that is exchanged, after statements in `out`.

        `same` says that all threads of a warp name the same lane or distance.
        """
        if not same or (self.op.kind == "xor" and self.op.width != 32):
            return self._from_all()
        if self.op.kind == "idx":
            return self._total()
        return self._permuted() if self.op.kind == "xor" else self._shifted()

    def _when(self, condition: Expr, value: Expr) -> Expr:
        return build.where(condition, value, build.const(0, value.dtype))

    def _shifted(self) -> Expr:
        """Return what comes back from a shift: threads that reach out of range keep their own."""
        op, by = self.op, self.op.lane
        other = self._shuffle("other", _OPPOSITE[op.kind], self.g, by)
        width = build.const(op.width, "int32")
        inside = build.compare("less", _integer("add", self.place, by), width)
        enough = build.compare("greater_equal", self.place, by)
        if op.kind == "down":
            moved, own = enough, build.logical_not(inside)
        else:
            there = build.compare("less", _integer("add", self.me, by), self.count)
            moved, own = build.both(inside, there), build.logical_not(enough)
        return build.add(self._when(moved, other), self._when(own, self.g))

    def _permuted(self) -> Expr:
        """Return what comes back from pairs that swap their values."""
        by = _integer("bitwise_and", self.op.lane, 31)
        other = self._shuffle("other", "xor", self.g, by)
        partner = _integer("bitwise_xor", self.me, by)
        return self._when(build.compare("less", partner, self.count), other)

    def _total(self) -> Expr:
        """Return what comes back to the one thread whose value all got: a sum over the warp."""
        total = self.g
        step = self.op.width // 2
        while step:
            by = build.const(step, "int32")
            other = self._shuffle(f"sum{step}", "down", total, by)
            width = build.const(self.op.width, "int32")
            inside = build.compare("less", _integer("add", self.place, by), width)
            there = build.compare("less", _integer("add", self.me, by), self.count)
            added = self._when(build.both(inside, there), other)
            total = self._named(f"total{step}", build.add(total, added))
            step //= 2
        total = self._shuffle("total", "idx", total, build.const(0, "int32"))
        chosen = _integer("bitwise_and", self.op.lane, self.op.width - 1)
        return self._when(build.compare("equal", self.place, chosen), total)

    def _from_all(self) -> Expr:
        """Return the sum over all threads of the part that got this one's value."""
        op = self.op
        source = self._named("source", self._source())
        total = Var(self.g.dtype, f"{self.label}_total")
        self.out.append(Local(total.name, total.dtype, None, build.const(0, total.dtype)))
        before, self.out = self.out, []
        k = Var("int64", f"{self.label}_k")
        lane = build.cast(k, "int32")
        theirs = self._shuffle("theirs", "idx", source, lane)
        share = self._shuffle("share", "idx", self.g, lane)
        first = _integer("subtract", self.me, self.place)
        there = build.compare("less", _integer("add", first, lane), self.count)
        mine = build.both(there, build.compare("equal", theirs, self.place))
        self.out.append(Assign(total.name, build.add(total, self._when(mine, share))))
        self.out = [*before, for_(k.name, build.index(0), build.index(op.width), self.out)]
        return total

    def _source(self) -> Expr:
        """Return the place of the thread whose value one gets."""
        op, by = self.op, self.op.lane
        if op.kind == "idx":
            return _integer("bitwise_and", by, op.width - 1)
        if op.kind == "up":
            at = _integer("subtract", self.place, by)
            return build.where(build.compare("greater_equal", at, _ZERO), at, self.place)
        width = build.const(op.width, "int32")
        at = _integer("add" if op.kind == "down" else "bitwise_xor", self.place, by)
        return build.where(build.compare("less", at, width), at, self.place)
