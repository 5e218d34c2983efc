"""Folds of what pairs of rows and columns compute, as a GPU computes them: columns in registers.

A kernel that folds ``f(x[i], y[j])`` over ``i`` reads little and computes much. A thread has some
columns: what depends on them alone, and their sums, are register-resident. A warp goes through rows
by blocks: each lane computes what depends on one of them alone, and leaves it in shared memory,
from where all lanes read one row after the other. How many columns a thread has, warps a block, and
blocks the rows, is what should take least time.

References
----------
- L. Nyland, M. Harris, J. Prins, "Fast N-body simulation with CUDA", GPU Gems 3, 2007, chapter 31.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.loopir import Apply, Expr, Fold, For, Kernel, Let, Load, Var, walk
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import SIZES

WARP = 32
WIDTHS = (1, 2, 4)  # columns of a thread
THREADS = (8, 16, 32)  # of a warp that have columns of their own
WARPS = (1, 2, 4, 8)  # of a block
REGISTERS, MOST_REGISTERS = 1 << 16, 255  # of an SM, and of a thread
OTHERS = 28  # registers of a thread for what else there is
RESIDENT = 32  # blocks on an SM
MOST_STRIPS = 65535  # blocks along the second axis of a launch
ROOM = 40 * 1024  # bytes of shared memory for the rows of a block
FEWEST_ROWS = 16  # rows
SPARE = 1.1  # registers that a thread takes, of what is counted
# Cycles: from what is read to what is added; until a block of rows comes; before a block's rows;
# after them for each sum, and each warp with a part of it.
CHAIN, COMES, BEGIN, SUM, PART = 150, 800, 1500, 40, 8
STAGE, STAGED = 30, 4  # instructions of a warp for a block of rows, and for each word of one
ONCE, EACH = 100, 12  # instructions of a warp besides those of pairs, and for each of its sums
# Cycles of another kernel that adds up the parts of blocks, and bytes that it moves in a cycle.
MERGE, MERGED = 3500, 2400
READ = 8  # cycles in which a warp reads 16 bytes of a row


class NamedValue(NamedTuple):
    """A value that depends on a row or on a column alone, and its dtype."""

    name: str
    dtype: str


class PairColumns(NamedTuple):
    """A kernel that folds pairs over rows.

    Parameters
    ----------
    loop, across : For
        Over rows and over columns.
    of_rows, of_columns, of_pairs : tuple of Let
        What is computed once for each row, column and pair.
    folds : tuple of Fold
    rows, columns : tuple of NamedValue
        What pairs are computed from.
    fused : dict
        The products that nothing but a sum reads, by name.
    """

    loop: For
    across: For
    of_rows: tuple[Let, ...]
    of_columns: tuple[Let, ...]
    of_pairs: tuple[Let, ...]
    folds: tuple[Fold, ...]
    rows: tuple[NamedValue, ...]
    columns: tuple[NamedValue, ...]
    fused: dict[str, Apply]


def pair_columns(kernel: Kernel) -> PairColumns | None:
    """Return the parts of a kernel that folds pairs over rows; None for others."""
    if len(kernel.body) != 1 or any(t.size is None for t in kernel.totals):
        return None
    (loop,) = kernel.body
    if not isinstance(loop, For) or loop.kind != "parallel" or loop.start != ZERO:
        return None
    *before, across = loop.body
    lets = [s for s in before if isinstance(s, Let)]
    if len(lets) != len(before) or not isinstance(across, For) or across.kind != "vector":
        return None
    return _parts(kernel, loop, lets, across)


def _parts(kernel: Kernel, loop: For, lets: list[Let], across: For) -> PairColumns | None:
    own = [s for s in across.body if isinstance(s, Let)]
    folds = [s for s in across.body if isinstance(s, Fold)]
    sizes = {t.name: t.size for t in kernel.totals}
    if not folds or len(own) + len(folds) != len(across.body) or across.start != ZERO:
        return None
    place = Var("int64", across.var)
    if any(s.index != place or sizes.get(s.target) != across.stop for s in folds):
        return None
    if len({s.target for s in folds}) != len(folds) or len(folds) != len(kernel.totals):
        return None
    outs = {b.name for b in kernel.buffers if b.access != "in"}
    # Bit 1 of what depends on the row, and bit 2 of what depends on the column.
    classes = dict.fromkeys(kernel.ints, 0) | {loop.var: 1, across.var: 2}
    parts: dict[int, list[Let]] = {1: [], 2: [], 3: []}
    named_values = [*lets, *own]
    for s in named_values:
        kind = _class(s.value, classes, outs)
        if kind is None:
            return None
        classes[s.name] = kind
        parts[kind or 1].append(s)
        if kind == 0:  # the same for all: each side has it
            parts[2].append(s)
    values = [s.value for s in parts[3]] + [s.value for s in folds]
    if not parts[3] or any(isinstance(e, Load) for v in values for e in walk(v)):
        return None
    dtypes = {s.name: s.value.dtype for s in named_values}
    dtypes |= {loop.var: "int64", across.var: "int64"}
    used = dict.fromkeys(e.name for v in values for e in walk(v) if isinstance(e, Var))
    named = [NamedValue(n, dtypes[n]) for n in used if n in dtypes]
    rows = tuple(x for x in named if classes[x.name] in (0, 1))
    columns = tuple(x for x in named if classes[x.name] == 2)
    return PairColumns(
        loop, across, tuple(parts[1]), tuple(parts[2]), tuple(parts[3]), tuple(folds), rows,
        columns, _fused(parts[3], folds),
    )  # fmt: skip


def _fused(lets: list[Let], folds: list[Fold]) -> dict[str, Apply]:
    """Return the products that nothing but a sum reads."""
    values = [s.value for s in lets] + [s.value for s in folds]
    reads = Counter(e.name for v in values for e in walk(v) if isinstance(e, Var))
    added = {s.value.name for s in folds if s.combine == "add" and isinstance(s.value, Var)}
    return {
        s.name: s.value
        for s in lets
        if s.name in added
        and reads[s.name] == 1
        and isinstance(s.value, Apply)
        and s.value.name == "multiply"
        and s.value.dtype in ("float32", "float64")
    }


def _class(value: Expr, classes: dict[str, int], outs: set[str]) -> int | None:
    """Return on what a value depends; None if it cannot be told."""
    kind = 0
    for e in walk(value):
        if isinstance(e, Load) and e.buffer in outs:
            return None
        if isinstance(e, Var):
            if e.name not in classes:
                return None
            kind |= classes[e.name]
    return kind


def row_bytes(pairs: PairColumns) -> int:
    """Return the bytes of shared memory for what depends on a row."""
    return -(-sum(max(4, SIZES[x.dtype]) for x in pairs.rows) // 16) * 16 or 16


class ColumnShape(NamedTuple):
    """How a kernel is shared out.

    Parameters
    ----------
    width : int
        Columns of a thread.
    threads : int
        Of a warp that have columns of their own.
    warps : int
        Of a block; they share its rows.
    blocks : int
        That share the rows of a strip of columns.
    """

    width: int
    threads: int
    warps: int
    blocks: int


class _Work(NamedTuple):
    """What a pair takes: instructions; registers of a column, and of a row; sums."""

    instructions: int
    column: int
    row: int
    sums: int


def column_shape(
    pairs: PairColumns, rows: int, columns: int, target: GpuTarget
) -> ColumnShape | None:
    """Return the shape by which a kernel should take least time; None if there is none."""

    def words(dtypes: Iterable[str]) -> int:
        return sum(-(-SIZES[t] // 4) for t in dtypes)

    sums = words(s.value.dtype for s in pairs.folds)
    own = words(x.dtype for x in pairs.columns)
    applied = [e.name for s in pairs.of_pairs for e in walk(s.value) if isinstance(e, Apply)]
    work = _Work(
        len(pairs.folds) + sum(FUNCTIONS[n].cost if n in FUNCTIONS else 1 for n in applied),
        own + 2 * sums, words(x.dtype for x in pairs.rows), len(pairs.folds),
    )  # fmt: skip
    steps = -(-rows // WARP)
    shapes = [
        ColumnShape(width, threads, warps, blocks)
        for width in WIDTHS
        for threads in THREADS
        for warps in WARPS
        if warps <= steps and row_bytes(pairs) * WARP * warps <= ROOM
        and columns <= MOST_STRIPS * threads * width
        for blocks in _counts(-(-steps // warps))
    ]  # fmt: skip
    times = {s: _cycles(s, work, row_bytes(pairs), rows, columns, target) for s in shapes}
    best = min(times, key=times.__getitem__, default=None)
    return None if best is None or times[best] == math.inf else best


def _counts(most: int) -> list[int]:
    """Return numbers of blocks up to a number, some in each octave."""
    counts = {most}
    step = 1.0
    while step < most:
        counts.add(int(step))
        step *= 1.3
    return sorted(counts)


def _cycles(
    s: ColumnShape, work: _Work, bytes_: int, rows: int, columns: int, target: GpuTarget
) -> float:
    """Return the cycles that a kernel should take, roughly."""
    registers = int(SPARE * (s.width * work.column + work.row + OTHERS) + 7) // 8 * 8
    threads = WARP * s.warps
    shared = bytes_ * threads + 4 * threads * s.width + 1024
    resident = min(
        target.threads_per_sm // threads, REGISTERS // (registers * threads),
        target.shared_memory // shared, RESIDENT,
    )  # fmt: skip
    if registers > MOST_REGISTERS or not resident:
        return math.inf
    strips = -(-columns // (s.threads * s.width))
    each = -(-strips * s.blocks // target.sms)  # blocks of an SM
    steps = s.warps * -(-rows // (WARP * s.warps * s.blocks))  # blocks of rows
    pairs = steps * -(-min(WARP, rows) * s.threads // WARP)
    staging = (STAGE + STAGED * work.row) / 4
    issued = s.width * work.instructions + bytes_ // 16 + 3
    side_by_side = min(resident, each) * s.warps / 4  # for each scheduler
    waits = CHAIN + COMES / s.threads
    busy = min(1.0, side_by_side * issued / (waits + issued))
    time = each * (pairs * max(issued / 4 / busy, READ * bytes_ / 16) + steps * staging)
    time += each * s.warps * (ONCE + EACH * work.sums * s.width) / 4
    ends = SUM + PART * s.warps if s.warps > 1 else PART
    time += -(-each // resident) * (BEGIN + work.sums * s.width * ends)
    if s.blocks > 1:
        time += MERGE + 8 * s.blocks * columns * work.sums / MERGED
    return time
