"""Reductions over axes, and running folds."""

from __future__ import annotations

import math

import numpy as np

from adarray.base.types import DType
from adarray.compiler.ir.builder import BOOL, INT, PAIRS, PRINTABLE, Builder
from adarray.compiler.ir.program import Value
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.translate import (
    Arguments,
    Axis,
    Translated,
    Translation,
    ValueCall,
    function,
    of_pairs,
    record,
)
from adarray.ops.common import normalized_axes


def accumulator(name: str, dtype: DType, wanted: DType | None) -> DType:
    """Return the dtype in which NumPy folds: small integers are summed as int64 or uint64."""
    if wanted is not None:
        return wanted
    if name in ("add", "multiply") and dtype.kind in "bi" and dtype.itemsize < 8:
        return INT
    if name in ("add", "multiply") and dtype.kind == "u" and dtype.itemsize < 8:
        return np.dtype(np.uint64)
    return dtype


def fold(
    b: Builder,
    name: str,
    x: Value,
    axis: Axis = None,
    dtype: DType | None = None,
    keepdims: bool = False,
) -> Value | None:
    """Reduce `x` as ``np.<ufunc>.reduce`` does."""
    to = accumulator(name, x.dtype, dtype)
    axes = normalized_axes(axis, x.ndim)
    if len(set(axes)) != len(axes) or not (to in PRINTABLE or to in PAIRS):
        return None
    x = b.cast(x, to)
    if to == BOOL:
        name = FUNCTIONS[name].truths_as or name
    if name in ("maximum", "minimum") and 0 in x.shape:
        return None
    return b.reduce(name, x, axes, keepdims)


def folded_as(b: Builder, name: str, x: Value, args: Arguments) -> Value | None:
    """Reduce `x` with the arguments of a reduction."""
    return fold(b, name, x, args.axis(), args.dtype(), args.flag("keepdims"))


def count_along(x: Value, axis: Axis) -> int:
    """Return how many elements are folded into one."""
    return math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim))


of_pairs("sum", "mean", "cumsum")

# -- plain forms -------------------------------------------------------------------------------


@record("sum")
def _sum(b: Builder, call: ValueCall) -> Translated:
    return folded_as(b, "add", b.value(call.operands[0]), call.params)


@record("prod")
def _prod(b: Builder, call: ValueCall) -> Translated:
    return folded_as(b, "multiply", b.value(call.operands[0]), call.params)


@record("max")
def _max(b: Builder, call: ValueCall) -> Translated:
    return folded_as(b, "maximum", b.value(call.operands[0]), call.params)


@record("min")
def _min(b: Builder, call: ValueCall) -> Translated:
    return folded_as(b, "minimum", b.value(call.operands[0]), call.params)


def _inexact(x: Value, dtype: DType | None) -> DType | None:
    """Return the dtype in which means are taken, None if no kernel has it."""
    if dtype is None:
        dtype = np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    return dtype if dtype.kind == "f" and dtype in PRINTABLE else None


