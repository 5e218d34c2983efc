"""Taylor mode: truncated power series pushed through operations, one after the other.

A handle that moves along a curve ``x(t) = x0 + c1 t + c2 t**2 + ...`` has its coefficients as
tangents at as many levels, which belong together; so views, writes in place, and transforms around
and inside treat each of them as they treat a tangent, which is right since all of that is linear.
Only what happens at an operation is different: it is not linear.

Products, quotients and some functions have recurrences. Any other operation follows from its
derivative rule: ``y' = rule(x', y, x)`` holds for series too, so the rule is run on series, of one
order less, and what comes out is integrated. Where the rule reads the result, that goes order by
order.

References
----------
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 13.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.base.op import Contraction, Gather, Layout, Op, Scatter
from adarray.core.dispatch import jvp_rule, run
from adarray.core.tangents import SERIES, attach, inexact, save_tangents, tangent_of, unrecorded
from adarray.core.trace import Extras, Handle, snapshot

Coefficients = list[Any]  # of t, t**2, ...; None for zero
# What none of whose rules reads the result.
_LINEAR = (Layout, Gather, Scatter)


class Series:
    """The levels that hold the coefficients of one `jet`.

    Parameters
    ----------
    levels : sequence of int
        Ascending: those of t, t**2, ...

    Attributes
    ----------
    order : int
        The coefficients that are computed at present.
    """

    def __init__(self, levels: Sequence[int]) -> None:
        self.levels = tuple(levels)
        self.order = len(self.levels)
        self._all = frozenset(levels)
        for level in self.levels:
            SERIES[level] = self

    def close(self) -> None:
        """Forget the levels: their traces are over."""
        for level in self.levels:
            del SERIES[level]

    # -- handles -----------------------------------------------------------------------------

    def strip(self, x: Any) -> Any:
        """Return an operand without its coefficients."""
        if not isinstance(x, Handle) or x._x is None or not x._x.tangents:
            return x
        rest = tuple(t for t in x._x.tangents if t.level not in self._all)
        more = Extras(tangents=rest, weak=x._x.weak) if rest or x._x.weak else None
        return type(x)(x._plain, x._node, more, x._frozen)

    def coefficients(self, x: Any) -> Coefficients:
        """Return the coefficients of an operand, as many as are computed."""
        return [tangent_of(x, level) for level in self.levels[: self.order]]

    def along(self, primal: Any, coefficients: Coefficients) -> Any:
        """Return a value with coefficients."""
        out = snapshot(primal) if isinstance(primal, Handle) else Handle.array_class(primal)
        self.attach(out, coefficients)
        return out

    def attach(self, x: Handle, coefficients: Coefficients) -> None:
        """Give a value its coefficients."""
        for level, c in zip(self.levels, coefficients, strict=False):
            if c is not None:
                attach(x, level, self.strip(c))

    # -- operations --------------------------------------------------------------------------

    def push(
        self, op: Op, operands: tuple[Any, ...], primals: tuple[Any, ...], params: dict[str, Any],
        out: Any,
    ) -> Any:  # fmt: skip
        """Give the result of an operation its coefficients, and return it.

        Parameters
        ----------
        op : Op
        operands, primals : tuple
            With their coefficients, and without.
        params : dict
        out : ADArray or tuple of them
            The result for the primals.
        """
        moving = [self.coefficients(x) for x in operands]
        if not any(c is not None for coefficients in moving for c in coefficients):
            return out
        first = self.levels[0]
        values = tuple(unrecorded(x, first) for x in primals)
        several = isinstance(out, tuple)
        seen = tuple(unrecorded(x, first) for x in out) if several else unrecorded(out, first)
        recurrence = None if params else RECURRENCES.get(op.name)
        single: Coefficients | None = None
        if recurrence is not None and op.pointwise:
            single = recurrence(self.order, seen, values, moving)
        elif not several and (op.jvp == "linear" or isinstance(op.lower, Contraction)):
            single = self._products(op, values, moving, params)
        if single is not None:
            series = [single]
        else:
            series = self._by_rules(op, operands, moving, params, seen if several else (seen,))
        results = out if several else (out,)
        for x, c in zip(results, series, strict=True):
            if inexact(op, x._plain):
                self.attach(x, c)
        self._save(results, operands, several)
        return out

    @staticmethod
    def _save(results: tuple[Any, ...], operands: tuple[Any, ...], several: bool) -> None:
        """Keep the coefficients of what a node saved, for rules that are differentiated."""
        recorded = [x for x in results if x._node is not None]
        if not recorded:
            return
        node = recorded[0]._node
        if not several:
            save_tangents(node, (results[0], *operands))
            return
        node = node.parents[0]
        save_tangents(node, (results, *operands))
        for x in recorded:
            x._node.span = node.span

    def _products(
        self, op: Op, primals: tuple[Any, ...], moving: list[Coefficients], params: dict[str, Any]
    ) -> Coefficients:
        """Return the coefficients of a result that is linear in each operand."""
        which = [
            i for i, coefficients in enumerate(moving) if any(c is not None for c in coefficients)
        ]
        totals: Coefficients = []
        for k in range(1, self.order + 1):
            total: Any = None
            for orders in _compositions(k, len(which)):
                values = list(primals)
                for i, j in zip(which, orders, strict=True):
                    values[i] = primals[i] if j == 0 else moving[i][j - 1]
                if all(v is not None for v in values):
                    total = plus(total, run(op, *values, **params))
            totals.append(total)
        return totals

    def _by_rules(
        self,
        op: Op,
        operands: tuple[Any, ...],
        moving: list[Coefficients],
        params: dict[str, Any],
        out: tuple[Any, ...],
    ) -> list[Coefficients]:
        """Return the coefficients of results by the rules of the operation, run on series."""
        which = [
            i for i, coefficients in enumerate(moving) if any(c is not None for c in coefficients)
        ]
        order = self.order
        series: list[Coefficients] = [[] for _ in out]
        reads = not isinstance(op.lower, _LINEAR)
        if op.pointwise:
            reads = op.plan(sum(1 << i for i in which))[0]
        steps = range(1, order + 1) if reads else (order,)
        try:
            for known in steps:
                self.order = known - 1
                results = tuple(self.along(x, c) for x, c in zip(out, series, strict=True))
                slopes = self._slopes(op, operands, moving, which, params, results, known)
                for k, slope in enumerate(slopes):
                    begin = len(series[k])
                    for j in range(begin, known):
                        c = None if slope is None else self._coefficient(slope, j)
                        series[k].append(None if c is None else c / (j + 1))
        finally:
            self.order = order
        return series

    def _slopes(
        self,
        op: Op,
        operands: tuple[Any, ...],
        moving: list[Coefficients],
        which: list[int],
        params: dict[str, Any],
        results: tuple[Any, ...],
        known: int,
    ) -> list[Any]:
        """Return the derivatives of the results along the curve, as series."""
        out = results[0] if op.outputs == 1 else results
        slopes: list[Any] = [None] * len(results)
        for i in which:
            t = self._velocity(operands[i], moving[i][:known])
            parts = jvp_rule(op, i, t, out, operands, params)
            if op.outputs == 1:
                parts = (parts,)
            slopes = [plus(s, p) for s, p in zip(slopes, parts, strict=True)]
        return slopes

    def _velocity(self, x: Any, c: Coefficients) -> Any:
        """Return the derivative of a series, itself one; None for zero."""
        if all(k is None for k in c):
            return None
        begin = c[0] if c[0] is not None else np.zeros_like(self.strip(x))
        return self.along(begin, [None if k is None else k * (j + 2) for j, k in enumerate(c[1:])])

    def by_rule(
        self, leaves: list[Any], results: list[Any], rule: Callable[[list[Any]], list[Any]]
    ) -> None:
        """Give results their coefficients by a rule that takes and returns tangents.

        Parameters
        ----------
        leaves : list
            What moves, with its coefficients, which the rule reads as well.
        results : list
            The values.
        rule : callable
            Takes a tangent for each leaf, returns one for each result; None is zero.
        """
        order, moving = self.order, [self.coefficients(x) for x in leaves]
        if not order:
            return
        try:
            self.order = order - 1
            pairs = zip(leaves, moving, strict=True)
            slopes = rule([self._velocity(x, c) for x, c in pairs])
        finally:
            self.order = order
        for x, slope in zip(results, slopes, strict=True):
            if slope is not None and isinstance(x, Handle):
                rates = [self._coefficient(slope, j) for j in range(order)]
                self.attach(x, [None if c is None else c / (j + 1) for j, c in enumerate(rates)])

    def _coefficient(self, x: Any, j: int) -> Any:
        """Return coefficient `j` of a series, 0 for its value."""
        if j == 0:
            return self.strip(x)
        return tangent_of(x, self.levels[j - 1])


def plus(x: Any, y: Any) -> Any:
    """Return a sum in which None is zero."""
    if x is None or y is None:
        return y if x is None else x
    return x + y


def _compositions(k: int, parts: int) -> Any:
    """Yield the tuples of `parts` numbers of which the sum is `k`."""
    for cuts in itertools.combinations(range(k + parts - 1), parts - 1):
        ends = (-1, *cuts, k + parts - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


# -- recurrences: see A. Griewank, A. Walther, Evaluating Derivatives, 2nd ed., chapter 13 -----

Recurrence = Callable[[int, Any, tuple[Any, ...], list[Coefficients]], Coefficients | None]
RECURRENCES: dict[str, Recurrence] = {}


def _recurrence(*names: str) -> Callable[[Recurrence], Recurrence]:
    def note(function: Recurrence) -> Recurrence:
        for name in names:
            RECURRENCES[name] = function
        return function

    return note


def times(x: Any, y: Any) -> Any:
    """Return a product in which None is zero."""
    return None if x is None or y is None else x * y


def convolved(x: Sequence[Any], y: Sequence[Any], low: int, high: int, k: int) -> Any:
    """Return the sum of ``x[j] * y[k - j]`` for j from `low` to `high`."""
    total: Any = None
    for j in range(low, high + 1):
        total = plus(total, times(x[j], y[k - j]))
    return total


def weighted(x: Sequence[Any], y: Sequence[Any], high: int, k: int) -> Any:
    """Return the sum of ``j * x[j] * y[k - j]`` for j from 1 to `high`, divided by k."""
    total: Any = None
    for j in range(1, high + 1):
        part = times(x[j], y[k - j])
        total = plus(total, None if part is None else part * (j / k))
    return total


def minus(x: Any) -> Any:
    """Return the negative, None for None."""
    return None if x is None else -x


@_recurrence("add")
def _add(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    return [plus(x, y) for x, y in zip(*c, strict=True)]


@_recurrence("subtract")
def _subtract(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    return [plus(x, minus(y)) for x, y in zip(*c, strict=True)]


@_recurrence("negative")
def _negative(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    return [minus(x) for x in c[0]]


@_recurrence("multiply")
def _multiply(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    x, y = [primals[0], *c[0]], [primals[1], *c[1]]
    return [convolved(x, y, 0, k, k) for k in range(1, n + 1)]


@_recurrence("square")
def _square(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    x = [primals[0], *c[0]]
    return [convolved(x, x, 0, k, k) for k in range(1, n + 1)]


@_recurrence("divide")
def _divide(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:
    series, y = [out], [primals[1], *c[1]]
    for k in range(1, n + 1):
        rest = plus(c[0][k - 1], minus(convolved(y, series, 1, k, k)))
        series.append(None if rest is None else rest / primals[1])
    return series[1:]


@_recurrence("exp")
def _exp(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    series, x = [out], [None, *c[0]]
    for k in range(1, n + 1):
        series.append(weighted(x, series, k, k))
    return series[1:]


@_recurrence("log")
def _log(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:
    series, x = [out], [primals[0], *c[0]]
    for k in range(1, n + 1):
        rest = plus(x[k], minus(weighted(series, x, k - 1, k)))
        series.append(None if rest is None else rest / primals[0])
    return series[1:]


def _turning(sign: float, f: Any, g: Any) -> tuple[Recurrence, Recurrence]:
    """Return the recurrences of `f` and `g`, where f' is g and g' is f times a sign."""

    def both(n: int, s: Any, t: Any, c: Coefficients) -> tuple[Coefficients, Coefficients]:
        series, other, x = [s], [t], [None, *c]
        for k in range(1, n + 1):
            series.append(weighted(x, other, k, k))
            down = weighted(x, series, k, k)
            other.append(minus(down) if sign < 0 else down)
        return series[1:], other[1:]

    def first(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:
        return both(n, out, g(primals[0]), c[0])[0]

    def second(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:
        return both(n, f(primals[0]), out, c[0])[1]

    return first, second


RECURRENCES["sin"], RECURRENCES["cos"] = _turning(-1.0, np.sin, np.cos)
RECURRENCES["sinh"], RECURRENCES["cosh"] = _turning(1.0, np.sinh, np.cosh)


def _by_square(sign: float) -> Recurrence:
    """Return the recurrence of y where y' = (1 + sign y**2) x'."""

    def rule(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
        series, x, slope = [out], [None, *c[0]], [1.0 + sign * (out * out)]
        for k in range(1, n + 1):
            series.append(weighted(x, slope, k, k))
            part = convolved(series, series, 0, k, k)
            slope.append(None if part is None else sign * part)
        return series[1:]

    return rule


RECURRENCES["tan"], RECURRENCES["tanh"] = _by_square(1.0), _by_square(-1.0)


@_recurrence("sqrt")
def _sqrt(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    series = [out]
    for k in range(1, n + 1):
        rest = plus(c[0][k - 1], minus(convolved(series, series, 1, k - 1, k)))
        series.append(None if rest is None else rest * 0.5 / out)
    return series[1:]


@_recurrence("power")
def _power(
    n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]
) -> Coefficients | None:
    """Return those of a power: by products, by the logarithm, or None: by its rule."""
    x, y = primals
    if any(k is not None for k in c[1]):
        logarithm = np.log(x)
        rest = RECURRENCES["log"](n, logarithm, (x,), [c[0]]) or []
        log = [logarithm, *rest]
        exponent = [convolved([y, *c[1]], log, 0, k, k) for k in range(1, n + 1)]
        return RECURRENCES["exp"](n, out, primals, [exponent])
    whole = y if isinstance(y, int) else int(y) if isinstance(y, float) and y % 1 == 0 else -1
    if not 1 <= whole <= _LARGEST:
        return None
    return _whole_power(n, x, c[0], whole)


# Exponents up to which a power is a product.
_LARGEST = 64


def _whole_power(n: int, x: Any, c: Coefficients, exponent: int) -> Coefficients:
    """Return the coefficients of a whole power, by squaring."""
    base, power = [x, *c], None
    while True:
        if exponent % 2:
            power = base if power is None else _product(n, power, base)
        exponent //= 2
        if not exponent:
            assert power is not None
            return power[1:]
        base = _product(n, base, base)


def _product(n: int, x: Coefficients, y: Coefficients) -> Coefficients:
    return [convolved(x, y, 0, k, k) for k in range(n + 1)]


@_recurrence("where")
def _where(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
    return [
        None if x is None and y is None
        else np.where(primals[0], 0.0 if x is None else x, 0.0 if y is None else y)
        for x, y in zip(c[1], c[2], strict=True)
    ]  # fmt: skip


def _chosen(larger: Any) -> Recurrence:
    """Return the recurrence of a maximum or minimum: ties share."""

    def rule(n: int, out: Any, primals: tuple[Any, ...], c: list[Coefficients]) -> Coefficients:  # noqa: ARG001
        first, tied = larger(primals[0], primals[1]), np.equal(primals[0], primals[1])
        series: Coefficients = []
        for x, y in zip(*c, strict=True):
            x, y = 0.0 if x is None else x, 0.0 if y is None else y
            series.append(np.where(tied, 0.5 * (x + y), np.where(first, x, y)))
        return series

    return rule


RECURRENCES["maximum"], RECURRENCES["minimum"] = _chosen(np.greater), _chosen(np.less)
