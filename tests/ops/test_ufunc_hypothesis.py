"""Methods of ufuncs on random shapes, strides, axes and arguments against NumPy."""

from __future__ import annotations

import warnings

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

import adarray
from adarray import ADArray

FOLDED = [np.add, np.multiply, np.subtract, np.divide, np.maximum, np.minimum, np.fmax, np.fmin,
          np.hypot, np.logaddexp, np.remainder, np.logical_and, np.greater]  # fmt: skip
DTYPES = [np.float64, np.float32, np.float16, np.complex128, np.int64, np.bool_]


@st.composite
def arrays(draw, max_dims=3):
    """Draw an array of small numbers, perhaps a strided or reversed view, perhaps empty."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=max_dims, min_side=0, max_side=4))
    dtype = draw(st.sampled_from(DTYPES))
    values = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).integers(1, 9, shape)
    x = np.asarray(values / 4).astype(dtype)
    if x.ndim and draw(st.booleans()):
        x = x[:: draw(st.sampled_from([1, -1, 2, -2]))]
    return x.T if draw(st.booleans()) else x


def result(call):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except (ValueError, TypeError, IndexError) as error:
            return error


def agree(got, expected, what):
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), (what, expected)
        return
    assert not isinstance(got, Exception), (what, got)
    got, expected = np.asarray(adarray.value_of(got)), np.asarray(expected)
    assert got.dtype == expected.dtype, what
    assert got.shape == expected.shape, what
    eps = float(np.finfo(got.dtype).eps) if got.dtype.kind in "fc" else 0.0
    np.testing.assert_allclose(got, expected, rtol=40 * eps, atol=40 * eps, err_msg=str(what))


def check(call, x, what):
    """Compare the results for plain, untraced and traced arrays."""
    expected = result(lambda: call(x.copy()))
    agree(result(lambda: call(adarray.array(x))), expected, what)
    if x.dtype.kind not in "fc":
        return
    results = []

    def f(v):
        results.append(result(lambda: call(v)))
        output = results[0]
        if isinstance(output, ADArray) and output.requires_grad:
            return np.sum(np.real(output)) + 0.0 * np.sum(np.real(v))
        return np.sum(np.real(v))

    with np.errstate(all="ignore"):
        slope = adarray.grad(f)(x)
    agree(results[0], expected, (what, "traced"))
    assert slope.shape == x.shape
    assert slope.dtype == x.dtype


axes = st.one_of(st.none(), st.integers(-3, 2), st.lists(st.integers(-3, 2), max_size=3).map(tuple))


@settings(max_examples=120, deadline=None)
@given(arrays(), st.sampled_from(FOLDED), axes, st.data())
def test_reduce(x, ufunc, axis, data):
    kwargs = {"axis": axis}
    if data.draw(st.booleans()):
        kwargs["keepdims"] = data.draw(st.booleans())
    if data.draw(st.booleans()):
        kwargs["initial"] = data.draw(st.sampled_from([1.0, 0.5, 2, None]))
    if data.draw(st.booleans()):
        mask = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 2, x.shape) > 0
        kwargs["where"] = data.draw(st.sampled_from([True, mask]))
    if data.draw(st.booleans()):
        kwargs["dtype"] = data.draw(st.sampled_from([None, np.float64, np.float32, "f8"]))
    check(lambda v: ufunc.reduce(v, **kwargs), x, (ufunc, x, kwargs))


@settings(max_examples=80, deadline=None)
@given(arrays(), st.sampled_from(FOLDED), st.integers(-3, 2))
def test_accumulate(x, ufunc, axis):
    check(lambda v: ufunc.accumulate(v, axis), x, (ufunc, x, axis))


@settings(max_examples=80, deadline=None)
@given(arrays(), st.sampled_from(FOLDED), st.integers(-2, 1), st.lists(st.integers(-1, 4)))
def test_reduceat(x, ufunc, axis, indices):
    at = np.asarray(indices, np.intp)
    check(lambda v: ufunc.reduceat(v, at, axis), x, (ufunc, x, at, axis))


@settings(max_examples=80, deadline=None)
@given(arrays(2), arrays(2), st.sampled_from(FOLDED))
def test_outer(x, y, ufunc):
    check(lambda v: ufunc.outer(v, y), x, (ufunc, x, y))
    check(lambda v: ufunc.outer(x, v), y, (ufunc, x, y))


@settings(max_examples=80, deadline=None)
@given(
    arrays(2),
    st.sampled_from(
        [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.hypot, np.negative]
    ),
    st.lists(st.integers(-3, 2), max_size=6),
    st.floats(0.5, 2.0),
)
def test_at(x, ufunc, indices, value):
    at = np.asarray(indices, np.intp)

    def call(v):
        y = v.copy()
        ufunc.at(y, at, *([value] * (ufunc.nin - 1)))
        return y

    check(call, x, (ufunc, x, at, value))


@settings(max_examples=120, deadline=None)
@given(arrays(), arrays(), st.data())
def test_calls_with_out_and_where(x, y, data):
    ufunc = data.draw(st.sampled_from([np.add, np.divide, np.maximum, np.floor_divide]))
    shape = data.draw(st.sampled_from([x.shape, y.shape, (2, *x.shape)]))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.complex128]))
    where = data.draw(
        st.sampled_from([True, np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2 > 0])
    )
    casting = data.draw(st.sampled_from(["same_kind", "unsafe", "safe"]))

    def call(v):
        out = np.zeros(shape, dtype)
        if isinstance(v, ADArray):
            out = adarray.array(out)
        r = ufunc(v, y, out=out, where=where, casting=casting)
        assert r is out
        return out

    check(call, x, (ufunc, x, y, shape, dtype, where, casting))
