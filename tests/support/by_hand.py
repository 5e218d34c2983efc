"""Programs made by hand, value by value, for tests of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.compiler.ir.primitives import (
    Constant,
    ConstantArray,
    Map,
    Primitive,
    ProgramInput,
    View,
)
from adarray.compiler.ir.program import Program, Value


class Builder:
    """Makes programs in the tests: values in order, operands by name."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.inputs: list[Value] = []

    def input(self, x: Any) -> Value:
        x = np.asarray(x)
        strides = tuple(s // x.itemsize for s in x.strides)
        v = self(ProgramInput(len(self.inputs), strides), (), x.shape, x.dtype)
        self.inputs.append(v)
        return v

    def __call__(
        self, primitive: Primitive, ins: tuple[Value, ...], shape: Any, dtype: Any = "float64"
    ) -> Value:
        v = Value(primitive, ins, tuple(shape), dtype)
        self.values.append(v)
        return v

    def const(self, value: Any, dtype: Any = "float64") -> Value:
        return self(Constant(np.dtype(dtype).type(value)), (), (), dtype)

    def array(self, value: Any) -> Value:
        return self(ConstantArray(value), (), value.shape, value.dtype)

    def map(self, name: str, *args: Value, dtype: Any = None) -> Value:
        shape = np.broadcast_shapes(*(a.shape for a in args))
        return self(Map(name), args, shape, dtype or args[-1].dtype)

    def view(self, a: Value, of: Any) -> Value:
        """Return the view that `of` makes of an array in C order."""
        base = np.arange(a.size).reshape(a.shape)
        seen = of(base)
        offset = (seen.ctypes.data - base.ctypes.data) // base.itemsize if seen.size else 0
        strides = tuple(s // base.itemsize for s in seen.strides)
        return self(View(offset, strides), (a,), seen.shape, a.dtype)

    def program(self, *outputs: Value) -> Program:
        return Program(self.inputs, self.values, outputs)


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
