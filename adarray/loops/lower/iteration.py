"""Loops: what they run over, and what they carry from iteration to iteration.

What a carried number is at the begin of any iteration is guessed, and the body is read; where that
contradicts the guess, a wider one is tried. So the last reading proves its own assumptions, by
induction.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Const, Expr, Let, Local, Var
from adarray.compiler.ir.threads import Stmt, While, for_
from adarray.kernels import build
from adarray.loops.lower import names
from adarray.loops.lower.intervals import HIGHEST, LOWEST, MOST_ITERATIONS, Affine
from adarray.loops.lower.kinds import INT, Kinds, stored
from adarray.loops.lower.statements import Frame, flag
from adarray.loops.lower.values import (
    Items,
    Lazy,
    Missing,
    Number,
    Span,
    Value,
    View,
    Walk,
    integer,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

_MOST_GUESSES = 12
_LARGE = 1 << 40


@dataclass(frozen=True, slots=True)
class Guess:
    """What a carried number is assumed to be.

    Attributes
    ----------
    kinds : frozenset of str
    steps : tuple of int, optional
        Bounds of what an iteration adds to a Python integer.
    ends : tuple of int, optional
        Bounds of a Python integer, where steps are not known.
    """

    kinds: Kinds
    steps: tuple[int, int] | None = None
    ends: tuple[int, int] | None = None


@dataclass(slots=True)
class Carried:
    """A number that iterations pass on."""

    name: str
    first: Number
    guess: Guess
    variable: Var
    value: Number


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
    """

    node: ast.For | ast.While
    count: Number | None
    bind: Callable[[Number], None]
    test: ast.expr | None


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

        return Walk(count, item)

    def for_(self, node: ast.For) -> None:
        """Read a loop over a value of the body."""
        self.walked(node, self.low.expressions.value(node.iter))

    def walked(self, node: ast.For, value: Value) -> None:
        """Read a loop over a value."""
        if isinstance(value, Items):
            self._unrolled(node, value)
            return
        walk = self.walk(value)
        count = self.state.named("count", walk.count)
        self._read(
            Head(node, count, lambda k: self.low.statements.bind(node.target, walk.item(k)), None)
        )

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
        self._read(Head(node, None, lambda _: None, node.test))

    # -- guesses -----------------------------------------------------------------------------------

    def _read(self, head: Head) -> None:
        """Read a loop; try guesses until one holds."""
        if head.node.orelse:
            raise self.state.refusal("else of a loop")
        at_once = head.count is not None and head.count.whole == Affine(0)
        if at_once:
            return
        used = names.Uses()
        if isinstance(head.node, ast.For):
            used.bind(head.node.target)
        elif head.test is not None:
            used.read(head.test)
        used.then(names.uses(head.node.body), True)
        guesses = self._first(head, used)
        for attempt in range(_MOST_GUESSES):
            saved = self.low.snapshot()
            line = self.state.line
            wider = self._attempt(head, used, guesses, attempt)
            if wider == guesses:
                return
            self.low.restore(saved)
            self.state.line = line
            guesses = wider
        raise self.state.refusal("numbers that grow in a way that is not understood")

    def _first(self, head: Head, used: names.Uses) -> dict[str, Guess]:
        """Return what is carried, as it is before the loop."""
        guesses: dict[str, Guess] = {}
        certain = self._runs(head)
        for name in used.bound:
            value = self.low.names.get(name)
            if value is None or isinstance(value, Missing):
                continue
            inside = name in used.exposed or name not in used.sure
            if not inside and (certain or not self.low.is_live(name, head.node)):
                continue
            if isinstance(value, Number):
                exact = value.whole is not None and value.kind == INT
                guesses[name] = Guess(value.kinds, (0, 0) if exact else None)
        return guesses

    def _runs(self, head: Head) -> bool:
        """Whether there is surely an iteration."""
        if head.count is not None:
            assert head.count.whole is not None
            return self.state.facts.at_least(head.count.whole, 1)
        return isinstance(head.test, ast.Constant) and bool(head.test.value)

    def _assumed(self, first: Number, guess: Guess, k: Affine) -> Affine | None:
        """Return what a carried integer is at the begin of iteration `k`, by a guess."""
        if guess.kinds != {INT} or first.whole is None:
            return None
        if guess.steps is not None:
            low, high = guess.steps
            if low == high:
                return first.whole + k.scaled(low)
            lows, highs = [first.whole + k.scaled(low)], [first.whole + k.scaled(high)]
            if low >= 0:
                lows.append(first.whole)
            if high <= 0:
                highs.append(first.whole)
            return self.state.facts.symbol(lows, highs)
        assert guess.ends is not None
        return self.state.facts.symbol([Affine(guess.ends[0])], [Affine(guess.ends[1])])

    def _wider(self, c: Carried, end: Number, attempt: int) -> Guess:
        """Return a guess that what an iteration leaves keeps to; the same one if it does."""
        facts = self.state.facts
        kinds = c.guess.kinds | end.kinds
        if kinds != {INT} or c.value.whole is None or end.whole is None:
            return Guess(kinds)
        guess = c.guess
        if guess.steps is not None and attempt < _MOST_GUESSES // 2:
            low, high = facts.range(end.whole - c.value.whole)
            if attempt == 0:
                steps = (low, high)
            else:
                steps = min(low, guess.steps[0]), max(high, guess.steps[1])
            if steps[0] > -_LARGE and steps[1] < _LARGE:
                return replace(guess, steps=steps)
        assert c.first.whole is not None
        ends = guess.ends or facts.range(c.first.whole)
        if guess.ends is not None and facts.within(end.whole, *ends):
            return guess
        low, high = facts.range(end.whole)
        low, high = min(low, ends[0]), max(high, ends[1])
        if guess.ends is not None:  # as many bits as it takes, so that few guesses are enough
            bits = max(low.bit_length(), high.bit_length()) + attempt
            low, high = -(1 << bits) if low < 0 else 0, (1 << bits) - 1
        return Guess(kinds, None, (max(low, LOWEST), min(high, HIGHEST)))

    # -- one reading -------------------------------------------------------------------------------

    def _attempt(
        self, head: Head, used: names.Uses, guesses: dict[str, Guess], attempt: int
    ) -> dict[str, Guess]:
        """Read a loop by guesses; return what they should have been."""
        low, state, facts = self.low, self.state, self.state.facts
        early = names.breaks(head.node.body)
        before = dict(low.names)
        most = Affine(MOST_ITERATIONS) if head.count is None else head.count.whole
        assert most is not None
        k = facts.symbol([Affine(0)], [most - 1])
        counted = head.count is not None and not early
        index = Var("int64", state.fresh("i" if counted else "n"))
        go = None if counted else state.fresh("go")
        test = self._condition(head)
        if test is not None and isinstance(test.expr, Const) and not test.expr.value:
            return guesses
        carried = [self._carried(n, g, k) for n, g in guesses.items()]
        runs = self._runs(head)
        for name in used.bound:
            if name not in guesses and name in low.names:
                low.names[name] = Missing(self._reason(name, before[name]))
        frame = Frame(f"%live{len(low.statements.frames)}", f"%ended{len(low.statements.frames)}")
        for c in carried:
            low.names[c.name] = c.value
        with state.block() as body, facts.assuming(self._holding(head)):
            low.names[frame.live] = flag(True)
            low.names[frame.ended or ""] = flag(False)
            low.statements.frames.append(frame)
            head.bind(number(index, INT, k))
            low.statements.block(head.node.body)
            low.statements.frames.pop()
            after = low.names
            wider = self._judged(carried, after, attempt)
            ended = after[frame.ended or ""]
            assert isinstance(ended, Number)
            ends = self._ends(carried, after)
            exported = self._exported(head, used, guesses, after)
            if go is not None:
                self._go(head, go, index, ended)
            for c, e in ends:
                state.assign(c.variable, e)
            for variable, last in exported.values():
                state.assign(variable, last.expr)
            if not counted and head.count is not None:
                state.assign(index, build.add(index, build.index(1)))
        for variable, _ in exported.values():
            state.emit(Local(variable.name, variable.dtype))
        self._emit(head, index, go, body, test)
        self._leave(head, used, (before, after), carried, runs and not early)
        for name, (variable, last) in exported.items():
            low.names[name] = Number(variable, last.kinds, last.whole)
        return wider

    def _reason(self, name: str, value: Value) -> str:
        """Return why a name that an iteration binds cannot be read before it does."""
        if isinstance(value, (View, Lazy)):
            return f"{name!r} is an array that iterations pass on"
        return f"{name!r} may not be bound"

    def _condition(self, head: Head) -> Number | None:
        if head.test is None:
            return None
        with self.low.testing():
            return self.low.expressions.truth(head.test)

    def _holding(self, head: Head) -> tuple[Affine, ...]:
        """Return what holds in an iteration since the condition does."""
        with self.state.block():  # which is not written: it was evaluated before
            test = self._condition(head)
        return () if test is None else test.holds

    def _carried(self, name: str, guess: Guess, k: Affine) -> Carried:
        """Declare a carried number."""
        first = self.low.names[name]
        assert isinstance(first, Number)
        kinds = self.numbers.joined((first, Number(first.expr, guess.kinds)))
        if kinds is None and guess.kinds != first.kinds:
            raise self.state.refusal(f"{name!r} is a number of one type or another")
        dtype = stored(guess.kinds)
        assert dtype is not None
        variable = self.state.local(name, dtype, build.cast(first.expr, dtype))
        value = Number(variable, guess.kinds, self._assumed(first, guess, k))
        return Carried(name, first, guess, variable, value)

    def _judged(
        self, carried: Sequence[Carried], after: dict[str, Value], attempt: int
    ) -> dict[str, Guess]:
        """Return guesses to which what an iteration leaves keeps."""
        wider: dict[str, Guess] = {}
        for c in carried:
            end = after.get(c.name)
            if isinstance(end, Missing):
                raise self.state.refusal(end.reason)
            if not isinstance(end, Number):
                raise self.state.refusal(f"{c.name!r} is a number or another object")
            wider[c.name] = self._wider(c, end, attempt)
            if stored(wider[c.name].kinds) is None:
                raise self.state.refusal(f"{c.name!r} is a number of one type or another")
        return wider

    def _ends(
        self, carried: Sequence[Carried], after: dict[str, Value]
    ) -> list[tuple[Carried, Expr]]:
        """Return what is carried on, computed before anything is set."""
        changing = {c.variable for c in carried}
        out = []
        for c in carried:
            end = after[c.name]
            assert isinstance(end, Number)
            if end.expr == c.variable:
                continue
            expr = build.cast(end.expr, c.variable.dtype)
            if len(carried) > 1 and not isinstance(expr, Const):
                simple = isinstance(expr, Var) and expr not in changing
                if not simple:
                    name = self.state.fresh(c.name)
                    self.state.emit(Let(name, expr))
                    expr = Var(expr.dtype, name)
            out.append((c, expr))
        return out

    def _exported(
        self, head: Head, used: names.Uses, guesses: dict[str, Guess], after: dict[str, Value]
    ) -> dict[str, tuple[Var, Number]]:
        """Return variables for what the last iteration binds and is read after the loop."""
        if not self._runs(head):
            return {}
        out: dict[str, tuple[Var, Number]] = {}
        for name in used.bound:
            value = after.get(name)
            if name in guesses or not isinstance(value, Number):
                continue
            if self.low.is_live(name, head.node):
                dtype = stored(value.kinds)
                assert dtype is not None
                out[name] = (Var(dtype, self.state.fresh(name)), value)
        return out

    def _go(self, head: Head, go: str, index: Var, ended: Number) -> None:
        """Write whether there is another iteration."""
        variable = Var("bool", go)
        if isinstance(ended.expr, Const) and ended.expr.value:
            self.state.assign(variable, build.const(False, "bool"))
            return
        with self.state.block() as body:
            if head.count is not None:
                following = build.add(index, build.index(1))
                goes = build.call("less", "bool", following, head.count.expr)
            else:
                test = self._condition(head)
                assert test is not None
                goes = test.expr
            self.state.assign(variable, goes)
        if isinstance(ended.expr, Const):
            for s in body:
                self.state.emit(s)
            return
        with self.state.block() as stop:
            self.state.assign(variable, build.const(False, "bool"))
        self.state.branch(ended.expr, stop, body)

    def _emit(
        self, head: Head, index: Var, go: str | None, body: list[Stmt], test: Number | None
    ) -> None:
        """Write the loop around its body."""
        if go is None:
            assert head.count is not None
            self.state.emit(for_(index.name, build.index(0), head.count.expr, body))
            return
        if head.count is not None:
            self.state.emit(Local(index.name, "int64", None, build.index(0)))
            starts = build.call("less", "bool", build.index(0), head.count.expr)
        else:
            assert test is not None
            starts = test.expr
        self.state.emit(Local(go, "bool", None, starts))
        self.state.emit(While(go, tuple(body), head.node.lineno))

    def _leave(
        self, head: Head, used: names.Uses, ways: tuple[dict[str, Value], dict[str, Value]],
        carried: Sequence[Carried], complete: bool,
    ) -> None:  # fmt: skip
        """Have names stand for what they are after the loop."""
        before, after = ways
        facts = self.state.facts
        self.low.names = dict(before)
        for name in used.bound:
            if name in before or name in after:
                self.low.names[name] = Missing(f"{name!r} may not be bound after the loop")
        if complete and head.count is not None and head.count.whole is not None:
            trips = head.count.whole
        else:
            most = Affine(MOST_ITERATIONS) if head.count is None else head.count.whole
            assert most is not None
            trips = facts.symbol([Affine(0)], [most])
        runs = self._runs(head)
        for c in carried:
            end = after[c.name]
            assert isinstance(end, Number)
            kinds = end.kinds if runs else c.guess.kinds
            whole = self._assumed(c.first, c.guess, trips)
            self.low.names[c.name] = Number(c.variable, kinds, whole)
