"""C from loop IR: what compiled kernels compute, against an interpreter of loop IR."""

from __future__ import annotations

import math
import re
import shutil
import subprocess

import numpy as np
import pytest
from adarray_native import compiler
from loops import Compiled, both

from adarray import use
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
from adarray.codegen.verify import verify
from adarray.errors import BackendError
from adarray.op import OPS
from adarray.runtime import current_mode

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


N, AT, J = var("n"), var("i"), var("j")


def elementwise(expr, inputs, dtype, kind="vector"):
    """Return the kernel ``y[i] = expr(x0[i], ...)`` for inputs of the given dtypes."""
    loads = [Load(d, f"x{k}", AT) for k, d in enumerate(inputs)]
    body = (Store("y", AT, expr(*loads)),)
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
    return 1 if name.startswith("erf") else getattr(np, name).nin


def many(functions, inputs, dtype):
    """Return a kernel that stores each function of its inputs in an output of its own."""
    loads = [Load(d, f"x{k}", AT) for k, d in enumerate(inputs)]
    body = tuple(
        Store(f"y{k}", AT, Apply(dtype, name, tuple(loads[: arity(name)])))
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

    @pytest.mark.parametrize("name", ["erf", "erfc"])
    def test_error_functions(self, name):
        """NumPy does not have them; the C library's scalar ones are the standard."""
        for dtype in ("float64", "float32"):
            kernel = many([name], [dtype], dtype)
            x = np.r_[np.linspace(-6, 6, 400), np.inf, -np.inf, np.nan, 0.0].astype(dtype)
            y = np.zeros_like(x)
            Compiled(kernel)([x, y], (x.size,))
            expected = np.array([getattr(math, name)(v) for v in x.tolist()], dtype)
            assert ulps(y, expected) <= 4

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


def folding(combine, dtype, value, inputs=None):
    """Return a kernel whose vector loop folds ``value(x[i], ...)`` into a total."""
    inputs = inputs or [dtype]
    loads = [Load(d, f"x{k}", AT) for k, d in enumerate(inputs)]
    body = (Fold("s", combine, value(*loads)),)
    buffers = (*(Param(f"x{k}", d) for k, d in enumerate(inputs)), Param("y", dtype, "out"))
    total = Total("s", dtype, combine, "y")
    return Kernel(buffers, ("n",), (total,), (For("i", integer(0), N, body, "vector"),))


def local_fold(combine, dtype, value, init):
    """Return the kernel ``y[j] = fold over i of value(x[j, i])``, in one pass of j each."""
    x = Load(dtype, "x", add(mul(J, N), AT))
    body = (
        Local("s", dtype, None, Const(dtype, init)),
        For("i", integer(0), N, (Fold("s", combine, value(x)),), "vector"),
        Store("y", J, Var(dtype, "s")),
    )
    loop = For("j", integer(0), var("m"), body, "parallel")
    return Kernel((Param("x", dtype), Param("y", dtype, "out")), ("m", "n"), (), (loop,))


class TestFolds:
    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("heavy", [False, True])
    @pytest.mark.parametrize("threads", [1, 3])
    def test_sums_of_any_length(self, dtype, heavy, threads):
        kernel = folding("add", dtype, (lambda x: fn("sin", x)) if heavy else lambda x: x)
        compiled = Compiled(kernel)
        rng = np.random.default_rng(4)
        for n in (*SIZES, 70000):
            x = rng.normal(size=n).astype(dtype)
            y = np.ones(1, dtype)
            assert compiled([x, y], (n,), threads) == 0
            terms = (np.sin(x) if heavy else x).astype(np.float64)
            bound = 12 * np.finfo(dtype).eps * np.abs(terms).sum()
            assert abs(y[0] - terms.sum()) <= bound

    @pytest.mark.parametrize("combine", ["maximum", "minimum"])
    @pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "int64", "uint8"])
    @pytest.mark.parametrize("heavy", [False, True])
    def test_extremes(self, combine, dtype, heavy):
        def value(x):
            if not heavy or np.dtype(dtype).kind != "f":
                return x
            return fn("arctan", x)

        kernel = local_fold(combine, dtype, value, 0)
        compiled = Compiled(kernel)
        rng = np.random.default_rng(5)
        for n in SIZES[:8]:
            x = numbers(rng, 6 * n, dtype).reshape(6, n)
            x[1:] = np.where(np.isnan(x[1:]), 1, x[1:])
            (_, expected), (_, got) = both(
                kernel, [x, np.zeros(6, dtype)], (6, n), compiled=compiled
            )
            if heavy:
                assert ulps(expected[1], got[1]) <= 4
            else:
                np.testing.assert_array_equal(expected[1], got[1])

    @pytest.mark.parametrize("combine", ["logical_and", "logical_or"])
    def test_truth_values(self, combine):
        kernel = folding(
            combine,
            "bool",
            lambda x: fn("greater", x, Const("float32", 0.5), dtype="bool"),
            ["float32"],
        )
        compiled = Compiled(kernel)
        for n in (0, 1, 20, 700):
            for fill in (0.0, 1.0):
                x = np.full(n, fill, "float32")
                if n > 5:
                    x[n - 2] = 0.7
                (_, expected), (_, got) = both(
                    kernel, [x, np.zeros(1, "bool")], (n,), 2, None, compiled
                )
                assert expected[1] == got[1]

    def test_integers_and_products(self):
        rng = np.random.default_rng(6)
        for dtype in ("int64", "int32", "uint16"):
            for combine in ("add", "multiply"):
                kernel = folding(combine, dtype, lambda x: x)
                x = rng.integers(0, 200, 1500).astype(dtype)
                (_, expected), (_, got) = both(kernel, [x, np.zeros(1, dtype)], (1500,), 2)
                np.testing.assert_array_equal(expected[1], got[1])

    def test_sums_keep_precision_over_many_terms(self):
        n = 1 << 22
        x = np.random.default_rng(7).random(n).astype("float32")
        compiled = Compiled(folding("add", "float32", lambda x: x))
        y = np.zeros(1, "float32")
        compiled([x, y], (n,), 2)
        exact = x.astype("float64").sum()
        assert abs(y[0] - exact) / exact < 3e-7

    def test_the_result_does_not_depend_on_padding(self):
        """Padded passes are computed but not folded, nor do they raise flags."""
        kernel = folding("add", "float64", lambda x: fn("log", x))
        compiled = Compiled(kernel)
        for n in range(1, 40):
            y = np.zeros(1)
            compiled([np.full(n, np.e), y], (n,))
            assert y[0] == pytest.approx(n, rel=1e-15)

    @pytest.mark.parametrize("heavy", [False, True])
    def test_column_sums(self, heavy):
        x = Load("float64", "x", add(mul(AT, var("m")), J))
        value = fn("exp", x) if heavy else mul(x, x)
        inner = For("j", integer(0), var("m"), (Fold("s", "add", value, J),), "vector")
        loop = For("i", integer(0), N, (inner,), "parallel")
        total = Total("s", "float64", "add", "y", var("m"))
        kernel = Kernel(
            (Param("x", "float64"), Param("y", "float64", "out")), ("n", "m"), (total,), (loop,)
        )
        compiled = Compiled(kernel)
        for n, m in ((50, 7), (3, 100), (1, 1), (0, 4)):
            a = np.random.default_rng(8).normal(size=(n, m))
            for threads in (1, 4):
                (_, expected), (_, got) = both(
                    kernel, [a, np.ones(m)], (n, m), threads, None, compiled
                )
                np.testing.assert_allclose(got[1], expected[1], rtol=1e-14, atol=1e-15)

    def test_a_fold_into_one_element_of_an_array(self):
        body = (
            Local("t", "float64", integer(4)),
            Store("t", integer(2), Const("float64", 1.0)),
            For(
                "i",
                integer(0),
                N,
                (Fold("t", "add", Load("float64", "x", AT), integer(2)),),
                "vector",
            ),
            Store("y", integer(0), Load("float64", "t", integer(2))),
        )
        kernel = Kernel((Param("x", "float64"), Param("y", "float64", "out")), ("n",), (), body)
        (_, expected), (_, got) = both(kernel, [np.arange(40.0), np.zeros(1)], (40,))
        assert got[1][0] == expected[1][0] == 781


