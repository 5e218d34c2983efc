"""Computing values again at the end of a path instead of storing them from its beginning.

A guard ends a compiled segment, and what later segments read has to be stored.
The reverse walk of a loop reads many values of every iteration; most of them are cheap to
compute again from a few, together with what the walk computes anyway.

References
----------
- P. Briggs, K. D. Cooper, L. Torczon, "Rematerialization", PLDI 1992.
- A. Griewank, A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 12.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from adarray.base.recording import Call
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.jitting.shared.keys import call_key, symbols_in

if TYPE_CHECKING:
    from adarray.jitting.tree.tree import Path, PendingSegment

SMALL = 64  # elements of a value that costs nothing to store


def recomputed(part: PendingSegment, path: Path) -> list[Call]:
    """Return earlier calls of a path that are cheaper to run again in its last segment.

    Parameters
    ----------
    part : PendingSegment
        The last segment.
    path : Path

    Returns
    -------
    list of Call
        In their order; with them the segment reads fewer arrays than without.
    """
    before = _read(part.calls, path, part.first)
    stored = {n for n in before if n >= path.n_inputs and _size(path, n) > SMALL}
    if not stored:
        return []
    search = _Search(part, path, stored)
    for n in sorted(stored, reverse=True):
        search.take(n)
    pulled = [search.pulled[n] for n in sorted(search.pulled)]
    again = set(search.pulled)
    after = {n for n in _read([*pulled, *part.calls], path, part.first) if n not in again}
    return pulled if len(after) < len(before) else []


def _read(calls: list[Call], path: Path, first: int) -> set[int]:
    """Return the numbers of the values from before a segment that calls read."""
    numbers = (path.numbers[id(s)] for c in calls for s in symbols_in((c.args, c.params)))
    return {n for n in numbers if isinstance(n, int) and n < first}


def _size(path: Path, number: int) -> int:
    return math.prod(path.symbols[number].shape)


def _what(call: Call, path: Path) -> Hashable:
    key: Any = call_key(call, path.numbers)
    return (*key[:3],)


class _Search:
    """Finds values that can be computed from those that are stored anyway."""

    def __init__(self, part: PendingSegment, path: Path, stored: set[int]) -> None:
        self._path = path
        self._stored = stored
        self._limit = 64 + 4 * len(part.calls)
        self._own = {_what(c, path) for c in part.calls if c.op is not None and c.op.pointwise}
        self.pulled: dict[int, Call] = {}

    def take(self, number: int) -> None:
        """Compute value `number` again, if its operands are at hand, and do not store it."""
        path = self._path
        calls: dict[int, Call] = {}
        waiting = [number]
        while waiting:
            n = waiting.pop()
            at_hand = n in self._stored or n < path.n_inputs or _size(path, n) <= SMALL
            if n in self.pulled or n in calls or (n != number and at_hand):
                continue
            call = path.producers.get(n)
            if call is None or not self._is_free(call):
                return
            calls[n] = call
            if len(calls) + len(self.pulled) > self._limit:
                return
            operands = (path.numbers[id(s)] for s in symbols_in(call.args))
            waiting += [k for k in operands if isinstance(k, int)]
        self.pulled.update(calls)
        self._stored.discard(number)

    def _is_free(self, call: Call) -> bool:
        """Whether a call is cheap, or made by the segment itself."""
        op = call.op
        if op is None or not op.pointwise or call.params:
            return False
        f = FUNCTIONS.get(op.name)
        cheap = f is not None and not f.is_heavy  # as long as to read the result from memory
        return cheap or _what(call, self._path) in self._own
