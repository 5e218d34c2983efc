"""How a kernel is launched: its grid, its blocks, and numbers that stay the same."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

from adarray.errors import KernelError

MOST_THREADS = 1024


class Launch(NamedTuple):
    """A launch, but for its arrays and floating-point numbers.

    Parameters
    ----------
    grid, block : tuple of int
        Of three each.
    shared : int
        Bytes of shared memory beside what the source declares.
    integers : tuple of (str, int)
        Parameters by name.
    active : tuple of bool
        Which operands derivatives may be wanted by.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    integers: tuple[tuple[str, int], ...]
    active: tuple[bool, ...]

    @property
    def threads(self) -> int:
        """Number of threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def alone(self) -> bool:
        """Whether there is one thread."""
        return self.blocks == self.threads == 1


def triple(sizes: Any, name: str, what: str) -> tuple[int, int, int]:
    """Return a grid or a block as three numbers.

    Raises
    ------
    KernelError
        If it is none.
    """
    try:
        words = (
            tuple(map(operator.index, sizes))
            if isinstance(sizes, (tuple, list))
            else (operator.index(sizes),)
        )
    except TypeError:
        words = ()
    if not 1 <= len(words) <= 3 or min(words) < 1:
        raise KernelError(
            f"kernel {name}: the {what} is {sizes!r}; pass up to three whole numbers above 0"
        )
    padded = (*words, 1, 1)[:3]
    if what == "block" and padded[0] * padded[1] * padded[2] > MOST_THREADS:
        raise KernelError(
            f"kernel {name}: the block {sizes!r} has more than {MOST_THREADS} threads"
        )
    return padded[0], padded[1], padded[2]
