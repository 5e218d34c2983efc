"""Views of arrays, given by offset and strides in elements of their C order."""

from __future__ import annotations

import numpy as np

from adarray.compiler.ir.program import c_strides


def same_steps(shape: tuple[int, ...], one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether strides lead to the same elements; those of axes of length 1 do not matter."""
    return all(n == 1 or s == t for n, s, t in zip(shape, one, other, strict=True))


def as_transpose(
    old: tuple[int, ...], new: tuple[int, ...], offset: int, strides: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the order of axes if a view is a transpose."""
    if offset or sorted(old) != sorted(new) or 0 in old or 1 in old:
        return None
    places = {s: i for i, s in enumerate(c_strides(old))}
    axes = tuple(places.get(s, -1) for s in strides)
    if sorted(axes) != list(range(len(old))) or tuple(old[i] for i in axes) != new:
        return None
    return axes


def array_view(
    x: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    """Return a view of `x`, given in elements of its C order, or of a copy where there is none.

    Parameters
    ----------
    x : ndarray
        Of any strides.
    offset : int
    shape, strides : tuple of int
    """
    if 0 in shape:
        return np.empty(shape, x.dtype)
    if not x.flags.c_contiguous:
        steps = _steps(x.shape, offset, shape, strides)
        if steps is not None:
            start, moves = steps
            return np.lib.stride_tricks.as_strided(
                x[tuple(slice(i, None) for i in start)],
                shape,
                [sum(m * s for m, s in zip(move, x.strides, strict=True)) for move in moves],
                writeable=False,
            )
        x = np.ascontiguousarray(x)
    item = x.itemsize
    return np.ndarray(shape, x.dtype, x, offset * item, tuple(s * item for s in strides))


def _steps(
    inside: tuple[int, ...], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[list[int], list[list[int]]] | None:
    """Return the first index of a view, and how each of its axes moves along those of its base.

    None if some step crosses the end of an axis, so that no strides describe the view of a
    base that is not contiguous.
    """
    start: list[int] = []
    for s in c_strides(inside):
        start.append(offset // s if s else 0)
        offset -= start[-1] * s
    # 3 along (6, 4) is three to the right, or one down and one to the left as in a diagonal.
    for nearest in (False, True):
        moves = [
            _digits(inside, stride, nearest) if n > 1 else [0] * len(inside)
            for n, stride in zip(shape, strides, strict=True)
        ]
        low, high = list(start), list(start)
        for n, move in zip(shape, moves, strict=True):
            for k, m in enumerate(move):
                low[k] += min(m * (n - 1), 0)
                high[k] += max(m * (n - 1), 0)
        if all(a >= 0 and b < n for a, b, n in zip(low, high, inside, strict=True)):
            return start, moves
    return None


def _digits(inside: tuple[int, ...], stride: int, nearest: bool) -> list[int]:
    """Return steps along the axes of an array that together move by `stride` elements."""
    move = []
    for s in c_strides(inside):
        step = round(stride / s) if nearest else int(stride / s)
        move.append(step)
        stride -= step * s
    return move
