"""Whether integers can satisfy linear constraints: Fourier and Motzkin's elimination.

What cannot be decided cheaply counts as satisfiable. Equations of linear indices, such as
``n i + j = n k + l``, are taken apart where the bounds of ``j - l`` leave one multiple of ``n``.
(Pugh, *The Omega test*, 1991; Maslov, *Delinearization*, 1992.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

_MOST = 160  # constraints that are looked at
Symbol = tuple[str, object]  # a name, and which of several values of that name it is


@dataclass(frozen=True)
class Linear:
    """A sum of integer variables with integer factors, and a constant."""

    terms: tuple[tuple[Symbol, int], ...] = ()
    constant: int = 0

    @staticmethod
    def of(factors: dict[Symbol, int], constant: int) -> Linear:
        """Return a sum without terms of factor 0."""
        terms = sorted(((s, c) for s, c in factors.items() if c), key=repr)
        return Linear(tuple(terms), constant)

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """Return this and a multiple of another one."""
        factors = dict(self.terms)
        for s, c in other.terms:
            factors[s] = factors.get(s, 0) + times * c
        return Linear.of(factors, self.constant + times * other.constant)

    def scaled(self, times: int) -> Linear:
        """Return a multiple."""
        return Linear.of({s: c * times for s, c in self.terms}, self.constant * times)

    def factor(self, symbol: Symbol) -> int:
        """Return the factor of a variable."""
        return next((c for s, c in self.terms if s == symbol), 0)


@dataclass
class Constraints:
    """Sums that are 0, and sums that are 0 or more."""

    zero: list[Linear] = field(default_factory=list)
    positive: list[Linear] = field(default_factory=list)

    def empty(self) -> bool:
        """Whether no integers satisfy all of them, as far as is known."""
        zero, positive = [*self.zero], [*self.positive]
        while zero:
            e = zero.pop()
            common = math.gcd(*(c for _, c in e.terms))
            if not e.terms or e.constant % common:
                if e.constant:
                    return True
                continue
            e = Linear(tuple((s, c // common) for s, c in e.terms), e.constant // common)
            parts = _apart(e, positive)
            if parts is not None:
                if not parts:
                    return True
                zero += parts
                continue
            symbol, factor = min(e.terms, key=lambda t: abs(t[1]))
            zero = [_without(x, symbol, factor, e) for x in zero]
            positive = [_without(x, symbol, factor, e) for x in positive]
        return _infeasible(positive)


def _without(x: Linear, symbol: Symbol, factor: int, e: Linear) -> Linear:
    """Return a multiple of a sum in which an equation has taken a variable's place."""
    c = x.factor(symbol)
    if not c:
        return x
    return x.scaled(abs(factor)).plus(e, -c if factor > 0 else c)


def _apart(e: Linear, positive: list[Linear]) -> list[Linear] | None:
    """Return two equations for one; an empty list if it has no solution, None if it stays."""
    sizes = sorted({abs(c) for _, c in e.terms if abs(c) > 1}, reverse=True)
    for size in sizes:
        large = {s: c for s, c in e.terms if c % size == 0}
        small = Linear.of({s: c for s, c in e.terms if c % size}, e.constant)
        if not small.terms:
            continue
        low, high = bounds(small, positive)
        if low is None or high is None:
            continue
        first = -(-low // size)
        if first * size > high:
            return []
        if (first + 1) * size > high:
            rest = Linear(small.terms, small.constant - first * size)
            return [rest, Linear.of(large, first * size)]
    return None


def bounds(e: Linear, positive: list[Linear]) -> tuple[int | None, int | None]:
    """Return the least and the greatest value of a sum; None where that is not known."""
    value = object()
    symbol = ("value", id(value))
    equation = Linear.of({**dict(e.terms), symbol: -1}, e.constant)
    system = [*positive, equation, equation.scaled(-1)]
    projected = _eliminated(system, {symbol})
    if projected is None:
        return None, None
    low = high = None
    for x in projected:
        c = x.factor(symbol)
        if c > 0:
            bound = -(x.constant // c)
            low = bound if low is None else max(low, bound)
        elif c < 0:
            bound = x.constant // -c
            high = bound if high is None else min(high, bound)
    return low, high


def _infeasible(positive: list[Linear]) -> bool:
    projected = _eliminated(positive, set())
    return projected is not None and any(not x.terms and x.constant < 0 for x in projected)


def _eliminated(positive: Iterable[Linear], keep: set[Symbol]) -> list[Linear] | None:
    """Return what follows for the variables in `keep`; None where that takes too long."""
    system = set(map(_tight, positive))
    while True:
        factors: dict[Symbol, tuple[int, int]] = {}
        for x in system:
            if not x.terms and x.constant < 0:
                return [x]
            for s, c in x.terms:
                up, down = factors.get(s, (0, 0))
                factors[s] = (up + (c > 0), down + (c < 0))
        rest = {s: n for s, n in factors.items() if s not in keep}
        if not rest:
            return list(system)
        symbol = min(rest, key=lambda s: (rest[s][0] * rest[s][1], repr(s)))
        above = [x for x in system if x.factor(symbol) > 0]
        below = [x for x in system if x.factor(symbol) < 0]
        system = {x for x in system if not x.factor(symbol)}
        for a in above:
            for b in below:
                p, q = a.factor(symbol), -b.factor(symbol)
                system.add(_tight(a.scaled(q).plus(b, p)))
        if len(system) > _MOST:
            return None


def _tight(x: Linear) -> Linear:
    """Return a constraint divided by what its factors have in common, for integers."""
    common = math.gcd(*(c for _, c in x.terms)) if x.terms else 1
    if common <= 1:
        return x
    return Linear(tuple((s, c // common) for s, c in x.terms), x.constant // common)
