"""Rows that are register-resident in the threads of a block, as CUDA C.

`adarray.compiler.schedule.gpu.register_rows` says which. Every loop is unrolled over the packs of a
thread, so that each of them is in registers of its own.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import For, Load, Store, Total, Var
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.packs import LoopText, own_anchors, pack
from adarray.compiler.print_cuda.rows import rows
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.dtypes import SIZES, STORED
from adarray.compiler.schedule.gpu.schedules import RegisterRows


class ResidentRowsPrinter:
    """Prints what threads have of a row, and the loops over it.

    Parameters
    ----------
    p : CudaPrinter
    schedule : RegisterRows
    """

    def __init__(self, p: CudaPrinter, schedule: RegisterRows) -> None:
        self.p = p
        self.schedule = schedule
        self.rows = schedule.rows
        self.names: dict[str, str] = {}
        self.row: For | None = None  # the parallel loop
        # Slots of loads in shared memory, and the functions that fetch what follows.
        self.rings: dict[Load, tuple[str, str]] = {}
        for name, dtype in self.rows.arrays.items():  # no memory but registers
            p.dtypes[name] = dtype
            p.memory[name] = f"(({STORED[dtype]} *)nullptr)"
            self.names[name] = p.fresh("a")

    # -- the parallel loop -----------------------------------------------------------------

    def parallel(self, s: For) -> None:
        """Print the loop over rows."""
        p = self.p
        start, stop = p.index(s.start), p.index(s.stop)
        p.written(s)
        self._fetch_first(f"merge_ + {p.outline.memory.merge_bytes}", s)
        before = [self._array(d, self.names[n]) for n, d in self.rows.arrays.items()]
        rows(p, s, start, stop, [*before, "adarray_arrived<0>();"] if self.rings else before)

    def _fetch_first(self, near: str, loop: For) -> None:
        """Print what fetches rows into shared memory, from `near` on, and fetch the first ones.

        Every thread has slots of its own, which are free again as soon as it has read them.
        """
        p, width, block, packs = self.p, self.rows.width, self.schedule.block, self.schedule.packs
        self.row = loop
        for row in self.rows.rows if self.schedule.aligned else ():
            kind, ring, fetch = STORED[row.load.dtype], p.fresh("r"), p.fresh("f")
            of = f"adarray_pack<{kind}, {width}>"
            p.line(f"{of} *const {ring} = ({of} *)(near_ + {near}) + threadIdx.x;")
            near += f" + {packs * block * width * SIZES[row.load.dtype]}"
            scope, v = TextScope(), p.fresh("v")
            p.scopes.append(scope)
            p.bind(loop.var, fixed(v))
            base = f"{p.memory[row.load.buffer]} + {p.index(row.first)}"
            p.line(f"const {kind} *const from = {base};")
            p.scopes.pop()
            end = p.index(Var("int64", self.rows.stop))
            scope.lines += [
                "#pragma unroll",
                f"for (int r = 0; r < {packs}; r++) {{",
                f"    const {p.counter} k = (r * {block} + lane) * {width};",
                f"    if (k < {end}) adarray_begin<{width * SIZES[row.load.dtype]}>"
                f"({ring} + r * {block}, from + k);",
                "}",
                "adarray_commit();",
            ]
            p.braced(f"const auto {fetch} = [&](const int64_t {v})", scope, "};")
            self.rings[row.load] = ring, fetch
            first = f"{p.index(loop.start)} + group"
            p.line(f"if ({first} < {p.index(loop.stop)}) {fetch}({first});")

    def _array(self, dtype: str, name: str) -> str:
        packs = self.schedule.packs
        return f"adarray_pack<{STORED[dtype]}, {self.rows.width}> {name}[{packs}];"

    # -- array totals ----------------------------------------------------------------------

    def begin_total(self, t: Total) -> None:
        """Print the declaration of an array total."""
        p, name = self.p, self.p.fresh("a")
        self.names[t.name] = name
        p.line(self._array(t.dtype, name))
        neutral = functions.neutral(t.combine, t.dtype)
        p.line("#pragma unroll")
        p.line(
            f"for (int r = 0; r < {self.schedule.packs}; r++) "
            f"for (int u = 0; u < {self.rows.width}; u++) {name}[r].v[u] = {neutral};"
        )
        p.memory[t.name] = f"(({STORED[t.dtype]} *)nullptr)"

    def end_total(self, t: Total, size: str, to: str) -> None:
        """Print what stores what a block has of an array total."""
        s = self.schedule
        self.p.line(
            f"adarray_held_total<{s.block}, {s.packs}>({self.names[t.name]}, {size}, {to});"
        )

    # -- vector loops ----------------------------------------------------------------------

    def loop(self, t: LoopText) -> None:
        """Print the loop over the packs of a thread."""
        p, schedule, width = self.p, self.schedule, self.rows.width
        r, v = p.fresh("r"), p.fresh("v")
        slots = {}
        for i, (_, _, x) in enumerate(t.plan.moved):
            if isinstance(x, Load) and x in self.rings:
                slots[i] = f"({self.rings[x][0]} + {r} * {schedule.block})"
            place = x.buffer if isinstance(x, Load | Store) else x.target
            if place in self.names:
                slots[i] = f"({self.names[place]} + {r})"
        each = "" if schedule.aligned else "_each"
        scope = pack(p, t, own_anchors(t), v, width, each, slots)
        p.line("#pragma unroll")
        p.line(f"for (int {r} = 0; {r} < {schedule.packs}; {r}++) {{")
        p.line(f"    const {p.counter} {v} = ({r} * {schedule.group} + lane) * {width};")
        test = "" if schedule.even else f"if ({v} < {t.stop} - {t.first})"
        p.braced(f"    {test}", scope, "    }")
        p.line("}")
        for _, _, x in t.plan.moved:
            if isinstance(x, Load) and x in self.rings and self.row is not None:
                row = p.lookup(self.row.var).text
                end = p.index(self.row.stop)
                p.line(f"if ({row} + groups < {end}) {self.rings[x][1]}({row} + groups);")
