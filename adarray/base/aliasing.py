"""Which arrays of a call are one object, and which share memory.

One analysis for all who need it: `adarray.jit` for its arguments, what it captured and its
results, donation for what it gives up, the transforms for what they differentiate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

# Steps that `np.shares_memory` may take to decide; past them memory counts as shared.
_WORK = 10_000


def firsts(
    values: Iterable[object], kinds: type | tuple[type, ...] = np.ndarray
) -> tuple[int, ...]:
    """Return, for each value, the position of the first one that is the same object.

    Parameters
    ----------
    values : iterable
    kinds : type or tuple of types
        Of what has an identity that matters; others are their own first.

    Returns
    -------
    tuple of int
        Empty if no object is there twice.
    """
    known: dict[int, int] = {}
    positions = [
        known.setdefault(id(x), i) if isinstance(x, kinds) else i for i, x in enumerate(values)
    ]
    return tuple(positions) if any(k != i for i, k in enumerate(positions)) else ()


def owner(x: np.ndarray) -> object:
    """Return the object at the end of the chain of bases of an array."""
    base: object = x
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base


def address(x: np.ndarray) -> int:
    """Return where the first element of an array lies in memory."""
    place: int = x.__array_interface__["data"][0]
    return place


def share(a: object, b: object) -> bool:
    """Whether two arrays may share memory; True where an exact answer would take long."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return False
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def overlaps(x: object) -> bool:
    """Whether elements of an array may share memory, as those of broadcast ones do."""
    if not isinstance(x, np.ndarray) or x.flags.forc or not x.size:
        return False
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < reach + x.itemsize:
            return True
        reach += stride * (n - 1)
    return False


def shares_memory(values: Sequence[object], written: Sequence[int] | None = None) -> bool:
    """Whether an input that is written into (any, if not given) may share memory with another.

    Or with itself, if its elements may overlap. The same object passed twice does not count; see
    `firsts`.
    """
    for i in range(len(values)) if written is None else written:
        if overlaps(values[i]):
            return True
        for x in values:
            if (
                x is not values[i]
                and isinstance(x, np.ndarray)
                and isinstance(values[i], np.ndarray)
                and np.may_share_memory(values[i], x)
            ):
                return True
    return False


def touches(x: object, arrays: Iterable[object]) -> bool:
    """Whether an array may share memory with one of others, or with itself, or is one of them."""
    others = list(arrays)
    return any(x is y for y in others) or (bool(others) and shares_memory([x, *others], [0]))
