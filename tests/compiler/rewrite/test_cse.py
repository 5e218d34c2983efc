"""Common subexpressions."""

from __future__ import annotations

import numpy as np
from recorded import agrees, recorded

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import PythonCall, Slot
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite.cse import cse

X = np.linspace(-2, 3, 12).reshape(3, 4)


def count(b, *outputs):
    after = cse(b.program(outputs))
    verify_program(after)
    return len(after.values), after


def test_equal_maps_are_one():
    b = Builder()
    x = b.input(0, (3,), "float64")
    y = b.map("sin", x)
    z = b.map("sin", x)
    n, after = count(b, b.map("add", y, z))
    assert n == 3
    assert after.outputs[0].args[0] is after.outputs[0].args[1]


def test_order_of_operands():
    b = Builder()
    x, y = b.input(0, (3,), "f8"), b.input(1, (3,), "f8")
    _, after = count(b, b.map("add", x, y), b.map("add", y, x))
    assert after.outputs[0] is after.outputs[1]
    # The larger of two zeros of either sign depends on their order.
    _, after = count(b, b.map("maximum", x, y), b.map("maximum", y, x))
    assert after.outputs[0] is not after.outputs[1]


def test_parameters_count():
    b = Builder()
    x = b.input(0, (4, 4), "f8")
    outputs = [
        b.reduce("add", x, (0,)), b.reduce("add", x, (1,)), b.reduce("maximum", x, (0,)),
        b.transpose(x, (1, 0)), b.slice(x, 0, 0, 2), b.slice(x, 0, 1, 3),
        b.cast(x, "f4"), b.cast(x, "i8"), b.scan("add", x, 0), b.scan("add", x, 1),
    ]  # fmt: skip
    n, _ = count(b, *outputs, b.reduce("add", x, (0,)), b.slice(x, 0, 0, 2))
    assert n == 1 + len(outputs)


def test_constants_by_their_bits():
    b = Builder()
    x = b.input(0, (2,), "f8")
    outputs = [b.map("add", x, b.const(n, "f8")) for n in (0.0, -0.0, 1.0)]
    n, _ = count(b, *outputs)
    assert n == 7
    one, two = b.array(np.array([1.0, 2.0])), b.array(np.array([1.0, 2.0]))
    assert one is not two
    _, after = count(b, one, two)
    assert after.outputs[0] is after.outputs[1]


def call(b, x, function, *args, **kwargs):
    return b.make(PythonCall(function, (Slot(0), *args), kwargs), (x,), x.shape, x.dtype)


def test_calls_of_numpy_are_shared_if_their_arguments_are_equal():
    b = Builder()
    x = b.input(0, (3,), "f8")
    calls = [call(b, x, np.sort, kind=k) for k in ("stable", "stable", "quicksort")]
    _, after = count(b, *calls)
    one, two, three = after.outputs
    assert one is two
    assert three is not one
    calls = [call(b, x, np.roll, k) for k in (1, 1.0, True)]
    _, after = count(b, *calls)
    assert len(set(after.outputs)) == 3


def test_calls_that_draw_are_kept_apart():
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input(0, (3,), "f8")
    calls = [call(b, x, f) for f in (rng.permutation, rng.permutation, lambda x: x)]
    calls.append(call(b, x, calls[2].primitive.function))
    _, after = count(b, *calls)
    assert len(set(after.outputs)) == 4


def test_recorded_functions():
    r = recorded(lambda x: np.exp(x) * 2 + np.exp(x).sum() + np.exp(x) * 2, X)
    agrees(r)
    assert r.maps().count("exp") == 1
    assert r.maps().count("multiply") == 1
