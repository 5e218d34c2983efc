"""Which directions one evaluation may combine, and how entries are read from what comes out.

References
----------
- A. R. Curtis, M. J. D. Powell, J. K. Reid, "On the estimation of sparse Jacobian matrices", IMA J.
  Appl. Math. 13 (1974), 117-119.
- M. J. D. Powell, P. L. Toint, "On the estimation of sparse Hessian matrices", SIAM J. Numer. Anal.
  16 (1979), 1060-1074.
- A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for computing
  derivatives", SIAM Review 47 (2005), 629-705.
- A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New acyclic and star coloring algorithms
  with application to computing Hessians", SIAM J. Sci. Comput. 29 (2007), 1042-1072.
- A. H. Gebremedhin, A. Tarafdar, A. Pothen, A. Walther, "Efficient computation of sparse Hessians
  using coloring and automatic differentiation", INFORMS J. Comput. 21 (2009), 209-223.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from adarray.backend import load
from adarray.base.errors import BackendError
from adarray.base.runtime import ColoringBackend
from adarray.sparsity import greedy

# Steps of a greedy colouring up to which other orders than the first are tried, and those that
# are too many for any.
FEW = 1 << 30
TOO_MANY = 1 << 36

Half = tuple[np.ndarray, np.ndarray]


class Coloring(NamedTuple):
    """Colours, and the places of a pattern's entries in the products computed with them.

    Parameters
    ----------
    mode : {"forward", "reverse"}
        Whether columns are coloured (tangents), or rows (cotangents).
    colors : ndarray of int32
        Of the columns or rows.
    total : int
        Number of colours.
    order : str
        In which the columns, rows or vertices were coloured.
    where : ndarray of int64
        For each entry, its place in the results, which lie one behind the other, or among the
        `steps`.
    steps : pair of ndarray or None
        From which sum each step reads its entry, and from which one it is taken out then; see
        ``native/cpu/coloring.h``.
    """

    mode: str
    colors: np.ndarray
    total: int
    order: str
    where: np.ndarray
    steps: tuple[np.ndarray, np.ndarray] | None = None


@functools.cache
def library() -> Any:
    """Return the module of colourings: C, or Python where it was not compiled."""
    try:
        backend = load("serial")
        if isinstance(backend, ColoringBackend):
            return backend.coloring()
    except BackendError:
        pass
    return greedy


def transposed(pattern: Half, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a pattern by columns, and for each of its entries its number by rows."""
    import scipy.sparse

    start, at = pattern
    numbers = np.arange(at.size, dtype=np.int64)
    columns = scipy.sparse.csr_array((numbers, at, start), shape=(start.size - 1, n)).tocsc()
    return columns.indptr.astype(np.int64), columns.indices.astype(np.int32), columns.data


def of_jacobian(pattern: Half, n: int, mode: str) -> Coloring:
    """Colour columns or rows of a pattern, whichever needs fewer, such that none meet.

    Parameters
    ----------
    pattern : pair of ndarray
        By rows: starts (int64) and column numbers (int32), ascending.
    n : int
        Number of columns.
    mode : {"auto", "forward", "reverse"}
    """
    start, at = pattern
    m = start.size - 1
    by_columns = transposed(pattern, n)
    down = by_columns[:2]
    widest = int(np.diff(start).max(initial=0))
    longest = int(np.diff(down[0]).max(initial=0))
    ways = {"forward": (pattern, down, widest), "reverse": (down, pattern, longest)}
    wanted = [mode] if mode != "auto" else sorted(ways, key=lambda way: ways[way][2])
    best: Any = None
    for way in wanted:
        across, along, least = ways[way]
        if best is not None and least >= best[2]:
            continue
        candidate = fewest(across, along, least)
        if best is None or candidate[1] < best[2] or (candidate[1] == best[2] and way == "forward"):
            best = (way, *candidate)
    way, colors, count, order = best
    rows = np.repeat(np.arange(m, dtype=np.int64), np.diff(start))
    if way == "forward":
        where = colors[at].astype(np.int64) * m + rows
    else:
        where = colors[rows].astype(np.int64) * n + at
    return Coloring(way, colors, count, order, where)


