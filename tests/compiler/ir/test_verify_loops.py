"""Rules of loop IR: each broken one is found, and the message says which."""

from __future__ import annotations

import dataclasses

import pytest

from adarray.compiler.ir.loopir import (
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
from adarray.compiler.ir.target import CpuTarget
from adarray.compiler.ir.verify_loops import VerifyError, verify
from adarray.compiler.print_c.printer import source

F = "float64"
K, N = Var("int64", "i"), Var("int64", "n")
X = Load(F, "x", K)
ONE = Const(F, 1.0)
BUFFERS = (Param("x", F), Param("y", F, "out"))
TOTAL = Total("s", F, "add", "y")


def vector(*body, kind="vector"):
    return For("i", integer(0), N, body, kind)


def kernel(*body, totals=(), buffers=BUFFERS, ints=("n",)):
    return Kernel(buffers, ints, totals, body)


def add(a, b, dtype=F):
    return Apply(dtype, "add", (a, b))


GOOD = {
    "map": kernel(vector(Let("a", add(X, ONE)), Store("y", K, Var(F, "a")))),
    "total": kernel(vector(Fold("s", "add", X)), totals=(TOTAL,)),
    "serial": kernel(
        Local("a", F, None, ONE),
        vector(Assign("a", X), If(Const("bool", True), (Fail(1),)), kind="serial"),
        Store("y", integer(0), Var(F, "a")),
    ),
    "array": kernel(
        vector(
            Local("t", F, add(N, integer(1), "int64")),
            For("j", integer(0), N, (Fold("t", "add", X, Var("int64", "j")),), "vector"),
            kind="parallel",
        )
    ),
    "numbered": kernel(
        Local("a", F), Fold("y", "add", ONE, integer(0), "a"), Store("y", integer(1), Var(F, "a"))
    ),
    "siblings": kernel(vector(Let("a", X)), vector(Let("a", X))),
}

BAD = {
    "is not declared": kernel(vector(Store("y", K, Var(F, "a")))),
    "'i' is int64, not float64": kernel(vector(Store("y", K, Var(F, "i")))),
    "no memory 'z'": kernel(vector(Store("y", K, Load(F, "z", K)))),
    "'x' is no float32": kernel(vector(Store("y", K, Load("float32", "x", K)))),
    "index is not int64": kernel(vector(Store("y", Const("int32", 0), X), kind="serial")),
    "'y' is no bool": kernel(vector(Store("y", K, Const("bool", True)))),
    "'x' is only read": kernel(vector(Store("x", K, X))),
    "is not known": kernel(vector(Store("y", K, Apply(F, "zeta", (X,))))),
    "do not fit": kernel(vector(Store("y", K, add(X, Const("float32", 1))))),
    "the name 'a' is taken": kernel(vector(Let("a", X), Let("a", ONE))),
    "the name 'n' is taken": kernel(vector(Let("n", X))),
    "the name 'i' is taken": kernel(vector(vector(Let("a", X)), kind="serial")),
    "two parameters have one name": kernel(ints=("n", "x")),
    "dtype 'clongdouble' is not known": kernel(buffers=(Param("x", "clongdouble"),)),
    "access is one of": kernel(buffers=(Param("x", F, "write"),)),
    "what is streamed is only written": kernel(buffers=(Param("x", F, "inout", True),)),
    "there are two parallel loops": kernel(
        vector(Let("a", X), kind="parallel"), vector(Let("a", X), kind="parallel")
    ),
    "parallel loop is inside": kernel(
        For("j", integer(0), N, (vector(Let("a", X), kind="parallel"),))
    ),
    "holds Let, Store and Fold only": kernel(vector(If(Const("bool", True), ()))),
    "all iterations store to one element": kernel(vector(Store("y", integer(0), X))),
    "is not affine": kernel(
        vector(Fold("y", "add", X, Load("int64", "k", K))),
        buffers=(*BUFFERS, Param("k", "int64")),
    ),
    "no local scalar of dtype float64 and no total": kernel(vector(Fold("z", "add", X))),
    "reads what it folds into": kernel(
        Local("a", F), vector(Fold("a", "add", X), Store("y", K, Var(F, "a")))
    ),
    "the total combines otherwise": kernel(vector(Fold("s", "maximum", X)), totals=(TOTAL,)),
    "an array wants an index": kernel(vector(Fold("s", "add", X, K)), totals=(TOTAL,)),
    "there is no buffer 'z'": kernel(totals=(dataclasses.replace(TOTAL, out="z"),)),
    "its buffer is only read": kernel(totals=(dataclasses.replace(TOTAL, out="x"),)),
    "its buffer has another dtype": kernel(totals=(dataclasses.replace(TOTAL, dtype="float32"),)),
    "logical_and does not fold": kernel(
        totals=(dataclasses.replace(TOTAL, combine="logical_and"),)
    ),
    "combine is none of": kernel(vector(Fold("s", "subtract", X)), totals=(TOTAL,)),
    "folded outside the parallel loop": kernel(
        vector(Let("a", X), kind="parallel"), Fold("s", "add", ONE), totals=(TOTAL,)
    ),
    "'a' is no local scalar for an element": kernel(
        Local("a", "int64"), Fold("y", "add", ONE, integer(0), "a")
    ),
    "'b' is no local scalar for an element": kernel(
        Local("a", F), Local("b", F), Fold("a", "add", ONE, before="b")
    ),
    "a vector loop has no order": kernel(Local("a", F), vector(Fold("y", "add", ONE, K, "a"))),
    "loop share 'a'": kernel(Local("a", F), vector(Fold("y", "add", ONE, K, "a"), kind="parallel")),
    "share 'a'": kernel(Local("a", F), vector(Fold("a", "add", X), kind="parallel")),
    "written before the parallel loop": kernel(
        Store("y", integer(0), ONE), vector(Let("a", X), kind="parallel")
    ),
    "no parameter": kernel(vector(Local("t", F, K), kind="serial")),
    "a size reads memory": kernel(
        Local("t", F, Load("int64", "k", integer(0))), buffers=(Param("k", "int64"),)
    ),
    "has no first value": kernel(Local("t", F, integer(3), ONE)),
    "first value has another dtype": kernel(Local("t", F, None, integer(1))),
    "no local scalar of dtype": kernel(Let("a", ONE), Assign("a", ONE)),
    "'t' is an array": kernel(Local("t", F, integer(3)), Store("y", integer(0), Var(F, "t"))),
    "a condition is not bool": kernel(If(ONE, ())),
    "a bound is not int64": kernel(For("i", ONE, N, ())),
    "kind is 'omp'": kernel(vector(kind="omp")),
    "is no statement": kernel(Fail(0)),
    "is no int8": kernel(Let("a", Const("int8", 200))),
    "is no truth value": kernel(Let("a", Const("bool", 2))),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_kernels_pass(name):
    assert verify(GOOD[name]) is GOOD[name]


@pytest.mark.parametrize("reason", BAD)
def test_broken_rules_are_named(reason):
    with pytest.raises(VerifyError, match="loop IR: ") as caught:
        verify(BAD[reason])
    assert reason in str(caught.value)


def test_after_the_parallel_loop_its_names_are_gone():
    before = Local("t", F, integer(3))
    after = Store("y", integer(0), Load(F, "t", integer(0)))
    with pytest.raises(VerifyError, match="no memory 't'"):
        verify(kernel(before, vector(Let("a", X), kind="parallel"), after))


def test_printing_checks_on_request(monkeypatch):
    broken = BAD["'x' is only read"]
    monkeypatch.setenv("ADARRAY_CHECK", "1")
    with pytest.raises(VerifyError, match="only read"):
        source(broken, CpuTarget())
    assert "adk_" in source(GOOD["map"], CpuTarget())
