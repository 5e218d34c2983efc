"""Matrix products: order, rows of one array, sums."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import agrees, recorded

import adarray
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Concatenate, Matmul, ProgramInput
from adarray.compiler.rewrite import optimise, verify_program

RNG = np.random.default_rng(11)


def optimised(make, *arrays):
    """Optimise what `make` builds, check the values, and return the program."""
    b = Builder()
    inputs = [b.input(i, x.shape, x.dtype) for i, x in enumerate(arrays)]
    result = make(b, *inputs)
    before = b.program(result if isinstance(result, list) else [result])
    verify_program(before)
    after = optimise(before, check=True)
    for one, two in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-13)
    return after


def dots(program):
    return [
        tuple(a.shape for a in v.args) for v in program.values if isinstance(v.primitive, Matmul)
    ]


def matrix(*shape):
    return RNG.normal(size=shape)


def test_the_vector_is_multiplied_first():
    after = optimised(
        lambda b, x, y, v: b.matmul(b.matmul(x, y), v), matrix(9, 8), matrix(8, 7), matrix(7)
    )
    assert dots(after) == [((8, 7), (7,)), ((9, 8), (8,))]


def test_the_narrow_side_is_multiplied_first():
    after = optimised(
        lambda b, x, y, z: b.matmul(x, b.matmul(y, z)), matrix(2, 9), matrix(9, 9), matrix(9, 9)
    )
    assert dots(after) == [((2, 9), (9, 9)), ((2, 9), (9, 9))]


def test_square_products_keep_their_order():
    args = matrix(6, 6), matrix(6, 6), matrix(6, 6)
    after = optimised(lambda b, x, y, z: b.matmul(x, b.matmul(y, z)), *args)
    assert isinstance(after.outputs[0].args[1].primitive, Matmul)


def test_a_product_that_is_needed_is_not_made_again():
    def f(b, x, y, v):
        xy = b.matmul(x, y)
        return [b.matmul(xy, v), b.reduce("maximum", xy, (0, 1))]

    after = optimised(f, matrix(9, 8), matrix(8, 7), matrix(7))
    assert dots(after)[0] == ((9, 8), (8, 7))


# -- rows --------------------------------------------------------------------------------------


def _steps(b, x, w, order):
    parts = [b.reshape(b.slice(x, 0, t, t + 1), x.shape[1:]) for t in range(x.shape[0])]
    return [b.map("tanh", b.matmul(parts[t], w)) for t in order]


def test_rows_of_one_array_are_multiplied_at_once():
    after = optimised(lambda b, x, w: _steps(b, x, w, range(6)), matrix(6, 3, 4), matrix(4, 5))
    assert dots(after) == [((18, 4), (4, 5))]


def test_in_any_order_and_with_gaps():
    order = [7, 0, 2, 1, 3, 6]
    after = optimised(lambda b, x, w: _steps(b, x, w, order), matrix(9, 3, 4), matrix(4, 5))
    assert sorted(dots(after)) == [((3, 4), (4, 5))] * 2 + [((12, 4), (4, 5))]


def test_few_rows_stay():
    after = optimised(lambda b, x, w: _steps(b, x, w, range(3)), matrix(3, 2, 4), matrix(4, 5))
    assert len(dots(after)) == 3


def test_rows_of_a_slice():
    def f(b, x, w):
        return _steps(b, b.slice(x, 2, 1, 5), w, range(5))

    after = optimised(f, matrix(5, 3, 6), matrix(4, 5))
    assert dots(after) == [((15, 4), (4, 5))]


# -- sums --------------------------------------------------------------------------------------


def _sum_of_products(b, xs, ys, *others):
    total = others[0] if others else None
    for x, y in zip(xs, ys, strict=True):
        term = b.matmul(b.transpose(x, (1, 0)), y)
        total = term if total is None else b.map("add", total, term)
    return total


@pytest.mark.parametrize("others", [0, 1])
def test_sums_of_products_are_one_product(others):
    def f(b, *args):
        return _sum_of_products(b, args[:5], args[5:10], *args[10:])

    args = [matrix(3, 8) for _ in range(5)] + [matrix(3, 9) for _ in range(5)]
    after = optimised(f, *args, *([matrix(8, 9)] * others))
    assert dots(after) == [((8, 15), (15, 9))]
    concatenated_values = [v for v in after.values if isinstance(v.primitive, Concatenate)]
    assert [v.shape for v in concatenated_values] == [(15, 8), (15, 9)]
    assert all(isinstance(a.primitive, ProgramInput) for v in concatenated_values for a in v.args)


def test_sums_of_sums():
    def f(b, *args):
        one = _sum_of_products(b, args[:2], args[2:4])
        return b.map("add", _sum_of_products(b, args[4:6], args[6:8]), one)

    args = [matrix(3, 8) for _ in range(2)] + [matrix(3, 9) for _ in range(2)]
    after = optimised(f, *args, *(x * 2 for x in args))
    assert dots(after) == [((8, 12), (12, 9))]


def test_neighbouring_factors_need_no_join():
    def f(b, x, y):
        def rows(v, t):
            return b.reshape(b.slice(v, 0, t, t + 1), v.shape[1:])

        order = [4, 3, 2, 1, 0]  # as the way back goes
        return _sum_of_products(b, [rows(x, t) for t in order], [rows(y, t) for t in order])

    after = optimised(f, matrix(5, 3, 8), matrix(5, 3, 9))
    assert dots(after) == [((8, 15), (15, 9))]
    assert all(not isinstance(v.primitive, Concatenate) for v in after.values)


def test_products_with_other_uses_stay():
    def f(b, *args):
        terms = [
            b.matmul(b.transpose(x, (1, 0)), y) for x, y in zip(args[:4], args[4:], strict=True)
        ]
        total = terms[0]
        for t in terms[1:]:
            total = b.map("add", total, t)
        return [total, b.reduce("maximum", terms[0], (0, 1))]

    after = optimised(f, *[matrix(3, 8) for _ in range(4)], *[matrix(3, 9) for _ in range(4)])
    assert len(dots(after)) == 4


@pytest.mark.parametrize("shape", [(60, 4), (40, 250)])
def test_deep_and_large_products_stay(shape):
    after = optimised(
        lambda b, *args: _sum_of_products(b, args[:4], args[4:]),
        *[matrix(*shape) for _ in range(8)],
    )
    assert len(dots(after)) == 4


# -- recurrent networks ------------------------------------------------------------------------


def test_a_recurrent_network():
    """Of five products a step, those that wait for no other step are one each."""

    def loss(w_in, w_hidden, x):
        hidden = np.zeros((x.shape[1], w_in.shape[1]))
        for t in range(len(x)):
            hidden = np.tanh(x[t] @ w_in + hidden @ w_hidden)
        return np.sum(hidden**2)

    args = matrix(5, 6) / 3, matrix(6, 6) / 3, matrix(8, 3, 5)
    r = recorded(adarray.value_and_grad(loss, argnums=(0, 1)), *args)
    agrees(r, rtol=1e-11)
    # All inputs at once, the states one by one forward and back, two sums for the gradients.
    assert len(dots(r.program)) == 1 + 8 + 7 + 2
    # Transposed factors lie next to each other as rows, the first state, all zeros, too.
    concatenated_values = [v for v in r.program.values if isinstance(v.primitive, Concatenate)]
    assert {v.primitive.axis for v in concatenated_values} == {0}
    assert {v.shape for v in concatenated_values} == {(8 * 3, 6)}


def test_a_factor_in_common() -> None:
    """The gradient of ``x.T @ x`` by `x` is one product, whichever of the factors it shares."""
    x, g = matrix(30, 6), matrix(6, 6)
    after = optimised(
        lambda b, x, g: b.map(
            "add", b.matmul(x, g), b.transpose(b.matmul(g, b.transpose(x, (1, 0))), (1, 0))
        ),
        x, g,
    )  # fmt: skip
    assert dots(after) == [((30, 6), (6, 6))]
    after = optimised(
        lambda b, x, y, z: b.map("add", b.matmul(x, z), b.matmul(y, z)),
        matrix(25, 17), matrix(25, 17), matrix(17, 14),
    )  # fmt: skip
    assert dots(after) == [((25, 17), (17, 14))]


def test_products_without_a_factor_in_common_stay() -> None:
    """So do those that something else reads, and those of vectors, which kernels compute."""
    shapes = [(25, 25)] * 3
    after = optimised(
        lambda b, x, y, z: b.map("add", b.matmul(x, y), b.matmul(y, z)),
        *(matrix(*s) for s in shapes),
    )
    assert len(dots(after)) == 2

    def read_twice(b, x, y, z):
        product = b.matmul(x, y)
        return [b.map("add", product, b.matmul(x, z)), product]

    assert len(dots(optimised(read_twice, *(matrix(*s) for s in shapes)))) == 2
    after = optimised(
        lambda b, x, u, v: b.map("add", b.matmul(x, u), b.matmul(x, v)),
        matrix(5, 4), matrix(4), matrix(4),
    )  # fmt: skip
    assert len(dots(after)) == 2


def test_the_gradient_of_a_gram_matrix() -> None:
    def f(x):
        a = x.T @ x + np.eye(9)
        return np.sum(np.tanh(np.linalg.inv(a)))

    x = matrix(40, 9)
    r = recorded(adarray.grad(f), x)
    agrees(r)
    assert dots(optimise(r.program)).count(((40, 9), (9, 9))) == 1