HEAVY = pytest.mark.parametrize("heavy", [False, True])


def touched(x, heavy):
    return fn("exp", x) if heavy else add(x, Const(x.dtype, 1.0))


class TestMemory:
    @HEAVY
    def test_strides_and_gathers(self, heavy):
        f = "float64"
        strided = Load(f, "x", fn("subtract", var("o"), mul(AT, var("s"))))
        wrapped = Load(I64, "k", AT)
        gathered = Load(f, "x", wrapped)
        twice = Load(f, "x", mul(integer(2), AT))
        value = add(touched(strided, heavy), mul(gathered, twice))
        body = (
            Let("h", Load(f, "x", integer(3))),
            Store("y", mul(AT, var("t")), mul(value, Var(f, "h"))),
        )
        buffers = (Param("x", f), Param("k", I64), Param("y", f, "inout"))
        kernel = Kernel(
            buffers, ("n", "o", "s", "t"), (), (For("i", integer(0), N, body, "vector"),)
        )
        compiled = Compiled(kernel)
        rng = np.random.default_rng(9)
        for n in (1, 16, 21, 50):
            arrays = [rng.normal(size=200), rng.integers(0, 200, n), np.zeros(200)]
            (_, expected), (_, got) = both(kernel, arrays, (n, 199, 3, 4), 1, None, compiled)
            np.testing.assert_allclose(got[2], expected[2], rtol=1e-13, atol=1e-13)
            assert (got[2] != 0).sum() == n

    @HEAVY
    def test_in_place(self, heavy):
        x = Load("float32", "x", AT)
        body = (Store("x", AT, touched(x, heavy)), Store("y", AT, mul(x, x)))
        kernel = Kernel(
            (Param("x", "float32", "inout"), Param("y", "float32", "out")),
            ("n",),
            (),
            (For("i", integer(0), N, body, "vector"),),
        )
        compiled = Compiled(kernel)
        for n in SIZES[:8]:
            a = np.random.default_rng(10).normal(size=n).astype("float32")
            (_, expected), (_, got) = both(kernel, [a, np.zeros_like(a)], (n,), 1, None, compiled)
            assert ulps(expected[0], got[0]) <= 4
            assert ulps(expected[1], got[1]) <= 16

    @HEAVY
    def test_values_of_the_loop_variable(self, heavy):
        f = "float64"
        number = fn("cast", AT, dtype=f)
        left = fn("cast", fn("subtract", N, AT), dtype=f)
        kernel = Kernel(
            (Param("y", f, "out"),),
            ("n",),
            (),
            (
                For(
                    "i",
                    integer(0),
                    N,
                    (Store("y", AT, fn("divide", touched(number, heavy), left)),),
                    "vector",
                ),
            ),
        )
        (_, expected), (_, got) = both(kernel, [np.zeros(37)], (37,))
        assert ulps(expected[0], got[0]) <= 4

    @HEAVY
    def test_rows_through_scratch_memory(self, heavy):
        """A softmax of rows: extremes, sums and an array of one row."""
        f = "float32"
        m = var("m")
        x = Load(f, "x", add(mul(AT, m), J))
        shifted = fn("subtract", x, Var(f, "top"))
        inner = (
            Let("e", fn("exp", shifted) if heavy else mul(shifted, shifted)),
            Store("t", J, Var(f, "e")),
            Fold("s", "add", Var(f, "e")),
        )
        row = (
            Local("top", f, None, Const(f, -np.inf)),
            Local("t", f, m),
            For("j", integer(0), m, (Fold("top", "maximum", x),), "vector"),
            Local("s", f, None, Const(f, 0)),
            For("j", integer(0), m, inner, "vector"),
            For(
                "j",
                integer(0),
                m,
                (Store("y", add(mul(AT, m), J), fn("divide", Load(f, "t", J), Var(f, "s"))),),
                "vector",
            ),
            Fold("total", "add", Var(f, "s")),
        )
        loop = For("i", integer(0), N, row, "parallel")
        kernel = Kernel(
            (Param("x", f), Param("y", f, "out"), Param("z", f, "out")),
            ("n", "m"),
            (Total("total", f, "add", "z"),),
            (loop,),
        )
        compiled = Compiled(kernel)
        for n, m_ in ((1, 1), (5, 33), (9, 130), (0, 3)):
            a = np.random.default_rng(11).normal(size=(n, m_)).astype(f)
            for threads in (1, 2):
                (_, expected), (_, got) = both(
                    kernel, [a, np.zeros_like(a), np.zeros(1, f)], (n, m_), threads, None, compiled
                )
                np.testing.assert_allclose(got[1], expected[1], rtol=3e-6)
                np.testing.assert_allclose(got[2], expected[2], rtol=3e-6)


