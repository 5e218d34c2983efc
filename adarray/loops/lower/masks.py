"""Elements that an array of truth values chooses: a branch for each element, no list of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from adarray.compiler.ir.loopir import Expr
from adarray.kernels import build
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import INT
from adarray.loops.lower.values import Array, Complex, Lazy, Number, Scalar, Value, View, number

if TYPE_CHECKING:
    from adarray.loops.lower.elements import Elements

CHOSEN = "chosen"  # begins the key of elements that a mask chooses of memory


class Masks:
    """Arrays of chosen elements."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements
        self.state = elements.state

    def mask(self, view: View, items: Sequence[Value]) -> Array | None:
        """Return the array of truth values that an index consists of; None for other indices."""
        item = items[0]
        if not isinstance(item, (View, Lazy)) or item.dtype != "bool" or not item.shape:
            return None
        if isinstance(item, Lazy) and item.mask is not None:
            raise self.state.refusal("a mask of chosen elements")
        pairs = list(zip(item.shape, view.shape, strict=False))
        same = len(item.shape) == len(view.shape) and len(items) == 1
        if not same or not all(self.elements.views.same(a, b) for a, b in pairs):
            raise self.state.refusal("a mask of another shape than the array")
        if isinstance(item, Lazy) and item.heavy:
            return self.elements.materialised(item)
        return item

    def chosen(self, array: Array, mask: Array) -> Lazy:
        """Return the elements that a mask chooses."""

        def element(indices: tuple[Number, ...]) -> Scalar:
            return self.elements.scalar(array, indices)

        pointwise, others = self.elements.reads(array)
        views, more = self.elements.reads(mask)
        key = (CHOSEN, array, mask) if isinstance(array, View) else ()
        return Lazy(
            array.dtype, array.shape, element, (*pointwise, *views), (*others, *more), key=key,
            mask=mask,
        )  # fmt: skip

    def _if(self, mask: Array, indices: Sequence[Number], write: Callable[[], None]) -> None:
        """Write what is done if an element is chosen."""
        test = self.elements.element(mask, indices)
        with self.state.block() as body:
            write()
        self.state.branch(test.expr, body)

    def settled(self, value: Lazy, name: str) -> Lazy:
        """Return chosen elements that are computed once, unless they only have to be read."""
        assert value.mask is not None
        waits = self._waits(value.mask)
        if waits and value.key[:1] == (CHOSEN,) and self.elements.keeps(value):
            return value
        mask = value.mask if waits else self.elements.materialised(value.mask, "mask")
        memory = self.state.workspace(name, value.dtype, value.shape)
        self._store(memory, mask, value)
        return self.chosen(memory, mask)

    def _waits(self, mask: Array) -> bool:
        """Whether a mask is the same when it is used, without a copy."""
        if isinstance(mask, View):
            return self.elements.keeps(mask)
        return self.elements.waits(mask)

    def _store(self, target: View, mask: Array, value: Array | Scalar) -> None:
        with self.elements.nest(target.shape) as indices:

            def write() -> None:
                x = self.elements.scalar(value, indices)
                at = self.elements.views.address(target, indices).expr
                self.state.store(target.buffer, at, self.elements.stored(x, target.dtype))

            self._if(mask, indices, write)

    def store(self, target: View, mask: Array, value: Array | Scalar) -> None:
        """Set the elements that a mask chooses."""
        known = self.elements.mask_of(value)
        if not isinstance(value, (Number, Complex)) and (
            known is None or not self.elements.is_equal(known, mask)
        ):
            raise self.state.refusal("elements that a mask chooses are set to others")
        pointwise, others = self.elements.reads(value)
        views, more = self.elements.reads(mask)
        overlap = self.elements.overlap
        safe = all(overlap.is_apart(target, v) for v in (*others, *more)) and all(
            overlap.is_harmless(target, v) for v in (*pointwise, *views)
        )
        if not safe and isinstance(value, Lazy):
            value = self.settled(value, "own")
            assert value.mask is not None
            mask = value.mask
        elif not safe:
            mask = self.elements.materialised(mask, "mask")
        self._store(target, mask, value)

    def folded(self, value: Lazy, first: Expr, combine: Callable[[Expr, Expr], Expr]) -> Number:
        """Return what an operation makes of the chosen elements, one after the other."""
        assert value.mask is not None
        mask = value.mask
        total = self.state.local("total", first.dtype, first)
        with self.elements.nest(value.shape) as indices:

            def write() -> None:
                x = self.elements.element(replace(value, mask=None), indices)
                self.state.assign(total, combine(total, build.cast(x.expr, total.dtype)))

            self._if(mask, indices, write)
        return number(total, total.dtype)

    def count(self, mask: Array) -> Number:
        """Return how many elements a mask chooses."""
        one = Lazy("int64", mask.shape, lambda _: number(build.index(1), INT), mask=mask)
        total = self.folded(one, build.index(0), lambda a, b: build.add(a, b))
        size = self.elements.views.count(mask.shape)
        assert size.whole is not None
        return number(total.expr, INT, self.state.facts.symbol([Affine(0)], [size.whole]))


@dataclass(frozen=True, slots=True)
class ChosenPlace:
    """The elements of a view that a mask chooses, where they are set."""

    masks: Masks
    view: View
    mask: Array

    def read(self) -> Lazy:
        """Return them as they are."""
        return self.masks.chosen(self.view, self.mask)

    def store(self, value: Array | Scalar) -> None:
        """Set them."""
        self.masks.store(self.view, self.mask, value)
