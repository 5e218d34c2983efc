"""Which loops of one thread run in strips of lanes: those with which memory is best walked through.

The cost of a nest is about the number of times that memory is come to, by how far apart the
elements of two lanes are; what a launch's integers are says how long loops are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from adarray.compiler.ir.loopir import Apply, Assign, For
from adarray.compiler.ir.threads import (
    Stmt,
    ThreadKernel,
    all_statements,
    inside,
    reads,
    with_bodies,
)
from adarray.kernels import build
from adarray.kernels.nests import Loop, Nests, summed
from adarray.kernels.strips import Legality, Strips
from adarray.kernels.types import FLOATS

_LEAST = 8  # iterations of a loop of vectors
_GAIN = 0.9  # part of the cost that is left, at most, where a loop becomes strips
_SLOW = {"divide": 5.0, "sqrt": 6.0}
_FUNCTION = 20.0


def _is_cheap(name: str) -> bool:
    return name in build.COMPARISONS or name in (
        "add", "subtract", "multiply", "negative", "where", "cast", "minimum", "maximum",
        "absolute", "logical_and", "logical_or", "logical_not",
    )  # fmt: skip


class Choice:
    """Chooses the loops that become strips: those with which memory is best walked through."""

    def __init__(self, body: tuple[Stmt, ...], integers: Mapping[str, int]) -> None:
        self.nests = Nests(body, integers)
        self.chosen: dict[int, Strips | None] = {}
        self._legal: dict[int, Legality | None] = {}

    def _legality(self, loop: Loop) -> Legality | None:
        key = id(loop)
        if key not in self._legal:
            fits = loop.trips >= _LEAST
            legality = Legality(self.nests, loop) if fits else None
            holds = legality is not None and legality.holds()
            self._legal[key] = legality if holds else None
        return self._legal[key]

    def best(self, body: Iterable[Stmt]) -> float:
        """Return the cost of statements, with the best choice of loops below them."""
        return sum(map(self._best, body))

    def _best(self, s: Stmt) -> float:
        if not isinstance(s, For):
            return self._own(s, None) + sum(map(self.best, inside(s)))
        loop = self.nests.loops[id(s)]
        inner = loop.trips * self.best(s.body)
        innermost = not any(isinstance(t, For) for t in all_statements(s.body))
        if innermost and s.kind == "vector":
            self.chosen[id(s)] = None
            return loop.trips * self._strided(s.body, loop)
        if loop.trips < _LEAST:
            return inner
        across = loop.trips * self._strided(s.body, loop)
        if across < _GAIN * inner:
            legality = self._legality(loop)
            if legality is not None:
                for t in all_statements(s.body):
                    self.chosen.pop(id(t), None)
                self.chosen[id(s)] = Strips(legality)
                return across
        return inner

    def _strided(self, body: Iterable[Stmt], loop: Loop) -> float:
        """Return the cost of statements for a lane of strips of a loop."""
        cost = 0.0
        for s in body:
            cost += self._own(s, loop)
            times = self.nests.loops[id(s)].trips if isinstance(s, For) else 1.0
            for part in inside(s):
                cost += times * self._strided(part, loop)
        return cost

    def _own(self, s: Stmt, lanes: Loop | None) -> float:
        """Return the cost of one statement itself, for one lane of strips of a loop if given."""
        cost = 0.0
        for a in self.nests.accesses.get(id(s), ()):
            if lanes is None:
                innermost = a.loops[-1] if a.loops else None
                waits = a.writes and a.sums and innermost and a.stride(innermost) == 0
                far = abs(a.stride(innermost) or 0) > 8 if innermost else False
                cost += 1.0 + (3.0 if waits else 0.0) + (0.5 if far else 0.0)
                continue
            step = a.stride(lanes)
            cost += 1.6 if step is None or abs(step) > 1 else 0.15 if step == 0 else 0.25
            cost += 0.3 if a.writes and a.sums and step == 0 else 0.0
        for e in reads(s):
            if isinstance(e, Apply) and e.dtype in FLOATS:
                plain = 0.5 if lanes is None else 0.12
                slow = _SLOW.get(e.name, _FUNCTION) * (1.0 if lanes is None else 0.5)
                cost += plain if _is_cheap(e.name) else slow
        if isinstance(s, Assign) and lanes is None:
            cost += 2.0
        return cost


class _Rewriting:
    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.count = 0

    def block(self, body: Iterable[Stmt]) -> list[Stmt]:
        out: list[Stmt] = []
        for s in body:
            strips = self.choice.chosen.get(id(s))
            if strips is not None:
                self.count += 1
                out += strips.written(self.count)
            else:
                out.append(with_bodies(s, self.block))
        return out


def in_strips(body: tuple[Stmt, ...], integers: Mapping[str, int]) -> tuple[Stmt, ...]:
    """Return statements of one thread with loops in strips, where that is faster.

    Parameters
    ----------
    body : tuple of Stmt
        Of one thread of a processor; names are declared once.
    integers : mapping of str to int
        Parameters that are known.
    """
    original, body = body, summed(body)
    choice = Choice(body, integers)
    choice.best(body)
    if not any(x is not None for x in choice.chosen.values()):
        return original
    return tuple(_Rewriting(choice).block(body))


def arranged(kernel: ThreadKernel, integers: Mapping[str, int]) -> ThreadKernel:
    """Return a kernel for one thread of a processor whose loops are in strips."""
    body = in_strips(kernel.body, integers)
    return kernel if body is kernel.body else replace(kernel, body=body)
