"""Kernels that break the rules of their IR are found before they are printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adarray.compiler.ir.loopir import Apply, Assign, Let, Load, Local, Param, Store, Var
from adarray.compiler.ir.threads import Atomic, ThreadKernel, WarpOp, While, for_, if_
from adarray.compiler.ir.verify_loops import VerifyError
from adarray.compiler.ir.verify_threads import verify
from adarray.kernels import build

N, ONE, X = Var("int64", "n"), build.index(1), Load("float64", "x", build.index(0))
LANE = build.const(1, "int32")
GOOD = (
    Let("a", X),
    Local("b", "float64", None, build.const(0, "float64")),
    for_("i", build.index(0), N, [Assign("b", Var("float64", "a"))]),
    Store("y", ONE, Var("float64", "b")),
)
KERNEL = ThreadKernel(
    "k", (Param("x", "float64"), Param("y", "float64", "inout")), (("n", "int64"),),
    ("x", "y", "n"), (), GOOD,
)  # fmt: skip


def test_a_right_kernel_is_returned() -> None:
    assert verify(KERNEL) is KERNEL


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (Let("a", X), "the name 'a' is taken"),
        (Let("c", Var("float64", "i")), "the name 'i' is not declared"),
        (Assign("a", X), "'a' is assigned, and does not change"),
        (Assign("b", ONE), "float64 is expected, not int64"),
        (Store("x", ONE, X), "'x' is only read"),
        (Store("y", Var("uint32", "threadIdx.x"), X), "int64 is expected, not uint32"),
        (Store("z", ONE, X), "memory is expected, not float64"),
        (WarpOp("c", "left", X, LANE), "kind 'left' is not known"),
        (WarpOp("c", "up", X, ONE), "int32 is expected, not int64"),
        (WarpOp("c", "up", X, LANE, None, 5), "the width is no power of 2 up to 32"),
        (WarpOp("c", "add", X, LANE), "float64 is not combined"),
        (WarpOp("a", "up", X, LANE), "the name 'a' is taken"),
        (Atomic("y", ONE, "multiply", X), "combine is none of add, maximum, minimum"),
        (While("b", ()), "its condition never changes"),
        (if_(N, []), "bool is expected, not int64"),
        (Let("c", Apply("float64", "add", (X, ONE))), "the dtypes of add do not fit"),
        (Local("c", "float64", N), "the size of an array is no constant"),
    ],
)
def test_a_wrong_one_is_refused(statement: object, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        verify(replace(KERNEL, body=(*GOOD, statement)))  # type: ignore[arg-type]


def test_names_end_with_their_block() -> None:
    inner = if_(build.compare("less", N, ONE), [Let("c", X)])
    with pytest.raises(VerifyError, match="the name 'c' is not declared"):
        verify(replace(KERNEL, body=(*GOOD, inner, Store("y", ONE, Var("float64", "c")))))