class TestStreaming:
    """Writing past the caches changes no value and touches nothing else."""

    @pytest.mark.parametrize("dtype", ["float64", "float32", "bool"])
    @pytest.mark.parametrize("form", ["plain", "lanes", "padded", "leaf"])
    def test_all_forms(self, form, dtype):
        f = "float32" if dtype == "bool" else dtype
        x = Load(f, "x", AT)
        value = fn("exp", x) if form in ("padded", "leaf") else mul(x, x)
        stored = compared(value) if dtype == "bool" else value
        body = [Store("y", add(AT, var("o")), stored)]
        if form in ("lanes", "leaf"):
            body.append(Fold("s", "add", value))
        loop = For("i", integer(0), N, tuple(body), "vector")
        if form == "leaf":
            loop = For("j", integer(0), integer(1), (loop,), "parallel")
        buffers = (Param("x", f), Param("y", dtype, "out", stream=True), Param("z", f, "out"))
        kernel = Kernel(buffers, ("n", "o"), (Total("s", f, "add", "z"),), (loop,))
        compiled = Compiled(kernel)
        assert "adarray_stream(" in compiled.source
        rng = np.random.default_rng(15)
        for n in (0, 5, 64, 700, 3001):
            for offset in (0, 3, 16):
                arrays = [rng.normal(size=n).astype(f), np.ones(n + 40, dtype), np.zeros(1, f)]
                (_, expected), (_, got) = both(kernel, arrays, (n, offset), 2, None, compiled)
                if dtype == "bool" or form in ("plain", "lanes"):
                    np.testing.assert_array_equal(got[1], expected[1])
                else:
                    assert ulps(got[1], expected[1]) <= 4
                np.testing.assert_allclose(got[2], expected[2], rtol=1e-5)

    def test_what_is_read_again_is_not_streamed(self):
        x, y = Load("float64", "x", AT), Load("float64", "y", AT)
        body = (Store("y", AT, mul(x, x)), Store("z", AT, add(y, x)))
        buffers = (Param("x", "float64"), *(Param(b, "float64", "out", True) for b in "yz"))
        loop = For("i", integer(0), N, body, "vector")
        compiled = Compiled(Kernel(buffers, ("n",), (), (loop,)))
        assert compiled.source.count("adarray_stream(") == 1


