"""Random dtypes, layouts, axes and arguments: what NumPy gives, or raises, adarray does too."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes
from records import CORE

import adarray
from adarray import ADArray, ADArrayError
from adarray.base.op import OPS
from adarray.base.probe import call_plain
from adarray.testing import check_grads
from adarray.testing._compare import mismatch

STEADY = settings(max_examples=40, deadline=None, derandomize=True, database=None)
MANY = settings(STEADY, max_examples=400)
DTYPES = [
    np.float64, np.float32, np.float16, np.longdouble, np.complex128, np.complex64, np.int64,
    np.int8, np.uint8, np.bool_,
]  # fmt: skip
INEXACT = [np.float64, np.float32, np.float16, np.longdouble, np.complex128, np.complex64]
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtypes: list[Any]) -> np.ndarray:
    """Draw an array of any dtype with random strides, order of axes and byte order."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    values = rng.uniform(0.3, 3.0, size=shape)
    if dtype.kind == "c":
        values = values + 1j * rng.uniform(0.1, 1.0, size=shape)
    return laid_out(draw, np.asarray(values).astype(dtype))


def laid_out(draw: st.DrawFn, x: np.ndarray) -> np.ndarray:
    """Return `x` in memory with random gaps, reversals and order of axes."""
    if x.ndim == 0:
        return x
    order = draw(st.permutations(range(x.ndim)))
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in x.shape]
    base = np.zeros(tuple(abs(steps[i]) * x.shape[i] for i in order), x.dtype)
    view = np.transpose(base, tuple(np.argsort(order)))[tuple(slice(None, None, k) for k in steps)]
    view[...] = x
    return view


Outcome = tuple[str, Any]


