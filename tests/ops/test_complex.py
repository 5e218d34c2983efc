"""Complex numbers: the convention, every analytic ufunc, and functions that are not analytic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adarray
from adarray import DTypeError
from adarray.testing import check_grads

RNG = np.random.default_rng(0)
Z = RNG.uniform(0.3, 0.8, size=(2, 3)) + 1j * RNG.uniform(0.2, 0.7, size=(2, 3))
W = RNG.normal(size=(3, 2)) + 1j * RNG.normal(size=(3, 2))
X = RNG.uniform(0.3, 0.8, size=(2, 3))


def test_the_gradient_of_a_real_function_is_dx_minus_i_dy() -> None:
    # f = x**2 * y, so df/dx = 2 x y and df/dy = x**2.
    def f(z: Any) -> Any:
        return np.sum(np.real(z) ** 2 * np.imag(z))

    x, y = Z.real, Z.imag
    np.testing.assert_allclose(adarray.grad(f)(Z), 2 * x * y - 1j * x**2)


def test_descent_along_the_conjugate_finds_the_minimum() -> None:
    target, z = 2.0 - 3.0j, np.array([0j, 5.0 + 1j])
    for _ in range(50):
        z = z - 0.2 * np.conj(adarray.grad(lambda z: np.sum(np.abs(z - target) ** 2))(z))
    np.testing.assert_allclose(z, target)


def test_holomorphic_gradient_is_the_complex_derivative() -> None:
    g = adarray.grad(lambda z: np.sum(np.exp(z) * z), holomorphic=True)(Z)
    np.testing.assert_allclose(g, np.exp(Z) * (Z + 1))
    value, g = adarray.value_and_grad(np.sin, holomorphic=True)(0.5 + 0.1j)
    assert value == np.sin(0.5 + 0.1j)
    assert type(g) is complex
    np.testing.assert_allclose(g, np.cos(0.5 + 0.1j))
    np.testing.assert_allclose(
        adarray.grad(adarray.grad(lambda z: z**4, holomorphic=True), holomorphic=True)(1 + 2j),
        12 * (1 + 2j) ** 2,
    )


def test_jacobians() -> None:
    z = Z[0]
    np.testing.assert_allclose(
        adarray.jacobian(np.square, holomorphic=True)(z), np.diag(2 * z), atol=1e-15
    )
    real_to_complex = adarray.jacobian(lambda x: np.exp(1j * x))(X[0])
    np.testing.assert_allclose(real_to_complex, np.diag(1j * np.exp(1j * X[0])), atol=1e-15)
    complex_to_real = adarray.jacobian(np.abs)(z)
    np.testing.assert_allclose(complex_to_real, np.diag(z.conj() / np.abs(z)), atol=1e-15)


@pytest.mark.parametrize(
    "ufunc",
    [
        np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.square,
        np.reciprocal, np.negative, np.positive, np.sin, np.cos, np.tan, np.arcsin, np.arccos,
        np.arctan, np.sinh, np.cosh, np.tanh, np.arcsinh, np.arccosh, np.arctanh, np.sinc,
    ],
    ids=lambda u: u.__name__,
)  # fmt: skip
def test_analytic_functions_of_one_argument(ufunc: Any) -> None:
    points = Z.copy()
    check_grads(ufunc, (points,))
    # All four quadrants: no branch of a root or logarithm is mistaken for another.
    check_grads(ufunc, (np.concatenate([points, -points, points.conj(), -points.conj()]),))
    check_grads(ufunc, (points.astype(np.complex64),))


@pytest.mark.parametrize(
    "f",
    [np.add, np.subtract, np.multiply, np.divide, np.power],
    ids=lambda u: u.__name__,
)
def test_two_arguments_of_either_kind(f: Any) -> None:
    check_grads(f, (Z, W.T))
    check_grads(f, (X, W.T))
    check_grads(f, (Z, X))
    check_grads(lambda x: f(x, 1 + 2j), (X,))
    check_grads(lambda x: f(2.0, x), (Z,))


NOT_ANALYTIC = {
    "abs": np.abs,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "method conj": lambda z: z.conj() * z,
    "attributes": lambda z: z.real * np.sin(z.imag),
    "angle": np.angle,
    "angle in degrees": lambda z: np.angle(z, deg=True),
    "sign": np.sign,
    "abs squared": lambda z: np.sum(np.abs(z) ** 2),
    "vdot": lambda z: np.vdot(z, W),
    "to real and back": lambda z: np.abs(z) * 1j + z.real,
    "where": lambda z: np.where(X > 0.5, z, np.conj(z)),
    "sum of products": lambda z: np.sum(z @ W * 1j).real,
    "maximum": lambda z: np.maximum(z, W.T),
    "real result of complex steps": lambda z: (z * np.conj(z)).real,
    "astype": lambda z: np.abs(z).astype(complex) * z,
    "write into the real part": lambda z: _written(z),
}


def _written(z: Any) -> Any:
    w = z * 1.0
    w.real[0] = np.imag(z)[1] * 2
    w[1] = np.conj(w[0])
    return w


@pytest.mark.parametrize("name", NOT_ANALYTIC)
def test_functions_that_are_not_analytic(name: str) -> None:
    check_grads(NOT_ANALYTIC[name], (Z,))
    check_grads(NOT_ANALYTIC[name], (Z.astype(np.complex64),))


def test_derivatives_at_zero_are_finite() -> None:
    z = np.array([0j, 1 + 1j])
    g = adarray.grad(lambda z: np.sum(np.abs(z)))(z)
    np.testing.assert_allclose(g, [0, (1 - 1j) / np.sqrt(2)])
    assert np.isfinite(adarray.vjp(np.sign, z)[1](np.ones(2, complex))[0]).all()


def test_real_arguments_get_real_gradients() -> None:
    g = adarray.grad(lambda x: np.sum(np.abs(np.exp(1j * x) + x) ** 2))(X)
    assert g.dtype == np.float64
    g = adarray.grad(lambda x: np.abs(x * (1 + 1j)))(np.float32(2.0))
    assert g.dtype == np.float32


def test_tensor_style() -> None:
    z = adarray.array(Z, requires_grad=True)
    np.sum(np.abs(z) ** 2).backward()
    np.testing.assert_allclose(z.grad, 2 * Z.conj())


def write_parts(z: Any, x: Any) -> None:
    z.imag[1:] = np.sin(x[1:])
    z.real *= x
    z.imag[::2] += z.real[::2]
    z.real[::-1].conj()[0] = 2.0 * x[0]
    z.imag = np.add(z.imag, x, out=z.imag)


def written(x: Any) -> Any:
    z = x * (1.0 + 2.0j)
    write_parts(z, x)
    return np.sum(np.abs(z * z) + z.imag)


def test_parts_are_views_that_can_be_written_into() -> None:
    """Writes into the imaginary part were refused, or lost under jit."""
    x = np.linspace(0.5, 2.0, 5)
    adarray.testing.check_grads(written, (x,), order=2)
    t = np.cos(x)
    value, slope = adarray.jvp(written, (x,), (t,))
    np.testing.assert_allclose(value, written(x))
    compiled = adarray.jit(lambda x, t: adarray.jvp(written, (x,), (t,)))
    for _ in range(3):
        np.testing.assert_allclose(compiled(x, t), (value, slope))
    np.testing.assert_allclose(np.sum(adarray.jit(adarray.grad(written))(x) * t), slope)


def test_parts_of_an_argument_are_written_under_jit() -> None:
    def f(z: Any) -> Any:
        z.imag[0] = 3.0
        z.T.real[1:] = z.T.imag[:-1]
        return np.sum(np.abs(z) ** 2)

    compiled = adarray.jit(f)
    for value in (Z, Z[::-1], np.asfortranarray(Z)):
        for _ in range(3):
            own, plain = value.copy("K"), value.copy("K")
            np.testing.assert_allclose(compiled(own), f(plain))
            np.testing.assert_array_equal(own, plain)


def test_parts_keep_infinities_of_the_other_part() -> None:
    z = adarray.array(np.array([complex(1, np.inf), complex(np.inf, 2)]))
    z.real = 5.0
    np.testing.assert_array_equal(z.numpy(), [complex(5, np.inf), complex(5, 2)])


def test_the_imaginary_part_of_real_numbers_is_read_only() -> None:
    x = adarray.array(np.arange(3.0))
    with pytest.raises(ValueError, match="assignment destination is read-only"):
        x.imag[0] = 1.0


def test_the_conjugate_of_real_numbers_is_the_array_itself() -> None:
    """The method gives the array, the function a copy; a write into the array was lost."""

    def f(x: Any) -> Any:
        y = x * 1.0
        y.conj()[0] = 4.0
        y.conjugate()[1] *= x[1]
        np.conj(y)[2] = 9.0
        return np.sum(y * x)

    x = np.arange(1.0, 5.0)
    adarray.testing.check_grads(f, (x,), order=2)
    compiled = adarray.jit(adarray.value_and_grad(f))
    for _ in range(3):
        value, g = compiled(x)
        assert value == f(x)
        np.testing.assert_array_equal(g, adarray.grad(f)(x))
    y = adarray.array(x)
    assert y.conj() is y
    assert np.conj(y) is not y
    z = adarray.array(Z)
    np.testing.assert_array_equal(z.conj().numpy(), Z.conj())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: adarray.grad(np.sum)(Z),
            "grad: the function returned complex128; return a real number, for instance its "
            "absolute value, or pass holomorphic=True for the derivative of an analytic function",
        ),
        (
            lambda: adarray.grad(lambda z: np.sum(np.abs(z)), holomorphic=True)(Z),
            "grad: holomorphic=True, but the function returned float64; an analytic function "
            "returns a complex number: leave holomorphic out",
        ),
        (
            lambda: adarray.grad(lambda x: np.sum(x * 1j), holomorphic=True)(X),
            "grad: holomorphic=True, but input 0 has dtype float64; pass complex arguments, or "
            "leave holomorphic out",
        ),
        (
            lambda: adarray.jacobian(np.sin)(Z),
            "jacobian: complex numbers have two directions each, and one pass per element finds "
            "one; pass holomorphic=True for an analytic function, or mode='forward' where only "
            "the other side is complex, or view complex arrays as pairs of real numbers",
        ),
        (
            lambda: adarray.vjp(np.sin, X)[1](Z),
            "vjp: the cotangent is complex and the result float64; pass a real one",
        ),
        (
            lambda: adarray.jvp(np.sin, (X,), (Z,)),
            "jvp: primals[0]: has dtype float64 and its tangent is complex; pass a real tangent, "
            "or the primal as a complex number",
        ),
        (
            lambda: adarray.array(1j, requires_grad=True).backward(),
            "backward: the array is complex128; return a real number, for instance its absolute "
            "value, or pass gradient=",
        ),
    ],
)
def test_error_texts(call: Any, message: str) -> None:
    with pytest.raises(DTypeError) as caught:
        call()
    assert str(caught.value) == message


@pytest.mark.parametrize("name", ["serial", "openmp"])
def test_backends_leave_complex_numbers_to_numpy(name: str) -> None:
    try:
        context = adarray.use(name, cutoff=0)
    except adarray.BackendError:
        pytest.skip(f"the {name} backend is not available")
    with context:
        check_grads(lambda z: np.sum(np.abs(np.exp(z) * z) ** 2), (Z,))


EMATH = {
    "sqrt": lambda x: np.emath.sqrt(x),
    "log": lambda x: np.emath.log(x),
    "log2": lambda x: np.emath.log2(x),
    "log10": lambda x: np.emath.log10(x),
    "logn": lambda x: np.emath.logn(3.0, x),
    "arccos": lambda x: np.emath.arccos(x),
    "arcsin": lambda x: np.emath.arcsin(x),
    "arctanh": lambda x: np.emath.arctanh(x),
    "power": lambda x: np.emath.power(x, 1.5),
    "exponent": lambda x: np.emath.power(2.0, x),
}


@pytest.mark.parametrize("name", EMATH)
def test_emath_turns_complex_where_numpy_does(name: str) -> None:
    for x in (np.array([0.5, 0.7]), np.array([-2.5, 0.5, 3.0]), np.array([-0.5, 0.25])):
        expected = EMATH[name](x)
        got = EMATH[name](adarray.array(x, requires_grad=True))
        np.testing.assert_allclose(got.numpy(), expected)
        assert got.dtype == expected.dtype
        check_grads(EMATH[name], (x,))
