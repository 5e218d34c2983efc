"""C from loop IR: what compiled kernels compute, against an interpreter of loop IR."""

from __future__ import annotations

import re

import numpy as np
import pytest
from adarray_native import compiler
from loops import Compiled, both

from adarray.codegen import cprinter
from adarray.codegen.loopir import (
    Apply,
    Assign,
    Const,
    Fail,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Store,
    Total,
    Var,
    integer,
)
from adarray.codegen.schedule import Target
from adarray.errors import BackendError

try:
    compiler.find()
except BackendError:
    pytest.skip("there is no C compiler", allow_module_level=True)

I64 = "int64"
SIZES = (0, 1, 3, 15, 16, 17, 64, 100, 1025, 5000)


def fn(name, *args, dtype=None):
    return Apply(dtype or args[-1].dtype, name, args)


def var(name, dtype=I64):
    return Var(dtype, name)


def add(a, b):
    return fn("add", a, b)


def mul(a, b):
    return fn("multiply", a, b)


N, I, J = var("n"), var("i"), var("j")


def elementwise(expr, inputs, dtype, kind="vector"):
    """Return the kernel ``y[i] = expr(x0[i], ...)`` for inputs of the given dtypes."""
    loads = [Load(d, f"x{k}", I) for k, d in enumerate(inputs)]
    body = (Store("y", I, expr(*loads)),)
    buffers = (*(Param(f"x{k}", d) for k, d in enumerate(inputs)), Param("y", dtype, "out"))
    return Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, kind),))


def ulps(a, b):
    """Return the distance of two arrays of numbers in units of the last place."""
    a, b = np.asarray(a), np.asarray(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(np.float64) - b) / np.spacing(np.maximum(np.abs(a), np.abs(b)))
    return float(np.max(np.where(same, 0, off), initial=0))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-300, -1e300, 1e-45, np.inf, -np.inf, np.nan]


def numbers(rng, n, dtype):
    """Return numbers of a dtype, special ones among them."""
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.random(n) < 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        small = rng.integers(max(info.min, -7), 8, n)
        wide = rng.integers(info.min, info.max, n, dtype, endpoint=True)
        x = np.where(rng.random(n) < 0.7, small.astype(dtype), wide)
        x[: min(n, 3)] = np.array([info.min, info.max, 0], dtype)[:n]
        return x
    x = rng.normal(size=n) * np.exp(rng.normal(size=n))
    with np.errstate(all="ignore"):
        special = rng.choice(np.array(SPECIAL), n)
        return np.where(rng.random(n) < 0.2, special, x).astype(dtype)


FLOAT_EXACT = [
    "add", "subtract", "multiply", "divide", "negative", "absolute", "square", "reciprocal",
    "maximum", "minimum", "fmax", "fmin", "sign", "sqrt", "copysign", "floor", "ceil", "trunc",
    "rint", "fmod", "remainder", "floor_divide", "nextafter", "positive",
]  # fmt: skip
FLOAT_CLOSE = [
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin",
    "arccos", "arctan", "arctan2", "sinh", "cosh", "tanh", "arcsinh", "arccosh", "arctanh",
    "power", "hypot", "cbrt", "logaddexp", "logaddexp2",
]  # fmt: skip
COMPARISONS = ["greater", "greater_equal", "less", "less_equal", "equal", "not_equal"]
PREDICATES = ["isnan", "isinf", "isfinite", "signbit"]
INTEGER = [
    "add", "subtract", "multiply", "negative", "absolute", "square", "maximum", "minimum", "sign",
    "floor_divide", "remainder", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "invert",
    "left_shift", "right_shift",
]  # fmt: skip
BOOLEAN = ["logical_and", "logical_or", "logical_xor", "logical_not", "equal", "not_equal"]
INTEGERS = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)]


def arity(name):
    return getattr(np, name).nin


def many(functions, inputs, dtype):
    """Return a kernel that stores each function of its inputs in an output of its own."""
    loads = [Load(d, f"x{k}", I) for k, d in enumerate(inputs)]
    body = tuple(
        Store(f"y{k}", I, Apply(dtype, name, tuple(loads[: arity(name)])))
        for k, name in enumerate(functions)
    )
    buffers = tuple(Param(f"x{k}", d) for k, d in enumerate(inputs))
    buffers += tuple(Param(f"y{k}", dtype, "out") for k in range(len(functions)))
    return Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, "vector"),))


