"""Products by one matrix as one product, where they do not wait for each other."""

from __future__ import annotations

import numpy as np
import pytest
from recorded import agrees, recorded

import adarray
from adarray.compiler.ir.builder import Builder
from adarray.compiler.ir.interpret import interpret
from adarray.compiler.ir.primitives import Concatenate, Matmul, PythonCall, Slot
from adarray.compiler.rewrite import optimise, verify_program
from adarray.compiler.rewrite.independence import Independence

RNG = np.random.default_rng(23)


def optimised(make, *arrays):
    """Optimise what `make` builds, compare the values, and return the program."""
    b = Builder()
    inputs = [b.input(i, x.shape, x.dtype) for i, x in enumerate(arrays)]
    before = b.program(make(b, *inputs))
    verify_program(before)
    after = optimise(before, check=True)
    for one, two in zip(interpret(before, arrays), interpret(after, arrays), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14 * np.abs(two).max(initial=10.0))
    return after


def factors(program):
    """Return the shapes of the factors of every product."""
    return [
        tuple(a.shape for a in v.args) for v in program.values if isinstance(v.primitive, Matmul)
    ]


def concatenations(program):
    return [v for v in program.values if isinstance(v.primitive, Concatenate)]


def matrix(*shape):
    return RNG.normal(size=shape)


def step(b, x, axis, t):
    """Return ``x[t]`` or ``x[:, t]``."""
    rest = tuple(n for k, n in enumerate(x.shape) if k != axis)
    return b.reshape(b.slice(x, axis, t, t + 1), rest)


# -- factors that lie in one array -------------------------------------------------------------


def test_interleaved_rows():
    """The steps of a series are the second axis, as in batches of series."""

    def f(b, x, w):
        return [b.map("tanh", b.matmul(step(b, x, 1, t), w)) for t in range(6)]

    after = optimised(f, matrix(3, 6, 4), matrix(4, 5))
    assert factors(after) == [((18, 4), (4, 5))]
    assert not concatenations(after)


def test_some_of_the_interleaved_rows_stay():
    def f(b, x, w):
        return [b.map("tanh", b.matmul(step(b, x, 1, t), w)) for t in range(5)]

    assert len(factors(optimised(f, matrix(3, 6, 4), matrix(4, 5)))) == 5


@pytest.mark.parametrize("axis", [0, 1])
def test_vectors_of_one_array(axis):
    def f(b, x, w):
        return [b.map("tanh", b.matmul(step(b, x, axis, t), w)) for t in range(6)]

    shape = (6, 4) if axis == 0 else (4, 6)
    after = optimised(f, matrix(*shape), matrix(4, 5))
    assert factors(after) == [((6, 4), (4, 5))]


def test_vectors_on_the_right():
    def f(b, w, x):
        return [b.map("tanh", b.matmul(w, step(b, x, 0, t))) for t in range(6)]

    after = optimised(f, matrix(5, 4), matrix(6, 4))
    assert factors(after) == [((6, 4), (4, 5))]


def test_columns_of_one_array():
    """Gates of a recurrent cell, whose weights are columns of one matrix."""

    def f(b, x, w):
        return [b.map("tanh", b.matmul(x, b.slice(w, 1, 3 * k, 3 * k + 3))) for k in range(4)]

    after = optimised(f, matrix(5, 4), matrix(4, 12))
    assert factors(after) == [((5, 4), (4, 12))]


def test_overlapping_windows_are_not_one_matrix():
    """Rows that overlap are no matrix for a library: their sum of products stays in steps."""

    def f(b, x, w):
        windows = [b.slice(x, 0, t, t + 9) for t in range(6)]
        return [b.map("tanh", b.matmul(v, w)) for v in windows]

    after = optimised(f, matrix(20), matrix(9, 5))
    assert all(a != (6, 9) for a, _ in factors(after))


# -- factors that are copied -------------------------------------------------------------------


def _layer(b, w, *xs):
    return [b.map("tanh", b.matmul(x, w)) for x in xs]


@pytest.mark.parametrize("rows", [(), (2,)])
def test_a_layer_of_many_arrays(rows):
    """Few rows wait for the matrix, which one product reads once."""
    after = optimised(_layer, matrix(96, 80), *[matrix(*rows, 96) for _ in range(8)])
    assert factors(after) == [((8 * (rows or (1,))[0], 96), (96, 80))]
    assert len(concatenations(after)) == 1


