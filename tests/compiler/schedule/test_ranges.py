"""Ranges and remainders of a kernel's integers."""

from __future__ import annotations

import pytest

from adarray.compiler.ir.loopir import Apply, For, If, Kernel, Let, Load, Local, Store, Var, integer
from adarray.compiler.schedule.ranges import is_narrow
from adarray.compiler.schedule.remainders import Remainders

K, N, T = (Var("int64", name) for name in ("i", "n", "t"))


def apply(name, *args):
    return Apply("int64", name, args)


def less(a, b):
    return Apply("bool", "less", (a, b))


def kernel(*body, loop=True):
    """Return a kernel of statements in a loop over i < n."""
    body = (For("i", integer(0), N, body),) if loop else body
    return Kernel((), ("n",), (), body)


MOST = (1 << 31) - 1


class TestRanges:
    @pytest.mark.parametrize(
        ("value", "most"),
        [
            (apply("multiply", K, integer(5)), (MOST // 5) + 1),
            (apply("add", K, K), (MOST // 2) + 1),
            (apply("subtract", integer(-2), K), MOST),
            (apply("where", less(K, integer(3)), K, apply("multiply", K, integer(2))), 1 << 30),
            (apply("maximum", K, apply("multiply", K, integer(2))), 1 << 30),
            (apply("minimum", N, integer(7)), MOST),
            (apply("floor_divide", apply("multiply", K, integer(2)), integer(2)), 1 << 30),
        ],
    )
    def test_largest(self, value, most):
        result = kernel(Let("t", value))
        assert is_narrow(result, {"n": most})
        if most < MOST:
            assert not is_narrow(result, {"n": most + 1})

    def test_what_a_quotient_leaves_over(self):
        """It is below the divisor, and what is read there has bounds."""
        rest = apply("subtract", K, apply("multiply", T, integer(7)))
        body = Let("t", apply("floor_divide", K, integer(7))), Let("u", rest)
        place = Let("v", apply("multiply", Var("int64", "u"), integer(1 << 28)))
        assert is_narrow(kernel(*body, place), {"n": 1 << 20})
        assert not is_narrow(
            kernel(body[0], body[1], Let("v", apply("multiply", K, integer(1 << 28)))),
            {"n": 1 << 20},
        )

    @pytest.mark.parametrize(
        "statement",
        [
            Let("t", Load("int64", "b", K)),
            Let("t", apply("remainder", K, integer(3))),
            Let("t", apply("floor_divide", integer(9), K)),
            Let("t", apply("cast", Var("float64", "x"))),
            Let("t", Apply("float64", "cast", (apply("multiply", K, integer(1 << 40)),))),
            Local("t", "int64"),
            Store("b", apply("multiply", K, integer(1 << 40)), integer(0)),
            If(less(K, apply("multiply", K, integer(1 << 40))), ()),
            If(less(K, N), (Let("t", apply("multiply", K, integer(1 << 40))),)),
            If(less(K, N), (), (Let("t", apply("multiply", K, integer(1 << 40))),)),
            For("j", integer(0), integer(1 << 40), ()),
        ],
    )
    def test_what_may_be_larger(self, statement):
        assert not is_narrow(kernel(statement), {"n": 10})

    def test_names_are_followed(self):
        again = Let("u", apply("multiply", T, T))
        assert is_narrow(kernel(Let("t", apply("add", K, K)), again), {"n": 20000})
        assert not is_narrow(kernel(Let("t", apply("add", K, K)), again), {"n": 30000})


class TestRemainders:
    @pytest.mark.parametrize(
        ("value", "limits"),
        [
            (apply("multiply", K, N), 0),
            (apply("multiply", K, integer(6)), None),
            (apply("multiply", integer(3), integer(7)), 1),
            (apply("add", apply("multiply", K, N), integer(3)), 3),
            (apply("subtract", integer(1), N), 1),
            (apply("subtract", integer(1), integer(2)), 3),
            (apply("subtract", integer(1), K), None),
            (apply("where", less(K, N), N, integer(4)), 0),
            (apply("where", less(K, N), N, integer(5)), None),
            (apply("minimum", integer(5), integer(9)), 1),
            (apply("maximum", integer(5), K), None),
            (apply("floor_divide", N, integer(2)), None),
            (Load("int64", "b", K), None),
        ],
    )
    def test_of_a_function(self, value, limits):
        result = Remainders(kernel(Let("t", value)), {"n": 8}, 4)
        assert result.of(value) == limits
        assert result.of(T) == limits

    def test_names_in_branches(self):
        let = Let("t", integer(6))
        branches = (If(less(K, N), (let,)), If(less(K, N), (), (let,)))
        for s in branches:
            assert Remainders(kernel(s), {"n": 8}, 4).of(T) == 2
