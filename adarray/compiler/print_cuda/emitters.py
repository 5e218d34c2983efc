"""What each schedule's kernels consist of: one function for each, which puts printers together."""

from __future__ import annotations

from functools import partial
from typing import assert_never

from adarray.compiler.print_cuda.loops import SharedLoops
from adarray.compiler.print_cuda.pair_columns import PairColumnsPrinter
from adarray.compiler.print_cuda.register_rows import ResidentRowsPrinter
from adarray.compiler.print_cuda.rows import array, plain_rows, sheet_rows
from adarray.compiler.print_cuda.running import RunningFolds, serial
from adarray.compiler.print_cuda.shared_rows import FetchedRowsPrinter
from adarray.compiler.print_cuda.statements import CudaPrinter, LoopPrinters
from adarray.compiler.print_cuda.strips import StripPrinter
from adarray.compiler.print_cuda.tiles import TilePrinter
from adarray.compiler.print_cuda.totals import Totals
from adarray.compiler.schedule.gpu.schedules import (
    ColumnFolds,
    ColumnStrips,
    DeviceScan,
    FlatLoops,
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    SharedRows,
    SheetRows,
    SingleBlock,
    Tiles,
)


def emit(p: CudaPrinter, second: bool = False) -> None:
    """Print what a kernel does.

    Parameters
    ----------
    p : CudaPrinter
    second : bool
        Whether it is the second kernel of a scan by all blocks.
    """
    match p.schedule:
        case FlatLoops():
            _flat(p)
        case SingleBlock() | RowsByWarp() | RowsByBlock():
            _rows(p)
        case DeviceScan():
            _scan(p, second)
        case SharedRows():
            _shared_rows(p, p.schedule)
        case RegisterRows():
            _register_rows(p, p.schedule)
        case SheetRows():
            _sheet(p)
        case ColumnStrips():
            _strips(p, p.schedule)
        case Tiles():
            _tiles(p, p.schedule)
        case ColumnFolds():
            _column_folds(p, p.schedule)
        case _:
            assert_never(p.schedule)


def _begin(p: CudaPrinter, totals: Totals) -> None:
    totals.begin()
    p.line("(void)fail;")
    if p.outline.is_careful:
        p.line("adarray_careful care;")


def _body(p: CudaPrinter, totals: Totals) -> None:
    """Print the statements of a kernel between the beginning and the end of totals."""
    _begin(p, totals)
    p.block(p.outline.body)
    totals.end()


def _flat(p: CudaPrinter) -> None:
    p.parts = LoopPrinters(SharedLoops(p).loop)
    _body(p, Totals(p))


def _rows(p: CudaPrinter) -> None:
    p.parts = LoopPrinters(
        SharedLoops(p).loop, RunningFolds(p).loop, partial(plain_rows, p), partial(array, p)
    )
    _body(p, Totals(p))


def _scan(p: CudaPrinter, second: bool) -> None:
    p.parts = LoopPrinters(SharedLoops(p).loop, RunningFolds(p, second).loop)
    _body(p, Totals(p))


def _shared_rows(p: CudaPrinter, s: SharedRows) -> None:
    fetched = FetchedRowsPrinter(p, s)
    p.parts = LoopPrinters(
        SharedLoops(p, fetched=fetched.loop).loop, RunningFolds(p).loop, fetched.parallel,
        partial(array, p),
    )  # fmt: skip
    _body(p, Totals(p))


def _register_rows(p: CudaPrinter, s: RegisterRows) -> None:
    resident = ResidentRowsPrinter(p, s)
    p.parts = LoopPrinters(
        SharedLoops(p, resident=resident.loop).loop, RunningFolds(p).loop, resident.parallel
    )
    _body(p, Totals(p, resident))


def _sheet(p: CudaPrinter) -> None:
    totals = Totals(p)
    loops = SharedLoops(p, sheet=totals.sheet)
    p.parts = LoopPrinters(loops.loop, parallel=partial(sheet_rows, p, loops))
    _body(p, totals)


def _strips(p: CudaPrinter, s: ColumnStrips) -> None:
    strips = StripPrinter(p, s)
    strips.integers()
    p.parts = LoopPrinters(strips.loop, partial(serial, p), partial(plain_rows, p), strips.array)
    _body(p, Totals(p))


def _tiles(p: CudaPrinter, s: Tiles) -> None:
    totals = Totals(p)
    _begin(p, totals)
    TilePrinter(p).tiles(s.pairs)
    totals.end()


def _column_folds(p: CudaPrinter, s: ColumnFolds) -> None:
    p.line("(void)fail;")
    if p.outline.is_careful:
        p.line("adarray_careful care;")
    PairColumnsPrinter(p, s).print(Totals(p))
