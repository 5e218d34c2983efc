"""Printing scalar expressions as C.

The printer decides nothing: an expression becomes one constant per distinct
subexpression, in evaluation order and without branches, so that a loop around it
can become vector code. What differs between dialects is data.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from adarray.base.scalar import Expr

INFIX = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/",
    "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=",
    "equal": "==", "not_equal": "!=",
    "logical_and": "&", "logical_or": "|", "logical_xor": "^",
}  # fmt: skip
ON_BOOLS = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not"})
COMPARE = frozenset({"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"})

# {0}, {1}...: operands; {one}: the number 1 of the type; {s}: suffix of our helpers.
TEMPLATES = {
    "negative": "-{0}",
    "positive": "{0}",
    "reciprocal": "{one} / {0}",
    "square": "{0} * {0}",
    "logical_not": "!{0}",
    "isnan": "{0} != {0}",
    "isinf": "{fabs}({0}) == ({type})ADARRAY_INF",
    "isfinite": "{fabs}({0}) < ({type})ADARRAY_INF",
    "signbit": "ADARRAY_SIGNBIT_{s}({0})",
    "where": "{0} ? {1} : {2}",
    "deg2rad": "{0} * ({type})0.017453292519943295",
    "radians": "{0} * ({type})0.017453292519943295",
    "rad2deg": "{0} * ({type})57.29577951308232",
    "degrees": "{0} * ({type})57.29577951308232",
}
# Functions of the C library, by NumPy's name; float32 calls the name with an f.
LIBRARY = {
    "absolute": "fabs", "fabs": "fabs", "power": "pow", "float_power": "pow", "fmod": "fmod",
    "sqrt": "sqrt", "cbrt": "cbrt", "copysign": "copysign", "hypot": "hypot",
    "exp": "exp", "exp2": "exp2", "expm1": "expm1",
    "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "fix": "trunc",
    "nextafter": "nextafter", "erf": "erf", "erfc": "erfc",
}  # fmt: skip
# Functions of native/shared/adarray_math.h.
HELPERS = frozenset({
    "maximum", "minimum", "fmax", "fmin", "sign", "remainder", "floor_divide",
    "logaddexp", "logaddexp2",
})  # fmt: skip


# Functions of native/cpu/adarray_vector.h that stand in for library functions, by dtype.
INSTEAD = {
    ("log", "float32"): "ADARRAY_LEVEL(adarray_log_f32)",
    ("expm1", "float32"): "ADARRAY_LEVEL(adarray_expm1_f32)",
    ("tanh", "float32"): "ADARRAY_LEVEL(adarray_tanh_f32)",
    ("tanh", "float64"): "ADARRAY_LEVEL(adarray_tanh_f64)",
}


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
    infix, templates, library, helpers, instead
        What each NumPy function is written as.
    """

    types: dict[str, str] = {"float64": "double", "float32": "float"}  # noqa: RUF012
    literal: dict[str, str] = {"float64": "", "float32": "f"}  # noqa: RUF012
    suffix: dict[str, str] = {"float64": "f64", "float32": "f32"}  # noqa: RUF012
    library_suffix: dict[str, str] = {"float64": "", "float32": "f"}  # noqa: RUF012
    bool_type: str = "_Bool"
    infix: dict[str, str] = INFIX
    templates: dict[str, str] = TEMPLATES
    library: dict[str, str] = LIBRARY
    helpers: frozenset[str] = HELPERS
    instead: dict[tuple[str, str], str] = INSTEAD


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


def call_text(op: str, args: list[str], dtype: str, d: Dialect = C) -> str | None:
    """Return the text of the function `op` of a floating-point `dtype`; None if unknown."""
    if op in d.infix:
        return f"{args[0]} {d.infix[op]} {args[1]}"
    if op in d.templates:
        return d.templates[op].format(
            *args,
            one=literal(1, dtype, d),
            s=d.suffix[dtype],
            type=d.types[dtype],
            fabs=f"fabs{d.library_suffix[dtype]}",
        )
    if (op, dtype) in d.instead:
        return f"{d.instead[op, dtype]}({', '.join(args)})"
    if op in d.library:
        return f"{d.library[op]}{d.library_suffix[dtype]}({', '.join(args)})"
    if op in d.helpers:
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

    def body(self, expr: Expr) -> tuple[list[str], str]:
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

    def _visit(self, expr: Expr) -> tuple[str, bool]:
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
        d = self.dialect
        if op in ON_BOOLS:
            args = [self._truth(*x) for x in operands]
        elif op == "where":
            rest = [x[0] if is_bool else self._number(*x) for x in operands[1:]]
            args = [self._truth(*operands[0]), *rest]
        elif op in COMPARE and all(b for _, b in operands):
            args = [text for text, _ in operands]
        else:
            args = [self._number(*x) for x in operands]
        text = call_text(op, args, self.dtype, d)
        if text is None:
            raise UnprintableError(f"no C text is known for the function {op!r}")
        return text
