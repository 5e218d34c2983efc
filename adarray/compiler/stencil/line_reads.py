"""Which cells of a line a cell of a value reads: what makes a value part of a stencil on a line.

References
----------
- J. Holewinski, L.-N. Pouchet, P. Sadayappan, "High-performance code generation for stencil
  computations on GPU architectures", ICS 2012.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from adarray.compiler.ir.builder import PRINTABLE
from adarray.compiler.ir.domains import ZERO, Maps, Shape, Use
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
# Elements of a piece at the end of a line.
SHORT = 8
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
        Whether it is read by few cells, as at the ends of a line: one element by one cell, or
        elements of a value that has few.
    moves : bool
        Whether each of these cells reads another element.
    """

    root: Value
    shift: int | None
    round: bool = False
    border: bool = False
    moves: bool = True


class LineReads:
    """What cells of values read.

    Parameters
    ----------
    uses : Uses
    shape : tuple of int
        Of the longest arrays. Lines lie along the last axis, and need nothing of each other.
    """

    def __init__(self, uses: Uses, shape: Shape) -> None:
        self.uses = uses
        self.shape = shape
        self.lead, self.count = shape[:-1], shape[-1]
        self.axis = len(shape) - 1
        self.known: dict[Value, tuple[CellRead, ...] | None] = {}

    def is_line(self, value: Value) -> bool:
        """Whether lines are as long as the longest ones, or a little shorter."""
        return value.ndim == len(self.shape) and value.shape[:-1] == self.lead and self._fits(value)

    def _fits(self, value: Value) -> bool:
        return 0 <= self.count - value.shape[-1] <= SHORTER

    def is_border(self, value: Value) -> bool:
        """Whether lines have few elements, as pieces at their ends have."""
        short = value.ndim == len(self.shape) and value.shape[-1] <= SHORT
        return value.size == 1 or (short and value.shape[:-1] == self.lead)

    def of(self, value: Value) -> tuple[CellRead, ...] | None:
        """Return what a cell of a value reads, one for each use; None if it is not local."""
        if value not in self.known:
            self.known[value] = self._find(value)
        return self.known[value]

    def _find(self, value: Value) -> tuple[CellRead, ...] | None:
        p = value.primitive
        if type(p) not in CELLWISE or value.dtype not in PRINTABLE:
            return None
        if not (self.is_line(value) or self.is_border(value)) or not self._is_along(value):
            return None
        reads = []
        for use, (start, size) in zip(self.uses.uses(value), self._pieces(value), strict=True):
            read = self._read(use, start, size, not self.is_line(value))
            if read is None:
                return None
            reads.append(read)
        if isinstance(p, Concatenate) and any(self._goes_round(r) for r in reads):
            reads = [r._replace(round=r.shift is not None) for r in reads]
        return tuple(reads)

    def _is_along(self, value: Value) -> bool:
        """Whether pieces and regions of a value are parts of its lines."""
        match value.primitive:
            case Concatenate() as p:
                return p.axis == self.axis
            case UpdateSlice() as p:
                piece = value.args[1]
                whole = value.ndim == len(self.shape) and piece.shape[:-1] == value.shape[:-1]
                return whole and all(s == 1 for s in p.steps)
            case _:
                return True

    def _goes_round(self, read: CellRead) -> bool:
        if not read.border or not self.is_line(read.root):
            return read.round
        assert read.shift is not None
        return self.beside(read.shift) != read.shift

    def _pieces(self, value: Value) -> Iterator[tuple[int, int]]:
        """Yield where what each use reads begins in a line, and how many cells it is for."""
        own = value.shape[-1] if value.ndim == len(self.shape) else 0
        match value.primitive:
            case Concatenate():
                start = 0
                for a in value.args:
                    yield start, a.shape[-1]
                    start += a.shape[-1]
            case UpdateSlice() as p:
                yield 0, own
                yield p.starts[-1], value.args[1].shape[-1]
            case View():
                yield 0, own
            case _:
                for _ in value.args:
                    yield 0, own

    def _read(self, use: Use, start: int, size: int, far: bool) -> CellRead | None:
        """Return what is read by the cells from `start` on; None if it is not near them.

        Of cells of a border it is not known yet where they are: it may be `far` for others alone.
        """
        root, maps = use.root, use.maps
        if maps is None or root.dtype not in PRINTABLE or not self._lies_straight(root):
            return None
        moving = [k for k, m in enumerate(maps) if any(a == self.axis for a, _ in m.terms)]
        straight = self._broadcasts(root, maps)
        if moving:
            last = maps[-1]
            if moving != [root.ndim - 1] or last.terms != ((self.axis, 1),) or not straight:
                return None
            if not self._fits(root):
                return CellRead(root, last.const, border=True) if self.is_border(root) else None
            if far:
                return CellRead(root, last.const)
            shift = self.beside(last.const)
            return CellRead(root, shift, shift != last.const) if abs(shift) <= FAR else None
        if size == 1 and root.ndim == len(self.shape) and straight:
            return CellRead(root, maps[-1].const - start, border=True, moves=False)
        return CellRead(root, None)

    def _broadcasts(self, root: Value, maps: Maps) -> bool:
        """Whether the axes before the last one are the reader's own, as in NumPy's broadcasting."""
        before = len(self.shape) - root.ndim
        shape = root.shape[:-1]
        return before >= 0 and all(
            (n == 1 and m == ZERO) or (n == self.lead[before + k] and m == (0, ((before + k, 1),)))
            for k, (n, m) in enumerate(zip(shape, maps, strict=False))
        )

    def beside(self, at: int) -> int:
        """Return a distance, counted round the end of the line where that is nearer."""
        return near(at, self.count)

    @staticmethod
    def _lies_straight(root: Value) -> bool:
        """Whether neighbours lie side by side in memory, if it is there already."""
        p = root.primitive
        return not isinstance(p, ProgramInput) or not root.ndim or p.strides[-1] == 1
