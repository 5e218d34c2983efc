"""C from loop IR: folds, memory and statements, against an interpreter of loop IR."""

from __future__ import annotations

import numpy as np
import pytest
from adarray_backends.cpu import compiler
from loop_kernels import (
    AT,
    I64,
    SIZES,
    J,
    N,
    add,
    compared,
    fn,
    mul,
    numbers,
    touched,
    ulps,
    var,
)
from loops import Compiled, both

from adarray.compiler.ir.loopir import (
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
from adarray.errors import BackendError

try:
    compiler.find()
except BackendError:
    pytest.skip("there is no C compiler", allow_module_level=True)


def test_a_fold_says_what_the_element_was():
    body = (
        Local("before", "int64"),
        Fold("y", "add", integer(2), Load("int64", "x", AT), "before"),
        Store("z", AT, Var("int64", "before")),
    )
    buffers = Param("x", "int64"), Param("y", "int64", "inout"), Param("z", "int64", "out")
    kernel = Kernel(buffers, ("n",), (), (For("i", integer(0), N, body, "serial"),))
    arrays = [np.array([2, 0, 2, 2, 1]), np.array([5, 6, 7]), np.zeros(5, np.int64)]
    (_, expected), (_, got) = both(kernel, arrays, (5,))
    np.testing.assert_array_equal(got[1], [7, 8, 13])
    np.testing.assert_array_equal(got[2], [7, 5, 9, 11, 6])
    np.testing.assert_array_equal(got[2], expected[2])


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


def rows_total(dtype, value):
    """Return the kernel ``y[0] = sum of value(x[j, i])``, by way of a sum for each row."""
    x = Load(dtype, "x", add(mul(J, N), AT))
    body = (
        Local("s", dtype, None, Const(dtype, 0.0)),
        For("i", integer(0), N, (Fold("s", "add", value(x)),), "vector"),
        Fold("t", "add", Var(dtype, "s")),
    )
    loop = For("j", integer(0), var("m"), body, "parallel")
    total = Total("t", dtype, "add", "y")
    return Kernel((Param("x", dtype), Param("y", dtype, "out")), ("m", "n"), (total,), (loop,))


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

    @pytest.mark.parametrize("dtype", ["float64", "float32"])
    @pytest.mark.parametrize("heavy", [False, True])
    def test_totals_of_short_and_long_rows(self, dtype, heavy):
        """Lanes go on from row to row; the result of a thread is exact where its terms are."""
        kernel = rows_total(dtype, (lambda x: fn("exp", x)) if heavy else lambda x: x)
        compiled = Compiled(kernel)
        assert "adarray_add_lanes" in compiled.source
        rng = np.random.default_rng(8)
        for m, n in ((1, 1), (0, 5), (7, 0), (300, 3), (90, 33), (3, 1025), (2, 5000)):
            x = np.zeros((m, n), dtype) if heavy else rng.integers(-9, 10, (m, n)).astype(dtype)
            for threads in (1, 3):
                y = np.ones(1, dtype)
                assert compiled([x, y], (m, n), threads) == 0
                assert y[0] == (m * n if heavy else x.sum(dtype=np.float64))

    def test_totals_of_many_short_rows_are_precise(self):
        compiled = Compiled(rows_total("float32", lambda x: x))
        x = np.random.default_rng(9).random((200_000, 5)).astype(np.float32)
        y = np.ones(1, np.float32)
        assert compiled([x, y], x.shape, 2) == 0
        assert abs(y[0] - x.sum(dtype=np.float64)) <= 2e-6 * x.size

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

    @pytest.mark.slow
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
