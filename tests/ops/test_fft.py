"""`numpy.fft`: every function, option and length against NumPy and differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adarray
from adarray import ADArray, TraceError
from adarray.testing import check_grads

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
MANY = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
REAL_INPUT = ("rfft", "ihfft", "rfft2", "rfftn")
DTYPES = [np.float64, np.float32, np.complex128, np.complex64]


def normal(*shape: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng((seed, *shape))
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def takes(name: str, dtype: Any) -> bool:
    return np.dtype(dtype).kind == "f" or name not in REAL_INPUT


def compare(f: Callable[..., Any], x: np.ndarray) -> None:
    """Check values and dtypes, untraced and traced, and derivatives of two orders."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        expected = f(x)
        for got in (f(ADArray(x)).numpy(), adarray.vjp(f, x)[0]):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(got, expected)
        check_grads(f, (x,))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, norm: Any, dtype: type) -> None:
    if not takes(name, dtype):
        with pytest.raises(TypeError):
            adarray.vjp(getattr(np.fft, name), normal(4, dtype=dtype))
        return
    transform = getattr(np.fft, name)
    for length in (2, 3, 4, 5):
        x = normal(2, length, dtype=dtype)
        for n in (None, 1, 4, 5, 8):
            compare(lambda a, n=n: transform(a, n, norm=norm), x)
    compare(lambda a: transform(a, axis=0, norm=norm), normal(5, 2, dtype=dtype)[::-1])
    compare(lambda a: transform(a, 3, -2, norm), normal(2, 4, 2, dtype=dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=[np.dtype(d).name for d in DTYPES])
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", MANY)
def test_several_axes(name: str, norm: Any, dtype: type) -> None:
    transform = getattr(np.fft, name)
    x = normal(2, 3, 4, dtype=dtype)
    if not takes(name, dtype):
        with pytest.raises(TypeError):
            adarray.vjp(transform, x)
        return
    compare(lambda a: transform(a, norm=norm), x)
    compare(lambda a: transform(a, axes=(0, 2), norm=norm), x)
    compare(lambda a: transform(a, s=(3, 6), axes=(-1, 0), norm=norm), x)
    compare(lambda a: transform(a, (2, -1), (1, 2), norm), x)
    compare(lambda a: transform(a, (5, 2), None, norm), x)  # deprecated by NumPy
    if name.endswith("n"):
        compare(lambda a: transform(a, axes=(1,), norm=norm), x)
        if name in ("fftn", "ifftn"):
            compare(lambda a: transform(a, axes=(1, 1), norm=norm), x)
            compare(lambda a: transform(a, axes=(), norm=norm), x)


@pytest.mark.parametrize("name", ["fftshift", "ifftshift"])
@pytest.mark.parametrize("axes", [None, 0, -1, (0, 2), [1]])
def test_shifts(name: str, axes: Any) -> None:
    shift = getattr(np.fft, name)
    compare(lambda a: shift(a, axes) * a, normal(2, 3, 5))
    compare(lambda a: shift(a, axes=axes) * a, normal(2, 3, 5, dtype=np.complex64))


def test_frequencies_are_linear_in_the_inverse_spacing() -> None:
    check_grads(lambda d: np.fft.fftfreq(5, d), (0.3,))
    check_grads(lambda d: np.fft.rfftfreq(6, d=d), (np.float64(0.3),))
    traced = adarray.vjp(lambda d: np.fft.fftfreq(5, d), 0.3)[0]
    np.testing.assert_allclose(traced, np.fft.fftfreq(5, 0.3), rtol=1e-15)


def test_circular_convolution_by_the_theorem() -> None:
    x, k = normal(8), normal(8, seed=1)

    def convolved(a: Any, b: Any) -> Any:
        return np.fft.irfft(np.fft.rfft(a) * np.fft.rfft(b), n=8)

    check_grads(convolved, (x, k))
    (gradient,) = adarray.vjp(lambda a: convolved(a, k), x)[1](np.eye(8)[0])
    np.testing.assert_allclose(gradient, k[-np.arange(8)], atol=1e-14)


def test_power_spectrum_of_a_real_signal() -> None:
    # Parseval: the powers sum to n times the energy, so the gradient is 2 n x.
    for n in (7, 8):
        x = normal(n)
        gradient = adarray.grad(lambda a: np.sum(np.abs(np.fft.fft(a)) ** 2))(x)
        assert gradient.dtype == np.float64
        np.testing.assert_allclose(gradient, 2 * n * x, rtol=1e-13)


@pytest.mark.parametrize("name", ONE + MANY)
def test_out(name: str) -> None:
    transform = getattr(np.fft, name)
    x = normal(3, 4)

    def into(a: Any) -> Any:
        expected = transform(np.asarray(x))
        target = np.zeros_like(a, shape=expected.shape, dtype=expected.dtype)
        result = transform(a, out=target)
        # NumPy 2.4 itself forgets out= in hfft, ifft2 and irfft2.
        assert result is target or not isinstance(a, ADArray)
        return result

    check_grads(into, (x,))
    assert np.array_equal(into(ADArray(x)).numpy(), transform(x))
    plain = np.zeros_like(transform(x))
    with pytest.raises(TraceError):
        adarray.vjp(lambda a: transform(a, out=plain), x)
    transform(ADArray(x), out=plain)
    assert np.array_equal(plain, transform(x))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.fft.fft(x, 0), lambda x: np.fft.fft(x, norm="nonsense"),
        lambda x: np.fft.fft(x, axis=3), lambda x: np.fft.rfft(x, -2),
        lambda x: np.fft.irfft(x[:, :1]), lambda x: np.fft.fftn(x, (2, 3), (0,)),
        lambda x: np.fft.fft2(x[0]), lambda x: np.fft.fft(x[:, :0]), lambda x: np.fft.fft(x, 2.5),
        lambda x: np.fft.irfftn(x, axes=(0, 7)), lambda x: np.fft.fft(x[0, 0]),
    ],
)  # fmt: skip
def test_errors_are_numpy_s(call: Callable[[Any], Any]) -> None:
    x = normal(2, 3)
    with pytest.raises((ValueError, TypeError, IndexError)) as plain:
        call(x)
    for run in (lambda: call(ADArray(x)), lambda: adarray.vjp(call, x)):
        with pytest.raises(plain.type) as caught:
            run()
        assert str(plain.value) in str(caught.value)


