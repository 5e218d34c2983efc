"""Layout propagation: where values are computed, and what of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from recorded import agrees, recorded

import adarray
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import (
    ConstantArray,
    GatherND,
    Map,
    Matmul,
    ProgramInput,
    Reduce,
    View,
    mnemonic,
)
from adarray.compiler.ir.target import GPU
from adarray.compiler.ir.verify_program import verify_program
from adarray.compiler.rewrite import optimise
from adarray.compiler.rewrite.dead import dead
from adarray.compiler.rewrite.memory_order import memory_order

RNG = np.random.default_rng(3)
X = RNG.normal(size=(6, 8))


def optimised(make, *arrays):
    """Optimise what `make` builds, check the values, and return the program."""
    b = Builder()
    inputs = [b.input(i, x.shape, x.dtype) for i, x in enumerate(arrays)]
    before = b.program([make(b, *inputs)])
    verify_program(before)
    after = optimise(before, check=True)
    (one,), (two,) = interpret(before, arrays), interpret(after, arrays)
    np.testing.assert_array_equal(one, two)
    return after


def kinds(program):
    return [mnemonic(v.primitive) for v in program.values]


def maps(program):
    return {v.primitive.name: v.shape for v in program.values if isinstance(v.primitive, Map)}


# -- maps and views ----------------------------------------------------------------------------


def test_broadcasts_move_behind_maps():
    row = X[0]

    def f(b, x):
        spread = b.broadcast(x, (5, 8))
        return b.map("multiply", b.map("exp", spread), b.const(2, "f8"))

    assert maps(optimised(f, row)) == {"exp": (8,), "multiply": (8,)}


def test_operands_broadcast_by_themselves():
    def f(b, x, r):
        return b.map("add", x, b.broadcast(b.reshape(r, (6, 1)), (6, 8)))

    after = optimised(f, X, X[:, 0].copy())
    assert [a.shape for a in after.outputs[0].args] == [(6, 8), (6, 1)]


def test_shared_transposes_move_behind_maps():
    def f(b, x, y):
        s = b.map("add", b.transpose(x, (1, 0)), b.transpose(y, (1, 0)))
        return b.matmul(b.map("multiply", s, b.const(3, "f8")), x)

    after = optimised(f, X, X[::-1].copy())
    assert maps(after) == {"add": (6, 8), "multiply": (6, 8)}
    assert isinstance(after.outputs[0].args[0].primitive, View)


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("shape", [(6,), (8, 1)])
def test_narrow_operands_are_transposed_in_place_of_large_ones(shape, spread):
    def f(b, x, r):
        r = b.broadcast(r, (8, 6)) if spread else r
        return b.map("subtract", r, b.transpose(x, (1, 0)))

    after = optimised(f, X, np.arange(math.prod(shape), dtype=float).reshape(shape))
    assert maps(after) == {"subtract": (6, 8)}


def test_other_large_operands_stay():
    def f(b, x, y):
        return b.map("subtract", y, b.transpose(x, (1, 0)))

    assert maps(optimised(f, X, X.T.copy())) == {"subtract": (8, 6)}


def test_reshapes_move_behind_maps():
    after = optimised(lambda b, x: b.map("sin", b.reshape(x, (4, 12))), X)
    assert maps(after) == {"sin": (6, 8)}


def test_slices_do_not():
    after = optimised(lambda b, x: b.map("sin", b.slice(x, 0, 1, 4)), X)
    assert maps(after) == {"sin": (3, 8)}


Y = RNG.normal(size=(5, 6, 8))
ORDERS = [(1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)]


def boxed(b, x, axes, starts, lengths):
    """Return a box of a transposed array."""
    y = b.transpose(x, axes)
    for axis, (start, n) in enumerate(zip(starts, lengths, strict=True)):
        y = b.slice(y, axis, start, start + n)
    return y


def memory_ordered(f, *args):
    """Return the optimised program, with boxes of transposes in the order of memory."""
    return dead(memory_order(optimised(f, *args), GPU))


@pytest.mark.parametrize("axes", ORDERS)
def test_boxes_of_transposes_are_computed_in_the_order_of_memory(axes):
    lengths = [Y.shape[k] - 1 for k in axes]

    def f(b, x, r):
        one = boxed(b, x, axes, (0, 1, 0), lengths)
        other = boxed(b, x, axes, (1, 0, 1), lengths)
        return b.map("multiply", b.map("add", one, other), b.reshape(r, (1, lengths[1], 1)))

    after = memory_ordered(f, Y, np.arange(1.0, 1.0 + lengths[1]))
    assert maps(after) == {"add": (4, 5, 7), "multiply": (4, 5, 7)}


@pytest.mark.parametrize("folded", [(0,), (2,), (0, 1), (1, 2)])
@pytest.mark.parametrize("axes", ORDERS)
def test_folds_of_boxes_of_transposes(axes, folded):
    def f(b, x):
        y = boxed(b, x, axes, (1, 0, 1), [Y.shape[k] - 2 for k in axes])
        return b.reduce("maximum", y, folded)

    (fold,) = (v for v in memory_ordered(f, Y).values if isinstance(v.primitive, Reduce))
    assert fold.args[0].shape == (3, 4, 6)


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize("axes", ORDERS)
def test_boxes_of_transposes_are_written_in_the_order_of_memory(axes, add):
    shape = tuple(Y.shape[k] for k in axes)

    def f(b, x):
        base = b.full(shape, 0, x.dtype)
        for starts in (1, 0, 1), (0, 1, 0):
            piece = b.map("sin", boxed(b, x, axes, starts, [n - 1 for n in shape]))
            base = b.update_slice(base, piece, starts, (1, 1, 1), add)
        return b.map("exp", base)

    after = memory_ordered(f, Y)
    written = [v.shape for v in after.values if mnemonic(v.primitive) == "update_slice"]
    assert written == [Y.shape] * 2
    assert maps(after)["exp"] == Y.shape


def test_boxes_in_other_orders_stay():
    def f(b, x, y):
        return b.map("add", b.slice(b.transpose(x, (1, 0)), 0, 0, 6), b.slice(y, 0, 2, 8))

    assert maps(optimised(f, X, RNG.normal(size=(9, 6)))) == {"add": (6, 6)}


def test_views_of_views_are_one():
    def f(b, x):
        y = b.reshape(b.transpose(b.slice(x, 0, 1, 5), (1, 0)), (2, 4, 4))
        return b.slice(b.flip(y, (1,)), 2, 0, 3, 2)

    after = optimised(f, X)
    assert kinds(after) == ["program_input", "view"]


def test_small_parts_are_computed_alone():
    def f(b, x, y):
        return b.slice(b.map("sin", b.map("add", x, y)), 0, 2, 3)

    after = optimised(f, np.tile(X, (4, 1)), X[0])
    assert maps(after)["sin"] == (1, 8)


def test_parts_of_what_is_needed_are_read():
    def f(b, x):
        s = b.map("sin", x)
        return b.map("add", b.slice(s, 0, 2, 3), b.reduce("add", s, (0,)))

    assert maps(optimised(f, np.tile(X, (4, 1))))["sin"] == (24, 8)


# -- folds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_folds_of_transposes(axes):
    x = np.arange(24.0).reshape(2, 3, 4)
    after = optimised(lambda b, x: b.reduce("add", b.transpose(x, (2, 0, 1)), axes), x)
    assert isinstance(
        next(v for v in after.values if isinstance(v.primitive, Reduce)).args[0].primitive,
        ProgramInput,
    )


def test_folds_of_all_elements_in_another_shape():
    after = optimised(lambda b, x: b.reduce("maximum", b.reshape(x, (3, 16)), (0, 1)), X)
    assert kinds(after) == ["program_input", "reduce"]


def test_folds_across_a_reshape_keep_it():
    after = optimised(lambda b, x: b.reduce("add", b.reshape(x, (3, 16)), (0,)), X)
    assert kinds(after) == ["program_input", "view", "reduce"]


# -- gathers and scatters ----------------------------------------------------------------------


def logistic(x, y):
    s = x - np.max(x, axis=1, keepdims=True)
    p = np.exp(s) / np.sum(np.exp(s), axis=1, keepdims=True)
    return -np.mean(np.log(p[np.arange(len(y)), y]))


LABELS = np.array([0, 3, -1, 3, 7, -8])


def test_picks_move_in_front_of_maps():
    r = recorded(lambda x, y: logistic(x, y), X, LABELS)
    agrees(r)
    picked = next(v for v in r.program.values if isinstance(v.primitive, GatherND))
    assert isinstance(picked.args[0].primitive, ProgramInput)


@pytest.mark.parametrize("transform", [adarray.value_and_grad, adarray.grad])
def test_one_hot_rows_are_compared(transform):
    """The gradient of picking one element a row needs no scatter."""
    g = transform(logistic)
    r = recorded(g, X, LABELS)
    agrees(r)
    assert "scatter_nd" not in r.kinds()
    other = RNG.normal(size=X.shape), RNG.integers(-8, 8, 6)
    got = interpret(r.program, other)
    expected = g(*other)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15)


def test_indices_out_of_range_are_still_found():
    r = recorded(adarray.grad(lambda x, y: np.sum(x[np.arange(6), y])), X, LABELS)
    agrees(r)
    assert "scatter_nd" not in r.kinds()
    for wrong in (8, -9):
        with pytest.raises(IndexError):
            interpret(r.program, [X, np.array([0, 1, wrong, 0, 0, 0])])


def test_one_hot_columns_and_stacks():
    def f(x, i, j):
        return np.sum(x[i, np.arange(8)] ** 2) + np.sum(x.reshape(2, 3, 8)[one, two, j])

    one, two = np.ix_(range(2), range(3))
    args = X, RNG.integers(0, 6, 8), RNG.integers(0, 8, (2, 3))
    r = recorded(adarray.grad(f), *args)
    agrees(r)


def test_repeated_indices_are_scattered():
    r = recorded(adarray.grad(lambda x, y: np.sum(x[y] ** 2)), X, np.array([1, 1, 5]))
    agrees(r)
    assert "scatter_nd" in r.kinds()


# -- choices -----------------------------------------------------------------------------------


def test_choices_between_rows_are_computed_by_row():
    def f(b, x, r):
        r = b.reshape(r, (6, 1))
        hit = b.cast(b.map("greater", x, b.const(0, "f8")), "f8")
        return b.map("add", x, b.map("multiply", b.map("divide", hit, r), r))

    after = optimised(f, X, X[:, 0].copy())
    full = [
        v.primitive.name for v in after.values if isinstance(v.primitive, Map) and v.shape == (6, 8)
    ]
    assert sorted(full) == ["add", "greater", "where"]


def test_choices_keep_nan_and_zeros():
    rows = np.array([np.inf, -0.0, np.nan, -1.0, 0.0, 1e308])

    def f(b, x, r):
        hit = b.cast(b.map("greater", x, b.const(0, "f8")), "f8")
        return b.map("multiply", hit, b.reshape(r, (6, 1)))

    b = Builder()
    program = optimise(b.program([f(b, b.input(0, X.shape, "f8"), b.input(1, (6,), "f8"))]))
    assert maps(program)["multiply"] == (6, 1)
    with np.errstate(all="ignore"):
        (result,) = interpret(program, [X, rows])
        expected = np.where(X > 0, 1.0, 0.0) * rows[:, None]
    np.testing.assert_array_equal(result, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result)[known], np.signbit(expected)[known])


# -- products ----------------------------------------------------------------------------------


def test_operands_of_products_stay_views():
    r = recorded(adarray.value_and_grad(lambda w: np.sum(np.tanh(X @ w.T) ** 2)), X[:3].copy())
    agrees(r)
    dots = [v for v in r.program.values if isinstance(v.primitive, Matmul)]
    assert len(dots) == 2
    assert all(
        isinstance(a.primitive, (View, ProgramInput, ConstantArray, Map))
        for v in dots
        for a in v.args
    )


def test_stacks_and_columns_become_plain_products():
    b = Builder()
    stack, matrix = b.input(0, (2, 3, 4), "f8"), b.input(1, (4, 5), "f8")
    result = b.matmul(stack, matrix)
    assert isinstance(result.primitive, View)
    assert result.args[0].args[0].shape == (6, 4)
    column = b.matmul(matrix, b.input(2, (5, 1), "f8"))
    assert isinstance(column.args[0].primitive, Matmul)
    assert column.args[0].args[1].shape == (5,)
    row = b.input(3, (1, 4), "f8")
    assert b.matmul(row, matrix).args[0].args[0].shape == (4,)
    assert isinstance(b.matmul(row, b.reshape(row, (4, 1))).args[0].primitive, Reduce)
