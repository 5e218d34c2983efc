"""On which elements of the input each element of an array depends.

A dependence is a tuple of terms. A term is a table of rows, each a set of numbers of input
elements, and an integer array of the shape of the value that says which row each element takes,
-1 for none; the element depends on the union over all terms. So a slice of the input costs a view,
a sum of two arrays nothing, and a number that all elements of an array read is one row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from adarray.base.errors import ADArrayError

# Entries from which a pattern is not worth being called sparse: 1 GiB of column numbers.
LIMIT = 1 << 28
# Terms up to which unions stay lists of terms.
MANY = 24
# Terms from which arrays are put together row by row.
MANY_SLOTS = 24
# Terms from which those of equal contents are looked for.
FEW = 4


class NotSparseError(ADArrayError):
    """A pattern has so many entries that nothing is gained from it."""


class IndexTable:
    """Rows of numbers of input elements, ascending and each of them once.

    Parameters
    ----------
    start : ndarray of int64, shape (rows + 1,)
        Where each row begins in `at`.
    at : ndarray of int32
    identity : bool
        Whether row i is the number i alone.
    """

    __slots__ = ("at", "identity", "start")

    def __init__(self, start: np.ndarray, at: np.ndarray, identity: bool = False) -> None:
        self.start = start
        self.at = at
        self.identity = identity

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.start.size - 1


class Term(NamedTuple):
    """Rows of a table for the elements of a value.

    Parameters
    ----------
    table : IndexTable
    row : ndarray of int32
        Of the shape of the value; may be a view. Not written to.
    """

    table: IndexTable
    row: np.ndarray


Terms = tuple[Term, ...]


def identity(first: int, shape: tuple[int, ...], n: int) -> Terms:
    """Return the dependence of an input whose elements have the numbers from `first` on."""
    numbers = np.arange(n, dtype=np.int32)
    table = IndexTable(np.arange(n + 1, dtype=np.int64), numbers, True)
    return (Term(table, numbers[first : first + math.prod(shape)].reshape(shape)),)


def _key(t: Term) -> Any:
    where = t.row.__array_interface__["data"][0]
    return (id(t.table), where, t.row.shape, t.row.strides)


def union(parts: Iterable[Terms], shape: tuple[int, ...], n: int) -> Terms:
    """Return the dependence of an elementwise result of broadcast operands."""
    by_key: dict[Any, Term] = {}
    for terms in parts:
        for t in terms:
            term = t if t.row.shape == shape else Term(t.table, np.broadcast_to(t.row, shape))
            by_key.setdefault(_key(term), term)
    terms = tuple(by_key.values())
    if len(terms) > FEW:
        terms = distinct(terms)
    return terms if len(terms) <= MANY else settled(terms, shape, n)


def distinct(terms: Terms) -> Terms:
    """Return terms without those of equal contents: ``roll(roll(x, 1), -1)`` is `x`."""
    by_contents: dict[Any, list[Term]] = {}
    for t in terms:
        flat = t.row.reshape(-1) if t.row.flags.c_contiguous else t.row.flat
        step = max(t.row.size // 8, 1)
        same = by_contents.setdefault((id(t.table), *map(int, flat[::step])), [])
        if not any(np.array_equal(t.row, other.row) for other in same):
            same.append(t)
    return tuple(t for same in by_contents.values() for t in same)


def settled(terms: Terms, shape: tuple[int, ...], n: int) -> Terms:
    """Return the same dependence as one term, of a table with a row for each element."""
    start, at = rows_of(terms, math.prod(shape), n)
    numbers = np.arange(start.size - 1, dtype=np.int32).reshape(shape)
    return (Term(IndexTable(start, at), numbers),)


def whole(terms: Terms, n: int) -> Terms:
    """Return the dependence of a number that depends on all elements: terms of shape ()."""
    return reduced(terms, tuple(range(terms[0].row.ndim)), n) if terms else ()


def reduced(terms: Terms, axes: tuple[int, ...], n: int) -> Terms:
    """Return the dependence of a result in which `axes` are folded, and disappear."""
    if not terms or not axes:
        return terms
    old = terms[0].row.shape
    count = math.prod(old[a] for a in axes)
    remaining = tuple(k for k in range(len(old)) if k not in axes)
    shape = tuple(old[k] for k in remaining)
    if count * len(terms) <= MANY:
        slices = []
        for t in terms:
            moved = np.transpose(t.row, (*axes, *remaining)).reshape((count, *shape))
            slices.append(tuple(Term(t.table, moved[i, ...]) for i in range(count)))
        return union(slices, shape, n)
    outs = np.arange(math.prod(shape), dtype=np.int32).reshape(
        tuple(1 if k in axes else m for k, m in enumerate(old))
    )
    pairs = [(t.table, np.broadcast_to(outs, old), t.row) for t in terms]
    return gathered(pairs, shape, n)


def gathered(
    pairs: Sequence[tuple[IndexTable, np.ndarray, np.ndarray]], shape: tuple[int, ...], n: int
) -> Terms:
    """Return the dependence of elements that are given as pairs.

    Parameters
    ----------
    pairs : sequence of (IndexTable, ndarray, ndarray)
        Numbers of elements of the result, and rows of the table that they depend on.
    shape : tuple of int
        Of the result.
    n : int
        Number of input elements.
    """
    size = math.prod(shape)
    total: Any = None
    for table, outs, rows in _by_table(pairs):
        chosen = _selection(size, table, outs, rows, n)
        total = chosen if total is None else total + chosen
    if total is None:
        return ()
    start, at = _sorted(total)
    return (Term(IndexTable(start, at), np.arange(size, dtype=np.int32).reshape(shape)),)


def _by_table(
    pairs: Sequence[tuple[IndexTable, np.ndarray, np.ndarray]],
) -> Iterable[tuple[IndexTable, np.ndarray, np.ndarray]]:
    """Yield pairs such that each table comes once."""
    groups: dict[int, list[tuple[IndexTable, np.ndarray, np.ndarray]]] = {}
    for pair in pairs:
        groups.setdefault(id(pair[0]), []).append(pair)
    for group in groups.values():
        outs = [np.ravel(out) for _, out, _ in group]
        rows = [np.ravel(row) for _, _, row in group]
        yield group[0][0], np.concatenate(outs), np.concatenate(rows)


def _selection(size: int, table: IndexTable, out: np.ndarray, row: np.ndarray, n: int) -> Any:
    """Return a boolean matrix: the union of rows of a table for each element of a result."""
    import scipy.sparse

    out, row = np.ravel(out), np.ravel(row)
    if row.size and row.min() < 0:
        used = row >= 0
        out, row = out[used], row[used]
    ones = np.ones(row.size, np.int32)
    picks = scipy.sparse.csr_array((ones, (out, row)), shape=(size, table.rows))
    if table.identity:
        selection = picks
    else:
        counts = np.diff(table.start)
        expected = int(np.dot(np.bincount(row, minlength=table.rows), counts))
        if expected > LIMIT:
            picks.data[:] = 1  # each once
            expected = int(np.sum(counts[picks.indices]))
        _check(expected)
        rows = scipy.sparse.csr_array(
            (np.ones(table.at.size, np.int32), table.at, table.start), shape=(table.rows, n)
        )
        selection = picks @ rows
    selection.data[:] = 1
    return selection


def _check(entries: int) -> None:
    if entries > LIMIT:
        raise NotSparseError(f"the pattern has about {entries:,} entries, which is not sparse")


def _sorted(matrix: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the pattern of a boolean matrix as starts and ascending column numbers."""
    matrix.sum_duplicates()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def rows_of(terms: Terms, size: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers that each element depends on: starts, and ascending numbers.

    Parameters
    ----------
    terms : tuple of Term
    size : int
        Number of elements of the value.
    n : int
        Number of input elements.
    """
    if not terms or not size:
        return np.zeros(size + 1, np.int64), np.zeros(0, np.int32)
    plain = [t for t in terms if t.table.identity]
    total = None
    if plain:
        total = _side_by_side(plain, size)
        if len(plain) == len(terms):
            return total
    import scipy.sparse

    matrix: Any = None
    if total is not None:
        start, at = total
        matrix = scipy.sparse.csr_array((np.ones(at.size, np.int32), at, start), shape=(size, n))
    outs = np.arange(size, dtype=np.int32)
    pairs = [(t.table, outs, t.row) for t in terms if not t.table.identity]
    for table, out, row in _by_table(pairs):
        selection = _selection(size, table, out, row, n)
        matrix = selection if matrix is None else matrix + selection
        matrix.data[:] = 1
        _check(matrix.nnz)
    return _sorted(matrix)


def _side_by_side(terms: list[Term], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of terms that are numbers of elements themselves."""
    _check(size * len(terms))
    block = np.empty((size, len(terms)), np.int32)
    for k, t in enumerate(terms):
        block[:, k] = t.row.reshape(-1)
    block.sort(axis=1)
    used = block >= 0
    used[:, 1:] &= block[:, 1:] != block[:, :-1]
    start = np.zeros(size + 1, np.int64)
    np.cumsum(used.sum(axis=1), out=start[1:])
    return start, block[used]


def masked(terms: Terms, mask: np.ndarray) -> Terms:
    """Return a dependence without that of some elements."""
    return tuple(Term(t.table, np.where(mask, t.row, np.int32(-1))) for t in terms)


def slotted(
    parts: list[tuple[Terms, Any, Any]], shape: tuple[int, ...], n: int, apart: bool = False
) -> Terms:
    """Return the dependence of a value that is put together from parts.

    Parameters
    ----------
    parts : list of (Terms, ndarray of bool or None, index or None)
        The dependence of a part; which of its elements count; where it is in the value. Later
        parts take the place of earlier ones.
    shape : tuple of int
    n : int
    apart : bool
        Whether they are added instead.
    """
    if any(len(terms) > MANY_SLOTS for terms, _, _ in parts):
        parts = [
            (settled(terms, terms[0].row.shape, n) if len(terms) > MANY_SLOTS else terms, m, k)
            for terms, m, k in parts
        ]
    tables: dict[int, IndexTable] = {id(t.table): t.table for terms, _, _ in parts for t in terms}
    rows: dict[int, list[np.ndarray]] = {key: [] for key in tables}
    for number, (terms, mask, index) in enumerate(parts):
        used = dict.fromkeys(tables, 0)
        if apart and number:
            used = {key: len(slots) for key, slots in rows.items()}
        elif number and index is not None:
            for slots in rows.values():
                for row in slots:
                    row[index] = -1
        for t in terms:
            key = id(t.table)
            k = used[key]
            used[key] += 1
            if k == len(rows[key]):
                rows[key].append(np.full(shape, -1, np.int32))
            if index is not None:
                rows[key][k][index] = t.row
            elif mask is not None:
                np.copyto(rows[key][k], t.row, where=mask)
            else:
                rows[key][k][...] = t.row
    merged = tuple(Term(tables[key], row) for key, slots in rows.items() for row in slots)
    return merged if len(merged) <= 2 * MANY_SLOTS else settled(merged, shape, n)
