"""Python's `math` and `cmath` over ADArrays, and the conversions `float` and `complex`.

Plain numbers go to Python itself. For an ADArray, Python computes with the value
first, which settles domain errors and plain results; a traced one then goes
through NumPy. Results are traced Python numbers: their dtype yields to others.
"""

from __future__ import annotations

import cmath
import functools
import importlib
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from adarray.arrays.adarray import ADArray, value_of, weakened
from adarray.base.runtime import MODE
from adarray.core.escaping import note_number
from adarray.core.protocol import concrete, followed, plain
from adarray.core.refusals import leaves_graph


def _special(name: str) -> Callable[..., Any]:
    """Return a function of scipy.special, which has what NumPy lacks."""

    def call(x: Any) -> Any:
        try:
            module = importlib.import_module("adarray.scipy.special")
        except ImportError as error:
            raise leaves_graph(
                f"math.{name}", "install SciPy, whose functions give the derivative"
            ) from error
        return getattr(module, name)(x)

    return call


def _log(x: Any, base: Any = None) -> Any:
    return np.log(x) if base is None else np.log(x) / np.log(base)


def _dist(p: Any, q: Any) -> Any:
    squares = [(a - b) ** 2 for a, b in zip(p, q, strict=True)]
    return np.sqrt(sum(squares)) if plain(sum(squares)) else 0.0 * sum(squares)


def _hypot(*coordinates: Any) -> Any:
    return functools.reduce(np.hypot, coordinates) if coordinates else 0.0


def _prod(iterable: Any, *, start: Any = 1) -> Any:
    for x in iterable:
        start = start * x
    return start


def _sumprod(p: Any, q: Any) -> Any:
    return sum(a * b for a, b in zip(p, q, strict=True))


def _fmod(x: Any, y: Any) -> Any:
    return np.fmod(x, y)


def _modf(x: Any) -> tuple[Any, Any]:
    whole = np.trunc(value_of(x))
    return np.where(np.isinf(whole), 0.0, x - whole), whole


def _frexp(x: Any) -> tuple[Any, int]:
    exponent = math.frexp(plain(x))[1]
    return x * math.ldexp(1.0, -exponent), exponent


def _ldexp(x: Any, i: Any) -> Any:
    return x * math.ldexp(1.0, int(plain(i)))


def _remainder(x: Any, y: Any) -> Any:
    n = np.rint(value_of(x) / value_of(y))
    return x - n * np.where(n == 0, 0.0, y)  # an infinite y leaves x


def _fma(x: Any, y: Any, z: Any) -> Any:
    return x * y + z


def _copysign(x: Any, y: Any) -> Any:
    return np.copysign(x, value_of(y))


_SAME = ("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh",
         "degrees", "exp", "exp2", "expm1", "fabs", "log10", "log1p", "log2", "radians", "sin",
         "sinh", "sqrt", "tan", "tanh")  # fmt: skip
_NUMPY = {"acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh",
          "atan": "arctan", "atan2": "arctan2", "atanh": "arctanh"}  # fmt: skip
MATH: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, _NUMPY.get(n, n)) for n in _SAME if hasattr(math, n)},
    "copysign": _copysign, "dist": _dist, "erf": _special("erf"), "erfc": _special("erfc"),
    "fma": _fma, "fmod": _fmod, "frexp": _frexp, "fsum": sum, "gamma": _special("gamma"),
    "hypot": _hypot, "ldexp": _ldexp, "lgamma": _special("gammaln"), "log": _log, "modf": _modf,
    "pow": np.power, "prod": _prod, "remainder": _remainder, "sumprod": _sumprod,
}  # fmt: skip
# Integers and truth values: the derivative is zero or there is none.
_CONSTANT = ("ceil", "floor", "trunc", "isclose", "isfinite", "isinf", "isnan", "ulp", "nextafter",
             "comb", "perm", "factorial", "gcd", "lcm", "isqrt")  # fmt: skip
CMATH: dict[str, Callable[..., Any]] = {
    **{n: MATH[n] for n in ("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh",
                            "exp", "log", "log10", "sin", "sinh", "sqrt", "tan", "tanh")},
    "phase": np.angle,
    "polar": lambda z: (abs(z), np.angle(z)),
    "rect": lambda r, phi: r * np.cos(phi) + 1j * (r * np.sin(phi)),
}  # fmt: skip
_CMATH_CONSTANT = ("isclose", "isfinite", "isinf", "isnan")


def as_number(x: Any) -> Any:
    """Return a traced array of one element as a traced Python number."""
    if not isinstance(x, ADArray):
        return x
    if x.size != 1:
        raise TypeError("only 0-dimensional arrays can be converted to Python scalars")
    if x._x is not None and x._x.weak:
        return x
    x = x.reshape(()) if x.ndim else x
    return weakened(x if x.dtype.kind in "fc" else x.astype(float))


