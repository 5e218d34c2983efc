"""Reverse mode: cotangents are pulled back along recorded nodes.

Nodes are visited by falling sequence number, which is a reverse topological
order, with a heap; nothing recurses, so the depth of a graph is not limited.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import numpy as np

from adarray.array import ADArray, backward_hook
from adarray.dispatch import apply
from adarray.errors import NotDifferentiableError, ShapeError, TraceError
from adarray.graph import FREED, LEAF, Node
from adarray.inplace import sync_if_view
from adarray.op import FUNCTIONS
from adarray.ops.common import Placed, unbroadcast
from adarray.protocol import traced
from adarray.runtime import MODE
from adarray.trace import LEVEL, Extras, Handle


class Pullback:
    """One reverse walk.

    Parameters
    ----------
    level : int
        Level of the trace whose inputs are the targets. Nodes that an outer trace
        also depends on run their rules on ADArrays, which records them.
    targets : set of int
        Sequence numbers of the nodes whose cotangents are wanted; empty: all
        leaves with a gradient slot.
    record : bool
        Record every rule, whatever the level.
    """

    def __init__(self, level: int, targets: set[int], record: bool = False) -> None:
        self.level = level
        self.targets = targets
        self.record = record
        self.lowest = min(targets, default=0)
        self.heap: list[int] = []
        self.nodes: dict[int, Node] = {}
        self.cotangents: dict[int, Any] = {}
        self.owned: set[int] = set()  # nodes whose cotangent's buffer belongs to this walk

    def seed(self, node: Node, g: Any) -> None:
        """Add the cotangent `g` of a result."""
        self._add(node, g)

    def _add(self, p: Node, ct: Any) -> None:
        """Accumulate the cotangent `ct` of node `p`."""
        key = -p.seq
        before = self.cotangents.get(key)
        if before is None:
            if type(ct) is Placed:
                ct = ct.add_to(ct.zeros())
                self.owned.add(key)
            self.cotangents[key] = ct
            self.nodes[key] = p
            heappush(self.heap, key)
        elif type(ct) is Placed:
            if key not in self.owned:
                before = owned_copy(before)
                self.owned.add(key)
            self.cotangents[key] = ct.add_to(before)
        elif key in self.owned and not isinstance(ct, Handle):
            self.cotangents[key] = _add_owned(before, ct)
        else:
            self.cotangents[key] = total = before + ct
            if type(total) is np.ndarray or isinstance(total, Handle):
                self.owned.add(key)

    def run(self) -> dict[int, Any]:
        """Walk, and return the cotangents of the targets (or of leaves) by sequence number."""
        heap, nodes, cotangents, targets = self.heap, self.nodes, self.cotangents, self.targets
        level, lowest = self.level, self.lowest
        mode = MODE.get()
        engine = mode.engine if mode is not None else None
        results: dict[int, Any] = {}
        while heap:
            key = heappop(heap)
            node = nodes.pop(key)
            g = cotangents.pop(key)
            if -key in targets or (node.op is LEAF and not targets and node.params):
                results[-key] = g
                if not targets:
                    nodes[key] = node
                continue
            op = node.op
            if node.guard is not None:
                _check_guard(node)
            if op.transfer is not None:
                self._transfer(node, g, key)
                continue
            if op is FREED:
                raise TraceError(
                    "backward: the graph was freed by an earlier backward(); pass "
                    "retain_graph=True to that call to walk it again"
                )
            record = self.record or node.span[0] < level
            saved: Any = node.saved
            if record or type(saved) is list:
                saved = self._handles(node, record)
            aval = node.aval
            i = -1
            for p in node.parents:
                i += 1
                if p is None or p.seq < lowest or p.span[1] < level:
                    continue
                if op.pointwise:
                    if engine is not None and type(g) is np.ndarray and not record:
                        ct = engine.derivative(op, i, g, saved)
                        if ct is NotImplemented:
                            ct = op.rules[i](g, *saved)  # type: ignore[misc]
                    else:
                        ct = op.rules[i](g, *saved)  # type: ignore[misc]
                    if p.aval is not aval:
                        ct = fit(ct, p)
                else:
                    ct = fit(_general(node, i, g, saved), p)
                pkey = -p.seq
                if pkey in cotangents or type(ct) is Placed:
                    self._add(p, ct)
                else:  # what _add does, inlined: most nodes have one reader
                    cotangents[pkey] = ct
                    nodes[pkey] = p
                    heappush(heap, pkey)
        return results

    def _handles(self, node: Node, record: bool) -> tuple[Any, ...]:
        """Return the saved values as ADArrays on the nodes and tangents they came from."""
        made: list[Any] = []
        for v, p in zip(node.saved, (node, *node.parents), strict=False):
            if not isinstance(v, (np.ndarray, np.generic, float, int, Handle)) or p is None:
                made.append(v)
                continue
            tangents: tuple[Any, ...] = ()
            if isinstance(v, Handle):
                assert v._x is not None
                tangents = tuple(t for t in v._x.tangents if t.level < self.level)
                v = v._v
            weak = type(v) is float or type(v) is int
            x = Extras(tangents=tangents, weak=weak) if tangents or weak else None
            made.append(ADArray(v, p, x, True) if record or tangents else v)
        return tuple(made)

    def _transfer(self, node: Node, g: Any, key: int) -> None:
        """Hand the buffer of `g` on to the node that was written into."""
        record = self.record or node.span[0] < self.level
        if key in self.owned:
            self.owned.discard(key)
        else:
            g = owned_copy(g, record)
        assert node.op.transfer is not None
        base_g, value_g = node.op.transfer(g, node)
        base, value = node.parents
        if value is not None and value.seq >= self.lowest and value.span[1] >= self.level:
            self._add(value, fit(value_g, value))
        if base is not None and base.seq >= self.lowest and base.span[1] >= self.level:
            fresh = -base.seq not in self.cotangents
            self._add(base, base_g)
            if fresh:
                self.owned.add(-base.seq)


def _general(node: Node, i: int, g: Any, saved: tuple[Any, ...]) -> Any:
    """Run rule `i` of an operation that is not pointwise."""
    op = node.op
    params = node.params or {}
    if op.variadic and i >= op.arity - 1:
        return op.rules[-1](g, i, *saved, **params)  # type: ignore[misc]
    rule = op.rules[i] if i < len(op.rules) else None
    if rule is None:
        raise NotDifferentiableError(
            f"{op.name}: no derivative with respect to operand {i}; pass it as a plain array, "
            "or use adarray.stop_gradient on it"
        )
    return rule(g, *saved, **params)


def fit(ct: Any, p: Node) -> Any:
    """Bring a cotangent to the shape and dtype of the value it belongs to."""
    aval = p.aval
    if type(ct) is Placed:
        return ct
    if ct.shape != aval.shape:
        ct = unbroadcast(ct, aval.shape)
    if ct.dtype != aval.dtype:
        ct = ct.astype(aval.dtype)
    return ct


def owned_copy(g: Any, record: bool = False) -> Any:
    """Return a copy of a cotangent that the walk may write into."""
    if isinstance(g, Handle):
        return apply(FUNCTIONS[np.copy], (g,), {})
    g = np.array(g)
    return ADArray(g) if record else g


def _add_owned(before: Any, ct: Any) -> Any:
    if isinstance(before, Handle):
        before += ct
        return before
    return np.add(before, ct, out=before)


def _check_guard(node: Node) -> None:
    guards = node.guard if isinstance(node.guard, list) else [node.guard]
    for guard in guards:
        guard.check(node.op.name)


def backward(x: ADArray, gradient: Any, retain_graph: bool, create_graph: bool) -> None:
    """Implement `ADArray.backward`."""
    sync_if_view(x)
    if x._node is None:
        raise TraceError(
            "backward: the array does not depend on a leaf; make one with "
            "adarray.array(..., requires_grad=True)"
        )
    if gradient is None:
        if x.size != 1:
            raise ShapeError(
                f"backward: the array has shape {x.shape}, not a scalar's; reduce it, for "
                "instance with np.sum, or pass gradient= of that shape"
            )
        gradient = np.ones(x.shape, x.dtype)[()]
    elif np.shape(gradient) != x.shape:
        raise ShapeError(
            f"backward: gradient has shape {np.shape(gradient)} and the array {x.shape}; "
            "they must be equal"
        )
    # An active transform may differentiate what this pass computes.
    record = create_graph or LEVEL.get() > 0 or traced(gradient)
    walk = Pullback(0, set(), record)
    walk.seed(x._node, gradient)
    results = walk.run()
    for seq, g in results.items():
        params = walk.nodes[-seq].params
        assert params is not None
        slot = params["slot"]
        made = g if record else np.array(g)
        slot.grad = made if slot.grad is None else slot.grad + made
    if not (retain_graph or create_graph):
        free(x._node)


def free(root: Node) -> None:
    """Drop what the nodes below `root` hold, so that their memory returns at once."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is LEAF or node.op is FREED:
            continue
        stack.extend(p for p in node.parents if p is not None)
        node.op, node.parents, node.saved, node.params, node.guard = FREED, (), (), None, None


backward_hook.append(backward)