def check(functions, inputs, dtype, limit=0, target=None):
    rng = np.random.default_rng(0)
    kernel = many(functions, inputs, dtype)
    compiled = Compiled(kernel, target)
    for n in (1000, 37):
        xs = [numbers(rng, n, d) for d in inputs]
        ys = [np.zeros(n, dtype) for _ in functions]
        (_, expected), (code, got) = both(kernel, [*xs, *ys], (n,), compiled=compiled)
        assert code == 0
        for k, name in enumerate(functions):
            a, b = expected[len(inputs) + k], got[len(inputs) + k]
            if limit:
                assert ulps(a, b) <= limit, name
            else:
                np.testing.assert_array_equal(a, b, err_msg=name)
                if np.dtype(dtype).kind == "f" and name not in ("maximum", "minimum"):
                    good = ~np.isnan(a)
                    signs = np.signbit(a) == np.signbit(b)
                    assert (signs | ~good).all(), name


class TestFunctions:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_exact_functions_of_floats(self, dtype):
        check(FLOAT_EXACT, [dtype, dtype], dtype)

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("precise", [False, True])
    def test_mathematical_functions(self, dtype, precise):
        target = Target(libmvec=compiler.find().libmvec, precise=precise)
        check(FLOAT_CLOSE, [dtype, dtype], dtype, limit=4.5, target=target)

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_truth_values_of_floats(self, dtype):
        check(COMPARISONS + PREDICATES, [dtype, dtype], "bool")

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_integers_wrap(self, dtype):
        check(INTEGER, [dtype, dtype], dtype)
        check(COMPARISONS, [dtype, dtype], "bool")

    def test_powers_of_integers(self):
        kernel = elementwise(lambda x, y: fn("power", x, y), [I64, I64], I64)
        rng = np.random.default_rng(1)
        x, y = rng.integers(-9, 9, 50), rng.integers(0, 70, 50)
        (_, expected), (_, got) = both(kernel, [x, y, np.zeros(50, I64)], (50,))
        np.testing.assert_array_equal(expected[2], got[2])

    def test_bools(self):
        check(BOOLEAN, ["bool", "bool"], "bool")
        check(["maximum", "minimum", "add", "multiply", "less"], ["bool", "bool"], "bool")

    def test_numbers_as_truth_values(self):
        check(["logical_and", "logical_or", "logical_not"], ["float64", "float64"], "bool")

    @pytest.mark.parametrize(
        "pair",
        [
            ("int64", "uint64"),
            ("uint64", "int64"),
            ("int32", "float64"),
            ("float32", "int64"),
            ("int8", "uint32"),
        ],
    )
    def test_comparisons_of_two_dtypes(self, pair):
        check(COMPARISONS, list(pair), "bool")

    def test_where(self):
        kernel = elementwise(
            lambda c, x, y: fn("where", c, x, y), ["bool", "float32", "float32"], "float32"
        )
        rng = np.random.default_rng(2)
        arrays = [numbers(rng, 99, d) for d in ("bool", "float32", "float32", "float32")]
        (_, expected), (_, got) = both(kernel, arrays, (99,))
        np.testing.assert_array_equal(expected[3], got[3])

    @pytest.mark.parametrize(
        "source", ["bool", "int8", "uint16", "int32", "int64", "uint64", "float32", "float64"]
    )
    def test_casts(self, source):
        rng = np.random.default_rng(3)
        for dtype in (
            "bool",
            "int8",
            "uint8",
            "int16",
            "int32",
            "uint32",
            "int64",
            "uint64",
            "float32",
            "float64",
        ):
            kernel = elementwise(lambda x: Apply(dtype, "cast", (x,)), [source], dtype)  # noqa: B023
            x = numbers(rng, 333, source)
            if np.dtype(source).kind == "f" and np.dtype(dtype).kind in "iu":
                x = rng.uniform(-100, 100, 333).astype(source)  # C leaves out the rest
                x = np.abs(x) if np.dtype(dtype).kind == "u" else x
            (_, expected), (_, got) = both(kernel, [x, np.zeros(333, dtype)], (333,))
            np.testing.assert_array_equal(expected[1], got[1], err_msg=dtype)
