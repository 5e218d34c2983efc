"""Complex numbers: pairs of real ones. Formulas, and orders of operations, are NumPy's.

References
----------
- R. L. Smith, *Algorithm 116: Complex division*, Communications of the ACM 5 (8), 1962.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr
from adarray.kernels import build
from adarray.loops.lower.kinds import COMPLEX, FLOAT, PARTS, PYTHON, resolved
from adarray.loops.lower.numbers import Arithmetic
from adarray.loops.lower.values import Complex, Number, Scalar, number

Pair = tuple[Expr, Expr]


def _of(name: str, *args: Expr) -> Expr:
    # Not simplified: what is multiplied by 0 may be infinite.
    return Apply(args[0].dtype, name, args)


def _multiplied(a: Pair, b: Pair) -> Pair:
    (x, y), (u, v) = a, b
    return (
        _of("subtract", _of("multiply", x, u), _of("multiply", y, v)),
        _of("add", _of("multiply", x, v), _of("multiply", y, u)),
    )


class Complexes:
    """Functions of numbers of which one is complex."""

    def __init__(self, numbers: Arithmetic) -> None:
        self.numbers = numbers
        self.state = numbers.state
        self._functions: dict[str, Callable[..., Pair]] = {
            "add": lambda a, b: (_of("add", a[0], b[0]), _of("add", a[1], b[1])),
            "subtract": lambda a, b: (_of("subtract", a[0], b[0]), _of("subtract", a[1], b[1])),
            "multiply": _multiplied, "divide": self._divided, "power": self._power,
            "square": lambda a: _multiplied(a, a), "exp": self._exp, "positive": lambda a: a,
            "negative": lambda a: (build.negative(a[0]), build.negative(a[1])),
            "conjugate": lambda a: (a[0], build.negative(a[1])),
        }  # fmt: skip

    # -- parts -------------------------------------------------------------------------------------

    def constant(self, value: object) -> Complex | None:
        """Return a complex number that stands in the text; None for other objects."""
        kind = "python complex" if type(value) is complex else None
        if isinstance(value, np.complexfloating) and value.dtype.name in COMPLEX:
            kind = value.dtype.name
        if kind is None:
            return None
        part = PARTS[kind]
        assert isinstance(value, (complex, np.complexfloating))
        re, im = (number(build.const(float(p), part), part) for p in (value.real, value.imag))
        return Complex(re, im, kind)

    def named(self, name: str, x: Complex) -> Complex:
        """Return a number by names of its parts."""
        named = self.state.named
        return Complex(named(f"{name}_re", x.re), named(f"{name}_im", x.im), x.kind)

    def cast(self, x: Scalar, dtype: str) -> Complex:
        """Return a number as a complex one of a dtype."""
        part = PARTS[dtype]
        if isinstance(x, Complex):
            re, im = self.numbers.cast(x.re, part), self.numbers.cast(x.im, part)
        else:
            re, im = self.numbers.cast(x, part), build.const(0, part)
        return Complex(number(re, part), number(im, part), dtype)

    def _pair(self, x: Scalar, dtype: str) -> Pair:
        value = self.named("c", self.cast(x, dtype))
        return value.re.expr, value.im.expr

    # -- functions ---------------------------------------------------------------------------------

    def operator(
        self, name: str, a: Scalar, b: Scalar
    ) -> Scalar:  # fmt: skip
        """Return what an operator makes of two numbers; `name` is that of NumPy's ufunc."""
        if not a.kinds | b.kinds <= {*PYTHON, "python complex"}:
            return self.ufunc(getattr(np, name), a, b)
        if name not in ("add", "subtract", "multiply", "divide"):
            raise self.state.refusal(f"{name} of Python's complex numbers")
        for v in (a, b):
            if isinstance(v, Number) and "python int" in v.kinds:
                self.numbers.need_exact(v)
        x, y = (self._pair(v, "python complex") for v in (a, b))
        if name == "divide":
            none = [build.call("equal", "bool", p, build.const(0, "float64")) for p in y]
            self.state.fail_if(build.both(*none))
        return self._made(self._functions[name](x, y), "python complex")

    def ufunc(self, f: np.ufunc, *args: Scalar) -> Scalar:
        """Return what a ufunc makes of numbers."""
        if any(len(a.kinds) > 1 for a in args):
            raise self.state.refusal(f"np.{f.__name__} of a number that is one of several types")
        kinds = tuple(next(iter(a.kinds)) for a in args)
        dtypes = resolved(f, kinds)
        refusal = self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
        if dtypes is None or any(d not in COMPLEX for d in dtypes[:-1]):
            raise refusal
        pairs = [self._pair(a, d) for a, d in zip(args, dtypes, strict=False)]
        if f.__name__ == "absolute":
            return self._absolute(pairs[0], dtypes[-1])
        if f.__name__ in ("equal", "not_equal"):
            same = build.both(*(build.call("equal", "bool", *p) for p in zip(*pairs, strict=True)))
            return number(same if f.__name__ == "equal" else build.logical_not(same), "bool")
        function = self._functions.get(f.__name__)
        if function is None or dtypes[-1] not in COMPLEX:
            raise refusal
        return self._made(function(*pairs), dtypes[-1])

    def _made(self, pair: Pair, kind: str) -> Complex:
        re, im = (number(p, PARTS[kind]) for p in pair)
        return Complex(re, im, kind)

    def absolute(self, x: Complex) -> Number:
        """Return the absolute value of a number of Python's, or of NumPy's."""
        kind = FLOAT if x.kind == "python complex" else PARTS[x.kind]
        return self._absolute(self._pair(x, x.kind), kind)

    def _absolute(self, a: Pair, kind: str) -> Number:
        """Return an absolute value; at 0, its derivative is 0."""
        dtype = a[0].dtype
        result = self.state.local("size", dtype, build.const(0, dtype))
        some = (build.call("not_equal", "bool", p, build.const(0, dtype)) for p in a)
        with self.state.block() as body:
            self.state.assign(result, Apply(dtype, "hypot", a))
        self.state.branch(build.call("logical_or", "bool", *some), body)
        self.state.magnitudes[result.name] = a
        return number(result, kind)

    def _exp(self, a: Pair) -> Pair:
        size = self.state.let("e", _of("exp", a[0]))
        return _of("multiply", size, _of("cos", a[1])), _of("multiply", size, _of("sin", a[1]))

    def _power(self, a: Pair, b: Pair) -> Pair:
        exponent, rest = b
        known = isinstance(exponent, Const) and isinstance(rest, Const) and rest.value == 0
        if not known or not isinstance(exponent, Const) or exponent.value not in (1, 2, 3):
            raise self.state.refusal("a power of a complex number other than a square or a cube")
        result = a
        for _ in range(int(exponent.value) - 1):
            parts = _multiplied(result, a)
            result = self.state.let("p", parts[0]), self.state.let("p", parts[1])
        return result

    def _divided(self, a: Pair, b: Pair) -> Pair:
        """Return a quotient: scaled by the larger part of the divisor."""
        (x, y), (u, v) = a, b
        dtype = x.dtype
        re, im = self.state.local("re", dtype), self.state.local("im", dtype)
        let, assign = self.state.let, self.state.assign
        large, small = (let("size", Apply(dtype, "absolute", (p,))) for p in (u, v))
        zero, one = build.const(0, dtype), build.const(1, dtype)

        def scaled(big: Expr, little: Expr, swapped: bool) -> None:
            ratio = let("ratio", _of("divide", little, big))
            size = _of("add", big, _of("multiply", little, ratio))
            scale = let("scale", _of("divide", one, size))
            p, q = (_of("multiply", e, ratio) for e in ((x, y) if swapped else (y, x)))
            first = _of("add", p, y) if swapped else _of("add", x, p)
            second = _of("subtract", q, x) if swapped else _of("subtract", y, q)
            assign(re, _of("multiply", first, scale))
            assign(im, _of("multiply", second, scale))

        with self.state.block() as none:
            assign(re, _of("divide", x, large))
            assign(im, _of("divide", y, large))
        with self.state.block() as by_first:
            scaled(u, v, False)
        with self.state.block() as by_second:
            scaled(v, u, True)
        both = [build.call("equal", "bool", p, zero) for p in (large, small)]
        with self.state.block() as other:
            by_large = build.call("greater_equal", "bool", large, small)
            self.state.branch(by_large, by_first, by_second)
        self.state.branch(build.both(*both), none, other)
        return re, im
