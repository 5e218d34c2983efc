"""Loops of one thread whose iterations run side by side, in strips of some lanes.

Each statement is carried out for all lanes of a strip before the next one, inside of the loops
that are inside of the strip. So a loop becomes vectors whose elements lie side by side in memory,
wherever it stands in a nest. What a lane keeps for later statements is an array with a place for
each lane. (Allen and Kennedy, *Automatic translation of FORTRAN programs to vector form*, 1987.)

What statements add to one element may be added in another order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
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
    Comment,
    Stmt,
    all_statements,
    for_,
    if_,
    inside,
    loads,
    replaced,
    sums_of,
    used,
    variables,
)
from adarray.kernels import build
from adarray.kernels.nests import Access, Loop, Nests, added, assigned, has_loop
from adarray.kernels.polyhedra import Linear
from adarray.kernels.types import FLOATS

WIDTH = 32  # lanes of a strip
_FEW = 100  # iterations of loops whose last strip counts; they have strips half as wide
_WIDTHS = (32, 40, 24, 48, 16, 28, 36, 20, 44)  # which leave no rest where they divide a loop
# The same where lanes are added up at the end of a strip.
_WIDE = (*range(128, 63, -8), *range(124, 63, -4), 56, 48, 40, 60, 52, 44, 36, 32)
_FIT = (Let, Local, Assign, Store, If, For, Comment)


@dataclass(slots=True)
class Group:
    """Statements that all lanes carry out in one loop.

    Attributes
    ----------
    vector : bool
        Whether lanes are independent in them.
    totals : list of (str, Store)
        Names of sums over lanes, and the additions to one element that they take the place of.
    """

    body: list[Stmt] = field(default_factory=list)
    vector: bool = True
    totals: list[tuple[str, Store]] = field(default_factory=list)


@dataclass(slots=True)
class Once:
    """A statement that is carried out once for all lanes."""

    stmt: Let


@dataclass(slots=True)
class Inner:
    """A loop, or a branch, that is the same for all lanes."""

    stmt: For | If
    parts: list[list[Item]]


Item = Group | Once | Inner


class Legality:
    """What one loop's iterations have in common, and whether they may run side by side."""

    def __init__(self, nests: Nests, loop: Loop) -> None:
        self.nests = nests
        self.loop = loop
        self.body = loop.node.body
        self.accesses = nests.inside(self.body)
        self.written = {a.buffer for a in self.accesses if a.writes}
        self.variant = {loop.node.var}
        self._mark(self.body)

    def _mark(self, body: Iterable[Stmt]) -> None:
        for s in body:
            if isinstance(s, Local) or (isinstance(s, Let) and not self.is_same(s.value)):
                self.variant.add(s.name)
            for part in inside(s):
                self._mark(part)

    def is_same(self, e: Expr) -> bool:
        """Whether an expression has one value for all lanes."""
        return not variables(e) & self.variant and not any(
            x.buffer in self.written for x in loads(e)
        )

    def holds(self) -> bool:
        """Whether the iterations may run side by side."""
        return self._fits(self.body) and self._sums_only() and not self._conflicts()

    def _fits(self, body: Iterable[Stmt]) -> bool:
        for s in body:
            if not isinstance(s, _FIT) or (isinstance(s, Local) and s.size is not None):
                return False
            if isinstance(s, For) and not (self.is_same(s.start) and self.is_same(s.stop)):
                return False
            if isinstance(s, If) and has_loop(s) and not self.is_same(s.condition):
                return False
            if not all(map(self._fits, inside(s))):
                return False
        return True

    def _sums_only(self) -> bool:
        sums = sums_of(self.loop.node)
        return all(sums.get(n) in FLOATS for n in assigned(self.body))

    def _conflicts(self) -> bool:
        by_buffer: dict[str, list[Access]] = {}
        for a in self.accesses:
            by_buffer.setdefault(a.buffer, []).append(a)
        for found in by_buffer.values():
            if not any(a.writes for a in found):
                continue
            for k, a in enumerate(found):
                for b in found[k:]:
                    if (a.writes or b.writes) and not (a.sums and b.sums) and self._clash(a, b):
                        return True
        return False

    def _clash(self, a: Access, b: Access) -> bool:
        """Whether `b`, not before `a` in the text, may not wait until all lanes have come to it."""
        depth = len(self.loop.outer) + 1
        together = a.loops[depth : depth + 1] == b.loops[depth : depth + 1] != ()
        if self.nests.meet_later(b, a, self.loop):
            return True
        return (together or a is b) and self.nests.meet_later(a, b, self.loop)

    def apart(self, s: Stmt, t: Stmt) -> bool:
        """Whether two statements do not touch the same elements in different lanes."""
        here, there = self.nests.inside((s,)), self.nests.inside((t,))
        return not any(
            (a.writes or b.writes)
            and (self.nests.meet(a, b, self.loop) or self.nests.meet(b, a, self.loop))
            for a in here for b in there
        )  # fmt: skip


