"""Scalar expressions as C: the exact text."""

from __future__ import annotations

import numpy as np
import pytest

from adarray.base import scalar
from adarray.compiler.scalars.expressions import C, Printer, UnprintableError
from adarray.compiler.scalars.rewrite import simplify, substitute

x, y, c = scalar.var("x"), scalar.var("y"), scalar.var("c")

GOLDEN = [
    (x * 2 + 1, ["const double t0 = x * 2.0;", "const double t1 = t0 + 1.0;"], "t1"),
    (np.sin(x), ["const double t0 = sin(x);"], "t0"),
    (x / 0.1, ["const double t0 = x / 0.1;"], "t0"),
    (x - -0.5, ["const double t0 = x - (-0.5);"], "t0"),
    (
        np.where(x > y, x, 0.0),
        ["const _Bool t0 = x > y;", "const double t1 = t0 ? x : 0.0;"],
        "t1",
    ),
    # A truth value that is used as a number becomes 1 and 0.
    (
        x + (x == 0),
        ["const _Bool t0 = x == 0.0;", "const double t1 = x + (t0 ? 1.0 : 0.0);"],
        "t1",
    ),
    (x > 0, ["const _Bool t0 = x > 0.0;"], "(t0 ? 1.0 : 0.0)"),
    # A number that is used as a truth value is true unless 0.
    (np.where(x, y, 1.0), ["const double t0 = (x != 0.0) ? y : 1.0;"], "t0"),
    (
        np.signbit(x) == np.signbit(y),
        [
            "const _Bool t0 = ADARRAY_SIGNBIT_f64(x);",
            "const _Bool t1 = ADARRAY_SIGNBIT_f64(y);",
            "const _Bool t2 = t0 == t1;",
        ],
        "(t2 ? 1.0 : 0.0)",
    ),
    (
        (x > 0) & ~np.isnan(y),
        [
            "const _Bool t0 = x > 0.0;",
            "const _Bool t1 = y != y;",
            "const _Bool t2 = !t1;",
            "const _Bool t3 = t0 & t2;",
        ],
        "(t3 ? 1.0 : 0.0)",
    ),
    (
        np.maximum(x, np.inf),
        ["const double t0 = adarray_maximum_f64(x, (double)ADARRAY_INF);"],
        "t0",
    ),
    (
        np.minimum(x, -np.inf),
        ["const double t0 = adarray_minimum_f64(x, -(double)ADARRAY_INF);"],
        "t0",
    ),
    (x * -0.0, ["const double t0 = x * (-0.0);"], "t0"),
    # An expression that occurs twice is computed once.
    (
        np.exp(x) * np.exp(x),
        ["const double t0 = exp(x);", "const double t1 = t0 * t0;"],
        "t1",
    ),
    (np.where(c, x, y), ["const double t0 = c ? x : y;"], "t0"),
]


@pytest.mark.parametrize(("expr", "lines", "value"), GOLDEN, ids=lambda v: str(v)[:40])
def test_double(expr: scalar.ScalarExpr, lines: list[str], value: str) -> None:
    truths = frozenset({"c"})
    assert Printer("float64", C, truths).body(expr) == (lines, value)


def test_float_stays_float() -> None:
    expr = np.hypot(np.sin(x) * 0.1, np.maximum(y, 3)) + 1e-20
    assert Printer("float32").body(expr) == (
        [
            "const float t0 = sinf(x);",
            "const float t1 = t0 * 0.1f;",
            "const float t2 = adarray_maximum_f32(y, 3.0f);",
            "const float t3 = hypotf(t1, t2);",
            "const float t4 = t3 + 1e-20f;",
        ],
        "t4",
    )


@pytest.mark.parametrize("value", [0.1, -2.5e-7, 1 / 3, 1e300, 5e-324, 123456789, -0.0])
def test_literals_are_the_number_itself(value: float) -> None:
    printed = Printer("float64").literal(value).strip("()")
    assert float(printed) == value
    assert np.signbit(float(printed)) == np.signbit(value)


@pytest.mark.parametrize("value", [0.1, -2.5e-7, 1 / 3, 1e-45, 16777217])
def test_float_literals_are_rounded_once(value: float) -> None:
    printed = Printer("float32").literal(value).strip("()")
    assert printed.endswith("f")
    assert np.float32(float(printed[:-1])) == np.float32(value)


def test_unknown_function_is_named() -> None:
    with pytest.raises(UnprintableError, match="no C text is known for the function 'gcd'"):
        Printer("float64").body(np.gcd(x, y))


@pytest.mark.parametrize(
    ("exponent", "expected"),
    [
        (0.5, "sqrt(x)"),
        (1, "x"),
        (2, "multiply(x, x)"),
        (3, "multiply(multiply(x, x), x)"),
        (4, "multiply(multiply(x, x), multiply(x, x))"),
        (-1, "reciprocal(x)"),
        (-2, "power(x, -2)"),  # 1/(x*x) would be 0 where x**-2 is not
        (5, "power(x, 5)"),
        (0, "power(x, 0)"),
    ],
)
def test_small_powers(exponent: float, expected: str) -> None:
    assert repr(simplify(x**exponent)) == expected


def test_substitution_computes_what_is_constant() -> None:
    expr = x * (y * x ** (y - (y != 0)))
    assert repr(substitute(expr, {"y": 2})) == "multiply(x, multiply(2, x))"
