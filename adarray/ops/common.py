"""What the records of several modules share."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.aval import Aval
from adarray.dispatch import replay
from adarray.op import Op, Sample
from adarray.trace import Handle


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum `g` over the axes along which an operand of `shape` was broadcast."""
    lead = g.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
    )
    if axes:
        g = np.sum(g, axis=axes, keepdims=True)
    return np.reshape(g, shape) if g.shape != shape else g


class Placed:
    """A cotangent that is zero outside of one region: (array, region), never dense zeros.

    Parameters
    ----------
    aval : Aval
        Shape and dtype of the whole.
    index : index
        The region.
    g : array
        Its values.
    steps : tuple
        Layout steps to take before `index`.
    """

    __slots__ = ("aval", "g", "index", "steps")

    def __init__(self, aval: Aval, index: Any, g: Any, steps: tuple[Any, ...] = ()) -> None:
        self.aval = aval
        self.index = index
        self.g = g
        self.steps = steps

    def zeros(self) -> Any:
        """Return zeros of the whole's shape, ADArray if the values are one."""
        made = np.zeros(self.aval.shape, self.aval.dtype)
        return type(self.g)(made) if isinstance(self.g, Handle) else made

    def add_to(self, total: Any) -> Any:
        """Add the region into `total`, in place, and return it."""
        if isinstance(self.g, Handle) and not isinstance(total, Handle):
            total = type(self.g)(total)
        target = replay(total, self.steps)
        if _may_repeat(self.index):
            np.add.at(target, self.index, self.g)
        else:
            target[self.index] += self.g
        return total


def _may_repeat(index: Any) -> bool:
    """Whether an index may name an element twice: it holds integer arrays."""
    for i in index if isinstance(index, tuple) else (index,):
        if isinstance(i, (list, np.ndarray)) and np.asarray(i).dtype.kind in "iu":
            return True
    return False


def normalized_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return `axis` (None, an int or a tuple) as a tuple of non-negative axes."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(int(a) % ndim for a in axes) if ndim else ()


def keep(g: Any, shape: tuple[int, ...], axis: Any) -> Any:
    """Give a reduction's result back its reduced axes, with length 1."""
    axes = normalized_axes(axis, len(shape))
    return np.reshape(g, tuple(1 if i in axes else n for i, n in enumerate(shape)))


def s(*args: Any, **kwargs: Any) -> Sample:
    """Return a `Sample`, as records write it."""
    return Sample(args, kwargs)


__all__ = ["Op", "Placed", "keep", "normalized_axes", "s", "unbroadcast"]
