"""Arithmetic of numbers: Python's of its own, NumPy's where one of them is NumPy's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Var
from adarray.kernels import build
from adarray.kernels.types import FLOATS, INTEGERS
from adarray.loops.forms import NotCaptured
from adarray.loops.lower import magnitudes, scalars
from adarray.loops.lower.integers import Integers
from adarray.loops.lower.intervals import HIGHEST, LOWEST, Affine
from adarray.loops.lower.kinds import (
    BOOL,
    CODES,
    FLOAT,
    INT,
    PYTHON,
    Kinds,
    dtype_of,
    is_float,
    is_truth,
    is_whole,
    kind_of,
    resolved,
    stored,
)
from adarray.loops.lower.values import Number, integer, number

_EXACT = 1 << 53  # whole numbers below are floats
_SMALL = 1 << 12
_OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//",
    "remainder": "%", "power": "**", "left_shift": "<<", "right_shift": ">>",
}  # fmt: skip


class Arithmetic(Integers):
    """Numbers from numbers."""

    # -- constants, conversions --------------------------------------------------------------------

    def constant(self, value: object) -> Number | None:
        """Return a number that stands in the text; None for other objects."""
        kind = kind_of(value)
        if kind is None:
            return None
        if is_whole(kind):
            whole = int(value)  # type: ignore[call-overload]
            if not LOWEST <= whole <= HIGHEST:
                raise self.state.refusal("an integer of more than 64 bits")
            return number(build.const(whole, dtype_of(kind)), kind, Affine(whole))
        return number(build.const(value, dtype_of(kind)), kind)

    def cast(self, a: Number, dtype: str) -> Expr:
        """Return a number as an operand of an operation in a dtype."""
        if INT in a.kinds and dtype not in FLOATS and dtype != "bool":
            low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
            if a.whole is None or not self.facts.within(a.whole, low, high):
                raise self.state.refusal(f"a Python integer may be none of {dtype}")
        return build.cast(a.expr, dtype)

    def truth(self, a: Number) -> Number:
        """Return whether a number is not 0."""
        if is_truth(a.kinds):
            return a
        test = number(build.truth(a.expr), BOOL)
        if a.whole is None or INT not in a.kinds:
            return test
        return self.compare("not_equal", a, integer(0))

    def joined(self, values: Sequence[Number]) -> Kinds | None:
        """Return the kinds of a variable that is one of some numbers; None if it has no dtype."""
        kinds = frozenset(k for v in values for k in v.kinds)
        dtype = stored(kinds)
        if dtype in FLOATS:
            for v in values:
                if INT in v.kinds and v.kind == INT and not self.is_exact(v):
                    return None
        return kinds if dtype is not None else None

    def tag(self, a: Number) -> Expr | None:
        """Return which of its kinds a number has; None if nothing tells."""
        return a.tag if a.kind is None else build.index(CODES[a.kind])

    def tag_of_one(self, test: Expr, a: Number, b: Number) -> Expr | None:
        """Return the tag of `a` where a test holds, else that of `b`."""
        first, second = self.tag(a), self.tag(b)
        if first is None or second is None or not self.state.tagged:
            return None
        return build.where(test, first, second)

    def tag_variable(self, kinds: Kinds, *values: Number) -> Var | None:
        """Declare a variable for the tag of a number that is one of some; None if nothing tells."""
        known = self.state.tagged and all(self.tag(v) is not None for v in values)
        return self.state.local("kind", "int64") if known and len(kinds) > 1 else None

    def set_tag(self, variable: Var | None, value: Number) -> None:
        """Set such a variable."""
        tag = self.tag(value)
        if variable is not None and tag is not None:
            self.state.assign(variable, tag)

    # -- operators ---------------------------------------------------------------------------------

    def operator(self, name: str, a: Number, b: Number) -> Number:
        """Return what an operator makes of two numbers; `name` is that of NumPy's ufunc."""
        if a.kinds | b.kinds <= PYTHON:
            return self._python(name, a, b)
        return self.ufunc(getattr(np, name), a, b)

    def _python(self, name: str, a: Number, b: Number) -> Number:
        kinds = a.kinds | b.kinds
        if kinds <= {INT, BOOL}:
            if kinds == {BOOL} and name.startswith("bitwise"):
                expr = scalars.function(name, (a.expr, b.expr), "bool", self.state.let)
                assert expr is not None
                return number(expr, BOOL)
            return self._of_ints(name, self.as_int(a), self.as_int(b))
        if name not in _OPERATORS or name.endswith("shift"):
            raise self.state.refusal(f"{name} of floats")
        if FLOAT not in a.kinds & b.kinds and {INT, FLOAT} <= a.kinds | b.kinds:
            for x in (a, b):
                if x.kind == INT:
                    self.need_exact(x)
        if len(a.kinds) > 1 or len(b.kinds) > 1:
            return self._mixed(getattr(np, name), a, b)
        self.no_zero(name, b)
        args = (build.cast(a.expr, "float64"), build.cast(b.expr, "float64"))
        expr = scalars.function(name, args, "float64", self.state.let)
        assert expr is not None
        return number(self.finite(expr, args) if name == "power" else expr, FLOAT)

    def finite(self, value: Expr, args: Sequence[Expr]) -> Expr:
        """Return what a function of Python's gives: it raises an error rather than give nan or inf.

        That is, for operands that are finite; `value` is what C has.
        """
        value = self.state.let("y", value)
        odd = build.logical_not(Apply("bool", "isfinite", (value,)))
        for a in args:
            if not isinstance(a, Const):
                odd = build.both(odd, Apply("bool", "isfinite", (a,)))
        self.state.fail_if(odd)
        return value

    def as_int(self, a: Number) -> Number:
        """Return a truth value or an integer as an integer of Python's."""
        if a.kind == INT:
            assert a.whole is not None
            return a
        if is_truth(a.kinds):
            return number(
                build.cast(a.expr, "int64"), INT, self.facts.symbol([Affine(0)], [Affine(1)])
            )
        if a.whole is None and a.kind in INTEGERS and a.kind != "uint64":
            limits = np.iinfo(a.kind)
            whole = self.facts.symbol([Affine(int(limits.min))], [Affine(int(limits.max))])
            a = number(a.expr, a.kind, whole)
        if a.whole is None or not self.facts.within(a.whole, LOWEST, HIGHEST):
            raise self.state.refusal("an integer whose size is not known")
        return number(build.cast(a.expr, "int64"), INT, a.whole)

    def _of_ints(self, name: str, a: Number, b: Number) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        simple = {"add": self.plus, "subtract": self.minus, "multiply": self.times}
        if name in simple:
            return simple[name](a, b)
        if name == "floor_divide":
            return self.divided(a, b)[0]
        if name == "remainder":
            return self.divided(a, b)[1]
        if name == "divide":
            self.no_zero(name, b)
            self.need_exact(a)
            self.need_exact(b)
            args = (build.cast(a.expr, "float64"), build.cast(b.expr, "float64"))
            return number(build.divide(*args), FLOAT)
        if name == "power":
            return self.power(a, b)
        if name in ("left_shift", "right_shift"):
            return self.shifted(name, a, b)
        return self.bits(name, a, b)

    # -- NumPy's functions -------------------------------------------------------------------------

    def ufunc(self, f: np.ufunc, *args: Number) -> Number:
        """Return what a ufunc makes of numbers."""
        if any(len(a.kinds) > 1 for a in args):
            return self._mixed(f, *args)
        kinds = tuple(next(iter(a.kinds)) for a in args)
        dtypes = resolved(f, kinds)
        if dtypes is None:
            raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
        exprs = tuple(self.cast(a, d) for a, d in zip(args, dtypes, strict=False))
        result = self.of_dtypes(f.__name__, exprs, dtypes[-1])
        if result is None:
            raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
        return Number(
            result, frozenset((dtypes[-1],)), self._whole_of(f.__name__, args, dtypes[-1])
        )

    def of_dtypes(self, name: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
        """Return a function of expressions of the dtypes that it takes; None if it is unknown."""
        if name in magnitudes.COMPARISONS:
            size = magnitudes.compared(self.state, name, *args)
            if size is not None:
                return size
        expr = scalars.function(name, args, dtype, self.state.let)
        small = dtype in ("int8", "uint8", "int16", "uint16")
        return self.state.let("n", expr) if expr is not None and small else expr

    def _whole_of(self, name: str, args: tuple[Number, ...], dtype: str) -> Affine | None:
        """Return what is known of an integer of NumPy's: nothing where it may have wrapped."""
        wholes = [a.whole for a in args]
        if dtype in FLOATS or dtype == "bool" or any(w is None for w in wholes):
            return None
        if name == "add" and wholes[0] is not None and wholes[1] is not None:
            whole = wholes[0] + wholes[1]
        elif name == "subtract" and wholes[0] is not None and wholes[1] is not None:
            whole = wholes[0] - wholes[1]
        else:
            return None
        limits = np.iinfo(dtype)
        return whole if self.facts.within(whole, int(limits.min), int(limits.max)) else None

    def _mixed(self, f: np.ufunc, *args: Number) -> Number:
        """Return what a ufunc makes of numbers of which one may be of several kinds.

        One text computes for all of them, if it can; else there is one for each.
        """
        try:
            return self._by_one_text(f, *args)
        except NotCaptured:
            if not self.state.tagged or any(self.tag(a) is None for a in args):
                self.state.ambiguous = True
                raise
            return self._by_tags(f, *args)

    def _by_tags(self, f: np.ufunc, *args: Number) -> Number:
        """Return what a ufunc makes of numbers, computed for each of their kinds."""
        tags = [self.tag(a) for a in args]
        result: Number | None = None
        for kinds in itertools.product(*(sorted(a.kinds) for a in args)):
            these = [
                Number(build.cast(a.expr, dtype_of(k)), frozenset((k,)), a.whole)
                for a, k in zip(args, kinds, strict=True)
            ]
            python = set(kinds) <= PYTHON and len(these) == 2
            one = self._python(f.__name__, *these) if python else self.ufunc(f, *these)
            if result is None:
                result = one
                continue
            chosen = self.chosen(number(self._are(kinds, tags), BOOL), one, result)
            if chosen is None:
                shown = " or ".join(sorted(one.kinds | result.kinds))
                raise self.state.refusal(f"{f.__name__} gives a number that is {shown}")
            result = chosen
        assert result is not None
        return result

    def _are(self, kinds: Sequence[str], tags: Sequence[Expr | None]) -> Expr:
        """Return whether tags are those of some kinds."""
        test: Expr = build.const(True, "bool")
        for kind, tag in zip(kinds, tags, strict=True):
            if tag is not None and not isinstance(tag, Const):
                code = build.index(CODES[kind])
                test = build.both(test, build.call("equal", "bool", tag, code))
        return test

    def _by_one_text(self, f: np.ufunc, *args: Number) -> Number:
        """Return the same where one text computes for all kinds.

        It has float64 for Python's integers and floats, too.
        """
        results: set[str] = set()
        inputs: set[str] = set()
        tags = [self.tag(a) for a in args] if self.state.tagged else []
        tag: Expr | None = None
        for kinds in itertools.product(*(a.kinds for a in args)):
            if set(kinds) <= PYTHON:
                whole = set(kinds) <= {INT, BOOL} and f.__name__ != "divide"
                result = INT if whole else FLOAT
                inputs.add("int64" if whole else "float64")
            else:
                dtypes = resolved(f, kinds)
                if dtypes is None:
                    raise self.state.refusal(f"np.{f.__name__} of {', '.join(kinds)}")
                result = dtypes[-1]
                inputs |= set(dtypes[:-1])
            results.add(result)
            tag = self._tag_of_these(kinds, tags, result, tag)
        shown = " or ".join(sorted(set().union(*(a.kinds for a in args))))
        if "int64" in inputs and results & {INT} and len(inputs) > 1:
            small = [a for a in args if a.whole is not None and a.kind == INT]
            few = all(self.facts.within(a.whole, -_SMALL, _SMALL) for a in small if a.whole)
            if f.__name__ not in ("add", "subtract") or not few:
                raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
            inputs.discard("int64")
        if len(inputs) != 1 or f.__name__ not in ("add", "subtract", "multiply", "divide",
                                                  "maximum", "minimum", "negative"):  # fmt: skip
            raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
        dtype = inputs.pop()
        for kind in results:
            if dtype_of(kind) != dtype and not (kind == INT and dtype == "float64"):
                raise self.state.refusal(f"{f.__name__} of a number that is {shown}")
        if len(args) == 2:
            self.no_zero(f.__name__, args[1])
            if INT in args[1].kinds and f.__name__ == "divide" and args[1].whole is None:
                raise self.state.refusal(f"a division by a number that is {shown}")
        expr = scalars.function(
            f.__name__, tuple(build.cast(a.expr, dtype) for a in args), dtype, self.state.let
        )
        assert expr is not None
        return Number(expr, frozenset(results), tag=None if len(results) == 1 else tag)

    def _tag_of_these(
        self, kinds: tuple[str, ...], tags: Sequence[Expr | None], result: str, rest: Expr | None
    ) -> Expr | None:
        """Return the tag of a result: its kind where operands have these, else `rest`."""
        if not tags or any(t is None for t in tags):
            return None
        code = build.index(CODES[result])
        return code if rest is None else build.where(self._are(kinds, tags), code, rest)

    # -- comparisons and truth values --------------------------------------------------------------

    def compare(self, name: str, a: Number, b: Number) -> Number:
        """Return a comparison."""
        python = a.kinds | b.kinds <= PYTHON
        result = BOOL if python else "bool"
        if a.whole is not None and b.whole is not None and INT in a.kinds | b.kinds:
            return self._compare_whole(name, a, b, result)
        if any(is_float(k) and k != FLOAT for k in a.kinds | b.kinds) or not python:
            kinds = {tuple(k) for k in itertools.product(a.kinds, b.kinds)}
            dtypes = {resolved(getattr(np, name), k) for k in kinds}
            if None in dtypes:
                raise self.state.refusal(f"a comparison of {a.kinds} with {b.kinds}")
            inputs = {d for ds in dtypes if ds is not None for d in ds[:-1]}
        else:
            inputs = {"float64"}
        mixed = inputs <= {"float64", "int64"} and len(inputs) == 2
        if mixed:  # integers among floats are exact
            inputs = {"float64"}
        if len(inputs) != 1:
            raise self.state.refusal("a comparison of numbers of several dtypes")
        dtype = inputs.pop()
        x, y = (self.cast(v, dtype) for v in (a, b))
        if dtype == "bool" and name not in ("equal", "not_equal"):
            x, y = build.cast(x, "int32"), build.cast(y, "int32")
        size = magnitudes.compared(self.state, name, x, y)
        return number(size if size is not None else build.call(name, "bool", x, y), result)

    def _compare_whole(self, name: str, a: Number, b: Number, result: str) -> Number:
        assert a.whole is not None
        assert b.whole is not None
        less, more = b.whole - a.whole, a.whole - b.whole
        holds: tuple[Affine, ...]
        fails: tuple[Affine, ...]
        none: tuple[Affine, ...] = ()
        holds, fails = {
            "less": ((less - 1,), (more,)), "less_equal": ((less,), (more - 1,)),
            "greater": ((more - 1,), (less,)), "greater_equal": ((more,), (less - 1,)),
            "equal": ((less, more), none), "not_equal": (none, (less, more)),
        }[name]  # fmt: skip
        if holds and all(map(self.facts.nonnegative, holds)):
            return number(build.const(True, "bool"), result)
        if fails and all(map(self.facts.nonnegative, fails)):
            return number(build.const(False, "bool"), result)
        if not holds or not fails:
            apart = self.is_nonzero(less)
            if apart:
                return number(build.const(name == "not_equal", "bool"), result)
        x, y = build.cast(a.expr, "int64"), build.cast(b.expr, "int64")
        return Number(build.call(name, "bool", x, y), frozenset((result,)), None, holds, fails)

    def negated(self, a: Number) -> Number:
        """Return ``not a``."""
        a = self.truth(a)
        kinds = frozenset((BOOL,))
        return Number(build.logical_not(a.expr), kinds, None, a.fails, a.holds)

    def both(self, a: Number, b: Number) -> Number:
        """Return whether two truth values are true."""
        expr = build.both(a.expr, b.expr)
        tag = self.tag_of_one(a.expr, b, a)
        return Number(expr, a.kinds | b.kinds, None, (*a.holds, *b.holds), (), tag)

    def either(self, a: Number, b: Number) -> Number:
        """Return whether one of two truth values is true."""
        expr = build.logical_not(build.both(build.logical_not(a.expr), build.logical_not(b.expr)))
        if not isinstance(expr, Const):
            expr = build.call("logical_or", "bool", a.expr, b.expr)
        tag = self.tag_of_one(a.expr, a, b)
        return Number(expr, a.kinds | b.kinds, None, (), (*a.fails, *b.fails), tag)

    def chosen(self, test: Number, a: Number, b: Number) -> Number | None:
        """Return `a` where `test` holds, else `b`; None if no variable has both."""
        kinds = self.joined((a, b))
        if kinds is None:
            return None
        dtype = stored(kinds)
        assert dtype is not None
        x, y = build.cast(a.expr, dtype), build.cast(b.expr, dtype)
        tag = self.tag_of_one(test.expr, a, b) if len(kinds) > 1 else None
        return Number(build.where(test.expr, x, y), kinds, self.hull(a, b, test), tag=tag)

    def hull(self, a: Number, b: Number, test: Number | None = None) -> Affine | None:
        """Return what is known of a number that is one of two, by a test."""
        if a.whole is None or b.whole is None:
            return None
        if a.whole == b.whole:
            return a.whole
        with self.facts.assuming(() if test is None else test.holds):
            low, high = self.facts.range(a.whole)
        with self.facts.assuming(() if test is None else test.fails):
            least, most = self.facts.range(b.whole)
        lows, highs = [Affine(min(low, least))], [Affine(max(high, most))]
        for x, y in ((a.whole, b.whole), (b.whole, a.whole)):
            if self.facts.at_least(x, y):
                lows, highs = [*lows, y], [*highs, x]
        return self.facts.symbol(lows, highs)
