"""Elements at indices that are read from an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from adarray.kernels.types import INTEGERS
from adarray.loops.forms import Known
from adarray.loops.lower.values import (
    Array,
    Complex,
    Items,
    Lazy,
    Number,
    Part,
    Scalar,
    Value,
    View,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering


class Gathering:
    """Arrays from arrays of indices."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.elements = elements = lowering.elements
        self.state = elements.state
        self.views = elements.views

    def place(self, view: View, items: Sequence[Value]) -> GatheredPlace:
        """Return the elements that one array of integers and slices choose."""
        expanded = [*items, *[Part(None, None, None)] * (len(view.axes) - len(items))]
        arrays = [k for k, i in enumerate(expanded) if isinstance(i, (View, Lazy))]
        plain = all(isinstance(i, (View, Lazy, Part)) for i in expanded)
        if len(arrays) != 1 or not plain or len(expanded) != len(view.axes):
            raise self.state.refusal("an index of several arrays, or of an array and a number")
        (at,) = arrays
        chosen = expanded[at]
        assert isinstance(chosen, (View, Lazy))
        if chosen.dtype not in INTEGERS or chosen.dtype == "bool":
            raise self.state.refusal("an index that is an array of other than integers")
        whole = Part(None, None, None)
        slices = [whole if k == at else i for k, i in enumerate(expanded)]
        return GatheredPlace(self, self.views.item(view, slices), chosen, at)

    def combined(self, f: np.ufunc, target: Value, chosen: Value, value: Value) -> Value:
        """Combine values into chosen elements, one after the other."""
        if not isinstance(target, View):
            raise self.state.refusal("a write into what is no array")
        items = chosen.items if isinstance(chosen, Items) else (chosen,)
        place = self.place(target, items)
        if not isinstance(value, (Number, View, Lazy)):
            raise self.state.refusal(f"np.{f.__name__}.at with such arguments")
        self.low.statements.check_write(place.view)
        place.store(value, lambda old, new: self.elements.numbers.ufunc(f, old, new))
        return Known(None)

    def gathered(self, view: View, items: Sequence[Value]) -> Lazy:
        """Return the elements that one array of integers and slices choose."""
        return self.place(view, items).read()


@dataclass(frozen=True, slots=True)
class GatheredPlace:
    """Elements of a view, along one axis those whose indices an array has.

    Attributes
    ----------
    view : View
    chosen : Array
        The indices.
    at : int
        The axis.
    """

    gathering: Gathering
    view: View
    chosen: Array
    at: int

    @property
    def shape(self) -> tuple[Number, ...]:
        """Extents."""
        shape = self.view.shape
        return (*shape[: self.at], *self.chosen.shape, *shape[self.at + 1 :])

    def _indices(self, indices: tuple[Number, ...]) -> tuple[Number, ...]:
        elements, views = self.gathering.elements, self.gathering.views
        behind = self.at + len(self.chosen.shape)
        i = elements.element(self.chosen, indices[self.at : behind])
        own = views.index(i, self.view.shape[self.at])
        return (*indices[: self.at], own, *indices[behind:])

    def read(self) -> Lazy:
        """Return them as they are."""
        elements = self.gathering.elements

        def element(indices: tuple[Number, ...]) -> Scalar:
            return elements.scalar(self.view, self._indices(indices))

        pointwise, others = elements.reads(self.chosen)
        return Lazy(self.view.dtype, self.shape, element, (), (self.view, *pointwise, *others))

    def store(
        self, value: Array | Scalar, combine: Callable[[Number, Number], Number] | None = None
    ) -> None:
        """Set them, in order: of several that are one, the last stays."""
        elements = self.gathering.elements
        pointwise, others = elements.reads(value)
        apart = all(elements.overlap.is_apart(self.view, v) for v in (*pointwise, *others))
        if not apart:
            value = elements.materialised(value)
        state, views = self.gathering.state, self.gathering.views
        fits = views.broadcast(self.shape, elements.shape(value))
        if len(fits) != len(self.shape) or not all(map(views.same, fits, self.shape)):
            raise state.refusal("an array whose shape is not known to fit its target")
        value = elements.broadcast(value, self.shape)
        with elements.nest(self.shape) as indices:
            at = state.named("at", views.address(self.view, self._indices(indices)))
            x = elements.scalar(value, indices)
            if combine is not None:
                old = state.load(self.view.buffer, at)
                if isinstance(old, Complex) or isinstance(x, Complex):
                    raise state.refusal("complex numbers at indices that are read from an array")
                x = combine(old, x)
            state.store(self.view.buffer, at.expr, elements.stored(x, self.view.dtype))
