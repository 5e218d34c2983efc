"""Folds of what pairs of rows and columns compute, as a GPU computes them: columns in registers.

A kernel that folds ``f(x[i], y[j])`` over ``i`` reads little and computes much. A thread has some
columns: what depends on them alone, and their sums, are register-resident. A warp goes through rows
by blocks: each lane computes what depends on one of them alone, and leaves it in shared memory,
from where all lanes read one row after the other.

References
----------
- L. Nyland, M. Harris, J. Prins, "Fast N-body simulation with CUDA", GPU Gems 3, 2007, chapter 31.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.loopir import Apply, Expr, Fold, For, Kernel, Let, Load, Var, walk
from adarray.compiler.scalars.dtypes import SIZES

WARP = 32
WIDTHS = (4, 2, 1)  # columns of a thread
REGISTERS = 112  # of a thread: the largest width that they have room for
OTHERS = 24  # registers for what else there is
PADDED = 1.1  # columns, with those behind the last one, of what they are at least
WARPS = 8  # of a block
MOST_STRIPS = 65535  # blocks along the second axis of a launch
ROOM = 40 * 1024  # bytes of shared memory for the rows of a block
FEWEST = 16  # rows
WAVES = 16  # blocks for each SM: so that SMs end together
FULL = 8  # warps for each SM below which threads have fewer columns


class Named(NamedTuple):
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
    rows, columns : tuple of Named
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
    rows: tuple[Named, ...]
    columns: tuple[Named, ...]
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
    named = [Named(n, dtypes[n]) for n in used if n in dtypes]
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


def width_of(pairs: PairColumns, rows: int, columns: int, sms: int) -> int:
    """Return how many columns a thread has: as many as registers hold, and few behind the last."""

    def words(dtype: str) -> int:
        return -(-SIZES[dtype] // 4)

    shared = sum(words(x.dtype) for x in pairs.rows)
    each = sum(words(x.dtype) for x in pairs.columns)
    each += 2 * sum(words(s.value.dtype) for s in pairs.folds)
    least = -(-columns // WARP) * WARP
    for width in WIDTHS[:-1]:
        strips = -(-columns // (WARP * width))
        fits = width * each + shared + OTHERS <= REGISTERS
        full = strips * -(-rows // WARP) >= FULL * sms
        if fits and full and strips * WARP * width <= PADDED * least:
            return width
    return WIDTHS[-1]


def warps_of(rows: int) -> int:
    """Return the warps of a block, which take blocks of rows."""
    return max(1, min(WARPS, -(-rows // WARP)))


def blocks_of(rows: int, warps: int, strips: int, sms: int) -> int:
    """Return how many blocks share the rows of a strip."""
    wanted = -(-WAVES * sms // strips)
    return max(1, min(wanted, -(-rows // (WARP * warps))))
