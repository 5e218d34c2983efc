"""CUDA's functions of the bits of an integer, written with operators that every printer has.

H. S. Warren, *Hacker's Delight*, 2nd edition, 2012, chapter 5.
"""

from __future__ import annotations

from collections.abc import Callable

from adarray.compiler.ir.loopir import Expr
from adarray.kernels import build

NAMES = frozenset(f"__{name}{wide}" for name in ("popc", "ffs", "clz") for wide in ("", "ll"))

Named = Callable[[str, Expr], Expr]


def call(name: str, x: Expr, named: Named) -> Expr:
    """Return how many bits are set, the place of the first one, or the zeros above the last one.

    Parameters
    ----------
    name : str
        CUDA's.
    x : Expr
    named : callable
        Gives a value a name.
    """
    width = 64 if name.endswith("ll") else 32
    dtype = f"uint{width}"
    x = named("bits", build.cast(x, dtype))
    one = build.const(1, dtype)
    if name.startswith("__popc"):
        return _count(x, width, named)
    if name.startswith("__ffs"):
        # The bits below the first one, counted; 0 has no first one.
        below = build.subtract(build.call("bitwise_and", dtype, x, _negative(x)), one)
        place = build.add(_count(named("below", below), width, named), build.const(1, "int32"))
        zero = build.compare("equal", x, build.const(0, dtype))
        return build.where(zero, build.const(0, "int32"), place)
    by = 1
    while by < width:
        moved = build.call("right_shift", dtype, x, build.const(by, dtype))
        x = named("bits", build.call("bitwise_or", dtype, x, moved))
        by *= 2
    return build.subtract(build.const(width, "int32"), _count(x, width, named))


def _negative(x: Expr) -> Expr:
    return build.subtract(build.const(0, x.dtype), x)


def _count(x: Expr, width: int, named: Named) -> Expr:
    """Return how many bits are set: by pairs, by fours, and by bytes, which are added up."""
    dtype = x.dtype

    def masked(e: Expr, byte: int) -> Expr:
        mask = int.from_bytes(bytes([byte]) * (width // 8), "little")
        return build.call("bitwise_and", dtype, e, build.const(mask, dtype))

    def shifted(e: Expr, by: int) -> Expr:
        return build.call("right_shift", dtype, e, build.const(by, dtype))

    x = named("bits", build.subtract(x, masked(shifted(x, 1), 0x55)))
    x = named("bits", build.add(masked(x, 0x33), masked(shifted(x, 2), 0x33)))
    x = named("bits", masked(build.add(x, shifted(x, 4)), 0x0F))
    ones = int.from_bytes(b"\1" * (width // 8), "little")
    total = build.multiply(x, build.const(ones, dtype))
    return build.cast(shifted(total, width - 8), "int32")
