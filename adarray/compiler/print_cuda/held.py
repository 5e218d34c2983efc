"""Loops over rows that the threads of a block hold in registers, as CUDA C.

`adarray.compiler.schedule.gpu_rows` says which. Every loop is unrolled over the packs of a
thread, so that each of them is in registers of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import For, Load, Store, Total, Var
from adarray.compiler.print_c.values import Scope, fixed
from adarray.compiler.scalars import functions
from adarray.compiler.scalars.functions import SIZES, STORED
from adarray.compiler.schedule.gpu_rows import Held

if TYPE_CHECKING:
    from adarray.compiler.print_cuda.loops import GroupLoops
    from adarray.compiler.print_cuda.packs import Moved


class Holding:
    """Prints what threads hold, and the loops over it.

    Parameters
    ----------
    printer : GroupLoops
    found : Held
    """

    def __init__(self, printer: GroupLoops, found: Held) -> None:
        self.p = printer
        self.found = found
        self.names: dict[str, str] = {}
        self.parallel: For | None = None
        # Slots of loads in shared memory, and the functions that fetch what follows.
        self.rings: dict[Load, tuple[str, str]] = {}
        for name, dtype in found.arrays.items():  # no memory but registers
            printer.local[name] = printer.dtypes[name] = dtype
            printer.memory[name] = f"(({STORED[dtype]} *)nullptr)"
            self.names[name] = printer.fresh("a")

    def begin(self) -> list[str]:
        """Return the declarations of what a pass holds."""
        lines = [self._array(d, self.names[n]) for n, d in self.found.arrays.items()]
        return [*lines, "adarray_arrived<0>();"] if self.rings else lines

    def fetch_first(self, near: str, loop: For) -> None:
        """Print what fetches rows into shared memory, from `near` on, and fetch the first ones.

        Every thread has slots of its own, which are free again as soon as it holds their packs.
        """
        p, width, block = self.p, self.found.width, self.p.form.block
        self.parallel = loop
        for row in self.found.rows if p.form.packs else ():
            kind, ring, fetch = STORED[row.load.dtype], p.fresh("r"), p.fresh("f")
            pack = f"adarray_pack<{kind}, {width}>"
            p.line(f"{pack} *const {ring} = ({pack} *)(near_ + {near}) + threadIdx.x;")
            near += f" + {p.form.turns * block * width * SIZES[row.load.dtype]}"
            scope, v = Scope(), p.fresh("v")
            p.scopes.append(scope)
            p.bind(loop.var, fixed(v))
            base = f"{p.memory[row.load.buffer]} + {p.index(row.first)}"
            p.line(f"const {kind} *const from = {base};")
            p.scopes.pop()
            end = p.index(Var("int64", self.found.stop))
            scope.lines += [
                "#pragma unroll",
                f"for (int r = 0; r < {p.form.turns}; r++) {{",
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

    def begin_total(self, t: Total) -> None:
        """Print the declaration of an array total."""
        p, name = self.p, self.p.fresh("a")
        self.names[t.name] = name
        p.line(self._array(t.dtype, name))
        neutral = functions.neutral(t.combine, t.dtype)
        p.line("#pragma unroll")
        p.line(
            f"for (int r = 0; r < {p.form.turns}; r++) "
            f"for (int u = 0; u < {self.found.width}; u++) {name}[r].v[u] = {neutral};"
        )
        p.memory[t.name] = f"(({STORED[t.dtype]} *)nullptr)"

    def end_total(self, t: Total, size: str, to: str) -> None:
        """Print what stores what a block has of an array total."""
        f = self.p.form
        self.p.line(
            f"adarray_held_total<{f.block}, {f.turns}>({self.names[t.name]}, {size}, {to});"
        )

    def _array(self, dtype: str, name: str) -> str:
        return f"adarray_pack<{STORED[dtype]}, {self.found.width}> {name}[{self.p.form.turns}];"

    def loop(
        self, packed: list[Moved], bases: list[str], one: str, bounds: tuple[str, str]
    ) -> None:
        """Print a loop: `one` is its pass, from `bounds[0]` up to `bounds[1]`."""
        p, width, (lo, hi) = self.p, self.found.width, bounds
        moves = list(zip(packed, bases, strict=True))
        r, v = p.fresh("r"), p.fresh("v")
        p.slots = {}
        for _, _, x in packed:
            if isinstance(x, Load) and x in self.rings:
                p.slots[id(x)] = f"({self.rings[x][0]} + {r} * {p.form.block})"
            place = x.buffer if isinstance(x, Load | Store) else x.target
            if place in self.names:
                p.slots[id(x)] = f"({self.names[place]} + {r})"
        anchors = [(i, 0) for i in range(len(moves))]
        each = "" if p.form.packs else "_each"
        scope = p._pack(moves, anchors, one, lo, v, width, each, [])
        p.slots = {}
        p.line("#pragma unroll")
        p.line(f"for (int {r} = 0; {r} < {p.form.turns}; {r}++) {{")
        p.line(f"    const {p.counter} {v} = ({r} * {p.form.group} + lane) * {width};")
        test = "" if p.form.even else f"if ({v} < {hi} - {lo})"
        p.braced(f"    {test}", scope, "    }")
        p.line("}")
        for _, _, x in packed:
            if isinstance(x, Load) and x in self.rings and self.parallel is not None:
                row = p.lookup(self.parallel.var).text
                end = p.index(self.parallel.stop)
                p.line(f"if ({row} + groups < {end}) {self.rings[x][1]}({row} + groups);")
