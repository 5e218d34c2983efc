"""C from loop IR: scalar functions, and the text itself."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from adarray_backends.cpu import compiler
from loop_kernels import (
    AT,
    I64,
    INTEGERS,
    J,
    N,
    add,
    elementwise,
    fn,
    many,
    mul,
    numbers,
    ulps,
    var,
)
from loops import Compiled, both

from adarray.compiler.ir.loopir import Apply, For, Kernel, Load, Param, Store, integer
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.print_c import printer as cprinter
from adarray.errors import BackendError

try:
    compiler.find()
except BackendError:
    pytest.skip("there is no C compiler", allow_module_level=True)

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
        target = CpuTarget(libmvec=compiler.find().libmvec, precise=precise)
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

    @pytest.mark.slow
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
        "source",
        ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"],
    )
    def test_casts(self, source):
        """From anything to anything; C leaves out what does not fit into an integer."""
        dtypes = ["bool", "float16", "float32", "float64", *INTEGERS]
        inputs = {d: "x" if np.dtype(d).kind in "bf" else f"x{np.dtype(d).kind}" for d in dtypes}
        body = tuple(
            Store(f"y{d}", AT, Apply(d, "cast", (Load(source, inputs[d], AT),))) for d in dtypes
        )
        buffers = tuple(Param(name, source) for name in ("x", "xi", "xu"))
        buffers += tuple(Param(f"y{d}", d, "out") for d in dtypes)
        kernel = Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, "vector"),))
        rng = np.random.default_rng(3)
        x = numbers(rng, 333, source)
        small = rng.uniform(-100, 100, 333).astype(source) if np.dtype(source).kind == "f" else x
        positive = np.abs(small) if np.dtype(source).kind == "f" else x
        arrays = [x, small, positive, *(np.zeros(333, d) for d in dtypes)]
        (_, expected), (_, got) = both(kernel, arrays, (333,))
        for d, a, b in zip(dtypes, expected[3:], got[3:], strict=True):
            np.testing.assert_array_equal(a, b, err_msg=d)


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
        assert cprinter.source(one, CpuTarget()) == cprinter.source(two, CpuTarget())

    def test_the_name_is_the_hash_of_the_text(self):
        text = cprinter.source(elementwise(lambda x: x, ["bool"], "bool"), CpuTarget())
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
        text = cprinter.source(kernel, CpuTarget())
        assert text.count("exp(") == 1
        assert x.index == AT

    def test_deep_expressions(self):
        x = Load("float64", "x0", AT)
        e = x
        for _ in range(5000):
            e = add(e, x)
        text = cprinter.source(elementwise(lambda _: e, ["float64"], "float64"), CpuTarget())
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
