"""Totals of kernels for GPUs: what threads, groups and blocks have of them, and who adds it up.

The groups of a block fold their parts in shared memory, where there is room for them. Then the
last block to be done folds those of all blocks; or, where that is much, a kernel of its own.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007 (trees).
- N. J. Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14 (1993), 783-799.
"""

from __future__ import annotations

from collections.abc import Iterable

from adarray.compiler.ir.loopir import Total
from adarray.compiler.print_c.values import Scope
from adarray.compiler.print_cuda.loops import GroupLoops
from adarray.compiler.print_cuda.waits import Waits
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.functions import STORED
from adarray.compiler.schedule.gpu import is_merged, sheet_width
from adarray.compiler.schedule.gpu_loops import folding


class TotalLines(GroupLoops):
    """Prints what totals begin as, and what combines them."""

    waits: Waits

    # -- before the passes -----------------------------------------------------------------

    def begin_total(self, t: Total) -> None:
        """Print the declaration of a total's parts."""
        kind, c = STORED[t.dtype], self.fresh("s")
        neutral = functions.neutral(t.combine, t.dtype)
        self.dtypes[t.name] = t.dtype
        if t.size is None:
            self.changing[t.name] = c
            self.line(f"{kind} {c} = {neutral};")
            return
        if self.holding is not None:
            self.holding.begin_total(t)
            return
        self.memory[t.name] = c
        size, place = self.index(t.size), self.places[id(t)]
        if self.form.kind == "sheet":
            width, pack, one = self.sheet_width(t), self.fresh("a"), self.fresh("a")
            self.held[t.name] = pack, one
            self.line(f"adarray_pack<{kind}, {width}> {pack};")
            self.line(f"for (int u = 0; u < {width}; u++) {pack}.v[u] = {neutral};")
            self.line(f"{kind} {one} = {neutral};")
            return
        near = t.name in self.form.shared
        base = f"near_ + p{place}" if near else f"scratch + o{place}"
        who = f"threadIdx.x / {self.form.group}" if near else "group"
        self.line(
            f"{kind} *__restrict__ const {c} = ({kind} *)({base}) + {who} * {self._stride(t)};"
        )
        self.line(f"for (int64_t k = lane; k < {size}; k += span) {c}[k] = {neutral};")
        self.waits.written[t.name] = None

    def sheet_width(self, t: Total) -> int:
        """Return how many elements of an array total a thread of a sheet has side by side.

        Blocks share such a total, and cannot wait for each other, so an element belongs to
        the same thread in every pass.
        """
        (loop,) = folding(self.kernel, t)
        return min(sheet_width(self.kernel, loop), self.form.wide)

    # -- after them ------------------------------------------------------------------------

    def end_totals(self, totals: Iterable[Total]) -> None:
        """Print what combines totals."""
        found = list(totals)
        merged = [t for t in found if is_merged(self.form, t)]
        # Numbers go with the arrays where the same blocks have both.
        joint = bool(merged) and self.form.kind == "rows" and not self.form.far
        for t in found:
            if t in merged:
                self._end_sized(t)
            elif t.size is None and joint:
                self._end_part(t)
            elif t.size is None:
                self._end_number(t)
        if merged and not self.form.far:
            self._merge_blocks([t for t in found if t in merged or (joint and t.size is None)])

    def _parts_of(self, t: Total) -> str:
        """Return where the parts of blocks or groups are."""
        return f"({STORED[t.dtype]} *)(scratch + o{self.places[id(t)]})"

    def _stride(self, t: Total) -> str:
        """Return the elements from one part of an array total to the next."""
        assert t.size is not None
        return f"(({self.index(t.size)} + 63) / 64 * 64)"

    def _end_sized(self, t: Total) -> None:
        """Print what combines an array total of a block's groups, for this block."""
        assert t.size is not None
        kind, size, f = STORED[t.dtype], self.index(t.size), self.form
        combine, c = self.combiner(t.combine, t.dtype), self.fresh("s")
        place = self.places[id(t)]
        own = f"{self._parts_of(t)} + blockIdx.x * {self._stride(t)}"
        if not f.far:
            own = f"blocks > 1 ? {own} : {self.memory[t.out]}"
        self.line(f"{kind} *const {c} = {own};")
        if self.holding is not None:
            self.holding.end_total(t, size, c)
        elif f.kind == "sheet":
            width, (pack, one) = self.sheet_width(t), self.held[t.name]
            self.line(
                f"adarray_sheet_total<{f.block}, {f.group}, {width}>({pack}, {one}, "
                f"({kind} *)(near_ + merge_), {size}, {c}, {combine});"
            )
        else:
            self.line(
                f"adarray_near_total<{f.block}, {f.group}>(({kind} *)(near_ + p{place}), "
                f"{self._stride(t)}, {size}, {c}, {combine});"
            )

    def _of_block(self, t: Total) -> str:
        """Print what combines a number of a block's threads; return its name."""
        c, room = self.changing[t.name], f"({STORED[t.dtype]} *)room_"
        combine = self.combiner(t.combine, t.dtype)
        self.line(f"{c} = adarray_together<{self.form.block}>({c}, {room}, {combine});")
        return c

    def _end_part(self, t: Total) -> None:
        """Print what stores a block's part of a number."""
        c = self._of_block(t)
        place = f"blocks > 1 ? {self._parts_of(t)} + blockIdx.x : {self.memory[t.out]}"
        self.line(f"if (threadIdx.x == 0) *({place}) = {c};")

    def _end_number(self, t: Total) -> None:
        """Print what combines a number of all blocks."""
        kind, c = STORED[t.dtype], self._of_block(t)
        neutral = functions.neutral(t.combine, t.dtype)
        self.line(
            f"adarray_last<{self.form.block}>({c}, ({kind}){neutral}, {self._parts_of(t)}, "
            f"(unsigned *)scratch + {self.places[id(t)]}, ({kind} *)room_, "
            f"{self.memory[t.out]}, {self.combiner(t.combine, t.dtype)});"
        )

    def _merge_blocks(self, totals: list[Total]) -> None:
        """Print what combines the parts of blocks: the last of them does it."""
        f, lines = self.form, Scope()
        for t in totals:
            kind, block = STORED[t.dtype], str(f.block)
            neutral = functions.neutral(t.combine, t.dtype)
            name, sizes, room = "adarray_merge_numbers", "", "room_"
            if t.size is not None and f.kind == "sheet":
                name, room = "adarray_merge_sheets", "(near_ + merge_)"
                block += f", {f.group}, {self.sheet_width(t)}"
                sizes = f"{self._stride(t)}, {self.index(t.size)}, "
            elif t.size is not None:
                name, room = "adarray_merge_parts", "(near_ + merge_)"
                sizes = f"{self._stride(t)}, 0, {self.index(t.size)}, "
            lines.lines.append(
                f"{name}<{block}>((const {kind} *){self._parts_of(t)}, blocks, {sizes}"
                f"({kind}){neutral}, ({kind} *){room}, {self.memory[t.out]}, "
                f"{self.combiner(t.combine, t.dtype)});"
            )
        count = "(unsigned *)scratch + 64 + blockIdx.y"
        self.braced(f"if (blocks > 1 && adarray_is_last({count}, gridDim.x))", lines)

    def merge_lines(self, totals: list[Total]) -> None:
        """Print what a kernel of its own does to combine array totals."""
        for t in totals:
            assert t.size is not None
            rows = "blocks" if is_merged(self.form, t) else "groups"
            neutral = functions.neutral(t.combine, t.dtype)
            self.line(
                f"adarray_merge<{STORED[t.dtype]}>({self._parts_of(t)}, {rows}, {self._stride(t)}, "
                f"{self.index(t.size)}, {neutral}, {self.memory[t.out]}, "
                f"{self.combiner(t.combine, t.dtype)});"
            )