def fewest(across: Half, along: Half, least: int) -> tuple[np.ndarray, int, str]:
    """Colour what `along` lists, such that none meet in `across`.

    Return the fewest colours that some orders need, their number, and the order.
    """
    n = along[0].size - 1
    lengths = np.diff(across[0]).astype(float)
    work = float(np.dot(lengths, lengths))
    if work > TOO_MANY:  # some row is so long that there is a colour for nearly each column
        return np.arange(n, dtype=np.int32), n, "natural"
    lib = library()
    best: Any = None
    for name in ("natural", "largest first", "smallest last"):
        order = _order(name, across, along)
        colors, count = lib.columns(across, along, order)
        if best is None or count < best[1]:
            best = (colors, count, name)
        if best[1] <= least or work > FEW:
            break
    return best  # type: ignore[no-any-return]


def _order(name: str, across: Half, along: Half) -> np.ndarray:
    """Return columns in the order in which they are coloured."""
    n = along[0].size - 1
    if name == "natural":
        return np.arange(n, dtype=np.int32)
    if name == "smallest last":
        order: np.ndarray = library().smallest_last(across, along)
        return order
    lengths = np.diff(across[0])
    sums = np.zeros(along[1].size + 1, np.int64)
    np.cumsum(lengths[along[1]], out=sums[1:])
    return np.argsort(sums[along[0][:-1]] - sums[along[0][1:]], kind="stable").astype(np.int32)


def of_hessian(pattern: Half, recovery: str) -> Coloring:
    """Colour a symmetric pattern: by stars for direct recovery, acyclically for substitution.

    Parameters
    ----------
    pattern : pair of ndarray
        Symmetric, by rows.
    recovery : {"direct", "substitution"}
    """
    start, at = pattern
    n = start.size - 1
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(start))
    other = transposed(pattern, n)[2]
    off = rows != at
    neighbours = (_starts(rows[off], n), at[off])
    lengths = np.diff(neighbours[0]).astype(float)
    work = float(np.dot(lengths, lengths))
    names = ["natural", "smallest last", "largest first"]
    if work > FEW:
        names = names[:1]
    elif work * lengths.mean() > FEW / 4:
        names = names[:2]
    lib = library()
    best: Any = None
    edges = _edges(rows, at, other, off) if recovery == "substitution" else None
    for name in names:
        order = _order(name, neighbours, neighbours)
        if edges is not None:
            colors, count = lib.acyclic(neighbours, *edges, order)
        else:
            colors, count = lib.star(neighbours, order)
        if best is None or count < best[1]:
            best = (colors, count, name)
        if best[1] <= 2:
            break
    colors, count, name = best
    place = colors[at].astype(np.int64) * n + rows
    if edges is not None:
        substitution = _substituted(place, other, max(count * n, 1))
        return Coloring("forward", colors, count, name, *substitution)
    alone = np.bincount(place, minlength=1)[place] == 1
    mirrored = place[other]
    assert np.all(alone | alone[other])  # that is what stars are
    return Coloring("forward", colors, count, name, np.where(alone, place, mirrored))


def _starts(rows: np.ndarray, n: int) -> np.ndarray:
    """Return where each row begins among entries that are sorted by rows."""
    start = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=start[1:])
    return start


def _edges(
    rows: np.ndarray, at: np.ndarray, other: np.ndarray, off: np.ndarray
) -> tuple[np.ndarray, int]:
    """Return the number of the edge of each entry off the diagonal, and how many there are."""
    upper = rows < at
    number = np.cumsum(upper, dtype=np.int64) - 1
    edge = np.where(upper, number, number[other])
    return edge[off].astype(np.int32), int(upper.sum())


def _substituted(
    place: np.ndarray, other: np.ndarray, places: int
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Return among which steps the entries are found, and the steps."""
    order = library().peel(place.astype(np.int32), other.astype(np.int32), places)
    where = np.full(place.size, -1, np.int64)
    numbers = np.arange(order.size)
    where[order] = numbers
    where[other[order]] = numbers
    assert np.all(where >= 0)  # that is what forests are
    target = np.where(other[order] == order, -1, place[other[order]])
    return where, (place[order], target)
