"""Array expressions: evaluated element by element, where they are stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from adarray.compiler.ir.loopir import Expr
from adarray.kernels.types import FLOATS
from adarray.loops.lower.complexes import Complexes
from adarray.loops.lower.intervals import Affine
from adarray.loops.lower.kinds import COMPLEX, PARTS, resolved
from adarray.loops.lower.masks import Masks
from adarray.loops.lower.numbers import Arithmetic
from adarray.loops.lower.overlap import Overlap
from adarray.loops.lower.values import (
    Array,
    Complex,
    Lazy,
    Number,
    Scalar,
    Value,
    View,
    integer,
)
from adarray.loops.lower.views import Indexing

# Functions whose names are in the keys of truth values that are computed again for each use.
_COMPARING = frozenset((
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and",
    "logical_or", "logical_not", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "invert", "add", "subtract", "multiply", "negative",
))  # fmt: skip
_CHEAP = 8


def _cost(key: Hashable) -> int:
    """Return how many functions there are in a key; many, if one takes more than a comparison."""
    if not isinstance(key, tuple) or not key:
        return _CHEAP + 1
    if isinstance(key[0], Number) or (isinstance(key[0], View) and key[0].dtype not in COMPLEX):
        return 0
    return 1 + sum(map(_cost, key[2:])) if key[0] in _COMPARING else _CHEAP + 1


class Elements:
    """Arrays from arrays, without memory of their own."""

    def __init__(self, numbers: Arithmetic, views: Indexing) -> None:
        self.numbers = numbers
        self.state = numbers.state
        self.views = views
        self.overlap = Overlap(numbers.facts)
        self.complexes = Complexes(numbers)
        self.masks = Masks(self)

    # -- reading -----------------------------------------------------------------------------------

    def scalar(self, value: Array | Scalar, indices: Sequence[Number]) -> Scalar:
        """Return the element of an array at some indices, which may be complex."""
        if isinstance(value, (Number, Complex)):
            return value
        if isinstance(value, Lazy):
            return value.element(tuple(indices))
        return self.state.load(value.buffer, self.views.address(value, indices))

    def element(self, value: Array | Scalar, indices: Sequence[Number]) -> Number:
        """Return the real element of an array at some indices."""
        x = self.scalar(value, indices)
        if isinstance(x, Complex):
            raise self.state.refusal("complex numbers where only real ones are understood")
        return x

    def reads(self, value: Array | Scalar) -> tuple[tuple[View, ...], tuple[View, ...]]:
        """Return the views that an array reads at its own indices, and all others."""
        if isinstance(value, View):
            return (value,), ()
        return (value.pointwise, value.others) if isinstance(value, Lazy) else ((), ())

    def shape(self, value: Array | Scalar) -> tuple[Number, ...]:
        """Return the shape of a value."""
        return () if isinstance(value, (Number, Complex)) else value.shape

    def number(self, value: Array | Scalar) -> Array | Scalar:
        """Return an array of no axes as a number."""
        if isinstance(value, (Number, Complex)) or value.shape:
            return value
        return self.scalar(value, ())

    # -- making ------------------------------------------------------------------------------------

    def broadcast(self, value: Array | Scalar, shape: tuple[Number, ...]) -> Array | Scalar:
        """Return an array of a shape, along whose new axes elements repeat."""
        if isinstance(value, (Number, Complex)):
            return value
        if isinstance(value, View):
            return self.views.broadcast_view(value, shape)
        new = len(shape) - len(value.shape)
        repeated = [
            a.whole == Affine(1) and b.whole != Affine(1)
            for a, b in zip(value.shape, shape[new:], strict=True)
        ]
        if not new and not any(repeated):
            return value
        if value.mask is not None:
            raise self.state.refusal("chosen elements where other arrays have more axes")
        if value.heavy:
            return self.views.broadcast_view(self.materialised(value), shape)
        element = value.element

        def at(indices: tuple[Number, ...]) -> Scalar:
            own = zip(indices[new:], repeated, strict=True)
            return element(tuple(integer(0) if once else i for i, once in own))

        pointwise = tuple(self.views.broadcast_view(v, shape) for v in value.pointwise)
        return Lazy(value.dtype, shape, at, pointwise, value.others)

    def mask_of(self, *args: Array | Scalar) -> Array | None:
        """Return the mask of arrays of chosen elements; all have the same, or there is none."""
        masks = [a.mask for a in args if isinstance(a, Lazy) and a.mask is not None]
        if not masks:
            return None
        others = [a for a in args if isinstance(a, View) or (isinstance(a, Lazy) and not a.mask)]
        if others or not all(self.is_equal(masks[0], m) for m in masks[1:]):
            raise self.state.refusal("chosen elements beside others")
        return masks[0]

    def is_equal(self, a: Array, b: Array) -> bool:
        """Whether two arrays surely have equal elements."""
        return self._key(a) == self._key(b) != ()

    def _key(self, value: Array | Scalar) -> tuple[Hashable, ...]:
        return value.key if isinstance(value, Lazy) else (value,)

    def mapped(
        self,
        function: Callable[..., Scalar],
        dtype: str,
        *args: Array | Scalar,
        name: str = "",
    ) -> Lazy:
        """Return an array each of whose elements is a function of those of other arrays.

        With a `name`, it is the same function wherever it has the name.
        """
        mask = self.mask_of(*args)
        keys = tuple(map(self._key, args))
        key = (name, dtype, *keys) if name and all(keys) else ()
        shape = self.views.broadcast(*map(self.shape, args))
        fitted = [self.broadcast(a, shape) for a in args]

        def element(indices: tuple[Number, ...]) -> Scalar:
            return function(*(self.scalar(a, indices) for a in fitted))

        reads = [self.reads(a) for a in fitted]
        return Lazy(
            dtype, shape, element,
            tuple(v for views, _ in reads for v in views),
            tuple(v for _, views in reads for v in views),
            any(isinstance(a, Lazy) and a.heavy for a in fitted), key, mask,
        )  # fmt: skip

    def kinds(self, value: Array | Scalar) -> frozenset[str]:
        """Return the kinds of an array's elements, or of a number."""
        if isinstance(value, (Number, Complex)):
            return value.kinds
        return frozenset((value.dtype,))

    def ufunc(self, f: np.ufunc, *args: Array | Scalar) -> Array | Scalar:
        """Return what a ufunc makes of arrays and numbers."""
        args = tuple(map(self.number, args))
        numbers = [a for a in args if isinstance(a, (Number, Complex))]
        if len(numbers) == len(args):
            return self._ufunc(f, *numbers)
        dtypes = {resolved(f, kinds) for kinds in itertools.product(*map(self.kinds, args))}
        results = {d[-1] for d in dtypes if d is not None}
        if None in dtypes or len(results) != 1:
            shown = ", ".join(" or ".join(sorted(self.kinds(a))) for a in args)
            raise self.state.refusal(f"np.{f.__name__} of {shown}")
        return self.mapped(lambda *xs: self._ufunc(f, *xs), results.pop(), *args, name=f.__name__)

    def _ufunc(self, f: np.ufunc, *args: Scalar) -> Scalar:
        real = [a for a in args if isinstance(a, Number)]
        if len(real) == len(args):
            return self.numbers.ufunc(f, *real)
        return self.complexes.ufunc(f, *args)

    def operator(self, name: str, a: Array | Scalar, b: Array | Scalar) -> Array | Scalar:
        """Return what an operator makes of two values; `name` is that of NumPy's ufunc."""
        a, b = self.number(a), self.number(b)
        if isinstance(a, Number) and isinstance(b, Number):
            return self.numbers.operator(name, a, b)
        if isinstance(a, (Number, Complex)) and isinstance(b, (Number, Complex)):
            return self.complexes.operator(name, a, b)
        return self.ufunc(getattr(np, name), a, b)

    # -- storing -----------------------------------------------------------------------------------

    @contextmanager
    def nest(self, shape: Sequence[Number], adds: bool = False) -> Iterator[tuple[Number, ...]]:
        """Write loops over all indices of a shape; with `adds`, they add to a variable."""
        with ExitStack() as stack:
            yield tuple(stack.enter_context(self.state.loop("k", e, adds)) for e in shape)

    def store(self, target: View, value: Array | Scalar) -> None:
        """Set the elements of a view."""
        if self.mask_of(value) is not None:
            raise self.state.refusal("chosen elements are stored where all are")
        shape = self.views.broadcast(target.shape, self.shape(value))
        fits = len(shape) == len(target.axes) and all(
            self.views.same(a, b) for a, b in zip(shape, target.shape, strict=True)
        )
        if not fits:
            lead = len(shape) - len(target.axes)
            if lead <= 0 or any(e.whole != Affine(1) for e in self.shape(value)[:lead]):
                raise self.state.refusal("an array whose shape is not known to fit its target")
            if not isinstance(value, View):
                value = self.materialised(value)
            value = replace(value, axes=value.axes[lead:])
        value = self.broadcast(value, target.shape)
        pointwise, others = self.reads(value)
        apart = all(self.overlap.is_apart(target, v) for v in others)
        if not apart or not all(self.overlap.is_harmless(target, v) for v in pointwise):
            value = self.materialised(value)
        self._store(target, value, all(self.overlap.is_same(target, v) for v in pointwise))

    def _store(self, target: View, value: Array | Scalar, any_order: bool) -> None:
        """Set elements in the order of loops that suits memory, where any will do."""
        order = list(range(len(target.axes)))
        if any_order and order:
            # The innermost loop runs along elements that are neighbours.
            ones = [i for i in order if target.axes[i].stride.whole == Affine(1)]
            if ones and ones[-1] != order[-1]:
                order.append(order.pop(ones[-1]))
        with self.nest([target.axes[i].extent for i in order]) as loops:
            indices = [loops[order.index(i)] for i in range(len(order))]
            x = self.scalar(value, indices)
            at = self.views.address(target, indices).expr
            self.state.store(target.buffer, at, self.stored(x, target.dtype))

    def stored(self, x: Scalar, dtype: str) -> Expr | tuple[Expr, Expr]:
        """Return a number as an element of an array; floats lose their fraction in integers."""
        if dtype in COMPLEX:
            value = self.complexes.cast(x, dtype)
            return value.re.expr, value.im.expr
        if isinstance(x, Complex):
            raise self.state.refusal("a complex number is stored as a real one")
        return self.numbers.cast(x, dtype)

    def materialised(self, value: Array | Scalar, name: str = "own") -> View:
        """Return an array in memory of its own."""
        if isinstance(value, (Number, Complex)):
            dtype = next(iter(value.kinds))
            raise self.state.refusal(f"an array of one {dtype}")
        if isinstance(value, Lazy) and value.mask is not None:
            raise self.state.refusal("chosen elements where a whole array is expected")
        view = self.state.workspace(name, value.dtype, value.shape)
        self._store(view, value, True)
        return view

    def settled(self, value: Value, name: str) -> Value:
        """Return a value as a name stands for it: computed once."""
        if isinstance(value, Complex):
            return self.complexes.named(name, value)
        if isinstance(value, Lazy):
            if value.shares:
                raise self.state.refusal("a part of complex numbers that has a name")
            if value.mask is not None:
                return self.masks.settled(value, name)
            one = self.number(value)
            return one if isinstance(one, (Number, Complex)) else self.materialised(value, name)
        return self.state.named(name, value) if isinstance(value, Number) else value

    def waits(self, value: Array) -> bool:
        """Whether truth values may be computed wherever they are used, and noted as such.

        They take a few comparisons of arrays that nothing writes, which costs less than memory for
        them: the adjoint of a loop would have to tape that.
        """
        state = self.state
        if not state.postpones or not isinstance(value, Lazy) or value.heavy:
            return False
        if value.dtype != "bool" or _cost(value.key) > _CHEAP:
            return False
        return self.keeps(value)

    def keeps(self, value: Array) -> bool:
        """Whether nothing writes what an array is computed from, which is assumed from now on."""
        state = self.state
        callers = {b.name for b in state.buffers.values()} - state.changing
        names = {v.buffer.name for views in self.reads(value) for v in views}
        if not state.postpones or not names <= callers:
            return False
        state.steady |= names
        state.postponed = True
        return True

    def part(self, value: Array, real: bool) -> Lazy:
        """Return the real or the imaginary parts of complex numbers."""

        def of(x: Scalar) -> Scalar:
            assert isinstance(x, Complex)
            return x.re if real else x.im

        return self.mapped(of, PARTS[value.dtype], value)

    def to_float(self, value: Array | Scalar) -> Array | Scalar:
        """Return integers as floats of 64 bits, and floats as they are."""
        if all(k in FLOATS or k in COMPLEX for k in self.kinds(value)):
            return value
        return self.cast(value, "float64")

    def cast(self, value: Array | Scalar, dtype: str) -> Array | Scalar:
        """Return numbers as those of another dtype."""

        def converted(x: Scalar) -> Scalar:
            if dtype in COMPLEX:
                return self.complexes.cast(x, dtype)
            if isinstance(x, Complex):
                raise self.state.refusal("complex numbers are converted to real ones")
            whole = None
            if dtype not in FLOATS and dtype != "bool" and x.whole is not None:
                limits = np.iinfo(dtype)
                kept = self.numbers.facts.within(x.whole, int(limits.min), int(limits.max))
                whole = x.whole if kept else None
            return Number(self.numbers.cast(x, dtype), frozenset((dtype,)), whole)

        if isinstance(value, (Number, Complex)):
            return converted(value)
        return value if value.dtype == dtype else self.mapped(converted, dtype, value)
