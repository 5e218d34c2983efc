"""`adarray.ops.creation`: NumPy's conversions, with ADArrays let through."""

from __future__ import annotations

import re
from collections import deque
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adarray
from adarray import ADArray
from adarray.ops import creation
from adarray.testing import check_grads

X = np.arange(6.0).reshape(2, 3)
PLAIN = {
    "array": [((X,), {}), (([1, 2],), {"dtype": "f4"}), ((X,), {"ndmin": 3, "order": "F"}),
              (("text",), {}), (([None, 1.0],), {"dtype": object}), ((X,), {"copy": None})],
    "asarray": [((X,), {}), (([1, 2], "f4"), {}), ((X,), {"copy": True}), ((3.0,), {})],
    "asanyarray": [((np.ma.array([1.0]),), {}), ((X, int), {})],
    "ascontiguousarray": [((X.T,), {}), ((2.0,), {})],
    "asfortranarray": [((X,), {}), ((2.0,), {})],
    "asarray_chkfinite": [((X,), {}), (([1, 2],), {"dtype": float})],
    "require": [((X, "f4", "F"), {}), ((X,), {"requirements": ["W", "O"]})],
    "copy": [((X,), {}), ((X.T,), {"order": "C"})],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(creation.CREATION))
def test_plain_arguments_give_exactly_numpys_result(name: str) -> None:
    for args, kwargs in PLAIN[name]:
        r = creation.CREATION[name](*args, **kwargs)
        wanted = getattr(np, name)(*args, **kwargs)
        assert type(r) is type(wanted)
        assert (r.dtype, r.shape, r.flags.f_contiguous) == (
            wanted.dtype, wanted.shape, wanted.flags.f_contiguous,
        )  # fmt: skip
        np.testing.assert_array_equal(r, wanted)
        assert (r is args[0]) == (wanted is args[0])


@pytest.mark.parametrize("name", sorted(creation.CREATION))
def test_adarrays_give_adarrays_with_numpys_layout(name: str) -> None:
    for args, kwargs in PLAIN[name]:
        if not isinstance(args[0], np.ndarray) or type(args[0]) is not np.ndarray:
            continue
        x = adarray.array(args[0])
        x._plain = args[0].copy("K")
        r = creation.CREATION[name](x, *args[1:], **kwargs)
        wanted = getattr(np, name)(x._plain, *args[1:], **kwargs)
        assert isinstance(r, ADArray)
        assert (r.dtype, r._plain.flags.f_contiguous) == (wanted.dtype, wanted.flags.f_contiguous)
        np.testing.assert_array_equal(r.numpy(), wanted)
        assert (r is x) == (wanted is x._plain)


SEQUENCES = {
    "numbers": lambda x: [x[0, 0], 1, 2.0],
    "tuples": lambda x: ((x[0, 0], 1), (2, x[1, 1])),
    "rows": lambda x: [x[0], [1, 2, 3], np.arange(3), range(3)],
    "matrices": lambda x: [x, np.ones((2, 3)), x if isinstance(x, adarray.ADArray) else x.tolist()],
    "deque": lambda x: deque([x[0, 1], 2.0]),
    "empty rows": lambda x: [x[:, :0], [[], []]],
    "float32 with ints": lambda x: [x[0].astype(np.float32), [1, 2, 3]],
    "one element": lambda x: [[x[0, 0]]],
    "objects": lambda x: _objects(x),
}


def _objects(x: Any) -> Any:
    array = np.empty(2, object)
    array[0], array[1] = x[0, 0], 2.5
    return array


@pytest.mark.parametrize("name", sorted(SEQUENCES))
def test_sequences_join_as_numpy_joins_them(name: str) -> None:
    dtype = float if name == "objects" else None
    wanted = np.array(SEQUENCES[name](X), dtype=dtype)
    got = creation.array(SEQUENCES[name](adarray.array(X)), dtype=dtype)
    assert isinstance(got, ADArray)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(got.numpy(), wanted)
    if wanted.size and "float32" not in name:
        check_grads(lambda x: creation.asarray(SEQUENCES[name](x), float) ** 2, (X,))


