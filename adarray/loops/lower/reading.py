"""One loop as it is read: what its iterations carry, and how they go on and end."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Const, Load, Local, Var
from adarray.compiler.ir.threads import Stmt, While, for_
from adarray.kernels import build
from adarray.loops.forms import Known
from adarray.loops.lower import names
from adarray.loops.lower.carrying import (
    ArrayGuess,
    Carried,
    CarriedArray,
    CarriedNumber,
    Carrying,
    Guess,
    Guesses,
    UnsteadyError,
)
from adarray.loops.lower.intervals import MOST_ITERATIONS, Affine
from adarray.loops.lower.kinds import INT, stored
from adarray.loops.lower.statements import RESULT, flag
from adarray.loops.lower.values import (
    Complex,
    Growing,
    Items,
    Missing,
    Number,
    Pair,
    Value,
    View,
    integer,
    number,
    parts_of,
)

if TYPE_CHECKING:
    from adarray.loops.lower.iteration import Loops


@dataclass(slots=True)
class Head:
    """How a loop begins an iteration, and when it ends.

    Attributes
    ----------
    count : Number, optional
        How many iterations there are, if none ends the loop early.
    bind : callable
        Binds what the loop assigns in each iteration, of which it gets the number.
    test : ast.expr, optional
        Holds in each iteration.
    most : Affine, optional
        What `count` is if there is an iteration at all.
    """

    node: ast.For | ast.While
    count: Number | None
    bind: Callable[[Number], None]
    test: ast.expr | None
    most: Affine | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """What the last iteration binds.

    Attributes
    ----------
    value : Value
        What it is after the loop.
    numbers : tuple of (Number, Number)
        Of variables, and of what they are set to at the end of an iteration.
    """

    value: Value
    numbers: tuple[tuple[Number, Number], ...]


class Reading:
    """One loop as it is read, by guesses of what it carries.

    Parameters
    ----------
    loops : Loops
    head : Head
    used : Uses
        Names of the body.
    """

    def __init__(self, loops: Loops, head: Head, used: names.Uses) -> None:
        self.loops = loops
        self.low = loops.low
        self.state = loops.state
        self.carrying = Carrying(loops.low)
        self.head = head
        self.used = used
        self.runs = loops.runs(head)
        self.early = names.breaks(head.node.body)
        # Operators in place bind no other array to a name.
        self.bound = [
            n for n in used.bound
            if not isinstance(self.low.names.get(n), View | Growing)
            or not isinstance(head.node, ast.While | ast.For)
            or names.is_bound_by_assignment([head.node], n)
        ]  # fmt: skip
        # Of complex numbers, their parts.
        parts = [p for n in self.bound for p in parts_of(n)]
        for group in (used.exposed, used.sure):
            group |= {p for n in used.bound if n in group for p in parts_of(n)}
        self.bound += parts
        # Of lists, how many items they have.
        for name in names.changed_lists(head.node):
            value = self.low.names.get(name)
            if isinstance(value, Growing):
                self.bound.append(value.count)
                used.exposed.add(value.count)
        # What a return sets: flags of the bodies that it leaves.
        returns = names.returns(head.node)
        self.flags = self.low.statements.going_on() if returns else {}
        self.bound += [*self.flags, *([RESULT] if returns else [])]
        broken = self.loops.broken(head.node)
        if broken in self.low.names:
            self.bound.append(broken)
            self.used.exposed.add(broken)

    def first(self) -> dict[str, Guess | ArrayGuess]:
        """Return what is carried, as it is before the loop."""
        guesses: dict[str, Guess | ArrayGuess] = {}
        for name in self.bound:
            value = self.low.names.get(name)
            if value is None or isinstance(value, Missing):
                continue
            inside = name in self.used.exposed or name not in self.used.sure
            if not inside and (self.runs or not self.low.is_live(name, self.head.node)):
                continue
            guess = self.carrying.first(value)
            if guess is not None:
                guesses[name] = guess
        return guesses

    def attempt(self, guesses: Guesses, period: int, attempt: int) -> tuple[Guesses, int]:
        """Read the loop by guesses; return what they should have been."""
        low, state, facts, head = self.low, self.state, self.state.facts, self.head
        before, fresh = dict(low.names), set(low.fresh)
        count = head.count
        if period > 1:
            if count is None or self.early:
                raise state.refusal("arrays exchange their names in a loop that may end early")
            count = state.named("pairs", self.loops.numbers.divided(count, integer(period))[0])
        most = Affine(MOST_ITERATIONS) if count is None else count.whole
        assert most is not None
        ends = [most - 1]
        if head.most is not None and period == 1:
            ends.append(head.most - 1)
        k = facts.symbol([Affine(0)], ends)
        counted = count is not None and not self.early
        index = Var("int64", state.fresh("i" if counted else "n"))
        go = None if counted else state.fresh("go")
        test = self._condition()
        if test is not None and isinstance(test.expr, Const) and not test.expr.value:
            return guesses, period
        carried = [self.carrying.declared(n, g, k) for n, g in guesses.items()]
        for name in self.bound:
            known = name in guesses or self._is_pair(before, name, guesses)
            if name in low.names and not known:
                low.names[name] = Missing(f"{name!r} may not be bound")
        for c in carried:
            low.names[c.name] = c.value if isinstance(c, CarriedNumber) else c.home
        low.names |= self.flags  # else there is no other iteration
        with state.block() as body, facts.assuming(self._holding()):
            at = number(index, INT, k)
            ended = flag(False)
            wider: Guesses = {}
            again = 1
            for q in range(period):
                turn = self.loops.numbers.plus(
                    self.loops.numbers.times(at, integer(period)), integer(q)
                )
                ended = self.loops.iteration(head, turn)
                if q == 0:
                    again = self._period(carried)
            after = low.names
            wider = self.carrying.judged(carried, after, attempt)
            for name in self.bound:
                if self._is_pair(before, name, guesses) and after.get(name) != before[name]:
                    raise UnsteadyError(f"{name!r} is a number of one type or another")
            exported = self._exported(guesses, after)
            if go is not None:
                self._go(go, index, ended)
            self.carrying.check_writes(carried, body + state.emitter.blocks[-1])
            for variable, last in (p for e in exported.values() for p in e.numbers):
                # Before what they are read from changes.
                for set_, to in ((variable.expr, last.expr), (variable.tag, last.tag)):
                    if isinstance(set_, Var) and to is not None:
                        state.assign(set_, to)
            self.carrying.passed_on(carried, after)
            if not counted and count is not None:
                state.assign(index, build.add(index, build.index(1)))
        for number_ in (p[0] for e in exported.values() for p in e.numbers):
            for v in (number_.expr, number_.tag):
                if isinstance(v, Var):
                    state.emit(Local(v.name, v.dtype))
        self._emit(count, index, go, body, test)
        low.fresh = fresh
        self._leave(before, after, carried, count, exported)
        if self.flags and self.runs and head.count is None and not names.has_break(head.node.body):
            low.names |= low.statements.left()  # by a return, since nothing else ends the loop
        if period > 1:
            self._rest(period)
        return wider, again

    def _is_pair(self, before: dict[str, Value], name: str, guesses: Guesses) -> bool:
        """Whether a name stands for a complex number whose parts are carried."""
        return isinstance(before.get(name), Pair) and all(p in guesses for p in parts_of(name))

    def _period(self, carried: Sequence[Carried]) -> int:
        """Return after how many iterations arrays have their names again; 1 if it is unknown."""
        after = self.low.names
        static = [c for c in carried if isinstance(c, CarriedArray) and not c.guess.is_new]
        homes = [c.home for c in static]
        if any(after[c.name] not in homes for c in static):
            return 1
        if len({id(h) for h in homes}) < len(homes):
            return 1
        return self.carrying.period(static, after)

    def _rest(self, period: int) -> None:
        """Read the iterations that are left over where several are written one after the other."""
        head, numbers = self.head, self.loops.numbers
        assert head.count is not None
        whole, rest = numbers.divided(head.count, integer(period))
        first = numbers.times(whole, integer(period))
        for q in range(period - 1):
            at = numbers.plus(first, integer(q))

            def iteration(at: Number = at) -> None:
                self.loops.iteration(head, at)

            test = numbers.compare("greater", rest, integer(q))
            self.low.statements.branch(test, iteration, lambda: None)

    # -- conditions --------------------------------------------------------------------------------

    def _condition(self) -> Number | None:
        if self.head.test is None:
            return None
        with self.low.testing(), self.low.expressions.binding_nothing():
            return self.low.expressions.truth(self.head.test)

    def _holding(self) -> tuple[Affine, ...]:
        """Return what holds in an iteration since the condition does."""
        with self.state.block():  # which is not written: it was evaluated before
            test = self._condition()
        return () if test is None else test.holds

    def _exported(self, guesses: Guesses, after: dict[str, Value]) -> dict[str, Exported]:
        """Return variables for what the last iteration binds and is read after the loop."""
        out: dict[str, Exported] = {}
        for name in self.bound:
            value = after.get(name)
            if name in guesses or value is None:
                continue
            live = self.runs and self.low.is_live(name, self.head.node)
            if live or name == RESULT:  # which is read only if it has been set
                exported = self._exported_value(name, value)
                if exported is not None:
                    out[name] = exported
        return out

    def _exported_value(self, name: str, value: Value) -> Exported | None:
        if isinstance(value, Complex) and name == RESULT:
            re, im = (self._exported_value(name, p) for p in (value.re, value.im))
            assert re is not None
            assert im is not None
            assert isinstance(re.value, Number)
            assert isinstance(im.value, Number)
            whole = Complex(re.value, im.value, value.kind)
            return Exported(whole, (*re.numbers, *im.numbers))
        if isinstance(value, Items) and name == RESULT:
            parts = [self._exported_value(name, v) for v in value.items]
            known = [p for p in parts if p is not None]
            if len(known) < len(parts):
                return None
            pairs = tuple(pair for p in known for pair in p.numbers)
            return Exported(Items(tuple(p.value for p in known)), pairs)
        if name == RESULT and (isinstance(value, Known) or (
            isinstance(value, View) and self.loops.is_fixed(value)
        )):  # fmt: skip
            return Exported(value, ())
        if not isinstance(value, Number):
            return None
        dtype = stored(value.kinds)
        assert dtype is not None
        variable, tag = Var(dtype, self.state.fresh(name)), None
        if self.state.tagged and value.kind is None and value.tag is not None:
            tag = Var("int64", self.state.fresh("kind"))
        after = Number(variable, value.kinds, value.whole, tag=tag)
        return Exported(after, ((after, value),))

    def _go(self, go: str, index: Var, ended: Number) -> None:
        """Write whether there is another iteration."""
        variable, count = Var("bool", go), self.head.count
        if isinstance(ended.expr, Const) and ended.expr.value:
            self.state.assign(variable, build.const(False, "bool"))
            return
        with self.state.block() as body:
            if count is not None:
                following = build.add(index, build.index(1))
                goes = build.call("less", "bool", following, count.expr)
            else:
                test = self._condition()
                assert test is not None
                goes = test.expr
            failed = self.state.failed
            if failed is not None:  # what goes on may not end
                going = build.call("equal", "bool", Load("int64", failed, build.index(0)),
                                   build.index(0))  # fmt: skip
                goes = build.both(goes, going)
            self.state.assign(variable, goes)
        if isinstance(ended.expr, Const):
            for s in body:
                self.state.emit(s)
            return
        with self.state.block() as stop:
            self.state.assign(variable, build.const(False, "bool"))
        self.state.branch(ended.expr, stop, body)

    def _emit(
        self, count: Number | None, index: Var, go: str | None, body: list[Stmt],
        test: Number | None,
    ) -> None:  # fmt: skip
        """Write the loop around its body."""
        if go is None:
            assert count is not None
            self.state.emit(for_(index.name, build.index(0), count.expr, body))
            return
        if count is not None:
            self.state.emit(Local(index.name, "int64", None, build.index(0)))
            starts = build.call("less", "bool", build.index(0), count.expr)
        else:
            assert test is not None
            starts = test.expr
        self.state.emit(Local(go, "bool", None, starts))
        self.state.emit(While(go, tuple(body), self.head.node.lineno))

    def _leave(
        self,
        before: dict[str, Value],
        after: dict[str, Value],
        carried: Sequence[Carried],
        count: Number | None,
        exported: dict[str, Exported],
    ) -> None:
        """Have names stand for what they are after the loop."""
        low = self.low
        low.names = dict(before)
        # What lies there is another array once the iteration has passed it on.
        homes = {c.home.buffer.name for c in carried if isinstance(c, CarriedArray)
                 and c.guess.is_new}  # fmt: skip
        for name in self.bound:
            if name in before or name in after:
                value = after.get(name)
                kept = isinstance(value, View) and self.loops.is_fixed(value) and self.runs
                if isinstance(value, View) and value.buffer.name in homes:
                    kept = False
                if isinstance(value, Pair) and (
                    before.get(name) == value or all(p in exported for p in parts_of(name))
                ):
                    low.names[name] = value
                    continue
                reason = Missing(f"{name!r} may not be bound after the loop")
                low.names[name] = value if kept and value is not None else reason
        if count is not None and not self.early:
            trips = count.whole
        else:
            most = Affine(MOST_ITERATIONS) if count is None else count.whole
            assert most is not None
            trips = self.state.facts.symbol([Affine(0)], [most])
        assert trips is not None
        self.carrying.leave(carried, after, trips, self.runs)
        for name, e in exported.items():
            low.names[name] = e.value