class TestStatements:
    def test_scalars_that_change(self):
        """A name bound to a scalar keeps the value that it had."""
        f = "float64"
        s, a = Var(f, "s"), Var(f, "a")
        loop = (
            Let("a", s),
            Assign("s", mul(s, Const(f, 2.0))),
            Let("b", add(s, a)),
            If(
                fn("greater", Var(f, "b"), Const(f, 10.0), dtype="bool"),
                (Assign("s", fn("subtract", s, Const(f, 7.0))),),
                (Fold("s", "add", Const(f, 0.5)),),
            ),
            Store("y", AT, add(add(s, a), Var(f, "b"))),
        )
        body = (Local("s", f, None, Const(f, 1.0)), For("i", integer(0), N, loop))
        kernel = Kernel((Param("y", f, "out"),), ("n",), (), body)
        (_, expected), (_, got) = both(kernel, [np.zeros(20)], (20,))
        np.testing.assert_array_equal(expected[0], got[0])

    def test_loads_are_repeated_after_stores(self):
        f = "float64"
        x = Load(f, "x", integer(0))
        body = (
            Let("a", add(x, x)),
            For(
                "i", integer(0), N, (Store("x", integer(0), add(x, Var(f, "a"))), Store("y", AT, x))
            ),
            Store("y", integer(0), x),
            Store("x", integer(1), Const(f, 5.0)),
            Store("y", integer(1), add(x, Load(f, "x", integer(1)))),
        )
        kernel = Kernel((Param("x", f, "inout"), Param("y", f, "inout")), ("n",), (), body)
        (_, expected), (_, got) = both(kernel, [np.ones(2), np.zeros(6)], (6,))
        np.testing.assert_array_equal(expected[1], got[1])

    def test_failures_are_reported_in_the_order_of_threads(self):
        x = Load(I64, "x", AT)
        bad = fn("less", x, integer(0), dtype="bool")
        worse = fn("greater", x, integer(100), dtype="bool")
        body = (If(bad, (Fail(3),)), If(worse, (Fail(4),)))
        kernel = Kernel(
            (Param("x", I64),), ("n",), (), (For("i", integer(0), N, body, "parallel"),)
        )
        compiled = Compiled(kernel)
        for threads in (1, 2):
            assert compiled([np.arange(50)], (50,), threads) == 0
            assert compiled([np.arange(50) - 1], (50,), threads) == 3
            assert compiled([np.arange(52, 102)], (50,), threads) == 4
            assert compiled([np.r_[np.zeros(49, I64), 101]], (50,), threads) == 4
            assert compiled([np.r_[-1, np.zeros(48, I64), 101]], (50,), threads) == 3

    def test_statements_around_the_parallel_loop(self):
        f = "float64"
        before = (
            Let("last", fn("subtract", N, integer(1))),
            Local("t", f, integer(3)),
            For(
                "k", integer(0), integer(3), (Store("t", var("k"), fn("cast", var("k"), dtype=f)),)
            ),
        )
        weight = Load(f, "t", fn("remainder", AT, integer(3)))
        loop = For(
            "i", integer(0), N, (Fold("s", "add", mul(Load(f, "x", AT), weight)),), "parallel"
        )
        after = (
            Store("y", integer(1), fn("sqrt", Load(f, "y", integer(0)))),
            Store("y", integer(2), Load(f, "x", var("last"))),
        )
        kernel = Kernel(
            (Param("x", f), Param("y", f, "out")),
            ("n",),
            (Total("s", f, "add", "y"),),
            (*before, loop, *after),
        )
        for threads in (1, 3):
            (_, expected), (_, got) = both(kernel, [np.arange(50.0), np.zeros(3)], (50,), threads)
            np.testing.assert_allclose(got[1], expected[1], rtol=1e-15)

    def test_a_total_of_products_is_merged(self):
        kernel = folding("multiply", "float64", lambda x: x)
        x = np.random.default_rng(12).uniform(0.9, 1.1, 9000)
        (_, expected), (_, got) = both(kernel, [x, np.zeros(1)], (9000,), 2)
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-12)


