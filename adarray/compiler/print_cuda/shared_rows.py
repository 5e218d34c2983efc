"""Rows that a kernel of a GPU fetches into shared memory, as CUDA C.

Every thread has slots of its own, one for each pack of a row that it takes and some for the next
row. It fetches what comes next into a slot once it has read it for the last time, and waits for
its own copies alone. What it fetched is committed in two parts for each row: what the next row
needs, and what the one after it needs; so all but the last part have arrived when a row begins.
`adarray.compiler.schedule.gpu.shared_rows` says which rows.
"""

from __future__ import annotations

from adarray.compiler.ir.loopir import For
from adarray.compiler.print_c.values import TextScope, fixed
from adarray.compiler.print_cuda.packs import LoopText, own_anchors, pack
from adarray.compiler.print_cuda.rows import rows
from adarray.compiler.print_cuda.statements import CudaPrinter
from adarray.compiler.scalars.dtypes import SIZES, STORED
from adarray.compiler.schedule.gpu.group_loops import FetchedPacks
from adarray.compiler.schedule.gpu.row_values import ROW_VALUES
from adarray.compiler.schedule.gpu.schedules import SharedRows


class FetchedRowsPrinter:
    """Prints what fetches rows, and the loops that read them.

    Parameters
    ----------
    p : CudaPrinter
    schedule : SharedRows
    """

    def __init__(self, p: CudaPrinter, schedule: SharedRows) -> None:
        assert p.outline.rows is not None
        self.p = p
        self.schedule = schedule
        self.rows = p.outline.rows
        self.rings: list[str] = []  # the first slots of each source
        # C names: the function that fetches, the packs that a thread has of a row, all elements
        # in packs, and the slot of a thread's first pack of this row.
        self.fetch = self.mine = self.whole = self.slot = ""
        if schedule.replaces:  # no memory but the slots
            dtype = p.outline.memory.arrays[ROW_VALUES]
            p.memory[ROW_VALUES] = f"(({STORED[dtype]} *)nullptr)"

    # -- the parallel loop -----------------------------------------------------------------

    def parallel(self, s: For) -> None:
        """Print the loop over rows."""
        p = self.p
        start, stop = p.index(s.start), p.index(s.stop)
        p.written(s)
        self._begin(f"merge_ + {p.outline.memory.merge_bytes}", start, stop)
        rows(p, s, start, stop)
        p.line("adarray_arrived<0>();")  # an iteration that fails leaves copies on their way

    def _begin(self, near: str, start: str, stop: str) -> None:
        """Print the slots, from `near` on in shared memory, and fetch the first rows."""
        p, width, block = self.p, self.rows.width, self.schedule.block
        slots = self.schedule.slots
        for source in self.rows.sources:
            ring, kind = p.fresh("r"), STORED[source.dtype]
            of = f"adarray_pack<{kind}, {width}>"
            p.line(f"{of} *const {ring} = ({of} *)(near_ + {near}) + threadIdx.x;")
            near = f"{near} + {slots * block * width * SIZES[source.dtype]}"
            self.rings.append(ring)
        self.whole, self.mine, self.slot = p.fresh("e"), p.fresh("m"), p.fresh("k")
        count = f"({p.index(self.rows.stop)} - {p.index(self.rows.start)})"
        span = f"(({p.counter})span * {width})"
        p.line(f"const {p.counter} {self.whole} = {count} / {width} * {width};")
        p.line(
            f"const int {self.mine} = lane * {width} < {self.whole} ? "
            f"(int)(({self.whole} - lane * {width} + {span} - 1) / {span}) : 0;"
        )
        self._function(start, stop, span)
        k = p.fresh("k")
        scope = TextScope()
        scope.lines.append(f"{self.fetch}({k} * {block});")
        scope.lines.append(f"if ({k} + 1 == {self.mine}) adarray_commit();")
        p.braced(f"for (int {k} = 0; {k} < {slots} && {self.mine} > 0; {k}++)", scope)
        p.line("adarray_commit();")
        p.line(f"int {self.slot} = 0;")

    def _function(self, start: str, stop: str, span: str) -> None:
        """Print the function that fetches the next pack into a slot."""
        p, width = self.p, self.rows.width
        row, v, k = p.fresh("v"), p.fresh("v"), p.fresh("k")
        self.fetch, move = p.fresh("f"), p.fresh("f")
        p.line(f"int64_t {row} = {start} + group;")
        p.line(f"{p.counter} {v} = ({p.counter})lane * {width};")
        froms = [p.fresh("q") for _ in self.rows.sources]
        for source, name in zip(self.rows.sources, froms, strict=True):
            p.line(f"const {STORED[source.dtype]} *{name};")
        scope = TextScope()
        p.scopes.append(scope)
        p.bind(self.rows.loop.var, fixed(row))
        for source, name in zip(self.rows.sources, froms, strict=True):
            p.line(f"{name} = {p.memory[source.buffer]} + {p.index(source.first)};")
        p.scopes.pop()
        p.braced(f"const auto {move} = [&]()", scope, "};")
        p.line(f"{move}();")
        scope = TextScope()
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

    # -- vector loops ----------------------------------------------------------------------

    def loop(self, t: LoopText, how: FetchedPacks) -> str:
        """Print the loop over packs of a vector loop that reads the rows.

        A thread takes the packs that it has in its slots. Where something else that the loop
        moves is not aligned, its elements are moved one by one. Return how many iterations it
        makes, "" if those are all.
        """
        p, width = self.p, self.rows.width
        block, slots = self.schedule.block, self.schedule.slots
        k, v, straight = p.fresh("k"), p.fresh("v"), p.fresh("w")
        places = {
            i: f"({self.rings[number]} + {k})"
            for i, number in enumerate(how.sources)
            if number is not None
        }
        tests = [f"adarray_aligned<{width}>({b})" for i, b in enumerate(t.bases) if i not in places]
        if how.first:
            p.line("adarray_arrived<1>();")
        p.line(f"int {k} = {self.slot};")
        left = p.fresh("c")
        if how.last:
            p.line(f"int {left} = 2 * {self.mine} - {slots};")
        head = (
            f"for ({p.counter} {v} = ({p.counter})lane * {width}; {v} < {self.whole}; "
            f"{v} += ({p.counter})span * {width})"
        )
        if tests:
            p.line(f"const bool {straight} = {' & '.join(tests)};")
        for each in ("", "_each") if tests else ("",):
            scope = pack(p, t, own_anchors(t), v, width, each, places)
            if how.last:
                scope.lines.append(f"{self.fetch}({k});")
                scope.lines.append(f"if (--{left} == 0) adarray_commit();")
            scope.lines.append(f"{k} = {k} == {(slots - 1) * block} ? 0 : {k} + {block};")
            test = f"if ({'!' if each else ''}{straight}) " if tests else ""
            p.braced(test + head, scope)
        if how.last:
            p.line("adarray_commit();")
            p.line(f"{self.slot} = {k};")
        return "" if self.schedule.replaces else self.whole
