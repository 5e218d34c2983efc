"""Stages of a kernel: in which loop nest, and after which others, each value is computed.

An iteration of the outer loop is a sequence of nests. What folds over inner axes is known after
its nest; so what reads a fold runs in a later one. A value that several nests read is kept
in local arrays of the iteration if computing it again would cost more.
"""

from __future__ import annotations

from collections.abc import Set

from adarray.compiler.ir.domains import aligned
from adarray.compiler.ir.primitives import Constant, Iota
from adarray.compiler.kernels.nodes import Folded, KernelNode, Ref

Place = tuple[int, frozenset[int]]


class Stages:
    """Times, nests and kept values of the nodes of a kernel.

    Parameters
    ----------
    order : list of KernelNode
        Operands first.
    stored : set of KernelNode
        Nodes that are written to memory.
    outer : set of int
        Classes of the outer loop, none if there is no such loop.
    blocked : bool
        Whether an iteration of the outer loop runs over a block of rows, by its innermost loops.
    keep : int
        Cost from which on values are kept; others are computed again in every nest.
    """

    def __init__(
        self,
        order: list[KernelNode],
        stored: Set[KernelNode],
        outer: Set[int],
        blocked: bool,
        keep: int,
    ) -> None:
        self.order = order
        self.dear = keep
        self.stored = stored
        self.outer = outer
        self.blocked = blocked
        self.local: set[KernelNode] = set()
        self.time: dict[KernelNode, int] = {}
        self._set_times()
        self._keep()
        self._set_times()

    def nest(self, node: KernelNode) -> frozenset[int]:
        """Return the classes of the loops in which a node is computed."""
        assert node.classes is not None
        without: Set[int] = frozenset() if self.blocked else self.outer
        return frozenset(c for c in node.classes if c >= 0 and c not in without)

    def results(self, node: KernelNode) -> frozenset[int]:
        """Return the classes of the loops of a node's result."""
        without: Set[int] = frozenset() if self.blocked else self.outer
        return frozenset(c for c in node.result if c >= 0 and c not in without)

    def _after(self, node: KernelNode, ref_node: KernelNode, exact: bool) -> int:
        """Return the time at which `node` can read another."""
        time = self.time[ref_node]
        if isinstance(ref_node.operation, Folded):
            return time + 1
        if ref_node not in self.local:
            return time
        here = node.classes is not None and exact and self.nest(node) == self.nest(ref_node)
        return time if here else time + 1

    def _set_times(self) -> None:
        for node in self.order:
            time = 0
            for ref in node.args:
                if ref.node is not None:
                    time = max(time, self._after(node, ref.node, self._exact(node, ref)))
            self.time[node] = time

    @staticmethod
    def _exact(node: KernelNode, ref: Ref) -> bool:
        """Whether a node reads another at its own indices."""
        assert ref.node is not None
        assert ref.maps is not None
        # Of axes as they are now: some may have become one.
        shape = [ref.node.shape[a] for a in ref.node.unfolded]
        return all(
            n == 1 or aligned(m, n, node.shape) >= 0 for m, n in zip(ref.maps, shape, strict=True)
        )

    def _keep(self) -> None:
        """Find the values that are worth keeping."""
        where: dict[KernelNode, set[Place]] = {}
        for node in reversed(self.order):
            mine = where.setdefault(node, set())
            root = isinstance(node.operation, Folded) or node in self.stored
            if node.classes is not None and (root or self._worth(node, mine)):
                if not root:
                    self.local.add(node)
                mine = {(self.time[node], self.nest(node))}
            for ref in node.args:
                if ref.node is None:
                    continue
                below = where.setdefault(ref.node, set())
                below |= mine
                if not self._exact(node, ref):
                    below.add((-1 - len(below), frozenset()))
        for node in self.order:
            if node in self.stored and not isinstance(node.operation, Folded) and node.cost > 2:
                self.local.add(node)

    def _worth(self, node: KernelNode, places: set[Place]) -> bool:
        if isinstance(node.operation, (Constant, Iota, Folded)) or node.classes is None:
            return False
        if not self.nest(node):
            return False
        if not self.blocked and not self.outer <= set(node.classes):
            return False
        # What is the same in all iterations of a loop around it is computed before that loop.
        mine = self.nest(node)
        return node.cost >= self.dear and (
            len(places) > 1 or any(mine < nest for _, nest in places)
        )
