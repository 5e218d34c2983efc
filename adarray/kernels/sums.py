"""Loops that only add up: their iterations may be taken in any order in the reverse sweep.

A carried value that iterations do nothing with but add to it has one derivative for all of them.
Where all active carried values are such, and nothing is overwritten, the reverse sweep goes through
the iterations as the forward sweep does: memory is read in order, and compilers make vector code.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from adarray.compiler.ir.loopir import Apply, Expr, Var, walk
from adarray.compiler.ir.threads import operands
from adarray.kernels import build
from adarray.kernels.ssa import (
    Branch,
    Carried,
    Def,
    Exchange,
    Node,
    Phi,
    Read,
    SsaLoop,
    SsaProgram,
    Wait,
    Write,
    inner,
)


@dataclass(frozen=True, slots=True)
class Summand:
    """What is added to a carried value, or subtracted."""

    carried: str
    value: Expr
    plus: bool


def uses(program: SsaProgram) -> Counter[str]:
    """Return how many times each value is read."""
    counts: Counter[str] = Counter()

    def count(e: Expr) -> None:
        counts.update(x.name for x in walk(e) if isinstance(x, Var))

    for n in program.nodes:
        if isinstance(n, Def):
            count(n.value)
        elif isinstance(n, Read):
            count(n.index)
        elif isinstance(n, Exchange):
            for e in operands(n.op):
                count(e)
        elif isinstance(n, Write):
            count(n.index)
            count(n.value)
        elif isinstance(n, Branch):
            count(n.condition)
            for p in n.phis:
                count(p.then)
                count(p.orelse)
        elif isinstance(n, SsaLoop):
            count(n.start)
            count(n.stop)
            for c in n.carried:
                count(c.first)
                count(c.next)
    return counts


def terms(program: SsaProgram, c: Carried, counted: Counter[str]) -> dict[str, Summand] | None:
    """Return what a loop adds to a carried value, by the sums; None where it does more."""
    summands: dict[str, Summand] = {}
    met = 0  # how often the value itself stands in the sums

    def chain(e: Expr) -> bool:
        nonlocal met
        if not isinstance(e, Var):
            return False
        if e.name == c.name:
            met += 1
            return True
        v = program.values.get(e.name)
        if counted[e.name] != 1 or v is None:
            return False
        if isinstance(v, Phi):
            return v.branch.home is c.loop and chain(v.then) and chain(v.orelse)
        if not isinstance(v, Def) or v.home is not c.loop or not isinstance(v.value, Apply):
            return False
        if v.value.name not in ("add", "subtract"):
            return False
        a, b = v.value.args
        plus = v.value.name == "add"
        before = met
        if chain(a):
            summands[e.name] = Summand(c.name, b, plus)
            return True
        met = before
        if plus and chain(b):
            summands[e.name] = Summand(c.name, a, True)
            return True
        return False

    return summands if chain(c.next) and met == counted[c.name] and summands else None


def without(e: Expr, name: str) -> Expr | None:
    """Return what a sum adds to a value; None where it is no sum with that value in it."""
    if not isinstance(e, Apply) or e.name not in ("add", "subtract"):
        return None
    a, b = e.args
    if isinstance(a, Var) and a.name == name:
        return b if e.name == "add" else build.negative(b)
    if isinstance(b, Var) and b.name == name and e.name == "add":
        return a
    rest = without(a, name)
    return None if rest is None else Apply(e.dtype, e.name, (rest, b))


def quiet(loop: SsaLoop, memory: set[str]) -> bool:
    """Whether a loop neither waits nor writes one of the memories."""
    stack: list[Node] = [loop]
    while stack:
        n = stack.pop()
        if isinstance(n, (Wait, Exchange)) or (isinstance(n, Write) and n.buffer in memory):
            return False
        for part in inner(n):
            stack += part
    return True
