"""Scalar expressions: what one element of a pointwise operation computes.

A `ScalarExpr` is what a derivative rule or a `Pointwise` lowering returns when it is
called with symbols instead of arrays. Since the rules are written with operators
and ``np.*`` functions, the same text serves arrays (it computes), ADArrays (it
records) and symbols (it is printed as C).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adarray.base.types import Function, Operands, Params

COMPARISONS = frozenset({"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"})
PREDICATES = frozenset({"isnan", "isinf", "isfinite", "signbit"})
LOGICAL = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
BITWISE = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not"}


class ScalarExpr:
    """A frozen scalar expression.

    Attributes
    ----------
    op : str
        ``"var"``, ``"const"``, or the name of a NumPy function.
    args : tuple of ScalarExpr
        Operands; empty for leaves.
    value : str or bool or int or float or None
        Name of a variable or value of a constant.
    """

    __slots__ = ("args", "op", "value")

    def __init__(self, op: str, args: tuple[ScalarExpr, ...] = (), value: Any = None) -> None:
        self.op = op
        self.args = args
        self.value = value

    @property
    def is_bool(self) -> bool:
        """Whether the expression is a truth value rather than a number."""
        if self.op in COMPARISONS or self.op in PREDICATES or self.op in LOGICAL:
            return True
        if self.op == "where":
            return self.args[1].is_bool and self.args[2].is_bool
        return self.op == "const" and isinstance(self.value, bool)

    def walk(self) -> Iterator[ScalarExpr]:
        """Yield this expression and all below it, operands first."""
        for arg in self.args:
            yield from arg.walk()
        yield self

    def __repr__(self) -> str:
        if self.op in ("var", "const"):
            return str(self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})"

    def __bool__(self) -> bool:
        raise TypeError(
            "scalar expression: a rule looked at the truth of a symbol; "
            "write np.where(condition, a, b) instead of `if`"
        )

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: object, **kwargs: object
    ) -> object:
        if method != "__call__" or kwargs:
            return NotImplemented
        return call(ufunc.__name__, *inputs)

    def __array_function__(
        self, func: Function, types: object, args: Operands, kwargs: Params
    ) -> object:
        if kwargs or func is not np.where:
            return NotImplemented
        return call("where", *args)


def var(name: str) -> ScalarExpr:
    """Return the symbol `name`."""
    return ScalarExpr("var", value=name)


def as_expr(value: object) -> ScalarExpr:
    """Return `value` as an expression: symbols as they are, numbers as constants."""
    if isinstance(value, ScalarExpr):
        return value
    if isinstance(value, (bool, np.bool_)):
        return ScalarExpr("const", value=bool(value))
    if isinstance(value, (int, float, np.integer, np.floating)):
        return ScalarExpr("const", value=value.item() if isinstance(value, np.generic) else value)
    raise TypeError(f"scalar expression: {type(value).__name__} is not a number or a symbol")


def call(name: str, *args: object) -> ScalarExpr:
    """Return the expression that applies the NumPy function `name` to `args`."""
    operands = tuple(as_expr(a) for a in args)
    if name in BITWISE and all(a.is_bool for a in operands):
        name = BITWISE[name]
    return ScalarExpr({"true_divide": "divide", "abs": "absolute"}.get(name, name), operands)


def variables(expr: ScalarExpr) -> frozenset[str]:
    """Return the names of the symbols that `expr` reads."""
    return frozenset(e.value for e in expr.walk() if e.op == "var")


def _operator(name: str, swapped: bool = False) -> Callable[..., ScalarExpr]:
    def method(self: ScalarExpr, *others: object) -> ScalarExpr:
        return call(name, *others, self) if swapped else call(name, self, *others)

    return method


for _symbol, _name in {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power",
    "mod": "remainder", "floordiv": "floor_divide", "and": "bitwise_and", "or": "bitwise_or",
}.items():  # fmt: skip
    setattr(ScalarExpr, f"__{_symbol}__", _operator(_name))
    setattr(ScalarExpr, f"__r{_symbol}__", _operator(_name, swapped=True))
for _symbol, _name in {
    "neg": "negative", "abs": "absolute", "invert": "invert", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal", "eq": "equal", "ne": "not_equal",
}.items():  # fmt: skip
    setattr(ScalarExpr, f"__{_symbol}__", _operator(_name))
