"""Loops of one thread as loop IR: which of their iterations touch the same elements.

Indices and bounds are sums of loop variables once a launch's integers are known. What is no such
sum may be any element. (Pugh, *The Omega test*, 1991.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

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
    Store,
    Var,
)
from adarray.compiler.ir.threads import (
    Atomic,
    Comment,
    Stmt,
    While,
    all_statements,
    for_,
    if_,
    inside,
    loads,
    operands,
    reads,
    variables,
)
from adarray.kernels.polyhedra import Constraints, Linear, Symbol, bounds
from adarray.kernels.types import FLOATS

_SIGNED = ("int8", "int16", "int32", "int64")
_SYSTEMS = 600  # that are looked at for one kernel


@dataclass(eq=False, slots=True)
class Loop:
    """A loop: the least and the greatest of its variable are among sums; and how long it is."""

    node: For
    outer: tuple[Loop, ...]
    low: list[Linear]
    high: list[Linear]  # what the variable stays below
    trips: float

    @property
    def symbol(self) -> Symbol:
        """The variable in sums."""
        return (self.node.var, "")

    @property
    def exact(self) -> int | None:
        """How many iterations it has, if that is always the same and known."""
        if len(self.low) != 1 or len(self.high) != 1:
            return None
        count = self.high[0].plus(self.low[0], -1)
        return None if count.terms else max(0, count.constant)


@dataclass(eq=False, slots=True)
class Access:
    """An element that a statement reads or writes; `index` is None where it may be any.

    `sums` says that it is one of an addition to the element, whose old value nothing else sees.
    """

    buffer: str
    index: Linear | None
    writes: bool
    sums: bool
    order: int
    loops: tuple[Loop, ...]

    def stride(self, loop: Loop) -> int | None:
        """Return how far apart the elements of two iterations are; None if that is not known."""
        return None if self.index is None else self.index.factor(loop.symbol)


def added(s: Stmt) -> Expr | None:
    """Return what a statement adds to an element of floats, if it does nothing else."""
    if not isinstance(s, Store) or s.value.dtype not in FLOATS:
        return None
    e = s.value
    if not isinstance(e, Apply) or e.name not in ("add", "subtract"):
        return None
    first, second = e.args
    for old, rest in ((first, second), (second, first)):
        own = [x for x in loads(old) if x.buffer == s.buffer and x.index == s.index]
        if own and old == own[0] and not any(x.buffer == s.buffer for x in loads(rest)):
            if e.name == "add":
                return rest
            return Apply(e.dtype, "negative", (rest,)) if old is first else None
    return None


def summed(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Return equal statements, in which what is added to an element is one statement with its read.

    A read moves to the sum that alone takes it, where nothing writes its memory in between.
    """
    counts = Counter(e.name for s in all_statements(body) for e in reads(s) if isinstance(e, Var))
    return tuple(_summed(body, counts))


def _summed(body: tuple[Stmt, ...], counts: Counter[str]) -> list[Stmt]:
    out: list[Stmt] = []
    reading: dict[str, tuple[int, Load]] = {}  # reads that may move here, and where they stand
    for s in body:
        if isinstance(s, For):
            s = for_(s.var, s.start, s.stop, _summed(s.body, counts), s.kind)
        elif isinstance(s, If):
            s = if_(s.condition, _summed(s.body, counts), _summed(s.orelse, counts))
        elif isinstance(s, While):
            s = While(s.condition, tuple(_summed(s.body, counts)), s.line, s.any_thread)
        elif isinstance(s, Store) and isinstance(s.value, Apply) and s.value.dtype in FLOATS:
            first = s.value.args[0]
            old = reading.get(first.name) if isinstance(first, Var) else None
            plus = s.value.name in ("add", "subtract")
            if old is not None and plus and (old[1].buffer, old[1].index) == (s.buffer, s.index):
                out[old[0]] = Comment("")
                value = Apply(s.value.dtype, s.value.name, (old[1], s.value.args[1]))
                s = Store(s.buffer, s.index, value)
        changed = {t.buffer for t in all_statements((s,)) if isinstance(t, (Store, Atomic))}
        changed |= {t.name for t in all_statements((s,)) if isinstance(t, Assign)}
        for n, (_, x) in list(reading.items()):
            if x.buffer in changed or variables(x.index) & changed:
                del reading[n]
        if (
            isinstance(s, Let)
            and isinstance(s.value, Load)
            and counts[s.name] == 1
            and not any(True for _ in loads(s.value.index))
        ):
            reading[s.name] = len(out), s.value
        out.append(s)
    return [s for s in out if s != Comment("")]


