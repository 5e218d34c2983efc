"""What iterations of a loop do to a variable from outside that each of them may set.

A variable is *added to* if each iteration leaves it at what it was plus something that does not
depend on it; *the same*, if each leaves it as it was, whatever it was meanwhile, as adjoints do
with the cotangent of a sum; *marked*, if each leaves it as it was or sets one constant. In the
first and the last case nothing else may depend on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    Local,
    Store,
    Var,
)
from adarray.compiler.ir.threads import Pop, Stmt, While, operands
from adarray.kernels.types import FLOATS

# How a value depends on the variable's value before the iteration. "either": it is that, or a
# constant; "plus": that and something independent.
Value = tuple[str, Any]
_FREE: Value = ("free", None)
_SAME: Value = ("same", None)
_PLUS: Value = ("plus", None)
_OTHER: Value = ("other", None)
_ROUNDS = 8

ADDED, STEADY, MARKED = "added to", "the same", "marked"


def _is_independent(v: Value) -> bool:
    return v[0] in ("free", "constant")


def _merged(a: Value, b: Value) -> Value:
    """Return what is known of a value that is one of two."""
    if a == b:
        return a
    if _is_independent(a) and _is_independent(b):
        return _FREE
    kinds = {a[0], b[0]}
    if kinds == {"same", "plus"}:
        return _PLUS
    constants = {v[1] for v in (a, b) if v[0] in ("constant", "either")}
    if kinds <= {"same", "constant", "either"} and len(constants) == 1:
        return ("either", constants.pop())
    return _OTHER


class _Run:
    """Goes through an iteration once, with what is known of each variable."""

    def __init__(self, name: str) -> None:
        self.values: dict[str, Value] = {name: _SAME}
        self.is_used = False  # whether something else depends on the variable

    def use(self, e: Expr) -> None:
        """Note that something else depends on an expression."""
        if not _is_independent(self.value(e)):
            self.is_used = True

    def value(self, e: Expr) -> Value:
        """Return what is known of an expression."""
        if isinstance(e, Const):
            return ("constant", e.value)
        if isinstance(e, Var):
            return self.values.get(e.name, _FREE)
        if isinstance(e, Load):
            self.use(e.index)
            return _FREE
        assert isinstance(e, Apply)
        args = [self.value(a) for a in e.args]
        if e.name in ("add", "subtract") and e.dtype in FLOATS:
            if args[1] == ("constant", 0.0):
                return args[0]
            if e.name == "add" and args[0] == ("constant", 0.0):
                return args[1]
            sums = args if e.name == "add" else args[:1]
            for k, a in enumerate(sums):
                if a[0] in ("same", "plus") and _is_independent(args[1 - k]):
                    return _PLUS
        if e.name == "where":
            self.use(e.args[0])
            return _merged(args[1], args[2])
        return _FREE if all(map(_is_independent, args)) else _OTHER

    def run(self, body: Iterable[Stmt]) -> None:
        """Go through statements."""
        for s in body:
            if isinstance(s, (Let, Assign)):
                self.values[s.name] = self.value(s.value)
            elif isinstance(s, Local):
                zero = ("constant", 0.0) if s.dtype in FLOATS else ("constant", 0)
                self.values[s.name] = zero if s.init is None else self.value(s.init)
            elif isinstance(s, If):
                self.use(s.condition)
                before = dict(self.values)
                self.run(s.body)
                after, self.values = self.values, before
                self.run(s.orelse)
                self._merge(after)
            elif isinstance(s, (For, While)):
                self._loop(s)
            elif isinstance(s, Pop):
                self.values[s.name] = _FREE
            else:
                if isinstance(s, Store) and not _is_independent(self.value(s.value)):
                    self.is_used = True
                for e in operands(s):
                    self.use(e)

    def _loop(self, s: For | While) -> None:
        for e in operands(s):
            self.use(e)
        for _ in range(_ROUNDS):
            if isinstance(s, While) and not _is_independent(self.values.get(s.condition, _FREE)):
                self.is_used = True
            before = dict(self.values)
            self.run(s.body)
            self._merge(before)
            if self.values == before:
                return
        self.values = dict.fromkeys(self.values, _OTHER)

    def _merge(self, others: dict[str, Value]) -> None:
        names = self.values.keys() | others.keys()
        # A name that one branch alone has is not seen behind them.
        self.values = {
            n: _merged(self.values[n], others[n])
            if n in self.values and n in others
            else self.values.get(n, others.get(n, _FREE))
            for n in names
        }


def carried(
    body: Iterable[Stmt], name: str, dtype: str, names: Set[str]
) -> tuple[str, Any] | None:  # fmt: skip
    """Return what iterations do to a variable, and the constant that they may set; None: anything.

    Parameters
    ----------
    body : iterable of Stmt
        Of one iteration.
    name, dtype : str
        A variable from outside.
    names : set of str
        All variables from outside that iterations set.
    """
    run = _Run(name)
    run.run(body)
    if not all(_is_independent(run.values[n]) for n in names if n != name):
        run.is_used = True
    kind, constant = run.values[name]
    if kind == "same":
        return STEADY, None
    if run.is_used:
        return None
    if kind == "plus" and dtype in FLOATS:
        return ADDED, None
    if kind in ("either", "constant") and dtype not in FLOATS:
        return MARKED, constant
    return None
