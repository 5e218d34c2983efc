"""Equal groups become one kernel: long programs repeat themselves."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from adarray.passes.lower import Lowered, Lowering
from adarray.passes.lower_nodes import Memory, Node, Ref
from adarray.passes.lower_rings import Stage, write
from adarray.passes.rings import Pipeline
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
        s = Signature()
        key = s.of(order, stored, outer, extents)
        found = self.made.get(key)
        if found is not None:
            return s.again(found)
        return self._keep(key, s, Lowering(order, stored, outer, extents).run())

    def pipeline(self, p: Pipeline) -> Lowered:
        """Return the kernel of a pipeline."""
        stages = p.stages()
        s = Signature()
        key = (p.chain.count, p.rotates, *(self._stage(s, x) for x in stages))
        found = self.made.get(key)
        if found is not None:
            return s.again(found)
        rings = list(p.rings.values())
        lowered = write(stages, rings, p.chain.count, p.rotates, stages[0].lowering)
        return self._keep(key, s, lowered)

    @staticmethod
    def _stage(s: Signature, stage: Stage) -> Hashable:
        x = stage.lowering
        return (*stage[1:], s.of(x.order, x.stored, x.outer, x.extents))

    def _keep(self, key: Hashable, s: Signature, lowered: Lowered) -> Lowered:
        self.made[key] = (lowered, tuple(s.places[id(v)] for v in lowered.buffers))
        return lowered


class Signature:
    """What decides a kernel, and the arrays that it reads and writes, in order."""

    def __init__(self) -> None:
        self.memories: list[Value] = []
        self.places: dict[int, int] = {}
        self.number: dict[int, int] = {}

    def again(self, found: tuple[Lowered, tuple[int, ...]]) -> Lowered:
        """Return a kernel that was made before, on the arrays of this signature."""
        lowered, which = found
        return Lowered(lowered.kernel, tuple(self.memories[k] for k in which), lowered.ints)

    def of(
        self, order: list[Node], stored: dict[int, Any], outer: int, extents: list[int]
    ) -> Hashable:
        """Return what decides the loops of some nodes."""
        made: list[Any] = [outer, tuple(extents)]
        for node in order:
            value = node.value
            params = value.params
            made.append((
                node.kind, value.dtype.char, node.shape, node.classes, node.folded, node.total,
                tuple(self._ref(r) for r in node.args), self._written(stored.get(id(node))),
                tuple([params[p] for p in PARAMS if p in params]),
                repr(params["value"]) if node.kind == "const" else None,
                tuple(a.shape for a in value.args) if node.kind in SHAPED else None,
                node.ring and self._number(node.ring),
            ))  # fmt: skip
            self._number(node)
        return tuple(made)

    def _number(self, thing: object) -> int:
        return self.number.setdefault(id(thing), len(self.number))

    def _place(self, value: Value) -> int:
        k = self.places.get(id(value))
        if k is None:
            k = self.places[id(value)] = len(self.memories)
            self.memories.append(value)
        return k

    def _ref(self, r: Ref) -> Hashable:
        if r.node is not None:
            return self._number(r.node), r.maps
        assert r.memory is not None
        return self._place(r.memory.value), r.at, r.memory.value.dtype.char

    def _written(self, memory: Any) -> Hashable:
        if memory is None:
            return None
        if isinstance(memory, Memory):
            return self._place(memory.value), memory.offset, memory.strides
        return self._number(memory), memory.axis
