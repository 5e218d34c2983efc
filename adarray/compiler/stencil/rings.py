"""Finding chains of groups that run as one pipeline over rows (see `lower_rings`).

References
----------
- D. Wonnacott, "Using time skewing to eliminate idle time due to memory bandwidth and network
  limitations", IPDPS 2000.
- S. Krishnamoorthy et al., "Effective automatic parallelization of stencil computations", PLDI
  2007.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from adarray.compiler.fusion.fuse import Fusion
from adarray.compiler.fusion.groups import Group
from adarray.compiler.ir.primitives import Concatenate, GatherND, ScatterND
from adarray.compiler.ir.program import Value
from adarray.compiler.ir.target import Target
from adarray.compiler.kernels.lower import Lowering
from adarray.compiler.kernels.nodes import Cloned, Folded, FromRing, KernelNode, Nodes, Ref
from adarray.compiler.kernels.scope import NOTHING, Affine
from adarray.compiler.kernels.values import Index, Stored, mapped
from adarray.compiler.stencil.lower_rings import Ring, RingStage, rotation

# Rows between what a step reads and writes; rows that are worth it.
FAR, ROWS = 4, 64
# Elements of a row that make a vector loop, and bytes of an array that leaves the cache.
WIDE, LARGE = 64, 1 << 18
# Whether what is read lies behind a concatenation of rows, and whether that is a rotation.
CONCATENATED, ROTATED = 1, 2
ROW: tuple[tuple[str, int], ...] = (("row", 1),)


# Nodes, at which index they are read, and whether concatenations lie between.
Stack = list[tuple[KernelNode, Index, int]]


class Reach:
    """Which rows of values of a chain the rows of a group read.

    Attributes
    ----------
    rows : dict
        Nearest and farthest row, relative to the reader's, by value.
    rotates : bool
        Whether rows are counted round the end.
    fits : bool
        Whether a pipeline can do it.
    """

    def __init__(self, nodes: Nodes, chained: dict[Value, Ring], count: int) -> None:
        self.rows: dict[Value, tuple[int, int]] = {}
        self.rotates = False
        self.fits = True
        self.mixed = False
        self.wraps = False
        self.count = count
        self.chained = chained
        outer = nodes.group.find(nodes.group.outer)
        seen: set[tuple[KernelNode, Index, int]] = set()
        stack: Stack = [
            (node, _natural(node, outer), 0)
            for node in nodes.order
            if node.classes is not None and outer in node.classes
        ]
        while stack and self.fits:
            item = stack.pop()
            if item not in seen:
                seen.add(item)
                self._visit(*item, stack)
        if self.rotates and self.mixed:
            self.fits = False

    def _visit(self, node: KernelNode, index: Index, how: int, stack: Stack) -> None:
        if isinstance(node.operation, (GatherND, ScatterND)):
            self.fits = not any(self._is_chained(r) for r in node.args)
            return
        if isinstance(node.operation, Concatenate) and index[node.operation.axis].terms == ROW:
            how = how or CONCATENATED
            self.wraps = False
            same = rotation(node.operation.axis, node, index, ROW, self._near)
            if same is not None and self.wraps:
                self._follow(same[0], same[1], ROTATED, stack)
                return
            self.mixed = True
        for ref in node.args:
            if ref.use is None or ref.use.maps is None:
                self.fits = self.fits and not self._is_chained(ref)
                self.mixed = True
            else:
                self._follow(ref, mapped(ref.use.maps, index), how, stack)

    def _follow(self, ref: Ref, index: Index, how: int, stack: Stack) -> None:
        """Note or pursue what is read at `index`."""
        if self._is_chained(ref):
            self.rotates = self.rotates or how == ROTATED
            self._note(ref, index)
        elif ref.node is None:
            self.mixed = self.mixed or how > 0
        elif not isinstance(ref.node.operation, Folded):
            stack.append((ref.node, index, how))

    def _is_chained(self, ref: Ref) -> bool:
        return ref.memory is not None and ref.memory.value in self.chained

    def _near(self, shift: int) -> int:
        if 2 * abs(shift) > self.count:
            self.wraps = True
            shift += -self.count if shift > 0 else self.count
        return shift

    def _note(self, ref: Ref, index: Index) -> None:
        """Note the row that is read of a value of the chain."""
        assert ref.memory is not None
        key = ref.memory.value
        at = index[self.chained[key].axis]
        shift = self._near(at.const)
        if at.terms != ROW or abs(shift) > FAR:
            self.fits = False
            return
        self.rotates = self.rotates or shift != at.const
        low, high = self.rows.get(key, (shift, shift))
        self.rows[key] = (min(low, shift), max(high, shift))


def _natural(node: KernelNode, outer: int) -> Index:
    assert node.classes is not None
    return tuple(
        Affine(0, (("row" if c == outer else f"c{c}", 1),)) if c >= 0 else NOTHING
        for c in node.classes
    )


class RingChain:
    """Groups that run as one pipeline.

    Attributes
    ----------
    groups : list of Group
    rings : dict
        Rings of the values that only the chain reads or that it reads again.
    """

    def __init__(self, head: Group, count: int) -> None:
        self.groups = [head]
        self.reaches: list[Reach | None] = [None]
        self.produced: dict[Value, Ring] = {}
        self.maker: dict[Value, int] = {}
        self.count = count

    def add_values(self, group: Group, values: Iterable[Value]) -> None:
        """Take in the values by rows that a group of the chain stores."""
        outer = group.find(group.outer)
        for v in values:
            if v in group.totals or outer not in group.result(v):
                continue
            axis = group.result(v).index(outer)
            self.produced[v] = Ring(v.shape, axis)
            self.maker[v] = len(self.groups) - 1

    def read(self) -> dict[Value, Ring]:
        """Return the rings of the values that later groups of the chain read."""
        read = {k for r in self.reaches if r is not None for k in r.rows}
        return {k: r for k, r in self.produced.items() if k in read}

    @property
    def bytes(self) -> int:
        """About how much memory the rings take."""
        return sum(4 * r.width * k.dtype.itemsize for k, r in self.read().items())


def find_chains(
    groups: list[Group],
    nodes: dict[int, Nodes],
    requested: Container[Value],
    target: Target,
) -> list[RingChain]:
    """Return chains among groups that run one after the other."""
    chains: list[RingChain] = []
    chain: RingChain | None = None
    for group in groups:
        stored = [m for m in group.members if m in requested]
        grown = chain is not None and _grow(chain, group, stored, nodes, target)
        if not grown:
            chain = _begin(group, stored, nodes)
        if chain is not None and len(chain.groups) == 2 and grown:
            chains.append(chain)
    return chains


def _begin(group: Group, stored: list[Value], nodes: dict[int, Nodes]) -> RingChain | None:
    if group.kind != "rows" or group.index not in nodes:
        return None
    outer = group.find(group.outer)
    chain = RingChain(group, group.extents[outer])
    chain.add_values(group, stored)
    large = [k for k in chain.produced if k.nbytes >= LARGE]
    if chain.count < ROWS or not large or not _wide(nodes[group.index], group):
        return None
    return chain


def _wide(nodes: Nodes, group: Group) -> bool:
    """Whether all loops inside a row are long, and rows lie one after the other."""
    outer = group.find(group.outer)
    return all(
        node.classes is None
        or outer not in node.classes
        or (node.classes.index(outer) == 0 and max((n for n in node.shape[1:]), default=0) >= WIDE)
        for node in nodes.order
    )


def _grow(
    chain: RingChain, group: Group, stored: list[Value], nodes: dict[int, Nodes], target: Target
) -> bool:
    """Add a group to a chain, if it reads rows near those that the chain computes."""
    if len(chain.groups) >= target.chain or group.kind != "rows" or group.index not in nodes:
        return False
    if group.extents[group.find(group.outer)] != chain.count:
        return False
    reach = Reach(nodes[group.index], chain.produced, chain.count)
    if not reach.fits or not reach.rows or not _wide(nodes[group.index], group):
        return False
    chain.groups.append(group)
    chain.reaches.append(reach)
    if chain.bytes > target.cache:
        chain.groups.pop()
        chain.reaches.pop()
        return False
    chain.add_values(group, stored)
    return True


class Pipeline:
    """The stages of a chain.

    Parameters
    ----------
    chain : RingChain
    fusion : Fusion
    cloned : callable
        As for `Nodes`.
    requested : container of Value
        Values that are stored.
    external : callable
        ``external(value, groups)``: whether other groups than these read a value.
    """

    def __init__(
        self,
        chain: RingChain,
        fusion: Fusion,
        cloned: Cloned,
        requested: Container[Value],
        external: Callable[[Value, list[Group]], bool],
    ) -> None:
        self.chain = chain
        self.rings = chain.read()
        self.parts: list[tuple[int, Nodes, Stored]] = []
        self.valid = True
        at_hand: dict[Value, KernelNode] = {}
        for k, group in enumerate(chain.groups):
            mine = {v: self._node(v) for v in self.rings if chain.maker[v] == k}
            if mine:
                nodes = Nodes(group, fusion, cloned, at_hand)
                stored = {nodes.add(v): self.rings[v] for v in mine}
                self.parts.append((k, nodes, stored))
            at_hand = at_hand | mine
            wanted = [
                m
                for m in group.members
                if m in requested and (m not in mine or external(m, chain.groups))
            ]
            if wanted:
                nodes = Nodes(group, fusion, cloned, at_hand)
                self.parts.append((k, nodes, nodes.results(wanted)))
        members = {m for g in chain.groups for m in g.members}
        for _, nodes, _ in self.parts:
            self.valid = self.valid and not any(key in members for key in nodes.memories)

    def _node(self, value: Value) -> KernelNode:
        node = KernelNode(value, None)
        node.operation, node.shape, node.folded = FromRing(), value.shape, ()
        node.cost = 1
        node.ring = self.rings[value]
        return node

    def stages(self, target: Target) -> list[RingStage]:
        """Return the stages; rings get their numbers of rows."""
        chain = self.chain
        lag = [0] * len(chain.groups)
        for k, reach in enumerate(chain.reaches):
            for key, (_, high) in (reach.rows if reach else {}).items():
                lag[k] = max(lag[k], lag[chain.maker[key]] + high)
        before, after = [0] * len(lag), [0] * len(lag)
        for k in reversed(range(len(lag))):
            reach = chain.reaches[k]
            for key, (low, high) in (reach.rows if reach else {}).items():
                a = chain.maker[key]
                before[a] = max(before[a], before[k] - low)
                after[a] = max(after[a], after[k] + high)
                need, ring = lag[k] - lag[a] - low + 1, chain.produced[key]
                while ring.rows < max(need, 1):
                    ring.rows = max(1, 2 * ring.rows)
        stages: list[RingStage] = []
        base: Lowering | None = None
        for k, nodes, stored in self.parts:
            group = chain.groups[k]
            reach = chain.reaches[k]
            outer = group.find(group.outer)
            extents = list(group.extents)
            lowering = Lowering(nodes.order, stored, outer, extents, base, True, target)
            base = base or lowering
            rings = any(isinstance(s, Ring) for s in stored.values())
            stages.append(RingStage(
                lowering, before[k] if rings else 0, after[k] if rings else 0, lag[k],
                reach is not None and reach.rotates,
            ))  # fmt: skip
        return stages

    def orders(self) -> list[list[KernelNode]]:
        """Return the nodes of every stage."""
        return [nodes.order for _, nodes, _ in self.parts]

    @property
    def rotates(self) -> bool:
        """Whether rows are counted round the end anywhere."""
        return any(r is not None and r.rotates for r in self.chain.reaches)
