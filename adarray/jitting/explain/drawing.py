"""Layered drawings of acyclic graphs as SVG, without a program to do it.

Boxes are put in layers so that edges go down, ordered in them by the mean place of their
neighbours, and moved towards these. An edge across several layers bends in each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

GAP = 18.0  # between boxes of a layer
DROP = 34.0  # between layers
THREAD = 6.0  # width that an edge takes where it passes a layer
SWEEPS = 8
# Edges across more layers than that are drawn straight on, or they would fill the picture.
LONG = 40


class Layout(NamedTuple):
    """Where the boxes of a graph are.

    Parameters
    ----------
    centers : list of (float, float)
        Middle of each box.
    routes : dict
        For each edge the points between its ends.
    width, height : float
    """

    centers: list[tuple[float, float]]
    routes: dict[tuple[int, int], list[tuple[float, float]]]
    width: float
    height: float


def layered(sizes: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int]]) -> Layout:
    """Place boxes in layers.

    Parameters
    ----------
    sizes : sequence of (float, float)
        Width and height of each box.
    edges : sequence of (int, int)
        From and to, each from a smaller number to a larger one.
    """
    if not sizes:
        return Layout([], {}, 0.0, 0.0)
    edges = sorted(set(edges))
    count = len(sizes)
    layer = _layers(count, edges)
    widths = [w for w, _ in sizes]
    # Every layer that an edge crosses gets a thin box for it.
    links: list[tuple[int, int]] = []
    bends: dict[tuple[int, int], list[int]] = {}
    for a, b in edges:
        chain = []
        for at in range(layer[a] + 1, layer[b] if layer[b] - layer[a] <= LONG else 0):
            chain.append(len(widths))
            widths.append(THREAD)
            layer.append(at)
        bends[a, b] = chain
        if layer[b] - layer[a] <= LONG:
            links += zip([a, *chain], [*chain, b], strict=True)
    above: list[list[int]] = [[] for _ in widths]
    below: list[list[int]] = [[] for _ in widths]
    for a, b in links:
        above[b].append(a)
        below[a].append(b)
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    for box, at in enumerate(layer):
        rows[at].append(box)
    _order(rows, above, below)
    x = _columns(rows, widths, above, below)
    tops, y = [], 0.0
    heights = [max((sizes[b][1] for b in row if b < count), default=0.0) for row in rows]
    for h in heights:
        tops.append(y)
        y += h + DROP
    middle = [tops[at] + heights[at] / 2 for at in layer]
    left = min(x[b] - widths[b] / 2 for b in range(len(widths)))
    right = max(x[b] + widths[b] / 2 for b in range(len(widths)))
    return Layout(
        [(x[b] - left, middle[b]) for b in range(count)],
        {edge: [(x[b] - left, middle[b]) for b in chain] for edge, chain in bends.items()},
        right - left,
        y - DROP,
    )


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the layer of each box: below all it depends on, sources close to their users."""
    layer = [0] * count
    into = [0] * count
    for a, b in edges:  # sorted by source: all that leads to `a` was seen
        layer[b] = max(layer[b], layer[a] + 1)
        into[b] += 1
    first: dict[int, int] = {}
    for a, b in edges:
        first[a] = min(first.get(a, layer[b]), layer[b])
    return [first[b] - 1 if into[b] == 0 and b in first else layer[b] for b in range(count)]


def _order(rows: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each row by the mean place of the boxes that its own are linked to."""
    place: dict[int, float] = {}
    for row in rows:
        place.update((box, i) for i, box in enumerate(row))
    for sweep in range(SWEEPS):
        near = below if sweep % 2 else above
        for row in rows[::-1] if sweep % 2 else rows:
            means = {
                b: sum(place[n] for n in near[b]) / len(near[b]) if near[b] else place[b]
                for b in row
            }
            row.sort(key=means.__getitem__)
            place.update((box, i) for i, box in enumerate(row))


def _columns(
    rows: list[list[int]], widths: list[float], above: list[list[int]], below: list[list[int]]
) -> list[float]:
    """Return the x coordinate of each box's middle, the order in the rows kept."""
    x = [0.0] * len(widths)
    for row in rows:
        at = 0.0
        for b in row:
            x[b] = at + widths[b] / 2
            at += widths[b] + GAP
        for b in row:
            x[b] -= (at - GAP) / 2
    for sweep in range(SWEEPS):
        for row in rows[::-1] if sweep % 2 else rows:
            wanted = []
            for b in row:
                near = (*above[b], *below[b])
                wanted.append(sum(x[n] for n in near) / len(near) if near else x[b])
            _settle(row, wanted, widths, x)
    return x


def _settle(row: list[int], wanted: list[float], widths: list[float], x: list[float]) -> None:
    """Bring the boxes of a row as near to where they want to be as they fit beside each other.

    Boxes that would overlap form a block, which moves as one to the mean of their wishes.
    """
    # (sum of wishes less the box's place in the block, boxes in it, its width so far)
    blocks: list[list[float]] = []
    members: list[int] = []
    for b, want in zip(row, wanted, strict=True):
        blocks.append([want - widths[b] / 2, 1, widths[b] + GAP])
        members.append(1)
        while len(blocks) > 1:
            (ws, n, width), (ws2, n2, width2) = blocks[-2], blocks[-1]
            if ws / n + width <= ws2 / n2:
                break
            blocks[-2:] = [[ws + ws2 - n2 * width, n + n2, width + width2]]
            members[-2:] = [members[-2] + members[-1]]
    i = 0
    for (ws, n, _), held in zip(blocks, members, strict=True):
        at = ws / n
        for b in row[i : i + held]:
            x[b] = at + widths[b] / 2
            at += widths[b] + GAP
        i += held
