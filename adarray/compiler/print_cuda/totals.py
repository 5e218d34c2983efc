"""Totals of kernels for GPUs: what threads, groups and blocks have of them, and who adds it up.

The groups of a block fold their parts in shared memory, where there is room for them. Then the
last block to be done folds those of all blocks; or, where that is much, a kernel of its own.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007 (trees).
- N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), 783-799.
"""

from __future__ import annotations

from typing import Protocol

from adarray.compiler.ir.loopir import Total
from adarray.compiler.print_c.values import TextScope
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.launch import FEW_NUMBERS
from adarray.compiler.schedule.gpu.loops import WARP
from adarray.compiler.schedule.gpu.outline import TotalPart
from adarray.compiler.schedule.gpu.schedules import ColumnFolds


class RowTotals(Protocol):
    """What prints array totals of register-resident rows."""

    def begin_total(self, t: Total) -> None:
        """Print the declaration of what threads have."""

    def end_total(self, t: Total, size: str, to: str) -> None:
        """Print what stores it."""


class Totals:
    """Prints what totals begin as, and what combines them.

    Parameters
    ----------
    p : CudaPrinter
    rows : RowTotals, optional
        What prints those of register-resident rows.

    Attributes
    ----------
    sheet : dict
        C names of the packs and elements that threads of a sheet have in registers.
    """

    def __init__(self, p: CudaPrinter, rows: RowTotals | None = None) -> None:
        self.p = p
        self.rows = rows
        self.sheet: dict[str, tuple[str, str]] = {}

    # -- before the rows -------------------------------------------------------------------

    def begin(self) -> None:
        """Print the declarations of what threads or groups have."""
        for part in self.p.outline.totals:
            self._begin(part)

    def _begin(self, part: TotalPart) -> None:
        p, t = self.p, part.total
        kind, c = STORED[t.dtype], p.fresh("s")
        neutral = functions.neutral(t.combine, t.dtype)
        p.dtypes[t.name] = t.dtype
        if part.where == "number":
            p.changing[t.name] = c
            p.line(f"{kind} {c} = {neutral};")
            return
        if part.where == "row":
            assert self.rows is not None
            self.rows.begin_total(t)
            return
        assert t.size is not None
        p.memory[t.name] = c
        size, place = p.index(t.size), p.outline.memory.places[t]
        if part.where == "sheet":
            pack, one = p.fresh("a"), p.fresh("a")
            self.sheet[t.name] = pack, one
            p.line(f"adarray_pack<{kind}, {part.width}> {pack};")
            p.line(f"for (int u = 0; u < {part.width}; u++) {pack}.v[u] = {neutral};")
            p.line(f"{kind} {one} = {neutral};")
            return
        near = part.where == "shared"
        base = f"near_ + p{place}" if near else f"scratch + o{place}"
        who = f"threadIdx.x / {p.schedule.group}" if near else "group"
        p.line(f"{kind} *__restrict__ const {c} = ({kind} *)({base}) + {who} * {self._stride(t)};")
        p.line(f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {neutral};")

    # -- after them ------------------------------------------------------------------------

    def end(self) -> None:
        """Print what combines totals."""
        outline = self.p.outline
        together = []
        numbers = [part.total for part in outline.totals if part.where == "number"]
        if len(numbers) > 1 and not outline.joint:
            self._end_numbers(numbers)
            numbers = []
        for part in outline.totals:
            if part.is_merged:
                self._end_sized(part)
                together.append(part)
            elif part.where == "number" and outline.joint:
                self._end_part(part.total)
                together.append(part)
            elif part.total in numbers:
                self._end_number(part.total)
        if any(part.is_merged for part in together) and not outline.far:
            self._merge_blocks(together)

    def _parts_of(self, t: Total) -> str:
        """Return where the parts of blocks or groups are."""
        return f"({STORED[t.dtype]} *)(scratch + o{self.p.outline.memory.places[t]})"

    def _stride(self, t: Total) -> str:
        """Return the elements from one part of an array total to the next."""
        assert t.size is not None
        return f"(({self.p.index(t.size)} + 63) / 64 * 64)"

    def _end_sized(self, part: TotalPart) -> None:
        """Print what combines an array total of a block's groups, for this block."""
        p, t, f = self.p, part.total, self.p.schedule
        assert t.size is not None
        kind, size = STORED[t.dtype], p.index(t.size)
        combine, c = p.combiner(t.combine, t.dtype), p.fresh("s")
        own = f"{self._parts_of(t)} + blockIdx.x * {self._stride(t)}"
        if not p.outline.far:
            own = f"blocks > 1 ? {own} : {p.memory[t.out]}"
        p.line(f"{kind} *const {c} = {own};")
        if part.where == "row":
            assert self.rows is not None
            self.rows.end_total(t, size, c)
        elif part.where == "sheet":
            pack, one = self.sheet[t.name]
            p.line(
                f"adarray_sheet_total<{f.block}, {f.group}, {part.width}>({pack}, {one}, "
                f"({kind} *)(near_ + merge_), {size}, {c}, {combine});"
            )
        else:
            place = p.outline.memory.places[t]
            p.line(
                f"adarray_near_total<{f.block}, {f.group}>(({kind} *)(near_ + p{place}), "
                f"{self._stride(t)}, {size}, {c}, {combine});"
            )

    def end_columns(self, name: str, sums: str, threads: int, width: int) -> None:
        """Print what combines the sums of columns that the threads of a block have."""
        p, outline = self.p, self.p.outline
        (t,) = (part.total for part in outline.totals if part.total.name == name)
        assert t.size is not None
        kind = STORED[t.dtype]
        own = f"{self._parts_of(t)} + blockIdx.x * {self._stride(t)}"
        p.line(
            f"adarray_columns_total<{p.schedule.block}, {threads}, {width}>({sums}, "
            f"({kind} *)(near_ + merge_), {p.index(t.size)}, "
            f"{own if outline.far else p.memory[t.out]}, {p.combiner(t.combine, t.dtype)});"
        )

    def _of_block(self, t: Total) -> str:
        """Print what combines a number of a block's threads; return its name."""
        p = self.p
        c, room = p.changing[t.name], f"({STORED[t.dtype]} *)room_"
        combine = p.combiner(t.combine, t.dtype)
        p.line(f"{c} = adarray_together<{p.schedule.block}>({c}, {room}, {combine});")
        return c

    def _end_part(self, t: Total) -> None:
        """Print what stores a block's part of a number."""
        c = self._of_block(t)
        place = f"blocks > 1 ? {self._parts_of(t)} + blockIdx.x : {self.p.memory[t.out]}"
        self.p.line(f"if (threadIdx.x == 0) *({place}) = {c};")

    def _end_number(self, t: Total) -> None:
        """Print what combines a number of all blocks."""
        p, kind, c = self.p, STORED[t.dtype], self._of_block(t)
        neutral = functions.neutral(t.combine, t.dtype)
        p.line(
            f"adarray_last<{p.schedule.block}>({c}, ({kind}){neutral}, {self._parts_of(t)}, "
            f"(unsigned *)scratch + {p.outline.memory.places[t]}, ({kind} *)room_, "
            f"{p.memory[t.out]}, {p.combiner(t.combine, t.dtype)});"
        )

    def _end_numbers(self, totals: list[Total]) -> None:
        """Print what combines several numbers of all blocks.

        Threads wait for each other as often as for one: a warp combines each of what the warps
        have, and in the last block, if these are many, each of what the blocks have.
        """
        p, block = self.p, self.p.schedule.block
        warps = block // WARP
        p.line(f"__shared__ double totals_[{len(totals) * warps}];")
        p.line("const unsigned blocks_ = gridDim.x * gridDim.y;")
        own: list[list[str]] = [[] for _ in range(min(warps, len(totals)))]
        last: list[list[str]] = [[] for _ in own]
        few = len(totals) <= FEW_NUMBERS
        for k, t in enumerate(totals):
            kind, combine = STORED[t.dtype], p.combiner(t.combine, t.dtype)
            parts, room = self._parts_of(t), f"({kind} *)(totals_ + {k * warps})"
            p.line(f"adarray_leave({p.changing[t.name]}, {room}, {combine});")
            own[k % len(own)].append(f"adarray_leave_block<{warps}>({room}, {parts}, {combine});")
            neutral, out = functions.neutral(t.combine, t.dtype), p.memory[t.out]
            name = f"adarray_merge_numbers<{block}>" if few else "adarray_merge_number"
            place = f"({kind} *)room_, {out}" if few else out
            last[k % len(own)].append(
                f"{name}({parts}, blocks_, ({kind}){neutral}, {place}, {combine});"
            )
        p.line("__syncthreads();")
        for line in _by_warps(own):
            p.line(line)
        lines = TextScope()
        lines.lines += [text for calls in last for text in calls] if few else _by_warps(last)
        count = f"(unsigned *)scratch + {p.outline.memory.places[totals[0]]}"
        p.braced(f"if (adarray_is_last({count}, blocks_))", lines)

    def _merge_blocks(self, parts: list[TotalPart]) -> None:
        """Print what combines the parts of blocks: the last of them does it."""
        p, f, lines = self.p, self.p.schedule, TextScope()
        for part in parts:
            t = part.total
            kind, block = STORED[t.dtype], str(f.block)
            neutral = functions.neutral(t.combine, t.dtype)
            name, sizes, room = "adarray_merge_numbers", "", "room_"
            if t.size is not None and part.where == "sheet":
                name, room = "adarray_merge_sheets", "(near_ + merge_)"
                block += f", {f.group}, {part.width}"
                sizes = f"{self._stride(t)}, {p.index(t.size)}, "
            elif t.size is not None:
                name, room = "adarray_merge_parts", "(near_ + merge_)"
                sizes = f"{self._stride(t)}, 0, {p.index(t.size)}, "
            lines.lines.append(
                f"{name}<{block}>((const {kind} *){self._parts_of(t)}, blocks, {sizes}"
                f"({kind}){neutral}, ({kind} *){room}, {p.memory[t.out]}, "
                f"{p.combiner(t.combine, t.dtype)});"
            )
        count = "(unsigned *)scratch + 64 + blockIdx.y"
        p.braced(f"if (blocks > 1 && adarray_is_last({count}, gridDim.x))", lines)

    def merge(self) -> None:
        """Print what a kernel of its own does to combine array totals."""
        p = self.p
        by_total = isinstance(p.schedule, ColumnFolds)  # blocks of their own for each
        for k, part in enumerate(p.outline.separate):
            t = part.total
            if by_total:
                p.line(f"if (blockIdx.y == {k})")
            assert t.size is not None
            rows = "blocks" if part.is_merged else "groups"
            neutral = functions.neutral(t.combine, t.dtype)
            p.line(
                f"adarray_merge<{STORED[t.dtype]}>({self._parts_of(t)}, {rows}, {self._stride(t)}, "
                f"{p.index(t.size)}, {neutral}, {p.memory[t.out]}, "
                f"{p.combiner(t.combine, t.dtype)});"
            )


def _by_warps(calls: list[list[str]]) -> list[str]:
    """Return the text in which each warp of a block makes some calls."""
    return [f"if (threadIdx.x / {WARP} == {w}) {{ {' '.join(c)} }}" for w, c in enumerate(calls)]
