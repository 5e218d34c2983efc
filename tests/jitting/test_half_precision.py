"""float16 in compiled code: the bits that NumPy computes, in kernels that compute in float32."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from differential import same_bits

import adarray
from adarray.testing._ops import use_all_sizes

RNG = np.random.default_rng(0)
BITS = np.arange(1 << 16, dtype=np.uint16)
# Every number, and nan; no signalling one, with which the power of 1 depends on the library.
ALL = np.where((BITS & 0x7FFF) > 0x7C00, BITS | 0x0200, BITS).view(np.float16)
OTHER = RNG.permutation(ALL)
X, W = RNG.normal(size=(37, 53)).astype(np.float16), RNG.normal(size=(37, 53)).astype(np.float16)
ROWS = RNG.integers(0, 37, 90)
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint64")
# Numbers of float64 that are rounded twice on the way through float32, and others.
HARD = np.concatenate([
    10.0 ** RNG.uniform(-9, 6, 20000), [np.inf, np.nan, -0.0, 5e-324, 1e300, -1e300],
    [65519.999, 65520.0, 2.0**-25, 2.0**-25 * (1 + 2.0**-40)],
    [1 + 2.0**-11, 1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40],
])  # fmt: skip


def _written(x: Any, w: Any) -> Any:
    y = x.copy()
    y[3:9] = w[3:9] * 2
    y[:, ::2] += w[:, ::2]
    y *= 2
    y[ROWS] = w[ROWS]
    return y


EXACT = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / y, -x, abs(x), +x),
    "remainders": lambda x, y: (x % y, x // y, np.fmod(x, y), x % 3, x // 0.3),
    "choices": lambda x, y: (np.maximum(x, y), np.minimum(x, y), np.fmax(x, y), np.fmin(x, y)),
    "comparisons": lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, x > 0.1),
    "truths": lambda x, y: (np.logical_and(x, y), np.logical_xor(x, y), ~x.astype(bool)),
    "kinds": lambda x, y: (np.isnan(x), np.isinf(x), np.isfinite(x), np.signbit(x)),
    "parts": lambda x, y: (np.sign(x), np.copysign(x, y), np.modf(x)[0], np.heaviside(x, y)),
    "integers": lambda x, y: (np.floor(x), np.ceil(x), np.trunc(x), np.rint(x), np.round(x, 2)),
    "powers": lambda x, y: (np.sqrt(x), x**2, np.square(x), 1 / x, np.reciprocal(x), x**-1),
    "neighbours": lambda x, y: (np.nextafter(x, y), np.spacing(x)),
    "numbers": lambda x, y: (x * 2.5, x + 0.1, 70000.0 - x, x * np.float32(0.1)),
    "where": lambda x, y: (np.where(x > y, x, y), np.where(x > 0, x, 0), np.clip(x, -2, y)),
    "holes": lambda x, y: np.nan_to_num(x),
    "angles": lambda x, y: (np.deg2rad(x), np.rad2deg(x)),
    "floats": lambda x, y: (x.astype(np.float32), x.astype(np.float64), x.astype(bool)),
}
SHAPED = {
    "integers": lambda x, w: tuple((x * 40).astype(d) for d in INTEGERS[:4]),
    "unsigned": lambda x, w: tuple(abs(x * 40).astype(d) for d in INTEGERS[4:]),
    "promotion": lambda x, w: (x + w.astype(np.float32), x * w.astype(float), x * w.astype("i1")),
    "gathers": lambda x, w: (x[ROWS] * 2, np.take(w, ROWS, axis=0), x[1:, ROWS % 5]),
    "joins": lambda x, w: (np.concatenate([x, w * 2, x[:3]]), np.stack([x, w], 1) * 1),
    "layouts": lambda x, w: ((x.T + 1)[::2], x[::-1, ::-2] + 1, np.roll(x, 3, 1) - x),
    "stencils": lambda x, w: (x[1:-1] * 2 - x[2:] - x[:-2], np.pad(x * 2, 2), np.diff(x, 2)),
    "writes": _written,
    "extrema": lambda x, w: (x.max(), x.min(axis=0), np.argmax(x, 1), np.maximum.accumulate(w)),
    "counts": lambda x, w: (np.any(x > 1, axis=0), np.count_nonzero(x), np.sum(x > 0)),
    "small": lambda x, w: (x[0, 0] * 2 + w[1, 1], np.full((3, 4), 1.5, np.float16) - x[:3, :4]),
    "ranges": lambda x, w: np.arange(53, dtype=np.float16) * x + np.zeros_like(w),
    "outer products": lambda x, w: np.outer(x[0], w[1]),
    "sorting": lambda x, w: (np.sort(x, axis=1), np.searchsorted(np.sort(w[0]), x[0])),
}  # fmt: skip
# At most so many units in the last place from NumPy, which computes in float32 as well.
CLOSE = {
    "exponentials": lambda x, y: (np.exp(x), np.exp2(x), np.expm1(x)),
    "logarithms": lambda x, y: (np.log(x), np.log2(x), np.log10(x), np.log1p(x)),
    "circular": lambda x, y: (np.sin(x), np.cos(x), np.tan(x), np.arctan(x), np.arctan2(x, y)),
    "hyperbolic": lambda x, y: (np.sinh(x), np.cosh(x), np.tanh(x), np.arcsinh(x)),
    "roots": lambda x, y: (np.cbrt(x), np.hypot(x, y)),
    "powers": lambda x, y: (x**3, abs(x) ** 0.5, abs(x) ** y, x**-2.0),
}
# Where NumPy rounds each of many steps: off by no more than it is, from what float64 gives.
SUMS = {
    "sums": lambda x, w: (x.sum(), x.sum(axis=0), x.sum(axis=1)),
    "moments": lambda x, w: (x.mean(), x.mean(axis=0), x.var(axis=1), x.std()),
    "masked": lambda x, w: (np.sum(x, where=w > 0), np.nanmean(x, axis=0)),
    "running": lambda x, w: np.cumsum(x, axis=1),
    "products": lambda x, w: (x @ w.T, x[0] @ w[0], x @ w[0], x[:3, :4] @ w[:4, :5]),
    "contractions": lambda x, w: np.einsum("ij,ij->i", x, w),
    "norms": lambda x, w: (np.linalg.norm(x), np.linalg.norm(x, axis=1)),
}


def _results(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _compiled(f: Any, args: tuple[Any, ...], backend: str) -> Any:
    """Return what a third call gives, which runs compiled code."""
    with use_all_sizes(backend), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jitted = adarray.jit(f)
        for _ in range(3):
            actual = jitted(*args)
        assert not any(e.eager for e in jitted.entries)
    return _results(actual)


def _plain(f: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _results(f(*args))


def _place(x: Any) -> Any:
    """Return the number of a float16 in the order of all of them."""
    bits = np.asarray(x).view(np.int16).astype(int)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", EXACT)
def test_every_number(name: str, backend: str) -> None:
    """Infinities, nan, subnormal numbers, overflow and zeros of both signs among them."""
    for got, want in zip(
        _compiled(EXACT[name], (ALL, OTHER), backend),
        _plain(EXACT[name], (ALL, OTHER)),
        strict=True,
    ):
        assert got.dtype == want.dtype
        assert same_bits(got, want)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SHAPED)
def test_shapes(name: str, backend: str) -> None:
    got, want = _compiled(SHAPED[name], (X, W), backend), _plain(SHAPED[name], (X, W))
    for g, e in zip(got, want, strict=True):
        assert np.asarray(g).dtype == np.asarray(e).dtype
        assert same_bits(g, e)


@pytest.mark.parametrize("name", CLOSE)
def test_functions(name: str, backend: str) -> None:
    got, want = _compiled(CLOSE[name], (ALL, OTHER), backend), _plain(CLOSE[name], (ALL, OTHER))
    for g, e in zip(got, want, strict=True):
        assert g.dtype == np.float16
        hole = np.isnan(e)
        np.testing.assert_array_equal(np.isnan(g), hole)
        assert np.max(np.abs(_place(g) - _place(e))[~hole]) <= 1


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_exact_as_those_of_numpy(name: str, backend: str) -> None:
    got, want = _compiled(SUMS[name], (X, W), backend), _plain(SUMS[name], (X, W))
    exact = _plain(SUMS[name], (X.astype(float), W.astype(float)))
    for g, e, true in zip(got, want, exact, strict=True):
        assert np.asarray(g).dtype == np.asarray(e).dtype == np.float16
        off = [np.max(np.abs(np.float64(v) - true)) for v in (g, e)]
        assert off[0] <= off[1] + np.max(np.spacing(np.abs(np.float16(true)))) / 2


@pytest.mark.parametrize("dtype", ["bool", "float32", "float64", *INTEGERS])
def test_rounding(dtype: str, backend: str) -> None:
    """Numbers of any dtype are rounded once, as by NumPy."""
    if dtype == "float32":
        x = RNG.integers(0, 1 << 32, 100000, dtype=np.uint32).view(np.float32)
    elif dtype == "float64":
        x = HARD
    else:
        info = np.iinfo(dtype) if dtype != "bool" else None
        x = RNG.integers(info.min, info.max, 5000, dtype) if info else RNG.random(99) < 0.5
    f = lambda x: x.astype(np.float16)  # noqa: E731
    (got,), (want,) = _compiled(f, (x,), backend), _plain(f, (x,))
    assert got.dtype == np.float16
    assert same_bits(got, want)


@pytest.mark.parametrize("size", [65504, -65504])
def test_overflow_is_reported(size: float, backend: str) -> None:
    """By the operation that rounds to infinity, not by one that just does not."""
    x, step = np.full(99, size, np.float16), np.float16(np.copysign(16, size))
    with use_all_sizes(backend), np.errstate(over="raise"):
        jitted = adarray.jit(lambda x, y: x * 1 + y)
        for _ in range(3):
            jitted(x, step / 2)
        with pytest.raises(FloatingPointError, match="overflow"):
            jitted(x, step)
        assert not np.any(jitted(np.full(99, np.inf, np.float16), step) < np.inf)


@pytest.mark.unchecked  # NumPy overflows here, and compiled code does not
def test_sums_do_not_overflow_on_the_way(backend: str) -> None:
    x = np.full(70000, 3.0, np.float16)
    mean, norm = _compiled(lambda x: (np.mean(x), np.linalg.norm(x)), (x,), backend)
    assert mean == 3.0
    assert norm == np.float16(np.sqrt(9.0 * x.size))


def test_kernels_take_the_place_of_calls() -> None:
    with use_all_sizes("serial"):
        jitted = adarray.jit(adarray.grad(lambda x: np.sum(np.tanh(x) * x)))
        for _ in range(3):
            jitted(X)
        text = str(jitted.explain(X))
    assert "adarray_f16_to_f32" in text
    assert "adarray_f32_to_f16" in text


def test_nothing_is_rounded_that_fits() -> None:
    """A choice among numbers of half precision is one of them."""
    with use_all_sizes("serial"):
        jitted = adarray.jit(lambda x, y: np.where(x > 0, np.maximum(x, y), 0.5) + 1)
        for _ in range(3):
            jitted(X, W)
        text = str(jitted.explain(X, W))
    assert text.count("= adarray_f32_to_f16(") == 1


@pytest.mark.slow_on("openmp")
def test_gradients(backend: str) -> None:
    """They have the dtype of the argument, and the value that eager code gives."""

    def loss(x: Any, w: Any) -> Any:
        h = np.tanh(x[ROWS] * w[0]) + np.where(x[:1] > 0, w[:1], -w[:1])
        return np.mean(h * h) + np.sum(np.maximum(x, w)[:, 1:] * w[:, :-1]) / 1000

    f = adarray.value_and_grad(loss, argnums=(0, 1))
    with use_all_sizes(backend):
        jitted = adarray.jit(f)
        value, slopes = f(X, W)
        for _ in range(3):
            got, actual = jitted(X, W)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, value, rtol=2e-3)
    for g, e in zip(actual, slopes, strict=True):
        assert g.dtype == e.dtype == np.float16
        np.testing.assert_allclose(g, e, rtol=2e-2, atol=2e-4)
