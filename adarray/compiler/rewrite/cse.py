"""Common subexpressions: equal values are computed once.

References
----------
- P. Briggs, K. D. Cooper, L. T. Simpson, "Value numbering", Software: Practice and Experience 27
  (1997), 701-724.
"""

from __future__ import annotations

from collections.abc import Hashable

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import Map, PythonCall
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.dead import is_pure
from adarray.compiler.rewrite.rebuild import keep, rebuild

# Of equal value whichever operand comes first.
_COMMUTATIVE = frozenset({
    "add", "multiply", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor",
})  # fmt: skip


def cse(program: Program) -> Program:
    """Return the program with one value in place of all that are equal."""
    known: dict[Hashable, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        key = _key(v, args)
        if key is None:
            return keep(b, v, args)
        first = known.get(key)
        if first is None:
            first = known[key] = keep(b, v, args)
        return first

    return rebuild(program, rule)


def _key(v: Value, args: tuple[Value, ...]) -> Hashable:
    """Return what equal values have in common, None for one that is like no other."""
    p = v.primitive
    if isinstance(p, Map):
        both = p.name in _COMMUTATIVE and len(args) == 2
        return (p, frozenset(args) if both else args, v.dtype)
    if isinstance(p, PythonCall):
        if not is_pure(p.function):
            return None
        try:
            hash(p)
        except TypeError:
            return None
    return (p, args, v.shape, v.dtype)
