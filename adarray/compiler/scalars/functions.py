"""Scalar functions of every dtype as C: what `expressions` has for floats, and more.

Integers wrap, whatever the compiler's flags; casts and comparisons are NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import (
    COMPLEX,
    CTYPES,
    DTYPES,
    FLOATS,
    INTEGERS,
    NARROW,
    SIGNED,
    SIZES,
    SUFFIX,
)
from adarray.compiler.scalars.expressions import C, Dialect, call_text, library_name, literal
from adarray.compiler.scalars.record import Infix, LibraryFunction, ScalarFunction

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
    if dtype in NARROW:
        return hex(np.array(value, dtype).view(f"u{SIZES[dtype]}").item())
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
        return f"adarray_{FUNCTIONS[combine].truths_as}_{kind}_bool"
    return f"adarray_{combine}_{kind}_{SUFFIX[dtype]}"


def is_vector_call(name: str, dtype: str, libmvec: int) -> bool:
    """Whether a function comes from libmvec in vector loops, so that bits depend on the form."""
    if dtype not in FLOATS or name not in FUNCTIONS:
        return False
    f = FUNCTIONS[name]
    own = f.vector_versions.get(dtype)
    return 0 < f.libmvec <= libmvec and (own is None or own.calls_library)


def is_call(name: str, dtype: str) -> bool:
    """Whether a function of floats is a long one."""
    return dtype in FLOATS and FUNCTIONS[name].is_call


def cast(text: str, source: str, dtype: str, dialect: Dialect = C) -> str:
    """Return a value of dtype `source` as one of `dtype`."""
    if source == dtype:
        return text
    assert COMPLEX.isdisjoint((source, dtype)), (source, dtype)
    if source in NARROW or dtype in NARROW:
        return _converted(text, source, dtype)
    if dtype == "bool":
        return f"{text} != 0"
    if source == "bool":  # gcc turns no cast of a _Bool into vector code
        return f"{text} ? {number(1, dtype)} : {number(0, dtype)}"
    if source in FLOATS and dtype == "uint64":
        return f"adarray_to_u64({text})"
    if source in FLOATS and dtype in INTEGERS:
        # NumPy casts by way of a wide integer.
        wide = "int64" if dtype in ("int64", "uint32") else "int32"
        whole = f"({CTYPES[wide]}){text}"
        if dialect.saturates:
            whole = f"adarray_whole_{SUFFIX[wide]}_{SUFFIX[source]}({text})"
        return whole if dtype == wide else f"({CTYPES[dtype]}){whole}"
    return f"({CTYPES[dtype]}){text}"


def _converted(text: str, source: str, dtype: str) -> str:
    """Return a value as one of a dtype that is computed in a wider one, or the other way."""
    if source in NARROW:
        wide = DTYPES[source].wide
        return cast(f"adarray_{SUFFIX[source]}_to_{SUFFIX[wide]}({text})", wide, dtype)
    wide = DTYPES[dtype].wide
    if source not in FLOATS:  # integers go through it in NumPy, too
        text, source = f"({cast(text, source, wide)})", wide
    return f"adarray_{SUFFIX[source]}_to_{SUFFIX[dtype]}({text})"


def _truth(text: str, dtype: str) -> str:
    return text if dtype == "bool" else f"({text} != 0)"


def _sign(name: str) -> str:
    """Return the operator of C that a function is."""
    spelled = FUNCTIONS[name].floats
    assert isinstance(spelled, Infix)
    return spelled.sign


def _comparison(name: str, args: list[str], dtypes: list[str]) -> str:
    if dtypes[0] != dtypes[1]:
        if {dtypes[0] in SIGNED, dtypes[1] in SIGNED} == {True, False} and "uint64" in dtypes:
            return _mixed(name, args, dtypes)
        common = str(np.result_type(*dtypes))
        args = [cast(a, d, common) for a, d in zip(args, dtypes, strict=True)]
    return f"{args[0]} {_sign(name)} {args[1]}"


def _mixed(name: str, args: list[str], dtypes: list[str]) -> str:
    """Compare a signed with an unsigned 64-bit integer, exactly."""
    which = 0 if dtypes[0] in SIGNED else 1
    signed = args[which]
    both = f"(uint64_t){args[0]} {_sign(name)} (uint64_t){args[1]}"
    below = (name.startswith("less") if which == 0 else name.startswith("greater")) or (
        name == "not_equal"
    )
    return f"({signed} < 0) | ({both})" if below else f"({signed} >= 0) & ({both})"


def _on_bools(f: ScalarFunction, args: list[str], dtypes: list[str]) -> str | None:
    """Return the text of a function whose result is bool."""
    if not NARROW.isdisjoint(dtypes):
        return None
    if f.is_comparison:
        return _comparison(f.name, args, dtypes)
    if f.name == "where":
        # No branch: see `selected`.
        return f"({args[0]} & {args[1]}) | (!{args[0]} & {args[2]})"
    if f.truths_as == "logical_not":
        return f"!{_truth(args[0], dtypes[0])}"
    if f.truths_as is not None:
        left, right = (_truth(a, d) for a, d in zip(args, dtypes, strict=True))
        return f"{left} {_sign(f.truths_as)} {right}"
    if not f.is_predicate:
        return None
    if dtypes[0] in FLOATS:
        return call_text(f.name, args, dtypes[0])
    return _on_integers(f, args, dtypes[0])


def _on_integers(f: ScalarFunction, args: list[str], dtype: str) -> str | None:
    """Return the text of a function of integers of one dtype."""
    template = f.signed if dtype in SIGNED else f.unsigned
    wide = "uint64_t" if dtype.endswith("64") else "uint32_t"
    if template is None:
        return None
    return template.format(*args, type=CTYPES.get(dtype), wide=wide, s=SUFFIX.get(dtype))


def _of_parts(name: str, args: list[str], dtypes: list[str], dtype: str) -> str | None:
    """Return the text of what takes complex numbers apart, or makes them of their parts."""
    if name == "paired":
        one = dtypes[0] == dtypes[1] and np.result_type(dtypes[0], np.complex64) == dtype
        return f"adarray_paired_{SUFFIX[dtype]}({args[0]}, {args[1]})" if one else None
    if name not in ("real", "imag") or np.result_type(dtype, np.complex64) != dtypes[0]:
        return None
    return f"adarray_{name}_{SUFFIX[dtype]}({args[0]})"


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
        return cast(args[0], dtypes[0], dtype, dialect)
    f = FUNCTIONS.get(name)
    if f is None:
        return None
    if dtype in COMPLEX or not COMPLEX.isdisjoint(dtypes):
        return _of_parts(name, args, dtypes, dtype)
    if dtype == "bool":
        return _on_bools(f, args, dtypes)
    if f.gives_truth:
        return None
    if dtype in INTEGERS or (dtype in NARROW and name == "where"):
        return _on_integers(f, args, dtype)
    if dtype in NARROW:
        return None
    return call_text(name, args, dtype, dialect)


def wide_cast(text: str, source: str, dtype: str) -> str | None:
    """Return a cast that only some processors have for vectors; None for others."""
    wide = ("int64", "uint64")
    to_float = source in wide and dtype in FLOATS
    if to_float or (source in FLOATS and dtype in (*wide, "uint32")):
        return f"adarray_cast_{SUFFIX[source]}_{SUFFIX[dtype]}({text})"
    return None


def by_lane(name: str, args: list[str], dtype: str) -> str | None:
    """Return the text of a function that vector loops call lane by lane; None for others."""
    f = FUNCTIONS[name]
    if dtype == "bool" or ("f" if dtype in FLOATS else "i") not in f.by_lane:
        return None
    in_library = dtype in FLOATS and isinstance(f.floats, LibraryFunction)
    called = library_name(f, dtype) if in_library else f"{name}_{SUFFIX[dtype]}"
    return f"adarray_lanes_{called}({', '.join(args)})"


def selected(args: list[str], dtype: str, mask: bool = False) -> str | None:
    """Return the text of ``where`` without a branch, into which calls could be moved.

    With `mask`, the condition is an int64 of equal bits.
    """
    if dtype in ("float64", "float32", "int32", "int64"):
        return f"adarray_{'pick' if mask else 'select'}_{SUFFIX[dtype]}({', '.join(args)})"
    return None


def supports(name: str, dtypes: list[str], dtype: str) -> bool:
    """Whether kernels can compute the function `name` of these dtypes."""
    f = FUNCTIONS.get(name)
    if f is None or f.arity != len(dtypes) or not all(d in DTYPES for d in (dtype, *dtypes)):
        return False
    return text(name, ["a", "b", "c"][: f.arity], dtypes, dtype) is not None
