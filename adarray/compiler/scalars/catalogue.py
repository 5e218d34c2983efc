"""The scalar functions of kernels: one record each, by family.

A function that C and CUDA have gets a record here, and an operation record; nothing else names
it. `adarray.compiler.scalars.record` says what the fields are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from adarray.compiler.scalars.record import (
    HEAVY,
    LIGHT,
    MEDIUM,
    POSITIVE,
    REAL,
    Helper,
    Infix,
    Interval,
    LibraryFunction,
    ScalarFunction,
    Spelling,
    Template,
    VectorVersion,
)

_UNIT: Interval = (-1.0, 1.0)
_F32, _BOTH = frozenset({"float32"}), frozenset({"float32", "float64"})


def _simple(
    name: str,
    floats: Spelling | None,
    integers: str | None = None,
    *,
    arity: int = 2,
    ulp: float = 0.5,
    cost: int = LIGHT,
    flops: int = 1,
    domain: tuple[Interval, ...] = (),
    integers_as: str | None = None,
    truths_as: str | None = None,
    by_lane: str = "",
    of_spacing: bool = False,
    constants_alike: bool = False,
) -> ScalarFunction:
    """Return the record of a function of few instructions; it is defined everywhere by default."""
    return ScalarFunction(
        name=name, arity=arity, floats=floats, signed=integers, unsigned=integers, cost=cost,
        flops=flops, ulp=ulp, domain=domain or (REAL,) * arity, integers_as=integers_as,
        truths_as=truths_as, by_lane=by_lane, of_spacing=of_spacing,
        constants_alike=constants_alike,
    )  # fmt: skip


def _library(
    name: str, spelled: str, libmvec: int = 0, *domain: Interval, ulp: float = 4.0
) -> ScalarFunction:
    """Return the record of a mathematical function of the C library, by default of one real.

    Those with a vector version are in the headers of kernels, too; others need no other text.
    """
    return ScalarFunction(
        name=name, arity=len(domain) or 1, floats=LibraryFunction(spelled), signed=None,
        unsigned=None, cost=HEAVY, flops=1, ulp=ulp, domain=domain or (REAL,), libmvec=libmvec,
        is_call=True, cuda_far=libmvec > 0,
    )  # fmt: skip


def _alias(name: str, function: ScalarFunction) -> ScalarFunction:
    """Return the record of another name of `function`, under which NumPy has other dtypes."""
    return replace(function, name=name, same_as=function.name)


# -- arithmetic --------------------------------------------------------------------------------

_WRAPPED = "({{type}})(({{wide}}){{0}} {} ({{wide}}){{1}})"
_CALLED = "adarray_{}_{{s}}({{0}}, {{1}})"

_POSITIVE = _simple("positive", Template("{0}"), "{0}", arity=1, ulp=0, flops=0)
_ABSOLUTE = replace(
    _simple("absolute", LibraryFunction("fabs"), "{0}", arity=1, ulp=0),
    signed="{0} < 0 ? ({type})(0 - ({wide}){0}) : {0}",
)
_TRUNC = _simple("trunc", LibraryFunction("trunc"), arity=1, ulp=0, integers_as="positive")
_TO_RADIANS = _simple("deg2rad", Template("{0} * ({type})0.017453292519943295"), arity=1, ulp=1)
_TO_DEGREES = _simple("rad2deg", Template("{0} * ({type})57.29577951308232"), arity=1, ulp=1)

ARITHMETIC = (
    _simple("add", Infix("+"), _WRAPPED.format("+"), truths_as="logical_or", constants_alike=True),
    _simple("subtract", Infix("-"), _WRAPPED.format("-"), constants_alike=True),
    _simple("multiply", Infix("*"), _WRAPPED.format("*"), truths_as="logical_and",
            constants_alike=True),
    _simple("divide", Infix("/"), cost=MEDIUM, constants_alike=True),
    replace(_simple("reciprocal", Template("{one} / {0}"), arity=1), cuda_careful="reciprocalf"),
    _simple("negative", Template("-{0}"), "({type})(0 - ({wide}){0})", arity=1, ulp=0),
    _POSITIVE, _alias("conjugate", _POSITIVE),
    _simple("square", Template("{0} * {0}"), "({type})(({wide}){0} * ({wide}){0})", arity=1),
    _simple("sqrt", LibraryFunction("sqrt"), arity=1, cost=MEDIUM, domain=(POSITIVE,)),
    _ABSOLUTE, _alias("fabs", _ABSOLUTE),
    _simple("sign", Helper(), "({type})(({0} > 0) - ({0} < 0))", arity=1, ulp=0),
    _simple("copysign", LibraryFunction("copysign"), ulp=0, flops=0),
    _TO_RADIANS, _alias("radians", _TO_RADIANS),
    _TO_DEGREES, _alias("degrees", _TO_DEGREES),
    _simple("floor", LibraryFunction("floor"), arity=1, ulp=0, integers_as="positive"),
    _simple("ceil", LibraryFunction("ceil"), arity=1, ulp=0, integers_as="positive"),
    _simple("rint", LibraryFunction("rint"), arity=1, ulp=0, integers_as="positive"),
    _TRUNC, _alias("fix", _TRUNC),
    _simple("maximum", Helper(), "{0} > {1} ? {0} : {1}", ulp=0, truths_as="logical_or",
            constants_alike=True),
    _simple("minimum", Helper(), "{0} < {1} ? {0} : {1}", ulp=0, truths_as="logical_and",
            constants_alike=True),
    _simple("fmax", Helper(), ulp=0, integers_as="maximum", constants_alike=True),
    _simple("fmin", Helper(), ulp=0, integers_as="minimum", constants_alike=True),
    # Divisions with a remainder: no processor has them for vectors.
    _simple("fmod", LibraryFunction("fmod"), _CALLED.format("fmod"), ulp=0, cost=HEAVY,
            by_lane="fi"),
    _simple("remainder", Helper(), _CALLED.format("remainder"), cost=HEAVY, by_lane="fi"),
    _simple("floor_divide", Helper(), _CALLED.format("floor_divide"), ulp=2, cost=HEAVY,
            by_lane="fi"),
    _simple("nextafter", LibraryFunction("nextafter"), ulp=0, cost=HEAVY, by_lane="f",
            of_spacing=True),
    _simple("cast", None, arity=1, flops=0),
)  # fmt: skip

# -- complex numbers, which are pairs of real ones -----------------------------------------------

PARTS = (
    _simple("real", None, arity=1, ulp=0, flops=0),
    _simple("imag", None, arity=1, ulp=0, flops=0),
    _simple("paired", None, ulp=0, flops=0),
)

# -- bits and truth values ---------------------------------------------------------------------


def _bits(name: str, sign: str, truths_as: str) -> ScalarFunction:
    text = f"({{type}})({{0}} {sign} {{1}})"
    return _simple(name, None, text, ulp=0, flops=0, truths_as=truths_as)


def _comparison(name: str, sign: str) -> ScalarFunction:
    return _simple(name, Infix(sign), ulp=0, flops=0, constants_alike=True)


def _predicate(name: str, text: str, signed: str, unsigned: str) -> ScalarFunction:
    return replace(_simple(name, Template(text), unsigned, arity=1, ulp=0, flops=0), signed=signed)


LOGIC = (
    _bits("bitwise_and", "&", "logical_and"),
    _bits("bitwise_or", "|", "logical_or"),
    _bits("bitwise_xor", "^", "logical_xor"),
    _simple("invert", None, "({type})~{0}", arity=1, ulp=0, flops=0, truths_as="logical_not"),
    _simple("left_shift", None, _CALLED.format("left_shift"), ulp=0),
    _simple("right_shift", None, _CALLED.format("right_shift"), ulp=0),
    _comparison("greater", ">"), _comparison("greater_equal", ">="),
    _comparison("less", "<"), _comparison("less_equal", "<="),
    _comparison("equal", "=="), _comparison("not_equal", "!="),
    _simple("logical_and", Infix("&"), ulp=0, flops=0, truths_as="logical_and"),
    _simple("logical_or", Infix("|"), ulp=0, flops=0, truths_as="logical_or"),
    _simple("logical_xor", Infix("^"), ulp=0, flops=0, truths_as="logical_xor"),
    _simple("logical_not", Template("!{0}"), arity=1, ulp=0, flops=0, truths_as="logical_not"),
    _predicate("isnan", "{0} != {0}", "0", "0"),
    _predicate("isinf", "{fabs}({0}) == ({type})ADARRAY_INF", "0", "0"),
    _predicate("isfinite", "{fabs}({0}) < ({type})ADARRAY_INF", "1", "1"),
    _predicate("signbit", "ADARRAY_SIGNBIT_{s}({0})", "{0} < 0", "0"),
    replace(  # NumPy's loop branches on every element
        _simple("where", Template("{0} ? {1} : {2}"), "{0} ? {1} : {2}", arity=3, ulp=0, flops=0,
                constants_alike=True),
        slow_in_numpy=True,
    ),
)  # fmt: skip

# -- exponentials, logarithms, powers ----------------------------------------------------------

_POWER = replace(
    _library("power", "pow", 1, POSITIVE, REAL),
    signed=_CALLED.format("power"), unsigned=_CALLED.format("power"), by_lane="i",
    faster_in_numpy=_BOTH,
)  # fmt: skip

EXPONENTIALS = (
    _library("exp", "exp", 1),
    _library("exp2", "exp2", 2),
    replace(
        _library("expm1", "expm1", 2),
        vector_versions={"float32": VectorVersion("adarray_expm1_f32", calls_library=False)},
        faster_in_numpy=_F32,
    ),
    # CUDA's logarithms in float64 take negative subnormal numbers for zero.
    replace(
        _library("log", "log", 1, POSITIVE),
        vector_versions={"float32": VectorVersion("adarray_log_f32", calls_library=False)},
        cuda_checked={"float64": "adarray_cuda_log"},
        faster_in_numpy=_BOTH,
    ),
    replace(
        _library("log2", "log2", 2, POSITIVE), cuda_checked={"float64": "adarray_cuda_log2"}
    ),
    replace(
        _library("log10", "log10", 2, POSITIVE), cuda_checked={"float64": "adarray_cuda_log10"}
    ),
    replace(
        _library("log1p", "log1p", 2, (-1.0, REAL[1])),
        cuda_careful="log1pf", faster_in_numpy=_F32,
    ),
    # Near zero their sums cancel, as NumPy's do. They are out of line: loops stay scalar.
    _simple("logaddexp", Helper(), ulp=math.inf, cost=HEAVY, by_lane="f"),
    _simple("logaddexp2", Helper(), ulp=math.inf, cost=HEAVY, by_lane="f"),
    _POWER, _alias("float_power", _POWER),
    _library("cbrt", "cbrt", 2),
    replace(_library("hypot", "hypot", 2, REAL, REAL), constants_alike=True),
)  # fmt: skip

# -- trigonometric and hyperbolic functions ----------------------------------------------------

TRIGONOMETRIC = (
    replace(_library("sin", "sin", 1), cuda_careful="sinf"),
    replace(_library("cos", "cos", 1), cuda_careful="cosf"),
    _library("tan", "tan", 2),
    _library("arcsin", "asin", 2, _UNIT),
    _library("arccos", "acos", 2, _UNIT),
    _library("arctan", "atan", 2),
    replace(_library("arctan2", "atan2", 2, REAL, REAL), constants_alike=True),
    _library("sinh", "sinh", 2),
    _library("cosh", "cosh", 2),
    replace(
        _library("tanh", "tanh", 2),
        vector_versions={
            "float32": VectorVersion("adarray_tanh_f32", calls_library=False),
            "float64": VectorVersion("adarray_tanh_f64", calls_library=True),
        },
        faster_in_numpy=_F32,
    ),
    _library("arcsinh", "asinh", 2),
    _library("arccosh", "acosh", 2, (1.0, REAL[1])),
    _library("arctanh", "atanh", 2, _UNIT),
)

# -- special functions -------------------------------------------------------------------------

SPECIAL = (
    replace(_library("erf", "erf", 2), cost=LIGHT),
    replace(_library("erfc", "erfc", 2), cost=LIGHT),
    _library("gamma", "tgamma", 0, POSITIVE, ulp=10.0),
)

FUNCTIONS: Mapping[str, ScalarFunction] = MappingProxyType(
    {f.name: f for f in (*ARITHMETIC, *PARTS, *LOGIC, *EXPONENTIALS, *TRIGONOMETRIC, *SPECIAL)}
)
