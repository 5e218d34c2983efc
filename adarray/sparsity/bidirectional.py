"""Colours of some rows and of some columns: for matrices with a few dense rows and dense columns.

A dense row needs a colour for each of its columns in forward mode, and a dense column one for each
of its rows in reverse mode. Entries of the few longest rows (or columns) are therefore computed in
one mode, and all others in the other, whose colouring does not see those rows [1]_, [2]_.

References
----------
.. [1] T. F. Coleman, A. Verma, "The efficient computation of sparse Jacobian matrices using
   automatic differentiation", SIAM J. Sci. Comput. 19 (1998), 1210-1233.
.. [2] A. H. Gebremedhin, F. Manne, A. Pothen, "What Color Is Your Jacobian?", SIAM Review 47
   (2005), section 6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from adarray.sparsity.coloring import Coloring, Half, fewest, transposed

MANY = 64  # rows, or columns, at most, that are taken apart
_TRIED = 3  # numbers of them that are coloured
GAIN = 2  # passes that both modes have to save: the function itself runs for each


class ColoredPart(NamedTuple):
    """Entries that one mode computes.

    Parameters
    ----------
    entries : ndarray
        Their numbers in the whole pattern.
    coloring : Coloring
        With the colour -1 for the columns or rows that take no part.
    """

    entries: np.ndarray
    coloring: Coloring


class Both(NamedTuple):
    """Colours of columns and of rows.

    Parameters
    ----------
    parts : tuple of ColoredPart
        Forward and reverse.
    """

    parts: tuple[ColoredPart, ColoredPart]

    @property
    def mode(self) -> str:
        """That of the whole matrix."""
        return "both"

    @property
    def colors(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the columns, and of the rows; -1 for none."""
        return self.parts[0].coloring.colors, self.parts[1].coloring.colors

    @property
    def total(self) -> int:
        """The number of colours."""
        return sum(part.coloring.total for part in self.parts)


class _Way(NamedTuple):
    """So many longest rows, or columns, taken apart, and the passes that are needed at least."""

    bound: int
    rows: bool
    chosen: int


def bound_of_both(pattern: Half, n: int) -> int:
    """Return how many passes both modes may need: about, and cheaply found."""
    return min((way.bound for way in _ways(*_lengths(pattern, n))), default=1 << 62)


def of_both(pattern: Half, n: int) -> Both | None:
    """Colour some rows and some columns of a pattern; None if there is nothing to divide.

    Parameters
    ----------
    pattern : pair of ndarray
        By rows: starts (int64) and column numbers (int32), ascending.
    n : int
        Number of columns.
    """
    lengths = _lengths(pattern, n)
    best: Both | None = None
    for way in sorted(_ways(*lengths))[:_TRIED]:
        if best is None or way.bound < best.total:
            chosen = _longest(lengths[not way.rows], way.chosen)
            divided = _divided(pattern, n, chosen, way.rows)
            if best is None or divided.total < best.total:
                best = divided
    return best


def _lengths(pattern: Half, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return how many entries rows and columns have."""
    return np.diff(pattern[0]), np.bincount(pattern[1], minlength=n)


def _ways(rows: np.ndarray, columns: np.ndarray) -> Iterator[_Way]:
    """Yield ways of taking the longest rows or columns apart, where shorter ones are left."""
    for lengths, of_rows in ((rows, True), (columns, False)):
        most = min(MANY, lengths.size - 1)
        if most < 1:
            continue
        longest = np.sort(np.partition(lengths, lengths.size - most - 1)[-most - 1 :])[::-1]
        for k in range(1, most + 1):
            if longest[k] < longest[k - 1] and longest[k] > 0:
                yield _Way(int(longest[k]) + k, of_rows, k)


def _longest(lengths: np.ndarray, count: int) -> np.ndarray:
    """Return which are the longest, as truth values."""
    least = np.partition(lengths, lengths.size - count)[-count]
    return np.asarray(lengths >= least)


def _divided(pattern: Half, n: int, chosen: np.ndarray, of_rows: bool) -> Both:
    """Colour a pattern with some rows, or columns, taken apart."""
    start, at = pattern
    m = start.size - 1
    rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(start))
    backward = chosen[rows] if of_rows else ~chosen[at]
    parts = []
    for selected, mode in ((~backward, "forward"), (backward, "reverse")):
        entries = np.flatnonzero(selected)
        own, columns = rows[selected], at[selected]
        begin = np.zeros(m + 1, np.int64)
        np.cumsum(np.bincount(own, minlength=m), out=begin[1:])
        across: Half = (begin, columns)
        along: Half = transposed(across, n)[:2]
        if mode == "reverse":
            across, along = along, across
        widest = int(np.diff(across[0]).max(initial=0))
        colors, count, order = fewest(across, along, widest)
        colors = np.where(np.diff(along[0]) > 0, colors, np.int32(-1)).astype(np.int32)
        if mode == "forward":
            where = colors[columns].astype(np.int64) * m + own
        else:
            where = colors[own].astype(np.int64) * n + columns
        parts.append(ColoredPart(entries, Coloring(mode, colors, count, order, where)))
    return Both((parts[0], parts[1]))
