"""Lists that a loop appends to: memory, and the number of items as a variable that is carried.

A list has one name, so that nothing else can change it. What is appended is a number, or an array
that nothing else holds; all items are of one type and shape.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Expr
from adarray.kernels import build
from adarray.kernels.types import FLOATS
from adarray.loops.forms import Known, Workspace
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import CODES, COMPLEX, INT, PARTS, PYTHON, common, dtype_of, stored
from adarray.loops.lower.state import whole_view
from adarray.loops.lower.values import (
    Array,
    Complex,
    Growing,
    Items,
    Lazy,
    Number,
    Scalar,
    Value,
    View,
    Walk,
    integer,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

_MOST = 1 << 24  # numbers in a list
_UNKNOWN = 1 << 16  # items of a list whose length nothing bounds


@dataclass(frozen=True, slots=True)
class ListMemory:
    """Where the items of a list are.

    Attributes
    ----------
    name : str
        Of the memory.
    number : int
        Of the workspace.
    kind : str
        Of the numbers that are appended; the dtype of arrays.
    first : str
        The kind of items that the list had before the loop.
    before : int
        How many these are.
    shape : tuple of Number
        Of an item.
    capacity : int
        The most items that there are.
    """

    name: str
    number: int
    kind: str
    first: str
    before: int
    shape: tuple[Number, ...]
    capacity: int

    @property
    def dtype(self) -> str:
        """The dtype of the memory."""
        return stored(frozenset((self.kind, self.first))) or dtype_of(self.kind)


class Lists:
    """Reads what is done with lists, into the statements of a `LoopLowering`."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.numbers = lowering.numbers
        self.memories: dict[str, ListMemory] = {}

    def named(self, node: ast.expr) -> Growing | None:
        """Return the list that a name stands for; None for all else."""
        value = self.low.names.get(node.id) if isinstance(node, ast.Name) else None
        return value if isinstance(value, Growing) else None

    def created(self, node: ast.List, name: str) -> Growing:
        """Return a new list, which the loop appends to."""
        depth = self.low.functions.depth
        result = Growing(f"%len.{name}.{node.lineno}.{node.col_offset}.{depth}", depth)
        values = self.low.expressions.values(node.elts)
        self.low.names[result.count] = integer(0)
        for v in values:
            self._append(result, self.low.elements.settled(v, "item"))
        return result

    def of_caller(self, name: str, items: Sequence[Value]) -> Growing:
        """Return a list that was there before the loop, with these items."""
        result = Growing(f"%len.{name}", 0)
        self.low.names[result.count] = integer(0)
        for v in items:
            self._append(result, v)
        memory = self.memories.get(result.count)
        if memory is not None:
            before = replace(memory, before=len(items))
            self.memories[result.count] = before
        return result

    def count(self, x: Growing) -> Number:
        """Return the number of items."""
        value = self.low.names[x.count]
        assert isinstance(value, Number)
        return value

    # -- what changes lists ------------------------------------------------------------------------

    def method(self, x: Growing, node: ast.Call) -> Value:
        """Return the value of a call of a method."""
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        if x.depth != self.low.functions.depth or node.keywords:
            raise self.state.refusal("a list that another function changes")
        if name == "append" and len(node.args) == 1:
            self.append(x, node.args[0])
        elif name == "extend" and len(node.args) == 1 and isinstance(
            node.args[0], (ast.List, ast.Tuple)
        ):  # fmt: skip
            for item in node.args[0].elts:
                self.append(x, item)
        elif name == "extend" and len(node.args) == 1 and isinstance(
            node.args[0], (ast.ListComp, ast.GeneratorExp)
        ):  # fmt: skip
            assert isinstance(node.func.value, ast.Name)
            self.low.comprehensions.extend(node.func.value.id, node.args[0])
        elif name == "pop" and not node.args:
            return self._popped(x)
        else:
            raise self.state.refusal(f"the method {name!r} of a list")
        return Known(None)

    def append(self, x: Growing, node: ast.expr) -> None:
        """Append the value of an expression."""
        before = self.state.workspaces
        value = self.low.expressions.value(node)
        if isinstance(value, View) and value.axes and not self._is_new(value, before):
            raise self.state.refusal("an array that has a name is appended to a list")
        if not isinstance(value, (Number, Complex, View, Lazy)):
            shown = self.low.expressions.shown(value)
            raise self.state.refusal(f"{shown} is appended to a list")
        self._append(x, value)

    def _is_new(self, view: View, before: int) -> bool:
        numbers = (n for (_, n), p in self.state.parameters.items() if p.name == view.buffer.name)
        return next(numbers, 0) > before

    def _append(self, x: Growing, value: Value) -> None:
        assert isinstance(value, (Number, Complex, View, Lazy))
        one = self.low.elements.number(value)
        if isinstance(one, Lazy) and one.mask is not None:
            raise self.state.refusal("chosen elements are appended to a list")
        memory = self._memory(x, one)
        count = self.count(x)
        assert count.whole is not None
        size = max(1, math.prod(self._most(e) for e in memory.shape))
        limit = min(_UNKNOWN, _MOST // size)
        needed = self.numbers.facts.range(count.whole)[1] + 1
        at = count
        if needed * size > _MOST:
            over = build.call("greater_equal", "bool", count.expr, build.index(limit))
            self.state.fail_if(over)
            expr = build.where(over, build.index(0), count.expr)
            whole = self.numbers.facts.symbol([Affine(0)], [Affine(limit - 1)])
            at = number(self.state.let("at", expr), INT, whole)
            needed = limit
        self.memories[x.count] = replace(memory, capacity=max(memory.capacity, needed))
        view = self._item(x, at, at)
        if isinstance(one, (Number, Complex)):
            place = self.low.views.address(view, ()).expr
            self.state.store(view.buffer, place, self.low.elements.stored(one, view.dtype))
        else:
            self.low.elements.store(view, one)
        self.low.names[x.count] = self.state.named("count", self.numbers.plus(count, integer(1)))

    def _most(self, extent: Number) -> int:
        assert extent.whole is not None
        return self.numbers.facts.range(extent.whole)[1]

    def _memory(self, x: Growing, value: Array | Scalar) -> ListMemory:
        """Return where items lie; refuse one of another type than those before."""
        kinds, shape = self.low.elements.kinds(value), self.low.elements.shape(value)
        if len(kinds) != 1:
            raise self.state.refusal("a number that is one of several types in a list")
        (kind,) = kinds
        known = self.memories.get(x.count)
        if known is None:
            for extent in shape:
                if extent.whole is None or extent.whole.value is None:
                    raise self.state.refusal("an array in a list whose shape is not known")
            dtype = dtype_of(kind)
            part = PARTS.get(dtype, dtype)
            self.state.workspaces += 1
            memory = self.state.parameter("items", Workspace(part, (0,)), part, True).name
            self.state.written.add(memory)
            known = ListMemory(memory, self.state.workspaces, kind, kind, 0, shape, 0)
        same = len(shape) == len(known.shape) and all(
            self.low.views.same(a, b) for a, b in zip(shape, known.shape, strict=True)
        )
        if kind != known.kind and known.before and known.first == known.kind:
            known = replace(known, kind=kind)
            if stored(frozenset((kind, known.first))) != dtype_of(known.first):
                raise self.state.refusal("a list of items of several types")
        if not same or kind != known.kind:
            raise self.state.refusal("a list of items of several types or shapes")
        self.memories[x.count] = known
        return known

    def _popped(self, x: Growing) -> Value:
        count = self.count(x)
        self.state.fail_if(build.call("less", "bool", count.expr, build.index(1)))
        if x.count not in self.memories:
            raise self.state.refusal("an item of a list that is empty")
        # Where the list is empty, what lies at its begin is as good as anything.
        least = self.numbers.most(count, integer(1))
        last = self.state.named("last", self.numbers.minus(least, integer(1)))
        value = self._read(x, last, last)
        self.low.names[x.count] = last
        return value

    # -- what reads lists --------------------------------------------------------------------------

    def _view(self, x: Growing, extent: Number) -> View:
        """Return the items as an array."""
        memory = self.memories[x.count]
        shape = (extent, *memory.shape)
        return whole_view(self.state.buffer(memory.name, memory.dtype, shape))

    def _item(self, x: Growing, at: Number, last: Number) -> View:
        """Return the memory of an item at an index that is no larger than `last`."""
        extent = self.numbers.plus(last, integer(1))
        view = self._view(x, extent)
        moved = self.low.views.moved(view, view.axes[0], at)
        return replace(moved, axes=moved.axes[1:])

    def item(self, x: Growing, index: Number) -> Value:
        """Return an item."""
        if x.count not in self.memories:
            raise self.state.refusal("an item of a list that is empty")
        count = self.count(x)
        at = self.low.views.index(index, count)
        return self._read(x, at, self.numbers.minus(count, integer(1)))

    def has_items(self, x: Growing) -> bool:
        """Whether anything is ever appended to a list."""
        return x.count in self.memories

    def first(self, x: Growing, sure: bool) -> Value:
        """Return the first item of a list; if it is to be `sure`, Python raises an error for none.

        Else it is any number where there is none.
        """
        if x.count not in self.memories:
            raise self.state.refusal("an item of a list that is empty")
        if sure:
            empty = build.call("less", "bool", self.count(x).expr, build.index(1))
            self.state.fail_if(empty)
        return self._read(x, integer(0), integer(0))

    def are_floats(self, x: Growing) -> bool:
        """Whether a list has items, and all of them are floats of one type."""
        memory = self.memories.get(x.count)
        if memory is None or memory.shape or memory.kind != memory.first:
            return False
        return dtype_of(memory.kind) in FLOATS

    def _read(self, x: Growing, at: Number, last: Number) -> Value:
        memory = self.memories[x.count]
        view = self._item(x, at, last)
        if view.axes:
            return self.low.elements.materialised(view)
        return self._with_kind(memory, self.low.elements.scalar(view, ()), at)

    def _with_kind(self, memory: ListMemory, x: Scalar, at: Number) -> Value:
        if isinstance(x, Complex):
            return replace(x, kind=memory.kind)
        kinds = frozenset((memory.kind, memory.first) if memory.before else (memory.kind,))
        tag: Expr | None = None
        if len(kinds) > 1:
            old = build.call("less", "bool", at.expr, build.index(memory.before))
            tag = build.where(
                old, build.index(CODES[memory.first]), build.index(CODES[memory.kind])
            )
        whole = x.whole
        if kinds == {INT} and whole is None:
            raise self.state.refusal("an integer whose size is not known")
        return Number(x.expr, kinds, whole, tag=tag)

    def walk(self, x: Growing) -> Walk:
        """Return what a loop over a list runs over."""
        count = self.state.named("count", self.count(x))
        if x.count not in self.memories:
            return Walk(integer(0), lambda _: Items(()))
        return Walk(count, lambda k: self.item(x, k))

    def array(self, x: Growing) -> View:
        """Return a new array of the items."""
        memory = self.memories.get(x.count)
        count = self.state.named("count", self.count(x))
        assert count.whole is not None
        if memory is None:
            return self.state.workspace("own", "float64", (integer(0),))
        dtype = common({memory.kind, memory.first})
        if dtype is None or (memory.kind in PYTHON and memory.kind != "python float"):
            raise self.state.refusal("an array of a list of such numbers")
        surely = self.numbers.facts.at_least(count.whole, 1)
        if not surely and (memory.shape or dtype != "float64"):  # else it is of another type
            self.state.fail_if(build.call("less", "bool", count.expr, build.index(1)))
        view = self._view(x, count)
        converted = self.low.elements.cast(view, dtype)
        assert isinstance(converted, (View, Lazy))
        return self.low.elements.materialised(converted)

    # -- the end -----------------------------------------------------------------------------------

    def sized(self) -> None:
        """Have the memory of lists as large as it must be."""
        known = {m.number: m for m in self.memories.values()}
        parameters = {}
        for (source, n), p in self.state.parameters.items():
            memory = known.get(n)
            if isinstance(source, Workspace) and memory is not None and p.name == memory.name:
                size = math.prod(self._most(e) for e in memory.shape)
                if memory.dtype in COMPLEX:
                    size *= 2
                source = Workspace(source.dtype, (max(1, memory.capacity * size),))
                p = replace(p, source=source)
            parameters[source, n] = p
        self.state.parameters = parameters
