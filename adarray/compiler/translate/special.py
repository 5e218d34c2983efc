"""Functions of `scipy.special` in terms of few others."""

from __future__ import annotations

import math

import numpy as np

from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.program import Value
from adarray.compiler.translate import Axis, Translated, Translation, ValueCall, record
from adarray.compiler.translate.elementwise import emit
from adarray.compiler.translate.reductions import fold


def _floats(b: Builder, call: ValueCall) -> list[Value] | None:
    """Return the operands in the result's dtype, None if that is not floating point."""
    if call.result.dtype.kind != "f" or call.params:
        return None
    return [b.value(x, call.result.dtype) for x in call.operands]


def _same(*names: str) -> None:
    """Register functions that NumPy has too."""

    def translation(name: str) -> Translation:
        def translate(b: Builder, call: ValueCall) -> Translated:
            args = _floats(b, call)
            return None if args is None else emit(b, name, tuple(args))

        return translate

    for name in names:
        record(f"special.{name}")(translation(name))


_same("expm1", "log1p", "exp2", "cbrt", "erf", "erfc", "gamma")


@record("special.ndtr")
def _ndtr(b: Builder, call: ValueCall) -> Translated:
    """Return the normal distribution function: erfc loses nothing in the lower tail."""
    args = _floats(b, call)
    if args is None:
        return None
    # In double: a rounded argument would cost float32 most digits of a small tail.
    x = b.cast(args[0], np.float64)
    z = b.map("multiply", x, b.const(-math.sqrt(0.5), x.dtype))
    tail = b.map("multiply", b.const(0.5, x.dtype), b.map("erfc", z))
    return b.cast(tail, call.result.dtype)


@record("special.expit")
def _expit(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call)
    if args is None:
        return None
    one = b.const(1, args[0].dtype)
    return b.map("divide", one, b.map("add", one, b.map("exp", b.map("negative", args[0]))))


@record("special.log_expit")
def _log_expit(b: Builder, call: ValueCall) -> Translated:
    """Return ``x - log1p(exp(x))`` for negative numbers, ``-log1p(exp(-x))`` for others."""
    args = _floats(b, call)
    if args is None:
        return None
    x = args[0]
    zero = b.const(0, x.dtype)
    size = b.map("absolute", x)
    rest = b.map("log1p", b.map("exp", b.map("negative", size)))
    return b.map("subtract", b.map("minimum", x, zero), rest)


@record("special.logit")
def _logit(b: Builder, call: ValueCall) -> Translated:
    """Return log(x / (1 - x)), near one half as ``log1p(s) - log1p(-s)`` with s = 2 x - 1."""
    args = _floats(b, call)
    if args is None:
        return None
    x = args[0]
    one, half = b.const(1, x.dtype), b.const(0.5, x.dtype)
    far = b.map("log", b.map("divide", x, b.map("subtract", one, x)))
    s = b.map("multiply", b.const(2, x.dtype), b.map("subtract", x, half))
    near = b.map("subtract", b.map("log1p", s), b.map("log1p", b.map("negative", s)))
    inside = b.map("less_equal", b.map("absolute", s), b.const(0.4, x.dtype))
    return b.map("where", inside, near, far)


def _times_log(name: str) -> Translation:
    def translate(b: Builder, call: ValueCall) -> Translated:
        args = _floats(b, call)
        if args is None:
            return None
        x, y = args
        zero = b.const(0, x.dtype)
        nothing = b.map(
            "logical_and",
            b.map("equal", x, zero),
            b.map("logical_not", b.map("isnan", y)),
        )
        return b.map("where", nothing, zero, b.map("multiply", x, b.map(name, y)))

    return translate


record("special.xlogy")(_times_log("log"))
record("special.xlog1py")(_times_log("log1p"))


@record("special.entr")
def _entr(b: Builder, call: ValueCall) -> Translated:
    args = _floats(b, call)
    if args is None:
        return None
    x = args[0]
    zero, lowest = b.const(0, x.dtype), b.const(-np.inf, x.dtype)
    r = b.map("negative", b.map("multiply", x, b.map("log", x)))
    r = b.map("where", b.map("equal", x, zero), zero, r)
    return b.map("where", b.map("less", x, zero), lowest, r)


# -- along axes --------------------------------------------------------------------------------


def _shifted(b: Builder, x: Value, axis: Axis) -> tuple[Value, Value] | None:
    """Return `x` less its largest elements, and these where they are finite, 0 elsewhere."""
    largest = fold(b, "maximum", x, axis, None, True)
    if largest is None:
        return None
    safe = b.map("where", b.map("isfinite", largest), largest, b.const(0, x.dtype))
    return b.map("subtract", x, safe), safe


@record("special.softmax")
def _softmax(b: Builder, call: ValueCall) -> Translated:
    x, axis = b.value(call.operands[0], call.result.dtype), call.params.axis()
    largest = fold(b, "maximum", x, axis, None, True) if x.dtype.kind == "f" else None
    if largest is None:
        return None
    terms = b.map("exp", b.map("subtract", x, largest))
    total = fold(b, "add", terms, axis, None, True)
    return None if total is None else b.map("divide", terms, total)


@record("special.log_softmax")
def _log_softmax(b: Builder, call: ValueCall) -> Translated:
    x, axis = b.value(call.operands[0], call.result.dtype), call.params.axis()
    shifted = _shifted(b, x, axis) if x.dtype.kind == "f" else None
    if shifted is None:
        return None
    total = fold(b, "add", b.map("exp", shifted[0]), axis, None, True)
    return None if total is None else b.map("subtract", shifted[0], b.map("log", total))


@record("special.logsumexp")
def _logsumexp(b: Builder, call: ValueCall) -> Translated:
    params = call.params
    others = [x for name, x in params.items() if name not in ("axis", "keepdims")]
    if any(w is not None for w in call.operands[1:]) or any(others):
        return None
    axis, keepdims = params.axis(), params.flag("keepdims")
    x = b.value(call.operands[0], call.result.dtype)
    shifted = _shifted(b, x, axis) if x.dtype.kind == "f" else None
    if shifted is None:
        return None
    total = fold(b, "add", b.map("exp", shifted[0]), axis, None, True)
    assert total is not None
    r = b.map("add", b.map("log", total), shifted[1])
    return r if keepdims else b.reshape(r, call.result.shape)