class Strips:
    """Writes one loop in strips.

    Parameters
    ----------
    legality : Legality
        Of a loop for which it holds.
    """

    def __init__(self, legality: Legality) -> None:
        self.legality = legality
        self.loop = legality.loop.node
        self.declared = {
            s.name: s for s in all_statements(self.loop.body) if isinstance(s, (Let, Local))
        }
        self.again = self._again()
        self._totals = 0
        self.items = self._items(self.loop.body)
        self.kept = self._kept()
        self.width, self.even = self._width()
        strides = [a.stride(legality.loop) or 0 for a in legality.accesses]
        # Lanes go up in memory.
        self.backwards = sum(x < 0 for x in strides) > sum(x > 0 for x in strides)

    def _width(self) -> tuple[int, bool]:
        """Return the lanes of a strip, and whether the loop is known to be so many strips."""
        loop = self.legality.loop
        trips = loop.exact
        sums = any(g.totals for g in self._groups(self.items))
        if trips is not None and trips >= WIDTH:
            for width in _WIDE if sums else _WIDTHS:
                if trips % width == 0:
                    return width, True
        if sums:
            return 3 * WIDTH, False
        if trips is None and loop.trips < _FEW:
            return max(1, WIDTH // 2), False
        return WIDTH, False

    def _again(self) -> dict[str, Let]:
        """Return integers of lanes that are computed again wherever they are read."""
        again: dict[str, Let] = {}
        variant = self.legality.variant - {self.loop.var}
        for n, s in self.declared.items():
            if not isinstance(s, Let) or n not in variant or s.value.dtype != "int64":
                continue
            if not any(True for _ in loads(s.value)) and variables(s.value) & variant <= set(again):
                again[n] = s
        return again

    def _read(self, body: Iterable[Stmt]) -> set[str]:
        """Return the names that statements read, and what they take that is computed again."""
        names = used(tuple(body))
        waiting = names & set(self.again)
        done: set[str] = set()
        while waiting:
            n = waiting.pop()
            done.add(n)
            more = variables(self.again[n].value)
            names |= more
            waiting |= (more & set(self.again)) - done
        return names

    # -- groups ------------------------------------------------------------------------------------

    def _items(self, body: Iterable[Stmt]) -> list[Item]:
        items: list[Item] = []
        for s in body:
            if isinstance(s, Comment):
                continue
            if has_loop(s):
                assert isinstance(s, (For, If))
                items.append(Inner(s, [self._items(part) for part in inside(s)]))
            elif isinstance(s, Let) and self.legality.is_same(s.value):
                # What it reads stays as it is, so that it may stand before the lanes.
                items.insert(len(items) - bool(items and isinstance(items[-1], Group)), Once(s))
            else:
                self._join(items, s)
        return items

    def _join(self, items: list[Item], s: Stmt) -> None:
        """Add a statement to the last group, or begin another one."""
        legality = self.legality
        alone = legality.apart(s, s)
        total = None if alone else self._total(s)
        last = items[-1] if items else None
        fits = (
            isinstance(last, Group)
            and last.vector
            and (alone or total is not None)
            and all(legality.apart(t, s) for t in last.body)
            and all(legality.apart(t, s) for _, t in last.totals)
        )
        if not fits:
            last = Group(vector=alone or total is not None)
            items.append(last)
        assert isinstance(last, Group)
        if total is None:
            last.body.append(s)
        else:
            assert isinstance(s, Store)
            self._totals += 1
            name = f"{s.buffer}__lanes{self._totals}"
            last.totals.append((name, s))
            last.body.append(Assign(name, build.add(Var(total.dtype, name), total)))

    def _total(self, s: Stmt) -> Expr | None:
        """Return what all lanes add to one element."""
        value = added(s)
        if value is None or not isinstance(s, Store) or not self.legality.is_same(s.index):
            return None
        return value

    def _groups(self, items: list[Item]) -> list[Group]:
        found: list[Group] = []
        for x in items:
            if isinstance(x, Group):
                found.append(x)
            elif isinstance(x, Inner):
                for part in x.parts:
                    found += self._groups(part)
        return found

    @property
    def is_simple(self) -> bool:
        """Whether the loop is one of vectors as it stands."""
        groups = self._groups(self.items)
        return (
            len(groups) == 1
            and groups[0].vector
            and not groups[0].totals
            and all(isinstance(x, (Group, Once)) for x in self.items)
        )

    @property
    def _helps(self) -> bool:
        """Whether compilers do not see by themselves that iterations are independent."""
        if assigned(self.loop.body):
            return True
        indices: dict[str, set[Linear | None]] = {}
        for a in self.legality.accesses:
            indices.setdefault(a.buffer, set()).add(a.index)
        return any(len(indices[b]) > 1 for b in self.legality.written)

    def _kept(self) -> set[str]:
        """Return the variables that lanes keep from one group to another."""
        homes: dict[str, set[int]] = {}
        for k, g in enumerate(self._groups(self.items)):
            for s in all_statements(tuple(g.body)):
                if isinstance(s, (Let, Local, Assign)):
                    homes.setdefault(s.name, set()).add(k)
            for name in self._read(g.body):
                homes.setdefault(name, set()).add(k)
        names = self.legality.variant & set(self.declared)
        return {n for n in names if len(homes.get(n, ())) > 1 and n not in self.again}

    # -- text --------------------------------------------------------------------------------------

    def written(self, number: int) -> list[Stmt]:
        """Return statements that do what the loop does."""
        loop = self.loop
        if self.is_simple:
            kind = "vector" if self._helps else loop.kind
            return [for_(loop.var, loop.start, loop.stop, loop.body, kind)]
        v = loop.var
        count = build.subtract(loop.stop, loop.start)
        whole = Let(f"{v}__strips", Apply("int64", "quotient", (
            Apply("int64", "maximum", (count, build.index(0))), build.index(self.width),
        )))  # fmt: skip
        strips = Var("int64", whole.name)
        strip = Var("int64", f"{v}__strip")
        base = build.add(loop.start, build.multiply(strip, build.index(self.width)))
        done = build.multiply(strips, build.index(self.width))
        rest = Let(f"{v}__from", build.add(loop.start, done))
        start = Var("int64", rest.name)
        out: list[Stmt] = [whole]
        out.append(for_(strip.name, build.index(0), strips, self._strip(
            "__s", base, build.index(self.width), number)))  # fmt: skip
        if self.even:
            return out
        out.append(rest)
        lanes = build.subtract(loop.stop, start)
        tail = self._strip("__e", start, lanes, number)
        out.append(if_(build.compare("less", start, loop.stop), tail))
        return out

    def _strip(self, suffix: str, base: Expr, lanes: Expr, number: int) -> list[Stmt]:
        """Return the statements of one strip; names get a suffix."""
        writer = _StripWriter(self, suffix, lanes, number)
        arrays: list[Stmt] = [
            Local(writer.array(n), _dtype(self.declared[n]), build.index(self.width))
            for n in sorted(self.kept)
        ]
        return [Let(writer.first.name, base), *arrays, *writer.items(self.items)]


def _dtype(s: Let | Local) -> str:
    return s.value.dtype if isinstance(s, Let) else s.dtype


class _StripWriter:
    """Writes the statements of a strip."""

    def __init__(self, strips: Strips, suffix: str, lanes: Expr, number: int) -> None:
        self.strips = strips
        self.suffix = suffix
        self.lanes = lanes
        self.number = number
        self.first = Var("int64", f"{strips.loop.var}{suffix}_0")
        self.count = 0
        self.totals = 0
        self.names: dict[str, Expr] = {}

    def array(self, name: str) -> str:
        """Return the array in which lanes keep a variable."""
        return f"{name}{self.suffix}_all"

    def _new(self, name: str) -> str:
        return f"{name}{self.suffix}"

    def items(self, items: list[Item]) -> list[Stmt]:
        """Return the statements of items."""
        out: list[Stmt] = []
        for x in items:
            if isinstance(x, Once):
                value = replaced(x.stmt.value, self.names)
                name = self._new(x.stmt.name)
                self.names[x.stmt.name] = Var(value.dtype, name)
                out.append(Let(name, value))
            elif isinstance(x, Group):
                out += self._group(x)
            elif isinstance(x.stmt, For):
                s = x.stmt
                start, stop = replaced(s.start, self.names), replaced(s.stop, self.names)
                self.names[s.var] = Var("int64", self._new(s.var))
                out.append(for_(self._new(s.var), start, stop, self.items(x.parts[0])))
            else:
                condition = replaced(x.stmt.condition, self.names)
                out.append(if_(condition, *map(self.items, x.parts)))
        return out

    def _group(self, g: Group) -> list[Stmt]:
        """Return the loop over lanes of a group, with the sums over them."""
        self.count += 1
        lane = Var("int64", f"{self.strips.loop.var}{self.suffix}_l{self.count}")
        by = dict(self.names)
        v = self.strips.loop.var
        if self.strips.backwards:
            at = build.subtract(build.subtract(self.lanes, build.index(1)), lane)
            by[v] = build.add(self.first, at)
        else:
            by[v] = build.add(self.first, lane)
        for n in self.strips.kept:
            dtype = _dtype(self.strips.declared[n])
            by[n] = Load(dtype, self.array(n), lane)
        before: list[Stmt] = []
        behind: list[Stmt] = []
        for name, s in g.totals:
            self.totals += 1
            own = Var(s.value.dtype, f"{s.buffer}{self.suffix}_t{self.number}_{self.totals}")
            by[name] = own
            before.append(Local(own.name, own.dtype, None, build.const(0, own.dtype)))
            index = replaced(s.index, by)
            old = Load(own.dtype, s.buffer, index)
            behind.append(Store(s.buffer, index, build.add(old, own)))
        body = self._needed(g, by)
        body += self._body(tuple(g.body), by, lane)
        kind = "vector" if g.vector else "serial"
        loop = for_(lane.name, build.index(0), self.lanes, body, kind)
        return [*before, loop, *behind]

    def _needed(self, g: Group, by: dict[str, Expr]) -> list[Stmt]:
        """Return the integers of a lane that a group reads, computed again."""
        again = self.strips.again
        own = {s.name for s in all_statements(tuple(g.body)) if isinstance(s, Let)}
        names = self.strips._read(g.body) - own
        out: list[Stmt] = []
        for n, s in again.items():
            if n in names:
                value = replaced(s.value, by)
                name = f"{self._new(n)}_g{self.count}"
                by[n] = Var(value.dtype, name)
                out.append(Let(name, value))
        return out

    def _body(self, body: tuple[Stmt, ...], by: dict[str, Expr], lane: Var) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            out += self._one(s, by, lane)
        return out

    def _one(self, s: Stmt, by: dict[str, Expr], lane: Var) -> list[Stmt]:
        kept = self.strips.kept
        if isinstance(s, (Let, Local)):
            if isinstance(s, Let):
                value = replaced(s.value, by)
            else:
                value = build.const(0, s.dtype) if s.init is None else replaced(s.init, by)
            if s.name in kept:
                return [Store(self.array(s.name), lane, value)]
            name = f"{self._new(s.name)}_g{self.count}"
            by[s.name] = Var(value.dtype, name)
            if isinstance(s, Let):
                return [Let(name, value)]
            return [Local(name, s.dtype, None, value)]
        if isinstance(s, Assign):
            value = replaced(s.value, by)
            if s.name in kept:
                return [Store(self.array(s.name), lane, value)]
            target = by.get(s.name)
            return [Assign(target.name if isinstance(target, Var) else s.name, value)]
        if isinstance(s, Store):
            return [Store(s.buffer, replaced(s.index, by), replaced(s.value, by))]
        if isinstance(s, If):
            condition = replaced(s.condition, by)
            return [if_(condition, self._body(s.body, dict(by), lane),
                        self._body(s.orelse, dict(by), lane))]  # fmt: skip
        assert isinstance(s, Comment)
        return [s]