class TestText:
    def test_names_do_not_matter(self):
        one = elementwise(lambda x: fn("sin", x), ["float64"], "float64")
        body = one.body[0].body
        renamed = For(
            "k",
            integer(0),
            var("count"),
            (Store("r", var("k"), fn("sin", Load("float64", "a", var("k")))),),
            "vector",
        )
        two = Kernel(
            (Param("a", "float64"), Param("r", "float64", "out")), ("count",), (), (renamed,)
        )
        assert body != two.body[0].body
        assert cprinter.source(one, Target()) == cprinter.source(two, Target())

    def test_the_name_is_the_hash_of_the_text(self):
        text = cprinter.source(elementwise(lambda x: x, ["bool"], "bool"), Target())
        name = cprinter.name(text)
        assert re.fullmatch(r"adk_[0-9a-f]{24}", name)
        assert f"int64_t {name}_scratch(const int64_t *n)" in text
        with pytest.raises(ValueError, match="no text of"):
            cprinter.name("int main(void)")

    def test_equal_values_are_named_once(self):
        x = Load("float64", "x0", AT)
        kernel = elementwise(
            lambda x: add(fn("exp", x), mul(fn("exp", x), x)), ["float64"], "float64"
        )
        text = cprinter.source(kernel, Target())
        assert text.count("exp(") == 1
        assert x.index == AT

    def test_deep_expressions(self):
        x = Load("float64", "x0", AT)
        e = x
        for _ in range(5000):
            e = add(e, x)
        text = cprinter.source(elementwise(lambda _: e, ["float64"], "float64"), Target())
        assert text.count(" + ") >= 5000

    @pytest.mark.parametrize("passes", [1, 2, 3, 70])
    def test_short_loops_give_the_same_bits(self, passes):
        """Scalar code calls the vector versions of functions, too."""
        f = "float64"
        start = mul(J, integer(passes))
        value = fn("exp", Load(f, "x", AT))
        short = For("i", start, add(start, integer(passes)), (Store("y", AT, value),), "vector")
        outer = For("j", integer(0), N, (short,), "parallel")
        buffers = (Param("x", f), Param("y", f, "out"))
        x = np.random.default_rng(14).normal(size=140 * passes)
        y, whole = np.zeros_like(x), np.zeros_like(x)
        Compiled(Kernel(buffers, ("n",), (), (outer,)))([x, y], (140,))
        Compiled(elementwise(lambda a: fn("exp", a), [f], f))([x, whole], (x.size,))
        np.testing.assert_array_equal(y, whole)


