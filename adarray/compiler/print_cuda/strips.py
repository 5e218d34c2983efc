"""Kernels whose warps march down column strips: see `adarray.compiler.schedule.gpu.strips`."""

from __future__ import annotations

from adarray.compiler.ir.loopir import For, Local
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.loops import iteration
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars.dtypes import STORED
from adarray.compiler.schedule.gpu.group_loops import GroupLoop, PackAccess, ResidentPacks
from adarray.compiler.schedule.gpu.schedules import ColumnStrips
from adarray.compiler.schedule.gpu.strip_loops import LaneStore, OwnRow, Wrapped
from adarray.compiler.schedule.gpu.strips import MARGIN


class StripPrinter:
    """Prints rows that lanes have in registers, and vector loops over them.

    Parameters
    ----------
    p : CudaPrinter
    schedule : ColumnStrips
    """

    def __init__(self, p: CudaPrinter, schedule: ColumnStrips) -> None:
        self.p = p
        self.schedule = schedule
        self.how = "_pack" if schedule.aligned else ""

    def integers(self) -> None:
        """Print the kernel's integers as int32, if that holds all of them."""
        p = self.p
        for i, name in enumerate(p.kernel.ints if self.schedule.narrow else ()):
            p.line(f"const int m{i} = (int)n{i};")
            p.bind(name, fixed(f"m{i}"))

    def array(self, s: Local) -> None:
        """Print a row: each lane has its columns."""
        c = self.p.fresh("s")
        self.p.line(f"adarray_pack<{STORED[s.dtype]}, {self.schedule.columns}> {c};")
        self.p.dtypes[s.name] = s.dtype
        self.p.memory[s.name] = c

    def loop(self, s: For) -> None:
        """Print a vector loop: all lanes compute all their columns, and store those of it."""
        p, plan, width = self.p, self.p.outline.strips[s], self.schedule.columns
        dtypes = {b.name: b.dtype for b in p.kernel.buffers} | dict(p.outline.memory.arrays)
        loads = [PackAccess("load", dtypes[x.load.buffer], x.load) for x in plan.loads]
        stores = [PackAccess("store", dtypes[x.store.buffer], x.store) for x in plan.stores]
        one = p.fresh("f")
        body, parameters = iteration(p, s, GroupLoop(ResidentPacks(), (*loads, *stores)), [])
        scope = TextScope()
        p.scopes.append(scope)
        p.braced(f"const auto {one} = [&]({', '.join(parameters)})", body, "};")
        args = ["care"] * p.outline.is_careful + [f"{MARGIN} + lane * {width} + u"]
        args += [f"{self._loaded(x)}.v[u]" for x in plan.loads]
        results = [p.fresh("y") for _ in stores]
        for m, y in zip(stores, results, strict=True):
            args.append(f"{y}.v[u]")
            p.line(f"adarray_pack<{STORED[m.dtype]}, {width}> {y};")
        p.line("#pragma unroll")
        p.line(f"for (int u = 0; u < {width}; u++) {one}({', '.join(args)});")
        for x, y in zip(plan.stores, results, strict=True):
            self._store(x, y, s)
        p.scopes.pop()
        p.braced("", scope)

    def _store(self, x: LaneStore, y: str, s: For) -> None:
        """Print the store of a lane's columns: all those of a row, or some of a result's."""
        p, memory = self.p, self.p.memory[x.store.buffer]
        if x.first is None:
            p.line(f"{memory} = {y};")
            return
        first = p.index(x.first)
        lo, hi = (f"{p.index(e)} - {MARGIN}" for e in (s.start, s.stop))
        column = f"lane * {self.schedule.columns}"
        p.line(f"adarray_store_lane{self.how}({y}, {memory} + {first}, {column}, {lo}, {hi});")

    def _loaded(self, x: OwnRow | Wrapped) -> str:
        """Return the pack that holds what this lane's iterations load."""
        p, width, memory = self.p, self.schedule.columns, self.p.memory[x.load.buffer]
        if isinstance(x, OwnRow):
            if x.beside == 0:
                return memory
            z = p.fresh("z")
            kind = STORED[p.outline.memory.arrays[x.load.buffer]]
            p.line(
                f"const adarray_pack<{kind}, {width}> {z} = adarray_beside<{x.beside}>({memory});"
            )
            return z
        base, first = p.index(x.base), p.index(x.first)
        y, kind = p.fresh("y"), STORED[x.load.dtype]
        p.line(f"adarray_pack<{kind}, {width}> {y};")
        p.line(
            f"adarray_load_lane{self.how}({y}, {memory} + {base}, {first} + lane * {width}, "
            f"{p.index(x.count)}, {p.index(x.own)});"
        )
        return y
