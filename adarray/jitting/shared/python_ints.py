"""Python ints in a recorded run: they never overflow, compiled integers do.

An int argument that has had several values is an input of 64 bits. Arithmetic of such
numbers among themselves is recorded as long as bounds show that 64 bits hold the result.
Where one meets an array of narrower integers, NumPy refuses a number that does not fit, so the
run reads the value and records a guard.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from adarray.jitting.shared.signature import INPUT_LIMIT
from adarray.jitting.shared.symbolic import Traced, UntraceableError

_WORD = (1 << 63) - 1
# Elements of integer arrays that become Python numbers stay below this; larger ones are read.
ITEM = 1 << 53
_SAME = frozenset({"negative", "absolute", "positive", "invert", "bitwise_not", "sign"})
_BITS = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor"})
# Those with second operands that Python refuses, or that make the result long.
_BY_VALUE = frozenset({"floor_divide", "remainder", "mod", "power", "left_shift", "right_shift"})


def is_traced_int(x: Any) -> bool:
    """Whether a value is a traced Python int."""
    return type(x) is Traced and x.symbol.weak and x.symbol.dtype.kind == "i"


def is_number(x: Any) -> bool:
    """Whether a value is a Python number, or traced as one."""
    return x.symbol.weak if type(x) is Traced else type(x) in (int, float, complex)


def _is_int(x: Any) -> bool:
    return is_traced_int(x) or type(x) is int


def fitting(x: Any, dtype: Any, largest: int = INPUT_LIMIT) -> Any:
    """Return a number, read with a guard if an integer dtype may not hold it."""
    if not is_number(x) or type(x) is not Traced or dtype.kind not in "iu":
        return x
    if x.symbol.dtype.kind == "f":  # Python's nan is refused, where an array's becomes a number
        return float(x)
    if not is_traced_int(x):
        return x
    info = np.iinfo(dtype)
    return x if info.min <= -largest and largest <= info.max else operator.index(x)


class Bounds:
    """Limits of the traced Python ints of a run, by magnitude."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}  # by the identity of the symbol

    def note(self, x: Traced, limit: int | None) -> None:
        """Note the limit of a value, if there is one."""
        if limit is not None:
            self._known[id(x.symbol)] = limit

    def known(self, x: Traced) -> int | None:
        """Return the limit of a value, if one was noted."""
        return self._known.get(id(x.symbol))

    def of(self, x: Any) -> int:
        """Return the limit of an int."""
        return self._known.get(id(x.symbol), ITEM) if type(x) is Traced else abs(x)

    def settle(self, name: str, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], int | None]:
        """Return the operands of an operation, and the limit of its result if it is an int.

        Raises
        ------
        UntraceableError
            If 64 bits might not hold the result, or Python would raise an error.
        """
        if not all(map(_is_int, values)):
            for dtype in {v.dtype for v in values if isinstance(v, (Traced, np.generic))}:
                weak = (fitting(v, dtype, self.of(v)) if is_traced_int(v) else v for v in values)
                values = tuple(weak) if dtype.kind in "iu" else values
            return values, None
        if name in _BY_VALUE:
            values = (values[0], operator.index(values[1]))
        limit = self._limit(name, values)
        if limit is not None and limit > _WORD:
            raise UntraceableError(
                f"jit: {name} of Python ints, whose result may take more than 64 bits; compute it "
                "with floats, or outside of the jitted function"
            )
        return values, limit

    def _limit(self, name: str, values: tuple[Any, ...]) -> int | None:
        """Return the limit of the result of an operation on ints; None: it is no int."""
        limits = [self.of(v) for v in values]
        if name in ("add", "subtract"):
            return sum(limits)
        if name in ("multiply", "square"):
            return limits[0] * limits[-1]
        if name in _SAME:
            return limits[0] + 1
        if name in _BITS:
            return 2 * max(limits) + 1
        if name in ("floor_divide", "remainder", "mod") and values[1]:
            return max(limits) + 1
        if name == "power" and values[1] >= 0:
            return limits[0] ** values[1] if limits[0] < 2 or values[1] < 64 else _WORD + 1
        if name in ("left_shift", "right_shift") and values[1] >= 0:
            return limits[0] << min(values[1], 64) if name == "left_shift" else limits[0]
        if name in _BY_VALUE:  # by zero, or by less
            raise UntraceableError(f"jit: {name} of a Python int by {values[1]}, which is no int")
        return None
