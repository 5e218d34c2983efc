"""NumPy functions without a record, in terms of others."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from adarray.compiler.ir.builder import BOOL, INT, Builder
from adarray.compiler.ir.program import Value
from adarray.compiler.translate import (
    Arguments,
    Axis,
    Translated,
    Translation,
    ValueCall,
    function,
    ndim_of,
    of_pairs,
    record,
)
from adarray.compiler.translate.elementwise import apply_ufunc
from adarray.compiler.translate.reductions import fold, folded_as
from adarray.ops.common import normalized_axes

# -- elements ----------------------------------------------------------------------------------


@function(np.clip)
def _clip(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "a_min", "a_max", "out", "min", "max")
    if args is None:
        return None
    x = b.value(args["a"])
    limits = np.iinfo(x.dtype) if x.dtype.kind in "iu" else None
    x = b.cast(x, call.result.dtype)
    for name, ufunc in (("min", "maximum"), ("max", "minimum")):
        bound = args.get(f"a_{name}")
        bound = args.get(name) if bound is None else bound
        if type(bound) is int and limits is not None:
            # As NumPy does with Python's ints, even where the other bound lies beyond.
            out = bound <= limits.min if name == "min" else bound >= limits.max
            bound = None if out else bound
        if bound is not None:
            x = b.map(ufunc, b.value(bound, x.dtype), x)
    return x


@function(np.nan_to_num)
def _nan_to_num(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("x", "copy", "nan", "posinf", "neginf")
    if args is None:
        return None
    x = b.value(args["x"])
    if x.dtype.kind != "f":
        return x
    largest = np.finfo(x.dtype).max
    r = x
    for name, number, fill in (("posinf", np.inf, largest), ("neginf", -np.inf, -largest)):
        to = args.get(name)
        hit = b.map("equal", x, b.const(number, x.dtype))
        r = b.map("where", hit, b.value(fill if to is None else to, x.dtype), r)
    return b.map("where", b.map("isnan", x), b.value(args.get("nan", 0.0), x.dtype), r)


@function(np.round, np.around)
def _round(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "decimals", "out")
    if args is None:
        return None
    x, decimals = b.value(args["a"]), args.get("decimals", 0)
    if x.dtype.kind != "f" or not isinstance(decimals, int) or decimals < 0:
        return None
    if not decimals:
        return b.map("rint", x)
    scale = b.const(10**decimals, x.dtype)
    return b.map("divide", b.map("rint", b.map("multiply", x, scale)), scale)


@function(np.heaviside)
def _heaviside(b: Builder, call: ValueCall) -> Translated:
    if call.params or call.result.dtype.kind != "f":
        return None
    x, half = (b.value(v, call.result.dtype) for v in call.operands)
    zero, one = b.const(0, x.dtype), b.const(1, x.dtype)
    step = b.map("where", b.map("less", x, zero), zero, b.map("where", b.map("isnan", x), x, one))
    return b.map("where", b.map("equal", x, zero), half, step)


@record("fraction")
def _fraction(b: Builder, call: ValueCall) -> Translated:
    return fraction(b, b.value(call.operands[0], call.result.dtype))


def fraction(b: Builder, x: Value) -> Value:
    """Return the first result of ``np.modf``: 0 at infinity, and with the sign of `x`."""
    part = b.map("subtract", x, b.map("trunc", x))
    part = b.map("where", b.map("isinf", x), b.const(0, x.dtype), part)
    return b.map("copysign", part, x)


@function(np.modf)
def _modf(b: Builder, call: ValueCall) -> Translated:
    dtype = call.result.dtype
    if call.params or dtype.kind != "f":
        return None
    x = b.value(call.operands[0], dtype)
    return fraction(b, x), b.map("trunc", x)


@function(np.divmod)
def _divmod(b: Builder, call: ValueCall) -> Translated:
    if call.params:
        return None
    quotient = apply_ufunc(b, np.floor_divide, call.operands)
    remainder = apply_ufunc(b, np.remainder, call.operands)
    return None if quotient is None or remainder is None else (quotient, remainder)


# -- comparisons -------------------------------------------------------------------------------


def _close(b: Builder, args: Arguments) -> Value | None:
    """Return ``np.isclose`` of floating-point numbers."""
    x, y = b.value(args["a"]), b.value(args["b"])
    dtype = np.result_type(x.dtype, y.dtype)
    if dtype.kind != "f":
        return None
    x, y = b.cast(x, dtype), b.cast(y, dtype)
    rtol, atol = (b.value(args.get(n, d), dtype) for n, d in (("rtol", 1e-5), ("atol", 1e-8)))
    bound = b.map("add", atol, b.map("multiply", rtol, b.map("absolute", y)))
    near = b.map("less_equal", b.map("absolute", b.map("subtract", x, y)), bound)
    near = b.map("logical_and", near, b.map("isfinite", y))
    near = b.map("logical_or", near, b.map("equal", x, y))
    if args.get("equal_nan"):
        both = b.map("logical_and", b.map("isnan", x), b.map("isnan", y))
        near = b.map("logical_or", near, both)
    return near


@function(np.isclose)
def _isclose(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "b", "rtol", "atol", "equal_nan")
    return None if args is None else _close(b, args)


@function(np.allclose)
def _allclose(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "b", "rtol", "atol", "equal_nan")
    near = None if args is None else _close(b, args)
    return None if near is None else b.reduce("logical_and", near, range(near.ndim))


@function(np.array_equal)
def _array_equal(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a1", "a2")
    if args is None:
        return None
    x, y = b.value(args["a1"]), b.value(args["a2"])
    if x.shape != y.shape:
        return b.const(False, BOOL)
    equal = apply_ufunc(b, np.equal, (x, y))
    return None if equal is None else b.reduce("logical_and", equal, range(equal.ndim))


# -- folds -------------------------------------------------------------------------------------


def _position(b: Builder, call: ValueCall, combine: str) -> Translated:
    """Return where the extremum is: the first place that equals it, or the first nan."""
    args = call.bound("a", "axis", "out", "keepdims")
    if args is None:
        return None
    x, axis = b.value(args["a"]), args.integer("axis")
    shape = x.shape
    flat = axis is None or not shape  # a number may have an axis of its own
    at = 0 if axis is None or flat else normalize_axis_index(axis, x.ndim)
    if flat:
        x = b.reshape(x, (x.size,))
    n = x.shape[at]
    best = fold(b, combine, x, at, None, True)
    if best is None:
        return None
    hit = b.map("equal", x, best)
    if x.dtype.kind == "f":
        hit = b.map("logical_or", hit, b.map("isnan", x))
    line = tuple(n if k == at else 1 for k in range(x.ndim))
    places = b.map("where", hit, b.iota(line, at), b.const(n, INT))
    keepdims = args.flag("keepdims")
    r = b.reduce("minimum", places, (at,), keepdims and not flat)
    return b.reshape(r, (1,) * len(shape)) if keepdims and flat else r


@function(np.argmax)
def _argmax(b: Builder, call: ValueCall) -> Translated:
    return _position(b, call, "maximum")


@function(np.argmin)
def _argmin(b: Builder, call: ValueCall) -> Translated:
    return _position(b, call, "minimum")


def _log_sum(exp: str, log: str) -> Translation:
    """Return the translation of ``np.logaddexp.reduce``: with the largest element taken out."""

    def translate(b: Builder, call: ValueCall) -> Translated:
        params = call.params
        where, initial = params.get("where", True), params.get("initial")
        if where is not True or initial not in (None, np._NoValue):
            return None
        axis, keepdims = params.axis(0), params.flag("keepdims")
        x = b.value(call.operands[0])
        if x.dtype.kind != "f" or not x.size:
            return None
        largest = fold(b, "maximum", x, axis, None, True)
        assert largest is not None
        zero = b.const(0, x.dtype)
        safe = b.map("where", b.map("isfinite", largest), largest, zero)
        terms = b.map(exp, b.map("subtract", x, safe))
        total = fold(b, "add", terms, axis, None, True)
        assert total is not None
        r = b.map("add", b.map(log, total), safe)
        if keepdims:
            return r
        axes = normalized_axes(axis, x.ndim)
        return b.reshape(r, tuple(n for k, n in enumerate(x.shape) if k not in axes))

    return translate


record("logaddexp.reduce")(_log_sum("exp", "log"))
record("logaddexp2.reduce")(_log_sum("exp2", "log2"))


@function(np.linalg.norm)
def _norm(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("x", "ord", "axis", "keepdims")
    if args is None:
        return None
    x, axis, order = b.value(args["x"]), args.axis(), args.get("ord")
    keepdims = args.flag("keepdims")
    x = b.cast(x, np.float64) if x.dtype.kind != "f" else b.widened(x)
    one = isinstance(axis, int) or (axis is None and x.ndim == 1)
    if order is None or (order == 2 and one) or (order == "fro" and not one):
        total = fold(b, "add", b.map("multiply", x, x), axis, None, keepdims)
        return None if total is None else b.cast(b.map("sqrt", total), call.result.dtype)
    if not one or order not in (1, np.inf, -np.inf):
        return None
    combine = "add" if order == 1 else "maximum" if order == np.inf else "minimum"
    r = fold(b, combine, b.map("absolute", x), axis, None, keepdims)
    return None if r is None else b.cast(r, call.result.dtype)


# -- neighbours --------------------------------------------------------------------------------


@function(np.diff)
def _diff(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("a", "n", "axis")
    if args is None:
        return None
    x = b.value(args["a"])
    if x.dtype == BOOL:
        return None
    axis = normalize_axis_index(args.integer("axis", -1), x.ndim)
    for _ in range(args.integer("n", 1)):
        n = x.shape[axis]
        if n < 2:
            return None
        x = b.map("subtract", b.slice(x, axis, 1, n), b.slice(x, axis, 0, n - 1))
    return x


_Gathered: TypeAlias = Literal["edge", "reflect", "symmetric", "wrap"]
_GATHERED: tuple[_Gathered, ...] = get_args(_Gathered)


of_pairs(np.pad)


@function(np.pad)
def _pad(b: Builder, call: ValueCall) -> Translated:
    args = call.bound("array", "pad_width", "mode", "constant_values", "reflect_type")
    if args is None or isinstance(args["pad_width"], dict):
        return None
    x, mode = b.value(args["array"]), args.get("mode", "constant")
    pairs = np.broadcast_to(np.asarray(args["pad_width"]), (x.ndim, 2)).tolist()
    if mode == "constant":
        fill = args.get("constant_values", 0)
        if ndim_of(fill) or isinstance(fill, tuple):
            return None
        base = b.broadcast(b.value(fill, x.dtype), call.result.shape)
        return b.update_slice(base, x, tuple(low for low, _ in pairs), (1,) * x.ndim)
    places = next((m for m in _GATHERED if m == mode), None)
    if places is None or args.get("reflect_type", "even") != "even" or not x.size:
        return None
    for axis, pair in enumerate(pairs):
        if any(pair):
            at = np.pad(np.arange(x.shape[axis]), tuple(pair), mode=places)
            x = b.gather(x, [b.array(at)], (axis,), axis)
    return x


@function(np.searchsorted)
def _searchsorted(b: Builder, call: ValueCall) -> Translated:
    """Count the smaller elements, where these are few; nan is larger than all others."""
    args = call.bound("a", "v", "side", "sorter")
    if args is None or args.get("sorter") is not None:
        return None
    a, v = b.value(args["a"]), b.value(args["v"])
    if a.ndim != 1 or a.size > _FEW or a.dtype.kind != "f" or v.dtype != a.dtype:
        return None
    wide = b.reshape(v, (*v.shape, 1))
    if args.get("side", "left") == "left":
        below = b.map("less", a, wide)
        below = b.map("logical_or", below, _only(b, wide, a))
    else:
        below = b.map("less_equal", a, wide)
        below = b.map("logical_or", below, b.map("isnan", wide))
    return fold(b, "add", below, below.ndim - 1)


_FEW = 32


def _only(b: Builder, x: Value, y: Value) -> Value:
    """Return where `x` is nan and `y` is not."""
    return b.map("logical_and", b.map("isnan", x), b.map("logical_not", b.map("isnan", y)))


# -- masks and holes ---------------------------------------------------------------------------


def _live(b: Builder, x: Value, where: object, skip: bool) -> Value | None:
    """Return the mask of the elements that take part, None for all."""
    mask = None if where is True or where is None else b.value(where, BOOL)
    if skip and x.dtype.kind == "f":
        present = b.map("logical_not", b.map("isnan", x))
        mask = present if mask is None else b.map("logical_and", present, mask)
    return None if mask is None else b.broadcast(mask, x.shape)


def _masked_mean(
    b: Builder, x: Value, mask: Value | None, axis: Axis, keepdims: bool
) -> tuple[Value, Value] | None:
    """Return the mean of the elements that take part, and their number."""
    zero = b.const(0, x.dtype)
    total = fold(b, "add", x if mask is None else b.map("where", mask, x, zero), axis, None, True)
    if total is None:
        return None
    if mask is None:
        n = b.const(math.prod(x.shape[i] for i in normalized_axes(axis, x.ndim)), x.dtype)
    else:
        count = fold(b, "add", mask, axis, None, True)
        assert count is not None
        n = b.cast(count, x.dtype)
    mean = b.map("divide", total, n)
    if not keepdims:
        axes = normalized_axes(axis, x.ndim)
        mean = b.reshape(mean, tuple(k for i, k in enumerate(x.shape) if i not in axes))
    return mean, n


def _mean(skip: bool) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        x, where = b.value(call.operands[0]), call.operands[1]
        if x.dtype.kind != "f" or call.params.get("dtype") is not None:
            return None
        mask = _live(b, x, where, skip)
        axis, keepdims = call.params.axis(), call.params.flag("keepdims")
        mean = _masked_mean(b, b.widened(x), mask, axis, keepdims)
        return None if mean is None else b.cast(mean[0], x.dtype)

    return translate


record("mean.where")(_mean(skip=False))
record("nanmean")(_mean(skip=True))


def _extremum(combine: str, sign: float) -> Translation:
    """Return the translation of nanmax or nanmin: nan where all elements are."""

    def translate(b: Builder, call: ValueCall) -> Translated:
        x, initial, where = b.value(call.operands[0]), *call.operands[1:]
        if x.dtype.kind != "f" or initial is not None or where is not True:
            return None
        hole = b.map("isnan", x)
        filled = b.map("where", hole, b.const(sign * math.inf, x.dtype), x)
        r = folded_as(b, combine, filled, call.params)
        empty = folded_as(b, "logical_and", hole, call.params)
        if r is None or empty is None:
            return None
        return b.map("where", empty, b.const(math.nan, x.dtype), r)

    return translate


record("nanmax")(_extremum("maximum", -1))
record("nanmin")(_extremum("minimum", 1))
