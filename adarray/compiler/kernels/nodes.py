"""Nodes: the values of one kernel, those of its group and those recomputed in it."""

from __future__ import annotations

from typing import Any

from adarray.compiler.ir.domains import Map, Maps, Shape, Use, identity, linear, strided
from adarray.compiler.ir.program import Value, c_strides
from adarray.compiler.ir.uses import domain, folded, op_cost

_NAMES: dict[str, str] = {}
# When a kernel computes what it reads: if maps say which elements, always, never.
MAPPED, ALWAYS, NEVER = range(3)


def dtype_name(dtype: Any) -> str:
    """Return NumPy's name of a dtype; it takes NumPy long to find."""
    name = _NAMES.get(dtype.char)
    if name is None:
        name = _NAMES[dtype.char] = str(dtype.name)
    return name


class Memory:
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
        self.strides: Shape = (
            value.params["strides"] if value.kind == "input" else c_strides(value.shape)
        )


class Ref:
    """What a node reads.

    Attributes
    ----------
    node : Node or None
        A value of the kernel, read at `maps` of the reader's indices.
    memory : Memory or None
        An array, read at element `at`.
    """

    __slots__ = ("at", "maps", "memory", "node", "use")

    def __init__(
        self,
        node: Node | None,
        memory: Memory | None,
        maps: Maps | None,
        at: Map | None,
        use: Use | None = None,
    ) -> None:
        self.use = use
        self.node = node
        self.memory = memory
        self.maps = maps
        self.at = at


class Node:
    """A value of a kernel.

    Attributes
    ----------
    shape : tuple of int
        Of its domain.
    classes : tuple of int or None
        Loop of each axis of the domain, -1 for length 1; None for what is recomputed.
    folded : tuple of int
        Axes of the domain that are folded.
    cost : int
        Of computing one element from memory and folds.
    ring : Ring or None
        Where rows of it are found that an earlier stage of the kernel has computed.
    """

    __slots__ = (
        "args", "classes", "cost", "counted", "dtype", "folded", "kind", "ring", "shape", "total",
        "value",
    )  # fmt: skip

    def __init__(self, value: Value, classes: tuple[int, ...] | None) -> None:
        self.value = value
        self.kind = "fold" if value.kind in ("reduce", "dot") else value.kind
        self.dtype = dtype_name(value.dtype)
        self.shape: Shape = domain(value)
        self.folded = folded(value)
        self.classes = classes
        self.total = False
        # Which index of a scatter counts along an axis.
        self.counted = -1
        self.args: list[Ref] = []
        self.cost = 0
        self.ring: Any = None

    @property
    def kept(self) -> tuple[int, ...]:
        """Axes of the domain that are those of the result, in order."""
        return tuple(a for a in range(len(self.shape)) if a not in self.folded)

    @property
    def result(self) -> tuple[int, ...]:
        """Classes of the result's axes."""
        assert self.classes is not None
        return tuple(self.classes[a] for a in self.kept)

    @property
    def combine(self) -> str:
        """How it folds."""
        return "add" if self.value.kind == "dot" else str(self.value.params["combine"])


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
        self, group: Any, fusion: Any, cloned: Any, rings: dict[int, Node] | None = None
    ) -> None:
        # Values of other stages whose last rows are at hand (see `lower_rings`).
        self.rings = rings or {}
        self.group = group
        self.fusion = fusion
        self.cloned = cloned
        self.by_id: dict[int, Node] = dict(self.rings)
        self.order: list[Node] = list(self.rings.values())
        self.memories: dict[int, Memory] = {}
        self.known: dict[int, int] = {}

    def add(self, value: Value) -> Node:
        """Return the node of a value, and make those that it needs."""
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            v, ready = stack.pop()
            if id(v) in self.by_id:
                continue
            uses = self.fusion.uses.uses(v)
            if not ready:
                below = [
                    (u.root, False)
                    for u in uses
                    if id(u.root) not in self.by_id and self.is_node(u)
                ]
                if below:
                    stack.append((v, True))
                    stack += below
                    continue
            self._make(v, uses)
        return self.by_id[id(value)]

    def results(self, values: list[Value]) -> dict[int, Memory]:
        """Add nodes for results; return where each is stored, by the id of its node.

        Of a value that is at hand already a copy is stored.
        """
        stored: dict[int, Memory] = {}
        for v in values:
            if id(v) not in self.rings:
                stored[id(self.add(v))] = Memory(v)
                continue
            copy = Node(v, self.group.result(v))
            copy.kind, copy.shape, copy.folded = "view", v.shape, ()
            copy.args = [Ref(self.rings[id(v)], None, identity(v.shape), None)]
            self.order.append(copy)
            stored[id(copy)] = Memory(v)
        return stored

    def is_node(self, use: Use) -> bool:
        """Whether what is read is computed in the kernel, rather than lying in memory."""
        key = id(use.root)
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
        own = id(v) in self.group.classes and self.group.kind != "step"
        node = Node(v, self.group.of(v) if own else None)
        node.total = id(v) in self.group.totals
        below = 0
        for use in uses:
            ref = self.ref(use)
            node.args.append(ref)
            below += ref.node.cost if ref.node is not None else 1
        if v.kind == "scatter":
            node.counted = self.fusion.uses.row_scatter(v)
        if v.kind in ("const", "iota"):
            node.cost = 0
        elif node.kind == "fold":
            node.cost = 1
        else:
            node.cost = min((op_cost(v) if v.kind == "map" else 0) + below, 1 << 20)
        self.by_id[id(v)] = node
        self.order.append(node)

    def ref(self, use: Use) -> Ref:
        """Return what a use reads: a node that was made before, or memory."""
        if id(use.root) in self.rings or self.is_node(use):
            return Ref(self.by_id[id(use.root)], None, use.maps, None, use)
        memory = self.memory(use.root)
        if use.root.kind == "input" and use.maps is not None:
            return Ref(None, memory, None, linear(use.maps, memory.strides), use)
        return Ref(None, memory, None, strided(use.offset, use.strides), use)

    def memory(self, value: Value) -> Memory:
        """Return the memory of a value."""
        found = self.memories.get(id(value))
        if found is None:
            found = self.memories[id(value)] = Memory(value)
        return found
