"""What the schedule decides, canonical names, and affine indices."""

from __future__ import annotations

import pytest

from adarray.compiler.ir.affine import at, plus, slope, times
from adarray.compiler.ir.loopir import (
    Apply,
    Assign,
    Const,
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
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import verify
from adarray.compiler.schedule.carried import added_at_once
from adarray.compiler.schedule.vectors import CHUNK, LEAF, canonical, schedule, shared

F = "float64"
K, N, M = Var("int64", "i"), Var("int64", "n"), Var("int64", "m")
X = Load(F, "x", K)
BUFFERS = (Param("x", F), Param("y", F, "out"))
TOTAL = Total("s", F, "add", "y")


def fn(name, *args, dtype=F):
    return Apply(dtype, name, args)


def kernel(*body, totals=(), buffers=BUFFERS):
    return Kernel(buffers, ("n", "m"), totals, body)


def loop(*body, kind="vector"):
    return For("i", integer(0), N, body, kind)


def form(k, **options):
    (chosen,) = schedule(verify(k), CpuTarget(**options)).loops.values()
    return chosen


class TestForms:
    def test_simple_maps_are_left_to_the_compiler(self):
        assert form(kernel(loop(Store("y", K, fn("sqrt", X))))).form == "plain"

    def test_vector_functions_make_blocks(self):
        k = kernel(loop(Store("y", K, fn("sin", X))))
        assert form(k).form == "padded"
        assert form(k, precise=True).form == "plain"
        assert form(k, libmvec=0).form == "plain"
        tanh = kernel(loop(Store("y", K, fn("arctan", X))))
        assert form(tanh, libmvec=1).form == "plain"
        assert form(tanh, libmvec=2).form == "padded"

    @pytest.mark.parametrize(("bytes_", "lanes"), [(64, 32), (32, 16), (16, 8)])
    def test_sums_have_lanes(self, bytes_, lanes):
        chosen = form(kernel(loop(Fold("s", "add", X)), totals=(TOTAL,)), vector_bytes=bytes_)
        assert chosen[:3] == ("lanes", lanes, 0)  # chunks for threads are leaves already

    @pytest.mark.parametrize(
        ("stop", "expected"),
        [
            (N, ("lanes", 32, LEAF)),
            (integer(900), ("lanes", 32, 0)),
            (fn("minimum", plus(M, integer(64)), N, dtype="int64"), ("padded", 8, 0)),
            (fn("minimum", N, plus(integer(64), M), dtype="int64"), ("padded", 8, 0)),
            (Var("int64", "end"), ("padded", 8, 0)),
            (plus(M, integer(5000)), ("lanes", 32, LEAF)),
        ],
    )
    def test_short_loops_need_no_leaves(self, stop, expected):
        start = M if stop not in (N, integer(900)) else integer(0)
        inner = For("i", start, stop, (Fold("a", "add", X),), "vector")
        body = (
            Let("end", fn("minimum", plus(M, integer(64)), N, dtype="int64")),
            Local("a", F),
            inner,
        )
        assert form(kernel(*body))[:3] == expected

    @pytest.mark.parametrize(("start", "passes"), [(M, 1), (M, 2), (integer(7), 1)])
    def test_a_pass_or_two_make_no_vectors(self, start, passes):
        stop = plus(start, integer(passes))
        k = kernel(Local("a", F), For("i", start, stop, (Fold("a", "add", X),), "vector"))
        assert form(k).form == "serial"

    def test_extremes_need_no_leaves(self):
        top = Total("s", F, "maximum", "y")
        assert form(kernel(loop(Fold("s", "maximum", X)), totals=(top,))).leaf == 0


class TestAddedAtOnce:
    """Sums of rows that are terms of a total alone."""

    def rows(self, *after, fold=None, init=0.0):
        inner = loop(fold or Fold("a", "add", X))
        start = Local("a", F, None, Const(F, init))
        body = (start, inner, Fold("s", "add", Var(F, "a")), *after)
        rows = For("j", integer(0), M, body, "parallel")
        return verify(kernel(rows, totals=(TOTAL,), buffers=(*BUFFERS, Param("z", F, "out"))))

    def test_terms_go_to_the_total(self):
        (rows,) = verify(added_at_once(self.rows())).body
        assert rows.body == (loop(Fold("s", "add", X)),)

    def test_sums_that_are_read_stay(self):
        k = self.rows(Store("z", Var("int64", "j"), Var(F, "a")))
        assert added_at_once(k) is k

    @pytest.mark.parametrize(
        "k",
        [
            {"init": 1.0},
            {"fold": Fold("a", "maximum", X)},
        ],
    )
    def test_other_folds_stay(self, k):
        k = self.rows(**k)
        assert added_at_once(k) is k

    def test_sums_that_are_set_stay(self):
        start = Local("a", F, None, Const(F, 0.0))
        rows = For("i", integer(0), M, (start, Assign("a", X), Fold("s", "add", Var(F, "a"))))
        k = kernel(rows, totals=(TOTAL,))
        assert added_at_once(k) is k


class TestShared:
    def test_a_map_is_cut_into_chunks(self):
        result = verify(shared(kernel(loop(Store("y", K, X)))))
        (outer,) = result.body
        assert outer.kind == "parallel"
        (inner,) = outer.body
        assert inner.kind == "vector"
        assert times(Var("int64", outer.var), integer(CHUNK)) == inner.start

    @pytest.mark.parametrize(
        "k",
        [
            kernel(loop(Store("y", K, X), kind="serial")),
            kernel(loop(Store("y", K, X)), loop(Store("y", K, X))),
            kernel(Local("a", F), loop(Fold("a", "add", X))),
            kernel(Local("t", F, N), loop(Store("t", K, X))),
            kernel(loop(Fold("y", "add", X, integer(0)))),
            kernel(loop(Let("a", X), kind="parallel")),
        ],
    )
    def test_others_stay(self, k):
        assert shared(verify(k)) is k

    def test_names_that_are_taken(self):
        k = Kernel(BUFFERS, ("n", "chunk"), (), (loop(Let("chunk_", X), Store("y", K, X)),))
        verify(shared(k))


class TestCanonical:
    def test_everything_is_renamed(self):
        def nested(a, b, c, d, e):
            v = Var("int64", d)
            body = (
                Local(c, F, None, Const(F, 0.0)),
                For(d, integer(0), Var("int64", b), (
                    Let(e, Load(F, a, v)),
                    Fold(c, "add", Var(F, e)),
                    If(Const("bool", True), (Assign(c, Var(F, c)),)),
                )),
                Store("y" + a, integer(0), Var(F, c)),
            )  # fmt: skip
            total = Total("s" + a, F, "add", "y" + a, Var("int64", b))
            return Kernel((Param(a, F), Param("y" + a, F, "out")), (b,), (total,), body)

        one, two = nested("x", "n", "acc", "i", "v"), nested("p", "q", "r", "s", "t")
        verify(one)
        assert one != two
        assert canonical(one) == canonical(two)
        assert hash(canonical(one)) == hash(canonical(two))
        assert canonical(canonical(one)) == canonical(one)

    def test_a_name_may_return_in_another_scope(self):
        k = kernel(
            loop(Let("a", X), Store("y", K, Var(F, "a"))),
            loop(Let("a", fn("sin", X)), Store("y", K, Var(F, "a"))),
        )
        result = verify(canonical(k))
        assert result.body[0].var != result.body[1].var

    def test_other_kernels_stay_others(self):
        one, two = kernel(loop(Store("y", K, X))), kernel(loop(Store("y", K, fn("sin", X))))
        assert canonical(one) != canonical(two)


class TestAffine:
    @pytest.mark.parametrize(
        ("index", "expected"),
        [
            (K, integer(1)),
            (N, integer(0)),
            (integer(7), integer(0)),
            (plus(N, K), integer(1)),
            (plus(N, K, "subtract"), integer(-1)),
            (fn("negative", K, dtype="int64"), integer(-1)),
            (plus(times(K, integer(3)), K), integer(4)),
            (times(K, N), N),
            (times(N, plus(K, M)), N),
            (times(times(K, N), M), times(N, M)),
            (times(K, K), None),
            (Load("int64", "k", K), None),
            (Load("int64", "k", N), integer(0)),
            (fn("minimum", K, N, dtype="int64"), None),
            (fn("minimum", M, N, dtype="int64"), integer(0)),
            (fn("cast", K, dtype="int64"), integer(1)),
            (fn("cast", K), None),
            (Var("int64", "twice"), integer(2)),
        ],
    )
    def test_slopes(self, index, expected):
        lets = {"twice": plus(K, K)}
        assert slope(index, "i", lets) == expected

    def test_long_chains_of_shared_names(self):
        lets, last = {}, K
        for i in range(3000):
            lets[f"a{i}"] = plus(last, last, "subtract") if i % 2 else plus(last, K)
            last = Var("int64", f"a{i}")
        assert slope(last, "i", lets) == integer(0)
        deep = X
        for _ in range(3000):
            deep = fn("add", deep, deep)
        assert slope(fn("cast", deep, dtype="int64"), "i", {}) is None

    def test_the_index_at_a_place(self):
        lets = {"twice": plus(K, K), "free": N}
        index = plus(
            plus(Var("int64", "twice"), Var("int64", "free")), fn("cast", K, dtype="int64")
        )
        assert at(index, "i", M, lets) == plus(plus(plus(M, M), Var("int64", "free")), M)
