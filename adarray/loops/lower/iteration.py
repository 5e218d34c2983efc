"""Loops: what they run over, and how they begin; `Reading` reads one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from adarray.kernels import build
from adarray.loops.forms import NotCaptured
from adarray.loops.lower import names
from adarray.loops.lower.carrying import (
    MOST_GUESSES,
    Guesses,
    UnsteadyError,
)
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import INT
from adarray.loops.lower.reading import Head, Reading
from adarray.loops.lower.statements import Frame, flag
from adarray.loops.lower.values import (
    Growing,
    Items,
    Lazy,
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
