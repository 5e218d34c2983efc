"""Colourings of sparse patterns, in C."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

_module = importlib.import_module("adarray_native._coloring")
_lib = _module.lib


def _at(x: np.ndarray) -> int:
    return int(x.__array_interface__["data"][0])


def _checked(status: int) -> int:
    if status < 0:
        raise MemoryError("colouring: no memory for the pattern")
    return status


def columns(rows: Any, down: Any, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Colour columns such that those that meet in a row differ; return colours and their number.

    Parameters
    ----------
    rows, down : pair of ndarray
        The pattern by rows and by columns: starts (int64) and indices (int32).
    order : ndarray of int32
    """
    colors = np.empty(order.size, np.int32)
    count = _lib.adarray_color_columns(
        order.size, *map(_at, (*rows, *down, order, colors))
    )  # fmt: skip
    return colors, _checked(count)


def smallest_last(rows: Any, down: Any) -> np.ndarray:
    """Return columns in the order in which each has the fewest neighbours before it."""
    order = np.empty(down[0].size - 1, np.int32)
    _checked(_lib.adarray_smallest_last(order.size, *map(_at, (*rows, *down, order))))
    return order


def star(pattern: Any, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Colour a symmetric pattern without diagonal such that paths of four have three colours."""
    colors = np.empty(order.size, np.int32)
    count = _lib.adarray_color_star(order.size, *map(_at, (*pattern, order, colors)))
    return colors, _checked(count)


def acyclic(
    pattern: Any, edge: np.ndarray, edges: int, order: np.ndarray
) -> tuple[np.ndarray, int]:
    """Colour a symmetric pattern without diagonal such that cycles have three colours."""
    colors = np.empty(order.size, np.int32)
    where = list(map(_at, (*pattern, edge)))
    count = _lib.adarray_color_acyclic(order.size, *where, edges, *map(_at, (order, colors)))
    return colors, _checked(count)


def peel(place: np.ndarray, other: np.ndarray, places: int) -> np.ndarray:
    """Return slots in an order in which each is known from its sum and those before it."""
    order = np.empty(place.size, np.int32)
    count = _lib.adarray_peel(place.size, places, *map(_at, (place, other, order)))
    return order[: _checked(count)].copy()


def substitute(source: np.ndarray, target: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return entries from sums, in which they are replaced: see coloring.h."""
    values = np.empty(source.size)
    _lib.adarray_substitute(source.size, *map(_at, (source, target, sums, values)))
    return values


def pick(entries: Any, where: np.ndarray, sums: np.ndarray, values: np.ndarray) -> None:
    """Write ``sums[where]`` to ``values[entries]``; None: to all, in their order."""
    if where.dtype != np.int32 or sums.dtype.itemsize not in (4, 8):
        values[slice(None) if entries is None else entries] = sums[where]
        return
    sums = np.ascontiguousarray(sums)
    at = 0 if entries is None else _at(entries)
    size = sums.dtype.itemsize
    _lib.adarray_pick(where.size, at, _at(where), _at(sums), _at(values), size)
