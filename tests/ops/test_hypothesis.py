"""Random shapes, strides and broadcasting: values, gradients and their shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import BroadcastableShapes, mutually_broadcastable_shapes
from records import CORE

import adarray
from adarray.base.op import OPS, Op, Reduction
from adarray.ops.common import unbroadcast
from adarray.testing import check_grads

# Deterministic, and no time limit: the machine may be busy.
STEADY = settings(max_examples=60, deadline=None, derandomize=True, database=None)
UFUNCS = {
    arity: sorted(
        name
        for name, op in CORE.items()
        if op.pointwise and isinstance(op.numpy, np.ufunc) and op.arity == arity
    )
    for arity in (1, 2)
}
PAIRS = mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=4)
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Draw an array of a shape with random strides: gaps, reversals, any order of axes."""
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in shape]
    order = draw(st.permutations(range(len(shape))))
    base_shape = tuple(abs(steps[i]) * shape[i] for i in order)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    base = rng.uniform(low, high, size=base_shape)
    moved = np.transpose(base, tuple(np.argsort(order)) if shape else None)
    array = np.asarray(moved[tuple(slice(None, None, k) for k in steps)])
    assert array.shape == shape
    return array


def operands(draw: st.DrawFn, op: Op, shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    """Draw operands in the domains of an operation."""
    return [
        draw(views(shape, *domain[:2])) for shape, domain in zip(shapes, op.samples, strict=True)
    ]


@STEADY
@given(st.data(), st.sampled_from(UFUNCS[1]), SHAPES)
def test_unary(data: st.DataObject, name: str, shape: tuple[int, ...]) -> None:
    op = OPS[name]
    (x,) = data.draw(st.composite(lambda draw: operands(draw, op, (shape,)))())
    check_grads(op.numpy, (x,), order=1)


@STEADY
@given(st.data(), st.sampled_from(UFUNCS[2]), PAIRS)
def test_binary_with_broadcasting(
    data: st.DataObject, name: str, shapes: BroadcastableShapes
) -> None:
    op = OPS[name]
    x, y = data.draw(st.composite(lambda draw: operands(draw, op, shapes.input_shapes))())
    got = adarray.vjp(op.numpy, x, y)[0]
    np.testing.assert_allclose(got, op.numpy(x, y), rtol=1e-15)
    assert got.shape == shapes.result_shape
    check_grads(op.numpy, (x, y), order=1)


@STEADY
@given(PAIRS, st.integers(0, 2**32))
def test_unbroadcast_is_the_transpose_of_broadcasting(
    shapes: BroadcastableShapes, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    g = rng.normal(size=shapes.result_shape)
    for shape in shapes.input_shapes:
        x = rng.normal(size=shape)
        back = unbroadcast(g, shape)
        assert back.shape == shape
        np.testing.assert_allclose(
            np.sum(back * x), np.sum(g * np.broadcast_to(x, g.shape)), atol=1e-12
        )


@STEADY
@given(st.data(), SHAPES.filter(lambda s: 0 not in s))
def test_reductions_over_random_axes(data: st.DataObject, shape: tuple[int, ...]) -> None:
    name = data.draw(
        st.sampled_from([n for n, op in CORE.items() if isinstance(op.lower, Reduction)])
    )
    axes = data.draw(st.none() | st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=3))
    if not shape:
        axes = None
    axis = None if axes is None else tuple(a - len(shape) if a % 2 else a for a in axes)
    keepdims = data.draw(st.booleans())
    x = data.draw(views(shape, 0.5, 2.0))
    function = OPS[name].numpy
    check_grads(lambda v: function(v, axis=axis, keepdims=keepdims), (x,), order=1)


@STEADY
@given(st.data(), SHAPES)
def test_slices_and_writes(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """A slice read, changed in place and read again through the base."""
    bounds = st.none() | st.integers(-5, 5)
    steps = st.sampled_from([None, 1, 2, -1, -3])
    index = tuple(
        data.draw(st.builds(slice, bounds, bounds, steps) | st.integers(0, n - 1) if n else
                  st.builds(slice, bounds, bounds, steps))
        for n in shape
    )  # fmt: skip
    x = data.draw(views(shape, -2.0, 2.0))

    def f(v: Any) -> Any:
        y = v * 1.0
        part = y[index]
        if np.ndim(part):
            part *= v[index]
        elif shape:
            y[index] = part * v[index]
        return np.sin(y) + np.sum(y[index])

    got = adarray.vjp(f, x)[0]
    np.testing.assert_allclose(got, f(x), rtol=1e-14)
    check_grads(f, (x,), order=2)


@STEADY
@given(st.data())
def test_matmul_of_any_ranks(data: st.DataObject) -> None:
    n, m, k = (data.draw(st.integers(1, 3)) for _ in range(3))
    batch = data.draw(mutually_broadcastable_shapes(num_shapes=2, max_dims=2, max_side=3))
    left = data.draw(st.sampled_from([(k,), (n, k), (*batch.input_shapes[0], n, k)]))
    right = data.draw(st.sampled_from([(k,), (k, m), (*batch.input_shapes[1], k, m)]))
    x, y = data.draw(views(left, -1.0, 1.0)), data.draw(views(right, -1.0, 1.0))
    got = adarray.vjp(np.matmul, x, y)[0]
    np.testing.assert_allclose(got, np.matmul(x, y), rtol=1e-12, atol=1e-14)
    check_grads(np.matmul, (x, y), order=2)


@STEADY
@given(st.data())
def test_einsum_of_random_subscripts(data: st.DataObject) -> None:
    sizes = dict(zip("abcd", (2, 3, 1, 2), strict=True))
    terms = data.draw(st.lists(st.text("abcd", min_size=0, max_size=3), min_size=1, max_size=3))
    present = sorted(set("".join(terms)))
    right = "".join(data.draw(st.permutations(present))[: data.draw(st.integers(0, len(present)))])
    text = ",".join(terms) + "->" + right
    xs = []
    for term in terms:
        # A letter may have length 1 in one operand and more in another.
        shape = tuple(sizes[c] for c in term)
        if len(set(term)) == len(term) and len(terms) > 1:
            shape = tuple(data.draw(st.sampled_from([n, n, 1])) for n in shape)
        xs.append(data.draw(views(shape, -1.0, 1.0)))
    optimize = data.draw(st.booleans())

    def f(*arrays: Any) -> Any:
        return np.einsum(text, *arrays, optimize=optimize)

    try:
        expected = np.einsum(text, *xs)
    except ValueError:
        return  # sizes that NumPy does not broadcast
    np.testing.assert_allclose(adarray.vjp(f, *xs)[0], expected, rtol=1e-12, atol=1e-13)
    check_grads(f, tuple(xs), order=2)


@STEADY
@given(st.data(), SHAPES.filter(lambda s: 0 not in s))
def test_shape_chains(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """Random sequences of moving operations are linear, and their transposes are right."""
    x = data.draw(views(shape, -1.0, 1.0))
    count = data.draw(st.integers(1, 4))
    choices = [data.draw(st.integers(0, 7)) for _ in range(count)]
    seeds = [data.draw(st.integers(0, 2**16)) for _ in range(count)]

    def f(v: Any) -> Any:
        for choice, seed in zip(choices, seeds, strict=True):
            rng = np.random.default_rng(seed)
            axes = tuple(int(i) for i in rng.permutation(v.ndim))
            if choice == 0:
                v = np.transpose(v, axes)
            elif choice == 1:
                v = np.reshape(v, -1, order="F" if seed % 2 else "C")
            elif choice == 2:
                v = np.flip(v, axes[: v.ndim // 2 + 1])
            elif choice == 3:
                v = np.expand_dims(v, seed % (v.ndim + 1))
            elif choice == 4:
                v = np.concatenate([np.atleast_1d(v), np.atleast_1d(v)[..., :1]], axis=-1)
            elif choice == 5:
                v = np.tile(v, 2)
            elif choice == 6:
                v = np.broadcast_to(v, (2, *v.shape))
            else:
                v = np.roll(v, seed % 5)
        return v

    got = adarray.vjp(f, x)[0]
    np.testing.assert_array_equal(got, f(x))
    check_grads(f, (x,), order=1)
