"""Where threads of a group must wait for each other: before which statements of a kernel.

A statement waits if it touches memory that others of the group may still be writing, or
writes what they may still be reading, since they last waited. Loops are gone through until
what an iteration leaves behind changes nothing in the next one.

References
----------
- M. F. P. O'Boyle, E. A. Stöhr, "Compile time barrier synchronization minimization", IEEE Trans.
  Parallel Distrib. Syst. 13 (2002), 529-543.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from adarray.compiler.ir.affine import ONE, ZERO, at, slope
from adarray.compiler.ir.identity import IdentityMap, IdentitySet
from adarray.compiler.ir.loopir import Expr, For, If, Let, Stmt, Store

Body = tuple[Stmt, ...]
Touches = Callable[[Body], tuple[set[str], set[str]]]
# Where a loop that wrote to neighbouring places began to, and how far it came.
Stretch = tuple[Expr, Expr]
# Rounds after which a loop that does not settle begins with a wait.
ROUNDS = 4


def waits(
    body: Body, touches: Touches, homes: Mapping[str, str], written: Iterable[str]
) -> IdentitySet[Stmt]:
    """Return the statements before which threads wait.

    Parameters
    ----------
    body : tuple of statements
    touches : callable
        Returns what statements read and write, of the memory that threads share.
    homes : mapping
        Name of the memory that an array takes, by the array's name.
    written : iterable of str
        What was written before.
    """
    walk = _Waits(touches, homes, written)
    walk.block(body)
    return walk.before


class _Waits:
    def __init__(self, touches: Touches, homes: Mapping[str, str], written: Iterable[str]) -> None:
        self._touches = touches
        self._known: IdentityMap[Stmt, tuple[set[str], set[str]]] = IdentityMap()
        self.homes = homes
        self.before: IdentitySet[Stmt] = IdentitySet()
        self.read: set[str] = set()
        # With the stretch of the last loop where all so far wrote one after the other.
        self.written: dict[str, Stretch | None] = dict.fromkeys(written)

    def touches(self, s: Stmt) -> tuple[set[str], set[str]]:
        """Return what a statement, and those in it, read and write."""
        touched = self._known.get(s)
        if touched is None:
            touched = self._known[s] = self._touches((s,))
        return touched

    def block(self, body: tuple[Stmt, ...]) -> None:
        """Go through statements."""
        for s in body:
            if isinstance(s, If):
                self._branch(s)
            elif isinstance(s, For) and s.kind != "vector":
                self._loop(s)
            else:
                self._statement(s)

    def _wait(self, s: Stmt) -> None:
        self.before.add(s)
        self.read = set()
        self.written = {}

    def _conflict(self, s: Stmt) -> bool:
        read, written = self.touches(s)
        if read & self.written.keys() or written & self.read:
            return True
        again = written & self.written.keys()
        return any(self._next(s, name) is None for name in again)

    def _next(self, s: Stmt, name: str) -> Stretch | None:
        """Return the stretch that a loop writes, if it goes on where the last one ended."""
        mine, last = self._stretch(s, name), self.written[name]
        if mine is None or last is None or not isinstance(s, For):
            return None
        return mine if mine[0] == last[0] and s.start == last[1] else None

    def _stretch(self, s: Stmt, name: str) -> Stretch | None:
        if not isinstance(s, For):
            return None
        lets = {x.name: x.value for x in s.body if isinstance(x, Let)}
        stores = [
            x for x in s.body if isinstance(x, Store) and self.homes.get(x.buffer, x.buffer) == name
        ]
        if len(stores) != 1 or name not in self.touches(stores[0])[1]:
            return None
        index = stores[0].index
        others = self._touches(tuple(x for x in s.body if x is not stores[0]))
        if name in others[0] or name in others[1] or slope(index, s.var, lets) != ONE:
            return None
        return at(index, s.var, ZERO, lets), s.stop

    def _statement(self, s: Stmt) -> None:
        if s in self.before or self._conflict(s):
            self._wait(s)
        read, written = self.touches(s)
        self.read |= read
        for name in written:
            self.written[name] = self._stretch(s, name)

    def _branch(self, s: If) -> None:
        """Wait before a branch for all that is in it: nobody waits in one that is not taken."""
        if s in self.before or self._conflict(s):
            self._wait(s)
        read, written = self.read, dict(self.written)
        read |= self._touches((Let("", s.condition),))[0]
        for body in (s.body, s.orelse):
            self.read, self.written = set(read), dict(written)
            self.block(body)
            read |= self.read
            written = self._both(written)
        self.read, self.written = read, written

    def _both(self, other: dict[str, Stretch | None]) -> dict[str, Stretch | None]:
        """Return what was written in either of two ways."""
        both: dict[str, Stretch | None] = dict.fromkeys(self.written.keys() | other.keys())
        same = (n for n in self.written.keys() & other.keys() if self.written[n] == other[n])
        both.update((n, self.written[n]) for n in same)
        return both

    def _loop(self, s: For) -> None:
        read, written = set(self.read), dict(self.written)
        for number in range(ROUNDS):
            begin = set(self.read), dict(self.written)
            count = len(self.before)
            self.block(s.body)
            self.read |= read
            self.written = self._both(written)
            settled = len(self.before) == count and begin == (self.read, self.written)
            if settled and number:
                return
        if s.body:
            self.before.add(s.body[0])
