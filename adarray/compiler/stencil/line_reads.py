"""Which cells of a line a cell of a value reads: what makes a value part of a stencil on a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from adarray.compiler.ir.builder import PRINTABLE
from adarray.compiler.ir.domains import Use
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    Iota,
    Map,
    ProgramInput,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.uses import Uses
from adarray.compiler.kernels.nodes import Operation
from adarray.compiler.stencil.lower_strips import near

# Cells between what a value reads and where it stands.
FAR = 4
# Elements by which arrays of one line may differ.
SHORTER = 16
# What is computed cell by cell.
CELLWISE: frozenset[type[Operation]] = frozenset({
    Map, View, Constant, Iota, Concatenate, UpdateSlice,
})  # fmt: skip


class CellRead(NamedTuple):
    """What a cell reads of a value.

    Parameters
    ----------
    root : Value
    shift : int or None
        The cell, counted from the reader's; None for the same element for all cells.
    round : bool
        Whether it is counted round the end of the line.
    border : bool
        Whether one cell alone reads one element, as at the ends of a line.
    """

    root: Value
    shift: int | None
    round: bool = False
    border: bool = False


class LineReads:
    """What cells of values read, where the longest arrays of a line have `count` elements."""

    def __init__(self, uses: Uses, count: int) -> None:
        self.uses = uses
        self.count = count
        self.known: dict[Value, tuple[CellRead, ...] | None] = {}

    def is_line(self, value: Value) -> bool:
        """Whether an array is as long as the longest ones, or a little shorter."""
        return value.ndim == 1 and 0 <= self.count - value.shape[0] <= SHORTER

    def is_border(self, value: Value) -> bool:
        """Whether a value has one element, as pieces at the ends of a line have."""
        return value.size == 1 and value.ndim <= 1

    def of(self, value: Value) -> tuple[CellRead, ...] | None:
        """Return what a cell of a value reads, one for each use; None if it is not local."""
        if value not in self.known:
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> tuple[CellRead, ...] | None:
        p = value.primitive
        if type(p) not in CELLWISE or value.dtype not in PRINTABLE:
            return None
        if not (self.is_line(value) or self.is_border(value)):
            return None
        if isinstance(p, UpdateSlice) and any(s != 1 for s in p.steps):
            return None
        reads = []
        for use, (start, size) in zip(self.uses.uses(value), self._pieces(value), strict=True):
            read = self._read(use, start, size)
            if read is None:
                return None
            reads.append(read)
        if isinstance(p, Concatenate) and any(self._goes_round(r) for r in reads):
            reads = [r._replace(round=r.shift is not None) for r in reads]
        return tuple(reads)

    def _goes_round(self, read: CellRead) -> bool:
        if not read.border or not self.is_line(read.root):
            return read.round
        assert read.shift is not None
        return self.beside(read.root, read.shift) != read.shift

    @staticmethod
    def _pieces(value: Value) -> Iterator[tuple[int, int]]:
        """Yield where what each use reads begins in the value, and how many elements it is for."""
        own = value.size if value.ndim == 1 else 0
        match value.primitive:
            case Concatenate():
                start = 0
                for a in value.args:
                    yield start, a.size
                    start += a.size
            case UpdateSlice() as p:
                yield 0, own
                yield (p.starts[0] if p.starts else 0), value.args[1].size
            case View():
                yield 0, own
            case _:
                for _ in value.args:
                    yield 0, own

    def _read(self, use: Use, start: int, size: int) -> CellRead | None:
        """Return what is read by the cells from `start` on; None if it is not near them."""
        root = use.root
        if use.maps is None or root.dtype not in PRINTABLE or not self._lies_straight(root):
            return None
        if not root.ndim:
            return CellRead(root, None)
        if root.ndim > 1:
            return None if any(m.terms for m in use.maps) else CellRead(root, None)
        (m,) = use.maps
        if m.terms:
            if m.terms != ((0, 1),) or not self.is_line(root):
                return None
            return self._near(root, m.const)
        if size != 1:
            return CellRead(root, None)
        return CellRead(root, m.const - start, border=True)

    def _near(self, root: Value, at: int) -> CellRead | None:
        shift = self.beside(root, at)
        return CellRead(root, shift, shift != at) if abs(shift) <= FAR else None

    def beside(self, root: Value, at: int) -> int:
        """Return a distance, counted round the end of the line where that is nearer."""
        return near(at, self.count) if root.shape == (self.count,) else at

    @staticmethod
    def _lies_straight(root: Value) -> bool:
        p = root.primitive
        return not isinstance(p, ProgramInput) or root.ndim != 1 or p.strides == (1,)
