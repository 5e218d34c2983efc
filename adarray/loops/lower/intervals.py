"""Whole numbers as affine forms of symbols, and proofs of inequalities between them.

A symbol is a number that differs from iteration to iteration; numbers that are the same in all of
them stand in a form as their value. So a proof holds for the values that the loop's variables have.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
MOST_ITERATIONS = 1 << 40  # more than any computer gets through in a day
_MOST_CONDITIONS = 12  # that are tried in pairs


@dataclass(frozen=True, slots=True)
class Affine:
    """``constant + sum of coefficient * symbol``; `terms` are sorted by the symbols' numbers."""

    constant: int
    terms: tuple[tuple[int, int], ...] = ()

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms)
        sums = dict(self.terms)
        for symbol, coefficient in other.terms:
            sums[symbol] = sums.get(symbol, 0) + coefficient
        terms = tuple(sorted((s, c) for s, c in sums.items() if c))
        return Affine(self.constant + other.constant, terms)

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (-other if isinstance(other, int) else other.scaled(-1))

    def scaled(self, by: int) -> Affine:
        """Return a multiple."""
        if by == 0:
            return Affine(0)
        return Affine(self.constant * by, tuple((s, c * by) for s, c in self.terms))

    @property
    def value(self) -> int | None:
        """The number, where it is the same in all iterations."""
        return None if self.terms else self.constant


@dataclass(slots=True)
class Symbol:
    """Bounds of a symbol: affine forms of those with smaller numbers."""

    lows: tuple[Affine, ...]
    highs: tuple[Affine, ...]


@dataclass(slots=True)
class Facts:
    """What is known where the kernel is being written.

    Attributes
    ----------
    symbols : list of Symbol
    conditions : list of Affine
        Forms that are not negative here.
    known : dict
        Symbols by what they are a function of.
    loaded : dict
        Memory from which the number of a symbol was read.
    """

    symbols: list[Symbol] = field(default_factory=list)
    conditions: list[Affine] = field(default_factory=list)
    known: dict[Hashable, Affine] = field(default_factory=dict)
    loaded: dict[int, str] = field(default_factory=dict)

    def symbol(self, lows: Iterable[Affine] = (), highs: Iterable[Affine] = ()) -> Affine:
        """Return a new symbol with bounds, by default those of 64 bits."""
        bounds = Symbol(tuple(lows) or (Affine(LOWEST),), tuple(highs) or (Affine(HIGHEST),))
        self.symbols.append(bounds)
        return Affine(0, ((len(self.symbols) - 1, 1),))

    def function(
        self, key: Hashable, lows: Iterable[Affine] = (), highs: Iterable[Affine] = ()
    ) -> Affine:
        """Return the symbol of a number that is the same whenever its key is."""
        if key not in self.known:
            self.known[key] = self.symbol(lows, highs)
        return self.known[key]

    def forget(self, count: int) -> None:
        """Drop symbols but the first `count`."""
        del self.symbols[count:]
        self.known = {k: a for k, a in self.known.items() if all(s < count for s, _ in a.terms)}
        self.loaded = {s: name for s, name in self.loaded.items() if s < count}

    def narrow(self, symbol: int, low: int, high: int) -> None:
        """Have bounds of a symbol that was known by its dtype alone."""
        known = self.symbols[symbol]
        known.lows, known.highs = (*known.lows, Affine(low)), (*known.highs, Affine(high))

    @contextmanager
    def assuming(self, conditions: Iterable[Affine]) -> Iterator[None]:
        """Have forms that are not negative inside."""
        before = len(self.conditions)
        self.conditions += conditions
        try:
            yield
        finally:
            del self.conditions[before:]

    def least(self, a: Affine) -> int:
        """Return a lower bound of a form, from the bounds of its symbols."""
        if not a.terms:
            return a.constant
        symbol, coefficient = a.terms[-1]
        rest = Affine(a.constant, a.terms[:-1])
        known = self.symbols[symbol]
        bounds = known.lows if coefficient > 0 else known.highs
        return max(self.least(rest + b.scaled(coefficient)) for b in bounds)

    def range(self, a: Affine) -> tuple[int, int]:
        """Return bounds of a form."""
        low, high = self.least(a), -self.least(a.scaled(-1))
        for c in self.conditions:
            low = max(low, self.least(a - c))
            high = min(high, -self.least(a.scaled(-1) - c))
        return low, high

    def nonnegative(self, a: Affine) -> bool:
        """Whether a form is proven not to be negative here."""
        if self.least(a) >= 0:
            return True
        if not self.conditions:
            return False
        if any(self.least(a - c) >= 0 for c in self.conditions):
            return True
        if self.impossible():
            return True
        if len(self.conditions) > _MOST_CONDITIONS:
            return False
        pairs = itertools.combinations(self.conditions, 2)
        return any(self.least(a - c - d) >= 0 for c, d in pairs)

    def impossible(self) -> bool:
        """Whether what is written is never reached: its conditions contradict each other."""
        if any(self.least(c.scaled(-1)) > 0 for c in self.conditions):
            return True
        pairs = itertools.combinations(self.conditions[-_MOST_CONDITIONS:], 2)
        return any(self.least((c + d).scaled(-1)) > 0 for c, d in pairs)

    def at_least(self, a: Affine, b: Affine | int) -> bool:
        """Whether ``a >= b`` is proven."""
        return self.nonnegative(a - b)

    def equal(self, a: Affine, b: Affine | int) -> bool:
        """Whether two forms are proven equal."""
        difference = a - b
        return difference == Affine(0) or (
            self.nonnegative(difference) and self.nonnegative(difference.scaled(-1))
        )

    def within(self, a: Affine, low: int, high: int) -> bool:
        """Whether ``low <= a <= high`` is proven."""
        return self.at_least(a, low) and self.nonnegative(Affine(high) - a)
