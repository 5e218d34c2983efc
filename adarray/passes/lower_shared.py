"""Equal groups become one kernel: long programs repeat themselves."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from adarray.passes.lower import Lowered, Lowering
from adarray.passes.lower_nodes import Memory, Node
from adarray.program import Value

# Parameters of values that decide what a kernel says.
PARAMS = ("name", "combine", "starts", "add", "axis", "axes", "position")
SHAPED = frozenset({"place", "join", "gather", "scatter"})


class SharedKernels:
    """Kernels of a plan, found again by what they compute, whatever they compute it of."""

    def __init__(self) -> None:
        self.made: dict[Hashable, tuple[Lowered, tuple[int, ...]]] = {}

    def lower(
        self, order: list[Node], stored: dict[int, Memory], outer: int, extents: list[int]
    ) -> Lowered:
        """Return the kernel of some nodes; see `Lowering`."""
        key, memories = signature(order, stored, outer, extents)
        found = self.made.get(key)
        if found is not None:
            lowered, which = found
            return Lowered(lowered.kernel, tuple(memories[k] for k in which), lowered.ints)
        lowered = Lowering(order, stored, outer, extents).run()
        at = {id(v): k for k, v in enumerate(memories)}
        self.made[key] = (lowered, tuple(at[id(v)] for v in lowered.buffers))
        return lowered


def signature(
    order: list[Node], stored: dict[int, Memory], outer: int, extents: list[int]
) -> tuple[Hashable, list[Value]]:
    """Return what decides the kernel of some nodes, and the arrays that it reads and writes."""
    number: dict[int, int] = {}
    memories: list[Value] = []
    places: dict[int, int] = {}

    def place(value: Value) -> int:
        k = places.get(id(value))
        if k is None:
            k = places[id(value)] = len(memories)
            memories.append(value)
        return k

    made: list[Any] = [outer]
    for node in order:
        value = node.value
        params = value.params
        refs = tuple(
            (number[id(r.node)], r.maps)
            if r.node is not None
            else (place(r.memory.value), r.at, r.memory.value.dtype.char)  # type: ignore[union-attr]
            for r in node.args
        )
        memory = stored.get(id(node))
        written = memory and (place(memory.value), memory.offset, memory.strides)
        made.append((
            node.kind, value.dtype.char, node.shape, node.classes, node.folded, node.total,
            refs, written, tuple([params[p] for p in PARAMS if p in params]),
            repr(params["value"]) if node.kind == "const" else None,
            tuple(a.shape for a in value.args) if node.kind in SHAPED else None,
        ))  # fmt: skip
        number[id(node)] = len(number)
    made.append(tuple(extents))
    return tuple(made), memories
