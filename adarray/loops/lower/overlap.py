"""Whether a statement that stores element by element reads what it has stored before.

NumPy evaluates the right-hand side wholly before it stores. Element by element, that is the same if
what is read is never an element that was stored in an earlier iteration.
"""

from __future__ import annotations

from adarray.loops.lower.intervals import Affine, Facts
from adarray.loops.lower.values import View


class Overlap:
    """Proofs about two views of one buffer."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def is_apart(self, a: View, b: View) -> bool:
        """Whether two views have no element in common."""
        if a.buffer.name != b.buffer.name:
            return True
        if a.first and b.first:
            for base in range(len(a.first)):
                (low, high), (least, most) = self._ends(a, base), self._ends(b, base)
                if any(self.facts.at_least(x, y + 1) for x, y in ((low, most), (least, high))):
                    return True
        (low, high), (least, most) = self._span(a), self._span(b)
        return self.facts.at_least(low, most + 1) or self.facts.at_least(least, high + 1)

    def _ends(self, view: View, base: int) -> tuple[Affine, Affine]:
        """Return the lowest and the highest index along an axis of the buffer."""
        low = high = view.first[base]
        for axis in view.axes:
            if axis.base == base:
                assert axis.extent.whole is not None
                reach = (axis.extent.whole - 1).scaled(axis.step)
                low, high = (low, high + reach) if axis.step > 0 else (low + reach, high)
        return low, high

    def _span(self, view: View) -> tuple[Affine, Affine]:
        """Return bounds of where elements are."""
        assert view.offset.whole is not None
        low = high = view.offset.whole
        for axis in view.axes:
            stride, extent = axis.stride.whole, axis.extent.whole
            assert stride is not None
            assert extent is not None
            if stride.value is not None:
                reach = (extent - 1).scaled(stride.value)
                low, high = (low, high + reach) if stride.value >= 0 else (low + reach, high)
                continue
            most = (self.facts.range(extent)[1] - 1) * max(map(abs, self.facts.range(stride)))
            low, high = low - most, high + most
        return low, high

    def _strides(self, view: View) -> list[Affine]:
        return [a.stride.whole for a in view.axes if a.stride.whole is not None]

    def _is_same_walk(self, a: View, b: View) -> bool:
        """Whether a step along any axis is as far in one view as in the other."""
        strides = zip(self._strides(a), self._strides(b), strict=True)
        return all(
            x == y or axis.extent.whole == Affine(1)
            for (x, y), axis in zip(strides, a.axes, strict=True)
        )

    def _ascends(self, view: View) -> bool:
        """Whether each element lies behind those of earlier iterations."""
        reach = 0
        for axis in reversed(view.axes):
            assert axis.extent.whole is not None
            assert axis.stride.whole is not None
            most = self.facts.range(axis.extent.whole)[1]
            if most <= 1:
                continue
            stride = self.facts.range(axis.stride.whole)[0]
            if stride <= reach:
                return False
            reach += (most - 1) * max(stride, self.facts.range(axis.stride.whole)[1])
        return True

    def is_harmless(self, target: View, read: View) -> bool:
        """Whether a statement may read at its own indices what it stores at them."""
        if self.is_apart(target, read):
            return True
        assert target.offset.whole is not None
        assert read.offset.whole is not None
        if not self._is_same_walk(target, read):
            return False
        ahead = read.offset.whole - target.offset.whole
        if ahead == Affine(0):
            return self._ascends(target) or self._is_one_to_one(target)
        return self.facts.nonnegative(ahead) and self._ascends(target)

    def is_same(self, target: View, read: View) -> bool:
        """Whether two views have the same elements at the same indices, or none in common."""
        if self.is_apart(target, read):
            return True
        same = target.offset.whole == read.offset.whole and self._is_same_walk(target, read)
        return same and self._is_one_to_one(target)

    def _is_one_to_one(self, view: View) -> bool:
        """Whether no two indices name the same element."""
        bases = [a.base for a in view.axes if a.extent.whole != Affine(1)]
        return None not in bases and len(set(bases)) == len(bases)
