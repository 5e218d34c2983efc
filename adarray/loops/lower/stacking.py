"""Arrays of numbers and arrays that stand side by side in a list."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.kernels import build
from adarray.loops.forms import Known
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import COMPLEX, common
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
            np.column_stack: self.column_stack, np.triu: self.triu, np.tril: self.tril,
            np.diag: self.diag,
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

    def _stacked(self, items: list[Array | Scalar], dtype: str, axis: int = 0) -> View:
        """Return an array with the items along a new axis."""
        shapes = [self.elements.shape(v) for v in items]
        first = shapes[0] if shapes else ()
        for shape in shapes[1:]:
            if len(shape) != len(first) or not all(map(self.views.same, shape, first)):
                raise self.state.refusal("a list of items of several shapes")
        shape = (*first[:axis], integer(len(items)), *first[axis:])
        result = self.state.workspace("own", dtype, shape)
        for k, value in enumerate(items):
            place = self.views.item(result, (*[_ALL] * axis, integer(k)))
            self.elements.store(place, value)
        return result

    def _arrays(self, x: Value) -> list[Array]:
        """Return the arrays of a list that is not empty."""
        if not isinstance(x, Items) or not x.items:
            raise self.state.refusal("arrays put together that are in no list")
        items = [self._item(v) for v in x.items]
        arrays = [self.elements.materialised(v) if isinstance(v, Lazy) and v.heavy else v
                  for v in items if isinstance(v, (View, Lazy))]  # fmt: skip
        if len(arrays) < len(items) or self.elements.mask_of(*arrays) is not None:
            raise self.state.refusal("numbers or chosen elements where arrays are expected")
        return arrays

    def stack(self, x: Value, axis: Value | None = None) -> Value:
        """Return arrays along a new axis."""
        at = 0 if axis is None else self.calls.axis(axis)
        if at == 0 and isinstance(x, Growing):
            count = self.low.lists.count(x)
            self.state.fail_if(build.call("less", "bool", count.expr, build.index(1)))
            return self.array(x)
        arrays = self._arrays(x)
        axes = len(arrays[0].shape) + 1
        dtype = common(v.dtype for v in arrays)
        if not isinstance(at, int) or not -axes <= at < axes or dtype is None:
            raise self.state.refusal("np.stack of such arrays")
        return self._stacked(list(arrays), dtype, at % axes)

    def _with_axes(self, array: Array, count: int, behind: bool = False) -> Array:
        """Return an array with at least `count` axes: new ones of extent 1."""
        new = [Known(None)] * (count - len(array.shape))
        if not new:
            return array
        view = array if isinstance(array, View) else self.elements.materialised(array)
        own = [_ALL] * len(view.axes)
        return self.views.item(view, [*own, *new] if behind else [*new, *own])

    def vstack(self, x: Value) -> Value:
        """Return arrays one below the other; those of one axis are rows."""
        return self._concatenated([self._with_axes(v, 2) for v in self._arrays(x)], 0)

    def hstack(self, x: Value) -> Value:
        """Return arrays side by side; those of one axis one behind the other."""
        arrays = self._arrays(x)
        return self._concatenated(arrays, 0 if len(arrays[0].shape) == 1 else 1)

    def column_stack(self, x: Value) -> Value:
        """Return arrays side by side; those of one axis are columns."""
        return self._concatenated([self._with_axes(v, 2, True) for v in self._arrays(x)], 1)

    def concatenate(self, x: Value, axis: Value | None = None) -> Value:
        """Return arrays one behind the other."""
        at = 0 if axis is None else self.calls.axis(axis)
        if not isinstance(at, int):
            raise self.state.refusal("np.concatenate of arrays that are flattened")
        return self._concatenated(self._arrays(x), at)

    def _concatenated(self, arrays: list[Array], at: int) -> View:
        count = len(arrays[0].shape)
        if not -count <= at < count:
            raise self.state.refusal("np.concatenate along an axis that the arrays do not have")
        at %= count
        dtype = common(v.dtype for v in arrays)
        if dtype is None or any(len(v.shape) != count for v in arrays):
            raise self.state.refusal("np.concatenate of such arrays")
        total = integer(0)
        for v in arrays:
            self._check_sides(v.shape, arrays[0].shape, at)
            total = self.low.numbers.plus(total, v.shape[at])
        shape = list(arrays[0].shape)
        shape[at] = self.state.named("extent", total)
        result = self.state.workspace("own", dtype, tuple(shape))
        start = integer(0)
        for v in arrays:
            stop = self.low.numbers.plus(start, v.shape[at])
            place = self.views.item(result, [*[_ALL] * at, Part(start, stop, None)])
            self.elements.store(place, v)
            start = stop
        return result

    def _check_sides(self, a: Sequence[Number], b: Sequence[Number], at: int) -> None:
        """Refuse shapes that may differ along other axes than one: nothing is broadcast."""
        for k, (m, n) in enumerate(zip(a, b, strict=True)):
            if k != at and not self.views.same(m, n):
                raise self.state.refusal("np.concatenate of arrays of several shapes")

    # -- matrices ----------------------------------------------------------------------------------

    def _triangle(self, x: Value, k: Value | None, name: str) -> Value:
        """Return a matrix with zeros where a column minus a row does not compare with `k`."""
        value = self.calls.array(x)
        if len(value.shape) < 2 or self.elements.mask_of(value) is not None:
            raise self.state.refusal("a triangle of an array that is no matrix")
        by = integer(0) if k is None else self.low.expressions.integer(k)
        if value.dtype in COMPLEX:
            raise self.state.refusal("a triangle of a complex matrix")
        diagonal = self.state.named("diagonal", by).expr
        zero = build.const(0, value.dtype)
        if isinstance(value, Lazy) and value.heavy:
            value = self.elements.materialised(value)
        source = value

        def element(indices: tuple[Number, ...]) -> Number:
            row, column = indices[-2:]
            test = build.compare(name, column.expr, build.add(row.expr, diagonal))
            # Also outside of the triangle, where NumPy reads it, too: no branch is needed.
            x = self.elements.element(source, indices)
            return number_of(build.where(test, x.expr, zero), value.dtype)

        return Lazy(value.dtype, value.shape, element, *self.elements.reads(value))

    def triu(self, m: Value, k: Value | None = None) -> Value:
        """Return the upper triangle of a matrix."""
        return self._triangle(m, k, "greater_equal")

    def tril(self, m: Value, k: Value | None = None) -> Value:
        """Return the lower triangle of a matrix."""
        return self._triangle(m, k, "less_equal")

    def diag(self, v: Value) -> Value:
        """Return the matrix that has a vector as its diagonal."""
        value = self.calls.array(v)
        if len(value.shape) != 1 or value.dtype in COMPLEX:
            raise self.state.refusal("np.diag of other than real arrays of one axis")
        view = self.calls.arrays.view(value)
        extent = value.shape[0]
        result = self.state.workspace("own", value.dtype, (extent, extent))
        self.elements.store(result, number_of(build.const(0, value.dtype), value.dtype))
        with self.elements.nest((extent,)) as (k,):
            x = self.elements.element(view, (k,))
            at = self.views.address(result, (k, k)).expr
            self.state.store(result.buffer, at, x.expr)
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