def test_empty_stacks() -> None:
    x = np.zeros((0, 4))
    for name in ONE + MANY[:4]:
        transform = getattr(np.fft, name)
        if name in MANY:
            transform = lambda a, f=transform: f(a, s=(2, 4))  # noqa: E731
        y, pullback = adarray.vjp(transform, x)
        assert y.shape == transform(x).shape
        assert pullback(np.zeros_like(y))[0].shape == x.shape


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(ONE),
    length=st.integers(2, 9),
    n=st.none() | st.integers(1, 12),
    norm=st.sampled_from([None, "ortho", "forward"]),
    complex_input=st.booleans(),
    seed=st.integers(0, 99),
)
def test_pullbacks_are_transposes(
    name: str, length: int, n: Any, norm: Any, complex_input: bool, seed: int
) -> None:
    """The pairing Re(sum(g * f(t))) equals Re(sum(pullback(g) * t))."""
    dtype = np.complex128 if complex_input and name not in REAL_INPUT else np.float64
    t = normal(length, dtype=dtype, seed=seed)
    y, pullback = adarray.vjp(lambda a: getattr(np.fft, name)(a, n, norm=norm), t)
    g = normal(*y.shape, dtype=y.dtype, seed=seed + 1)
    (ct,) = pullback(g)
    assert ct.dtype == dtype
    assert np.sum(ct * t).real == pytest.approx(np.sum(g * y).real, rel=1e-10, abs=1e-10)
