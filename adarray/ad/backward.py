"""`ADArray.backward`: gradients of leaves, which hold them."""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.ad.reverse import Pullback
from adarray.arrays.adarray import ADArray, backward_hook
from adarray.base.aval import Symbolic
from adarray.base.errors import DTypeError, ShapeError, TraceError
from adarray.base.levels import LEVEL
from adarray.core.graph import FREED, LEAF, Node
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import plain, traced
from adarray.core.trace import Handle, root_of
from adarray.device import is_device


def backward(x: ADArray, gradient: Any, retain_graph: bool, create_graph: bool) -> None:
    """Implement `ADArray.backward`."""
    sync_if_view(x)
    if x._node is None:
        raise TraceError(
            "backward: the array does not depend on a leaf; make one with "
            "adarray.array(..., requires_grad=True)"
        )
    if gradient is None:
        if x.dtype.kind == "c":
            raise DTypeError(
                f"backward: the array is {x.dtype}; return a real number, for instance its "
                "absolute value, or pass gradient="
            )
        if x.size != 1:
            raise ShapeError(
                f"backward: the array has shape {x.shape}, not a scalar's; reduce it, for "
                "instance with np.sum, or pass gradient= of that shape"
            )
        gradient = _ones_like(x)
    elif _shape(gradient) != x.shape:
        raise ShapeError(
            f"backward: gradient has shape {_shape(gradient)} and the array {x.shape}; "
            "they must be equal"
        )
    # An active transform may differentiate what this pass computes.
    record = create_graph or LEVEL.get() > 0 or traced(gradient)
    walk = Pullback(0, set(), record)
    walk.add(x._node, gradient if record else _plain_gradient(gradient, x._plain))
    walk.run()
    for slot, g in walk.slots:
        part = g if record else _gradient_for(slot, g)
        slot.grad = part if slot.grad is None else slot.grad + part
    if not (retain_graph or create_graph):
        _free(x._node)


def _shape(x: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] | None = getattr(x, "shape", None)
    return np.shape(x) if shape is None else shape


def _plain_gradient(g: Any, v: Any) -> Any:
    """Return a gradient to begin with as plain values, where the result `v` is."""
    if isinstance(g, Handle):
        if isinstance(sync_if_view(g)._plain, Symbolic):
            return g
        root_of(g)._frozen = True  # what comes out may share its memory
        g = g._plain
    if is_device(v):
        if not is_device(g):
            g = v.library.place(g if hasattr(g, "dtype") else np.asarray(g))
        return g if g.dtype == v.dtype else g.astype(v.dtype)
    return g


def _ones_like(x: Any) -> Any:
    """Return ones to begin a reverse walk at the ADArray `x` with, where its values are."""
    if is_device(x._plain):
        return np.ones_like(x._plain)[()]
    return np.ones(x.shape, x.dtype)[()]


def _gradient_for(slot: Any, g: Any) -> Any:
    """Return the gradient of a leaf: an ndarray, or an ADArray on the device of the leaf."""
    if slot.library is None:
        return np.array(plain(g))
    g = slot.library.place(plain(g))
    return ADArray(g.library.wrap(g.raw, g.scalar), None, None, True)  # others may hold it too


def _free(root: Node) -> None:
    """Drop what the nodes below `root` hold, so that their memory returns at once."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.op is LEAF or node.op is FREED:
            continue
        stack.extend(p for p in node.parents if p is not None)
        node.op, node.parents, node.saved, node.params, node.guard = FREED, (), (), None, None


backward_hook.set(backward)
