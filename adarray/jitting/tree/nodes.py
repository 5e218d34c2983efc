"""A compiled call as one operation of a graph: `grad(jit(f))`.

The call runs compiled, and leaves one node that keeps its inputs. The reverse rule of the
node is a jitted function too, which runs `f` and its reverse walk as one program; where a
derivative of that is taken, it leaves a node in turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aval import aval_of
from adarray.base.errors import TraceError
from adarray.base.op import Op, Opaque
from adarray.core.dispatch import pick
from adarray.core.graph import Node, merge_spans
from adarray.core.guard import keep_plain
from adarray.core.trace import Handle, save
from adarray.device import KINDS, adopt, is_device
from adarray.jitting.captures.state import CapturedState
from adarray.jitting.shared.generators import GENERATORS
from adarray.jitting.shared.signature import Bound
from adarray.transforms.calls import Latest
from adarray.transforms.modes import vjp
from adarray.transforms.tree import flatten


def can_be_node(bound: Bound) -> bool:
    """Whether a call with these arguments can be one node: no tangents, no generators."""
    return not any(
        isinstance(x, GENERATORS)
        or (isinstance(x, Handle) and x._x is not None and bool(x._x.tangents or x._x.slot))
        for x in bound.targets
    )


class _Pull:
    """The reverse walk of a function, for one state of what is captured.

    Parameters
    ----------
    function : JitFunction
        Only referred to: it has this among what it compiled, and calls that were recorded
        keep it.
    bound : Bound
        The arguments of a call.
    numbers : set of str
        Captured numbers that are inputs.
    followed : list of int
        The inputs that derivatives are taken of.
    check : callable
        That of the state: what is compared, and no input, must be as the call has seen it when
        this runs. Once it is compiled, it need not check.
    """

    def __init__(
        self,
        function: Any,
        bound: Bound,
        numbers: set[str],
        followed: list[int],
        check: Callable[[Any], Any],
    ) -> None:
        self._function = weakref.ref(function)
        self._numbers = numbers
        self._leaves = [None if k in set(bound.traced) else x for k, x in enumerate(bound.leaves)]
        self._traced = bound.traced
        self._rebuild = bound.rebuild
        self._statics = bound.statics
        self._followed = followed
        self._same = bound.same
        self._check = check
        self._linked = bound.linked  # results that are no values of the call

    def owner(self) -> Any:
        """Return the function, None if it is gone."""
        return self._function()

    def run(self, values: list[Any], captured: list[Any], cotangents: list[Any]) -> list[Any]:
        """Run the function and its reverse walk; return the cotangents of what is followed."""
        function = self._function()
        assert function is not None
        state = CapturedState(function.target(), self._statics, self._numbers)
        if state.reason or len(state.inputs) != len(captured) or self._check(self._statics) is None:
            raise TraceError(
                f"{_name(function)}: what it captured changed between the call and its derivative; "
                "change it after the gradient is taken, or pass it as an argument"
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
            for i, first in enumerate(self._same):  # one array is one there, too
                leaves[self._traced[i]] = leaves[self._traced[first]]
            args, kwargs = self._rebuild(leaves)
            results, _ = flatten(f(*args, **kwargs))
            return [x for k, x in enumerate(results) if k not in self._linked and is_floating(x)]

        _, back = vjp(differentiated, *[values[i] for i in self._followed])
        return list(back(cotangents))


class _Rule:
    """The derivative rule of a compiled call.

    Parameters
    ----------
    pull : JitFunction
        Of `_Pull.run`.
    count : int
        How many inputs are arguments; the others are captured.
    followed : list of int
    """

    def __init__(self, pull: Any, count: int, followed: list[int]) -> None:
        self._pull = pull
        self._count = count
        self._followed = followed
        self._memory = Latest()

    def rule(self, g: dict[int, Any], i: int, saved: tuple[Any, Any], *operands: Any) -> Any:
        """Return the cotangent of input `i`; those of all inputs are computed at once.

        `saved` are the results' avals and the function, which `pull` may have to run.
        """
        known = self._memory.last
        if (
            known is None
            or known[0] is not g
            or any(a is not b for a, b in zip(known[1], operands, strict=True))
        ):
            cotangents = [
                g[k] if k in g else np.zeros(a.shape, a.dtype)[()] for k, a in enumerate(saved[0])
            ]
            count = self._count
            parts = self._pull.apart(list(operands[:count]), list(operands[count:]), cotangents)
            known = self._memory.last = (g, operands, parts)
        if i == self._followed[-1]:
            self._memory.last = None
        ct = known[2][self._followed.index(i)]
        number = isinstance(ct, (float, complex)) and not is_device(ct)
        return np.asarray(ct)[()] if number else ct


def _name(function: Any) -> str:
    return f"jit({getattr(function, '__name__', 'f')})"


def op_of(
    function: Any,
    bound: Bound,
    numbers: set[str],
    followed: tuple[bool, ...],
    check: Callable[[Any], Any],
) -> Op:
    """Return calls of one signature as an operation, for one state of what is captured.

    Nothing in it refers to `function`, or to itself, so that both are freed with their last user.

    Parameters
    ----------
    function : JitFunction
    bound : Bound
        The arguments of a call.
    numbers : set of str
        Captured numbers that are inputs.
    followed : tuple of bool
        Which inputs derivatives are taken of.
    check : callable
        Whether what is captured is as it was; see `adarray.jitting.captures.state.CapturedState`.
    """
    wanted = [i for i, f in enumerate(followed) if f]
    run = _Pull(function, bound, numbers, wanted, check).run
    rule = _Rule(function.like(run), len(bound.traced), wanted).rule
    return Op(_name(function), run, Opaque(), (rule,), operands=("*inputs",))


def are_of(owners: list[Any], values: list[Any]) -> bool:
    """Whether captured ADArrays still hold the values that a call has read."""
    pairs = zip(owners, values, strict=True)
    return all(h._plain is x for h, x in pairs if isinstance(h, Handle))


def needed(function: Any) -> list[Any]:
    """Return a function with those that it only refers to, whose reverse walks it may be."""
    functions = [function]
    while True:
        pull = getattr(getattr(functions[-1], "_f", None), "__self__", None)
        owner = pull.owner() if isinstance(pull, _Pull) else None
        if owner is None:
            return functions
        functions.append(owner)


def is_floating(x: Any) -> bool:
    """Whether a leaf of a result is an array that carries a derivative."""
    return isinstance(x, (Handle, np.ndarray, np.generic)) and x.dtype.kind in "fc"  # type: ignore[union-attr]


def attach(op: Op, function: Any, bound: Bound, captured: list[Any], result: Any) -> Any:
    """Give the ADArrays in the result of a compiled call a node; return the result."""
    leaves, rebuild = flatten(result)
    floating = [
        x for k, x in enumerate(leaves)
        if k not in bound.linked and isinstance(x, ADArray) and is_floating(x)
    ]  # fmt: skip
    if not floating:
        return result
    parents: list[Node | None] = []
    avals = tuple(aval_of(x._plain) for x in floating)
    saved: list[Any] = [(avals, needed(function))]
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
            # The function will read it again: with the flags and strides that it has.
            value, guard = keep_plain(adopt(x) if type(x) in KINDS else x, layout=True)
            saved.append(value)
            if guard is not None:
                guards.append(guard)
        parents.append(node)
    assert span is not None
    call = Node(op, tuple(parents), tuple(saved), None, avals[0], span, guards or None)
    for k, x in enumerate(floating):
        x._node = pick(call, k, avals[k])
    return rebuild(leaves)
