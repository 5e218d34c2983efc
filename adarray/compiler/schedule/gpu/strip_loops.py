"""What lanes of a warp do in a vector loop, where rows are register-resident: see `strips`."""

from __future__ import annotations

from dataclasses import dataclass

from adarray.compiler.ir.affine import ZERO, at
from adarray.compiler.ir.loopir import Expr, For, Load, Store, integer, walk
from adarray.compiler.schedule.gpu import strips
from adarray.compiler.schedule.vectors import expressions


@dataclass(frozen=True)
class OwnRow:
    """A load from a row that lanes have, so many columns beside."""

    load: Load
    beside: int


@dataclass(frozen=True)
class Wrapped:
    """A load from an array, around whose ends indices go.

    Parameters
    ----------
    load : Load
    base : Expr
        Index of the first element of the row.
    first : Expr
        The column of the strip's first lane.
    count, own : Expr
        Columns after which indices go round, and those that the array has.
    """

    load: Load
    base: Expr
    first: Expr
    count: Expr
    own: Expr


@dataclass(frozen=True)
class LaneStore:
    """A store to a row that lanes have, or to an array, whose first column has index `first`."""

    store: Store
    first: Expr | None


@dataclass(frozen=True)
class StripLoop:
    """A vector loop: what lanes load, and where they store; all else is the same for all lanes."""

    loads: tuple[OwnRow | Wrapped, ...]
    stores: tuple[LaneStore, ...]


def strip_loop(s: For, rows: frozenset[str]) -> StripLoop:
    """Return what lanes do in a vector loop.

    Parameters
    ----------
    s : For
    rows : frozenset of str
        The local arrays.
    """
    lets, first = strips.fixed_lets(s), integer(strips.MARGIN)
    loads: dict[Load, OwnRow | Wrapped] = {}
    for e in (y for x in s.body for root in expressions(x) for y in walk(root)):
        if not isinstance(e, Load) or e in loads:
            continue
        name = strips.neighbours(e.index, s)
        if name is not None:
            start, count, own = strips.wrapped_names(s)[name]
            base = at(e.index, name, ZERO, lets)
            loads[e] = Wrapped(e, base, at(start, s.var, first, lets), count, own)
        elif e.buffer in rows:
            beside = strips.shift(e.index, s.var, lets)
            assert beside is not None
            loads[e] = OwnRow(e, beside)
    stores = tuple(
        LaneStore(x, None if x.buffer in rows else at(x.index, s.var, first, lets))
        for x in s.body
        if isinstance(x, Store)
    )
    return StripLoop(tuple(loads.values()), stores)
