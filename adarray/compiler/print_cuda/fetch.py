"""Rows that a kernel of a GPU fetches into shared memory, as CUDA C: `device_fetch` says which.

Every thread has slots of its own, one for each pack of a row that it takes and some for the next
row. It fetches what comes next into a slot once it has read it for the last time, and waits for
its own copies alone. What it fetched is committed in two parts for each row: what the next row
needs, and what the one after it needs; so all but the last part have arrived when a row begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import For, Load, Store
from adarray.compiler.print_c.values import Scope, fixed
from adarray.compiler.scalars.functions import SIZES, STORED
from adarray.compiler.schedule.gpu_fetch import Fetched
from adarray.compiler.schedule.gpu_kept import KEPT

if TYPE_CHECKING:
    from adarray.compiler.print_cuda.loops import GroupLoops
    from adarray.compiler.print_cuda.packs import Moved


class Fetching:
    """Prints what fetches rows, and the loops that read them.

    Parameters
    ----------
    printer : GroupLoops
    found : Fetched
    """

    def __init__(self, printer: GroupLoops, found: Fetched) -> None:
        self.p = printer
        self.found = found
        self.last = found.inner[-1]
        self.rings: list[str] = []  # the first slots of each source
        # C names: the function that fetches, the packs that a thread has of a row, all elements
        # in packs, and the slot of a thread's first pack of this row.
        self.fetch = self.mine = self.whole = self.slot = ""

    def reads(self, s: For) -> bool:
        """Whether a vector loop reads rows that are fetched."""
        return any(s is x for x in self.found.inner)

    # -- before the parallel loop ----------------------------------------------------------

    def begin(self, near: str, start: str, stop: str) -> None:
        """Print the slots, and fetch the first rows.

        Parameters
        ----------
        near : str
            Where in shared memory the slots begin.
        start, stop : str
            Of the parallel loop.
        """
        p, width, block = self.p, self.found.width, self.p.form.block
        slots = p.form.slots
        for source in self.found.sources:
            ring, kind = p.fresh("r"), STORED[source.dtype]
            pack = f"adarray_pack<{kind}, {width}>"
            p.line(f"{pack} *const {ring} = ({pack} *)(near_ + {near}) + threadIdx.x;")
            near = f"{near} + {slots * block * width * SIZES[source.dtype]}"
            self.rings.append(ring)
        self.whole, self.mine, self.slot = p.fresh("e"), p.fresh("m"), p.fresh("k")
        count = f"({p.index(self.found.stop)} - {p.index(self.found.start)})"
        span = f"(({p.counter})span * {width})"
        p.line(f"const {p.counter} {self.whole} = {count} / {width} * {width};")
        p.line(
            f"const int {self.mine} = lane * {width} < {self.whole} ? "
            f"(int)(({self.whole} - lane * {width} + {span} - 1) / {span}) : 0;"
        )
        self._function(start, stop, span)
        k = p.fresh("k")
        scope = Scope()
        scope.lines.append(f"{self.fetch}({k} * {block});")
        scope.lines.append(f"if ({k} + 1 == {self.mine}) adarray_commit();")
        p.braced(f"for (int {k} = 0; {k} < {slots} && {self.mine} > 0; {k}++)", scope)
        p.line("adarray_commit();")
        p.line(f"int {self.slot} = 0;")

    def _function(self, start: str, stop: str, span: str) -> None:
        """Print the function that fetches the next pack into a slot."""
        p, width = self.p, self.found.width
        row, v, k = p.fresh("v"), p.fresh("v"), p.fresh("k")
        self.fetch, move = p.fresh("f"), p.fresh("f")
        p.line(f"int64_t {row} = {start} + group;")
        p.line(f"{p.counter} {v} = ({p.counter})lane * {width};")
        froms = [p.fresh("q") for _ in self.found.sources]
        for source, name in zip(self.found.sources, froms, strict=True):
            p.line(f"const {STORED[source.dtype]} *{name};")
        scope = Scope()
        p.scopes.append(scope)
        p.bind(self.found.loop.var, fixed(row))
        for source, name in zip(self.found.sources, froms, strict=True):
            p.line(f"{name} = {p.memory[source.buffer]} + {p.index(source.first)};")
        p.scopes.pop()
        p.braced(f"const auto {move} = [&]()", scope, "};")
        p.line(f"{move}();")
        scope = Scope()
        scope.lines.append(f"if ({row} >= {stop}) return;")
        for name, ring in zip(froms, self.rings, strict=True):
            scope.lines.append(f"adarray_fetch({ring} + {k}, {name} + {v});")
        scope.lines += [
            f"if (({v} += {span}) >= {self.whole}) {{",
            f"    {v} = ({p.counter})lane * {width};",
            f"    {row} += groups;",
            f"    {move}();",
            "}",
        ]
        p.braced(f"const auto {self.fetch} = [&](const int {k})", scope, "};")

    def end(self) -> None:
        """Print what follows the parallel loop: a pass that fails leaves copies on their way."""
        self.p.line("adarray_arrived<0>();")

    # -- loops -----------------------------------------------------------------------------

    def loop(
        self, s: For, packed: list[Moved], bases: list[str], one: str, lo: str
    ) -> tuple[str, str]:
        """Print the loop over packs of a vector loop that reads the rows.

        A thread takes the packs that it has in its slots. Where something else that the loop
        moves is not aligned, its elements are moved one by one. Return how many passes come
        before, and how many it makes.
        """
        p, width = self.p, self.found.width
        block, slots = p.form.block, p.form.slots
        moves = list(zip(packed, bases, strict=True))
        k, v, straight = p.fresh("k"), p.fresh("v"), p.fresh("w")
        p.slots = {}
        for (_, _, x), _ in moves:
            number = self.found.loads.get((id(s), x)) if isinstance(x, Load) else None
            if isinstance(x, Store) and x.buffer == KEPT:
                number = 0
            if number is not None:
                p.slots[id(x)] = f"({self.rings[number]} + {k})"
        tests = [f"adarray_aligned<{width}>({b})" for (_, _, x), b in moves if id(x) not in p.slots]
        if s is self.found.inner[0]:
            p.line("adarray_arrived<1>();")
        p.line(f"int {k} = {self.slot};")
        left = p.fresh("c")
        if s is self.last:
            p.line(f"int {left} = 2 * {self.mine} - {slots};")
        anchors = [(i, 0) for i in range(len(moves))]
        head = (
            f"for ({p.counter} {v} = ({p.counter})lane * {width}; {v} < {self.whole}; "
            f"{v} += ({p.counter})span * {width})"
        )
        if tests:
            p.line(f"const bool {straight} = {' & '.join(tests)};")
        for each in ("", "_each") if tests else ("",):
            scope = p._pack(moves, anchors, one, lo, v, width, each, [])
            if s is self.last:
                scope.lines.append(f"{self.fetch}({k});")
                scope.lines.append(f"if (--{left} == 0) adarray_commit();")
            scope.lines.append(f"{k} = {k} == {(slots - 1) * block} ? 0 : {k} + {block};")
            test = f"if ({'!' if each else ''}{straight}) " if tests else ""
            p.braced(test + head, scope)
        p.slots = {}
        if s is self.last:
            p.line("adarray_commit();")
            p.line(f"{self.slot} = {k};")
        return "0", self.whole
