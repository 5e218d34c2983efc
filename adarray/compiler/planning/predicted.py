"""How long the kernel of a group should take on a GPU, before it is written.

References
----------
- S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for
  multicore architectures", Commun. ACM 52 (2009), 65-76.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from adarray.compiler.ir.domains import AffineIndex, Maps
from adarray.compiler.ir.primitives import Map
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.ir.uses import op_cost
from adarray.compiler.kernels.nodes import KernelNode
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES, LAUNCH
from adarray.compiler.stencil.line_runs import INSTRUCTIONS

# Places of one value in a kernel that are told apart.
MOST = 64


def seconds(moved: Iterable[Value], operations: float, target: GpuTarget) -> float:
    """Return the seconds of a kernel that reads and writes some arrays."""
    bytes_ = sum(v.size * v.dtype.itemsize for v in moved)
    computed = INSTRUCTIONS * operations / (target.sms * LANES * CLOCK)
    return LAUNCH + max(bytes_ / BANDWIDTH, computed)


def operations_once(order: Iterable[KernelNode]) -> float:
    """Return the operations of nodes, each of whose elements is computed once."""
    return float(sum(_cost(n) * math.prod(n.shape) for n in order))


def operations_in_place(order: list[KernelNode]) -> float:
    """Return the operations of nodes that are computed again at each place where they are read."""
    return float(sum(_cost(n) * math.prod(n.shape) * len(at) for n, at in _places(order)))


def readings_in_place(order: list[KernelNode]) -> dict[Value, int]:
    """Return at how many places nodes that are computed again read each array per element."""
    read: dict[Value, set[AffineIndex | None]] = {}
    for node, places in _places(order):
        for ref in node.args:
            if ref.memory is None:
                continue
            known = read.setdefault(ref.memory.value, set())
            for place in places if len(known) < MOST else ():
                known.add(read_from(ref.at, place))
    return {value: len(at) for value, at in read.items()}


def read_from(at: AffineIndex | None, place: tuple[int, ...]) -> AffineIndex | None:
    """Return what is read at a place that lies so far from where it is computed otherwise."""
    if at is None:
        return None
    shifts = sum(coef * place[axis] for axis, coef in at.terms if axis < len(place))
    return at._replace(const=at.const + shifts)


def shifted(place: tuple[int, ...], maps: Maps) -> tuple[int, ...]:
    """Return the place at which an operand is computed for one of what reads it."""
    shifts = tuple(m.const for m in maps)
    if len(place) != len(shifts):
        return shifts
    return tuple(a + b for a, b in zip(place, shifts, strict=True))


def _places(order: list[KernelNode]) -> Iterator[tuple[KernelNode, set[tuple[int, ...]]]]:
    """Yield nodes, last ones first, and the places at which others read each of them."""
    places: dict[KernelNode, set[tuple[int, ...]]] = {}
    for node in reversed(order):
        at = places.get(node) or {()}
        yield node, at
        for ref in node.args:
            if ref.node is None or ref.maps is None:
                continue
            known = places.setdefault(ref.node, set())
            for place in at if len(known) < MOST else ():
                known.add(shifted(place, ref.maps))


def _cost(node: KernelNode) -> int:
    return op_cost(node.value) if isinstance(node.operation, Map) else 1