def test_many_rows_are_not_copied():
    after = optimised(_layer, matrix(48, 40), *[matrix(400, 48) for _ in range(5)])
    assert len(factors(after)) == 5
    assert not concatenations(after)


def test_what_is_concatenated_anyway_is_one_product():
    """The sum of products has the factors next to each other, in its order."""

    def f(b, w, *args):
        xs, gs = args[:5], args[5:]
        total = None
        for x, g in zip(xs[::-1], gs[::-1], strict=True):
            term = b.matmul(b.transpose(x, (1, 0)), g)
            total = term if total is None else b.map("add", total, term)
        return [*_layer(b, w, *xs), total]

    after = optimised(
        f, matrix(48, 40), *[matrix(60, 48) for _ in range(5)], *[matrix(60, 30) for _ in range(5)]
    )
    assert sorted(factors(after)) == [((48, 300), (300, 30)), ((300, 48), (48, 40))]
    assert len(concatenations(after)) == 2


# -- dependence --------------------------------------------------------------------------------


def test_recurrent_products_stay():
    def f(b, h, u):
        for _ in range(6):
            h = b.map("tanh", b.matmul(h, u))
        return [h]

    assert len(factors(optimised(f, matrix(3, 4), matrix(4, 4)))) == 6


def test_chains_of_one_matrix_advance_together():
    """Four series with the same weights: step by step, their products are one."""

    def f(b, u, *hs):
        for _ in range(3):
            hs = [b.map("tanh", b.matmul(h, u)) for h in hs]
        return list(hs)

    after = optimised(f, matrix(96, 96), *[matrix(2, 96) for _ in range(4)])
    assert factors(after) == [((8, 96), (96, 96))] * 3


def test_two_layers_that_take_turns():
    """The second layer's inputs are the first one's states: ready one after the other."""

    def loss(w, u, w2, u2, x):
        h = np.zeros((x.shape[1], n))
        k = np.zeros((x.shape[1], n))
        for t in range(len(x)):
            h = np.tanh(x[t] @ w + h @ u)
            k = np.tanh(h @ w2 + k @ u2)
        return np.sum(k**2)

    n = 16
    args = matrix(n, n) / 4, matrix(n, n) / 4, matrix(n, n) / 4, matrix(n, n) / 4, matrix(6, 12, n)
    r = recorded(adarray.value_and_grad(loss, argnums=(0, 1, 2, 3)), *args)
    agrees(r, rtol=1e-11)
    # Inputs of both layers, their states, the way back, of which one product goes down a layer,
    # and four sums for the gradients.
    assert len(factors(r.program)) == 2 + 2 * 6 + 2 * 5 + 1 + 4


def test_calls_keep_their_order():
    """What waits for the united products is later; a call after it in the program, too."""

    def call(b, x):
        return b.make(PythonCall(np.copy, (Slot(0),), {}), (x,), x.shape, x.dtype)

    def f(b, x, y, w, z):
        first = b.matmul(step(b, x, 0, 0), w)
        early = call(b, first)
        late = call(b, z)
        late_rows = b.map("multiply", y, b.reduce("add", late, (0,)))
        rest = [b.matmul(step(b, x, 0, t), w) for t in range(1, 4)]
        return [early, late, late_rows, *rest]

    arrays = matrix(4, 3, 5), matrix(3, 5), matrix(5, 6), matrix(7)
    after = optimised(f, *arrays)
    assert len(factors(after)) == 1
    calls = [v for v in after.values if isinstance(v.primitive, PythonCall)]
    assert [v.shape for v in calls] == [(3, 6), (7,)]


def test_two_groups_that_would_wait_for_each_other():
    """``x`` before ``y`` in one pair and after it in another: only one group is united."""

    def f(b, w, u, *xs):
        ws = [b.matmul(x, w) for x in xs[:4]]
        us = [b.matmul(x, u) for x in xs[4:]]
        later_us = [b.map("tanh", b.matmul(b.map("tanh", v), u)) for v in ws[:2]]
        later_ws = [b.map("tanh", b.matmul(b.map("tanh", v), w)) for v in us[:2]]
        return [*ws, *us, *later_us, *later_ws]

    after = optimised(f, matrix(64, 64), matrix(64, 64), *[matrix(1, 64) for _ in range(8)])
    verify_program(after)
    assert len(factors(after)) < 12


