"""Reductions and matrix products: a loop for each element, with a variable that adds up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from adarray.compiler.ir.loopir import Apply, Expr
from adarray.kernels import build
from adarray.kernels.types import FLOATS
from adarray.loops.lower.elements import Elements
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import COMPLEX, PARTS, resolved
from adarray.loops.lower.scalars import wrapped
from adarray.loops.lower.values import (
    Array,
    Complex,
    Lazy,
    Number,
    Scalar,
    View,
    integer,
    number,
)

Combine = Callable[[Expr, Expr], Expr]


def _added(a: Expr, b: Expr) -> Expr:
    return Apply(a.dtype, "add", (a, b)) if a.dtype in FLOATS else wrapped("add", a, b)


def _multiplied(a: Expr, b: Expr) -> Expr:
    return Apply(a.dtype, "multiply", (a, b)) if a.dtype in FLOATS else wrapped("multiply", a, b)


class Reductions:
    """Sums, extremes and products of arrays."""

    def __init__(self, elements: Elements) -> None:
        self.elements = elements
        self.numbers = elements.numbers
        self.state = elements.state
        self.views = elements.views

    def _axes(self, value: Array, axis: int | tuple[int, ...] | None) -> list[int]:
        """Return the axes of an array that are reduced."""
        count = len(value.shape)
        if axis is None:
            return list(range(count))
        chosen = [axis] if isinstance(axis, int) else list(axis)
        if any(not -count <= a < count for a in chosen) or len({a % count for a in chosen}) < len(
            chosen
        ):
            raise self.state.refusal("an axis that the array does not have")
        return sorted(a % count for a in chosen)

    def folded(
        self,
        value: Array,
        axis: int | tuple[int, ...] | None,
        keepdims: bool,
        first: Expr | None,
        combine: Combine,
    ) -> Array | Number:
        """Return what an operation makes of the elements along some axes, one after the other.

        Parameters
        ----------
        value : Array
        axis, keepdims
            As of NumPy's functions.
        first : Expr, optional
            What it begins with; the first element where it is None.
        combine : callable
        """
        if isinstance(value, Lazy) and value.mask is not None:
            if first is None or axis is not None or keepdims:
                raise self.state.refusal("an extreme of chosen elements, or along an axis")
            return self.elements.masks.folded(value, first, combine)
        axes = self._axes(value, axis)
        dtype = value.dtype if first is None else first.dtype
        if first is None:
            for a in axes:
                extent = value.shape[a].whole
                assert extent is not None
                if not self.numbers.facts.at_least(extent, 1):
                    raise self.state.refusal("an extreme of an array that may be empty")

        def element(indices: tuple[Number, ...]) -> Number:
            return self._fold(value, axes, self._spread(value, axes, indices), first, combine)

        if len(axes) == len(value.shape) and not keepdims:
            return element(())
        shape = [e for i, e in enumerate(value.shape) if i not in axes]
        if keepdims:
            shape = [integer(1) if i in axes else e for i, e in enumerate(value.shape)]
            short = element

            def element(indices: tuple[Number, ...]) -> Number:
                return short(tuple(x for i, x in enumerate(indices) if i not in axes))

        pointwise, others = self.elements.reads(value)
        return Lazy(dtype, tuple(shape), element, (), (*pointwise, *others), True)

    def _spread(
        self, value: Array, axes: Sequence[int], indices: Sequence[Number]
    ) -> list[Number | None]:
        """Return the indices of an array, None for those that are reduced."""
        rest = iter(indices)
        return [None if i in axes else next(rest) for i in range(len(value.shape))]

    def _fold(
        self,
        value: Array,
        axes: Sequence[int],
        fixed: list[Number | None],
        first: Expr | None,
        combine: Combine,
    ) -> Number:
        if first is None:
            zeros = [integer(0) if i is None else i for i in fixed]
            first = self.elements.element(value, zeros).expr
        total = self.state.local("total", first.dtype, first)
        with self.elements.nest([value.shape[a] for a in axes], True) as loops:
            rest = iter(loops)
            indices = [next(rest) if i is None else i for i in fixed]
            x = self.elements.element(value, indices)
            self.state.assign(total, combine(total, build.cast(x.expr, total.dtype)))
        return number(total, total.dtype)

    # -- by name -----------------------------------------------------------------------------------

    def sum(
        self, value: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Array | Scalar:
        """Return sums."""
        if value.dtype in COMPLEX:
            return self._complex_sum(value, axis, keepdims)
        zero = build.const(0, self._total(value.dtype))
        return self.folded(value, axis, keepdims, zero, _added)

    def _complex_sum(
        self, value: Array, axis: int | tuple[int, ...] | None, keepdims: bool
    ) -> Array | Scalar:
        parts = [self.sum(self.elements.part(value, p), axis, keepdims) for p in (True, False)]
        re, im = parts
        if isinstance(re, Number) and isinstance(im, Number):
            return Complex(re, im, value.dtype)
        assert isinstance(re, Lazy)

        def element(indices: tuple[Number, ...]) -> Scalar:
            first, second = (self.elements.element(p, indices) for p in parts)
            return Complex(first, second, value.dtype)

        return Lazy(value.dtype, re.shape, element, (), re.others, True)

    def prod(
        self, value: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Array | Number:
        """Return products."""
        one = build.const(1, self._total(value.dtype))
        return self.folded(value, axis, keepdims, one, _multiplied)

    def _total(self, dtype: str) -> str:
        """Return the dtype of sums."""
        if dtype in FLOATS:
            return dtype
        return "uint64" if dtype.startswith("u") else "int64"

    def mean(
        self, value: Array, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
    ) -> Array | Scalar:
        """Return means."""
        axes = self._axes(value, axis)
        floats = self.elements.to_float(value)
        assert isinstance(floats, (View, Lazy))
        total = self.sum(floats, axis, keepdims)
        if isinstance(value, Lazy) and value.mask is not None:
            return self.elements.ufunc(np.true_divide, total, self.elements.masks.count(value.mask))
        count = self.views.count([value.shape[a] for a in axes])
        return self.elements.ufunc(np.true_divide, total, count)

    def extreme(
        self, name: str, value: Array, axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
    ) -> Array | Number:  # fmt: skip
        """Return the largest or the smallest elements; `name` is maximum or minimum."""

        def combine(a: Expr, b: Expr) -> Expr:
            result = self.numbers.of_dtypes(name, (a, self.state.let("x", b)), a.dtype)
            assert result is not None
            return result

        return self.folded(value, axis, keepdims, None, combine)

    def truth(
        self, every: bool, value: Array, axis: int | tuple[int, ...] | None = None,
        keepdims: bool = False,
    ) -> Array | Number:  # fmt: skip
        """Return whether all elements, or any, are not 0."""

        def combine(a: Expr, b: Expr) -> Expr:
            b = build.truth(b)
            return build.both(a, b) if every else build.call("logical_or", "bool", a, b)

        if value.dtype != "bool":
            zero = self.numbers.constant(0)
            assert zero is not None
            truths = self.elements.ufunc(np.not_equal, value, zero)
            assert isinstance(truths, (View, Lazy))
            value = truths
        return self.folded(value, axis, keepdims, build.const(every, "bool"), combine)

    # -- products ----------------------------------------------------------------------------------

    def matmul(self, a: Array, b: Array) -> Array | Scalar:
        """Return the matrix product of arrays of one or two axes."""
        if any(self.elements.mask_of(x) is not None for x in (a, b)):
            raise self.state.refusal("a matrix product of chosen elements")
        if not 1 <= len(a.shape) <= 2 or not 1 <= len(b.shape) <= 2:
            raise self.state.refusal("a matrix product of arrays of other than one or two axes")
        dtypes = resolved(np.multiply, (a.dtype, b.dtype))
        if dtypes is None or dtypes[-1] == "bool":
            raise self.state.refusal(f"a matrix product of {a.dtype} and {b.dtype}")
        inner = a.shape[-1]
        if not self.views.same(inner, b.shape[0]):
            raise self.state.refusal("a matrix product of arrays whose shapes are not known to fit")
        dtype = dtypes[-1]
        if dtype in COMPLEX:
            return self._complex_product(self._in_memory(a), self._in_memory(b), dtype)
        if len(b.shape) == 2:
            a = self._in_memory(a)
        if len(a.shape) == 2:
            b = self._in_memory(b)
        if len(b.shape) == 2 and self._is_by_rows(b):
            return self._by_rows(a, b, dtype)

        def element(indices: tuple[Number, ...]) -> Number:
            row, column = indices[: len(a.shape) - 1], indices[len(a.shape) - 1 :]
            total = self.state.local("total", dtype, build.const(0, dtype))
            with self.state.loop("k", inner, True) as k:
                x = self.elements.element(a, (*row, k))
                y = self.elements.element(b, (k, *column))
                self.state.assign(total, _added(total, self._product(x, y, dtype)))
            return number(total, dtype)

        shape = (*a.shape[:-1], *b.shape[1:])
        if not shape:
            return element(())
        reads = tuple(v for x in (a, b) for views in self.elements.reads(x) for v in views)
        return Lazy(dtype, shape, element, (), reads, True)

    def _complex_product(self, a: Array, b: Array, dtype: str) -> Array | Scalar:
        """Return a product of complex numbers."""
        part, complexes = PARTS[dtype], self.elements.complexes

        def element(indices: tuple[Number, ...]) -> Scalar:
            row, column = indices[: len(a.shape) - 1], indices[len(a.shape) - 1 :]
            totals = [self.state.local("total", part, build.const(0, part)) for _ in range(2)]
            with self.state.loop("k", a.shape[-1], True) as k:
                x = complexes.cast(self.elements.scalar(a, (*row, k)), dtype)
                y = complexes.cast(self.elements.scalar(b, (k, *column)), dtype)
                product = complexes.ufunc(np.multiply, x, y)
                assert isinstance(product, Complex)
                for total, p in zip(totals, (product.re, product.im), strict=True):
                    self.state.assign(total, _added(total, p.expr))
            return Complex(number(totals[0], part), number(totals[1], part), dtype)

        shape = (*a.shape[:-1], *b.shape[1:])
        if not shape:
            return element(())
        reads = tuple(v for x in (a, b) for views in self.elements.reads(x) for v in views)
        return Lazy(dtype, shape, element, (), reads, True)

    def _product(self, x: Number, y: Number, dtype: str) -> Expr:
        return _multiplied(build.cast(x.expr, dtype), build.cast(y.expr, dtype))

    def _in_memory(self, value: Array) -> Array:
        """Return an array whose elements are read several times."""
        return self.elements.materialised(value) if isinstance(value, Lazy) else value

    def _is_by_rows(self, b: Array) -> bool:
        """Whether the elements of a row, not those of a column, are neighbours."""
        if not isinstance(b, View) or b.axes[1].extent.whole == Affine(1):
            return False
        return b.axes[1].stride.whole == Affine(1) and b.axes[0].stride.whole != Affine(1)

    def _by_rows(self, a: Array, b: Array, dtype: str) -> View:
        """Return a product whose innermost loop runs along the rows of both matrices."""
        shape = (*a.shape[:-1], b.shape[1])
        result = self.state.workspace("product", dtype, shape)
        with self.elements.nest(shape[:-1]) as row:
            with self.state.loop("j", shape[-1]) as j:
                at = self.views.address(result, (*row, j)).expr
                self.state.store(result.buffer, at, build.const(0, dtype))
            with self.state.loop("k", a.shape[-1]) as k:
                x = self.elements.element(a, (*row, k))
                with self.state.loop("j", shape[-1]) as j:
                    place = self.views.address(result, (*row, j))
                    total = self.state.load(result.buffer, place)
                    y = self.elements.element(b, (k, j))
                    self.state.store(
                        result.buffer, place.expr, _added(total.expr, self._product(x, y, dtype))
                    )
        return result
