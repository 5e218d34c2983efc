"""How arrays are folded: lengths, launches, and what they leave."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from adarray_backends.cuda.library import CudaLibrary


class Step(NamedTuple):
    """One launch of a reduction."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    size: int  # of its result
    numbers: tuple[Any, ...]


class Folding(NamedTuple):
    """How arrays of one shape are folded along some axes."""

    steps: list[Step]
    char: str
    shape: tuple[int, ...]
    turned: bool

    def run(self, library: CudaLibrary, x: Any) -> tuple[Any, Any]:
        """Return the folded array."""
        for step in self.steps:
            out = library.run(library.xp.empty, step.size, self.char)
            library.run(step.kernel, step.grid, step.block, (x, out, *step.numbers))
            x = out
        return _shaped(x, self.shape, self.turned), None


class Extrema(NamedTuple):
    """How the extrema of rows are found, with their ties."""

    kernel: Any
    char: str
    outer: int
    n: Any
    shape: tuple[int, ...]
    turned: bool
    threads: int

    def run(self, library: CudaLibrary, x: Any) -> tuple[Any, Any]:
        """Return the extrema, and their numbers and places."""
        out = library.run(library.xp.empty, self.outer, self.char)
        found = library.run(library.xp.empty, 2 * self.outer, np.int32)
        library.run(self.kernel, (self.outer,), (self.threads,), (x, out, found, self.n))
        return _shaped(out, self.shape, self.turned), found


def _shaped(x: Any, shape: tuple[int, ...], turned: bool) -> Any:
    if x.shape != shape:
        x = x.reshape(shape)
    return x.T if turned else x


def normalized(axis: Any, ndim: int) -> list[int] | None:
    """Return the axes to fold; None where NumPy is to say what is wrong with them."""
    given = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = []
    for a in given:
        if not isinstance(a, int) or not -ndim <= a < ndim:
            return None
        axes.append(a % ndim)
    return axes if len(set(axes)) == len(axes) else None


def lengths(shape: tuple[int, ...], axes: list[int]) -> tuple[int, int, int] | None:
    """Return the lengths (outer, fold, inner) of an array; None if the axes are not together."""
    axes = [a for a in axes if shape[a] != 1]
    if not axes:
        return None
    low, high = min(axes), max(axes)
    if any(shape[a] != 1 and a not in axes for a in range(low, high + 1)):
        return None
    return math.prod(shape[:low]), math.prod(shape[low : high + 1]), math.prod(shape[high + 1 :])
