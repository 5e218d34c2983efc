"""The functions of ``native/cpu/coloring.c`` in Python, where no C compiler was at hand.

References
----------
- A. R. Curtis, M. J. D. Powell, J. K. Reid, "On the estimation of sparse Jacobian matrices", IMA J.
  Appl. Math. 13 (1974), 117-119.
- A. H. Gebremedhin, F. Manne, A. Pothen, "What color is your Jacobian? Graph coloring for computing
  derivatives", SIAM Review 47 (2005), 629-705.
- A. H. Gebremedhin, A. Tarafdar, F. Manne, A. Pothen, "New acyclic and star coloring algorithms
  with application to computing Hessians", SIAM J. Sci. Comput. 29 (2007), 1042-1072.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np


def _lists(half: Any) -> list[list[int]]:
    start, at = half[0].tolist(), half[1].tolist()
    return [at[a:b] for a, b in itertools.pairwise(start)]


def _smallest(forbidden: set[int]) -> int:
    c = 0
    while c in forbidden:
        c += 1
    return c


def columns(rows: Any, down: Any, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Colour columns such that those that meet in a row differ."""
    across, along = _lists(rows), _lists(down)
    color = [-1] * order.size
    for v in order.tolist():
        color[v] = _smallest({color[w] for r in along[v] for w in across[r] if color[w] >= 0})
    return np.array(color, np.int32), max(color, default=-1) + 1


def smallest_last(rows: Any, down: Any) -> np.ndarray:
    """Return columns in the order in which each has the fewest neighbours before it."""
    across, along = _lists(rows), _lists(down)
    near = [{w for r in along[v] for w in across[r]} - {v} for v in range(len(along))]
    degree = {v: len(neighbours) for v, neighbours in enumerate(near)}
    order: list[int] = []
    while degree:
        v = min(degree, key=degree.__getitem__)
        del degree[v]
        order.append(v)
        for w in near[v] & degree.keys():
            degree[w] -= 1
    return np.array(order[::-1], np.int32)


def star(pattern: Any, order: np.ndarray) -> tuple[np.ndarray, int]:
    """Colour a symmetric pattern without diagonal such that paths of four have three colours."""
    near = _lists(pattern)
    color = [-1] * order.size
    for v in order.tolist():
        forbidden = {color[w] for w in near[v]}
        for w in near[v]:
            for x in near[w]:
                if x == v or color[x] < 0 or color[x] in forbidden:
                    continue
                if color[w] < 0 or any(y != w and color[y] == color[w] for y in near[x]):
                    forbidden.add(color[x])
        color[v] = _smallest(forbidden)
    return np.array(color, np.int32), max(color, default=-1) + 1


def acyclic(
    pattern: Any, edge: np.ndarray, edges: int, order: np.ndarray
) -> tuple[np.ndarray, int]:
    """Colour a symmetric pattern without diagonal such that cycles have three colours."""
    near = _lists(pattern)
    number = _lists((pattern[0], edge))
    color, parent = [-1] * order.size, list(range(edges))

    def root(e: int) -> int:
        while parent[e] != e:
            e = parent[e]
        return e

    for v in order.tolist():
        forbidden = {color[w] for w in near[v]}
        way: dict[int, int] = {}
        done = [(w, e) for w, e in zip(near[v], number[v], strict=True) if color[w] >= 0]
        for w, _ in done:
            for x, e in zip(near[w], number[w], strict=True):
                if x != v and color[x] >= 0 and way.setdefault(root(e), w) != w:
                    forbidden.add(color[x])
        color[v] = _smallest(forbidden)
        first: dict[int, int] = {}
        for w, e in done:
            parent[root(e)] = root(first.setdefault(color[w], e))
        for w, e in done:
            for x, d in zip(near[w], number[w], strict=True):
                if x != v and color[x] == color[v]:
                    parent[root(e)] = root(d)
    return np.array(color, np.int32), max(color, default=-1) + 1


def peel(place: np.ndarray, other: np.ndarray, places: int) -> np.ndarray:
    """Return slots in an order in which each is known from its sum and those before it."""
    unknown: list[set[int]] = [set() for _ in range(places)]
    at, twin = place.tolist(), other.tolist()
    for s, q in enumerate(at):
        unknown[q].add(s)
    known = [False] * len(at)
    order: list[int] = []

    def note(s: int) -> None:
        if not (known[s] or known[twin[s]]):
            known[s] = True
            order.append(s)

    for s, q in enumerate(at):
        if len(unknown[q]) == 1:
            note(s)
    for s in order:  # it grows meanwhile
        t = twin[s]
        unknown[at[s]].discard(s)
        if t != s:
            known[t] = True
            unknown[at[t]].discard(t)
            if len(unknown[at[t]]) == 1:
                note(next(iter(unknown[at[t]])))
    return np.array(order, np.int32)


def substitute(source: np.ndarray, target: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Return entries from sums, in which they are replaced."""
    values = np.empty(source.size)
    for k, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        values[k] = sums[a]
        if b >= 0:
            sums[b] -= values[k]
    return values


def pick(entries: Any, where: np.ndarray, sums: np.ndarray, values: np.ndarray) -> None:
    """Write ``sums[where]`` to ``values[entries]``; None: to all, in their order."""
    values[slice(None) if entries is None else entries] = sums[where]
