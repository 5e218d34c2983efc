"""The options of `adarray.jit`."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

_PLACE = re.compile(r" \(a closure of [^)]*\)")  # in the names of what was found


class Constants(NamedTuple):
    """What the user says stays as it is, and is not compared.

    Parameters
    ----------
    names : frozenset of str
    objects : tuple
    """

    names: frozenset[str] = frozenset()
    objects: tuple[Any, ...] = ()

    def holds(self, x: Any, name: str) -> bool:
        """Whether an object, as the user writes it, is meant."""
        if any(x is y for y in self.objects):
            return True
        return bool(self.names) and _PLACE.sub("", name) in self.names


class Options(NamedTuple):
    """What `jit` was asked for.

    Parameters
    ----------
    precise : bool
        Compute with the C library's scalar functions in place of vector ones.
    memory_limit : int or None
        Bytes that temporary values of a compiled segment may take, and the tape of a captured
        loop; what does not fit is computed again where that is possible.
    max_paths : int
        Number of ways through the function, per signature, that are compiled. Rounds of a
        loop after which the function goes on in the same way count once.
    donate : tuple of int
        Positional arguments whose memory results may take, in ascending order.
    assume_constant : tuple
        Names and objects that are captured and not compared.
    wait : bool
        Whether calls wait for the compiler, however long it takes.
    """

    precise: bool = False
    memory_limit: int | None = None
    max_paths: int = 64
    donate: tuple[int, ...] = ()
    assume_constant: tuple[Any, ...] = ()
    wait: bool = False

    @property
    def constants(self) -> Constants:
        """What is captured and not compared."""
        assumed = self.assume_constant
        names = frozenset(x for x in assumed if isinstance(x, str))
        return Constants(names, tuple(x for x in assumed if not isinstance(x, str)))


def checked(
    precise: Any,
    memory_limit: Any,
    max_paths: Any,
    donate: Any = (),
    assume_constant: Any = (),
    wait: Any = False,
) -> Options:
    """Return the options, of the right types.

    Raises
    ------
    TypeError, ValueError
        If one has a wrong type or value.
    """
    for name, value in (("precise", precise), ("wait", wait)):
        if not isinstance(value, (bool, np.bool)):
            raise TypeError(f"jit: {name} is {value!r}; pass True or False")
    if memory_limit is not None:
        memory_limit = _count("memory_limit", memory_limit, "a number of bytes", ", or None")
    max_paths = _count("max_paths", max_paths, "a number of paths")
    constants = assume_constant if isinstance(assume_constant, tuple) else (assume_constant,)
    if isinstance(assume_constant, list):
        constants = tuple(assume_constant)
    for x in constants:
        if x is None or isinstance(x, (bool, int, float, complex)):
            raise TypeError(
                f"jit: assume_constant is {x!r}; pass names that the function uses, such as "
                "'table' or 'model.weights', or the objects themselves"
            )
    positions = _positions(donate)
    return Options(bool(precise), memory_limit, max_paths, positions, constants, bool(wait))


def _positions(value: Any) -> tuple[int, ...]:
    positions = value if isinstance(value, (tuple, list)) else (value,)
    for k in positions:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)):
            raise TypeError(f"jit: donate is {value!r}; pass positions of arguments")
        if k < 0:
            raise ValueError(f"jit: donate is {value!r}; count arguments from the first one, 0")
    if len(set(positions)) != len(positions):
        raise ValueError(f"jit: donate is {value!r}; name each argument once")
    return tuple(sorted(map(int, positions)))


def _count(name: str, value: Any, what: str, other: str = "") -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"jit: {name} is {value!r}; pass {what}{other}")
    if value < 1:
        raise ValueError(f"jit: {name} is {value}; pass {what} of at least 1{other}")
    return int(value)
