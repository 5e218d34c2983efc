"""Functions and methods that are understood: one entry each.

A ufunc is understood by its name, by way of the scalar catalogue; `math`'s functions are those that
kernels know by C's names. What is neither, and no function of the user's, has an entry here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from adarray.compiler.ir.loopir import Const
from adarray.kernels import build
from adarray.kernels.functions import MATH
from adarray.loops.forms import Known
from adarray.loops.lower.arrays import ArrayCalls
from adarray.loops.lower.kinds import (
    BOOL,
    COMPLEX,
    DTYPES,
    FLOAT,
    INT,
    PARTS,
    PYTHON,
    common,
    is_float,
)
from adarray.loops.lower.pythons import PythonCalls
from adarray.loops.lower.stacking import StackingCalls
from adarray.loops.lower.values import (
    Array,
    Closure,
    Complex,
    Growing,
    Items,
    Lazy,
    Method,
    Number,
    Part,
    Scalar,
    Value,
    View,
    Walk,
    integer,
    number,
)

if TYPE_CHECKING:
    from adarray.loops.lower.kernel import LoopLowering

Handler = Callable[..., Value]
_MATH = {getattr(math, c): ours for c, ours in MATH.items() if hasattr(math, c)}
_MATH |= {math.degrees: "rad2deg", math.radians: "deg2rad"}
_INTEGERS = (math.floor, math.ceil, math.trunc)


class Calls:
    """Calls, by what is called."""

    def __init__(self, lowering: LoopLowering) -> None:
        self.low = lowering
        self.state = lowering.state
        self.numbers = lowering.numbers
        self.elements = lowering.elements
        self.views = lowering.views
        self.reductions = lowering.reductions
        self.arrays = arrays = ArrayCalls(self)
        self.python = PythonCalls(self)
        self.stacking = StackingCalls(self)
        self._methods: dict[str, Handler] = {
            "sum": self.sum, "mean": self.mean, "prod": self.prod, "max": self.maximum,
            "min": self.minimum, "all": self.all, "any": self.any, "dot": self.dot,
            "item": self.item, "std": self.std, "var": self.var,
            "conj": self.conjugate, "conjugate": self.conjugate, "clip": self.clip,
            **arrays.methods,
        }  # fmt: skip
        self._functions: dict[Any, Handler] = {
            np.sum: self.sum, np.mean: self.mean, np.prod: self.prod, np.max: self.maximum,
            np.min: self.minimum, np.all: self.all, np.any: self.any, np.dot: self.dot,
            np.amax: self.maximum, np.amin: self.minimum, np.std: self.std, np.var: self.var,
            np.linalg.norm: self.norm,
            np.outer: self.outer, np.inner: self.inner, **arrays.functions,
            **self.stacking.functions,
            np.matmul: lambda a, b: self.reductions.matmul(self.array(a), self.array(b)),
            np.where: self.where, np.clip: self.clip,
            np.real: lambda x: self.attribute(x, "real"),
            np.imag: lambda x: self.attribute(x, "imag"),
            np.ndim: lambda x: self.attribute(x, "ndim"),
            np.shape: lambda x: self.attribute(x, "shape"),
            np.size: lambda x: self.attribute(x, "size"),
            **self.python.functions,
        }  # fmt: skip

    # -- what is called ----------------------------------------------------------------------------

    def call(self, function: Value, args: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        """Return the value of a call."""
        if isinstance(function, Method):
            return self._method(function, args, keywords)
        if isinstance(function, Closure):
            return self.low.functions.of_the_loop(function, args, keywords)
        if not isinstance(function, Known):
            raise self.state.refusal(f"a call of {self.low.expressions.shown(function)}")
        f = function.value
        handler = self._handler(f)
        if handler is not None and f is not np.array and isinstance(f, type(np.sum)):
            args = tuple(
                self.low.lists.array(a) if isinstance(a, Growing) and f is not np.stack else a
                for a in args
            )  # fmt: skip
        if handler is not None:
            return self._handled(getattr(f, "__name__", "a function"), handler, args, keywords)
        if isinstance(f, FunctionType):
            return self.low.functions.inlined(f, args, keywords)
        raise self.state.refusal(f"a call of {getattr(f, '__name__', type(f).__name__)}")

    def _handler(self, f: Any) -> Handler | None:
        try:
            hash(f)
        except TypeError:
            return None
        if f in self._functions:
            return self._functions[f]
        if isinstance(f, np.ufunc) and f.signature is None and f.nout == 1:
            return self._of_ufunc(f)
        if f in _MATH:
            return lambda *xs: self._math(f, *map(self.low.expressions.as_number, xs))
        if isinstance(f, type) and issubclass(f, np.generic) and np.dtype(f).name in DTYPES:
            dtype = np.dtype(f).name
            return lambda x: self.elements.cast(self.low.expressions.as_number(x), dtype)
        return None

    def _of_ufunc(self, f: np.ufunc) -> Handler:
        """Return what calls a ufunc, with ``out`` or without."""

        def call(*xs: Value, out: Value | None = None) -> Value:
            inputs, rest = xs[: f.nin], xs[f.nin :]
            if len(inputs) < f.nin or len(rest) > 1 or (rest and out is not None):
                raise self.state.refusal(f"{f.__name__} with such arguments")
            out = rest[0] if rest else out
            if isinstance(out, Items) and len(out.items) == 1:
                (out,) = out.items
            result = self.elements.ufunc(f, *map(self.numeric, inputs))
            if out is None or (isinstance(out, Known) and out.value is None):
                return result
            return self._into(f.__name__, result, out)

        return call

    def _into(self, name: str, result: Array | Scalar, out: Value) -> View:
        """Store what a ufunc computes in its argument ``out``."""
        if not isinstance(out, View):
            raise self.state.refusal(f"{name} into what is no array")
        if len(self.elements.shape(result)) > len(out.shape):
            raise self.state.refusal(f"{name} into an array of another shape")
        self.low.statements.check_cast(name, out.dtype, result)
        self.low.statements.store(out, result)
        return out

    def _handled(
        self, name: str, handler: Handler, args: tuple[Value, ...], keywords: dict[str, Value]
    ) -> Value:
        try:
            inspect.signature(handler).bind(*args, **keywords)
        except TypeError:
            raise self.state.refusal(f"{name} with such arguments") from None
        return handler(*args, **keywords)

    def _method(self, method: Method, args: tuple[Value, ...], keywords: dict[str, Value]) -> Value:
        value = method.value
        if isinstance(value, Known):
            if isinstance(value.value, np.ufunc) and method.name == "outer" and not keywords:
                a, b = (self.array(x) for x in args)
                return self._outer(value.value, a, b)
            if isinstance(value.value, np.ufunc) and method.name == "at" and len(args) == 3:
                return self.low.gathering.combined(value.value, *args)
            raise self.state.refusal(f"the attribute {method.name!r} of "
                              f"{self.low.expressions.shown(value)}")  # fmt: skip
        handler = self._methods.get(method.name)
        if handler is None or not isinstance(value, (View, Lazy, Number, Complex)):
            raise self.state.refusal(f"the method {method.name!r}")
        return self._handled(method.name, handler, (value, *args), keywords)

    def attribute(self, value: Value, name: str) -> Value:
        """Return an attribute of a value."""
        if isinstance(value, Lazy) and value.mask is not None:
            if name == "size":
                return self.elements.masks.count(value.mask)
            if name in ("shape", "ndim", "T"):
                raise self.state.refusal("the shape of chosen elements")
        if name in ("real", "imag"):
            return self._part(value, name)
        if isinstance(value, (View, Lazy)):
            if name == "shape":
                return Items(value.shape)
            if name == "ndim":
                return integer(len(value.shape))
            if name == "size":
                return self.views.count(value.shape)
            if name == "dtype":
                return Known(np.dtype(value.dtype))
            if name == "T":
                return self._methods["transpose"](value)
        elif isinstance(value, Number) and name == "shape":
            return Items(())
        return Method(value, name)

    def _part(self, value: Value, name: str) -> Value:
        """Return the real or the imaginary part."""
        if isinstance(value, (Number, View, Lazy)) and not any(
            k in COMPLEX for k in self.elements.kinds(value)
        ):
            if name == "imag":
                raise self.state.refusal("the imaginary part of real numbers")
            return value
        if isinstance(value, Complex):
            return value.re if name == "real" else value.im
        if not isinstance(value, (View, Lazy)):
            raise self.state.refusal(f"the attribute {name!r}")
        parts = self.elements.part(value, name == "real")
        return replace(parts, shares=isinstance(value, View))

    def conjugate(self, x: Value) -> Value:
        """Return complex conjugates; real numbers themselves."""
        value = self.numeric(x)
        if isinstance(value, Complex) and value.kind == "python complex":
            return replace(value, im=Number(build.negative(value.im.expr), value.im.kinds))
        if any(k in PARTS for k in self.elements.kinds(value)):
            return self.elements.ufunc(np.conjugate, value)
        return value

    # -- arguments ---------------------------------------------------------------------------------

    def numeric(self, value: Value) -> Array | Scalar:
        """Return an argument that is an array or a number."""
        return self.low.expressions.numeric(value)

    def array(self, value: Value) -> Array:
        """Return an argument that is an array."""
        value = self.numeric(value)
        if isinstance(value, (Number, Complex)):
            raise self.state.refusal("a number where an array is expected")
        return value

    def flag(self, value: Value | None) -> bool:
        """Return an argument that is True or False in the text."""
        if value is None:
            return False
        if isinstance(value, Number) and isinstance(value.expr, Const):
            return bool(value.expr.value)
        raise self.state.refusal("an argument that is not known to be True or False")

    def axis(self, value: Value | None) -> int | tuple[int, ...] | None:
        """Return an argument that is an axis, or several."""
        if value is None or (isinstance(value, Known) and value.value is None):
            return None
        if isinstance(value, Items):
            return tuple(self._constant(v) for v in value.items)
        return self._constant(value)

    def _constant(self, value: Value) -> int:
        expr = self.low.expressions.integer(value).expr
        if not isinstance(expr, Const):
            raise self.state.refusal("an axis that is not known")
        return int(expr.value)

    def dtype(self, value: Value | None, default: str) -> str:
        """Return an argument that is a dtype."""
        if value is None or (isinstance(value, Known) and value.value is None):
            return default
        if not isinstance(value, Known):
            raise self.state.refusal("a dtype that is not known")
        try:
            name: str = np.dtype(value.value).name
        except TypeError:
            raise self.state.refusal("a dtype that is not known") from None
        if name not in DTYPES | COMPLEX:
            raise self.state.refusal(f"arrays of {name}")
        return name

    def shape(self, value: Value) -> tuple[Number, ...]:
        """Return an argument that is a shape."""
        items = value.items if isinstance(value, Items) else (value,)
        shape = tuple(self.low.expressions.integer(v) for v in items)
        for extent in shape:
            if extent.whole is None or not self.numbers.facts.at_least(extent.whole, 0):
                raise self.state.refusal("a shape that may be negative")
        return shape

    # -- reductions and products -------------------------------------------------------------------

    def _reduced(
        self, f: Callable[..., Array | Scalar], x: Value, axis: Value | None, keepdims: Value | None
    ) -> Value:
        x = self.numeric(x)
        if isinstance(x, (Number, Complex)):
            if axis is not None:
                raise self.state.refusal("a reduction of a number along an axis")
            return x
        return f(x, self.axis(axis), self.flag(keepdims))

    def sum(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return sums."""
        return self._reduced(self.reductions.sum, x, axis, keepdims)

    def mean(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return means."""
        return self._reduced(self.reductions.mean, self.array(x), axis, keepdims)

    def prod(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return products."""
        return self._reduced(self.reductions.prod, self.array(x), axis, keepdims)

    def maximum(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return maxima."""
        f = self.reductions.extreme
        return self._reduced(lambda *a: f("maximum", *a), self.array(x), axis, keepdims)

    def minimum(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return minima."""
        f = self.reductions.extreme
        return self._reduced(lambda *a: f("minimum", *a), self.array(x), axis, keepdims)

    def all(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return whether all elements are true."""
        f = self.reductions.truth
        return self._reduced(lambda *a: f(True, *a), self.array(x), axis, keepdims)

    def any(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return whether an element is true."""
        f = self.reductions.truth
        return self._reduced(lambda *a: f(False, *a), self.array(x), axis, keepdims)

    def var(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return variances."""
        if self.elements.mask_of(self.array(x)) is not None:
            raise self.state.refusal("a variance of chosen elements")
        a = self._floats(x)
        mean = self.reductions.mean(a, self.axis(axis), True)
        apart = self.elements.ufunc(np.subtract, a, mean)
        square = self.elements.ufunc(np.square, apart)
        return self._reduced(self.reductions.mean, square, axis, keepdims)

    def std(self, x: Value, axis: Value | None = None, keepdims: Value | None = None) -> Value:
        """Return standard deviations."""
        return self.elements.ufunc(np.sqrt, self.numeric(self.var(x, axis, keepdims)))

    def _floats(self, x: Value) -> Array:
        """Return an argument that is an array as floats."""
        a = self.elements.to_float(self.array(x))
        if not isinstance(a, (View, Lazy)) or a.dtype in COMPLEX:
            raise self.state.refusal("squares of complex numbers")
        return a

    def norm(self, x: Value) -> Value:
        """Return the square root of the sum of squares."""
        a = self._floats(x)
        total = self.reductions.sum(self.array(self.elements.ufunc(np.square, a)))
        return self.elements.ufunc(np.sqrt, total)

    def dot(self, a: Value, b: Value) -> Value:
        """Return the dot product."""
        a, b = self.numeric(a), self.numeric(b)
        if isinstance(a, (Number, Complex)) or isinstance(b, (Number, Complex)):
            return self.elements.ufunc(np.multiply, a, b)
        return self.reductions.matmul(a, b)

    def inner(self, a: Value, b: Value) -> Value:
        """Return the inner product of arrays of one axis."""
        a, b = self.array(a), self.array(b)
        if len(a.shape) != 1 or len(b.shape) != 1:
            raise self.state.refusal("an inner product of matrices")
        return self.reductions.matmul(a, b)

    def _outer(self, f: np.ufunc, a: Array, b: Array) -> Value:
        if len(a.shape) != 1 or len(b.shape) != 1:
            raise self.state.refusal("an outer product of matrices")
        if self.elements.mask_of(a) is not None or self.elements.mask_of(b) is not None:
            raise self.state.refusal("an outer product of chosen elements")
        shape = (a.shape[0], integer(1))
        return self.elements.ufunc(f, self._with_shape(a, shape), b)

    def _with_shape(self, value: Array, shape: tuple[Number, ...]) -> Array:
        """Return an array of one axis as one that has more, of extent 1, behind it."""
        if isinstance(value, View):
            new = tuple(Known(None) for _ in shape[1:])
            return self.views.item(value, (Part(None, None, None), *new))
        inner = value.element
        if value.heavy:
            return self._with_shape(self.elements.materialised(value), shape)
        views = tuple(
            self.views.item(v, (Part(None, None, None), Known(None))) for v in value.pointwise
        )
        return Lazy(value.dtype, shape, lambda i: inner(i[:1]), views, value.others)

    def outer(self, a: Value, b: Value) -> Value:
        """Return the outer product."""
        return self._outer(np.multiply, self.array(a), self.array(b))

    # -- elements ----------------------------------------------------------------------------------

    def _math(self, f: Any, *args: Number) -> Value:
        """Return a function of Python's for floats."""
        if f in _INTEGERS:
            return self.whole(args[0], f.__name__)
        exprs = tuple(build.cast(a.expr, "float64") for a in args)
        expr = self.numbers.of_dtypes(_MATH[f], exprs, "float64")
        if expr is None:
            raise self.state.refusal(f"math.{f.__name__}")
        return number(self.numbers.finite(expr, exprs), FLOAT)

    def whole(self, x: Number, name: str) -> Number:
        """Return a number without its fraction as an integer of Python's."""
        if x.kind is not None and is_float(x.kind):
            return self.numbers.whole_of(x, name)
        return self.numbers.as_int(x)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        """Return elements of one array or the other."""
        a, b = self.numeric(x), self.numeric(y)
        kinds = [k for v in (a, b) for k in self.elements.kinds(v)]
        dtype = common(kinds)
        if dtype is None:
            raise self.state.refusal("np.where of such dtypes")
        c = self.numeric(condition)

        def chosen(test: Number, p: Number, q: Number) -> Number:
            u, v = self.numbers.cast(p, dtype), self.numbers.cast(q, dtype)
            return number(build.where(self.numbers.truth(test).expr, u, v), dtype)

        parts = tuple(map(self.elements.number, (c, a, b)))
        if all(isinstance(p, Number) for p in parts):
            return chosen(*(p for p in parts if isinstance(p, Number)))
        return self.elements.mapped(chosen, dtype, *parts)

    def clip(self, x: Value, low: Value, high: Value) -> Value:
        """Return elements within bounds."""
        value = self.numeric(x)
        for f, bound in ((np.maximum, low), (np.minimum, high)):
            if not (isinstance(bound, Known) and bound.value is None):
                value = self.elements.ufunc(f, value, self.numeric(bound))
        return value

    def absolute(self, x: Value) -> Value:
        """Return absolute values."""
        value = self.numeric(x)
        if isinstance(value, Complex):
            return self.elements.complexes.absolute(value)
        if isinstance(value, Number) and value.kind in (INT, BOOL):
            whole = self.numbers.as_int(value)
            return self.numbers.most(whole, self.numbers.minus(integer(0), whole))
        if isinstance(value, Number) and value.kind == FLOAT:
            expr = self.numbers.of_dtypes("absolute", (value.expr,), "float64")
            assert expr is not None
            return number(expr, FLOAT)
        return self.elements.ufunc(np.absolute, value)

    def kinds_of(self, walk: Walk) -> frozenset[str]:
        """Return the kinds of the numbers that a comprehension computes."""
        saved = self.low.snapshot()
        with self.state.block(), self.state.loop("k", walk.count) as k:
            kinds = self.low.expressions.as_number(walk.item(k)).kinds
        self.low.restore(saved)
        return kinds

    def item(self, x: Value) -> Value:
        """Return the only element as a number of Python's."""
        value = self.low.expressions.as_number(x)
        kind = value.kind
        if kind is None or kind in PYTHON:
            return value
        if kind == "bool":
            return self.python.to_bool(value)
        to_float = kind.startswith("float")
        return self.python.to_float(value) if to_float else self.python.to_int(value)