OTHER = {"float64": "float32", "float32": "float64"}
BODIES = {
    "store": lambda x, y: (Store("y", AT, mul(fn("exp", x), x)),),
    "fold": lambda x, y: (Fold("s", "add", fn("exp", x)),),
    "both": lambda x, y: (Store("y", AT, fn("exp", x)), Fold("s", "add", mul(fn("exp", x), x))),
    "where": lambda x, y: (
        Store("y", AT, fn("where", compared(x), mul(fn("exp", x), x), Const(x.dtype, 1.0))),
    ),
    "where both": lambda x, y: (
        Fold("s", "add", fn("where", compared(x), fn("exp", x), mul(fn("sin", x), x))),
    ),
    "compared": lambda x, y: (
        Store("y", AT, fn("cast", compared(fn("exp", x)), dtype=x.dtype)),
        Fold("s", "add", fn("cast", fn("logical_not", compared(fn("sin", x))), dtype=x.dtype)),
    ),
    "nested where": lambda x, y: (
        Let("c", fn("logical_and", compared(x), compared(fn("exp", x)))),
        Let("w", fn("where", Var("bool", "c"), fn("exp", mul(x, x)), fn("sin", x))),
        Store("y", AT, fn("where", compared(Var(x.dtype, "w")), Var(x.dtype, "w"), fn("cos", x))),
    ),
    "extremes": lambda x, y: (
        Store("y", AT, fn("maximum", fn("exp", x), Const(x.dtype, 1.0))),
        Fold("s", "add", fn("minimum", fn("sin", x), fn("cos", x))),
    ),
    "position": lambda x, y: (
        Let("hit", fn("equal", AT, Load("int64", "k", integer(0)), dtype="bool")),
        Store("y", AT, fn("where", Var("bool", "hit"), fn("exp", x), x)),
    ),
    "remainder": lambda x, y: (
        Store("y", AT, fn("exp", fn("negative", fn("remainder", x, Const(x.dtype, 3.0))))),
        Fold("s", "add", fn("nextafter", fn("sin", x), fn("fmod", x, fn("cos", x)))),
    ),
    "integers": lambda x, y: (
        Let("q", fn("floor_divide", Load("int64", "k", AT), add(AT, integer(2)))),
        Store("y", AT, mul(fn("exp", x), fn("cast", Var("int64", "q"), dtype=x.dtype))),
    ),
    "two dtypes": lambda x, y: (
        Let("w", fn("cast", fn("exp", x), dtype=OTHER[x.dtype])),
        Store("y", AT, fn("cast", fn("sin", Var(OTHER[x.dtype], "w")), dtype=x.dtype)),
    ),
}  # fmt: skip


