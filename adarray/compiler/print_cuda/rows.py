"""The parallel loop of kernels for GPUs, which groups of threads share, and its local arrays."""

from __future__ import annotations

from collections.abc import Iterable

from adarray.compiler.ir.loopir import For, Local
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.loops import SharedLoops
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars.dtypes import STORED


def rows(
    p: CudaPrinter, s: For, start: str, stop: str, before: Iterable[str] = (), guard: str = "",
    unroll: int = 0,
) -> None:  # fmt: skip
    """Print the loop as a function of the iteration, from which a failure may return.

    Parameters
    ----------
    p : CudaPrinter
    s : For
    start, stop : str
        Its bounds.
    before : iterable of str
        Lines that an iteration begins with.
    guard : str
        A condition of having a part in any iteration.
    unroll : int
        Iterations to begin at once; 0 for one after the other.
    """
    v, one = p.fresh("v"), p.fresh("f")
    scope = TextScope()
    scope.lines += before
    p.scopes.append(scope)
    p.bind(s.var, fixed(v))
    p.block(s.body)
    p.scopes.pop()
    p.braced(f"const auto {one} = [&](const int64_t {v})", scope, "};")
    if guard:
        p.line(f"if ({guard})")
    if unroll:
        p.line(f"#pragma unroll {unroll}")
    p.line(f"for (int64_t {v} = {start} + group; {v} < {stop}; {v} += groups) {one}({v});")


def plain_rows(p: CudaPrinter, s: For) -> None:
    """Print the loop where rows are read whenever they are needed."""
    start, stop = p.index(s.start), p.index(s.stop)
    p.written(s)
    rows(p, s, start, stop)


def sheet_rows(p: CudaPrinter, loops: SharedLoops, s: For) -> None:
    """Print the loop over the rows of a sheet."""
    start, stop = p.index(s.start), p.index(s.stop)
    p.written(s)
    lanes = p.outline.lanes
    loops.is_chosen = lanes is not None
    guard = "" if lanes is None else f"lane < {p.index(lanes)}"
    rows(p, s, start, stop, guard=guard, unroll=p.outline.unroll)
    loops.is_chosen = False


def array(p: CudaPrinter, s: Local) -> None:
    """Declare a local array in the memory of one that is not used any more, or in its own."""
    assert s.size is not None
    c, kind, memory = p.fresh("s"), STORED[s.dtype], p.outline.memory
    p.dtypes[s.name] = s.dtype
    home = memory.homes[s.name]
    if home != s.name:
        p.line(f"{kind} *const {c} = ({kind} *){p.memory[home]};")
    else:
        near = s.name in memory.shared
        base = "near_" if near else "scratch"
        index = f"threadIdx.x / {p.schedule.group}" if near else "group"
        size = f"(({p.index(s.size)} + 63) / 64 * 64)"
        place = memory.places[s]
        p.line(f"{kind} *const {c} = ({kind} *)({base} + o{place}) + {index} * {size};")
    p.memory[s.name] = c
    p.changed(s.name)
