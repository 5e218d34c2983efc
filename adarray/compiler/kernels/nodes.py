"""Nodes: the values of one kernel, those of its group and those recomputed in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.domains import AffineIndex, Maps, Shape, Use, identity, linear, strided
from adarray.compiler.ir.primitives import (
    Concatenate,
    Constant,
    DType,
    Iota,
    Map,
    Matmul,
    Primitive,
    ProgramInput,
    Reduce,
    ScatterND,
    UpdateSlice,
    View,
)
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.uses import domain, folded, op_cost
from adarray.compiler.kernels.scope import Affine

_NAMES: dict[str, str] = {}
# Whether a value of another group is recomputed in a group.
Cloned: TypeAlias = Callable[[Value, Group], bool]
# When a kernel computes what it reads: if maps say which elements, always, never.
MAPPED, ALWAYS, NEVER = range(3)


def dtype_name(dtype: DType) -> str:
    """Return NumPy's name of a dtype; it takes NumPy long to find."""
    name = _NAMES.get(dtype.char)
    if name is None:
        name = _NAMES[dtype.char] = dtype.name
    return name


class ValueMemory:
    """An array in memory that a kernel reads or writes: a value that some step stores.

    Attributes
    ----------
    value : Value
    offset, strides
        Where its elements lie; those of a region, if only that is written.
    """

    __slots__ = ("offset", "strides", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.offset = 0
        primitive = value.primitive
        self.strides: Shape = (
            primitive.strides if isinstance(primitive, ProgramInput) else c_strides(value.shape)
        )


@dataclass(frozen=True, slots=True)
class Folded:
    """A sum of products or a fold of an operand, one number for each element of the result."""

    combine: str


@dataclass(frozen=True, slots=True)
class FromRing:
    """Rows that an earlier stage of the kernel has computed."""


# What another node computes, at the same index.
SAME = View(0, ())
# How an element of a node is computed.
Operation: TypeAlias = Primitive | Folded | FromRing


def operation_of(primitive: Primitive) -> Operation:
    """Return how an element of a value is computed in a kernel."""
    match primitive:
        case Reduce() as p:
            return Folded(p.combine)
        case Matmul():
            return Folded("add")
        case _:
            return primitive


class RowsAtHand(Protocol):
    """Rows of a value that an earlier stage of the kernel has computed."""

    def find(self, values: Any, index: tuple[Affine, ...]) -> tuple[str, Affine]:
        """Return the local array of a row, and where in it an element lies.

        `values` is the `Values` of the stage that reads it, which refer to nodes.
        """


class Ref:
    """What a node reads.

    Attributes
    ----------
    node : KernelNode or None
        A value of the kernel, read at `maps` of the reader's indices.
    memory : ValueMemory or None
        An array, read at element `at`.
    """

    __slots__ = ("at", "maps", "memory", "node", "use")

    def __init__(
        self,
        node: KernelNode | None,
        memory: ValueMemory | None,
        maps: Maps | None,
        at: AffineIndex | None,
        use: Use | None = None,
    ) -> None:
        self.use = use
        self.node = node
        self.memory = memory
        self.maps = maps
        self.at = at


class KernelNode:
    """A value of a kernel.

    Attributes
    ----------
    operation : Operation
    shape : tuple of int
        Of its domain.
    classes : tuple of int or None
        Loop of each axis of the domain, -1 for length 1; None for what is recomputed.
    folded : tuple of int
        Axes of the domain that are folded.
    cost : int
        Of computing one element from memory and folds.
    ring : Ring or None
        Rows of it that an earlier stage of the kernel has computed.
    regions : tuple of (int, int)
        Where the pieces of a concatenation begin and end along its axis, and the piece of an
        update along each axis.
    """

    __slots__ = (
        "args", "classes", "cost", "counted", "dtype", "folded", "operation", "regions", "ring",
        "shape", "total", "value",
    )  # fmt: skip

    def __init__(self, value: Value, classes: tuple[int, ...] | None) -> None:
        self.value = value
        self.operation = operation_of(value.primitive)
        self.dtype = dtype_name(value.dtype)
        self.shape: Shape = domain(value)
        self.folded = folded(value)
        self.classes = classes
        self.total = False
        # Which index of a scatter counts along an axis.
        self.counted = -1
        self.args: list[Ref] = []
        self.cost = 0
        self.ring: RowsAtHand | None = None
        self.regions = regions_of(value)

    @property
    def unfolded(self) -> tuple[int, ...]:
        """Axes of the domain that are those of the result, in order."""
        return tuple(a for a in range(len(self.shape)) if a not in self.folded)

    @property
    def result(self) -> tuple[int, ...]:
        """Classes of the result's axes."""
        assert self.classes is not None
        return tuple(self.classes[a] for a in self.unfolded)

    @property
    def combine(self) -> str:
        """How it folds."""
        assert isinstance(self.operation, Folded)
        return self.operation.combine


def duplicates(order: list[KernelNode]) -> dict[KernelNode, KernelNode]:
    """Return a copy of each of some nodes, operands first: they read copies of each other."""
    copies: dict[KernelNode, KernelNode] = {}
    for node in order:
        copy = copies[node] = KernelNode(node.value, node.classes)
        copy.operation, copy.shape, copy.folded = node.operation, node.shape, node.folded
        copy.dtype, copy.total, copy.counted = node.dtype, node.total, node.counted
        copy.cost, copy.ring, copy.regions = node.cost, node.ring, node.regions
        copy.args = [
            Ref(copies[r.node] if r.node else None, r.memory, r.maps, r.at, r.use)
            for r in node.args
        ]
    return copies


def regions_of(value: Value) -> tuple[tuple[int, int], ...]:
    """Return where the operands of a concatenation, or the piece of an update, lie."""
    match value.primitive:
        case Concatenate() as p:
            ends = list(itertools.accumulate(a.shape[p.axis] for a in value.args))
            return tuple(zip([0, *ends], ends, strict=False))
        case UpdateSlice() as p:
            return tuple((s, s + n) for s, n in zip(p.starts, value.args[1].shape, strict=True))
        case _:
            return ()


def covers(node: KernelNode, axis: int) -> bool:
    """Whether what an update writes has the whole of an axis, so that no index is outside of it."""
    return node.regions[axis] == (0, node.shape[axis])


class Nodes:
    """The nodes of a kernel.

    Parameters
    ----------
    group : Group
    fusion : Fusion
    cloned : callable
        ``cloned(root, group)``: whether a value of another group is recomputed in this one.
    """

    def __init__(
        self,
        group: Group,
        fusion: Fusion,
        cloned: Cloned,
        rings: dict[Value, KernelNode] | None = None,
    ) -> None:
        # Values of other stages whose last rows are at hand (see `lower_rings`).
        self.rings = rings or {}
        self.group = group
        self.fusion = fusion
        self.cloned = cloned
        self.by_value: dict[Value, KernelNode] = dict(self.rings)
        self.order: list[KernelNode] = list(self.rings.values())
        self.memories: dict[Value, ValueMemory] = {}
        self.known: dict[Value, int] = {}

    def add(self, value: Value) -> KernelNode:
        """Return the node of a value, and make those that it needs."""
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if v in self.by_value:
                continue
            uses = self.fusion.uses.uses(v)
            if not ready:
                below = [
                    (u.root, False) for u in uses if u.root not in self.by_value and self.is_node(u)
                ]
                if below:
                    stack.append((v, True))
                    stack += below
                    continue
            self._make(v, uses)
        return self.by_value[value]

    def results(self, values: list[Value]) -> dict[KernelNode, ValueMemory]:
        """Add nodes for results; return where each is stored, by its node.

        Of a value that is at hand already a copy is stored.
        """
        stored: dict[KernelNode, ValueMemory] = {}
        for v in values:
            if v not in self.rings:
                stored[self.add(v)] = ValueMemory(v)
                continue
            copy = KernelNode(v, self.group.result(v))
            copy.operation, copy.shape, copy.folded = SAME, v.shape, ()
            copy.args = [Ref(self.rings[v], None, identity(v.shape), None)]
            self.order.append(copy)
            stored[copy] = ValueMemory(v)
        return stored

    def is_node(self, use: Use) -> bool:
        """Whether what is read is computed in the kernel, rather than lying in memory."""
        key = use.root
        known = self.known.get(key)
        if known is None:
            if self.group.has(use.root) and self.fusion.owner.get(key) is self.group:
                known = ALWAYS
            elif self.fusion.uses.is_inline(use.root) or self.cloned(use.root, self.group):
                known = MAPPED
            else:
                known = NEVER
            self.known[key] = known
        return known == ALWAYS or (known == MAPPED and use.maps is not None)

    def _make(self, v: Value, uses: tuple[Use, ...]) -> None:
        own = v in self.group.classes and self.group.kind != "step"
        node = KernelNode(v, self.group.of(v) if own else None)
        node.total = v in self.group.totals
        below = 0
        for use in uses:
            ref = self.ref(use)
            node.args.append(ref)
            below += ref.node.cost if ref.node is not None else 1
        if isinstance(v.primitive, ScatterND):
            node.counted = self.fusion.uses.row_scatter(v.primitive, v)
        if isinstance(v.primitive, (Constant, Iota)):
            node.cost = 0
        elif isinstance(node.operation, Folded):
            node.cost = 1
        else:
            node.cost = min((op_cost(v) if isinstance(v.primitive, Map) else 0) + below, 1 << 20)
        self.by_value[v] = node
        self.order.append(node)

    def ref(self, use: Use) -> Ref:
        """Return what a use reads: a node that was made before, or memory."""
        if use.root in self.rings or self.is_node(use):
            return Ref(self.by_value[use.root], None, use.maps, None, use)
        memory = self.memory(use.root)
        if isinstance(use.root.primitive, ProgramInput) and use.maps is not None:
            return Ref(None, memory, None, linear(use.maps, memory.strides), use)
        return Ref(None, memory, None, strided(use.offset, use.strides), use)

    def memory(self, value: Value) -> ValueMemory:
        """Return the memory of a value."""
        memory = self.memories.get(value)
        if memory is None:
            memory = self.memories[value] = ValueMemory(value)
        return memory
