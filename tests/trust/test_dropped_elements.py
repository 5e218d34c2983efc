"""Elements that a function drops have no effect, however infinite their derivatives.

Programs compute something whose derivative is infinite, or nan, at some elements, and keep others
only. The oracle are differences of plain runs along the elements that are kept; the derivatives
of the others are 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from trust import COMPILED, seeds

import adarray
from adarray.jitting import JitWarning
from adarray.testing._ops import use_all_sizes

N = 4
# Their derivative at 0 is infinite, or nan; their value there is low, high or none.
LOW: dict[str, Callable[..., Any]] = {
    "sqrt": lambda x, d: np.sqrt(x),
    "power": lambda x, d: x**0.3,
    "log": lambda x, d: np.log(x),
    "log2": lambda x, d: np.log2(x) * 0.5,
    "log of a square": lambda x, d: np.log(x * x + 0.0),
    "xlogx": lambda x, d: np.sqrt(x) + x * 0.1,
    "chain": lambda x, d: np.sin(np.sqrt(x)) + np.tanh(x),
    "root of sum": lambda x, d: np.sqrt(x + x * x),
    "arccos": lambda x, d: np.arccos(1.0 - x / 4),
}
HIGH: dict[str, Callable[..., Any]] = {
    "reciprocal": lambda x, d: 1.0 / x,
    "power": lambda x, d: x**-1.5,
    "minus log": lambda x, d: -np.log(x),
    "divided": lambda x, d: (x + 1.0) / np.sqrt(x),
}
HOLES: dict[str, Callable[..., Any]] = {
    "times nan": lambda x, d: x * d,
    "plus nan": lambda x, d: np.sin(x + d) * x,
    "divided by nan": lambda x, d: np.exp(-x / d),
    "root of nan": lambda x, d: np.sqrt(x * np.abs(d)) + x,
}


def _delete(y: Any, m: np.ndarray) -> Any:
    return np.delete(np.ravel(y), np.flatnonzero(~m))


def _written(y: Any, m: np.ndarray) -> Any:
    z = np.ones_like(y)
    z[m] = y[m]
    return z


def _covered(y: Any, m: np.ndarray) -> Any:
    y = y * 1.0
    y[~m] = 2.0
    return y


def _rows(y: Any, m: np.ndarray) -> Any:
    return np.sum(y, axis=1)[m.all(axis=1)]


def _columns(y: Any, m: np.ndarray) -> Any:
    return np.mean(y, axis=0)[np.flatnonzero(m.all(axis=0))]


# Whatever the values of the others.
ANY: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "mask": lambda y, m: y[m],
    "indices": lambda y, m: y[np.nonzero(m)],
    "flat": lambda y, m: np.ravel(y)[np.flatnonzero(m)],
    "take": lambda y, m: np.take(y, np.flatnonzero(m)),
    "compress": lambda y, m: np.compress(np.ravel(m), np.ravel(y)),
    "extract": lambda y, m: np.extract(m, y),
    "delete": _delete,
    "where": lambda y, m: np.where(m, y, 0.5),
    "select": lambda y, m: np.select([m], [y], 1.0),
    "choose": lambda y, m: np.choose(m.astype(int), [np.ones(m.shape), y]),
    "piecewise": lambda y, m: np.piecewise(y, [m], [lambda v: v * v, 0.0]),
    "sum where": lambda y, m: np.sum(y, where=m),
    "sum along where": lambda y, m: np.sum(y, axis=0, where=m),
    "mean where": lambda y, m: np.mean(y, where=m),
    "max where": lambda y, m: np.max(y, where=m, initial=-9.0),
    "min where": lambda y, m: np.min(y, where=m, initial=99.0),
    "add where": lambda y, m: np.add(y, 1.0, where=m, out=np.zeros_like(y)),
    "reduce where": lambda y, m: np.add.reduce(y, axis=None, where=m),
    "written": _written,
    "covered": _covered,
    "rows": _rows,
    "columns": _columns,
    "items": lambda y, m: sum(y[tuple(i)] for i in np.argwhere(m).tolist()),
    "take_along_axis": lambda y, m: np.take_along_axis(
        y, np.argsort(~m, axis=1, kind="stable")[:, :1], axis=1
    )[m.any(axis=1)],
    "repeat": lambda y, m: np.repeat(np.ravel(y), np.ravel(m).astype(int)),
    "joined": lambda y, m: np.concatenate([np.ravel(y), np.ones(3)])[
        np.append(np.flatnonzero(m), y.size)
    ],
    "stacked": lambda y, m: np.stack([y, 2.0 * y])[:, m],
    "moved": lambda y, m: np.roll(y, 1, axis=0)[np.roll(m, 1, axis=0)],
    "turned": lambda y, m: np.transpose(y)[np.transpose(m)],
    "flipped": lambda y, m: y[::-1, ::-1][m[::-1, ::-1]],
    "reshaped": lambda y, m: np.reshape(y, (2, -1))[np.reshape(m, (2, -1))],
    "spread": lambda y, m: np.broadcast_to(y, (2, *y.shape))[:, m],
    "scaled": lambda y, m: (y * 3.0 - 1.0)[m] ** 2,
    "list": lambda y, m: np.stack([y[tuple(i)] for i in np.argwhere(m).tolist()]),
}
ORDERED = {  # of elements that lie below all others
    "max": lambda y, m: np.max(y),
    "max along": lambda y, m: np.max(y, axis=1)[m.any(axis=1)],
    "sort": lambda y, m: np.sort(y, axis=None)[np.count_nonzero(~m) :],
    "partition": lambda y, m: np.partition(y, -2, axis=None)[-2:],
    "quantile": lambda y, m: np.quantile(y, 0.97),
    "argmax": lambda y, m: np.ravel(y)[np.argmax(y)],
    "fmax": lambda y, m: np.fmax.reduce(y, axis=None),
    "maximum": lambda y, m: np.maximum(y, np.min(y[m]) - 0.1),
    "reduceat": lambda y, m: np.maximum.reduceat(np.ravel(y), [0, 5])[m.ravel()[5:].any() * 1 :],
}
REVERSED = {
    "min": lambda y, m: np.min(y),
    "sort": lambda y, m: np.sort(y, axis=None)[: np.count_nonzero(m)],
    "minimum": lambda y, m: np.minimum(y, np.max(y[m]) + 0.1),
    "clip": lambda y, m: np.clip(y, None, np.max(y[m]) + 0.1),
    "quantile": lambda y, m: np.quantile(y, 0.03),
    "fmin": lambda y, m: np.fmin.reduce(y, axis=None),
}
MISSING = {
    "nansum": lambda y, m: np.nansum(y),
    "nanmean": lambda y, m: np.nanmean(y),
    "nancumsum": lambda y, m: np.nancumsum(y),
    "nanmax": lambda y, m: np.nanmax(y),
    "nanvar": lambda y, m: np.nanvar(y),
    "nanmedian": lambda y, m: np.nanmedian(y),
    "nan_to_num": lambda y, m: np.nan_to_num(y),
    "isnan": lambda y, m: y[~np.isnan(y)],
    "finite": lambda y, m: np.where(np.isfinite(y), y, 0.0),
}
# Structured ones come with masks of their own.
BOXES: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "tril": (lambda y: np.tril(y, -1), np.tri(N, N, -1, dtype=bool)),
    "triu": (lambda y: np.triu(y, 1), ~np.tri(N, N, 0, dtype=bool)),
    "triu_indices": (lambda y: y[np.triu_indices(N)], ~np.tri(N, N, -1, dtype=bool)),
    "diag": (lambda y: np.diag(y), np.eye(N, dtype=bool)),
    "diagonal": (lambda y: np.diagonal(y, 1), np.eye(N, k=1, dtype=bool)),
    "trace": (lambda y: np.trace(y), np.eye(N, dtype=bool)),
    "einsum": (lambda y: np.einsum("ii->i", y), np.eye(N, dtype=bool)),
    "slice": (lambda y: y[1:, :-1], np.pad(np.ones((N - 1, N - 1), bool), ((1, 0), (0, 1)))),
    "steps": (lambda y: y[::2], np.arange(N)[:, None] % 2 == np.zeros((1, N))),
    "row": (lambda y: y[-1], np.arange(N)[:, None] == np.full((1, N), N - 1)),
    "rows": (lambda y: next(iter(y)) * 2.0, np.arange(N)[:, None] == np.zeros((1, N))),
    "split": (lambda y: np.split(y, 2)[1], np.arange(N)[:, None] >= np.full((1, N), 2)),
    "chain": (lambda y: np.sqrt(y[1:] + 4.0), np.arange(N)[:, None] >= np.ones((1, N))),
}


def _program(seed: int) -> tuple[str, Callable[..., Any], np.ndarray, np.ndarray]:
    """Return a description, a function, its argument, and which elements it keeps."""
    rng = np.random.default_rng(seed)

    def some(table: Any) -> tuple[str, Any]:
        name = list(table)[rng.integers(len(table))]
        return name, table[name]

    kind = ("any", "box", "low", "high", "nan")[rng.integers(5)]
    sources = {"low": LOW, "high": HIGH, "nan": HOLES}.get(kind) or (
        LOW, HIGH, HOLES)[rng.integers(3)]  # fmt: skip
    source, inner = some(sources)
    m = rng.random((N, N)) < 0.6
    m[rng.integers(N)] = True
    m[:, rng.integers(N)] = True
    if kind == "box":
        name, (saved, m) = some(BOXES)
        keep = lambda y, m: saved(y)  # noqa: E731
    else:
        tables = {"any": ANY, "low": ORDERED, "high": REVERSED, "nan": MISSING}
        name, keep = some(tables[kind])
    for _ in range(20):
        x = rng.permutation(np.linspace(0.2, 1.8, N * N)).reshape(N, N)
        d = rng.permutation(np.linspace(0.5, 1.5, N * N)).reshape(N, N)
        # The steps of both are alike: without noise, sums of them tie.
        x, d = x + rng.uniform(0, 0.05, x.shape), d + rng.uniform(0, 0.05, d.shape)
        apart = np.diff(np.sort(inner(x, d), axis=None))
        if np.min(apart) > 1e-3:  # what picks by order has no derivative where elements tie
            break
    if sources is HOLES:
        d[~m] = rng.choice([np.nan, np.nan if kind == "nan" else np.inf])
        if kind == "nan":
            d[~m] = np.nan
    else:
        x[~m] = 0.0
    if kind != "any" and kind != "box" and m.all():
        m[0, 0], x[0, 0] = False, (x[0, 0] if sources is HOLES else 0.0)
        d[0, 0] = np.nan if sources is HOLES else d[0, 0]
    weights = rng.uniform(0.5, 1.5, 64)

    def f(x: Any) -> Any:
        r = np.ravel(keep(inner(x, d), m))
        return np.sum(np.tanh(r / 4) * weights[: r.size])

    return f"{source}, {kind} {name}", f, x, m


def _row(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda y, w: function(y)


# Functions of rows, which keep what is in one out of the others; `w` belongs to all rows.
ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "vector": lambda y, w: y @ w[0],
    "matrix": lambda y, w: y @ w,
    "dot": lambda y, w: np.dot(y, w[:, :2]),
    "inner": lambda y, w: np.inner(y, w),
    "tensordot": lambda y, w: np.tensordot(y, w, ([1], [0])),
    "einsum": lambda y, w: np.einsum("ij,kj->ik", y, w),
    "einsum of three": lambda y, w: np.einsum("ij,jk,k->i", y, w, w[0]),
    "einsum of itself": lambda y, w: np.einsum("ij,ij->i", y, y),
    "quadratic": lambda y, w: np.einsum("ij,jk,ik->i", y, w, y),
    "vecdot": lambda y, w: np.sum(y * w[1], axis=1),
    "outer": lambda y, w: np.reshape(np.outer(y, w[0]), (N, -1)),
    "kron": lambda y, w: np.kron(y, w[:1]),
    "var": _row(lambda y: np.var(y, axis=1)),
    "std": _row(lambda y: np.std(y, axis=1, ddof=1)),
    "norm": _row(lambda y: np.linalg.norm(y, axis=1)),
    "norm of order 3": _row(lambda y: np.linalg.norm(y, 3, axis=1)),
    "largest": _row(lambda y: np.linalg.norm(y, np.inf, axis=1)),
    "mean": _row(lambda y: np.mean(y, axis=1)),
    "average": lambda y, w: np.average(y, axis=1, weights=w[0]),
    "median": _row(lambda y: np.median(y, axis=1)),
    "quantile": _row(lambda y: np.quantile(y, 0.4, axis=1)),
    "prod": _row(lambda y: np.prod(y, axis=1)),
    "cumsum": _row(lambda y: np.cumsum(y, axis=1)),
    "cumprod": _row(lambda y: np.cumprod(y, axis=1)),
    "sort": _row(lambda y: np.sort(y, axis=1)),
    "ptp": _row(lambda y: np.ptp(y, axis=1)),
    "fft": _row(lambda y: np.abs(np.fft.fft(y, axis=1))),
    "rfft": _row(lambda y: np.real(np.fft.rfft(y, axis=1))),
    "convolved": lambda y, w: np.stack([np.convolve(r, w[0]) for r in y]),
    "correlated": lambda y, w: np.stack([np.correlate(w[0], r, "same") for r in y]),
    "difference": _row(lambda y: np.diff(y, axis=1)),
    "gradient": _row(lambda y: np.gradient(y, axis=1)),
    "trapezoid": lambda y, w: np.trapezoid(y, axis=1) * w[0, 0],
    "logaddexp": _row(lambda y: np.logaddexp.reduce(y, axis=1)),
    "cross": lambda y, w: np.cross(y[:, :3], w[:, :3]),
    "softmax": lambda y, w: np.exp(y) / np.sum(np.exp(y), axis=1, keepdims=True) * w,
    "centered": lambda y, w: (y - np.mean(y, axis=1, keepdims=True)) @ w,
    "cov": lambda y, w: np.diag(np.cov(y)),
    "solve": lambda y, w: np.linalg.solve(_square(y, w), w[0][:, None])[..., 0],
    "inv": lambda y, w: np.reshape(np.linalg.inv(_square(y, w)), (N, -1)),
    "det": lambda y, w: np.linalg.det(_square(y, w)) * 0.01,
    "slogdet": lambda y, w: np.linalg.slogdet(_square(y, w))[1],
    "twice": lambda y, w: (np.tanh(y @ w) @ w).sum(axis=1),
    "written": lambda y, w: _put(y, w) @ w,
}
KEPT: dict[str, Callable[[Any, np.ndarray], Any]] = {
    "mask": lambda r, m: r[m],
    "indices": lambda r, m: r[np.flatnonzero(m)],
    "take": lambda r, m: np.take(r, np.flatnonzero(m), axis=0),
    "compress": lambda r, m: np.compress(m, r, axis=0),
    "delete": lambda r, m: np.delete(r, np.flatnonzero(~m), axis=0),
    "where": lambda r, m: np.where(m.reshape(-1, *[1] * (r.ndim - 1)), r, 0.5),
    "sum where": lambda r, m: np.sum(
        r, axis=0, where=np.broadcast_to(m.reshape(-1, *[1] * (r.ndim - 1)), r.shape)
    ),
    "items": lambda r, m: np.stack([r[i] for i in np.flatnonzero(m).tolist()]),
    "after more": lambda r, m: (np.sin(r) + r * r)[m],
}


def _square(y: Any, w: Any) -> Any:
    """Return a matrix for each row."""
    return y[:, :, None] * w + 6.0 * np.eye(N)


def _put(y: Any, w: Any) -> Any:
    z = np.ones((N, N)) * w[0]
    z[:, 1:] = y[:, 1:]
    return z


def _row_program(seed: int) -> tuple[str, Callable[..., Any], np.ndarray, np.ndarray]:
    """Return a program of rows, some of which are dropped; the last rows of x belong to all."""
    rng = np.random.default_rng(seed)
    name = list(ROWS)[rng.integers(len(ROWS))]
    names = list(KEPT)[rng.integers(len(KEPT))]
    source = list(LOW | HOLES)[rng.integers(len(LOW | HOLES))]
    inner, function, keep = (LOW | HOLES)[source], ROWS[name], KEPT[names]
    m = rng.random(N) < 0.6
    m[rng.integers(N)] = True
    x = rng.permutation(np.linspace(0.2, 1.8, 2 * N * N)).reshape(2 * N, N)
    d = rng.permutation(np.linspace(0.5, 1.5, N * N)).reshape(N, N)
    holes = rng.random((N, N)) < 0.5
    holes[:, rng.integers(N)] = True
    holes[m] = False
    if source in HOLES:
        d[holes] = rng.choice([np.nan, np.nan, np.inf])
    else:
        x[:N][holes] = 0.0
    weights = rng.uniform(0.5, 1.5, 64)
    # Whether rows are constants, too: those of data.
    constant = None
    if rng.random() < 0.4:
        with np.errstate(all="ignore"):
            constant = inner(x[:N], d)

    def f(x: Any) -> Any:
        y = inner(x[:N], d) if constant is None else constant
        r = np.ravel(keep(function(y, x[N:]), m))
        return np.sum(np.tanh(r / 4) * weights[: r.size])

    counts = np.ones(x.shape, bool)
    counts[:N] = m[:, None] & (constant is None)
    return f"{source}, {name} of rows, {names}", f, x, counts


def _differences(f: Callable[[Any], Any], x: np.ndarray, t: np.ndarray) -> tuple[float, float]:
    """Return first and second derivatives of a plain function along `t`."""
    h = 1e-4
    values = [float(f(x + k * h * t)) for k in (-2, -1, 0, 1, 2)]
    first = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * h)
    second = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / (
        12 * h * h
    )
    return first, second


def _check(seed: int, mode: str, backend: str, program: Any = _program) -> None:
    what, f, x, m = program(seed)
    what = f"seed {seed}, {what}, {mode} on {backend}"
    rng = np.random.default_rng(seed)
    everywhere = rng.uniform(-1, 1, x.shape)
    t = np.where(m, everywhere, 0.0)
    with warnings.catch_warnings(), use_all_sizes(backend), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", JitWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        first, second = _differences(f, x, t)
        assert np.isfinite(first), what
        if mode == "jvp":
            for direction in (t, everywhere):
                got = adarray.jvp(f, (x,), (direction,))[1]
                np.testing.assert_allclose(got, first, rtol=1e-6, atol=1e-6, err_msg=what)
            return
        if mode == "nested":
            inner = adarray.grad(lambda x: np.sum(adarray.grad(f)(x) * t))
            g = inner(x)
            np.testing.assert_allclose(np.sum(g * t), second, rtol=1e-3, atol=1e-3, err_msg=what)
        else:
            transformed = adarray.grad(f, intercept=mode == "intercept")
            if mode == "jit(grad)":
                transformed = adarray.jit(transformed)
                for _ in range(3):
                    transformed(x)
            g = transformed(x)
            np.testing.assert_allclose(np.sum(g * t), first, rtol=1e-6, atol=1e-6, err_msg=what)
        assert np.all(np.isfinite(g)), f"{what}: {g}"
        assert not np.any(g[~m]), f"{what}: {g}"


@pytest.mark.parametrize("mode", ["plain", "intercept", "jvp", "nested", "jit(grad)"])
def test_dropped_elements(mode: str) -> None:
    for seed in seeds(160 if mode != "jit(grad)" else 60):
        _check(seed, mode, "numpy")


@pytest.mark.slow
@pytest.mark.parametrize("backend", COMPILED)
def test_dropped_elements_in_compiled_code(backend: str) -> None:
    for seed in list(seeds(300))[::25]:
        _check(seed, "jit(grad)", backend)


@pytest.mark.parametrize("mode", ["plain", "intercept", "jvp", "nested", "jit(grad)"])
def test_dropped_rows(mode: str) -> None:
    for seed in seeds(100 if mode != "jit(grad)" else 40):
        _check(seed, mode, "numpy", _row_program)


@pytest.mark.parametrize("backend", COMPILED)
def test_dropped_rows_in_compiled_code(backend: str) -> None:
    for seed in list(seeds(300))[::50]:
        _check(seed, "jit(grad)", backend, _row_program)