class Nests:
    """The loops and accesses of a kernel's statements.

    Parameters
    ----------
    body : tuple of Stmt
        Names are declared once.
    integers : mapping of str to int
        Parameters that are known.

    Attributes
    ----------
    loops : dict
        By the identities of their statements, which the caller keeps.
    accesses : dict
        Of a statement itself, by its identity.
    """

    def __init__(self, body: tuple[Stmt, ...], integers: Mapping[str, int]) -> None:
        self.integers = integers
        self.loops: dict[int, Loop] = {}
        self.accesses: dict[int, list[Access]] = {}
        self._values: dict[str, Linear | None] = {}
        self._lets: dict[str, Expr] = {}
        self._count = 0
        self._left = _SYSTEMS
        self._known: dict[tuple[int, int, int, int], bool] = {}
        self._about: dict[str, float] = {}
        self._read(body, ())

    def _read(self, body: Iterable[Stmt], loops: tuple[Loop, ...]) -> None:
        for s in body:
            self._note(s, loops)
            if isinstance(s, Let):
                self._lets[s.name] = s.value
                if s.value.dtype in _SIGNED:
                    self._values[s.name] = self.linear(s.value)
            elif isinstance(s, For):
                low, high = self._parts(s.start, "maximum"), self._parts(s.stop, "minimum")
                loop = Loop(s, loops, low, high, 1.0)
                first = max(map(self._estimate, low), default=0.0)
                last = min(map(self._estimate, high), default=first + 32.0)
                loop.trips = max(last - first, 0.0)
                self._about[s.var] = first + 0.5 * loop.trips
                self._values[s.var] = Linear.of({loop.symbol: 1}, 0)
                self.loops[id(s)] = loop
                self._read(s.body, (*loops, loop))
            else:
                for part in inside(s):
                    self._read(part, loops)

    def _note(self, s: Stmt, loops: tuple[Loop, ...]) -> None:
        self._count += 1
        sums = added(s) is not None
        found: list[Access] = []
        for e in operands(s):
            for x in loads(e):
                own = sums and isinstance(s, Store) and x.buffer == s.buffer
                index = self.linear(x.index)
                found.append(Access(x.buffer, index, False, own, self._count, loops))
        if isinstance(s, Store):
            self._count += 1
            index = self.linear(s.index)
            found.append(Access(s.buffer, index, True, sums, self._count, loops))
        if found:
            self.accesses[id(s)] = found

    def inside(self, body: Iterable[Stmt]) -> list[Access]:
        """Return all accesses of statements."""
        found = (self.accesses.get(id(s), ()) for s in all_statements(tuple(body)))
        return [a for part in found for a in part]

    # -- sums of loop variables --------------------------------------------------------------------

    def linear(self, e: Expr) -> Linear | None:
        """Return an integer as a sum of loop variables; None where it is none."""
        if isinstance(e, Const):
            return Linear((), int(e.value)) if e.dtype not in FLOATS else None
        if isinstance(e, Var):
            if e.name in self.integers:
                return Linear((), self.integers[e.name])
            return self._values.get(e.name)
        if not isinstance(e, Apply) or e.dtype not in _SIGNED:
            return None
        args = [self.linear(a) for a in e.args]
        first, second = args[0], args[-1]
        if first is None or second is None:
            return None
        if e.name == "cast":
            return first if e.args[0].dtype in _SIGNED else None
        if e.name == "negative":
            return first.scaled(-1)
        if e.name in ("add", "subtract"):
            return first.plus(second, 1 if e.name == "add" else -1)
        if e.name == "multiply" and not (first.terms and second.terms):
            return first.scaled(second.constant) if first.terms else second.scaled(first.constant)
        if first.terms or second.terms or len(args) != 2:
            return None
        if e.name in ("minimum", "maximum"):
            choose = min if e.name == "minimum" else max
            return Linear((), choose(first.constant, second.constant))
        if e.name == "quotient" and first.constant >= 0 and second.constant > 0:
            return Linear((), first.constant // second.constant)
        return None

    def _parts(self, e: Expr, name: str) -> list[Linear]:
        """Return the sums that a bound is the greatest or the least of, if it is one."""
        if isinstance(e, Var):
            e = self._lets.get(e.name, e)
        whole = self.linear(e)
        if whole is not None:
            return [whole]
        if isinstance(e, Apply) and e.name == name:
            return [p for a in e.args for p in self._parts(a, name)]
        return []

    def _estimate(self, e: Linear) -> float:
        return e.constant + sum(c * self._about.get(str(s[0]), 0.0) for s, c in e.terms)

    # -- elements that iterations share ------------------------------------------------------------

    def meet(self, a: Access, b: Access, loop: Loop) -> bool:
        """Whether `a` may touch an element that `b` touches in a later iteration of a loop.

        All other loops that are around both of them are in one iteration.
        """
        return self._meet(a, b, loop, False)

    def meet_later(self, a: Access, b: Access, loop: Loop) -> bool:
        """Whether that may be so, whatever iterations the loops inside of `loop` are in."""
        return self._meet(a, b, loop, True)

    def meet_beyond(self, a: Access, b: Access, loop: Loop, distance: int) -> bool:
        """Whether that may be so in an iteration more than `distance` later."""
        return self._meet(a, b, loop, True, distance)

    def bounds(self, a: Access) -> tuple[int | None, int | None]:
        """Return the least and the greatest element of an access; None where it is not known."""
        if a.index is None:
            return None, None
        positive: list[Linear] = []
        for x in a.loops:
            at = Linear.of({x.symbol: 1}, 0)
            positive += [at.plus(e, -1) for e in x.low]
            positive += [e.plus(at, -1).plus(Linear((), -1)) for e in x.high]
        return bounds(a.index, positive)

    def _meet(self, a: Access, b: Access, loop: Loop, free: bool, distance: int = 0) -> bool:
        if a.buffer != b.buffer:
            return False
        if a.index is None or b.index is None:
            return True
        key = (id(a), id(b), 2 * id(loop) + free, distance)
        if key in self._known:
            return self._known[key]
        if self._left <= 0:
            return True
        common = [x for x in a.loops if x in b.loops and x is not loop]
        if free:
            common = [x for x in common if x in loop.outer]
        names = {x.node.var for x in common}

        system = self._touching(a, b, names)
        var = loop.node.var
        system.positive.append(Linear.of({(var, "b"): 1, (var, "a"): -1}, -1 - distance))
        self._left -= 1
        result = self._known[key] = not system.empty()
        return result

    def _touching(self, a: Access, b: Access, names: Set[str]) -> Constraints:
        """Return when two accesses touch one element: in one iteration of some loops.

        Variables of others are tagged "a" and "b".
        """
        assert a.index is not None
        assert b.index is not None

        def tagged(e: Linear, tag: str) -> Linear:
            terms: dict[Symbol, int] = {(n, "" if n in names else tag): c for (n, _), c in e.terms}
            return Linear.of(terms, e.constant)

        system = Constraints([tagged(a.index, "a").plus(tagged(b.index, "b"), -1)])
        for access, tag in ((a, "a"), (b, "b")):
            for x in access.loops:
                at = tagged(Linear.of({x.symbol: 1}, 0), tag)
                system.positive += [at.plus(tagged(e, tag), -1) for e in x.low]
                below = [tagged(e, tag).plus(at, -1) for e in x.high]
                system.positive += [e.plus(Linear((), -1)) for e in below]
        return system

    def overtakes(self, a: Access, b: Access, outer: Loop, inner: Loop, lag: int) -> bool:
        """Whether `a` may touch what `b` does in a later iteration of `outer`, too far ahead.

        That is more than `lag` iterations of `inner` for each one of `outer`.
        """
        if a.buffer != b.buffer:
            return False
        if a.index is None or b.index is None or self._left <= 0:
            return True
        self._left -= 1
        system = self._touching(a, b, {x.node.var for x in outer.outer})
        t, i = outer.node.var, inner.node.var
        system.positive.append(Linear.of({(t, "b"): 1, (t, "a"): -1}, -1))
        system.positive.append(
            Linear.of({(i, "a"): 1, (i, "b"): -1, (t, "b"): -lag, (t, "a"): lag}, -1)
        )
        return not system.empty()


def assigned(body: Iterable[Stmt]) -> set[str]:
    """Return the variables that statements set and do not declare."""
    statements = list(all_statements(tuple(body)))
    own = {s.name for s in statements if isinstance(s, (Let, Local))}
    return {s.name for s in statements if isinstance(s, Assign)} - own


def is_plain(body: Iterable[Stmt]) -> bool:
    """Whether statements have neither loops nor branches around loops."""
    return not any(isinstance(s, For) for s in all_statements(tuple(body)))


def has_loop(s: Stmt) -> bool:
    """Whether a loop is a statement, or is in it."""
    return isinstance(s, For) or (isinstance(s, If) and not is_plain((s,)))