def outcome(f: Callable[..., Any], *args: Any) -> Outcome:
    """Return ``("value", result)`` or ``("error", exception)``."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return "value", f(*args)
        except Exception as error:
            return "error", error


def agree(got: Outcome, expected: Outcome) -> None:
    """Check that two outcomes are alike: types of errors, or types, dtypes and values."""
    assert got[0] == expected[0], f"{got} is not like {expected}"
    if expected[0] == "error":
        # NumPy's errors of axes and shapes are ValueErrors.
        bases = (ValueError, TypeError, IndexError)
        kinds = [b for b in bases if isinstance(expected[1], b)]
        assert kinds, expected[1]
        assert isinstance(got[1], tuple(kinds)), f"{got[1]!r} is not like {expected[1]!r}"
        return
    results = got[1] if isinstance(expected[1], (tuple, list)) else [got[1]]
    wanted = expected[1] if isinstance(expected[1], (tuple, list)) else [expected[1]]
    assert len(results) == len(wanted)
    for r, e in zip(results, wanted, strict=True):
        value = r._plain if isinstance(r, ADArray) else r
        assert np.shape(value) == np.shape(e)
        if type(e) is int:  # NumPy before 2.1 counts in Python's numbers
            assert type(value) is int
            assert value == e
            continue
        assert value.dtype == e.dtype
        if e.dtype.kind in "fc":
            eps = float(np.finfo(e.dtype).eps)
            np.testing.assert_allclose(value, e, rtol=60 * eps, atol=60 * eps)
        else:
            np.testing.assert_array_equal(value, e)


def traced_outcome(f: Callable[..., Any], x: np.ndarray) -> Outcome:
    """Run `f` on a traced array; refusals of adarray count as None."""
    kind, result = outcome(lambda: adarray.vjp(f, x)[0])
    return kind, result


# -- every record ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CORE))
@settings(max_examples=6, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_every_operation_in_random_layouts_and_dtypes(name: str, data: st.DataObject) -> None:
    op = OPS[name]
    if isinstance(op.samples, tuple):
        shape = data.draw(SHAPES)
        rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        values = [
            rng.integers(0, 2, size=shape).astype(bool) if d[2:] == ("bool",)
            else rng.uniform(*d[:2], size=shape)
            for d in op.samples
        ]  # fmt: skip
        params: dict[str, Any] = {}
    else:
        samples = op.samples(np.random.default_rng(0))
        if not samples:
            assert not any(op.rules)
            return
        sample = samples[data.draw(st.integers(0, len(samples) - 1))]
        values, params, _ = op.bind(sample.args, sample.kwargs)
    dtype = data.draw(st.sampled_from([np.float64, np.float64, np.float32, np.longdouble]))
    operands: list[Any] = []
    for v in values:
        if isinstance(v, (np.ndarray, np.generic)) and v.dtype == np.float64:
            v = np.asarray(v).astype(dtype)
            v = laid_out(data.draw, v) if v.ndim else v[()]
        operands.append(v)
    if not any(isinstance(v, (np.ndarray, np.generic)) for v in operands):
        return
    expected = outcome(lambda: call_plain(op, operands, params))
    args = [ADArray(v) if isinstance(v, (np.ndarray, np.generic)) else v for v in operands]
    agree(outcome(lambda: adarray.core.dispatch.apply(op, tuple(args), params)), expected)
    if dtype != np.float64 or expected[0] == "error":
        return
    picked = [
        i for i, v in enumerate(operands)
        if isinstance(v, (np.ndarray, np.generic)) and v.dtype.kind in "fc"
        and (op.variadic or op.rules[i] is not None)
    ]  # fmt: skip
    results = expected[1] if isinstance(expected[1], tuple) else (expected[1],)
    if picked and all(np.asarray(r).dtype.kind in "fc" for r in results) and not op.invariants:

        def call(*xs: Any) -> Any:
            full = list(operands)
            for i, x in zip(picked, xs, strict=True):
                full[i] = x
            return adarray.core.dispatch.run(op, *full, **params)

        check_grads(call, tuple(operands[i] for i in picked), order=1)


# -- reductions and other functions along axes -------------------------------------------------

ALONG_AXES: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        np.sum, np.prod, np.mean, np.std, np.var, np.max, np.min, np.median, np.ptp, np.any,
        np.all, np.count_nonzero, np.nansum, np.nanprod, np.nanmean, np.nanmax, np.nanmin,
        np.nanvar, np.nanstd, np.nanmedian, np.average,
    )
}  # fmt: skip
AXES = st.none() | st.integers(-4, 3) | st.lists(st.integers(-3, 2), max_size=3).map(tuple)


@MANY
@given(data=st.data(), name=st.sampled_from(sorted(ALONG_AXES)), shape=SHAPES, axis=AXES,
       keepdims=st.booleans())  # fmt: skip
def test_reductions(
    data: st.DataObject, name: str, shape: tuple[int, ...], axis: Any, keepdims: bool
) -> None:
    x = data.draw(arrays(shape, DTYPES))
    function = ALONG_AXES[name]

    def f(v: Any) -> Any:
        return function(v, axis=axis, keepdims=keepdims)

    expected = outcome(f, x)
    agree(outcome(f, ADArray(x)), expected)
    if x.dtype.kind in "fc":
        got = traced_outcome(f, x)
        if not (got[0] == "error" and isinstance(got[1], ADArrayError)):
            agree(got, expected)
        if got[0] == "value" == expected[0] and x.dtype in (np.float64, np.complex128):
            result = np.asarray(expected[1])
            if result.dtype.kind in "fc" and np.isfinite(result).all():
                check_grads(f, (x,), order=1)


@MANY
@given(data=st.data(), shape=SHAPES, axis=st.none() | st.integers(-4, 3),
       name=st.sampled_from(["cumsum", "cumprod", "sort", "argsort", "argmax", "flip", "diff",
                             "roll", "nancumsum", "nancumprod", "argmin"]))  # fmt: skip
def test_functions_along_one_axis(
    data: st.DataObject, name: str, shape: tuple[int, ...], axis: Any
) -> None:
    x = data.draw(arrays(shape, DTYPES))
    function = getattr(np, name)

    def f(v: Any) -> Any:
        return function(v, 1, axis=axis) if name in ("roll", "diff") else function(v, axis=axis)

    expected = outcome(f, x)
    agree(outcome(f, ADArray(x)), expected)
    if x.dtype.kind in "fc":
        agree(traced_outcome(f, x), expected)


# -- ufuncs ------------------------------------------------------------------------------------

BINARY = sorted(
    name for name, u in vars(np).items()
    if isinstance(u, np.ufunc) and u.nin == 2 and u.nout == 1 and u.signature is None
)  # fmt: skip
UNARY = sorted(
    name for name, u in vars(np).items() if isinstance(u, np.ufunc) and u.nin == 1 and u.nout == 1
)


@MANY
@given(data=st.data(), name=st.sampled_from(UNARY), shape=SHAPES)
def test_unary_ufuncs(data: st.DataObject, name: str, shape: tuple[int, ...]) -> None:
    x = data.draw(arrays(shape, DTYPES))
    f = getattr(np, name)
    expected = outcome(f, x)
    agree(outcome(f, ADArray(x)), expected)
    if x.dtype.kind in "fc":
        got = traced_outcome(f, x)
        if not isinstance(got[1], ADArrayError):
            agree(got, expected)


@MANY
@given(data=st.data(), name=st.sampled_from(BINARY),
       shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, min_side=0, max_side=3),
       number=st.sampled_from([None, None, 2, 2.5, 1 + 2j, True, np.float32(1.5), np.int8(2),
                               [1.0, 2.0], np.float64(0.5)]))  # fmt: skip
def test_binary_ufuncs_promote_as_numpy(
    data: st.DataObject, name: str, shapes: Any, number: Any
) -> None:
    f = getattr(np, name)
    x = data.draw(arrays(shapes.input_shapes[0], DTYPES))
    y = data.draw(arrays(shapes.input_shapes[1], DTYPES)) if number is None else number
    expected = outcome(f, x, y)
    agree(outcome(f, ADArray(x), y), expected)
    agree(outcome(f, y, ADArray(x)), outcome(f, y, x))
    if isinstance(y, np.ndarray):
        agree(outcome(f, x, ADArray(y)), expected)
    if x.dtype.kind in "fc":
        got = traced_outcome(lambda v: f(v, y), x)
        if not isinstance(got[1], adarray.NotDifferentiableError):
            agree(got, expected)


# -- shapes and indices ---------------------------------------------------------------------------


@MANY
@given(data=st.data(), shape=SHAPES)
def test_reshape_and_transpose_refuse_what_numpy_refuses(
    data: st.DataObject, shape: tuple[int, ...]
) -> None:
    x = data.draw(arrays(shape, INEXACT))
    to = tuple(data.draw(st.lists(st.integers(-1, 4), max_size=3)))
    axes = tuple(data.draw(st.lists(st.integers(-3, 2), max_size=3)))
    order = data.draw(st.sampled_from("CFA"))
    for f in (
        lambda v: np.reshape(v, to, order=order),
        lambda v: np.transpose(v, axes),
        lambda v: np.broadcast_to(v, to),
        lambda v: np.squeeze(v, axis=axes or None),
        lambda v: np.expand_dims(v, axes),
        lambda v: np.flip(v, axes or None),
    ):
        expected = outcome(f, x)
        agree(outcome(f, ADArray(x)), expected)
        agree(traced_outcome(f, x), expected)


INDEX_PARTS = (
    st.integers(-4, 3)
    | st.builds(slice, *[st.none() | st.integers(-4, 4)] * 2, st.sampled_from([None, 1, -1, 2]))
    | st.just(None)
    | st.just(Ellipsis)
    | st.lists(st.integers(-3, 2), max_size=3)
    | st.lists(st.booleans(), max_size=4).map(lambda b: np.array(b, bool))
)


# Of empty arrays; older versions of NumPy let it pass, newer ones raise an IndexError.
@pytest.mark.filterwarnings("ignore:Out of bound index found:DeprecationWarning")
@MANY
@given(data=st.data(), shape=SHAPES, index=st.lists(INDEX_PARTS, max_size=3).map(tuple))
def test_indexing_and_writing(data: st.DataObject, shape: tuple[int, ...], index: Any) -> None:
    x = data.draw(arrays(shape, [np.float64, np.complex128]))

    def read(v: Any) -> Any:
        return v[index]

    def write(v: Any) -> Any:
        w = v * 1.0
        w[index] = 2.0 * w[index]
        return w * v

    # NumPy's scalars cannot be written into; the array API's 0-d arrays, and ours, can.
    for f in (read, write) if shape else (read,):
        expected = outcome(f, x)
        got = traced_outcome(f, x)
        agree(got, expected)
        if expected[0] == "value":
            check_grads(f, (x,), order=1)


def test_mismatch_is_what_these_tests_rely_on() -> None:
    assert mismatch(np.ones(2), np.ones(2), 1) is None
    with pytest.raises(AssertionError):
        agree(("value", np.ones(2)), ("value", np.ones(2, np.float32)))
    with pytest.raises(AssertionError):
        agree(("value", np.ones(2)), ("error", ValueError()))
