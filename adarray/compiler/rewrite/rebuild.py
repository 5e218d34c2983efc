"""What passes share: rebuilding a program value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import chain

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.program import Program, Value

Rule = Callable[[Builder, Value, tuple[Value, ...]], Value]


def rebuild(program: Program, rule: Rule) -> Program:
    """Return a program in which ``rule(b, value, new operands)`` stands for each value.

    Inputs stay as they are; one sweep, operands first.
    """
    b = Builder()
    new: dict[int, Value] = {}
    known = new.__getitem__
    for v in program.values:
        if v.kind == "input":
            b.values.append(v)
            new[id(v)] = v
            continue
        b.origin = v.origin
        new[id(v)] = rule(b, v, tuple(map(known, map(id, v.args))))
    b.inputs = list(program.inputs)
    return b.program([new[id(v)] for v in program.outputs])


def same(v: Value, args: tuple[Value, ...]) -> bool:
    """Whether the operands of a value are those that it had."""
    # Values compare by identity.
    return v.args == args


def renewed(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return the value itself, or if it has new operands make it again."""
    if v.args == args and v.kind != "const":  # as `same`
        b.values.append(v)
        return v
    return again(b, v, args)


def keep(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Return the value itself, or a copy of it with new operands."""
    if same(v, args):
        b.values.append(v)
        return v
    return b.make(v.kind, args, v.params, v.shape, v.dtype)


def again(b: Builder, v: Value, args: tuple[Value, ...]) -> Value:
    """Make a value once more of new operands, so that the builder folds what it can."""
    p = v.params
    kind = v.kind
    if kind == "const":
        return b.adopt(v)
    if kind == "map":
        return b.apply(p["name"], args, v.dtype)
    if kind == "view":
        return b.view(args[0], p["offset"], p["strides"], v.shape)
    if kind == "reduce":
        return b.reduce(p["combine"], args[0], p["axes"])
    if kind == "place":
        return b.place(args[0], args[1], p["starts"], p["steps"], p["add"])
    if kind == "join":
        return b.join(args, p["axis"])
    if kind == "gather":
        return b.gather(args[0], args[1:], p["axes"], p["position"])
    if kind == "scatter":
        return b.scatter(args[0], args[1], args[2:], p["axes"], p["position"], p["add"])
    if kind == "scan":
        return b.scan(p["combine"], args[0], p["axis"])
    if kind == "dot":
        return b.dot(*args)
    return keep(b, v, args)


def uses(program: Program) -> Counter[int]:
    """Return how often each value is read, by its id; results of the program count too."""
    operands = chain.from_iterable([v.args for v in program.values])
    return Counter(map(id, chain(operands, program.outputs)))