def _element(x: Any) -> Any:
    """Return an ADArray of one element as 0-dimensional, as Python's functions read it."""
    if isinstance(x, ADArray) and x.ndim and x.size == 1:
        return x.reshape(())
    return x


# Functions that raise no error for any float.
_NEVER_RAISE = frozenset(
    getattr(math, n)
    for n in ("asinh", "atan", "atan2", "cbrt", "copysign", "degrees", "dist", "erf", "erfc",
              "fabs", "hypot", "prod", "radians", "tanh")
    if hasattr(math, n)
)  # fmt: skip


def _raises(r: Any, args: list[Any]) -> Any:
    """Whether Python raises an error where NumPy gives `r`: nan of no nan, infinity of numbers."""
    r = value_of(r)
    no_number, infinite = np.isnan(r), np.isinf(r)
    parts = (y for x in args for y in (x if isinstance(x, (list, tuple)) else (x,)))
    for x in [value_of(y) for y in parts if not isinstance(y, int)]:
        no_number = np.logical_and(no_number, np.logical_not(np.isnan(x)))
        infinite = np.logical_and(infinite, np.isfinite(x))
    return np.logical_or(no_number, infinite)


def _over(
    original: Callable[..., Any], body: Callable[..., Any] | None, complex_too: bool = False
) -> Callable[..., Any]:
    """Return the function of `math` or `cmath` for arguments that may be traced."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if original is math.prod or original is math.fsum:
            args = (list(args[0]), *args[1:])  # read once, used twice
        if body is None or not (followed(args) or followed(kwargs)):
            return original(*plain(args), **plain(kwargs))
        mode = MODE.get()
        recorder = None if mode is None or original in _NEVER_RAISE else mode.recorder
        try:
            original(*concrete(args), **concrete(kwargs))  # for its errors
        except Exception as error:
            if recorder is not None:
                recorder.error = error
            raise
        args = tuple(map(_element, args))
        if complex_too:
            args = tuple(x + 0j if isinstance(x, ADArray) else x for x in args)
        r = body(*args, **kwargs)
        if recorder is not None and not isinstance(r, tuple):
            operands = [*args, *kwargs.values()]
            recorder.expect_not(lambda: _raises(r, operands))
        return tuple(map(_as_python, r)) if isinstance(r, tuple) else _as_python(r)

    return call


def _as_python(x: Any) -> Any:
    """Return a number of NumPy's, traced or not, as one of Python's."""
    return x.item() if isinstance(x, np.generic) else as_number(x)


def _float(*args: Any) -> Any:
    """``float(x)``: a traced array of one element becomes a traced Python number."""
    if len(args) == 1 and isinstance(args[0], ADArray) and followed(args[0]):
        if args[0].dtype.kind == "c":
            raise leaves_graph("float of a complex number", "take its real part, x.real")
        x = args[0]
        whole = x._x is not None and x._x.weak and x.dtype.kind not in "fc"  # a Python int
        return note_number(weakened(x.astype(float)) if whole else as_number(x))
    return float(*plain(args))


def _complex(*args: Any, **kwargs: Any) -> Any:
    """``complex(re, im)`` of traced numbers."""
    if not (followed(args) or followed(kwargs)):
        return complex(*plain(args), **plain(kwargs))
    real = args[0] if args else kwargs.get("real", 0.0)
    imag = args[1] if len(args) > 1 else kwargs.get("imag")
    return as_number(_element(real) + (0j if imag is None else 1j * _element(imag)))


NUMBERS: dict[type, Callable[..., Any]] = {float: _float, complex: _complex}


@functools.cache
def inside_math(module: types.ModuleType, name: str) -> Callable[..., Any] | None:
    """Return the function that replaces `name` of math or cmath inside; None if nothing does."""
    original = getattr(module, name, None)
    if original is None:
        return None
    if module is math and (name in MATH or name in _CONSTANT):
        return _over(original, MATH.get(name))
    if module is cmath and (name in CMATH or name in _CMATH_CONSTANT):
        polar = name in ("phase", "polar", "rect")
        return _over(original, CMATH.get(name), complex_too=name in CMATH and not polar)
    return None


@functools.cache
def math_table() -> dict[int, tuple[Any, Callable[..., Any], str]]:
    """Return ``id(original) -> (original, inside, path)`` for math and cmath."""
    table = {}
    for module in (math, cmath):
        for name in dir(module):
            inside = inside_math(module, name)
            if inside is not None:
                original = getattr(module, name)
                table[id(original)] = (original, inside, f"{module.__name__}:{name}")
    return table