@st.composite
def nested(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw nested lists with ADArrays of all ranks in them, and the same with plain values."""
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    dtypes = st.sampled_from([np.float32, np.float64, np.int16, np.complex64])

    def part(shape: list[int]) -> tuple[Any, Any]:
        if draw(st.booleans()) and (not shape or draw(st.booleans())):
            values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(draw(dtypes))
            return adarray.array(values), values
        if not shape:
            number = draw(st.sampled_from([2, 0.5, True]))
            return number, number
        pairs = [part(shape[1:]) for _ in range(shape[0])]
        kind = draw(st.sampled_from([list, tuple]))
        return kind(p[0] for p in pairs), kind(p[1] for p in pairs)

    pairs = [part(shape[1:]) for _ in range(shape[0])]
    return [p[0] for p in pairs], [p[1] for p in pairs]


@given(nested())
def test_any_nesting_has_numpys_shape_dtype_and_values(pair: tuple[Any, Any]) -> None:
    ours, plain = pair
    try:
        wanted = np.array(plain)
    except ValueError as error:  # lists of nothing beside arrays of nothing
        with pytest.raises(ValueError, match=re.escape(str(error))):
            creation.array(ours)
        return
    got = creation.array(ours)
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_array_equal(np.asarray(got), wanted)


def test_ragged_sequences_raise_numpys_error() -> None:
    def f(x: Any) -> Any:
        return creation.array([x[0], 1.0])

    with pytest.raises(ValueError, match="inhomogeneous shape"):
        adarray.grad(f)(X)


def test_complex_values_join() -> None:
    z = np.array([1.0 + 2.0j, 0.5 - 1.0j])
    check_grads(lambda z: creation.array([z[0], 1.0, z[1] * z[0], 2j]), (z,))
    check_grads(lambda x: creation.array([x[0, 0], 2j]) ** 2, (X,))


def test_objects_stay_objects() -> None:
    x = adarray.array(1.0)
    array = np.empty(1, object)
    array[0] = x
    assert creation.asarray(array) is array
    assert creation.array(array)[0] is x


def test_zero_dimensional_results_can_be_written_into() -> None:
    def f(x: Any) -> Any:
        total = creation.asarray(np.sum(x))
        total[...] = total * x[0, 0]
        return total

    x = X + 1
    np.testing.assert_allclose(adarray.grad(f)(x), np.ones((2, 3)) + (X == 0) * np.sum(x))


@pytest.mark.parametrize("name", ["array", "asarray", "asanyarray"])
def test_copy_false(name: str) -> None:
    x = adarray.array(X)
    function = creation.CREATION[name]
    assert function(x, copy=False) is x
    with pytest.raises(ValueError, match=f"{name}: copy=False, and a copy is needed for this"):
        function(x, dtype="f4", copy=False)
    with pytest.raises(ValueError, match=f"{name}: copy=False, and a copy is needed for this"):
        function(x, order="F", copy=False)
    with pytest.raises(ValueError, match=f"{name}: copy=False, and a sequence cannot be joined"):
        function([x], copy=False)


def test_arguments_are_honoured() -> None:
    x = adarray.array(X)
    assert creation.array(x, ndmin=4).shape == (1, 1, 2, 3)
    assert creation.asarray([x, x], order="F")._plain.flags.f_contiguous
    assert creation.asarray(x, device="cpu") is x
    with pytest.raises(ValueError, match=r'Only "cpu" is allowed'):
        creation.asarray(x, device="gpu")
    with pytest.raises(ValueError, match=r'Cannot specify both "C" and "F" order'):
        creation.require(x, None, ["C", "F"])
    with pytest.raises(KeyError):
        creation.require(x, None, ["Z"])
    view = x[0]
    assert creation.require(view) is view
    own = creation.require(view, None, "O")
    own[0] = 7.0
    assert float(x[0, 0]) == 0.0
    spread = np.broadcast_to(x, (2, 2, 3))
    creation.require(spread, None, "W")[0] = 1.0
    with pytest.raises(ValueError, match="must not contain infs or NaNs"):
        creation.asarray_chkfinite(adarray.array([np.nan]))
    with pytest.raises(adarray.NotDifferentiableError, match="the argument ndmax=1 does not go"):
        creation.array(x, ndmax=1)


@pytest.mark.parametrize("dtype", [int, bool, object, "U5"])
def test_a_traced_value_stays_inexact(dtype: Any) -> None:
    name = np.dtype(dtype)
    with pytest.raises(adarray.TraceError, match=f"asarray with dtype={name}: a traced value wou"):
        adarray.grad(lambda x: np.sum(creation.asarray(x, dtype)))(X)
