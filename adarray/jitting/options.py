"""The options of `adarray.jit`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Options(NamedTuple):
    """What `jit` was asked for.

    Parameters
    ----------
    precise : bool
        Compute with the C library's scalar functions in place of vector ones.
    memory_limit : int or None
        Bytes that temporary values of a compiled segment may take; what does not fit is
        computed again where that is possible.
    max_paths : int
        Number of ways through the function, per signature, that are compiled. Rounds of a
        loop after which the function goes on in the same way count once.
    donate : tuple of int
        Positional arguments whose memory results may take, in ascending order.
    """

    precise: bool = False
    memory_limit: int | None = None
    max_paths: int = 64
    donate: tuple[int, ...] = ()


def checked(precise: Any, memory_limit: Any, max_paths: Any, donate: Any = ()) -> Options:
    """Return the options, of the right types.

    Raises
    ------
    TypeError, ValueError
        If one has a wrong type or value.
    """
    if not isinstance(precise, (bool, np.bool)):
        raise TypeError(f"jit: precise is {precise!r}; pass True or False")
    if memory_limit is not None:
        memory_limit = _count("memory_limit", memory_limit, "a number of bytes", ", or None")
    max_paths = _count("max_paths", max_paths, "a number of paths")
    return Options(bool(precise), memory_limit, max_paths, _positions(donate))


def _positions(value: Any) -> tuple[int, ...]:
    given = value if isinstance(value, (tuple, list)) else (value,)
    for k in given:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
            raise TypeError(f"jit: donate is {value!r}; pass positions of arguments")
        if k < 0:
            raise ValueError(f"jit: donate is {value!r}; count arguments from the first one, 0")
    if len(set(given)) != len(given):
        raise ValueError(f"jit: donate is {value!r}; name each argument once")
    return tuple(sorted(map(int, given)))


def _count(name: str, value: Any, what: str, other: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"jit: {name} is {value!r}; pass {what}{other}")
    if value < 1:
        raise ValueError(f"jit: {name} is {value}; pass {what} of at least 1{other}")
    return int(value)
