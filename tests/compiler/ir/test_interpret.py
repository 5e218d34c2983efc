"""The interpreter of programs: every primitive against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from by_hand import Builder, same
from hypothesis import given, settings
from hypothesis import strategies as st

from adarray.compiler.ir.array_views import array_view
from adarray.compiler.ir.interpret import Interpreted, interpret
from adarray.compiler.ir.primitives import (
    Concatenate,
    GatherND,
    Iota,
    Matmul,
    PrefixScan,
    Reduce,
    ScatterND,
    UpdateSlice,
)
from adarray.errors import ADArrayError

X = np.arange(12.0).reshape(3, 4) + 0.5


# -- maps --------------------------------------------------------------------------------------


def test_maps_broadcast_and_keep_dtypes() -> None:
    b = Builder()
    x, w = b.input(X.astype("f4")), b.input(X[0].astype("f4"))
    two = b.const(2.0, "float32")
    y = b.map("multiply", b.map("subtract", x, w), two)
    y = b.map("where", b.map("greater", y, two, dtype=bool), y, two)
    p = b.program(y, b.map("cast", y, dtype="int64"), b.map("tanh", two))
    x32, w32 = X.astype("f4"), X[0].astype("f4")
    expected = (x32 - w32) * np.float32(2)
    expected = np.where(expected > 2, expected, np.float32(2))
    a, c, t = interpret(p, [x32, w32])
    same(a, expected)
    same(c, expected.astype("i8"))
    same(t, np.tanh(np.float32(2)))


def test_a_map_that_numpy_does_not_have_is_an_error() -> None:
    b = Builder()
    p = b.program(b.map("frobnicate", b.input(X)))
    with pytest.raises(ADArrayError, match="frobnicate"):
        Interpreted(p)


def test_the_number_of_arrays_is_checked() -> None:
    b = Builder()
    p = b.program(b.map("sin", b.input(X)))
    with pytest.raises(ADArrayError, match="1 inputs, got 2"):
        interpret(p, [X, X])


# -- views -------------------------------------------------------------------------------------

VIEWS: dict[str, Any] = {
    "slice": lambda x: x[1:, ::2],
    "reversed": lambda x: x[::-1, ::-1],
    "transpose": lambda x: x.T,
    "flat": lambda x: x.reshape(-1),
    "split": lambda x: x.reshape(3, 2, 2),
    "row": lambda x: x[1],
    "element": lambda x: x[1:2, 2:3].reshape(()),
    "new axis": lambda x: x[:, None, :],
    "broadcast": lambda x: np.broadcast_to(x, (2, 3, 4)),
    "stretched": lambda x: np.broadcast_to(x[:, :1], (3, 5)),
    "diagonal": lambda x: np.diagonal(x),
    "other diagonal": lambda x: np.diagonal(x[:, ::-1]),
    "windows": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, axis=1),
    "across rows": lambda x: x.reshape(-1)[1:11].reshape(2, 5),
    "empty": lambda x: x[3:],
}
LAYOUTS: dict[str, Any] = {
    "contiguous": lambda x: x,
    "fortran": np.asfortranarray,
    "every other": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "backwards": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "stride 0": lambda x: np.broadcast_to(x[0], x.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", VIEWS)
def test_view(name: str, layout: str) -> None:
    x = LAYOUTS[layout](X)
    b = Builder()
    p = b.program(b.view(b.input(x), VIEWS[name]))
    expected = VIEWS[name](np.ascontiguousarray(x))
    (got,) = interpret(p, [x])
    assert not np.shares_memory(got, x)
    same(got, expected if np.ndim(expected) else expected[()])


@pytest.mark.parametrize("layout", ["contiguous", "fortran", "every other", "backwards"])
@pytest.mark.parametrize("name", ["slice", "reversed", "row", "diagonal", "other diagonal"])
def test_views_that_numpy_can_make_copy_nothing(name: str, layout: str) -> None:
    x = LAYOUTS[layout](X)
    seen = VIEWS[name](np.arange(12).reshape(3, 4))
    offset = int(seen.ravel()[0])
    strides = tuple(s // 8 for s in seen.strides)
    got = array_view(x, offset, seen.shape, strides)
    assert np.shares_memory(got, x)
    np.testing.assert_array_equal(got, VIEWS[name](X))


@st.composite
def chains(draw: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Return a shape and functions that make views of views of an array of that shape."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    x: Any = np.zeros(shape)
    steps = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["slice", "transpose", "new", "broadcast", "merge"]))
        if kind == "slice" and x.ndim:
            axis = draw(st.integers(0, x.ndim - 1))
            start = draw(st.integers(0, x.shape[axis] - 1))
            step = draw(st.sampled_from([-2, -1, 1, 2]))
            key = (slice(None),) * axis + (slice(start, None, step),)
            steps.append(lambda x, key=key: x[key])
        elif kind == "transpose":
            order = draw(st.permutations(range(x.ndim)))
            steps.append(lambda x, order=order: x.transpose(order))
        elif kind == "new" and x.ndim < 5:
            axis = draw(st.integers(0, x.ndim))
            steps.append(lambda x, axis=axis: np.expand_dims(x, axis))
        elif kind == "broadcast" and 1 in x.shape:
            to = tuple(3 if n == 1 else n for n in x.shape)
            steps.append(lambda x, to=to: np.broadcast_to(x, to))
        else:
            continue
        x = steps[-1](x)
    return shape, steps


@settings(derandomize=True, max_examples=150, deadline=None)
@given(chain=chains(), layout=st.sampled_from(["C", "F", "strided"]))
def test_views_of_views(chain: Any, layout: str) -> None:
    shape, steps = chain
    x = np.random.default_rng(0).normal(size=shape)
    if layout == "strided":
        x = np.repeat(x, 2, -1)[..., ::2]
    x = np.asarray(x, order="F" if layout == "F" else None)
    b = Builder()
    v, expected = b.input(x), x
    for step in steps:
        # Each is given in elements of its operand in C order, whatever lies in memory.
        v = b.view(v, step)
        expected = step(expected)
    total = b(Reduce("add", tuple(range(v.ndim))), (v,), ())
    got, s = interpret(b.program(v, total), [x])
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_allclose(s, np.sum(expected), rtol=1e-14, atol=1e-14)


# -- folds and products ------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["add", "multiply", "maximum", "minimum"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_reduce_and_scan(combine: str, axes: tuple[int, ...]) -> None:
    fold = getattr(np, combine)
    b = Builder()
    x = b.input(X)
    shape = tuple(n for i, n in enumerate(X.shape) if i not in axes)
    out = [b(Reduce(combine, axes), (x,), shape)]
    out += [b(PrefixScan(combine, i), (x,), X.shape) for i in (0, 1)]
    r, s0, s1 = interpret(b.program(*out), [X])
    np.testing.assert_array_equal(r, fold.reduce(X, axis=axes))
    np.testing.assert_array_equal(s0, fold.accumulate(X, axis=0))
    np.testing.assert_array_equal(s1, fold.accumulate(X, axis=1))


@pytest.mark.parametrize("combine", ["logical_and", "logical_or"])
def test_logical_folds(combine: str) -> None:
    m = X > 3
    b = Builder()
    (got,) = interpret(b.program(b(Reduce(combine, (1,)), (b.input(m),), (3,), bool)), [m])
    same(got, getattr(np, combine).reduce(m, axis=1))


def test_a_reduction_has_the_dtype_of_its_value() -> None:
    b = Builder()
    m = X > 3
    (got,) = interpret(b.program(b(Reduce("add", (0, 1)), (b.input(m),), (), "int64")), [m])
    same(got, np.sum(m))


@pytest.mark.parametrize(
    "shapes", [((3, 4), (4, 2)), ((4,), (4,)), ((2, 3, 4), (4, 3)), ((4,), (4, 3))]
)
def test_dot(shapes: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=s) for s in shapes)
    b = Builder()
    u, w = b.input(x), b.input(y)
    (got,) = interpret(b.program(b(Matmul(), (u, w), np.matmul(x, y).shape)), [x, y])
    same(got, np.matmul(x, y))


# -- joining, placing, picking -----------------------------------------------------------------


def test_join_and_iota() -> None:
    b = Builder()
    x = b.input(X)
    i = b(Iota(0), (), (2, 4), "int64")
    f = b.map("cast", i, dtype="float64")
    joined, counted, along = interpret(
        b.program(b(Concatenate(0), (x, f, x), (8, 4)), i, b(Iota(1), (), (2, 3))), [X]
    )
    rows = np.array([[0.0] * 4, [1.0] * 4])
    same(joined, np.concatenate([X, rows, X]))
    same(counted, rows.astype("i8"))
    same(along, np.array([[0.0, 1, 2]] * 2))


@pytest.mark.parametrize("add", [False, True])
@pytest.mark.parametrize(
    ("starts", "steps", "shape"),
    [
        ((0, 1), (1, 2), (3, 2)),
        ((2, 3), (-1, -1), (3, 4)),
        ((2, 3), (-2, -3), (2, 2)),
        ((1, 0), (1, 1), (1, 4)),
        ((0, 0), (1, 1), (0, 4)),
    ],
)
def test_place(starts: Any, steps: Any, shape: Any, add: bool) -> None:
    y = np.random.default_rng(2).normal(size=shape)
    b = Builder()
    x, v = b.input(X), b.input(y)
    before = X.copy()
    (got,) = interpret(b.program(b(UpdateSlice(starts, steps, add), (x, v), X.shape)), [X, y])
    expected = X.copy()
    rows, columns = (s + t * np.arange(n) for s, t, n in zip(starts, steps, shape, strict=True))
    expected[np.ix_(rows, columns)] = y + add * X[np.ix_(rows, columns)]
    same(got, expected)
    np.testing.assert_array_equal(X, before)


def test_place_into_a_number() -> None:
    b = Builder()
    x, v = b.input(np.float64(1.0)), b.input(np.float64(2.0))
    one = np.array(1.0)
    (got,) = interpret(b.program(b(UpdateSlice((), (), True), (x, v), ())), [one, np.array(2.0)])
    same(got, np.float64(3.0))
    assert one == 1.0


Y = np.random.default_rng(3).normal(size=(3, 4, 5))
I = np.array([[0, 2, 2], [1, -1, 0]])  # noqa: E741
GATHERS: dict[str, Any] = {
    "first axis": ((0,), 0, lambda x: x[I]),
    "last axis": ((2,), 2, lambda x: x[:, :, I]),
    "moved to the front": ((2,), 0, lambda x: np.moveaxis(x[:, :, I], (2, 3), (0, 1))),
    "moved to the end": ((0,), 2, lambda x: np.moveaxis(x[I], (0, 1), (2, 3))),
    "two together": ((1, 2), 1, lambda x: x[:, I, I]),
    "two apart": ((0, 2), 0, lambda x: x[I, :, I]),
    "two apart, moved": ((0, 2), 1, lambda x: np.moveaxis(x[I, :, I], (0, 1), (1, 2))),
    "all": ((0, 1, 2), 0, lambda x: x[I, I, I]),
}


@pytest.mark.parametrize("name", GATHERS)
@pytest.mark.parametrize("add", [False, True])
def test_gather_and_scatter(name: str, add: bool) -> None:
    axes, position, of = GATHERS[name]
    expected = of(Y)
    g = np.random.default_rng(4).normal(size=expected.shape)
    b = Builder()
    y, v, i = b.input(Y), b.input(g), b.input(I)
    indices = (i,) * len(axes)
    got, back = interpret(
        b.program(
            b(GatherND(axes, position), (y, *indices), expected.shape),
            b(ScatterND(axes, position, add), (y, v, *indices), Y.shape),
        ),
        [Y, g, I],
    )
    same(got, expected)
    # Every element by itself: `of` finds where each element of g goes.
    flat, places = Y.copy().reshape(-1), of(np.arange(Y.size).reshape(Y.shape))
    order = sorted(np.ndindex(places.shape), key=lambda at: at[position:] + at[:position])
    for at in order:
        flat[places[at]] = g[at] + (flat[places[at]] if add else 0)
    np.testing.assert_allclose(back, flat.reshape(Y.shape), rtol=1e-14)


def test_gather_at_one_index() -> None:
    b = Builder()
    y, i = b.input(Y), b.input(np.int64(-1))
    index = np.array(-1)
    got, back = interpret(
        b.program(
            b(GatherND((1,), 0), (y, i), (3, 5)),
            b(ScatterND((1,), 0, False), (y, b.const(7.0), i), Y.shape),
        ),
        [Y, index],
    )
    expected = Y.copy()
    expected[:, -1] = 7.0
    same(got, Y[:, -1])
    same(back, expected)


def test_an_index_out_of_range_is_an_error() -> None:
    b = Builder()
    y, i = b.input(Y), b.input(I)
    p = b.program(b(GatherND((0,), 0), (y, i), (2, 3, 4, 5)))
    with pytest.raises(IndexError):
        interpret(p, [Y, I + 7])
