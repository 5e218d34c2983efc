"""Numbers of unrolled loops: they are read from a table, so that equal steps are one kernel.

The steps of a loop over plain numbers, such as times at which an oscillator is driven or the
observations of a filter, are equal but for these. In the text of a kernel each number would make
another kernel of every step. Where one operation on small arrays has many different constants
as an operand, all of them are read from one array, and their places are integers that a kernel
gets. Steps of a handful of constants, such as the fractions of a step that the stages of an
integrator take, keep them.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from adarray.compiler.fusion.divide import UNROLLED
from adarray.compiler.ir.builder import number_of, uniform
from adarray.compiler.ir.primitives import ConstantArray, DType, Map, View, mnemonic
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.kernels.scope import LITERAL
from adarray.compiler.scalars.catalogue import FUNCTIONS

# Constants that one operation may have before they are read from a table.
FEW = 8


def tabled(program: Program, small: int) -> Program:
    """Return the program with numbers that vary among equal operations in tables.

    Parameters
    ----------
    program : Program
    small : int
        Elements up to which an array is small.
    """
    if len(program.values) < UNROLLED:
        return program
    roles: dict[Hashable, list[tuple[Value, int]]] = {}
    for v in program.values:
        if (
            isinstance(v.primitive, Map)
            and FUNCTIONS[v.primitive.name].constants_alike
            and v.size <= small
        ):
            for k, a in enumerate(v.args):
                if a.dtype.kind == "f" and uniform(a) is not None:
                    roles.setdefault(_role(v, k), []).append((v, k))
    places: dict[tuple[Value, int], int] = {}
    numbers: dict[DType, list[np.generic]] = {}
    for role in roles.values():
        if len({uniform(v.args[k]) for v, k in role}) > FEW:
            for v, k in role:
                c = uniform(v.args[k])
                assert c is not None
                # The first places would stand in the text.
                table = numbers.setdefault(c.dtype, [number_of(c)] * (LITERAL + 1))
                places[v, k] = len(table)
                table.append(number_of(c))
    return _read(program, places, numbers) if places else program


def _role(v: Value, k: int) -> Hashable:
    """Return what an operation does with an operand, and with what it does that."""
    others = tuple([_operation(a) if j != k else "" for j, a in enumerate(v.args)])
    return v.primitive, v.dtype, v.shape, v.args[k].shape, k, others


def _operation(a: Value) -> str:
    """Return the primitive of an operand, in a word."""
    while isinstance(a.primitive, View):
        a = a.args[0]
    return a.primitive.name if isinstance(a.primitive, Map) else mnemonic(a.primitive)


def _read(
    program: Program,
    places: dict[tuple[Value, int], int],
    numbers: dict[DType, list[np.generic]],
) -> Program:
    """Return the program with operands out of tables, by map and their index."""
    tables = {dtype: _table(dtype, entries) for dtype, entries in numbers.items()}
    values = list(tables.values())
    new: dict[Value, Value] = {}
    for v in program.values:
        args = [new.get(a, a) for a in v.args]
        for k, a in enumerate(v.args):
            place = places.get((v, k))
            if place is not None:
                view = View(place, (0,) * a.ndim)
                args[k] = Value(view, (tables[a.dtype],), a.shape, a.dtype, v.origin)
                values.append(args[k])
        if any(a is not b for a, b in zip(args, v.args, strict=True)):
            new[v] = v = v.with_args(tuple(args))
        values.append(v)
    return Program(program.inputs, values, [new.get(v, v) for v in program.outputs])


def _table(dtype: DType, numbers: list[np.generic]) -> Value:
    table = np.array(numbers, dtype)
    table.flags.writeable = False
    return Value(ConstantArray(table, table=True), (), table.shape, dtype)


def is_table(value: Value) -> bool:
    """Whether an array is a table, so that maps read single places of it and nothing else does."""
    return isinstance(value.primitive, ConstantArray) and value.primitive.table
