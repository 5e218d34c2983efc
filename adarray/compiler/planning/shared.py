"""Equal groups become one kernel: long programs repeat themselves."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from adarray.compiler.ir.loopir import Local, statements
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    GatherND,
    Iota,
    Map,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import CPU, GpuTarget, Target
from adarray.compiler.kernels import siblings
from adarray.compiler.kernels import steps as lower_steps
from adarray.compiler.kernels.collapse import collapse
from adarray.compiler.kernels.copies import with_copies
from adarray.compiler.kernels.lower import Lowered, Lowering
from adarray.compiler.kernels.nodes import (
    Folded,
    KernelNode,
    Operation,
    Ref,
    ValueMemory,
    duplicates,
)
from adarray.compiler.kernels.rows import in_blocks
from adarray.compiler.kernels.scope import LITERAL
from adarray.compiler.kernels.siblings import Sibling, one_loop
from adarray.compiler.kernels.spread import SHORT as SPREAD
from adarray.compiler.kernels.tables import is_table
from adarray.compiler.kernels.values import Stored, WrittenRows
from adarray.compiler.schedule.gpu.choose import schedule_of
from adarray.compiler.schedule.gpu.launch import launch_of
from adarray.compiler.schedule.gpu.span import span_of
from adarray.compiler.stencil import lower_lines, lower_strips
from adarray.compiler.stencil.lines import LineKernel
from adarray.compiler.stencil.lower_rings import RingStage, write
from adarray.compiler.stencil.rings import Pipeline
from adarray.compiler.stencil.strips import Strips

# Nodes whose operands' shapes decide what a kernel says.
SHAPED: frozenset[type[Operation]] = frozenset({UpdateSlice, Concatenate, GatherND, ScatterND})
# Nodes that read their operands at their own indices: where arrays begin that these read is
# an integer of the kernel, and nothing else depends on it.
PLAIN: frozenset[type[Operation]] = frozenset({Map, Folded, View, Constant, Iota})

# Iterations of an outer loop that runs over all that it can.
ALL = 1 << 62
# How many times as long threads must wait for each other by other loops, if they share arrays in
# both cases, or in neither: the model knows no more.
GAIN = 2


class SharedKernels:
    """Kernels of a plan: those that compute the same of other arrays are one.

    Parameters
    ----------
    target : Target
    literal : int, optional
        Most iterations of a loop whose number stands in the text, in kernels without outer loop.
    """

    def __init__(self, target: Target = CPU, literal: int = 0) -> None:
        self.target = target
        self.literal = literal
        self.known: dict[Hashable, KnownKernel] = {}

    def lower(
        self,
        order: list[KernelNode],
        stored: dict[KernelNode, ValueMemory],
        outer: int,
        extents: list[int],
        access: str = "out",
    ) -> Lowered:
        """Return the kernel of some nodes; see `Lowering`."""
        s = Signature(plain(order))
        key = (s.of(order, stored, outer, extents), access)
        known = self.known.get(key)
        if known is not None:
            return s.again(known)
        if outer >= 0 and in_blocks(order, outer, extents, self.target):
            order = with_copies(order, outer, extents)
        return self._keep(key, s, self._best(order, stored, outer, extents, access))

    def _best(
        self,
        order: list[KernelNode],
        stored: dict[KernelNode, ValueMemory],
        outer: int,
        extents: list[int],
        access: str,
    ) -> Lowered:
        """Write the kernel with other loops, too, where there are any; return the quicker one."""

        def write(wide: bool, most: int, flat: bool) -> tuple[Lowering, Lowered]:
            lowering = Lowering(
                order, stored, outer, extents, target=self.target, wide=wide, most=most, flat=flat
            )
            lowering.access = access
            lowering.literal = self.literal if outer < 0 else 0
            return lowering, lowering.run()

        lowering, best = write(False, SPREAD, False)
        if not isinstance(self.target, GpuTarget):
            return best
        tried = [(True, SPREAD, False)] * lowering.narrow + [(True, ALL, False)] * lowering.can_grow
        tried += [(False, SPREAD, True)] * lowering.nested
        time = _span(best, self.target) if tried else 0.0
        for wide, most, flat in tried:
            lowering, other = write(wide, most, flat)
            span = _span(other, self.target)
            gain = 1 if _has_arrays(best) > _has_arrays(other) else GAIN
            if gain * span <= time and (time or not flat):
                best, time = other, span
            more = [(True, ALL, flat)] * lowering.can_grow + [(wide, most, True)] * lowering.nested
            tried += [x for x in more if x not in tried]
        return best

    def pieces(self, parts: lower_steps.Pieces, shape: tuple[int, ...], add: bool) -> Lowered:
        """Return the kernel that writes what references read to their regions, or adds it there."""
        order, stored, outer, extents, access = lower_steps.pieces(parts, shape, add, self.target)
        if outer >= 0 and self.target.along:
            # Other pieces may read what these are computed from, by axes that do not collapse.
            own = duplicates(order)
            order, stored = list(own.values()), {own[n]: m for n, m in stored.items()}
            outer = collapse(order, stored, outer, extents, through=True)
        return self.lower(order, stored, outer, extents, access)

    def pipeline(self, p: Pipeline) -> Lowered:
        """Return the kernel of a pipeline."""
        stages = p.stages(self.target)
        s = Signature()
        key = (p.chain.count, p.rotates, *(self._stage(s, x) for x in stages))
        known = self.known.get(key)
        if known is not None:
            return s.again(known)
        rings = list(p.rings.values())
        lowered = write(stages, rings, p.chain.count, p.rotates, self.target)
        return self._keep(key, s, lowered)

    def strips(self, p: Strips) -> Lowered:
        """Return the kernel of a chain of steps down column strips."""
        s = Signature()
        key = (p.sizes, *(self._step(s, x) for x in p.steps))
        lowered = self.known.get(key)
        if lowered is not None:
            return s.again(lowered)
        rows = list(p.rings.values())
        return self._keep(key, s, lower_strips.write(p.steps, rows, p.sizes, self.target))

    @staticmethod
    def _step(s: Signature, step: lower_strips.StripStage) -> Hashable:
        rings = tuple((s.number_of(node), s.number_of(row)) for node, row in step.rings)
        return (step.lag, rings, s.of(step.order, step.stored, -1, []))

    def line(self, k: LineKernel) -> Lowered:
        """Return the kernel of steps on a line."""
        s = Signature()
        key = (k.sizes, *(self._line_stage(s, x) for x in k.stages))
        known = self.known.get(key)
        if known is not None:
            return s.again(known)
        return self._keep(key, s, lower_lines.write(k.stages, k.sizes, self.target))

    @staticmethod
    def _line_stage(s: Signature, stage: lower_lines.LineStage) -> Hashable:
        stored = {} if stage.stored is None else {stage.node: stage.stored}
        of = s.of(stage.order, stored, -1, [])
        return (stage.loads, s.number_of(stage.node), s.number_of(stage.row), of)

    def siblings(self, parts: list[Sibling]) -> Lowered:
        """Return the kernel of parts that run together."""
        if parts[0].flat:
            return self.lower(*one_loop(parts))
        s = Signature()
        key = tuple(s.of(*p) for p in parts)
        known = self.known.get(key)
        if known is not None:
            return s.again(known)
        return self._keep(key, s, siblings.write(parts, self.target))

    @staticmethod
    def _stage(s: Signature, stage: RingStage) -> Hashable:
        x = stage.lowering
        return (*stage[1:], s.of(x.order, x.stored, x.outer, x.extents))

    def _keep(self, key: Hashable, s: Signature, lowered: Lowered) -> Lowered:
        places = tuple(s.places[v] for v in lowered.buffers)
        at = [v for n, v in zip(lowered.kernel.ints, lowered.ints, strict=True) if is_place(n)]
        if not s.far or all(v in s.far for v in at):
            self.known[key] = KnownKernel(lowered, places, tuple(s.far), tuple(s.tables))
        return lowered


class KnownKernel(NamedTuple):
    """A kernel, the places of its buffers in a signature, and the signature's large offsets.

    Places in tables are apart from those of other arrays.
    """

    lowered: Lowered
    places: tuple[int, ...]
    far: tuple[int, ...]
    tables: tuple[int, ...]


def _has_arrays(lowered: Lowered) -> bool:
    """Whether threads meet at arrays that they share, rather than have what they need."""
    return any(isinstance(s, Local) and s.size is not None for s in statements(lowered.kernel.body))


def _span(lowered: Lowered, target: GpuTarget) -> float:
    """Return the seconds that threads of a kernel wait in turn, as it would run."""
    ints = dict(zip(lowered.kernel.ints, lowered.ints, strict=True))
    schedule = schedule_of(lowered.kernel, ints, target)
    return span_of(schedule, launch_of(schedule, target), target)


def is_place(name: str) -> bool:
    """Whether an integer of a kernel says where in an array something lies."""
    return name.startswith("at")


def plain(order: list[KernelNode]) -> bool:
    """Whether offsets of arrays are integers of the kernel as they are."""
    for node in order:
        if type(node.operation) not in PLAIN or node.ring is not None:
            return False
        for ref in node.args:
            for m in ref.maps or ():
                if m.const:
                    return False
    return True


class Signature:
    """What decides a kernel, and the arrays that it reads and writes, in order.

    Parameters
    ----------
    moves : bool
        Whether kernels are the same wherever in their arrays they begin, other than near
        the beginning, where the offset stands in the text.
    """

    def __init__(self, moves: bool = False) -> None:
        self.moves = moves
        self.far: dict[int, int] = {}
        self.tables: dict[int, int] = {}
        self.memories: list[Value] = []
        self.places: dict[Value, int] = {}
        self.number: dict[object, int] = {}

    def again(self, shared: KnownKernel) -> Lowered:
        """Return a known kernel on the arrays of this signature."""
        lowered, places, far, tables = shared
        kernel, ints = lowered.kernel, lowered.ints
        if far != tuple(self.far):
            new = dict(zip(far, self.far, strict=True))
            named = zip(kernel.ints, ints, strict=True)
            ints = tuple([new[v] if is_place(name) else v for name, v in named])
        if tables != tuple(self.tables):
            new = dict(zip(tables, self.tables, strict=True))
            named = zip(kernel.ints, ints, strict=True)
            ints = tuple([new[v] if name.startswith("table") else v for name, v in named])
        return Lowered(kernel, tuple([self.memories[k] for k in places]), ints)

    def of(
        self, order: list[KernelNode], stored: Stored, outer: int, extents: list[int]
    ) -> Hashable:
        """Return what decides the loops of some nodes."""
        parts: list[Hashable] = [outer, tuple(extents)]
        for node in order:
            value, kind = node.value, type(node.operation)
            parts.append((
                # What a view shows is in the maps of its reading.
                View if kind is View else node.operation,
                value.dtype.char, node.shape, node.classes, node.folded, node.total,
                tuple([self._ref(r) for r in node.args]), self._written(stored.get(node)),
                tuple(a.shape for a in value.args) if kind in SHAPED else None,
                node.ring and self.number_of(node.ring),
            ))  # fmt: skip
            self.number_of(node)
        return tuple(parts)

    def number_of(self, thing: object) -> int:
        """Return the number of a node, or of rows that a stage stores, in order of first use."""
        return self.number.setdefault(thing, len(self.number))

    def _place(self, value: Value) -> int:
        k = self.places.get(value)
        if k is None:
            k = self.places[value] = len(self.memories)
            self.memories.append(value)
        return k

    def _ref(self, r: Ref) -> Hashable:
        if r.node is not None:
            return self.number_of(r.node), r.maps
        assert r.memory is not None
        if r.at is not None and is_table(r.memory.value):
            at: Hashable = "table", self.tables.setdefault(r.at.const, len(self.tables))
        else:
            at = r.at if r.at is None else (self._offset(r.at.const), r.at.terms)
        return self._place(r.memory.value), at, r.memory.value.dtype.char

    def _offset(self, value: int) -> Hashable:
        if not self.moves or abs(value) <= LITERAL:
            return value
        return "far", self.far.setdefault(value, len(self.far))

    def _written(self, memory: ValueMemory | WrittenRows | None) -> Hashable:
        if memory is None:
            return None
        if isinstance(memory, ValueMemory):
            return self._place(memory.value), self._offset(memory.offset), memory.strides
        return self.number_of(memory), memory.axis
