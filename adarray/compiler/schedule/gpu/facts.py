"""What is known of a kernel and its integers, for the choice of a schedule and for launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from adarray.compiler.ir.affine import slope
from adarray.compiler.ir.loopir import (
    STRIDE,
    Expr,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Local,
    Stmt,
    Store,
    Total,
    statements,
)
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.extents import (
    count_of,
    evaluate,
    extents_of,
    most_of,
    padded,
    with_lets,
)
from adarray.compiler.schedule.gpu import pair_columns, strips, tiles
from adarray.compiler.schedule.gpu.loops import (
    folding,
    homes,
    is_flat,
    is_scan,
    is_sheet,
    is_whole,
    sheet_width,
)
from adarray.compiler.schedule.gpu.register_rows import ResidentRows, resident_rows
from adarray.compiler.schedule.gpu.row_values import Replacing, replacing
from adarray.compiler.schedule.gpu.shared_rows import FetchedRows, fetched_rows
from adarray.compiler.schedule.ranges import is_narrow

WIDTH = 4  # elements of a pack of float32
INT32 = 1 << 30  # where all extents are below, int32 counts iterations


@dataclass(frozen=True, eq=False)
class KernelFacts:
    """A kernel, its integers, and what follows from them; each fact is found once.

    Parameters
    ----------
    kernel : Kernel
    ints : mapping of str to int
        The values of the kernel's integers.
    """

    kernel: Kernel
    ints: Mapping[str, int]

    # -- extents ---------------------------------------------------------------------------

    @cached_property
    def known(self) -> dict[str, int]:
        """The integers, and the names that the kernel binds to values of them."""
        return with_lets(self.kernel.body, self.ints)

    @cached_property
    def extents(self) -> list[int]:
        """Iterations of the loops that threads can share, of those that can be told."""
        return extents_of(self.kernel.body, self.known)

    @cached_property
    def inner(self) -> list[int | None]:
        """The most of each in the parallel loop, None for those that cannot be told."""
        loop = self.parallel
        return [] if loop is None else most_of(loop.body, with_lets(loop.body, self.known))

    @cached_property
    def longest_inner(self) -> int | None:
        """Return the most of these; None if none is known."""
        return max((n for n in self.inner if n is not None), default=None)

    @cached_property
    def rows(self) -> int:
        """Iterations of the parallel loop, at least one."""
        return 1 if self.parallel is None else count_of(self.parallel, self.known) or 1

    def count(self, loop: For) -> int:
        """Return the iterations of a loop, at least one."""
        return count_of(loop, self.known) or 1

    def bytes_of(self, x: Total | Local) -> int | None:
        """Return the bytes of a sized total or array, padded; None if they cannot be told."""
        size = None if x.size is None else evaluate(x.size, self.known)
        return None if size is None else padded(size) * SIZES[x.dtype]

    @cached_property
    def fits_int32(self) -> bool:
        """Whether int32 counts the iterations of every loop."""
        counts = (n for n in self.extents)
        return max((*self.ints.values(), *counts), default=0) < INT32

    @cached_property
    def is_narrow(self) -> bool:
        """Whether int32 holds every integer that the kernel computes."""
        return is_narrow(self.kernel, self.ints)

    @cached_property
    def is_ragged(self) -> bool:
        """Whether some distance of rows is no number of packs."""
        return any(n % WIDTH for name, n in self.ints.items() if name.startswith(STRIDE))

    # -- loops and memory ------------------------------------------------------------------

    @cached_property
    def tops(self) -> list[For]:
        """The loops that are in no other."""
        return [s for s in self.kernel.body if isinstance(s, For)]

    @cached_property
    def parallel(self) -> For | None:
        """The parallel loop."""
        return next((s for s in self.tops if s.kind == "parallel"), None)

    @cached_property
    def arrays(self) -> list[Local]:
        """Local arrays that have memory of their own."""
        declared = (s for s in statements(self.kernel.body) if isinstance(s, Local))
        return [s for s in declared if s.size is not None and self.homes[s.name] == s.name]

    @cached_property
    def homes(self) -> dict[str, str]:
        """The local array whose memory each takes."""
        return homes(self.kernel)

    @cached_property
    def sized(self) -> list[Total]:
        """Totals that are arrays."""
        return [t for t in self.kernel.totals if t.size is not None]

    @cached_property
    def folding(self) -> dict[str, list[For]]:
        """The vector loops that fold into each array total."""
        return {t.name: folding(self.kernel, t) for t in self.sized}

    @cached_property
    def total_widths(self) -> dict[str, int]:
        """Most elements of each array total of a sheet that a thread has side by side."""
        return {name: sheet_width(self.kernel, loops[0]) for name, loops in self.folding.items()}

    @cached_property
    def most_folds(self) -> int:
        """The most folds of one loop."""
        loops = (s for s in statements(self.kernel.body) if isinstance(s, For))
        return max((sum(isinstance(x, Fold) for x in s.body) for s in loops), default=0)

    @cached_property
    def most_values(self) -> int:
        """The most values that one iteration of a vector loop names."""
        loops = (s for s in statements(self.kernel.body) if isinstance(s, For))
        return max(
            (sum(isinstance(x, Let) for x in s.body) for s in loops if s.kind == "vector"),
            default=0,
        )

    @cached_property
    def apart(self) -> frozenset[str]:
        """Buffers of which no two iterations of the loops in a row write the same element."""
        if self.parallel is None:
            return frozenset()
        lets = {s.name: s.value for s in statements(self.parallel.body) if isinstance(s, Let)}
        buffers = self._apart(self.parallel.body, (), lets)
        return frozenset(name for name, each in buffers.items() if each)

    def _apart(
        self, body: tuple[Stmt, ...], loops: tuple[For, ...], lets: Mapping[str, Expr]
    ) -> dict[str, bool]:
        buffers: dict[str, bool] = {}
        for s in body:
            below = {}
            if isinstance(s, Store):
                below = {s.buffer: self._is_apart(s.index, loops, lets)}
            elif isinstance(s, For):
                below = self._apart(s.body, (*loops, s), lets)
            elif isinstance(s, If):
                below = self._apart((*s.body, *s.orelse), loops, lets)
            for name, each in below.items():
                buffers[name] = each and buffers.get(name, True)
        return buffers

    def _is_apart(self, index: Expr, loops: tuple[For, ...], lets: Mapping[str, Expr]) -> bool:
        """Whether each iteration of loops within each other has an index of its own."""
        steps = []
        for loop in loops:
            step, count = slope(index, loop.var, lets), count_of(loop, self.known)
            size = None if step is None else evaluate(step, self.known)
            if size is None or count is None:
                return False
            if count > 1:
                steps.append((abs(size), count))
        reach = 1
        for size, count in sorted(steps):
            if size < reach:
                return False
            reach = size * count
        return True

    # -- what the kernel is ----------------------------------------------------------------

    @cached_property
    def is_flat(self) -> bool:
        """Whether it is vector loops that all threads of all blocks can share."""
        return is_flat(self.kernel.body, checks=True)

    @cached_property
    def is_scan(self) -> bool:
        """Whether it is one loop that stores what it has folded so far."""
        return is_scan(self.kernel)

    @cached_property
    def is_sheet(self) -> bool:
        """Whether iterations of its vector loops need nothing of each other."""
        loop = self.parallel
        whole = all(is_whole(self.folding[t.name], t) for t in self.sized)
        refuses = loop is not None and any(isinstance(s, If) for s in loop.body)
        # Threads that have no part in array totals are sent past the rows, and meet nobody.
        return loop is not None and whole and is_sheet(loop) and not (refuses and self.sized)

    @cached_property
    def strip_columns(self) -> int:
        """Columns that each lane of a warp has in registers; 0 if it does not march down strips."""
        return strips.width(self.kernel)

    @cached_property
    def strip_packs(self) -> bool:
        """Whether lanes of a strip load and store whole packs, if arrays begin with one."""
        return strips.in_packs(self.kernel, self.ints)

    @cached_property
    def pairs(self) -> tiles.PairFolds | None:
        """The parts of a kernel that folds pairs of rows."""
        return tiles.pair_folds(self.kernel)

    @cached_property
    def pair_columns(self) -> pair_columns.PairColumns | None:
        """The parts of a kernel that folds what it computes of pairs alone over rows."""
        return pair_columns.pair_columns(self.kernel)

    @cached_property
    def resident(self) -> ResidentRows | None:
        """The kernel with its rows in registers."""
        return resident_rows(self.kernel)

    @cached_property
    def fetched(self) -> FetchedRows | None:
        """The rows that it can fetch into shared memory."""
        return fetched_rows(self.kernel)

    @cached_property
    def replacing(self) -> Replacing | None:
        """The kernel with values in place of fetched rows."""
        return None if self.fetched is None else replacing(self.kernel, self.fetched)
