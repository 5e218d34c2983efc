"""NumPy's own implementations over ADArrays: values, derivatives, and NumPy left alone."""

import types

import numpy as np
import pytest

import adarray
from adarray.errors import UnsupportedFunctionError
from adarray.ops.borrow import Converter, Overlay, borrow, borrowed, over_adarrays
from adarray.testing import check_grads

RNG = np.random.default_rng(7)
X = RNG.normal(size=(3, 5))

# name -> (function, body over it, plain arguments); all are written in Python by NumPy
CASES = {
    "cov": (np.cov, {}, (X,)),
    "trapezoid": (np.trapezoid, {}, (X, np.cumsum(np.abs(X), axis=1))),
    "unwrap": (np.unwrap, {}, (3 * X,)),
    "ediff1d": (np.ediff1d, {"to_end": np.ones(2)}, (X,)),
    "cross": (np.cross, {}, (X[:, :3], X[1, :3])),
    "vander": (np.vander, {"N": 3}, (X[0],)),
    "diff": (np.diff, {"n": 2, "axis": 0}, (X,)),
    "chebval": (np.polynomial.chebyshev.chebval, {}, (X[0], X[1])),
    "polyvander": (np.polynomial.polynomial.polyvander, {"deg": 2}, (X[0],)),
}


def inside(function):
    """Return the globals of a borrowed function."""
    return over_adarrays(function._implementation).__globals__


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name):
    function, kwargs, args = CASES[name]
    body = borrowed(function)
    for i in range(len(args)):

        def in_one(x, i=i):
            return body(*args[:i], x, *args[i + 1 :], **kwargs)

        value, _ = adarray.vjp(in_one, args[i])
        np.testing.assert_array_equal(np.asarray(value), function(*args, **kwargs))
        check_grads(in_one, (args[i],))


def test_a_composed_function_matches_the_analytic_gradient():
    grad = adarray.grad(lambda x: borrowed(np.trapezoid)(x * x, dx=0.5))(np.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(grad, [0.5, 2.0, 1.5])


def test_numpy_is_left_as_it_was():
    space = np.diff._implementation.__globals__
    before = dict(space)
    functions = {n: getattr(np, n) for n in ("asarray", "array", "asanyarray", "empty", "zeros")}
    adarray.grad(lambda x: np.sum(borrowed(np.diff)(x)))(np.arange(3.0))
    assert dict(space) == before
    assert all(getattr(np, n) is f for n, f in functions.items())
    assert np.diff._implementation.__globals__ is space


def test_private_helpers_are_borrowed_in_turn():
    overlay = inside(np.median)
    assert isinstance(overlay, Overlay)
    helper = overlay["_median"]
    assert isinstance(helper, types.FunctionType)
    assert helper.__globals__ is overlay
    # A table that holds functions is followed too.
    table = over_adarrays(inside(np.quantile)["_quantile"]).__globals__["_QuantileMethods"]
    assert isinstance(table["linear"]["get_virtual_index"].__globals__, Overlay)


def test_names_that_do_not_exist_are_looked_up_among_the_builtins():
    overlay = inside(np.diff)
    with pytest.raises(KeyError):
        overlay["len"]
    assert "len" not in overlay


def test_allocated_room_takes_traced_values_and_positions_stay_plain():
    space = inside(np.diff)["np"]
    assert isinstance(space.zeros(3), adarray.ADArray)
    assert isinstance(space.empty_like(np.zeros(3)), adarray.ADArray)
    assert type(space.zeros(3, dtype=np.intp)) is np.ndarray
    assert type(space.ones(3, dtype=bool)) is np.ndarray
    assert space.linalg.norm is np.linalg.norm


def test_converter_stands_for_numpys():
    numpys = np._core._multiarray_umath._array_converter
    for args in [(1.0, np.ones(2, np.float32)), ([1, 2], 3), (np.float32(2), 1), (np.arange(3),)]:
        ours, theirs = Converter(*args), numpys(*args)
        assert len(ours) == len(args)
        assert ours.scalar_input == theirs.scalar_input
        assert ours.result_type() == theirs.result_type()
        assert ours.result_type(ensure_inexact=True) == theirs.result_type(ensure_inexact=True)
        assert ours.result_type(np.float64) == theirs.result_type(np.float64)
        for mode in ("convert", "preserve"):
            got, want = ours.as_arrays(pyscalars=mode), theirs.as_arrays(pyscalars=mode)
            assert [type(x) for x in got] == [type(x) for x in want]
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(ours[0], theirs[0])


def test_a_function_without_an_implementation_in_python_is_refused():
    with pytest.raises(UnsupportedFunctionError) as error:
        borrowed(np.concatenate)([np.ones(2)])
    assert str(error.value) == (
        f"concatenate: NumPy {np.__version__} has no implementation of it in Python that could "
        "run over traced arrays; write it with other NumPy functions, or pass "
        "adarray.value_of(x) if no gradient should flow through it"
    )


def test_borrow_leaves_untraced_arguments_to_numpy():
    from adarray.base.op import COMPOSITES

    before = COMPOSITES.get(np.diff)
    try:
        borrow(np.diff)
        x = adarray.array([1, 4, 9])
        r = np.diff(x)
        assert isinstance(r, adarray.ADArray)
        assert r.dtype == np.array([1]).dtype
        np.testing.assert_array_equal(r, [3, 5])
        check_grads(lambda x: np.diff(x, prepend=0.0), (X,))
    finally:
        COMPOSITES.pop(np.diff)
        if before is not None:
            COMPOSITES[np.diff] = before
