"""Printing scalar expressions as C.

The printer decides nothing: an expression becomes one constant per distinct
subexpression, in evaluation order and without branches, so that a loop around it
can become vector code. What differs between dialects is data, and what functions are written as
stands in their records.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from adarray.base.scalar import COMPARISONS, LOGICAL, ScalarExpr
from adarray.compiler.scalars.catalogue import FUNCTIONS
from adarray.compiler.scalars.dtypes import DTYPES, FLOATS
from adarray.compiler.scalars.record import Helper, Infix, LibraryFunction, ScalarFunction, Template

_TYPES = {d: DTYPES[d].type for d in FLOATS}
_SUFFIXES = {d: DTYPES[d].suffix for d in FLOATS}
_ENDINGS = {d: DTYPES[d].ending for d in FLOATS}


class Dialect(NamedTuple):
    """How a C-like language writes things.

    Parameters
    ----------
    types : dict
        Name of each dtype's type.
    literal : dict
        Ending of each dtype's literals.
    suffix : dict
        Ending of our helper functions' names, by dtype.
    library_suffix : dict
        Ending of the C library functions' names, by dtype.
    bool_type : str
        Type of a truth value.
    versions : {"library", "vector", "checked"}
        What is called where a record names more than the C library's function:
        ``vector_versions``, ``cuda_checked``, or neither.
    far : bool
        Whether functions that are calls are those that ``native/cuda/adarray_device.h`` has out of
        line.
    saturates : bool
        Whether casts give the nearest integer of what is beyond an integer's range, where NumPy
        on this machine does not.
    """

    types: dict[str, str] = _TYPES
    literal: dict[str, str] = _ENDINGS
    suffix: dict[str, str] = _SUFFIXES
    library_suffix: dict[str, str] = _ENDINGS
    bool_type: str = "_Bool"
    versions: Literal["library", "vector", "checked"] = "vector"
    far: bool = False
    saturates: bool = False


C = Dialect()


class UnprintableError(Exception):
    """An expression holds a function that the dialect does not know."""


def literal(value: float, dtype: str, dialect: Dialect = C) -> str:
    """Return a number as a literal of a floating-point `dtype`."""
    kind = dialect.types[dtype]
    number = float(np.dtype(dtype).type(value))
    if math.isnan(number):
        return f"({kind})ADARRAY_NAN"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}({kind})ADARRAY_INF"
    text = repr(number)
    if dtype == "float32":
        # The fewest digits that give the number; NumPy's own text depends on its version.
        texts = (f"{number:.{digits}g}" for digits in range(1, 10))
        text = next(t for t in texts if np.float32(float(t)) == number)
        text = text if "." in text or "e" in text else f"{text}.0"
    text += dialect.literal[dtype]
    return f"({text})" if math.copysign(1, number) < 0 else text


def library_name(function: ScalarFunction, dtype: str, d: Dialect = C) -> str:
    """Return the name of a function of the C library for operands of `dtype`."""
    assert isinstance(function.floats, LibraryFunction)
    far = "adarray_far_" if d.far and function.cuda_far else ""
    return f"{far}{function.floats.name}{d.library_suffix[dtype]}"


def call_text(op: str, args: list[str], dtype: str, d: Dialect = C) -> str | None:
    """Return the text of the function `op` of a floating-point `dtype`; None if unknown."""
    f = FUNCTIONS.get(op)
    if f is None:
        return None
    if d.versions == "vector" and dtype in f.vector_versions:
        return f"ADARRAY_LEVEL({f.vector_versions[dtype].name})({', '.join(args)})"
    if d.versions == "checked" and dtype in f.cuda_checked:
        return f"{f.cuda_checked[dtype]}({', '.join(args)})"
    match f.floats:
        case Infix(sign):
            return f"{args[0]} {sign} {args[1]}"
        case Template(text):
            return text.format(
                *args,
                one=literal(1, dtype, d),
                s=d.suffix[dtype],
                type=d.types[dtype],
                fabs=f"fabs{d.library_suffix[dtype]}",
            )
        case LibraryFunction():
            return f"{library_name(f, dtype, d)}({', '.join(args)})"
        case Helper():
            return f"adarray_{op}_{d.suffix[dtype]}({', '.join(args)})"
    return None


class Printer:
    """Prints expressions of one dtype in one dialect.

    Parameters
    ----------
    dtype : {"float64", "float32"}
        Type of every number in the expression.
    dialect : Dialect, optional
    truths : frozenset of str, optional
        Variables that hold truth values.
    """

    def __init__(
        self, dtype: str, dialect: Dialect = C, truths: frozenset[str] = frozenset()
    ) -> None:
        self.dtype = dtype
        self.dialect = dialect
        self.truths = truths
        self.type = dialect.types[dtype]
        self.lines: list[str] = []
        self._names: dict[str, tuple[str, bool]] = {}

    def body(self, expr: ScalarExpr) -> tuple[list[str], str]:
        """Return the statements that compute `expr`, and the name of its value, a number.

        Raises
        ------
        UnprintableError
            If the dialect does not know a function in it.

        Examples
        --------
        >>> from adarray.base import scalar
        >>> Printer("float32").body(scalar.var("x0") * 2 + 1)
        (['const float t0 = x0 * 2.0f;', 'const float t1 = t0 + 1.0f;'], 't1')
        """
        value = self._number(*self._visit(expr))
        return self.lines, value

    def literal(self, value: float) -> str:
        """Return a number as a literal of the printer's dtype."""
        return literal(value, self.dtype, self.dialect)

    def _number(self, text: str, is_bool: bool) -> str:
        """Return `text` as a number: truth values become 1 and 0."""
        if not is_bool:
            return text
        return f"({text} ? {self.literal(1)} : {self.literal(0)})"

    def _truth(self, text: str, is_bool: bool) -> str:
        """Return `text` as a truth value: numbers are true unless 0."""
        return text if is_bool else f"({text} != {self.literal(0)})"

    def _visit(self, expr: ScalarExpr) -> tuple[str, bool]:
        """Return the text of a value and whether it is a truth value."""
        if expr.op == "var":
            return expr.value, expr.value in self.truths
        if expr.op == "const":
            if isinstance(expr.value, bool):
                return str(int(expr.value)), True
            return self.literal(expr.value), False
        operands = [self._visit(a) for a in expr.args]
        is_bool = expr.is_bool
        text = self._call(expr.op, operands, is_bool)
        if text not in self._names:
            name = f"t{len(self._names)}"
            kind = self.dialect.bool_type if is_bool else self.type
            self.lines.append(f"const {kind} {name} = {text};")
            self._names[text] = (name, is_bool)
        return self._names[text]

    def _call(self, op: str, operands: list[tuple[str, bool]], is_bool: bool) -> str:
        """Return the text of `op` applied to `operands`."""
        if op in LOGICAL:
            args = [self._truth(*x) for x in operands]
        elif op == "where":
            rest = [x[0] if is_bool else self._number(*x) for x in operands[1:]]
            args = [self._truth(*operands[0]), *rest]
        elif op in COMPARISONS and all(b for _, b in operands):
            args = [text for text, _ in operands]
        else:
            args = [self._number(*x) for x in operands]
        text = call_text(op, args, self.dtype, self.dialect)
        if text is None:
            raise UnprintableError(f"no C text is known for the function {op!r}")
        return text
