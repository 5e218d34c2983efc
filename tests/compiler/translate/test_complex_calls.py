"""Complex arrays in programs: kernels compute with their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import adarray
from adarray.compiler.ir.interpret import interpret
from tests.support.recorded import agrees, recorded

RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "complex128") -> np.ndarray:
    """Return complex numbers of some shape."""
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


X, Y, M = numbers(4, 6), numbers(4, 6), numbers(6, 3)
R = RNG.normal(size=(4, 6))
ODD = np.array([0, -0.0, 1, -1, 1j, -1j, 3 + 4j, -2 - 1e-3j, 1e-200j, 1e200, complex(-0.0, 2)])


def _scattered(x: Any, y: Any) -> Any:
    """Write rows and elements, some twice, into an argument and into what is computed."""
    a, b = x.copy(), x * y
    a[[2, 0, 2]] = y[:3]
    a[[1, 1], [3, 3]] = y[0, :2]
    b[[3, 0]] = 2j
    b[[0, 1, 2], [5, 4, 5]] += y[0, :3]
    return a * 2, a.real, b


FUNCTIONS: dict[str, Callable[..., object]] = {
    "arithmetic": lambda x, y, r: (x + y) * x / y - r * x + x / 2 - 2j / x,
    "negative": lambda x, y, r: -x + (+y),
    "conjugate": lambda x, y, r: np.conj(x) * x.conj(),
    "parts": lambda x, y, r: x.real * y.imag + np.imag(x) - np.real(r),
    "absolute": lambda x, y, r: np.abs(x) + abs(y) ** 2,
    "square": lambda x, y, r: np.square(x) + x**2 + x**3 + x**5 + x**-2 + 1 / x,
    "exp": lambda x, y, r: np.exp(x) + np.exp(1j * r),
    "circular": lambda x, y, r: np.sin(x) + np.cos(y) + np.sinh(x) * np.cosh(y),
    "sqrt": lambda x, y, r: np.sqrt(x) + np.sqrt(-y),
    "sign": lambda x, y, r: np.sign(x) + np.angle(y),
    "where": lambda x, y, r: np.where(r > 0, x, y) + np.where(x == y, 1, r),
    "tests": lambda x, y, r: np.isfinite(x) & (x != y) & ~np.isnan(y) & ~np.isinf(x),
    "truths": lambda x, y, r: np.logical_and(x, y) | np.logical_not(x),
    "views": lambda x, y, r: x.T[1:, ::-1] + np.reshape(y, (6, 4))[1:] + y.ravel()[3],
    "moved": lambda x, y, r: np.roll(x, 2, axis=1) + np.pad(y[:2], ((1, 1), (0, 0))) + np.triu(x),
    "concatenated": lambda x, y, r: np.concatenate([x, y, r], axis=1) * np.stack([x, y])[0, 0, 0],
    "repeated": lambda x, y, r: np.repeat(x, 2, axis=0) + np.tile(y, (2, 1)),
    "picked": lambda x, y, r: x[[0, 2, 2]] + np.take(y, [1, 0, 3], axis=0),
    "sums": lambda x, y, r: (np.sum(x, axis=0), x.mean(axis=1), np.cumsum(y, axis=1), x.sum()),
    "casts": lambda x, y, r: (r.astype(complex) + 1j, x.astype(np.complex64) * 2),
    "products": lambda x, y, r: (x @ y.T, x @ y[0], x[0] @ y[1], np.dot(x, r.T), np.inner(x, y)),
    "contractions": lambda x, y, r: (np.vdot(x, y), np.outer(x[0], y[0]),
                                     np.einsum("ij,kj->i", x, y), np.tensordot(x, y, (1, 1))),
    "constants": lambda x, y, r: x * X + 1j * Y - np.array([1j, 2, 3, 4, 5, 6]),
    "alike": lambda x, y, r: np.zeros_like(x) + np.ones_like(y) * r + np.zeros_like(x, int),
    "scattered": lambda x, y, r: _scattered(x, y),
    "numpy scalars": lambda x, y, r: np.complex128(1 + 2j) * x + np.float64(2) * y,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_computed_by_parts(name: str) -> None:
    r = recorded(FUNCTIONS[name], X, Y, R)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()


@pytest.mark.parametrize("name", ["arithmetic", "absolute", "exp", "sqrt", "sums", "views"])
def test_single_precision_stays(name: str) -> None:
    r = recorded(FUNCTIONS[name], X.astype("c8"), Y.astype("c8"), R.astype("f4"))
    agrees(r, rtol=1e-4)
    assert "python_call" not in r.kinds()


@pytest.mark.parametrize("name", ["negative", "conjugate", "parts", "absolute", "where", "tests",
                                  "truths", "sqrt", "sign", "exp"])  # fmt: skip
def test_zeros_and_large_numbers(name: str) -> None:
    with np.errstate(all="ignore"):
        agrees(recorded(FUNCTIONS[name], ODD, ODD[::-1].copy(), ODD.real.copy()), rtol=1e-12)


def test_division_by_zero_is_infinite_as_numpy_has_it() -> None:
    with np.errstate(all="ignore"):
        agrees(recorded(lambda x, y: x / y, numbers(11), ODD), rtol=1e-12)


SPECIAL = [0.0, -0.0, 1.0, -1.0, -2.5, 800.0, 1e200, np.inf, -np.inf, np.nan]
# Each part with each, and each number beside each.
NUMBERS = np.array([complex(re, im) for re in SPECIAL for im in SPECIAL])
LEFT, RIGHT = (x.ravel() for x in np.meshgrid(NUMBERS, NUMBERS))
REALS = np.array(SPECIAL)[np.arange(NUMBERS.size**2) % len(SPECIAL)]


def same(got: object, want: object) -> None:
    """Check numbers, and the signs of zeros and of infinities."""
    for p, q in zip(np.atleast_1d(got), np.atleast_1d(want), strict=True):
        for x, y in ((p.real, q.real), (p.imag, q.imag)):
            np.testing.assert_allclose(x, y, rtol=1e-12)
            assert np.isnan(x) or np.signbit(x) == np.signbit(y), (p, q)


@pytest.mark.parametrize("name", ["divide", "by real", "of real", "by numbers", "reciprocal",
                                  "sign", "powers"])  # fmt: skip
def test_infinities_nan_and_signed_zeros(name: str) -> None:
    functions = {
        "divide": lambda x, y, r: x / y,
        "by real": lambda x, y, r: x / r,
        "of real": lambda x, y, r: r / y,
        "by numbers": lambda x, y, r: np.stack([x[::97] / c for c in (2, -0.0, 0j, 1 + 2j)]),
        "reciprocal": lambda x, y, r: np.stack([np.reciprocal(y[:100]), y[:100] ** -1]),
        "sign": lambda x, y, r: np.sign(x[:100]),
        "powers": lambda x, y, r: np.stack([x**n for n in (1, 2, 3, 4, -3)]),
    }
    with np.errstate(all="ignore"):
        f = functions[name]
        left = NUMBERS if name == "sign" else LEFT
        if name == "powers":  # sums of overflowing products depend on the processor
            left = NUMBERS[np.abs(NUMBERS) <= 800]
        r = recorded(f, left, RIGHT, REALS)
        assert "python_call" not in r.kinds()
        (got,) = interpret(r.program, r.arrays)
        same(np.ravel(got), np.ravel(f(left, RIGHT, REALS)))


@pytest.mark.parametrize("f", [np.sin, np.cos, np.sinh, np.cosh, np.exp, np.sqrt])
def test_functions_at_the_ends_of_axes(f: Callable[..., np.ndarray]) -> None:
    """A factor that vanishes meets one that overflows; infinities have limits."""
    points = [0, -0.0, 900, -900, 900j, -900j, complex(-900, -0.0), complex(-0.0, 900), 1 + 2j]
    if f in (np.exp, np.sqrt):
        ends = (-np.inf, np.inf)
        points += [complex(a, b) for a in ends for b in (0.0, -0.0, 1.0, -np.inf, np.inf)]
    if f is np.exp:
        points += [complex(-np.inf, np.nan)]
    if f is np.sqrt:
        points += [1e308 * (1 + 1j), complex(np.nan, np.inf), complex(np.inf, np.nan)]
    if f is np.sinh:
        points += [np.inf, -np.inf]
    x = np.array(points, complex)
    with np.errstate(all="ignore"):
        (got,) = interpret(recorded(f, x).program, [x])
        same(got, f(x))


def test_writes_into_slices_and_places() -> None:
    def f(x: np.ndarray, y: np.ndarray) -> object:
        z = x.copy()
        z[1:3, ::2] = y[:2, :3]
        z[0] += 2 * y[1]
        z[[3, 3], [0, 1]] = 1j
        z[z.real > 1] = 0
        return z

    r = recorded(f, X, Y)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()


def test_large_products_are_work_for_a_library() -> None:
    a, b = numbers(20, 30), numbers(30, 40)
    r = recorded(lambda a, b: ((2 * a) @ b, b.T @ a.T, (b.T @ a.T[None])[0]), a, b)
    agrees(r, rtol=1e-12)
    assert "python_call" not in r.kinds()
    assert "matmul" in r.kinds()


def test_calls_read_and_return_complex_arrays() -> None:
    def f(m: np.ndarray, x: np.ndarray) -> object:
        y = np.linalg.solve(m * 2, x + 1)
        return np.sum(y * np.conj(y)), np.linalg.inv(m).T[1:] * 1j, np.fft.fft(x) * x

    m, x = numbers(5, 5), numbers(5)
    agrees(recorded(f, m, x), rtol=1e-10)


@pytest.mark.parametrize("backend", ["serial", "openmp"])
def test_small_products_and_shapes_of_complex_arrays(backend: str) -> None:
    a, x, w = numbers(2, 2), numbers(4096), RNG.normal(size=4096)

    def f(x, a):
        t = np.reshape(np.transpose(np.reshape(x, (2, 2, 1024)), (1, 0, 2)), (2, 2048))
        z = np.reshape(a @ t, (4096,))
        q = np.reshape(z.reshape(4, 1024).T, (4096,))
        return np.sum(np.real(z * z) * w) + np.sum(np.imag(q) * w)

    g = adarray.value_and_grad(f, argnums=(0, 1))
    with adarray.use(backend):
        jitted = adarray.jit(g)
        jitted.compile(x, a)
        value, gradients = jitted(x, a)
        assert "python_call" not in str(jitted.explain(x, a))
    want, expected = g(x, a)
    np.testing.assert_allclose(value, want, 1e-12)
    for got, e in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(e), 1e-12, 1e-12)