@record("mean")
def _mean(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    wanted = call.params.dtype()
    dtype = x.dtype if wanted is None and x.dtype in PAIRS else _inexact(x, wanted)
    if dtype is None:
        return None
    return mean(b, b.cast(x, dtype), call.params.axis(), call.params.flag("keepdims"))


def mean(b: Builder, x: Value, axis: Axis, keepdims: bool) -> Value | None:
    """Return the mean of floating-point or complex numbers."""
    wide = b.widened(x)
    total = fold(b, "add", wide, axis, None, keepdims)
    if total is None:
        return None
    return b.cast(b.map("divide", total, b.const(count_along(x, axis), wide.dtype)), x.dtype)


@record("var")
def _var(b: Builder, call: ValueCall) -> Translated:
    variance = _variance(b, b.value(call.operands[0]), call.params)
    return None if variance is None else b.cast(variance, call.result.dtype)


@record("std")
def _std(b: Builder, call: ValueCall) -> Translated:
    variance = _variance(b, b.value(call.operands[0]), call.params)
    return None if variance is None else b.cast(b.map("sqrt", variance), call.result.dtype)


def _variance(b: Builder, x: Value, args: Arguments) -> Value | None:
    """Return the variance, in the dtype in which it is computed."""
    axis = args.axis()
    to = _inexact(x, args.dtype())
    lost = args.get("ddof", 0) if args.get("correction") is None else args["correction"]
    if to is None or not isinstance(lost, (int, float, np.integer, np.floating)):
        return None
    x = b.widened(b.cast(x, to))
    center = mean(b, x, axis, True)
    if center is None:
        return None
    d = b.map("subtract", x, center)
    total = fold(b, "add", b.map("multiply", d, d), axis, None, args.flag("keepdims"))
    assert total is not None
    free = max(count_along(x, axis) - lost, 0)
    return b.map("divide", total, b.const(free, x.dtype))


@record("norm")
def _norm(b: Builder, call: ValueCall) -> Translated:
    x = b.value(call.operands[0])
    x = b.cast(x, np.float64) if x.dtype.kind != "f" else b.widened(x)
    axis, keepdims = call.params.axis(), call.params.flag("keepdims")
    total = fold(b, "add", b.map("multiply", x, x), axis, None, keepdims)
    return None if total is None else b.cast(b.map("sqrt", total), call.result.dtype)


# -- with masks and initial values --------------------------------------------------------------


def _masked(b: Builder, x: Value, where: object, fill: float) -> Value:
    """Return `x` with `fill` where the mask does not hold."""
    if where is True:
        return x
    # None is false to NumPy.
    mask = b.broadcast(b.value(False if where is None else where, BOOL), x.shape)
    return b.map("where", mask, x, b.const(fill, x.dtype))


def _with_initial(b: Builder, name: str, r: Value | None, initial: object) -> Value | None:
    if r is None or initial is None:
        return r
    return b.map(name, b.value(initial, r.dtype), r)


def _folded(name: str, identity: float) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        x, (initial, where) = b.value(call.operands[0]), call.operands[1:]
        to = accumulator(name, x.dtype, call.params.dtype())
        if to not in PRINTABLE:
            return None
        r = folded_as(b, name, _masked(b, b.cast(x, to), where, identity), call.params)
        return _with_initial(b, name, r, initial)

    return translate


def _extremum(name: str, sign: float) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        x, (initial, where) = b.value(call.operands[0]), call.operands[1:]
        if x.dtype.kind != "f" or (where is not True and initial is None):
            return None
        r = folded_as(b, name, _masked(b, x, where, sign * math.inf), call.params)
        return _with_initial(b, name, r, initial)

    return translate


def _nan_folded(name: str, identity: float) -> Translation:
    plain = _folded(name, identity)

    def translate(b: Builder, call: ValueCall) -> Translated:
        x, initial, where = call.operands
        filled = _filled(b, b.value(x), identity)
        return plain(b, call._replace(operands=(filled, initial, where)))

    return translate


def _filled(b: Builder, x: Value, fill: float) -> Value:
    """Return `x` with `fill` in place of nan."""
    if x.dtype.kind != "f":
        return x
    return b.map("where", b.map("isnan", x), b.const(fill, x.dtype), x)


for _name, _combine, _identity in (("sum", "add", 0.0), ("prod", "multiply", 1.0)):
    record(f"{_name}.where")(_folded(_combine, _identity))
    record(f"nan{_name}")(_nan_folded(_combine, _identity))
record("max.where")(_extremum("maximum", -1))
record("min.where")(_extremum("minimum", 1))


# -- truths ------------------------------------------------------------------------------------


def _truths(name: str) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        args = call.bound("a", "axis", "out", "keepdims")
        if args is None:
            return None
        x = b.cast(b.value(args["a"]), BOOL)
        return fold(b, name, x, args.axis(), None, args.flag("keepdims"))

    return translate


function(np.all)(_truths("logical_and"))
function(np.any)(_truths("logical_or"))


@function(np.count_nonzero)
def _count_nonzero(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "axis", "keepdims")
    if args is None:
        return None
    x = b.cast(b.value(args["a"]), BOOL)
    return fold(b, "add", x, args.axis(), None, args.flag("keepdims"))


UFUNC_FOLDS = frozenset({
    "add", "multiply", "maximum", "minimum", "logical_and", "logical_or",
})  # fmt: skip


def ufunc_reduce(b: Builder, name: str, call: ValueCall) -> Translated:
    """Translate ``np.<ufunc>.reduce``."""
    args = call.bound("a", "axis", "dtype", "out", "keepdims", "initial", "where")
    if args is None or name not in UFUNC_FOLDS:
        return None
    if args.get("where", True) is not True or args.get("initial") not in (None, np._NoValue):
        return None
    x = b.value(args["a"])
    if name.startswith("logical"):
        x = b.cast(x, BOOL)
    return fold(b, name, x, args.axis(0), args.dtype(), args.flag("keepdims"))


# -- running folds -----------------------------------------------------------------------------


def running(b: Builder, name: str, x: Value, axis: int | None, dtype: DType | None) -> Value | None:
    """Fold `x` along an axis, keeping every step."""
    to = accumulator(name, x.dtype, dtype)
    if to == BOOL or not (to in PRINTABLE or to in PAIRS):
        return None
    if axis is None or not x.ndim:
        x, axis = b.reshape(x, (x.size,)), 0
    return b.scan(name, b.cast(x, to), axis % x.ndim)


def _scan(name: str, fill: float | None) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        x = b.value(call.operands[0])
        if fill is not None:
            x = _filled(b, x, fill)
        return running(b, name, x, call.params.integer("axis"), call.params.dtype())

    return translate


record("cumsum")(_scan("add", None))
record("cumprod")(_scan("multiply", None))
record("nancumsum")(_scan("add", 0.0))
record("nancumprod")(_scan("multiply", 1.0))


def ufunc_accumulate(b: Builder, name: str, call: ValueCall) -> Translated:
    """Translate ``np.<ufunc>.accumulate``."""
    args = call.bound("a", "axis", "dtype", "out")
    if args is None or name not in ("add", "multiply", "maximum", "minimum"):
        return None
    x = b.value(args["a"])
    if not x.ndim:
        return None
    return running(b, name, x, args.integer("axis", 0), args.dtype())
