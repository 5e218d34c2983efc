"""How recorded calls become primitives: one function per operation or NumPy function.

A lowering is ``f(b, operands, params, result)``: `b` is the `Builder`; `operands` are values,
`Weak` values, or plain numbers and arrays as they were given; `result` is the recorded
result, a `Symbol` (or a tuple of them). It returns the value (or a tuple), or None where
NumPy is to be called: then nothing that it made is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Lowering = Callable[..., Any]

# By the name of an operation's record.
RECORDS: dict[str, Lowering] = {}
# By the NumPy function, for functions without a record.
FUNCTIONS: dict[Any, Lowering] = {}


def record(*names: str) -> Callable[[Lowering], Lowering]:
    """Register the lowering of operations with these names."""

    def add(lowering: Lowering) -> Lowering:
        for name in names:
            assert name not in RECORDS, name
            RECORDS[name] = lowering
        return lowering

    return add


def function(*functions: Any) -> Callable[[Lowering], Lowering]:
    """Register the lowering of NumPy functions; `operands` are the positional arguments."""

    def add(lowering: Lowering) -> Lowering:
        for f in functions:
            assert f not in FUNCTIONS, f
            FUNCTIONS[f] = lowering
        return lowering

    return add
