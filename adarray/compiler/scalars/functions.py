"""Scalar functions of every dtype as C: what `expressions` has for floats, and more.

Integers wrap, whatever the compiler's flags; casts and comparisons are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.base.scalar import PREDICATES
from adarray.compiler.scalars.expressions import COMPARE, C, Dialect, call_text, literal

FLOATS = ("float64", "float32")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
DTYPES = frozenset(("bool", *FLOATS, *INTEGERS))
SUFFIX = {d: d[0] + d.lstrip("uint") for d in INTEGERS} | {"float64": "f64", "float32": "f32"}
CTYPES = {d: f"{d}_t" for d in INTEGERS} | {
    "float64": "double",
    "float32": "float",
    "bool": "_Bool",
}
# How elements lie in memory.
STORED = CTYPES | {"bool": "uint8_t"}

# Ending of the names of functions that move elements.
MOVED = SUFFIX | {"bool": "u8"}
# Bytes of an element.
SIZES = {d: int(np.dtype(d).itemsize) for d in STORED}

LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
_BOOLS = LOGICAL | {
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "add": "|", "multiply": "&",
    "maximum": "|", "minimum": "&",
}  # fmt: skip
_BITS = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
_WRAPPING = {"add": "+", "subtract": "-", "multiply": "*"}
_CALLED = frozenset({
    "floor_divide", "remainder", "fmod", "power", "left_shift", "right_shift",
})  # fmt: skip
_SAME = frozenset({"positive", "floor", "ceil", "trunc", "rint", "fix", "conjugate"})

# Functions that libmvec has: first those of every glibc, then those since 2.35. Their vector
# and scalar versions differ in the last bits.
_FIRST = frozenset({"exp", "log", "sin", "cos", "power", "float_power"})
_LATER = frozenset({
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "cbrt", "cosh",
    "erf", "erfc", "exp2", "expm1", "hypot", "log10", "log1p", "log2", "sinh", "tan", "tanh",
})  # fmt: skip
LIBMVEC = (frozenset[str](), _FIRST, _FIRST | _LATER)
# Functions in adarray_vector.h that call none of libmvec's: vectors and scalars agree.
OWN = frozenset({("log", "float32"), ("expm1", "float32"), ("tanh", "float32")})

_OF_BOOLS = {
    "logical_and": "logical_and", "multiply": "logical_and", "minimum": "logical_and",
    "logical_or": "logical_or", "add": "logical_or", "maximum": "logical_or",
}  # fmt: skip
_LIMITS = {d: (int(np.iinfo(d).min), int(np.iinfo(d).max)) for d in INTEGERS}


def limits(dtype: str) -> tuple[int, int]:
    """Return the smallest and the largest number of an integer dtype."""
    return _LIMITS[dtype]


def number(value: Any, dtype: str, dialect: Dialect = C) -> str:
    """Return a constant as C text.

    Examples
    --------
    >>> number(3, "int64"), number(True, "bool"), number(0.5, "float32")
    ('3', '1', '0.5f')
    """
    if dtype == "bool":
        return "1" if value else "0"
    if dtype in FLOATS:
        return literal(value, dtype, dialect)
    value = int(value)
    if value == _LIMITS["int64"][0]:
        return "(-9223372036854775807 - 1)"
    if dtype == "uint64":
        return f"{value}u"
    return str(value) if value >= 0 else f"({value})"


def neutral(combine: str, dtype: str) -> str:
    """Return what a fold begins with, as C text."""
    if combine in ("add", "logical_or"):
        return number(0, dtype)
    if combine in ("multiply", "logical_and"):
        return number(1, dtype)
    low = combine == "maximum"
    if dtype in FLOATS:
        return number(-np.inf if low else np.inf, dtype)
    if dtype == "bool":
        return "0" if low else "1"
    return number(_LIMITS[dtype][0 if low else 1], dtype)


def folder(kind: str, combine: str, dtype: str) -> str:
    """Return the name of a function that combines what lies in memory.

    `kind` is ``"lanes"``, the accumulators of a loop, or ``"merge"``, threads' totals.
    """
    if dtype == "bool":
        return f"adarray_{_OF_BOOLS[combine]}_{kind}_bool"
    return f"adarray_{combine}_{kind}_{SUFFIX[dtype]}"


def is_vector_call(name: str, dtype: str, libmvec: int) -> bool:
    """Whether a function comes from libmvec in vector loops, so that bits depend on the form."""
    return dtype in FLOATS and name in LIBMVEC[libmvec] and (name, dtype) not in OWN


def cast(text: str, source: str, dtype: str) -> str:
    """Return a value of dtype `source` as one of `dtype`."""
    if source == dtype:
        return text
    if dtype == "bool":
        return f"{text} != 0"
    if source == "bool":  # gcc turns no cast of a _Bool into vector code
        return f"{text} ? {number(1, dtype)} : {number(0, dtype)}"
    if source in FLOATS and dtype == "uint64":
        return f"adarray_to_u64({text})"
    if source in FLOATS and dtype == "uint32":
        return f"(uint32_t)(int64_t){text}"
    if source in FLOATS and dtype in INTEGERS and dtype not in ("int32", "int64"):
        return f"({CTYPES[dtype]})(int32_t){text}"
    return f"({CTYPES[dtype]}){text}"


def _truth(text: str, dtype: str) -> str:
    return text if dtype == "bool" else f"({text} != 0)"


def _comparison(name: str, args: list[str], dtypes: list[str]) -> str:
    sign = C.infix[name]
    if dtypes[0] != dtypes[1]:
        if {dtypes[0] in SIGNED, dtypes[1] in SIGNED} == {True, False} and "uint64" in dtypes:
            return _mixed(name, args, dtypes)
        common = str(np.result_type(*dtypes))
        args = [cast(a, d, common) for a, d in zip(args, dtypes, strict=True)]
    return f"{args[0]} {sign} {args[1]}"


def _mixed(name: str, args: list[str], dtypes: list[str]) -> str:
    """Compare a signed with an unsigned 64-bit integer, exactly."""
    which = 0 if dtypes[0] in SIGNED else 1
    signed = args[which]
    both = f"(uint64_t){args[0]} {C.infix[name]} (uint64_t){args[1]}"
    below = (name.startswith("less") if which == 0 else name.startswith("greater")) or (
        name == "not_equal"
    )
    return f"({signed} < 0) | ({both})" if below else f"({signed} >= 0) & ({both})"


def _on_bools(name: str, args: list[str], dtypes: list[str]) -> str | None:
    """Return the text of a function whose result is bool."""
    if name in COMPARE:
        return _comparison(name, args, dtypes)
    if name == "where":
        # No branch: see `selected`.
        return f"({args[0]} & {args[1]}) | (!{args[0]} & {args[2]})"
    if name in ("logical_not", "invert"):
        return f"!{_truth(args[0], dtypes[0])}"
    if name in _BOOLS:
        left, right = (_truth(a, d) for a, d in zip(args, dtypes, strict=True))
        return f"{left} {_BOOLS[name]} {right}"
    if name in PREDICATES:
        if dtypes[0] in FLOATS:
            return call_text(name, args, dtypes[0])
        if name == "signbit":
            return f"{args[0]} < 0" if dtypes[0] in SIGNED else "0"
        return "1" if name == "isfinite" else "0"
    return None


def _on_integers(name: str, args: list[str], dtype: str) -> str | None:
    """Return the text of a function of integers of one dtype."""
    kind = CTYPES[dtype]
    wide = "uint64_t" if dtype.endswith("64") else "uint32_t"
    a, b = args[0], args[1] if len(args) > 1 else ""
    if name in _WRAPPING:
        return f"({kind})(({wide}){a} {_WRAPPING[name]} ({wide}){b})"
    if name in _BITS:
        return f"({kind})({a} {_BITS[name]} {b})"
    if name in _CALLED:
        return f"adarray_{name}_{SUFFIX[dtype]}({a}, {b})"
    if name in _SAME:
        return a
    if name in ("absolute", "fabs"):
        return a if dtype in UNSIGNED else f"{a} < 0 ? ({kind})(0 - ({wide}){a}) : {a}"
    texts = {
        "negative": f"({kind})(0 - ({wide}){a})",
        "square": f"({kind})(({wide}){a} * ({wide}){a})",
        "invert": f"({kind})~{a}",
        "sign": f"({kind})(({a} > 0) - ({a} < 0))",
        "maximum": f"{a} > {b} ? {a} : {b}",
        "minimum": f"{a} < {b} ? {a} : {b}",
        "fmax": f"{a} > {b} ? {a} : {b}",
        "fmin": f"{a} < {b} ? {a} : {b}",
        "where": f"{a} ? {b} : {args[-1]}",
        "reciprocal": f"({kind})(1.0 / {a})",
    }
    return texts.get(name)


def text(
    name: str, args: list[str], dtypes: list[str], dtype: str, dialect: Dialect = C
) -> str | None:
    """Return the C text of a scalar function; None if it is not known for these dtypes.

    Parameters
    ----------
    name : str
        As in `adarray.base.scalar`, or ``"cast"``.
    args : list of str
        Names or literals.
    dtypes : list of str
        Dtypes of the operands.
    dtype : str
        Dtype of the result.
    dialect : Dialect, optional
        For floating-point functions.
    """
    if name == "cast":
        return cast(args[0], dtypes[0], dtype)
    if dtype == "bool":
        return _on_bools(name, args, dtypes)
    if dtype in INTEGERS:
        return _on_integers(name, args, dtype)
    if name in LOGICAL or name in COMPARE or name in PREDICATES or name == "logical_not":
        return None  # these give truth values
    return call_text(name, args, dtype, dialect)


# Functions without a vector version; adarray_loops.h has them for lanes.
_BY_LANE = frozenset({
    "fmod", "remainder", "floor_divide", "power", "nextafter", "logaddexp", "logaddexp2",
})  # fmt: skip


def wide_cast(text: str, source: str, dtype: str) -> str | None:
    """Return a cast that only some processors have for vectors; None for others."""
    wide = ("int64", "uint64")
    to_float = source in wide and dtype in FLOATS
    if to_float or (source in FLOATS and dtype in (*wide, "uint32")):
        return f"adarray_cast_{SUFFIX[source]}_{SUFFIX[dtype]}({text})"
    return None


def by_lane(name: str, args: list[str], dtype: str) -> str | None:
    """Return the text of a function that vector loops call lane by lane; None for others."""
    if name not in _BY_LANE or dtype == "bool" or (name == "power" and dtype in FLOATS):
        return None
    end = SUFFIX[dtype]
    if name in ("fmod", "nextafter") and dtype in FLOATS:
        return f"adarray_lanes_{name}{C.library_suffix[dtype]}({', '.join(args)})"
    return f"adarray_lanes_{name}_{end}({', '.join(args)})"


def selected(args: list[str], dtype: str, mask: bool = False) -> str | None:
    """Return the text of ``where`` without a branch, into which calls could be moved.

    With `mask`, the condition is an int64 of equal bits.
    """
    if dtype in ("float64", "float32", "int32", "int64"):
        return f"adarray_{'pick' if mask else 'select'}_{SUFFIX[dtype]}({', '.join(args)})"
    return None


def supports(name: str, dtypes: list[str], dtype: str) -> bool:
    """Whether kernels can compute the function `name` of these dtypes."""
    if dtype not in DTYPES or any(d not in DTYPES for d in dtypes):
        return False
    places = ["a", "b", "c"][: len(dtypes)]
    if len(places) != len(dtypes) or (len(places) < 3) == (name == "where"):
        return False
    try:
        return text(name, places, dtypes, dtype) is not None
    except (IndexError, ValueError):
        return False
