"""ndarray methods and operators, ufunc methods, ``out=`` and ``dtype=`` on ADArrays."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray import ADArray, NotDifferentiableError, TraceError
from adarray.testing import check_grads
from adarray.testing._ops import use_all_sizes

X = np.random.default_rng(3).normal(size=(3, 4))
B = np.random.default_rng(4).normal(size=(3, 4))

METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum axis": lambda x: x.sum(1),
    "sum axes keepdims": lambda x: x.sum(axis=(0, 1), keepdims=True),
    "sum dtype": lambda x: x.sum(0, dtype=np.float64),
    "mean": lambda x: x.mean(axis=-1, keepdims=True),
    "mean dtype": lambda x: x.mean(dtype=np.float64),
    "std": lambda x: x.std(),
    "std ddof": lambda x: x.std(axis=0, ddof=1),
    "var": lambda x: x.var(axis=1, keepdims=True),
    "var correction": lambda x: np.var(x, correction=1),
    "max": lambda x: x.max(),
    "min axis": lambda x: x.min(axis=0),
    "prod": lambda x: x.prod(axis=1),
    "cumsum": lambda x: x.cumsum(),
    "cumsum axis": lambda x: x.cumsum(axis=1),
    "cumprod": lambda x: x.cumprod(axis=0),
    "ptp": lambda x: np.ptp(x, axis=1),
    "reshape int": lambda x: x.reshape(12),
    "reshape ints": lambda x: x.reshape(2, 6),
    "reshape tuple": lambda x: x.reshape((4, 3)),
    "reshape -1": lambda x: x.reshape(2, -1),
    "reshape F": lambda x: x.reshape(6, 2, order="F"),
    "reshape to nothing": lambda x: x[:1, :1].reshape(()),
    "T": lambda x: x.T * np.arange(3, dtype=x.dtype),
    "mT": lambda x: x.mT * np.arange(3, dtype=x.dtype),
    "transpose": lambda x: x.transpose(),
    "transpose ints": lambda x: x.transpose(1, 0),
    "transpose tuple": lambda x: x.transpose((1, 0)),
    "transpose None": lambda x: x.transpose(None),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "dot": lambda x: x.dot(B.T.astype(x.dtype)),
    "@": lambda x: x @ B.T.astype(x.dtype),
    "reflected @": lambda x: B.T.astype(x.dtype) @ x,
    "flatten": lambda x: x.flatten(),
    "flatten F": lambda x: x.flatten("F"),
    "ravel": lambda x: x.ravel(),
    "ravel F": lambda x: x.ravel("F"),
    "squeeze": lambda x: x[None, :, None].squeeze(),
    "squeeze axis": lambda x: x[None].squeeze(0),
    "diagonal": lambda x: x.diagonal(1),
    "trace": lambda x: x.trace(),
    "repeat": lambda x: x.repeat(2, axis=1),
    "take": lambda x: x.take([0, 5, 5]),
    "compress": lambda x: x.compress([True, False, True], axis=0),
    "copy": lambda x: x.copy() * x,
    "copy F": lambda x: x.copy("F"),
    "clip": lambda x: x.clip(-0.5, 0.5),
    "astype same": lambda x: x.astype(x.dtype),
    "astype float64": lambda x: x.astype(np.float64),
    "astype name": lambda x: x.astype("float64", copy=False),
    "round": lambda x: x.round(1) * x,
    "flat": lambda x: np.stack(list(x.flat)),
    "iteration": lambda x: np.stack([row * row for row in x]),
    "item": lambda x: x * x.item(3),
    "conj": lambda x: x.conj() * x.conjugate() * x.real,
    "imag": lambda x: x.imag + x,
    "argmax": lambda x: x[x.argmax(axis=0), np.arange(4)],
    "argsort": lambda x: x[0][x[0].argsort()],
    "nonzero": lambda x: x[(x > 0).nonzero()],
    "any": lambda x: x * x.any(),
    "masked": lambda x: x[(x > -1) & ~(x > 1)],
    "sort in place": lambda x: _sorted(x),
    "fill in place": lambda x: _filled(x),
}


def _sorted(x: Any) -> Any:
    y = x * 2
    y.sort(axis=0)
    return y


def _filled(x: Any) -> Any:
    y = x * 2
    y[0].fill(x[1, 1])
    return y


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "x + y": lambda x: x + B.astype(x.dtype),
    "y + x": lambda x: B.astype(x.dtype) + x,
    "x - 2": lambda x: x - 2,
    "2 - x": lambda x: 2 - x,
    "x * x": lambda x: x * x,
    "2.5 * x": lambda x: 2.5 * x,
    "x / 3": lambda x: x / 3,
    "1 / x": lambda x: 1 / x,
    "x ** 2": lambda x: x**2,
    "x ** 3.0": lambda x: x**3.0,
    "x ** -1": lambda x: x**-1,
    "x ** 0": lambda x: x**0 + x,
    "x ** 0.5": lambda x: abs(x) ** 0.5,
    "2 ** x": lambda x: 2**x,
    "x ** x": lambda x: abs(x) ** x,
    "-x": lambda x: -x,
    "+x": lambda x: +x,
    "abs": lambda x: abs(x),
    "x % 0.7": lambda x: x % 0.7,
    "3 % x": lambda x: 3 % x,
    "x // 0.7": lambda x: (x // 0.7) * x,
    "list": lambda x: x * [1.0, 2.0, 3.0, 4.0],
    "numpy scalar": lambda x: x * x.dtype.type(2.0),
    "row": lambda x: x * x[0],
    "comparisons": lambda x: (x > 0) * x + (x <= 0.5) * x - (x != 0) * x * (x == x),
    "in place": lambda x: _in_place(x),
}


def _in_place(x: Any) -> Any:
    y = x * 1
    y += x
    y *= 2
    y -= 1
    y /= x
    y **= 2
    return y


UFUNC_METHODS: dict[str, Callable[[Any], Any]] = {
    "add.reduce": np.add.reduce,
    "add.reduce axis": lambda x: np.add.reduce(x, axis=1, keepdims=True),
    "add.reduce None": lambda x: np.add.reduce(x, axis=None),
    "add.reduce dtype": lambda x: np.add.reduce(x, 0, np.float64),
    "multiply.reduce": lambda x: np.multiply.reduce(x, axis=1),
    "maximum.reduce": lambda x: np.maximum.reduce(x, axis=0),
    "minimum.reduce": lambda x: np.minimum.reduce(x, axis=None),
    "add.accumulate": np.add.accumulate,
    "multiply.accumulate": lambda x: np.multiply.accumulate(x, axis=1),
    "multiply.outer": lambda x: np.multiply.outer(x[0], x),
    "subtract.outer plain": lambda x: np.subtract.outer(B[0].astype(x.dtype), x[:, 0]),
    "power.outer": lambda x: np.power.outer(abs(x[0]), x[0]),
    "add.at": lambda x: _at(np.add, x),
    "subtract.at": lambda x: _at(np.subtract, x),
    "dtype": lambda x: np.exp(x, dtype=np.float64),
    "add dtype": lambda x: np.add(x, 1, dtype=np.float64),
    "exp out": lambda x: _out(x, lambda y: np.exp(x, out=y)),
    "exp out positional": lambda x: _out(x, lambda y: np.exp(x, y)),
    "add out": lambda x: _out(x, lambda y: np.add(x, y, out=y)),
    "multiply out tuple": lambda x: _out(x, lambda y: np.multiply(x, y, out=(y,))),
    "sum out": lambda x: _out(x[0], lambda y: np.sum(x, axis=0, out=y)),
    "matmul out": lambda x: _out(x @ x.T, lambda y: np.matmul(x, x.T, out=y)),
    "dot out": lambda x: _out(x @ x.T, lambda y: np.dot(x, x.T, out=y)),
    "einsum out": lambda x: _out(x[:, 0], lambda y: np.einsum("ij->i", x, out=y)),
    "clip out": lambda x: _out(x, lambda y: np.clip(x, -0.5, 0.5, out=y)),
    "cumsum out": lambda x: _out(x, lambda y: np.cumsum(x, axis=0, out=y)),
    "take out": lambda x: _out(x[:2], lambda y: np.take(x, [2, 1], axis=0, out=y)),
    "stack out": lambda x: _out(x[:2], lambda y: np.stack([x[0], x[2]], out=y)),
    "concatenate out": lambda x: _out(x, lambda y: np.concatenate([x[1:], x[:1]], out=y)),
    "max out": lambda x: _out(x[0], lambda y: np.max(x, axis=0, out=y)),
    "mean out": lambda x: _out(x[0], lambda y: x.mean(axis=0, out=y)),
    "nansum out": lambda x: _out(x[0], lambda y: np.nansum(x, axis=0, out=y)),
    "divmod out": lambda x: _out(x, lambda y: np.divmod(x, 0.7, out=(x * 0, y))),
}  # fmt: skip


def _at(ufunc: Any, x: Any) -> Any:
    y = x[0] * 2
    ufunc.at(y, np.array([0, 2, 2]), x[1, :3])
    return y


def _out(like: Any, write: Callable[[Any], Any]) -> Any:
    """Return what `write` leaves in a fresh copy of `like`."""
    y = like * 1.5
    write(y)
    return y * y


CASES = {
    f"{kind}: {name}": f
    for kind, table in (("method", METHODS), ("operator", OPERATORS), ("ufunc", UFUNC_METHODS))
    for name, f in table.items()
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_value_is_numpys(name: str, dtype: type) -> None:
    f, x = CASES[name], X.astype(dtype)
    expected = f(x.copy())
    for got in (f(ADArray(x.copy())).numpy(), adarray.vjp(f, x)[0], adarray.jvp(f, (x,), (x,))[0]):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, rtol=16 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    check_grads(CASES[name], (X,))


@pytest.mark.parametrize("name", CASES)
def test_float32_gradient_has_the_operands_dtype(name: str) -> None:
    x = X.astype(np.float32)
    check_grads(CASES[name], (x,), order=1)
    y, pullback = adarray.vjp(CASES[name], x)
    (g,) = pullback(np.ones(y.shape, y.dtype))
    assert g.dtype == np.float32


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (lambda x: np.float64(2.0) * x, np.float64),
        (lambda x: 2.0 * x, np.float32),
        (lambda x: x * np.ones(4), np.float64),
        (lambda x: x.astype(np.float64) * 2, np.float64),
        (lambda x: np.sum(x, dtype=np.float64) * x, np.float64),
        (lambda x: x * np.arange(4), np.float64),
        (lambda x: x * np.arange(4, dtype=np.int8), np.float32),
        (lambda x: x * True, np.float32),
    ],
)
def test_promotion_is_numpys_and_gradients_keep_the_inputs_dtype(
    f: Callable[[Any], Any], expected: type
) -> None:
    x = X.astype(np.float32)
    y, pullback = adarray.vjp(f, x)
    assert y.dtype == expected == f(x).dtype
    assert pullback(np.ones(y.shape, y.dtype))[0].dtype == np.float32
    _, tangent = adarray.jvp(f, (x,), (x,))
    assert tangent.dtype == expected


CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "greater": lambda x: x > 0, "less_equal": lambda x: np.less_equal(x, 0.1),
    "equal": lambda x: x == x, "sign": np.sign, "argmax": lambda x: np.argmax(x, axis=1),
    "argmin": lambda x: x.argmin(), "argsort": lambda x: np.argsort(x, axis=0),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint,
    "round": lambda x: np.round(x, 1), "isnan": np.isnan, "isfinite": np.isfinite,
    "logical_and": lambda x: np.logical_and(x > 0, x < 1), "all": lambda x: np.all(x > -9),
    "any": lambda x: (x > 0).any(), "nonzero": lambda x: np.nonzero(x > 0)[0],
    "searchsorted": lambda x: np.searchsorted([-1.0, 0.0, 1.0], x),
    "digitize": lambda x: np.digitize(x, np.array([-1.0, 0.0, 1.0])),
    "zeros_like": np.zeros_like, "ones_like": np.ones_like, "floor_divide": lambda x: x // 0.3,
    "astype int": lambda x: x.astype(int), "count_nonzero": lambda x: np.count_nonzero(x > 0),
    "isclose": lambda x: np.isclose(x, x), "array_equal": lambda x: np.array_equal(x, x),
    "shape": lambda x: np.shape(x), "signbit": np.signbit, "invert": lambda x: ~(x > 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTANTS)
def test_constant_functions_pass_as_values(name: str) -> None:
    f = CONSTANTS[name]
    expected = f(X)
    got = adarray.value_and_grad(lambda x: (np.sum(x), f(x)), has_aux=True)(X)[0][1]
    assert np.asarray(got).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(got, expected)

    def used(x: Any) -> Any:
        return np.sum(x * 2.0) + np.sum(np.asarray(f(x)).astype(float))

    g = adarray.grad(used)(X)
    np.testing.assert_array_equal(g, np.full_like(X, 2.0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: np.clip(x, 0, 1, where=X > 0), "clip: the argument where="),
    ],
)  # fmt: skip
def test_refusals_name_the_function_and_the_fix(call: Callable[[Any], Any], message: str) -> None:
    for transform in (adarray.grad, lambda f: lambda x: adarray.jvp(f, (x,), (x,))):
        with pytest.raises(NotDifferentiableError) as caught:
            transform(lambda x: np.sum(call(x)))(X)
        assert str(caught.value).startswith(message)
        assert "; " in str(caught.value)


def test_add_at_into_a_plain_array_is_refused() -> None:
    def f(x: Any) -> Any:
        total = np.zeros(4)
        np.add.at(total, [0, 0], x[0, :2])
        return np.sum(total)

    with pytest.raises(TraceError, match=r"add\.at into a plain ndarray"):
        adarray.grad(f, intercept=False)(X)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "truediv", "pow", "mod"])
def test_shapes_that_do_not_broadcast(name: str) -> None:
    f = getattr(operator, {"add": "add", "subtract": "sub", "multiply": "mul"}.get(name, name))
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(5,\), which do not broadcast"):
        adarray.grad(lambda x: np.sum(f(x, np.ones(5))))(X)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_on_a_backend(name: str, dtype: type, backend: str) -> None:
    """Kernels give the dtypes, values and gradients that NumPy gives."""
    f, x = CASES[name], X.astype(dtype)
    results = []
    for context in (use_all_sizes("numpy"), use_all_sizes(backend)):
        with context:
            y, pullback = adarray.vjp(f, x)
            (g,) = pullback(y)
            results.append((f(ADArray(x)).numpy(), y, g))
    for got, expected in zip(results[1], results[0], strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        tolerance = 200 * np.finfo(dtype).eps
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_an_error_that_is_not_about_shapes_stays_as_it_is() -> None:
    with pytest.raises(ValueError, match="Integers to negative integer powers are not allowed"):
        ADArray(np.array([2, 3])) ** -1


@pytest.mark.parametrize("dtype", [np.float16, np.longdouble, ">f8", ">f4"])
def test_other_floating_dtypes(dtype: Any) -> None:
    x = X.astype(dtype)
    check_grads(lambda v: np.sum(np.tanh(v) @ v.T, axis=0), (x,), order=1)
