"""Folds of vector loops whose iterations threads share: what each has, and all together.

References
----------
- M. Harris, "Optimizing parallel reduction in CUDA", NVIDIA 2007.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import Fold
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.loops import WARP

Accumulators = list[tuple[Fold, str]]  # folds, and the C names of a thread's parts


def begin(p: CudaPrinter, folds: tuple[Fold, ...]) -> Accumulators:
    """Print the threads' accumulators of folds into one place."""
    accumulators = []
    for x in folds:
        c = p.fresh("p")
        neutral = functions.neutral(x.combine, x.value.dtype)
        p.line(f"{STORED[x.value.dtype]} {c} = {neutral};")
        accumulators.append((x, c))
    return accumulators


def gather(p: CudaPrinter, accumulators: Accumulators) -> None:
    """Print the combination of the threads' accumulators.

    Blocks wait once for all of them. They leave what warps have in rooms that the next
    folds do not take: who writes to these again has waited since with all that read them.
    """
    group = p.schedule.group
    lines = []
    for i, (s, c) in enumerate(accumulators):
        kind, combine = STORED[s.value.dtype], p.combiner(s.combine, s.value.dtype)
        room = f"({kind} *)(rooms_ + turn_ + {64 * i})"
        if group <= WARP:
            p.line(f"{c} = adarray_together<{group}>({c}, ({kind} *)nullptr, {combine});")
            continue
        p.line(f"adarray_leave({c}, {room}, {combine});")
        lines.append(f"{c} = adarray_of_warps<{group // WARP}>({room}, {combine});")
    if lines:
        p.rooms = max(p.rooms, len(lines))
        for text in ("__syncthreads();", *lines, "turn_ ^= 32;"):
            p.line(text)
    for s, c in accumulators:
        if s.index is None:
            place, only = p.changing[s.target], ""
        else:
            place, only = f"{p.memory[s.target]}[{p.index(s.index)}]", "if (lane == 0) "
        p.line(f"{only}{place} = {p.combined(s.combine, s.value.dtype, place, c)};")
        p.changed(s.target)
