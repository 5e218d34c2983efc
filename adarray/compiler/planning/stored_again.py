"""Values of many neighbours that several loops of a kernel need: stored, not computed again.

Threads of a GPU compute again what other loops over a row have computed, as a row in memory is
slower than a few operations. A sum of shifted slices is many loads as well, for each loop, and for
each place at which neighbours read it.

References
----------
- J. Ragan-Kelley et al., "Halide: a language and compiler for optimizing parallelism, locality, and
  recomputation in image processing pipelines", PLDI 2013.
"""

from __future__ import annotations

import math

from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import AffineIndex
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import GpuTarget
from adarray.compiler.kernels.nodes import Folded, KernelNode, Nodes
from adarray.compiler.kernels.rows import in_blocks
from adarray.compiler.kernels.stages import Stages
from adarray.compiler.planning.predicted import MOST, read_from, shifted
from adarray.compiler.schedule.gpu.model import BANDWIDTH, CLOCK, LANES
from adarray.compiler.stencil.line_runs import INSTRUCTIONS

# Elements of arrays that a value is computed from, from which on it may be stored.
LOADS = 6
# How many times more seconds that must save than it takes.
WORTH = 1.5
# A loop over a row, and where in it, as far from its own index.
Place = tuple[int, frozenset[int], tuple[int, ...]]


def worth_storing(
    group: Group, nodes: Nodes, wanted: list[Value], target: GpuTarget
) -> Value | None:
    """Return the member of a group that saves most if its kernel stores it; None if none saves."""
    outer = group.find(group.outer)
    stored = {nodes.by_value[v] for v in wanted}
    if in_blocks(nodes.order, outer, group.extents, target):
        return None
    stages = Stages(nodes.order, stored, {outer}, False, target.keep)
    if not any(stages.time[n] for n in stored):
        return None  # no loop follows another one
    places = _places(nodes.order, stored, stages)
    best, most = None, 0.0
    for node in nodes.order:
        at = places[node]
        own = node.value in group.classes and node.value not in group.totals
        if node in stored or _is_fold(node) or not own or len(at) < 2:
            continue
        saved = (len(at) - 1) * node.cost * INSTRUCTIONS / (target.sms * LANES * CLOCK)
        loops = len({(time, nest) for time, nest, _ in at})
        moved = (1 + loops) * node.value.dtype.itemsize / BANDWIDTH
        gain = math.prod(node.shape) * (saved - WORTH * moved)
        if gain > most and len(_loaded(node)) >= LOADS:
            best, most = node.value, gain
    return best


def _places(
    order: list[KernelNode], stored: set[KernelNode], stages: Stages
) -> dict[KernelNode, set[Place]]:
    """Return in which loops, and at which places there, each node is computed."""
    places: dict[KernelNode, set[Place]] = {n: set() for n in order}
    for node in reversed(order):
        mine = places[node]
        if _is_fold(node) or node in stored:
            mine = {(stages.time[node], stages.nest(node), ())}
        for ref in node.args:
            if ref.node is None or ref.maps is None:
                continue
            known = places[ref.node]
            for time, nest, at in mine if len(known) < MOST else ():
                known.add((time, nest, shifted(at, ref.maps)))
    return places


def _loaded(node: KernelNode) -> set[tuple[Value, AffineIndex | None]]:
    """Return the elements of arrays that an element of a node is computed from."""
    loaded: set[tuple[Value, AffineIndex | None]] = set()
    seen: set[tuple[KernelNode, tuple[int, ...]]] = set()
    stack: list[tuple[KernelNode, tuple[int, ...]]] = [(node, ())]
    while stack and len(loaded) < LOADS:
        n, at = stack.pop()
        if (n, at) in seen:
            continue
        seen.add((n, at))
        for ref in n.args:
            if ref.memory is not None and ref.memory.value.size * 2 > node.value.size:
                loaded.add((ref.memory.value, read_from(ref.at, at)))
            elif ref.node is not None and ref.maps is not None and not _is_fold(ref.node):
                stack.append((ref.node, shifted(at, ref.maps)))
    return loaded


def _is_fold(node: KernelNode) -> bool:
    return isinstance(node.operation, Folded)
