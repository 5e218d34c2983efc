"""Constant folding: what depends on constants alone is computed now.

References
----------
- M. N. Wegman, F. K. Zadeck, "Constant propagation with conditional branches", ACM Trans. Program.
  Lang. Syst. 13 (1991), 181-210.
"""

from __future__ import annotations

import math

import numpy as np

from adarray.compiler.ir.builder import BOOL, PRINTABLE, Builder, number_of, uniform
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Map,
    Matmul,
    PrefixScan,
    Primitive,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.rewrite.rebuild import keep, rebuild, renewed

# Results of more elements are left to run time: constants take memory.
LIMIT = 4096
_COMPUTED: frozenset[type[Primitive]] = frozenset({
    Map, Reduce, GatherND, ScatterND, UpdateSlice, Concatenate, PrefixScan, Matmul,
})  # fmt: skip


def fold(program: Program) -> Program:
    """Return the program with constants in place of what is the same in every run."""
    return rebuild(program, folded)


def folded(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Make one value again, computed if its operands are constant."""
    if isinstance(v.primitive, Map) and not _folds(args):
        return renewed(b, v, args)
    if isinstance(v.primitive, ConstantArray):
        return keep(b, v, args) if v.size > LIMIT else b.array(v.primitive.value)
    new = _of_uniform(b, v, args)
    if new is not None:
        return new
    if type(v.primitive) in _COMPUTED and v.size <= LIMIT and args and all(map(_constant, args)):
        return _computed(b, v, args)
    return renewed(b, v, args)


def _folds(args: tuple[Value, ...]) -> bool:
    """Whether there may be something to fold in a map: not so of numbers and run-time values."""
    numbers = 0
    for a in args:
        if isinstance(a.primitive, Constant):
            numbers += 1
        elif isinstance(a.primitive, (ConstantArray, View)):
            return True
    return numbers == len(args)


def _constant(x: Value) -> bool:
    """Whether a value is an array of constants, a number, or a view of one."""
    while isinstance(x.primitive, View):
        x = x.args[0]
    p = x.primitive
    return isinstance(p, Constant) or (isinstance(p, ConstantArray) and x.size <= 4 * LIMIT)


def _computed(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return a value computed by NumPy, with its operands and all that they are views of."""
    values: list[Value] = []
    todo = list(args)
    while todo:
        x = todo.pop()
        values.append(x)
        todo.extend(x.args)
    last = Value(v.primitive, args, v.shape, v.dtype)
    unique = list(dict.fromkeys(reversed(values)))
    with np.errstate(all="ignore"):
        (r,) = interpret(Program([], [*unique, last], [last]), [])
    return b.array(np.asarray(r, v.dtype))


def _of_uniform(b: Builder, v: Value, args: tuple[Value, ...]) -> Value | None:
    """Return what becomes of arrays that have one number everywhere."""
    if v.dtype not in PRINTABLE:
        return None
    match v.primitive:
        case Reduce() as p:
            c = uniform(args[0])
            return None if c is None else _fold_of_uniform(b, p, v, args[0], c)
        case GatherND():
            c = uniform(args[0])
        case Concatenate():
            c = _same(args)
        case UpdateSlice(add=False) | ScatterND(add=False):
            c = _same(args[:2])
        case _:
            c = None
    return None if c is None else b.broadcast(c, v.shape)


def _same(args: tuple[Value, ...]) -> Value | None:
    """Return the number that all elements of several arrays are."""
    c = uniform(args[0])
    return c if all(uniform(a) is c for a in args) else None


def _fold_of_uniform(b: Builder, p: Reduce, v: Value, x: Value, c: Value) -> Value | None:
    """Return the fold of n equal numbers."""
    n = math.prod(x.shape[i] for i in p.axes)
    number = number_of(c)
    if p.combine == "add":
        if v.dtype == BOOL:
            return None
        with np.errstate(all="ignore"):
            return b.full(v.shape, number * v.dtype.type(n), v.dtype)
    if p.combine == "multiply":
        if n > LIMIT:
            return None
        with np.errstate(all="ignore"):
            product = np.multiply.reduce(np.full(n, number, v.dtype), dtype=v.dtype)
        return b.full(v.shape, product, v.dtype)
    return b.broadcast(c, v.shape)
