"""Calls that make arrays, or other views of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.kernels import build
from adarray.loops.forms import Known
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import PARTS
from adarray.loops.lower.values import (
    Complex,
    Items,
    Lazy,
    Number,
    Part,
    Scalar,
    Value,
    View,
    integer,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.calls import Calls

_ALL = Part(None, None, None)


class ArrayCalls:
    """Functions and methods that give arrays."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.low = calls.low
        self.state = calls.state
        self.elements = calls.elements
        self.views = calls.views
        self.methods: dict[str, Callable[..., Value]] = {
            "copy": self.copy, "astype": self.astype, "transpose": self.transposed,
            "reshape": self.reshape_method, "ravel": self.ravel, "flatten": self.flatten,
            "fill": self.fill, "squeeze": self.squeeze, "swapaxes": self.swapaxes,
        }  # fmt: skip
        self.functions: dict[Any, Callable[..., Value]] = {
            np.copy: self.copy, np.transpose: self.transpose, np.ravel: self.ravel,
            np.reshape: self.reshape, np.flip: self.flip, np.zeros: self.zeros,
            np.ones: self.ones, np.empty: self.empty, np.full: self.full,
            np.zeros_like: self.zeros_like, np.ones_like: self.ones_like,
            np.empty_like: self.empty_like, np.full_like: self.full_like,
            np.copyto: self.copyto, np.expand_dims: self.expand_dims, np.squeeze: self.squeeze,
            np.swapaxes: self.swapaxes, np.asarray: self.as_array,
            np.ascontiguousarray: self.as_array, np.diff: self.diff, np.roll: self.roll,
            np.linspace: self.linspace, np.arange: self.arange,
        }  # fmt: skip

    def view(self, value: Value) -> View:
        """Return an argument as memory."""
        value = self.calls.array(value)
        return value if isinstance(value, View) else self.elements.materialised(value)

    # -- new arrays --------------------------------------------------------------------------------

    def _filled(self, shape: tuple[Number, ...], dtype: str, value: Number) -> View:
        view = self.state.workspace("own", dtype, shape)
        self.elements.store(view, value)
        return view

    def _constant(self, value: int, dtype: str) -> Number:
        """Return a number that elements of a dtype are set to."""
        part = PARTS.get(dtype, dtype)
        return number(build.const(value, part), part)

    def empty(self, shape: Value, dtype: Value | None = None) -> Value:
        """Return an array whose elements are not set."""
        name = self.calls.dtype(dtype, "float64")
        return self.state.workspace("own", name, self.calls.shape(shape))

    def empty_like(self, x: Value, dtype: Value | None = None) -> Value:
        """Return an array whose elements are not set."""
        shape, name = self._like(x, dtype)
        return self.state.workspace("own", name, shape)

    def zeros(self, shape: Value, dtype: Value | None = None) -> Value:
        """Return an array of zeros."""
        name = self.calls.dtype(dtype, "float64")
        return self._filled(self.calls.shape(shape), name, self._constant(0, name))

    def ones(self, shape: Value, dtype: Value | None = None) -> Value:
        """Return an array of ones."""
        name = self.calls.dtype(dtype, "float64")
        return self._filled(self.calls.shape(shape), name, self._constant(1, name))

    def full(self, shape: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        """Return an array of equal elements."""
        value = self.low.expressions.as_number(fill_value)
        kind = value.kind
        if kind is None:
            raise self.state.refusal("a number that is one of several types")
        default = {"python float": "float64", "python int": "int64", "python bool": "bool"}
        name = self.calls.dtype(dtype, default.get(kind, kind))
        return self._filled(self.calls.shape(shape), name, value)

    def _like(self, x: Value, dtype: Value | None) -> tuple[tuple[Number, ...], str]:
        value = self.calls.array(x)
        if self.elements.mask_of(value) is not None:
            raise self.state.refusal("the shape of chosen elements")
        return value.shape, self.calls.dtype(dtype, value.dtype)

    def zeros_like(self, x: Value, dtype: Value | None = None) -> Value:
        """Return an array of zeros."""
        shape, name = self._like(x, dtype)
        return self._filled(shape, name, self._constant(0, name))

    def ones_like(self, x: Value, dtype: Value | None = None) -> Value:
        """Return an array of ones."""
        shape, name = self._like(x, dtype)
        return self._filled(shape, name, self._constant(1, name))

    def full_like(self, x: Value, fill_value: Value, dtype: Value | None = None) -> Value:
        """Return an array of equal elements."""
        shape, name = self._like(x, dtype)
        return self._filled(shape, name, self.low.expressions.as_number(fill_value))

    def copy(self, x: Value) -> Value:
        """Return a copy."""
        value = self.calls.numeric(x)
        is_number = isinstance(value, (Number, Complex))
        return value if is_number else self.elements.materialised(value)

    def as_array(self, x: Value) -> Value:
        """Return an array itself."""
        return self.calls.array(x)

    def astype(self, x: Value, dtype: Value) -> Value:
        """Return numbers in another dtype."""
        value = self.calls.numeric(x)
        kinds = self.elements.kinds(value)
        return self.elements.cast(value, self.calls.dtype(dtype, next(iter(kinds))))

    def arange(self, *args: Value, dtype: Value | None = None) -> Value:
        """Return whole numbers in order."""
        walk = self.low.loops.walk(self.calls.python.range(*args))
        name = self.calls.dtype(dtype, "int64")

        def element(indices: tuple[Number, ...]) -> Number:
            x = self.low.expressions.integer(walk.item(indices[0]))
            return number(self.low.numbers.cast(x, name), name)

        return Lazy(name, (walk.count,), element)

    def linspace(self, start: Value, stop: Value, num: Value) -> Value:
        """Return numbers at equal distances."""
        as_number, cast = self.low.expressions.as_number, build.cast
        first, last = (cast(as_number(x).expr, "float64") for x in (start, stop))
        count = self.low.expressions.integer(num)
        if count.whole is None or not self.low.numbers.facts.at_least(count.whole, 2):
            raise self.state.refusal("np.linspace of fewer than two numbers")
        gaps = cast(self.low.numbers.minus(count, integer(1)).expr, "float64")
        step = self.state.let("step", build.divide(build.subtract(last, first), gaps))

        def element(indices: tuple[Number, ...]) -> Number:
            at = cast(indices[0].expr, "float64")
            return number(build.add(first, build.multiply(at, step)), "float64")

        return Lazy("float64", (count,), element)

    # -- views -------------------------------------------------------------------------------------

    def transpose(self, x: Value, axes: Value | None = None) -> Value:
        """Return a view whose axes have another order."""
        if isinstance(axes, Items):
            return self.transposed(x, *axes.items)
        return self.transposed(x)

    def transposed(self, x: Value, *axes: Value) -> Value:
        """Return a view whose axes have another order."""
        view = self.view(x)
        if len(axes) == 1 and isinstance(axes[0], Items):
            axes = axes[0].items
        if not axes:
            return self.views.transposed(view)
        order = self._axes(Items(axes), len(view.axes))
        if sorted(order) != list(range(len(view.axes))):
            raise self.state.refusal("a transposition of such axes")
        return self.views.transposed(view, order)

    def _axes(self, value: Value, count: int) -> list[int]:
        chosen = self.calls.axis(value)
        numbers = [chosen] if isinstance(chosen, int) else list(chosen or ())
        if any(not -count <= a < count for a in numbers):
            raise self.state.refusal("an axis that the array does not have")
        return [a % count for a in numbers]

    def swapaxes(self, x: Value, a: Value, b: Value) -> Value:
        """Return a view with two axes exchanged."""
        view = self.view(x)
        order = list(range(len(view.axes)))
        (i,), (j,) = self._axes(a, len(order)), self._axes(b, len(order))
        order[i], order[j] = order[j], order[i]
        return self.views.transposed(view, order)

    def expand_dims(self, x: Value, axis: Value) -> Value:
        """Return a view with a new axis."""
        view = self.view(x)
        (at,) = self._axes(axis, len(view.axes) + 1)
        return self.views.item(view, (*[_ALL] * at, Known(None)))

    def squeeze(self, x: Value, axis: Value | None = None) -> Value:
        """Return a view without axes of extent 1."""
        view = self.view(x)
        chosen = range(len(view.axes)) if axis is None else self._axes(axis, len(view.axes))
        ones = [i for i in chosen if view.axes[i].extent.whole == Affine(1)]
        if axis is not None and len(ones) != len(list(chosen)):
            raise self.state.refusal("an axis whose extent is not known to be 1")
        if axis is None and any(
            a.extent.whole is None or a.extent.whole.value is None for a in view.axes
        ):
            raise self.state.refusal("np.squeeze of an array whose extents are not known")
        rest = tuple(a for i, a in enumerate(view.axes) if i not in ones)
        return self.elements.number(replace(view, axes=rest))

    def flip(self, x: Value, axis: Value | None = None) -> Value:
        """Return a view from the last element to the first."""
        view = self.view(x)
        count = len(view.axes)
        axes = range(count) if axis is None else self._axes(axis, count)
        back = Part(None, None, integer(-1))
        return self.views.item(view, [back if i in axes else _ALL for i in range(count)])

    def _reshaped(self, view: View, shape: Sequence[Number]) -> View:
        known = [e for e in shape if e.whole != Affine(-1)]
        count = self.views.count(view.shape)
        new = self.views.count(known)
        if len(known) == len(shape):
            if not self.views.same(count, new):
                raise self.state.refusal("a shape of another number of elements")
        else:
            rest, left_over = self.low.numbers.divided(count, new)
            if len(known) < len(shape) - 1 or left_over.whole is None or not (
                self.low.numbers.facts.equal(left_over.whole, 0)
            ):  # fmt: skip
                raise self.state.refusal("a shape of another number of elements")
            shape = [rest if e.whole == Affine(-1) else e for e in shape]
        if not self.views.is_whole(view):
            view = self.elements.materialised(view)
        return self.views.reshaped(view, shape)

    def reshape(self, x: Value, shape: Value) -> Value:
        """Return the elements in another shape."""
        items = shape.items if isinstance(shape, Items) else (shape,)
        return self._reshaped(self.view(x), [self.low.expressions.integer(i) for i in items])

    def reshape_method(self, x: Value, *shape: Value) -> Value:
        """Return the elements in another shape."""
        return self.reshape(x, shape[0] if len(shape) == 1 else Items(shape))

    def ravel(self, x: Value) -> Value:
        """Return the elements along one axis."""
        view = self.view(x)
        return self._reshaped(view, [self.views.count(view.shape)])

    def flatten(self, x: Value) -> Value:
        """Return a copy of the elements along one axis."""
        return self.ravel(self.copy(x))

    def diff(self, x: Value) -> Value:
        """Return differences of neighbours along the last axis."""
        view = self.view(x)
        before = [_ALL] * (len(view.axes) - 1)
        low = self.views.item(view, [*before, Part(None, integer(-1), None)])
        high = self.views.item(view, [*before, Part(integer(1), None, None)])
        return self.elements.ufunc(np.subtract, high, low)

    def roll(self, x: Value, shift: Value, axis: Value | None = None) -> Value:
        """Return elements moved along an axis, those of the end to the start."""
        view, numbers = self.view(x), self.low.numbers
        if axis is None and len(view.axes) != 1:
            raise self.state.refusal("np.roll without an axis")
        (at,) = self._axes(axis, len(view.axes)) if axis is not None else (0,)
        extent = view.axes[at].extent
        if extent.whole is None or not numbers.facts.at_least(extent.whole, 1):
            raise self.state.refusal("np.roll of an array that may be empty")
        by = numbers.divided(self.low.expressions.integer(shift), extent)[1]
        by = self.state.named("shift", by)

        def element(indices: tuple[Number, ...]) -> Scalar:
            back = numbers.minus(indices[at], by)
            moved = self.views.index(back, extent)
            own = (*indices[:at], moved, *indices[at + 1 :])
            return self.elements.scalar(view, own)

        return Lazy(view.dtype, view.shape, element, (), (view,))

    # -- what writes -------------------------------------------------------------------------------

    def fill(self, x: Value, value: Value) -> Value:
        """Set all elements."""
        self.low.statements.store(self._target(x), value)
        return Known(None)

    def copyto(self, x: Value, value: Value) -> Value:
        """Set all elements."""
        self.low.statements.store(self._target(x), value)
        return Known(None)

    def _target(self, x: Value) -> View:
        if not isinstance(x, View):
            raise self.state.refusal("a write into what is no array")
        return x
