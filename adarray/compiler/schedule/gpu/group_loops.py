"""How the threads of a group share a vector loop: what they move in packs, fold, and wait for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from adarray.compiler.ir.affine import ZERO, at, slope, terms
from adarray.compiler.ir.identity import IdentitySet
from adarray.compiler.ir.loopir import Expr, Fold, For, Kernel, Let, Load, Store, walk
from adarray.compiler.scalars.dtypes import SIZES
from adarray.compiler.schedule.gpu.loops import LONG, PACK, WARP, scattered, walks
from adarray.compiler.schedule.gpu.row_values import ROW_VALUES
from adarray.compiler.schedule.gpu.scalars import ScalarChoices
from adarray.compiler.schedule.gpu.schedules import (
    RegisterRows,
    RowsByBlock,
    RowsByWarp,
    Schedule,
    SharedRows,
    SheetRows,
    SingleBlock,
)
from adarray.compiler.schedule.gpu.shared_rows import FetchedRows
from adarray.compiler.schedule.gpu.waits import Body
from adarray.compiler.schedule.vectors import expressions, longest

SHORT = 24  # statements of a loop that is printed once more, for operands off alignment
MANY = 1 << 20  # warps of a sheet, which are never told apart


class PackAccess(NamedTuple):
    """What a vector loop loads, stores or folds into at neighbouring places.

    Parameters
    ----------
    kind : {"load", "store", "fold"}
    dtype : str
    access : Load, Store or Fold
    """

    kind: str
    dtype: str
    access: Load | Store | Fold


@dataclass(frozen=True)
class FirstThread:
    """One thread makes all iterations: several may fold into one element."""


@dataclass(frozen=True)
class OneEach:
    """Each thread makes one iteration at most."""


@dataclass(frozen=True)
class OwnWarp:
    """The loop has one iteration: one thread makes it, `offset` threads before the last."""

    offset: int


@dataclass(frozen=True)
class OneByOne:
    """Neighbouring threads make neighbouring iterations.

    Parameters
    ----------
    unroll : int
        Iterations that a thread begins at once; 0 for as many as the compiler likes.
    """

    unroll: int = 0


@dataclass(frozen=True)
class Packs:
    """Threads make packs of neighbouring iterations.

    Parameters
    ----------
    width : int
        Iterations of a pack.
    anchors : tuple of (int, int)
        For each thing that is moved, the number of the one that it lies beside, and by how many
        elements; what has no such neighbour is its own.
    askew : bool
        Whether operands may be aligned where others are not, and the loop is short enough to be
        printed once more for that.
    by_element : bool
        Whether operands are loaded one by one: they may be aligned where others are not, and hardly
        ever are, and the loop is too long to be printed twice.
    """

    width: int
    anchors: tuple[tuple[int, int], ...]
    askew: bool
    by_element: bool = False


@dataclass(frozen=True)
class FetchedPacks:
    """Threads read the packs that they have in shared memory.

    Parameters
    ----------
    sources : tuple of int or None
        For each thing that is moved, the number of the fetched array whose slots it is in.
    first, last : bool
        Whether it is the first loop over a row, and the last one.
    """

    sources: tuple[int | None, ...]
    first: bool
    last: bool


@dataclass(frozen=True)
class ResidentPacks:
    """Threads go over the packs that they have in registers."""


Sharing = FirstThread | OneEach | OwnWarp | OneByOne | Packs | FetchedPacks | ResidentPacks


@dataclass(frozen=True)
class GroupLoop:
    """How a group shares a vector loop.

    Parameters
    ----------
    sharing : Sharing
    moved : tuple of PackAccess
        What packs hold.
    accumulators : tuple of Fold
        Folds into one place, of which each thread has a part.
    resident : tuple of Fold
        Folds into array totals that threads of a sheet have in registers.
    repeats : tuple of Fold or None
        What is set back where a pack is computed twice, as functions of rare operands require;
        None if no pack is.
    """

    sharing: Sharing
    moved: tuple[PackAccess, ...] = ()
    accumulators: tuple[Fold, ...] = ()
    resident: tuple[Fold, ...] = ()
    repeats: tuple[Fold, ...] | None = None


class GroupLoops:
    """Decides how vector loops are shared, one after the other in the order of the text.

    Parameters
    ----------
    schedule : Schedule
    kernel : Kernel
        As it is printed.
    rows : FetchedRows or None
        What it fetches.
    touches : callable
        Returns what statements read and write, of the memory that threads share.
    arrays : mapping
        Dtypes of local arrays.
    lets : mapping
        Values of names, wherever they are bound.
    scalars : ScalarChoices
    """

    def __init__(
        self, schedule: Schedule, kernel: Kernel, rows: FetchedRows | None,
        touches: Callable[[Body], tuple[set[str], set[str]]], arrays: Mapping[str, str],
        lets: Mapping[str, Expr], scalars: ScalarChoices,
    ) -> None:  # fmt: skip
        self.schedule = schedule
        self.kernel = kernel
        self.rows = rows
        self.touches = touches
        self.dtypes = {b.name: b.dtype for b in kernel.buffers} | dict(arrays)
        self.lets = dict(lets)
        self.scalars = scalars
        self.outs = {b.name for b in kernel.buffers if b.access != "in"}
        self.numbers = {t.name for t in kernel.totals if t.size is None}
        self.sized = {t.name for t in kernel.totals if t.size is not None}
        # Array totals of a sheet are in registers.
        self.resident = self.sized if isinstance(schedule, SheetRows) else set()
        self.borders = 0  # loops of one iteration so far

    def of(self, s: For) -> GroupLoop:
        """Return how a vector loop is shared."""
        if scattered(s, self.outs):
            return GroupLoop(FirstThread())
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        accumulators = self._accumulators(s, lets)
        moved = self._moved(s, lets)
        resident = tuple(
            x
            for x in s.body
            if isinstance(x, Fold) and x.index is not None and x.target in self.resident
        )
        sharing = self._sharing(s, moved, lets, resident)
        repeats = None
        if not (isinstance(sharing, FetchedPacks) and self._replaces()):
            repeats = self._repeats(s, moved, accumulators)
        return GroupLoop(sharing, moved, accumulators, resident, repeats)

    def _replaces(self) -> bool:
        return isinstance(self.schedule, SharedRows) and self.schedule.replaces

    def _sharing(
        self,
        s: For,
        moved: tuple[PackAccess, ...],
        lets: dict[str, Expr],
        resident: tuple[Fold, ...],
    ) -> Sharing:
        schedule = self.schedule
        if isinstance(schedule, RegisterRows):
            return ResidentPacks()
        if isinstance(schedule, RowsByWarp) and schedule.one_each:
            return OneEach()
        if self._is_single(s) and not resident:
            return self._own_warp()
        fetched = self._fetched(s, moved)
        if fetched is not None:
            return fetched
        one_by_one = isinstance(schedule, RowsByWarp) and schedule.at_once
        width = 1 if one_by_one else self._width(s, moved, bool(resident))
        return self._packs(s, moved, lets, width) if width > 1 else OneByOne(self._unroll(s))

    def _unroll(self, s: For) -> int:
        """Return how many iterations a thread begins at once: it would wait in each of them."""
        schedule = self.schedule
        if not isinstance(schedule, RowsByWarp) or len(s.body) > LONG // 2:
            return 0
        at_once = schedule.at_once if len(s.body) <= SHORT else schedule.at_once // 2
        return at_once if at_once > 1 else 0

    def _is_single(self, s: For) -> bool:
        """Whether a loop has one iteration, which a warp of its own makes."""
        own = SingleBlock | RowsByBlock | SharedRows | SheetRows
        return isinstance(self.schedule, own) and s.var in self.schedule.single

    def _own_warp(self) -> OwnWarp:
        """Return another warp for each such loop, and none of those with most to do."""
        sheet = isinstance(self.schedule, SheetRows)
        warps = MANY if sheet else self.schedule.group // WARP
        offset = WARP * (self.borders % warps)
        self.borders += 1
        return OwnWarp(offset)

    def _fetched(self, s: For, moved: tuple[PackAccess, ...]) -> FetchedPacks | None:
        """Return how a loop goes over fetched rows; None if it reads none."""
        rows = self.rows
        if rows is None or not any(s is x for x in rows.inner):
            return None
        sources: list[int | None] = []
        for _, _, x in moved:
            number = rows.loads[s].get(x) if isinstance(x, Load) else None
            stores = isinstance(x, Store) and x.buffer == ROW_VALUES
            sources.append(0 if stores else number)
        return FetchedPacks(tuple(sources), s is rows.inner[0], s is rows.inner[-1])

    # -- what is moved and folded ----------------------------------------------------------

    def _accumulators(self, s: For, lets: dict[str, Expr]) -> tuple[Fold, ...]:
        """Return the folds into one place."""
        return tuple(
            x
            for x in s.body
            if isinstance(x, Fold)
            and x.target not in self.numbers
            and x.target not in self.outs
            and (x.index is None or slope(x.index, s.var, lets) == ZERO)
        )

    def _moved(self, s: For, lets: dict[str, Expr]) -> tuple[PackAccess, ...]:
        """Return the loads and stores of neighbouring elements of arrays, once each."""
        accesses: list[PackAccess] = []
        seen: set[Expr] = set()
        read, written = self.touches((s,))
        for x in s.body:
            for e in (y for root in expressions(x) for y in walk(root)):
                if (
                    isinstance(e, Load)
                    and e.buffer in self.dtypes
                    and e.buffer not in written
                    and e not in seen
                    and walks(e.index, s.var, lets)
                ):
                    seen.add(e)
                    accesses.append(PackAccess("load", self.dtypes[e.buffer], e))
            if isinstance(x, Store) and x.buffer in self.dtypes and walks(x.index, s.var, lets):
                stores = sum(isinstance(y, Store) and y.buffer == x.buffer for y in s.body)
                if x.buffer not in read and stores == 1:
                    accesses.append(PackAccess("store", self.dtypes[x.buffer], x))
            elif isinstance(x, Fold) and self._is_beside(x, s, lets):
                accesses.append(PackAccess("fold", x.value.dtype, x))
        return tuple(accesses)

    def _is_beside(self, x: Fold, s: For, lets: dict[str, Expr]) -> bool:
        """Whether iterations fold into neighbouring elements of an array total in memory."""
        if x.target not in self.sized or x.target in self.resident or x.index is None:
            return False
        uses = [y.target for y in s.body if isinstance(y, Fold)]
        uses += [e.buffer for y in s.body for root in expressions(y) for e in walk(root)
                 if isinstance(e, Load)]  # fmt: skip
        return uses.count(x.target) == 1 and walks(x.index, s.var, lets)

    def _repeats(
        self, s: For, moved: tuple[PackAccess, ...], accumulators: tuple[Fold, ...]
    ) -> tuple[Fold, ...] | None:
        """Return what an iteration changes but for what it stores in packs.

        None if it changes memory, or calls no function that asks for care: then no pack is
        computed twice.
        """
        if not any(
            self.scalars.careful(e) for x in s.body for r in expressions(x) for e in walk(r)
        ):
            return None
        stores = IdentitySet(m.access for m in moved)
        places = IdentitySet(accumulators)
        repeated = []
        for x in s.body:
            if isinstance(x, Fold) and (x in places or x.index is None):
                repeated.append(x)
            elif not isinstance(x, Let) and x not in stores:
                return None
        return tuple(repeated)

    # -- packs -----------------------------------------------------------------------------

    def _width(self, s: For, moved: tuple[PackAccess, ...], resident: bool) -> int:
        """Return how many iterations share the widest loads and stores; 1 in long bodies."""
        if resident and isinstance(self.schedule, SheetRows):
            widths = self.schedule.facts.total_widths
            return min(self.schedule.width, *(
                widths[x.target] for x in s.body if isinstance(x, Fold) and x.target in widths
            ))  # fmt: skip
        most = longest(s, {})
        if len(s.body) > LONG or (most is not None and most < 64):
            return 1
        return PACK // max((SIZES[m.dtype] for m in moved), default=PACK)

    def _packs(
        self, s: For, moved: tuple[PackAccess, ...], lets: dict[str, Expr], width: int
    ) -> Packs:
        """Return which loads and stores lie beside others.

        Of loads that differ by less than a pack, one is made in packs; neighbours take most
        of their elements from it.
        """
        known: dict[tuple[str, frozenset[tuple[Expr, int]]], list[tuple[int, int]]] = {}
        places = []
        for k, (_, _, x) in enumerate(moved):
            assert x.index is not None
            const, multiples = terms(at(x.index, s.var, ZERO, lets), self.lets)
            places.append((const, frozenset(multiples.items())))
            if isinstance(x, Load):
                known.setdefault((x.buffer, places[k][1]), []).append((const, k))
        askew = len({(c % width, rest) for c, rest in places}) > 1
        short = len(s.body) <= SHORT
        by_element = askew and not short and self.schedule.ragged
        wanted = {p[1]: p[0] for m, p in zip(moved, places, strict=True) if m.kind == "store"}
        slices = [(k, 0) for k in range(len(moved))]
        for (_, rest), family in known.items():
            # The one that is aligned where the result is, or else the one in the middle.
            middle = sorted(family)[len(family) // 2][0]
            goal = wanted.get(rest, min(wanted.values(), default=middle))
            if all((const - goal) % width for const, _ in family):
                goal = middle
            straight = [(const, k) for const, k in family if (const - goal) % width == 0]
            for const, k in family:
                near = [(c, a) for c, a in straight if 0 < abs(const - c) < width]
                if near:
                    slices[k] = (near[0][1], const - near[0][0])
        return Packs(width, tuple(slices), askew and short, by_element)
