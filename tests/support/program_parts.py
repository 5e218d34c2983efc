"""Expressions that random programs are made of, with the magnitudes of their results.

For `random_programs`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

# {a}: operand; the largest magnitude of the result for one of m; whether all functions in it
# round correctly, so that every library gives the same bits. None: jit writes it otherwise.
UNARY: tuple[tuple[str, Callable[[float], float], bool | None], ...] = (
    ("{a} * 0.5", lambda m: 0.5 * m, True),
    ("np.sin({a})", lambda m: 1.0, False),
    ("{a} + 0.25", lambda m: m + 0.25, True),
    ("np.tanh({a})", lambda m: 1.0, False),
    ("np.exp(-{a} * {a})", lambda m: 1.0, False),
    ("1.0 - {a}", lambda m: m + 1, True),
    ("{a} ** 2", lambda m: m * m, True),
    ("-{a}", lambda m: m, True),
    ("np.abs({a})", lambda m: m, True),
    ("np.sqrt({a} * {a} + 0.5)", lambda m: m + 1, True),
    ("np.log(1.0 + {a} * {a})", lambda m: 2 * m + 1, False),
    ("1 / (2 + np.square({a}))", lambda m: 0.5, True),
    ("np.maximum({a}, 0.0)", lambda m: m, True),
    ("np.clip({a}, -0.9, 1.1)", lambda m: 1.1, True),
    ("np.where({a} > 0.2, {a}, 0.1 * {a})", lambda m: m, True),
    ("np.cos(2 * {a})", lambda m: 1.0, False),
    ("np.log1p(np.abs({a}))", lambda m: m, False),
    ("np.exp(0.1 * {a})", lambda m: math.exp(0.1 * m), False),
    ("np.expm1(0.05 * {a})", lambda m: math.exp(0.05 * m), False),
    ("np.arctan({a})", lambda m: 1.6, False),
    ("np.arcsinh({a})", lambda m: m, False),
    ("np.logaddexp({a}, 0.3)", lambda m: m + 1.1, None),
    ("np.power(np.abs({a}) + 0.5, 1.3)", lambda m: (m + 0.5) ** 1.3, False),
    ("{a} ** 3", lambda m: m**3, False),
    ("np.floor({a}) * 0.1 + {a}", lambda m: 1.1 * m + 0.1, True),
    ("np.sign({a}) * {a}", lambda m: m, True),
    ("{a} * ({a} < 0.4)", lambda m: m, True),
    ("np.hypot({a}, 1.5)", lambda m: m + 1.5, False),
    ("np.arctan2({a}, 2.0)", lambda m: 1.6, False),
    ("np.minimum({a}, 0.7) % 3.0", lambda m: 3.0, True),
)
BINARY: tuple[tuple[str, Callable[[float, float], float], bool], ...] = (
    ("{a} + {b}", lambda m, n: m + n, True),
    ("{a} * {b}", lambda m, n: m * n, True),
    ("{a} - {b}", lambda m, n: m + n, True),
    ("{a} / (1.5 + {b} * {b})", lambda m, n: m, True),
    ("np.maximum({a}, {b})", max, True),
    ("np.where({a} > {b}, {a}, 0.5 * {b})", max, True),
    ("np.minimum({a}, {b} + 0.1)", lambda m, n: max(m, n + 0.1), True),
    ("np.hypot({a}, np.abs({b}) + 1.0)", lambda m, n: m + n + 1, False),
    ("np.arctan2({a}, 1.5 + {b} ** 2)", lambda m, n: 1.6, False),
    ("np.logaddexp({a}, {b})", lambda m, n: m + n + 1, False),
    ("np.power(np.abs({a}) + 0.5, np.tanh({b}))", lambda m, n: m + 2, False),
    ("np.exp(-np.abs({a} - {b}))", lambda m, n: 1.0, False),
    ("np.fmax({a}, 0.3 * {b})", max, True),
    ("np.multiply({a}, np.sin({b}))", lambda m, n: m, False),
)
# Folds over axes; {n}: how many elements go into one of the result.
REDUCTIONS: tuple[tuple[str, Callable[[float, int], float], bool, bool], ...] = (
    # expression, magnitude, whether it needs elements, whether it rounds nothing
    ("np.sum({a}{axis})", lambda m, n: m * n, False, False),
    ("np.mean({a}{axis})", lambda m, n: m, True, False),
    ("np.max({a}{axis})", lambda m, n: m, True, True),
    ("{a}.sum({axis_only})", lambda m, n: m * n, False, False),
    ("np.min({a}{axis})", lambda m, n: m, True, True),
    ("np.sqrt(np.var({a}{axis}) + 0.1)", lambda m, n: m + 1, True, False),
    ("np.log(np.sum(np.exp(0.1 * {a}){axis}))", lambda m, n: m + math.log(n + 1), True, False),
    ("np.prod(np.tanh({a}) + 0.1{axis})", lambda m, n: 1.1**n, False, False),
    ("np.sum({a} * {a}{axis})", lambda m, n: m * m * n, False, False),
)
