"""Dead code."""

from __future__ import annotations

import operator

import numpy as np

from adarray.base.op import OPS
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.primitives import PythonCall, Slot, mnemonic
from adarray.compiler.rewrite.dead import dead, is_pure


def test_what_nothing_reads_goes_and_inputs_stay():
    b = Builder()
    x, y = b.input(0, (3,), "f8"), b.input(1, (3,), "f8")
    b.map("sin", y)
    b.reduce("add", b.map("exp", x), (0,))
    z = b.map("cos", x)
    after = dead(b.program([z, z]))
    assert after.values == [x, y, z]
    assert after.inputs == [x, y]
    assert after.outputs == [z, z]


def test_impure_calls_stay_in_order():
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input(0, (3,), "f8")
    doubled = b.map("add", x, x)
    for function in (rng.permutation, np.sort, print):
        b.make(PythonCall(function, (Slot(0),), {}), (doubled,), (3,), "f8")
    after = dead(b.program([x]))
    assert [mnemonic(v.primitive) for v in after.values] == [
        "program_input",
        "map",
        "python_call",
        "python_call",
    ]
    assert [v.primitive.function for v in after.values[2:]] == [rng.permutation, print]


def _module(function):
    return str(getattr(function, "__module__", None) or "numpy")


def test_which_functions_are_pure():
    rng = np.random.default_rng(0)
    pure = [np.sort, np.add, np.add.reduce, np.linalg.inv, np.fft.fft, operator.getitem]
    assert all(map(is_pure, pure))
    # Other tests register functions of theirs.
    ours = [op for op in OPS.values() if _module(op.evaluate).startswith(("adarray", "numpy"))]
    assert len(ours) > 100
    assert all(is_pure(op.evaluate) for op in ours)
    impure = [rng.normal, np.random.normal, np.add.at, print, lambda x: x]
    assert not any(map(is_pure, impure))
