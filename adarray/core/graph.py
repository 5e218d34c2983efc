"""Nodes of the recorded graph.

A node is immutable once made, and made after its parents, so the order of creation
is a topological order. Nodes hold their parents and never their children; a graph
is freed by reference counts alone, without recursion (CPython bounds the nesting
of deallocations for such objects).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from adarray.base.aval import Aval
from adarray.base.op import Op, Opaque
from adarray.base.types import Operands, Params, Span

if TYPE_CHECKING:
    from adarray.core.guard import WriteGuard

next_order = itertools.count(0, -1).__next__
next_level = itertools.count(1).__next__


T = TypeVar("T")

# What a node keeps: see `Node.saved`.
Saved: TypeAlias = tuple[object, ...] | list[object]
# Which layouts lead from a base to a view: ``(op, other operands, params)`` of each.
Steps: TypeAlias = tuple[tuple[Op, Operands, Params], ...]


class Node:
    """One recorded operation.

    Attributes
    ----------
    order : int
        Falls with every node made, so that a heap yields nodes before their parents.
    op : Op
    parents : tuple of Node or None
        One per operand; None where the operand is not traced.
    saved : tuple
        ``(out, *operands)`` as the rules read them: a plain value where a rule
        needs one, else None (pointwise operations) or an `Aval`. A list in place
        of the tuple says that some values are ADArrays, for they have tangents.
    params : dict or None
        Keyword arguments of the rules.
    aval : Aval
        Shape and dtype of the result; of an operation with several, of the first.
    span : tuple of int
        Smallest and largest level of the traces that the result depends on.
        Levels grow with nesting, so ``span[0] < level`` means that an outer
        trace must see what the rules do with this node's values.
    guard : WriteGuard, list of WriteGuard or None
        Keeps big plain operands read-only while the node lives.
    """

    __slots__ = ("aval", "guard", "op", "order", "params", "parents", "saved", "span")

    def __init__(
        self,
        op: Op,
        parents: tuple[Node | None, ...],
        saved: Saved,
        params: Params | None,
        aval: Aval,
        span: Span,
        guard: WriteGuard | list[WriteGuard] | None = None,
    ) -> None:
        self.order = next_order()
        self.op = op
        self.parents = parents
        self.saved = saved
        self.params = params
        self.aval = aval
        self.span = span
        self.guard = guard


def _identity(g: T, *_saved: object) -> T:
    return g


class ResultCotangent:
    """The cotangent of one result of an operation with several."""

    __slots__ = ("g", "index")

    def __init__(self, index: int, g: Any) -> None:
        self.index = index
        self.g = g


# One result of an operation with several: its parent is the operation's node.
PICK = Op("pick", _identity, Opaque(), (lambda g, *_, index: ResultCotangent(index, g),))


# An input of a trace. It has a parent when the input is traced by an outer trace.
LEAF = Op("leaf", _identity, Opaque(), (_identity,))
LEAF.special = True
# Where a reverse walk ends, at the latest: at what was made before.
STOP = Op("stop", _identity, Opaque(), ())
STOP.special = True
# What `backward()` leaves behind.
FREED = Op("freed", _identity, Opaque(), ())


def merge_spans(a: Span, b: Span) -> Span:
    """Return the span of a result that depends on operands with spans `a` and `b`."""
    return (min(a[0], b[0]), max(a[1], b[1]))
