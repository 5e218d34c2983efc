"""Calls of functions that are one operation each, such as those of `checkpoint`.

The function runs with values of which no derivative is taken, and leaves one node. The rule of the
node runs the function again, with its derivative, or the rule that its author gave. Where the rule
itself is differentiated, its operands are traced, and everything in it is computed from them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray
from adarray.base.aval import aval_of
from adarray.base.errors import TraceError
from adarray.base.levels import LEVEL
from adarray.base.op import Op, Opaque
from adarray.base.runtime import MODE
from adarray.base.transformed import global_name
from adarray.core.dispatch import pick
from adarray.core.graph import Node, merge_spans
from adarray.core.inplace import sync_if_view
from adarray.core.protocol import traced
from adarray.core.saving import OfMembers
from adarray.core.tangents import save_tangents
from adarray.core.trace import Extras, Handle, Tangent, is_weak, root_of, save
from adarray.transforms.replay import (
    is_forward_over_reverse,
    mark,
    nodes_before,
    tangents_of,
    walk_level,
)
from adarray.transforms.running import check_computed, check_function, prepared
from adarray.transforms.tree import flatten


class Latest(threading.local):
    """The last result of a rule in this thread, with its cotangents and operands."""

    last: tuple[Any, tuple[Any, ...], Any] | None = None


@dataclasses.dataclass
class RuleCall(OfMembers):
    """One call, as its rule needs it; no tuple, which the walk would take for results.

    Parameters
    ----------
    args : tuple
        As the caller gave them.
    rebuild : callable
        Puts leaves into the structure of those that are differentiated.
    residuals : any
        What the rule has saved for the way back.
    places : list of int
        The floating leaves of the result.
    leaves : int
        How many leaves the result has.
    rebuild_result : callable
    avals : tuple of Aval
        Of the floating leaves of the result.
    followed : list of int
        The leaves of the arguments that have a node, and then what was captured.
    nodes : list of Node or None
        Of the leaves of the arguments, and of what was captured.
    captured : list of Node
        What the function read besides its arguments.
    span : tuple of int
        Of the node.
    tangents : bool
        Whether traces in forward mode are around those that walk back.
    """

    args: tuple[Any, ...]
    rebuild: Any
    residuals: Any
    places: list[int]
    leaves: int
    rebuild_result: Any
    avals: tuple[Any, ...] = ()
    followed: list[int] = dataclasses.field(default_factory=list)
    nodes: list[Node | None] = dataclasses.field(default_factory=list)
    captured: list[Node] = dataclasses.field(default_factory=list)
    span: tuple[int, int] = (0, 0)
    tangents: bool = False

    def of_member(self, of: Callable[[Any], Any]) -> RuleCall:
        """Return the call of one member of a batch: `of` takes its part of a leaf."""
        if self.captured:
            raise TraceError(
                "vmap: members of a batch go different ways in the rule of a function that reads "
                "traced values besides its arguments; pass these as arguments"
            )
        call = copy.copy(self)
        residuals = self.residuals
        call.residuals = (
            residuals.of_member(of) if isinstance(residuals, OfMembers) else _each(residuals, of)
        )
        call.args = _each(self.args, of)
        return call

    def targets(self) -> list[Node]:
        """Return the captured nodes that the current walk reaches."""
        return [n for n in self.captured if n.span[1] >= walk_level()]


def _empty(cls: type) -> Any:
    """Return an object whose state follows, when it is unpickled."""
    return object.__new__(cls)


class Whole:
    """A function whose calls are one operation each, where a derivative is taken.

    Parameters
    ----------
    name : str
        Of the transform, for errors.
    f : callable
    fixed : sequence of int
        Positions of the arguments that are not differentiated, and passed as they are.
    """

    # Whether the function may read traced values that are no arguments.
    captures = False
    # Whether tangents of traces around those that walk back are computed with the result.
    keeps_tangents = False
    # Whether what it keeps may share memory with what it returns.
    holds = True

    def __init__(self, name: str, f: Callable[..., Any], fixed: Sequence[int] = ()) -> None:
        check_function(name, f)
        with contextlib.suppress(AttributeError, TypeError):
            functools.update_wrapper(self, f)
        self._name = name
        self._f = f
        self._fixed = tuple(fixed)
        self._prepare()

    def _prepare(self) -> None:
        """Make the operation that records calls of this object."""
        text = f"{self._name}({getattr(self._f, '__name__', 'f')})"
        self._op = Op(text, self._f, Opaque(), (self._rule,), operands=("*inputs",))
        self._memory = Latest()

    def functions(self) -> tuple[str, ...]:
        """Return the names of the attributes that hold functions of the user's."""
        return ("_f",)

    def over(self, functions: dict[str, Any]) -> Any:
        """Return the same over other functions in the places of these."""
        copied = object.__new__(type(self))
        copied.__setstate__({**self.__dict__, **functions})
        return copied

    def __copy__(self) -> Whole:
        return self  # as functions are

    def __deepcopy__(self, memo: Any) -> Whole:
        return self

    def __reduce__(self) -> Any:
        return global_name(self) or (_empty, (type(self),), self.__getstate__())

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_op", "_memory")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        return f"<{self._name} of {self._f!r}>"

    def __get__(self, obj: Any, cls: type | None = None) -> Any:
        return self if obj is None else functools.partial(self, obj)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        if kwargs:
            bound = inspect.signature(self._f).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        leaves, rebuild = flatten(self._moving(args))
        mode = MODE.get()
        inside = any(map(traced, leaves))
        maybe = inside or (self.captures and not kwargs and LEVEL.get() > 0)
        if not maybe or (mode is not None and not mode.record):
            return self._f(*args, **kwargs)
        if kwargs:
            raise TypeError(
                f"{self._op.name}: the keyword-only arguments {', '.join(kwargs)} cannot be told "
                "apart from those that are differentiated; make them positional"
            )
        tangents = any(isinstance(x, Handle) and x._x is not None and x._x.tangents for x in leaves)
        if tangents and not (self.keeps_tangents and is_forward_over_reverse(leaves)):
            return self._along(args)
        return self._as_one_node(args, leaves, rebuild)

    def _moving(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments that are differentiated."""
        return tuple(x for k, x in enumerate(args) if k not in self._fixed)

    def _full(self, args: tuple[Any, ...], moving: Sequence[Any]) -> list[Any]:
        """Return all arguments, with `moving` in place of the differentiated ones."""
        rest = iter(moving)
        return [x if k in self._fixed else next(rest) for k, x in enumerate(args)]

    def _as_one_node(self, args: tuple[Any, ...], leaves: list[Any], rebuild: Any) -> Any:
        """Run the function on values alone, and record its result as one node."""
        start = mark()
        values = [untraced(x) for x in leaves]
        before = [x._plain if isinstance(x, Handle) else None for x in values]
        y, residuals = self._evaluate(self._full(args, rebuild(values)))
        for x, v in zip(values, before, strict=True):
            if isinstance(x, Handle) and sync_if_view(x)._plain is not v:
                raise TraceError(
                    f"{self._op.name}: the function writes into an argument, which would not be "
                    "seen outside; copy it first, or return the new value"
                )
        check_computed(self._op.name, y)
        outputs, rebuild_y = flatten(y)
        captured = self._captured(start, leaves, [*outputs, *flatten(residuals)[0]])
        if captured is None:
            return self._along(args)
        if not captured and not any(map(traced, leaves)):
            return y
        results = [_result(x, before, bool(captured) or self.holds) for x in outputs]
        places = [
            k for k, x in enumerate(results) if isinstance(x, ADArray) and dtype_of(x).kind in "fc"
        ]
        if places:
            call = RuleCall(
                args, rebuild, residuals, places, len(results), rebuild_y, captured=captured
            )
            self._attach_node([results[k] for k in places], leaves, call)
        return rebuild_y(results)

    def _captured(self, start: Node, leaves: list[Any], outputs: list[Any]) -> list[Node] | None:
        """Return the nodes that a run read besides its arguments; None if it cannot be one node."""
        seen = [x for x in outputs if traced(x)]
        known = {t.level for t in tangents_of(leaves)}
        if not self.captures and any(
            x._node is not None or any(t.level not in known for t in x._x.tangents) for x in seen
        ):
            raise TraceError(
                f"{self._op.name}: the function reads a traced value that is no argument of it, "
                "and its gradient would be lost; pass it as an argument"
            )
        captured = self._reached(start, seen)
        return captured if is_forward_over_reverse([*leaves, *seen], captured) else None

    def _reached(self, start: Node, seen: list[Any]) -> list[Node]:
        """Return the nodes older than the run that its results depend on."""
        return nodes_before(start, [x._node for x in seen])

    def _attach_node(self, floating: list[ADArray], leaves: list[Any], call: RuleCall) -> None:
        """Give results a node whose parents are the arguments."""
        nodes = [x._node if isinstance(x, Handle) else None for x in leaves]
        call.nodes = [*nodes, *call.captured]
        call.avals = tuple(aval_of(x._plain) for x in floating)
        call.followed = [k for k, n in enumerate(call.nodes) if n is not None]
        call.tangents = bool(tangents_of([*leaves, *floating]))
        saved = [save(x) if isinstance(x, Handle) else x for x in leaves]
        saved += [None] * len(call.captured)
        call.span = functools.reduce(merge_spans, [n.span for n in call.nodes if n is not None])
        node = Node(
            self._op, tuple(call.nodes), (call, *saved), None, call.avals[0], call.span, None
        )
        save_tangents(node, (None, *leaves))
        for k, x in enumerate(floating):
            x._node = pick(node, k, call.avals[k])

    def _rule(self, g: dict[int, Any], i: int, call: RuleCall, *operands: Any) -> Any:
        """Return the cotangent of operand `i`; those of all are computed at once."""
        known = self._memory.last
        if (
            known is None
            or known[0] is not g
            or any(a is not b for a, b in zip(known[1], operands, strict=True))
        ):
            cotangents = [
                g[k] if k in g else np.zeros(a.shape, a.dtype)[()] for k, a in enumerate(call.avals)
            ]
            own = operands[: len(operands) - len(call.captured)]
            parts = self._pull(call, list(own), cotangents)
            known = self._memory.last = (g, operands, parts)
        level = walk_level()
        if not any(n is not None and n.span[1] >= level for n in call.nodes[i + 1 :]):
            self._memory.last = None  # no later rule reads it
        return known[2][i]

    def _evaluate(self, args: list[Any]) -> tuple[Any, Any]:
        """Return the result for arguments, and the residuals of the rule."""
        return prepared(self._f, True)(*args), None

    def _along(self, args: tuple[Any, ...]) -> Any:
        """Run it where tangents are computed."""
        return prepared(self._f, True)(*args)

    def _pull(self, call: RuleCall, operands: list[Any], cotangents: list[Any]) -> dict[int, Any]:
        """Return the cotangents of the operands with these numbers."""
        raise NotImplementedError


def _each(tree: Any, of: Callable[[Any], Any]) -> Any:
    leaves, rebuild = flatten(tree)
    return rebuild([of(x) for x in leaves])


def untraced(x: Any) -> Any:
    """Return an argument as an ADArray that no walk back sees; its tangents stay."""
    if not isinstance(x, Handle):
        return x
    value = sync_if_view(x)._plain
    return ADArray(value, None, rest_of(x), True)


def rest_of(x: Handle) -> Extras | None:
    """Return the tangents of an ADArray, without what walks back, and its weakness."""
    tangents: tuple[Tangent, ...] = ()
    if x._x is not None and x._x.tangents:
        tangents = tuple(Tangent(t.level, untraced(t.value)) for t in x._x.tangents)
    weak = is_weak(x)
    return Extras(tangents=tangents, weak=weak) if tangents or weak else None


def _result(x: Any, arguments: list[Any], apart: bool) -> Any:
    """Return a leaf of a result as an array that can be hung on a node.

    `apart` says that others may hold its memory.
    """
    rest: Extras | None = None
    value: Any
    if isinstance(x, Handle):
        value, rest = sync_if_view(x)._plain, rest_of(x)
        if apart:
            root_of(x)._frozen = True
    elif isinstance(x, (float, complex, np.ndarray, np.generic)):
        weak = isinstance(x, (float, complex)) and not isinstance(x, np.generic)
        value, rest = x, Extras(weak=True) if weak else None
    else:
        return x
    if isinstance(value, np.ndarray) and any(
        isinstance(v, np.ndarray) and np.may_share_memory(value, v) for v in arguments
    ):
        value = value.copy()
    return ADArray(value, None, rest, apart)


def dtype_of(x: Any) -> Any:
    """Return the dtype of an array or a number."""
    return x.dtype if hasattr(x, "dtype") else np.result_type(x)


def plain_number(x: Any) -> Any:
    """Return a Python number as NumPy's, which cotangents are."""
    return np.asarray(x)[()] if isinstance(x, (int, float, complex)) else x
