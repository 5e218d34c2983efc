"""Arithmetic of views, against what NumPy's views show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adarray.compiler.ir import views
from adarray.compiler.ir.program import c_strides
from adarray.compiler.ir.views import StridedLayout


def shown(view: StridedLayout, x: np.ndarray) -> np.ndarray:
    """Return the elements that a view shows of `x`."""
    at = np.full(view.shape, view.offset)
    for k, (s, n) in enumerate(zip(view.strides, view.shape, strict=True)):
        at += s * np.arange(n).reshape([-1 if i == k else 1 for i in range(len(view.shape))])
    return x.reshape(-1)[at]


def of(seen: np.ndarray, base: np.ndarray) -> StridedLayout:
    """Return a view of NumPy's as a `StridedLayout`."""
    offset = seen.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    strides = tuple(s // base.itemsize for s in seen.strides)
    return views.normal(offset // base.itemsize if seen.size else 0, strides, seen.shape)


SHAPES = st.lists(st.integers(1, 5), min_size=0, max_size=4).map(tuple)


@st.composite
def views_of(draw, x):
    """Draw a view of `x` by NumPy: slices, transposes, broadcasts, reshapes."""
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["slice", "transpose", "reshape", "broadcast", "new", "flip"]))
        if kind == "slice":
            index = [
                slice(*sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n)))),
                      draw(st.integers(1, 3)))
                for n in x.shape
            ]  # fmt: skip
            if all(len(range(*i.indices(n))) for i, n in zip(index, x.shape, strict=True)):
                x = x[(..., *index)]
        elif kind == "transpose":
            x = x.transpose(draw(st.permutations(range(x.ndim))))
        elif kind == "flip":
            x = x[(..., *(slice(None, None, draw(st.sampled_from([1, -1]))) for _ in x.shape))]
        elif kind == "new":
            x = np.expand_dims(x, draw(st.integers(0, x.ndim)))
        elif kind == "broadcast" and x.ndim < 5:
            x = np.broadcast_to(x, (draw(st.integers(1, 3)), *x.shape))
        elif x.flags.c_contiguous and x.size:
            n = draw(st.sampled_from([d for d in range(1, x.size + 1) if x.size % d == 0]))
            x = x.reshape(n, x.size // n)
    return x


@given(st.data(), SHAPES)
@settings(max_examples=150, deadline=None)
def test_views_of_views(data, shape):
    """A composed view shows what the outer one shows of the inner one; if it fits, it composes."""
    base = np.arange(int(np.prod(shape))).reshape(shape)
    first = data.draw(views_of(base))
    inner = of(first, base)
    np.testing.assert_array_equal(shown(inner, base), first)
    middle = np.ascontiguousarray(first).reshape(first.shape)
    second = data.draw(views_of(middle))
    outer = of(second, middle)
    composed = views.compose(outer, inner)
    if composed is not None:
        np.testing.assert_array_equal(shown(composed, base), second)
    else:  # it merges axes that are apart in memory, or moves along two axes at once
        assert views.merged(inner.strides, inner.shape)[1] not in ((), (base.size,))


@given(st.data(), SHAPES)
@settings(max_examples=150, deadline=None)
def test_boxes(data, shape):
    base = np.arange(int(np.prod(shape))).reshape(shape)
    seen = data.draw(views_of(base))
    region = views.region(of(seen, base), shape)
    if region is None:
        return
    starts, steps, axes = region
    index = []
    for k in range(len(shape)):
        n = seen.shape[axes.index(k)] if k in axes else 1
        index.append(starts[k] + steps[k] * np.arange(n))
    box = base[np.ix_(*index)] if shape else base
    order = [k for k in axes if k >= 0]
    rest = [k for k in range(len(shape)) if k not in order]
    np.testing.assert_array_equal(box.transpose(order + rest).reshape(seen.shape), seen)


def test_composition_that_strides_cannot_say():
    transposed = StridedLayout(0, (1, 4), (4, 3))
    assert views.compose(StridedLayout(0, (1,), (12,)), transposed) is None
    assert views.compose(StridedLayout(0, (3, 1), (4, 3)), transposed) == transposed
    # A diagonal of the transposed one is one of the operand.
    assert views.compose(StridedLayout(0, (4,), (3,)), transposed) == StridedLayout(0, (5,), (3,))


def test_normal_form():
    assert views.normal(3, (7, 5), (1, 4)) == StridedLayout(3, (0, 5), (1, 4))
    assert views.normal(3, (7, 5), (0, 4)) == StridedLayout(0, (0, 0), (0, 4))
    assert views.is_whole(StridedLayout(0, (0, 4, 1), (1, 3, 4)), 12)
    assert not views.is_whole(StridedLayout(0, (4, 1), (2, 4)), 12)
    assert not views.is_whole(StridedLayout(0, (1, 4), (4, 3)), 12)


@pytest.mark.parametrize("shapes", [[(3, 1), (4,)], [(), (2,)], [(2, 3)], [(1,), (0,)],
                                    [(5, 1, 1), (1, 4, 1), (3,)]])  # fmt: skip
def test_broadcasting(shapes):
    to = views.broadcast_shape(shapes)
    assert to == np.broadcast_shapes(*shapes)
    for shape in shapes:
        base = np.arange(int(np.prod(shape))).reshape(shape)
        if base.size:
            view = views.normal(0, views.broadcast_strides(shape, to), to)
            np.testing.assert_array_equal(shown(view, base), np.broadcast_to(base, to))


def test_shapes_that_do_not_broadcast():
    with pytest.raises(ValueError, match="do not broadcast"):
        views.broadcast_shape([(3,), (4,)])
    assert c_strides((2, 3)) == (3, 1)
