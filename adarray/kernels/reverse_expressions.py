"""The expressions of a kernel backwards: derivatives by what they read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    Let,
    Var,
)
from adarray.kernels import build
from adarray.kernels.activity import Activity, dependent
from adarray.kernels.functions import NAMED, PARTIALS
from adarray.kernels.needs import Needs
from adarray.kernels.reload import Apart, Reload, Settled
from adarray.kernels.ssa import (
    Def,
    Node,
    SsaProgram,
)


def shadow(name: str) -> str:
    """Return the name of a value's derivative in the reverse sweep."""
    return f"{name}__b"


def _is_finite(partial: Expr) -> bool:
    """Whether a derivative is a finite number of the text."""
    return isinstance(partial, Const) and math.isfinite(partial.value)


class ReverseExpressions:
    """Adds the derivatives by the operands of expressions."""

    def __init__(
        self, program: SsaProgram, active: Activity, needs: Needs, apart: Apart | None = None
    ) -> None:
        self.program = program
        self.reload = Reload(program, needs, apart or Settled())
        self.active = active
        self.live: set[str] = set()  # values whose derivative something has been added to
        self.count = 0
        self.at: Node | None = None  # whose adjoint is written
        self.calls: dict[Expr, list[Def]] = {}
        for n in program.nodes:
            if isinstance(n, Def) and isinstance(n.value, Apply) and n.value.name in NAMED:
                self.calls.setdefault(n.value, []).append(n)
        self.divisors = Counter(
            n.value.args[1]
            for n in program.nodes
            if isinstance(n, Def) and isinstance(n.value, Apply) and n.value.name == "divide"
        )
        self.reciprocals: list[dict[Expr, Expr]] = [{}]

    def renamed(self, name: str) -> str:
        """Return the name that a value has in the reverse sweep."""
        in_loop = name in self.program.values and self.program.home(name) is not None
        return f"{name}__r" if in_loop else name

    def known(self, e: Expr) -> Expr:
        """Return an expression with the names of functions that the kernel calls there."""
        if not isinstance(e, Apply):
            return e
        at = self.at
        for d in self.calls.get(e, ()):
            if at is not None and d.home is at.home and (not d.branches or d.block == at.block):
                return Var(e.dtype, d.name)
        return Apply(e.dtype, e.name, tuple(map(self.known, e.args)))

    def read(self, e: Expr, out: list[Any]) -> Expr:
        """Return an expression as the reverse half reads it, after what `out` gets for it."""
        e = self.known(e)
        self.reload.bring(e, self.shown, out)
        return self.shown(e)

    def shown(self, e: Expr) -> Expr:
        """Return an expression with the names of the reverse half."""
        if isinstance(e, Var):
            return Var(e.dtype, self.reload.name(e.name) or self.renamed(e.name))
        if isinstance(e, Apply):
            return Apply(e.dtype, e.name, tuple(map(self.shown, e.args)))
        return e

    def add(self, name: str, value: Expr, out: list[Any]) -> None:
        """Add to the derivative by a value."""
        if build.is_zero(value):
            return
        self.live.add(name)
        b = Var(value.dtype, shadow(name))
        out.append(Assign(b.name, build.add(b, value)))

    def push(self, e: Expr, g: Expr, out: list[Any], result: Expr | None = None) -> None:
        """Add the derivatives by what is in an expression whose own derivative is `g`."""
        if isinstance(e, Var):
            if e.name in self.active.values:
                self.add(e.name, g, out)
            return
        if not isinstance(e, Apply) or not dependent(e, self.active.values) or build.is_zero(g):
            return
        if e.name == "cast":
            self.push(e.args[0], build.cast(g, e.args[0].dtype), out)
            return
        moving = [a for a in e.args if dependent(a, self.active.values)]
        if len(moving) > 1 and not build.is_simple(g):
            g = self.named(g, out)
        g = self._compared(e, g, out)
        if e.name == "where":
            condition = self.read(e.args[0], out)
            zero = build.const(0, g.dtype)
            self.push(e.args[1], build.where(condition, g, zero), out)
            self.push(e.args[2], build.where(condition, zero, g), out)
            return
        if e.name == "divide":
            self._divide(e, g, out, result)
            return
        if e.name == "multiply" and e.args[0] == e.args[1]:
            twice = build.multiply(build.const(2, e.dtype), self.read(e.args[0], out))
            self.push(e.args[0], self._strong_zero(e, g, build.multiply(g, twice), out), out)
            return
        partials = PARTIALS[e.name](e.args, result if result is not None else e)
        for a, p in zip(e.args, partials, strict=True):
            if p is not None and dependent(a, self.active.values) and not build.is_zero(p):
                share = build.multiply(g, self.read(p, out))
                if not _is_finite(p):
                    share = self._strong_zero(e, g, share, out)
                self.push(a, share, out)

    def _compared(self, e: Apply, g: Expr, out: list[Any]) -> Expr:
        """Return the derivative of a function with a name, if it will be compared with 0."""
        compares = e.name in self.program.skips
        return self.named(g, out) if compares and not build.is_simple(g) else g

    def _strong_zero(self, e: Apply, g: Expr, share: Expr, out: list[Any]) -> Expr:
        """Return the derivative by an operand: 0 for nan where that of the result, `g`, is 0.

        Only for nan: where `g` is 0 by chance, its own tangent counts.
        """
        if e.name not in self.program.skips:
            return share
        if e.name == "divide" and isinstance(e.args[1], Const) and e.args[1].value:
            return share
        if not build.is_simple(share):
            share = self.named(share, out)
        return build.strong_zero(g, share)

    def _divide(self, e: Apply, g: Expr, out: list[Any], result: Expr | None) -> None:
        """Add the derivatives of a quotient, with at most one more division for both."""
        top, bottom = e.args
        if isinstance(top, Const) and abs(math.frexp(top.value)[0]) == 0.5:
            # Of c / x, where multiplying by 1 / c is exact: - g y^2 / c, without a division.
            quotient = self.read(result if result is not None else e, out)
            scaled = build.multiply(build.multiply(g, quotient), quotient)
            inverse = build.const(1 / top.value, g.dtype)
            share = build.negative(build.multiply(scaled, inverse))
            self.push(bottom, self._strong_zero(e, g, share, out), out)
            return
        share = self._strong_zero(e, g, self._over(g, bottom, out), out)
        if dependent(bottom, self.active.values):
            share = self.named(share, out)
            quotient = self.read(result if result is not None else e, out)
            by_bottom = build.negative(build.multiply(share, quotient))
            self.push(bottom, self._strong_zero(e, g, by_bottom, out), out)
        self.push(top, share, out)

    def _over(self, g: Expr, bottom: Expr, out: list[Any]) -> Expr:
        """Return a quotient; what divides several times is inverted once."""
        if self.divisors[bottom] < 2:
            return build.divide(g, self.read(bottom, out))
        known = next((r[bottom] for r in self.reciprocals if bottom in r), None)
        if known is None:
            one = build.const(1, g.dtype)
            known = self.named(build.divide(one, self.read(bottom, out)), out)
            self.reciprocals[-1][bottom] = known
        return build.multiply(g, known)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Make what is inverted inside known there alone."""
        self.reciprocals.append({})
        self.reload.scopes.append({})
        yield
        self.reload.scopes.pop()
        self.reciprocals.pop()

    def named(self, g: Expr, out: list[Any]) -> Expr:
        """Return a derivative by a name of its own."""
        self.count += 1
        out.append(Let(f"g__{self.count}", g))
        return Var(g.dtype, f"g__{self.count}")
