"""Loops: what they run over, and how they begin, go on and end."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Const, Load, Local, Var
from adarray.compiler.ir.threads import Stmt, While, for_
from adarray.kernels import build
from adarray.loops.forms import Known, NotCaptured
from adarray.loops.lower import names
from adarray.loops.lower.carrying import (
    MOST_GUESSES,
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
from adarray.loops.lower.statements import RESULT, Frame, flag
from adarray.loops.lower.values import (
    Complex,
    Growing,
    Items,
    Lazy,
    Missing,
    Number,
    Pair,
    Span,
    Value,
    View,
    Walk,
    integer,
    number,
    parts_of,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering


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


class Loops:
    """Reads loops, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.numbers = lowering.numbers

    # -- what loops run over -----------------------------------------------------------------------

    def walk(self, value: Value) -> Walk:
        """Return what a loop over a value runs over."""
        if isinstance(value, Walk):
            return value
        if isinstance(value, Span):
            return self._range(value)
        if isinstance(value, Growing):
            return self.low.lists.walk(value)
        if isinstance(value, Lazy):
            value = self.low.elements.materialised(value)
        if isinstance(value, View) and value.axes:
            view = value

            def item(k: Number) -> Value:
                return self.low.elements.number(self.low.views.item(view, (k,)))

            return Walk(view.shape[0], item)
        raise self.state.refusal(f"a loop over {self.low.expressions.shown(value)}")

    def _range(self, span: Span) -> Walk:
        numbers, facts = self.numbers, self.state.facts
        start, stop, step = span.start, span.stop, span.step
        assert step.whole is not None
        up = facts.at_least(step.whole, 1)
        if not up and not facts.at_least(Affine(-1), step.whole):
            raise self.state.refusal("a range whose step may be 0")
        size = step if up else numbers.minus(integer(0), step)
        span_ = numbers.minus(stop, start) if up else numbers.minus(start, stop)
        one = size.expr == build.index(1)
        if not one:
            span_ = numbers.plus(span_, numbers.minus(size, integer(1)))
        most = span_.whole if one else None
        span_ = numbers.most(span_, integer(0))
        count = span_ if one else numbers.divided(span_, size)[0]

        def item(k: Number) -> Value:
            value = numbers.plus(start, numbers.times(k, step))
            assert value.whole is not None
            assert stop.whole is not None
            if one:
                return value
            # The last item lies before the end, which the number of iterations does not show.
            lows, highs = [value.whole], [value.whole]
            (highs if up else lows).append(stop.whole - 1 if up else stop.whole + 1)
            return number(value.expr, INT, facts.symbol(lows, highs))

        return Walk(count, item, most)

    def for_(self, node: ast.For) -> None:
        """Read a loop over a value of the body."""
        changed = names.changed_lists(node)
        lengths = {
            id(a) for n in ast.walk(node.iter) if isinstance(n, ast.Call)
            and isinstance(n.func, ast.Name) and n.func.id == "len" for a in n.args
        }  # fmt: skip
        for n in ast.walk(node.iter):
            if isinstance(n, ast.Name) and n.id in changed and id(n) not in lengths:
                raise self.state.refusal("a loop over a list that changes")
        self.walked(node, self.low.expressions.value(node.iter))

    def walked(self, node: ast.For, value: Value) -> None:
        """Read a loop over a value."""
        if isinstance(value, Items):
            self._unrolled(node, value)
            return
        walk = self.walk(value)
        count = self.state.named("count", walk.count)

        def bind(k: Number) -> None:
            self.low.statements.bind(node.target, walk.item(k))

        self._read(Head(node, count, bind, None, walk.most))

    def _unrolled(self, node: ast.For, items: Items) -> None:
        """Read a loop over the items of a tuple, one after the other."""
        if names.breaks(node.body) or any(map(names.leaves, node.body)):
            raise self.state.refusal("a loop over a tuple that is left early")
        for item in items.items:
            self.low.statements.bind(node.target, item)
            self.low.statements.block(node.body)
        self.low.statements.block(node.orelse)

    def while_(self, node: ast.While) -> None:
        """Read a loop that goes on as long as a condition holds."""
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node.test)):
            if node.orelse:
                raise self.state.refusal("else of a loop whose condition binds a name")
            node = _with_test_inside(node)
        self._read(Head(node, None, lambda _: None, node.test))

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, head: Head) -> None:
        """Read a loop, and what is done if nothing ends it early."""
        if any(map(names.leaves, head.node.orelse)):
            raise self.state.refusal("a jump in the else of a loop")
        breaks = bool(head.node.orelse) and names.has_break(head.node.body)
        frame = self.low.statements.frames[-1:]
        if breaks:
            self.low.names[self.broken(head.node)] = flag(False)
        self._read_or_peel(head)
        if breaks:
            broken = self.low.names.pop(self.broken(head.node))
            assert isinstance(broken, Number)
            orelse = head.node.orelse
            self.low.statements.branch(
                broken, lambda: None, lambda: self.low.statements.block(orelse)
            )
        elif head.node.orelse and names.returns(head.node) and frame:
            self.low.statements.guarded(head.node.orelse)
        else:
            self.low.statements.block(head.node.orelse)

    def broken(self, node: ast.For | ast.While) -> str:
        """Return the name that tells whether a `break` has ended a loop that has an else."""
        return f"%broken{node.lineno}_{node.col_offset}"

    def _read_or_peel(self, head: Head) -> None:
        """Read a loop; where the first iteration is of a type of its own, that one by itself."""
        if head.count is not None and head.count.whole == Affine(0):
            return
        saved, line = self.low.snapshot(), self.state.line
        try:
            self._settle(head)
            return
        except UnsteadyError as error:
            refusal = self.state.refusal(str(error))
        except NotCaptured as error:
            refusal = error
        self.low.restore(saved)
        if not self._can_peel(head):
            raise refusal
        try:
            self.state.line = line
            self._peel(head)
        except (UnsteadyError, NotCaptured):
            raise refusal from None

    def _can_peel(self, head: Head) -> bool:
        return head.count is not None and self.runs(head) and not names.breaks(head.node.body)

    def _peel(self, head: Head) -> None:
        """Read the first iteration before the others."""
        assert head.count is not None
        self.iteration(head, integer(0))
        count = self.numbers.minus(head.count, integer(1))
        if count.whole == Affine(0):
            return

        def bind(k: Number) -> None:
            head.bind(self.numbers.plus(k, integer(1)))

        most = None if head.most is None else head.most - 1
        self._settle(Head(head.node, self.state.named("count", count), bind, None, most))

    def iteration(self, head: Head, k: Number) -> Number:
        """Read an iteration; return whether it ends the loop."""
        low = self.low
        depth = len(low.statements.frames)
        frame = Frame(f"%live{depth}", f"%ended{depth}")
        low.names[frame.live] = flag(True)
        low.names[frame.ended or ""] = flag(False)
        low.statements.frames.append(frame)
        head.bind(k)
        low.statements.block(head.node.body)
        low.statements.frames.pop()
        ended = low.names[frame.ended or ""]
        assert isinstance(ended, Number)
        if self.broken(head.node) in low.names:
            low.names[self.broken(head.node)] = ended
        return ended

    def _settle(self, head: Head) -> None:
        """Read a loop; try guesses of what it carries until some hold."""
        used = names.Uses()
        if isinstance(head.node, ast.For):
            used.bind(head.node.target)
        elif head.test is not None:
            used.read(head.test)
        used.then(names.uses(head.node.body), True)
        reading = Reading(self, head, used)
        guesses: Guesses = reading.first()
        period = 1
        for attempt in range(MOST_GUESSES):
            saved, line = self.low.snapshot(), self.state.line
            wider, again = reading.attempt(guesses, period, attempt)
            if wider == guesses and again == period:
                return
            self.low.restore(saved)
            self.state.line = line
            guesses, period = wider, again
        raise self.state.refusal("numbers that grow in a way that is not understood")

    def is_fixed(self, view: View) -> bool:
        """Whether a view is the same one in all iterations."""
        parts = [view.offset, *(x for a in view.axes for x in (a.extent, a.stride))]
        fixed = all(x.whole is not None and x.whole.value is not None for x in parts)
        return fixed and self.state.is_fixed(*(x.expr for x in parts))

    def runs(self, head: Head) -> bool:
        """Whether there is surely an iteration."""
        if head.count is not None:
            assert head.count.whole is not None
            return self.state.facts.at_least(head.count.whole, 1)
        return isinstance(head.test, ast.Constant) and bool(head.test.value)


def _with_test_inside(node: ast.While) -> ast.While:
    """Return a loop that tests its condition in its body."""
    at = {f: getattr(node.test, f) for f in ("lineno", "col_offset", "end_lineno",
                                             "end_col_offset")}  # fmt: skip
    stop = ast.If(ast.UnaryOp(ast.Not(), node.test, **at), [ast.Break(**at)], [], **at)
    again = ast.While(ast.Constant(True, **at), [stop, *node.body], [])
    return ast.copy_location(again, node)


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
