"""Which accesses of a kernel of one thread may touch the same element, given its integers.

Indices and bounds that are linear in the variables of loops are compared exactly; integers that are
read from memory are variables of which nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from adarray.compiler.ir.loopir import Apply, Const, Expr, Var
from adarray.compiler.ir.threads import BLOCK, SIZES, THREAD
from adarray.kernels.geometry import Launch
from adarray.kernels.polyhedra import Constraints, Linear, Symbol
from adarray.kernels.reload import Apart
from adarray.kernels.ssa import Def, Item, Node, Read, SsaLoop, SsaProgram, Write, inner

_CONTRARY = {"less": "greater_equal", "greater_equal": "less", "greater": "less_equal",
             "less_equal": "greater"}  # fmt: skip
_SYSTEMS = 2048  # that are looked at for one kernel
_SIGNED = ("int8", "int16", "int32", "int64")


class _Side:
    """Names the integers of one of two accesses: those of common iterations are the same."""

    def __init__(
        self, program: SsaProgram, integers: Mapping[str, int], tag: str, common: frozenset[int]
    ) -> None:
        self.program = program
        self.integers = integers
        self.tag = tag
        self.common = common

    def symbol(self, name: str, loop: SsaLoop | None) -> Symbol:
        """Return the variable for a value that is made in iterations of a loop."""
        return (name, "" if loop is None or loop.number in self.common else self.tag)

    def linear(self, e: Expr) -> Linear | None:
        """Return an expression as a sum; None where it is none."""
        if isinstance(e, Const):
            return Linear((), int(e.value)) if e.dtype not in ("float32", "float64") else None
        if isinstance(e, Var):
            return self._of_name(e)
        if not isinstance(e, Apply):
            return None
        if e.name == "cast":
            known = e.args[0].dtype in _SIGNED or isinstance(e.args[0], Var)
            return self.linear(e.args[0]) if known and e.dtype in _SIGNED else None
        if e.dtype not in _SIGNED:
            return None
        args = [self.linear(a) for a in e.args]
        first = args[0]
        if first is None:
            return None
        if e.name == "negative":
            return first.scaled(-1)
        second = args[-1]
        if second is None or len(args) != 2:
            return None
        if e.name in ("add", "subtract"):
            return first.plus(second, 1 if e.name == "add" else -1)
        if e.name == "multiply" and not second.terms:
            return first.scaled(second.constant)
        if e.name == "multiply" and not first.terms:
            return second.scaled(first.constant)
        return None

    def _of_name(self, e: Var) -> Linear | None:
        if e.name in self.integers:
            return Linear((), self.integers[e.name])
        v = self.program.values.get(e.name)
        if isinstance(v, Def):
            value = self.linear(v.value)
            if value is not None:
                return value
        if e.dtype not in _SIGNED:
            return None
        home = self.program.home(e.name) if v is not None else None
        return Linear.of({self.symbol(e.name, home): 1}, 0)

    # -- what holds where an access is carried out ---------------------------------------------

    def bounds(self, loops: tuple[SsaLoop, ...], out: Constraints) -> None:
        """Add the bounds of the variables of loops."""
        for loop in loops:
            if loop.var is None:
                continue
            at = Linear.of({self.symbol(loop.var, loop): 1}, 0)
            for low in self._parts(loop.start, "maximum"):
                out.positive.append(at.plus(low, -1))
            for high in self._parts(loop.stop, "minimum"):
                out.positive.append(high.plus(at, -1).plus(Linear((), -1)))

    def _parts(self, e: Expr, name: str) -> list[Linear]:
        """Return the sums that a bound is the greatest or the least of, if it is one."""
        v = self.program.values.get(e.name) if isinstance(e, Var) else None
        inside = v.value if isinstance(v, Def) else e
        if isinstance(inside, Apply) and inside.name == name:
            return [p for a in inside.args for p in self._parts(a, name)]
        whole = self.linear(e)
        return [] if whole is None else [whole]

    def conditions(self, node: Item, out: Constraints) -> None:
        """Add what the branches around a node ask for."""
        for item in (node, *node.loops):
            for b in item.branches:
                self._condition(b.condition, _within(item, b.body), out)

    def _condition(self, e: Expr, holds: bool, out: Constraints) -> None:
        v = self.program.values.get(e.name) if isinstance(e, Var) else None
        if isinstance(v, Def):
            e = v.value
        if not isinstance(e, Apply):
            return
        if e.name == "logical_not":
            self._condition(e.args[0], not holds, out)
        elif e.name == ("logical_and" if holds else "logical_or"):
            for a in e.args:
                self._condition(a, holds, out)
        elif e.name in _CONTRARY and e.args[0].dtype in _SIGNED:
            first, second = self.linear(e.args[0]), self.linear(e.args[1])
            if first is not None and second is not None:
                name = e.name if holds else _CONTRARY[e.name]
                up = name.startswith("less")
                less = second.plus(first, -1) if up else first.plus(second, -1)
                strict = name in ("less", "greater")
                out.positive.append(less.plus(Linear((), -1 if strict else 0)))
        elif e.name == "equal" and holds and e.args[0].dtype in _SIGNED:
            first, second = self.linear(e.args[0]), self.linear(e.args[1])
            if first is not None and second is not None:
                out.zero.append(first.plus(second, -1))


class KnownIndices(Apart):
    """Says which accesses may touch the same element in launches with given integers."""

    def __init__(self, program: SsaProgram, launch: Launch) -> None:
        self.program = program
        self.integers = {
            **dict(launch.integers), **dict.fromkeys((*THREAD, *BLOCK), 0),
            **dict.fromkeys(SIZES, 1),
        }  # fmt: skip
        self._known: dict[tuple[int, int, int, bool], bool] = {}

    def between(self, w: Write, r: Read | Write) -> bool:
        """Whether a write may touch what was read, or written, in an iteration of that loop."""
        return w.buffer == r.buffer and self._meet(w, r, len(r.loops), False)

    def meet(self, a: Read | Write, b: Read | Write, same: int) -> bool:
        """Whether two accesses may touch the same element, in the same iteration of some loops."""
        return a.buffer == b.buffer and self._meet(a, b, same, False)

    def collide(self, a: Read | Write, b: Read | Write) -> bool:
        """Whether two accesses may touch the same element in different iterations of their loop."""
        same = len(a.loops) - 1
        return a.buffer == b.buffer and (
            self._meet(a, b, same, True) or self._meet(b, a, same, True)
        )

    def stride(self, a: Read | Write) -> int | None:
        """Return how far apart are the elements of two iterations of a loop, if that is known."""
        side = _Side(self.program, self.integers, "", frozenset())
        index, loop = side.linear(a.index), a.home
        if index is None or loop is None or loop.var is None:
            return None
        inner = {n for n, _ in index.terms if n[0] != loop.var}
        homes = (self.program.home(n[0]) for n in inner if n[0] in self.program.values)
        return None if loop in homes else index.factor(side.symbol(loop.var, loop))

    def trips(self, loop: SsaLoop) -> int | None:
        """Return how many iterations a loop has, if that is always the same and known."""
        side = _Side(self.program, self.integers, "", frozenset())
        start, stop = side.linear(loop.start), side.linear(loop.stop)
        if start is None or stop is None:
            return None
        count = stop.plus(start, -1)
        return None if count.terms else count.constant

    def follows(self, w: Write, r: Read | Write) -> bool:
        """Whether a write may touch what was read, or written, before it."""
        if w.buffer != r.buffer:
            return False
        many = 0
        for x, y in zip(w.loops, r.loops, strict=False):
            if x is not y:
                break
            many += 1
        if w.order > r.order and self._meet(w, r, many, False):
            return True
        return any(self._meet(w, r, k, True) for k in range(many))

    def _meet(self, w: Read | Write, r: Read | Write, same: int, later: bool) -> bool:
        """Whether two accesses may touch the same element.

        The first `same` loops are in the same iteration; with `later`, the first access is in
        a later iteration of the next one.
        """
        key = (w.order, r.order, same, later)
        if key not in self._known:
            if len(self._known) >= _SYSTEMS:
                return True
            common = frozenset(x.number for x in r.loops[:same])
            a = _Side(self.program, self.integers, "w", common)
            b = _Side(self.program, self.integers, "r", common)
            here, there = a.linear(w.index), b.linear(r.index)
            if here is None or there is None:
                self._known[key] = True
                return True
            system = Constraints([here.plus(there, -1)])
            for side, node in ((a, w), (b, r)):
                side.bounds(node.loops, system)
                side.conditions(node, system)
            loop = r.loops[same] if later else None
            if loop is not None and loop.var is not None:
                after = Linear.of({a.symbol(loop.var, loop): 1, b.symbol(loop.var, loop): -1}, -1)
                system.positive.append(after)
            self._known[key] = not system.empty()
        return self._known[key]


def _within(item: Item, body: list[Node]) -> bool:
    return any(n is item or any(_within(item, part) for part in inner(n)) for n in body)
