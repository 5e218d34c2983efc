"""Folds of vector loops whose passes threads of a GPU share: what each has, and all together.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from adarray.compiler.ir.affine import ZERO, slope
from adarray.compiler.ir.loopir import Expr, Fold, For, Kernel
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.print_c.printer import CPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.functions import STORED
from adarray.compiler.schedule.gpu import Form
from adarray.compiler.schedule.gpu_loops import WARP
from adarray.compiler.schedule.vectors import Scheduled

Partials = list[tuple[Fold, str]]


class GroupFolds(CPrinter):
    """Prints folds; `adarray.compiler.print_cuda.loops.GroupLoops` prints the loops."""

    def __init__(self, kernel: Kernel, form: Form) -> None:
        super().__init__(Scheduled(kernel, CpuTarget(precise=True), {}, frozenset()))
        self.form = form
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}
        self.rooms = 0  # of warps' parts of folds that a block combines together

    def combiner(self, combine: str, dtype: str) -> str:
        """Return a function that combines two values of a fold, as C++."""
        kind, text = STORED[dtype], self.combined(combine, dtype, "a", "b")
        return f"[](const {kind} a, const {kind} b) -> {kind} {{ return {text}; }}"

    def combined(self, combine: str, dtype: str, left: str, right: str) -> str:
        """Return the text that combines two values in a fold; zeros there have no order."""
        if dtype == "float32" and combine in ("maximum", "minimum"):
            return f"adarray_{combine}_of({left}, {right})"
        return super().combined(combine, dtype, left, right)

    def _partials(self, s: For, lets: dict[str, Expr]) -> Partials:
        """Print the threads' accumulators of folds into one place."""
        found = []
        totals = {t.name for t in self.kernel.totals if t.size is None}
        for x in s.body:
            if not isinstance(x, Fold) or x.target in totals or x.target in self.outs:
                continue
            if x.index is not None and slope(x.index, s.var, lets) != ZERO:
                continue
            c = self.fresh("p")
            neutral = functions.neutral(x.combine, x.value.dtype)
            self.line(f"{STORED[x.value.dtype]} {c} = {neutral};")
            found.append((x, c))
        return found

    def _gather(self, partial: Partials) -> None:
        """Print the combination of the threads' accumulators.

        Blocks wait once for all of them. They leave what warps have in rooms that the next
        folds do not take: who writes to these again has waited since with all that read them.
        """
        group = self.form.group
        found = []
        for i, (s, c) in enumerate(partial):
            kind, combine = STORED[s.value.dtype], self.combiner(s.combine, s.value.dtype)
            room = f"({kind} *)(rooms_ + turn_ + {64 * i})"
            if group <= WARP:
                self.line(f"{c} = adarray_together<{group}>({c}, ({kind} *)nullptr, {combine});")
                continue
            self.line(f"adarray_leave({c}, {room}, {combine});")
            found.append(f"{c} = adarray_of_warps<{group // WARP}>({room}, {combine});")
        if found:
            self.rooms = max(self.rooms, len(found))
            for text in ("__syncthreads();", *found, "turn_ ^= 32;"):
                self.line(text)
        for s, c in partial:
            if s.index is None:
                place, only = self.changing[s.target], ""
            else:
                place, only = f"{self.memory[s.target]}[{self.index(s.index)}]", "if (lane == 0) "
            self.line(f"{only}{place} = {self.combined(s.combine, s.value.dtype, place, c)};")
            self.changed(s.target)