def test_levels():
    b = Builder()
    x = b.input(0, (3, 3), np.float64)
    one = b.matmul(x, x)
    two = b.matmul(b.map("exp", one), x)
    other = b.matmul(b.map("sin", x), x)
    program = b.program([two, other])
    assert Independence(program).levels([two, one, other]) == [[one, other], [two]]


def _random_products(b, rng, series, x, w, u, wide):
    """Return results of random products of steps, states and weights, in any order."""
    steps, _, n = series.shape
    by_rows = [x, *(step(b, series, 0, t) for t in range(steps))]
    by_rows += [step(b, b.transpose(series, (1, 0, 2)), 1, t) for t in range(steps)]
    vectors = [b.reshape(b.slice(v, 0, 0, 1), (n,)) for v in by_rows]
    weights = [w, u, b.transpose(w, (1, 0))]
    weights += [b.slice(wide, 1, n * k, n * k + n) for k in range(4)]
    squares = [w, u]

    def one(values):
        return values[rng.integers(len(values))]

    for kind in rng.integers(7, size=60):
        match kind:
            case 0 | 1:
                by_rows.append(b.matmul(one(by_rows), one(weights)))
            case 2:
                vectors.append(b.matmul(one(vectors), one(weights)))
            case 3:
                vectors.append(b.matmul(one(weights), one(vectors)))
            case 4:
                by_rows.append(b.map("tanh", b.map("add", one(by_rows), one(by_rows))))
            case 5:
                squares.append(b.matmul(b.transpose(one(by_rows), (1, 0)), one(by_rows)))
            case 6:
                column, row = b.reshape(one(vectors), (n, 1)), b.reshape(one(vectors), (1, n))
                squares.append(b.map("multiply", column, row))
    total = squares[0]
    for term in squares[1:]:
        total = b.map("add", total, term)
    return [total, *by_rows[-6:], *vectors[-6:]]


@pytest.mark.parametrize("seed", range(24))
def test_random_products(seed):
    rng = np.random.default_rng(seed)
    n, rows = int(rng.choice([3, 16, 40])), int(rng.choice([1, 2, 5]))
    shapes = (6, rows, n), (rows, n), (n, n), (n, n), (n, 4 * n)
    optimised(
        lambda b, *args: _random_products(b, rng, *args),
        *[rng.normal(size=s) / np.sqrt(n) for s in shapes],
    )


# -- sums of outer products --------------------------------------------------------------------


def test_a_recurrent_network_of_vectors():
    """Gradients of its weights are sums of outer products: one product of all steps."""

    def loss(w, u, x):
        h = np.zeros(len(u))
        for t in range(len(x)):
            h = np.tanh(x[t] @ w + h @ u)
        return np.sum(h**2)

    n = 24
    args = matrix(n, n) / 5, matrix(n, n) / 5, matrix(40, n)
    r = recorded(adarray.value_and_grad(loss, argnums=(0, 1)), *args)
    agrees(r, rtol=1e-11)
    shapes = factors(r.program)
    assert ((40, n), (n, n)) in shapes  # the inputs
    assert ((n, 40), (40, n)) in shapes  # the gradient of their weights
    assert ((n, 39), (39, n)) in shapes  # that of the state's weights: the first state is zero


def _outer(b, *vectors):
    half = len(vectors) // 2
    total = None
    for x, y in zip(vectors[:half], vectors[half:], strict=True):
        term = b.map("multiply", b.reshape(x, (x.size, 1)), y)
        total = term if total is None else b.map("add", total, term)
    return total


@pytest.mark.parametrize(("terms", "united"), [(3, False), (40, True)])
def test_sums_of_outer_products(terms, united):
    def f(b, w, *vectors):
        total = _outer(b, *vectors)
        return [b.matmul(b.matmul(total, w), total)]

    after = optimised(f, matrix(32, 32), *[matrix(32) for _ in range(2 * terms)])
    assert (((32, terms), (terms, 32)) in factors(after)) is united


def test_elementwise_programs_keep_every_bit():
    after = optimised(lambda b, *vectors: [_outer(b, *vectors)], *[matrix(32) for _ in range(80)])
    assert not factors(after)
