"""Runs of a function that are recorded to be walked back by a derivative rule.

What the function reads besides its arguments, such as the weights that a closure captured, is
found in the recorded graph: it was made before the run. The walk stops there, and the rule hands
the cotangents on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from adarray.ad.reverse import WALK, Pullback
from adarray.base.aval import Aval
from adarray.base.levels import OPEN, within
from adarray.core.graph import LEAF, STOP, Node
from adarray.core.inplace import sync_if_view
from adarray.core.trace import Handle, Tangent, tracing
from adarray.ops.common import zero_beside
from adarray.transforms.inputs import Inputs
from adarray.transforms.modes import as_cotangent
from adarray.transforms.shared import refuse_unseen
from adarray.transforms.tree import flatten

# Of a node that has no value.
_NONE = Aval((), np.dtype(float))


def mark() -> Node:
    """Return a node that is younger than all others made so far."""
    return Node(STOP, (), (), None, _NONE, (0, 0))


def nodes_before(start: Node, nodes: Iterable[Node | None]) -> list[Node]:
    """Return the nodes older than `start` that younger ones were computed from, oldest first.

    Leaves that were made since are ends: what they stand for is an argument.
    """
    limit = start.order
    older: dict[int, Node] = {}
    seen: set[int] = set()
    stack = [n for n in nodes if n is not None]
    while stack:
        node = stack.pop()
        order = node.order
        if order > limit:
            older[order] = node
        elif order not in seen:
            seen.add(order)
            if node.op is not LEAF:
                stack += [p for p in node.parents if p is not None]
    return [older[k] for k in sorted(older, reverse=True)]


class Replay:
    """One recorded run of a function.

    Parameters
    ----------
    name : str
        The operation, for errors.
    f : callable
        Returns an array or a nest of arrays.
    operands : sequence
        Its arguments, arrays and numbers, all of which are differentiated.

    Attributes
    ----------
    leaves : list
        Of the result.
    rebuild : callable
        Puts leaves into the structure of the result.
    captured : list of Node
        What was made before the run, and read.
    """

    def __init__(self, name: str, f: Callable[..., Any], operands: Sequence[Any]) -> None:
        self.name = name
        self._start = mark()
        with tracing(name) as level:
            inputs = Inputs(name, tuple(operands), tuple(range(len(operands))), level, f)
            y = f(*inputs.args)
            if inputs.plain:
                refuse_unseen(f, f"{name}: argument", inputs.plain)
            self.leaves, self.rebuild = flatten(y)
            # Writes into a result that follow must not move the start of the walk.
            self._nodes = [
                sync_if_view(x)._node if isinstance(x, Handle) else None for x in self.leaves
            ]
        inputs.closed = True
        self._inputs = inputs
        self.captured = nodes_before(self._start, self._nodes)

    def differs(self, known: Iterable[Node]) -> bool:
        """Whether the walk of now reaches other captured nodes than those that are known."""
        level = walk_level()
        mine = {n.order for n in self.captured if n.span[1] >= level}
        return mine != {n.order for n in known if n.span[1] >= level}

    def pull(self, cotangents: Sequence[Any], captured: Sequence[Node] = ()) -> list[Any]:
        """Return cotangents of the operands, and then of captured nodes; once only.

        Parameters
        ----------
        cotangents : sequence
            One for each leaf of the result; None is zero.
        captured : sequence of Node
            Those that are asked for.
        """
        around = WALK.get()
        level = self._inputs.level if around is None else around.level
        record = around is not None and around.record
        inputs = self._inputs
        inputs.check()
        walk = Pullback(level, {n.order for n in inputs.nodes}, record, release=True)
        walk.stop_at(self._start)
        for node, g in zip(self._nodes, cotangents, strict=True):
            if node is not None and g is not None:
                walk.add(node, walk.seed(as_cotangent(g, node)))
        by_order = walk.run()
        own = inputs.cotangents(by_order)
        return own + [self._of(by_order.get(n.order), n, own, cotangents) for n in captured]

    @staticmethod
    def _of(g: Any, node: Node, *beside: Sequence[Any]) -> Any:
        """Return the cotangent of a captured value; zeros, if none came."""
        if g is not None:
            return g
        like = next((x for xs in beside for x in xs if x is not None), None)
        value = like._plain if isinstance(like, Handle) else like
        return zero_beside(value, node.aval.shape, node.aval.dtype)


def walk_level() -> int:
    """Return the level of the walk whose rules run now."""
    around = WALK.get()
    return 0 if around is None else around.level


def tangents_of(leaves: Iterable[Any]) -> list[Tangent]:
    """Return the tangents of all ADArrays among leaves, with those of tangents."""
    tangents: list[Tangent] = []
    stack = [x for x in leaves if isinstance(x, Handle)]
    while stack:
        x = sync_if_view(stack.pop())
        if x._x is not None and x._x.tangents:
            tangents += x._x.tangents
            stack += [t.value for t in x._x.tangents]
    return tangents


def is_forward_over_reverse(leaves: Sequence[Any], captured: Sequence[Node] = ()) -> bool:
    """Whether all tangents belong to traces around all those that walk back, of which one is.

    Then nothing that a walk starts from depends on a tangent.
    """
    tangents = tangents_of(leaves)
    if not tangents:
        return True
    forward = {t.level for t in tangents}
    nodes = [x._node for x in leaves if isinstance(x, Handle)]
    nodes += [*captured, *(t.value._node for t in tangents)]
    back: set[int] = set()
    for node in nodes:
        if node is None:
            continue
        low, high = node.span
        if low == 0 or (high not in OPEN and high not in forward):
            return False
        back.update(within(low, high))
    return bool(back - forward) and min(back - forward) > max(forward)
