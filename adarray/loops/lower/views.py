"""Basic indexing: views of memory, with indices that are proven to be in range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from adarray.compiler.ir.loopir import Const
from adarray.kernels import build
from adarray.loops.forms import Known
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.numbers import Arithmetic
from adarray.loops.lower.values import Axis, Number, Part, Value, View, integer, number


class Indexing:
    """Views from views."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.numbers = arithmetic
        self.state = arithmetic.state
        self.facts = arithmetic.facts

    # -- indices -----------------------------------------------------------------------------------

    def index(self, i: Number, extent: Number) -> Number:
        """Return an index of an axis, counted from its start."""
        if any(not k.startswith("python int") and "int" not in k for k in i.kinds):
            raise self.state.refusal("an index that is no integer")
        i = self.numbers.as_int(i)
        assert i.whole is not None
        assert extent.whole is not None
        facts = self.facts
        if not facts.at_least(i.whole, 0) or not facts.at_least(extent.whole - 1, i.whole):
            self.state.narrowed(i.whole)
        if facts.at_least(i.whole, 0):
            result = i
        elif facts.at_least(Affine(-1), i.whole):
            result = self.numbers.plus(extent, i)
        else:
            result = self._wrapped(i, extent)
        assert result.whole is not None
        if not facts.at_least(result.whole, 0) or not facts.at_least(
            extent.whole - 1, result.whole
        ):
            if facts.at_least(extent.whole, 1) and not self._is_outside(i, extent):
                return self._checked(i, extent)
            low, high = facts.range(i.whole)
            raise self.state.refusal(
                f"an index may be out of range: it is {low} to {high} where there are "
                f"{facts.range(extent.whole)[0]} elements or more"
            )
        return result

    def _is_outside(self, i: Number, extent: Number) -> bool:
        """Whether an index is surely out of range."""
        assert i.whole is not None
        assert extent.whole is not None
        facts = self.facts
        below = facts.nonnegative((i.whole + extent.whole + 1).scaled(-1))
        return below or facts.at_least(i.whole, extent.whole)

    def _checked(self, i: Number, extent: Number) -> Number:
        """Return an index, which is 0 where Python raises an error; the axis is not empty."""
        assert extent.whole is not None
        i = self.state.named("index", i)
        zero = build.index(0)
        below = build.call("less", "bool", i.expr, zero)
        at = build.where(below, build.add(i.expr, extent.expr), i.expr)
        at = self.state.let("index", at)
        outside = build.call(
            "logical_or", "bool", build.call("less", "bool", at, zero),
            build.call("greater_equal", "bool", at, extent.expr),
        )  # fmt: skip
        outside = self.state.let("outside", outside)
        self.state.fail_if(outside)
        whole = self.facts.symbol([Affine(0)], [extent.whole - 1])
        at = self.state.let("index", build.where(outside, zero, at))
        return number(at, "python int", whole)

    def _wrapped(self, i: Number, extent: Number) -> Number:
        """Return an index that may count from the end."""
        i = self.state.named("index", i)
        from_end = self.numbers.plus(extent, i)
        assert i.whole is not None
        assert extent.whole is not None
        assert from_end.whole is not None
        low, high = self.facts.range(i.whole)
        lows = [Affine(0)] if self.facts.at_least(from_end.whole, 0) else []
        lows += [] if lows else [Affine(low)]
        highs = [from_end.whole if low >= 0 else extent.whole - 1]
        if not self.facts.at_least(extent.whole - 1, i.whole):
            highs = [Affine(max(high, self.facts.range(from_end.whole)[1]))]
        below = build.call("less", "bool", i.expr, build.index(0))
        expr = build.where(below, from_end.expr, i.expr)
        return number(self.state.let("index", expr), "python int", self.facts.symbol(lows, highs))

    # -- slices ------------------------------------------------------------------------------------

    def _end(self, x: Number, extent: Number, low: int) -> Number:
        """Return an end of a slice, within `low` and what that is above the axis's end."""
        x = self.numbers.as_int(x)
        assert x.whole is not None
        assert extent.whole is not None
        if not self.facts.at_least(x.whole, 0) or not self.facts.at_least(extent.whole, x.whole):
            self.state.narrowed(x.whole)
        if self.facts.at_least(x.whole, 0):
            pass
        elif self.facts.at_least(Affine(-1), x.whole):
            x = self.numbers.plus(extent, x)
        else:
            x = self.state.named("end", x)
            from_end = self.numbers.plus(extent, x)
            whole = self.numbers.hull(from_end, x)
            below = build.call("less", "bool", x.expr, build.index(0))
            x = number(build.where(below, from_end.expr, x.expr), "python int", whole)
            x = self.state.named("end", x)
        x = self.numbers.most(x, integer(low))
        last = extent if low == 0 else self.numbers.minus(extent, integer(1))
        return self.numbers.least(x, last)

    def ends(self, part: Part, extent: Number) -> tuple[Number, Number, int]:
        """Return start, number of elements and step of a slice of an axis."""
        step = 1
        if part.step is not None:
            by = self.numbers.as_int(part.step)
            if not isinstance(by.expr, Const) or by.expr.value == 0:
                raise self.state.refusal("a slice whose step is not known")
            step = int(by.expr.value)
        minus, least, most = self.numbers.minus, self.numbers.least, self.numbers.most
        if step > 0:
            start = integer(0) if part.start is None else self._end(part.start, extent, 0)
            stop = extent if part.stop is None else self._end(part.stop, extent, 0)
            span = minus(stop, start)
        else:
            last = minus(extent, integer(1))
            start = last if part.start is None else self._end(part.start, extent, -1)
            stop = integer(-1) if part.stop is None else self._end(part.stop, extent, -1)
            span = minus(start, stop)
        span = most(span, integer(0))
        if abs(step) != 1:
            more = self.numbers.plus(span, integer(abs(step) - 1))
            span = self.numbers.divided(more, integer(abs(step)))[0]
        _ = least
        return start, span, step

    # -- views -------------------------------------------------------------------------------------

    def moved(self, view: View, axis: Axis, start: Number) -> View:
        """Return a view that begins `start` steps further along one of its axes."""
        assert start.whole is not None
        if start.expr == build.index(0):
            return view
        offset = self.numbers.plus(view.offset, self.numbers.times(start, axis.stride))
        first = list(view.first)
        if axis.base is not None and first:
            first[axis.base] += start.whole.scaled(axis.step)
        return replace(view, offset=offset, first=tuple(first))

    def item(self, view: View, items: Sequence[Value]) -> View:
        """Return the part of an array that basic indices choose."""
        result, axes = view, list[Axis]()
        rest = list(view.axes)
        for item in self._expanded(view, items):
            if isinstance(item, Known):  # None
                axes.append(Axis(integer(1), integer(0), None))
                continue
            axis = rest.pop(0)
            if isinstance(item, Number):
                result = self.moved(result, axis, self.index(item, axis.extent))
            else:
                assert isinstance(item, Part)
                start, extent, step = self.ends(item, axis.extent)
                result = self.moved(result, axis, start)
                stride = self.numbers.times(axis.stride, integer(step))
                axes.append(Axis(extent, stride, axis.base, axis.step * step))
        return replace(result, axes=(*axes, *rest))

    def _expanded(self, view: View, items: Sequence[Value]) -> list[Number | Part | Known]:
        """Return indices with slices in the place of an ellipsis."""
        out: list[Number | Part | Known] = []
        used = sum(isinstance(i, (Number, Part)) for i in items)
        if used > len(view.axes):
            raise self.state.refusal("more indices than the array has axes")
        several = sum(isinstance(i, Known) and i.value is ... for i in items)
        for i in items:
            if isinstance(i, Known) and i.value is ... and several == 1:
                out += [Part(None, None, None)] * (len(view.axes) - used)
            elif isinstance(i, (Number, Part)) or (isinstance(i, Known) and i.value is None):
                if isinstance(i, Number) and i.expr.dtype == "bool":
                    raise self.state.refusal("an index that is a truth value")
                out.append(i)
            else:
                raise self.state.refusal("an index that is an array, or no index at all")
        return out

    def transposed(self, view: View, order: Sequence[int] | None = None) -> View:
        """Return a view with its axes in another order."""
        order = tuple(reversed(range(len(view.axes)))) if order is None else order
        return replace(view, axes=tuple(view.axes[i] for i in order))

    def is_whole(self, view: View) -> bool:
        """Whether the elements of a view lie one behind the other."""
        stride = integer(1)
        for axis in reversed(view.axes):
            assert axis.stride.whole is not None
            assert stride.whole is not None
            one = axis.extent.whole == Affine(1)
            if not one and not self.facts.equal(axis.stride.whole, stride.whole):
                return False
            stride = self.numbers.times(stride, axis.extent)
        return True

    def count(self, shape: Sequence[Number]) -> Number:
        """Return a number of elements."""
        result = integer(1)
        for extent in shape:
            result = self.numbers.times(result, extent)
        return result

    def reshaped(self, view: View, shape: Sequence[Number]) -> View:
        """Return a view of contiguous elements in another shape of as many elements."""
        axes: list[Axis] = []
        stride = integer(1)
        for extent in reversed(shape):
            stride = self.state.named("row", stride)
            axes.append(Axis(extent, stride, None))
            stride = self.numbers.times(stride, extent)
        return View(view.buffer, view.offset, tuple(reversed(axes)), ())

    def address(self, view: View, indices: Sequence[Number]) -> Number:
        """Return where the element at some indices is."""
        result = view.offset
        for i, axis in zip(indices, view.axes, strict=True):
            if axis.stride.expr != build.index(0):
                result = self.numbers.plus(result, self.numbers.times(i, axis.stride))
        return result

    # -- shapes ------------------------------------------------------------------------------------

    def same(self, a: Number, b: Number) -> bool:
        """Whether two extents are proven equal."""
        assert a.whole is not None
        assert b.whole is not None
        return a.expr == b.expr or self.facts.equal(a.whole, b.whole)

    def broadcast(self, *shapes: tuple[Number, ...]) -> tuple[Number, ...]:
        """Return the shape of what has elements of arrays of some shapes."""
        result: list[Number] = []
        for k in range(max(map(len, shapes))):
            extent = integer(1)
            for shape in shapes:
                if k < len(shape):
                    extent = self._one_extent(extent, shape[-1 - k])
            result.append(extent)
        return tuple(reversed(result))

    def _one_extent(self, a: Number, b: Number) -> Number:
        if b.whole == Affine(1) or self.same(a, b):
            # Of several names for one number, the constant is the simplest.
            return b if a.whole == Affine(1) and isinstance(b.expr, Const) else a
        if a.whole == Affine(1):
            return b
        raise self.state.refusal("arrays whose shapes are not known to fit")

    def broadcast_view(self, view: View, shape: Sequence[Number]) -> View:
        """Return a view of a shape, along whose new axes elements repeat."""
        new = len(shape) - len(view.axes)
        axes = [Axis(e, integer(0), None) for e in shape[:new]]
        for axis, extent in zip(view.axes, shape[new:], strict=True):
            if axis.extent.whole == Affine(1) and extent.whole != Affine(1):
                axes.append(Axis(extent, integer(0), None))
            else:
                axes.append(replace(axis, extent=extent))
        return replace(view, axes=tuple(axes))
