"""How recorded calls become primitives: one function per operation or NumPy function.

A lowering is ``f(b, call)``, given a `Builder` and the `Recorded` call. It returns the value
of the result, or None where NumPy is to be called: then nothing that it made is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Recorded(NamedTuple):
    """What a lowering sees of a call.

    Parameters
    ----------
    operands : tuple
        Values, `Weak` values, or plain numbers and arrays as they were given. Those of the
        record; of a function without one, its positional arguments.
    params : dict
        Keyword arguments, with values in place of symbols.
    result : Symbol
        Shape and dtype of the result.
    """

    operands: tuple[Any, ...]
    params: dict[str, Any]
    result: Any

    def bound(self, *names: str) -> dict[str, Any] | None:
        """Return the arguments by name; None if there are others, or ``out`` is given."""
        if len(self.operands) > len(names) or not self.params.keys() <= set(names):
            return None
        given = dict(zip(names, self.operands, strict=False))
        given.update(self.params)
        return None if given.pop("out", None) is not None else given


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
