"""What row loops fetch ahead, and that it changes nothing but time."""

from __future__ import annotations

import re

import numpy as np
import pytest
from loops import Compiled, both

from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Fold,
    For,
    Kernel,
    Let,
    Load,
    Local,
    Param,
    Store,
    Var,
    integer,
)
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.print_c import printer as cprinter
from adarray.compiler.schedule.prefetch import ROWS, ahead
from adarray.compiler.schedule.vectors import schedule

F = "float64"
R, C, N, M = (Var("int64", name) for name in ("r", "c", "n", "m"))


def fn(name, *args, dtype=F):
    return Apply(dtype, name, args)


def cell(row, column, stride=M):
    return fn("add", fn("multiply", row, stride, dtype="int64"), column, dtype="int64")


def folding(var=C, stop=M, index=None):
    """Return a loop that adds up a row of x, from memory."""
    value = Load(F, "x", index or cell(R, var))
    return For(var.name, integer(0), stop, (Fold("s", "add", value),), "vector")


def writing(var=C, stop=M, function="exp", buffer="x"):
    """Return a loop that writes a row of y."""
    x = Load(F, buffer, cell(R, var))
    scaled = fn("multiply", fn(function, x), Var(F, "s"))
    return For(var.name, integer(0), stop, (Store("y", cell(R, var), scaled),), "vector")


def rows(*body, kind="serial"):
    """Return a kernel that runs `body` for every row."""
    s = Local("s", F, init=Const(F, 0.0))
    buffers = (Param("x", F), Param("z", F), Param("y", F, "out"))
    return Kernel(buffers, ("n", "m"), (), (For("r", integer(0), N, (s, *body), kind),))


def fetched(kernel):
    """Return loop variable, buffer and index of everything that is fetched."""
    return [
        (loop.var, load.buffer, load.index, step)
        for loop, pairs in ahead(kernel).items()
        for load, step in pairs
    ]


def test_the_second_loop_fetches_what_the_first_read():
    other = Var("int64", "k")
    kernel = rows(folding(), writing(other))
    assert fetched(kernel) == [("k", "x", cell(R, other), M)]


def test_the_loop_that_computes_most_fetches():
    light, heavy = Var("int64", "k"), Var("int64", "l")
    kernel = rows(folding(), writing(light, function="negative"), writing(heavy))
    heavier = kernel.body[0].body[3]
    more = For("l", heavier.start, heavier.stop, (
        Store("y", cell(R, heavy), fn("exp", fn("exp", Load(F, "x", cell(R, heavy))))),
    ), "vector")  # fmt: skip
    kernel = rows(folding(), writing(light, function="negative"), more)
    assert [f[0] for f in fetched(kernel)] == ["l"]


def test_rows_through_names():
    base = Let("base", fn("multiply", R, M, dtype="int64"))
    at_base = fn("add", Var("int64", "base"), C, dtype="int64")
    first = folding(index=at_base)
    kernel = rows(base, first, writing(Var("int64", "k")))
    ((var, buffer, _, step),) = fetched(kernel)
    assert (var, buffer, step) == ("k", "x", M)


@pytest.mark.parametrize(
    "body",
    [
        (folding(),),  # nothing is left to be done while memory rests
        (folding(), writing(Var("int64", "k"), stop=N)),  # rows of another length
        (folding(index=C), writing(Var("int64", "k"), buffer="z")),  # the same row again and again
        (folding(index=cell(C, R)), writing(Var("int64", "k"), buffer="z")),  # no neighbours
    ],
    ids=["one loop", "lengths", "one row", "columns"],
)
def test_nothing_to_fetch(body):
    assert fetched(rows(*body)) == []


def test_what_only_the_last_loop_reads_is_not_fetched():
    kernel = rows(folding(), writing(Var("int64", "k"), buffer="z"))
    assert [f[1] for f in fetched(kernel)] == ["x"]


@pytest.mark.parametrize("function", ["exp", "negative"])
def test_the_text_asks_for_lines_of_rows_to_come(function):
    kernel = rows(folding(), writing(Var("int64", "k"), function=function))
    text = cprinter.source(kernel, CpuTarget())
    part = text[: text.index("_scratch(")]
    first = part.split("#pragma omp simd")[0]
    assert "__builtin_prefetch" not in first.split("for (int64_t")[1]
    lines = re.findall(r"__builtin_prefetch\(\(const char \*\)\((.*)\) \+ (\d+), 0, 2\);", part)
    offsets = [int(offset) for _, offset in lines]
    (form,) = (f for f in schedule(kernel, CpuTarget()).loops.values() if f.ahead)
    assert offsets == list(range(0, form.block * 8, 64))
    assert all(place.endswith(f"+ {ROWS} * n1") for place, _ in lines)
    assert function != "negative" or form.form == "lanes"


@pytest.mark.slow
@pytest.mark.parametrize("function", ["exp", "negative"])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_results_are_the_same(kind, function):
    kernel = rows(folding(), writing(Var("int64", "k"), function=function), kind=kind)
    compiled = Compiled(kernel)
    for n, m in ((1, 1), (3, 7), (5, 64), (4, 1000), (2, 2049)):
        x = np.random.default_rng(m).normal(size=(n, m))
        arrays = [x.ravel(), np.zeros(1), np.full(n * m, np.nan)]
        (_, expected), (code, got) = both(kernel, arrays, (n, m), compiled=compiled)
        assert code == 0
        np.testing.assert_allclose(got[2], expected[2], rtol=1e-12)
        f = np.exp if function == "exp" else np.negative
        np.testing.assert_allclose(got[2].reshape(n, m), f(x) * x.sum(1, keepdims=True), rtol=1e-9)
