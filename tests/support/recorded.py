"""Programs of recorded functions, for the tests of passes.

For tests of translation, passes and fusion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from adarray.base.recording import Call, Guard
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Map, PythonCall, mnemonic
from adarray.compiler.ir.program import Program
from adarray.compiler.rewrite import optimise, verify_program
from adarray.compiler.translate.canonicalise import canonicalise
from adarray.jitting.recording.record import record


class Recorded(NamedTuple):
    """A recorded run: its program, the arrays to run it with, and what the run gave."""

    program: Program
    arrays: list[Any]
    leaves: list[Any]
    calls: list[Call]
    translate: Callable[[], Program]

    def kinds(self) -> list[str]:
        """Return the words for the primitives of the program's values."""
        return [mnemonic(v.primitive) for v in self.program.values]

    def maps(self) -> list[str]:
        """Return the scalar functions of the program's maps, in order."""
        return [v.primitive.name for v in self.program.values if isinstance(v.primitive, Map)]

    def functions(self) -> list[str]:
        """Return the names of the functions that NumPy runs."""
        calls = [
            v.primitive.function for v in self.program.values if isinstance(v.primitive, PythonCall)
        ]
        return [getattr(f, "__name__", "") for f in calls]


def recorded(f: Callable[..., Any], *args: Any, optimised: bool = True) -> Recorded:
    """Record `f`, loops unrolled; arrays that it makes or captures are constants of the program."""
    every = list(range(len(args)))
    actual = record(f, list(args), lambda leaves: (tuple(leaves), {}), every, unrolls=True)
    recording = actual.recording
    assert not any(isinstance(e, Guard) and e.kind == "call" for e in recording.events)
    calls = [e for e in recording.events if isinstance(e, Call)]
    constants = {symbol: value for symbol, _, value in recording.captures}
    strides = {
        s: tuple(k // x.itemsize for k in x.strides)
        for s, x in zip(recording.inputs, args, strict=True)
        if isinstance(x, np.ndarray)
    }

    def translate() -> Program:
        return canonicalise(
            calls, recording.inputs, recording.outputs, strides=strides, constants=constants
        )

    program = translate()
    verify_program(program)
    if optimised:
        program = optimise(program, check=True)
    return Recorded(program, list(args), actual.leaves, calls, translate)


def agrees(r: Recorded, rtol: float = 1e-12) -> None:
    """Check that the program gives what the recorded run gave."""
    results = interpret(r.program, [np.asarray(a) for a in r.arrays])
    assert len(results) == len(r.leaves)
    for got, expected in zip(results, r.leaves, strict=True):
        expected = np.asarray(expected)
        assert np.shape(got) == expected.shape
        assert np.asarray(got).dtype == expected.dtype
        if expected.dtype.kind in "fc":
            tight = rtol if expected.dtype.itemsize >= 8 else 1e-5
            np.testing.assert_allclose(got, expected, rtol=tight, atol=tight)
        else:
            np.testing.assert_array_equal(got, expected)


def close(got: Any, expected: Any, tight: float) -> None:
    """Check what a plan gave; `tight` is relative to the largest number."""
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    if expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, expected)
        return
    size = np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0)
    np.testing.assert_allclose(got, expected, rtol=tight, atol=tight * size)
