"""Constant folding, and what the builder folds by itself."""

from __future__ import annotations

import numpy as np
import pytest

from adarray.compiler.ir.builder import Builder, uniform
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    ConstantArray,
    GatherND,
    Map,
    Matmul,
    ProgramInput,
    Reduce,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Program, Value
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite.fold import LIMIT, fold


def raw(primitive, args, shape, dtype="float64"):
    return Value(primitive, args, shape, dtype)


def program(*values):
    inputs = [v for v in values if isinstance(v.primitive, ProgramInput)]
    return Program(inputs, values, [values[-1]])


def folded(*values):
    """Fold a program made by hand; check that it computes the same, and return its result."""
    before = program(*values)
    after = fold(before)
    verify_program(after)
    arrays = [np.ones(v.shape, v.dtype) for v in before.inputs]
    (one,), (two,) = interpret(before, arrays), interpret(after, arrays)
    np.testing.assert_array_equal(one, two)
    assert np.asarray(one).dtype == np.asarray(two).dtype
    return after.outputs[0]


def const(number, dtype="float64"):
    return raw(Constant(np.dtype(dtype).type(number)), (), (), dtype)


def array(x):
    return raw(ConstantArray(x), (), x.shape, x.dtype)


def full(c, shape):
    return raw(View(0, (0,) * len(shape)), (c,), shape, c.dtype)


def test_numbers():
    a, b = const(2.0), const(3.0)
    r = folded(a, b, raw(Map("power"), (a, b), ()))
    assert r.primitive == Constant(np.float64(8.0))


def test_float32_stays():
    a = const(0.1, "float32")
    r = folded(a, raw(Map("add"), (a, a), (), "float32"))
    assert r.primitive.value == np.float32(0.1) + np.float32(0.1)
    assert r.primitive.value.dtype == np.float32


def test_uniform_arrays():
    a, b = const(2.0), const(5.0)
    u, w = full(a, (3, 1)), full(b, (4,))
    r = folded(a, b, u, w, raw(Map("multiply"), (u, w), (3, 4)))
    assert isinstance(r.primitive, View)
    assert uniform(r).primitive.value == 10.0


@pytest.mark.parametrize(
    ("combine", "number", "expected"),
    [("add", 0.5, 6.0), ("multiply", 2.0, 2.0**12), ("maximum", -1.0, -1.0), ("minimum", 3.0, 3.0)],
)
def test_folds_of_equal_numbers(combine, number, expected):
    c = const(number)
    u = full(c, (3, 4))
    r = folded(c, u, raw(Reduce(combine, (0, 1)), (u,), ()))
    assert r.primitive.value == expected


def test_small_arrays():
    x = array(np.arange(6.0).reshape(2, 3))
    s = raw(Reduce("add", (1,)), (x,), (2,))
    t = raw(View(0, (1, 3)), (x,), (3, 2))
    d = raw(Matmul(), (x, t), (2, 2))
    r = folded(x, s, t, d, raw(Map("add"), (d, s), (2, 2)))
    assert isinstance(r.primitive, ConstantArray)
    np.testing.assert_array_equal(r.primitive.value, [[8, 26], [17, 62]])


def test_large_arrays_wait():
    x = array(np.arange(LIMIT + 1.0))
    assert isinstance(folded(x, raw(Map("sin"), (x,), x.shape)).primitive, Map)


def test_results_that_are_uniform_hold_no_memory():
    x = array(np.arange(5.0))
    r = folded(x, raw(Map("subtract"), (x, x), (5,)))
    assert uniform(r).primitive.value == 0


def test_picks_and_boxes_of_equal_numbers():
    c, i = const(7.0), array(np.array([3, 1]))
    u = full(c, (5,))
    v = full(c, (2,))
    assert uniform(folded(c, i, u, raw(GatherND((0,), 0), (u, i), (2,))))
    p = raw(UpdateSlice((1,), (2,), False), (u, v), (5,))
    assert uniform(folded(c, u, v, p))
    assert uniform(folded(c, u, v, raw(Concatenate(0), (u, v), (7,))))
    added = raw(UpdateSlice((1,), (2,), True), (u, v), (5,))
    assert isinstance(folded(c, u, v, added).primitive, ConstantArray)


def test_signed_zeros_and_nan_are_different_constants():
    b = Builder()
    assert b.const(0.0, "f8") is not b.const(-0.0, "f8")
    assert b.const(np.nan, "f8") is b.const(np.nan, "f8")
    assert b.const(1, "f8") is not b.const(1, "f4")
    assert uniform(b.array(np.array([0.0, -0.0]))) is None
    assert (
        uniform(b.array(np.full(3, -0.0))).primitive.value.tobytes() == np.float64(-0.0).tobytes()
    )


def test_what_depends_on_inputs_stays():
    x = raw(ProgramInput(0, (1,)), (), (3,))
    c = const(2.0)
    assert isinstance(folded(x, c, raw(Map("multiply"), (x, c), (3,))).primitive, Map)


def test_builder_reads_arrays_without_holding_them():
    b = Builder()
    x = b.array(np.arange(3, 30, 4))
    (got,) = interpret(b.program([x]), [])
    np.testing.assert_array_equal(got, np.arange(3, 30, 4))
    assert all(not isinstance(v.primitive, ConstantArray) for v in b.values)
    array = np.array([1.0, 5.0, 2.0])
    y = b.array(array)
    array[0] = 9
    assert y.primitive.value[0] == 1.0


def test_builder_folds_trivial_values():
    b = Builder()
    x = b.input(0, (3, 1, 4), "float64")
    assert b.reduce("add", x, ()) is x
    assert isinstance(b.reduce("add", x, (1,)).primitive, View)
    assert b.reduce("add", x, (0, 1)).args[0].shape == (3, 4)
    assert b.transpose(b.transpose(x, (2, 0, 1)), (1, 2, 0)) is x
    assert b.concatenate([x], 0) is x
    assert b.cast(x, "float64") is x
    assert b.scan("add", x, 1) is x
    assert isinstance(
        b.update_slice(x, b.full((3, 1, 4), 1, "f8"), (0, 0, 0), (1, 1, 1)).primitive, View
    )
    empty = b.slice(x, 0, 1, 1)
    assert uniform(empty) is not None
    assert empty.shape == (0, 1, 4)
    assert uniform(b.reduce("add", empty, (0,))).primitive.value == 0
    assert uniform(b.matmul(b.reshape(empty, (4, 0)), b.reshape(empty, (0, 4)))) is not None


def test_what_is_not_constant_stays_the_same_value():
    b = Builder()
    x = b.input(0, (3, 4), "float64")
    y = b.matmul(b.transpose(x, (1, 0)), x)
    z = b.reduce("add", b.map("multiply", y, b.const(2.0, "float64")), (0,))
    before = b.program([z])
    after = fold(before)
    assert after.outputs[0] is z
    assert {id(v) for v in after.values} == {id(v) for v in before.values}
