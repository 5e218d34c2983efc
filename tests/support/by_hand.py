"""Programs made by hand, value by value, for tests of the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.compiler.ir.program import Program, Value


class Builder:
    """Makes programs in the tests: values in order, operands by name."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.inputs: list[Value] = []

    def input(self, x: Any) -> Value:
        x = np.asarray(x)
        strides = tuple(s // x.itemsize for s in x.strides)
        params = {"index": len(self.inputs), "strides": strides}
        v = self("input", (), x.shape, x.dtype, **params)
        self.inputs.append(v)
        return v

    def __call__(
        self,
        kind: str,
        ins: tuple[Value, ...],
        shape: Any,
        dtype: Any = "float64",
        /,
        **params: Any,
    ) -> Value:
        v = Value(kind, ins, params, tuple(shape), dtype)
        self.values.append(v)
        return v

    def const(self, value: Any, dtype: Any = "float64") -> Value:
        return self("const", (), (), dtype, value=value)

    def array(self, value: Any) -> Value:
        return self("array", (), value.shape, value.dtype, value=value)

    def map(self, name: str, *args: Value, dtype: Any = None) -> Value:
        shape = np.broadcast_shapes(*(a.shape for a in args))
        return self("map", args, shape, dtype or args[-1].dtype, name=name)

    def view(self, a: Value, of: Any) -> Value:
        """Return the view that `of` makes of an array in C order."""
        base = np.arange(a.size).reshape(a.shape)
        seen = of(base)
        offset = (seen.ctypes.data - base.ctypes.data) // base.itemsize if seen.size else 0
        strides = tuple(s // base.itemsize for s in seen.strides)
        return self("view", (a,), seen.shape, a.dtype, offset=offset, strides=strides)

    def program(self, *outputs: Value) -> Program:
        return Program(self.inputs, self.values, outputs)


def same(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)
