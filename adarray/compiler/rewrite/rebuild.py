"""What passes share: rebuilding a program value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import assert_never

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import (
    CallResult,
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Iota,
    Map,
    Matmul,
    PrefixScan,
    ProgramInput,
    PythonCall,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value

Rule = Callable[[Builder, Value, tuple[Value, ...]], Value]


def rebuild(program: Program, rule: Rule) -> Program:
    """Return a program in which ``rule(b, value, new operands)`` stands for each value.

    Inputs stay as they are; one sweep, operands first.
    """
    b = Builder()
    new: dict[Value, Value] = {}
    known = new.__getitem__
    for v in program.values:
        if isinstance(v.primitive, ProgramInput):
            b.values.append(v)
            new[v] = v
            continue
        b.origin = v.origin
        new[v] = rule(b, v, tuple(map(known, v.args)))
    b.inputs = list(program.inputs)
    return b.program([new[v] for v in program.outputs])


def same(v: Value, args: tuple[Value, ...]) -> bool:
    """Whether the operands of a value are those that it had."""
    # Values compare by identity.
    return v.args == args


def renewed(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return the value itself, or if it has new operands make it again."""
    if v.args == args and not isinstance(v.primitive, Constant):  # as `same`
        b.values.append(v)
        return v
    return again(b, v, args)


def keep(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return the value itself, or a copy of it with new operands."""
    if same(v, args):
        b.values.append(v)
        return v
    return b.make(v.primitive, args, v.shape, v.dtype)


def again(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Make a value once more of new operands, so that the builder folds what it can."""
    match v.primitive:
        case Map() as p:
            return b.apply(p.name, args, v.dtype)
        case Constant():
            return b.adopt(v)
        case View() as p:
            return b.view(args[0], p.offset, p.strides, v.shape)
        case Reduce() as p:
            return b.reduce(p.combine, args[0], p.axes)
        case UpdateSlice() as p:
            return b.update_slice(args[0], args[1], p.starts, p.steps, p.add)
        case Concatenate() as p:
            return b.concatenate(args, p.axis)
        case GatherND() as p:
            return b.gather(args[0], args[1:], p.axes, p.position)
        case ScatterND() as p:
            return b.scatter(args[0], args[1], args[2:], p.axes, p.position, p.add)
        case PrefixScan() as p:
            return b.scan(p.combine, args[0], p.axis)
        case Matmul(loops=True):
            return keep(b, v, args)
        case Matmul():
            return b.matmul(*args)
        case ProgramInput() | ConstantArray() | Iota() | PythonCall() | CallResult():
            return keep(b, v, args)
        case _:
            assert_never(v.primitive)


def uses(program: Program) -> Counter[Value]:
    """Return how often each value is read; results of the program count too."""
    operands = chain.from_iterable([v.args for v in program.values])
    return Counter(chain(operands, program.outputs))
