"""What steps cost: bytes from buffers, operations from the loops' trip counts."""

import time

import numpy as np
import pytest
from planned import M, N, example

import adarray
from adarray.compiler.ir.loopir import (
    Apply,
    Const,
    Fold,
    For,
    If,
    Kernel,
    Let,
    Load,
    Param,
    Store,
    Total,
    Var,
    integer,
)
from adarray.compiler.ir.plan import Buffer, KernelStep
from adarray.jitting.explain.costs import Cost, cost, costs, peak, total

AT, INNER = (Var("int64", name) for name in "ij")
ONE = Apply("float64", "exp", (Load("float64", "a", AT),))


def step(body, ints=(), values=(), access="in"):
    """Return a kernel that reads `a` and writes `b`, 8 and 4 elements."""
    kernel = Kernel((Param("a", "float64", access), Param("b", "float64", "out")), ints, (), body)
    f = np.dtype(np.float64)
    return KernelStep(kernel, (Buffer("input", f, 8, 0), Buffer("output", f, 4, 0)), values, (), 0)


def integers(name, *args):
    return Apply("int64", name, args)


def test_the_example_adds_up():
    _, plan = example()
    kernel, product, second, call = map(cost, plan.steps)
    assert kernel == Cost(8 * N, 8 * N + 8, 3 * N, N)  # double, sin, add; sin is the function
    assert product == Cost(8 * (N + N * M), 8 * M, 2 * N * M, 0)
    assert second == Cost(8 * M + 8, 8 * M, M, 0)
    assert call == Cost(8 * M, 8 * M, 0, 0)
    assert total(plan) == kernel.plus(product).plus(second).plus(call)
    assert total(plan).moved == total(plan).read + total(plan).written


def test_peak_is_arguments_results_and_arena():
    _, plan = example()
    assert peak(plan) == 1664 + 8 * (N + N * M + N + 1 + M)


def test_nested_loops_multiply():
    body = (For("i", integer(0), Var("int64", "n"), (
        For("j", integer(2), integer(5), (Store("b", INNER, ONE),), "vector"),)),)  # fmt: skip
    assert cost(step(body, ("n",), (7,))).flops == 21
    assert cost(step(body, ("n",), (7,))).calls == 21
    assert cost(step(body, ("n",), (0,))).flops == 0


def test_integer_arithmetic_is_not_counted():
    body = (
        For(
            "i",
            integer(0),
            integer(9),
            (Store("b", integers("add", AT, AT), Load("float64", "a", AT)),),
        ),
    )
    assert cost(step(body))[2:] == (0, 0)


def test_bounds_that_depend_on_the_loop_around():
    # for i < n: for j < i: n (n - 1) / 2 passes
    triangle = (For("i", integer(0), Var("int64", "n"), (
        For("j", integer(0), AT, (Store("b", INNER, ONE),)),)),)  # fmt: skip
    assert cost(step(triangle, ("n",), (20,))).flops == 190
    # more passes than are looked at: evenly spread ones give the mean
    assert cost(step(triangle, ("n",), (1001,))).flops == pytest.approx(500500, rel=0.02)


def test_blocks_with_a_short_last_one():
    # for i < 3: start = 4 i; for j in start .. min(start + 4, 10)
    stop = integers("minimum", integers("add", Var("int64", "start"), integer(4)), integer(10))
    inner = For("j", Var("int64", "start"), stop, (Store("b", INNER, ONE),), "vector")
    body = (
        For(
            "i", integer(0), integer(3), (Let("start", integers("multiply", AT, integer(4))), inner)
        ),
    )
    assert cost(step(body)).flops == 10


def test_branches():
    two = (Store("b", AT, Apply("float64", "add", (ONE, ONE))),)
    one = (Store("b", AT, ONE),)

    def counted(condition):
        return cost(step((For("i", integer(0), integer(10), (If(condition, one, two),)),))).flops

    assert counted(Apply("bool", "less", (AT, integer(4)))) == 4 * 1 + 6 * 3
    # What the data decides counts as the longer way.
    data = Apply("bool", "less", (Load("float64", "a", AT), Const("float64", 0.0)))
    assert counted(data) == 30


def test_buffers_that_are_read_and_written_count_twice_and_shared_ones_once():
    twice = Apply("float64", "add", (Load("float64", "a", AT), Load("float64", "a", AT)))
    body = (For("i", integer(0), integer(8), (Store("a", AT, twice),)),)
    assert cost(step(body, access="inout")) == Cost(64, 96, 8, 0)
    result = step(())
    a = result.buffers[0]
    two = Apply("float64", "add", (Load("float64", "a", AT), Load("float64", "c", AT)))
    body = (For("i", integer(0), integer(8), (Store("d", AT, two),)),)
    kernel = Kernel((Param("a", "float64"), Param("c", "float64")), (), (), body)
    assert cost(result._replace(kernel=kernel, buffers=(a, a))).read == 64


def test_parts_of_buffers_are_counted_by_what_is_read_and_written():
    one = Load("float64", "a", AT)
    body = (For("i", integer(2), integer(5), (Store("a", AT, one),)),)
    assert cost(step(body, access="inout")) == Cost(24, 24 + 32, 0, 0)
    fold = Fold("a", "add", Const("float64", 1.0), integer(3))
    assert cost(step((fold,), access="inout")) == Cost(8, 8 + 32, 1, 0)
    # Where the data decides how often, or whether: all there is, or the longer way.
    unknown = Load("int64", "a", integer(0))
    body = (For("i", integer(0), unknown, (Store("a", AT, one),)),)
    assert cost(step(body, access="inout")) == Cost(64, 64 + 32, 0, 0)
    body = (If(Load("bool", "a", integer(7)), (Store("a", integer(0), one),)),)
    assert cost(step(body, access="inout")) == Cost(16, 8 + 32, 0, 0)
    total = Total("t", "float64", "add", "a", integer(3))
    kernel = step((), access="inout").kernel
    kernel = Kernel(kernel.buffers, (), (total,), ())
    assert cost(step(())._replace(kernel=kernel)).written == 24 + 32


@pytest.mark.skipif("serial" not in adarray.backends(), reason="no C compiler here")
def test_a_write_of_six_elements_is_told_as_one_of_six():
    def f(x):
        x[3:9] = 1.0

    with adarray.use("serial"):
        explanation = adarray.jit(f).explain(np.ones(100_000))
    assert (explanation.cost.read, explanation.cost.written) == (0, 48)
    assert "read, written 0 B, 48 B" in " ".join(str(explanation).split())


def test_deep_loops_with_moving_bounds_are_counted_fast():
    # for i < n: for j < i: for k < j: for l < k
    names = ["i", "j", "k", "l"]
    body = (Store("b", Var("int64", "l"), ONE),)
    for inner, outer in zip(names[::-1], [*names[2::-1], "n"], strict=True):
        body = (For(inner, integer(0), Var("int64", outer), body),)
    start = time.process_time()
    result = cost(step(body, ("n",), (400,)))
    assert time.process_time() - start < 2
    assert result.flops == pytest.approx(400**4 / 24, rel=0.25)


def test_equal_steps_of_a_plan_are_counted_once():
    _, plan = example()
    long = plan._replace(steps=plan.steps * 2000)
    start = time.process_time()
    counted = costs(long)
    assert time.process_time() - start < 2
    assert counted[:4] == [cost(s) for s in plan.steps]
    assert counted[4:8] == counted[:4]
    assert total(long).flops == 2000 * total(plan).flops
