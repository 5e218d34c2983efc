"""Common subexpressions: equal values are computed once.

References
----------
- P. Briggs, K. D. Cooper, L. T. Simpson, "Value numbering", Software: Practice and Experience 27
  (1997), 701-724.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.program import Program, Slot, Value
from adarray.compiler.rewrite.dead import pure
from adarray.compiler.rewrite.rebuild import keep, rebuild

# Of equal value whichever operand comes first.
_COMMUTATIVE = frozenset({
    "add", "multiply", "equal", "not_equal", "logical_and", "logical_or", "logical_xor",
    "bitwise_and", "bitwise_or", "bitwise_xor",
})  # fmt: skip
# Arrays of more bytes are compared by identity.
_SMALL = 1 << 16


def cse(program: Program) -> Program:
    """Return the program with one value in place of all that are equal."""
    known: dict[Any, Value] = {}

    def rule(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
        key = _key(v, args)
        found = known.get(key) if key is not None else None
        if found is not None:
            return found
        made = keep(b, v, args)
        if key is not None:
            known[key] = made
        return made

    return rebuild(program, rule)


def _key(v: Value, args: tuple[Value, ...]) -> Any:
    """Return what equal values have in common, None for one that is like no other."""
    ids = tuple(map(id, args))
    p = v.params
    if v.kind == "map":
        if p["name"] in _COMMUTATIVE and len(ids) == 2 and ids[1] < ids[0]:
            ids = (ids[1], ids[0])
        return ("map", p["name"], ids, v.dtype)
    if v.kind == "const":
        return ("const", v.dtype, p["value"].tobytes())
    if v.kind == "array":
        x = p["value"]
        return ("array", id(x)) if x.nbytes > _SMALL else ("array", v.dtype, v.shape, x.tobytes())
    if v.kind == "call":
        if not pure(v):
            return None
        try:
            frozen = _frozen((p["args"], p["kwargs"], p.get("results")))
            key = ("call", p["function"], ids, frozen, v.shape, v.dtype)
            hash(key)
        except TypeError:
            return None
        return key
    return (v.kind, ids, tuple(p.values()), v.shape)


def _frozen(x: Any) -> Any:
    """Return arguments as something that can be hashed; types count, since 1 == 1.0 == True."""
    if isinstance(x, tuple):
        return ("tuple", *map(_frozen, x))
    if isinstance(x, list):
        return ("list", *map(_frozen, x))
    if isinstance(x, dict):
        return ("dict", *((k, _frozen(i)) for k, i in sorted(x.items())))
    if isinstance(x, slice):
        return ("slice", _frozen(x.start), _frozen(x.stop), _frozen(x.step))
    if isinstance(x, np.ndarray):
        if x.nbytes > _SMALL or x.dtype.hasobject:
            return ("array", id(x))
        return ("array", x.dtype, x.shape, x.tobytes())
    if isinstance(x, (float, complex, np.generic)):
        return (type(x), repr(x))
    return x if isinstance(x, Slot) else (type(x), x)
