"""What the iterations of a loop pass on to each other.

What a number is when an iteration begins is guessed, and the body is read; where that contradicts
the guess, a wider one is tried. So the last reading proves its own assumptions, by induction.

An array that is bound anew in each iteration lies in memory of the kernel's, to which it is copied
when the iteration ends. Arrays that only exchange names stay where they are: as many iterations as
it takes until all have their names again are written one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Const, Expr, Let, Store, Var
from adarray.compiler.ir.threads import Stmt, all_statements
from adarray.kernels import build
from adarray.loops.lower.intervals import HIGHEST, LOWEST, Affine
from adarray.loops.lower.kinds import INT, Kinds, stored
from adarray.loops.lower.values import Missing, Number, Value, View

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

MOST_GUESSES = 12
_LARGE = 1 << 40
_LONGEST_PERIOD = 4


class UnsteadyError(Exception):
    """A variable is of another type when an iteration ends than when it begins."""


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


@dataclass(frozen=True, slots=True)
class ArrayGuess:
    """What a carried array is assumed to be: one of the arrays before the loop, or a new one."""

    is_new: bool


Guesses = Mapping[str, Guess | ArrayGuess]


@dataclass(frozen=True, slots=True)
class CarriedNumber:
    """A number that iterations pass on."""

    name: str
    first: Number
    guess: Guess
    variable: Var
    value: Number


@dataclass(frozen=True, slots=True)
class CarriedArray:
    """An array that iterations pass on; `home` is where it lies when one begins."""

    name: str
    first: View
    guess: ArrayGuess
    home: View


Carried = CarriedNumber | CarriedArray


class Carrying:
    """Declares, checks and passes on what a loop carries."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.facts = lowering.state.facts
        self.numbers = lowering.numbers
        self._outer: dict[str, View | None] = {}  # homes of an enclosing loop

    def first(self, value: Value) -> Guess | ArrayGuess | None:
        """Return the first guess for a variable; None if it cannot be carried."""
        if isinstance(value, Number):
            exact = value.whole is not None and value.kind == INT
            return Guess(value.kinds, (0, 0) if exact else None)
        return ArrayGuess(False) if isinstance(value, View) else None

    # -- the begin of an iteration -----------------------------------------------------------------

    def declared(self, name: str, guess: Guess | ArrayGuess, k: Affine) -> Carried:
        """Declare what is carried; `k` is the number of the iteration."""
        first = self.low.names[name]
        if isinstance(guess, ArrayGuess):
            assert isinstance(first, View)
            home = first
            if guess.is_new:
                home = self.low.elements.materialised(first, name)
                self.low.fresh.discard(home.buffer.name)
                key = self.low.functions.depth, name
                self._outer[name] = self.low.homes.get(key)
                self.low.homes[key] = home
            return CarriedArray(name, first, guess, home)
        assert isinstance(first, Number)
        kinds = self.numbers.joined((first, Number(first.expr, guess.kinds)))
        dtype = stored(guess.kinds)
        if kinds is None or dtype is None:
            raise UnsteadyError(f"{name!r} is a number of one type or another")
        variable = self.state.local(name, dtype, build.cast(first.expr, dtype))
        tag, code = None, self.numbers.tag(first)
        if self.state.tagged and len(guess.kinds) > 1 and code is not None:
            tag = self.state.local("kind", "int64", code)
        value = Number(variable, guess.kinds, self.assumed(first, guess, k), tag=tag)
        return CarriedNumber(name, first, guess, variable, value)

    def assumed(self, first: Number, guess: Guess, k: Affine) -> Affine | None:
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
            return self.facts.symbol(lows, highs)
        assert guess.ends is not None
        return self.facts.symbol([Affine(guess.ends[0])], [Affine(guess.ends[1])])

    # -- the end of an iteration -------------------------------------------------------------------

    def judged(
        self, carried: Sequence[Carried], after: Mapping[str, Value], attempt: int
    ) -> dict[str, Guess | ArrayGuess]:
        """Return guesses to which what an iteration leaves keeps; the same ones if it does."""
        wider: dict[str, Guess | ArrayGuess] = {}
        starts = [c.home for c in carried if isinstance(c, CarriedArray) and not c.guess.is_new]
        for c in carried:
            end = after.get(c.name)
            if isinstance(end, Missing):
                raise self.state.refusal(end.reason)
            if isinstance(c, CarriedNumber) and isinstance(end, Number):
                wider[c.name] = self._wider(c, end, attempt)
            elif isinstance(c, CarriedArray) and isinstance(end, View):
                wider[c.name] = ArrayGuess(c.guess.is_new or end not in starts)
                self._check_array(c, end)
            else:
                raise UnsteadyError(f"{c.name!r} is one object or another")
        ends = [after[c.name] for c in carried if wider[c.name] == ArrayGuess(False)]
        if any(ends.count(e) > 1 for e in ends):  # two names of one array
            wider |= {n: ArrayGuess(True) for n, g in wider.items() if isinstance(g, ArrayGuess)}
        return wider

    def _wider(self, c: CarriedNumber, end: Number, attempt: int) -> Guess:
        facts = self.facts
        kinds = c.guess.kinds | end.kinds
        if kinds != {INT} or c.value.whole is None or end.whole is None:
            return Guess(kinds)
        guess = c.guess
        if guess.steps is not None and attempt < MOST_GUESSES // 2:
            low, high = facts.range(end.whole - c.value.whole)
            if attempt > 0:
                low, high = min(low, guess.steps[0]), max(high, guess.steps[1])
            if low > -_LARGE and high < _LARGE:
                return replace(guess, steps=(low, high))
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

    def _check_array(self, c: CarriedArray, end: View) -> None:
        if not c.guess.is_new:
            return
        if end.dtype != c.home.dtype or len(end.axes) != len(c.home.axes):
            raise UnsteadyError(f"{c.name!r} is an array of one type or another")
        for a, b in zip(end.shape, c.home.shape, strict=True):
            if not self.low.views.same(a, b):
                raise UnsteadyError(f"{c.name!r} is an array of one shape or another")

    def check_writes(self, carried: Sequence[Carried], body: Sequence[Stmt]) -> None:
        """Refuse arrays of which the loop has a copy, and writes the original."""
        copied = {
            c.first.buffer.name: c.name for c in carried
            if isinstance(c, CarriedArray) and c.guess.is_new
        }  # fmt: skip
        for s in all_statements(tuple(body)):
            if isinstance(s, Store) and s.buffer in copied:
                name = copied[s.buffer]
                raise self.state.refusal(f"{name!r} is another name of an array that is written")

    def period(self, carried: Sequence[Carried], after: Mapping[str, Value]) -> int:
        """Return after how many iterations all arrays have the names again that they began with."""
        rest = [c for c in carried if isinstance(c, CarriedArray) and not c.guess.is_new]
        follows = {
            i: next(j for j, d in enumerate(rest) if d.home == after[c.name])
            for i, c in enumerate(rest)
        }
        period = 1
        for i in follows:
            length, at = 1, follows[i]
            while at != i:
                length, at = length + 1, follows[at]
            period = math.lcm(period, length)
        if period > _LONGEST_PERIOD:
            raise self.state.refusal("many arrays exchange their names")
        return period

    def passed_on(self, carried: Sequence[Carried], after: Mapping[str, Value]) -> None:
        """Write how an iteration passes on what it leaves."""
        pairs: list[tuple[Var, Expr]] = []
        for c in carried:
            if isinstance(c, CarriedNumber):
                end = after[c.name]
                assert isinstance(end, Number)
                pairs += [(c.variable, build.cast(end.expr, c.variable.dtype)), *self._tag(c, end)]
        # Any of them may be read for another one, so that all are read before the first is set.
        changing = {variable for variable, _ in pairs}
        ends = [(v, self._kept(v.name, e, changing)) for v, e in pairs if v != e]
        self._copy_arrays([c for c in carried if isinstance(c, CarriedArray)], after)
        for variable, expr in ends:
            self.state.assign(variable, expr)

    def _kept(self, name: str, expr: Expr, changing: Set[Var]) -> Expr:
        """Return an expression as it is before any of the changing variables is set."""
        simple = isinstance(expr, Const) or (isinstance(expr, Var) and expr not in changing)
        if simple or len(changing) < 2:
            return expr
        unique = self.state.fresh(name)
        self.state.emit(Let(unique, expr))
        return Var(expr.dtype, unique)

    def _tag(self, c: CarriedNumber, end: Number) -> list[tuple[Var, Expr]]:
        """Return the variable that tells which of its kinds a number has, and what it is set to."""
        variable = c.value.tag
        if not isinstance(variable, Var):
            return []
        tag = self.numbers.tag(end)
        if tag is None:
            raise UnsteadyError(f"{c.name!r} is a number of one type or another")
        return [(variable, tag)]

    def _copy_arrays(self, arrays: Sequence[CarriedArray], after: Mapping[str, Value]) -> None:
        pairs: list[tuple[View, View]] = []
        for c in arrays:
            end = after[c.name]
            assert isinstance(end, View)
            if c.guess.is_new and end != c.home:
                pairs.append((c.home, end))
        homes = {home.buffer.name for home, _ in pairs}
        # Of what is overwritten before it is copied, there is a copy first.
        own = [
            (home, self.low.elements.materialised(end) if end.buffer.name in homes else end)
            for home, end in pairs
        ]
        for home, end in own:
            self.low.elements.store(home, end)

    # -- after the loop ----------------------------------------------------------------------------

    def leave(
        self, carried: Sequence[Carried], after: Mapping[str, Value], trips: Affine, runs: bool
    ) -> None:
        """Have names stand for what they are after the loop."""
        for c in carried:
            if isinstance(c, CarriedArray):
                self.low.names[c.name] = c.home
                key = self.low.functions.depth, c.name
                self.low.homes.pop(key, None)
                outer = self._outer.get(c.name)
                if outer is not None:
                    self.low.homes[key] = outer
                if not runs and c.guess.is_new:
                    self.low.unsure.add(c.home.buffer.name)
                continue
            end = after[c.name]
            assert isinstance(end, Number)
            kinds = end.kinds if runs else c.guess.kinds
            whole = self.assumed(c.first, c.guess, trips)
            self.low.names[c.name] = Number(c.variable, kinds, whole, tag=c.value.tag)
