"""Every ufunc with every kind of operand: NumPy's values and dtypes (NEP 50)."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import adarray
from adarray import ADArray, ADArrayError, NotDifferentiableError
from adarray.base.op import COMPOSITES, CONSTANT_FUNCTIONS, FUNCTIONS

UFUNCS = sorted(
    {u for u in vars(np).values() if isinstance(u, np.ufunc) and u.signature is None},
    key=lambda u: u.__name__,
)
# Before NumPy 2.1, ** takes an array without axes for a Python number, and np.power does not.
POWERS_AGREE = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
VALUES = np.array([0.25, 0.5, 0.75])
ARRAYS = {
    "float32": VALUES.astype(np.float32),
    "float64": VALUES,
    "float16": VALUES.astype(np.float16),
    "longdouble": VALUES.astype(np.longdouble),
    "complex64": VALUES.astype(np.complex64),
    "complex128": VALUES * (1 + 0.5j),
    "0-d": np.array(0.5, np.float32),
}
OTHERS = {
    **ARRAYS,
    "int8": np.array([1, 2, 1], np.int8),
    "int64": np.array([1, 2, 1]),
    "uint64": np.array([1, 2, 1], np.uint64),
    "bool": np.array([True, False, True]),
    "np.float64": np.float64(0.5),
    "np.float32": np.float32(0.5),
    "np.int64": np.int64(2),
    "np.bool": np.bool(True),
    "np.complex64": np.complex64(0.5),
    "Python float": 0.5,
    "Python int": 2,
    "Python bool": True,
    "Python complex": 0.5 + 0.25j,
    "list of floats": [0.5, 0.25, 1.0],
    "list of ints": [1, 2, 3],
    "tuple": (1.0, 2.0, 3.0),
    "big-endian": VALUES.astype(">f8"),
    "big-endian float32": VALUES.astype(">f4"),
    "read-only": np.broadcast_to(np.float32(0.5), (3,)),
    "strided": np.arange(6.0)[::-2] / 8,
}  # fmt: skip


def outcome(call):
    """Return the results of a call, or the type of error that it raises."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            r = call()
        except (TypeError, ValueError, ADArrayError) as error:
            return error
    return r if isinstance(r, tuple) else (r,)


def compare(got, expected, what):
    if "power" in str(what) and not POWERS_AGREE:
        return
    if isinstance(expected, Exception):
        assert isinstance(got, Exception), what
        return
    if isinstance(got, NotDifferentiableError):  # the second operand of nextafter
        return
    assert not isinstance(got, Exception), (what, got)
    for g, e in zip(got, expected, strict=True):
        v = adarray.value_of(g)
        assert np.asarray(v).dtype == np.asarray(e).dtype, what
        assert np.shape(v) == np.shape(e), what
        # The same loops of NumPy run; its operator ** has short ways that np.power has not.
        # The sign of a complex number is computed as z / |z|.
        powers = any(n in str(what) for n in ("power", "sign")) and np.asarray(e).dtype.kind in "fc"
        eps = float(np.finfo(np.asarray(e).dtype).eps) if powers else 0.0
        np.testing.assert_allclose(v, e, rtol=4 * eps, err_msg=str(what))


def traced_outcome(ufunc, operands, traced):
    """Return what `ufunc` gives when the operands numbered `traced` are traced."""
    results = []

    def f(*xs):
        it = iter(xs)
        args = tuple(next(it) if k in traced else x for k, x in enumerate(operands))
        results.append(outcome(lambda: ufunc(*args)))
        return sum(np.sum(np.real(x)) for x in xs)

    xs = [operands[k] for k in traced]
    g = adarray.grad(f, argnums=tuple(range(len(xs))))
    outcome(lambda: g(*xs))  # which raises if the call was refused
    return results[0]


def differentiable(ufunc):
    return ufunc in FUNCTIONS or ufunc in COMPOSITES or ufunc in CONSTANT_FUNCTIONS


@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 1], ids=lambda u: u.__name__)
def test_one_operand(ufunc):
    for name, x in ARRAYS.items():
        expected = outcome(lambda: ufunc(x))  # noqa: B023
        compare(outcome(lambda: ufunc(adarray.array(x))), expected, (ufunc, name))  # noqa: B023
        if differentiable(ufunc):
            compare(traced_outcome(ufunc, (x,), (0,)), expected, (ufunc, name, "traced"))


@pytest.mark.slow
@pytest.mark.parametrize("ufunc", [u for u in UFUNCS if u.nin == 2], ids=lambda u: u.__name__)
def test_two_operands(ufunc):
    for name, x in ARRAYS.items():
        for other, y in OTHERS.items():
            for operands, k in (((x, y), 0), ((y, x), 1)):
                what = (ufunc.__name__, name, other, k)
                expected = outcome(lambda: ufunc(*operands))  # noqa: B023
                a = list(operands)
                a[k] = adarray.array(x)
                compare(outcome(lambda: ufunc(*a)), expected, what)  # noqa: B023
                if differentiable(ufunc):
                    compare(traced_outcome(ufunc, operands, (k,)), expected, (*what, "traced"))


def test_both_operands_traced():
    for ufunc in (np.add, np.multiply, np.divide, np.power, np.maximum, np.hypot):
        for x in ARRAYS.values():
            for y in ARRAYS.values():
                expected = outcome(lambda: ufunc(x, y))  # noqa: B023
                compare(traced_outcome(ufunc, (x, y), (0, 1)), expected, (ufunc, x, y))


def test_python_numbers_stay_weak():
    x = np.ones(3, np.float32)

    def f(a, b):
        c = a * 2.0 + b.sum().item()
        assert (x * c).dtype == np.float32
        assert (x * (c**2 - 1) / abs(-c)).dtype == np.float32
        assert (x * (1j * c)).dtype == np.complex64
        assert (x * np.sin(c)).dtype == np.float64
        assert (b * c).dtype == np.float32
        return np.sum(x * c)

    da, db = adarray.grad(f, argnums=(0, 1))(1.5, x)
    assert type(da) is float or da.dtype == np.float64
    assert db.dtype == np.float32


def test_float32_stays_float32_through_a_network():
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    w = np.ones((3, 4), np.float32)

    def f(w):
        h = np.tanh(x @ w * 0.5 + 1)
        h = h / np.sqrt((h**2).sum(-1, keepdims=True) + 1e-6)
        h = np.where(h > 0, h, 0.1 * h).mean(0) - np.float32(0.25)
        assert isinstance(h, ADArray)
        assert h.dtype == np.float32
        return np.logaddexp.reduce(np.clip(h, -3, 3)) * 2

    value, grad = adarray.value_and_grad(f)(w)
    assert value.dtype == np.float32
    assert grad.dtype == np.float32
