"""Constant folding: what depends on constants alone is computed now.

References
----------
- M. N. Wegman, F. K. Zadeck, "Constant propagation with conditional branches", ACM Trans. Program.
  Lang. Syst. 13 (1991), 181-210.
"""

from __future__ import annotations

import math

import numpy as np

from adarray.compiler.ir.builder import BOOL, PRINTABLE, Builder, uniform
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import keep, rebuild, renewed

# Results of more elements are left to run time: constants take memory.
LIMIT = 4096
_COMPUTED = frozenset({"map", "reduce", "gather", "scatter", "place", "join", "scan", "dot"})


def fold(program: Program) -> Program:
    """Return the program with constants in place of what is the same in every run."""
    return rebuild(program, folded)


def folded(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Make one value again, computed if its operands are constant."""
    if v.kind == "map" and not _folds(args):
        return renewed(b, v, args)
    if v.kind == "array":
        return keep(b, v, args) if v.size > LIMIT else b.array(v.params["value"])
    made = _of_uniform(b, v, args)
    if made is not None:
        return made
    if v.kind in _COMPUTED and v.size <= LIMIT and args and all(map(_constant, args)):
        return _computed(b, v, args)
    return renewed(b, v, args)


def _folds(args: tuple[Value, ...]) -> bool:
    """Whether there may be something to fold in a map: not so of numbers and run-time values."""
    numbers = 0
    for a in args:
        if a.kind == "const":
            numbers += 1
        elif a.kind in ("array", "view"):
            return True
    return numbers == len(args)


def _constant(x: Value) -> bool:
    """Whether a value is an array of constants, a number, or a view of one."""
    while x.kind == "view":
        x = x.args[0]
    return x.kind == "const" or (x.kind == "array" and x.size <= 4 * LIMIT)


def _computed(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return a value computed by NumPy, with its operands and all that they are views of."""
    values: list[Value] = []
    todo = list(args)
    while todo:
        x = todo.pop()
        values.append(x)
        todo.extend(x.args)
    last = Value(v.kind, args, v.params, v.shape, v.dtype)
    unique = list(dict.fromkeys(reversed(values)))
    with np.errstate(all="ignore"):
        (r,) = interpret(Program([], [*unique, last], [last]), [])
    return b.array(np.asarray(r, v.dtype))


def _of_uniform(b: Builder, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Return what becomes of arrays that have one number everywhere."""
    if v.kind not in ("reduce", "gather", "join", "place", "scatter") or v.dtype not in PRINTABLE:
        return None
    c = uniform(args[0])
    if c is None:
        return None
    if v.kind == "gather":
        return b.broadcast(c, v.shape)
    if v.kind == "join":
        return b.broadcast(c, v.shape) if all(uniform(a) is c for a in args) else None
    if v.kind in ("place", "scatter"):
        same = not v.params["add"] and uniform(args[1]) is c
        return b.broadcast(c, v.shape) if same else None
    return _fold_of_uniform(b, v, args[0], c)


def _fold_of_uniform(b: Builder, v: Value, x: Value, c: Value) -> Value | None:
    """Return the fold of n equal numbers."""
    n = math.prod(x.shape[i] for i in v.params["axes"])
    number = c.params["value"]
    if v.params["combine"] == "add":
        if v.dtype == BOOL:
            return None
        with np.errstate(all="ignore"):
            return b.full(v.shape, number * v.dtype.type(n), v.dtype)
    if v.params["combine"] == "multiply":
        if n > LIMIT:
            return None
        with np.errstate(all="ignore"):
            product = np.multiply.reduce(np.full(n, number, v.dtype), dtype=v.dtype)
        return b.full(v.shape, product, v.dtype)
    return b.broadcast(c, v.shape)
