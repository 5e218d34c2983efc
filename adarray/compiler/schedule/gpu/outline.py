"""What a printer needs to know of each statement of a kernel: decided here, obeyed there.

An outline depends on a kernel and its schedule alone. It names statements by identity: equal ones
may stand at several places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, assert_never

from adarray.compiler.ir.affine import ZERO
from adarray.compiler.ir.identity import IdentityMap, IdentitySet
from adarray.compiler.ir.loopir import (
    Expr,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Stmt,
    Store,
    Total,
    Var,
    statements,
    walk,
)
from adarray.compiler.ir.verify_loops import checking, verify
from adarray.compiler.schedule.gpu.choose import LARGEST, MARCHING
from adarray.compiler.schedule.gpu.group_loops import GroupLoop, GroupLoops, OneByOne, OneEach
from adarray.compiler.schedule.gpu.loops import homes, running
from adarray.compiler.schedule.gpu.memory import has_arrays, is_merged, merge_bytes, shared_names
from adarray.compiler.schedule.gpu.row_values import ROW_VALUES
from adarray.compiler.schedule.gpu.scalars import ScalarChoices, applied, scalar_choices
from adarray.compiler.schedule.gpu.schedules import (
    ColumnFolds,
    ColumnStrips,
    DeviceScan,
    FlatLoops,
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    Schedule,
    SharedRows,
    SheetRows,
    SingleBlock,
    Tiles,
)
from adarray.compiler.schedule.gpu.shared_rows import FetchedRows
from adarray.compiler.schedule.gpu.strip_loops import StripLoop, strip_loop
from adarray.compiler.schedule.gpu.waits import Body, waits
from adarray.compiler.schedule.vectors import expressions

UNROLLED = 40  # statements of a sheet's row, up to which several are begun at once
REGISTERS = 40  # statements, whose values few registers hold
LINED = 4  # warps for each scheduler that take strips of a line
TOGETHER = {1: 2048, 2: 2048, 3: 1536}  # threads of an SM, by arrays that are moved


class TotalPart(NamedTuple):
    """A total, and what threads have of it.

    Parameters
    ----------
    total : Total
    where : {"number", "row", "sheet", "shared", "workspace"}
        In registers: a number, the elements of a register-resident row, or some of a sheet's; or an
        array in shared memory, or in the workspace, for those that share a row.
    is_merged : bool
        Whether blocks combine what their groups have.
    width : int
        Elements that a thread of a sheet has side by side.
    """

    total: Total
    where: str
    is_merged: bool
    width: int = 1


@dataclass(frozen=True)
class ArrayPlaces:
    """Where arrays are, and how they are written.

    Parameters
    ----------
    arrays : mapping of str to str
        Dtypes of local arrays.
    homes : mapping of str to str
        The local array whose memory each takes.
    places : IdentityMap of Total and Local to int
        Numbers of totals and local arrays.
    placed : tuple of Total and Local
        Those that have room in shared memory or in the workspace, in their order.
    shared : frozenset of str
        Those that lie in shared memory.
    stores : mapping of str to str
        How packs are stored, by array: ``"_near"`` to shared memory, ``"_past"`` the caches,
        ``"_only"`` what nobody reads; others as usual.
    merged : frozenset of str
        Array totals of which blocks combine what their groups have.
    merge_bytes : int
        Of shared memory in which blocks combine array totals.
    """

    arrays: Mapping[str, str]
    homes: Mapping[str, str]
    places: IdentityMap[Total | Local, int]
    placed: tuple[Total | Local, ...]
    shared: frozenset[str]
    stores: Mapping[str, str]
    merged: frozenset[str]
    merge_bytes: int


@dataclass(frozen=True)
class Outline:
    """How one kernel is printed.

    Parameters
    ----------
    schedule : Schedule
    kernel : Kernel
        As it is printed: rows in registers or in shared memory are arrays of its own.
    body : tuple of statements
        What this kernel runs of it.
    rows : FetchedRows or None
        What it fetches.
    memory : ArrayPlaces
    scalars : ScalarChoices
    is_careful : bool
        Whether a function tells of rare operands.
    loops : IdentityMap of For to GroupLoop
        How vector loops are shared.
    strips : IdentityMap of For to StripLoop
        The same where warps march down strips.
    running : IdentityMap of For to (Fold, Store)
        Serial loops that store what they have folded so far, which threads share.
    streaming : IdentitySet of For
        Other such loops, which one thread runs: several loads at once.
    begun : IdentityMap of For to int
        Other serial loops whose iterations need nothing of each other: how many of them a thread
        begins at once.
    waits : IdentitySet of statements
        Statements before which threads of a group wait for each other.
    totals : tuple of TotalPart
    joint : bool
        Whether the block that is last combines numbers along with array totals.
    far : bool
        Whether array totals of blocks are combined by a kernel of its own.
    separate : tuple of TotalPart
        What a kernel of its own combines.
    unroll : int
        Rows of a sheet that a thread begins at once; 0 for one after the other.
    lanes : Expr or None
        How many lanes of a sheet have a part in its rows, if that is always the same: nothing
        stands between the loads of several rows then, so they come together.
    resident : int
        Blocks that are to reside on an SM at least; 0 for as many as do.
    """

    schedule: Schedule
    kernel: Kernel
    body: Body
    rows: FetchedRows | None
    memory: ArrayPlaces
    scalars: ScalarChoices
    is_careful: bool
    loops: IdentityMap[For, GroupLoop]
    strips: IdentityMap[For, StripLoop]
    running: IdentityMap[For, tuple[Fold, Store]]
    streaming: IdentitySet[For]
    begun: IdentityMap[For, int]
    waits: IdentitySet[Stmt]
    totals: tuple[TotalPart, ...]
    joint: bool
    far: bool
    separate: tuple[TotalPart, ...]
    unroll: int
    lanes: Expr | None
    resident: int


def outlined(schedule: Schedule) -> tuple[Outline, Outline | None]:
    """Return the outlines of a kernel, and of what stands behind its parallel loop."""
    kernel, rows = _printed(schedule)
    if checking():
        _verify(schedule, kernel)
    where = [i for i, s in enumerate(kernel.body) if isinstance(s, For) and s.kind == "parallel"]
    before = kernel.body[: where[0] + 1] if where else kernel.body
    after = kernel.body[where[0] + 1 :] if where else ()
    main = _Outliner(schedule, kernel, rows).outline(before, kernel.totals)
    if not after:
        return main, None
    alone = SingleBlock(schedule.facts, schedule.block, narrow=False)
    lets = tuple(s for s in before if isinstance(s, Let))
    return main, _Outliner(alone, kernel, None).outline((*lets, *after), ())


def _printed(schedule: Schedule) -> tuple[Kernel, FetchedRows | None]:
    """Return a kernel as it is printed, and what it fetches."""
    if isinstance(schedule, RegisterRows):
        return schedule.rows.kernel, None
    if not isinstance(schedule, SharedRows):
        return schedule.facts.kernel, None
    changed = schedule.facts.replacing if schedule.replaces else None
    return (schedule.facts.kernel, schedule.rows) if changed is None else changed


def _verify(schedule: Schedule, kernel: Kernel) -> None:
    """Check a kernel, and what a schedule made of it: arrays in registers count as parameters."""
    verify(schedule.facts.kernel)
    arrays: dict[str, str] = {}
    match schedule:
        case RegisterRows():
            arrays = schedule.rows.arrays
        case SharedRows() if schedule.replaces:
            arrays = {ROW_VALUES: schedule.rows.sources[0].dtype}
        case _:
            return
    own = tuple(Param(name, dtype, "inout") for name, dtype in arrays.items())
    name = "register_rows" if isinstance(schedule, RegisterRows) else "row_values"
    verify(replace(kernel, buffers=(*kernel.buffers, *own)), name)


class _Outliner:
    """Makes the outline of one kernel."""

    def __init__(self, schedule: Schedule, kernel: Kernel, rows: FetchedRows | None) -> None:
        self.schedule = schedule
        self.kernel = kernel
        self.rows = rows
        self.statements = list(statements(kernel.body))
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}
        facts = schedule.facts
        self.homes = facts.homes if kernel is facts.kernel else homes(kernel)
        locals_ = [s for s in self.statements if isinstance(s, Local) and s.size is not None]
        self.locals = locals_
        # What threads of a group share, but for buffers.
        self.shared = {s.name for s in locals_}
        if not isinstance(schedule, RegisterRows):
            self.shared |= {t.name for t in kernel.totals if t.size is not None}
        self.once = self._once()
        self.apart = self.once & self._stored_in_rows()

    def outline(self, body: Body, totals: tuple[Total, ...]) -> Outline:
        """Return the outline of what runs `body`, and combines `totals`."""
        schedule, kernel = self.schedule, self.kernel
        computed = applied(self.statements)
        scalars = scalar_choices(self.statements, computed, isinstance(schedule, RegisterRows))
        is_careful = any(scalars.careful(e) for e in computed)
        memory = self._memory()
        parts = tuple(map(self._part, totals))
        far = _is_far(schedule)
        separate = tuple(
            p
            for p in map(self._part, kernel.totals)
            if p.total.size is not None and (far or not p.is_merged)
        )
        by_rows = isinstance(schedule, RowsByWarp | RowsByBlock | SharedRows | RegisterRows)
        running_, streaming = self._running(body)
        waits_ = self._waits(body, parts)
        loops = self._loops(body, memory, scalars)
        return Outline(
            schedule, kernel, body, self.rows, memory, scalars, is_careful,
            loops, self._strips(body), running_, streaming, self._begun(body, loops, waits_),
            waits_, parts,
            joint=by_rows and not far and any(p.is_merged for p in parts), far=far,
            separate=separate, unroll=self._unroll(body), lanes=self._lanes(body),
            resident=self._resident(is_careful),
        )  # fmt: skip

    # -- memory ----------------------------------------------------------------------------

    def _touches(self, body: Body, shared: set[str]) -> tuple[set[str], set[str]]:
        """Return the memory that statements read and write, of that which threads share."""
        read, written = set(), set()
        for s in statements(body):
            for e in expressions(s):
                read |= {x.buffer for x in walk(e) if isinstance(x, Load)}
            if isinstance(s, Store):
                written.add(s.buffer)
            elif isinstance(s, Fold) and s.index is not None and s.target not in self.outs:
                written.add(s.target)
                read.add(s.target)
        return (
            {self.homes.get(n, n) for n in read & shared},
            {self.homes.get(n, n) for n in written & shared},
        )

    def touches(self, body: Body) -> tuple[set[str], set[str]]:
        """Return what statements read and write, where threads must wait for each other."""
        return self._touches(body, self.shared | (self.outs - self.apart))

    def _once(self) -> set[str]:
        """Return the buffers that one statement writes, and none reads."""
        stored = [s.buffer for s in self.statements if isinstance(s, Store)]
        read = self._touches(self.kernel.body, self.shared | self.outs)[0]
        return {n for n in self.outs if stored.count(n) == 1} - read

    def _stored_in_rows(self) -> set[str]:
        """Return the buffers that vector loops write in the parallel loop, each element once.

        Iterations of the parallel loop are independent; so are those of a vector loop. Serial loops
        between both may write an element again, as may threads that share one statement.
        """
        loops = tuple(s for s in self.kernel.body if isinstance(s, For) and s.kind == "parallel")
        inner = [x for s in loops for x in s.body if isinstance(x, For) and x.kind == "vector"]
        apart = {x.buffer for s in inner for x in s.body if isinstance(x, Store)}
        inner = [x for x in statements(loops) if isinstance(x, For) and x.kind == "vector"]
        nested = {x.buffer for s in inner for x in s.body if isinstance(x, Store)}
        return apart | (nested & self.schedule.apart)

    def _memory(self) -> ArrayPlaces:
        schedule, totals = self.schedule, self.kernel.totals
        names = shared_names(schedule)
        shared = frozenset(n for n, home in self.homes.items() if home in names)
        arrays = {s.name: s.dtype for s in self.locals}
        if isinstance(schedule, RegisterRows):
            arrays |= schedule.rows.arrays
        if self.rows is not None and isinstance(schedule, SharedRows) and schedule.replaces:
            arrays[ROW_VALUES] = self.rows.sources[0].dtype
        past = {b.name for b in self.kernel.buffers if b.stream}
        stores = {n: "_past" if n in past else "_only" for n in self.once}
        stores |= dict.fromkeys(shared, "_near")
        sized: tuple[Total | Local, ...] = (*totals, *self.locals)
        places = IdentityMap((x, i) for i, x in enumerate(sized))
        placed: tuple[Total | Local, ...] = totals
        if has_arrays(schedule):
            placed += tuple(s for s in self.locals if self.homes[s.name] == s.name)
        merged = frozenset(t.name for t in totals if is_merged(schedule, t))
        return ArrayPlaces(
            arrays, self.homes, places, placed, shared | names, stores, merged,
            merge_bytes(schedule),
        )  # fmt: skip

    def _part(self, t: Total) -> TotalPart:
        """Return what threads have of a total."""
        schedule = self.schedule
        if t.size is None:
            return TotalPart(t, "number", is_merged=False)
        if isinstance(schedule, RegisterRows):
            return TotalPart(t, "row", is_merged=True)
        if isinstance(schedule, SheetRows):
            return TotalPart(t, "sheet", is_merged=True, width=schedule.total_width(t))
        if isinstance(schedule, ColumnFolds):
            return TotalPart(t, "sheet", is_merged=True, width=schedule.width)
        where = "shared" if t.name in shared_names(schedule) else "workspace"
        return TotalPart(t, where, is_merged(schedule, t))

    # -- loops -----------------------------------------------------------------------------

    def _loops(
        self, body: Body, memory: ArrayPlaces, scalars: ScalarChoices
    ) -> IdentityMap[For, GroupLoop]:
        """Return how vector loops are shared."""
        if isinstance(self.schedule, ColumnStrips | Tiles | ColumnFolds):
            return IdentityMap()
        lets = {s.name: s.value for s in self.statements if isinstance(s, Let)}
        chooser = GroupLoops(
            self.schedule, self.kernel, self.rows, self.touches, memory.arrays, lets, scalars
        )
        return IdentityMap((s, chooser.of(s)) for s in _vectors(body))

    def _strips(self, body: Body) -> IdentityMap[For, StripLoop]:
        """Return what lanes do in vector loops."""
        if not isinstance(self.schedule, ColumnStrips):
            return IdentityMap()
        rows = frozenset(s.name for s in self.locals)
        return IdentityMap((s, strip_loop(s, rows)) for s in _vectors(body))

    def _running(self, body: Body) -> tuple[IdentityMap[For, tuple[Fold, Store]], IdentitySet[For]]:
        """Return running folds: those that threads share, and others."""
        loops = (s for s in statements(body) if isinstance(s, For) and s.kind == "serial")
        parts = IdentityMap((s, r) for s in loops if (r := running(s)) is not None)
        if self._has_groups():
            return parts, IdentitySet()
        return IdentityMap(), IdentitySet(parts)

    def _begun(
        self, body: Body, loops: IdentityMap[For, GroupLoop], waits_: IdentitySet[Stmt]
    ) -> IdentityMap[For, int]:
        """Return the serial loops of which threads begin several iterations at once.

        They would wait for memory in each of them, but for those of long vector loops.
        """
        if not isinstance(self.schedule, RowsByWarp):
            return IdentityMap()
        begun: IdentityMap[For, int] = IdentityMap()
        for s in statements(body):
            if not isinstance(s, For) or s.kind != "serial" or running(s) is not None:
                continue
            inside = list(statements(s.body))
            vectors = [x for x in inside if isinstance(x, For) and x.kind == "vector"]
            if len(inside) > UNROLLED or any(x in waits_ for x in inside) or not vectors:
                continue
            if len(vectors) == sum(isinstance(x, For) for x in inside) and all(
                isinstance(loops[x].sharing, OneEach | OneByOne) and not loops[x].accumulators
                for x in vectors
            ):
                begun[s] = 8 if 2 * len(inside) <= UNROLLED else 4
        return begun

    def _has_groups(self) -> bool:
        """Whether threads of a group share rows, and wait for each other."""
        match self.schedule:
            case FlatLoops() | SheetRows() | ColumnStrips() | Tiles() | ColumnFolds():
                return False
            case SingleBlock() | DeviceScan() | RowsByWarp() | RowsByBlock():
                return self.schedule.group > 1
            case SharedRows() | RegisterRows():
                return True
            case _:
                assert_never(self.schedule)

    def _waits(self, body: Body, parts: tuple[TotalPart, ...]) -> IdentitySet[Stmt]:
        """Return the statements before which threads wait."""
        if not self._has_groups():
            return IdentitySet()
        begun = [p.total.name for p in parts if p.where in ("shared", "workspace")]
        return waits(body, self.touches, self.homes, begun)

    def _unroll(self, body: Body) -> int:
        """Return how many rows of a sheet are begun at once."""
        if not isinstance(self.schedule, SheetRows) or not self.schedule.facts.sized:
            return 0
        loop = next(s for s in body if isinstance(s, For) and s.kind == "parallel")
        count = sum(1 for _ in statements(loop.body))
        return 0 if count > UNROLLED else 8 if 2 * count <= UNROLLED else 4

    def _lanes(self, body: Body) -> Expr | None:
        """Return how many lanes of a sheet have a part in its rows, if that is always the same."""
        schedule = self.schedule
        if not isinstance(schedule, SheetRows):
            return None
        sized = schedule.facts.sized
        if not sized or any(schedule.total_width(t) > 1 for t in sized):
            return None
        loop = next(s for s in body if isinstance(s, For) and s.kind == "parallel")
        loops = [x for x in loop.body if isinstance(x, For)]
        ends = {x.stop for x in loops}
        if len(ends) > 1 or any(x.start != ZERO for x in loops):
            return None
        names = {t.name for t in sized}
        resident = all(
            any(isinstance(y, Fold) and y.index is not None and y.target in names for y in x.body)
            for x in loops
        )
        (end,) = ends
        known = isinstance(end, Var) and end.name in self.kernel.ints
        return end if resident and known else None

    def _resident(self, is_careful: bool) -> int:
        """Return how many blocks are to reside on an SM at least.

        Where nothing branches, the elements of a pack are computed side by side, in so many
        registers that too few threads are there to wait for memory: 245 us became 281.
        """
        s = self.schedule
        if s.block == LARGEST:  # it fills an SM: more registers do not cost it a neighbour
            return 1
        match s:
            case SharedRows():
                return max(1, LARGEST // s.block)
            case RegisterRows():
                return s.resident
            case ColumnStrips():  # two warps for each scheduler march, as planning has it
                return (2 if s.marching else LINED) * MARCHING // s.block
            case FlatLoops() if is_careful and len(self.statements) <= REGISTERS:
                moved = len(self.kernel.buffers) - len(self.kernel.totals)
                return TOGETHER.get(moved, 0) // s.block
            case (
                FlatLoops()
                | SingleBlock()
                | DeviceScan()
                | RowsByWarp()
                | RowsByBlock()
                | SheetRows()
                | Tiles()
                | ColumnFolds()
            ):
                return 0
            case _:
                assert_never(s)


def _vectors(body: Body) -> list[For]:
    return [s for s in statements(body) if isinstance(s, For) and s.kind == "vector"]


def _is_far(s: Schedule) -> bool:
    rows = RowsByWarp | RowsByBlock | SharedRows | RegisterRows | ColumnFolds
    return isinstance(s, rows) and s.far
