"""Expressions of threads' loop IR as text of C, which CUDA C shares."""

from __future__ import annotations

import math

import numpy as np

from adarray.compiler.ir.loopir import Apply, Const, Expr, Load, Var
from adarray.compiler.ir.threads import INDICES
from adarray.kernels.functions import SPELLED, TEMPLATES
from adarray.kernels.types import FLOATS

CTYPES = {
    "bool": "_Bool", "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t",
    "uint16": "uint16_t", "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
    "uint64": "uint64_t", "float32": "float", "float64": "double",
}  # fmt: skip
STORED = CTYPES | {"bool": "uint8_t"}
_SIGNS = {
    "multiply": ("*", 13), "divide": ("/", 13), "quotient": ("/", 13), "modulo": ("%", 13),
    "add": ("+", 12), "subtract": ("-", 12), "left_shift": ("<<", 11), "right_shift": (">>", 11),
    "less": ("<", 10), "less_equal": ("<=", 10), "greater": (">", 10), "greater_equal": (">=", 10),
    "equal": ("==", 9), "not_equal": ("!=", 9), "bitwise_and": ("&", 8), "bitwise_xor": ("^", 7),
    "bitwise_or": ("|", 6), "logical_and": ("&&", 5), "logical_or": ("||", 4),
}  # fmt: skip
_UNARY, _CALL = 14, 15
_CONSTANTS = {"one": 1.0, "ten": 10.0, "half": 0.5, "root": 1 / math.sqrt(2)}


class Texts:
    """Prints expressions.

    Attributes
    ----------
    names : dict
        What stands for a variable in the text, where it is not its name.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def __call__(self, e: Expr, outside: int = 0) -> str:
        """Return an expression as text that may stand below an operator of rank `outside`."""
        text, rank = self._ranked(e)
        return f"({text})" if rank < outside else text

    def _ranked(self, e: Expr) -> tuple[str, int]:
        if isinstance(e, Const):
            text = number(e)
            return text, _UNARY if text.startswith("-") else _CALL
        if isinstance(e, Var):
            if e.name in self.names:
                return self.names[e.name], _CALL
            return (e.name.replace(".", "_") if e.name in INDICES else e.name), _CALL
        if isinstance(e, Load):
            test = " != 0" if e.dtype == "bool" else ""
            return f"{self.memory(e.buffer)}[{self(e.index)}]{test}", 9 if test else _CALL
        assert isinstance(e, Apply)
        return self._apply(e)

    def memory(self, name: str) -> str:
        """Return the text of a buffer."""
        return self.names.get(name, name)

    def _apply(self, e: Apply) -> tuple[str, int]:
        if e.name in _SIGNS:
            sign, rank = _SIGNS[e.name]
            # Brackets keep the order of sums, which rounds as the source's does.
            left, right = self(e.args[0], rank), self(e.args[1], rank + 1)
            if _overflows(e):
                left = f"({CTYPES[e.dtype]}){self(e.args[0], _UNARY)}"
            return f"{left} {sign} {right}", rank
        if e.name == "negative":
            return f"-{self(e.args[0], _CALL)}", _UNARY
        if e.name == "logical_not":
            return f"!{self(e.args[0], _UNARY)}", _UNARY
        if e.name == "cast":
            return f"({CTYPES[e.dtype]}){self(e.args[0], _UNARY)}", _UNARY
        if e.name == "where":
            c, x, y = e.args
            return f"{self(c, 4)} ? {self(x, 4)} : {self(y, 3)}", 3
        if e.name in ("minimum", "maximum"):
            a, b = (self(x, 11) for x in e.args)
            sign = "<" if e.name == "minimum" else ">"
            if e.dtype in FLOATS:  # nan is passed on, as by NumPy
                return f"({a} {sign}= {b} || {a} != {a} ? {a} : {b})", _CALL
            return f"({a} {sign} {b} ? {a} : {b})", _CALL
        suffix = "f" if e.dtype == "float32" else ""
        if e.name in TEMPLATES:
            constants = {k: number(Const(e.dtype, v)) for k, v in _CONSTANTS.items()}
            text = TEMPLATES[e.name].format(self(e.args[0]), f=suffix, **constants)
            return f"({text})", _CALL
        args = ", ".join(self(a) for a in e.args)
        if e.dtype == "bool":
            return f"({e.name}({args}) != 0)", _CALL
        name = SPELLED.get(e.name, e.name)
        return f"{name}{suffix}({args})", _CALL


def _overflows(e: Apply) -> bool:
    """Whether an operation on int64 would be one on int, which C takes constants for."""
    if e.name == "left_shift":
        return _is_int(e.args[0])
    return e.name in ("multiply", "add", "subtract") and all(map(_is_int, e.args))


def _is_int(e: Expr) -> bool:
    """Whether C takes an int64 for an int, since its text consists of small constants."""
    if e.dtype != "int64":
        return False
    if isinstance(e, Const):
        return True
    if not isinstance(e, Apply):
        return False
    if e.name in ("multiply", "add", "subtract", "left_shift", "cast"):
        return False  # of which one operand is an int64 to C, or is made one
    args = e.args[1:] if e.name == "where" else e.args
    chooses = e.name in ("where", "minimum", "maximum", "negative", "right_shift")
    return (chooses or e.name in _SIGNS) and all(map(_is_int, args))


def number(e: Const) -> str:
    """Return a constant as text."""
    if e.dtype == "bool":
        return "1" if e.value else "0"
    if e.dtype not in FLOATS:
        suffix = {"uint32": "u", "uint64": "ull"}.get(e.dtype, "")
        if e.dtype == "int32" and e.value == -(1 << 31):
            return "(-2147483647 - 1)"
        return f"{e.value}{suffix}"
    if math.isnan(e.value):
        return f"({CTYPES[e.dtype]})NAN"
    if math.isinf(e.value):
        return f"{'-' if e.value < 0 else ''}({CTYPES[e.dtype]})INFINITY"
    if e.dtype == "float32":
        return f"{_digits(str(np.float32(e.value)))}f"
    return _digits(repr(float(e.value)))


def _digits(text: str) -> str:
    return text if any(c in text for c in ".en") else f"{text}.0"
