"""Copies of arrays with the original's memory layout.

Whether ``reshape``, ``ravel`` and the like return a view or a copy depends on the strides of their
argument. So a copy that stands for an array of the user must have strides of the same kind. If,
for instance, a reversed array were copied in C order, ``ravel`` would return a view where NumPy
copies, and writes to the result would reach the array.
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import numpy as np

from adarray.base.types import ArrayValue, DType


def duplicate(x: ArrayValue, exactly: bool = False) -> Any:
    """Return a copy of which NumPy makes views and copies wherever it does of the original.

    Parameters
    ----------
    x : ndarray
    exactly : bool
        Whether gaps are as large as those of `x`, so that strides are the same.

    Returns
    -------
    ndarray
        Axes are in the same order in memory and run the same way; those that follow one
        another without a gap still do, and others have a gap of one element between them.

    Examples
    --------
    >>> x = np.arange(6.0).reshape(2, 3)[:, ::-1]
    >>> duplicate(x).strides, x.copy("K").strides
    ((24, -8), (24, 8))
    """
    if type(x) is not np.ndarray:  # one on a device lays itself out
        return getattr(x, "duplicate", functools.partial(x.copy, "K"))()
    if x.flags.forc:
        return x.copy("K")
    strides = x.strides if exactly else strides_like(x.shape, x.strides, x.itemsize)
    if strides is None:
        return x.copy("K")
    out = strided(x.shape, strides, x.dtype)
    out[...] = x
    return out


def strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Return an array of zeros with these strides."""
    first = sum((1 - n) * s for n, s in zip(shape, strides, strict=True) if s < 0)
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0)
    memory = np.zeros(max(first + last, 0) // dtype.itemsize + 1, dtype)
    return np.ndarray(shape, dtype, memory, first, strides)


def strides_like(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int,
    original: tuple[int, ...] | None = None,
) -> tuple[int, ...] | None:  # fmt: skip
    """Return strides of the same kind for an array of a shape; None where elements share memory.

    Parameters
    ----------
    shape, strides : tuple of int
    itemsize : int
    original : tuple of int, optional
        The shape of the array that has `strides`, where it is another one.
    """
    own = shape if original is None else original
    result = [itemsize] * len(shape)
    end = follows = reach = itemsize
    for s, axis in sorted((abs(s), a) for a, s in enumerate(strides) if own[a] != 1):
        if s < end:
            return None
        step = reach if s == follows else reach + itemsize
        result[axis] = step if strides[axis] > 0 else -step
        end = s * (own[axis] - 1) + itemsize
        follows, reach = s * own[axis], step * shape[axis]
    return tuple(result)


def order_of(x: ArrayValue) -> tuple[int, ...] | None:
    """Return the axes of an array from the outermost in memory; None if it is in C order.

    Examples
    --------
    >>> order_of(np.zeros((2, 3)).T)
    (1, 0)
    """
    if x.ndim < 2 or x.flags.c_contiguous or not x.size:
        return None
    axes = tuple(sorted(range(x.ndim), key=lambda a: (x.shape[a] == 1, -abs(x.strides[a]))))
    long = [a for a in axes if x.shape[a] > 1]
    return None if long == sorted(long) else axes


def laid(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return a copy whose axes lie in memory in the order `axes`, outermost first."""
    out = np.empty([x.shape[a] for a in axes], x.dtype).transpose(np.argsort(axes))
    out[...] = x
    return out


class ArgumentMemory(np.ndarray):
    """The base of a copy that stands for an argument which is a view."""

    __slots__ = ()


def stand_in(x: np.ndarray, marked: bool = False) -> np.ndarray:
    """Return a copy that stands for an argument: like `duplicate`, but a view if `x` is one.

    With `marked`, the base of that view is an `ArgumentMemory`.
    """
    flags = x.flags
    if x.base is None and flags.forc and flags.writeable:  # what all else here comes to
        return x.copy("K")
    repeats = 0 in x.strides and not flags.forc
    out: np.ndarray = _broadcast(x) if repeats else duplicate(x)
    if x.base is not None and marked:
        # NumPy leaves out bases on the way that are of the class of the view.
        out = out.view(ArgumentMemory)[...].view(np.ndarray)
    elif x.base is not None:
        out = out[...]
    if not x.flags.writeable:
        out.flags.writeable = False
    return out


def _broadcast(x: np.ndarray) -> np.ndarray:
    """Return a duplicate that repeats its elements along the axes along which `x` does."""
    once = [
        slice(1) if n > 1 and s == 0 else slice(None)
        for n, s in zip(x.shape, x.strides, strict=True)
    ]
    small: np.ndarray = duplicate(x[tuple(once)])
    strides = [0 if i.stop else s for i, s in zip(once, small.strides, strict=True)]
    out: np.ndarray = np.lib.stride_tricks.as_strided(small, x.shape, strides)
    return out


class MemoryLayout(NamedTuple):
    """How to view one block of memory as an array with strides of a given kind.

    That is ``memory[parts].transpose(axes)``, where `memory` is in C order and has the shape
    `shape`. Strides are of the kind that `duplicate` tells of; only gaps are larger.
    """

    shape: tuple[int, ...]
    parts: tuple[slice | int, ...]
    axes: tuple[int, ...]


def layout_of(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> MemoryLayout | None:
    """Return how an array lies in memory; None where elements share it.

    Examples
    --------
    >>> layout_of((2, 3), (24, -8), 8)
    MemoryLayout(shape=(2, 3), parts=(slice(None, 2, None), slice(2, None, -1)), axes=(0, 1))
    """
    sizes: list[int] = []
    index: list[slice | int] = []
    order = sorted(range(len(shape)), key=lambda a: (shape[a] == 1, abs(strides[a])))
    end = follows = itemsize
    for k, axis in enumerate(order):  # from the innermost one
        n, s = shape[axis], abs(strides[axis])
        if n > 1:
            if s < end:
                return None
            if s != follows and not k:
                sizes, index = [2], [0]
            elif s != follows:
                sizes[-1] += 1
            end, follows = s * (n - 1) + itemsize, s * n
        sizes.append(n)
        index.append(slice(n - 1, None, -1) if strides[axis] < 0 else slice(n))
    outer = order[::-1]
    axes = tuple(outer.index(a) for a in range(len(shape)))
    return MemoryLayout(tuple(sizes[::-1]), tuple(index[::-1]), axes)


@functools.lru_cache(maxsize=1024)
def result_axes(*operands: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the axes of the result of an elementwise operation, from the outermost in memory.

    None if that is in C order. NumPy's iterator is asked, over arrays without memory: results lie
    as most of the operands do.

    Parameters
    ----------
    *operands : tuple
        Shape and strides of each.

    Examples
    --------
    >>> result_axes(((3, 2), (8, -48)))
    (1, 0)
    """
    small = [
        np.lib.stride_tricks.as_strided(np.empty(1, np.uint8), [min(n, 2) for n in shape], strides)
        for shape, strides in operands
    ]
    flags: list[list[Literal["readonly", "writeonly", "allocate"]]]
    flags = [["readonly"] for _ in small]
    it = np.nditer([*small, None], [], [*flags, ["writeonly", "allocate"]], order="K")
    strides = it.operands[-1].strides
    axes = tuple(sorted(range(len(strides)), key=lambda a: -strides[a]))
    return None if axes == tuple(range(len(axes))) else axes