def compared(x):
    return fn("greater", x, Const(x.dtype, 0.5), dtype="bool")


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
@pytest.mark.skipif(compiler.find().libmvec < 2, reason="there are no vector functions")
class TestVectors:
    """Functions in vector loops are called in their vector versions alone."""

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("name", BODIES)
    def test_no_scalar_call_is_left(self, name, dtype, tmp_path):
        body = BODIES[name](Load(dtype, "x", AT), None)
        buffers = (
            Param("x", dtype),
            Param("y", dtype, "out"),
            Param("z", dtype, "out"),
            Param("k", "int64"),
        )
        total = Total("s", dtype, "add", "z")
        kernel = verify(
            Kernel(buffers, ("n",), (total,), (For("i", integer(0), N, body, "vector"),))
        )
        found = compiler.find()
        source, target = tmp_path / "kernel.c", tmp_path / "kernel.so"
        source.write_text('#include "kernel.h"\n' + cprinter.source(kernel, Target()))
        for level in ("avx512", "avx2"):
            compiler.compile_units(
                found, found.flags(level, limited=level == "avx2"), [source], [target]
            )
            symbols = subprocess.run(
                ["nm", "-D", "-u", str(target)], capture_output=True, text=True, check=True
            )
            called = {line.split()[-1].split("@")[0] for line in symbols.stdout.splitlines()}
            assert any(s.startswith("_ZGV") for s in called)
            assert not called & {f"{f}{e}" for f in ("exp", "sin", "cos") for e in ("", "f")}


class TestEagerAgreement:
    """Values of vector loops are those of the eager kernels, to the last bit."""

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    def test_bits(self, dtype):
        names = ["exp", "log", "sin", "cos", "tanh", "log1p", "expm1", "sqrt", "arctan", "maximum"]
        kernel = many(names, [dtype, dtype], dtype)
        rng = np.random.default_rng(13)
        x, y = rng.gamma(2.0, size=(2, 70001)).astype(dtype)
        outs = [np.zeros_like(x) for _ in names]
        Compiled(kernel)([x, y, *outs], (len(x),), 2)
        with use("openmp", threads=2), np.errstate(all="ignore"):
            engine = current_mode().engine
            for name, out in zip(names, outs, strict=True):
                compiled = engine._kernel(OPS[name], -1, None, dtype)
                args = (x, y)[: arity(name)]
                eager = engine._compute(OPS[name], -1, None, args)
                assert compiled is not None
                np.testing.assert_array_equal(out, eager, err_msg=name)
