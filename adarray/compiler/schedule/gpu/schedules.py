"""The ways in which a kernel can run on a GPU: a frozen variant for each, with what was found.

`adarray.compiler.schedule.gpu.choose` makes them. Whatever must know of every variant ends its
``match`` with ``assert_never``, so that the type checker shows what a new one needs: `described`
here, what lies in shared memory (`adarray.compiler.schedule.gpu.memory`), launch sizes (`launch`),
other blocks (`blocks`), outlines (`outline`) and text (`adarray.compiler.print_cuda.emitters`).

Schedules of one kernel that are equal have the same text: facts, which depend on the kernel's
integers, are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import assert_never

from adarray.compiler.ir.loopir import Total
from adarray.compiler.schedule.gpu.facts import KernelFacts
from adarray.compiler.schedule.gpu.pair_columns import PairColumns
from adarray.compiler.schedule.gpu.register_rows import ResidentRows
from adarray.compiler.schedule.gpu.shared_rows import FetchedRows
from adarray.compiler.schedule.gpu.tiles import PairFolds


@dataclass(frozen=True)
class Blocks:
    """What every schedule has.

    Parameters
    ----------
    facts : KernelFacts
        Of the kernel that runs so, and its integers.
    block : int
        Threads of a block.
    narrow : bool
        Whether int32 counts iterations.
    small : bool
        Whether int32 holds every integer that the kernel computes.
    apart : frozenset of str
        Buffers of which no two iterations of loops in a row write the same element.
    ragged : bool
        Whether some rows begin where no pack is aligned.
    """

    facts: KernelFacts = field(compare=False, repr=False)
    block: int
    narrow: bool
    small: bool = field(default=False, kw_only=True)
    apart: frozenset[str] = field(default=frozenset(), kw_only=True)
    ragged: bool = field(default=False, kw_only=True)

    @property
    def group(self) -> int:
        """Threads that share an iteration of the parallel loop: by default all of a block."""
        return self.block


@dataclass(frozen=True)
class FlatLoops(Blocks):
    """All threads of all blocks share each of the vector loops that the kernel consists of."""


@dataclass(frozen=True)
class SingleBlock(Blocks):
    """One block runs the whole kernel, and shares each of its vector loops.

    Parameters
    ----------
    shared : frozenset of str
        Local arrays in shared memory; others lie in the workspace.
    single : frozenset of str
        Variables of vector loops of one iteration, each of which a warp of its own makes.
    """

    shared: frozenset[str] = frozenset()
    single: frozenset[str] = frozenset()


@dataclass(frozen=True)
class DeviceScan(Blocks):
    """All blocks share one running fold, in two kernels.

    Blocks fold stretches of it; then each begins with the fold of all stretches before its own.
    """


@dataclass(frozen=True)
class RowsByWarp(Blocks):
    """A warp, or a part of one, takes an iteration of the parallel loop: a short row.

    Parameters
    ----------
    threads : int
        That share a row: 1, 2, 4, ... 32.
    shared : frozenset of str
        Local arrays, and array totals of the threads of a row, in shared memory; others lie in
        the workspace.
    far : bool
        Whether a kernel of its own adds up the array totals of blocks, rather than the last block.
    one_each : bool
        Whether no vector loop of a row has more iterations than threads share it.
    at_once : int
        Iterations that a thread of a short row begins at once, one by one; 0 for long rows.
    """

    threads: int
    shared: frozenset[str] = frozenset()
    far: bool = False
    one_each: bool = False
    at_once: int = 0

    @property
    def group(self) -> int:
        """Threads that share a row."""
        return self.threads


@dataclass(frozen=True)
class RowsByBlock(Blocks):
    """A block takes an iteration of the parallel loop: a row.

    Parameters
    ----------
    shared : frozenset of str
        Local arrays, and array totals of the block, in shared memory; others lie in the workspace.
    far : bool
        Whether a kernel of its own adds up the array totals of blocks, rather than the last block.
    single : frozenset of str
        Variables of vector loops of one iteration, each of which a warp of its own makes.
    """

    shared: frozenset[str] = frozenset()
    far: bool = False
    single: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SharedRows(Blocks):
    """A block takes a row, which its threads fetched into shared memory before they need it.

    Parameters
    ----------
    rows : FetchedRows
        What is fetched, and the loops that read it.
    slots : int
        Packs of each fetched array that a thread has in shared memory, or on the way there.
    replaces : bool
        Whether values that a loop has computed take the place of the row, for the last loop.
    shared, far, single
        As those of `RowsByBlock`.
    """

    rows: FetchedRows = field(compare=False, repr=False)
    slots: int
    replaces: bool = False
    shared: frozenset[str] = frozenset()
    far: bool = False
    single: frozenset[str] = frozenset()


@dataclass(frozen=True)
class RegisterRows(Blocks):
    """A block takes a row, which is register-resident from its first loop to its last.

    Parameters
    ----------
    rows : ResidentRows
        The kernel that has its rows so.
    packs : int
        Of a row that each thread has.
    even : bool
        Whether all threads have as many.
    resident : int
        Blocks side by side on an SM.
    aligned : bool
        Whether packs are loaded and stored whole: arrays must begin at multiples of 16 bytes.
    far : bool
        Whether a kernel of its own adds up the array totals of blocks, rather than the last block.
    """

    rows: ResidentRows = field(compare=False, repr=False)
    packs: int
    even: bool
    resident: int
    aligned: bool = True
    far: bool = False


@dataclass(frozen=True)
class SheetRows(Blocks):
    """Several blocks share a row, whose iterations need nothing of each other.

    The groups of one block take neighbouring rows.

    Parameters
    ----------
    threads : int
        Of a block that share a row: at most a warp.
    width : int
        Most elements of array totals that a thread has side by side, in registers.
    single : frozenset of str
        Variables of vector loops of one iteration, each of which one thread makes.
    """

    threads: int
    width: int
    single: frozenset[str] = frozenset()

    @property
    def group(self) -> int:
        """Threads of a block that share a row."""
        return self.threads

    def total_width(self, t: Total) -> int:
        """Return how many elements of an array total a thread has side by side.

        Blocks share such a total and cannot wait for each other, so an element belongs to
        the same thread in every row.
        """
        return min(self.facts.total_widths[t.name], self.width)


@dataclass(frozen=True)
class ColumnStrips(Blocks):
    """A warp takes a column strip, and marches down its rows, which are register-resident.

    Parameters
    ----------
    columns : int
        Of every row that each lane has.
    aligned : bool
        Whether lanes load and store whole packs: arrays must begin at multiples of 16 bytes.
    marching : bool
        Whether there are several rows: else the strip is part of a line.
    """

    columns: int
    aligned: bool
    marching: bool = True

    @property
    def group(self) -> int:
        """Return the lanes of a warp."""
        return 32


@dataclass(frozen=True)
class Tiles(Blocks):
    """A block folds pairs of rows of two arrays: a tile of results.

    Parameters
    ----------
    pairs : PairFolds
        The parts of the kernel.
    """

    pairs: PairFolds = field(compare=False, repr=False)


@dataclass(frozen=True)
class ColumnFolds(Blocks):
    """A thread folds pairs over rows for columns that it has in registers.

    Parameters
    ----------
    pairs : PairColumns
        The parts of the kernel.
    width : int
        Columns of a thread.
    threads : int
        Of a warp that have columns of their own; others go through other rows for the same ones.
    far : bool
        Whether several blocks share the rows: a kernel of its own adds up what they have.
    blocks : int
        That share the rows.
    """

    pairs: PairColumns = field(compare=False, repr=False)
    width: int
    threads: int = 32
    far: bool = False
    blocks: int = field(default=1, compare=False, repr=False)

    @property
    def group(self) -> int:
        """Threads that go through the same rows."""
        return 32


Schedule = (
    FlatLoops
    | SingleBlock
    | DeviceScan
    | RowsByWarp
    | RowsByBlock
    | SharedRows
    | RegisterRows
    | SheetRows
    | ColumnStrips
    | Tiles
    | ColumnFolds
)


def described(s: Schedule) -> str:
    """Return a schedule in a few words, as `explain` shows it."""
    match s:
        case FlatLoops():
            return f"flat: all blocks of {s.block} threads share each loop"
        case SingleBlock():
            return f"single block: {s.block} threads run the whole kernel"
        case DeviceScan():
            return f"device scan: all blocks of {s.block} threads share a running fold"
        case RowsByWarp():
            who = "a thread takes" if s.threads == 1 else f"{s.threads} threads share"
            return f"rows by warp: {who} a row, in blocks of {s.block} threads"
        case RowsByBlock():
            return f"rows by block: {s.block} threads share a row"
        case SharedRows():
            return (
                f"rows in shared memory: {s.block} threads share a row and fetch it ahead, "
                f"{s.slots} packs each"
            )
        case RegisterRows():
            return f"rows in registers: {s.block} threads share a row, {s.packs} packs each"
        case SheetRows():
            return (
                f"sheet: blocks of {s.block} threads share rows, {s.threads} threads of each a row"
            )
        case ColumnStrips():
            what = "marches down a strip" if s.marching else "takes a strip"
            return (
                f"column strips: a warp {what} of {32 * s.columns} columns, "
                f"in blocks of {s.block} threads"
            )
        case Tiles():
            return f"tiles: blocks of {s.block} threads fold pairs of rows"
        case ColumnFolds():
            return (
                f"column folds: {s.width} columns in the registers of each thread, which folds "
                f"pairs over rows, in blocks of {s.block} threads"
            )
        case _:
            assert_never(s)
