"""A compiled call as one operation of a graph: `grad(jit(f))`.

The call runs compiled, and leaves one node that keeps its inputs. The reverse rule of the
node is a jitted function too, which runs `f` and its reverse walk as one program; where a
derivative of that is taken, it leaves a node in turn.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from adarray.array import ADArray
from adarray.aval import aval_of
from adarray.device import KINDS, adopt, is_device
from adarray.dispatch import pick
from adarray.errors import TraceError
from adarray.graph import Node, merge_spans
from adarray.guard import keep_plain
from adarray.jitting.generators import GENERATORS
from adarray.jitting.signature import Bound
from adarray.jitting.state import State
from adarray.op import Op, Opaque
from adarray.trace import Handle, save
from adarray.transforms.modes import vjp
from adarray.transforms.tree import flatten


def can_be_node(bound: Bound) -> bool:
    """Whether a call with these arguments can be one node: no tangents, no generators."""
    return not any(
        isinstance(x, GENERATORS)
        or (isinstance(x, Handle) and x._x is not None and bool(x._x.tangents or x._x.slot))
        for x in bound.targets
    )


class Site:
    """The pullback of one signature, for one state of what is captured.

    Parameters
    ----------
    function : JitFunction
    bound : Bound
        The arguments of a call.
    numbers : set of str
        Captured numbers that are inputs.
    followed : tuple of bool
        Which inputs derivatives are taken of.
    """

    def __init__(
        self, function: Any, bound: Bound, numbers: set[str], followed: tuple[bool, ...]
    ) -> None:
        self._function = function
        self._numbers = numbers
        self._leaves = [None if k in set(bound.traced) else x for k, x in enumerate(bound.leaves)]
        self._traced = bound.traced
        self._rebuild = bound.rebuild
        self._statics = bound.statics
        self._followed = [i for i, f in enumerate(followed) if f]
        self._memory = threading.local()
        self.pull = function.like(self._pull)
        name = f"jit({getattr(function, '__name__', 'f')})"
        self.op = Op(name, self._pull, Opaque(), (self._rule,), operands=("*inputs",))

    def _pull(self, values: list[Any], captured: list[Any], cotangents: list[Any]) -> list[Any]:
        """Run the function and its reverse walk; return the cotangents of what is followed."""
        state = State(self._function.target(), self._statics, self._numbers)
        if state.reason or len(state.inputs) != len(captured):
            raise TraceError(
                f"{self.op.name}: what it captured changed between the call and its derivative"
            )
        f, *objects = state.clone(captured).roots
        leaves = list(self._leaves)
        for k, x in zip((k for k in range(len(leaves)) if k not in self._traced), objects,
                        strict=True):  # fmt: skip
            leaves[k] = x
        for k, x in zip(self._traced, values, strict=True):
            leaves[k] = x

        def differentiated(*xs: Any) -> list[Any]:
            for i, x in zip(self._followed, xs, strict=True):
                leaves[self._traced[i]] = x
            args, kwargs = self._rebuild(leaves)
            found, _ = flatten(f(*args, **kwargs))
            return [x for x in found if is_floating(x)]

        _, back = vjp(differentiated, *[values[i] for i in self._followed])
        return list(back(cotangents))

    def _rule(self, g: dict[int, Any], i: int, avals: Any, *operands: Any) -> Any:
        """Return the cotangent of input `i`; those of all inputs are computed at once."""
        known = getattr(self._memory, "last", None)
        if (
            known is None
            or known[0] is not g
            or any(a is not b for a, b in zip(known[1], operands, strict=True))
        ):
            cotangents = [
                g[k] if k in g else np.zeros(a.shape, a.dtype)[()] for k, a in enumerate(avals)
            ]
            count = len(self._traced)
            parts = self.pull.apart(list(operands[:count]), list(operands[count:]), cotangents)
            known = self._memory.last = (g, operands, parts)
        if i == self._followed[-1]:
            self._memory.last = None
        ct = known[2][self._followed.index(i)]
        number = isinstance(ct, (float, complex)) and not is_device(ct)
        return np.asarray(ct)[()] if number else ct


def is_floating(x: Any) -> bool:
    """Whether a leaf of a result is an array that carries a derivative."""
    return isinstance(x, (Handle, np.ndarray, np.generic)) and x.dtype.kind in "fc"  # type: ignore[union-attr]


def attach(site: Site, bound: Bound, captured: list[Any], result: Any) -> Any:
    """Give the ADArrays in the result of a compiled call a node; return the result."""
    leaves, rebuild = flatten(result)
    floating = [x for x in leaves if isinstance(x, ADArray) and is_floating(x)]
    if not floating:
        return result
    parents: list[Node | None] = []
    saved: list[Any] = [tuple(aval_of(x._v) for x in floating)]
    guards = []
    span: tuple[int, int] | None = None
    for x in (*bound.targets, *captured):
        node = None
        if isinstance(x, Handle):
            node = x._node
            saved.append(save(x))
            if node is not None:
                span = node.span if span is None else merge_spans(span, node.span)
        else:
            kept, guard = keep_plain(adopt(x) if type(x) in KINDS else x)
            saved.append(kept)
            if guard is not None:
                guards.append(guard)
        parents.append(node)
    assert span is not None
    made = Node(site.op, tuple(parents), tuple(saved), None, saved[0][0], span, guards or None)
    for k, x in enumerate(floating):
        x._node = pick(made, k, saved[0][k])
    return rebuild(leaves)
