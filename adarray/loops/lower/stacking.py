"""Arrays of numbers and arrays that stand side by side in a list."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.kernels import build
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import common
from adarray.loops.lower.values import (
    Array,
    Complex,
    Growing,
    Items,
    Lazy,
    Number,
    Part,
    Scalar,
    Value,
    View,
    Walk,
    integer,
)
from adarray.loops.lower.values import number as number_of

if TYPE_CHECKING:
    from adarray.loops.lower.calls import Calls

_ALL = Part(None, None, None)


class StackingCalls:
    """Functions that put values into one array, and those that go over all of one."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.low = calls.low
        self.state = calls.state
        self.elements = calls.elements
        self.views = calls.views
        self.functions: dict[Any, Callable[..., Value]] = {
            np.array: self.array, np.stack: self.stack, np.vstack: self.vstack,
            np.concatenate: self.concatenate, np.hstack: self.hstack, np.eye: self.eye,
            np.identity: self.eye, np.trace: self.trace, np.cumsum: self.cumsum,
            np.argmax: self.argmax, np.argmin: self.argmin, np.cross: self.cross,
            np.ndindex: self.ndindex, itertools.product: self.product,
        }  # fmt: skip

    def array(self, x: Value, dtype: Value | None = None) -> Value:
        """Return a new array of what a list holds, or of an array's elements."""
        if isinstance(x, Growing):
            x = self.low.lists.array(x)
            if dtype is None:
                return x
        if not isinstance(x, Items):
            value = self.calls.numeric(x)
            if isinstance(value, (Number, Complex)):
                raise self.state.refusal("np.array of a number")
            name = self.calls.dtype(dtype, value.dtype)
            converted = self.elements.cast(value, name)
            return self.elements.materialised(converted)
        items = [self._item(v) for v in x.items]
        kinds = [k for v in items for k in self.elements.kinds(v)]
        default = common(kinds) if kinds else "float64"
        if default is None:
            raise self.state.refusal("an array of numbers of such types")
        return self._stacked(items, self.calls.dtype(dtype, default))

    def of_walk(self, walk: Walk, dtype: Value | None) -> View:
        """Return an array of the numbers of a comprehension."""
        kinds = self.calls.kinds_of(walk)
        default = common(kinds)
        if default is None:
            raise self.state.refusal("an array of numbers of such types")
        assert walk.count.whole is not None
        surely = self.low.numbers.facts.at_least(walk.count.whole, 1)
        if dtype is None and default != "float64" and not surely:  # else it is of another type
            raise self.state.refusal("an array of a list that may be empty")
        count = self.state.named("count", walk.count)
        result = self.state.workspace("own", self.calls.dtype(dtype, default), (count,))
        with self.state.loop("k", count) as k:
            x = self.low.expressions.as_number(walk.item(k))
            at = self.views.address(result, (k,)).expr
            self.state.store(result.buffer, at, self.elements.stored(x, result.dtype))
        return result

    def _item(self, value: Value) -> Array | Scalar:
        if isinstance(value, Items):
            array = self.array(value)
            assert isinstance(array, View)
            return array
        return self.elements.number(self.calls.numeric(value))

    def _stacked(self, items: list[Array | Scalar], dtype: str) -> View:
        """Return an array with the items along a new first axis."""
        shapes = [self.elements.shape(v) for v in items]
        first = shapes[0] if shapes else ()
        for shape in shapes[1:]:
            if len(shape) != len(first) or not all(map(self.views.same, shape, first)):
                raise self.state.refusal("a list of items of several shapes")
        result = self.state.workspace("own", dtype, (integer(len(items)), *first))
        for k, value in enumerate(items):
            self.elements.store(self.views.item(result, (integer(k),)), value)
        return result

    def stack(self, x: Value, axis: Value | None = None) -> Value:
        """Return arrays along a new first axis."""
        if axis is not None and self.calls.axis(axis) != 0:
            raise self.state.refusal("np.stack along another axis than the first")
        if isinstance(x, Growing):
            count = self.low.lists.count(x)
            self.state.fail_if(build.call("less", "bool", count.expr, build.index(1)))
        elif not isinstance(x, Items):
            raise self.state.refusal("np.stack of what is no list")
        return self.array(x)

    def vstack(self, x: Value) -> Value:
        """Return arrays of one axis as rows."""
        if not isinstance(x, Items) or any(len(self.calls.array(v).shape) != 1 for v in x.items):
            raise self.state.refusal("np.vstack of other than arrays of one axis")
        return self.array(x)

    def hstack(self, x: Value) -> Value:
        """Return arrays of one axis one behind the other."""
        if not isinstance(x, Items) or any(len(self.calls.array(v).shape) != 1 for v in x.items):
            raise self.state.refusal("np.hstack of other than arrays of one axis")
        return self.concatenate(x)

    def concatenate(self, x: Value, axis: Value | None = None) -> Value:
        """Return arrays one behind the other."""
        if not isinstance(x, Items) or not x.items:
            raise self.state.refusal("np.concatenate of what is no list")
        items = [self.calls.array(v) for v in x.items]
        at = 0 if axis is None else self.calls.axis(axis)
        count = len(items[0].shape)
        if not isinstance(at, int) or not -count <= at < count:
            raise self.state.refusal("np.concatenate along an axis that the arrays do not have")
        at %= count
        dtype = common(v.dtype for v in items)
        if dtype is None or any(len(v.shape) != count for v in items):
            raise self.state.refusal("np.concatenate of such arrays")
        total = integer(0)
        for v in items:
            total = self.low.numbers.plus(total, v.shape[at])
        shape = list(items[0].shape)
        shape[at] = self.state.named("extent", total)
        result = self.state.workspace("own", dtype, tuple(shape))
        start = integer(0)
        for v in items:
            stop = self.low.numbers.plus(start, v.shape[at])
            place = self.views.item(result, [*[_ALL] * at, Part(start, stop, None)])
            self.elements.store(place, v)
            start = stop
        return result

    def eye(self, n: Value, dtype: Value | None = None) -> Value:
        """Return the identity matrix."""
        (extent,) = self.calls.shape(n)
        name = self.calls.dtype(dtype, "float64")

        def element(indices: tuple[Number, ...]) -> Number:
            same = build.compare("equal", indices[0].expr, indices[1].expr)
            return number_of(build.where(same, build.const(1, name), build.const(0, name)), name)

        return Lazy(name, (extent, extent), element)

    def trace(self, x: Value) -> Value:
        """Return the sum of the diagonal of a matrix."""
        value = self.calls.array(x)
        if len(value.shape) != 2 or self.elements.mask_of(value) is not None:
            raise self.state.refusal("np.trace of an array that is no matrix")
        pointwise, others = self.elements.reads(value)
        diagonal = Lazy(
            value.dtype, (self.low.numbers.least(*value.shape),),
            lambda i: self.elements.element(value, (i[0], i[0])), (), (*pointwise, *others),
            isinstance(value, Lazy) and value.heavy,
        )  # fmt: skip
        return self.low.reductions.sum(diagonal)

    def cumsum(self, x: Value) -> Value:
        """Return the sums of the first elements of an array of one axis."""
        value = self.calls.array(x)
        if len(value.shape) != 1 or not value.dtype.startswith("float"):
            raise self.state.refusal("np.cumsum of other than floats along one axis")
        if self.elements.mask_of(value) is not None:
            raise self.state.refusal("np.cumsum of chosen elements")
        result = self.state.workspace("sums", value.dtype, value.shape)
        total = self.state.local("total", value.dtype, build.const(0, value.dtype))
        with self.elements.nest(value.shape) as indices:
            element = self.elements.element(value, indices)
            self.state.assign(total, build.call("add", value.dtype, total, element.expr))
            self.state.store(result.buffer, self.views.address(result, indices).expr, total)
        return result

    def _argument(self, x: Value, name: str) -> Number:
        """Return where the first of the largest or smallest elements is."""
        value = self.calls.array(x)
        if len(value.shape) != 1 or self.elements.mask_of(value) is not None:
            raise self.state.refusal("an index of an extreme along other than one axis")
        extent = value.shape[0]
        if extent.whole is None or not self.low.numbers.facts.at_least(extent.whole, 1):
            raise self.state.refusal("an extreme of an array that may be empty")
        first = self.elements.element(value, (integer(0),))
        best = self.state.local("best", value.dtype, first.expr)
        at = self.state.local("at", "int64", build.index(0))
        with self.elements.nest(value.shape) as (i,):
            element = self.elements.element(value, (i,))
            test = build.call(name, "bool", element.expr, best)
            if value.dtype.startswith("float"):  # the first nan, if there is one
                nan = build.call("not_equal", "bool", element.expr, element.expr)
                number = build.call("equal", "bool", best, best)
                test = build.both(number, build.call("logical_or", "bool", test, nan))
            with self.state.block() as body:
                self.state.assign(best, element.expr)
                self.state.assign(at, i.expr)
            self.state.branch(test, body)
        whole = self.low.numbers.facts.symbol([Affine(0)], [extent.whole - 1])
        return number_of(at, "int64", whole)

    def argmax(self, x: Value) -> Value:
        """Return where the largest element is."""
        return self._argument(x, "greater")

    def argmin(self, x: Value) -> Value:
        """Return where the smallest element is."""
        return self._argument(x, "less")

    def cross(self, a: Value, b: Value) -> Value:
        """Return the cross product of two vectors of three elements."""
        x, y = (self.calls.array(v) for v in (a, b))
        if any(len(v.shape) != 1 or v.shape[0].whole != Affine(3) for v in (x, y)):
            raise self.state.refusal("np.cross of other than vectors of three elements")
        u, v = ([self.elements.element(w, (integer(k),)) for k in range(3)] for w in (x, y))
        operator = self.low.numbers.operator

        def part(i: int, j: int) -> Number:
            left, right = operator("multiply", u[i], v[j]), operator("multiply", u[j], v[i])
            return operator("subtract", left, right)

        return self.array(Items((part(1, 2), part(2, 0), part(0, 1))))

    # -- what loops run over -----------------------------------------------------------------------

    def ndindex(self, *shape: Value) -> Value:
        """Return all indices of a shape."""
        if len(shape) == 1 and isinstance(shape[0], Items):
            shape = shape[0].items
        return self.product(*(self.calls.python.range(e) for e in shape))

    def product(self, *xs: Value) -> Value:
        """Return all combinations of items."""
        walks = [self.low.loops.walk(x) for x in xs]
        if not walks:
            raise self.state.refusal("a product of nothing")
        count = self.views.count([w.count for w in walks])

        def item(k: Number) -> Value:
            parts: list[Value] = []
            for w in reversed(walks):
                k, rest = self.low.numbers.divided(k, self._positive(w.count))
                parts.append(w.item(self.state.named("i", rest)))
                k = self.state.named("i", k)
            return Items(tuple(reversed(parts)))

        return Walk(count, item)

    def _positive(self, count: Number) -> Number:
        """Return an extent that is at least 1 where this is read: inside of the loop."""
        if count.whole is None or not self.low.numbers.facts.at_least(count.whole, 1):
            raise self.state.refusal("a product of what may be empty")
        return count
